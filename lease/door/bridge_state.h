/* What bridge.c, bridge_read.c and bridge_guest.c share. */
#ifndef LEASEHOLD_DOOR_BRIDGE_STATE_H
#define LEASEHOLD_DOOR_BRIDGE_STATE_H

#include <sys/types.h>

#include "bridge.h"
#include "leasehold/agent_link.h"
#include "leasehold/buf.h"
#include "leasehold/ws_reader.h"
#include "utf8_stream.h"

struct bridges {
    struct loop *loop;
    enum bridge_kind kind;
    struct bridges_events events;
    const struct bridge_ops *ops;
    struct bridge *list;
    size_t count;
    struct bridge_guest *guests;
    size_t guests_count;
    uint32_t last_number;
    bool ending, ended;
    struct loop_timer *end_timer;
    struct loop_timer *tidy_timer; /* frees what was read into, once that is quiet */
};

struct bridge {
    struct bridges *bs;
    void *client; /* NULL once it has left */
    uint32_t number;
    struct loop_timer *timer; /* of the dial, then of an end that is held back, then of leaving */
    struct loop_fd *fd;       /* NULL before CONN and once the loop saw its end */
    int kept_fd;              /* then this one may hold what is not read yet; else -1 */
    bool up;                  /* CONN has come */
    bool left;
    bool lingers; /* all is said to the agent; what it still says is dropped until it ends, too */
    bool closed;  /* a Close was said to it */

    struct buf down; /* what the socket did not take */
    size_t down_at;
    bool full;
    bool owes_pong;
    size_t pong_len;
    uint8_t pong[WS_CONTROL_MAX];

    bool eof;  /* nothing more is in the socket */
    bool held; /* its end was held back for long enough to hear of the agent's */
    bool done; /* nothing more will be said: the agent has ended */
    struct ws_reader reader;
    struct utf8_stream utf8;
    bool has_piece;
    struct bridge_piece piece;
    unsigned char *up_data; /* NULL: quiet */
    size_t up_at, up_end;
    bool up_busy;    /* a read filled it: more is coming */
    bool up_emptied; /* the last one did not: the socket was empty then */
    struct bridge *prev, *next;
};

/* Asks whether all has been said after the agent's end; tells it from the loop, not from here. */
void bridges_end_check(struct bridges *bs);

/* The one that waits for CONN with this number, or NULL. */
struct bridge *bridge_dialled(const struct bridges *bs, uint32_t number);

/* Seats the agent's connection, which it takes; without memory the dial just goes on. */
void bridge_seat(struct bridge *b, int fd);

/* --- bridge_read.c to bridge.c ----------------------------------------------------------------- */

void bridge_hold_end(struct bridge *b); /* `readable` will be called */
void bridge_pong(struct bridge *b);     /* if one is owed and there is room for it */

/* Says Close to the agent, once: the last that it hears. */
void bridge_close_put(struct bridge *b, unsigned code, const void *reason, size_t len);

/* Reads and drops what the agent says. False: it has ended. */
bool bridge_drain(struct bridge *b);
void bridge_up_free(struct bridge *b);
void bridge_up_quiet(struct bridge *b); /* nothing is in it, for now */

#endif
