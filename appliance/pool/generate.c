/* One run: engine frames go one by one to the encoder, the file is checked and committed, then the
 * row. Runs on the worker's thread; only the atomics of the run are shared. Invariants: the row
 * says SUCCEEDED only after the file is in place; whatever fails leaves no file. */
#include "pool/generate.h"

#include "base/clock.h"
#include "base/crypto.h"
#include "base/fs.h"
#include "base/log.h"
#include "config/config.h"
#include "engine/engine.h"
#include "events/events.h"
#include "task/task.h"
#include "video/video.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define PATH_BYTES    1200
#define FINISH_TRY_MS 1000 /* between tries to write a run's end when the store refuses */
/* and so long when the program stops, which waits 20 s for its runs */
#define FINISH_DRAIN_MS 15000

struct maker {
    struct run *run;
    const struct task *task;
    struct video *video;
    int frames, flat_frames; /* written; of them with all pixels equal */
    int poster_at;
    bool poster_done;
    const struct config *cfg;
    char part[PATH_BYTES], final[PATH_BYTES], poster_part[PATH_BYTES], poster[PATH_BYTES];
    int gpu;
};

static void on_progress(void *user, enum engine_phase phase, int step, int total)
{
    struct maker *maker = user;
    run_beat(maker->run, (int)phase, step, total);
}

static bool on_should_stop(void *user)
{
    struct maker *maker = user;
    return run_should_stop(maker->run) != RUN_GO;
}

static bool on_checkpoint_due(void *user)
{
    struct maker *maker = user;
    return run_checkpoint_due(maker->run);
}

/* Whatever goes wrong with it was logged and costs time later, never the run. */
static enum rl_rc on_checkpoint_save(void *user, const void *bytes, size_t len, struct rl_err *err)
{
    struct maker *maker = user;
    (void)run_checkpoint_save(maker->run, bytes, len, err);
    return RL_OK;
}

static bool flat(const struct engine_frame *frame)
{
    for (int y = 0; y < frame->height; y++) {
        const uint8_t *row = frame->rgb + (size_t)y * frame->stride;
        for (int x = 0; x < frame->width; x++)
            if (memcmp(row + 3 * x, frame->rgb, 3) != 0)
                return false;
    }
    return true;
}

static struct video_params video_of(const struct maker *maker, int width, int height)
{
    return (struct video_params){.path = maker->part,
                                 .width = width,
                                 .height = height,
                                 .fps = (int)maker->task->fps,
                                 .encoder = config_text(maker->cfg, CFG_VIDEO_ENCODER),
                                 .crf = (int)config_int(maker->cfg, CFG_VIDEO_CRF),
                                 .gpu = maker->gpu};
}

static enum rl_rc open_video(struct maker *maker, const struct engine_frame *frame,
                             struct rl_err *err)
{
    struct video_params params = video_of(maker, frame->width, frame->height);
    return video_open(&params, &maker->video, err);
}

static enum rl_rc on_frame(void *user, const struct engine_frame *frame, struct rl_err *err)
{
    struct maker *maker = user;
    enum rl_rc rc = maker->video ? RL_OK : open_video(maker, frame, err);
    if (rc == RL_OK)
        rc = video_write(maker->video, frame->rgb, frame->stride, frame->width, frame->height, err);
    if (rc == RL_OK && !maker->poster_done && maker->frames >= maker->poster_at) {
        rc = video_poster(maker->poster_part, frame->rgb, frame->stride, frame->width,
                          frame->height, err);
        maker->poster_done = rc == RL_OK;
    }
    if (rc != RL_OK)
        return rc;
    maker->frames++;
    maker->flat_frames += flat(frame);
    return RL_OK;
}

static enum rl_rc ensure_loaded(struct tasks *tasks, const struct engine_device *device,
                                struct loaded *loaded, const struct task *task,
                                const struct engine_ctl *ctl, struct rl_err *err)
{
    const struct engine *engine = engines_find(tasks_engines(tasks), task->engine); /* as claimed */
    if (loaded->engine == engine && strcmp(loaded->model, task->model) == 0)
        return RL_OK;
    generate_unload(loaded);
    enum rl_rc rc =
        engine->load(tasks_config(tasks), device, task->model, ctl, &loaded->state, err);
    if (rc != RL_OK)
        return rc;
    loaded->engine = engine;
    (void)rl_copy_str(loaded->model, sizeof loaded->model, task->model);
    return RL_OK;
}

void generate_unload(struct loaded *loaded)
{
    if (loaded->engine)
        loaded->engine->unload(loaded->state);
    *loaded = (struct loaded){.engine = NULL};
}

/* A clip of which nothing can be seen is a fault of the device or the model, worth one more try. */
static enum rl_rc check_output(const struct maker *maker, struct rl_err *err)
{
    enum rl_rc rc = RL_OK;
    if (maker->frames != maker->task->frames)
        rc = rl_fail(err, RL_OUTPUT_INVALID, "the engine made %d of %lld frames", maker->frames,
                     (long long)maker->task->frames);
    else if (maker->flat_frames == maker->frames)
        rc = rl_fail(err, RL_OUTPUT_INVALID, "all pixels within every frame are equal");
    if (rc != RL_OK && err)
        err->retryable = maker->task->retry_count == 0;
    return rc;
}

static enum rl_rc commit_files(struct maker *maker, struct run_result *result, char *name,
                               struct rl_err *err)
{
    uint8_t hash[RL_SHA256_BYTES];
    struct video_info info;
    run_beat(maker->run, ENGINE_MUX, 0, 1);
    struct video *video = STEAL(maker->video);
    enum rl_rc rc = video_finish(video, &info, err);
    if (rc == RL_OK)
        rc = rl_sha256_file(maker->part, hash, &result->bytes, err);
    if (rc == RL_OK)
        rc = rl_fs_commit(maker->poster_part, maker->poster, err);
    if (rc == RL_OK)
        rc = rl_fs_commit(maker->part, maker->final, err);
    if (rc != RL_OK)
        return rc;
    rl_hex(hash, sizeof hash, result->sha256);
    (void)snprintf(name, 64, "%lld-%lld.mp4", (long long)maker->task->task_id,
                   (long long)maker->task->attempt);
    result->file = name;
    result->width = info.width;
    result->height = info.height;
    result->frames = info.frames;
    result->fps = info.fps;
    return RL_OK;
}

static void remove_files(const struct maker *maker)
{
    const char *paths[] = {maker->part, maker->final, maker->poster_part, maker->poster};
    for (size_t i = 0; i < RL_ARRAY_LEN(paths); i++)
        if (unlink(paths[i]) != 0 && errno != ENOENT)
            rl_log(RL_LOG_WARN, "unlink_failed", "task_id=%lld status=%s errno=%d",
                   (long long)maker->task->task_id, maker->task->status, errno);
}

/* The folder may have been removed under the running server. */
static enum rl_rc results_ready(const struct maker *maker, struct rl_err *err)
{
    char path[PATH_BYTES];
    int n = snprintf(path, sizeof path, "%s/results", config_text(maker->cfg, CFG_STATE_DIR));
    if (n < 0 || (size_t)n >= sizeof path)
        return rl_fail(err, RL_INTERNAL, "the path of the results is too long");
    return rl_fs_mkdirs(path, 0750, err);
}

static enum rl_rc make(struct tasks *tasks, const struct engine_device *device,
                       struct loaded *loaded, struct maker *maker, struct run_result *result,
                       char *name, struct rl_err *err)
{
    struct engine_ctl ctl = {.user = maker,
                             .progress = on_progress,
                             .should_stop = on_should_stop,
                             .on_frame = on_frame,
                             .checkpoint_due = on_checkpoint_due,
                             .checkpoint_save = on_checkpoint_save};
    struct engine_request request = task_request(maker->task);
    struct video_params video = video_of(maker, request.width, request.height);
    AUTO_FREE char *checkpoint = NULL;
    run_beat(maker->run, ENGINE_LOAD, 0, 1);
    enum rl_rc rc = results_ready(maker, err);
    if (rc == RL_OK)
        rc = video_ready(&video, NULL, err); /* before GPU time is spent */
    if (rc == RL_OK)
        rc = ensure_loaded(tasks, device, loaded, maker->task, &ctl, err);
    if (rc == RL_OK) {
        run_checkpoint_load(maker->run, &checkpoint, &ctl.checkpoint, &ctl.checkpoint_len);
        rc = loaded->engine->generate(loaded->state, &request, &ctl, err);
    }
    if (rc == RL_OK)
        rc = check_output(maker, err);
    return rc == RL_OK ? commit_files(maker, result, name, err) : rc;
}

/* A full disk or a failed write is the machine's trouble, not the prompt's: worth another try
 * later. What libav could not do says itself whether it is. */
static void mark_retryable(struct rl_err *err)
{
    if (err->code == RL_DISK_FULL || err->code == RL_IO_ERROR || err->code == RL_NO_MEMORY ||
        err->code == RL_OUT_OF_GPU_MEMORY)
        err->retryable = true;
}

/* Write the run's end; while the store refuses (full disk, long queue), keep it here and try again,
 * a while also when the program stops: a finished video is worth the wait. */
static enum rl_rc finish(struct tasks *tasks, struct run *run, const struct run_result *result,
                         const struct rl_err *why, struct rl_err *err)
{
    int64_t drain_ms = 0; /* since when it is known that the program stops */
    for (;;) {
        run_beat(run, ENGINE_MUX, 0, 1); /* it waits for the store, it does not hang */
        enum rl_rc rc = result ? run_succeed(run, result, err) : run_fail(run, why, err);
        if (!rl_transient(rc))
            return rc;
        if (run_should_stop(run) == RUN_DRAIN) {
            drain_ms = drain_ms ? drain_ms : rl_mono_ms();
            if (rl_mono_ms() - drain_ms >= FINISH_DRAIN_MS)
                return rc;
        }
        char text[300];
        rl_log(RL_LOG_ERROR, "finish_failed", "task_id=%lld status=PROCESSING code=%s reason=%s",
               (long long)run_task(run)->task_id, rl_code_name(rc),
               rl_log_quote(err->reason, text, sizeof text));
        (void)hub_wait(tasks_hub(tasks), NULL, hub_tick(tasks_hub(tasks)), FINISH_TRY_MS);
    }
}

enum rl_rc generate_run(struct tasks *tasks, const struct engine_device *device,
                        struct loaded *loaded, struct run *run, struct rl_err *err)
{
    struct maker maker = {.run = run,
                          .task = run_task(run),
                          .cfg = tasks_config(tasks),
                          .gpu = device->gpu ? device->index : -1,
                          .poster_at = (int)run_task(run)->frames / 2};
    struct run_result result = {.file = NULL};
    struct rl_err why = {.code = RL_OK};
    char name[64];
    run_paths(run, maker.part, maker.final, maker.poster_part, maker.poster, PATH_BYTES);
    enum rl_rc rc = make(tasks, device, loaded, &maker, &result, name, &why);
    video_abort(maker.video);
    if (rc == RL_OK) {
        rc = finish(tasks, run, &result, NULL, err);
        if (rc != RL_OK)
            remove_files(
                &maker); /* cancelled or superseded at the last moment: no row points there */
        return RL_OK;
    }
    remove_files(&maker);
    mark_retryable(&why);
    enum rl_rc written = finish(tasks, run, NULL, &why, err);
    if (written != RL_OK)
        rl_log(RL_LOG_WARN, "run_superseded", "task_id=%lld status=%s code=%s",
               (long long)maker.task->task_id, maker.task->status, rl_code_name(written));
    *err = why;
    return rc == RL_GPU_ERROR ? rc : RL_OK;
}
