/*
 * YAML by libyaml's events: one pass, in which every value has its line. Anchors, aliases, tags and
 * further documents are refused: a configuration needs none, and an alias can blow up.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <yaml.h>

#include "config_load.h"
#include "field_put.h"
#include "utf8.h"

#define SEEN_MAX   64 /* keys of one table */
#define KNOWN_TEXT 80

struct reader {
    yaml_parser_t parser;
    yaml_event_t event; /* the current one */
    struct config_loader *ld;
};

static int read_mapping(struct reader *r, const struct field *fields, void *obj);

static unsigned line_of(const yaml_event_t *event)
{
    return (unsigned)event->start_mark.line + 1;
}

/* --- messages -------------------------------------------------------------------------------- */

static int fail_line(struct reader *r, unsigned line, const char *key, const char *what)
{
    struct config_loader *ld = r->ld;
    return err_set(ld->e, ERR_INVALID_REQUEST, "%s:%u: %s%s%s", ld->file, line, ld->path, key,
                   what);
}

static int fail_here(struct reader *r, const char *what)
{
    return err_set(r->ld->e, ERR_INVALID_REQUEST, "%s:%u: %s", r->ld->file, line_of(&r->event),
                   what);
}

/* `what` goes on from the name of the field. */
static int fail_field(struct reader *r, const struct field *f, const char *what)
{
    return fail_line(r, line_of(&r->event), f->name, what);
}

/* Puts the place before a message of field_put_…, which starts with the field's name. */
static int fail_put(struct reader *r)
{
    return fail_line(r, line_of(&r->event), "", r->ld->e->msg);
}

static int fail_parser(struct reader *r)
{
    const yaml_parser_t *p = &r->parser;
    const char *problem = p->problem != NULL ? p->problem : "not YAML";
    if (p->error == YAML_MEMORY_ERROR) {
        return err_set(r->ld->e, ERR_INTERNAL, "no memory to read the configuration");
    }
    if (p->error == YAML_READER_ERROR) {
        return err_set(r->ld->e, ERR_INVALID_REQUEST, "%s: %s at byte %zu", r->ld->file, problem,
                       p->problem_offset);
    }
    return err_set(r->ld->e, ERR_INVALID_REQUEST, "%s:%zu: %s", r->ld->file,
                   p->problem_mark.line + 1, problem);
}

/* --- events ---------------------------------------------------------------------------------- */

static bool has_anchor_or_tag(const yaml_event_t *event)
{
    switch (event->type) {
    case YAML_SCALAR_EVENT:
        return event->data.scalar.anchor != NULL || event->data.scalar.tag != NULL;
    case YAML_MAPPING_START_EVENT:
        return event->data.mapping_start.anchor != NULL || event->data.mapping_start.tag != NULL;
    case YAML_SEQUENCE_START_EVENT:
        return event->data.sequence_start.anchor != NULL || event->data.sequence_start.tag != NULL;
    default:
        return event->type == YAML_ALIAS_EVENT;
    }
}

static int next(struct reader *r)
{
    yaml_event_delete(&r->event);
    if (yaml_parser_parse(&r->parser, &r->event) == 0) {
        return fail_parser(r);
    }
    if (has_anchor_or_tag(&r->event)) {
        return fail_here(r, "anchors, aliases and tags are not supported");
    }
    return 0;
}

/* `key:` with nothing behind it, or null: the default. */
static bool is_null(const yaml_event_t *event)
{
    if (event->type != YAML_SCALAR_EVENT || event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE) {
        return false;
    }
    const char *text = (const char *)event->data.scalar.value;
    return *text == '\0' || strcmp(text, "~") == 0 || strcasecmp(text, "null") == 0;
}

/* --- values ---------------------------------------------------------------------------------- */

static size_t path_push(struct config_loader *ld, const char *segment)
{
    size_t before = ld->path_len;
    size_t room = sizeof(ld->path) - before;
    int n = snprintf(ld->path + before, room, "%s.", segment);
    ld->path_len += n > 0 && (size_t)n < room ? (size_t)n : 0;
    ld->path[ld->path_len] = '\0';
    return before;
}

static void path_pop(struct config_loader *ld, size_t before)
{
    ld->path_len = before;
    ld->path[before] = '\0';
}

static int read_scalar(struct reader *r, const struct field *f, void *obj)
{
    if (r->event.type != YAML_SCALAR_EVENT) {
        return fail_field(r, f, " must be a single value");
    }
    if (field_put_text(f, obj, "", (const char *)r->event.data.scalar.value,
                       r->event.data.scalar.length, r->ld->c->arena, r->ld->e) != 0) {
        return fail_put(r);
    }
    return config_note(r->ld,
                       (struct config_origin){.at = field_at(f, obj), .line = line_of(&r->event)});
}

static int read_section(struct reader *r, const struct field *f, void *obj)
{
    if (r->event.type != YAML_MAPPING_START_EVENT) {
        return fail_field(r, f, " must be a section of keys");
    }
    size_t before = path_push(r->ld, f->name);
    if (read_mapping(r, f->fields, field_at(f, obj)) != 0) {
        return -1;
    }
    path_pop(r->ld, before);
    return 0;
}

/* One item of a list, the current event being its first. */
static int read_item(struct reader *r, const struct field *f, size_t index, void *item)
{
    if (f->fields == NULL) {
        if (r->event.type != YAML_SCALAR_EVENT) {
            return fail_field(r, f, " must be a list of single values");
        }
        return field_put_elem(f, f->elem_kind, item, "", (const char *)r->event.data.scalar.value,
                              r->event.data.scalar.length, r->ld->c->arena, r->ld->e) != 0
                   ? fail_put(r)
                   : 0;
    }
    if (r->event.type != YAML_MAPPING_START_EVENT) {
        return fail_field(r, f, " must be a list of sections");
    }
    char segment[48];
    snprintf(segment, sizeof(segment), "%s[%zu]", f->name, index);
    size_t before = path_push(r->ld, segment);
    if (field_set_defaults(f->fields, item, r->ld->c->arena, r->ld->e) != 0 ||
        read_mapping(r, f->fields, item) != 0) {
        return -1;
    }
    path_pop(r->ld, before);
    return 0;
}

static int read_list(struct reader *r, const struct field *f, void *obj)
{
    if (r->event.type != YAML_SEQUENCE_START_EVENT) {
        return fail_field(r, f, " must be a list");
    }
    unsigned line = line_of(&r->event);
    size_t max = field_list_max(f);
    /* All at once: items that moved would lose their notes of where they came from. */
    struct list list = {.items = arena_alloc(r->ld->c->arena, max * f->elem)};
    if (list.items == NULL) {
        return field_no_memory(r->ld->e);
    }
    for (;;) {
        if (next(r) != 0) {
            return -1;
        }
        if (r->event.type == YAML_SEQUENCE_END_EVENT) {
            break;
        }
        if (list.n == max) {
            return fail_field(r, f, " holds too many items");
        }
        if (read_item(r, f, list.n, (char *)list.items + list.n * f->elem) != 0) {
            return -1;
        }
        list.n++;
    }
    *(struct list *)field_at(f, obj) = list;
    if (f->has != 0) {
        *(bool *)((char *)obj + f->has) = true;
    }
    return config_note(r->ld, (struct config_origin){.at = field_at(f, obj), .line = line});
}

static int read_value(struct reader *r, const struct field *f, void *obj)
{
    if (is_null(&r->event)) {
        return (f->flags & FIELD_REQUIRED) != 0 ? fail_field(r, f, " must have a value") : 0;
    }
    switch (f->kind) {
    case FIELD_KIND_OBJECT:
        return read_section(r, f, obj);
    case FIELD_KIND_LIST:
        return read_list(r, f, obj);
    default:
        return read_scalar(r, f, obj);
    }
}

/* --- mappings -------------------------------------------------------------------------------- */

static int fail_unknown(struct reader *r, const struct field *fields)
{
    char quoted[UTF8_QUOTE_SIZE], what[UTF8_QUOTE_SIZE + KNOWN_TEXT + 32];
    struct buf known;
    buf_init(&known, KNOWN_TEXT);
    for (const struct field *f = fields; f->name != NULL; f++) {
        buf_printf(&known, "%s%s", known.len > 0 ? ", " : "", f->name);
    }
    utf8_quote((const char *)r->event.data.scalar.value, r->event.data.scalar.length, quoted);
    snprintf(what, sizeof(what), " is unknown; known: %s%s", known.len > 0 ? known.data : "none",
             buf_ok(&known) ? "" : ", ...");
    buf_done(&known);
    return fail_line(r, line_of(&r->event), quoted, what);
}

/* The field that the current event, a key, names. */
static const struct field *read_key(struct reader *r, const struct field *fields)
{
    if (r->event.type != YAML_SCALAR_EVENT) {
        fail_here(r, "a key must be a name");
        return NULL;
    }
    const char *name = (const char *)r->event.data.scalar.value;
    for (const struct field *f = fields; f->name != NULL; f++) {
        if (strlen(f->name) == r->event.data.scalar.length && strcmp(f->name, name) == 0) {
            return f;
        }
    }
    fail_unknown(r, fields);
    return NULL;
}

static int check_required(struct reader *r, const struct field *fields, uint64_t seen)
{
    for (size_t i = 0; fields[i].name != NULL; i++) {
        if ((fields[i].flags & FIELD_REQUIRED) != 0 && (seen >> i & 1) == 0) {
            return fail_field(r, &fields[i], " is missing");
        }
    }
    return 0;
}

/* Behind the start of a mapping, to its end. */
static int read_mapping(struct reader *r, const struct field *fields, void *obj)
{
    uint64_t seen = 0;
    for (;;) {
        if (next(r) != 0) {
            return -1;
        }
        if (r->event.type == YAML_MAPPING_END_EVENT) {
            return check_required(r, fields, seen);
        }
        const struct field *f = read_key(r, fields);
        if (f == NULL) {
            return -1;
        }
        size_t i = (size_t)(f - fields);
        if (i >= SEEN_MAX) {
            return err_set(r->ld->e, ERR_INTERNAL, "a table of more than %d keys", SEEN_MAX);
        }
        if ((seen >> i & 1) != 0) {
            return fail_field(r, f, " is given twice");
        }
        seen |= UINT64_C(1) << i;
        if (next(r) != 0 || read_value(r, f, obj) != 0) {
            return -1;
        }
    }
}

/* The document's one value. */
static int read_root(struct reader *r)
{
    if (is_null(&r->event)) {
        return 0;
    }
    if (r->event.type != YAML_MAPPING_START_EVENT) {
        return fail_here(r, "the file must hold sections of keys");
    }
    return read_mapping(r, config_fields, r->ld->c);
}

static int read_stream(struct reader *r)
{
    /* The start of the stream, then that of a document unless the file is empty. */
    for (int event = 0; event < 2; event++) {
        if (next(r) != 0) {
            return -1;
        }
    }
    if (r->event.type == YAML_STREAM_END_EVENT) {
        return 0;
    }
    /* The end of the document and what comes behind it. */
    if (next(r) != 0 || read_root(r) != 0 || next(r) != 0 || next(r) != 0) {
        return -1;
    }
    return r->event.type == YAML_STREAM_END_EVENT ? 0
                                                  : fail_here(r, "the file must hold one document");
}

int config_read_yaml(struct config_loader *ld, const char *text, size_t len)
{
    struct reader r = {.ld = ld};
    if (yaml_parser_initialize(&r.parser) == 0) {
        return err_set(ld->e, ERR_INTERNAL, "no memory to read the configuration");
    }
    yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, len);
    int rc = read_stream(&r);
    yaml_event_delete(&r.event);
    yaml_parser_delete(&r.parser);
    path_pop(ld, 0);
    return rc;
}
