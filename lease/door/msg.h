/*
 * A text message on its way to many clients: one copy, counted, cut into chunks small enough for
 * one write each. Before every chunk there is room for the frame header, which is the same bytes
 * for every client (servers do not mask), so clients may share it. Loop thread only.
 */
#ifndef LEASEHOLD_DOOR_MSG_H
#define LEASEHOLD_DOOR_MSG_H

#include <stdbool.h>
#include <stddef.h>

#define MSG_PRE   16u    /* room for a frame header */
#define MSG_CHUNK 65536u /* payload bytes of a frame */

struct msg;

/* One reference for the caller. Bytes that are not UTF-8 become U+FFFD. NULL without memory. */
struct msg *msg_new_text(const char *text, size_t len);
struct msg *msg_ref(struct msg *m);
void msg_unref(struct msg *m);

size_t msg_len(const struct msg *m);
size_t msg_chunks(const struct msg *m); /* at least one */

/* Chunk i: MSG_PRE bytes before the returned address are free to write on. */
unsigned char *msg_chunk(struct msg *m, size_t i, size_t *ret_len);

#endif
