#include "leasehold/log.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "json_write.h"
#include "leasehold/clock.h"
#include "leasehold/json.h"

#define LINE_MAX_BYTES 8192
#define VALUE_MIN      16 /* a value is left out when less of it would fit */

struct log {
    int fd;
    enum log_format format;
    atomic_int level;      /* any thread */
    pthread_mutex_t write; /* a full pipe lets a long write sleep, and others in between */
};

/* How the two formats differ. */
struct style {
    const char *open, *close, *cut;
};

static const struct style styles[] = {
    [LOG_JSON] = {"{\"at\":\"", "}\n", ",\"truncated\":true"},
    [LOG_TEXT] = {"", "\n", " truncated=true"},
};

static const char *const level_names[] = {
    [LOG_DEBUG] = "debug",
    [LOG_INFO] = "info",
    [LOG_WARNING] = "warning",
    [LOG_ERROR] = "error",
};

struct log *log_new(int fd, enum log_level level, enum log_format format)
{
    struct log *l = calloc(1, sizeof(*l));
    if (l != NULL) {
        l->fd = fd;
        l->format = format;
        atomic_init(&l->level, (int)level);
        pthread_mutex_init(&l->write, NULL);
    }
    return l;
}

void log_free(struct log *l)
{
    if (l != NULL) {
        pthread_mutex_destroy(&l->write);
        free(l);
    }
}

void log_set_level(struct log *l, enum log_level level)
{
    atomic_store_explicit(&l->level, (int)level, memory_order_relaxed);
}

/* May it stand in a text line without quotes, so that fields can still be told apart? */
static bool is_bare_word(const char *s)
{
    static const char safe[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:/@+,";
    return *s != '\0' && s[strspn(s, safe)] == '\0';
}

/* Returns false if the string had to be cut to `room` bytes. */
static bool add_str(struct buf *line, enum log_format format, const char *s, size_t room)
{
    if (s == NULL) {
        buf_add_str(line, "null");
        return true;
    }
    size_t len = strlen(s);
    if (format == LOG_TEXT && len <= room && is_bare_word(s)) {
        buf_add(line, s, len);
        return true;
    }
    return json_add_string_max(line, s, len, room);
}

static void add_id(struct buf *line, enum log_format format, const struct id *id)
{
    if (id == NULL) {
        buf_add_str(line, "null");
        return;
    }
    const char *quote = format == LOG_JSON ? "\"" : "";
    buf_printf(line, "%s%s%s", quote, ID_STR(id), quote);
}

/* Appends one field, the line staying within `limit`. Returns false if it does not fit whole. */
static bool add_field(struct buf *line, enum log_format format, const struct log_field *f,
                      size_t limit)
{
    const size_t quotes = 2;
    size_t key_cost = strlen(f->key) + sizeof(",\"\":") - 1;
    size_t value_min = f->kind == LF_KIND_STR ? VALUE_MIN : ID_TEXT;
    if (line->len + key_cost + value_min + quotes > limit) {
        return false;
    }
    buf_printf(line, format == LOG_JSON ? ",\"%s\":" : " %s=", f->key);
    switch (f->kind) {
    case LF_KIND_STR:
        return add_str(line, format, f->str, limit - line->len - quotes);
    case LF_KIND_INT:
        buf_printf(line, "%" PRId64, f->num);
        break;
    case LF_KIND_ID:
        add_id(line, format, f->id);
        break;
    }
    return true;
}

static void add_head(struct buf *line, enum log_format format, enum log_level level,
                     const char *event)
{
    char at[TIME_TEXT];
    buf_add_str(line, styles[format].open);
    buf_add_str(line, time_format(clock_wall_ms(&clock_system), at));
    buf_printf(line, format == LOG_JSON ? "\",\"level\":\"%s\",\"event\":\"%.128s\"" : " %s %.128s",
               level_names[level], event);
}

/* One write in the usual case, so that lines of other processes stay apart, too. */
static void write_all(int fd, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, data, len);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return; /* nowhere is left to complain */
        }
        data += n;
        len -= (size_t)n;
    }
}

void log_write(struct log *l, enum log_level level, const char *event,
               const struct log_field *fields)
{
    if (l == NULL || (int)level < atomic_load_explicit(&l->level, memory_order_relaxed)) {
        return;
    }
    int saved_errno = errno;
    const struct style *style = &styles[l->format];
    size_t limit = LINE_MAX_BYTES - strlen(style->close) - strlen(style->cut);
    bool whole = true;
    struct buf line;
    buf_init(&line, LINE_MAX_BYTES);
    add_head(&line, l->format, level, event);
    for (const struct log_field *f = fields; whole && f->key != NULL; f++) {
        whole = add_field(&line, l->format, f, limit);
    }
    if (!whole) {
        buf_add_str(&line, style->cut);
    }
    buf_add_str(&line, style->close);
    if (buf_ok(&line)) {
        pthread_mutex_lock(&l->write);
        write_all(l->fd, line.data, line.len);
        pthread_mutex_unlock(&l->write);
    }
    buf_done(&line);
    errno = saved_errno;
}
