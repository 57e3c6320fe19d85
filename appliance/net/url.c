/* Checking and normalising outgoing URLs. No state, any thread. Parsing is libcurl's own parser,
 * so that what was checked is what is dialled; around it stand checks for the texts on which URL
 * parsers disagree (user names, extra slashes, percent-encoded hosts). */
#include "net/net.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <string.h>
#include <strings.h>

#define URL_MAX   2048
#define HOST_MAX  253 /* RFC 1035, without the final dot */
#define LABEL_MAX 63

static void url_free(CURLU **u)
{
    curl_url_cleanup(*u);
}

static void part_free(char **part)
{
    curl_free(*part);
}

#define AUTO_URL  __attribute__((cleanup(url_free)))
#define AUTO_PART __attribute__((cleanup(part_free)))

static enum rl_rc refuse(struct rl_err *err, const char *field, const char *why)
{
    return rl_fail_field(err, RL_INVALID_FIELD, field, "%s", why);
}

/* What can be said about the raw text, before any parser sees it; NULL when nothing is wrong. */
static const char *text_fault(const char *url)
{
    const char *rest = NULL;

    if (strnlen(url, URL_MAX + 1) > URL_MAX)
        return "longer than 2048 bytes";
    for (const unsigned char *p = (const unsigned char *)url; *p; p++)
        if (*p <= 0x20 || *p == 0x7f)
            return "contains a space or a control byte";
    if (strncasecmp(url, "http://", 7) == 0)
        rest = url + 7;
    else if (strncasecmp(url, "https://", 8) == 0)
        rest = url + 8;
    else
        return "must begin with http:// or https://";

    size_t authority = strcspn(rest, "/?#");
    if (authority == 0)
        return "has no host";
    for (size_t i = 0; i < authority; i++) {
        if (rest[i] == '@')
            return "must not contain a user name or password";
        if (rest[i] == '%' || rest[i] == '\\')
            return "the host contains a character that is not allowed";
        if ((unsigned char)rest[i] >= 0x80)
            return "the host must be ASCII (write an international name in its xn-- form)";
    }
    return NULL;
}

/* A host as libcurl returns it: "[v6]", dotted IPv4 or a name. Lower-cases it in place. */
static bool host_usable(char *host)
{
    size_t len = strlen(host);
    size_t label = 0;

    for (size_t i = 0; i < len; i++)
        if (host[i] >= 'A' && host[i] <= 'Z')
            host[i] = (char)(host[i] - 'A' + 'a');
    if (host[0] == '[') /* libcurl has parsed it; a zone would be a local matter */
        return len > 2 && host[len - 1] == ']' && strspn(host + 1, "0123456789abcdef:.") == len - 2;
    if (len > 0 && host[len - 1] == '.')
        len--;
    if (len == 0 || len > HOST_MAX)
        return false;
    for (size_t i = 0; i < len; i++) {
        if (host[i] == '.') {
            if (label == 0)
                return false;
            label = 0;
            continue;
        }
        bool fits = (host[i] >= 'a' && host[i] <= 'z') || (host[i] >= '0' && host[i] <= '9') ||
                    host[i] == '-' || host[i] == '_';
        if (!fits || ++label > LABEL_MAX)
            return false;
    }
    /* A last label of digits is an address or nothing (WHATWG URL, "ends in a number"): whether
     * "127.0.0.1." or "a.1" is a name, resolvers do not agree. */
    if (strspn(host + len - label, "0123456789") == label) {
        struct in_addr addr;
        return inet_pton(AF_INET, host, &addr) == 1;
    }
    return label > 0;
}

enum rl_rc net_url_check(const char *url, const char *field, char **ret_url, char *endpoint,
                         size_t endpoint_size, struct rl_err *err)
{
    const char *fault = text_fault(url);
    if (fault)
        return refuse(err, field, fault);

    AUTO_URL CURLU *u = curl_url();
    AUTO_PART char *scheme = NULL;
    AUTO_PART char *host = NULL;
    AUTO_PART char *port = NULL;
    AUTO_PART char *whole = NULL;
    if (!u)
        return rl_fail(err, RL_NO_MEMORY, "no memory for a URL");
    CURLUcode rc = curl_url_set(u, CURLUPART_URL, url, CURLU_DISALLOW_USER | CURLU_URLENCODE);
    if (rc == CURLUE_OUT_OF_MEMORY)
        return rl_fail(err, RL_NO_MEMORY, "no memory for a URL");
    if (rc)
        return refuse(err, field, curl_url_strerror(rc));
    if (curl_url_get(u, CURLUPART_SCHEME, &scheme, 0) ||
        curl_url_get(u, CURLUPART_HOST, &host, 0) ||
        curl_url_get(u, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT))
        return refuse(err, field, "is not a complete URL");
    if (!host_usable(host))
        return refuse(err, field, "the host is not a name or an address");
    if (strcmp(port, "0") == 0)
        return refuse(err, field, "port 0 cannot be reached");
    if (curl_url_set(u, CURLUPART_HOST, host, 0) || curl_url_set(u, CURLUPART_FRAGMENT, NULL, 0) ||
        curl_url_get(u, CURLUPART_URL, &whole, CURLU_NO_DEFAULT_PORT))
        return refuse(err, field, "cannot be written in its normal form");
    if (strlen(whole) > URL_MAX)
        return refuse(err, field, "longer than 2048 bytes in its normal form");

    AUTO_FREE char *copy = rl_strdup(whole);
    if (!copy)
        return rl_fail(err, RL_NO_MEMORY, "no memory for a URL");
    char place[NET_ENDPOINT_MAX];
    int n = snprintf(place, sizeof place, "%s://%s:%s", scheme, host, port);
    if (n < 0 || (size_t)n >= sizeof place || (endpoint && (size_t)n >= endpoint_size))
        return refuse(err, field, "the host is too long");
    if (endpoint)
        memcpy(endpoint, place, (size_t)n + 1);
    if (ret_url)
        *ret_url = STEAL(copy);
    return RL_OK;
}
