#include "start_watch.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "progress.h"
#include "views.h"

#define FIRST_LOOK_MS 1000 /* most starts are over by then */
#define LOOK_MS       300
#define CALL_MS       5000
#define ARENA_CAP     (1024UL * 1024)

struct starting_view {
    char *session_id;
    struct image_view *progress;
};

struct starting_list {
    struct list items; /* struct starting_view */
};

static const struct field starting_fields[] = {
    FIELD_STR(struct starting_view, session_id),
    FIELD_OBJPTR(struct starting_view, progress, image_fields, struct image_view),
    {0},
};
static const struct field list_fields[] = {
    FIELD_OBJLIST(struct starting_list, items, starting_fields, struct starting_view),
    {0},
};

struct start_watch {
    const struct cli *cli;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t over_told;
    bool over; /* lock */
    struct progress line;
    bool shown;
    char name[96];
    char path[128];
};

/* False: the opening is over. */
static bool wait_ms(struct start_watch *w, int ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += (ms % 1000) * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&w->lock);
    int rc = 0;
    while (rc == 0 && !w->over) {
        rc = pthread_cond_timedwait(&w->over_told, &w->lock, &until);
    }
    bool over = w->over;
    pthread_mutex_unlock(&w->lock);
    return !over;
}

static void show(struct start_watch *w, const struct image_view *p)
{
    if (!w->shown) {
        progress_begin(&w->line, w->name, p->bytes_done, p->bytes, false);
        w->shown = true;
    }
    int n = snprintf(w->name, sizeof(w->name), "image %d/%d", (int)p->layers_done, (int)p->layers);
    if (n < 0) {
        return;
    }
    w->line.total = p->bytes;
    progress_add(&w->line, p->bytes_done - w->line.done);
}

static void look(struct start_watch *w, struct api *api, struct arena *arena)
{
    struct starting_list found = {0};
    struct api_answer answer;
    struct err ignored;
    api_answer_init(&answer);
    if (api_call(api, "GET", w->path, NULL, CALL_MS, &answer, &ignored) == 0 &&
        api_answer_ok(&answer) &&
        json_decode_lenient(answer.body.data, answer.body.len, list_fields, &found, arena,
                            &ignored) == 0 &&
        found.items.n > 0) {
        const struct starting_view *s = found.items.items;
        if (s->progress != NULL) {
            show(w, s->progress);
        }
    }
    api_answer_done(&answer);
}

static void *watch_run(void *arg)
{
    struct start_watch *w = arg;
    struct api *api = api_new(&w->cli->access);
    for (bool on = wait_ms(w, FIRST_LOOK_MS); on && api != NULL; on = wait_ms(w, LOOK_MS)) {
        struct arena *arena = arena_new(ARENA_CAP);
        if (arena != NULL) {
            look(w, api, arena);
        }
        arena_free(arena);
    }
    api_free(api);
    return NULL;
}

static void watch_free(struct start_watch *w)
{
    pthread_cond_destroy(&w->over_told);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

struct start_watch *start_watch_begin(const struct cli *cli, const struct options *o)
{
    const char *chat = options_text(o, "CHAT", "");
    pthread_condattr_t attr;
    if (cli->json || options_has(o, "--no-wait") || isatty(STDERR_FILENO) != 1) {
        return NULL;
    }
    struct start_watch *w = calloc(1, sizeof(*w));
    if (w == NULL) {
        return NULL;
    }
    w->cli = cli;
    pthread_mutex_init(&w->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&w->over_told, &attr);
    pthread_condattr_destroy(&attr);
    snprintf(w->path, sizeof(w->path), "/sandboxes?chat_id=%s&status=starting", chat);
    if (pthread_create(&w->thread, NULL, watch_run, w) != 0) {
        watch_free(w);
        return NULL;
    }
    return w;
}

void start_watch_end(struct start_watch *w)
{
    if (w == NULL) {
        return;
    }
    pthread_mutex_lock(&w->lock);
    w->over = true;
    pthread_cond_signal(&w->over_told);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    progress_end(&w->line);
    watch_free(w);
}
