/*
 * The system call filter: takes away what an agent never needs and the namespaces do not cover.
 * Namespaces leave vsock (the virtual machine's host), kernel keyrings, BPF and the like as they
 * are, and each refused call is kernel code that cannot be attacked.
 */
#include <asm/ioctls.h>
#include <errno.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "filter.h"
#include "keep.h"

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

#define REFUSED_N (sizeof(refused) / sizeof(refused[0]))

_Static_assert(REFUSED_N < FILTER_CODE_MAX - 50, "the rest needs room, too");

static void emit_all(struct filter *f)
{
    static const uint32_t families[] = {AF_UNIX, AF_INET, AF_INET6, AF_NETLINK};
    static const uint32_t terminal_pushes[] = {TIOCSTI, TIOCLINUX};
    filter_load(f, offsetof(struct seccomp_data, arch));
    filter_emit(f, BPF_JMP | BPF_JEQ | BPF_K, FILTER_ARCH, 1, 0);
    filter_return(f, SECCOMP_RET_KILL_PROCESS);
    filter_load(f, offsetof(struct seccomp_data, nr));
#ifdef __x86_64__
    filter_emit(f, BPF_JMP | BPF_JGE | BPF_K, FILTER_X32_BIT, 0, 1);
    filter_refuse(f, ENOSYS);
#endif
    for (size_t i = 0; i < REFUSED_N; i++)
        filter_emit(f, BPF_JMP | BPF_JEQ | BPF_K, refused[i], (uint8_t)(REFUSED_N - i), 0);
    filter_emit(f, BPF_JMP | BPF_JA, 1, 0, 0);
    filter_refuse(f, EPERM);
    filter_no_smc(f, SYS_socket);
    filter_argument(f, SYS_socket, 0, families, 4, true, EAFNOSUPPORT);
    filter_argument(f, SYS_ioctl, 1, terminal_pushes, 2, false, EPERM);
    filter_options(f, SYS_setsockopt);
    filter_return(f, SECCOMP_RET_ALLOW);
}

int seccomp_filter_file(void)
{
    struct filter f = {.n = 0};
    emit_all(&f);
    int fd = memfd_create("seccomp", MFD_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t len = (ssize_t)(f.n * sizeof(f.code[0]));
    if (write(fd, f.code, (size_t)len) != len || lseek(fd, 0, SEEK_SET) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}
