/* outbox_sign against the vector of the Standard Webhooks reference libraries, and bad secrets. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/crypto.h"
#include "outbox/outbox.h"

#define ID        "msg_p5jXN8AQM9LWM0D4loKWxJek"
#define TIMESTAMP 1614265330
#define BODY      "{\"test\": 2432232314}"

static enum rl_rc sign(const char *secret, char *signature, struct rl_err *err)
{
    return outbox_sign(secret, ID, TIMESTAMP, BODY, strlen(BODY), signature, err);
}

static void test_outbox_sign_reference_vector(void **state)
{
    char signature[64];
    struct rl_err err = {0};

    (void)state;
    assert_int_equal(sign("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", signature, &err), RL_OK);
    assert_string_equal(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
}

static void test_outbox_sign_every_part_counts(void **state)
{
    char a[64];
    char b[64];
    const char *secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    (void)state;
    assert_int_equal(sign(secret, a, NULL), RL_OK);
    assert_int_equal(outbox_sign(secret, ID "x", TIMESTAMP, BODY, strlen(BODY), b, NULL), RL_OK);
    assert_string_not_equal(a, b);
    assert_int_equal(outbox_sign(secret, ID, TIMESTAMP + 1, BODY, strlen(BODY), b, NULL), RL_OK);
    assert_string_not_equal(a, b);
    assert_int_equal(outbox_sign(secret, ID, TIMESTAMP, BODY, strlen(BODY) - 1, b, NULL), RL_OK);
    assert_string_not_equal(a, b);
    assert_int_equal(outbox_sign("other", ID, TIMESTAMP, BODY, strlen(BODY), b, NULL), RL_OK);
    assert_string_not_equal(a, b);
}

/* A secret without the prefix is its own key: the same as its base64 behind whsec_. */
static void test_outbox_sign_plain_secret(void **state)
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

static void test_outbox_sign_refuses_bad_secrets(void **state)
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_outbox_sign_reference_vector),
        cmocka_unit_test(test_outbox_sign_every_part_counts),
        cmocka_unit_test(test_outbox_sign_plain_secret),
        cmocka_unit_test(test_outbox_sign_refuses_bad_secrets),
    };

    if (rl_crypto_init(NULL))
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
