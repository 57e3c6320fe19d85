/* Byte ranges and conditional requests (RFC 9110, sections 13 and 14). Pure, no CivetWeb. */
#ifndef RL_HTTP_RANGE_H
#define RL_HTTP_RANGE_H

#include "base/rl.h"

enum range_kind {
    RANGE_WHOLE,  /* no range, one that is not understood, or several: answer 200 */
    RANGE_PART,   /* 206 with first..last */
    RANGE_REFUSED /* 416 */
};
/* header: the Range value or NULL; size: bytes of the file. first and last are set for RANGE_PART
 * only. */
enum range_kind range_parse(const char *header, int64_t size, int64_t *ret_first,
                            int64_t *ret_last);

/* What a client knows of the file already; each NULL when not sent. */
struct conditions {
    const char *if_none_match, *if_modified_since, *range, *if_range;
};
struct file_facts {
    const char *etag; /* quoted, strong */
    int64_t modified_s;
    int64_t size;
};
enum file_answer { FILE_WHOLE, FILE_PART, FILE_NOT_MODIFIED, FILE_REFUSED };
/* Evaluate in the order of RFC 9110 13.2.2. is_get: Range means nothing on HEAD. */
enum file_answer file_decide(const struct conditions *conditions, const struct file_facts *file,
                             bool is_get, int64_t *ret_first, int64_t *ret_last);

#endif
