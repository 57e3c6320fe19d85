/* The engine as the pool sees it, with the tiny model of tests/unit/wan in a models folder: what it
 * publishes, a clip from prompt to frames, stopping within a step, going on from a checkpoint with
 * the same bits, and what it says of the memory that it needs. */
#include "wan_film.h"

#include "base/crypto.h"
#include "base/log.h"
#include "config/config.h"
#include "engine/wan/estimate.h"
#include "engine/wan/wan.h"

#include <sys/stat.h>
#include <unistd.h>

#define STEPS  6
#define FRAMES 9
#define PX     32 /* of the model's own pictures */

struct machine {
    char dir[64], link[96];
    struct config *cfg;
    struct engine *engine;
    struct engine_run *run;
};

static const struct engine_device cpu = {.id = "cpu0", .backend = "cpu"};

static int open_machine(void **state)
{
    static struct machine m;
    struct rl_err err = {0};
    m = (struct machine){.dir = "/tmp/reeld-wan-XXXXXX"};
    rl_log_set_level(RL_LOG_ERROR);
    must(rl_crypto_init(&err), &err);
    if (!mkdtemp(m.dir) || !(m.cfg = config_new()))
        return -1;
    (void)snprintf(m.link, sizeof m.link, "%s/tiny", m.dir); /* fits */
    if (symlink(WAN_TINY, m.link) != 0)
        return -1;
    must(config_set(m.cfg, "model.dir", m.dir, &err), &err);
    must(wan_engine_new(m.cfg, &m.engine, &err), &err);
    assert_non_null(m.engine);
    must(m.engine->load(m.cfg, &cpu, "tiny", &(struct engine_ctl){.user = NULL}, &m.run, &err),
         &err);
    *state = &m;
    return 0;
}

static int close_machine(void **state)
{
    struct machine *m = *state;
    m->engine->unload(m->run);
    wan_engine_free(m->engine);
    config_free(m->cfg);
    (void)unlink(m->link);
    return rmdir(m->dir);
}

/* ---- one clip, watched ---- */

struct watcher {
    /* what happens */
    int stop_step, stop_frame; /* stop when so much is done; -1: never */
    int stop_beat;             /* stop at this sign of life; 0: at none */
    int save_step;             /* keep the checkpoint of this step; -1: of none */
    bool save_always;
    int width, height; /* expected */
    /* what was seen */
    int beats, steps, frames, layers, saves;
    uint8_t *all; /* the frames, owned */
    uint8_t *checkpoint;
    size_t checkpoint_len;
    bool stopping;
};

static void on_progress(void *user, enum engine_phase phase, int step, int total)
{
    struct watcher *w = user;
    if (phase == ENGINE_ENCODE_TEXT)
        w->layers++;
    if (phase == ENGINE_DENOISE) {
        assert_int_equal(total, STEPS);
        assert_true(step >= w->steps);
        w->steps = step;
    }
    if (phase == ENGINE_DECODE)
        assert_int_equal(total, FRAMES);
    w->beats++;
    w->stopping = (w->stop_beat && w->beats >= w->stop_beat) ||
                  (w->stop_step >= 0 && phase == ENGINE_DENOISE && step == w->stop_step) ||
                  (w->stop_frame >= 0 && phase == ENGINE_DECODE && step == w->stop_frame);
}

static bool on_should_stop(void *user)
{
    return ((struct watcher *)user)->stopping;
}

static enum rl_rc on_frame(void *user, const struct engine_frame *frame, struct rl_err *err)
{
    struct watcher *w = user;
    size_t bytes = (size_t)w->width * (size_t)w->height * 3;
    (void)err;
    assert_int_equal(frame->width, w->width);
    assert_int_equal(frame->height, w->height);
    assert_int_equal(frame->index, w->frames);
    assert_int_equal(frame->stride, (size_t)w->width * 3);
    w->all = realloc(w->all, (size_t)(w->frames + 1) * bytes);
    assert_non_null(w->all);
    memcpy(w->all + (size_t)w->frames++ * bytes, frame->rgb, bytes);
    return RL_OK;
}

static bool on_due(void *user)
{
    struct watcher *w = user;
    return w->save_always || w->save_step == w->steps;
}

static enum rl_rc on_save(void *user, const void *bytes, size_t len, struct rl_err *err)
{
    struct watcher *w = user;
    (void)err;
    free(w->checkpoint);
    w->checkpoint = malloc(len);
    assert_non_null(w->checkpoint);
    memcpy(w->checkpoint, bytes, len);
    w->checkpoint_len = len;
    w->saves++;
    return RL_OK;
}

static struct watcher watcher(void)
{
    return (struct watcher){
        .stop_step = -1, .stop_frame = -1, .save_step = -1, .width = PX, .height = PX};
}

static void forget(struct watcher *w)
{
    free(w->all);
    free(w->checkpoint);
}

static struct engine_request request_of(const char *options)
{
    return (struct engine_request){.prompt = "a red circle moving left",
                                   .negative_prompt = "",
                                   .model = "tiny",
                                   .width = PX,
                                   .height = PX,
                                   .frames = FRAMES,
                                   .fps = 8,
                                   .steps = STEPS,
                                   .seed = 42,
                                   .guidance_scale = 4,
                                   .flow_shift = 3,
                                   .options = options,
                                   .attempt = 1};
}

/* from: whose checkpoint to go on from, or NULL. */
static enum rl_rc make(const struct machine *m, const struct engine_request *request,
                       struct watcher *w, const struct watcher *from, struct rl_err *err)
{
    const struct engine_ctl ctl = {.user = w,
                                   .progress = on_progress,
                                   .should_stop = on_should_stop,
                                   .on_frame = on_frame,
                                   .checkpoint_due = on_due,
                                   .checkpoint_save = on_save,
                                   .checkpoint = from ? from->checkpoint : NULL,
                                   .checkpoint_len = from ? from->checkpoint_len : 0};
    w->width = request->width;
    w->height = request->height;
    return m->engine->generate(m->run, request, &ctl, err);
}

static void assert_same_clip(const struct watcher *a, const struct watcher *b)
{
    assert_int_equal(a->frames, FRAMES);
    assert_int_equal(b->frames, FRAMES);
    assert_memory_equal(a->all, b->all, (size_t)(FRAMES * PX * PX * 3));
}

/* ---- tests ---- */

static void test_new_publishes_the_models_of_the_folder(void **state)
{
    const struct machine *m = *state;
    const struct engine_model *model = NULL;
    for (size_t i = 0; i < m->engine->model_count; i++)
        if (!strcmp(m->engine->models[i].name, "tiny"))
            model = &m->engine->models[i];
    assert_non_null(model);
    assert_int_equal(model->frames, FRAMES);
    assert_int_equal(model->min_frames, FRAMES); /* made for one length alone */
    assert_int_equal(model->max_frames, FRAMES);
    assert_int_equal(model->width, 4 * PX);
    assert_int_equal(model->steps, STEPS);
    assert_true(model->guidance == 4 && model->shift == 3);
    assert_true(strlen(model->doc) > 20);
}

static void test_new_without_a_model(void **state)
{
    struct rl_err err = {0};
    struct engine *engine = NULL;
    struct config *cfg = config_new();
    (void)state;
    assert_non_null(cfg);
    must(config_set(cfg, "model.dir", "/nonexistent", &err), &err);
    must(wan_engine_new(cfg, &engine, &err), &err);
    for (size_t i = 0; engine && i < engine->model_count; i++)
        assert_string_equal(engine->models[i].name, "starter"); /* if it was built in */
    wan_engine_free(engine);
    config_free(cfg);
}

/* The engine's noise is not PyTorch's: the run of the fixture is checked in test_wan_run.c. Here:
 * the same request gives the same bits, another seed, prompt or solver another clip. */
static void test_generate_is_a_function_of_the_request(void **state)
{
    const struct machine *m = *state;
    struct rl_err err = {0};
    struct engine_request request = request_of("{}"), other;
    struct watcher first = watcher(), again = watcher();
    must(make(m, &request, &first, NULL, &err), &err);
    must(make(m, &request, &again, NULL, &err), &err);
    assert_same_clip(&first, &again);
    assert_int_equal(first.steps, STEPS);
    assert_int_equal(first.layers, 4); /* two layers, for both prompts */
    assert_int_equal(again.layers, 2); /* the negative one was kept */
    for (int i = 0; i < 6; i++) {
        struct watcher w = watcher();
        other = request;
        if (i == 0)
            other.seed = 43;
        else if (i == 1)
            other.prompt = "one blue square";
        else if (i == 2)
            other.options = "{\"solver\":\"euler\"}";
        else if (i == 3)
            other.options = "{\"schedule\":\"diffusers\"}";
        else if (i == 4)
            other.negative_prompt = "white";
        else
            other.guidance_scale = 1;
        must(make(m, &other, &w, NULL, &err), &err);
        assert_int_equal(w.frames, FRAMES);
        assert_memory_not_equal(first.all, w.all, (size_t)(FRAMES * PX * PX * 3));
        forget(&w);
    }
    other.options = "{\"solver\":\"auto\",\"schedule\":\"wan\"}";
    other.guidance_scale = 4;
    struct watcher named = watcher();
    must(make(m, &other, &named, NULL, &err), &err);
    assert_same_clip(&first, &named);
    forget(&first);
    forget(&again);
    forget(&named);
}

struct pictures {
    const struct world *w;
    uint8_t all[FRAMES][PX * PX * 3];
    int count;
};

static enum rl_rc keep_picture(void *user, const void *picture, int h, int w, struct rl_err *err)
{
    struct pictures *p = user;
    assert_true(p->count < FRAMES);
    return p->w->ops->to_rgb(p->w->ctx, p->all[p->count++], picture, h, w, err);
}

/* The engine adds nothing to the networks: its prompt, noise, guidance and order are these. */
static void test_generate_is_the_run_of_the_networks(void **state)
{
    static const int64_t dims[] = {4, 3, PX / 8, PX / 8};
    static struct pictures pictures;
    const struct machine *m = *state;
    struct engine_request request = request_of("{}");
    struct watcher w = watcher();
    struct world world;
    struct rl_err err = {0};
    float z[4 * 3 * 16];
    world_open(&world, ops_cpu());
    float *x = on_device(&world, NULL, sizeof z);
    world.ops->noise(world.ctx, x, (uint64_t)request.seed, 4 * 3 * 16);
    film_denoise(&world, SAMPLER_UNIPC, dims, x);
    must(world.ops->download(world.ctx, z, x, sizeof z, &err), &err);
    world.ops->free(world.ctx, x);
    pictures = (struct pictures){.w = &world};
    const struct vae_sink sink = {.user = &pictures, .frame = keep_picture};
    film_decode(&world, dims, z, &sink);
    must(make(m, &request, &w, NULL, &err), &err);
    assert_int_equal(pictures.count, FRAMES);
    assert_memory_equal(w.all, pictures.all, sizeof pictures.all);
    forget(&w);
    world_close(&world);
}

static void test_generate_scales_to_the_size_asked_for(void **state)
{
    const struct machine *m = *state;
    struct rl_err err = {0};
    struct engine_request request = request_of("{}");
    struct watcher w = watcher();
    request.width = 200;
    request.height = 128;
    must(make(m, &request, &w, NULL, &err), &err);
    assert_int_equal(w.frames, FRAMES);
    forget(&w);
}

static void test_generate_stops_within_a_step(void **state)
{
    const struct machine *m = *state;
    struct rl_err err = {0};
    struct engine_request request = request_of("{}");
    for (int stop = 0; stop < STEPS; stop++) {
        struct watcher w = watcher();
        w.stop_step = stop;
        assert_int_equal(make(m, &request, &w, NULL, &err), RL_CANCELED);
        assert_int_equal(w.steps, stop);
        assert_int_equal(w.frames, 0);
        forget(&w);
    }
    for (int stop = 0; stop < FRAMES; stop++) {
        struct watcher w = watcher();
        w.stop_frame = stop;
        assert_int_equal(make(m, &request, &w, NULL, &err), RL_CANCELED);
        assert_int_equal(w.frames, stop);
        forget(&w);
    }
}

static void test_generate_goes_on_with_the_same_bits(void **state)
{
    const struct machine *m = *state;
    static const char *const options[] = {"{}", "{\"solver\":\"euler\"}"};
    struct rl_err err = {0};
    for (size_t k = 0; k < RL_ARRAY_LEN(options); k++) {
        struct engine_request request = request_of(options[k]);
        struct watcher whole = watcher();
        must(make(m, &request, &whole, NULL, &err), &err);
        assert_int_equal(whole.saves, 0);
        for (int cut = 1; cut <= STEPS; cut++) {
            struct watcher first = watcher(), second = watcher();
            first.save_step = cut;
            first.stop_step = cut < STEPS ? cut : -1;
            first.stop_frame = cut < STEPS ? -1 : 3;
            assert_int_equal(make(m, &request, &first, NULL, &err), RL_CANCELED);
            assert_int_equal(first.saves, 1);
            second.save_step = cut;
            must(make(m, &request, &second, &first, &err), &err);
            assert_int_equal(second.saves, 0);                    /* it has that one */
            assert_int_equal(second.layers, cut < STEPS ? 2 : 0); /* no text, when it is done */
            assert_same_clip(&whole, &second);
            forget(&first);
            forget(&second);
        }
        forget(&whole);
    }
}

/* At every sign of life, most of which are in the middle of a step or of a frame: it stops there,
 * and what was saved leads to the same bits. */
static void test_generate_stops_at_every_beat(void **state)
{
    const struct machine *m = *state;
    const struct wan_config *c = wan_model_config(m->run->model);
    struct rl_err err = {0};
    struct engine_request request = request_of("{}");
    struct watcher whole = watcher();
    must(make(m, &request, &whole, NULL, &err), &err);
    assert_true(whole.beats > STEPS * 3 * c->dit.layers + FRAMES);
    /* Some of them where each instruction is watched, the last one always. */
    int stride = getenv("REELD_WATCHED") ? 13 : 1;
    for (int beat = whole.beats; beat > 0; beat -= stride) {
        struct watcher first = watcher(), second = watcher();
        first.stop_beat = beat;
        first.save_always = true;
        enum rl_rc rc = make(m, &request, &first, NULL, &err);
        /* nobody asks after the last frame; a phase may begin before somebody asks */
        assert_int_equal(rc, beat == whole.beats ? RL_OK : RL_CANCELED);
        assert_in_range(first.beats, beat, beat + 2);
        assert_true(first.steps == 0 || first.saves == first.steps);
        must(make(m, &request, &second, &first, &err), &err);
        assert_same_clip(&whole, &second);
        forget(&first);
        forget(&second);
    }
    forget(&whole);
}

static void test_load_stops_at_every_tensor(void **state)
{
    const struct machine *m = *state;
    enum rl_rc rc = RL_CANCELED;
    int beat = 0;
    while (rc != RL_OK) {
        struct engine_run *run = NULL;
        struct rl_err err = {0};
        struct watcher w = watcher();
        w.stop_beat = ++beat;
        const struct engine_ctl ctl = {
            .user = &w, .progress = on_progress, .should_stop = on_should_stop};
        rc = m->engine->load(m->cfg, &cpu, "tiny", &ctl, &run, &err);
        if (rc == RL_OK) {
            m->engine->unload(run);
            break;
        }
        assert_int_equal(rc, RL_CANCELED);
        assert_null(run);
        assert_int_equal(w.beats, beat);
    }
    assert_true(beat > 100); /* so many tensors has even the tiny one */
}

static void test_generate_starts_over_from_a_foreign_checkpoint(void **state)
{
    const struct machine *m = *state;
    struct rl_err err = {0};
    struct engine_request request = request_of("{}"), other = request;
    struct watcher whole = watcher(), foreign = watcher(), cut = watcher();
    must(make(m, &request, &whole, NULL, &err), &err);
    other.seed = 7;
    foreign.save_step = foreign.stop_step = 3;
    assert_int_equal(make(m, &other, &foreign, NULL, &err), RL_CANCELED);
    must(make(m, &request, &cut, &foreign, &err), &err); /* of another seed */
    assert_same_clip(&whole, &cut);
    for (size_t at = 0; at < foreign.checkpoint_len; at += 97) { /* damaged, or cut short */
        struct watcher w = watcher(), damaged = foreign;
        damaged.checkpoint = malloc(foreign.checkpoint_len);
        assert_non_null(damaged.checkpoint);
        memcpy(damaged.checkpoint, foreign.checkpoint, foreign.checkpoint_len);
        if (at % 2)
            damaged.checkpoint[at] ^= 1;
        else
            damaged.checkpoint_len = at;
        w.stop_step = 0; /* from the start: it would be 3 */
        assert_int_equal(make(m, &other, &w, &damaged, &err), RL_CANCELED);
        assert_int_equal(w.steps, 0);
        free(damaged.checkpoint);
        forget(&w);
    }
    forget(&whole);
    forget(&foreign);
    forget(&cut);
}

/* Guidance beyond all measure ends in numbers that are none, not in a grey video. */
static void test_generate_refuses_latents_that_are_not_numbers(void **state)
{
    const struct machine *m = *state;
    struct rl_err err = {0};
    struct engine_request request = request_of("{\"solver\":\"euler\"}");
    struct watcher w = watcher();
    request.guidance_scale = 1e38;
    assert_int_equal(make(m, &request, &w, NULL, &err),
                     RL_OUTPUT_INVALID); /* no checkpoint stays */
    assert_true(err.retryable);
    assert_int_equal(w.frames, 0);
    forget(&w);
    w = watcher();
    request.retry_count = 1;
    assert_int_equal(make(m, &request, &w, NULL, &err), RL_OUTPUT_INVALID);
    assert_false(err.retryable);
    forget(&w);
}

/* Clips large enough that buffers count for more than the ends of blocks; the plain forms keep
 * nothing for themselves. */
static void test_estimate_is_what_a_clip_needs(void **state)
{
    struct world w;
    struct rl_err err = {0};
    struct engine_run run = {.ops = ops_reference()};
    size_t now, peak;
    (void)state;
    world_open(&w, run.ops);
    const struct wan_config *c = wan_model_config(w.model);
    for (int prompts = 1; prompts <= 2; prompts++) {
        const struct clip_size size = {.width = 512, .height = 256, .f = 5, .h = 32, .w = 64};
        struct dit_clip *dit_clip = NULL;
        struct dit_prompt *prompt[2] = {NULL, NULL};
        struct vae_clip *vae_clip = NULL;
        must(text_new(w.ops, w.ctx, w.model, true, NULL, &run.text, &err), &err);
        must(dit_new(w.ops, w.ctx, w.model, NULL, &run.dit, &err), &err);
        must(vae_new(w.ops, w.ctx, w.model, NULL, &run.vae, &err), &err);
        void *rows = on_device(&w, NULL, (size_t)(c->dit.text_len * c->text.dim) * sizeof(float));
        void *latents = on_device(&w, NULL, (size_t)(6 * 4 * size.f * size.h * size.w) * 4);
        w.ops->zero(w.ctx, rows, (size_t)(c->dit.text_len * c->text.dim) * sizeof(float));
        for (int i = 0; i < prompts; i++)
            must(dit_prompt_new(run.dit, rows, c->dit.text_len, &prompt[i], &err), &err);
        w.ops->free(w.ctx, rows);
        w.ops->memory(w.ctx, true, &now, &peak);
        must(dit_clip_new(run.dit, size.f, size.h, size.w, prompts, &dit_clip, &err), &err);
        dit_clip_free(dit_clip);
        must(vae_clip_new(run.vae, size.h, size.w, &vae_clip, &err), &err);
        w.ops->memory(w.ctx, false, &now, &peak);
        double told =
            (double)estimate_bytes(wan_model_config(w.model), sizeof(float), true, size, prompts);
        print_message("told %.0f, needed %zu bytes\n", told, peak);
        assert_true(told > 0.97 * (double)peak && told < 1.05 * (double)peak);
        vae_clip_free(vae_clip);
        dit_prompt_free(prompt[0]);
        dit_prompt_free(prompt[1]);
        w.ops->free(w.ctx, latents);
        vae_free(run.vae);
        dit_free(run.dit);
        text_free(run.text);
    }
    world_close(&w);
}

static void test_memory_bytes_grows_with_the_model_alone(void **state)
{
    const struct machine *m = *state;
    struct engine_request request = request_of("{}");
    int64_t own = m->engine->memory_bytes(m->engine, &request);
    assert_true(own > 100000 && own < 10000000);
    request.width = request.height = 16 * PX; /* shown larger, not made larger */
    assert_int_equal(m->engine->memory_bytes(m->engine, &request), own);
    request.model = "gone";
    assert_int_equal(m->engine->memory_bytes(m->engine, &request), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_new_publishes_the_models_of_the_folder),
        cmocka_unit_test(test_new_without_a_model),
        cmocka_unit_test(test_generate_is_a_function_of_the_request),
        cmocka_unit_test(test_generate_is_the_run_of_the_networks),
        cmocka_unit_test(test_generate_scales_to_the_size_asked_for),
        cmocka_unit_test(test_generate_stops_within_a_step),
        cmocka_unit_test(test_generate_stops_at_every_beat),
        cmocka_unit_test(test_load_stops_at_every_tensor),
        cmocka_unit_test(test_generate_goes_on_with_the_same_bits),
        cmocka_unit_test(test_generate_starts_over_from_a_foreign_checkpoint),
        cmocka_unit_test(test_generate_refuses_latents_that_are_not_numbers),
        cmocka_unit_test(test_estimate_is_what_a_clip_needs),
        cmocka_unit_test(test_memory_bytes_grows_with_the_model_alone),
    };
    return cmocka_run_group_tests(tests, open_machine, close_machine);
}
