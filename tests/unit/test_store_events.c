/* The event log: numbers without gaps in the order of commits, a row a commit, and its retention. */
#include "../support/store_fixture.h"

struct seen {
    int64_t seq[1000];
    char name[1000][40];
    struct store_event last;
    char data[200];
    size_t n, stop_at;
};

static int note(void *ctx, const struct store_event *ev, struct err *e)
{
    struct seen *s = ctx;
    (void)e;
    s->seq[s->n] = ev->seq;
    snprintf(s->name[s->n], sizeof(s->name[0]), "%s", ev->name);
    s->last = *ev;
    snprintf(s->data, sizeof(s->data), "%s", ev->data);
    s->n++;
    return s->n == s->stop_at;
}

struct reading {
    int64_t after;
    struct seen seen;
    struct store_event_range range;
};

static int read_events(struct store_tx *tx, void *arg, struct err *e)
{
    struct reading *r = arg;
    return store_event_range(tx, &r->range, e) == 0
               ? store_event_each(tx, r->after, note, &r->seen, e)
               : -1;
}

static struct reading *read_after(struct fixture *f, int64_t after)
{
    static struct reading r;
    r = (struct reading){.after = after};
    fixture_read(f, read_events, &r);
    return &r;
}

struct append {
    const char *name;
    int n;
    bool fail;
};

static int append_run(struct store_tx *tx, void *arg, struct err *e)
{
    const struct append *a = arg;
    struct store_event ev = {.name = a->name, .data = "{\"a b\":\"c d\"}"};
    for (int i = 0; i < a->n; i++) {
        if (store_event_append(tx, &ev, e) != 0) {
            return -1;
        }
    }
    return a->fail ? err_set(e, ERR_CONFLICT, "no") : 0;
}

static void append(struct fixture *f, const char *name, int n)
{
    fixture_write(f, append_run, &(struct append){.name = name, .n = n});
}

static int append_arg(struct store_tx *tx, void *arg, struct err *e)
{
    return store_event_append(tx, arg, e);
}

static void an_event_comes_back_as_it_was(void **state)
{
    struct fixture *f = *state;
    struct store_event ev = {.name = "sandbox.running", .data = "{\"reason\":\"\\n x \"}"};
    id_random(&ev.user_id);
    id_random(&ev.session_id);
    fixture_write(f, append_run, &(struct append){.name = "first", .n = 1});
    fixture_write(f, append_arg, &ev);

    const struct reading *r = read_after(f, 1);
    assert_int_equal(r->seen.n, 1);
    assert_int_equal(r->seen.seq[0], 2);
    assert_string_equal(r->seen.name[0], ev.name);
    assert_string_equal(r->seen.data, ev.data);
    assert_true(id_equal(&r->seen.last.user_id, &ev.user_id));
    assert_true(id_is_zero(&r->seen.last.chat_id));
    assert_true(id_equal(&r->seen.last.session_id, &ev.session_id));
    assert_true(r->seen.last.at > 1700000000000);
}

static void numbers_go_on_without_gaps_past_failed_writes_and_restarts(void **state)
{
    struct fixture *f = *state;
    struct append bad = {.name = "bad", .n = 3, .fail = true};
    struct err e;
    append(f, "a", 2);
    assert_int_equal(store_write(f->store, append_run, &bad, &e), -1);
    append(f, "b", 1);
    fixture_reopen(f);
    assert_int_equal(store_write(f->store, append_run, &bad, &e), -1);
    append(f, "c", 2);

    const struct reading *r = read_after(f, 0);
    const char *const names[] = {"a", "a", "b", "c", "c"};
    assert_int_equal(r->seen.n, 5);
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(r->seen.seq[i], i + 1);
        assert_string_equal(r->seen.name[i], names[i]);
    }
}

static void reading_begins_behind_any_number_and_stops_when_told(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(read_after(f, 0)->seen.n, 0);
    assert_int_equal(read_after(f, 0)->range.newest, 0);
    for (int i = 0; i < 5; i++) {
        append(f, "x", 4);
    }
    for (int64_t after = 0; after <= 20; after++) {
        const struct reading *r = read_after(f, after);
        assert_int_equal(r->seen.n, 20 - after);
        assert_true(r->seen.n == 0 || r->seen.seq[0] == after + 1);
    }
    struct reading r = {.after = 2, .seen.stop_at = 7};
    fixture_read(f, read_events, &r);
    assert_int_equal(r.seen.n, 7);
    assert_int_equal(r.seen.seq[6], 9);
}

/* --- what a commit tells ----------------------------------------------------------------------- */

struct told {
    struct seen seen;
    size_t batches;
    int64_t next;
    bool in_order;
};

static void on_logged(void *ctx, const struct store_event_batch *batch)
{
    struct told *t = ctx;
    struct err e;
    t->in_order &= batch->first_seq == t->next;
    t->next = batch->last_seq + 1;
    t->batches++;
    assert_int_equal(store_event_batch_each(batch, batch->first_seq, note, &t->seen, &e), 0);
}

static void a_commit_hands_on_its_events_once_and_in_order(void **state)
{
    struct fixture *f = *state;
    static struct told told;
    struct append bad = {.name = "bad", .n = 1, .fail = true};
    struct err e;
    told = (struct told){.next = 1, .in_order = true};
    f->options.logged = on_logged;
    f->options.logged_ctx = &told;
    fixture_open(f);
    for (int i = 0; i < 10; i++) {
        append(f, "x", 3);
        assert_int_equal(store_write(f->store, append_run, &bad, &e), -1);
    }
    assert_true(told.in_order);
    assert_int_equal(told.batches, 10);
    assert_int_equal(told.next, 31);
    assert_int_equal(told.seen.n, 20); /* all but the first of each batch */
}

/* --- refusals ---------------------------------------------------------------------------------- */

static void what_is_more_than_a_line_is_refused(void **state)
{
    struct fixture *f = *state;
    struct store_event bad[] = {{.name = "a b", .data = "{}"}, {.name = "a", .data = "{\n}"}};
    struct err e;
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(store_write(f->store, append_arg, &bad[i], &e), -1);
    }
    assert_int_equal(read_after(f, 0)->seen.n, 0);
}

static void a_read_appends_nothing(void **state)
{
    struct fixture *f = *state;
    struct store_event ev = {.name = "a", .data = "{}"};
    struct err e;
    assert_int_equal(store_read(f->store, append_arg, &ev, &e), -1);
    assert_int_equal(e.code, ERR_INTERNAL);
}

/* --- retention --------------------------------------------------------------------------------- */

struct expiry {
    int64_t until, keep, limit;
};

static int expire_run(struct store_tx *tx, void *arg, struct err *e)
{
    const struct expiry *x = arg;
    int64_t n = -1;
    if (store_event_expire(tx, x->until, x->keep, x->limit, &n, e) != 0) {
        return -1;
    }
    assert_true(n >= 0 && n < x->limit);
    return 0;
}

static struct store_event_range range_after(struct fixture *f, struct expiry x)
{
    fixture_write(f, expire_run, &x);
    return read_after(f, 0)->range;
}

static void retention_takes_the_oldest_rows_and_never_the_newest(void **state)
{
    struct fixture *f = *state;
    const int64_t ever = INT64_MAX / 2;
    for (int i = 0; i < 10; i++) {
        append(f, "x", 2);
    }
    assert_int_equal(range_after(f, (struct expiry){0, 1000, 100}).oldest, 1);
    assert_int_equal(range_after(f, (struct expiry){0, 16, 100}).oldest, 5);
    assert_int_equal(range_after(f, (struct expiry){0, 4, 3}).oldest, 9); /* three are looked at */
    assert_int_equal(range_after(f, (struct expiry){ever, 1000, 100}).oldest, 19);
    assert_int_equal(range_after(f, (struct expiry){ever, 0, 100}).oldest, 19);
    fixture_reopen(f);
    append(f, "x", 1);
    assert_int_equal(read_after(f, 0)->range.newest, 21);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_event_comes_back_as_it_was, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(numbers_go_on_without_gaps_past_failed_writes_and_restarts,
                                        fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(reading_begins_behind_any_number_and_stops_when_told,
                                        fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(a_commit_hands_on_its_events_once_and_in_order,
                                        fixture_setup_closed, fixture_teardown),
        cmocka_unit_test_setup_teardown(what_is_more_than_a_line_is_refused, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(a_read_appends_nothing, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(retention_takes_the_oldest_rows_and_never_the_newest,
                                        fixture_setup, fixture_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
