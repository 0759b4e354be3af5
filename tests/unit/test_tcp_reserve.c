/* Room for a last frame on a connection that takes nothing more. */
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "leasehold/tcp_reserve.h"

#define LAST (64 * 1024) /* the rest of a frame, and a Close */

/* ret[0] accepted by a listener that keeps the reserve, ret[1] its peer, which reads nothing. */
static void connection(int ret[static 2])
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int small = 4096, listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(bind(listener, (struct sockaddr *)&at, len), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &len), 0);
    tcp_reserve_keep(listener);
    ret[1] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(setsockopt(ret[1], SOL_SOCKET, SO_RCVBUF, &small, sizeof small), 0);
    assert_int_equal(connect(ret[1], (struct sockaddr *)&at, len), 0);
    ret[0] = accept(listener, NULL, NULL);
    assert_true(ret[0] >= 0);
    close(listener);
}

/* Bytes taken, until none is any more for a while. */
static size_t fill(int fd)
{
    static const char zeros[16384];
    size_t n = 0;

    for (int idle = 0; idle < 5;) {
        ssize_t r = send(fd, zeros, sizeof zeros, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (r > 0) {
            n += (size_t)r;
            idle = 0;
            continue;
        }
        assert_int_equal(errno, EAGAIN);
        idle++;
        usleep(5000);
    }
    return n;
}

static void assert_room_for_the_last(int fd)
{
    char last[LAST] = {0};
    size_t n = 0;

    tcp_reserve_use(fd);
    while (n < LAST) {
        ssize_t r = send(fd, last + n, LAST - n, MSG_DONTWAIT | MSG_NOSIGNAL);
        assert_true(r > 0);
        n += (size_t)r;
    }
}

static void there_is_room_once_many_bytes_wait(void **state)
{
    int fds[2];

    (void)state;
    connection(fds);
    fill(fds[0]);
    assert_room_for_the_last(fds[0]);
    close(fds[0]);
    close(fds[1]);
}

static void there_is_room_behind_a_small_buffer_of_the_kernels(void **state)
{
    int fds[2], small = 16384;

    (void)state;
    connection(fds);
    assert_int_equal(setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof small), 0);
    fill(fds[0]);
    assert_room_for_the_last(fds[0]);
    close(fds[0]);
    close(fds[1]);
}

static void sockets_of_another_kind_stay_as_they_are(void **state)
{
    int fds[2], before, after;
    socklen_t len = sizeof before;

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    assert_int_equal(getsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &before, &len), 0);
    tcp_reserve_keep(fds[0]);
    tcp_reserve_use(fds[0]);
    assert_int_equal(getsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &after, &len), 0);
    assert_int_equal(before, after);
    close(fds[0]);
    close(fds[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_is_room_once_many_bytes_wait),
        cmocka_unit_test(there_is_room_behind_a_small_buffer_of_the_kernels),
        cmocka_unit_test(sockets_of_another_kind_stay_as_they_are),
    };
    return cmocka_run_group_tests_name("tcp_reserve", tests, NULL, NULL);
}
