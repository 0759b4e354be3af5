/* An answer's body, piece by piece. */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "services.h"
#include "stream.h"

#define PIPE_BYTES (1024 * 1024)
#define PIPE_WORTH (64 * 1024) /* less is as well copied */

static void fill_run(struct job *job);
static void fill_done(struct job *job);

/* --- on the lane: making a piece ------------------------------------------------------------- */

void stream_out_close(struct stream *st)
{
    st->owes = false;
    if (st->call->op->close)
        st->call->op->close(st->call);
}

static int shorter(struct err *e)
{
    return err_set(e, ERR_CONFLICT, "the file became shorter while it was being sent");
}

static bool pipe_ready(struct stream_slot *slot)
{
    if (slot->pipe[1])
        return true;
    if (pipe2(slot->pipe, O_CLOEXEC | O_NONBLOCK)) {
        slot->pipe[0] = slot->pipe[1] = 0;
        return false; /* out of descriptors: copying does as well */
    }
    (void)fcntl(slot->pipe[1], F_SETPIPE_SZ, PIPE_BYTES); /* a refusal leaves a smaller one */
    return true;
}

/* Reads the range's next bytes into the pipe: pages of the file, not copies. */
static int fill_pipe(struct stream *st, struct stream_slot *slot, struct err *e)
{
    size_t got = 0, want = st->left < PIPE_BYTES ? (size_t)st->left : PIPE_BYTES;

    while (got < want) {
        ssize_t n = splice(st->fd, &st->offset, slot->pipe[1], NULL, want - got,
                           SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN && got)
            break; /* the pipe is full */
        if (n < 0)
            return err_sys(e, ERR_INTERNAL, errno, "reading a file");
        if (!n)
            return shorter(e);
        got += (size_t)n;
    }
    slot->piped = true;
    slot->len = got;
    st->left -= (int64_t)got;
    return 0;
}

static int fill_text(struct stream *st, struct stream_slot *slot, struct err *e)
{
    struct buf *text = &slot->text;
    char block[16384];

    while (st->left && text->len < text->cap) {
        size_t want = text->cap - text->len;
        ssize_t n;

        want = want < sizeof block ? want : sizeof block;
        want = st->left < (int64_t)want ? (size_t)st->left : want;
        n = pread(st->fd, block, want, st->offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(e, ERR_INTERNAL, errno, "reading a file");
        if (!n)
            return shorter(e);
        buf_add(text, block, (size_t)n);
        st->offset += n;
        st->left -= n;
    }
    return 0;
}

static int ask(struct stream *st, struct stream_slot *slot, struct err *e)
{
    struct op_piece piece = {.text = slot->text, .fd = -1};
    int rc = st->call->op->give(st->call, &piece, e);

    slot->text = piece.text;
    st->fd = piece.fd;
    st->offset = piece.offset;
    st->left = piece.len;
    st->final = piece.last;
    st->again_ms = piece.again_ms;
    return rc;
}

static int fill(struct stream *st, struct err *e)
{
    struct stream_slot *slot = &st->slots[st->filling];
    struct call *c = st->call;

    slot->piped = false;
    buf_init(&slot->text, SERVER_PIECE);
    if (!st->left && ask(st, slot, e))
        return -1;
    if (st->left && !slot->text.len && st->left >= PIPE_WORTH && st->takes_pipes &&
        c->answer_len >= 0 && pipe_ready(slot)) {
        if (fill_pipe(st, slot, e))
            return -1;
    } else if (fill_text(st, slot, e)) {
        return -1;
    }
    if (!buf_ok(&slot->text))
        return err_set(e, ERR_INTERNAL, "no memory for a piece of the answer");
    if (!slot->piped)
        slot->len = slot->text.len;
    st->given += (int64_t)slot->len;
    if (c->answer_len >= 0 && st->given > c->answer_len)
        return err_set(e, ERR_INTERNAL, "the answer is longer than was said");
    st->over = !st->left && (st->final || st->given == c->answer_len);
    if (st->over && c->answer_len >= 0 && st->given < c->answer_len)
        return err_set(e, ERR_INTERNAL, "the answer is shorter than was said");
    return 0;
}

static void fill_run(struct job *job)
{
    struct stream *st = stream_of_job(job);

    st->call->rc = fill(st, &st->call->e);
    if (st->call->rc || st->over)
        stream_out_close(st);
}

void stream_out_first(struct stream *st)
{
    struct call *c = st->call;

    if (c->head_only)
        stream_out_close(st);
    else
        fill_run(&st->job);
}

/* --- on the loop ----------------------------------------------------------------------------- */

static void finish(struct stream *st)
{
    for (size_t i = 0; i < 2; i++) {
        struct stream_slot *slot = &st->slots[i];
        if (slot->pipe[1]) {
            close(slot->pipe[0]);
            close(slot->pipe[1]);
        }
        buf_done(&slot->text);
    }
    server_timer_free(st->timer);
    stream_forget(st);
    call_close(st->call);
}

static void close_run(struct job *job)
{
    stream_out_close(stream_of_job(job));
}

static void close_done(struct job *job)
{
    finish(stream_of_job(job));
}

/* Nothing of it is with the server any more. */
static void end(struct stream *st)
{
    stream_forget(st);
    if (st->owes && !st->call->s->stopping)
        stream_submit(st, close_run, close_done);
    else
        finish(st);
}

static void fill_next(struct stream *st)
{
    if (!st->busy && !st->over && !st->call->rc && st->queued < 2 && !st->call->s->stopping)
        stream_submit(st, fill_run, fill_done);
}

static void send_end(struct stream *st)
{
    struct buf none;

    st->over = true;
    st->queued++;
    buf_init(&none, 1);
    server_send(st->call->s->server, st->conn, &none, true);
}

static void timer_fired(void *ctx)
{
    fill_next(ctx);
}

static void wait_again(struct stream *st)
{
    struct services *s = st->call->s;

    if (!st->timer)
        st->timer = server_timer_new(s->server, timer_fired, st);
    if (!st->timer) {
        server_cut(s->server, st->conn);
        return;
    }
    st->again_ms = st->again_ms ? st->again_ms : 1;
    server_timer_arm(st->timer, st->again_ms);
    if (!st->given && !st->queued) { /* the head at least */
        struct buf none;

        buf_init(&none, 1);
        st->queued++;
        server_send(s->server, st->conn, &none, false);
    }
}

/* The server may say at once that it is sent, and the stream be gone with that. */
static void hand_over(struct stream *st)
{
    struct stream_slot *slot = &st->slots[st->filling];
    struct server *server = st->call->s->server;
    bool last = st->over;

    st->filling ^= 1;
    st->queued++;
    fill_next(st);
    if (slot->piped) {
        server_send_pipe(server, st->conn, slot->pipe[0], slot->len, last);
        return;
    }
    struct buf text = slot->text;

    slot->text = (struct buf){0};
    server_send(server, st->conn, &text, last);
}

static void filled(struct stream *st)
{
    if (st->gone || st->call->s->stopping)
        end(st);
    else if (st->call->rc)
        server_cut(st->call->s->server, st->conn); /* streams_gone follows */
    else if (!st->slots[st->filling].len && !st->over && st->call->s->draining)
        send_end(st);
    else if (!st->slots[st->filling].len && !st->over)
        wait_again(st);
    else
        hand_over(st);
}

static void fill_done(struct job *job)
{
    struct stream *st = stream_of_job(job);

    st->busy = false;
    filled(st);
}

void stream_out_sent(struct stream *st)
{
    st->queued--;
    if (st->busy)
        return;
    if (st->over && !st->queued)
        end(st);
    else if (!st->again_ms) /* else the timer does */
        fill_next(st);
}

void stream_out_gone(struct stream *st)
{
    if (st->timer)
        server_timer_stop(st->timer);
    if (!st->busy)
        end(st);
}

/* One that is busy, or has pieces to send, sees it when it has nothing to give. */
void stream_out_drain(struct stream *st)
{
    if (st->busy || st->over || st->queued)
        return;
    if (st->timer)
        server_timer_stop(st->timer);
    send_end(st);
}

void stream_out_stopped(struct stream *st)
{
    finish(st);
}

void stream_answer(struct call *c)
{
    struct stream *st = c->stream;

    if (c->head_only || !server_alive(c->s->server, c->conn)) {
        c->reply(c);
        end(st);
        return;
    }
    stream_know(st);
    c->reply(c);
    filled(st);
}
