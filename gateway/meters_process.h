/* What the kernel says about this process. Any thread but the loop: counting descriptors may walk
 * a long directory. */
#ifndef GATEWAY_METERS_PROCESS_H
#define GATEWAY_METERS_PROCESS_H

#include <stdint.h>

struct process_figures {
    int64_t cpu_us, resident_bytes, virtual_bytes, fds, fds_max;
};

/* What cannot be read is 0. */
void process_figures(struct process_figures *ret);

#endif
