/* The links to objects on the disk, which the gateway serves itself. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "artifacts.h"
#include "http_when.h"
#include "ops.h"

#define HEADERS_CAP 4096

const struct field object_get_in[] = {
    FIELD_ID(struct object_get_args, user_id, .flags = FIELD_REQUIRED | FIELD_PATH,
             .doc = "the artifact's user"),
    FIELD_ID(struct object_get_args, chat_id, .flags = FIELD_REQUIRED | FIELD_PATH,
             .doc = "the artifact's chat"),
    FIELD_ID(struct object_get_args, artifact_id, .flags = FIELD_REQUIRED | FIELD_PATH,
             .doc = "the artifact"),
    FIELD_INT(struct object_get_args, expires, .flags = FIELD_REQUIRED | FIELD_QUERY,
              .doc = "when the link ends, in seconds since 1970"),
    FIELD_STR(struct object_get_args, disposition, .flags = FIELD_QUERY, .max = 4096,
              .doc = "Content-Disposition of the answer"),
    FIELD_STR(struct object_get_args, content_type, .flags = FIELD_QUERY, .max = 256,
              .doc = "Content-Type of the answer"),
    FIELD_STR(struct object_get_args, signature, .flags = FIELD_REQUIRED | FIELD_QUERY, .max = 64,
              .doc = "that the gateway gave the link out"),
    {0},
};

struct object_reading {
    int fd;
    int64_t at;
    struct object_info info;
    struct objects_check
        *check;              /* of what has been read so far; NULL: of a range there is no sum */
    struct http_range range; /* … which is this one */
};

/* The row, not the file, says whether there still is one to fetch: of a chat that is gone the file
 * stays until the next sweep. */
static int look_row(struct store_tx *tx, void *arg, struct err *e)
{
    const struct object_get_args *a = arg;
    struct artifact found;

    if (store_artifact_get(tx, &a->artifact_id, &found, e))
        return -1;
    return found.state == ARTIFACT_STORED || found.state == ARTIFACT_DELIVERED ||
                   found.state == ARTIFACT_DELIVERY_FAILED
               ? 0
               : err_set(e, ERR_NOT_FOUND, "no such artifact");
}

/* The key of the link's path: artifacts of another store have none here. */
static int open_object(struct call *c, const struct object_get_args *a, struct object_reading *r,
                       struct err *e)
{
    struct objects *o = artifacts_store(c->s->artifacts);
    const struct objects_link l = {.expires_s = a->expires,
                                   .disposition = a->disposition,
                                   .content_type = a->content_type,
                                   .signature = a->signature};
    struct buf key;
    int rc = -1;

    if (strcmp(o->v->name, "disk") != 0)
        return err_set(e, ERR_NOT_FOUND, "artifacts are not kept on the disk here");
    buf_init(&key, OBJECT_KEY_MAX + 1);
    if (!objects_key(c->s->cfg->objects.prefix, &a->user_id, &a->chat_id, &a->artifact_id, &key,
                     e) &&
        !objects_disk_link(o, key.data, &l, clock_wall_ms(c->s->clock) / 1000, e) &&
        !store_read(c->s->store, look_row, c->args, e)) {
        r->fd = objects_disk_open(o, key.data, &r->info, e);
        rc = r->fd < 0 ? -1 : 0;
    }
    buf_done(&key);
    return rc;
}

static bool is_header_text(const char *s)
{
    for (; *s; s++)
        if (*s < 0x20 || *s > 0x7e)
            return false;
    return true;
}

static int out_of_range(struct call *c, int64_t size_bytes, struct err *e)
{
    char line[64];

    snprintf(line, sizeof line, "Content-Range: bytes */%lld\r\n", (long long)size_bytes);
    c->extra = arena_strndup(c->arena, line, strlen(line));
    return err_set(e, ERR_RANGE_NOT_SATISFIABLE, "the artifact has %lld bytes",
                   (long long)size_bytes);
}

/* One range is served; several, which no link needs, as the whole. */
static int take_range(struct call *c, struct object_reading *r, struct err *e)
{
    struct http_range ranges[HTTP_RANGES_MAX];
    int n = *c->when.range && !c->head_only ? http_ranges(c->when.range, r->info.size_bytes, ranges)
                                            : 0;

    if (n < 0)
        return out_of_range(c, r->info.size_bytes, e);
    r->range = n == 1 ? ranges[0] : (struct http_range){0, r->info.size_bytes};
    if (n == 1) {
        c->status = 206;
        return 0;
    }
    r->check = objects_check_new();
    return r->check ? 0 : err_set(e, ERR_INTERNAL, "no memory for the answer");
}

/* They were signed by us; a line end in them would still be one too many. */
static int answer_as(struct call *c, const struct object_get_args *a,
                     const struct object_reading *r, struct err *e)
{
    const char *said = a->disposition ? a->disposition : "attachment";
    struct buf b;

    if (!is_header_text(said) || (a->content_type && !is_header_text(a->content_type)))
        return err_set(e, ERR_FORBIDDEN, "the link does not hold");
    buf_init(&b, HEADERS_CAP);
    buf_printf(&b, "Content-Disposition: %s\r\nAccept-Ranges: bytes\r\n", said);
    buf_add_str(&b, "X-Content-Type-Options: nosniff\r\n"
                    "Content-Security-Policy: default-src 'none'; sandbox\r\n");
    if (c->status == 206)
        buf_printf(&b, "Content-Range: bytes %lld-%lld/%lld\r\n", (long long)r->range.from,
                   (long long)(r->range.from + r->range.len - 1), (long long)r->info.size_bytes);
    c->extra = buf_ok(&b) ? arena_strndup(c->arena, b.data, b.len) : NULL;
    c->raw_type = a->content_type;
    c->no_store = true;
    buf_done(&b);
    return c->extra ? 0 : err_set(e, ERR_INTERNAL, "no memory for the answer");
}

static void reading_close(struct object_reading *r)
{
    close(r->fd);
    objects_check_free(r->check);
}

int op_object_get(struct call *c, struct err *e)
{
    const struct object_get_args *a = c->args;
    struct object_reading *r = call_alloc(c, sizeof *r);

    if (!r)
        return err_set(e, ERR_INTERNAL, "no memory for the answer");
    if (open_object(c, a, r, e))
        return -1;
    if (take_range(c, r, e) || answer_as(c, a, r, e)) {
        reading_close(r);
        return -1;
    }
    c->state = r;
    c->streams = true;
    c->answer_len = r->range.len;
    return 0;
}

/* The last piece goes only when the sum of the whole holds: a damaged file is a broken connection. */
static int give_checked(struct object_reading *r, struct op_piece *piece, struct err *e)
{
    int64_t left = r->info.size_bytes - r->at;
    size_t want = left < SERVER_PIECE ? (size_t)left : SERVER_PIECE;
    char chunk[SERVER_PIECE];
    ssize_t n = want ? pread(r->fd, chunk, want, r->at) : 0;

    if (n < 0 || (want && !n))
        return err_sys(e, ERR_INTERNAL, n < 0 ? errno : 0, "read an artifact");
    r->at += n;
    buf_add(&piece->text, chunk, (size_t)n);
    if (objects_check_add(r->check, chunk, (size_t)n, e))
        return -1;
    return r->at < r->info.size_bytes ? 0 : objects_check_end(r->check, r->info.sha256, e);
}

int op_object_give(struct call *c, struct op_piece *piece, struct err *e)
{
    struct object_reading *r = c->state;

    if (r->check)
        return give_checked(r, piece, e);
    piece->fd = r->fd;
    piece->offset = r->range.from;
    piece->len = r->range.len;
    piece->last = true;
    return 0;
}

void op_object_close(struct call *c)
{
    reading_close(c->state);
}
