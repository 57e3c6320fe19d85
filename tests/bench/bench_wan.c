/* The starter model: how long it takes to load and to make a clip at its defaults, and what memory
 * that needs. Beside it, if it was measured, the same clip by PyTorch (wan_torch.py).
 *
 *   bench_wan SCRATCH MODEL [MODELS_DIR [TORCH_SECONDS]]
 *
 * MODEL: a name, as in GET /api/v1/engines. MODELS_DIR: where to look besides the built-in starter.
 * One thread on both sides, and processor time, which neighbours on the machine disturb least; the
 * first clip does not count, as in a server. */
#include "bench.h"

#include "base/fs.h"

#include <time.h>

#define CLIPS 9

static double cpu_seconds(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); /* a clock that is there */
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static enum rl_rc take_frame(void *user, const struct engine_frame *frame, struct rl_err *err)
{
    (void)err;
    *(int *)user += frame->rgb != NULL;
    return RL_OK;
}

/* kB of a line of /proc/self/status. */
static double status_mb(const char *field)
{
    AUTO_FREE char *text = NULL;
    size_t len = 0;
    struct rl_err err;
    bench_ok(rl_fs_read("/proc/self/status", 1 << 16, &text, &len, &err), &err);
    const char *at = strstr(text, field);
    return at ? strtod(at + strlen(field), NULL) / 1000 : 0;
}

static void one_clip(const struct engine *engine, struct engine_run *run,
                     const struct engine_model *m, int64_t seed)
{
    struct rl_err err;
    int frames = 0;
    const struct engine_ctl ctl = {.user = &frames, .on_frame = take_frame};
    const struct engine_request request = {.prompt = "a red circle moving left",
                                           .negative_prompt = "",
                                           .model = m->name,
                                           .width = m->width,
                                           .height = m->height,
                                           .frames = m->frames,
                                           .fps = m->fps,
                                           .steps = m->steps,
                                           .seed = seed,
                                           .guidance_scale = m->guidance,
                                           .flow_shift = m->shift,
                                           .options = "{}"};
    bench_ok(engine->generate(run, &request, &ctl, &err), &err);
    if (frames != m->frames)
        bench_die("bench_wan", "frames are missing");
}

int main(int argc, char **argv)
{
    struct bench b;
    struct rl_err err;
    struct engine_run *run = NULL;
    const struct engine_device device = {.id = "cpu0", .backend = "cpu"};
    double loads[CLIPS], clips[CLIPS], torch_s = argc > 4 ? strtod(argv[4], NULL) : 0;
    if (argc < 3)
        bench_die("bench_wan", "SCRATCH MODEL [MODELS_DIR [TORCH_SECONDS]]");
    bench_new(&b, argv[1]);
    char slots[24];
    (void)snprintf(slots, sizeof slots, "%ld", sysconf(_SC_NPROCESSORS_ONLN)); /* fits */
    bench_set(&b, "pool.cpu_slots", slots); /* of one thread each */
    if (argc > 3)
        bench_set(&b, "model.dir", argv[3]);
    bench_ok(engines_open(b.cfg, &b.engines, &err), &err);
    const struct engine *engine = engines_find(b.engines, "wan");
    const struct engine_model *model = engine ? engine_find_model(engine, argv[2]) : NULL;
    if (!model)
        bench_die(argv[2], "there is no such model: see model.dir");
    double before = status_mb("VmRSS:");
    for (int i = 0; i < CLIPS; i++) {
        if (run)
            engine->unload(run);
        double start = cpu_seconds();
        bench_ok(engine->load(b.cfg, &device, model->name, &(struct engine_ctl){.user = NULL}, &run,
                              &err),
                 &err);
        loads[i] = cpu_seconds() - start;
    }
    one_clip(engine, run, model, 1);
    for (int i = 0; i < CLIPS; i++) {
        double start = cpu_seconds();
        one_clip(engine, run, model, i);
        clips[i] = cpu_seconds() - start;
    }
    double load = bench_median(loads, CLIPS), clip = bench_median(clips, CLIPS);
    double peak = status_mb("VmHWM:");
    char name[160];
    (void)snprintf(name, sizeof name, "%s: load", model->name);
    bench_line(name, "< 50 ms", load < 0.05, "%.1f ms", 1e3 * load);
    (void)snprintf(name, sizeof name, "%s: memory of a clip, weights included", model->name);
    bench_line(name, "< 200 MB", peak - before < 200, "%.0f MB (process %.0f MB)", peak - before,
               peak);
    (void)snprintf(name, sizeof name, "%s: clip of %d frames, %d steps", model->name, model->frames,
                   model->steps);
    if (torch_s > 0)
        bench_line(name, ">= 1.3x torch", torch_s / clip >= 1.3, "%.3f s, PyTorch %.3f s: %.1fx",
                   clip, torch_s, torch_s / clip);
    else
        bench_line(name, "", true, "%.3f s", clip);
    engine->unload(run);
    engines_close(b.engines);
    b.engines = NULL;
    bench_end(&b);
    return 0;
}
