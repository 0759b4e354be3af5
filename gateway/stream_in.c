/* A request's body, piece by piece. */
#include "idempotency.h"
#include "services.h"
#include "stream.h"

static void piece_run(struct job *job);
static void piece_done(struct job *job);

/* Blocks: on the lane, or when the lanes are no more. */
void stream_in_undo(struct stream *st)
{
    struct call *c = st->call;

    if (!c->rc) {
        c->rc = err_set(&c->e, ERR_BUSY, "the gateway is stopping");
    }
    st->owes = false;
    if (c->op->undo)
        c->op->undo(c);
}

static int piece_take(struct stream *st, struct err *e)
{
    struct call *c = st->call;

    if (st->abandoned)
        return err_set(e, ERR_MALFORMED_REQUEST, "the client went away before its body's end");
    if (st->piece.len && c->op->take(c, st->piece.data, st->piece.len, e))
        return -1;
    if (!st->last)
        return 0;
    if (c->op->end(c, e))
        return -1;
    st->owes = false;
    return c->only_compares ? idempotency_compare(c, e) : 0;
}

static void piece_run(struct job *job)
{
    struct stream *st = stream_of_job(job);

    st->call->rc = piece_take(st, &st->call->e);
    if (st->call->rc && st->owes)
        stream_in_undo(st);
}

static void finish(struct stream *st)
{
    struct call *c = st->call;

    stream_forget(st);
    buf_done(&st->piece);
    if (c->rc || !c->op->after || c->op->after(c))
        call_finish(c);
}

static void abandon(struct stream *st)
{
    st->abandoned = true;
    stream_submit(st, piece_run, piece_done);
}

static void piece_done(struct job *job)
{
    struct stream *st = stream_of_job(job);
    struct services *s = st->call->s;

    st->busy = false;
    if (st->call->rc || st->last)
        finish(st);
    else if (st->gone || server_body_want(s->server, st->conn, &st->piece))
        abandon(st);
}

void streams_body(void *ctx, uint64_t conn, struct buf *piece, bool last)
{
    struct services *s = ctx;
    struct stream *st = stream_find(s, conn);

    if (!st) {
        buf_done(piece);
        return;
    }
    st->piece = *piece;
    st->last = last;
    stream_submit(st, piece_run, piece_done);
}

void stream_in_gone(struct stream *st)
{
    if (!st->busy)
        abandon(st);
}

void stream_in_stopped(struct stream *st)
{
    finish(st);
}

void stream_body(struct call *c)
{
    struct stream *st = c->stream;

    stream_know(st);
    if (server_body_want(c->s->server, c->conn, NULL))
        abandon(st);
}
