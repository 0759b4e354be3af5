/* Leases are found by the blocks they stand in: nothing is missed, nothing found that is not there, and
 * nothing read that stands elsewhere. */
#include <sqlite3.h>

#include "../../storage/lease_blocks.h"
#include "../support/store_fixture.h"

enum { SESSIONS = 5, KEYS = 3, LEASES = 1500, STEPS_A_LEASE = 6 };

struct world {
    struct fixture *f;
    struct id user[SESSIONS], chat[SESSIONS], session[SESSIONS], key[KEYS];
    struct lease leases[LEASES];
    bool gone[LEASES];
    size_t n;
    unsigned long seed;
};

static unsigned pick(struct world *w, unsigned n)
{
    w->seed = w->seed * 6364136223846793005UL + 1442695040888963407UL;
    return (unsigned)(w->seed >> 33) % n;
}

static int add_sessions(struct store_tx *tx, void *arg, struct err *e)
{
    struct world *w = arg;
    for (size_t i = 0; i < SESSIONS; i++) {
        if (i % 2 == 0) {
            id_random(&w->user[i]);
        } else {
            w->user[i] = w->user[i - 1];
        }
        if (fixture_add_chat(tx, &w->user[i], &w->chat[i], e) != 0) {
            return -1;
        }
        struct sandbox s = fixture_sandbox(&w->chat[i], &w->user[i], 1);
        w->session[i] = s.session_id;
        if (store_sandbox_insert(tx, &s, e) != 0) {
            return -1;
        }
    }
    return 0;
}

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof(*w));
    assert_non_null(w);
    void *f;
    if (fixture_setup(&f) != 0) {
        return -1;
    }
    w->f = f;
    w->seed = 20261130;
    for (size_t i = 0; i < KEYS; i++) {
        id_random(&w->key[i]);
    }
    fixture_write(w->f, add_sessions, w);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    fixture_free(w->f);
    free(w);
    return 0;
}

/* --- what is done to them ------------------------------------------------------------------------ */

struct batch {
    struct world *w;
    size_t first, n;
    bool fail;
};

static int insert(struct store_tx *tx, void *arg, struct err *e)
{
    const struct batch *b = arg;
    for (size_t i = b->first; i < b->first + b->n; i++) {
        if (store_lease_insert(tx, &b->w->leases[i], e) != 0) {
            return -1;
        }
    }
    return b->fail ? err_set(e, ERR_CONFLICT, "as asked") : 0;
}

static int end(struct store_tx *tx, void *arg, struct err *e)
{
    const struct batch *b = arg;
    for (size_t i = b->first; i < b->first + b->n; i++) {
        struct lease l = b->w->leases[i];
        if (l.state != LEASE_CLOSED && !b->w->gone[i]) {
            l.state = b->w->leases[i].state == LEASE_PENDING ? LEASE_REVOKING : LEASE_CLOSED;
            if (store_lease_update(tx, &l, e) != 0) {
                return -1;
            }
        }
    }
    return b->fail ? err_set(e, ERR_CONFLICT, "as asked") : 0;
}

static int write_again(struct store_tx *tx, void *arg, struct err *e)
{
    return store_lease_update(tx, &((const struct batch *)arg)->w->leases[0], e);
}

static void grant_some(struct world *w)
{
    struct err e;
    struct batch b = {.w = w, .first = w->n, .n = pick(w, 40), .fail = pick(w, 4) == 0};
    b.n = w->n + b.n > LEASES ? LEASES - w->n : b.n;
    for (size_t i = w->n; i < w->n + b.n; i++) {
        unsigned s = pick(w, SESSIONS);
        s = s == 1 && pick(w, 8) > 0 ? 0 : s; /* one is rare */
        w->leases[i] = fixture_lease(&w->session[s], &w->chat[s], &w->user[s]);
        if (pick(w, 3) > 0) {
            w->leases[i].api_key_id = w->key[pick(w, KEYS)];
        }
    }
    assert_int_equal(store_write(w->f->store, insert, &b, &e), b.fail ? -1 : 0);
    w->n += b.fail ? 0 : b.n;
}

static void end_some(struct world *w)
{
    struct err e;
    struct batch b = {.w = w, .first = w->n == 0 ? 0 : pick(w, (unsigned)w->n), .n = pick(w, 60)};
    b.fail = pick(w, 4) == 0;
    b.n = b.first + b.n > w->n ? w->n - b.first : b.n;
    assert_int_equal(store_write(w->f->store, end, &b, &e), b.fail ? -1 : 0);
    for (size_t i = b.first; !b.fail && i < b.first + b.n; i++) {
        struct lease *l = &w->leases[i];
        l->state = l->state == LEASE_PENDING ? LEASE_REVOKING : LEASE_CLOSED;
    }
}

struct expiries {
    struct store_lease_expiry x[60];
    bool found[60];
    size_t n;
};

static int expire(struct store_tx *tx, void *arg, struct err *e)
{
    struct expiries *x = arg;
    return store_lease_expire(tx, x->x, x->n, x->found, e);
}

static void expire_some(struct world *w)
{
    struct expiries x = {0};
    size_t first = w->n == 0 ? 0 : pick(w, (unsigned)w->n);
    for (size_t i = first; i < w->n && x.n < 60; i++) {
        struct lease *l = &w->leases[i];
        if (l->state == LEASE_PENDING && !w->gone[i]) {
            l->state = LEASE_CLOSED;
            x.x[x.n++] = (struct store_lease_expiry){.n = l->n,
                                                     .expires_at = l->expires_at,
                                                     .session_id = l->session_id,
                                                     .user_id = l->user_id,
                                                     .state = LEASE_CLOSED,
                                                     .reason = "expired"};
        }
    }
    fixture_write(w->f, expire, &x);
}

/* --- what is found ------------------------------------------------------------------------------- */

struct search {
    struct world *w;
    const struct id *session, *user, *key;
    bool open;  /* pending or active only */
    bool alive; /* not closed only */
    int64_t last;
    size_t found;
    bool counted[LEASES];
};

static bool is_wanted(const struct search *s, size_t i)
{
    const struct lease *l = &s->w->leases[i];
    return !s->w->gone[i] && (s->session == NULL || id_equal(s->session, &l->session_id)) &&
           (s->user == NULL || id_equal(s->user, &l->user_id)) &&
           (s->key == NULL || id_equal(s->key, &l->api_key_id)) &&
           (!s->open || l->state == LEASE_PENDING) && (!s->alive || l->state != LEASE_CLOSED);
}

static int find(void *ctx, const struct lease *l, struct err *e)
{
    struct search *s = ctx;
    (void)e;
    for (size_t i = 0; i < s->w->n; i++) {
        if (id_equal(&s->w->leases[i].lease_id, &l->lease_id)) {
            assert_true(is_wanted(s, i));
            assert_false(s->counted[i]);
            s->counted[i] = true;
            s->found++;
            s->last = l->n;
            return 0;
        }
    }
    fail_msg("a lease was found that was never granted");
    return -1;
}

static int find_in_order(void *ctx, const struct lease *l, struct err *e)
{
    assert_true(l->n > ((struct search *)ctx)->last);
    return find(ctx, l, e);
}

static void assert_all_found(const struct search *s)
{
    for (size_t i = 0; i < s->w->n; i++) {
        if (is_wanted(s, i) && !s->counted[i]) {
            fail_msg("lease %lld was not found", (long long)s->w->leases[i].n);
        }
    }
}

static int list_pages(struct store_tx *tx, void *arg, struct err *e)
{
    struct search *s = arg;
    struct caller anybody = {0};
    struct store_filter filter = {0};
    filter.session_id = s->session != NULL ? *s->session : filter.session_id;
    filter.user_id = s->user != NULL ? *s->user : filter.user_id;
    size_t before;
    do {
        struct store_list ask = {.limit = 37, .caller = &anybody, .after = {.created_at = s->last}};
        before = s->found;
        if (store_lease_list(tx, &ask, &filter, find_in_order, s, e) != 0) {
            return -1;
        }
    } while (s->found > before);
    return 0;
}

static int list_chats(struct store_tx *tx, void *arg, struct err *e)
{
    struct search *s = arg;
    struct caller anybody = {0};
    for (size_t i = 0; i < SESSIONS; i++) {
        struct store_filter filter = {.chat_id = s->w->chat[i]};
        struct store_list ask = {.limit = LEASES, .caller = &anybody};
        s->last = 0;
        if (store_lease_list(tx, &ask, &filter, find_in_order, s, e) != 0) {
            return -1;
        }
    }
    return 0;
}

static int walk_open(struct store_tx *tx, void *arg, struct err *e)
{
    return store_lease_each_open(tx, find_in_order, arg, e);
}

static int walk_open_of(struct store_tx *tx, void *arg, struct err *e)
{
    struct search *s = arg;
    return store_lease_each_open_of(tx, s->session, find_in_order, s, e);
}

static int match(struct store_tx *tx, void *arg, struct err *e)
{
    struct search *s = arg;
    const struct caller anybody = {0};
    struct store_match m = {.by = MATCH_ALL};
    if (s->session != NULL) {
        m = (struct store_match){.by = MATCH_SESSION, .id = *s->session};
    } else if (s->user != NULL) {
        m = (struct store_match){.by = MATCH_USER, .id = *s->user};
    } else if (s->key != NULL) {
        m = (struct store_match){.by = MATCH_API_KEY, .id = *s->key};
    }
    return store_lease_each_match(tx, &m, &anybody, find, s, e);
}

static void check(struct world *w, store_fn fn, struct search ask)
{
    struct search *s = malloc(sizeof(*s));
    assert_non_null(s);
    *s = ask;
    s->w = w;
    fixture_write(w->f, fn, s); /* in a write, as it stands inside of one */
    assert_all_found(s);
    *s = ask;
    s->w = w;
    fixture_read(w->f, fn, s);
    assert_all_found(s);
    free(s);
}

static void check_all(struct world *w)
{
    check(w, list_pages, (struct search){0});
    check(w, list_chats, (struct search){0});
    check(w, walk_open, (struct search){.alive = true});
    check(w, match, (struct search){.open = true});
    for (size_t i = 0; i < SESSIONS; i++) {
        check(w, list_pages, (struct search){.session = &w->session[i]});
        check(w, list_pages, (struct search){.user = &w->user[i]});
        check(w, walk_open_of, (struct search){.session = &w->session[i], .alive = true});
        check(w, match, (struct search){.session = &w->session[i], .open = true});
        check(w, match, (struct search){.user = &w->user[i], .open = true});
    }
    for (size_t i = 0; i < KEYS; i++) {
        check(w, match, (struct search){.key = &w->key[i], .open = true});
    }
}

/* --- the tables ---------------------------------------------------------------------------------- */

static int64_t count(const struct world *w, const char *sql)
{
    sqlite3 *db;
    sqlite3_stmt *st;
    assert_int_equal(sqlite3_open_v2(w->f->path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &st, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(st), SQLITE_ROW);
    int64_t n = sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    sqlite3_close(db);
    return n;
}

static void assert_open_blocks_are_exact(const struct world *w)
{
    assert_int_equal(count(w, "SELECT COUNT(*) FROM"
                              " (SELECT block FROM lease_open_blocks EXCEPT"
                              " SELECT n / " LEASE_BLOCK_SQL " FROM leases WHERE closed = 0)"),
                     0);
    assert_int_equal(count(w, "SELECT COUNT(*) FROM"
                              " (SELECT n / " LEASE_BLOCK_SQL " FROM leases WHERE closed = 0 EXCEPT"
                              " SELECT block FROM lease_open_blocks)"),
                     0);
}

static void step_at_random(struct world *w)
{
    switch (pick(w, 5)) {
    case 0:
    case 1:
        grant_some(w);
        break;
    case 2:
    case 3:
        end_some(w);
        break;
    default:
        expire_some(w);
    }
}

static void what_is_found_is_what_is_there_whatever_happens(void **state)
{
    struct world *w = *state;
    for (int round = 0; w->n < LEASES; round++) {
        step_at_random(w);
        assert_open_blocks_are_exact(w);
        if (round % 25 == 0) {
            check_all(w);
        }
        if (round % 40 == 39) {
            fixture_reopen(w->f);
        }
    }
    check_all(w);
}

static int delete_chat(struct store_tx *tx, void *arg, struct err *e)
{
    return store_chat_delete(tx, arg, false, e);
}

static int stop_session(struct store_tx *tx, void *arg, struct err *e)
{
    struct sandbox s;
    if (store_sandbox_get(tx, arg, &s, e) != 0) {
        return -1;
    }
    s.status = SANDBOX_STOPPED;
    return store_sandbox_update(tx, &s, e);
}

static void a_chat_goes_with_its_leases_and_no_others(void **state)
{
    struct world *w = *state;
    while (w->n < LEASES) {
        step_at_random(w);
    }
    fixture_write(w->f, stop_session, &w->session[2]);
    fixture_write(w->f, delete_chat, &w->chat[2]);
    for (size_t i = 0; i < w->n; i++) {
        w->gone[i] = id_equal(&w->leases[i].session_id, &w->session[2]);
    }
    check(w, list_pages, (struct search){0});
    check(w, list_pages, (struct search){.user = &w->user[2]});
    check(w, walk_open, (struct search){.alive = true});
    assert_open_blocks_are_exact(w);
}

static int open_again(struct store_tx *tx, void *arg, struct err *e)
{
    struct world *w = arg;
    if (fixture_add_chat(tx, &w->user[4], &w->chat[4], e) != 0) {
        return -1;
    }
    struct sandbox s = fixture_sandbox(&w->chat[4], &w->user[4], 1);
    w->session[4] = s.session_id;
    return store_sandbox_insert(tx, &s, e);
}

/* And is named again with the next lease, in the same block. */
static void a_user_whose_leases_are_gone_is_named_no_more(void **state)
{
    struct world *w = *state;
    struct batch one = {.w = w, .n = 1};
    char names[128];
    w->leases[0] = fixture_lease(&w->session[4], &w->chat[4], &w->user[4]);
    w->leases[0].state = LEASE_CLOSED;
    w->n = 1;
    fixture_write(w->f, insert, &one);
    snprintf(names, sizeof(names), "SELECT COUNT(*) FROM lease_blocks WHERE owner_id = '%s'",
             ID_STR(&w->user[4]));
    assert_int_equal(count(w, names), 1);
    fixture_write(w->f, stop_session, &w->session[4]);
    fixture_write(w->f, delete_chat, &w->chat[4]);
    assert_int_equal(count(w, "SELECT COUNT(*) FROM lease_blocks"), 0);
    w->gone[0] = true;
    fixture_write(w->f, open_again, w);
    w->leases[1] = fixture_lease(&w->session[4], &w->chat[4], &w->user[4]);
    one.first = 1;
    w->n = 2;
    fixture_write(w->f, insert, &one);
    check(w, list_pages, (struct search){.user = &w->user[4]});
}

static void nothing_is_open_when_all_is_closed(void **state)
{
    struct world *w = *state;
    struct batch all = {.w = w};
    while (w->n < LEASES) {
        grant_some(w);
    }
    all.n = w->n;
    for (int i = 0; i < 2; i++) {
        fixture_write(w->f, end, &all);
        for (size_t k = 0; k < w->n; k++) {
            w->leases[k].state = i == 0 ? LEASE_REVOKING : LEASE_CLOSED;
        }
    }
    assert_int_equal(count(w, "SELECT COUNT(*) FROM lease_open_blocks"), 0);
    fixture_reopen(w->f);
    check_all(w);
}

/* A use of a `once` lease may be told when it is closed already. */
static void what_is_written_of_a_closed_lease_closes_it_no_second_time(void **state)
{
    struct world *w = *state;
    struct batch both = {.w = w, .n = 2}, first = {.w = w, .n = 1};
    for (size_t i = 0; i < 2; i++) {
        w->leases[i] = fixture_lease(&w->session[0], &w->chat[0], &w->user[0]);
    }
    w->n = 2;
    fixture_write(w->f, insert, &both);
    for (int i = 0; i < 3; i++) {
        w->leases[0].state = LEASE_CLOSED;
        w->leases[0].consumed_at = 5 + i;
        fixture_write(w->f, write_again, &first);
    }
    check_all(w);
    assert_open_blocks_are_exact(w);
}

/* --- what it costs ------------------------------------------------------------------------------- */

#define SORTED_BYTES 160 /* a lease that is to be sorted; a row has twice as many */

static int worst;

static int on_done(unsigned what, void *ctx, void *statement, void *ns)
{
    (void)what;
    (void)ctx;
    (void)ns;
    int steps = sqlite3_stmt_status(statement, SQLITE_STMTSTATUS_VM_STEP, 1);
    worst = steps > worst ? steps : worst;
    return 0;
}

static int watch(sqlite3 *db, char **ret_text, const struct sqlite3_api_routines *api)
{
    (void)ret_text;
    (void)api;
    return sqlite3_trace_v2(db, SQLITE_TRACE_PROFILE, on_done, NULL);
}

static void assert_reads_blocks(struct world *w, store_fn fn, struct search ask, int blocks)
{
    worst = 0;
    check(w, fn, ask);
    if (worst > (blocks * LEASE_BLOCK + 100) * STEPS_A_LEASE) {
        fail_msg("%d steps of SQLite for %d blocks of leases", worst, blocks);
    }
}

/* One lease of session 0 at the beginning and one near the end, all others of session 4. */
static void only_the_blocks_of_the_owner_are_read(void **state)
{
    struct world *w = *state;
    struct batch all = {.w = w, .n = LEASES};
    for (size_t i = 0; i < LEASES; i++) {
        unsigned s = i == 3 || i == LEASES - 3 ? 0 : 4;
        w->leases[i] = fixture_lease(&w->session[s], &w->chat[s], &w->user[s]);
        w->leases[i].api_key_id = w->key[s == 0 ? 0 : 1];
        w->leases[i].state = i < LEASES - 3 ? LEASE_CLOSED : LEASE_PENDING;
    }
    w->n = LEASES;
    fixture_write(w->f, insert, &all);
    assert_int_equal(sqlite3_auto_extension((void (*)(void))watch), SQLITE_OK);
    fixture_reopen(w->f);
    const struct id *session = &w->session[0];
    assert_reads_blocks(w, list_pages, (struct search){.session = session}, 2);
    assert_reads_blocks(w, list_pages, (struct search){.user = &w->user[0]}, 2);
    assert_reads_blocks(w, walk_open_of, (struct search){.session = session, .alive = true}, 1);
    assert_reads_blocks(w, walk_open, (struct search){.alive = true}, 1);
    assert_reads_blocks(w, match, (struct search){.session = session, .open = true}, 1);
    assert_reads_blocks(w, match, (struct search){.user = &w->user[4], .open = true}, 1);
    assert_reads_blocks(w, match, (struct search){.key = &w->key[0], .open = true}, 1);
    assert_reads_blocks(w, match, (struct search){.open = true}, 1);
    sqlite3_reset_auto_extension();
}

/* What is held at once of them are their places in the order, not the leases. */
static void leases_that_are_sorted_are_not_all_held(void **state)
{
    struct world *w = *state;
    struct batch all = {.w = w, .n = LEASES};
    for (size_t i = 0; i < LEASES; i++) {
        unsigned s = i % 4;
        w->leases[i] = fixture_lease(&w->session[s], &w->chat[s], &w->user[s]);
        w->leases[i].api_key_id = w->key[0];
        w->leases[i].state = LEASE_PENDING;
    }
    w->n = LEASES;
    fixture_write(w->f, insert, &all);
    const struct search asked[] = {{.open = true}, {.key = &w->key[0], .open = true}};
    for (size_t i = 0; i < 2; i++) {
        check(w, match, asked[i]); /* from here on their pages are in the caches */
        sqlite3_int64 before = sqlite3_memory_used();
        sqlite3_memory_highwater(1);
        check(w, match, asked[i]);
        sqlite3_int64 held = sqlite3_memory_highwater(0) - before;
        if (held > LEASES * SORTED_BYTES) {
            fail_msg("%lld bytes of SQLite for %d leases", (long long)held, LEASES);
        }
    }
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(what_is_found_is_what_is_there_whatever_happens),
        T(a_chat_goes_with_its_leases_and_no_others),
        T(a_user_whose_leases_are_gone_is_named_no_more),
        T(nothing_is_open_when_all_is_closed),
        T(what_is_written_of_a_closed_lease_closes_it_no_second_time),
        T(only_the_blocks_of_the_owner_are_read),
        T(leases_that_are_sorted_are_not_all_held),
    };
    sqlite3_initialize(); /* before the store, which has SQLite not count its memory */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
