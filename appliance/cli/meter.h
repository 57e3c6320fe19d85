/* How far something long has come: a line on a terminal, JSON lines into a pipe. */
#ifndef RL_CLI_METER_H
#define RL_CLI_METER_H

#include "base/rl.h"

struct cli_meter {
    bool json;        /* lines to standard output instead of a terminal's line */
    const char *step; /* borrowed, as is file: "download", "hash", "copy", "check" */
    const char *file;
    int64_t done, total; /* bytes */
    struct cli_meter_mark {
        int64_t ms, done;
    } old, young; /* the rate is measured from `old`, 5 to 10 s ago */
    int64_t started_ms, drawn_ms;
};

/* json of *meter is the caller's to set; everything else starts here. Draws nothing yet. */
void cli_meter_start(struct cli_meter *meter, const char *step, const char *file, int64_t done,
                     int64_t total);
/* So many bytes are done; draws when it is time to. */
void cli_meter_move(struct cli_meter *meter, int64_t done);
/* Remove the line, so that something else can be said; the next move draws it again. */
void cli_meter_clear(struct cli_meter *meter);
/* Bytes per second of late, 0 = not known yet. */
int64_t cli_meter_rate(const struct cli_meter *meter, int64_t now_ms);

#endif
