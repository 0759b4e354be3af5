/* Timers of the loop leave it its turns. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../gateway/server.h"
#include "leasehold/config.h"

#define FIRES 50

struct fixture {
    struct config cfg;
    char dir[32];
    int log_fd;
    struct log *log;
    struct server *server;
    struct server_timer *timer;
    int turns, fires;
    int fired_in[FIRES]; /* turns that had ended by then */
};

static void on_turn(void *ctx, int64_t busy_us, int64_t cpu_us)
{
    struct fixture *f = ctx;

    (void)busy_us;
    (void)cpu_us;
    f->turns++;
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct server_handler handler = {.ctx = f, .turn = on_turn};
    struct err e;

    strcpy(f->dir, "/tmp/test_timer.XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    f->cfg.run_dir = f->dir;
    f->cfg.http.host = "127.0.0.1";
    f->log_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    f->log = log_new(f->log_fd, LOG_ERROR, LOG_JSON);
    assert_int_equal(server_new(&f->cfg, f->log, &handler, &f->server, &e), 0);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    server_timer_free(f->timer);
    server_free(f->server);
    log_free(f->log);
    close(f->log_fd);
    assert_int_equal(rmdir(f->dir), 0);
    free(f);
    return 0;
}

static void run(struct fixture *f)
{
    struct err e;

    assert_int_equal(server_run(f->server, &(struct server_signals){0}, &e), 0);
}

static void fire_again(void *ctx)
{
    struct fixture *f = ctx;

    f->fired_in[f->fires++] = f->turns;
    if (f->fires < FIRES)
        server_timer_arm(f->timer, 0);
    else
        server_stop(f->server);
}

static void a_timer_that_is_armed_anew_at_once_fires_once_in_a_turn(void **state)
{
    struct fixture *f = *state;

    f->timer = server_timer_new(f->server, fire_again, f);
    server_timer_arm(f->timer, 0);
    run(f);
    for (int i = 2; i < FIRES; i++)
        assert_true(f->fired_in[i] > f->fired_in[i - 1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_timer_that_is_armed_anew_at_once_fires_once_in_a_turn,
                                        set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
