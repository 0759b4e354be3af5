/* A call whose time is over when its turn comes is answered, not run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <fcntl.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../gateway/meters.h"
#include "../../gateway/op.h"
#include "../../gateway/services.h"

struct fixture {
    struct services s;
    struct config cfg;
    struct clock clock;
    int64_t boot_us;
    struct inbox *inbox;
    int log_fd;
    /* the thread of the lane is held here */
    struct job gate;
    sem_t entered, go;
    /* what came out */
    int ran, answers, status;
    enum err_code code;
};

static int64_t test_wall(void *ctx)
{
    (void)ctx;
    return 1800000000000;
}

static int64_t test_boot(void *ctx)
{
    return ((const struct fixture *)ctx)->boot_us;
}

static void no_wake(void *ctx)
{
    (void)ctx;
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct err e;

    f->boot_us = 1000000;
    f->clock = (struct clock){test_wall, test_boot, f};
    f->cfg.sandbox.start_timeout_seconds = 60;
    f->log_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    f->inbox = inbox_new(no_wake, NULL);
    f->s = (struct services){.cfg = &f->cfg, .clock = &f->clock};
    f->s.log = log_new(f->log_fd, LOG_ERROR, LOG_JSON);
    f->s.meters = meters_new(&e);
    f->s.file = lane_new("file", 1, 10, f->inbox, &e);
    f->s.runtime = lane_new("runtime", 1, 10, f->inbox, &e);
    assert_non_null(f->s.meters);
    assert_non_null(f->s.runtime);
    sem_init(&f->entered, 0, 0);
    sem_init(&f->go, 0, 0);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    lane_free(f->s.file);
    lane_free(f->s.runtime);
    inbox_free(f->inbox);
    meters_free(f->s.meters);
    log_free(f->s.log);
    close(f->log_fd);
    free(f);
    return 0;
}

static void gate_run(struct job *job)
{
    struct fixture *f = (struct fixture *)((char *)job - offsetof(struct fixture, gate));

    sem_post(&f->entered);
    sem_wait(&f->go);
}

static void gate_done(struct job *job)
{
    (void)job;
}

static void hold(struct fixture *f, struct lane *l)
{
    struct err e;

    f->gate = (struct job){.run = gate_run, .done = gate_done};
    assert_int_equal(lane_submit(l, &f->gate, &e), 0);
    sem_wait(&f->entered);
}

static void let_go(struct fixture *f, struct lane **l)
{
    sem_post(&f->go);
    lane_free(*l); /* runs what waits */
    *l = NULL;
    inbox_drain(f->inbox, 100);
}

static struct fixture *fixture_of(const struct call *c)
{
    return (struct fixture *)((char *)c->s - offsetof(struct fixture, s));
}

static int op_run(struct call *c, struct err *e)
{
    (void)e;
    fixture_of(c)->ran++;
    return 0;
}

static void op_key(struct call *c, struct id *ret)
{
    (void)c;
    *ret = (struct id){{0}};
}

static void on_reply(struct call *c)
{
    struct fixture *f = fixture_of(c);

    f->answers++;
    f->status = c->status;
    f->code = c->rc ? c->e.code : ERR_NONE;
}

static void start(struct fixture *f, struct op *op)
{
    struct call *c = call_new(&f->s);

    assert_non_null(c);
    op->name = "test";
    op->status = 200;
    op->run = op_run;
    op->key = op_key;
    c->op = op;
    c->reply = on_reply;
    call_start(c);
}

static void expired(struct fixture *f, const char *line)
{
    struct buf b;

    buf_init(&b, 1 << 20);
    meters_write(f->s.meters, &b);
    assert_true(buf_ok(&b));
    if (!strstr(b.data, line))
        fail_msg("%s is not there", line);
    buf_done(&b);
}

static void a_call_in_time_runs(void **state)
{
    struct fixture *f = *state;
    struct op op = {.lane = ON_FILE};

    hold(f, f->s.file);
    start(f, &op);
    f->boot_us += 30 * 1000000;
    let_go(f, &f->s.file);
    assert_int_equal(f->ran, 1);
    assert_int_equal(f->status, 200);
    expired(f, "leasehold_lane_expired_total{lane=\"file\"} 0\n");
}

static void a_call_whose_time_is_over_is_busy_and_has_not_run(void **state)
{
    struct fixture *f = *state;
    struct op op = {.lane = ON_FILE};

    hold(f, f->s.file);
    start(f, &op);
    f->boot_us += 30 * 1000000 + 1;
    let_go(f, &f->s.file);
    assert_int_equal(f->answers, 1);
    assert_int_equal(f->ran, 0);
    assert_int_equal(f->status, 503);
    assert_int_equal(f->code, ERR_BUSY);
    expired(f, "leasehold_lane_expired_total{lane=\"file\"} 1\n");
}

static void a_call_behind_a_start_waits_for_that_and_no_longer(void **state)
{
    struct fixture *f = *state;
    struct op op = {.lane = ON_RUNTIME};

    hold(f, f->s.runtime);
    start(f, &op);
    f->boot_us += 10 * 1000000;
    start(f, &op);
    f->boot_us += 65 * 1000000 + 1;
    let_go(f, &f->s.runtime);
    assert_int_equal(f->answers, 2);
    assert_int_equal(f->ran, 1);
    expired(f, "leasehold_lane_expired_total{lane=\"runtime\"} 1\n");
}

static void a_row_may_have_a_time_of_its_own(void **state)
{
    struct fixture *f = *state;
    struct op op = {.lane = ON_FILE, .timeout_s = 2};

    hold(f, f->s.file);
    start(f, &op);
    f->boot_us += 2 * 1000000 + 1;
    let_go(f, &f->s.file);
    assert_int_equal(f->ran, 0);
    assert_int_equal(f->code, ERR_BUSY);
}

static void what_still_waits_when_the_gateway_ends_is_not_begun(void **state)
{
    struct fixture *f = *state;
    struct op op = {.lane = ON_FILE};

    hold(f, f->s.file);
    start(f, &op);
    f->s.stopping = true;
    let_go(f, &f->s.file);
    assert_int_equal(f->answers, 1);
    assert_int_equal(f->ran, 0);
    assert_int_equal(f->code, ERR_BUSY);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_call_in_time_runs),
        TEST(a_call_whose_time_is_over_is_busy_and_has_not_run),
        TEST(a_call_behind_a_start_waits_for_that_and_no_longer),
        TEST(a_row_may_have_a_time_of_its_own),
        TEST(what_still_waits_when_the_gateway_ends_is_not_begun),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
