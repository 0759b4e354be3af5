/* The inside of struct store. */
#ifndef STORAGE_STORE_H
#define STORAGE_STORE_H

#include "check.h"
#include "lockfile.h"
#include "readers.h"
#include "writer.h"

struct store {
    struct lockfile lock;
    struct store_check check;
    bool unchecked; /* when it was opened */
    bool whole;     /* as far as anybody knows, when it is closed */
    struct writer writer;
    struct readers readers;
    struct usage_gate usage;
};

#endif
