/* Engines turn a request into frames. They know neither tasks nor SQL nor files of results.
 * An engine is a table of functions plus a description that is published by GET /api/v1/engines
 * and drives validation. The struct is also the plug-in ABI: bump ENGINE_ABI on any change. */
#ifndef RL_ENGINE_ENGINE_H
#define RL_ENGINE_ENGINE_H

#include "base/rl.h"

#define ENGINE_ABI 6

#define ENGINE_DEVICES_MAX 64

struct config;
struct rl_json;
struct rl_jw;

/* One place where a run can happen. */
struct engine_device {
    char id[32];    /* "cpu0", "gpu0": also the worker_id */
    char name[128]; /* what the driver calls it */
    bool gpu;
    int index;         /* the driver's number */
    int64_t mem_bytes; /* device memory, of a CPU slot its share of what the process may use; 0 =
                          not known */
    char backend[32];  /* "cpu" or the plug-in's back end ("cuda") */
};

/* How full a device is now; -1 = not known. */
struct engine_usage {
    int64_t mem_total_bytes, mem_free_bytes;
    double utilisation; /* 0..1, by the driver's own count of the last moment */
};

/* Phases of a run, in order; shown as `phase`. */
enum engine_phase {
    ENGINE_LOAD,
    ENGINE_ENCODE_TEXT,
    ENGINE_DENOISE,
    ENGINE_DECODE,
    ENGINE_MUX,
    ENGINE_PHASE_COUNT
};
const char *engine_phase_name(enum engine_phase phase); /* "load", "encode_text", … */

/* What to make. All numbers are resolved and inside the engine's limits. Borrowed for the run. */
struct engine_request {
    const char *prompt;          /* UTF-8, 1..32,768 bytes */
    const char *negative_prompt; /* "" when none */
    const char *model;           /* "" = the engine's default */
    int width, height;           /* px */
    int frames;
    int fps;
    int steps;    /* denoise steps; 0 for engines without */
    int64_t seed; /* 0 … 2^53-1 */
    double guidance_scale, flow_shift;
    const char *options; /* the `options` object as canonical JSON text, "{}" when none */
    int attempt;         /* 1 on the first run of the task */
    int retry_count;     /* retryable errors so far */
};

/* One RGB frame: rows of width*3 bytes, `stride` bytes apart; valid during the call only. */
struct engine_frame {
    const uint8_t *rgb;
    size_t stride;
    int width, height; /* px */
    int index;         /* 0-based, in order */
};

/* Call-backs of one run; `user` belongs to the caller. All are called on the run's own thread. */
struct engine_ctl {
    void *user;
    /* A unit of work was done: heartbeat and progress. step in 0..total. */
    void (*progress)(void *user, enum engine_phase phase, int step, int total);
    /* true: return RL_CANCELED within one unit of work. Cheap (an atomic). */
    bool (*should_stop)(void *user);
    /* Takes frame `index`; frames come in order. On error return that error at once. */
    enum rl_rc (*on_frame)(void *user, const struct engine_frame *frame, struct rl_err *err);
    /* Is it time to save? Asked before a checkpoint is put together, after any step and before
     * RL_CANCELED is returned (a run that hands its task back should not lose the steps since the
     * last save). NULL: the engine saves when it likes. Cheap. */
    bool (*checkpoint_due)(void *user);
    /* Save bytes as the run's checkpoint (replaces the earlier one); the step of the newest
     * progress call counts as reached by it. Optional to call. A failure is logged by the caller
     * of generate and costs time after a crash; it never ends the run. */
    enum rl_rc (*checkpoint_save)(void *user, const void *bytes, size_t len, struct rl_err *err);
    /* The checkpoint of an earlier attempt, or NULL/0. Borrowed until generate returns. */
    const void *checkpoint;
    size_t checkpoint_len;
};

/* One entry of an engine's `options` object. */
enum engine_option_type { ENGINE_OPTION_INT, ENGINE_OPTION_REAL, ENGINE_OPTION_CHOICE };
struct engine_option {
    const char *name;
    enum engine_option_type type;
    double min, max, fallback; /* INT and REAL */
    const char *choices;       /* CHOICE: "none|fail|hang"; the first is the default */
    const char *doc;
    bool hidden; /* refused and not published unless the engine unlocks it (faults) */
};

/* Limits and defaults of one model of an engine. */
struct engine_model {
    const char *name;
    const char *doc;                        /* what it understands, plainly */
    int min_px, max_px, px_step;            /* width and height */
    int max_pixels;                         /* width*height; 0 = max_px^2 */
    int min_frames, max_frames, frame_step; /* frames = min + k*step (Wan: 1 + 4k) */
    int min_fps, max_fps;
    int min_steps, max_steps;                    /* 0,0: no denoise steps */
    int width, height, frames, fps, steps;       /* defaults */
    double min_guidance, max_guidance, guidance; /* 0,0,0: not used */
    double min_shift, max_shift, shift;
};

/* Are the defaults possible values, and all of it there? An engine with a model of which this is
 * not so is refused. Any thread. */
bool engine_model_is_sound(const struct engine_model *model);

struct engine_run; /* an engine's loaded state on one device; defined by each engine */

struct engine {
    int abi; /* ENGINE_ABI */
    const char *name;
    const char *doc;
    const struct engine_model *models; /* the first is the default */
    size_t model_count;
    const struct engine_option *options;
    size_t option_count;

    /* Add the devices this engine can run on; NULL: any CPU slot will do. */
    enum rl_rc (*probe)(struct engine_device *devices, size_t room, size_t *ret_count,
                        struct rl_err *err);
    /* Load weights for `model` on `device`; thread: the pool thread that owns the device. Of ctl
     * only user, progress (ENGINE_LOAD) and should_stop count, each of which may be NULL: a large
     * model takes minutes. errors: RL_CANCELED (stop) and those of generate. */
    enum rl_rc (*load)(const struct config *cfg, const struct engine_device *device,
                       const char *model, const struct engine_ctl *ctl, struct engine_run **ret_run,
                       struct rl_err *err);
    /* Make the frames. errors: RL_CANCELED (stop), RL_ENGINE_ERROR with err->retryable,
     * RL_GPU_ERROR (device unusable), RL_OUT_OF_GPU_MEMORY, RL_NO_MEMORY, or on_frame's error. */
    enum rl_rc (*generate)(struct engine_run *run, const struct engine_request *request,
                           const struct engine_ctl *ctl, struct rl_err *err);
    void (*unload)(struct engine_run *run);
    /* ms until the inputs of a request are there (the task stays CREATED); NULL: 0. */
    int64_t (*input_wait_ms)(const struct engine_request *request);
    /* Estimate of the run's peak device memory in bytes, weights included; NULL or 0: not known.
     * Arithmetic only: it is asked inside a transaction. Any thread. */
    int64_t (*memory_bytes)(const struct engine *engine, const struct engine_request *request);
    /* How full one of the probed devices is, from its driver; NULL: nobody knows. Fills in what it
     * knows, the rest is -1 already. Any thread, also during a run, so it may not wait for the
     * device's work. errors: RL_NOT_FOUND (not a device of this engine), RL_GPU_ERROR. */
    enum rl_rc (*usage)(const struct engine_device *device, struct engine_usage *usage,
                        struct rl_err *err);
};

/* A plug-in is a shared object that exports this symbol. */
#define ENGINE_PLUGIN_SYMBOL "reeld_engine_plugin"
typedef const struct engine *(*engine_plugin_fn)(void);

/* The catalogue: the built-in engines and the plug-ins of engine.plugin_dir. Read-only after open.
 */
struct engines;
/* A plug-in that cannot be loaded (no driver, other ABI) is logged and left out. */
enum rl_rc engines_open(const struct config *cfg, struct engines **ret_engines, struct rl_err *err)
    RL_NODISCARD;
void engines_close(struct engines *engines);
const struct engine *engines_find(const struct engines *engines, const char *name); /* NULL: none */
/* Of tasks that name none: engine.default, or else the first; NULL: it is not here. */
const struct engine *engines_default(const struct engines *engines);
const struct engine_model *engine_find_model(const struct engine *engine,
                                             const char *name); /* "" = first */
/* All devices that probes reported at open (the first engine that names one counts); when none is a
 * GPU: pool.cpu_slots CPU devices "cpu0"…. Borrowed from the catalogue. */
const struct engine_device *engines_devices(const struct engines *engines, size_t *ret_count);
/* How full the device is, as the first engine that knows it says; all -1 when none does. Any
 * thread.
 */
void engines_usage(const struct engines *engines, const struct engine_device *device,
                   struct engine_usage *ret_usage);
/* Can this engine run on that device? (A CPU-only engine runs on any device's thread.) */
bool engine_runs_on(const struct engine *engine, const struct engine_device *device);

/* Does the device hold what the engine estimates? An engine without a probe works in the machine's
 * memory, of which each device has its share. What is not known fits. Any thread. */
bool engines_fit_on(const struct engines *engines, const struct engine *engine,
                    const struct engine_device *device, const struct engine_request *request);
/* Does any device? errors: RL_OUT_OF_GPU_MEMORY, or RL_NO_MEMORY of a CPU, with both figures. Any
 * thread. */
enum rl_rc engines_fit(const struct engines *engines, const struct engine *engine,
                       const struct engine_request *request, struct rl_err *err) RL_NODISCARD;

/* A request as a client wrote it, before resolution; -1 / NaN / NULL = not given. */
struct engine_wish {
    const char *engine, *model; /* NULL = default */
    int64_t width, height, frames, fps, steps;
    double guidance_scale, flow_shift;
    const struct rl_json *options; /* NULL = none */
};
/* Resolve a wish against the catalogue into `request` (engine numbers, model, options; prompt,
 * seed and attempts are the caller's). Errors name the field: `engine`, `model`, `width`,
 * `frames` (naming the nearest possible value), `options.fault`, …
 * request->options points into *ret_options_text (returns new; free it after the request). */
enum rl_rc engines_resolve(const struct engines *engines, const struct engine_wish *wish,
                           const struct engine **ret_engine, struct engine_request *ret_request,
                           char **ret_options_text, struct rl_err *err) RL_NODISCARD;
/* The published description of all engines: an array of objects (name, doc, default, models with
 * limits and defaults, options with type, range and doc). Hidden options only when unlocked. */
void engines_json(const struct engines *engines, struct rl_jw *w, const char *key);

#endif
