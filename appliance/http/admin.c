/* Routes about the server itself: engines, keys, the callback secret, backup. Runs on the worker of
 * the connection; a backup file exists only while it is being sent, and only one at a time. */
#include "http/request.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crypto.h"
#include "base/fs.h"
#include "config/config.h"
#include "engine/engine.h"
#include "store/store.h"

#define ANSWER_BYTES (4u << 20)

enum rl_rc http_engines(struct request *r, struct rl_err *err)
{
    AUTO_BUF struct rl_buf out = {0};
    struct rl_jw w;
    rl_buf_init(&out, ANSWER_BYTES);
    rl_jw_init(&w, &out, false);
    rl_jw_object(&w, NULL);
    engines_json(tasks_engines(r->http->tasks), &w, "data");
    rl_jw_null(&w, "next");
    rl_jw_end_object(&w);
    return reply_json(r, 200, &out, err);
}

/* ---- keys ---- */

enum rl_rc http_key_list(struct request *r, struct rl_err *err)
{
    AUTO_BUF struct rl_buf out = {0};
    rl_buf_init(&out, ANSWER_BYTES);
    enum rl_rc rc = key_list(r->http->tasks, &out, err);
    return rc == RL_OK ? reply_json(r, 200, &out, err) : rc;
}

static enum rl_rc text_member(const struct rl_json *root, const char *name, size_t max_bytes,
                              const char **ret_text, struct rl_err *err)
{
    const struct rl_json *v = rl_json_get(root, name);
    return v ? rl_json_string(v, name, 1, max_bytes, ret_text, err) : RL_OK;
}

enum rl_rc http_key_add(struct request *r, struct rl_err *err)
{
    static const char *const names[] = {"user", "label", "role", NULL};
    AUTO_JSON struct rl_json *root = NULL;
    const char *user = NULL, *label = NULL, *role = "app";
    enum rl_rc rc = body_object(r, names, &root, err);
    if (rc == RL_OK)
        rc = text_member(root, "user", 63, &user, err);
    if (rc == RL_OK && !user)
        rc = rl_fail_field(err, RL_INVALID_FIELD, "user", "is missing");
    if (rc == RL_OK)
        rc = text_member(root, "label", 200, &label, err);
    if (rc == RL_OK)
        rc = text_member(root, "role", 16, &role, err);
    if (rc == RL_OK && strcmp(role, "app") != 0 && strcmp(role, "owner") != 0)
        rc = rl_fail_field(err, RL_INVALID_FIELD, "role", "must be app or owner");
    char key[KEY_TEXT];
    int64_t key_id = 0;
    if (rc == RL_OK)
        rc = key_add(r->http->tasks, user, label, !strcmp(role, "owner"), key, &key_id, err);
    if (rc != RL_OK)
        return rc;
    AUTO_BUF struct rl_buf out = {0};
    struct rl_jw w;
    rl_buf_init(&out, 8192);
    rl_jw_init(&w, &out, false);
    rl_jw_object(&w, NULL);
    rl_jw_id(&w, "key_id", key_id);
    rl_jw_str(&w, "user_id", user);
    rl_jw_str(&w, "role", role);
    rl_jw_str(&w, "label", label);
    rl_jw_str(&w, "key", key);
    rl_jw_end_object(&w);
    rl_wipe(key, sizeof(key));
    return reply_json(r, 201, &out, err);
}

enum rl_rc http_key_revoke(struct request *r, struct rl_err *err)
{
    int64_t id;
    enum rl_rc rc = request_id_param(r, "key", &id, err);
    if (rc == RL_OK)
        rc = key_revoke(r->http->tasks, id, err);
    return rc == RL_OK ? reply_empty(r, 204) : rc;
}

enum rl_rc http_callback_secret(struct request *r, struct rl_err *err)
{
    char secret[128];
    enum rl_rc rc = key_callback_secret(r->http->tasks, r->caller.user_id, secret, err);
    if (rc != RL_OK)
        return rc;
    AUTO_BUF struct rl_buf out = {0};
    struct rl_jw w;
    rl_buf_init(&out, 4096);
    rl_jw_init(&w, &out, false);
    rl_jw_object(&w, NULL);
    rl_jw_str(&w, "secret", secret);
    rl_jw_end_object(&w);
    rl_wipe(secret, sizeof(secret));
    return reply_json(r, 200, &out, err);
}

/* ---- backup ---- */

/* Make the copy and unlink it at once: the open file is all that is needed. */
static enum rl_rc backup_open(struct request *r, int *ret_fd, int64_t *ret_bytes,
                              struct rl_err *err)
{
    AUTO_BUF struct rl_buf path = {0};
    uint8_t random[8];
    char name[17];
    rl_random(random, sizeof(random));
    rl_hex(random, sizeof(random), name);
    rl_buf_init(&path, 4096);
    rl_buf_fmt(&path, "%s/tmp", config_text(r->http->cfg, CFG_STATE_DIR));
    enum rl_rc rc = rl_buf_ok(&path, err);
    if (rc == RL_OK)
        rc = rl_fs_mkdirs(path.data, 0700, err);
    if (rc != RL_OK)
        return rc;
    rl_buf_fmt(&path, "/backup-%s.db", name);
    rc = rl_buf_ok(&path, err);
    if (rc != RL_OK)
        return rc;
    rc = store_backup(tasks_store(r->http->tasks), path.data, err);
    AUTO_CLOSE int fd = -1;
    struct stat st;
    if (rc == RL_OK) {
        fd = open(path.data, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &st) != 0)
            rc = rl_fail_errno(err, "open the backup", errno);
    }
    (void)unlink(path.data); /* a failed backup may have left no file */
    if (rc != RL_OK)
        return rc;
    *ret_fd = fd;
    *ret_bytes = (int64_t)st.st_size;
    fd = -1;
    return RL_OK;
}

static enum rl_rc backup_send(struct request *r, struct rl_err *err)
{
    AUTO_CLOSE int fd = -1;
    int64_t bytes = 0;
    enum rl_rc rc = backup_open(r, &fd, &bytes, err);
    if (rc != RL_OK)
        return rc;
    reply_header(r, "Content-Disposition", "attachment; filename=\"reeld.db\"");
    if (reply_head(r, &(struct reply){.status = 200, .type = "application/vnd.sqlite3"}, bytes))
        file_stream(r, fd, 0, bytes);
    return RL_OK;
}

enum rl_rc http_backup(struct request *r, struct rl_err *err)
{
    enum rl_rc rc = auth_check_fetch_site(r, err);
    if (rc != RL_OK)
        return rc;
    if (atomic_exchange(&r->http->backup_busy, true))
        return rl_fail(err, RL_CONFLICT, "another backup is under way");
    rc = backup_send(r, err);
    atomic_store(&r->http->backup_busy, false);
    return rc;
}
