/* Counts of values by size, as Prometheus wants to see them. Values are whole numbers of a small
 * unit (us, ms, pieces). Counting and reading from any threads at once. */
#ifndef RL_BASE_HISTOGRAM_H
#define RL_BASE_HISTOGRAM_H

#include "base/rl.h"

#include <stdatomic.h>

struct rl_buf;

#define RL_HISTOGRAM_MAX 16

/* Upper bounds of the buckets but the last, which is open: ascending; static. */
struct rl_bounds {
    int64_t upto[RL_HISTOGRAM_MAX];
    size_t count;
    int64_t unit; /* this many make one of what is shown: 1000000 for us shown as seconds */
};

struct rl_histogram {
    atomic_llong bucket[RL_HISTOGRAM_MAX + 1], sum; /* all 0 at the start */
};

/* Count one value; one below 0 counts as 0. */
void rl_histogram_add(struct rl_histogram *h, const struct rl_bounds *bounds, int64_t value);
/* Append its samples: name_bucket{labels,le="…"}, name_sum and name_count. labels: a="b",c="d",
 * escaped; "" = none. The buckets are cumulative and _count is the last of them, also while others
 * count. */
void rl_histogram_write(const struct rl_histogram *h, const struct rl_bounds *bounds,
                        const char *name, const char *labels, struct rl_buf *out);

#endif
