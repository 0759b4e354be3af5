/*
 * leasekeep's inner parts. The program is single-threaded and static; every part reports what went
 * wrong as a struct fault, which becomes the detail in keep.state.
 */
#ifndef INIT_KEEP_H
#define INIT_KEEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "leasehold/keep_spec.h"

/* ---- faults ---- */

struct fault {
    char text[120]; /* one line */
};

/* Both return -1. fault_sys appends the text of errno. */
int fault_set(struct fault *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int fault_sys(struct fault *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ---- keep_spec.c ---- */

#define KEEP_HELPERS_MAX 16
#define KEEP_BINDS_MAX   128
#define KEEP_SOURCES_MAX (1 + KEEP_HELPERS_MAX + KEEP_BINDS_MAX)
#define KEEP_STAGED      32 /* bytes of a path */
#define KEEP_ENV_MAX     512
#define KEEP_ARGS_MAX    512

struct keep_bind {
    const char *source;
    const char *target; /* of a helper: its name below BOX_DIR */
    bool writable;
    bool mapped; /* what is the agent's looks like the tools' own */
};

struct keep_env {
    const char *name, *value;
};

struct keep_spec {
    char *text; /* all strings point into it */
    size_t text_size;
    const char *session, *root, *box, *cwd, *transport;
    uint64_t uid, gid, memory_bytes, pids, cpus_milli, grace_ms, max_ms, own_pids;
    struct keep_bind helpers[KEEP_HELPERS_MAX];
    size_t helpers_n;
    struct keep_bind binds[KEEP_BINDS_MAX];
    size_t binds_n;
    struct keep_env env[KEEP_ENV_MAX];
    size_t env_n;
    const char *args[KEEP_ARGS_MAX];
    size_t args_n;
    /* Paths that stand for the sources once they are staged. */
    char staged[KEEP_SOURCES_MAX][KEEP_STAGED];
    /* Of the user's tools, with a text of its own; NULL: there are none. */
    struct keep_spec *beside;
    bool is_beside;
};

/* Reads all of `fd`. It may hold secrets: see spec_forget(). */
int spec_read(struct keep_spec *s, int fd, struct fault *f);

/* Parses `len` bytes of records in `text` (malloced, KEEP_SPEC_MAX + 1 bytes, taken). What is beside it gets
 * a copy of its own: it outlives the rest, which may hold secrets. */
int spec_parse(struct keep_spec *s, char *text, size_t len, struct fault *f);

/* Wipes the spec but for its numbers; what is beside it goes. */
void spec_forget(struct keep_spec *s);
void spec_free_beside(struct keep_spec **s);

/* ---- keep_files.c: what the gateway reads, in the current directory ---- */

/* Locks and writes keep.pid. The descriptor stays open, and the file is never opened again, for as
 * long as the process lives: closing it would drop the lock. */
int files_claim(struct fault *f);
int files_write_init(pid_t init);
int files_write_state(const char *text);
int files_write_tools(const char *text);
/* `dirs`: NUL-terminated, one after the other. */
int files_write_groups(const char *dirs, size_t len);

/* ---- keep_reap.c ---- */

/* A number of /proc/PID/stat, behind field 2: the name there may hold anything, so it is counted from
 * its last ')'. 4: the parent; 22: the start, in ticks. -1: no such process. */
long long proc_stat_field(pid_t pid, int field);

/* Kills and reaps every child but `spared`, until there is none. As subreaper these are also the
 * orphans of a bwrap that was killed. */
void reap_all_but(pid_t spared);

/* KILL to each of our children but these. How many there are of them still, dead ones that nobody has waited
 * for among them. */
size_t kill_children_but(const pid_t *spared, size_t spared_n);

/* ---- keep_log.c ---- */

struct keep_log {
    int read_fd;  /* the pipe that is stderr of bwrap and everything below it */
    int write_fd; /* for what is started; -1: nothing will be any more */
    int file_fd, times_fd;
    size_t written, marks; /* in the files of now */
    unsigned number;       /* of keep.log */
    int64_t marked_ms;
    char last_line[120]; /* the last one seen, for the reason of a failed start */
    size_t last_len;
    bool last_ended;
};

int log_open(struct keep_log *l, struct fault *f);
void log_close_writer(struct keep_log *l);
void log_pump(struct keep_log *l); /* takes what is in the pipe, so that writers never block */
void log_note(struct keep_log *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ---- keep_mounts.c ---- */

/* Checks every source of the spec; as root also moves into a private mount namespace in which each
 * checked object is mounted below a directory that any uid can reach, and points the spec there. What
 * is beside it may fail alone: `why` says so, and it is forgotten. */
int mounts_stage(struct keep_spec *s, struct fault *f, struct fault *why);

struct keep_ids {
    uint64_t uid, gid;
};

/* Mounts `source`, checked, on `target` in the mount namespace that we are in: what is `from` on the disk
 * looks like `to` there, and the reverse. */
int mounts_map(const char *source, const char *target, struct keep_ids from, struct keep_ids to,
               struct fault *f);

/* ---- keep_idmap.c ---- */

/* A user namespace for a mount in which what is `from` on the disk looks like `to`, and the reverse. The
 * descriptor, -1 with errno. */
int idmap_open(struct keep_ids from, struct keep_ids to);

/* ---- keep_guard.c ---- */

#define KEEP_CGROUPS_MAX     4
#define KEEP_PATH_SIZE       512
#define KEEP_GROUP_DIRS_SIZE (KEEP_CGROUPS_MAX * KEEP_PATH_SIZE)

struct keep_guard {
    pid_t pid;                       /* and process group; 0 once reaped */
    int pidfd;                       /* -1: none */
    int pipe;                        /* the sign of our life */
    bool noted;                      /* tell the gateway of the groups, too */
    char dirs[KEEP_GROUP_DIRS_SIZE]; /* of the groups, NUL-terminated, one after the other */
    size_t dirs_len;
};

/* The guard itself gives up the spec. */
int guard_start(struct keep_guard *g, struct keep_spec *s, struct fault *f);
int guard_tell(struct keep_guard *g, const char *dir); /* before a control group is made */
int guard_join(const struct keep_guard *g);            /* in the child */

/* Removes the control groups and ends the guard, both within about a second. Groups that resist for
 * so long are left to the guard. */
void guard_finish(struct keep_guard *g);

/* ---- keep_cgroup.c ---- */

enum keep_limit { LIMIT_MEMORY, LIMIT_PIDS, LIMIT_CPU, LIMITS };

extern const char *const keep_limit_names[LIMITS];

struct keep_cgroups {
    struct {
        char dir[KEEP_PATH_SIZE];
        int procs_fd; /* cgroup.procs, for the child to join */
    } group[KEEP_CGROUPS_MAX];
    size_t n;
    char v2_parent[KEEP_PATH_SIZE]; /* "": not decided */
    int oom_fd;                     /* of the file with the `oom_kill` counter, -1: none */
    bool missing[LIMITS];           /* wanted, but no control group holds it */
};

/* Makes groups for the limits that this machine lets us set; the others are `missing`. */
void cgroups_make(struct keep_cgroups *c, struct keep_guard *g, const struct keep_spec *s);
int cgroups_join(const struct keep_cgroups *c); /* in the child; -1 with errno */
bool cgroups_oom_killed(const struct keep_cgroups *c);

/* ---- keep_counts.c ---- */

/* Lowers what the sandbox with this process may take of the kernel's accounts by uid. Does not wait;
 * the child that does it, which is returned, is reaped with the others. */
pid_t counts_limit(int pidfd);

/* ---- keep_seccomp.c ---- */

/* A memory file with the system call filter of every agent, for bwrap --seccomp. */
int seccomp_filter_file(void);

/* ---- keep_bwrap.c ---- */

#define KEEP_FILES_MAX 8

/* A ready bwrap command line: the options in a memory file, files whose descriptors they name. */
struct keep_bwrap {
    int args_fd;
    int info_fd; /* bwrap writes its child's pid here; -1: not asked */
    int files[KEEP_FILES_MAX];
    size_t files_n;
    char args_text[16];
    char limit_text[2][40]; /* words for leaseinit */
    const char *argv[KEEP_ARGS_MAX + 16];
};

/* `init_limits`: run the agent below leaseinit, which sets those of the spec's limits that are true
 * here; what is beside it gets them as its last words. NULL: run the command itself. */
int bwrap_prepare(struct keep_bwrap *b, const struct keep_spec *s, const bool *init_limits,
                  int info_fd, struct fault *f);
void bwrap_release(struct keep_bwrap *b);

/* ---- keep_launch.c ---- */

/* Gives up every privilege and becomes bwrap; stdio is already in place. Returns only on failure,
 * with a message on stderr. `parent`: ends with it. */
void launch_bwrap(const struct keep_bwrap *b, const struct keep_spec *s, pid_t parent);

/* What every sandbox of the session is started into. */
struct keep_place {
    struct keep_log *log;
    struct keep_guard *guard;
    struct keep_cgroups *cgroups;
};

/* In a child, which does not come back: joins the groups, then becomes bwrap. stdout leads nowhere, stderr to
 * the log. */
_Noreturn void launch_child(const struct keep_place *place, const struct keep_bwrap *b,
                            const struct keep_spec *s, int stdin_fd, pid_t parent);

/* ---- keep_tools.c ---- */

/* The sandbox of the user's tools beside the agent's, which does not depend on it (docs/adr/0010). */
enum keep_tools_phase {
    TOOLS_NONE,  /* or no more */
    TOOLS_SERVE, /* the first one, which the gateway takes; or a later one, taken */
    TOOLS_AWAY,  /* its time comes to be started again */
    TOOLS_BEGUN, /* again, and is not ready yet */
};

struct keep_tools {
    struct keep_place place;
    struct keep_spec *spec; /* NULL: NONE */
    enum keep_tools_phase phase;
    pid_t bwrap;        /* 0: it does not run */
    int64_t at_ms;      /* of the next look; AWAY, BEGUN */
    int64_t since_ms;   /* of its start; SERVE, BEGUN */
    int64_t runs_bytes; /* of TOOL_RUNS before that; BEGUN */
    unsigned tries;     /* in a row */
};

/* `spec`: taken. */
void tools_start(struct keep_tools *t, struct keep_spec *spec, const struct keep_place *place);
void tools_missing(struct keep_tools *t, const char *why);

/* One of our children has ended: was it theirs? `ending`: they are not started again. */
void tools_reaped(struct keep_tools *t, pid_t pid, bool ending);

/* All processes have ended. */
void tools_end(struct keep_tools *t);

/* When the next look is due; 0: never. `spared`: children of ours that are not of their sandbox. */
int64_t tools_next_ms(const struct keep_tools *t);
void tools_look(struct keep_tools *t, const pid_t *spared, size_t spared_n);

#endif
