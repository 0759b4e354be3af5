/* Whether there is what a revocation names. The gateway answers that nothing matches, either way. */
#include <stdio.h>
#include <string.h>

#include "command_opts.h"
#include "views.h"

#define LOOK_CAP  (1024UL * 1024)
#define PAGES_MAX 1000 /* of 200: a list without end is no list */

struct look {
    const struct cli *cli;
    struct api *api;
    const char *name; /* what is looked for */
    bool found;
    char next[256]; /* where the list goes on; "": nowhere */
};

struct named_view {
    char *name;
};

static const struct field kid_fields[] = {
    {.name = "kid", .kind = FIELD_KIND_STR, .flags = FIELD_REQUIRED},
    {0},
};
static const struct field key_id_fields[] = {
    {.name = "key_id", .kind = FIELD_KIND_STR, .flags = FIELD_REQUIRED},
    {0},
};

/* A list of which only the names count. */
#define NAMES(list, name_fields)                                                                   \
    {                                                                                              \
        {.name = (list),                                                                           \
         .kind = FIELD_KIND_LIST,                                                                  \
         .flags = FIELD_REQUIRED,                                                                  \
         .offset = offsetof(struct list_view, items),                                              \
         .fields = (name_fields),                                                                  \
         .elem = sizeof(struct named_view),                                                        \
         .max = PAGE_ITEMS_MAX},                                                                   \
            FIELD_STR(struct list_view, next_cursor), {0},                                         \
    }

static const struct field signing_keys_fields[] = NAMES("keys", kid_fields);
static const struct field api_keys_fields[] = NAMES("items", key_id_fields);

static void look_in(struct look *l, const struct list_view *page)
{
    const struct named_view *v = page->items.items;
    for (size_t i = 0; i < page->items.n && !l->found; i++) {
        l->found = strcmp(v[i].name, l->name) == 0;
    }
    const char *next = page->next_cursor;
    bool fits = next != NULL && strlen(next) < sizeof(l->next);
    snprintf(l->next, sizeof(l->next), "%s", fits ? next : "");
}

static int read_page(struct look *l, const struct api_answer *a, const struct field *fields)
{
    struct arena *arena = arena_new(LOOK_CAP);
    struct list_view page;
    struct err e;
    int code = EXIT_OK;
    if (arena == NULL) {
        err_set(&e, ERR_INTERNAL, "no memory");
        code = report_err(&e);
    } else if (api_answer_read(a, fields, &page, arena, &e) < 0) {
        code = report_err(&e);
    } else {
        look_in(l, &page);
    }
    arena_free(arena);
    return code;
}

/* Looks for the name in one answer. `fields` NULL: an answer at all is what is looked for. */
static int look_at(struct look *l, const char *path, const struct field *fields)
{
    struct api_answer answer;
    struct err e;
    long timeout_ms = l->cli->timeout_ms > 0 ? l->cli->timeout_ms : QUICK;
    int code = EXIT_OK;
    api_answer_init(&answer);
    if (api_call(l->api, "GET", path, NULL, timeout_ms, &answer, &e) < 0) {
        code = report_err(&e);
    } else if (fields == NULL && answer.status == 404) {
        l->found = false;
    } else if (!api_answer_ok(&answer)) {
        code = api_refused(&answer);
    } else if (fields == NULL) {
        l->found = true;
    } else {
        code = read_page(l, &answer, fields);
    }
    api_answer_done(&answer);
    return code;
}

static int look_at_kids(struct look *l)
{
    return look_at(l, "/keys", signing_keys_fields);
}

static int look_at_api_keys(struct look *l)
{
    int code = EXIT_OK;
    for (int i = 0; i < PAGES_MAX && code == EXIT_OK && !l->found; i++) {
        char path[sizeof(l->next) + 64];
        if (i > 0 && l->next[0] == '\0') {
            break;
        }
        snprintf(path, sizeof(path), "/api-keys?limit=200%s%s", i > 0 ? "&cursor=" : "", l->next);
        code = look_at(l, path, api_keys_fields);
    }
    return code;
}

/* A lease is the owner's of its chat, and a chat lies in its owner's workspace. */
static int look_at_user(struct look *l)
{
    char path[ID_TEXT + 64];
    snprintf(path, sizeof(path), "/users/%s/workspace", l->name);
    return look_at(l, path, NULL);
}

static const struct selector {
    const char *option;
    int (*look)(struct look *l);
    const char *missing, *hint; /* around the name */
} selectors[] = {
    {"--kid", look_at_kids, "no signing key has the kid", "'leasectl key signing' lists them"},
    {"--key", look_at_api_keys, "no API key has the id", "'leasectl key ls' lists them"},
    {"--user", look_at_user, "no such user here:", "there is no workspace of theirs"},
};

static int look_by(const struct cli *cli, const struct selector *s, const struct opt_value *v)
{
    char id[ID_TEXT];
    struct err e;
    struct look l = {.cli = cli, .name = v->text, .api = api_new(&cli->access)};
    if (v->spec->kind == OPT_UUID) {
        l.name = id_format(&v->id, id);
    }
    if (l.api == NULL) {
        err_set(&e, ERR_INTERNAL, "no memory");
        return report_err(&e);
    }
    int code = s->look(&l);
    api_free(l.api);
    if (code == EXIT_OK && !l.found) {
        err_set(&e, ERR_NOT_FOUND, "%s %.64s: %s", s->missing, l.name, s->hint);
        code = report_err(&e);
    }
    return code;
}

int revoke_look(const struct cli *cli, const struct options *o)
{
    for (size_t i = 0; i < sizeof(selectors) / sizeof(selectors[0]); i++) {
        const struct opt_value *v = options_find(o, selectors[i].option);
        if (v != NULL) {
            return look_by(cli, &selectors[i], v);
        }
    }
    return EXIT_OK;
}
