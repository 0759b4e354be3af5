/* Shared by the files of sessions.h. */
#ifndef GATEWAY_SESSIONS_STATE_H
#define GATEWAY_SESSIONS_STATE_H

#include <uthash.h>

#include "ready.h"
#include "sessions.h"

/* A session that has not ended, as the loop watches it. */
struct live {
    struct id session_id, chat_id;
    int64_t expires_at, max_expires_at, last_activity_at, idle_ttl_s;
    int64_t saved_activity_at; /* as the store has it */
    bool watched;              /* it runs, and its processes are watched */
    bool doubtful; /* it does not run, or a process of it has ended: every round looks at it */
    bool checking, check_again; /* a look is under way; another one is due after it */
    int keep_fd, door_fd;       /* pidfds */
    struct server_watch *keep_watch, *door_watch;
    struct sessions *sessions;
    UT_hash_handle hh;
};

struct sessions {
    struct services *s;
    struct ready *ready; /* any thread */
    struct live *live;   /* loop */
};

/* min(created + max_ttl, last activity + idle ttl) */
int64_t session_expiry(int64_t max_expires_at, int64_t last_activity_at, int64_t idle_ttl_s);

#endif
