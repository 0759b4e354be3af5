#include "openapi.h"

#include <stdio.h>
#include <string.h>

#include "openapi_schema.h"
#include "route.h"

#define OPERATION_ID_MAX 96

static const char about[] =
    "A control plane for sandboxed AI agents. Times are RFC 3339 in UTC; sizes are bytes (_bytes), "
    "durations seconds (_s). UUIDs are accepted in every common spelling and answered in lower "
    "case "
    "with hyphens. Unknown members are refused; null for an optional member of a request is the "
    "same as leaving it out. Every answer has X-Request-Id.\n\n"
    "Bots may keep one WebSocket instead: GET /api/v1/ws with the subprotocol leasehold.v1, and "
    "messages {\"id\", \"op\", \"args\"}, where op is the operation's x-leasehold-op and args hold "
    "the members of path, query and body together. The answer is {\"id\", \"ok\": true, "
    "\"result\"} "
    "or {\"id\", \"ok\": false, \"error\": Problem}.";

static const struct {
    const char *name, *doc;
} tags[] = {
    {"meta", "Health, readiness, public keys and this document."},
    {"health", "Is the service there?"},
    {"key", "API keys and signing keys."},
    {"workspace", "A user's place for chats."},
    {"chat", "Chats: what sandboxes work for."},
    {"history", "What was said in a chat."},
    {"file", "Files of a chat."},
    {"sandbox", "Sandbox sessions."},
    {"lease", "Leases: the right to talk to a sandbox, for a while."},
    {"artifact", "What agents hand out."},
    {"service", "Services beside a sandbox."},
    {"plan", "Staged changes of a chat's files."},
    {"stage", "Staged changes of a chat's files."},
    {"bundle", "Dependency and tool bundles."},
    {"audit", "The audit log."},
    {"retention", "The end of old things."},
    {"node", "Machines with sandboxes."},
};
#define TAGS (sizeof tags / sizeof tags[0])

/* "lease" of "lease.grant"; names without a dot are "meta". */
static void tag_of(const struct op *op, char *ret, size_t size)
{
    size_t n = strcspn(op->name, ".");

    snprintf(ret, size, "%.*s", op->name[n] ? (int)n : 4, op->name[n] ? op->name : "meta");
}

static bool tag_used(const struct op *table, const char *tag)
{
    char name[64];

    for (const struct op *op = table; op->name; op++) {
        tag_of(op, name, sizeof name);
        if (!strcmp(name, tag))
            return true;
    }
    return false;
}

static void tags_write(const struct op *table, struct buf *out)
{
    doc_open(out, "tags", '[');
    for (size_t i = 0; i < TAGS; i++) {
        if (!tag_used(table, tags[i].name))
            continue;
        doc_open(out, NULL, '{');
        doc_str(out, "name", tags[i].name);
        doc_str(out, "description", tags[i].doc);
        doc_close(out, '}');
    }
    doc_close(out, ']');
}

/* --- one operation --------------------------------------------------------------------------- */

/* The name; of a further REST way to the same operation the method too. */
static void operation_id(const struct op *table, const struct op *op, struct buf *out)
{
    char id[OPERATION_ID_MAX];
    const struct op *first = table;

    while (strcmp(first->name, op->name) != 0)
        first++;
    snprintf(id, sizeof id, "%s%s%s", op->name, first == op ? "" : ".",
             first == op ? "" : http_method_name(op->method));
    for (char *p = id + strlen(op->name); *p; p++)
        *p = (char)(*p | 0x20);
    doc_str(out, "operationId", id);
}

static void parameter(const struct field *f, struct buf *out)
{
    bool in_path = f->flags & FIELD_PATH;

    doc_open(out, NULL, '{');
    doc_str(out, "name", f->name);
    doc_str(out, "in", in_path ? "path" : "query");
    doc_bool(out, "required", in_path || f->flags & FIELD_REQUIRED);
    if (f->doc)
        doc_str(out, "description", f->doc);
    doc_open(out, "schema", '{');
    schema_value(f, out);
    doc_close(out, '}');
    doc_close(out, '}');
}

static void parameters(const struct op *op, struct buf *out)
{
    doc_open(out, "parameters", '[');
    for (const struct field *f = op->in; f && f->name; f++)
        if (!schema_in_body(f))
            parameter(f, out);
    if (op->method == HTTP_POST && op->lane != ON_READ) {
        doc_open(out, NULL, '{');
        doc_str(out, "$ref", "#/components/parameters/IdempotencyKey");
        doc_close(out, '}');
    }
    doc_close(out, ']');
}

static bool body_required(const struct op *op)
{
    for (const struct field *f = op->in; f->name; f++)
        if (schema_in_body(f) && f->flags & FIELD_REQUIRED)
            return true;
    return false;
}

static void request_content(const struct op *table, const struct op *op, const char *media,
                            struct buf *out)
{
    doc_open(out, media, '{');
    doc_open(out, "schema", '{');
    schema_ref_request(table, op, out);
    doc_close(out, '}');
    doc_close(out, '}');
}

static void request_stream(const struct op *op, struct buf *out)
{
    doc_open(out, op->takes, '{');
    doc_open(out, "schema", '{');
    doc_str(out, "type", "string");
    doc_str(out, "format", "binary");
    doc_close(out, '}');
    doc_close(out, '}');
}

static void request_body(const struct op *table, const struct op *op, struct buf *out)
{
    doc_open(out, "requestBody", '{');
    doc_bool(out, "required", op->take != NULL || body_required(op));
    doc_open(out, "content", '{');
    if (op->take)
        request_stream(op, out);
    if (!op->take || op->takes_json_without)
        request_content(table, op, "application/json", out);
    if (op_takes_form(op))
        request_content(table, op, FORM_TYPE, out);
    doc_close(out, '}');
    doc_close(out, '}');
}

static const char *status_text(int status)
{
    switch (status) {
    case 201:
        return "Made.";
    case 202:
        return "Accepted: durable, but not all of it has happened yet.";
    case 204:
        return "Done.";
    case 503:
        return "Not ready.";
    default:
        return "Done, or already so.";
    }
}

static void answer(const struct op *table, const struct op *op, int status, struct buf *out)
{
    char number[16];

    snprintf(number, sizeof number, "%d", status);
    doc_open(out, number, '{');
    doc_str(out, "description",
            op->method == HTTP_GET && status == 200 ? "What was asked for." : status_text(status));
    if (status != 204 && (op->out || op->media)) {
        doc_open(out, "content", '{');
        doc_open(out, op->media ? op->media : "application/json", '{');
        doc_open(out, "schema", '{');
        if (op->media)
            doc_str(out, "type", strstr(op->media, "json") ? "object" : "string");
        else
            schema_ref_answer(table, op, out);
        for (int i = 0; i < 3; i++)
            doc_close(out, '}');
    }
    doc_close(out, '}');
}

static void refusal(const char *status, struct buf *out)
{
    char path[64];

    snprintf(path, sizeof path, "#/components/responses/Problem%s", status);
    doc_open(out, status, '{');
    doc_str(out, "$ref", path);
    doc_close(out, '}');
}

static void refusals(const struct op *op, struct buf *out)
{
    bool has_path = strchr(op->path, '{') != NULL;
    /* Whom nobody knows is counted where a link could be guessed. */
    bool is_counted = op->role != ROLE_NONE || op->audit[0].kind;

    refusal("400", out);
    if (op->role != ROLE_NONE) {
        refusal("401", out);
        refusal("403", out);
    }
    if (has_path || schema_has_body(op))
        refusal("404", out);
    if (op->method != HTTP_GET)
        refusal("409", out);
    if (schema_has_body(op)) {
        refusal("413", out);
        refusal("415", out);
    }
    if (op->in)
        refusal("422", out);
    for (const int *status = op->refuses; *status; status++) {
        char text[12];

        snprintf(text, sizeof text, "%d", *status);
        refusal(text, out);
    }
    if (is_counted)
        refusal("429", out);
    refusal("500", out);
    if (op->also[0] != 503)
        refusal("503", out);
    if (op->take || (op->lane == ON_WRITE && !op->ends))
        refusal("507", out);
}

static const char *role_of(const struct op *op)
{
    return op->role == ROLE_NONE ? "none" : role_names[op->role];
}

static void operation(const struct op *table, const struct op *op, struct buf *out)
{
    char tag[64], method[16];

    snprintf(method, sizeof method, "%s", http_method_name(op->method));
    for (char *p = method; *p; p++)
        *p = (char)(*p | 0x20);
    tag_of(op, tag, sizeof tag);
    doc_open(out, method, '{');
    operation_id(table, op, out);
    doc_str(out, "summary", op->doc);
    doc_open(out, "tags", '[');
    doc_str(out, NULL, tag);
    doc_close(out, ']');
    doc_str(out, "x-leasehold-role", role_of(op));
    if (op_has_message(op))
        doc_str(out, "x-leasehold-op", op->name);
    if (op->role == ROLE_NONE) {
        doc_open(out, "security", '[');
        doc_close(out, ']');
    }
    parameters(op, out);
    if (op->take || schema_has_body(op))
        request_body(table, op, out);
    doc_open(out, "responses", '{');
    answer(table, op, op->status, out);
    for (const int *status = op->also; *status; status++)
        answer(table, op, *status, out);
    refusals(op, out);
    doc_close(out, '}');
    doc_close(out, '}');
}

/* --- the document ---------------------------------------------------------------------------- */

static bool path_seen(const struct op *table, const struct op *op)
{
    for (; table != op; table++)
        if (!strcmp(table->path, op->path))
            return true;
    return false;
}

static void paths(const struct op *table, struct buf *out)
{
    doc_open(out, "paths", '{');
    for (const struct op *op = table; op->name; op++) {
        if (path_seen(table, op))
            continue;
        doc_open(out, op->path, '{');
        for (const struct op *same = op; same->name; same++)
            if (!strcmp(same->path, op->path))
                operation(table, same, out);
        doc_close(out, '}');
    }
    doc_close(out, '}');
}

/* One for each status an error may have, with the codes of that status. */
static void problem_response(int status, struct buf *out)
{
    char name[32], codes[512] = "", *at = codes;

    for (int code = ERR_NONE + 1; code < ERR_CODE_COUNT; code++) {
        size_t left = sizeof codes - (size_t)(at - codes);
        if (err_code_http((enum err_code)code) == status && left > 40)
            at += snprintf(at, left, "%s%s", at == codes ? "" : ", ",
                           err_code_name((enum err_code)code));
    }
    snprintf(name, sizeof name, "Problem%d", status);
    doc_open(out, name, '{');
    doc_str(out, "description", codes);
    doc_open(out, "content", '{');
    doc_open(out, "application/problem+json", '{');
    buf_add_str(out, "\"schema\":{\"$ref\":\"#/components/schemas/Problem\"}");
    for (int i = 0; i < 3; i++)
        doc_close(out, '}');
}

static void components(const struct op *table, const struct openapi_info *info, struct buf *out)
{
    static const int statuses[] = {400, 401, 403, 404, 409, 412, 413,
                                   415, 416, 422, 429, 500, 503, 507};

    doc_open(out, "components", '{');
    doc_open(out, "securitySchemes", '{');
    buf_add_str(out, "\"bearer\":{\"type\":\"http\",\"scheme\":\"bearer\","
                     "\"bearerFormat\":\"lhk_<key_id>_<secret>\"}");
    doc_open(out, "header", '{');
    doc_str(out, "type", "apiKey");
    doc_str(out, "in", "header");
    doc_str(out, "name", info->token_header);
    doc_close(out, '}');
    doc_close(out, '}');
    buf_add_str(out, ",\"parameters\":{\"IdempotencyKey\":{\"name\":\"Idempotency-Key\",\"in\":"
                     "\"header\",\"description\":\"the same request with the same key is answered "
                     "again, not done again\",\"schema\":{\"type\":\"string\",\"minLength\":1,"
                     "\"maxLength\":128,\"pattern\":\"^[!-~]+$\"}}}");
    doc_open(out, "responses", '{');
    for (size_t i = 0; i < sizeof statuses / sizeof statuses[0]; i++)
        problem_response(statuses[i], out);
    doc_close(out, '}');
    doc_open(out, "schemas", '{');
    schema_components(table, out);
    doc_close(out, '}');
    doc_close(out, '}');
}

void openapi_write(const struct op *table, const struct openapi_info *info, struct buf *out)
{
    doc_open(out, NULL, '{');
    doc_str(out, "openapi", "3.1.0");
    doc_open(out, "info", '{');
    doc_str(out, "title", "leasehold");
    doc_str(out, "version", info->version);
    doc_str(out, "description", about);
    buf_add_str(out, ",\"license\":{\"name\":\"Apache-2.0\",\"identifier\":\"Apache-2.0\"}");
    doc_close(out, '}');
    buf_add_str(out, ",\"servers\":[{\"url\":\"/\"}],\"security\":[{\"bearer\":[]},"
                     "{\"header\":[]}]");
    tags_write(table, out);
    paths(table, out);
    components(table, info, out);
    doc_close(out, '}');
}
