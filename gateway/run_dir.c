#include "run_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "leasehold/process.h"

static int run_path(const struct config *cfg, const char *name, char *ret, size_t size,
                    struct err *e)
{
    if ((size_t)snprintf(ret, size, "%s/%s", cfg->run_dir, name) >= size)
        return err_set(e, ERR_INTERNAL, "run_dir %s is too long a path", cfg->run_dir);
    return 0;
}

static int other_user(const char *path, uid_t uid, struct err *e)
{
    return err_set(e, ERR_CONFLICT,
                   "%s is of the user %ju, who has run a gateway here: two users' chats cannot lie "
                   "in one directory. Run it as that user again",
                   path, (uintmax_t)uid);
}

/* Chats, sandboxes and keys are whose gateway has made them. So it stays that user's: root would be
 * refused nothing, and leave behind what the other cannot open. */
static int lock_open(const char *path, int *ret, struct err *e)
{
    struct stat st;
    int sys;

    *ret = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    sys = errno;
    if (*ret < 0 && sys == EACCES && !lstat(path, &st) && st.st_uid != geteuid())
        return other_user(path, st.st_uid, e);
    if (*ret < 0)
        return err_sys(e, ERR_INTERNAL, sys, "open %s", path);
    if (fstat(*ret, &st))
        return err_sys(e, ERR_INTERNAL, errno, "stat %s", path);
    if (st.st_uid == geteuid())
        return 0;
    close(*ret);
    *ret = -1;
    return other_user(path, st.st_uid, e);
}

/* Nobody else has run one here yet: who is meant to is a guess. */
static void foreign_warn(const struct config *cfg, struct log *log)
{
    const char *dir = cfg->storage.data_dir;
    struct stat st;

    if (geteuid() == 0 && !stat(dir, &st) && st.st_uid != 0)
        log_event(log, LOG_WARNING, "directory_of_another_user", LF_STR("data_dir", dir),
                  LF_INT("uid", st.st_uid),
                  LF_STR("detail", "what root makes here that user cannot open"));
}

/* One gateway a run directory: two would fight for doors and sandboxes. */
int run_dir_take(const struct config *cfg, struct log *log, int *ret, struct err *e)
{
    char path[4096];

    if (mkdir(cfg->run_dir, 0711) && errno != EEXIST)
        return err_sys(e, ERR_INTERNAL, errno, "make run_dir %s", cfg->run_dir);
    if (run_path(cfg, "leasehold.lock", path, sizeof path, e) || lock_open(path, ret, e))
        return -1;
    /* Doors look up the control socket here under their own uid; nobody lists it. */
    if (chmod(cfg->run_dir, 0711))
        return err_sys(e, ERR_INTERNAL, errno, "chmod run_dir %s", cfg->run_dir);
    foreign_warn(cfg, log);
    if (process_lock(*ret)) {
        close(*ret); /* what stands here is the other one's */
        *ret = -1;
        return err_set(e, ERR_CONFLICT, "another gateway runs on %s", cfg->run_dir);
    }
    if (run_path(cfg, "ready", path, sizeof path, e))
        return -1;
    if (unlink(path) && errno != ENOENT)
        return err_sys(e, ERR_INTERNAL, errno, "remove %s", path);
    return 0;
}

int run_dir_ready(const struct config *cfg, const char *url, struct err *e)
{
    char path[4096], temp[4096];
    FILE *f;

    if (run_path(cfg, "ready", path, sizeof path, e) ||
        run_path(cfg, "ready.new", temp, sizeof temp, e))
        return -1;
    f = fopen(temp, "we");
    if (!f)
        return err_sys(e, ERR_INTERNAL, errno, "write %s", temp);
    fprintf(f, "%s\n%d\n", url, (int)getpid());
    if (fclose(f) || rename(temp, path))
        return err_sys(e, ERR_INTERNAL, errno, "write %s", path);
    return 0;
}

void run_dir_unready(const struct config *cfg)
{
    char path[4096];
    struct err e;

    if (!run_path(cfg, "ready", path, sizeof path, &e))
        unlink(path);
}
