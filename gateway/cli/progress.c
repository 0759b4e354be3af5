#include "progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "leasehold/clock.h"

#define SHOW_US   200000
#define WIDTH     20
#define NAME_MOST 40

static int64_t now_us(void)
{
    return clock_boot_us(&clock_system);
}

static void rate_text(double bytes_per_s, char *ret, size_t size)
{
    static const char *const units[] = {"B/s", "KiB/s", "MiB/s", "GiB/s"};
    size_t unit = 0;

    for (; bytes_per_s >= 1024 && unit < 3; unit++) {
        bytes_per_s /= 1024;
    }
    snprintf(ret, size, "%.1f %s", bytes_per_s, units[unit]);
}

void progress_line(const struct progress *p, int64_t us, char ret[static PROGRESS_LINE])
{
    int percent = p->total > 0 ? (int)((double)p->done * 100 / (double)p->total) : 100;
    int filled = percent * WIDTH / 100;
    double rate = us > 0 ? (double)(p->done - p->begun_at) * 1e6 / (double)us : 0;
    char speed[32], left[32] = "", bar[WIDTH + 1];

    for (int i = 0; i < WIDTH; i++) {
        bar[i] = i < filled ? '#' : '.';
    }
    bar[WIDTH] = '\0';
    rate_text(rate, speed, sizeof(speed));
    if (rate > 0 && p->done < p->total) {
        int64_t s = (int64_t)((double)(p->total - p->done) / rate);
        snprintf(left, sizeof(left), "  %" PRId64 ":%02d left", s / 60, (int)(s % 60));
    }
    snprintf(ret, PROGRESS_LINE, "%.*s  [%s] %3d%%  %s%s", NAME_MOST, p->name, bar, percent, speed,
             left);
}

static void show(struct progress *p)
{
    char line[PROGRESS_LINE];

    progress_line(p, p->shown_us - p->start_us, line);
    fprintf(stderr, "\r\033[K%s", line);
    fflush(stderr);
}

void progress_begin(struct progress *p, const char *name, int64_t done, int64_t total, bool quiet)
{
    *p = (struct progress){.name = name,
                           .total = total,
                           .done = done,
                           .begun_at = done,
                           .start_us = now_us(),
                           .visible = !quiet && isatty(STDERR_FILENO) == 1};
}

void progress_add(struct progress *p, int64_t bytes)
{
    p->done += bytes;
    if (!p->visible) {
        return;
    }
    int64_t now = now_us();
    if (now - p->shown_us >= SHOW_US) {
        p->shown_us = now;
        show(p);
    }
}

void progress_end(struct progress *p)
{
    if (p->visible) {
        p->shown_us = now_us();
        show(p);
        fputc('\n', stderr);
    }
    p->visible = false;
}
