/* Scaling of a small model's pictures, and the bytes of its checkpoints. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/wan/checkpoint.h"
#include "engine/wan/scale.h"

#include <string.h>

#define W 16
#define H 12

static struct scaler *make(int w, int h, int to_w, int to_h)
{
    struct scaler *s = NULL;
    struct rl_err err;
    assert_int_equal(scaler_new(w, h, to_w, to_h, &s, &err), RL_OK);
    return s;
}

static const uint8_t *at(const uint8_t *rgb, int width, int x, int y)
{
    return rgb + 3 * (y * width + x);
}

static void test_run_keeps_a_flat_picture(void **state)
{
    static const int sizes[][2] = {{64, 48}, {16, 12}, {7, 5}, {200, 30}, {33, 97}};
    uint8_t rgb[W * H * 3];
    (void)state;
    for (int i = 0; i < W * H; i++)
        memcpy(rgb + 3 * i, "\x00\x80\xff", 3);
    for (size_t k = 0; k < RL_ARRAY_LEN(sizes); k++) {
        struct scaler *s = make(W, H, sizes[k][0], sizes[k][1]);
        const uint8_t *out = scaler_run(s, rgb);
        for (int i = 0; i < sizes[k][0] * sizes[k][1]; i++)
            assert_memory_equal(out + 3 * i, "\x00\x80\xff", 3);
        scaler_free(s);
    }
}

static void test_run_at_the_same_size_changes_nothing(void **state)
{
    uint8_t rgb[W * H * 3];
    (void)state;
    for (size_t i = 0; i < sizeof rgb; i++)
        rgb[i] = (uint8_t)(i * 37 + i * i);
    struct scaler *s = make(W, H, W, H);
    assert_memory_equal(scaler_run(s, rgb), rgb, sizeof rgb);
    scaler_free(s);
}

/* A ramp stays a ramp: a cubic filter is exact for straight lines. */
static void test_run_keeps_a_ramp(void **state)
{
    uint8_t rgb[W * H * 3];
    (void)state;
    for (int i = 0; i < W * H; i++)
        for (int c = 0; c < 3; c++)
            rgb[3 * i + c] = (uint8_t)(i % W * 16);
    struct scaler *s = make(W, H, 4 * W, 4 * H);
    const uint8_t *out = scaler_run(s, rgb);
    for (int x = 8; x < 4 * W - 8; x++) {
        double want = ((x + 0.5) / 4 - 0.5) * 16;
        assert_float_equal(*at(out, 4 * W, x, 20), want, 1);
    }
    scaler_free(s);
}

/* A dot stays round and in the middle; the border goes on to both sides. */
static void test_run_keeps_shapes_in_a_wide_picture(void **state)
{
    uint8_t rgb[H * H * 3];
    enum { TO_W = 96, TO_H = 48 };
    int columns = 0, rows = 0;
    (void)state;
    memset(rgb, 0, sizeof rgb);
    for (int y = 4; y < 8; y++)
        for (int x = 4; x < 8; x++)
            memset(rgb + 3 * (y * H + x), 255, 3);
    for (int i = 0; i < H; i++)
        rgb[3 * (i * H) + 2] = 90; /* a blue left edge */
    struct scaler *s = make(H, H, TO_W, TO_H);
    const uint8_t *out = scaler_run(s, rgb);
    for (int x = 0; x < TO_W; x++)
        columns += at(out, TO_W, x, TO_H / 2)[0] > 127;
    for (int y = 0; y < TO_H; y++)
        rows += at(out, TO_W, TO_W / 2, y)[0] > 127;
    assert_int_equal(columns, 16); /* 4 × as wide and as high */
    assert_int_equal(rows, 16);
    assert_true(at(out, TO_W, 47, 24)[0] > 250 && at(out, TO_W, 48, 24)[0] > 250);
    assert_int_equal(at(out, TO_W, 0, 24)[2], 90);
    assert_int_equal(at(out, TO_W, 10, 24)[2], 90);
    assert_int_equal(at(out, TO_W, TO_W - 1, 24)[2], 0);
    scaler_free(s);
}

/* ---- checkpoints ---- */

#define PAYLOAD 40
#define LEN     (CHECKPOINT_HEAD_BYTES + PAYLOAD + CHECKPOINT_TAIL_BYTES)

static void sealed(struct checkpoint_key *key, uint8_t *bytes)
{
    memset(key->model, 1, sizeof key->model);
    memset(key->request, 2, sizeof key->request);
    for (int i = 0; i < PAYLOAD; i++)
        bytes[CHECKPOINT_HEAD_BYTES + i] = (uint8_t)i;
    checkpoint_seal(key, 7, bytes, PAYLOAD);
}

static void test_open_gives_what_was_sealed(void **state)
{
    struct checkpoint_key key;
    uint8_t bytes[LEN];
    const char *why = NULL;
    int step = 0;
    (void)state;
    sealed(&key, bytes);
    const uint8_t *payload = checkpoint_open(&key, bytes, LEN, PAYLOAD, &step, &why);
    assert_ptr_equal(payload, bytes + CHECKPOINT_HEAD_BYTES);
    assert_int_equal(step, 7);
    assert_null(why);
    for (int i = 0; i < PAYLOAD; i++)
        assert_int_equal(payload[i], i);
}

static void test_open_refuses_every_changed_byte(void **state)
{
    struct checkpoint_key key;
    uint8_t bytes[LEN];
    int step = -1;
    (void)state;
    sealed(&key, bytes);
    for (size_t i = 0; i < LEN; i++) {
        const char *why = NULL;
        bytes[i] ^= 0x10;
        assert_null(checkpoint_open(&key, bytes, LEN, PAYLOAD, &step, &why));
        assert_non_null(why);
        assert_int_equal(step, -1);
        bytes[i] ^= 0x10;
    }
}

static void test_open_refuses_what_is_not_of_this_work(void **state)
{
    struct checkpoint_key key, other;
    uint8_t bytes[LEN];
    int step = -1;
    (void)state;
    sealed(&key, bytes);
    const char *why = NULL;
    other = key;
    other.request[31] ^= 1;
    assert_null(checkpoint_open(&other, bytes, LEN, PAYLOAD, &step, &why));
    assert_string_equal(why, "another request");
    other = key;
    other.model[0] ^= 1;
    assert_null(checkpoint_open(&other, bytes, LEN, PAYLOAD, &step, &why));
    assert_string_equal(why, "another model");
    for (size_t len = 0; len < LEN; len++)
        assert_null(checkpoint_open(&key, bytes, len, PAYLOAD, &step, &why));
    assert_null(checkpoint_open(&key, bytes, LEN, PAYLOAD + 4, &step, &why));
    assert_string_equal(why, "another length");
    assert_null(checkpoint_open(&key, "RLTPRLTPRLTPRLTPRL", 18, PAYLOAD, &step, &why));
    assert_string_equal(why, "not one of this engine");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_run_keeps_a_flat_picture),
        cmocka_unit_test(test_run_at_the_same_size_changes_nothing),
        cmocka_unit_test(test_run_keeps_a_ramp),
        cmocka_unit_test(test_run_keeps_shapes_in_a_wide_picture),
        cmocka_unit_test(test_open_gives_what_was_sealed),
        cmocka_unit_test(test_open_refuses_every_changed_byte),
        cmocka_unit_test(test_open_refuses_what_is_not_of_this_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
