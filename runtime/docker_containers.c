#include "docker_containers.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "leasehold/clock.h"

#define LOOK_MS   10000
#define CHANGE_MS 30000
#define GONE_MS   15000 /* for a removal that somebody else has begun */
#define POLL_MS   50
#define ARENA_MAX (64u * 1024 * 1024)
#define PATH_ROOM 4096

static const struct field label_fields[] = {
    DOCKER_STR(LABEL_INSTANCE, struct docker_labels, instance),
    DOCKER_STR(LABEL_RUN_DIR, struct docker_labels, run_dir),
    DOCKER_STR(LABEL_SESSION, struct docker_labels, session),
    DOCKER_STR(LABEL_GENERATION, struct docker_labels, generation),
    DOCKER_STR(LABEL_KIND, struct docker_labels, kind),
    {0},
};

/* Paths are made of ids, of names that we have made and of escaped text; one that does not fit is an
 * error of its call. */
static int call(struct docker_api *a, const char *method, struct buf *path, const struct buf *body,
                int64_t timeout_ms, struct docker_answer *ret, struct err *e)
{
    if (!buf_ok(path))
        return err_set(e, ERR_INTERNAL, "a path for the engine is too long");
    return docker_api_call(
        a,
        &(struct docker_call){
            .method = method, .path = path->data, .body = body, .timeout_ms = timeout_ms},
        ret, e);
}

/* --- one container --------------------------------------------------------------------------- */

struct state {
    char *status, *error;
    bool running, oom, dead;
    int64_t pid, exit_code;
};

struct container_config {
    struct docker_labels labels;
};

struct host_config {
    char *runtime;
};

struct inspected {
    char *id;
    struct state state;
    struct container_config config;
    struct host_config host_config;
};

static const struct field state_fields[] = {
    DOCKER_STR("Status", struct state, status),      DOCKER_STR("Error", struct state, error),
    DOCKER_BOOL("Running", struct state, running),   DOCKER_BOOL("OOMKilled", struct state, oom),
    DOCKER_BOOL("Dead", struct state, dead),         DOCKER_INT("Pid", struct state, pid),
    DOCKER_INT("ExitCode", struct state, exit_code), {0},
};

static const struct field config_fields[] = {
    DOCKER_OBJECT("Labels", struct container_config, labels, label_fields),
    {0},
};

static const struct field host_config_fields[] = {
    DOCKER_STR("Runtime", struct host_config, runtime),
    {0},
};

static const struct field inspected_fields[] = {
    DOCKER_STR("Id", struct inspected, id),
    DOCKER_OBJECT("State", struct inspected, state, state_fields),
    DOCKER_OBJECT("Config", struct inspected, config, config_fields),
    DOCKER_OBJECT("HostConfig", struct inspected, host_config, host_config_fields),
    {0},
};

static int inspected_take(const struct inspected *in, struct docker_container *ret, struct err *e)
{
    const struct state *s = &in->state;
    if (in->id[0] == '\0' || strlen(in->id) >= sizeof(ret->id))
        return err_set(e, ERR_ENGINE_UNAVAILABLE, "the engine tells of a container without an id");
    *ret = (struct docker_container){.running = s->running,
                                     .dying = s->dead || strcmp(s->status, "removing") == 0,
                                     .pid = s->pid,
                                     .exit_code = s->exit_code,
                                     .oom = s->oom,
                                     .labels = in->config.labels};
    snprintf(ret->id, sizeof(ret->id), "%s", in->id);
    snprintf(ret->error, sizeof(ret->error), "%.127s", s->error);
    snprintf(ret->runtime, sizeof(ret->runtime), "%.63s", in->host_config.runtime);
    return 0;
}

int docker_container_get(struct docker_api *a, const char *ref, struct arena *arena,
                         struct docker_container *ret, struct err *e)
{
    struct docker_answer answer;
    struct inspected in = {0};
    struct buf path;
    buf_init(&path, PATH_ROOM);
    buf_printf(&path, "/containers/%s/json", ref);
    docker_answer_init(&answer);
    int rc = call(a, "GET", &path, NULL, LOOK_MS, &answer, e);
    if (rc == 0 && answer.status == 404)
        rc = docker_answer_refused(&answer, ERR_NOT_FOUND, "the container", e);
    else if (rc == 0 && answer.status != 200)
        rc = docker_answer_refused(&answer, ERR_ENGINE_UNAVAILABLE, "look at a container", e);
    if (rc == 0)
        rc = docker_answer_object(&answer, inspected_fields, &in, arena, e);
    if (rc == 0)
        rc = inspected_take(&in, ret, e);
    docker_answer_done(&answer);
    buf_done(&path);
    return rc;
}

struct created {
    char *id;
};

static const struct field created_fields[] = {DOCKER_STR("Id", struct created, id), {0}};

static int created_take(const struct docker_answer *answer, char ret_id[static DOCKER_NAME_MAX],
                        struct err *e)
{
    struct arena *arena = arena_new(ARENA_MAX);
    struct created c = {0};
    if (arena == NULL)
        return err_set(e, ERR_INTERNAL, "no memory for the engine's answer");
    int rc = docker_answer_object(answer, created_fields, &c, arena, e);
    if (rc == 0 && (c.id[0] == '\0' || strlen(c.id) >= DOCKER_NAME_MAX))
        rc = err_set(e, ERR_ENGINE_UNAVAILABLE, "the engine gave no container id");
    if (rc == 0)
        snprintf(ret_id, DOCKER_NAME_MAX, "%s", c.id);
    arena_free(arena);
    return rc;
}

/* Podman tells of a name in use, and of an image that is not there, with status 500. */
static enum err_code refusal_code(const struct docker_answer *a)
{
    if (a->status == 409 || docker_answer_says(a, "name is already in use"))
        return ERR_CONFLICT;
    if (docker_answer_says(a, "no such image"))
        return ERR_NOT_FOUND;
    return ERR_SANDBOX_START_FAILED;
}

int docker_container_create(struct docker_api *a, const char *name, const struct buf *body,
                            int64_t timeout_ms, char ret_id[static DOCKER_NAME_MAX], struct err *e)
{
    struct docker_answer answer;
    struct buf path;
    buf_init(&path, PATH_ROOM);
    buf_printf(&path, "/containers/create?name=%s", name);
    docker_answer_init(&answer);
    int rc = call(a, "POST", &path, body, timeout_ms, &answer, e);
    if (rc == 0 && answer.status != 201)
        rc = docker_answer_refused(&answer, refusal_code(&answer), "create the container", e);
    if (rc == 0)
        rc = created_take(&answer, ret_id, e);
    docker_answer_done(&answer);
    buf_done(&path);
    return rc;
}

int docker_container_start(struct docker_api *a, const char *id, int64_t timeout_ms, struct err *e)
{
    struct docker_answer answer;
    struct buf path;
    buf_init(&path, PATH_ROOM);
    buf_printf(&path, "/containers/%s/start", id);
    docker_answer_init(&answer);
    int rc = call(a, "POST", &path, NULL, timeout_ms, &answer, e);
    if (rc == 0 && answer.status != 204 && answer.status != 304)
        rc = docker_answer_refused(&answer, ERR_SANDBOX_START_FAILED, "start the container", e);
    docker_answer_done(&answer);
    buf_done(&path);
    return rc;
}

int docker_container_stop(struct docker_api *a, const char *id, int64_t grace_ms, struct err *e)
{
    struct docker_answer answer;
    struct buf path;
    buf_init(&path, PATH_ROOM);
    buf_printf(&path, "/containers/%s/stop?t=%lld", id, (long long)(grace_ms + 999) / 1000);
    docker_answer_init(&answer);
    int rc = call(a, "POST", &path, NULL, grace_ms + CHANGE_MS, &answer, e);
    if (rc == 0 && answer.status != 204 && answer.status != 304 && answer.status != 404)
        rc = docker_answer_refused(&answer, ERR_SANDBOX_STOP_FAILED, "stop the container", e);
    docker_answer_done(&answer);
    buf_done(&path);
    return rc;
}

/* What the engine said to a removal does not tell whether it is done; looking does. */
static int wait_gone(struct docker_api *a, const char *ref, const struct err *why, struct err *e)
{
    int64_t until_us = clock_boot_us(&clock_system) + GONE_MS * 1000;
    struct docker_container c;
    struct err look;
    for (;;) {
        struct arena *arena = arena_new(ARENA_MAX);
        int rc = arena == NULL ? err_set(&look, ERR_INTERNAL, "no memory")
                               : docker_container_get(a, ref, arena, &c, &look);
        arena_free(arena);
        if (rc != 0 && look.code == ERR_NOT_FOUND)
            return 0;
        if (rc != 0 || !c.dying || clock_boot_us(&clock_system) >= until_us)
            break;
        poll(NULL, 0, POLL_MS);
    }
    return err_set(e, ERR_SANDBOX_STOP_FAILED, "%s", why->msg);
}

int docker_container_remove(struct docker_api *a, const char *ref, struct err *e)
{
    struct docker_answer answer;
    struct buf path;
    struct err why;
    buf_init(&path, PATH_ROOM);
    buf_printf(&path, "/containers/%s?force=1&v=1", ref);
    docker_answer_init(&answer);
    int rc = call(a, "DELETE", &path, NULL, CHANGE_MS, &answer, &why);
    if (rc == 0 && answer.status != 204 && answer.status != 404) {
        docker_answer_refused(&answer, ERR_SANDBOX_STOP_FAILED, "remove the container", &why);
        rc = wait_gone(a, ref, &why, e);
    } else if (rc != 0) {
        rc = wait_gone(a, ref, &why, e);
    }
    docker_answer_done(&answer);
    buf_done(&path);
    return rc;
}

/* --- all of ours ----------------------------------------------------------------------------- */

struct listing {
    struct list items;
};

static const struct field listed_fields[] = {
    DOCKER_STR("Id", struct docker_listed, id),
    DOCKER_STR("State", struct docker_listed, state),
    DOCKER_INT("Created", struct docker_listed, created),
    DOCKER_OBJECT("Labels", struct docker_listed, labels, label_fields),
    {0},
};

static const struct field listing_fields[] = {
    {.name = "items",
     .kind = FIELD_KIND_LIST,
     .flags = FIELD_REQUIRED,
     .offset = offsetof(struct listing, items),
     .fields = listed_fields,
     .elem = sizeof(struct docker_listed),
     .max = 100000},
    {0},
};

static int list(struct docker_api *a, const char *instance, struct arena *arena,
                struct listing *ret, struct err *e)
{
    struct docker_answer answer;
    struct buf path, filter;
    buf_init(&path, PATH_ROOM);
    buf_init(&filter, PATH_ROOM);
    docker_answer_init(&answer);
    char label[256];
    snprintf(label, sizeof(label), LABEL_INSTANCE "=%s", instance);
    buf_add_str(&filter, "{\"label\":[");
    json_add_string(&filter, label, strlen(label));
    buf_add_str(&filter, "]}");
    buf_add_str(&path, "/containers/json?all=1&filters=");
    docker_url_add(&path, buf_ok(&filter) ? filter.data : "", false);
    int rc = call(a, "GET", &path, NULL, CHANGE_MS, &answer, e);
    if (rc == 0 && answer.status != 200)
        rc = docker_answer_refused(&answer, ERR_SANDBOX_LIST_FAILED, "list the containers", e);
    if (rc == 0)
        rc = docker_answer_items(&answer, listing_fields, ret, arena, e);
    docker_answer_done(&answer);
    buf_done(&filter);
    buf_done(&path);
    return rc;
}

int docker_container_each(struct docker_api *a, const char *instance,
                          int (*each)(void *ctx, const struct docker_listed *c, struct err *e),
                          void *ctx, struct err *e)
{
    struct arena *arena = arena_new(ARENA_MAX);
    struct listing all = {0};
    if (arena == NULL)
        return err_set(e, ERR_INTERNAL, "no memory for the engine's list");
    int rc = list(a, instance, arena, &all, e);
    struct docker_listed *items = all.items.items;
    for (size_t i = 0; rc == 0 && i < all.items.n; i++) {
        /* The filter is the engine's word; some take it for a prefix, some ignore it. */
        if (items[i].id[0] != '\0' && strcmp(items[i].labels.instance, instance) == 0)
            rc = each(ctx, &items[i], e);
    }
    arena_free(arena);
    return rc;
}

/* --- images ---------------------------------------------------------------------------------- */

struct image_inspected {
    struct engine_image config;
};

static const struct field image_config_fields[] = {
    DOCKER_STRLIST("Entrypoint", struct engine_image, entrypoint),
    DOCKER_STRLIST("Cmd", struct engine_image, cmd),
    DOCKER_STR("WorkingDir", struct engine_image, working_dir),
    {0},
};

static const struct field image_fields[] = {
    DOCKER_OBJECT("Config", struct image_inspected, config, image_config_fields),
    {0},
};

int docker_image_get(struct docker_api *a, const char *image, struct arena *arena,
                     struct engine_image *ret, struct err *e)
{
    struct image_inspected in = {0};
    struct docker_answer answer;
    struct buf path;
    buf_init(&path, PATH_ROOM);
    buf_add_str(&path, "/images/");
    docker_url_add(&path, image, true);
    buf_add_str(&path, "/json");
    docker_answer_init(&answer);
    int rc = call(a, "GET", &path, NULL, LOOK_MS, &answer, e);
    if (rc == 0 && (answer.status == 404 || docker_answer_says(&answer, "no such image")))
        rc = docker_answer_refused(&answer, ERR_NOT_FOUND, "the image", e);
    else if (rc == 0 && answer.status != 200)
        rc = docker_answer_refused(&answer, ERR_ENGINE_UNAVAILABLE, "look at the image", e);
    if (rc == 0)
        rc = docker_answer_object(&answer, image_fields, &in, arena, e);
    docker_answer_done(&answer);
    buf_done(&path);
    if (rc == 0)
        *ret = in.config;
    return rc;
}
