#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "keep.h"

#define MARK_MS 100 /* no mark sooner behind another */

static int open_new(const char *name)
{
    return open(name, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
}

static void numbered(unsigned number, char ret[static 32])
{
    snprintf(ret, 32, KEEP_LOG_FILE ".%u", number);
}

static void log_close(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* The number is there before keep.log is another file: a reader that sees that finds the next one by
 * it. Without links the number is given up, and a reader cannot tell any more what it has missed. */
static int files_open(struct keep_log *l)
{
    char name[32];

    numbered(l->number, name);
    l->file_fd = open_new(name);
    rename(KEEP_LOG_FILE, KEEP_LOG_FILE KEEP_OLD);
    if (l->file_fd >= 0 && link(name, KEEP_LOG_FILE) < 0)
        rename(name, KEEP_LOG_FILE);
    l->times_fd = open_new(KEEP_TIMES_FILE);
    l->written = l->marks = 0;
    l->marked_ms = 0;
    if (l->number >= 2) {
        numbered(l->number - 2, name);
        unlink(name);
    }
    return l->file_fd < 0 || l->times_fd < 0 ? -1 : 0;
}

int log_open(struct keep_log *l, struct fault *f)
{
    int ends[2];
    if (files_open(l) < 0 || pipe2(ends, O_CLOEXEC) < 0)
        return fault_sys(f, "cannot open " KEEP_LOG_FILE);
    l->read_fd = ends[0];
    l->write_fd = ends[1];
    if (fcntl(l->read_fd, F_SETFL, O_NONBLOCK) < 0)
        return fault_sys(f, "fcntl");
    return 0;
}

void log_close_writer(struct keep_log *l)
{
    log_close(&l->write_fd);
}

/* The newest is kept. Without new files (a full disk) what comes is dropped until there are. */
static void rotate(struct keep_log *l)
{
    log_close(&l->file_fd);
    log_close(&l->times_fd);
    rename(KEEP_TIMES_FILE, KEEP_TIMES_FILE KEEP_OLD);
    l->number++;
    files_open(l);
}

static void remember_line(struct keep_log *l, const char *data, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (data[i] == '\n') {
            l->last_ended = true;
            continue;
        }
        if (l->last_ended)
            l->last_len = 0;
        l->last_ended = false;
        if (l->last_len < sizeof(l->last_line) - 1)
            l->last_line[l->last_len++] = data[i];
    }
    l->last_line[l->last_len] = '\0';
}

static int64_t wall_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void mark(struct keep_log *l)
{
    struct keep_mark m = {.at_ms = wall_ms(), .offset = (int64_t)l->written};
    if (l->marks > 0 && m.at_ms >= l->marked_ms && m.at_ms - l->marked_ms < MARK_MS)
        return;
    if (write(l->times_fd, &m, sizeof(m)) != (ssize_t)sizeof(m))
        return;
    l->marks++;
    l->marked_ms = m.at_ms;
}

/* A full disk loses lines of the log, never the sandbox. */
static void append(struct keep_log *l, const char *data, size_t len)
{
    while (len > 0) {
        if (l->file_fd < 0 || l->written >= KEEP_LOG_MAX || l->marks >= KEEP_TIMES_MAX)
            rotate(l);
        size_t room = KEEP_LOG_MAX - l->written;
        size_t part = len < room ? len : room;
        mark(l);
        ssize_t n = write(l->file_fd, data, part);
        if (n <= 0)
            return;
        l->written += (size_t)n;
        data += n;
        len -= (size_t)n;
    }
}

/* One read a call: a flood on stderr must not keep the main loop from its signals. */
void log_pump(struct keep_log *l)
{
    char chunk[65536];
    ssize_t n = read(l->read_fd, chunk, sizeof(chunk));
    if (n > 0) {
        size_t tail = (size_t)n < 4096 ? (size_t)n : 4096;
        remember_line(l, chunk + (size_t)n - tail, tail);
        append(l, chunk, (size_t)n);
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        close(l->read_fd);
        l->read_fd = -1;
    }
}

void log_note(struct keep_log *l, const char *fmt, ...)
{
    char line[256] = "leasekeep: ";
    size_t len = strlen(line);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line + len, sizeof(line) - len - 1, fmt, ap);
    va_end(ap);
    len = strlen(line);
    line[len++] = '\n';
    append(l, line, len);
}
