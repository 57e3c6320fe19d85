/* Hashes, MACs, random bytes, encodings: a thin face over libsodium (base/crypto.c is the only
 * file that sees <sodium.h>). Thread-safe after rl_crypto_init. */
#ifndef RL_BASE_CRYPTO_H
#define RL_BASE_CRYPTO_H

#include "base/rl.h"

#define RL_SHA256_BYTES 32
#define RL_HASH_BYTES   32 /* BLAKE2b-256 */

enum rl_rc rl_crypto_init(struct rl_err *err) RL_NODISCARD; /* once, before threads */
void rl_random(void *bytes, size_t len);
uint32_t rl_random_below(uint32_t bound);                                /* uniform in [0, bound) */
void rl_hash(const void *bytes, size_t len, uint8_t out[RL_HASH_BYTES]); /* BLAKE2b-256 */
void rl_sha256(const void *bytes, size_t len, uint8_t out[RL_SHA256_BYTES]);
/* SHA-256 and size of a file, read in 1 MiB steps. */
enum rl_rc rl_sha256_file(const char *path, uint8_t out[RL_SHA256_BYTES], int64_t *ret_bytes,
                          struct rl_err *err) RL_NODISCARD;

/* The same over bytes that come in pieces. NULL when memory is short. */
struct rl_sha256;
struct rl_sha256 *rl_sha256_new(void);
void rl_sha256_free(struct rl_sha256 *sum); /* NULL allowed */
void rl_sha256_add(struct rl_sha256 *sum, const void *bytes, size_t len);
/* The digest of all that was added; sum begins anew. */
void rl_sha256_end(struct rl_sha256 *sum, uint8_t out[RL_SHA256_BYTES]);

/* HMAC-SHA256 over parts[0..n) concatenated. key_len any (RFC 2104). */
struct rl_bytes {
    const void *data;
    size_t len;
};
void rl_hmac_sha256(const void *key, size_t key_len, const struct rl_bytes *parts, size_t n,
                    uint8_t out[RL_SHA256_BYTES]);
bool rl_equal(const void *a, const void *b, size_t len); /* constant time */
void rl_wipe(void *p, size_t len);

/* Encodings. Room: hex 2n+1, base64 4*((n+2)/3)+1. `url` = URL-safe alphabet without padding. */
void rl_hex(const uint8_t *bytes, size_t len, char *out);
void rl_base64(const uint8_t *bytes, size_t len, bool url, char *out);
/* Strict decode; false when not exactly that alphabet or longer than size. */
bool rl_base64_decode(const char *text, bool url, uint8_t *out, size_t size, size_t *ret_len);

#endif
