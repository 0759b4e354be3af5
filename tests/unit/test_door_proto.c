/* The wire form of the control protocol: what one side writes the other reads, and nothing else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "leasehold/door_proto.h"
#include "leasehold/json.h"

#define SECRET "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define JTI    "6fa459ea-ee8a-4ca4-894e-db77e160355e"

struct fixture {
    struct arena *arena;
    struct buf text;
    struct door_msg got;
    struct err e;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));

    f->arena = arena_new(1 << 20);
    buf_init(&f->text, DOOR_CONTROL_MAX);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    arena_free(f->arena);
    buf_done(&f->text);
    free(f);
    return 0;
}

static struct id id_n(uint8_t n)
{
    return (struct id){{n, 1, 2, 3, 4, 5, 0x46, 7, 0x88, 9, 10, 11, 12, 13, 14, 15}};
}

/* Encodes, decodes, encodes again: both texts must be the same. */
static const struct door_msg *trip(struct fixture *f, const struct door_msg *m)
{
    struct buf again;

    buf_reset(&f->text);
    door_msg_encode(m, &f->text);
    assert_true(buf_ok(&f->text));
    assert_int_equal(door_msg_decode(f->text.data, f->text.len, f->arena, &f->got, &f->e), 0);
    buf_init(&again, DOOR_CONTROL_MAX);
    door_msg_encode(&f->got, &again);
    assert_int_equal(again.len, f->text.len);
    assert_memory_equal(again.data, f->text.data, again.len);
    buf_done(&again);
    assert_int_equal(f->got.t, m->t);
    return &f->got;
}

static void hello_survives_the_trip(void **state)
{
    struct door_conn conns[] = {{id_n(1), 2}, {id_n(2), 1}};
    char secret[] = SECRET;
    struct door_msg m = {.t = DOOR_HELLO,
                         .sid = id_n(9),
                         .ep = 7,
                         .boot_id = id_n(8),
                         .secret = secret,
                         .applied = 0,
                         .agent = DOOR_AGENT_ENDED,
                         .conns = {conns, 2}};
    const struct door_msg *got = trip(*state, &m);

    assert_true(id_equal(&got->sid, &m.sid));
    assert_true(id_equal(&got->boot_id, &m.boot_id));
    assert_string_equal(got->secret, SECRET);
    assert_int_equal(got->agent, DOOR_AGENT_ENDED);
    assert_int_equal(got->conns.n, 2);
    assert_true(id_equal(&((struct door_conn *)got->conns.items)[1].jti, &conns[1].jti));
    assert_int_equal(((struct door_conn *)got->conns.items)[0].n, 2);
}

static void snapshot_survives_the_trip(void **state)
{
    struct door_allow allow[] = {{id_n(1), 1700000000, SCOPE_READ, 3, USE_ONCE},
                                 {id_n(2), 1700000001, SCOPE_READ | SCOPE_WRITE, 1, USE_MULTI}};
    struct key_public keys[2] = {{.kid = "kid-a", .x = "x-a", .y = "y-a"},
                                 {.kid = "kid-b", .x = "x-b", .y = "y-b", .retired_at = 17}};
    struct door_msg m = {.t = DOOR_SNAPSHOT,
                         .seq = INT64_C(1) << 40,
                         .now = INT64_C(1700000000123),
                         .stale_s = 3,
                         .seal_s = 15,
                         .allow = {allow, 2},
                         .consumed = {&allow[1].jti, 1},
                         .keys = {keys, 2}};
    const struct door_msg *got = trip(*state, &m);
    const struct door_allow *a = got->allow.items;

    assert_int_equal(got->seq, m.seq);
    assert_int_equal(got->now, m.now);
    assert_int_equal(got->allow.n, 2);
    assert_true(id_equal(&a[0].jti, &allow[0].jti));
    assert_int_equal(a[0].exp, allow[0].exp);
    assert_int_equal(a[0].use, USE_ONCE);
    assert_int_equal(a[0].mc, 3);
    assert_int_equal(a[1].scope, SCOPE_READ | SCOPE_WRITE);
    assert_int_equal(got->keys.n, 2);
    assert_string_equal(((struct key_public *)got->keys.items)[1].x, "x-b");
    assert_int_equal(((struct key_public *)got->keys.items)[0].retired_at, 0);
    assert_int_equal(((struct key_public *)got->keys.items)[1].retired_at, 17);
    assert_int_equal(got->consumed.n, 1);
    assert_true(id_equal(got->consumed.items, &allow[1].jti));
}

static void an_empty_snapshot_is_one(void **state)
{
    struct door_msg m = {.t = DOOR_SNAPSHOT, .seq = 0, .now = 1, .stale_s = 1, .seal_s = 2};
    const struct door_msg *got = trip(*state, &m);

    assert_int_equal(got->allow.n, 0);
    assert_int_equal(got->keys.n, 0);
}

static void every_operation_survives_the_trip(void **state)
{
    struct key_public keys[1] = {{.kid = "kid", .x = "x", .y = "y"}};
    struct id ids[2] = {id_n(1), id_n(2)};
    struct door_msg ops[] = {
        {.op = DOOR_OP_GRANT, .exp = 9, .scope = SCOPE_WRITE, .mc = 8, .use = USE_ONCE},
        {.op = DOOR_OP_EXTEND, .exp = 10},
        {.op = DOOR_OP_REVOKE, .code = CLOSE_REVOKED},
        {.op = DOOR_OP_REVOKE_ALL, .code = CLOSE_REVOKED},
        {.op = DOOR_OP_KEYS, .keys = {keys, 1}},
        {.op = DOOR_OP_REVOKE_LIST, .code = CLOSE_UNAUTHENTICATED, .jtis = {ids, 2}},
    };

    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
        const struct door_msg *got;

        ops[i].t = DOOR_OP;
        ops[i].seq = 5;
        ops[i].jti = id_n(4);
        got = trip(*state, &ops[i]);
        assert_int_equal(got->op, ops[i].op);
        assert_int_equal(got->seq, 5);
        assert_int_equal(got->exp, ops[i].exp);
        assert_int_equal(got->code, ops[i].code);
        assert_int_equal(got->mc, ops[i].mc);
        assert_int_equal(got->keys.n, ops[i].keys.n);
        assert_int_equal(got->jtis.n, ops[i].jtis.n);
        if (got->jtis.n)
            assert_memory_equal(got->jtis.items, ids, sizeof ids);
    }
}

static void reports_survive_the_trip(void **state)
{
    char verdict[] = "expired";
    struct door_msg ms[] = {
        {.t = DOOR_ACK, .seq = 4, .cut = 2, .latency_us = 180},
        {.t = DOOR_AGENT, .agent = DOOR_AGENT_UP},
        {.t = DOOR_ACTIVITY,
         .last_in = 1,
         .last_out = 2,
         .bytes_in = 3,
         .bytes_out = 4,
         .unrecorded = 5},
        {.t = DOOR_ADMIT, .jti = id_n(3)},
        {.t = DOOR_CLOSE, .jti = id_n(3), .code = 1006, .bytes_in = 1, .bytes_out = 2},
        {.t = DOOR_DENY, .verdict = verdict},
        {.t = DOOR_PING, .now = INT64_C(1700000000123)},
        {.t = DOOR_RETIRE},
    };

    for (size_t i = 0; i < sizeof(ms) / sizeof(ms[0]); i++) {
        const struct door_msg *got = trip(*state, &ms[i]);

        assert_int_equal(got->latency_us, ms[i].latency_us);
        assert_int_equal(got->bytes_out, ms[i].bytes_out);
        assert_int_equal(got->unrecorded, ms[i].unrecorded);
        assert_int_equal(got->code, ms[i].code);
        assert_int_equal(got->now, ms[i].now);
        assert_true(id_equal(&got->jti, &ms[i].jti));
    }
}

static void a_message_has_the_members_of_its_type_only(void **state)
{
    struct fixture *f = *state;
    char secret[] = SECRET;
    struct door_msg m = {.t = DOOR_PING, .now = 5, .secret = secret, .seq = 9};

    trip(f, &m);
    assert_string_equal(f->text.data, "{\"t\":\"PING\",\"now\":5}");
}

static void members_of_a_later_version_are_skipped(void **state)
{
    struct fixture *f = *state;
    const char *text = "{\"t\":\"PING\",\"later\":{\"a\":[1]},\"now\":5}";

    assert_int_equal(door_msg_decode(text, strlen(text), f->arena, &f->got, &f->e), 0);
    assert_int_equal(f->got.now, 5);
}

static void hostile_messages_are_refused(void **state)
{
    static const char *const texts[] = {
        "",
        "{",
        "[]",
        "null",
        "{}",
        "{\"t\":\"NO\"}",
        "{\"t\":5}",
        "{\"t\":\"PING\"}",
        "{\"t\":\"PING\",\"now\":-1}",
        "{\"t\":\"PING\",\"now\":\"5\"}",
        "{\"t\":\"PING\",\"now\":5}x",
        "{\"t\":\"PING\",\"now\":5,\"now\":6}",
        "{\"t\":\"PING\",\"t\":\"RETIRE\",\"now\":5}",
        "{\"t\":\"OP\",\"seq\":1}",
        "{\"t\":\"OP\",\"seq\":1,\"op\":\"NO\"}",
        "{\"t\":\"OP\",\"seq\":0,\"op\":\"REVOKE\",\"jti\":\"" JTI "\",\"code\":4403}",
        "{\"t\":\"OP\",\"seq\":1,\"op\":\"REVOKE\",\"jti\":\"no\",\"code\":4403}",
        "{\"t\":\"OP\",\"seq\":1,\"op\":\"REVOKE\",\"jti\":\"" JTI "\",\"code\":99}",
        "{\"t\":\"OP\",\"seq\":1,\"op\":\"REVOKE\",\"jti\":\"" JTI "\",\"code\":70000}",
        "{\"t\":\"OP\",\"seq\":1,\"op\":\"REVOKE\",\"code\":4403}",
        "{\"t\":\"OP\",\"seq\":1,\"op\":\"GRANT\",\"jti\":\"" JTI
        "\",\"exp\":9,\"scope\":[],\"mc\":1,\"use\":\"multi\"}",
        "{\"t\":\"OP\",\"seq\":1,\"op\":\"GRANT\",\"jti\":\"" JTI
        "\",\"exp\":9,\"scope\":[\"root\"],\"mc\":1,\"use\":\"multi\"}",
        "{\"t\":\"OP\",\"seq\":1,\"op\":\"GRANT\",\"jti\":\"" JTI
        "\",\"exp\":9,\"scope\":[\"read\"],\"mc\":9,\"use\":\"multi\"}",
        "{\"t\":\"OP\",\"seq\":1,\"op\":\"KEYS\",\"keys\":[{\"kid\":\"k\",\"x\":\"x\"}]}",
        "{\"t\":\"OP\",\"seq\":1,\"op\":\"KEYS\",\"keys\":[{\"kid\":\"k\",\"x\":\"x\",\"y\":"
        "\"0123456789012345678901234567890123456789abcdef\"}]}",
        "{\"t\":\"HELLO\",\"sid\":\"" JTI "\",\"ep\":1,\"boot_id\":\"" JTI
        "\",\"secret\":\"short\",\"applied\":0,\"agent\":\"none\",\"conns\":[]}",
        "{\"t\":\"SNAPSHOT\",\"seq\":1,\"now\":1,\"stale_s\":0,\"seal_s\":1,\"allow\":[],"
        "\"keys\":[]}",
        "{\"t\":\"SNAPSHOT\",\"seq\":1,\"now\":1,\"stale_s\":1,\"seal_s\":2,\"keys\":[]}",
        "{\"t\":\"DENY\",\"verdict\":\"\"}",
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        err_clear(&f->e);
        if (door_msg_decode(texts[i], strlen(texts[i]), f->arena, &f->got, &f->e) == 0)
            fail_msg("accepted: %s", texts[i]);
        assert_int_not_equal(f->e.code, ERR_NONE);
    }
}

static void a_refused_message_leaves_nothing_decoded(void **state)
{
    struct fixture *f = *state;
    struct door_msg zero = {0};
    const char *text = "{\"t\":\"OP\",\"seq\":1,\"op\":\"REVOKE\",\"code\":4403}";

    memset(&f->got, 0x5a, sizeof(f->got));
    assert_int_equal(door_msg_decode(text, strlen(text), f->arena, &f->got, &f->e), -1);
    assert_memory_equal(&f->got, &zero, sizeof(zero));
}

static void what_has_no_type_cannot_be_written(void **state)
{
    struct fixture *f = *state;
    struct door_msg m = {.t = 99};

    door_msg_encode(&m, &f->text);
    assert_false(buf_ok(&f->text));
    buf_reset(&f->text);
    m = (struct door_msg){.t = DOOR_OP, .op = 99};
    door_msg_encode(&m, &f->text);
    assert_false(buf_ok(&f->text));
}

static void every_close_code_has_its_reason(void **state)
{
    static const int codes[] = {1003, 1013, 4401, 4403, 4408, 4409, 4410, 4411, 4430, 4503};

    (void)state;
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        assert_true(strlen(door_close_reason(codes[i])) > 0);
        /* RFC 6455: a Close frame holds 125 bytes, two of them the code. */
        assert_true(strlen(door_close_reason(codes[i])) <= 60);
    }
    assert_string_equal(door_close_reason(1000), "");
    assert_string_equal(door_close_reason(0), "");
}

static void the_spec_is_read_and_checked(void **state)
{
    struct fixture *f = *state;
    struct door_spec spec = {0};
    const char *text = "{\"session_id\":\"" JTI "\",\"ep\":7,\"secret\":\"" SECRET
                       "\",\"issuer\":\"i\",\"node\":\"n\",\"uid\":10002,\"gid\":10002,"
                       "\"agent_gid\":10001,\"leeway_s\":5,\"ttl_max_s\":900,\"stale_s\":3,"
                       "\"seal_s\":15,\"transport\":\"stdio\",\"origins\":[\"https://a\"]}";
    const char *short_secret = "{\"session_id\":\"" JTI "\",\"ep\":7,\"secret\":\"0\"}";

    assert_int_equal(json_decode(text, strlen(text), door_spec_fields, &spec, f->arena, &f->e), 0);
    assert_int_equal(spec.uid, 10002);
    assert_int_equal(spec.origins.n, 1);
    assert_string_equal(((char **)spec.origins.items)[0], "https://a");
    assert_int_equal(
        json_decode(short_secret, strlen(short_secret), door_spec_fields, &spec, f->arena, &f->e),
        -1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(hello_survives_the_trip),
        TEST(snapshot_survives_the_trip),
        TEST(an_empty_snapshot_is_one),
        TEST(every_operation_survives_the_trip),
        TEST(reports_survive_the_trip),
        TEST(a_message_has_the_members_of_its_type_only),
        TEST(members_of_a_later_version_are_skipped),
        TEST(hostile_messages_are_refused),
        TEST(a_refused_message_leaves_nothing_decoded),
        TEST(what_has_no_type_cannot_be_written),
        TEST(every_close_code_has_its_reason),
        TEST(the_spec_is_read_and_checked),
    };

    return cmocka_run_group_tests_name("door_proto", tests, NULL, NULL);
}
