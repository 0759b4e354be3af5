/*
 * A WebSocket agent that answers each message by the same one, as cheaply as it can: what the door
 * costs beside it is what the bench is about.
 *
 *     ws_echo PORT       one process a connection, on 127.0.0.1
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <openssl/evp.h>
#include <openssl/sha.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ws_frame.h"

#define BUFFER  (256u * 1024u)
#define HEADERS 16384u

static int write_all(int fd, const void *data, size_t len)
{
    const char *p = data;

    while (len > 0) {
        ssize_t n = send(fd, p, len, MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -1;
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

static void accept_key(const char *key, size_t len, char ret[static 32])
{
    static const char guid[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    unsigned char text[128], digest[SHA_DIGEST_LENGTH];

    memcpy(text, key, len);
    memcpy(text + len, guid, sizeof guid - 1);
    SHA1(text, len + sizeof guid - 1, digest);
    EVP_EncodeBlock((unsigned char *)ret, digest, sizeof digest);
}

static int shake(int fd)
{
    static const char name[] = "\r\nSec-WebSocket-Key:";
    char in[HEADERS], out[256], accept[32];
    size_t n = 0, len;
    char *key;

    for (in[0] = '\0'; !strstr(in, "\r\n\r\n"); in[n] = '\0') {
        ssize_t got = recv(fd, in + n, sizeof in - 1 - n, 0);

        if (got <= 0)
            return -1;
        n += (size_t)got;
    }
    key = strcasestr(in, name);
    if (!key)
        return -1;
    key += sizeof name - 1;
    key += strspn(key, " ");
    len = strcspn(key, "\r ");
    if (len > 64)
        return -1;
    accept_key(key, len, accept);
    n = (size_t)snprintf(out, sizeof out,
                         "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                         "Connection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n",
                         accept);
    return write_all(fd, out, n);
}

/* A frame's payload goes back in the pieces in which it came, behind one head. */
static int echo_frame(int fd, uint8_t *buffer, size_t *held, const struct frame_head *head)
{
    uint8_t out[FRAME_HEAD_MAX];
    uint64_t done = 0;

    if (write_all(fd, out, frame_head_put(out, head->first, head->len, NULL)))
        return -1;
    memmove(buffer, buffer + head->size, *held -= head->size);
    while (done < head->len) {
        size_t n = *held < head->len - done ? *held : (size_t)(head->len - done);
        ssize_t got;

        if (n > 0) {
            if (head->masked)
                frame_unmask(buffer, n, head->mask, done);
            if (write_all(fd, buffer, n))
                return -1;
            done += n;
            memmove(buffer, buffer + n, *held -= n);
            continue;
        }
        got = recv(fd, buffer, BUFFER, 0);
        if (got <= 0)
            return -1;
        *held = (size_t)got;
    }
    return (head->first & 0x0f) == OPCODE_CLOSE ? -1 : 0;
}

static void serve(int fd)
{
    uint8_t *buffer = malloc(BUFFER);
    struct frame_head head;
    size_t held = 0;

    if (!buffer || shake(fd))
        return;
    for (;;) {
        ssize_t got;

        if (frame_head_get(buffer, held, &head)) {
            if (echo_frame(fd, buffer, &held, &head))
                return;
            continue;
        }
        got = recv(fd, buffer + held, BUFFER - held, 0);
        if (got <= 0)
            return;
        held += (size_t)got;
    }
}

int main(int argc, char **argv)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

    if (argc != 2)
        return 2;
    address.sin_port = htons((uint16_t)atoi(argv[1]));
    signal(SIGCHLD, SIG_IGN);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 64)) {
        perror("ws_echo");
        return 1;
    }
    for (;;) {
        int fd = accept(listener, NULL, NULL);

        if (fd < 0)
            continue;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        if (fork() == 0) {
            serve(fd);
            _exit(0);
        }
        close(fd);
    }
}
