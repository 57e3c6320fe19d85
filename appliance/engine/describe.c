/* The published description of the engines: everything that a form or a client needs to offer
 * only what will be accepted. Stateless; any thread. */
#include "engine/catalogue.h"

#include <string.h>

#include "base/buf.h"

struct figure {
    const char *name;
    int value;
};

static void write_figures(struct rl_jw *w, const struct figure *figures, size_t n)
{
    for (size_t i = 0; i < n; i++)
        rl_jw_i64(w, figures[i].name, figures[i].value);
}

/* Knobs that the model does not have are left out. */
static void write_limits(struct rl_jw *w, const struct engine_model *m)
{
    const struct figure figures[] = {
        {"min_px", m->min_px},         {"max_px", m->max_px},         {"px_step", m->px_step},
        {"min_frames", m->min_frames}, {"max_frames", m->max_frames}, {"frame_step", m->frame_step},
        {"min_fps", m->min_fps},       {"max_fps", m->max_fps},
    };
    rl_jw_object(w, "limits");
    write_figures(w, figures, RL_ARRAY_LEN(figures));
    rl_jw_i64(w, "max_pixels", m->max_pixels ? m->max_pixels : (int64_t)m->max_px * m->max_px);
    if (engine_uses_steps(m)) {
        rl_jw_i64(w, "min_steps", m->min_steps);
        rl_jw_i64(w, "max_steps", m->max_steps);
    }
    if (engine_uses_guidance(m)) {
        rl_jw_f64(w, "min_guidance_scale", m->min_guidance);
        rl_jw_f64(w, "max_guidance_scale", m->max_guidance);
    }
    if (engine_uses_shift(m)) {
        rl_jw_f64(w, "min_flow_shift", m->min_shift);
        rl_jw_f64(w, "max_flow_shift", m->max_shift);
    }
    rl_jw_end_object(w);
}

static void write_defaults(struct rl_jw *w, const struct engine_model *m)
{
    const struct figure figures[] = {
        {"width", m->width}, {"height", m->height}, {"frames", m->frames}, {"fps", m->fps}};
    rl_jw_object(w, "defaults");
    write_figures(w, figures, RL_ARRAY_LEN(figures));
    if (engine_uses_steps(m))
        rl_jw_i64(w, "steps", m->steps);
    if (engine_uses_guidance(m))
        rl_jw_f64(w, "guidance_scale", m->guidance);
    if (engine_uses_shift(m))
        rl_jw_f64(w, "flow_shift", m->shift);
    rl_jw_end_object(w);
}

static void write_model(struct rl_jw *w, const struct engine_model *m)
{
    rl_jw_object(w, NULL);
    rl_jw_str(w, "name", m->name);
    rl_jw_str(w, "doc", m->doc);
    write_limits(w, m);
    write_defaults(w, m);
    rl_jw_end_object(w);
}

static void write_choices(struct rl_jw *w, const char *choices)
{
    rl_jw_strn(w, "default", choices, strcspn(choices, "|"));
    rl_jw_array(w, "choices");
    for (const char *at = choices; *at;) {
        size_t span = strcspn(at, "|");
        rl_jw_strn(w, NULL, at, span);
        at += span + (at[span] == '|');
    }
    rl_jw_end_array(w);
}

static void write_option(struct rl_jw *w, const struct engine_option *o)
{
    rl_jw_object(w, NULL);
    rl_jw_str(w, "name", o->name);
    switch (o->type) {
    case ENGINE_OPTION_INT:
        rl_jw_str(w, "type", "int");
        rl_jw_i64(w, "min", (int64_t)o->min);
        rl_jw_i64(w, "max", (int64_t)o->max);
        rl_jw_i64(w, "default", (int64_t)o->fallback);
        break;
    case ENGINE_OPTION_REAL:
        rl_jw_str(w, "type", "real");
        rl_jw_f64(w, "min", o->min);
        rl_jw_f64(w, "max", o->max);
        rl_jw_f64(w, "default", o->fallback);
        break;
    case ENGINE_OPTION_CHOICE:
        rl_jw_str(w, "type", "choice");
        write_choices(w, o->choices);
        break;
    }
    rl_jw_str(w, "doc", o->doc);
    rl_jw_end_object(w);
}

void engines_json(const struct engines *engines, struct rl_jw *w, const char *key)
{
    rl_jw_array(w, key);
    for (size_t i = 0; i < engines->count; i++) {
        const struct engine *e = engines->list[i];
        rl_jw_object(w, NULL);
        rl_jw_str(w, "name", e->name);
        rl_jw_str(w, "doc", e->doc);
        rl_jw_bool(w, "default", e == engines_default(engines));
        rl_jw_array(w, "models");
        for (size_t k = 0; k < e->model_count; k++)
            write_model(w, &e->models[k]);
        rl_jw_end_array(w);
        rl_jw_array(w, "options");
        for (size_t k = 0; k < e->option_count; k++)
            if (!e->options[k].hidden || engines->unlocked)
                write_option(w, &e->options[k]);
        rl_jw_end_array(w);
        rl_jw_end_object(w);
    }
    rl_jw_end_array(w);
}
