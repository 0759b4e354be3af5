#include "files.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <uthash.h>

#include "file_sums.h"
#include "services.h"

#define STRIPES   64
#define FLUSH_MS  1000
#define FLUSH_MAX 2000   /* readings of one write */
#define READS_MAX 100000 /* more are not noted */

struct reading {
    struct id file_id;
    int64_t at;
    UT_hash_handle hh;
};

struct reserved {
    struct id user_id;
    int64_t bytes;
    UT_hash_handle hh;
};

struct files {
    struct services *s;
    struct chat_dirs *dirs;
    struct file_sums *sums;
    pthread_mutex_t chats[STRIPES];
    pthread_mutex_t lock;
    struct reading *reads;     /* guarded by lock: not written yet, or being written */
    struct reserved *reserved; /* guarded by lock */
    struct server_timer *timer;
    bool writing; /* loop */
};

/* --- one at a time --------------------------------------------------------------------------- */

static pthread_mutex_t *stripe(struct files *all, const struct id *chat_id)
{
    return &all->chats[chat_id->b[15] % STRIPES];
}

void files_lock(struct files *all, const struct id *chat_id)
{
    pthread_mutex_lock(stripe(all, chat_id));
}

void files_unlock(struct files *all, const struct id *chat_id)
{
    pthread_mutex_unlock(stripe(all, chat_id));
}

struct chat_dirs *files_dirs(struct files *all)
{
    return all->dirs;
}

struct file_sums *files_sums(struct files *all)
{
    return all->sums;
}

/* --- room ------------------------------------------------------------------------------------ */

struct usage_look {
    const struct id *user_id;
    struct store_usage usage;
};

static int usage_row(struct store_tx *tx, void *arg, struct err *e)
{
    struct usage_look *l = arg;

    return store_usage_get(tx, l->user_id, &l->usage, e);
}

static int reserve(struct files *all, const struct id *user_id, const struct store_usage *usage,
                   int64_t bytes, struct err *e)
{
    struct reserved *r;
    int64_t taken;

    HASH_FIND(hh, all->reserved, user_id, sizeof *user_id, r);
    taken = usage->used_bytes + (r ? r->bytes : 0);
    if (usage->quota_bytes && (bytes > usage->quota_bytes || taken > usage->quota_bytes - bytes))
        return err_set(e, ERR_WORKSPACE_QUOTA_EXCEEDED,
                       "%lld bytes more do not fit into the workspace", (long long)bytes);
    if (!r) {
        r = calloc(1, sizeof *r);
        if (!r)
            return err_set(e, ERR_INTERNAL, "no memory for an upload");
        r->user_id = *user_id;
        HASH_ADD(hh, all->reserved, user_id, sizeof r->user_id, r);
    }
    r->bytes += bytes;
    return 0;
}

int files_reserve(struct services *s, const struct id *user_id, int64_t bytes, struct err *e)
{
    struct usage_look look = {.user_id = user_id};
    int rc;

    if (bytes <= 0)
        return 0;
    if (store_read(s->store, usage_row, &look, e))
        return -1;
    pthread_mutex_lock(&s->files->lock);
    rc = reserve(s->files, user_id, &look.usage, bytes, e);
    pthread_mutex_unlock(&s->files->lock);
    return rc;
}

void files_unreserve(struct files *all, const struct id *user_id, int64_t bytes)
{
    struct reserved *r;

    if (bytes <= 0)
        return;
    pthread_mutex_lock(&all->lock);
    HASH_FIND(hh, all->reserved, user_id, sizeof *user_id, r);
    if (r && (r->bytes -= bytes) <= 0) {
        HASH_DEL(all->reserved, r);
        free(r);
    }
    pthread_mutex_unlock(&all->lock);
}

/* --- readings -------------------------------------------------------------------------------- */

void files_read_now(struct services *s, const struct id *file_id)
{
    struct files *all = s->files;
    int64_t now = clock_wall_ms(s->clock);
    struct reading *r;

    pthread_mutex_lock(&all->lock);
    HASH_FIND(hh, all->reads, file_id, sizeof *file_id, r);
    if (!r && HASH_COUNT(all->reads) < READS_MAX && (r = calloc(1, sizeof *r))) {
        r->file_id = *file_id;
        HASH_ADD(hh, all->reads, file_id, sizeof r->file_id, r);
    }
    if (r)
        r->at = now;
    pthread_mutex_unlock(&all->lock);
}

struct flush {
    struct store_job job;
    struct files *all;
    size_t n;
    struct reading reads[FLUSH_MAX];
};

static void flush_take(struct files *all, struct flush *f)
{
    struct reading *r, *next;

    pthread_mutex_lock(&all->lock);
    HASH_ITER (hh, all->reads, r, next) {
        if (f->n == FLUSH_MAX)
            break;
        f->reads[f->n++] = *r;
    }
    pthread_mutex_unlock(&all->lock);
}

/* They are in the store now; one of a later time stays for the next round. */
static void flush_forget(struct files *all, const struct flush *f)
{
    pthread_mutex_lock(&all->lock);
    for (size_t i = 0; i < f->n; i++) {
        struct reading *r;
        HASH_FIND(hh, all->reads, &f->reads[i].file_id, sizeof r->file_id, r);
        if (r && r->at == f->reads[i].at) {
            HASH_DEL(all->reads, r);
            free(r);
        }
    }
    pthread_mutex_unlock(&all->lock);
}

static int flush_row(struct store_tx *tx, void *arg, struct err *e)
{
    const struct flush *f = arg;

    for (size_t i = 0; i < f->n; i++)
        if (store_file_read_at(tx, &f->reads[i].file_id, f->reads[i].at, e))
            return -1;
    return 0;
}

static void flush_done(struct job *job)
{
    struct flush *f = (struct flush *)((char *)job - offsetof(struct flush, job.job));

    if (f->job.rc)
        log_error(f->all->s->log, "readings_unwritten", &f->job.e);
    else
        flush_forget(f->all, f);
    f->all->writing = false;
    free(f);
}

static void flush_begin(struct files *all)
{
    struct flush *f = calloc(1, sizeof *f);
    struct err e;

    if (!f)
        return;
    f->all = all;
    flush_take(all, f);
    f->job = (struct store_job){.job.done = flush_done, .fn = flush_row, .arg = f};
    if (!f->n || store_submit(all->s->store, &f->job, &e))
        free(f);
    else
        all->writing = true;
}

static void flush_due(void *ctx)
{
    struct files *all = ctx;

    if (!all->writing)
        flush_begin(all);
    server_timer_arm(all->timer, FLUSH_MS);
}

void files_complete(struct services *s, struct file *f)
{
    struct reading *r;
    int64_t last = f->created_at;

    pthread_mutex_lock(&s->files->lock);
    HASH_FIND(hh, s->files->reads, &f->file_id, sizeof f->file_id, r);
    if (r && r->at > f->last_read_at)
        f->last_read_at = r->at;
    pthread_mutex_unlock(&s->files->lock);
    last = f->last_read_at > last ? f->last_read_at : last;
    last = f->last_update_at > last ? f->last_update_at : last;
    f->expires_at = last + s->cfg->retention.file_idle_seconds * 1000;
}

/* --- life ------------------------------------------------------------------------------------ */

struct files *files_new(struct services *s)
{
    struct files *all = calloc(1, sizeof *all);

    if (!all)
        return NULL;
    all->s = s;
    all->timer = server_timer_new(s->server, flush_due, all);
    all->dirs = chat_dirs_new();
    all->sums = file_sums_new(s);
    if (!all->timer || !all->dirs || !all->sums) {
        file_sums_free(all->sums);
        chat_dirs_free(all->dirs);
        server_timer_free(all->timer);
        free(all);
        return NULL;
    }
    for (size_t i = 0; i < STRIPES; i++)
        pthread_mutex_init(&all->chats[i], NULL);
    pthread_mutex_init(&all->lock, NULL);
    server_timer_arm(all->timer, FLUSH_MS);
    return all;
}

void files_close(struct files *all)
{
    struct flush *f = all ? calloc(1, sizeof *f) : NULL;
    struct err e;

    if (all)
        file_sums_close(all->sums);
    if (!f)
        return;
    flush_take(all, f);
    if (f->n && store_write(all->s->store, flush_row, f, &e))
        log_error(all->s->log, "readings_unwritten", &e);
    free(f);
}

void files_free(struct files *all)
{
    struct reading *r, *next_read;
    struct reserved *v, *next;

    if (!all)
        return;
    HASH_ITER (hh, all->reads, r, next_read) {
        /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): the table is not walked by its freed entries */
        HASH_DEL(all->reads, r);
        free(r);
    }
    HASH_ITER (hh, all->reserved, v, next) {
        /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
        HASH_DEL(all->reserved, v);
        free(v);
    }
    server_timer_free(all->timer);
    chat_dirs_free(all->dirs);
    file_sums_free(all->sums);
    for (size_t i = 0; i < STRIPES; i++)
        pthread_mutex_destroy(&all->chats[i]);
    pthread_mutex_destroy(&all->lock);
    free(all);
}

/* --- types ----------------------------------------------------------------------------------- */

const char *file_type_of(const char *name)
{
    static const struct {
        const char *ending, *type;
    } types[] = {
        {"txt", "text/plain"},        {"md", "text/markdown"},    {"csv", "text/csv"},
        {"html", "text/html"},        {"css", "text/css"},        {"js", "text/javascript"},
        {"json", "application/json"}, {"xml", "application/xml"}, {"pdf", "application/pdf"},
        {"zip", "application/zip"},   {"gz", "application/gzip"}, {"tar", "application/x-tar"},
        {"png", "image/png"},         {"jpg", "image/jpeg"},      {"jpeg", "image/jpeg"},
        {"gif", "image/gif"},         {"webp", "image/webp"},     {"svg", "image/svg+xml"},
        {"mp3", "audio/mpeg"},        {"wav", "audio/wav"},       {"mp4", "video/mp4"},
        {"webm", "video/webm"},
    };
    const char *dot = strrchr(name, '.');

    for (size_t i = 0; dot && i < sizeof types / sizeof types[0]; i++)
        if (!strcasecmp(dot + 1, types[i].ending))
            return types[i].type;
    return "application/octet-stream";
}
