#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "keep.h"

#define PAUSE_NS 2000000L

long long proc_stat_field(pid_t pid, int field)
{
    char path[64], text[1024];
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t n = read(fd, text, sizeof(text) - 1);
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    char *p = strrchr(text, ')');
    for (int at = 2; p != NULL && at < field; at++)
        p = strchr(p + 1, ' ');
    return p != NULL ? strtoll(p + 1, NULL, 10) : -1;
}

static bool is_among(pid_t pid, const pid_t *pids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (pids[i] == pid)
            return true;
    return false;
}

/* A child cannot be another process before we reap it, so its pid is safe to signal. */
size_t kill_children_but(const pid_t *spared, size_t spared_n)
{
    DIR *proc = opendir("/proc");
    size_t n = 0;
    for (struct dirent *d; proc != NULL && (d = readdir(proc)) != NULL;) {
        pid_t pid = (pid_t)strtol(d->d_name, NULL, 10);
        if (pid <= 0 || is_among(pid, spared, spared_n) || proc_stat_field(pid, 4) != getpid())
            continue;
        kill(pid, SIGKILL);
        n++;
    }
    if (proc != NULL)
        closedir(proc);
    return n;
}

void reap_all_but(pid_t spared)
{
    for (;;) {
        pid_t pid;
        while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
            ;
        if (pid < 0 || kill_children_but(&spared, 1) == 0)
            return;
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
    }
}
