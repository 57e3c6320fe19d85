// link: -Wl,--wrap=malloc -Wl,--wrap=calloc -Wl,--wrap=strndup
/* The configuration table: defaults, setting and refusing, the file, and that what is printed
 * loads again. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/fs.h"
#include "config/config.h"

#include <string.h>
#include <unistd.h>

static int allocations_left = -1; /* before one fails; below 0: none fails */

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
char *__real_strndup(const char *text, size_t n);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
char *__wrap_strndup(const char *text, size_t n);

static bool may_allocate(void)
{
    if (allocations_left < 0)
        return true;
    return allocations_left-- > 0;
}

void *__wrap_malloc(size_t size)
{
    return may_allocate() ? __real_malloc(size) : NULL;
}

void *__wrap_calloc(size_t n, size_t size)
{
    return may_allocate() ? __real_calloc(n, size) : NULL;
}

char *__wrap_strndup(const char *text, size_t n)
{
    return may_allocate() ? __real_strndup(text, n) : NULL;
}

static const struct {
    const char *name;
    const char *initial;
} keys[] = {
#define NAME_AND_DEFAULT(id, name, type, initial, ...) {name, initial},
    CONFIG_KEYS(NAME_AND_DEFAULT)
#undef NAME_AND_DEFAULT
};

static int setup(void **state)
{
    *state = config_new();
    return *state ? 0 : -1;
}

static int teardown(void **state)
{
    config_free(*state);
    return 0;
}

/* Load a file of these bytes. */
static enum rl_rc load_bytes(struct config *cfg, const char *bytes, size_t len, struct rl_err *err)
{
    char path[] = "/tmp/reeld-config-XXXXXX";
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, len), (ssize_t)len);
    assert_int_equal(close(fd), 0);
    enum rl_rc rc = config_load(cfg, path, err);
    assert_int_equal(unlink(path), 0);
    return rc;
}

static enum rl_rc load(struct config *cfg, const char *text, struct rl_err *err)
{
    return load_bytes(cfg, text, strlen(text), err);
}

/* What config_print writes; returns new. */
static char *printed(const struct config *cfg)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    assert_non_null(out);
    config_print(cfg, out);
    assert_int_equal(fclose(out), 0);
    return text;
}

static void test_config_new_has_defaults(void **state)
{
    assert_int_equal(config_int(*state, CFG_HTTP_THREADS), 128);
    assert_int_equal(config_int(*state, CFG_STORE_MIN_FREE), 536870912);
    assert_false(config_on(*state, CFG_TESTPATTERN_FAULTS));
    assert_string_equal(config_text(*state, CFG_LISTEN), "127.0.0.1:8080");
    assert_string_equal(config_text(*state, CFG_HTTP_ALLOWED_HOSTS), "");
    assert_string_equal(config_text(*state, CFG_HTTP_THREADS), "");
    config_free(NULL);
}

static void test_config_new_every_default_is_in_range(void **state)
{
    for (size_t i = 0; i < RL_ARRAY_LEN(keys); i++)
        assert_int_equal(config_set(*state, keys[i].name, keys[i].initial, NULL), RL_OK);
}

static void test_config_set_types_and_ranges(void **state)
{
    static const struct {
        const char *name, *value;
    } refused[] = {
        {"http.threads", "11"},
        {"http.threads", "4097"},
        {"http.threads", ""},
        {"http.threads", "12x"},
        {"http.threads", "+12"},
        {"http.threads", "0x20"},
        {"http.threads", "1e2"},
        {"http.threads", "99999999999999999999"},
        {"http.threads", "-99999999999999999999"},
        {"node_id", "-1"},
        {"testpattern.faults", "yes"},
        {"testpattern.faults", "ON"},
        {"testpattern.faults", ""},
        {"log.level", "inf"},
        {"log.level", "info|warn"},
        {"log.level", ""},
        {"video.encoder", "libx265"},
        {"state_dir", ""},
        {"state_dir", "a\nb"},
        {"state_dir", "a\x7f"},
        {"state_dir", "\xff"},
        {"engine.default", "12345678901234567890123456789012345678901234567890123456789012345"},
    };

    for (size_t i = 0; i < RL_ARRAY_LEN(refused); i++) {
        struct rl_err err = {0};
        if (config_set(*state, refused[i].name, refused[i].value, &err) != RL_INVALID_FIELD)
            fail_msg("accepted %s=%s", refused[i].name, refused[i].value);
        assert_string_equal(err.field, refused[i].name);
        assert_true(strlen(err.reason) > 10);
    }
    assert_int_equal(config_int(*state, CFG_HTTP_THREADS), 128);
    assert_string_equal(config_text(*state, CFG_STATE_DIR), "/var/lib/reeld");

    assert_int_equal(config_set(*state, "http.threads", " 12 ", NULL), RL_OK);
    assert_int_equal(config_int(*state, CFG_HTTP_THREADS), 12);
    assert_int_equal(config_set(*state, "http.threads", "4096", NULL), RL_OK);
    assert_int_equal(config_int(*state, CFG_HTTP_THREADS), 4096);
    assert_int_equal(config_set(*state, "testpattern.faults", "on", NULL), RL_OK);
    assert_true(config_on(*state, CFG_TESTPATTERN_FAULTS));
    assert_int_equal(config_set(*state, "video.encoder", "libopenh264", NULL), RL_OK);
    assert_string_equal(config_text(*state, CFG_VIDEO_ENCODER), "libopenh264");
}

static void test_config_set_unknown_key_names_the_nearest(void **state)
{
    static const struct {
        const char *name, *nearest;
    } cases[] = {{"http.thread", "http.threads"},    {"htp.threads", "http.threads"},
                 {"HTTP.threads", "http.threads"},   {"queue.timeout", "queue.timeout_s"},
                 {"statedir", "state_dir"},          {"loglevel", "log.level"},
                 {"callback.trys", "callback.tries"}};

    for (size_t i = 0; i < RL_ARRAY_LEN(cases); i++) {
        char expected[100];
        struct rl_err err = {0};
        assert_int_equal(config_set(*state, cases[i].name, "1", &err), RL_INVALID_FIELD);
        assert_string_equal(err.field, cases[i].name);
        (void)snprintf(expected, sizeof(expected), "no such key; the nearest is %s",
                       cases[i].nearest);
        assert_string_equal(err.reason, expected);
    }

    char longest[500];
    memset(longest, 'x', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    assert_int_equal(config_set(*state, longest, "1", NULL), RL_INVALID_FIELD);
    assert_int_equal(config_set(*state, "", "1", NULL), RL_INVALID_FIELD);
}

static void test_config_set_pair_forms(void **state)
{
    struct rl_err err = {0};

    assert_int_equal(config_set_pair(*state, "node_id=7", &err), RL_OK);
    assert_int_equal(config_int(*state, CFG_NODE_ID), 7);
    assert_int_equal(config_set_pair(*state, " node_id = 8 ", &err), RL_OK);
    assert_int_equal(config_int(*state, CFG_NODE_ID), 8);
    assert_int_equal(config_set_pair(*state, "state_dir=/a=b#c", &err), RL_OK);
    assert_string_equal(config_text(*state, CFG_STATE_DIR), "/a=b#c");
    assert_int_equal(config_set_pair(*state, "http.allowed_hosts=", &err), RL_OK);
    assert_int_equal(config_set_pair(*state, "node_id", &err), RL_INVALID_FIELD);
    assert_int_equal(config_set_pair(*state, "", &err), RL_INVALID_FIELD);
    assert_int_equal(config_set_pair(*state, "=1", &err), RL_INVALID_FIELD);
}

static void test_config_load_lines(void **state)
{
    struct rl_err err = {0};

    assert_int_equal(load(*state,
                          "# a comment\n\n  \t\n"
                          "node_id = 5\r\n"
                          "\thttp.threads=64   \n"
                          "  # node_id = 6\n"
                          "http.allowed_hosts =\n"
                          "state_dir = /a b # c = d",
                          &err),
                     RL_OK);
    assert_int_equal(config_int(*state, CFG_NODE_ID), 5);
    assert_int_equal(config_int(*state, CFG_HTTP_THREADS), 64);
    assert_string_equal(config_text(*state, CFG_STATE_DIR), "/a b # c = d");
    assert_int_equal(load(*state, "", &err), RL_OK);
}

static void assert_load_fails(struct config *cfg, const char *text, const char *field,
                              const char *where)
{
    struct rl_err err = {0};

    assert_int_equal(load(cfg, text, &err), RL_INVALID_FIELD);
    assert_string_equal(err.field, field);
    if (!strstr(err.reason, where))
        fail_msg("'%s' lacks '%s'", err.reason, where);
}

static void test_config_load_names_the_line(void **state)
{
    struct rl_err err = {0};

    assert_load_fails(*state, "node_id = 1\nhttp.threads = 1\n", "http.threads", ":2: must be");
    assert_load_fails(*state, "\n\nnode_idd = 1", "node_idd",
                      ":3: no such key; the nearest is node_id");
    assert_load_fails(*state, "node_id = 1\n# x\nnode_id = 1\n", "node_id",
                      ":3: is set a second time");
    assert_load_fails(*state, "node_id 1\n", "", ":1: expected name=value");
    assert_int_equal(load_bytes(*state, "node_id = 1\0\n", 13, &err), RL_INVALID_FIELD);
    assert_int_equal(config_load(*state, "/absent/reeld.conf", &err), RL_NOT_FOUND);
}

static void test_config_print_loads_again(void **state)
{
    struct config *copy = config_new();

    assert_non_null(copy);
    assert_int_equal(config_set(*state, "node_id", "3", NULL), RL_OK);
    assert_int_equal(config_set(*state, "testpattern.faults", "on", NULL), RL_OK);
    assert_int_equal(config_set(*state, "log.level", "debug", NULL), RL_OK);
    assert_int_equal(config_set(*state, "state_dir", "  # odd = \xc3\xa9 \\n \" path ", NULL),
                     RL_OK);
    AUTO_FREE char *first = printed(*state);
    assert_int_equal(load(copy, first, NULL), RL_OK);
    AUTO_FREE char *second = printed(copy);
    assert_string_equal(first, second);
    assert_string_equal(config_text(copy, CFG_STATE_DIR), "# odd = \xc3\xa9 \\n \" path");
    config_free(copy);
}

static void test_config_print_describes_every_key(void **state)
{
    AUTO_FREE char *text = printed(*state);

    for (size_t i = 0; i < RL_ARRAY_LEN(keys); i++) {
        char wanted[200];
        (void)snprintf(wanted, sizeof(wanted), "; default: %s\n%s = %s\n",
                       *keys[i].initial ? keys[i].initial : "(empty)", keys[i].name,
                       keys[i].initial);
        if (!strstr(text, wanted))
            fail_msg("missing: %s", wanted);
    }
    assert_non_null(strstr(text, "# ordinary requests at once"));
    assert_non_null(strstr(text, "# 12 .. 4096 threads; default: 128\n"));
    assert_non_null(strstr(text, "# debug|info|warn|error; default: info\n"));
    assert_non_null(strstr(text, "# 1 .. 1024 bytes of text (path); default: /var/lib/reeld\n"));
}

static void test_config_print_markdown_rows(void **state)
{
    (void)state;
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    assert_non_null(out);
    config_print_markdown(out);
    assert_int_equal(fclose(out), 0);
    size_t rows = 0;
    for (const char *p = text; (p = strchr(p, '\n')); p++)
        rows++;
    assert_int_equal(rows, CFG_COUNT + 2);
    assert_non_null(strstr(text, "| `http.threads` | `128` | threads | 12 – 4096 | ordinary"));
    assert_non_null(
        strstr(text, "| `log.level` | `info` | debug\\|info\\|warn\\|error |  | least"));
    free(text);
}

static void test_config_out_of_memory(void **state)
{
    (void)state;
    int n = 0;
    struct config *cfg = NULL;

    for (; !cfg; n++) {
        allocations_left = n;
        cfg = config_new();
    }
    allocations_left = -1;
    assert_true(n > (int)CFG_COUNT);
    for (n = 0; n < 2; n++) {
        struct rl_err err = {0};
        allocations_left = n;
        assert_int_equal(config_set_pair(cfg, "engine.default=wan", &err), RL_NO_MEMORY);
        allocations_left = -1;
        assert_string_equal(config_text(cfg, CFG_ENGINE_DEFAULT), "");
    }
    config_free(cfg);
}

int main(void)
{
#define WITH_CONFIG(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        WITH_CONFIG(test_config_new_has_defaults),
        WITH_CONFIG(test_config_new_every_default_is_in_range),
        WITH_CONFIG(test_config_set_types_and_ranges),
        WITH_CONFIG(test_config_set_unknown_key_names_the_nearest),
        WITH_CONFIG(test_config_set_pair_forms),
        WITH_CONFIG(test_config_load_lines),
        WITH_CONFIG(test_config_load_names_the_line),
        WITH_CONFIG(test_config_print_loads_again),
        WITH_CONFIG(test_config_print_describes_every_key),
        WITH_CONFIG(test_config_print_markdown_rows),
        cmocka_unit_test(test_config_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
