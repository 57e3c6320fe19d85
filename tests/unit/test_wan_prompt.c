/* Prompts cleaned as html.unescape (twice) and ftfy clean them; every case agrees with Python's
 * html module where only entities are in it. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/wan/tokenizer.h"

#include <string.h>

struct sample {
    const char *text, *clean;
};

static void check(const struct sample *samples, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char *clean = prompt_clean(samples[i].text);

        assert_non_null(clean);
        if (strcmp(clean, samples[i].clean) != 0)
            fail_msg("%s\n  gave: %s, expected: %s", samples[i].text, clean, samples[i].clean);
        free(clean);
    }
}

static void test_prompt_clean_space(void **state)
{
    static const struct sample samples[] = {
        {"", ""},
        {" ", ""},
        {"\t\n ", ""},
        {"a", "a"},
        {"  a \t b\r\n\nc ", "a b c"},
        {"a\xc2\xa0"
         "b\xe3\x80\x80"
         "c\xe2\x80\xa8"
         "d\xe2\x80\x83",
         "a b c d"},
        {"a\xe2\x80\x8b"
         "b",
         "a\xe2\x80\x8b"
         "b"}, /* the normaliser's */
        {"a\x01\x1b"
         "b\x7f\xef\xbb\xbf",
         "ab"},
        {"a \x01 b", "a b"},
        {"\xff\xfe", "\xff\xfe"},
        {"\xe2\x80\x9cit\xe2\x80\x99s\xe2\x80\x9d", "\"it's\""},
        {"кот в дождь, 雨", "кот в дождь, 雨"},
    };

    (void)state;
    check(samples, RL_ARRAY_LEN(samples));
}

static void test_prompt_clean_entities(void **state)
{
    static const struct sample samples[] = {
        {"a &amp; b", "a & b"},
        {"&lt;&gt;&quot;&apos;", "<>\"'"},
        {"&amp;lt;", "<"}, /* twice */
        {"&amp;amp;lt;", "&lt;"},
        {"caf&eacute; &Eacute;", "caf\xc3\xa9 \xc3\x89"},
        {"&hearts;&alpha;&euro;", "\xe2\x99\xa5\xce\xb1\xe2\x82\xac"},
        {"a&nbsp;b", "a b"},
        {"&copy 2024", "\xc2\xa9 2024"},
        {"&copyright", "\xc2\xa9right"},
        {"&ampx", "&x"},
        {"&notit; &notin;", "\xc2\xacit; \xe2\x88\x89"},
        {"&alpha &alphabet;", "&alpha &alphabet;"},
        {"&apos &nosuch; & &; &a; &", "&apos &nosuch; & &; &a; &"},
        {"&AMP;&LT", "&<"},
        {"AT&T, R&D", "AT&T, R&D"},
        {"&#65;&#x42;&#X43;&#68", "ABCD"},
        {"&#128512;", "\xf0\x9f\x98\x80"},
        {"&#150;&#x80;", "\xe2\x80\x93\xe2\x82\xac"}, /* windows-1252 */
        {"a&#0;b", "a\xef\xbf\xbd"
                   "b"},
        {"a&#1;b", "ab"},
        {"&#xd800;", "\xef\xbf\xbd"},
        {"&#99999999999999999999;", "\xef\xbf\xbd"},
        {"&#xffff;&#xfdd0;x", "x"},
        {"a&#32;&#10;b", "a b"},
        {"&#; &#x; &#g; &#", "&#; &#x; &#g; &#"},
        {"&ldquo;x&rdquo;", "\"x\""},
    };

    (void)state;
    check(samples, RL_ARRAY_LEN(samples));
}

/* Long runs of what looks like entities, and no text grows. */
static void test_prompt_clean_long(void **state)
{
    static const char *const parts[] = {"&", "&a", "&#", "&#0", "&amp;", "&thetasym", " ", "\xc2"};
    static char text[65536];

    (void)state;
    for (size_t i = 0; i < RL_ARRAY_LEN(parts); i++) {
        size_t n = strlen(parts[i]);
        size_t len = 0;

        while (len + n < sizeof(text)) {
            memcpy(text + len, parts[i], n);
            len += n;
        }
        text[len] = '\0';
        char *clean = prompt_clean(text);
        assert_non_null(clean);
        assert_true(strlen(clean) <= len);
        free(clean);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prompt_clean_space),
        cmocka_unit_test(test_prompt_clean_entities),
        cmocka_unit_test(test_prompt_clean_long),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
