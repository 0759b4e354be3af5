/* Bytes on their way from one non-blocking socket to another: a buffer that is filled when it is
 * empty enough and then written. Bounded, so who cannot take more holds up who sends. */
#ifndef INIT_FLOW_H
#define INIT_FLOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FLOW_SIZE                                                                                  \
    (64u * 1024u + 512u) /* a piece of the greatest length and small things around it */

struct flow {
    size_t start, end;
    uint8_t data[FLOW_SIZE];
};

size_t flow_len(const struct flow *f);
size_t flow_room(const struct flow *f); /* once everything has moved to the front */
void flow_clear(struct flow *f);

/* Appends, or says where to append `len` bytes; the caller has asked for the room. */
void flow_add(struct flow *f, const void *data, size_t len);
uint8_t *flow_extend(struct flow *f, size_t len);
void flow_drop(struct flow *f, size_t len); /* from the front */

enum flow_result { FLOW_MOVED, FLOW_AGAIN, FLOW_ENDED };

enum flow_result flow_recv(struct flow *f, int fd); /* one read of what there is room for */
enum flow_result flow_send(struct flow *f, int fd); /* FLOW_MOVED: everything is written */

#endif
