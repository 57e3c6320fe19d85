/* `reeld doctor`: looks at this machine and a state folder, without needing a server; changes
 * nothing but a scratch database that it removes. One thread. */
#include "base/buf.h"
#include "base/fs.h"
#include "cli/client.h"
#include "cli/commands.h"
#include "cli/lock.h"
#include "cli/term.h"
#include "config/config.h"
#include "engine/engine.h"
#include "http/http.h"
#include "store/store.h"
#include "video/video.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MEASURE_MS     1000
#define SLOW_COMMITS_S 50.0 /* a spinning disk; every submit waits for one */

enum verdict { VERDICT_OK, VERDICT_WARN, VERDICT_FAIL };

/* Where the findings go: lines at once, or one JSON object at the end. */
struct report {
    bool json;
    struct rl_buf text;
    struct rl_jw w;
    size_t failed;
};

static void finding(struct report *r, enum verdict verdict, const char *name, const char *fmt, ...)
    RL_PRINTF(4, 5);
static void finding(struct report *r, enum verdict verdict, const char *name, const char *fmt, ...)
{
    static const char *const words[] = {"ok", "warn", "FAIL"};
    char text[1024];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap); /* a long one is cut */
    va_end(ap);
    r->failed += verdict == VERDICT_FAIL;
    if (r->json) {
        rl_jw_object(&r->w, NULL);
        rl_jw_str(&r->w, "name", name);
        rl_jw_str(&r->w, "verdict", words[verdict]);
        rl_jw_str(&r->w, "text", rl_utf8_valid(text, strlen(text)) ? text : "?");
        rl_jw_end_object(&r->w);
        return;
    }
    printf("%-4s %s: ", words[verdict], name);
    cli_put(stdout, text);
    putchar('\n');
    fflush(stdout);
}

static void check_versions(struct report *r)
{
    finding(r, VERDICT_OK, "version",
            "reeld " REELD_VERSION ", SQLite %s, CivetWeb %s, libcurl %s, %s", store_version(),
            http_version(), net_version(), video_versions());
}

/* false: nothing more can be said about this folder. */
static bool check_folder(struct report *r, const struct config *cfg, const char *dir)
{
    struct stat st;
    struct rl_err err;
    char fs[32] = "", size[32];
    bool remote = false;
    int64_t free_bytes;

    if (stat(dir, &st) != 0 && errno == ENOENT) {
        finding(r, VERDICT_WARN, "state_dir", "%s is not there yet; `reeld serve` makes it", dir);
        return false;
    }
    if (!cli_file_system(dir, fs, &remote) || rl_fs_free_bytes(dir, &free_bytes, &err)) {
        finding(r, VERDICT_FAIL, "state_dir", "%s cannot be looked at: %s", dir, strerror(errno));
        return false;
    }
    cli_size_text(free_bytes, size);
    if (remote)
        finding(r, VERDICT_FAIL, "state_dir",
                "%s is on a network file system (%s); SQLite needs a local one", dir, fs);
    else
        finding(r, VERDICT_OK, "state_dir", "%s on %s", dir, fs);
    if (free_bytes < config_int(cfg, CFG_STORE_MIN_FREE))
        finding(r, VERDICT_FAIL, "disk",
                "%s free, less than store.min_free_bytes: new tasks are refused", size);
    else
        finding(r, VERDICT_OK, "disk", "%s free", size);
    if (access(dir, R_OK | W_OK | X_OK) == 0)
        return true;
    finding(r, VERDICT_WARN, "access",
            "%s is not this user's; run doctor as root or as the service's user for the rest", dir);
    return false;
}

static void check_server(struct report *r, const char *dir)
{
    AUTO_CLIENT struct cli_client client = {0};
    AUTO_REPLY struct cli_reply reply = {0};
    struct cli_places places = {.state_dir = dir};
    struct rl_err err;
    int64_t pid = cli_lock_holder(dir);

    if (cli_client_find(&places, &client, &err)) {
        if (pid > 0)
            finding(r, VERDICT_WARN, "server",
                    "process %lld holds the folder but serves nothing (yet)", (long long)pid);
        else
            finding(r, VERDICT_WARN, "server", "not running");
        return;
    }
    int status = cli_call_quiet(
        &client, &(struct cli_request){.path = "/readyz", .timeout_ms = 5000}, &reply);
    if (status == CLI_OK)
        finding(r, VERDICT_OK, "server", "%s is ready (pid %lld)", client.url, (long long)pid);
    else if (status == CLI_UNREACHABLE)
        finding(r, VERDICT_FAIL, "server", "%s does not answer: %s", client.url, reply.http.error);
    else
        finding(r, VERDICT_FAIL, "server", "%s is not ready: %d %s", client.url, reply.http.status,
                cli_member(reply.json, "reason") ? cli_member(reply.json, "reason") : "");
}

/* *ret_gpu: the first GPU's number, -1 = none. */
static void check_devices(struct report *r, const struct config *cfg, int *ret_gpu)
{
    struct engines *engines = NULL;
    struct rl_err err;
    size_t count = 0;

    *ret_gpu = -1;
    if (engines_open(cfg, &engines, &err) != RL_OK) {
        finding(r, VERDICT_FAIL, "devices", "%s", err.reason);
        return;
    }
    const struct engine_device *devices = engines_devices(engines, &count);
    for (size_t i = 0; i < count; i++) {
        char size[32];
        cli_size_text(devices[i].mem_bytes, size);
        finding(r, VERDICT_OK, "device", "%s %s (%s)%s%s", devices[i].id, devices[i].name,
                devices[i].backend, devices[i].mem_bytes ? ", " : "",
                devices[i].mem_bytes ? size : "");
        if (devices[i].gpu && *ret_gpu < 0)
            *ret_gpu = devices[i].index;
    }
    if (*ret_gpu < 0)
        finding(r, VERDICT_WARN, "gpu", "none found: everything runs on the CPU");
    if (!engines_default(engines))
        finding(r, VERDICT_FAIL, "engine", "engine.default names '%s', which is not here",
                config_text(cfg, CFG_ENGINE_DEFAULT));
    engines_close(engines);
}

static void check_encoder(struct report *r, const struct config *cfg, int gpu)
{
    const char *name = NULL;
    struct rl_err err;
    struct video_params params = {.width = 832,
                                  .height = 480,
                                  .fps = 24,
                                  .encoder = config_text(cfg, CFG_VIDEO_ENCODER),
                                  .crf = (int)config_int(cfg, CFG_VIDEO_CRF),
                                  .gpu = gpu,
                                  .threads = 1};

    if (video_ready(&params, &name, &err) == RL_OK)
        finding(r, VERDICT_OK, "encoder", "%s with crf %d", name, params.crf);
    else
        finding(r, VERDICT_FAIL, "encoder", "%s", err.reason);
}

static void check_database(struct report *r, const char *dir)
{
    char path[1200], text[512] = "";
    struct rl_err err;

    if (snprintf(path, sizeof(path), "%s/reeld.db", dir) >= (int)sizeof(path))
        return;
    if (access(path, F_OK) != 0) {
        finding(r, VERDICT_WARN, "database", "not there yet");
        return;
    }
    if (store_check_file(path, text, sizeof(text), &err))
        finding(r, VERDICT_FAIL, "database", "%s", err.reason);
    else
        finding(r, strcmp(text, "ok") == 0 ? VERDICT_OK : VERDICT_FAIL, "database", "integrity: %s",
                text);
}

static void check_commits(struct report *r, const char *dir)
{
    double per_s;
    struct rl_err err;

    if (store_measure(dir, MEASURE_MS, &per_s, &err))
        finding(r, VERDICT_WARN, "commits", "cannot be measured: %s", err.reason);
    else
        finding(r, per_s < SLOW_COMMITS_S ? VERDICT_WARN : VERDICT_OK, "commits",
                "%.0f durable commits per second by one writer", per_s);
}

static void examine(struct report *r, const struct config *cfg, const char *left_out)
{
    const char *dir = config_text(cfg, CFG_STATE_DIR);
    int gpu;

    check_versions(r);
    if (left_out)
        finding(r, VERDICT_WARN, "config", "%s is not this user's to read, and was left out",
                left_out);
    bool usable = check_folder(r, cfg, dir);
    if (usable)
        check_server(r, dir);
    check_devices(r, cfg, &gpu);
    check_encoder(r, cfg, gpu);
    if (usable) {
        check_database(r, dir);
        check_commits(r, dir);
    }
}

static int run_doctor(const struct cli_call *call)
{
    struct report r = {.json = cli_args_has(call->args, "json")};
    struct config *cfg = NULL;
    struct rl_err err = {0};

    if (cli_config(call->args, &cfg, &err))
        return cli_usage_error("doctor", &err);
    if (net_init(&err)) {
        config_free(cfg);
        return cli_complain(CLI_FAILED, &err);
    }
    rl_buf_init(&r.text, (size_t)1 << 20);
    rl_jw_init(&r.w, &r.text, false);
    rl_jw_object(&r.w, NULL);
    rl_jw_array(&r.w, "checks");
    examine(&r, cfg, cli_config_left_out(call->args));
    rl_jw_end_array(&r.w);
    rl_jw_bool(&r.w, "ok", r.failed == 0);
    rl_jw_end_object(&r.w);
    if (r.json && r.text.data)
        cli_put_json(r.text.data, r.text.len);
    rl_buf_free(&r.text);
    net_cleanup();
    config_free(cfg);
    return r.failed ? CLI_FAILED : CLI_OK;
}

static const struct cli_option doctor_options[] = {
    {"state-dir", 'd', "DIR", "the folder to look at; else REELD_STATE_DIR, state_dir"},
    {"config", 'c', "FILE", "configuration file; /etc/reeld/reeld.conf otherwise, when it exists"},
    {"set", 0, "KEY=VALUE", "one configuration key; may be repeated"},
    {"json", 0, NULL, "one JSON object instead of lines"},
    {0},
};

const struct cli_command cli_doctor = {
    .name = "doctor",
    .synopsis = "",
    .summary = "check this machine: versions, disk, GPU, encoder, database",
    .details = "Each line is `ok`, `warn` or `FAIL`, a name and a text; the exit status is 1 when\n"
               "anything FAILs. Works with and without a running server.\n",
    .options = doctor_options,
    .run = run_doctor,
};
