/* For clang's static analyzer only (packaging/check analyze includes it before every file): it
 * reads one file at a time and cannot know that rl_fail returns the code that it is given, and
 * rl_fail_errno never RL_OK, so it would follow paths on which a failure succeeds. */
#ifndef RL_ANALYSIS_ANALYZER_H
#define RL_ANALYSIS_ANALYZER_H

#include "base/fs.h"
#include "base/rl.h"

#define rl_fail(err, code, ...) ((void)rl_fail((err), (code), __VA_ARGS__), (code))
#define rl_fail_field(err, code, field, ...)                                                       \
    ((void)rl_fail_field((err), (code), (field), __VA_ARGS__), (code))
#define rl_fail_errno(...) ((void)rl_fail_errno(__VA_ARGS__), RL_IO_ERROR)

#endif
