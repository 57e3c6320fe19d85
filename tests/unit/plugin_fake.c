/* A plug-in for the tests of the catalogue: an engine "fake" with two GPUs that do not exist and a
 * grid like that of a video model. Built a second time with another ABI number. */
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"

#ifndef FAKE_ABI
#define FAKE_ABI ENGINE_ABI
#endif

const struct engine *reeld_engine_plugin(void);

struct engine_run {
    int index; /* of the device */
};

static enum rl_rc fake_probe(struct engine_device *devices, size_t room, size_t *ret_count,
                             struct rl_err *err)
{
    (void)err;
    for (int i = 0; i < 2 && (size_t)i < room; i++) {
        devices[i] = (struct engine_device){.gpu = true, .index = i, .mem_bytes = INT64_C(8) << 30};
        (void)snprintf(devices[i].id, sizeof(devices[i].id), "gpu%d", i);
        (void)snprintf(devices[i].name, sizeof(devices[i].name), "Fake GPU %c", 'A' + i);
        (void)snprintf(devices[i].backend, sizeof(devices[i].backend), "fake");
    }
    *ret_count = room < 2 ? room : 2;
    return RL_OK;
}

/* The first is half full and was busy, of the second only the memory is known. */
static enum rl_rc fake_usage(const struct engine_device *device, struct engine_usage *usage,
                             struct rl_err *err)
{
    (void)err;
    if (strcmp(device->backend, "fake") != 0)
        return RL_NOT_FOUND;
    usage->mem_total_bytes = INT64_C(8) << 30;
    usage->mem_free_bytes = (INT64_C(8) << 30) / (2 + 2 * device->index);
    if (device->index == 0)
        usage->utilisation = 0.75;
    return RL_OK;
}

/* 1 GiB, and 1 kB for each pixel of each frame. */
static int64_t fake_memory(const struct engine *engine, const struct engine_request *request)
{
    (void)engine;
    return (INT64_C(1) << 30) + INT64_C(1000) * request->width * request->height * request->frames;
}

static enum rl_rc fake_load(const struct config *cfg, const struct engine_device *device,
                            const char *model, const struct engine_ctl *ctl,
                            struct engine_run **ret_run, struct rl_err *err)
{
    (void)cfg;
    (void)model;
    (void)ctl;
    (void)err;
    struct engine_run *run = calloc(1, sizeof(*run));
    if (!run)
        return RL_NO_MEMORY;
    run->index = device->index;
    *ret_run = run;
    return RL_OK;
}

/* Every frame has the grey value of the device's number. */
static enum rl_rc fake_generate(struct engine_run *run, const struct engine_request *request,
                                const struct engine_ctl *ctl, struct rl_err *err)
{
    size_t stride = (size_t)request->width * 3, bytes = stride * (size_t)request->height;
    uint8_t *rgb = malloc(bytes);
    enum rl_rc rc = rgb ? RL_OK : RL_NO_MEMORY;
    for (int i = 0; rc == RL_OK && i < request->frames; i++) {
        const struct engine_frame frame = {rgb, stride, request->width, request->height, i};
        memset(rgb, 100 + run->index, bytes);
        rc = ctl->on_frame(ctl->user, &frame, err);
    }
    free(rgb);
    return rc;
}

static void fake_unload(struct engine_run *run)
{
    free(run);
}

static const struct engine_model fake_models[] = {
    {.name = "small",
     .doc = "a grid like that of a video model",
     .min_px = 64,
     .max_px = 1024,
     .px_step = 16,
     .max_pixels = 480 * 832,
     .min_frames = 1,
     .max_frames = 81,
     .frame_step = 4,
     .min_fps = 8,
     .max_fps = 30,
     .min_steps = 4,
     .max_steps = 50,
     .width = 832,
     .height = 480,
     .frames = 33,
     .fps = 16,
     .steps = 20,
     .min_guidance = 1,
     .max_guidance = 10,
     .guidance = 5,
     .min_shift = 1,
     .max_shift = 12,
     .shift = 3},
    {.name = "tiny",
     .doc = "no knobs",
     .min_px = 16,
     .max_px = 64,
     .px_step = 16,
     .min_frames = 1,
     .max_frames = 5,
     .frame_step = 1,
     .min_fps = 1,
     .max_fps = 30,
     .width = 32,
     .height = 32,
     .frames = 2,
     .fps = 8},
};
static const struct engine_option fake_options[] = {
    {.name = "strength",
     .type = ENGINE_OPTION_REAL,
     .min = 0,
     .max = 1,
     .fallback = 0.5,
     .doc = "a real number"},
    {.name = "mode", .type = ENGINE_OPTION_CHOICE, .choices = "fast|fine", .doc = "a choice"},
};

const struct engine *reeld_engine_plugin(void)
{
    static const struct engine engine = {.abi = FAKE_ABI,
                                         .name = "fake",
                                         .doc = "two GPUs that do not exist",
                                         .models = fake_models,
                                         .model_count = 2,
                                         .options = fake_options,
                                         .option_count = 2,
                                         .probe = fake_probe,
                                         .load = fake_load,
                                         .generate = fake_generate,
                                         .unload = fake_unload,
                                         .memory_bytes = fake_memory,
                                         .usage = fake_usage};
    return &engine;
}
