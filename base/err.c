#include "leasehold/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "utf8.h"

struct code_row {
    const char *name;
    const char *title;
    int http;
    int ws;
};

static const struct code_row code_rows[ERR_CODE_COUNT] = {
#define CODE_ROW(symbol, name, http, ws, title) [symbol] = {name, title, http, ws},
    ERR_CODES(CODE_ROW)
#undef CODE_ROW
};

/* Codes come from our own sources, but a corrupt one must not read past the table. */
static const struct code_row *code_row(enum err_code code)
{
    return &code_rows[(unsigned)code < ERR_CODE_COUNT ? code : ERR_INTERNAL];
}

/* Formats aside first: the arguments may point into *e itself, when a caller adds to a message. */
__attribute__((format(printf, 5, 0))) static void
fill(struct err *e, enum err_code code, int sys, const char *pointer, const char *fmt, va_list ap)
{
    char msg[sizeof(e->msg) + 4];
    char where[sizeof(e->pointer)];
    int n = vsnprintf(msg, sizeof(msg), fmt, ap);
    size_t len = n < 0 ? 0 : strnlen(msg, sizeof(msg));
    len = utf8_clip(msg, len, sizeof(e->msg) - 1);
    size_t where_len = utf8_clip(pointer, strlen(pointer), sizeof(where) - 1);
    memcpy(where, pointer, where_len);

    e->code = code;
    e->sys = sys;
    memcpy(e->msg, msg, len);
    e->msg[len] = '\0';
    memcpy(e->pointer, where, where_len);
    e->pointer[where_len] = '\0';
}

void err_fill_code(struct err *e, enum err_code code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fill(e, code, 0, "", fmt, ap);
    va_end(ap);
}

void err_fill_sys(struct err *e, enum err_code code, int sys, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fill(e, code, sys, "", fmt, ap);
    va_end(ap);

    /* Not strerror: it is neither thread-safe nor the same in every locale. */
    const char *text = strerrordesc_np(sys);
    size_t len = strlen(e->msg);
    if (text != NULL) {
        snprintf(e->msg + len, sizeof(e->msg) - len, ": %s", text);
    } else {
        snprintf(e->msg + len, sizeof(e->msg) - len, ": errno %d", sys);
    }
}

void err_fill_field(struct err *e, const char *pointer, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fill(e, ERR_INVALID_REQUEST, 0, pointer, fmt, ap);
    va_end(ap);
}

void err_clear(struct err *e)
{
    *e = (struct err){.code = ERR_NONE};
}

const char *err_code_name(enum err_code code)
{
    return code_row(code)->name;
}

const char *err_code_title(enum err_code code)
{
    return code_row(code)->title;
}

int err_code_http(enum err_code code)
{
    return code_row(code)->http;
}

int err_code_ws(enum err_code code)
{
    return code_row(code)->ws;
}
