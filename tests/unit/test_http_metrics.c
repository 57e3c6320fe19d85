/* /metrics and /healthz: who may read them, the format line by line, and that the figures move. */
#include "http_world.h"
#include "outbox/outbox.h"
#include "pool/pool.h"
#include "prometheus.h"
#include "task/internal.h"

static struct prom *metrics(struct server *s)
{
    struct answer a = call(s, "GET", "/metrics", NULL, NULL);
    if (a.status != 200)
        fail_msg("%d %s", a.status, a.body);
    assert_string_equal(answer_header(&a, "Content-Type"),
                        "text/plain; version=0.0.4; charset=utf-8");
    struct prom *p = prom_read(a.body);
    answer_free(&a);
    return p;
}

/* A second server over the same tasks that knows these parts; s->port is its port. */
static struct http *server_again(struct server *s, struct pool *pool, struct outbox *outbox)
{
    struct http *second = NULL;
    struct rl_err err;
    int port;
    if (http_start(s->tasks, pool, outbox, &second, &port, &err) != RL_OK)
        fail_msg("%s", err.reason);
    s->port = port;
    return second;
}

static void never_replace(void *user, const struct rl_err *err)
{
    (void)user;
    fail_msg("the process was to be replaced: %s", err->reason);
}

/* ---- tests ---- */

static void test_metrics_format(void **state)
{
    struct server *s = *state;
    char path[128];
    make_video(s, path, sizeof(path));
    struct prom *p = metrics(s);
    assert_true(p->count > 100);
    assert_true(prom_value(p, "reeld_metrics_missing") == 0);
    free(p);
    struct answer head = call(s, "HEAD", "/metrics", NULL, NULL);
    expect(head, 200, NULL);
}

/* Every family has its place in the README. */
static void test_metrics_are_in_the_readme(void **state)
{
    struct outbox *outbox = NULL;
    struct pool *pool = NULL;
    struct server *s = *state;
    struct rl_err err;
    char name[PROM_NAME], *readme;
    size_t len = 0;
    int first = s->port;
    FILE *f = fopen(README_FILE, "r");
    assert_non_null(f);
    readme = calloc(1, 1 << 20);
    assert_non_null(readme);
    len = fread(readme, 1, (1 << 20) - 1, f);
    fclose(f);
    assert_true(len > 0 && len < (1 << 20) - 1);
    assert_int_equal(outbox_start(s->tasks, s->port, &outbox, &err), RL_OK);
    assert_int_equal(pool_start(s->tasks, never_replace, NULL, &pool, &err), RL_OK);
    struct http *second = server_again(s, pool, outbox);
    struct prom *p = metrics(s);
    for (size_t i = 0; i < p->family_count; i++) {
        (void)snprintf(name, sizeof name, "`%s`", p->families[i]);
        if (!strstr(readme, name))
            fail_msg("%s is not in the README", name);
    }
    free(p);
    free(readme);
    s->port = first;
    http_stop(second, 2000);
    outbox_stop(outbox, 0);
    assert_true(pool_stop(pool, 30000));
}

static void test_metrics_figures_move(void **state)
{
    struct server *s = *state;
    char path[128];
    struct prom *before = metrics(s);
    make_video(s, path, sizeof(path));
    expect(call(s, "GET", path, NULL, NULL), 200, NULL);
    expect(call(s, "GET", path, NULL, NULL), 200, NULL);
    expect(call(s, "GET", "/api/v1/tasks/99", NULL, NULL), 404, NULL);
    struct prom *after = metrics(s);
    static const char *const grow[] = {"reeld_store_group_writes_count",
                                       "reeld_store_group_writes_sum",
                                       "reeld_store_commit_seconds_count",
                                       "reeld_store_commit_seconds_sum",
                                       "reeld_state_seconds_count{status=\"QUEUED\"}",
                                       "reeld_tasks_entered_total{status=\"SUCCEEDED\"}",
                                       "reeld_task_cache_hits_total",
                                       "reeld_task_cache_misses_total",
                                       "reeld_task_cache_tasks",
                                       "reeld_task_cache_bytes",
                                       "reeld_http_answers_total{class=\"2xx\"}",
                                       "reeld_http_answers_total{class=\"4xx\"}"};
    for (size_t i = 0; i < RL_ARRAY_LEN(grow); i++)
        if (prom_value(after, grow[i]) <= prom_value(before, grow[i]))
            fail_msg("%s did not grow", grow[i]);
    assert_true(prom_value(after, "reeld_uptime_seconds") >=
                prom_value(before, "reeld_uptime_seconds"));
    assert_true(prom_value(after, "reeld_store_commit_max_seconds") > 0);
    assert_true(prom_value(after, "reeld_store_disk_full") == 0);
    assert_true(prom_value(after, "reeld_disk_free_bytes") > 0);
    assert_true(prom_value(after, "reeld_http_in_flight") >= 1);
    assert_true(prom_value(after, "reeld_http_threads") == THREADS);
    assert_true(prom_value(after, "reeld_http_refused_total{reason=\"rate\"}") == 0);
    double drift = prom_value(after, "reeld_clock_seconds") - (double)rl_wall_ms() / 1000;
    assert_true(drift > -60 && drift < 60);
    free(before);
    free(after);
}

/* A look for something to do that changed nothing waits for no disk: it is in no histogram. */
static void test_metrics_count_only_what_was_synced(void **state)
{
    struct server *s = *state;
    struct engine_device device = {.id = "cpu0", .name = "test", .backend = "cpu"};
    struct rl_err err;
    char path[128];
    make_video(s, path, sizeof(path)); /* nothing waits any more */
    struct prom *before = metrics(s);
    for (int i = 0; i < 10; i++) {
        struct run *run = NULL;
        assert_int_equal(run_claim(s->tasks, &device, &run, &err), RL_OK);
        assert_null(run);
    }
    struct prom *after = metrics(s);
    static const char *const still[] = {"reeld_store_group_writes_count",
                                        "reeld_store_commit_seconds_count"};
    for (size_t i = 0; i < RL_ARRAY_LEN(still); i++)
        assert_true(prom_value(after, still[i]) <= prom_value(before, still[i]));
    free(before);
    free(after);
}

static void test_metrics_need_a_key(void **state)
{
    struct server *s = *state;
    expect(call_as(s, NULL, "GET", "/metrics", NULL, NULL), 401, "UNAUTHORIZED");
    expect(call_as(s, s->owner, "GET", "/metrics", NULL, NULL), 200, NULL);
}

static int start_open(void **state)
{
    static const char *const settings[] = {"http.metrics_open", "on", NULL};
    return server_start_set(state, settings);
}

static void test_metrics_open(void **state)
{
    struct server *s = *state;
    expect(call_as(s, NULL, "GET", "/metrics", NULL, NULL), 200, "reeld_uptime_seconds");
    expect(call_as(s, NULL, "GET", "/api/v1/tasks", NULL, NULL), 401, NULL); /* nothing else is */
}

static void test_metrics_of_the_outbox(void **state)
{
    struct server *s = *state;
    struct outbox *outbox = NULL;
    struct rl_err err;
    int first = s->port;
    assert_int_equal(outbox_start(s->tasks, s->port, &outbox, &err), RL_OK);
    struct http *second = server_again(s, NULL, outbox);
    struct prom *p = metrics(s);
    assert_true(prom_value(p, "reeld_outbox_pending") == 0);
    assert_true(prom_value(p, "reeld_outbox_in_flight") == 0);
    assert_true(prom_value(p, "reeld_outbox_breakers{state=\"open\"}") == 0);
    assert_true(prom_value(p, "reeld_outbox_breakers{state=\"half_open\"}") == 0);
    assert_true(prom_value(p, "reeld_outbox_stalled_seconds") < 60);
    free(p);
    s->port = first;
    http_stop(second, 2000);
    outbox_stop(outbox, 0);
}

/* The series of a device: "reeld_device_<what>{…}". */
static const char *device_series(char *text, size_t size, const char *what, const char *labels)
{
    (void)snprintf(text, size, "reeld_device_%s{%s}", what, labels);
    return text;
}

/* The pool's devices with what is known of each, while they work a task off. */
static void look_at_devices(struct server *s, const char *device, const char *other)
{
    struct pool *pool = NULL;
    struct rl_err err;
    char path[128], series[256];
    int first = s->port;
    if (pool_start(s->tasks, never_replace, NULL, &pool, &err) != RL_OK)
        fail_msg("%s", err.reason);
    struct http *second = server_again(s, pool, NULL);
    submit(s, JSON_TYPE, path, sizeof path);
    double busy = 0, runs = 0;
    for (int64_t until = rl_mono_ms() + 30000; runs < 1 || busy > 0;) {
        struct prom *p = metrics(s);
        runs = prom_value(p, device_series(series, sizeof series, "runs_total", device));
        busy = prom_value(p, device_series(series, sizeof series, "busy", device));
        if (other) {
            runs += prom_value(p, device_series(series, sizeof series, "runs_total", other));
            busy += prom_value(p, device_series(series, sizeof series, "busy", other));
        }
        free(p);
        assert_true(rl_mono_ms() < until);
    }
    struct prom *p = metrics(s);
    double seconds =
        prom_value(p, device_series(series, sizeof series, "busy_seconds_total", device));
    if (other)
        seconds += prom_value(p, device_series(series, sizeof series, "busy_seconds_total", other));
    assert_true(seconds > 0 && seconds < 30);
    assert_true(prom_value(p, device_series(series, sizeof series, "alive", device)) == 1);
    bool gpu = strstr(device, "kind=\"gpu\"") != NULL;
    assert_true(prom_has(p, device_series(series, sizeof series, "memory_free_bytes", device)) ==
                gpu);
    if (gpu) {
        double all = (double)(INT64_C(8) << 30);
        assert_true(prom_value(p, device_series(series, sizeof series, "memory_bytes", device)) ==
                    all);
        assert_true(prom_value(p, device_series(series, sizeof series, "memory_free_bytes",
                                                other)) == all / 4);
        assert_true(prom_value(p, device_series(series, sizeof series, "utilisation_ratio",
                                                device)) == 0.75);
        assert_false(prom_has(p, device_series(series, sizeof series, "utilisation_ratio", other)));
    }
    free(p);
    s->port = first;
    http_stop(second, 2000);
    assert_true(pool_stop(pool, 30000));
}

static void test_metrics_of_cpu_slots(void **state)
{
    char labels[128];
    (void)snprintf(labels, sizeof labels,
                   "device=\"cpu0\",kind=\"cpu\",index=\"0\",name=\"CPU, %ld cores\"",
                   sysconf(_SC_NPROCESSORS_ONLN));
    look_at_devices(*state, labels, NULL);
}

static void test_metrics_of_gpus(void **state)
{
    look_at_devices(*state, "device=\"gpu0\",kind=\"gpu\",index=\"0\",name=\"Fake GPU A\"",
                    "device=\"gpu1\",kind=\"gpu\",index=\"1\",name=\"Fake GPU B\"");
}

/* With the plug-in that brings two GPUs. */
static int start_gpus(void **state)
{
    static char dir[] = "/tmp/reeld-plugins-XXXXXX";
    char path[128];
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof path, "%s/fake.so", dir);
    assert_int_equal(symlink(PLUGIN_FAKE, path), 0);
    const char *const settings[] = {"engine.plugin_dir", dir, NULL};
    int rc = server_start_set(state, settings);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
    return rc;
}

static void test_health_sees_a_stalled_scheduler(void **state)
{
    struct server *s = *state;
    expect(call_as(s, NULL, "GET", "/healthz", NULL, NULL), 200, "ok");
    atomic_store(&s->tasks->scheduler_beat_ms, rl_mono_ms() - 61000);
    s->tasks->scheduler_started = true; /* only looked at */
    struct answer a = call_as(s, NULL, "GET", "/healthz", NULL, NULL);
    assert_int_equal(a.status, 503);
    assert_non_null(strstr(a.body, "the scheduler is stalled"));
    answer_free(&a);
    atomic_store(&s->tasks->scheduler_beat_ms, rl_mono_ms() - 59000);
    expect(call_as(s, NULL, "GET", "/healthz", NULL, NULL), 200, "ok");
    s->tasks->scheduler_started = false;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_metrics_format),
        cmocka_unit_test(test_metrics_figures_move),
        cmocka_unit_test(test_metrics_count_only_what_was_synced),
        cmocka_unit_test(test_metrics_need_a_key),
        cmocka_unit_test(test_metrics_of_the_outbox),
        cmocka_unit_test(test_health_sees_a_stalled_scheduler),
        cmocka_unit_test(test_metrics_of_cpu_slots), /* its end drains: nothing is submitted then */
        cmocka_unit_test(test_metrics_are_in_the_readme),
    };
    const struct CMUnitTest open[] = {
        cmocka_unit_test(test_metrics_open),
    };
    const struct CMUnitTest gpus[] = {
        cmocka_unit_test(test_metrics_of_gpus),
    };
    int failed = cmocka_run_group_tests(tests, server_start, server_end);
    failed += cmocka_run_group_tests(gpus, start_gpus, server_end);
    return failed + cmocka_run_group_tests(open, start_open, server_end);
}
