/* What bridge.c and bridge_read.c share. */
#ifndef LEASEHOLD_DOOR_BRIDGE_STATE_H
#define LEASEHOLD_DOOR_BRIDGE_STATE_H

#include <sys/types.h>

#include "bridge.h"
#include "leasehold/agent_link.h"
#include "leasehold/buf.h"
#include "utf8_stream.h"

#define BRIDGE_UP_SIZE (64u * 1024u)

/* A connection that has not said yet whose it is. */
struct bridge_guest {
    struct bridges *bs;
    struct loop_fd *fd;
    struct loop_timer *timer;
    uint8_t said[LINK_HEADER + 4]; /* CONN */
    size_t said_len;
    struct bridge_guest *prev, *next;
};

struct bridges {
    struct loop *loop;
    bool framed;
    struct bridges_events events;
    const struct bridge_ops *ops;
    struct bridge *list;
    size_t count;
    struct bridge_guest *guests;
    size_t guests_count;
    uint32_t last_number;
    bool ending, ended;
    struct loop_timer *end_timer;
};

struct bridge {
    struct bridges *bs;
    void *client; /* NULL once it has left */
    uint32_t number;
    struct loop_timer *timer; /* of the dial, then of leaving */
    struct loop_fd *fd;       /* NULL before CONN and once the loop saw its end */
    int kept_fd;              /* then this one may hold what is not read yet; else -1 */
    bool up;                  /* CONN has come */
    bool left;

    struct buf down; /* what the socket did not take */
    size_t down_at;
    bool full;

    bool eof;  /* nothing more is in the socket */
    bool done; /* nothing more will be said: the agent has ended */
    size_t up_at, up_end;
    uint8_t frame_type, frame_flags; /* of the frame under way; type 0: none */
    size_t frame_left;
    uint8_t message_type; /* 0: between messages */
    size_t message_bytes;
    struct utf8_stream utf8;
    bool has_piece;
    struct bridge_piece piece;
    unsigned char up_data[BRIDGE_ROOM + BRIDGE_UP_SIZE];
    struct bridge *prev, *next;
};

/* Asks whether all has been said after the agent's end; tells it from the loop, not from here. */
void bridges_end_check(struct bridges *bs);

#endif
