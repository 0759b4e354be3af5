#include "backup.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "app.h"
#include "leasehold/backup.h"
#include "leasehold/http_client.h"
#include "leasehold/process.h"

#define STALL_MS   120000 /* the copy is made before its first byte comes */
#define ERROR_CAP  65536
#define HEADER_MAX (API_KEY_TEXT + 32)

static int path_of(const char *dir, const char *name, char *ret, size_t size, struct err *e)
{
    if ((size_t)snprintf(ret, size, "%s/%s", dir, name) >= size)
        return err_set(e, ERR_INTERNAL, "a path is too long: %s/%s", dir, name);
    return 0;
}

/* --- the key of this life ---------------------------------------------------------------------- */

static int write_key(const char *path, const char *text, struct err *e)
{
    size_t len = strlen(text);
    int fd;

    if (unlink(path) && errno != ENOENT)
        return err_sys(e, ERR_INTERNAL, errno, "remove %s", path);
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_sys(e, ERR_INTERNAL, errno, "make %s", path);
    ssize_t n = write(fd, text, len);
    close(fd);
    return n == (ssize_t)len ? 0 : err_sys(e, ERR_INTERNAL, errno, "write %s", path);
}

int local_key_make(struct services *s, struct err *e)
{
    struct api_key key = {.name = "local", .role = ROLE_ADMIN};
    char text[API_KEY_TEXT], path[4096];
    int rc;

    if (path_of(s->cfg->run_dir, LOCAL_KEY_FILE, path, sizeof path, e) ||
        auth_key_generate(&key, text, e))
        return -1;
    rc = auth_put(s->auth, &key, e) || write_key(path, text, e) ? -1 : 0;
    OPENSSL_cleanse(text, sizeof text);
    return rc;
}

void local_key_remove(const struct services *s)
{
    char path[4096];
    struct err e;

    if (!path_of(s->cfg->run_dir, LOCAL_KEY_FILE, path, sizeof path, &e))
        (void)unlink(path);
}

/* --- from a running gateway -------------------------------------------------------------------- */

struct download {
    int fd;
    struct err e; /* of a write */
    bool failed;
};

static enum http_client_body on_head(void *ctx, long status)
{
    (void)ctx;
    return status == 200 ? HTTP_CLIENT_STREAM : HTTP_CLIENT_COLLECT;
}

static bool on_data(void *ctx, const char *data, size_t len)
{
    struct download *d = ctx;

    while (len) {
        ssize_t n = write(d->fd, data, len);

        if (n < 0 && errno != EINTR) {
            err_sys(&d->e, ERR_STORAGE_FULL, errno, "write the backup");
            d->failed = true;
            return false;
        }
        data += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
    }
    return true;
}

static int read_header(const struct config *cfg, char ret[static HEADER_MAX], struct err *e)
{
    char path[4096], text[API_KEY_TEXT] = {0};
    ssize_t n;
    int fd;

    if (path_of(cfg->run_dir, LOCAL_KEY_FILE, path, sizeof path, e))
        return -1;
    fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return err_sys(e, ERR_INTERNAL, errno,
                       "the gateway that runs has left no %s: is it starting?", path);
    n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n > 0)
        snprintf(ret, HEADER_MAX, "Authorization: Bearer %s", text);
    OPENSSL_cleanse(text, sizeof text);
    return n > 0 ? 0 : err_set(e, ERR_INTERNAL, "%s is empty", path);
}

static int fetch(const struct config *cfg, const char *header, struct download *d, struct err *e)
{
    const char *const headers[] = {header, NULL};
    const struct http_client_sink sink = {.ctx = d, .head = on_head, .data = on_data};
    struct http_client_response response = {0};
    struct http_client *client;
    char socket[4096];
    int rc;

    if (path_of(cfg->run_dir, "control.sock", socket, sizeof socket, e))
        return -1;
    client = http_client_new();
    if (!client)
        return err_set(e, ERR_INTERNAL, "no memory for a request");
    buf_init(&response.body, ERROR_CAP);
    rc = http_client_run(client,
                         &(struct http_client_request){.method = "GET",
                                                       .url = "http://localhost/api/v1/backup",
                                                       .headers = headers,
                                                       .sink = &sink,
                                                       .unix_socket = socket,
                                                       .timeout_ms = HTTP_CLIENT_NO_DEADLINE,
                                                       .stall_timeout_ms = STALL_MS},
                         &response, e);
    if (d->failed) {
        *e = d->e;
        rc = -1;
    } else if (!rc && response.status != 200) {
        rc = err_set(e, ERR_INTERNAL, "the gateway refused (%ld): %.100s", response.status,
                     response.body.len ? response.body.data : "");
    }
    buf_done(&response.body);
    http_client_free(client);
    return rc;
}

static int download(const struct config *cfg, const char *part, struct err *e)
{
    struct download d = {.fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600)};
    char header[HEADER_MAX];
    int rc;

    if (d.fd < 0)
        return err_sys(e, ERR_INTERNAL, errno, "make %s", part);
    rc = read_header(cfg, header, e) || fetch(cfg, header, &d, e) ? -1 : 0;
    OPENSSL_cleanse(header, sizeof header);
    if (!rc && fsync(d.fd))
        rc = err_sys(e, ERR_STORAGE_FULL, errno, "make the backup durable");
    close(d.fd);
    return rc;
}

/* --- without one ------------------------------------------------------------------------------- */

struct local {
    const struct config *cfg;
    const char *part;
    struct backup *backup;
};

static int add_history(void *ctx, const struct id *user_id, const struct id *chat_id, struct err *e)
{
    const struct local *l = ctx;
    const struct config_sandbox *cfg = &l->cfg->sandbox;
    const struct history_place p = {.root = cfg->chats_root,
                                    .user_id = *user_id,
                                    .chat_id = *chat_id,
                                    .uid = cfg->uid,
                                    .gid = cfg->gid};
    bool added;

    if (backup_add_history(l->backup, &p, &added, e))
        return -1;
    if (!added)
        fprintf(stderr, "leasehold: chat %s has no whole history: left out\n", ID_STR(chat_id));
    return 0;
}

static int copy_store(struct store *store, void *arg, struct err *e)
{
    struct local *l = arg;
    int rc;

    if (backup_begin(store, l->part, &l->backup, e))
        return -1;
    rc = backup_each_chat(l->backup, add_history, l, e) || backup_end(l->backup, e) ? -1 : 0;
    backup_free(l->backup);
    return rc;
}

/* --- the command ------------------------------------------------------------------------------- */

static int sync_dir_of(const char *file, struct err *e)
{
    const char *slash = strrchr(file, '/');
    char dir[4096];
    int fd, rc;

    snprintf(dir, sizeof dir, "%.*s", slash ? (int)(slash - file + 1) : 1, slash ? file : ".");
    fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    rc = fd < 0 || fsync(fd) ? err_sys(e, ERR_INTERNAL, errno, "make %s durable", file) : 0;
    if (fd >= 0)
        close(fd);
    return rc;
}

static int make_copy(const struct config *cfg, const char *part, struct err *e)
{
    struct local l = {.cfg = cfg, .part = part};
    char db[4096];

    if (path_of(cfg->storage.data_dir, STORE_FILE, db, sizeof db, e))
        return -1;
    if (access(db, F_OK))
        return err_sys(e, ERR_NOT_FOUND, errno, "no metadata at %s", db);
    return store_is_held(db) ? download(cfg, part, e) : app_with_store(db, copy_store, &l, e);
}

static int backup_to(const struct config *cfg, const char *file, struct err *e)
{
    char part[4096];

    if ((size_t)snprintf(part, sizeof part, "%s.part", file) >= sizeof part)
        return err_set(e, ERR_INTERNAL, "the path is too long");
    if (unlink(part) && errno != ENOENT)
        return err_sys(e, ERR_INTERNAL, errno, "remove %s", part);
    if (make_copy(cfg, part, e)) {
        (void)unlink(part);
        return -1;
    }
    if (rename(part, file)) {
        err_sys(e, ERR_INTERNAL, errno, "make %s", file);
        (void)unlink(part);
        return -1;
    }
    return sync_dir_of(file, e);
}

int backup_run(const char *config_file, const char *file, struct err *e)
{
    struct config cfg;
    int rc;

    if (config_load(config_file, environ, &cfg, e))
        return -1;
    rc = backup_to(&cfg, file, e);
    config_done(&cfg);
    return rc;
}
