/* The face of the module: start and stop of libcurl, and one blocking exchange. net_init and
 * net_cleanup run on the main thread without others; net_call on any. No state of its own. */
#include "net/transfer.h"

#include <string.h>

enum rl_rc net_init(struct rl_err *err)
{
    if (curl_global_init(CURL_GLOBAL_DEFAULT))
        return rl_fail(err, RL_INTERNAL, "libcurl does not start");

    const curl_version_info_data *info = curl_version_info(CURLVERSION_NOW);
    int needed =
        CURL_VERSION_ASYNCHDNS | CURL_VERSION_SSL; /* else a time limit has no hold on DNS */
    if ((info->features & needed) != needed) {
        curl_global_cleanup();
        return rl_fail(err, RL_INTERNAL, "libcurl %s lacks TLS or an asynchronous resolver",
                       info->version);
    }
    return RL_OK;
}

void net_cleanup(void)
{
    curl_global_cleanup();
}

const char *net_version(void)
{
    return curl_version_info(CURLVERSION_NOW)->version;
}

void net_response_free(struct net_response *response)
{
    if (!response)
        return;
    free(response->body);
    response->body = NULL;
    response->body_len = 0;
}

enum rl_rc net_call(const struct net_request *request, struct net_response *ret_response)
{
    struct net_transfer *t = NULL;
    struct rl_err err = {0};
    enum rl_rc rc = net_transfer_new(request, &t, &err);

    if (rc) {
        *ret_response = (struct net_response){.rc = rc, .retry_after_s = -1};
        (void)rl_copy_str(ret_response->error, sizeof ret_response->error, err.reason); /* fits */
        return rc;
    }
    net_transfer_finish(t, curl_easy_perform(t->curl));
    *ret_response = t->response;
    t->response.body = NULL; /* handed over */
    net_transfer_free(t);
    return ret_response->rc;
}
