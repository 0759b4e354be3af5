/* What faults.py puts before each source that it has planted faults into. */
#ifndef PROPERTY_PLANTED_H
#define PROPERTY_PLANTED_H

#include <stdbool.h>

/* The number of the one fault that is there now; 0: none. */
extern int fault_planted;
#define FAULT(n) (fault_planted == (n))

struct planted {
    int number;
    const char *what;
    bool there; /* its place in the source was found */
};

#endif
