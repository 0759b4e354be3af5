/* Which session an open that goes past its chat's key may be answered with. */
#include "../support/store_fixture.h"

#include "../../gateway/meters.h"
#include "../../gateway/sessions.h"

struct asked {
    struct fixture *f;
    struct services s;
    struct caller caller;
    struct session_opened opened;
};

static int setup(void **state)
{
    struct asked *a = calloc(1, sizeof *a);
    struct err e;

    assert_non_null(a);
    a->f = fixture_new();
    fixture_open(a->f);
    fixture_add_session(a->f);
    a->s = (struct services){.log = a->f->log, .store = a->f->store, .meters = meters_new(&e)};
    assert_non_null(a->s.meters);
    *state = a;
    return 0;
}

static int teardown(void **state)
{
    struct asked *a = *state;

    meters_free(a->s.meters);
    fixture_free(a->f);
    free(a);
    return 0;
}

struct becoming {
    struct id session_id;
    enum sandbox_status status;
};

static int become_row(struct store_tx *tx, void *arg, struct err *e)
{
    const struct becoming *b = arg;
    struct sandbox s;

    if (store_sandbox_get(tx, &b->session_id, &s, e))
        return -1;
    s.status = b->status;
    s.idle_ttl_s = 60;
    return store_sandbox_update(tx, &s, e);
}

static enum session_joined join(struct asked *a, enum sandbox_status status, int64_t idle_ttl_s)
{
    struct becoming b = {a->f->session_id, status};
    struct session_open o = {
        .chat_id = a->f->chat_id, .idle_ttl_s = idle_ttl_s, .caller = &a->caller};
    enum session_joined joined;
    struct err e;

    fixture_write(a->f, become_row, &b);
    assert_int_equal(session_join(&a->s, &o, &a->opened, &joined, &e), 0);
    return joined;
}

static void one_that_starts_is_the_answer(void **state)
{
    struct asked *a = *state;

    assert_int_equal(join(a, SANDBOX_STARTING, 0), SESSION_JOINED);
    assert_true(id_equal(&a->opened.sandbox.session_id, &a->f->session_id));
    assert_int_equal(join(a, SANDBOX_STARTING, 60), SESSION_JOINED);
}

static void another_idle_time_has_its_turn(void **state)
{
    assert_int_equal(join(*state, SANDBOX_STARTING, 61), SESSION_JOIN_LATER);
}

/* It is no answer, and to look again at once would be to look without end. */
static void one_that_is_being_stopped_is_waited_for(void **state)
{
    assert_int_equal(join(*state, SANDBOX_STOPPING, 0), SESSION_JOIN_LATER);
}

static void what_runs_or_has_ended_is_for_an_open_like_others(void **state)
{
    assert_int_equal(join(*state, SANDBOX_RUNNING, 0), SESSION_JOIN_NONE);
    assert_int_equal(join(*state, SANDBOX_STOPPED, 0), SESSION_JOIN_NONE);
    assert_int_equal(join(*state, SANDBOX_FAILED, 0), SESSION_JOIN_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_that_starts_is_the_answer, setup, teardown),
        cmocka_unit_test_setup_teardown(another_idle_time_has_its_turn, setup, teardown),
        cmocka_unit_test_setup_teardown(one_that_is_being_stopped_is_waited_for, setup, teardown),
        cmocka_unit_test_setup_teardown(what_runs_or_has_ended_is_for_an_open_like_others, setup,
                                        teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
