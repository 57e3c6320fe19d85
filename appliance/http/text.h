/* The small languages inside HTTP: queries, cookies, media types, hosts, dates, ETags. Pure text,
 * no CivetWeb. */
#ifndef RL_HTTP_TEXT_H
#define RL_HTTP_TEXT_H

#include "base/rl.h"

#define QUERY_PARAMS 16

/* A decoded query string; `text` owns what name and value point into. */
struct query {
    char *text;
    size_t count;
    struct {
        const char *name, *value;
    } params[QUERY_PARAMS];
};
/* Decode `raw` (NULL = empty). errors: RL_BAD_REQUEST (bad escape, NUL, not UTF-8, too many),
 * RL_INVALID_FIELD (a name twice), RL_NO_MEMORY. */
enum rl_rc query_parse(const char *raw, struct query *ret_query, struct rl_err *err) RL_NODISCARD;
void query_free(struct query *query);
#define AUTO_QUERY __attribute__((cleanup(query_free)))
const char *query_get(const struct query *query, const char *name); /* NULL: absent */
/* RL_INVALID_FIELD naming the first parameter that is not in the NULL-terminated list. */
enum rl_rc query_only(const struct query *query, const char *const *names, struct rl_err *err)
    RL_NODISCARD;

/* Value of a cookie inside one Cookie header; false when absent or longer than size. */
bool cookie_find(const char *header, const char *name, char *value, size_t size);
/* Credentials of "Bearer <token>" (scheme in any case), NULL when it is another scheme. Points into
 * header. */
const char *bearer_token(const char *header);
/* Is this media type application/json (charset absent or utf-8)? */
bool media_is_json(const char *content_type);
/* Does Accept-Encoding allow gzip (q not 0)? NULL: no. */
bool accepts_gzip(const char *accept_encoding);
/* 1..64 of [A-Za-z0-9._-]. */
bool request_id_valid(const char *text);
/* 1..255 visible ASCII characters. */
bool idempotency_key_valid(const char *text);
/* Does the authority of Origin ("scheme://host[:port]") equal the Host header? */
bool origin_matches(const char *origin, const char *host);

/* Whose Host headers pass: loopback names, the listen address (any IPv4 literal when that is
 * 0.0.0.0: rebinding needs a name), and the comma separated `allowed`. */
bool host_allowed(const char *host, const char *listen_ip, const char *allowed);
/* Name part of "name[:port]" / "[v6]:port" in lower case; false when malformed. */
bool host_name(const char *host, char *name, size_t size);

/* "Sun, 06 Nov 1994 08:49:37 GMT" into text[HTTP_DATE]. */
#define HTTP_DATE 32
void http_date_format(int64_t unix_s, char *text);
bool http_date_parse(const char *text, int64_t *ret_unix_s);

/* If-None-Match: does the list name `etag` (quoted, weak comparison) or is it "*"? NULL list: no.
 */
bool etag_listed(const char *list, const char *etag);

#endif
