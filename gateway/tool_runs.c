#include "tool_runs.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "leasehold/tool_link.h"
#include "meters.h"

#define BATCH    64    /* records in one transaction */
#define MARKED   ".at" /* the name of the file that says how many bytes are taken in */
#define PUNCH_BY 4096
#define DETAIL   (TIME_TEXT + 16)

static int path_of(const struct services *s, const struct id *session_id, const char *suffix,
                   char *ret, size_t size, struct err *e)
{
    char dir[PATH_MAX];

    if ((size_t)snprintf(dir, sizeof dir, "%s/" TOOL_RUNS_DIR, s->cfg->storage.data_dir) >=
        sizeof dir)
        return err_set(e, ERR_INTERNAL, "storage.data_dir is too long a path");
    if ((size_t)snprintf(ret, size, "%s/%s%s", dir, ID_STR(session_id), suffix) >= size)
        return err_set(e, ERR_INTERNAL, "storage.data_dir is too long a path");
    return 0;
}

/* --- the file ---------------------------------------------------------------------------------- */

/* What is mounted has no symlink in its path. */
static int resolve_dir(const struct services *s, char ret[static PATH_MAX], struct err *e)
{
    char dir[PATH_MAX];

    if ((size_t)snprintf(dir, sizeof dir, "%s/" TOOL_RUNS_DIR, s->cfg->storage.data_dir) >=
        sizeof dir)
        return err_set(e, ERR_INTERNAL, "storage.data_dir is too long a path");
    if ((mkdir(dir, 0700) && errno != EEXIST) || !realpath(dir, ret))
        return err_sys(e, ERR_INTERNAL, errno, "make the directory of tool runs");
    return 0;
}

int tool_runs_make(const struct services *s, const struct id *session_id, char *ret, size_t size,
                   struct err *e)
{
    char dir[PATH_MAX];
    int fd;

    if (resolve_dir(s, dir, e))
        return -1;
    if ((size_t)snprintf(ret, size, "%s/%s", dir, ID_STR(session_id)) >= size)
        return err_set(e, ERR_INTERNAL, "storage.data_dir is too long a path");
    fd = open(ret, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_sys(e, ERR_INTERNAL, errno, "make the file of tool runs");
    close(fd);
    return 0;
}

bool tool_runs_exist(const struct services *s, const struct id *session_id)
{
    char path[PATH_MAX];
    struct err e;

    return !path_of(s, session_id, "", path, sizeof path, &e) && !access(path, F_OK);
}

/* --- how far we are ---------------------------------------------------------------------------- */

#define MARK 21 /* bytes of the mark: a number of 20 digits and a line feed */

static int mark_write(int fd, off_t at, struct err *e)
{
    char text[MARK + 1];

    snprintf(text, sizeof text, "%020lld\n", (long long)at);
    return pwrite(fd, text, MARK, 0) == MARK
               ? 0
               : err_sys(e, ERR_INTERNAL, errno, "note how many tool runs are told");
}

/* Written before anything is told: on a full disk nothing is told again and again, because there later
 * writes are in their place. */
static int mark_open(const char *path, off_t *ret_at, struct err *e)
{
    char text[MARK + 1] = "";
    int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);

    if (fd < 0)
        return err_sys(e, ERR_INTERNAL, errno, "open how many tool runs are told");
    *ret_at = 0;
    if (pread(fd, text, MARK, 0) == MARK)
        *ret_at = (off_t)strtoll(text, NULL, 10);
    if (!mark_write(fd, *ret_at, e))
        return fd;
    close(fd);
    return -1;
}

/* --- records ----------------------------------------------------------------------------------- */

struct taking {
    struct services *s;
    struct id session_id;
    struct sandbox row;
    bool over; /* the session is */
    struct tool_record records[BATCH];
    size_t n;
};

static int look(struct store_tx *tx, void *arg, struct err *e)
{
    struct taking *t = arg;

    t->row.session_id = t->session_id;
    if (!store_sandbox_get(tx, &t->session_id, &t->row, e)) {
        t->over = t->row.status == SANDBOX_STOPPED || t->row.status == SANDBOX_FAILED;
        return 0;
    }
    t->over = e->code == ERR_NOT_FOUND;
    return t->over ? 0 : -1;
}

static bool is_told(const struct tool_record *r)
{
    return r->what == TOOL_BEGUN || (r->what == TOOL_OVER && r->begun_ms != 0);
}

/* When it began tells the runs of a tool apart. */
static void detail_of(const struct tool_record *r, char *ret, size_t size)
{
    char at[TIME_TEXT];

    time_format(r->what == TOOL_OVER ? r->begun_ms : r->at_ms, at);
    if (r->what == TOOL_BEGUN)
        snprintf(ret, size, "%s", at);
    else if (r->how == TOOL_SIGNALED)
        snprintf(ret, size, "%s signal %d", at, r->sig);
    else if (r->how == TOOL_TIMED_OUT || r->how == TOOL_LEFT)
        snprintf(ret, size, "%s %s", at, r->how == TOOL_LEFT ? "left" : "timed out");
    else
        snprintf(ret, size, "%s exit %d", at, r->code);
}

static int audit_run(struct store_tx *tx, const struct taking *t, const struct tool_record *r,
                     struct err *e)
{
    char actor[sizeof "door:" + ID_TEXT], detail[DETAIL];
    bool over = r->what == TOOL_OVER;

    snprintf(actor, sizeof actor, "door:%s", ID_STR(&t->session_id));
    detail_of(r, detail, sizeof detail);
    return store_audit_deed(
        tx,
        &(struct audit_deed){.actor = actor,
                             .action = over ? "tool.end" : "tool.run",
                             .kind = "tool",
                             .name = r->name,
                             .within = &t->session_id,
                             .outcome = over && r->how != TOOL_OK ? "failed" : NULL,
                             .detail = detail},
        e);
}

static int audit_rows(struct store_tx *tx, void *arg, struct err *e)
{
    struct taking *t = arg;

    for (size_t i = 0; i < t->n; i++)
        if (is_told(&t->records[i]) && audit_run(tx, t, &t->records[i], e))
            return -1;
    return 0;
}

static void count(struct taking *t)
{
    for (size_t i = 0; i < t->n; i++) {
        const struct tool_record *r = &t->records[i];

        if (r->what == TOOL_OVER && r->how < TOOL_HOWS)
            metric_add(meter(t->s->meters, METER_TOOL_RUNS), r->how, 0, 1);
    }
}

static int take_batch(struct taking *t, struct err *e)
{
    bool any = false;

    for (size_t i = 0; i < t->n; i++) {
        t->records[i].name[sizeof t->records[i].name - 1] = '\0';
        any |= is_told(&t->records[i]);
    }
    if (any && store_write(t->s->store, audit_rows, t, e))
        return -1;
    count(t);
    return 0;
}

/* Frees what was taken in, where the file system can: the other end goes by the blocks. */
static void set_free(int fd, off_t at)
{
    off_t whole = at - at % PUNCH_BY;

    if (whole > 0)
        (void)!fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, whole);
}

static int take_all(struct taking *t, int fd, int mark_fd, off_t at, struct err *e)
{
    ssize_t n;

    while ((n = pread(fd, t->records, sizeof t->records, at)) >= (ssize_t)sizeof *t->records) {
        t->n = (size_t)n / sizeof *t->records;
        at += (off_t)(t->n * sizeof *t->records);
        if (take_batch(t, e) || mark_write(mark_fd, at, e))
            return -1;
    }
    set_free(fd, at);
    return n < 0 ? err_sys(e, ERR_INTERNAL, errno, "read the file of tool runs") : 0;
}

static int take_marked(struct taking *t, int fd, const char *mark_path, struct err *e)
{
    off_t at;
    int mark_fd = mark_open(mark_path, &at, e), rc;

    if (mark_fd < 0)
        return -1;
    rc = take_all(t, fd, mark_fd, at, e);
    close(mark_fd);
    return rc;
}

int tool_runs_take(struct services *s, const struct id *session_id, bool final, struct err *e)
{
    char path[PATH_MAX], mark_path[PATH_MAX];
    struct taking t = {.s = s, .session_id = *session_id};
    int fd, rc;

    if (path_of(s, session_id, "", path, sizeof path, e) ||
        path_of(s, session_id, MARKED, mark_path, sizeof mark_path, e))
        return -1;
    fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : err_sys(e, ERR_INTERNAL, errno, "open the file of tool runs");
    rc = store_read(s->store, look, &t, e) || take_marked(&t, fd, mark_path, e) ? -1 : 0;
    close(fd);
    if (rc || !(final || t.over))
        return rc;
    unlink(path);
    unlink(mark_path);
    return 0;
}
