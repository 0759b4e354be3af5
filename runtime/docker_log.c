/*
 * What a container wrote to its stderr. The engine sends frames (stream, three zeros, length in big
 * endian), each with the time of its line in front. A long line comes in several frames (of 16 KiB), all with
 * the time of the first, some of them maybe after we have read.
 *
 * Where a reading ended the next begins: behind as many frames of the last line as were read, found by that
 * line's time, but not by its order, as the engine's clock may be set back. When that place has gone from
 * what the engine keeps, a part of what came after it may have, too: then that is said.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "docker.h"
#include "leasehold/clock.h"

#define LOOK_MS    10000
#define TAIL_LINES 20
#define TEXT_MAX   (32u * 1024 * 1024)
#define STAMP_MAX  64
#define FRAME_HEAD 8
#define NS         INT64_C(1000000000)
#define FILE_MAX   1000000 /* of the engine's log, the max-size of docker_body.c */
#define FRAME_COST 100

/* The line that was read last. */
struct mark {
    char stamp[STAMP_MAX];  /* "": nothing was read */
    char before[STAMP_MAX]; /* of the frame before it; "": there was none */
    size_t n;               /* frames of it that were read */
    uint64_t first;         /* what the first of them says */
    bool told;              /* that a part of it is missing */
};

struct docker_log {
    struct engine_log base;
    struct engine_docker *d;
    char id[DOCKER_NAME_MAX];
    int64_t since_ms, tail; /* of the first reading */
    struct mark mark;       /* of what was read last */
    struct buf text;        /* not given out yet */
};

/* The next frame's payload, false at the end. What is not framed ends it, too. */
static bool frame_next(const char **at, const char *end, const char **ret, size_t *ret_len)
{
    const unsigned char *head = (const unsigned char *)*at;
    if (end - *at < FRAME_HEAD)
        return false;
    size_t len =
        (size_t)head[4] << 24 | (size_t)head[5] << 16 | (size_t)head[6] << 8 | (size_t)head[7];
    size_t left = (size_t)(end - *at) - FRAME_HEAD;
    *ret = *at + FRAME_HEAD;
    *ret_len = len < left ? len : left;
    *at = *ret + *ret_len;
    return true;
}

/* Of "2026-11-29T20:38:56.958783196Z", in nanoseconds; 0: it is none, or too far. Another engine cuts zeros at the end, or
 * has another zone. */
static int64_t stamp_ns(const char *stamp)
{
    const char *dot = strchr(stamp, '.');
    int64_t ms, ns = 0, unit = 100000000;
    if (time_parse(stamp, strlen(stamp), &ms) != 0 || ms < 0 || ms / 1000 >= INT64_MAX / NS)
        return 0;
    for (const char *at = dot; dot != NULL && *++at >= '0' && *at <= '9'; unit /= 10)
        ns += (*at - '0') * unit;
    return ms / 1000 * NS + ns;
}

/* Where to look for the last line, and for what stood before it. The moment before, as one engine begins
 * at `since` and another behind it. */
static void since_write(const struct docker_log *l, struct buf *path)
{
    int64_t since = l->since_ms * (NS / 1000), before = stamp_ns(l->mark.before);
    if (l->mark.stamp[0] != '\0') {
        since = stamp_ns(l->mark.stamp);
        since = (before > 0 && before < since ? before : since) - 1;
    }
    if (since > 0)
        buf_printf(path, "&since=%" PRId64 ".%09" PRId64, since / NS, since % NS);
}

enum part { NEW, LAST, ALL }; /* LAST: one frame, of stdout, too */

static int logs_get(struct docker_log *l, enum part part, struct docker_answer *ret, struct err *e)
{
    struct buf path;
    buf_init(&path, 1024);
    buf_printf(&path, "/containers/%s/logs?stderr=1&timestamps=1", l->id);
    if (part == NEW)
        since_write(l, &path);
    if (part == LAST)
        buf_add_str(&path, "&stdout=1&tail=1");
    struct docker_call c = {.method = "GET", .path = path.data, .timeout_ms = LOOK_MS};
    int rc = docker_api_call(l->d->api, &c, ret, e);
    buf_done(&path);
    return rc;
}

static const char gap_text[] =
    "leasehold: the agent said more than is kept before it could be read: a part is missing here\n";

/* A frame's stamp, and in payload and len what is behind it. False: it has none. */
static bool stamp_take(const char **payload, size_t *len, char ret[static STAMP_MAX])
{
    const char *space = memchr(*payload, ' ', *len < STAMP_MAX ? *len : STAMP_MAX);
    if (space == NULL || space == *payload)
        return false;
    snprintf(ret, STAMP_MAX, "%.*s", (int)(space - *payload), *payload);
    *len -= (size_t)(space + 1 - *payload);
    *payload = space + 1;
    return true;
}

struct frame {
    char stamp[STAMP_MAX];
    const char *text;
    size_t len;
};

static bool stamped_next(const char **at, const char *end, struct frame *ret)
{
    while (*at != NULL && frame_next(at, end, &ret->text, &ret->len)) {
        if (stamp_take(&ret->text, &ret->len, ret->stamp))
            return true;
    }
    return false;
}

/* FNV-1a: whether it is the same text, of a log whose writer could fool but itself. */
static uint64_t sum_of(const struct frame *f)
{
    uint64_t sum = 0xcbf29ce484222325;
    for (size_t i = 0; i < f->len; i++)
        sum = (sum ^ (unsigned char)f->text[i]) * 0x100000001b3;
    return sum;
}

static void mark_move(struct mark *m, const struct frame *f)
{
    if (strcmp(m->stamp, f->stamp) == 0) {
        m->n++;
        return;
    }
    memcpy(m->before, m->stamp, sizeof(m->before));
    memcpy(m->stamp, f->stamp, sizeof(m->stamp));
    m->n = 1;
    m->first = sum_of(f);
    m->told = false;
}

/* Where the line of the mark stands in an answer, which may have it twice when a clock is set: the last. */
struct place {
    const char *from; /* behind the frames of it that were read; NULL: not all of them are there */
    size_t n;         /* of its frames so far */
    size_t kept;      /* what the engine needs for all frames, at most */
    bool has_before;  /* what stood before it is there */
    bool same, alike; /* its first frame is the one that was read; and its second is no other */
};

/* In a file of lines of JSON, which escapes what is not plain. */
static size_t cost_of(const struct frame *f)
{
    size_t n = FRAME_COST;
    for (size_t i = 0; i < f->len; i++) {
        unsigned char c = (unsigned char)f->text[i];
        n += c >= ' ' && c < 0x7f && strchr("\"\\<>&", c) == NULL ? 1 : 6;
    }
    return n;
}

static void place_see(struct place *p, const struct mark *m, const struct frame *f,
                      const char *behind)
{
    uint64_t sum = p->n < 2 ? sum_of(f) : 0;
    if (p->n == 0)
        p->same = sum == m->first;
    if (p->n == 1)
        p->alike = sum == m->first;
    if (++p->n == m->n)
        p->from = p->same ? behind : NULL;
}

static void find(const struct mark *m, const struct docker_answer *answer, struct place *ret)
{
    const char *at = answer->body.data, *end = at + answer->body.len;
    char before[STAMP_MAX] = "";
    struct frame f;
    *ret = (struct place){.from = NULL};
    while (stamped_next(&at, end, &f)) {
        bool is_it = strcmp(f.stamp, m->stamp) == 0;
        if (is_it && strcmp(before, m->stamp) != 0)
            *ret =
                (struct place){.kept = ret->kept,
                               .has_before = before[0] != '\0' && strcmp(before, m->before) == 0};
        if (is_it)
            place_see(ret, m, &f, at);
        ret->kept += cost_of(&f);
        memcpy(before, f.stamp, sizeof(before));
    }
}

/* Of a line of equal pieces that grows the first may have gone without a trace: said once of a line. */
static bool is_whole(const struct place *p, const struct mark *m)
{
    bool traceless = !m->told && p->alike && !p->has_before && p->n > m->n && p->kept >= FILE_MAX;
    return p->from != NULL && !traceless;
}

/* What was given out before is left out; if its end is not found, all of the answer may be new. */
static void take(struct docker_log *l, const struct docker_answer *answer)
{
    const char *at = answer->body.data, *end = at + answer->body.len;
    struct place p = {.from = NULL};
    struct frame f;
    if (l->mark.stamp[0] != '\0')
        find(&l->mark, answer, &p);
    bool lost = l->mark.stamp[0] != '\0' && !is_whole(&p, &l->mark);
    if (p.from != NULL)
        at = p.from;
    while (stamped_next(&at, end, &f)) {
        if (lost)
            buf_add_str(&l->text, gap_text);
        if (lost && p.from == NULL)
            l->mark = (struct mark){.n = 0};
        mark_move(&l->mark, &f);
        l->mark.told |= lost;
        lost = false;
        buf_add(&l->text, f.text, f.len);
    }
}

/* The engine takes the pieces of long lines for lines, and those of stdout, too: so we count. */
static void keep_tail(struct buf *text, int64_t lines)
{
    size_t at = text->len;
    for (; lines > 0 && at > 0; lines--) {
        at--;
        while (at > 0 && text->data[at - 1] != '\n')
            at--;
    }
    buf_consume(text, lines < 0 ? 0 : at);
}

static int ask(struct docker_log *l, enum part part, struct docker_answer *ret, struct err *e)
{
    docker_answer_init(ret);
    if (logs_get(l, part, ret, e) != 0)
        return -1;
    /* 404: the container went, so did its log; 409: it is on its way */
    if (ret->status == 404 || ret->status == 409)
        buf_consume(&ret->body, ret->body.len);
    else if (ret->status != 200)
        return docker_answer_refused(ret, ERR_ENGINE_UNAVAILABLE, "its log", e);
    return 0;
}

static int read_part(struct docker_log *l, enum part part, struct err *e)
{
    struct docker_answer answer;
    int rc = ask(l, part, &answer, e);
    if (rc == 0)
        take(l, &answer);
    docker_answer_done(&answer);
    return rc;
}

/* Whether the engine's clock was set back behind the last line: by time nothing is found then. */
static int was_set_back(struct docker_log *l, bool *ret, struct err *e)
{
    struct docker_answer answer;
    int rc = ask(l, LAST, &answer, e);
    const char *at = answer.body.data, *end = at + answer.body.len;
    struct frame f;
    *ret = rc == 0 && stamped_next(&at, end, &f) && stamp_ns(f.stamp) < stamp_ns(l->mark.stamp);
    docker_answer_done(&answer);
    return rc;
}

static int read_more(struct docker_log *l, struct err *e)
{
    bool set_back = false;
    int rc = read_part(l, NEW, e);
    if (rc == 0 && l->text.len == 0 && l->mark.stamp[0] != '\0')
        rc = was_set_back(l, &set_back, e);
    if (rc == 0 && set_back)
        rc = read_part(l, ALL, e);
    keep_tail(&l->text, l->tail);
    if (rc == 0)
        l->tail = -1; /* what comes now is behind the end of then */
    return rc;
}

static int log_read(struct engine_log *log, char *data, size_t size, size_t *ret_n, struct err *e)
{
    struct docker_log *l = (struct docker_log *)log;
    if (l->text.len == 0 && read_more(l, e) != 0)
        return -1;
    *ret_n = l->text.len < size ? l->text.len : size;
    if (*ret_n > 0) {
        memcpy(data, l->text.data, *ret_n);
        buf_consume(&l->text, *ret_n);
    }
    return 0;
}

static void log_free_it(struct engine_log *log)
{
    struct docker_log *l = (struct docker_log *)log;
    if (l == NULL)
        return;
    buf_done(&l->text);
    free(l);
}

static const struct engine_log_vtable log_vtable = {.read = log_read, .free = log_free_it};

static bool is_there(struct engine_docker *d, const char *id, struct err *e)
{
    struct arena *arena = arena_new(1024 * 1024);
    struct docker_container c;
    bool there = arena != NULL ? docker_container_get(d->api, id, arena, &c, e) == 0
                               : err_set(e, ERR_INTERNAL, "no memory for a log") == 0;
    arena_free(arena);
    return there;
}

int docker_log_open(struct engine_docker *d, const char *id, const struct engine_log_from *from,
                    struct engine_log **ret, struct err *e)
{
    if (!is_there(d, id, e))
        return -1;
    struct docker_log *l = calloc(1, sizeof(*l));
    if (l == NULL)
        return err_set(e, ERR_INTERNAL, "no memory for a log");
    l->base.v = &log_vtable;
    l->d = d;
    l->since_ms = from->since_ms;
    l->tail = from->tail;
    snprintf(l->id, sizeof(l->id), "%s", id);
    buf_init(&l->text, TEXT_MAX);
    *ret = &l->base;
    return 0;
}

/* The last `size` of it, one printable text. */
static void tail_copy(const struct buf *text, char *ret, size_t size)
{
    size_t len = text->len;
    const char *from = text->data;
    while (len > 0 && from[len - 1] == '\n')
        len--;
    if (len >= size) {
        from += len - size + 1;
        len = size - 1;
    }
    if (len > 0)
        memcpy(ret, from, len);
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)ret[i] < ' ' && ret[i] != '\n')
            ret[i] = ' ';
    }
    ret[len] = '\0';
}

void docker_log_tail(struct engine_docker *d, const char *id, char *ret, size_t size)
{
    struct docker_log l = {.d = d};
    struct err ignored;
    snprintf(l.id, sizeof(l.id), "%s", id);
    buf_init(&l.text, TEXT_MAX);
    if (read_part(&l, ALL, &ignored) == 0)
        keep_tail(&l.text, TAIL_LINES);
    tail_copy(&l.text, ret, size);
    buf_done(&l.text);
}
