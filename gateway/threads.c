#include "threads.h"

#include <unistd.h>

#include "meters.h"
#include "op.h"

#define QUEUE_MAX      1000
#define SCRAPES_MAX    8
#define PULL_WAITS_MAX 16 /* starts that wait for their images */

static struct lane *metered(struct services *s, enum meter_lane which, const char *name,
                            unsigned threads, size_t queue_max, struct err *e)
{
    struct lane *l =
        lane_new(name, threads, queue_max ? queue_max : QUEUE_MAX, server_inbox(s->server), e);
    struct lane_meters meters;

    if (!l)
        return NULL;
    meters_lane(s->meters, which, &meters);
    lane_meter(l, &meters);
    return l;
}

int threads_make(struct services *s, size_t queue_max, struct err *e)
{
    struct inbox *in = server_inbox(s->server);
    long found = sysconf(_SC_NPROCESSORS_ONLN);
    unsigned cpus = found > 0 ? (unsigned)found : 1;

    s->read = metered(s, METER_READ, "read", READ_THREADS, queue_max, e);
    s->file = s->read ? metered(s, METER_FILE, "file", FILE_THREADS, queue_max, e) : NULL;
    s->runtime = s->file ? metered(s, METER_RUNTIME, "runtime", cpus * 2, queue_max, e) : NULL;
    s->slow = s->runtime ? metered(s, METER_SLOW, "slow", SLOW_THREADS, queue_max, e) : NULL;
    s->scrape = s->slow ? lane_new("scrape", 1, SCRAPES_MAX, in, e) : NULL;
    s->body = s->scrape ? lane_new("body", BODY_THREADS, SIZE_MAX, in, e) : NULL;
    /* Half of them: signatures are made beside the commit, and the loop and the writer go on. */
    s->sign = s->body ? lane_new("sign", (cpus + 1) / 2, SIZE_MAX, in, e) : NULL;
    /* As the body lane, it takes a job of every stream. */
    s->object = s->sign ? metered(s, METER_OBJECT, "object", OBJECT_THREADS, SIZE_MAX, e) : NULL;
    if (!s->object ||
        (s->cfg->sandbox.engine == ENGINE_DOCKER && lane_spare(s->runtime, PULL_WAITS_MAX, e)))
        return -1;
    /* Signed together, and the loop is woken once for all. */
    lane_batch(s->sign, CALL_SIGN_MAX, call_sign_all);
    return 0;
}
