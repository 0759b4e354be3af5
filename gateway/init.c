/* `leasehold init`: everything a first start needs, and never over something that is there. And what else is
 * done to the store of a gateway that does not run. */
#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "app.h"
#include "auth.h"
#include "leasehold/clock.h"
#include "leasehold/owned_file.h"
#include "leasehold/store.h"
#include "leasehold/token.h"

static int join(const char *dir, const char *name, char *ret, size_t size, struct err *e)
{
    if ((size_t)snprintf(ret, size, "%s/%s", dir, name) >= size)
        return err_set(e, ERR_INVALID_REQUEST, "%s is too long a path", dir);
    return 0;
}

/* One that is there keeps its mode. */
static int make_dir(const char *path, mode_t mode, struct err *e)
{
    if (owned_mkdir(path, mode) && errno != EEXIST)
        return err_sys(e, ERR_INTERNAL, errno, "make %s", path);
    return 0;
}

static int write_new(const char *path, const char *text, struct err *e)
{
    int fd = owned_open(path, O_WRONLY | O_EXCL | O_CLOEXEC, NULL);
    ssize_t n;

    if (fd < 0 && errno == EEXIST)
        return err_set(e, ERR_CONFLICT, "%s exists already; nothing was changed in it", path);
    if (fd < 0)
        return err_sys(e, ERR_INTERNAL, errno, "make %s", path);
    n = write(fd, text, strlen(text));
    if (n != (ssize_t)strlen(text) || fsync(fd)) {
        err_sys(e, ERR_INTERNAL, errno, "write %s", path);
        close(fd);
        unlink(path);
        return -1;
    }
    return close(fd) ? err_sys(e, ERR_INTERNAL, errno, "close %s", path) : 0;
}

static int refuse_existing(const char *dir, struct err *e)
{
    static const char *const names[] = {"leasehold.yaml", "admin.key", SIGNING_KEY_FILE,
                                        "data/" STORE_FILE};
    char path[4096];

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (join(dir, names[i], path, sizeof path, e))
            return -1;
        if (!access(path, F_OK))
            return err_set(e, ERR_CONFLICT, "%s exists already: nothing was written", path);
    }
    return 0;
}

static int make_dirs(const char *dir, struct err *e)
{
    static const struct {
        const char *name;
        mode_t mode;
    } dirs[] = {
        {"keys", 0700},         {"certs", 0700},      {"data", 0700}, {"data/workspaces", 0700},
        {"data/bundles", 0755}, {"data/tools", 0755}, {"run", 0700}};
    char path[4096];

    /* Whoever makes it owns it; in one that is there all belongs to whose it is. */
    if (mkdir(dir, 0700) && errno != EEXIST)
        return err_sys(e, ERR_INTERNAL, errno, "make %s", dir);
    for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++)
        if (join(dir, dirs[i].name, path, sizeof path, e) || make_dir(path, dirs[i].mode, e))
            return -1;
    return 0;
}

static int insert_key(struct store_tx *tx, void *arg, struct err *e)
{
    struct api_key *k = arg;

    k->created_at = store_now_ms(tx);
    return store_api_key_insert(tx, k, e) ||
                   store_audit_deed(tx,
                                    &(struct audit_deed){.actor = "init",
                                                         .action = "key.create",
                                                         .kind = "api_key",
                                                         .id = &k->key_id,
                                                         .detail = "admin"},
                                    e)
               ? -1
               : 0;
}

/* One more admin key in the store of `db`, its text in the new file `path`. */
static int admin_key(struct store *store, const char *path, struct err *e)
{
    struct api_key key = {.name = "admin", .role = ROLE_ADMIN};
    char text[API_KEY_TEXT], line[API_KEY_TEXT + 1];
    int rc;

    if (!access(path, F_OK))
        return err_set(e, ERR_CONFLICT, "%s exists already: nothing was written", path);
    if (auth_key_generate(&key, text, e))
        return -1;
    rc = store_write(store, insert_key, &key, e);
    snprintf(line, sizeof line, "%s\n", text);
    if (!rc)
        rc = write_new(path, line, e);
    OPENSSL_cleanse(text, sizeof text);
    OPENSSL_cleanse(line, sizeof line);
    return rc;
}

int app_with_store(const char *db, int (*fn)(struct store *store, void *arg, struct err *e),
                   void *arg, struct err *e)
{
    struct log *log = log_new(STDERR_FILENO, LOG_ERROR, LOG_TEXT);
    struct store_options o = {.path = db, .log = log};
    struct store *store;
    int rc;

    if (!log)
        return err_set(e, ERR_INTERNAL, "no memory for the log");
    rc = store_open(&o, &store, e);
    if (!rc) {
        rc = fn(store, arg, e);
        store_close(store);
    }
    log_free(log);
    return rc;
}

static int make_admin_key(struct store *store, void *arg, struct err *e)
{
    return admin_key(store, arg, e);
}

static int config_store(const struct config *cfg, char *ret, size_t size, struct err *e)
{
    return join(cfg->storage.data_dir, STORE_FILE, ret, size, e);
}

int app_store_path(const struct config *cfg, char *ret, size_t size, struct err *e)
{
    if (config_store(cfg, ret, size, e))
        return -1;
    return access(ret, F_OK) ? err_sys(e, ERR_NOT_FOUND, errno, "no metadata at %s", ret) : 0;
}

int admin_key_run(const char *config_file, struct err *e)
{
    struct config cfg;
    char db[4096], path[4096];
    int rc;

    if (config_load(config_file, environ, &cfg, e))
        return -1;
    rc = config_store(&cfg, db, sizeof db, e) || join(cfg.dir, "admin.key", path, sizeof path, e) ||
                 make_dir(cfg.storage.data_dir, 0700, e) ||
                 app_with_store(db, make_admin_key, path, e)
             ? -1
             : 0;
    config_done(&cfg);
    return rc;
}

struct verify {
    int64_t checked, first_broken;
};

static int verify_rows(struct store_tx *tx, void *arg, struct err *e)
{
    struct verify *v = arg;

    return store_audit_verify(tx, &v->checked, &v->first_broken, e);
}

static int verify_store(struct store *store, void *arg, struct err *e)
{
    return store_read(store, verify_rows, arg, e);
}

int audit_verify_run(const char *config_file, int64_t *ret_checked, int64_t *ret_first_broken,
                     struct err *e)
{
    struct verify v = {0};
    struct config cfg;
    char db[4096];
    int rc;

    if (config_load(config_file, environ, &cfg, e))
        return -1;
    rc = app_store_path(&cfg, db, sizeof db, e);
    if (!rc)
        rc = app_with_store(db, verify_store, &v, e);
    config_done(&cfg);
    *ret_checked = v.checked;
    *ret_first_broken = v.first_broken;
    return rc;
}

struct reset {
    const struct config *cfg;
    const struct clock_reset *asked;
    struct clock_reset_found *found;
};

static int reset_store(struct store *store, void *arg, struct err *e)
{
    const struct reset *r = arg;

    return clock_reset_of(store, r->cfg, r->asked, r->found, e);
}

int clock_reset_run(const struct clock_reset *asked, struct clock_reset_found *ret, struct err *e)
{
    struct config cfg;
    struct reset r = {&cfg, asked, ret};
    char db[4096];
    int rc;

    if (config_load(asked->config_file, environ, &cfg, e))
        return -1;
    rc = app_store_path(&cfg, db, sizeof db, e);
    if (!rc)
        rc = app_with_store(db, reset_store, &r, e);
    config_done(&cfg);
    return rc;
}

int init_run(const char *dir, struct err *e)
{
    char path[4096], db[4096];

    if (refuse_existing(dir, e) || make_dirs(dir, e))
        return -1;
    if (join(dir, SIGNING_KEY_FILE, path, sizeof path, e) || keyset_generate_file(path, e))
        return -1;
    if (join(dir, "data/" STORE_FILE, db, sizeof db, e) ||
        join(dir, "admin.key", path, sizeof path, e) || app_with_store(db, make_admin_key, path, e))
        return -1;
    /* Last: a directory with a configuration is a finished one. */
    return join(dir, "leasehold.yaml", path, sizeof path, e) || write_new(path, config_template, e)
               ? -1
               : 0;
}
