/* file put, file rm. */
#include "file.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "command_opts.h"
#include "leasehold/http_client.h"
#include "progress.h"
#include "views.h"

#define PATH_CAP  4096
#define ARENA_CAP (1024UL * 1024)

void path_add_escaped(struct buf *path, const char *text)
{
    for (const unsigned char *p = (const unsigned char *)text; *p != '\0'; p++) {
        if (isalnum(*p) || strchr("-_.~", *p) != NULL) {
            buf_add_char(path, (char)*p);
        } else {
            buf_printf(path, "%%%02X", *p);
        }
    }
}

void file_path(const struct options *o, const char *name, struct buf *ret)
{
    buf_init(ret, PATH_CAP);
    buf_printf(ret, "/chats/%s/files/", ID_STR(&options_find(o, "CHAT")->id));
    path_add_escaped(ret, name);
}

EVP_MD_CTX *sum_new(void)
{
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    if (md != NULL && EVP_DigestInit_ex(md, EVP_sha256(), NULL) == 1) {
        return md;
    }
    EVP_MD_CTX_free(md);
    return NULL;
}

int sum_end(EVP_MD_CTX *md, char ret[static SUM_TEXT], struct err *e)
{
    unsigned char sum[32];
    int ok = EVP_DigestFinal_ex(md, sum, NULL);
    EVP_MD_CTX_free(md);
    if (ok != 1) {
        return err_set(e, ERR_INTERNAL, "SHA-256 does not work");
    }
    for (size_t i = 0; i < sizeof(sum); i++) {
        snprintf(ret + 2 * i, 3, "%02x", sum[i]);
    }
    return 0;
}

/* --- put ------------------------------------------------------------------------------------- */

struct upload {
    int fd;
    int64_t size;
    EVP_MD_CTX *md;
    struct progress progress;
    int sys; /* of a read that failed */
};

static ssize_t upload_read(void *ctx, char *ret, size_t size)
{
    struct upload *u = ctx;
    ssize_t n = read(u->fd, ret, size);
    if (n < 0) {
        u->sys = errno;
        return -1;
    }
    if (EVP_DigestUpdate(u->md, ret, (size_t)n) != 1) {
        return -1;
    }
    progress_add(&u->progress, n);
    return n;
}

static int upload_rewind(void *ctx)
{
    struct upload *u = ctx;
    u->progress.done = 0;
    return lseek(u->fd, 0, SEEK_SET) == 0 && EVP_DigestInit_ex(u->md, EVP_sha256(), NULL) == 1 ? 0
                                                                                               : -1;
}

static int upload_open(struct upload *u, const char *path, struct err *e)
{
    struct stat st;
    u->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (u->fd < 0 || fstat(u->fd, &st) != 0) {
        return err_sys(e, ERR_INVALID_REQUEST, errno, "open %s", path);
    }
    if (!S_ISREG(st.st_mode)) {
        return err_set(e, ERR_INVALID_REQUEST, "%s is no regular file", path);
    }
    u->size = st.st_size;
    u->md = sum_new();
    return u->md != NULL ? 0 : err_set(e, ERR_INTERNAL, "no memory");
}

/* Of a file and of an artifact alike. */
static const struct field sum_fields[] = {
    FIELD_STR(struct file_view, sha256, .flags = FIELD_REQUIRED), {0}};

/* Did all of it arrive as it was read? */
static int upload_check(struct upload *u, const struct api_answer *a, struct err *e)
{
    struct arena *arena = arena_new(ARENA_CAP);
    struct file_view v = {0};
    char sum[SUM_TEXT];
    int rc = sum_end(u->md, sum, e);
    u->md = NULL;
    if (arena == NULL) {
        rc = err_set(e, ERR_INTERNAL, "no memory");
    }
    if (rc == 0) {
        rc = api_answer_read(a, sum_fields, &v, arena, e);
    }
    if (rc == 0 && strcmp(v.sha256, sum) != 0) {
        rc = err_set(e, ERR_INTERNAL, "what has arrived is not what was sent (SHA-256)");
    }
    arena_free(arena);
    return rc;
}

static int upload_send(struct api *api, struct upload *u, const struct upload_target *to,
                       const struct options *o, const char *name, struct api_answer *ret,
                       struct err *e)
{
    const struct http_client_source source = {u, upload_read, upload_rewind, u->size};
    const char *type = options_text(o, "--type", NULL);
    const char *headers[3] = {0};
    struct buf path, line;
    size_t n = 0;
    to->path(o, name, &path);
    buf_init(&line, 1024);
    if (type != NULL) {
        buf_printf(&line, "Content-Type: %s", type);
        headers[n++] = line.data;
    }
    if (options_has(o, "--keep")) {
        headers[n++] = "If-None-Match: *";
    }
    const struct api_transfer t = {to->method, path.data, headers, &source, NULL};
    int rc = buf_ok(&path) && buf_ok(&line)
                 ? api_transfer(api, &t, ret, e)
                 : err_set(e, ERR_INVALID_REQUEST, "the name is too long");
    buf_done(&path);
    buf_done(&line);
    progress_end(&u->progress);
    if (rc != 0 && u->sys != 0) {
        rc = err_sys(e, ERR_INTERNAL, u->sys, "reading the file");
    }
    return rc;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

int upload_run(const struct cli *cli, const struct command *cmd, const struct options *o,
               const struct upload_target *to)
{
    const char *path = options_text(o, "FILE", "");
    const char *name = options_text(o, "--name", base_name(path));
    struct upload u = {.fd = -1};
    struct api_answer answer;
    struct err e;
    int code;
    struct api *api = api_new(&cli->access);
    api_answer_init(&answer);
    if (api == NULL) {
        err_set(&e, ERR_INTERNAL, "no memory");
        code = report_err(&e);
    } else if (upload_open(&u, path, &e) != 0) {
        code = report_err(&e);
    } else {
        progress_begin(&u.progress, name, 0, u.size, cli->json);
        if (upload_send(api, &u, to, o, name, &answer, &e) != 0 ||
            (api_answer_ok(&answer) && upload_check(&u, &answer, &e) != 0)) {
            code = report_err(&e);
        } else {
            code = rest_show(cli, cmd, o, &answer);
        }
    }
    EVP_MD_CTX_free(u.md);
    if (u.fd >= 0) {
        close(u.fd);
    }
    api_answer_done(&answer);
    api_free(api);
    return code;
}

int file_put_run(const struct cli *cli, const struct command *cmd, const struct options *o)
{
    const struct upload_target to = {.method = cmd->method, .path = file_path};
    return upload_run(cli, cmd, o, &to);
}

/* --- rm -------------------------------------------------------------------------------------- */

int file_rm_run(const struct cli *cli, const struct command *cmd, const struct options *o)
{
    struct api_answer answer;
    struct buf path;
    struct err e;
    int code;
    struct api *api = api_new(&cli->access);
    api_answer_init(&answer);
    file_path(o, options_text(o, "NAME", ""), &path);
    if (api == NULL || !buf_ok(&path)) {
        err_set(&e, api == NULL ? ERR_INTERNAL : ERR_INVALID_REQUEST,
                api == NULL ? "no memory" : "the name is too long");
        code = report_err(&e);
    } else if (api_call(api, cmd->method, path.data, NULL,
                        cli->timeout_ms > 0 ? cli->timeout_ms : cmd->timeout_ms, &answer,
                        &e) != 0) {
        code = report_err(&e);
    } else {
        code = rest_show(cli, cmd, o, &answer);
    }
    buf_done(&path);
    api_answer_done(&answer);
    api_free(api);
    return code;
}
