/* What owned_file.h makes: its mode is what was asked for, and what stands there already stays. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "leasehold/owned_file.h"

static char dir[] = "/tmp/owned-XXXXXX";

static int make_dir(void **state)
{
    (void)state;
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
    (void)state;
    return rmdir(dir);
}

static unsigned mode_of(const char *path)
{
    struct stat st;

    assert_int_equal(lstat(path, &st), 0);
    return st.st_mode & 07777;
}

static void test_no_umask_cuts_the_mode_of_a_directory(void **state)
{
    char path[64];
    mode_t before = umask(077);

    (void)state;
    snprintf(path, sizeof path, "%s/d", dir);
    assert_int_equal(owned_mkdir(path, 0755), 0);
    umask(before);
    assert_int_equal(mode_of(path), 0755);
    assert_int_equal(owned_mkdir(path, 0700), -1);
    assert_int_equal(errno, EEXIST);
    assert_int_equal(mode_of(path), 0755);
    rmdir(path);
}

static void test_a_link_that_stands_there_is_not_followed(void **state)
{
    char path[64];

    (void)state;
    snprintf(path, sizeof path, "%s/l", dir);
    assert_int_equal(symlink("/tmp", path), 0);
    unsigned before = mode_of("/tmp");
    assert_int_equal(owned_mkdir(path, 0700), -1);
    assert_int_equal(errno, EEXIST);
    assert_int_equal(mode_of("/tmp"), before);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_umask_cuts_the_mode_of_a_directory),
        cmocka_unit_test(test_a_link_that_stands_there_is_not_followed),
    };

    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
