/*
 * The keys that sign leases: next → signing → retired → gone, or killed. Rows say which key is in
 * which state, files in keys/ hold the private halves, and services.keys is the set made of both.
 *
 * A set is constant. A change makes a new one, which takes the place of the former right behind the
 * commit and before any later write runs, so that what a write issues is signed by a key that the
 * rows know as signing. The former set is freed by a later change, GRACE_S after it was replaced:
 * whoever took it from services.keys uses it for no longer than it takes to sign or verify.
 */
#ifndef GATEWAY_SIGNING_KEYS_H
#define GATEWAY_SIGNING_KEYS_H

#include "op.h"
#include "services.h"

struct signing_keys;

struct signing_keys *signing_keys_new(struct services *s);
void signing_keys_free(struct signing_keys *sk);

/* At start: the rows, made from the file of `init` at the first. Sets services.keys. */
int signing_keys_load(struct signing_keys *sk, struct err *e) MUST_CHECK;

/* Writer thread, behind a commit with CHANGE_KEYS. */
void signing_keys_committed(struct signing_keys *sk);

/* FILE lane; the call is whose it is. */
int signing_keys_rotate(struct signing_keys *sk, struct call *c, struct err *e) MUST_CHECK;

/* ERR_NOT_FOUND. *ret_revoked: leases that were ended. */
int signing_keys_kill(struct signing_keys *sk, struct call *c, const char *kid,
                      int64_t *ret_revoked, struct err *e) MUST_CHECK;

/* Loop, now and then: retired keys whose tokens have all run out go. */
void signing_keys_cleanup(struct signing_keys *sk);

#endif
