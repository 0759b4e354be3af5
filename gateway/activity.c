#include "activity.h"

#include <stddef.h>
#include <stdlib.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#include "services.h"
#include "trail.h"

#define FLUSH_MS   1000
#define FLUSH_MAX  1000  /* chats of one write */
#define SEEN_MAX   50000 /* chats; more of them wait for the next while */
#define WHILES     10    /* of the time that a workspace may lie idle … */
#define WHILE_LONG 600   /* seconds; … but no longer than this */

struct seen {
    struct id chat_id;
    int64_t at;
    UT_hash_handle hh;
};

struct activity {
    struct services *s;
    struct server_timer *timer;
    struct seen *seen;      /* of this while, in their order */
    struct seen *unwritten; /* the first of them, NULL: all are */
    int64_t while_us, since_us;
    bool writing;
};

struct flush {
    struct store_job job;
    struct activity *a;
    size_t n;
    struct {
        struct id chat_id;
        int64_t at;
    } seen[FLUSH_MAX];
};

/* --- writing --------------------------------------------------------------------------------- */

static void flush_take(struct activity *a, struct flush *f)
{
    for (f->n = 0; a->unwritten && f->n < FLUSH_MAX; f->n++) {
        f->seen[f->n].chat_id = a->unwritten->chat_id;
        f->seen[f->n].at = a->unwritten->at;
        a->unwritten = a->unwritten->hh.next;
    }
}

static int flush_rows(struct store_tx *tx, void *arg, struct err *e)
{
    const struct flush *f = arg;

    for (size_t i = 0; i < f->n; i++)
        if (store_workspace_seen(tx, &f->seen[i].chat_id, f->seen[i].at, e))
            return -1;
    return 0;
}

static void flush_done(struct job *job)
{
    struct flush *f = (struct flush *)((char *)job - offsetof(struct flush, job.job));

    if (f->job.rc)
        log_error(f->a->s->log, "activity_unwritten", &f->job.e);
    f->a->writing = false;
    free(f);
}

static void flush_begin(struct activity *a)
{
    struct flush *f = a->unwritten && !a->writing ? malloc(sizeof *f) : NULL;
    struct err e;

    if (!f)
        return;
    f->a = a;
    flush_take(a, f);
    f->job = (struct store_job){.job.done = flush_done, .fn = flush_rows, .arg = f};
    a->writing = !store_submit(a->s->store, &f->job, &e);
    if (!a->writing) {
        log_error(a->s->log, "activity_unwritten", &e);
        free(f);
    }
}

/* --- a while --------------------------------------------------------------------------------- */

static void forget_all(struct activity *a)
{
    struct seen *one, *next;

    HASH_ITER (hh, a->seen, one, next) {
        /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): the table is not walked by its freed entries */
        HASH_DEL(a->seen, one);
        free(one);
    }
    a->unwritten = NULL;
}

static void due(void *ctx)
{
    struct activity *a = ctx;
    int64_t now_us = clock_boot_us(a->s->clock);

    flush_begin(a);
    if (!a->unwritten && now_us - a->since_us >= a->while_us) {
        forget_all(a);
        a->since_us = now_us;
    }
    server_timer_arm(a->timer, FLUSH_MS);
}

void activity_call(struct activity *a, const struct call *c)
{
    struct seen *one;
    struct id chat_id;

    if (c->rc || c->told || !trail_chat(c, &chat_id))
        return;
    HASH_FIND(hh, a->seen, &chat_id, sizeof chat_id, one);
    one = one || HASH_COUNT(a->seen) >= SEEN_MAX ? NULL : calloc(1, sizeof *one);
    if (!one)
        return;
    one->chat_id = chat_id;
    one->at = clock_wall_ms(a->s->clock);
    HASH_ADD(hh, a->seen, chat_id, sizeof one->chat_id, one);
    if (!one->hh.tbl)
        free(one);
    else if (!a->unwritten)
        a->unwritten = one;
}

/* --- life ------------------------------------------------------------------------------------ */

struct activity *activity_new(struct services *s)
{
    struct activity *a = calloc(1, sizeof *a);
    int64_t part_s = s->cfg->retention.workspace_idle_seconds / WHILES;

    if (!a)
        return NULL;
    a->s = s;
    a->while_us = (part_s < WHILE_LONG ? part_s : WHILE_LONG) * 1000000;
    a->since_us = clock_boot_us(s->clock);
    a->timer = server_timer_new(s->server, due, a);
    if (!a->timer) {
        free(a);
        return NULL;
    }
    server_timer_arm(a->timer, FLUSH_MS);
    return a;
}

void activity_close(struct activity *a)
{
    struct flush *f = a && a->unwritten ? malloc(sizeof *f) : NULL;
    struct err e;

    if (!f)
        return;
    flush_take(a, f);
    if (store_write(a->s->store, flush_rows, f, &e))
        log_error(a->s->log, "activity_unwritten", &e);
    free(f);
}

void activity_free(struct activity *a)
{
    if (!a)
        return;
    server_timer_free(a->timer);
    forget_all(a);
    free(a);
}
