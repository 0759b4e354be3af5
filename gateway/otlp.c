/* Spans in the JSON of OTLP: ids in hex, 64-bit numbers as strings. */
#include <inttypes.h>
#include <string.h>

#include "leasehold/buf.h"
#include "leasehold/json.h"
#include "spans.h"

enum otlp_kind { OTLP_INTERNAL = 1 };
enum otlp_status { OTLP_UNSET = 0, OTLP_ERROR = 2 };

static void text_add(struct buf *out, const char *s)
{
    json_add_string(out, s, strlen(s));
}

static void attr_begin(struct buf *out, const char *key, bool first)
{
    buf_add_str(out, first ? "{\"key\":" : ",{\"key\":");
    text_add(out, key);
    buf_add_str(out, ",\"value\":{");
}

static void attr_text(struct buf *out, const char *key, const char *value, bool first)
{
    attr_begin(out, key, first);
    buf_add_str(out, "\"stringValue\":");
    text_add(out, value);
    buf_add_str(out, "}}");
}

static void attr_write(struct buf *out, const struct span_attr *a, bool first)
{
    if (!a->is_number) {
        attr_text(out, a->key, a->text, first);
        return;
    }
    attr_begin(out, a->key, first);
    buf_printf(out, "\"intValue\":\"%" PRId64 "\"}}", a->number);
}

static void span_write(struct buf *out, const struct span *s)
{
    int64_t from_ns = s->start_ms * 1000000, to_ns = from_ns + s->took_us * 1000;

    buf_printf(out, "{\"traceId\":\"%s\",\"spanId\":\"%s\",", s->self.trace_id, s->self.span_id);
    if (s->parent_id[0])
        buf_printf(out, "\"parentSpanId\":\"%s\",", s->parent_id);
    buf_add_str(out, "\"name\":");
    text_add(out, s->name);
    buf_printf(out,
               ",\"kind\":%d,\"startTimeUnixNano\":\"%" PRId64 "\",\"endTimeUnixNano\":\"%" PRId64
               "\",\"attributes\":[",
               OTLP_INTERNAL, from_ns, to_ns);
    for (size_t i = 0; i < s->attrs_n; i++)
        attr_write(out, &s->attrs[i], i == 0);
    buf_printf(out, "],\"status\":{\"code\":%d", s->failed ? OTLP_ERROR : OTLP_UNSET);
    if (s->failed) {
        buf_add_str(out, ",\"message\":");
        text_add(out, s->why);
    }
    buf_add_str(out, "}}");
}

void otlp_write(const struct tracer_options *o, const struct span *spans, size_t n, struct buf *out)
{
    buf_add_str(out, "{\"resourceSpans\":[{\"resource\":{\"attributes\":[");
    attr_text(out, "service.name", o->service_name, true);
    attr_text(out, "service.version", o->service_version, false);
    attr_text(out, "service.instance.id", o->node, false);
    buf_add_str(out, "]},\"scopeSpans\":[{\"scope\":{\"name\":\"leasehold\"},\"spans\":[");
    for (size_t i = 0; i < n; i++) {
        if (i)
            buf_add_char(out, ',');
        span_write(out, &spans[i]);
    }
    buf_add_str(out, "]}]}]}");
}
