/*
 * Reading keep.log while leasekeep writes it. It is two files: at a rotation keep.log becomes
 * keep.log.old and a new one is begun. A reader holds the file it reads by its descriptor, so two rotations
 * take nothing from it; one that is further behind goes on with what is kept, and says so. It knows by the
 * files' numbers, which are second names of them.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "local_keep.h"

#define MARK_SLACK_MS 100 /* leasekeep's, between two marks */

struct keep_log {
    struct engine_log base;
    char *run_path;
    int fd[2]; /* the old file, or -1, and the new one */
    int at;    /* which one is read */
    off_t pos;
    int64_t number;  /* of the new one; NO_NUMBER: not known */
    const char *say; /* before anything else */
};

#define NO_NUMBER INT64_C(-1)

static const char gap_text[] = "\nleasehold: the agent said more than is kept before it could be "
                               "read: a part is missing here\n";

/* --- files ------------------------------------------------------------------------------------- */

static int open_file(const char *run_path, const char *name)
{
    char path[PATH_MAX];

    return keep_path(run_path, name, path, sizeof path) < 0
               ? -1
               : open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
}

static bool same_file(int a, int b)
{
    struct stat x, y;

    return a >= 0 && b >= 0 && !fstat(a, &x) && !fstat(b, &y) && x.st_ino == y.st_ino;
}

static off_t size_of(int fd)
{
    struct stat st;

    return fd >= 0 && !fstat(fd, &st) ? st.st_size : 0;
}

/* The new one first: when it is renamed meanwhile it is found again as the old one, and read once. */
static int open_both(struct keep_log *l)
{
    l->fd[1] = open_file(l->run_path, KEEP_LOG_FILE);
    l->fd[0] = open_file(l->run_path, KEEP_LOG_FILE KEEP_OLD);
    if (same_file(l->fd[0], l->fd[1])) {
        close(l->fd[0]);
        l->fd[0] = -1;
    }
    l->at = l->fd[0] >= 0 ? 0 : 1;
    return l->fd[1] < 0 ? -1 : 0;
}

/* --- their numbers ----------------------------------------------------------------------------- */

static int open_number(const struct keep_log *l, int64_t number)
{
    char name[64];

    snprintf(name, sizeof name, KEEP_LOG_FILE ".%" PRId64, number);
    return open_file(l->run_path, name);
}

static int64_t number_of_name(const char *name)
{
    static const char prefix[] = KEEP_LOG_FILE ".";
    const char *digits = name + sizeof prefix - 1;

    if (strncmp(name, prefix, sizeof prefix - 1) != 0 || !*digits || strlen(digits) > 10 ||
        strspn(digits, "0123456789") != strlen(digits))
        return NO_NUMBER;
    return strtoll(digits, NULL, 10);
}

static bool has_number(const struct keep_log *l, int64_t number)
{
    int fd = open_number(l, number);
    bool same = same_file(fd, l->fd[1]);

    if (fd >= 0)
        close(fd);
    return same;
}

/* The lowest number above l->number; with `ours`: that of the file which is read. */
static int64_t number_find(const struct keep_log *l, bool ours)
{
    DIR *dir = opendir(l->run_path);
    int64_t found = NO_NUMBER;
    struct dirent *entry;

    while (dir && (entry = readdir(dir))) {
        int64_t number = number_of_name(entry->d_name);

        if (number > l->number && (found < 0 || number < found) && (!ours || has_number(l, number)))
            found = number;
    }
    if (dir)
        closedir(dir);
    return found;
}

/* --- where to begin ---------------------------------------------------------------------------- */

/* The offset of what was written at `since_ms` or later; the file's size if nothing was. */
static off_t offset_since(const char *run_path, const char *times, int fd, int64_t since_ms)
{
    struct keep_mark mark;
    int marks = open_file(run_path, times);
    off_t found = size_of(fd);

    while (marks >= 0 && read(marks, &mark, sizeof mark) == (ssize_t)sizeof mark)
        if (mark.at_ms > since_ms - MARK_SLACK_MS) {
            found = (off_t)mark.offset;
            break;
        }
    if (marks >= 0)
        close(marks);
    return found;
}

static void begin_since(struct keep_log *l, int64_t since_ms)
{
    if (l->at == 0)
        l->pos = offset_since(l->run_path, KEEP_TIMES_FILE KEEP_OLD, l->fd[0], since_ms);
    if (l->at == 1 || l->pos >= size_of(l->fd[0])) {
        l->at = 1;
        l->pos = offset_since(l->run_path, KEEP_TIMES_FILE, l->fd[1], since_ms);
    }
}

/* Calls `each` for every line end from the beginning on; stops when it says so. The place behind the
 * last one it saw, or the end, becomes the beginning. */
static void walk_lines(struct keep_log *l, bool (*each)(void *ctx), void *ctx)
{
    char piece[16384];

    for (;;) {
        ssize_t n = pread(l->fd[l->at], piece, sizeof piece, l->pos);

        for (ssize_t i = 0; i < n; i++)
            if (piece[i] == '\n' && !each(ctx)) {
                l->pos += i + 1;
                return;
            }
        l->pos += n > 0 ? n : 0;
        if (n > 0)
            continue;
        if (l->at == 1)
            return;
        l->at = 1;
        l->pos = 0;
    }
}

static bool count_line(void *ctx)
{
    ++*(int64_t *)ctx;
    return true;
}

static bool skip_line(void *ctx)
{
    return --*(int64_t *)ctx > 0;
}

static bool ends_within_a_line(const struct keep_log *l)
{
    char last;
    off_t size = size_of(l->fd[1]);

    return size > 0 && pread(l->fd[1], &last, 1, size - 1) == 1 && last != '\n';
}

static void begin_tail(struct keep_log *l, int64_t tail)
{
    int at = l->at;
    off_t pos = l->pos;
    int64_t lines = 0, skip;

    walk_lines(l, count_line, &lines);
    skip = lines + ends_within_a_line(l) - tail;
    if (tail == 0)
        return; /* from the end */
    l->at = at;
    l->pos = pos;
    if (skip > 0)
        walk_lines(l, skip_line, &skip);
}

/* --- reading ----------------------------------------------------------------------------------- */

static void go_on_with(struct keep_log *l, int fd)
{
    if (l->fd[l->at] >= 0)
        close(l->fd[l->at]);
    l->fd[l->at] = fd;
    l->pos = 0;
}

static bool moved_on(const struct keep_log *l)
{
    int now = open_file(l->run_path, KEEP_LOG_FILE);
    bool same = same_file(now, l->fd[1]);

    if (now >= 0)
        close(now);
    return now >= 0 && !same;
}

/* The file behind the one that was read, or the first one that is kept yet. */
static bool next_by_number(struct keep_log *l)
{
    int64_t number = l->number + 1;
    int fd = open_number(l, number);

    if (fd < 0 && (number = number_find(l, false)) >= 0)
        fd = open_number(l, number);
    if (fd < 0)
        return false;
    if (number != l->number + 1)
        l->say = gap_text + (ends_within_a_line(l) ? 0 : 1); /* on a line of its own */
    go_on_with(l, fd);
    l->number = number;
    return true;
}

/* Without numbers: keep.log.old, unless that is what was read, or keep.log. */
static bool next_by_name(struct keep_log *l)
{
    int now = open_file(l->run_path, KEEP_LOG_FILE);
    int old = open_file(l->run_path, KEEP_LOG_FILE KEEP_OLD);
    bool takes_old = old >= 0 && !same_file(old, l->fd[1]) && !same_file(old, now);
    int next = takes_old ? old : now, other = takes_old ? now : old;

    if (other >= 0)
        close(other);
    if (next < 0)
        return false;
    go_on_with(l, next);
    l->number = NO_NUMBER;
    l->number = number_find(l, true);
    return true;
}

/* Whether there is a next file: keep.log is no longer the one that was read to its end. */
static bool next_file(struct keep_log *l)
{
    if (l->at == 0) {
        l->at = 1;
        l->pos = 0;
        return true;
    }
    if (!moved_on(l))
        return false;
    if (l->number < 0)
        l->number = number_find(l, true);
    return (l->number >= 0 && next_by_number(l)) || next_by_name(l);
}

/* The end is looked at again behind the look for a next file: what was written between the two. */
static int keep_log_read(struct engine_log *base, char *data, size_t size, size_t *ret_n,
                         struct err *e)
{
    struct keep_log *l = (struct keep_log *)base;
    bool last = false;

    for (;;) {
        if (l->say && *l->say) {
            *ret_n = strnlen(l->say, size);
            memcpy(data, l->say, *ret_n);
            l->say += *ret_n;
            return 0;
        }
        ssize_t n = pread(l->fd[l->at], data, size, l->pos);

        if (n < 0)
            return err_sys(e, ERR_INTERNAL, errno, "read " KEEP_LOG_FILE);
        l->pos += n;
        *ret_n = (size_t)n;
        if (n > 0 || last)
            return 0;
        last = !next_file(l);
    }
}

static void keep_log_free(struct engine_log *base)
{
    struct keep_log *l = (struct keep_log *)base;

    if (!l)
        return;
    for (int i = 0; i < 2; i++)
        if (l->fd[i] >= 0)
            close(l->fd[i]);
    free(l->run_path);
    free(l);
}

static const struct engine_log_vtable keep_log_vtable = {keep_log_read, keep_log_free};

int keep_log_open(const char *run_path, const struct engine_log_from *from, struct engine_log **ret,
                  struct err *e)
{
    struct keep_log *l = calloc(1, sizeof *l);

    if (!l || !(l->run_path = strdup(run_path))) {
        free(l);
        return err_set(e, ERR_INTERNAL, "no memory for a log");
    }
    l->base.v = &keep_log_vtable;
    if (open_both(l) < 0) {
        keep_log_free(&l->base);
        return err_set(e, ERR_NOT_FOUND, "the log of this session is not kept any more");
    }
    l->number = NO_NUMBER;
    l->number = number_find(l, true);
    if (from->since_ms > 0)
        begin_since(l, from->since_ms);
    if (from->tail >= 0)
        begin_tail(l, from->tail);
    *ret = &l->base;
    return 0;
}
