/* Shared by the files of auth.h: auth.c (API keys), auth_foreign.c (identities of others). */
#ifndef GATEWAY_AUTH_STATE_H
#define GATEWAY_AUTH_STATE_H

#include <uthash.h>

#include "auth.h"
#include "auth_jwt.h"

struct entry {
    struct api_key key;
    struct id *users; /* key.allowed_users.items, owned */
    bool unrecorded;  /* the store does not know it, or not what it may now */
    uint64_t version; /* another with each change */
    int64_t used_ms;  /* when it was proved last, in this life */
    size_t connections;
    UT_hash_handle hh;
};

struct proved;

struct auth {
    const struct config *cfg;
    struct jwt_trust *trust; /* NULL: no issuer */
    struct entry *entries;
    struct proved *proved;    /* tokens that were checked before */
    struct evp_md_st *sha256; /* fetched once: that costs as much as a sum */
    uint64_t last_version;
};

struct entry *auth_entry_find(const struct auth *a, const struct id *key_id);
bool auth_entry_usable(const struct entry *en, int64_t now_ms);
int auth_fill(struct entry *en, int64_t now_ms, struct arena *arena, struct caller *ret,
              struct err *e) MUST_CHECK;

/* auth_foreign.c */
int auth_check_jwt(struct auth *a, const char *token, int64_t now_ms, struct arena *arena,
                   struct caller *ret, struct err *e) MUST_CHECK;
int auth_check_certificate(struct auth *a, const char *names, int64_t now_ms, struct arena *arena,
                           struct caller *ret, struct err *e) MUST_CHECK;
void auth_forget_proved(struct auth *a);

#endif
