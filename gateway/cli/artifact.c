/* artifact put, artifact get: the bytes go to the gateway, and come from where its link leads. */
#include "artifact.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "file.h"
#include "leasehold/http_client.h"
#include "output_file.h"
#include "progress.h"
#include "views.h"

#define PATH_CAP      4096
#define ARENA_CAP     (1024UL * 1024)
#define STALL_MS      (300 * 1000L)
#define LINK_ERROR    4096
#define API_ANSWER_MS (60 * 1000L)

static void put_path(const struct options *o, const char *name, struct buf *ret)
{
    buf_init(ret, PATH_CAP);
    buf_printf(ret, "/chats/%s/artifacts?name=", ID_STR(&options_find(o, "CHAT")->id));
    path_add_escaped(ret, name);
}

int artifact_put_run(const struct cli *cli, const struct command *cmd, const struct options *o)
{
    const struct upload_target to = {.method = cmd->method, .path = put_path};
    return upload_run(cli, cmd, o, &to);
}

/* --- get ------------------------------------------------------------------------------------- */

struct fetching {
    const struct cli *cli;
    struct api *api;
    struct arena *arena;
    struct artifact_view artifact;
    struct artifact_link_view link;
    const char *output; /* "-": standard output */
    bool named;         /* by the user, not by whoever made the artifact */
    char part[4096];    /* its name until it is complete; "" */
    int fd;
    EVP_MD_CTX *md;
    struct progress progress;
    bool refused; /* by the store that the link leads to */
    struct err fault;
    bool faulty;
};

/* Asks the gateway; the answer's members go to *obj. Returns an exit code. */
static int ask(struct fetching *f, const char *path, const struct view *view, void *obj)
{
    struct api_answer answer;
    struct err e;
    int code = EXIT_OK;
    api_answer_init(&answer);
    int rc = api_call(f->api, "GET", path, NULL, API_ANSWER_MS, &answer, &e);
    bool refused = rc == 0 && !api_answer_ok(&answer);
    if (rc == 0 && !refused) {
        rc = api_answer_read(&answer, view->fields, obj, f->arena, &e);
    }
    if (rc != 0 || refused) {
        code = refused ? api_refused(&answer) : report_err(&e);
    }
    api_answer_done(&answer);
    return code;
}

static enum http_client_body on_head(void *ctx, long status)
{
    struct fetching *f = ctx;
    f->refused = status != 200;
    return f->refused ? HTTP_CLIENT_COLLECT : HTTP_CLIENT_STREAM;
}

static bool on_data(void *ctx, const char *data, size_t len)
{
    struct fetching *f = ctx;
    if (EVP_DigestUpdate(f->md, data, len) != 1) {
        f->faulty = err_set(&f->fault, ERR_INTERNAL, "SHA-256 does not work") != 0;
    }
    while (len > 0 && !f->faulty) {
        ssize_t n = write(f->fd, data, len);
        if (n < 0 && errno != EINTR) {
            f->faulty = err_sys(&f->fault, ERR_INTERNAL, errno, "write the output") != 0;
        }
        if (n > 0) {
            data += n;
            len -= (size_t)n;
            progress_add(&f->progress, n);
        }
    }
    return !f->faulty;
}

/* The link is the whole permission: our key goes nowhere but to the gateway. */
static int follow(struct fetching *f, struct err *e)
{
    const struct http_client_sink sink = {.ctx = f, .head = on_head, .data = on_data};
    const struct http_client_request req = {.method = "GET",
                                            .url = f->link.url,
                                            .sink = &sink,
                                            .ca_file = f->cli->access.ca_file,
                                            .timeout_ms = HTTP_CLIENT_NO_DEADLINE,
                                            .stall_timeout_ms = STALL_MS};
    struct http_client_response res = {0};
    struct http_client *client = http_client_new();
    if (client == NULL) {
        return err_set(e, ERR_INTERNAL, "no memory");
    }
    buf_init(&res.body, LINK_ERROR);
    int rc = http_client_run(client, &req, &res, e);
    if (f->faulty) {
        *e = f->fault;
        rc = -1;
    } else if (rc == 0 && f->refused) {
        rc = err_set(e, ERR_INTERNAL, "the store of objects answers %ld", res.status);
    }
    buf_done(&res.body);
    http_client_free(client);
    return rc;
}

static int open_output(struct fetching *f, struct err *e)
{
    f->md = sum_new();
    if (f->md == NULL) {
        return err_set(e, ERR_INTERNAL, "no memory");
    }
    if (strcmp(f->output, "-") == 0) {
        f->fd = STDOUT_FILENO;
        return 0;
    }
    if ((size_t)snprintf(f->part, sizeof(f->part), "%s.part", f->output) >= sizeof(f->part)) {
        return err_set(e, ERR_INVALID_REQUEST, "the name of the output is too long");
    }
    int how = f->named ? O_TRUNC : O_EXCL;
    f->fd = open(f->part, O_WRONLY | O_CREAT | how | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (f->fd < 0) {
        err_sys(e, ERR_INVALID_REQUEST, errno, "open %s", f->part);
        f->part[0] = '\0'; /* not ours to remove */
        return -1;
    }
    return 0;
}

static int complete(struct fetching *f, struct err *e)
{
    char sum[SUM_TEXT];
    int rc = sum_end(f->md, sum, e);
    f->md = NULL;
    if (rc != 0) {
        return -1;
    }
    if (strcmp(sum, f->artifact.sha256) != 0) {
        return err_set(e, ERR_INTERNAL, "what has arrived is not what was stored (SHA-256)");
    }
    if (f->part[0] == '\0') {
        return 0;
    }
    if (fsync(f->fd) != 0) {
        return err_sys(e, ERR_INTERNAL, errno, "write %s", f->output);
    }
    if (output_file_place(f->part, f->output, f->named, e) != 0) {
        return -1;
    }
    f->part[0] = '\0';
    return 0;
}

static int fetch(struct fetching *f, struct err *e)
{
    if (open_output(f, e) != 0) {
        return -1;
    }
    progress_begin(&f->progress, f->artifact.name, 0, f->artifact.size_bytes, f->cli->json);
    int rc = follow(f, e);
    progress_end(&f->progress);
    return rc == 0 ? complete(f, e) : -1;
}

static int run(struct fetching *f, const struct options *o)
{
    const char *id = ID_STR(&options_find(o, "ID")->id);
    char path[128];
    struct err e;
    snprintf(path, sizeof(path), "/artifacts/%s", id);
    int code = ask(f, path, &view_artifact, &f->artifact);
    if (code == EXIT_OK) {
        snprintf(path, sizeof(path), "/artifacts/%s/download", id);
        code = ask(f, path, &view_artifact_link, &f->link);
    }
    if (code != EXIT_OK) {
        return code;
    }
    if (f->artifact.name == NULL || f->artifact.sha256 == NULL || f->link.url == NULL) {
        err_set(&e, ERR_INTERNAL, "the answer is not one of a leasehold gateway");
        return report_err(&e);
    }
    f->output = options_text(o, "--output", f->artifact.name);
    f->named = f->output != f->artifact.name;
    if (!f->named && (output_file_check_name(f->output, &e) != 0 ||
                      output_file_check_free(f->output, &e) != 0)) {
        return report_err(&e);
    }
    return fetch(f, &e) == 0 ? EXIT_OK : report_err(&e);
}

int artifact_get_run(const struct cli *cli, const struct command *cmd, const struct options *o)
{
    struct fetching f = {.cli = cli, .fd = -1, .arena = arena_new(ARENA_CAP)};
    struct err e;
    int code;
    (void)cmd;
    f.api = api_new(&cli->access);
    if (f.api == NULL || f.arena == NULL) {
        err_set(&e, ERR_INTERNAL, "no memory");
        code = report_err(&e);
    } else {
        code = run(&f, o);
    }
    EVP_MD_CTX_free(f.md);
    if (f.fd > STDERR_FILENO) {
        close(f.fd);
    }
    if (f.part[0] != '\0') {
        (void)unlink(f.part);
    }
    api_free(f.api);
    arena_free(f.arena);
    return code;
}
