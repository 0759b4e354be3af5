/*
 * Links to objects on the disk, served by the gateway: the query says until when and as what, and ends
 * with an HMAC over key and query. Nothing is to be kept of a link.
 */
#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "hex.h"
#include "objects_disk.h"
#include "s3_sign.h"

#define SECRET_FILE ".link-key"
#define SECRET_NEW  ".link-key.new"
#define TEXT_MAX    16384

/* --- the secret ------------------------------------------------------------------------------- */

static int read_secret(int root, uint8_t ret[static DISK_SECRET_LEN])
{
    int fd = openat(root, SECRET_FILE, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        return -1;
    }
    ssize_t n = read(fd, ret, DISK_SECRET_LEN);
    close(fd);
    errno = n < 0 ? errno : ENOENT; /* a cut one is made anew */
    return n == DISK_SECRET_LEN ? 0 : -1;
}

static int write_secret(int root, const uint8_t *secret)
{
    int fd = openat(root, SECRET_NEW, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) {
        return -1;
    }
    bool ok = write(fd, secret, DISK_SECRET_LEN) == DISK_SECRET_LEN && fsync(fd) == 0;
    int sys = errno;
    close(fd);
    errno = sys;
    return ok && renameat(root, SECRET_NEW, root, SECRET_FILE) == 0 ? fsync(root) : -1;
}

int objects_disk_secret(int root, uint8_t ret[static DISK_SECRET_LEN], struct err *e)
{
    if (read_secret(root, ret) == 0) {
        return 0;
    }
    if (errno != ENOENT) {
        return objects_disk_fail(e, "read its key");
    }
    if (RAND_bytes(ret, DISK_SECRET_LEN) != 1) {
        return err_set(e, ERR_INTERNAL, "no random bytes for the object store");
    }
    return write_secret(root, ret) == 0 ? 0 : objects_disk_fail(e, "keep its key");
}

/* --- making ----------------------------------------------------------------------------------- */

static int sign(const struct objects_disk *d, const char *key, const struct buf *query,
                char ret[static HASH_HEX], struct err *e)
{
    struct buf text;
    uint8_t mac[32];
    unsigned len = sizeof(mac);
    buf_init(&text, TEXT_MAX);
    buf_printf(&text, "%s?", key);
    buf_add(&text, query->data, query->len);
    bool ok = buf_ok(&text) && HMAC(EVP_sha256(), d->secret, sizeof(d->secret),
                                    (const unsigned char *)text.data, text.len, mac, &len) != NULL;
    buf_done(&text);
    if (!ok) {
        return err_set(e, ERR_INTERNAL, "no signature of a link");
    }
    hash_to_hex(mac, ret);
    return 0;
}

static void add_param(struct buf *query, const char *name, const char *value)
{
    if (value != NULL) {
        buf_printf(query, "&%s=", name);
        s3_encode(query, value, strlen(value), false);
    }
}

/* What is signed, and stands in the link. */
static int write_query(const struct objects_link *l, struct buf *ret, struct err *e)
{
    buf_printf(ret, "expires=%lld", (long long)l->expires_s);
    add_param(ret, "disposition", l->disposition);
    add_param(ret, "content_type", l->content_type);
    return buf_ok(ret) ? 0 : err_set(e, ERR_INTERNAL, "no memory for a link");
}

int objects_disk_presign(struct objects *o, const struct object_presign *p, struct buf *ret,
                         struct err *e)
{
    const struct objects_link l = {.expires_s = p->now_s + p->expires_s,
                                   .disposition = p->disposition,
                                   .content_type = p->content_type};
    struct buf query;
    char signature[HASH_HEX];
    if (p->expires_s < 1 || p->expires_s > S3_EXPIRES_MAX_S) {
        return err_set(e, ERR_INVALID_REQUEST, "a link lives for 1 to %d seconds",
                       S3_EXPIRES_MAX_S);
    }
    buf_init(&query, TEXT_MAX);
    int rc = write_query(&l, &query, e) || sign(objects_disk_of(o), p->key, &query, signature, e)
                 ? -1
                 : 0;
    if (rc == 0) {
        size_t len = strlen(p->origin);
        buf_add(ret, p->origin, len > 0 && p->origin[len - 1] == '/' ? len - 1 : len);
        buf_add_str(ret, "/objects/");
        s3_encode(ret, p->key, strlen(p->key), true);
        buf_printf(ret, "?%s&signature=%s", query.data, signature);
        rc = buf_ok(ret) ? 0 : err_set(e, ERR_INTERNAL, "no memory for a link");
    }
    buf_done(&query);
    return rc;
}

int objects_disk_link(struct objects *o, const char *key, const struct objects_link *l,
                      int64_t now_s, struct err *e)
{
    struct buf query;
    char want[HASH_HEX];
    buf_init(&query, TEXT_MAX);
    int rc = write_query(l, &query, e) || sign(objects_disk_of(o), key, &query, want, e) ? -1 : 0;
    buf_done(&query);
    if (rc != 0) {
        return -1;
    }
    bool holds = strlen(l->signature) == sizeof(want) - 1 &&
                 CRYPTO_memcmp(want, l->signature, sizeof(want)) == 0 && now_s < l->expires_s;
    return holds ? 0 : err_set(e, ERR_FORBIDDEN, "the link does not hold, or no more");
}
