/* The outbox: delivers callback duties as signed webhooks, records every attempt, retries, gives up
 * into the dead letter. One thread; woken by the doorbell. */
#ifndef RL_OUTBOX_OUTBOX_H
#define RL_OUTBOX_OUTBOX_H

#include "base/rl.h"

struct tasks;
struct outbox;

/* own_port: reeld's listening port, never called back. */
enum rl_rc outbox_start(struct tasks *tasks, int own_port, struct outbox **ret_outbox,
                        struct rl_err *err) RL_NODISCARD;
/* Stops taking new duties; deliveries under way are given up to wait_ms. NULL allowed. */
void outbox_stop(struct outbox *outbox, int64_t wait_ms);
/* ms since the thread last went round; for health. */
int64_t outbox_stalled_ms(struct outbox *outbox);

/* Standard Webhooks 1.0 signature "v1,<base64>" of id.timestamp.body into signature[64].
 * secret: "whsec_<base64>" or any other text (then its bytes are the key). RL_INVALID_FIELD: empty
 * or bad base64. */
enum rl_rc outbox_sign(const char *secret, const char *webhook_id, int64_t timestamp_s,
                       const void *body, size_t len, char *signature, struct rl_err *err)
    RL_NODISCARD;

#endif
