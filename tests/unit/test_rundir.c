/* The removal of a session's run directory: what goes, what never does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../runtime/rundir.h"

static char root[64];
static struct rundir dir;

static int set_up(void **state)
{
    struct err e;
    struct id id;

    (void)state;
    strcpy(root, "/tmp/test-rundir-XXXXXX");
    id_random(&id);
    return mkdtemp(root) ? rundir_paths(root, &id, &dir, &e) : -1;
}

static int tear_down(void **state)
{
    char command[96];

    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command);
}

static void put(const char *below, const char *name)
{
    char path[PATH_MAX + 64];
    int fd;

    snprintf(path, sizeof path, "%s/%s", below, name);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
}

static bool there(const char *below, const char *name)
{
    char path[PATH_MAX + 64];

    snprintf(path, sizeof path, "%s/%s", below, name);
    return access(path, F_OK) == 0;
}

static void fill(void)
{
    struct err e;
    char deeper[PATH_MAX + 64];

    assert_int_equal(rundir_make(&dir, &e), 0);
    put(dir.path, "spec");
    put(dir.box, "agent.sock");
    snprintf(deeper, sizeof deeper, "%s/deeper", dir.box);
    assert_int_equal(mkdir(deeper, 0700), 0);
    put(deeper, "file");
}

static void test_everything_in_it_goes(void **state)
{
    struct err e;

    (void)state;
    fill();
    assert_int_equal(rundir_remove(&dir, &e), 0);
    assert_false(there(dir.path, ""));
}

static void test_one_that_is_not_there_is_removed_already(void **state)
{
    struct err e;

    (void)state;
    assert_int_equal(rundir_remove(&dir, &e), 0);
}

static void test_a_symlink_goes_and_what_it_names_stays(void **state)
{
    struct err e;
    char link[PATH_MAX + 64];

    (void)state;
    fill();
    put(root, "precious");
    snprintf(link, sizeof link, "%s/link", dir.box);
    assert_int_equal(symlink(root, link), 0);
    assert_int_equal(rundir_remove(&dir, &e), 0);
    assert_true(there(root, "precious"));
}

/* In a child with a mount namespace of its own; needs root, as `make test` has it. */
static void in_own_mounts(void (*f)(void))
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL))
            _exit(2);
        f();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void check(bool holds)
{
    if (!holds)
        _exit(1);
}

static void remove_beside_a_mount(void)
{
    struct err e;
    char deeper[PATH_MAX + 64];

    snprintf(deeper, sizeof deeper, "%s/deeper", dir.box);
    check(mount(root, deeper, NULL, MS_BIND, NULL) == 0);
    check(rundir_remove(&dir, &e) == -1);
    check(there(root, "precious"));
}

static void test_a_mount_in_it_is_refused_and_left_whole(void **state)
{
    (void)state;
    fill();
    put(root, "precious");
    in_own_mounts(remove_beside_a_mount);
    assert_true(there(root, "precious"));
}

/* As in a container, whose root is an overlay: its files have another st_dev than its directories. */
static void remove_on_an_overlay(void)
{
    struct err e;
    char options[512], upper[96], work[96];

    snprintf(upper, sizeof upper, "%s/tmp/upper", root);
    snprintf(work, sizeof work, "%s/tmp/work", root);
    snprintf(options, sizeof options, "%s/tmp", root);
    check(mkdir(options, 0700) == 0 && mount("none", options, "tmpfs", 0, NULL) == 0);
    check(mkdir(upper, 0700) == 0 && mkdir(work, 0700) == 0);
    snprintf(options, sizeof options, "lowerdir=%s/lower,upperdir=%s,workdir=%s", root, upper,
             work);
    check(mount("none", dir.path, "overlay", 0, options) == 0);
    strcat(dir.path, "/inner");
    strcpy(dir.box, dir.path);
    strcat(dir.box, "/box");
    fill();
    check(rundir_remove(&dir, &e) == 0);
    check(!there(dir.path, ""));
}

static void test_it_goes_from_an_overlay_file_system_too(void **state)
{
    char lower[96];

    (void)state;
    snprintf(lower, sizeof lower, "%s/lower", root);
    assert_int_equal(mkdir(lower, 0700), 0);
    assert_int_equal(mkdir(dir.path, 0700), 0);
    in_own_mounts(remove_on_an_overlay);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_everything_in_it_goes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_one_that_is_not_there_is_removed_already, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_a_symlink_goes_and_what_it_names_stays, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_a_mount_in_it_is_refused_and_left_whole, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_it_goes_from_an_overlay_file_system_too, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
