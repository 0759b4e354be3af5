/* Objects that no row knows: a backup of the metadata that was restored is older than they are. */
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#include "artifacts.h"

#define MARKS_MAX 10000 /* more of them are for later */

struct mark {
    UT_hash_handle hh;
    struct id id;
    uint64_t walk; /* that has seen it last */
};

struct orphans {
    struct mark *marks;
    uint64_t walk;
    int64_t next_us; /* no walk before this, boot clock */
};

struct walk {
    struct orphans *o;
    struct services *s;
};

struct orphans *orphans_new(void)
{
    return calloc(1, sizeof(struct orphans));
}

/* Those that the last walk has not seen: their row is there again, or they are gone. */
static void forget(struct orphans *o, bool all)
{
    struct mark *m, *next;

    HASH_ITER (hh, o->marks, m, next) {
        if (!all && m->walk == o->walk)
            continue;
        /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): the first has no predecessor */
        HASH_DEL(o->marks, m);
        free(m);
    }
}

void orphans_free(struct orphans *o)
{
    if (!o)
        return;
    forget(o, true);
    free(o);
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

static int removed_row(struct store_tx *tx, void *arg, struct err *e)
{
    const struct id *id = arg;

    return store_audit_deed(
        tx, &(struct audit_deed){.action = "artifact.orphan", .kind = "artifact", .id = id}, e);
}

static void mark(const struct walk *w, const struct id *id, const char *key)
{
    struct mark *m = HASH_COUNT(w->o->marks) < MARKS_MAX ? calloc(1, sizeof *m) : NULL;

    if (!m)
        return;
    m->id = *id;
    m->walk = w->o->walk;
    HASH_ADD(hh, w->o->marks, id, sizeof m->id, m);
    log_event(w->s->log, LOG_WARNING, "object_orphan", LF_STR("key", key));
}

/* What could not be removed stays marked. */
static void remove_marked(const struct walk *w, struct mark *m, const char *key)
{
    struct objects *store = artifacts_store(w->s->artifacts);
    struct err e;

    m->walk = w->o->walk;
    if (store->v->del(store, key, &e) || store_write_end(w->s->store, removed_row, &m->id, &e))
        log_error(w->s->log, "artifact_delete_failed", &e, LF_STR("key", key));
    else
        log_event(w->s->log, LOG_WARNING, "object_orphan_removed", LF_STR("key", key));
}

/* The row of an upload is durable before its object: what is written just now has one. */
static int look(void *ctx, const char *key, struct err *e)
{
    const struct walk *w = ctx;
    const char *last = strrchr(key, '/');
    struct row_look l = {.known = false};
    struct mark *m;

    if (w->s->stopping || !last || !id_parse(last + 1, strlen(last + 1), &l.id) ||
        artifacts_is_entered(w->s->artifacts, &l.id))
        return 0;
    if (store_read(w->s->store, look_row, &l, e))
        return -1;
    if (l.known)
        return 0;
    HASH_FIND(hh, w->o->marks, &l.id, sizeof l.id, m);
    if (m)
        remove_marked(w, m, key);
    else
        mark(w, &l.id, key);
    return 0;
}

void orphans_sweep(struct orphans *o, struct services *s)
{
    struct objects *store = artifacts_store(s->artifacts);
    int64_t now_us = clock_boot_us(s->clock);
    struct walk w = {.o = o, .s = s};
    struct err e;

    if (!store->v->list || now_us < o->next_us)
        return;
    o->next_us = now_us + s->cfg->retention.artifact_delivered_grace_seconds * 1000000;
    o->walk++;
    if (store->v->list(store, s->cfg->objects.prefix, look, &w, &e))
        log_error(s->log, "artifact_sweep", &e);
    else
        forget(o, false);
}
