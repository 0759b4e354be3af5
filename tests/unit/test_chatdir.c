/* The chat directory on disk: made once, ours alone, and nothing planted in it is ever followed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "leasehold/chatdir.h"

enum { AGENT_UID = 10001, AGENT_GID = 10002 };

struct place {
    char top[64];     /* holds root and outside */
    char root[80];    /* of the workspaces */
    char outside[80]; /* what an attack points to: must stay empty */
    struct id user_id, chat_id;
    char user_dir[160], chats_dir[176], chat_dir[240];
};

static int setup(void **state)
{
    struct place *p = calloc(1, sizeof(*p));
    assert_non_null(p);
    strcpy(p->top, "/tmp/leasehold-chatdir-XXXXXX");
    assert_non_null(mkdtemp(p->top));
    snprintf(p->root, sizeof(p->root), "%s/root", p->top);
    snprintf(p->outside, sizeof(p->outside), "%s/outside", p->top);
    assert_int_equal(mkdir(p->root, 0700), 0);
    assert_int_equal(mkdir(p->outside, 0755), 0);
    id_random(&p->user_id);
    id_random(&p->chat_id);
    snprintf(p->user_dir, sizeof(p->user_dir), "%s/%s", p->root, ID_STR(&p->user_id));
    snprintf(p->chats_dir, sizeof(p->chats_dir), "%s/chats", p->user_dir);
    snprintf(p->chat_dir, sizeof(p->chat_dir), "%s/%s", p->chats_dir, ID_STR(&p->chat_id));
    *state = p;
    return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static int teardown(void **state)
{
    struct place *p = *state;
    nftw(p->top, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    free(p);
    return 0;
}

static int make(struct place *p, struct err *e)
{
    return chatdir_make(p->root, &p->user_id, &p->chat_id, AGENT_UID, AGENT_GID, e);
}

static void make_ok(struct place *p)
{
    struct err e;
    if (make(p, &e) != 0) {
        fail_msg("chatdir_make: %s", e.msg);
    }
}

/* <chat_dir>/<name> */
static const char *in_chat(struct place *p, const char *name)
{
    static char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s", p->chat_dir, name);
    return path;
}

static struct stat stat_of(const char *path)
{
    struct stat st;
    assert_int_equal(lstat(path, &st), 0);
    return st;
}

static size_t count_entries(const char *path)
{
    DIR *d = opendir(path);
    assert_non_null(d);
    size_t n = 0;
    while (readdir(d) != NULL) {
        n++;
    }
    closedir(d);
    return n - 2;
}

/* --- what is made ----------------------------------------------------------------------------- */

static void assert_mode(const char *path, mode_t mode, uid_t uid)
{
    struct stat st = stat_of(path);
    assert_int_equal(st.st_mode & 07777, mode);
    assert_int_equal(st.st_uid, uid);
}

static void everything_is_made_and_closed_to_others(void **state)
{
    struct place *p = *state;
    bool root = geteuid() == 0;
    umask(0);
    make_ok(p);
    umask(022);
    assert_mode(p->user_dir, 0700, geteuid());
    assert_mode(p->chats_dir, 0700, geteuid());
    assert_mode(p->chat_dir, 0700, geteuid());
    assert_mode(in_chat(p, "files"), 0700, root ? AGENT_UID : geteuid());
    assert_mode(in_chat(p, "history.db"), 0600, geteuid());
    assert_mode(in_chat(p, "history.md"), root ? 0640 : 0600, geteuid());
    if (root) {
        assert_int_equal(stat_of(in_chat(p, "files")).st_gid, AGENT_GID);
        assert_int_equal(stat_of(in_chat(p, "history.md")).st_gid, AGENT_GID);
    }
    assert_int_equal(count_entries(p->chat_dir), 3);
}

static void the_heading_names_the_chat(void **state)
{
    struct place *p = *state;
    char text[128] = "", expected[128];
    make_ok(p);
    FILE *file = fopen(in_chat(p, "history.md"), "r");
    assert_non_null(file);
    size_t n = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    snprintf(expected, sizeof(expected), "# %s\n", ID_STR(&p->chat_id));
    assert_int_equal(n, strlen(expected));
    assert_string_equal(text, expected);
}

static void the_history_is_a_database_with_its_tables(void **state)
{
    struct place *p = *state;
    sqlite3 *db;
    make_ok(p);
    assert_int_equal(sqlite3_open(in_chat(p, "history.db"), &db), SQLITE_OK);
    assert_int_equal(
        sqlite3_exec(db,
                     "INSERT INTO messages (seq, message_id, at, role, author, content)"
                     " VALUES (1, 'm', 2, 'user', 'a', 'hello');"
                     "SELECT schema_version FROM meta",
                     NULL, NULL, NULL),
        SQLITE_OK);
    assert_int_equal(
        sqlite3_exec(db,
                     "INSERT INTO messages (seq, message_id, at, role, author, content)"
                     " VALUES (2, 'm', 2, 'user', 'a', 'b')",
                     NULL, NULL, NULL),
        SQLITE_CONSTRAINT);
    sqlite3_close(db);
}

static void made_again_nothing_changes(void **state)
{
    struct place *p = *state;
    static const char *const names[] = {"files", "history.db", "history.md", "."};
    struct stat before[4];
    make_ok(p);
    for (size_t i = 0; i < 4; i++) {
        before[i] = stat_of(in_chat(p, names[i]));
    }
    make_ok(p);
    for (size_t i = 0; i < 4; i++) {
        struct stat after = stat_of(in_chat(p, names[i]));
        assert_int_equal(after.st_ino, before[i].st_ino);
        assert_memory_equal(&after.st_mtim, &before[i].st_mtim, sizeof(after.st_mtim));
        assert_memory_equal(&after.st_ctim, &before[i].st_ctim, sizeof(after.st_ctim));
    }
}

static void what_a_crash_left_unmade_is_made(void **state)
{
    struct place *p = *state;
    static const char *const names[] = {"history.db", "history.md"};
    make_ok(p);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(unlink(in_chat(p, names[i])), 0);
        make_ok(p);
        stat_of(in_chat(p, names[i]));
    }
    assert_int_equal(rmdir(in_chat(p, "files")), 0);
    make_ok(p);
    assert_true(S_ISDIR(stat_of(in_chat(p, "files")).st_mode));
}

static void *make_thread(void *arg)
{
    struct err e;
    return make(arg, &e) == 0 ? NULL : arg;
}

static void many_who_make_it_at_once_all_succeed(void **state)
{
    struct place *p = *state;
    pthread_t threads[8];
    for (size_t i = 0; i < 8; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, make_thread, p), 0);
    }
    for (size_t i = 0; i < 8; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    assert_int_equal(count_entries(p->chat_dir), 3); /* and no temporary file is left */
}

/* --- what is planted -------------------------------------------------------------------------- */

static void assert_refused(struct place *p)
{
    struct err e;
    assert_int_equal(make(p, &e), -1);
    assert_int_equal(e.code, ERR_CONFLICT);
    assert_null(strstr(e.msg, p->top));
    assert_int_equal(count_entries(p->outside), 0);
    struct stat st = stat_of(p->outside);
    assert_int_equal(st.st_uid, geteuid());
    assert_int_equal(st.st_mode & 07777, 0755);
}

static void assert_paths_refused(struct place *p, enum err_code files, enum err_code history)
{
    char path[PATH_MAX];
    struct err e;
    if (files != ERR_NONE) {
        assert_int_equal(
            chatdir_files_path(p->root, &p->user_id, &p->chat_id, path, sizeof(path), &e), -1);
        assert_int_equal(e.code, files);
    }
    if (history != ERR_NONE) {
        assert_int_equal(
            chatdir_history_md_path(p->root, &p->user_id, &p->chat_id, path, sizeof(path), &e), -1);
        assert_int_equal(e.code, history);
    }
}

static void a_user_directory_that_is_a_symlink_is_refused(void **state)
{
    struct place *p = *state;
    assert_int_equal(symlink(p->outside, p->user_dir), 0);
    assert_refused(p);
    assert_paths_refused(p, ERR_CONFLICT, ERR_CONFLICT);
}

static void a_chats_directory_that_is_a_symlink_is_refused(void **state)
{
    struct place *p = *state;
    assert_int_equal(mkdir(p->user_dir, 0700), 0);
    assert_int_equal(symlink(p->outside, p->chats_dir), 0);
    assert_refused(p);
    assert_paths_refused(p, ERR_CONFLICT, ERR_CONFLICT);
}

static void a_chat_directory_that_is_a_symlink_is_refused(void **state)
{
    struct place *p = *state;
    assert_int_equal(mkdir(p->user_dir, 0700), 0);
    assert_int_equal(mkdir(p->chats_dir, 0700), 0);
    assert_int_equal(symlink("../../../outside", p->chat_dir), 0);
    assert_refused(p);
    assert_paths_refused(p, ERR_CONFLICT, ERR_CONFLICT);
}

static void files_that_are_a_symlink_are_refused(void **state)
{
    struct place *p = *state;
    make_ok(p);
    assert_int_equal(rmdir(in_chat(p, "files")), 0);
    assert_int_equal(symlink(p->outside, in_chat(p, "files")), 0);
    assert_refused(p);
    assert_paths_refused(p, ERR_CONFLICT, ERR_NONE);
}

static void files_that_are_a_file_are_refused(void **state)
{
    struct place *p = *state;
    make_ok(p);
    assert_int_equal(rmdir(in_chat(p, "files")), 0);
    assert_int_equal(mknod(in_chat(p, "files"), S_IFREG | 0600, 0), 0);
    assert_refused(p);
    assert_paths_refused(p, ERR_CONFLICT, ERR_NONE);
}

/* name replaced by a symlink (also a dangling one), a FIFO, a directory, a second name of a file */
static void assert_planted_file_is_refused(struct place *p, const char *name)
{
    char target[128];
    enum err_code history = strcmp(name, "history.md") == 0 ? ERR_CONFLICT : ERR_NONE;
    make_ok(p);
    snprintf(target, sizeof(target), "%s/secret", p->top);
    assert_int_equal(mknod(target, S_IFREG | 0600, 0), 0);

    assert_int_equal(unlink(in_chat(p, name)), 0);
    assert_int_equal(symlink(target, in_chat(p, name)), 0);
    assert_refused(p);
    assert_paths_refused(p, ERR_NONE, history);

    assert_int_equal(unlink(in_chat(p, name)), 0);
    assert_int_equal(symlink("../../../../outside/new", in_chat(p, name)), 0);
    assert_refused(p);

    assert_int_equal(unlink(in_chat(p, name)), 0);
    assert_int_equal(mkfifo(in_chat(p, name), 0600), 0);
    assert_refused(p);
    assert_paths_refused(p, ERR_NONE, history);

    assert_int_equal(unlink(in_chat(p, name)), 0);
    assert_int_equal(mkdir(in_chat(p, name), 0700), 0);
    assert_refused(p);
    assert_paths_refused(p, ERR_NONE, history);

    assert_int_equal(rmdir(in_chat(p, name)), 0);
    assert_int_equal(link(target, in_chat(p, name)), 0);
    assert_refused(p);
    assert_int_equal(stat_of(target).st_size, 0);
}

static void a_planted_history_md_is_refused(void **state)
{
    assert_planted_file_is_refused(*state, "history.md");
}

static void a_planted_history_db_is_refused(void **state)
{
    assert_planted_file_is_refused(*state, "history.db");
}

static void a_directory_of_somebody_else_is_refused(void **state)
{
    struct place *p = *state;
    if (geteuid() != 0) {
        skip();
    }
    assert_int_equal(mkdir(p->user_dir, 0777), 0);
    assert_int_equal(chown(p->user_dir, AGENT_UID, AGENT_GID), 0);
    assert_refused(p);
}

/* --- paths ------------------------------------------------------------------------------------ */

static void the_paths_are_absolute_and_right(void **state)
{
    struct place *p = *state;
    char path[PATH_MAX], relative_root[128];
    struct err e;
    make_ok(p);
    assert_int_equal(chdir(p->top), 0);
    strcpy(relative_root, "root");
    assert_int_equal(
        chatdir_files_path(relative_root, &p->user_id, &p->chat_id, path, sizeof(path), &e), 0);
    assert_string_equal(path, in_chat(p, "files"));
    assert_int_equal(
        chatdir_history_md_path(relative_root, &p->user_id, &p->chat_id, path, sizeof(path), &e),
        0);
    assert_string_equal(path, in_chat(p, "history.md"));
    assert_int_equal(chatdir_files_path(p->root, &p->user_id, &p->chat_id, path, 20, &e), -1);
    assert_int_equal(e.code, ERR_INTERNAL);
    assert_int_equal(chdir("/"), 0);
}

static void a_chat_that_was_not_made_is_not_found(void **state)
{
    struct place *p = *state;
    assert_paths_refused(p, ERR_CHAT_NOT_FOUND, ERR_CHAT_NOT_FOUND);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(everything_is_made_and_closed_to_others),
        T(the_heading_names_the_chat),
        T(the_history_is_a_database_with_its_tables),
        T(made_again_nothing_changes),
        T(what_a_crash_left_unmade_is_made),
        T(many_who_make_it_at_once_all_succeed),
        T(a_user_directory_that_is_a_symlink_is_refused),
        T(a_chats_directory_that_is_a_symlink_is_refused),
        T(a_chat_directory_that_is_a_symlink_is_refused),
        T(files_that_are_a_symlink_are_refused),
        T(files_that_are_a_file_are_refused),
        T(a_planted_history_md_is_refused),
        T(a_planted_history_db_is_refused),
        T(a_directory_of_somebody_else_is_refused),
        T(the_paths_are_absolute_and_right),
        T(a_chat_that_was_not_made_is_not_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
