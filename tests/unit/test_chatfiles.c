/* Files of a chat on disk: many removals are one sync, and the chat may go while one arrives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "leasehold/chatfile.h"

enum { FILES = 40 };

static int syncs;

/* In place of the C library's, which the gateway's code would call. */
int fsync(int fd)
{
    syncs++;
    return (int)syscall(SYS_fsync, fd);
}

static void open_place(char top[static 64], struct chatfiles *ret)
{
    snprintf(top, 64, "/tmp/leasehold-chatfiles-XXXXXX");
    assert_non_null(mkdtemp(top));
    *ret = (struct chatfiles){.chat_fd = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC),
                              .uid = geteuid(),
                              .gid = getegid()};
    assert_int_equal(mkdirat(ret->chat_fd, "files", 0700), 0);
    ret->files_fd = openat(ret->chat_fd, "files", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(ret->files_fd >= 0);
}

static int remove_each(void *ctx, const char *name, const struct file_stamp *s, struct err *e)
{
    const struct chatfiles *d = ctx;
    struct file_gone gone;
    assert_int_equal(chatfiles_remove(d, name, &gone, e), 0);
    assert_int_equal(gone.bytes, s->size_bytes);
    assert_int_equal(gone.ctime_ns, s->ctime_ns);
    return 0;
}

static void many_removals_are_one_sync(void **state)
{
    char top[64], name[16];
    struct chatfiles d;
    struct err e;
    struct stat st;
    (void)state;
    open_place(top, &d);
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof(name), "f%d", i);
        int fd = openat(d.files_fd, name, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        assert_int_equal(ftruncate(fd, i), 0);
        close(fd);
    }
    syncs = 0;
    assert_int_equal(chatfiles_each(&d, SIZE_MAX, remove_each, &d, &e), 0);
    assert_int_equal(chatfiles_sync(&d, &e), 0);
    assert_int_equal(syncs, 1);
    assert_int_equal(fstatat(d.files_fd, "f0", &st, 0), -1);
    assert_int_equal(unlinkat(d.chat_fd, "files", AT_REMOVEDIR), 0); /* it is empty */
    assert_int_equal(rmdir(top), 0);
    chatfiles_close(&d);
}

static void a_file_for_a_chat_that_is_gone_is_chat_not_found(void **state)
{
    char top[64];
    struct chatfiles d;
    struct chatfile f;
    struct err e;
    (void)state;
    open_place(top, &d);
    assert_int_equal(unlinkat(d.chat_fd, "files", AT_REMOVEDIR), 0);
    assert_int_equal(rmdir(top), 0);
    assert_int_equal(chatfile_begin(&d, &f, &e), -1);
    assert_int_equal(e.code, ERR_CHAT_NOT_FOUND);
}

static void a_file_whose_chat_goes_before_it_is_placed_is_chat_not_found(void **state)
{
    char top[64];
    struct chatfiles d;
    struct chatfile f;
    struct file_stamp stamp;
    struct file_gone gone;
    struct err e;
    (void)state;
    open_place(top, &d);
    assert_int_equal(chatfile_begin(&d, &f, &e), 0);
    assert_int_equal(unlinkat(f.dir.chat_fd, "files", AT_REMOVEDIR), 0);
    assert_int_equal(chatfile_place(&f, "name", false, &stamp, &gone, &e), -1);
    assert_int_equal(e.code, ERR_CHAT_NOT_FOUND);
    chatfile_end(&f);
    assert_int_equal(rmdir(top), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_removals_are_one_sync),
        cmocka_unit_test(a_file_for_a_chat_that_is_gone_is_chat_not_found),
        cmocka_unit_test(a_file_whose_chat_goes_before_it_is_placed_is_chat_not_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
