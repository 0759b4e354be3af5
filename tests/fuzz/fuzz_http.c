/*
 * Request heads and WebSocket frame headers on hostile bytes. The first byte chooses:
 *   even: the rest is what a client sends, and the byte says where it is cut in two;
 *   odd:  the rest is a frame header.
 * Held against each input: a head ends at the same place however it arrives; what is accepted has a
 * path of visible ASCII with whole escapes and one length; a frame header needs all of its bytes and
 * no more, and obeys the limits of its kind.
 */
#include <ctype.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "leasehold/http_headers.h"
#include "leasehold/ws_frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds) {
        abort();
    }
}

static void require_target(const char *text)
{
    for (const char *p = text; *p != '\0'; p++) {
        require(*p > ' ' && *p <= '~' && *p != '#');
        if (*p == '%') {
            require(isxdigit((unsigned char)p[1]) && isxdigit((unsigned char)p[2]));
            require(p[1] != '0' || p[2] != '0');
        }
    }
}

static void try_head(const char *data, size_t size, size_t cut)
{
    size_t end = 0;
    long whole = http_head_end(data, size, 0);
    long first = http_head_end(data, cut, 0);
    long second = first == 0 ? http_head_end(data, size, cut) : first;
    require(whole == second);
    if (whole <= 0) {
        return;
    }
    end = (size_t)whole;
    char *text = malloc(end + 1);
    memcpy(text, data, end);
    text[end] = '\0';
    struct http_head head;
    struct err e;
    if (http_head_parse(text, end, "X-API-Token", &head, &e) == 0) {
        require(head.path[0] == '/' || strcmp(head.path, "*") == 0);
        require(strchr(head.path, '?') == NULL);
        require_target(head.path);
        require_target(head.query);
        require(!head.transfer_encoding && (head.minor == 0 || head.minor == 1));
        require(strspn(head.field[HDR_CONTENT_LENGTH], "0123456789") ==
                strlen(head.field[HDR_CONTENT_LENGTH]));
    } else {
        require(e.code == ERR_MALFORMED_REQUEST || e.code == ERR_LENGTH_REQUIRED);
    }
    free(text);
}

static void try_frame(const uint8_t *data, size_t size)
{
    struct ws_frame f;
    size_t len = size < WS_HEADER_MAX ? size : WS_HEADER_MAX;
    int n = ws_frame_parse(data, len, WS_FROM_CLIENT, &f);
    if (n <= 0) {
        return;
    }
    require((size_t)n <= len && f.len <= INT64_MAX);
    require(f.opcode < WS_CLOSE || (f.fin && f.len <= WS_CONTROL_MAX));
    for (int i = 0; i < n; i++) {
        require(ws_frame_parse(data, (size_t)i, WS_FROM_CLIENT, &f) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) {
        return 0;
    }
    size_t rest = size - 1;
    if (data[0] % 2 == 0) {
        try_head((const char *)data + 1, rest, rest * data[0] / 255);
    } else {
        try_frame(data + 1, rest);
    }
    return 0;
}
