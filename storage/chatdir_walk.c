/* Through what agents have made, without following any of it. */
#include "chatdir_walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What an agent may make us look at, and hold in memory, in one walk. */
#define LOOKS_MAX   2000000
#define PENDING_MAX 250000

/* A directory. Depth first, so that each but the first is entered from the one before or from one
 * above that: by single names and "..", whatever the length of the path. */
struct node {
    struct node *next; /* of those still to be looked into */
    struct node *parent;
    size_t users; /* children, the list, the walk that stands in it */
    size_t depth;
    dev_t dev; /* an agent may have put another in its place */
    ino_t ino;
    char name[];
};

struct walk {
    const struct chatdir_visitor *visitor;
    int root; /* where it begins */
    struct node *todo;
    struct node *at; /* where we stand … */
    int at_fd;       /* … O_PATH */
    size_t looks, pending;
    bool over; /* more than one walk may look at */
};

static int no_memory(struct err *e)
{
    return err_set(e, ERR_INTERNAL, "no memory to walk a workspace");
}

/* --- directories ------------------------------------------------------------------------------ */

static void node_leave(struct node *n)
{
    while (n != NULL && --n->users == 0) {
        struct node *parent = n->parent;
        free(n);
        n = parent;
    }
}

static int push(struct walk *w, struct node *parent, const char *name, const struct stat *st,
                struct err *e)
{
    if (w->pending >= PENDING_MAX) {
        w->over = true;
        return 0;
    }
    size_t size = strlen(name) + 1;
    struct node *n = calloc(1, sizeof(*n) + size);
    if (n == NULL) {
        return no_memory(e);
    }
    memcpy(n->name, name, size);
    n->dev = st->st_dev;
    n->ino = st->st_ino;
    n->users = 1;
    n->parent = parent;
    if (parent != NULL) {
        parent->users++;
        n->depth = parent->depth + 1;
    }
    n->next = w->todo;
    w->todo = n;
    w->pending++;
    return 0;
}

/* Stands in `n` from here on; takes fd. False: it is another directory, or none. */
static bool stand(struct walk *w, struct node *n, int fd)
{
    struct stat st;
    if (fd < 0) {
        return false;
    }
    if (fstat(fd, &st) != 0 || st.st_dev != n->dev || st.st_ino != n->ino) {
        close(fd);
        return false;
    }
    n->users++;
    if (w->at != NULL) {
        close(w->at_fd);
        node_leave(w->at);
    }
    w->at = n;
    w->at_fd = fd;
    return true;
}

/* Links are not followed; the name above is of a directory that was seen there. */
static bool step(struct walk *w, struct node *to, const char *name)
{
    w->looks++;
    return stand(w, to, openat(w->at_fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

static bool to_root(struct walk *w, struct node *root)
{
    return stand(w, root, fcntl(w->root, F_DUPFD_CLOEXEC, 0));
}

/* From the workspace down, as something has been moved. False: not there any more. */
static int descend(struct walk *w, struct node *to, bool *ret_there, struct err *e)
{
    struct node **way = calloc(to->depth + 1, sizeof(struct node *)), *n = to;
    if (way == NULL) {
        return no_memory(e);
    }
    for (size_t i = to->depth + 1; i > 0; i--, n = n->parent) {
        way[i - 1] = n;
    }
    *ret_there = to_root(w, way[0]);
    for (size_t i = 1; *ret_there && i <= to->depth; i++) {
        *ret_there = step(w, way[i], way[i]->name);
    }
    free(way);
    return 0;
}

static int go(struct walk *w, struct node *to, bool *ret_there, struct err *e)
{
    while (w->at != NULL && w->at->depth > to->depth && step(w, w->at->parent, "..")) {
    }
    *ret_there = w->at == to;
    return *ret_there ? 0 : descend(w, to, ret_there, e);
}

/* *ret NULL: gone or replaced meanwhile, which is no fault. */
static int open_node(struct walk *w, struct node *n, DIR **ret, struct err *e)
{
    bool there = true;
    *ret = NULL;
    if (n->parent == NULL) {
        there = to_root(w, n);
    } else if (go(w, n->parent, &there, e) != 0) {
        return -1;
    } else {
        there = there && step(w, n, n->name);
    }
    int fd = there ? openat(w->at_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    *ret = fd >= 0 ? fdopendir(fd) : NULL;
    if (*ret == NULL && fd >= 0) {
        close(fd);
    }
    return 0;
}

/* --- looking ---------------------------------------------------------------------------------- */

static int visit(struct walk *w, int dir, struct node *parent, const char *name, struct err *e)
{
    struct stat st;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        return 0; /* an agent has removed it just now */
    }
    if (S_ISDIR(st.st_mode)) {
        return push(w, parent, name, &st, e);
    }
    const struct chatdir_entry entry = {
        .dir = dir, .name = name, .depth = parent->depth, .st = &st};
    return S_ISREG(st.st_mode) ? w->visitor->file(w->visitor->ctx, &entry, e) : 0;
}

static bool may_look(struct walk *w)
{
    w->over |= w->looks >= LOOKS_MAX;
    return w->looks < LOOKS_MAX;
}

static int walk_node(struct walk *w, struct node *n, struct err *e)
{
    DIR *d;
    if (open_node(w, n, &d, e) != 0) {
        return -1;
    }
    struct dirent *entry;
    int rc = 0;
    while (rc == 0 && d != NULL && may_look(w) && (entry = readdir(d)) != NULL) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            w->looks++;
            rc = visit(w, dirfd(d), n, entry->d_name, e);
        }
    }
    if (d != NULL) {
        closedir(d);
    }
    return rc;
}

static struct node *pop(struct walk *w)
{
    struct node *n = w->todo;
    w->todo = n->next;
    w->pending--;
    return n;
}

static int walk_all(struct walk *w, struct err *e)
{
    struct stat st;
    if (fstat(w->root, &st) != 0) {
        return err_sys(e, ERR_INTERNAL, errno, "cannot look at a workspace");
    }
    int rc = push(w, NULL, "", &st, e);
    while (rc == 0 && w->todo != NULL && may_look(w)) {
        struct node *n = pop(w);
        rc = walk_node(w, n, e);
        node_leave(n);
    }
    return rc;
}

static void walk_done(struct walk *w)
{
    while (w->todo != NULL) {
        node_leave(pop(w));
    }
    if (w->at != NULL) {
        close(w->at_fd);
        /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): the walk is one of its users */
        node_leave(w->at);
    }
    close(w->root);
}

int chatdir_walk(const char *path, const struct chatdir_visitor *v, bool *ret_over, struct err *e)
{
    struct walk w = {.visitor = v, .at_fd = -1};
    *ret_over = false;
    w.root = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (w.root < 0) { /* ENOENT: nothing was made there yet */
        return errno == ENOENT ? 0 : err_sys(e, ERR_INTERNAL, errno, "cannot open a workspace");
    }
    int rc = walk_all(&w, e);
    walk_done(&w);
    *ret_over = w.over;
    return rc;
}
