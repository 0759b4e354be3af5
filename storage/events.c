/*
 * The event log. A line of a row is
 *
 *     <seq> <at> <name> <user> <chat> <session> <data>
 *
 * with one space between, ids as text or "-", and data up to the end of the line.
 */
#include "events.h"

#include <stdlib.h>
#include <string.h>

#include "leasehold/arena.h"
#include "stmt.h"
#include "tx.h"

#define GROUP_MAX_BYTES  (64u * 1024 * 1024) /* of one commit */
#define GROUP_KEPT_BYTES (1024u * 1024)      /* a group that was larger gives its memory back */

/* --- writing ---------------------------------------------------------------------------------- */

int event_group_load(struct event_group *g, struct conn *c, struct err *e)
{
    struct stmt st;
    buf_init(&g->lines, GROUP_MAX_BYTES);
    if (stmt_open(&st, c, "event",
                  "SELECT COALESCE((SELECT last_seq FROM event_log"
                  " ORDER BY first_seq DESC LIMIT 1), 0)",
                  e) != 0 ||
        stmt_end_with_int(&st, ERR_INTERNAL, &g->last_seq, e) != 0) {
        return -1;
    }
    g->saved_seq = g->last_seq;
    return 0;
}

void event_group_free(struct event_group *g)
{
    buf_done(&g->lines);
}

struct event_mark event_group_mark(const struct event_group *g)
{
    return (struct event_mark){.last_seq = g->last_seq, .len = g->lines.len};
}

void event_group_undo(struct event_group *g, struct event_mark mark)
{
    g->last_seq = mark.last_seq;
    g->lines.len = mark.len;
    g->lines.failed = false;
}

static void add_word(struct buf *out, const char *word)
{
    buf_add_str(out, word);
    buf_add_char(out, ' ');
}

static void add_number(struct buf *out, int64_t v)
{
    buf_add_int(out, v);
    buf_add_char(out, ' ');
}

static void add_id(struct buf *out, const struct id *id)
{
    add_word(out, id_is_zero(id) ? "-" : ID_STR(id));
}

int store_event_append(struct store_tx *tx, const struct store_event *ev, struct err *e)
{
    struct event_group *g = tx->events;
    if (g == NULL) {
        return err_set(e, ERR_INTERNAL, "event in a read");
    }
    if (strpbrk(ev->name, " \n") != NULL || strchr(ev->data, '\n') != NULL) {
        return err_set(e, ERR_INTERNAL, "event %s is more than a line", ev->name);
    }
    add_number(&g->lines, g->last_seq + 1);
    add_number(&g->lines, tx->now_ms);
    add_word(&g->lines, ev->name);
    add_id(&g->lines, &ev->user_id);
    add_id(&g->lines, &ev->chat_id);
    add_id(&g->lines, &ev->session_id);
    buf_add_str(&g->lines, ev->data);
    buf_add_char(&g->lines, '\n');
    if (!buf_ok(&g->lines)) {
        return err_set(e, ERR_INTERNAL, "no memory for event %s", ev->name);
    }
    g->last_seq++;
    g->at = tx->now_ms;
    return 0;
}

bool event_group_batch(const struct event_group *g, struct store_event_batch *ret)
{
    *ret = (struct store_event_batch){.first_seq = g->saved_seq + 1,
                                      .last_seq = g->last_seq,
                                      .text = g->lines.data,
                                      .len = g->lines.len};
    return g->lines.len > 0;
}

int event_group_write(struct event_group *g, struct conn *c, struct err *e)
{
    struct store_event_batch batch;
    struct stmt st;
    if (!event_group_batch(g, &batch)) {
        return 0;
    }
    if (stmt_open(&st, c, "event",
                  "INSERT INTO event_log (first_seq, last_seq, at, events) VALUES (?, ?, ?, ?)",
                  e) != 0) {
        return -1;
    }
    bind_int(&st, batch.first_seq);
    bind_int(&st, batch.last_seq);
    bind_int(&st, g->at);
    bind_text_len(&st, batch.text, batch.len);
    return stmt_run(&st, e);
}

void event_group_reset(struct event_group *g)
{
    g->saved_seq = g->last_seq;
    buf_reset(&g->lines);
    if (g->lines.size > GROUP_KEPT_BYTES) {
        buf_done(&g->lines);
        buf_init(&g->lines, GROUP_MAX_BYTES);
    }
}

/* --- reading ---------------------------------------------------------------------------------- */

/* The next word of a line that is cut into pieces. */
static char *take_word(char **at)
{
    char *word = *at;
    *at = word != NULL ? strchr(word, ' ') : NULL;
    if (*at != NULL) {
        *(*at)++ = '\0';
    }
    return word;
}

static bool take_number(char **at, int64_t *ret)
{
    const char *word = take_word(at);
    char *end = NULL;
    *ret = word != NULL ? strtoll(word, &end, 10) : 0;
    return end != NULL && *end == '\0' && *ret > 0;
}

static bool take_id(char **at, struct id *ret)
{
    const char *word = take_word(at);
    *ret = (struct id){{0}};
    return word != NULL && (strcmp(word, "-") == 0 || id_parse(word, strlen(word), ret));
}

static bool line_parse(char *line, struct store_event *ret)
{
    char *at = line;
    if (!take_number(&at, &ret->seq) || !take_number(&at, &ret->at)) {
        return false;
    }
    ret->name = take_word(&at);
    bool whole = take_id(&at, &ret->user_id) && take_id(&at, &ret->chat_id) &&
                 take_id(&at, &ret->session_id);
    ret->data = at;
    return whole && at != NULL;
}

/* The text is taken apart in place. */
static int each_line(char *text, int64_t after_seq,
                     int (*each)(void *ctx, const struct store_event *ev, struct err *e), void *ctx,
                     struct err *e)
{
    char *next;
    for (char *line = text; *line != '\0'; line = next) {
        struct store_event ev;
        next = line + strcspn(line, "\n");
        if (*next == '\n') {
            *next++ = '\0';
        }
        if (!line_parse(line, &ev)) {
            return err_set(e, ERR_INTERNAL, "an entry of the event log cannot be read");
        }
        int rc = ev.seq > after_seq ? each(ctx, &ev, e) : 0;
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

int store_event_batch_each(const struct store_event_batch *batch, int64_t after_seq,
                           int (*each)(void *ctx, const struct store_event *ev, struct err *e),
                           void *ctx, struct err *e)
{
    char *text = strndup(batch->text, batch->len);
    if (text == NULL) {
        return err_set(e, ERR_INTERNAL, "no memory for events");
    }
    int rc = each_line(text, after_seq, each, ctx, e);
    free(text);
    return rc < 0 ? -1 : 0;
}

static int next_batch(struct store_tx *tx, int64_t after_seq, struct arena *arena, char **ret,
                      int64_t *ret_last, struct err *e)
{
    struct stmt st;
    bool row;
    if (stmt_open(&st, tx->conn, "event",
                  "SELECT last_seq, events FROM event_log WHERE first_seq >="
                  " COALESCE((SELECT MAX(first_seq) FROM event_log WHERE first_seq <= ?), 0)"
                  " AND last_seq > ? ORDER BY first_seq LIMIT 1",
                  e) != 0) {
        return -1;
    }
    bind_int(&st, after_seq);
    bind_int(&st, after_seq);
    int rc = stmt_next(&st, &row, e);
    *ret = NULL;
    if (rc == 0 && row) {
        *ret_last = column_int(&st);
        *ret = column_text_new(&st, arena);
    }
    return stmt_end(&st, rc, e);
}

int store_event_each(struct store_tx *tx, int64_t after_seq,
                     int (*each)(void *ctx, const struct store_event *ev, struct err *e), void *ctx,
                     struct err *e)
{
    int rc;
    do {
        struct arena *arena = arena_new(GROUP_MAX_BYTES);
        char *text = NULL;
        int64_t last = after_seq;
        if (arena == NULL) {
            return err_set(e, ERR_INTERNAL, "no memory for events");
        }
        rc = next_batch(tx, after_seq, arena, &text, &last, e);
        if (rc == 0 && text != NULL) {
            rc = each_line(text, after_seq, each, ctx, e);
        }
        bool more = text != NULL;
        arena_free(arena);
        if (!more) {
            break;
        }
        after_seq = last;
    } while (rc == 0);
    return rc < 0 ? -1 : 0;
}

int store_event_range(struct store_tx *tx, struct store_event_range *ret, struct err *e)
{
    struct stmt st;
    struct store_event_range range = {0};
    if (stmt_open(&st, tx->conn, "event",
                  "SELECT COALESCE((SELECT MIN(first_seq) FROM event_log), 1),"
                  " COALESCE((SELECT last_seq FROM event_log ORDER BY first_seq DESC LIMIT 1), 0)",
                  e) != 0) {
        return -1;
    }
    int rc = stmt_first(&st, ERR_INTERNAL, e);
    if (rc == 0) {
        range.oldest = column_int(&st);
        range.newest = column_int(&st);
    }
    if (stmt_end(&st, rc, e) != 0) {
        return -1;
    }
    *ret = range;
    return 0;
}

/* From the oldest up to the first that is to stay, whatever the clock did: what is left has no hole. */
int store_event_expire(struct store_tx *tx, int64_t until, int64_t keep, int64_t limit,
                       int64_t *ret_n, struct err *e)
{
    struct store_event_range range = {0};
    struct stmt st;
    if (store_event_range(tx, &range, e) != 0 ||
        stmt_open(&st, tx->conn, "event",
                  "WITH oldest AS (SELECT first_seq, last_seq, at FROM event_log"
                  " ORDER BY first_seq LIMIT ?)"
                  " DELETE FROM event_log WHERE first_seq < COALESCE("
                  "(SELECT MIN(first_seq) FROM oldest WHERE at >= ? AND last_seq > ?),"
                  "(SELECT MAX(first_seq) FROM oldest))",
                  e) != 0) {
        return -1;
    }
    bind_int(&st, limit);
    bind_int(&st, until);
    bind_int(&st, range.newest - keep);
    if (stmt_run(&st, e) != 0) {
        return -1;
    }
    *ret_n = sqlite3_changes(tx->conn->db);
    return 0;
}
