#include "chat_dirs.h"

#include <pthread.h>
#include <stdlib.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#include "leasehold/clock.h"

#define KEPT_MAX 32      /* of two descriptors each */
#define KEPT_US  1000000 /* then it is looked up again */

struct chat_dir {
    struct id chat_id, user_id;
    struct chatfiles dir;
    int64_t opened_us, used_us; /* boot clock */
    unsigned takers;            /* guarded by the lock */
    bool kept;                  /* guarded by the lock: stands in the table */
    UT_hash_handle hh;
};

struct chat_dirs {
    pthread_mutex_t lock;
    struct chat_dir *kept; /* guarded by lock */
    uint64_t forgotten;    /* guarded by lock: how often */
};

struct chat_dirs *chat_dirs_new(void)
{
    struct chat_dirs *all = calloc(1, sizeof *all);

    if (all)
        pthread_mutex_init(&all->lock, NULL);
    return all;
}

static void close_dir(struct chat_dir *d)
{
    if (!d)
        return;
    chatfiles_close(&d->dir);
    free(d);
}

void chat_dirs_free(struct chat_dirs *all)
{
    struct chat_dir *d, *next;

    if (!all)
        return;
    HASH_ITER (hh, all->kept, d, next) {
        /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): the table is not walked by its freed entries */
        HASH_DEL(all->kept, d);
        close_dir(d);
    }
    pthread_mutex_destroy(&all->lock);
    free(all);
}

/* --- under the lock -------------------------------------------------------------------------- */

/* Answers it if nobody has it any more: to be closed, without the lock. */
static struct chat_dir *drop(struct chat_dirs *all, struct chat_dir *d)
{
    HASH_DEL(all->kept, d);
    d->kept = false;
    return d->takers ? NULL : d;
}

static struct chat_dir *find(const struct chat_dirs *all, const struct id *chat_id)
{
    struct chat_dir *d;

    HASH_FIND(hh, all->kept, chat_id, sizeof *chat_id, d);
    return d;
}

static struct chat_dir *drop_oldest(struct chat_dirs *all)
{
    struct chat_dir *oldest = all->kept;

    if (HASH_COUNT(all->kept) < KEPT_MAX)
        return NULL;
    for (struct chat_dir *d = all->kept; d; d = d->hh.next)
        if (d->used_us < oldest->used_us)
            oldest = d;
    return drop(all, oldest);
}

static void keep(struct chat_dirs *all, struct chat_dir *d)
{
    HASH_ADD(hh, all->kept, chat_id, sizeof d->chat_id, d);
    d->kept = d->hh.tbl != NULL;
}

/* --- taking ---------------------------------------------------------------------------------- */

/* *ret_old: is to be closed. *ret_forgotten: as of when it was not there. */
static struct chat_dir *take_kept(struct chat_dirs *all, const struct id *user_id,
                                  const struct id *chat_id, struct chat_dir **ret_old,
                                  uint64_t *ret_forgotten)
{
    int64_t now_us = clock_boot_us(&clock_system);
    struct chat_dir *d;

    *ret_old = NULL;
    pthread_mutex_lock(&all->lock);
    d = find(all, chat_id);
    if (d && (!id_equal(&d->user_id, user_id) || now_us - d->opened_us >= KEPT_US)) {
        *ret_old = drop(all, d);
        d = NULL;
    }
    if (d) {
        d->takers++;
        d->used_us = now_us;
    }
    *ret_forgotten = all->forgotten;
    pthread_mutex_unlock(&all->lock);
    return d;
}

/* Not if a chat was forgotten since, which may be this one: then it is for this taker alone. */
static struct chat_dir *keep_opened(struct chat_dirs *all, struct chat_dir *d, uint64_t forgotten)
{
    struct chat_dir *old = NULL;

    pthread_mutex_lock(&all->lock);
    if (all->forgotten == forgotten && !find(all, &d->chat_id)) {
        old = drop_oldest(all);
        keep(all, d);
    }
    pthread_mutex_unlock(&all->lock);
    return old;
}

int chat_dirs_take(struct chat_dirs *all, const char *root, const struct id *user_id,
                   const struct id *chat_id, struct chat_dir **ret, struct chatfiles *ret_dir,
                   struct err *e)
{
    struct chat_dir *old;
    uint64_t forgotten;
    struct chat_dir *d = take_kept(all, user_id, chat_id, &old, &forgotten);

    close_dir(old);
    if (!d) {
        d = calloc(1, sizeof *d);
        if (!d)
            return err_set(e, ERR_INTERNAL, "no memory for a chat's directory");
        d->opened_us = d->used_us = clock_boot_us(&clock_system);
        if (chatfiles_open(root, user_id, chat_id, &d->dir, e)) {
            free(d);
            return -1;
        }
        d->chat_id = *chat_id;
        d->user_id = *user_id;
        d->takers = 1;
        close_dir(keep_opened(all, d, forgotten));
    }
    *ret = d;
    *ret_dir = d->dir;
    return 0;
}

void chat_dirs_give(struct chat_dirs *all, struct chat_dir *d)
{
    bool over;

    if (!d)
        return;
    pthread_mutex_lock(&all->lock);
    over = --d->takers == 0 && !d->kept;
    pthread_mutex_unlock(&all->lock);
    if (over)
        close_dir(d);
}

void chat_dirs_forget(struct chat_dirs *all, const struct id *chat_id)
{
    struct chat_dir *d;

    pthread_mutex_lock(&all->lock);
    all->forgotten++;
    d = find(all, chat_id);
    if (d)
        d = drop(all, d);
    pthread_mutex_unlock(&all->lock);
    close_dir(d);
}
