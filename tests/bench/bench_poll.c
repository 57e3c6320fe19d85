/* Polls, as the route GET /api/v1/tasks/{id} makes them but for the socket: task_get, task_json and
 * the hash for the ETag, in this process. A finished and a running task against a plain loop that
 * reads its row and writes it as JSON with the same hash, the three taking turns; medians of the
 * paired ratios. Then the share of reads that memory saves under a polling load: clients that look
 * at tasks of which nine in ten are finished, while finished ones are replayed and fail again. */
#include "bench.h"
#include "bench_plain.h"

#include "base/buf.h"
#include "task/internal.h"

#include <pthread.h>
#include <stdatomic.h>

#define ROUNDS   15
#define POLLS    2000 /* per side and round */
#define FINISHED 1800 /* tasks of the polling load */
#define WAITING  200
#define CLIENTS  8
#define LOAD     25000 /* polls of each client */
#define REPLAYS  400   /* meanwhile, each of another finished task */

static const struct engine_device device = {.id = "cpu0", .name = "bench", .backend = "cpu"};
static const struct run_result clip = {.file = "1-1.mp4",
                                       .bytes = 10,
                                       .sha256 = "00ff",
                                       .width = 320,
                                       .height = 240,
                                       .frames = 33,
                                       .fps = 16};

static int64_t submit_new(struct bench *b)
{
    static const char body[] = "{\"prompt\":\"a red circle moving left over a green field\","
                               "\"width\":320,\"height\":240,\"idempotency\":\"off\"}";
    struct task *task = bench_submit(b, body, NULL);
    int64_t id = task->task_id;
    task_free(task);
    return id;
}

static struct run *claim(struct bench *b)
{
    struct rl_err err;
    struct run *run = NULL;
    bench_ok(run_claim(b->tasks, &device, &run, &err), &err);
    if (!run)
        bench_die("claim", "nothing waits");
    return run;
}

/* ---- one poll ---- */

static void poll_task(struct bench *b, int64_t id, struct rl_buf *out)
{
    struct rl_err err;
    struct rl_jw w;
    struct task *task = NULL;
    uint8_t hash[RL_HASH_BYTES];
    rl_buf_clear(out);
    bench_ok(task_get(b->tasks, &bench_caller, id, &task, &err), &err);
    rl_jw_init(&w, out, false);
    task_json(b->tasks, task, &w, NULL);
    task_free(task);
    rl_hash(out->data, out->len, hash);
}

static double poll_us(struct bench *b, int64_t id, struct rl_buf *out)
{
    int64_t begun = rl_mono_us();
    for (int i = 0; i < POLLS; i++)
        poll_task(b, id, out);
    return (double)(rl_mono_us() - begun) / POLLS;
}

static double plain_us(struct plain *p, int64_t id, struct rl_buf *out)
{
    uint8_t hash[RL_HASH_BYTES];
    int64_t begun = rl_mono_us();
    for (int i = 0; i < POLLS; i++) {
        rl_buf_clear(out);
        plain_get(p, id, out);
        rl_hash(out->data, out->len, hash);
    }
    return (double)(rl_mono_us() - begun) / POLLS;
}

static void bench_one(struct bench *b, const char *under)
{
    struct rl_err err;
    struct plain plain;
    char path[600];
    double ended[ROUNDS], going[ROUNDS], us[3][ROUNDS];
    AUTO_BUF struct rl_buf out = {0};
    rl_buf_init(&out, 1 << 20);
    int64_t finished = submit_new(b);
    struct run *run = claim(b);
    bench_ok(run_succeed(run, &clip, &err), &err);
    run_free(run);
    int64_t running = submit_new(b);
    run = claim(b);
    run_beat(run, ENGINE_DENOISE, 3, 20);
    (void)snprintf(path, sizeof path, "%s/plain-poll.db", under);
    plain_open(&plain, path);
    plain_fill(&plain, 1000);
    int64_t row = plain_claim(&plain);
    plain_finish(&plain, row);
    for (int i = 0; i < ROUNDS; i++) {
        us[0][i] = plain_us(&plain, row, &out);
        us[1][i] = poll_us(b, finished, &out);
        us[2][i] = poll_us(b, running, &out);
        ended[i] = us[1][i] / us[0][i];
        going[i] = us[2][i] / us[0][i];
    }
    run_free(run);
    plain_close(&plain);
    double plain_median = bench_median(us[0], ROUNDS), ratio = bench_median(ended, ROUNDS);
    /* No more than the row itself, though the answer has half as many members again. */
    bench_line("poll of a finished task against a plain loop", "<= 1 x", ratio <= 1,
               "%.2f x (%.1f us against %.1f us)", ratio, bench_median(us[1], ROUNDS),
               plain_median);
    /* A pooled reader with a transaction, twice the columns, the live step and the estimate. */
    ratio = bench_median(going, ROUNDS);
    bench_line("poll of a running task against a plain loop", "<= 3 x", ratio <= 3,
               "%.2f x (%.1f us against %.1f us)", ratio, bench_median(us[2], ROUNDS),
               plain_median);
}

/* ---- the polling load ---- */

struct load {
    struct bench *b;
    const int64_t *ids; /* the first FINISHED are finished */
    unsigned seed;
    int64_t finished; /* polls of those */
};

static void *poll_many(void *arg)
{
    struct load *load = arg;
    AUTO_BUF struct rl_buf out = {0};
    rl_buf_init(&out, 1 << 20);
    for (int i = 0; i < LOAD; i++) {
        int at = rand_r(&load->seed) % (FINISHED + WAITING);
        poll_task(load->b, load->ids[at], &out);
        load->finished += at < FINISHED;
    }
    return NULL;
}

/* From the dead letter to the queue, through a run, and back. */
static void replay(struct bench *b, int64_t id)
{
    struct rl_err err, why = {.code = RL_ENGINE_ERROR, .reason = "as before"};
    struct task *task = NULL;
    bench_ok(dead_replay(b->tasks, &bench_caller, id, &task, &err), &err);
    task_free(task);
    struct run *run = claim(b);
    bench_ok(run_fail(run, &why, &err), &err);
    run_free(run);
}

/* Rows in bulk: FAILED ones to be replayed first, then SUCCEEDED ones, then such as wait for 2099.
 */
static void fill(struct bench *b, int64_t *ids)
{
    sqlite3_stmt *stmt = NULL;
    int n = 0;
    (void)submit_new(b);
    bench_close(b);
    bench_fill(b, REPLAYS, "status = 'FAILED', finished_at = updated_at, error_code = 'X'", 2);
    bench_fill(b, FINISHED - REPLAYS,
               "status = 'SUCCEEDED', error_code = NULL, video_file = 'x.mp4', video_fps = 16", 2);
    bench_fill(b, WAITING,
               "status = 'QUEUED', finished_at = 0, video_file = NULL, not_before = 4070908800000",
               2);
    sqlite3 *db = bench_db(b);
    bench_exec(db, "DELETE FROM task WHERE status = 'QUEUED' AND not_before = 0");
    (void)sqlite3_prepare_v2(
        db, "SELECT task_id FROM task ORDER BY status = 'QUEUED', status = 'SUCCEEDED', task_id",
        -1, &stmt, NULL);
    while (n < FINISHED + WAITING && sqlite3_step(stmt) == SQLITE_ROW)
        ids[n++] = sqlite3_column_int64(stmt, 0);
    sqlite3_finalize(stmt);
    sqlite3_close(db);
    if (n != FINISHED + WAITING)
        bench_die("bench", "rows are missing");
    bench_open(b);
}

/* Returns the bytes that one task takes in memory. */
static int64_t bench_load(struct bench *b, const int64_t *ids)
{
    pthread_t threads[CLIENTS];
    struct load loads[CLIENTS];
    struct cache_stats before, after;
    cache_stats(b->tasks->cache, &before);
    for (unsigned i = 0; i < CLIENTS; i++) {
        loads[i] = (struct load){.b = b, .ids = ids, .seed = i};
        if (pthread_create(&threads[i], NULL, poll_many, &loads[i]) != 0)
            bench_die("bench", "no thread");
    }
    for (int i = 0; i < REPLAYS; i++)
        replay(b, ids[i]);
    int64_t finished = 0;
    for (int i = 0; i < CLIENTS; i++) {
        (void)pthread_join(threads[i], NULL); /* ours, and joined once */
        finished += loads[i].finished;
    }
    cache_stats(b->tasks->cache, &after);
    double hits = (double)(after.hits - before.hits), polls = (double)CLIENTS * LOAD;
    double share = hits / polls, of_finished = hits / (double)finished;
    int64_t bytes = after.bytes / after.tasks;
    /* Each finished task asks the database once, and once more after each change. */
    bench_line("reads saved, 90 % of the polls at finished tasks", ">= 87 %", share >= 0.87,
               "%.1f %% of all, %.1f %% of those at finished tasks", share * 100,
               of_finished * 100);
    bench_line("memory of a finished task", "<= 2 KiB", bytes <= 2048, "%lld bytes",
               (long long)bytes);
    return bytes;
}

/* Four in five polls go to one task in five; the memory holds one in three. */
static void bench_skewed(struct bench *b, const int64_t *ids, int64_t bytes)
{
    enum { POLLS_SKEWED = 100000 };
    unsigned seed = 1;
    struct cache *cache = cache_new(bytes * FINISHED / 3);
    int64_t hits = 0;
    if (!cache)
        bench_die("bench", "out of memory");
    for (int i = 0; i < POLLS_SKEWED; i++) {
        int at = rand_r(&seed) % 5 ? rand_r(&seed) % (FINISHED / 5) : rand_r(&seed) % FINISHED;
        struct task *task = NULL;
        struct rl_err err;
        if (cache_get(cache, ids[at], &task)) {
            hits++;
        } else {
            bench_ok(task_get(b->tasks, &bench_caller, ids[at], &task, &err), &err);
            cache_put(cache, task, cache_generation(cache));
        }
        task_free(task);
    }
    cache_free(cache);
    double share = (double)hits / POLLS_SKEWED;
    bench_line("reads saved with memory for a third of the tasks, 80/20", ">= 80 %", share >= 0.8,
               "%.1f %%", share * 100);
}

int main(int argc, char **argv)
{
    static int64_t ids[FINISHED + WAITING]; /* the first FINISHED are */
    struct bench b;
    if (argc < 2)
        bench_die("usage", "bench_poll FOLDER");
    bench_new(&b, argv[1]);
    bench_open(&b);
    bench_one(&b, argv[1]);
    bench_end(&b);
    bench_new(&b, argv[1]);
    bench_open(&b);
    fill(&b, ids);
    int64_t bytes = bench_load(&b, ids);
    bench_skewed(&b, ids, bytes);
    bench_end(&b);
    return 0;
}
