/* What must hold between keys, and values whose form a table cannot describe. */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "config_load.h"
#include "utf8.h"

#define TOKEN_TEXT_MAX   127
#define PORT_DIGITS      5
#define MEMORY_MIN_BYTES 16777216         /* what stands beside the agent counts too */
#define SUN_PATH_MAX     107              /* bytes of a unix socket's path */
#define BOX_DIR          "/run/leasehold" /* in a sandbox: as in keep_spec.h, which is not base's */
#define CONTROL_SOCKET   "control.sock"
#define PROFILE_NAME     "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"
#define REGISTRY_HOST    PROFILE_NAME ":[]"
#define HUB              "docker.io"
#define HEADER_SYMBOL    "!#$%&'*+-.^_`|~"

int config_note(struct config_loader *ld, struct config_origin origin)
{
    struct config_origin *note = arena_alloc(ld->c->arena, sizeof(*note));
    if (note == NULL) {
        return err_set(ld->e, ERR_INTERNAL, "the configuration is too long");
    }
    *note = origin;
    note->next = ld->origins;
    ld->origins = note;
    return 0;
}

int config_fail(struct config_loader *ld, const void *at, const char *fmt, ...)
{
    char what[sizeof(ld->e->msg)], quoted[UTF8_QUOTE_SIZE];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    const struct config_origin *o = ld->origins;
    while (o != NULL && o->at != at) {
        o = o->next;
    }
    if (o == NULL) {
        return err_set(ld->e, ERR_INVALID_REQUEST, "%s: %s", ld->file, what);
    }
    if (o->env != NULL) {
        return err_set(ld->e, ERR_INVALID_REQUEST, "environment " CONFIG_ENV_PREFIX "%s: %s",
                       utf8_quote(o->env, o->env_len, quoted), what);
    }
    return err_set(ld->e, ERR_INVALID_REQUEST, "%s:%u: %s", ld->file, o->line, what);
}

/* A decimal number of 1..65535 at *s, without leading zeros; moves *s behind it. */
static bool take_port(const char **s, long *ret)
{
    size_t digits = strspn(*s, "0123456789");
    if (digits == 0 || digits > PORT_DIGITS || **s == '0') {
        return false;
    }
    long port = 0;
    for (size_t i = 0; i < digits; i++) {
        port = port * 10 + (*(*s)++ - '0');
    }
    *ret = port;
    return port <= 65535;
}

static bool is_transport(const char *s)
{
    long port;
    if (strcmp(s, "stdio") == 0) {
        return true;
    }
    if (strncmp(s, "tcp:", 4) == 0) {
        s += 4;
        return take_port(&s, &port) && *s == '\0';
    }
    if (strncmp(s, "ws:", 3) == 0) {
        s += 3;
        /* It goes into a request line: visible ASCII only. */
        if (!take_port(&s, &port) || *s != '/') {
            return false;
        }
        while (*s > 0x20 && *s < 0x7f) {
            s++;
        }
        return *s == '\0';
    }
    return strncmp(s, "unix:/", 6) == 0 && s[6] != '\0' && strlen(s + 5) <= SUN_PATH_MAX;
}

static bool is_port_range(const char *s)
{
    long first, last;
    if (strcmp(s, "0") == 0) {
        return true;
    }
    if (!take_port(&s, &first)) {
        return false;
    }
    if (*s == '\0') {
        return true;
    }
    s++;
    return s[-1] == '-' && take_port(&s, &last) && *s == '\0' && first <= last;
}

static bool is_header_name(const char *s)
{
    while (isalnum((unsigned char)*s) || (*s != '\0' && strchr(HEADER_SYMBOL, *s) != NULL)) {
        s++;
    }
    return *s == '\0';
}

/* A word of a fixed list, written in any case: stored in ours. */
static int check_word(struct config_loader *ld, char **at, const char *key,
                      const char *const words[2])
{
    for (size_t i = 0; i < 2; i++) {
        if (strcasecmp(*at, words[i]) == 0) {
            memcpy(*at, words[i], strlen(words[i]));
            return 0;
        }
    }
    return config_fail(ld, at, "%s must be one of: %s, %s", key, words[0], words[1]);
}

/* No empty, "." or ".." component, no control character: as leasekeep demands it. */
static bool path_is_plain(const char *path)
{
    while (*path == '/') {
        size_t len = strcspn(++path, "/");
        if (len == 0 || (len == 1 && path[0] == '.') || (len == 2 && memcmp(path, "..", 2) == 0)) {
            return false;
        }
        for (size_t i = 0; i < len; i++) {
            if (iscntrl((unsigned char)path[i])) {
                return false;
            }
        }
        path += len;
    }
    return true;
}

static bool path_is_below(const char *path, const char *dir)
{
    size_t len = strlen(dir);
    return strncmp(path, dir, len) == 0 && (path[len] == '\0' || path[len] == '/');
}

/* --- profiles -------------------------------------------------------------------------------- */

static int check_services(struct config_loader *ld, const struct config_profile *p)
{
    char *const *names = p->services.items;
    for (size_t i = 0; i < p->services.n; i++) {
        if (strcmp(names[i], "postgres") != 0 && strcmp(names[i], "redis") != 0) {
            return config_fail(ld, &p->services, "services of profile %s may hold: postgres, redis",
                               p->name);
        }
    }
    return 0;
}

static int check_bundles(struct config_loader *ld, const struct config_profile *p)
{
    char *const *names = p->bundles.items;
    for (size_t i = 0; i < p->bundles.n; i++) {
        const char *at = strchr(names[i], '@');
        if (at == NULL || at == names[i] || at[1] == '\0' || strchr(at + 1, '@') != NULL) {
            return config_fail(ld, &p->bundles, "bundles of profile %s must be name@version",
                               p->name);
        }
    }
    return 0;
}

bool config_env_name_valid(const char *name, size_t len)
{
    if (len == 0 || isdigit((unsigned char)name[0])) {
        return false;
    }
    for (size_t i = 0; i < len; i++) {
        if (!isascii((unsigned char)name[i]) ||
            (!isalnum((unsigned char)name[i]) && name[i] != '_')) {
            return false;
        }
    }
    return true;
}

static int check_environment(struct config_loader *ld, const struct config_profile *p)
{
    char *const *pairs = p->environment.items;
    for (size_t i = 0; i < p->environment.n; i++) {
        size_t len = strcspn(pairs[i], "=");
        if (pairs[i][len] != '=' || !config_env_name_valid(pairs[i], len)) {
            return config_fail(ld, &p->environment,
                               "environment of profile %s must hold NAME=value", p->name);
        }
        for (size_t k = 0; k < i; k++) {
            if (strncmp(pairs[k], pairs[i], len + 1) == 0) {
                return config_fail(ld, &p->environment,
                                   "environment of profile %s has a name twice", p->name);
            }
        }
    }
    return 0;
}

/* Its name becomes that of a file. */
static int check_secrets(struct config_loader *ld, const struct config_profile *p)
{
    const struct config_secret *secrets = p->secrets.items;
    for (size_t i = 0; i < p->secrets.n; i++) {
        const char *name = secrets[i].name;
        if (name[0] == '.' || name[strspn(name, PROFILE_NAME)] != '\0') {
            return config_fail(ld, &secrets[i].name,
                               "a secret's name may hold letters, digits and _ . -, no dot first");
        }
        for (size_t k = 0; k < i; k++) {
            if (strcmp(secrets[k].name, name) == 0) {
                return config_fail(ld, &secrets[i].name,
                                   "profile %s has two secrets of the name %s", p->name, name);
            }
        }
    }
    return 0;
}

/* What only containers can have. */
static int check_engine_only(struct config_loader *ld, const struct config_profile *p)
{
    bool is_local = ld->c->sandbox.engine == ENGINE_LOCAL;
    char *const *tmpfs = p->tmpfs.items;
    if (is_local && p->network != NETWORK_NONE) {
        return config_fail(ld, &p->network,
                           "network of profile %s must be none with sandbox.engine local", p->name);
    }
    if (is_local && *p->runtime != '\0') {
        return config_fail(ld, &p->runtime, "runtime of profile %s is for sandbox.engine docker",
                           p->name);
    }
    if (is_local && p->tmpfs.n > 0) {
        return config_fail(ld, &p->tmpfs, "tmpfs of profile %s is for sandbox.engine docker",
                           p->name);
    }
    for (size_t i = 0; i < p->tmpfs.n; i++) {
        if (tmpfs[i][0] != '/' || !path_is_plain(tmpfs[i]) || path_is_below(tmpfs[i], BOX_DIR) ||
            path_is_below(BOX_DIR, tmpfs[i])) {
            return config_fail(ld, &p->tmpfs,
                               "tmpfs of profile %s must hold plain absolute paths, none at or "
                               "around " BOX_DIR,
                               p->name);
        }
    }
    return 0;
}

static int check_profile(struct config_loader *ld, const struct config_profile *p)
{
    if (p->name[strspn(p->name, PROFILE_NAME)] != '\0') {
        return config_fail(ld, &p->name, "a profile's name may hold letters, digits and _ . -");
    }
    if (config_profile_find(ld->c, p->name) != p) {
        return config_fail(ld, &p->name, "there are two profiles of the name %s", p->name);
    }
    /* Of a container without one the image's own is run. */
    bool needs_command = ld->c->sandbox.engine == ENGINE_LOCAL || p->command.n > 0;
    if (needs_command && (p->command.n == 0 || *((char **)p->command.items)[0] == '\0')) {
        return config_fail(ld, p->command.items == NULL ? (const void *)&p->name : &p->command,
                           "command of profile %s must not be empty", p->name);
    }
    if (!is_transport(p->transport)) {
        return config_fail(ld, &p->transport,
                           "transport of profile %s must be one of: stdio, tcp:PORT, ws:PORT/path, "
                           "unix:/PATH",
                           p->name);
    }
    if (p->limits.memory_bytes < MEMORY_MIN_BYTES) {
        return config_fail(ld, &p->limits.memory_bytes,
                           "limits.memory_bytes of profile %s must be at least %d", p->name,
                           MEMORY_MIN_BYTES);
    }
    if (!(p->limits.cpus > 0)) {
        return config_fail(ld, &p->limits.cpus, "limits.cpus of profile %s must be above 0",
                           p->name);
    }
    if (check_environment(ld, p) != 0 || check_secrets(ld, p) != 0) {
        return -1;
    }
    return check_engine_only(ld, p) != 0 || check_services(ld, p) != 0 ? -1 : check_bundles(ld, p);
}

static int check_profiles(struct config_loader *ld)
{
    const struct config *c = ld->c;
    const struct config_profile *profiles = c->profiles.items;
    if (c->profiles.n == 0) {
        return config_fail(ld, &c->profiles, "profiles must hold at least one");
    }
    for (size_t i = 0; i < c->profiles.n; i++) {
        if (check_profile(ld, &profiles[i]) != 0) {
            return -1;
        }
    }
    if (config_profile_find(c, c->sandbox.default_profile) == NULL) {
        return config_fail(ld, &c->sandbox.default_profile,
                           "sandbox.default_profile names no profile");
    }
    return 0;
}

/* --- sections -------------------------------------------------------------------------------- */

static int check_order(struct config_loader *ld)
{
    struct config *c = ld->c;
    const struct {
        const int64_t *low, *high;
        const char *low_name, *high_name;
    } rows[] = {
        {&c->sandbox.ttl_seconds, &c->sandbox.max_ttl_seconds, "sandbox.ttl_seconds",
         "sandbox.max_ttl_seconds"},
        {&c->lease.ttl_seconds, &c->lease.ttl_max_seconds, "lease.ttl_seconds",
         "lease.ttl_max_seconds"},
        {&c->lease.ttl_max_seconds, &c->lease.max_seconds, "lease.ttl_max_seconds",
         "lease.max_seconds"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (*rows[i].low > *rows[i].high) {
            return config_fail(ld, rows[i].low, "%s must not exceed %s", rows[i].low_name,
                               rows[i].high_name);
        }
    }
    if (c->lease.stale_after_seconds >= c->lease.seal_after_seconds) {
        return config_fail(ld, &c->lease.seal_after_seconds,
                           "lease.seal_after_seconds must exceed lease.stale_after_seconds");
    }
    return 0;
}

/* What every sandbox is made of; leasekeep refuses it again. */
static bool is_reserved(const char *path)
{
    static const char *const dirs[] = {"/proc", "/sys",  "/dev", "/usr",   "/etc",
                                       "/bin",  "/sbin", "/lib", "/lib64", BOX_DIR};
    for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
        if (path_is_below(path, dirs[i])) {
            return true;
        }
    }
    return path_is_below(BOX_DIR, path);
}

static int check_mounts(struct config_loader *ld)
{
    struct config_sandbox *s = &ld->c->sandbox;
    char **const mounts[] = {&s->chat_mount_path, &s->dependencies_mount_path,
                             &s->lambda_tools_mount_path, &s->user_tools_mount_path};
    for (size_t i = 0; i < sizeof(mounts) / sizeof(mounts[0]); i++) {
        if (**mounts[i] != '/') {
            return config_fail(ld, mounts[i], "sandbox: a mount path must be absolute");
        }
        if (!path_is_plain(*mounts[i])) {
            return config_fail(ld, mounts[i],
                               "sandbox: a mount path must be plain: no //, /. or /.. in it, no / "
                               "at its end");
        }
        if (is_reserved(*mounts[i])) {
            return config_fail(ld, mounts[i],
                               "sandbox: %s is the sandbox's own; nothing can be mounted there",
                               *mounts[i]);
        }
        for (size_t k = 0; k < i; k++) {
            if (strcmp(*mounts[i], *mounts[k]) == 0) {
                return config_fail(ld, mounts[i], "sandbox: two mount paths are the same");
            }
        }
    }
    return 0;
}

static int check_tls(struct config_loader *ld, const char *section, struct config_tls *tls)
{
    bool has_cert = *tls->cert_file != '\0', has_key = *tls->key_file != '\0';
    if (has_cert != has_key) {
        return config_fail(ld, has_cert ? &tls->cert_file : &tls->key_file,
                           "%s.tls needs cert_file and key_file together", section);
    }
    if (*tls->client_ca_file != '\0' && !has_cert) {
        return config_fail(ld, &tls->client_ca_file, "%s.tls.client_ca_file needs cert_file",
                           section);
    }
    return 0;
}

static int check_registries(struct config_loader *ld, const struct config_docker *d)
{
    const struct config_registry *r = d->registries.items;
    for (size_t i = 0; i < d->registries.n; i++) {
        if (r[i].host[strspn(r[i].host, REGISTRY_HOST)] != '\0') {
            return config_fail(ld, &r[i].host,
                               "host of docker.registries must be HOST or HOST:PORT, as images "
                               "name it");
        }
        if (strcasecmp(r[i].host, "index." HUB) == 0) {
            return config_fail(ld, &r[i].host, "docker.registries knows %s as " HUB, r[i].host);
        }
        for (size_t k = 0; k < i; k++) {
            if (strcasecmp(r[k].host, r[i].host) == 0) {
                return config_fail(ld, &r[i].host, "docker.registries has %s twice", r[i].host);
            }
        }
    }
    return 0;
}

static int check_docker(struct config_loader *ld)
{
    struct config_docker *d = &ld->c->docker;
    bool is_unix = strncmp(d->base_url, "unix:///", 8) == 0;
    if (!is_unix && (strncmp(d->base_url, "tcp://", 6) != 0 || d->base_url[6] == '\0')) {
        return config_fail(ld, &d->base_url,
                           "docker.base_url must be unix:///PATH or tcp://HOST:PORT");
    }
    if (check_registries(ld, d) != 0) {
        return -1;
    }
    return check_tls(ld, "docker", &d->tls);
}

static int check_logging(struct config_loader *ld)
{
    struct config *c = ld->c;
    if (c->logging.output == LOG_TO_FILE && *c->logging.file_path == '\0') {
        return config_fail(ld, &c->logging.output, "logging.output file needs logging.file_path");
    }
    if (c->logging.output == LOG_TO_OTEL) {
        return config_fail(ld, &c->logging.output,
                           "logging.output: otel is not supported by this build yet");
    }
    return 0;
}

static int check_storage(struct config_loader *ld)
{
    static const char *const kinds[] = {"sqlite", "postgres"};
    struct config_storage *s = &ld->c->storage;
    if (check_word(ld, &s->kind, "storage.kind", kinds) != 0) {
        return -1;
    }
    if (strcmp(s->kind, "postgres") == 0) {
        return config_fail(ld, &s->kind,
                           "storage.kind: postgres is not supported by this build yet");
    }
    return 0;
}

static int check_objects(struct config_loader *ld)
{
    static const char *const kinds[] = {"disk", "s3"};
    struct config_objects *o = &ld->c->objects;
    if (check_word(ld, &o->kind, "objects.kind", kinds) != 0) {
        return -1;
    }
    if (strcmp(o->kind, "s3") == 0 && (*o->endpoint == '\0' || *o->bucket == '\0' ||
                                       *o->access_key == '\0' || *o->secret_key_file == '\0')) {
        return config_fail(
            ld, &o->kind, "objects.kind s3 needs endpoint, bucket, access_key and secret_key_file");
    }
    return 0;
}

/* What runs with the agents' or the doors' ids can be looked into by them, or looks into them. */
static int check_user_tools(struct config_loader *ld)
{
    struct config_sandbox *s = &ld->c->sandbox;
    const struct config_door *d = &ld->c->door;
    if (s->user_tools_uid == s->uid || s->user_tools_uid == d->uid) {
        return config_fail(ld, &s->user_tools_uid,
                           "sandbox.user_tools_uid must be neither sandbox.uid nor door.uid");
    }
    if (s->user_tools_gid == s->gid || s->user_tools_gid == d->gid) {
        return config_fail(ld, &s->user_tools_gid,
                           "sandbox.user_tools_gid must be neither sandbox.gid nor door.gid");
    }
    return 0;
}

static int check_door(struct config_loader *ld)
{
    struct config *c = ld->c;
    if (!is_port_range(c->door.port_range)) {
        return config_fail(ld, &c->door.port_range,
                           "door.port_range must be 0, a port, or FIRST-LAST");
    }
    if (c->door.uid == c->sandbox.uid) {
        return config_fail(ld, &c->door.uid, "door.uid must not be sandbox.uid");
    }
    bool any = strcmp(c->door.host, "0.0.0.0") == 0 || strcmp(c->door.host, "::") == 0;
    if (any && !*c->door.public_host) {
        return config_fail(ld, &c->door.host,
                           "door.host %s needs door.public_host: what clients are told",
                           c->door.host);
    }
    if (c->door.tls == DOOR_TLS_FILES && (!*c->door.cert_file || !*c->door.key_file)) {
        return config_fail(ld, &c->door.tls,
                           "door.tls files needs door.cert_file and door.key_file");
    }
    return 0;
}

/* They stand in every token, whose grammar knows no escapes. */
static bool is_token_text(const char *s)
{
    size_t n = strlen(s);
    for (size_t i = 0; i < n; i++) {
        if (s[i] < 0x20 || s[i] > 0x7e || s[i] == '"' || s[i] == '\\') {
            return false;
        }
    }
    return n > 0 && n <= TOKEN_TEXT_MAX;
}

static int check_run_dir(struct config_loader *ld)
{
    struct config *c = ld->c;
    size_t len = strlen(c->run_dir) + sizeof("/" CONTROL_SOCKET) - 1;
    if (len > SUN_PATH_MAX) {
        return config_fail(ld, &c->run_dir,
                           "run_dir is %zu bytes too long for a unix socket in it; set a short "
                           "one such as /run/leasehold",
                           len - SUN_PATH_MAX);
    }
    return 0;
}

static int check_token_texts(struct config_loader *ld)
{
    struct config *c = ld->c;
    if (!is_token_text(c->lease.issuer)) {
        return config_fail(ld, &c->lease.issuer,
                           "lease.issuer must be 1 to 127 printable ASCII characters, no quotes");
    }
    if (!is_token_text(c->app.node)) {
        return config_fail(ld, &c->app.node,
                           "app.node must be 1 to 127 printable ASCII characters, no quotes");
    }
    return 0;
}

static int check_jwt(struct config_loader *ld)
{
    struct config_jwt *j = &ld->c->security.jwt;
    if (*j->issuer != '\0' && (*j->audience == '\0' || *j->key_file == '\0')) {
        return config_fail(ld, &j->issuer, "security.jwt.issuer needs audience and key_file");
    }
    return 0;
}

static int check_certificates(struct config_loader *ld)
{
    struct config *c = ld->c;
    if (c->security.client_certificates.n > 0 && *c->http.tls.client_ca_file == '\0') {
        return config_fail(ld, &c->security.client_certificates,
                           "security.client_certificates needs http.tls.client_ca_file");
    }
    return 0;
}

int config_check(struct config_loader *ld)
{
    static int (*const checks[])(struct config_loader *) = {
        check_logging, check_docker,       check_order,      check_mounts,      check_profiles,
        check_door,    check_storage,      check_objects,    check_token_texts, check_run_dir,
        check_jwt,     check_certificates, check_user_tools, config_check_urls,
    };
    struct config *c = ld->c;
    for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++) {
        if (checks[i](ld) != 0) {
            return -1;
        }
    }
    if (!is_header_name(c->security.token_header)) {
        return config_fail(ld, &c->security.token_header,
                           "security.token_header must be the name of a header");
    }
    return check_tls(ld, "http", &c->http.tls);
}
