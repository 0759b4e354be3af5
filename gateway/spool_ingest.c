#include "spool_ingest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "chat_log.h"
#include "leasehold/spool.h"

#define CHUNK_BYTES (2u * SPOOL_MAX) /* at least one record is whole in it */
#define BATCH       1024             /* messages in one transaction */

struct ingest {
    struct services *s;
    struct spool_turn *turn;
    int fd;
    int64_t end; /* of the file when we came: what is said meanwhile is for the next time */
    struct chat_log log;
    struct history_spool at;
    bool
        from_mark; /* history.db has nothing of it: what is missing before was taken in elsewhere */
    bool broken;   /* here stands what is no record */
    size_t messages_n;
    struct history_message messages[BATCH];
    char authors[BATCH][ID_TEXT];
    uint8_t chunk[CHUNK_BYTES];
};

int spool_path(const struct services *s, const struct id *session_id, char *ret, size_t size,
               struct err *e)
{
    if ((size_t)snprintf(ret, size, "%s/" SPOOL_DIR "/%s", s->cfg->storage.data_dir,
                         ID_STR(session_id)) >= size)
        return err_set(e, ERR_INTERNAL, "storage.data_dir is too long a path");
    return 0;
}

/* --- the spool --------------------------------------------------------------------------------- */

/* Frees what was taken in, and tells the door. On a file system that cannot, the door's cap is on
 * all that the session says. */
static void set_free(const struct ingest *in)
{
    uint8_t mark[SPOOL_MARK];
    off_t whole = in->at.bytes - in->at.bytes % SPOOL_START - SPOOL_START;

    if (whole > 0 &&
        fallocate(in->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, SPOOL_START, whole))
        return;
    spool_mark_write(in->at.bytes, mark);
    (void)!pwrite(in->fd, mark, sizeof mark, 0); /* else the next one */
}

static int find_start(struct ingest *in, const struct id *session_id, struct err *e)
{
    uint8_t mark[SPOOL_MARK];
    int64_t taken;

    if (history_spool_get(in->log.history, session_id, &in->at, e))
        return -1;
    in->from_mark = in->at.bytes == 0;
    if (!in->from_mark)
        return 0;
    in->at.bytes = SPOOL_START;
    if (pread(in->fd, mark, sizeof mark, 0) == (ssize_t)sizeof mark &&
        spool_mark_read(mark, &taken) && taken <= in->end)
        in->at.bytes = taken;
    in->from_mark = in->at.bytes > SPOOL_START;
    return 0;
}

static void take(struct ingest *in, struct history_spool *at, const struct spool_record *r)
{
    char *author = in->authors[in->messages_n];

    if (r->n <= at->n)
        return;
    if (!in->from_mark)
        at->lost += r->n - at->n - (r->role != SPOOL_GAP);
    in->from_mark = false;
    at->n = r->n;
    if (r->role == SPOOL_GAP)
        return;
    author[0] = '\0';
    if (r->role == SPOOL_USER)
        id_format(&r->author, author);
    in->messages[in->messages_n++] =
        (struct history_message){.at = r->at,
                                 .role = r->role == SPOOL_USER ? HISTORY_USER : HISTORY_AGENT,
                                 .author = author,
                                 .content = r->text,
                                 .content_len = r->len,
                                 .n = r->n};
}

/* The whole records of the chunk; returns how many bytes they are. */
static size_t take_chunk(struct ingest *in, struct history_spool *at, size_t len)
{
    struct spool_record r;
    size_t done = 0, size;
    enum spool_read got;

    in->messages_n = 0;
    while (done < len && in->messages_n < BATCH) {
        got = spool_record_read(in->chunk + done, len - done, &r, &size);
        in->broken = got == SPOOL_BROKEN;
        if (got != SPOOL_WHOLE)
            break;
        take(in, at, &r);
        done += size;
    }
    return done;
}

static int ingest_chunk(struct ingest *in, bool *ret_more, struct err *e)
{
    int64_t left = in->end - in->at.bytes;
    struct history_spool at = in->at;
    ssize_t n;

    *ret_more = false;
    if (left <= 0)
        return 0;
    n = pread(in->fd, in->chunk, left < CHUNK_BYTES ? (size_t)left : CHUNK_BYTES, in->at.bytes);
    if (n < 0)
        return err_sys(e, ERR_INTERNAL, errno, "read a spool");
    at.bytes += (int64_t)take_chunk(in, &at, (size_t)n);
    if (at.bytes == in->at.bytes)
        return 0;
    if (chat_log_append(&in->log, in->messages, in->messages_n, &at, e))
        return -1;
    in->at = at;
    set_free(in);
    *ret_more = true;
    return 0;
}

static bool turn_is_over(const struct ingest *in)
{
    return atomic_load(in->turn->stop) || clock_boot_us(in->s->clock) >= in->turn->until_us;
}

static int ingest_all(struct ingest *in, const struct id *session_id, struct err *e)
{
    bool more;

    if (find_start(in, session_id, e))
        return -1;
    do {
        if (ingest_chunk(in, &more, e))
            return -1;
    } while (more && !turn_is_over(in));
    in->turn->more = more;
    return 0;
}

/* What cannot be read is kept for people to look at; half a record at the end is what its door was
 * killed over. */
static int finish(const struct ingest *in, const struct id *session_id, const char *path,
                  struct err *e)
{
    char detail[64], aside[4096 + 8];

    if (in->at.lost) {
        snprintf(detail, sizeof detail, "messages=%lld", (long long)in->at.lost);
        chat_log_tell(in->s, "history.lost", "sandbox", session_id, detail);
    }
    if (in->at.bytes < in->end) {
        snprintf(detail, sizeof detail, "%s bytes=%lld", in->broken ? "broken" : "torn",
                 (long long)(in->end - in->at.bytes));
        chat_log_tell(in->s, "history.spool_cut", "sandbox", session_id, detail);
    }
    snprintf(aside, sizeof aside, "%s.broken", path);
    if ((in->broken ? rename(path, aside) : unlink(path)) && errno != ENOENT)
        return err_sys(e, ERR_INTERNAL, errno, "remove a spool");
    return 0;
}

/* --- the whole --------------------------------------------------------------------------------- */

static int get_row(struct store_tx *tx, void *arg, struct err *e)
{
    struct sandbox *s = arg;

    return store_sandbox_get(tx, &s->session_id, s, e);
}

/* Of a session that has no chat any more. */
static int forget(struct services *s, const struct id *session_id, const char *path, struct err *e)
{
    log_event(s->log, LOG_WARNING, "history_spool_dropped", LF_ID("session_id", session_id));
    return unlink(path) && errno != ENOENT ? err_sys(e, ERR_INTERNAL, errno, "remove a spool") : 0;
}

static int ingest_open(struct ingest *in, const struct sandbox *row, const char *path, bool final,
                       struct err *e)
{
    struct stat st;
    int rc;

    if (fstat(in->fd, &st))
        return err_sys(e, ERR_INTERNAL, errno, "look at a spool");
    in->end = st.st_size;
    in->at = (struct history_spool){.bytes = in->end};
    if (in->end == SPOOL_START) /* nobody has said anything */
        return final ? finish(in, &row->session_id, path, e) : 0;
    if (chat_log_open(&in->log, in->s, &row->user_id, &row->chat_id, e))
        return -1;
    rc = ingest_all(in, &row->session_id, e);
    chat_log_close(&in->log);
    if (rc)
        return -1;
    if (in->turn->more)
        return 0;
    if (final)
        return finish(in, &row->session_id, path, e);
    return in->broken ? err_set(e, ERR_INTERNAL, "the spool is broken at byte %lld",
                                (long long)in->at.bytes)
                      : 0;
}

int spool_ingest(struct services *s, const struct id *session_id, bool final,
                 struct spool_turn *turn, struct err *e)
{
    struct sandbox row = {.session_id = *session_id};
    struct ingest *in;
    char path[4096];
    int fd, rc;

    turn->more = false;
    if (spool_path(s, session_id, path, sizeof path, e))
        return -1;
    fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : err_sys(e, ERR_INTERNAL, errno, "open a spool");
    in = malloc(sizeof *in);
    rc = in ? store_read(s->store, get_row, &row, e)
            : err_set(e, ERR_INTERNAL, "no memory to take in a spool");
    if (!rc) {
        in->s = s;
        in->turn = turn;
        in->fd = fd;
        in->broken = false;
        rc = ingest_open(in, &row, path, final, e);
    } else if (in && e->code == ERR_NOT_FOUND) {
        rc = forget(s, session_id, path, e);
    }
    if (rc && e->code == ERR_CHAT_NOT_FOUND)
        rc = forget(s, session_id, path, e);
    free(in);
    close(fd);
    return rc;
}
