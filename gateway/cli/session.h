/*
 * A conversation with the agent of one session: the connection to the door, the lease behind it and
 * what happens when either goes.
 *
 *   CONNECTING --ready--> LIVE --stdin ended, answers ended--> CLOSING --> OVER
 *     |  ^                 |
 *     |  |  lost, 4503     |  a close code that ends the session --> OVER
 *     v  |                 v
 *    WAITING --due--> GRANTING --fresh grant--> CONNECTING
 *
 * GRANTING asks for a lease of the same session, then of the chat's, in case that somebody has
 * started another one. If none runs it looks at how the session has ended: one that failed is opened
 * again, one that was ended on purpose is not.
 *
 * One thread; two others (door_client, caller) report through queues and the eventfd. Times are
 * milliseconds of the boot clock.
 */
#ifndef CLI_SESSION_H
#define CLI_SESSION_H

#include "leasehold/id.h"

#include "caller.h"
#include "door_client.h"
#include "events.h"
#include "grant.h"
#include "options.h"
#include "pipes.h"

enum session_state {
    SESSION_CONNECTING,
    SESSION_LIVE,
    SESSION_WAITING,
    SESSION_GRANTING,
    SESSION_CLOSING,
    SESSION_OVER
};

enum session_away { AWAY_DOOR, AWAY_GATEWAY, AWAY_SESSION };

enum session_job { JOB_NONE, JOB_RENEW, JOB_GRANT, JOB_LOOK, JOB_OPEN, JOB_RELEASE };

struct session {
    enum session_state state;
    int exit_code;                 /* of OVER and CLOSING */
    const struct options *options; /* as the sandbox was opened with */
    const struct events *events;
    int wake_fd;
    int64_t linger_ms;

    struct door_client *door;
    struct message_queue in, out;
    struct line_reader reader;
    struct line_writer writer;
    struct buf hello;    /* the door's first message, as far as it has come */
    int64_t deadline_ms; /* of CONNECTING, WAITING, CLOSING */
    int64_t live_since_ms, last_traffic_ms;
    bool out_pending;
    bool looking;           /* the linger is over; is there really nothing that stands unread? */
    int attempt;            /* of connecting again */
    enum session_away away; /* who was, at the last attempt */
    int64_t lost_at_ms;     /* when the connection that held was lost; 0: it holds */
    int64_t retry_ms;       /* so long it is tried again */

    struct caller *caller;
    enum session_job job; /* what the caller is asked */
    struct grant grant;
    int64_t renew_at_ms;
    int renew_failures;
    bool not_running;             /* the session is not, so the chat's is asked for */
    bool lease_ended;             /* the door said so: nothing to give back */
    char replaced_lease[ID_TEXT]; /* one to give back, or "" */
};

/* Takes the grant and connects. -1: nothing to be freed but with session_done. */
int session_init(struct session *s, const struct api_access *access, const struct options *options,
                 const struct events *events, struct grant *grant, int wake_fd, int64_t now_ms,
                 struct err *e) MUST_CHECK;
void session_done(struct session *s);

/* Does all that can be done now. */
void session_step(struct session *s, int64_t now_ms);

/* When session_step has to be called at the latest; -1: only when something happens. */
int64_t session_next_ms(struct session *s);

bool session_wants_input(struct session *s);
void session_leave(struct session *s, int64_t now_ms);     /* a signal: closes politely */
void session_fail(struct session *s, const struct err *e); /* over, told to the user */

/* --- between session.c and session_lease.c ---------------------------------------------------- */

void session_connect(struct session *s, int64_t now_ms);
void session_lost(struct session *s, enum session_away who, const char *reason, int64_t now_ms);
void session_end(struct session *s, int exit_code);

/* Takes the caller's answer and starts what is due: renewal, giving back, a fresh grant. */
void session_lease_step(struct session *s, int64_t now_ms);
int64_t session_lease_next_ms(struct session *s);
void session_lease_started(struct session *s, int64_t now_ms); /* a new grant is in place */

#endif
