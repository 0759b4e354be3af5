/*
 * The body of "create a container": a fixed template with a few places to fill. Whatever could
 * weaken the isolation is not among them. Pure.
 */
#ifndef RUNTIME_DOCKER_BODY_H
#define RUNTIME_DOCKER_BODY_H

#include "docker_containers.h"
#include "leasehold/engine.h"

struct docker_body {
    const struct engine_spec *spec;
    const struct engine_image *image;
    const char *image_name;
    const char *instance, *run_dir; /* whose it is */
    const char *bin_dir;            /* leaseinit and demo-agent stand here */
    const char *network;            /* "none", "bridge", or the session's own */
    int api_minor;                  /* 1.x */
    long cpus_n;                    /* of the machine */
    bool has_env_file;              /* box/env */
    const char *tools_chat; /* not NULL: the container of the user's tools, whose chat this is */
};

/* ERR_SANDBOX_START_FAILED: there is no command to run. */
int docker_body_write(const struct docker_body *b, struct buf *out, struct err *e) MUST_CHECK;

#define DOCKER_ENV_FILE "env" /* in the box; NUL-terminated NAME=VALUE */

#endif
