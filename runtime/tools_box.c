#include "tools_box.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "leasehold/clock.h"
#include "leasehold/tool_link.h"

#define READY_MS 5000
#define LOOK_MS  3

/* Read-only in the sandbox, so what is bound below it needs something to be bound on. */
static int make_point(const char *box, const char *name, bool is_dir, struct err *e)
{
    char path[PATH_MAX];
    int fd = -1;

    if ((size_t)snprintf(path, sizeof path, "%s/%s", box, name) >= sizeof path)
        return err_set(e, ERR_SANDBOX_START_FAILED, "run_dir is too long a path");
    if (is_dir ? mkdir(path, 0755) == 0
               : (fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444)) >= 0) {
        if (fd >= 0)
            close(fd);
        return 0;
    }
    return err_sys(e, ERR_SANDBOX_START_FAILED, errno, "make %s in the box of tools", name);
}

static int make_dir(const char *path, struct err *e)
{
    if (mkdir(path, 0755) == 0 && chmod(path, 0755) == 0)
        return 0;
    return err_sys(e, ERR_SANDBOX_START_FAILED, errno, "make the box of tools");
}

int tools_box_make(const struct rundir *r, const char *runs_path, int64_t uid, int64_t gid,
                   struct err *e)
{
    if (make_dir(r->tools_box, e) || make_point(r->tools_box, TOOL_RUNNER, false, e) ||
        make_point(r->tools_box, strrchr(TOOL_DIR, '/') + 1, true, e) ||
        make_point(r->tools_box, strrchr(TOOL_RUNS, '/') + 1, false, e) ||
        make_dir(r->tools_socket, e))
        return -1;
    if (chown(r->tools_socket, (uid_t)uid, (gid_t)gid) != 0 ||
        chown(runs_path, (uid_t)uid, (gid_t)gid) != 0 || chmod(runs_path, 0200) != 0)
        return err_sys(e, ERR_SANDBOX_START_FAILED, errno, "give the box of tools away");
    return 0;
}

static int make_link(int dir, const struct sandbox_tool *t, const char *at, struct err *e)
{
    char target[PATH_MAX];
    int n = t->brokered ? snprintf(target, sizeof target, BOX_DIR "/" TOOL_CLIENT)
                        : snprintf(target, sizeof target, "%s" TOOL_STATIC "/%s", at, t->name);

    if ((size_t)n >= sizeof target)
        return err_set(e, ERR_SANDBOX_START_FAILED, "too long a path to the tool %.80s", t->name);
    if (symlinkat(target, dir, t->name) == 0)
        return 0;
    return err_sys(e, ERR_SANDBOX_START_FAILED, errno, "make the link of the tool %.80s", t->name);
}

int tools_links_make(const struct rundir *r, const struct sandbox_tool *tools, size_t n,
                     const char *at, struct err *e)
{
    int dir, rc = 0;

    if (mkdir(r->tools_links, 0711) != 0 || chmod(r->tools_links, 0711) != 0)
        return err_sys(e, ERR_SANDBOX_START_FAILED, errno, "make the directory of tools");
    dir = open(r->tools_links, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0)
        return err_sys(e, ERR_SANDBOX_START_FAILED, errno, "open the directory of tools");
    for (size_t i = 0; !rc && i < n; i++)
        rc = make_link(dir, &tools[i], at, e);
    close(dir);
    return rc;
}

static bool is_ready(const char *runs_path)
{
    struct stat st;

    return stat(runs_path, &st) == 0 && st.st_size >= (off_t)sizeof(struct tool_record);
}

/* The engine's word why they are not there. */
static bool is_missing(const struct rundir *r, char *ret, size_t size)
{
    rundir_log_tail(r->path, KEEP_TOOLS_FILE, ret, size);
    return ret[0] != '\0';
}

static int wait_ready(const struct rundir *r, const char *runs_path, struct err *e)
{
    int64_t until_us = clock_boot_us(&clock_system) + READY_MS * 1000;
    char why[160];

    while (!is_ready(runs_path)) {
        if (is_missing(r, why, sizeof why))
            return err_set(e, ERR_SANDBOX_START_FAILED, "%s", why);
        if (clock_boot_us(&clock_system) >= until_us)
            return err_set(e, ERR_SANDBOX_START_FAILED, "their sandbox is not ready in time");
        poll(NULL, 0, LOOK_MS);
    }
    return 0;
}

int tools_box_take(const struct rundir *r, const char *runs_path, struct err *e)
{
    struct err why;
    int rc = wait_ready(r, runs_path, e);

    /* Whatever came of it: from now on nothing there is to be written by anybody else. */
    if (chown(r->tools_socket, 0, 0) != 0 || chown(runs_path, 0, 0) != 0 ||
        chmod(runs_path, 0600) != 0)
        err_sys(rc ? &why : e, ERR_SANDBOX_START_FAILED, errno, "take the box of tools back"),
            rc = -1;
    return rc;
}
