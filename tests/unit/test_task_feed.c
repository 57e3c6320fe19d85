/* Feeds: ranges that do not overlap, leases, the contiguous prefix, what repeats and what is
 * refused, whose events they tell of, where they begin, and readers on many threads. */
#include "world.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "task/feed.h"

#include <inttypes.h>
#include <pthread.h>
#include <sqlite3.h>

// link: rl_task PkgConfig::sqlite3

#define LEASE_MS 600000

static const struct caller alice = {.user_id = "alice", .key_id = 7, .owner = false};

static int setup(void **state)
{
    static struct world w;
    world_init(&w);
    world_set(&w, "feed.leases", "4");
    world_set(&w, "feed.count", "3");
    world_set(&w, "limit.pending_tasks", "0");
    world_open(&w);
    *state = &w;
    return 0;
}

static int teardown(void **state)
{
    world_end(*state);
    return 0;
}

/* Two events each: CREATED, QUEUED. */
static void add_tasks(struct world *w, const struct caller *caller, int count)
{
    static const char body[] = "{\"prompt\":\"p\",\"idempotency\":\"off\"}";
    for (int i = 0; i < count; i++) {
        struct rl_err err;
        struct submit_reply reply;
        world_ok(task_submit(w->tasks, caller, body, strlen(body), NULL, &reply, &err), &err);
        task_free(reply.task);
    }
}

/* An answer, taken apart. */
struct got {
    bool given;
    char lease[64];
    int64_t from, to, delivery, first, count, wait_ms;
    bool gap;
};

static int64_t number(const struct rl_json *v, const char *name)
{
    const struct rl_json *member = rl_json_get(v, name);
    return member && rl_json_type(member) == RL_JSON_NUMBER ? (int64_t)rl_json_number(member) : 0;
}

static void take_apart(const char *json, size_t len, struct got *got)
{
    struct rl_err err;
    AUTO_JSON struct rl_json *root = NULL;
    world_ok(rl_json_parse(json, len, &root, &err), &err);
    const char *lease = rl_json_text(rl_json_get(root, "lease"));
    assert_int_equal(lease != NULL, got->given);
    (void)snprintf(got->lease, sizeof got->lease, "%s", lease ? lease : "");
    got->from = number(root, "from");
    got->to = number(root, "to");
    got->delivery = number(root, "delivery");
    got->gap = rl_json_type(rl_json_get(root, "gap")) == RL_JSON_OBJECT;
    for (const struct rl_json *e = rl_json_child(rl_json_get(root, "events")); e;
         e = rl_json_next(e)) {
        if (got->count++ == 0)
            got->first = number(e, "seq");
        assert_in_range(number(e, "seq"), got->from, got->to);
    }
}

static enum rl_rc ask(struct world *w, const struct caller *caller, struct feed_ask *ask,
                      struct got *got, struct rl_err *err)
{
    AUTO_BUF struct rl_buf out = {0};
    rl_buf_init(&out, 8 << 20);
    *got = (struct got){0};
    enum rl_rc rc = feed_next(w->tasks, caller, ask, &out, &got->given, &got->wait_ms, err);
    if (rc == RL_OK)
        take_apart(out.data, out.len, got);
    return rc;
}

static struct got read_feed(struct world *w, const struct caller *caller, const char *name, int max,
                            int64_t lease_ms)
{
    struct rl_err err;
    struct got got;
    struct feed_ask a = {.name = name, .max = max, .lease_ms = lease_ms};
    world_ok(ask(w, caller, &a, &got, &err), &err);
    return got;
}

/* The cursor afterwards, or -1 when the lease is lost. */
static int64_t ack(struct world *w, const struct caller *caller, const char *name,
                   const char *lease, int64_t to)
{
    struct rl_err err;
    AUTO_BUF struct rl_buf out = {0};
    AUTO_JSON struct rl_json *root = NULL;
    rl_buf_init(&out, 4096);
    enum rl_rc rc = feed_ack(w->tasks, caller, name, lease, to, &out, &err);
    if (rc == RL_LEASE_LOST)
        return -1;
    world_ok(rc, &err);
    world_ok(rl_json_parse(out.data, out.len, &root, &err), &err);
    return number(root, "cursor");
}

static int64_t member_of(struct world *w, const struct caller *caller, const char *name,
                         const char *member)
{
    struct rl_err err;
    AUTO_BUF struct rl_buf out = {0};
    AUTO_JSON struct rl_json *root = NULL;
    rl_buf_init(&out, 65536);
    world_ok(feed_show(w->tasks, caller, name, &out, &err), &err);
    world_ok(rl_json_parse(out.data, out.len, &root, &err), &err);
    return rl_json_type(rl_json_get(root, member)) == RL_JSON_NULL ? -1 : number(root, member);
}

/* ---- leases ---- */

static void test_feed_next_shares_and_ack_moves_the_prefix(void **state)
{
    struct world *w = *state;
    add_tasks(w, &owner, 3);
    struct got a = read_feed(w, &owner, "f", 2, LEASE_MS),
               b = read_feed(w, &owner, "f", 2, LEASE_MS),
               c = read_feed(w, &owner, "f", 9, LEASE_MS),
               d = read_feed(w, &owner, "f", 9, LEASE_MS);
    assert_int_equal(a.from, 1);
    assert_int_equal(a.count, 2);
    assert_int_equal(b.from, a.to + 1);
    assert_int_equal(c.from, b.to + 1);
    assert_int_equal(c.count, 2);
    assert_false(d.given);
    assert_in_range(d.wait_ms, LEASE_MS - 5000, LEASE_MS);
    assert_int_equal(ack(w, &owner, "f", c.lease, 0), 0);
    assert_int_equal(ack(w, &owner, "f", a.lease, 0), a.to);
    assert_int_equal(ack(w, &owner, "f", a.lease, 0), a.to); /* repeated */
    assert_int_equal(ack(w, &owner, "f", b.lease, 0), c.to);
    assert_int_equal(member_of(w, &owner, "f", "leases"), 0);
}

static void test_feed_next_gives_an_expired_range_again(void **state)
{
    struct world *w = *state;
    add_tasks(w, &owner, 2);
    struct got lost = read_feed(w, &owner, "f", 3, 0),
               again = read_feed(w, &owner, "f", 1, LEASE_MS);
    assert_true(again.given);
    assert_int_equal(again.from, lost.from);
    assert_int_equal(again.to, lost.to);
    assert_int_equal(again.count, 3); /* the same range, whatever max says */
    assert_int_equal(again.delivery, 2);
    assert_int_equal(ack(w, &owner, "f", lost.lease, 0), -1);
    assert_int_equal(member_of(w, &owner, "f", "cursor"), 0); /* a lost lease changes nothing */
    assert_int_equal(ack(w, &owner, "f", again.lease, 0), 3);
    /* late, but nobody else has it: accepted */
    struct got late = read_feed(w, &owner, "f", 9, 0);
    assert_int_equal(ack(w, &owner, "f", late.lease, 0), 4);
}

static void test_feed_ack_part(void **state)
{
    struct world *w = *state;
    struct rl_err err;
    AUTO_BUF struct rl_buf out = {0};
    rl_buf_init(&out, 4096);
    add_tasks(w, &owner, 3);
    struct got range = read_feed(w, &owner, "f", 6, LEASE_MS);
    assert_int_equal(feed_ack(w->tasks, &owner, "f", range.lease, 7, &out, &err), RL_INVALID_FIELD);
    assert_string_equal(err.field, "to");
    assert_int_equal(ack(w, &owner, "f", range.lease, 2), 2);
    assert_int_equal(ack(w, &owner, "f", range.lease, 2), 2);
    assert_int_equal(ack(w, &owner, "f", range.lease, 0), -1); /* "all of it" is not true */
    assert_int_equal(ack(w, &owner, "f", range.lease, 5), -1); /* what is not, is not */
    struct got rest = read_feed(w, &owner, "f", 1, LEASE_MS);
    assert_int_equal(rest.first, 3);
    assert_int_equal(rest.to, 6);
    assert_int_equal(rest.delivery, 2);
    assert_int_equal(ack(w, &owner, "f", rest.lease, 6), 6); /* all of it is no part */
    assert_false(read_feed(w, &owner, "f", 1, LEASE_MS).given);
}

static void test_feed_extend_gives_back(void **state)
{
    struct world *w = *state;
    struct rl_err err;
    AUTO_BUF struct rl_buf out = {0};
    rl_buf_init(&out, 4096);
    add_tasks(w, &owner, 1);
    struct got range = read_feed(w, &owner, "f", 9, 0);
    world_ok(feed_extend(w->tasks, &owner, "f", range.lease, LEASE_MS, &out, &err), &err);
    assert_false(read_feed(w, &owner, "f", 9, LEASE_MS).given);
    rl_buf_clear(&out);
    world_ok(feed_extend(w->tasks, &owner, "f", range.lease, 0, &out, &err), &err);
    struct got again = read_feed(w, &owner, "f", 9, LEASE_MS);
    assert_int_equal(again.from, range.from);
    assert_int_equal(feed_extend(w->tasks, &owner, "f", range.lease, 0, &out, &err), RL_LEASE_LOST);
    assert_int_equal(ack(w, &owner, "f", again.lease, 0), 2);
    assert_int_equal(feed_extend(w->tasks, &owner, "f", again.lease, 0, &out, &err), RL_LEASE_LOST);
}

static void test_feed_leases_are_bounded(void **state)
{
    struct world *w = *state;
    struct got out[4], first;
    add_tasks(w, &owner, 6);
    for (int i = 0; i < 4; i++)
        out[i] = read_feed(w, &owner, "f", 1, LEASE_MS);
    assert_false(read_feed(w, &owner, "f", 1, LEASE_MS).given);
    for (int i = 1; i < 4; i++)
        assert_int_equal(ack(w, &owner, "f", out[i].lease, 0), 0);
    assert_false(read_feed(w, &owner, "f", 1, LEASE_MS).given); /* the cursor has to move */
    assert_int_equal(ack(w, &owner, "f", out[0].lease, 0), 4);
    first = out[0];
    for (int i = 0; i < 8; i++) {
        struct got next = read_feed(w, &owner, "f", 1, LEASE_MS);
        assert_int_equal(ack(w, &owner, "f", next.lease, 0), 5 + i);
    }
    /* as many acknowledged ranges are remembered for repeats, and no more */
    assert_int_equal(ack(w, &owner, "f", first.lease, 0), -1);
}

/* ---- where, whose, what ---- */

static enum rl_rc seek(struct world *w, const char *name, enum feed_start start, int64_t value,
                       struct rl_err *err)
{
    const struct feed_from from = {.start = start, .value = value, .field = "seq"};
    AUTO_BUF struct rl_buf out = {0};
    rl_buf_init(&out, 65536);
    return feed_seek(w->tasks, &owner, name, &from, &out, err);
}

static void test_feed_seek_cancels_leases(void **state)
{
    struct world *w = *state;
    struct rl_err err;
    add_tasks(w, &owner, 3);
    struct got range = read_feed(w, &owner, "f", 9, LEASE_MS);
    world_ok(seek(w, "f", FEED_SEQ, 4, &err), &err);
    assert_int_equal(ack(w, &owner, "f", range.lease, 0), -1);
    assert_int_equal(read_feed(w, &owner, "f", 9, LEASE_MS).first, 4);
    world_ok(seek(w, "f", FEED_EARLIEST, 0, &err), &err);
    assert_int_equal(read_feed(w, &owner, "f", 9, LEASE_MS).first, 1);
    world_ok(seek(w, "f", FEED_LATEST, 0, &err), &err);
    assert_false(read_feed(w, &owner, "f", 9, LEASE_MS).given);
    world_ok(seek(w, "f", FEED_SEQ, 7, &err), &err); /* the one that comes next */
    assert_int_equal(seek(w, "f", FEED_SEQ, 8, &err), RL_INVALID_FIELD);
    assert_string_equal(err.field, "seq");
    assert_int_equal(seek(w, "g", FEED_LATEST, 0, &err), RL_NOT_FOUND);
}

static void test_feed_seek_by_time(void **state)
{
    struct world *w = *state;
    struct rl_err err;
    add_tasks(w, &owner, 2);
    int64_t mark = rl_wall_ms() + 2;
    while (rl_wall_ms() <= mark) /* the events behind it are younger, by the millisecond */
        ;
    add_tasks(w, &owner, 40);
    assert_true(read_feed(w, &owner, "f", 1, LEASE_MS).given);
    world_ok(seek(w, "f", FEED_TIME, mark, &err), &err);
    assert_int_equal(read_feed(w, &owner, "f", 1, LEASE_MS).first, 5);
    world_ok(seek(w, "f", FEED_TIME, 0, &err), &err);
    assert_int_equal(read_feed(w, &owner, "f", 1, LEASE_MS).first, 1);
    world_ok(seek(w, "f", FEED_TIME, mark + 86400000, &err), &err);
    assert_int_equal(member_of(w, &owner, "f", "cursor"), 84);
}

static void test_feed_tells_its_user_only(void **state)
{
    struct world *w = *state;
    struct caller chief = {.user_id = "alice", .key_id = 8, .owner = true};
    add_tasks(w, &owner, 2);
    add_tasks(w, &alice, 1);
    add_tasks(w, &owner, 2);
    struct got hers = read_feed(w, &alice, "f", 9, LEASE_MS);
    assert_int_equal(hers.count, 2);
    assert_int_equal(hers.first, 5);
    assert_false(read_feed(w, &alice, "f", 9, LEASE_MS).given);
    assert_int_equal(read_feed(w, &chief, "f", 99, LEASE_MS).count, 10);
    assert_int_equal(read_feed(w, &owner, "f", 99, LEASE_MS).count, 10);
    assert_int_equal(ack(w, &owner, "f", hers.lease, 0), -1);
    assert_int_equal(ack(w, &chief, "f", hers.lease, 0), -1);
    assert_true(ack(w, &alice, "f", hers.lease, 0) >= 6);
}

static void test_feed_filter_belongs_to_the_feed(void **state)
{
    struct world *w = *state;
    struct rl_err err;
    struct got got;
    struct feed_ask failed = {.name = "f",
                              .has_statuses = true,
                              .statuses = 1u << TASK_QUEUED,
                              .max = 9,
                              .lease_ms = LEASE_MS};
    add_tasks(w, &owner, 3);
    world_ok(ask(w, &owner, &failed, &got, &err), &err);
    assert_int_equal(got.count, 3);
    assert_int_equal(got.from, 1);
    assert_int_equal(got.first, 2);
    assert_int_equal(member_of(w, &owner, "f", "lag"), 3);
    failed.statuses = 0;
    assert_int_equal(ask(w, &owner, &failed, &got, &err), RL_CONFLICT);
    assert_string_equal(err.field, "status");
    assert_false(read_feed(w, &owner, "f", 9, LEASE_MS).given); /* not named: as it is */
}

/* More of no interest than one look takes in, then one that is. */
static void test_feed_filter_passes_over_what_is_of_no_interest(void **state)
{
    struct world *w = *state;
    struct rl_err err;
    struct got got;
    struct rl_err why = {.code = RL_ENGINE_ERROR, .reason = "told to fail"};
    struct feed_ask failed = {.name = "f",
                              .has_statuses = true,
                              .statuses = 1u << TASK_FAILED,
                              .max = 9,
                              .lease_ms = LEASE_MS};
    add_tasks(w, &owner, 2200);
    world_ok(ask(w, &owner, &failed, &got, &err), &err);
    assert_false(got.given);
    assert_in_range(member_of(w, &owner, "f", "cursor"), 4096, 4400); /* passed over, for good */
    world_ok(seek(w, "f", FEED_EARLIEST, 0, &err), &err);
    struct run *run = world_claim(w);
    world_ok(run_fail(run, &why, &err), &err);
    run_free(run);
    world_ok(ask(w, &owner, &failed, &got, &err), &err);
    assert_int_equal(got.count, 1);
    assert_int_equal(got.first, 4402); /* after PROCESSING */
    assert_int_equal(ack(w, &owner, "f", got.lease, 0), 4402);
}

/* 12,000 rows of no interest and 50 behind them: "lag": 0 was said, and a read gave 50. */
static void test_feed_lag_is_not_made_up(void **state)
{
    struct world *w = *state;
    struct rl_err err;
    struct got got;
    char path[128];
    sqlite3 *db = NULL;
    struct feed_ask failed = {.name = "f",
                              .has_statuses = true,
                              .statuses = 1u << TASK_FAILED,
                              .max = 90,
                              .lease_ms = LEASE_MS};
    world_ok(ask(w, &owner, &failed, &got, &err), &err);
    assert_int_equal(member_of(w, &owner, "f", "lag"), 0);
    (void)snprintf(path, sizeof path, "%s/reeld.db", w->dir);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(
        sqlite3_exec(db,
                     "WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 12050)"
                     " INSERT INTO task_event(task_id, user_id, timestamp, to_status, attempt)"
                     " SELECT 1, 'owner', 1, iif(i <= 12000, 'QUEUED', 'FAILED'), 0 FROM n",
                     NULL, NULL, NULL),
        SQLITE_OK);
    sqlite3_close(db);
    assert_int_equal(member_of(w, &owner, "f", "lag"), -1); /* null */
    assert_int_equal(member_of(w, &owner, "f", "lag_at_least"), 0);
    world_ok(ask(w, &owner, &failed, &got, &err), &err);
    assert_int_equal(got.count, 50);
    assert_int_equal(member_of(w, &owner, "f", "lag"), 50); /* less is to be looked at by now */
    assert_int_equal(member_of(w, &owner, "f", "lag_at_least"), 50);
}

static void test_feed_create_and_count(void **state)
{
    struct world *w = *state;
    struct rl_err err;
    struct got got;
    bool made;
    const struct feed_from latest = {.start = FEED_LATEST};
    AUTO_BUF struct rl_buf out = {0};
    rl_buf_init(&out, 65536);
    add_tasks(w, &owner, 1);
    world_ok(feed_create(w->tasks, &owner, "a", &latest, 0, &out, &made, &err), &err);
    assert_true(made);
    world_ok(feed_create(w->tasks, &owner, "a", &latest, 0, &out, &made, &err), &err);
    assert_false(made);
    assert_int_equal(feed_create(w->tasks, &owner, "a", &latest, 2, &out, &made, &err),
                     RL_CONFLICT);
    assert_false(read_feed(w, &owner, "a", 9, LEASE_MS).given);
    assert_true(read_feed(w, &owner, "b", 9, LEASE_MS).given);
    assert_true(read_feed(w, &owner, "c", 9, LEASE_MS).given);
    struct feed_ask fourth = {.name = "d", .max = 9, .lease_ms = LEASE_MS};
    assert_int_equal(ask(w, &owner, &fourth, &got, &err), RL_CONFLICT);
    world_ok(feed_delete(w->tasks, &owner, "c", &err), &err);
    assert_int_equal(feed_delete(w->tasks, &owner, "c", &err), RL_NOT_FOUND);
    world_ok(ask(w, &owner, &fourth, &got, &err), &err);
    world_ok(feed_delete(w->tasks, &owner, "d", &err), &err);
    assert_int_equal(ask(w, &owner, &fourth, &got, &err), RL_NOT_FOUND); /* not made again */
}

static void test_feed_name_check(void **state)
{
    (void)state;
    struct rl_err err;
    static const char *const good[] = {"a", "0", "A.b_c-9"};
    static const char *const bad[] = {"", ".", "..", "-a", "a b", "a/b", "\xc3\xbc", "a\n", "%41"};
    char longest[FEED_NAME_BYTES + 2] = "";
    for (size_t i = 0; i < RL_ARRAY_LEN(good); i++)
        world_ok(feed_name_check(good[i], &err), &err);
    for (size_t i = 0; i < RL_ARRAY_LEN(bad); i++) {
        assert_int_equal(feed_name_check(bad[i], &err), RL_INVALID_FIELD);
        assert_string_equal(err.field, "name");
    }
    memset(longest, 'x', FEED_NAME_BYTES);
    world_ok(feed_name_check(longest, &err), &err);
    longest[FEED_NAME_BYTES] = 'x';
    assert_int_equal(feed_name_check(longest, &err), RL_INVALID_FIELD);
}

/* ---- durability, threads ---- */

static void test_feed_survives_a_restart(void **state)
{
    struct world *w = *state;
    add_tasks(w, &owner, 3);
    struct got a = read_feed(w, &owner, "f", 2, LEASE_MS),
               b = read_feed(w, &owner, "f", 2, LEASE_MS);
    assert_int_equal(ack(w, &owner, "f", a.lease, 0), 2);
    world_close(w);
    world_open(w);
    struct got c = read_feed(w, &owner, "f", 2, LEASE_MS);
    assert_int_equal(c.from, b.to + 1);
    assert_int_equal(ack(w, &owner, "f", a.lease, 0), 2);
    assert_int_equal(ack(w, &owner, "f", b.lease, 0), 4);
    assert_int_equal(ack(w, &owner, "f", c.lease, 0), 6);
}

#define RACERS 4
#define TASKS  150

struct racer {
    struct world *w;
    unsigned *seen; /* by seq; every racer writes its own ranges only */
    int failures;
};

static void *race(void *arg)
{
    struct racer *me = arg;
    while (me->failures == 0) {
        struct rl_err err;
        AUTO_BUF struct rl_buf out = {0}, done = {0};
        bool given = false;
        int64_t wait_ms = 0, from = 0, to = 0;
        char lease[64] = "";
        struct feed_ask a = {.name = "f", .max = 7, .lease_ms = LEASE_MS};
        rl_buf_init(&out, 1 << 20);
        rl_buf_init(&done, 4096);
        if (feed_next(me->w->tasks, &owner, &a, &out, &given, &wait_ms, &err) != RL_OK)
            me->failures++;
        else if (!given)
            break;
        else if (sscanf(out.data,
                        "{\"lease\":\"%63[0-9.]\",\"feed\":\"f\",\"from\":%" SCNd64
                        ",\"to\":%" SCNd64,
                        lease, &from, &to) != 3)
            me->failures++;
        for (int64_t seq = from; given && seq <= to; seq++)
            me->seen[seq]++;
        if (given && me->failures == 0 &&
            feed_ack(me->w->tasks, &owner, "f", lease, 0, &done, &err) != RL_OK)
            me->failures++;
    }
    return NULL;
}

static void test_feed_readers_race(void **state)
{
    struct world *w = *state;
    pthread_t threads[RACERS];
    static unsigned seen[2 * TASKS + 1];
    struct racer racers[RACERS];
    world_set(w, "feed.leases", "256");
    add_tasks(w, &owner, TASKS);
    memset(seen, 0, sizeof seen);
    for (int i = 0; i < RACERS; i++) {
        racers[i] = (struct racer){w, seen, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, race, &racers[i]), 0);
    }
    for (int i = 0; i < RACERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(racers[i].failures, 0);
    }
    for (int seq = 1; seq <= 2 * TASKS; seq++)
        assert_int_equal(seen[seq], 1);
    assert_int_equal(member_of(w, &owner, "f", "cursor"), 2 * TASKS);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_feed_next_shares_and_ack_moves_the_prefix),
        TEST(test_feed_next_gives_an_expired_range_again),
        TEST(test_feed_ack_part),
        TEST(test_feed_extend_gives_back),
        TEST(test_feed_leases_are_bounded),
        TEST(test_feed_seek_cancels_leases),
        TEST(test_feed_seek_by_time),
        TEST(test_feed_tells_its_user_only),
        TEST(test_feed_filter_belongs_to_the_feed),
        TEST(test_feed_filter_passes_over_what_is_of_no_interest),
        TEST(test_feed_lag_is_not_made_up),
        TEST(test_feed_create_and_count),
        cmocka_unit_test(test_feed_name_check),
        TEST(test_feed_survives_a_restart),
        TEST(test_feed_readers_race),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
