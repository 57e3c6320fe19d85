/* API keys, users' callback secrets, and the stateless tokens of links and sessions. Only hashes of
 * keys are stored; what was once looked up answers from a small cache that a revoke empties. Any
 * thread. */
#include "task/internal.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/webhook.h"
#include "config/config.h"
#include "events/events.h"

#include <ctype.h>
#include <string.h>
#include <unistd.h>

#define KEY_PREFIX  "rk_"
#define OWNER_USER  "owner"
#define LABEL_BYTES 100

static void known_clear(struct tasks *tasks)
{
    pthread_mutex_lock(&tasks->key_lock);
    memset(tasks->keys, 0, sizeof tasks->keys);
    tasks->key_generation++;
    pthread_mutex_unlock(&tasks->key_lock);
}

static void known_put(struct tasks *tasks, const uint8_t *hash, const struct caller *caller,
                      uint64_t generation)
{
    pthread_mutex_lock(&tasks->key_lock);
    if (generation == tasks->key_generation) {
        struct key_entry *entry = &tasks->keys[tasks->key_next++ % KEY_CACHE];
        memcpy(entry->hash, hash, RL_HASH_BYTES);
        entry->caller = *caller;
    }
    pthread_mutex_unlock(&tasks->key_lock);
}

static bool known_find(struct tasks *tasks, const uint8_t *hash, struct caller *ret_caller,
                       uint64_t *ret_generation)
{
    bool found = false;
    pthread_mutex_lock(&tasks->key_lock);
    *ret_generation = tasks->key_generation;
    for (size_t i = 0; i < KEY_CACHE && !found; i++) {
        const struct key_entry *entry = &tasks->keys[i];
        found = entry->caller.key_id != 0 && rl_equal(entry->hash, hash, RL_HASH_BYTES);
        if (found)
            *ret_caller = entry->caller;
    }
    pthread_mutex_unlock(&tasks->key_lock);
    return found;
}

struct key_work {
    enum store_sql by;
    const uint8_t *hash;
    int64_t key_id;
    struct caller caller;
};

static enum rl_rc find_key(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct key_work *work = arg;
    AUTO_STMT struct store_stmt *stmt = store_stmt(conn, work->by);
    if (work->hash)
        store_bind_blob(stmt, ":hash", work->hash, RL_HASH_BYTES);
    else
        store_bind_int(stmt, ":key_id", work->key_id);
    bool row;
    enum rl_rc rc = store_step(stmt, &row, err);
    if (rc != RL_OK)
        return rc;
    if (!row || store_col_int(stmt, 3) != 0)
        return rl_fail(err, RL_UNAUTHORIZED, row ? "the key is revoked" : "the key is unknown");
    const char *user = store_col_text(stmt, 1), *role = store_col_text(stmt, 2);
    work->caller = (struct caller){.key_id = store_col_int(stmt, 0),
                                   .owner = role && strcmp(role, "owner") == 0};
    if (!user || !rl_copy_str(work->caller.user_id, sizeof work->caller.user_id, user))
        return rl_fail(err, RL_NO_MEMORY, "key");
    return RL_OK;
}

/* false: not the shape of a key */
static bool hash_key(const char *key, uint8_t *hash)
{
    size_t len = strlen(key);
    if (len >= KEY_TEXT || strncmp(key, KEY_PREFIX, strlen(KEY_PREFIX)) != 0)
        return false;
    rl_hash(key, len, hash);
    return true;
}

bool key_known(struct tasks *tasks, const char *key, struct caller *ret_caller)
{
    uint8_t hash[RL_HASH_BYTES];
    uint64_t generation;
    return hash_key(key, hash) && known_find(tasks, hash, ret_caller, &generation);
}

enum rl_rc key_authenticate(struct tasks *tasks, const char *key, struct caller *ret_caller,
                            struct rl_err *err)
{
    uint8_t hash[RL_HASH_BYTES];
    if (!hash_key(key, hash))
        return rl_fail(err, RL_UNAUTHORIZED, "this is no reeld key");
    uint64_t generation;
    if (known_find(tasks, hash, ret_caller, &generation))
        return RL_OK;
    struct key_work work = {.by = SQL_KEY_BY_HASH, .hash = hash};
    enum rl_rc rc = store_read(tasks->store, find_key, &work, err);
    if (rc != RL_OK)
        return rc;
    known_put(tasks, hash, &work.caller, generation);
    *ret_caller = work.caller;
    return RL_OK;
}

struct add_work {
    const char *user, *label, *key;
    bool owner;
    int64_t key_id;
};

static enum rl_rc ensure_user(struct store_conn *conn, const char *user, struct rl_err *err)
{
    char secret[RL_WEBHOOK_SECRET];
    rl_webhook_secret(secret);
    struct store_stmt *stmt = store_stmt(conn, SQL_USER_ENSURE);
    store_bind_text(stmt, ":user_id", user);
    store_bind_text(stmt, ":callback_secret", secret);
    store_bind_int(stmt, ":now", rl_wall_ms());
    enum rl_rc rc = store_run(stmt, NULL, err);
    rl_wipe(secret, sizeof secret);
    return rc;
}

static enum rl_rc add_key(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct add_work *work = arg;
    uint8_t hash[RL_HASH_BYTES];
    char hint[9];
    enum rl_rc rc = ensure_user(conn, work->user, err);
    if (rc != RL_OK)
        return rc;
    rl_hash(work->key, strlen(work->key), hash);
    (void)snprintf(hint, sizeof hint, "%.8s", work->key); /* the first characters only */
    struct store_stmt *stmt = store_stmt(conn, SQL_KEY_INSERT);
    store_bind_text(stmt, ":user_id", work->user);
    store_bind_blob(stmt, ":hash", hash, sizeof hash);
    store_bind_text(stmt, ":hint", hint);
    store_bind_text(stmt, ":role", work->owner ? "owner" : "app");
    store_bind_text(stmt, ":label", work->label ? work->label : "");
    store_bind_int(stmt, ":now", rl_wall_ms());
    rc = store_run(stmt, NULL, err);
    work->key_id = store_last_rowid(conn);
    return rc;
}

static void new_key(char *key)
{
    uint8_t bytes[32];
    rl_random(bytes, sizeof bytes);
    memcpy(key, KEY_PREFIX, sizeof KEY_PREFIX);
    rl_base64(bytes, sizeof bytes, true, key + strlen(KEY_PREFIX));
    rl_wipe(bytes, sizeof bytes);
}

static bool user_ok(const char *user)
{
    size_t len = strlen(user);
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)user[i]) && !strchr("._@-", user[i]))
            return false;
    return len >= 1 && len <= 63;
}

enum rl_rc key_add(struct tasks *tasks, const char *user, const char *label, bool owner,
                   char *ret_key, int64_t *ret_key_id, struct rl_err *err)
{
    char key[KEY_TEXT];
    if (!user_ok(user))
        return rl_fail_field(err, RL_INVALID_FIELD, "user",
                             "must be 1 to 63 letters, digits, '.', '_', '@' or '-'");
    if (label && strlen(label) > LABEL_BYTES)
        return rl_fail_field(err, RL_INVALID_FIELD, "label", "is over %d bytes", LABEL_BYTES);
    enum rl_rc rc = store_admit(tasks->store, err);
    if (rc != RL_OK)
        return rc;
    new_key(key);
    struct add_work work = {user, label, key, owner, 0};
    rc = store_write(tasks->store, STORE_NORMAL, add_key, &work, err);
    if (rc == RL_OK) {
        memcpy(ret_key, key, sizeof key);
        *ret_key_id = work.key_id;
    }
    rl_wipe(key, sizeof key);
    return rc;
}

static enum rl_rc revoke_key(struct store_conn *conn, void *arg, struct rl_err *err)
{
    int64_t changed = 0;
    struct store_stmt *stmt = store_stmt(conn, SQL_KEY_REVOKE);
    store_bind_int(stmt, ":key_id", *(const int64_t *)arg);
    store_bind_int(stmt, ":now", rl_wall_ms());
    enum rl_rc rc = store_run(stmt, &changed, err);
    return rc == RL_OK && changed == 0 ? rl_fail(err, RL_NOT_FOUND, "no such key") : rc;
}

enum rl_rc key_revoke(struct tasks *tasks, int64_t key_id, struct rl_err *err)
{
    enum rl_rc rc = store_write(tasks->store, STORE_URGENT, revoke_key, &key_id, err);
    known_clear(tasks);
    hub_ring(tasks->hub); /* streams look whether they may go on */
    return rc;
}

static enum rl_rc list_keys(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct rl_jw *w = arg;
    AUTO_STMT struct store_stmt *stmt = store_stmt(conn, SQL_KEY_LIST);
    bool row;
    enum rl_rc rc = store_step(stmt, &row, err);
    for (; rc == RL_OK && row; rc = store_step(stmt, &row, err)) {
        rl_jw_object(w, NULL);
        rl_jw_id(w, "key_id", store_col_int(stmt, 0));
        rl_jw_str(w, "user_id", store_col_text(stmt, 1));
        rl_jw_str(w, "role", store_col_text(stmt, 2));
        rl_jw_str(w, "label", store_col_text(stmt, 3));
        rl_jw_str(w, "hint", store_col_text(stmt, 4));
        rl_jw_time(w, "created_at", store_col_int(stmt, 5));
        rl_jw_time(w, "revoked_at", store_col_int(stmt, 6));
        rl_jw_end_object(w);
    }
    return rc;
}

enum rl_rc key_list(struct tasks *tasks, struct rl_buf *out, struct rl_err *err)
{
    return list_whole(tasks, list_keys, out, err);
}

enum rl_rc key_secret_in(struct store_conn *conn, const char *user_id, char *secret,
                         struct rl_err *err)
{
    AUTO_STMT struct store_stmt *stmt = store_stmt(conn, SQL_USER_SECRET);
    store_bind_text(stmt, ":user_id", user_id);
    bool row;
    enum rl_rc rc = store_step(stmt, &row, err);
    if (rc != RL_OK)
        return rc;
    const char *text = row ? store_col_text(stmt, 0) : NULL;
    if (!text || !rl_copy_str(secret, 128, text))
        return rl_fail(err, RL_NOT_FOUND, "the user has no callback secret");
    return RL_OK;
}

struct secret_work {
    const char *user_id;
    char *secret;
};

static enum rl_rc read_secret(struct store_conn *conn, void *arg, struct rl_err *err)
{
    struct secret_work *work = arg;
    return key_secret_in(conn, work->user_id, work->secret, err);
}

enum rl_rc key_callback_secret(struct tasks *tasks, const char *user_id, char *secret,
                               struct rl_err *err)
{
    struct secret_work work = {user_id, secret};
    return store_read(tasks->store, read_secret, &work, err);
}

static enum rl_rc has_owner(struct store_conn *conn, void *arg, struct rl_err *err)
{
    return store_int(store_stmt(conn, SQL_KEY_OWNER), 0, arg, err);
}

static enum rl_rc write_secret_file(const struct tasks *tasks, const char *name, const char *text,
                                    struct rl_err *err)
{
    char path[1100], line[160];
    int n = snprintf(path, sizeof path, "%s/%s", config_text(tasks->cfg, CFG_STATE_DIR), name);
    int len = snprintf(line, sizeof line, "%s\n", text);
    if (n < 0 || (size_t)n >= sizeof path || len < 0 || (size_t)len >= sizeof line)
        return rl_fail(err, RL_INTERNAL, "%s", name);
    enum rl_rc rc = rl_fs_write_durable(path, line, (size_t)len, 0600, err);
    rl_wipe(line, sizeof line);
    return rc;
}

static void remove_state_file(const struct tasks *tasks, const char *name)
{
    char path[1100];
    (void)snprintf(path, sizeof path, "%s/%s", config_text(tasks->cfg, CFG_STATE_DIR), name);
    (void)unlink(path); /* it may not be there */
}

static bool state_file_there(const struct tasks *tasks, const char *name)
{
    char path[1100];
    (void)snprintf(path, sizeof path, "%s/%s", config_text(tasks->cfg, CFG_STATE_DIR), name);
    return access(path, F_OK) == 0;
}

/* DIR/callback.secret holds the owner's default secret; made again when it is missing. */
static enum rl_rc keep_secret_file(struct tasks *tasks, struct rl_err *err)
{
    char secret[128];
    if (state_file_there(tasks, "callback.secret"))
        return RL_OK;
    enum rl_rc rc = key_callback_secret(tasks, OWNER_USER, secret, err);
    if (rc == RL_OK)
        rc = write_secret_file(tasks, "callback.secret", secret, err);
    rl_wipe(secret, sizeof secret);
    return rc;
}

/* The file comes before the row: a crash in between leaves no owner in the database and the next
 * start makes both anew. */
enum rl_rc keys_first_run(struct tasks *tasks, bool *ret_first_run, struct rl_err *err)
{
    int64_t owner = 0;
    char key[KEY_TEXT];
    *ret_first_run = false;
    enum rl_rc rc = store_read(tasks->store, has_owner, &owner, err);
    if (rc != RL_OK)
        return rc;
    if (owner != 0 && state_file_there(tasks, "owner.key"))
        return keep_secret_file(tasks, err);
    /* The first run, or a database that was restored into a new folder: whoever has the folder is
     * the owner. */
    new_key(key);
    rc = write_secret_file(tasks, "owner.key", key, err);
    struct add_work work = {OWNER_USER, "first run", key, true, 0};
    if (rc == RL_OK)
        rc = store_write(tasks->store, STORE_URGENT, add_key, &work, err);
    if (rc != RL_OK) /* else the next start would take it for a key that works */
        remove_state_file(tasks, "owner.key");
    if (rc == RL_OK)
        rc = keep_secret_file(tasks, err);
    rl_wipe(key, sizeof key);
    *ret_first_run = rc == RL_OK;
    return rc;
}

static void token_mac(const struct tasks *tasks, const char *head, size_t len, char *mac)
{
    uint8_t bytes[RL_SHA256_BYTES];
    struct rl_bytes part = {head, len};
    rl_hmac_sha256(tasks->link_secret, sizeof tasks->link_secret, &part, 1, bytes);
    rl_base64(bytes, sizeof bytes, true, mac);
}

enum rl_rc key_token(struct tasks *tasks, const char *purpose, int64_t key_id, int64_t expires_ms,
                     char *token, struct rl_err *err)
{
    char mac[48], head[96];
    int n = snprintf(head, sizeof head, "%s.%lld.%lld", purpose, (long long)key_id,
                     (long long)(expires_ms / 1000));
    if (n < 0 || (size_t)n >= sizeof head)
        return rl_fail(err, RL_INTERNAL, "token");
    token_mac(tasks, head, (size_t)n, mac);
    (void)snprintf(token, KEY_TOKEN, "%s.%s", head, mac); /* fits: 96 + 48 < KEY_TOKEN */
    return RL_OK;
}

enum rl_rc key_token_check(struct tasks *tasks, const char *purpose, const char *token,
                           struct caller *ret_caller, int64_t *ret_expires_ms, struct rl_err *err)
{
    char mac[48], want[32];
    const char *dot = strrchr(token, '.');
    size_t head = dot ? (size_t)(dot - token) : 0, len = strlen(purpose);
    long long key_id = 0, expires_s = 0;
    if (!dot || head > 95 || strncmp(token, purpose, len) != 0 || token[len] != '.')
        return rl_fail(err, RL_UNAUTHORIZED, "this is no valid %s", purpose);
    token_mac(tasks, token, head, mac);
    if (strlen(dot + 1) != strlen(mac) || !rl_equal(dot + 1, mac, strlen(mac)) ||
        sscanf(token + len, ".%31[0-9].%lld", want, &expires_s) != 2)
        return rl_fail(err, RL_UNAUTHORIZED, "this is no valid %s", purpose);
    key_id = strtoll(want, NULL, 10);
    if (expires_s * 1000 < rl_wall_ms())
        return rl_fail(err, RL_UNAUTHORIZED, "the %s has expired", purpose);
    struct key_work work = {.by = SQL_KEY_BY_ID, .key_id = key_id};
    enum rl_rc rc = store_read(tasks->store, find_key, &work, err);
    if (rc != RL_OK)
        return rc;
    *ret_caller = work.caller;
    *ret_expires_ms = expires_s * 1000;
    return RL_OK;
}

enum rl_rc key_check(struct tasks *tasks, int64_t key_id, struct rl_err *err)
{
    struct key_work work = {.by = SQL_KEY_BY_ID, .key_id = key_id};
    return store_read(tasks->store, find_key, &work, err);
}

uint64_t key_generation(struct tasks *tasks)
{
    pthread_mutex_lock(&tasks->key_lock);
    uint64_t generation = tasks->key_generation;
    pthread_mutex_unlock(&tasks->key_lock);
    return generation;
}
