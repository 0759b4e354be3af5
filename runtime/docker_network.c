/*
 * A network of a session's own: internal, so that nothing leads out of it, and without an address of
 * the host in it. The engine's own pools end after some thirty networks, so each gets a small subnet
 * of ours; the engine refuses one that overlaps with another, and then the next is tried.
 */
#include <stdio.h>
#include <string.h>

#include "docker.h"

#define TRIES     32
#define CHANGE_MS 30000
#define BODY_MAX  8192

/* 10.213.0.0/16 in pieces of 16 addresses. */
static void subnet(const struct id *session, unsigned attempt, char ret[static 24])
{
    unsigned at =
        ((unsigned)session->b[attempt % 15] << 8 | session->b[attempt % 15 + 1]) + attempt;
    snprintf(ret, 24, "10.213.%u.%u/28", at >> 4 & 0xff, (at & 0xf) << 4);
}

static void body_write(struct engine_docker *d, const struct engine_spec *spec, const char *name,
                       unsigned attempt, struct buf *out)
{
    char net[24];
    subnet(&spec->session_id, attempt, net);
    buf_printf(out,
               "{\"Name\":\"%s\",\"Driver\":\"bridge\",\"Internal\":true,\"CheckDuplicate\":true,"
               "\"IPAM\":{\"Driver\":\"default\",\"Config\":[{\"Subnet\":\"%s\"}]},"
               "\"Options\":{\"com.docker.network.bridge.inhibit_ipv4\":\"true\"},\"Labels\":{"
               "\"" LABEL_SESSION "\":\"%s\",\"" LABEL_KIND "\":\"network\",",
               name, net, ID_STR(&spec->session_id));
    buf_add_str(out, "\"" LABEL_INSTANCE "\":");
    json_add_string(out, d->cfg->app.instance, strlen(d->cfg->app.instance));
    buf_add_str(out, ",\"" LABEL_RUN_DIR "\":");
    json_add_string(out, d->run_dir, strlen(d->run_dir));
    buf_add_str(out, "}}");
}

/* 1 made, 0 the subnet is taken, -1. */
static int try(struct engine_docker *d, const struct buf *body, struct err *e)
{
    struct docker_answer answer;
    struct docker_call c = {
        .method = "POST", .path = "/networks/create", .body = body, .timeout_ms = CHANGE_MS};
    docker_answer_init(&answer);
    int rc = docker_api_call(d->api, &c, &answer, e);
    if (rc == 0 && answer.status == 201)
        rc = 1;
    else if (rc == 0 && !docker_answer_says(&answer, "overlap"))
        rc = docker_answer_refused(&answer, ERR_SANDBOX_START_FAILED, "make the network", e);
    docker_answer_done(&answer);
    return rc;
}

int docker_network_make(struct engine_docker *d, const struct engine_spec *spec, const char *name,
                        struct err *e)
{
    int rc = 0;
    for (unsigned i = 0; rc == 0 && i < TRIES; i++) {
        struct buf body;
        buf_init(&body, BODY_MAX);
        body_write(d, spec, name, i, &body);
        rc = buf_ok(&body) ? try(d, &body, e) : err_set(e, ERR_INTERNAL, "no memory");
        buf_done(&body);
    }
    if (rc == 0)
        rc = err_set(e, ERR_SANDBOX_START_FAILED, "no subnet below 10.213.0.0/16 is free");
    return rc < 0 ? -1 : 0;
}

int docker_network_remove(struct engine_docker *d, const char *name, struct err *e)
{
    struct docker_answer answer;
    char path[DOCKER_NAME_MAX + 16];
    snprintf(path, sizeof(path), "/networks/%s", name);
    struct docker_call c = {.method = "DELETE", .path = path, .timeout_ms = CHANGE_MS};
    docker_answer_init(&answer);
    int rc = docker_api_call(d->api, &c, &answer, e);
    if (rc == 0 && answer.status != 204 && answer.status != 200 && answer.status != 404)
        rc = docker_answer_refused(&answer, ERR_SANDBOX_STOP_FAILED, "remove the network", e);
    docker_answer_done(&answer);
    return rc;
}
