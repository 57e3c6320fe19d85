/* Every allocation of the engine module and of what it stands on fails once, in turn: each time the
 * answer is RL_NO_MEMORY, nothing leaks (the sanitizer looks) and the results stay untouched. */
// link: -Wl,--wrap=malloc -Wl,--wrap=calloc -Wl,--wrap=realloc
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/json.h"
#include "config/config.h"
#include "engine/engine.h"

static int fail_at, calls; /* 0: none fails */

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__wrap_realloc(void *p, size_t size);

static bool fails(void)
{
    return fail_at && ++calls == fail_at;
}

void *__wrap_malloc(size_t size)
{
    return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t size)
{
    return fails() ? NULL : __real_realloc(p, size);
}

static enum rl_rc drop_frame(void *user, const struct engine_frame *frame, struct rl_err *err)
{
    (void)err;
    (void)frame;
    ++*(int *)user;
    return RL_OK;
}

/* Open, resolve, load and generate, as a task would. */
static enum rl_rc whole_way(const struct config *cfg, const struct rl_json *tree, int *frames,
                            struct rl_err *err)
{
    struct engines *engines = NULL;
    const struct engine *engine = NULL;
    struct engine_run *run = NULL;
    struct engine_request request = {.prompt = "a red ball", .seed = 1};
    AUTO_FREE char *options = NULL;
    const struct engine_wish wish = {.engine = "testpattern",
                                     .width = 64,
                                     .height = 64,
                                     .frames = 2,
                                     .fps = -1,
                                     .steps = -1,
                                     .guidance_scale = NAN,
                                     .flow_shift = NAN,
                                     .options = tree};
    const struct engine_device device = {.id = "cpu0"};
    const struct engine_ctl ctl = {.user = frames, .on_frame = drop_frame};
    enum rl_rc rc = engines_open(cfg, &engines, err);
    if (rc == RL_OK)
        rc = engines_resolve(engines, &wish, &engine, &request, &options, err);
    if (rc != RL_OK)
        assert_null(options);
    if (rc == RL_OK)
        rc = engine->load(cfg, &device, request.model, &ctl, &run, err);
    if (rc == RL_OK)
        rc = engine->generate(run, &request, &ctl, err);
    if (run)
        engine->unload(run);
    engines_close(engines);
    return rc;
}

static void test_open_to_generate_each_allocation_fails_once(void **state)
{
    (void)state;
    struct config *cfg = config_new();
    struct rl_err err = {0};
    AUTO_JSON struct rl_json *tree = NULL;
    static const char text[] = "{\"frame_ms\":0,\"input_ms\":0}";
    assert_non_null(cfg);
    assert_int_equal(config_set(cfg, "engine.plugin_dir", "", &err), RL_OK);
    assert_int_equal(rl_json_parse(text, strlen(text), &tree, &err), RL_OK);
    int at = 1;
    for (; at < 200; at++) {
        int frames = 0;
        fail_at = at;
        calls = 0;
        memset(&err, 0, sizeof(err));
        enum rl_rc rc = whole_way(cfg, tree, &frames, &err);
        bool reached = calls >= at;
        fail_at = 0;
        if (rc == RL_OK && !reached) {
            assert_int_equal(frames, 2);
            break;
        }
        assert_int_equal(rc, RL_NO_MEMORY);
        assert_int_equal(err.code, RL_NO_MEMORY);
        assert_int_equal(frames, 0);
    }
    print_message("%d allocations\n", at - 1);
    assert_in_range(at, 7, 199);
    config_free(cfg);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open_to_generate_each_allocation_fails_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
