/*
 * A file of NAME=VALUE lines, as the environment of an agent: values may be secrets, which a command
 * line would show to everybody on the machine.
 */
#ifndef CLI_ENV_FILE_H
#define CLI_ENV_FILE_H

#include "leasehold/buf.h"

#include "options.h"

/* What the gateway takes of names and values together, and room for their line feeds. */
#define ENV_FILE_MAX (64 * 1024)

/*
 * Reads the OPT_ENV_FILE of *o, if there is one, and puts the JSON object that it says, which stands
 * in *ret, in its place. Blank lines and lines that begin with '#' are skipped; all behind the first
 * '=' is the value, as it is. Messages name lines, never what they hold.
 */
int env_file_load(struct options *o, struct buf *ret, struct err *e) MUST_CHECK;

#endif
