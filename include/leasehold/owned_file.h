/*
 * Files that are made in a directory of somebody else by root belong to that user, as the directory does:
 * a command that an administrator runs must not leave behind what the service cannot open.
 */
#ifndef LEASEHOLD_OWNED_FILE_H
#define LEASEHOLD_OWNED_FILE_H

#include <stdbool.h>
#include <sys/types.h>

/* open(2) of a file that is made, 0600, if it is not there. *ret_made may be NULL. -1 with errno. */
int owned_open(const char *path, int flags, bool *ret_made);

/* The same for a file that was made just now, at `path`, by other means. 0, or -1 with errno. */
int owned_give(int fd, const char *path);

/* mkdir(2), but that no umask cuts the mode. 0, or -1 with errno. */
int owned_mkdir(const char *path, mode_t mode);

#endif
