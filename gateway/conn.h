/*
 * A connection: a socket (bytes in, bytes out, TLS done), its outbound queue and its deadlines. What
 * the bytes mean is http_callback.c's and ws_callback.c's.
 *
 * A conn lives until its socket is closed. It is never freed while one of its own bytes is being
 * looked at: conn_kill only marks it and has it closed from the loop.
 */
#ifndef GATEWAY_CONN_H
#define GATEWAY_CONN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uthash.h>

#include "leasehold/http_headers.h"
#include "leasehold/ws_reader.h"
#include "server.h"
#include "sock.h"

#define CONN_FIRST_MS    30000 /* a new connection's first byte; TLS handshake */
#define CONN_IDLE_MS     60000 /* between requests */
#define CONN_HEAD_MS     30000 /* first byte of a head to its last */
#define CONN_BODY_MS     30000 /* a whole body, and one second more for each … */
#define CONN_BODY_RATE   65536 /* … so many bytes of it */
#define CONN_UNREAD_MS   30000 /* output that makes no progress */
#define CONN_STALL_MS    30000 /* a streamed body of which nothing comes … */
#define CONN_PIECE_MS    60000 /* … or not SERVER_PIECE bytes; the same of what is not read */
#define CONN_BEYOND_MS   5000  /* for the request of one whose address has too many */
#define CONN_LINGER_MS   2000  /* what the peer still sends after our last byte is thrown away */
#define CONN_REST_MS     10000 /* the same, when it is in the middle of a long body */
#define CONN_DROPPED_MAX (256ULL * 1024 * 1024) /* so much of it: more is no slip of a client */
#define CONN_WS_CLOSE_MS 2000                   /* our Close frame to the peer's */
#define CONN_SILENT_MS   1000        /* without a complete request, where room is short */
#define CONN_STASH_MAX   (64 * 1024) /* of the next request, while one is answered */

enum conn_state {
    CONN_HEAD, /* waits for, or is in, the head of a request */
    CONN_BODY,
    CONN_PENDING, /* the request is with the handler */
    CONN_SENDING, /* the answer is being written */
    CONN_LINGER,  /* everything is written; reads and drops until the peer closes */
    CONN_WS,
    CONN_WS_CLOSING, /* a Close frame of ours is queued or sent */
};

/* What is to be written, in order. */
struct chunk {
    struct chunk *next;
    struct buf buf;
    size_t len, sent;
    bool piped;       /* the bytes are in `pipe` instead of `buf` */
    int pipe;         /* borrowed */
    bool tell;        /* handler.sent when it is written … */
    int64_t until_us; /* … which has to be by then, once it is the first */
};

/* A request's body that goes up in pieces. */
struct http_in {
    bool open;        /* the last piece has not gone up */
    bool wanted;      /* the next one is waited for */
    bool expects;     /* the client waits for 100 Continue */
    uint64_t left;    /* still to come from the peer */
    struct buf piece; /* has come, and has not gone up */
    struct buf spare;
    int64_t until_us; /* boot clock: for the wanted piece to be whole */
};

/* An answer's body that comes in pieces. */
struct http_out {
    bool open;    /* the last one has not come */
    bool unknown; /* its length */
    bool chunked;
};

struct http_state {
    struct buf head;  /* raw bytes of the head so far */
    struct buf stash; /* bytes of the next request */
    struct buf body;
    size_t body_len;              /* as declared */
    struct http_request *request; /* between its head and its delivery */
    bool close;                   /* after the answer */
    bool no_body;                 /* HEAD: the answer's body is not sent */
    bool discard;                 /* refused: what still comes is dropped */
    bool old;                     /* HTTP/1.0 */
    bool streams;                 /* the handler is told when the peer is gone */
    struct http_in in;
    struct http_out out;
};

struct ws_protocol;
struct ws_state {
    const struct ws_protocol *protocol;
    struct ws_reader reader;
    struct buf message;  /* all fragments so far */
    bool finished;       /* nothing of what the peer still sends matters */
    bool opened;         /* the handler knows it: ws_closed is due */
    int64_t ping_at_us;  /* boot clock; 0: it is not pinged */
    unsigned unanswered; /* pings since the last pong */
};

struct conn {
    UT_hash_handle hh;
    uint64_t id;
    struct server *server;
    struct listener *listener; /* it came from */
    struct sock sock;
    bool local, tls;
    char peer[64];
    char *certificate; /* names in the peer's; NULL: none, or not asked for yet */
    bool certificate_known;

    enum conn_state state;
    bool adopting; /* its socket is being opened: not to be freed */
    bool in_call;  /* inside a callback of its own socket */
    bool dead;     /* to be closed; nothing goes to the handler any more */
    bool reading;
    bool held; /* nothing is written for now */
    bool corked;
    struct conn *corked_prev, *corked_next;
    struct conn *ending_prev, *ending_next; /* sock.c's */

    struct peer *from;         /* its address or process, counted; NULL: there is no cap */
    bool beyond;               /* when it came its address had too many */
    bool served;               /* a request has been complete */
    int64_t silent_us;         /* boot clock: since when a request is waited for */
    int64_t deadline_us;       /* boot clock; 0: none */
    int64_t write_deadline_us; /* while something is queued */
    uint64_t dropped;          /* bytes that came behind all that was answered */
    struct chunk *out, *out_last;
    size_t out_bytes;

    struct http_state http;
    struct ws_state ws;
};

struct listener;
struct peer;

/* A connection of the accepted socket, which it takes, as it does the count in `from` (may be NULL).
 * One beyond the cap has a short time, and is refused unless there is room when its request is there. */
void conn_adopt(struct listener *l, int fd, const char *peer, struct peer *from);
bool conn_is_beyond(struct conn *c);
void conn_uncount(struct conn *c);                     /* its peer may have one more beside it */
void conn_free(struct conn *c);                        /* tells the handler what it has to know */
struct conn *conn_find(struct server *s, uint64_t id); /* NULL: gone, or going */

const char *conn_certificate(struct conn *c); /* as in struct http_request */

void conn_queue(struct conn *c, struct buf *b);       /* takes *b */
void conn_queue_piece(struct conn *c, struct buf *b); /* the same; handler.sent is told */
/* The same; what waits and is small goes out in one write with it. */
void conn_queue_gathered(struct conn *c, struct buf *b);
void conn_queue_pipe(struct conn *c, int fd, size_t len);
void conn_flush(struct conn *c);          /* writes what the socket takes, the rest later */
void conn_flush_gathered(struct conn *c); /* the same, while corked at the end of that */
void conn_drop_queue(struct conn *c);
void conn_drop_waiting(struct conn *c); /* all but the first: it may be written in part */

/* sock.c: bytes have come, the socket has room, it is closed and the conn goes. */
void conn_bytes(struct conn *c, char *data, size_t len);
void conn_writable(struct conn *c);
void conn_closed(struct conn *c);

/* Gives the bytes to the protocol that is spoken, request by request, frame by frame; masks are lifted
 * where the bytes lie. */
void conn_feed(struct conn *c, char *data, size_t len);

void conn_deadline(struct conn *c, int64_t ms); /* 0: none */
void conn_linger(struct conn *c);               /* call when all is written */
void conn_drop(struct conn *c, size_t len);     /* so much came meanwhile */
void conn_kill(struct conn *c);                 /* close at once */
void conn_flow(struct conn *c);                 /* reads, or not, as its state wants */

/* Closes what is past a deadline. Once a second. */
void conn_sweep(struct server *s);
void conn_close_idle(struct server *s); /* those that are between requests */
/* Those whose answer might be lost if they were closed now. */
size_t conn_lingering(const struct server *s);

/* When the listener's connections are nearly all taken: closes those without a complete request that
 * have waited for a second, those that never had one before all others, the longest silent first.
 * Once a second. */
void conn_make_room(const struct listener *l);

/* http_callback.c. _feed returns how many bytes it took, at least one; _written is called when
 * nothing is queued any more; _forget frees what it holds. */
size_t http_feed(struct conn *c, const char *data, size_t len);
void http_written(struct conn *c);
void http_forget(struct conn *c);
void http_refuse(struct conn *c, struct http_request *r, const struct err *e); /* takes */
void http_pending(struct conn *c, struct http_request *r); /* the handler owes an answer now */

/* http_stream.c */
void http_stream_begin(struct conn *c, struct http_request *r, bool expects); /* takes */
size_t http_stream_feed(struct conn *c, const char *data, size_t len);
bool http_stream_reads(const struct conn *c); /* may more of the body come? */
void http_stream_end(struct conn *c);         /* frees; tells the handler if it is too early */

/* ws_callback.c */
void ws_upgrade(struct conn *c, const struct http_head *head, struct http_request *r); /* takes */
size_t ws_feed(struct conn *c, char *data, size_t len);
void ws_written(struct conn *c);
void ws_ping(struct conn *c, int64_t now_us); /* if it is time for one */
void ws_forget(struct conn *c);

#endif
