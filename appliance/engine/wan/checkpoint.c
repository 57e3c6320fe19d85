/* Little-endian: magic[4], version[4], model[32], request[32], step[4], zero[4], the payload, then
 * BLAKE2b-256 of all that. The payload is f32 as this machine holds it: a checkpoint stays on its
 * machine. */
#include "engine/wan/checkpoint.h"

#include <string.h>

#define MAGIC      "RLWN"
#define VERSION    1
#define AT_VERSION 4
#define AT_MODEL   8
#define AT_REQUEST (AT_MODEL + RL_HASH_BYTES)
#define AT_STEP    (AT_REQUEST + RL_HASH_BYTES)

_Static_assert(AT_STEP + 8 == CHECKPOINT_HEAD_BYTES, "the head is what the header says");

static void put(uint8_t *at, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        at[i] = (uint8_t)(v >> (8 * i));
}

static uint32_t get(const uint8_t *at)
{
    uint32_t v = 0;
    for (int i = 3; i >= 0; i--)
        v = v << 8 | at[i];
    return v;
}

void checkpoint_seal(const struct checkpoint_key *key, int step, uint8_t *bytes, size_t payload_len)
{
    memset(bytes, 0, CHECKPOINT_HEAD_BYTES);
    memcpy(bytes, MAGIC, 4);
    put(bytes + AT_VERSION, VERSION);
    memcpy(bytes + AT_MODEL, key->model, RL_HASH_BYTES);
    memcpy(bytes + AT_REQUEST, key->request, RL_HASH_BYTES);
    put(bytes + AT_STEP, (uint32_t)step);
    rl_hash(bytes, CHECKPOINT_HEAD_BYTES + payload_len,
            bytes + CHECKPOINT_HEAD_BYTES + payload_len);
}

const uint8_t *checkpoint_open(const struct checkpoint_key *key, const void *bytes, size_t len,
                               size_t payload_len, int *ret_step, const char **ret_why)
{
    const uint8_t *b = bytes;
    uint8_t sum[RL_HASH_BYTES];
    size_t sealed = CHECKPOINT_HEAD_BYTES + payload_len;
    if (len < CHECKPOINT_HEAD_BYTES || memcmp(b, MAGIC, 4) != 0)
        *ret_why = "not one of this engine";
    else if (get(b + AT_VERSION) != VERSION)
        *ret_why = "another version";
    else if (memcmp(b + AT_MODEL, key->model, RL_HASH_BYTES) != 0)
        *ret_why = "another model";
    else if (memcmp(b + AT_REQUEST, key->request, RL_HASH_BYTES) != 0)
        *ret_why = "another request";
    else if (len != sealed + CHECKPOINT_TAIL_BYTES)
        *ret_why = "another length";
    else {
        rl_hash(b, sealed, sum);
        *ret_why = memcmp(sum, b + sealed, sizeof sum) != 0 ? "damaged" : NULL;
    }
    if (*ret_why)
        return NULL;
    *ret_step = (int)get(b + AT_STEP);
    return b + CHECKPOINT_HEAD_BYTES;
}
