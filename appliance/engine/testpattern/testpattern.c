/* The testpattern engine: the test card as an engine, with pauses, checkpoints and faults that
 * tests and operators can script. Runs on any CPU slot; a run belongs to one pool thread.
 * Invariants: frames are a function of the request alone, so an interrupted run that resumes from
 * its checkpoint emits the same bytes; faults happen only when the request asks for them, and the
 * catalogue refuses that request unless testpattern.faults is on. */
#include "engine/testpattern/testpattern.h"

#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "engine/engine.h"
#include "engine/testpattern/card.h"

#define SLICE_MS           20   /* longest sleep between two looks at should_stop */
#define BEAT_MS            1000 /* a long frame still beats */
#define CHECKPOINT_EACH    8    /* frames */
#define CHECKPOINT_EACH_MS 1000
#define CHECKPOINT_BYTES   18
#define CHECKPOINT_MAGIC   "RLTP"
#define CHECKPOINT_VERSION 1

enum fault {
    FAULT_NONE,
    FAULT_FAIL,
    FAULT_FAIL_ONCE,
    FAULT_HANG,
    FAULT_ABORT,
    FAULT_CONSTANT,
    FAULT_SHORT
};
#define FAULT_WORDS "none|fail|fail_once|hang|abort|constant|short"
static const char *const fault_words[] = {"none",  "fail",     "fail_once", "hang",
                                          "abort", "constant", "short"};

struct script {
    int64_t frame_ms, input_ms, fault_at;
    enum fault fault;
};

struct engine_run {
    char device[32];
};

/* One generate call. */
struct work {
    const struct engine_request *request;
    const struct engine_ctl *ctl;
    struct script script;
    struct card *card;     /* owned */
    int resume;            /* frames below this were made by an earlier attempt */
    int made;              /* frames that were handed over */
    int64_t checkpoint_ms; /* when the last checkpoint was saved */
};

/* The options were checked by the catalogue; what is absent or odd keeps its default. */
static enum rl_rc read_script(const struct engine_request *request, struct script *ret_script,
                              struct rl_err *err)
{
    struct script s = {.fault = FAULT_NONE};
    AUTO_JSON struct rl_json *root = NULL;
    const char *text = request->options ? request->options : "{}";
    enum rl_rc rc = rl_json_parse(text, strlen(text), &root, err);
    if (rc != RL_OK)
        return rc;
    const struct {
        const char *name;
        int64_t max, *value;
    } numbers[] = {{"frame_ms", 60000, &s.frame_ms},
                   {"input_ms", 3600000, &s.input_ms},
                   {"fault_at", 3600, &s.fault_at}};
    for (size_t i = 0; i < RL_ARRAY_LEN(numbers); i++) {
        const struct rl_json *v = rl_json_get(root, numbers[i].name);
        if (v &&
            rl_json_int(v, numbers[i].name, 0, numbers[i].max, numbers[i].value, NULL) != RL_OK)
            *numbers[i].value = 0;
    }
    const struct rl_json *v = rl_json_get(root, "fault");
    const char *word = v ? rl_json_text(v) : NULL;
    for (size_t i = 0; word && i < RL_ARRAY_LEN(fault_words); i++)
        if (strcmp(word, fault_words[i]) == 0)
            s.fault = (enum fault)i;
    *ret_script = s;
    return RL_OK;
}

/* What a checkpoint must match before its frames count as made. FNV-1a. */
static uint64_t params_hash(const struct engine_request *request)
{
    const int64_t numbers[] = {request->width, request->height, request->frames, request->fps,
                               request->seed};
    const char *texts[] = {request->prompt, request->options ? request->options : "{}"};
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < RL_ARRAY_LEN(numbers); i++)
        for (int k = 0; k < 8; k++)
            h = (h ^ ((uint64_t)numbers[i] >> (8 * k) & 255)) * UINT64_C(0x100000001b3);
    for (size_t i = 0; i < RL_ARRAY_LEN(texts); i++)
        for (const char *p = texts[i];; p++) {
            h = (h ^ (unsigned char)*p) * UINT64_C(0x100000001b3);
            if (!*p)
                break;
        }
    return h;
}

/* Little-endian: magic[4], version[2], params hash[8], next frame[4]. */
static void put(uint8_t *at, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        at[i] = (uint8_t)(v >> (8 * i));
}

static uint64_t get(const uint8_t *at, int bytes)
{
    uint64_t v = 0;
    for (int i = bytes - 1; i >= 0; i--)
        v = v << 8 | at[i];
    return v;
}

/* The first frame that still has to be made; 0 when there is no checkpoint of this very work. */
static int read_checkpoint(const struct engine_request *request, const struct engine_ctl *ctl)
{
    const uint8_t *b = ctl->checkpoint;
    if (!b || ctl->checkpoint_len != CHECKPOINT_BYTES || memcmp(b, CHECKPOINT_MAGIC, 4) != 0 ||
        get(b + 4, 2) != CHECKPOINT_VERSION || get(b + 6, 8) != params_hash(request))
        return 0;
    uint64_t next = get(b + 14, 4);
    return next <= (uint64_t)request->frames ? (int)next : 0;
}

static bool checkpoint_due(const struct work *w)
{
    if (!w->ctl->checkpoint_save || w->made <= w->resume || w->made == w->request->frames)
        return false;
    if (w->ctl->checkpoint_due)
        return w->ctl->checkpoint_due(w->ctl->user);
    return w->made % CHECKPOINT_EACH == 0 || rl_mono_ms() - w->checkpoint_ms >= CHECKPOINT_EACH_MS;
}

/* A checkpoint that cannot be kept costs time after a crash, not the run. */
static void save_checkpoint(struct work *w)
{
    uint8_t b[CHECKPOINT_BYTES];
    struct rl_err why = {0};
    if (!checkpoint_due(w))
        return;
    memcpy(b, CHECKPOINT_MAGIC, 4);
    put(b + 4, CHECKPOINT_VERSION, 2);
    put(b + 6, params_hash(w->request), 8);
    put(b + 14, (uint64_t)w->made, 4);
    if (w->ctl->checkpoint_save(w->ctl->user, b, sizeof(b), &why) != RL_OK)
        rl_log(RL_LOG_WARN, "checkpoint_not_saved", "engine=testpattern code=%s",
               rl_code_name(why.code));
    w->checkpoint_ms = rl_mono_ms();
}

static void beat(const struct work *w, enum engine_phase phase, int step, int total)
{
    if (w->ctl->progress)
        w->ctl->progress(w->ctl->user, phase, step, total);
}

static bool stopped(const struct work *w)
{
    return w->ctl->should_stop && w->ctl->should_stop(w->ctl->user);
}

/* Spend frame_ms; RL_CANCELED as soon as the caller wants to stop. */
static enum rl_rc pause_frame(const struct work *w, int index, struct rl_err *err)
{
    int64_t now = rl_mono_ms(), end = now + w->script.frame_ms, beaten = now;
    for (; !stopped(w); now = rl_mono_ms()) {
        if (now >= end)
            return RL_OK;
        if (now - beaten >= BEAT_MS) {
            beat(w, ENGINE_DENOISE, index, w->request->frames);
            beaten = now;
        }
        int64_t ms = end - now < SLICE_MS ? end - now : SLICE_MS;
        struct timespec slice = {.tv_nsec = (long)ms * 1000000};
        (void)nanosleep(&slice, NULL); /* cut short by a signal: the loop looks at the clock */
    }
    return rl_fail(err, RL_CANCELED, "stopped at frame %d", index);
}

/* Faults that happen instead of frame `index`. */
static enum rl_rc strike(const struct work *w, int index, struct rl_err *err)
{
    enum fault fault = w->script.fault;
    if (index != w->script.fault_at)
        return RL_OK;
    if (fault == FAULT_HANG)
        for (;;)
            (void)pause(); /* as a lost kernel would: no beat, no answer, no CPU */
    if (fault == FAULT_ABORT)
        (void)kill(getpid(), SIGKILL); /* does not return */
    if (fault == FAULT_FAIL || (fault == FAULT_FAIL_ONCE && w->request->retry_count == 0)) {
        enum rl_rc rc = rl_fail(err, RL_ENGINE_ERROR, "scripted failure at frame %d", index);
        if (err)
            err->retryable = true;
        return rc;
    }
    return RL_OK;
}

static enum rl_rc make_frame(struct work *w, int index, struct rl_err *err)
{
    const struct engine_request *request = w->request;
    if (stopped(w))
        return rl_fail(err, RL_CANCELED, "stopped at frame %d", index);
    enum rl_rc rc = strike(w, index, err);
    if (rc == RL_OK && index >= w->resume && w->script.frame_ms > 0)
        rc = pause_frame(w, index, err);
    if (rc != RL_OK)
        return rc;
    bool constant = w->script.fault == FAULT_CONSTANT && index >= w->script.fault_at;
    struct engine_frame frame = {.rgb =
                                     constant ? card_constant(w->card) : card_frame(w->card, index),
                                 .stride = (size_t)request->width * 3,
                                 .width = request->width,
                                 .height = request->height,
                                 .index = index};
    rc = w->ctl->on_frame(w->ctl->user, &frame, err);
    if (rc != RL_OK)
        return rc;
    w->made = index + 1;
    beat(w, ENGINE_DENOISE, w->made, request->frames);
    save_checkpoint(w);
    return RL_OK;
}

static enum rl_rc testpattern_generate(struct engine_run *run, const struct engine_request *request,
                                       const struct engine_ctl *ctl, struct rl_err *err)
{
    (void)run; /* nothing is loaded */
    struct work w = {.request = request,
                     .ctl = ctl,
                     .resume = read_checkpoint(request, ctl),
                     .checkpoint_ms = rl_mono_ms()};
    enum rl_rc rc = read_script(request, &w.script, err);
    if (rc != RL_OK)
        return rc;
    int frames = w.script.fault == FAULT_SHORT ? request->frames / 2 : request->frames;
    beat(&w, ENGINE_LOAD, 0, 1);
    rc = card_new(request, &w.card, err);
    if (rc != RL_OK)
        return rc;
    beat(&w, ENGINE_LOAD, 1, 1);
    for (int i = 0; rc == RL_OK && i < frames; i++)
        rc = make_frame(&w, i, err);
    if (rc == RL_CANCELED)
        save_checkpoint(&w);
    card_free(w.card);
    return rc;
}

static enum rl_rc testpattern_load(const struct config *cfg, const struct engine_device *device,
                                   const char *model, const struct engine_ctl *ctl,
                                   struct engine_run **ret_run, struct rl_err *err)
{
    (void)cfg;
    (void)model; /* there is one */
    (void)ctl;
    struct engine_run *run = calloc(1, sizeof(*run));
    if (!run)
        return rl_fail(err, RL_NO_MEMORY, "load testpattern");
    (void)rl_copy_str(run->device, sizeof(run->device), device->id);
    *ret_run = run;
    return RL_OK;
}

static void testpattern_unload(struct engine_run *run)
{
    free(run);
}

static int64_t testpattern_input_wait_ms(const struct engine_request *request)
{
    struct script script;
    return read_script(request, &script, NULL) == RL_OK ? script.input_ms : 0;
}

const struct engine *testpattern_engine(void)
{
    static const struct engine_model models[] = {
        {.name = "testcard",
         .doc = "a test card with a moving figure; understands colours (red, blue …), shapes "
                "(circle, square, "
                "triangle, star, diamond), movements (left, right, up, down, diagonally, around, "
                "bouncing), "
                "spinning, and \"on a … background\"",
         .min_px = 32,
         .max_px = 2048,
         .px_step = 2,
         .min_frames = 1,
         .max_frames = 3600,
         .frame_step = 1,
         .min_fps = 1,
         .max_fps = 60,
         .width = 640,
         .height = 360,
         .frames = 48,
         .fps = 24}};
    static const struct engine_option options[] = {
        {.name = "frame_ms",
         .type = ENGINE_OPTION_INT,
         .min = 0,
         .max = 60000,
         .doc = "time that each frame takes, in ms"},
        {.name = "input_ms",
         .type = ENGINE_OPTION_INT,
         .min = 0,
         .max = 3600000,
         .doc = "time until the inputs are there, in ms; the task stays CREATED that long"},
        {.name = "fault",
         .type = ENGINE_OPTION_CHOICE,
         .choices = FAULT_WORDS,
         .hidden = true,
         .doc = "what goes wrong: fail and fail_once are retryable, hang never returns, abort "
                "kills the server, "
                "constant paints empty frames, short stops at half the frames"},
        {.name = "fault_at",
         .type = ENGINE_OPTION_INT,
         .min = 0,
         .max = 3600,
         .hidden = true,
         .doc = "the frame at which it goes wrong, from 0"}};
    static const struct engine engine = {
        .abi = ENGINE_ABI,
        .name = "testpattern",
        .doc = "deterministic test cards drawn by the CPU, for trying reeld out and for diagnosis",
        .models = models,
        .model_count = RL_ARRAY_LEN(models),
        .options = options,
        .option_count = RL_ARRAY_LEN(options),
        .load = testpattern_load,
        .generate = testpattern_generate,
        .unload = testpattern_unload,
        .input_wait_ms = testpattern_input_wait_ms};
    return &engine;
}
