/* The catalogue: built-in engines, plug-ins from a folder (good, wrong, broken), devices, and the
 * published description. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/log.h"
#include "config/config.h"
#include "engine/engine.h"

/* PLUGIN_FAKE and PLUGIN_FAKE_ABI: the built modules (tests/CMakeLists.txt). */

static char dir[64];
static const char *const names[] = {"10-abi.so",    "20-fake.so", "30-again.so",
                                    "40-broken.so", "notes.txt",  "50-dangling.so"};

static int setup(void **state)
{
    (void)state;
    rl_log_set_level(RL_LOG_ERROR); /* what is left out is a warning, and expected here */
    (void)snprintf(dir, sizeof(dir), "/tmp/reeld-engine-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    for (size_t i = 0; i < RL_ARRAY_LEN(names); i++) {
        char path[128];
        (void)snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
        (void)unlink(path);
    }
    return rmdir(dir);
}

static void link_plugin(const char *target, const char *name)
{
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    assert_int_equal(symlink(target, path), 0);
}

static void write_junk(const char *name)
{
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    AUTO_FCLOSE FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs("this is no shared object\n", f) >= 0);
}

static struct engines *open_engines(const char *plugin_dir, const char *extra)
{
    struct config *cfg = config_new();
    struct engines *engines = NULL;
    struct rl_err err = {0};
    assert_non_null(cfg);
    assert_int_equal(config_set(cfg, "engine.plugin_dir", plugin_dir, &err), RL_OK);
    assert_int_equal(config_set(cfg, "engine.default", "testpattern", &err), RL_OK);
    if (extra)
        assert_int_equal(config_set_pair(cfg, extra, &err), RL_OK);
    assert_int_equal(engines_open(cfg, &engines, &err), RL_OK);
    config_free(cfg); /* the catalogue keeps nothing of it */
    return engines;
}

static void test_open_without_a_plugin_folder(void **state)
{
    (void)state;
    static const char *const folders[] = {"", "/nonexistent-folder", "/dev/null"};
    for (size_t i = 0; i < RL_ARRAY_LEN(folders); i++) {
        struct engines *engines = open_engines(folders[i], NULL);
        assert_non_null(engines_find(engines, "testpattern"));
        assert_null(engines_find(engines, "fake"));
        assert_null(engines_find(engines, ""));
        engines_close(engines);
    }
    engines_close(NULL);
}

static void test_open_takes_good_plugins_and_leaves_bad_ones_out(void **state)
{
    (void)state;
    link_plugin(PLUGIN_FAKE_ABI, "10-abi.so");
    link_plugin(PLUGIN_FAKE, "20-fake.so");
    link_plugin(PLUGIN_FAKE, "30-again.so"); /* the name is taken */
    write_junk("40-broken.so");
    link_plugin("/nonexistent", "50-dangling.so");
    write_junk("notes.txt");
    struct engines *engines = open_engines(dir, NULL);
    const struct engine *fake = engines_find(engines, "fake");
    assert_non_null(fake);
    assert_int_equal(fake->abi, ENGINE_ABI);
    assert_string_equal(engine_find_model(fake, "")->name, "small");
    assert_string_equal(engine_find_model(fake, "tiny")->name, "tiny");
    assert_null(engine_find_model(fake, "huge"));
    engines_close(engines);
}

static void test_open_another_abi_is_left_out(void **state)
{
    (void)state;
    link_plugin(PLUGIN_FAKE_ABI, "10-abi.so");
    struct engines *engines = open_engines(dir, NULL);
    assert_null(engines_find(engines, "fake"));
    assert_non_null(engines_find(engines, "testpattern"));
    engines_close(engines);
}

static void test_devices_cpu_slots_without_a_gpu(void **state)
{
    (void)state;
    size_t n = 99;
    struct engines *engines = open_engines("", "pool.cpu_slots=3");
    const struct engine_device *devices = engines_devices(engines, &n);
    assert_int_equal(n, 3);
    assert_string_equal(devices[0].id, "cpu0");
    assert_string_equal(devices[2].id, "cpu2");
    assert_string_equal(devices[2].backend, "cpu");
    assert_false(devices[0].gpu);
    assert_true(devices[0].mem_bytes > INT64_C(1) << 27); /* the machine's */
    engines_close(engines);
}

static void test_devices_gpus_of_a_plugin_replace_the_cpu_slots(void **state)
{
    (void)state;
    size_t n = 0;
    link_plugin(PLUGIN_FAKE, "20-fake.so");
    struct engines *engines = open_engines(dir, "pool.cpu_slots=3");
    const struct engine_device *devices = engines_devices(engines, &n);
    assert_int_equal(n, 2);
    assert_string_equal(devices[0].id, "gpu0");
    assert_string_equal(devices[1].id, "gpu1");
    assert_string_equal(devices[1].name, "Fake GPU B");
    assert_true(devices[0].gpu && devices[1].gpu);
    assert_int_equal(devices[1].index, 1);
    engines_close(engines);
}

static void test_usage_is_asked_of_the_engine_that_knows_the_device(void **state)
{
    (void)state;
    struct engine_device cpu = {.id = "cpu0", .backend = "cpu"};
    struct engine_usage usage;
    size_t n = 0;
    link_plugin(PLUGIN_FAKE, "20-fake.so");
    struct engines *engines = open_engines(dir, "pool.cpu_slots=1");
    const struct engine_device *devices = engines_devices(engines, &n);
    engines_usage(engines, &devices[0], &usage);
    assert_int_equal(usage.mem_total_bytes, INT64_C(8) << 30);
    assert_int_equal(usage.mem_free_bytes, INT64_C(4) << 30);
    assert_true(usage.utilisation > 0.7);
    engines_usage(engines, &devices[1], &usage);
    assert_int_equal(usage.mem_free_bytes, INT64_C(2) << 30);
    assert_true(usage.utilisation < 0); /* its driver does not count */
    engines_usage(engines, &cpu, &usage);
    assert_true(usage.mem_total_bytes == -1 && usage.mem_free_bytes == -1);
    engines_close(engines);
}

static void test_fit_compares_the_need_with_every_device(void **state)
{
    (void)state;
    struct rl_err err = {0};
    size_t n = 0;
    link_plugin(PLUGIN_FAKE, "20-fake.so");
    struct engines *engines = open_engines(dir, NULL);
    const struct engine *fake = engines_find(engines, "fake");
    struct engine_request request = {.model = "small", .width = 832, .height = 480, .frames = 17};
    struct engine_device device = engines_devices(engines, &n)[0]; /* 8 GiB; it takes 7.86e9 */
    assert_true(engines_fit_on(engines, fake, &device, &request));
    assert_int_equal(engines_fit(engines, fake, &request, &err), RL_OK);
    request.frames = 21;
    assert_false(engines_fit_on(engines, fake, &device, &request));
    assert_int_equal(engines_fit(engines, fake, &request, &err), RL_OUT_OF_GPU_MEMORY);
    assert_string_equal(err.reason, "21 frames of 832 x 480 by model small need 9.5 GB of memory, "
                                    "and gpu0 has 8.6 GB");
    device.mem_bytes = 0; /* not known */
    assert_true(engines_fit_on(engines, fake, &device, &request));
    assert_int_equal(engines_fit(engines, engines_find(engines, "testpattern"), &request, &err),
                     RL_OK);
    struct engine on_the_host = *fake; /* it works in the machine's memory on every thread */
    on_the_host.probe = NULL;
    device.mem_bytes = 1;
    request.frames = 1;
    assert_false(engines_fit_on(engines, fake, &device, &request));
    assert_true(engines_fit_on(engines, &on_the_host, &device, &request));
    request.frames = 1000000;
    assert_int_equal(engines_fit(engines, &on_the_host, &request, &err), RL_NO_MEMORY);
    engines_close(engines);
}

static enum rl_rc keep_first_byte(void *user, const struct engine_frame *frame, struct rl_err *err)
{
    (void)err;
    *(int *)user = frame->rgb[0];
    return RL_OK;
}

static void test_runs_on_and_a_run_on_each_device(void **state)
{
    (void)state;
    size_t n = 0;
    struct rl_err err = {0};
    link_plugin(PLUGIN_FAKE, "20-fake.so");
    struct engines *engines = open_engines(dir, NULL);
    const struct engine *fake = engines_find(engines, "fake");
    const struct engine_device *devices = engines_devices(engines, &n);
    const struct engine_device cpu = {.id = "cpu0", .backend = "cpu"};
    assert_false(engine_runs_on(fake, &cpu));
    assert_true(engine_runs_on(engines_find(engines, "testpattern"), &cpu));
    assert_true(engine_runs_on(engines_find(engines, "testpattern"), &devices[1]));
    for (size_t i = 0; i < n; i++) {
        int seen = 0;
        struct engine_run *run = NULL;
        const struct engine_ctl ctl = {.user = &seen, .on_frame = keep_first_byte};
        const struct engine_request request = {
            .prompt = "x", .width = 16, .height = 16, .frames = 1};
        assert_true(engine_runs_on(fake, &devices[i]));
        assert_int_equal(
            fake->load(NULL, &devices[i], "tiny", &(struct engine_ctl){.user = NULL}, &run, &err),
            RL_OK);
        assert_int_equal(fake->generate(run, &request, &ctl, &err), RL_OK);
        assert_int_equal(seen, 100 + (int)i); /* each device has its own run */
        fake->unload(run);
    }
    engines_close(engines);
}

static void test_phase_name_all(void **state)
{
    (void)state;
    assert_string_equal(engine_phase_name(ENGINE_LOAD), "load");
    assert_string_equal(engine_phase_name(ENGINE_ENCODE_TEXT), "encode_text");
    assert_string_equal(engine_phase_name(ENGINE_DENOISE), "denoise");
    assert_string_equal(engine_phase_name(ENGINE_DECODE), "decode");
    assert_string_equal(engine_phase_name(ENGINE_MUX), "mux");
    assert_string_equal(engine_phase_name(ENGINE_PHASE_COUNT), "unknown");
}

/* The description as a parsed tree; the caller frees it. */
static struct rl_json *describe(const struct engines *engines)
{
    AUTO_BUF struct rl_buf out = {0};
    struct rl_jw w;
    struct rl_json *root = NULL;
    struct rl_err err = {0};
    rl_buf_init(&out, 1 << 20);
    rl_jw_init(&w, &out, false);
    engines_json(engines, &w, NULL);
    assert_int_equal(rl_buf_ok(&out, &err), RL_OK);
    assert_int_equal(rl_json_parse(out.data, out.len, &root, &err), RL_OK);
    return root;
}

static const struct rl_json *named(const struct rl_json *array, const char *name)
{
    for (const struct rl_json *v = rl_json_child(array); v; v = rl_json_next(v))
        if (strcmp(rl_json_text(rl_json_get(v, "name")), name) == 0)
            return v;
    return NULL;
}

static int number_at(const struct rl_json *object, const char *name)
{
    assert_non_null(rl_json_get(object, name));
    return (int)rl_json_number(rl_json_get(object, name));
}

static void test_json_publishes_limits_defaults_and_options(void **state)
{
    (void)state;
    link_plugin(PLUGIN_FAKE, "20-fake.so");
    struct engines *engines = open_engines(dir, NULL);
    AUTO_JSON struct rl_json *root = describe(engines);
    const struct rl_json *tp = named(root, "testpattern"), *fake = named(root, "fake");
    assert_true(rl_json_is_true(rl_json_get(tp, "default")));
    assert_false(rl_json_is_true(rl_json_get(fake, "default")));
    const struct rl_json *small = named(rl_json_get(fake, "models"), "small");
    const struct rl_json *limits = rl_json_get(small, "limits");
    const struct rl_json *defaults = rl_json_get(small, "defaults");
    assert_int_equal(number_at(limits, "px_step"), 16);
    assert_int_equal(number_at(limits, "max_pixels"), 480 * 832);
    assert_int_equal(number_at(limits, "frame_step"), 4);
    assert_int_equal(number_at(limits, "max_steps"), 50);
    assert_int_equal(number_at(limits, "max_guidance_scale"), 10);
    assert_int_equal(number_at(defaults, "width"), 832);
    assert_int_equal(number_at(defaults, "flow_shift"), 3);
    const struct rl_json *card = rl_json_child(rl_json_get(tp, "models"));
    assert_null(rl_json_get(rl_json_get(card, "limits"), "max_steps")); /* it has none */
    const struct rl_json *mode = named(rl_json_get(fake, "options"), "mode");
    assert_string_equal(rl_json_text(rl_json_get(mode, "type")), "choice");
    assert_string_equal(rl_json_text(rl_json_get(mode, "default")), "fast");
    assert_string_equal(rl_json_text(rl_json_child(rl_json_get(mode, "choices"))), "fast");
    engines_close(engines);
}

static void test_json_hides_faults_until_unlocked(void **state)
{
    (void)state;
    struct engines *engines = open_engines("", NULL);
    struct rl_json *root = describe(engines);
    const struct rl_json *options = rl_json_get(named(root, "testpattern"), "options");
    assert_non_null(named(options, "frame_ms"));
    assert_null(named(options, "fault"));
    rl_json_free(root);
    engines_close(engines);
    engines = open_engines("", "testpattern.faults=on");
    root = describe(engines);
    assert_non_null(named(rl_json_get(named(root, "testpattern"), "options"), "fault"));
    rl_json_free(root);
    engines_close(engines);
}

int main(void)
{
#define WITH_DIR(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        WITH_DIR(test_open_without_a_plugin_folder),
        WITH_DIR(test_open_takes_good_plugins_and_leaves_bad_ones_out),
        WITH_DIR(test_open_another_abi_is_left_out),
        WITH_DIR(test_devices_cpu_slots_without_a_gpu),
        WITH_DIR(test_devices_gpus_of_a_plugin_replace_the_cpu_slots),
        WITH_DIR(test_usage_is_asked_of_the_engine_that_knows_the_device),
        WITH_DIR(test_fit_compares_the_need_with_every_device),
        WITH_DIR(test_runs_on_and_a_run_on_each_device),
        cmocka_unit_test(test_phase_name_all),
        WITH_DIR(test_json_publishes_limits_defaults_and_options),
        WITH_DIR(test_json_hides_faults_until_unlocked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
