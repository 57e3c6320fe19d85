/* A breaker per host: after some failures in a row its duties wait, spending no tries, and then one
 * of them tries whether the host is back. Outbox thread only; in memory only, so a restart starts
 * with every breaker closed. Invariants: only failing hosts have an entry, and at most
 * OUTBOX_BREAKERS of them, a further one takes the place of the one that is missed least; an
 * attempt that ends while the breaker is open (it began before) changes nothing unless it succeeds.
 */
#include "outbox/parts.h"

#include <string.h>

#define LONGEST 10 /* times the first wait */

bool outbox_breakers_init(struct outbox_breakers *breakers, int64_t trip, int64_t first_ms)
{
    *breakers = (struct outbox_breakers){.trip = trip, .first_ms = first_ms};
    breakers->at = calloc(OUTBOX_BREAKERS, sizeof *breakers->at);
    return breakers->at != NULL;
}

void outbox_breakers_clear(struct outbox_breakers *breakers)
{
    for (size_t i = 0; i < breakers->n; i++)
        free(breakers->at[i].host);
    free(breakers->at);
    *breakers = (struct outbox_breakers){0};
}

static struct outbox_breaker *find(const struct outbox_breakers *breakers, const char *host)
{
    for (size_t i = 0; i < breakers->n; i++)
        if (strcmp(breakers->at[i].host, host) == 0)
            return &breakers->at[i];
    return NULL;
}

size_t outbox_breaker_room(const struct outbox_breakers *breakers, const char *host,
                           size_t per_host, int64_t now)
{
    const struct outbox_breaker *b = find(breakers, host);

    if (!b || !b->open_ms)
        return per_host;
    return now < b->open_until ? 0 : 1;
}

/* The entry that is missed least: the one whose last failure or whose wait is the longest ago, and
 * a host that is left alone now only when all are. */
static struct outbox_breaker *stalest(const struct outbox_breakers *breakers, int64_t now)
{
    struct outbox_breaker *best = &breakers->at[0];
    bool best_open = best->open_ms && now < best->open_until;

    for (size_t i = 1; i < breakers->n; i++) {
        struct outbox_breaker *b = &breakers->at[i];
        bool open = b->open_ms && now < b->open_until;
        if (open == best_open ? b->open_until < best->open_until : best_open) {
            best = b;
            best_open = open;
        }
    }
    return best;
}

static struct outbox_breaker *add(struct outbox_breakers *breakers, const char *host, int64_t now)
{
    char *copy = rl_strdup(host);
    if (!copy)
        return NULL;
    struct outbox_breaker *b = &breakers->at[breakers->n];
    if (breakers->n < OUTBOX_BREAKERS) {
        breakers->n++;
    } else {
        b = stalest(breakers, now);
        free(b->host);
    }
    *b = (struct outbox_breaker){.host = copy};
    return b;
}

void outbox_breaker_note(struct outbox_breakers *breakers, const char *host, bool failed,
                         int64_t now)
{
    struct outbox_breaker *b = find(breakers, host);

    if (!failed) {
        if (b) {
            free(b->host);
            *b = breakers->at[--breakers->n];
        }
        return;
    }
    if (!breakers->trip || (!b && !(b = add(breakers, host, now))))
        return;
    b->failures++;
    if (b->open_ms && now < b->open_until)
        return;
    if (b->open_ms)
        b->open_ms = b->open_ms < breakers->first_ms * LONGEST / 2 ? b->open_ms * 2
                                                                   : breakers->first_ms * LONGEST;
    else if (b->failures >= breakers->trip)
        b->open_ms = breakers->first_ms;
    b->open_until = now + b->open_ms;
}

int64_t outbox_breaker_next(const struct outbox_breakers *breakers, int64_t now)
{
    int64_t next = INT64_MAX;

    for (size_t i = 0; i < breakers->n; i++) {
        const struct outbox_breaker *b = &breakers->at[i];
        if (b->open_ms && b->open_until > now && b->open_until < next)
            next = b->open_until;
    }
    return next;
}

void outbox_breaker_count(const struct outbox_breakers *breakers, int64_t now, int64_t *ret_open,
                          int64_t *ret_half_open)
{
    *ret_open = *ret_half_open = 0;
    for (size_t i = 0; i < breakers->n; i++) {
        const struct outbox_breaker *b = &breakers->at[i];
        *ret_open += b->open_ms && now < b->open_until;
        *ret_half_open += b->open_ms && now >= b->open_until;
    }
}
