/* Wishes against limits: defaults, grids, the nearest possible value, options. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/log.h"
#include "config/config.h"
#include "engine/engine.h"

static char dir[64], plugin[128];
static struct engines *engines;
static struct rl_err err;
static struct engine_request request;
static const struct engine *engine;
static char *options;

static void open_with(const char *extra)
{
    struct config *cfg = config_new();
    assert_non_null(cfg);
    assert_int_equal(config_set(cfg, "engine.plugin_dir", dir, &err), RL_OK);
    assert_int_equal(config_set(cfg, "engine.default", "testpattern", &err), RL_OK);
    if (extra)
        assert_int_equal(config_set_pair(cfg, extra, &err), RL_OK);
    assert_int_equal(engines_open(cfg, &engines, &err), RL_OK);
    config_free(cfg);
}

static int setup(void **state)
{
    (void)state;
    rl_log_set_level(RL_LOG_ERROR);
    (void)snprintf(dir, sizeof(dir), "/tmp/reeld-engine-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    (void)snprintf(plugin, sizeof(plugin), "%s/fake.so", dir);
    if (symlink(PLUGIN_FAKE, plugin) != 0)
        return -1;
    memset(&err, 0, sizeof(err));
    memset(&request, 0, sizeof(request));
    options = NULL;
    engine = NULL;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    free(options);
    engines_close(engines);
    engines = NULL;
    (void)unlink(plugin);
    return rmdir(dir);
}

static struct engine_wish wish_of(const char *name)
{
    return (struct engine_wish){.engine = name,
                                .width = -1,
                                .height = -1,
                                .frames = -1,
                                .fps = -1,
                                .steps = -1,
                                .guidance_scale = NAN,
                                .flow_shift = NAN};
}

static enum rl_rc resolve(const struct engine_wish *wish)
{
    free(options);
    options = NULL;
    return engines_resolve(engines, wish, &engine, &request, &options, &err);
}

/* The wish is refused for `field`, and the reason holds `words`. */
static void refused(const struct engine_wish *wish, const char *field, const char *words)
{
    memset(&err, 0, sizeof(err));
    assert_int_equal(resolve(wish), RL_INVALID_FIELD);
    assert_string_equal(err.field, field);
    if (!strstr(err.reason, words))
        fail_msg("\"%s\" does not say \"%s\"", err.reason, words);
    assert_null(options);
}

static void test_resolve_defaults(void **state)
{
    (void)state;
    open_with(NULL);
    struct engine_wish wish = wish_of(NULL);
    request.prompt = "kept";
    request.seed = 7;
    assert_int_equal(resolve(&wish), RL_OK);
    assert_string_equal(engine->name, "testpattern");
    assert_int_equal(request.width, 640);
    assert_int_equal(request.height, 360);
    assert_int_equal(request.frames, 48);
    assert_int_equal(request.fps, 24);
    assert_int_equal(request.steps, 0);
    assert_string_equal(request.options, "{}");
    assert_ptr_equal(request.options, options);
    assert_string_equal(request.prompt, "kept");
    assert_int_equal(request.seed, 7);
    wish = wish_of("fake");
    assert_int_equal(resolve(&wish), RL_OK);
    assert_string_equal(request.model, "small");
    assert_int_equal(request.steps, 20);
    assert_true(request.guidance_scale > 4.99 && request.guidance_scale < 5.01);
    assert_true(request.flow_shift > 2.99 && request.flow_shift < 3.01);
}

static void test_resolve_engine_and_model_names(void **state)
{
    (void)state;
    open_with("engine.default=missing");
    struct engine_wish wish = wish_of(NULL);
    refused(&wish, "engine", "testpattern, fake");
    wish = wish_of("nosuch");
    refused(&wish, "engine", "\"nosuch\"");
    wish = wish_of("fake");
    wish.model = "huge";
    refused(&wish, "model", "small, tiny");
    wish.model = "tiny";
    assert_int_equal(resolve(&wish), RL_OK);
    assert_string_equal(request.model, "tiny");
    assert_int_equal(request.width, 32);
}

static void test_resolve_numbers_off_the_grid_name_the_nearest(void **state)
{
    (void)state;
    open_with(NULL);
    static const struct {
        const char *field;
        int64_t value;
        const char *words;
    } cases[] = {
        {"frames", 16, "nearest are 13 and 17"},
        {"frames", 0, "nearest is 1"},
        {"frames", 82, "nearest is 81"},
        {"frames", -2, "nearest is 1"},
        {"width", 500, "nearest are 496 and 512"},
        {"width", 48, "nearest is 64"},
        {"width", 1025, "nearest is 1024"},
        {"height", 65, "nearest are 64 and 80"},
        {"fps", 7, "nearest is 8"},
        {"fps", 240, "nearest is 30"},
        {"steps", 3, "nearest is 4"},
        {"steps", 51, "nearest is 50"},
        {"frames", INT64_MAX, "nearest is 81"},
        {"frames", INT64_MIN, "nearest is 1"},
        {"width", INT64_C(4294967296) + 64, "nearest is 1024"},
    };
    for (size_t i = 0; i < RL_ARRAY_LEN(cases); i++) {
        struct engine_wish wish = wish_of("fake");
        int64_t *at = strcmp(cases[i].field, "frames") == 0   ? &wish.frames
                      : strcmp(cases[i].field, "width") == 0  ? &wish.width
                      : strcmp(cases[i].field, "height") == 0 ? &wish.height
                      : strcmp(cases[i].field, "fps") == 0    ? &wish.fps
                                                              : &wish.steps;
        *at = cases[i].value;
        refused(&wish, cases[i].field, cases[i].words);
    }
}

static void test_resolve_too_many_pixels(void **state)
{
    (void)state;
    open_with(NULL);
    struct engine_wish wish = wish_of("fake");
    wish.width = 1024;
    wish.height = 1024;
    refused(&wish, "width", "the nearest is 624x624");
    wish.width = 624; /* and what it names is accepted */
    wish.height = 624;
    assert_int_equal(resolve(&wish), RL_OK);
    wish.width = 480;
    wish.height = 832;
    assert_int_equal(resolve(&wish), RL_OK);
}

static void test_resolve_real_numbers(void **state)
{
    (void)state;
    open_with(NULL);
    struct engine_wish wish = wish_of("fake");
    wish.guidance_scale = 0.5;
    refused(&wish, "guidance_scale", "nearest is 1");
    wish.guidance_scale = INFINITY;
    refused(&wish, "guidance_scale", "1 to 10");
    wish = wish_of("fake");
    wish.flow_shift = 13;
    refused(&wish, "flow_shift", "nearest is 12");
    wish.flow_shift = 12;
    assert_int_equal(resolve(&wish), RL_OK);
}

static void test_resolve_unused_knobs_are_recorded(void **state)
{
    (void)state;
    open_with(NULL);
    struct engine_wish wish = wish_of("testpattern");
    wish.steps = 30;
    wish.guidance_scale = 7.5;
    wish.flow_shift = 100;
    assert_int_equal(resolve(&wish), RL_OK);
    assert_int_equal(request.steps, 30);
    assert_true(request.guidance_scale > 7.4 && request.guidance_scale < 7.6);
    wish.steps = 1001;
    refused(&wish, "steps", "1000");
    wish.steps = 1;
    wish.guidance_scale = -0.1;
    refused(&wish, "guidance_scale", "0");
}

static enum rl_rc resolve_options(const char *name, const char *text)
{
    AUTO_JSON struct rl_json *tree = NULL;
    struct engine_wish wish = wish_of(name);
    assert_int_equal(rl_json_parse(text, strlen(text), &tree, &err), RL_OK);
    wish.options = tree;
    memset(&err, 0, sizeof(err));
    return resolve(&wish);
}

static void test_resolve_options_canonical(void **state)
{
    (void)state;
    open_with(NULL);
    assert_int_equal(resolve_options("testpattern", "{ \"input_ms\" : 5, \"frame_ms\":7 }"), RL_OK);
    assert_string_equal(request.options, "{\"frame_ms\":7,\"input_ms\":5}");
    assert_int_equal(engine->input_wait_ms(&request), 5);
    assert_int_equal(resolve_options("fake", "{\"strength\":0.25,\"mode\":\"fine\"}"), RL_OK);
}

static void test_resolve_options_refused(void **state)
{
    (void)state;
    open_with(NULL);
    static const struct {
        const char *engine, *text, *field;
    } cases[] = {
        {"testpattern", "[]", "options"},
        {"testpattern", "{\"nope\":1}", "options.nope"},
        {"testpattern", "{\"frame_ms\":-1}", "options.frame_ms"},
        {"testpattern", "{\"frame_ms\":60001}", "options.frame_ms"},
        {"testpattern", "{\"frame_ms\":1.5}", "options.frame_ms"},
        {"testpattern", "{\"frame_ms\":\"1\"}", "options.frame_ms"},
        {"testpattern", "{\"fault\":\"fail\"}", "options.fault"}, /* hidden */
        {"testpattern", "{\"fault_at\":3}", "options.fault_at"},
        {"fake", "{\"strength\":1.01}", "options.strength"},
        {"fake", "{\"mode\":\"fas\"}", "options.mode"},
        {"fake", "{\"mode\":\"\"}", "options.mode"},
        {"fake", "{\"mode\":\"fast|fine\"}", "options.mode"},
        {"fake", "{\"mode\":true}", "options.mode"},
    };
    for (size_t i = 0; i < RL_ARRAY_LEN(cases); i++) {
        assert_int_equal(resolve_options(cases[i].engine, cases[i].text), RL_INVALID_FIELD);
        assert_string_equal(err.field, cases[i].field);
        assert_null(options);
    }
    assert_int_equal(resolve_options("testpattern", "{\"fault\":\"fail\"}"), RL_INVALID_FIELD);
    assert_non_null(strstr(err.reason, "testpattern.faults"));
}

static void test_resolve_faults_when_unlocked(void **state)
{
    (void)state;
    open_with("testpattern.faults=on");
    assert_int_equal(resolve_options("testpattern", "{\"fault\":\"fail\",\"fault_at\":3}"), RL_OK);
    assert_int_equal(resolve_options("testpattern", "{\"fault\":\"explode\"}"), RL_INVALID_FIELD);
    assert_string_equal(err.field, "options.fault");
    assert_non_null(strstr(err.reason, "fail_once"));
}

static void test_resolve_failure_leaves_the_results_alone(void **state)
{
    (void)state;
    open_with(NULL);
    struct engine_wish wish = wish_of("fake");
    wish.frames = 2;
    request.width = 123;
    assert_int_equal(resolve(&wish), RL_INVALID_FIELD);
    assert_int_equal(request.width, 123);
    assert_null(engine);
}

int main(void)
{
#define WITH_DIR(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        WITH_DIR(test_resolve_defaults),
        WITH_DIR(test_resolve_engine_and_model_names),
        WITH_DIR(test_resolve_numbers_off_the_grid_name_the_nearest),
        WITH_DIR(test_resolve_too_many_pixels),
        WITH_DIR(test_resolve_real_numbers),
        WITH_DIR(test_resolve_unused_knobs_are_recorded),
        WITH_DIR(test_resolve_options_canonical),
        WITH_DIR(test_resolve_options_refused),
        WITH_DIR(test_resolve_faults_when_unlocked),
        WITH_DIR(test_resolve_failure_leaves_the_results_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
