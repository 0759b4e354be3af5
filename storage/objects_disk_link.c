/*
 * Links to objects on the disk, served by the gateway: the query says until when and as what, and
 * ends with an HMAC over key and query as they stand. Nothing is to be kept of a link.
 */
#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hex.h"
#include "objects_disk.h"
#include "s3_sign.h"

#define SECRET_FILE     ".link-key"
#define SECRET_NEW      ".link-key.new"
#define SIGNATURE_START "&signature="
#define SIGNATURE_LEN   (sizeof(SIGNATURE_START) - 1 + 64)
#define TEXT_MAX        16384

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

static int sign(const struct objects_disk *d, const char *key, const char *query, size_t query_len,
                char ret[static HASH_HEX], struct err *e)
{
    struct buf text;
    uint8_t mac[32];
    unsigned len = sizeof(mac);
    buf_init(&text, TEXT_MAX);
    buf_printf(&text, "%s?", key);
    buf_add(&text, query, query_len);
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

int objects_disk_presign(struct objects *o, const struct object_presign *p, struct buf *ret,
                         struct err *e)
{
    struct buf query;
    char signature[HASH_HEX];
    if (p->expires_s < 1 || p->expires_s > S3_EXPIRES_MAX_S) {
        return err_set(e, ERR_INVALID_REQUEST, "a link lives for 1 to %d seconds",
                       S3_EXPIRES_MAX_S);
    }
    buf_init(&query, TEXT_MAX);
    buf_printf(&query, "expires=%lld", (long long)(p->now_s + p->expires_s));
    add_param(&query, "disposition", p->disposition);
    add_param(&query, "content_type", p->content_type);
    int rc = buf_ok(&query) ? sign(objects_disk_of(o), p->key, query.data, query.len, signature, e)
                            : err_set(e, ERR_INTERNAL, "no memory for a link");
    if (rc == 0) {
        buf_printf(ret, "%s/objects/", p->origin);
        s3_encode(ret, p->key, strlen(p->key), true);
        buf_printf(ret, "?%s" SIGNATURE_START "%s", query.data, signature);
        rc = buf_ok(ret) ? 0 : err_set(e, ERR_INTERNAL, "no memory for a link");
    }
    buf_done(&query);
    return rc;
}

/* --- checking --------------------------------------------------------------------------------- */

static int refuse(struct err *e)
{
    return err_set(e, ERR_FORBIDDEN, "the link does not hold, or no more");
}

static char *decode(const char *s, size_t len, struct arena *arena)
{
    char *text = arena_strndup(arena, s, len), *to = text;
    for (const char *from = text; text != NULL && *from != '\0'; to++) {
        const char digits[] = {from[0] == '%' ? from[1] : '\0', from[0] == '%' ? from[2] : '\0',
                               '\0'};
        *to = digits[0] != '\0' ? (char)strtol(digits, NULL, 16) : *from;
        from += digits[0] != '\0' ? 3 : 1;
    }
    if (text != NULL) {
        *to = '\0';
    }
    return text;
}

/* Only of a query that we have signed ourselves: so it is what objects_disk_presign has written. */
static int read_query(const char *query, size_t len, struct arena *arena, struct objects_link *ret,
                      int64_t *ret_expires, struct err *e)
{
    static const char disposition[] = "disposition=", type[] = "content_type=";
    const char *end = query + len;
    *ret_expires = strtoll(query + sizeof("expires=") - 1, NULL, 10);
    for (const char *amp = memchr(query, '&', len); amp != NULL;) {
        const char *at = amp + 1, *next = memchr(at, '&', (size_t)(end - at));
        size_t n = (size_t)((next != NULL ? next : end) - at);
        bool named = strncmp(at, disposition, sizeof(disposition) - 1) == 0;
        size_t skip = named ? sizeof(disposition) - 1 : sizeof(type) - 1;
        char *text = decode(at + skip, n - skip, arena);
        if (text == NULL) {
            return err_set(e, ERR_INTERNAL, "no memory for a link");
        }
        *(named ? &ret->disposition : &ret->content_type) = text;
        amp = next;
    }
    return 0;
}

int objects_disk_link(struct objects *o, const char *key, const char *query, int64_t now_s,
                      struct arena *arena, struct objects_link *ret, struct err *e)
{
    struct objects_link link = {0};
    char want[HASH_HEX];
    int64_t expires_s;
    size_t len = query != NULL ? strlen(query) : 0;
    if (len < SIGNATURE_LEN ||
        strncmp(query + len - SIGNATURE_LEN, SIGNATURE_START, sizeof(SIGNATURE_START) - 1) != 0) {
        return refuse(e);
    }
    len -= SIGNATURE_LEN;
    if (sign(objects_disk_of(o), key, query, len, want, e) != 0) {
        return -1;
    }
    if (CRYPTO_memcmp(want, query + len + sizeof(SIGNATURE_START) - 1, 64) != 0) {
        return refuse(e);
    }
    if (read_query(query, len, arena, &link, &expires_s, e) != 0) {
        return -1;
    }
    if (now_s >= expires_s) {
        return refuse(e);
    }
    *ret = link;
    return 0;
}
