/* Who looks on while a network works. */
#ifndef RL_ENGINE_WAN_WATCH_H
#define RL_ENGINE_WAN_WATCH_H

#include "base/rl.h"

struct watch {
    void *user;
    /* `done` of `total` units are done. false: stop, with RL_CANCELED. */
    bool (*beat)(void *user, int done, int total);
};

/* watch may be NULL. */
static inline bool watch_beat(const struct watch *watch, int done, int total)
{
    return !watch || watch->beat(watch->user, done, total);
}

#endif
