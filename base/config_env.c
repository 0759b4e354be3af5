/* Every scalar key by environment: LEASEHOLD_<SECTION>_<KEY>. */
#include <ctype.h>
#include <string.h>

#include "config_load.h"
#include "field_put.h"
#include "utf8.h"

/* A name of the environment and what is left of it to be matched. */
struct span {
    const char *s;
    size_t len;
};

/* What a variable names: a row and the struct its offset counts from. */
struct target {
    const struct field *f;
    void *obj;
};

static bool starts_with_upper(struct span text, const char *lower)
{
    size_t i = 0;
    for (; lower[i] != '\0'; i++) {
        if (i == text.len || text.s[i] != toupper((unsigned char)lower[i])) {
            return false;
        }
    }
    return i == text.len || text.s[i] == '_';
}

static struct target find(const struct field *fields, void *obj, struct span name)
{
    for (const struct field *f = fields; f->name != NULL; f++) {
        if (!starts_with_upper(name, f->name)) {
            continue;
        }
        size_t len = strlen(f->name);
        if (len == name.len) {
            return (struct target){.f = f, .obj = obj};
        }
        if (f->kind == FIELD_KIND_OBJECT) {
            struct span rest = {.s = name.s + len + 1, .len = name.len - len - 1};
            struct target inner = find(f->fields, field_at(f, obj), rest);
            if (inner.f != NULL) {
                return inner;
            }
        }
    }
    return (struct target){0};
}

/* Variables that other programs of the project read. */
static bool is_foreign(struct span name)
{
    static const char *const names[] = {"URL", "KEY"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strlen(names[i]) == name.len && memcmp(names[i], name.s, name.len) == 0) {
            return true;
        }
    }
    return name.len >= 5 && memcmp(name.s, "TEST_", 5) == 0;
}

static int fail(struct config_loader *ld, struct span name, const char *what)
{
    char quoted[UTF8_QUOTE_SIZE];
    return err_set(ld->e, ERR_INVALID_REQUEST, "environment " CONFIG_ENV_PREFIX "%s: %s",
                   utf8_quote(name.s, name.len, quoted), what);
}

static int read_variable(struct config_loader *ld, struct span name, const char *value)
{
    struct target t = find(config_fields, ld->c, name);
    if (t.f == NULL) {
        return fail(ld, name, "names no key");
    }
    if (t.f->kind == FIELD_KIND_LIST) {
        return fail(ld, name, "lists are set in the file only");
    }
    if (t.f->kind == FIELD_KIND_OBJECT) {
        return fail(ld, name, "names a section, not a key");
    }
    if (field_put_text(t.f, t.obj, "", value, strlen(value), ld->c->arena, ld->e) != 0) {
        return fail(ld, name, ld->e->msg);
    }
    return config_note(
        ld, (struct config_origin){.at = field_at(t.f, t.obj), .env = name.s, .env_len = name.len});
}

int config_read_env(struct config_loader *ld, char *const *env)
{
    const size_t prefix = strlen(CONFIG_ENV_PREFIX);
    for (; env != NULL && *env != NULL; env++) {
        const char *equals = strchr(*env, '=');
        if (strncmp(*env, CONFIG_ENV_PREFIX, prefix) != 0 || equals == NULL) {
            continue;
        }
        struct span name = {.s = *env + prefix, .len = (size_t)(equals - *env) - prefix};
        if (!is_foreign(name) && read_variable(ld, name, equals + 1) != 0) {
            return -1;
        }
    }
    return 0;
}
