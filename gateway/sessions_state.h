/* Shared by the files of sessions.h. */
#ifndef GATEWAY_SESSIONS_STATE_H
#define GATEWAY_SESSIONS_STATE_H

#include <uthash.h>

#include "ready.h"
#include "sessions.h"

/* A running session as the loop watches it. */
struct live {
    struct id session_id, chat_id;
    int64_t expires_at, max_expires_at, last_activity_at, idle_ttl_s;
    int64_t saved_activity_at; /* as the store has it */
    bool dead;                 /* a process of it has ended: to be looked at until it is gone */
    int keep_fd, door_fd;      /* pidfds */
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
