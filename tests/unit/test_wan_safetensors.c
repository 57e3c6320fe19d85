/* Weight files: what is read back, every way in which a header can lie, indexes of several files,
 * and a file of the size of the real thing that costs next to nothing to open. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/wan/safetensors.h"

#include "wan_files.h"

#include <sys/resource.h>
#include <time.h>

#define ENTRY(name, dtype, shape, a, b)                                                            \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" #a "," #b "]" \
    "}"

static char folder[64];
static char path[96];

static int setup(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof(folder), "/tmp/wan_safetensors.XXXXXX");
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof(path), "%s/a.safetensors", folder);
    return 0;
}

static int teardown(void **state)
{
    char command[96];

    (void)state;
    (void)snprintf(command, sizeof(command), "rm -rf %s", folder);
    return system(command);
}

/* The header is refused, and the reason holds `word`. */
static void refused(const char *header, size_t data_len, const char *word)
{
    struct safetensors *file = NULL;
    struct rl_err err = {0};

    wan_file_header(path, header, data_len);
    if (safetensors_open(path, &file, &err) != RL_INVALID_FIELD || !strstr(err.reason, word))
        fail_msg("%s\n  gave: %s, expected: %s", header, err.reason, word);
    assert_null(file);
    assert_non_null(strstr(err.reason, "a.safetensors"));
}

static void accepted(const char *header, size_t data_len, size_t count)
{
    struct safetensors *file = NULL;
    struct rl_err err = {0};

    wan_file_header(path, header, data_len);
    if (safetensors_open(path, &file, &err) != RL_OK)
        fail_msg("%s\n  gave: %s", header, err.reason);
    assert_int_equal(safetensors_count(file), count);
    safetensors_close(file);
}

static void test_safetensors_open_reads_back(void **state)
{
    static struct wan_file content;
    const float a[] = {1, 2, 3, 4, 5, 6};
    const uint16_t b[] = {0x3f80, 0x4000};
    const uint8_t c[] = {'s', 'p'};
    struct safetensors *file = NULL;
    struct rl_err err = {0};

    (void)state;
    content.metadata = "{\"heads\":\"2\",\"text\":\"a\\u00e9\\n\\ud83d\\ude00\"}";
    wan_file_add(&content, "U8", (int64_t[]){2}, 1, c, "spiece_model");
    wan_file_add(&content, "F32", (int64_t[]){2, 3}, 2, a, "blocks.0.w");
    wan_file_add(&content, "BF16", (int64_t[]){2, 1, 1, 1, 1}, 5, b, "blocks.0.b");
    wan_file_add(&content, "F8_E4M3", NULL, 0, c, "scalar");
    wan_file_write(&content, path);
    assert_int_equal(safetensors_open(path, &file, &err), RL_OK);
    assert_int_equal(safetensors_count(file), 4);

    const struct tensor *t = safetensors_at(file, 0);
    assert_string_equal(t->name, "blocks.0.b");
    assert_true(t->numeric && t->type == OPS_BF16 && t->ndim == 5 && t->dims[0] == 2);
    assert_memory_equal(t->data, b, sizeof(b));
    t = safetensors_find(file, "blocks.0.w");
    assert_true(t->numeric && t->type == OPS_F32 && t->ndim == 2 && t->dims[1] == 3);
    assert_int_equal(t->bytes, sizeof(a));
    assert_memory_equal(t->data, a, sizeof(a));
    t = safetensors_find(file, "spiece_model");
    assert_false(t->numeric);
    assert_string_equal(t->dtype, "U8");
    assert_memory_equal(t->data, c, 2);
    t = safetensors_find(file, "scalar");
    assert_true(t->numeric && t->type == OPS_F8_E4M3 && t->ndim == 0 && t->bytes == 1);
    assert_null(safetensors_find(file, "blocks.0"));
    assert_string_equal(safetensors_metadata(file, "heads"), "2");
    assert_string_equal(safetensors_metadata(file, "text"), "a\xc3\xa9\n\xf0\x9f\x98\x80");
    assert_null(safetensors_metadata(file, "none"));
    safetensors_want(t, true);
    safetensors_want(safetensors_find(file, "blocks.0.w"), false);
    assert_memory_equal(safetensors_find(file, "blocks.0.w")->data, a, sizeof(a));
    safetensors_close(file);
}

static void test_safetensors_open_plain_headers(void **state)
{
    (void)state;
    accepted("{}", 0, 0);
    accepted("{}      ", 0, 0);
    accepted("{\"__metadata__\":{}}", 0, 0);
    accepted("{" ENTRY("a", "F32", "2,2", 0, 16) "}", 16, 1);
    accepted(" { " ENTRY("a", "F64", "2", 0, 16) " , " ENTRY("b", "I8", "", 16, 17) " } ", 17, 2);
    /* in any order, and empty ones anywhere */
    accepted("{" ENTRY("b", "U8", "3", 2, 5) "," ENTRY("a", "BOOL", "2", 0, 2) "}", 5, 2);
    accepted("{" ENTRY("a", "F32", "0,9", 0, 0) "," ENTRY("b", "U8", "1", 0,
                                                          1) "," ENTRY("c", "U8", "0", 1, 1) "}",
             1, 3);
}

static void test_safetensors_open_refuses_lies(void **state)
{
    (void)state;
    refused("{" ENTRY("a", "F32", "2,2", 0, 12) "}", 12, "16 bytes, data_offsets 12");
    refused("{" ENTRY("a", "F32", "2", 8, 0) "}", 8, "tensor a");
    refused("{" ENTRY("a", "F32", "2", 0, 8) "}", 7, "cut off");
    refused("{" ENTRY("a", "F32", "2", 0, 8) "}", 9, "more bytes than its tensors");
    refused("{" ENTRY("a", "F32", "2", 4, 12) "}", 12, "belong to no tensor");
    refused("{" ENTRY("a", "U8", "4", 0, 4) "," ENTRY("b", "U8", "2", 3, 5) "}", 5,
            "tensor b: overlaps");
    refused("{" ENTRY("a", "U8", "4", 0, 4) "," ENTRY("b", "U8", "2", 5, 7) "}", 7,
            "tensor b: bytes before");
    refused("{" ENTRY("a", "U8", "1", 0, 1) "," ENTRY("a", "U8", "1", 1, 2) "}", 2, "there twice");
    refused("{" ENTRY("a", "F33", "1", 0, 4) "}", 4, "unknown dtype");
    refused("{" ENTRY("a", "U8", "1,1,1,1,1,1", 0, 1) "}", 1, "more than 5");
    refused("{" ENTRY("a", "F32", "4611686018427387904,2", 0, 0) "}", 0, "too large");
    refused("{" ENTRY("a", "F64", "2305843009213693952", 0, 0) "}", 0, "too large");
    refused("{" ENTRY("a", "U8", "9223372036854775808", 0, 0) "}", 0, "too large a number");
    refused("{" ENTRY("a", "U8", "9223372036854775807", 0, 9223372036854775807) "}", 0, "cut off");
    refused("{" ENTRY("a", "U8", "-1", 0, 1) "}", 1, "whole number");
    refused("{" ENTRY("a", "U8", "1.0", 0, 1) "}", 1, "whole number");
    refused("{" ENTRY("a", "U8", "01", 0, 1) "}", 1, "leading zero");
}

static void test_safetensors_open_refuses_bad_json(void **state)
{
    (void)state;
    refused("[]", 0, "'{' expected");
    refused("{}x", 0, "end of the text");
    refused("{} {}", 0, "end of the text");
    refused("{\"a\":1}", 0, "'{' expected");
    refused("{\"a\":{}}", 0, "no dtype");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, "no dtype, shape or data_offsets");
    refused("{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\"}}", 0, "something else");
    refused("{\"a\":{\"color\":1}}", 0, "something else");
    refused("{\"a\":{\"dtype\":8}}", 0, "a string expected");
    refused("{\"a\":{\"shape\":[1,]}}", 0, "whole number");
    refused("{\"a\":{\"shape\":[,1]}}", 0, "whole number");
    refused("{\"a\":{\"shape\":[1 1]}}", 0, "',' or ']'");
    refused("{\"a\":{\"data_offsets\":[1]}}", 0, "two numbers");
    refused("{\"a\":{\"data_offsets\":[1,2,3]}}", 0, "two numbers");
    refused("{\"a\"}", 0, "':' expected");
    refused("{,}", 0, "a string expected");
    refused("{" ENTRY("a", "U8", "1", 0, 1) ",}", 1, "a string expected");
    refused("{" ENTRY("a", "U8", "1", 0, 1) " " ENTRY("b", "U8", "0", 1, 1) "}", 1, "',' or '}'");
    refused("{" ENTRY("a", "U8", "1", 0, 1), 1, "',' or '}'");
    refused("{\"a", 0, "inside a string");
    refused("{\"a\\", 0, "inside a string");
    refused("{\"\\x\":1}", 0, "unknown escape");
    refused("{\"\\u0000\":1}", 0, "bad \\u escape");
    refused("{\"\\u12\":1}", 0, "bad \\u escape");
    refused("{\"\\ud800\":1}", 0, "lone surrogate");
    refused("{\"\\udc00\":1}", 0, "bad \\u escape");
    refused("{\"\xff\":1}", 0, "invalid UTF-8");
    refused("{\"a\nb\":1}", 0, "raw control");
    refused("{\"__metadata__\":{\"a\":1}}", 0, "a string expected");
    refused("{\"__metadata__\":{},\"__metadata__\":{}}", 0, "twice");
}

static void refused_bytes(const void *bytes, size_t len, size_t hole, const char *word)
{
    struct safetensors *file = NULL;
    struct rl_err err = {0};

    wan_file_raw(path, bytes, len, hole);
    assert_int_equal(safetensors_open(path, &file, &err), RL_INVALID_FIELD);
    if (!strstr(err.reason, word))
        fail_msg("gave: %s, expected: %s", err.reason, word);
}

static void test_safetensors_open_refuses_other_files(void **state)
{
    const uint64_t huge = UINT64_MAX;
    const uint64_t more = 100000001;

    (void)state;
    refused_bytes("", 0, 0, "too short");
    refused_bytes("1234567", 7, 0, "too short");
    refused_bytes("", 0, 8, "no safetensors file");
    refused_bytes("", 0, 1 << 20, "no safetensors file");
    refused_bytes(&huge, 8, 100, "no safetensors file");
    refused_bytes(&more, 8, 200000000, "no safetensors file");
    refused_bytes("\2\0\0\0\0\0\0\0{", 9, 0, "no safetensors file");
    refused_bytes("GGUF\3\0\0\0\0\0\0\0", 12, 100, "GGUF");
    refused_bytes("PK\3\4archive/data.pkl", 20, 100, "pickle");
    refused_bytes("version https://git-lfs.github.com/spec/v1\noid", 46, 100, "Git LFS pointer");
    refused_bytes("<!DOCTYPE html><html>", 21, 100, "no safetensors file");
}

/* Pickles run code when they are loaded: refused by name, with what to take instead. */
static void test_safetensors_open_refuses_pickles(void **state)
{
    static const struct {
        const char *name, *advice;
    } cases[] = {{"models_t5_umt5-xxl-enc-bf16.pth", "umt5_xxl_fp16.safetensors"},
                 {"Wan2.1_VAE.pth", "wan_2.1_vae.safetensors"},
                 {"model.ckpt", "safetensors"},
                 {"pytorch_model.bin", "safetensors"},
                 {"x.pt", "safetensors"},
                 {"x.pkl", "safetensors"}};
    struct safetensors *file = NULL;
    char name[128];

    (void)state;
    for (size_t i = 0; i < RL_ARRAY_LEN(cases); i++) {
        struct rl_err err = {0};

        (void)snprintf(name, sizeof(name), "%s/%s", folder, cases[i].name);
        wan_file_header(name, "{}", 0);
        assert_int_equal(safetensors_open(name, &file, &err), RL_INVALID_FIELD);
        assert_non_null(strstr(err.reason, cases[i].name));
        assert_non_null(strstr(err.reason, cases[i].advice));
    }
}

static void test_safetensors_open_odd_paths(void **state)
{
    struct safetensors *file = NULL;
    struct rl_err err = {0};

    (void)state;
    assert_int_equal(safetensors_open("/nonexistent/a.safetensors", &file, &err), RL_NOT_FOUND);
    assert_non_null(strstr(err.reason, "/nonexistent/a.safetensors"));
    assert_int_equal(safetensors_open("/nonexistent/a.index.json", &file, &err), RL_NOT_FOUND);
    assert_int_equal(safetensors_open(folder, &file, &err), RL_INVALID_FIELD);
    /* a pipe without a writer holds nobody up */
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(safetensors_open(path, &file, &err), RL_INVALID_FIELD);
    assert_non_null(strstr(err.reason, "no regular file"));
}

/* ---- several files ---- */

static enum rl_rc open_index(const char *text, struct safetensors **ret_file, struct rl_err *err)
{
    char name[96];

    (void)snprintf(name, sizeof(name), "%s/model.safetensors.index.json", folder);
    wan_file_raw(name, text, strlen(text), 0);
    return safetensors_open(name, ret_file, err);
}

static void write_shards(void)
{
    char name[96];

    (void)snprintf(name, sizeof(name), "%s/m-1.safetensors", folder);
    wan_file_header(name, "{\"__metadata__\":{\"k\":\"1\"}," ENTRY("a", "U8", "2", 0, 2) "}", 2);
    (void)snprintf(name, sizeof(name), "%s/m-2.safetensors", folder);
    wan_file_header(name,
                    "{\"__metadata__\":{\"k\":\"2\"}," ENTRY("b", "U8", "0", 0, 0) "," ENTRY(
                        "c", "U8", "4096", 0, 4096) "}",
                    4096);
    (void)snprintf(name, sizeof(name), "%s/twice.safetensors", folder);
    wan_file_header(name, "{" ENTRY("a", "U8", "1", 0, 1) "}", 1);
}

static void test_safetensors_open_index(void **state)
{
    struct safetensors *file = NULL;
    struct rl_err err = {0};

    (void)state;
    write_shards();
    assert_int_equal(
        open_index(
            "{\"metadata\":{\"total_size\":2.5e3,\"x\":[{},null,[true]]},\"weight_map\":"
            "{\"c\":\"m-2.safetensors\",\"a\":\"m-1.safetensors\",\"b\":\"m-2.safetensors\"}}",
            &file, &err),
        RL_OK);
    assert_int_equal(safetensors_count(file), 3);
    assert_int_equal(safetensors_find(file, "c")->bytes, 4096);
    assert_string_equal(safetensors_at(file, 0)->name, "a");
    assert_non_null(safetensors_metadata(file, "k"));
    safetensors_close(file);
}

static void test_safetensors_open_index_refused(void **state)
{
    static const struct {
        const char *map, *word;
        enum rl_rc rc;
    } cases[] = {
        {"{\"a\":\"../m-1.safetensors\"}", "of its folder", RL_INVALID_FIELD},
        {"{\"a\":\"/etc/m-1.safetensors\"}", "of its folder", RL_INVALID_FIELD},
        {"{\"a\":\"..\"}", "of its folder", RL_INVALID_FIELD},
        {"{\"a\":\"m-1.pth\"}", "of its folder", RL_INVALID_FIELD},
        {"{\"a\":\"\"}", "of its folder", RL_INVALID_FIELD},
        {"{\"a\":\".safetensors\"}", "of its folder", RL_INVALID_FIELD},
        {"{\"a\":\"m-3.safetensors\"}", "m-3.safetensors", RL_NOT_FOUND},
        {"{\"a\":\"m-2.safetensors\"}", "tensor a: is not in the file", RL_INVALID_FIELD},
        {"{\"a\":\"m-1.safetensors\",\"b\":\"m-1.safetensors\",\"c\":\"m-2.safetensors\"}",
         "tensor b: is not in the file", RL_INVALID_FIELD},
        {"{\"a\":\"m-1.safetensors\",\"z\":\"m-1.safetensors\"}", "tensor z", RL_INVALID_FIELD},
        {"{\"a\":\"m-1.safetensors\",\"b\":\"twice.safetensors\"}", "there twice",
         RL_INVALID_FIELD},
        {"{}", "no weight_map", RL_INVALID_FIELD},
        {"{\"a\":1}", "a string expected", RL_INVALID_FIELD},
    };
    struct safetensors *file = NULL;
    char text[256];

    (void)state;
    write_shards();
    for (size_t i = 0; i < RL_ARRAY_LEN(cases); i++) {
        struct rl_err err = {0};

        (void)snprintf(text, sizeof(text), "{\"weight_map\":%s}", cases[i].map);
        if (open_index(text, &file, &err) != cases[i].rc || !strstr(err.reason, cases[i].word))
            fail_msg("%s gave: %s, expected: %s", text, err.reason, cases[i].word);
    }
    struct rl_err err = {0};
    assert_int_equal(open_index("{\"metadata\":{}}", &file, &err), RL_INVALID_FIELD);
    assert_int_equal(open_index("", &file, &err), RL_INVALID_FIELD);
    assert_int_equal(open_index("{\"x\":[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]}", &file, &err),
                     RL_INVALID_FIELD);
    assert_non_null(strstr(err.reason, "nested deeper"));
}

/* ---- size ---- */

/* 3 GB in 825 tensors, almost all of it a hole: opening reads the header and nothing else. */
static void test_safetensors_open_is_quick(void **state)
{
    static struct wan_file content;
    struct safetensors *file = NULL;
    struct rl_err err = {0};
    struct timespec a;
    struct timespec b;
    struct rusage before;
    struct rusage after;
    char name[64];

    (void)state;
    content.count = 0;
    content.metadata = NULL;
    for (int i = 0; i < 825; i++) {
        (void)snprintf(name, sizeof(name), "blocks.%d.self_attn.q.weight", i);
        wan_file_add(&content, "BF16", (int64_t[]){1024, 1776}, 2, NULL, name);
    }
    wan_file_write(&content, path);
    assert_int_equal(getrusage(RUSAGE_SELF, &before), 0);
    assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &a), 0);
    assert_int_equal(safetensors_open(path, &file, &err), RL_OK);
    assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &b), 0);
    assert_int_equal(getrusage(RUSAGE_SELF, &after), 0);
    assert_int_equal(safetensors_count(file), 825);

    long ms = (b.tv_sec - a.tv_sec) * 1000 + (b.tv_nsec - a.tv_nsec) / 1000000;
    print_message("opened in %ld ms, %ld kB more\n", ms, after.ru_maxrss - before.ru_maxrss);
    assert_true(ms < 500); /* 1 ms alone; this much under a sanitizer on a busy machine */
    assert_true(after.ru_maxrss - before.ru_maxrss < 16 * 1024);
    safetensors_close(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_safetensors_open_reads_back, setup, teardown),
        cmocka_unit_test_setup_teardown(test_safetensors_open_plain_headers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_safetensors_open_refuses_lies, setup, teardown),
        cmocka_unit_test_setup_teardown(test_safetensors_open_refuses_bad_json, setup, teardown),
        cmocka_unit_test_setup_teardown(test_safetensors_open_refuses_other_files, setup, teardown),
        cmocka_unit_test_setup_teardown(test_safetensors_open_refuses_pickles, setup, teardown),
        cmocka_unit_test_setup_teardown(test_safetensors_open_odd_paths, setup, teardown),
        cmocka_unit_test_setup_teardown(test_safetensors_open_index, setup, teardown),
        cmocka_unit_test_setup_teardown(test_safetensors_open_index_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_safetensors_open_is_quick, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
