/* What the model commands have in common: configuration, lock, messages, exit statuses, and the
 * pass over a file that hashes (and copies) it. SIGINT, SIGTERM and SIGHUP are held while a job
 * works and asked for between pieces, so that it always ends with everything in order. One thread.
 */
#include "base/buf.h"
#include "base/fs.h"
#include "cli/client.h"
#include "cli/model.h"
#include "cli/term.h"
#include "config/config.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE ((size_t)1 << 20)

const struct cli_option model_options[] = {
    {"state-dir", 'd', "DIR", "the state folder, which has models/ in it"},
    {"config", 'c', "FILE", "configuration file; /etc/reeld/reeld.conf otherwise, when it exists"},
    {"set", 0, "KEY=VALUE", "one configuration key (model.dir, …); may be repeated"},
    {"json", 0, NULL, "JSON also on a terminal"},
    {0},
};

int model_job_open(const struct cli_call *call, const char *command, struct model_job *job)
{
    struct rl_err err = {0};

    *job = (struct model_job){.lock = -1, .json = cli_wants_json(call->args)};
    job->meter.json = job->json;
    if (cli_config(call->args, &job->cfg, &err))
        return cli_usage_error(command, &err);
    if (model_catalogue_open(job->cfg, &job->catalogue, &err))
        return cli_usage_error(command, &err);
    const char *dir = config_text(job->cfg, CFG_MODEL_DIR);
    if (*dir)
        job->dir = rl_strdup(dir);
    else if (asprintf(&job->dir, "%s/models", config_text(job->cfg, CFG_STATE_DIR)) < 0)
        job->dir = NULL;
    if (!job->dir) {
        (void)rl_fail(&err, RL_NO_MEMORY, "out of memory");
        return cli_complain(CLI_FAILED, &err);
    }
    cli_signals_hold();
    return CLI_OK;
}

void model_job_close(struct model_job *job)
{
    rl_close_ptr(&job->lock);
    model_catalogue_free(job->catalogue);
    config_free(job->cfg);
    free(job->dir);
    cli_signals_release();
}

enum rl_rc model_job_lock(struct model_job *job, struct rl_err *err)
{
    char path[MODEL_PATH];

    (void)umask(022); /* root's may be stricter, and the service's user reads what is made here */
    enum rl_rc rc = rl_fs_mkdirs(job->dir, 0755, err);

    if (!rc && snprintf(path, sizeof(path), "%s/.lock", job->dir) >= (int)sizeof(path))
        rc = rl_fail(err, RL_INVALID_FIELD, "the path of the models' folder is too long");
    if (!rc)
        rc = rl_fs_lock(path, &job->lock, err);
    if (rc == RL_LOCKED)
        return rl_fail(err, rc, "another `reeld model` command is at work in this folder");
    return rc;
}

bool model_job_stopped(struct model_job *job)
{
    if (!job->interrupted)
        job->interrupted = cli_wait(0);
    return job->interrupted;
}

void model_say(struct model_job *job, const char *event, const char *file, const char *text)
{
    AUTO_BUF struct rl_buf line = {0};
    struct rl_jw w;

    cli_meter_clear(&job->meter);
    if (!job->json) {
        fputs("reeld: ", stderr);
        cli_put(stderr, file);
        fputs(": ", stderr);
        cli_put(stderr, text);
        fputc('\n', stderr);
        return;
    }
    rl_buf_init(&line, 8192);
    rl_jw_init(&w, &line, true);
    rl_jw_object(&w, NULL);
    rl_jw_str(&w, "event", event);
    rl_jw_str(&w, "file", file);
    rl_jw_str(&w, "text", text);
    rl_jw_end_object(&w);
    if (!line.failed)
        puts(line.data);
    fflush(stdout);
}

int model_fail(struct model_job *job, const struct rl_err *err)
{
    static const struct {
        enum rl_rc code;
        int status;
    } map[] = {{RL_CANCELED, CLI_INTERRUPTED},      {RL_LOCKED, CLI_LOCKED},
               {RL_NETWORK_ERROR, CLI_UNREACHABLE}, {RL_REQUEST_TIMEOUT, CLI_UNREACHABLE},
               {RL_NOT_FOUND, CLI_REFUSED},         {RL_FORBIDDEN, CLI_REFUSED},
               {RL_OUTPUT_INVALID, CLI_SERVER},     {RL_BAD_REQUEST, CLI_USAGE}};
    int status = CLI_FAILED;

    for (size_t i = 0; i < RL_ARRAY_LEN(map); i++)
        if (map[i].code == err->code)
            status = map[i].status;
    cli_meter_clear(&job->meter);
    return cli_complain(status, err);
}

/* ---- one pass over a file ---- */

static enum rl_rc write_piece(int fd, const uint8_t *bytes, size_t len, struct rl_err *err)
{
    while (len > 0) {
        ssize_t n = write(fd, bytes, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return rl_fail_errno(err, "write", errno);
        bytes += n;
        len -= (size_t)n;
    }
    return RL_OK;
}

static enum rl_rc pass(struct model_job *job, int from, int to, struct rl_sha256 *sum,
                       int64_t *ret_bytes, struct rl_err *err)
{
    AUTO_FREE uint8_t *piece = malloc(PIECE);
    enum rl_rc rc = RL_OK;
    int64_t looked = 0;

    *ret_bytes = 0;
    if (!piece)
        return rl_fail(err, RL_NO_MEMORY, "out of memory");
    while (!rc) {
        ssize_t n = read(from, piece, PIECE);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return rl_fail_errno(err, "read", errno);
        if (n == 0)
            break;
        rl_sha256_add(sum, piece, (size_t)n);
        if (to >= 0)
            rc = write_piece(to, piece, (size_t)n, err);
        *ret_bytes += n;
        if (!rc && to >= 0 && *ret_bytes - looked >= MODEL_ROOM_STEP) {
            looked = *ret_bytes;
            rc = model_check_room(job, 0, err); /* others write to this disk, too */
        }
        cli_meter_move(&job->meter, *ret_bytes);
        if (!rc && model_job_stopped(job))
            rc = rl_fail(err, RL_CANCELED, "stopped");
    }
    return rc;
}

enum rl_rc model_digest(struct model_job *job, const char *path, const char *label, const char *to,
                        char sha256[MODEL_SHA256], int64_t *ret_bytes, struct rl_err *err)
{
    uint8_t digest[RL_SHA256_BYTES];
    AUTO_CLOSE int from = open(path, O_RDONLY | O_CLOEXEC), target = -1;
    struct stat st;

    if (from < 0 || fstat(from, &st) != 0)
        return rl_fail_errno(err, label, errno);
    if (to)
        target = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (to && target < 0)
        return rl_fail_errno(err, label, errno);
    struct rl_sha256 *sum = rl_sha256_new();
    if (!sum)
        return rl_fail(err, RL_NO_MEMORY, "out of memory");
    (void)posix_fadvise(from, 0, 0, POSIX_FADV_SEQUENTIAL); /* advice only */
    cli_meter_start(&job->meter, to ? "copy" : "hash", label, 0, st.st_size);
    enum rl_rc rc = pass(job, from, target, sum, ret_bytes, err);
    rl_sha256_end(sum, digest);
    rl_sha256_free(sum);
    cli_meter_clear(&job->meter);
    if (!rc && to && fsync(target) != 0)
        rc = rl_fail_errno(err, "fsync", errno);
    if (!rc)
        rl_hex(digest, sizeof(digest), sha256);
    return rc;
}
