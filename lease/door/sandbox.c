#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "loop.h"
#include "spec.h"

#define AGENT_BACKLOG 64
#define LOG_MAX_BYTES (1024 * 1024)
#define FD_LIMIT      (LOOP_FD_MAX + 24)

/* The group of agent.sock is the agent's, so that it can connect and nobody else can. It gets its
 * name when all of this is so: leaseinit may be waiting for it already. */
static int agent_listen(const struct door_spec *spec, int *ret_fd, struct err *e)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    char name[sizeof(addr.sun_path)];
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    mode_t mask;
    int r;

    if (fd < 0)
        return err_sys(e, ERR_INTERNAL, errno, "no socket for the agent");
    snprintf(name, sizeof(name), "%s/box/agent.sock", ID_STR(&spec->session_id));
    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/agent.new", ID_STR(&spec->session_id));
    mask = umask(0117);
    r = bind(fd, (const struct sockaddr *)&addr, sizeof(addr));
    umask(mask);
    if (r || lchown(addr.sun_path, (uid_t)-1, (gid_t)spec->agent_gid) ||
        listen(fd, AGENT_BACKLOG) || rename(addr.sun_path, name)) {
        err_sys(e, ERR_INTERNAL, errno, "cannot listen on agent.sock");
        close(fd);
        return -1;
    }
    *ret_fd = fd;
    return 0;
}

/* Field 22 of /proc/self/stat; the name in field 2 may hold anything, so count from its end. */
static int start_ticks(long long *ret, struct err *e)
{
    char stat[1024];
    const char *at;
    ssize_t n;
    int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return err_sys(e, ERR_INTERNAL, errno, "/proc/self/stat");
    n = read(fd, stat, sizeof(stat) - 1);
    close(fd);
    stat[n > 0 ? n : 0] = '\0';
    at = strrchr(stat, ')');
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    if (!at || sscanf(at, " %lld", ret) != 1)
        return err_set(e, ERR_INTERNAL, "/proc/self/stat is not readable");
    return 0;
}

/* The lock lives as long as this process; its descriptor is never closed. */
static int pid_file_take(const struct door_spec *spec, struct err *e)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    char path[ID_TEXT + sizeof("/" DOOR_PID_FILE)];
    long long ticks;
    int fd;

    if (start_ticks(&ticks, e))
        return -1;
    snprintf(path, sizeof(path), "%s/%s", ID_STR(&spec->session_id), DOOR_PID_FILE);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0)
        return err_sys(e, ERR_INTERNAL, errno, "cannot open %s", DOOR_PID_FILE);
    if (fcntl(fd, F_SETLK, &lock) || ftruncate(fd, 0) ||
        dprintf(fd, "%d %lld\n", (int)getpid(), ticks) < 0)
        return err_sys(e, ERR_CONFLICT, errno, "cannot take %s", DOOR_PID_FILE);
    return 0;
}

/* Lowers a limit; one that is lower already stays. `hard`: it cannot be raised again. */
static int lower(int resource, rlim_t most, bool hard, struct err *e)
{
    struct rlimit limit;

    if (getrlimit((__rlimit_resource_t)resource, &limit))
        return err_sys(e, ERR_INTERNAL, errno, "getrlimit");
    limit.rlim_cur = limit.rlim_max < most ? limit.rlim_max : most;
    if (hard)
        limit.rlim_max = limit.rlim_cur;
    if (setrlimit((__rlimit_resource_t)resource, &limit))
        return err_sys(e, ERR_INTERNAL, errno, "setrlimit");
    return 0;
}

/* A door is one process: what has subverted one cannot become many, each with its own share of what a
 * process may have at the gateway. LeakSanitizer looks from a process of its own. */
#ifdef __SANITIZE_ADDRESS__
#define FORKS_MAX RLIM_INFINITY
#else
#define FORKS_MAX 0
#endif

/* Only the log and the spool are written from here on, so the file size limit is the log's; the
 * spool lifts it for its own writes (spool.c). SIGXFSZ is ignored: a write past it just fails. */
static int limits_set(const struct door_spec *spec, struct err *e)
{
    return lower(RLIMIT_NPROC, FORKS_MAX, true, e) || lower(RLIMIT_CORE, 0, true, e) ||
                   lower(RLIMIT_NOFILE, FD_LIMIT, true, e) ||
                   lower(RLIMIT_FSIZE, LOG_MAX_BYTES, !spec->record, e)
               ? -1
               : 0;
}

static int privileges_drop(const struct door_spec *spec, struct err *e)
{
    uid_t u = (uid_t)spec->uid, r, eff, saved;
    gid_t g = (gid_t)spec->gid, gr, geff, gsaved;

    if (geteuid() == 0) {
        if (setgroups(0, NULL) || setresgid(g, g, g) || setresuid(u, u, u))
            return err_sys(e, ERR_INTERNAL, errno, "cannot become uid %u gid %u", u, g);
        if (getresuid(&r, &eff, &saved) || getresgid(&gr, &geff, &gsaved) || r != u || eff != u ||
            saved != u || gr != g || geff != g || gsaved != g)
            return err_set(e, ERR_INTERNAL, "still not uid %u gid %u", u, g);
    }
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0))
        return err_sys(e, ERR_INTERNAL, errno, "prctl");
    return 0;
}

int sandbox_enter(const struct door_spec *spec, struct log *log, int *ret_agent_fd, struct err *e)
{
    int agent_fd = -1;

    if (close_range(spec->record ? DOOR_SPOOL_FD + 1 : DOOR_LISTENER_FD + 1, ~0u, 0))
        return err_sys(e, ERR_INTERNAL, errno, "close_range");
    if (agent_listen(spec, &agent_fd, e) || pid_file_take(spec, e))
        return -1;
    /* Sockets that are open already go on working; nothing new can reach a network. */
    if (unshare(CLONE_NEWNET))
        log_event(log, LOG_WARNING, "no_network_namespace", LF_INT("errno", errno));
    if (limits_set(spec, e) || privileges_drop(spec, e))
        return -1;
    *ret_agent_fd = agent_fd;
    return 0;
}
