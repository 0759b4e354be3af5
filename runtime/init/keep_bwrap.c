/*
 * The sandbox as a bwrap command line. The options travel in a memory file (--args): environment
 * values may be secrets and argv is public.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "keep.h"

#define TMP_BYTES "67108864"
#define SHM_BYTES "16777216"

struct options {
    struct keep_bwrap *b;
    FILE *file;
};

static void option(struct options *o, const char *const *words)
{
    for (; *words != NULL; words++)
        fwrite(*words, 1, strlen(*words) + 1, o->file);
}

#define OPTION(o, ...) option((o), (const char *const[]){__VA_ARGS__, NULL})

/* A descriptor that bwrap is to inherit, as a word. */
static const char *descriptor(struct options *o, int fd, char word[static 16])
{
    snprintf(word, 16, "%d", fd);
    if (fd >= 0 && o->b->files_n < KEEP_FILES_MAX)
        o->b->files[o->b->files_n++] = fd;
    return word;
}

static int memory_file(const char *text)
{
    size_t len = strlen(text);
    int fd = memfd_create("file", MFD_CLOEXEC);
    if (fd >= 0 && (write(fd, text, len) != (ssize_t)len || lseek(fd, 0, SEEK_SET) != 0)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static void add_file(struct options *o, const char *path, const char *text)
{
    char word[16];
    OPTION(o, "--perms", "0444", "--file", descriptor(o, memory_file(text), word), path);
}

static void add_isolation(struct options *o)
{
    OPTION(o, "--unshare-all", "--unshare-user", "--disable-userns", "--new-session",
           "--die-with-parent", "--as-pid-1", "--clearenv", "--hostname", "sandbox");
}

/* Merged-/usr hosts have symlinks here, older ones directories. */
static void add_system(struct options *o)
{
    static const char *const dirs[] = {"bin", "sbin", "lib", "lib64"};
    OPTION(o, "--ro-bind", "/usr", "/usr");
    for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
        char path[16], target[16];
        struct stat st;
        snprintf(path, sizeof(path), "/%s", dirs[i]);
        snprintf(target, sizeof(target), "usr/%s", dirs[i]);
        if (lstat(path, &st) < 0)
            continue;
        if (S_ISLNK(st.st_mode))
            OPTION(o, "--symlink", target, path);
        else
            OPTION(o, "--ro-bind", path, path);
    }
}

static void add_etc(struct options *o, const struct keep_spec *s)
{
    static const char *const shared[] = {"/etc/ld.so.cache", "/etc/alternatives", "/etc/ssl/certs"};
    char text[256];
    unsigned long long uid = s->uid, gid = s->gid;
    snprintf(text, sizeof(text),
             "root:x:0:0:root:/root:/usr/sbin/nologin\n"
             "sandbox:x:%llu:%llu:sandbox:/workspace:/bin/sh\n"
             "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
             uid, gid);
    add_file(o, "/etc/passwd", text);
    snprintf(text, sizeof(text), "root:x:0:\nsandbox:x:%llu:\nnogroup:x:65534:\n", gid);
    add_file(o, "/etc/group", text);
    add_file(o, "/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n");
    add_file(o, "/etc/hosts", "127.0.0.1 localhost sandbox\n::1 localhost\n");
    for (size_t i = 0; i < sizeof(shared) / sizeof(shared[0]); i++)
        OPTION(o, "--ro-bind-try", shared[i], shared[i]);
}

/* /proc/sys again read-only on top: run as root, bwrap's own /proc leaves it writable. The rest is
 * hidden because it tells about the machine or other sandboxes of the same uid. */
static void add_proc(struct options *o)
{
    static const char *const files[] = {"cmdline",       "config.gz",  "diskstats",  "interrupts",
                                        "kallsyms",      "kcore",      "key-users",  "keys",
                                        "latency_stats", "modules",    "partitions", "sched_debug",
                                        "sysrq-trigger", "timer_list", "timer_stats"};
    static const char *const dirs[] = {"acpi", "asound", "bus", "fs", "scsi"};
    char path[32];
    OPTION(o, "--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys");
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        snprintf(path, sizeof(path), "/proc/%s", files[i]);
        if (access(path, F_OK) == 0)
            OPTION(o, "--ro-bind", "/dev/null", path);
    }
    for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
        snprintf(path, sizeof(path), "/proc/%s", dirs[i]);
        if (access(path, F_OK) == 0)
            OPTION(o, "--size", "4096", "--tmpfs", path, "--remount-ro", path);
    }
}

static void add_places(struct options *o, const struct keep_spec *s)
{
    OPTION(o, "--dev", "/dev", "--perms", "1777", "--size", SHM_BYTES, "--tmpfs", "/dev/shm",
           "--remount-ro", "/dev");
    OPTION(o, "--perms", "1777", "--size", TMP_BYTES, "--tmpfs", "/tmp");
    OPTION(o, "--dir", "/workspace");
    if (s->box != NULL)
        OPTION(o, "--ro-bind", s->box, BOX_DIR);
    for (size_t i = 0; i < s->helpers_n; i++) {
        char target[128];
        snprintf(target, sizeof(target), BOX_DIR "/%s", s->helpers[i].target);
        OPTION(o, "--ro-bind", s->helpers[i].source, target);
    }
    for (size_t i = 0; i < s->binds_n; i++)
        OPTION(o, s->binds[i].writable ? "--bind" : "--ro-bind", s->binds[i].source,
               s->binds[i].target);
    OPTION(o, "--remount-ro", "/");
}

static void add_environment(struct options *o, const struct keep_spec *s)
{
    OPTION(o, "--chdir", s->cwd);
    OPTION(o, "--setenv", "PATH", "/usr/local/bin:/usr/bin:/bin");
    OPTION(o, "--setenv", "HOME", "/workspace");
    OPTION(o, "--setenv", "LANG", "C.UTF-8");
    for (size_t i = 0; i < s->env_n; i++)
        OPTION(o, "--setenv", s->env[i].name, s->env[i].value);
}

static size_t add_limits(struct keep_bwrap *b, const struct keep_spec *s, const bool *limits,
                         size_t n)
{
    if (limits[LIMIT_MEMORY]) {
        snprintf(b->limit_text[0], sizeof(b->limit_text[0]), "memory_bytes=%llu",
                 (unsigned long long)s->memory_bytes);
        b->argv[n++] = b->limit_text[0];
    }
    if (limits[LIMIT_PIDS]) {
        snprintf(b->limit_text[1], sizeof(b->limit_text[1]), "pids=%llu",
                 (unsigned long long)s->pids);
        b->argv[n++] = b->limit_text[1];
    }
    return n;
}

static void fill_argv(struct keep_bwrap *b, const struct keep_spec *s, const bool *init_limits)
{
    size_t n = 0;
    snprintf(b->args_text, sizeof(b->args_text), "%d", b->args_fd);
    b->argv[n++] = "bwrap";
    b->argv[n++] = "--args";
    b->argv[n++] = b->args_text;
    b->argv[n++] = "--";
    if (init_limits != NULL && !s->is_beside) {
        b->argv[n++] = BOX_DIR "/leaseinit";
        b->argv[n++] = s->transport;
        n = add_limits(b, s, init_limits, n);
        b->argv[n++] = "--";
    }
    for (size_t i = 0; i < s->args_n; i++)
        b->argv[n++] = s->args[i];
    if (init_limits != NULL && s->is_beside)
        n = add_limits(b, s, init_limits, n);
    b->argv[n] = NULL;
}

/* Writes all options; stdio keeps the first error for the close. */
static void add_all(struct options *o, const struct keep_spec *s, int info_fd)
{
    char word[16];
    add_isolation(o);
    if (info_fd >= 0)
        OPTION(o, "--info-fd", descriptor(o, info_fd, word));
    OPTION(o, "--seccomp", descriptor(o, seccomp_filter_file(), word));
    add_system(o);
    add_etc(o, s);
    add_proc(o);
    add_places(o, s);
    add_environment(o, s);
}

int bwrap_prepare(struct keep_bwrap *b, const struct keep_spec *s, const bool *init_limits,
                  int info_fd, struct fault *f)
{
    const size_t own_files = 6; /* args; filter, passwd, group, nsswitch.conf, hosts */
    char *text = NULL;
    size_t len = 0;
    struct options o = {.b = b, .file = open_memstream(&text, &len)};
    b->info_fd = info_fd;
    b->args_fd = memfd_create("bwrap-args", MFD_CLOEXEC);
    if (b->args_fd >= 0)
        b->files[b->files_n++] = b->args_fd; /* the caller releases it, whatever comes of this */
    if (b->args_fd < 0 || o.file == NULL)
        return fault_sys(f, "cannot prepare bubblewrap");
    add_all(&o, s, info_fd);
    int r = fclose(o.file);
    if (r == 0 && (write(b->args_fd, text, len) != (ssize_t)len || lseek(b->args_fd, 0, 0) != 0))
        r = -1;
    if (r == 0 && b->files_n != own_files + (info_fd >= 0 ? 1 : 0))
        r = -1;
    if (text != NULL)
        explicit_bzero(text, len);
    free(text);
    if (r != 0)
        return fault_sys(f, "cannot prepare bubblewrap");
    fill_argv(b, s, init_limits);
    return 0;
}

void bwrap_release(struct keep_bwrap *b)
{
    for (size_t i = 0; i < b->files_n; i++)
        close(b->files[i]);
    b->files_n = 0;
}
