/* /metrics: the figures of every part as Prometheus text (exposition format 0.0.4). Runs on the
 * worker. Invariants: HELP and TYPE stand before the samples of a family and a series appears once;
 * a part whose figures cannot be had is left out and counted, the others still show; every read is
 * bounded. */
#include "http/request.h"

#include <string.h>

#include "base/clock.h"
#include "base/fs.h"
#include "config/config.h"
#include "engine/engine.h"
#include "outbox/outbox.h"
#include "pool/pool.h"
#include "http/http.h"
#include "store/store.h"

#define METRICS_BYTES (1u << 20)
#define WORKERS_MAX   256

static void family(struct rl_buf *out, const char *name, const char *type, const char *help)
{
    rl_buf_fmt(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void whole(struct rl_buf *out, const char *name, const char *type, const char *help,
                  int64_t value)
{
    family(out, name, type, help);
    rl_buf_fmt(out, "%s %lld\n", name, (long long)value);
}

static void seconds(struct rl_buf *out, const char *name, const char *type, const char *help,
                    int64_t us)
{
    family(out, name, type, help);
    rl_buf_fmt(out, "%s %lld.%06lld\n", name, (long long)(us / 1000000), (long long)(us % 1000000));
}

/* The text of a label, between quotes. */
static void label(struct rl_buf *out, const char *text)
{
    rl_buf_str(out, "\"");
    for (const char *p = text; *p; p++) {
        if (*p == '\n')
            rl_buf_str(out, "\\n");
        else if (*p == '"' || *p == '\\')
            rl_buf_fmt(out, "\\%c", *p);
        else
            rl_buf_append(out, p, 1);
    }
    rl_buf_str(out, "\"");
}

static void write_store(struct http *http, struct rl_buf *out)
{
    struct store_stats stats = {0};
    store_stats(tasks_store(http->tasks), &stats);
    store_histograms(tasks_store(http->tasks), out);
    seconds(out, "reeld_store_commit_max_seconds", "gauge", "The slowest COMMIT.",
            stats.commit_us_max);
    whole(out, "reeld_store_queue", "gauge", "Writes waiting for the writer.", stats.queue);
    seconds(out, "reeld_store_stalled_seconds", "gauge", "Age of the group under way.",
            stats.stalled_ms * 1000);
    whole(out, "reeld_store_wal_bytes", "gauge", "Size of the write-ahead log.", stats.wal_bytes);
    whole(out, "reeld_store_disk_full", "gauge", "1 while new work is refused for the disk.",
          stats.disk_full);
}

static void write_http(struct http *http, struct rl_buf *out)
{
    (void)pthread_mutex_lock(&http->lock);
    int in_flight = http->in_flight;
    (void)pthread_mutex_unlock(&http->lock);
    whole(out, "reeld_http_in_flight", "gauge", "Requests being answered, this one included.",
          in_flight);
    whole(out, "reeld_http_connections", "gauge", "Connections that hold a thread.",
          atomic_load(&http->connections));
    whole(out, "reeld_http_streams", "gauge", "Streams and long polls that wait now.",
          atomic_load(&http->streams));
    whole(out, "reeld_http_sockets", "gauge", "WebSockets open now.", atomic_load(&http->sockets));
    whole(out, "reeld_http_threads", "gauge", "Requests that can go at once.", http->threads);
    family(out, "reeld_http_answers_total", "counter", "Answers by class of status.");
    for (int i = 2; i < 6; i++)
        rl_buf_fmt(out, "reeld_http_answers_total{class=\"%dxx\"} %lld\n", i,
                   (long long)atomic_load(&http->answers[i]));
    family(out, "reeld_http_refused_total", "counter",
           "Requests turned away at the door: 503 with all threads busy, 429 over a rate.");
    rl_buf_fmt(out, "reeld_http_refused_total{reason=\"busy\"} %lld\n",
               (long long)atomic_load(&http->turned_away));
    rl_buf_fmt(out, "reeld_http_refused_total{reason=\"rate\"} %lld\n",
               (long long)atomic_load(&http->limited));
    family(out, "reeld_hook_deliveries_total", "counter",
           "Deliveries of outside services: accepted, repeated, or why they were refused.");
    for (int i = 0; i < HOOK_RESULTS; i++)
        rl_buf_fmt(out, "reeld_hook_deliveries_total{result=\"%s\"} %lld\n", hook_result_names[i],
                   (long long)atomic_load(&http->hooks[i]));
}

struct device_row {
    struct pool_worker_info worker;
    struct engine_usage usage;
};

static void device_labels(struct rl_buf *out, const char *family_name,
                          const struct engine_device *device)
{
    rl_buf_fmt(out, "%s{device=", family_name);
    label(out, device->id);
    rl_buf_fmt(out, ",kind=\"%s\",index=\"%d\",name=", device->gpu ? "gpu" : "cpu", device->index);
    label(out, device->name);
    rl_buf_str(out, "} ");
}

/* One family over all devices; `value` is below 0 where it is not known: that device is left out.
 */
static void device_family(struct rl_buf *out, const struct device_row *rows, size_t count,
                          const char *name, const char *type, const char *help,
                          double (*value)(const struct device_row *row), int digits)
{
    family(out, name, type, help);
    for (size_t i = 0; i < count; i++) {
        double v = value(&rows[i]);
        if (v < 0)
            continue;
        device_labels(out, name, rows[i].worker.device);
        rl_buf_fmt(out, "%.*f\n", digits, v);
    }
}

static double device_alive(const struct device_row *row)
{
    return row->worker.alive;
}

static double device_busy(const struct device_row *row)
{
    return row->worker.task_id != 0;
}

static double device_runs(const struct device_row *row)
{
    return (double)row->worker.runs;
}

static double device_busy_seconds(const struct device_row *row)
{
    return (double)row->worker.busy_us / 1e6;
}

/* What the probe said stands in for a driver that is not asked. */
static double device_memory(const struct device_row *row)
{
    int64_t probed = row->worker.device->mem_bytes;
    int64_t total = row->usage.mem_total_bytes;
    return total >= 0 ? (double)total : probed > 0 ? (double)probed : -1;
}

static double device_memory_free(const struct device_row *row)
{
    return (double)row->usage.mem_free_bytes;
}

static double device_utilisation(const struct device_row *row)
{
    return row->usage.utilisation;
}

/* false: the devices are not known. */
static bool write_devices(struct http *http, struct rl_buf *out)
{
    if (!http->pool)
        return true;
    AUTO_FREE struct pool_worker_info *workers = calloc(WORKERS_MAX, sizeof *workers);
    AUTO_FREE struct device_row *rows = calloc(WORKERS_MAX, sizeof *rows);
    if (!workers || !rows)
        return false;
    size_t count = pool_workers(http->pool, workers, WORKERS_MAX);
    for (size_t i = 0; i < count; i++) {
        rows[i].worker = workers[i];
        engines_usage(tasks_engines(http->tasks), workers[i].device, &rows[i].usage);
    }
    device_family(out, rows, count, "reeld_device_alive", "gauge",
                  "1 while the thread of the device lives.", device_alive, 0);
    device_family(out, rows, count, "reeld_device_busy", "gauge", "1 while the device has a run.",
                  device_busy, 0);
    device_family(out, rows, count, "reeld_device_runs_total", "counter",
                  "Runs that were begun on the device.", device_runs, 0);
    device_family(out, rows, count, "reeld_device_busy_seconds_total", "counter",
                  "Time with a run: its rate is the share of time in use.", device_busy_seconds, 6);
    device_family(out, rows, count, "reeld_device_memory_bytes", "gauge",
                  "Memory of the device; of a CPU slot, its share of what the process may use.",
                  device_memory, 0);
    device_family(out, rows, count, "reeld_device_memory_free_bytes", "gauge",
                  "What of it is free now, for whoever asks first.", device_memory_free, 0);
    device_family(out, rows, count, "reeld_device_utilisation_ratio", "gauge",
                  "How busy its driver says it was just now, 0 to 1.", device_utilisation, 3);
    return true;
}

static bool write_outbox(struct http *http, struct rl_buf *out)
{
    struct outbox_stats stats;
    struct rl_err err; /* counted by the caller */
    if (!http->outbox)
        return true;
    if (outbox_stats(http->outbox, &stats, &err) != RL_OK)
        return false;
    whole(out, "reeld_outbox_pending", "gauge", "Callback duties not done, counted to 100000.",
          stats.pending);
    whole(out, "reeld_outbox_in_flight", "gauge", "Callbacks under way.", stats.in_flight);
    family(
        out, "reeld_outbox_breakers", "gauge",
        "Hosts that are left alone after failures (open), or tried by one callback (half_open).");
    rl_buf_fmt(out, "reeld_outbox_breakers{state=\"open\"} %lld\n", (long long)stats.breakers_open);
    rl_buf_fmt(out, "reeld_outbox_breakers{state=\"half_open\"} %lld\n",
               (long long)stats.breakers_half_open);
    seconds(out, "reeld_outbox_stalled_seconds", "gauge",
            "Since the callback thread last went round.", stats.stalled_ms * 1000);
    return true;
}

static bool write_disk(struct http *http, struct rl_buf *out)
{
    int64_t free_bytes;
    struct rl_err err; /* counted by the caller */
    if (rl_fs_free_bytes(config_text(http->cfg, CFG_STATE_DIR), &free_bytes, &err) != RL_OK)
        return false;
    whole(out, "reeld_disk_free_bytes", "gauge", "Free space for the state folder.", free_bytes);
    return true;
}

static bool write_tasks(struct http *http, struct rl_buf *out)
{
    AUTO_BUF struct rl_buf text = {0};
    struct rl_err err; /* counted by the caller */
    rl_buf_init(&text, METRICS_BYTES);
    if (task_metrics(http->tasks, &text, &err) != RL_OK)
        return false;
    rl_buf_append(out, text.data, text.len);
    return true;
}

static void write_process(struct http *http, struct rl_buf *out)
{
    family(out, "reeld_build_info", "gauge", "1, with the versions as labels.");
    rl_buf_str(out, "reeld_build_info{version=");
    label(out, REELD_VERSION);
    rl_buf_str(out, ",sqlite=");
    label(out, store_version());
    rl_buf_str(out, ",civetweb=");
    label(out, http_version());
    rl_buf_str(out, "} 1\n");
    seconds(out, "reeld_uptime_seconds", "gauge", "Since the HTTP server started.",
            (rl_boot_ms() - http->began_ms) * 1000);
    seconds(out, "reeld_clock_seconds", "gauge",
            "The wall clock as the program sees it, unix time.", rl_wall_ms() * 1000);
    seconds(out, "reeld_steady_clock_seconds", "gauge",
            "The clock of due times, which jumps of the wall clock do not move.",
            store_steady_ms(tasks_store(http->tasks)) * 1000);
    seconds(out, "reeld_scheduler_stalled_seconds", "gauge", "Since the scheduler last went round.",
            schedule_stalled_ms(http->tasks) * 1000);
}

enum rl_rc http_metrics(struct request *r, struct rl_err *err)
{
    struct http *http = r->http;
    AUTO_BUF struct rl_buf out = {0};
    rl_buf_init(&out, 2 * METRICS_BYTES);
    write_process(http, &out);
    write_store(http, &out);
    write_http(http, &out);
    int missing = !write_tasks(http, &out);
    missing += !write_devices(http, &out);
    missing += !write_outbox(http, &out);
    missing += !write_disk(http, &out);
    whole(&out, "reeld_metrics_missing", "gauge", "Parts whose figures could not be had just now.",
          missing);
    enum rl_rc rc = rl_buf_ok(&out, err);
    if (rc != RL_OK)
        return rc == RL_NO_MEMORY ? rc : rl_fail(err, RL_INTERNAL, "the figures are too long");
    return reply_send(r, &(struct reply){.status = 200,
                                         .type = "text/plain; version=0.0.4; charset=utf-8",
                                         .bytes = out.data,
                                         .len = out.len});
}
