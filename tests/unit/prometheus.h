/* A reader of Prometheus' text format 0.0.4 that takes nothing loose: HELP, TYPE, then the samples
 * of that family and of no other; counters end in _total; histograms are cumulative, end in +Inf
 * and add up; no series twice. Header-only; anything wrong fails the test. */
#ifndef TEST_PROMETHEUS_H
#define TEST_PROMETHEUS_H

#include "base/rl.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define PROM_SERIES   1024
#define PROM_FAMILIES 256
#define PROM_NAME     512

struct prom_series {
    char text[PROM_NAME]; /* name with labels, as written */
    double value;
};

struct prom {
    struct prom_series series[PROM_SERIES];
    size_t count;
    char families[PROM_FAMILIES][PROM_NAME];
    size_t family_count;

    char helped[PROM_NAME], type[16]; /* of the family under way */
    char labels[PROM_NAME];           /* of the histogram under way, without le */
    enum { PROM_NONE, PROM_BUCKET, PROM_INF, PROM_SUM } part;
    double le, total; /* of its newest bucket */
};

static inline size_t prom_name(const char *text)
{
    size_t len = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_:");
    return len > 0 && !(text[0] >= '0' && text[0] <= '9') ? len : 0;
}

static inline void prom_family_end(const struct prom *p, const char *line)
{
    if (p->part != PROM_NONE)
        fail_msg("the histogram before is not whole: %s", line);
}

static inline void prom_comment(struct prom *p, const char *line)
{
    char word[8], name[PROM_NAME], rest[16];
    if (sscanf(line, "# %7s %511s %15s", word, name, rest) != 3 || prom_name(name) != strlen(name))
        fail_msg("comment: %s", line);
    prom_family_end(p, line);
    if (strcmp(word, "HELP") == 0 && !*p->helped) {
        snprintf(p->helped, sizeof p->helped, "%s", name);
        return;
    }
    if (strcmp(word, "TYPE") != 0 || strcmp(p->helped, name) != 0)
        fail_msg("not a TYPE after its HELP: %s", line);
    p->helped[0] = '\0';
    if (strcmp(rest, "counter") != 0 && strcmp(rest, "gauge") != 0 &&
        strcmp(rest, "histogram") != 0)
        fail_msg("type: %s", line);
    size_t len = strlen(name);
    bool total = len > 6 && strcmp(name + len - 6, "_total") == 0;
    if (total != (strcmp(rest, "counter") == 0))
        fail_msg("counters and only they end in _total: %s", line);
    for (size_t i = 0; i < p->family_count; i++)
        if (strcmp(p->families[i], name) == 0)
            fail_msg("family twice: %s", line);
    assert_true(p->family_count < PROM_FAMILIES);
    snprintf(p->families[p->family_count++], PROM_NAME, "%s", name);
    snprintf(p->type, sizeof p->type, "%s", rest);
}

/* Reads {a="b",c="d"}; le goes to le[32], the rest to labels. Returns its length, 0 = wrong. */
static inline size_t prom_labels(const char *text, char *labels, size_t size, char *le)
{
    const char *p = text + 1;
    size_t used = 0;
    labels[0] = le[0] = '\0';
    for (;;) {
        const char *begin = p;
        size_t len = prom_name(p);
        if (!len || strncmp(p, "__", 2) == 0 || p[len] != '=' || p[len + 1] != '"')
            return 0;
        for (p += len + 2; *p && *p != '"'; p++)
            if (*p == '\\' && (*++p == '\0' || !strchr("\\\"n", *p)))
                return 0;
        if (*p++ != '"')
            return 0;
        char one[PROM_NAME];
        if (snprintf(one, sizeof one, "%.*s", (int)(p - begin), begin) >= (int)sizeof one)
            return 0;
        if (len == 2 && strncmp(begin, "le", 2) == 0)
            snprintf(le, 32, "%.*s", (int)(p - begin) - 5, begin + 4);
        else
            used += (size_t)snprintf(labels + used, size - used, "%s,", one);
        char again[PROM_NAME]; /* the same label name once more? */
        snprintf(again, sizeof again, ",%.*s=\"", (int)len, begin);
        if (strncmp(p, again, strlen(again)) == 0)
            return 0;
        if (*p == '}')
            return (size_t)(p + 1 - text);
        if (*p++ != ',')
            return 0;
    }
}

/* One sample of a histogram: le ascending, counts growing, +Inf, sum, count. */
static inline void prom_histogram(struct prom *p, const char *tail, const char *labels,
                                  const char *le, double value, const char *line)
{
    bool first = p->part == PROM_NONE;
    if (!first && strcmp(labels, p->labels) != 0)
        fail_msg("the histogram before is not whole: %s", line);
    if (strcmp(tail, "_bucket") == 0 && (first || p->part == PROM_BUCKET) && *le) {
        bool inf = strcmp(le, "+Inf") == 0;
        char *end;
        double bound = inf ? HUGE_VAL : strtod(le, &end);
        if (!inf && (*end || !isfinite(bound)))
            fail_msg("le: %s", line);
        if (!first && (bound <= p->le || value < p->total))
            fail_msg("not cumulative: %s", line);
        snprintf(p->labels, sizeof p->labels, "%s", labels);
        p->le = bound;
        p->total = value;
        p->part = inf ? PROM_INF : PROM_BUCKET;
    } else if (strcmp(tail, "_sum") == 0 && p->part == PROM_INF && !*le) {
        p->part = PROM_SUM;
    } else if (strcmp(tail, "_count") == 0 && p->part == PROM_SUM && !*le) {
        if (value < p->total || value > p->total)
            fail_msg("the count is not that of +Inf: %s", line);
        p->part = PROM_NONE;
    } else {
        fail_msg("out of place in a histogram: %s", line);
    }
}

static inline void prom_sample(struct prom *p, const char *line)
{
    char labels[PROM_NAME] = "", le[32] = "";
    size_t name = prom_name(line), len = name;
    if (name && line[name] == '{') {
        size_t n = prom_labels(line + name, labels, sizeof labels, le);
        len = n ? name + n : 0;
    }
    if (!len || len >= PROM_NAME || line[len] != ' ')
        fail_msg("sample: %s", line);
    char *end = NULL;
    const char *number = line + len + 1;
    double value = strtod(number, &end);
    if (strspn(number, "0123456789.e+-") != strlen(number) || end == number || *end)
        fail_msg("value: %s", line);
    if (*p->helped || p->family_count == 0)
        fail_msg("no TYPE before: %s", line);
    const char *family = p->families[p->family_count - 1];
    size_t base = strlen(family);
    if (name < base || strncmp(line, family, base) != 0)
        fail_msg("not of the family %s: %s", family, line);
    char tail[16];
    snprintf(tail, sizeof tail, "%.*s", (int)(name - base), line + base);
    if (strcmp(p->type, "histogram") == 0)
        prom_histogram(p, tail, labels, le, value, line);
    else if (*tail || *le)
        fail_msg("not of the family %s: %s", family, line);
    if (strcmp(p->type, "gauge") != 0 && value < 0)
        fail_msg("a count below 0: %s", line);
    assert_true(p->count < PROM_SERIES);
    struct prom_series *series = &p->series[p->count++];
    snprintf(series->text, sizeof series->text, "%.*s", (int)len, line);
    series->value = value;
    for (size_t i = 0; i + 1 < p->count; i++)
        if (strcmp(p->series[i].text, series->text) == 0)
            fail_msg("series twice: %s", line);
}

/* Returns new: free it. */
static inline struct prom *prom_read(const char *text)
{
    struct prom *p = calloc(1, sizeof *p);
    size_t len = strlen(text);
    assert_non_null(p);
    assert_true(len > 0 && text[len - 1] == '\n');
    for (const char *at = text; *at;) {
        char line[1024];
        size_t n = strcspn(at, "\n");
        assert_true(n > 0 && n < sizeof line);
        memcpy(line, at, n);
        line[n] = '\0';
        if (line[0] == '#')
            prom_comment(p, line);
        else
            prom_sample(p, line);
        at += n + 1;
    }
    prom_family_end(p, "the end");
    return p;
}

static inline double prom_value(const struct prom *p, const char *series)
{
    for (size_t i = 0; i < p->count; i++)
        if (strcmp(p->series[i].text, series) == 0)
            return p->series[i].value;
    fail_msg("no %s", series);
    return 0;
}

static inline bool prom_has(const struct prom *p, const char *series)
{
    for (size_t i = 0; i < p->count; i++)
        if (strcmp(p->series[i].text, series) == 0)
            return true;
    return false;
}

#endif
