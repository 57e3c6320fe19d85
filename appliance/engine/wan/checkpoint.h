/* The bytes of a denoise checkpoint: which model and request it belongs to, how many steps are
 * done, the latents and the sampler's state, and a checksum over all of it. No state; any thread.
 */
#ifndef RL_ENGINE_WAN_CHECKPOINT_H
#define RL_ENGINE_WAN_CHECKPOINT_H

#include "base/crypto.h"
#include "base/rl.h"

#define CHECKPOINT_HEAD_BYTES 80
#define CHECKPOINT_TAIL_BYTES RL_HASH_BYTES

/* What a checkpoint must agree with before its steps count. */
struct checkpoint_key {
    uint8_t model[RL_HASH_BYTES], request[RL_HASH_BYTES];
};

/* bytes: CHECKPOINT_HEAD_BYTES, then payload_len bytes that are in place already, then room for the
 * tail. Fills in head and tail. */
void checkpoint_seal(const struct checkpoint_key *key, int step, uint8_t *bytes,
                     size_t payload_len);
/* The payload of an intact checkpoint of that key with that much payload and *ret_step; NULL, with
 * the reason in *ret_why, for any other bytes. */
const uint8_t *checkpoint_open(const struct checkpoint_key *key, const void *bytes, size_t len,
                               size_t payload_len, int *ret_step, const char **ret_why);

#endif
