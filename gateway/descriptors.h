/* How many descriptors this process may have. */
#ifndef GATEWAY_DESCRIPTORS_H
#define GATEWAY_DESCRIPTORS_H

#include "leasehold/err.h"

#define DESCRIPTORS_MOST 262144

/* Sets the soft limit to what a gateway can use, before anything is opened. Too few: it does not start. */
int descriptors_take(struct err *e) MUST_CHECK;

#endif
