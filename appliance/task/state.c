/* The transition table. Pure data; any thread. */
#include "task/state.h"

#include <string.h>

#define TO(name) (1u << TASK_##name)

static const unsigned transitions[TASK_STATUS_COUNT] = {
    [TASK_CREATED] = TO(QUEUED) | TO(FAILED) | TO(CANCELED),
    [TASK_QUEUED] = TO(QUEUED) | TO(PROCESSING) | TO(FAILED) | TO(TIMEOUT) | TO(CANCELED),
    [TASK_PROCESSING] = TO(QUEUED) | TO(SUCCEEDED) | TO(FAILED) | TO(TIMEOUT) | TO(CANCELED),
    [TASK_FAILED] = TO(QUEUED),
    [TASK_TIMEOUT] = TO(QUEUED),
};

static const char *const names[TASK_STATUS_COUNT] = {
#define TASK_STATE_NAME(name) [TASK_##name] = #name,
    TASK_STATES(TASK_STATE_NAME)
#undef TASK_STATE_NAME
};

const char *task_status_name(enum task_status status)
{
    return names[status];
}

bool task_status_parse(const char *text, enum task_status *ret_status)
{
    for (int i = 0; text && i < TASK_STATUS_COUNT; i++) {
        if (strcmp(text, names[i]) == 0) {
            *ret_status = (enum task_status)i;
            return true;
        }
    }
    return false;
}

bool task_status_terminal(enum task_status status)
{
    return status >= TASK_SUCCEEDED;
}

bool task_transition_allowed(enum task_status from, enum task_status to)
{
    return (transitions[from] & (1u << to)) != 0;
}
