#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "keep.h"

/* The file is never longer than KEEP_LOG_MAX, the note about the cut included. */
static const char cut_note[] = "\nleasekeep: the log is full; the rest is dropped\n";
#define TEXT_MAX (KEEP_LOG_MAX - (sizeof(cut_note) - 1))

int log_open(struct keep_log *l, struct fault *f)
{
    int ends[2];
    l->file_fd =
        open(KEEP_LOG_FILE, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (l->file_fd < 0 || pipe2(ends, O_CLOEXEC) < 0)
        return fault_sys(f, "cannot open " KEEP_LOG_FILE);
    l->read_fd = ends[0];
    l->write_fd = ends[1];
    if (fcntl(l->read_fd, F_SETFL, O_NONBLOCK) < 0)
        return fault_sys(f, "fcntl");
    return 0;
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

static void append(struct keep_log *l, const char *data, size_t len)
{
    if (l->written > TEXT_MAX)
        return;
    size_t room = TEXT_MAX - l->written;
    size_t part = len < room ? len : room;
    /* A full disk loses lines of the log, never the sandbox. */
    ssize_t n = write(l->file_fd, data, part);
    (void)n;
    l->written += part;
    if (part == len)
        return;
    n = write(l->file_fd, cut_note, sizeof(cut_note) - 1);
    (void)n;
    l->written = TEXT_MAX + 1;
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
