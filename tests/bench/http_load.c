/*
 * Asks a server for each of a list of paths once, over kept-alive connections of one thread each:
 *
 *   http_load HOST PORT PATHS CONNECTIONS [HEADER] [METHOD BODY]
 *
 * PATHS: a file with a path a line. HEADER: a further header line. Prints {seconds, requests, bytes};
 * an answer that is not 2xx ends it.
 */
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define THREADS_MAX 256
#define HEAD_MAX    8192
#define READ_SIZE   (1024 * 1024)

struct load {
    struct sockaddr_in to;
    char **paths;
    size_t n;
    atomic_size_t next;
    atomic_llong bytes;
    const char *header, *method, *body;
};

static void die(const char *what)
{
    (void)fprintf(stderr, "http_load: %s\n", what);
    exit(1);
}

static int dial(const struct load *l)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    if (fd < 0 || connect(fd, (const struct sockaddr *)&l->to, sizeof l->to) != 0) {
        die("cannot connect");
    }
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

static void ask(const struct load *l, int fd, const char *path)
{
    char head[HEAD_MAX];
    int n = snprintf(
        head, sizeof head, "%s %s HTTP/1.1\r\nHost: bench\r\n%s%sContent-Length: %zu\r\n\r\n%s",
        l->method, path, l->header, l->header[0] != '\0' ? "\r\n" : "", strlen(l->body), l->body);
    if (n >= (int)sizeof head || send(fd, head, (size_t)n, MSG_NOSIGNAL) != n) {
        die("cannot send");
    }
}

/* Reads one answer to its end; the bytes of its body. */
static long long take(int fd, char *data)
{
    size_t have = 0;
    char *end = NULL;
    while (end == NULL) {
        ssize_t n = recv(fd, data + have, HEAD_MAX - have, 0);
        if (n <= 0) {
            die("the server has closed");
        }
        have += (size_t)n;
        data[have] = '\0';
        end = strstr(data, "\r\n\r\n");
    }
    const char *length = strcasestr(data, "content-length:");
    if (data[9] != '2' || length == NULL) {
        die(data);
    }
    long long size = strtoll(length + 15, NULL, 10),
              left = size - (long long)(data + have - end - 4);
    while (left > 0) {
        ssize_t n = recv(fd, data, READ_SIZE, 0);
        if (n <= 0) {
            die("the server has closed");
        }
        left -= n;
    }
    return size;
}

static void *work(void *arg)
{
    struct load *l = arg;
    char *data = malloc(READ_SIZE + 1);
    int fd = dial(l);
    for (size_t i = atomic_fetch_add(&l->next, 1); i < l->n; i = atomic_fetch_add(&l->next, 1)) {
        ask(l, fd, l->paths[i]);
        atomic_fetch_add(&l->bytes, take(fd, data));
    }
    (void)close(fd);
    free(data);
    return NULL;
}

static void read_paths(struct load *l, const char *file)
{
    FILE *in = fopen(file, "r");
    size_t size = 0;
    char *line = NULL;
    if (in == NULL) {
        die("cannot read the paths");
    }
    while (getline(&line, &size, in) > 0) {
        line[strcspn(line, "\n")] = '\0';
        l->paths = realloc(l->paths, (l->n + 1) * sizeof *l->paths);
        l->paths[l->n++] = strdup(line);
    }
    free(line);
    (void)fclose(in);
}

static double now_s(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
    static struct load l = {.header = "", .method = "GET", .body = ""};
    pthread_t threads[THREADS_MAX];
    if (argc < 5) {
        die("usage: http_load HOST PORT PATHS CONNECTIONS [HEADER] [METHOD BODY]");
    }
    l.to = (struct sockaddr_in){.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)atoi(argv[2])),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    read_paths(&l, argv[3]);
    int n = atoi(argv[4]);
    n = n < 1 ? 1 : n > THREADS_MAX ? THREADS_MAX : n;
    l.header = argc > 5 ? argv[5] : "";
    l.method = argc > 7 ? argv[6] : "GET";
    l.body = argc > 7 ? argv[7] : "";
    double begin = now_s();
    for (int i = 0; i < n; i++) {
        if (pthread_create(&threads[i], NULL, work, &l) != 0) {
            die("no thread");
        }
    }
    for (int i = 0; i < n; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    printf("{\"seconds\": %.6f, \"requests\": %zu, \"bytes\": %lld}\n", now_s() - begin, l.n,
           atomic_load(&l.bytes));
    return 0;
}
