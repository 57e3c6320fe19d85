/* The bundled page and the API description, from memory. The tables are generated at build time and
 * read-only. Runs on the worker. Invariant: a path is served only when it is in the table, byte for
 * byte. */
#include "http/request.h"

#include <string.h>

#include "openapi_json.h" /* generated from schema/openapi.yaml */
#include "web_assets.h"   /* generated from web/ */

#define PAGE_CSP                                                                                   \
    "default-src 'self'; img-src 'self' data:; media-src 'self' blob:; style-src 'self'; "         \
    "script-src 'self'; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; "             \
    "form-action 'self'"

static const struct web_asset *find_asset(const char *path)
{
    for (size_t i = 0; i < web_asset_count; i++)
        if (!strcmp(web_assets[i].path, path))
            return &web_assets[i];
    return NULL;
}

static enum rl_rc send_asset(struct request *r, const struct web_asset *asset)
{
    bool zipped = asset->gzip_len > 0 && accepts_gzip(request_header(r, "Accept-Encoding"));
    struct reply reply = {.status = 200,
                          .type = asset->type,
                          .bytes = zipped ? asset->gzip : asset->bytes,
                          .len = zipped ? asset->gzip_len : asset->len,
                          .cache =
                              asset->immutable ? "public, max-age=31536000, immutable" : "no-cache",
                          .csp = PAGE_CSP};
    char bare[80], etag[96];
    size_t len = strlen(asset->etag);
    bool quoted = len >= 2 && asset->etag[0] == '"';
    int n =
        snprintf(bare, sizeof(bare), "%.*s", (int)(quoted ? len - 2 : len), asset->etag + quoted);
    if (n > 0 && (size_t)n < sizeof(bare)) {
        /* Two encodings of one thing are two representations: each has its own tag. */
        n = snprintf(etag, sizeof(etag), "\"%s%s\"", bare, zipped ? "-gz" : "");
        if (n > 0 && (size_t)n < sizeof(etag)) {
            reply_header(r, "ETag", "%s", etag);
            if (etag_listed(request_header(r, "If-None-Match"), etag))
                reply = (struct reply){.status = 304, .cache = reply.cache, .csp = PAGE_CSP};
        }
    }
    if (asset->gzip_len > 0)
        reply_header(r, "Vary", "Accept-Encoding");
    if (zipped && reply.status == 200)
        reply_header(r, "Content-Encoding", "gzip");
    return reply_send(r, &reply);
}

enum rl_rc http_asset(struct request *r, bool *ret_known, struct rl_err *err)
{
    const struct web_asset *asset = find_asset(r->path);
    *ret_known = asset != NULL;
    if (!asset)
        return RL_OK;
    if (strcmp(r->method, "GET") != 0 && !r->head) {
        reply_header(r, "Allow", "GET, HEAD");
        return rl_fail(err, RL_METHOD_NOT_ALLOWED, "GET or HEAD only");
    }
    return send_asset(r, asset);
}

enum rl_rc http_index(struct request *r, struct rl_err *err)
{
    const struct web_asset *asset = find_asset("/index.html");
    if (!asset)
        asset = find_asset("/");
    if (!asset)
        return rl_fail(err, RL_NOT_FOUND, "this build holds no page");
    return send_asset(r, asset);
}

enum rl_rc http_openapi(struct request *r, struct rl_err *err)
{
    (void)err; /* cannot fail */
    return reply_send(r, &(struct reply){.status = 200,
                                         .type = "application/json",
                                         .bytes = openapi_json,
                                         .len = sizeof(openapi_json),
                                         .cache = "no-cache"});
}
