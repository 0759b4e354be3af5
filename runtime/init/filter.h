/* System call filters: instructions that leasekeep's (keep_seccomp.c) and leaseinit's share. */
#ifndef INIT_FILTER_H
#define INIT_FILTER_H

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__)
#define FILTER_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define FILTER_ARCH AUDIT_ARCH_AARCH64
#else
#error "name this architecture's AUDIT_ARCH"
#endif
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the low half of an argument stands elsewhere"
#endif

#define FILTER_X32_BIT                                                                             \
    0x40000000u /* the other ABI of x86-64 has other numbers for the same calls */
#define FILTER_CODE_MAX 128

struct filter {
    struct sock_filter code[FILTER_CODE_MAX];
    unsigned short n;
};

void filter_emit(struct filter *f, uint16_t code, uint32_t k, uint8_t jt, uint8_t jf);

/* From struct seccomp_data. The rules below want the call's number loaded and leave it so. */
void filter_load(struct filter *f, size_t offset);

void filter_return(struct filter *f, uint32_t action);

/* `why`: its errno; 0: done, it seems, and nothing. */
void filter_refuse(struct filter *f, int why);

/* For call `nr`: the low half of argument `arg` decides. `listed_ok`: the listed values are the
 * allowed ones, else the refused ones. */
void filter_argument(struct filter *f, uint32_t nr, size_t arg, const uint32_t *values, size_t n,
                     bool listed_ok, int why);

/* For call `nr`, which is setsockopt. A socket that lingers, sent with SCM_RIGHTS, would keep whoever
 * drops it (door, leasetools, the kernel's collector of sockets) waiting as long as the sender likes.
 * Between processes of one sandbox nothing is gained by it. A protocol on top of TCP (TCP_ULP) is refused
 * as one that is not there: one of them is SMC, and their names stand in memory. */
void filter_options(struct filter *f, uint32_t nr);

/* For call `nr`, which is socket: neither the family nor the protocol SMC, for which the kernel would load a
 * module that is meant for data centres. Other rules for the call come behind it. */
void filter_no_smc(struct filter *f, uint32_t nr);

#endif
