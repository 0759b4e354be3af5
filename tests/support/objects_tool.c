/*
 * One operation on an object store, for the contract suite, its faults and the benchmarks:
 *
 *     objects_tool kind=disk dir=DIR COMMAND …
 *     objects_tool kind=s3 endpoint=URL region=R bucket=B access_key=K secret=S [NAME=VALUE …] COMMAND …
 *
 *     put KEY TOKEN [LENGTH]   stdin becomes the object; without a length it is not told to the store
 *     get KEY [OFFSET LENGTH]  to stdout
 *     head KEY | del KEY | list PREFIX | uploads PREFIX | abort KEY UPLOAD | check
 *     presign KEY SECONDS [DISPOSITION TYPE]
 *     link KEY EXPIRES SIGNATURE [DISPOSITION TYPE]   does it hold for the disk store?
 *     many PREFIX N LENGTH THREADS   N objects of a generator, by so many threads
 *
 * Answers are lines of JSON; a failure is "code: message" on stderr and status 1. begun=kill has the
 * process die by SIGKILL when an upload was begun, before its first part; with by_place=1 and sha256=HEX
 * stdin is a file that is read where it is needed.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "leasehold/json.h"
#include "leasehold/objects.h"

struct tool {
    struct objects *store;
    const char *kind, *dir, *sha256;
    bool kill_when_begun, by_place;
    struct objects_s3_options s3;
    int64_t size_seen;
};

static int option(struct tool *t, char *arg)
{
    char *value = strchr(arg, '=');
    const struct {
        const char *name;
        const char **to;
    } texts[] = {{"kind", &t->kind},
                 {"dir", &t->dir},
                 {"endpoint", &t->s3.endpoint},
                 {"public_endpoint", &t->s3.public_endpoint},
                 {"region", &t->s3.region},
                 {"bucket", &t->s3.bucket},
                 {"access_key", &t->s3.access_key},
                 {"secret", &t->s3.secret},
                 {"ca_file", &t->s3.ca_file},
                 {"sha256", &t->sha256}};
    *value++ = '\0';
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (strcmp(texts[i].name, arg) == 0) {
            *texts[i].to = value;
            return 0;
        }
    long long n = atoll(value);
    if (strcmp(arg, "path_style") == 0)
        t->s3.path_style = n != 0;
    else if (strcmp(arg, "tries") == 0)
        t->s3.tries = (unsigned)n;
    else if (strcmp(arg, "backoff_ms") == 0)
        t->s3.backoff_ms = n;
    else if (strcmp(arg, "stall_ms") == 0)
        t->s3.stall_ms = n;
    else if (strcmp(arg, "parallel") == 0)
        t->s3.parallel = (unsigned)n;
    else if (strcmp(arg, "part_bytes") == 0)
        t->s3.part_bytes = (size_t)n;
    else if (strcmp(arg, "memory_bytes") == 0)
        t->s3.memory_bytes = (size_t)n;
    else if (strcmp(arg, "multipart_at") == 0)
        t->s3.multipart_at = n;
    else if (strcmp(arg, "part_bytes_most") == 0)
        t->s3.part_bytes_most = (size_t)n;
    else if (strcmp(arg, "signing") == 0)
        t->s3.signing = (enum objects_s3_signing)n;
    else if (strcmp(arg, "by_place") == 0)
        t->by_place = n != 0;
    else if (strcmp(arg, "begun") == 0)
        t->kill_when_begun = strcmp(value, "kill") == 0;
    else
        return -1;
    return 0;
}

static void print_text(const char *name, const char *text)
{
    struct buf b;
    buf_init(&b, 65536);
    json_add_string(&b, text, strlen(text));
    printf("\"%s\": %s", name, b.data);
    buf_done(&b);
}

static void print_info(const struct object_info *info)
{
    printf("{\"size_bytes\": %lld, ", (long long)info->size_bytes);
    print_text("token", info->token);
    printf(", ");
    print_text("sha256", info->sha256);
    printf("}\n");
}

/* --- put -------------------------------------------------------------------------------------- */

static ssize_t read_stdin(void *ctx, char *ret, size_t size, struct err *e)
{
    (void)ctx;
    ssize_t n = read(STDIN_FILENO, ret, size);
    return n >= 0 ? n : err_sys(e, ERR_INVALID_REQUEST, errno, "cannot read");
}

static ssize_t read_stdin_at(void *ctx, char *ret, size_t size, int64_t at, struct err *e)
{
    (void)ctx;
    ssize_t n = pread(STDIN_FILENO, ret, size, at);
    return n >= 0 ? n : err_sys(e, ERR_INVALID_REQUEST, errno, "cannot read");
}

static int on_begun(void *ctx, const char *upload_id, struct err *e)
{
    const struct tool *t = ctx;
    (void)e;
    fprintf(stderr, "upload %s\n", upload_id);
    if (t->kill_when_begun)
        raise(SIGKILL);
    return 0;
}

static void on_progress(void *ctx, int64_t sent)
{
    struct tool *t = ctx;
    if (sent < t->size_seen)
        abort();
    t->size_seen = sent;
}

static int put(struct tool *t, char **args, int n, struct err *e)
{
    struct object_info info;
    const struct object_put p = {.key = args[0],
                                 .token = args[1],
                                 .content_type = "text/x-test; charset=utf-8",
                                 .len = n > 2 ? atoll(args[2]) : -1,
                                 .sha256 = t->sha256,
                                 .ctx = t,
                                 .read = read_stdin,
                                 .read_at = t->by_place ? read_stdin_at : NULL,
                                 .begun = on_begun,
                                 .progress = on_progress};
    if (t->store->v->put(t->store, &p, &info, e))
        return -1;
    if (t->size_seen != info.size_bytes)
        return err_set(e, ERR_INTERNAL, "the progress ended at %lld", (long long)t->size_seen);
    print_info(&info);
    return 0;
}

/* --- get -------------------------------------------------------------------------------------- */

static int write_stdout(void *ctx, const char *data, size_t len, struct err *e)
{
    (void)ctx;
    while (len > 0) {
        ssize_t n = write(STDOUT_FILENO, data, len);
        if (n < 0)
            return err_sys(e, ERR_INTERNAL, errno, "cannot write");
        data += n;
        len -= (size_t)n;
    }
    return 0;
}

static int get(struct tool *t, char **args, int n, struct err *e)
{
    const struct object_get g = {.key = args[0],
                                 .offset = n > 1 ? atoll(args[1]) : 0,
                                 .len = n > 2 ? atoll(args[2]) : -1,
                                 .write = write_stdout};
    return t->store->v->get(t->store, &g, e);
}

/* --- the others -------------------------------------------------------------------------------- */

static int head(struct tool *t, char **args, int n, struct err *e)
{
    struct object_info info;
    (void)n;
    if (t->store->v->head(t->store, args[0], &info, e))
        return -1;
    print_info(&info);
    return 0;
}

static int del(struct tool *t, char **args, int n, struct err *e)
{
    (void)n;
    return t->store->v->del(t->store, args[0], e);
}

static int presign(struct tool *t, char **args, int n, struct err *e)
{
    const struct object_presign p = {.key = args[0],
                                     .origin = "http://gateway",
                                     .disposition = n > 2 ? args[2] : NULL,
                                     .content_type = n > 3 ? args[3] : NULL,
                                     .now_s = (int64_t)time(NULL),
                                     .expires_s = atoll(args[1])};
    struct buf url;
    buf_init(&url, 65536);
    int rc = t->store->v->presign(t->store, &p, &url, e);
    if (!rc)
        printf("%s\n", url.data);
    buf_done(&url);
    return rc;
}

static int link_holds(struct tool *t, char **args, int n, struct err *e)
{
    const struct objects_link l = {.expires_s = atoll(args[1]),
                                   .signature = args[2],
                                   .disposition = n > 3 ? args[3] : NULL,
                                   .content_type = n > 4 ? args[4] : NULL};
    return objects_disk_link(t->store, args[0], &l, (int64_t)time(NULL), e);
}

static int print_upload(void *ctx, const struct object_upload *u, struct err *e)
{
    (void)ctx;
    (void)e;
    printf("{");
    print_text("key", u->key);
    printf(", ");
    print_text("upload_id", u->upload_id);
    printf(", \"started_at\": %lld}\n", (long long)u->started_at);
    return 0;
}

static int uploads(struct tool *t, char **args, int n, struct err *e)
{
    (void)n;
    return t->store->v->uploads(t->store, args[0], print_upload, NULL, e);
}

static int print_key(void *ctx, const char *key, struct err *e)
{
    (void)ctx;
    (void)e;
    return puts(key) >= 0 ? 0 : -1;
}

static int list(struct tool *t, char **args, int n, struct err *e)
{
    (void)n;
    return t->store->v->list(t->store, args[0], print_key, NULL, e);
}

static int abort_upload(struct tool *t, char **args, int n, struct err *e)
{
    (void)n;
    return t->store->v->abort(t->store, args[0], args[1], e);
}

static int check(struct tool *t, char **args, int n, struct err *e)
{
    (void)args;
    (void)n;
    return t->store->v->check(t->store, e);
}

/* --- many -------------------------------------------------------------------------------------- */

struct load {
    struct tool *t;
    const char *prefix;
    int64_t len;
    _Atomic int64_t next, failed;
    int64_t n;
};

static ssize_t generate(void *ctx, char *ret, size_t size, struct err *e)
{
    int64_t *left = ctx;
    size_t n = *left < (int64_t)size ? (size_t)*left : size;
    (void)e;
    memset(ret, (int)(*left & 0xff), n);
    *left -= (int64_t)n;
    return (ssize_t)n;
}

static void *load_run(void *arg)
{
    struct load *l = arg;
    char key[256];
    struct object_info info;
    struct err e;
    for (int64_t i; (i = l->next++) < l->n;) {
        int64_t left = l->len;
        snprintf(key, sizeof key, "%s%lld", l->prefix, (long long)i);
        const struct object_put p = {.key = key,
                                     .token = "many",
                                     .content_type = "application/octet-stream",
                                     .len = l->len,
                                     .ctx = &left,
                                     .read = generate};
        if (l->t->store->v->put(l->t->store, &p, &info, &e)) {
            fprintf(stderr, "%s: %s\n", err_code_name(e.code), e.msg);
            l->failed++;
        }
    }
    return NULL;
}

static int many(struct tool *t, char **args, int n, struct err *e)
{
    struct load l = {.t = t, .prefix = args[0], .n = atoll(args[1]), .len = atoll(args[2])};
    pthread_t threads[64];
    struct rusage used;
    int started = 0, want = n > 3 ? atoi(args[3]) : 1;
    while (started < want && started < 64 &&
           pthread_create(&threads[started], NULL, load_run, &l) == 0)
        started++;
    while (started > 0)
        pthread_join(threads[--started], NULL);
    getrusage(RUSAGE_SELF, &used);
    printf("{\"failed\": %lld, \"memory_bytes\": %lld}\n", (long long)l.failed,
           (long long)used.ru_maxrss * 1024);
    return l.failed == 0 ? 0 : err_set(e, ERR_OBJECT_STORE_UNAVAILABLE, "some failed");
}

/* --- main -------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    int least, most;
    int (*run)(struct tool *t, char **args, int n, struct err *e);
} commands[] = {{"put", 2, 3, put},     {"get", 1, 3, get},         {"head", 1, 1, head},
                {"del", 1, 1, del},     {"presign", 2, 4, presign}, {"link", 3, 5, link_holds},
                {"list", 1, 1, list},   {"uploads", 1, 1, uploads}, {"abort", 2, 2, abort_upload},
                {"check", 0, 0, check}, {"many", 3, 4, many}};

static int run(struct tool *t, char **args, int n, struct err *e)
{
    for (size_t i = 0; n > 0 && i < sizeof commands / sizeof commands[0]; i++)
        if (strcmp(commands[i].name, args[0]) == 0 && n - 1 >= commands[i].least &&
            n - 1 <= commands[i].most)
            return commands[i].run(t, args + 1, n - 1, e);
    return err_set(e, ERR_INVALID_REQUEST, "usage: see tests/support/objects_tool.c");
}

int main(int argc, char **argv)
{
    struct tool t = {.kind = "disk", .s3 = {.region = "us-east-1", .path_style = true}};
    struct err e;
    int at = 1;
    signal(SIGPIPE, SIG_IGN);
    while (at < argc && strchr(argv[at], '=') && strchr(argv[at], '/') != argv[at])
        if (option(&t, argv[at++]))
            return 2;
    int rc = strcmp(t.kind, "s3") == 0 ? objects_s3_new(&t.s3, &t.store, &e)
                                       : objects_disk_new(t.dir, &t.store, &e);
    if (!rc) {
        rc = run(&t, argv + at, argc - at, &e);
        t.store->v->free(t.store);
    }
    if (rc)
        fprintf(stderr, "%s: %s\n", err_code_name(e.code), e.msg);
    fflush(stdout);
    return rc ? 1 : 0;
}
