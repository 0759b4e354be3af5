#include "spools.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <uthash.h>

#include "leasehold/spool.h"
#include "spool_ingest.h"
#include "tool_runs.h"

#define WAITING_MAX   (64 * 1024 * 1024) /* bytes in a spool for us, while we are away or slow */
#define FINISH_S      10
#define TURN_US       250000   /* one chat's spool; others want the FILE lane, too */
#define TELL_EVERY_US 60000000 /* a fault that stays is not told for each message */

/* One spool under way; of its chat's key. */
struct ingest_job {
    struct job job;
    struct spools *sp;
    struct id session_id, chat_id;
    bool final;
    bool again, again_final; /* asked for meanwhile */
    struct spool_turn turn;
    int rc;
    struct err e;
    UT_hash_handle hh; /* by session_id */
};

struct spools { /* loop */
    struct services *s;
    struct ingest_job *jobs;
    bool looking;
    int64_t told_us;
    atomic_bool stop; /* any thread: the next start goes on with what is left */
};

struct spools *spools_new(struct services *s)
{
    struct spools *sp = calloc(1, sizeof *sp);

    if (sp) {
        sp->s = s;
        sp->told_us = -TELL_EVERY_US;
    }
    return sp;
}

void spools_drain(struct spools *sp)
{
    atomic_store(&sp->stop, true);
}

void spools_free(struct spools *sp)
{
    free(sp);
}

/* --- while a session runs ---------------------------------------------------------------------- */

/* A clean-up round tries again. */
static void take_tool_runs(struct services *s, const struct id *session_id, bool final)
{
    struct err e;

    if (tool_runs_take(s, session_id, final, &e))
        log_error(s->log, "tool_runs_failed", &e, LF_ID("session_id", session_id));
}

static struct spool_turn turn_of(const struct services *s, int64_t us)
{
    return (struct spool_turn){.stop = &s->spools->stop, .until_us = clock_boot_us(s->clock) + us};
}

static void ingest_run(struct job *job)
{
    struct ingest_job *j = (struct ingest_job *)((char *)job - offsetof(struct ingest_job, job));

    j->turn = turn_of(j->sp->s, TURN_US);
    j->rc = spool_ingest(j->sp->s, &j->session_id, j->final, &j->turn, &j->e);
    take_tool_runs(j->sp->s, &j->session_id, j->final);
}

static void tell_failure(struct spools *sp, const struct ingest_job *j)
{
    int64_t now_us = clock_boot_us(sp->s->clock);

    if (now_us - sp->told_us < TELL_EVERY_US)
        return;
    sp->told_us = now_us;
    log_error(sp->s->log, "history_ingest_failed", &j->e, LF_ID("session_id", &j->session_id),
              LF_ID("chat_id", &j->chat_id));
}

static void submit(struct spools *sp, const struct id *session_id, const struct id *chat_id,
                   bool final);

static void ingest_done(struct job *job)
{
    struct ingest_job *j = (struct ingest_job *)((char *)job - offsetof(struct ingest_job, job));
    struct spools *sp = j->sp;

    HASH_DEL(sp->jobs, j);
    if (j->rc)
        tell_failure(sp, j);
    if (j->again || j->turn.more)
        submit(sp, &j->session_id, &j->chat_id, j->again_final || (j->turn.more && j->final));
    free(j);
}

/* A full lane or no memory: the next activity or clean-up round asks again; or the next start. */
static void submit(struct spools *sp, const struct id *session_id, const struct id *chat_id,
                   bool final)
{
    struct ingest_job *j;
    struct err e;

    if (!sp->s->file || sp->s->draining)
        return;
    HASH_FIND(hh, sp->jobs, session_id, sizeof *session_id, j);
    if (j) {
        j->again = true;
        j->again_final |= final;
        return;
    }
    j = calloc(1, sizeof *j);
    if (!j)
        return;
    *j = (struct ingest_job){.job = {.run = ingest_run, .done = ingest_done},
                             .sp = sp,
                             .session_id = *session_id,
                             .chat_id = *chat_id,
                             .final = final};
    if (lane_submit_keyed(sp->s->file, chat_id, &j->job, &e))
        free(j);
    else
        HASH_ADD(hh, sp->jobs, session_id, sizeof j->session_id, j);
}

void spools_activity(struct spools *sp, const struct id *session_id)
{
    struct id chat_id;

    if (broker_session_chat(sp->s->broker, session_id, &chat_id))
        submit(sp, session_id, &chat_id, false);
}

/* --- what is left over ------------------------------------------------------------------------- */

struct found {
    struct id session_id, chat_id;
    bool final;
};

struct look {
    struct job job;
    struct spools *sp;
    struct found *found;
    size_t found_n;
};

static int get_row(struct store_tx *tx, void *arg, struct err *e)
{
    struct sandbox *s = arg;

    return store_sandbox_get(tx, &s->session_id, s, e);
}

/* Without a row its ingest forgets it. */
static void look_at(struct look *l, const struct id *session_id)
{
    struct sandbox row = {.session_id = *session_id};
    struct found *more = reallocarray(l->found, l->found_n + 1, sizeof *more);
    struct err e;

    if (!more)
        return;
    l->found = more;
    if (store_read(l->sp->s->store, get_row, &row, &e) && e.code != ERR_NOT_FOUND)
        return;
    l->found[l->found_n++] =
        (struct found){.session_id = *session_id,
                       .chat_id = row.chat_id,
                       .final = row.status == SANDBOX_STOPPED || row.status == SANDBOX_FAILED};
}

static void look_into(struct look *l, const char *name)
{
    struct dirent *entry;
    char path[4096];
    struct id id;
    DIR *dir;

    snprintf(path, sizeof path, "%s/%s", l->sp->s->cfg->storage.data_dir, name);
    dir = opendir(path);
    while (dir && (entry = readdir(dir)))
        if (strlen(entry->d_name) == ID_TEXT - 1 && id_parse(entry->d_name, ID_TEXT - 1, &id))
            look_at(l, &id);
    if (dir)
        closedir(dir);
}

static void look_run(struct job *job)
{
    struct look *l = (struct look *)((char *)job - offsetof(struct look, job));

    look_into(l, SPOOL_DIR);
    look_into(l, TOOL_RUNS_DIR);
}

static void look_done(struct job *job)
{
    struct look *l = (struct look *)((char *)job - offsetof(struct look, job));

    l->sp->looking = false;
    for (size_t i = 0; i < l->found_n; i++)
        submit(l->sp, &l->found[i].session_id, &l->found[i].chat_id, l->found[i].final);
    free(l->found);
    free(l);
}

void spools_cleanup(struct spools *sp)
{
    struct look *l = sp->looking || !sp->s->file ? NULL : calloc(1, sizeof *l);
    struct err e;

    if (!l)
        return;
    *l = (struct look){.job = {.run = look_run, .done = look_done}, .sp = sp};
    sp->looking = !lane_submit(sp->s->file, &l->job, &e);
    if (!sp->looking)
        free(l);
}

/* --- begin and end of a session ---------------------------------------------------------------- */

/* Tests fill spools: LEASEHOLD_TEST_SPOOL_MAX=65536 (docs/operations.md). */
static int64_t waiting_max(void)
{
    const char *text = getenv("LEASEHOLD_TEST_SPOOL_MAX");

    return text ? strtoll(text, NULL, 10) : WAITING_MAX;
}

static int spool_make(struct services *s, const struct id *session_id, struct err *e)
{
    uint8_t mark[SPOOL_MARK];
    char path[4096];
    int fd;

    snprintf(path, sizeof path, "%s/" SPOOL_DIR, s->cfg->storage.data_dir);
    if (mkdir(path, 0700) && errno != EEXIST)
        return err_sys(e, ERR_INTERNAL, errno, "make the directory of spools");
    if (spool_path(s, session_id, path, sizeof path, e))
        return -1;
    fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_sys(e, ERR_INTERNAL, errno, "make a spool");
    spool_mark_write(SPOOL_START, mark);
    if (write(fd, mark, sizeof mark) == (ssize_t)sizeof mark && !ftruncate(fd, SPOOL_START))
        return fd;
    err_sys(e, ERR_INTERNAL, errno, "write a spool");
    close(fd);
    unlink(path);
    return -1;
}

int spools_open(struct services *s, const struct id *session_id, int64_t *ret_max)
{
    struct err e;
    int fd = spool_make(s, session_id, &e);

    if (fd < 0)
        log_error(s->log, "history_not_recorded", &e, LF_ID("session_id", session_id));
    else
        *ret_max = waiting_max();
    return fd;
}

/* Of the waiting thread and of the job; who leaves last frees it. */
struct spool_last {
    struct job job;
    struct services *s;
    struct id session_id, chat_id;
    struct spool_turn turn;
    atomic_int owners;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* waits by the monotonic clock */
    bool over;              /* lock */
};

static void last_leave(struct spool_last *l)
{
    if (atomic_fetch_sub(&l->owners, 1) > 1)
        return;
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

static void last_run(struct job *job)
{
    struct spool_last *l = (struct spool_last *)((char *)job - offsetof(struct spool_last, job));
    struct err e;

    l->turn = turn_of(l->s, FINISH_S * 1000000LL);
    if (spool_ingest(l->s, &l->session_id, true, &l->turn, &e)) /* a clean-up round tries again */
        log_error(l->s->log, "history_ingest_failed", &e, LF_ID("session_id", &l->session_id));
    take_tool_runs(l->s, &l->session_id, true);
    pthread_mutex_lock(&l->lock);
    l->over = true;
    pthread_cond_signal(&l->changed);
    pthread_mutex_unlock(&l->lock);
}

static void last_done(struct job *job)
{
    struct spool_last *l = (struct spool_last *)((char *)job - offsetof(struct spool_last, job));

    if (l->turn.more)
        submit(l->s->spools, &l->session_id, &l->chat_id, true);
    last_leave(l);
}

static struct spool_last *last_new(struct services *s, const struct id *session_id,
                                   const struct id *chat_id)
{
    struct spool_last *l = calloc(1, sizeof *l);
    pthread_condattr_t attr;

    if (!l)
        return NULL;
    l->job = (struct job){.run = last_run, .done = last_done};
    l->s = s;
    l->session_id = *session_id;
    l->chat_id = *chat_id;
    l->owners = 2;
    pthread_mutex_init(&l->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&l->changed, &attr);
    pthread_condattr_destroy(&attr);
    return l;
}

static void last_wait(struct spool_last *l)
{
    struct timespec until;
    int rc = 0;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += FINISH_S;
    pthread_mutex_lock(&l->lock);
    while (!l->over && rc != ETIMEDOUT)
        rc = pthread_cond_timedwait(&l->changed, &l->lock, &until);
    pthread_mutex_unlock(&l->lock);
}

static bool is_there(struct services *s, const struct id *session_id)
{
    char path[4096];
    struct err e;

    return (!spool_path(s, session_id, path, sizeof path, &e) && !access(path, F_OK)) ||
           tool_runs_exist(s, session_id);
}

static struct spool_last *finish_begin(struct services *s, const struct id *session_id,
                                       const struct id *chat_id)
{
    struct spool_last *l = is_there(s, session_id) ? last_new(s, session_id, chat_id) : NULL;
    struct err e;

    if (!l || !lane_submit_keyed(s->file, chat_id, &l->job, &e))
        return l;
    last_leave(l); /* a clean-up round does it */
    /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): it had two owners */
    last_leave(l);
    return NULL;
}

struct spool_last *spools_finish_begin(struct services *s, const struct id *session_id,
                                       const struct id *chat_id)
{
    return tool_runs_exist(s, session_id) ? NULL : finish_begin(s, session_id, chat_id);
}

void spools_finish_end(struct spool_last *l)
{
    if (!l)
        return;
    last_wait(l);
    last_leave(l);
}

void spools_finish(struct services *s, const struct id *session_id, const struct id *chat_id)
{
    spools_finish_end(finish_begin(s, session_id, chat_id));
}
