#include "usage.h"

#include "leasehold/artifacts.h"
#include "leasehold/chatdir.h"
#include "leasehold/counted.h"

struct scan {
    const struct id *user_id;
    uint64_t mark;
    int64_t begun_ns;  /* 0: it has not seen everything */
    int64_t bytes;     /* on the disk */
    int64_t artifacts; /* beside it, in the sum */
    struct store_usage usage;
};

static int read_sum(struct store_tx *tx, void *arg, struct err *e)
{
    struct scan *sc = arg;

    return store_usage_get(tx, sc->user_id, &sc->usage, e) ||
                   store_artifact_sum(tx, sc->user_id, &sc->artifacts, e)
               ? -1
               : 0;
}

static int correct_sum(struct store_tx *tx, void *arg, struct err *e)
{
    struct scan *sc = arg;
    bool done;

    return store_usage_correct(tx, sc->user_id, sc->mark, sc->bytes, &done, e) ||
                   (done && store_counted_scan(tx, sc->user_id, sc->begun_ns, e)) ||
                   read_sum(tx, sc, e)
               ? -1
               : 0;
}

int usage_scan(struct services *s, const struct id *user_id, struct store_usage *ret, struct err *e)
{
    struct scan sc = {.user_id = user_id};
    struct chatdir_usage disk;
    bool quiet = store_usage_mark(s->store, user_id, &sc.mark);

    if (store_read(s->store, read_sum, &sc, e))
        return -1;
    if (quiet) {
        if (chatdir_usage(s->cfg->sandbox.chats_root, user_id, &disk, e))
            return -1;
        sc.bytes = disk.bytes;
        sc.begun_ns = disk.partial ? 0 : disk.begun_ns;
        if (disk.partial)
            log_event(s->log, LOG_WARNING, "usage_partial", LF_ID("user_id", user_id),
                      LF_INT("bytes", disk.bytes));
        int64_t kept = sc.usage.used_bytes - sc.artifacts;
        quiet = disk.partial ? disk.bytes > kept : disk.bytes != kept;
    }
    if (quiet && store_write(s->store, correct_sum, &sc, e))
        return -1;
    *ret = sc.usage;
    return 0;
}
