#include "leasehold/proof.h"

#include <stdio.h>
#include <string.h>

#include "p256.h"

/* Exactly `size` bytes of canonical base64url. */
static bool decode_exact(const char *text, uint8_t *out, size_t size)
{
    size_t len;

    return base64url_decode(text, strlen(text), out, size, &len) == 0 && len == size;
}

/* Returns new; NULL if it is no point of the curve or not the key that `jkt` names. */
static struct p256_key *key_of(const struct proof *proof, const char *jkt)
{
    uint8_t x[P256_COORD_BYTES], y[P256_COORD_BYTES];
    struct key_public described;
    struct p256_key *key = NULL;

    if (decode_exact(proof->x, x, sizeof(x)) && decode_exact(proof->y, y, sizeof(y)))
        key = p256_key_from_point(x, y);
    /* A thumbprint is public: nothing to hide from a clock. */
    if (key && p256_key_describe(key, &described) && strcmp(described.kid, jkt) == 0)
        return key;
    p256_key_free(key);
    return NULL;
}

bool proof_verify(const struct proof *proof, const char *jkt, const char *nonce,
                  const struct id *session_id, const struct id *lease_id)
{
    char said[PROOF_NONCE_TEXT + 2 * ID_TEXT];
    uint8_t sig[P256_SIG_BYTES];
    struct p256_key *key;
    bool good;
    int len;

    len = snprintf(said, sizeof(said), "%s.%s.%s", nonce, ID_STR(session_id), ID_STR(lease_id));
    if (len < 0 || (size_t)len >= sizeof(said) || !decode_exact(proof->sig, sig, sizeof(sig)))
        return false;
    key = key_of(proof, jkt);
    good = key && p256_verify(key, said, (size_t)len, sig);
    p256_key_free(key);
    return good;
}
