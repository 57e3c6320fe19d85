/* The engines of this process: the built-in ones, then the plug-ins. Owns the list and the plug-in
 * handles. Filled by engines_open on the main thread, read-only afterwards and so free to any
 * thread; engines_close comes after the last run. Invariants: names are unique; every listed engine
 * has the ABI of this program and a description in which the defaults are possible values. */
#include "engine/catalogue.h"

#include <string.h>

#include "base/log.h"
#include "config/config.h"
#include "engine/testpattern/testpattern.h"
#include "engine/wan/wan.h"

static const char *const phase_names[ENGINE_PHASE_COUNT] = {"load", "encode_text", "denoise",
                                                            "decode", "mux"};

const char *engine_phase_name(enum engine_phase phase)
{
    size_t i = (size_t)phase;
    return i < ENGINE_PHASE_COUNT ? phase_names[i] : "unknown";
}

bool engine_uses_steps(const struct engine_model *model)
{
    return model->max_steps > 0;
}

bool engine_uses_guidance(const struct engine_model *model)
{
    return model->max_guidance > 0;
}

bool engine_uses_shift(const struct engine_model *model)
{
    return model->max_shift > 0;
}

bool engine_choice_has(const char *choices, const char *word)
{
    size_t len = strlen(word);
    for (const char *at = choices; *at;) {
        size_t span = strcspn(at, "|");
        if (span == len && memcmp(at, word, len) == 0)
            return true;
        at += span + (at[span] == '|');
    }
    return false;
}

/* min <= value <= max, on the grid that starts at min. */
static bool on_grid(int value, int min, int max, int step)
{
    return step > 0 && min > 0 && value >= min && value <= max && (value - min) % step == 0;
}

bool engine_model_is_sound(const struct engine_model *m)
{
    return m->name && *m->name && m->doc && on_grid(m->width, m->min_px, m->max_px, m->px_step) &&
           on_grid(m->height, m->min_px, m->max_px, m->px_step) &&
           on_grid(m->frames, m->min_frames, m->max_frames, m->frame_step) &&
           on_grid(m->fps, m->min_fps, m->max_fps, 1) &&
           (m->max_pixels == 0 || (int64_t)m->width * m->height <= m->max_pixels) &&
           (!engine_uses_steps(m) || (m->steps >= m->min_steps && m->steps <= m->max_steps));
}

static bool option_is_sound(const struct engine_option *o)
{
    if (!o->name || !*o->name || !o->doc)
        return false;
    if (o->type == ENGINE_OPTION_CHOICE)
        return o->choices && *o->choices;
    return o->min <= o->fallback && o->fallback <= o->max;
}

enum rl_rc engines_add(struct engines *engines, const struct engine *engine, struct rl_err *err)
{
    if (!engine || engine->abi != ENGINE_ABI)
        return rl_fail(err, RL_ENGINE_ERROR, "made for engine ABI %d, this program has %d",
                       engine ? engine->abi : 0, ENGINE_ABI);
    if (!engine->name || !*engine->name || !engine->doc || !engine->load || !engine->generate ||
        !engine->unload || !engine->models || engine->model_count == 0)
        return rl_fail(err, RL_ENGINE_ERROR, "the engine's description is incomplete");
    for (size_t i = 0; i < engine->model_count; i++)
        if (!engine_model_is_sound(&engine->models[i]))
            return rl_fail(err, RL_ENGINE_ERROR, "%s: model %zu has impossible limits",
                           engine->name, i);
    for (size_t i = 0; i < engine->option_count; i++)
        if (!option_is_sound(&engine->options[i]))
            return rl_fail(err, RL_ENGINE_ERROR, "%s: option %zu has impossible limits",
                           engine->name, i);
    if (engines_find(engines, engine->name))
        return rl_fail(err, RL_CONFLICT, "there already is an engine \"%s\"", engine->name);
    if (engines->count == ENGINES_MAX)
        return rl_fail(err, RL_CONFLICT, "more than %d engines", ENGINES_MAX);
    engines->list[engines->count++] = engine;
    return RL_OK;
}

enum rl_rc engines_open(const struct config *cfg, struct engines **ret_engines, struct rl_err *err)
{
    struct engines *engines = calloc(1, sizeof(*engines));
    if (!engines)
        return rl_fail(err, RL_NO_MEMORY, "open the engines");
    engines->unlocked = config_on(cfg, CFG_TESTPATTERN_FAULTS);
    engines->cpu_slots = (int)config_int(cfg, CFG_POOL_CPU_SLOTS);
    engines->default_name = rl_strdup(config_text(cfg, CFG_ENGINE_DEFAULT));
    enum rl_rc rc = engines->default_name ? RL_OK : rl_fail(err, RL_NO_MEMORY, "open the engines");
    if (rc == RL_OK)
        rc = wan_engine_new(cfg, &engines->wan, err);
    if (rc == RL_OK && engines->wan)
        rc = engines_add(engines, engines->wan, err);
    if (rc == RL_OK)
        rc = engines_add(engines, testpattern_engine(), err);
    if (rc == RL_OK && *config_text(cfg, CFG_ENGINE_PLUGIN_DIR))
        rc = engines_load_plugins(engines, config_text(cfg, CFG_ENGINE_PLUGIN_DIR), err);
    if (rc != RL_OK) {
        engines_close(engines);
        return rc;
    }
    engines_probe(engines);
    if (!engines_default(engines))
        rl_log(RL_LOG_WARN, "default_engine_missing", "engine=%s", engines->default_name);
    *ret_engines = engines;
    return RL_OK;
}

const struct engine *engines_find(const struct engines *engines, const char *name)
{
    for (size_t i = 0; i < engines->count; i++)
        if (strcmp(engines->list[i]->name, name) == 0)
            return engines->list[i];
    return NULL;
}

const struct engine *engines_default(const struct engines *engines)
{
    return *engines->default_name ? engines_find(engines, engines->default_name) : engines->list[0];
}

const struct engine_model *engine_find_model(const struct engine *engine, const char *name)
{
    if (!*name)
        return &engine->models[0];
    for (size_t i = 0; i < engine->model_count; i++)
        if (strcmp(engine->models[i].name, name) == 0)
            return &engine->models[i];
    return NULL;
}
