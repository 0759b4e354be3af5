#include "problem.h"

#include <string.h>

#include "leasehold/json.h"

static void member(struct buf *out, const char *name, const char *value)
{
    buf_printf(out, "\"%s\":", name);
    json_add_string(out, value, strlen(value));
}

void problem_write(const struct err *e, const char *request_id, bool plain, struct buf *out)
{
    const char *name = err_code_name(e->code);
    const char *detail = e->code == ERR_INTERNAL
                             ? "Something went wrong here; the log has it under the request id"
                             : e->msg;

    buf_printf(out, "{\"type\":\"urn:leasehold:error:%s\",", name);
    member(out, "title", err_code_title(e->code));
    buf_printf(out, ",\"status\":%d,", err_code_http(e->code));
    member(out, "detail", plain ? name : detail);
    buf_add_char(out, ',');
    member(out, "code", name);
    buf_add_char(out, ',');
    member(out, "request_id", request_id);
    if (err_code_http(e->code) == 422) {
        buf_add_str(out, ",\"errors\":[{");
        member(out, "pointer", e->pointer);
        buf_add_char(out, ',');
        member(out, "detail", e->msg);
        buf_add_str(out, "}]");
    }
    buf_add_char(out, '}');
}
