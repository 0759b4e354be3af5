/* What is said in a chat: appended, listed, read as one text. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "chat_log.h"
#include "history_queue.h"
#include "ops.h"

#define PAGE_BYTES  (1024 * 1024) /* of contents; one message is always answered */
#define AUTHOR_MAX  256
#define CURSOR_KIND 'm'

const struct field message_fields[] = {
    FIELD_INT(struct message_view, seq, .doc = "1, 2, 3 … in the chat"),
    FIELD_ID(struct message_view, message_id, .doc = "the message"),
    FIELD_TIME(struct message_view, at, .doc = "when it was said"),
    FIELD_ENUM(struct message_view, role, .names = history_role_names, .doc = "who spoke"),
    FIELD_STR(struct message_view, author, .flags = FIELD_NULL_ZERO, .max = AUTHOR_MAX,
              .doc = "whose words they are"),
    FIELD_STR(struct message_view, content, .max = 1048576, .doc = "the words"),
    {0},
};

/* --- append ---------------------------------------------------------------------------------- */

const struct field history_append_in[] = {
    FIELD_ID(struct history_append_args, chat_id, .flags = FIELD_REQUIRED | FIELD_PATH,
             .doc = "the chat"),
    FIELD_ENUM(struct history_append_args, role, .flags = FIELD_REQUIRED,
               .names = history_role_names, .doc = "who speaks"),
    FIELD_STR(struct history_append_args, content, .flags = FIELD_REQUIRED, .max = 1048576,
              .doc = "the words"),
    FIELD_STR(struct history_append_args, author, .max = AUTHOR_MAX,
              .doc = "whose words they are, without control characters"),
    FIELD_TIME(struct history_append_args, at, .has = offsetof(struct history_append_args, has_at),
               .doc = "when it was said; now if it is not given"),
    FIELD_STR(struct history_append_args, client_message_id, .min = 1, .max = 128,
              .doc = "the caller's own id of it: sent again it is answered again"),
    {0},
};

int op_history_append(struct call *c, struct err *e)
{
    const struct history_append_args *a = c->args;

    for (const unsigned char *p = (const unsigned char *)a->author; p && *p; p++)
        if (*p < 0x20 || *p == 0x7f)
            return err_field(e, "/author", "author has a control character");
    return 0;
}

bool op_history_append_queue(struct call *c)
{
    history_queue_add(c->s->history, c);
    return false;
}

/* --- reading, on the FILE lane under the chat's key ------------------------------------------ */

void op_history_key(struct call *c, struct id *ret)
{
    *ret = ((const struct history_args *)c->args)->chat_id;
}

static int look_row(struct store_tx *tx, void *arg, struct err *e)
{
    struct call *c = arg;
    struct chat *chat = c->state;

    return chat_visible(tx, &c->caller, &chat->chat_id, c->arena, chat, e);
}

static int open_visible(struct call *c, struct chat_log *l, struct err *e)
{
    struct chat chat;

    op_history_key(c, &chat.chat_id);
    c->state = &chat;
    int rc = store_read(c->s->store, look_row, c, e);
    c->state = NULL;
    return rc || chat_log_open(l, c->s, &chat.user_id, &chat.chat_id, e) ? -1 : 0;
}

const struct field history_list_in[] = {
    PAGE_IN(struct history_list_args),
    FIELD_ID(struct history_list_args, chat_id, .flags = FIELD_REQUIRED | FIELD_PATH,
             .doc = "the chat"),
    FIELD_INT(struct history_list_args, after, .flags = FIELD_QUERY,
              .doc = "only messages with a higher seq"),
    {0},
};
const struct field history_list_out[] = {
    PAGE_OUT(message_fields, struct message_view),
    {0},
};

struct listing {
    struct call *c;
    struct message_view *items;
    size_t n, limit, bytes;
    bool more;
};

static int list_each(void *ctx, const struct history_message *m, struct err *e)
{
    struct listing *l = ctx;
    struct message_view *item = &l->items[l->n];

    if (l->more || l->n == l->limit || (l->n && l->bytes + m->content_len > PAGE_BYTES)) {
        l->more = true;
        return 0;
    }
    l->bytes += m->content_len;
    *item = (struct message_view){
        .seq = m->seq, .message_id = m->message_id, .at = m->at, .role = (int)m->role};
    item->author = arena_strndup(l->c->arena, m->author, strlen(m->author));
    item->content = arena_strndup(l->c->arena, m->content, m->content_len);
    l->n++;
    return item->author && item->content ? 0 : err_set(e, ERR_INTERNAL, "no memory for a list");
}

static int list_messages(struct listing *l, struct chat_log *log, int64_t after, struct err *e)
{
    int64_t limit = (int64_t)l->limit + 1;

    if (!chat_log_each(log, after, limit, list_each, l, e))
        return 0;
    if (!log->renewed)
        return -1;
    l->n = l->bytes = 0;
    return chat_log_each(log, after, limit, list_each, l, e);
}

static int list_end(struct listing *l, struct page *ret, struct err *e)
{
    char *cursor = NULL;

    if (l->more) {
        cursor = call_alloc(l->c, CURSOR_TEXT);
        if (!cursor)
            return err_set(e, ERR_INTERNAL, "no memory for a list");
        cursor_write(CURSOR_KIND, &(struct store_place){.created_at = l->items[l->n - 1].seq},
                     cursor);
    }
    ret->items = (struct list){l->items, l->n};
    ret->next_cursor = cursor;
    return 0;
}

int op_history_list(struct call *c, struct err *e)
{
    const struct history_list_args *a = c->args;
    struct store_place after = {.created_at = a->after};
    struct listing l = {.c = c, .limit = (size_t)a->page.limit};
    struct chat_log log;
    int rc;

    if (a->page.cursor && (a->after || !cursor_read(CURSOR_KIND, a->page.cursor, &after)))
        return err_field(e, "/cursor", "cursor is not one of this list");
    l.items = call_alloc(c, l.limit * sizeof *l.items);
    if (!l.items)
        return err_set(e, ERR_INTERNAL, "no memory for a list");
    if (open_visible(c, &log, e))
        return -1;
    rc = list_messages(&l, &log, after.created_at, e);
    chat_log_close(&log);
    return rc ? -1 : list_end(&l, c->result, e);
}

/* --- as one text ----------------------------------------------------------------------------- */

const struct field history_in[] = {
    FIELD_ID(struct history_args, chat_id, .flags = FIELD_REQUIRED | FIELD_PATH, .doc = "the chat"),
    {0},
};

/* Appends only add to the file: what was there when it was opened is sent, whatever comes meanwhile. */
static int keep_open(struct call *c, const struct chat_log *l, struct err *e)
{
    int *fd = call_alloc(c, sizeof *fd);

    if (!fd)
        return err_set(e, ERR_INTERNAL, "no memory for the text");
    *fd = fcntl(history_md_fd(l->history, &c->answer_len), F_DUPFD_CLOEXEC, 0);
    if (*fd < 0)
        return err_sys(e, ERR_INTERNAL, errno, "open history.md");
    c->state = fd;
    c->streams = true;
    return 0;
}

int op_history_markdown(struct call *c, struct err *e)
{
    struct chat_log l;
    int rc;

    if (open_visible(c, &l, e))
        return -1;
    rc = keep_open(c, &l, e);
    chat_log_close(&l);
    return rc;
}

int op_history_markdown_give(struct call *c, struct op_piece *piece, struct err *e)
{
    (void)e;
    piece->fd = *(const int *)c->state;
    piece->len = c->answer_len;
    return 0;
}

void op_history_markdown_close(struct call *c)
{
    close(*(const int *)c->state);
}
