/* What a claim costs at 1,000, 100,000 and 1,000,000 waiting tasks, and with the million behind a
 * paused queue: the whole claim (a durable transaction), the query for the head alone, and claim
 * and finish of a task against a plain loop over as many rows. The sizes and the two sides take
 * turns, so that a busy moment of the machine meets all of them; ratios are medians over the pairs.
 */
#include "bench.h"
#include "bench_plain.h"

#include "store_sql_text.h"

#define ROUNDS  20
#define CLAIMS  3   /* per round */
#define QUERIES 200 /* per round */
#define READY   150 /* tasks that are not behind the pause: more than are claimed */

enum { SIZES = 3, CASES = 4 };

struct size {
    int64_t n;
    struct bench b;
    struct plain plain;
    sqlite3 *db;
    sqlite3_stmt *head;
};

/* One of the sizes, perhaps with its bulk paused. */
struct bench_case {
    const char *name;
    int size;
    bool paused;
    double claim[ROUNDS], query[ROUNDS], work[ROUNDS], plain[ROUNDS], ratio[ROUNDS];
};

static const struct engine_device device = {.id = "cpu0", .name = "bench", .backend = "cpu"};
static const struct run_result clip = {.file = "1-1.mp4",
                                       .bytes = 10,
                                       .sha256 = "00ff",
                                       .width = 320,
                                       .height = 240,
                                       .frames = 33,
                                       .fps = 16};

static void prepare(struct size *s, const char *under)
{
    char path[600];
    bench_new(&s->b, under);
    bench_open(&s->b);
    task_free(bench_submit(&s->b, "{\"prompt\":\"x\",\"queue_name\":\"bulk\"}", "x"));
    bench_close(&s->b);
    bench_fill(&s->b, s->n, "status = 'QUEUED'", 2);
    bench_open(&s->b);
    for (int i = 0; i < READY; i++) { /* later than the bulk: first only while that is paused */
        char key[16];
        (void)snprintf(key, sizeof key, "y%d", i);
        task_free(bench_submit(&s->b, "{\"prompt\":\"y\"}", key));
    }
    s->db = bench_db(&s->b);
    if (sqlite3_prepare_v2(s->db, store_statements[SQL_CLAIM_HEAD].text, -1, &s->head, NULL) !=
        SQLITE_OK)
        bench_die("claim_head", sqlite3_errmsg(s->db));
    (void)snprintf(path, sizeof path, "%s/plain.db", s->b.dir);
    plain_open(&s->plain, path);
    plain_fill(&s->plain, s->n);
}

static void pause_bulk(struct size *s, bool paused)
{
    struct rl_err err;
    bench_ok(queue_set(s->b.tasks, "bulk", paused ? QUEUE_PAUSED : QUEUE_RUNNING, &err), &err);
}

static struct run *claim(struct size *s)
{
    struct rl_err err;
    struct run *run = NULL;
    bench_ok(run_claim(s->b.tasks, &device, &run, &err), &err);
    if (!run)
        bench_die("bench_claim", "nothing to claim");
    return run;
}

/* Median of a few claims, each handed back. */
static double claim_us(struct size *s)
{
    double us[CLAIMS];
    struct rl_err err, why = {.code = RL_CANCELED};
    for (int i = 0; i < CLAIMS; i++) {
        int64_t begun = rl_mono_us();
        struct run *run = claim(s);
        us[i] = (double)(rl_mono_us() - begun);
        bench_ok(run_fail(run, &why, &err), &err);
        run_free(run);
    }
    return bench_median(us, CLAIMS);
}

/* Claim and finish of a few tasks on each side in turn; their medians. */
static void work_us(struct size *s, double *ret_work, double *ret_plain)
{
    double work[CLAIMS], plain[CLAIMS];
    struct rl_err err;
    for (int i = 0; i < CLAIMS; i++) {
        int64_t begun = rl_mono_us();
        struct run *run = claim(s);
        bench_ok(run_succeed(run, &clip, &err), &err);
        run_free(run);
        work[i] = (double)(rl_mono_us() - begun);
        begun = rl_mono_us();
        plain_finish(&s->plain, plain_claim(&s->plain));
        plain[i] = (double)(rl_mono_us() - begun);
    }
    *ret_work = bench_median(work, CLAIMS);
    *ret_plain = bench_median(plain, CLAIMS);
}

static double query_us(struct size *s)
{
    int64_t begun = rl_mono_us();
    for (int i = 0; i < QUERIES; i++) {
        while (sqlite3_step(s->head) == SQLITE_ROW)
            ;
        sqlite3_reset(s->head);
    }
    return (double)(rl_mono_us() - begun) / QUERIES;
}

static void measure(struct bench_case *c, struct size *s, int round)
{
    pause_bulk(s, c->paused);
    c->claim[round] = claim_us(s);
    c->query[round] = query_us(s);
    work_us(s, &c->work[round], &c->plain[round]);
    c->ratio[round] = c->work[round] / c->plain[round];
}

/* A claim writes the state, its history and the lease, a finish the result, its history and the
 * speed: about three times the pages, in as many fsyncs. */
static void report_work(struct bench_case *c)
{
    char name[80];
    double ratio = bench_median(c->ratio, ROUNDS);
    (void)snprintf(name, sizeof name, "claim and finish, %s, against a plain loop", c->name);
    bench_line(name, "<= 2 x", ratio <= 2, "%.2f x (%.2f ms against %.2f ms)", ratio,
               bench_median(c->work, ROUNDS) / 1000, bench_median(c->plain, ROUNDS) / 1000);
}

static void report_growth(struct bench_case *c, const struct bench_case *least)
{
    char name[80];
    double ratios[ROUNDS];
    for (int i = 0; i < ROUNDS; i++)
        ratios[i] = c->claim[i] / least->claim[i];
    double claim = bench_median(ratios, ROUNDS);
    (void)snprintf(name, sizeof name, "claim, %s against 1,000", c->name);
    bench_line(name, "<= 2 x", claim <= 2, "%.2f x", claim);
    for (int i = 0; i < ROUNDS; i++)
        ratios[i] = c->query[i] / least->query[i];
    double query = bench_median(ratios, ROUNDS);
    (void)snprintf(name, sizeof name, "query for the head, %s against 1,000", c->name);
    bench_line(name, "<= 2 x", query <= 2, "%.2f x", query);
}

int main(int argc, char **argv)
{
    static struct size sizes[SIZES] = {{.n = 1000}, {.n = 100000}, {.n = 1000000}};
    static struct bench_case cases[CASES] = {
        {.name = "1,000 waiting", .size = 0},
        {.name = "100,000 waiting", .size = 1},
        {.name = "1,000,000 waiting", .size = 2},
        {.name = "1,000,000 paused", .size = 2, .paused = true}};
    if (argc < 2)
        bench_die("usage", "bench_claim FOLDER [quick]");
    bool quick = argc > 2 && strcmp(argv[2], "quick") == 0;
    int size_count = quick ? SIZES - 1 : SIZES, case_count = quick ? CASES - 2 : CASES;
    for (int i = 0; i < size_count; i++)
        prepare(&sizes[i], argv[1]);
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < case_count; i++)
            measure(&cases[i], &sizes[cases[i].size], round);
    for (int i = 0; i < case_count; i++)
        report_work(&cases[i]);
    for (int i = 1; i < case_count; i++)
        report_growth(&cases[i], &cases[0]);
    for (int i = 0; i < size_count; i++) {
        sqlite3_finalize(sizes[i].head);
        sqlite3_close(sizes[i].db);
        plain_close(&sizes[i].plain);
        bench_end(&sizes[i].b);
    }
    return 0;
}
