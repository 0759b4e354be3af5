#include "session_cache.h"

#include <stdlib.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#include "stmt.h"

#define STEPS_KEPT_MAX 4096 /* a list that was longer gives its memory back */

struct session_entry {
    struct sandbox s; /* but for log_seq, as of the last reading */
    bool has_row;
    int64_t saved_seq; /* in the file */
    UT_hash_handle hh; /* by s.session_id */
};

static int no_memory(struct err *e)
{
    return err_set(e, ERR_INTERNAL, "no memory for a session of a write");
}

static struct session_entry *find(const struct session_cache *c, const struct id *session_id)
{
    struct session_entry *entry;
    HASH_FIND(hh, c->entries, session_id, sizeof(*session_id), entry);
    return entry;
}

const struct sandbox *session_cache_get(const struct session_cache *c, const struct id *session_id)
{
    const struct session_entry *entry = find(c, session_id);
    return entry != NULL && entry->has_row ? &entry->s : NULL;
}

int64_t session_cache_seq(const struct session_cache *c, const struct id *session_id,
                          int64_t log_seq)
{
    const struct session_entry *entry = find(c, session_id);
    return entry != NULL ? entry->s.log_seq : log_seq;
}

static struct session_entry *entry_new(struct session_cache *c, const struct sandbox *s)
{
    struct session_entry *entry = calloc(1, sizeof(*entry));
    if (entry == NULL) {
        return NULL;
    }
    entry->s = *s;
    entry->saved_seq = s->log_seq;
    HASH_ADD(hh, c->entries, s.session_id, sizeof(entry->s.session_id), entry);
    if (entry->hh.tbl == NULL) {
        free(entry);
        return NULL;
    }
    return entry;
}

int session_cache_put(struct session_cache *c, const struct sandbox *s, struct err *e)
{
    struct session_entry *entry = find(c, &s->session_id);
    if (entry == NULL && (entry = entry_new(c, s)) == NULL) {
        return no_memory(e);
    }
    int64_t seq = entry->s.log_seq;
    entry->s = *s;
    entry->s.log_seq = seq;
    entry->has_row = true;
    return 0;
}

static int steps_grow(struct session_cache *c)
{
    size_t size = c->size == 0 ? 64 : c->size * 2;
    struct session_entry **steps = reallocarray(c->steps, size, sizeof(struct session_entry *));
    if (steps == NULL) {
        return -1;
    }
    c->steps = steps;
    c->size = size;
    return 0;
}

int session_cache_next_seq(struct session_cache *c, const struct id *session_id, int64_t *ret,
                           struct err *e)
{
    struct session_entry *entry = find(c, session_id);
    if (entry == NULL) {
        return err_set(e, ERR_INTERNAL, "a session of a write is not held");
    }
    if (c->n == c->size && steps_grow(c) != 0) {
        return no_memory(e);
    }
    c->steps[c->n++] = entry;
    *ret = ++entry->s.log_seq;
    return 0;
}

void session_cache_forget_rows(struct session_cache *c)
{
    for (struct session_entry *entry = c->entries; entry != NULL; entry = entry->hh.next) {
        entry->has_row = false;
    }
}

void session_cache_undo(struct session_cache *c, size_t kept)
{
    while (c->n > kept) {
        c->steps[--c->n]->s.log_seq--;
    }
    session_cache_forget_rows(c);
}

static int write_seq(struct conn *conn, const struct session_entry *entry, struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, conn, "sandbox", "UPDATE sandboxes SET log_seq = ? WHERE session_id = ?",
                  e) != 0) {
        return -1;
    }
    bind_int(&st, entry->s.log_seq);
    bind_id(&st, &entry->s.session_id);
    return stmt_run(&st, e); /* it may have been deleted since */
}

int session_cache_write(struct session_cache *c, struct conn *conn, struct err *e)
{
    for (struct session_entry *entry = c->entries; entry != NULL; entry = entry->hh.next) {
        if (entry->s.log_seq != entry->saved_seq && write_seq(conn, entry, e) != 0) {
            return -1;
        }
    }
    return 0;
}

void session_cache_reset(struct session_cache *c)
{
    struct session_entry *entry, *next;
    HASH_ITER (hh, c->entries, entry, next) {
        /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): the first has no predecessor */
        HASH_DEL(c->entries, entry);
        free(entry);
    }
    c->n = 0;
    if (c->size > STEPS_KEPT_MAX) {
        session_cache_free(c);
    }
}

void session_cache_free(struct session_cache *c)
{
    free(c->steps);
    *c = (struct session_cache){.entries = c->entries};
}
