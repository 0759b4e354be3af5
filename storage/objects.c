#include "leasehold/objects.h"

#include <openssl/evp.h>
#include <string.h>

#include "hex.h"

int objects_key(const char *prefix, const struct id *user_id, const struct id *chat_id,
                const struct id *artifact_id, struct buf *ret, struct err *e)
{
    buf_reset(ret);
    buf_printf(ret, "%s%s%s/%s/%s", prefix, prefix[0] != '\0' ? "/" : "", ID_STR(user_id),
               ID_STR(chat_id), ID_STR(artifact_id));
    return buf_ok(ret) && ret->len <= OBJECT_KEY_MAX
               ? 0
               : err_set(e, ERR_INTERNAL, "the prefix of objects is too long");
}

/* The hash's own context, under a name that lets no library into the header. */
static EVP_MD_CTX *context_of(struct objects_check *k)
{
    return (EVP_MD_CTX *)(void *)k;
}

struct objects_check *objects_check_new(void)
{
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    if (md != NULL && EVP_DigestInit_ex(md, EVP_sha256(), NULL) != 1) {
        EVP_MD_CTX_free(md);
        md = NULL;
    }
    return (struct objects_check *)(void *)md;
}

void objects_check_free(struct objects_check *k)
{
    EVP_MD_CTX_free(context_of(k));
}

int objects_check_add(struct objects_check *k, const char *data, size_t len, struct err *e)
{
    return EVP_DigestUpdate(context_of(k), data, len) == 1
               ? 0
               : err_set(e, ERR_INTERNAL, "no hash of an object");
}

void objects_check_sum(struct objects_check *k, char ret[static 65])
{
    uint8_t hash[32];
    EVP_DigestFinal_ex(context_of(k), hash, NULL);
    hash_to_hex(hash, ret);
}

int objects_check_end(struct objects_check *k, const char *sha256, struct err *e)
{
    char hex[65];
    objects_check_sum(k, hex);
    return strcmp(hex, sha256) == 0
               ? 0
               : err_set(e, ERR_INTERNAL, "an object is not what was put: its sum differs");
}

static int add_to_sum(void *ctx, const char *data, size_t len, struct err *e)
{
    return objects_check_add(ctx, data, len, e);
}

int objects_sum(struct objects *o, const char *key, char ret[static 65], struct err *e)
{
    struct objects_check *k = objects_check_new();
    const struct object_get g = {.key = key, .len = -1, .ctx = k, .write = add_to_sum};
    int rc = k != NULL ? o->v->get(o, &g, e) : err_set(e, ERR_INTERNAL, "no memory for a hash");
    if (rc == 0) {
        objects_check_sum(k, ret);
    }
    objects_check_free(k);
    return rc;
}
