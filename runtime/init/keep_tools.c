/*
 * The sandbox of the user's tools, and its way back when leasetools in it is killed. It is started with the
 * agent's, and the gateway takes what it has opened (tool_link.h). A later one finds file and directory of the
 * socket taken: they are given to its uid once more, when nothing of the one before is left that could use them,
 * and taken back as soon as it says that it is ready. It serves no sooner.
 *
 * Each time in a row is later than the one before, and after TRIES_MAX of them there are no more.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "keep.h"
#include "leasehold/tool_link.h"
#include "mono.h"

#define TRIES_MAX 6
#define FIRST_MS  200    /* behind its end; then twice as much each time */
#define STOOD_MS  300000 /* then an end is the first in a row */
#define READY_MS  5000
#define LOOK_MS   5

/* ---- what it writes ---- */

/* Where leasekeep has it. NULL: it is not in the spec. */
static const char *source_of(const struct keep_spec *s, const char *target)
{
    for (size_t i = 0; i < s->binds_n; i++)
        if (strcmp(s->binds[i].target, target) == 0)
            return s->binds[i].source;
    return NULL;
}

static int path_in_dir(const struct keep_spec *s, const char *name, char ret[static PATH_MAX])
{
    const char *dir = source_of(s, TOOL_DIR);
    int n = dir != NULL ? snprintf(ret, PATH_MAX, "%s/%s", dir, name) : -1;
    return n > 0 && n < PATH_MAX ? 0 : -1;
}

/* There as long as it would come back: lease-tool tells by it. */
static void mark(const struct keep_spec *s, bool there)
{
    char path[PATH_MAX];
    if (path_in_dir(s, strrchr(TOOL_AGAIN, '/') + 1, path) < 0)
        return;
    int fd = there ? open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0444) : unlink(path);
    if (there && fd >= 0)
        close(fd);
}

static bool is_taken(const struct keep_spec *s)
{
    const char *dir = source_of(s, TOOL_DIR), *runs = source_of(s, TOOL_RUNS);
    struct stat d, r;
    return dir != NULL && runs != NULL && stat(dir, &d) == 0 && stat(runs, &r) == 0 &&
           d.st_uid != s->uid && r.st_uid != s->uid;
}

static int64_t runs_bytes(const struct keep_spec *s)
{
    struct stat st;
    return stat(source_of(s, TOOL_RUNS), &st) == 0 ? st.st_size : -1;
}

/* As tools_box_make() of the gateway. */
static int give(const struct keep_spec *s)
{
    const char *dir = source_of(s, TOOL_DIR), *runs = source_of(s, TOOL_RUNS);
    const uid_t uid = (uid_t)s->uid;
    const gid_t gid = (gid_t)s->gid;
    char socket[PATH_MAX];
    if (path_in_dir(s, strrchr(TOOL_SOCKET, '/') + 1, socket) < 0 ||
        (unlink(socket) < 0 && errno != ENOENT))
        return -1;
    return chown(dir, uid, gid) < 0 || chown(runs, uid, gid) < 0 || chmod(runs, 0200) < 0 ? -1 : 0;
}

/* As tools_box_take(): whatever came of it. The mode goes first, as leasetools begins by the owner. */
static int take(const struct keep_spec *s)
{
    const char *dir = source_of(s, TOOL_DIR), *runs = source_of(s, TOOL_RUNS);
    int r = chmod(runs, 0600);
    if (chown(runs, 0, 0) < 0)
        r = -1;
    return chown(dir, 0, 0) < 0 ? -1 : r;
}

/* ---- start ---- */

void tools_missing(struct keep_tools *t, const char *why)
{
    char text[160];
    snprintf(text, sizeof(text), "%s\n", why);
    if (t->spec != NULL)
        mark(t->spec, false);
    files_write_tools(text);
    log_note(t->place.log, "no sandbox for the user's tools: %s", why);
    spec_free_beside(&t->spec);
    t->phase = TOOLS_NONE;
}

static int fork_tools(struct keep_tools *t, const struct keep_bwrap *b, struct fault *f)
{
    pid_t parent = getpid();
    int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    t->bwrap = null_fd < 0 ? -1 : fork();
    if (t->bwrap == 0)
        launch_child(&t->place, b, t->spec, null_fd, parent);
    if (t->bwrap < 0)
        fault_sys(f, "cannot fork");
    if (null_fd >= 0)
        close(null_fd);
    if (t->bwrap > 0)
        return 0;
    t->bwrap = 0;
    return -1;
}

static int launch(struct keep_tools *t, struct fault *f)
{
    struct keep_bwrap b = {.args_fd = -1};
    int r = bwrap_prepare(&b, t->spec, t->place.cgroups->missing, -1, f);
    if (r == 0)
        r = fork_tools(t, &b, f);
    bwrap_release(&b);
    t->since_ms = mono_ms();
    return r;
}

void tools_start(struct keep_tools *t, struct keep_spec *spec, const struct keep_place *place)
{
    struct fault why;
    *t = (struct keep_tools){.place = *place, .spec = spec, .phase = TOOLS_SERVE};
    mark(spec, true);
    if (launch(t, &why) < 0)
        tools_missing(t, why.text);
}

/* ---- its end, and again ---- */

static void plan(struct keep_tools *t)
{
    int64_t now_ms = mono_ms();
    if (t->phase == TOOLS_SERVE && now_ms - t->since_ms >= STOOD_MS)
        t->tries = 0;
    if (t->tries == TRIES_MAX) {
        tools_missing(t, "it has ended too often");
        return;
    }
    int64_t wait_ms = (int64_t)FIRST_MS << t->tries++;
    t->phase = TOOLS_AWAY;
    t->at_ms = now_ms + wait_ms;
    log_note(t->place.log,
             "the sandbox of the user's tools has ended; it is started again in %lld ms",
             (long long)wait_ms);
}

void tools_reaped(struct keep_tools *t, pid_t pid, bool ending)
{
    if (pid != t->bwrap || t->phase == TOOLS_NONE)
        return;
    t->bwrap = 0;
    if (t->phase == TOOLS_BEGUN && take(t->spec) < 0)
        tools_missing(t, "what it writes cannot be taken back");
    else if (ending || !is_taken(t->spec)) /* the gateway is told why */
        tools_missing(t, "it has ended");
    else
        plan(t);
}

/* When bwrap was killed, its child is ours and may be on its way out still. */
static void begin(struct keep_tools *t, const pid_t *spared, size_t spared_n)
{
    struct fault why;
    if (kill_children_but(spared, spared_n) > 0) {
        plan(t);
        return;
    }
    t->phase = TOOLS_BEGUN;
    t->runs_bytes = runs_bytes(t->spec);
    if (t->runs_bytes >= 0 && give(t->spec) == 0 && launch(t, &why) == 0) {
        t->at_ms = mono_ms() + LOOK_MS;
        return;
    }
    if (take(t->spec) < 0)
        tools_missing(t, "what it writes cannot be taken back");
    else
        plan(t);
}

static void look_ready(struct keep_tools *t)
{
    int64_t now_ms = mono_ms();
    t->at_ms = now_ms + LOOK_MS;
    if (runs_bytes(t->spec) >= t->runs_bytes + (int64_t)TOOL_RECORD && take(t->spec) == 0) {
        t->phase = TOOLS_SERVE;
        t->since_ms = now_ms;
        log_note(t->place.log, "the sandbox of the user's tools is there again");
    } else if (now_ms - t->since_ms >= READY_MS) {
        kill(t->bwrap, SIGKILL); /* its end brings us to the next try */
    }
}

void tools_end(struct keep_tools *t)
{
    if (t->phase == TOOLS_BEGUN)
        (void)take(t->spec);
    spec_free_beside(&t->spec);
    t->phase = TOOLS_NONE;
}

int64_t tools_next_ms(const struct keep_tools *t)
{
    return t->phase == TOOLS_AWAY || t->phase == TOOLS_BEGUN ? t->at_ms : 0;
}

void tools_look(struct keep_tools *t, const pid_t *spared, size_t spared_n)
{
    int64_t next_ms = tools_next_ms(t);
    if (next_ms == 0 || mono_ms() < next_ms)
        return;
    if (t->phase == TOOLS_AWAY)
        begin(t, spared, spared_n);
    else
        look_ready(t);
}
