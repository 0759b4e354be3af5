#include "history_queue.h"

#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#include "chat_log.h"
#include "idempotency.h"
#include "ops.h"

#define BATCH_MAX   256               /* messages in one commit */
#define BATCH_BYTES (8 * 1024 * 1024) /* of their contents; one message is always taken */
#define WAITING_MAX 1000              /* in all chats */

struct append {
    struct append *next;
    struct call *c;
    int rc;
    struct err e;
};

/* One chat with appends that run or wait. */
struct history_queue {
    struct job job;
    struct history_queues *all;
    struct id chat_id;
    struct append *waiting, **tail;  /* loop */
    struct append *batch[BATCH_MAX]; /* of the loop, but for the lane while the job is there */
    size_t batch_n;
    UT_hash_handle hh; /* by chat_id */
};

struct history_queues { /* loop */
    struct services *s;
    struct history_queue *chats;
    size_t waiting;
};

struct history_queues *history_queues_new(struct services *s)
{
    struct history_queues *q = calloc(1, sizeof *q);

    if (q)
        q->s = s;
    return q;
}

void history_queues_free(struct history_queues *q)
{
    free(q);
}

/* --- a batch, on the lane -------------------------------------------------------------------- */

struct batch {
    struct history_queue *q;
    struct services *s;
    struct chat chat;
    struct append *taken[BATCH_MAX]; /* those that are to be appended */
    struct history_message messages[BATCH_MAX];
    size_t n;
    int64_t bytes; /* that came to the files */
};

static void refuse(struct append *a, const struct err *e)
{
    a->rc = -1;
    a->e = *e;
}

static void refuse_all(const struct batch *b, const struct err *e)
{
    for (size_t i = 0; i < b->n; i++)
        refuse(b->taken[i], e);
}

static int look_row(struct store_tx *tx, void *arg, struct err *e)
{
    struct batch *b = arg;

    return store_chat_get(tx, &b->q->chat_id, b->q->batch[0]->c->arena, &b->chat, e);
}

static int admit(const struct batch *b, const struct call *c, struct err *e)
{
    if (b->s->stopping)
        return err_set(e, ERR_BUSY, "the gateway is stopping");
    if (clock_boot_us(b->s->clock) > c->deadline_us)
        return err_set(e, ERR_BUSY, "the time of the call was over before its turn came");
    if (!caller_may_see(&c->caller, &b->chat.user_id))
        return err_set(e, ERR_CHAT_NOT_FOUND, "no such chat");
    return 0;
}

static struct history_message message_of(const struct history_append_args *a, int64_t now_ms)
{
    return (struct history_message){.at = a->has_at ? a->at : now_ms,
                                    .role = (enum history_role)a->role,
                                    .author = a->author ? a->author : "",
                                    .content = a->content,
                                    .content_len = strlen(a->content),
                                    .client_id = a->client_message_id};
}

/* The chat is looked at under its key: a deletion waits for it, or was before. */
static void choose(struct batch *b)
{
    int64_t now_ms = clock_wall_ms(b->s->clock);
    struct err e;
    int rc = store_read(b->s->store, look_row, b, &e);

    for (size_t i = 0; i < b->q->batch_n; i++) {
        struct append *a = b->q->batch[i];

        if (rc || admit(b, a->c, &e)) {
            refuse(a, &e);
            continue;
        }
        b->taken[b->n] = a;
        b->messages[b->n++] = message_of(a->c->args, now_ms);
    }
}

static int write_messages(struct batch *b, struct err *e)
{
    struct chat_log log;
    int rc;

    if (chat_log_open(&log, b->s, &b->chat.user_id, &b->chat.chat_id, e))
        return -1;
    rc = chat_log_append(&log, b->messages, b->n, NULL, e);
    b->bytes = rc ? 0 : chat_log_added(&log);
    chat_log_close(&log);
    return rc;
}

static void answer(struct append *a, const struct history_message *m)
{
    const struct history_append_args *args = a->c->args;
    struct err e;

    if (m->is == HISTORY_IS_ANOTHER) {
        err_set(&e, ERR_CONFLICT, "client_message_id was used for another message");
        refuse(a, &e);
        return;
    }
    *(struct message_view *)a->c->result = (struct message_view){.seq = m->seq,
                                                                 .message_id = m->message_id,
                                                                 .at = m->at,
                                                                 .role = (int)m->role,
                                                                 .author = args->author,
                                                                 .content = args->content};
    a->c->status = a->c->op->status;
}

static int record_rows(struct store_tx *tx, void *arg, struct err *e)
{
    struct batch *b = arg;

    if (store_usage_add(tx, &b->chat.user_id, b->bytes, false, e))
        return -1;
    for (size_t i = 0; i < b->n; i++) {
        struct call *c = b->taken[i]->c;

        if (!b->taken[i]->rc && (store_audit_deed(tx,
                                                  &(struct audit_deed){.caller = &c->caller,
                                                                       .action = c->op->name,
                                                                       .kind = "chat",
                                                                       .id = &b->chat.chat_id},
                                                  e) ||
                                 idempotency_record(c, tx, e)))
            return -1;
    }
    return 0;
}

/* What was said is durable and answered so, even when there is no room for the trail. */
static void batch_work(struct batch *b)
{
    struct err e;

    choose(b);
    if (!b->n)
        return;
    store_usage_hold(b->s->store, &b->chat.user_id);
    if (write_messages(b, &e)) {
        refuse_all(b, &e);
    } else {
        for (size_t i = 0; i < b->n; i++)
            answer(b->taken[i], &b->messages[i]);
        if (store_write(b->s->store, record_rows, b, &e))
            log_error(b->s->log, "audit_lost", &e, LF_STR("action", "history.append"),
                      LF_ID("chat_id", &b->chat.chat_id), LF_INT("n", (int64_t)b->n));
    }
    store_usage_release(b->s->store, &b->chat.user_id);
}

static void batch_run(struct job *job)
{
    struct history_queue *q =
        (struct history_queue *)((char *)job - offsetof(struct history_queue, job));
    struct batch *b = calloc(1, sizeof *b);
    struct err e;

    if (!b) {
        err_set(&e, ERR_INTERNAL, "no memory to append to a history");
        for (size_t i = 0; i < q->batch_n; i++)
            refuse(q->batch[i], &e);
        return;
    }
    b->q = q;
    b->s = q->all->s;
    batch_work(b);
    free(b);
}

/* --- the queue, on the loop ------------------------------------------------------------------ */

static void batch_take(struct history_queue *q)
{
    size_t bytes = 0;

    for (q->batch_n = 0; q->waiting && q->batch_n < BATCH_MAX; q->batch_n++) {
        struct append *a = q->waiting;

        bytes += strlen(((const struct history_append_args *)a->c->args)->content);
        if (q->batch_n && bytes > BATCH_BYTES)
            break;
        q->batch[q->batch_n] = a;
        q->waiting = a->next;
    }
    if (!q->waiting)
        q->tail = &q->waiting;
}

/* A call's memory, the append's with it, ends with its answer. */
static void batch_answer(struct history_queue *q)
{
    q->all->waiting -= q->batch_n;
    for (size_t i = 0; i < q->batch_n; i++) {
        struct call *c = q->batch[i]->c;

        c->rc = q->batch[i]->rc;
        c->e = q->batch[i]->e;
        call_finish(c);
    }
    q->batch_n = 0;
}

static void batch_start(struct history_queue *q);

static void batch_done(struct job *job)
{
    struct history_queue *q =
        (struct history_queue *)((char *)job - offsetof(struct history_queue, job));

    batch_answer(q);
    batch_start(q);
}

static int batch_submit(struct history_queue *q, struct err *e)
{
    if (!q->all->s->file)
        return err_set(e, ERR_BUSY, "the gateway is stopping");
    return lane_submit_keyed(q->all->s->file, &q->chat_id, &q->job, e);
}

static void batch_start(struct history_queue *q)
{
    struct err e;

    for (batch_take(q); q->batch_n && batch_submit(q, &e); batch_take(q)) {
        for (size_t i = 0; i < q->batch_n; i++)
            refuse(q->batch[i], &e);
        batch_answer(q);
    }
    if (q->batch_n)
        return;
    HASH_DEL(q->all->chats, q);
    free(q);
}

static struct history_queue *queue_new(struct history_queues *all, const struct id *chat_id)
{
    struct history_queue *q = calloc(1, sizeof *q);

    if (!q)
        return NULL;
    q->job = (struct job){.run = batch_run, .done = batch_done};
    q->all = all;
    q->chat_id = *chat_id;
    q->tail = &q->waiting;
    HASH_ADD(hh, all->chats, chat_id, sizeof q->chat_id, q);
    return q;
}

static int add(struct history_queues *all, struct call *c, struct err *e)
{
    const struct history_append_args *args = c->args;
    struct append *a = call_alloc(c, sizeof *a);
    struct history_queue *q;

    if (all->waiting >= WAITING_MAX)
        return err_set(e, ERR_BUSY, "too many messages wait");
    HASH_FIND(hh, all->chats, &args->chat_id, sizeof args->chat_id, q);
    bool is_new = !q;
    if (is_new && a)
        q = queue_new(all, &args->chat_id);
    if (!a || !q)
        return err_set(e, ERR_INTERNAL, "no memory for a message");
    a->c = c;
    *q->tail = a;
    q->tail = &a->next;
    all->waiting++;
    if (is_new)
        batch_start(q);
    return 0;
}

void history_queue_add(struct history_queues *q, struct call *c)
{
    struct err e;

    if (add(q, c, &e))
        call_fail(c, &e);
}
