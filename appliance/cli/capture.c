/* Reads deliveries that were saved: header lines and a body, or a line of `reeld listen`, looser
 * than a server may be, because they went through editors and logs; but what cannot be the delivery
 * is refused, not guessed. No state. */
#include "cli/capture.h"

#include <string.h>
#include <strings.h>

void cli_capture_free(struct cli_capture *capture)
{
    free(capture->head);
    free(capture->body);
    rl_json_free(capture->line);
    *capture = (struct cli_capture){0};
}

/* What else the head says. */
struct facts {
    const char *length, *coding;
};

static char *trim(char *text)
{
    text += strspn(text, " \t");
    size_t len = strlen(text);
    while (len > 0 && strchr(" \t\r", text[len - 1]))
        text[--len] = '\0';
    return text;
}

/* One line, in place. */
static enum rl_rc read_line(struct cli_capture *capture, char *line, struct facts *facts,
                            struct rl_err *err)
{
    const struct {
        const char *name;
        const char **value;
    } known[] = {{"webhook-id", &capture->hook.id},
                 {"webhook-timestamp", &capture->hook.timestamp},
                 {"webhook-signature", &capture->hook.signature},
                 {"content-length", &facts->length},
                 {"transfer-encoding", &facts->coding}};
    char *colon = strchr(line, ':');

    if (!colon)
        return RL_OK; /* a request line, a fold, a remark */
    *colon = '\0';
    for (size_t i = 0; i < RL_ARRAY_LEN(known); i++) {
        if (strcasecmp(trim(line), known[i].name) != 0)
            continue;
        if (*known[i].value)
            return rl_fail(err, RL_UNAUTHORIZED, "the header %s is there twice", known[i].name);
        *known[i].value = trim(colon + 1);
    }
    return RL_OK;
}

static enum rl_rc read_head(struct cli_capture *capture, struct facts *facts, struct rl_err *err)
{
    enum rl_rc rc = RL_OK;

    for (char *line = capture->head; line && rc == RL_OK;) {
        char *end = strchr(line, '\n');
        if (end)
            *end++ = '\0';
        rc = read_line(capture, line, facts, err);
        line = end;
    }
    return rc;
}

enum rl_rc cli_capture_head(struct cli_capture *capture, char *text, struct rl_err *err)
{
    struct facts facts = {0};

    free(capture->head);
    capture->head = text;
    return read_head(capture, &facts, err);
}

void cli_capture_body(struct cli_capture *capture, char *bytes, size_t len)
{
    free(capture->body);
    capture->body = bytes;
    capture->hook.body = bytes;
    capture->hook.body_len = len;
}

/* Where the body begins: after the first empty line. NULL: there is none. */
static char *find_body(char *text, size_t len)
{
    for (char *p = text; (p = memchr(p, '\n', len - (size_t)(p - text)));) {
        p++;
        if (*p == '\r')
            p++;
        if (*p == '\n')
            return p + 1;
    }
    return NULL;
}

/* What `reeld listen` told of a delivery. */
static enum rl_rc read_listened(struct cli_capture *capture, const char *text, size_t len,
                                struct rl_err *err)
{
    size_t line = strcspn(text, "\n");

    if (text[line + strspn(text + line, "\r\n")])
        return rl_fail(err, RL_UNAUTHORIZED,
                       "there is more than one line: give the one to check (tail -n 1)");
    rl_json_free(capture->line);
    capture->line = NULL;
    if (rl_json_parse(text, len, &capture->line, NULL) != RL_OK)
        capture->line = NULL; /* which has no members */
    const struct rl_json *body = rl_json_get(capture->line, "body");
    if (!body || !rl_json_get(capture->line, "webhook_signature"))
        return rl_fail(err, RL_UNAUTHORIZED,
                       "this JSON is no line of `reeld listen`; a body alone is named by --body");
    capture->hook.id = rl_json_text(rl_json_get(capture->line, "webhook_id"));
    capture->hook.timestamp = rl_json_text(rl_json_get(capture->line, "webhook_timestamp"));
    capture->hook.signature = rl_json_text(rl_json_get(capture->line, "webhook_signature"));
    capture->hook.body = rl_json_text(body);
    if (!capture->hook.body)
        return rl_fail(err, RL_UNAUTHORIZED, "the line has no body, which was not UTF-8 text");
    capture->hook.body_len = strlen(capture->hook.body);
    return RL_OK;
}

enum rl_rc cli_capture_request(struct cli_capture *capture, char *text, size_t len,
                               struct rl_err *err)
{
    struct facts facts = {0};

    free(capture->head);
    capture->head = text;
    if (*text == '{')
        return read_listened(capture, text, len, err);
    char *body = find_body(text, len);
    if (!body)
        return rl_fail(err, RL_UNAUTHORIZED,
                       "there is no empty line between the head of the request and its body");
    body[-1] = '\0';
    size_t body_len = len - (size_t)(body - text);
    enum rl_rc rc = read_head(capture, &facts, err);
    if (rc != RL_OK)
        return rc;
    if (facts.coding && strcasecmp(facts.coding, "identity") != 0)
        return rl_fail(err, RL_UNAUTHORIZED,
                       "the body is %.40s: save it as the app got it, by --body", facts.coding);
    size_t digits = facts.length ? strspn(facts.length, "0123456789") : 0;
    if (digits >= 1 && digits <= 9 && !facts.length[digits]) {
        size_t want = strtoul(facts.length, NULL, 10);
        if (body_len < want)
            return rl_fail(err, RL_UNAUTHORIZED, "the body has %zu bytes of the %zu announced",
                           body_len, want);
        body_len = want;
    }
    capture->hook.body = body;
    capture->hook.body_len = body_len;
    return RL_OK;
}
