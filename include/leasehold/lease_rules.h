/*
 * The rules of leases as writes on the store: issue, renew, revoke, expire, close. Each runs inside
 * one store write, so row, log entry and audit entry become durable together, and each declares
 * what the broker has to push (store_emit). There is one revocation path: whatever the cause, a
 * lease ends through lease_end_one or lease_end_session.
 *
 * Writer thread only (inside store_write / store_submit). docs/leases.md is the model.
 */
#ifndef LEASEHOLD_LEASE_RULES_H
#define LEASEHOLD_LEASE_RULES_H

#include "leasehold/config.h"
#include "leasehold/store.h"
#include "leasehold/token.h"

/* Constant after start. */
struct lease_policy {
    const char *issuer, *node;
    int64_t ttl_s, ttl_max_s, max_s, max_connections_cap;
    int64_t skew_s, seal_s;
    int64_t per_user, per_session, global_max; /* open leases */
};

void lease_policy_from_config(const struct config *cfg, struct lease_policy *ret);

struct lease_request {
    struct id user_id;       /* zero: the chat's owner */
    unsigned scope;          /* 0: read and write */
    int64_t ttl_s;           /* 0: the policy's */
    int64_t max_connections; /* 0: 1 */
    enum lease_use use;
    const char *cnf_jkt; /* NULL: anybody who has the token */
};

/* Refuses what the policy does not allow (422 with a pointer below `at`, e.g. "/lease" or ""):
 * can be asked before a sandbox is started. Any thread. */
int lease_request_check(const struct lease_policy *p, const struct lease_request *r, const char *at,
                        struct err *e) MUST_CHECK;

/* Would lease_issue refuse for rights, quota or want of time? The session need not run yet: asked
 * before one is started for the sake of a lease. */
int lease_may_issue(struct store_tx *tx, const struct lease_policy *p, const struct caller *caller,
                    const struct sandbox *session, const struct lease_request *r,
                    struct err *e) MUST_CHECK;

/* Issues a lease for a running session that the caller may see. ERR_SESSION_NOT_RUNNING,
 * ERR_CHAT_NOT_FOUND (user_id is not the chat's owner), ERR_LEASE_QUOTA_EXCEEDED,
 * ERR_SERVICE_NOT_READY (the clock stands behind the store's by more than the skew; lease_renew, too). */
int lease_issue(struct store_tx *tx, const struct lease_policy *p, const char *kid,
                const struct caller *caller, const struct sandbox *session,
                const struct lease_request *r, struct lease *ret, struct err *e) MUST_CHECK;

/* exp' = min(now + ttl, mex). ERR_NOT_FOUND (also: not visible), ERR_LEASE_TERMINAL (ended, or less
 * than a second left). */
int lease_renew(struct store_tx *tx, const struct lease_policy *p, const char *kid,
                const struct caller *caller, const struct id *lease_id, int64_t ttl_s,
                struct lease *ret, struct err *e) MUST_CHECK;

/* The lease if the caller may see it, else ERR_NOT_FOUND. Reads only. */
int lease_visible(struct store_tx *tx, const struct caller *caller, const struct id *lease_id,
                  struct lease *ret, struct err *e) MUST_CHECK;

/* Would its door admit the token now, as far as rows and keys tell? To who may not see the lease no token
 * of it is active. Reads only; *ret is filled only of an active one. */
int lease_introspect(struct store_tx *tx, const struct lease_policy *p, const struct keyset *keys,
                     const struct caller *caller, const char *token, bool *ret_active,
                     struct token_claims *ret, struct err *e) MUST_CHECK;

/* How a lease ends before its time. */
struct lease_ending {
    int code;           /* the door's close code */
    const char *reason; /* revoked_reason */
    const struct caller *caller;
};

/* Revokes one lease; *ret_changed is false when it had ended or was ending already (no error). */
int lease_end_one(struct store_tx *tx, const struct lease *l, const struct lease_ending *how,
                  bool *ret_changed, struct err *e) MUST_CHECK;

/* Revokes all leases of a session with one log entry. *ret_n: how many were open before. */
int lease_end_session(struct store_tx *tx, const struct sandbox *session,
                      const struct lease_ending *how, size_t *ret_n, struct err *e) MUST_CHECK;

/* A lease whose time is over, with all that ends it: its row is not read for that. */
struct lease_due {
    struct id lease_id, session_id, chat_id, user_id;
    int64_t n, expires_at;
    /* Its door says that nobody is connected with it: there is nothing for the door to confirm, and the
     * lease closes at once. */
    bool unused;
};

/* Those of them that are still open and were not renewed meanwhile go to `expiring`, or close, each
 * session's by few entries of its log. */
#define LEASES_DUE_MAX 256 /* at once */
int lease_expire(struct store_tx *tx, const struct lease_due *due, size_t n,
                 struct err *e) MUST_CHECK;

/* So long before its end at most a lease that is not renewed is told of (broker.h). */
#define LEASE_EXPIRING_MS 15000

/* For the event log alone: these leases will run out soon | were to end, and their door has not
 * confirmed it. Those of which it is not true any more are passed over. */
int lease_tell_expiring(struct store_tx *tx, const struct lease_due *due, size_t n,
                        struct err *e) MUST_CHECK;
int lease_tell_unconfirmed(struct store_tx *tx, const struct id *ids, size_t n,
                           struct err *e) MUST_CHECK;

/* These leases let in once, and have done so. */
int lease_consume(struct store_tx *tx, const struct id *ids, size_t n, struct err *e) MUST_CHECK;

/* Terminal: the door confirmed, its death is proven, or nothing can hold the token any more. */
int lease_close(struct store_tx *tx, const struct id *ids, size_t n, struct err *e) MUST_CHECK;
int lease_close_session(struct store_tx *tx, const struct id *session_id, const char *reason,
                        struct err *e) MUST_CHECK;

/* The token of a lease as it stands, issued now (milliseconds). */
int lease_mint(const struct lease_policy *p, const struct keyset *keys, const struct lease *l,
               int64_t now_ms, struct buf *out, struct err *e) MUST_CHECK;

/* The same of several, TOKEN_ORDERS_MAX at most, which costs less; `rc` and `e` tell of each. */
struct lease_order {
    const struct keyset *keys;
    const struct lease *lease;
    int64_t now_ms;
    struct buf *out;
    int rc;
    struct err e;
};
void lease_mint_all(const struct lease_policy *p, struct lease_order *orders, size_t n);

/* When a holder should renew: between 1/2 and 2/3 of what is left, ±10 %, in milliseconds. */
int64_t lease_renew_after(const struct lease *l, int64_t now_ms);

#endif
