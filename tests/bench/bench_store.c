/*
 * Durable writes a second of the store: a lease granted (row, log entry, audit entry, event, next
 * seq) by one thread after the other, and by many at once whose writes share commits.
 *
 *     bench_store [DIRECTORY [SECONDS [THREADS]]]     prints one line of JSON
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "leasehold/clock.h"
#include "leasehold/store.h"

#define SAMPLES_MAX 2000000

struct bench {
    struct store *store;
    struct id user_id, chat_id, session_id;
    int64_t end_us;
};

struct thread {
    pthread_t id;
    struct bench *bench;
    int64_t *samples_us;
    size_t n, max;
};

static void die(const struct err *e)
{
    fprintf(stderr, "bench_store: %s\n", e->msg);
    exit(1);
}

static int add_session(struct store_tx *tx, void *arg, struct err *e)
{
    struct bench *b = arg;
    struct workspace w;
    bool made;
    id_random(&b->user_id);
    id_random(&b->chat_id);
    id_random(&b->session_id);
    if (store_workspace_touch(tx, &b->user_id, &w, &made, e) != 0) {
        return -1;
    }
    struct chat c = {.chat_id = b->chat_id, .user_id = b->user_id, .workspace_id = w.workspace_id};
    struct sandbox s = {.session_id = b->session_id,
                        .chat_id = b->chat_id,
                        .user_id = b->user_id,
                        .workspace_id = w.workspace_id,
                        .generation = 1,
                        .status = SANDBOX_RUNNING};
    return store_chat_insert(tx, &c, e) == 0 ? store_sandbox_insert(tx, &s, e) : -1;
}

static int grant(struct store_tx *tx, void *arg, struct err *e)
{
    struct bench *b = arg;
    struct lease l = {.session_id = b->session_id,
                      .chat_id = b->chat_id,
                      .user_id = b->user_id,
                      .scope = SCOPE_READ | SCOPE_WRITE,
                      .max_connections = 1,
                      .issued_at = store_now_ms(tx)};
    struct audit_entry a = {.at = l.issued_at,
                            .actor = "bench",
                            .action = "lease.grant",
                            .object = "lease",
                            .outcome = "ok"};
    struct store_event ev = {.name = "lease.granted",
                             .user_id = b->user_id,
                             .chat_id = b->chat_id,
                             .session_id = b->session_id};
    char data[320];
    id_random(&l.lease_id);
    if (store_session_next_seq(tx, &l.session_id, &l.grant_seq, e) != 0 ||
        store_lease_insert(tx, &l, e) != 0) {
        return -1;
    }
    snprintf(data, sizeof(data),
             "{\"lease_id\":\"%s\",\"session_id\":\"%s\",\"chat_id\":\"%s\",\"user_id\":\"%s\","
             "\"expires_at\":\"2026-11-29T00:00:00.000Z\",\"reason\":\"\"}",
             ID_STR(&l.lease_id), ID_STR(&l.session_id), ID_STR(&l.chat_id), ID_STR(&l.user_id));
    ev.data = data;
    if (store_event_append(tx, &ev, e) != 0) {
        return -1;
    }
    return store_audit(tx, &a, e);
}

static void *write_until_end(void *arg)
{
    struct thread *t = arg;
    int64_t at = clock_boot_us(&clock_system);
    while (at < t->bench->end_us && t->n < t->max) {
        struct err e;
        if (store_write(t->bench->store, grant, t->bench, &e) != 0) {
            die(&e);
        }
        int64_t now = clock_boot_us(&clock_system);
        t->samples_us[t->n++] = now - at;
        at = now;
    }
    return NULL;
}

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

struct figures {
    double per_s;
    int64_t p50_us, p99_us;
};

static struct figures run(struct bench *b, size_t threads_n, int64_t seconds)
{
    int64_t *samples = calloc(SAMPLES_MAX, sizeof(*samples));
    struct thread *threads = calloc(threads_n, sizeof(*threads));
    if (samples == NULL || threads == NULL) {
        exit(1);
    }
    size_t share = SAMPLES_MAX / threads_n, n = 0;
    int64_t start_us = clock_boot_us(&clock_system);
    b->end_us = start_us + seconds * 1000000;
    for (size_t i = 0; i < threads_n; i++) {
        threads[i] = (struct thread){.bench = b, .samples_us = samples + i * share, .max = share};
        pthread_create(&threads[i].id, NULL, write_until_end, &threads[i]);
    }
    for (size_t i = 0; i < threads_n; i++) {
        pthread_join(threads[i].id, NULL);
        memmove(samples + n, threads[i].samples_us, threads[i].n * sizeof(*samples));
        n += threads[i].n;
    }
    double elapsed_s = (double)(clock_boot_us(&clock_system) - start_us) / 1e6;
    qsort(samples, n, sizeof(*samples), compare);
    struct figures f = {
        .per_s = (double)n / elapsed_s, .p50_us = samples[n / 2], .p99_us = samples[n * 99 / 100]};
    free(threads);
    free(samples);
    return f;
}

/* What the disk takes for one flush: the floor of a commit. */
static double measure_fdatasync_us(const char *dir)
{
    enum { N = 200 };
    char path[512], block[4096] = {0};
    snprintf(path, sizeof(path), "%s/flush", dir);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) {
        exit(1);
    }
    int64_t start_us = clock_boot_us(&clock_system);
    for (int i = 0; i < N; i++) {
        if (pwrite(fd, block, sizeof(block), (off_t)(i % 16) * 4096) < 0 || fdatasync(fd) != 0) {
            exit(1);
        }
    }
    int64_t took_us = clock_boot_us(&clock_system) - start_us;
    close(fd);
    unlink(path);
    return (double)took_us / N;
}

int main(int argc, char **argv)
{
    const char *parent = argc > 1 ? argv[1] : "/tmp";
    int64_t seconds = argc > 2 ? atoll(argv[2]) : 3;
    size_t threads = argc > 3 ? (size_t)atoll(argv[3]) : 64;
    char dir[256], path[300];
    snprintf(dir, sizeof(dir), "%s/bench-store-XXXXXX", parent);
    if (mkdtemp(dir) == NULL || threads == 0) {
        return 1;
    }
    snprintf(path, sizeof(path), "%s/lh.db", dir);
    struct log *log = log_new(STDERR_FILENO, LOG_ERROR, LOG_TEXT);
    struct bench b = {0};
    struct store_options o = {.path = path, .log = log};
    struct err e;
    double flush_us = measure_fdatasync_us(dir);
    if (store_open(&o, &b.store, &e) != 0 || store_write(b.store, add_session, &b, &e) != 0) {
        die(&e);
    }
    struct figures one = run(&b, 1, seconds), many = run(&b, threads, seconds);
    store_close(b.store);
    log_free(log);
    printf("{\"bench\":\"store\",\"fdatasync_us\":%.0f,\"one_per_s\":%.0f,\"one_p50_us\":%lld,"
           "\"one_p99_us\":%lld,\"threads\":%zu,\"many_per_s\":%.0f,\"many_p50_us\":%lld,"
           "\"many_p99_us\":%lld}\n",
           flush_us, one.per_s, (long long)one.p50_us, (long long)one.p99_us, threads, many.per_s,
           (long long)many.p50_us, (long long)many.p99_us);
    static const char *const suffixes[] = {"", "-wal", "-shm", ".lock"};
    for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
        char file[320];
        snprintf(file, sizeof(file), "%s%s", path, suffixes[i]);
        unlink(file);
    }
    rmdir(dir);
    return 0;
}
