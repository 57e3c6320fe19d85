/* Which bytes of a file a request wants. CivetWeb's own range code answers wrong lengths and
 * ignores If-Range, so this module decides instead. Pure functions, any thread. Invariant: 0 <=
 * first <= last < size for a part. */
#include "http/range.h"

#include <string.h>
#include <strings.h>

#include "http/text.h"

/* Decimal digits into a number that stops growing at INT64_MAX; false when there is no digit. */
static bool parse_position(const char **p, int64_t *ret_value)
{
    int64_t value = 0;
    const char *start = *p;
    for (; **p >= '0' && **p <= '9'; (*p)++) {
        int digit = **p - '0';
        value = value > (INT64_MAX - digit) / 10 ? INT64_MAX : value * 10 + digit;
    }
    *ret_value = value;
    return *p > start;
}

enum range_kind range_parse(const char *header, int64_t size, int64_t *ret_first, int64_t *ret_last)
{
    if (!header || strncasecmp(header, "bytes=", 6) != 0 || strchr(header, ','))
        return RANGE_WHOLE;
    const char *p = header + 6;
    p += strspn(p, " \t");
    int64_t first = 0, last = 0;
    bool has_first = parse_position(&p, &first);
    if (*p++ != '-')
        return RANGE_WHOLE;
    bool has_last = parse_position(&p, &last);
    p += strspn(p, " \t");
    if (*p || (!has_first && !has_last))
        return RANGE_WHOLE;
    if (!has_first) { /* the last `last` bytes */
        if (last == 0 || size == 0)
            return RANGE_REFUSED;
        first = last >= size ? 0 : size - last;
        last = size - 1;
    } else {
        if (has_last && last < first)
            return RANGE_WHOLE;
        if (first >= size)
            return RANGE_REFUSED;
        if (!has_last || last >= size)
            last = size - 1;
    }
    *ret_first = first;
    *ret_last = last;
    return RANGE_PART;
}

/* If-Range holds when it names the very same representation: strong ETag, or the exact date. */
static bool if_range_holds(const char *value, const struct file_facts *file)
{
    if (!value)
        return true;
    if (*value == '"')
        return !strcmp(value, file->etag);
    int64_t date;
    return http_date_parse(value, &date) && date == file->modified_s;
}

enum file_answer file_decide(const struct conditions *conditions, const struct file_facts *file,
                             bool is_get, int64_t *ret_first, int64_t *ret_last)
{
    int64_t since;
    if (conditions->if_none_match) {
        if (etag_listed(conditions->if_none_match, file->etag))
            return FILE_NOT_MODIFIED;
    } else if (http_date_parse(conditions->if_modified_since, &since) &&
               file->modified_s <= since) {
        return FILE_NOT_MODIFIED;
    }
    if (!is_get || !if_range_holds(conditions->if_range, file))
        return FILE_WHOLE;
    switch (range_parse(conditions->range, file->size, ret_first, ret_last)) {
    case RANGE_PART:
        return FILE_PART;
    case RANGE_REFUSED:
        return FILE_REFUSED;
    case RANGE_WHOLE:
        break;
    }
    return FILE_WHOLE;
}
