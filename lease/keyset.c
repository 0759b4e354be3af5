#include "keyset.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "leasehold/owned_file.h"

#define KEYSET_MAX 64   /* signing, next, and those retired within ttl_max + skew: a handful */
#define PEM_MAX    8192 /* a P-256 key takes 241 bytes; comments around it are allowed */

struct entry {
    struct key_public pub;
    bool private;
    struct p256_key *key;
};

struct keyset {
    size_t n;
    const struct entry *signing;
    struct entry entries[KEYSET_MAX];
};

struct keyset *keyset_new(void)
{
    return calloc(1, sizeof(struct keyset));
}

void keyset_free(struct keyset *ks)
{
    if (ks == NULL)
        return;
    for (size_t i = 0; i < ks->n; i++)
        p256_key_free(ks->entries[i].key);
    free(ks);
}

/* Returns ks->n if there is none. */
static size_t find_index(const struct keyset *ks, const char *kid)
{
    size_t i = 0;
    while (i < ks->n && strcmp(ks->entries[i].pub.kid, kid) != 0)
        i++;
    return i;
}

/* Takes key, also when it fails. The private half replaces the public one, never the reverse. */
static int add_entry(struct keyset *ks, struct p256_key *key, const struct key_public *pub,
                     bool signing, struct err *e)
{
    size_t i = find_index(ks, pub->kid);
    if (i < ks->n && !signing) {
        p256_key_free(key);
        return 0;
    }
    if (i == KEYSET_MAX) {
        p256_key_free(key);
        return err_set(e, ERR_CONFLICT, "a key set holds at most %d keys", KEYSET_MAX);
    }
    if (i == ks->n)
        ks->n++;
    p256_key_free(ks->entries[i].key);
    ks->entries[i] = (struct entry){.pub = *pub, .private = signing, .key = key};
    if (signing)
        ks->signing = &ks->entries[i];
    return 0;
}

/* --- files --------------------------------------------------------------------------------- */

static int write_all(int fd, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, data, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        data += n;
        len -= (size_t)n;
    }
    return fsync(fd);
}

static int sync_folder_of(const char *path)
{
    char copy[PATH_MAX];
    snprintf(copy, sizeof copy, "%s", path);
    int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    int rc = fsync(fd);
    close(fd);
    return rc;
}

/* link() is the one call that names a whole file atomically and refuses to replace another. */
static int write_new_file(const char *path, const char *data, size_t len, struct err *e)
{
    char temp[PATH_MAX];
    if ((size_t)snprintf(temp, sizeof temp, "%s.XXXXXX", path) >= sizeof temp)
        return err_set(e, ERR_INTERNAL, "the name of the key file is too long");
    int fd = mkostemp(temp, O_CLOEXEC);
    if (fd < 0)
        return err_sys(e, ERR_INTERNAL, errno, "cannot write key file %s", path);

    int sys = 0;
    if (fchmod(fd, 0600) < 0 || owned_give(fd, path) < 0 || write_all(fd, data, len) < 0 ||
        link(temp, path) < 0)
        sys = errno;
    close(fd);
    unlink(temp);
    if (sys == 0 && sync_folder_of(path) < 0)
        sys = errno;
    if (sys == EEXIST)
        return err_set(e, ERR_CONFLICT, "key file %s exists already", path);
    return sys == 0 ? 0 : err_sys(e, ERR_INTERNAL, sys, "cannot write key file %s", path);
}

int keyset_generate_file(const char *path, struct err *e)
{
    char pem[PEM_MAX];
    size_t len = p256_generate_pem(pem, sizeof pem);
    int rc = len > 0 ? write_new_file(path, pem, len, e)
                     : err_set(e, ERR_INTERNAL, "cannot make a key for %s", path);
    explicit_bzero(pem, sizeof pem);
    return rc;
}

/* Returns the bytes read, at most size; -1 with errno. */
static ssize_t read_all(int fd, char *data, size_t size)
{
    size_t len = 0;
    while (len < size) {
        ssize_t n = read(fd, data + len, size - len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        if (n == 0)
            break;
        len += (size_t)n;
    }
    return (ssize_t)len;
}

static int read_pem(const char *path, char *pem, size_t size, size_t *ret_len, struct err *e)
{
    struct stat st;
    /* Non-blocking, so that a FIFO in the key's place is refused below and not waited for. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return err_sys(e, ERR_INTERNAL, errno, "cannot read key file %s", path);
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > (off_t)size) {
        close(fd);
        return err_set(e, ERR_INTERNAL, "key file %s is not a small regular file", path);
    }
    ssize_t len = read_all(fd, pem, size);
    int sys = errno;
    close(fd);
    if (len < 0)
        return err_sys(e, ERR_INTERNAL, sys, "cannot read key file %s", path);
    *ret_len = (size_t)len;
    return 0;
}

int keyset_add_signing_file(struct keyset *ks, const char *path, struct err *e)
{
    char pem[PEM_MAX];
    size_t len = 0;
    struct key_public pub;

    if (read_pem(path, pem, sizeof pem, &len, e) < 0) {
        explicit_bzero(pem, sizeof pem);
        return -1;
    }
    struct p256_key *key = p256_key_from_pem(pem, len);
    explicit_bzero(pem, sizeof pem);
    if (key == NULL || !p256_key_describe(key, &pub)) {
        p256_key_free(key);
        return err_set(e, ERR_INTERNAL,
                       "key file %s does not hold an unencrypted P-256 private key in PEM", path);
    }
    pub.retired_at = 0;
    return add_entry(ks, key, &pub, true, e);
}

/* --- public keys --------------------------------------------------------------------------- */

static bool read_coord(const char text[static TOKEN_KID_TEXT], uint8_t out[static P256_COORD_BYTES])
{
    size_t len;
    return base64url_decode(text, strnlen(text, TOKEN_KID_TEXT), out, P256_COORD_BYTES, &len) ==
               0 &&
           len == P256_COORD_BYTES;
}

int keyset_add_public(struct keyset *ks, const struct key_public *key, struct err *e)
{
    uint8_t x[P256_COORD_BYTES], y[P256_COORD_BYTES];
    struct key_public pub;

    if (!read_coord(key->x, x) || !read_coord(key->y, y))
        return err_set(e, ERR_INVALID_REQUEST, "a coordinate is not 32 bytes of base64url");
    struct p256_key *point = p256_key_from_point(x, y);
    if (point == NULL || !p256_key_describe(point, &pub)) {
        p256_key_free(point);
        return err_set(e, ERR_INVALID_REQUEST, "the key is not a point of P-256");
    }
    if (strncmp(pub.kid, key->kid, sizeof pub.kid) != 0) {
        p256_key_free(point);
        return err_set(e, ERR_INVALID_REQUEST, "the kid is not the thumbprint of the key");
    }
    pub.retired_at = key->retired_at;
    return add_entry(ks, point, &pub, false, e);
}

int keyset_sign_with(struct keyset *ks, const char *kid, struct err *e)
{
    size_t i = find_index(ks, kid);

    if (i == ks->n || !ks->entries[i].private)
        return err_set(e, ERR_INTERNAL, "the private half of the signing key is not there");
    ks->signing = &ks->entries[i];
    return 0;
}

bool keyset_vouches(const struct keyset *ks, const char *kid, int64_t iat)
{
    size_t i = find_index(ks, kid);

    return i < ks->n &&
           (ks->entries[i].pub.retired_at == 0 || iat <= ks->entries[i].pub.retired_at);
}

size_t keyset_count(const struct keyset *ks)
{
    return ks->n;
}

void keyset_get(const struct keyset *ks, size_t i, struct key_public *ret)
{
    *ret = ks->entries[i].pub;
}

const char *keyset_signing_kid(const struct keyset *ks)
{
    return ks->signing != NULL ? ks->signing->pub.kid : NULL;
}

const struct p256_key *keyset_signing_key(const struct keyset *ks)
{
    return ks->signing != NULL ? ks->signing->key : NULL;
}

const struct p256_key *keyset_find(const struct keyset *ks, const char *kid)
{
    size_t i = find_index(ks, kid);
    return i < ks->n ? ks->entries[i].key : NULL;
}

void keyset_jwks(const struct keyset *ks, struct buf *out)
{
    buf_add_str(out, "{\"keys\":[");
    for (size_t i = 0; i < ks->n; i++) {
        const struct key_public *pub = &ks->entries[i].pub;
        buf_printf(out,
                   "%s{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"%s\",\"y\":\"%s\","
                   "\"use\":\"sig\",\"alg\":\"ES256\",\"kid\":\"%s\"}",
                   i > 0 ? "," : "", pub->x, pub->y, pub->kid);
    }
    buf_add_str(out, "]}");
}
