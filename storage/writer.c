#include "writer.h"

#include <assert.h>
#include <errno.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "leasehold/clock.h"
#include "monotonic.h"
#include "stmt.h"
#include "store.h"

#define IDLE_MS          2000
#define CHANGES_KEPT_MAX 1024 /* a list that was longer gives its memory back */

/* No further write that lets others pass begins in a group that has taken so long: what comes meanwhile
 * waits for that. */
#define LATER_US 1000

/* --- the transaction of one write ------------------------------------------------------------ */

void store_emit(struct store_tx *tx, const struct change *c)
{
    struct change_list *list = tx->changes;
    assert(list != NULL);
    if (list->n == list->size) {
        size_t size = list->size == 0 ? 16 : list->size * 2;
        struct change *items = reallocarray(list->items, size, sizeof(*items));
        if (items == NULL) {
            tx->no_memory = true;
            return;
        }
        list->items = items;
        list->size = size;
    }
    list->items[list->n++] = *c;
}

int64_t store_now_ms(const struct store_tx *tx)
{
    return tx->now_ms;
}

int64_t store_tx_clock_behind_ms(const struct store_tx *tx)
{
    return tx->high_water != NULL ? high_water_behind_ms(tx->high_water, tx->now_ms) : 0;
}

static void changes_reset(struct change_list *list)
{
    list->n = 0;
    if (list->size > CHANGES_KEPT_MAX) {
        free(list->items);
        *list = (struct change_list){0};
    }
}

static int call_write(struct writer *w, struct store_job *j)
{
    struct store_tx tx = {
        .conn = &w->conn,
        .now_ms = clock_wall_ms(w->options.clock),
        .usage = w->usage,
        .changes = &w->changes,
        .audit = &w->audit,
        .leases = &w->leases,
        .lease_blocks = &w->lease_blocks,
        .sessions = &w->sessions,
        .events = &w->events,
        .high_water = &w->high_water,
    };
    high_water_note(&w->high_water, tx.now_ms);
    err_clear(&j->e);
    int rc = j->fn(&tx, j->arg, &j->e);
    if (rc == 0 && tx.no_memory) {
        rc = err_set(&j->e, ERR_INTERNAL, "no memory for a change");
    }
    return rc;
}

static int lost(const struct store_job *j, const char *why, struct err *e)
{
    enum err_code code =
        j->rc != 0 && j->e.code == ERR_STORAGE_FULL ? ERR_STORAGE_FULL : ERR_INTERNAL;
    return err_set(e, code, "%s", why);
}

/* A full disk or an I/O error may end SQLite's whole transaction under the write: then nothing that
 * ran before in this group is left either. */
static int check_transaction(struct writer *w, const struct store_job *j, struct err *e)
{
    return sqlite3_get_autocommit(w->conn.db) == 0 ? 0
                                                   : lost(j, "the transaction was broken off", e);
}

/* What a write finds, and gets back when it fails. */
struct write_mark {
    size_t changes, leases, lease_blocks, sessions;
    struct audit_mark audit;
    struct event_mark events;
    int rows; /* changed on the connection so far */
};

static struct write_mark write_mark(struct writer *w)
{
    return (struct write_mark){.changes = w->changes.n,
                               .leases = w->leases.n,
                               .lease_blocks = w->lease_blocks.n,
                               .sessions = w->sessions.n,
                               .audit = audit_trail_mark(&w->audit),
                               .events = event_group_mark(&w->events),
                               .rows = sqlite3_total_changes(w->conn.db)};
}

static void write_undo(struct writer *w, const struct write_mark *mark)
{
    w->changes.n = mark->changes;
    audit_trail_undo(&w->audit, &mark->audit);
    lease_counts_undo(&w->leases, mark->leases);
    lease_blocks_undo(&w->lease_blocks, mark->lease_blocks);
    session_cache_undo(&w->sessions, mark->sessions);
    event_group_undo(&w->events, mark->events);
}

/* Runs one write under a savepoint. -1: the transaction is lost, not just this write. */
static int run_guarded(struct writer *w, struct store_job *j, struct err *e)
{
    struct write_mark mark = write_mark(w);
    if (stmt_exec(&w->conn, "SAVEPOINT one_write", e) != 0) {
        return -1;
    }
    j->rc = call_write(w, j);
    if (check_transaction(w, j, e) != 0) {
        return -1;
    }
    if (j->rc != 0) {
        write_undo(w, &mark);
        if (stmt_exec(&w->conn, "ROLLBACK TO one_write", e) != 0) {
            return -1;
        }
    }
    return stmt_exec(&w->conn, "RELEASE one_write", e);
}

/* The same of one that changes nothing before it can fail. */
static int run_sound(struct writer *w, struct store_job *j, struct err *e)
{
    struct write_mark mark = write_mark(w);
    j->rc = call_write(w, j);
    if (check_transaction(w, j, e) != 0) {
        return -1;
    }
    if (j->rc != 0) {
        write_undo(w, &mark);
        if (sqlite3_total_changes(w->conn.db) != mark.rows) {
            return lost(j, "a write failed in the middle", e);
        }
    }
    return 0;
}

static int run_write(struct writer *w, struct store_job *j, struct err *e)
{
    return j->sound ? run_sound(w, j, e) : run_guarded(w, j, e);
}

/* --- a group ---------------------------------------------------------------------------------- */

static struct store_job *next_of(const struct store_job *j)
{
    return (struct store_job *)j->job.next;
}

/* Of those that let others pass, the next that belongs to this group. A simulation, whose time stands
 * still meanwhile, has one in a group. */
static struct store_job *next_later(struct writer *w, int64_t start_us)
{
    if (w->options.manual || clock_boot_us(&clock_system) - start_us >= LATER_US) {
        return NULL;
    }
    return write_queue_take_later(&w->queue);
}

/* The last of a group, and only it, may bring others of its kind along: they join the group. */
static int run_all(struct writer *w, struct store_job *group, struct err *e)
{
    int64_t start_us = clock_boot_us(&clock_system);
    for (struct store_job *j = group; j != NULL; j = next_of(j)) {
        if (run_write(w, j, e) != 0 || audit_trail_write_long(&w->audit, &w->conn, e) != 0) {
            return -1;
        }
        if (j->later && j->job.next == NULL) {
            j->job.next = (struct job *)next_later(w, start_us);
        }
    }
    return 0;
}

/* The disk takes its time: what can be done meanwhile begins. */
static void tell_ran(struct store_job *group)
{
    for (struct store_job *j = group; j != NULL; j = next_of(j)) {
        if (j->rc == 0 && j->ran != NULL) {
            j->ran(j);
        }
    }
}

static int run_writes(struct writer *w, struct store_job *group, struct err *e)
{
    if (stmt_exec(&w->conn, "BEGIN IMMEDIATE", e) != 0 || run_all(w, group, e) != 0) {
        return -1;
    }
    if (session_cache_write(&w->sessions, &w->conn, e) != 0 ||
        lease_blocks_write(&w->lease_blocks, &w->conn, e) != 0 ||
        audit_trail_write(&w->audit, &w->conn, e) != 0 ||
        event_group_write(&w->events, &w->conn, e) != 0 ||
        high_water_write(&w->high_water, &w->conn, e) != 0) {
        return -1;
    }
    tell_ran(group);
    return stmt_exec(&w->conn, "COMMIT", e);
}

static void fail_group(struct writer *w, struct store_job *group, const struct err *e)
{
    conn_rollback(&w->conn);
    log_error(w->options.log, "store_commit_failed", e);
    for (struct store_job *j = group; j != NULL; j = next_of(j)) {
        if (j->rc == 0) {
            j->rc = -1;
            j->e = *e;
        }
    }
}

/* From its answer on a write belongs to its sender again. */
static void answer(struct writer *w, struct store_job *group)
{
    while (group != NULL) {
        struct store_job *j = group;
        group = next_of(j);
        j->job.next = NULL;
        if (j->job.run != NULL) {
            j->job.run(&j->job);
        } else if (j->committed != NULL) {
            j->committed(j);
        } else {
            inbox_post(w->options.inbox, &j->job);
        }
    }
}

/* Before its answer, so that who has been answered finds it counted. */
static void record_group(struct writer *w, const struct store_job *group, bool durable,
                         int64_t start_us)
{
    const struct store_meters *m = &w->options.meters;
    int64_t n = 0;
    for (const struct store_job *j = group; j != NULL; j = next_of(j)) {
        metric_observe(m->lane.wait, m->lane.lane, 0, start_us - j->job.queued_us);
        n++;
    }
    metric_add(durable ? m->commits : m->errors, 0, 0, 1);
    metric_observe(m->group, 0, 0, n);
    metric_observe(m->duration, 0, 0, clock_boot_us(&clock_system) - start_us);
    metric_set(m->wal_pages, 0, 0, w->checkpoint.wal_pages);
    atomic_fetch_sub(&w->depth, (size_t)n);
}

/* What has become durable goes to those who act on it, in order. */
static void tell_group(struct writer *w)
{
    const struct store_options *o = &w->options;
    if (w->changes.n > 0 && o->changed != NULL) {
        o->changed(o->changed_ctx, w->changes.items, w->changes.n);
    }
    struct store_event_batch batch;
    if (event_group_batch(&w->events, &batch) && o->logged != NULL) {
        o->logged(o->logged_ctx, &batch);
    }
}

static void commit_group(struct writer *w, struct store_job *group)
{
    struct err e;
    struct audit_mark audit_before = audit_trail_mark(&w->audit);
    struct event_mark events_before = event_group_mark(&w->events);
    int64_t start_us = clock_boot_us(&clock_system);
    bool durable = run_writes(w, group, &e) == 0;
    high_water_settle(&w->high_water, durable);
    record_group(w, group, durable, start_us);
    if (!durable) {
        fail_group(w, group, &e);
        audit_trail_undo(&w->audit, &audit_before);
        w->changes.n = 0;
        lease_counts_undo(&w->leases, 0);
        lease_blocks_undo(&w->lease_blocks, 0);
        event_group_undo(&w->events, events_before);
    } else {
        tell_group(w);
    }
    changes_reset(&w->changes);
    event_group_reset(&w->events);
    lease_counts_settle(&w->leases);
    lease_blocks_settle(&w->lease_blocks);
    session_cache_reset(&w->sessions);
    answer(w, group);
    if (checkpoint_is_due(&w->checkpoint)) {
        reserve_renew(&w->reserve);
        checkpoint_after_commit(&w->checkpoint);
    }
}

/* Takes the writes that end nothing out of the group. */
static struct store_job *take_ordinary(struct store_job **group)
{
    struct job *ends = NULL, **ends_tail = &ends, *others = NULL, **others_tail = &others;
    for (struct store_job *j = *group; j != NULL; j = next_of(j)) {
        struct job ***tail = j->ends ? &ends_tail : &others_tail;
        **tail = &j->job;
        *tail = &j->job.next;
    }
    *ends_tail = *others_tail = NULL;
    *group = (struct store_job *)ends;
    return (struct store_job *)others;
}

static void refuse(struct writer *w, struct store_job *group, enum err_code code, const char *why)
{
    size_t n = 0;
    for (struct store_job *j = group; j != NULL; j = next_of(j)) {
        j->rc = err_set(&j->e, code, "%s", why);
        n++;
    }
    atomic_fetch_sub(&w->depth, n);
    answer(w, group);
}

static void run_group(struct writer *w, struct store_job *group)
{
    if (atomic_load(&w->refusing)) {
        refuse(w, group, ERR_INTERNAL, "the database is damaged: restore a backup");
        return;
    }
    reserve_renew(&w->reserve);
    if (reserve_is_short(&w->reserve)) {
        reserve_tidy(&w->reserve); /* it may be our own log that fills the disk */
    }
    if (reserve_is_short(&w->reserve)) {
        refuse(w, take_ordinary(&group), ERR_STORAGE_FULL, "the disk of the store is full");
    }
    if (group != NULL) {
        commit_group(w, group);
    }
}

/* --- the queue -------------------------------------------------------------------------------- */

static int enqueue(struct writer *w, struct store_job *j, struct err *e)
{
    j->job.queued_us = clock_boot_us(&clock_system);
    j->rc = 0;
    atomic_fetch_add(&w->depth, 1);
    if (write_queue_put(&w->queue, j, w->options.queue_max)) {
        return 0;
    }
    atomic_fetch_sub(&w->depth, 1);
    metric_add(w->options.meters.lane.rejected, w->options.meters.lane.lane, 0, 1);
    return err_set(e, ERR_BUSY, "too many writes wait");
}

/* Takes a waiting write back. False: the writer has it already. */
static bool withdraw(struct writer *w, struct store_job *j)
{
    bool found = write_queue_withdraw(&w->queue, j);
    atomic_fetch_sub(&w->depth, found);
    return found;
}

static bool is_untidy(const struct writer *w)
{
    return checkpoint_is_pending(&w->checkpoint) || reserve_is_short(&w->reserve);
}

/* The reserve before the checkpoint, which may use of it, and behind it for what has come free. */
static void tidy_up(struct writer *w)
{
    reserve_renew(&w->reserve);
    if (checkpoint_is_pending(&w->checkpoint)) {
        checkpoint_when_idle(&w->checkpoint);
    }
    reserve_tidy(&w->reserve);
}

/* Waits for writes; meanwhile brings the log back into the file. NULL: the store closes. */
static struct store_job *wait_for_group(struct writer *w)
{
    while (!write_queue_wait(&w->queue, is_untidy(w) ? IDLE_MS : 0)) {
        tidy_up(w);
    }
    return write_queue_take(&w->queue, w->options.group_max);
}

static bool turn(struct writer *w)
{
    struct store_job *group = write_queue_take(&w->queue, w->options.group_max);
    if (group != NULL) {
        run_group(w, group);
    }
    return group != NULL;
}

static void *writer_main(void *arg)
{
    struct writer *w = arg;
    struct store_job *group;
    while ((group = wait_for_group(w)) != NULL) {
        run_group(w, group);
    }
    return NULL;
}

/* --- what others call ------------------------------------------------------------------------- */

/* A semaphore each: woken together, they do not queue up behind one lock. */
struct waiter {
    struct store_job job; /* first: found again from it */
    sem_t answered;
    atomic_bool done; /* says what the semaphore says, to ThreadSanitizer, too */
};

static void waiter_answer(struct job *job)
{
    struct waiter *w = (struct waiter *)job;
    atomic_store(&w->done, true);
    sem_post(&w->answered); /* the waiter is gone from here on */
}

/* A write that still waits when its time is over is taken back. One that runs is waited for: it is
 * bounded by SQLite's own timeout and the disk, and its arguments are the caller's. */
static int await_answer(struct writer *w, struct waiter *waiter, struct err *e)
{
    struct timespec until = monotonic_in_ms(w->options.wait_ms);
    int rc;
    do {
        rc = sem_clockwait(&waiter->answered, CLOCK_MONOTONIC, &until);
    } while (rc != 0 && errno == EINTR);
    if (rc != 0 && withdraw(w, &waiter->job)) {
        return err_set(e, ERR_BUSY, "the store did not come to this write in time");
    }
    while (rc != 0) {
        rc = sem_wait(&waiter->answered);
    }
    assert(atomic_load(&waiter->done));
    if (waiter->job.rc != 0) {
        *e = waiter->job.e;
    }
    return waiter->job.rc;
}

static int write_and_wait(struct store *s, const struct store_job *job, struct err *e)
{
    struct writer *w = &s->writer;
    assert(w->options.manual || !pthread_equal(pthread_self(), w->thread));
    struct waiter waiter = {.job = *job};
    waiter.job.job.run = waiter_answer;
    sem_init(&waiter.answered, 0, 0);
    int rc = enqueue(w, &waiter.job, e);
    while (rc == 0 && w->options.manual && turn(w)) {
    }
    rc = rc == 0 ? await_answer(w, &waiter, e) : -1;
    sem_destroy(&waiter.answered);
    return rc;
}

int store_write(struct store *s, store_fn fn, void *arg, struct err *e)
{
    return write_and_wait(s, &(struct store_job){.fn = fn, .arg = arg}, e);
}

int store_write_end(struct store *s, store_fn fn, void *arg, struct err *e)
{
    return write_and_wait(s, &(struct store_job){.fn = fn, .arg = arg, .ends = true}, e);
}

bool store_turn(struct store *s)
{
    return turn(&s->writer);
}

int64_t store_clock_behind_ms(const struct store *s)
{
    const struct writer *w = &s->writer;
    return high_water_behind_ms(&w->high_water, clock_wall_ms(w->options.clock));
}

size_t store_depth(const struct store *s)
{
    return atomic_load(&s->writer.depth);
}

int store_submit(struct store *s, struct store_job *j, struct err *e)
{
    assert(j->committed != NULL || (s->writer.options.inbox != NULL && j->job.done != NULL));
    j->job.run = NULL; /* answered through the inbox */
    return enqueue(&s->writer, j, e);
}

/* --- life ------------------------------------------------------------------------------------- */

int writer_open(struct writer *w, const struct store_options *o, struct err *e)
{
    w->options = *o;
    w->options.path = NULL; /* the caller's, and not needed again */
    if (conn_open(o->path, CONN_WRITE, &w->conn, e) != 0) {
        return -1;
    }
    checkpoint_init(&w->checkpoint, &w->conn, o->log);
    return 0;
}

int writer_start(struct writer *w, struct err *e)
{
    write_queue_init(&w->queue);
    w->started = w->options.manual;
    if (w->options.manual) {
        return 0;
    }
    int rc = pthread_create(&w->thread, NULL, writer_main, w);
    if (rc != 0) {
        write_queue_done(&w->queue);
        return err_sys(e, ERR_INTERNAL, rc, "cannot start the writer thread");
    }
    pthread_setname_np(w->thread, "store");
    w->started = true;
    return 0;
}

void writer_refuse_all(struct writer *w)
{
    atomic_store(&w->refusing, true);
}

void writer_stop(struct writer *w)
{
    if (!w->started) {
        return;
    }
    write_queue_close(&w->queue);
    while (w->options.manual && turn(w)) {
    }
    if (!w->options.manual) {
        pthread_join(w->thread, NULL);
    }
    write_queue_done(&w->queue);
    w->started = false;
}

void writer_close(struct writer *w)
{
    if (w->conn.db == NULL) {
        reserve_close(&w->reserve, false);
        return;
    }
    reserve_renew(&w->reserve);
    if (!atomic_load(&w->refusing)) {
        checkpoint_when_idle(&w->checkpoint);
    }
    conn_close(&w->conn);
    reserve_close(&w->reserve, !checkpoint_is_pending(&w->checkpoint));
    free(w->changes.items);
    lease_counts_free(&w->leases);
    lease_blocks_free(&w->lease_blocks);
    session_cache_free(&w->sessions);
    event_group_free(&w->events);
    audit_trail_done(&w->audit);
}
