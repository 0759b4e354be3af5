#include "leasehold/objects.h"

int objects_key(const char *prefix, const struct id *user_id, const struct id *chat_id,
                const struct id *artifact_id, struct buf *ret, struct err *e)
{
    buf_reset(ret);
    buf_printf(ret, "%s%s%s/%s/%s", prefix, prefix[0] != '\0' ? "/" : "", ID_STR(user_id),
               ID_STR(chat_id), ID_STR(artifact_id));
    return buf_ok(ret) && ret->len <= OBJECT_KEY_MAX
               ? 0
               : err_set(e, ERR_INTERNAL, "the prefix of objects is too long");
}
