#include "usage.h"

#include "leasehold/chatdir.h"

struct scan {
    const struct id *user_id;
    uint64_t mark;
    int64_t bytes; /* on the disk */
    struct store_usage usage;
};

static int read_sum(struct store_tx *tx, void *arg, struct err *e)
{
    struct scan *sc = arg;

    return store_usage_get(tx, sc->user_id, &sc->usage, e);
}

static int correct_sum(struct store_tx *tx, void *arg, struct err *e)
{
    struct scan *sc = arg;
    bool done;

    return store_usage_correct(tx, sc->user_id, sc->mark, sc->bytes, &done, e) ||
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
        if (disk.partial)
            log_event(s->log, LOG_WARNING, "usage_partial", LF_ID("user_id", user_id),
                      LF_INT("bytes", disk.bytes));
        quiet = disk.partial ? disk.bytes > sc.usage.used_bytes : disk.bytes != sc.usage.used_bytes;
    }
    if (quiet && store_write(s->store, correct_sum, &sc, e))
        return -1;
    *ret = sc.usage;
    return 0;
}
