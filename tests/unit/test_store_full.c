/* A full disk: the writes that find no room say so, and the store goes on when there is room. */
#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mount.h>

#include "../support/store_fixture.h"

static atomic_size_t changes_seen;

static void count_changes(void *ctx, const struct change *changes, size_t n)
{
    (void)ctx;
    (void)changes;
    atomic_fetch_add(&changes_seen, n);
}

/* The database in a file system of its own, in a mount namespace that ends with us. */
static int setup_disk(void **state, const char *mount_options)
{
    struct fixture *f = fixture_new();
    *state = f;
    f->options.changed = count_changes;
    atomic_store(&changes_seen, 0);
    char dir[80];
    snprintf(dir, sizeof(dir), "%s/small", f->dir);
    if (mkdir(dir, 0700) != 0 || unshare(CLONE_NEWNS) != 0 ||
        mount("none", "/", "none", MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("small", dir, "tmpfs", 0, mount_options) != 0) {
        f->options.path = NULL; /* not privileged */
        return 0;
    }
    snprintf(f->path, sizeof(f->path), "%s/small/lh.db", f->dir);
    fixture_open(f);
    return 0;
}

/* Too small for a reserve. */
static int setup_small_disk(void **state)
{
    return setup_disk(state, "size=1m,mode=0700");
}

static int setup_larger_disk(void **state)
{
    return setup_disk(state, "size=32m,mode=0700");
}

static int teardown_disk(void **state)
{
    struct fixture *f = *state;
    char dir[80];
    snprintf(dir, sizeof(dir), "%s/small", f->dir);
    store_close(f->store);
    f->store = NULL;
    if (f->options.path != NULL) {
        umount2(dir, MNT_DETACH);
    }
    fixture_free(f);
    return 0;
}

static void ballast_path(struct fixture *f, char ret[static 100])
{
    snprintf(ret, 100, "%s/small/ballast", f->dir);
}

static void fill_disk(struct fixture *f)
{
    char path[100], block[4096];
    ballast_path(f, path);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    memset(block, 0, sizeof(block));
    while (write(fd, block, sizeof(block)) > 0) {
    }
    assert_int_equal(errno, ENOSPC);
    close(fd);
}

static void free_disk(struct fixture *f)
{
    char path[100];
    ballast_path(f, path);
    assert_int_equal(unlink(path), 0);
}

static int add_rows(struct store_tx *tx, void *arg, struct err *e)
{
    char detail[1000];
    memset(detail, 'd', sizeof(detail));
    detail[sizeof(detail) - 1] = '\0';
    store_emit(tx, &(struct change){.kind = CHANGE_API_KEY});
    for (int i = 0; i < *(int *)arg; i++) {
        struct audit_entry a = fixture_audit_entry("row");
        a.detail = detail;
        if (store_audit(tx, &a, e) != 0) {
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

static void assert_rows(struct fixture *f, int64_t n)
{
    int64_t audit[2];
    fixture_read(f, verify_audit, audit);
    assert_int_equal(audit[0], n);
    assert_int_equal(audit[1], 0);
}

static void assert_refused(struct fixture *f)
{
    struct err e;
    int few = 10;
    assert_int_equal(store_write(f->store, add_rows, &few, &e), -1);
    assert_int_equal(e.code, ERR_STORAGE_FULL);
}

static void write_ends(struct fixture *f, int n)
{
    struct err e;
    int few = 10;
    for (int i = 0; i < n; i++) {
        if (store_write_end(f->store, add_rows, &few, &e) != 0) {
            fail_msg("store_write_end %d: %s", i, e.msg);
        }
    }
}

static void skip_unless_mounted(struct fixture *f)
{
    if (f->options.path == NULL) {
        skip();
    }
}

static void a_full_disk_is_told_and_outlived(void **state)
{
    struct fixture *f = *state;
    struct err e;
    int few = 10, many = 100;
    skip_unless_mounted(f);
    fixture_write(f, add_rows, &few);
    fill_disk(f);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(store_write(f->store, add_rows, &many, &e), -1);
        assert_int_equal(e.code, ERR_STORAGE_FULL);
    }
    assert_rows(f, 10); /* reads go on, and nothing of a refused write is there */
    assert_int_equal(atomic_load(&changes_seen), 1);
    free_disk(f);
    fixture_write(f, add_rows, &few);
    assert_int_equal(atomic_load(&changes_seen), 2);
    assert_rows(f, 20);
    fixture_reopen(f);
    assert_rows(f, 20);
}

/* Larger than SQLite's page cache would hold back: the disk fills in the middle of the write. */
static void a_write_that_fills_the_disk_itself_leaves_nothing(void **state)
{
    struct fixture *f = *state;
    struct err e;
    int few = 10, too_many = 30000;
    skip_unless_mounted(f);
    fixture_write(f, add_rows, &few);
    assert_int_equal(store_write(f->store, add_rows, &too_many, &e), -1);
    assert_int_equal(e.code, ERR_STORAGE_FULL);
    assert_rows(f, 10);
    fixture_write(f, add_rows, &few);
    assert_rows(f, 20);
}

static void what_ends_goes_on_when_the_disk_is_full(void **state)
{
    struct fixture *f = *state;
    int few = 10;
    skip_unless_mounted(f);
    fixture_write(f, add_rows, &few);
    fill_disk(f);
    assert_refused(f);
    write_ends(f, 50);
    fixture_reopen(f);
    assert_refused(f);
    write_ends(f, 50);
    assert_refused(f);
    assert_rows(f, 1010);
    free_disk(f);
    fixture_write(f, add_rows, &few);
    assert_rows(f, 1020);
    assert_true(fixture_log_has(f, "store_reserve_short"));
    assert_true(fixture_log_has(f, "store_reserve_whole"));
}

static void a_log_that_fills_the_disk_gives_it_back(void **state)
{
    a_write_that_fills_the_disk_itself_leaves_nothing(state);
    assert_false(fixture_log_has(*state, "store_without_reserve"));
}

int main(void)
{
#define T(f)        cmocka_unit_test_setup_teardown(f, setup_small_disk, teardown_disk)
#define T_LARGER(f) cmocka_unit_test_setup_teardown(f, setup_larger_disk, teardown_disk)
    const struct CMUnitTest tests[] = {
        T(a_full_disk_is_told_and_outlived),
        T(a_write_that_fills_the_disk_itself_leaves_nothing),
        T_LARGER(what_ends_goes_on_when_the_disk_is_full),
        T_LARGER(a_log_that_fills_the_disk_gives_it_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
