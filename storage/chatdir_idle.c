/* Files that nobody has used for long: found, and moved out of the way. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "chatdir_walk.h"
#include "leasehold/chatdir.h"

static int64_t time_ms(const struct timespec *t)
{
    return t->tv_sec * 1000 + t->tv_nsec / 1000000;
}

/* By ctime as well, which nobody can set back: a copy with its times kept is still new here. */
static int64_t used_at(const struct stat *st)
{
    int64_t a = time_ms(&st->st_atim), m = time_ms(&st->st_mtim), c = time_ms(&st->st_ctim);
    int64_t am = a > m ? a : m;
    return am > c ? am : c;
}

static int look_at(void *ctx, const struct chatdir_entry *f, struct err *e)
{
    const struct chatdir_idle *idle = ctx;
    int64_t at = used_at(f->st);
    if (at >= idle->before_ms) {
        return 0;
    }
    return idle->file(
        idle->ctx,
        &(struct chatdir_file){.dir = f->dir,
                               .name = f->name,
                               .is_top = f->depth == 0,
                               .used_at = at,
                               .size_bytes = chatdir_size_shown(f->st->st_size),
                               .ctime_ns = (int64_t)f->st->st_ctim.tv_sec * 1000000000 +
                                           f->st->st_ctim.tv_nsec,
                               .is_last_name = f->st->st_nlink == 1},
        e);
}

int chatdir_each_idle(const char *root, const struct id *user_id, const struct id *chat_id,
                      const struct chatdir_idle *idle, struct err *e)
{
    char path[4096];
    const struct chatdir_visitor v = {.file = look_at, .ctx = (void *)(uintptr_t)idle};
    bool over;
    if ((size_t)snprintf(path, sizeof(path), "%s/%s/chats/%s/files", root, ID_STR(user_id),
                         ID_STR(chat_id)) >= sizeof(path)) {
        return err_set(e, ERR_INTERNAL, "the path of the workspace root is too long");
    }
    return chatdir_walk(path, &v, &over, e);
}

/* --- there and back --------------------------------------------------------------------------- */

#define HELD_NAME "file"

/* Under a name that no removal sweeps, as long as it may have to go back. */
#define BOX_PREFIX "held."
#define BOX_TEXT   (sizeof(BOX_PREFIX) + ID_TEXT)

static void box_name(const struct chatdir_held *h, char ret[static BOX_TEXT])
{
    snprintf(ret, BOX_TEXT, BOX_PREFIX "%s", ID_STR(&h->box));
}

static void held_done(struct chatdir_held *h)
{
    if (h->dir >= 0) {
        close(h->dir);
    }
    if (h->top >= 0) {
        close(h->top);
    }
    free(h->name);
    *h = (struct chatdir_held){.dir = -1, .top = -1};
}

static int open_box(struct chatdir_held *h, bool make)
{
    char name[BOX_TEXT];
    box_name(h, name);
    if (make && mkdirat(h->top, name, 0700) != 0) {
        return -1;
    }
    int fd = openat(h->top, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && fsync(h->top) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static int move_in(struct chatdir_held *h)
{
    int box = open_box(h, true);
    if (box < 0) {
        return -1;
    }
    int rc = renameat2(h->dir, h->name, box, HELD_NAME, RENAME_NOREPLACE);
    int sys = errno;
    if (rc == 0 && (fsync(box) != 0 || fsync(h->dir) != 0)) {
        sys = errno;
        rc = -1;
        (void)!renameat2(box, HELD_NAME, h->dir, h->name, RENAME_NOREPLACE);
    }
    close(box);
    errno = sys;
    return rc;
}

int chatdir_quarantine_file(const char *quarantine, const struct chatdir_file *f,
                            struct chatdir_held *ret, struct err *e)
{
    struct chatdir_held h = {.dir = fcntl(f->dir, F_DUPFD_CLOEXEC, 0),
                             .top = open(quarantine, O_RDONLY | O_DIRECTORY | O_CLOEXEC),
                             .name = strdup(f->name)};
    id_random(&h.box);
    if (h.dir < 0 || h.top < 0 || h.name == NULL || move_in(&h) != 0) {
        int sys = errno;
        held_done(&h);
        return err_sys(e, ERR_INTERNAL, sys, "move a file into the quarantine");
    }
    *ret = h;
    return 0;
}

int chatdir_restore_file(struct chatdir_held *h, struct err *e)
{
    int box = open_box(h, false);
    int rc = box >= 0 ? renameat2(box, HELD_NAME, h->dir, h->name, RENAME_NOREPLACE) : -1;
    if (rc == 0) {
        rc = fsync(h->dir);
    }
    int sys = errno;
    if (box >= 0) {
        char name[BOX_TEXT];
        box_name(h, name);
        close(box);
        (void)!unlinkat(h->top, name, AT_REMOVEDIR);
    }
    held_done(h);
    return rc == 0 ? 0 : err_sys(e, ERR_INTERNAL, sys, "move a file back from the quarantine");
}

void chatdir_forget_file(struct chatdir_held *h)
{
    char name[BOX_TEXT];
    box_name(h, name);
    (void)!renameat(h->top, name, h->top, ID_STR(&h->box)); /* else it stays there */
    held_done(h);
}

size_t chatdir_count_held(const char *quarantine)
{
    DIR *d = opendir(quarantine);
    struct dirent *entry;
    size_t n = 0;
    while (d != NULL && (entry = readdir(d)) != NULL) {
        n += strncmp(entry->d_name, BOX_PREFIX, sizeof(BOX_PREFIX) - 1) == 0;
    }
    if (d != NULL) {
        closedir(d);
    }
    return n;
}
