#include "leasehold/config.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config_load.h"
#include "leasehold/json.h"

#define FILE_MAX_BYTES (1u << 20)
#define ARENA_MAX      (16u << 20)
#define HOST_NAME_SIZE 128
#define DEMO_AGENT     "/run/leasehold/demo-agent"

static int read_all(int fd, struct buf *ret)
{
    char part[4096];
    ssize_t n;
    while ((n = read(fd, part, sizeof(part))) != 0) {
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return errno;
        }
        buf_add(ret, part, (size_t)n);
        if (!buf_ok(ret)) {
            return EFBIG;
        }
    }
    return 0;
}

static int read_file(struct config_loader *ld, const char *file, struct buf *ret)
{
    int fd = open(file, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    int sys = fd < 0 ? errno : read_all(fd, ret);
    if (fd >= 0) {
        close(fd);
    }
    if (sys != 0) {
        return err_sys(ld->e, sys == ENOENT ? ERR_NOT_FOUND : ERR_INVALID_REQUEST, sys, "%s",
                       ld->file);
    }
    return 0;
}

/* The end of a long name tells more than its start. */
static void set_file_name(struct config_loader *ld, const char *file)
{
    size_t len = strlen(file);
    if (len < sizeof(ld->file)) {
        memcpy(ld->file, file, len + 1);
        return;
    }
    const char *tail = file + len - (sizeof(ld->file) - sizeof("..."));
    while (((unsigned char)*tail & 0xc0) == 0x80) {
        tail++; /* not in the middle of a character */
    }
    snprintf(ld->file, sizeof(ld->file), "...%s", tail);
}

/* A link to the file may stand elsewhere: paths start where the operator sees the file. */
static int set_dir(struct config_loader *ld, const char *file)
{
    char copy[PATH_MAX], dir[PATH_MAX];
    if ((size_t)snprintf(copy, sizeof(copy), "%s", file) >= sizeof(copy)) {
        return err_sys(ld->e, ERR_INVALID_REQUEST, ENAMETOOLONG, "%s", ld->file);
    }
    if (realpath(dirname(copy), dir) == NULL) {
        return err_sys(ld->e, ERR_INVALID_REQUEST, errno, "directory of %s", ld->file);
    }
    ld->c->dir = arena_strndup(ld->c->arena, dir, strlen(dir));
    return ld->c->dir != NULL ? 0 : err_set(ld->e, ERR_INTERNAL, "no memory");
}

static int resolve_path(struct config_loader *ld, char **path)
{
    const char *dir = strcmp(ld->c->dir, "/") == 0 ? "" : ld->c->dir;
    if (**path == '\0' || **path == '/') {
        return 0;
    }
    size_t size = strlen(dir) + 1 + strlen(*path) + 1;
    char *absolute = arena_alloc(ld->c->arena, size);
    if (absolute == NULL) {
        return err_set(ld->e, ERR_INTERNAL, "no memory");
    }
    snprintf(absolute, size, "%s/%s", dir, *path);
    *path = absolute;
    return 0;
}

static int resolve_paths(struct config_loader *ld)
{
    for (size_t i = 0; i < config_path_count; i++) {
        if (resolve_path(ld, (char **)((char *)ld->c + config_path_offsets[i])) != 0) {
            return -1;
        }
    }
    struct config_registry *registries = ld->c->docker.registries.items;
    for (size_t i = 0; i < ld->c->docker.registries.n; i++) {
        if (resolve_path(ld, &registries[i].password_file) != 0) {
            return -1;
        }
    }
    struct config_profile *profiles = ld->c->profiles.items;
    for (size_t i = 0; i < ld->c->profiles.n; i++) {
        struct config_secret *secrets = profiles[i].secrets.items;
        for (size_t k = 0; k < profiles[i].secrets.n; k++) {
            if (resolve_path(ld, &secrets[k].file) != 0) {
                return -1;
            }
        }
    }
    return 0;
}

static const struct field *profiles_field(void)
{
    const struct field *f = config_fields;
    while (strcmp(f->name, "profiles") != 0) {
        f++;
    }
    return f;
}

/* A file without the key has the one profile of the template. */
static int set_default_profile(struct config_loader *ld)
{
    struct config *c = ld->c;
    struct config_profile *profile = arena_alloc(c->arena, sizeof(*profile));
    char **command = arena_alloc(c->arena, sizeof(*command));
    char *name = arena_strndup(c->arena, "default", strlen("default"));
    char *agent = arena_strndup(c->arena, DEMO_AGENT, strlen(DEMO_AGENT));
    if (profile == NULL || command == NULL || name == NULL || agent == NULL) {
        return err_set(ld->e, ERR_INTERNAL, "no memory");
    }
    if (field_set_defaults(profiles_field()->fields, profile, c->arena, ld->e) != 0) {
        return -1;
    }
    *command = agent;
    profile->name = name;
    profile->command = (struct list){.items = command, .n = 1};
    c->profiles = (struct list){.items = profile, .n = 1};
    return 0;
}

static int set_node(struct config_loader *ld)
{
    struct config_app *app = &ld->c->app;
    char host[HOST_NAME_SIZE] = "";
    if (*app->node != '\0') {
        return 0;
    }
    gethostname(host, sizeof(host) - 1);
    const char *node = *host != '\0' && utf8_valid(host, strlen(host)) ? host : "localhost";
    app->node = arena_strndup(ld->c->arena, node, strlen(node));
    return app->node != NULL ? 0 : err_set(ld->e, ERR_INTERNAL, "no memory");
}

/* The two tls sections share a struct and have a member each that the other lacks. */
static int set_absent_members(struct config_loader *ld)
{
    char *none = arena_strndup(ld->c->arena, "", 0);
    if (none == NULL) {
        return err_set(ld->e, ERR_INTERNAL, "no memory");
    }
    ld->c->http.tls.ca_file = none;
    ld->c->docker.tls.client_ca_file = none;
    return 0;
}

static int load_text(struct config_loader *ld, const struct buf *text, char *const *env)
{
    struct config *c = ld->c;
    if (field_set_defaults(config_fields, c, c->arena, ld->e) != 0 || set_absent_members(ld) != 0 ||
        config_read_yaml(ld, text->len > 0 ? text->data : "", text->len) != 0) {
        return -1;
    }
    /* An empty list has items to point at, an absent one has none. */
    if (c->profiles.items == NULL && set_default_profile(ld) != 0) {
        return -1;
    }
    if (config_read_env(ld, env) != 0 || set_node(ld) != 0 || resolve_paths(ld) != 0) {
        return -1;
    }
    return config_check(ld);
}

static int load_file(struct config_loader *ld, const char *file, char *const *env)
{
    struct buf text;
    buf_init(&text, FILE_MAX_BYTES);
    int rc = read_file(ld, file, &text);
    if (rc == 0) {
        rc = set_dir(ld, file);
    }
    if (rc == 0) {
        rc = load_text(ld, &text, env);
    }
    buf_done(&text);
    return rc;
}

int config_load(const char *file, char *const *env, struct config *ret, struct err *e)
{
    struct config c = {.arena = arena_new(ARENA_MAX)};
    struct config_loader ld = {.c = &c, .e = e};
    if (c.arena == NULL) {
        return err_set(e, ERR_INTERNAL, "no memory to read the configuration");
    }
    set_file_name(&ld, file);
    if (load_file(&ld, file, env) != 0) {
        arena_free(c.arena);
        return -1;
    }
    *ret = c;
    return 0;
}

void config_done(struct config *c)
{
    arena_free(c->arena);
    *c = (struct config){0};
}

const struct config_profile *config_profile_find(const struct config *c, const char *name)
{
    const struct config_profile *profiles = c->profiles.items;
    for (size_t i = 0; i < c->profiles.n; i++) {
        if (strcmp(profiles[i].name, name) == 0) {
            return &profiles[i];
        }
    }
    return NULL;
}
