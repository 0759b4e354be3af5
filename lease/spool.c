#include "leasehold/spool.h"

#include <openssl/sha.h>
#include <string.h>

#define MAGIC      "LHS1"
#define MAGIC_LEN  4u
#define AT_LENGTH  4u
#define AT_N       8u
#define AT_TIME    16u
#define AT_ROLE    24u
#define AT_ZEROS   25u
#define AT_AUTHOR  28u
#define AT_TEXT    44u
#define CHECK_LEN  8u
#define MARK_MAGIC "LHSPOOL1"
#define MARK_TAKEN 8u
#define MARK_CHECK 16u

_Static_assert(AT_TEXT + CHECK_LEN == SPOOL_OVERHEAD, "the head and the check");
_Static_assert(MARK_CHECK + CHECK_LEN == SPOOL_MARK, "the mark and its check");

static void put(uint8_t *to, uint64_t v, unsigned bytes)
{
    while (bytes-- > 0) {
        to[bytes] = (uint8_t)v;
        v >>= 8;
    }
}

static uint64_t get(const uint8_t *from, unsigned bytes)
{
    uint64_t v = 0;

    for (unsigned i = 0; i < bytes; i++)
        v = v << 8 | from[i];
    return v;
}

static void check_make(const uint8_t *from, size_t len, uint8_t to[static CHECK_LEN])
{
    uint8_t hash[SHA256_DIGEST_LENGTH];

    SHA256(from, len, hash);
    memcpy(to, hash, CHECK_LEN);
}

static bool check_holds(const uint8_t *from, size_t len)
{
    uint8_t check[CHECK_LEN];

    check_make(from, len, check);
    return memcmp(check, from + len, CHECK_LEN) == 0;
}

void spool_record_write(const struct spool_record *r, uint8_t *to)
{
    memset(to, 0, AT_TEXT);
    memcpy(to, MAGIC, MAGIC_LEN);
    put(to + AT_LENGTH, r->len, 4);
    put(to + AT_N, (uint64_t)r->n, 8);
    put(to + AT_TIME, (uint64_t)r->at, 8);
    to[AT_ROLE] = (uint8_t)r->role;
    memcpy(to + AT_AUTHOR, r->author.b, sizeof(r->author.b));
    if (r->len > 0)
        memcpy(to + AT_TEXT, r->text, r->len);
    check_make(to, AT_TEXT + r->len, to + AT_TEXT + r->len);
}

/* What the checksum cannot tell: a record that is whole may still say what no door says. */
static bool is_sane(const uint8_t *from)
{
    return get(from + AT_N, 8) - 1 < INT64_MAX && get(from + AT_TIME, 8) <= INT64_MAX &&
           from[AT_ROLE] >= SPOOL_USER && from[AT_ROLE] <= SPOOL_GAP &&
           get(from + AT_ZEROS, 3) == 0;
}

enum spool_read spool_record_read(const uint8_t *from, size_t len, struct spool_record *ret,
                                  size_t *ret_size)
{
    size_t magic = len < MAGIC_LEN ? len : MAGIC_LEN, text;

    if (memcmp(from, MAGIC, magic) != 0)
        return SPOOL_BROKEN;
    if (len < AT_TEXT)
        return SPOOL_TORN;
    text = get(from + AT_LENGTH, 4);
    if (text > SPOOL_TEXT_MAX)
        return SPOOL_BROKEN;
    if (len < SPOOL_OVERHEAD + text)
        return SPOOL_TORN;
    if (!check_holds(from, AT_TEXT + text) || !is_sane(from))
        return SPOOL_BROKEN;
    *ret = (struct spool_record){.n = (int64_t)get(from + AT_N, 8),
                                 .at = (int64_t)get(from + AT_TIME, 8),
                                 .role = (enum spool_role)from[AT_ROLE],
                                 .text = (const char *)from + AT_TEXT,
                                 .len = text};
    memcpy(ret->author.b, from + AT_AUTHOR, sizeof(ret->author.b));
    *ret_size = SPOOL_OVERHEAD + text;
    return SPOOL_WHOLE;
}

void spool_mark_write(int64_t taken, uint8_t to[static SPOOL_MARK])
{
    memcpy(to, MARK_MAGIC, MARK_TAKEN);
    put(to + MARK_TAKEN, (uint64_t)taken, 8);
    check_make(to, MARK_CHECK, to + MARK_CHECK);
}

bool spool_mark_read(const uint8_t from[static SPOOL_MARK], int64_t *ret_taken)
{
    uint64_t taken = get(from + MARK_TAKEN, 8);

    if (memcmp(from, MARK_MAGIC, MARK_TAKEN) != 0 || taken < SPOOL_START || taken > INT64_MAX ||
        !check_holds(from, MARK_CHECK))
        return false;
    *ret_taken = (int64_t)taken;
    return true;
}
