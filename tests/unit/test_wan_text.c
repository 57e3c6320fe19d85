/* The text encoder against PyTorch (tests/unit/wan/make.py). */
#include "wan_world.h"

#include "engine/wan/text.h"

static void check_prompt(const struct world *w, struct text *text, const char *name)
{
    char key[64];
    size_t n, count;
    struct rl_err err = {0};
    (void)snprintf(key, sizeof key, "%s.ids", name);
    int32_t *ids = values(w, key, &n);
    (void)snprintf(key, sizeof key, "%s.rows", name);
    float *want = values(w, key, &count);
    assert_int_equal(count, n * (size_t)wan_model_config(w->model)->text.dim);
    void *rows = on_device(w, NULL, count * w->ops->act_bytes);
    must(text_encode(text, ids, (int)n, NULL, rows, &err), &err);
    float *got = act_values(w, rows, count);
    assert_close(w, name, got, want, count);
    w->ops->free(w->ctx, rows);
    free(ids);
    free(want);
    free(got);
}

static void encode(const struct world *w)
{
    static const char *const names[] = {"text0", "text1", "text2", "text_long"};
    struct rl_err err = {0};
    for (int resident = 0; resident < 2; resident++) {
        struct text *text = NULL;
        must(text_new(w->ops, w->ctx, w->model, resident, NULL, &text, &err), &err);
        for (size_t i = 0; i < RL_ARRAY_LEN(names); i++)
            check_prompt(w, text, names[i]);
        text_free(text);
    }
}

static void test_encode_gives_the_rows_of_pytorch(void **state)
{
    (void)state;
    over_all(false, encode);
}

static void test_bucket_as_pytorch(void **state)
{
    struct world w;
    (void)state;
    world_open(&w, ops_reference());
    int32_t *of = values(&w, "buckets.of", NULL), *back = values(&w, "buckets.back", NULL);
    for (int i = 0; i < 200; i++) { /* key i seen from query 0, and from query 199 */
        assert_int_equal(text_bucket(i, 32), of[i]);
        assert_int_equal(text_bucket(i - 199, 32), back[i]);
    }
    free(of);
    free(back);
    world_close(&w);
}

struct seen {
    int beats, stop_at;
};

static bool beat(void *user, int done, int total)
{
    struct seen *seen = user;
    assert_int_equal(done, seen->beats);
    assert_int_equal(total, 2);
    return seen->beats++ < seen->stop_at;
}

static void test_encode_stops_within_a_layer(void **state)
{
    const int32_t ids[] = {5, 6, 1};
    struct world w;
    struct text *text = NULL;
    struct rl_err err = {0};
    (void)state;
    world_open(&w, ops_reference());
    must(text_new(w.ops, w.ctx, w.model, false, NULL, &text, &err), &err);
    void *rows = on_device(&w, NULL, 3 * 24 * w.ops->act_bytes);
    for (int stop = 0; stop <= 2; stop++) {
        struct seen seen = {.stop_at = stop};
        const struct watch watch = {.user = &seen, .beat = beat};
        assert_int_equal(text_encode(text, ids, 3, &watch, rows, &err),
                         stop < 2 ? RL_CANCELED : RL_OK);
        assert_int_equal(seen.beats, stop < 2 ? stop + 1 : 2);
    }
    w.ops->free(w.ctx, rows);
    text_free(text);
    world_close(&w);
}

static void test_encode_refuses_an_id_beyond_the_table(void **state)
{
    const int32_t ids[] = {5, 100000, 1};
    struct world w;
    struct text *text = NULL;
    struct rl_err err = {0};
    (void)state;
    world_open(&w, ops_reference());
    must(text_new(w.ops, w.ctx, w.model, true, NULL, &text, &err), &err);
    void *rows = on_device(&w, NULL, 3 * 24 * w.ops->act_bytes);
    assert_int_equal(text_encode(text, ids, 3, NULL, rows, &err), RL_INVALID_FIELD);
    w.ops->free(w.ctx, rows);
    text_free(text);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_encode_gives_the_rows_of_pytorch),
        cmocka_unit_test(test_bucket_as_pytorch),
        cmocka_unit_test(test_encode_stops_within_a_layer),
        cmocka_unit_test(test_encode_refuses_an_id_beyond_the_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
