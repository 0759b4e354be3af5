/*
 * The effective configuration as YAML. The emitter is libyaml's, so that whatever text a value
 * holds is quoted in the way the reader of the same library takes back.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <yaml.h>

#include "config_load.h"
#include "field_put.h"
#include "json_write.h"

#define MASK "********"

struct printer {
    yaml_emitter_t emitter;
    bool failed;
};

static void print_mapping(struct printer *p, const struct field *fields, const void *obj);

static int write_out(void *data, unsigned char *text, size_t len)
{
    struct buf *out = data;
    buf_add(out, text, len);
    return buf_ok(out);
}

/* Emits an event that was made, and owns it then. */
static void emit(struct printer *p, int made, yaml_event_t *event)
{
    if (p->failed || made == 0) {
        p->failed = true;
        if (made != 0) {
            yaml_event_delete(event);
        }
        return;
    }
    p->failed = yaml_emitter_emit(&p->emitter, event) == 0;
}

static void print_scalar(struct printer *p, const char *text, yaml_scalar_style_t style)
{
    yaml_event_t event;
    int made = yaml_scalar_event_initialize(&event, NULL, NULL, (const yaml_char_t *)text,
                                            (int)strlen(text), 1, 1, style);
    emit(p, made, &event);
}

/* Always quoted: a text like "null" or "" is not to be read back as nothing, nor by other readers
 * the word off as a false. */
static void print_text(struct printer *p, const char *text)
{
    print_scalar(p, text != NULL ? text : "", YAML_DOUBLE_QUOTED_SCALAR_STYLE);
}

static void print_list(struct printer *p, const struct field *f, const struct list *list)
{
    yaml_event_t event;
    yaml_sequence_style_t style =
        f->fields != NULL ? YAML_BLOCK_SEQUENCE_STYLE : YAML_FLOW_SEQUENCE_STYLE;
    emit(p, yaml_sequence_start_event_initialize(&event, NULL, NULL, 1, style), &event);
    const char *item = list->items;
    for (size_t i = 0; i < list->n; i++, item += f->elem) {
        if (f->fields != NULL) {
            print_mapping(p, f->fields, item);
        } else {
            print_text(p, *(char *const *)item);
        }
    }
    emit(p, yaml_sequence_end_event_initialize(&event), &event);
}

static void print_number(struct printer *p, const struct field *f, const void *at)
{
    struct buf text;
    buf_init(&text, 64);
    if (f->kind == FIELD_KIND_INT) {
        buf_printf(&text, "%" PRId64, *(const int64_t *)at);
    } else {
        json_add_real(&text, *(const double *)at);
    }
    print_scalar(p, buf_ok(&text) ? text.data : "", YAML_PLAIN_SCALAR_STYLE);
    buf_done(&text);
}

static void print_value(struct printer *p, const struct field *f, const void *at)
{
    switch (f->kind) {
    case FIELD_KIND_OBJECT:
        print_mapping(p, f->fields, at);
        break;
    case FIELD_KIND_LIST:
        print_list(p, f, at);
        break;
    case FIELD_KIND_INT:
    case FIELD_KIND_REAL:
        print_number(p, f, at);
        break;
    case FIELD_KIND_BOOL:
        print_scalar(p, *(const bool *)at ? "true" : "false", YAML_PLAIN_SCALAR_STYLE);
        break;
    case FIELD_KIND_ENUM:
        print_text(p, f->names[*(const int *)at]);
        break;
    default:
        print_text(p, (f->flags & FIELD_SECRET) != 0 && **(char *const *)at != '\0'
                          ? MASK
                          : *(char *const *)at);
        break;
    }
}

static void print_mapping(struct printer *p, const struct field *fields, const void *obj)
{
    yaml_event_t event;
    emit(p, yaml_mapping_start_event_initialize(&event, NULL, NULL, 1, YAML_BLOCK_MAPPING_STYLE),
         &event);
    for (const struct field *f = fields; f->name != NULL; f++) {
        print_scalar(p, f->name, YAML_PLAIN_SCALAR_STYLE);
        print_value(p, f, field_at_const(f, obj));
    }
    emit(p, yaml_mapping_end_event_initialize(&event), &event);
}

void config_print(const struct config *c, struct buf *out)
{
    struct printer p = {.failed = false};
    yaml_event_t event;
    if (yaml_emitter_initialize(&p.emitter) == 0) {
        out->failed = true;
        return;
    }
    yaml_emitter_set_output(&p.emitter, write_out, out);
    yaml_emitter_set_width(&p.emitter, -1);
    emit(&p, yaml_stream_start_event_initialize(&event, YAML_UTF8_ENCODING), &event);
    emit(&p, yaml_document_start_event_initialize(&event, NULL, NULL, NULL, 1), &event);
    print_mapping(&p, config_fields, c);
    emit(&p, yaml_document_end_event_initialize(&event, 1), &event);
    emit(&p, yaml_stream_end_event_initialize(&event), &event);
    if (p.failed) {
        out->failed = true;
    }
    yaml_emitter_delete(&p.emitter);
}
