/* Durable submits. Of 64 clients: reeld's writer, which commits what has arrived since the last
 * sync as one group, against the same rows written by each client itself, one commit per request,
 * with a connection and a busy time-out of its own, and against a plain loop over a plain table. Of
 * one client: against that loop, too. Same disk, same synchronous=FULL, the sides taking turns;
 * medians over the rounds. */
#include "bench.h"
#include "bench_plain.h"

#include "store_sql_text.h"

#include <pthread.h>
#include <stdatomic.h>

#define CLIENTS 64
#define ROUNDS  5
#define ROOM    200000 /* latencies kept per side and pair */

static const char body[] =
    "{\"prompt\":\"a red circle moving left over a green field\",\"width\":320,\"height\":240}";

struct side {
    struct bench *b;
    double *us; /* latencies, [ROOM] */
    atomic_size_t n;
    atomic_llong number;
    int64_t until_us;
};

static void took(struct side *side, int64_t begun_us)
{
    size_t at = atomic_fetch_add(&side->n, 1);
    if (at < ROOM)
        side->us[at] = (double)(rl_mono_us() - begun_us);
}

/* ---- reeld ---- */

static void *group_client(void *arg)
{
    struct side *side = arg;
    char key[48];
    while (rl_mono_us() < side->until_us) {
        (void)snprintf(key, sizeof key, "g%lld", (long long)atomic_fetch_add(&side->number, 1));
        int64_t begun = rl_mono_us();
        task_free(bench_submit(side->b, body, key));
        took(side, begun);
    }
    return NULL;
}

/* ---- one commit per request ---- */

/* The rows of a submit, in order; of its checks only that of the key. */
static const enum store_sql steps[] = {SQL_TASK_BY_KEY, SQL_QUEUE_ENSURE, SQL_EVENT_INSERT,
                                       SQL_TASK_INSERT, SQL_EVENT_INSERT, SQL_TASK_MOVE};
#define SECOND_EVENT 4

struct client {
    struct side *side;
    sqlite3 *db;
    sqlite3_stmt *row, *begin, *commit;
    sqlite3_stmt *steps[RL_ARRAY_LEN(steps)];
};

static sqlite3_stmt *prepare(sqlite3 *db, const char *sql)
{
    sqlite3_stmt *stmt = NULL;
    if (sqlite3_prepare_v3(db, sql, -1, SQLITE_PREPARE_PERSISTENT, &stmt, NULL) != SQLITE_OK)
        bench_die(sql, sqlite3_errmsg(db));
    return stmt;
}

/* Bind every parameter to the column of the same name of a submitted row. */
static void bind_row(sqlite3_stmt *stmt, sqlite3_stmt *row)
{
    for (int i = 1; i <= sqlite3_bind_parameter_count(stmt); i++) {
        const char *name = sqlite3_bind_parameter_name(stmt, i) + 1;
        for (int c = 0; c < sqlite3_column_count(row); c++)
            if (strcmp(sqlite3_column_name(row, c), name) == 0)
                (void)sqlite3_bind_value(stmt, i, sqlite3_column_value(row, c));
    }
}

static void bind_int(sqlite3_stmt *stmt, const char *name, int64_t value)
{
    int i = sqlite3_bind_parameter_index(stmt, name);
    if (i)
        (void)sqlite3_bind_int64(stmt, i, value);
}

static void bind_text(sqlite3_stmt *stmt, const char *name, const char *value)
{
    int i = sqlite3_bind_parameter_index(stmt, name);
    if (i)
        (void)sqlite3_bind_text(stmt, i, value, -1, SQLITE_TRANSIENT);
}

static void run(struct client *c, sqlite3_stmt *stmt)
{
    int rc;
    while ((rc = sqlite3_step(stmt)) == SQLITE_ROW)
        ;
    if (rc != SQLITE_DONE)
        bench_die(sqlite3_sql(stmt), sqlite3_errmsg(c->db));
    sqlite3_reset(stmt);
}

static void client_open(struct client *c, struct side *side)
{
    *c = (struct client){.side = side, .db = bench_db(side->b)};
    sqlite3_busy_timeout(c->db, 10000);
    bench_exec(c->db, "PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=8192; PRAGMA "
                      "temp_store=MEMORY;");
    c->row = prepare(c->db, "SELECT * FROM task_row ORDER BY task_id LIMIT 1");
    if (sqlite3_step(c->row) != SQLITE_ROW)
        bench_die("baseline", "no row to copy");
    c->begin = prepare(c->db, "BEGIN IMMEDIATE");
    c->commit = prepare(c->db, "COMMIT");
    for (size_t i = 0; i < RL_ARRAY_LEN(steps); i++) {
        c->steps[i] = prepare(c->db, store_statements[steps[i]].text);
        bind_row(c->steps[i], c->row);
    }
    sqlite3_reset(c->row);
}

static void client_close(struct client *c)
{
    for (size_t i = 0; i < RL_ARRAY_LEN(steps); i++)
        sqlite3_finalize(c->steps[i]);
    sqlite3_finalize(c->row);
    sqlite3_finalize(c->begin);
    sqlite3_finalize(c->commit);
    sqlite3_close(c->db);
}

static void submit_alone(struct client *c, int64_t number)
{
    char key[48];
    int64_t now = rl_wall_ms(), id = (now << 22) | (number & 0x3fffff);
    (void)snprintf(key, sizeof key, "b%lld", (long long)number);
    run(c, c->begin);
    for (size_t i = 0; i < RL_ARRAY_LEN(steps); i++) {
        sqlite3_stmt *stmt = c->steps[i];
        bool move = steps[i] == SQL_TASK_MOVE, second = i == SECOND_EVENT;
        bind_int(stmt, ":task_id", id);
        bind_text(stmt, ":idempotency_key", key);
        bind_int(stmt, ":timestamp", now);
        bind_int(stmt, ":created_at", now);
        if (second || move)
            bind_text(stmt, ":from_status", "CREATED");
        bind_text(stmt, ":to_status", second || move ? "QUEUED" : "CREATED");
        bind_text(stmt, ":status", move ? "QUEUED" : "CREATED");
        if (steps[i] == SQL_TASK_INSERT || move)
            bind_int(stmt, ":version", sqlite3_last_insert_rowid(c->db));
        run(c, stmt);
    }
    run(c, c->commit);
}

static void *alone_client(void *arg)
{
    struct client *c = arg;
    while (rl_mono_us() < c->side->until_us) {
        int64_t number = atomic_fetch_add(&c->side->number, 1);
        int64_t begun = rl_mono_us();
        submit_alone(c, number);
        took(c->side, begun);
    }
    return NULL;
}

/* ---- the rounds ---- */

enum way { GROUP, ALONE, ONE, PLAIN, WAYS };

/* A plain loop in a database of its own: rate per second. */
static double measure_plain(const char *under, int64_t run_ms)
{
    struct bench b;
    struct plain plain;
    char path[600], key[48];
    int64_t n = 0;
    bench_new(&b, under);
    (void)snprintf(path, sizeof path, "%s/plain.db", b.dir);
    plain_open(&plain, path);
    int64_t begun = rl_mono_us();
    while (rl_mono_us() - begun < run_ms * 1000) {
        (void)snprintf(key, sizeof key, "p%lld", (long long)n++);
        (void)plain_submit(&plain, key, "a red circle moving left over a green field");
    }
    double seconds = (double)(rl_mono_us() - begun) / 1e6;
    plain_close(&plain);
    bench_end(&b);
    return (double)n / seconds;
}

/* One of the other ways in a database of its own: rate per second and p99 in ms. */
static void measure(const char *under, enum way way, int64_t run_ms, double *us, double *ret_rate,
                    double *ret_p99)
{
    bool group = way != ALONE;
    int count = way == ONE ? 1 : CLIENTS;
    struct bench b;
    static struct client clients[CLIENTS];
    pthread_t threads[CLIENTS];
    struct side side = {.b = &b, .us = us};
    bench_new(&b, under);
    bench_open(&b);
    task_free(bench_submit(&b, body, "first"));
    if (!group) {
        bench_close(&b);
        for (int i = 0; i < count; i++)
            client_open(&clients[i], &side);
    }
    int64_t begun = rl_mono_us();
    side.until_us = begun + run_ms * 1000;
    for (int i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, group ? group_client : alone_client,
                           group ? (void *)&side : (void *)&clients[i]) != 0)
            bench_die("bench", "no thread");
    for (int i = 0; i < count; i++)
        (void)pthread_join(threads[i], NULL); /* ours, and joined once */
    double seconds = (double)(rl_mono_us() - begun) / 1e6;
    size_t n = atomic_load(&side.n);
    for (int i = 0; i < count && !group; i++)
        client_close(&clients[i]);
    *ret_rate = (double)n / seconds;
    *ret_p99 = bench_quantile(us, n < ROOM ? n : ROOM, 0.99) / 1000;
    bench_end(&b);
}

static double ratio_of(double rate[WAYS][ROUNDS], enum way one, enum way other)
{
    double ratios[ROUNDS];
    for (int i = 0; i < ROUNDS; i++)
        ratios[i] = rate[one][i] / rate[other][i];
    return bench_median(ratios, ROUNDS);
}

int main(int argc, char **argv)
{
    if (argc < 2)
        bench_die("usage", "bench_submit FOLDER [MS]");
    int64_t run_ms = argc > 2 ? strtoll(argv[2], NULL, 10) : 1000;
    double *us = calloc(ROOM, sizeof *us);
    double rate[WAYS][ROUNDS], p99[WAYS][ROUNDS];
    if (!us)
        bench_die("bench", "out of memory");
    for (int i = 0; i < ROUNDS; i++)
        for (int side = 0; side < WAYS; side++) { /* each goes first in turn */
            enum way way = (enum way)((side + i) % WAYS);
            if (way == PLAIN)
                rate[way][i] = measure_plain(argv[1], run_ms);
            else
                measure(argv[1], way, run_ms, us, &rate[way][i], &p99[way][i]);
        }
    free(us);
    double alone = ratio_of(rate, GROUP, ALONE), late = ratio_of(p99, ALONE, GROUP);
    double crowd = ratio_of(rate, GROUP, PLAIN), one = ratio_of(rate, PLAIN, ONE);
    double median[WAYS];
    for (int way = 0; way < WAYS; way++)
        median[way] = bench_median(rate[way], ROUNDS); /* sorts: the pairs are done with */
    bench_line("durable submits of 64 clients, rate", ">= 2 x", alone >= 2,
               "%.1f x (%.0f/s against %.0f/s)", alone, median[GROUP], median[ALONE]);
    bench_line("durable submits of 64 clients, p99", "<= 1/20", late >= 20,
               "1/%.0f (%.1f ms against %.0f ms)", late, bench_median(p99[GROUP], ROUNDS),
               bench_median(p99[ALONE], ROUNDS));
    /* A group of up to 64 shares one fsync; what is left is the work of the rows. */
    bench_line("durable submits of 64 clients against a plain loop", ">= 3 x", crowd >= 3,
               "%.1f x (%.0f/s against %.0f/s)", crowd, median[GROUP], median[PLAIN]);
    /* One fsync each; six statements, a validation and two hand-overs between threads more. */
    bench_line("one durable submit after another against a plain loop", "<= 2 x", one <= 2,
               "%.2f x (%.2f ms against %.2f ms)", one, 1000 / median[ONE], 1000 / median[PLAIN]);
    return 0;
}
