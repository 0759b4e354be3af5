/* The filter of pid 1 of a sandbox, tried on a process of the test's own. */
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../runtime/init/init_filter.h"

/* Runs `what` behind the filter; its exit status. */
static int filtered(bool for_tools, int (*what)(void))
{
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(init_filter_apply(for_tools) < 0 ? 99 : what());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static bool refused(long rc, int why)
{
    return rc < 0 && errno == why;
}

/* ---- sockets ---- */

static const struct linger long_one = {1, 60};

static bool lingers(int fd)
{
    struct linger l = {0};
    socklen_t len = sizeof(l);
    getsockopt(fd, SOL_SOCKET, SO_LINGER, &l, &len);
    return l.l_onoff != 0;
}

static int try_linger(void)
{
    int one = 1, fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (setsockopt(fd, SOL_SOCKET, SO_LINGER, &long_one, sizeof(long_one)) < 0 || lingers(fd))
        return 1;
    /* The kernel looks at the low half of an argument only. */
    if (syscall(SYS_setsockopt, (long)fd, 0x100000000L | SOL_SOCKET, 0x100000000L | SO_LINGER,
                &long_one, sizeof(long_one)) < 0 ||
        lingers(fd))
        return 2;
    return setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &one, sizeof(one)) == 0 ? 0 : 3;
}

static void test_no_socket_lingers(void **state)
{
    (void)state;
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &long_one, sizeof(long_one)), 0);
    assert_true(lingers(fd)); /* without the filter */
    close(fd);
    assert_int_equal(filtered(false, try_linger), 0);
    assert_int_equal(filtered(true, try_linger), 0);
}

static int try_uring(void)
{
    return !refused(syscall(SYS_io_uring_setup, 1, NULL), EPERM) ||
           !refused(syscall(SYS_io_uring_enter, 0, 0, 0, 0, NULL, 0), EPERM) ||
           !refused(syscall(SYS_io_uring_register, 0, 0, NULL, 0), EPERM);
}

static void test_io_uring_is_no_way_around(void **state)
{
    (void)state;
    assert_int_equal(filtered(false, try_uring), 0);
}

static int try_twice(void)
{
    return init_filter_apply(false) == 0 ? try_linger() : 1;
}

static void test_one_on_top_of_another_changes_nothing(void **state)
{
    (void)state;
    assert_int_equal(filtered(false, try_twice), 0);
}

/* ---- what this kernel may not have: the filter itself is asked ---- */

/* As the kernel runs it, of the instructions that filter.c writes. */
static uint32_t verdict(const struct filter *f, const struct seccomp_data *data)
{
    uint32_t a = 0;
    for (size_t i = 0; i < f->n; i++) {
        const struct sock_filter *code = &f->code[i];
        switch (code->code) {
        case BPF_LD | BPF_W | BPF_ABS:
            assert_true(code->k + sizeof(a) <= sizeof(*data));
            memcpy(&a, (const char *)data + code->k, sizeof(a));
            break;
        case BPF_JMP | BPF_JEQ | BPF_K:
            i += a == code->k ? code->jt : code->jf;
            break;
        case BPF_JMP | BPF_JGE | BPF_K:
            i += a >= code->k ? code->jt : code->jf;
            break;
        default:
            assert_int_equal(code->code, BPF_RET | BPF_K);
            return code->k;
        }
    }
    fail();
    return 0;
}

static uint32_t asked(uint32_t arch, int nr, uint64_t a, uint64_t b, uint64_t c)
{
    struct filter f = {.n = 0};
    init_filter_write(&f, false);
    return verdict(&f, &(struct seccomp_data){.nr = nr, .arch = arch, .args = {a, b, c}});
}

static const uint32_t allow = SECCOMP_RET_ALLOW;

static uint32_t refusal(int why)
{
    return SECCOMP_RET_ERRNO | (uint32_t)why;
}

static void check_smc(uint32_t arch, int socket_nr, int setsockopt_nr)
{
    enum { SMC = 43, PROTOCOL_SMC = 256, PROTOCOL_MPTCP = 262, ULP = 31, NODELAY = 1 };
    const uint64_t high = UINT64_C(1) << 32;
    const int inet[] = {AF_INET, AF_INET6};
    assert_int_equal(asked(arch, socket_nr, SMC, SOCK_STREAM, 0), refusal(EAFNOSUPPORT));
    assert_int_equal(asked(arch, socket_nr, high | SMC, SOCK_STREAM, 1), refusal(EAFNOSUPPORT));
    for (size_t i = 0; i < 2; i++) {
        uint64_t to = (uint64_t)inet[i];
        assert_int_equal(asked(arch, socket_nr, to, SOCK_STREAM, PROTOCOL_SMC),
                         refusal(EPROTONOSUPPORT));
        assert_int_equal(asked(arch, socket_nr, to, SOCK_STREAM, high | PROTOCOL_SMC),
                         refusal(EPROTONOSUPPORT));
        assert_int_equal(asked(arch, socket_nr, to, SOCK_STREAM, PROTOCOL_MPTCP), allow);
        assert_int_equal(asked(arch, socket_nr, to, SOCK_STREAM, 0), allow);
    }
    assert_int_equal(asked(arch, setsockopt_nr, 3, IPPROTO_TCP, ULP), refusal(ENOENT));
    assert_int_equal(asked(arch, setsockopt_nr, 3, IPPROTO_TCP, high | ULP), refusal(ENOENT));
    assert_int_equal(asked(arch, setsockopt_nr, 3, IPPROTO_TCP, NODELAY), allow);
    assert_int_equal(asked(arch, setsockopt_nr, 3, IPPROTO_IPV6, ULP), allow);
    assert_int_equal(asked(arch, setsockopt_nr, 3, SOL_SOCKET, ULP), allow);
    assert_int_equal(asked(arch, setsockopt_nr, 3, SOL_SOCKET, SO_LINGER), refusal(0));
}

static void test_no_way_leads_to_smc(void **state)
{
    (void)state;
    check_smc(FILTER_ARCH, SYS_socket, SYS_setsockopt);
    assert_int_equal(asked(FILTER_ARCH, SYS_getpid, 43, 0, 256), allow);
#ifdef __x86_64__
    check_smc(AUDIT_ARCH_I386, 359, 366);
    assert_int_equal(asked(AUDIT_ARCH_I386, 102, 1, 0, 0), refusal(EPERM)); /* a socketcall */
    assert_int_equal(asked(AUDIT_ARCH_I386, 102, 2, 0, 0), allow);
    assert_int_equal(asked(AUDIT_ARCH_ARM, 281, 43, 0, 0), SECCOMP_RET_KILL_PROCESS);
#endif
}

/* ---- limits ---- */

static int try_limits(void)
{
    struct rlimit now;
    if (getrlimit(RLIMIT_NOFILE, &now) < 0 || setrlimit(RLIMIT_NOFILE, &now) < 0)
        return 1;
    return syscall(SYS_prlimit64, getppid(), RLIMIT_NOFILE, NULL, &now) == 0 ? 2 : 0;
}

static void test_a_tool_changes_nobodys_limits_but_its_own(void **state)
{
    (void)state;
    assert_int_equal(filtered(true, try_limits), 0);
    assert_int_equal(filtered(false, try_limits), 2);
}

/* ---- the other ABIs of this machine ---- */

#ifdef __x86_64__

#define X32_SETSOCKOPT 541
#define I386_GETPID    20

static long i386(long nr, long a, long b, long c, long d, long e)
{
    long rc;
    __asm__ volatile("int $0x80"
                     : "=a"(rc)
                     : "a"(nr), "b"(a), "c"(b), "d"(c), "S"(d), "D"(e)
                     : "memory", "r8", "r9", "r10", "r11");
    return (int)rc;
}

static int try_i386(void)
{
    enum { SETSOCKOPT = 366, PRLIMIT = 340, SOCKETCALL = 102, URING_SETUP = 425 };
    uint32_t *low =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (low == MAP_FAILED)
        return 1;
    low[0] = 1;
    low[1] = 60;
    long at = (long)(uintptr_t)low;
    if (i386(I386_GETPID, 0, 0, 0, 0, 0) != getpid())
        return 2;
    if (i386(SETSOCKOPT, fd, SOL_SOCKET, SO_LINGER, at, 8) != 0 || lingers(fd))
        return 3;
    if (i386(SETSOCKOPT, fd, SOL_SOCKET, SO_PASSCRED, at, 4) != 0)
        return 4;
    uint32_t *words = low + 16;
    words[0] = (uint32_t)fd;
    words[1] = SOL_SOCKET;
    words[2] = SO_LINGER;
    words[3] = (uint32_t)at;
    words[4] = 8;
    if (i386(SOCKETCALL, 14, (long)(uintptr_t)words, 0, 0, 0) != -EPERM || lingers(fd))
        return 5;
    if (i386(SOCKETCALL, 13, (long)(uintptr_t)words, 0, 0, 0) == -EPERM) /* shutdown */
        return 6;
    if (i386(URING_SETUP, 1, at, 0, 0, 0) != -EPERM)
        return 7;
    return i386(PRLIMIT, getppid(), RLIMIT_NOFILE, 0, at, 0) == -EPERM ? 0 : 8;
}

static int ask_i386(void)
{
    return i386(I386_GETPID, 0, 0, 0, 0, 0) == getpid() ? 0 : 1;
}

/* Kernels without the 32-bit ABI end whoever asks by it. */
static bool kernel_has_i386(void)
{
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)signal(SIGSEGV, SIG_DFL); /* not cmocka's */
        _exit(ask_i386());
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* Where the kernel runs none there is none that could linger. */
static void test_32_bit_programs_run_if_the_kernel_has_them_and_linger_no_more(void **state)
{
    (void)state;
    if (!kernel_has_i386()) {
        print_message("this kernel runs no 32-bit programs\n");
        return;
    }
    assert_int_equal(filtered(true, try_i386), 0);
    assert_int_equal(filtered(false, try_i386), 8);
}

static int try_x32(void)
{
    return refused(syscall(0x40000000 | X32_SETSOCKOPT, 0, 0, 0, NULL, 0), ENOSYS) &&
                   refused(syscall(0x40000000 | SYS_getpid), ENOSYS)
               ? 0
               : 1;
}

static void test_x32_is_not_there(void **state)
{
    (void)state;
    assert_int_equal(filtered(false, try_x32), 0);
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_socket_lingers),
        cmocka_unit_test(test_io_uring_is_no_way_around),
        cmocka_unit_test(test_one_on_top_of_another_changes_nothing),
        cmocka_unit_test(test_no_way_leads_to_smc),
        cmocka_unit_test(test_a_tool_changes_nobodys_limits_but_its_own),
#ifdef __x86_64__
        cmocka_unit_test(test_32_bit_programs_run_if_the_kernel_has_them_and_linger_no_more),
        cmocka_unit_test(test_x32_is_not_there),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
