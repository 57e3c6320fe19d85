/* The face over libsodium; the only file that includes <sodium.h>. Any thread once
 * rl_crypto_init has run. Nothing here keeps a secret longer than the call; hash states that saw
 * a key are wiped. */
#include "base/crypto.h"

#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <unistd.h>

_Static_assert(RL_SHA256_BYTES == crypto_hash_sha256_BYTES, "SHA-256 size");
_Static_assert(RL_SHA256_BYTES == crypto_auth_hmacsha256_BYTES, "HMAC size");

enum rl_rc rl_crypto_init(struct rl_err *err)
{
    if (sodium_init() < 0)
        return rl_fail(err, RL_INTERNAL, "libsodium does not start");
    return RL_OK;
}

void rl_random(void *bytes, size_t len)
{
    randombytes_buf(bytes, len);
}

uint32_t rl_random_below(uint32_t bound)
{
    return bound ? randombytes_uniform(bound) : 0;
}

void rl_hash(const void *bytes, size_t len, uint8_t out[RL_HASH_BYTES])
{
    (void)crypto_generichash(out, RL_HASH_BYTES, bytes, len, NULL, 0); /* sizes are legal */
}

void rl_sha256(const void *bytes, size_t len, uint8_t out[RL_SHA256_BYTES])
{
    (void)crypto_hash_sha256(out, bytes, len); /* always 0 */
}

struct rl_sha256 {
    crypto_hash_sha256_state state;
};

struct rl_sha256 *rl_sha256_new(void)
{
    struct rl_sha256 *sum = malloc(sizeof(*sum));

    if (sum)
        (void)crypto_hash_sha256_init(&sum->state); /* always 0, as update and final */
    return sum;
}

void rl_sha256_free(struct rl_sha256 *sum)
{
    free(sum);
}

void rl_sha256_add(struct rl_sha256 *sum, const void *bytes, size_t len)
{
    (void)crypto_hash_sha256_update(&sum->state, bytes, len);
}

void rl_sha256_end(struct rl_sha256 *sum, uint8_t out[RL_SHA256_BYTES])
{
    (void)crypto_hash_sha256_final(&sum->state, out);
    (void)crypto_hash_sha256_init(&sum->state);
}

enum rl_rc rl_sha256_file(const char *path, uint8_t out[RL_SHA256_BYTES], int64_t *ret_bytes,
                          struct rl_err *err)
{
    const size_t step = 1 << 20;
    crypto_hash_sha256_state state;
    int64_t total = 0;

    AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return rl_fail(err, RL_NOT_FOUND, "no file %s", path);
    if (fd < 0)
        return rl_fail_errno(err, "open", errno);
    AUTO_FREE uint8_t *chunk = malloc(step);
    if (!chunk)
        return rl_fail(err, RL_NO_MEMORY, "out of memory");

    (void)crypto_hash_sha256_init(&state); /* always 0, as update and final */
    for (;;) {
        ssize_t n = read(fd, chunk, step);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return rl_fail_errno(err, "read", errno);
        if (n == 0)
            break;
        (void)crypto_hash_sha256_update(&state, chunk, (size_t)n);
        total += n;
    }
    (void)crypto_hash_sha256_final(&state, out);
    *ret_bytes = total;
    return RL_OK;
}

void rl_hmac_sha256(const void *key, size_t key_len, const struct rl_bytes *parts, size_t n,
                    uint8_t out[RL_SHA256_BYTES])
{
    crypto_auth_hmacsha256_state state;

    (void)crypto_auth_hmacsha256_init(&state, key, key_len); /* always 0, as the others */
    for (size_t i = 0; i < n; i++) {
        if (parts[i].len)
            (void)crypto_auth_hmacsha256_update(&state, parts[i].data, parts[i].len);
    }
    (void)crypto_auth_hmacsha256_final(&state, out);
    sodium_memzero(&state, sizeof(state));
}

bool rl_equal(const void *a, const void *b, size_t len)
{
    return sodium_memcmp(a, b, len) == 0;
}

void rl_wipe(void *p, size_t len)
{
    sodium_memzero(p, len);
}

void rl_hex(const uint8_t *bytes, size_t len, char *out)
{
    (void)sodium_bin2hex(out, 2 * len + 1, bytes, len); /* returns out */
}

void rl_base64(const uint8_t *bytes, size_t len, bool url, char *out)
{
    int variant = url ? sodium_base64_VARIANT_URLSAFE_NO_PADDING : sodium_base64_VARIANT_ORIGINAL;

    (void)sodium_bin2base64(out, sodium_base64_encoded_len(len, variant), bytes, len,
                            variant); /* returns out */
}

bool rl_base64_decode(const char *text, bool url, uint8_t *out, size_t size, size_t *ret_len)
{
    int variant = url ? sodium_base64_VARIANT_URLSAFE_NO_PADDING : sodium_base64_VARIANT_ORIGINAL;
    size_t len = 0;

    if (sodium_base642bin(out, size, text, strlen(text), NULL, &len, NULL, variant) != 0)
        return false;
    *ret_len = len;
    return true;
}
