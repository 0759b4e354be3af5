/* Starting a container: look at its image, make it, start it, look at it; undone as a whole. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "docker.h"
#include "docker_body.h"
#include "leasehold/clock.h"
#include "leasehold/process.h"
#include "leasehold/tool_link.h"

#define BODY_MAX  (1024u * 1024)
#define ARENA_MAX (1024u * 1024)
#define LEAST_MS  1000 /* that a step gets when the time of the start is nearly over */

struct starting {
    struct engine_docker *d;
    const struct engine_spec *spec;
    const char *image_name;
    struct arena *arena;
    char name[DOCKER_NAME_MAX];
    char id[DOCKER_NAME_MAX];
    int64_t until_us;
};

static int64_t left_ms(const struct starting *st)
{
    int64_t left = (st->until_us - clock_boot_us(&clock_system)) / 1000;
    return left > LEAST_MS ? left : LEAST_MS;
}

void docker_name(const char *session, char ret[static DOCKER_NAME_MAX])
{
    snprintf(ret, DOCKER_NAME_MAX, "leasehold-%s", session);
}

/* --- the box --------------------------------------------------------------------------------- */

static int box_file(const struct starting *st, const char *name, mode_t mode, struct err *e)
{
    char path[PATH_MAX];
    if ((size_t)snprintf(path, sizeof(path), "%s/%s", st->spec->box_path, name) >= sizeof(path))
        return err_set(e, ERR_SANDBOX_START_FAILED, "run_dir is too long a path");
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode);
    if (fd < 0 || fchmod(fd, mode) < 0) {
        err_sys(e, ERR_SANDBOX_START_FAILED, errno, "make %.32s in the box", name);
        if (fd >= 0)
            close(fd);
        return -1;
    }
    return fd;
}

/* The environment of the request may hold secrets: a file that only the agent sees, nothing that
 * the engine would show. */
static int env_write(const struct starting *st, struct err *e)
{
    struct buf text;
    int fd = box_file(st, DOCKER_ENV_FILE, 0444, e);
    if (fd < 0)
        return -1;
    buf_init(&text, BODY_MAX);
    for (size_t i = 0; i < st->spec->env_n; i++) {
        buf_printf(&text, "%s=%s", st->spec->env[i].name, st->spec->env[i].value);
        buf_add_char(&text, '\0');
    }
    bool written = buf_ok(&text) && write(fd, text.data, text.len) == (ssize_t)text.len;
    if (!written)
        err_sys(e, ERR_SANDBOX_START_FAILED, errno, "write the environment");
    if (text.data != NULL)
        explicit_bzero(text.data, text.size);
    buf_done(&text);
    close(fd);
    return written ? 0 : -1;
}

/* Files bound below a read-only bind need something to be bound on. */
static int box_fill(const struct starting *st, struct err *e)
{
    static const char *const points[] = {"leaseinit", "demo-agent", "lease-artifact", TOOL_CLIENT};
    for (size_t i = 0; i < sizeof(points) / sizeof(points[0]); i++) {
        int fd = box_file(st, points[i], 0444, e);
        if (fd < 0)
            return -1;
        close(fd);
    }
    return st->spec->env_n > 0 ? env_write(st, e) : 0;
}

/* --- image ----------------------------------------------------------------------------------- */

static const char *image_name(const struct engine_docker *d, const struct config_profile *profile)
{
    return profile->image[0] != '\0' ? profile->image : d->cfg->sandbox.image;
}

int docker_image(struct engine *g, const struct config_profile *profile, struct arena *arena,
                 struct engine_image *ret, const char **ret_name, struct err *e)
{
    struct engine_docker *d = (struct engine_docker *)g;
    *ret_name = image_name(d, profile);
    if ((*ret_name)[0] == '\0')
        return err_set(e, ERR_SANDBOX_START_FAILED,
                       "profile %.64s has no image, and sandbox.image is not set", profile->name);
    return docker_image_get(d->api, *ret_name, arena, ret, e);
}

/* --- the container --------------------------------------------------------------------------- */

static struct docker_body body_of(const struct starting *st)
{
    enum config_network network = (enum config_network)st->spec->profile->network;
    char version[16];
    docker_api_version(st->d->api, version);
    struct docker_body b = {.spec = st->spec,
                            .image = st->spec->image,
                            .image_name = st->image_name,
                            .instance = st->d->cfg->app.instance,
                            .run_dir = st->d->run_dir,
                            .bin_dir = st->d->bin_dir,
                            .network = network == NETWORK_INTERNAL ? st->name
                                                                   : config_network_names[network],
                            .cpus_n = sysconf(_SC_NPROCESSORS_ONLN),
                            .has_env_file = st->spec->env_n > 0};
    sscanf(version, "1.%d", &b.api_minor);
    return b;
}

static void tools_start(const struct starting *st)
{
    struct docker_body like = body_of(st);
    docker_tools_start(st->d, &like, left_ms(st));
}

/* A creation whose answer was lost, or a try of ours that was cut off. */
static bool is_this_start(const struct starting *st, const struct docker_container *c)
{
    struct id session;
    char generation[24];
    snprintf(generation, sizeof(generation), "%lld", (long long)st->spec->generation);
    return docker_is_ours(st->d, &c->labels, &session) &&
           id_equal(&session, &st->spec->session_id) &&
           strcmp(c->labels.generation, generation) == 0;
}

/* Whatever the creation answered: is the container there? */
static int create_look(struct starting *st, const struct buf *body, const struct err *why,
                       struct err *e)
{
    struct docker_container c;
    struct id session;
    struct err look;
    if (docker_container_get(st->d->api, st->name, st->arena, &c, &look) < 0 ||
        !docker_is_ours(st->d, &c.labels, &session))
        return *e = *why, -1;
    if (is_this_start(st, &c) && !c.running) {
        snprintf(st->id, sizeof(st->id), "%s", c.id);
        return 0;
    }
    if (docker_container_remove(st->d->api, c.id, e) < 0)
        return -1;
    return docker_container_create(st->d->api, st->name, body, left_ms(st), st->id, e);
}

static int create(struct starting *st, struct err *e)
{
    struct buf body;
    struct err why;
    buf_init(&body, BODY_MAX);
    struct docker_body b = body_of(st);
    int rc = docker_body_write(&b, &body, e);
    if (rc == 0 &&
        docker_container_create(st->d->api, st->name, &body, left_ms(st), st->id, &why) < 0)
        rc = why.code == ERR_CONFLICT || why.code == ERR_ENGINE_UNAVAILABLE
                 ? create_look(st, &body, &why, e)
                 : (*e = why, -1);
    buf_done(&body);
    return rc;
}

/* Podman takes the wish and ignores it. */
static int runtime_verify(const struct starting *st, struct err *e)
{
    const char *wanted = st->spec->profile->runtime;
    struct docker_container c;
    if (wanted[0] == '\0')
        return 0;
    if (docker_container_get(st->d->api, st->id, st->arena, &c, e) < 0)
        return -1;
    if (strcmp(c.runtime, wanted) != 0)
        return err_set(e, ERR_SANDBOX_START_FAILED,
                       "the engine would run it with %.40s instead of runtime %.40s",
                       c.runtime[0] != '\0' ? c.runtime : "its own", wanted);
    return 0;
}

/* The engine finishes what it has begun, also when its answer comes too late or is an error. */
static int run(struct starting *st, struct engine_handle *ret, struct err *e)
{
    struct docker_container c;
    struct err why;
    bool refused = docker_container_start(st->d->api, st->id, left_ms(st), &why) < 0;
    if (docker_container_get(st->d->api, st->id, st->arena, &c, e) < 0)
        return -1;
    if (refused && !c.running)
        return *e = why, -1;
    docker_handle_fill(st->d, &c, ret);
    return 0;
}

static void undo(struct starting *st)
{
    struct err ignored; /* what is left has our labels: the janitor's */
    (void)!docker_container_remove(st->d->api, st->name, &ignored);
    (void)!docker_tools_remove(st->d, st->spec->run_path, &ignored);
    if (st->spec->profile->network == NETWORK_INTERNAL)
        (void)!docker_network_remove(st->d, st->name, &ignored);
}

static int start_all(struct starting *st, struct engine_handle *ret, struct err *e)
{
    if (box_fill(st, e) < 0)
        return -1;
    if (st->spec->profile->network == NETWORK_INTERNAL &&
        docker_network_make(st->d, st->spec, st->name, e) < 0)
        return -1;
    if (st->spec->tools != NULL)
        tools_start(st);
    if (create(st, e) == 0 && runtime_verify(st, e) == 0 && run(st, ret, e) == 0) {
        if (st->spec->tools != NULL)
            docker_tools_look(st->d, st->spec);
        return 0;
    }
    undo(st);
    return -1;
}

/* The container's first process, if it can be told that it is this one: with an engine in another
 * pid namespace the number would be somebody else's. */
static int64_t verified_pid(const struct docker_container *c, int64_t *ret_start)
{
    char path[64], text[4096];
    int64_t start = c->pid > 0 ? process_start_ticks((pid_t)c->pid) : -1;
    *ret_start = 0;
    if (start < 0)
        return 0;
    snprintf(path, sizeof(path), "/proc/%lld/cgroup", (long long)c->pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t n = read(fd, text, sizeof(text) - 1);
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    if (strstr(text, c->id) == NULL || process_start_ticks((pid_t)c->pid) != start)
        return 0;
    *ret_start = start;
    return c->pid;
}

void docker_handle_fill(struct engine_docker *d, const struct docker_container *c,
                        struct engine_handle *ret)
{
    struct engine_handle h = {.isolation = {.netns = true, .uid = d->uid}};
    snprintf(h.container_id, sizeof(h.container_id), "%s", c->id);
    h.pid = c->running ? verified_pid(c, &h.pid_start) : 0;
    pthread_mutex_lock(&d->lock);
    h.isolation.userns = d->userns;
    h.isolation.seccomp = d->seccomp;
    pthread_mutex_unlock(&d->lock);
    *ret = h;
}

int docker_start(struct engine *g, const struct engine_spec *spec, struct engine_handle *ret,
                 struct err *e)
{
    struct engine_docker *d = (struct engine_docker *)g;
    struct starting st = {.d = d,
                          .spec = spec,
                          .image_name = image_name(d, spec->profile),
                          .until_us = clock_boot_us(&clock_system) + spec->timeout_ms * 1000,
                          .arena = arena_new(ARENA_MAX)};
    if (st.arena == NULL)
        return err_set(e, ERR_INTERNAL, "no memory for a start");
    docker_name(ID_STR(&spec->session_id), st.name);
    int rc = start_all(&st, ret, e);
    arena_free(st.arena);
    return rc;
}
