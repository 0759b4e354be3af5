/*
 * What a container wrote to its stderr. The engine sends frames (stream, three zeros, length in big
 * endian), each with the time of its line in front; the time of the last one is where the next
 * reading begins. A long line comes in several frames (of 16 KiB), all with the time of the first, some of
 * them maybe after we have read. When the last line has gone from what the engine keeps, others have, too:
 * then that is said.
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

struct docker_log {
    struct engine_log base;
    struct engine_docker *d;
    char id[DOCKER_NAME_MAX];
    int64_t since_ms, tail; /* of the first reading */
    char last[STAMP_MAX];   /* of the newest line; "": none was read */
    size_t last_n;          /* frames of this time that were read */
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

/* Seconds and nanoseconds of "2026-11-29T20:38:56.958783196Z", as the engine takes them; of the moment
 * before it, as one engine begins at `since` and another behind it. */
static void since_write(const struct docker_log *l, struct buf *path)
{
    int64_t ms = l->since_ms;
    int64_t ns = ms % 1000 * 1000000;
    const char *dot = strchr(l->last, '.');
    if (l->last[0] != '\0' && time_parse(l->last, strlen(l->last), &ms) == 0 && dot != NULL)
        ns = strtoll(dot + 1, NULL, 10) - 1;
    if (ns < 0) {
        ns += 1000000000;
        ms -= 1000;
    }
    if (ms > 0)
        buf_printf(path, "&since=%" PRId64 ".%09" PRId64, ms / 1000, ns);
}

static int logs_get(struct docker_log *l, struct docker_answer *ret, struct err *e)
{
    struct buf path;
    buf_init(&path, 1024);
    buf_printf(&path, "/containers/%s/logs?stderr=1&timestamps=1", l->id);
    since_write(l, &path);
    if (l->last[0] == '\0' && l->tail >= 0)
        buf_printf(&path, "&tail=%" PRId64, l->tail);
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

static size_t count_of(const struct docker_answer *answer, const char *stamp)
{
    const char *at = answer->body.data, *payload, *end = at + answer->body.len;
    char own[STAMP_MAX];
    size_t len, n = 0;
    while (at != NULL && frame_next(&at, end, &payload, &len))
        n += stamp_take(&payload, &len, own) && strcmp(own, stamp) == 0;
    return n;
}

/* What was given out before is left out: what is older than the newest stamp of then, and of that as many
 * frames as there were. When some of these have gone, what is left of them may be new. */
static void take(struct docker_log *l, const struct docker_answer *answer)
{
    const char *at = answer->body.data, *payload, *end = at + answer->body.len;
    char before[STAMP_MAX], stamp[STAMP_MAX];
    size_t len, known = l->last_n;
    memcpy(before, l->last, sizeof(before));
    bool whole = before[0] == '\0' || count_of(answer, before) >= known;
    if (!whole)
        known = 0;
    while (at != NULL && frame_next(&at, end, &payload, &len)) {
        if (!stamp_take(&payload, &len, stamp))
            continue;
        int order = strcmp(stamp, before);
        if (order < 0 || (order == 0 && known > 0)) {
            known -= order == 0;
            continue;
        }
        if (!whole)
            buf_add_str(&l->text, gap_text);
        l->last_n = whole && strcmp(stamp, l->last) == 0 ? l->last_n + 1 : 1;
        whole = true;
        memcpy(l->last, stamp, sizeof(stamp));
        buf_add(&l->text, payload, len);
    }
}

static int log_read(struct engine_log *log, char *data, size_t size, size_t *ret_n, struct err *e)
{
    struct docker_log *l = (struct docker_log *)log;
    int rc = 0;
    if (l->text.len == 0) {
        struct docker_answer answer;
        docker_answer_init(&answer);
        rc = logs_get(l, &answer, e);
        if (rc == 0 && answer.status == 200)
            take(l, &answer);
        /* 404: the container went, so did its log; 409: it is on its way */
        else if (rc == 0 && answer.status != 404 && answer.status != 409)
            rc = docker_answer_refused(&answer, ERR_ENGINE_UNAVAILABLE, "its log", e);
        docker_answer_done(&answer);
    }
    if (rc != 0)
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
    struct docker_log l = {.d = d, .tail = TAIL_LINES};
    struct docker_answer answer;
    struct err ignored;
    snprintf(l.id, sizeof(l.id), "%s", id);
    buf_init(&l.text, TEXT_MAX);
    docker_answer_init(&answer);
    if (logs_get(&l, &answer, &ignored) == 0 && answer.status == 200)
        take(&l, &answer);
    tail_copy(&l.text, ret, size);
    docker_answer_done(&answer);
    buf_done(&l.text);
}
