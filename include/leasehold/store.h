/*
 * The metadata store, in domain verbs. Never SQL outside storage/.
 *
 * One writer thread owns the one writing connection and all checkpoints. Writes are functions that
 * run on that thread inside a group commit: everything queued is run in one transaction, each write
 * under its own savepoint, and answered after the commit. A write that returns -1 is rolled back
 * alone. Readers have connections of their own (WAL snapshots).
 *
 * Changes: what a write wants the rest of the gateway to do (push a grant, cut a lease) it declares
 * with store_emit. After the commit, and before any waiter of that commit is answered, the emitted
 * changes of all writes of the group go to the change hook in commit order. So nothing is visible
 * that is not durable, and order is the store's.
 */
#ifndef LEASEHOLD_STORE_H
#define LEASEHOLD_STORE_H

#include "leasehold/clock.h"
#include "leasehold/lanes.h"
#include "leasehold/log.h"
#include "leasehold/model.h"

struct store;
struct store_list;
struct store_tx; /* of a write or a read; valid during the call only */

/* --- changes ------------------------------------------------------------------------------- */

enum change_kind {
    CHANGE_SESSION_STARTING, /* sandbox */
    CHANGE_SESSION_RUNNING,  /* sandbox */
    CHANGE_SESSION_STOPPING, /* sandbox: its leases are revoked by CHANGE_REVOKE_ALL beside it */
    CHANGE_SESSION_ENDED,    /* sandbox: stopped or failed */
    CHANGE_GRANT,            /* lease, seq */
    CHANGE_EXTEND,           /* lease (new expires_at), seq */
    CHANGE_REVOKE,           /* lease, seq, code, at_us */
    CHANGE_REVOKE_ALL,       /* sandbox.session_id, seq, code, at_us */
    CHANGE_EXPIRE,           /* expired, seq, code: several of a session by one entry of its log */
    CHANGE_LEASE_CLOSED,     /* lease */
    CHANGE_KEYS,             /* sandbox.session_id, seq: its door gets the keys of now; or none */
    CHANGE_API_KEY,          /* key_id: added, changed or revoked; reload it */
};

/* Leases of one session whose time is over. */
#define CHANGE_LEASES 32
struct change_expired {
    struct id session_id;
    struct id ids[CHANGE_LEASES];
    size_t n;
    uint32_t closed; /* bit i: ids[i] is closed; else it is expiring */
};

struct change {
    enum change_kind kind;
    int64_t seq; /* of the session's log */
    int code;    /* door close code of a revocation */
    union {      /* by kind */
        struct lease lease;
        struct sandbox sandbox;
        struct change_expired expired;
        struct id key_id;
    };
};

/* --- events --------------------------------------------------------------------------------
 * What happened, for bots: one durable log of the whole store, numbered without gaps in the order of
 * the commits. All events of a group commit are one row, so that an event costs no insert. */

struct store_event {
    const char *name; /* "lease.granted": no white space */
    struct id user_id, chat_id,
        session_id;   /* that it is about: who sees it, and where; zero: none */
    const char *data; /* JSON object text in one line */
    /* the log's */
    int64_t seq, at;
};

/* Events as they stand in a row. */
struct store_event_batch {
    int64_t first_seq, last_seq;
    const char *text;
    size_t len;
};

/* Appends with the next seq; it is there if the write is. */
int store_event_append(struct store_tx *tx, const struct store_event *ev, struct err *e) MUST_CHECK;

/* Calls each for the events of a batch behind `after_seq`; what is handed on ends with the call. A
 * batch that cannot be read is ERR_INTERNAL. */
int store_event_batch_each(const struct store_event_batch *batch, int64_t after_seq,
                           int (*each)(void *ctx, const struct store_event *ev, struct err *e),
                           void *ctx, struct err *e) MUST_CHECK;

/* The same for the events of the log. `each` answers 1 to stop behind an event, and must not use the
 * store. */
int store_event_each(struct store_tx *tx, int64_t after_seq,
                     int (*each)(void *ctx, const struct store_event *ev, struct err *e), void *ctx,
                     struct err *e) MUST_CHECK;

/* The first and the last seq there is; nothing ever happened: 1 and 0. */
struct store_event_range {
    int64_t oldest, newest;
};
int store_event_range(struct store_tx *tx, struct store_event_range *ret, struct err *e) MUST_CHECK;

/* Removes rows of events before `until` (wall clock) or beyond the newest `keep`, at most `limit`
 * rows but one; never the newest, by which the numbers go on. *ret_n: how many went. */
int store_event_expire(struct store_tx *tx, int64_t until, int64_t keep, int64_t limit,
                       int64_t *ret_n, struct err *e) MUST_CHECK;

/* --- life ---------------------------------------------------------------------------------- */

/* What the store records; NULL members record nothing. */
struct store_meters {
    struct lane_meters lane;  /* of the queue of writes */
    struct metric *commits;   /* counter: groups that are durable */
    struct metric *errors;    /* counter: groups that failed as a whole */
    struct metric *group;     /* histogram: writes in a group */
    struct metric *duration;  /* histogram: from BEGIN to behind COMMIT */
    struct metric *wal_pages; /* gauge: of the log after the last commit */
    struct metric *reserve;   /* gauge: bytes held for ending writes */
    struct metric *damage;    /* gauge: 1: a check behind the start has found the file damaged */
};

struct store_options {
    const char *path; /* of the SQLite file */
    struct log *log;
    struct inbox *inbox; /* where done() of submitted jobs goes */
    unsigned readers;    /* read connections = most concurrent store_read calls; 0: 2 */
    size_t queue_max;    /* waiting writes before ERR_BUSY; 0: 10000 */
    size_t group_max;    /* writes in one commit; 0: 256 */
    long wait_ms;        /* of store_write before ERR_BUSY; 0: 30000 */
    int64_t quota_bytes; /* of every workspace; 0: none */
    /* Behind an unclean stop a file up to so long is checked before it is used, a longer one while it
     * is; 0: 64 MiB. */
    int64_t check_first_bytes;
    /* Called on the writer thread after a commit with its changes (borrowed), in order. */
    void (*changed)(void *ctx, const struct change *changes, size_t n);
    void *changed_ctx;
    /* The same, behind it, with the events of the commit, which stand in the log now. */
    void (*logged)(void *ctx, const struct store_event_batch *batch);
    void *logged_ctx;
    struct store_meters meters;
    const struct clock *clock; /* what store_now_ms answers; NULL: the system's */
    /* No writer thread: the owner's one thread runs what is queued by store_turn (store_write does
     * so by itself), so that a simulation says when a group is committed and of what. */
    bool manual;
};

/* Does a process have this store open? */
bool store_is_held(const char *path);

/* Opens (makes) the file, runs pending migrations, checks it after an unclean stop. Where damage is
 * found behind the opening all writes are ERR_INTERNAL from then on, and the next opening fails. */
int store_open(const struct store_options *o, struct store **ret, struct err *e) MUST_CHECK;
void store_close(struct store *s); /* finishes the queue, checkpoints, joins */

typedef int (*store_fn)(struct store_tx *tx, void *arg, struct err *e);

/* Runs fn in the next group commit and waits for it. Any thread but the loop and the writer.
 * ERR_BUSY when the queue is full, or the writer does not come to it within wait_ms; then fn has
 * not run and will not. */
int store_write(struct store *s, store_fn fn, void *arg, struct err *e) MUST_CHECK;

/* The same for what ends something, or frees room. Where the disk holds a reserve (its size tells)
 * such writes go on when it is full, and all others are ERR_STORAGE_FULL at once. */
int store_write_end(struct store *s, store_fn fn, void *arg, struct err *e) MUST_CHECK;

/* Runs j->fn on the writer thread inside the group; job.done comes through the inbox after the
 * commit, with rc and e set as store_write would answer them. The job is the store's until then. */
struct store_job {
    struct job job; /* set job.done; job.run is the store's */
    store_fn fn;
    void *arg;
    bool ends; /* as store_write_end */
    /* It ends something and is in no hurry: it goes when nothing else waits, or behind what does when it
     * has let that pass a few times. Some run in one group while their time lasts. */
    bool later;
    /* fn refuses before its first change only; what fails behind that is the store's own fault, and
     * fails the group. Then fn needs no savepoint, which costs more than a small write. */
    bool sound;
    /* Not NULL: called on the writer thread when fn has succeeded and the group is about to be committed.
     * For work that may go on beside the commit, and must not be shown before it: the group can
     * still fail. `committed` follows in any case; it may not block. */
    void (*ran)(struct store_job *j);
    /* Not NULL: called on the writer thread behind the commit instead of job.done through the inbox,
     * and whose the job is from there on. For work that a commit must not wait for; it may not block. */
    void (*committed)(struct store_job *j);
    int rc; /* result, for done */
    struct err e;
};
int store_submit(struct store *s, struct store_job *j, struct err *e) MUST_CHECK; /* any thread */

size_t store_depth(const struct store *s); /* writes waiting or running; any thread */

/* Of a `manual` store: runs what is queued as one group, to its answers. False: nothing was. */
bool store_turn(struct store *s);

/* Runs fn on a read snapshot, on the calling thread (blocks for a free connection, 5 s at most). Not
 * for the loop. Writing verbs fail with ERR_INTERNAL there. */
int store_read(struct store *s, store_fn fn, void *arg, struct err *e) MUST_CHECK;

void store_emit(struct store_tx *tx, const struct change *c);
int64_t store_now_ms(const struct store_tx *tx); /* wall clock at the start of this write */

/* How far the wall clock stands behind the highest time of a durable write, this store's former lives
 * included (to a second); 0: it does not. In a write; by any thread. */
int64_t store_tx_clock_behind_ms(const struct store_tx *tx);
int64_t store_clock_behind_ms(const struct store *s);

/* That highest time, as the file has it. Lowering it to now breaks the promise that it stands for: only
 * for a clock that was ahead by mistake, and behind all that was issued by it (gateway/clock_reset.c).
 * ERR_CONFLICT: it does not stand at `from_ms`. */
int store_clock_mark(struct store_tx *tx, int64_t *ret_ms, struct err *e) MUST_CHECK;
int store_clock_lower(struct store_tx *tx, int64_t from_ms, struct err *e) MUST_CHECK;

/* --- users, workspaces, chats ---------------------------------------------------------------
 * `get` verbs: 0 found, -1 with ERR_NOT_FOUND (chat: ERR_CHAT_NOT_FOUND …) or another error. */

/* The user's workspace, made with the user on first touch; *ret_new tells. */
int store_workspace_touch(struct store_tx *tx, const struct id *user_id, struct workspace *ret,
                          bool *ret_new, struct err *e) MUST_CHECK;
int store_chat_insert(struct store_tx *tx, const struct chat *c, struct err *e) MUST_CHECK;
int store_chat_get(struct store_tx *tx, const struct id *chat_id, struct arena *arena,
                   struct chat *ret, struct err *e) MUST_CHECK;
/* generation + 1, durable; answers the new one. */
int store_chat_bump_generation(struct store_tx *tx, const struct id *chat_id, int64_t *ret,
                               struct err *e) MUST_CHECK;
int store_workspace_get(struct store_tx *tx, const struct id *user_id, struct workspace *ret,
                        struct err *e) MUST_CHECK;
/* Those behind a user (zero: the first ones), in the order of users. `each` must not use the store. */
int store_workspace_each(struct store_tx *tx, const struct id *after_user, int64_t limit,
                         int (*each)(void *ctx, const struct workspace *w, struct err *e),
                         void *ctx, struct err *e) MUST_CHECK;
/* The workspace of this chat was used then. No chat: nothing. */
int store_workspace_seen(struct store_tx *tx, const struct id *chat_id, int64_t at,
                         struct err *e) MUST_CHECK;
/* When something was last added to it, said in it or read of it, or a sandbox of it used. */
int store_workspace_active_at(struct store_tx *tx, const struct id *user_id, int64_t *ret,
                              struct err *e) MUST_CHECK;
/* Has it artifacts whose delivery is not finished? */
int store_workspace_delivers(struct store_tx *tx, const struct id *user_id, bool *ret,
                             struct err *e) MUST_CHECK;
/* ERR_CONFLICT while there are chats in it. */
int store_workspace_delete(struct store_tx *tx, const struct id *user_id, struct err *e) MUST_CHECK;
int store_chat_count(struct store_tx *tx, const struct id *user_id, int64_t *ret,
                     struct err *e) MUST_CHECK;
/* The chat with its sandboxes, their logs and leases; none of them may be active or open. Its artifacts
 * are marked: links_hold as in store_artifact_mark_chat. */
int store_chat_delete(struct store_tx *tx, const struct id *chat_id, bool links_hold,
                      struct err *e) MUST_CHECK;

/* --- files ----------------------------------------------------------------------------------
 * Rows of what stands in a chat's files/. A name is one whatever the normal form of its letters. */

/* By id or by name; ERR_CHAT_FILE_NOT_FOUND. */
int store_file_get(struct store_tx *tx, const struct id *file_id, struct file *ret,
                   struct err *e) MUST_CHECK;
int store_file_find(struct store_tx *tx, const struct id *chat_id, const char *name,
                    struct file *ret, struct err *e) MUST_CHECK;
/* Takes the place of the row with the same name, whose id is gone with that. */
int store_file_put(struct store_tx *tx, const struct file *f, struct err *e) MUST_CHECK;
/* Everything but id, chat and name. ERR_CHAT_FILE_NOT_FOUND. */
int store_file_update(struct store_tx *tx, const struct file *f, struct err *e) MUST_CHECK;
int store_file_delete(struct store_tx *tx, const struct id *file_id, struct err *e) MUST_CHECK;
/* A later last_read_at; no row is no error. */
int store_file_read_at(struct store_tx *tx, const struct id *file_id, int64_t at,
                       struct err *e) MUST_CHECK;
/* A chat's, in the order of lists; l NULL: all. */
int store_file_list(struct store_tx *tx, const struct store_list *l, const struct id *chat_id,
                    int (*each)(void *ctx, const struct file *f, struct err *e), void *ctx,
                    struct err *e) MUST_CHECK;

/* --- usage ----------------------------------------------------------------------------------
 * What a user's workspace holds: files and histories, each inode once, and artifacts that are not
 * deleted. The sum stands in the workspace's row. Who changes what is on the disk adds the change in
 * the write that records it, and holds the user from before the change until behind the write:
 *
 *     store_usage_hold(s, &user_id);
 *     rename(…);
 *     store_write(s, row_and_usage_add, …);
 *     store_usage_release(s, &user_id);
 *
 * so that no scan counts what is added as well. What agents write is seen by scans alone. */

struct store_usage {
    int64_t used_bytes, quota_bytes;
    bool over_quota;
};

int store_usage_get(struct store_tx *tx, const struct id *user_id, struct store_usage *ret,
                    struct err *e) MUST_CHECK;
/* With `enforce` ERR_WORKSPACE_QUOTA_EXCEEDED where more than nothing is added and the sum would
 * pass the quota: to the byte, as all writes come one after another. */
int store_usage_add(struct store_tx *tx, const struct id *user_id, int64_t delta_bytes,
                    bool enforce, struct err *e) MUST_CHECK;
/* Any thread, never blocks for long. */
void store_usage_hold(struct store *s, const struct id *user_id);
void store_usage_release(struct store *s, const struct id *user_id);
/* A scan of the disk: mark, walk, correct. Marking answers false, and correcting does nothing, when
 * changes were under way meanwhile: then once more, a little later. */
bool store_usage_mark(struct store *s, const struct id *user_id, uint64_t *ret);
int store_usage_correct(struct store_tx *tx, const struct id *user_id, uint64_t mark,
                        int64_t scanned_bytes, bool *ret_done, struct err *e) MUST_CHECK;

/* --- sandboxes ------------------------------------------------------------------------------ */

int store_sandbox_insert(struct store_tx *tx, const struct sandbox *s, struct err *e) MUST_CHECK;
int store_sandbox_get(struct store_tx *tx, const struct id *session_id, struct sandbox *ret,
                      struct err *e) MUST_CHECK;
/* The chat's sandbox that is starting, running or stopping. */
int store_sandbox_active(struct store_tx *tx, const struct id *chat_id, struct sandbox *ret,
                         struct err *e) MUST_CHECK;
/* Writes every mutable column but log_seq. */
int store_sandbox_update(struct store_tx *tx, const struct sandbox *s, struct err *e) MUST_CHECK;
/* log_seq + 1 of a session; answers the new one. */
int store_session_next_seq(struct store_tx *tx, const struct id *session_id, int64_t *ret,
                           struct err *e) MUST_CHECK;
/* Calls each for every sandbox that is starting, running or stopping; stops at its first -1. */
int store_sandbox_each_active(struct store_tx *tx,
                              int (*each)(void *ctx, const struct sandbox *s, struct err *e),
                              void *ctx, struct err *e) MUST_CHECK;

/* --- leases --------------------------------------------------------------------------------- */

/* Sets l->n. */
int store_lease_insert(struct store_tx *tx, struct lease *l, struct err *e) MUST_CHECK;
int store_lease_get(struct store_tx *tx, const struct id *lease_id, struct lease *ret,
                    struct err *e) MUST_CHECK;
/* Of one that was read: l->n finds it. While it is open its rights, times and use may change, when it
 * ends its state, the time and the reason. */
int store_lease_update(struct store_tx *tx, const struct lease *l, struct err *e) MUST_CHECK;
/* Those whose time is over, without reading them first: the state of each becomes `state`. ret_found[i] is
 * false when x[i] is not open any more, or was renewed behind `expires_at`. Neighbours by `n` cost least. */
struct store_lease_expiry {
    int64_t n, expires_at;
    struct id session_id, user_id;
    enum lease_state state; /* expiring or closed */
    const char *reason;
};
int store_lease_expire(struct store_tx *tx, const struct store_lease_expiry *x, size_t n,
                       bool *ret_found, struct err *e) MUST_CHECK;
/* ret_open[i]: x[i] is open, and still ends at `expires_at`. */
int store_lease_open_until(struct store_tx *tx, const struct store_lease_expiry *x, size_t n,
                           bool *ret_open, struct err *e) MUST_CHECK;
/* Every lease that is not closed, in the order of issue; `each` must not use the store. */
int store_lease_each_open(struct store_tx *tx,
                          int (*each)(void *ctx, const struct lease *l, struct err *e), void *ctx,
                          struct err *e) MUST_CHECK;
/* Those of one session; `each` may write. */
int store_lease_each_open_of(struct store_tx *tx, const struct id *session_id,
                             int (*each)(void *ctx, const struct lease *l, struct err *e),
                             void *ctx, struct err *e) MUST_CHECK;

/* How many leases are open (pending or active), as of this write. Only inside a write. */
struct store_lease_counts {
    int64_t of_session, of_user, all;
};
void store_lease_count(const struct store_tx *tx, const struct id *session_id,
                       const struct id *user_id, struct store_lease_counts *ret);

/* Which leases to end. */
struct store_match {
    enum { MATCH_ALL, MATCH_SESSION, MATCH_CHAT, MATCH_USER, MATCH_API_KEY, MATCH_KID } by;
    struct id id;    /* of what it goes by */
    const char *kid; /* MATCH_KID: of the key that signed their tokens */
};

/* Every lease that is pending or active, matches, and is seen by the caller; a session's stand
 * together. `each` must not use the store. */
int store_lease_each_match(struct store_tx *tx, const struct store_match *m,
                           const struct caller *caller,
                           int (*each)(void *ctx, const struct lease *l, struct err *e), void *ctx,
                           struct err *e) MUST_CHECK;

/* --- signing keys --------------------------------------------------------------------------- */

int store_signing_key_insert(struct store_tx *tx, const struct signing_key *k,
                             struct err *e) MUST_CHECK;
/* State and times. */
int store_signing_key_update(struct store_tx *tx, const struct signing_key *k,
                             struct err *e) MUST_CHECK;
/* All that there ever were, oldest first; `each` must not use the store. */
int store_signing_key_each(struct store_tx *tx,
                           int (*each)(void *ctx, const struct signing_key *k, struct err *e),
                           void *ctx, struct err *e) MUST_CHECK;

/* --- keys, audit ---------------------------------------------------------------------------- */

int store_api_key_insert(struct store_tx *tx, const struct api_key *k, struct err *e) MUST_CHECK;
int store_api_key_get(struct store_tx *tx, const struct id *key_id, struct arena *arena,
                      struct api_key *ret, struct err *e) MUST_CHECK;
int store_api_key_each(struct store_tx *tx, struct arena *arena,
                       int (*each)(void *ctx, const struct api_key *k, struct err *e), void *ctx,
                       struct err *e) MUST_CHECK;
/* Writes every column that may change, and the users. */
int store_api_key_update(struct store_tx *tx, const struct api_key *k, struct err *e) MUST_CHECK;
int store_api_key_used(struct store_tx *tx, const struct id *key_id, int64_t at,
                       struct err *e) MUST_CHECK;
/* Until when the key may act for this user (ms): 0 if it may not, INT64_MAX if there is no end. By the
 * rows, not by what a request was admitted with. */
int store_api_key_may(struct store_tx *tx, const struct id *key_id, const struct id *user_id,
                      int64_t *ret_until, struct err *e) MUST_CHECK;

/* Appends to the hash chain: hash = SHA-256(prev ‖ canonical row); docs/audit.md. */
int store_audit(struct store_tx *tx, const struct audit_entry *a, struct err *e) MUST_CHECK;
/* The same, of a deed: what every caller but the door's reports wants. */
int store_audit_deed(struct store_tx *tx, const struct audit_deed *d, struct err *e) MUST_CHECK;
/* "detail chat=<id> name=<name>", each where it is there: what a list by chat finds an entry of a thing
 * of that chat by. The name is escaped so that it is one word, and cut. */
#define STORE_AUDIT_DETAIL 512
void store_audit_detail(char ret[static STORE_AUDIT_DETAIL], const char *detail,
                        const struct id *chat_id, const char *name);
/* Walks the chain. *ret_first_broken = 0 when it is whole, else the number of the row. */
int store_audit_verify(struct store_tx *tx, int64_t *ret_checked, int64_t *ret_first_broken,
                       struct err *e) MUST_CHECK;

/* What to list; texts "" or NULL and times 0 are not asked for. */
struct store_audit_list {
    int64_t after; /* n of the entry to go on behind; 0: from the first */
    int64_t limit; /* entries to hand out */
    const char *actor, *action, *object;
    int64_t since, until; /* since <= at < until */
};

struct audit_row {
    int64_t n;
    struct audit_entry entry; /* borrowed until `each` ends */
    uint8_t prev[32], hash[32];
};

/* How far it went: a list looks at so many entries at once, and may end before its limit. */
struct store_audit_seen {
    int64_t n; /* go on behind this one … */
    bool more; /* … for what there may still be */
};

/* Entries in the order of n. `each` must not use the store. */
int store_audit_list(struct store_tx *tx, const struct store_audit_list *l,
                     int (*each)(void *ctx, const struct audit_row *row, struct err *e), void *ctx,
                     struct store_audit_seen *ret, struct err *e) MUST_CHECK;

/* --- lists ----------------------------------------------------------------------------------
 * Rows behind a place, in the order of (created_at, id): a row that comes or goes moves no other
 * over the place. Zero members of a filter are not asked for. A limited caller sees the rows of its
 * users alone. `each` must not use the store; what it borrows ends with it. */

struct store_place {
    int64_t created_at;
    struct id id;
};

struct store_list {
    struct store_place after;
    int64_t limit;
    const struct caller *caller;
};

struct store_filter {
    struct id user_id, chat_id, session_id;
    const char *const *names; /* statuses or states, one of them; NULL-terminated, NULL: all */
};

/* `chat->metadata` is borrowed. */
int store_chat_list(struct store_tx *tx, const struct store_list *l, const struct store_filter *f,
                    int (*each)(void *ctx, const struct chat *c, struct err *e), void *ctx,
                    struct err *e) MUST_CHECK;
int store_sandbox_list(struct store_tx *tx, const struct store_list *l,
                       const struct store_filter *f,
                       int (*each)(void *ctx, const struct sandbox *s, struct err *e), void *ctx,
                       struct err *e) MUST_CHECK;
/* In the order of issue: the place of a lease is {n}. The states are those of the store (`struct lease`). Two names at most. */
int store_lease_list(struct store_tx *tx, const struct store_list *l, const struct store_filter *f,
                     int (*each)(void *ctx, const struct lease *lease, struct err *e), void *ctx,
                     struct err *e) MUST_CHECK;
/* Without the users: store_api_key_get has them. */
int store_api_key_list(struct store_tx *tx, const struct store_list *l,
                       int (*each)(void *ctx, const struct api_key *k, struct err *e), void *ctx,
                       struct err *e) MUST_CHECK;

/* --- idempotency ----------------------------------------------------------------------------
 * What a request with an Idempotency-Key was answered. Never a secret: the token of a lease is
 * minted again from lease_id, iat, expires_at and rq. */

#define IDEMPOTENCY_KEY_MAX 128

struct idempotency {
    struct id key_id;                  /* whose key it is */
    char key[IDEMPOTENCY_KEY_MAX + 1]; /* as sent */
    uint8_t fingerprint[32];           /* of operation and arguments */
    int64_t created_at;
    int64_t status;   /* HTTP */
    char code[40];    /* of an error; "" of a success */
    char pointer[96]; /* of an error */
    char *body;       /* the answer, or the error's message; arena */
    struct id lease_id;
    int64_t iat, expires_at, rq;
};

/* Replaces an older one with the same key. */
int store_idempotency_put(struct store_tx *tx, const struct idempotency *r,
                          struct err *e) MUST_CHECK;
/* One made after `since`. ERR_NOT_FOUND. */
int store_idempotency_get(struct store_tx *tx, const struct id *key_id, const char *key,
                          int64_t since, struct arena *arena, struct idempotency *ret,
                          struct err *e) MUST_CHECK;
/* Removes at most `limit` of those made at or before `until`. */
int store_idempotency_expire(struct store_tx *tx, int64_t until, int64_t limit,
                             struct err *e) MUST_CHECK;
/* Those made later were made then. */
int store_idempotency_cut(struct store_tx *tx, int64_t most_ms, struct err *e) MUST_CHECK;
/* Removes all of an API key: what was answered may be more than it may see now. */
int store_idempotency_forget(struct store_tx *tx, const struct id *key_id,
                             struct err *e) MUST_CHECK;

#endif
