/* Entries of the trail as the rest of the program thinks of them: who has done what to which thing. */
#include <stdio.h>

#include "leasehold/store.h"

#define OBJECT_MAX 384

static const char *actor_of(const struct audit_deed *d, char key[static ID_TEXT])
{
    if (d->actor != NULL) {
        return d->actor;
    }
    return d->caller != NULL && !id_is_zero(&d->caller->key_id) ? id_format(&d->caller->key_id, key)
                                                                : "gateway";
}

int store_audit_deed(struct store_tx *tx, const struct audit_deed *d, struct err *e)
{
    char key[ID_TEXT], object[OBJECT_MAX];
    const struct caller *c = d->caller;
    if (c != NULL && c->told != NULL) {
        *c->told = true;
    }
    snprintf(object, sizeof(object), "%s:%s%s%s", d->kind,
             d->within != NULL ? ID_STR(d->within) : "", d->within != NULL ? "/" : "",
             d->id != NULL ? ID_STR(d->id) : d->name);
    return store_audit(tx,
                       &(struct audit_entry){
                           .at = store_now_ms(tx),
                           .actor = actor_of(d, key),
                           .action = d->action,
                           .object = object,
                           .outcome = d->outcome != NULL ? d->outcome : "ok",
                           .address = c != NULL && c->address != NULL ? c->address : "",
                           .request_id = c != NULL && c->request_id != NULL ? c->request_id : "",
                           .detail = d->detail != NULL ? d->detail : "",
                       },
                       e);
}
