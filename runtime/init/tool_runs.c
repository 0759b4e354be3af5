#include "tool_runs.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "mono.h"

int tool_runs_open(void)
{
    int fd = open(TOOL_RUNS, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW);
    return fd >= 0 && tool_runs_add(fd, &(struct tool_record){.what = TOOL_IS_READY}) == 0 ? fd
                                                                                           : -1;
}

bool tool_runs_taken(int fd)
{
    struct stat file, dir;
    return fstat(fd, &file) == 0 && stat(TOOL_DIR, &dir) == 0 && file.st_uid != getuid() &&
           dir.st_uid != getuid();
}

/* Records never straddle a block, so none is written in part. */
int tool_runs_add(int fd, struct tool_record *r)
{
    struct stat st;
    r->at_ms = clock_ms(CLOCK_REALTIME);
    if (r->what == TOOL_BEGUN && (fstat(fd, &st) < 0 || st.st_blocks > TOOL_RUNS_MAX / 512))
        return -1;
    return write(fd, r, sizeof(*r)) == (ssize_t)sizeof(*r) ? 0 : -1;
}
