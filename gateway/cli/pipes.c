#include "pipes.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "leasehold/json.h"

#include "output.h"

#define READ_BYTES 65536

void line_reader_init(struct line_reader *r, int fd)
{
    *r = (struct line_reader){.fd = fd};
    buf_init(&r->rest, PIPES_LINE_MAX);
}

void line_reader_done(struct line_reader *r)
{
    buf_done(&r->rest);
}

/* Sends rest + piece as one message. */
static int push_line(struct line_reader *r, struct message_queue *out, const char *piece,
                     size_t len, struct err *e)
{
    buf_add(&r->rest, piece, len);
    if (!buf_ok(&r->rest)) {
        return err_set(e, ERR_TOO_LARGE, "a line of stdin is longer than %d bytes", PIPES_LINE_MAX);
    }
    const char *line = r->rest.len > 0 ? r->rest.data : "";
    if (message_queue_push(out, line, r->rest.len, utf8_valid(line, r->rest.len), true) < 0) {
        return err_set(e, ERR_INTERNAL, "no memory");
    }
    buf_reset(&r->rest);
    return 0;
}

static int split(struct line_reader *r, struct message_queue *out, const char *data, size_t len,
                 struct err *e)
{
    while (len > 0) {
        const char *end = memchr(data, '\n', len);
        if (end == NULL) {
            buf_add(&r->rest, data, len);
            break;
        }
        size_t n = (size_t)(end - data);
        if (push_line(r, out, data, n, e) < 0) {
            return -1;
        }
        data += n + 1;
        len -= n + 1;
    }
    if (!buf_ok(&r->rest)) {
        return err_set(e, ERR_TOO_LARGE, "a line of stdin is longer than %d bytes", PIPES_LINE_MAX);
    }
    return 0;
}

int line_reader_run(struct line_reader *r, struct message_queue *out, struct err *e)
{
    char piece[READ_BYTES];
    ssize_t n = read(r->fd, piece, sizeof(piece));
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) {
        return 0;
    }
    if (n <= 0) {
        /* A closed descriptor, or a terminal that went away, is an end like any other. */
        r->ended = true;
        return r->rest.len > 0 ? push_line(r, out, "", 0, e) : 0;
    }
    return split(r, out, piece, (size_t)n, e);
}

void line_writer_init(struct line_writer *w, int fd)
{
    *w = (struct line_writer){.fd = fd, .terminal = isatty(fd) == 1, .last = '\0'};
    /* What is written already, what waits, and the one piece that made it full. */
    buf_init(&w->waiting, 3 * (size_t)PIPES_OUTPUT_MAX);
}

void line_writer_done(struct line_writer *w)
{
    buf_done(&w->waiting);
}

bool line_writer_empty(const struct line_writer *w)
{
    return w->written == w->waiting.len;
}

bool line_writer_full(const struct line_writer *w)
{
    return w->waiting.len - w->written >= PIPES_OUTPUT_MAX;
}

static void end_message(struct line_writer *w, bool text)
{
    if (text && w->last != '\n') {
        buf_add_char(&w->waiting, '\n');
    }
    w->last = '\0';
    w->inside_text = false;
}

int line_writer_add(struct line_writer *w, const struct message *m, struct err *e)
{
    const char *data = (const char *)m->data;
    if (w->written >= PIPES_OUTPUT_MAX) {
        buf_consume(&w->waiting, w->written);
        w->written = 0;
    }
    if (w->terminal) {
        output_clean(data, m->len, true, &w->waiting);
    } else {
        buf_add(&w->waiting, data, m->len);
    }
    if (m->len > 0) {
        w->last = data[m->len - 1];
    }
    w->inside_text = m->text && !m->final;
    if (m->final) {
        end_message(w, m->text);
    }
    return buf_ok(&w->waiting) ? 0 : err_set(e, ERR_INTERNAL, "no memory");
}

void line_writer_break(struct line_writer *w)
{
    if (w->inside_text) {
        end_message(w, true);
    }
}

int line_writer_run(struct line_writer *w, struct err *e)
{
    /* POLLOUT of a pipe promises room for PIPE_BUF bytes, no more. */
    size_t len = w->waiting.len - w->written;
    ssize_t n = write(w->fd, w->waiting.data + w->written, len > PIPE_BUF ? PIPE_BUF : len);
    if (n < 0 && errno != EINTR && errno != EAGAIN) {
        return err_sys(e, ERR_INTERNAL, errno, "stdout cannot be written");
    }
    if (n > 0) {
        w->written += (size_t)n;
        if (w->written == w->waiting.len) {
            buf_reset(&w->waiting);
            w->written = 0;
        }
    }
    return 0;
}
