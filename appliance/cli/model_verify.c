/* `reeld model verify`: a model's files against what was put there and against the catalogue, then
 * opened, then every number in them. Changes nothing. One thread. */
#include "cli/model_verify.h"

#include "base/fs.h"
#include "cli/client.h"
#include "cli/term.h"
#include "config/config.h"
#include "engine/wan/estimate.h"
#include "engine/wan/tokenizer.h"

#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void verify_say(struct verify *v, enum verify_verdict verdict, const char *name, const char *fmt,
                ...)
{
    static const char *const words[] = {"ok", "warn", "FAIL"};
    char text[1024];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap); /* a long one is cut */
    va_end(ap);
    v->failed += verdict == VERIFY_FAIL;
    rl_buf_fmt(&v->report, "%-4s %s: %s\n", words[verdict], name, text);
    cli_meter_clear(&v->job->meter);
    if (v->job->json) {
        rl_jw_object(&v->w, NULL);
        rl_jw_str(&v->w, "name", name);
        rl_jw_str(&v->w, "verdict", words[verdict]);
        rl_jw_str(&v->w, "text", rl_utf8_valid(text, strlen(text)) ? text : "?");
        rl_jw_end_object(&v->w);
        return;
    }
    printf("%-4s ", words[verdict]);
    cli_put(stdout, name);
    fputs(": ", stdout);
    cli_put(stdout, text);
    putchar('\n');
    fflush(stdout);
}

/* ---- files ---- */

static void judge_digest(struct verify *v, const struct model_file *f, const char *sha256)
{
    const struct published_file *known = model_catalogue_file(v->job->catalogue, sha256, f->bytes);

    if (*f->sha256 && strcmp(f->sha256, sha256) != 0)
        verify_say(v, VERIFY_FAIL, f->path, "SHA-256 is %s, was %s when it came", sha256,
                   f->sha256);
    else if (known)
        verify_say(v, VERIFY_OK, f->path, "SHA-256 %s, the catalogue's %s", sha256,
                   strrchr(known->path, '/') + 1);
    else if (*f->sha256)
        verify_say(v, VERIFY_OK, f->path, "SHA-256 %s, as when it came; not in the catalogue",
                   sha256);
    else
        verify_say(v, VERIFY_WARN, f->path, "SHA-256 not known, computed: %s", sha256);
}

/* RL_CANCELED only; what is wrong is a finding. */
static enum rl_rc verify_file(struct verify *v, const char *folder, struct model_file *f,
                              struct rl_err *err)
{
    char path[MODEL_PATH], sha256[MODEL_SHA256];
    int64_t bytes = 0;
    struct stat st;
    struct rl_err why = {0};

    if (snprintf(path, sizeof(path), "%s/%s", folder, f->path) >= (int)sizeof(path) ||
        stat(path, &st) != 0) {
        verify_say(v, VERIFY_FAIL, f->path, "is not there");
        return RL_OK;
    }
    if (st.st_size != f->bytes) {
        verify_say(v, VERIFY_FAIL, f->path, "has %lld bytes, had %lld when it came",
                   (long long)st.st_size, (long long)f->bytes);
        return RL_OK;
    }
    enum rl_rc rc = model_digest(v->job, path, f->path, NULL, sha256, &bytes, &why);
    if (rc == RL_CANCELED)
        return rl_fail(err, rc, "stopped");
    if (rc) {
        verify_say(v, VERIFY_FAIL, f->path, "cannot be read: %s", why.reason);
        return RL_OK;
    }
    judge_digest(v, f, sha256);
    (void)rl_copy_str(f->sha256, sizeof(f->sha256), sha256); /* the same size */
    return RL_OK;
}

/* ---- the whole ---- */

static void describe(struct verify *v, const struct wan_model *model)
{
    const struct wan_config *c = wan_model_config(model);
    struct tokenizer *tokenizer = NULL;
    struct rl_err err = {0};
    char memory[32], on_cpu[32];

    verify_say(v, VERIFY_OK, "model",
               "%s: transformer %d wide, %d layers, %d heads; text encoder %d wide, %d layers, "
               "%d rows; VAE %d levels, %d latents",
               c->name, c->dit.dim, c->dit.layers, c->dit.heads, c->text.dim, c->text.layers,
               c->text.vocab, c->vae.levels, c->vae.channels);
    cli_size_text(estimate_default(c, MODEL_BF16), memory);
    cli_size_text(estimate_default(c, ops_cpu()->act_bytes), on_cpu);
    verify_say(v, VERIFY_OK, "memory",
               "%s on a GPU, %s on this CPU for %d frames of %d x %d; parameters: %lld, %lld, %lld",
               memory, on_cpu, c->defaults.frames, c->defaults.width, c->defaults.height,
               (long long)wan_model_parameters(model, WAN_DIT),
               (long long)wan_model_parameters(model, WAN_TEXT),
               (long long)wan_model_parameters(model, WAN_VAE));
    if (wan_model_tokenizer(model, &tokenizer, &err))
        verify_say(v, VERIFY_FAIL, "tokenizer", "%s", err.reason);
    else
        verify_say(v, VERIFY_OK, "tokenizer", "%d pieces", tokenizer_vocab(tokenizer));
    tokenizer_free(tokenizer);
}

static enum rl_rc verify_contents(struct verify *v, const char *name, bool quick,
                                  struct rl_err *err)
{
    struct wan_model *model = NULL;
    struct rl_err why = {0};

    if (library_model(v->job->cfg, name, &model, &why)) {
        verify_say(v, VERIFY_FAIL, "model", "does not open: %s", why.reason);
        return RL_OK;
    }
    describe(v, model);
    enum rl_rc rc = quick ? RL_OK : verify_numbers(v, model, err);
    wan_model_close(model);
    return rc;
}

/* Names of files that are the owner's, not the catalogue's. */
static void scrub_files(struct verify *v, const struct model_manifest *m)
{
    for (size_t i = 0; i < m->count; i++) {
        const char *name = strrchr(m->files[i].path, '/');
        if (name && !model_catalogue_file(v->job->catalogue, m->files[i].sha256, m->files[i].bytes))
            verify_scrub(&v->report, name + 1, "<file>");
    }
}

static enum rl_rc verify_model(struct verify *v, const char *name, bool quick, struct rl_err *err)
{
    char folder[MODEL_PATH];
    AUTO_FREE struct model_manifest *m = NULL;
    struct rl_err why = {0};

    enum rl_rc rc = model_path(v->job, name, false, NULL, folder, err);
    if (rc)
        return rc;
    m = malloc(sizeof(*m));
    if (!m)
        return rl_fail(err, RL_NO_MEMORY, "out of memory");
    rl_buf_fmt(&v->report, "\n-- %s\n",
               model_catalogue_find(v->job->catalogue, name) ? name : "a model of another name");
    if (!v->job->json)
        printf("%s\n", name);
    if (v->job->json) {
        rl_jw_object(&v->w, NULL);
        rl_jw_str(&v->w, "name", name);
        rl_jw_array(&v->w, "checks");
    }
    rc = model_manifest_read(folder, m, &why);
    if (rc && rc != RL_NOT_FOUND)
        verify_say(v, VERIFY_FAIL, "manifest", "%s", why.reason);
    if (rc && model_manifest_guess(folder, m, &why))
        m->count = 0; /* opening it will say why */
    rc = RL_OK;
    for (size_t i = 0; i < m->count && !rc; i++)
        rc = verify_file(v, folder, &m->files[i], err);
    if (!rc)
        rc = verify_contents(v, name, quick, err);
    scrub_files(v, m);
    if (v->job->json) {
        rl_jw_end_array(&v->w);
        rl_jw_end_object(&v->w);
    }
    return rc;
}

static enum rl_rc verify_named(struct verify *v, const struct cli_args *args, struct rl_err *err)
{
    const char *wish = args->word_count ? args->words[0] : NULL;
    bool quick = cli_args_has(args, "quick");
    struct library here;
    enum rl_rc rc = RL_OK;

    size_t seen = 0;

    library_list(v->job->cfg, &here);
    for (size_t i = 0; i < here.count && !rc; i++)
        if (!wish || strcmp(wish, here.names[i]) == 0) {
            seen++;
            rc = verify_model(v, here.names[i], quick, err);
        }
    if (!rc && !seen)
        rc = rl_fail(err, RL_NOT_FOUND, "there is no such model here; see `reeld model list`");
    return rc;
}

static enum rl_rc write_report(struct verify *v, const char *file, struct rl_err *err)
{
    const char *home = getenv("HOME");

    verify_scrub(&v->report, v->job->dir, "<models>");
    verify_scrub(&v->report, config_text(v->job->cfg, CFG_STATE_DIR), "<state>");
    if (home && strlen(home) > 1)
        verify_scrub(&v->report, home, "<home>");
    enum rl_rc rc = rl_buf_ok(&v->report, err);
    return rc ? rc : rl_fs_write_durable(file, v->report.data, v->report.len, 0644, err);
}

static int run_verify(const struct cli_call *call)
{
    AUTO_JOB struct model_job job = {.lock = -1};
    struct verify v = {.job = &job};
    const char *file = cli_args_text(call->args, "report");
    struct rl_err err = {0};

    int status = model_job_open(call, "model verify", &job);
    if (status != CLI_OK)
        return status;
    job.meter.json = false; /* one document at the end, no lines before it */
    rl_buf_init(&v.text, (size_t)4 << 20);
    rl_buf_init(&v.report, (size_t)4 << 20);
    rl_jw_init(&v.w, &v.text, false);
    rl_jw_object(&v.w, NULL);
    rl_jw_array(&v.w, "data");
    verify_machine(&v);
    enum rl_rc rc = verify_named(&v, call->args, &err);
    rl_jw_end_array(&v.w);
    rl_jw_bool(&v.w, "ok", !rc && v.failed == 0);
    rl_jw_end_object(&v.w);
    if (!rc && job.json && !v.text.failed)
        cli_put_json(v.text.data, v.text.len);
    if (!rc && file)
        rc = write_report(&v, file, &err);
    rl_buf_free(&v.text);
    rl_buf_free(&v.report);
    if (rc)
        return model_fail(&job, &err);
    if (file && !job.json)
        printf("the report is in %s: read it before you send it\n", file);
    return v.failed ? CLI_FAILED : CLI_OK;
}

static const struct cli_option verify_options[] = {
    {"report", 'r', "FILE", "also a text for a bug report: versions, machine, what was found"},
    {"quick", 'q', NULL, "digests and headers only, not every number"},
    {"state-dir", 'd', "DIR", "the state folder, which has models/ in it"},
    {"config", 'c', "FILE", "configuration file; /etc/reeld/reeld.conf otherwise, when it exists"},
    {"set", 0, "KEY=VALUE", "one configuration key (model.dir, …); may be repeated"},
    {"json", 0, NULL, "JSON also on a terminal"},
    {0},
};

const struct cli_command cli_model_verify = {
    .name = "model verify",
    .synopsis = "[NAME]",
    .summary = "check a model's files: sizes, SHA-256, headers, every number",
    .details = "Each line is `ok`, `warn` or `FAIL`; the exit status is 1 when anything FAILs.\n"
               "--report writes a text to send with a bug report. It holds no paths, no host\n"
               "name and no names of files but the catalogue's.\n",
    .options = verify_options,
    .max_words = 1,
    .run = run_verify,
};
