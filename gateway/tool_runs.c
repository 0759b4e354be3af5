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
#define OPEN_MAX 256 /* runs that have no end yet; no sandbox has so many at once */

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

struct open_run {
    off_t at; /* in the file */
    struct tool_record begun;
};

struct taking {
    struct services *s;
    struct id session_id;
    struct sandbox row;
    bool over; /* the session is */
    struct tool_record records[BATCH];
    size_t n;
    struct open_run open[OPEN_MAX];
    size_t open_n;
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

static const char *const how_words[TOOL_HOWS] = {
    [TOOL_TIMED_OUT] = "timed out", [TOOL_LEFT] = "left", [TOOL_CUT] = "cut"};

/* When it began tells the runs of a tool apart. */
static void detail_of(const struct tool_record *r, char *ret, size_t size)
{
    char at[TIME_TEXT];

    time_format(r->what == TOOL_OVER ? r->begun_ms : r->at_ms, at);
    if (r->what == TOOL_BEGUN)
        snprintf(ret, size, "%s", at);
    else if (r->how == TOOL_SIGNALED)
        snprintf(ret, size, "%s signal %d", at, r->sig);
    else if (r->how == TOOL_TIMED_OUT || r->how == TOOL_LEFT || r->how == TOOL_CUT)
        snprintf(ret, size, "%s %s", at, how_words[r->how]);
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

/* --- runs without an end ------------------------------------------------------------------------- */

/*
 * Of what was taken in the file keeps the beginnings whose ends it does not have, so that each can be told
 * its end when nothing can write it any more. A beginning is struck out when its end is there: what is left
 * of them is what is open, whoever reads the file next.
 */
static void open_add(struct taking *t, const struct tool_record *r, off_t at)
{
    if (r->what == TOOL_BEGUN && t->open_n < OPEN_MAX)
        t->open[t->open_n++] = (struct open_run){.at = at, .begun = *r};
}

static int strike_out(int fd, const struct open_run *run, struct err *e)
{
    struct tool_record r = run->begun;

    r.what = 0;
    return pwrite(fd, &r, sizeof r, run->at) == (ssize_t)sizeof r
               ? 0
               : err_sys(e, ERR_INTERNAL, errno, "note the end of a tool's run");
}

static bool is_end_of(const struct tool_record *end, const struct tool_record *begun)
{
    return (end->begun_ms == begun->at_ms || end->begun_ms == 0) &&
           strncmp(end->name, begun->name, sizeof end->name) == 0;
}

static int open_end(struct taking *t, int fd, const struct tool_record *end, struct err *e)
{
    for (size_t i = 0; end->what == TOOL_OVER && i < t->open_n; i++) {
        if (!is_end_of(end, &t->open[i].begun))
            continue;
        if (strike_out(fd, &t->open[i], e))
            return -1;
        t->open[i] = t->open[--t->open_n];
        break;
    }
    return 0;
}

/* What the last batch began and ended; it stands at `at`. */
static int open_note(struct taking *t, int fd, off_t at, struct err *e)
{
    for (size_t i = 0; i < t->n; i++) {
        open_add(t, &t->records[i], at + (off_t)(i * sizeof *t->records));
        if (open_end(t, fd, &t->records[i], e))
            return -1;
    }
    return 0;
}

/* Those of what was taken in before. */
static int open_find(struct taking *t, int fd, off_t until, struct err *e)
{
    ssize_t n = 0;

    for (off_t at = 0; at < until && (at = lseek(fd, at, SEEK_DATA)) >= 0 && at < until; at += n) {
        at -= at % (off_t)sizeof *t->records;
        n = pread(fd, t->records, sizeof t->records, at);
        if (n < (ssize_t)sizeof *t->records)
            return n < 0 ? err_sys(e, ERR_INTERNAL, errno, "read the file of tool runs") : 0;
        n -= n % (ssize_t)sizeof *t->records;
        for (ssize_t i = 0; i < n && at + i < until; i += (ssize_t)sizeof *t->records)
            open_add(t, &t->records[(size_t)i / sizeof *t->records], at + i);
    }
    return 0;
}

/* Nothing is left that could end them. */
static int open_cut(struct taking *t, int fd, struct err *e)
{
    while (t->open_n > 0) {
        size_t n = t->open_n < BATCH ? t->open_n : BATCH;
        const struct open_run *last = &t->open[t->open_n - n];

        for (t->n = 0; t->n < n; t->n++) {
            struct tool_record *r = &t->records[t->n];

            *r = last[t->n].begun;
            r->begun_ms = r->at_ms;
            r->what = TOOL_OVER;
            r->how = TOOL_CUT;
        }
        if (take_batch(t, e))
            return -1;
        for (size_t i = 0; i < n; i++)
            if (strike_out(fd, &last[i], e))
                return -1;
        t->open_n -= n;
    }
    return 0;
}

/* The first block behind `from` that one of them stands in. */
static off_t open_block(const struct taking *t, off_t from, off_t whole)
{
    off_t first = whole;

    for (size_t i = 0; i < t->open_n; i++) {
        off_t block = t->open[i].at - t->open[i].at % PUNCH_BY;

        if (block >= from && block < first)
            first = block;
    }
    return first;
}

/* Frees what was taken in, where the file system can: the other end goes by the blocks. */
static void set_free(const struct taking *t, int fd, off_t at)
{
    off_t whole = at - at % PUNCH_BY, until;

    for (off_t from = 0; from < whole; from = until + PUNCH_BY) {
        until = open_block(t, from, whole);
        if (until > from)
            (void)!fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, from, until - from);
    }
}

/* --- the whole --------------------------------------------------------------------------------- */

/* What runs tools was started anew: of what it finds open nothing runs. Cuts use the room of the records, so
 * that one stands first in what is read then. */
static bool begins_anew(const struct taking *t)
{
    return t->records[0].what == TOOL_IS_READY && t->open_n > 0;
}

static void tell_anew(const struct taking *t, off_t at)
{
    if (at > 0 && t->records[0].what == TOOL_IS_READY)
        log_event(t->s->log, LOG_WARNING, "user_tools_restarted",
                  LF_ID("session_id", &t->session_id));
}

/* Up to where the next one says that it is ready. */
static size_t records_of_one(const struct taking *t, size_t n)
{
    size_t i = 1;

    while (i < n && t->records[i].what != TOOL_IS_READY)
        i++;
    return i;
}

static int take_all(struct taking *t, int fd, int mark_fd, off_t at, struct err *e)
{
    ssize_t n;

    while ((n = pread(fd, t->records, sizeof t->records, at)) >= (ssize_t)sizeof *t->records) {
        if (begins_anew(t)) {
            if (open_cut(t, fd, e))
                return -1;
            continue;
        }
        t->n = records_of_one(t, (size_t)n / sizeof *t->records);
        if (take_batch(t, e) || open_note(t, fd, at, e) ||
            mark_write(mark_fd, at + (off_t)(t->n * sizeof *t->records), e))
            return -1;
        tell_anew(t, at); /* once: what is refused until here is read again */
        at += (off_t)(t->n * sizeof *t->records);
    }
    set_free(t, fd, at);
    return n < 0 ? err_sys(e, ERR_INTERNAL, errno, "read the file of tool runs") : 0;
}

static int take_marked(struct taking *t, int fd, const char *mark_path, bool gone, struct err *e)
{
    off_t at;
    int mark_fd = mark_open(mark_path, &at, e), rc;

    if (mark_fd < 0)
        return -1;
    rc = open_find(t, fd, at, e) || take_all(t, fd, mark_fd, at, e) || (gone && open_cut(t, fd, e))
             ? -1
             : 0;
    close(mark_fd);
    return rc;
}

/* The supervisor writes it when all that ran there has ended, and is not started again: what is read behind
 * that is the whole. */
static bool is_gone(const struct services *s, const struct id *session_id)
{
    char path[PATH_MAX];

    return (size_t)snprintf(path, sizeof path, "%s/%s/" KEEP_TOOLS_FILE, s->cfg->run_dir,
                            ID_STR(session_id)) < sizeof path &&
           access(path, F_OK) == 0;
}

int tool_runs_take(struct services *s, const struct id *session_id, bool final, struct err *e)
{
    char path[PATH_MAX], mark_path[PATH_MAX];
    struct taking t = {.s = s, .session_id = *session_id};
    bool gone = final || is_gone(s, session_id);
    int fd, rc;

    if (path_of(s, session_id, "", path, sizeof path, e) ||
        path_of(s, session_id, MARKED, mark_path, sizeof mark_path, e))
        return -1;
    fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : err_sys(e, ERR_INTERNAL, errno, "open the file of tool runs");
    rc = store_read(s->store, look, &t, e) || take_marked(&t, fd, mark_path, gone || t.over, e) ? -1
                                                                                                : 0;
    close(fd);
    if (rc || !(final || t.over))
        return rc;
    unlink(path);
    unlink(mark_path);
    return 0;
}
