#include "local_probe.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "local_keep.h"
#include "run_words.h"

#define BWRAP_PATH "/usr/bin/bwrap"

/* -1: there is no such setting on this kernel. */
static long sysctl_read(const char *path)
{
    char text[32] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t n = read(fd, text, sizeof(text) - 1);
    close(fd);
    return n > 0 ? strtol(text, NULL, 10) : -1;
}

static int explain(const char *said, struct err *e)
{
    static const struct {
        const char *path;
        long bad;
        const char *advice;
    } settings[] = {
        {"/proc/sys/user/max_user_namespaces", 0,
         "user namespaces are off: sysctl -w user.max_user_namespaces=15000"},
        {"/proc/sys/kernel/unprivileged_userns_clone", 0,
         "user namespaces are off: sysctl -w kernel.unprivileged_userns_clone=1"},
        {"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", 1,
         "AppArmor keeps bubblewrap from user namespaces: give /usr/bin/bwrap a profile with "
         "`userns`, or set kernel.apparmor_restrict_unprivileged_userns=0"},
    };
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++)
        if (sysctl_read(settings[i].path) == settings[i].bad)
            return err_set(e, ERR_ENGINE_UNAVAILABLE, "%s", settings[i].advice);
    return err_set(e, ERR_ENGINE_UNAVAILABLE, "bubblewrap cannot isolate here: %s",
                   said[0] != '\0' ? said : "it did not say why");
}

static int run_probe(const char *program, int64_t uid, int64_t gid, char *ret_ungrouped,
                     size_t size, struct err *e)
{
    char uid_text[24], gid_text[24], said[128] = "";
    snprintf(uid_text, sizeof(uid_text), "%lld", (long long)uid);
    snprintf(gid_text, sizeof(gid_text), "%lld", (long long)gid);
    const char *const argv[] = {"leasekeep", "--probe", uid_text, gid_text, NULL};
    int status = run_words(argv, program, false, said, sizeof(said), e);
    if (status < 0) {
        e->code = ERR_ENGINE_UNAVAILABLE;
        return -1;
    }
    snprintf(ret_ungrouped, size, "%s", status == 0 ? said : "");
    return status == 0 ? 0 : explain(said, e);
}

/* The capabilities in force, a bit each; all when they cannot be read. */
static uint64_t capabilities(void)
{
    char line[128];
    unsigned long long bits = ~0ull;
    FILE *file = fopen("/proc/self/status", "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        if (sscanf(line, "CapEff: %llx", &bits) == 1)
            break;
    if (file != NULL)
        fclose(file);
    return bits;
}

/* A root that lacks some of them, as in a container, fails at some later step with a bare EPERM. */
static int check_root(struct err *e)
{
    static const struct {
        const char *name;
        int number;
    } needed[] = {{"CHOWN", CAP_CHOWN},     {"DAC_OVERRIDE", CAP_DAC_OVERRIDE},
                  {"FOWNER", CAP_FOWNER},   {"KILL", CAP_KILL},
                  {"SETGID", CAP_SETGID},   {"SETUID", CAP_SETUID},
                  {"SETPCAP", CAP_SETPCAP}, {"SYS_ADMIN", CAP_SYS_ADMIN}};
    uint64_t has = capabilities();
    for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++)
        if ((has >> needed[i].number & 1) == 0)
            return err_set(
                e, ERR_ENGINE_UNAVAILABLE,
                "root without CAP_%s cannot start sandboxes: give it that capability, or "
                "run leasehold as an ordinary user",
                needed[i].name);
    return 0;
}

int local_probe(const char *bin_dir, int64_t uid, int64_t gid, char *ret_ungrouped, size_t size,
                struct err *e)
{
    static const char *const programs[] = {"leaseinit",  "demo-agent", "lease-artifact",
                                           "lease-tool", "leasetools", "leasekeep"};
    char path[PATH_MAX];
    for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++)
        if (keep_path(bin_dir, programs[i], path, sizeof(path)) < 0 || access(path, X_OK) < 0)
            return err_set(e, ERR_ENGINE_UNAVAILABLE, "%s is not beside leasehold: build it",
                           programs[i]);
    if (access(BWRAP_PATH, X_OK) < 0)
        return err_set(e, ERR_ENGINE_UNAVAILABLE,
                       BWRAP_PATH " is missing: apt-get install -y bubblewrap");
    if (uid <= 0 && geteuid() == 0)
        return err_set(e, ERR_ENGINE_UNAVAILABLE, "sandbox.uid must not be root's");
    if (geteuid() == 0 && check_root(e) < 0)
        return -1;
    return run_probe(path, uid, gid, ret_ungrouped, size, e);
}

void local_version(char *ret, size_t size)
{
    static const char *const argv[] = {"bwrap", "--version", NULL};
    struct err ignored;
    if (run_words(argv, BWRAP_PATH, true, ret, size, &ignored) != 0)
        snprintf(ret, size, "bubblewrap");
}
