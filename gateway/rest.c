#include "rest.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "idempotency.h"
#include "leasehold/json.h"
#include "pipeline.h"
#include "problem.h"
#include "route.h"
#include "trace.h"

#define ANSWER_CAP   (8u * 1024 * 1024)
#define ANSWER_USUAL 1536 /* a lease with its token, without growing */
#define EXTRA_CAP    4096
#define EXTRA_MORE   160 /* what extra_headers adds at most */

/* --- answer ---------------------------------------------------------------------------------- */

static void extra_headers(const struct call *c, struct buf *out)
{
    if (c->extra)
        buf_add_str(out, c->extra);
    if (c->trace.trace_id[0]) {
        char text[56];

        traceparent_write(&c->trace, text);
        buf_printf(out, "traceparent: %s\r\n", text);
    }
    if (c->rc && (c->status == 503 || c->status == 429))
        buf_printf(out, "Retry-After: %d\r\n", c->retry_s ? c->retry_s : 1);
    if (c->rc && c->status == 401)
        buf_add_str(out, "WWW-Authenticate: Bearer realm=\"leasehold\"\r\n");
    /* Answers may hold tokens; a file may be kept, but not be taken for the file of now. */
    buf_add_str(out, (c->streams || c->status == 304) && !c->no_store
                         ? "Cache-Control: private, no-cache\r\n"
                         : "Cache-Control: no-store\r\n");
}

static void body_write(const struct call *c, struct http_reply *reply)
{
    if (c->rc) {
        reply->content_type = PROBLEM_TYPE;
        problem_write(&c->e, c->request_id, c->op && c->op->plain_detail, &reply->body);
    } else if (c->streams) {
        reply->streams = true;
        reply->len = c->answer_len;
        reply->content_type = c->raw_type ? c->raw_type : c->op->media;
    } else if (c->raw) {
        reply->content_type = c->raw_type ? c->raw_type : c->op->media;
        buf_add_str(&reply->body, c->raw);
    } else if (c->op->out) {
        reply->content_type = "application/json";
        buf_reserve(&reply->body, ANSWER_USUAL);
        json_encode(c->op->out, c->result, &reply->body);
    }
}

static void rest_reply(struct call *c)
{
    struct http_reply reply = {.status = c->status, .request_id = c->request_id};
    struct buf extra;

    buf_init(&extra, EXTRA_CAP);
    buf_reserve(&extra, EXTRA_MORE + (c->extra ? strlen(c->extra) : 0));
    buf_init(&reply.body, ANSWER_CAP);
    extra_headers(c, &extra);
    body_write(c, &reply);
    if (!buf_ok(&reply.body)) {
        struct err e;

        err_set(&e, ERR_INTERNAL, "the answer is too long");
        buf_reset(&reply.body);
        reply.status = 500;
        reply.content_type = PROBLEM_TYPE;
        problem_write(&e, c->request_id, false, &reply.body);
    }
    reply.extra = extra.data;
    server_reply(c->s->server, c->conn, &reply);
    buf_done(&extra);
}

/* --- request --------------------------------------------------------------------------------- */

static int authenticate(struct call *c, const struct http_request *r, struct err *e)
{
    if (c->op->role == ROLE_NONE)
        return 0;
    return call_authenticate(c, &(struct auth_proof){request_credential(r), r->certificate}, e);
}

static const struct field *field_find(const struct op *op, const char *name, size_t len,
                                      unsigned flag)
{
    for (const struct field *f = op->in; f && f->name; f++)
        if (f->flags & flag && strlen(f->name) == len && !memcmp(f->name, name, len))
            return f;
    return NULL;
}

static int decode_path(struct call *c, const struct route *route, struct err *e)
{
    for (size_t i = 0; i < route->params_n; i++) {
        const struct route_param *p = &route->params[i];
        const struct field *f = field_find(c->op, p->name, p->name_len, FIELD_PATH);
        char *value;
        size_t len;

        if (percent_decode(p->value, p->value_len, false, c->arena, &value, &len, e) ||
            field_set_text(f, c->args, value, len, c->arena, e))
            return -1;
    }
    return 0;
}

/* name=value, of the query (FIELD_QUERY) or of a form (FIELD_FORM). */
static int parameter(struct call *c, const char *text, size_t len, unsigned flag,
                     unsigned long *seen, struct err *e)
{
    const char *eq = memchr(text, '=', len);
    size_t name_n = eq ? (size_t)(eq - text) : len;
    size_t value_n = eq ? len - name_n - 1 : 0;
    char *name, *value;

    if (percent_decode(text, name_n, true, c->arena, &name, &name_n, e) ||
        percent_decode(eq ? eq + 1 : "", value_n, true, c->arena, &value, &value_n, e))
        return -1;
    const struct field *f = field_find(c->op, name, name_n, flag);
    if (!f)
        return err_field(e, "", "unknown parameter %.40s", name);
    unsigned long bit = 1ul << ((f - c->op->in) % 64);
    if (*seen & bit)
        return err_field(e, "", "parameter %s is given twice", f->name);
    *seen |= bit;
    return field_set_text(f, c->args, value, value_n, c->arena, e);
}

static int decode_pairs(struct call *c, const char *text, size_t len, unsigned flag, struct err *e)
{
    const char *end = text + len;
    unsigned long seen = 0;

    while (text < end) {
        const char *amp = memchr(text, '&', (size_t)(end - text));
        const char *stop = amp ? amp : end;

        if (stop > text && parameter(c, text, (size_t)(stop - text), flag, &seen, e))
            return -1;
        text = amp ? amp + 1 : end;
    }
    for (const struct field *f = c->op->in; f->name; f++)
        if (f->flags & flag && f->flags & FIELD_REQUIRED && !(seen & 1ul << ((f - c->op->in) % 64)))
            return err_field(e, "", "parameter %s is missing", f->name);
    return 0;
}

static bool has_type(const struct http_request *r, const char *type)
{
    size_t n = strcspn(r->content_type, "; \t");

    return n == strlen(type) && !strncasecmp(r->content_type, type, n);
}

static bool is_form(const struct call *c, const struct http_request *r)
{
    return op_takes_form(c->op) && has_type(r, FORM_TYPE);
}

/* None given is taken as JSON; parameters (charset) are ignored, JSON is UTF-8. */
static int check_content_type(const struct call *c, const struct http_request *r, struct err *e)
{
    if (!r->body_len || has_type(r, "") || has_type(r, "application/json") || is_form(c, r))
        return 0;
    return err_set(e, ERR_UNSUPPORTED_MEDIA_TYPE, "the body must be application/json%s",
                   op_takes_form(c->op) ? " or " FORM_TYPE : "");
}

static int decode_body(struct call *c, const struct http_request *r, struct err *e)
{
    const char *body = r->body_len ? r->body : "";

    return is_form(c, r) ? decode_pairs(c, body, r->body_len, FIELD_FORM, e)
                         : json_decode(body, r->body_len, c->op->in, c->args, c->arena, e);
}

static bool takes_body(const struct op *op)
{
    return op->method == HTTP_POST || op->method == HTTP_PUT || op->method == HTTP_PATCH;
}

static const char *copied(struct call *c, const char *s)
{
    const char *copy = *s ? arena_strndup(c->arena, s, strlen(s)) : "";

    return copy ? copy : "";
}

static int take_stream(struct call *c, const struct http_request *r, struct err *e)
{
    if (!r->has_length)
        return err_set(e, ERR_LENGTH_REQUIRED, "say with Content-Length how long the body is");
    c->body_streams = true;
    c->body_len = r->declared_len;
    c->content_type = copied(c, r->content_type);
    return 0;
}

static void take_conditions(struct call *c, const struct http_request *r)
{
    c->when = (struct op_when){
        .range = copied(c, r->range),
        .if_range = copied(c, r->if_range),
        .if_match = copied(c, r->if_match),
        .if_none_match = copied(c, r->if_none_match),
        .if_modified_since = copied(c, r->if_modified_since),
        .if_unmodified_since = copied(c, r->if_unmodified_since),
    };
}

static int decode(struct call *c, const struct http_request *r, const struct route *route,
                  struct err *e)
{
    if (r->body_len && !takes_body(c->op))
        return err_field(e, "", "%s takes no body", http_method_name(c->op->method));
    if (r->streams ? take_stream(c, r, e) : check_content_type(c, r, e))
        return -1;
    if (c->op->conditional)
        take_conditions(c, r);
    if (!c->op->in)
        return *r->query ? err_field(e, "", "there are no query parameters here") : 0;
    if (call_args_new(c, e) || (!r->streams && decode_body(c, r, e)))
        return -1;
    return decode_path(c, route, e) || decode_pairs(c, r->query, strlen(r->query), FIELD_QUERY, e)
               ? -1
               : 0;
}

/* For the trail: what was asked for by who may not. */
static void name_object(struct call *c, const struct route *route)
{
    struct err e;

    if (c->op->audit[0].kind && (call_args_new(c, &e) || decode_path(c, route, &e)))
        c->args = NULL;
}

static int begin(struct call *c, const struct http_request *r, struct route *route, struct err *e)
{
    if (route_find(ops_table, r->method, r->path, route, e)) {
        if (e->code == ERR_METHOD_NOT_ALLOWED) {
            char line[80];

            snprintf(line, sizeof line, "Allow: %s\r\n", route->allow);
            c->extra = arena_strndup(c->arena, line, strlen(line));
        }
        return -1;
    }
    c->op = route->op;
    c->head_only = r->method == HTTP_HEAD;
    if (authenticate(c, r, e) || call_admit(c, e)) {
        name_object(c, route);
        return -1;
    }
    if (idempotency_take(c, r, e))
        return -1;
    return decode(c, r, route, e) ? idempotency_refuse(c, e) : idempotency_bind(c, e);
}

static struct call *call_of(struct services *s, const struct http_request *r)
{
    struct call *c =
        call_begin(s, r->conn, r->peer, r->request_id ? r->request_id : "", rest_reply);

    if (c && r->traceparent && traceparent_read(r->traceparent, &c->trace_parent))
        trace_child(&c->trace, &c->trace_parent);
    return c;
}

/* Without memory for a call there is none for a body either: an empty 503. */
static void refuse_bare(struct services *s, struct http_request *r)
{
    struct http_reply reply = {.status = 503, .close = true};

    buf_init(&reply.body, 1);
    server_reply(s->server, r->conn, &reply);
    http_request_free(r);
}

void rest_request(void *ctx, struct http_request *r)
{
    struct services *s = ctx;
    struct call *c = call_of(s, r);
    struct route route;
    struct err e;
    int rc;

    if (!c) {
        refuse_bare(s, r);
        return;
    }
    rc = begin(c, r, &route, &e);
    http_request_free(r);
    if (rc)
        call_fail(c, &e);
    else
        call_start(c);
}

void rest_refused(void *ctx, struct http_request *r, const struct err *e)
{
    struct services *s = ctx;
    struct call *c = call_of(s, r);

    if (!c) {
        refuse_bare(s, r);
        return;
    }
    http_request_free(r);
    call_fail(c, e);
}
