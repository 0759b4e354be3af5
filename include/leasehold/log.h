/*
 * Structured log: one line an event, JSON or text. Thread-safe: a line is one write(2).
 *
 * An event has a constant name in snake_case and typed fields; values are escaped, invalid UTF-8
 * is replaced, and a line is cut at 8 KiB. A log line never holds a token, key or secret: log ids.
 *
 *   log_event(log, LOG_INFO, "sandbox_created", LF_ID("session_id", &sid), LF_INT("ms", ms));
 */
#ifndef LEASEHOLD_LOG_H
#define LEASEHOLD_LOG_H

#include <stdint.h>

#include "leasehold/err.h"
#include "leasehold/id.h"

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARNING, LOG_ERROR };
enum log_format { LOG_JSON, LOG_TEXT };

struct log_field {
    const char *key; /* NULL ends the list */
    enum { LF_KIND_STR, LF_KIND_INT, LF_KIND_ID } kind;
    const char *str; /* borrowed for the call; NULL is written as null */
    int64_t num;
    const struct id *id;
};

#define LF_STR(k, v) ((struct log_field){.key = (k), .kind = LF_KIND_STR, .str = (v)})
#define LF_INT(k, v) ((struct log_field){.key = (k), .kind = LF_KIND_INT, .num = (int64_t)(v)})
#define LF_ID(k, v)  ((struct log_field){.key = (k), .kind = LF_KIND_ID, .id = (v)})

struct log;

/* Writes to fd (borrowed). NULL without memory. */
struct log *log_new(int fd, enum log_level level, enum log_format format);
void log_free(struct log *l);
void log_set_level(struct log *l, enum log_level level);

void log_write(struct log *l, enum log_level level, const char *event,
               const struct log_field *fields);
#define log_event(l, level, event, ...)                                                            \
    log_write((l), (level), (event), (const struct log_field[]){__VA_ARGS__ __VA_OPT__(, ){0}})

/* An event of level `level` with the fields of *e (code, detail, errno). */
#define log_error(l, event, e, ...)                                                                \
    log_write((l), LOG_ERROR, (event),                                                             \
              (const struct log_field[]){LF_STR("code", err_code_name((e)->code)),                 \
                                         LF_STR("detail", (e)->msg), LF_INT("errno", (e)->sys),    \
                                         __VA_ARGS__ __VA_OPT__(, ){0}})

#endif
