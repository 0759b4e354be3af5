/* Entries of the trail as the rest of the program thinks of them: who has done what to which thing. */
#include <stdio.h>
#include <string.h>

#include "audit.h"
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

/* The length of the character at s, as its first byte tells; never behind the end of s. */
static size_t character_len(const char *s)
{
    size_t len = 1;
    while (((unsigned char)s[len] & 0xc0) == 0x80) {
        len++;
    }
    return len;
}

static void add_name(char *at, size_t room, const char *name)
{
    while (*name != '\0') {
        unsigned char c = (unsigned char)*name;
        bool escaped = c <= ' ' || c == 0x7f || c == '%';
        size_t len = escaped ? 1 : character_len(name);
        size_t need = escaped ? 3 : len;
        if (need >= room) {
            break;
        }
        if (escaped) {
            snprintf(at, room, "%%%02X", c);
        } else {
            memcpy(at, name, len);
        }
        name += len;
        at += need;
        room -= need;
    }
    *at = '\0';
}

void store_audit_detail(char ret[static STORE_AUDIT_DETAIL], const char *detail,
                        const struct id *chat_id, const char *name)
{
    size_t size = STORE_AUDIT_DETAIL;
    snprintf(ret, size, "%.255s", detail != NULL ? detail : "");
    if (chat_id == NULL || id_is_zero(chat_id)) {
        return;
    }
    size_t at = strlen(ret);
    snprintf(ret + at, size - at, "%s%s%s", at > 0 ? " " : "", AUDIT_OF_CHAT, ID_STR(chat_id));
    if (name != NULL && name[0] != '\0') {
        at = strlen(ret);
        snprintf(ret + at, size - at, " name=");
        at += strlen(ret + at);
        add_name(ret + at, size - at, name);
    }
}

static char *put(char *at, const char *end, const char *s)
{
    size_t len = strlen(s), room = (size_t)(end - at) - 1;
    len = len < room ? len : room;
    memcpy(at, s, len);
    at[len] = '\0';
    return at + len;
}

static void object_put(const struct audit_deed *d, char ret[static OBJECT_MAX])
{
    const char *end = ret + OBJECT_MAX;
    char *at = put(put(ret, end, d->kind), end, ":");
    if (d->within != NULL) {
        at = put(put(at, end, ID_STR(d->within)), end, "/");
    }
    put(at, end, d->id != NULL ? ID_STR(d->id) : d->name);
}

int store_audit_deed(struct store_tx *tx, const struct audit_deed *d, struct err *e)
{
    char key[ID_TEXT], object[OBJECT_MAX], of_chat[STORE_AUDIT_DETAIL];
    const char *detail = d->detail != NULL ? d->detail : "";
    const struct caller *c = d->caller;
    if (c != NULL && c->told != NULL) {
        *c->told = true;
    }
    if (d->chat_id != NULL) {
        store_audit_detail(of_chat, detail, d->chat_id, d->chat_name);
        detail = of_chat;
    }
    object_put(d, object);
    return store_audit(tx,
                       &(struct audit_entry){
                           .at = store_now_ms(tx),
                           .actor = actor_of(d, key),
                           .action = d->action,
                           .object = object,
                           .outcome = d->outcome != NULL ? d->outcome : "ok",
                           .address = c != NULL && c->address != NULL ? c->address : "",
                           .request_id = c != NULL && c->request_id != NULL ? c->request_id : "",
                           .detail = detail,
                       },
                       e);
}
