/* What was answered survives: a store killed in mid-work, an unclean stop, a damaged file. */
#include <pthread.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <time.h>

#include "../support/store_fixture.h"

enum { ROUNDS = 20, CHILD_THREADS = 4 };

/* --- the child: writes and says so, until it is killed ------------------------------------------ */

struct child_thread {
    struct store *store;
    int ack_fd;
};

static int add_chat(struct store_tx *tx, void *arg, struct err *e)
{
    struct id user_id;
    id_random(&user_id);
    struct audit_entry a = fixture_audit_entry("chat");
    return fixture_add_chat(tx, &user_id, arg, e) == 0 ? store_audit(tx, &a, e) : -1;
}

static void *child_write(void *arg)
{
    struct child_thread *t = arg;
    struct err e;
    struct id chat_id;
    while (store_write(t->store, add_chat, &chat_id, &e) == 0) {
        /* one write of 16 bytes into a pipe is never torn */
        if (write(t->ack_fd, chat_id.b, sizeof(chat_id.b)) != (ssize_t)sizeof(chat_id.b)) {
            break;
        }
    }
    return NULL;
}

static void child_run(struct fixture *f, int ack_fd)
{
    struct err e;
    struct child_thread t = {.ack_fd = ack_fd};
    pthread_t threads[CHILD_THREADS];
    if (store_open(&f->options, &t.store, &e) == 0) {
        for (int i = 0; i < CHILD_THREADS; i++) {
            pthread_create(&threads[i], NULL, child_write, &t);
        }
        for (int i = 0; i < CHILD_THREADS; i++) {
            pthread_join(threads[i], NULL);
        }
    }
    _exit(1);
}

/* --- the parent: kills, reopens, counts --------------------------------------------------------- */

struct acks {
    struct id ids[65536];
    size_t n;
};

static void read_acks(int fd, struct acks *acks)
{
    while (acks->n < sizeof(acks->ids) / sizeof(acks->ids[0]) &&
           read(fd, acks->ids[acks->n].b, sizeof(struct id)) == (ssize_t)sizeof(struct id)) {
        acks->n++;
    }
}

static void run_and_kill(struct fixture *f, struct acks *acks, long run_us)
{
    int fds[2], status;
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(fds[0]);
        child_run(f, fds[1]);
    }
    close(fds[1]);
    /* the time counts from the first answer, so that every round has some */
    assert_int_equal(read(fds[0], acks->ids[acks->n].b, sizeof(struct id)), sizeof(struct id));
    acks->n++;
    nanosleep(&(struct timespec){.tv_nsec = run_us * 1000}, NULL);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    read_acks(fds[0], acks);
    close(fds[0]);
}

static int find_all(struct store_tx *tx, void *arg, struct err *e)
{
    struct acks *acks = arg;
    for (size_t i = 0; i < acks->n; i++) {
        struct arena *arena = arena_new(4096);
        struct chat c;
        int rc = store_chat_get(tx, &acks->ids[i], arena, &c, e);
        arena_free(arena);
        if (rc != 0) {
            return -1;
        }
    }
    return 0;
}

static int verify_audit(struct store_tx *tx, void *arg, struct err *e)
{
    int64_t *checked_and_broken = arg;
    return store_audit_verify(tx, &checked_and_broken[0], &checked_and_broken[1], e);
}

static void every_answered_write_survives_kill_9(void **state)
{
    struct fixture *f = *state;
    struct acks *acks = calloc(1, sizeof(*acks));
    assert_non_null(acks);
    unsigned seed = (unsigned)time(NULL);
    print_message("seed %u\n", seed);
    srandom(seed);
    for (int round = 0; round < ROUNDS; round++) {
        int64_t audit[2];
        run_and_kill(f, acks, random() % 40000);
        fixture_open(f);
        fixture_read(f, find_all, acks);
        fixture_read(f, verify_audit, audit);
        assert_int_equal(audit[1], 0);
        assert_true(audit[0] >= (int64_t)acks->n);
        store_close(f->store);
        f->store = NULL;
    }
    assert_true(fixture_log_has(f, "store_checked"));
    print_message("%zu answered writes, all there\n", acks->n);
    free(acks);
}

/* --- opening ------------------------------------------------------------------------------------ */

static void an_orderly_stop_needs_no_check(void **state)
{
    struct fixture *f = *state;
    fixture_open(f);
    fixture_reopen(f);
    assert_true(fixture_log_has(f, "store_opened"));
    assert_false(fixture_log_has(f, "store_checked"));
}

static void a_second_store_on_the_same_file_is_refused(void **state)
{
    struct fixture *f = *state;
    struct store *second;
    struct err e;
    fixture_open(f);
    assert_int_equal(store_open(&f->options, &second, &e), -1);
    assert_int_equal(e.code, ERR_INTERNAL);
    assert_non_null(strstr(e.msg, "lh.db.lock"));
}

static void overwrite(const char *path, off_t at, size_t len)
{
    char junk[8192];
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    memset(junk, 0x5a, sizeof(junk));
    assert_int_equal(pwrite(fd, junk, len, at), len);
    close(fd);
}

static void forget_clean_stop(struct fixture *f)
{
    char path[100];
    snprintf(path, sizeof(path), "%s.lock", f->path);
    assert_int_equal(unlink(path), 0);
}

static int add_chats(struct store_tx *tx, void *arg, struct err *e)
{
    struct id chat_id;
    (void)arg;
    for (int i = 0; i < 200; i++) {
        if (add_chat(tx, &chat_id, e) != 0) {
            return -1;
        }
    }
    return 0;
}

static void assert_refused_naming_the_file(struct fixture *f)
{
    struct err e;
    assert_int_equal(store_open(&f->options, &f->store, &e), -1);
    assert_int_equal(e.code, ERR_INTERNAL);
    assert_non_null(strstr(e.msg, f->path));
    assert_non_null(strstr(e.msg, "restore a backup"));
}

static void a_damaged_page_is_found_after_an_unclean_stop(void **state)
{
    struct fixture *f = *state;
    fixture_open(f);
    fixture_write(f, add_chats, NULL);
    store_close(f->store);
    f->store = NULL;
    forget_clean_stop(f);
    overwrite(f->path, (off_t)4096 * 20, 4096);
    assert_refused_naming_the_file(f);
    assert_refused_naming_the_file(f); /* and is not forgotten by having been seen */
}

static int audit_one(struct store_tx *tx, void *arg, struct err *e)
{
    struct audit_entry a = fixture_audit_entry("x");
    (void)arg;
    return store_audit(tx, &a, e);
}

static void damage_found_behind_the_start_stops_all_writes_and_the_next_start(void **state)
{
    struct fixture *f = *state;
    const struct timespec pause = {.tv_nsec = 5000000};
    struct err e;
    fixture_open(f);
    fixture_write(f, add_chats, NULL);
    store_close(f->store);
    f->store = NULL;
    forget_clean_stop(f);
    overwrite(f->path, (off_t)4096 * 20, 4096);
    f->options.check_first_bytes = 1;
    assert_int_equal(store_open(&f->options, &f->store, &e), 0);
    for (int i = 0; i < 2000 && store_write_end(f->store, audit_one, NULL, &e) == 0; i++) {
        nanosleep(&pause, NULL);
    }
    assert_int_equal(e.code, ERR_INTERNAL);
    assert_non_null(strstr(e.msg, "restore a backup"));
    store_close(f->store);
    f->store = NULL;
    assert_refused_naming_the_file(f);
}

static void a_check_behind_the_start_that_was_broken_off_is_made_again(void **state)
{
    struct fixture *f = *state;
    struct err e;
    fixture_open(f);
    for (int i = 0; i < 20; i++) {
        fixture_write(f, add_chats, NULL);
    }
    store_close(f->store);
    f->store = NULL;
    forget_clean_stop(f);
    overwrite(f->path, (off_t)4096 * 20, 4096);
    f->options.check_first_bytes = 1;
    if (store_open(&f->options, &f->store, &e) == 0) {
        store_close(f->store); /* before or behind the check: never as clean */
        f->store = NULL;
    }
    f->options.check_first_bytes = 0;
    assert_refused_naming_the_file(f);
}

static void a_file_that_is_no_database_is_refused(void **state)
{
    struct fixture *f = *state;
    int fd = open(f->path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
    overwrite(f->path, 0, 8192);
    assert_refused_naming_the_file(f);
}

static void a_database_of_a_newer_leasehold_is_refused(void **state)
{
    struct fixture *f = *state;
    struct err e;
    sqlite3 *db;
    fixture_open(f);
    store_close(f->store);
    f->store = NULL;
    assert_int_equal(sqlite3_open(f->path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "INSERT INTO schema_migrations VALUES (9999, 'later', 1)",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    sqlite3_close(db);
    assert_int_equal(store_open(&f->options, &f->store, &e), -1);
    assert_int_equal(e.code, ERR_INTERNAL);
    assert_non_null(strstr(e.msg, "9999"));
}

static void only_its_owner_may_read_the_database(void **state)
{
    struct fixture *f = *state;
    static const char *const suffixes[] = {"", "-wal", "-shm", ".lock"};
    fixture_open(f);
    fixture_write(f, add_chats, NULL);
    for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
        char path[100];
        struct stat st;
        snprintf(path, sizeof(path), "%s%s", f->path, suffixes[i]);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0600);
    }
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, fixture_setup_closed, fixture_teardown)
    const struct CMUnitTest tests[] = {
        T(every_answered_write_survives_kill_9),
        T(an_orderly_stop_needs_no_check),
        T(a_second_store_on_the_same_file_is_refused),
        T(a_damaged_page_is_found_after_an_unclean_stop),
        T(damage_found_behind_the_start_stops_all_writes_and_the_next_start),
        T(a_check_behind_the_start_that_was_broken_off_is_made_again),
        T(a_file_that_is_no_database_is_refused),
        T(a_database_of_a_newer_leasehold_is_refused),
        T(only_its_owner_may_read_the_database),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
