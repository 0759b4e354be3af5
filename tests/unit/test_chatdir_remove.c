/* A chat's directory goes, comes back or is taken apart; nothing outside of it is touched. */
#include "../support/store_fixture.h"

#include <errno.h>
#include <sys/stat.h>

#include "leasehold/chatdir.h"

struct place {
    struct fixture *f;
    char root[96], quarantine[96], chat[256];
    struct id user_id, chat_id;
};

static int setup(void **state)
{
    static struct place p;
    struct err e;
    p = (struct place){.f = fixture_new()};
    snprintf(p.root, sizeof(p.root), "%s/root", p.f->dir);
    snprintf(p.quarantine, sizeof(p.quarantine), "%s/quarantine", p.f->dir);
    id_random(&p.user_id);
    id_random(&p.chat_id);
    snprintf(p.chat, sizeof(p.chat), "%s/%s/chats/%s", p.root, ID_STR(&p.user_id),
             ID_STR(&p.chat_id));
    assert_int_equal(mkdir(p.root, 0700), 0);
    assert_int_equal(
        chatdir_make(p.root, &p.user_id, &p.chat_id, (int64_t)geteuid(), (int64_t)getegid(), &e),
        0);
    *state = &p;
    return 0;
}

static int teardown(void **state)
{
    fixture_free(((struct place *)*state)->f);
    return 0;
}

static void make_file(const char *dir, const char *name, size_t size)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    for (size_t i = 0; i < size; i++) {
        fputc('x', out);
    }
    fclose(out);
}

/* Deeper than any path can name. */
static void make_deep(const char *dir)
{
    char name[256];
    memset(name, 'd', sizeof(name) - 1);
    name[255] = '\0';
    int fd = open(dir, O_RDONLY | O_DIRECTORY);
    assert_true(fd >= 0);
    for (int i = 0; i < 64; i++) {
        assert_int_equal(mkdirat(fd, name, 0700), 0);
        int child = openat(fd, name, O_RDONLY | O_DIRECTORY);
        close(fd);
        fd = child;
        int file = openat(fd, "f", O_WRONLY | O_CREAT, 0600);
        assert_true(file >= 0);
        close(file);
    }
    close(fd);
}

static int count(void *ctx, const struct id *user_id, const struct id *chat_id, struct err *e)
{
    (void)user_id;
    (void)chat_id;
    (void)e;
    ++*(int *)ctx;
    return 0;
}

static void what_is_deleted_is_taken_apart_however_deep(void **state)
{
    struct place *p = *state;
    char files[300], outside[128];
    struct err e;
    int left = 0;
    snprintf(files, sizeof(files), "%s/files", p->chat);
    snprintf(outside, sizeof(outside), "%s/outside", p->f->dir);
    make_deep(files);
    assert_int_equal(mkdir(outside, 0700), 0);
    make_file(outside, "keep", 1);
    char link[320];
    snprintf(link, sizeof(link), "%s/link", files);
    assert_int_equal(symlink(outside, link), 0);
    snprintf(link, sizeof(link), "%s/shut", files);
    assert_int_equal(mkdir(link, 0700), 0);
    make_file(link, "inside", 1);
    assert_int_equal(chmod(link, 0), 0);

    assert_int_equal(chatdir_quarantine(p->root, p->quarantine, &p->user_id, &p->chat_id, &e), 0);
    assert_int_equal(access(p->chat, F_OK), -1);
    assert_int_equal(chatdir_each_quarantined(p->quarantine, count, &left, &e), 0);
    assert_int_equal(left, 1);
    if (chatdir_destroy(p->quarantine, &p->user_id, &p->chat_id, &e) != 0) {
        fail_msg("%s", e.msg);
    }
    assert_int_equal(rmdir(p->quarantine), 0); /* nothing is in it any more */
    char keep[160];
    snprintf(keep, sizeof(keep), "%s/keep", outside);
    assert_int_equal(access(keep, F_OK), 0);
}

static void what_was_put_away_comes_back_whole(void **state)
{
    struct place *p = *state;
    char mine[300];
    struct err e;
    make_file(p->chat, "mine", 3);
    snprintf(mine, sizeof(mine), "%s/mine", p->chat);
    assert_int_equal(chatdir_quarantine(p->root, p->quarantine, &p->user_id, &p->chat_id, &e), 0);
    assert_int_equal(access(mine, F_OK), -1);
    assert_int_equal(chatdir_restore(p->root, p->quarantine, &p->user_id, &p->chat_id, &e), 0);
    assert_int_equal(access(mine, F_OK), 0);
}

static void no_directory_is_put_away_without_complaint(void **state)
{
    struct place *p = *state;
    struct id other;
    struct err e;
    id_random(&other);
    assert_int_equal(chatdir_quarantine(p->root, p->quarantine, &p->user_id, &other, &e), 0);
    assert_int_equal(chatdir_quarantine(p->root, p->quarantine, &other, &other, &e), 0);
    assert_int_equal(chatdir_destroy(p->quarantine, &other, &other, &e), 0);
}

static void a_leftover_of_the_same_chat_is_no_hindrance(void **state)
{
    struct place *p = *state;
    struct err e;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(chatdir_make(p->root, &p->user_id, &p->chat_id, (int64_t)geteuid(),
                                      (int64_t)getegid(), &e),
                         0);
        assert_int_equal(chatdir_quarantine(p->root, p->quarantine, &p->user_id, &p->chat_id, &e),
                         0);
    }
    assert_int_equal(access(p->chat, F_OK), -1);
}

static void usage_counts_each_inode_once_and_follows_no_link(void **state)
{
    struct place *p = *state;
    struct chatdir_usage before, after;
    char a[300], b[300];
    struct err e;
    assert_int_equal(chatdir_usage(p->root, &p->user_id, &before, &e), 0);
    make_file(p->chat, "files/a", 1000);
    snprintf(a, sizeof(a), "%s/files/a", p->chat);
    snprintf(b, sizeof(b), "%s/files/b", p->chat);
    assert_int_equal(link(a, b), 0);
    snprintf(b, sizeof(b), "%s/files/root", p->chat);
    assert_int_equal(symlink("/", b), 0);
    assert_int_equal(chatdir_usage(p->root, &p->user_id, &after, &e), 0);
    assert_int_equal(after.bytes - before.bytes, 1000);
    struct id other;
    id_random(&other);
    assert_int_equal(chatdir_usage(p->root, &other, &after, &e), 0);
    assert_int_equal(after.bytes, 0);
}

static void make_size(const char *dir, const char *name, int64_t size)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, size), 0);
    close(fd);
}

/* In memory, where a file may have any size. */
static void usage_of_sizes_beyond_any_sum_is_the_most_there_is(void **state)
{
    struct place *p = *state;
    char root[] = "/dev/shm/leasehold-usage-XXXXXX", away[64], chat[200], files[220];
    struct chatdir_usage u;
    struct err e;
    assert_non_null(mkdtemp(root));
    snprintf(away, sizeof(away), "%s/away", root);
    assert_int_equal(
        chatdir_make(root, &p->user_id, &p->chat_id, (int64_t)geteuid(), (int64_t)getegid(), &e),
        0);
    snprintf(chat, sizeof(chat), "%s/%s/chats/%s", root, ID_STR(&p->user_id), ID_STR(&p->chat_id));
    snprintf(files, sizeof(files), "%s/files", chat);
    make_size(files, "hole", INT64_C(1) << 40);
    assert_int_equal(chatdir_usage(root, &p->user_id, &u, &e), 0);
    assert_true(u.bytes >= INT64_C(1) << 40 && u.bytes < INT64_C(1) << 41);
    for (int i = 0; i < 4; i++) {
        make_size(files, (const char *[]){"a", "b", "c", "d"}[i], INT64_MAX);
        assert_int_equal(chatdir_usage(root, &p->user_id, &u, &e), 0);
        assert_int_equal(u.bytes, CHATDIR_USAGE_MAX);
        assert_int_equal(chatdir_chat_usage(root, &p->user_id, &p->chat_id, 0, &u, &e), 0);
        assert_int_equal(u.bytes, CHATDIR_USAGE_MAX);
        assert_int_equal(u.changed_bytes, CHATDIR_USAGE_MAX);
    }
    assert_int_equal(chatdir_quarantine(root, away, &p->user_id, &p->chat_id, &e), 0);
    assert_int_equal(chatdir_destroy(away, &p->user_id, &p->chat_id, &e), 0);
    assert_int_equal(chatdir_remove_workspace(root, away, &p->user_id, &e), 0);
    rmdir(away);
    assert_int_equal(rmdir(root), 0);
}

/* Side branches at every depth: the walk has to come back to each. */
static void usage_counts_what_no_path_can_name(void **state)
{
    struct place *p = *state;
    struct chatdir_usage before, after;
    char files[300];
    struct err e;
    assert_int_equal(chatdir_usage(p->root, &p->user_id, &before, &e), 0);
    snprintf(files, sizeof(files), "%s/files", p->chat);
    int fd = open(files, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < 1000; i++) {
        static const char *const names[] = {"a side branch", "the long way down", "z side branch"};
        for (size_t n = 0; n < 3; n++) {
            assert_int_equal(mkdirat(fd, names[n], 0700), 0);
        }
        int side = openat(fd, names[i % 2 == 0 ? 0 : 2], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        int file = openat(side, "f", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        assert_int_equal(write(file, "12345", 5), 5);
        close(file);
        close(side);
        int child = openat(fd, names[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        close(fd);
        fd = child;
    }
    close(fd);
    assert_int_equal(chatdir_usage(p->root, &p->user_id, &after, &e), 0);
    assert_int_equal(after.bytes - before.bytes, 1000 * 5);
    assert_false(after.partial);
    assert_int_equal(chatdir_quarantine(p->root, p->quarantine, &p->user_id, &p->chat_id, &e), 0);
    assert_int_equal(chatdir_destroy(p->quarantine, &p->user_id, &p->chat_id, &e), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_deleted_is_taken_apart_however_deep, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(what_was_put_away_comes_back_whole, setup, teardown),
        cmocka_unit_test_setup_teardown(no_directory_is_put_away_without_complaint, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_leftover_of_the_same_chat_is_no_hindrance, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(usage_counts_what_no_path_can_name, setup, teardown),
        cmocka_unit_test_setup_teardown(usage_counts_each_inode_once_and_follows_no_link, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(usage_of_sizes_beyond_any_sum_is_the_most_there_is, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
