/* A file arrives: as it is, or as the one part of a form. */
#include <stdio.h>
#include <string.h>

#include "files.h"
#include "http_when.h"
#include "idempotency.h"
#include "leasehold/counted.h"
#include "leasehold/file_name.h"
#include "multipart.h"
#include "ops.h"

struct put {
    struct call *c;
    struct chat chat;
    struct chatfile file;
    struct file row;
    char name[FILE_NAME_MAX + 1];
    char asked[FILE_NAME_MAX + 1]; /* as it came; what is there may be spelled otherwise */
    int64_t reserved;
    int64_t credit; /* of the quota: what it will replace */
    bool begun;
    bool fresh;             /* nothing may be there */
    struct multipart *form; /* NULL: raw */
};

/* --- what it is to be ------------------------------------------------------------------------ */

static int take_type(struct put *p, const char *type, struct err *e)
{
    struct file *f = &p->row;

    if (strlen(type) >= sizeof f->content_type)
        return err_field(e, "", "a content type has at most %zu bytes", sizeof f->content_type - 1);
    for (const char *s = type; *s; s++)
        if (*s < ' ' || *s > '~')
            return err_field(e, "", "a content type is visible ASCII");
    snprintf(f->content_type, sizeof f->content_type, "%s", *type ? type : file_type_of(p->name));
    return 0;
}

/* Conditions are about the file of now; `If-None-Match: *` is asked once more when it is placed. */
static int check_conditions(struct put *p, const struct file_look *l, bool there, struct err *e)
{
    const struct op_when *w = &p->c->when;
    char etag[80] = "";

    p->fresh = !strcmp(w->if_none_match, "*");
    if (l->file.sha256[0])
        snprintf(etag, sizeof etag, "\"%s\"", l->file.sha256);
    if (http_when(w, there ? etag : NULL, l->file.last_update_at / 1000, false) == HTTP_GO_ON)
        return 0;
    return err_set(e, ERR_PRECONDITION_FAILED,
                   p->fresh ? "there is a file of this name" : "the file is another by now");
}

static int reserve(struct put *p, int64_t bytes, struct err *e)
{
    int64_t needed = bytes - p->credit;

    if (needed <= 0) {
        p->credit -= bytes;
        return 0;
    }
    if (files_reserve(p->c->s, &p->chat.user_id, needed, e))
        return -1;
    p->credit = 0;
    p->reserved += needed;
    return 0;
}

/* What is there under the name, and the directory the file comes into. */
static int look(struct put *p, struct file_look *l, struct err *e)
{
    const struct file_name_args *a = p->c->args;
    bool there;

    if (file_name_check(p->name, e))
        return -1;
    there = !file_look_at(p->c, &a->chat_id, p->name, l, e);
    if (!there && e->code != ERR_CHAT_FILE_NOT_FOUND)
        return -1;
    if (there) /* it keeps its spelling */
        snprintf(p->name, sizeof p->name, "%s", l->file.name);
    p->chat = l->chat;
    p->credit = there ? l->file.size_bytes : 0;
    return check_conditions(p, l, there, e);
}

/* It has been put before: is it the same? */
static int begin_sum(struct put *p, const char *type, struct err *e)
{
    if (file_name_check(p->name, e) || take_type(p, type, e) || chatfile_begin_sum(&p->file, e))
        return -1;
    p->begun = true;
    return 0;
}

static int begin(struct put *p, const char *name, const char *type, struct err *e)
{
    struct file_look l;
    int rc;

    if (strlen(name) > FILE_NAME_MAX)
        return err_set(e, ERR_INVALID_ATTACHMENT_NAME, "a file name has 1 to 255 bytes");
    snprintf(p->name, sizeof p->name, "%s", name);
    snprintf(p->asked, sizeof p->asked, "%s", name);
    if (p->c->only_compares)
        return begin_sum(p, type, e);
    file_look_init(&l);
    rc = look(p, &l, e) || take_type(p, type, e) ||
                 (!p->form && reserve(p, (int64_t)p->c->body_len, e)) ||
                 chatfile_begin(&l.dir, &p->file, e)
             ? -1
             : 0;
    p->begun = !rc;
    file_look_done(&l);
    return rc;
}

/* --- the form -------------------------------------------------------------------------------- */

static int form_file(void *ctx, const struct multipart *m, struct err *e)
{
    return begin(ctx, m->file_name, m->content_type, e);
}

static int form_data(void *ctx, const char *data, size_t len, struct err *e)
{
    struct put *p = ctx;
    bool fits = p->c->only_compares || !reserve(p, (int64_t)len, e);

    return !fits || chatfile_write(&p->file, data, len, e) ? -1 : 0;
}

static int form_begin(struct put *p, struct err *e)
{
    p->form = call_alloc(p->c, sizeof *p->form);
    if (!p->form)
        return err_set(e, ERR_INTERNAL, "no memory for the request");
    p->form->ctx = p;
    p->form->file = form_file;
    p->form->data = form_data;
    return multipart_begin(p->form, p->c->content_type, e);
}

/* Before any of it is read: the chat at least. */
static int form_look(struct put *p, struct err *e)
{
    const struct file_name_args *a = p->c->args;
    struct file_look l;
    int rc;

    file_look_init(&l);
    rc = file_look_chat(p->c, &a->chat_id, &l, e);
    file_look_done(&l);
    return rc;
}

/* --- the operation --------------------------------------------------------------------------- */

static void release(struct put *p)
{
    files_unreserve(p->c->s->files, &p->chat.user_id, p->reserved);
    p->reserved = 0;
}

static void done(struct put *p)
{
    release(p);
    if (p->begun)
        chatfile_end(&p->file);
    p->begun = false;
}

static struct put *put_new(struct call *c, struct err *e)
{
    struct put *p = call_alloc(c, sizeof *p);

    if (!p) {
        err_set(e, ERR_INTERNAL, "no memory for the request");
        return NULL;
    }
    p->c = c;
    c->state = p;
    return p;
}

int op_file_put(struct call *c, struct err *e)
{
    const struct file_name_args *a = c->args;
    struct put *p = put_new(c, e);

    if (!p)
        return -1;
    if (begin(p, a->name, c->content_type, e)) {
        done(p);
        return -1;
    }
    return 0;
}

int op_file_put_form(struct call *c, struct err *e)
{
    struct put *p = put_new(c, e);

    return !p || form_begin(p, e) || form_look(p, e) ? -1 : 0;
}

int op_file_take(struct call *c, const char *data, size_t len, struct err *e)
{
    struct put *p = c->state;

    return p->form ? multipart_feed(p->form, data, len, e) : chatfile_write(&p->file, data, len, e);
}

void op_file_undo(struct call *c)
{
    done(c->state);
}

/* --- its place ------------------------------------------------------------------------------- */

struct placing {
    struct put *p;
    struct file_gone gone;
};

/* By how much the sum grows. */
static int put_delta(struct store_tx *tx, const struct placing *pl, int64_t *ret, struct err *e)
{
    const struct file *f = &pl->p->row;
    struct file before;
    int64_t counted;

    if (store_file_find(tx, &f->chat_id, f->name, &before, e)) {
        if (e->code != ERR_CHAT_FILE_NOT_FOUND)
            return -1;
        before.file_id = (struct id){0};
    }
    if (store_counted_of(tx, &f->user_id, &before.file_id, &pl->gone, &counted, e))
        return -1;
    *ret = f->size_bytes - counted;
    return 0;
}

static int put_row(struct store_tx *tx, void *arg, struct err *e)
{
    const struct placing *pl = arg;
    struct put *p = pl->p;
    struct call *c = p->c;
    struct file *f = &p->row;
    struct chat chat;
    int64_t delta;

    if (store_chat_get(tx, &p->chat.chat_id, c->arena, &chat, e) || put_delta(tx, pl, &delta, e))
        return -1;
    c->status = p->file.replaced ? 200 : 201;
    f->created_at = f->last_update_at = store_now_ms(tx);
    if (store_usage_add(tx, &f->user_id, delta, true, e) || store_file_put(tx, f, e) ||
        store_counted_put(tx, f, e) || file_event(tx, "file.put", f, e) ||
        store_audit_deed(tx,
                         &(struct audit_deed){.caller = &c->caller,
                                              .action = "file.put",
                                              .kind = "file",
                                              .id = &f->file_id,
                                              .chat_id = &f->chat_id,
                                              .chat_name = f->name},
                         e))
        return -1;
    *(struct file *)c->result = *f;
    files_complete(c->s, c->result);
    return idempotency_record(c, tx, e);
}

/* Two may have waited for the end of their bodies with the same condition. */
static int check_again(struct put *p, struct err *e)
{
    const struct file_name_args *a = p->c->args;
    struct file_look l;
    bool there;
    int rc;

    if (!*p->c->when.if_match && !*p->c->when.if_none_match)
        return 0;
    file_look_init(&l);
    there = !file_look_at(p->c, &a->chat_id, p->name, &l, e);
    rc = there || e->code == ERR_CHAT_FILE_NOT_FOUND ? check_conditions(p, &l, there, e) : -1;
    file_look_done(&l);
    return rc;
}

static int place_held(struct put *p, struct err *e)
{
    struct placing pl = {.p = p};
    int rc;

    if (check_again(p, e) ||
        chatfile_place(&p->file, p->name, p->fresh, &p->row.stamp, &pl.gone, e))
        return -1;
    release(p); /* from here on the store keeps count */
    rc = store_write(p->c->s->store, put_row, &pl, e);
    if (rc)
        chatfile_displace(&p->file);
    return rc;
}

static int place(struct put *p, struct err *e)
{
    struct services *s = p->c->s;
    int rc;

    store_usage_hold(s->store, &p->chat.user_id);
    files_lock(s->files, &p->chat.chat_id);
    rc = place_held(p, e);
    files_unlock(s->files, &p->chat.chat_id);
    store_usage_release(s->store, &p->chat.user_id);
    return rc;
}

/* A form is compared by what it says: boundaries are made anew for each. */
static void tell_body(struct put *p)
{
    const char *const parts[] = {p->asked, p->row.content_type, p->row.sha256};

    idempotency_body(p->c, parts, 3);
}

int op_file_end(struct call *c, struct err *e)
{
    struct put *p = c->state;
    struct file *f = &p->row;

    if (p->form && multipart_end(p->form, e))
        return -1;
    if (chatfile_sync(&p->file, f->sha256, e))
        return -1;
    tell_body(p);
    if (c->only_compares) {
        done(p);
        return 0;
    }
    id_random(&f->file_id);
    f->chat_id = p->chat.chat_id;
    f->user_id = p->chat.user_id;
    f->size_bytes = p->file.size;
    snprintf(f->name, sizeof f->name, "%s", p->name);
    if (place(p, e))
        return -1;
    done(p);
    return 0;
}
