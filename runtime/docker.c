/*
 * Engine `docker`: every sandbox is a container, hardened by one template (docker_body.c), with
 * leaseinit in front of what the image runs. The engine holds all state; labels say whose it is.
 */
#include "docker.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "leasehold/clock.h"
#include "leasehold/process.h"
#include "rundir.h"
#include "use_stats.h"

#define ARENA_MAX  (1024u * 1024)
#define END_MS     3000 /* from the end of a process to the engine's knowledge of it */
#define POLL_MS    20
#define SIGNAL_MAX 64

static bool is_of(const struct engine_docker *d, const struct docker_labels *l, const char *kind,
                  struct id *ret_session)
{
    return strcmp(l->instance, d->cfg->app.instance) == 0 && strcmp(l->run_dir, d->run_dir) == 0 &&
           strcmp(l->kind, kind) == 0 && id_parse(l->session, strlen(l->session), ret_session);
}

bool docker_is_ours(const struct engine_docker *d, const struct docker_labels *l,
                    struct id *ret_session)
{
    return is_of(d, l, KIND_SANDBOX, ret_session);
}

bool docker_is_tools(const struct engine_docker *d, const struct docker_labels *l,
                     struct id *ret_session)
{
    return is_of(d, l, KIND_TOOLS, ret_session);
}

static int get(struct engine_docker *d, const char *ref, struct docker_container *ret,
               struct err *e)
{
    struct arena *arena = arena_new(ARENA_MAX);
    if (arena == NULL)
        return err_set(e, ERR_INTERNAL, "no memory for a container");
    int rc = docker_container_get(d->api, ref, arena, ret, e);
    ret->labels = (struct docker_labels){0}; /* go with the arena */
    arena_free(arena);
    return rc;
}

/* --- the end --------------------------------------------------------------------------------- */

/* One that fails is no reason to leave it: the removal kills. */
static void docker_halt(struct engine *g, const struct engine_handle *h, int64_t grace_ms)
{
    struct err ignored;
    (void)!docker_container_stop(((struct engine_docker *)g)->api, h->container_id, grace_ms,
                                 &ignored);
}

static int docker_stop(struct engine *g, const char *run_path, const struct engine_handle *h,
                       int64_t grace_ms, struct err *e)
{
    struct engine_docker *d = (struct engine_docker *)g;
    const char *session = strrchr(run_path, '/');
    char name[DOCKER_NAME_MAX];
    docker_name(session != NULL ? session + 1 : run_path, name);
    if (grace_ms > 0)
        docker_halt(g, h, grace_ms);
    if (docker_container_remove(d->api, h->container_id, e) < 0 ||
        docker_tools_remove(d, run_path, e) < 0 ||
        (d->uses_networks && docker_network_remove(d, name, e) < 0)) {
        e->code = ERR_SANDBOX_STOP_FAILED;
        return -1;
    }
    return 0;
}

/* --- questions ------------------------------------------------------------------------------- */

static void docker_last_words(struct engine *g, const char *run_path, const struct engine_handle *h,
                              char *ret, size_t size)
{
    struct engine_docker *d = (struct engine_docker *)g;
    (void)run_path;
    *ret = '\0';
    if (h->container_id[0] != '\0')
        docker_log_tail(d, h->container_id, ret, size);
}

/* leaseinit ends with 128 + signal when a signal has ended the agent, as the engine does for it. */
static void describe_end(const struct docker_container *c, struct engine_status *ret)
{
    int64_t code = c->exit_code;
    if (c->oom && code == 128 + 9)
        snprintf(ret->reason, sizeof(ret->reason), "oom");
    else if (code > 128 && code <= 128 + SIGNAL_MAX)
        snprintf(ret->reason, sizeof(ret->reason), "signaled(%lld)", (long long)code - 128);
    else
        snprintf(ret->reason, sizeof(ret->reason), "exited(%lld)", (long long)code);
    snprintf(ret->detail, sizeof(ret->detail), "%s", c->error);
}

static void lost(struct engine_status *ret, const char *detail)
{
    *ret = (struct engine_status){.alive = false};
    snprintf(ret->reason, sizeof(ret->reason), "engine_lost");
    snprintf(ret->detail, sizeof(ret->detail), "%.127s", detail);
}

/* Is the process still the same? False where it is not known, too. */
static bool is_seen_alive(const struct engine_handle *h)
{
    return h->pid > 0 && process_start_ticks((pid_t)h->pid) == h->pid_start;
}

/* The engine hears of an end a little later than we do. */
static int get_settled(struct engine_docker *d, const struct engine_handle *h,
                       struct docker_container *c, struct err *e)
{
    int64_t until_us = clock_boot_us(&clock_system) + END_MS * 1000;
    int rc;
    while ((rc = get(d, h->container_id, c, e)) == 0 && c->running && h->pid > 0 &&
           c->pid == h->pid && clock_boot_us(&clock_system) < until_us)
        poll(NULL, 0, POLL_MS);
    return rc;
}

static int docker_status(struct engine *g, const char *run_path, const struct engine_handle *h,
                         struct engine_status *ret, struct err *e)
{
    struct engine_docker *d = (struct engine_docker *)g;
    struct docker_container c;
    (void)run_path;
    *ret = (struct engine_status){.alive = is_seen_alive(h)};
    if (ret->alive)
        return 0;
    if (get_settled(d, h, &c, e) < 0) {
        if (e->code == ERR_NOT_FOUND)
            return lost(ret, "the engine knows its container no more"), 0;
        if (h->pid > 0 && e->code == ERR_ENGINE_UNAVAILABLE)
            return lost(ret, "it has ended, and the engine is not there to say how"), 0;
        return -1;
    }
    ret->alive = c.running && h->pid == 0;
    if (c.running && h->pid > 0)
        lost(ret, "its first process has ended, and the container goes on without it");
    else if (!c.running)
        describe_end(&c, ret);
    return 0;
}

static int docker_find(struct engine *g, const char *run_path, struct engine_handle *ret,
                       struct err *e)
{
    struct engine_docker *d = (struct engine_docker *)g;
    const char *slash = strrchr(run_path, '/');
    struct arena *arena = arena_new(ARENA_MAX);
    struct docker_container c;
    struct id session;
    char name[DOCKER_NAME_MAX];
    struct err why;
    if (arena == NULL)
        return err_set(e, ERR_INTERNAL, "no memory for a container");
    docker_name(slash != NULL ? slash + 1 : run_path, name);
    int rc = docker_container_get(d->api, name, arena, &c, e);
    if (rc == 0 && !docker_is_ours(d, &c.labels, &session))
        rc = err_set(e, ERR_NOT_FOUND, "the container of this name is not ours");
    if (rc == 0)
        docker_handle_fill(d, &c, ret);
    arena_free(arena);
    /* Nobody will be asked to stop it, so what stands beside it goes here. */
    if (rc < 0 && e->code == ERR_NOT_FOUND && docker_tools_remove(d, run_path, &why) < 0)
        *e = why;
    return rc;
}

/* Its control groups: "5:memory:/docker/<id>", "0::/system.slice/docker-<id>.scope". */
static void groups_read(int64_t pid, char *ret, size_t size)
{
    char path[64], line[1024];
    size_t at = 0;
    snprintf(path, sizeof(path), "/proc/%lld/cgroup", (long long)pid);
    FILE *f = fopen(path, "re");
    *ret = '\0';
    while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
        char *names = strchr(line, ':');
        char *group = names != NULL ? strchr(names + 1, ':') : NULL;
        if (group == NULL)
            continue;
        *group++ = '\0';
        int n = snprintf(ret + at, size - at, "/sys/fs/cgroup%s%s%s", names[1] != '\0' ? "/" : "",
                         names + 1, group);
        if (n < 0 || (size_t)n >= size - at)
            break;
        at += (size_t)n;
    }
    ret[at] = '\0';
    if (f != NULL)
        fclose(f);
}

int docker_use_of(const struct engine_handle *h, struct engine_stats *ret, struct err *e)
{
    struct engine_stats use = USE_UNKNOWN;
    char groups[8192];
    if (!is_seen_alive(h))
        return err_set(e, ERR_SESSION_NOT_RUNNING, "the sandbox has ended");
    groups_read(h->pid, groups, sizeof(groups));
    use_of_groups(groups, &use);
    if (!use_is_known(&use) && use_of_namespace((pid_t)h->pid, h->pid_start, &use, e) < 0)
        return -1;
    *ret = use;
    return 0;
}

static int docker_stats(struct engine *g, const char *run_path, const struct engine_handle *h,
                        struct engine_stats *ret, struct err *e)
{
    (void)g;
    if (docker_use_of(h, ret, e) < 0)
        return -1;
    docker_tools_use_add(run_path, ret);
    return 0;
}

struct listing {
    struct engine_docker *d;
    int (*each)(void *ctx, const struct engine_seen *seen, struct err *e);
    void *ctx;
};

static int listed(void *ctx, const struct docker_listed *c, struct err *e)
{
    struct listing *l = ctx;
    struct engine_seen seen = {.alive = strcmp(c->state, "running") == 0 ||
                                        strcmp(c->state, "paused") == 0};
    /* Tools without their sandbox are an orphan, and beside it no sign of life. */
    if (docker_is_tools(l->d, &c->labels, &seen.session_id))
        seen.alive = false;
    else if (!docker_is_ours(l->d, &c->labels, &seen.session_id))
        return 0;
    snprintf(seen.container_id, sizeof(seen.container_id), "%.79s", c->id);
    return l->each(l->ctx, &seen, e);
}

static int docker_list(struct engine *g,
                       int (*each)(void *ctx, const struct engine_seen *seen, struct err *e),
                       void *ctx, struct err *e)
{
    struct engine_docker *d = (struct engine_docker *)g;
    struct listing l = {.d = d, .each = each, .ctx = ctx};
    if (docker_container_each(d->api, d->cfg->app.instance, listed, &l, e) < 0)
        return -1;
    pthread_mutex_lock(&d->lock);
    d->reachable = true;
    pthread_mutex_unlock(&d->lock);
    return 0;
}

static int docker_watch(struct engine *g, const struct engine_watch *w, struct err *e)
{
    return docker_watch_start((struct engine_docker *)g, w, e);
}

static int docker_info(struct engine *g, struct engine_info *ret, struct err *e)
{
    struct engine_docker *d = (struct engine_docker *)g;
    pthread_mutex_lock(&d->lock);
    int rc = d->reachable ? 0 : err_set(e, ERR_ENGINE_UNAVAILABLE, "%.159s", d->problem);
    if (rc == 0)
        *ret = d->info;
    pthread_mutex_unlock(&d->lock);
    return rc;
}

static int log_open_of(struct engine *g, const char *run_path, const struct engine_handle *h,
                       const struct engine_log_from *from, struct engine_log **ret, struct err *e)
{
    (void)run_path;
    return docker_log_open((struct engine_docker *)g, h->container_id, from, ret, e);
}

/* --- life of the engine ---------------------------------------------------------------------- */

static void docker_free(struct engine *g)
{
    struct engine_docker *d = (struct engine_docker *)g;
    if (d == NULL)
        return;
    docker_watch_stop(d);
    docker_pulls_free(d->pulls);
    docker_api_free(d->api);
    pthread_cond_destroy(&d->stop_told);
    pthread_mutex_destroy(&d->lock);
    free(d->bin_dir);
    free(d->run_dir);
    free(d);
}

static const struct engine_vtable docker_vtable = {
    .name = "docker",
    .image = docker_image,
    .pull = docker_pull,
    .start = docker_start,
    .halt = docker_halt,
    .stop = docker_stop,
    .status = docker_status,
    .find = docker_find,
    .stats = docker_stats,
    .log_open = log_open_of,
    .list = docker_list,
    .watch = docker_watch,
    .info = docker_info,
    .last_words = docker_last_words,
    .free = docker_free,
};

static bool some_profile_has_a_network(const struct config *cfg)
{
    const struct config_profile *p = cfg->profiles.items;
    for (size_t i = 0; i < cfg->profiles.n; i++) {
        if (p[i].network == NETWORK_INTERNAL)
            return true;
    }
    return false;
}

static void locks_init(struct engine_docker *d)
{
    pthread_condattr_t attr;
    pthread_mutex_init(&d->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&d->stop_told, &attr);
    pthread_condattr_destroy(&attr);
}

int engine_docker_new(const struct config *cfg, const char *bin_dir, struct engine **ret,
                      struct err *e)
{
    struct engine_docker *d = calloc(1, sizeof(*d));
    if (d == NULL)
        return err_set(e, ERR_INTERNAL, "no memory");
    d->base.v = &docker_vtable;
    d->cfg = cfg;
    d->uid = geteuid() == 0 ? cfg->sandbox.uid : (int64_t)geteuid();
    d->seccomp = true; /* until the engine says that it is not so */
    d->uses_networks = some_profile_has_a_network(cfg);
    snprintf(d->problem, sizeof(d->problem), "the engine was not asked yet");
    locks_init(d);
    /* The engine follows no symlink of ours, and labels must not change with one. */
    d->bin_dir = realpath(bin_dir, NULL);
    d->run_dir = realpath(cfg->run_dir, NULL);
    if (d->bin_dir == NULL || d->run_dir == NULL)
        err_sys(e, ERR_ENGINE_UNAVAILABLE, errno, "the directories of the programs and of run_dir");
    if (d->bin_dir == NULL || d->run_dir == NULL || docker_api_new(&cfg->docker, &d->api, e) < 0) {
        docker_free(&d->base);
        return -1;
    }
    if (rundir_unmount_left(d->run_dir, e) < 0) {
        docker_free(&d->base);
        return -1;
    }
    d->pulls = docker_pulls_new(d->api, &cfg->docker);
    if (d->pulls == NULL) {
        docker_free(&d->base);
        return err_set(e, ERR_INTERNAL, "no memory for the engine's pulls");
    }
    *ret = &d->base;
    return 0;
}
