/*
 * The one table of operations. A row says all about a call: its name (the WebSocket op), its REST
 * method and path, who may call it, where it runs, its arguments and its answer. Both faces,
 * validation and OpenAPI come from the rows. Adding an operation: a row in ops.c, a pair of structs
 * with their field tables and a function in an ops_*.c, tests.
 *
 * A call has one owner at a time: the loop (decode, authenticate, after, encode), then its lane
 * (run), then the loop again.
 */
#ifndef GATEWAY_OP_H
#define GATEWAY_OP_H

#include "leasehold/arena.h"
#include "leasehold/field.h"
#include "leasehold/lanes.h"
#include "leasehold/model.h"
#include "leasehold/store.h"
#include "server.h"
#include "trace.h"

struct services;
struct call;

enum op_lane {
    ON_LOOP,    /* run must not block */
    ON_READ,    /* inside a read snapshot: call->tx */
    ON_WRITE,   /* inside a group commit: call->tx; answered after the commit */
    ON_FILE,    /* may block on disk */
    ON_RUNTIME, /* may block on engine and processes; one at a time per key() */
    ON_SLOW,    /* may take long and wait for the other lanes; one at a time per key() */
    ON_OBJECT,  /* may wait for the store of objects; bodies of such calls stream there, too */
    ON_SCRAPE, /* reads /proc; a lane of its own, so that it is answered when the others are full */
};

/* What no record of an answer may keep. */
struct op_secret {
    char **text;               /* a token or key in the result; NULL: none */
    const struct lease *lease; /* whose token it is: it can be minted again */
    int64_t iat;               /* of that token, seconds */
};

/* What an operation is an access to: `member` of its arguments or of its answer names it. */
struct op_object {
    const char *kind, *member; /* no member: any of the kind, as of a list without a filter */
    const char *within; /* an id before a name that says nothing alone: "file:<chat>/<name>" */
};
#define OP_OBJECTS    3
#define CALL_SIGN_MAX TOKEN_ORDERS_MAX /* calls that are signed together */
#define OP_ANY(kind_)                                                                              \
    {                                                                                              \
        .kind = (kind_)                                                                            \
    }
#define OP_OBJECT(kind_, member_)                                                                  \
    {                                                                                              \
        .kind = (kind_), .member = (member_)                                                       \
    }
#define OP_WITHIN(kind_, member_, within_)                                                         \
    {                                                                                              \
        .kind = (kind_), .member = (member_), .within = (within_)                                  \
    }

/*
 * Bodies in pieces, REST only: of any length in constant memory. No thread waits for a peer: each
 * piece is a job of the BODY lane, where `take` and `give` may block on disk, and one call never has
 * two at a time. Not more than two pieces a side are held; what is not taken is not read. There is a
 * place for a limited number of such calls at once, in all and of one key: the next one is answered 503
 * `busy`.
 *
 * A request's body (`take` is set; the arguments are path and query alone):
 *
 *   run    on op->lane, before any of the body is read: may the caller, is there room for
 *          call->body_len, do the preconditions hold (only then a client that asked "Expect:
 *          100-continue" is told to go on); opens what the bytes go to
 *   take   each piece, in order (up to SERVER_PIECE and a bit; none at all of an empty body)
 *   end    the whole body has come: makes it durable, fills result and status
 *   undo   instead of, or after a failed, end: take has failed, the peer is gone, or the gateway is
 *          stopping. Leaves nothing. Not after a failed run.
 *
 * A POST with an Idempotency-Key that has a record is compared by its body as well, where op->compares:
 * with call->only_compares run, take and end make nothing, and end only tells what the body says
 * (idempotency_body, which it does always).
 *
 * An answer's body (`give` is set; run decides by call->streams whether there is one, and how long):
 *
 *   give   appends up to SERVER_PIECE bytes to piece->text, or names a range of a file that is to go
 *          behind them without being copied; or asks to be asked again in again_ms (a log that grows).
 *          A failure before the first piece is answered as such, a later one breaks the connection.
 *   close  once, after the last give, whatever happened. Not if run failed or streams is not set.
 *
 * Both face the lane: they touch nothing of the loop. call->state is theirs, in the arena.
 */
struct op_piece {
    struct buf text;     /* cap SERVER_PIECE */
    int fd;              /* behind the text `len` bytes of this file from `offset` on; … */
    int64_t offset, len; /* … it stays open until `close`; len may be of any size, 0: none */
    bool last;           /* this is the last one; not needed when call->answer_len is reached */
    unsigned again_ms;   /* with nothing to give */
};

struct op {
    const char *name;
    enum http_method method;
    const char *path; /* "/api/v1/leases/{lease_id}" */
    enum role role;   /* the least one; ROLE_NONE: no key needed */
    enum op_lane lane;
    int status;     /* of a success, unless run sets another … */
    int also[3];    /* … which is one of these; 0 ends them */
    int refuses[3]; /* for OpenAPI: statuses of refusals beside those that follow from the rest */
    bool pulls;     /* ON_RUNTIME: it may have to wait for an image, or for another that does */
    unsigned timeout_s; /* for it to begin to run; 0: call.c's for the lane */
    const struct field *in, *out;
    size_t in_size, out_size;
    const char *media; /* of an answer that is not from `out`: call->raw */
    bool ends;         /* ON_WRITE: goes on when the disk is full (store_write_end) */
    bool sound;        /* ON_WRITE: refuses before its first change only (struct store_job) */
    bool rest_alias;   /* another REST way to an op that has its row: no WebSocket name */
    bool plain_detail; /* problem detail = code (older clients of /create read it) */
    /* What it is serialised by: ON_RUNTIME and ON_SLOW always, ON_FILE where it is set. */
    void (*key)(struct call *c, struct id *ret);
    /* On the loop, before the call goes to its lane: what run needs to know of the broker. */
    void (*prepare)(struct call *c);
    int (*run)(struct call *c, struct err *e);
    /* ON_WRITE, on the SIGN lane beside the commit of a successful run, and before the answer: what takes a
     * CPU for a while and no store. Should the commit fail, nobody sees what it made. No record of the
     * answer has it (`secret`). For n calls at once, CALL_SIGN_MAX at most, whose rc and e it sets. */
    void (*sign)(struct call **calls, size_t n);
    /* On the loop after a successful run: what needs the broker. true: the answer is complete;
     * false: call_finish comes later. */
    bool (*after)(struct call *c);
    bool after_answers; /* the result is complete behind `after` only */
    void (*secret)(struct call *c, struct op_secret *ret); /* NULL: the answer has none */
    /* For the audit trail, the first that is there; none: no access to anything of anybody. */
    struct op_object audit[OP_OBJECTS];
    int (*take)(struct call *c, const char *data, size_t len, struct err *e);
    int (*end)(struct call *c, struct err *e);
    void (*undo)(struct call *c); /* NULL: nothing to undo */
    bool compares;                /* see call->only_compares */
    const char *takes;            /* media type of such a body, for OpenAPI */
    /* A body of application/json does not stream but is decoded, unless the query has this parameter. */
    const char *takes_json_without;
    int (*give)(struct call *c, struct op_piece *piece, struct err *e);
    void (*close)(struct call *c); /* NULL: nothing to close */
    bool conditional;              /* call->when is filled from the request's head */
    const char *doc;
};

extern const struct op ops_table[]; /* ends with name NULL */

/* Whether it can be asked for by a WebSocket message: one answer, from its field table. */
static inline bool op_has_message(const struct op *op)
{
    return !op->rest_alias && !op->media && !op->take && !op->give;
}

#define FORM_TYPE "application/x-www-form-urlencoded"

/* Whether its body may be a form: then it has those members alone. */
static inline bool op_takes_form(const struct op *op)
{
    return op->in && op->in->name && op->in->flags & FIELD_FORM;
}

/* Of the request's head; "" when absent. */
struct op_when {
    const char *range, *if_range, *if_match, *if_none_match, *if_modified_since,
        *if_unmodified_since;
};

struct call {
    struct services *s;
    const struct op *op; /* NULL until routed */
    struct arena *arena; /* holds the call itself, args and result */
    struct caller caller;
    char request_id[65];
    struct trace_context trace_parent, trace; /* the client's span, and ours that it is told of */
    uint64_t conn;
    int64_t started_us;
    int64_t deadline_us; /* it does not begin to run after this */

    void *args, *result;
    struct store_tx *tx; /* during run, ON_READ and ON_WRITE */
    int status;
    uint64_t body_len;        /* of a body that streams, as declared */
    const char *content_type; /* of such a body, "" if none was given */
    struct op_when when;
    bool body_streams;     /* take will be called */
    bool only_compares;    /* op->compares: it was answered before, if the body is the same */
    bool head_only;        /* HEAD: give will not be */
    bool no_store;         /* set by run: nobody on the way may keep the answer, which streams */
    bool streams;          /* set by run: the body of the answer comes by give … */
    int64_t answer_len;    /* … and has so many bytes; -1: not known */
    struct stream *stream; /* stream.c's */

    const char *raw;      /* instead of result: a body that is not from a field table … */
    const char *raw_type; /* … of this type; NULL: op->media */
    int rc;
    struct err e;
    int retry_s;            /* of a refusal that says "later"; 0: a second */
    const char *extra;      /* further header lines of the answer (REST) */
    const char *message_id; /* WebSocket: what the answer is to; NULL: it could not be read */

    void (*reply)(struct call *c); /* of the face; takes nothing, the call is freed behind it */
    struct job job;
    struct store_job store_job;
    bool signs;     /* the SIGN lane has it beside the commit: it is there when both are over */
    unsigned parts; /* of the two that are over */
    void *state;    /* of an op whose `after` waits */
    void (*drop)(struct call *c);  /* frees what of `state` is not in the arena; may be NULL */
    bool told;                     /* the trail has an entry of it: caller.told */
    struct idempotent *idempotent; /* idempotency.h; NULL: no Idempotency-Key */
};

/* A fresh call in an arena of its own; NULL without memory. Loop thread. */
struct call *call_new(struct services *s);
void call_free(struct call *c);

/* For stream.c: the answer has been sent, or as much of it as could be. */
void call_close(struct call *c);

/* Runs a decoded, authorised call on its lane; call_finish follows on the loop. */
void call_start(struct call *c);

/* Replies by c->rc, c->e, c->result and frees the call. Loop thread. */
void call_finish(struct call *c);

/* From `after`: has the operation run again on its lane. */
void call_again(struct call *c);

/* From a lane, while run goes on: answers with c->result and c->status as they stand. What run
 * brings is logged, but no answer any more. Without memory the answer comes at the end of run. */
void call_answer_early(struct call *c);

/* Jobs of the SIGN lane, linked by `next`: those of one operation together. */
void call_sign_all(struct job *first);

/* call_finish with an error. */
void call_fail(struct call *c, const struct err *e);

/* Allocates in the call's arena; NULL when the request's memory is used up (ERR_INTERNAL by the
 * caller). */
static inline void *call_alloc(struct call *c, size_t size)
{
    return arena_alloc(c->arena, size);
}

#endif
