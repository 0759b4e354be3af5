/* How far a transfer is: a line on a terminal that is written over, nothing elsewhere. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    const char *name; /* borrowed */
    int64_t total, done;
    int64_t begun_at; /* where this run began: what it resumes cost no time now */
    int64_t start_us, shown_us;
    bool visible;
};

void progress_begin(struct progress *p, const char *name, int64_t done, int64_t total, bool quiet);
void progress_add(struct progress *p, int64_t bytes);
void progress_end(struct progress *p);

/* "name  45%  12.3 MiB/s  0:07 left" as it stands after `us` of this run. */
#define PROGRESS_LINE 160
void progress_line(const struct progress *p, int64_t us, char ret[static PROGRESS_LINE]);

#endif
