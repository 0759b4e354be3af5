/* The writer: what a group commit promises to those who wait for it. */
#include <pthread.h>
#include <sqlite3.h>
#include <stdatomic.h>

#include "../support/store_fixture.h"

/* --- seen only when durable ------------------------------------------------------------------- */

/* Through a connection that is not the store's. */
static int64_t count_rows(struct fixture *f, const char *sql)
{
    sqlite3 *db;
    sqlite3_stmt *st;
    assert_int_equal(sqlite3_open_v2(f->path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, (int *)NULL);
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &st, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(st), SQLITE_ROW);
    int64_t n = sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    sqlite3_close(db);
    return n;
}

#define AUDITED "SELECT COALESCE(MAX(last_n), 0) FROM audit_blocks"
#define BLOCKS_WITH(text)                                                                          \
    "SELECT COUNT(*) FROM audit_blocks WHERE instr(entries, CAST('" text "' AS BLOB))"

static int audit_one(struct store_tx *tx, void *arg, struct err *e)
{
    struct audit_entry a = fixture_audit_entry(arg);
    return store_audit(tx, &a, e);
}

static void an_answered_write_is_seen_by_any_other_connection(void **state)
{
    struct fixture *f = *state;
    for (int i = 1; i <= 20; i++) {
        fixture_write(f, audit_one, (void *)"x");
        assert_int_equal(count_rows(f, AUDITED), i);
    }
}

/* --- a failing write falls alone ---------------------------------------------------------------- */

struct step {
    struct fixture *f;
    bool fail;
    int64_t seq;
};

/* Takes the next number of the session's log, audits it, announces it, and then perhaps fails. */
static int step_run(struct store_tx *tx, void *arg, struct err *e)
{
    struct step *s = arg;
    struct change c = {.kind = CHANGE_GRANT};
    if (store_session_next_seq(tx, &s->f->session_id, &c.seq, e) != 0 ||
        audit_one(tx, (void *)(s->fail ? "bad" : "good"), e) != 0) {
        return -1;
    }
    s->seq = c.seq;
    store_emit(tx, &c);
    return s->fail ? err_set(e, ERR_LEASE_TERMINAL, "no") : 0;
}

#define SEEN_MAX 100000

struct seen {
    int64_t seqs[SEEN_MAX];
    atomic_size_t n;
};

static void note_changes(void *ctx, const struct change *changes, size_t n)
{
    struct seen *seen = ctx;
    size_t at = atomic_load(&seen->n);
    for (size_t i = 0; i < n && at < SEEN_MAX; i++) {
        seen->seqs[at++] = changes[i].seq;
    }
    atomic_store(&seen->n, at);
}

/* Holds the writer inside a write until it is let go, so that what follows lands in one group. */
struct gate {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool entered, open;
};

#define GATE_INIT                                                                                  \
    {                                                                                              \
        .lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER                        \
    }

static int gate_run(struct store_tx *tx, void *arg, struct err *e)
{
    (void)tx;
    (void)e;
    struct gate *g = arg;
    pthread_mutex_lock(&g->lock);
    g->entered = true;
    pthread_cond_broadcast(&g->cond);
    while (!g->open) {
        pthread_cond_wait(&g->cond, &g->lock);
    }
    pthread_mutex_unlock(&g->lock);
    return 0;
}

static void gate_wait_entered(struct gate *g)
{
    pthread_mutex_lock(&g->lock);
    while (!g->entered) {
        pthread_cond_wait(&g->cond, &g->lock);
    }
    pthread_mutex_unlock(&g->lock);
}

static void gate_open(struct gate *g)
{
    pthread_mutex_lock(&g->lock);
    g->open = true;
    pthread_cond_broadcast(&g->cond);
    pthread_mutex_unlock(&g->lock);
}

static void note_done(struct job *job)
{
    (void)job;
}

static void no_wake(void *ctx)
{
    (void)ctx;
}

static void submit_job(struct fixture *f, struct store_job *j)
{
    struct err e;
    if (store_submit(f->store, j, &e) != 0) {
        fail_msg("store_submit: %s", e.msg);
    }
}

static void submit(struct fixture *f, struct store_job *j, store_fn fn, void *arg)
{
    *j = (struct store_job){.job.done = note_done, .fn = fn, .arg = arg};
    submit_job(f, j);
}

static void drain(struct fixture *f)
{
    while (inbox_drain(f->options.inbox, 64) != 0) {
    }
}

/* After this every job submitted before has been answered into the inbox. */
static void flush(struct fixture *f)
{
    fixture_write(f, audit_one, (void *)"flush");
    drain(f);
}

static int verify_audit(struct store_tx *tx, void *arg, struct err *e)
{
    int64_t *checked_and_broken = arg;
    return store_audit_verify(tx, &checked_and_broken[0], &checked_and_broken[1], e);
}

static struct seen seen;

static int setup_with_inbox(void **state)
{
    struct fixture *f = fixture_new();
    atomic_store(&seen.n, 0);
    f->options.inbox = inbox_new(no_wake, NULL);
    f->options.changed = note_changes;
    f->options.changed_ctx = &seen;
    f->options.queue_max = 64;
    fixture_open(f);
    *state = f;
    return 0;
}

static int teardown_with_inbox(void **state)
{
    struct fixture *f = *state;
    struct inbox *in = f->options.inbox;
    fixture_free(f);
    inbox_free(in);
    return 0;
}

/* --- who lets others pass ----------------------------------------------------------------------- */

static int no_change(struct store_tx *tx, void *arg, struct err *e)
{
    (void)tx;
    (void)arg;
    (void)e;
    return 0;
}

struct order {
    int *ran, n, me;
};

static int order_run(struct store_tx *tx, void *arg, struct err *e)
{
    struct order *o = arg;
    (void)tx;
    (void)e;
    o->me = ++*o->ran;
    return 0;
}

static void a_write_that_is_in_no_hurry_lets_others_pass_but_not_for_ever(void **state)
{
    enum { GROUPS = 6 };
    struct fixture *f = *state;
    struct gate gate = GATE_INIT;
    struct store_job holder, later, jobs[GROUPS];
    int ran = 0;
    struct order last = {.ran = &ran}, orders[GROUPS];
    f->options.group_max = 1;
    fixture_reopen(f);
    submit(f, &holder, gate_run, &gate);
    gate_wait_entered(&gate);
    later = (struct store_job){
        .job.done = note_done, .fn = order_run, .arg = &last, .ends = true, .later = true};
    submit_job(f, &later);
    for (int i = 0; i < GROUPS; i++) {
        orders[i] = (struct order){.ran = &ran};
        submit(f, &jobs[i], order_run, &orders[i]);
    }
    gate_open(&gate);
    fixture_write(f, no_change, NULL);
    assert_int_equal(orders[0].me, 1);   /* came later, and was first */
    assert_in_range(last.me, 2, GROUPS); /* had its turn before they were through */
    while (inbox_drain(f->options.inbox, 64) != 0) {
    }
}

static void failing_writes_vanish(struct fixture *f, bool sound)
{
    enum { N = 9 };
    struct gate gate = GATE_INIT;
    struct store_job holder, jobs[N];
    struct step steps[N];
    fixture_add_session(f);

    submit(f, &holder, gate_run, &gate);
    gate_wait_entered(&gate);
    for (int i = 0; i < N; i++) {
        steps[i] = (struct step){.f = f, .fail = i % 3 == 1};
        jobs[i] = (struct store_job){
            .job.done = note_done, .fn = step_run, .arg = &steps[i], .sound = sound};
        submit_job(f, &jobs[i]);
    }
    gate_open(&gate);
    flush(f);

    int64_t next = 1;
    for (int i = 0; i < N; i++) {
        assert_int_equal(steps[i].seq, next); /* a failed one gives its number back */
        assert_int_equal(jobs[i].rc, steps[i].fail ? -1 : 0);
        assert_int_equal(jobs[i].e.code, steps[i].fail ? ERR_LEASE_TERMINAL : ERR_NONE);
        next += steps[i].fail ? 0 : 1;
    }
    assert_int_equal(atomic_load(&seen.n), 6);
    for (int64_t i = 0; i < 6; i++) {
        assert_int_equal(seen.seqs[i], i + 1);
    }
    int64_t audit[2];
    fixture_read(f, verify_audit, audit);
    assert_int_equal(audit[0], 7); /* 6 good and the flush */
    assert_int_equal(audit[1], 0);
    assert_int_equal(count_rows(f, BLOCKS_WITH("bad")), 0);
}

static void a_failing_write_of_a_group_vanishes_alone(void **state)
{
    failing_writes_vanish(*state, false);
}

static void a_sound_write_that_changed_no_row_vanishes_alone_too(void **state)
{
    failing_writes_vanish(*state, true);
}

static int touch_and_fail(struct store_tx *tx, void *arg, struct err *e)
{
    struct workspace w;
    bool made;
    return store_workspace_touch(tx, arg, &w, &made, e) != 0
               ? -1
               : err_set(e, ERR_LEASE_TERMINAL, "not what was promised");
}

static void a_sound_write_that_fails_behind_a_change_fails_its_group(void **state)
{
    struct fixture *f = *state;
    struct gate gate = GATE_INIT;
    struct store_job holder, jobs[2], broken;
    struct step steps[2] = {{.f = f}, {.f = f}};
    struct id user = {{7}};
    struct err e;
    fixture_add_session(f);

    submit(f, &holder, gate_run, &gate);
    gate_wait_entered(&gate);
    submit(f, &jobs[0], step_run, &steps[0]);
    broken = (struct store_job){
        .job.done = note_done, .fn = touch_and_fail, .arg = &user, .sound = true};
    submit_job(f, &broken);
    submit(f, &jobs[1], step_run, &steps[1]);
    gate_open(&gate);
    if (store_write(f->store, audit_one, (void *)"flush", &e) != 0) {
        flush(f); /* the first one was in the group */
    }
    drain(f);

    assert_int_equal(broken.e.code, ERR_LEASE_TERMINAL);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(jobs[i].rc, -1);
        assert_int_equal(jobs[i].e.code, ERR_INTERNAL);
    }
    assert_int_equal(atomic_load(&seen.n), 0);
    assert_int_equal(count_rows(f, AUDITED), 1); /* the flush */
    fixture_write(f, step_run, &steps[0]);
    assert_int_equal(steps[0].seq, 1);
}

struct turn {
    struct fixture *f;
    enum sandbox_status to; /* set, if it is not what stands there */
    bool fail;
    struct sandbox found;
};

/* What it finds, one number of the log taken, and a change of the row. */
static int turn_run(struct store_tx *tx, void *arg, struct err *e)
{
    struct turn *t = arg;
    struct sandbox s;
    int64_t seq;
    if (store_sandbox_get(tx, &t->f->session_id, &t->found, e) != 0 ||
        store_session_next_seq(tx, &t->f->session_id, &seq, e) != 0) {
        return -1;
    }
    s = t->found;
    s.status = t->to;
    if (s.status != t->found.status && store_sandbox_update(tx, &s, e) != 0) {
        return -1;
    }
    return t->fail ? err_set(e, ERR_LEASE_TERMINAL, "no") : 0;
}

static void writes_of_a_group_see_what_those_before_them_left(void **state)
{
    struct fixture *f = *state;
    struct gate gate = GATE_INIT;
    struct store_job holder, jobs[4];
    struct turn turns[4] = {{.f = f, .to = SANDBOX_RUNNING},
                            {.f = f, .to = SANDBOX_STOPPING},
                            {.f = f, .to = SANDBOX_FAILED, .fail = true},
                            {.f = f, .to = SANDBOX_STOPPING}};
    fixture_add_session(f);
    submit(f, &holder, gate_run, &gate);
    gate_wait_entered(&gate);
    for (int i = 0; i < 4; i++) {
        submit(f, &jobs[i], turn_run, &turns[i]);
    }
    gate_open(&gate);
    flush(f);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(turns[i].found.status, i < 2 ? SANDBOX_RUNNING : SANDBOX_STOPPING);
        assert_int_equal(turns[i].found.log_seq, i < 3 ? i : 2);
    }
    assert_int_equal(count_rows(f, "SELECT log_seq FROM sandboxes"), 3);
}

struct handed {
    struct store_job job; /* first */
    struct fixture *f;
    atomic_int audited; /* by then, durable; -1: not called yet */
};

static void note_committed(struct store_job *j)
{
    struct handed *h = (struct handed *)j;
    atomic_store(&h->audited, (int)count_rows(h->f, AUDITED));
}

static void what_goes_on_behind_the_commit_finds_it_durable(void **state)
{
    struct fixture *f = *state;
    struct handed h = {.f = f, .audited = -1};
    h.job =
        (struct store_job){.fn = audit_one, .arg = (void *)"handed", .committed = note_committed};
    submit_job(f, &h.job);
    flush(f);
    assert_true(atomic_load(&h.audited) >= 1);
    assert_int_equal(h.job.rc, 0);
}

/* --- order -------------------------------------------------------------------------------------- */

struct writer_thread {
    pthread_t thread;
    struct fixture *f;
    int writes;
    int failures;
};

static void *write_many(void *arg)
{
    struct writer_thread *t = arg;
    for (int i = 0; i < t->writes; i++) {
        struct step s = {.f = t->f, .fail = i % 7 == 3};
        struct err e;
        int rc = store_write(t->f->store, step_run, &s, &e);
        /* what was answered was announced before */
        if ((rc == 0) == s.fail || (rc == 0 && (int64_t)atomic_load(&seen.n) < s.seq)) {
            t->failures++;
        }
    }
    return NULL;
}

static void changes_come_in_the_order_of_the_log_and_before_the_answers(void **state)
{
    struct fixture *f = *state;
    enum { THREADS = 8, WRITES = 70 };
    struct writer_thread threads[THREADS];
    fixture_add_session(f);
    for (int i = 0; i < THREADS; i++) {
        threads[i] = (struct writer_thread){.f = f, .writes = WRITES};
        assert_int_equal(pthread_create(&threads[i].thread, NULL, write_many, &threads[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i].thread, NULL);
        assert_int_equal(threads[i].failures, 0);
    }
    size_t good = THREADS * (WRITES - WRITES / 7);
    assert_int_equal(atomic_load(&seen.n), good);
    for (size_t i = 0; i < good; i++) {
        assert_int_equal(seen.seqs[i], (int64_t)i + 1);
    }
    int64_t audit[2];
    fixture_read(f, verify_audit, audit);
    assert_int_equal(audit[0], good);
    assert_int_equal(audit[1], 0);
}

/* --- limits ------------------------------------------------------------------------------------- */

static void a_full_queue_answers_busy_at_once(void **state)
{
    struct fixture *f = *state;
    struct gate gate = GATE_INIT;
    struct store_job holder, jobs[64], extra = {.job.done = note_done, .fn = audit_one};
    struct err e;
    submit(f, &holder, gate_run, &gate);
    gate_wait_entered(&gate);
    for (int i = 0; i < 64; i++) {
        submit(f, &jobs[i], audit_one, (void *)"queued");
    }
    assert_int_equal(store_submit(f->store, &extra, &e), -1);
    assert_int_equal(e.code, ERR_BUSY);
    assert_int_equal(store_write(f->store, audit_one, (void *)"extra", &e), -1);
    assert_int_equal(e.code, ERR_BUSY);
    gate_open(&gate);
    store_close(f->store); /* runs what stands in the queue */
    f->store = NULL;
    drain(f);
    assert_int_equal(count_rows(f, AUDITED), 64);
    assert_int_equal(count_rows(f, BLOCKS_WITH("extra")), 0);
}

/* --- readers ------------------------------------------------------------------------------------ */

struct reading {
    struct fixture *f;
    struct writer_thread writer;
    int64_t before, after;
};

static int read_seq(struct store_tx *tx, const struct id *session_id, int64_t *ret, struct err *e)
{
    struct sandbox s;
    if (store_sandbox_get(tx, session_id, &s, e) != 0) {
        return -1;
    }
    *ret = s.log_seq;
    return 0;
}

/* Inside one read: the other thread's writes come through, and the snapshot does not move. */
static int read_while_written(struct store_tx *tx, void *arg, struct err *e)
{
    struct reading *r = arg;
    if (read_seq(tx, &r->f->session_id, &r->before, e) != 0) {
        return -1;
    }
    pthread_create(&r->writer.thread, NULL, write_many, &r->writer);
    pthread_join(r->writer.thread, NULL);
    return read_seq(tx, &r->f->session_id, &r->after, e);
}

static int read_seq_now(struct store_tx *tx, void *arg, struct err *e)
{
    struct reading *r = arg;
    return read_seq(tx, &r->f->session_id, &r->after, e);
}

static void a_reader_holds_no_writer_up_and_sees_one_moment(void **state)
{
    struct fixture *f = *state;
    fixture_add_session(f);
    struct reading r = {.f = f, .writer = {.f = f, .writes = 3}};
    fixture_read(f, read_while_written, &r);
    assert_int_equal(r.writer.failures, 0);
    assert_int_equal(r.before, 0);
    assert_int_equal(r.after, 0);
    fixture_read(f, read_seq_now, &r);
    assert_int_equal(r.after, 3);
}

static int write_in_read(struct store_tx *tx, void *arg, struct err *e)
{
    struct reading *r = arg;
    return store_session_next_seq(tx, &r->f->session_id, &r->after, e);
}

static void a_read_cannot_write(void **state)
{
    struct fixture *f = *state;
    struct err e;
    fixture_add_session(f);
    struct reading r = {.f = f};
    assert_int_equal(store_read(f->store, write_in_read, &r, &e), -1);
    assert_int_equal(e.code, ERR_INTERNAL);
    assert_int_equal(store_read(f->store, audit_one, (void *)"x", &e), -1);
    assert_int_equal(e.code, ERR_INTERNAL);
    fixture_read(f, read_seq_now, &r);
    assert_int_equal(r.after, 0);
}

/* --- the log file ------------------------------------------------------------------------------- */

static int many_rows(struct store_tx *tx, void *arg, struct err *e)
{
    static char detail[2000];
    memset(detail, 'd', sizeof(detail) - 1);
    (void)arg;
    for (int i = 0; i < 500; i++) {
        struct audit_entry a = fixture_audit_entry("many");
        a.detail = detail;
        if (store_audit(tx, &a, e) != 0) {
            return -1;
        }
    }
    return 0;
}

static off_t wal_size(struct fixture *f)
{
    char path[100];
    struct stat st;
    snprintf(path, sizeof(path), "%s-wal", f->path);
    return stat(path, &st) == 0 ? st.st_size : 0;
}

/* Its blocks stay; it could not be played back into another database. */
static void assert_log_is_void(struct fixture *f)
{
    static const char zeroes[32];
    char path[100], head[32];
    snprintf(path, sizeof(path), "%s-wal", f->path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(read(fd, head, sizeof(head)), sizeof(head));
    assert_memory_equal(head, zeroes, sizeof(head));
    close(fd);
}

static void the_log_is_written_back_while_there_is_work_and_void_behind_a_close(void **state)
{
    struct fixture *f = *state;
    off_t largest = 0;
    for (int i = 0; i < 40; i++) { /* about 40 MB of rows */
        fixture_write(f, many_rows, NULL);
        off_t size = wal_size(f);
        largest = size > largest ? size : largest;
    }
    assert_true(largest < 12 * 1024 * 1024);
    store_close(f->store);
    f->store = NULL;
    assert_log_is_void(f);
    assert_int_equal(count_rows(f, AUDITED), 20000);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup_with_inbox, teardown_with_inbox)
    const struct CMUnitTest tests[] = {
        T(an_answered_write_is_seen_by_any_other_connection),
        T(a_failing_write_of_a_group_vanishes_alone),
        T(a_sound_write_that_changed_no_row_vanishes_alone_too),
        T(a_sound_write_that_fails_behind_a_change_fails_its_group),
        T(what_goes_on_behind_the_commit_finds_it_durable),
        T(writes_of_a_group_see_what_those_before_them_left),
        T(changes_come_in_the_order_of_the_log_and_before_the_answers),
        T(a_write_that_is_in_no_hurry_lets_others_pass_but_not_for_ever),
        T(a_full_queue_answers_busy_at_once),
        T(a_reader_holds_no_writer_up_and_sees_one_moment),
        T(a_read_cannot_write),
        T(the_log_is_written_back_while_there_is_work_and_void_behind_a_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
