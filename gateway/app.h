/* The gateway put together: made from a configuration, run, taken apart. */
#ifndef GATEWAY_APP_H
#define GATEWAY_APP_H

#include "leasehold/config.h"
#include "leasehold/engine.h"
#include "leasehold/err.h"
#include "leasehold/store.h"
#include "leasehold/objects.h"

#define KEYS_DIR         "keys"
#define FIRST_KEY_FILE   "lease-signing.pem"
#define SIGNING_KEY_FILE KEYS_DIR "/" FIRST_KEY_FILE /* below the config's directory */
#define STORE_FILE       "leasehold.db"              /* in storage.data_dir */

struct app_options {
    const char *config_file;
    const char *bin_dir; /* where our other programs stand */
    /* Makes the engine that the configuration names: main.c knows the concrete ones. */
    int (*engine_new)(const struct config *cfg, const char *bin_dir, struct engine **ret,
                      struct err *e);
    /* The same of the store of objects. */
    int (*objects_new)(const struct config *cfg, struct log *log, struct objects **ret,
                       struct err *e);
    /* On SIGHUP: has it go by the credentials of a configuration that was read anew. */
    int (*objects_renew)(const struct config *cfg, struct objects *o, struct err *e);
};

/* Serves until SIGTERM or SIGINT. */
int app_run(const struct app_options *o, struct err *e) MUST_CHECK;

/* `leasehold init`: writes everything a first start needs below dir; refuses to overwrite. */
int init_run(const char *dir, struct err *e) MUST_CHECK;

/* `leasehold admin-key`: makes the store if there is none and one more admin key in it, written to
 * admin.key beside the configuration (which must not be there). The gateway must not run. */
int admin_key_run(const char *config_file, struct err *e) MUST_CHECK;

/* `leasehold audit-verify`: walks the audit trail's hash chain. The gateway must not run. */
int audit_verify_run(const char *config_file, int64_t *ret_checked, int64_t *ret_first_broken,
                     struct err *e) MUST_CHECK;

/* `leasehold clock-reset`: lowers the mark of the highest time seen to the clock of now, and ends what the
 * time behind it would have keep alive. The gateway must not run. */
struct clock_reset {
    const char *config_file;
    const char *mark;   /* as it stands, to the millisecond; NULL: only look */
    const char *reason; /* for the audit trail */
};
struct clock_reset_found {
    int64_t mark_ms, now_ms;
    int64_t leases; /* open, until then */
};
int clock_reset_run(const struct clock_reset *asked, struct clock_reset_found *ret,
                    struct err *e) MUST_CHECK;
/* The same on a store that is open (clock_reset.c): of `asked` the file does not count. */
int clock_reset_of(struct store *store, const struct config *cfg, const struct clock_reset *asked,
                   struct clock_reset_found *ret, struct err *e) MUST_CHECK;

/* Where the metadata of this configuration are; they must be there. */
int app_store_path(const struct config *cfg, char *ret, size_t size, struct err *e) MUST_CHECK;

/* Runs `fn` on the store of this file, made if it is not there. The gateway must not run. */
int app_with_store(const char *db, int (*fn)(struct store *store, void *arg, struct err *e),
                   void *arg, struct err *e) MUST_CHECK;

#endif
