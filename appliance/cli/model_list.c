/* `reeld model list` and `reeld model rm`. One thread; no state. */
#include "base/buf.h"
#include "base/fs.h"
#include "cli/client.h"
#include "cli/model.h"
#include "cli/term.h"
#include "engine/wan/estimate.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* A line of the list. */
struct row {
    const char *name, *state, *source, *licence; /* borrowed; NULL = not known */
    int64_t bytes, memory, added_at_ms;          /* 0 = not known */
    int64_t have;                                /* of a partial one */
    bool built_in;
    bool first;          /* what a request gets that names no model */
    const char *problem; /* NULL = none */
};

struct listing {
    struct model_job *job;
    struct rl_buf text;
    struct rl_jw w;
    bool default_seen;
};

static void put_row(struct listing *l, const struct row *r)
{
    char size[32] = "-", memory[32] = "-", state[32];

    if (l->job->json) {
        rl_jw_object(&l->w, NULL);
        rl_jw_str(&l->w, "name", r->name);
        rl_jw_str(&l->w, "state", r->state);
        rl_jw_bool(&l->w, "default", r->first);
        rl_jw_str(&l->w, "source", r->source);
        rl_jw_str(&l->w, "licence", r->licence);
        rl_jw_i64(&l->w, "bytes", r->bytes);
        rl_jw_i64(&l->w, "have_bytes", r->have);
        rl_jw_i64(&l->w, "memory_bytes", r->memory);
        rl_jw_time(&l->w, "added_at", r->added_at_ms);
        rl_jw_str(&l->w, "problem", r->problem);
        rl_jw_end_object(&l->w);
        return;
    }
    if (r->bytes)
        cli_size_text(r->bytes, size);
    if (r->memory)
        cli_size_text(r->memory, memory);
    (void)snprintf(state, sizeof(state), "%s", r->state); /* fits */
    if (strcmp(r->state, "partial") == 0 && r->bytes > 0)
        (void)snprintf(state, sizeof(state), "partial %d%%",
                       (int)(100.0 * (double)r->have / (double)r->bytes)); /* fits */
    cli_put_cell(r->name, 24);
    printf("%-12s  %10s  %10s  ", state, size, memory);
    cli_put_cell(r->licence, 12);
    if (r->problem)
        cli_put(stdout, r->problem);
    else if (r->first)
        cli_put(stdout, r->built_in ? "default; the small one in this program: `reeld engines`"
                                    : "default");
    putchar('\n');
}

static void list_here(struct listing *l, const char *name)
{
    char folder[MODEL_PATH];
    AUTO_FREE struct model_manifest *m = malloc(sizeof(*m));
    struct wan_model *model = NULL;
    struct rl_err err = {0};
    struct row r = {.name = name, .state = "ready", .source = "put there by hand"};

    enum rl_rc rc = m ? model_path(l->job, name, false, NULL, folder, &err)
                      : rl_fail(&err, RL_NO_MEMORY, "out of memory");
    if (rc == RL_OK && !model_exists(l->job, name)) {
        r.source = "part of this program";
        r.built_in = true;
    } else if (rc == RL_OK && model_manifest_read(folder, m, NULL) == RL_OK) {
        r.source = m->origin;
        r.licence = *m->licence ? m->licence : NULL;
        r.added_at_ms = m->added_at_ms;
        r.bytes = r.have = model_manifest_bytes(m);
    } else if (rc == RL_OK && model_manifest_guess(folder, m, NULL) == RL_OK) {
        r.bytes = r.have = model_manifest_bytes(m);
    }
    if (rc == RL_OK)
        rc = library_model(l->job->cfg, name, &model, &err);
    if (rc == RL_OK) {
        r.memory = estimate_default(wan_model_config(model), ops_cpu()->act_bytes);
        r.first = !l->default_seen;
        l->default_seen = true;
    } else {
        r.state = "broken";
        r.problem = err.reason;
    }
    wan_model_close(model);
    put_row(l, &r);
}

static void list_published(struct listing *l, const struct published_model *model)
{
    int64_t have = model_pulled_bytes(l->job, model);
    struct row r = {.name = model->name,
                    .state = have < 0 ? "available" : "partial",
                    .source = "catalogue",
                    .licence = model->licence,
                    .bytes = published_bytes(model),
                    .have = have < 0 ? 0 : have,
                    .memory = model->memory_bytes};

    if (!model_exists(l->job, model->name))
        put_row(l, &r);
}

static int run_list(const struct cli_call *call)
{
    AUTO_JOB struct model_job job = {.lock = -1};
    struct listing l = {.job = &job};
    struct library here;
    const struct published_model *model;

    int status = model_job_open(call, "model list", &job);
    if (status != CLI_OK)
        return status;
    rl_buf_init(&l.text, (size_t)1 << 20);
    rl_jw_init(&l.w, &l.text, false);
    rl_jw_object(&l.w, NULL);
    rl_jw_array(&l.w, "data");
    if (!job.json)
        printf("%-24s  %-12s  %10s  %10s  %-12s\n", "NAME", "STATE", "SIZE", "MEMORY", "LICENCE");
    library_list(job.cfg, &here);
    for (size_t i = 0; i < here.count; i++)
        list_here(&l, here.names[i]);
    for (size_t i = 0; (model = model_catalogue_at(job.catalogue, i)); i++)
        list_published(&l, model);
    rl_jw_end_array(&l.w);
    rl_jw_end_object(&l.w);
    if (job.json && !l.text.failed)
        cli_put_json(l.text.data, l.text.len);
    rl_buf_free(&l.text);
    return CLI_OK;
}

/* ---- rm ---- */

static bool agreed(const struct cli_args *args, const char *what, int64_t bytes)
{
    char size[32], answer[16] = "";

    if (cli_args_has(args, "yes"))
        return true;
    if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO)) {
        fputs("reeld: --yes is needed where nobody can be asked\n", stderr);
        return false;
    }
    cli_size_text(bytes, size);
    fprintf(stderr, "remove %s (%s)? [y/N] ", what, size);
    fflush(stderr);
    return fgets(answer, sizeof(answer), stdin) && (answer[0] == 'y' || answer[0] == 'Y');
}

/* Out of sight at once, then gone; a server that has it open keeps it until it ends. */
static enum rl_rc remove_model(struct model_job *job, const char *name, bool part,
                               struct rl_err *err)
{
    char folder[MODEL_PATH], hidden[MODEL_PATH + 8];
    enum rl_rc rc = model_path(job, name, part, NULL, folder, err);

    if (rc)
        return rc;
    (void)snprintf(hidden, sizeof(hidden), "%s/.gone", job->dir); /* fits */
    rc = model_remove_tree(hidden, err);
    if (!rc && rename(folder, hidden) != 0)
        rc = rl_fail_errno(err, "rename the model's folder", errno);
    return rc ? rc : model_remove_tree(hidden, err);
}

static int64_t bytes_of(const struct model_job *job, const char *name, bool part)
{
    char folder[MODEL_PATH];
    const struct published_model *known = model_catalogue_find(job->catalogue, name);
    AUTO_FREE struct model_manifest *m = NULL;

    if (part && known)
        return model_pulled_bytes(job, known);
    m = malloc(sizeof(*m));
    if (!m || model_path(job, name, part, NULL, folder, NULL) ||
        (model_manifest_read(folder, m, NULL) && model_manifest_guess(folder, m, NULL)))
        return 0;
    return model_manifest_bytes(m);
}

static int run_rm(const struct cli_call *call)
{
    AUTO_JOB struct model_job job = {.lock = -1};
    const char *name = call->args->words[0];
    struct rl_err err = {0};
    char folder[MODEL_PATH];
    bool part = false;

    int status = model_job_open(call, "model rm", &job);
    if (status != CLI_OK)
        return status;
    cli_signals_release(); /* a question may be answered by Ctrl-C */
    enum rl_rc rc = model_name_ok(name) ? model_path(&job, name, true, NULL, folder, &err)
                                        : rl_fail(&err, RL_NOT_FOUND, "no such model");
    if (!rc && !model_exists(&job, name)) {
        part = access(folder, F_OK) == 0;
        if (!part)
            rc = rl_fail(&err, RL_NOT_FOUND, "there is no model %s here", name);
    }
    if (!rc && !agreed(call->args, name, bytes_of(&job, name, part)))
        return CLI_USAGE;
    if (!rc)
        rc = model_job_lock(&job, &err);
    if (!rc)
        rc = remove_model(&job, name, part, &err);
    if (rc)
        return model_fail(&job, &err);
    model_say(&job, "removed", name, "is removed");
    return CLI_OK;
}

static const struct cli_option rm_options[] = {
    {"yes", 'y', NULL, "do not ask"},
    {"state-dir", 'd', "DIR", "the state folder, which has models/ in it"},
    {"config", 'c', "FILE", "configuration file; /etc/reeld/reeld.conf otherwise, when it exists"},
    {"set", 0, "KEY=VALUE", "one configuration key (model.dir, …); may be repeated"},
    {"json", 0, NULL, "JSON also on a terminal"},
    {0},
};

const struct cli_command cli_model_list = {
    .name = "model list",
    .synopsis = "",
    .summary = "list the models here, and those of the catalogue",
    .details = "MEMORY is the most that a clip of the model's default size needs on a GPU,\n"
               "weights included. `default` is what a request gets that names no model.\n",
    .options = model_options,
    .run = run_list,
};
const struct cli_command cli_model_rm = {
    .name = "model rm",
    .synopsis = "NAME",
    .summary = "remove a model, or what has been pulled of it",
    .details = "A server that has it open keeps the files until it is restarted.\n",
    .options = rm_options,
    .min_words = 1,
    .max_words = 1,
    .run = run_rm,
};
