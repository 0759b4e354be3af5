#include "trace.h"

#include <stdio.h>
#include <string.h>

#include "leasehold/id.h"

void request_id_choose(const char *sent, char ret[static 65])
{
    size_t n = 0;
    struct id id;

    while (sent[n] > ' ' && sent[n] < 0x7f)
        n++;
    if (n && n <= 64 && !sent[n]) {
        memcpy(ret, sent, n + 1);
        return;
    }
    id_random(&id);
    id_format(&id, ret);
}

static bool lower_hex(const char *s, size_t n)
{
    bool zero = true;

    for (size_t i = 0; i < n; i++) {
        if (!((s[i] >= '0' && s[i] <= '9') || (s[i] >= 'a' && s[i] <= 'f')))
            return false;
        zero &= s[i] == '0';
    }
    return n == 2 || !zero; /* all-zero trace and parent ids are invalid, flags may be zero */
}

bool traceparent_read(const char *sent, struct trace_context *ret)
{
    static const char odd[] = "13579bdf"; /* the lowest bit of the flags: sampled */

    if (strlen(sent) != 55 || strncmp(sent, "00-", 3) != 0 || sent[35] != '-' || sent[52] != '-' ||
        !lower_hex(sent + 3, 32) || !lower_hex(sent + 36, 16) || !lower_hex(sent + 53, 2))
        return false;
    *ret = (struct trace_context){.sampled = strchr(odd, sent[54]) != NULL};
    memcpy(ret->trace_id, sent + 3, TRACE_TEXT - 1);
    memcpy(ret->span_id, sent + 36, TRACE_SPAN_TEXT - 1);
    return true;
}

static void hex_random(char *ret, size_t bytes)
{
    struct id random;

    id_random(&random);
    for (size_t i = 0; i < bytes; i++)
        snprintf(ret + 2 * i, 3, "%02x", random.b[i]);
}

void trace_child(struct trace_context *ret, const struct trace_context *parent)
{
    struct trace_context c = {.sampled = true};

    if (parent)
        c = *parent;
    else
        hex_random(c.trace_id, sizeof c.trace_id / 2);
    hex_random(c.span_id, sizeof c.span_id / 2);
    *ret = c;
}

void traceparent_write(const struct trace_context *c, char ret[static 56])
{
    snprintf(ret, 56, "00-%s-%s-%s", c->trace_id, c->span_id, c->sampled ? "01" : "00");
}
