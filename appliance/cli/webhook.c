/* Judges webhook deliveries for people: the verdict is base/webhook's, the words are ours. No
 * state. Invariant: a delivery that does not verify never passes because a changed one would. */
#include "cli/webhook.h"

#include "base/buf.h"
#include "base/crypto.h"
#include "base/fs.h"
#include "cli/client.h"

#include <inttypes.h>
#include <string.h>

#define PREFIX       "whsec_"
#define BODY_LIMIT   ((size_t)64 << 20) /* of a body as it might have been */
#define SECRET_LIMIT 4096

/* ---- secrets ---- */

static enum rl_rc add_secret(struct cli_secrets *secrets, const char *text, const char *from,
                             struct rl_err *err)
{
    struct rl_err why;

    if (rl_webhook_secret_check(text, from, &why))
        return rl_fail(err, RL_BAD_REQUEST, "%s: %.200s", from, why.reason);
    if (secrets->count == CLI_SECRETS)
        return rl_fail(err, RL_BAD_REQUEST, "at most %d secrets", CLI_SECRETS);
    secrets->text[secrets->count] = rl_strdup(text);
    if (!secrets->text[secrets->count])
        return rl_fail(err, RL_NO_MEMORY, "out of memory");
    secrets->count++;
    return RL_OK;
}

/* The first line of a file. */
static enum rl_rc add_file(struct cli_secrets *secrets, const char *path, struct rl_err *err)
{
    AUTO_FREE char *text = NULL;
    size_t len = 0;
    enum rl_rc rc = rl_fs_read(path, SECRET_LIMIT, &text, &len, err);

    if (rc != RL_OK)
        return rl_fail(err, RL_BAD_REQUEST, "the secret in %.160s cannot be read", path);
    text[strcspn(text, "\r\n")] = '\0';
    rc = add_secret(secrets, text, path, err);
    rl_wipe(text, len);
    return rc;
}

static enum rl_rc add_given(const struct cli_args *args, struct cli_secrets *secrets,
                            struct rl_err *err)
{
    size_t at = 0;
    enum rl_rc rc = RL_OK;

    for (const char *text; rc == RL_OK && (text = cli_args_next(args, "secret", &at));)
        rc = add_secret(secrets, text, "--secret", err);
    at = 0;
    for (const char *path; rc == RL_OK && (path = cli_args_next(args, "secret-file", &at));)
        rc = add_file(secrets, path, err);
    return rc;
}

enum rl_rc cli_secrets_find(const struct cli_args *args, struct cli_secrets *ret_secrets,
                            struct rl_err *err)
{
    AUTO_SECRETS struct cli_secrets secrets = {0};
    bool named = cli_args_text(args, "state-dir") != NULL;
    enum rl_rc rc = add_given(args, &secrets, err);

    if (rc == RL_OK && secrets.count == 0) {
        (void)snprintf(secrets.origin, sizeof(secrets.origin), "%.1100s/callback.secret",
                       cli_state_dir(args)); /* a longer one is not found */
        rc = add_file(&secrets, secrets.origin, err);
        if (rc == RL_BAD_REQUEST && !named) {
            secrets.origin[0] = '\0';
            rc = RL_OK; /* nobody said that there is one */
        }
    }
    if (rc != RL_OK)
        return rc;
    *ret_secrets = secrets;
    secrets = (struct cli_secrets){0};
    return RL_OK;
}

void cli_secrets_free(struct cli_secrets *secrets)
{
    for (size_t i = 0; i < secrets->count; i++) {
        rl_wipe(secrets->text[i], strlen(secrets->text[i]));
        free(secrets->text[i]);
    }
    *secrets = (struct cli_secrets){0};
}

enum rl_rc cli_secret_given(const struct cli_args *args, char **ret_secret, struct rl_err *err)
{
    AUTO_SECRETS struct cli_secrets secrets = {0};
    enum rl_rc rc = add_given(args, &secrets, err);

    if (rc == RL_OK && secrets.count > 1)
        rc = rl_fail(err, RL_BAD_REQUEST, "one secret, by --secret or by --secret-file");
    if (rc == RL_OK && secrets.count == 1) {
        *ret_secret = secrets.text[0];
        secrets.count = 0;
    }
    return rc;
}

/* ---- what would make a bad signature good ---- */

static void without_end(const struct rl_webhook *hook, struct rl_buf *out)
{
    const char *body = hook->body;
    size_t len = hook->body_len;

    while (len > 0 && (body[len - 1] == '\n' || body[len - 1] == '\r'))
        len--;
    rl_buf_append(out, body, len);
}

static void with_end(const struct rl_webhook *hook, struct rl_buf *out)
{
    rl_buf_append(out, hook->body, hook->body_len);
    rl_buf_str(out, "\n");
}

static void unix_ends(const struct rl_webhook *hook, struct rl_buf *out)
{
    const char *body = hook->body;

    for (size_t i = 0; i < hook->body_len; i++)
        if (body[i] != '\r' || i + 1 == hook->body_len || body[i + 1] != '\n')
            rl_buf_append(out, &body[i], 1);
}

static void without_mark(const struct rl_webhook *hook, struct rl_buf *out)
{
    size_t mark = hook->body_len >= 3 && memcmp(hook->body, "\357\273\277", 3) == 0 ? 3 : 0;

    rl_buf_append(out, (const char *)hook->body + mark, hook->body_len - mark);
}

/* One UTF-8 character as \u escapes, pairs above the BMP; returns its bytes, 0 = broken. */
static size_t put_escaped(const unsigned char *p, size_t left, struct rl_buf *out)
{
    size_t len = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : p[0] >= 0xc0 ? 2 : 0;
    uint32_t c = len == 4 ? p[0] & 0x07u : len == 3 ? p[0] & 0x0fu : p[0] & 0x1fu;

    if (len == 0 || len > left)
        return 0;
    for (size_t i = 1; i < len; i++)
        c = c << 6 | (p[i] & 0x3fu);
    if (c >= 0x10000)
        rl_buf_fmt(out, "\\u%04" PRIx32 "\\u%04" PRIx32, 0xd800 + ((c - 0x10000) >> 10),
                   0xdc00 + (c & 0x3ff));
    else
        rl_buf_fmt(out, "\\u%04" PRIx32, c);
    return len;
}

/* The JSON without white space, `\/` as `/`; with `ascii`, as reeld writes it. */
static void compact(const struct rl_webhook *hook, bool ascii, struct rl_buf *out)
{
    const char *body = hook->body;
    bool inside = false;

    for (size_t i = 0; i < hook->body_len;) {
        size_t len = 1;
        if (!inside && strchr(" \t\r\n", body[i]) && body[i]) {
            i++;
            continue;
        }
        if (inside && body[i] == '\\' && i + 1 < hook->body_len) {
            len = 2;
            if (body[i + 1] == '/') {
                len = 1;
                i++;
            }
        } else if (body[i] == '"') {
            inside = !inside;
        } else if (ascii && (unsigned char)body[i] >= 0x80) {
            size_t taken = put_escaped((const unsigned char *)body + i, hook->body_len - i, out);
            if (taken == 0)
                return;
            i += taken;
            continue;
        }
        rl_buf_append(out, body + i, len);
        i += len;
    }
}

static void compact_utf8(const struct rl_webhook *hook, struct rl_buf *out)
{
    compact(hook, false, out);
}

static void compact_ascii(const struct rl_webhook *hook, struct rl_buf *out)
{
    compact(hook, true, out);
}

/* true: the delivery would verify with its body changed so. */
static bool body_was(const struct rl_webhook *hook, const struct cli_secrets *secrets,
                     void (*change)(const struct rl_webhook *hook, struct rl_buf *out))
{
    AUTO_BUF struct rl_buf out = {0};
    struct rl_webhook was = *hook;

    rl_buf_init(&out, BODY_LIMIT);
    change(hook, &out);
    if (rl_buf_ok(&out, NULL) != RL_OK)
        return false;
    was.body = out.data ? out.data : "";
    was.body_len = out.len;
    for (size_t i = 0; i < secrets->count; i++)
        if (rl_webhook_signed_by(&was, secrets->text[i]))
            return true;
    return false;
}

static const char *body_trouble(const struct rl_webhook *hook, const struct cli_secrets *secrets)
{
    static const char again[] = "the body was re-serialised: verify the very bytes that came in, "
                                "before they are parsed";
    static const struct {
        void (*change)(const struct rl_webhook *hook, struct rl_buf *out);
        const char *reason;
    } changes[] = {
        {without_end, "the body has a line end at its end that was not signed (an editor or echo "
                      "adds one)"},
        {with_end, "the body lacks the line end that was signed with it"},
        {unix_ends, "the line ends of the body were changed to CRLF"},
        {without_mark, "a byte order mark was put before the body"},
        {compact_utf8, again},
        {compact_ascii, again},
    };

    for (size_t i = 0; i < RL_ARRAY_LEN(changes); i++)
        if (body_was(hook, secrets, changes[i].change))
            return changes[i].reason;
    return NULL;
}

/* "whsec_" and the base64 of the text itself: its bytes as a key. */
static bool signed_by_text(const struct rl_webhook *hook, const char *text)
{
    char secret[sizeof(PREFIX) + 4 * ((RL_WEBHOOK_SECRET_BYTES + 2) / 3) + 1] = PREFIX;
    size_t len = strlen(text);

    if (len == 0 || len > RL_WEBHOOK_SECRET_BYTES)
        return false;
    rl_base64((const uint8_t *)text, len, false, secret + strlen(PREFIX));
    bool is = rl_webhook_signed_by(hook, secret);
    rl_wipe(secret, sizeof(secret));
    return is;
}

static const char *secret_trouble(const struct rl_webhook *hook, const char *secret)
{
    char prefixed[sizeof(PREFIX) + RL_WEBHOOK_SECRET_BYTES] = PREFIX;
    const char *found = NULL;

    if (strncmp(secret, PREFIX, strlen(PREFIX)) == 0) {
        if (signed_by_text(hook, secret) || signed_by_text(hook, secret + strlen(PREFIX)))
            found = "the sender signed with the text of the secret; what follows whsec_ is base64 "
                    "and must be decoded first";
    } else if (rl_copy_str(prefixed + strlen(PREFIX), sizeof(prefixed) - strlen(PREFIX), secret)) {
        if (rl_webhook_signed_by(hook, prefixed))
            found = "the secret is the right one, but its prefix whsec_ is missing";
    }
    rl_wipe(prefixed, sizeof(prefixed));
    return found;
}

/* White space or other than ASCII characters: reeld sends neither, but others do. */
static bool looks_rewritten(const struct rl_webhook *hook)
{
    const char *body = hook->body;
    size_t n = 0;

    for (size_t i = 0; i < hook->body_len; i++)
        n += body[i] == '\n' || (unsigned char)body[i] >= 0x80 ||
             (i > 0 && body[i] == ' ' && (body[i - 1] == ',' || body[i - 1] == ':'));
    return n > 0;
}

static void look_into(const struct rl_webhook *hook, const struct cli_secrets *secrets,
                      struct cli_verdict *verdict)
{
    const char *found = body_trouble(hook, secrets);

    for (size_t i = 0; i < secrets->count && !found; i++)
        found = secret_trouble(hook, secrets->text[i]);
    if (!found)
        found = looks_rewritten(hook)
                    ? "another secret signed it, or something was changed on the way; the body "
                      "looks as if it was re-serialised, and only the very bytes that came in "
                      "verify"
                    : "another secret signed it, or the id, the timestamp or the body was changed";
    (void)rl_copy_str(verdict->reason, sizeof(verdict->reason), found); /* fits */
}

/* ---- the verdict ---- */

const char *cli_verdict_name(enum cli_verdict_kind kind)
{
    static const char *const names[VERDICT_KINDS] = {"valid", "bad_signature", "outside_window",
                                                     "malformed"};

    return names[kind];
}

void cli_webhook_judge(const struct rl_webhook *hook, const struct cli_secrets *secrets,
                       int64_t now_s, int64_t tolerance_s, struct cli_verdict *ret_verdict)
{
    struct cli_verdict verdict = {.kind = VERDICT_VALID};
    struct rl_err err;
    bool signed_by_one = false;

    if (rl_webhook_head(hook, &verdict.timestamp_s, &err)) {
        verdict.kind = VERDICT_MALFORMED;
        (void)snprintf(verdict.reason, sizeof(verdict.reason), "%s: %s", err.field,
                       err.reason); /* fits */
        *ret_verdict = verdict;
        return;
    }
    for (size_t i = 0; i < secrets->count; i++)
        signed_by_one = rl_webhook_signed_by(hook, secrets->text[i]) || signed_by_one;
    int64_t age_s = now_s - verdict.timestamp_s;
    if (!signed_by_one) {
        verdict.kind = VERDICT_FORGED;
        look_into(hook, secrets, &verdict);
    } else if (!rl_webhook_in_time(verdict.timestamp_s, now_s, tolerance_s)) {
        verdict.kind = VERDICT_OUT_OF_TIME;
        (void)snprintf(verdict.reason, sizeof(verdict.reason),
                       "the signature is right, but it was made %" PRId64
                       " s %s, and the tolerance is %" PRId64 " s: an old delivery sent again, or "
                       "a clock that is wrong",
                       age_s > 0 ? age_s : -age_s, age_s > 0 ? "ago" : "in the future",
                       tolerance_s); /* fits */
    }
    *ret_verdict = verdict;
}
