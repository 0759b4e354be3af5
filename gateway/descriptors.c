#include "descriptors.h"

#include <errno.h>
#include <sys/resource.h>

/* Below this no quarter of the descriptors is enough for what it is meant for (server.c). */
#define DESCRIPTORS_MIN  256
#define DESCRIPTORS_WANT 65536 /* the unit file's (docs/operations.md) */

/* Shells and service managers give out a soft limit that suits select(), which nothing here uses, and
 * some containers one of millions, for each of which libwebsockets keeps a place. */
int descriptors_take(struct err *e)
{
    struct rlimit limit;
    rlim_t had;

    if (getrlimit(RLIMIT_NOFILE, &limit))
        return err_sys(e, ERR_INTERNAL, errno, "getrlimit");
    had = limit.rlim_cur;
    if (had < DESCRIPTORS_WANT)
        limit.rlim_cur = limit.rlim_max < DESCRIPTORS_WANT ? limit.rlim_max : DESCRIPTORS_WANT;
    else if (had > DESCRIPTORS_MOST)
        limit.rlim_cur = DESCRIPTORS_MOST;
    if (limit.rlim_cur != had && setrlimit(RLIMIT_NOFILE, &limit))
        return err_sys(e, ERR_INTERNAL, errno, "setrlimit");
    return limit.rlim_cur >= DESCRIPTORS_MIN
               ? 0
               : err_set(e, ERR_INTERNAL,
                         "%llu descriptors are too few: at least %d are needed (ulimit -n, or "
                         "LimitNOFILE of the unit)",
                         (unsigned long long)limit.rlim_cur, DESCRIPTORS_MIN);
}
