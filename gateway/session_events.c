/* What the event log says of sandboxes, and when one is told of that will be stopped soon. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "leasehold/clock.h"
#include "leasehold/json.h"
#include "sessions_state.h"

#define DATA_CAP     8192 /* an image's name may be long */
#define LOOK_MS      1000
#define IDLE_SOON_MS 60000 /* before its time is over, or in the last quarter of a shorter one */

static void data_put(const struct sandbox *s, const char *reason, struct buf *out)
{
    char at[TIME_TEXT];

    buf_printf(out, "{\"session_id\":\"%s\",\"chat_id\":\"%s\",\"user_id\":\"%s\"",
               ID_STR(&s->session_id), ID_STR(&s->chat_id), ID_STR(&s->user_id));
    buf_printf(out, ",\"generation\":%" PRId64 ",\"status\":\"%s\",\"expires_at\":\"%s\"",
               s->generation, sandbox_status_names[s->status], time_format(s->expires_at, at));
    buf_add_str(out, ",\"reason\":");
    json_add_string(out, reason, strlen(reason));
}

static void detail_put(const struct sandbox *s, struct buf *out)
{
    buf_add_str(out, ",\"detail\":");
    if (s->detail[0])
        json_add_string(out, s->detail, strlen(s->detail));
    else
        buf_add_str(out, "null");
}

static void pull_put(const struct pull_progress *p, const char *layer, struct buf *out)
{
    buf_add_str(out, ",\"image\":");
    json_add_string(out, p->image, strlen(p->image));
    buf_add_str(out, ",\"layer\":");
    json_add_string(out, layer, strlen(layer));
    buf_printf(out, ",\"layers\":%" PRId64 ",\"layers_done\":%" PRId64, p->layers, p->layers_done);
}

/* `pull` NULL: it is about no image. */
static int append(struct store_tx *tx, const char *name, const struct sandbox *s,
                  const char *reason, const struct pull_progress *pull, const char *layer,
                  struct err *e)
{
    struct buf data;
    int rc;

    buf_init(&data, DATA_CAP);
    data_put(s, reason, &data);
    if (s->status == SANDBOX_FAILED)
        detail_put(s, &data);
    if (pull)
        pull_put(pull, layer, &data);
    buf_add_char(&data, '}');
    rc = buf_ok(&data) ? store_event_append(tx,
                                            &(struct store_event){.name = name,
                                                                  .user_id = s->user_id,
                                                                  .chat_id = s->chat_id,
                                                                  .session_id = s->session_id,
                                                                  .data = data.data},
                                            e)
                       : err_set(e, ERR_INTERNAL, "no memory for event %s", name);
    buf_done(&data);
    return rc;
}

int session_event(struct store_tx *tx, const struct sandbox *s, struct err *e)
{
    char name[32];

    snprintf(name, sizeof name, "sandbox.%s", sandbox_status_names[s->status]);
    return append(tx, name, s, s->reason, NULL, NULL, e);
}

int session_pull_event(struct store_tx *tx, const struct sandbox *s, const struct pull_progress *p,
                       const char *layer, struct err *e)
{
    return append(tx, "sandbox.pulling", s, "", p, layer, e);
}

/* --- idle soon ------------------------------------------------------------------------------- */

struct idle_soon {
    struct store_job job;
    struct id session_id;
    int64_t expires_at;
};

static int idle_soon_row(struct store_tx *tx, void *arg, struct err *e)
{
    const struct idle_soon *soon = arg;
    struct sandbox s;

    if (store_sandbox_get(tx, &soon->session_id, &s, e))
        return -1;
    if (s.status != SANDBOX_RUNNING)
        return 0;
    s.expires_at = soon->expires_at; /* the row is behind by what is not saved yet */
    return append(tx, "sandbox.idle_soon", &s,
                  s.expires_at >= s.max_expires_at ? "max_ttl" : "idle", NULL, NULL, e);
}

static void idle_soon_done(struct job *job)
{
    free((char *)job - offsetof(struct idle_soon, job.job));
}

/* Without memory or room in the queue it is tried at the next look. */
static void idle_soon_tell(struct sessions *ss, struct live *l)
{
    struct idle_soon *soon = calloc(1, sizeof *soon);
    struct err e;

    if (!soon)
        return;
    *soon =
        (struct idle_soon){.job = {.job.done = idle_soon_done, .fn = idle_soon_row, .arg = soon},
                           .session_id = l->session_id,
                           .expires_at = l->expires_at};
    if (store_submit(ss->s->store, &soon->job, &e))
        free(soon);
    else
        l->told_expiry = l->expires_at;
}

static bool is_idle_soon(const struct live *l, int64_t now)
{
    int64_t quarter = l->idle_ttl_s * 1000 / 4;
    int64_t ahead = quarter < IDLE_SOON_MS ? quarter : IDLE_SOON_MS;

    return l->running && l->told_expiry != l->expires_at && l->expires_at > now &&
           l->expires_at - now <= ahead;
}

static void look(void *ctx)
{
    struct sessions *ss = ctx;
    int64_t now = clock_wall_ms(ss->s->clock);
    struct live *l, *next;

    HASH_ITER (hh, ss->live, l, next)
        if (is_idle_soon(l, now))
            idle_soon_tell(ss, l);
    server_timer_arm(ss->idle_timer, LOOK_MS);
}

int sessions_idle_begin(struct sessions *ss)
{
    ss->idle_timer = server_timer_new(ss->s->server, look, ss);
    if (!ss->idle_timer)
        return -1;
    server_timer_arm(ss->idle_timer, LOOK_MS);
    return 0;
}

void sessions_idle_end(struct sessions *ss)
{
    server_timer_free(ss->idle_timer);
}
