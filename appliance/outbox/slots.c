/* The in-memory set of duties under way: it replaces leases in the table, since this process is the
 * only sender. Outbox thread only. Invariant: a row whose result is not recorded keeps its slot, so
 * it cannot be sent again, and memory is bounded by the number of slots. */
#include "outbox/parts.h"

#include <string.h>

size_t outbox_slots_count(const struct outbox_slots *slots, enum outbox_slot_state state)
{
    size_t count = 0;

    for (size_t i = 0; i < slots->n; i++)
        count += slots->slot[i].state == state;
    return count;
}

size_t outbox_slots_of_host(const struct outbox_slots *slots, const char *host)
{
    size_t count = 0;

    for (size_t i = 0; i < slots->n; i++)
        count += slots->slot[i].state != OUTBOX_FREE && strcmp(slots->slot[i].host, host) == 0;
    return count;
}

bool outbox_slots_hold(const struct outbox_slots *slots, int64_t outbox_id)
{
    for (size_t i = 0; i < slots->n; i++)
        if (slots->slot[i].state != OUTBOX_FREE && slots->slot[i].result.outbox_id == outbox_id)
            return true;
    return false;
}

struct outbox_slot *outbox_slots_take(struct outbox_slots *slots)
{
    for (size_t i = 0; i < slots->n; i++)
        if (slots->slot[i].state == OUTBOX_FREE)
            return &slots->slot[i];
    return NULL;
}

void outbox_slot_clear(struct outbox_slot *slot)
{
    free(slot->host);
    free(slot->result.response);
    *slot = (struct outbox_slot){.state = OUTBOX_FREE};
}
