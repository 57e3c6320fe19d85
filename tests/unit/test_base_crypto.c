/* Published vectors: SHA-256 (FIPS 180-4), BLAKE2b (RFC 7693), HMAC (RFC 4231), base64 (RFC 4648),
 * and the signature of Standard Webhooks as its reference libraries test it. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/crypto.h"
#include "base/fs.h"

#include <string.h>
#include <unistd.h>

static void assert_hex(const uint8_t *bytes, size_t len, const char *expected)
{
    char hex[2 * 64 + 1];

    assert_true(len <= 64);
    rl_hex(bytes, len, hex);
    assert_string_equal(hex, expected);
}

static void test_rl_sha256_vectors(void **state)
{
    (void)state;
    uint8_t out[RL_SHA256_BYTES];

    rl_sha256("abc", 3, out);
    assert_hex(out, sizeof(out),
               "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    rl_sha256("", 0, out);
    assert_hex(out, sizeof(out),
               "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

static void test_rl_sha256_in_pieces(void **state)
{
    (void)state;
    uint8_t out[RL_SHA256_BYTES];
    struct rl_sha256 *sum = rl_sha256_new();

    assert_non_null(sum);
    for (int round = 0; round < 2; round++) { /* the end is a beginning */
        rl_sha256_add(sum, "a", 1);
        rl_sha256_add(sum, "", 0);
        rl_sha256_add(sum, "bc", 2);
        rl_sha256_end(sum, out);
        assert_hex(out, sizeof(out),
                   "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
    rl_sha256_free(sum);
    rl_sha256_free(NULL);
}

static void test_rl_hash_is_blake2b_256(void **state)
{
    (void)state;
    uint8_t out[RL_HASH_BYTES];

    rl_hash("abc", 3, out);
    assert_hex(out, sizeof(out),
               "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319");
}

static void test_rl_hmac_sha256_rfc4231(void **state)
{
    (void)state;
    static const struct {
        uint8_t key_byte; /* repeated; 0: key_text */
        size_t key_len;
        const char *key_text;
        uint8_t data_byte; /* repeated 50 times; 0: data_text */
        const char *data_text;
        const char *mac;
    } cases[] = {
        {0x0b, 20, NULL, 0, "Hi There",
         "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"},
        {0, 4, "Jefe", 0, "what do ya want for nothing?",
         "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
        {0xaa, 20, NULL, 0xdd, NULL,
         "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"},
        {0xaa, 131, NULL, 0, "Test Using Larger Than Block-Size Key - Hash Key First",
         "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"},
        {0xaa, 131, NULL, 0,
         "This is a test using a larger than block-size key and a larger than block-size data. "
         "The key needs to be hashed before being used by the HMAC algorithm.",
         "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2"},
    };

    for (size_t i = 0; i < RL_ARRAY_LEN(cases); i++) {
        uint8_t key[131];
        uint8_t filled[50];
        uint8_t out[RL_SHA256_BYTES];

        memset(key, cases[i].key_byte, sizeof(key));
        if (cases[i].key_text)
            memcpy(key, cases[i].key_text, cases[i].key_len);
        memset(filled, cases[i].data_byte, sizeof(filled));
        const void *data = cases[i].data_text ? (const void *)cases[i].data_text : filled;
        size_t len = cases[i].data_text ? strlen(cases[i].data_text) : sizeof(filled);

        /* in three parts, one of them empty */
        const struct rl_bytes parts[] = {{data, 5}, {NULL, 0}, {(const char *)data + 5, len - 5}};
        rl_hmac_sha256(key, cases[i].key_len, parts, 3, out);
        assert_hex(out, sizeof(out), cases[i].mac);
    }
}

static void test_rl_hmac_sha256_standard_webhooks(void **state)
{
    (void)state;
    static const char message[] = "msg_p5jXN8AQM9LWM0D4loKWxJek.1614265330.{\"test\": 2432232314}";
    uint8_t key[64];
    uint8_t mac[RL_SHA256_BYTES];
    char signature[64];
    size_t key_len = 0;

    assert_true(
        rl_base64_decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", false, key, sizeof(key), &key_len));
    assert_int_equal(key_len, 24);
    rl_hmac_sha256(key, key_len, &(struct rl_bytes){message, strlen(message)}, 1, mac);
    rl_base64(mac, sizeof(mac), false, signature);
    assert_string_equal(signature, "g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
}

static void test_rl_base64_rfc4648(void **state)
{
    (void)state;
    static const struct {
        const char *plain, *coded, *url;
    } cases[] = {{"", "", ""},
                 {"f", "Zg==", "Zg"},
                 {"fo", "Zm8=", "Zm8"},
                 {"foo", "Zm9v", "Zm9v"},
                 {"foob", "Zm9vYg==", "Zm9vYg"},
                 {"fooba", "Zm9vYmE=", "Zm9vYmE"},
                 {"foobar", "Zm9vYmFy", "Zm9vYmFy"},
                 {"\xfb\xff\xbf", "+/+/", "-_-_"}};

    for (size_t i = 0; i < RL_ARRAY_LEN(cases); i++) {
        size_t len = strlen(cases[i].plain);
        const uint8_t *plain = (const uint8_t *)cases[i].plain;
        uint8_t back[8];
        size_t back_len = 99;
        char text[16];

        rl_base64(plain, len, false, text);
        assert_string_equal(text, cases[i].coded);
        assert_true(rl_base64_decode(text, false, back, sizeof(back), &back_len));
        assert_int_equal(back_len, len);
        assert_memory_equal(back, plain, len);
        rl_base64(plain, len, true, text);
        assert_string_equal(text, cases[i].url);
        assert_true(rl_base64_decode(text, true, back, sizeof(back), &back_len));
        assert_int_equal(back_len, len);
    }
}

static void test_rl_base64_decode_strict(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "Zg",   "Zg=",  "Zg===",    "Zh==",       "Z",    "Zm9v Yg==", "Zm9v\n",      "-_-_",
        "Zm9*", "=Zg=", "Zg==Zg==", "\xc3\xa9==", "Zm9=", "====",      "Zm9vYmFyZm9v"};
    static const char *const bad_url[] = {"Zg==", "+/+/", "Zh", "Z", "Zm9v "};
    uint8_t out[8];
    size_t len = 42;

    for (size_t i = 0; i < RL_ARRAY_LEN(bad); i++) {
        if (rl_base64_decode(bad[i], false, out, sizeof(out), &len))
            fail_msg("accepted %s", bad[i]);
    }
    for (size_t i = 0; i < RL_ARRAY_LEN(bad_url); i++) {
        if (rl_base64_decode(bad_url[i], true, out, sizeof(out), &len))
            fail_msg("accepted %s", bad_url[i]);
    }
    assert_int_equal(len, 42);
    assert_false(rl_base64_decode("Zm9v", false, out, 2, &len));
    assert_true(rl_base64_decode("Zm9v", false, out, 3, &len));
}

static void test_rl_sha256_file_matches_memory(void **state)
{
    (void)state;
    const size_t size = (1 << 20) + 1; /* one step and a byte */
    char path[] = "/tmp/reeld-crypto-XXXXXX";
    uint8_t of_file[RL_SHA256_BYTES];
    uint8_t of_memory[RL_SHA256_BYTES];
    int64_t bytes = 0;
    struct rl_err err = {0};

    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(close(fd), 0);
    AUTO_FREE char *data = malloc(size);
    assert_non_null(data);
    for (size_t i = 0; i < size; i++)
        data[i] = (char)(i * 31);
    assert_int_equal(rl_fs_write_durable(path, data, size, 0600, &err), RL_OK);
    assert_int_equal(rl_sha256_file(path, of_file, &bytes, &err), RL_OK);
    rl_sha256(data, size, of_memory);
    assert_true(bytes == (int64_t)size);
    assert_memory_equal(of_file, of_memory, sizeof(of_file));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rl_sha256_file(path, of_file, &bytes, &err), RL_NOT_FOUND);
    assert_int_equal(rl_sha256_file("/", of_file, &bytes, &err), RL_IO_ERROR);
}

static void test_rl_random_and_equal(void **state)
{
    (void)state;
    uint8_t a[32];
    uint8_t b[32];

    rl_random(a, sizeof(a));
    rl_random(b, sizeof(b));
    assert_false(rl_equal(a, b, sizeof(a)));
    memcpy(b, a, sizeof(b));
    assert_true(rl_equal(a, b, sizeof(a)));
    b[31] ^= 1;
    assert_false(rl_equal(a, b, sizeof(a)));
    assert_true(rl_equal(a, b, 31));
    assert_true(rl_equal(a, b, 0));
    rl_wipe(a, sizeof(a));
    assert_memory_equal(a, (const uint8_t[32]){0}, 32);
    assert_int_equal(rl_random_below(0), 0);
    assert_int_equal(rl_random_below(1), 0);
    unsigned seen = 0;
    for (int i = 0; i < 1000; i++) {
        uint32_t v = rl_random_below(3);
        assert_true(v < 3);
        seen |= 1U << v;
    }
    assert_int_equal(seen, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rl_sha256_vectors),
        cmocka_unit_test(test_rl_sha256_in_pieces),
        cmocka_unit_test(test_rl_hash_is_blake2b_256),
        cmocka_unit_test(test_rl_hmac_sha256_rfc4231),
        cmocka_unit_test(test_rl_hmac_sha256_standard_webhooks),
        cmocka_unit_test(test_rl_base64_rfc4648),
        cmocka_unit_test(test_rl_base64_decode_strict),
        cmocka_unit_test(test_rl_sha256_file_matches_memory),
        cmocka_unit_test(test_rl_random_and_equal),
    };
    if (rl_crypto_init(NULL) != RL_OK)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
