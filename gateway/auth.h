/*
 * Who calls: API keys `lhk_<key_id>_<secret>`, kept as SHA-256 of the secret. All keys stand in
 * memory, so that a check costs no look-up and a revocation counts at once. Loop thread.
 */
#ifndef GATEWAY_AUTH_H
#define GATEWAY_AUTH_H

#include "leasehold/model.h"
#include "leasehold/store.h"

struct auth;

struct auth *auth_new(void);
void auth_free(struct auth *a);
int auth_load(struct auth *a, struct store *store, struct err *e) MUST_CHECK; /* before the loop */
int auth_put(struct auth *a, const struct api_key *key, struct err *e) MUST_CHECK; /* copies */

/* `credential`: the key itself. Fills *ret (lists in the arena). ERR_UNAUTHENTICATED alike for
 * every reason. */
int auth_check(const struct auth *a, const char *credential, int64_t now_ms, struct arena *arena,
               struct caller *ret, struct err *e) MUST_CHECK;

/* For a connection that has proved its key once: whether the key still holds, and what it may now. */
bool auth_usable(const struct auth *a, const struct id *key_id, int64_t now_ms);
/* May it see now what is this user's? Zero: what is nobody's. */
bool auth_sees(const struct auth *a, const struct id *key_id, int64_t now_ms,
               const struct id *user_id);
int auth_caller(const struct auth *a, const struct id *key_id, int64_t now_ms, struct arena *arena,
                struct caller *ret, struct err *e) MUST_CHECK;

#define API_KEY_TEXT 96 /* room for a key's text */

/* Makes a key's secret: fills key->key_id and key->secret_hash, writes the text the caller sees
 * once. Any thread. */
int auth_key_generate(struct api_key *key, char text[static API_KEY_TEXT],
                      struct err *e) MUST_CHECK;

#endif
