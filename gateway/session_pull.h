/* Starts that wait for their images. Any thread, but where it is said. */
#ifndef GATEWAY_SESSION_PULL_H
#define GATEWAY_SESSION_PULL_H

#include "services.h"

/* How far the image of a session has come; what there is of it becomes known on its way. */
struct pull_progress {
    char *image; /* of the configuration */
    int64_t layers, layers_done;
    int64_t bytes, bytes_done;
};

struct session_pulls *session_pulls_new(void); /* NULL without memory */
void session_pulls_free(struct session_pulls *ps);

/* No start waits on, none begins to. */
void session_pulls_close(struct session_pulls *ps);

/* False: the session does not wait for an image. */
bool session_pulls_progress(struct session_pulls *ps, const struct id *session_id,
                            struct pull_progress *ret);

/* The session is to be stopped: if it waits for an image it gives up, with this reason. */
void session_pulls_end(struct session_pulls *ps, const struct id *session_id, const char *reason);

/* A start that may have to wait, known from before its row is there until after its end, so that no stop
 * comes too early for it. The sandbox must outlive it. NULL without memory. */
struct session_pull *session_pull_expect(struct session_pulls *ps, const struct sandbox *sandbox);
void session_pull_forget(struct session_pull *p); /* NULL: nothing */

/* On the RUNTIME lane, of which it steps aside. ret_stopped: the reason of who stopped it meanwhile, ""
 * for any other error. */
int session_pull(struct services *s, struct session_pull *p, const char *image,
                 char ret_stopped[static REASON_MAX], struct err *e) MUST_CHECK;

#endif
