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

bool traceparent_continue(const char *sent, char ret[static 56])
{
    struct id span;

    if (strlen(sent) != 55 || strncmp(sent, "00-", 3) != 0 || sent[35] != '-' || sent[52] != '-' ||
        !lower_hex(sent + 3, 32) || !lower_hex(sent + 36, 16) || !lower_hex(sent + 53, 2))
        return false;
    id_random(&span);
    memcpy(ret, sent, 56);
    for (size_t i = 0; i < 8; i++)
        snprintf(ret + 36 + 2 * i, 3, "%02x", span.b[i]);
    ret[52] = '-';
    return true;
}
