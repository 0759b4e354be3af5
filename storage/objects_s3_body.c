/*
 * What a request carries: memory, or a range of what is put, read by place as often as it is sent. With
 * that a part costs no memory, however long it is.
 */
#include <openssl/evp.h>
#include <stdlib.h>

#include "hex.h"
#include "objects_s3.h"

#define PIECE_BYTES (256u * 1024)

/* The next bytes; never 0 before the end. */
static ssize_t read_next(struct s3_reading *x, char *ret, size_t size)
{
    const struct s3_range *r = x->range;
    int64_t left = r->len - x->done;
    size_t want = left < (int64_t)size ? (size_t)left : size;
    ssize_t n = want > 0 ? r->p->read_at(r->p->ctx, ret, want, r->at + x->done, &x->e) : 0;
    if (n == 0 && want > 0) {
        n = err_set(&x->e, ERR_INVALID_REQUEST, "less comes than was said");
    }
    x->failed = n < 0;
    x->done += n > 0 ? n : 0;
    return n;
}

static ssize_t on_read(void *ctx, char *ret, size_t size)
{
    return read_next(ctx, ret, size);
}

static int on_rewind(void *ctx)
{
    struct s3_reading *x = ctx;
    x->done = 0;
    return 0;
}

void s3_reading_begin(struct s3_reading *x, const struct s3_range *r)
{
    *x = (struct s3_reading){.range = r};
    x->source =
        (struct http_client_source){.ctx = x, .read = on_read, .rewind = on_rewind, .len = r->len};
}

/* --- sums --------------------------------------------------------------------------------------- */

static int sum_pieces(EVP_MD_CTX *md, const struct s3_range *r, char *piece, struct err *e)
{
    struct s3_reading x;
    ssize_t n;
    s3_reading_begin(&x, r);
    while ((n = read_next(&x, piece, PIECE_BYTES)) > 0) {
        if (EVP_DigestUpdate(md, piece, (size_t)n) != 1) {
            return err_set(e, ERR_INTERNAL, "no hash of a part");
        }
    }
    if (n < 0) {
        *e = x.e;
    }
    return n < 0 ? -1 : 0;
}

static int sum_range(const struct s3_range *r, uint8_t ret[static 32], struct err *e)
{
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    char *piece = malloc(PIECE_BYTES);
    int rc = -1;
    if (md == NULL || piece == NULL || EVP_DigestInit_ex(md, EVP_sha256(), NULL) != 1) {
        err_fill_code(e, ERR_INTERNAL, "no memory for the hash of a part");
    } else if (sum_pieces(md, r, piece, e) == 0) {
        rc = EVP_DigestFinal_ex(md, ret, NULL) == 1 ? 0
                                                    : err_set(e, ERR_INTERNAL, "no hash of a part");
    }
    free(piece);
    EVP_MD_CTX_free(md);
    return rc;
}

int s3_body_sum(const struct s3_range *r, const char *data, size_t len, char ret[static 65],
                struct err *e)
{
    uint8_t hash[32];
    int rc = r != NULL ? sum_range(r, hash, e) : 0;
    if (r == NULL && EVP_Digest(data, len, hash, NULL, EVP_sha256(), NULL) != 1) {
        rc = err_set(e, ERR_INTERNAL, "no hash of an object");
    }
    if (rc == 0) {
        hash_to_hex(hash, ret);
    }
    return rc;
}
