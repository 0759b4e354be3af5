#include "config_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "app.h"
#include "tls_ca.h"

#define PATH_SIZE 4096

/* A link may lead to it; a pipe or a device would be waited for. */
static int open_regular(const char *key, const char *path, struct err *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat st;

    if (fd < 0)
        return err_sys(e, ERR_INTERNAL, errno, "open %s %s", key, path);
    if (!fstat(fd, &st) && S_ISREG(st.st_mode))
        return fd;
    close(fd);
    return err_set(e, ERR_INTERNAL, "%s %s is no regular file", key, path);
}

/* --- certificates and keys ------------------------------------------------------------------- */

static BIO *bio_open(const char *key, const char *path, struct err *e)
{
    int fd = open_regular(key, path, e);
    BIO *bio = fd >= 0 ? BIO_new_fd(fd, BIO_CLOSE) : NULL;

    if (!bio && fd >= 0) {
        close(fd);
        err_set(e, ERR_INTERNAL, "no memory for %s", key);
    }
    return bio;
}

/* Its first certificate; NULL: with an error. */
static X509 *cert_read(const char *key, const char *path, struct err *e)
{
    BIO *bio = bio_open(key, path, e);
    X509 *cert;

    if (!bio)
        return NULL;
    cert = PEM_read_bio_X509(bio, NULL, NULL, NULL);
    BIO_free(bio);
    if (!cert)
        err_set(e, ERR_INTERNAL, "%s %s holds no certificate in PEM", key, path);
    return cert;
}

/* Nobody is there to type one. */
static int no_passphrase(char *ret, int size, int writes, void *ctx)
{
    (void)ret;
    (void)size;
    (void)writes;
    (void)ctx;
    return -1;
}

static EVP_PKEY *key_read(const char *key, const char *path, struct err *e)
{
    BIO *bio = bio_open(key, path, e);
    EVP_PKEY *pkey;

    if (!bio)
        return NULL;
    pkey = PEM_read_bio_PrivateKey(bio, NULL, no_passphrase, NULL);
    BIO_free(bio);
    if (!pkey)
        err_set(e, ERR_INTERNAL, "%s %s holds no private key in PEM without a passphrase", key,
                path);
    return pkey;
}

static int authority_check(const char *key, const char *path, struct err *e)
{
    X509 *cert = *path ? cert_read(key, path, e) : NULL;
    int rc = cert || !*path ? 0 : -1;

    X509_free(cert);
    return rc;
}

static int pair_check(const struct config_tls *tls, struct err *e)
{
    X509 *cert = cert_read("docker.tls.cert_file", tls->cert_file, e);
    EVP_PKEY *key = cert ? key_read("docker.tls.key_file", tls->key_file, e) : NULL;
    int rc = key ? 0 : -1;

    if (key && X509_check_private_key(cert, key) != 1)
        rc = err_set(e, ERR_INTERNAL,
                     "docker.tls.key_file %s is not the key of docker.tls.cert_file %s",
                     tls->key_file, tls->cert_file);
    EVP_PKEY_free(key);
    X509_free(cert);
    return rc;
}

static int docker_check(const struct config_tls *tls, struct err *e)
{
    return authority_check("docker.tls.ca_file", tls->ca_file, e) ||
                   (*tls->cert_file && pair_check(tls, e))
               ? -1
               : 0;
}

int config_files_check(const struct config *cfg, struct err *e)
{
    if (!strcmp(cfg->objects.kind, "s3") &&
        authority_check("objects.ca_file", cfg->objects.ca_file, e))
        return -1;
    return cfg->sandbox.engine == ENGINE_DOCKER ? docker_check(&cfg->docker.tls, e) : 0;
}

/* --- secrets --------------------------------------------------------------------------------- */

int config_objects_secret(const struct config_objects *c, char ret[static OBJECTS_SECRET_TEXT],
                          struct err *e)
{
    int fd = open_regular("objects.secret_key_file", c->secret_key_file, e);
    ssize_t n = fd >= 0 ? read(fd, ret, OBJECTS_SECRET_TEXT) : 0;

    if (fd < 0)
        return -1;
    close(fd);
    if (n < 0)
        return err_sys(e, ERR_INTERNAL, errno, "read objects.secret_key_file %s",
                       c->secret_key_file);
    if (n == OBJECTS_SECRET_TEXT)
        return err_set(e, ERR_INTERNAL, "objects.secret_key_file %s is too long",
                       c->secret_key_file);
    ret[n] = '\0';
    ret[strcspn(ret, "\r\n")] = '\0';
    return *ret ? 0
                : err_set(e, ERR_INTERNAL, "no secret in objects.secret_key_file %s",
                          c->secret_key_file);
}

struct exposed {
    void (*each)(void *ctx, const char *key, const char *path);
    void *ctx;
    uid_t user;
};

/* The gateway's: root may ask for one that runs as another, whose data are that one's. */
static uid_t user_of(const struct config *cfg)
{
    struct stat st;

    return geteuid() == 0 && !stat(cfg->storage.data_dir, &st) ? st.st_uid : geteuid();
}

/* The group's bits are how a user reads a file that it does not own. */
static bool is_exposed(const struct stat *st, uid_t user)
{
    mode_t bits = st->st_uid == user ? 077 : 007;

    return S_ISREG(st->st_mode) && st->st_mode & bits;
}

static void look(const struct exposed *x, const char *key, const char *path)
{
    struct stat st;

    if (*path && !stat(path, &st) && is_exposed(&st, x->user))
        x->each(x->ctx, key, path);
}

static void look_below(const struct exposed *x, const struct config *cfg, const char *key,
                       const char *name)
{
    char path[PATH_SIZE];

    if ((size_t)snprintf(path, sizeof path, "%s/%s", cfg->dir, name) < sizeof path)
        look(x, key, path);
}

static void look_at_signing_keys(const struct exposed *x, const struct config *cfg)
{
    char name[PATH_SIZE];
    struct dirent *d;
    DIR *dir;

    if ((size_t)snprintf(name, sizeof name, "%s/" KEYS_DIR, cfg->dir) >= sizeof name)
        return;
    dir = opendir(name);
    while (dir && (d = readdir(dir))) {
        const char *dot = strrchr(d->d_name, '.');

        if (dot && !strcmp(dot, ".pem") &&
            (size_t)snprintf(name, sizeof name, KEYS_DIR "/%s", d->d_name) < sizeof name)
            look_below(x, cfg, "signing key", name);
    }
    if (dir)
        closedir(dir);
}

static void look_at_profiles(const struct exposed *x, const struct config *cfg)
{
    const struct config_profile *p = cfg->profiles.items;

    for (size_t i = 0; i < cfg->profiles.n; i++) {
        const struct config_secret *secrets = p[i].secrets.items;

        for (size_t k = 0; k < p[i].secrets.n; k++)
            look(x, "profiles[].secrets", secrets[k].file);
    }
}

static void look_at_docker(const struct exposed *x, const struct config *cfg)
{
    const struct config_registry *r = cfg->docker.registries.items;

    look(x, "docker.tls.key_file", cfg->docker.tls.key_file);
    for (size_t i = 0; i < cfg->docker.registries.n; i++)
        look(x, "docker.registries[].password_file", r[i].password_file);
}

void config_files_exposed(const struct config *cfg,
                          void (*each)(void *ctx, const char *key, const char *path), void *ctx)
{
    const struct exposed x = {each, ctx, user_of(cfg)};

    look_at_signing_keys(&x, cfg);
    look_below(&x, cfg, "admin key", "admin.key");
    look(&x, "http.tls.key_file", cfg->http.tls.key_file);
    if (cfg->door.tls == DOOR_TLS_INTERNAL_CA)
        look_below(&x, cfg, "key of door.tls", TLS_CA_KEY_FILE);
    look(&x, "door.key_file", cfg->door.key_file);
    look(&x, "objects.secret_key_file", cfg->objects.secret_key_file);
    look_at_docker(&x, cfg);
    look_at_profiles(&x, cfg);
}

static void warn(void *ctx, const char *key, const char *path)
{
    struct log *log = ctx;

    log_event(log, LOG_WARNING, "secret_exposed", LF_STR("key", key), LF_STR("path", path),
              LF_STR("detail", CONFIG_FILES_EXPOSED));
}

void config_files_warn(const struct config *cfg, struct log *log)
{
    config_files_exposed(cfg, warn, log);
}
