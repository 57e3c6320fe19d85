/* Finding server and key, exit statuses, and the client commands against a server with bad manners.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/crypto.h"
#include "base/fs.h"
#include "cli/client.h"
#include "cli_run.h"
#include "net_server.h"

static char dir[64];

static void put_file(const char *folder, const char *name, const char *text)
{
    char path[256];

    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    assert_int_equal(rl_fs_write_durable(path, text, strlen(text), 0600, NULL), RL_OK);
}

/* ---- discovery ---- */

struct folders {
    char named[128], env[128], standard[128], empty[128];
};

static void make_folders(struct folders *f)
{
    const char *const names[] = {"named", "env", "standard", "empty"};
    char *const paths[] = {f->named, f->env, f->standard, f->empty};

    for (size_t i = 0; i < RL_ARRAY_LEN(names); i++) {
        (void)snprintf(paths[i], 128, "%s/%s", dir, names[i]);
        assert_int_equal(rl_fs_mkdirs(paths[i], 0700, NULL), RL_OK);
    }
    put_file(f->named, "url", "http://127.0.0.1:1001\n");
    put_file(f->named, "owner.key", "key-named\n");
    put_file(f->env, "url", "http://127.0.0.1:1002\n");
    put_file(f->env, "owner.key", "key-env\n");
    put_file(f->standard, "url", "http://127.0.0.1:1003\n");
    put_file(f->standard, "owner.key", "key-standard\n");
}

static void expect_found(const struct cli_places *places, const char *url, const char *key)
{
    struct cli_client client = {0};
    struct rl_err err = {0};

    if (cli_client_find(places, &client, &err))
        fail_msg("%s: %s", url, err.reason);
    assert_string_equal(client.url, url);
    if (key)
        assert_string_equal(client.key, key);
    else
        assert_null(client.key);
    cli_client_free(&client);
}

static void test_find_order(void **state)
{
    (void)state;
    struct folders f;
    make_folders(&f);
    struct cli_places p = {.default_dir = f.empty};

    expect_found(&p, "http://127.0.0.1:8080", NULL);
    p.default_dir = f.standard;
    expect_found(&p, "http://127.0.0.1:1003", "key-standard");
    p.env_state_dir = f.env;
    expect_found(&p, "http://127.0.0.1:1002", "key-env");
    p.env_url = "http://127.0.0.1:1004/";
    expect_found(&p, "http://127.0.0.1:1004", "key-env");
    p.state_dir = f.named;
    expect_found(&p, "http://127.0.0.1:1001", "key-named");
    p.url = "http://127.0.0.1:1005";
    expect_found(&p, "http://127.0.0.1:1005", "key-named");
    p.env_key = "key-environment";
    expect_found(&p, "http://127.0.0.1:1005", "key-environment");
    p.key = "key-option";
    expect_found(&p, "http://127.0.0.1:1005", "key-option");
    p.url = p.key = ""; /* an empty variable is none */
    expect_found(&p, "http://127.0.0.1:1001", "key-environment");
}

/* The standard folder's owner key never leaves this machine by itself. */
static void test_find_keeps_key_from_strangers(void **state)
{
    (void)state;
    struct folders f;
    make_folders(&f);
    struct cli_places p = {.default_dir = f.standard};

    p.url = "https://example.org";
    expect_found(&p, "https://example.org", NULL);
    p.url = "http://127.example.org";
    expect_found(&p, "http://127.example.org", NULL);
    p.url = "http://localhost.example.org";
    expect_found(&p, "http://localhost.example.org", NULL);
    p.env_state_dir = f.standard; /* named for whatever ran here before */
    expect_found(&p, "http://localhost.example.org", NULL);
    p.env_state_dir = NULL;
    p.url = "http://localhost:5000";
    expect_found(&p, "http://localhost:5000", "key-standard");
    p.url = "http://127.1.2.3:5000";
    expect_found(&p, "http://127.1.2.3:5000", "key-standard");
}

static void test_find_refuses(void **state)
{
    (void)state;
    struct folders f;
    make_folders(&f);
    struct cli_client client = {0};
    struct rl_err err;
    struct cli_places p = {.state_dir = f.empty, .default_dir = f.standard};

    /* nothing runs there: never talk to another server instead */
    assert_int_equal(cli_client_find(&p, &client, &err), RL_UNAVAILABLE);
    assert_non_null(strstr(err.reason, f.empty));
    p = (struct cli_places){.env_state_dir = f.empty, .default_dir = f.standard};
    assert_int_equal(cli_client_find(&p, &client, &err), RL_UNAVAILABLE);
    p = (struct cli_places){.url = "gopher://x", .default_dir = f.standard};
    assert_int_equal(cli_client_find(&p, &client, &err), RL_BAD_REQUEST);
    p = (struct cli_places){.url = "http://x", .key = "two\nlines", .default_dir = f.standard};
    assert_int_equal(cli_client_find(&p, &client, &err), RL_BAD_REQUEST);
    assert_null(client.url);
}

static void test_exit_of_status(void **state)
{
    (void)state;
    static const struct {
        enum rl_rc rc;
        int http, want;
    } cases[] = {
        {RL_OK, 200, CLI_OK},
        {RL_OK, 202, CLI_OK},
        {RL_OK, 204, CLI_OK},
        {RL_OK, 301, CLI_SERVER},
        {RL_OK, 400, CLI_REFUSED},
        {RL_OK, 404, CLI_REFUSED},
        {RL_OK, 422, CLI_REFUSED},
        {RL_OK, 499, CLI_REFUSED},
        {RL_OK, 500, CLI_SERVER},
        {RL_OK, 507, CLI_SERVER},
        {RL_OK, 0, CLI_UNREACHABLE},
        {RL_NETWORK_ERROR, 0, CLI_UNREACHABLE},
        {RL_REQUEST_TIMEOUT, 0, CLI_UNREACHABLE},
        {RL_NETWORK_ERROR, 200, CLI_UNREACHABLE}, /* broken off in the middle */
    };

    for (size_t i = 0; i < RL_ARRAY_LEN(cases); i++)
        assert_int_equal(cli_exit_of(cases[i].rc, cases[i].http), cases[i].want);
}

/* ---- commands against a server ---- */

static void answer(int fd, int status, const char *type, const char *headers, const char *body)
{
    char head[512];

    (void)snprintf(head, sizeof(head),
                   "HTTP/1.1 %d X\r\nContent-Type: %s\r\n%sContent-Length: %zu\r\n\r\n", status,
                   type, headers, strlen(body));
    net_server_say(fd, head);
    net_server_say(fd, body);
}

/* The words of a client command for this server; the last ones are given. */
static void run_against(struct net_server *server, struct cli_run *run, const char *input,
                        const char *a, const char *b, const char *c, const char *d)
{
    char url[64];
    const char *words[10] = {"reeld", a, "--url", url, "--key", "secret-key", b, c, d, NULL};

    (void)snprintf(url, sizeof(url), "http://127.0.0.1:%d", server->port);
    cli_run(run, input, words);
}

static pthread_mutex_t notes_lock =
    PTHREAD_MUTEX_INITIALIZER; /* guards: seen_keys, ranges (server threads) */
static char seen_keys[8][128];

/* Note a text in the next free row; its number. */
static size_t note(char *rows, size_t row_size, size_t row_count, const char *text)
{
    size_t n = 0;

    pthread_mutex_lock(&notes_lock);
    while (n < row_count - 1 && rows[n * row_size])
        n++;
    (void)snprintf(rows + n * row_size, row_size, "%.50s", text); /* cut */
    rows[n * row_size + strcspn(rows + n * row_size, "\r")] = '\0';
    pthread_mutex_unlock(&notes_lock);
    return n;
}

/* Breaks the first two connections without an answer, then accepts. */
static void serve_after_two(struct net_server *server, int fd, const char *request)
{
    const char *key = strstr(request, "Idempotency-Key: ");

    (void)server;
    size_t n =
        note(seen_keys[0], sizeof(seen_keys[0]), RL_ARRAY_LEN(seen_keys), key ? key : "none");
    if (n < 2) {
        net_server_reset(fd);
        return;
    }
    answer(fd, 202, "application/json", "", "{\"task_id\":\"7\",\"status\":\"QUEUED\"}");
}

static void test_submit_repeats_with_one_key(void **state)
{
    (void)state;
    struct cli_run run;

    memset(seen_keys, 0, sizeof(seen_keys));
    struct net_server *server = net_server_start(serve_after_two);
    run_against(server, &run, NULL, "submit", "a circle", NULL, NULL);
    net_server_stop(server);
    assert_int_equal(run.status, CLI_OK);
    assert_string_equal(run.out, "{\"task_id\":\"7\",\"status\":\"QUEUED\"}\n");
    assert_non_null(strstr(seen_keys[0], "Idempotency-Key: "));
    assert_string_equal(seen_keys[0], seen_keys[1]);
    assert_string_equal(seen_keys[0], seen_keys[2]);
    assert_string_equal(seen_keys[3], "");
}

/* Idempotency off in a body of one's own: a repetition could make two tasks. */
static void test_submit_does_not_repeat_when_unsafe(void **state)
{
    (void)state;
    struct cli_run run;

    memset(seen_keys, 0, sizeof(seen_keys));
    struct net_server *server = net_server_start(serve_after_two);
    run_against(server, &run, "{\"prompt\":\"x\",\"idempotency\":\"off\"}", "submit", "--json", "-",
                NULL);
    net_server_stop(server);
    assert_int_equal(run.status, CLI_UNREACHABLE);
    assert_string_equal(seen_keys[0], "none");
    assert_string_equal(seen_keys[1], "");
}

static char last_request[8192];

static void serve_problem(struct net_server *server, int fd, const char *request)
{
    (void)server;
    (void)snprintf(last_request, sizeof(last_request), "%s", request);
    if (strstr(request, "GET /api/v1/tasks/500"))
        answer(fd, 503, "application/problem+json", "",
               "{\"status\":503,\"code\":\"UNAVAILABLE\",\"detail\":\"draining\"}");
    else if (strstr(request, "GET /api/v1/tasks/200"))
        answer(fd, 200, "application/json", "", "{\"task_id\":");
    else
        answer(fd, 422, "application/problem+json", "",
               "{\"status\":422,\"code\":\"INVALID_FIELD\",\"detail\":\"prompt: no\",\"errors\":["
               "{\"field\":\"prompt\",\"code\":\"INVALID_FIELD\",\"detail\":\"must not\\u001b[2J "
               "be empty\"},"
               "{\"field\":\"frames\",\"code\":\"INVALID_FIELD\",\"detail\":\"too many\"}]}");
}

static void test_problem_is_explained(void **state)
{
    (void)state;
    struct cli_run run;
    struct net_server *server = net_server_start(serve_problem);

    run_against(server, &run, " two\nlines\n\n", "submit", "-", NULL, NULL);
    net_server_stop(server); /* its threads are done with last_request */
    assert_int_equal(run.status, CLI_REFUSED);
    assert_string_equal(run.out, "");
    assert_string_equal(run.err, "reeld: 422 INVALID_FIELD: prompt: must not?[2J be empty\n"
                                 "reeld: 422 INVALID_FIELD: frames: too many\n");
    assert_non_null(strstr(last_request, "Authorization: Bearer secret-key\r\n"));
    assert_non_null(
        strstr(last_request,
               "\r\n\r\n{\"prompt\":\" two\\nlines\"}")); /* the last line ends go, no more */

    server = net_server_start(serve_problem);
    run_against(server, &run, NULL, "get", "500", NULL, NULL);
    assert_int_equal(run.status, CLI_SERVER);
    assert_string_equal(run.err, "reeld: 503 UNAVAILABLE: draining\n");
    run_against(server, &run, NULL, "watch", "1", NULL, NULL);
    assert_int_equal(run.status, CLI_REFUSED);
    run_against(server, &run, NULL, "watch", "200", NULL, NULL);
    assert_int_equal(run.status, CLI_SERVER);
    net_server_stop(server);
}

static void test_no_server(void **state)
{
    (void)state;
    struct cli_run run;
    char url[64];
    const char *words[] = {"reeld", "list", "--url", url, NULL};

    (void)snprintf(url, sizeof(url), "http://127.0.0.1:%d", net_server_closed_port());
    cli_run(&run, NULL, words);
    assert_int_equal(run.status, CLI_UNREACHABLE);
    assert_non_null(strstr(run.err, "is the server running?"));
    assert_non_null(strstr(run.err, "REELD_URL"));
    assert_string_equal(run.out, "");
}

/* ---- waiting ---- */

static _Atomic int polls;

static void serve_task(struct net_server *server, int fd, const char *request)
{
    (void)server;
    if (strstr(request, "POST ")) {
        answer(fd, 202, "application/json", "", "{\"task_id\":\"9\",\"status\":\"QUEUED\"}");
        return;
    }
    switch (atomic_fetch_add(&polls, 1)) {
    case 0:
        net_server_reset(fd); /* the server restarts */
        return;
    case 1:
        answer(fd, 503, "application/problem+json", "", "{\"code\":\"UNAVAILABLE\"}");
        return;
    case 2:
        answer(fd, 200, "application/json", "",
               "{\"task_id\":\"9\",\"status\":\"PROCESSING\",\"poll_after_ms\":1}");
        return;
    default:
        answer(fd, 200, "application/json", "",
               "{\"task_id\":\"9\",\"status\":\"FAILED\",\"poll_after_ms\":null}");
    }
}

static void test_wait_survives_restart(void **state)
{
    (void)state;
    struct cli_run run;
    struct net_server *server = net_server_start(serve_task);

    atomic_store(&polls, 0);
    run_against(server, &run, NULL, "submit", "--wait", "x", NULL);
    net_server_stop(server);
    assert_int_equal(run.status, CLI_FAILED); /* the task's end, not the server's trouble */
    assert_string_equal(run.out,
                        "{\"task_id\":\"9\",\"status\":\"FAILED\",\"poll_after_ms\":null}\n");
    assert_string_equal(run.err, "");
}

/* ---- downloads ---- */

#define VIDEO "0123456789abcdefghij"

static char ranges[8][64];
static bool ignore_range;

static void serve_video(struct net_server *server, int fd, const char *request)
{
    uint8_t sum[RL_SHA256_BYTES];
    char hex[2 * RL_SHA256_BYTES + 1], body[256];
    const char *range = strstr(request, "Range: bytes=");

    (void)server;
    rl_sha256(VIDEO, strlen(VIDEO), sum);
    rl_hex(sum, sizeof(sum), hex);
    if (!strstr(request, "/video")) {
        (void)snprintf(body, sizeof(body),
                       "{\"task_id\":\"9\",\"status\":\"SUCCEEDED\",\"video\":{\"bytes\":20,"
                       "\"sha256\":\"%s\"}}",
                       hex);
        answer(fd, 200, "application/json", "", body);
        return;
    }
    (void)note(ranges[0], sizeof(ranges[0]), RL_ARRAY_LEN(ranges), range ? range : "none");
    long from = range && !ignore_range ? strtol(range + strlen("Range: bytes="), NULL, 10) : 0;
    answer(fd, from ? 206 : 200, "video/mp4", "", &VIDEO[from]);
}

static void download(const char *part, int status, const char *first_range, size_t turns)
{
    struct cli_run run;
    char path[128];
    AUTO_FREE char *text = NULL;
    size_t len, n = 0;

    memset(ranges, 0, sizeof(ranges));
    (void)snprintf(path, sizeof(path), "%s/v.mp4", dir);
    (void)unlink(path);
    if (part)
        put_file(dir, "v.mp4.part", part);
    struct net_server *server = net_server_start(serve_video);
    run_against(server, &run, NULL, "video", "9", "-o", path);
    net_server_stop(server);
    if (run.status != status)
        fail_msg("status %d: %s", run.status, run.err);
    assert_int_equal(rl_fs_read(path, 1024, &text, &len, NULL), RL_OK);
    assert_string_equal(text, VIDEO);
    while (n < RL_ARRAY_LEN(ranges) && ranges[n][0])
        n++;
    assert_int_equal(n, turns);
    if (first_range)
        assert_string_equal(ranges[0], first_range);
    (void)snprintf(path, sizeof(path), "%s/v.mp4.part", dir);
    assert_int_not_equal(access(path, F_OK), 0);
}

static void test_video_downloads(void **state)
{
    (void)state;
    ignore_range = false;
    download(NULL, CLI_OK, "none", 1);
    download("0123456789", CLI_OK, "Range: bytes=10-", 1);
    download(VIDEO, CLI_OK, NULL, 0); /* complete, only the rename was missing */
    download("XXXXXXXXXX", CLI_OK, "Range: bytes=10-", 2); /* a part of something else */
    ignore_range = true;
    download("0123456789", CLI_OK, "Range: bytes=10-", 2);
}

static void serve_backup(struct net_server *server, int fd, const char *request)
{
    (void)request;
    if (atomic_load(&polls))
        net_server_say(
            fd,
            "HTTP/1.1 200 X\r\nContent-Length: 100\r\n\r\nhalf of it"); /* then the line breaks */
    else
        answer(fd, 200, "application/vnd.sqlite3", "", "database");
    (void)server;
}

static void test_backup_file(void **state)
{
    (void)state;
    struct cli_run run;
    char path[128], part[128];
    struct stat st;
    AUTO_FREE char *text = NULL;
    size_t len;
    struct net_server *server = net_server_start(serve_backup);

    (void)snprintf(path, sizeof(path), "%s/b.db", dir);
    (void)snprintf(part, sizeof(part), "%s/b.db.part", dir);
    atomic_store(&polls, 1);
    run_against(server, &run, NULL, "backup", path, NULL, NULL);
    assert_int_equal(run.status, CLI_UNREACHABLE);
    assert_int_not_equal(access(path, F_OK), 0); /* complete or not at all */
    assert_int_not_equal(access(part, F_OK), 0);

    atomic_store(&polls, 0);
    run_against(server, &run, NULL, "backup", path, NULL, NULL);
    assert_int_equal(run.status, CLI_OK);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    run_against(server, &run, NULL, "backup", path, NULL, NULL);
    assert_int_equal(run.status, CLI_USAGE);
    assert_non_null(strstr(run.err, "--force"));
    put_file(dir, "b.db", "old");
    run_against(server, &run, NULL, "backup", path, "--force", NULL);
    assert_int_equal(run.status, CLI_OK);
    net_server_stop(server);
    assert_int_equal(rl_fs_read(path, 1024, &text, &len, NULL), RL_OK);
    assert_string_equal(text, "database");
}

/* Two commands that write to one file: the second is refused, and touches nothing of the first's.
 */
static void test_download_is_locked(void **state)
{
    (void)state;
    struct cli_run run;
    char path[128], part[128];
    AUTO_FREE char *text = NULL;
    size_t len;
    struct net_server *videos = net_server_start(serve_video),
                      *backups = net_server_start(serve_backup);

    (void)snprintf(path, sizeof(path), "%s/shared", dir);
    (void)snprintf(part, sizeof(part), "%s/shared.part", dir);
    put_file(dir, "shared.part", "of the first");
    int fd = open(part, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
    run_against(videos, &run, NULL, "video", "9", "-o", path);
    assert_int_equal(run.status, CLI_LOCKED);
    assert_non_null(strstr(run.err, "another `reeld` command writes"));
    run_against(backups, &run, NULL, "backup", path, NULL, NULL);
    assert_int_equal(run.status, CLI_LOCKED);
    assert_int_equal(rl_fs_read(part, 1024, &text, &len, NULL), RL_OK);
    assert_string_equal(text, "of the first");
    assert_int_not_equal(access(path, F_OK), 0);

    (void)close(fd); /* a part that nobody holds any more is no hindrance */
    run_against(backups, &run, NULL, "backup", path, NULL, NULL);
    assert_int_equal(run.status, CLI_OK);
    net_server_stop(videos);
    net_server_stop(backups);
}

/* ---- fixture ---- */

static int make_dir(void **state)
{
    (void)state;
    (void)unsetenv("REELD_URL");
    (void)unsetenv("REELD_API_KEY");
    (void)unsetenv("REELD_STATE_DIR");
    (void)snprintf(dir, sizeof(dir), "/tmp/reeld-cli-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
    (void)state;
    char command[128];

    (void)snprintf(command, sizeof(command), "rm -rf -- '%s'", dir);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_find_order),
        cmocka_unit_test(test_find_keeps_key_from_strangers),
        cmocka_unit_test(test_find_refuses),
        cmocka_unit_test(test_exit_of_status),
        cmocka_unit_test(test_submit_repeats_with_one_key),
        cmocka_unit_test(test_submit_does_not_repeat_when_unsafe),
        cmocka_unit_test(test_problem_is_explained),
        cmocka_unit_test(test_no_server),
        cmocka_unit_test(test_wait_survives_restart),
        cmocka_unit_test(test_video_downloads),
        cmocka_unit_test(test_backup_file),
        cmocka_unit_test(test_download_is_locked),
    };

    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
