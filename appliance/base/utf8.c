/* UTF-8 decoding and validation after RFC 3629, section 4. Stateless, any thread. The bounds of
 * the second byte alone exclude overlong forms, surrogates and code points above U+10FFFF. */
#include "base/utf8.h"

#include "base/json.h"

size_t rl_utf8_decode(const char *s, size_t len, uint32_t *ret_code)
{
    if (len == 0)
        return 0;

    unsigned char c = (unsigned char)s[0];
    unsigned char low = 0x80;
    unsigned char high = 0xbf; /* bounds of the second byte */
    size_t n;
    uint32_t code;

    if (c < 0x80) {
        n = 1;
        code = c;
    } else if (c >= 0xc2 && c <= 0xdf) {
        n = 2;
        code = c & 0x1fU;
    } else if (c >= 0xe0 && c <= 0xef) {
        n = 3;
        code = c & 0x0fU;
        low = c == 0xe0 ? 0xa0 : low;
        high = c == 0xed ? 0x9f : high;
    } else if (c >= 0xf0 && c <= 0xf4) {
        n = 4;
        code = c & 0x07U;
        low = c == 0xf0 ? 0x90 : low;
        high = c == 0xf4 ? 0x8f : high;
    } else {
        return 0;
    }
    if (n > len)
        return 0;
    for (size_t i = 1; i < n; i++) {
        unsigned char next = (unsigned char)s[i];
        if (next < low || next > high)
            return 0;
        code = code << 6 | (next & 0x3fU);
        low = 0x80;
        high = 0xbf;
    }
    if (ret_code)
        *ret_code = code;
    return n;
}

bool rl_utf8_valid(const char *s, size_t len)
{
    for (size_t i = 0; i < len;) {
        size_t n = s[i] ? rl_utf8_decode(s + i, len - i, NULL) : 0;
        if (n == 0)
            return false;
        i += n;
    }
    return true;
}
