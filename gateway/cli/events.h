/*
 * What `connect` has to tell beside the messages, on stderr: sentences for people, or with --json
 * one object a line.
 */
#ifndef CLI_EVENTS_H
#define CLI_EVENTS_H

#include <stdbool.h>

#include "api.h"
#include "views.h"

struct events {
    bool json;
    bool talkative; /* a person watches: tell good news too */
};

void events_ready(const struct events *ev, const struct lease_view *lease);
void events_renewed(const struct events *ev, const struct lease_view *lease);
void events_renew_failed(const struct events *ev, const char *reason);
/* `again`: with the same one away as at the attempt before. */
void events_reconnecting(const struct events *ev, const char *who, const char *reason, int attempt,
                         bool again);
/* The session has failed; the chat's sandbox is started anew. */
void events_reopening(const struct events *ev, const char *session_id, const char *reason);
void events_unsent(const struct events *ev, size_t lines);
void events_closed(const struct events *ev, int code, const char *reason);

/* The end for a reason of our own, or one the gateway gave. */
void events_error(const struct events *ev, const struct err *e);
void events_problem(const struct events *ev, const struct api_problem *p);

#endif
