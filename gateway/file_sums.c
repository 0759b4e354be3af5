#include "file_sums.h"

#include <linux/ioprio.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utlist.h>

#include "leasehold/chatfile.h"

#define WAITING_MAX 64
#define USER_MAX    4                                  /* of these, of one user */
#define SUM_MAX     (INT64_C(64) * 1024 * 1024 * 1024) /* an agent makes holes of any length */
#define NICE        10

struct summing {
    struct job job;
    struct file_sums *all;
    struct file file;
    struct summing *prev, *next;
};

struct file_sums {
    struct services *s;
    struct lane *lane; /* of one thread */
    pthread_mutex_t lock;
    struct summing *waiting; /* guarded by lock: and the one under way */
    size_t n;                /* guarded by lock */
};

/* --- on the lane ----------------------------------------------------------------------------- */

/* Of this thread alone; a kernel that refuses leaves it as the others. */
static void step_back(void)
{
    (void)setpriority(PRIO_PROCESS, 0, NICE);
    (void)syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_PRIO_VALUE(IOPRIO_CLASS_IDLE, 0));
}

/* Only what is still the row of this content. */
static int keep_sum(struct store_tx *tx, void *arg, struct err *e)
{
    const struct file *summed = arg;
    struct file now;

    if (store_file_get(tx, &summed->file_id, &now, e))
        return e->code == ERR_CHAT_FILE_NOT_FOUND ? 0 : -1;
    if (now.sha256[0] || !file_stamp_equal(&now.stamp, &summed->stamp))
        return 0;
    memcpy(now.sha256, summed->sha256, sizeof now.sha256);
    return store_file_update(tx, &now, e);
}

static int sum_opened(struct summing *one, int fd, const struct file_stamp *stamp, struct err *e)
{
    struct services *s = one->all->s;
    bool stable;

    if (!file_stamp_equal(stamp, &one->file.stamp))
        return 0;
    if (chatfile_hash(fd, stamp, &s->stopping, one->file.sha256, &stable, e))
        return -1;
    return stable ? store_write(s->store, keep_sum, &one->file, e) : 0;
}

static int sum(struct summing *one, struct err *e)
{
    struct chatfiles dir;
    struct file_stamp stamp;
    int fd, rc;

    if (chatfiles_open(one->all->s->cfg->sandbox.chats_root, &one->file.user_id, &one->file.chat_id,
                       &dir, e))
        return -1;
    rc = chatfiles_read(&dir, one->file.name, &fd, &stamp, e);
    if (!rc) {
        rc = sum_opened(one, fd, &stamp, e);
        close(fd);
    }
    chatfiles_close(&dir);
    return rc;
}

static void sum_run(struct job *job)
{
    struct summing *one = (struct summing *)((char *)job - offsetof(struct summing, job));
    struct services *s = one->all->s;
    struct err e;

    step_back();
    if (!s->stopping && sum(one, &e) && !s->stopping && e.code != ERR_CHAT_FILE_NOT_FOUND &&
        e.code != ERR_CHAT_NOT_FOUND)
        log_error(s->log, "file_unsummed", &e, LF_ID("file_id", &one->file.file_id));
}

/* --- asking ---------------------------------------------------------------------------------- */

static void forget(struct summing *one)
{
    struct file_sums *all = one->all;

    pthread_mutex_lock(&all->lock);
    DL_DELETE(all->waiting, one);
    all->n--;
    pthread_mutex_unlock(&all->lock);
    free(one);
}

static void sum_done(struct job *job)
{
    forget((struct summing *)((char *)job - offsetof(struct summing, job)));
}

/* Under the lock. No user's files keep those of others waiting for long. */
static bool may_wait(const struct file_sums *all, const struct file *f)
{
    const struct summing *one;
    size_t of_user = 0;

    DL_FOREACH (all->waiting, one) {
        if (id_equal(&one->file.file_id, &f->file_id) &&
            file_stamp_equal(&one->file.stamp, &f->stamp))
            return false;
        of_user += id_equal(&one->file.user_id, &f->user_id);
    }
    return all->n < WAITING_MAX && of_user < USER_MAX && f->size_bytes <= SUM_MAX;
}

void file_sums_ask(struct file_sums *all, const struct file *f)
{
    struct summing *one = NULL;
    struct err e;

    pthread_mutex_lock(&all->lock);
    if (may_wait(all, f) && (one = calloc(1, sizeof *one))) {
        one->all = all;
        one->file = *f;
        DL_APPEND(all->waiting, one);
        all->n++;
    }
    pthread_mutex_unlock(&all->lock);
    if (!one)
        return;
    one->job = (struct job){.run = sum_run, .done = sum_done, .owner = f->user_id};
    if (lane_submit(all->lane, &one->job, &e))
        forget(one);
}

/* --- life ------------------------------------------------------------------------------------ */

struct file_sums *file_sums_new(struct services *s)
{
    struct file_sums *all = calloc(1, sizeof *all);
    struct err e;

    if (!all)
        return NULL;
    all->s = s;
    all->lane = lane_new("sums", 1, WAITING_MAX, server_inbox(s->server), &e);
    if (!all->lane) {
        free(all);
        return NULL;
    }
    pthread_mutex_init(&all->lock, NULL);
    return all;
}

void file_sums_close(struct file_sums *all)
{
    if (!all)
        return;
    lane_free(all->lane);
    all->lane = NULL;
}

void file_sums_free(struct file_sums *all)
{
    if (!all)
        return;
    file_sums_close(all);
    pthread_mutex_destroy(&all->lock);
    free(all);
}
