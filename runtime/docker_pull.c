/* Pulling an image: a stream of JSON lines, of which the last may be an error behind status 200. */
#include <stdio.h>
#include <string.h>

#include "docker.h"

#define LINE_MAX_BYTES (64u * 1024)
#define STALL_MS       60000

struct pull {
    struct buf line;
    char error[112];
};

struct progress {
    char *error;
};

static const struct field progress_fields[] = {DOCKER_STR("error", struct progress, error), {0}};

static void line_take(struct pull *p)
{
    struct arena *arena = arena_new(LINE_MAX_BYTES * 2);
    struct progress line = {.error = NULL};
    struct err ignored;
    if (arena != NULL && p->line.len > 0 && buf_ok(&p->line) &&
        json_decode_foreign(p->line.data, p->line.len, progress_fields, &line, arena, &ignored) ==
            0 &&
        line.error[0] != '\0')
        snprintf(p->error, sizeof(p->error), "%.110s", line.error);
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

/* Without a tag or digest the engine would pull all of them. */
static bool has_tag(const char *image)
{
    const char *slash = strrchr(image, '/');
    return strpbrk(slash != NULL ? slash : image, ":@") != NULL;
}

int docker_pull(struct engine_docker *d, const char *image, int64_t timeout_ms, struct err *e)
{
    struct pull p = {.error = ""};
    struct http_client_sink sink = {.ctx = &p, .head = pull_head, .data = pull_data};
    struct docker_answer answer;
    struct buf path;
    char what[96];
    snprintf(what, sizeof(what), "image %.64s cannot be pulled", image);
    buf_init(&path, 4096);
    buf_init(&p.line, LINE_MAX_BYTES);
    docker_answer_init(&answer);
    buf_add_str(&path, "/images/create?fromImage=");
    docker_url_add(&path, image, false);
    buf_add_str(&path, has_tag(image) ? "" : "&tag=latest");
    struct docker_call c = {.method = "POST",
                            .path = path.data,
                            .sink = &sink,
                            .timeout_ms = timeout_ms,
                            .stall_ms = STALL_MS};
    int rc = docker_api_call(d->api, &c, &answer, e);
    line_take(&p);
    if (rc == 0 && answer.status != 200)
        rc = docker_answer_refused(&answer, ERR_SANDBOX_START_FAILED, what, e);
    else if (rc == 0 && p.error[0] != '\0')
        rc = err_set(e, ERR_SANDBOX_START_FAILED, "%s: %.80s", what, p.error);
    buf_done(&p.line);
    docker_answer_done(&answer);
    buf_done(&path);
    return rc;
}
