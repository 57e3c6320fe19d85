/* The pool of read-only connections. One is open from the start; more are opened when reads really
 * run at the same time, up to store.readers: an idle reeld holds the memory of one. Any thread. */
#include "store/internal.h"

#include "base/clock.h"

#define READ_LIMIT_MS 2000 /* a read that takes longer holds the WAL and a request thread */

static void give_back(struct store *store, struct store_conn *conn)
{
    pthread_mutex_lock(&store->pool_lock);
    if (conn) {
        conn->next = store->readers;
        store->readers = conn;
    } else {
        store->reader_count--; /* it could not be opened */
    }
    pthread_cond_signal(&store->pool_free);
    pthread_mutex_unlock(&store->pool_lock);
}

static enum rl_rc take(struct store *store, struct store_conn **ret_conn, struct rl_err *err)
{
    pthread_mutex_lock(&store->pool_lock);
    while (!store->readers && store->reader_count >= store->reader_limit)
        pthread_cond_wait(&store->pool_free,
                          &store->pool_lock); /* reads are bounded by READ_LIMIT_MS */
    struct store_conn *conn = store->readers;
    if (conn)
        store->readers = conn->next;
    else
        store->reader_count++;
    pthread_mutex_unlock(&store->pool_lock);
    enum rl_rc rc = conn ? RL_OK : store_conn_open(store->db_path, false, &conn, err);
    if (rc != RL_OK)
        give_back(store, NULL);
    else
        *ret_conn = conn;
    return rc;
}

enum rl_rc store_readers_open(struct store *store, struct rl_err *err)
{
    struct store_conn *conn = NULL;
    enum rl_rc rc = take(store, &conn, err);
    if (rc == RL_OK)
        give_back(store, conn);
    return rc;
}

void store_readers_close(struct store *store)
{
    while (store->readers) {
        struct store_conn *conn = store->readers;
        store->readers = conn->next;
        store_conn_close(conn);
    }
}

enum rl_rc store_read(struct store *store, store_fn fn, void *arg, struct rl_err *err)
{
    struct store_conn *conn = NULL;
    enum rl_rc rc = take(store, &conn, err);
    if (rc != RL_OK)
        return rc;
    conn->deadline_ms = rl_mono_ms() + READ_LIMIT_MS;
    int begun = store_begin(conn, "BEGIN");
    rc = begun == SQLITE_OK ? fn(conn, arg, err) : store_fail(conn, begun, "read", err);
    conn->deadline_ms = 0;
    /* A read transaction has nothing to lose; if this fails, the next BEGIN tries again. */
    if (!sqlite3_get_autocommit(conn->db))
        (void)sqlite3_exec(conn->db, "ROLLBACK", NULL, NULL, NULL);
    give_back(store, conn);
    return rc;
}
