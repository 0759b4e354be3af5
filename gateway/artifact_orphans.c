/*
 * Objects that no row knows: a backup of the metadata that was restored is older than they are. What is
 * ours without doubt is marked when a walk sees it, and removed when another sees it a grace later, so
 * that there is time to restore a better backup. In a store that others share, the maker decides: what
 * another installation has put there is nothing to us.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <uthash.h>

#include "artifacts.h"
#include "meters.h"

#define MARKS_MAX 10000 /* more of them are for later */
#define PACE_KEYS 500   /* after so many the walk takes a breath */
#define PACE_MS   20

enum orphan_count { ORPHAN_MARKED, ORPHAN_REMOVED, ORPHAN_ERROR };

struct mark {
    UT_hash_handle hh;
    struct orphan o;
    uint64_t walk;    /* that has seen it last */
    int64_t since_us; /* boot clock */
    bool foreign;     /* remembered, so that it is not asked about again */
};

struct orphans {
    pthread_mutex_t lock; /* of who walks, or looks at the marks */
    struct mark *marks;
    uint64_t walk;
    int64_t next_us; /* no walk before this, boot clock */
};

struct walk {
    struct orphans *o;
    struct services *s;
    int64_t now_us, seen, foreign;
};

struct orphans *orphans_new(void)
{
    struct orphans *o = calloc(1, sizeof *o);

    if (o)
        pthread_mutex_init(&o->lock, NULL);
    return o;
}

static void drop(struct orphans *o, struct mark *m)
{
    /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc,clang-analyzer-core.NullDereference): so is uthash */
    HASH_DEL(o->marks, m);
    free(m);
}

/* Those that the last walk has not seen: their row is there again, or they are gone. */
static void forget(struct orphans *o, bool all)
{
    struct mark *m, *next;

    HASH_ITER (hh, o->marks, m, next) {
        if (all || m->walk != o->walk)
            drop(o, m);
    }
}

void orphans_free(struct orphans *o)
{
    if (!o)
        return;
    forget(o, true);
    pthread_mutex_destroy(&o->lock);
    free(o);
}

static int64_t grace_us(const struct services *s)
{
    return s->cfg->retention.artifact_delivered_grace_seconds * 1000000;
}

static void count(const struct services *s, enum orphan_count result)
{
    metric_add(meter(s->meters, METER_ARTIFACT_ORPHANS), result, 0, 1);
}

/* --- one object ------------------------------------------------------------------------------- */

/* The artifact of a key; false: no key of ours is spelled so. */
static bool id_of(const struct services *s, const char *key, struct id *ret)
{
    const char *prefix = s->cfg->objects.prefix, *rest = key;
    size_t skip = *prefix ? strlen(prefix) + 1 : 0;
    struct id ids[3];
    struct buf made;
    struct err e;
    bool same;

    rest += strnlen(key, skip);
    for (int i = 0; i < 3; i++) {
        size_t n = strcspn(rest, "/");

        if (!id_parse(rest, n, &ids[i]))
            return false;
        rest += n + (rest[n] == '/');
    }
    buf_init(&made, OBJECT_KEY_MAX + 1);
    same = !objects_key(prefix, &ids[0], &ids[1], &ids[2], &made, &e) && !strcmp(made.data, key);
    buf_done(&made);
    *ret = ids[2];
    return same;
}

struct row_look {
    struct id id;
    bool known;
};

/* A row of a deleted artifact keeps no object: it was proven to be gone. */
static int look_row(struct store_tx *tx, void *arg, struct err *e)
{
    struct row_look *l = arg;
    struct artifact a;

    l->known = !store_artifact_get(tx, &l->id, &a, e);
    if (!l->known)
        return e->code == ERR_NOT_FOUND ? 0 : -1;
    l->known = a.state != ARTIFACT_DELETED;
    return 0;
}

/* The row of an upload is durable before its object: what is written just now has one. */
static int has_row(struct services *s, const struct id *id, bool *ret, struct err *e)
{
    struct row_look l = {.id = *id, .known = true};

    if (!artifacts_is_entered(s->artifacts, id) && store_read(s->store, look_row, &l, e))
        return -1;
    *ret = l.known;
    return 0;
}

/* 1: it is ours, 0: it is not, or gone. A file on the disk that is damaged is ours as well. */
static int look_object(struct services *s, const char *key, struct object_info *ret, struct err *e)
{
    struct objects *o = artifacts_store(s->artifacts);

    *ret = (struct object_info){0};
    if (o->v->head(o, key, ret, e))
        return e->code == ERR_NOT_FOUND ? 0 : o->v->shared ? -1 : 1;
    return !o->v->shared || strcmp(ret->maker, artifacts_maker(s->artifacts)) == 0;
}

static int removed_row(struct store_tx *tx, void *arg, struct err *e)
{
    const struct id *id = arg;

    return store_audit_deed(
        tx, &(struct audit_deed){.action = "artifact.orphan", .kind = "artifact", .id = id}, e);
}

int orphan_remove(struct services *s, const struct orphan *m, struct err *e)
{
    struct objects *o = artifacts_store(s->artifacts);
    struct object_info info;
    struct id id = m->artifact_id;
    bool known;
    int ours;

    if (has_row(s, &id, &known, e))
        return -1;
    ours = known ? 0 : look_object(s, m->key, &info, e);
    if (ours <= 0)
        return ours;
    if (o->v->del(o, m->key, e) || store_write_end(s->store, removed_row, &id, e)) {
        count(s, ORPHAN_ERROR);
        log_error(s->log, "artifact_delete_failed", e, LF_STR("key", m->key));
        return -1;
    }
    count(s, ORPHAN_REMOVED);
    log_event(s->log, LOG_WARNING, "object_orphan_removed", LF_STR("key", m->key));
    return 1;
}

/* --- the walk --------------------------------------------------------------------------------- */

static int mark(struct walk *w, const struct id *id, const char *key, struct err *e)
{
    struct object_info info;
    struct mark *m;
    int ours;

    if (HASH_COUNT(w->o->marks) >= MARKS_MAX || strlen(key) >= sizeof m->o.key)
        return 0;
    ours = look_object(w->s, key, &info, e);
    m = ours >= 0 ? calloc(1, sizeof *m) : NULL;
    if (!m)
        return ours >= 0 ? 0 : -1;
    m->o = (struct orphan){.artifact_id = *id, .size_bytes = info.size_bytes};
    memcpy(m->o.key, key, strlen(key) + 1);
    m->walk = w->o->walk;
    m->since_us = w->now_us;
    m->foreign = !ours;
    HASH_ADD(hh, w->o->marks, o.artifact_id, sizeof m->o.artifact_id, m);
    w->foreign += m->foreign;
    if (m->foreign)
        return 0;
    count(w->s, ORPHAN_MARKED);
    log_event(w->s->log, LOG_WARNING, "object_orphan", LF_STR("key", key));
    return 0;
}

/* A list of a million takes its time, and leaves the store's to others. */
static void breathe(struct walk *w)
{
    if (++w->seen % PACE_KEYS == 0)
        nanosleep(&(struct timespec){.tv_nsec = PACE_MS * 1000000L}, NULL);
}

/* What could not be removed stays marked, and is for the next walk. */
static int look(void *ctx, const char *key, struct err *e)
{
    struct walk *w = ctx;
    struct mark *m;
    struct err later;
    struct id id;
    bool known;

    if (artifacts_draining(w->s->artifacts))
        return err_set(e, ERR_BUSY, "the gateway is stopping");
    breathe(w);
    if (!id_of(w->s, key, &id))
        return 0;
    if (has_row(w->s, &id, &known, e))
        return -1;
    if (known)
        return 0;
    HASH_FIND(hh, w->o->marks, &id, sizeof id, m);
    if (!m)
        return mark(w, &id, key, e);
    if (m->foreign || w->now_us - m->since_us < grace_us(w->s) ||
        orphan_remove(w->s, &m->o, &later) <= 0) /* which has logged why */
        m->walk = w->o->walk;
    return 0;
}

void orphans_sweep(struct orphans *o, struct services *s)
{
    struct objects *store = artifacts_store(s->artifacts);
    struct walk w = {.o = o, .s = s, .now_us = clock_boot_us(s->clock)};
    struct err e;

    if (w.now_us < o->next_us)
        return;
    pthread_mutex_lock(&o->lock);
    o->next_us = w.now_us + grace_us(s);
    o->walk++;
    if (!store->v->list(store, s->cfg->objects.prefix, look, &w, &e))
        forget(o, false);
    else if (!artifacts_draining(s->artifacts))
        log_error(s->log, "artifact_sweep", &e);
    pthread_mutex_unlock(&o->lock);
    if (w.foreign)
        log_event(s->log, LOG_WARNING, "objects_foreign", LF_INT("objects", w.foreign));
}

int orphans_each(struct orphans *o, struct services *s, bool due_only,
                 int (*each)(void *ctx, const struct orphan *m, struct err *e), void *ctx,
                 struct err *e)
{
    int64_t since_us = clock_boot_us(s->clock) - (due_only ? grace_us(s) : 0);
    struct mark *m, *next;
    int rc = 0;

    if (pthread_mutex_trylock(&o->lock))
        return 0;
    HASH_ITER (hh, o->marks, m, next) {
        if (rc >= 0 && !m->foreign && m->since_us <= since_us)
            rc = each(ctx, &m->o, e);
        if (rc > 0)
            drop(o, m);
        rc = rc < 0 ? rc : 0;
    }
    pthread_mutex_unlock(&o->lock);
    return rc;
}
