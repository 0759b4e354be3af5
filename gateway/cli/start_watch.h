/* While a sandbox is opened: how far the image is that its start waits for, on a terminal. */
#ifndef CLI_START_WATCH_H
#define CLI_START_WATCH_H

#include "command.h"

struct start_watch;

/* NULL: there is nobody to show it to. Without memory or a thread nothing is shown either. */
struct start_watch *start_watch_begin(const struct cli *cli, const struct options *o);
void start_watch_end(struct start_watch *w); /* NULL: nothing */

#endif
