/* What goes to a terminal: text from others made harmless, widths, the progress line. */
#ifndef RL_CLI_TERM_H
#define RL_CLI_TERM_H

#include "base/rl.h"

bool cli_utf8(void);        /* the locale's character set is UTF-8 (after setlocale) */
size_t cli_columns(int fd); /* width of the terminal behind fd; 80 when not known */

/* Text from a client or a server into out[size], at most `columns` wide (SIZE_MAX: as wide as it
 * is): control characters, bidirectional overrides and broken UTF-8 become '?', line ends become
 * spaces; a cut is marked. Without `utf8` every non-ASCII character becomes '?'. Returns the
 * columns used. */
size_t cli_safe(const char *text, size_t columns, bool utf8, char *out, size_t size);
/* cli_safe to a stream, for one-line texts up to 4 KiB. NULL prints "-". */
void cli_put(FILE *out, const char *text);
/* A cell of a table to stdout: ASCII, cut and padded to `columns`, two spaces. NULL prints "-". */
void cli_put_cell(const char *text, size_t columns);
/* JSON text to stdout and a line end; for a terminal, characters that could steer it are written as
 * \u escapes. */
void cli_put_json(const char *json, size_t len);
/* "2026-11-30 06:42:16" in local time from RFC 3339 (NULL or unreadable: "-") into text[32]. */
void cli_local_time(const char *rfc3339, char *text);
/* "1.2 MB" into text[32]. */
void cli_size_text(int64_t bytes, char *text);
/* "0:42", "1:02:03" into text[32]. */
void cli_duration_text(int64_t seconds, char *text);

/* What a watcher knows about a task. */
struct cli_progress {
    const char *status;     /* "PROCESSING" */
    const char *phase;      /* "denoise"; NULL = none */
    int64_t step, total;    /* total 0 = not known */
    double percent;         /* 0..100; negative = not known */
    int64_t eta_s;          /* negative = not known */
    int64_t queue_position; /* 0 = none */
    int64_t elapsed_s;
    const char *note; /* shown instead of the phase ("server not answering"); NULL = none */
};
/* One line of at most `columns` columns (never the last one of a terminal: pass its width minus 1),
 * without control characters: details go first when there is no room, the status last. Pure. */
void cli_progress_line(const struct cli_progress *progress, size_t columns, bool utf8, char *line,
                       size_t size);

#endif
