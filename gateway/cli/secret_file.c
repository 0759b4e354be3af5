#include "secret_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int secret_file_prepare(struct secret_file *f, const char *path, bool replace, struct err *e)
{
    *f = (struct secret_file){.path = path, .fd = -1, .replace = replace};
    if (!replace && access(path, F_OK) == 0) {
        return err_set(e, ERR_CONFLICT, "%.80s exists already", path);
    }
    if (asprintf(&f->temporary, "%s.XXXXXX", path) < 0) {
        f->temporary = NULL;
        return err_set(e, ERR_INTERNAL, "no memory");
    }
    f->fd = mkostemp(f->temporary, O_CLOEXEC); /* 0600 by itself */
    if (f->fd < 0) {
        int sys = errno;
        free(f->temporary);
        f->temporary = NULL;
        return err_sys(e, ERR_INTERNAL, sys, "%.80s cannot be written", path);
    }
    return 0;
}

static int write_all(int fd, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, data, len);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return -1;
        }
        data += n;
        len -= (size_t)n;
    }
    return 0;
}

static int give_name(const struct secret_file *f)
{
    /* link() refuses a file that came into being meanwhile; rename() would replace it. */
    if (f->replace) {
        return rename(f->temporary, f->path);
    }
    if (link(f->temporary, f->path) < 0) {
        return -1;
    }
    return unlink(f->temporary);
}

int secret_file_commit(struct secret_file *f, const char *secret, struct err *e)
{
    if (write_all(f->fd, secret, strlen(secret)) < 0 || write_all(f->fd, "\n", 1) < 0 ||
        fsync(f->fd) < 0 || give_name(f) < 0) {
        return err_sys(e, ERR_INTERNAL, errno, "%.80s cannot be written", f->path);
    }
    close(f->fd);
    free(f->temporary);
    f->fd = -1;
    f->temporary = NULL;
    return 0;
}

void secret_file_abort(struct secret_file *f)
{
    if (f->temporary != NULL) {
        unlink(f->temporary);
        free(f->temporary);
        close(f->fd);
        f->temporary = NULL;
        f->fd = -1;
    }
}

bool secret_valid(const char *s)
{
    if (s[0] == '\0') {
        return false;
    }
    for (; *s != '\0'; s++) {
        if (*s <= ' ' || *s > '~') {
            return false;
        }
    }
    return true;
}

static void strip_end(char *s)
{
    size_t len = strlen(s);
    while (len > 0 && strchr(" \t\r\n", s[len - 1]) != NULL) {
        s[--len] = '\0';
    }
}

int secret_file_read(const char *path, char *out, size_t size, bool *ret_open_to_others,
                     struct err *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0) {
        int sys = errno;
        if (fd >= 0) {
            close(fd);
        }
        return err_sys(e, ERR_INVALID_REQUEST, sys, "%.80s cannot be read", path);
    }
    ssize_t n = read(fd, out, size - 1);
    int sys = errno;
    close(fd);
    if (n < 0) {
        return err_sys(e, ERR_INVALID_REQUEST, sys, "%.80s cannot be read", path);
    }
    out[n] = '\0';
    bool whole = (size_t)n < size - 1 && strlen(out) == (size_t)n;
    strip_end(out);
    if (!whole || !secret_valid(out)) {
        explicit_bzero(out, size);
        return err_set(e, ERR_INVALID_REQUEST, "%.80s does not hold a key", path);
    }
    *ret_open_to_others = S_ISREG(st.st_mode) && (st.st_mode & (S_IRGRP | S_IROTH)) != 0;
    return 0;
}
