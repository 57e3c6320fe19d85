/* Ids against those of SentencePiece for thousands of texts in many scripts, and its normaliser
 * over the code points of Unicode (tokenizer/make.py made both); models that lie; truncation. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/wan/tokenizer.h"

#include "base/buf.h"
#include "base/fs.h"
#include "engine/wan/pieces.h"

#include <string.h>

#define ROOM (TOKENIZER_TEXT + 8)

static int32_t ids[ROOM];

struct file {
    char *bytes;
    size_t len;
};

static struct file read_file(const char *name)
{
    char path[512];
    struct file f = {0};
    struct rl_err err = {0};

    (void)snprintf(path, sizeof(path), "%s/%s", TOKENIZER_DATA, name);
    if (rl_fs_read(path, 1 << 24, &f.bytes, &f.len, &err) != RL_OK)
        fail_msg("%s", err.reason);
    return f;
}

static struct tokenizer *load(const char *name)
{
    struct file f = read_file(name);
    struct tokenizer *t = NULL;
    struct rl_err err = {0};

    if (tokenizer_new(f.bytes, f.len, &t, &err) != RL_OK)
        fail_msg("%s: %s", name, err.reason);
    free(f.bytes);
    return t;
}

static uint64_t fnv(const void *bytes, size_t len)
{
    const unsigned char *p = bytes;
    uint64_t h = 0xcbf29ce484222325;

    while (len--)
        h = (h ^ *p++) * 0x100000001b3;
    return h;
}

/* ---- the oracle ---- */

struct reader {
    const char *p, *end;
};

static uint32_t read_u32(struct reader *r)
{
    uint32_t v;

    assert_true(r->end - r->p >= 4);
    memcpy(&v, r->p, 4);
    r->p += 4;
    return v;
}

static void show(const char *text, size_t len, const uint16_t *wanted, size_t count, size_t found)
{
    print_error("text:");
    for (size_t i = 0; i < len && i < 200; i++)
        print_error(" %02x", (unsigned char)text[i]);
    print_error("\nwanted:");
    for (size_t i = 0; i < count; i++)
        print_error(" %d", wanted[i]);
    print_error("\nfound: ");
    for (size_t i = 0; i < found; i++)
        print_error(" %d", ids[i]);
    print_error("\n");
}

/* One model's answer in a record. */
static void check_ids(struct reader *r, const struct tokenizer *t, const char *text, size_t len,
                      int *wrong)
{
    uint16_t wanted[100];
    static uint16_t narrow[ROOM];
    uint32_t count = read_u32(r);
    uint64_t hash = 0;
    size_t size = count <= 100 ? 2 * (size_t)count : sizeof(hash);
    size_t found = 0;
    struct rl_err err = {0};

    assert_true((size_t)(r->end - r->p) >= size);
    memcpy(count <= 100 ? (void *)wanted : (void *)&hash, r->p, size);
    r->p += size;
    assert_int_equal(tokenizer_encode(t, text, len, ids, ROOM, &found, &err), RL_OK);
    assert_true(found >= 1 && ids[found - 1] == 1);
    found--;
    for (size_t i = 0; i < found; i++)
        narrow[i] = (uint16_t)ids[i];
    bool same = found == count &&
                (count <= 100 ? memcmp(narrow, wanted, size) == 0 : fnv(narrow, 2 * found) == hash);
    if (!same && (*wrong)++ < 5)
        show(text, len, wanted, count <= 100 ? count : 0, found < 100 ? found : 100);
}

static void test_tokenizer_encode_as_sentencepiece(void **state)
{
    struct tokenizer *plain = load("plain.model");
    struct tokenizer *bytes = load("bytes.model");
    struct file f = read_file("cases.bin");
    struct reader r = {f.bytes, f.bytes + f.len};
    int wrong[2] = {0, 0};
    int cases = 0;

    (void)state;
    for (; r.p < r.end; cases++) {
        uint32_t len = read_u32(&r);
        uint32_t times = read_u32(&r);
        AUTO_BUF struct rl_buf text = {0};

        assert_true((size_t)(r.end - r.p) >= len);
        rl_buf_init(&text, TOKENIZER_TEXT);
        for (uint32_t i = 0; i < times; i++)
            rl_buf_append(&text, r.p, len);
        assert_false(text.failed);
        r.p += len;
        check_ids(&r, plain, text.data ? text.data : "", text.len, &wrong[0]);
        check_ids(&r, bytes, text.data ? text.data : "", text.len, &wrong[1]);
    }
    print_message("%d texts, %d and %d wrong\n", cases, wrong[0], wrong[1]);
    assert_true(cases > 2000);
    assert_int_equal(wrong[0], 0);
    assert_int_equal(wrong[1], 0);
    tokenizer_free(plain);
    tokenizer_free(bytes);
    free(f.bytes);
}

static void put_utf8(struct rl_buf *b, uint32_t c)
{
    unsigned char s[4];
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;

    for (size_t i = n; i-- > 1; c >>= 6)
        s[i] = (unsigned char)(0x80 | (c & 0x3f));
    s[0] = (unsigned char)(n == 1 ? c : c | (0xf00 >> n & 0xff));
    rl_buf_append(b, s, n);
}

/* Every code point of the first four planes and the tags, between x and x. */
static void test_tokenizer_normalize_all_code_points(void **state)
{
    struct tokenizer *t = load("plain.model");
    struct file f = read_file("normal.bin");
    int wrong = 0;

    (void)state;
    for (size_t i = 0; i < f.len / 8; i++) {
        AUTO_BUF struct rl_buf text = {0};
        AUTO_BUF struct rl_buf out = {0};
        uint32_t first = (uint32_t)(i < 0x400 ? i : i - 0x400 + 0xe00) * 256;
        uint64_t hash;

        rl_buf_init(&text, 1 << 16);
        rl_buf_init(&out, 1 << 20);
        for (uint32_t c = first; c < first + 256; c++) {
            if (c >= 0xd800 && c < 0xe000)
                continue;
            rl_buf_append(&text, "x", 1);
            put_utf8(&text, c);
        }
        tokenizer_normalize(t, text.data ? text.data : "", text.len, &out);
        memcpy(&hash, f.bytes + 8 * i, 8);
        if (fnv(out.data, out.len) != hash && wrong++ < 5)
            print_error("block of U+%04X differs\n", first);
    }
    assert_int_equal(f.len / 8, 0x402);
    assert_int_equal(wrong, 0);
    tokenizer_free(t);
    free(f.bytes);
}

static void test_tokenizer_encode_truncates(void **state)
{
    struct tokenizer *t = load("plain.model");
    static const char text[] = "the red circle moving left and the blue square moving right";
    int32_t all[64];
    int32_t some[64];
    size_t n = 0;
    size_t m = 0;
    struct rl_err err = {0};

    (void)state;
    assert_int_equal(tokenizer_encode(t, text, sizeof(text) - 1, all, 64, &n, &err), RL_OK);
    assert_true(n > 10 && n < 64);
    for (size_t room = 1; room <= n; room++) {
        some[room] = -7;
        assert_int_equal(tokenizer_encode(t, text, sizeof(text) - 1, some, room, &m, &err), RL_OK);
        assert_int_equal(m, room);
        assert_int_equal(some[m - 1], 1);
        assert_memory_equal(some, all, (room - 1) * sizeof(*some));
        assert_int_equal(some[room], -7);
    }
    assert_int_equal(tokenizer_encode(t, "", 0, some, 64, &m, &err), RL_OK);
    assert_true(m == 1 && some[0] == 1);
    assert_int_equal(tokenizer_encode(t, "", 0, some, 0, &m, &err), RL_INVALID_FIELD);
    assert_int_equal(tokenizer_encode(t, text, TOKENIZER_TEXT + 1, some, 64, &m, &err),
                     RL_INVALID_FIELD);
    tokenizer_free(t);
    tokenizer_free(NULL);
}

/* ---- models by hand ---- */

static void put_bytes(struct rl_buf *b, int field, const void *bytes, size_t len)
{
    uint8_t head[] = {(uint8_t)(field << 3 | 2), (uint8_t)(len & 0x7f) | 0x80,
                      (uint8_t)(len >> 7 & 0x7f) | 0x80, (uint8_t)(len >> 14)};

    rl_buf_append(b, head, sizeof(head));
    rl_buf_append(b, bytes, len);
}

static void put_piece(struct rl_buf *b, const char *text, float score, int type)
{
    AUTO_BUF struct rl_buf piece = {0};
    uint8_t tail[7] = {2 << 3 | 5, 0, 0, 0, 0, 3 << 3, (uint8_t)type};

    rl_buf_init(&piece, 4096);
    memcpy(tail + 1, &score, 4);
    put_bytes(&piece, 1, text, strlen(text));
    rl_buf_append(&piece, tail, sizeof(tail));
    put_bytes(b, 1, piece.data, piece.len);
}

static void start_model(struct rl_buf *b)
{
    rl_buf_init(b, 1 << 20);
    put_piece(b, "<pad>", 0, 3);
    put_piece(b, "</s>", 0, 3);
    put_piece(b, "<unk>", 0, 2);
}

static void refused(struct rl_buf *b, const char *word)
{
    struct tokenizer *t = NULL;
    struct rl_err err = {0};

    if (tokenizer_new(b->data ? b->data : "", b->len, &t, &err) != RL_INVALID_FIELD ||
        !strstr(err.reason, word))
        fail_msg("gave %s, expected %s", err.reason, word);
    assert_null(t);
    rl_buf_free(b);
}

static void test_tokenizer_new_refuses(void **state)
{
    struct rl_buf b;
    char longest[600];

    (void)state;
    rl_buf_init(&b, 100);
    refused(&b, "empty model");
    rl_buf_init(&b, 100);
    rl_buf_str(&b, "hello, this is not a model");
    refused(&b, "tokenizer: ");
    rl_buf_init(&b, 1 << 20);
    put_piece(&b, "<pad>", 0, 3);
    put_piece(&b, "</s>", 0, 3);
    refused(&b, "no unknown piece");
    start_model(&b);
    put_piece(&b, "<unk2>", 0, 2);
    refused(&b, "two unknown");
    start_model(&b);
    put_piece(&b, "a", -1, 1);
    put_piece(&b, "a", -2, 4);
    refused(&b, "the same piece twice");
    start_model(&b);
    put_piece(&b, "", -1, 1);
    refused(&b, "empty");
    start_model(&b);
    memset(longest, 'a', sizeof(longest));
    longest[513] = '\0';
    put_piece(&b, longest, -1, 1);
    refused(&b, "too long");
    start_model(&b);
    put_piece(&b, "a", -1, 7);
    refused(&b, "unknown type");
    start_model(&b);
    put_piece(&b, "a", (float)-1e39, 1);
    refused(&b, "no number");
    start_model(&b);
    put_bytes(&b, 2, "\x18\x02", 2); /* model_type: BPE */
    refused(&b, "not a unigram");
    start_model(&b);
    put_bytes(&b, 3, "\x12\x05\x10\0\0\0\0", 7); /* a map of 16 bytes in one of 1 */
    refused(&b, "precompiled_charsmap");
    start_model(&b);
    put_bytes(&b, 3, "\x12\x05\0\0\0\0x", 7); /* texts that do not end */
    refused(&b, "precompiled_charsmap");
    start_model(&b);
    put_bytes(&b, 1,
              "\x0a\x7f"
              "a",
              3); /* a piece longer than its message */
    refused(&b, "broken piece");
    start_model(&b);
    rl_buf_append(&b, "\x0b", 1); /* a group */
    refused(&b, "cut off");
}

/* Cut anywhere, a model is refused or still whole; no byte beyond it is read. */
static void test_tokenizer_new_cut_anywhere(void **state)
{
    struct file f = read_file("bytes.model");

    (void)state;
    for (size_t len = 0; len < f.len; len += len < 600 ? 1 : 37) {
        struct tokenizer *t = NULL;
        struct rl_err err = {0};
        char *copy = malloc(len ? len : 1); /* for the sanitizer to see its end */

        assert_non_null(copy);
        memcpy(copy, f.bytes, len);
        if (tokenizer_new(copy, len, &t, &err) != RL_OK)
            assert_non_null(strstr(err.reason, "tokenizer: "));
        free(copy);
        tokenizer_free(t);
    }
    free(f.bytes);
}

static void check_text(const struct tokenizer *t, const char *text, const int32_t *wanted,
                       size_t count)
{
    struct rl_err err = {0};
    size_t n = 0;

    assert_int_equal(tokenizer_encode(t, text, strlen(text), ids, ROOM, &n, &err), RL_OK);
    if (n != count || memcmp(ids, wanted, count * sizeof(*wanted)) != 0) {
        for (size_t i = 0; i < n; i++)
            print_error(" %d", ids[i]);
        fail_msg(" for %s", text);
    }
}

#define CHECK_TEXT(t, text, ...)                                                                   \
    check_text(t, text, (int32_t[]){__VA_ARGS__}, sizeof((int32_t[]){__VA_ARGS__}) / 4)

/* Two ways of the same score: the one found first stays. Unused pieces are not used. An unknown
 * character costs ten more than the worst piece. The ids are SentencePiece's of this model. */
static void test_tokenizer_encode_scores(void **state)
{
    struct rl_buf b;
    struct tokenizer *t = NULL;
    struct rl_err err = {0};

    (void)state;
    start_model(&b);
    put_piece(&b, "a", -1, 1);            /* 3 */
    put_piece(&b, "aa", -2, 1);           /* 4: as two a */
    put_piece(&b, "b", -1, 5);            /* 5: unused */
    put_piece(&b, "bcd", -14, 1);         /* 6 */
    put_piece(&b, "\xe2\x96\x81", -1, 1); /* 7 */
    put_piece(&b, "hj", -14.5F, 1);       /* 8: the worst; an unknown character is -24.5 */
    put_piece(&b, "kl", -14.5F, 1);       /* 9 */
    put_piece(&b, "jkl", -4.6F, 1);       /* 10: behind an unknown h -29.1, the other way -29 */
    put_piece(&b, "mn", -14.5F, 1);       /* 11 */
    put_piece(&b, "op", -14.5F, 1);       /* 12 */
    put_piece(&b, "nop", -4.4F, 1);       /* 13: -28.9 */
    assert_int_equal(tokenizer_new(b.data, b.len, &t, &err), RL_OK);
    assert_int_equal(tokenizer_vocab(t), 14);
    CHECK_TEXT(t, "aa bcd b bc", 7, 4, 7, 6, 7, 2, 7, 2, 1);
    CHECK_TEXT(t, "hjkl", 7, 8, 9, 1);
    CHECK_TEXT(t, "mnop", 7, 2, 13, 1);
    tokenizer_free(t);
    rl_buf_free(&b);
}

/* User-defined pieces are not normalised, and nearly always win: 0.1 below zero. */
static void test_tokenizer_encode_user_defined(void **state)
{
    struct rl_buf b;
    struct tokenizer *t = NULL;
    struct rl_err err = {0};

    (void)state;
    start_model(&b);
    put_piece(&b, "ab", 0, 4);            /* 3: user-defined */
    put_piece(&b, "c", -1, 1);            /* 4 */
    put_piece(&b, "abc", -1.05F, 1);      /* 5: better than 3, 4 */
    put_piece(&b, "d", -1, 1);            /* 6 */
    put_piece(&b, "abd", -1.2F, 1);       /* 7: worse than 3, 6 */
    put_piece(&b, "c  d", 0, 4);          /* 8: its spaces are not made one */
    put_piece(&b, "\xe2\x96\x81", -2, 1); /* 9 */
    assert_int_equal(tokenizer_new(b.data, b.len, &t, &err), RL_OK);
    CHECK_TEXT(t, "abc", 9, 5, 1);
    CHECK_TEXT(t, "abd", 9, 3, 6, 1);
    CHECK_TEXT(t, "d  c", 9, 6, 9, 4, 1);
    CHECK_TEXT(t, "c  d", 9, 4, 9, 9, 6, 1);
    tokenizer_free(t);
    rl_buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokenizer_encode_as_sentencepiece),
        cmocka_unit_test(test_tokenizer_normalize_all_code_points),
        cmocka_unit_test(test_tokenizer_encode_truncates),
        cmocka_unit_test(test_tokenizer_new_refuses),
        cmocka_unit_test(test_tokenizer_new_cut_anywhere),
        cmocka_unit_test(test_tokenizer_encode_scores),
        cmocka_unit_test(test_tokenizer_encode_user_defined),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
