/* A chat's history: both files in one step, once and for all, and put right after any crash. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <ftw.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "leasehold/buf.h"
#include "leasehold/chatdir.h"
#include "leasehold/history.h"

#define AT 1800000000123 /* 2027-01-15T08:00:00.123Z */

struct fixture {
    char root[64];
    struct history_place place;
    char dir[200], db[240], md[240];
    struct history *h;
    struct err e;
};

static void open_it(struct fixture *f)
{
    bool damaged;
    assert_int_equal(history_open(&f->place, &f->h, &damaged, &f->e), 0);
    assert_false(damaged);
}

static void reopen(struct fixture *f)
{
    history_close(f->h);
    open_it(f);
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    strcpy(f->root, "/tmp/leasehold-history-XXXXXX");
    assert_non_null(mkdtemp(f->root));
    f->place = (struct history_place){.root = f->root, .uid = getuid(), .gid = getgid()};
    id_random(&f->place.user_id);
    id_random(&f->place.chat_id);
    assert_int_equal(chatdir_make(f->root, &f->place.user_id, &f->place.chat_id, f->place.uid,
                                  f->place.gid, &f->e),
                     0);
    snprintf(f->dir, sizeof(f->dir), "%s/%s/chats/%s", f->root, ID_STR(&f->place.user_id),
             ID_STR(&f->place.chat_id));
    snprintf(f->db, sizeof(f->db), "%s/history.db", f->dir);
    snprintf(f->md, sizeof(f->md), "%s/history.md", f->dir);
    open_it(f);
    *state = f;
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
    struct fixture *f = *state;
    history_close(f->h);
    nftw(f->root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    free(f);
    return 0;
}

/* --- help -------------------------------------------------------------------------------------- */

static char *read_md(struct fixture *f)
{
    static char text[65536];
    int fd = open(f->md, O_RDONLY | O_CLOEXEC);
    ssize_t n = read(fd, text, sizeof(text) - 1);
    assert_true(n >= 0);
    close(fd);
    text[n] = '\0';
    return text;
}

static struct history_message message(const char *text, int64_t n)
{
    return (struct history_message){.at = AT,
                                    .role = HISTORY_USER,
                                    .author = "me",
                                    .content = text,
                                    .content_len = strlen(text),
                                    .n = n};
}

static int say(struct fixture *f, const char *text)
{
    struct history_message m = message(text, 0);
    return history_append(f->h, &m, 1, NULL, &f->e);
}

static int from_spool(struct fixture *f, const struct id *session, const char *text, int64_t n)
{
    struct history_message m = message(text, n);
    struct history_spool s = {.session_id = *session, .n = n, .bytes = 100 * n};
    return history_append(f->h, &m, 1, &s, &f->e);
}

static int collect(void *ctx, const struct history_message *m, struct err *e)
{
    (void)e;
    buf_printf(ctx, "%lld:%.*s ", (long long)m->seq, (int)m->content_len, m->content);
    return 0;
}

static void assert_messages(struct fixture *f, int64_t after, int64_t limit, const char *expected)
{
    struct buf b;
    buf_init(&b, 65536);
    buf_add_str(&b, "");
    assert_int_equal(history_each(f->h, after, limit, collect, &b, &f->e), 0);
    assert_string_equal(b.data, expected);
    buf_done(&b);
}

static void assert_md(struct fixture *f, const char *entries)
{
    char expected[4096];
    snprintf(expected, sizeof(expected), "# %s\n%s", ID_STR(&f->place.chat_id), entries);
    assert_string_equal(read_md(f), expected);
}

#define ENTRY(text) "\n## 2027-01-15T08:00:00.123Z user me\n\n" text "\n"

static void overwrite(const char *path, off_t at, const char *bytes)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_true(pwrite(fd, bytes, strlen(bytes), at) > 0);
    close(fd);
}

static void sql(struct fixture *f, const char *text)
{
    sqlite3 *db;
    history_close(f->h);
    f->h = NULL;
    assert_int_equal(sqlite3_open(f->db, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, text, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    open_it(f);
}

/* --- appending --------------------------------------------------------------------------------- */

static void messages_stand_in_both_files_in_order(void **state)
{
    struct fixture *f = *state;
    struct history_message two[] = {message("one", 0), message("two", 0)};
    assert_int_equal(history_append(f->h, two, 2, NULL, &f->e), 0);
    assert_int_equal(two[0].seq, 1);
    assert_int_equal(two[1].seq, 2);
    assert_false(id_equal(&two[0].message_id, &two[1].message_id));
    reopen(f);
    assert_int_equal(say(f, "three"), 0);
    assert_messages(f, 0, 100, "1:one 2:two 3:three ");
    assert_messages(f, 1, 1, "2:two ");
    assert_md(f, ENTRY("one") ENTRY("two") ENTRY("three"));
}

static void what_a_client_sends_again_is_there_once(void **state)
{
    struct fixture *f = *state;
    struct history_message three[] = {message("one", 0), message("two", 0), message("one", 0)};
    three[0].client_id = three[2].client_id = "mine";
    assert_int_equal(history_append(f->h, three, 3, NULL, &f->e), 0);
    assert_int_equal(three[0].is, HISTORY_IS_NEW);
    assert_int_equal(three[1].is, HISTORY_IS_NEW);
    assert_int_equal(three[2].is, HISTORY_IS_KNOWN);
    assert_int_equal(three[2].seq, 1);
    assert_true(id_equal(&three[2].message_id, &three[0].message_id));
    reopen(f);
    struct history_message again = message("one", 0);
    again.client_id = "mine";
    again.at++;
    assert_int_equal(history_append(f->h, &again, 1, NULL, &f->e), 0);
    assert_int_equal(again.is, HISTORY_IS_KNOWN);
    assert_int_equal(again.at, AT);
    again.content = "another";
    again.content_len = strlen(again.content);
    assert_int_equal(history_append(f->h, &again, 1, NULL, &f->e), 0);
    assert_int_equal(again.is, HISTORY_IS_ANOTHER);
    assert_messages(f, 0, 100, "1:one 2:two ");
    assert_md(f, ENTRY("one") ENTRY("two"));
}

static void what_both_files_take_is_told(void **state)
{
    struct fixture *f = *state;
    struct history_bytes b;
    struct stat db, md;
    int64_t bytes;
    assert_int_equal(say(f, "one"), 0);
    assert_int_equal(history_bytes(&f->place, &b, &f->e), 0);
    assert_int_equal(stat(f->db, &db), 0);
    assert_int_equal(stat(f->md, &md), 0);
    assert_int_equal(b.db, db.st_size);
    assert_int_equal(b.md, md.st_size);
    assert_true(history_md_fd(f->h, &bytes) >= 0);
    assert_int_equal(bytes, md.st_size);
    id_random(&f->place.chat_id);
    assert_int_equal(history_bytes(&f->place, &b, &f->e), -1);
    assert_int_equal(f->e.code, ERR_CHAT_NOT_FOUND);
}

static void one_that_cannot_be_appended_leaves_neither_file_changed(void **state)
{
    struct fixture *f = *state;
    struct id session;
    id_random(&session);
    assert_int_equal(say(f, "one"), 0);
    struct history_message bad[] = {message("two", 5), message("three", 5)};
    struct history_spool s = {.session_id = session, .n = 5};
    assert_int_equal(history_append(f->h, bad, 2, &s, &f->e), -1);
    assert_int_equal(f->e.code, ERR_CONFLICT);
    assert_int_equal(say(f, "two"), 0);
    assert_messages(f, 0, 100, "1:one 2:two ");
    assert_md(f, ENTRY("one") ENTRY("two"));
}

static void what_a_spool_says_comes_in_once(void **state)
{
    struct fixture *f = *state;
    struct history_spool s;
    struct id session, other;
    id_random(&session);
    id_random(&other);
    assert_int_equal(history_spool_get(f->h, &session, &s, &f->e), 0);
    assert_int_equal(s.n, 0);
    assert_int_equal(s.bytes, 0);
    assert_int_equal(from_spool(f, &session, "one", 1), 0);
    assert_int_equal(from_spool(f, &session, "one", 1), -1);
    assert_int_equal(f->e.code, ERR_CONFLICT);
    reopen(f);
    assert_int_equal(from_spool(f, &session, "one", 1), -1);
    assert_int_equal(from_spool(f, &other, "another one", 1), 0);
    assert_int_equal(from_spool(f, &session, "four", 4), 0);
    assert_int_equal(history_spool_get(f->h, &session, &s, &f->e), 0);
    assert_int_equal(s.n, 4);
    assert_int_equal(s.bytes, 400);
    assert_messages(f, 0, 100, "1:one 2:another one 3:four ");
}

static void the_database_itself_refuses_a_second_one(void **state)
{
    struct fixture *f = *state;
    struct id session;
    id_random(&session);
    assert_int_equal(from_spool(f, &session, "one", 1), 0);
    sql(f, "DELETE FROM spools");
    assert_int_equal(from_spool(f, &session, "one", 1), -1);
    assert_int_equal(f->e.code, ERR_CONFLICT);
    assert_messages(f, 0, 100, "1:one ");
    assert_md(f, ENTRY("one"));
}

static void bytes_that_are_no_text_become_text(void **state)
{
    struct fixture *f = *state;
    struct history_message m = message("a\xff"
                                       "b\0c\xc3\xa9\xe2\x82",
                                       0);
    m.content_len = 9;
    assert_int_equal(history_append(f->h, &m, 1, NULL, &f->e), 0);
    assert_messages(f, 0, 1,
                    "1:a\xEF\xBF\xBD"
                    "b\xEF\xBF\xBD"
                    "c\xc3\xa9\xEF\xBF\xBD\xEF\xBF\xBD ");
}

/* --- history.md -------------------------------------------------------------------------------- */

static void no_content_looks_like_an_entry(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *said, *shown;
    } pairs[] = {
        {"## x", "\\## x"},
        {"# x", "\\# x"},
        {"##", "\\##"},
        {"   ## x", "   \\## x"},
        {"a\n## x\n## y", "a\n\\## x\n\\## y"},
        {"a\r## x", "a\r\\## x"},
        {"a\r\n##\tx", "a\r\n\\##\tx"},
        {"\n\n# x\n", "\n\n\\# x\n"},
        {"### x", "### x"},
        {"#x ##", "#x ##"},
        {"    ## x", "    ## x"},
        {"\\## x", "\\## x"},
        {"a ## x", "a ## x"},
    };
    for (size_t i = 0; i < sizeof(pairs) / sizeof(*pairs); i++) {
        char expected[128];
        assert_int_equal(say(f, pairs[i].said), 0);
        snprintf(expected, sizeof(expected), "user me\n\n%s\n", pairs[i].shown);
        const char *md = read_md(f);
        assert_string_equal(md + strlen(md) - strlen(expected), expected);
    }
}

static void an_author_stays_in_his_line(void **state)
{
    struct fixture *f = *state;
    struct history_message m = message("x", 0);
    m.author = "a\n## b";
    assert_int_equal(history_append(f->h, &m, 1, NULL, &f->e), 0);
    assert_md(f, "\n## 2027-01-15T08:00:00.123Z user a ## b\n\nx\n");
}

static void what_a_crash_left_at_the_end_of_history_md_is_cut_off(void **state)
{
    struct fixture *f = *state;
    struct stat st;
    assert_int_equal(say(f, "one"), 0);
    assert_int_equal(stat(f->md, &st), 0);
    overwrite(f->md, st.st_size, "\n## half an entr");
    reopen(f);
    assert_md(f, ENTRY("one"));
    assert_int_equal(say(f, "two"), 0);
    assert_md(f, ENTRY("one") ENTRY("two"));
}

static void a_history_md_that_lost_something_is_written_again(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(say(f, "one"), 0);
    assert_int_equal(say(f, "two"), 0);
    for (off_t left = 0; left < 60; left += 20) {
        assert_int_equal(truncate(f->md, left), 0);
        reopen(f);
        assert_md(f, ENTRY("one") ENTRY("two"));
    }
    assert_int_equal(unlink(f->md), 0);
    reopen(f);
    assert_md(f, ENTRY("one") ENTRY("two"));
    overwrite(f->md, 0, "# something else");
    assert_int_equal(history_md_rebuild(f->h, &f->e), 0);
    assert_md(f, ENTRY("one") ENTRY("two"));
}

static void a_history_of_version_1_is_brought_up(void **state)
{
    struct fixture *f = *state;
    sql(f, "DROP TABLE spools; DROP TABLE projection; DROP INDEX messages_once;"
           "DROP INDEX messages_sent_once; ALTER TABLE messages DROP COLUMN client_id;"
           "ALTER TABLE messages DROP COLUMN session_id; ALTER TABLE messages DROP COLUMN n;"
           "UPDATE meta SET schema_version = 1");
    assert_int_equal(say(f, "one"), 0);
    assert_messages(f, 0, 100, "1:one ");
    assert_md(f, ENTRY("one"));
}

/* --- faults ------------------------------------------------------------------------------------ */

static void assert_damaged(struct fixture *f)
{
    char name[HISTORY_BROKEN_NAME], path[400];
    bool damaged = false;
    assert_int_equal(history_open(&f->place, &f->h, &damaged, &f->e), -1);
    f->h = NULL;
    assert_true(damaged);
    assert_int_equal(history_move_aside(&f->place, 42, name, &f->e), 0);
    assert_string_equal(name, "history.db.broken-42");
    snprintf(path, sizeof(path), "%s/%s", f->dir, name);
    assert_int_equal(access(path, F_OK), 0);
}

static void a_broken_one_is_moved_aside_and_history_md_goes_on(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(say(f, "before"), 0);
    history_close(f->h);
    f->h = NULL;
    overwrite(f->db, 0, "this is no database");
    assert_damaged(f);
    open_it(f);
    assert_int_equal(say(f, "after"), 0);
    assert_messages(f, 0, 100, "1:after ");
    assert_md(f, ENTRY("before") ENTRY("after"));
    reopen(f);
    assert_md(f, ENTRY("before") ENTRY("after"));
}

static void an_empty_file_is_a_broken_one(void **state)
{
    struct fixture *f = *state;
    history_close(f->h);
    f->h = NULL;
    assert_int_equal(truncate(f->db, 0), 0);
    assert_damaged(f);
    open_it(f);
}

static void the_journal_of_a_broken_one_is_not_played_into_the_new_one(void **state)
{
    struct fixture *f = *state;
    char journal[300];
    history_close(f->h);
    f->h = NULL;
    assert_int_equal(truncate(f->db, 0), 0);
    snprintf(journal, sizeof(journal), "%s-journal", f->db);
    close(open(journal, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    assert_damaged(f);
    assert_int_equal(access(journal, F_OK), -1);
    open_it(f);
}

static void damage_found_while_appending_is_known_as_such(void **state)
{
    struct fixture *f = *state;
    for (int i = 0; i < 50; i++) {
        char text[600];
        memset(text, 'x', sizeof(text) - 1);
        text[sizeof(text) - 1] = '\0';
        assert_int_equal(say(f, text), 0);
    }
    history_close(f->h);
    f->h = NULL;
    struct stat st;
    assert_int_equal(stat(f->db, &st), 0);
    for (off_t page = 2 * 4096; page < st.st_size; page += 4096) {
        overwrite(f->db, page, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff");
    }
    bool damaged;
    if (history_open(&f->place, &f->h, &damaged, &f->e) != 0) {
        f->h = NULL;
        assert_true(damaged);
        return;
    }
    assert_int_equal(say(f, "one more"), -1);
    assert_true(history_is_damaged(f->h));
}

static void a_symlink_in_place_of_a_file_is_refused(void **state)
{
    struct fixture *f = *state;
    char elsewhere[240];
    bool damaged;
    history_close(f->h);
    f->h = NULL;
    snprintf(elsewhere, sizeof(elsewhere), "%s/elsewhere", f->root);
    assert_int_equal(rename(f->md, elsewhere), 0);
    assert_int_equal(symlink(elsewhere, f->md), 0);
    assert_int_equal(history_open(&f->place, &f->h, &damaged, &f->e), -1);
    f->h = NULL;
    assert_false(damaged);
    assert_int_equal(unlink(f->md), 0);
    assert_int_equal(rename(f->db, elsewhere), 0);
    assert_int_equal(symlink(elsewhere, f->db), 0);
    assert_int_equal(history_open(&f->place, &f->h, &damaged, &f->e), -1);
    f->h = NULL;
    assert_false(damaged);
}

static void no_directory_is_no_chat(void **state)
{
    struct fixture *f = *state;
    struct history_place other = f->place;
    struct history *h;
    bool damaged;
    id_random(&other.chat_id);
    assert_int_equal(history_open(&other, &h, &damaged, &f->e), -1);
    assert_int_equal(f->e.code, ERR_CHAT_NOT_FOUND);
}

/* Appends from a spool until it is killed; says each n it knows to be in. */
static void append_for_ever(struct fixture *f, const struct id *session, int out)
{
    struct history_spool s;
    bool damaged;
    if (history_open(&f->place, &f->h, &damaged, &f->e) != 0 ||
        history_spool_get(f->h, session, &s, &f->e) != 0) {
        _exit(1);
    }
    for (int64_t n = s.n + 1;; n++) {
        char text[32];
        snprintf(text, sizeof(text), "m%lld", (long long)n);
        if (from_spool(f, session, text, n) != 0 || write(out, &n, sizeof(n)) != sizeof(n)) {
            _exit(1);
        }
    }
}

static void kill_9_between_any_two_steps_loses_and_doubles_nothing(void **state)
{
    struct fixture *f = *state;
    struct id session;
    int64_t known = 0;
    struct buf expected, md;
    id_random(&session);
    history_close(f->h);
    f->h = NULL;
    for (int round = 0; round < 20; round++) {
        int pipe_fds[2], status;
        assert_int_equal(pipe(pipe_fds), 0);
        pid_t pid = fork();
        if (pid == 0) {
            append_for_ever(f, &session, pipe_fds[1]);
        }
        close(pipe_fds[1]);
        if (known == 0) {
            assert_int_equal(read(pipe_fds[0], &known, sizeof(known)), sizeof(known));
        }
        usleep((useconds_t)(random() % 30000));
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
        assert_true(WIFSIGNALED(status));
        while (read(pipe_fds[0], &known, sizeof(known)) == sizeof(known)) {
        }
        close(pipe_fds[0]);
    }
    open_it(f);
    struct history_spool s;
    assert_int_equal(history_spool_get(f->h, &session, &s, &f->e), 0);
    assert_true(s.n >= known && s.n > 0);
    buf_init(&expected, 1 << 20);
    buf_init(&md, 1 << 20);
    buf_printf(&md, "# %s\n", ID_STR(&f->place.chat_id));
    for (long long n = 1; n <= s.n; n++) {
        buf_printf(&expected, "%lld:m%lld ", n, n);
        buf_printf(&md, ENTRY("m%lld"), n);
    }
    struct buf got;
    buf_init(&got, 1 << 20);
    assert_int_equal(history_each(f->h, 0, INT64_MAX, collect, &got, &f->e), 0);
    assert_string_equal(got.data, expected.data);
    struct stat st;
    assert_int_equal(stat(f->md, &st), 0);
    assert_int_equal(st.st_size, md.len);
    if (md.len < 65536) {
        assert_string_equal(read_md(f), md.data);
    }
    buf_done(&got);
    buf_done(&expected);
    buf_done(&md);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(messages_stand_in_both_files_in_order),
        TEST(what_a_client_sends_again_is_there_once),
        TEST(what_both_files_take_is_told),
        TEST(one_that_cannot_be_appended_leaves_neither_file_changed),
        TEST(what_a_spool_says_comes_in_once),
        TEST(the_database_itself_refuses_a_second_one),
        TEST(bytes_that_are_no_text_become_text),
        TEST(no_content_looks_like_an_entry),
        TEST(an_author_stays_in_his_line),
        TEST(what_a_crash_left_at_the_end_of_history_md_is_cut_off),
        TEST(a_history_md_that_lost_something_is_written_again),
        TEST(a_history_of_version_1_is_brought_up),
        TEST(a_broken_one_is_moved_aside_and_history_md_goes_on),
        TEST(an_empty_file_is_a_broken_one),
        TEST(the_journal_of_a_broken_one_is_not_played_into_the_new_one),
        TEST(damage_found_while_appending_is_known_as_such),
        TEST(a_symlink_in_place_of_a_file_is_refused),
        TEST(no_directory_is_no_chat),
        TEST(kill_9_between_any_two_steps_loses_and_doubles_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
