/*
 * Who only reads uses his workspace, too: an access to one of its chats, to a file, the history or an
 * artifact of it is noted in the workspace, so that retention does not take it for idle. Not each of
 * them is written: one of a chat in a while, a second after it, together with others.
 *
 * Loop thread.
 */
#ifndef GATEWAY_ACTIVITY_H
#define GATEWAY_ACTIVITY_H

#include "op.h"

struct activity;

struct activity *activity_new(struct services *s); /* NULL: no memory */
void activity_free(struct activity *a);            /* takes NULL */
void activity_close(struct activity *a); /* at the end, when the loop turns no more: blocks */

/* The call is over. What changes something says so by its own rows. */
void activity_call(struct activity *a, const struct call *c);

#endif
