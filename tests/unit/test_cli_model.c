/* The model commands without a network: the real thing's sizes from files full of holes, the meter,
 * the report's discretion. tests/scenario/models.test.mjs does the rest against a mirror. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "engine/wan/ops.h"
#include "cli/model.h"
#include "cli/model_verify.h"
#include "cli_run.h"
#include "wan_folder.h"

#include "base/clock.h"
#include "base/json.h"
#include "config/config.h"

#define NO_ROOM "store.min_free_bytes=1099511627776"

static char place[48];
static struct cli_run run;

static int in_place(void **state)
{
    (void)state;
    (void)snprintf(place, sizeof(place), "/tmp/cli_model.XXXXXX");
    assert_non_null(mkdtemp(place));
    (void)snprintf(folder, sizeof(folder), "%s/big", place);
    assert_int_equal(mkdir(folder, 0700), 0);
    make_dir("diffusion_models");
    make_dir("text_encoders");
    make_dir("vae");
    return 0;
}

static int gone(void **state)
{
    (void)snprintf(folder, sizeof(folder), "%s", place);
    return teardown(state);
}

/* Runs `reeld model WORDS…` on the folder; returns new. */
static struct rl_json *model(int status, const char *word, const char *word2, const char *word3)
{
    char set[96];
    struct rl_json *root = NULL;
    struct rl_err err = {0};
    const char *words[9] = {"reeld", "model", word, "--json", "--set", set};
    size_t n = 6;

    (void)snprintf(set, sizeof(set), "model.dir=%s", place);
    if (word2)
        words[n++] = word2;
    if (word3)
        words[n++] = word3;
    cli_run(&run, NULL, words);
    if (run.status != status)
        fail_msg("%d: %s%s", run.status, run.out, run.err);
    if (*run.out)
        assert_int_equal(rl_json_parse(run.out, strlen(run.out), &root, &err), RL_OK);
    return root;
}

static const struct rl_json *entry(const struct rl_json *root, const char *name)
{
    const struct rl_json *item = rl_json_child(rl_json_get(root, "data"));

    while (item && strcmp(rl_json_text(rl_json_get(item, "name")), name) != 0)
        item = rl_json_next(item);
    if (!item)
        fail_msg("no %s", name);
    return item;
}

static const char *text_of(const struct rl_json *item, const char *name)
{
    const char *value = rl_json_text(rl_json_get(item, name));

    return value ? value : "";
}

/* 14.5 GB that take up the room of their headers: listed at once, with size and memory. */
static void test_model_list_full_size(void **state)
{
    (void)state;
    fill(&wan_1_3b, "BF16");
    write_comfy();
    int64_t started_ms = rl_mono_ms();
    AUTO_JSON struct rl_json *root = model(CLI_OK, "list", NULL, NULL);
    assert_true(rl_mono_ms() - started_ms < 5000); /* ms alone; this on a busy, watched machine */
    const struct rl_json *big = entry(root, "big");
    assert_string_equal(text_of(big, "state"), "ready");
    assert_string_equal(text_of(big, "source"), "put there by hand");
    double bytes = rl_json_number(rl_json_get(big, "bytes"));
    assert_true(bytes > 14.3e9 && bytes < 14.5e9); /* without the tokenizer and half the VAE */
    double memory = rl_json_number(rl_json_get(big, "memory_bytes"));
    const struct rl_json *known = entry(root, "wan2.1-t2v-1.3b");
    double told = rl_json_number(rl_json_get(known, "memory_bytes"));
    /* told for bf16; where this CPU does not multiply that, the matrices take four bytes */
    double wider = (double)ops_cpu()->act_bytes / 2;
    assert_true(memory / told > 0.95 * (wider > 1 ? 1.2 : 1) && memory / told < 1.05 * wider);
    assert_string_equal(text_of(known, "state"), "available");

    /* one file cut short: no model any more, and the list says why */
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/diffusion_models/dit.safetensors", folder);
    assert_int_equal(truncate(path, 1000000000), 0);
    AUTO_JSON struct rl_json *cut = model(CLI_OK, "list", NULL, NULL);
    assert_string_equal(text_of(entry(cut, "big"), "state"), "broken");
    assert_non_null(strstr(text_of(entry(cut, "big"), "problem"), "dit.safetensors"));
}

/* Holes are zeros, and no trained model is like that. */
static void test_model_verify_zeros(void **state)
{
    (void)state;
    fill(&wan_tiny, "BF16");
    write_comfy();
    AUTO_JSON struct rl_json *root = model(CLI_FAILED, "verify", "big", NULL);
    const struct rl_json *checks = rl_json_get(entry(root, "big"), "checks");
    int zeros = 0, unknown = 0, tokenizer = 0;
    for (const struct rl_json *c = rl_json_child(checks); c; c = rl_json_next(c)) {
        zeros += strstr(text_of(c, "text"), "are all zero") != NULL;
        unknown += strstr(text_of(c, "text"), "SHA-256 not known, computed: ") != NULL;
        tokenizer += strcmp(text_of(c, "name"), "tokenizer") == 0 &&
                     strcmp(text_of(c, "verdict"), "FAIL") == 0;
    }
    assert_int_equal(zeros, 3);
    assert_int_equal(unknown, 3);
    assert_int_equal(tokenizer, 1);
    AUTO_JSON struct rl_json *quick = model(CLI_FAILED, "verify", "big", "--quick");
    assert_null(strstr(run.out, "are all zero"));
    assert_non_null(quick);
}

/* The transformer by an index: what it names is counted before anything is copied. */
static void test_model_add_counts_shards(void **state)
{
    AUTO_BUF struct rl_buf b = {0};
    char path[128], dir[96];

    (void)state;
    fill(&wan_1_3b, "BF16");
    write_comfy();
    rl_buf_init(&b, 1 << 20);
    rl_buf_str(&b, "{\"weight_map\":{");
    for (size_t i = 0; i < dit.count; i++)
        rl_buf_fmt(&b, "%s\"%s\":\"dit.safetensors\"", i ? "," : "", dit.tensors[i].name);
    rl_buf_str(&b, "}}");
    (void)snprintf(path, sizeof(path), "%s/diffusion_models/dit.safetensors.index.json", folder);
    wan_file_raw(path, b.data, b.len, 0);
    (void)snprintf(dir, sizeof(dir), "model.dir=%s", place);
    const char *const words[] = {"reeld", "model", "add",   folder,  "--name", "copy",
                                 "--set", dir,     "--set", NO_ROOM, NULL};
    cli_run(&run, NULL, words);
    assert_int_equal(run.status, CLI_FAILED);
    if (!strstr(run.err, "14.3 GB are needed")) /* 2.8 of them are the transformer's */
        fail_msg("%s", run.err);
}

/* The disk fills up meanwhile: a copy ends early, a look at the same file does not mind. */
static void test_model_digest_room(void **state)
{
    char from[96], to[96], sha256[MODEL_SHA256];
    struct model_job job = {.dir = place, .json = true, .lock = -1};
    struct rl_err err = {0};
    struct stat st;
    int64_t bytes = 0, size = MODEL_ROOM_STEP + (8 << 20);

    (void)state;
    (void)snprintf(from, sizeof(from), "%s/from", place);
    (void)snprintf(to, sizeof(to), "%s/to", place);
    wan_file_raw(from, "", 0, (size_t)size);
    job.cfg = config_new();
    assert_non_null(job.cfg);
    assert_int_equal(config_set_pair(job.cfg, NO_ROOM, &err), RL_OK);
    assert_int_equal(model_digest(&job, from, "x", to, sha256, &bytes, &err), RL_DISK_FULL);
    assert_int_equal(stat(to, &st), 0);
    assert_int_equal(st.st_size, MODEL_ROOM_STEP);
    assert_int_equal(model_digest(&job, from, "x", NULL, sha256, &bytes, &err), RL_OK);
    assert_int_equal(bytes, size);
    config_free(job.cfg);
}

static void test_meter_rate(void **state)
{
    struct cli_meter m = {.json = false};

    (void)state;
    cli_meter_start(&m, "download", "x", 1000, 100000); /* 1000 were there: no merit of this run */
    int64_t now = m.old.ms;
    assert_int_equal(cli_meter_rate(&m, now), 0);
    cli_meter_move(&m, 5000);
    assert_int_equal(cli_meter_rate(&m, now + 2000), 2000);
    cli_meter_move(&m, 0); /* begun anew */
    assert_int_equal(cli_meter_rate(&m, m.old.ms + 1000), 0);
    cli_meter_move(&m, 300);
    assert_int_equal(cli_meter_rate(&m, m.old.ms + 1000), 300);
    m.old.ms -= 6000; /* an old mark is followed by a young one */
    m.young.ms -= 6000;
    cli_meter_move(&m, 900);
    assert_int_equal(m.young.done, 900);
    assert_int_equal(m.old.done, 0);
}

static void test_verify_scrub(void **state)
{
    AUTO_BUF struct rl_buf report = {0};

    (void)state;
    rl_buf_init(&report, 1000);
    verify_scrub(&report, "x", "y"); /* nothing yet */
    rl_buf_str(&report, "/home/me/models/a and /home/me/models/b");
    verify_scrub(&report, "/home/me/models", "<models>");
    verify_scrub(&report, "", "!");
    assert_string_equal(report.data, "<models>/a and <models>/b");
}

static void test_model_name_ok(void **state)
{
    char long_name[65];

    (void)state;
    memset(long_name, 'a', 64);
    long_name[64] = '\0';
    assert_true(model_name_ok("Wan2.1-T2V-1.3B") && model_name_ok("a") &&
                model_name_ok(long_name + 1));
    assert_false(model_name_ok("") || model_name_ok(".part") || model_name_ok("..") ||
                 model_name_ok("a/b") || model_name_ok("a b") || model_name_ok(long_name));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, in_place, gone)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_model_list_full_size),      TEST(test_model_verify_zeros),
        TEST(test_model_add_counts_shards),   TEST(test_model_digest_room),
        cmocka_unit_test(test_meter_rate),    cmocka_unit_test(test_verify_scrub),
        cmocka_unit_test(test_model_name_ok),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
