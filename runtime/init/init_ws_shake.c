#include "init_ws_shake.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "init_sha1.h"

#define GUID "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

static void base64_put(const uint8_t *in, size_t len, char *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t at = 0; at < len; at += 3) {
        size_t n = len - at < 3 ? len - at : 3;
        uint32_t bits = (uint32_t)in[at] << 16;
        if (n > 1)
            bits |= (uint32_t)in[at + 1] << 8;
        if (n > 2)
            bits |= in[at + 2];
        for (size_t i = 0; i < 4; i++)
            *out++ = (char)(i <= n ? digits[bits >> (18 - 6 * i) & 63] : '=');
    }
    *out = '\0';
}

void wsc_key_make(const uint8_t nonce[static WSC_NONCE], char ret_key[static WSC_KEY_TEXT],
                  char ret_accept[static WSC_ACCEPT_TEXT])
{
    char text[WSC_KEY_TEXT + sizeof(GUID)];
    uint8_t digest[SHA1_SIZE];
    base64_put(nonce, WSC_NONCE, ret_key);
    int n = snprintf(text, sizeof(text), "%s" GUID, ret_key);
    sha1_short((const uint8_t *)text, (size_t)n, digest);
    base64_put(digest, sizeof(digest), ret_accept);
}

size_t wsc_request_put(char *out, size_t size, const char *host, const char *path, const char *key)
{
    int n = snprintf(out, size,
                     "GET %s HTTP/1.1\r\n"
                     "Host: %s\r\n"
                     "Upgrade: websocket\r\n"
                     "Connection: Upgrade\r\n"
                     "Sec-WebSocket-Key: %s\r\n"
                     "Sec-WebSocket-Version: 13\r\n\r\n",
                     path, host, key);
    return n > 0 && (size_t)n < size ? (size_t)n : 0;
}

long wsc_answer_end(const uint8_t *in, size_t len)
{
    const uint8_t *end = memmem(in, len, "\r\n\r\n", 4);
    if (end != NULL && end - in + 4 <= (long)WSC_ANSWER_MAX)
        return end - in + 4;
    return end != NULL || len >= WSC_ANSWER_MAX ? -1 : 0;
}

/* A header line without its line end, cut in name and value. */
struct line {
    const char *name, *value;
    size_t name_len, value_len;
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static bool line_cut(const char *text, size_t len, struct line *ret)
{
    const char *colon = memchr(text, ':', len);
    if (colon == NULL || colon == text || memchr(text, '\0', len) != NULL)
        return false;
    const char *from = colon + 1, *end = text + len;
    while (from < end && is_blank(*from))
        from++;
    while (end > from && is_blank(end[-1]))
        end--;
    *ret = (struct line){.name = text,
                         .value = from,
                         .name_len = (size_t)(colon - text),
                         .value_len = (size_t)(end - from)};
    return true;
}

static bool name_is(const struct line *l, const char *name)
{
    return l->name_len == strlen(name) && strncasecmp(l->name, name, l->name_len) == 0;
}

/* Is `word` one of the comma-separated words of the value? */
static bool value_has(const struct line *l, const char *word)
{
    const char *at = l->value, *end = l->value + l->value_len;
    while (at < end) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        const char *stop = comma != NULL ? comma : end;
        const char *last = stop;
        while (at < last && is_blank(*at))
            at++;
        while (last > at && is_blank(last[-1]))
            last--;
        if ((size_t)(last - at) == strlen(word) && strncasecmp(at, word, strlen(word)) == 0)
            return true;
        at = stop + 1;
    }
    return false;
}

struct found {
    unsigned upgrades, connections, accepts;
    bool forbidden;
};

static void line_note(const struct line *l, const char *accept, struct found *f)
{
    if (name_is(l, "Upgrade"))
        f->upgrades += value_has(l, "websocket");
    else if (name_is(l, "Connection"))
        f->connections += value_has(l, "Upgrade");
    else if (name_is(l, "Sec-WebSocket-Accept") && l->value_len == strlen(accept) &&
             memcmp(l->value, accept, l->value_len) == 0)
        f->accepts++;
    else if (name_is(l, "Sec-WebSocket-Accept") || name_is(l, "Sec-WebSocket-Extensions") ||
             name_is(l, "Sec-WebSocket-Protocol"))
        f->forbidden = true; /* a wrong answer, or to something that we did not ask */
}

bool wsc_answer_accepts(const uint8_t *head, size_t len, const char *accept)
{
    static const char status[] = "HTTP/1.1 101";
    const char *at = (const char *)head, *end = at + len;
    struct found f = {0};
    struct line l;
    if (len < sizeof(status) || memcmp(at, status, sizeof(status) - 1) != 0 ||
        (at[sizeof(status) - 1] != ' ' && at[sizeof(status) - 1] != '\r'))
        return false;
    for (const char *eol = memmem(at, len, "\r\n", 2); eol != NULL && eol + 2 < end;
         eol = memmem(at, (size_t)(end - at), "\r\n", 2)) {
        if (eol == at)
            break;
        if (at != (const char *)head) {
            if (!line_cut(at, (size_t)(eol - at), &l))
                return false;
            line_note(&l, accept, &f);
        }
        at = eol + 2;
    }
    return f.upgrades > 0 && f.connections > 0 && f.accepts == 1 && !f.forbidden;
}
