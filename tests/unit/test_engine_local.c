/* Engine `local` through its vtable, with real sandboxes: needs root and bubblewrap. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "leasehold/engine.h"
#include "leasehold/keep_spec.h"
#include "leasehold/process.h"

#define AGENT_UID 10001

struct fixture {
    struct config cfg;
    struct config_profile profile;
    struct engine *engine;
    struct engine_spec spec;
    char root[64], run[128], box[160];
    int listener;
};

static const char *bin_dir(char ret[static 512])
{
    ssize_t n = readlink("/proc/self/exe", ret, 511);
    assert_true(n > 0);
    ret[n] = '\0';
    *strrchr(ret, '/') = '\0';
    return ret;
}

/* Stands for the door: leaseinit's connection waits in the backlog. */
static int listen_at(const char *box)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(addr.sun_path, sizeof(addr.sun_path), "%.80s/agent.sock", box);
    assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(chmod(addr.sun_path, 0666), 0);
    assert_int_equal(listen(fd, 8), 0);
    return fd;
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    char dir[512];
    struct err e;
    if (geteuid() != 0)
        fail_msg("run the tests as root: the engine drops to another uid");
    strcpy(f->root, "/tmp/test-engine-XXXXXX");
    assert_non_null(mkdtemp(f->root));
    f->cfg.run_dir = f->root;
    f->cfg.sandbox.uid = f->cfg.sandbox.gid = AGENT_UID;
    if (engine_local_new(&f->cfg, bin_dir(dir), &f->engine, &e) < 0)
        fail_msg("engine_local_new: %s", e.msg);
    id_random(&f->spec.session_id);
    snprintf(f->run, sizeof(f->run), "%s/%s", f->root, ID_STR(&f->spec.session_id));
    snprintf(f->box, sizeof(f->box), "%s/box", f->run);
    assert_int_equal(mkdir(f->run, 0700), 0);
    assert_int_equal(mkdir(f->box, 0755), 0);
    f->listener = listen_at(f->box);
    f->profile.transport = strdup("stdio");
    f->profile.name = strdup("default");
    f->spec.run_path = f->run;
    f->spec.box_path = f->box;
    f->spec.profile = &f->profile;
    f->spec.uid = f->spec.gid = AGENT_UID;
    f->spec.cwd = "/workspace";
    f->spec.grace_ms = 2000;
    f->spec.timeout_ms = 20000;
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    char command[128];
    f->engine->v->free(f->engine);
    close(f->listener);
    snprintf(command, sizeof(command), "rm -rf %s", f->root);
    assert_int_equal(system(command), 0);
    free(f->profile.transport);
    free(f->profile.name);
    free(f);
    return 0;
}

static int start(struct fixture *f, const char *const *command, struct engine_handle *h,
                 struct err *e)
{
    size_t n = 0;
    while (command[n] != NULL)
        n++;
    f->profile.command = (struct list){.items = (void *)(uintptr_t)command, .n = n};
    return f->engine->v->start(f->engine, &f->spec, h, e);
}

static void start_ok(struct fixture *f, const char *const *command, struct engine_handle *h)
{
    struct err e;
    if (start(f, command, h, &e) < 0)
        fail_msg("start: %s", e.msg);
}

static struct engine_status status_of(struct fixture *f, const struct engine_handle *h)
{
    struct engine_status s;
    struct err e;
    assert_int_equal(f->engine->v->status(f->engine, f->run, h, &s, &e), 0);
    return s;
}

static void wait_for_end(const struct engine_handle *h)
{
    struct err e;
    int fd = process_open((pid_t)h->pid, h->pid_start, &e);
    if (fd < 0)
        return;
    assert_int_equal(process_wait(fd, 20000), 1);
    close(fd);
}

static const char *const demo[] = {"/run/leasehold/demo-agent", NULL};

static void a_sandbox_starts_is_found_and_stops(void **state)
{
    struct fixture *f = *state;
    struct engine_handle h, found;
    struct err e;
    char expected[80];
    assert_int_equal(f->engine->v->find(f->engine, f->run, &found, &e), -1);
    assert_int_equal(e.code, ERR_NOT_FOUND);
    start_ok(f, demo, &h);
    snprintf(expected, sizeof(expected), "local-%s", ID_STR(&f->spec.session_id));
    assert_string_equal(h.container_id, expected);
    assert_true(h.isolation.netns && h.isolation.userns && h.isolation.seccomp);
    assert_int_equal(h.isolation.uid, AGENT_UID);
    assert_true(status_of(f, &h).alive);
    assert_int_equal(f->engine->v->find(f->engine, f->run, &found, &e), 0);
    assert_string_equal(found.container_id, h.container_id);
    assert_int_equal(found.pid, h.pid);
    assert_int_equal(found.pid_start, h.pid_start);
    assert_int_equal(found.isolation.uid, AGENT_UID);
    assert_int_equal(f->engine->v->stop(f->engine, f->run, &h, 2000, &e), 0);
    assert_false(status_of(f, &h).alive);
    assert_int_equal(f->engine->v->stop(f->engine, f->run, &h, 2000, &e), 0); /* again */
    assert_int_equal(f->engine->v->find(f->engine, f->run, &found, &e), -1);
}

static void the_end_of_the_agent_is_told(void **state)
{
    static const struct {
        const char *script, *reason;
    } cases[] = {{"exit 3", "exited(3)"}, {"kill -TERM $$", "signaled(15)"}};
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct engine_handle h;
        const char *const command[] = {"/bin/sh", "-c", cases[i].script, NULL};
        start_ok(f, command, &h);
        wait_for_end(&h);
        struct engine_status s = status_of(f, &h);
        assert_false(s.alive);
        assert_string_equal(s.reason, cases[i].reason);
    }
}

static void a_killed_supervisor_is_an_engine_lost_and_its_sandbox_is_gone(void **state)
{
    struct fixture *f = *state;
    struct engine_handle h;
    struct err e;
    char path[256];
    int pid;
    long long ticks;
    start_ok(f, demo, &h);
    snprintf(path, sizeof(path), "%s/" KEEP_INIT_FILE, f->run);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%d %lld", &pid, &ticks), 2);
    fclose(file);
    assert_int_equal(process_start_ticks(pid), ticks);
    kill((pid_t)h.pid, SIGKILL);
    wait_for_end(&h);
    assert_string_equal(status_of(f, &h).reason, "engine_lost");
    assert_int_equal(f->engine->v->stop(f->engine, f->run, &h, 0, &e), 0);
    assert_int_equal(process_start_ticks(pid), -1);
}

/* The first of the noted control groups; it must be there. */
static void noted_group(const struct fixture *f, char ret[static 512])
{
    char path[256];
    snprintf(path, sizeof(path), "%s/" KEEP_GROUPS_FILE, f->run);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%511s", ret), 1);
    fclose(file);
    assert_int_equal(access(ret, F_OK), 0);
}

/* By its name, among leasekeep's children. */
static pid_t guard_of(const struct engine_handle *h)
{
    char path[80], name[32];
    int pid;
    bool found = false;
    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)h->pid, (int)h->pid);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    while (!found && fscanf(file, "%d", &pid) == 1) {
        snprintf(path, sizeof(path), "/proc/%d/comm", pid);
        FILE *comm = fopen(path, "re");
        found = comm != NULL && fgets(name, sizeof(name), comm) != NULL &&
                strcmp(name, "leasekeep-guard\n") == 0;
        if (comm != NULL)
            fclose(comm);
    }
    fclose(file);
    assert_true(found);
    return pid;
}

/* Starts one with control groups and kills both who would remove them. */
static void start_and_kill_both(struct fixture *f, struct engine_handle *h, char group[static 512])
{
    f->profile.limits = (struct config_limits){.memory_bytes = 1 << 28, .pids = 64, .cpus = 1};
    start_ok(f, demo, h);
    noted_group(f, group);
    /* In this order: after leasekeep the guard would be at work at once, and leasekeep after it. */
    assert_int_equal(kill((pid_t)h->pid, SIGSTOP), 0);
    assert_int_equal(kill(guard_of(h), SIGKILL), 0);
    assert_int_equal(kill((pid_t)h->pid, SIGKILL), 0);
    wait_for_end(h);
    assert_int_equal(access(group, F_OK), 0);
}

static void with_supervisor_and_guard_killed_a_stop_removes_the_groups(void **state)
{
    struct fixture *f = *state;
    struct engine_handle h;
    struct err e;
    char group[512];
    start_and_kill_both(f, &h, group);
    assert_int_equal(f->engine->v->stop(f->engine, f->run, &h, 0, &e), 0);
    assert_int_equal(access(group, F_OK), -1);
}

static void with_supervisor_and_guard_killed_a_search_removes_the_groups(void **state)
{
    struct fixture *f = *state;
    struct engine_handle h, found;
    struct err e;
    char group[512];
    start_and_kill_both(f, &h, group);
    assert_int_equal(f->engine->v->find(f->engine, f->run, &found, &e), -1);
    assert_int_equal(e.code, ERR_NOT_FOUND);
    assert_int_equal(access(group, F_OK), -1);
}

static void a_noted_directory_of_another_name_is_left_alone(void **state)
{
    struct fixture *f = *state;
    struct engine_handle found;
    struct err e;
    char path[256], other[128];
    snprintf(other, sizeof(other), "%s/leasehold-other", f->root);
    assert_int_equal(mkdir(other, 0700), 0);
    snprintf(path, sizeof(path), "%s/" KEEP_GROUPS_FILE, f->run);
    FILE *file = fopen(path, "we");
    fprintf(file, "%s\n", other);
    fclose(file);
    assert_int_equal(f->engine->v->find(f->engine, f->run, &found, &e), -1);
    assert_int_equal(access(other, F_OK), 0);
}

static void a_stop_without_grace_kills(void **state)
{
    static const char *const stubborn[] = {"/bin/sh", "-c",
                                           "trap '' TERM; while :; do sleep 1; "
                                           "done",
                                           NULL};
    struct fixture *f = *state;
    struct engine_handle h;
    struct err e;
    f->spec.grace_ms = 3600000;
    start_ok(f, stubborn, &h);
    assert_int_equal(f->engine->v->stop(f->engine, f->run, &h, 100, &e), 0);
    assert_false(status_of(f, &h).alive);
}

static void a_failed_start_says_why_and_leaves_nothing(void **state)
{
    struct fixture *f = *state;
    struct engine_handle h = {.pid = 0}, found;
    struct err e;
    f->spec.binds = &(struct engine_bind){.source = "/nowhere", .target = "/opt/dependencies"};
    f->spec.binds_n = 1;
    assert_int_equal(start(f, demo, &h, &e), -1);
    assert_int_equal(e.code, ERR_SANDBOX_START_FAILED);
    assert_non_null(strstr(e.msg, "/opt/dependencies"));
    assert_int_equal(h.pid, 0);
    assert_int_equal(f->engine->v->find(f->engine, f->run, &found, &e), -1);
    f->spec.binds_n = 0;
    start_ok(f, demo, &h); /* the same run directory serves again */
    assert_int_equal(f->engine->v->stop(f->engine, f->run, &h, 1000, &e), 0);
}

static void a_start_out_of_time_is_undone(void **state)
{
    struct fixture *f = *state;
    struct engine_handle h, found;
    struct err e;
    f->spec.timeout_ms = 0;
    int rc = start(f, demo, &h, &e);
    if (rc == 0) { /* under valgrind we may be so slow that it runs when first looked at */
        assert_int_equal(f->engine->v->stop(f->engine, f->run, &h, 1000, &e), 0);
        return;
    }
    assert_int_equal(rc, -1);
    assert_int_equal(e.code, ERR_SANDBOX_START_FAILED);
    assert_int_equal(f->engine->v->find(f->engine, f->run, &found, &e), -1);
}

static void a_spec_that_is_too_long_is_refused(void **state)
{
    struct fixture *f = *state;
    struct engine_handle h;
    struct err e;
    char *big = malloc(KEEP_SPEC_MAX + 1);
    memset(big, 'x', KEEP_SPEC_MAX);
    big[KEEP_SPEC_MAX] = '\0';
    f->spec.env = &(struct engine_env){.name = "BIG", .value = big};
    f->spec.env_n = 1;
    assert_int_equal(start(f, demo, &h, &e), -1);
    assert_int_equal(e.code, ERR_SANDBOX_START_FAILED);
    free(big);
}

static void another_pid_in_the_files_is_not_believed(void **state)
{
    struct fixture *f = *state;
    struct engine_handle found;
    struct err e;
    char path[256];
    snprintf(path, sizeof(path), "%s/" KEEP_PID_FILE, f->run);
    FILE *file = fopen(path, "we");
    fprintf(file, "%d %lld\n", getpid(), (long long)process_start_ticks(getpid()));
    fclose(file);
    assert_int_equal(f->engine->v->find(f->engine, f->run, &found, &e), -1);
    assert_int_equal(e.code, ERR_NOT_FOUND);
}

static void what_is_missing_is_named(void **state)
{
    (void)state;
    struct config cfg = {.sandbox = {.uid = AGENT_UID, .gid = AGENT_UID}};
    struct engine *g;
    struct err e;
    char dir[512];
    assert_int_equal(engine_local_new(&cfg, "/usr/lib", &g, &e), -1);
    assert_int_equal(e.code, ERR_ENGINE_UNAVAILABLE);
    assert_non_null(strstr(e.msg, "leaseinit"));
    cfg.sandbox.uid = 0;
    assert_int_equal(engine_local_new(&cfg, bin_dir(dir), &g, &e), -1);
    assert_non_null(strstr(e.msg, "root"));
}

#define WITH_SANDBOX(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_SANDBOX(a_sandbox_starts_is_found_and_stops),
        WITH_SANDBOX(the_end_of_the_agent_is_told),
        WITH_SANDBOX(a_killed_supervisor_is_an_engine_lost_and_its_sandbox_is_gone),
        WITH_SANDBOX(with_supervisor_and_guard_killed_a_stop_removes_the_groups),
        WITH_SANDBOX(with_supervisor_and_guard_killed_a_search_removes_the_groups),
        WITH_SANDBOX(a_noted_directory_of_another_name_is_left_alone),
        WITH_SANDBOX(a_stop_without_grace_kills),
        WITH_SANDBOX(a_failed_start_says_why_and_leaves_nothing),
        WITH_SANDBOX(a_start_out_of_time_is_undone),
        WITH_SANDBOX(a_spec_that_is_too_long_is_refused),
        WITH_SANDBOX(another_pid_in_the_files_is_not_believed),
        cmocka_unit_test(what_is_missing_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
