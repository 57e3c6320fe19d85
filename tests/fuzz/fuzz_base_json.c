/* Whatever the strict reader accepts must have canonical bytes that it accepts again and that are
 * their own canonical bytes; what the ASCII writer makes of its texts must read back as the same.
 */
#include "fuzz.h"

#include "base/buf.h"
#include "base/json.h"

/* Canonical bytes of the text; false when the reader refuses it. */
static bool canonical(const char *text, size_t len, struct rl_buf *out)
{
    AUTO_JSON struct rl_json *root = NULL;
    struct rl_err err = {0};

    enum rl_rc rc = rl_json_parse(text, len, &root, &err);
    require((rc == RL_OK) == (root != NULL));
    if (rc != RL_OK) {
        require(rc == RL_MALFORMED_JSON && strstr(err.reason, " at byte "));
        return false;
    }
    require(memchr(text, '\0', len) == NULL);
    rl_json_canonical(root, out);
    require(rl_buf_ok(out, NULL) == RL_OK);
    require(rl_utf8_valid(out->data, out->len));
    return true;
}

/* Valid JSON of arbitrary bytes, from which the same text comes back where it is UTF-8. */
static void check_writer(const char *text, size_t len)
{
    AUTO_BUF struct rl_buf out = {0};
    AUTO_JSON struct rl_json *root = NULL;
    struct rl_jw w;

    rl_buf_init(&out, 8 * len + 16);
    if (memchr(text, '\0', len))
        return;
    rl_jw_init(&w, &out, true);
    rl_jw_strn(&w, NULL, text, len);
    require(rl_buf_ok(&out, NULL) == RL_OK);
    for (size_t i = 0; i < out.len; i++)
        require((unsigned char)out.data[i] < 0x80);
    require(rl_json_parse(out.data, out.len, &root, NULL) == RL_OK);
    const char *back = rl_json_text(root);
    require(back != NULL);
    if (rl_utf8_valid(text, len))
        require(strlen(back) == len && memcmp(back, text, len) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO_BUF struct rl_buf first = {0};
    AUTO_BUF struct rl_buf second = {0};
    const char *text = (const char *)data;

    rl_buf_init(&first, 1 << 24);
    rl_buf_init(&second, 1 << 24);
    if (canonical(text, size, &first)) {
        require(canonical(first.data, first.len, &second));
        require(first.len == second.len && memcmp(first.data, second.data, first.len) == 0);
    }
    check_writer(text, size);
    return 0;
}
