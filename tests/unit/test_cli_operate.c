/* The commands for whoever runs the machine, against a scripted server: what they ask for, what a
 * person sees, and when they stop. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <pty.h>
#include <termios.h>

#include "base/rl.h"
#include "cli_run.h"
#include "net_server.h"

#define STEPS 8

/* What the server expects next and answers. */
struct step {
    const char *request; /* method and target */
    const char *body;    /* part of the request's body; NULL = whatever */
    int status;
    const char *answer;
};

static struct {
    pthread_mutex_t lock; /* guards: all below (server threads) */
    const struct step *steps;
    size_t next;
    char wrong[512]; /* the first request that was not expected */
} script = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void serve(struct net_server *server, int fd, const char *request)
{
    char head[256];
    static const struct step none = {"nothing", NULL, 500, "{}"};

    (void)server;
    pthread_mutex_lock(&script.lock);
    const struct step *step = &script.steps[script.next];
    size_t len = step->request ? strlen(step->request) : 0;
    if (!step->request || strncmp(request, step->request, len) != 0 ||
        strncmp(request + len, " HTTP/1.1", 9) != 0 ||
        (step->body && !strstr(request, step->body))) {
        if (!*script.wrong)
            (void)snprintf(script.wrong, sizeof(script.wrong), "%.500s", request);
        step = &none;
    } else {
        script.next++;
    }
    pthread_mutex_unlock(&script.lock);
    (void)snprintf(head, sizeof(head),
                   "HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
                   step->status, strlen(step->answer));
    net_server_say(fd, head);
    net_server_say(fd, step->answer);
}

/* Run words[] against the script; on a terminal when `tty`. Every step must have been asked for. */
static void run(struct cli_run *run, bool tty, const char *const *words, const struct step *steps)
{
    char url[64];
    const char *all[16] = {"reeld"};
    size_t n = 1;
    int master = -1, slave = -1;

    script.steps = steps;
    script.next = 0;
    *script.wrong = '\0';
    struct net_server *server = net_server_start(serve);
    (void)snprintf(url, sizeof(url), "--url=http://127.0.0.1:%d", server->port);
    for (; words[n - 1]; n++)
        all[n] = words[n - 1];
    all[n++] = url;
    all[n] = "--key=secret-key";
    if (tty) {
        struct termios raw;
        assert_int_equal(openpty(&master, &slave, NULL, NULL, NULL), 0);
        assert_int_equal(tcgetattr(slave, &raw), 0);
        cfmakeraw(&raw); /* line ends stay as they are */
        assert_int_equal(tcsetattr(slave, TCSANOW, &raw), 0);
        cli_run_tty_fd = slave;
    }
    cli_run(run, NULL, all);
    if (tty) {
        cli_run_tty_fd = -1;
        assert_int_equal(fcntl(master, F_SETFL, O_NONBLOCK), 0);
        size_t len = 0;
        for (ssize_t got = 1; got > 0; len += got > 0 ? (size_t)got : 0)
            got = read(master, run->out + len, sizeof(run->out) - 1 - len);
        run->out[len] = '\0';
        (void)close(master);
        (void)close(slave);
    }
    net_server_stop(server);
    if (*script.wrong)
        fail_msg("unexpected request: %s", script.wrong);
    if (steps[script.next].request)
        fail_msg("never asked for: %s (%s)", steps[script.next].request, run->err);
}

#define STUCK_ONE                                                                                  \
    "{\"dry_run\":false,\"stuck\":[{\"task_id\":\"%s\",\"status\":\"PROCESSING\",\"reason\":\"no " \
    "worker runs "                                                                                 \
    "it\",\"action\":\"requeue\",\"error\":%s}],\"next\":%s,\"acted\":%d,\"orphan_files\":0,"      \
    "\"status_counts\":"                                                                           \
    "{\"QUEUED\":1}}"
#define NOTHING                                                                                    \
    "{\"dry_run\":false,\"stuck\":[],\"acted\":0,\"orphan_files\":0,\"status_counts\":{"           \
    "\"SUCCEEDED\":3}}"

static void test_repair_is_a_dry_run_by_default(void **state)
{
    (void)state;
    struct cli_run r;
    const char *words[] = {"repair", NULL};
    const struct step steps[STEPS] = {
        {"POST /api/v1/repair?dry_run=true&batch=50", NULL, 200,
         "{\"dry_run\":true,\"stuck\":[{\"task_id\":\"77\",\"status\":\"QUEUED\",\"reason\":\"it "
         "waits for a run that is \\u001b over\",\"action\":\"release\"}],\"acted\":0,"
         "\"orphan_files\":2,\"status_counts\":{\"QUEUED\":4,\"FAILED\":1}}"}};

    run(&r, true, words, steps);
    assert_int_equal(r.status, 0);
    assert_string_equal(r.out, "77                   QUEUED      release   it waits for a run that "
                               "is ? over\n"
                               "files that belong to no task: 2\n"
                               "stuck: 1; QUEUED 4 FAILED 1\n");
    run(&r, false, (const char *[]){"repair", "--dry-run", NULL}, steps);
    assert_string_equal(r.out + strlen(r.out) - 2, "}\n"); /* the server's JSON for a pipe */
}

static void test_repair_apply_goes_on_until_nothing_is_stuck(void **state)
{
    (void)state;
    struct cli_run r;
    char first[512], second[512];
    (void)snprintf(first, sizeof(first), STUCK_ONE, "1", "null", "\"PROCESSING.1\"", 1);
    (void)snprintf(second, sizeof(second), STUCK_ONE, "2", "null", "null", 1);
    const char *target = "POST /api/v1/repair?dry_run=false&batch=1&status=PROCESSING,QUEUED";
    const char *behind =
        "POST /api/v1/repair?dry_run=false&batch=1&status=PROCESSING,QUEUED&after=PROCESSING.1";
    const struct step steps[STEPS] = {
        {target, NULL, 200, first}, {behind, NULL, 200, second}, {target, NULL, 200, NOTHING}};

    run(&r, true,
        (const char *[]){"repair", "--apply", "--batch", "1", "-s", "PROCESSING,QUEUED", NULL},
        steps);
    assert_int_equal(r.status, 0);
    assert_string_equal(r.out, "1                    PROCESSING  requeue   no worker runs it\n"
                               "acted on: 1; QUEUED 1\n"
                               "2                    PROCESSING  requeue   no worker runs it\n"
                               "acted on: 1; QUEUED 1\n"
                               "acted on: 0; SUCCEEDED 3\n");
}

/* One that cannot be repaired once ended it all: "stuck again at once". */
static void test_repair_apply_goes_on_behind_what_fails(void **state)
{
    (void)state;
    struct cli_run r;
    char bad[512], good[512];
    (void)snprintf(bad, sizeof(bad), STUCK_ONE, "9", "\"INTERNAL\"", "\"PROCESSING.9\"", 0);
    (void)snprintf(good, sizeof(good), STUCK_ONE, "10", "null", "null", 1);
    const char *target = "POST /api/v1/repair?dry_run=false&batch=50";
    const char *behind = "POST /api/v1/repair?dry_run=false&batch=50&after=PROCESSING.9";
    const struct step steps[STEPS] = {{target, NULL, 200, bad},
                                      {behind, NULL, 200, good},
                                      {target, NULL, 200, bad},
                                      {behind, NULL, 200, NOTHING}};

    run(&r, false, (const char *[]){"repair", "--apply", NULL}, steps);
    assert_int_equal(r.status, CLI_FAILED);
    assert_non_null(strstr(r.err, "not repaired: 9;"));
}

static void test_repair_apply_does_not_turn_round_one_task(void **state)
{
    (void)state;
    struct cli_run r;
    char same[512];
    (void)snprintf(same, sizeof(same), STUCK_ONE, "9", "null", "null", 1);
    const char *target = "POST /api/v1/repair?dry_run=false&batch=50";
    const struct step steps[STEPS] = {{target, NULL, 200, same},
                                      {target, NULL, 200, same},
                                      {target, NULL, 200, same},
                                      {target, NULL, 200, same},
                                      {target, NULL, 200, same}};

    run(&r, false, (const char *[]){"repair", "--apply", NULL}, steps);
    assert_int_equal(r.status, CLI_FAILED);
    assert_non_null(strstr(r.err, "stuck again at once"));
}

static void test_repair_stops_at_a_refusal(void **state)
{
    (void)state;
    struct cli_run r;
    const struct step steps[STEPS] = {{"POST /api/v1/repair?dry_run=false&batch=50", NULL, 403,
                                       "{\"code\":\"FORBIDDEN\",\"detail\":\"owners only\"}"}};

    run(&r, false, (const char *[]){"repair", "--apply", NULL}, steps);
    assert_int_equal(r.status, CLI_REFUSED);
    assert_string_equal(r.err, "reeld: 403 FORBIDDEN: owners only\n");
}

static void test_dead_letter_replay_one(void **state)
{
    (void)state;
    struct cli_run r;
    const struct step steps[STEPS] = {{"POST /api/v1/dead-letters/5/replay", NULL, 202,
                                       "{\"task_id\":\"5\",\"status\":\"QUEUED\",\"round\":2}"}};

    run(&r, true, (const char *[]){"dead-letter", "replay", "5", NULL}, steps);
    assert_int_equal(r.status, 0);
    assert_string_equal(r.out, "task 5 is in the queue again, round 2\n");
    const struct step refused[STEPS] = {{"POST /api/v1/dead-letters/5/replay", NULL, 409,
                                         "{\"code\":\"CONFLICT\",\"detail\":\"it is QUEUED\"}"}};
    run(&r, true, (const char *[]){"dead-letter", "replay", "5", NULL}, refused);
    assert_int_equal(r.status, CLI_REFUSED);
    assert_string_equal(r.err, "reeld: 409 CONFLICT: it is QUEUED\n");
}

static void test_dead_letter_replay_several(void **state)
{
    (void)state;
    struct cli_run r;
    const struct step steps[STEPS] = {
        {"POST /api/v1/dead-letters/replay", "{\"task_ids\":[\"5\",\"6\",\"7\"]}", 200,
         "{\"replayed\":[\"5\",\"7\"],\"refused\":[{\"task_id\":\"6\",\"code\":\"CONFLICT\"}]}"}};
    const char *words[] = {"dead-letter", "replay", "5", "6", "7", NULL};

    run(&r, true, words, steps);
    assert_int_equal(r.status, CLI_REFUSED); /* not all of them */
    assert_string_equal(r.out, "replayed: 2, refused: 1\n");
    assert_string_equal(r.err, "reeld: task 6 is refused: CONFLICT\n");
    run(&r, false, words, steps);
    assert_string_equal(r.out, "{\"replayed\":[\"5\",\"7\"],\"refused\":[{\"code\":\"CONFLICT\","
                               "\"task_id\":\"6\"}]}\n");
}

static void test_dead_letter_replay_all_walks_the_pages_once(void **state)
{
    (void)state;
    struct cli_run r;
    const struct step steps[STEPS] = {
        {"GET /api/v1/dead-letters?limit=40", NULL, 200,
         "{\"data\":[{\"task_id\":\"9\"},{\"task_id\":\"8\"}],\"next\":\"8\"}"},
        {"POST /api/v1/dead-letters/replay", "[\"9\",\"8\"]", 200,
         "{\"replayed\":[\"9\"],\"refused\":[{\"task_id\":\"8\",\"code\":\"QUEUE_FULL\"}]}"},
        {"GET /api/v1/dead-letters?limit=40&after=8", NULL, 200,
         "{\"data\":[{\"task_id\":\"3\"}],\"next\":null}"},
        {"POST /api/v1/dead-letters/replay", "[\"3\"]", 200,
         "{\"replayed\":[\"3\"],\"refused\":[]}"}};

    run(&r, false, (const char *[]){"dead-letter", "replay", "--all", NULL}, steps);
    assert_int_equal(r.status, CLI_REFUSED);
    assert_string_equal(r.out, "{\"replayed\":[\"9\",\"3\"],\"refused\":[{\"code\":\"QUEUE_FULL\","
                               "\"task_id\":\"8\"}]}\n");
    const struct step empty[STEPS] = {
        {"GET /api/v1/dead-letters?limit=40", NULL, 200, "{\"data\":[],\"next\":null}"}};
    run(&r, false, (const char *[]){"dead-letter", "replay", "--all", NULL}, empty);
    assert_int_equal(r.status, 0);
    assert_string_equal(r.out, "{\"replayed\":[],\"refused\":[]}\n");
}

static void test_dead_letter_list_and_discard(void **state)
{
    (void)state;
    struct cli_run r;
    const struct step steps[STEPS] = {
        {"GET /api/v1/dead-letters?limit=40", NULL, 200,
         "{\"data\":[{\"task_id\":\"9\",\"status\":\"FAILED\",\"attempt\":3,\"error_code\":"
         "\"ENGINE_ERROR\",\"error_msg\":\"boom\"}],\"next\":null}"}};

    run(&r, true, (const char *[]){"dead-letter", "list", NULL}, steps);
    assert_int_equal(r.status, 0);
    assert_string_equal(
        r.out, "TASK_ID              STATUS   ENDED                RUN  ERROR               "
               "REASON\n"
               "9                    FAILED   -                      3  ENGINE_ERROR        "
               "boom\n");
    const struct step discard[STEPS] = {{"DELETE /api/v1/dead-letters/9", NULL, 204, ""}};
    run(&r, true, (const char *[]){"dead-letter", "discard", "9", NULL}, discard);
    assert_int_equal(r.status, 0);
    assert_string_equal(r.out, "task 9 left the dead letter\n");
}

static void test_queues(void **state)
{
    (void)state;
    struct cli_run r;
    const char *list = "{\"data\":[{\"queue_name\":\"default\",\"state\":\"RUNNING\",\"depth\":12,"
                       "\"oldest_at\":null},{\"queue_name\":\"night\",\"state\":\"PAUSED\","
                       "\"depth\":null,\"oldest_at\":null}],\"next\":null}";
    const struct step steps[STEPS] = {{"GET /api/v1/queues", NULL, 200, list}};

    run(&r, true, (const char *[]){"queue", "list", NULL}, steps);
    assert_string_equal(r.out, "QUEUE                     STATE       DEPTH  OLDEST\n"
                               "default                   RUNNING        12  -\n"
                               "night                     PAUSED      > 1e5  -\n");
    static const struct {
        const char *verb, *target, *says;
    } verbs[] = {{"pause", "POST /api/v1/queues/night/pause", "queue night is paused\n"},
                 {"resume", "POST /api/v1/queues/night/resume", "queue night runs\n"},
                 {"drain", "POST /api/v1/queues/night/drain",
                  "queue night takes no new tasks and works off the others\n"}};
    for (size_t i = 0; i < RL_ARRAY_LEN(verbs); i++) {
        const struct step steer[STEPS] = {{verbs[i].target, NULL, 200, list}};
        run(&r, true, (const char *[]){"queue", verbs[i].verb, "night", NULL}, steer);
        assert_int_equal(r.status, 0);
        assert_string_equal(r.out, verbs[i].says);
    }
}

static void test_workers_and_stats(void **state)
{
    (void)state;
    struct cli_run r;
    const struct step workers[STEPS] = {
        {"GET /api/v1/workers", NULL, 200,
         "{\"data\":[{\"worker_id\":\"gpu0\",\"device\":\"A "
         "card\",\"alive\":true,\"task_id\":\"7\","
         "\"attempt\":1,\"phase\":\"denoise\",\"step\":3,\"total_steps\":20,\"heartbeat_at\":null,"
         "\"running_seconds\":62.5},{\"worker_id\":\"gpu1\",\"device\":\"B card\",\"alive\":false,"
         "\"task_id\":null,\"phase\":null,\"running_seconds\":null}],\"next\":null}"}};

    run(&r, true, (const char *[]){"workers", NULL}, workers);
    assert_string_equal(r.out, "WORKER    ALIVE  TASK_ID              PHASE        STEP       "
                               "RUNNING   HEARTBEAT           "
                               " DEVICE\n"
                               "gpu0      yes    7                    denoise      3/20       1:02 "
                               "     -                   "
                               " A card\n"
                               "gpu1      no     idle                 -            -          -    "
                               "     -                   "
                               " B card\n");
    const struct step stats[STEPS] = {
        {"GET /api/v1/stats", NULL, 200,
         "{\"data\":[{\"engine\":\"wan\",\"day\":\"2026-11-30\",\"status\":\"PROCESSING\","
         "\"count\":31,\"p50_ms\":42,\"p90_ms\":12345,\"p99_ms\":61000,\"max_ms\":3723000}],"
         "\"next\":null}"}};
    run(&r, true, (const char *[]){"stats", NULL}, stats);
    assert_string_equal(r.out,
                        "DAY (UTC)   ENGINE          STATE          COUNT      p50 s      p90 "
                        "s      p99 s      max s\n"
                        "2026-11-30  wan             PROCESSING        31      0.042       "
                        "12.3       1:01    1:02:03  \n");
}

/* A list with more values than are read is printed as it came. */
static void test_list_of_very_many(void **state)
{
    (void)state;
    struct cli_run r;
    static char answer[16384] = "{\"data\":[0";
    for (size_t i = strlen(answer), n = 0; n < 5000; n++, i += 2)
        memcpy(answer + i, ",0", 3);
    strcat(answer, "]}");
    const struct step steps[STEPS] = {{"GET /api/v1/keys", NULL, 200, answer}};
    run(&r, true, (const char *[]){"key", "list", NULL}, steps);
    assert_int_equal(r.status, 0);
    assert_int_equal(strncmp(r.out, answer, strlen(answer)), 0);
}

static void test_get_explain(void **state)
{
    (void)state;
    struct cli_run r;
    const struct step steps[STEPS] = {
        {"GET /api/v1/tasks/7?explain=1", NULL, 200,
         "{\"task_id\":\"7\",\"status\":\"QUEUED\",\"explain\":\"Its queue is paused.\"}"}};

    run(&r, true, (const char *[]){"get", "7", "--explain", NULL}, steps);
    assert_int_equal(r.status, 0);
    assert_string_equal(r.out,
                        "task_id         7\nstatus          QUEUED\nexplain         Its queue "
                        "is paused.\n");
}

static void test_link_video(void **state)
{
    (void)state;
    struct cli_run r;
    const struct step steps[STEPS] = {{"POST /api/v1/tasks/7/link", "{\"expires_s\":90}", 200,
                                       "{\"url\":\"http://h/v?sig=a&exp=1\"}"}};

    run(&r, false, (const char *[]){"link-video", "7", "--expires=90", NULL}, steps);
    assert_int_equal(r.status, 0);
    assert_string_equal(r.out, "http://h/v?sig=a&exp=1\n");
}

static void test_endpoints(void **state)
{
    (void)state;
    struct cli_run r;
    const char *made = "{\"endpoint_id\":\"4\",\"url\":\"http://h/\",\"secret\":\"whsec_x\"}";
    const struct step add[STEPS] = {
        {"POST /api/v1/endpoints",
         "{\"url\":\"http://h/\",\"events\":[\"task.failed\",\"task.timeout\"],\"secret\":\"s\"}",
         201, made}};
    const struct step plain[STEPS] = {
        {"POST /api/v1/endpoints", "{\"url\":\"http://h/\"}", 201, made}};

    run(&r, true,
        (const char *[]){"endpoint", "add", "http://h/", "-e", "task.failed,task.timeout", "-s",
                         "s", NULL},
        add);
    assert_string_equal(r.out, "endpoint_id  4\nurl          http://h/\nsecret       whsec_x\n");
    run(&r, false, (const char *[]){"endpoint", "add", "http://h/", NULL}, plain);
    assert_int_equal(strncmp(r.out, made, strlen(made)), 0); /* the server's JSON for a pipe */
    const struct step list[STEPS] = {
        {"GET /api/v1/endpoints?limit=40", NULL, 200,
         "{\"data\":[{\"endpoint_id\":\"4\",\"user_id\":\"owner\",\"url\":\"http://h/\",\"state\":"
         "\"PARKED\",\"stats\":{\"pending\":1,\"succeeded\":20,\"failed\":3}}],\"next\":null}"}};
    run(&r, true, (const char *[]){"endpoint", "list", NULL}, list);
    assert_string_equal(
        r.out,
        "ENDPOINT             STATE     PENDING  SUCCEEDED  FAILED  USER          URL\n"
        "4                    PARKED          1         20       3  owner         http://h/\n");
    const struct {
        const char *verb, *target, *answer, *said;
    } verbs[] = {
        {"test", "POST /api/v1/endpoints/4/test", "{\"delivery_id\":\"9\"}",
         "a test is on its way as delivery 9; `reeld delivery list --endpoint 4` tells what became "
         "of it\n"},
        {"rotate", "POST /api/v1/endpoints/4/rotate", made,
         "endpoint_id  4\nurl          http://h/\nsecret       whsec_x\n"},
        {"enable", "POST /api/v1/endpoints/4/enable", "{}",
         "endpoint 4 is enabled; what waited is sent first\n"},
        {"disable", "POST /api/v1/endpoints/4/disable", "{}",
         "endpoint 4 is disabled; what is queued waits\n"},
        {"rm", "DELETE /api/v1/endpoints/4", "", "endpoint 4 is gone\n"}};
    for (size_t i = 0; i < RL_ARRAY_LEN(verbs); i++) {
        const struct step steer[STEPS] = {{verbs[i].target, NULL, 200, verbs[i].answer}};
        run(&r, true, (const char *[]){"endpoint", verbs[i].verb, "4", NULL}, steer);
        assert_int_equal(r.status, 0);
        assert_string_equal(r.out, verbs[i].said);
    }
}

static void test_deliveries(void **state)
{
    (void)state;
    struct cli_run r;
    const struct step list[STEPS] = {
        {"GET /api/v1/deliveries?endpoint_id=4&limit=40&status=FAILED", NULL, 200,
         "{\"data\":[{\"delivery_id\":\"9\",\"event_type\":\"task.failed\",\"task_id\":\"77\","
         "\"host\":\"http://h:1\",\"status\":\"FAILED\",\"tries\":5,\"max_tries\":5,\"last_error\":"
         "\"answered 500\"}],\"next\":null}"}};

    run(&r, true, (const char *[]){"delivery", "list", "-e", "4", "-s", "FAILED", NULL}, list);
    assert_string_equal(
        r.out, "DELIVERY  CREATED              EVENT           TASK_ID              STATUS     "
               "TRIES  TO\n"
               "9         -                    task.failed     77                   FAILED     "
               "5/5    http://h:1  answered 500\n");
    const struct step one[STEPS] = {{"POST /api/v1/deliveries/9/resend", NULL, 202, "{}"}};
    run(&r, true, (const char *[]){"delivery", "resend", "9", NULL}, one);
    assert_string_equal(r.out, "delivery 9 is on its way again\n");
    const struct step some[STEPS] = {{"POST /api/v1/deliveries/resend",
                                      "{\"endpoint_id\":\"4\",\"to\":\"2026-01-01T00:00:00Z\"}",
                                      202, "{\"resent\":2}"}};
    run(&r, true,
        (const char *[]){"delivery", "resend", "-e", "4", "--to", "2026-01-01T00:00:00Z", NULL},
        some);
    assert_string_equal(r.out, "on their way again: 2\n");
}

static void test_feed_extend(void **state)
{
    (void)state;
    struct cli_run r;
    const struct step steps[STEPS] = {{"POST /api/v1/feeds/f/extend",
                                       "{\"lease\":\"1.2\",\"lease_s\":0}", 200,
                                       "{\"lease\":\"1.2\",\"expires_at\":null}"}};

    run(&r, true, (const char *[]){"feed", "extend", "f", "1.2", "--lease", "0", NULL}, steps);
    assert_int_equal(r.status, 0);
    assert_string_equal(r.out, "lease 1.2 is yours until -\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_repair_is_a_dry_run_by_default),
        cmocka_unit_test(test_repair_apply_goes_on_until_nothing_is_stuck),
        cmocka_unit_test(test_repair_apply_goes_on_behind_what_fails),
        cmocka_unit_test(test_repair_apply_does_not_turn_round_one_task),
        cmocka_unit_test(test_repair_stops_at_a_refusal),
        cmocka_unit_test(test_dead_letter_replay_one),
        cmocka_unit_test(test_dead_letter_replay_several),
        cmocka_unit_test(test_dead_letter_replay_all_walks_the_pages_once),
        cmocka_unit_test(test_dead_letter_list_and_discard),
        cmocka_unit_test(test_queues),
        cmocka_unit_test(test_workers_and_stats),
        cmocka_unit_test(test_list_of_very_many),
        cmocka_unit_test(test_get_explain),
        cmocka_unit_test(test_link_video),
        cmocka_unit_test(test_endpoints),
        cmocka_unit_test(test_deliveries),
        cmocka_unit_test(test_feed_extend),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
