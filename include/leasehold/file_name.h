/*
 * Names of a chat's files: 1 to 255 bytes of UTF-8 without separators and control characters, kept
 * as sent and compared in Unicode's normal form C. Pure; any thread.
 */
#ifndef LEASEHOLD_FILE_NAME_H
#define LEASEHOLD_FILE_NAME_H

#include <stdbool.h>

#include "leasehold/err.h"

#define FILE_NAME_KEY_SIZE 800 /* NFC may be up to three times as long */

bool file_name_valid(const char *name);
int file_name_check(const char *name, struct err *e) MUST_CHECK; /* ERR_INVALID_ATTACHMENT_NAME */

/* What a valid name is compared by. false: without memory, or no Unicode. */
bool file_name_key(const char *name, char ret[static FILE_NAME_KEY_SIZE]);

#endif
