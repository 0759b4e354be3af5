/* The index of topics: which subscribers an event may concern. */
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "event_feed_state.h"

/* Of a key that sees some users alone, "all" is what these users have, unless they are many: then
 * it is asked for every event. */
#define EXPAND_MAX 32

struct topic_ref {
    struct subscriber *sub;
    struct topic_entry *entry;
    struct topic_ref *prev, *next; /* of the entry */
    struct topic_ref *more;        /* of the subscriber */
};

struct topic_entry {
    struct topic topic;
    struct topic_ref *refs;
    UT_hash_handle hh;
};

static const struct id *id_of(const struct feed_event *ev, enum topic_kind kind)
{
    static const struct id none = {{0}};

    switch (kind) {
    case TOPIC_USER:
        return &ev->user_id;
    case TOPIC_CHAT:
        return &ev->chat_id;
    case TOPIC_SESSION:
        return &ev->session_id;
    case TOPIC_ALL:
        break;
    }
    return &none;
}

static struct topic topic_of(const struct feed_event *ev, enum topic_kind kind)
{
    struct topic topic;

    memset(&topic, 0, sizeof topic); /* it is hashed byte by byte */
    topic.kind = kind;
    topic.id = *id_of(ev, kind);
    return topic;
}

bool topics_match(const struct topic *topics, size_t n, const struct feed_event *ev)
{
    for (size_t i = 0; i < n; i++)
        if (id_equal(&topics[i].id, id_of(ev, topics[i].kind)))
            return true;
    return false;
}

static struct topic_entry *entry_find(const struct event_feed *f, const struct topic *topic)
{
    struct topic_entry *en;

    HASH_FIND(hh, f->index, topic, sizeof *topic, en);
    return en;
}

static struct topic_entry *entry_get(struct event_feed *f, const struct topic *topic)
{
    struct topic_entry *en = entry_find(f, topic);

    if (en)
        return en;
    en = calloc(1, sizeof *en);
    if (!en)
        return NULL;
    en->topic = *topic;
    HASH_ADD(hh, f->index, topic, sizeof en->topic, en);
    return en;
}

static void entry_tidy(struct event_feed *f, struct topic_entry *en)
{
    if (en->refs)
        return;
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): an entry that is there has a table */
    HASH_DEL(f->index, en);
    free(en);
}

static int enter(struct event_feed *f, struct subscriber *sub, const struct topic *topic)
{
    struct topic_entry *en = entry_get(f, topic);
    struct topic_ref *ref = en ? calloc(1, sizeof *ref) : NULL;

    if (!ref) {
        if (en)
            entry_tidy(f, en);
        return -1;
    }
    ref->sub = sub;
    ref->entry = en;
    ref->more = sub->refs;
    sub->refs = ref;
    DL_APPEND(en->refs, ref);
    return 0;
}

static int enter_users(struct event_feed *f, struct subscriber *sub, const struct caller *caller)
{
    for (size_t i = 0; i < caller->users_n; i++)
        if (enter(f, sub, &(struct topic){.kind = TOPIC_USER, .id = caller->users[i]}))
            return -1;
    return 0;
}

int topics_enter(struct event_feed *f, struct subscriber *sub, const struct caller *caller)
{
    bool expand = caller->limited && caller->users_n <= EXPAND_MAX;

    for (size_t i = 0; i < sub->topics_n; i++) {
        const struct topic *t = &sub->topics[i];
        bool users = expand && t->kind == TOPIC_ALL;

        if (users ? enter_users(f, sub, caller) : enter(f, sub, t))
            return -1;
    }
    return 0;
}

void topics_leave(struct event_feed *f, struct subscriber *sub)
{
    while (sub->refs) {
        struct topic_ref *ref = sub->refs;

        sub->refs = ref->more;
        if (f->walk.next == ref)
            f->walk.next = ref->next;
        DL_DELETE(ref->entry->refs, ref);
        entry_tidy(f, ref->entry);
        free(ref);
    }
}

/* --- an event on its way ---------------------------------------------------------------------- */

static struct topic_ref *refs_of(const struct event_feed *f, const struct feed_event *ev,
                                 enum topic_kind kind)
{
    const struct topic topic = topic_of(ev, kind);
    const struct topic_entry *en;

    if (kind != TOPIC_ALL && id_is_zero(&topic.id))
        return NULL;
    en = entry_find(f, &topic);
    return en ? en->refs : NULL;
}

void topics_walk_begin(struct event_feed *f, const struct feed_event *ev)
{
    f->walk = (struct feed_walk){.ev = ev, .kind = TOPIC_ALL, .next = refs_of(f, ev, TOPIC_ALL)};
}

static void walk_next_kind(struct event_feed *f)
{
    struct feed_walk *w = &f->walk;

    if (w->kind == TOPIC_SESSION) {
        *w = (struct feed_walk){0};
        return;
    }
    w->kind++;
    w->next = refs_of(f, w->ev, w->kind);
}

/* Who enters meanwhile has the event from the ring, or not at all. */
bool topics_walk(struct event_feed *f, size_t *left)
{
    struct feed_walk *w = &f->walk;

    while (w->ev) {
        struct subscriber *sub = w->next ? w->next->sub : NULL;

        if (!sub) {
            walk_next_kind(f);
            continue;
        }
        if (!*left)
            return false;
        --*left;
        w->next = w->next->next;
        if (sub->live)
            feed_deliver(f, sub, w->ev);
    }
    return true;
}

void topics_walk_settle(struct event_feed *f, struct subscriber *sub)
{
    const struct feed_event *ev = f->walk.ev;

    if (ev && sub->live && topics_match(sub->topics, sub->topics_n, ev))
        feed_deliver(f, sub, ev);
}
