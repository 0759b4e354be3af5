#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "leasehold/process.h"

/* Runs a shell script to its end and returns its stderr. */
static char *run_script(const char *script, const int *fds, int fds_n, char *ret, size_t size)
{
    int out[2];
    pid_t pid;
    int64_t start;
    struct err e;
    const char *const argv[] = {"sh", "-c", script, NULL};
    assert_int_equal(pipe(out), 0);
    assert_int_equal(process_spawn(&(struct process_spawn){.path = "/bin/sh",
                                                           .argv = argv,
                                                           .cwd = "/usr",
                                                           .fds = fds,
                                                           .fds_n = fds_n,
                                                           .stderr_fd = out[1]},
                                   &pid, &start, &e),
                     0);
    close(out[1]);
    size_t len = 0;
    ssize_t n;
    while ((n = read(out[0], ret + len, size - 1 - len)) > 0)
        len += (size_t)n;
    ret[len] = '\0';
    close(out[0]);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    return ret;
}

static void spawn_sleep(pid_t *pid, int64_t *start)
{
    struct err e;
    const char *const argv[] = {"sleep", "1000", NULL};
    assert_int_equal(process_spawn(
                         &(struct process_spawn){
                             .path = "/usr/bin/sleep", .argv = argv, .cwd = "/", .stderr_fd = -1},
                         pid, start, &e),
                     0);
}

static void a_process_is_found_by_pid_and_start(void **state)
{
    (void)state;
    pid_t pid;
    int64_t start;
    struct err e;
    spawn_sleep(&pid, &start);
    assert_true(start > 0);
    assert_int_equal(process_start_ticks(pid), start);
    int fd = process_open(pid, start, &e);
    assert_true(fd >= 0);
    assert_int_equal(process_wait(fd, 0), 0);
    assert_int_equal(process_wait(fd, 20), 0);
    assert_int_equal(process_signal(fd, SIGKILL), 0);
    assert_int_equal(process_wait(fd, 10000), 1);
    assert_int_equal(waitpid(pid, NULL, WNOHANG), -1); /* reaped */
    assert_int_equal(process_wait(fd, 10000), 1);      /* and stays ended */
    assert_int_equal(process_signal(fd, SIGTERM), -1);
    close(fd);
    assert_int_equal(process_start_ticks(pid), -1);
}

static void another_start_is_another_process(void **state)
{
    (void)state;
    struct err e;
    int64_t start = process_start_ticks(getpid());
    assert_int_equal(process_open(getpid(), start + 1, &e), -1);
    assert_int_equal(e.code, ERR_NOT_FOUND);
    assert_int_equal(process_open(0, start, &e), -1);
    assert_int_equal(process_open(-1, start, &e), -1);
    assert_int_equal(process_start_ticks(0), -1);
    assert_int_equal(process_start_ticks(-1), -1);
}

static void a_zombie_of_ours_counts_as_ended_and_is_reaped(void **state)
{
    (void)state;
    pid_t pid;
    int64_t start;
    struct err e;
    siginfo_t info;
    spawn_sleep(&pid, &start);
    assert_true(process_is_there(pid, start));
    assert_false(process_is_there(pid, start + 1));
    kill(pid, SIGKILL);
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    assert_int_equal(process_start_ticks(pid), -1);
    assert_false(process_is_there(pid, start));
    assert_int_equal(process_open(pid, start, &e), -1);
    assert_int_equal(e.code, ERR_NOT_FOUND);
    assert_int_equal(waitpid(pid, NULL, WNOHANG), -1);
}

static void *stay(void *arg)
{
    (void)arg;
    pause();
    return NULL;
}

/* The first thread has ended, the process has not: to the kernel that thread is exiting. */
static void one_whose_end_has_begun_is_not_there(void **state)
{
    (void)state;
    pthread_t other;
    pid_t pid = fork();
    if (pid == 0) {
        if (pthread_create(&other, NULL, stay, NULL) == 0)
            pthread_exit(NULL);
        _exit(1);
    }
    int64_t start = process_start_ticks(pid);
    while (process_is_there(pid, start))
        usleep(1000);
    assert_int_equal(kill(pid, 0), 0);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void the_name_of_a_process_cannot_fake_its_fields(void **state)
{
    (void)state;
    char path[] = "/tmp/test-process-XXXXXX", program[128], command[256];
    struct err e;
    pid_t pid;
    int64_t start;
    assert_non_null(mkdtemp(path));
    snprintf(program, sizeof(program), "%s/a) Z 1 1 (", path);
    snprintf(command, sizeof(command), "cp /usr/bin/sleep '%s'", program);
    assert_int_equal(system(command), 0);
    const char *const argv[] = {"sleep", "1000", NULL};
    assert_int_equal(
        process_spawn(
            &(struct process_spawn){.path = program, .argv = argv, .cwd = "/", .stderr_fd = -1},
            &pid, &start, &e),
        0);
    assert_int_equal(process_start_ticks(pid), start);
    int fd = process_open(pid, start, &e);
    assert_true(fd >= 0);
    process_signal(fd, SIGKILL);
    assert_int_equal(process_wait(fd, 10000), 1);
    close(fd);
    unlink(program);
    rmdir(path);
}

static void descriptors_arrive_in_order_whatever_their_numbers(void **state)
{
    (void)state;
    char text[512];
    int a = open("/etc/passwd", O_RDONLY | O_CLOEXEC);
    int b = open("/etc/group", O_RDONLY | O_CLOEXEC);
    /* The sources stand on each other's targets. */
    int four = fcntl(a, F_DUPFD_CLOEXEC, 4), three = fcntl(b, F_DUPFD_CLOEXEC, 3);
    run_script("readlink /proc/self/fd/3 /proc/self/fd/4 >&2", (int[]){four, three}, 2, text,
               sizeof(text));
    assert_string_equal(text, "/etc/passwd\n/etc/group\n");
    close(four);
    close(three);
    close(a);
    close(b);
}

static void nothing_else_is_inherited(void **state)
{
    (void)state;
    char text[512];
    int leak = open("/etc/passwd", O_RDONLY);
    assert_true(leak >= 0);
    /* 3 is what ls itself reads. */
    run_script("exec ls /proc/self/fd >&2", NULL, 0, text, sizeof(text));
    assert_string_equal(text, "0\n1\n2\n3\n");
    run_script("for fd in 0 1; do [ /proc/self/fd/$fd -ef /dev/null ] && echo null >&2; done", NULL,
               0, text, sizeof(text));
    assert_string_equal(text, "null\nnull\n");
    close(leak);
}

static void environment_directory_session_and_signals_are_fresh(void **state)
{
    (void)state;
    char text[4096], expected[64];
    setenv("SECRET_OF_OURS", "x", 1);
    sigset_t blocked, old;
    sigfillset(&blocked);
    sigprocmask(SIG_BLOCK, &blocked, &old);
    signal(SIGHUP, SIG_IGN);
    run_script(
        "/usr/bin/env >&2; pwd >&2; exec grep -E 'Sig(Blk|Ign)|NSsid|NSpid' /proc/self/status >&2",
        NULL, 0, text, sizeof(text));
    signal(SIGHUP, SIG_DFL);
    sigprocmask(SIG_SETMASK, &old, NULL);
    assert_null(strstr(text, "SECRET_OF_OURS"));
    assert_non_null(strstr(text, "PATH=/"));
    assert_non_null(strstr(text, "\n/usr\n"));
    assert_non_null(strstr(text, "SigBlk:\t0000000000000000"));
    /* glibc's posix_spawn leaves its two internal signals ignored. */
    unsigned long long ignored = 1;
    const char *sig_ign = strstr(text, "SigIgn:\t");
    assert_non_null(sig_ign);
    assert_int_equal(sscanf(sig_ign, "SigIgn:\t%llx", &ignored), 1);
    assert_int_equal(ignored & ~0x180000000ull, 0);
    int pid = 0;
    const char *p = strstr(text, "NSpid:\t");
    assert_non_null(p);
    assert_int_equal(sscanf(p, "NSpid:\t%d", &pid), 1);
    snprintf(expected, sizeof(expected), "NSsid:\t%d\n", pid);
    assert_non_null(strstr(text, expected));
}

static void a_missing_program_is_an_error_and_leaves_no_child(void **state)
{
    (void)state;
    pid_t pid;
    int64_t start;
    struct err e;
    const char *const argv[] = {"x", NULL};
    assert_int_equal(process_spawn(
                         &(struct process_spawn){
                             .path = "/nowhere/x", .argv = argv, .cwd = "/", .stderr_fd = -1},
                         &pid, &start, &e),
                     -1);
    assert_int_equal(e.sys, ENOENT);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_is_found_by_pid_and_start),
        cmocka_unit_test(another_start_is_another_process),
        cmocka_unit_test(a_zombie_of_ours_counts_as_ended_and_is_reaped),
        cmocka_unit_test(one_whose_end_has_begun_is_not_there),
        cmocka_unit_test(the_name_of_a_process_cannot_fake_its_fields),
        cmocka_unit_test(descriptors_arrive_in_order_whatever_their_numbers),
        cmocka_unit_test(nothing_else_is_inherited),
        cmocka_unit_test(environment_directory_session_and_signals_are_fresh),
        cmocka_unit_test(a_missing_program_is_an_error_and_leaves_no_child),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
