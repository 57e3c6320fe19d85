/* `reeld model pull`: the files of a catalogue's model, into a hidden folder that is renamed when
 * all of it is there and right. What an installed model has already is shared by hard link. One
 * thread. */
#include "base/clock.h"
#include "base/fs.h"
#include "cli/model.h"
#include "cli/term.h"
#include "config/config.h"
#include "net/net.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int unknown_model(const struct model_job *job, const char *name)
{
    const struct published_model *model;

    fputs("reeld: '", stderr);
    cli_put(stderr, name);
    fputs("' is not in the catalogue, which has", stderr);
    for (size_t i = 0; (model = model_catalogue_at(job->catalogue, i)); i++)
        fprintf(stderr, "%s %s", i ? "," : "", model->name);
    fputs("\n", stderr);
    return CLI_USAGE;
}

/* A mirror is an http or https address. */
static enum rl_rc check_mirror(const struct model_job *job, struct rl_err *err)
{
    return net_url_check(config_text(job->cfg, CFG_MODEL_MIRROR), "model.mirror", NULL, NULL, 0,
                         err);
}

/* The same file of another model here, linked to `path`. */
static bool share(struct model_job *job, const struct published_file *file, const char *path)
{
    char theirs[MODEL_PATH], text[200];
    struct library here;
    AUTO_FREE struct model_manifest *m = malloc(sizeof(*m));
    struct stat st;

    library_list(job->cfg, &here);
    for (size_t i = 0; m && file->sha256 && i < here.count; i++) {
        if (model_path(job, here.names[i], false, NULL, theirs, NULL) ||
            model_manifest_read(theirs, m, NULL))
            continue;
        for (size_t k = 0; k < m->count; k++) {
            if (strcmp(m->files[k].sha256, file->sha256) != 0 ||
                model_path(job, here.names[i], false, m->files[k].path, theirs, NULL) ||
                stat(theirs, &st) != 0 || st.st_size != file->bytes ||
                linkat(AT_FDCWD, theirs, AT_FDCWD, path, AT_SYMLINK_FOLLOW) != 0)
                continue;
            (void)snprintf(text, sizeof(text), "shared with %s", here.names[i]); /* fits */
            model_say(job, "shared", file->path, text);
            return true;
        }
    }
    return false;
}

/* The folder of a file, and the file when an installed model has it. */
static enum rl_rc prepare(struct model_job *job, const char *name,
                          const struct published_file *file, struct rl_err *err)
{
    char path[MODEL_PATH];
    enum rl_rc rc = model_path(job, name, true, file->path, path, err);

    if (rc)
        return rc;
    *strrchr(path, '/') = '\0';
    rc = rl_fs_mkdirs(path, 0755, err);
    path[strlen(path)] = '/';
    if (!rc && access(path, F_OK) != 0)
        (void)share(job, file, path); /* fetched otherwise */
    return rc;
}

static enum rl_rc get_file(struct model_job *job, const char *name,
                           const struct published_file *file, struct model_file *ret_file,
                           struct rl_err *err)
{
    char path[MODEL_PATH];
    struct stat st;
    int64_t bytes;
    enum rl_rc rc = model_path(job, name, true, file->path, path, err);

    if (rc)
        return rc;
    (void)rl_copy_str(ret_file->path, sizeof(ret_file->path), file->path); /* the table's fit */
    ret_file->bytes = file->bytes;
    if (stat(path, &st) != 0 || st.st_size != file->bytes)
        return model_fetch(job, path, file, ret_file->sha256, err);
    /* it got its name when it was complete, and its digest, where one is known, right */
    if (!file->sha256)
        return model_digest(job, path, file->path, NULL, ret_file->sha256, &bytes, err);
    (void)rl_copy_str(ret_file->sha256, sizeof(ret_file->sha256), file->sha256); /* fits */
    return RL_OK;
}

static enum rl_rc pull(struct model_job *job, const struct published_model *model,
                       struct rl_err *err)
{
    AUTO_FREE struct model_manifest *m = calloc(1, sizeof(*m));
    enum rl_rc rc = m ? RL_OK : rl_fail(err, RL_NO_MEMORY, "out of memory");

    for (int i = 0; i < WAN_PARTS && !rc; i++)
        rc = prepare(job, model->name, &model->files[i], err);
    if (!rc)
        rc = model_check_room(job, published_bytes(model) - model_pulled_bytes(job, model), err);
    for (int i = 0; i < WAN_PARTS && !rc; i++)
        rc = get_file(job, model->name, &model->files[i], &m->files[m->count++], err);
    if (rc)
        return rc;
    (void)rl_copy_str(m->name, sizeof(m->name), model->name); /* the table's fit */
    (void)rl_copy_str(m->licence, sizeof(m->licence), model->licence ? model->licence : "");
    (void)snprintf(m->origin, sizeof(m->origin), "pulled from %.400s",
                   config_text(job->cfg, CFG_MODEL_MIRROR)); /* cut is well enough */
    m->added_at_ms = rl_wall_ms();
    return model_publish(job, m, err);
}

static int pull_known(struct model_job *job, const struct published_model *model)
{
    struct rl_err err = {0};
    enum rl_rc rc = check_mirror(job, &err);

    if (!rc)
        rc = model_job_lock(job, &err);
    if (!rc && model_exists(job, model->name)) {
        model_say(job, "done", model->name, "is here already; `reeld model verify` checks it");
        return CLI_OK;
    }
    if (!rc)
        rc = pull(job, model, &err);
    if (rc == RL_CANCELED) {
        cli_meter_clear(&job->meter);
        fputs("reeld: stopped; the same command goes on from here\n", stderr);
        return CLI_INTERRUPTED;
    }
    if (rc)
        return model_fail(job, &err);
    model_say(job, "done", model->name, "is here; a server that runs knows it after a restart");
    return CLI_OK;
}

static int run_pull(const struct cli_call *call)
{
    AUTO_JOB struct model_job job = {.lock = -1};
    struct rl_err err = {0};

    int status = model_job_open(call, "model pull", &job);
    if (status != CLI_OK)
        return status;
    const struct published_model *model = model_catalogue_find(job.catalogue, call->args->words[0]);
    if (!model)
        return unknown_model(&job, call->args->words[0]);
    if (net_init(&err))
        return model_fail(&job, &err);
    (void)signal(SIGPIPE, SIG_IGN); /* a peer that is gone is an error of write, as net wants it */
    status = pull_known(&job, model);
    net_cleanup();
    return status;
}

const struct cli_command cli_model_pull = {
    .name = "model pull",
    .synopsis = "NAME",
    .summary = "get a model of the catalogue, or what is missing of it",
    .details = "Takes up where it was stopped or cut off, checks sizes and SHA-256, and shows the\n"
               "model only when all of it is there. `reeld model list` has the names.\n"
               "model.mirror is the server to ask. Into a pipe it writes JSON lines.\n",
    .options = model_options,
    .min_words = 1,
    .max_words = 1,
    .run = run_pull,
};
