/* The seven states and the one transition table. The SQL trigger repeats it; a test compares them.
 */
#ifndef RL_TASK_STATE_H
#define RL_TASK_STATE_H

#include "base/rl.h"

#define TASK_STATES(X)                                                                             \
    X(CREATED) X(QUEUED) X(PROCESSING) X(SUCCEEDED) X(FAILED) X(TIMEOUT) X(CANCELED)

enum task_status {
#define TASK_STATE_ENUM(name) TASK_##name,
    TASK_STATES(TASK_STATE_ENUM)
#undef TASK_STATE_ENUM
        TASK_STATUS_COUNT
};

const char *task_status_name(enum task_status status);
/* false when the text is not exactly one of the seven names. */
bool task_status_parse(const char *text, enum task_status *ret_status);
bool task_status_terminal(enum task_status status);
/* May a task go from one to the other? */
bool task_transition_allowed(enum task_status from, enum task_status to);

#endif
