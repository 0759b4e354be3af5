/* Where a download ends: what stands there already is replaced only if the user has named it. */
#ifndef CLI_OUTPUT_FILE_H
#define CLI_OUTPUT_FILE_H

#include <stdbool.h>

#include "leasehold/err.h"

/* May a name that somebody else chose become a file in this directory? */
int output_file_check_name(const char *name, struct err *e) MUST_CHECK;

/* Nothing stands at `path`, so that a download does not end in vain. */
int output_file_check_free(const char *path, struct err *e) MUST_CHECK;

/* `part` gets the name `path`; without `replace` only where nothing stands. */
int output_file_place(const char *part, const char *path, bool replace, struct err *e) MUST_CHECK;

#endif
