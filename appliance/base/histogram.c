/* Histograms: one atomic per bucket, so that whoever counts never waits for whoever reads. Owns
 * nothing; any thread. Invariant: what is written adds up, because the totals are made from the
 * buckets as they were read. */
#include "base/histogram.h"

#include "base/buf.h"

void rl_histogram_add(struct rl_histogram *h, const struct rl_bounds *bounds, int64_t value)
{
    size_t b = 0;
    if (value < 0)
        value = 0;
    while (b < bounds->count && value > bounds->upto[b])
        b++;
    atomic_fetch_add(&h->bucket[b], 1);
    atomic_fetch_add(&h->sum, value);
}

void rl_histogram_write(const struct rl_histogram *h, const struct rl_bounds *bounds,
                        const char *name, const char *labels, struct rl_buf *out)
{
    const char *comma = *labels ? "," : "";
    long long total = 0;
    for (size_t b = 0; b <= bounds->count; b++) {
        total += atomic_load(&h->bucket[b]);
        rl_buf_fmt(out, "%s_bucket{%s%sle=\"", name, labels, comma);
        if (b < bounds->count)
            rl_buf_fmt(out, "%g\"} %lld\n", (double)bounds->upto[b] / (double)bounds->unit, total);
        else
            rl_buf_fmt(out, "+Inf\"} %lld\n", total);
    }
    const char *open = *labels ? "{" : "", *close = *labels ? "}" : "";
    rl_buf_fmt(out, "%s_sum%s%s%s %.*f\n", name, open, labels, close, bounds->unit > 1 ? 6 : 0,
               (double)atomic_load(&h->sum) / (double)bounds->unit);
    rl_buf_fmt(out, "%s_count%s%s%s %lld\n", name, open, labels, close, total);
}
