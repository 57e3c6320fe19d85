/* Outgoing URLs, address policies and addresses of any bytes: a normalised URL is its own normal
 * form with the same endpoint; what a policy says of an address written in a URL is what it says of
 * the binary address that would be dialled; the forbidden ones pass no list. */
#include "fuzz.h"

#include "net/net.h"
#include "net/policy.h"

#include <arpa/inet.h>
#include <netinet/in.h>

enum { URL, LIST, TEXTS };

/* The host of "scheme://host:port" as a binary address; false: a name. */
static bool dialled(const char *endpoint, struct sockaddr_storage *addr)
{
    struct sockaddr_in *in = (struct sockaddr_in *)addr;
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)addr;
    char host[320];
    const char *from = strstr(endpoint, "://"), *colon = strrchr(endpoint, ':');

    require(from && colon && colon > from + 3);
    from += 3;
    uint16_t port = htons((uint16_t)atoi(colon + 1));
    bool v6 = *from == '[';
    (void)snprintf(host, sizeof host, "%.*s", (int)(colon - from) - 2 * v6,
                   from + v6); /* a name may be cut */
    memset(addr, 0, sizeof *addr);
    if (v6) {
        in6->sin6_family = AF_INET6;
        in6->sin6_port = port;
        require(inet_pton(AF_INET6, host, &in6->sin6_addr) == 1);
        return true;
    }
    in->sin_family = AF_INET;
    in->sin_port = port;
    return inet_pton(AF_INET, host, &in->sin_addr) == 1;
}

static void check_policy(const struct net_policy *policy, const char *endpoint)
{
    struct sockaddr_storage addr;
    struct rl_err err = {0};
    enum rl_rc rc = net_policy_check(policy, endpoint, "url", &err);

    require(rc == RL_OK || (rc == RL_INVALID_FIELD && *err.reason));
    if (!dialled(endpoint, &addr)) {
        require(rc == RL_OK);
        return;
    }
    const struct sockaddr *at = (const struct sockaddr *)&addr;
    require(net_policy_allows(policy, endpoint, at) == (rc == RL_OK));
    if (net_addr_is_link_local(at) || net_addr_is_unspecified_or_multicast(at))
        require(rc != RL_OK);
}

static void check_url(const char *text, const struct net_policy *policy)
{
    char endpoint[320], again[320], *url = NULL, *same = NULL;
    struct rl_err err = {0};
    enum rl_rc rc = net_url_check(text, "url", &url, endpoint, sizeof endpoint, &err);

    require((rc == RL_OK) == (url != NULL));
    require(rc == RL_OK || (rc == RL_INVALID_FIELD && *err.reason));
    if (rc)
        return;
    for (const char *p = url; *p; p++)
        require(*p > 0x20 && *p < 0x7f);
    require(net_url_check(url, "url", &same, again, sizeof again, &err) == RL_OK);
    require(strcmp(url, same) == 0 && strcmp(endpoint, again) == 0);
    if (policy)
        check_policy(policy, endpoint);
    free(url);
    free(same);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct net_policy *policy = NULL;
    struct rl_err err = {0};
    char *texts[TEXTS];

    if (size < 1)
        return 0;
    fuzz_texts(data + 1, size - 1, texts, TEXTS);
    enum rl_rc rc =
        net_policy_new("list", texts[LIST] ? texts[LIST] : "", (enum net_public)(data[0] % 3),
                       data[0] & 4 ? NULL : "callback.loopback", &policy, &err);
    require((rc == RL_OK) == (policy != NULL));
    require(rc == RL_OK || rc == RL_INVALID_FIELD);
    if (texts[URL])
        check_url(texts[URL], policy);
    net_policy_free(policy);
    fuzz_texts_free(texts, TEXTS);
    return 0;
}
