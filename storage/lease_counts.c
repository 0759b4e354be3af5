#include "lease_counts.h"

#include <stdlib.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#include "lease_blocks.h"
#include "stmt.h"

#define STEPS_KEPT_MAX 4096 /* a list that was longer gives its memory back */

/* A caller chooses its users' ids, so one may be a session's as well. */
struct tally_key {
    struct id id;
    uint8_t of_user;
};

struct lease_tally {
    struct tally_key key;
    int64_t open;
    UT_hash_handle hh;
};

struct lease_step {
    struct id session_id, user_id;
    int64_t delta;
};

static struct lease_tally *tally_find(const struct lease_counts *c, const struct id *id,
                                      bool of_user)
{
    struct tally_key key = {.id = *id, .of_user = of_user};
    struct lease_tally *t;
    HASH_FIND(hh, c->tallies, &key, sizeof(key), t);
    return t;
}

/* NULL without memory. */
static struct lease_tally *tally_get(struct lease_counts *c, const struct id *id, bool of_user)
{
    struct lease_tally *t = tally_find(c, id, of_user);
    if (t != NULL) {
        return t;
    }
    t = calloc(1, sizeof(*t));
    if (t == NULL) {
        return NULL;
    }
    t->key = (struct tally_key){.id = *id, .of_user = of_user};
    HASH_ADD(hh, c->tallies, key, sizeof(t->key), t);
    if (t->hh.tbl == NULL) {
        free(t);
        return NULL;
    }
    return t;
}

static void tally_drop_empty(struct lease_counts *c, const struct id *id, bool of_user)
{
    struct lease_tally *t = tally_find(c, id, of_user);
    if (t != NULL && t->open == 0) {
        /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): what is found is in the table */
        HASH_DEL(c->tallies, t);
        free(t);
    }
}

static int no_memory(struct err *e)
{
    return err_set(e, ERR_INTERNAL, "no memory to count leases");
}

static int apply(struct lease_counts *c, const struct lease_step *s, int64_t sign, struct err *e)
{
    struct lease_tally *of_session = tally_get(c, &s->session_id, false);
    struct lease_tally *of_user = tally_get(c, &s->user_id, true);
    if (of_session == NULL || of_user == NULL) {
        return no_memory(e);
    }
    of_session->open += sign * s->delta;
    of_user->open += sign * s->delta;
    c->all += sign * s->delta;
    return 0;
}

int lease_counts_add(struct lease_counts *c, const struct id *session_id, const struct id *user_id,
                     int64_t delta, struct err *e)
{
    struct lease_step step = {.session_id = *session_id, .user_id = *user_id, .delta = delta};
    if (c->n == c->size) {
        size_t size = c->size == 0 ? 64 : c->size * 2;
        struct lease_step *steps = reallocarray(c->steps, size, sizeof(*steps));
        if (steps == NULL) {
            return no_memory(e);
        }
        c->steps = steps;
        c->size = size;
    }
    if (apply(c, &step, 1, e) != 0) {
        return -1;
    }
    c->steps[c->n++] = step;
    return 0;
}

/* The tallies of a step are there until the group is over, so this needs no memory. */
void lease_counts_undo(struct lease_counts *c, size_t kept)
{
    struct err none;
    while (c->n > kept) {
        if (apply(c, &c->steps[--c->n], -1, &none) != 0) {
            abort();
        }
        tally_drop_empty(c, &c->steps[c->n].session_id, false);
        tally_drop_empty(c, &c->steps[c->n].user_id, true);
    }
}

void lease_counts_settle(struct lease_counts *c)
{
    for (size_t i = 0; i < c->n; i++) {
        tally_drop_empty(c, &c->steps[i].session_id, false);
        tally_drop_empty(c, &c->steps[i].user_id, true);
    }
    c->n = 0;
    if (c->size > STEPS_KEPT_MAX) {
        free(c->steps);
        c->steps = NULL;
        c->size = 0;
    }
}

static int64_t count_of(const struct lease_counts *c, const struct id *id, bool of_user)
{
    const struct lease_tally *t = tally_find(c, id, of_user);
    return t != NULL ? t->open : 0;
}

int64_t lease_counts_of_session(const struct lease_counts *c, const struct id *session_id)
{
    return count_of(c, session_id, false);
}

int64_t lease_counts_of_user(const struct lease_counts *c, const struct id *user_id)
{
    return count_of(c, user_id, true);
}

static int load_row(struct lease_counts *c, struct stmt *st, struct err *e)
{
    struct lease_step step;
    column_id(st, &step.session_id);
    column_id(st, &step.user_id);
    step.delta = column_int(st);
    return apply(c, &step, 1, e);
}

static int load_last_n(struct lease_counts *c, struct conn *conn, struct err *e)
{
    struct stmt st;
    return stmt_open(&st, conn, "lease", "SELECT COALESCE(MAX(n), 0) FROM leases", e) == 0
               ? stmt_end_with_int(&st, ERR_INTERNAL, &c->last_n, e)
               : -1;
}

int lease_counts_load(struct lease_counts *c, struct conn *conn, struct err *e)
{
    struct stmt st;
    if (load_last_n(c, conn, e) != 0) {
        return -1;
    }
    if (stmt_open(&st, conn, "lease",
                  "SELECT session_id, user_id, COUNT(*) FROM lease_open_blocks CROSS JOIN leases"
                  " WHERE " LEASE_IN_BLOCK "AND closed = 0 AND " LEASE_IS_OPEN
                  " GROUP BY session_id, user_id",
                  e) != 0) {
        return -1;
    }
    bool row = true;
    int rc = 0;
    while (rc == 0 && (rc = stmt_next(&st, &row, e)) == 0 && row) {
        rc = load_row(c, &st, e);
    }
    return stmt_end(&st, rc, e);
}

void lease_counts_free(struct lease_counts *c)
{
    struct lease_tally *t, *next;
    HASH_ITER (hh, c->tallies, t, next) {
        /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): the first has no predecessor */
        HASH_DEL(c->tallies, t);
        free(t);
    }
    free(c->steps);
    *c = (struct lease_counts){0};
}
