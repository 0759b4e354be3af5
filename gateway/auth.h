/*
 * Who calls: API keys `lhk_<key_id>_<secret>`, kept as SHA-256 of the secret; the JWTs of an issuer
 * and client certificates, where the configuration knows any. All stand in memory, so that a check
 * costs no look-up and a revocation counts at once. Loop thread.
 */
#ifndef GATEWAY_AUTH_H
#define GATEWAY_AUTH_H

#include "leasehold/config.h"
#include "leasehold/model.h"
#include "leasehold/store.h"

struct auth;

/* Reads the issuer's keys, if there is one. */
int auth_new(const struct config *cfg, struct auth **ret, struct err *e) MUST_CHECK;
void auth_free(struct auth *a);

/* Reads the issuer's keys anew; on failure they stay what they were. Tokens are checked again, but for
 * those of connections that are open: they hold until they expire. */
int auth_renew(struct auth *a, struct err *e) MUST_CHECK;

int auth_load(struct auth *a, struct store *store, struct err *e) MUST_CHECK; /* before the loop */
int auth_put(struct auth *a, const struct api_key *key, struct err *e) MUST_CHECK; /* copies */

/* What a caller comes with; "" if not. */
struct auth_proof {
    const char *credential; /* a key or a JWT; the first of the two that counts */
    const char
        *certificate; /* names in the client's certificate, which was verified, a line each */
};

/* Fills *ret (lists in the arena). ERR_UNAUTHENTICATED. */
int auth_check(struct auth *a, const struct auth_proof *p, int64_t now_ms, struct arena *arena,
               struct caller *ret, struct err *e) MUST_CHECK;

/* For a connection that has proved its key once: whether the key still holds, and what it may now. */
bool auth_usable(const struct auth *a, const struct id *key_id, int64_t now_ms);
/* May it see now what is this user's? Zero: what is nobody's. */
bool auth_sees(const struct auth *a, const struct id *key_id, int64_t now_ms,
               const struct id *user_id);
int auth_caller(struct auth *a, const struct id *key_id, int64_t now_ms, struct arena *arena,
                struct caller *ret, struct err *e) MUST_CHECK;

/* One more, one less WebSocket of the key. ERR_BUSY: it has so many already. */
int auth_connect(struct auth *a, const struct id *key_id, size_t most, struct err *e) MUST_CHECK;
void auth_disconnect(struct auth *a, const struct id *key_id);

/* Does the store know this identity as it is now? Of keys it does; another's is to be recorded before
 * anything is done in its name (identity.h). */
bool auth_recorded(const struct auth *a, const struct id *key_id);
int auth_copy(const struct auth *a, const struct id *key_id, struct arena *arena,
              struct api_key *ret, struct err *e) MUST_CHECK;

int64_t auth_used_ms(const struct auth *a, const struct id *key_id); /* in this life; 0: not */

/* Those whose last use the store should learn of; they count as saved. */
struct auth_use {
    struct id key_id;
    int64_t at_ms;
};
size_t auth_take_used(struct auth *a, struct auth_use *ret, size_t max);

#define CREDENTIAL_MAX 8192 /* of a JWT */

#define API_KEY_TEXT 96 /* room for a key's text */

/* Makes a key's secret: fills key->key_id and key->secret_hash, writes the text the caller sees
 * once. Any thread. */
int auth_key_generate(struct api_key *key, char text[static API_KEY_TEXT],
                      struct err *e) MUST_CHECK;

#endif
