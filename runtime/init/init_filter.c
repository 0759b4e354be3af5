#include "init_filter.h"

#include <errno.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Of the sister: its ABI has numbers of its own for the older calls. */
#if defined(__x86_64__)
#define SISTER_ARCH       AUDIT_ARCH_I386
#define SISTER_SOCKET     359
#define SISTER_SETSOCKOPT 366
#define SISTER_PRLIMIT    340
#define SISTER_SOCKETCALL 102
#else
#define SISTER_ARCH       AUDIT_ARCH_ARM
#define SISTER_SOCKET     281
#define SISTER_SETSOCKOPT 294
#define SISTER_PRLIMIT    369
#endif
#define SOCKETCALL_SOCKET     1
#define SOCKETCALL_SETSOCKOPT 14

struct numbers {
    uint32_t socket, setsockopt, prlimit;
};

/* io_uring has the same numbers everywhere. */
static void write_rules(struct filter *f, const struct numbers *n, bool for_tools)
{
    static const uint32_t uring[] = {SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register};
    static const uint32_t oneself[] = {0};
    for (size_t i = 0; i < sizeof(uring) / sizeof(uring[0]); i++) {
        filter_emit(f, BPF_JMP | BPF_JEQ | BPF_K, uring[i], 0, 1);
        filter_refuse(f, EPERM);
    }
    if (for_tools)
        filter_argument(f, n->prlimit, 0, oneself, 1, true, EPERM);
    filter_no_smc(f, n->socket);
    filter_options(f, n->setsockopt);
}

/* The arguments of a socketcall stand in memory, where no filter can look. */
static void write_sister(struct filter *f, bool for_tools)
{
    const struct numbers n = {SISTER_SOCKET, SISTER_SETSOCKOPT, SISTER_PRLIMIT};
    filter_emit(f, BPF_JMP | BPF_JEQ | BPF_K, SISTER_ARCH, 1, 0);
    filter_return(f, SECCOMP_RET_KILL_PROCESS);
    filter_load(f, offsetof(struct seccomp_data, nr));
#ifdef SISTER_SOCKETCALL
    static const uint32_t hidden[] = {SOCKETCALL_SOCKET, SOCKETCALL_SETSOCKOPT};
    filter_argument(f, SISTER_SOCKETCALL, 0, hidden, 2, false, EPERM);
#endif
    write_rules(f, &n, for_tools);
    filter_return(f, SECCOMP_RET_ALLOW);
}

void init_filter_write(struct filter *f, bool for_tools)
{
    const struct numbers n = {SYS_socket, SYS_setsockopt, SYS_prlimit64};
    filter_load(f, offsetof(struct seccomp_data, arch));
    size_t to_sister = f->n;
    filter_emit(f, BPF_JMP | BPF_JEQ | BPF_K, FILTER_ARCH, 0, 0);
    filter_load(f, offsetof(struct seccomp_data, nr));
#ifdef __x86_64__
    filter_emit(f, BPF_JMP | BPF_JGE | BPF_K, FILTER_X32_BIT, 0, 1);
    filter_refuse(f, ENOSYS);
#endif
    write_rules(f, &n, for_tools);
    filter_return(f, SECCOMP_RET_ALLOW);
    f->code[to_sister].jf = (uint8_t)(f->n - to_sister - 1);
    write_sister(f, for_tools);
}

/* As leasekeep's filter has it, which refuses the other ways, too. */
static bool lingers_not(void)
{
    struct linger l = {.l_onoff = 1};
    socklen_t len = sizeof(l);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool taken = fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, len) == 0 &&
                 getsockopt(fd, SOL_SOCKET, SO_LINGER, &l, &len) == 0;
    if (fd >= 0)
        close(fd);
    return taken && l.l_onoff == 0;
}

/* Without the flag old kernels slow down what is filtered; not every kernel knows it. */
static int put_on(struct filter *f)
{
    struct sock_fprog program = {.len = f->n, .filter = f->code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -1;
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &program) ==
        0)
        return 0;
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
}

int init_filter_apply(bool for_tools)
{
    struct filter f = {.n = 0};
    if (!for_tools && lingers_not())
        return 0;
    init_filter_write(&f, for_tools);
    return put_on(&f);
}
