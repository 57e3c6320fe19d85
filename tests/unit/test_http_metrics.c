/* /metrics and /healthz: who may read them, the format line by line, and that the figures move. */
#include "http_world.h"
#include "outbox/outbox.h"
#include "task/internal.h"

#define SERIES_MAX 512
#define NAME_BYTES 256

/* ---- a reader of the exposition format that takes nothing loose ---- */

struct reading {
    char series[SERIES_MAX][NAME_BYTES]; /* name with labels, as written */
    size_t count;
    char family[NAME_BYTES]; /* of the newest TYPE line */
    char helped[NAME_BYTES]; /* of the newest HELP line */
    char families[SERIES_MAX][NAME_BYTES];
    size_t family_count;
};

static size_t name_len(const char *text)
{
    size_t len = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_:");
    return len > 0 && !(text[0] >= '0' && text[0] <= '9') ? len : 0;
}

/* Length of {a="b",c="d"} at text, 0 when it is not that. */
static size_t labels_len(const char *text)
{
    const char *p = text + 1;
    for (;;) {
        size_t len = name_len(p);
        if (!len || p[len] != '=' || p[len + 1] != '"')
            return 0;
        for (p += len + 2; *p && *p != '"'; p++)
            if (*p == '\\' && (*++p == '\0' || !strchr("\\\"n", *p)))
                return 0;
        if (*p++ != '"')
            return 0;
        if (*p == '}')
            return (size_t)(p + 1 - text);
        if (*p++ != ',')
            return 0;
    }
}

static bool belongs(const char *name, size_t len, const char *family)
{
    static const char *const tails[] = {"", "_bucket", "_sum", "_count"};
    size_t base = strlen(family);
    for (size_t i = 0; i < RL_ARRAY_LEN(tails); i++)
        if (len == base + strlen(tails[i]) && !strncmp(name, family, base) &&
            !strncmp(name + base, tails[i], strlen(tails[i])))
            return true;
    return false;
}

static void read_comment(struct reading *r, const char *line)
{
    char word[8], name[NAME_BYTES], rest[16];
    if (sscanf(line, "# %7s %255s %15s", word, name, rest) != 3 || !name_len(name))
        fail_msg("comment: %s", line);
    if (!strcmp(word, "HELP")) {
        snprintf(r->helped, sizeof(r->helped), "%s", name);
        return;
    }
    if (strcmp(word, "TYPE") != 0 || strcmp(r->helped, name) != 0)
        fail_msg("no HELP before: %s", line);
    if (strcmp(rest, "counter") != 0 && strcmp(rest, "gauge") != 0 &&
        strcmp(rest, "histogram") != 0)
        fail_msg("type: %s", line);
    for (size_t i = 0; i < r->family_count; i++)
        if (!strcmp(r->families[i], name))
            fail_msg("family twice: %s", line);
    snprintf(r->families[r->family_count++], NAME_BYTES, "%s", name);
    snprintf(r->family, sizeof(r->family), "%s", name);
}

static void read_sample(struct reading *r, const char *line)
{
    size_t name = name_len(line), len = name;
    if (name && line[name] == '{') {
        size_t labels = labels_len(line + name);
        len = labels ? name + labels : 0;
    }
    char *end = NULL;
    if (!len || len >= NAME_BYTES || line[len] != ' ' || line[len + 1] == ' ')
        fail_msg("sample: %s", line);
    (void)strtod(line + len + 1, &end);
    if (end == line + len + 1 || *end)
        fail_msg("value: %s", line);
    if (!belongs(line, name, r->family))
        fail_msg("not in the family %s: %s", r->family, line);
    for (size_t i = 0; i < r->count; i++)
        if (strlen(r->series[i]) == len && !strncmp(r->series[i], line, len))
            fail_msg("series twice: %s", line);
    assert_true(r->count < SERIES_MAX);
    snprintf(r->series[r->count++], NAME_BYTES, "%.*s", (int)len, line);
}

static void check_format(const char *text)
{
    struct reading *r = calloc(1, sizeof(*r));
    assert_non_null(r);
    size_t len = strlen(text);
    assert_true(len > 0 && text[len - 1] == '\n');
    for (const char *p = text; *p;) {
        char line[1024];
        size_t n = strcspn(p, "\n");
        assert_true(n < sizeof(line));
        memcpy(line, p, n);
        line[n] = '\0';
        if (line[0] == '#')
            read_comment(r, line);
        else
            read_sample(r, line);
        p += n + 1;
    }
    assert_true(r->count > 40);
    free(r);
}

static double value(const char *text, const char *series)
{
    char line[NAME_BYTES];
    assert_true(snprintf(line, sizeof(line), "\n%s ", series) < (int)sizeof(line));
    const char *found = strstr(text, line);
    if (!found)
        fail_msg("no %s", series);
    return found ? strtod(found + strlen(line), NULL) : 0;
}

static struct answer metrics(struct server *s)
{
    struct answer a = call(s, "GET", "/metrics", NULL, NULL);
    if (a.status != 200)
        fail_msg("%d %s", a.status, a.body);
    return a;
}

/* ---- tests ---- */

static void test_metrics_format(void **state)
{
    struct server *s = *state;
    char path[128];
    make_video(s, path, sizeof(path));
    struct answer a = metrics(s);
    assert_string_equal(answer_header(&a, "Content-Type"),
                        "text/plain; version=0.0.4; charset=utf-8");
    check_format(a.body);
    assert_non_null(strstr(a.body, "reeld_build_info{version=\"" REELD_VERSION "\",sqlite=\"3."));
    assert_true(value(a.body, "reeld_metrics_missing") == 0);
    answer_free(&a);
    struct answer head = call(s, "HEAD", "/metrics", NULL, NULL);
    expect(head, 200, NULL);
}

static void test_metrics_figures_move(void **state)
{
    struct server *s = *state;
    char path[128];
    struct answer before = metrics(s);
    make_video(s, path, sizeof(path));
    expect(call(s, "GET", "/api/v1/tasks/99", NULL, NULL), 404, NULL);
    struct answer after = metrics(s);
    static const char *const grow[] = {"reeld_store_writes_total",
                                       "reeld_store_commits_total",
                                       "reeld_store_commit_seconds_total",
                                       "reeld_tasks_entered_total{status=\"SUCCEEDED\"}",
                                       "reeld_http_answers_total{class=\"2xx\"}",
                                       "reeld_http_answers_total{class=\"4xx\"}",
                                       "reeld_uptime_seconds"};
    for (size_t i = 0; i < RL_ARRAY_LEN(grow); i++)
        if (value(after.body, grow[i]) < value(before.body, grow[i]) ||
            (value(after.body, grow[i]) <= value(before.body, grow[i]) &&
             strcmp(grow[i], "reeld_uptime_seconds") != 0))
            fail_msg("%s did not grow", grow[i]);
    assert_true(value(after.body, "reeld_store_commit_seconds_max") > 0);
    assert_true(value(after.body, "reeld_store_disk_full") == 0);
    assert_true(value(after.body, "reeld_disk_free_bytes") > 0);
    assert_true(value(after.body, "reeld_http_in_flight") >= 1);
    assert_true(value(after.body, "reeld_http_threads") == THREADS);
    assert_true(value(after.body, "reeld_http_refused_total{reason=\"rate\"}") == 0);
    double drift = value(after.body, "reeld_clock_seconds") - (double)rl_wall_ms() / 1000;
    assert_true(drift > -60 && drift < 60);
    answer_free(&before);
    answer_free(&after);
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
    struct http *second = NULL;
    struct rl_err err;
    int port, first = s->port;
    assert_int_equal(outbox_start(s->tasks, s->port, &outbox, &err), RL_OK);
    if (http_start(s->tasks, NULL, outbox, &second, &port, &err) != RL_OK)
        fail_msg("%s", err.reason);
    s->port = port;
    struct answer a = metrics(s);
    check_format(a.body);
    assert_true(value(a.body, "reeld_outbox_pending") == 0);
    assert_true(value(a.body, "reeld_outbox_in_flight") == 0);
    assert_true(value(a.body, "reeld_outbox_stalled_seconds") < 60);
    answer_free(&a);
    s->port = first;
    http_stop(second, 2000);
    outbox_stop(outbox, 0);
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
        cmocka_unit_test(test_metrics_need_a_key),
        cmocka_unit_test(test_metrics_of_the_outbox),
        cmocka_unit_test(test_health_sees_a_stalled_scheduler),
    };
    const struct CMUnitTest open[] = {
        cmocka_unit_test(test_metrics_open),
    };
    int failed = cmocka_run_group_tests(tests, server_start, server_end);
    return failed + cmocka_run_group_tests(open, start_open, server_end);
}
