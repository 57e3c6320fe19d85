/* The JSON faces of a task: the task object, the event object, the frozen callback body. Pure but
 * for the live figures of a running task. Any thread. */
#include "task/internal.h"

#include "base/buf.h"
#include "base/clock.h"
#include "config/config.h"
#include "engine/engine.h"

#include <string.h>

#define POLL_FAST_MS                                                                               \
    2000 /* the owner's rhythm: 2 s, after 30 s every 5 s, after 2 min every 10 s */
#define POLL_MID_MS  5000
#define POLL_SLOW_MS 10000

struct live {
    bool on;
    int phase, step, total, first;
    int64_t phase_ms, step_ms, now_ms, ran_ms, expected_ms;
};

static struct live live_of(const struct run *run)
{
    int64_t now = rl_mono_ms();
    return (struct live){.on = true,
                         .phase = atomic_load(&run->phase),
                         .step = atomic_load(&run->step),
                         .total = atomic_load(&run->total),
                         .first = atomic_load(&run->first_step),
                         .phase_ms = atomic_load(&run->phase_ms),
                         .step_ms = atomic_load(&run->step_ms),
                         .now_ms = now,
                         .ran_ms = now - run->started_mono_ms,
                         .expected_ms = run->expected_ms};
}

static struct live look(struct tasks *tasks, const struct task *task)
{
    struct live live = {.on = false};
    if (strcmp(task->status, "PROCESSING") != 0)
        return live;
    pthread_mutex_lock(&tasks->live_lock);
    const struct run *run = run_find_locked(tasks, task->task_id, task->attempt);
    if (run)
        live = live_of(run);
    pthread_mutex_unlock(&tasks->live_lock);
    return live;
}

/* Percent of the whole run: denoising is most of it, so it gets 5..95. */
static int percent(const struct live *live)
{
    int part = live->total > 0 ? live->step * 90 / live->total : 0;
    switch ((enum engine_phase)live->phase) {
    case ENGINE_LOAD:
        return 0;
    case ENGINE_ENCODE_TEXT:
        return 3;
    case ENGINE_DENOISE:
        return 5 + part;
    case ENGINE_DECODE:
        return 95 + part / 30;
    case ENGINE_MUX:
    case ENGINE_PHASE_COUNT:
        break;
    }
    return 99;
}

/* ms until a run is done: by the pace of the steps that it made itself, else by what was expected
 * of it. -1: not known, or it is over that. */
static int64_t left_ms(const struct live *live)
{
    int64_t left = live->expected_ms > 0 ? live->expected_ms - live->ran_ms : -1;
    int64_t to_go = live->total - live->step, made = live->step - live->first;
    if (live->phase != ENGINE_DENOISE || live->total <= 0)
        return left;
    if (made > 0)
        left = (live->step_ms - live->phase_ms) * to_go / made - (live->now_ms - live->step_ms);
    else if (live->first > 0 && live->expected_ms > 0) /* it goes on from a checkpoint */
        left = live->expected_ms * to_go / live->total - (live->now_ms - live->phase_ms);
    return left >= 0 ? left : -1;
}

/* ms until everything that runs now is done, one after the other; -1 = not known. */
static int64_t runs_left_ms(struct tasks *tasks)
{
    int64_t sum = 0;
    pthread_mutex_lock(&tasks->live_lock);
    for (const struct run *run = tasks->live; run && sum >= 0; run = run->next) {
        const struct live live = live_of(run);
        int64_t left = left_ms(&live);
        sum = left >= 0 ? sum + left : -1;
    }
    pthread_mutex_unlock(&tasks->live_lock);
    return sum;
}

/* ms until the task is done; -1 = not known. */
static int64_t eta_ms(struct tasks *tasks, const struct task *task, const struct live *live)
{
    if (live->on)
        return left_ms(live);
    if (task->queue_position <= 0 || task->units_before < 0)
        return -1;
    int64_t own = speed_expect_ms(tasks, task, speed_units(task), NULL),
            running = runs_left_ms(tasks);
    if (own <= 0 || running < 0)
        return -1;
    int64_t before = running + speed_expect_ms(tasks, task, task->units_before, NULL);
    return own + before / (tasks->slots > 0 ? tasks->slots : 1);
}

void task_write_progress(struct tasks *tasks, const struct task *task, struct rl_jw *w)
{
    struct live live = look(tasks, task);
    if (strcmp(task->status, "SUCCEEDED") == 0)
        rl_jw_i64(w, "progress", 100);
    else
        rl_jw_i64(w, "progress", live.on ? percent(&live) : 0);
    if (live.on) {
        rl_jw_str(w, "phase", engine_phase_name((enum engine_phase)live.phase));
        rl_jw_i64(w, "step", live.step);
        rl_jw_i64(w, "total_steps", live.total);
    } else {
        rl_jw_null(w, "phase");
        rl_jw_null(w, "step");
        rl_jw_null(w, "total_steps");
    }
    int64_t eta = eta_ms(tasks, task, &live);
    if (eta >= 0)
        rl_jw_f64(w, "eta_seconds", (double)(eta / 100) / 10.0);
    else
        rl_jw_null(w, "eta_seconds");
    if (task->queue_position > 0)
        rl_jw_i64(w, "queue_position", task->queue_position);
    else
        rl_jw_null(w, "queue_position");
    int64_t age = rl_wall_ms() - task->created_at;
    if (task_status_terminal(task_status_of(task)))
        rl_jw_null(w, "poll_after_ms");
    else
        rl_jw_i64(w, "poll_after_ms",
                  age > 120000  ? POLL_SLOW_MS
                  : age > 30000 ? POLL_MID_MS
                                : POLL_FAST_MS);
}

static void write_params(const struct task *task, struct rl_jw *w)
{
    rl_jw_object(w, "params");
    rl_jw_str(w, "negative_prompt", task->negative_prompt);
    rl_jw_str(w, "engine", task->engine);
    rl_jw_str(w, "model", task->model);
    rl_jw_i64(w, "width", task->width);
    rl_jw_i64(w, "height", task->height);
    rl_jw_i64(w, "frames", task->frames);
    rl_jw_i64(w, "fps", task->fps);
    rl_jw_i64(w, "steps", task->steps);
    rl_jw_i64(w, "seed", task->seed);
    rl_jw_f64(w, "guidance_scale", task->guidance_scale);
    rl_jw_f64(w, "flow_shift", task->flow_shift);
    rl_jw_raw(w, "options", task->options);
    rl_jw_end_object(w);
}

static void result_url(struct tasks *tasks, const struct task *task, char *url, size_t size)
{
    (void)snprintf(url, size, "%s/api/v1/tasks/%lld/video", tasks->public_url,
                   (long long)task->task_id);
}

static void write_video(struct tasks *tasks, const struct task *task, struct rl_jw *w)
{
    char url[1200];
    if (strcmp(task->status, "SUCCEEDED") != 0 || !task->video_file) {
        rl_jw_null(w, "result_url");
        rl_jw_null(w, "video");
        return;
    }
    result_url(tasks, task, url, sizeof url);
    rl_jw_str(w, "result_url", url);
    rl_jw_object(w, "video");
    rl_jw_str(w, "url", url + strlen(tasks->public_url));
    rl_jw_i64(w, "bytes", task->video_bytes);
    rl_jw_str(w, "sha256", task->video_sha256);
    rl_jw_i64(w, "width", task->video_width);
    rl_jw_i64(w, "height", task->video_height);
    rl_jw_i64(w, "frames", task->video_frames);
    rl_jw_i64(w, "fps", task->video_fps);
    rl_jw_f64(w, "duration_s", (double)(task->video_frames * 1000 / task->video_fps) / 1000.0);
    rl_jw_end_object(w);
}

static void write_times(struct tasks *tasks, const struct task *task, struct rl_jw *w)
{
    rl_jw_time(w, "created_at", task->created_at);
    rl_jw_time(w, "updated_at", task->updated_at);
    rl_jw_time(w, "queued_at", task->queued_at);
    rl_jw_time(w, "started_at", task->started_at);
    rl_jw_time(w, "finished_at", task->finished_at);
    rl_jw_time(w, "run_at", task->run_at);
    bool delayed = task->not_before > 0 && task->not_before != NOT_BEFORE_TWIN;
    rl_jw_time(w, "not_before",
               delayed ? task->not_before - store_steady_ms(tasks->store) + rl_wall_ms() : 0);
}

static void write_counts(const struct task *task, struct rl_jw *w)
{
    rl_jw_i64(w, "attempt", task->attempt);
    rl_jw_i64(w, "retry_count", task->retry_count);
    rl_jw_i64(w, "requeue_count", task->requeue_count);
    rl_jw_i64(w, "crash_count", task->crash_count);
    rl_jw_i64(w, "round", task->round);
    rl_jw_i64(w, "max_retries", task->max_retries);
    rl_jw_i64(w, "queue_timeout_s", task->queue_timeout_s);
    if (task->run_timeout_s >= 0)
        rl_jw_i64(w, "run_timeout_s", task->run_timeout_s);
    else
        rl_jw_null(w, "run_timeout_s");
}

void task_json(struct tasks *tasks, const struct task *task, struct rl_jw *w, const char *key)
{
    rl_jw_object(w, key);
    rl_jw_id(w, "task_id", task->task_id);
    rl_jw_str(w, "user_id", task->user_id);
    rl_jw_str(w, "idempotency_key", task->idempotency_key);
    rl_jw_str(w, "prompt", task->prompt);
    rl_jw_str(w, "status", task->status);
    rl_jw_i64(w, "version", task->version);
    rl_jw_i64(w, "priority", task->priority);
    rl_jw_str(w, "queue_name", task->queue_name);
    rl_jw_str(w, "worker_id", task->worker_id);
    write_times(tasks, task, w);
    write_counts(task, w);
    task_write_progress(tasks, task, w);
    rl_jw_str(w, "cancel_mode", task->cancel_mode);
    rl_jw_str(w, "error_code", task->error_code);
    rl_jw_str(w, "error_msg", task->error_msg);
    write_params(task, w);
    write_video(tasks, task, w);
    rl_jw_str(w, "callback_url", task->callback_url);
    rl_jw_str(w, "callback_status", task->callback_status);
    rl_jw_i64(w, "callback_retry", task->callback_retry);
    rl_jw_id(w, "reused_from", task->reused_from);
    rl_jw_str(w, "label", task->label);
    rl_jw_raw(w, "metadata", task->metadata);
    rl_jw_end_object(w);
}

void task_event_json(struct rl_jw *w, int64_t seq, int64_t task_id, int64_t timestamp,
                     const char *from, const char *to, int64_t attempt, const char *worker_id,
                     const char *reason)
{
    rl_jw_object(w, NULL);
    rl_jw_i64(w, "seq", seq);
    rl_jw_id(w, "task_id", task_id);
    rl_jw_time(w, "timestamp", timestamp);
    rl_jw_str(w, "from_status", from);
    rl_jw_str(w, "to_status", to);
    rl_jw_i64(w, "attempt", attempt);
    rl_jw_str(w, "worker_id", worker_id);
    rl_jw_str(w, "reason", reason);
    rl_jw_end_object(w);
}

void task_download_signature(struct tasks *tasks, const struct task *task, int64_t expires_s,
                             char *sig)
{
    char text[96], until[24] = "";
    uint8_t mac[RL_SHA256_BYTES];
    if (expires_s)
        (void)snprintf(until, sizeof until, ".%lld", (long long)expires_s);
    (void)snprintf(text, sizeof text, "video.%lld.%lld%s", (long long)task->task_id,
                   (long long)task->attempt, until);
    struct rl_bytes part = {text, strlen(text)};
    rl_hmac_sha256(tasks->link_secret, sizeof tasks->link_secret, &part, 1, mac);
    rl_base64(mac, sizeof mac, true, sig);
}

void task_download_url(struct tasks *tasks, const struct task *task, int64_t expires_s,
                       struct rl_buf *out)
{
    char url[1200], sig[48];
    result_url(tasks, task, url, sizeof url);
    task_download_signature(tasks, task, expires_s, sig);
    rl_buf_fmt(out, "%s?sig=%s", url, sig);
    if (expires_s)
        rl_buf_fmt(out, "&exp=%lld", (long long)expires_s);
}

bool task_download_signed(struct tasks *tasks, const struct task *task, int64_t expires_s,
                          const char *sig)
{
    char want[48];
    task_download_signature(tasks, task, expires_s, want);
    bool right = strlen(sig) == strlen(want) && rl_equal(sig, want, strlen(want));
    return right && (expires_s == 0 || rl_wall_ms() / 1000 < expires_s);
}

char *task_callback_body(struct tasks *tasks, const struct task *task, const char *type,
                         int64_t timestamp)
{
    char url[1200], sig[48];
    AUTO_BUF struct rl_buf buf = {0};
    struct rl_jw w;
    bool done = strcmp(task->status, "SUCCEEDED") == 0;
    rl_buf_init(
        &buf,
        20480); /* Standard Webhooks: payloads stay under 20 kB; fields are bounded at submit */
    rl_jw_init(&w, &buf, true);
    rl_jw_object(&w, NULL);
    rl_jw_str(&w, "type", type);
    rl_jw_time(&w, "timestamp", timestamp);
    rl_jw_id(&w, "task_id", task->task_id);
    rl_jw_str(&w, "status", task->status);
    result_url(tasks, task, url, sizeof url);
    rl_jw_str(&w, "result_url", done ? url : NULL);
    task_download_signature(tasks, task, 0, sig);
    size_t len = strlen(url);
    (void)snprintf(url + len, sizeof url - len, "?sig=%s", sig);
    rl_jw_str(&w, "download_url", done ? url : NULL);
    rl_jw_str(&w, "error_code", task->error_code);
    rl_jw_str(&w, "error_msg", task->error_msg);
    rl_jw_i64(&w, "attempt", task->attempt);
    rl_jw_i64(&w, "round", task->round);
    rl_jw_raw(&w, "metadata", task->metadata);
    rl_jw_end_object(&w);
    return rl_buf_take(&buf);
}
