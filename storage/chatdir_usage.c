/* How much the files and histories of a workspace take. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <uthash.h>

#include "chatdir_walk.h"
#include "leasehold/chatdir.h"

struct inode {
    struct {
        dev_t dev;
        ino_t ino;
    } key;
    UT_hash_handle hh;
};

struct count {
    struct inode *seen; /* of files with several names */
    int64_t bytes, changed_bytes;
    int64_t since_ns;
    size_t chat_depth; /* of the directories that are chats' */
};

/* Counted already under another name? */
static int note_inode(struct count *c, const struct stat *st, bool *ret_seen, struct err *e)
{
    struct inode *i = calloc(1, sizeof(*i)), *old;
    if (i == NULL) {
        return err_set(e, ERR_INTERNAL, "no memory to count a workspace");
    }
    i->key.dev = st->st_dev;
    i->key.ino = st->st_ino;
    HASH_FIND(hh, c->seen, &i->key, sizeof(i->key), old);
    *ret_seen = old != NULL;
    if (old != NULL) {
        free(i);
    } else {
        HASH_ADD(hh, c->seen, key, sizeof(i->key), i);
    }
    return 0;
}

static void count_done(struct count *c)
{
    struct inode *i, *next;
    HASH_ITER (hh, c->seen, i, next) {
        /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): the first has no predecessor */
        HASH_DEL(c->seen, i);
        free(i);
    }
}

/* SQLite's own, beside history.db while it is open: <chat>/history.db-wal. */
static bool is_passing(const struct count *c, const struct chatdir_entry *f)
{
    return f->depth == c->chat_depth && strncmp(f->name, "history.db-", 11) == 0;
}

/* Some file systems take sizes of which two are more than a sum can hold. */
static void add_size(int64_t *sum, int64_t size)
{
    *sum = size > CHATDIR_USAGE_MAX - *sum ? CHATDIR_USAGE_MAX : *sum + size;
}

static int count_file(void *ctx, const struct chatdir_entry *f, struct err *e)
{
    struct count *c = ctx;
    bool seen = false;
    if (is_passing(c, f)) {
        return 0;
    }
    if (f->st->st_nlink > 1 && note_inode(c, f->st, &seen, e) != 0) {
        return -1;
    }
    if (seen) {
        return 0;
    }
    add_size(&c->bytes, f->st->st_size);
    /* Beside files/ stands only what the gateway writes itself. */
    int64_t ctime_ns = (int64_t)f->st->st_ctim.tv_sec * 1000000000 + f->st->st_ctim.tv_nsec;
    if (f->depth > c->chat_depth && ctime_ns >= c->since_ns) {
        add_size(&c->changed_bytes, f->st->st_size);
    }
    return 0;
}

static int count_below(const char *path, size_t chat_depth, int64_t since_ns,
                       struct chatdir_usage *ret, struct err *e)
{
    struct count c = {.chat_depth = chat_depth, .since_ns = since_ns};
    struct timespec begun; /* by the clock that files are stamped with */
    clock_gettime(CLOCK_REALTIME_COARSE, &begun);
    const struct chatdir_visitor v = {.file = count_file, .ctx = &c};
    bool over;
    int rc = chatdir_walk(path, &v, &over, e);
    count_done(&c);
    *ret = (struct chatdir_usage){.bytes = c.bytes,
                                  .changed_bytes = c.changed_bytes,
                                  .begun_ns = (int64_t)begun.tv_sec * 1000000000 + begun.tv_nsec,
                                  .partial = over};
    return rc;
}

static int too_long(struct err *e)
{
    return err_set(e, ERR_INTERNAL, "the path of the workspace root is too long");
}

int chatdir_usage(const char *root, const struct id *user_id, struct chatdir_usage *ret,
                  struct err *e)
{
    char path[4096];
    if ((size_t)snprintf(path, sizeof(path), "%s/%s/chats", root, ID_STR(user_id)) >=
        sizeof(path)) {
        return too_long(e);
    }
    return count_below(path, 1, 0, ret, e);
}

int chatdir_chat_usage(const char *root, const struct id *user_id, const struct id *chat_id,
                       int64_t since_ns, struct chatdir_usage *ret, struct err *e)
{
    char path[4096];
    if ((size_t)snprintf(path, sizeof(path), "%s/%s/chats/%s", root, ID_STR(user_id),
                         ID_STR(chat_id)) >= sizeof(path)) {
        return too_long(e);
    }
    return count_below(path, 0, since_ns, ret, e);
}
