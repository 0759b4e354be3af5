#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "keep.h"

/* Field 22 of /proc/PID/stat; the name in field 2 may hold anything, so count from its last ')'. */
static long long start_ticks(pid_t pid)
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
    for (int field = 2; p != NULL && field < 22; field++)
        p = strchr(p + 1, ' ');
    return p != NULL ? strtoll(p + 1, NULL, 10) : -1;
}

static int write_text(int fd, const char *text)
{
    size_t len = strlen(text);
    return write(fd, text, len) == (ssize_t)len ? 0 : -1;
}

int files_claim(struct fault *f)
{
    int fd = open(KEEP_PID_FILE, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return fault_sys(f, "cannot open " KEEP_PID_FILE);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(fd, F_SETLK, &lock) < 0) {
        fault_sys(f, "another leasekeep runs here");
        close(fd);
        return -1;
    }
    char text[64];
    snprintf(text, sizeof(text), "%d %lld\n", getpid(), start_ticks(getpid()));
    if (ftruncate(fd, 0) < 0 || write_text(fd, text) < 0)
        return fault_sys(f, "cannot write " KEEP_PID_FILE);
    return 0;
}

static int replace_file(const char *name, const char *text)
{
    char temporary[64];
    snprintf(temporary, sizeof(temporary), "%s.new", name);
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -1;
    int r = write_text(fd, text);
    close(fd);
    return r == 0 ? rename(temporary, name) : -1;
}

int files_write_init(pid_t init)
{
    char text[64];
    snprintf(text, sizeof(text), "%d %lld\n", init, start_ticks(init));
    return replace_file(KEEP_INIT_FILE, text);
}

int files_write_groups(const char *dirs, size_t len)
{
    char text[KEEP_GROUP_DIRS_SIZE + 1];
    memcpy(text, dirs, len);
    for (size_t i = 0; i < len; i++)
        if (text[i] == '\0')
            text[i] = '\n';
    text[len] = '\0';
    return replace_file(KEEP_GROUPS_FILE, text);
}

int files_write_state(const char *text)
{
    return replace_file(KEEP_STATE_FILE, text);
}

int files_write_tools(const char *text)
{
    return replace_file(KEEP_TOOLS_FILE, text);
}
