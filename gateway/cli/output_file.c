#include "output_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* A dot would hide it, or have a shell or a tool read it; a dash makes it an option of the next
 * command, and "-" is standard output. */
int output_file_check_name(const char *name, struct err *e)
{
    bool fits = name[0] != '\0' && name[0] != '.' && name[0] != '-';
    for (const char *p = name; *p != '\0'; p++) {
        fits = fits && *p != '/' && (unsigned char)*p >= ' ' && *p != '\x7f';
    }
    return fits ? 0
                : err_set(e, ERR_INVALID_REQUEST,
                          "its name does not suit a file here; give one with --output");
}

static int taken(const char *path, struct err *e)
{
    return err_set(e, ERR_INVALID_REQUEST, "%s is there already; --output replaces a file", path);
}

int output_file_check_free(const char *path, struct err *e)
{
    struct stat st;
    return lstat(path, &st) == 0 ? taken(path, e) : 0;
}

/* Not every file system can rename so, but those that cannot have links. */
static int rename_to_free(const char *part, const char *path)
{
    if (renameat2(AT_FDCWD, part, AT_FDCWD, path, RENAME_NOREPLACE) == 0) {
        return 0;
    }
    if (errno != EINVAL || link(part, path) != 0) {
        return -1;
    }
    return unlink(part);
}

int output_file_place(const char *part, const char *path, bool replace, struct err *e)
{
    if ((replace ? rename(part, path) : rename_to_free(part, path)) == 0) {
        return 0;
    }
    return errno == EEXIST ? taken(path, e) : err_sys(e, ERR_INTERNAL, errno, "write %s", path);
}
