#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "keep.h"

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
    snprintf(text, sizeof(text), "%d %lld\n", getpid(), proc_stat_field(getpid(), 22));
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
    snprintf(text, sizeof(text), "%d %lld\n", init, proc_stat_field(init, 22));
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
