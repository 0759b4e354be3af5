/*
 * Removing a chat's directory: renamed into the quarantine at once, taken apart there later. Agents
 * have made what stands in it, so no path of theirs is walked: a directory that is not empty is
 * first moved to the top of the quarantine, so that one level is open at a time however deep they
 * went.
 */
#include "leasehold/chatdir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PLACE_TEXT (2 * ID_TEXT) /* "<user_id>.<chat_id>" */

static int fail(struct err *e, const char *what)
{
    return err_sys(e, ERR_INTERNAL, errno, "%s", what);
}

static void place_name(const struct id *user_id, const struct id *chat_id,
                       char ret[static PLACE_TEXT])
{
    snprintf(ret, PLACE_TEXT, "%s.%s", ID_STR(user_id), ID_STR(chat_id));
}

static bool place_parse(const char *name, struct id *ret_user, struct id *ret_chat)
{
    return strlen(name) == PLACE_TEXT - 1 && name[ID_TEXT - 1] == '.' &&
           id_parse(name, ID_TEXT - 1, ret_user) && id_parse(name + ID_TEXT, ID_TEXT - 1, ret_chat);
}

static int open_quarantine(const char *quarantine, struct err *e)
{
    if (mkdir(quarantine, 0700) != 0 && errno != EEXIST) {
        return fail(e, "make the quarantine");
    }
    int fd = open(quarantine, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd >= 0 ? fd : fail(e, "open the quarantine");
}

/* <root>/<user_id>/chats; -1 with errno. */
static int open_chats(const char *root, const struct id *user_id)
{
    char below[ID_TEXT + 8];
    struct open_how how = {
        .flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };
    int root_fd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root_fd < 0) {
        return -1;
    }
    snprintf(below, sizeof(below), "%s/chats", ID_STR(user_id));
    int fd = (int)syscall(SYS_openat2, root_fd, below, &how, sizeof(how));
    int sys = errno;
    close(root_fd);
    errno = sys;
    return fd;
}

/* --- taking apart ----------------------------------------------------------------------------- */

/* A directory that its owner may not write to cannot be emptied or moved, unless by root. No sandbox
 * reaches here, so that the name stays what it is. */
static int move_to_top(int top, int dir, const char *name)
{
    char moved[ID_TEXT];
    struct id fresh;
    id_random(&fresh);
    id_format(&fresh, moved);
    if (renameat2(dir, name, top, moved, RENAME_NOREPLACE) == 0) {
        return 0;
    }
    return errno == EACCES && fchmodat(dir, name, 0700, 0) == 0
               ? renameat2(dir, name, top, moved, RENAME_NOREPLACE)
               : -1;
}

/* Removes one entry of a directory in the quarantine, or moves it to the top. */
static int remove_entry(int top, int dir, const char *name, struct err *e)
{
    if (unlinkat(dir, name, 0) == 0 || errno == ENOENT) {
        return 0;
    }
    if (errno != EISDIR) {
        return fail(e, "remove a file in the quarantine");
    }
    if (unlinkat(dir, name, AT_REMOVEDIR) == 0 || move_to_top(top, dir, name) == 0 ||
        errno == ENOENT) { /* another removal was first */
        return 0;
    }
    return fail(e, "move a directory in the quarantine");
}

static DIR *open_top_dir(int top, const char *name)
{
    const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    int fd = openat(top, name, flags);
    if (fd < 0 && errno == EACCES && fchmodat(top, name, 0700, 0) == 0) {
        fd = openat(top, name, flags);
    }
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (d == NULL && fd >= 0) {
        close(fd);
    }
    return d;
}

/* One pass over the entries; *ret_n tells how many there were. */
static int empty_dir(int top, DIR *d, size_t *ret_n, struct err *e)
{
    struct dirent *entry;
    int rc = 0;
    *ret_n = 0;
    rewinddir(d);
    while (rc == 0 && (entry = readdir(d)) != NULL) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            rc = remove_entry(top, dirfd(d), entry->d_name, e);
            ++*ret_n;
        }
    }
    return rc;
}

/* Empties and removes the directory `name` of the quarantine. */
static int remove_dir(int top, const char *name, struct err *e)
{
    DIR *d = open_top_dir(top, name);
    size_t n = 1;
    int rc = 0;
    if (d == NULL) {
        return errno == ENOENT ? 0 : fail(e, "open a directory in the quarantine");
    }
    while (rc == 0 && n > 0) { /* a file system may leave some out while others go */
        rc = empty_dir(top, d, &n, e);
    }
    closedir(d);
    if (rc == 0 && unlinkat(top, name, AT_REMOVEDIR) != 0 && errno != ENOENT) {
        rc = fail(e, "remove a directory in the quarantine");
    }
    return rc;
}

/* The first entry that is no chat's: a directory that was moved to the top. */
static bool next_moved(const char *quarantine, char ret[static ID_TEXT])
{
    DIR *d = opendir(quarantine);
    struct dirent *entry;
    struct id id;
    bool found = false;
    while (d != NULL && !found && (entry = readdir(d)) != NULL) {
        found = strlen(entry->d_name) == ID_TEXT - 1 && id_parse(entry->d_name, ID_TEXT - 1, &id);
        if (found) {
            memcpy(ret, entry->d_name, ID_TEXT);
        }
    }
    if (d != NULL) {
        closedir(d);
    }
    return found;
}

int chatdir_destroy(const char *quarantine, const struct id *user_id, const struct id *chat_id,
                    struct err *e)
{
    char name[PLACE_TEXT], moved[ID_TEXT];
    int top = open_quarantine(quarantine, e);
    if (top < 0) {
        return -1;
    }
    place_name(user_id, chat_id, name);
    int rc = remove_dir(top, name, e);
    while (rc == 0 && next_moved(quarantine, moved)) {
        rc = remove_dir(top, moved, e);
    }
    close(top);
    return rc;
}

int chatdir_sweep(const char *quarantine, struct err *e)
{
    char moved[ID_TEXT];
    int top = open_quarantine(quarantine, e);
    if (top < 0) {
        return -1;
    }
    int rc = 0;
    while (rc == 0 && next_moved(quarantine, moved)) {
        rc = remove_dir(top, moved, e);
    }
    close(top);
    return rc;
}

/* --- there and back --------------------------------------------------------------------------- */

static int sync_both(int a, int b, struct err *e)
{
    return fsync(a) == 0 && fsync(b) == 0 ? 0 : fail(e, "make a renamed chat durable");
}

static int move_out(int chats, int top, const char *chat, const char *place, struct err *e)
{
    if (renameat2(chats, chat, top, place, RENAME_NOREPLACE) == 0) {
        return sync_both(chats, top, e);
    }
    return errno == ENOENT ? 0 : fail(e, "move into the quarantine");
}

int chatdir_quarantine(const char *root, const char *quarantine, const struct id *user_id,
                       const struct id *chat_id, struct err *e)
{
    char place[PLACE_TEXT];
    /* One of the same id whose removal was broken off is in the way. */
    if (chatdir_destroy(quarantine, user_id, chat_id, e) != 0) {
        return -1;
    }
    int chats = open_chats(root, user_id);
    if (chats < 0) {
        return errno == ENOENT ? 0 : fail(e, "open a workspace");
    }
    int top = open_quarantine(quarantine, e);
    place_name(user_id, chat_id, place);
    int rc = top >= 0 ? move_out(chats, top, ID_STR(chat_id), place, e) : -1;
    if (top >= 0) {
        close(top);
    }
    close(chats);
    return rc;
}

/* Step by step, as a new chat may be made there at any moment: then everything stays. */
static int remove_workspace(int root_fd, int user, int top, const char *name, struct err *e)
{
    char moved[ID_TEXT];
    struct id fresh;
    id_random(&fresh);
    id_format(&fresh, moved);
    if (unlinkat(user, "chats", AT_REMOVEDIR) != 0 && errno != ENOENT) {
        return errno == ENOTEMPTY ? 0 : fail(e, "remove the chats of a workspace");
    }
    if (renameat2(user, "tools", top, moved, RENAME_NOREPLACE) != 0 && errno != ENOENT) {
        return fail(e, "move into the quarantine");
    }
    if (unlinkat(root_fd, name, AT_REMOVEDIR) != 0 && errno != ENOENT && errno != ENOTEMPTY) {
        return fail(e, "remove a workspace");
    }
    return sync_both(root_fd, top, e);
}

int chatdir_remove_workspace(const char *root, const char *quarantine, const struct id *user_id,
                             struct err *e)
{
    const char *name = ID_STR(user_id);
    int root_fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root_fd < 0) {
        return fail(e, "open the workspace root");
    }
    int user = openat(root_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    bool gone = user < 0 && errno == ENOENT;
    int top = user >= 0 ? open_quarantine(quarantine, e) : -1;
    int rc = top >= 0   ? remove_workspace(root_fd, user, top, name, e)
             : gone     ? 0
             : user < 0 ? fail(e, "open a workspace")
                        : -1;
    if (top >= 0) {
        close(top);
    }
    if (user >= 0) {
        close(user);
    }
    close(root_fd);
    return rc;
}

int chatdir_restore(const char *root, const char *quarantine, const struct id *user_id,
                    const struct id *chat_id, struct err *e)
{
    char place[PLACE_TEXT];
    int chats = open_chats(root, user_id);
    if (chats < 0) {
        return fail(e, "open a workspace");
    }
    int top = open_quarantine(quarantine, e);
    int rc = -1;
    place_name(user_id, chat_id, place);
    if (top >= 0) {
        rc = renameat2(top, place, chats, ID_STR(chat_id), RENAME_NOREPLACE) == 0
                 ? sync_both(top, chats, e)
                 : fail(e, "move a chat back from the quarantine");
        close(top);
    }
    close(chats);
    return rc;
}

int chatdir_each_quarantined(const char *quarantine,
                             int (*each)(void *ctx, const struct id *user_id,
                                         const struct id *chat_id, struct err *e),
                             void *ctx, struct err *e)
{
    (void)mkdir(quarantine, 0700); /* a full disk may have no room for it when it is needed */
    DIR *d = opendir(quarantine);
    struct dirent *entry;
    struct id user_id, chat_id;
    int rc = 0;
    if (d == NULL) {
        return errno == ENOENT ? 0 : fail(e, "open the quarantine");
    }
    while (rc == 0 && (entry = readdir(d)) != NULL) {
        if (place_parse(entry->d_name, &user_id, &chat_id)) {
            rc = each(ctx, &user_id, &chat_id, e);
        }
    }
    closedir(d);
    return rc;
}
