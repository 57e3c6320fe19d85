/* Parsers for the small pieces of text that travel in a request's head. They own nothing but the
 * query copy, keep no state and run on any thread. Everything that does not parse exactly is
 * refused, never guessed. */
#include "http/text.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/json.h"

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* Decode %XX and + in place; false for a broken escape, NUL or text that is not UTF-8. */
static bool decode_in_place(char *text)
{
    char *out = text;
    for (const char *in = text; *in; in++) {
        if (*in == '+') {
            *out++ = ' ';
        } else if (*in == '%') {
            int high = hex_digit(in[1]);
            int low = high < 0 ? -1 : hex_digit(in[2]);
            if (low < 0 || (high == 0 && low == 0))
                return false;
            *out++ = (char)(high * 16 + low);
            in += 2;
        } else {
            *out++ = *in;
        }
    }
    *out = '\0';
    return rl_utf8_valid(text, (size_t)(out - text));
}

static enum rl_rc query_add(struct query *query, char *part, struct rl_err *err)
{
    char *value = strchr(part, '=');
    if (value)
        *value++ = '\0';
    else
        value = part + strlen(part);
    if (!decode_in_place(part) || (*value && !decode_in_place(value)))
        return rl_fail(err, RL_BAD_REQUEST, "the query string is not percent-encoded UTF-8");
    if (query_get(query, part))
        return rl_fail_field(err, RL_INVALID_FIELD, part, "this parameter is given twice");
    if (query->count == QUERY_PARAMS)
        return rl_fail(err, RL_BAD_REQUEST, "more than %d query parameters", QUERY_PARAMS);
    query->params[query->count].name = part;
    query->params[query->count++].value = value;
    return RL_OK;
}

enum rl_rc query_parse(const char *raw, struct query *ret_query, struct rl_err *err)
{
    struct query query = {0};
    if (raw && *raw) {
        query.text = rl_strdup(raw);
        if (!query.text)
            return rl_fail(err, RL_NO_MEMORY, "no memory for the query string");
        char *rest = query.text;
        while (rest) {
            char *part = strsep(&rest, "&");
            if (!*part)
                continue;
            enum rl_rc rc = query_add(&query, part, err);
            if (rc != RL_OK) {
                query_free(&query);
                return rc;
            }
        }
    }
    *ret_query = query;
    return RL_OK;
}

void query_free(struct query *query)
{
    free(query->text);
    *query = (struct query){0};
}

const char *query_get(const struct query *query, const char *name)
{
    for (size_t i = 0; i < query->count; i++)
        if (!strcmp(query->params[i].name, name))
            return query->params[i].value;
    return NULL;
}

enum rl_rc query_only(const struct query *query, const char *const *names, struct rl_err *err)
{
    for (size_t i = 0; i < query->count; i++) {
        const char *const *name = names;
        while (*name && strcmp(*name, query->params[i].name))
            name++;
        if (!*name)
            return rl_fail_field(err, RL_INVALID_FIELD, query->params[i].name,
                                 "no such query parameter");
    }
    return RL_OK;
}

bool cookie_find(const char *header, const char *name, char *value, size_t size)
{
    size_t name_len = strlen(name);
    for (const char *p = header; p && *p;) {
        while (*p == ' ' || *p == ';' || *p == '\t')
            p++;
        size_t len = strcspn(p, ";");
        if (len > name_len && !strncmp(p, name, name_len) && p[name_len] == '=') {
            const char *text = p + name_len + 1;
            size_t text_len = len - name_len - 1;
            while (text_len > 0 && (text[text_len - 1] == ' ' || text[text_len - 1] == '\t'))
                text_len--;
            if (text_len == 0 || text_len >= size)
                return false;
            memcpy(value, text, text_len);
            value[text_len] = '\0';
            return true;
        }
        p += len;
    }
    return false;
}

const char *bearer_token(const char *header)
{
    if (!header || strncasecmp(header, "Bearer", 6) != 0 || header[6] != ' ')
        return NULL;
    header += 6;
    while (*header == ' ')
        header++;
    return header;
}

/* The value of a parameter `name` after the media type, or NULL; len without quotes. */
static const char *media_param(const char *params, const char *name, size_t *ret_len)
{
    size_t name_len = strlen(name);
    for (const char *p = params; *p;) {
        while (*p == ';' || *p == ' ' || *p == '\t')
            p++;
        size_t len = strcspn(p, ";");
        if (len > name_len && !strncasecmp(p, name, name_len) && p[name_len] == '=') {
            const char *value = p + name_len + 1;
            size_t value_len = len - name_len - 1;
            while (value_len > 0 && (value[value_len - 1] == ' ' || value[value_len - 1] == '\t'))
                value_len--;
            if (value_len >= 2 && value[0] == '"' && value[value_len - 1] == '"') {
                value++;
                value_len -= 2;
            }
            *ret_len = value_len;
            return value;
        }
        p += len;
    }
    return NULL;
}

bool media_is_json(const char *content_type)
{
    static const char json[] = "application/json";
    if (!content_type || strncasecmp(content_type, json, sizeof(json) - 1) != 0)
        return false;
    const char *rest = content_type + sizeof(json) - 1;
    rest += strspn(rest, " \t");
    if (*rest && *rest != ';')
        return false;
    size_t len = 0;
    const char *charset = media_param(rest, "charset", &len);
    return !charset || (len == 5 && !strncasecmp(charset, "utf-8", 5));
}

bool accepts_gzip(const char *accept_encoding)
{
    for (const char *p = accept_encoding; p && *p;) {
        p += strspn(p, ", \t");
        size_t len = strcspn(p, ",");
        size_t name_len = strcspn(p, ",; \t");
        if ((name_len == 4 && !strncasecmp(p, "gzip", 4)) || (name_len == 1 && *p == '*')) {
            const char *q = memmem(p, len, "q=", 2);
            if (!q)
                return true;
            size_t zeros = strspn(q + 2, "0.");
            return q[2 + zeros] >= '1' && q[2 + zeros] <= '9';
        }
        p += len;
    }
    return false;
}

bool request_id_valid(const char *text)
{
    size_t len =
        text ? strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
             : 0;
    return len >= 1 && len <= 64 && text[len] == '\0';
}

bool idempotency_key_valid(const char *text)
{
    size_t len = 0;
    for (; text && text[len]; len++)
        if (text[len] < 0x21 || text[len] > 0x7e || len == 255)
            return false;
    return len >= 1;
}

bool origin_matches(const char *origin, const char *host)
{
    const char *authority = origin ? strstr(origin, "://") : NULL;
    return authority && host && *host && !strcasecmp(authority + 3, host);
}

bool host_name(const char *host, char *name, size_t size)
{
    size_t len;
    if (*host == '[') {
        len = strcspn(host, "]");
        if (host[len] != ']')
            return false;
        len++;
    } else {
        len = strcspn(host, ":");
    }
    const char *port = host + len;
    if (*port == ':') {
        size_t digits = strspn(port + 1, "0123456789");
        if (digits == 0 || digits > 5 || port[1 + digits])
            return false;
    } else if (*port) {
        return false;
    }
    if (len == 0 || len >= size)
        return false;
    for (size_t i = 0; i < len; i++) {
        char c = host[i];
        bool ok = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                  c == '.' || c == '-' || c == '_' || c == '[' || c == ']' || c == ':';
        if (!ok)
            return false;
        name[i] = c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
    }
    name[len] = '\0';
    return true;
}

/* One dot at the end of a fully qualified name means the same name. */
static bool same_name(const char *name, const char *other, size_t other_len)
{
    size_t len = strlen(name);
    if (len > 1 && name[len - 1] == '.')
        len--;
    return len == other_len && !strncasecmp(name, other, len);
}

bool host_allowed(const char *host, const char *listen_ip, const char *allowed)
{
    char name[256];
    if (!host || !host_name(host, name, sizeof(name)))
        return false;
    if (same_name(name, "localhost", 9) || !strcmp(name, "[::1]"))
        return true;
    struct in_addr addr;
    if (inet_pton(AF_INET, name, &addr) == 1) {
        if ((ntohl(addr.s_addr) >> 24) == 127 || !strcmp(listen_ip, "0.0.0.0") ||
            !strcmp(listen_ip, name))
            return true;
    }
    for (const char *p = allowed; *p;) {
        p += strspn(p, ", \t");
        size_t len = strcspn(p, ", \t");
        if (len > 0 && same_name(name, p, len))
            return true;
        p += len;
    }
    return false;
}

static const char day_names[7][4] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
static const char month_names[12][4] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                        "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};

void http_date_format(int64_t unix_s, char *text)
{
    time_t t = (time_t)unix_s;
    struct tm tm;
    if (!gmtime_r(&t, &tm) || tm.tm_year < -1900 || tm.tm_year > 8099) {
        t = 0;
        (void)gmtime_r(&t, &tm); /* the epoch always converts */
    }
    int n =
        snprintf(text, HTTP_DATE, "%s, %02d %s %04d %02d:%02d:%02d GMT", day_names[tm.tm_wday % 7],
                 tm.tm_mday % 100, month_names[tm.tm_mon % 12], (tm.tm_year + 1900) % 10000,
                 tm.tm_hour % 100, tm.tm_min % 100, tm.tm_sec % 100);
    if (n < 0 || n >= HTTP_DATE)
        text[0] = '\0';
}

bool http_date_parse(const char *text, int64_t *ret_unix_s)
{
    struct tm tm = {0};
    char month[4], end[4];
    int used = 0;
    if (!text || strlen(text) != 29)
        return false;
    if (sscanf(text + 3, ", %2d %3[A-Za-z] %4d %2d:%2d:%2d %3[GMT]%n", &tm.tm_mday, month,
               &tm.tm_year, &tm.tm_hour, &tm.tm_min, &tm.tm_sec, end, &used) != 7 ||
        used != 26 || strcmp(end, "GMT") != 0)
        return false;
    tm.tm_mon = -1;
    for (int i = 0; i < 12; i++)
        if (!strcmp(month, month_names[i]))
            tm.tm_mon = i;
    if (tm.tm_mon < 0 || tm.tm_mday < 1 || tm.tm_mday > 31 || tm.tm_hour > 23 || tm.tm_min > 59 ||
        tm.tm_sec > 60)
        return false;
    tm.tm_year -= 1900;
    *ret_unix_s = (int64_t)timegm(&tm);
    return true;
}

bool etag_listed(const char *list, const char *etag)
{
    size_t etag_len = strlen(etag);
    for (const char *p = list; p && *p;) {
        p += strspn(p, ", \t");
        if (*p == '*')
            return true;
        if (p[0] == 'W' && p[1] == '/')
            p += 2;
        if (*p != '"')
            return false;
        const char *close = strchr(p + 1, '"');
        if (!close)
            return false;
        size_t len = (size_t)(close - p) + 1;
        if (len == etag_len && !memcmp(p, etag, len))
            return true;
        p += len;
    }
    return false;
}
