/* Artifacts: put, seen, handed out by link, acknowledged, deleted. */
#include <stdio.h>
#include <string.h>

#include "artifacts.h"
#include "files.h"
#include "http_when.h"
#include "idempotency.h"
#include "leasehold/file_name.h"
#include "ops.h"

#define LINK_CAP 16384

const struct field artifact_put_in[] = {
    FIELD_ID(struct artifact_put_args, chat_id, .flags = FIELD_REQUIRED | FIELD_PATH,
             .doc = "the chat it is a result of"),
    {.name = "name",
     .kind = FIELD_KIND_STR,
     .flags = FIELD_QUERY,
     .offset = offsetof(struct artifact_put_args, query_name),
     .max = 255,
     .doc = "its name; required with a body that is the artifact itself"},
    FIELD_STR(struct artifact_put_args, path, .min = 1, .max = 4096,
              .doc = "of a file beneath the chat's files, instead of a body"),
    FIELD_STR(struct artifact_put_args, name, .max = 255,
              .doc = "its name; the file's if it is not given"),
    {0},
};

const struct field artifact_in[] = {
    FIELD_ID(struct artifact_args, artifact_id, .flags = FIELD_REQUIRED | FIELD_PATH,
             .doc = "the artifact"),
    {0},
};

const struct field artifact_list_in[] = {
    PAGE_IN(struct artifact_list_args),
    FIELD_ID(struct artifact_list_args, chat_id, .flags = FIELD_QUERY, .doc = "only this chat's"),
    FIELD_ID(struct artifact_list_args, user_id, .flags = FIELD_QUERY, .doc = "only this user's"),
    FIELD_ENUM(struct artifact_list_args, state, .flags = FIELD_QUERY,
               .has = offsetof(struct artifact_list_args, has_state), .names = artifact_state_names,
               .doc = "in this state; else all but deleted ones"),
    {0},
};

const struct field artifact_chat_list_in[] = {
    PAGE_IN(struct artifact_list_args),
    FIELD_ID(struct artifact_list_args, chat_id, .flags = FIELD_REQUIRED | FIELD_PATH,
             .doc = "of this chat"),
    FIELD_ENUM(struct artifact_list_args, state, .flags = FIELD_QUERY,
               .has = offsetof(struct artifact_list_args, has_state), .names = artifact_state_names,
               .doc = "in this state; else all but deleted ones"),
    {0},
};

const struct field artifact_download_in[] = {
    FIELD_ID(struct artifact_download_args, artifact_id, .flags = FIELD_REQUIRED | FIELD_PATH,
             .doc = "the artifact"),
    {.name = "redirect",
     .kind = FIELD_KIND_INT,
     .flags = FIELD_QUERY,
     .offset = offsetof(struct artifact_download_args, redirect),
     .max = 1,
     .def = "0",
     .doc = "1: answer 307 to the link"},
    {0},
};

const struct field artifact_download_out[] = {
    FIELD_STR(struct artifact_link, url, .max = LINK_CAP,
              .doc = "works without credentials; a secret for as long as it lives"),
    FIELD_TIME(struct artifact_link, expires_at, .doc = "when it ends"),
    {0},
};

static const char *const delivery_names[] = {"delivered", "failed", NULL};

const struct field artifact_deliver_in[] = {
    FIELD_ID(struct artifact_deliver_args, artifact_id, .flags = FIELD_REQUIRED | FIELD_PATH,
             .doc = "the artifact"),
    FIELD_ENUM(struct artifact_deliver_args, status, .flags = FIELD_REQUIRED,
               .names = delivery_names, .doc = "how the delivery ended"),
    FIELD_STR(struct artifact_deliver_args, channel, .flags = FIELD_REQUIRED, .min = 1, .max = 64,
              .doc = "where it was delivered to"),
    FIELD_STR(struct artifact_deliver_args, external_ref, .max = 512, .def = "",
              .doc = "what it is called there"),
    FIELD_STR(struct artifact_deliver_args, detail, .max = 512, .def = "", .doc = "for people"),
    {0},
};

const struct field artifact_list_out[] = {
    PAGE_OUT(artifact_fields, struct artifact),
    {0},
};

/* --- one that the caller may see ------------------------------------------------------------- */

static int visible(struct store_tx *tx, const struct caller *caller, const struct id *artifact_id,
                   struct artifact *ret, struct err *e)
{
    struct artifact a;

    if (store_artifact_get(tx, artifact_id, &a, e))
        return -1;
    if (!caller_may_see(caller, &a.user_id))
        return err_set(e, ERR_NOT_FOUND, "no such artifact");
    *ret = a;
    return 0;
}

int op_artifact_get(struct call *c, struct err *e)
{
    const struct artifact_args *a = c->args;

    return visible(c->tx, &c->caller, &a->artifact_id, c->result, e);
}

/* --- put ------------------------------------------------------------------------------------- */

static void take_type(const struct call *c, struct artifact *a)
{
    const char *type = c->body_streams && c->content_type ? c->content_type : "";
    bool ok = *type && strlen(type) < sizeof a->content_type;

    for (const char *p = type; *p; p++)
        ok = ok && *p >= 0x20 && *p <= 0x7e;
    snprintf(a->content_type, sizeof a->content_type, "%s", ok ? type : file_type_of(a->name));
}

static int take_name(const struct artifact_put_args *a, bool streams, struct artifact *ret,
                     struct err *e)
{
    const char *given = streams ? a->query_name : a->name, *slash;

    if (!streams && !a->path)
        return err_field(e, "/path", "path is missing");
    if (!streams && a->query_name)
        return err_field(e, "/name", "name stands in the body here");
    slash = !given && a->path ? strrchr(a->path, '/') : NULL;
    if (!given && a->path)
        given = slash ? slash + 1 : a->path;
    if (!given)
        return err_field(e, "/name", "parameter name is missing");
    if (file_name_check(given, e))
        return -1;
    snprintf(ret->name, sizeof ret->name, "%s", given);
    return 0;
}

struct find_chat {
    struct call *c;
    struct chat chat;
};

static int find_chat_row(struct store_tx *tx, void *arg, struct err *e)
{
    struct find_chat *f = arg;
    const struct artifact_put_args *a = f->c->args;

    return chat_visible(tx, &f->c->caller, &a->chat_id, f->c->arena, &f->chat, e);
}

static int put_path(struct artifact_upload *u, const char *path, struct err *e)
{
    struct find_chat f = {.c = u->call};
    int rc = store_read(u->s->store, find_chat_row, &f, e) ||
                     artifact_upload_open(u, &f.chat.user_id, path, e) ||
                     artifact_upload_begin(u, u->call->arena, e) || artifact_upload_store(u, e)
                 ? -1
                 : 0;

    artifact_upload_end(u);
    return rc;
}

/* A body that was answered for already is only compared. */
struct put {
    struct artifact_upload u;
    struct objects_check *check; /* NULL: it is stored */
};

static int begin_body(struct put *p, struct err *e)
{
    struct call *c = p->u.call;

    c->state = p;
    if (c->only_compares) {
        p->check = objects_check_new();
        return p->check ? 0 : err_set(e, ERR_INTERNAL, "no memory for an upload");
    }
    if (artifact_upload_begin(&p->u, c->arena, e))
        return -1;
    if (!artifact_upload_spool(&p->u, e))
        return 0;
    artifact_upload_end(&p->u);
    return -1;
}

int op_artifact_put(struct call *c, struct err *e)
{
    const struct artifact_put_args *a = c->args;
    struct put *p = call_alloc(c, sizeof *p);

    if (!p)
        return err_set(e, ERR_INTERNAL, "no memory for an upload");
    p->u = (struct artifact_upload){.s = c->s, .caller = &c->caller, .call = c, .fd = -1};
    p->u.a.chat_id = a->chat_id;
    p->u.a.size_bytes = (int64_t)c->body_len;
    if (take_name(a, c->body_streams, &p->u.a, e))
        return -1;
    take_type(c, &p->u.a);
    return c->body_streams ? begin_body(p, e) : put_path(&p->u, a->path, e);
}

int op_artifact_take(struct call *c, const char *data, size_t len, struct err *e)
{
    struct put *p = c->state;

    return p->check ? objects_check_add(p->check, data, len, e)
                    : artifact_upload_write(&p->u, data, len, e);
}

int op_artifact_end(struct call *c, struct err *e)
{
    struct put *p = c->state;
    char sum[65];
    const char *const said[] = {sum};

    if (p->check) {
        objects_check_sum(p->check, sum);
        objects_check_free(p->check);
        p->check = NULL;
        idempotency_body(c, said, 1);
        return 0;
    }
    if (artifact_upload_store(&p->u, e))
        return -1; /* undo follows */
    artifact_upload_end(&p->u);
    return 0;
}

void op_artifact_undo(struct call *c)
{
    struct put *p = c->state;

    objects_check_free(p->check);
    p->check = NULL;
    artifact_upload_end(&p->u);
}

/* --- list ------------------------------------------------------------------------------------ */

static int list_each(void *ctx, const struct artifact *a, struct err *e)
{
    struct artifact *item = page_add(ctx, a->created_at, &a->artifact_id);

    (void)e;
    if (item)
        *item = *a;
    return 0;
}

static int chat_seen(struct call *c, const struct artifact_list_args *a, struct err *e)
{
    struct chat chat;

    return id_is_zero(&a->chat_id)
               ? 0
               : chat_visible(c->tx, &c->caller, &a->chat_id, c->arena, &chat, e);
}

int op_artifact_list(struct call *c, struct err *e)
{
    const struct artifact_list_args *a = c->args;
    const char *const names[] = {artifact_state_names[a->state], NULL};
    struct store_filter filter = {
        .user_id = a->user_id, .chat_id = a->chat_id, .names = a->has_state ? names : NULL};
    struct page_build page;
    struct store_list list;

    if (chat_seen(c, a, e) ||
        page_begin(&page, c, &a->page, 'a', sizeof(struct artifact), &list, e) ||
        store_artifact_list(c->tx, &list, &filter, list_each, &page, e))
        return -1;
    return page_end(&page, c->result, e);
}

/* --- download --------------------------------------------------------------------------------- */

static int no_link(const struct artifact *a, struct err *e)
{
    return err_set(e, ERR_CONFLICT, "the artifact is %s", artifact_state_names[a->state]);
}

static const char *link_origin(const struct call *c)
{
    const char *own = c->s->cfg->objects.public_endpoint;

    return *own ? own : server_url(c->s->server);
}

/* The value of the header; NULL without memory. */
static const char *disposition(const char *name, struct buf *line)
{
    static const char header[] = "Content-Disposition: ";

    http_disposition(name, line);
    if (!buf_ok(line) || line->len < sizeof header + 1)
        return NULL;
    line->data[line->len - 2] = '\0'; /* its line end */
    return line->data + sizeof header - 1;
}

static int make_link(struct call *c, const struct artifact *a, int64_t now_ms,
                     struct artifact_link *ret, struct err *e)
{
    struct objects *o = artifacts_store(c->s->artifacts);
    int64_t lifetime_s = c->s->cfg->objects.presign_seconds;
    struct buf said, url;
    int rc;

    buf_init(&said, 4096);
    buf_init(&url, LINK_CAP);
    const struct object_presign p = {.key = a->object_key,
                                     .origin = link_origin(c),
                                     .disposition = disposition(a->name, &said),
                                     .content_type = a->content_type,
                                     .now_s = now_ms / 1000,
                                     .expires_s = lifetime_s};
    rc = p.disposition ? o->v->presign(o, &p, &url, e)
                       : err_set(e, ERR_INTERNAL, "no memory for a link");
    if (!rc) {
        ret->url = arena_strndup(c->arena, url.data, url.len);
        ret->expires_at = (now_ms / 1000 + lifetime_s) * 1000;
        rc = ret->url ? 0 : err_set(e, ERR_INTERNAL, "no memory for a link");
    }
    buf_done(&said);
    buf_done(&url);
    return rc;
}

static int redirect(struct call *c, const struct artifact_link *l, struct err *e)
{
    static const char format[] = "Location: %s\r\n";
    size_t size = strlen(l->url) + sizeof format;
    char *line = call_alloc(c, size);

    if (!line)
        return err_set(e, ERR_INTERNAL, "no memory for a link");
    snprintf(line, size, format, l->url);
    c->extra = line;
    c->status = 307;
    return 0;
}

/* In a write: until the link ends, no sweep deletes what somebody may be reading. */
int op_artifact_download(struct call *c, struct err *e)
{
    const struct artifact_download_args *a = c->args;
    struct artifact_link *l = c->result;
    struct artifact found;

    if (visible(c->tx, &c->caller, &a->artifact_id, &found, e))
        return -1;
    if (found.state != ARTIFACT_STORED && found.state != ARTIFACT_DELIVERED &&
        found.state != ARTIFACT_DELIVERY_FAILED)
        return no_link(&found, e);
    if (make_link(c, &found, store_now_ms(c->tx), l, e))
        return -1;
    if (l->expires_at > found.links_until)
        found.links_until = l->expires_at;
    if (store_artifact_update(c->tx, &found, e) ||
        artifact_tell(c->tx,
                      &(struct artifact_deed){.caller = &c->caller, .action = "artifact.download"},
                      &found, e))
        return -1;
    return a->redirect ? redirect(c, l, e) : 0;
}

/* --- delivery --------------------------------------------------------------------------------- */

static void set_delivery(struct artifact *a, const struct artifact_deliver_args *args, int64_t now)
{
    struct artifact_delivery *d = &a->delivery;

    snprintf(d->status, sizeof d->status, "%s", delivery_names[args->status]);
    snprintf(d->channel, sizeof d->channel, "%s", args->channel);
    snprintf(d->external_ref, sizeof d->external_ref, "%s", args->external_ref);
    snprintf(d->detail, sizeof d->detail, "%s", args->detail);
    d->attempts++;
    d->at = now;
}

/* A failed delivery may be tried again; one that was confirmed stays so. */
int op_artifact_deliver(struct call *c, struct err *e)
{
    const struct artifact_deliver_args *args = c->args;
    int64_t now = store_now_ms(c->tx);
    bool failed = args->status == 1;
    struct artifact *a = c->result, found;

    if (visible(c->tx, &c->caller, &args->artifact_id, &found, e))
        return -1;
    if (found.state != ARTIFACT_STORED && found.state != ARTIFACT_DELIVERY_FAILED &&
        (found.state != ARTIFACT_DELIVERED || failed))
        return no_link(&found, e);
    if (!failed && found.state != ARTIFACT_DELIVERED)
        found.delete_after = now + c->s->cfg->retention.artifact_delivered_grace_seconds * 1000;
    set_delivery(&found, args, now);
    found.state = failed ? ARTIFACT_DELIVERY_FAILED : ARTIFACT_DELIVERED;
    *a = found;
    return store_artifact_update(c->tx, a, e) ||
                   artifact_tell(c->tx,
                                 &(struct artifact_deed){.caller = &c->caller,
                                                         .event = failed
                                                                      ? "artifact.delivery_failed"
                                                                      : "artifact.delivered",
                                                         .action = "artifact.deliver"},
                                 a, e)
               ? -1
               : 0;
}

/* --- delete ---------------------------------------------------------------------------------- */

struct deletion {
    struct call *c;
    struct artifact a;
};

/* One that is marked already, as its chat went or by an older gateway, may have been left longer. */
static int mark_row(struct store_tx *tx, void *arg, struct err *e)
{
    struct deletion *d = arg;
    const struct artifact_args *args = d->c->args;
    int64_t now = store_now_ms(tx);
    bool waits;

    if (visible(tx, &d->c->caller, &args->artifact_id, &d->a, e))
        return -1;
    if (d->a.state == ARTIFACT_CREATED)
        return err_set(e, ERR_CONFLICT, "the artifact is being uploaded");
    if (d->a.state == ARTIFACT_DELETED)
        return 0;
    waits = artifacts_links_hold(d->c->s->artifacts) && d->a.links_until > now;
    d->a.state = ARTIFACT_MARKED;
    d->a.delete_after = waits ? d->a.links_until : now;
    return store_artifact_update(tx, &d->a, e) ||
                   artifact_tell(tx,
                                 &(struct artifact_deed){.caller = &d->c->caller,
                                                         .action = "artifact.delete"},
                                 &d->a, e)
               ? -1
               : 0;
}

int op_artifact_delete(struct call *c, struct err *e)
{
    struct deletion d = {.c = c};
    struct err later;

    if (store_write_end(c->s->store, mark_row, &d, e))
        return -1;
    (void)!artifact_remove(c->s, &d.a, &later); /* it has logged why; the sweep goes on with it */
    return 0;
}
