/* What a workspace holds, as a sum in its row: kept by every write, corrected by scans. */
#include "usage.h"

#include <inttypes.h>
#include <stdio.h>

#include "leasehold/artifacts.h"
#include "leasehold/chatdir.h"
#include "stmt.h"
#include "store.h"

void usage_gate_init(struct usage_gate *g, int64_t quota_bytes)
{
    *g = (struct usage_gate){.quota_bytes = quota_bytes};
    pthread_mutex_init(&g->lock, NULL);
}

void usage_gate_done(struct usage_gate *g)
{
    pthread_mutex_destroy(&g->lock);
}

/* --- scans beside writes ---------------------------------------------------------------------- */

/* The last byte of an id is random in every version of it. */
static struct usage_slot *slot_of(struct usage_gate *g, const struct id *user_id)
{
    return &g->slots[user_id->b[sizeof(user_id->b) - 1] % USAGE_SLOTS];
}

void store_usage_hold(struct store *s, const struct id *user_id)
{
    pthread_mutex_lock(&s->usage.lock);
    slot_of(&s->usage, user_id)->changes++;
    slot_of(&s->usage, user_id)->held++;
    pthread_mutex_unlock(&s->usage.lock);
}

void store_usage_release(struct store *s, const struct id *user_id)
{
    pthread_mutex_lock(&s->usage.lock);
    slot_of(&s->usage, user_id)->held--;
    pthread_mutex_unlock(&s->usage.lock);
}

bool store_usage_mark(struct store *s, const struct id *user_id, uint64_t *ret)
{
    pthread_mutex_lock(&s->usage.lock);
    const struct usage_slot *slot = slot_of(&s->usage, user_id);
    bool still = slot->held == 0;
    *ret = slot->changes;
    pthread_mutex_unlock(&s->usage.lock);
    return still;
}

/* --- the sum ---------------------------------------------------------------------------------- */

int store_usage_get(struct store_tx *tx, const struct id *user_id, struct store_usage *ret,
                    struct err *e)
{
    struct stmt st;
    struct store_usage u = {.quota_bytes = tx->usage->quota_bytes};
    if (stmt_open(&st, tx->conn, "workspace", "SELECT used_bytes FROM workspaces WHERE user_id = ?",
                  e) != 0) {
        return -1;
    }
    bind_id(&st, user_id);
    if (stmt_end_with_int(&st, ERR_WORKSPACE_NOT_FOUND, &u.used_bytes, e) != 0) {
        return -1;
    }
    u.over_quota = u.used_bytes > u.quota_bytes;
    *ret = u;
    return 0;
}

/* Once, when the line is crossed. */
static int tell_over(struct store_tx *tx, const struct id *user_id, const struct store_usage *u,
                     struct err *e)
{
    char data[192];
    snprintf(data, sizeof(data),
             "{\"user_id\":\"%s\",\"used_bytes\":%" PRId64 ",\"quota_bytes\":%" PRId64 "}",
             ID_STR(user_id), u->used_bytes, u->quota_bytes);
    return store_event_append(
        tx,
        &(struct store_event){.name = "workspace.over_quota", .user_id = *user_id, .data = data},
        e);
}

/* What grows is in use. */
static int put(struct store_tx *tx, const struct id *user_id, int64_t used, bool grows,
               struct err *e)
{
    struct store_usage before;
    struct stmt st;
    if (store_usage_get(tx, user_id, &before, e) != 0 ||
        stmt_open(&st, tx->conn, "workspace",
                  "UPDATE workspaces SET used_bytes = ?,"
                  " last_active_at = CASE ? WHEN 1 THEN ? ELSE last_active_at END"
                  " WHERE user_id = ?",
                  e) != 0) {
        return -1;
    }
    bind_int(&st, used);
    bind_int(&st, grows);
    bind_int(&st, tx->now_ms);
    bind_id(&st, user_id);
    if (stmt_run_one(&st, ERR_WORKSPACE_NOT_FOUND, e) != 0) {
        return -1;
    }
    const struct store_usage after = {.used_bytes = used, .quota_bytes = before.quota_bytes};
    return !before.over_quota && used > after.quota_bytes ? tell_over(tx, user_id, &after, e) : 0;
}

int store_usage_add(struct store_tx *tx, const struct id *user_id, int64_t delta_bytes,
                    bool enforce, struct err *e)
{
    struct store_usage u;
    if (store_usage_get(tx, user_id, &u, e) != 0) {
        return -1;
    }
    if (enforce && delta_bytes > 0 && delta_bytes > u.quota_bytes - u.used_bytes) {
        return err_set(e, ERR_WORKSPACE_QUOTA_EXCEEDED, "%lld of %lld bytes are used",
                       (long long)u.used_bytes, (long long)u.quota_bytes);
    }
    /* Only what was counted is taken off: less than nothing is a fault, which a scan mends. */
    int64_t used = delta_bytes < -u.used_bytes                      ? 0
                   : delta_bytes > CHATDIR_USAGE_MAX - u.used_bytes ? CHATDIR_USAGE_MAX
                                                                    : u.used_bytes + delta_bytes;
    return delta_bytes != 0 ? put(tx, user_id, used, delta_bytes > 0, e) : 0;
}

int store_usage_correct(struct store_tx *tx, const struct id *user_id, uint64_t mark,
                        int64_t scanned_bytes, bool *ret_done, struct err *e)
{
    int64_t artifacts;
    pthread_mutex_lock(&tx->usage->lock);
    const struct usage_slot *slot = slot_of(tx->usage, user_id);
    bool still = slot->held == 0 && slot->changes == mark;
    pthread_mutex_unlock(&tx->usage->lock);
    if (still && (store_artifact_sum(tx, user_id, &artifacts, e) != 0 ||
                  put(tx, user_id, scanned_bytes + artifacts, false, e) != 0)) {
        return -1;
    }
    *ret_done = still;
    return 0;
}
