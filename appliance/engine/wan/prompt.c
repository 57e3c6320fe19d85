/* The cleaning of prompts: what ftfy and html.unescape do to ordinary text before Wan's tokenizer
 * sees it. HTML entities (those of HTML 4), curly quotes, control characters, white space. Mended
 * encodings are left out. No state, any thread. Source: Wan 2.1, wan/modules/tokenizers.py; the
 * rules for numbers of the HTML standard, section 13.2.5.80. */
#include "engine/wan/tokenizer.h"

#include "base/utf8.h"

#include <string.h>

#define MAX_NAME 32 /* bytes of a name that is looked for */

struct entity {
    const char *name;
    uint16_t code;
};

/* By name, as strcmp has it. Those below U+0100 but for apos may stand without a semicolon. */
static const struct entity entities[] = {
    {"AElig", 0xc6},     {"AMP", 0x26},      {"Aacute", 0xc1},    {"Acirc", 0xc2},
    {"Agrave", 0xc0},    {"Alpha", 0x391},   {"Aring", 0xc5},     {"Atilde", 0xc3},
    {"Auml", 0xc4},      {"Beta", 0x392},    {"COPY", 0xa9},      {"Ccedil", 0xc7},
    {"Chi", 0x3a7},      {"Dagger", 0x2021}, {"Delta", 0x394},    {"ETH", 0xd0},
    {"Eacute", 0xc9},    {"Ecirc", 0xca},    {"Egrave", 0xc8},    {"Epsilon", 0x395},
    {"Eta", 0x397},      {"Euml", 0xcb},     {"GT", 0x3e},        {"Gamma", 0x393},
    {"Iacute", 0xcd},    {"Icirc", 0xce},    {"Igrave", 0xcc},    {"Iota", 0x399},
    {"Iuml", 0xcf},      {"Kappa", 0x39a},   {"LT", 0x3c},        {"Lambda", 0x39b},
    {"Mu", 0x39c},       {"Ntilde", 0xd1},   {"Nu", 0x39d},       {"OElig", 0x152},
    {"Oacute", 0xd3},    {"Ocirc", 0xd4},    {"Ograve", 0xd2},    {"Omega", 0x3a9},
    {"Omicron", 0x39f},  {"Oslash", 0xd8},   {"Otilde", 0xd5},    {"Ouml", 0xd6},
    {"Phi", 0x3a6},      {"Pi", 0x3a0},      {"Prime", 0x2033},   {"Psi", 0x3a8},
    {"QUOT", 0x22},      {"REG", 0xae},      {"Rho", 0x3a1},      {"Scaron", 0x160},
    {"Sigma", 0x3a3},    {"THORN", 0xde},    {"Tau", 0x3a4},      {"Theta", 0x398},
    {"Uacute", 0xda},    {"Ucirc", 0xdb},    {"Ugrave", 0xd9},    {"Upsilon", 0x3a5},
    {"Uuml", 0xdc},      {"Xi", 0x39e},      {"Yacute", 0xdd},    {"Yuml", 0x178},
    {"Zeta", 0x396},     {"aacute", 0xe1},   {"acirc", 0xe2},     {"acute", 0xb4},
    {"aelig", 0xe6},     {"agrave", 0xe0},   {"alefsym", 0x2135}, {"alpha", 0x3b1},
    {"amp", 0x26},       {"and", 0x2227},    {"ang", 0x2220},     {"apos", 0x27},
    {"aring", 0xe5},     {"asymp", 0x2248},  {"atilde", 0xe3},    {"auml", 0xe4},
    {"bdquo", 0x201e},   {"beta", 0x3b2},    {"brvbar", 0xa6},    {"bull", 0x2022},
    {"cap", 0x2229},     {"ccedil", 0xe7},   {"cedil", 0xb8},     {"cent", 0xa2},
    {"chi", 0x3c7},      {"circ", 0x2c6},    {"clubs", 0x2663},   {"cong", 0x2245},
    {"copy", 0xa9},      {"crarr", 0x21b5},  {"cup", 0x222a},     {"curren", 0xa4},
    {"dArr", 0x21d3},    {"dagger", 0x2020}, {"darr", 0x2193},    {"deg", 0xb0},
    {"delta", 0x3b4},    {"diams", 0x2666},  {"divide", 0xf7},    {"eacute", 0xe9},
    {"ecirc", 0xea},     {"egrave", 0xe8},   {"empty", 0x2205},   {"emsp", 0x2003},
    {"ensp", 0x2002},    {"epsilon", 0x3b5}, {"equiv", 0x2261},   {"eta", 0x3b7},
    {"eth", 0xf0},       {"euml", 0xeb},     {"euro", 0x20ac},    {"exist", 0x2203},
    {"fnof", 0x192},     {"forall", 0x2200}, {"frac12", 0xbd},    {"frac14", 0xbc},
    {"frac34", 0xbe},    {"frasl", 0x2044},  {"gamma", 0x3b3},    {"ge", 0x2265},
    {"gt", 0x3e},        {"hArr", 0x21d4},   {"harr", 0x2194},    {"hearts", 0x2665},
    {"hellip", 0x2026},  {"iacute", 0xed},   {"icirc", 0xee},     {"iexcl", 0xa1},
    {"igrave", 0xec},    {"image", 0x2111},  {"infin", 0x221e},   {"int", 0x222b},
    {"iota", 0x3b9},     {"iquest", 0xbf},   {"isin", 0x2208},    {"iuml", 0xef},
    {"kappa", 0x3ba},    {"lArr", 0x21d0},   {"lambda", 0x3bb},   {"lang", 0x27e8},
    {"laquo", 0xab},     {"larr", 0x2190},   {"lceil", 0x2308},   {"ldquo", 0x201c},
    {"le", 0x2264},      {"lfloor", 0x230a}, {"lowast", 0x2217},  {"loz", 0x25ca},
    {"lrm", 0x200e},     {"lsaquo", 0x2039}, {"lsquo", 0x2018},   {"lt", 0x3c},
    {"macr", 0xaf},      {"mdash", 0x2014},  {"micro", 0xb5},     {"middot", 0xb7},
    {"minus", 0x2212},   {"mu", 0x3bc},      {"nabla", 0x2207},   {"nbsp", 0xa0},
    {"ndash", 0x2013},   {"ne", 0x2260},     {"ni", 0x220b},      {"not", 0xac},
    {"notin", 0x2209},   {"nsub", 0x2284},   {"ntilde", 0xf1},    {"nu", 0x3bd},
    {"oacute", 0xf3},    {"ocirc", 0xf4},    {"oelig", 0x153},    {"ograve", 0xf2},
    {"oline", 0x203e},   {"omega", 0x3c9},   {"omicron", 0x3bf},  {"oplus", 0x2295},
    {"or", 0x2228},      {"ordf", 0xaa},     {"ordm", 0xba},      {"oslash", 0xf8},
    {"otilde", 0xf5},    {"otimes", 0x2297}, {"ouml", 0xf6},      {"para", 0xb6},
    {"part", 0x2202},    {"permil", 0x2030}, {"perp", 0x22a5},    {"phi", 0x3c6},
    {"pi", 0x3c0},       {"piv", 0x3d6},     {"plusmn", 0xb1},    {"pound", 0xa3},
    {"prime", 0x2032},   {"prod", 0x220f},   {"prop", 0x221d},    {"psi", 0x3c8},
    {"quot", 0x22},      {"rArr", 0x21d2},   {"radic", 0x221a},   {"rang", 0x27e9},
    {"raquo", 0xbb},     {"rarr", 0x2192},   {"rceil", 0x2309},   {"rdquo", 0x201d},
    {"real", 0x211c},    {"reg", 0xae},      {"rfloor", 0x230b},  {"rho", 0x3c1},
    {"rlm", 0x200f},     {"rsaquo", 0x203a}, {"rsquo", 0x2019},   {"sbquo", 0x201a},
    {"scaron", 0x161},   {"sdot", 0x22c5},   {"sect", 0xa7},      {"shy", 0xad},
    {"sigma", 0x3c3},    {"sigmaf", 0x3c2},  {"sim", 0x223c},     {"spades", 0x2660},
    {"sub", 0x2282},     {"sube", 0x2286},   {"sum", 0x2211},     {"sup", 0x2283},
    {"sup1", 0xb9},      {"sup2", 0xb2},     {"sup3", 0xb3},      {"supe", 0x2287},
    {"szlig", 0xdf},     {"tau", 0x3c4},     {"there4", 0x2234},  {"theta", 0x3b8},
    {"thetasym", 0x3d1}, {"thinsp", 0x2009}, {"thorn", 0xfe},     {"tilde", 0x2dc},
    {"times", 0xd7},     {"trade", 0x2122},  {"uArr", 0x21d1},    {"uacute", 0xfa},
    {"uarr", 0x2191},    {"ucirc", 0xfb},    {"ugrave", 0xf9},    {"uml", 0xa8},
    {"upsih", 0x3d2},    {"upsilon", 0x3c5}, {"uuml", 0xfc},      {"weierp", 0x2118},
    {"xi", 0x3be},       {"yacute", 0xfd},   {"yen", 0xa5},       {"yuml", 0xff},
    {"zeta", 0x3b6},     {"zwj", 0x200d},    {"zwnj", 0x200c}};

/* What 0x80 … 0x9f mean in numbers: the bytes of windows-1252. */
static const uint16_t windows_1252[32] = {
    0x20ac, 0x81,   0x201a, 0x192,  0x201e, 0x2026, 0x2020, 0x2021, 0x2c6,  0x2030, 0x160,
    0x2039, 0x152,  0x8d,   0x17d,  0x8f,   0x90,   0x2018, 0x2019, 0x201c, 0x201d, 0x2022,
    0x2013, 0x2014, 0x2dc,  0x2122, 0x161,  0x203a, 0x153,  0x9d,   0x17e,  0x178};

static size_t put_code(char *to, uint32_t c)
{
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;

    for (size_t i = n; i-- > 1; c >>= 6)
        to[i] = (char)(0x80 | (c & 0x3f));
    to[0] = (char)(n == 1 ? c : c | (0xf00 >> n & 0xff));
    return n;
}

/* ---- entities ---- */

/* The character that a number stands for; false: none at all. */
static bool number_code(uint32_t v, uint32_t *ret_code)
{
    if (v >= 0x80 && v <= 0x9f)
        v = windows_1252[v - 0x80];
    else if (v == 0 || v > 0x10ffff || (v >= 0xd800 && v <= 0xdfff))
        v = 0xfffd;
    else if ((v < 0x20 && v != '\t' && v != '\n' && v != '\f' && v != '\r') || v == 0x7f ||
             (v >= 0xfdd0 && v <= 0xfdef) || (v & 0xfffe) == 0xfffe)
        return false;
    *ret_code = v;
    return true;
}

/* &#…; at s: writes the character to `to`, at most as long, and its length to *ret_len. Returns how
 * much of s it is, 0 when it is none. */
static size_t number_entity(const char *s, char *to, size_t *ret_len)
{
    bool hex = s[2] == 'x' || s[2] == 'X';
    const char *p = s + (hex ? 3 : 2);
    const char *start = p;
    uint32_t v = 0;
    uint32_t code = 0;

    for (;; p++) {
        uint32_t digit = *p >= '0' && *p <= '9'          ? (uint32_t)(*p - '0')
                         : hex && *p >= 'a' && *p <= 'f' ? (uint32_t)(*p - 'a' + 10)
                         : hex && *p >= 'A' && *p <= 'F' ? (uint32_t)(*p - 'A' + 10)
                                                         : 16;
        if (digit == 16)
            break;
        if (v <= 0x10ffff) /* larger is too large already */
            v = v * (hex ? 16 : 10) + digit;
    }
    if (p == start)
        return 0;
    p += *p == ';';
    *ret_len = number_code(v, &code) ? put_code(to, code) : 0;
    return (size_t)(p - s);
}

/* Order of a name of n bytes and a terminated one. */
static int compare_name(const char *name, size_t n, const char *other)
{
    int order = strncmp(name, other, n);

    return order ? order : -(int)(unsigned char)other[n];
}

static const struct entity *find_entity(const char *name, size_t n)
{
    size_t lo = 0;
    size_t hi = RL_ARRAY_LEN(entities);

    while (lo < hi) {
        size_t middle = (lo + hi) / 2;
        int order = compare_name(name, n, entities[middle].name);
        if (order == 0)
            return &entities[middle];
        if (order > 0)
            lo = middle + 1;
        else
            hi = middle;
    }
    return NULL;
}

/* &name; at s, or the longest beginning of a name that may do without its semicolon. */
static size_t named_entity(const char *s, char *to, size_t *ret_len)
{
    const char *name = s + 1;
    size_t n = strcspn(name, "\t\n\f <&#;");
    const struct entity *e = NULL;

    if (n <= MAX_NAME && name[n] == ';')
        e = find_entity(name, n++);
    for (size_t k = n < MAX_NAME ? n : MAX_NAME; !e && k > 1; k--) {
        e = find_entity(name, k);
        if (e && (e->code > 0xff || e->code == '\''))
            e = NULL;
        n = k;
    }
    if (!e)
        return 0;
    *ret_len = put_code(to, e->code);
    return n + 1;
}

/* In place: no entity is shorter than its character. */
static void unescape(char *text)
{
    char *to = text;
    const char *s = text;

    while (*s) {
        char c[4];
        size_t len = 0;
        size_t used = 0;

        if (s[0] == '&')
            used = s[1] == '#' ? number_entity(s, c, &len) : named_entity(s, c, &len);
        if (used) {
            memcpy(to, c, len);
            to += len;
            s += used;
        } else {
            *to++ = *s++;
        }
    }
    *to = '\0';
}

/* ---- characters ---- */

/* White space, as \s has it. */
static bool is_space(uint32_t c)
{
    return c == ' ' || (c >= '\t' && c <= '\r' && c != '\v') || c == 0x85 || c == 0xa0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
           c == 0x202f || c == 0x205f || c == 0x3000;
}

/* Characters that show nothing and that ftfy takes out. */
static bool is_dropped(uint32_t c)
{
    return (c < 0x20 && !is_space(c)) || c == 0x7f || (c >= 0x206a && c <= 0x206f) || c == 0xfeff ||
           (c >= 0xfff9 && c <= 0xfffc);
}

/* The straight quote of a curly one, 0 of anything else. */
static char straight(uint32_t c)
{
    if (c == 0x2bc || (c >= 0x2018 && c <= 0x201b))
        return '\'';
    return c >= 0x201c && c <= 0x201f ? '"' : 0;
}

char *prompt_clean(const char *text)
{
    char *clean = rl_strdup(text);

    if (!clean)
        return NULL;
    unescape(clean);
    unescape(clean);

    char *to = clean;
    const char *s = clean;
    size_t left = strlen(clean);
    bool space = false; /* white space was read and not yet written */
    while (left) {
        uint32_t c = 0;
        size_t n = rl_utf8_decode(s, left, &c);

        if (!n) { /* the tokenizer knows what to do with it */
            n = 1;
            c = 0xfffd;
        }
        if (is_space(c)) {
            space = to > clean;
        } else if (!is_dropped(c)) {
            if (space)
                *to++ = ' ';
            space = false;
            if (straight(c)) {
                *to++ = straight(c);
            } else {
                memmove(to, s, n);
                to += n;
            }
        }
        s += n;
        left -= n;
    }
    *to = '\0';
    return clean;
}
