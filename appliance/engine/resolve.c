/* From what a client wrote to what an engine can make: defaults filled in, every number checked
 * against the model's limits, every option against the engine's table. Stateless; any thread.
 * Invariants: a refusal names the field and a value that would have been accepted; a knob that the
 * model does not have is recorded, not refused, so that one request body fits every engine. */
#include "engine/catalogue.h"

#include <math.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"

#define OPTIONS_BYTES (64 * 1024)

/* Ranges for knobs that the model does not use. */
#define FREE_STEPS    1000
#define FREE_GUIDANCE 100.0
#define FREE_SHIFT    100.0

struct grid {
    const char *field;
    int64_t min, max, step;
    const char *unit;
};

/* The value of the grid nearest to v, the smaller one when two are equally near. */
static int64_t nearest(const struct grid *g, int64_t v)
{
    int64_t last = g->min + (g->max - g->min) / g->step * g->step;
    if (v <= g->min)
        return g->min;
    if (v >= last)
        return last;
    int64_t below = g->min + (v - g->min) / g->step * g->step;
    return v - below <= below + g->step - v ? below : below + g->step;
}

/* Both neighbours of v on the grid, as text for a reason. */
static void describe_nearest(const struct grid *g, int64_t v, char *text, size_t size)
{
    int64_t near = nearest(g, v);
    int64_t other = near < v ? near + g->step : near - g->step;
    bool two =
        v > g->min && near != v && other >= g->min && other <= g->max && (near < v) != (other < v);
    if (two)
        (void)snprintf(text, size, "the nearest are %lld and %lld",
                       (long long)(near < other ? near : other),
                       (long long)(near < other ? other : near)); /* cut is fine */
    else
        (void)snprintf(text, size, "the nearest is %lld", (long long)near); /* cut is fine */
}

static enum rl_rc pick_int(const struct grid *g, int64_t wish, int fallback, int *ret_value,
                           struct rl_err *err)
{
    if (wish == -1)
        wish = fallback;
    else if (wish < g->min || wish > g->max || (wish - g->min) % g->step != 0) {
        if (g->min == g->max)
            return rl_fail_field(err, RL_INVALID_FIELD, g->field, "%lld%s: only %lld is possible",
                                 (long long)wish, g->unit, (long long)g->min);
        char near[96], step[48] = "";
        describe_nearest(g, wish, near, sizeof(near));
        if (g->step > 1)
            (void)snprintf(step, sizeof(step), " in steps of %lld", (long long)g->step); /* fits */
        return rl_fail_field(err, RL_INVALID_FIELD, g->field, "%lld%s: %lld to %lld%s; %s",
                             (long long)wish, g->unit, (long long)g->min, (long long)g->max, step,
                             near);
    }
    *ret_value = (int)wish;
    return RL_OK;
}

static enum rl_rc pick_real(const char *field, double wish, double min, double max, double fallback,
                            double *ret_value, struct rl_err *err)
{
    if (isnan(wish))
        wish = fallback;
    else if (!(wish >= min && wish <= max))
        return rl_fail_field(err, RL_INVALID_FIELD, field, "%g: %g to %g; the nearest is %g", wish,
                             min, max, wish < min ? min : max);
    *ret_value = wish;
    return RL_OK;
}

/* A size of about the same shape that has few enough pixels. */
static enum rl_rc check_pixels(const struct engine_model *m, int width, int height,
                               struct rl_err *err)
{
    int64_t pixels = (int64_t)width * height;
    if (m->max_pixels == 0 || pixels <= m->max_pixels)
        return RL_OK;
    double scale = sqrt((double)m->max_pixels / (double)pixels);
    int64_t w = (int64_t)(width * scale), h = (int64_t)(height * scale);
    w = w < m->min_px ? m->min_px : m->min_px + (w - m->min_px) / m->px_step * m->px_step;
    h = h < m->min_px ? m->min_px : m->min_px + (h - m->min_px) / m->px_step * m->px_step;
    if (w * h > m->max_pixels) { /* a very long strip: only the default is sure */
        w = m->width;
        h = m->height;
    }
    return rl_fail_field(err, RL_INVALID_FIELD, "width",
                         "%dx%d is %lld pixels of at most %d; the nearest is %lldx%lld", width,
                         height, (long long)pixels, m->max_pixels, (long long)w, (long long)h);
}

static enum rl_rc resolve_numbers(const struct engine_model *m, const struct engine_wish *wish,
                                  struct engine_request *req, struct rl_err *err)
{
    const struct grid width = {"width", m->min_px, m->max_px, m->px_step, " px"};
    const struct grid height = {"height", m->min_px, m->max_px, m->px_step, " px"};
    const struct grid frames = {"frames", m->min_frames, m->max_frames, m->frame_step, ""};
    const struct grid fps = {"fps", m->min_fps, m->max_fps, 1, ""};
    bool steps_used = engine_uses_steps(m), guided = engine_uses_guidance(m);
    bool shifted = engine_uses_shift(m);
    const struct grid steps = {"steps", steps_used ? m->min_steps : 1,
                               steps_used ? m->max_steps : FREE_STEPS, 1, ""};
    enum rl_rc rc = pick_int(&width, wish->width, m->width, &req->width, err);
    if (rc == RL_OK)
        rc = pick_int(&height, wish->height, m->height, &req->height, err);
    if (rc == RL_OK)
        rc = check_pixels(m, req->width, req->height, err);
    if (rc == RL_OK)
        rc = pick_int(&frames, wish->frames, m->frames, &req->frames, err);
    if (rc == RL_OK)
        rc = pick_int(&fps, wish->fps, m->fps, &req->fps, err);
    if (rc == RL_OK)
        rc = pick_int(&steps, wish->steps, steps_used ? m->steps : 0, &req->steps, err);
    if (rc == RL_OK)
        rc = pick_real("guidance_scale", wish->guidance_scale, guided ? m->min_guidance : 0,
                       guided ? m->max_guidance : FREE_GUIDANCE, guided ? m->guidance : 0,
                       &req->guidance_scale, err);
    if (rc == RL_OK)
        rc = pick_real("flow_shift", wish->flow_shift, shifted ? m->min_shift : 0,
                       shifted ? m->max_shift : FREE_SHIFT, shifted ? m->shift : 0,
                       &req->flow_shift, err);
    return rc;
}

static enum rl_rc check_option(const struct engine_option *o, const struct rl_json *value,
                               const char *field, struct rl_err *err)
{
    int64_t integer;
    double real;
    const char *word;
    enum rl_rc rc;
    switch (o->type) {
    case ENGINE_OPTION_INT:
        return rl_json_int(value, field, (int64_t)o->min, (int64_t)o->max, &integer, err);
    case ENGINE_OPTION_REAL:
        return rl_json_real(value, field, o->min, o->max, &real, err);
    case ENGINE_OPTION_CHOICE:
        rc = rl_json_string(value, field, 0, 256, &word, err);
        if (rc == RL_OK && !engine_choice_has(o->choices, word))
            rc = rl_fail_field(err, RL_INVALID_FIELD, field, "must be one of %s", o->choices);
        return rc;
    }
    return rl_fail(err, RL_INTERNAL, "option %s has an unknown type", o->name);
}

static enum rl_rc find_option(const struct engine *engine, const char *name, bool unlocked,
                              const char *field, const struct engine_option **ret_option,
                              struct rl_err *err)
{
    for (size_t i = 0; i < engine->option_count; i++) {
        if (strcmp(engine->options[i].name, name) != 0)
            continue;
        if (engine->options[i].hidden && !unlocked)
            return rl_fail_field(err, RL_INVALID_FIELD, field,
                                 "is locked; testpattern.faults=on in the configuration opens it");
        *ret_option = &engine->options[i];
        return RL_OK;
    }
    return rl_fail_field(err, RL_INVALID_FIELD, field, "engine %s has no such option",
                         engine->name);
}

static enum rl_rc resolve_options(const struct engine *engine, const struct rl_json *options,
                                  bool unlocked, char **ret_text, struct rl_err *err)
{
    AUTO_BUF struct rl_buf text = {0};
    rl_buf_init(&text, OPTIONS_BYTES);
    if (options && rl_json_type(options) != RL_JSON_OBJECT)
        return rl_fail_field(err, RL_INVALID_FIELD, "options", "must be an object");
    for (const struct rl_json *v = options ? rl_json_child(options) : NULL; v;
         v = rl_json_next(v)) {
        char field[64]; /* as long as rl_err keeps */
        (void)snprintf(field, sizeof(field), "options.%.48s", rl_json_name(v)); /* fits */
        const struct engine_option *o = NULL;
        enum rl_rc rc = find_option(engine, rl_json_name(v), unlocked, field, &o, err);
        if (rc == RL_OK)
            rc = check_option(o, v, field, err);
        if (rc != RL_OK)
            return rc;
    }
    if (options)
        rl_json_canonical(options, &text);
    else
        rl_buf_str(&text, "{}");
    enum rl_rc rc = rl_buf_ok(&text, err);
    if (rc == RL_OK && !(*ret_text = rl_buf_take(&text)))
        rc = rl_fail(err, RL_NO_MEMORY, "keep the options");
    return rc;
}

static enum rl_rc find_both(const struct engines *engines, const struct engine_wish *wish,
                            const struct engine **ret_engine, const struct engine_model **ret_model,
                            struct rl_err *err)
{
    const char *name = wish->engine ? wish->engine : engines->default_name;
    const struct engine *engine =
        wish->engine ? engines_find(engines, name) : engines_default(engines);
    char known[160] = "";
    size_t len = 0;
    if (!engine) {
        for (size_t i = 0; i < engines->count && len < sizeof(known); i++) {
            int n = snprintf(known + len, sizeof(known) - len, "%s%s", i ? ", " : "",
                             engines->list[i]->name);
            len += n > 0 ? (size_t)n : 0;
        }
        return rl_fail_field(err, RL_INVALID_FIELD, "engine", "no engine \"%.40s\"; there are: %s",
                             name, known);
    }
    const struct engine_model *model = engine_find_model(engine, wish->model ? wish->model : "");
    if (!model) {
        for (size_t i = 0; i < engine->model_count && len < sizeof(known); i++) {
            int n = snprintf(known + len, sizeof(known) - len, "%s%s", i ? ", " : "",
                             engine->models[i].name);
            len += n > 0 ? (size_t)n : 0;
        }
        return rl_fail_field(err, RL_INVALID_FIELD, "model",
                             "%s has no model \"%.40s\"; it has: %s", engine->name, wish->model,
                             known);
    }
    *ret_engine = engine;
    *ret_model = model;
    return RL_OK;
}

enum rl_rc engines_resolve(const struct engines *engines, const struct engine_wish *wish,
                           const struct engine **ret_engine, struct engine_request *ret_request,
                           char **ret_options_text, struct rl_err *err)
{
    const struct engine *engine = NULL;
    const struct engine_model *model = NULL;
    struct engine_request req = *ret_request;
    char *options = NULL;
    enum rl_rc rc = find_both(engines, wish, &engine, &model, err);
    if (rc == RL_OK)
        rc = resolve_numbers(model, wish, &req, err);
    if (rc == RL_OK)
        rc = resolve_options(engine, wish->options, engines->unlocked, &options, err);
    if (rc != RL_OK)
        return rc;
    req.model = model->name;
    req.options = options;
    *ret_engine = engine;
    *ret_request = req;
    *ret_options_text = options;
    return RL_OK;
}
