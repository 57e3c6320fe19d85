/* `reeld verify-webhook`: the verdict, its words and its exit status, for deliveries that were
 * saved in every way and damaged in every way that people damage them. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/crypto.h"
#include "base/fs.h"
#include "cli_run.h"
#include "cli/capture.h"
#include "cli/webhook.h"

#define SECRET "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
#define OTHER  "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
#define NOW    1700000000
/* as reeld writes it: no space, ASCII only */
#define BODY                                                                                       \
    "{\"type\":\"task.succeeded\",\"task_id\":\"42\",\"result_url\":\"http://h/v\",\"metadata\":"  \
    "{\"name\":\"\\u00fc \\ud83c\\udfac \\\"q\\\" a: b\"},\"error_code\":null}"

/* ---- the judge ---- */

static struct cli_verdict judge_by(const char *secret, const char *signed_by, const char *sent,
                                   const char *body, int64_t at)
{
    char signature[RL_WEBHOOK_SIGNATURE], *text = strdup(secret);
    struct cli_secrets secrets = {.text = {text}, .count = 1};
    struct cli_verdict verdict;
    assert_int_equal(
        rl_webhook_sign(signed_by, "evt_42_1", NOW, sent, strlen(sent), signature, NULL), RL_OK);
    const struct rl_webhook hook = {"evt_42_1", "1700000000", signature, body, strlen(body)};
    cli_webhook_judge(&hook, &secrets, at, 300, &verdict);
    free(text);
    return verdict;
}

static void test_judge_valid_and_window(void **state)
{
    static const struct {
        int64_t at;
        enum cli_verdict_kind kind;
        const char *reason;
    } cases[] = {
        {NOW, VERDICT_VALID, ""},
        {NOW + 300, VERDICT_VALID, ""},
        {NOW - 300, VERDICT_VALID, ""},
        {NOW + 301, VERDICT_OUT_OF_TIME, "301 s ago"},
        {NOW - 301, VERDICT_OUT_OF_TIME, "301 s in the future"},
    };
    (void)state;
    for (size_t i = 0; i < RL_ARRAY_LEN(cases); i++) {
        struct cli_verdict v = judge_by(SECRET, SECRET, BODY, BODY, cases[i].at);
        assert_int_equal(v.kind, cases[i].kind);
        assert_non_null(strstr(v.reason, cases[i].reason));
        assert_int_equal(v.timestamp_s, NOW);
    }
}

static void test_judge_says_what_was_changed(void **state)
{
    static const struct {
        const char *sent, *body, *reason;
    } cases[] = {
        {BODY, BODY "\n", "line end at its end"},
        {BODY, BODY "\r\n", "line end at its end"},
        {BODY "\n", BODY, "lacks the line end"},
        {"{\n}", "{\r\n}", "CRLF"},
        {BODY, "\357\273\277" BODY, "byte order mark"},
        /* JSON.stringify(JSON.parse(body)): the characters instead of their escapes */
        {BODY,
         "{\"type\":\"task.succeeded\",\"task_id\":\"42\",\"result_url\":\"http://h/v\","
         "\"metadata\":{\"name\":\"\303\274 \360\237\216\254 \\\"q\\\" a: "
         "b\"},\"error_code\":null}",
         "the body was re-serialised"},
        /* json.dumps(json.loads(body)): spaces */
        {BODY,
         "{\"type\": \"task.succeeded\", \"task_id\": \"42\", \"result_url\": \"http://h/v\", "
         "\"metadata\": {\"name\": \"\\u00fc \\ud83c\\udfac \\\"q\\\" a: b\"}, \"error_code\": "
         "null}",
         "the body was re-serialised"},
        /* json_encode with its escaped slashes, indented */
        {BODY,
         "{\n  \"type\": \"task.succeeded\",\n  \"task_id\": \"42\",\n  \"result_url\": "
         "\"http:\\/\\/h\\/v\",\n  \"metadata\": {\n    \"name\": \"\\u00fc \\ud83c\\udfac "
         "\\\"q\\\" a: b\"\n  },\n  \"error_code\": null\n}\n",
         "the body was re-serialised"},
        /* keys sorted: cannot be undone, but can be guessed */
        {BODY, "{\"error_code\": null, \"metadata\": {}}", "looks as if it was re-serialised"},
        {BODY, "{\"type\":\"task.failed\"}", "was changed"},
        {BODY, "", "was changed"},
    };
    (void)state;
    for (size_t i = 0; i < RL_ARRAY_LEN(cases); i++) {
        struct cli_verdict v = judge_by(SECRET, SECRET, cases[i].sent, cases[i].body, NOW);
        assert_int_equal(v.kind, VERDICT_FORGED);
        if (!strstr(v.reason, cases[i].reason))
            fail_msg("%zu: %s", i, v.reason);
    }
}

static void test_judge_says_what_is_wrong_with_the_secret(void **state)
{
    const char *decoded = &SECRET[strlen("whsec_")];
    (void)state;
    struct cli_verdict v = judge_by(decoded, SECRET, BODY, BODY, NOW);
    assert_int_equal(v.kind, VERDICT_FORGED);
    assert_non_null(strstr(v.reason, "prefix whsec_ is missing"));
    v = judge_by(SECRET, decoded, BODY, BODY, NOW); /* the bytes of the base64 as a key */
    assert_int_equal(v.kind, VERDICT_FORGED);
    assert_non_null(strstr(v.reason, "must be decoded"));
    char text[256] = "whsec_"; /* the whole text as a key */
    rl_base64((const uint8_t *)SECRET, strlen(SECRET), false, text + strlen(text));
    v = judge_by(SECRET, text, BODY, BODY, NOW);
    assert_non_null(strstr(v.reason, "must be decoded"));
    v = judge_by(OTHER, SECRET, BODY, BODY, NOW);
    assert_non_null(strstr(v.reason, "another secret"));
}

/* An old forgery is a forgery: a replay of a good one is the only thing outside the window. */
static void test_judge_signature_comes_first(void **state)
{
    (void)state;
    assert_int_equal(judge_by(OTHER, SECRET, BODY, BODY, NOW + 9999).kind, VERDICT_FORGED);
}

/* Broken texts must not be read past their end. */
static void test_judge_survives_any_body(void **state)
{
    static const char *const bodies[] = {
        "\"", "\"\\", "\303", "\"\360\237", "{\"a\":\"\\", "\r", "\377\377\377\377", "\357\273"};
    (void)state;
    for (size_t i = 0; i < RL_ARRAY_LEN(bodies); i++) {
        char *copy = strdup(bodies[i]); /* on the heap, for the sanitizer */
        assert_int_equal(judge_by(SECRET, SECRET, BODY, copy, NOW).kind, VERDICT_FORGED);
        free(copy);
    }
}

/* ---- captures ---- */

static enum rl_rc capture(const char *text, struct cli_capture *capture, struct rl_err *err)
{
    return cli_capture_request(capture, strdup(text), strlen(text), err);
}

static void test_capture_request_forms(void **state)
{
    static const char *const forms[] = {
        "POST /x HTTP/1.1\r\nHost: a:1\r\nWebhook-Id: i\r\nwebhook-timestamp:7\r\n"
        "WEBHOOK-SIGNATURE:  v1,s  \r\nContent-Length: 4\r\n\r\nbody",
        "POST http://h:1/x HTTP/1.1\nwebhook-id: i\nwebhook-timestamp: 7\nwebhook-signature: v1,s\n"
        "\nbody",
        "webhook-signature: v1,s\nwebhook-timestamp: 7\nwebhook-id: i\nContent-Length: "
        "4\n\nbody\n and what the editor added",
        "{\"webhook_id\":\"i\",\"webhook_timestamp\":\"7\",\"webhook_signature\":\"v1,s\","
        "\"verified\":null,\"body\":\"b\\u006fdy\"}\n",
    };
    (void)state;
    for (size_t i = 0; i < RL_ARRAY_LEN(forms); i++) {
        struct rl_err err;
        AUTO_CAPTURE struct cli_capture c = {0};
        assert_int_equal(capture(forms[i], &c, &err), RL_OK);
        assert_string_equal(c.hook.id, "i");
        assert_string_equal(c.hook.timestamp, "7");
        assert_string_equal(c.hook.signature, "v1,s");
        assert_int_equal(c.hook.body_len, 4);
        assert_memory_equal(c.hook.body, "body", 4);
    }
}

static void test_capture_request_refuses(void **state)
{
    static const struct {
        const char *text, *reason;
    } bad[] = {
        {"", "no empty line"},
        {"webhook-id: i", "no empty line"},
        {"webhook-id: i\r\n", "no empty line"},
        {"a: b\r\nwebhook-id: i\r\nwebhook-id: i\r\n\r\n", "twice"},
        {"Content-Length: 10\r\n\r\nshort", "5 bytes of the 10"},
        {"Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n", "chunked"},
        {"{\"type\":\"task.succeeded\",\"task_id\":\"1\"}", "no line of `reeld listen`"},
        {"{\"body\":", "no line of `reeld listen`"},
        {"{\"webhook_signature\":null,\"body\":null}", "not UTF-8"},
        {"{\"webhook_signature\":null,\"body\":\"\"}\n{}\n", "more than one line"},
    };
    (void)state;
    for (size_t i = 0; i < RL_ARRAY_LEN(bad); i++) {
        struct rl_err err;
        AUTO_CAPTURE struct cli_capture c = {0};
        assert_int_equal(capture(bad[i].text, &c, &err), RL_UNAUTHORIZED);
        if (!strstr(err.reason, bad[i].reason))
            fail_msg("%zu: %s", i, err.reason);
    }
}

/* ---- the command ---- */

static char dir[] = "/tmp/reeld-verify-XXXXXX";

static const char *put(const char *name, const char *text)
{
    static char path[4][128];
    static int n;
    char *at = path[n++ % 4];
    (void)snprintf(at, sizeof(path[0]), "%s/%s", dir, name);
    assert_int_equal(rl_fs_write_durable(at, text, strlen(text), 0600, NULL), RL_OK);
    return at;
}

/* A request of `age_s` ago, signed by SECRET. */
static const char *request(int64_t age_s)
{
    static char text[4096];
    char signature[RL_WEBHOOK_SIGNATURE];
    int64_t at = rl_wall_ms() / 1000 - age_s;
    assert_int_equal(rl_webhook_sign(SECRET, "evt_42_1", at, BODY, strlen(BODY), signature, NULL),
                     RL_OK);
    (void)snprintf(text, sizeof(text),
                   "POST / HTTP/1.1\r\nwebhook-id: evt_42_1\r\nwebhook-timestamp: %lld\r\n"
                   "webhook-signature: v1,AAAA %s\r\n\r\n%s",
                   (long long)at, signature, BODY);
    return text;
}

static void verify(int status, const char *said, const char *input, const char *const *more)
{
    static struct cli_run run;
    const char *words[24] = {"reeld", "verify-webhook"};
    size_t n = 2;
    for (; *more; more++)
        words[n++] = *more;
    cli_run(&run, input, words);
    if (run.status != status || !strstr(status == CLI_USAGE ? run.err : run.out, said))
        fail_msg("%d, wanted %d with %s: %s%s", run.status, status, said, run.out, run.err);
}
#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void test_verify_statuses(void **state)
{
    (void)state;
    verify(CLI_OK, "\"verdict\":\"valid\",\"reason\":null,\"webhook_id\":\"evt_42_1\"", request(1),
           WORDS("-", "--secret", SECRET));
    verify(CLI_OK, "\"valid\"", request(1), WORDS("-", "-s", OTHER, "--secret", SECRET));
    verify(CLI_OK, "\"valid\"", NULL,
           WORDS(put("request", request(9)), "--secret-file", put("secret", SECRET "\n")));
    verify(CLI_FORGED, "\"bad_signature\"", request(1), WORDS("-", "--secret", OTHER));
    verify(CLI_OUT_OF_TIME, "\"outside_window\"", request(400), WORDS("-", "--secret", SECRET));
    verify(CLI_OK, "\"valid\"", request(400), WORDS("-", "--secret", SECRET, "--tolerance", "500"));
    verify(CLI_OUT_OF_TIME, "ago", request(1),
           WORDS("-", "--secret", SECRET, "--at", "2100-01-01T00:00:00Z"));
    verify(CLI_OUT_OF_TIME, "future", request(1), WORDS("-", "--secret", SECRET, "--at", "1"));
    verify(CLI_MALFORMED, "\"malformed\"", "nothing", WORDS("-", "--secret", SECRET));
    verify(CLI_MALFORMED, "webhook-id: the header is missing", "a: b\r\n\r\n{}",
           WORDS("-", "--secret", SECRET));
    verify(CLI_MALFORMED, "no v1 signature",
           "webhook-id: a\nwebhook-timestamp: 1\nwebhook-signature: sha256=00\n\n{}",
           WORDS("-", "--secret", SECRET));
    verify(CLI_MALFORMED, "milliseconds", request(1),
           WORDS("-", "--secret", SECRET, "--timestamp", "1700000000000"));
}

static void test_verify_parts_and_state_dir(void **state)
{
    char signature[RL_WEBHOOK_SIGNATURE], head[512];
    (void)state;
    assert_int_equal(rl_webhook_sign(SECRET, "a", NOW, BODY, strlen(BODY), signature, NULL), RL_OK);
    const char *body = put("body", BODY);
    verify(CLI_OK, "\"valid\"", NULL,
           WORDS("--body", body, "--id", "a", "--timestamp", "1700000000", "--signature", signature,
                 "--at", "1700000000", "--secret", SECRET));
    (void)snprintf(head, sizeof(head),
                   "webhook-id: a\nwebhook-timestamp: 1700000000\nwebhook-signature: %s\n",
                   signature);
    const char *headers = put("headers", head);
    (void)put("callback.secret", SECRET "\n");
    verify(CLI_OK, "\"valid\"", BODY,
           WORDS("--headers", headers, "--body", "-", "--at", "1700000000", "--state-dir", dir));
    verify(
        CLI_FORGED, "was changed", BODY, /* an option goes before the header that was read */
        WORDS("--headers", headers, "--body", "-", "--id", "b", "--at", "1700000000", "-d", dir));
}

static void test_verify_usage(void **state)
{
    (void)state;
    verify(CLI_USAGE, "name the file", NULL, WORDS("--secret", SECRET));
    verify(CLI_USAGE, "choose one", NULL, WORDS("-", "--body", "x", "--secret", SECRET));
    verify(CLI_USAGE, "cannot be opened", NULL, WORDS("/nowhere/at/all", "--secret", SECRET));
    verify(CLI_USAGE, "--body FILE is missing", NULL,
           WORDS("--headers", put("headers", "a: b\n"), "--secret", SECRET));
    verify(CLI_USAGE, "standard input cannot be both", NULL,
           WORDS("--headers", "-", "--body", "-", "--secret", SECRET));
    verify(CLI_USAGE, "standard base64", request(1), WORDS("-", "--secret", "whsec_!"));
    verify(CLI_USAGE, "cannot be read", request(1), WORDS("-", "--secret-file", "/nowhere"));
    verify(CLI_USAGE, "cannot be read", request(1), WORDS("-", "--state-dir", "/nowhere"));
    verify(CLI_USAGE, "RFC 3339", request(1), WORDS("-", "--secret", SECRET, "--at", "noon"));
    verify(CLI_USAGE, "at most 4", request(1),
           WORDS("-", "-s", "a", "-s", "b", "-s", "c", "-s", "d", "-s", "e"));
}

static int setup(void **state)
{
    (void)state;
    (void)unsetenv("REELD_STATE_DIR");
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    char cmd[64];
    (void)snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
    return system(cmd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_judge_valid_and_window),
        cmocka_unit_test(test_judge_says_what_was_changed),
        cmocka_unit_test(test_judge_says_what_is_wrong_with_the_secret),
        cmocka_unit_test(test_judge_signature_comes_first),
        cmocka_unit_test(test_judge_survives_any_body),
        cmocka_unit_test(test_capture_request_forms),
        cmocka_unit_test(test_capture_request_refuses),
        cmocka_unit_test(test_verify_statuses),
        cmocka_unit_test(test_verify_parts_and_state_dir),
        cmocka_unit_test(test_verify_usage),
    };
    if (rl_crypto_init(NULL))
        return 1;
    return cmocka_run_group_tests(tests, setup, teardown);
}
