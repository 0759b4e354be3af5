#include "openapi_schema.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "leasehold/json.h"
#include "objects.h"
#include "ops.h"

#define INT_EXACT   (INT64_C(1) << 53)
#define STR_DEFAULT 4096 /* of a string without `max`, field.h */
#define LIST_MAX    1000
#define NAME_MAX    96
#define PATH_PARTS  (FIELD_PATH | FIELD_QUERY)

/* --- writer ---------------------------------------------------------------------------------- */

static void begin(struct buf *out, const char *name)
{
    if (out->len && !strchr("{[:", out->data[out->len - 1]))
        buf_add_char(out, ',');
    if (name) {
        json_add_string(out, name, strlen(name));
        buf_add_char(out, ':');
    }
}

void doc_open(struct buf *out, const char *name, char bracket)
{
    begin(out, name);
    buf_add_char(out, bracket);
}

void doc_close(struct buf *out, char bracket)
{
    buf_add_char(out, bracket);
}

void doc_str(struct buf *out, const char *name, const char *value)
{
    begin(out, name);
    json_add_string(out, value, strlen(value));
}

void doc_int(struct buf *out, const char *name, int64_t value)
{
    begin(out, name);
    buf_printf(out, "%" PRId64, value);
}

void doc_bool(struct buf *out, const char *name, bool value)
{
    begin(out, name);
    buf_add_str(out, value ? "true" : "false");
}

/* --- names ----------------------------------------------------------------------------------- */

/* The objects that several operations answer, by the names that docs/api.md gives them. */
static const struct {
    const struct field *fields;
    const char *name;
} objects[] = {
    {chat_fields, "Chat"},   {sandbox_fields, "Sandbox"}, {lease_fields, "Lease"},
    {grant_fields, "Grant"}, {api_key_fields, "ApiKey"},  {workspace_fields, "Workspace"},
};
#define OBJECTS (sizeof objects / sizeof objects[0])

static const char *object_name(const struct field *fields)
{
    for (size_t i = 0; i < OBJECTS; i++)
        if (objects[i].fields == fields)
            return objects[i].name;
    return NULL;
}

/* "lease.revoke" → "LeaseRevoke…" */
static void op_name(const char *name, const char *suffix, char ret[static NAME_MAX])
{
    bool upper = true;
    size_t n = 0;

    for (; *name && n < NAME_MAX / 2; name++) {
        if (*name == '.' || *name == '_') {
            upper = true;
            continue;
        }
        ret[n++] = (char)(upper ? toupper((unsigned char)*name) : *name);
        upper = false;
    }
    snprintf(ret + n, NAME_MAX - n, "%s", suffix);
}

/* The row whose name a shared table bears: the first one that has it. */
static const struct op *owner_in(const struct op *table, const struct field *in)
{
    while (table->in != in || !schema_has_body(table))
        table++;
    return table;
}

static const struct op *owner_out(const struct op *table, const struct field *out)
{
    while (table->out != out)
        table++;
    return table;
}

static void ref(const char *name, struct buf *out)
{
    char path[NAME_MAX + 32];

    snprintf(path, sizeof path, "#/components/schemas/%s", name);
    doc_str(out, "$ref", path);
}

bool schema_in_body(const struct field *f)
{
    return !(f->flags & PATH_PARTS);
}

bool schema_has_body(const struct op *op)
{
    if (op->method != HTTP_POST && op->method != HTTP_PUT && op->method != HTTP_PATCH)
        return false;
    for (const struct field *f = op->in; f && f->name; f++)
        if (schema_in_body(f))
            return true;
    return false;
}

void schema_ref_request(const struct op *table, const struct op *op, struct buf *out)
{
    char name[NAME_MAX];

    op_name(owner_in(table, op->in)->name, "Request", name);
    ref(name, out);
}

void schema_ref_answer(const struct op *table, const struct op *op, struct buf *out)
{
    const char *object = object_name(op->out);
    char name[NAME_MAX];

    if (!object)
        op_name(owner_out(table, op->out)->name, "Answer", name);
    ref(object ? object : name, out);
}

/* --- values ---------------------------------------------------------------------------------- */

static void object(const struct field *fields, bool answer, struct buf *out);

static void type(const char *name, bool nullable, struct buf *out)
{
    if (!nullable) {
        doc_str(out, "type", name);
        return;
    }
    doc_open(out, "type", '[');
    doc_str(out, NULL, name);
    doc_str(out, NULL, "null");
    doc_close(out, ']');
}

static void names(const struct field *f, bool nullable, struct buf *out)
{
    doc_open(out, "enum", '[');
    for (const char *const *name = f->names; *name; name++)
        doc_str(out, NULL, *name);
    if (nullable)
        buf_add_str(out, ",null");
    doc_close(out, ']');
}

/* An object of the table: by reference where it has a name. */
static void nested(const struct field *fields, bool answer, struct buf *out)
{
    const char *name = answer ? object_name(fields) : NULL;

    if (name)
        ref(name, out);
    else
        object(fields, answer, out);
}

static void nested_or_null(const struct field *fields, bool answer, struct buf *out)
{
    doc_open(out, "oneOf", '[');
    doc_open(out, NULL, '{');
    nested(fields, answer, out);
    doc_close(out, '}');
    doc_open(out, NULL, '{');
    doc_str(out, "type", "null");
    doc_close(out, '}');
    doc_close(out, ']');
}

static void text(const struct field *f, bool answer, bool nullable, struct buf *out)
{
    type("string", nullable, out);
    if (answer)
        return;
    if (f->min)
        doc_int(out, "minLength", f->min);
    doc_int(out, "maxLength", f->max ? f->max : STR_DEFAULT);
}

static void formatted(const char *format, bool nullable, struct buf *out)
{
    type("string", nullable, out);
    doc_str(out, "format", format);
}

static void number(const struct field *f, bool answer, bool nullable, struct buf *out)
{
    bool integer = f->kind == FIELD_KIND_INT, open = !f->min && !f->max;

    type(integer ? "integer" : "number", nullable, out);
    if (integer)
        doc_str(out, "format", "int64");
    if (answer || (open && !integer))
        return;
    doc_int(out, "minimum", f->min);
    doc_int(out, "maximum", open ? INT_EXACT : f->max);
}

static void list(const struct field *f, bool answer, bool nullable, struct buf *out)
{
    type("array", nullable, out);
    if (!answer)
        doc_int(out, "maxItems", f->max ? f->max : LIST_MAX);
    doc_open(out, "items", '{');
    if (f->fields) {
        nested(f->fields, answer, out);
    } else {
        doc_str(out, "type", "string");
        if (f->elem_kind == FIELD_KIND_ID)
            doc_str(out, "format", "uuid");
    }
    doc_close(out, '}');
}

static void set(const struct field *f, bool answer, struct buf *out)
{
    doc_str(out, "type", "array");
    doc_bool(out, "uniqueItems", true);
    if (!answer && !(f->flags & FIELD_EMPTY_OK))
        doc_int(out, "minItems", 1);
    doc_open(out, "items", '{');
    doc_str(out, "type", "string");
    names(f, false, out);
    doc_close(out, '}');
}

static void value(const struct field *f, bool answer, struct buf *out)
{
    bool nullable = answer && (f->flags & FIELD_NULL_ZERO || f->has);

    switch (f->kind) {
    case FIELD_KIND_STR:
    case FIELD_KIND_CHARS:
        text(f, answer, nullable, out);
        break;
    case FIELD_KIND_ID:
        formatted("uuid", nullable, out);
        break;
    case FIELD_KIND_TIME:
        formatted("date-time", nullable, out);
        break;
    case FIELD_KIND_INT:
    case FIELD_KIND_REAL:
        number(f, answer, nullable, out);
        break;
    case FIELD_KIND_BOOL:
        type("boolean", nullable, out);
        break;
    case FIELD_KIND_ENUM:
        type("string", nullable, out);
        names(f, nullable, out);
        break;
    case FIELD_KIND_SET:
        set(f, answer, out);
        break;
    case FIELD_KIND_RAW:
        type("object", nullable, out);
        break;
    case FIELD_KIND_LIST:
        list(f, answer, nullable, out);
        break;
    case FIELD_KIND_OBJECT:
        nested(f->fields, answer, out);
        break;
    case FIELD_KIND_OBJPTR:
        if (answer)
            nested_or_null(f->fields, answer, out);
        else
            nested(f->fields, answer, out);
        break;
    case FIELD_KIND_END:
        break;
    }
}

static void default_value(const struct field *f, struct buf *out)
{
    switch (f->kind) {
    case FIELD_KIND_INT:
    case FIELD_KIND_REAL:
    case FIELD_KIND_BOOL:
        begin(out, "default");
        buf_add_str(out, f->def);
        break;
    case FIELD_KIND_STR:
    case FIELD_KIND_ENUM:
        doc_str(out, "default", f->def);
        break;
    default:
        break;
    }
}

static void described(const struct field *f, bool answer, struct buf *out)
{
    value(f, answer, out);
    if (!answer && f->def)
        default_value(f, out);
    if (f->doc)
        doc_str(out, "description", f->doc);
}

void schema_value(const struct field *f, struct buf *out)
{
    value(f, false, out);
    if (f->def)
        default_value(f, out);
}

/* --- objects --------------------------------------------------------------------------------- */

/* In an answer no member is left out, but those that say so. */
static bool is_required(const struct field *f, bool answer)
{
    return answer ? !(f->flags & FIELD_OMIT_ZERO)
                  : (schema_in_body(f) && f->flags & FIELD_REQUIRED);
}

static void required(const struct field *fields, bool answer, struct buf *out)
{
    bool any = false;

    for (const struct field *f = fields; f->name; f++)
        any |= is_required(f, answer);
    if (!any)
        return;
    doc_open(out, "required", '[');
    for (const struct field *f = fields; f->name; f++)
        if (is_required(f, answer))
            doc_str(out, NULL, f->name);
    doc_close(out, ']');
}

static void object(const struct field *fields, bool answer, struct buf *out)
{
    doc_str(out, "type", "object");
    if (!answer) /* of answers a newer version may have more */
        doc_bool(out, "additionalProperties", false);
    doc_open(out, "properties", '{');
    for (const struct field *f = fields; f->name; f++) {
        if (!answer && !schema_in_body(f))
            continue;
        doc_open(out, f->name, '{');
        described(f, answer, out);
        doc_close(out, '}');
    }
    doc_close(out, '}');
    required(fields, answer, out);
}

static void component(const char *name, const struct field *fields, bool answer, struct buf *out)
{
    doc_open(out, name, '{');
    object(fields, answer, out);
    doc_close(out, '}');
}

static void problem_codes(struct buf *out)
{
    doc_open(out, "code", '{');
    doc_str(out, "type", "string");
    doc_open(out, "enum", '[');
    for (int code = ERR_NONE + 1; code < ERR_CODE_COUNT; code++)
        doc_str(out, NULL, err_code_name((enum err_code)code));
    doc_close(out, ']');
    doc_str(out, "description", "what programs may look at");
    doc_close(out, '}');
}

static void problem(struct buf *out)
{
    static const struct {
        const char *name, *type, *doc;
    } members[] = {
        {"type", "string", "urn:leasehold:error: and the code"},
        {"title", "string", "the code's fixed sentence"},
        {"status", "integer", "the HTTP status, in WebSocket answers too"},
        {"detail", "string", "what was wrong with this request"},
        {"request_id", "string", "under which the log has it"},
    };

    doc_open(out, "Problem", '{');
    doc_str(out, "type", "object");
    doc_str(out, "description", "RFC 9457");
    doc_open(out, "properties", '{');
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
        doc_open(out, members[i].name, '{');
        doc_str(out, "type", members[i].type);
        doc_str(out, "description", members[i].doc);
        doc_close(out, '}');
    }
    problem_codes(out);
    buf_add_str(out, ",\"errors\":{\"type\":\"array\",\"description\":\"with 422: which members\","
                     "\"items\":{\"type\":\"object\",\"properties\":{\"pointer\":{\"type\":"
                     "\"string\",\"format\":\"json-pointer\"},\"detail\":{\"type\":\"string\"}},"
                     "\"required\":[\"pointer\",\"detail\"]}}");
    doc_close(out, '}');
    doc_open(out, "required", '[');
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++)
        doc_str(out, NULL, members[i].name);
    doc_str(out, NULL, "code");
    doc_close(out, ']');
    doc_close(out, '}');
}

void schema_components(const struct op *table, struct buf *out)
{
    char name[NAME_MAX];

    problem(out);
    for (size_t i = 0; i < OBJECTS; i++)
        component(objects[i].name, objects[i].fields, true, out);
    for (const struct op *op = table; op->name; op++) {
        if (schema_has_body(op) && owner_in(table, op->in) == op) {
            op_name(op->name, "Request", name);
            component(name, op->in, false, out);
        }
        if (op->out && !object_name(op->out) && owner_out(table, op->out) == op) {
            op_name(op->name, "Answer", name);
            component(name, op->out, true, out);
        }
    }
}
