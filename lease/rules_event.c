/* What the event log says of leases. */
#include <inttypes.h>

#include "leasehold/clock.h"
#include "leasehold/json.h"
#include "rules.h"

#define DATA_CAP   1024
#define DATA_USUAL 320

static void add_id(struct buf *out, const char *before, const struct id *id)
{
    buf_add_str(out, before);
    buf_add(out, ID_STR(id), ID_TEXT - 1);
}

static void data_put(const struct lease *l, struct buf *out)
{
    char at[TIME_TEXT];

    add_id(out, "{\"lease_id\":\"", &l->lease_id);
    add_id(out, "\",\"session_id\":\"", &l->session_id);
    add_id(out, "\",\"chat_id\":\"", &l->chat_id);
    add_id(out, "\",\"user_id\":\"", &l->user_id);
    buf_add_str(out, "\",\"expires_at\":\"");
    buf_add_str(out, time_format(l->expires_at, at));
    buf_add_str(out, "\",\"reason\":");
    json_add_string(out, l->revoked_reason, strlen(l->revoked_reason));
    buf_add_char(out, '}');
}

int lease_event(struct store_tx *tx, const char *name, const struct lease *l, struct err *e)
{
    struct buf data;
    int rc;

    buf_init(&data, DATA_CAP);
    buf_reserve(&data, DATA_USUAL);
    data_put(l, &data);
    rc = buf_ok(&data) ? store_event_append(tx,
                                            &(struct store_event){.name = name,
                                                                  .user_id = l->user_id,
                                                                  .chat_id = l->chat_id,
                                                                  .session_id = l->session_id,
                                                                  .data = data.data},
                                            e)
                       : err_set(e, ERR_INTERNAL, "no memory for event %s", name);
    buf_done(&data);
    return rc;
}

int lease_tell_unconfirmed(struct store_tx *tx, const struct id *ids, size_t n, struct err *e)
{
    for (size_t i = 0; i < n; i++) {
        struct lease l;
        bool there;

        if (lease_get_if_there(tx, &ids[i], &l, &there, e))
            return -1;
        if (there && (l.state == LEASE_REVOKING || l.state == LEASE_EXPIRING) &&
            lease_event(tx, "lease.unconfirmed", &l, e))
            return -1;
    }
    return 0;
}
