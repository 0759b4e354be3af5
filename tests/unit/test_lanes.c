#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "leasehold/lanes.h"

#define JOBS 4000
#define KEYS 7

/* What the jobs of one test share. */
struct world {
    struct inbox *in;
    struct lane *lane;
    sem_t woken;
    sem_t gate;    /* jobs of run_gated wait here */
    sem_t started; /* one post a gated job that has begun */
    atomic_int wakes;
    atomic_int ran;
    int done;                   /* the drainer's */
    int next_of_key[KEYS];      /* touched by the running job of a key only: TSan proves it */
    int next_done_of_key[KEYS]; /* the drainer's */
    atomic_int running_of_key[KEYS];
    atomic_int overlaps, disorders;
};

struct test_job {
    struct job job; /* first: the callbacks get a pointer to it */
    struct world *w;
    int key, number;
    bool saw_blocked_signal;
};

static struct world world;
static struct test_job jobs[JOBS];

static void wake(void *ctx)
{
    struct world *w = ctx;
    atomic_fetch_add(&w->wakes, 1);
    sem_post(&w->woken);
}

static int set_up(void **state)
{
    (void)state;
    memset(&world, 0, sizeof(world));
    memset(jobs, 0, sizeof(jobs));
    sem_init(&world.woken, 0, 0);
    sem_init(&world.gate, 0, 0);
    sem_init(&world.started, 0, 0);
    world.in = inbox_new(wake, &world);
    return world.in == NULL;
}

static int tear_down(void **state)
{
    (void)state;
    lane_free(world.lane);
    while (inbox_drain(world.in, 16) != 0) {
    }
    inbox_free(world.in);
    sem_destroy(&world.woken);
    sem_destroy(&world.gate);
    sem_destroy(&world.started);
    return 0;
}

static void lane_start(unsigned threads, size_t queue_max)
{
    struct err e;
    world.lane = lane_new("test", threads, queue_max, world.in, &e);
    assert_non_null(world.lane);
}

static void count_run(struct job *job)
{
    atomic_fetch_add(&((struct test_job *)job)->w->ran, 1);
}

static void count_done(struct job *job)
{
    ((struct test_job *)job)->w->done++;
}

static void run_gated(struct job *job)
{
    struct test_job *t = (struct test_job *)job;
    sem_post(&t->w->started);
    while (sem_wait(&t->w->gate) != 0 && errno == EINTR) {
    }
    count_run(job);
}

static struct job *prepare(int i, void (*run)(struct job *), void (*done)(struct job *))
{
    jobs[i].w = &world;
    jobs[i].job.run = run;
    jobs[i].job.done = done;
    return &jobs[i].job;
}

static struct id key_of(int n)
{
    return (struct id){.b = {[0] = 1, [15] = (uint8_t)n}};
}

static void drain_until(int done)
{
    while (world.done < done) {
        sem_wait(&world.woken);
        while (inbox_drain(world.in, 10) != 0) {
        }
    }
}

/* --- inbox ---------------------------------------------------------------------------------- */

static void done_in_order(struct job *job)
{
    struct test_job *t = (struct test_job *)job;
    if (t->number != t->w->next_done_of_key[t->key]++) {
        atomic_fetch_add(&t->w->disorders, 1);
    }
    t->w->done++;
}

static void inbox_keeps_the_order_and_honours_max(void **state)
{
    (void)state;
    assert_int_equal(inbox_drain(world.in, 10), 0);
    for (int i = 0; i < 10; i++) {
        jobs[i].number = i;
        inbox_post(world.in, prepare(i, NULL, done_in_order));
    }
    assert_int_equal(world.wakes, 1);
    assert_int_equal(inbox_drain(world.in, 4), 6);
    assert_int_equal(world.done, 4);
    assert_int_equal(inbox_drain(world.in, 0), 6);
    assert_int_equal(inbox_drain(world.in, 100), 0);
    assert_int_equal(world.done, 10);
    assert_int_equal(world.disorders, 0);
    inbox_post(world.in, prepare(0, NULL, count_done));
    assert_int_equal(world.wakes, 2);
}

static void done_posts_again(struct job *job)
{
    struct test_job *t = (struct test_job *)job;
    if (++t->w->done < 5) {
        inbox_post(t->w->in, job);
    }
}

static void done_may_post_to_its_inbox(void **state)
{
    (void)state;
    inbox_post(world.in, prepare(0, NULL, done_posts_again));
    drain_until(5);
    assert_int_equal(world.wakes, 5);
}

/* Each call of done(), by number; `key` of a job: so often it is not finished. */
static struct calls {
    int numbers[16];
    size_t n;
} calls;

static void done_in_pieces(struct job *job)
{
    struct test_job *t = (struct test_job *)job;
    calls.numbers[calls.n++] = t->number;
    if (t->key-- > 0) {
        inbox_again(t->w->in, job);
    }
}

static void post_pieces(int number, int unfinished)
{
    jobs[number].number = number;
    jobs[number].key = unfinished;
    inbox_post(world.in, prepare(number, NULL, done_in_pieces));
}

static void assert_calls(const char *expected)
{
    char seen[sizeof calls.numbers / sizeof *calls.numbers + 1] = "";
    for (size_t i = 0; i < calls.n; i++) {
        seen[i] = (char)('0' + calls.numbers[i]);
    }
    assert_string_equal(seen, expected);
}

static void a_job_that_is_not_finished_goes_on_before_all_others(void **state)
{
    (void)state;
    calls.n = 0;
    for (int i = 0; i < 4; i++) {
        post_pieces(i, i == 1 ? 2 : 0);
    }
    assert_int_equal(inbox_drain(world.in, 3), 3);
    assert_calls("01");
    post_pieces(4, 0);
    assert_int_equal(inbox_drain(world.in, 10), 4);
    assert_calls("011");
    assert_int_equal(inbox_drain(world.in, 1), 3);
    assert_int_equal(inbox_drain(world.in, 10), 0);
    assert_calls("0111234");
    assert_int_equal(world.wakes, 1); /* who drains knew each time that something was left */
}

static void a_job_that_is_not_finished_may_be_the_last(void **state)
{
    (void)state;
    calls.n = 0;
    post_pieces(0, 2);
    assert_int_equal(inbox_drain(world.in, 10), 1);
    post_pieces(1, 1);
    assert_int_equal(inbox_drain(world.in, 10), 2);
    assert_int_equal(inbox_drain(world.in, 10), 1);
    assert_int_equal(inbox_drain(world.in, 10), 0);
    assert_calls("00011");
    post_pieces(2, 0);
    assert_int_equal(world.wakes, 2);
    assert_int_equal(inbox_drain(world.in, 10), 0);
    assert_calls("000112");
}

static void *post_quarter(void *arg)
{
    int producer = (int)(intptr_t)arg;
    for (int i = 0; i < JOBS / 4; i++) {
        int at = producer * (JOBS / 4) + i;
        jobs[at].key = producer;
        jobs[at].number = i;
        inbox_post(world.in, prepare(at, NULL, done_in_order));
    }
    return NULL;
}

static void posts_of_each_producer_arrive_in_order(void **state)
{
    (void)state;
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, post_quarter, (void *)(intptr_t)i), 0);
    }
    drain_until(JOBS);
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
    }
    assert_int_equal(world.disorders, 0);
}

/* --- lanes ---------------------------------------------------------------------------------- */

static void every_job_runs_and_comes_back(void **state)
{
    (void)state;
    struct err e;
    lane_start(3, JOBS);
    for (int i = 0; i < JOBS; i++) {
        assert_int_equal(lane_submit(world.lane, prepare(i, count_run, count_done), &e), 0);
    }
    drain_until(JOBS);
    assert_int_equal(world.ran, JOBS);
    assert_int_equal(lane_depth(world.lane), 0);
    assert_int_equal(lane_keys(world.lane), 0);
}

static void run_alone(struct job *job)
{
    struct test_job *t = (struct test_job *)job;
    struct world *w = t->w;
    if (atomic_fetch_add(&w->running_of_key[t->key], 1) != 0) {
        atomic_fetch_add(&w->overlaps, 1);
    }
    if (w->next_of_key[t->key]++ != t->number) {
        atomic_fetch_add(&w->disorders, 1);
    }
    atomic_fetch_sub(&w->running_of_key[t->key], 1);
}

static void jobs_of_a_key_never_overlap_and_keep_their_order(void **state)
{
    (void)state;
    struct err e;
    lane_start(4, JOBS);
    int numbers[KEYS] = {0};
    for (int i = 0; i < JOBS; i++) {
        int key = (i * 31 + i / 5) % KEYS;
        struct id id = key_of(key);
        jobs[i].key = key;
        jobs[i].number = numbers[key]++;
        assert_int_equal(
            lane_submit_keyed(world.lane, &id, prepare(i, run_alone, done_in_order), &e), 0);
    }
    drain_until(JOBS);
    assert_int_equal(world.overlaps, 0);
    assert_int_equal(world.disorders, 0);
    lane_free(world.lane); /* a key is released after its last result was posted */
    world.lane = NULL;
}

static void a_waiting_keyed_job_takes_no_thread(void **state)
{
    (void)state;
    struct err e;
    struct id slow = key_of(1), quick = key_of(2);
    lane_start(2, 100);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(
            lane_submit_keyed(world.lane, &slow, prepare(i, run_gated, count_done), &e), 0);
    }
    sem_wait(&world.started);
    assert_int_equal(lane_keys(world.lane), 1);
    /* Nine jobs wait behind the first, which does not end before these five have run. */
    for (int i = 10; i < 15; i++) {
        assert_int_equal(
            lane_submit_keyed(world.lane, &quick, prepare(i, count_run, count_done), &e), 0);
    }
    drain_until(5);
    assert_int_equal(world.ran, 5);
    assert_int_equal(lane_depth(world.lane), 10);
    for (int i = 0; i < 10; i++) {
        sem_post(&world.gate);
    }
    drain_until(15);
}

static void a_full_queue_answers_busy_and_keeps_nothing(void **state)
{
    (void)state;
    struct err e;
    struct id key = key_of(1);
    lane_start(1, 3);
    assert_int_equal(lane_submit_keyed(world.lane, &key, prepare(0, run_gated, count_done), &e), 0);
    sem_wait(&world.started);
    assert_int_equal(lane_submit_keyed(world.lane, &key, prepare(1, run_gated, count_done), &e), 0);
    assert_int_equal(lane_submit(world.lane, prepare(2, run_gated, count_done), &e), 0);
    assert_int_equal(lane_submit_keyed(world.lane, &key, prepare(3, run_gated, count_done), &e), 0);
    assert_int_equal(lane_submit(world.lane, prepare(4, run_gated, count_done), &e), -1);
    assert_int_equal(e.code, ERR_BUSY);
    assert_int_equal(lane_submit_keyed(world.lane, &key, &jobs[4].job, &e), -1);
    struct id other = key_of(2);
    assert_int_equal(lane_submit_keyed(world.lane, &other, &jobs[4].job, &e), -1);
    assert_int_equal(e.code, ERR_BUSY);
    assert_int_equal(lane_keys(world.lane), 1);
    assert_int_equal(lane_depth(world.lane), 4);
    for (int i = 0; i < 4; i++) {
        sem_post(&world.gate);
    }
    drain_until(4);
    assert_int_equal(lane_submit(world.lane, &jobs[4].job, &e), 0);
    sem_post(&world.gate);
    drain_until(5);
}

/* The order in which the jobs came back. */
static int order[16], ordered;

static void note_done(struct job *job)
{
    order[ordered++] = ((struct test_job *)job)->number;
    count_done(job);
}

static struct job *owned(int i, uint8_t owner)
{
    struct job *job = prepare(i, run_gated, note_done);
    job->owner = (struct id){.b = {owner}};
    jobs[i].number = i;
    return job;
}

static void owners_have_their_turns(void **state)
{
    (void)state;
    struct err e;
    static const int expected[] = {0, 1, 5, 7, 2, 6, 3, 4};
    ordered = 0;
    lane_start(1, 100);
    assert_int_equal(lane_submit(world.lane, owned(0, 1), &e), 0);
    sem_wait(&world.started);
    for (int i = 1; i < 5; i++) {
        assert_int_equal(lane_submit(world.lane, owned(i, 1), &e), 0);
    }
    for (int i = 5; i < 7; i++) {
        assert_int_equal(lane_submit(world.lane, owned(i, 2), &e), 0);
    }
    assert_int_equal(lane_submit(world.lane, owned(7, 3), &e), 0);
    for (int i = 0; i < 8; i++) {
        sem_post(&world.gate);
    }
    drain_until(8);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(order[i], expected[i]);
    }
}

static void who_has_nothing_in_a_full_lane_may_still_put_one_in(void **state)
{
    (void)state;
    struct err e;
    ordered = 0;
    lane_start(1, 4);
    assert_int_equal(lane_submit(world.lane, owned(0, 1), &e), 0);
    sem_wait(&world.started);
    for (int i = 1; i < 5; i++) {
        assert_int_equal(lane_submit(world.lane, owned(i, 1), &e), 0);
    }
    assert_int_equal(lane_submit(world.lane, owned(5, 1), &e), -1);
    assert_int_equal(lane_submit(world.lane, owned(5, 2), &e), 0);
    assert_int_equal(lane_submit(world.lane, owned(6, 2), &e), -1);
    assert_int_equal(lane_submit(world.lane, owned(6, 3), &e), -1); /* a quarter is one here */
    assert_int_equal(e.code, ERR_BUSY);
    for (int i = 0; i < 6; i++) {
        sem_post(&world.gate);
    }
    drain_until(6);
}

static void free_runs_what_is_queued(void **state)
{
    (void)state;
    struct err e;
    struct id key = key_of(1);
    lane_start(2, 100);
    for (int i = 0; i < 20; i++) {
        struct job *job = prepare(i, run_gated, count_done);
        assert_int_equal(i % 2 == 0 ? lane_submit(world.lane, job, &e)
                                    : lane_submit_keyed(world.lane, &key, job, &e),
                         0);
        sem_post(&world.gate);
    }
    lane_free(world.lane);
    world.lane = NULL;
    assert_int_equal(world.ran, 20);
    drain_until(20);
}

static void a_zero_key_is_no_key(void **state)
{
    (void)state;
    struct err e;
    lane_start(2, 100);
    for (int i = 0; i < 2; i++) {
        struct job *job = prepare(i, run_gated, count_done);
        assert_int_equal(lane_submit_keyed(world.lane, &(struct id){{0}}, job, &e), 0);
    }
    sem_wait(&world.started);
    sem_wait(&world.started);
    sem_post(&world.gate);
    sem_post(&world.gate);
    drain_until(2);
}

static void run_look_at_signals(struct job *job)
{
    sigset_t set;
    pthread_sigmask(SIG_BLOCK, NULL, &set);
    ((struct test_job *)job)->saw_blocked_signal =
        sigismember(&set, SIGTERM) && sigismember(&set, SIGHUP) && !sigismember(&set, SIGSEGV);
}

static void threads_leave_signals_to_the_loop(void **state)
{
    (void)state;
    struct err e;
    sigset_t set;
    lane_start(1, 10);
    pthread_sigmask(SIG_BLOCK, NULL, &set);
    assert_false(sigismember(&set, SIGTERM));
    assert_int_equal(lane_submit(world.lane, prepare(0, run_look_at_signals, count_done), &e), 0);
    drain_until(1);
    assert_true(jobs[0].saw_blocked_signal);
}

static void *submit_quarter(void *arg)
{
    int producer = (int)(intptr_t)arg;
    for (int i = 0; i < JOBS / 4; i++) {
        int at = producer * (JOBS / 4) + i;
        struct id id = key_of(producer);
        struct err e;
        jobs[at].key = producer;
        jobs[at].number = i;
        if (lane_submit_keyed(world.lane, &id, prepare(at, run_alone, done_in_order), &e) != 0) {
            atomic_fetch_add(&world.overlaps, 1);
        }
    }
    return NULL;
}

static void many_threads_may_submit(void **state)
{
    (void)state;
    pthread_t threads[4];
    lane_start(3, JOBS);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, submit_quarter, (void *)(intptr_t)i), 0);
    }
    drain_until(JOBS);
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
    }
    assert_int_equal(world.overlaps, 0);
    assert_int_equal(world.disorders, 0);
}

static void free_takes_null(void **state)
{
    (void)state;
    lane_free(NULL);
    inbox_free(NULL);
}

static void a_batch_wakes_once_and_leaves_nothing_behind(void **state)
{
    (void)state;
    struct err e;
    lane_start(1, 100);
    lane_batch(world.lane, 4, NULL);
    assert_int_equal(lane_submit(world.lane, prepare(0, run_gated, count_done), &e), 0);
    sem_wait(&world.started); /* the thread is held: what follows waits */
    for (int i = 1; i <= 9; i++) {
        assert_int_equal(lane_submit(world.lane, prepare(i, count_run, count_done), &e), 0);
    }
    sem_post(&world.gate);
    lane_free(world.lane);
    world.lane = NULL;
    assert_int_equal(atomic_load(&world.ran), 10);
    assert_int_equal(atomic_load(&world.wakes), 1); /* nobody drained between */
    drain_until(10);
    assert_int_equal(world.done, 10);
}

static void a_batch_leaves_the_other_threads_their_share(void **state)
{
    (void)state;
    struct err e;
    lane_start(2, 100);
    lane_batch(world.lane, 8, NULL);
    for (int i = 0; i < 2; i++) { /* more than one thread's share of two */
        assert_int_equal(lane_submit(world.lane, prepare(i, run_gated, count_done), &e), 0);
    }
    sem_wait(&world.started);
    sem_wait(&world.started); /* both run at the same time */
    sem_post(&world.gate);
    sem_post(&world.gate);
    drain_until(2);
}

/* Only one thread is called for all of them: it has to call the next. */
static void jobs_that_block_find_a_thread_each(void **state)
{
    (void)state;
    struct err e;
    lane_start(8, 100);
    for (int round = 0; round < 100; round++) {
        for (int i = 0; i < 8; i++) {
            int at = round * 8 + i;
            assert_int_equal(lane_submit(world.lane, prepare(at, run_gated, count_done), &e), 0);
        }
        for (int i = 0; i < 8; i++) {
            sem_wait(&world.started);
        }
        for (int i = 0; i < 8; i++) {
            sem_post(&world.gate);
        }
        drain_until(8 * (round + 1));
    }
}

/* --- jobs aside ----------------------------------------------------------------------------- */

static void run_aside(struct job *job)
{
    struct test_job *t = (struct test_job *)job;
    struct err e;
    if (lane_aside_begin(t->w->lane, &e) != 0) {
        assert_int_equal(e.code, ERR_BUSY);
        atomic_fetch_add(&t->w->overlaps, 1);
        return;
    }
    run_gated(job);
    lane_aside_end(t->w->lane);
}

static void a_job_aside_leaves_its_place_and_keeps_its_key(void **state)
{
    (void)state;
    struct id key = key_of(1);
    struct err e;
    lane_start(1, 100);
    assert_int_equal(lane_spare(world.lane, 1, &e), 0);
    assert_int_equal(lane_submit_keyed(world.lane, &key, prepare(0, run_aside, count_done), &e), 0);
    sem_wait(&world.started);
    assert_int_equal(lane_submit_keyed(world.lane, &key, prepare(1, count_run, count_done), &e), 0);
    assert_int_equal(lane_submit(world.lane, prepare(2, count_run, count_done), &e), 0);
    drain_until(1); /* that of no key, in the place of the one aside */
    assert_int_equal(atomic_load(&world.ran), 1);
    assert_int_equal(lane_submit(world.lane, prepare(3, run_aside, count_done), &e), 0);
    drain_until(2); /* was refused: there is one spare */
    assert_int_equal(atomic_load(&world.overlaps), 1);
    sem_post(&world.gate);
    drain_until(4);
    assert_int_equal(atomic_load(&world.ran), 3);
}

static void run_aside_in_turn(struct job *job)
{
    struct test_job *t = (struct test_job *)job;
    struct err e;
    int rc = lane_aside_begin(t->w->lane, &e);
    if (rc == 0) {
        lane_aside_end(t->w->lane);
    }
    if (atomic_fetch_add(&t->w->running_of_key[0], 1) >= 2) {
        atomic_fetch_add(&t->w->overlaps, 1);
    }
    atomic_fetch_sub(&t->w->running_of_key[0], 1);
    count_run(job);
}

static void those_who_come_back_never_run_beyond_the_places(void **state)
{
    (void)state;
    struct err e;
    lane_start(2, JOBS);
    assert_int_equal(lane_spare(world.lane, 4, &e), 0);
    for (int i = 0; i < JOBS; i++) {
        assert_int_equal(lane_submit(world.lane, prepare(i, run_aside_in_turn, count_done), &e), 0);
    }
    lane_free(world.lane); /* it closes while some are aside and some wait for a place */
    world.lane = NULL;
    drain_until(JOBS);
    assert_int_equal(atomic_load(&world.ran), JOBS);
    assert_int_equal(atomic_load(&world.overlaps), 0);
}

/* --- past a key ------------------------------------------------------------------------------ */

static struct job *passing(int i)
{
    struct job *job = prepare(i, count_run, count_done);
    job->passes = true;
    return job;
}

static void run_open(struct job *job)
{
    struct test_job *t = (struct test_job *)job;
    lane_key_open(t->w->lane, &job->key, true);
    run_gated(job);
    lane_key_open(t->w->lane, &job->key, false);
    run_gated(job);
}

static void submit_with_key(struct job *job)
{
    struct err e;
    assert_int_equal(lane_submit_keyed(world.lane, &(struct id){.b = {7}}, job, &e), 0);
}

/* 0 holds the key and opens it; 1 and 2 waited before that, 3 and 4 come while it is open, 5 later. */
static void while_a_key_is_open_those_who_pass_run_and_others_wait(void **state)
{
    (void)state;
    lane_start(2, 10);
    submit_with_key(prepare(0, run_gated, count_done));
    sem_wait(&world.started);
    submit_with_key(prepare(6, run_open, count_done));
    submit_with_key(prepare(1, count_run, count_done));
    submit_with_key(passing(2));
    sem_post(&world.gate);
    sem_wait(&world.started);
    submit_with_key(passing(3));
    submit_with_key(prepare(4, count_run, count_done));
    drain_until(3);
    assert_true(jobs[2].job.passed && jobs[3].job.passed);
    assert_false(jobs[1].job.passed || jobs[4].job.passed);
    sem_post(&world.gate);
    sem_wait(&world.started);
    submit_with_key(passing(5));
    sem_post(&world.gate);
    drain_until(7);
    assert_false(jobs[5].job.passed);
}

static void a_key_is_closed_behind_the_job_that_opened_it(void **state)
{
    (void)state;
    lane_start(2, 10);
    submit_with_key(prepare(0, run_open, count_done));
    sem_wait(&world.started);
    submit_with_key(prepare(1, run_gated, count_done));
    sem_post(&world.gate);
    sem_post(&world.gate);
    sem_wait(&world.started);
    sem_wait(&world.started); /* 1 runs */
    submit_with_key(passing(2));
    sem_post(&world.gate);
    drain_until(3);
    assert_false(jobs[2].job.passed);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(inbox_keeps_the_order_and_honours_max),
        TEST(a_batch_wakes_once_and_leaves_nothing_behind),
        TEST(a_batch_leaves_the_other_threads_their_share),
        TEST(jobs_that_block_find_a_thread_each),
        TEST(done_may_post_to_its_inbox),
        TEST(a_job_that_is_not_finished_goes_on_before_all_others),
        TEST(a_job_that_is_not_finished_may_be_the_last),
        TEST(posts_of_each_producer_arrive_in_order),
        TEST(every_job_runs_and_comes_back),
        TEST(jobs_of_a_key_never_overlap_and_keep_their_order),
        TEST(a_waiting_keyed_job_takes_no_thread),
        TEST(a_full_queue_answers_busy_and_keeps_nothing),
        TEST(owners_have_their_turns),
        TEST(who_has_nothing_in_a_full_lane_may_still_put_one_in),
        TEST(free_runs_what_is_queued),
        TEST(a_zero_key_is_no_key),
        TEST(threads_leave_signals_to_the_loop),
        TEST(many_threads_may_submit),
        TEST(free_takes_null),
        TEST(a_job_aside_leaves_its_place_and_keeps_its_key),
        TEST(those_who_come_back_never_run_beyond_the_places),
        TEST(while_a_key_is_open_those_who_pass_run_and_others_wait),
        TEST(a_key_is_closed_behind_the_job_that_opened_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
