/* The clocks and RFC 3339. Any thread, no state. Every reading goes through clock_gettime and
 * nothing else. Stored times lie between 1970 and 9999. */
#include "base/clock.h"

#include <string.h>

#define MS_PER_DAY INT64_C(86400000)
#define MAX_MS     INT64_C(253402300799999) /* 9999-12-31T23:59:59.999Z */

static struct timespec now(clockid_t clock)
{
    struct timespec ts = {0};

    (void)clock_gettime(clock, &ts); /* fails only for an unknown clock */
    return ts;
}

static int64_t now_ms(clockid_t clock)
{
    struct timespec ts = now(clock);

    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

int64_t rl_wall_ms(void)
{
    return now_ms(CLOCK_REALTIME);
}

int64_t rl_mono_ms(void)
{
    return now_ms(CLOCK_MONOTONIC);
}

int64_t rl_boot_ms(void)
{
    return now_ms(CLOCK_BOOTTIME);
}

int64_t rl_mono_us(void)
{
    struct timespec ts = now(CLOCK_MONOTONIC);

    return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

static bool is_leap(int64_t year)
{
    return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
}

static int64_t days_in_month(int64_t year, int64_t month)
{
    static const int8_t days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};

    return days[month - 1] + (month == 2 && is_leap(year) ? 1 : 0);
}

/* Days from 1970-01-01 to January 1st of year, year >= 1. */
static int64_t days_before_year(int64_t year)
{
    int64_t y = year - 1;

    return y * 365 + y / 4 - y / 100 + y / 400 - 719162;
}

/* v as n digits and one character after them; returns the place behind. */
static char *put(char *text, int64_t v, int n, char after)
{
    for (int i = n - 1; i >= 0; i--) {
        text[i] = (char)('0' + v % 10);
        v /= 10;
    }
    text[n] = after;
    return text + n + 1;
}

void rl_time_format(int64_t ms, char *text)
{
    if (ms < 0)
        ms = 0;
    if (ms > MAX_MS)
        ms = MAX_MS;

    int64_t days = ms / MS_PER_DAY;
    int64_t rest = ms % MS_PER_DAY;
    int64_t year = 1970 + days / 366; /* never late */
    while (days >= days_before_year(year + 1))
        year++;
    days -= days_before_year(year);
    int64_t month = 1;
    while (days >= days_in_month(year, month))
        days -= days_in_month(year, month++);

    text = put(text, year, 4, '-');
    text = put(text, month, 2, '-');
    text = put(text, days + 1, 2, 'T');
    text = put(text, rest / 3600000, 2, ':');
    text = put(text, rest / 60000 % 60, 2, ':');
    text = put(text, rest / 1000 % 60, 2, '.');
    text = put(text, rest % 1000, 3, 'Z');
    *text = '\0';
}

/* Exactly n digits at *p, then moves on; -1 when they are not there. */
static int64_t digits(const char **p, int n)
{
    int64_t v = 0;

    for (int i = 0; i < n; i++) {
        char c = (*p)[i];
        if (c < '0' || c > '9')
            return -1;
        v = v * 10 + (c - '0');
    }
    *p += n;
    return v;
}

static bool take(const char **p, const char *any_of)
{
    if (!**p || !strchr(any_of, **p))
        return false;
    (*p)++;
    return true;
}

/* ".123456" -> 123 ms, further digits are dropped; 0 when there is no fraction, -1 on error. */
static int64_t parse_fraction(const char **p)
{
    int64_t ms = 0;
    int64_t unit = 100;

    if (!take(p, "."))
        return 0;
    if (**p < '0' || **p > '9')
        return -1;
    for (; **p >= '0' && **p <= '9'; (*p)++) {
        ms += (**p - '0') * unit;
        unit /= 10;
    }
    return ms;
}

/* "Z", "+05:30" -> minutes east of UTC; false on error. */
static bool parse_offset(const char **p, int64_t *ret_minutes)
{
    if (take(p, "Zz")) {
        *ret_minutes = 0;
        return true;
    }

    int64_t sign = **p == '-' ? -1 : 1;
    if (!take(p, "+-"))
        return false;
    int64_t hours = digits(p, 2);
    if (hours < 0 || hours > 23 || !take(p, ":"))
        return false;
    int64_t minutes = digits(p, 2);
    if (minutes < 0 || minutes > 59)
        return false;
    *ret_minutes = sign * (hours * 60 + minutes);
    return true;
}

/* "2026-11-30" -> days since 1970; false on error. */
static bool parse_date(const char **p, int64_t *ret_days)
{
    int64_t year = digits(p, 4);
    if (year < 1 || !take(p, "-"))
        return false;
    int64_t month = digits(p, 2);
    if (month < 1 || month > 12 || !take(p, "-"))
        return false;
    int64_t day = digits(p, 2);
    if (day < 1 || day > days_in_month(year, month))
        return false;

    int64_t days = days_before_year(year) + day - 1;
    for (int64_t m = 1; m < month; m++)
        days += days_in_month(year, m);
    *ret_days = days;
    return true;
}

/* "06:42:16.5Z" -> ms since the UTC start of that day (below 0 or above a day by the offset). */
static bool parse_time(const char **p, int64_t *ret_ms)
{
    int64_t offset = 0;
    int64_t hour = digits(p, 2);
    if (hour < 0 || hour > 23 || !take(p, ":"))
        return false;
    int64_t minute = digits(p, 2);
    if (minute < 0 || minute > 59 || !take(p, ":"))
        return false;
    int64_t second = digits(p, 2);
    if (second < 0 || second > 60)
        return false;
    int64_t fraction = parse_fraction(p);
    if (fraction < 0 || !parse_offset(p, &offset))
        return false;

    int64_t minutes = hour * 60 + minute - offset;
    /* a leap second exists only at the end of a UTC day; it counts as the second after it */
    if (second == 60 && ((minutes + 2880) % 1440 != 1439))
        return false;
    *ret_ms = (minutes * 60 + second) * 1000 + fraction;
    return true;
}

enum rl_rc rl_time_parse(const char *text, int64_t *ret_ms, struct rl_err *err)
{
    const char *p = text;
    int64_t days = 0;
    int64_t ms = 0;

    if (!text || !parse_date(&p, &days) || !take(&p, "Tt ") || !parse_time(&p, &ms) || *p)
        return rl_fail(err, RL_INVALID_FIELD,
                       "not an RFC 3339 time such as 2026-11-30T06:42:16.123Z");
    ms += days * MS_PER_DAY;
    if (ms < 0 || ms > MAX_MS)
        return rl_fail(err, RL_INVALID_FIELD, "time outside the years 1970 to 9999");
    *ret_ms = ms;
    return RL_OK;
}

struct timespec rl_deadline(clockid_t clock, int64_t ms_from_now)
{
    const int64_t longest = MS_PER_DAY * 36500; /* no overflow, whatever the caller computed */
    struct timespec ts = now(clock);

    if (ms_from_now < 0)
        ms_from_now = 0;
    if (ms_from_now > longest)
        ms_from_now = longest;
    ts.tv_sec += ms_from_now / 1000;
    ts.tv_nsec += ms_from_now % 1000 * 1000000;
    if (ts.tv_nsec >= 1000000000) {
        ts.tv_sec++;
        ts.tv_nsec -= 1000000000;
    }
    return ts;
}
