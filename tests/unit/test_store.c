/* The store: group commit, isolation of failing writes, second instance, disk full, backup. */
#include "world.h"

#include "base/fs.h"

#include <errno.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <sys/mount.h>
#include <time.h>

// link: rl_task PkgConfig::sqlite3 -Wl,--wrap=clock_gettime

int __real_clock_gettime(clockid_t clock, struct timespec *ts);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ts);

static _Atomic int64_t passed_s; /* added to the monotonic clock */

int __wrap_clock_gettime(clockid_t clock, struct timespec *ts)
{
    int rc = __real_clock_gettime(clock, ts);
    ts->tv_sec += clock == CLOCK_MONOTONIC ? passed_s : 0;
    return rc;
}

struct put {
    const char *name, *value;
    enum rl_rc answer; /* what the write returns after its statement */
    int runs;
};

static enum rl_rc put(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct put *p = arg;
    p->runs++;
    struct store_stmt *stmt = store_stmt(conn, SQL_META_SET);
    store_bind_text(stmt, ":name", p->name);
    store_bind_text(stmt, ":value", p->value);
    enum rl_rc rc = store_run(stmt, NULL, err);
    if (rc != RL_OK)
        return rc;
    return p->answer == RL_OK ? RL_OK : rl_fail(err, p->answer, "on purpose");
}

struct get {
    const char *name;
    char value[64];
};

static enum rl_rc get(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct get *g = arg;
    AUTO_STMT struct store_stmt *stmt = store_stmt(conn, SQL_META_GET);
    store_bind_text(stmt, ":name", g->name);
    bool row;
    enum rl_rc rc = store_step(stmt, &row, err);
    if (rc == RL_OK)
        (void)rl_copy_str(g->value, sizeof g->value, row ? store_col_text(stmt, 0) : "");
    return rc;
}

static const char *read_meta(struct world *w, struct get *g, const char *name)
{
    struct rl_err err;
    g->name = name;
    world_ok(store_read(w->store, get, g, &err), &err);
    return g->value;
}

static void test_store_write_is_visible_and_survives(void **state)
{
    struct world *w = *state;
    struct rl_err err;
    struct get g;
    struct put p = {.name = "a", .value = "1"};
    world_ok(store_write(w->store, STORE_NORMAL, put, &p, &err), &err);
    assert_string_equal(read_meta(w, &g, "a"), "1");
    int64_t epoch = store_epoch(w->store);
    world_close(w);
    world_open(w);
    assert_string_equal(read_meta(w, &g, "a"), "1");
    assert_int_equal(store_epoch(w->store), epoch + 1);
    assert_false(store_rebooted(w->store));
}

static void test_store_write_failure_rolls_back_only_itself(void **state)
{
    struct world *w = *state;
    struct rl_err err;
    struct get g;
    struct put bad = {.name = "bad", .value = "1", .answer = RL_CONFLICT};
    assert_int_equal(store_write(w->store, STORE_NORMAL, put, &bad, &err), RL_CONFLICT);
    assert_string_equal(err.reason, "on purpose");
    assert_string_equal(read_meta(w, &g, "bad"), "");
}

static void count_hook(void *ctx, void *arg)
{
    (void)arg;
    (*(int *)ctx)++;
}

struct tries {
    struct put bad, after;
    int hooks, inner_hooks; /* called after COMMIT */
    enum rl_rc tried;
};

static enum rl_rc try_inner(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct tries *t = arg;
    enum rl_rc rc = store_on_commit(conn, count_hook, &t->inner_hooks, NULL, err);
    return rc == RL_OK ? put(conn, &t->bad, err) : rc;
}

static enum rl_rc try_and_go_on(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct tries *t = arg;
    struct put before = {.name = "before", .value = "1"};
    enum rl_rc rc = put(conn, &before, err);
    if (rc == RL_OK)
        rc = store_on_commit(conn, count_hook, &t->hooks, NULL, err);
    if (rc != RL_OK)
        return rc;
    t->tried = store_try(conn, try_inner, t, NULL);
    return put(conn, &t->after, err);
}

/* What failed is undone, hooks too; what came before it and comes after it stays. */
static void test_store_try_undoes_only_what_failed(void **state)
{
    struct world *w = *state;
    struct rl_err err;
    struct get g;
    struct tries t = {.bad = {.name = "bad", .value = "1", .answer = RL_CONFLICT},
                      .after = {.name = "after", .value = "1"}};
    world_ok(store_write(w->store, STORE_NORMAL, try_and_go_on, &t, &err), &err);
    assert_int_equal(t.tried, RL_CONFLICT);
    assert_string_equal(read_meta(w, &g, "bad"), "");
    assert_string_equal(read_meta(w, &g, "before"), "1");
    assert_string_equal(read_meta(w, &g, "after"), "1");
    assert_int_equal(t.hooks, 1);
    assert_int_equal(t.inner_hooks, 0);
}

/* When the transaction is gone, whoever overlooks it writes nothing more: a statement would commit
 * by itself. */
static void test_store_try_in_a_lost_transaction(void **state)
{
    struct world *w = *state;
    struct rl_err err;
    struct get g;
    struct tries t = {.bad = {.name = "lose", .value = "1"},
                      .after = {.name = "after", .value = "1"}};
    char path[128];
    sqlite3 *db = NULL;
    (void)snprintf(path, sizeof path, "%s/reeld.db", w->dir);
    assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
    sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    assert_int_equal(sqlite3_exec(db,
                                  "CREATE TRIGGER lose BEFORE INSERT ON meta WHEN NEW.name = "
                                  "'lose' BEGIN SELECT RAISE(ROLLBACK, 'gone'); END",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    sqlite3_close(db);
    assert_int_not_equal(store_write(w->store, STORE_NORMAL, try_and_go_on, &t, &err), RL_OK);
    assert_string_equal(read_meta(w, &g, "before"), "");
    assert_string_equal(read_meta(w, &g, "after"), "");
    assert_int_equal(t.hooks + t.inner_hooks, 0);
    struct put p = {.name = "next", .value = "1"};
    world_ok(store_write(w->store, STORE_NORMAL, put, &p, &err), &err);
    assert_int_equal(w->fatal, 0);
}

struct crowd {
    struct world *w;
    int from, count;
    atomic_int *failures;
};

static void *crowd_main(void *arg)
{
    struct crowd *c = arg;
    for (int i = 0; i < c->count; i++) {
        char name[32];
        struct rl_err err;
        (void)snprintf(name, sizeof name, "k%d", c->from + i);
        struct put p = {.name = name, .value = "v", .answer = i % 5 == 4 ? RL_CONFLICT : RL_OK};
        if (store_write(c->w->store, STORE_NORMAL, put, &p, &err) != p.answer)
            atomic_fetch_add(c->failures, 1);
    }
    return NULL;
}

/* 16 threads, every fifth write fails on purpose: each has its own verdict, and groups really form.
 */
static void test_store_write_groups_of_many_threads(void **state)
{
    struct world *w = *state;
    pthread_t threads[16];
    struct crowd crowds[16];
    atomic_int failures = 0;
    struct get g;
    for (int i = 0; i < 16; i++) {
        crowds[i] = (struct crowd){w, i * 50, 50, &failures};
        assert_int_equal(pthread_create(&threads[i], NULL, crowd_main, &crowds[i]), 0);
    }
    for (int i = 0; i < 16; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(failures, 0);
    for (int i = 0; i < 800; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "k%d", i);
        assert_string_equal(read_meta(w, &g, name), i % 5 == 4 ? "" : "v");
    }
    struct store_stats stats;
    store_stats(w->store, &stats);
    assert_true(stats.ops >= 800);
    assert_true(stats.commits < stats.ops);
}

static void note(void *ctx, void *arg)
{
    char *log = ctx;
    (void)strncat(log, arg, 8);
}

static enum rl_rc put_and_note(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct put *p = arg;
    char *text = rl_strdup(p->name);
    enum rl_rc rc = store_on_commit(conn, note, (void *)(uintptr_t)p->value, text, err);
    if (rc != RL_OK)
        return rc;
    return p->answer == RL_OK ? RL_OK : rl_fail(err, p->answer, "on purpose");
}

static void test_store_on_commit_runs_only_for_what_is_kept(void **state)
{
    struct world *w = *state;
    struct rl_err err;
    char log[64] = "";
    struct put a = {.name = "a", .value = log},
               b = {.name = "b", .value = log, .answer = RL_CONFLICT},
               c = {.name = "c", .value = log};
    world_ok(store_write(w->store, STORE_NORMAL, put_and_note, &a, &err), &err);
    assert_int_equal(store_write(w->store, STORE_NORMAL, put_and_note, &b, &err), RL_CONFLICT);
    world_ok(store_write(w->store, STORE_NORMAL, put_and_note, &c, &err), &err);
    assert_string_equal(log, "ac");
}

static void test_store_open_refuses_second_instance(void **state)
{
    struct world *w = *state;
    struct store *second = NULL;
    struct rl_err err;
    struct get g;
    assert_int_equal(store_open(w->cfg, world_fatal, w, &second, &err), RL_LOCKED);
    struct put p = {.name = "still", .value = "works"};
    world_ok(store_write(w->store, STORE_NORMAL, put, &p, &err), &err);
    assert_string_equal(read_meta(w, &g, "still"), "works");
}

static void test_store_open_refuses_newer_schema(void **state)
{
    struct world *w = *state;
    char path[128];
    sqlite3 *db;
    struct rl_err err;
    world_close(w);
    (void)snprintf(path, sizeof path, "%s/reeld.db", w->dir);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "PRAGMA user_version = 999", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    assert_int_equal(store_open(w->cfg, world_fatal, w, &w->store, &err), RL_STORE_ERROR);
    assert_non_null(strstr(err.reason, "newer reeld"));
}

static void test_store_backup_is_whole(void **state)
{
    struct world *w = *state;
    char path[128], verdict[64];
    struct rl_err err;
    struct put p = {.name = "kept", .value = "yes"};
    world_ok(store_write(w->store, STORE_NORMAL, put, &p, &err), &err);
    (void)snprintf(path, sizeof path, "%s/copy.db", w->dir);
    world_ok(store_backup(w->store, path, &err), &err);
    world_ok(store_check_file(path, verdict, sizeof verdict, &err), &err);
    assert_string_equal(verdict, "ok");
    assert_int_not_equal(store_backup(w->store, path, &err),
                         RL_OK); /* never over an existing file */
}

/* A process that was killed during a backup leaves its copy: the next one removes it, and no more.
 */
static void test_store_open_removes_left_backups(void **state)
{
    struct world *w = *state;
    struct rl_err err;
    char copy[160], other[160];
    world_close(w);
    (void)snprintf(copy, sizeof copy, "%s/tmp", w->dir);
    world_ok(rl_fs_mkdirs(copy, 0700, &err), &err);
    (void)snprintf(copy, sizeof copy, "%s/tmp/backup-0123456789abcdef.db", w->dir);
    (void)snprintf(other, sizeof other, "%s/tmp/my-backup-1.db", w->dir);
    world_ok(rl_fs_write_durable(copy, "x", 1, 0600, &err), &err);
    world_ok(rl_fs_write_durable(other, "x", 1, 0600, &err), &err);
    world_open(w);
    assert_int_equal(access(copy, F_OK), -1);
    assert_int_equal(access(other, F_OK), 0);
}

/* A tmpfs of 8 MiB: normal writes end in DISK_FULL, the ballast lets urgent ones through, space
 * heals it. */
static void test_store_write_full_disk(void **state)
{
    struct world *w = *state;
    struct rl_err err;
    struct get g;
    char filler[128], limit[64];
    world_close(w);
    (void)snprintf(limit, sizeof limit, "size=%dm", 8);
    if (mount("tmpfs", w->dir, "tmpfs", 0, limit) != 0) {
        world_open(w);
        print_message("skipped: mounting needs root\n");
        skip();
    }
    world_set(w, "store.ballast_bytes", "2097152");
    world_open(w);
    (void)snprintf(filler, sizeof filler, "%s/filler", w->dir);
    FILE *f = fopen(filler, "w");
    static char block[4096];
    memset(block, 'x', sizeof block);
    assert_non_null(f);
    setbuf(f, NULL);
    while (fwrite(block, 1, sizeof block, f) == sizeof block)
        ;
    (void)fclose(f);
    enum rl_rc rc = RL_OK;
    static char big[48];
    memset(big, 'b', sizeof big - 1);
    for (int i = 0; i < 4000 && rc == RL_OK; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "n%d", i);
        struct put p = {.name = name, .value = big};
        rc = store_write(w->store, STORE_NORMAL, put, &p, &err);
    }
    assert_int_equal(rc, RL_DISK_FULL);
    struct put urgent = {.name = "urgent", .value = "done"};
    world_ok(store_write(w->store, STORE_URGENT, put, &urgent, &err), &err);
    assert_string_equal(read_meta(w, &g, "urgent"), "done");
    assert_int_equal(store_admit(w->store, &err), RL_DISK_FULL);
    assert_int_equal(unlink(filler), 0);
    struct put healed = {.name = "healed", .value = "yes"};
    rc = RL_DISK_FULL;
    for (int i = 0; i < 100 && rc == RL_DISK_FULL; i++) { /* the watch looks every two seconds */
        rc = store_write(w->store, STORE_NORMAL, put, &healed, &err);
        usleep(rc == RL_DISK_FULL ? 100000 : 0);
    }
    world_ok(rc, &err);
    assert_int_equal(w->fatal, 0);
    world_close(w);
    assert_int_equal(umount(w->dir), 0);
    world_set(w, "store.ballast_bytes", "0");
    world_open(w);
}

/* SQLite's own pwrite; fails as it does where a quota is used up. */
static sqlite3_syscall_ptr real_pwrite;
static atomic_bool quota_used_up;
static ssize_t quota_pwrite(int fd, const void *bytes, size_t len, off_t at)
{
    if (atomic_load(&quota_used_up)) {
        errno = EDQUOT;
        return -1;
    }
    return ((ssize_t(*)(int, const void *, size_t, off_t))real_pwrite)(fd, bytes, len, at);
}

/* A used-up quota is a full disk: the ballast goes, and urgent writes are taken again after that.
 */
static void test_store_write_beyond_a_quota(void **state)
{
    struct world *w = *state;
    struct rl_err err;
    char path[160];
    sqlite3_vfs *vfs = sqlite3_vfs_find(NULL);
    struct put lost = {.name = "lost", .value = "x"}, kept = {.name = "kept", .value = "y"};
    (void)snprintf(path, sizeof path, "%s/ballast", w->dir);
    world_close(w);
    world_set(w, "store.ballast_bytes", "1048576");
    world_set(w, "store.min_free_bytes", "1099511627776"); /* so that nothing heals */
    world_open(w);
    real_pwrite = vfs->xGetSystemCall(vfs, "pwrite64");
    assert_int_equal(vfs->xSetSystemCall(vfs, "pwrite64", (sqlite3_syscall_ptr)quota_pwrite),
                     SQLITE_OK);
    assert_int_equal(access(path, F_OK), 0);
    atomic_store(&quota_used_up, true);
    assert_int_equal(store_write(w->store, STORE_URGENT, put, &lost, &err), RL_DISK_FULL);
    assert_int_equal(access(path, F_OK), -1);
    atomic_store(&quota_used_up, false);
    world_ok(store_write(w->store, STORE_URGENT, put, &kept, &err), &err);
    assert_int_equal(store_write(w->store, STORE_NORMAL, put, &kept, &err), RL_DISK_FULL);
    assert_int_equal(w->fatal, 0);
    world_close(w);
    assert_int_equal(vfs->xSetSystemCall(vfs, "pwrite64", NULL), SQLITE_OK);
    world_set(w, "store.ballast_bytes", "0");
    world_set(w, "store.min_free_bytes", "0");
    world_open(w);
}

/* Found full at the start: the ballast is given up, the server comes up, and refuses new work. */
static void test_store_open_on_a_full_disk(void **state)
{
    struct world *w = *state;
    struct rl_err err;
    char path[128];
    world_close(w);
    if (mount("tmpfs", w->dir, "tmpfs", 0, "size=16m") != 0) {
        world_open(w);
        print_message("skipped: mounting needs root\n");
        skip();
    }
    world_set(w, "store.ballast_bytes", "6291456");
    world_open(w);
    world_close(w);
    (void)snprintf(path, sizeof path, "%s/results/1-1.mp4.part", w->dir);
    FILE *f = fopen(path, "w");
    static char block[4096];
    assert_non_null(f);
    setbuf(f, NULL);
    while (fwrite(block, 1, sizeof block, f) == sizeof block)
        ;
    (void)fclose(f);
    world_open(w);
    assert_int_equal(access(path, F_OK), -1);
    struct put urgent = {.name = "urgent", .value = "done"};
    world_ok(store_write(w->store, STORE_URGENT, put, &urgent, &err), &err);
    world_close(w);
    assert_int_equal(umount(w->dir), 0);
    world_set(w, "store.ballast_bytes", "0");
    world_open(w);
}

/* No room for it at the start: it is made when there is some, not at the next start. */
static void test_store_makes_a_missing_ballast(void **state)
{
    struct world *w = *state;
    struct rl_err err;
    struct stat st;
    char path[128];
    struct put p = {.name = "a", .value = "b"};
    world_close(w);
    world_set(w, "store.ballast_bytes", "1048576");
    world_open(w);
    (void)snprintf(path, sizeof path, "%s/ballast", w->dir);
    assert_int_equal(unlink(path), 0);
    passed_s = 61;
    world_ok(store_write(w->store, STORE_NORMAL, put, &p, &err), &err);
    world_close(w);
    passed_s = 0;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, 1048576);
    world_set(w, "store.ballast_bytes", "0");
    world_open(w);
}

static void test_store_measure_really_commits(void **state)
{
    struct world *w = *state;
    struct rl_err err;
    double few = 0;
    world_ok(store_measure(w->dir, 100, &few, &err), &err);
    assert_true(few > 0);
    char left[160];
    (void)snprintf(left, sizeof left, "%s/measure-%d.db", w->dir, (int)getpid());
    assert_int_equal(access(left, F_OK), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(test_store_write_is_visible_and_survives),
        WORLD_TEST(test_store_write_failure_rolls_back_only_itself),
        WORLD_TEST(test_store_try_undoes_only_what_failed),
        WORLD_TEST(test_store_try_in_a_lost_transaction),
        WORLD_TEST(test_store_write_groups_of_many_threads),
        WORLD_TEST(test_store_on_commit_runs_only_for_what_is_kept),
        WORLD_TEST(test_store_open_refuses_second_instance),
        WORLD_TEST(test_store_open_refuses_newer_schema),
        WORLD_TEST(test_store_backup_is_whole),
        WORLD_TEST(test_store_open_removes_left_backups),
        WORLD_TEST(test_store_write_full_disk),
        WORLD_TEST(test_store_write_beyond_a_quota),
        WORLD_TEST(test_store_open_on_a_full_disk),
        WORLD_TEST(test_store_makes_a_missing_ballast),
        WORLD_TEST(test_store_measure_really_commits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
