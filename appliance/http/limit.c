/* Token buckets, each as one number: when it will be full again (the generic cell rate algorithm,
 * ITU-T I.371). One mutex, held for a few loads; no allocation after the start. Invariants: the
 * table never grows; a bucket that is full is the same as none, so the one that is full again first
 * makes room; keys and addresses have tables of their own, so that a flood of addresses forgets no
 * key. Slots are found by a hash with a secret of this process: a client cannot choose its
 * neighbours. */
#include "http/limit.h"

#include <pthread.h>
#include <string.h>

#include "base/crypto.h"

#define WAYS 8 /* slots that a subject may use */

struct bucket {
    uint8_t id[LIMIT_ID_BYTES];
    int32_t kind;
    int64_t full_us; /* when it is full; in the past: it is full, and the slot is free */
};

struct limit {
    uint64_t secret[2];
    pthread_mutex_t lock; /* guards: keys, addresses */
    struct bucket keys[LIMIT_SLOTS], addresses[LIMIT_SLOTS];
};

struct limit *limit_new(void)
{
    struct limit *limit = calloc(1, sizeof(*limit));
    if (!limit)
        return NULL;
    rl_random(limit->secret, sizeof(limit->secret));
    (void)pthread_mutex_init(&limit->lock, NULL); /* cannot fail with default attributes */
    return limit;
}

void limit_free(struct limit *limit)
{
    if (!limit)
        return;
    (void)pthread_mutex_destroy(&limit->lock);
    free(limit);
}

static uint64_t mix(uint64_t x)
{
    x ^= x >> 32;
    x *= UINT64_C(0xd6e8feb86659fd93);
    x ^= x >> 32;
    x *= UINT64_C(0xd6e8feb86659fd93);
    return x ^ x >> 32;
}

/* The bucket of this subject, else NULL and the slot that it may have: of its WAYS the one that is
 * full first. */
static struct bucket *find_locked(struct limit *limit, enum limit_kind kind, const uint8_t *id,
                                  struct bucket **ret_slot)
{
    uint64_t half[2];
    memcpy(half, id, sizeof(half));
    uint64_t hash = mix(mix(half[0] ^ limit->secret[0]) ^ half[1] ^ limit->secret[1]) + kind;
    bool by_key = kind == LIMIT_SUBMITS || kind == LIMIT_READS;
    struct bucket *set = by_key ? limit->keys : limit->addresses;
    set += mix(hash) % (LIMIT_SLOTS / WAYS) * WAYS;
    struct bucket *first = set;
    for (int i = 0; i < WAYS; i++) {
        if (set[i].kind == (int32_t)kind && !memcmp(set[i].id, id, LIMIT_ID_BYTES))
            return &set[i];
        if (set[i].full_us < first->full_us)
            first = &set[i];
    }
    *ret_slot = first;
    return NULL;
}

static int64_t seconds_up(int64_t us)
{
    return us > 0 ? (us + 999999) / 1000000 : 0;
}

static void ask(struct limit *limit, enum limit_kind kind, const uint8_t *id,
                const struct limit_rule *rule, int64_t now_us, bool take,
                struct limit_answer *ret_answer)
{
    struct limit_answer answer = {.ok = true, .limit = rule->count};
    if (rule->count <= 0) {
        *ret_answer = answer;
        return;
    }
    int64_t step_us = rule->period_us / rule->count;
    step_us = step_us > 0 ? step_us : 1;
    (void)pthread_mutex_lock(&limit->lock);
    struct bucket *slot = NULL, *bucket = find_locked(limit, kind, id, &slot);
    int64_t full_us = bucket && bucket->full_us > now_us ? bucket->full_us : now_us;
    int64_t over_us = full_us + step_us - now_us - step_us * rule->count;
    answer.ok = over_us <= 0;
    if (answer.ok && take) {
        full_us += step_us;
        if (!bucket) {
            bucket = slot;
            bucket->kind = (int32_t)kind;
            memcpy(bucket->id, id, LIMIT_ID_BYTES);
        }
        bucket->full_us = full_us;
    }
    (void)pthread_mutex_unlock(&limit->lock);
    answer.remaining = rule->count - (full_us - now_us + step_us - 1) / step_us;
    answer.reset_s = seconds_up(full_us - now_us);
    answer.wait_s = seconds_up(over_us);
    *ret_answer = answer;
}

void limit_take(struct limit *limit, enum limit_kind kind, const uint8_t id[LIMIT_ID_BYTES],
                const struct limit_rule *rule, int64_t now_us, struct limit_answer *ret_answer)
{
    ask(limit, kind, id, rule, now_us, true, ret_answer);
}

void limit_look(struct limit *limit, enum limit_kind kind, const uint8_t id[LIMIT_ID_BYTES],
                const struct limit_rule *rule, int64_t now_us, struct limit_answer *ret_answer)
{
    ask(limit, kind, id, rule, now_us, false, ret_answer);
}
