/*
 * What the engine's API does not tell of it: how its program was started. Where that is a dockerd of
 * this machine, whom the socket names; anything else is not judged.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "docker.h"

#define TEXT_MAX     (64u * 1024)
#define DEFAULT_FILE "/etc/docker/daemon.json"

struct text {
    char data[TEXT_MAX];
    size_t len;
};

static bool text_read(const char *path, struct text *ret)
{
    ssize_t n = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return false;
    ret->len = 0;
    while (ret->len < sizeof(ret->data) - 1 &&
           (n = read(fd, ret->data + ret->len, sizeof(ret->data) - 1 - ret->len)) > 0)
        ret->len += (size_t)n;
    ret->data[ret->len] = '\0';
    close(fd);
    return n >= 0;
}

/* Who listens: dockerd itself, or systemd for it. */
static pid_t listener_pid(const char *socket_path)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    struct ucred peer = {.pid = 0};
    socklen_t size = sizeof(peer);
    if ((size_t)snprintf(to.sun_path, sizeof(to.sun_path), "%s", socket_path) >=
        sizeof(to.sun_path))
        return 0;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return 0;
    if (connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0 ||
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
        peer.pid = 0;
    close(fd);
    return peer.pid;
}

struct arguments {
    int proxy; /* -1: not said */
    const char *file;
};

/* "--name=value"; NULL: it is another word. A flag alone is on. */
static const char *value_of(const char *word, const char *name)
{
    size_t len = strlen(name);
    if (strncmp(word, name, len) != 0)
        return NULL;
    return word[len] == '=' ? word + len + 1 : word[len] == '\0' ? "" : NULL;
}

static void arguments_read(const struct text *words, struct arguments *ret)
{
    const char *value, *end = words->data + words->len;
    *ret = (struct arguments){.proxy = -1, .file = DEFAULT_FILE};
    for (const char *word = words->data; word < end; word += strlen(word) + 1) {
        const char *next = word + strlen(word) + 1;
        if ((value = value_of(word, "--userland-proxy")) != NULL)
            ret->proxy = strchr("fF0", value[0]) == NULL || value[0] == '\0';
        else if ((value = value_of(word, "--config-file")) != NULL)
            ret->file = value[0] != '\0' || next >= end ? value : next;
    }
}

struct settings {
    bool proxy, has_proxy;
};

static const struct field settings_fields[] = {
    DOCKER_FIELD("userland-proxy", struct settings, proxy, FIELD_KIND_BOOL,
                 .has = offsetof(struct settings, has_proxy)),
    {0},
};

static bool settings_say_on(const char *file, struct text *buffer)
{
    struct arena *arena = arena_new(4 * TEXT_MAX);
    struct settings s = {.proxy = true};
    struct err ignored;
    if (arena != NULL && text_read(file, buffer) && buffer->len > 0 &&
        json_decode_foreign(buffer->data, buffer->len, settings_fields, &s, arena, &ignored) != 0)
        s = (struct settings){.proxy = true};
    arena_free(arena);
    return s.proxy || !s.has_proxy;
}

static bool is_on(pid_t pid, struct text *buffer)
{
    char path[64];
    struct arguments a;
    snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
    if (!text_read(path, buffer) || strcmp(buffer->data, "dockerd\n") != 0)
        return false;
    snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
    if (!text_read(path, buffer))
        return false;
    arguments_read(buffer, &a);
    if (a.proxy >= 0)
        return a.proxy != 0;
    char *file = strdup(a.file);
    bool on = file != NULL && settings_say_on(file, buffer);
    free(file);
    return on;
}

bool docker_daemon_has_proxy(const struct config_docker *cfg)
{
    struct text *buffer = malloc(sizeof(*buffer));
    pid_t pid = strncmp(cfg->base_url, "unix://", 7) == 0 ? listener_pid(cfg->base_url + 7) : 0;
    bool on = buffer != NULL && pid > 0 && is_on(pid, buffer);
    free(buffer);
    return on;
}
