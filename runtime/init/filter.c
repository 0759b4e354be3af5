#include "filter.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#define PROTOCOL_SMC 256 /* IPPROTO_SMC of Linux 6.11 */

void filter_emit(struct filter *f, uint16_t code, uint32_t k, uint8_t jt, uint8_t jf)
{
    f->code[f->n++] = (struct sock_filter){.code = code, .k = k, .jt = jt, .jf = jf};
}

void filter_load(struct filter *f, size_t offset)
{
    filter_emit(f, BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, 0, 0);
}

void filter_return(struct filter *f, uint32_t action)
{
    filter_emit(f, BPF_RET | BPF_K, action, 0, 0);
}

void filter_refuse(struct filter *f, int why)
{
    filter_return(f, SECCOMP_RET_ERRNO | (uint32_t)why);
}

static void load_argument(struct filter *f, size_t arg)
{
    filter_load(f, offsetof(struct seccomp_data, args) + arg * sizeof(uint64_t));
}

void filter_argument(struct filter *f, uint32_t nr, size_t arg, const uint32_t *values, size_t n,
                     bool listed_ok, int why)
{
    filter_emit(f, BPF_JMP | BPF_JEQ | BPF_K, nr, 0, (uint8_t)(n + 3));
    load_argument(f, arg);
    for (size_t i = 0; i < n; i++) /* a match jumps to the second of the two returns */
        filter_emit(f, BPF_JMP | BPF_JEQ | BPF_K, values[i], (uint8_t)(n - i), 0);
    if (listed_ok)
        filter_refuse(f, why);
    else
        filter_return(f, SECCOMP_RET_ALLOW);
    if (listed_ok)
        filter_return(f, SECCOMP_RET_ALLOW);
    else
        filter_refuse(f, why);
}

void filter_options(struct filter *f, uint32_t nr)
{
    filter_emit(f, BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 10);
    load_argument(f, 1);
    filter_emit(f, BPF_JMP | BPF_JEQ | BPF_K, SOL_SOCKET, 0, 3);
    load_argument(f, 2);
    filter_emit(f, BPF_JMP | BPF_JEQ | BPF_K, SO_LINGER, 0, 5);
    filter_refuse(f, 0);
    filter_emit(f, BPF_JMP | BPF_JEQ | BPF_K, IPPROTO_TCP, 0, 3);
    load_argument(f, 2);
    filter_emit(f, BPF_JMP | BPF_JEQ | BPF_K, TCP_ULP, 0, 1);
    filter_refuse(f, ENOENT);
    filter_return(f, SECCOMP_RET_ALLOW);
}

void filter_no_smc(struct filter *f, uint32_t nr)
{
    filter_emit(f, BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 7);
    load_argument(f, 0);
    filter_emit(f, BPF_JMP | BPF_JEQ | BPF_K, AF_SMC, 0, 1);
    filter_refuse(f, EAFNOSUPPORT);
    load_argument(f, 2);
    filter_emit(f, BPF_JMP | BPF_JEQ | BPF_K, PROTOCOL_SMC, 0, 1);
    filter_refuse(f, EPROTONOSUPPORT);
    filter_load(f, offsetof(struct seccomp_data, nr));
}
