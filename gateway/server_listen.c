/*
 * The listening sockets: ours, so that a bind that fails can say why, that running out of
 * descriptors rests instead of spinning, and that more loops can have more of them.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "leasehold/door_proto.h"
#include "server_state.h"

#define BACKLOG       1024
#define ACCEPT_TURN   64 /* connections taken before the others have their turn */
#define PROCESS_CONNS 8  /* of one process on the control socket … */
#define PROCESS_SHARE 4  /* … or one in so many of all */

/* --- accept ---------------------------------------------------------------------------------- */

static void listener_pause(struct listener *l, const char *why)
{
    if (!l->paused) {
        log_event(l->server->log, LOG_WARNING, "accept_paused", LF_STR("reason", why),
                  LF_STR("listener", l->local ? "control socket" : "tcp"),
                  LF_INT("connections", l->conns));
    }
    l->paused = true;
    (void)uv_poll_stop(l->poll);
}

static void peer_name(const struct listener *l, const struct sockaddr_storage *addr, char *out,
                      size_t size)
{
    const void *ip = addr->ss_family == AF_INET6
                         ? (const void *)&((const struct sockaddr_in6 *)addr)->sin6_addr
                         : (const void *)&((const struct sockaddr_in *)addr)->sin_addr;
    if (l->local || inet_ntop(addr->ss_family, ip, out, (socklen_t)size) == NULL) {
        (void)snprintf(out, size, "%s", l->local ? "unix" : "unknown");
    }
}

static void tcp_options(int fd)
{
    static const int on = 1, idle_s = 60, every_s = 15, times = 4;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every_s, sizeof every_s);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof times);
}

/* Counts it in *ret (NULL: there is no cap). False: its address has so many more than it may that it is
 * not even told. */
static bool peer_counted(struct listener *l, const struct sockaddr_storage *addr, struct peer **ret)
{
    struct server *s = l->server;
    size_t cap = (size_t)s->cfg->http.max_connections_per_address;
    struct peer_group group;
    struct peer *p;
    *ret = NULL;
    if (cap == 0) {
        return true;
    }
    peer_group_of(addr, &group);
    p = peers_enter(&s->peers, &group);
    if (p == NULL || p->conns <= cap + peers_told_beyond(cap)) {
        *ret = p;
        return true;
    }
    peers_leave(&s->peers, p);
    s->refused_addresses++;
    return false;
}

static void peer_tell(const struct listener *l, struct peer *p, const char *address)
{
    if (p == NULL) {
        return;
    }
    size_t cap = (size_t)l->server->cfg->http.max_connections_per_address;
    if (p->conns > cap && !p->told) {
        log_event(l->server->log, LOG_WARNING, "address_over_connections",
                  LF_STR("address", address), LF_INT("connections", p->conns));
        p->told = true;
    } else if (p->conns <= cap / 2) {
        p->told = false;
    }
}

/* A door needs one, and one more while its last one ends. Root, and a gateway that is not root and whose
 * doors have its uid, may have other programs that speak HTTP here. */
static size_t process_cap(const struct listener *l, const struct ucred *process)
{
    size_t share = l->conns_max / PROCESS_SHARE;
    bool own = process->uid == 0 || process->uid == geteuid();
    return own && share > PROCESS_CONNS ? share : PROCESS_CONNS;
}

static void process_tell(const struct listener *l, struct peer *p, const struct ucred *process)
{
    if (!p->told) {
        log_event(l->server->log, LOG_WARNING, "process_over_connections",
                  LF_INT("pid", process->pid), LF_INT("uid", process->uid),
                  LF_INT("connections", p->conns));
    }
    p->told = true;
}

/* The same on the control socket of a process, until it has proved to be a door: else one could take all
 * places of it, and real doors would come to none. */
static bool process_counted(struct listener *l, int fd, struct peer **ret)
{
    struct server *s = l->server;
    struct ucred process;
    socklen_t len = sizeof process;
    struct peer_group group;
    *ret = NULL;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &process, &len) != 0) {
        return true;
    }
    peer_group_of_process(&process, &group);
    size_t cap = process_cap(l, &process);
    struct peer *p = peers_enter(&s->processes, &group);
    if (p != NULL && p->conns > cap) {
        process_tell(l, p, &process);
        peers_leave(&s->processes, p);
        s->refused_processes++;
        return false;
    }
    if (p != NULL && p->conns <= cap / 2) {
        p->told = false;
    }
    *ret = p;
    return true;
}

/* Returns false when there is nothing more to accept now. */
static bool accept_one(struct listener *l)
{
    if (l->conns >= l->conns_max) {
        listener_pause(l, "too many connections");
        return false;
    }
    struct sockaddr_storage addr = {0};
    socklen_t len = sizeof addr;
    int fd = accept4(l->fd, (struct sockaddr *)&addr, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
        if (errno == EINTR || errno == ECONNABORTED) {
            return true;
        }
        if (errno != EAGAIN) {
            listener_pause(l, strerror(errno)); /* EMFILE: readable stays, and would spin */
        }
        return false;
    }
    struct peer *from;
    if (!(l->local ? process_counted(l, fd, &from) : peer_counted(l, &addr, &from))) {
        (void)close(fd);
        return true;
    }
    char peer[64];
    peer_name(l, &addr, peer, sizeof peer);
    if (!l->local) {
        peer_tell(l, from, peer);
        tcp_options(fd);
    }
    conn_adopt(l, fd, peer, from);
    return true;
}

static void on_acceptable(uv_poll_t *poll, int status, int events)
{
    (void)events;
    struct listener *l = poll->data;
    if (status < 0) {
        listener_pause(l, uv_strerror(status));
        return;
    }
    for (int i = 0; i < ACCEPT_TURN && accept_one(l); i++) {
    }
}

void listener_resume(struct listener *l)
{
    if (l->paused && l->conns < l->conns_max) {
        l->paused = false;
        (void)uv_poll_start(l->poll, UV_READABLE, on_acceptable);
    }
}

static void poll_closed(uv_handle_t *poll)
{
    free(poll);
}

/* The socket only; connections go on. */
static void listener_stop(struct listener *l)
{
    if (l->fd < 0) {
        return;
    }
    uv_close((uv_handle_t *)l->poll, poll_closed);
    l->poll = NULL;
    l->paused = false;
    (void)close(l->fd);
    l->fd = -1;
}

/* Takes fd, which follows the one there was. */
static int listener_start(struct server *s, struct listener *l, int fd, struct err *e)
{
    uv_poll_t *poll = malloc(sizeof *poll);
    int r = poll == NULL ? UV_ENOMEM : listen(fd, BACKLOG) != 0 ? -errno : 0;
    if (r == 0) {
        r = uv_poll_init(&s->loop, poll, fd);
    }
    if (r != 0) {
        free(poll);
        (void)close(fd);
        return err_set(e, ERR_INTERNAL, "listen: %s", uv_strerror(r));
    }
    listener_stop(l);
    poll->data = l;
    l->server = s;
    l->fd = fd;
    l->poll = poll;
    (void)uv_poll_start(poll, UV_READABLE, on_acceptable);
    return 0;
}

/* --- TCP ------------------------------------------------------------------------------------- */

static int bind_one(const struct addrinfo *ai)
{
    static const int on = 1;
    int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -1;
    }
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, ai->ai_addr, ai->ai_addrlen) != 0) {
        int saved = errno;
        (void)close(fd);
        errno = saved;
        return -1;
    }
    return fd;
}

static void url_make(struct server *s, const struct sockaddr_storage *addr, const char *host)
{
    bool any = strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0 || host[0] == '\0';
    bool six = strchr(host, ':') != NULL;
    /* NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): getsockname has filled it */
    s->port = ntohs(addr->ss_family == AF_INET6 ? ((const struct sockaddr_in6 *)addr)->sin6_port
                                                : ((const struct sockaddr_in *)addr)->sin_port);
    (void)snprintf(s->url, sizeof s->url, "%s://%s%s%s:%d", s->tcp.tls ? "https" : "http",
                   six && !any ? "[" : "", any ? "127.0.0.1" : host, six && !any ? "]" : "",
                   s->port);
}

int listener_open_tcp(struct server *s, struct err *e)
{
    const char *host = s->cfg->http.host;
    char port[16];
    (void)snprintf(port, sizeof port, "%d", (int)s->cfg->http.port);
    struct addrinfo want = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *found;
    int r = getaddrinfo(host[0] == '\0' ? NULL : host, port, &want, &found);
    if (r != 0) {
        return err_set(e, ERR_INTERNAL, "http.host %s: %s", host, gai_strerror(r));
    }
    int fd = -1;
    for (const struct addrinfo *ai = found; ai != NULL && fd < 0; ai = ai->ai_next) {
        fd = bind_one(ai);
    }
    int saved = errno;
    freeaddrinfo(found);
    if (fd < 0) {
        return err_sys(e, ERR_INTERNAL, saved, "http.port: listen on %s:%s%s", host, port,
                       saved == EADDRINUSE ? " (0 takes any free one)" : "");
    }
    struct sockaddr_storage addr = {0};
    socklen_t len = sizeof addr;
    if (getsockname(fd, (struct sockaddr *)&addr, &len) != 0) {
        saved = errno;
        (void)close(fd);
        return err_sys(e, ERR_INTERNAL, saved, "http.port: read the address of the listener");
    }
    url_make(s, &addr, host);
    return listener_start(s, &s->tcp, fd, e);
}

/* --- the node's unix socket ------------------------------------------------------------------ */

static int local_path(struct server *s, struct sockaddr_un *addr, struct err *e)
{
    int len = snprintf(s->socket_path, sizeof s->socket_path, "%s/%s", s->cfg->run_dir,
                       DOOR_CONTROL_SOCKET);
    if (len < 0 || (size_t)len >= sizeof s->socket_path) {
        s->socket_path[0] = '\0';
        return err_set(e, ERR_INTERNAL, "run_dir: the path of %s would be over %zu bytes: %.60s…",
                       DOOR_CONTROL_SOCKET, sizeof s->socket_path - 1, s->cfg->run_dir);
    }
    *addr = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(addr->sun_path, s->socket_path, (size_t)len + 1);
    return 0;
}

static int stale_remove(const char *path, struct err *e)
{
    struct stat st;
    if (lstat(path, &st) != 0) {
        return errno == ENOENT ? 0 : err_sys(e, ERR_INTERNAL, errno, "%s", path);
    }
    if (!S_ISSOCK(st.st_mode)) {
        return err_set(e, ERR_INTERNAL, "%s is there and no socket", path);
    }
    return unlink(path) == 0 ? 0 : err_sys(e, ERR_INTERNAL, errno, "remove %s", path);
}

/* Ours, and the doors' group's. A gateway that may not give it away runs doors as itself. The group
 * may use it only once it is the doors'. */
static int local_owner(struct server *s, struct err *e)
{
    struct stat st;
    if (lchown(s->socket_path, geteuid(), (gid_t)s->cfg->door.gid) != 0 && errno != EPERM) {
        return err_sys(e, ERR_INTERNAL, errno, "give %s to group %lld", s->socket_path,
                       (long long)s->cfg->door.gid);
    }
    if (chmod(s->socket_path, 0660) != 0 || stat(s->socket_path, &st) != 0) {
        return err_sys(e, ERR_INTERNAL, errno, "%s", s->socket_path);
    }
    s->socket_dev = st.st_dev;
    s->socket_ino = st.st_ino;
    return 0;
}

/* Not by the umask, which is that of the other threads, too: Linux takes an unbound socket's mode. */
static int local_start(struct server *s, const struct sockaddr_un *addr, struct err *e)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return err_sys(e, ERR_INTERNAL, errno, "socket");
    }
    if (fchmod(fd, 0600) != 0 || bind(fd, (const struct sockaddr *)addr, sizeof *addr) != 0) {
        int saved = errno;
        (void)close(fd);
        return err_sys(e, ERR_INTERNAL, saved, "listen on %s", s->socket_path);
    }
    int bad = local_owner(s, e);
    if (bad != 0) {
        (void)close(fd);
    } else {
        bad = listener_start(s, &s->local, fd, e);
    }
    if (bad != 0) {
        s->socket_ino = 0;
        (void)unlink(s->socket_path);
    }
    return bad;
}

int listener_open_local(struct server *s, struct err *e)
{
    struct sockaddr_un addr;
    if (local_path(s, &addr, e) != 0 || stale_remove(s->socket_path, e) != 0) {
        return -1;
    }
    return local_start(s, &addr, e);
}

/* --- its path -------------------------------------------------------------------------------- */

enum path_state { PATH_OURS, PATH_GONE, PATH_OTHER };

/* A bound socket holds its inode: nothing else can have its number. */
static enum path_state path_look(const struct server *s)
{
    struct stat st;
    if (lstat(s->socket_path, &st) != 0) {
        return PATH_GONE;
    }
    bool ours = s->socket_ino != 0 && st.st_ino == s->socket_ino && st.st_dev == s->socket_dev;
    return ours ? PATH_OURS : PATH_OTHER;
}

static int local_restore(struct server *s, struct err *e)
{
    struct sockaddr_un addr;
    const char *dir = s->cfg->run_dir;
    bool made = mkdir(dir, 0711) == 0;
    if ((!made && errno != EEXIST) || (made && chmod(dir, 0711) != 0)) {
        return err_sys(e, ERR_INTERNAL, errno, "make %s", dir);
    }
    return local_path(s, &addr, e) != 0 ? -1 : local_start(s, &addr, e);
}

static void path_lost(struct server *s, const struct err *e)
{
    if (!atomic_exchange(&s->socket_lost, true)) {
        log_error(s->log, "control_socket_lost", e);
    }
}

void listener_check_local(struct server *s)
{
    struct err e;
    if (s->local.fd < 0) {
        return;
    }
    switch (path_look(s)) {
    case PATH_OURS:
        atomic_store(&s->socket_lost, false);
        return;
    case PATH_OTHER:
        err_set(&e, ERR_INTERNAL, "%s is not the socket of this gateway", s->socket_path);
        path_lost(s, &e);
        return;
    case PATH_GONE:
        break;
    }
    if (local_restore(s, &e) != 0) {
        path_lost(s, &e);
        return;
    }
    atomic_store(&s->socket_lost, false);
    log_event(s->log, LOG_WARNING, "control_socket_restored", LF_STR("path", s->socket_path));
}

/* --- the end --------------------------------------------------------------------------------- */

/* Another gateway may have put its own socket there since. */
static void path_remove(struct server *s)
{
    if (path_look(s) == PATH_OURS) {
        (void)unlink(s->socket_path);
    }
    s->socket_ino = 0;
}

void listener_close(struct listener *l)
{
    if (l->fd < 0) {
        return;
    }
    listener_stop(l);
    if (l->local) {
        path_remove(l->server);
    }
}
