/* Directories of chats that are kept open: found again, bounded, and never that of a chat that went. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include "../../gateway/chat_dirs.h"
#include "leasehold/chatdir.h"

enum { MANY = 100 };

struct place {
    char root[64], quarantine[80];
    struct id user_id, chat_id;
    struct chat_dirs *all;
};

static struct id id_of(int n)
{
    return (struct id){.b = {[0] = 7, [14] = (uint8_t)(n >> 8), [15] = (uint8_t)n}};
}

static void make(const struct place *p, const struct id *chat_id)
{
    struct err e;
    assert_int_equal(chatdir_make(p->root, &p->user_id, chat_id, geteuid(), getegid(), &e), 0);
}

static int set_up(void **state)
{
    struct place *p = calloc(1, sizeof(*p));
    assert_non_null(p);
    snprintf(p->root, sizeof(p->root), "/tmp/leasehold-chat-dirs-XXXXXX");
    assert_non_null(mkdtemp(p->root));
    snprintf(p->quarantine, sizeof(p->quarantine), "%s/quarantine", p->root);
    p->user_id = id_of(1);
    p->chat_id = id_of(2);
    p->all = chat_dirs_new();
    assert_non_null(p->all);
    make(p, &p->chat_id);
    *state = p;
    return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    (void)type;
    (void)at;
    return remove(path);
}

static int tear_down(void **state)
{
    struct place *p = *state;
    chat_dirs_free(p->all);
    nftw(p->root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    free(p);
    return 0;
}

static struct chat_dir *take(struct place *p, const struct id *chat_id, ino_t *ret_ino)
{
    struct chat_dir *d;
    struct chatfiles dir;
    struct stat st;
    struct err e;
    assert_int_equal(chat_dirs_take(p->all, p->root, &p->user_id, chat_id, &d, &dir, &e), 0);
    assert_int_equal(fstat(dir.files_fd, &st), 0);
    *ret_ino = st.st_ino;
    return d;
}

static int descriptors(void)
{
    int n = 0;
    for (int fd = 0; fd < 1024; fd++) {
        n += fcntl(fd, F_GETFD) >= 0;
    }
    return n;
}

static void a_directory_is_opened_once(void **state)
{
    struct place *p = *state;
    ino_t one, other;
    struct chat_dir *a = take(p, &p->chat_id, &one);
    int open = descriptors();
    struct chat_dir *b = take(p, &p->chat_id, &other);
    assert_ptr_equal(a, b);
    assert_int_equal(descriptors(), open);
    chat_dirs_give(p->all, a);
    chat_dirs_give(p->all, b);
    chat_dirs_give(p->all, take(p, &p->chat_id, &other));
    assert_int_equal(descriptors(), open);
    assert_int_equal(one, other);
}

/* Deleted and made anew under the same id, while one still reads the old one. */
static void a_chat_that_went_is_not_found_again(void **state)
{
    struct place *p = *state;
    ino_t before, after;
    int open = descriptors();
    struct chat_dir *old = take(p, &p->chat_id, &before), *d;
    struct chatfiles dir;
    struct err e;
    assert_int_equal(chatdir_quarantine(p->root, p->quarantine, &p->user_id, &p->chat_id, &e), 0);
    chat_dirs_forget(p->all, &p->chat_id);
    assert_int_equal(chat_dirs_take(p->all, p->root, &p->user_id, &p->chat_id, &d, &dir, &e), -1);
    assert_int_equal(e.code, ERR_CHAT_NOT_FOUND);
    make(p, &p->chat_id);
    d = take(p, &p->chat_id, &after);
    assert_ptr_not_equal(d, old);
    assert_int_not_equal(before, after);
    chat_dirs_give(p->all, old);
    chat_dirs_give(p->all, d);
    chat_dirs_forget(p->all, &p->chat_id);
    assert_int_equal(descriptors(), open);
}

static void the_chat_of_another_user_is_not_that_one(void **state)
{
    struct place *p = *state;
    ino_t ino;
    struct chat_dir *d;
    struct chatfiles dir;
    struct err e;
    struct id other = id_of(3);
    chat_dirs_give(p->all, take(p, &p->chat_id, &ino));
    assert_int_equal(chat_dirs_take(p->all, p->root, &other, &p->chat_id, &d, &dir, &e), -1);
    assert_int_equal(e.code, ERR_CHAT_NOT_FOUND);
}

static void only_some_are_kept(void **state)
{
    struct place *p = *state;
    int open = descriptors();
    ino_t ino;
    for (int i = 0; i < MANY; i++) {
        struct id chat_id = id_of(100 + i);
        make(p, &chat_id);
        chat_dirs_give(p->all, take(p, &chat_id, &ino));
    }
    assert_in_range(descriptors() - open, 2, 64);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_directory_is_opened_once),
        TEST(a_chat_that_went_is_not_found_again),
        TEST(the_chat_of_another_user_is_not_that_one),
        TEST(only_some_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
