/*
 * An upload: the row, the bytes on the disk, the object, the row again. The bytes are kept in a file
 * without a name, so that a slow client holds no memory of the store of objects, and a killed gateway
 * leaves nothing. A store on the disk gives that file itself, and takes it as the object.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "artifacts.h"
#include "idempotency.h"
#include "leasehold/chatfile.h"
#include "meters.h"
#include "ops.h"

/* --- the row --------------------------------------------------------------------------------- */

struct begin {
    struct artifact_upload *u;
    struct arena *arena;
};

static int begin_row(struct store_tx *tx, void *arg, struct err *e)
{
    struct begin *b = arg;
    struct artifact *a = &b->u->a;
    const char *prefix = b->u->s->cfg->objects.prefix;
    struct chat chat;
    struct buf key;
    int rc;

    if (chat_visible(tx, b->u->caller, &a->chat_id, b->arena, &chat, e))
        return -1;
    a->user_id = chat.user_id;
    a->created_at = store_now_ms(tx);
    a->state = ARTIFACT_CREATED;
    buf_init(&key, sizeof a->object_key);
    rc = objects_key(prefix, &a->user_id, &a->chat_id, &a->artifact_id, &key, e);
    if (!rc)
        memcpy(a->object_key, key.data, key.len + 1);
    buf_done(&key);
    return rc || store_artifact_insert(tx, a, e) ? -1 : 0;
}

int artifact_upload_begin(struct artifact_upload *u, struct arena *arena, struct err *e)
{
    struct begin b = {.u = u, .arena = arena};

    id_random(&u->a.artifact_id);
    u->began_us = clock_boot_us(u->s->clock);
    artifacts_enter(u->s->artifacts, &u->mark, &u->a.artifact_id);
    if (store_write(u->s->store, begin_row, &b, e)) {
        artifacts_leave(u->s->artifacts, &u->mark);
        return -1;
    }
    u->begun = true;
    return 0;
}

/* --- the bytes ------------------------------------------------------------------------------- */

static int fail_disk(struct err *e, const char *what)
{
    bool full = errno == ENOSPC || errno == EDQUOT;

    return err_sys(e, full ? ERR_STORAGE_FULL : ERR_INTERNAL, errno, "%s", what);
}

static int spool_in_store(struct artifact_upload *u, struct err *e)
{
    struct objects *o = artifacts_store(u->s->artifacts);

    if (!o->v->spool)
        return 0;
    if (o->v->spool(o, &u->fd, e))
        return -1;
    u->in_store = u->fd >= 0;
    return 0;
}

static int spool_of_our_own(struct artifact_upload *u, struct err *e)
{
    char path[PATH_MAX];
    const char *dir = u->s->cfg->storage.data_dir;

    u->fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (u->fd >= 0)
        return 0;
    if ((size_t)snprintf(path, sizeof path, "%s/upload.XXXXXX", dir) >= sizeof path)
        return err_set(e, ERR_INTERNAL, "storage.data_dir is too long a path");
    u->fd = mkostemp(path, O_CLOEXEC);
    if (u->fd < 0)
        return fail_disk(e, "make a file for an upload");
    unlink(path);
    return 0;
}

int artifact_upload_spool(struct artifact_upload *u, struct err *e)
{
    u->sum = objects_check_new();
    if (!u->sum)
        return err_set(e, ERR_INTERNAL, "no memory for an upload");
    return spool_in_store(u, e) || (!u->in_store && spool_of_our_own(u, e)) ? -1 : 0;
}

int artifact_upload_write(struct artifact_upload *u, const char *data, size_t len, struct err *e)
{
    if (u->sum && objects_check_add(u->sum, data, len, e))
        return -1;
    while (len) {
        ssize_t n = write(u->fd, data, len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fail_disk(e, "write an upload");
        data += n;
        len -= (size_t)n;
        u->at += n;
    }
    return 0;
}

int artifact_upload_open(struct artifact_upload *u, const struct id *user_id, const char *path,
                         struct err *e)
{
    struct chatfiles dir;
    struct file_stamp stamp;
    int rc;

    if (chatfiles_open(u->s->cfg->sandbox.chats_root, user_id, &u->a.chat_id, &dir, e))
        return -1;
    rc = chatfiles_read_beneath(&dir, path, &u->fd, &stamp, e);
    chatfiles_close(&dir);
    if (!rc)
        u->a.size_bytes = stamp.size_bytes;
    return rc;
}

static ssize_t read_bytes(void *ctx, char *ret, size_t size, struct err *e)
{
    struct artifact_upload *u = ctx;
    int64_t left = u->a.size_bytes - u->at;
    ssize_t n;

    if (left < (int64_t)size)
        size = (size_t)left;
    do
        n = size ? pread(u->fd, ret, size, u->at) : 0;
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return fail_disk(e, "read an upload");
    u->at += n;
    return n;
}

/* Of a file that is our own and written no more. */
static ssize_t read_bytes_at(void *ctx, char *ret, size_t size, int64_t at, struct err *e)
{
    const struct artifact_upload *u = ctx;
    ssize_t n;

    do
        n = pread(u->fd, ret, size, at);
    while (n < 0 && errno == EINTR);
    return n < 0 ? fail_disk(e, "read an upload") : n;
}

/* --- the object, and the row again ------------------------------------------------------------ */

struct upload_change {
    struct artifact_upload *u;
    struct artifact a;
    bool orphan; /* its chat was deleted meanwhile */
};

static int upload_row(struct store_tx *tx, void *arg, struct err *e)
{
    const struct upload_change *c = arg;

    return store_artifact_update(tx, &c->a, e);
}

static int on_begun(void *ctx, const char *upload_id, struct err *e)
{
    struct artifact_upload *u = ctx;
    struct upload_change c = {.u = u};

    snprintf(u->a.upload_id, sizeof u->a.upload_id, "%s", upload_id);
    c.a = u->a;
    return store_write(u->s->store, upload_row, &c, e);
}

static bool chat_is_there(struct store_tx *tx, const struct artifact *a)
{
    struct arena *arena = arena_new(64 * 1024);
    struct chat chat;
    struct err e;
    bool gone =
        arena && store_chat_get(tx, &a->chat_id, arena, &chat, &e) && e.code == ERR_CHAT_NOT_FOUND;

    arena_free(arena);
    return !gone;
}

static int stored_row(struct store_tx *tx, void *arg, struct err *e)
{
    struct upload_change *c = arg;
    struct artifact_upload *u = c->u;
    int64_t now = store_now_ms(tx);

    c->orphan = !chat_is_there(tx, &c->a);
    c->a.stored_at = now;
    c->a.upload_id[0] = '\0';
    c->a.state = c->orphan ? ARTIFACT_MARKED : ARTIFACT_STORED;
    c->a.delete_after = c->orphan ? now : now + u->s->cfg->retention.artifact_ttl_seconds * 1000;
    if (store_artifact_update(tx, &c->a, e) ||
        artifact_tell(tx,
                      &(struct artifact_deed){.caller = u->caller,
                                              .actor = u->actor,
                                              .event = c->orphan ? NULL : "artifact.stored",
                                              .action = "artifact.put"},
                      &c->a, e))
        return -1;
    if (c->orphan || !u->call)
        return 0;
    *(struct artifact *)u->call->result = c->a;
    u->call->status = 201;
    return idempotency_record(u->call, tx, e);
}

static void count(const struct artifact_upload *u, int rc)
{
    metric_observe(meter(u->s->meters, METER_ARTIFACT_UPLOAD), rc ? METER_ERROR : METER_SUCCESS, 0,
                   clock_boot_us(u->s->clock) - u->began_us);
    if (!rc)
        metric_add(meter(u->s->meters, METER_ARTIFACT_BYTES), 0, 0, u->a.size_bytes);
}

static const char *sum_of(const struct artifact_upload *u, char ret[static 65])
{
    if (!u->sum)
        return NULL;
    objects_check_sum(u->sum, ret);
    return ret;
}

static int put_object(struct artifact_upload *u, const struct object_put *p,
                      struct object_info *ret, struct err *e)
{
    struct objects *o = artifacts_store(u->s->artifacts);

    u->at = 0;
    u->sent = true;
    return u->in_store ? o->v->adopt(o, p, u->fd, ret, e) : o->v->put(o, p, ret, e);
}

static int put(struct artifact_upload *u, struct err *e)
{
    char token[ID_TEXT], sum[65];
    struct object_info info;
    const struct object_put p = {.key = u->a.object_key,
                                 .content_type = u->a.content_type,
                                 .token = id_format(&u->a.artifact_id, token),
                                 .maker = artifacts_maker(u->s->artifacts),
                                 .len = u->a.size_bytes,
                                 .sha256 = sum_of(u, sum),
                                 .ctx = u,
                                 .read = read_bytes,
                                 .read_at = u->sum ? read_bytes_at : NULL,
                                 .begun = on_begun,
                                 .cancel = &u->s->stopping};
    struct upload_change c = {.u = u};

    if (put_object(u, &p, &info, e))
        return -1;
    c.a = u->a;
    memcpy(c.a.sha256, info.sha256, sizeof c.a.sha256);
    if (u->call && u->call->body_streams) {
        const char *const said[] = {c.a.sha256};
        idempotency_body(u->call, said, 1);
    }
    if (store_write(u->s->store, stored_row, &c, e))
        return -1;
    u->a = c.a;
    return c.orphan ? err_set(e, ERR_CHAT_NOT_FOUND, "the chat was deleted meanwhile") : 0;
}

int artifact_upload_store(struct artifact_upload *u, struct err *e)
{
    int rc = artifact_upload_clone(u, e) || put(u, e) ? -1 : 0;

    u->unanswered = rc && e->code == ERR_OBJECT_STORE_UNAVAILABLE;
    count(u, rc);
    return rc;
}

/* --- the end --------------------------------------------------------------------------------- */

/* Of a row that is only a promise. What was sent may be there, in part or whole: it goes first. */
static int give_up_row(struct store_tx *tx, void *arg, struct err *e)
{
    struct upload_change *c = arg;

    if (!c->u->sent)
        return store_artifact_forget(tx, &c->a.artifact_id, e);
    c->a.state = ARTIFACT_MARKED;
    c->a.delete_after = store_now_ms(tx);
    return store_artifact_update(tx, &c->a, e);
}

/* The room it has taken is given back before the caller hears of it, unless nobody knows what the
 * store of objects has: one that did not answer would keep the caller waiting as long once more. */
static void give_up(struct artifact_upload *u)
{
    struct upload_change c = {.u = u, .a = u->a};
    struct err e;

    if (u->a.state == ARTIFACT_CREATED && store_write_end(u->s->store, give_up_row, &c, &e))
        log_error(u->s->log, "artifact_give_up", &e, LF_ID("artifact_id", &u->a.artifact_id));
    else if (c.a.state == ARTIFACT_MARKED && !u->unanswered && !u->s->stopping)
        (void)!artifact_remove(u->s, &c.a, &e); /* it has logged why; the sweep goes on with it */
}

void artifact_upload_end(struct artifact_upload *u)
{
    if (u->fd >= 0)
        close(u->fd);
    u->fd = -1;
    objects_check_free(u->sum);
    u->sum = NULL;
    if (!u->begun)
        return;
    give_up(u);
    u->begun = false;
    artifacts_leave(u->s->artifacts, &u->mark);
}
