/* What the engine is, and what about it an operator should know. */
#include <stdio.h>
#include <string.h>

#include "docker.h"

#define LOOK_MS   10000
#define ARENA_MAX (4u * 1024 * 1024)

struct component {
    char *name, *version;
};

struct version {
    char *version;
    struct list components;
};

struct engine_told {
    struct list security; /* char * */
    bool live_restore, memory_limit, swap_limit, pids_limit, cpu_limit;
    char *cgroup_driver;
};

static const struct field component_fields[] = {
    DOCKER_STR("Name", struct component, name),
    DOCKER_STR("Version", struct component, version),
    {0},
};

static const struct field version_fields[] = {
    DOCKER_STR("Version", struct version, version),
    DOCKER_LIST("Components", struct version, components, component_fields, struct component),
    {0},
};

static const struct field told_fields[] = {
    DOCKER_STRLIST("SecurityOptions", struct engine_told, security),
    DOCKER_BOOL("LiveRestoreEnabled", struct engine_told, live_restore),
    DOCKER_BOOL("MemoryLimit", struct engine_told, memory_limit),
    DOCKER_BOOL("SwapLimit", struct engine_told, swap_limit),
    DOCKER_STR("CgroupDriver", struct engine_told, cgroup_driver),
    DOCKER_BOOL("PidsLimit", struct engine_told, pids_limit),
    DOCKER_BOOL("CpuCfsQuota", struct engine_told, cpu_limit),
    {0},
};

static int ask(struct engine_docker *d, const char *path, const struct field *fields, void *obj,
               struct arena *arena, struct err *e)
{
    struct docker_call c = {.method = "GET", .path = path, .timeout_ms = LOOK_MS};
    struct docker_answer answer;
    docker_answer_init(&answer);
    int rc = docker_api_call(d->api, &c, &answer, e);
    if (rc == 0 && answer.status != 200)
        rc = docker_answer_refused(&answer, ERR_ENGINE_UNAVAILABLE, "ask the engine what it is", e);
    if (rc == 0)
        rc = docker_answer_object(&answer, fields, obj, arena, e);
    docker_answer_done(&answer);
    return rc;
}

static bool has_security(const struct engine_told *t, const char *name)
{
    char *const *options = t->security.items;
    for (size_t i = 0; i < t->security.n; i++) {
        if (strstr(options[i], name) != NULL && strstr(options[i], "unconfined") == NULL)
            return true;
    }
    return false;
}

static char *next_warning(struct engine_info *info)
{
    return info->warnings[info->warnings_n < ENGINE_WARNINGS_MAX ? info->warnings_n++
                                                                 : ENGINE_WARNINGS_MAX - 1];
}

#define WARN(info, ...) snprintf(next_warning(info), sizeof((info)->warnings[0]), __VA_ARGS__)

/* The first releases of runc without its known escapes (CVE-2024-21626 and those of 2025). A
 * distribution mends an older one, and says so by a suffix. */
static bool is_runc_old(const char *version)
{
    int major = 0, minor = 0, patch = 0;
    if (strpbrk(version, "+~") != NULL || sscanf(version, "%d.%d.%d", &major, &minor, &patch) < 2 ||
        major != 1)
        return false;
    return minor < 1 || (minor == 1 && patch < 12) || (minor == 2 && patch < 8) ||
           (minor == 3 && patch < 3);
}

static void judge(const struct version *v, const struct engine_told *t, struct engine_info *info)
{
    const struct component *parts = v->components.items;
    if (!t->live_restore)
        WARN(info, "live-restore is off: a restart of the engine ends every sandbox");
    for (size_t i = 0; i < v->components.n; i++) {
        if (strcmp(parts[i].name, "runc") == 0 && is_runc_old(parts[i].version))
            WARN(info, "runc %.32s has known escapes: use 1.1.12, 1.2.8, 1.3.3 or newer",
                 parts[i].version);
    }
    if (!has_security(t, "name=seccomp"))
        WARN(info, "the engine has no seccomp filter for its containers");
    if (strcmp(t->cgroup_driver, "none") == 0)
        WARN(info, "the engine has no control groups: no limit of a profile is in force");
    else if (!t->memory_limit || !t->swap_limit || !t->pids_limit || !t->cpu_limit)
        WARN(info, "the engine cannot limit:%s%s%s%s", t->memory_limit ? "" : " memory",
             t->swap_limit ? "" : " swap", t->pids_limit ? "" : " pids",
             t->cpu_limit ? "" : " cpu");
}

static bool is_in_the_clear(const struct config_docker *cfg)
{
    return strncmp(cfg->base_url, "tcp:", 4) == 0 && cfg->tls.ca_file[0] == '\0' &&
           cfg->tls.cert_file[0] == '\0';
}

int docker_info_refresh(struct engine_docker *d, struct err *e)
{
    struct arena *arena = arena_new(ARENA_MAX);
    struct engine_info info = {.warnings_n = 0};
    struct version v = {0};
    struct engine_told t = {0};
    char api[16];
    if (arena == NULL)
        return err_set(e, ERR_INTERNAL, "no memory for what the engine tells");
    int rc = ask(d, "/version", version_fields, &v, arena, e);
    if (rc == 0)
        rc = ask(d, "/info", told_fields, &t, arena, e);
    if (rc == 0) {
        judge(&v, &t, &info);
        if (docker_daemon_has_proxy(&d->cfg->docker))
            WARN(&info, "userland-proxy is on: no sandbox needs it, and it is a process a port");
        if (is_in_the_clear(&d->cfg->docker))
            WARN(&info, "docker.base_url is tcp without tls: whoever reaches it is root");
        docker_api_version(d->api, api);
        snprintf(info.version, sizeof(info.version), "%.47s (API %s)", v.version, api);
        pthread_mutex_lock(&d->lock);
        d->info = info;
        d->seccomp = has_security(&t, "name=seccomp");
        d->userns = has_security(&t, "name=userns") || has_security(&t, "name=rootless");
        pthread_mutex_unlock(&d->lock);
    }
    arena_free(arena);
    return rc;
}
