/*
 * Bodies in pieces between the server and the operations (op.h has the contract): on the loop one
 * `stream` a call follows what the peer does, and sends each piece as a job through the BODY lane.
 * That lane takes as many jobs as there are streams, so that a stream never finds it full.
 *
 *   stream.c      places, what the server tells, the end of the gateway
 *   stream_in.c   bodies of requests
 *   stream_out.c  bodies of answers
 *
 * Functions without a word are for the loop thread.
 */
#ifndef GATEWAY_STREAM_H
#define GATEWAY_STREAM_H

#include <uthash.h>

#include "op.h"

/* At most `max` calls that stream at once, a quarter of them of one key, an eighth without a key. NULL
 * without memory. */
struct streams *streams_new(struct services *s, size_t max);
void streams_free(struct streams *all); /* takes NULL; none is left */

/* Everything that is not complete is undone. The lanes have been joined, the store is still open. */
void streams_stop(struct streams *all);

/* SIGTERM came: answers without an end, such as a log that is followed, end where they are. */
void streams_drain(struct streams *all);

/* A place for a call whose row may stream. ERR_BUSY. */
int stream_enter(struct call *c, struct err *e) MUST_CHECK;
void stream_leave(struct call *c);

/* On c's own lane, behind a run that was right: makes the first piece of the answer. */
void stream_ran(struct call *c);

/* Takes the body, then call_finish. */
void stream_body(struct call *c);

/* Does the body of c's answer come by `give`? */
bool stream_answers(const struct call *c);

/* Sends the head by c->reply, then piece by piece; then call_close. */
void stream_answer(struct call *c);

/* server_handler's; ctx is the services. */
bool streams_wanted(void *ctx, const struct http_request *r);
void streams_body(void *ctx, uint64_t conn, struct buf *piece, bool last);
void streams_sent(void *ctx, uint64_t conn);
void streams_gone(void *ctx, uint64_t conn);

/* --- between the files ----------------------------------------------------------------------- */

/* One is filled while the other is being sent. */
struct stream_slot {
    struct buf text;
    int pipe[2]; /* 0, 0: none */
    bool piped;
    size_t len;
};

struct stream {
    struct streams *all;
    struct stream *next, **at; /* of all that have a place */
    UT_hash_handle hh;         /* by conn: of those that the server knows */
    uint64_t conn;
    bool known;
    struct call *call;
    struct job job;
    bool busy; /* the job is with its lane or in the inbox */
    bool gone; /* the peer */
    bool owes; /* undo, or close. Whoever has the call */

    struct buf piece; /* of the request */
    bool last;        /* it ends the body */
    bool abandoned;   /* nothing more comes: undo */

    struct stream_slot slots[2];
    unsigned filling; /* the slot that is, or will be */
    unsigned queued;  /* slots that the server has */
    bool takes_pipes;
    bool over;  /* the last piece has been made */
    bool final; /* give has said so */
    int fd;     /* what is left of a range: */
    int64_t offset, left;
    int64_t given; /* bytes so far */
    unsigned again_ms;
    struct server_timer *timer;
};

struct stream *stream_find(const struct services *s, uint64_t conn); /* NULL */
void stream_know(struct stream *st);   /* the server's calls reach it from now on */
void stream_forget(struct stream *st); /* no more */
void stream_submit(struct stream *st, void (*run)(struct job *), void (*done)(struct job *));
struct stream *stream_of_job(struct job *job);

void stream_in_gone(struct stream *st);
void stream_in_undo(struct stream *st); /* blocks */
void stream_in_stopped(struct stream *st);
void stream_out_sent(struct stream *st);
void stream_out_gone(struct stream *st);
void stream_out_close(struct stream *st); /* blocks */
void stream_out_first(struct stream *st); /* blocks */
void stream_out_stopped(struct stream *st);
void stream_out_drain(struct stream *st);

#endif
