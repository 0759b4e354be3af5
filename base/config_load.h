/* What the files of the configuration share while one is loaded. */
#ifndef LEASEHOLD_BASE_CONFIG_LOAD_H
#define LEASEHOLD_BASE_CONFIG_LOAD_H

#include "leasehold/config.h"

#define CONFIG_ENV_PREFIX "LEASEHOLD_"
#define CONFIG_LIST_MAX   64

extern const struct field config_fields[]; /* of struct config; its sections are OBJECTs */

extern const size_t config_path_offsets[]; /* of the char * members that are paths of the host */
extern const size_t config_path_count;

/* Where a value came from, so that a check which sees only values can still say it. */
struct config_origin {
    struct config_origin *next;
    const void *at;  /* the member */
    unsigned line;   /* of the file; 0: it came from `env` */
    const char *env; /* name of the variable; borrowed from the environment */
    size_t env_len;
};

struct config_loader {
    char file[64]; /* its name for messages, shortened from the left */
    char path[96]; /* of the section being read: "http.tls." or "" */
    size_t path_len;
    struct config *c;
    struct config_origin *origins; /* the newest first */
    struct err *e;
};

/* Decodes the YAML text over the defaults in ld->c. */
int config_read_yaml(struct config_loader *ld, const char *text, size_t len) MUST_CHECK;

/* Lays the environment over it. */
int config_read_env(struct config_loader *ld, char *const *env) MUST_CHECK;

/* Checks between keys, and of values that a table cannot describe. */
int config_check(struct config_loader *ld) MUST_CHECK;

int config_check_urls(struct config_loader *ld) MUST_CHECK;

int config_note(struct config_loader *ld, struct config_origin origin) MUST_CHECK;

/* Refuses the value at `at` by naming where it came from. The text starts with the key's path. */
int config_fail(struct config_loader *ld, const void *at, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
