/* Refuses request heads that two HTTP parsers could read differently (request smuggling) and paths
 * that could be cut or forged. Pure functions over what CivetWeb parsed; any thread. */
#include "http/head.h"

#include <string.h>
#include <strings.h>

const char *head_get(const struct head_field *fields, size_t count, const char *name,
                     size_t *ret_count)
{
    const char *value = NULL;
    size_t found = 0;
    for (size_t i = 0; i < count; i++) {
        if (strcasecmp(fields[i].name, name) != 0)
            continue;
        if (found++ == 0)
            value = fields[i].value;
    }
    if (ret_count)
        *ret_count = found;
    return value;
}

static enum rl_rc check_length(const char *text, size_t count, int64_t *ret_length,
                               struct rl_err *err)
{
    if (count == 0) {
        *ret_length = 0;
        return RL_OK;
    }
    if (count > 1)
        return rl_fail(err, RL_BAD_REQUEST, "more than one Content-Length");
    size_t digits = strspn(text, "0123456789");
    if (digits < 1 || digits > 10 || text[digits])
        return rl_fail(err, RL_BAD_REQUEST, "Content-Length must be 1 to 10 digits");
    int64_t length = 0;
    for (size_t i = 0; i < digits; i++)
        length = length * 10 + (text[i] - '0');
    *ret_length = length;
    return RL_OK;
}

enum rl_rc head_check(const struct head_field *fields, size_t count, const char *http_version,
                      struct head_facts *ret_facts, struct rl_err *err)
{
    struct head_facts facts = {0};
    size_t hosts, lengths, codings;
    if (count >= HEAD_FIELDS_MAX)
        return rl_fail(err, RL_BAD_REQUEST, "%d or more header fields", HEAD_FIELDS_MAX);
    const char *coding = head_get(fields, count, "Transfer-Encoding", &codings);
    const char *length = head_get(fields, count, "Content-Length", &lengths);
    if (codings > 0) {
        if (lengths > 0)
            return rl_fail(err, RL_BAD_REQUEST, "Transfer-Encoding together with Content-Length");
        if (codings > 1 || strcasecmp(coding, "chunked") != 0 || strcmp(http_version, "1.1") != 0)
            return rl_fail(err, RL_BAD_REQUEST, "the only transfer coding is chunked, in HTTP/1.1");
        facts.chunked = true;
    }
    enum rl_rc rc = check_length(length, lengths, &facts.length, err);
    if (rc != RL_OK)
        return rc;
    facts.host = head_get(fields, count, "Host", &hosts);
    if (hosts != 1)
        return rl_fail(err, RL_BAD_REQUEST, "Host must be given exactly once");
    const char *expect = head_get(fields, count, "Expect", NULL);
    facts.expect_continue = expect && !strcasecmp(expect, "100-continue");
    *ret_facts = facts;
    return RL_OK;
}

bool head_layout_ok(const struct head_field *fields, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const char *after_name = fields[i].name + strlen(fields[i].name);
        if (after_name[1] == '\0' && fields[i].value != after_name + 1)
            return false;                                                       /* "Name :" */
        const char *after_line = fields[i].value + strlen(fields[i].value) + 2; /* past CR LF */
        if (i + 1 < count ? fields[i + 1].name != after_line : *after_line != '\r')
            return false; /* a bare LF, or a line that begins with white space */
    }
    return true;
}

enum rl_rc head_check_path(const char *path, struct rl_err *err)
{
    if (!path || path[0] != '/')
        return rl_fail(err, RL_BAD_REQUEST, "the request target must begin with a slash");
    for (const char *p = path; *p; p++) {
        unsigned char c = (unsigned char)*p;
        bool forged = c == '%' && p[1] == '0' &&
                      (p[2] == '0' || p[2] == 'a' || p[2] == 'A' || p[2] == 'd' || p[2] == 'D');
        if (c < 0x21 || c == 0x7f || forged)
            return rl_fail(err, RL_BAD_REQUEST, "control character in the path");
    }
    return RL_OK;
}

bool head_keep_alive(const struct head_field *fields, size_t count, const char *http_version)
{
    const char *value = head_get(fields, count, "Connection", NULL);
    if (!value)
        return !strcmp(http_version, "1.1");
    for (const char *p = value; *p;) {
        p += strspn(p, ", \t");
        size_t len = strcspn(p, ", \t");
        if (len == 10 && !strncasecmp(p, "keep-alive", 10))
            return true;
        p += len;
    }
    return false;
}
