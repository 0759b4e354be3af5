/*
 * The things leasehold keeps: what the store stores and the operations answer. Plain structs,
 * copied freely; strings with a fixed bound stand inline, the others live in the caller's arena.
 * Times are milliseconds since the epoch; 0 = not set.
 */
#ifndef LEASEHOLD_MODEL_H
#define LEASEHOLD_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "leasehold/err.h"
#include "leasehold/field.h"
#include "leasehold/id.h"
#include "leasehold/token.h"

#define REASON_MAX 64

enum role { ROLE_NONE, ROLE_VIEWER, ROLE_BOT, ROLE_ADMIN };
extern const char *const role_names[]; /* by enum, "none" first */

struct api_key {
    struct id key_id;
    char name[129];
    enum role role;
    uint8_t secret_hash[32];   /* SHA-256 of the secret's text; never encoded */
    bool limited;              /* allowed_users was given: others are invisible */
    struct list allowed_users; /* struct id */
    struct id default_user;
    int64_t created_at, expires_at, last_used_at, revoked_at;
    int64_t as_of; /* of an identity that another vouches for: the proof its rights are from */
};

/* Who asks. The chain of authorisation starts here. */
struct caller {
    struct id key_id; /* zero: the gateway itself */
    enum role role;
    bool limited;
    const struct id *users; /* allowed_users, in the request's arena */
    size_t users_n;
    struct id default_user; /* zero: none */
    int64_t expires_at;     /* of the credential, ms; 0: never. Nothing it issues outlives it */
    const char *address;
    const char *request_id;
    bool *told; /* set by an entry of the trail that names it; NULL: nobody asks */
};

bool caller_may_see(const struct caller *c, const struct id *user_id);

struct workspace {
    struct id workspace_id, user_id;
    int64_t created_at;
};

struct chat {
    struct id chat_id, user_id, workspace_id;
    char title[257];
    char *metadata; /* JSON object text; arena */
    int64_t created_at, updated_at;
    int64_t generation; /* of the newest sandbox; bumped before each start */
};

#define FILE_NAME_MAX 255 /* bytes */

/* By what a file on disk is known to be the one that was hashed. Agents can set mtime, but not ctime. */
struct file_stamp {
    int64_t size_bytes, mtime_ns, ctime_ns;
    uint64_t ino;
};

struct file {
    struct id file_id, chat_id, user_id;
    char name[FILE_NAME_MAX + 1];
    char content_type[128];
    int64_t size_bytes;
    char sha256[65]; /* hex; "": not known yet */
    int64_t created_at, last_read_at, last_update_at;
    int64_t expires_at; /* by the retention of now; not stored */
    struct file_stamp stamp;
};

enum sandbox_status {
    SANDBOX_STARTING,
    SANDBOX_RUNNING,
    SANDBOX_STOPPING,
    SANDBOX_STOPPED,
    SANDBOX_FAILED
};
extern const char *const sandbox_status_names[];

struct sandbox {
    struct id session_id, chat_id, user_id, workspace_id;
    char container_id[80];
    char engine[16];
    char node[129];
    char profile[65];
    int64_t generation;
    enum sandbox_status status;
    char reason[REASON_MAX];
    char detail[ERR_MSG_MAX]; /* of a failed start, as its caller was told; "": none */
    int64_t created_at, started_at, last_activity_at, expires_at;
    int64_t max_expires_at; /* created_at + max_ttl */
    int64_t idle_ttl_s;
    int64_t uid;
    bool netns, userns, seccomp;
    char network[16]; /* "none", "internal", "bridge" */
    /* what adoption needs; never encoded */
    uint8_t door_secret_hash[32];                       /* SHA-256 of the control secret's text */
    int64_t door_pid, door_start, keep_pid, keep_start; /* process identity: process.h */
    int64_t door_port;
    char door_cert_sha256[65]; /* of its certificate, hex; "": the door speaks plain */
    int64_t log_seq;           /* of the session's log: last seq written */
};

enum lease_state {
    LEASE_PENDING,
    LEASE_ACTIVE,
    LEASE_REVOKING,
    LEASE_EXPIRING,
    LEASE_UNCONFIRMED,
    LEASE_CLOSED
};
extern const char *const lease_state_names[];
extern const char *const lease_use_names[];   /* by enum lease_use, wire order: multi, once */
extern const char *const lease_scope_names[]; /* bit i: read, write, admin */

struct lease {
    struct id lease_id, session_id, chat_id, user_id;
    struct id api_key_id; /* that issued it */
    unsigned scope;
    enum lease_use use;
    int64_t max_connections;
    enum lease_state state; /* durable part: pending | revoking | expiring | closed; the broker
                               knows active and unconfirmed */
    int64_t issued_at, expires_at, max_expires_at, revoked_at;
    char revoked_reason[REASON_MAX];
    int64_t grant_seq; /* rq of its token */
    int64_t ep;
    char kid[TOKEN_KID_TEXT];         /* of the key that signed its first token … */
    char renewed_kid[TOKEN_KID_TEXT]; /* … and its newest; "": never renewed */
    char cnf_jkt[TOKEN_KID_TEXT];     /* thumbprint of its holder's key; "": a bearer's */
    int64_t consumed_at;              /* of USE_ONCE: when it let in, 0: it has not */
    int64_t connections;              /* live ones; filled by the broker */
    int64_t n;                        /* its place among all leases, in the order of their issue */
};

/* A key that signs leases. Its private half is in a file, never in the store. */
enum signing_key_state {
    SIGNING_KEY_NEXT,    /* published, does not sign yet */
    SIGNING_KEY_SIGNING, /* exactly one */
    SIGNING_KEY_RETIRED, /* verifies what it has signed, until all of that has run out */
    SIGNING_KEY_GONE,
    SIGNING_KEY_KILLED,
};
extern const char *const signing_key_state_names[];

struct signing_key {
    char kid[TOKEN_KID_TEXT], x[TOKEN_KID_TEXT], y[TOKEN_KID_TEXT];
    char file[64]; /* in the folder of keys */
    enum signing_key_state state;
    int64_t created_at, signing_at, retired_at;
    int64_t ended_at; /* gone or killed */
};

/* One entry of the audit trail. Strings borrowed for the call. */
struct audit_entry {
    int64_t at;
    const char *actor;   /* key id, "door:<session_id>", "gateway" */
    const char *action;  /* op name or lease event */
    const char *object;  /* "lease:<id>" … */
    const char *outcome; /* "allowed" | "denied" | "ok" | "failed" */
    const char *address;
    const char *request_id;
    const char *detail; /* "" or short text; never a token */
};

/* What was done to a thing, by whom. */
struct audit_deed {
    const struct caller *caller; /* NULL, or one without a key: the gateway itself */
    const char *actor;           /* instead of the caller's key */
    const char *action;
    const char *kind; /* of the thing … */
    const struct id *id;
    const char *name;         /* … without an id … */
    const struct id *within;  /* … of this one; NULL: it says enough alone */
    const char *outcome;      /* NULL: "ok" */
    const char *detail;       /* NULL: "" */
    const struct id *chat_id; /* of a file or artifact: the chat it is of … */
    const char *chat_name;    /* … and what it is called there; NULL: not known */
};

#endif
