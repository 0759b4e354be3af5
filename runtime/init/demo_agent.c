/*
 * The agent of the default profile: what comes in on stdin goes out on stdout, byte for byte, so a
 * line may have any length and any content. Ends with status 0 at end of file and on SIGTERM.
 */
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

#define CHUNK_SIZE 65536

static void on_term(int sig)
{
    (void)sig;
    _exit(0);
}

static int write_all(const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = write(STDOUT_FILENO, data, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        data += n;
        len -= (size_t)n;
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        fprintf(stderr, "usage: demo-agent\nEchoes each line; it takes no words: %s\n", argv[1]);
        return 2;
    }
    struct sigaction term = {.sa_handler = on_term};
    if (sigaction(SIGTERM, &term, NULL) < 0) {
        perror("demo-agent: sigaction");
        return 1;
    }
    char chunk[CHUNK_SIZE];
    for (;;) {
        ssize_t n = read(STDIN_FILENO, chunk, sizeof(chunk));
        if (n == 0)
            return 0;
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 || write_all(chunk, (size_t)n) < 0) {
            perror("demo-agent");
            return 1;
        }
    }
}
