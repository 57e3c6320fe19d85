/* What a claim costs at 1,000, 100,000 and 1,000,000 waiting tasks, and with a million behind a
 * paused queue: the whole claim (a durable transaction) and the query for the head alone. The sizes
 * take turns, so that a busy moment of the machine meets all of them. */
#include "bench.h"

#include "store_sql_text.h"

#define ROUNDS  20
#define CLAIMS  5   /* per round */
#define QUERIES 200 /* per round */

enum { SIZES = 4 };

struct size {
    const char *name;
    int64_t n;
    bool paused;
    struct bench b;
    sqlite3 *db;
    sqlite3_stmt *head;
    double claim[ROUNDS], query[ROUNDS];
};

static const struct engine_device device = {.id = "cpu0", .name = "bench", .backend = "cpu"};

static void prepare(struct size *s, const char *under)
{
    bench_new(&s->b, under);
    bench_open(&s->b);
    if (s->paused)
        task_free(bench_submit(&s->b, "{\"prompt\":\"x\",\"queue_name\":\"bulk\"}", "x"));
    else
        task_free(bench_submit(&s->b, "{\"prompt\":\"x\"}", "x"));
    bench_close(&s->b);
    bench_fill(&s->b, s->n, "status = 'QUEUED'", 2);
    if (s->paused) {
        sqlite3 *db = bench_db(&s->b);
        bench_exec(db, "UPDATE queue SET state = 'PAUSED' WHERE queue_name = 'bulk'");
        sqlite3_close(db);
    }
    bench_open(&s->b);
    if (s->paused)
        for (int i = 0; i < 8; i++) {
            char key[16];
            (void)snprintf(key, sizeof key, "y%d", i);
            task_free(bench_submit(&s->b, "{\"prompt\":\"y\"}", key));
        }
    s->db = bench_db(&s->b);
    if (sqlite3_prepare_v2(s->db, store_statements[SQL_CLAIM_HEAD].text, -1, &s->head, NULL) !=
        SQLITE_OK)
        bench_die("claim_head", sqlite3_errmsg(s->db));
}

/* Median of a few claims, each handed back. */
static double claim_us(struct size *s)
{
    double us[CLAIMS];
    struct rl_err err, why = {.code = RL_CANCELED};
    for (int i = 0; i < CLAIMS; i++) {
        struct run *run = NULL;
        int64_t begun = rl_mono_us();
        bench_ok(run_claim(s->b.tasks, &device, &run, &err), &err);
        us[i] = (double)(rl_mono_us() - begun);
        if (!run)
            bench_die(s->name, "nothing to claim");
        bench_ok(run_fail(run, &why, &err), &err);
        run_free(run);
    }
    return bench_median(us, CLAIMS);
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

int main(int argc, char **argv)
{
    static struct size sizes[SIZES] = {{.name = "1,000 waiting", .n = 1000},
                                       {.name = "100,000 waiting", .n = 100000},
                                       {.name = "1,000,000 waiting", .n = 1000000},
                                       {.name = "1,000,000 paused", .n = 1000000, .paused = true}};
    char name[80];
    if (argc < 2)
        bench_die("usage", "bench_claim FOLDER");
    for (int i = 0; i < SIZES; i++)
        prepare(&sizes[i], argv[1]);
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < SIZES; i++) {
            sizes[i].claim[round] = claim_us(&sizes[i]);
            sizes[i].query[round] = query_us(&sizes[i]);
        }
    double claim = bench_median(sizes[0].claim, ROUNDS),
           query = bench_median(sizes[0].query, ROUNDS);
    for (int i = 1; i < SIZES; i++) {
        double c = bench_median(sizes[i].claim, ROUNDS), q = bench_median(sizes[i].query, ROUNDS);
        (void)snprintf(name, sizeof name, "claim, %s against 1,000", sizes[i].name);
        bench_line(name, "<= 2 x", c <= 2 * claim, "%.2f x (%.2f ms against %.2f ms)", c / claim,
                   c / 1000, claim / 1000);
        (void)snprintf(name, sizeof name, "query for the head, %s against 1,000", sizes[i].name);
        bench_line(name, "<= 2 x", q <= 2 * query, "%.2f x (%.1f us against %.1f us)", q / query, q,
                   query);
    }
    for (int i = 0; i < SIZES; i++) {
        sqlite3_finalize(sizes[i].head);
        sqlite3_close(sizes[i].db);
        bench_end(&sizes[i].b);
    }
    return 0;
}
