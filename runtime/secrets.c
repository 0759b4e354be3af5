#include "secrets.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "leasehold/engine.h"

#define DIR_NAME   "secrets"
#define SECRET_MAX (64 * 1024)

struct secret_text {
    char data[SECRET_MAX + 1]; /* one more, to see what is too long */
    size_t len;
};

static int refused(const struct config_secret *s, const char *why, struct err *e)
{
    return err_set(e, ERR_SANDBOX_START_FAILED, "secret %.64s: its file %s", s->name, why);
}

static int failed(const struct config_secret *s, const char *what, struct err *e)
{
    return err_sys(e, ERR_SANDBOX_START_FAILED, errno, "secret %.64s: %s", s->name, what);
}

static int read_all(int fd, const struct config_secret *s, struct secret_text *ret, struct err *e)
{
    ssize_t n;

    ret->len = 0;
    while ((n = read(fd, ret->data + ret->len, sizeof ret->data - ret->len)) > 0)
        ret->len += (size_t)n;
    if (n < 0)
        return failed(s, "read it", e);
    return ret->len > SECRET_MAX ? refused(s, "is longer than 64 KiB", e) : 0;
}

/* A link may lead to it (so it is with mounted secrets); a pipe or a device is none. */
static int secret_read(const struct config_secret *s, struct secret_text *ret, struct err *e)
{
    int fd = open(s->file, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat st;
    int rc;

    if (fd < 0)
        return failed(s, "open its file", e);
    if (fstat(fd, &st))
        rc = failed(s, "look at its file", e);
    else
        rc = S_ISREG(st.st_mode) ? read_all(fd, s, ret, e) : refused(s, "is no regular one", e);
    close(fd);
    return rc;
}

static int write_all(int fd, const struct secret_text *text)
{
    size_t done = 0;

    while (done < text->len) {
        ssize_t n = write(fd, text->data + done, text->len - done);

        if (n < 0)
            return -1;
        done += (size_t)n;
    }
    return 0;
}

static int secret_write(int dir, const struct config_secret *s, const struct secret_text *text,
                        uid_t uid, gid_t gid, struct err *e)
{
    int fd = openat(dir, s->name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0400);
    int rc;

    if (fd < 0)
        return failed(s, "make its copy", e);
    rc = write_all(fd, text) || fchmod(fd, 0400) || (geteuid() == 0 && fchown(fd, uid, gid))
             ? failed(s, "write its copy", e)
             : 0;
    close(fd);
    return rc;
}

static int put_all(int dir, const struct config_profile *profile, uid_t uid, gid_t gid,
                   struct err *e)
{
    const struct config_secret *secrets = profile->secrets.items;
    struct secret_text text;
    int rc = 0;

    for (size_t i = 0; !rc && i < profile->secrets.n; i++)
        rc =
            secret_read(&secrets[i], &text, e) || secret_write(dir, &secrets[i], &text, uid, gid, e)
                ? -1
                : 0;
    explicit_bzero(&text, sizeof text);
    return rc;
}

int engine_secrets_check(const struct config *cfg, struct err *e)
{
    const struct config_profile *profiles = cfg->profiles.items;
    struct secret_text text;
    int rc = 0;

    for (size_t i = 0; !rc && i < cfg->profiles.n; i++) {
        const struct config_secret *secrets = profiles[i].secrets.items;

        for (size_t k = 0; !rc && k < profiles[i].secrets.n; k++)
            rc = secret_read(&secrets[k], &text, e);
    }
    explicit_bzero(&text, sizeof text);
    return rc;
}

int secrets_put(const char *box, const struct config_profile *profile, uid_t uid, gid_t gid,
                struct err *e)
{
    int at, dir = -1;
    int rc;

    if (!profile->secrets.n)
        return 0;
    at = open(box, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (at >= 0 && !mkdirat(at, DIR_NAME, 0700))
        dir = openat(at, DIR_NAME, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    rc = dir < 0 ? err_sys(e, ERR_SANDBOX_START_FAILED, errno, "the directory of secrets")
                 : put_all(dir, profile, uid, gid, e);
    if (!rc && geteuid() == 0 && fchown(dir, uid, gid))
        rc = err_sys(e, ERR_SANDBOX_START_FAILED, errno, "the directory of secrets");
    if (dir >= 0)
        close(dir);
    if (at >= 0)
        close(at);
    return rc;
}
