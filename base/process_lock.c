#include <errno.h>
#include <poll.h>
#include <sys/file.h>

#include "leasehold/process.h"

#define TRIES  100
#define TRY_MS 10

int process_lock(int fd)
{
    for (int i = 0; i < TRIES; i++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0)
            return 0;
        if (errno != EWOULDBLOCK && errno != EINTR)
            return -1;
        poll(NULL, 0, TRY_MS);
    }
    errno = EWOULDBLOCK;
    return -1;
}
