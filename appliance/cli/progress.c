/* The progress line: a pure function from what is known to one line that fits. */
#include "cli/term.h"

#include "base/buf.h"

#include <string.h>

#define BAR_MAX 40
#define BAR_MIN 8

/* "denoise 12/30", "position 4 in the queue", the note, or "". */
static void details_text(const struct cli_progress *p, char *text, size_t size)
{
    text[0] = '\0';
    if (p->note)
        (void)snprintf(text, size, "%s", p->note);
    else if (p->queue_position > 0)
        (void)snprintf(text, size, "position %lld in the queue", (long long)p->queue_position);
    else if (p->phase && p->total > 0)
        (void)snprintf(text, size, "%s %lld/%lld", p->phase, (long long)p->step,
                       (long long)p->total);
    else if (p->phase)
        (void)snprintf(text, size, "%s", p->phase);
}

static void bar(struct rl_buf *out, double percent, size_t cells, bool utf8)
{
    size_t full = (size_t)(percent * (double)cells / 100);

    rl_buf_str(out, "[");
    for (size_t i = 0; i < cells; i++)
        rl_buf_str(out, i < full ? (utf8 ? "█" : "#") : (utf8 ? "░" : "."));
    rl_buf_str(out, "]");
}

/* Does a part of `width` columns (after a gap of two) still fit? Takes its room if so. */
static bool take(size_t *left, size_t width)
{
    if (width == 0 || *left < width + 2)
        return false;
    *left -= width + 2;
    return true;
}

void cli_progress_line(const struct cli_progress *p, size_t columns, bool utf8, char *line,
                       size_t size)
{
    char status[64], details[128], safe[128], percent[32] = "", clock[64] = "", duration[32];
    struct rl_buf out;
    double part = p->percent > 100 ? 100 : p->percent;

    line[0] = '\0';
    size_t left =
        columns - cli_safe(p->status ? p->status : "?", columns, utf8, status, sizeof(status));
    details_text(p, details, sizeof(details));
    size_t details_width = cli_safe(details, 60, utf8, safe, sizeof(safe));
    if (part >= 0)
        (void)snprintf(percent, sizeof(percent), "%3d%%", (int)part);
    cli_duration_text(p->eta_s >= 0 ? p->eta_s : p->elapsed_s, duration);
    (void)snprintf(clock, sizeof(clock), "%s %s", p->eta_s >= 0 ? "ETA" : "elapsed", duration);

    /* in the order of worth; the bar gets what is left */
    bool with_percent = take(&left, strlen(percent));
    bool with_details = take(&left, details_width);
    bool with_clock = take(&left, strlen(clock));
    size_t cells = left > 4 ? left - 4 : 0;
    if (cells > BAR_MAX)
        cells = BAR_MAX;

    rl_buf_init(&out, size > 0 ? size - 1 : 0);
    rl_buf_str(&out, status);
    if (with_details)
        rl_buf_fmt(&out, "  %s", safe);
    if (with_percent && cells >= BAR_MIN) {
        rl_buf_str(&out, "  ");
        bar(&out, part, cells, utf8);
    }
    if (with_percent)
        rl_buf_fmt(&out, "  %s", percent);
    if (with_clock)
        rl_buf_fmt(&out, "  %s", clock);
    if (!out.failed && out.data)
        (void)rl_copy_str(line, size, out.data); /* the limit says it fits */
    rl_buf_free(&out);
}
