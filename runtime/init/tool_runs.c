#include "tool_runs.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "mono.h"

int tool_runs_open(void)
{
    int fd = open(TOOL_RUNS, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW);
    return fd >= 0 && tool_runs_add(fd, TOOL_IS_READY, TOOL_OK, "") == 0 ? fd : -1;
}

bool tool_runs_taken(int fd)
{
    struct stat file, dir;
    return fstat(fd, &file) == 0 && stat(TOOL_DIR, &dir) == 0 && file.st_uid != getuid() &&
           dir.st_uid != getuid();
}

/* Records never straddle a block, so none is written in part. */
int tool_runs_add(int fd, enum tool_record_what what, enum tool_how how, const char *name)
{
    struct tool_record r = {
        .at_ms = clock_ms(CLOCK_REALTIME), .what = (uint8_t)what, .how = (uint8_t)how};
    struct stat st;
    snprintf(r.name, sizeof(r.name), "%s", name);
    if (what == TOOL_BEGUN && (fstat(fd, &st) < 0 || st.st_blocks > TOOL_RUNS_MAX / 512))
        return -1;
    return write(fd, &r, sizeof(r)) == (ssize_t)sizeof(r) ? 0 : -1;
}
