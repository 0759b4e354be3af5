#include "audit_block.h"

#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIELDS    (2 + AUDIT_TEXTS)
#define PREFIX    4
#define DIGITS    24
#define NO_NUMBER (-1)

struct audit_hasher {
    EVP_MD_CTX *md;
};

struct audit_hasher *audit_hasher_new(struct err *e)
{
    struct audit_hasher *h = calloc(1, sizeof(*h));
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    if (h == NULL || md == NULL || EVP_DigestInit_ex(md, EVP_sha256(), NULL) != 1) {
        EVP_MD_CTX_free(md);
        free(h);
        err_set(e, ERR_INTERNAL, "no memory for the audit hash");
        return NULL;
    }
    h->md = md;
    return h;
}

void audit_hasher_free(struct audit_hasher *h)
{
    if (h != NULL) {
        EVP_MD_CTX_free(h->md);
        free(h);
    }
}

/* Without naming the digest again, which would have it looked up again. */
static int hash_of(struct audit_hasher *h, const uint8_t *data, size_t len,
                   uint8_t ret[static AUDIT_HASH], struct err *e)
{
    if (EVP_DigestInit_ex(h->md, NULL, NULL) != 1 || EVP_DigestUpdate(h->md, data, len) != 1 ||
        EVP_DigestFinal_ex(h->md, ret, NULL) != 1) {
        return err_set(e, ERR_INTERNAL, "the audit hash cannot be computed");
    }
    return 0;
}

/* --- writing ---------------------------------------------------------------------------------- */

static void add_field(struct buf *b, const char *s, size_t len)
{
    const uint8_t prefix[PREFIX] = {(uint8_t)(len >> 24), (uint8_t)(len >> 16), (uint8_t)(len >> 8),
                                    (uint8_t)len};
    buf_add(b, prefix, sizeof(prefix));
    buf_add(b, s, len);
}

/* A number has fewer digits than the last byte of its prefix can tell. */
static void add_number(struct buf *b, int64_t v)
{
    const uint8_t prefix[PREFIX] = {0};
    buf_add(b, prefix, sizeof(prefix));
    size_t from = b->len;
    buf_add_int(b, v);
    if (buf_ok(b)) {
        b->data[from - 1] = (char)(b->len - from);
    }
}

int audit_block_add(struct audit_hasher *h, struct buf *block, const struct audit_record *r,
                    uint8_t ret_hash[static AUDIT_HASH], struct err *e)
{
    size_t from = block->len - AUDIT_HASH;
    add_number(block, r->n);
    add_number(block, r->at);
    for (int i = 0; i < AUDIT_TEXTS; i++) {
        add_field(block, r->texts[i], r->lens[i]);
    }
    if (!buf_ok(block)) {
        return err_set(e, ERR_INTERNAL, "no memory for an audit entry");
    }
    if (hash_of(h, (const uint8_t *)block->data + from, block->len - from, ret_hash, e) != 0) {
        return -1;
    }
    buf_add(block, ret_hash, AUDIT_HASH);
    return buf_ok(block) ? 0 : err_set(e, ERR_INTERNAL, "no memory for an audit entry");
}

/* --- reading ---------------------------------------------------------------------------------- */

static bool take_field(struct audit_cursor *c, const char **ret, size_t *ret_len)
{
    const uint8_t *p = c->data + c->at;
    if (c->len - c->at < PREFIX) {
        return false;
    }
    size_t len = (size_t)p[0] << 24 | (size_t)p[1] << 16 | (size_t)p[2] << 8 | p[3];
    if (len > c->len - c->at - PREFIX) {
        return false;
    }
    *ret = (const char *)p + PREFIX;
    *ret_len = len;
    c->at += PREFIX + len;
    return true;
}

/* A number as it is written, and in no other way. */
static int64_t number_of(const char *s, size_t len)
{
    char text[DIGITS], again[DIGITS];
    if (len == 0 || len >= sizeof(text)) {
        return NO_NUMBER;
    }
    memcpy(text, s, len);
    text[len] = '\0';
    int64_t v = strtoll(text, NULL, 10);
    snprintf(again, sizeof(again), "%" PRId64, v);
    return strcmp(text, again) == 0 ? v : NO_NUMBER;
}

bool audit_cursor_next(struct audit_cursor *c, struct audit_record *ret_record,
                       const uint8_t **ret_entry, size_t *ret_len)
{
    struct audit_cursor next = *c;
    const char *fields[FIELDS];
    size_t lens[FIELDS];
    next.at = next.at == 0 ? AUDIT_HASH : next.at;
    if (next.at >= next.len) {
        return false;
    }
    const uint8_t *entry = next.data + next.at;
    for (int i = 0; i < FIELDS; i++) {
        if (!take_field(&next, &fields[i], &lens[i])) {
            return false;
        }
    }
    size_t len = (size_t)(next.data + next.at - entry);
    if (next.len - next.at < AUDIT_HASH) {
        return false;
    }
    next.at += AUDIT_HASH;
    *ret_record = (struct audit_record){.n = number_of(fields[0], lens[0]),
                                        .at = number_of(fields[1], lens[1])};
    memcpy(ret_record->texts, fields + 2, sizeof(ret_record->texts));
    memcpy(ret_record->lens, lens + 2, sizeof(ret_record->lens));
    *ret_entry = entry;
    *ret_len = len;
    *c = next;
    return true;
}

int audit_entry_check(struct audit_hasher *h, const uint8_t *entry, size_t len, bool *ret_whole,
                      struct err *e)
{
    uint8_t expected[AUDIT_HASH];
    if (hash_of(h, entry - AUDIT_HASH, AUDIT_HASH + len, expected, e) != 0) {
        return -1;
    }
    *ret_whole = memcmp(entry + len, expected, AUDIT_HASH) == 0;
    return 0;
}
