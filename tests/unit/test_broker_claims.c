/* What a door claims of itself is bounded by what its gateway knows: a subverted one loses its link and
 * stands in the audit trail, and no number of it reaches a gauge, a sum or an answer. */
#include "../support/broker_fixture.h"

#include <stdlib.h>

#define DOOR 9

static size_t connections(struct fixture *f)
{
    struct broker_counts c;

    broker_counts(f->broker, &c);
    return c.connections;
}

static struct lease grant_of(struct fixture *f, int64_t max_connections, int64_t seq)
{
    struct lease l = make_lease(f, 60, seq);

    l.max_connections = max_connections;
    apply(f, &(struct change){.kind = CHANGE_GRANT, .seq = seq, .lease = l});
    return l;
}

/* The door says this, after which its link is gone, and why is told once. */
static void assert_ends(struct fixture *f, const char *json, const char *why)
{
    size_t faults = f->faults_n;

    hello(f, DOOR, 7, SECRET);
    assert_true(f->live);
    f->closed_conn = 0;
    broker_door_message(f->broker, DOOR, json, strlen(json));
    assert_int_equal(f->closed_conn, DOOR);
    assert_int_equal(f->closed_code, 1002);
    assert_false(f->live);
    assert_int_equal(f->faults_n, faults + 1);
    assert_memory_equal(f->fault, why, strlen(why));
    assert_int_equal(connections(f), 0);
    f->boot_us += 2000000;
    f->sent_n = 0;
}

static void assert_goes_on(struct fixture *f, const char *json)
{
    f->closed_conn = 0;
    broker_door_message(f->broker, DOOR, json, strlen(json));
    assert_int_equal(f->closed_conn, 0);
    assert_true(f->live);
}

#define TEXT(name, ...)                                                                            \
    char name[400];                                                                                \
    snprintf(name, sizeof name, __VA_ARGS__)

#define ACTIVITY_OF                                                                                \
    "{\"t\":\"ACTIVITY\",\"last_in\":%s,\"last_out\":%s,\"bytes_in\":%s,"                          \
    "\"bytes_out\":%s,\"unrecorded\":%s,\"conns\":[]}"

/* What is no number at all has no place. */
#define WHERE(place) (i == 0 ? "malformed " place : "malformed")

static void no_number_is_negative_or_absurd(void **state)
{
    static const char *const bad[] = {"-1",  "-9223372036854775808", "1e300", "9223372036854775807",
                                      "0.5", "9007199254740994"};
    struct fixture *f = *state;
    struct lease l = grant_of(f, 2, 1);

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const char *n[5];
        static const char *const names[] = {"last_in", "last_out", "bytes_in", "bytes_out",
                                            "unrecorded"};

        for (size_t k = 0; k < 5; k++) {
            for (size_t j = 0; j < 5; j++)
                n[j] = j == k ? bad[i] : "0";
            TEXT(activity, ACTIVITY_OF, n[0], n[1], n[2], n[3], n[4]);
            TEXT(why, "malformed%s%s", i ? "" : " /", i ? "" : names[k]);
            assert_ends(f, activity, why);
        }
        TEXT(ack_seq, "{\"t\":\"ACK\",\"seq\":%s,\"cut\":0,\"latency_us\":0}", bad[i]);
        assert_ends(f, ack_seq, WHERE("/seq"));
        TEXT(cut, "{\"t\":\"ACK\",\"seq\":1,\"cut\":%s,\"latency_us\":0}", bad[i]);
        assert_ends(f, cut, WHERE("/cut"));
        TEXT(latency, "{\"t\":\"ACK\",\"seq\":1,\"cut\":0,\"latency_us\":%s}", bad[i]);
        assert_ends(f, latency, WHERE("/latency_us"));
        TEXT(ping, "{\"t\":\"PING\",\"now\":%s}", bad[i]);
        assert_ends(f, ping, WHERE("/now"));
        TEXT(in, "{\"t\":\"CLOSE\",\"jti\":\"%s\",\"code\":1000,\"bytes_in\":%s,\"bytes_out\":0}",
             ID_STR(&l.lease_id), bad[i]);
        assert_ends(f, in, WHERE("/bytes_in"));
        TEXT(out, "{\"t\":\"CLOSE\",\"jti\":\"%s\",\"code\":1000,\"bytes_in\":0,\"bytes_out\":%s}",
             ID_STR(&l.lease_id), bad[i]);
        assert_ends(f, out, WHERE("/bytes_out"));
        TEXT(put, "{\"t\":\"PUT\",\"n\":%s,\"path\":\"a\",\"name\":\"b\"}", bad[i]);
        assert_ends(f, put, WHERE("/n"));
        TEXT(conns,
             "{\"t\":\"ACTIVITY\",\"last_in\":0,\"last_out\":0,\"bytes_in\":0,\"bytes_out\":0,"
             "\"conns\":[{\"jti\":\"%s\",\"n\":%s}]}",
             ID_STR(&l.lease_id), bad[i]);
        assert_ends(f, conns, WHERE("/conns/0/n"));
    }
}

/* More than a door can have or have moved, though a number that fits. */
static void no_number_is_more_than_a_door_can_do(void **state)
{
    struct fixture *f = *state;

    assert_ends(f, "{\"t\":\"ACK\",\"seq\":1,\"cut\":2000000,\"latency_us\":0}", "malformed /cut");
}

static void a_lease_has_no_more_connections_than_it_may(void **state)
{
    struct fixture *f = *state;
    struct lease two = grant_of(f, 2, 1);

    for (int n = 0; n <= 8; n++) {
        TEXT(conns,
             "{\"t\":\"ACTIVITY\",\"last_in\":0,\"last_out\":0,\"bytes_in\":0,\"bytes_out\":0,"
             "\"conns\":[{\"jti\":\"%s\",\"n\":%d}]}",
             ID_STR(&two.lease_id), n);
        if (n > 2) {
            assert_ends(f, conns, "more connections than the lease has");
            continue;
        }
        hello(f, DOOR, 7, SECRET);
        f->sent_n = 0;
        assert_goes_on(f, conns);
        assert_int_equal(connections(f), n);
        broker_door_closed(f->broker, DOOR);
    }
    TEXT(twice,
         "{\"t\":\"ACTIVITY\",\"last_in\":0,\"last_out\":0,\"bytes_in\":0,\"bytes_out\":0,"
         "\"conns\":[{\"jti\":\"%s\",\"n\":2},{\"jti\":\"%s\",\"n\":2}]}",
         ID_STR(&two.lease_id), ID_STR(&two.lease_id));
    hello(f, DOOR, 7, SECRET);
    assert_goes_on(f, twice); /* the last word counts, and no sum of them */
    assert_int_equal(connections(f), 2);
}

static void an_admission_over_the_lease_ends_the_link(void **state)
{
    struct fixture *f = *state;
    struct lease two = grant_of(f, 2, 1);
    TEXT(admit, "{\"t\":\"ADMIT\",\"jti\":\"%s\"}", ID_STR(&two.lease_id));

    hello(f, DOOR, 7, SECRET);
    assert_goes_on(f, admit);
    assert_goes_on(f, admit);
    assert_int_equal(connections(f), 2);
    size_t faults = f->faults_n, events = f->events_n;
    broker_door_message(f->broker, DOOR, admit, strlen(admit));
    assert_int_equal(f->closed_conn, DOOR);
    assert_int_equal(f->faults_n, faults + 1);
    assert_string_equal(f->fault, "more connections than the lease has");
    assert_int_equal(f->events_n, events + 2); /* the fault and the door's end: no admission */
    assert_int_equal(connections(f), 0);
}

static void a_hello_with_too_many_connections_makes_nobody_live(void **state)
{
    struct fixture *f = *state;
    struct lease one = grant_of(f, 1, 1);
    struct door_conn conns[] = {{one.lease_id, 2}};
    struct door_msg m = {.t = DOOR_HELLO,
                         .sid = f->sandbox.session_id,
                         .ep = 7,
                         .secret = (char *)SECRET,
                         .conns = {conns, 1}};

    broker_door_open(f->broker, DOOR);
    door_says(f, DOOR, &m);
    assert_int_equal(f->closed_conn, DOOR);
    assert_int_equal(f->closed_code, 1002);
    assert_int_equal(f->faults_n, 1);
    assert_false(f->live);
    assert_int_equal(connections(f), 0);
}

/* Who has not shown the secret speaks for no session. */
static void a_stranger_that_lies_is_in_no_audit_trail(void **state)
{
    static const char lie[] = "{\"t\":\"PING\",\"now\":-1}";
    struct fixture *f = *state;

    broker_door_open(f->broker, DOOR);
    broker_door_message(f->broker, DOOR, lie, strlen(lie));
    assert_int_equal(f->closed_conn, DOOR);
    assert_int_equal(f->faults_n, 0);
}

static void a_lease_of_another_session_is_not_a_doors_business(void **state)
{
    struct fixture *f = *state;
    struct sandbox other = {.generation = 3, .status = SANDBOX_RUNNING};
    struct lease l = make_lease(f, 60, 1);
    struct err e;

    id_random(&other.session_id);
    id_random(&other.chat_id);
    assert_int_equal(broker_load_session(f->broker, &other, &e), 0);
    l.session_id = other.session_id;
    apply(f, &(struct change){.kind = CHANGE_GRANT, .seq = 1, .lease = l});
    TEXT(admit, "{\"t\":\"ADMIT\",\"jti\":\"%s\"}", ID_STR(&l.lease_id));
    TEXT(close, "{\"t\":\"CLOSE\",\"jti\":\"%s\",\"code\":1000,\"bytes_in\":0,\"bytes_out\":0}",
         ID_STR(&l.lease_id));
    assert_ends(f, admit, "a lease of another session");
    assert_ends(f, close, "a lease of another session");
}

static void the_verdict_of_a_denial_is_a_word(void **state)
{
    struct fixture *f = *state;

    hello(f, DOOR, 7, SECRET);
    assert_goes_on(f, "{\"t\":\"DENY\",\"verdict\":\"not_yet_valid\"}");
    assert_ends(f, "{\"t\":\"DENY\",\"verdict\":\"ok\\u001b[2J\"}", "a verdict that is no word");
    assert_ends(f, "{\"t\":\"DENY\",\"verdict\":\"expired actor=root\"}",
                "a verdict that is no word");
}

/* It cannot have taken longer than the gateway waited. */
static void a_cut_takes_no_longer_than_its_confirmation(void **state)
{
    struct fixture *f = *state;
    struct lease l;

    hello(f, DOOR, 7, SECRET);
    l = grant_of(f, 1, 1);
    revoke(f, &l, 2);
    f->boot_us += 5000;
    assert_goes_on(f, "{\"t\":\"ACK\",\"seq\":2,\"cut\":1,\"latency_us\":900000000}");
    assert_int_equal(f->event.kind, BROKER_ACK);
    assert_int_equal(f->event.latency_us, 5000);
    assert_int_equal(f->event.door_latency_us, 5000);
}

/* Else a lease that is open would pass for one that the door knows to be over. */
static void a_doors_time_is_not_ahead_of_its_gateways(void **state)
{
    struct fixture *f = *state;
    struct lease l;

    hello(f, DOOR, 7, SECRET);
    l = grant_of(f, 1, 1);
    TEXT(ping, "{\"t\":\"PING\",\"now\":%lld}", (long long)l.expires_at + 1000000);
    assert_goes_on(f, ping);
    f->wall_ms += 60 * 1000 + HEARD;
    f->boot_us += (60 * 1000 + HEARD) * 1000LL;
    broker_tick(f->broker);
    assert_int_equal(f->expired_n, 1);
    assert_int_equal(f->unused_n, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(no_number_is_negative_or_absurd),
        TEST(no_number_is_more_than_a_door_can_do),
        TEST(a_lease_has_no_more_connections_than_it_may),
        TEST(an_admission_over_the_lease_ends_the_link),
        TEST(a_hello_with_too_many_connections_makes_nobody_live),
        TEST(a_stranger_that_lies_is_in_no_audit_trail),
        TEST(a_lease_of_another_session_is_not_a_doors_business),
        TEST(the_verdict_of_a_denial_is_a_word),
        TEST(a_cut_takes_no_longer_than_its_confirmation),
        TEST(a_doors_time_is_not_ahead_of_its_gateways),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
