/* Who waits for a door's confirmation. */
#include <utlist.h>

#include "broker_state.h"

static void finish(struct broker *b, struct broker_wait *w, bool acked)
{
    DL_DELETE(b->waits, w);
    w->acked = acked;
    w->done(w);
}

void broker_wait(struct broker *b, struct broker_wait *w)
{
    const struct session *s = broker_session_find(b, &w->session_id);

    w->cut = w->latency_us = 0;
    if (!s) { /* ended: nothing can be connected */
        w->acked = true;
        w->done(w);
        return;
    }
    if (!w->seq)
        w->seq = s->seq;
    if (s->acked >= w->seq) {
        w->acked = true;
        w->cut = s->last_cut;
        w->latency_us = s->last_latency_us;
        w->done(w);
        return;
    }
    w->deadline_us = clock_boot_us(b->clock) + w->timeout_ms * 1000;
    DL_APPEND(b->waits, w);
    broker_rearm(b);
}

void broker_waits_acked(struct broker *b, const struct session *s, int64_t cut, int64_t latency_us)
{
    struct broker_wait *w, *next;

    DL_FOREACH_SAFE (b->waits, w, next) {
        if (!id_equal(&w->session_id, &s->session_id))
            continue;
        w->cut += cut;
        if (latency_us > w->latency_us)
            w->latency_us = latency_us;
        if (s->acked >= w->seq)
            finish(b, w, true);
    }
}

void broker_waits_session_gone(struct broker *b, const struct session *s)
{
    struct broker_wait *w, *next;

    DL_FOREACH_SAFE (b->waits, w, next)
        if (id_equal(&w->session_id, &s->session_id))
            finish(b, w, true);
}

/* There will be no more confirmations. */
void broker_waits_end(struct broker *b)
{
    while (b->waits)
        finish(b, b->waits, false);
}

void broker_waits_tick(struct broker *b, int64_t now_us)
{
    struct broker_wait *w, *next;

    DL_FOREACH_SAFE (b->waits, w, next)
        if (w->deadline_us <= now_us)
            finish(b, w, false);
}
