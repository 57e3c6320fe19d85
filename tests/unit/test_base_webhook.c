/* Signatures against the vector of the Standard Webhooks reference libraries and others made with
 * openssl; verifying: every part that can be changed, lists of signatures, the edges of the window.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/crypto.h"
#include "base/webhook.h"

#define ID        "msg_p5jXN8AQM9LWM0D4loKWxJek"
#define TIMESTAMP 1614265330
#define BODY      "{\"test\": 2432232314}"
#define SECRET    "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

static enum rl_rc sign(const char *secret, char *signature, struct rl_err *err)
{
    return rl_webhook_sign(secret, ID, TIMESTAMP, BODY, strlen(BODY), signature, err);
}

static void test_webhook_sign_reference_vector(void **state)
{
    char signature[64];
    struct rl_err err = {0};

    (void)state;
    assert_int_equal(sign("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", signature, &err), RL_OK);
    assert_string_equal(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
}

static void test_webhook_sign_every_part_counts(void **state)
{
    char a[64];
    char b[64];
    const char *secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    (void)state;
    assert_int_equal(sign(secret, a, NULL), RL_OK);
    assert_int_equal(rl_webhook_sign(secret, ID "x", TIMESTAMP, BODY, strlen(BODY), b, NULL),
                     RL_OK);
    assert_string_not_equal(a, b);
    assert_int_equal(rl_webhook_sign(secret, ID, TIMESTAMP + 1, BODY, strlen(BODY), b, NULL),
                     RL_OK);
    assert_string_not_equal(a, b);
    assert_int_equal(rl_webhook_sign(secret, ID, TIMESTAMP, BODY, strlen(BODY) - 1, b, NULL),
                     RL_OK);
    assert_string_not_equal(a, b);
    assert_int_equal(rl_webhook_sign("other", ID, TIMESTAMP, BODY, strlen(BODY), b, NULL), RL_OK);
    assert_string_not_equal(a, b);
}

/* A secret without the prefix is its own key: the same as its base64 behind whsec_. */
static void test_webhook_sign_plain_secret(void **state)
{
    const char *plain = "my plain secret, 24 byte";
    char encoded[64] = "whsec_";
    char a[64];
    char b[64];

    (void)state;
    rl_base64((const uint8_t *)plain, strlen(plain), false, encoded + strlen(encoded));
    assert_int_equal(sign(plain, a, NULL), RL_OK);
    assert_int_equal(sign(encoded, b, NULL), RL_OK);
    assert_string_equal(a, b);
    assert_memory_equal(a, "v1,", 3);
    assert_int_equal(strlen(a), 3 + 44);
}

static void test_webhook_sign_refuses_bad_secrets(void **state)
{
    static const char *const bad[] = {
        "",           "whsec_",     "whsec_!!!!", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS",
        "whsec_Mf Q", "whsec_Mf-_",
    };

    (void)state;
    for (size_t i = 0; i < RL_ARRAY_LEN(bad); i++) {
        char signature[64] = "untouched";
        struct rl_err err = {0};
        assert_int_equal(sign(bad[i], signature, &err), RL_INVALID_FIELD);
        assert_int_equal(err.code, RL_INVALID_FIELD);
        assert_string_equal(err.field, "callback_secret");
        assert_string_equal(signature, "untouched");
    }
}

/* By `printf '%s.%s.' ID TIME | cat - BODY | openssl dgst -sha256 -mac HMAC -macopt hexkey:KEY`. */
static void test_webhook_sign_openssl_vectors(void **state)
{
    static const char escaped[] =
        "{\"type\":\"task.succeeded\",\"task_id\":\"123\",\"text\":\"\\u00fc\"}";
    static const char counting[] = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    char kays[100], long_key[160] = "whsec_"; /* longer than a block of the hash */
    memset(kays, 'k', sizeof kays);
    rl_base64((const uint8_t *)kays, sizeof kays, false, long_key + strlen(long_key));
    const struct {
        const char *secret, *id;
        int64_t time;
        const char *body;
        size_t len;
        const char *signature;
    } vectors[] = {
        {counting, "evt_123_1", 1700000000, escaped, sizeof escaped - 1,
         "v1,X5ngWMlAQLlBM2WOfnKYa0O/2X+h6fv8t4trWVRxngM="},
        {counting, "evt_empty", 0, "", 0, "v1,S+qz4gTHNYl/HB3U5eN3e/ee7L7mrHeGILhhAhikVVM="},
        {counting, "a", 99999999999, "\0\377.1.x", 6,
         "v1,Aj9wOMy0H+G+qDj6Duubt0n1TQ3fNWkU7WpdU4fCH94="},
        {"plain text, not base64!", "evt_123_1", 1700000000, escaped, sizeof escaped - 1,
         "v1,cpphgQcU6iDeRO0j/gj8xOLNGGQJBg0iAoQYG/yJh+w="},
        {long_key, "evt_123_1", 1700000000, escaped, sizeof escaped - 1,
         "v1,bVoaxSo8dNwk1nqBB9ghgnY7xR/0D0s39PfdXLVYMEY="},
    };

    (void)state;
    for (size_t i = 0; i < RL_ARRAY_LEN(vectors); i++) {
        char signature[RL_WEBHOOK_SIGNATURE], time[24];
        struct rl_err err = {0};
        assert_int_equal(rl_webhook_sign(vectors[i].secret, vectors[i].id, vectors[i].time,
                                         vectors[i].body, vectors[i].len, signature, &err),
                         RL_OK);
        assert_string_equal(signature, vectors[i].signature);
        (void)snprintf(time, sizeof time, "%lld", (long long)vectors[i].time);
        const struct rl_webhook hook = {vectors[i].id, time, vectors[i].signature, vectors[i].body,
                                        vectors[i].len};
        assert_true(rl_webhook_signed_by(&hook, vectors[i].secret));
        assert_false(rl_webhook_signed_by(&hook, SECRET));
    }
}

static void test_webhook_secret_is_new_and_good(void **state)
{
    char a[RL_WEBHOOK_SECRET], b[RL_WEBHOOK_SECRET];

    (void)state;
    rl_webhook_secret(a);
    rl_webhook_secret(b);
    assert_string_not_equal(a, b);
    assert_int_equal(strlen(a), 6 + 44);
    assert_int_equal(rl_webhook_secret_check(a, "secret", NULL), RL_OK);
}

static void test_webhook_secret_check(void **state)
{
    char longest[RL_WEBHOOK_SECRET_BYTES + 2];
    static const char *const bad[] = {"",      "whsec_",   "whsec_!",   "with space",
                                      "tab\t", "\303\274", "whsec_AAA", "line\n"};

    (void)state;
    for (size_t i = 0; i < RL_ARRAY_LEN(bad); i++) {
        struct rl_err err = {0};
        assert_int_equal(rl_webhook_secret_check(bad[i], "secret", &err), RL_INVALID_FIELD);
        assert_string_equal(err.field, "secret");
    }
    memset(longest, 'x', sizeof longest);
    longest[RL_WEBHOOK_SECRET_BYTES] = '\0';
    assert_int_equal(rl_webhook_secret_check(longest, "secret", NULL), RL_OK);
    longest[RL_WEBHOOK_SECRET_BYTES] = 'x';
    longest[RL_WEBHOOK_SECRET_BYTES + 1] = '\0';
    assert_int_equal(rl_webhook_secret_check(longest, "secret", NULL), RL_INVALID_FIELD);
}

/* ---- verifying ---- */

#define GOOD "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="

static const struct rl_webhook good = {ID, "1614265330", GOOD, BODY, sizeof BODY - 1};

static void test_webhook_signed_by_tampering(void **state)
{
    char text[256];

    (void)state;
    assert_true(rl_webhook_signed_by(&good, SECRET));
    for (size_t i = 0; i < strlen(SECRET); i++) { /* each character of the secret */
        strcpy(text, SECRET);
        text[i] = text[i] == 'A' ? 'B' : 'A';
        assert_false(rl_webhook_signed_by(&good, text));
    }
    for (size_t i = 0; i < sizeof GOOD - 1; i++) { /* of the signature */
        struct rl_webhook hook = good;
        strcpy(text, GOOD);
        text[i] = text[i] == 'A' ? 'B' : 'A';
        hook.signature = text;
        assert_false(rl_webhook_signed_by(&hook, SECRET));
    }
    for (size_t i = 0; i < sizeof BODY - 1; i++) { /* of the body */
        struct rl_webhook hook = good;
        strcpy(text, BODY);
        text[i] ^= 1;
        hook.body = text;
        assert_false(rl_webhook_signed_by(&hook, SECRET));
    }
    for (size_t i = 0; i < sizeof ID - 1; i++) { /* of the id */
        struct rl_webhook hook = good;
        strcpy(text, ID);
        text[i] ^= 1;
        hook.id = text;
        assert_false(rl_webhook_signed_by(&hook, SECRET));
    }
    for (size_t i = 0; i < strlen(good.timestamp); i++) { /* of the time */
        struct rl_webhook hook = good;
        strcpy(text, good.timestamp);
        text[i] ^= 1;
        hook.timestamp = text;
        assert_false(rl_webhook_signed_by(&hook, SECRET));
    }
    struct rl_webhook shorter = good, empty = good;
    shorter.body_len--;
    empty.body_len = 0;
    assert_false(rl_webhook_signed_by(&shorter, SECRET));
    assert_false(rl_webhook_signed_by(&empty, SECRET));
    assert_false(rl_webhook_signed_by(&good, ""));
    assert_false(rl_webhook_signed_by(&good, "whsec_!"));
}

static void test_webhook_signed_by_looks_at_all_signatures(void **state)
{
    static const struct {
        const char *signature;
        bool good;
    } lists[] = {
        {GOOD, true},
        {"v1,AAAA " GOOD, true},
        {GOOD " v1,AAAA", true},
        {"v1a,c2lnbmVk v2,xxxx  " GOOD " ", true},
        {"v1,AAAA v1,BBBB", false},
        {"v1a,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", false}, /* of another scheme */
        {"g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", false},
        {"V1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", false},
        {"v1=g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", false},
        {"v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE", false}, /* cut */
        {GOOD "=", false},
        {GOOD "," GOOD, false}, /* not a list */
        {"v1,", false},
        {"", false},
        {" ", false},
    };

    (void)state;
    for (size_t i = 0; i < RL_ARRAY_LEN(lists); i++) {
        struct rl_webhook hook = good;
        hook.signature = lists[i].signature;
        if (rl_webhook_signed_by(&hook, SECRET) != lists[i].good)
            fail_msg("'%s'", lists[i].signature);
    }
}

static void test_webhook_head(void **state)
{
    static const struct {
        const char *id, *timestamp, *signature, *field, *reason;
    } bad[] = {
        {NULL, "1", GOOD, "webhook-id", "missing"},
        {"", "1", GOOD, "webhook-id", "characters"},
        {"a b", "1", GOOD, "webhook-id", "characters"},
        {"a\177", "1", GOOD, "webhook-id", "characters"},
        {"a.1", "1", GOOD, "webhook-id", "dot"},
        {"a", NULL, GOOD, "webhook-timestamp", "missing"},
        {"a", "", GOOD, "webhook-timestamp", "seconds"},
        {"a", "-1", GOOD, "webhook-timestamp", "seconds"},
        {"a", "+1", GOOD, "webhook-timestamp", "seconds"},
        {"a", "01", GOOD, "webhook-timestamp", "seconds"},
        {"a", "1.5", GOOD, "webhook-timestamp", "seconds"},
        {"a", "1 ", GOOD, "webhook-timestamp", "seconds"},
        {"a", "0x10", GOOD, "webhook-timestamp", "seconds"},
        {"a", "1614265330123", GOOD, "webhook-timestamp", "milliseconds"},
        {"a", "99999999999999999999", GOOD, "webhook-timestamp", "seconds"},
        {"a", "1", NULL, "webhook-signature", "missing"},
        {"a", "1", "", "webhook-signature", "no v1"},
        {"a", "1", "v1,", "webhook-signature", "no v1"},
        {"a", "1", "v1a,abc", "webhook-signature", "v1a"},
        {"a", "1", "sha256=abcdef", "webhook-signature", "no v1"},
    };
    int64_t seconds = 0;
    char id[RL_WEBHOOK_ID_BYTES + 2];
    struct rl_webhook hook = good;

    (void)state;
    assert_int_equal(rl_webhook_head(&good, &seconds, NULL), RL_OK);
    assert_int_equal(seconds, 1614265330);
    for (size_t i = 0; i < RL_ARRAY_LEN(bad); i++) {
        const struct rl_webhook one = {bad[i].id, bad[i].timestamp, bad[i].signature, "", 0};
        struct rl_err err = {0};
        assert_int_equal(rl_webhook_head(&one, &seconds, &err), RL_UNAUTHORIZED);
        assert_string_equal(err.field, bad[i].field);
        if (!strstr(err.reason, bad[i].reason))
            fail_msg("%zu: %s", i, err.reason);
    }
    assert_int_equal(seconds, 1614265330);
    memset(id, 'x', sizeof id);
    id[RL_WEBHOOK_ID_BYTES] = '\0';
    hook.id = id;
    assert_int_equal(rl_webhook_head(&hook, &seconds, NULL), RL_OK);
    id[RL_WEBHOOK_ID_BYTES] = 'x';
    id[RL_WEBHOOK_ID_BYTES + 1] = '\0';
    assert_int_equal(rl_webhook_head(&hook, &seconds, NULL), RL_UNAUTHORIZED);
}

/* Why ids hold no dot: the same signature would cover another id, time and body. */
static void test_webhook_head_one_meaning(void **state)
{
    char signature[RL_WEBHOOK_SIGNATURE];
    int64_t seconds;

    (void)state;
    assert_int_equal(rl_webhook_sign(SECRET, "a", 1, "2.{}", 4, signature, NULL), RL_OK);
    const struct rl_webhook twisted = {"a.1", "2", signature, "{}", 2};
    assert_true(rl_webhook_signed_by(&twisted, SECRET));
    assert_int_equal(rl_webhook_head(&twisted, &seconds, NULL), RL_UNAUTHORIZED);
}

static void test_webhook_in_time_edges(void **state)
{
    (void)state;
    assert_true(rl_webhook_in_time(1000, 1000, 0));
    assert_false(rl_webhook_in_time(1000, 1001, 0));
    assert_true(rl_webhook_in_time(1000, 1300, 300));
    assert_false(rl_webhook_in_time(1000, 1301, 300));
    assert_true(rl_webhook_in_time(1000, 700, 300));
    assert_false(rl_webhook_in_time(1000, 699, 300));
    assert_false(rl_webhook_in_time(99999999999, 0, 300));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_webhook_sign_reference_vector),
        cmocka_unit_test(test_webhook_sign_every_part_counts),
        cmocka_unit_test(test_webhook_sign_plain_secret),
        cmocka_unit_test(test_webhook_sign_refuses_bad_secrets),
        cmocka_unit_test(test_webhook_sign_openssl_vectors),
        cmocka_unit_test(test_webhook_secret_is_new_and_good),
        cmocka_unit_test(test_webhook_secret_check),
        cmocka_unit_test(test_webhook_signed_by_tampering),
        cmocka_unit_test(test_webhook_signed_by_looks_at_all_signatures),
        cmocka_unit_test(test_webhook_head),
        cmocka_unit_test(test_webhook_head_one_meaning),
        cmocka_unit_test(test_webhook_in_time_edges),
    };

    if (rl_crypto_init(NULL))
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
