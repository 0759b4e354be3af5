/* The inside of struct store. */
#ifndef STORAGE_STORE_H
#define STORAGE_STORE_H

#include "lockfile.h"
#include "readers.h"
#include "writer.h"

struct store {
    struct lockfile lock;
    struct writer writer;
    struct readers readers;
    struct usage_gate usage;
};

#endif
