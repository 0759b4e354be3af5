/*
 * leaseinit's side of the link to the door (leasehold/agent_link.h): bounded buffers and frames
 * over a non-blocking socket.
 *
 * Out: at most one open frame is built behind the finished ones; the buffer holds one frame of the
 * greatest length, so whoever fills it must wait for the door.
 * In: a frame's payload is handed on in pieces as it arrives and is never held whole.
 */
#ifndef INIT_LINK_H
#define INIT_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "leasehold/agent_link.h"

#define LINK_OUT_SIZE (LINK_HEADER + LINK_LINE_MAX)
#define LINK_IN_SIZE  65536u

struct link {
    int fd;       /* -1 once the link has ended */
    bool starved; /* something was not taken for want of room: try again when writable */
    size_t out_start, out_sealed, out_end; /* finished frames, then the open one */
    size_t in_start, in_end;
    uint32_t in_left; /* payload bytes of the current frame still to come */
    uint8_t in_type;  /* 0: between frames */
    uint8_t out[LINK_OUT_SIZE];
    uint8_t in[LINK_IN_SIZE];
};

/* Part of an incoming frame's payload, in the link's buffer. */
struct link_piece {
    uint8_t type;
    const uint8_t *data;
    size_t len;
    bool ends_frame;
};

/* Connects to `path`, trying again while it is absent or refused, until `deadline_ms` or until
 * `sigfd` has a signal to read. Returns a non-blocking socket, or -1 with errno (EINTR: signal). */
int link_connect(const char *path, int64_t deadline_ms, int sigfd);

/* Adds to the open frame, beginning one if there is none. Returns how much was taken. */
size_t link_frame_add(struct link *l, const void *data, size_t len);
bool link_frame_open(const struct link *l);
bool link_frame_full(const struct link *l); /* its payload has LINK_LINE_MAX bytes */

/* Finishes the open frame, or an empty one. False: no room now. */
bool link_frame_end(struct link *l, uint8_t type);

bool link_has_output(const struct link *l);
bool link_wants_writable(const struct link *l);
int link_flush(struct link *l); /* sends what the socket takes; -1: the link has ended */

bool link_wants_input(const struct link *l);
int link_fill(struct link *l); /* receives once; -1: the link has ended */

/* The next piece: 1, none yet: 0, the door broke the protocol: -1. The piece stays until
 * link_consume() took all of it. */
int link_peek(struct link *l, struct link_piece *ret);
void link_consume(struct link *l, size_t len);

void link_close(struct link *l); /* what came in and was not taken is dropped */

#endif
