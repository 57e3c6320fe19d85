/* One HTTP exchange: how a libcurl handle is set up, what its callbacks allow, and how its end
 * becomes a net_response. Runs on whichever thread drives the handle; no state outside it.
 * Invariants: every socket is opened by open_socket, which asks `allow` about the binary address
 * that is dialled (so neither a spelling of a host nor a changing name gets past it), and no
 * connection is ever reused; no proxy, netrc, cookie or other scheme is followed, and a redirect
 * only as often as the request says; memory is bounded by response_limit + HEADERS_MAX whatever the
 * peer sends. */
#include "net/transfer.h"

#include "base/clock.h"

#include <ctype.h>
#include <limits.h>
#include <netdb.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#define HEADERS_MAX        ((size_t)64 << 10)
#define DROP_MAX           ((size_t)1 << 20)
#define CONNECT_TIMEOUT_MS 30000
#define RETRY_AFTER_MAX_S  86400
#define TOKEN_PUNCTUATION  "!#$%&'*+-.^_`|~" /* RFC 9110, section 5.6.2 */
#define DEFAULT_USER_AGENT "reeld/" REELD_VERSION

static void address_text(const struct sockaddr *addr, socklen_t len, char *text, size_t size)
{
    if (getnameinfo(addr, len, text, (socklen_t)size, NULL, 0, NI_NUMERICHOST) != 0)
        (void)rl_copy_str(text, size, "unknown"); /* fits */
}

/* CURLOPT_OPENSOCKETFUNCTION: after name resolution, once per address that is tried. */
static curl_socket_t open_socket(void *user, curlsocktype purpose, struct curl_sockaddr *addr)
{
    struct net_transfer *t = user;
    socklen_t len = addr->addrlen <= sizeof(struct sockaddr_storage)
                        ? (socklen_t)addr->addrlen
                        : (socklen_t)sizeof(struct sockaddr_storage);
    /* libcurl keeps a sockaddr_storage's worth of room behind `addr` */
    const struct sockaddr *sa = &addr->addr;
    bool inet = addr->family == AF_INET || addr->family == AF_INET6;

    if (purpose != CURLSOCKTYPE_IPCXN || !inet || (t->allow && !t->allow(t->user, sa))) {
        t->refused = true;
        address_text(sa, len, t->refused_ip, sizeof t->refused_ip);
        return CURL_SOCKET_BAD;
    }
    int fd = socket(addr->family, addr->socktype | SOCK_CLOEXEC, addr->protocol);
    if (fd < 0)
        return CURL_SOCKET_BAD;
    t->dialled = true;
    address_text(sa, len, t->last_ip, sizeof t->last_ip);
    return fd;
}

/* CURLOPT_HEADERFUNCTION: only counts; the fields are read at the end by curl_easy_header. */
static size_t on_header(char *bytes, size_t size, size_t n, void *user)
{
    struct net_transfer *t = user;

    (void)bytes; /* libcurl keeps them */
    t->header_bytes += size * n;
    if (t->header_bytes > HEADERS_MAX) {
        t->headers_too_large = true;
        return 0;
    }
    return size * n;
}

/* 0 until the answer has begun: a 1xx is none. */
static int status_of(const struct net_transfer *t)
{
    long status = 0;

    (void)curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &status); /* 0 when unknown */
    return status >= 200 ? (int)status : 0;
}

static bool is_success(int status)
{
    return status >= 200 && status <= 299;
}

/* Value of a field of the final header block (not a 1xx, not a trailer), or NULL. */
static const char *header_value(const struct net_transfer *t, const char *name)
{
    struct curl_header *h = NULL;

    if (curl_easy_header(t->curl, name, 0, CURLH_HEADER, -1, &h) != CURLHE_OK)
        return NULL;
    return h->value;
}

/* The first bytes of a 2xx body are here: tell of its head. */
static bool begin(struct net_transfer *t)
{
    curl_off_t length = -1;
    struct net_head head = {.status = status_of(t),
                            .etag = header_value(t, "ETag"),
                            .content_range = header_value(t, "Content-Range")};

    if (curl_easy_getinfo(t->curl, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length))
        length = -1;
    head.length = length;
    t->begun = true;
    return !t->begin || t->begin(t->user, &head);
}

/* CURLOPT_XFERINFOFUNCTION. Not 0 ends the transfer. */
static int on_tick(void *user, curl_off_t total, curl_off_t now, curl_off_t up_total, curl_off_t up)
{
    struct net_transfer *t = user;

    (void)total, (void)now, (void)up_total, (void)up; /* the sink counts */
    if (!t->stopped && !t->tick(t->user))
        t->stopped = true;
    return t->stopped;
}

/* CURLOPT_WRITEFUNCTION. Returning less than was given ends the transfer. */
static size_t on_body(char *bytes, size_t size, size_t n, void *user)
{
    struct net_transfer *t = user;
    size_t len = size * n;

    if (t->sink && is_success(status_of(t))) {
        t->stopped = (!t->begun && !begin(t)) || !t->sink(t->user, bytes, len);
        return t->stopped ? 0 : len;
    }
    size_t room = t->body.limit - t->body.len;
    size_t keep = len < room ? len : room;
    rl_buf_append(&t->body, bytes, keep);
    if (t->body.failed) {
        t->no_memory = true;
        return 0;
    }
    t->dropped_bytes += len - keep;
    return t->dropped_bytes > DROP_MAX ? 0 : len;
}

static bool is_token(const char *s, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)s[i]) && !strchr(TOKEN_PUNCTUATION, s[i]))
            return false;
    return len > 0;
}

/* libcurl sends header lines as they are, CR and LF included: refuse them here. */
static bool header_usable(const char *line)
{
    size_t name = strcspn(line, ":");

    if (line[name] != ':' || !is_token(line, name))
        return false;
    for (const unsigned char *p = (const unsigned char *)line + name; *p; p++)
        if ((*p < 0x20 && *p != '\t') || *p == 0x7f)
            return false;
    return true;
}

static bool append_header(struct net_transfer *t, const char *line)
{
    struct curl_slist *grown = curl_slist_append(t->headers, line);

    if (grown)
        t->headers = grown;
    return grown != NULL;
}

static enum rl_rc set_headers(struct net_transfer *t, const struct net_request *request,
                              struct rl_err *err)
{
    bool has_type = false;
    bool ok = append_header(t, "Expect:"); /* no 100-continue round trip */

    for (size_t i = 0; request->headers && request->headers[i]; i++) {
        const char *line = request->headers[i];
        if (!header_usable(line))
            return rl_fail_field(err, RL_INVALID_FIELD, "headers",
                                 "header %zu is not \"Name: value\" without control bytes", i);
        has_type = has_type || strncasecmp(line, "Content-Type:", 13) == 0;
        ok = ok && append_header(t, line);
    }
    if (!has_type) /* else libcurl claims a form */
        ok = ok && append_header(t, "Content-Type:");
    if (!ok || curl_easy_setopt(t->curl, CURLOPT_HTTPHEADER, t->headers))
        return rl_fail(err, RL_NO_MEMORY, "no memory for a request");
    return RL_OK;
}

static long clamp_ms(int64_t ms)
{
    if (ms <= 0)
        return 0;
    return ms < INT_MAX ? (long)ms : INT_MAX;
}

/* A failed setopt is remembered in rc, so that a libcurl that lacks an option refuses to run
 * instead of running without the guard. */
#define SET(option, value)                                                                         \
    do {                                                                                           \
        if (rc == CURLE_OK)                                                                        \
            rc = curl_easy_setopt(t->curl, option, value);                                         \
    } while (0)

static CURLcode set_guards(struct net_transfer *t)
{
    CURLcode rc = CURLE_OK;

    SET(CURLOPT_OPENSOCKETFUNCTION, open_socket);
    SET(CURLOPT_OPENSOCKETDATA, t);
    SET(CURLOPT_FRESH_CONNECT, 1L); /* open_socket is not called for a reused connection */
    SET(CURLOPT_FORBID_REUSE, 1L);
    SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1); /* nor for a multiplexed one */
    SET(CURLOPT_HTTP09_ALLOWED, 0L);
    SET(CURLOPT_DNS_CACHE_TIMEOUT, 0L); /* every attempt sees the present address */
    SET(CURLOPT_PROXY, "");             /* with NOPROXY: nothing from the environment */
    SET(CURLOPT_NOPROXY, "*");
    SET(CURLOPT_PROTOCOLS_STR, "http,https");
    SET(CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
    SET(CURLOPT_FOLLOWLOCATION, 0L);
    SET(CURLOPT_DISALLOW_USERNAME_IN_URL, 1L);
    SET(CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
    SET(CURLOPT_SSL_VERIFYPEER, 1L);
    SET(CURLOPT_SSL_VERIFYHOST, 2L);
    SET(CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    SET(CURLOPT_NOSIGNAL, 1L);
    /* Without this the end of one transfer waits for its resolver thread, and with it every other
     * transfer of the same multi handle. The thread frees its own data when it comes back. */
    SET(CURLOPT_QUICK_EXIT, 1L);
    return rc;
}

static CURLcode set_request(struct net_transfer *t, const struct net_request *request)
{
    CURLcode rc = CURLE_OK;
    long connect_ms = clamp_ms(request->connect_timeout_ms);
    bool post = strcmp(request->method, "POST") == 0;

    SET(CURLOPT_URL, request->url);
    if (request->body || post) {
        SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)(request->body ? request->body_len : 0));
        SET(CURLOPT_COPYPOSTFIELDS, request->body ? (const char *)request->body : "");
    } else if (strcmp(request->method, "HEAD") == 0) {
        SET(CURLOPT_NOBODY, 1L);
    } else {
        SET(CURLOPT_HTTPGET, 1L);
    }
    SET(CURLOPT_CUSTOMREQUEST, request->method);
    SET(CURLOPT_USERAGENT, DEFAULT_USER_AGENT);
    SET(CURLOPT_TIMEOUT_MS, clamp_ms(request->timeout_ms));
    SET(CURLOPT_CONNECTTIMEOUT_MS, connect_ms ? connect_ms : CONNECT_TIMEOUT_MS);
    if (request->redirects > 0) {
        SET(CURLOPT_FOLLOWLOCATION, 1L);
        SET(CURLOPT_MAXREDIRS, (long)request->redirects);
        if (strncasecmp(request->url, "https:", 6) == 0)
            SET(CURLOPT_REDIR_PROTOCOLS_STR, "https");
    }
    if (request->stall_timeout_ms > 0) {
        SET(CURLOPT_LOW_SPEED_LIMIT, 1L);
        SET(CURLOPT_LOW_SPEED_TIME, clamp_ms(request->stall_timeout_ms + 999) / 1000);
    }
    if (request->tick) {
        SET(CURLOPT_XFERINFOFUNCTION, on_tick);
        SET(CURLOPT_XFERINFODATA, t);
        SET(CURLOPT_NOPROGRESS, 0L);
    }
    SET(CURLOPT_TCP_KEEPALIVE, 1L); /* a stream without a time limit notices a dead peer */
    SET(CURLOPT_HEADERFUNCTION, on_header);
    SET(CURLOPT_HEADERDATA, t);
    SET(CURLOPT_WRITEFUNCTION, on_body);
    SET(CURLOPT_WRITEDATA, t);
    SET(CURLOPT_ERRORBUFFER, t->curl_error);
    SET(CURLOPT_PRIVATE, t);
    return rc;
}

#undef SET

enum rl_rc net_transfer_new(const struct net_request *request, struct net_transfer **ret_transfer,
                            struct rl_err *err)
{
    if (!is_token(request->method, strlen(request->method)))
        return rl_fail_field(err, RL_INVALID_FIELD, "method", "not an HTTP method");

    struct net_transfer *t = calloc(1, sizeof *t);
    enum rl_rc rc = RL_NO_MEMORY;
    if (t)
        t->curl = curl_easy_init();
    if (!t || !t->curl) {
        (void)rl_fail(err, RL_NO_MEMORY, "no memory for a request");
        goto out;
    }
    rl_buf_init(&t->body, request->response_limit);
    t->response.retry_after_s = -1;
    t->allow = request->allow;
    t->sink = request->sink;
    t->begin = request->begin;
    t->tick = request->tick;
    t->user = request->user;
    CURLcode set = set_guards(t);
    if (!set)
        set = set_request(t, request);
    if (set) {
        rc = set == CURLE_OUT_OF_MEMORY ? RL_NO_MEMORY : RL_INTERNAL;
        (void)rl_fail(err, rc, "cannot set up a request: %s", curl_easy_strerror(set));
        goto out;
    }
    rc = set_headers(t, request, err);
    if (rc)
        goto out;
    *ret_transfer = STEAL(t);
out:
    net_transfer_free(t);
    return rc;
}

void net_transfer_free(struct net_transfer *t)
{
    if (!t)
        return;
    curl_easy_cleanup(t->curl);
    curl_slist_free_all(t->headers);
    rl_buf_free(&t->body);
    net_response_free(&t->response);
    free(t);
}

/* Text from outside as one line of printable ASCII, cut to fit. */
static void copy_printable(char *dst, size_t size, const char *src)
{
    size_t i = 0;

    for (; src[i] && i + 1 < size; i++)
        dst[i] = src[i] >= 0x20 && src[i] < 0x7f ? src[i] : '?';
    dst[i] = '\0';
}

/* RFC 9110, section 10.2.3: a number of seconds or an HTTP date. -1 when it is neither. */
static int64_t parse_retry_after(const char *value)
{
    int64_t seconds = 0;

    if (isdigit((unsigned char)value[0])) {
        for (; isdigit((unsigned char)*value); value++)
            if (seconds <= RETRY_AFTER_MAX_S)
                seconds = seconds * 10 + (*value - '0');
        if (value[strspn(value, " \t")] != '\0')
            return -1;
    } else {
        time_t date = isalpha((unsigned char)value[0]) ? curl_getdate(value, NULL) : -1;
        if (date < 0)
            return -1;
        seconds = (int64_t)date - rl_wall_ms() / 1000;
    }
    if (seconds < 0)
        return 0;
    return seconds < RETRY_AFTER_MAX_S ? seconds : RETRY_AFTER_MAX_S;
}

static enum rl_rc classify(const struct net_transfer *t, CURLcode result)
{
    if (t->stopped)
        return RL_CANCELED;
    if (t->no_memory || result == CURLE_OUT_OF_MEMORY)
        return RL_NO_MEMORY;
    /* Everything that is kept has arrived: how the rest ended tells nothing about the request. */
    if (result == CURLE_OK || t->dropped_bytes > 0)
        return RL_OK;
    if (t->refused && !t->dialled)
        return RL_ADDRESS_REFUSED;
    if (result == CURLE_OPERATION_TIMEDOUT)
        return RL_REQUEST_TIMEOUT;
    if (!t->dialled && (result == CURLE_URL_MALFORMAT || result == CURLE_UNSUPPORTED_PROTOCOL ||
                        result == CURLE_LOGIN_DENIED))
        return RL_INVALID_FIELD; /* later the same codes speak of the answer */
    return RL_NETWORK_ERROR;
}

static void describe(const struct net_transfer *t, CURLcode result, struct net_response *r)
{
    char text[sizeof r->error];
    const char *why = t->curl_error[0] ? t->curl_error : curl_easy_strerror(result);

    if (t->stopped)
        why = "stopped by the receiver of the body";
    else if (t->headers_too_large)
        why = "the answer's headers are larger than 64 KiB";
    else if (r->rc == RL_ADDRESS_REFUSED) {
        (void)snprintf(text, sizeof text, "address %s is refused", t->refused_ip); /* fits */
        why = text;
    }
    copy_printable(r->error, sizeof r->error, why);
}

void net_transfer_finish(struct net_transfer *t, CURLcode result)
{
    struct net_response *r = &t->response;
    const char *primary = NULL;
    const char *value = NULL;
    curl_off_t total_us = 0;

    r->status = status_of(t);
    r->truncated = t->dropped_bytes > 0;
    r->redirect_refused = result == CURLE_TOO_MANY_REDIRECTS ||
                          (result == CURLE_UNSUPPORTED_PROTOCOL && r->status >= 300);
    r->rc = classify(t, result);
    r->body_len = t->body.len;
    r->body = rl_buf_take(&t->body);
    if (!r->body) {
        r->body_len = 0;
        r->rc = RL_NO_MEMORY;
    }
    if (!t->dialled || curl_easy_getinfo(t->curl, CURLINFO_PRIMARY_IP, &primary) || !primary ||
        !primary[0])
        primary = t->last_ip;
    (void)rl_copy_str(r->ip, sizeof r->ip, primary); /* an address fits */
    if (curl_easy_getinfo(t->curl, CURLINFO_TOTAL_TIME_T, &total_us) == CURLE_OK)
        r->duration_ms = total_us / 1000;
    if ((value = header_value(t, "Location")))
        copy_printable(r->location, sizeof r->location, value);
    if ((value = header_value(t, "Content-Type")))
        copy_printable(r->content_type, sizeof r->content_type, value);
    if ((value = header_value(t, "Retry-After")))
        r->retry_after_s = parse_retry_after(value);
    if (r->rc != RL_OK)
        describe(t, result, r);
}
