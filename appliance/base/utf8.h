/* One UTF-8 character at a time (RFC 3629): the decoder under the JSON reader, the JSON writer
 * and the log. Stateless. */
#ifndef RL_BASE_UTF8_H
#define RL_BASE_UTF8_H

#include "base/rl.h"

/* Length in bytes of the character at s[0..len), its code point in *ret_code (NULL allowed); 0 for
 * overlong forms, surrogates, code points above U+10FFFF and cut or stray bytes. */
size_t rl_utf8_decode(const char *s, size_t len, uint32_t *ret_code);

#endif
