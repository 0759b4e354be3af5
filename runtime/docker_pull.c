/*
 * Pulling images. A pull belongs to nobody: a thread of its own reads the engine's stream of progress,
 * those who need the image wait beside it, and the last of them who leaves ends it (the engine gives a
 * pull up when its reader goes). There are few at once; who wants a further one waits for a place.
 *
 * The stream is of JSON lines, of which the last may be an error behind status 200.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <utlist.h>

#include "docker.h"
#include "docker_login.h"
#include "leasehold/clock.h"

#define PULLS_MAX      3
#define LAYERS_MAX     256
#define LAYER_ID_MAX   16
#define LINE_MAX_BYTES (64u * 1024)
#define STALL_MS       60000
#define TICK_MS        200

struct layer {
    char id[LAYER_ID_MAX];
    int64_t bytes, bytes_done;
    bool is_done;
};

struct pull {
    struct docker_pulls *pulls;
    struct http_client *client;
    pthread_t thread;
    atomic_bool cancel;
    struct buf line;  /* the thread's */
    char error[1024]; /* the thread's */
    unsigned waiters; /* lock */
    bool over;        /* lock: and stands in no list any more */
    int rc;           /* lock; of one that is over */
    struct err why;
    struct layer layers[LAYERS_MAX]; /* lock */
    size_t layers_n;
    size_t done[LAYERS_MAX]; /* lock: the layers that have come, in their order */
    size_t done_n;
    struct pull *prev, *next;
    char image[];
};

struct docker_pulls {
    struct docker_api *api;
    const struct config_docker *cfg;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct pull *list; /* lock: those that run */
};

struct docker_pulls *docker_pulls_new(struct docker_api *api, const struct config_docker *cfg)
{
    struct docker_pulls *ps = calloc(1, sizeof(*ps));
    pthread_condattr_t attr;
    if (ps == NULL)
        return NULL;
    ps->api = api;
    ps->cfg = cfg;
    pthread_mutex_init(&ps->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&ps->changed, &attr);
    pthread_condattr_destroy(&attr);
    return ps;
}

void docker_pulls_free(struct docker_pulls *ps)
{
    if (ps == NULL)
        return;
    pthread_cond_destroy(&ps->changed);
    pthread_mutex_destroy(&ps->lock);
    free(ps);
}

/* --- what the engine tells ------------------------------------------------------------------- */

struct told_bytes {
    int64_t current, total;
};

struct told {
    char *error, *status, *id;
    struct told_bytes bytes;
};

static const struct field bytes_fields[] = {
    DOCKER_INT("current", struct told_bytes, current),
    DOCKER_INT("total", struct told_bytes, total),
    {0},
};

static const struct field told_fields[] = {
    DOCKER_STR("error", struct told, error),
    DOCKER_STR("status", struct told, status),
    DOCKER_STR("id", struct told, id),
    DOCKER_OBJECT("progressDetail", struct told, bytes, bytes_fields),
    {0},
};

static struct layer *layer_find(struct pull *p, const char *id)
{
    for (size_t i = 0; i < p->layers_n; i++) {
        if (strcmp(p->layers[i].id, id) == 0)
            return &p->layers[i];
    }
    return NULL;
}

static struct layer *layer_add(struct pull *p, const char *id)
{
    struct layer *l = layer_find(p, id);
    if (l != NULL || p->layers_n == LAYERS_MAX || id[0] == '\0' || strlen(id) >= LAYER_ID_MAX)
        return l;
    l = &p->layers[p->layers_n++];
    snprintf(l->id, sizeof(l->id), "%s", id);
    docker_words_clean(l->id);
    return l;
}

static void layer_done(struct pull *p, struct layer *l)
{
    if (l->is_done)
        return;
    l->is_done = true;
    l->bytes_done = l->bytes;
    p->done[p->done_n++] = (size_t)(l - p->layers);
}

/* "id" is also that of the tag, so a layer is what comes with these words. */
static void layer_take(struct pull *p, const struct told *t)
{
    bool is_here = strcmp(t->status, "Already exists") == 0;
    struct layer *l = is_here || strcmp(t->status, "Pulling fs layer") == 0 ? layer_add(p, t->id)
                                                                            : layer_find(p, t->id);
    if (l == NULL || l->is_done)
        return;
    if (strcmp(t->status, "Downloading") == 0 && t->bytes.total >= t->bytes.current &&
        t->bytes.current >= 0) {
        l->bytes = t->bytes.total;
        l->bytes_done = t->bytes.current;
    } else if (strcmp(t->status, "Download complete") == 0) {
        l->bytes_done = l->bytes;
    } else if (is_here || strcmp(t->status, "Pull complete") == 0) {
        layer_done(p, l);
    }
}

static void line_take(struct pull *p)
{
    struct arena *arena = arena_new(LINE_MAX_BYTES * 2);
    struct told t = {0};
    struct err ignored;
    if (arena != NULL && p->line.len > 0 && buf_ok(&p->line) &&
        json_decode_foreign(p->line.data, p->line.len, told_fields, &t, arena, &ignored) == 0) {
        if (t.error[0] != '\0')
            docker_words_cut(t.error, p->error, sizeof(p->error));
        docker_words_clean(p->error);
        pthread_mutex_lock(&p->pulls->lock);
        layer_take(p, &t);
        pthread_mutex_unlock(&p->pulls->lock);
    }
    arena_free(arena);
    buf_reset(&p->line);
}

static enum http_client_body pull_head(void *ctx, long status)
{
    (void)ctx;
    return status == 200 ? HTTP_CLIENT_STREAM : HTTP_CLIENT_COLLECT;
}

static bool pull_data(void *ctx, const char *data, size_t len)
{
    struct pull *p = ctx;
    for (size_t i = 0; i < len; i++) {
        if (data[i] == '\n')
            line_take(p);
        else
            buf_add_char(&p->line, data[i]);
    }
    return true;
}

/* --- the thread of a pull -------------------------------------------------------------------- */

/* Without a tag or digest the engine would pull all of them. */
static bool has_tag(const char *image)
{
    const char *slash = strrchr(image, '/');
    return strpbrk(slash != NULL ? slash : image, ":@") != NULL;
}

static int pull_refused(const struct pull *p, const char *what, const char *words, bool has_login,
                        struct err *e)
{
    char host[LOGIN_HOST_MAX], cut[81];
    docker_words_cut(words, cut, sizeof(cut));
    if (!docker_login_is_refusal(words))
        return err_set(e, ERR_SANDBOX_START_FAILED, "%s: %s", what, cut);
    docker_login_host(p->image, host);
    return err_set(e, ERR_SANDBOX_START_FAILED,
                   has_login ? "%s: registry %.30s refuses the login of docker.registries"
                             : "%s: registry %.30s wants a login: docker.registries",
                   what, host);
}

static int pull_call(struct pull *p, const char *path, const struct docker_login *login,
                     const char *what, struct err *e)
{
    struct http_client_sink sink = {.ctx = p, .head = pull_head, .data = pull_data};
    struct docker_call c = {.method = "POST",
                            .path = path,
                            .header = login->header[0] != '\0' ? login->header : NULL,
                            .sink = &sink,
                            .cancel = &p->cancel,
                            .timeout_ms = HTTP_CLIENT_NO_DEADLINE,
                            .stall_ms = STALL_MS};
    struct docker_answer answer;
    docker_answer_init(&answer);
    int rc = docker_api_call_on(p->pulls->api, p->client, &c, &answer, e);
    line_take(p);
    if (rc == 0 && answer.status != 200) {
        rc = docker_answer_refused(&answer, ERR_SANDBOX_START_FAILED, what, e);
        docker_answer_words(&answer, p->error, sizeof(p->error));
    }
    if (p->error[0] != '\0' && (rc == 0 || docker_login_is_refusal(p->error)))
        rc = pull_refused(p, what, p->error, c.header != NULL, e);
    docker_answer_done(&answer);
    return rc;
}

static int pull_stream(struct pull *p, struct err *e)
{
    struct docker_login login;
    struct buf path;
    char what[96];
    snprintf(what, sizeof(what), "image %.64s cannot be pulled", p->image);
    buf_init(&path, 4096);
    buf_add_str(&path, "/images/create?fromImage=");
    docker_url_add(&path, p->image, false);
    buf_add_str(&path, has_tag(p->image) ? "" : "&tag=latest");
    int rc = buf_ok(&path) ? docker_login_make(p->pulls->cfg, p->image, &login, e)
                           : err_set(e, ERR_SANDBOX_START_FAILED, "%s: its name is too long", what);
    if (rc == 0)
        rc = pull_call(p, path.data, &login, what, e);
    explicit_bzero(&login, sizeof(login));
    buf_done(&path);
    return rc;
}

static void *pull_run(void *arg)
{
    struct pull *p = arg;
    struct docker_pulls *ps = p->pulls;
    struct err e = {0};
    int rc = pull_stream(p, &e);
    pthread_mutex_lock(&ps->lock);
    for (size_t i = 0; rc == 0 && i < p->layers_n; i++)
        layer_done(p, &p->layers[i]);
    p->rc = rc;
    p->why = e;
    if (!atomic_load(&p->cancel))
        DL_DELETE(ps->list, p);
    p->over = true;
    pthread_cond_broadcast(&ps->changed);
    pthread_mutex_unlock(&ps->lock);
    return NULL;
}

/* --- those who wait -------------------------------------------------------------------------- */

static void pull_free(struct pull *p)
{
    http_client_free(p->client);
    buf_done(&p->line);
    free(p);
}

/* With the lock held. */
static struct pull *pull_begin(struct docker_pulls *ps, const char *image, struct err *e)
{
    size_t len = strlen(image);
    struct pull *p = calloc(1, sizeof(*p) + len + 1);
    if (p == NULL)
        return err_set(e, ERR_INTERNAL, "no memory for a pull"), NULL;
    memcpy(p->image, image, len);
    p->pulls = ps;
    buf_init(&p->line, LINE_MAX_BYTES);
    p->client = http_client_new();
    int rc = p->client == NULL ? ENOMEM : pthread_create(&p->thread, NULL, pull_run, p);
    if (rc != 0) {
        err_sys(e, ERR_INTERNAL, rc, "no thread for a pull");
        pull_free(p);
        return NULL;
    }
    DL_APPEND(ps->list, p);
    return p;
}

/* With the lock held. NULL with e->code ERR_BUSY: there is no place now. */
static struct pull *pull_join(struct docker_pulls *ps, const char *image, struct err *e)
{
    struct pull *p;
    size_t n = 0;
    DL_FOREACH (ps->list, p) {
        if (strcmp(p->image, image) == 0)
            return p;
        n++;
    }
    if (n >= PULLS_MAX)
        return err_set(e, ERR_BUSY, "other images are pulled"), NULL;
    return pull_begin(ps, image, e);
}

/* With the lock held, which the end of the last one lets go for as long as the thread needs. */
static void pull_leave(struct docker_pulls *ps, struct pull *p)
{
    if (--p->waiters > 0)
        return;
    if (!p->over) {
        DL_DELETE(ps->list, p); /* nobody joins one that ends */
        atomic_store(&p->cancel, true);
    }
    pthread_mutex_unlock(&ps->lock);
    http_client_wake(p->client);
    pthread_join(p->thread, NULL);
    pull_free(p);
    pthread_mutex_lock(&ps->lock);
}

struct waiting {
    struct docker_pulls *ps;
    const char *image;
    const struct engine_pull_wait *w;
    int64_t until_us;
    size_t told_n; /* layers */
};

static void tick(struct docker_pulls *ps)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += TICK_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&ps->changed, &ps->lock, &until);
}

static int may_wait_on(const struct waiting *wa, struct err *e)
{
    if (wa->w->cancel != NULL && atomic_load(wa->w->cancel))
        return err_set(e, ERR_BUSY, "nobody waits for image %.64s any more", wa->image);
    if (clock_boot_us(&clock_system) >= wa->until_us)
        return err_set(e, ERR_SANDBOX_START_FAILED, "image %.64s was not pulled within %lld s",
                       wa->image, (long long)wa->w->timeout_ms / 1000);
    return 0;
}

static void count(const struct pull *p, struct engine_pull *ret)
{
    *ret = (struct engine_pull){
        .image = p->image, .layers = (int64_t)p->layers_n, .layers_done = (int64_t)p->done_n};
    for (size_t i = 0; i < p->layers_n; i++) {
        ret->bytes += p->layers[i].bytes;
        ret->bytes_done += p->layers[i].bytes_done;
    }
}

/* With the lock held, let go while others are told. */
static void tell(struct waiting *wa, struct pull *p)
{
    struct engine_pull now;
    char layer[LAYER_ID_MAX] = "";
    do {
        bool is_new = wa->told_n < p->done_n;
        count(p, &now);
        if (is_new) {
            memcpy(layer, p->layers[p->done[wa->told_n]].id, sizeof(layer));
            now.layers_done = (int64_t)++wa->told_n;
        }
        pthread_mutex_unlock(&wa->ps->lock);
        if (is_new)
            wa->w->layer(wa->w->ctx, &now, layer);
        else
            wa->w->progress(wa->w->ctx, &now);
        pthread_mutex_lock(&wa->ps->lock);
    } while (wa->told_n < p->done_n);
}

static int wait_over(struct waiting *wa, struct pull *p, struct err *e)
{
    int rc = 0;
    for (;;) {
        bool over = p->over;
        tell(wa, p);
        if (over)
            return p->rc == 0 ? 0 : (*e = p->why, -1);
        if ((rc = may_wait_on(wa, e)) != 0)
            return rc;
        if (!p->over)
            tick(wa->ps);
    }
}

int docker_pull(struct engine *g, const char *image, const struct engine_pull_wait *w,
                struct err *e)
{
    struct docker_pulls *ps = ((struct engine_docker *)g)->pulls;
    struct waiting wa = {.ps = ps,
                         .image = image,
                         .w = w,
                         .until_us = clock_boot_us(&clock_system) + w->timeout_ms * 1000};
    struct pull *p;
    int rc = 0;
    pthread_mutex_lock(&ps->lock);
    while ((p = pull_join(ps, image, e)) == NULL) {
        rc = e->code == ERR_BUSY ? may_wait_on(&wa, e) : -1;
        if (rc != 0)
            break;
        tick(ps);
    }
    if (p != NULL) {
        p->waiters++;
        rc = wait_over(&wa, p, e);
        pull_leave(ps, p);
    }
    pthread_mutex_unlock(&ps->lock);
    return rc;
}
