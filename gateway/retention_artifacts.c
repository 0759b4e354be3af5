/* Artifacts that are over: what the sweep would end the next time. */
#include <stdlib.h>

#include "artifacts.h"
#include "retention.h"

#define BATCH 16

struct due {
    enum artifact_work work;
    struct id after;
    struct artifact *items;
    size_t n;
};

static int add(void *ctx, const struct artifact *a, struct err *e)
{
    struct due *d = ctx;

    (void)e;
    d->items[d->n++] = *a;
    return 0;
}

static int due_rows(struct store_tx *tx, void *arg, struct err *e)
{
    struct due *d = arg;

    return store_artifact_work(tx, d->work, &d->after, BATCH, add, d, e);
}

static int end_one(const struct retention_round *r, const struct due *d, const struct artifact *a,
                   struct err *e)
{
    bool gone = r->dry_run;

    if (!r->dry_run && artifact_end_due(r->s, a, &gone, e))
        return -1;
    if (gone)
        retention_tell(r, RETENTION_ARTIFACT, ID_STR(&a->artifact_id),
                       d->work == ARTIFACT_WORK_EXPIRED ? "expired" : "deleted", a->size_bytes);
    return 0;
}

/* The first that fails is the last: a store of objects that is away answers none of them. */
static int end_all(const struct retention_round *r, struct due *d, struct err *e)
{
    d->after = (struct id){0};
    do {
        d->n = 0;
        if (store_read(r->s->store, due_rows, d, e))
            return -1;
        for (size_t i = 0; i < d->n && !r->s->stopping; i++) {
            if (end_one(r, d, &d->items[i], e))
                return -1;
            d->after = d->items[i].artifact_id;
        }
    } while (d->n == BATCH && !r->s->stopping);
    return 0;
}

static int end_orphan(void *ctx, const struct orphan *m, struct err *e)
{
    const struct retention_round *r = ctx;
    int gone = r->dry_run ? 1 : orphan_remove(r->s, m, e);

    if (gone > 0)
        retention_tell(r, RETENTION_ARTIFACT, ID_STR(&m->artifact_id), "orphan", m->size_bytes);
    return r->dry_run ? 0 : gone;
}

/* A dry run tells of all that are marked: they will go unless their rows come back. */
static int end_orphans(const struct retention_round *r, struct err *e)
{
    struct retention_round round = *r;

    return orphans_each(artifacts_orphans(r->s->artifacts), r->s, !r->dry_run, end_orphan, &round,
                        e);
}

/* Marked ones first: those that expire now are marked, too, and would be told of twice. */
int retention_artifacts(const struct retention_round *r, struct err *e)
{
    struct due d = {.work = ARTIFACT_WORK_MARKED, .items = calloc(BATCH, sizeof *d.items)};
    int rc = d.items ? end_all(r, &d, e) : err_set(e, ERR_INTERNAL, "no memory for artifacts");

    d.work = ARTIFACT_WORK_EXPIRED;
    if (!rc)
        rc = end_all(r, &d, e);
    if (!rc)
        rc = end_orphans(r, e);
    free(d.items);
    return rc;
}
