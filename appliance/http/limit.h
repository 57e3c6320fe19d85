/* Request rates in memory: token buckets in a table of fixed size. */
#ifndef RL_HTTP_LIMIT_H
#define RL_HTTP_LIMIT_H

#include "base/rl.h"

struct limit; /* thread-safe */

/* What is counted; a subject has a bucket per kind. */
enum limit_kind { LIMIT_ADDRESS, LIMIT_FAILED, LIMIT_SUBMITS, LIMIT_READS, LIMIT_HOOKS };
#define LIMIT_SLOTS    2048 /* buckets of keys, and as many of addresses */
#define LIMIT_ID_BYTES 16

struct limit_rule {
    int64_t count;     /* requests in a period, also the burst; 0 = no limit */
    int64_t period_us; /* a bucket that is empty is full again after this */
};
struct limit_answer {
    bool ok;
    int64_t limit, remaining;
    int64_t reset_s; /* until the bucket is full, rounded up */
    int64_t wait_s;  /* until the next request may pass, rounded up; 0 when it passes now */
};

struct limit *limit_new(void); /* NULL when memory is short */
void limit_free(struct limit *limit);
/* Take one token, if there is one. now_us: a clock that does not run backwards. */
void limit_take(struct limit *limit, enum limit_kind kind, const uint8_t id[LIMIT_ID_BYTES],
                const struct limit_rule *rule, int64_t now_us, struct limit_answer *ret_answer);
/* The same without taking it. */
void limit_look(struct limit *limit, enum limit_kind kind, const uint8_t id[LIMIT_ID_BYTES],
                const struct limit_rule *rule, int64_t now_us, struct limit_answer *ret_answer);

#endif
