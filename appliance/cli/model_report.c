/* What `reeld model verify` finds in the tensors, and what its report says of the machine. One
 * thread; no state. */
#include "cli/client.h"
#include "cli/model_verify.h"
#include "cli/term.h"
#include "config/config.h"
#include "engine/engine.h"
#include "net/net.h"

#include <stdarg.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <unistd.h>

#define REPORT_LINES 400 /* of first-block statistics */

static const char *const part_words[WAN_PARTS] = {"transformer", "text encoder", "VAE"};

/* ---- numbers ---- */

struct scan_state {
    struct verify *v;
    int64_t read;
    size_t tensors, zero, bad; /* bad: with a NaN or an infinity */
    size_t lines;
    char example[120]; /* the first bad one, else the first of zeros */
};

static bool in_first_block(const char *name)
{
    return strstr(name, "blocks.0.") || strstr(name, "block.0.") ||
           strncmp(name, "decoder.conv1.", 14) == 0 || strncmp(name, "conv2.", 6) == 0 ||
           strncmp(name, "decoder.middle.0.", 17) == 0 ||
           strncmp(name, "patch_embedding.", 16) == 0;
}

/* To the report alone: what our own reading of the same file can be compared with. */
static void put_statistics(struct scan_state *s, const struct inspected *f)
{
    struct rl_buf *to = &s->v->report;

    if (s->lines == REPORT_LINES)
        return;
    s->lines++;
    rl_buf_fmt(to, "     %s %s [", f->tensor->name, f->tensor->dtype);
    for (int i = 0; i < f->tensor->ndim; i++)
        rl_buf_fmt(to, "%s%lld", i ? ", " : "", (long long)f->tensor->dims[i]);
    rl_buf_fmt(to, "] min %.6g max %.6g mean %.6g rms %.6g\n", f->min, f->max, f->mean, f->rms);
}

static bool on_tensor(void *user, const struct inspected *f)
{
    struct scan_state *s = user;
    bool bad = f->nans || f->infinities, zero = f->count > 1 && f->zeros == f->count;

    s->tensors++;
    if ((bad && !s->bad) || (zero && !s->bad && !s->zero))
        (void)snprintf(s->example, sizeof(s->example), "%.100s", f->tensor->name); /* fits */
    s->bad += bad;
    s->zero += zero;
    if (in_first_block(f->tensor->name))
        put_statistics(s, f);
    return true;
}

static bool on_read(void *user, size_t bytes)
{
    struct scan_state *s = user;

    s->read += (int64_t)bytes;
    cli_meter_move(&s->v->job->meter, s->read);
    return !model_job_stopped(s->v->job);
}

/* "BF16 x 825 (2.8 GB), F32 x 3 (…)" */
static int64_t dtypes_text(const struct wan_model *model, enum wan_part part, char *text,
                           size_t size)
{
    static const char *const dtypes[] = {"F32", "F16", "BF16", "F8_E4M3", "F64", "F8_E5M2", "U8"};
    struct rl_buf b;
    int64_t all = 0;

    rl_buf_init(&b, size - 1);
    for (size_t i = 0; i < RL_ARRAY_LEN(dtypes); i++) {
        char bytes_text[32];
        int64_t bytes = 0;
        size_t n = wan_model_dtype(model, part, dtypes[i], &bytes);
        if (!n)
            continue;
        cli_size_text(bytes, bytes_text);
        rl_buf_fmt(&b, "%s%s x %zu (%s)", b.len ? ", " : "", dtypes[i], n, bytes_text);
        all += bytes;
    }
    (void)rl_copy_str(text, size, b.len ? b.data : "none"); /* the limit says it fits */
    rl_buf_free(&b);
    return all;
}

enum rl_rc verify_numbers(struct verify *v, const struct wan_model *model, struct rl_err *err)
{
    enum rl_rc rc = RL_OK;

    for (int i = 0; i < WAN_PARTS && !rc; i++) {
        enum wan_part part = (enum wan_part)i;
        struct scan_state s = {.v = v};
        const struct inspector inspector = {.user = &s, .each = on_tensor, .read = on_read};
        char dtypes[300];
        int64_t bytes = dtypes_text(model, part, dtypes, sizeof(dtypes));
        cli_meter_start(&v->job->meter, "check", part_words[i], 0, bytes);
        rc = wan_model_inspect(model, part, &inspector, err);
        if (rc)
            return rc;
        if (s.bad)
            verify_say(v, VERIFY_FAIL, part_words[i],
                       "%zu of %zu tensors have numbers that are none (NaN, infinity), first %s",
                       s.bad, s.tensors, s.example);
        else if (s.zero)
            verify_say(v, VERIFY_WARN, part_words[i],
                       "%zu of %zu tensors are all zero, first %s: no trained model is like that",
                       s.zero, s.tensors, s.example);
        else
            verify_say(v, VERIFY_OK, part_words[i], "all numbers of %zu tensors are finite; %s",
                       s.tensors, dtypes);
    }
    return rc;
}

/* ---- the machine ---- */

/* The first "model name : …" of /proc/cpuinfo. */
static void cpu_line(struct rl_buf *to)
{
    char line[512];
    AUTO_FCLOSE FILE *f = fopen("/proc/cpuinfo", "re");

    while (f && fgets(line, sizeof(line), f)) {
        const char *colon = strchr(line, ':');
        if (colon && strncmp(line, "model name", 10) == 0) {
            rl_buf_fmt(to, "cpu:%s", colon + 1);
            return;
        }
    }
}

static void device_lines(struct verify *v)
{
    struct engines *engines = NULL;
    struct rl_err err = {0};
    size_t count = 0;

    if (engines_open(v->job->cfg, &engines, &err) != RL_OK) {
        rl_buf_fmt(&v->report, "devices: %s\n", err.reason);
        return;
    }
    const struct engine_device *devices = engines_devices(engines, &count);
    for (size_t i = 0; i < count; i++)
        rl_buf_fmt(&v->report, "device: %s %s (%s), %lld bytes\n", devices[i].id, devices[i].name,
                   devices[i].backend, (long long)devices[i].mem_bytes);
    engines_close(engines);
}

void verify_machine(struct verify *v)
{
    struct utsname system;
    struct sysinfo memory;

    rl_buf_fmt(&v->report, "reeld %s, libcurl %s\n", REELD_VERSION, net_version());
    if (uname(&system) == 0)
        rl_buf_fmt(&v->report, "system: %s %s %s\n", system.sysname, system.release,
                   system.machine);
    cpu_line(&v->report);
    if (sysinfo(&memory) == 0)
        rl_buf_fmt(&v->report, "memory: %llu bytes, %ld cores\n",
                   (unsigned long long)memory.totalram * memory.mem_unit,
                   sysconf(_SC_NPROCESSORS_ONLN));
    device_lines(v);
}

void verify_scrub(struct rl_buf *report, const char *what, const char *instead)
{
    struct rl_buf clean;
    size_t len = strlen(what);
    const char *at = report->data, *found;

    if (!at || !len)
        return;
    rl_buf_init(&clean, report->limit);
    while ((found = strstr(at, what)) != NULL) {
        rl_buf_append(&clean, at, (size_t)(found - at));
        rl_buf_str(&clean, instead);
        at = found + len;
    }
    rl_buf_str(&clean, at);
    rl_buf_free(report);
    *report = clean;
}
