#include "leasehold/clock.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define DAY_S       86400
#define TIME_MAX_MS INT64_C(253402300799999) /* 9999-12-31T23:59:59.999Z */

static int64_t system_wall_ms(void *ctx)
{
    (void)ctx;
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static int64_t system_boot_us(void *ctx)
{
    (void)ctx;
    struct timespec ts;
    clock_gettime(CLOCK_BOOTTIME, &ts);
    return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

const struct clock clock_system = {.wall_ms = system_wall_ms, .boot_us = system_boot_us};

/* n digits and what stands behind them. */
static char *put_digits(char *at, int n, int value, char behind)
{
    for (int i = n - 1; i >= 0; i--) {
        at[i] = (char)('0' + value % 10);
        value /= 10;
    }
    at[n] = behind;
    return at + n + 1;
}

struct date {
    int year, month, day;
};

/* Of a day since 1970-01-01. gmtime_r takes a lock that all threads share. Years begin in March here, so
 * that the day that may be missing is their last. */
static struct date date_of(int days)
{
    enum { IN_400_YEARS = 146097, IN_100_YEARS = 36524, IN_4_YEARS = 1461, TO_1970 = 719468 };
    int day = days + TO_1970; /* since 0000-03-01 */
    int of_400 = day % IN_400_YEARS;
    int year =
        (of_400 - of_400 / (IN_4_YEARS - 1) + of_400 / IN_100_YEARS - of_400 / (IN_400_YEARS - 1)) /
        365;
    int of_year = of_400 - (365 * year + year / 4 - year / 100);
    int month = (5 * of_year + 2) / 153; /* five of them, from March or August on, have 153 days */
    bool ends_year = month >= 10;
    return (struct date){.year = day / IN_400_YEARS * 400 + year + ends_year,
                         .month = month + (ends_year ? -9 : 3),
                         .day = of_year - (153 * month + 2) / 5 + 1};
}

char *time_format(int64_t ms, char out[static TIME_TEXT])
{
    if (ms < 0) {
        ms = 0;
    } else if (ms > TIME_MAX_MS) {
        ms = TIME_MAX_MS;
    }
    int second = (int)(ms / 1000 % DAY_S);
    struct date date = date_of((int)(ms / 1000 / DAY_S));
    char *at = put_digits(out, 4, date.year, '-');
    at = put_digits(at, 2, date.month, '-');
    at = put_digits(at, 2, date.day, 'T');
    at = put_digits(at, 2, second / 3600, ':');
    at = put_digits(at, 2, second / 60 % 60, ':');
    at = put_digits(at, 2, second % 60, '.');
    at = put_digits(at, 3, (int)(ms % 1000), 'Z');
    *at = '\0';
    return out;
}

/* A place in a text that is read from left to right. */
struct cursor {
    const char *s;
    size_t left;
};

/* Exactly this character; a letter in both cases. */
static bool take_char(struct cursor *c, char ch)
{
    if (c->left == 0 || (c->s[0] != ch && (ch < 'a' || c->s[0] != ch - 'a' + 'A'))) {
        return false;
    }
    c->s++;
    c->left--;
    return true;
}

static bool is_digit(const struct cursor *c)
{
    return c->left > 0 && c->s[0] >= '0' && c->s[0] <= '9';
}

/* Exactly `digits` digits of a number in min..max. */
static bool take_number(struct cursor *c, unsigned digits, int min, int max, int *ret)
{
    int v = 0;
    for (unsigned i = 0; i < digits; i++) {
        if (!is_digit(c)) {
            return false;
        }
        v = v * 10 + (c->s[0] - '0');
        c->s++;
        c->left--;
    }
    *ret = v;
    return v >= min && v <= max;
}

static bool take_date(struct cursor *c, struct tm *tm)
{
    static const int month_days[] = {31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int year, month;
    if (!take_number(c, 4, 0, 9999, &year) || !take_char(c, '-') ||
        !take_number(c, 2, 1, 12, &month) || !take_char(c, '-') ||
        !take_number(c, 2, 1, month_days[month - 1], &tm->tm_mday)) {
        return false;
    }
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    tm->tm_year = year - 1900;
    tm->tm_mon = month - 1;
    return month != 2 || tm->tm_mday <= 28 || leap;
}

static bool take_fraction(struct cursor *c, int *ret_ms)
{
    *ret_ms = 0;
    if (!take_char(c, '.')) {
        return true;
    }
    unsigned digits = 0;
    for (int scale = 100; is_digit(c); scale /= 10, digits++) {
        *ret_ms += (c->s[0] - '0') * scale;
        c->s++;
        c->left--;
    }
    return digits >= 1 && digits <= 9;
}

static bool take_offset(struct cursor *c, int *ret_seconds)
{
    *ret_seconds = 0;
    if (take_char(c, 'z')) {
        return true;
    }
    int sign = 1, hours, minutes;
    if (c->left > 0 && c->s[0] == '-') {
        sign = -1;
    } else if (c->left == 0 || c->s[0] != '+') {
        return false;
    }
    c->s++;
    c->left--;
    if (!take_number(c, 2, 0, 23, &hours) || !take_char(c, ':') ||
        !take_number(c, 2, 0, 59, &minutes)) {
        return false;
    }
    *ret_seconds = sign * (hours * 3600 + minutes * 60);
    return true;
}

int time_parse(const char *s, size_t len, int64_t *ret_ms)
{
    struct cursor c = {.s = s, .left = len};
    struct tm tm = {0};
    int ms, offset;
    if (!take_date(&c, &tm) || !take_char(&c, 't') || !take_number(&c, 2, 0, 23, &tm.tm_hour) ||
        !take_char(&c, ':') || !take_number(&c, 2, 0, 59, &tm.tm_min) || !take_char(&c, ':') ||
        !take_number(&c, 2, 0, 60, &tm.tm_sec) || !take_fraction(&c, &ms) ||
        !take_offset(&c, &offset) || c.left != 0) {
        return -1;
    }
    bool leap_second = tm.tm_sec == 60;
    int64_t seconds = (int64_t)timegm(&tm) - offset;
    /* A leap second ends a UTC day (RFC 3339 section 5.7): it counts as the next day's first. */
    if (leap_second && seconds % 86400 != 0) {
        return -1;
    }
    *ret_ms = seconds * 1000 + ms;
    return 0;
}
