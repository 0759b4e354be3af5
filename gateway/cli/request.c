#include "request.h"

#include <inttypes.h>
#include <string.h>

#include "leasehold/json.h"

#define PATH_CAP 4096
#define BODY_CAP (1024 * 1024)

void request_init(struct request *r)
{
    r->method = NULL;
    buf_init(&r->path, PATH_CAP);
    buf_init(&r->body, BODY_CAP);
}

void request_done(struct request *r)
{
    buf_done(&r->path);
    if (r->body.data != NULL) {
        explicit_bzero(r->body.data, r->body.size);
    }
    buf_done(&r->body);
}

/* RFC 3986: everything but the unreserved characters. */
static void add_escaped(struct buf *out, const char *s)
{
    static const char unreserved[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                     "0123456789-._~";
    for (; *s != '\0'; s++) {
        if (strchr(unreserved, *s) != NULL) {
            buf_add_char(out, *s);
        } else {
            buf_printf(out, "%%%02X", (unsigned)(unsigned char)*s);
        }
    }
}

static void add_plain(struct buf *out, const struct opt_value *v)
{
    switch (v->spec->kind) {
    case OPT_UUID:
        add_escaped(out, ID_STR(&v->id));
        break;
    case OPT_FLAG:
        buf_add_str(out, "true");
        break;
    default:
        add_escaped(out, v->text);
        break;
    }
}

static void add_words(struct buf *out, const char *text)
{
    buf_add_char(out, '[');
    for (const char *comma = ""; *text != '\0'; comma = ",") {
        size_t len = strcspn(text, ",");
        buf_add_str(out, comma);
        json_add_string(out, text, len);
        text += len + (text[len] == ',');
    }
    buf_add_char(out, ']');
}

static void add_json(struct buf *out, const struct opt_value *v)
{
    switch (v->spec->kind) {
    case OPT_UUID:
        json_add_string(out, ID_STR(&v->id), ID_TEXT - 1);
        break;
    case OPT_INT:
        buf_printf(out, "%" PRId64, v->number);
        break;
    case OPT_FLAG:
        if (v->spec->sends != NULL) {
            json_add_string(out, v->spec->sends, strlen(v->spec->sends));
            break;
        }
        buf_add_str(out, (v->spec->flags & OPT_NEGATED) != 0 ? "false" : "true");
        break;
    case OPT_WORDS:
        add_words(out, v->text);
        break;
    case OPT_OBJECT:
        buf_add_str(out, v->text);
        break;
    default:
        json_add_string(out, v->text, strlen(v->text));
        break;
    }
}

/* Has an earlier value of the line the same spec, so that this one was written with it? */
static bool written_before(const struct options *o, size_t i)
{
    for (size_t k = 0; k < i; k++) {
        if (o->values[k].spec == o->values[i].spec) {
            return true;
        }
    }
    return false;
}

static void add_repeated(struct buf *out, const struct options *o, size_t first)
{
    const char *comma = "";
    buf_add_char(out, '[');
    for (size_t i = first; i < o->n; i++) {
        if (o->values[i].spec == o->values[first].spec) {
            buf_add_str(out, comma);
            add_json(out, &o->values[i]);
            comma = ",";
        }
    }
    buf_add_char(out, ']');
}

/* The member's name inside `group` ("" or "lease/"), or NULL if it belongs elsewhere. */
static const char *name_in_group(const char *member, const char *group, size_t group_len)
{
    if (member == NULL || strcmp(member, "{}") == 0 || strncmp(member, group, group_len) != 0) {
        return NULL;
    }
    const char *name = member + group_len;
    return *name != '\0' && strchr(name, '/') == NULL ? name : NULL;
}

/* Writes the members of one group; returns whether there was one. */
static bool add_members(struct buf *out, const struct options *o, const char *group,
                        size_t group_len)
{
    bool any = false;
    for (size_t i = 0; i < o->n; i++) {
        const struct opt_value *v = &o->values[i];
        const char *name = name_in_group(v->spec->member, group, group_len);
        if (name == NULL || written_before(o, i)) {
            continue;
        }
        buf_add_str(out, any ? "," : "");
        json_add_string(out, name, strlen(name));
        buf_add_char(out, ':');
        if ((v->spec->flags & OPT_REPEATED) != 0) {
            add_repeated(out, o, i);
        } else {
            add_json(out, v);
        }
        any = true;
    }
    return any;
}

/* The length of "lease/" in "lease/ttl_s", 0 of a member at the top. */
static size_t group_length(const char *member)
{
    const char *slash = member != NULL ? strchr(member, '/') : NULL;
    return slash != NULL ? (size_t)(slash - member) + 1 : 0;
}

static bool group_written(const struct options *o, size_t i, const char *group, size_t len)
{
    for (size_t k = 0; k < i; k++) {
        const char *member = o->values[k].spec->member;
        if (group_length(member) == len && strncmp(member, group, len) == 0) {
            return true;
        }
    }
    return false;
}

static void build_body(struct buf *out, const struct options *o)
{
    buf_add_char(out, '{');
    bool any = add_members(out, o, "", 0);
    for (size_t i = 0; i < o->n; i++) {
        const char *group = o->values[i].spec->member;
        size_t len = group_length(group);
        if (len == 0 || group_written(o, i, group, len)) {
            continue;
        }
        buf_add_str(out, any ? "," : "");
        json_add_string(out, group, len - 1);
        buf_add_str(out, ":{");
        add_members(out, o, group, len);
        buf_add_char(out, '}');
        any = true;
    }
    buf_add_char(out, '}');
}

static void build_query(struct buf *out, const struct options *o)
{
    char before = '?';
    for (size_t i = 0; i < o->n; i++) {
        const char *name = name_in_group(o->values[i].spec->member, "", 0);
        if (name != NULL) {
            buf_add_char(out, before);
            add_escaped(out, name);
            buf_add_char(out, '=');
            add_plain(out, &o->values[i]);
            before = '&';
        }
    }
}

static void build_path(struct buf *out, const char *path, const struct options *o)
{
    const char *hole = strstr(path, "{}");
    if (hole == NULL) {
        buf_add_str(out, path);
        return;
    }
    buf_add(out, path, (size_t)(hole - path));
    for (size_t i = 0; i < o->n; i++) {
        const char *member = o->values[i].spec->member;
        if (member != NULL && strcmp(member, "{}") == 0) {
            add_plain(out, &o->values[i]);
        }
    }
    buf_add_str(out, hole + 2);
}

int request_build(const char *method, const char *path, const struct options *o,
                  struct request *ret, struct err *e)
{
    ret->method = method;
    build_path(&ret->path, path, o);
    if (strcmp(method, "POST") == 0 || strcmp(method, "PATCH") == 0) {
        build_body(&ret->body, o);
    } else {
        build_query(&ret->path, o);
    }
    if (!buf_ok(&ret->path) || !buf_ok(&ret->body)) {
        return err_set(e, ERR_TOO_LARGE, "the request is too large");
    }
    return 0;
}
