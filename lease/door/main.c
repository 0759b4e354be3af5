#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "door.h"

static const char usage[] =
    "usage: leasedoor [--help | --version]\n"
    "\n"
    "The door of one sandbox: checks leases and bridges clients to the agent.\n"
    "The gateway starts it without arguments, with its spec on descriptor 3 and the client\n"
    "listener on descriptor 4.\n";

int main(int argc, char **argv)
{
    if (argc == 1)
        door_run();
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        fputs(usage, stdout);
        return EXIT_SUCCESS;
    }
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        puts("leasedoor " LEASEHOLD_VERSION);
        return EXIT_SUCCESS;
    }
    fputs(usage, stderr);
    return 2;
}
