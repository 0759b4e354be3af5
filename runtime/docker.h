/* Shared by the files of the `docker` engine. */
#ifndef RUNTIME_DOCKER_H
#define RUNTIME_DOCKER_H

#include <pthread.h>
#include <stdatomic.h>

#include "docker_containers.h"
#include "leasehold/engine.h"

struct engine_docker {
    struct engine base;
    const struct config *cfg;
    struct docker_api *api;
    struct docker_pulls *pulls;
    char *bin_dir, *run_dir; /* canonical */
    int64_t uid;             /* of the agents */
    bool uses_networks;      /* some profile wants one of its own for each session */

    pthread_mutex_t lock;
    bool reachable;          /* lock */
    char problem[160];       /* lock; why it is not */
    struct engine_info info; /* lock; as last asked */
    bool userns, seccomp;    /* lock; of the engine's containers */

    /* the thread that reads events (docker_watch.c) */
    struct engine_watch watch;
    struct http_client *events;
    pthread_t thread;
    bool watching;
    atomic_bool stopping;
    pthread_cond_t stop_told; /* lock */
};

/* Is it a sandbox of this gateway? By its labels alone. */
bool docker_is_ours(const struct engine_docker *d, const struct docker_labels *l,
                    struct id *ret_session);
/* Or of what stands beside one? */
bool docker_is_tools(const struct engine_docker *d, const struct docker_labels *l,
                     struct id *ret_session);

/* Asks the engine what it is, and keeps that for engine_info. */
int docker_info_refresh(struct engine_docker *d, struct err *e) MUST_CHECK;

/* Is it known to run docker-proxy beside each published port? (docker_daemon.c) */
bool docker_daemon_has_proxy(const struct config_docker *cfg);

int docker_watch_start(struct engine_docker *d, const struct engine_watch *w,
                       struct err *e) MUST_CHECK;
void docker_watch_stop(struct engine_docker *d);

/* Starting (docker_start.c). */
int docker_image(struct engine *g, const struct config_profile *profile, struct arena *arena,
                 struct engine_image *ret, const char **ret_name, struct err *e) MUST_CHECK;
int docker_start(struct engine *g, const struct engine_spec *spec, struct engine_handle *ret,
                 struct err *e) MUST_CHECK;
void docker_name(const char *session, char ret[static DOCKER_NAME_MAX]);
void docker_handle_fill(struct engine_docker *d, const struct docker_container *c,
                        struct engine_handle *ret);

/* Of one container (docker.c). */
int docker_use_of(const struct engine_handle *h, struct engine_stats *ret,
                  struct err *e) MUST_CHECK;

/*
 * The container of the user's tools (docker_tools.c), named after its session. What goes wrong with it is
 * told by KEEP_TOOLS_FILE alone.
 */
struct docker_body;
void docker_tools_start(struct engine_docker *d, const struct docker_body *like,
                        int64_t timeout_ms);
void docker_tools_look(struct engine_docker *d, const struct engine_spec *spec);
/* What it uses is the session's, too. Nothing is added for one that is not there any more. */
struct engine_stats;
void docker_tools_use_add(const char *run_path, struct engine_stats *sum);
/* No such container, or a session that never had one: success. */
int docker_tools_remove(struct engine_docker *d, const char *run_path, struct err *e) MUST_CHECK;

/* What it wrote to its stderr (docker_log.c). */
int docker_log_open(struct engine_docker *d, const char *id, const struct engine_log_from *from,
                    struct engine_log **ret, struct err *e) MUST_CHECK;
void docker_log_tail(struct engine_docker *d, const char *id, char *ret, size_t size);

/* The session's own network, named as its container (docker_network.c). */
int docker_network_make(struct engine_docker *d, const struct engine_spec *spec, const char *name,
                        struct err *e) MUST_CHECK;
int docker_network_remove(struct engine_docker *d, const char *name, struct err *e) MUST_CHECK;

/* Gets images that are not there (docker_pull.c). */
struct docker_pulls *docker_pulls_new(struct docker_api *api,
                                      const struct config_docker *cfg); /* NULL without memory */
void docker_pulls_free(struct docker_pulls *ps);                        /* nobody waits any more */
int docker_pull(struct engine *g, const char *image, const struct engine_pull_wait *w,
                struct err *e) MUST_CHECK;

#endif
