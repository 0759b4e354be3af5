/* The spool: its records on any bytes, and the door's end of it on a real file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../lease/door/spool.h"

static const struct id user = {{1, 2, 3}};

/* --- records ----------------------------------------------------------------------------------- */

static size_t write_record(int64_t n, const char *text, uint8_t *to)
{
    struct spool_record r = {.n = n,
                             .at = 1800000000000,
                             .role = SPOOL_USER,
                             .author = user,
                             .text = text,
                             .len = strlen(text)};
    spool_record_write(&r, to);
    return SPOOL_OVERHEAD + r.len;
}

static void a_record_comes_back_as_it_was_written(void **state)
{
    uint8_t raw[256];
    struct spool_record r;
    size_t size, len = write_record(7, "hello", raw);
    (void)state;
    assert_int_equal(spool_record_read(raw, sizeof(raw), &r, &size), SPOOL_WHOLE);
    assert_int_equal(size, len);
    assert_int_equal(r.n, 7);
    assert_int_equal(r.at, 1800000000000);
    assert_int_equal(r.role, SPOOL_USER);
    assert_true(id_equal(&r.author, &user));
    assert_int_equal(r.len, 5);
    assert_memory_equal(r.text, "hello", 5);
}

static void an_empty_text_is_a_record(void **state)
{
    uint8_t raw[256];
    struct spool_record r;
    size_t size, len = write_record(1, "", raw);
    (void)state;
    assert_int_equal(spool_record_read(raw, len, &r, &size), SPOOL_WHOLE);
    assert_int_equal(r.len, 0);
}

static void every_beginning_of_a_record_waits_for_the_rest(void **state)
{
    uint8_t raw[256];
    struct spool_record r;
    size_t size, len = write_record(7, "hello", raw);
    (void)state;
    for (size_t n = 0; n < len; n++) {
        assert_int_equal(spool_record_read(raw, n, &r, &size), SPOOL_TORN);
    }
}

static void no_changed_bit_is_taken_for_a_record(void **state)
{
    uint8_t raw[256];
    struct spool_record r;
    size_t size, len = write_record(7, "hello", raw);
    (void)state;
    for (size_t bit = 0; bit < 8 * len; bit++) {
        raw[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_not_equal(spool_record_read(raw, len, &r, &size), SPOOL_WHOLE);
        raw[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

static void a_whole_record_that_says_nonsense_is_broken(void **state)
{
    struct spool_record nonsense[] = {
        {.n = 0, .at = 1, .role = SPOOL_USER},
        {.n = -1, .at = 1, .role = SPOOL_USER},
        {.n = 1, .at = -1, .role = SPOOL_USER},
        {.n = 1, .at = 1, .role = (enum spool_role)0},
        {.n = 1, .at = 1, .role = (enum spool_role)4},
    };
    uint8_t raw[SPOOL_OVERHEAD];
    struct spool_record r;
    size_t size;
    (void)state;
    for (size_t i = 0; i < sizeof(nonsense) / sizeof(*nonsense); i++) {
        spool_record_write(&nonsense[i], raw);
        assert_int_equal(spool_record_read(raw, sizeof(raw), &r, &size), SPOOL_BROKEN);
    }
}

static void a_mark_comes_back_and_a_changed_one_does_not(void **state)
{
    uint8_t raw[SPOOL_MARK];
    int64_t taken = 0;
    (void)state;
    spool_mark_write(123456, raw);
    assert_true(spool_mark_read(raw, &taken));
    assert_int_equal(taken, 123456);
    for (size_t i = 0; i < sizeof(raw); i++) {
        raw[i] ^= 1;
        assert_false(spool_mark_read(raw, &taken));
        raw[i] ^= 1;
    }
    spool_mark_write(SPOOL_START - 1, raw);
    assert_false(spool_mark_read(raw, &taken));
}

/* --- the door's end ---------------------------------------------------------------------------- */

struct fixture {
    int fd; /* the door's */
    int own;
    struct log *log;
    struct spool *spool;
};

static void set_mark(struct fixture *f, int64_t taken)
{
    uint8_t mark[SPOOL_MARK];
    spool_mark_write(taken, mark);
    assert_int_equal(pwrite(f->own, mark, sizeof(mark), 0), sizeof(mark));
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    char path[64];
    struct err e;
    assert_non_null(f);
    f->own = memfd_create("spool", MFD_CLOEXEC);
    assert_int_equal(ftruncate(f->own, SPOOL_START), 0);
    set_mark(f, SPOOL_START);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", f->own);
    f->fd = open(path, O_RDWR | O_APPEND | O_CLOEXEC);
    assert_true(f->fd >= 0);
    f->log = log_new(open("/dev/null", O_WRONLY | O_CLOEXEC), LOG_INFO, LOG_JSON);
    f->spool = spool_new(f->fd, 1000, f->log, &e);
    assert_non_null(f->spool);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    spool_free(f->spool);
    log_free(f->log);
    close(f->fd);
    close(f->own);
    free(f);
    return 0;
}

static int64_t size_of(const struct fixture *f)
{
    struct stat st;
    assert_int_equal(fstat(f->own, &st), 0);
    return st.st_size;
}

/* Reads the record at *at and moves behind it. */
static struct spool_record next(struct fixture *f, int64_t *at)
{
    static uint8_t raw[SPOOL_MAX];
    struct spool_record r;
    size_t size;
    ssize_t n = pread(f->own, raw, sizeof(raw), *at);
    assert_int_equal(spool_record_read(raw, (size_t)n, &r, &size), SPOOL_WHOLE);
    *at += (int64_t)size;
    return r;
}

static void messages_are_numbered_from_one_in_the_order_they_were_said(void **state)
{
    struct fixture *f = *state;
    int64_t at = SPOOL_START;
    spool_message(f->spool, &user, "question", 8);
    spool_message(f->spool, NULL, "answer", 6);
    struct spool_record r = next(f, &at);
    assert_int_equal(r.n, 1);
    assert_int_equal(r.role, SPOOL_USER);
    assert_true(id_equal(&r.author, &user));
    r = next(f, &at);
    assert_int_equal(r.n, 2);
    assert_int_equal(r.role, SPOOL_AGENT);
    assert_true(id_is_zero(&r.author));
    assert_int_equal(at, size_of(f));
}

static void say(struct fixture *f, size_t len)
{
    char text[2048];
    memset(text, 'x', sizeof(text));
    spool_message(f->spool, NULL, text, len);
}

static void beyond_the_cap_is_counted_and_the_numbers_tell_of_it(void **state)
{
    struct fixture *f = *state;
    int64_t at = SPOOL_START;
    say(f, 800);
    say(f, 800);
    say(f, 800);
    assert_int_equal(spool_unrecorded(f->spool), 2);
    assert_int_equal(size_of(f), SPOOL_START + SPOOL_OVERHEAD + 800);
    set_mark(f, size_of(f));
    say(f, 800);
    assert_int_equal(spool_unrecorded(f->spool), 2);
    next(f, &at);
    assert_int_equal(next(f, &at).n, 4);
}

static void a_mark_that_is_not_one_frees_nothing(void **state)
{
    struct fixture *f = *state;
    say(f, 800);
    assert_int_equal(pwrite(f->own, "LHSPOOL1", 8, 8), 8);
    say(f, 800);
    set_mark(f, size_of(f) + 1);
    say(f, 800);
    assert_int_equal(spool_unrecorded(f->spool), 2);
}

static void a_loss_at_the_end_is_told_by_a_gap(void **state)
{
    struct fixture *f = *state;
    int64_t at = SPOOL_START;
    say(f, 900);
    say(f, 900);
    spool_end(f->spool);
    spool_end(f->spool);
    next(f, &at);
    struct spool_record r = next(f, &at);
    assert_int_equal(r.role, SPOOL_GAP);
    assert_int_equal(r.n, 2);
    assert_int_equal(at, size_of(f));
}

static void without_a_loss_the_end_adds_nothing(void **state)
{
    struct fixture *f = *state;
    say(f, 10);
    int64_t size = size_of(f);
    spool_end(f->spool);
    assert_int_equal(size_of(f), size);
}

/* A disk that takes half a record: by the hard limit of file sizes, in a process of its own. */
static int half_written(struct fixture *f)
{
    struct err e;
    struct rlimit limit = {.rlim_cur = SPOOL_START + 700, .rlim_max = SPOOL_START + 700};
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &limit);
    struct spool *s = spool_new(f->fd, 1000000, f->log, &e);
    struct fixture of = *f;
    of.spool = s;
    say(&of, 500);
    say(&of, 500);
    bool taken_back = spool_unrecorded(s) == 1 && size_of(f) == SPOOL_START + SPOOL_OVERHEAD + 500;
    say(&of, 20);
    bool went_on = spool_unrecorded(s) == 1;
    spool_free(s);
    return !taken_back ? 1 : went_on ? 0 : 2;
}

static void half_a_record_is_taken_back(void **state)
{
    struct fixture *f = *state;
    int64_t at = SPOOL_START;
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        _exit(half_written(f));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    next(f, &at);
    assert_int_equal(next(f, &at).n, 3);
    assert_int_equal(at, size_of(f));
}

static void the_limit_for_the_log_does_not_hold_for_the_spool(void **state)
{
    struct fixture *f = *state;
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        struct rlimit limit = {.rlim_cur = 100, .rlim_max = RLIM_INFINITY}, after;
        struct err e;
        setrlimit(RLIMIT_FSIZE, &limit);
        struct fixture of = *f;
        of.spool = spool_new(f->fd, 1000, f->log, &e);
        say(&of, 500);
        getrlimit(RLIMIT_FSIZE, &after);
        _exit(spool_unrecorded(of.spool) != 0 || after.rlim_cur != 100);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void pieces_are_one_message_and_a_long_one_is_counted(void **state)
{
    struct fixture *f = *state;
    struct spool_parts parts = {.too_long = false};
    static char big[SPOOL_TEXT_MAX];
    int64_t at = SPOOL_START;
    spool_piece(f->spool, &parts, &user, "in ", 3, false);
    spool_piece(f->spool, &parts, &user, "pieces", 6, true);
    spool_piece(f->spool, &parts, &user, big, sizeof(big), false);
    spool_piece(f->spool, &parts, &user, big, 1, false);
    spool_piece(f->spool, &parts, &user, big, sizeof(big), true);
    spool_piece(f->spool, &parts, &user, "", 0, true);
    struct spool_record r = next(f, &at);
    assert_int_equal(r.len, 9);
    assert_memory_equal(r.text, "in pieces", 9);
    r = next(f, &at);
    assert_int_equal(r.n, 3);
    assert_int_equal(r.len, 0);
    assert_int_equal(spool_unrecorded(f->spool), 1);
    spool_parts_done(&parts);
}

static void without_a_spool_nothing_is_recorded(void **state)
{
    struct spool_parts parts = {.too_long = false};
    (void)state;
    spool_message(NULL, &user, "x", 1);
    spool_piece(NULL, &parts, &user, "x", 1, true);
    spool_end(NULL);
    assert_int_equal(spool_unrecorded(NULL), 0);
    spool_free(NULL);
}

#define ON_FILE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_record_comes_back_as_it_was_written),
        cmocka_unit_test(an_empty_text_is_a_record),
        cmocka_unit_test(every_beginning_of_a_record_waits_for_the_rest),
        cmocka_unit_test(no_changed_bit_is_taken_for_a_record),
        cmocka_unit_test(a_whole_record_that_says_nonsense_is_broken),
        cmocka_unit_test(a_mark_comes_back_and_a_changed_one_does_not),
        ON_FILE(messages_are_numbered_from_one_in_the_order_they_were_said),
        ON_FILE(beyond_the_cap_is_counted_and_the_numbers_tell_of_it),
        ON_FILE(a_mark_that_is_not_one_frees_nothing),
        ON_FILE(a_loss_at_the_end_is_told_by_a_gap),
        ON_FILE(without_a_loss_the_end_adds_nothing),
        ON_FILE(half_a_record_is_taken_back),
        ON_FILE(the_limit_for_the_log_does_not_hold_for_the_spool),
        ON_FILE(pieces_are_one_message_and_a_long_one_is_counted),
        cmocka_unit_test(without_a_spool_nothing_is_recorded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
