/* How much the files and histories of a workspace take. */
#include "leasehold/chatdir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <uthash.h>

/* What an agent may make us look at in one walk. */
#define ENTRIES_MAX 2000000

/* A directory still to be looked into, by its path below the workspace. */
struct todo {
    struct todo *next;
    char path[];
};

struct inode {
    struct {
        dev_t dev;
        ino_t ino;
    } key;
    UT_hash_handle hh;
};

struct walk {
    int root; /* the workspace's chats/ */
    struct todo *todo;
    struct inode *seen; /* of files with several names */
    int64_t bytes;
    size_t entries;
};

static int no_memory(struct err *e)
{
    return err_set(e, ERR_INTERNAL, "no memory to count a workspace");
}

static int push(struct walk *w, const char *parent, const char *name, struct err *e)
{
    size_t size = strlen(parent) + strlen(name) + 2;
    struct todo *t = malloc(sizeof(*t) + size);
    if (t == NULL) {
        return no_memory(e);
    }
    snprintf(t->path, size, "%s%s%s", parent, *parent != '\0' ? "/" : "", name);
    t->next = w->todo;
    w->todo = t;
    return 0;
}

/* Counted already under another name? */
static int note_inode(struct walk *w, const struct stat *st, bool *ret_seen, struct err *e)
{
    struct inode *i = calloc(1, sizeof(*i)), *old;
    if (i == NULL) {
        return no_memory(e);
    }
    i->key.dev = st->st_dev;
    i->key.ino = st->st_ino;
    HASH_FIND(hh, w->seen, &i->key, sizeof(i->key), old);
    *ret_seen = old != NULL;
    if (old != NULL) {
        free(i);
    } else {
        HASH_ADD(hh, w->seen, key, sizeof(i->key), i);
    }
    return 0;
}

/* SQLite's own, beside history.db while it is open: <chat>/history.db-wal. */
static bool is_passing(const char *parent, const char *name)
{
    return strchr(parent, '/') == NULL && strncmp(name, "history.db-", 11) == 0;
}

static int count(struct walk *w, int dir, const char *parent, const char *name, struct err *e)
{
    struct stat st;
    bool seen = false;
    if (++w->entries > ENTRIES_MAX) {
        return err_set(e, ERR_BUSY, "the workspace holds more files than can be counted at once");
    }
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        return 0; /* an agent has removed it just now */
    }
    if (S_ISDIR(st.st_mode)) {
        return push(w, parent, name, e);
    }
    if (!S_ISREG(st.st_mode) || is_passing(parent, name)) {
        return 0;
    }
    if (st.st_nlink > 1 && note_inode(w, &st, &seen, e) != 0) {
        return -1;
    }
    w->bytes += seen ? 0 : st.st_size;
    return 0;
}

/* Beneath the workspace whatever an agent renames and links meanwhile. */
static DIR *open_below(const struct walk *w, const char *path)
{
    struct open_how how = {
        .flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };
    int fd = (int)syscall(SYS_openat2, w->root, *path != '\0' ? path : ".", &how, sizeof(how));
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (d == NULL && fd >= 0) {
        close(fd);
    }
    return d;
}

static int walk_dir(struct walk *w, const char *path, struct err *e)
{
    DIR *d = open_below(w, path);
    if (d == NULL) {
        /* Gone or replaced meanwhile is no fault; a path that is too long would be left out. */
        return errno == ENAMETOOLONG || errno == EMFILE || errno == ENOMEM
                   ? err_sys(e, ERR_BUSY, errno, "a directory of the workspace cannot be counted")
                   : 0;
    }
    struct dirent *entry;
    int rc = 0;
    while (rc == 0 && (entry = readdir(d)) != NULL) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            rc = count(w, dirfd(d), path, entry->d_name, e);
        }
    }
    closedir(d);
    return rc;
}

static void walk_done(struct walk *w)
{
    struct inode *i, *next;
    HASH_ITER (hh, w->seen, i, next) {
        /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): the first has no predecessor */
        HASH_DEL(w->seen, i);
        free(i);
    }
    while (w->todo != NULL) {
        struct todo *t = w->todo;
        w->todo = t->next;
        free(t);
    }
}

int chatdir_usage(const char *root, const struct id *user_id, int64_t *ret_bytes, struct err *e)
{
    char path[4096];
    struct walk w = {0};
    if ((size_t)snprintf(path, sizeof(path), "%s/%s/chats", root, ID_STR(user_id)) >=
        sizeof(path)) {
        return err_set(e, ERR_INTERNAL, "the path of the workspace root is too long");
    }
    w.root = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (w.root < 0) {
        if (errno != ENOENT) {
            return err_sys(e, ERR_INTERNAL, errno, "cannot open a workspace");
        }
        *ret_bytes = 0; /* no chat was made yet */
        return 0;
    }
    int rc = push(&w, "", "", e);
    while (rc == 0 && w.todo != NULL) {
        struct todo *t = w.todo;
        w.todo = t->next;
        rc = walk_dir(&w, t->path, e);
        free(t);
    }
    walk_done(&w);
    close(w.root);
    if (rc == 0) {
        *ret_bytes = w.bytes;
    }
    return rc;
}
