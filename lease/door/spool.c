#include "spool.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "leasehold/clock.h"

#define KEPT_BYTES 65536 /* of the scratch between two messages */

struct spool {
    int fd; /* -1: broken */
    struct log *log;
    int64_t max_bytes;
    int64_t end;   /* of the last whole record */
    int64_t taken; /* as the gateway's mark said when it was last looked at */
    int64_t n;     /* of the last message */
    int64_t unrecorded;
    bool hole;        /* the last message was lost */
    bool told;        /* of the first loss */
    uint8_t *scratch; /* where a record is put together */
    size_t scratch_size;
    struct rlimit file_size; /* as it holds for the log */
};

struct spool *spool_new(int fd, int64_t max_bytes, struct log *log, struct err *e)
{
    struct spool *s = calloc(1, sizeof(*s));
    struct stat st;

    if (!s || fstat(fd, &st) || getrlimit(RLIMIT_FSIZE, &s->file_size)) {
        err_sys(e, ERR_INTERNAL, errno, "cannot use the spool");
        free(s);
        return NULL;
    }
    s->fd = fd;
    s->log = log;
    s->max_bytes = max_bytes;
    s->end = st.st_size;
    s->taken = SPOOL_START;
    return s;
}

void spool_free(struct spool *s)
{
    if (!s)
        return;
    free(s->scratch);
    free(s);
}

/* --- writing --------------------------------------------------------------------------------- */

/* The limit of file sizes is there for the log; a spool has its own. */
static ssize_t write_unlimited(const struct spool *s, const void *data, size_t len)
{
    struct rlimit open = {.rlim_cur = s->file_size.rlim_max, .rlim_max = s->file_size.rlim_max};
    ssize_t n;
    int sys;

    setrlimit(RLIMIT_FSIZE, &open);
    n = write(s->fd, data, len);
    sys = errno;
    setrlimit(RLIMIT_FSIZE, &s->file_size);
    errno = sys;
    return n;
}

static void mark_look(struct spool *s)
{
    uint8_t mark[SPOOL_MARK];
    int64_t taken;

    if (pread(s->fd, mark, sizeof(mark), 0) == (ssize_t)sizeof(mark) &&
        spool_mark_read(mark, &taken) && taken > s->taken && taken <= s->end)
        s->taken = taken;
}

static bool has_room(struct spool *s, int64_t size)
{
    if (s->end - s->taken + size > s->max_bytes)
        mark_look(s);
    return s->end - s->taken + size <= s->max_bytes;
}

static bool scratch_reserve(struct spool *s, size_t size)
{
    uint8_t *more;

    if (size <= s->scratch_size)
        return true;
    more = realloc(s->scratch, size);
    if (!more)
        return false;
    s->scratch = more;
    s->scratch_size = size;
    return true;
}

static void scratch_shrink(struct spool *s)
{
    if (s->scratch_size <= KEPT_BYTES)
        return;
    free(s->scratch);
    s->scratch = NULL;
    s->scratch_size = 0;
}

/* NULL when it is on its way to the disk, else why not. A part of a record is taken back: another
 * one behind it could never be read. */
static const char *record_append(struct spool *s, const struct spool_record *r)
{
    size_t size = SPOOL_OVERHEAD + r->len;
    ssize_t n;

    if (s->fd < 0)
        return "broken";
    if (r->role != SPOOL_GAP && !has_room(s, (int64_t)size))
        return "not_ingested";
    if (!scratch_reserve(s, size))
        return "no_memory";
    spool_record_write(r, s->scratch);
    n = write_unlimited(s, s->scratch, size);
    if (n == (ssize_t)size) {
        s->end += n;
        return NULL;
    }
    if (ftruncate(s->fd, s->end))
        s->fd = -1;
    return "not_written";
}

static void lose(struct spool *s, const char *why)
{
    s->unrecorded++;
    s->hole = true;
    if (!s->told)
        log_event(s->log, LOG_WARNING, "recording_paused", LF_STR("why", why), LF_INT("n", s->n));
    s->told = true;
}

static void message(struct spool *s, const struct id *user_id, const char *text, size_t len,
                    const char *refused)
{
    struct spool_record r = {.n = ++s->n,
                             .at = clock_wall_ms(&clock_system),
                             .role = user_id ? SPOOL_USER : SPOOL_AGENT,
                             .author = user_id ? *user_id : (struct id){{0}},
                             .text = text,
                             .len = len};

    if (!refused)
        refused = record_append(s, &r);
    if (refused)
        lose(s, refused);
    else
        s->hole = false;
    scratch_shrink(s);
}

void spool_message(struct spool *s, const struct id *user_id, const char *text, size_t len)
{
    if (s)
        message(s, user_id, text, len, len > SPOOL_TEXT_MAX ? "too_long" : NULL);
}

/* --- pieces ---------------------------------------------------------------------------------- */

void spool_piece(struct spool *s, struct spool_parts *parts, const struct id *user_id,
                 const void *piece, size_t len, bool fin)
{
    if (!s)
        return;
    if (parts->text.cap == 0)
        buf_init(&parts->text, SPOOL_TEXT_MAX);
    if (!parts->too_long)
        buf_add(&parts->text, piece, len);
    if (!buf_ok(&parts->text)) {
        buf_done(&parts->text);
        buf_init(&parts->text, SPOOL_TEXT_MAX);
        parts->too_long = true;
    }
    if (!fin)
        return;
    message(s, user_id, parts->text.data, parts->text.len, parts->too_long ? "too_long" : NULL);
    spool_parts_done(parts);
}

void spool_parts_done(struct spool_parts *parts)
{
    buf_done(&parts->text);
    *parts = (struct spool_parts){.too_long = false};
}

/* --- the account ----------------------------------------------------------------------------- */

int64_t spool_unrecorded(const struct spool *s)
{
    return s ? s->unrecorded : 0;
}

void spool_end(struct spool *s)
{
    if (!s || !s->hole)
        return;
    if (!record_append(s, &(struct spool_record){
                              .n = s->n, .at = clock_wall_ms(&clock_system), .role = SPOOL_GAP}))
        s->hole = false;
}
