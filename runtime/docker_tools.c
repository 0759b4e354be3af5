/*
 * A second container of the session, in which the user's tools run that the agent may run and not read
 * (leasehold/tool_link.h). Of the same image, with no network.
 *
 * The engine cannot map the ids of a mount. So the chat is mounted so below the run directory for the
 * moment in which the container starts: the container keeps a mount of its own.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "docker.h"
#include "docker_body.h"
#include "leasehold/tool_link.h"
#include "run_words.h"
#include "rundir.h"
#include "use_stats.h"

#define BODY_MAX  (1024u * 1024)
#define ARENA_MAX (1024u * 1024)
#define PID_FILE  "tools.pid"
#define BOX_OF    "tools" /* rundir.c */

static void name_of(const char *run_path, char ret[static DOCKER_NAME_MAX])
{
    const char *slash = strrchr(run_path, '/');
    char sandbox[DOCKER_NAME_MAX];
    docker_name(slash != NULL ? slash + 1 : run_path, sandbox);
    snprintf(ret, DOCKER_NAME_MAX, "%.72s-tools", sandbox);
}

static int path_in(const char *run_path, const char *name, char ret[static PATH_MAX], struct err *e)
{
    return (size_t)snprintf(ret, PATH_MAX, "%s/%s", run_path, name) < PATH_MAX
               ? 0
               : err_set(e, ERR_SANDBOX_START_FAILED, "run_dir is too long a path");
}

/* The agent's start does not fail with them. */
static void missing(const char *run_path, const char *why)
{
    char path[PATH_MAX];
    struct err e;
    if (path_in(run_path, KEEP_TOOLS_FILE, path, &e) < 0)
        return;
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return;
    (void)!write(fd, why, strlen(why));
    close(fd);
}

/* --- the chat -------------------------------------------------------------------------------- */

static const char *chat_of(const struct engine_tools *t)
{
    for (size_t i = 0; i < t->binds_n; i++)
        if (t->binds[i].writable)
            return t->binds[i].source;
    return "";
}

static int chat_mount(const struct docker_body *b, const char *target, struct err *e)
{
    const struct engine_spec *s = b->spec;
    char program[PATH_MAX], ids[4][24], said[160] = "";
    const int64_t numbers[] = {s->uid, s->gid, s->tools->uid, s->tools->gid};
    for (size_t i = 0; i < 4; i++)
        snprintf(ids[i], sizeof(ids[i]), "%lld", (long long)numbers[i]);
    const char *const argv[] = {"leasekeep", "--map",           ids[0], ids[1], ids[2],
                                ids[3],      chat_of(s->tools), target, NULL};
    if ((size_t)snprintf(program, sizeof(program), "%s/leasekeep", b->bin_dir) >= sizeof(program))
        return err_set(e, ERR_SANDBOX_START_FAILED, "too long a path to the programs");
    if (mkdir(target, 0700) < 0 && errno != EEXIST)
        return err_sys(e, ERR_SANDBOX_START_FAILED, errno, "make the place of the chat for tools");
    int status = run_words(argv, program, false, said, sizeof(said), e);
    if (status > 0)
        err_set(e, ERR_SANDBOX_START_FAILED, "%s", said);
    return status == 0 ? 0 : -1;
}

/* --- the container --------------------------------------------------------------------------- */

static int create_and_start(struct engine_docker *d, const struct docker_body *b, const char *name,
                            int64_t timeout_ms, struct err *e)
{
    char id[DOCKER_NAME_MAX];
    struct buf body;
    buf_init(&body, BODY_MAX);
    int rc = docker_body_write(b, &body, e);
    if (rc == 0)
        rc = docker_container_create(d->api, name, &body, timeout_ms, id, e);
    if (rc == 0)
        rc = docker_container_start(d->api, id, timeout_ms, e);
    buf_done(&body);
    return rc;
}

static bool maps_users(struct engine_docker *d)
{
    pthread_mutex_lock(&d->lock);
    bool maps = d->userns;
    pthread_mutex_unlock(&d->lock);
    return maps;
}

static int start(struct engine_docker *d, const struct docker_body *like, int64_t timeout_ms,
                 struct err *e)
{
    struct docker_body b = *like;
    char name[DOCKER_NAME_MAX], chat[PATH_MAX];
    if (maps_users(d))
        return err_set(e, ERR_SANDBOX_START_FAILED,
                       "the engine maps the ids of containers to others");
    name_of(b.spec->run_path, name);
    if (path_in(b.spec->run_path, RUNDIR_TOOLS_CHAT, chat, e) < 0)
        return -1;
    b.tools_chat = chat;
    b.network = config_network_names[NETWORK_NONE];
    int rc = chat_mount(&b, chat, e);
    if (rc == 0)
        rc = create_and_start(d, &b, name, timeout_ms, e);
    rundir_tools_chat_unmount(chat);
    return rc;
}

void docker_tools_start(struct engine_docker *d, const struct docker_body *like, int64_t timeout_ms)
{
    const char *run_path = like->spec->run_path;
    struct err e, ignored;
    if (start(d, like, timeout_ms, &e) == 0)
        return;
    (void)!docker_tools_remove(d, run_path, &ignored);
    missing(run_path, e.msg);
}

/* So that what it uses can be read without the engine, which may not answer. */
static void pid_write(const char *run_path, const struct engine_handle *h)
{
    char path[PATH_MAX], text[64];
    struct err e;
    int n = snprintf(text, sizeof(text), "%" PRId64 " %" PRId64 "\n", h->pid, h->pid_start);
    if (h->pid <= 0 || path_in(run_path, PID_FILE, path, &e) < 0)
        return;
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return;
    (void)!write(fd, text, (size_t)n);
    close(fd);
}

static bool pid_read(const char *run_path, struct engine_handle *ret)
{
    char path[PATH_MAX];
    struct err e;
    *ret = (struct engine_handle){.pid = 0};
    FILE *f = path_in(run_path, PID_FILE, path, &e) < 0 ? NULL : fopen(path, "re");
    bool found = f != NULL && fscanf(f, "%" SCNd64 " %" SCNd64, &ret->pid, &ret->pid_start) == 2;
    if (f != NULL)
        fclose(f);
    return found;
}

void docker_tools_look(struct engine_docker *d, const struct engine_spec *spec)
{
    struct arena *arena = arena_new(ARENA_MAX);
    struct docker_container c;
    struct engine_handle h;
    char name[DOCKER_NAME_MAX], words[256] = "";
    struct err e;
    name_of(spec->run_path, name);
    bool found = arena != NULL && docker_container_get(d->api, name, arena, &c, &e) == 0;
    if (found && c.running) {
        docker_handle_fill(d, &c, &h);
        pid_write(spec->run_path, &h);
    } else if (found) {
        docker_log_tail(d, c.id, words, sizeof(words));
        missing(spec->run_path, words[0] != '\0' ? words : "their container has ended at once");
    }
    arena_free(arena);
}

void docker_tools_use_add(const char *run_path, struct engine_stats *sum)
{
    struct engine_handle h;
    struct engine_stats use;
    struct err ended;
    if (!pid_read(run_path, &h) || docker_use_of(&h, &use, &ended) < 0)
        return;
    sum->cpu_usage_us += use.cpu_usage_us;
    sum->memory_bytes += use.memory_bytes;
    sum->memory_peak_bytes += use.memory_peak_bytes;
    sum->pids += use.pids;
}

int docker_tools_remove(struct engine_docker *d, const char *run_path, struct err *e)
{
    char name[DOCKER_NAME_MAX], path[PATH_MAX];
    if (path_in(run_path, RUNDIR_TOOLS_CHAT, path, e) < 0)
        return -1;
    rundir_tools_chat_unmount(path); /* of a start that was cut off */
    if (path_in(run_path, BOX_OF, path, e) < 0)
        return -1;
    /* No run directory at all: it does not say that there is none. */
    if (access(path, F_OK) != 0 && access(run_path, F_OK) == 0)
        return 0;
    name_of(run_path, name);
    return docker_container_remove(d->api, name, e);
}
