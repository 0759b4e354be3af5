#include "leasehold/http_headers.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#define LINES_MAX 100

static const struct {
    const char *name;
    enum http_method method;
} methods[] = {
    {"GET", HTTP_GET},     {"HEAD", HTTP_HEAD},     {"POST", HTTP_POST},       {"PUT", HTTP_PUT},
    {"PATCH", HTTP_PATCH}, {"DELETE", HTTP_DELETE}, {"OPTIONS", HTTP_OPTIONS},
};

/* `once`: a second line of that name could mean something else to a proxy in front than to us. */
static const struct {
    const char *name;
    enum http_field field;
    bool once;
} known[] = {
    {"Authorization", HDR_AUTHORIZATION, true},
    {"Content-Type", HDR_CONTENT_TYPE, true},
    {"Idempotency-Key", HDR_IDEMPOTENCY_KEY, true},
    {"X-Request-Id", HDR_REQUEST_ID, false},
    {"traceparent", HDR_TRACEPARENT, false},
    {"Accept", HDR_ACCEPT, false},
    {"Host", HDR_HOST, true},
    {"Content-Length", HDR_CONTENT_LENGTH, true},
    {"Expect", HDR_EXPECT, false},
    {"Upgrade", HDR_UPGRADE, true},
    {"Origin", HDR_ORIGIN, true},
    {"Sec-WebSocket-Key", HDR_WS_KEY, true},
    {"Sec-WebSocket-Version", HDR_WS_VERSION, true},
    {"Sec-WebSocket-Protocol", HDR_WS_PROTOCOL, true},
    {"Range", HDR_RANGE, true},
    {"If-Range", HDR_IF_RANGE, true},
    {"If-Match", HDR_IF_MATCH, true},
    {"If-None-Match", HDR_IF_NONE_MATCH, true},
    {"If-Modified-Since", HDR_IF_MODIFIED_SINCE, true},
    {"If-Unmodified-Since", HDR_IF_UNMODIFIED_SINCE, true},
};

static bool is_token_char(unsigned char c)
{
    return isalnum(c) || (c != '\0' && strchr("!#$%&'*+-.^_`|~", c) != NULL);
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t';
}

long http_head_end(const char *text, size_t len, size_t seen)
{
    size_t from = seen < 3 ? 0 : seen - 3;
    const char *empty = memmem(text + from, len - from, "\r\n\r\n", 4);
    size_t end = empty == NULL ? len : (size_t)(empty - text) + 4;
    for (size_t i = seen; i < end; i++) {
        unsigned char c = (unsigned char)text[i];
        if ((c < ' ' && c != '\r' && c != '\n' && c != '\t') || c == 0x7f) {
            return -1;
        }
    }
    return empty == NULL ? 0 : (long)end;
}

/* Cuts the next line off *rest and returns it. A carriage return elsewhere than before a line feed,
 * or a line feed without one, is where two readers of a request begin to differ: refused. */
static char *line_next(char **rest)
{
    char *line = *rest;
    char *lf = strchr(line, '\n');
    if (lf == NULL || lf == line || lf[-1] != '\r') {
        return NULL;
    }
    lf[-1] = '\0';
    *rest = lf + 1;
    return strchr(line, '\r') == NULL ? line : NULL;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Visible ASCII only, no fragment, and every escape whole and none of a NUL. */
static int target_check(const char *target, struct err *e)
{
    for (const char *p = target; *p != '\0'; p++) {
        if (*p <= ' ' || *p > '~' || *p == '#') {
            return err_set(e, ERR_MALFORMED_REQUEST, "the request target has a bad character");
        }
        if (*p != '%') {
            continue;
        }
        int high = hex_digit(p[1]);
        int low = high < 0 ? -1 : hex_digit(p[2]);
        if (low < 0) {
            return err_set(e, ERR_MALFORMED_REQUEST, "the request target has a broken escape");
        }
        if (high == 0 && low == 0) {
            return err_set(e, ERR_MALFORMED_REQUEST, "the request target has a NUL");
        }
    }
    return 0;
}

/* "http://host/path" means "/path" (RFC 9112, 3.2.2). Returns where the path begins; NULL when there is
 * none before the query, whose slashes are no path to the proxy in front. */
static char *target_path(char *target)
{
    size_t scheme = 0;
    if (strncasecmp(target, "http://", 7) == 0) {
        scheme = 7;
    } else if (strncasecmp(target, "https://", 8) == 0) {
        scheme = 8;
    }
    char *end = target + scheme + strcspn(target + scheme, "/?");
    return scheme == 0 ? target : *end == '/' ? end : NULL;
}

static int target_read(char *target, struct http_head *head, struct err *e)
{
    if (target_check(target, e) != 0) {
        return -1;
    }
    char *path = target_path(target);
    bool all = head->method == HTTP_OPTIONS && strcmp(target, "*") == 0;
    if (path == NULL || (path[0] != '/' && !all)) {
        return err_set(e, ERR_MALFORMED_REQUEST, "the request target is no path");
    }
    char *query = strchr(path, '?');
    if (query != NULL) {
        *query++ = '\0';
        head->query = query;
    }
    head->path = path;
    return 0;
}

static enum http_method method_of(const char *name)
{
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
        if (strcmp(name, methods[i].name) == 0) {
            return methods[i].method;
        }
    }
    return HTTP_OTHER;
}

static int request_line_read(char *line, struct http_head *head, struct err *e)
{
    char *target = strchr(line, ' ');
    char *version = target == NULL ? NULL : strchr(target + 1, ' ');
    if (version == NULL || target == line) {
        return err_set(e, ERR_MALFORMED_REQUEST, "the request line is malformed");
    }
    *target++ = '\0';
    *version++ = '\0';
    for (const char *p = line; *p != '\0'; p++) {
        if (!is_token_char((unsigned char)*p)) {
            return err_set(e, ERR_MALFORMED_REQUEST, "the method is malformed");
        }
    }
    if (strcmp(version, "HTTP/1.1") != 0 && strcmp(version, "HTTP/1.0") != 0) {
        return err_set(e, ERR_MALFORMED_REQUEST, "only HTTP/1.1 is spoken here");
    }
    head->minor = version[7] - '0';
    head->method = method_of(line);
    return target_read(target, head, e);
}

bool http_list_has(const char *list, const char *token)
{
    size_t want = strlen(token);
    while (*list != '\0') {
        list += strspn(list, ", \t");
        size_t len = strcspn(list, ",");
        size_t bare = len;
        while (bare > 0 && is_space(list[bare - 1])) {
            bare--;
        }
        if (bare == want && strncasecmp(list, token, want) == 0) {
            return true;
        }
        list += len;
    }
    return false;
}

static int field_keep(struct http_head *head, enum http_field field, bool once, const char *name,
                      char *value, bool *seen, struct err *e)
{
    if (seen[field]) {
        return once ? err_set(e, ERR_MALFORMED_REQUEST, "there are two %s headers", name) : 0;
    }
    seen[field] = true;
    head->field[field] = value;
    return 0;
}

static int field_read(char *name, char *value, const char *token_header, struct http_head *head,
                      bool *seen, struct err *e)
{
    if (strcasecmp(name, "Transfer-Encoding") == 0) {
        head->transfer_encoding = true;
        return 0;
    }
    if (strcasecmp(name, "Connection") == 0) {
        head->connection_close |= http_list_has(value, "close");
        head->connection_upgrade |= http_list_has(value, "upgrade");
        return 0;
    }
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcasecmp(name, known[i].name) == 0) {
            return field_keep(head, known[i].field, known[i].once, known[i].name, value, seen, e);
        }
    }
    if (strcasecmp(name, token_header) == 0) {
        return field_keep(head, HDR_TOKEN, true, token_header, value, seen, e);
    }
    return 0;
}

/* Splits "Name: value". White space before the colon, or a line that continues the one before it,
 * is read differently by different programs: refused (RFC 9112, 5.1 and 5.2). */
static int field_split(char *line, char **ret_value, struct err *e)
{
    char *colon = line;
    while (is_token_char((unsigned char)*colon)) {
        colon++;
    }
    if (colon == line || *colon != ':') {
        return err_set(e, ERR_MALFORMED_REQUEST, "a header line is malformed");
    }
    *colon = '\0';
    char *value = colon + 1;
    while (is_space(*value)) {
        value++;
    }
    size_t len = strlen(value);
    while (len > 0 && is_space(value[len - 1])) {
        value[--len] = '\0';
    }
    *ret_value = value;
    return 0;
}

/* Digits and nothing else: no sign, no list, no space. */
static int length_read(const char *text, uint64_t *ret, struct err *e)
{
    uint64_t n = 0;
    for (const char *p = text; *p != '\0'; p++) {
        if (*p < '0' || *p > '9') {
            return err_set(e, ERR_MALFORMED_REQUEST, "Content-Length is no number");
        }
        uint64_t digit = (uint64_t)(*p - '0');
        n = n > (UINT64_MAX - digit) / 10 ? UINT64_MAX : n * 10 + digit;
    }
    *ret = n;
    return 0;
}

static int head_check(struct http_head *head, const bool *seen, struct err *e)
{
    if (head->minor == 1 && !seen[HDR_HOST]) {
        return err_set(e, ERR_MALFORMED_REQUEST, "there is no Host header");
    }
    if (head->transfer_encoding) {
        return err_set(e, ERR_LENGTH_REQUIRED, "send the body with Content-Length, not chunked");
    }
    if (!seen[HDR_CONTENT_LENGTH]) {
        return 0;
    }
    if (head->field[HDR_CONTENT_LENGTH][0] == '\0') {
        return err_set(e, ERR_MALFORMED_REQUEST, "Content-Length is empty");
    }
    head->has_length = true;
    return length_read(head->field[HDR_CONTENT_LENGTH], &head->body_len, e);
}

int http_head_parse(char *text, size_t len, const char *token_header, struct http_head *head,
                    struct err *e)
{
    static char none[] = "";
    *head = (struct http_head){.method = HTTP_OTHER, .path = none, .query = none};
    for (size_t i = 0; i < HDR_COUNT; i++) {
        head->field[i] = none;
    }
    text[len - 2] = '\0'; /* the empty line: what is left are lines that end in CR LF */
    char *rest = text;
    char *line = line_next(&rest);
    if (line == NULL) {
        return err_set(e, ERR_MALFORMED_REQUEST, "a line does not end in CR LF");
    }
    if (request_line_read(line, head, e) != 0) {
        return -1;
    }
    bool seen[HDR_COUNT] = {false};
    for (int n = 0; *rest != '\0'; n++) {
        char *value;
        line = line_next(&rest);
        if (line == NULL) {
            return err_set(e, ERR_MALFORMED_REQUEST, "a line does not end in CR LF");
        }
        if (n == LINES_MAX) {
            return err_set(e, ERR_MALFORMED_REQUEST, "more than %d header lines", LINES_MAX);
        }
        if (field_split(line, &value, e) != 0 ||
            field_read(line, value, token_header, head, seen, e) != 0) {
            return -1;
        }
    }
    return head_check(head, seen, e);
}
