/*
 * Where the bodies of artifacts are kept: one store of objects by key, `disk` or `s3`.
 *
 * All members may block and retry by themselves (each try has its deadline); any thread, many at
 * once. Memory is bounded by the store, not by the objects. A key is 1 to 1024 bytes of any text;
 * those of the project are of [a-z0-9/_-] (objects_key).
 *
 * Errors: ERR_NOT_FOUND, ERR_RANGE_NOT_SATISFIABLE, ERR_TOO_LARGE, ERR_STORAGE_FULL,
 * ERR_OBJECT_STORE_UNAVAILABLE (the store does not answer, or not as it should: it may be asked
 * again), what the caller's own functions fail with, ERR_INTERNAL.
 */
#ifndef LEASEHOLD_OBJECTS_H
#define LEASEHOLD_OBJECTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "leasehold/buf.h"
#include "leasehold/err.h"
#include "leasehold/id.h"
#include "leasehold/log.h"

#define OBJECT_KEY_MAX    1024
#define OBJECT_TOKEN_TEXT 65
#define OBJECT_MAKER_TEXT 33
#define OBJECT_UPLOAD_MAX 1024 /* text of an upload's id, with its NUL */

/* What an object is; sha256 is "" where only its reader can tell (s3). */
struct object_info {
    int64_t size_bytes;
    char token[OBJECT_TOKEN_TEXT]; /* that it was put with */
    char maker[OBJECT_MAKER_TEXT]; /* the same; "" where none was told, or is kept */
    char sha256[65];
};

struct object_put {
    const char *key;
    const char *content_type;
    /* Of this put alone, kept with the object: who finds it again knows whose work it is. */
    const char *token;
    const char *maker; /* of the installation, kept by a store that is shared; NULL: not told */
    int64_t len;       /* -1: not known; other than what `read` brings: the put fails */
    /* Hex, where it was summed before: believed where the store does not check it. NULL: it is summed
     * on the way. */
    const char *sha256;
    void *ctx;
    /* Up to `size` bytes, 0 at the end; from one thread at a time, not always the same. */
    ssize_t (*read)(void *ctx, char *ret, size_t size, struct err *e);
    /* The same by place, of bytes that nobody changes any more: 1 to `size` of them, 0 behind the last;
     * from many threads, more than once. Used where `len` and `sha256` are known. May be NULL. */
    ssize_t (*read_at)(void *ctx, char *ret, size_t size, int64_t at, struct err *e);
    /* Before the first part of an upload that outlives a crash: makes its id durable. May be NULL. */
    int (*begun)(void *ctx, const char *upload_id, struct err *e);
    /* Bytes that the store has taken so far, never less than before. May be NULL. */
    void (*progress)(void *ctx, int64_t sent_bytes);
    const atomic_bool *cancel; /* once true, the put fails with ERR_BUSY; NULL: never */
};

struct object_get {
    const char *key;
    int64_t offset; /* past the end: ERR_RANGE_NOT_SATISFIABLE */
    int64_t len;    /* -1: to the end; cut to what there is */
    void *ctx;
    /* Before the first byte, with the size of the whole. May be NULL. */
    int (*head)(void *ctx, const struct object_info *info, struct err *e);
    int (*write)(void *ctx, const char *data, size_t len, struct err *e);
};

/* A link that works without credentials until it expires. It is a secret: never to be logged. */
struct object_presign {
    const char *key;
    const char *origin; /* "https://host:port" of the gateway, for stores that it serves itself */
    const char *disposition, *content_type; /* headers to answer with; NULL: as they are */
    int64_t now_s, expires_s;               /* wall clock; seconds from now, 1 to 604800 */
};

/* An upload that was begun and is neither an object nor given up. */
struct object_upload {
    const char *key, *upload_id; /* borrowed for the call */
    int64_t started_at;          /* ms */
};

struct objects;

struct objects_vtable {
    const char *name;
    bool shared; /* other installations may keep theirs in it, too */

    /* All or nothing: an object is there, whole and durable, exactly when this answers 0 — or the
     * process dies, or -1 tells that the store is away: `head` with the token tells then. */
    int (*put)(struct objects *o, const struct object_put *p, struct object_info *ret,
               struct err *e);

    /* An empty file to gather the bytes of an object in, on the store's own disk: the caller's to
     * close, and gone with that unless it was adopted. *ret_fd -1: its file system has no such files.
     * NULL: the store keeps none. */
    int (*spool)(struct objects *o, int *ret_fd, struct err *e);

    /* `put` of what stands in such a file, without copying it; p->read is not used, p->sha256 needed. */
    int (*adopt)(struct objects *o, const struct object_put *p, int fd, struct object_info *ret,
                 struct err *e);

    /* What it brings is what was put, or it fails: also when the bytes were changed on the disk. */
    int (*get)(struct objects *o, const struct object_get *g, struct err *e);

    int (*head)(struct objects *o, const char *key, struct object_info *ret, struct err *e);

    /* Gone, whatever versions the store keeps of it; 0 also when there is none. */
    int (*del)(struct objects *o, const char *key, struct err *e);

    /* Calls `each` for the keys of objects that are paths and begin with `prefix`/ (all: ""), stops at its first -1;
     * `each` may delete them, and take its time. */
    int (*list)(struct objects *o, const char *prefix,
                int (*each)(void *ctx, const char *key, struct err *e), void *ctx, struct err *e);

    int (*presign)(struct objects *o, const struct object_presign *p, struct buf *ret,
                   struct err *e);

    /* Calls `each` for the uploads of keys with this prefix; stops at its first -1. `each` may abort
     * them. */
    int (*uploads)(struct objects *o, const char *prefix,
                   int (*each)(void *ctx, const struct object_upload *u, struct err *e), void *ctx,
                   struct err *e);

    /* Gives an upload up; 0 also when there is none. */
    int (*abort)(struct objects *o, const char *key, const char *upload_id, struct err *e);

    /* Is it there, and may we? */
    int (*check)(struct objects *o, struct err *e);

    /* What waits for the store ends soon, and what is asked from now on is ERR_BUSY, but for an `abort`,
     * which is tried once. NULL: nothing waits. */
    void (*stop)(struct objects *o);

    void (*free)(struct objects *o);
};

struct objects {
    const struct objects_vtable *v;
};

/* <prefix>/<user_id>/<chat_id>/<artifact_id> */
int objects_key(const char *prefix, const struct id *user_id, const struct id *chat_id,
                const struct id *artifact_id, struct buf *ret, struct err *e) MUST_CHECK;

/* Reads an object for its SHA-256, as hexadecimal text. */
int objects_sum(struct objects *o, const char *key, char ret[static 65], struct err *e) MUST_CHECK;

/* --- disk --- files below `dir`, which is made. */
int objects_disk_new(const char *dir, struct objects **ret, struct err *e) MUST_CHECK;

/* What a link of the disk store says, for the key of its path. */
struct objects_link {
    int64_t expires_s;                      /* wall clock */
    const char *disposition, *content_type; /* NULL: none */
    const char *signature;
};
/* Does it hold now? ERR_FORBIDDEN. */
int objects_disk_link(struct objects *o, const char *key, const struct objects_link *l,
                      int64_t now_s, struct err *e) MUST_CHECK;

/* The file of an object, for reading: its first info.size_bytes bytes. A descriptor, or -1. It reads
 * on when the object is deleted or replaced meanwhile. */
int objects_disk_open(struct objects *o, const char *key, struct object_info *ret,
                      struct err *e) MUST_CHECK;

/* The sum of what is read piece by piece of such a file, against that of what was put. */
struct objects_check;
struct objects_check *objects_check_new(void); /* NULL without memory */
void objects_check_free(struct objects_check *k);
int objects_check_add(struct objects_check *k, const char *data, size_t len,
                      struct err *e) MUST_CHECK;
void objects_check_sum(struct objects_check *k, char ret[static 65]); /* the last word */
int objects_check_end(struct objects_check *k, const char *sha256, struct err *e) MUST_CHECK;

/* --- s3 --- */

/* Is the SHA-256 of what goes up part of the signature, so that the store proves what it got? */
enum objects_s3_signing {
    OBJECTS_S3_SIGN_AUTO,  /* what was summed, and all that does not go over TLS */
    OBJECTS_S3_SIGN_ALL,   /* parts over TLS, too */
    OBJECTS_S3_SIGN_HEADS, /* the requests alone */
};

struct objects_s3_options {
    const char *endpoint;        /* "https://host[:port]" */
    const char *public_endpoint; /* of presigned URLs; "" or NULL: the endpoint */
    const char *region, *bucket;
    bool path_style;                                 /* host/bucket/key; else bucket.host/key */
    const char *access_key, *secret, *session_token; /* the last may be NULL */
    const char *ca_file;                             /* NULL: the system's */
    enum objects_s3_signing signing;
    struct log *log;        /* what was tried again; NULL: nobody asks */
    unsigned tries;         /* of one request, at most; 0: 6 */
    int64_t backoff_ms;     /* upper end of the first pause, doubled by each; 0: 100 */
    int64_t stall_ms;       /* without a byte in either direction; 0: 60000 */
    unsigned parallel;      /* parts of one object at a time; 0: 4 */
    size_t part_bytes;      /* of an object whose length does not want more; 0: 8 MiB */
    size_t part_bytes_most; /* the same of what is read by place; 0: 64 MiB */
    size_t memory_bytes;    /* of all parts under way together; 0: 40 MiB */
    int64_t multipart_at;   /* from this length on; 0: 16 MiB */
};

int objects_s3_new(const struct objects_s3_options *o, struct objects **ret,
                   struct err *e) MUST_CHECK;

/* Requests, and further tries of those under way, are signed with this pair from now on. One thread at a
 * time, beside all others. */
int objects_s3_renew(struct objects *o, const char *access_key, const char *secret,
                     struct err *e) MUST_CHECK;

#endif
