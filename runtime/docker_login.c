#include "docker_login.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "leasehold/engine.h"
#include "leasehold/json.h"

#define HUB          "docker.io"
#define HUB_SERVER   "https://index.docker.io/v1/" /* as engines and their clients call it */
#define HEADER       "X-Registry-Auth: "
#define PASSWORD_MAX 8192 /* tokens of cloud registries have a few thousand characters */
#define JSON_MAX     (16u * 1024)

/* With Docker a first component is a host when it could be no name of the hub's, which are of small
 * letters. */
static bool is_host(const char *first, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (first[i] == '.' || first[i] == ':' || (first[i] >= 'A' && first[i] <= 'Z'))
            return true;
    }
    return len == 9 && memcmp(first, "localhost", 9) == 0;
}

void docker_login_host(const char *image, char ret[static LOGIN_HOST_MAX])
{
    size_t len = strcspn(image, "/");
    if (image[len] != '/' || !is_host(image, len))
        snprintf(ret, LOGIN_HOST_MAX, HUB);
    else
        snprintf(ret, LOGIN_HOST_MAX, "%.*s", len < LOGIN_HOST_MAX ? (int)len : 0, image);
    if (strcasecmp(ret, "index." HUB) == 0)
        snprintf(ret, LOGIN_HOST_MAX, HUB);
}

static const struct config_registry *registry_find(const struct config_docker *cfg,
                                                   const char *host)
{
    const struct config_registry *r = cfg->registries.items;
    for (size_t i = 0; i < cfg->registries.n; i++) {
        if (strcasecmp(r[i].host, host) == 0)
            return &r[i];
    }
    return NULL;
}

/* --- the password ---------------------------------------------------------------------------- */

struct password {
    char text[PASSWORD_MAX + 1];
    size_t len;
};

static int unusable(const struct config_registry *r, const char *why, struct err *e)
{
    return err_set(e, ERR_SANDBOX_START_FAILED, "the password file for registry %.64s %s", r->host,
                   why);
}

static int read_all(int fd, const struct config_registry *r, struct password *ret, struct err *e)
{
    ssize_t n;
    ret->len = 0;
    while ((n = read(fd, ret->text + ret->len, sizeof(ret->text) - ret->len)) > 0)
        ret->len += (size_t)n;
    if (n < 0)
        return err_sys(e, ERR_SANDBOX_START_FAILED, errno, "read the password for registry %.64s",
                       r->host);
    if (ret->len > PASSWORD_MAX)
        return unusable(r, "is longer than 8 KiB", e);
    while (ret->len > 0 && (ret->text[ret->len - 1] == '\n' || ret->text[ret->len - 1] == '\r'))
        ret->len--;
    if (ret->len == 0)
        return unusable(r, "is empty", e);
    bool is_text = memchr(ret->text, '\0', ret->len) == NULL && utf8_valid(ret->text, ret->len);
    return is_text ? 0 : unusable(r, "is no text", e);
}

/* A link may lead to it, as where secrets are mounted; a pipe or a device is none. */
static int password_read(const struct config_registry *r, struct password *ret, struct err *e)
{
    int fd = open(r->password_file, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat st;
    if (fd < 0)
        return err_sys(e, ERR_SANDBOX_START_FAILED, errno,
                       "open the password file for registry %.64s", r->host);
    int rc = fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) ? unusable(r, "is no regular one", e)
                                                        : read_all(fd, r, ret, e);
    close(fd);
    return rc;
}

/* --- the header ------------------------------------------------------------------------------ */

/* With padding, which engines want and tokens of ours do not have. */
static void base64_add(const char *data, size_t len, char *ret)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    for (size_t i = 0; i < len; i += 3) {
        size_t have = len - i < 3 ? len - i : 3;
        unsigned bits = 0;
        for (size_t k = 0; k < 3; k++)
            bits = bits << 8 | (k < have ? (unsigned char)data[i + k] : 0u);
        for (size_t k = 0; k < 4; k++)
            *ret++ = (char)(k <= have ? digits[bits >> (18 - 6 * k) & 63] : '=');
    }
    *ret = '\0';
}

static void member_add(struct buf *b, const char *name, const char *text, size_t len)
{
    buf_add_char(b, b->len == 0 ? '{' : ',');
    json_add_string(b, name, strlen(name));
    buf_add_char(b, ':');
    json_add_string(b, text, len);
}

static int header_fill(const struct config_registry *r, const struct password *p,
                       struct docker_login *ret, struct err *e)
{
    const char *server = strcasecmp(r->host, HUB) == 0 ? HUB_SERVER : r->host;
    struct buf json;
    _Static_assert(sizeof(ret->header) > sizeof(HEADER) + (JSON_MAX + 2) / 3 * 4,
                   "a header's room");
    buf_init(&json, JSON_MAX);
    buf_reserve(&json, JSON_MAX); /* memory that grows leaves copies behind */
    member_add(&json, "username", r->username, strlen(r->username));
    member_add(&json, "password", p->text, p->len);
    member_add(&json, "serveraddress", server, strlen(server));
    buf_add_char(&json, '}');
    int rc = buf_ok(&json) ? 0 : unusable(r, "is too long when it is quoted", e);
    if (rc == 0) {
        memcpy(ret->header, HEADER, sizeof(HEADER));
        base64_add(json.data, json.len, ret->header + sizeof(HEADER) - 1);
    }
    if (json.data != NULL)
        explicit_bzero(json.data, json.size);
    buf_done(&json);
    return rc;
}

int docker_login_make(const struct config_docker *cfg, const char *image, struct docker_login *ret,
                      struct err *e)
{
    char host[LOGIN_HOST_MAX];
    struct password p;
    docker_login_host(image, host);
    const struct config_registry *r = registry_find(cfg, host);
    ret->header[0] = '\0';
    if (r == NULL)
        return 0;
    int rc = password_read(r, &p, e) < 0 || header_fill(r, &p, ret, e) < 0 ? -1 : 0;
    explicit_bzero(&p, sizeof(p));
    return rc;
}

int engine_docker_check(const struct config *cfg, struct err *e)
{
    const struct config_registry *r = cfg->docker.registries.items;
    struct password p;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < cfg->docker.registries.n; i++)
        rc = password_read(&r[i], &p, e);
    explicit_bzero(&p, sizeof(p));
    return rc;
}

/* --- what was answered ----------------------------------------------------------------------- */

bool docker_login_is_refusal(const char *words)
{
    static const char *const said[] = {
        "unauthorized",
        "no basic auth credentials",
        "authentication required",
        "incorrect username or password",
    };
    for (size_t i = 0; i < sizeof(said) / sizeof(said[0]); i++) {
        if (strcasestr(words, said[i]) != NULL)
            return true;
    }
    return false;
}
