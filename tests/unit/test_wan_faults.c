// clang-format off
// link: -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc
// clang-format on
/* Opening models and tokenizers, and encoding, with every allocation made to fail in turn: the
 * error says so and nothing is left behind (the sanitizer looks). */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include "wan_folder.h"

#include "base/fs.h"
#include "engine/wan/tokenizer.h"

static int calls_left = -1; /* allocations before one fails; below 0: none fails */

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *mem, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *mem, size_t size);

static bool passes(void)
{
    if (calls_left < 0)
        return true;
    return calls_left-- > 0;
}

void *__wrap_malloc(size_t size)
{
    return passes() ? __real_malloc(size) : NULL;
}

void *__wrap_calloc(size_t count, size_t size)
{
    return passes() ? __real_calloc(count, size) : NULL;
}

void *__wrap_realloc(void *mem, size_t size)
{
    return passes() ? __real_realloc(mem, size) : NULL;
}

static enum rl_rc open_and_close(void *user, struct rl_err *err)
{
    struct wan_model *model = NULL;
    enum rl_rc rc = wan_model_open(user, &model, err);

    assert_true((rc == RL_OK) == (model != NULL));
    wan_model_close(model);
    return rc;
}

struct text_case {
    const void *model;
    size_t len;
};

static enum rl_rc encode_once(void *user, struct rl_err *err)
{
    const struct text_case *c = user;
    struct tokenizer *t = NULL;
    int32_t ids[64];
    size_t n = 0;
    enum rl_rc rc = tokenizer_new(c->model, c->len, &t, err);

    if (!rc)
        rc = tokenizer_encode(t, "the red circle moving left", 26, ids, 64, &n, err);
    tokenizer_free(t);
    return rc;
}

/* Call with its first allocation failing, its second, … until none does. */
static void fail_each(enum rl_rc (*call)(void *user, struct rl_err *err), void *user, int at_least)
{
    enum rl_rc rc = RL_NO_MEMORY;
    int round = 0;

    for (; rc != RL_OK && round < 10000; round++) {
        struct rl_err err = {0};

        calls_left = round;
        rc = call(user, &err);
        bool failed = calls_left < 0;
        calls_left = -1;
        if (rc != (failed ? RL_NO_MEMORY : RL_OK))
            fail_msg("allocation %d: %s %s", round, rl_code_name(rc), err.reason);
    }
    print_message("%d allocations\n", round - 1);
    assert_true(round > at_least);
}

static void test_model_open_without_memory(void **state)
{
    (void)state;
    write_comfy();
    fail_each(open_and_close, folder, 15);
}

/* The transformer by an index. */
static void test_model_open_index_without_memory(void **state)
{
    AUTO_BUF struct rl_buf b = {0};
    char path[160];

    (void)state;
    write_comfy();
    rl_buf_init(&b, 1 << 16);
    rl_buf_str(&b, "{\"weight_map\":{");
    for (size_t i = 0; i < dit.count; i++)
        rl_buf_fmt(&b, "%s\"%s\":\"dit.safetensors\"", i ? "," : "", dit.tensors[i].name);
    rl_buf_str(&b, "}}");
    (void)snprintf(path, sizeof(path), "%s/diffusion_models/dit.safetensors.index.json", folder);
    wan_file_raw(path, b.data, b.len, 0);
    fail_each(open_and_close, folder, 20);
}

static void test_tokenizer_without_memory(void **state)
{
    char *bytes = NULL;
    struct text_case c = {0};
    struct rl_err err = {0};

    (void)state;
    assert_int_equal(rl_fs_read(TOKENIZER_DATA "/bytes.model", 1 << 20, &bytes, &c.len, &err),
                     RL_OK);
    c.model = bytes;
    fail_each(encode_once, &c, 6);
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_model_open_without_memory, setup, teardown),
        cmocka_unit_test_setup_teardown(test_model_open_index_without_memory, setup, teardown),
        cmocka_unit_test(test_tokenizer_without_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
