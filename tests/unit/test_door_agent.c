/* The door's listener for its agent when there are no descriptors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../lease/door/agent.h"
#include "leasehold/agent_link.h"

#define STOP_AFTER_US INT64_C(2000000) /* what has not come by then does not come */

struct fixture {
    struct loop *loop;
    struct loop_timer *timer;
    struct agent *agent;
    struct sockaddr_un at;
    socklen_t at_len;
    int rounds, visitors;
    bool up;
};

static struct fixture *kept; /* a door frees no agent: it ends with it */

static void on_up(void *ctx)
{
    struct fixture *f = ctx;
    f->up = true;
    loop_stop(f->loop);
}

static void on_ended(void *ctx, const char *why)
{
    (void)ctx, (void)why;
}

static void on_visitor(void *ctx, int fd)
{
    struct fixture *f = ctx;
    close(fd);
    f->visitors++;
    loop_stop(f->loop);
}

static void on_time(void *ctx)
{
    loop_stop(((struct fixture *)ctx)->loop);
}

static void after(void *ctx)
{
    ((struct fixture *)ctx)->rounds++;
}

static void run(struct fixture *f, int64_t us)
{
    f->rounds = 0;
    loop_timer_set(f->timer, us);
    loop_run(f->loop, after, f);
}

static int connect_to(const struct fixture *f)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&f->at, f->at_len), 0);
    return fd;
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    const struct agent_events events = {
        .ctx = f, .up = on_up, .ended = on_ended, .visitor = on_visitor};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct err e;
    f->at = (struct sockaddr_un){.sun_family = AF_UNIX};
    f->at_len = sizeof f->at;
    /* The kernel chooses an abstract name. */
    assert_int_equal(bind(fd, (struct sockaddr *)&f->at, sizeof(sa_family_t)), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&f->at, &f->at_len), 0);
    assert_int_equal(listen(fd, 8), 0);
    f->loop = loop_new(&e);
    f->timer = loop_timer_new(f->loop, on_time, f);
    f->agent = agent_new(f->loop, fd, "stdio", &events, &e);
    assert_non_null(f->agent);
    *state = kept = f;
    return 0;
}

/* No further descriptor; returns what was allowed before. */
static struct rlimit descriptors_end(void)
{
    struct rlimit before, none;
    int next = dup(STDIN_FILENO);
    assert_true(next >= 0);
    close(next);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){.rlim_cur = (rlim_t)next, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    return before;
}

static void hello_say(int fd)
{
    static const char payload[] = {LINK_VERSION, 's', 't', 'd', 'i', 'o'};
    uint8_t head[LINK_HEADER];
    link_header_put(head, LINK_HELLO, sizeof payload);
    assert_int_equal(send(fd, head, sizeof head, 0), sizeof head);
    assert_int_equal(send(fd, payload, sizeof payload, 0), sizeof payload);
}

static void test_without_descriptors_it_rests_and_goes_on_once_there_are_some(void **state)
{
    struct fixture *f = *state;
    int link = connect_to(f), visitor;
    struct rlimit before = descriptors_end();
    hello_say(link);
    run(f, 250000);
    assert_in_range(f->rounds, 1, 20);
    assert_false(f->up);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    run(f, STOP_AFTER_US);
    assert_true(f->up);
    visitor = connect_to(f);
    run(f, STOP_AFTER_US);
    assert_int_equal(f->visitors, 1);
    close(link);
    close(visitor);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_without_descriptors_it_rests_and_goes_on_once_there_are_some,
                               setup),
    };
    return cmocka_run_group_tests_name("door_agent", tests, NULL, NULL);
}
