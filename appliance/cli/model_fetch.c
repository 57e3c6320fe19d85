/* One file of the catalogue by HTTP, however the connection behaves. Owns FILE.part and FILE.etag
 * while it works. Invariants: the sum has seen exactly the bytes of the part; an answer is appended
 * only when it says that it begins where the part ends; FILE appears by a rename after its size and
 * digest are right. Killed at any moment, it goes on from the part. One thread. */
#include "base/clock.h"
#include "base/fs.h"
#include "cli/client.h"
#include "cli/model.h"
#include "cli/term.h"
#include "config/config.h"
#include "net/net.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define REDIRECTS       5 /* a hub sends to its store, a store to the nearest one */
#define WAIT_MAX_MS     30000
#define AFTER_MAX_S     600 /* a longer Retry-After is a way to say no */
#define PIECE           ((size_t)1 << 20)
#define ETAG_FILE_BYTES 1400 /* model.mirror and an ETag */

struct fetch {
    struct model_job *job;
    const struct published_file *file;
    const char *mirror; /* borrowed from the configuration */
    char part[MODEL_PATH + 8], etag_path[MODEL_PATH + 8];
    int fd;
    struct rl_sha256 *sum; /* owned */
    int64_t size;          /* of the part */
    int64_t asked;         /* where this request's range begins, 0 = no range */
    int64_t looked;        /* size at the last look at the free space */
    char etag[256];        /* strong, of what is in the part; "" = not known */
    bool mended;           /* the part is not of one answer alone */
    bool whole;            /* this server's ranges are not to be trusted */
    bool odd;              /* the answer was no continuation of the part */
    bool odd_before;       /* one of the answers before was */
    struct rl_err stop;    /* why the receiver stopped the transfer, code RL_OK = it did not */
};

/* ---- the part ---- */

static enum rl_rc start_anew(struct fetch *f, struct rl_err *err)
{
    uint8_t unused[RL_SHA256_BYTES];

    if (ftruncate(f->fd, 0) != 0 || lseek(f->fd, 0, SEEK_SET) != 0)
        return rl_fail_errno(err, "empty the partial file", errno);
    rl_sha256_end(f->sum, unused);
    f->size = f->looked = 0;
    f->mended = false;
    f->etag[0] = '\0';
    return RL_OK;
}

/* The sum of what an earlier run left. */
static enum rl_rc hash_part(struct fetch *f, struct rl_err *err)
{
    AUTO_FREE uint8_t *piece = malloc(PIECE);

    if (!piece)
        return rl_fail(err, RL_NO_MEMORY, "out of memory");
    cli_meter_start(&f->job->meter, "hash", f->file->path, 0, f->size);
    for (int64_t at = 0; at < f->size;) {
        int64_t left = f->size - at;
        ssize_t n = read(f->fd, piece, left < (int64_t)PIECE ? (size_t)left : PIECE);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return rl_fail_errno(err, "read the partial file", n ? errno : EIO);
        rl_sha256_add(f->sum, piece, (size_t)n);
        at += n;
        cli_meter_move(&f->job->meter, at);
        if (model_job_stopped(f->job))
            return rl_fail(err, RL_CANCELED, "stopped");
    }
    return RL_OK;
}

/* FILE.etag: a line of the mirror, a line of its ETag. Another mirror has tags of its own. */
static void read_etag(struct fetch *f)
{
    AUTO_FREE char *text = NULL;
    size_t len = 0, n = strlen(f->mirror);

    if (!rl_fs_read(f->etag_path, ETAG_FILE_BYTES, &text, &len, NULL) && len > n &&
        strncmp(text, f->mirror, n) == 0 && text[n] == '\n' &&
        !rl_copy_str(f->etag, sizeof(f->etag), text + n + 1))
        f->etag[0] = '\0';
}

static enum rl_rc open_part(struct fetch *f, struct rl_err *err)
{
    struct stat st;

    f->fd = open(f->part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (f->fd < 0 || fstat(f->fd, &st) != 0)
        return rl_fail_errno(err, "open the partial file", errno);
    f->size = st.st_size;
    if (f->size > f->file->bytes)
        return start_anew(f, err);
    f->mended = f->size > 0;
    f->looked = f->size;
    read_etag(f);
    return hash_part(f, err);
}

/* ---- one answer ---- */

static bool stop(struct fetch *f, enum rl_rc code, const char *why)
{
    (void)rl_fail(&f->stop, code, "%s", why);
    return false;
}

/* The answer is no continuation of the part. Twice, and the part is thrown away: once may be a
 * proxy's bad moment, and the part hours of work. */
static bool not_fitting(struct fetch *f, const char *why)
{
    f->odd = true;
    return stop(f, RL_CONFLICT, why);
}

static bool other_size(struct fetch *f, int64_t bytes)
{
    (void)rl_fail(&f->stop, RL_OUTPUT_INVALID,
                  "the server's file has %" PRId64 " bytes, the catalogue's %" PRId64, bytes,
                  f->file->bytes);
    return false;
}

/* Remember what is being put together before a byte of it is there. */
static bool keep_etag(struct fetch *f, const char *etag)
{
    char text[ETAG_FILE_BYTES];
    struct rl_err err;

    if (!etag || etag[0] != '"' || strlen(etag) >= sizeof(f->etag))
        etag = "";
    if (strcmp(etag, f->etag) == 0)
        return true;
    (void)rl_copy_str(f->etag, sizeof(f->etag), etag);             /* fits */
    (void)snprintf(text, sizeof(text), "%s\n%s", f->mirror, etag); /* fits */
    if (rl_fs_write_durable(f->etag_path, text, strlen(text), 0644, &err))
        return stop(f, err.code, err.reason);
    return true;
}

static bool on_begin(void *user, const struct net_head *head)
{
    struct fetch *f = user;
    int64_t from = -1, to = -1, total = -1;
    int n = head->content_range
                ? sscanf(head->content_range, "bytes %" SCNd64 "-%" SCNd64 "/%" SCNd64, &from, &to,
                         &total)
                : 0;

    if (head->status == 200) {
        if (head->length >= 0 && head->length != f->file->bytes)
            return other_size(f, head->length);
        if (f->size > 0 && head->length < 0) /* a page of some proxy? */
            return stop(f, RL_NETWORK_ERROR,
                        "the server does not go on, nor does it say how long its answer is");
        struct rl_err err;
        if (f->size > 0 && start_anew(f, &err))
            return stop(f, err.code, err.reason);
        return keep_etag(f, head->etag);
    }
    if (head->status != 206 || !f->asked)
        return stop(f, RL_NETWORK_ERROR,
                    "the server answers with something that was not asked for");
    if (n < 2 || from != f->asked)
        return not_fitting(f, "the server sends another range than it was asked for");
    if (n == 3 && total != f->file->bytes)
        return other_size(f, total);
    if (*f->etag && head->etag && head->etag[0] == '"' && strcmp(head->etag, f->etag) != 0)
        return not_fitting(f, "the server's file has changed meanwhile");
    f->mended = true;
    return true;
}

static bool write_bytes(struct fetch *f, const uint8_t *p, size_t len)
{
    while (len > 0) {
        ssize_t n = write(f->fd, p, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            (void)rl_fail_errno(&f->stop, "write", errno);
            return false;
        }
        rl_sha256_add(f->sum, p, (size_t)n); /* as the part grows, also when the rest fails */
        f->size += n;
        p += n;
        len -= (size_t)n;
    }
    return true;
}

static bool on_bytes(void *user, const void *bytes, size_t len)
{
    struct fetch *f = user;
    struct rl_err err;

    if ((int64_t)len > f->file->bytes - f->size)
        return not_fitting(f, "the server sends more than the catalogue's file has");
    if (!write_bytes(f, bytes, len))
        return false;
    cli_meter_move(&f->job->meter, f->size);
    if (f->size - f->looked >= MODEL_ROOM_STEP) {
        f->looked = f->size;
        if (model_check_room(f->job, 0, &err))
            return stop(f, err.code, err.reason);
    }
    return true;
}

static bool on_tick(void *user)
{
    struct fetch *f = user;

    if (model_job_stopped(f->job))
        return stop(f, RL_CANCELED, "stopped");
    cli_meter_move(&f->job->meter, f->size);
    return true;
}

static enum rl_rc ask(struct fetch *f, struct net_response *ret_response, struct rl_err *err)
{
    char range[64], if_range[sizeof(f->etag) + 16];
    const char *headers[3] = {NULL};
    AUTO_FREE char *url = NULL;
    size_t len = strlen(f->mirror);

    while (len > 0 && f->mirror[len - 1] == '/')
        len--;
    if (asprintf(&url, "%.*s/%s", (int)len, f->mirror, f->file->source) < 0) {
        url = NULL;
        return rl_fail(err, RL_NO_MEMORY, "out of memory");
    }
    f->asked = f->whole ? 0 : f->size;
    f->odd = false;
    f->stop.code = RL_OK;
    if (f->asked) {
        (void)snprintf(range, sizeof(range), "Range: bytes=%" PRId64 "-", f->asked); /* fits */
        (void)snprintf(if_range, sizeof(if_range), "If-Range: %s", f->etag);         /* fits */
        headers[0] = range;
        headers[1] = *f->etag ? if_range : NULL;
    }
    const struct net_request request = {.method = "GET",
                                        .url = url,
                                        .headers = headers,
                                        .response_limit = 4096,
                                        .user = f,
                                        .sink = on_bytes,
                                        .begin = on_begin,
                                        .tick = on_tick,
                                        .stall_timeout_ms =
                                            config_int(f->job->cfg, CFG_MODEL_STALL_MS),
                                        .redirects = REDIRECTS};
    (void)net_call(&request, ret_response); /* the response says what happened */
    return RL_OK;
}

/* ---- what to do after an answer ---- */

/* RL_OK: try again, for the reason in `why`. Anything else is the end. */
static enum rl_rc judge(struct fetch *f, const struct net_response *r, char *why, size_t size,
                        struct rl_err *err)
{
    int status = r->status;

    if (f->odd) {
        f->whole = f->odd_before; /* only whole answers from here on */
        f->odd_before = true;
        (void)snprintf(why, size, "%s", f->stop.reason); /* fits */
        return f->whole || !f->asked ? start_anew(f, err) : RL_OK;
    }
    if (f->stop.code != RL_OK && f->stop.code != RL_NETWORK_ERROR)
        return rl_fail(err, f->stop.code, "%s", f->stop.reason);
    (void)snprintf(why, size, "%s", f->stop.code ? f->stop.reason : r->error); /* fits */
    if (r->redirect_refused || (r->rc == RL_OK && status >= 300 && status <= 399))
        return rl_fail(err, RL_NETWORK_ERROR, "the server redirects too often, or away from https");
    if (status == 416) {
        (void)snprintf(why, size, "the server does not have that range"); /* fits */
        return start_anew(f, err);
    }
    if (status == 404 || status == 410)
        return rl_fail(err, RL_NOT_FOUND,
                       "the server does not have this file (%d); see model.mirror", status);
    if (status == 401 || status == 403 || status == 451)
        return rl_fail(err, RL_FORBIDDEN, "the server does not give this file to us (%d)", status);
    if (status >= 400 && status <= 499 && status != 408 && status != 425 && status != 429)
        return rl_fail(err, RL_FORBIDDEN, "the server refuses (%d)", status);
    if (status >= 400)
        (void)snprintf(why, size, "the server is not able to (%d)", status); /* fits */
    else if (r->rc == RL_INVALID_FIELD || r->rc == RL_NO_MEMORY)
        return rl_fail(err, r->rc, "%s", r->error);
    else if (r->rc == RL_REQUEST_TIMEOUT)
        (void)snprintf(why, size, "the server is silent"); /* fits */
    else if (r->rc == RL_OK)
        (void)snprintf(why, size, "the answer ends too early"); /* fits */
    return RL_OK;
}

static int64_t wait_ms(const struct fetch *f, int64_t tries, int64_t retry_after_s)
{
    int64_t ms = config_int(f->job->cfg, CFG_MODEL_RETRY_MS);

    for (int64_t i = 1; i < tries && ms < WAIT_MAX_MS; i++)
        ms *= 2;
    if (ms > WAIT_MAX_MS)
        ms = WAIT_MAX_MS;
    ms += rl_random_below((uint32_t)(ms / 4 + 1)); /* not all clients at once */
    if (retry_after_s > AFTER_MAX_S)
        retry_after_s = AFTER_MAX_S;
    return retry_after_s * 1000 > ms ? retry_after_s * 1000 : ms;
}

static enum rl_rc pause_before(struct fetch *f, int64_t tries, const struct net_response *r,
                               const char *why, struct rl_err *err)
{
    char text[400];
    int64_t ms = wait_ms(f, tries, r->retry_after_s);

    (void)snprintf(text, sizeof(text), "%s; again in %.1f s from byte %" PRId64, why,
                   (double)ms / 1000, f->size); /* fits */
    model_say(f->job, "retry", f->file->path, text);
    if (model_job_stopped(f->job) || cli_wait(ms)) {
        f->job->interrupted = true;
        return rl_fail(err, RL_CANCELED, "stopped");
    }
    return RL_OK;
}

/* Is the complete part the catalogue's file? false with RL_OK: it was put together of several
 * answers and is thrown away, to be fetched in one. */
static enum rl_rc check(struct fetch *f, char sha256[MODEL_SHA256], bool *ret_good,
                        struct rl_err *err)
{
    uint8_t digest[RL_SHA256_BYTES];
    bool mended = f->mended;

    rl_sha256_end(f->sum, digest);
    rl_hex(digest, sizeof(digest), sha256);
    *ret_good = !f->file->sha256 || strcmp(sha256, f->file->sha256) == 0;
    if (*ret_good)
        return RL_OK;
    enum rl_rc rc = start_anew(f, err);
    if (rc || !mended || f->whole)
        return rc ? rc
                  : rl_fail(err, RL_OUTPUT_INVALID,
                            "its SHA-256 is %.16s…, the catalogue's %.16s…; it was not kept",
                            sha256, f->file->sha256);
    f->whole = true;
    model_say(f->job, "anew", f->file->path,
              "the pieces do not make up the catalogue's file (SHA-256); fetching it in one");
    return RL_OK;
}

/* Until the part is complete and right. */
static enum rl_rc complete(struct fetch *f, char sha256[MODEL_SHA256], struct rl_err *err)
{
    int64_t tries = 0, limit = config_int(f->job->cfg, CFG_MODEL_TRIES);
    bool good = false;

    for (;;) {
        char why[300];
        struct net_response r = {0};
        int64_t before = f->size;
        if (f->size == f->file->bytes) {
            enum rl_rc rc = check(f, sha256, &good, err);
            if (rc || good)
                return rc;
            continue;
        }
        cli_meter_start(&f->job->meter, "download", f->file->path, f->size, f->file->bytes);
        enum rl_rc rc = ask(f, &r, err);
        if (!rc && f->size < f->file->bytes)
            rc = judge(f, &r, why, sizeof(why), err);
        if (!rc && f->size < f->file->bytes) {
            tries = f->size > before && !f->whole ? 1 : tries + 1;
            rc = tries >= limit ? rl_fail(err, RL_NETWORK_ERROR,
                                          "%s; given up after %" PRId64 " tries", why, tries)
                                : pause_before(f, tries, &r, why, err);
        }
        net_response_free(&r);
        if (rc)
            return rc;
    }
}

enum rl_rc model_fetch(struct model_job *job, const char *path, const struct published_file *file,
                       char sha256[MODEL_SHA256], struct rl_err *err)
{
    struct fetch f = {
        .job = job, .file = file, .mirror = config_text(job->cfg, CFG_MODEL_MIRROR), .fd = -1};

    (void)snprintf(f.part, sizeof(f.part), "%s.part", path);           /* fits */
    (void)snprintf(f.etag_path, sizeof(f.etag_path), "%s.etag", path); /* fits */
    f.sum = rl_sha256_new();
    enum rl_rc rc = f.sum ? open_part(&f, err) : rl_fail(err, RL_NO_MEMORY, "out of memory");
    if (!rc)
        rc = complete(&f, sha256, err);
    cli_meter_clear(&job->meter);
    rl_close_ptr(&f.fd);
    rl_sha256_free(f.sum);
    if (!rc)
        rc = rl_fs_commit(f.part, path, err);
    if (!rc || !f.size)
        (void)unlink(f.etag_path); /* of no more use, and harmless */
    if (rc && !f.size)
        (void)unlink(f.part); /* the same */
    return rc;
}
