/* The meter of downloads, copies and checks. One thread; no state but the caller's. */
#include "cli/meter.h"

#include "base/buf.h"
#include "base/clock.h"
#include "cli/term.h"

#include <unistd.h>

#define MARK_MS     5000 /* long enough to even out a network's bursts */
#define TERMINAL_MS 200
#define LINES_MS    1000

int64_t cli_meter_rate(const struct cli_meter *m, int64_t now_ms)
{
    int64_t ms = now_ms - m->old.ms, bytes = m->done - m->old.done;

    return ms > 0 && bytes > 0 ? (int64_t)((double)bytes * 1000 / (double)ms) : 0;
}

static void draw_line(const struct cli_meter *m, int64_t rate, int64_t now_ms)
{
    char done[32], total[32], speed[32], note[128], line[512];
    struct cli_progress p = {
        .status = m->file, .eta_s = -1, .elapsed_s = (now_ms - m->started_ms) / 1000, .note = note};

    if (!isatty(STDERR_FILENO))
        return;
    cli_size_text(m->done, done);
    cli_size_text(m->total, total);
    cli_size_text(rate, speed);
    (void)snprintf(note, sizeof(note), "%s of %s, %s/s", done, total, speed); /* fits */
    p.percent = m->total > 0 ? 100.0 * (double)m->done / (double)m->total : 100;
    if (rate > 0)
        p.eta_s = (m->total - m->done) / rate;
    cli_progress_line(&p, cli_columns(STDERR_FILENO) - 1, cli_utf8(), line, sizeof(line));
    fprintf(stderr, "\r%s\033[K", line);
    fflush(stderr);
}

static void put_line(const struct cli_meter *m, int64_t rate)
{
    AUTO_BUF struct rl_buf text = {0};
    struct rl_jw w;

    rl_buf_init(&text, 4096);
    rl_jw_init(&w, &text, true);
    rl_jw_object(&w, NULL);
    rl_jw_str(&w, "event", "progress");
    rl_jw_str(&w, "step", m->step);
    rl_jw_str(&w, "file", m->file);
    rl_jw_i64(&w, "bytes", m->done);
    rl_jw_i64(&w, "total", m->total);
    rl_jw_i64(&w, "bytes_per_s", rate);
    rl_jw_end_object(&w);
    if (!text.failed)
        puts(text.data);
    fflush(stdout);
}

void cli_meter_start(struct cli_meter *m, const char *step, const char *file, int64_t done,
                     int64_t total)
{
    int64_t now = rl_mono_ms();

    *m = (struct cli_meter){.json = m->json,
                            .step = step,
                            .file = file,
                            .done = done,
                            .total = total,
                            .old = {now, done},
                            .young = {now, done},
                            .started_ms = now,
                            .drawn_ms = now};
}

void cli_meter_move(struct cli_meter *m, int64_t done)
{
    int64_t now = rl_mono_ms();

    if (done < m->done) /* begun anew */
        m->old = m->young = (struct cli_meter_mark){now, done};
    m->done = done;
    if (now - m->young.ms >= MARK_MS) {
        m->old = m->young;
        m->young = (struct cli_meter_mark){now, done};
    }
    if (now - m->drawn_ms < (m->json ? LINES_MS : TERMINAL_MS))
        return;
    m->drawn_ms = now;
    if (m->json)
        put_line(m, cli_meter_rate(m, now));
    else
        draw_line(m, cli_meter_rate(m, now), now);
}

void cli_meter_clear(struct cli_meter *m)
{
    if (!m->json && isatty(STDERR_FILENO))
        fputs("\r\033[K", stderr);
    m->drawn_ms = rl_mono_ms() - TERMINAL_MS;
}
