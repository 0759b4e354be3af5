/*
 * How often a caller may ask (security.rate_limit): each key so many calls a second with a burst, and
 * each address (of IPv6: each /64) so many refusals without one. Loop thread.
 */
#ifndef GATEWAY_LIMITS_H
#define GATEWAY_LIMITS_H

#include "leasehold/config.h"
#include "leasehold/id.h"

/* So many keys, and so many addresses, are remembered; beyond it the one that owes least makes room. */
#define LIMITS_COUNTED_MAX 100000

struct limits;

struct limits *limits_new(const struct config_security *cfg); /* NULL without memory */
void limits_free(struct limits *l);

/* Another call of the key, another refusal to the address. ERR_RATE_LIMITED: it is over the rate, and
 * *ret_retry_s tells when it will not be. */
int limits_call(struct limits *l, const struct id *key_id, int64_t now_us, int *ret_retry_s,
                struct err *e) MUST_CHECK;
int limits_refusal(struct limits *l, const char *address, int64_t now_us, int *ret_retry_s,
                   struct err *e) MUST_CHECK;

/* Forgets who is within the rate. Every now and then. */
void limits_cleanup(struct limits *l, int64_t now_us);

#endif
