/*
 * The last word on a TCP connection whose peer does not read: while what waits is many bytes, the kernel
 * takes less of it than it could, so that there is room left for the frame that says why it ends. It
 * arrives when the peer reads, also after our end is closed. On a socket of another kind both do nothing.
 */
#ifndef LEASEHOLD_TCP_RESERVE_H
#define LEASEHOLD_TCP_RESERVE_H

void tcp_reserve_keep(int fd); /* of a listener: of all that it accepts */
void tcp_reserve_use(int fd);

#endif
