/*
 * The sweep: marks what is over, deletes what is marked, and brings to an end what a killed gateway
 * has begun. Every step can be done again; what the store of objects does not answer is for the next.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "artifacts.h"
#include "meters.h"

#define BATCH        20
#define LEFT_OVER_MS (24 * 3600 * 1000LL) /* of an upload that nobody knows */

/* --- removing -------------------------------------------------------------------------------- */

struct row {
    struct services *s;
    struct artifact a;
    char sha256[65]; /* of a healed one */
};

/* An artifact that never was stored leaves no trace. */
static int removed_row(struct store_tx *tx, void *arg, struct err *e)
{
    struct row *r = arg;
    struct artifact now;

    /* The sweep and a round of retention may both be at it. */
    if (store_artifact_get(tx, &r->a.artifact_id, &now, e))
        return e->code == ERR_NOT_FOUND ? 0 : -1;
    if (now.state == ARTIFACT_DELETED)
        return 0;
    if (!r->a.stored_at)
        return store_artifact_forget(tx, &r->a.artifact_id, e);
    r->a.state = ARTIFACT_DELETED;
    return store_artifact_update(tx, &r->a, e) ||
                   artifact_tell(tx,
                                 &(struct artifact_deed){.event = "artifact.deleted",
                                                         .action = "artifact.deleted"},
                                 &r->a, e)
               ? -1
               : 0;
}

static int give_up_upload(void *ctx, const struct object_upload *u, struct err *e)
{
    struct objects *o = ctx;

    return o->v->abort(o, u->key, u->upload_id, e);
}

/* Also uploads that were begun before their id was known to the row. */
static int remove_object(struct objects *o, const struct artifact *a, struct err *e)
{
    struct object_info info;

    if (!a->stored_at && o->v->uploads(o, a->object_key, give_up_upload, o, e))
        return -1;
    if (a->upload_id[0] && o->v->abort(o, a->object_key, a->upload_id, e))
        return -1;
    if (o->v->del(o, a->object_key, e))
        return -1;
    if (!o->v->head(o, a->object_key, &info, e))
        return err_set(e, ERR_OBJECT_STORE_UNAVAILABLE, "a deleted object is still there");
    return e->code == ERR_NOT_FOUND ? 0 : -1;
}

int artifact_remove(struct services *s, const struct artifact *a, struct err *e)
{
    struct row r = {.s = s, .a = *a};
    int rc;

    if (a->state != ARTIFACT_MARKED || a->delete_after > clock_wall_ms(s->clock))
        return 0;
    rc = remove_object(artifacts_store(s->artifacts), a, e) ||
                 store_write_end(s->store, removed_row, &r, e)
             ? -1
             : 0;
    metric_add(meter(s->meters, METER_ARTIFACT_DELETIONS), rc ? METER_ERROR : METER_SUCCESS, 0, 1);
    if (rc)
        log_error(s->log, "artifact_delete_failed", e, LF_ID("artifact_id", &a->artifact_id));
    return rc;
}

/* --- expiring -------------------------------------------------------------------------------- */

static int expired_row(struct store_tx *tx, void *arg, struct err *e)
{
    struct row *r = arg;
    int64_t now = store_now_ms(tx);

    /* Once more: a delivery or a new link may have come between. */
    if (store_artifact_get(tx, &r->a.artifact_id, &r->a, e))
        return -1;
    if (r->a.state == ARTIFACT_CREATED || r->a.state >= ARTIFACT_MARKED ||
        r->a.delete_after > now || r->a.links_until > now)
        return 0;
    r->a.state = ARTIFACT_MARKED;
    return store_artifact_update(tx, &r->a, e) ||
                   artifact_tell(tx, &(struct artifact_deed){.action = "artifact.expired"}, &r->a,
                                 e)
               ? -1
               : 0;
}

static int expire(struct services *s, const struct artifact *a, struct err *e)
{
    struct row r = {.s = s, .a = *a};

    return store_write_end(s->store, expired_row, &r, e);
}

int artifact_end_due(struct services *s, const struct artifact *a, bool *ret_gone, struct err *e)
{
    struct row r = {.s = s, .a = *a};

    *ret_gone = false;
    if (a->state != ARTIFACT_MARKED && store_write_end(s->store, expired_row, &r, e))
        return -1;
    if (r.a.state != ARTIFACT_MARKED)
        return 0;
    if (artifact_remove(s, &r.a, e))
        return -1;
    *ret_gone = true;
    return 0;
}

/* --- healing --------------------------------------------------------------------------------- */

/* 1: it is still what the sweep has seen, 0: its upload has ended meanwhile. */
static int still_created(struct store_tx *tx, struct row *r, struct err *e)
{
    return store_artifact_get(tx, &r->a.artifact_id, &r->a, e) ? (e->code == ERR_NOT_FOUND ? 0 : -1)
                                                               : r->a.state == ARTIFACT_CREATED;
}

/* The object is whole (the store says its length and our token); its sum has died with the gateway,
 * so that it was read for it. */
static int healed_row(struct store_tx *tx, void *arg, struct err *e)
{
    struct row *r = arg;
    int64_t now = store_now_ms(tx);
    int rc = still_created(tx, r, e);

    if (rc <= 0)
        return rc;
    memcpy(r->a.sha256, r->sha256, sizeof r->a.sha256);
    r->a.upload_id[0] = '\0';
    r->a.stored_at = now;
    r->a.state = ARTIFACT_STORED;
    r->a.delete_after = now + r->s->cfg->retention.artifact_ttl_seconds * 1000;
    return store_artifact_update(tx, &r->a, e) ||
                   artifact_tell(tx,
                                 &(struct artifact_deed){.event = "artifact.stored",
                                                         .action = "artifact.healed"},
                                 &r->a, e)
               ? -1
               : 0;
}

static int doomed_row(struct store_tx *tx, void *arg, struct err *e)
{
    struct row *r = arg;
    int rc = still_created(tx, r, e);

    if (rc <= 0)
        return rc;
    r->a.state = ARTIFACT_MARKED;
    r->a.delete_after = store_now_ms(tx);
    return store_artifact_update(tx, &r->a, e);
}

static int heal(struct services *s, const struct artifact *a, struct err *e)
{
    struct objects *o = artifacts_store(s->artifacts);
    struct row r = {.s = s, .a = *a};
    struct object_info info;
    char token[ID_TEXT];
    bool there;

    if (artifacts_is_entered(s->artifacts, &a->artifact_id))
        return 0;
    there = !o->v->head(o, a->object_key, &info, e);
    if (!there && e->code != ERR_NOT_FOUND)
        return -1;
    there = there && info.size_bytes == a->size_bytes &&
            strcmp(info.token, id_format(&a->artifact_id, token)) == 0;
    log_event(s->log, LOG_INFO, "artifact_healed", LF_ID("artifact_id", &a->artifact_id),
              LF_STR("found", there ? "whole" : "not there"));
    if (there)
        return objects_sum(o, a->object_key, r.sha256, e) ||
                       store_write(s->store, healed_row, &r, e)
                   ? -1
                   : 0;
    return store_write_end(s->store, doomed_row, &r, e);
}

/* --- uploads that no row knows ---------------------------------------------------------------- */

static int look_row(struct store_tx *tx, void *arg, struct err *e)
{
    struct row *r = arg;

    return store_artifact_get(tx, &r->a.artifact_id, &r->a, e);
}

/* A row that is `created` is healed, and marked ones are removed, each with its upload. */
static int left_over(void *ctx, const struct object_upload *u, struct err *e)
{
    struct services *s = ctx;
    struct objects *o = artifacts_store(s->artifacts);
    const char *last = strrchr(u->key, '/');
    struct row r = {.s = s};

    if (!last || !id_parse(last + 1, strlen(last + 1), &r.a.artifact_id) ||
        u->started_at > clock_wall_ms(s->clock) - LEFT_OVER_MS)
        return 0;
    if (!store_read(s->store, look_row, &r, e) && r.a.state == ARTIFACT_CREATED)
        return 0;
    log_event(s->log, LOG_WARNING, "upload_left_over", LF_STR("key", u->key));
    return o->v->abort(o, u->key, u->upload_id, e);
}

/* Beneath the prefix: those of a neighbour whose prefix only begins alike are not looked at. */
static int uploads_beneath(struct objects *o, struct services *s, struct err *e)
{
    const char *prefix = s->cfg->objects.prefix;
    struct buf b;
    int rc;

    buf_init(&b, OBJECT_KEY_MAX + 1);
    buf_printf(&b, "%s%s", prefix, *prefix ? "/" : "");
    rc = buf_ok(&b) ? o->v->uploads(o, b.data ? b.data : "", left_over, s, e)
                    : err_set(e, ERR_INTERNAL, "no memory for a prefix");
    buf_done(&b);
    return rc;
}

/* --- the walk -------------------------------------------------------------------------------- */

struct batch {
    enum artifact_work work;
    struct id after;
    struct artifact *items;
    size_t n;
};

static int batch_add(void *ctx, const struct artifact *a, struct err *e)
{
    struct batch *b = ctx;

    (void)e;
    b->items[b->n++] = *a;
    return 0;
}

static int batch_rows(struct store_tx *tx, void *arg, struct err *e)
{
    struct batch *b = arg;

    return store_artifact_work(tx, b->work, &b->after, BATCH, batch_add, b, e);
}

/* Each once: what fails is behind, and comes again in the next sweep. */
static int walk(struct services *s, struct batch *b,
                int (*each)(struct services *s, const struct artifact *a, struct err *e),
                struct err *e)
{
    struct err last;
    int rc = 0;

    b->after = (struct id){0};
    do {
        b->n = 0;
        if (store_read(s->store, batch_rows, b, e))
            return -1;
        for (size_t i = 0; i < b->n && !artifacts_draining(s->artifacts); i++) {
            if (each(s, &b->items[i], &last)) {
                *e = last;
                rc = -1;
            }
            b->after = b->items[i].artifact_id;
        }
    } while (b->n == BATCH && !artifacts_draining(s->artifacts));
    return rc;
}

void artifact_sweep(struct artifacts *x, struct services *s)
{
    static const struct {
        enum artifact_work work;
        int (*each)(struct services *s, const struct artifact *a, struct err *e);
    } steps[] = {{ARTIFACT_WORK_CREATED, heal},
                 {ARTIFACT_WORK_EXPIRED, expire},
                 {ARTIFACT_WORK_MARKED, artifact_remove}};
    struct objects *o = artifacts_store(x);
    struct batch b = {.items = calloc(BATCH, sizeof *b.items)};
    struct err e;

    for (size_t i = 0; b.items && i < sizeof steps / sizeof steps[0]; i++) {
        b.work = steps[i].work;
        if (walk(s, &b, steps[i].each, &e))
            log_error(s->log, "artifact_sweep", &e);
    }
    if (!artifacts_draining(x) && uploads_beneath(o, s, &e))
        log_error(s->log, "artifact_sweep", &e);
    if (!artifacts_draining(x))
        orphans_sweep(artifacts_orphans(x), s);
    free(b.items);
}
