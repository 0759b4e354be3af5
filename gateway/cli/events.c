#include "events.h"

#include <stdio.h>
#include <string.h>

#include "leasehold/clock.h"

#include "command.h"

#define LINE_MAX_BYTES 65536

/* One JSON line, written at once so that lines of several programs do not mix. */
struct line {
    struct buf text;
};

static void line_begin(struct line *l, const char *event)
{
    buf_init(&l->text, LINE_MAX_BYTES);
    buf_add_str(&l->text, "{\"event\":");
    json_add_string(&l->text, event, strlen(event));
}

static void line_str(struct line *l, const char *name, const char *value)
{
    if (value != NULL) {
        buf_printf(&l->text, ",\"%s\":", name);
        json_add_string(&l->text, value, strlen(value));
    }
}

static void line_int(struct line *l, const char *name, long value)
{
    buf_printf(&l->text, ",\"%s\":%ld", name, value);
}

static void line_time(struct line *l, const char *name, int64_t ms)
{
    line_str(l, name, time_format(ms, (char[TIME_TEXT]){0}));
}

static void line_end(struct line *l)
{
    buf_add_str(&l->text, "}\n");
    if (buf_ok(&l->text)) {
        fwrite(l->text.data, 1, l->text.len, stderr);
    }
    buf_done(&l->text);
}

static void line_scope(struct line *l, const struct lease_view *lease)
{
    char *const *words = lease->scope.items;
    buf_add_str(&l->text, ",\"scope\":[");
    for (size_t i = 0; i < lease->scope.n; i++) {
        buf_add_str(&l->text, i > 0 ? "," : "");
        json_add_string(&l->text, words[i], strlen(words[i]));
    }
    buf_add_char(&l->text, ']');
}

void events_ready(const struct events *ev, const struct lease_view *lease)
{
    if (ev->json) {
        struct line l;
        line_begin(&l, "ready");
        line_str(&l, "session_id", lease->session_id);
        line_str(&l, "lease_id", lease->lease_id);
        line_time(&l, "expires_at", lease->expires_at);
        line_scope(&l, lease);
        line_end(&l);
    } else if (ev->talkative) {
        fprintf(stderr, "leasectl: connected to session %s under lease %s\n", lease->session_id,
                lease->lease_id);
    }
}

void events_renewed(const struct events *ev, const struct lease_view *lease)
{
    if (ev->json) {
        struct line l;
        line_begin(&l, "renewed");
        line_str(&l, "lease_id", lease->lease_id);
        line_time(&l, "expires_at", lease->expires_at);
        line_end(&l);
    }
}

static void print_with_reason(const char *what, const char *reason)
{
    fprintf(stderr, "leasectl: %s", what);
    if (reason[0] != '\0') {
        fputs(": ", stderr);
        output_text(reason, strlen(reason), stderr);
    }
}

void events_renew_failed(const struct events *ev, const char *reason)
{
    if (ev->json) {
        struct line l;
        line_begin(&l, "renew_failed");
        line_str(&l, "reason", reason);
        line_end(&l);
    } else {
        print_with_reason("the lease was not renewed", reason);
        fputs("; trying again\n", stderr);
    }
}

void events_reconnecting(const struct events *ev, const char *who, const char *reason, int attempt,
                         bool again)
{
    if (ev->json) {
        struct line l;
        line_begin(&l, "reconnecting");
        line_int(&l, "attempt", attempt);
        line_str(&l, "away", who);
        line_str(&l, "reason", reason);
        line_end(&l);
    } else if (again) {
        fprintf(stderr, "leasectl: %s is still away (attempt %d)\n", who, attempt);
    } else {
        char what[48];
        snprintf(what, sizeof(what), "%s is away", who);
        print_with_reason(what, reason);
        fputs("; connecting again\n", stderr);
    }
}

void events_reopening(const struct events *ev, const char *session_id, const char *reason)
{
    if (ev->json) {
        struct line l;
        line_begin(&l, "reopening");
        line_str(&l, "session_id", session_id);
        line_str(&l, "reason", reason);
        line_end(&l);
    } else {
        print_with_reason("the session has failed", reason != NULL ? reason : "");
        fputs("; starting another one\n", stderr);
    }
}

void events_unsent(const struct events *ev, size_t lines)
{
    if (ev->json) {
        struct line l;
        line_begin(&l, "unsent");
        line_int(&l, "lines", (long)lines);
        line_end(&l);
    } else {
        fprintf(stderr, "leasectl: %zu %s not sent\n", lines,
                lines == 1 ? "line was" : "lines were");
    }
}

void events_closed(const struct events *ev, int code, const char *reason)
{
    if (ev->json) {
        struct line l;
        line_begin(&l, "closed");
        line_int(&l, "code", code);
        line_str(&l, "reason", reason);
        line_end(&l);
    } else if (code != 1000 || ev->talkative) {
        char what[32];
        snprintf(what, sizeof(what), "closed (%d)", code);
        print_with_reason(what, reason);
        fputc('\n', stderr);
    }
}

void events_error(const struct events *ev, const struct err *e)
{
    if (ev->json) {
        struct line l;
        line_begin(&l, "error");
        bool unreachable = api_exit_code_of_err(e) == EXIT_UNREACHABLE;
        line_str(&l, "code", unreachable ? "unreachable" : err_code_name(e->code));
        line_str(&l, "detail", e->msg);
        line_end(&l);
    } else {
        report_err(e);
    }
}

void events_problem(const struct events *ev, const struct api_problem *p)
{
    if (ev->json) {
        struct line l;
        line_begin(&l, "error");
        line_str(&l, "code", p->code != NULL ? p->code : "malformed_answer");
        line_int(&l, "status", p->status);
        line_str(&l, "title", p->title);
        line_str(&l, "detail", p->detail);
        line_str(&l, "request_id", p->request_id);
        line_end(&l);
    } else {
        api_problem_print(p);
    }
}
