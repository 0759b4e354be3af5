/*
 * Artifacts of the gateway: uploads, the objects behind them, and the sweep that deletes what is over
 * and heals what a crash has left. include/leasehold/artifacts.h has the states.
 *
 * Everything that is said to block runs on the OBJECT lane.
 */
#ifndef GATEWAY_ARTIFACTS_H
#define GATEWAY_ARTIFACTS_H

#include "leasehold/artifacts.h"
#include "op.h"
#include "services.h"

struct artifacts;

/* s->artifacts, with the store of objects that `objects_new` makes. */
int artifacts_open(struct services *s,
                   int (*objects_new)(const struct config *cfg, struct log *log,
                                      struct objects **ret, struct err *e),
                   struct err *e) MUST_CHECK;
void artifacts_free(struct artifacts *x); /* the OBJECT lane has been joined */

struct objects *artifacts_store(const struct artifacts *x);
/* Would a deletion cut who reads by a link? On S3; a file on the disk reads on for whoever has it open. */
bool artifacts_links_hold(const struct artifacts *x);

/* Did it serve when it was asked last, half a minute ago at most? `ret`: its kind, and why not. Any
 * thread. */
bool artifacts_ready(const struct artifacts *x, char *ret, size_t size);

struct objects_watch;
struct objects_watch *objects_watch_new(struct services *s, struct objects *store);
void objects_watch_free(struct objects_watch *w);
void objects_watch_start(struct objects_watch *w); /* loop */
bool objects_watch_ok(struct objects_watch *w, char *ret, size_t size);

/* Starts sweeping, and goes on with it every retention.interval_seconds. Loop thread. */
void artifacts_start(struct artifacts *x);
void artifacts_drain(struct artifacts *x); /* no sweep begins or goes on; takes NULL */
void artifacts_stop(struct artifacts *x);  /* nor does anybody wait for the store; takes NULL */
bool artifacts_draining(const struct artifacts *x);

/* What a session's agent asks for by its door: broker hook put. Loop thread. */
void artifact_errand(struct services *s, const struct id *session_id, int64_t n, const char *path,
                     const char *name);
size_t artifacts_errand_count(struct artifacts *x, int change); /* how many there are behind it */

/* An artifact of `id` is being uploaded by this process: the sweep leaves it. Any thread. */
struct artifact_mark {
    struct artifact_mark *prev, *next;
    struct id id;
};
void artifacts_enter(struct artifacts *x, struct artifact_mark *m, const struct id *id);
void artifacts_leave(struct artifacts *x, struct artifact_mark *m);
bool artifacts_is_entered(struct artifacts *x, const struct id *id);

/* The sweep, on the lane. Blocks. */
void artifact_sweep(struct artifacts *x, struct services *s);

/* Objects of ours without a row, as a restored backup leaves them: marked when they are seen, removed
 * when they are seen again a grace later. Once a grace; NULL without memory. Blocks. */
struct orphans *orphans_new(void);
void orphans_free(struct orphans *o);
void orphans_sweep(struct orphans *o, struct services *s);
struct orphans *artifacts_orphans(const struct artifacts *x);

/* Beside it: those that are marked, but none while it goes on; `due_only`: whose grace is over. `each`
 * answers 1 for one that is gone, -1 to stop. */
struct orphan {
    struct id artifact_id;
    int64_t size_bytes;
    char key[512];
};
int orphans_each(struct orphans *o, struct services *s, bool due_only,
                 int (*each)(void *ctx, const struct orphan *m, struct err *e), void *ctx,
                 struct err *e) MUST_CHECK;
/* Removes such a one, if it still is. 1: it is gone; 0: it is none any more. Blocks. */
int orphan_remove(struct services *s, const struct orphan *m, struct err *e) MUST_CHECK;

/* What says in a shared store that an object is of this installation. */
const char *artifacts_maker(const struct artifacts *x);

/* Ends one that store_artifact_work tells of: marks it, if its time is over still, and removes it.
 * *ret_gone: it has been. Blocks. */
int artifact_end_due(struct services *s, const struct artifact *a, bool *ret_gone,
                     struct err *e) MUST_CHECK;

/* Removes a marked artifact's object, if its time has come, and says so in its row. Blocks.
 * ERR_OBJECT_STORE_UNAVAILABLE: the sweep will do it. */
int artifact_remove(struct services *s, const struct artifact *a, struct err *e) MUST_CHECK;

/* Inside a write: the change of a row with its event and its entry in the trail. */
struct artifact_deed {
    const struct caller *caller; /* NULL: the gateway itself */
    const char *actor;           /* instead of it; NULL: none */
    const char *event;           /* NULL: none */
    const char *action;
};
int artifact_tell(struct store_tx *tx, const struct artifact_deed *d, const struct artifact *a,
                  struct err *e) MUST_CHECK;

/* --- uploads ---------------------------------------------------------------------------------- */

/* One artifact from its row to its object. Zeroed, then begun; then the bytes go to fd (or stand in
 * it already); then stored, or given up. Blocks. */
struct artifact_upload {
    struct services *s;
    const struct caller *caller;
    const char *actor; /* in the trail, instead of the caller; NULL: none */
    struct call *call; /* answered with what is stored; NULL: none */
    struct artifact a;
    int fd;                    /* the bytes; -1: none yet */
    int64_t at;                /* of it, read or written so far */
    struct objects_check *sum; /* of a file that is ours; NULL: fd is the chat's own */
    bool in_store;             /* fd is a file of the store of objects */
    struct artifact_mark mark;
    int64_t began_us;
    bool begun, sent; /* the row is there; the store of objects was asked */
    bool unanswered;  /* … and nobody knows what it made of it */
};

/* Makes the row of u->a, of which chat, name, content type and size are set. */
int artifact_upload_begin(struct artifact_upload *u, struct arena *arena, struct err *e) MUST_CHECK;
int artifact_upload_spool(struct artifact_upload *u, struct err *e) MUST_CHECK; /* makes fd */
int artifact_upload_write(struct artifact_upload *u, const char *data, size_t len,
                          struct err *e) MUST_CHECK;
/* Opens a file of the chat instead, as chatfiles_read_beneath. Sets the size. */
int artifact_upload_open(struct artifact_upload *u, const struct id *user_id, const char *path,
                         struct err *e) MUST_CHECK;
/* Has fd be a file of our own instead of the chat's, where that costs no copy of it. */
int artifact_upload_clone(struct artifact_upload *u, struct err *e) MUST_CHECK;
int artifact_upload_store(struct artifact_upload *u, struct err *e) MUST_CHECK;
/* Ends it, whether it is stored or not: without, row and bytes go, or are left to the sweep where the
 * store of objects is away. */
void artifact_upload_end(struct artifact_upload *u);

#endif
