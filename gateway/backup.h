/*
 * `leasehold backup FILE`. A running gateway makes the copy itself, as no other program may open its
 * metadata, and sends it through the control socket; who may read run/local.key may ask for it, and
 * that is who may read everything else as well. Without one the command opens the store.
 */
#ifndef GATEWAY_BACKUP_H
#define GATEWAY_BACKUP_H

#include "services.h"

/* Of the command; replaces FILE when the copy is whole. */
int backup_run(const char *config_file, const char *file, struct err *e) MUST_CHECK;

/* At start: an API key of this life alone, its text in <run_dir>/local.key. */
#define LOCAL_KEY_FILE "local.key"
int local_key_make(struct services *s, struct err *e) MUST_CHECK;
void local_key_remove(const struct services *s);

#endif
