/* What agents type first. */
#ifndef INIT_USAGE_H
#define INIT_USAGE_H

#include <stdbool.h>
#include <string.h>

static inline bool usage_is_wanted(int argc, char **argv)
{
    return argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
}

#endif
