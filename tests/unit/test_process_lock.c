/* process_lock: one holder, and what a killed one leaves behind for a moment is waited for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "leasehold/process.h"

static int lock_open(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static void test_a_lock_has_one_holder(void **state)
{
    char path[] = "/tmp/lh-lock-XXXXXX";
    int one = mkstemp(path), two = lock_open(path);
    (void)state;
    assert_int_equal(process_lock(one), 0);
    assert_int_equal(process_lock(two), -1);
    assert_int_equal(errno, EWOULDBLOCK);
    close(one);
    assert_int_equal(process_lock(two), 0);
    close(two);
    unlink(path);
}

/* The child stands for one between the fork and the exec of a holder that was killed meanwhile. */
static void test_the_child_of_a_killed_holder_is_waited_for(void **state)
{
    char path[] = "/tmp/lh-lock-XXXXXX";
    int one = mkstemp(path), two = lock_open(path);
    (void)state;
    assert_int_equal(process_lock(one), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        poll(NULL, 0, 100);
        _exit(0);
    }
    close(one);
    assert_int_equal(process_lock(two), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    close(two);
    unlink(path);
}

static void test_what_cannot_be_locked_is_refused_at_once(void **state)
{
    (void)state;
    assert_int_equal(process_lock(-1), -1);
    assert_int_equal(errno, EBADF);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_lock_has_one_holder),
        cmocka_unit_test(test_the_child_of_a_killed_holder_is_waited_for),
        cmocka_unit_test(test_what_cannot_be_locked_is_refused_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
