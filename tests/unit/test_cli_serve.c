/* The life of `reeld serve`, as processes: this program starts itself as the server. What the pool
 * and the store would report on a lost device is scripted by $SERVE_TEST in the wrapped functions.
 */
// link: -Wl,--wrap=pool_start -Wl,--wrap=pool_stop -Wl,--wrap=store_open
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/crypto.h"
#include "base/fs.h"
#include "cli/client.h"
#include "cli/cli.h"
#include "cli/listen.h"
#include "cli/lock.h"
#include "pool/pool.h"
#include "store/store.h"

#define WAIT_MS 60000 /* for slow sanitizer builds; nothing waits that long */

/* ---- the server's side: modules that fail on demand ---- */

enum rl_rc __real_pool_start(struct tasks *tasks, pool_replace_fn replace, void *user,
                             struct pool **ret_pool, struct rl_err *err);
enum rl_rc __wrap_pool_start(struct tasks *tasks, pool_replace_fn replace, void *user,
                             struct pool **ret_pool, struct rl_err *err);
bool __real_pool_stop(struct pool *pool, int64_t wait_ms);
bool __wrap_pool_stop(struct pool *pool, int64_t wait_ms);
enum rl_rc __real_store_open(const struct config *cfg, store_fatal_fn fatal, void *user,
                             struct store **ret_store, struct rl_err *err);
enum rl_rc __wrap_store_open(const struct config *cfg, store_fatal_fn fatal, void *user,
                             struct store **ret_store, struct rl_err *err);

static bool second_life; /* this process has been replaced: it is an ordinary server now */

static bool scripted(const char *what)
{
    const char *script = getenv("SERVE_TEST");

    return script && !second_life && strstr(script, what);
}

enum rl_rc __wrap_pool_start(struct tasks *tasks, pool_replace_fn replace, void *user,
                             struct pool **ret_pool, struct rl_err *err)
{
    struct rl_err why;
    enum rl_rc rc = __real_pool_start(tasks, replace, user, ret_pool, err);

    if (rc == RL_OK && scripted("replace")) {
        (void)rl_fail(&why, RL_GPU_ERROR, "the device fell off the bus");
        replace(user, &why);
    }
    return rc;
}

bool __wrap_pool_stop(struct pool *pool, int64_t wait_ms)
{
    if (scripted("pool_hangs"))
        return false;
    if (scripted("pool_blocks"))
        (void)poll(NULL, 0, WAIT_MS); /* longer than the test waits for the second signal */
    return __real_pool_stop(pool, wait_ms);
}

enum rl_rc __wrap_store_open(const struct config *cfg, store_fatal_fn fatal, void *user,
                             struct store **ret_store, struct rl_err *err)
{
    struct rl_err why;

    if (scripted("fatal")) {
        (void)rl_fail(&why, RL_STORE_ERROR, "fsync failed");
        fatal(user, &why);
    }
    return __real_store_open(cfg, fatal, user, ret_store, err);
}

static void end_process(int status)
{
    _exit(status);
}

/* ---- the test's side ---- */

struct server {
    pid_t pid;
    int out, err;    /* read ends */
    char log[16384]; /* standard error so far */
    size_t log_len;
};

static char dir[64];
static pid_t running[4]; /* servers that a failed test would leave behind */

static void start(struct server *s, const char *script, const char *notify, const char *listen)
{
    char script_env[64], notify_env[160], path[] = "PATH=/usr/bin:/bin";
    char *envp[] = {path, NULL, NULL, NULL};
    char self[512] = "", serve[] = "serve", dir_option[] = "--state-dir",
         listen_option[] = "--listen";
    char set[] = "--set", ballast[] = "store.ballast_bytes=0",
         plugins[] = "--set=engine.plugin_dir=";
    char folder[64], address[64];
    int out[2], err[2];
    size_t n = 1;
    posix_spawn_file_actions_t actions;

    /* the name, not the link: under valgrind the link leads to valgrind */
    assert_in_range(readlink("/proc/self/exe", self, sizeof(self) - 1), 1, sizeof(self) - 2);
    assert_true(rl_copy_str(folder, sizeof(folder), dir) &&
                rl_copy_str(address, sizeof(address), listen));
    char *argv[] = {self,    serve, dir_option, folder,  listen_option,
                    address, set,   ballast,    plugins, NULL};
    if (script) {
        (void)snprintf(script_env, sizeof(script_env), "SERVE_TEST=%s", script);
        envp[n++] = script_env;
    }
    if (notify) {
        (void)snprintf(notify_env, sizeof(notify_env), "NOTIFY_SOCKET=%s", notify);
        envp[n++] = notify_env;
    }
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    assert_int_equal(pipe2(err, O_CLOEXEC), 0);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, err[1], STDERR_FILENO);
    assert_int_equal(posix_spawn(&s->pid, self, &actions, NULL, argv, envp), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(out[1]);
    close(err[1]);
    s->out = out[0];
    s->err = err[0];
    s->log[0] = '\0';
    s->log_len = 0;
    for (size_t i = 0; i < RL_ARRAY_LEN(running); i++)
        if (running[i] == 0) {
            running[i] = s->pid;
            break;
        }
}

/* Next line of standard output. */
static void read_line(struct server *s, char *line, size_t size)
{
    size_t len = 0;
    struct pollfd p = {.fd = s->out, .events = POLLIN};

    for (;;) {
        assert_int_equal(poll(&p, 1, WAIT_MS), 1);
        if (read(s->out, line + len, 1) != 1 || line[len] == '\n' || len + 2 == size)
            break;
        len++;
    }
    line[len] = '\0';
}

/* Read standard error until it says this, or ends (NULL). */
static void read_log(struct server *s, const char *says)
{
    struct pollfd p = {.fd = s->err, .events = POLLIN};
    ssize_t n;

    while (!(says && strstr(s->log, says)) && poll(&p, 1, WAIT_MS) == 1 &&
           (n = read(s->err, s->log + s->log_len, sizeof(s->log) - 1 - s->log_len)) > 0) {
        s->log_len += (size_t)n;
        s->log[s->log_len] = '\0';
    }
}

/* The server's exit status; its log is complete then. */
static int end_of(struct server *s)
{
    int status;

    read_log(s, NULL);
    assert_int_equal(waitpid(s->pid, &status, 0), s->pid);
    for (size_t i = 0; i < RL_ARRAY_LEN(running); i++)
        if (running[i] == s->pid)
            running[i] = 0;
    close(s->out);
    close(s->err);
    if (!WIFEXITED(status))
        fail_msg("the server died of signal %d:\n%s", WTERMSIG(status), s->log);
    return WEXITSTATUS(status);
}

static void url_of(struct server *s, char *url)
{
    char line[512], *at;

    do {
        read_line(s, line, sizeof(line));
        if (!*line)
            fail_msg("the server ended without an address");
        at = strstr(line, "listening on http://127.0.0.1:");
    } while (!at);
    assert_true(rl_copy_str(url, 64, at + strlen("listening on ")));
}

static int ready_status(const char *url)
{
    char path[128];
    struct net_response response;

    (void)snprintf(path, sizeof(path), "%s/readyz", url);
    struct net_request request = {
        .method = "GET", .url = path, .timeout_ms = WAIT_MS, .response_limit = 4096};
    (void)net_call(&request, &response);
    int status = response.status;
    net_response_free(&response);
    return status;
}

static bool exists(const char *name)
{
    char path[128];

    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    return access(path, F_OK) == 0;
}

static void test_serve_first_run_and_stop(void **state)
{
    (void)state;
    struct server s;
    char url[64], line[512], file[128];
    AUTO_FREE char *text = NULL;
    size_t len;
    struct stat st;

    start(&s, NULL, NULL, "127.0.0.1:0");
    url_of(&s, url);
    read_line(&s, line, sizeof(line));
    assert_non_null(strstr(line, "/owner.key"));
    read_line(&s, line, sizeof(line));
    assert_non_null(strstr(line, url));
    assert_non_null(strstr(line, "/sign-in?token=link."));
    assert_int_equal(ready_status(url), 200);

    (void)snprintf(file, sizeof(file), "%s/url", dir);
    assert_int_equal(rl_fs_read(file, 256, &text, &len, NULL), RL_OK);
    text[strcspn(text, "\n")] = '\0';
    assert_string_equal(text, url);
    assert_int_equal(stat(file, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(cli_lock_holder(dir), s.pid);

    assert_int_equal(kill(s.pid, SIGTERM), 0);
    assert_int_equal(end_of(&s), CLI_OK);
    assert_false(exists("url"));
    assert_int_equal(cli_lock_holder(dir), 0);
}

static void test_serve_second_instance_is_refused(void **state)
{
    (void)state;
    struct server first, second;
    char url[64], pid[32];

    start(&first, NULL, NULL, "127.0.0.1:0");
    url_of(&first, url);
    start(&second, NULL, NULL, "127.0.0.1:0");
    assert_int_equal(end_of(&second), CLI_LOCKED);
    (void)snprintf(pid, sizeof(pid), "(pid %d)", (int)first.pid);
    assert_non_null(strstr(second.log, "another reeld is using"));
    assert_non_null(strstr(second.log, pid));
    assert_int_equal(ready_status(url), 200); /* unharmed */
    assert_true(exists("url"));
    assert_int_equal(kill(first.pid, SIGINT), 0);
    assert_int_equal(end_of(&first), CLI_OK);
}

static void test_serve_port_in_use(void **state)
{
    (void)state;
    struct server s;
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(addr);
    char listen_text[64];

    AUTO_CLOSE int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&addr, len), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&addr, &len), 0);
    (void)snprintf(listen_text, sizeof(listen_text), "127.0.0.1:%d", ntohs(addr.sin_port));
    start(&s, NULL, NULL, listen_text);
    assert_int_equal(end_of(&s), CLI_FAILED);
    assert_non_null(strstr(s.log, "cannot listen on"));
    assert_false(exists("url"));
}

static void test_serve_replaces_itself(void **state)
{
    (void)state;
    struct server s;
    char first[64], second[64];

    start(&s, "replace", NULL, "127.0.0.1:0");
    url_of(&s, first);
    url_of(&s, second);
    assert_string_equal(first, second); /* a chosen port stays, clients find it again */
    assert_int_equal(ready_status(second), 200);
    assert_int_equal(kill(s.pid, SIGTERM),
                     0); /* still the same process, and its signals are not left blocked */
    assert_int_equal(end_of(&s), CLI_OK);
    assert_non_null(strstr(s.log, "process_replace code=GPU_ERROR"));
}

static void test_serve_replaces_itself_when_the_pool_hangs(void **state)
{
    (void)state;
    struct server s;
    char first[64], second[64];

    start(&s, "replace pool_hangs", NULL, "127.0.0.1:0");
    url_of(&s, first);
    url_of(&s, second);
    assert_int_equal(ready_status(second), 200);
    assert_int_equal(kill(s.pid, SIGTERM), 0);
    assert_int_equal(end_of(&s), CLI_OK);
}

static void test_serve_ends_when_the_pool_hangs(void **state)
{
    (void)state;
    struct server s;
    char url[64];

    start(&s, "pool_hangs", NULL, "127.0.0.1:0");
    url_of(&s, url);
    assert_int_equal(kill(s.pid, SIGTERM), 0);
    assert_int_equal(end_of(&s), CLI_FAILED);
    assert_non_null(strstr(s.log, "pool_hangs"));
    assert_false(exists("url"));
}

static void test_serve_second_signal_ends_at_once(void **state)
{
    (void)state;
    struct server s;
    char url[64];

    start(&s, "pool_blocks", NULL, "127.0.0.1:0");
    url_of(&s, url);
    assert_int_equal(kill(s.pid, SIGTERM), 0);
    read_log(&s, "event=stopping");
    assert_int_equal(kill(s.pid, SIGTERM), 0);
    assert_int_equal(end_of(&s), CLI_FAILED);
    assert_non_null(strstr(s.log, "stop_at_once"));
}

static void test_serve_fatal_store(void **state)
{
    (void)state;
    struct server s;

    start(&s, "fatal", NULL, "127.0.0.1:0");
    assert_int_equal(end_of(&s), CLI_FATAL);
}

static void test_serve_wrong_config(void **state)
{
    (void)state;
    struct server s;

    start(&s, NULL, NULL, "localhost:80");
    assert_int_equal(end_of(&s), CLI_USAGE);
    assert_non_null(strstr(s.log, "listen: "));
}

static void expect_notice(int fd, const char *says)
{
    char text[256];
    struct pollfd p = {.fd = fd, .events = POLLIN};

    assert_int_equal(poll(&p, 1, WAIT_MS), 1);
    ssize_t n = recv(fd, text, sizeof(text) - 1, 0);
    assert_true(n > 0);
    text[n] = '\0';
    if (!strstr(text, says))
        fail_msg("'%s' does not say %s", text, says);
}

/* Under a service manager: READY, STOPPING, and the distinct exit status instead of a re-execution.
 */
static void notified(const char *name)
{
    struct server s;
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    char url[64];

    assert_true(rl_copy_str(addr.sun_path, sizeof(addr.sun_path), name));
    if (name[0] == '@')
        addr.sun_path[0] = '\0';
    AUTO_CLOSE int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&addr,
                          (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name))),
                     0);
    start(&s, "replace", name, "127.0.0.1:0");
    url_of(&s, url);
    expect_notice(fd, "READY=1");
    expect_notice(fd, "STOPPING=1");
    assert_int_equal(end_of(&s), CLI_REPLACE);
}

static void test_serve_notifies_path(void **state)
{
    (void)state;
    char path[100];

    (void)snprintf(path, sizeof(path), "%s/notify", dir);
    notified(path);
}

static void test_serve_notifies_abstract(void **state)
{
    (void)state;
    char name[64];

    (void)snprintf(name, sizeof(name), "@reeld-test-%d", (int)getpid());
    notified(name);
}

static void test_listen_parse_cases(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int port; /* -1: refused */
    } cases[] = {
        {"127.0.0.1:8080", 8080},
        {"0.0.0.0:0", 0},
        {"255.255.255.255:65535", 65535},
        {"127.0.0.1:65536", -1},
        {"127.0.0.1", -1},
        {":80", -1},
        {"127.0.0.1:", -1},
        {"127.0.0.1:8o", -1},
        {"localhost:80", -1},
        {"[::1]:80", -1},
        {"127.0.0.1: 80", -1},
        {"127.0.0.1:-1", -1},
        {"1.2.3.4.5.6.7.8:80", -1},
        {"", -1},
    };

    for (size_t i = 0; i < RL_ARRAY_LEN(cases); i++) {
        char ip[16];
        int port = -1;
        enum rl_rc rc = cli_listen_parse(cases[i].text, ip, &port, NULL);
        assert_int_equal(rc == RL_OK, cases[i].port >= 0);
        assert_int_equal(port, cases[i].port);
    }
}

/* ---- fixture ---- */

static int make_dir(void **state)
{
    (void)state;
    (void)snprintf(dir, sizeof(dir), "/tmp/reeld-serve-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
    (void)state;
    char command[128];

    for (size_t i = 0; i < RL_ARRAY_LEN(running); i++)
        if (running[i] > 0) {
            (void)kill(running[i], SIGKILL);
            (void)waitpid(running[i], NULL, 0);
            running[i] = 0;
        }
    (void)snprintf(command, sizeof(command), "rm -rf -- '%s'", dir);
    return system(command);
}

#define SERVE_TEST(f) cmocka_unit_test_setup_teardown(f, make_dir, remove_dir)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        SERVE_TEST(test_serve_first_run_and_stop),
        SERVE_TEST(test_serve_second_instance_is_refused),
        SERVE_TEST(test_serve_port_in_use),
        SERVE_TEST(test_serve_replaces_itself),
        SERVE_TEST(test_serve_replaces_itself_when_the_pool_hangs),
        SERVE_TEST(test_serve_ends_when_the_pool_hangs),
        SERVE_TEST(test_serve_second_signal_ends_at_once),
        SERVE_TEST(test_serve_fatal_store),
        SERVE_TEST(test_serve_wrong_config),
        SERVE_TEST(test_serve_notifies_path),
        SERVE_TEST(test_serve_notifies_abstract),
        cmocka_unit_test(test_listen_parse_cases),
    };
    struct rl_err err;

    if (argc > 1 && strcmp(argv[1], "serve") == 0) {
        char mark[128];
        (void)snprintf(mark, sizeof(mark), "%s/lived", argv[3]);
        second_life = access(mark, F_OK) == 0;
        if (scripted("replace")) {
            int fd = open(mark, O_CREAT | O_EXCL | O_CLOEXEC, 0600);
            if (fd >= 0)
                close(fd);
        }
        return cli_main(argc, argv, end_process);
    }
    if (net_init(&err))
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    net_cleanup();
    return failed;
}
