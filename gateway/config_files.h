/* The files that a configuration names: whether they hold what they should, and who else reads them. */
#ifndef GATEWAY_CONFIG_FILES_H
#define GATEWAY_CONFIG_FILES_H

#include <stddef.h>

#include "leasehold/config.h"
#include "leasehold/err.h"
#include "leasehold/log.h"

/* For check-config: certificates and keys that are read at their first use only, objects.ca_file and
 * docker.tls. The error names key and file. */
int config_files_check(const struct config *cfg, struct err *e) MUST_CHECK;

/* Calls `each` for all files with a secret that others than the gateway's user may read (or its group, of a
 * file that is another user's); `key`: what names it in the configuration. */
void config_files_exposed(const struct config *cfg,
                          void (*each)(void *ctx, const char *key, const char *path), void *ctx);
#define CONFIG_FILES_EXPOSED "others may read it: chmod 600"

/* Logs `secret_exposed` for each of them. */
void config_files_warn(const struct config *cfg, struct log *log);

#define OBJECTS_SECRET_TEXT 512

/* The secret of objects.secret_key_file, without the line end behind it; to be wiped after its use. */
int config_objects_secret(const struct config_objects *c, char ret[static OBJECTS_SECRET_TEXT],
                          struct err *e) MUST_CHECK;

#endif
