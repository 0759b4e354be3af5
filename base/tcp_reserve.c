#include "leasehold/tcp_reserve.h"

#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#define UNSENT_MAX (256 * 1024)
#define SEND_MORE  (208 * 1024) /* the most that Linux allows by default; it counts double */

void tcp_reserve_keep(int fd)
{
    int unsent = UNSENT_MAX;

    (void)setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof(unsent));
}

/* A send buffer that has not grown to more than UNSENT_MAX yet was full before that came to hold. */
void tcp_reserve_use(int fd)
{
    int unsent = INT_MAX, more = SEND_MORE, size;
    socklen_t len = sizeof(size);

    if (setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof(unsent)) == 0 &&
        getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, &len) == 0 && size < 2 * SEND_MORE) {
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &more, sizeof(more));
    }
}
