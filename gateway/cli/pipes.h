/*
 * Our own stdin and stdout beside a connection: lines into messages, messages into lines. Neither
 * blocks: the caller polls the descriptors and says when they are ready, so nobody else's view of a
 * shared terminal changes (no O_NONBLOCK).
 */
#ifndef CLI_PIPES_H
#define CLI_PIPES_H

#include <stdbool.h>

#include "leasehold/buf.h"
#include "leasehold/err.h"

#include "message_queue.h"

/* The longest line, and the most output held back for a slow reader. */
#define PIPES_LINE_MAX   (1024 * 1024)
#define PIPES_OUTPUT_MAX (1024 * 1024)

struct line_reader {
    int fd;
    bool ended;
    struct buf rest; /* the begin of a line whose end has not come yet */
};

void line_reader_init(struct line_reader *r, int fd);
void line_reader_done(struct line_reader *r);

/* Reads once; each complete line (the last one also without a line feed) becomes a message: text,
 * or binary if it is not UTF-8. */
int line_reader_run(struct line_reader *r, struct message_queue *out, struct err *e) MUST_CHECK;

struct line_writer {
    int fd;
    bool terminal; /* control characters are shown, not sent */
    struct buf waiting;
    size_t written; /* of waiting */
    bool inside_text;
    char last; /* byte of the message so far, to end it with one line feed */
};

void line_writer_init(struct line_writer *w, int fd);
void line_writer_done(struct line_writer *w);

bool line_writer_full(const struct line_writer *w); /* take no more messages for now */
bool line_writer_empty(const struct line_writer *w);
int line_writer_add(struct line_writer *w, const struct message *m, struct err *e) MUST_CHECK;

/* The rest of a message will not come: ends its line. */
void line_writer_break(struct line_writer *w);

/* Writes a piece that does not block, after poll() said POLLOUT. */
int line_writer_run(struct line_writer *w, struct err *e) MUST_CHECK;

#endif
