/*
 * Containers, images and networks of the engine as far as sandboxes need them. Any thread; each
 * call has a deadline.
 */
#ifndef RUNTIME_DOCKER_CONTAINERS_H
#define RUNTIME_DOCKER_CONTAINERS_H

#include "docker_api.h"
#include "leasehold/engine.h"
#include "leasehold/id.h"

#define DOCKER_NAME_MAX 80

/* What labels say of a container of ours; they are set at its creation and never change. */
#define LABEL_INSTANCE   "leasehold.instance"
#define LABEL_RUN_DIR    "leasehold.run_dir"
#define LABEL_SESSION    "leasehold.session"
#define LABEL_CHAT       "leasehold.chat"
#define LABEL_GENERATION "leasehold.generation"
#define LABEL_KIND       "leasehold.kind"
#define LABEL_CREATED_AT "leasehold.created_at"
#define KIND_SANDBOX     "sandbox"
#define KIND_TOOLS       "tools" /* beside a sandbox, of its user's tools */

struct docker_labels {
    char *instance, *run_dir, *session, *generation, *kind;
};

struct docker_container {
    char id[DOCKER_NAME_MAX];
    bool running; /* paused, too */
    bool dying;   /* somebody removes it */
    int64_t pid;  /* of its first process, 0: none */
    int64_t exit_code;
    bool oom;
    char error[128]; /* why it could not start */
    char runtime[64];
    struct docker_labels labels; /* in the arena */
};

/* By id or name. ERR_NOT_FOUND: there is none. */
int docker_container_get(struct docker_api *a, const char *ref, struct arena *arena,
                         struct docker_container *ret, struct err *e) MUST_CHECK;

/* ERR_CONFLICT: the name is taken. ERR_NOT_FOUND: no such image. */
int docker_container_create(struct docker_api *a, const char *name, const struct buf *body,
                            int64_t timeout_ms, char ret_id[static DOCKER_NAME_MAX],
                            struct err *e) MUST_CHECK;

int docker_container_start(struct docker_api *a, const char *id, int64_t timeout_ms,
                           struct err *e) MUST_CHECK;

/* TERM, after the grace KILL. One that is gone or has ended: success. */
int docker_container_stop(struct docker_api *a, const char *id, int64_t grace_ms,
                          struct err *e) MUST_CHECK;

/* Kills it, too; returns when the engine knows it no more. */
int docker_container_remove(struct docker_api *a, const char *ref, struct err *e) MUST_CHECK;

/* Every container with our instance's label. The list is complete or an error. */
struct docker_listed {
    char *id, *state;
    int64_t created; /* seconds since the epoch */
    struct docker_labels labels;
};
int docker_container_each(struct docker_api *a, const char *instance,
                          int (*each)(void *ctx, const struct docker_listed *c, struct err *e),
                          void *ctx, struct err *e) MUST_CHECK;

/* ERR_NOT_FOUND: it is not here. */
int docker_image_get(struct docker_api *a, const char *image, struct arena *arena,
                     struct engine_image *ret, struct err *e) MUST_CHECK;

#endif
