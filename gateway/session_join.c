/*
 * An open that does not wait, of a chat whose sandbox is starting: that start is its answer. It has passed
 * the chat's key, which the start has opened, as in its turn it would stand behind that and its image.
 */
#include <string.h>

#include "meters.h"
#include "sessions_state.h"

int session_may_share(const struct sandbox *s, const struct session_open *o, struct err *e)
{
    if (o->profile && strcmp(o->profile, s->profile) != 0)
        return err_set(e, ERR_CONFLICT, "the chat's session runs with profile %.64s", s->profile);
    if (o->env_n > 0)
        return err_set(e, ERR_CONFLICT, "the chat's session runs, env is for one that is started");
    return 0;
}

struct joining {
    const struct session_open *o;
    struct session_opened *ret;
    enum session_joined joined;
};

/* What the start has in hand is written behind us: another idle time would be lost, so it comes later.
 * So does who finds a session that is being stopped: to look again would end only with the start. */
static int join_row(struct store_tx *tx, void *arg, struct err *e)
{
    struct joining *j = arg;
    const struct session_open *o = j->o;
    struct sandbox *s = &j->ret->sandbox;

    j->joined = SESSION_JOIN_NONE;
    if (store_sandbox_active(tx, &o->chat_id, s, e))
        return e->code == ERR_NOT_FOUND ? 0 : -1;
    if (s->status != SANDBOX_STARTING && s->status != SANDBOX_STOPPING)
        return 0;
    j->joined = SESSION_JOIN_LATER;
    if (s->status == SANDBOX_STOPPING)
        return 0;
    if (o->idle_ttl_s && o->idle_ttl_s != s->idle_ttl_s)
        return 0;
    if (session_may_share(s, o, e) || session_audit(tx, o->caller, "sandbox.reuse", s, "ok", e) ||
        (o->hooks && o->hooks->begun && o->hooks->begun(tx, o->hooks->ctx, j->ret, e)))
        return -1;
    j->joined = SESSION_JOINED;
    return 0;
}

int session_join(struct services *s, const struct session_open *o, struct session_opened *ret,
                 enum session_joined *ret_joined, struct err *e)
{
    struct joining j = {.o = o, .ret = ret};
    int rc;

    *ret = (struct session_opened){.reused = true};
    rc = store_write(s->store, join_row, &j, e);
    *ret_joined = j.joined;
    if (!rc && j.joined == SESSION_JOINED)
        log_event(s->log, LOG_INFO, "sandbox_reused", LF_ID("session_id", &ret->sandbox.session_id),
                  LF_ID("chat_id", &o->chat_id));
    if (rc || j.joined == SESSION_JOINED)
        metric_add(meter(s->meters, METER_SANDBOX_CREATE), rc ? METER_FAILED : METER_REUSED, 0, 1);
    return rc;
}
