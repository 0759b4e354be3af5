#include "tls_ca.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CA_DAYS      3650
#define BACKDATE_S   3600 /* clocks of clients may be behind */
#define CA_CERT_FILE "certs/ca.pem"

struct tls_ca {
    struct tls_ca *before;          /* that this one has replaced */
    X509 *cert;                     /* of the CA; NULL with `files` */
    EVP_PKEY *key;                  /* of the CA */
    char *pem;                      /* its certificate, then those of CAs that were before it */
    struct buf file_cert, file_key; /* with `files` */
    char file_sha256[TLS_SHA256_TEXT];
};

/* OpenSSL's own words go no further: they may name paths and are of no help to a caller. */
static int tls_fail(struct err *e, const char *what)
{
    return err_set(e, ERR_INTERNAL, "door.tls: %s", what);
}

/* --- PEM in memory and on disk ----------------------------------------------------------------- */

static int bio_take(BIO *bio, struct buf *out)
{
    char *data;
    long n = BIO_get_mem_data(bio, &data);

    if (n > 0)
        buf_add(out, data, (size_t)n);
    BIO_free(bio);
    return n > 0 && buf_ok(out) ? 0 : -1;
}

static int cert_to_pem(X509 *cert, struct buf *out)
{
    BIO *bio = BIO_new(BIO_s_mem());

    if (!bio || PEM_write_bio_X509(bio, cert) != 1) {
        BIO_free(bio);
        return -1;
    }
    return bio_take(bio, out);
}

static int key_to_pem(EVP_PKEY *key, struct buf *out)
{
    BIO *bio = BIO_new(BIO_s_secmem());

    if (!bio || PEM_write_bio_PKCS8PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL) != 1) {
        BIO_free(bio);
        return -1;
    }
    return bio_take(bio, out);
}

static int read_file(const char *path, struct buf *out, struct err *e)
{
    FILE *f = fopen(path, "re");
    char piece[4096];
    size_t n;
    bool failed;

    if (!f)
        return err_sys(e, ERR_INTERNAL, errno, "door.tls: open %s", path);
    while ((n = fread(piece, 1, sizeof piece, f)) > 0)
        buf_add(out, piece, n);
    failed = ferror(f);
    fclose(f);
    explicit_bzero(piece, sizeof piece);
    if (failed || !buf_ok(out) || !out->len)
        return err_set(e, ERR_INTERNAL, "door.tls: %s cannot be read, or is empty or too long",
                       path);
    return 0;
}

/* Durable and whole, or not there: written beside and renamed. */
static int write_file(const char *path, const struct buf *b, mode_t mode, struct err *e)
{
    char temp[4200];
    int fd;

    snprintf(temp, sizeof temp, "%s.new", path);
    fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode);
    if (fd < 0)
        return err_sys(e, ERR_INTERNAL, errno, "door.tls: make %s", temp);
    if (write(fd, b->data, b->len) != (ssize_t)b->len || fchmod(fd, mode) || fsync(fd) ||
        rename(temp, path)) {
        err_sys(e, ERR_INTERNAL, errno, "door.tls: write %s", path);
        close(fd);
        unlink(temp);
        return -1;
    }
    close(fd);
    return 0;
}

static int fingerprint(X509 *cert, char ret[static TLS_SHA256_TEXT])
{
    unsigned char hash[EVP_MAX_MD_SIZE];
    unsigned n = 0;

    if (X509_digest(cert, EVP_sha256(), hash, &n) != 1)
        return -1;
    for (unsigned i = 0; i < n; i++)
        snprintf(ret + 2 * i, 3, "%02x", hash[i]);
    return 0;
}

/* --- making certificates ----------------------------------------------------------------------- */

static int set_serial(X509 *cert)
{
    unsigned char raw[16];
    BIGNUM *n;
    int ok;

    if (RAND_bytes(raw, sizeof raw) != 1)
        return -1;
    raw[0] = (unsigned char)((raw[0] & 0x7f) | 0x40); /* positive, and of full length */
    n = BN_bin2bn(raw, sizeof raw, NULL);
    ok = n && BN_to_ASN1_INTEGER(n, X509_get_serialNumber(cert));
    BN_free(n);
    return ok ? 0 : -1;
}

static int set_name(X509_NAME *name, const char *common)
{
    return X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8, (const unsigned char *)common, -1,
                                      -1, 0) == 1
               ? 0
               : -1;
}

static int add_extension(X509 *cert, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX ctx;
    X509_EXTENSION *ext;
    int ok;

    X509V3_set_ctx_nodb(&ctx);
    X509V3_set_ctx(&ctx, issuer, cert, NULL, NULL, 0);
    ext = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
    ok = ext && X509_add_ext(cert, ext, -1) == 1;
    X509_EXTENSION_free(ext);
    return ok ? 0 : -1;
}

static X509 *cert_begin(EVP_PKEY *key, const char *common, time_t until)
{
    X509 *cert = X509_new();

    if (cert && X509_set_version(cert, X509_VERSION_3) == 1 && !set_serial(cert) &&
        X509_gmtime_adj(X509_getm_notBefore(cert), -BACKDATE_S) &&
        ASN1_TIME_set(X509_getm_notAfter(cert), until) && X509_set_pubkey(cert, key) == 1 &&
        !set_name(X509_get_subject_name(cert), common))
        return cert;
    X509_free(cert);
    return NULL;
}

static int make_ca(struct tls_ca *ca)
{
    ca->key = EVP_EC_gen("P-256");
    ca->cert =
        ca->key ? cert_begin(ca->key, "leasehold internal CA", time(NULL) + (time_t)CA_DAYS * 86400)
                : NULL;
    if (!ca->cert || X509_set_issuer_name(ca->cert, X509_get_subject_name(ca->cert)) != 1 ||
        add_extension(ca->cert, ca->cert, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") ||
        add_extension(ca->cert, ca->cert, NID_key_usage, "critical,keyCertSign,cRLSign") ||
        add_extension(ca->cert, ca->cert, NID_subject_key_identifier, "hash"))
        return -1;
    return X509_sign(ca->cert, ca->key, EVP_sha256()) > 0 ? 0 : -1;
}

/* The name a client connects to, as RFC 6125 wants it: an address is not a DNS name. */
static int add_host(X509 *cert, X509 *issuer, const char *host)
{
    unsigned char address[16];
    bool is_ip = inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1;
    char value[300];

    /* The value is OpenSSL's configuration syntax: a comma would begin another name. */
    if (strpbrk(host, ",;: \n") && !is_ip)
        return -1;
    if ((size_t)snprintf(value, sizeof value, "%s:%s", is_ip ? "IP" : "DNS", host) >= sizeof value)
        return -1;
    return add_extension(cert, issuer, NID_subject_alt_name, value);
}

static X509 *make_leaf(const struct tls_ca *ca, EVP_PKEY *key, const char *common, const char *host,
                       time_t until)
{
    X509 *cert = cert_begin(key, common, until);

    if (cert && X509_set_issuer_name(cert, X509_get_subject_name(ca->cert)) == 1 &&
        !add_extension(cert, ca->cert, NID_basic_constraints, "critical,CA:FALSE") &&
        !add_extension(cert, ca->cert, NID_key_usage, "critical,digitalSignature") &&
        !add_extension(cert, ca->cert, NID_ext_key_usage, "serverAuth") &&
        !add_extension(cert, ca->cert, NID_authority_key_identifier, "keyid:always") &&
        !add_host(cert, ca->cert, host) && X509_sign(cert, ca->key, EVP_sha256()) > 0)
        return cert;
    X509_free(cert);
    return NULL;
}

int tls_ca_issue(const struct tls_ca *ca, const struct id *session_id, const char *host,
                 int64_t until_ms, struct buf *cert_pem, struct buf *key_pem,
                 char sha256[static TLS_SHA256_TEXT], struct err *e)
{
    EVP_PKEY *key;
    X509 *cert;
    int rc;

    if (!ca->cert) {
        buf_add(cert_pem, ca->file_cert.data, ca->file_cert.len);
        buf_add(key_pem, ca->file_key.data, ca->file_key.len);
        memcpy(sha256, ca->file_sha256, TLS_SHA256_TEXT);
        return buf_ok(cert_pem) && buf_ok(key_pem) ? 0 : tls_fail(e, "no memory");
    }
    key = EVP_EC_gen("P-256");
    cert = key ? make_leaf(ca, key, ID_STR(session_id), host, (time_t)(until_ms / 1000)) : NULL;
    rc = cert && !cert_to_pem(cert, cert_pem) && !key_to_pem(key, key_pem) &&
                 !fingerprint(cert, sha256)
             ? 0
             : tls_fail(e, "a certificate could not be made; is door.public_host a host name?");
    X509_free(cert);
    EVP_PKEY_free(key);
    return rc;
}

/* --- life -------------------------------------------------------------------------------------- */

static int ca_paths(const struct config *cfg, char cert[static 4096], char key[static 4096],
                    struct err *e)
{
    if ((size_t)snprintf(cert, 4096, "%s/" CA_CERT_FILE, cfg->dir) >= 4096 ||
        (size_t)snprintf(key, 4096, "%s/" TLS_CA_KEY_FILE, cfg->dir) >= 4096)
        return tls_fail(e, "the configuration's path is too long");
    return 0;
}

static int ca_store(const struct tls_ca *ca, const char *cert_path, const char *key_path,
                    struct err *e)
{
    struct buf cert, key;
    int rc;

    buf_init(&cert, TLS_PEM_MAX);
    buf_init(&key, TLS_PEM_MAX);
    rc = cert_to_pem(ca->cert, &cert) || key_to_pem(ca->key, &key)
             ? tls_fail(e, "the CA could not be written")
             : 0;
    /* The key first: a certificate that stands there has its key. */
    if (!rc)
        rc = write_file(key_path, &key, 0600, e) || write_file(cert_path, &cert, 0644, e) ? -1 : 0;
    if (key.data)
        explicit_bzero(key.data, key.size);
    buf_done(&cert);
    buf_done(&key);
    return rc;
}

static int pem_parse(const struct buf *cert, const struct buf *key, X509 **ret_cert,
                     EVP_PKEY **ret_key)
{
    BIO *c = BIO_new_mem_buf(cert->data, (int)cert->len);
    BIO *k = BIO_new_mem_buf(key->data, (int)key->len);

    *ret_cert = c ? PEM_read_bio_X509(c, NULL, NULL, NULL) : NULL;
    *ret_key = k ? PEM_read_bio_PrivateKey(k, NULL, NULL, (void *)(uintptr_t) "") : NULL;
    BIO_free(c);
    BIO_free(k);
    return *ret_cert && *ret_key && X509_check_private_key(*ret_cert, *ret_key) == 1 ? 0 : -1;
}

static int pair_load(struct tls_ca *ca, const char *cert_path, const char *key_path, struct err *e)
{
    if (read_file(cert_path, &ca->file_cert, e) || read_file(key_path, &ca->file_key, e))
        return -1;
    if (pem_parse(&ca->file_cert, &ca->file_key, &ca->cert, &ca->key))
        return err_set(e, ERR_INTERNAL, "door.tls: %s and %s are no certificate with its key",
                       cert_path, key_path);
    return 0;
}

/* The texts of all certificates that the file has, or of the one that was just made. */
static int authorities_read(struct tls_ca *ca, struct err *e)
{
    BIO *in =
        ca->file_cert.len ? BIO_new_mem_buf(ca->file_cert.data, (int)ca->file_cert.len) : NULL;
    X509 *cert = in ? PEM_read_bio_X509(in, NULL, NULL, NULL) : NULL; /* the first is its own */
    struct buf pem;
    int rc;

    buf_init(&pem, TLS_PEM_MAX);
    rc = cert_to_pem(ca->cert, &pem);
    X509_free(cert);
    while (!rc && in && (cert = PEM_read_bio_X509(in, NULL, NULL, NULL))) {
        rc = cert_to_pem(cert, &pem);
        X509_free(cert);
    }
    BIO_free(in);
    ca->pem = rc ? NULL : strndup(pem.data, pem.len);
    buf_done(&pem);
    return ca->pem ? 0 : tls_fail(e, "no memory, or too many certificates in " CA_CERT_FILE);
}

static int internal_ca_open(struct tls_ca *ca, const struct config *cfg, struct err *e)
{
    char cert_path[4096], key_path[4096], dir[4096];
    int rc = 0;

    if (ca_paths(cfg, cert_path, key_path, e))
        return -1;
    snprintf(dir, sizeof dir, "%s/certs", cfg->dir);
    if (mkdir(dir, 0700) && errno != EEXIST)
        return err_sys(e, ERR_INTERNAL, errno, "door.tls: make %s", dir);
    if (!access(cert_path, F_OK))
        rc = pair_load(ca, cert_path, key_path, e);
    else
        rc = make_ca(ca) ? tls_fail(e, "the CA could not be made")
                         : ca_store(ca, cert_path, key_path, e);
    return rc ? -1 : authorities_read(ca, e);
}

static int files_open(struct tls_ca *ca, const struct config *cfg, struct err *e)
{
    if (pair_load(ca, cfg->door.cert_file, cfg->door.key_file, e))
        return -1;
    if (fingerprint(ca->cert, ca->file_sha256))
        return tls_fail(e, "the certificate has no fingerprint");
    X509_free(ca->cert);
    ca->cert = NULL; /* it signs nothing */
    return 0;
}

int tls_ca_new(const struct config *cfg, struct tls_ca **ret, struct err *e)
{
    struct tls_ca *ca;
    int rc;

    *ret = NULL;
    if (cfg->door.tls == DOOR_TLS_OFF)
        return 0;
    ca = calloc(1, sizeof *ca);
    if (!ca)
        return tls_fail(e, "no memory");
    buf_init(&ca->file_cert, TLS_PEM_MAX);
    buf_init(&ca->file_key, TLS_PEM_MAX);
    rc = cfg->door.tls == DOOR_TLS_FILES ? files_open(ca, cfg, e) : internal_ca_open(ca, cfg, e);
    if (rc) {
        tls_ca_free(ca);
        return -1;
    }
    *ret = ca;
    return 0;
}

/* An internal CA that is not there yet is made at the start: there is nothing to refuse. */
int tls_ca_check(const struct config *cfg, struct err *e)
{
    char cert_path[4096], key_path[4096];
    struct tls_ca *ca;
    int rc;

    if (cfg->door.tls == DOOR_TLS_INTERNAL_CA) {
        if (ca_paths(cfg, cert_path, key_path, e))
            return -1;
        if (access(cert_path, F_OK))
            return 0;
    }
    rc = tls_ca_new(cfg, &ca, e);
    if (!rc)
        tls_ca_free(ca);
    return rc;
}

/* Clients of doors that run have to go on trusting the former CA, also behind a restart: it is written
 * behind the new one, for the operator to take out. */
static int authorities_keep(struct tls_ca *ca, const struct tls_ca *before,
                            const struct config *cfg, struct err *e)
{
    char cert_path[4096], key_path[4096];
    struct buf pem;
    int rc;

    if (ca_paths(cfg, cert_path, key_path, e))
        return -1;
    buf_init(&pem, TLS_PEM_MAX);
    buf_add_str(&pem, ca->pem);
    if (!strstr(ca->pem, before->pem))
        buf_add_str(&pem, before->pem);
    rc = buf_ok(&pem) ? write_file(cert_path, &pem, 0644, e)
                      : tls_fail(e, "too many certificates in " CA_CERT_FILE);
    if (!rc) {
        free(ca->pem);
        ca->pem = strndup(pem.data, pem.len);
        rc = ca->pem ? 0 : tls_fail(e, "no memory");
    }
    buf_done(&pem);
    return rc;
}

int tls_ca_renew(const struct config *cfg, struct tls_ca **ca, struct err *e)
{
    struct tls_ca *fresh;
    bool internal = cfg->door.tls == DOOR_TLS_INTERNAL_CA;
    bool same;
    int rc = 0;

    if (cfg->door.tls == DOOR_TLS_OFF)
        return 0;
    if (tls_ca_new(cfg, &fresh, e))
        return -1;
    same = internal && !X509_cmp(fresh->cert, (*ca)->cert);
    if (internal && !same)
        rc = authorities_keep(fresh, *ca, cfg, e);
    if (rc || (same && !strcmp(fresh->pem, (*ca)->pem))) {
        tls_ca_free(fresh);
        return rc;
    }
    fresh->before = *ca;
    *ca = fresh;
    return 0;
}

static void free_one(struct tls_ca *ca)
{
    X509_free(ca->cert);
    EVP_PKEY_free(ca->key);
    free(ca->pem);
    if (ca->file_key.data)
        explicit_bzero(ca->file_key.data, ca->file_key.size);
    buf_done(&ca->file_cert);
    buf_done(&ca->file_key);
    free(ca);
}

void tls_ca_free(struct tls_ca *ca)
{
    while (ca) {
        struct tls_ca *before = ca->before;

        free_one(ca);
        ca = before;
    }
}

const char *tls_ca_pem(const struct tls_ca *ca)
{
    return ca ? ca->pem : NULL;
}
