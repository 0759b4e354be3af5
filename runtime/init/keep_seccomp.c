/*
 * The system call filter: takes away what an agent never needs and the namespaces do not cover.
 * Namespaces leave vsock (the virtual machine's host), kernel keyrings, BPF and the like as they
 * are, and each refused call is kernel code that cannot be attacked.
 */
#include <asm/ioctls.h>
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "keep.h"

#if defined(__x86_64__)
#define NATIVE_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define NATIVE_ARCH AUDIT_ARCH_AARCH64
#else
#error "name this architecture's AUDIT_ARCH"
#endif

#define X32_BIT 0x40000000u /* the other ABI of x86-64 has other numbers for the same calls */

static const uint32_t refused[] = {
    /* keyrings are shared by uid across sandboxes */
    SYS_add_key,
    SYS_keyctl,
    SYS_request_key,
    /* attack surface without use for an agent */
    SYS_bpf,
    SYS_perf_event_open,
    SYS_userfaultfd,
    SYS_io_uring_setup,
    SYS_io_uring_enter,
    SYS_io_uring_register,
    SYS_kcmp,
    SYS_process_madvise,
    SYS_lookup_dcookie,
    SYS_fanotify_init,
    SYS_name_to_handle_at,
    SYS_open_by_handle_at,
    SYS_move_pages,
    SYS_migrate_pages,
    SYS_mbind,
    SYS_set_mempolicy,
    SYS_vhangup,
    SYS_personality,
    /* namespaces and mounts */
    SYS_unshare,
    SYS_setns,
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_open_tree,
    SYS_move_mount,
    SYS_fsopen,
    SYS_fsconfig,
    SYS_fsmount,
    SYS_fspick,
    SYS_mount_setattr,
    SYS_quotactl,
    SYS_quotactl_fd,
    /* the machine */
    SYS_kexec_load,
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_reboot,
    SYS_swapon,
    SYS_swapoff,
    SYS_acct,
    SYS_syslog,
    SYS_settimeofday,
    SYS_clock_settime,
    SYS_clock_adjtime,
    SYS_adjtimex,
    SYS_sethostname,
    SYS_setdomainname,
    SYS_nfsservctl,
#ifdef SYS_kexec_file_load
    SYS_kexec_file_load,
#endif
#ifdef __x86_64__
    SYS_iopl,
    SYS_ioperm,
    SYS_modify_ldt,
    SYS_uselib,
    SYS_ustat,
    SYS_sysfs,
    SYS__sysctl,
    SYS_create_module,
    SYS_get_kernel_syms,
    SYS_query_module,
#endif
};

#define REFUSED_N  (sizeof(refused) / sizeof(refused[0]))
#define FILTER_MAX (REFUSED_N + 48)

_Static_assert(REFUSED_N < 200, "jumps in a filter are 8 bits wide");

struct program {
    struct sock_filter code[FILTER_MAX];
    size_t n;
};

static void emit(struct program *p, uint16_t code, uint32_t k, uint8_t jt, uint8_t jf)
{
    p->code[p->n++] = (struct sock_filter){.code = code, .k = k, .jt = jt, .jf = jf};
}

static void emit_load(struct program *p, size_t offset)
{
    emit(p, BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, 0, 0);
}

static void emit_return(struct program *p, uint32_t action)
{
    emit(p, BPF_RET | BPF_K, action, 0, 0);
}

static void emit_refuse(struct program *p, int why)
{
    emit_return(p, SECCOMP_RET_ERRNO | (uint32_t)why);
}

/* For call `nr`: the low half of argument `arg` decides. `listed_ok`: the listed values are the
 * allowed ones, else the refused ones. */
static void emit_argument(struct program *p, uint32_t nr, size_t arg, const uint32_t *values,
                          size_t n, bool listed_ok, int why)
{
    size_t low = offsetof(struct seccomp_data, args) + arg * sizeof(uint64_t);
    emit(p, BPF_JMP | BPF_JEQ | BPF_K, nr, 0, (uint8_t)(n + 3));
    emit_load(p, low);
    for (size_t i = 0; i < n; i++) /* a match jumps to the second of the two returns */
        emit(p, BPF_JMP | BPF_JEQ | BPF_K, values[i], (uint8_t)(n - i), 0);
    if (listed_ok)
        emit_refuse(p, why);
    else
        emit_return(p, SECCOMP_RET_ALLOW);
    if (listed_ok)
        emit_return(p, SECCOMP_RET_ALLOW);
    else
        emit_refuse(p, why);
}

/* Done as asked, it seems, and nothing: a socket that lingers, sent with SCM_RIGHTS, would keep whoever
 * drops it (door, leasetools, the kernel's collector of sockets) waiting as long as the sender likes.
 * Between processes of one sandbox nothing is gained by it. */
static void emit_no_linger(struct program *p)
{
    size_t level = offsetof(struct seccomp_data, args) + sizeof(uint64_t);
    emit(p, BPF_JMP | BPF_JEQ | BPF_K, SYS_setsockopt, 0, 6);
    emit_load(p, level);
    emit(p, BPF_JMP | BPF_JEQ | BPF_K, SOL_SOCKET, 0, 3);
    emit_load(p, level + sizeof(uint64_t));
    emit(p, BPF_JMP | BPF_JEQ | BPF_K, SO_LINGER, 0, 1);
    emit_refuse(p, 0);
    emit_return(p, SECCOMP_RET_ALLOW);
}

static void emit_all(struct program *p)
{
    static const uint32_t families[] = {AF_UNIX, AF_INET, AF_INET6, AF_NETLINK};
    static const uint32_t terminal_pushes[] = {TIOCSTI, TIOCLINUX};
    emit_load(p, offsetof(struct seccomp_data, arch));
    emit(p, BPF_JMP | BPF_JEQ | BPF_K, NATIVE_ARCH, 1, 0);
    emit_return(p, SECCOMP_RET_KILL_PROCESS);
    emit_load(p, offsetof(struct seccomp_data, nr));
#ifdef __x86_64__
    emit(p, BPF_JMP | BPF_JGE | BPF_K, X32_BIT, 0, 1);
    emit_refuse(p, ENOSYS);
#endif
    for (size_t i = 0; i < REFUSED_N; i++)
        emit(p, BPF_JMP | BPF_JEQ | BPF_K, refused[i], (uint8_t)(REFUSED_N - i), 0);
    emit(p, BPF_JMP | BPF_JA, 1, 0, 0);
    emit_refuse(p, EPERM);
    emit_argument(p, SYS_socket, 0, families, 4, true, EAFNOSUPPORT);
    emit_argument(p, SYS_ioctl, 1, terminal_pushes, 2, false, EPERM);
    emit_no_linger(p);
    emit_return(p, SECCOMP_RET_ALLOW);
}

int seccomp_filter_file(void)
{
    struct program p = {.n = 0};
    emit_all(&p);
    int fd = memfd_create("seccomp", MFD_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t len = (ssize_t)(p.n * sizeof(p.code[0]));
    if (write(fd, p.code, (size_t)len) != len || lseek(fd, 0, SEEK_SET) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}
