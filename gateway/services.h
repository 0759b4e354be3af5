/*
 * What the gateway is made of, passed to everything that needs a part of it. Made by main.c,
 * constant after start; each member says who may touch it.
 */
#ifndef GATEWAY_SERVICES_H
#define GATEWAY_SERVICES_H

#include <stdatomic.h>

#include "auth.h"
#include "leasehold/broker.h"
#include "leasehold/clock.h"
#include "leasehold/config.h"
#include "leasehold/lanes.h"
#include "leasehold/lease_rules.h"
#include "leasehold/log.h"
#include "leasehold/sandbox_host.h"
#include "leasehold/store.h"
#include "server.h"
#include "tls_ca.h"

struct activity;
struct artifacts;
struct bot_ws;
struct history_queues;
struct event_feed;
struct limits;
struct signing_keys;
struct retention;
struct sessions;
struct spools;
struct files;
struct streams;
struct tracer;
struct trail;

struct services {
    const struct config *cfg;  /* any thread */
    struct log *log;           /* any thread */
    const struct clock *clock; /* any thread */
    struct store *store;       /* any thread, see store.h */
    /* Any thread, for as long as an operation takes: signing_keys.h. */
    const struct keyset *_Atomic keys;
    struct signing_keys *signing;
    const struct tls_ca *_Atomic tls;   /* any thread; NULL: doors speak plain */
    struct lease_policy policy;         /* any thread, constant */
    const char *openapi;                /* any thread, constant */
    struct lane *read, *file, *runtime; /* any thread */
    struct lane *slow;              /* any thread; waits for runtime and file, never they for it */
    struct lane *scrape;            /* any thread */
    struct lane *sign;              /* any thread; outlives the store, whose writes go on there */
    struct lane *body;              /* stream.c */
    struct lane *object;            /* any thread; waits for the store of objects */
    struct streams *streams;        /* loop */
    struct files *files;            /* any thread, see files.h */
    struct meters *meters;          /* any thread, see meters.h */
    struct tracer *tracer;          /* any thread, see spans.h; NULL: no spans are recorded */
    struct server *server;          /* loop, see server.h */
    struct arena_pool *arenas;      /* loop: of calls */
    struct auth *auth;              /* loop */
    struct limits *limits;          /* loop */
    struct broker *broker;          /* loop */
    struct bot_ws *bots;            /* loop */
    struct event_feed *events;      /* loop, see event_feed.h */
    struct sandbox_host host;       /* RUNTIME lane */
    struct sessions *sessions;      /* see sessions.h */
    struct spools *spools;          /* see spools.h */
    struct history_queues *history; /* loop */
    struct retention *retention;    /* loop */
    struct trail *trail;            /* loop */
    struct activity *activity;      /* loop */
    struct artifacts *artifacts;    /* see artifacts.h */
    struct idempotent *idempotent;  /* loop: requests with an Idempotency-Key that run */
    struct server_timer *broker_timer, *cleanup_timer;
    bool draining;        /* loop: SIGTERM came */
    atomic_bool stopping; /* any thread: the loop turns no more; what runs is to come to its end */
};

#endif
