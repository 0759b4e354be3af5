/*
 * Files that hold a secret: the API key that is read, the token or key that is written. Written
 * ones are prepared before the request that makes the secret, so that a directory that cannot be
 * written costs nothing, and appear whole or not at all, 0600.
 */
#ifndef CLI_SECRET_FILE_H
#define CLI_SECRET_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "leasehold/err.h"

struct secret_file {
    const char *path; /* borrowed */
    char *temporary;  /* beside it, until committed; NULL: nothing prepared */
    int fd;
    bool replace;
};

/* `replace`: an existing file is replaced, else it is refused. */
int secret_file_prepare(struct secret_file *f, const char *path, bool replace,
                        struct err *e) MUST_CHECK;

/* Writes the secret and a line feed and gives the file its name. */
int secret_file_commit(struct secret_file *f, const char *secret, struct err *e) MUST_CHECK;

void secret_file_abort(struct secret_file *f); /* also after a commit: does nothing then */

/*
 * Reads the one line of a secret file into `out`, without white space at its end. *ret_open_to_others
 * tells whether group or others may read it. Anything but visible ASCII is refused.
 */
int secret_file_read(const char *path, char *out, size_t size, bool *ret_open_to_others,
                     struct err *e) MUST_CHECK;

/* Is this a header-safe secret: visible ASCII, not empty? */
bool secret_valid(const char *s);

#endif
