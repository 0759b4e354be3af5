#include "multipart.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "leasehold/json.h"

static int bad(struct err *e, const char *what)
{
    return err_field(e, "", "the form %s", what);
}

/* --- header parameters ----------------------------------------------------------------------- */

/* The next `; name=value` of a header field, the value unquoted. 1 found, 0 no more, -1 malformed or
 * too long. Browsers escape what would end the quotes as %22; a backslash stands for what follows
 * it only before a quote or another, as old ones send C:\names. */
static int parameter(const char **at, char *name, size_t name_size, char *value, size_t value_size)
{
    const char *p = *at + strspn(*at, "; \t");
    size_t n = strcspn(p, "=; \t"), out = 0;
    bool quoted;

    if (!*p)
        return 0;
    if (!n || n >= name_size || p[n] != '=')
        return -1;
    memcpy(name, p, n);
    name[n] = '\0';
    p += n + 1;
    quoted = *p == '"';
    p += quoted;
    while (*p && (quoted ? *p != '"' : !strchr("; \t", *p))) {
        if (quoted && p[0] == '\\' && (p[1] == '"' || p[1] == '\\'))
            p++;
        if (out + 1 >= value_size)
            return -1;
        value[out++] = *p++;
    }
    if (quoted && *p++ != '"')
        return -1;
    value[out] = '\0';
    *at = p;
    return 1;
}

static int hex_digit(char c)
{
    return isdigit((unsigned char)c)    ? c - '0'
           : isxdigit((unsigned char)c) ? (c | 0x20) - 'a' + 10
                                        : -1;
}

/* In place; what is no escape stays as it is. */
static void unescape(char *s)
{
    char *out = s;

    while (*s) {
        int high = *s == '%' ? hex_digit(s[1]) : -1, low = high < 0 ? -1 : hex_digit(s[2]);
        if (low >= 0 && (high || low)) {
            *out++ = (char)(high << 4 | low);
            s += 3;
        } else {
            *out++ = *s++;
        }
    }
    *out = '\0';
}

/* --- the part's head ------------------------------------------------------------------------- */

static int disposition(struct multipart *m, const char *value, struct err *e)
{
    char name[32], text[sizeof m->file_name];
    int rc;

    if (strncasecmp(value, "form-data", 9) != 0)
        return bad(e, "has a part that is no form-data");
    value += 9;
    while ((rc = parameter(&value, name, sizeof name, text, sizeof text)) == 1) {
        if (!strcasecmp(name, "filename")) {
            unescape(text);
            snprintf(m->file_name, sizeof m->file_name, "%s", text);
        }
    }
    return rc ? bad(e, "has a Content-Disposition that cannot be read") : 0;
}

static int header_line(struct multipart *m, char *line, struct err *e)
{
    char *colon = strchr(line, ':'), *value;
    size_t len;

    if (!colon)
        return bad(e, "has a header line without a colon");
    *colon = '\0';
    value = colon + 1 + strspn(colon + 1, " \t");
    if (!strcasecmp(line, "Content-Disposition"))
        return disposition(m, value, e);
    if (!strcasecmp(line, "Content-Transfer-Encoding") && strcasecmp(value, "binary") != 0 &&
        strcasecmp(value, "8bit") != 0 && strcasecmp(value, "7bit") != 0)
        return bad(e, "has a part in a transfer encoding");
    len = strlen(value);
    if (!strcasecmp(line, "Content-Type") && len < sizeof m->content_type)
        memcpy(m->content_type, value, len + 1);
    return 0;
}

/* m->held is the head with its empty line. */
static int head_read(struct multipart *m, struct err *e)
{
    char *line = m->held, *end;

    m->held[m->held_len - 2] = '\0';
    if (memchr(m->held, '\0', m->held_len - 2))
        return bad(e, "has a NUL in a header");
    for (; *line; line = end + 2) {
        end = strstr(line, "\r\n");
        if (!end)
            return bad(e, "has a header line without an end");
        *end = '\0';
        if (header_line(m, line, e))
            return -1;
    }
    if (!m->file_name[0])
        return bad(e, "must be one part with a file name");
    if (!utf8_valid(m->file_name, strlen(m->file_name)))
        return bad(e, "has a file name that is not UTF-8");
    m->held_len = 0;
    m->at = MULTIPART_BODY;
    return m->file(m->ctx, m, e);
}

static int feed_head(struct multipart *m, const char *data, size_t len, size_t *ret_used,
                     struct err *e)
{
    *ret_used = 0;
    while (*ret_used < len) {
        if (m->held_len == sizeof m->held)
            return bad(e, "has a part with a head over 8 KiB");
        m->held[m->held_len++] = data[(*ret_used)++];
        bool none = m->held_len == 2 && !memcmp(m->held, "\r\n", 2);
        if (none || (m->held_len >= 4 && !memcmp(m->held + m->held_len - 4, "\r\n\r\n", 4)))
            return head_read(m, e);
    }
    return 0;
}

/* --- delimiters ------------------------------------------------------------------------------ */

static int emit(struct multipart *m, const char *data, size_t len, struct err *e)
{
    return m->at == MULTIPART_BODY && len ? m->data(m->ctx, data, len, e) : 0;
}

/* How many of the last bytes may be the beginning of a delimiter. */
static size_t beginning(const struct multipart *m, const char *data, size_t len)
{
    size_t n = len < m->delimiter_len - 1 ? len : m->delimiter_len - 1;

    while (n && memcmp(data + len - n, m->delimiter, n) != 0)
        n--;
    return n;
}

static void delimiter_seen(struct multipart *m)
{
    m->at = MULTIPART_LINE_END;
    m->held_len = 0;
}

/* A delimiter that begins in what is held: with as much of `data` as decides it. */
static int feed_across(struct multipart *m, const char *data, size_t len, size_t *ret_used,
                       struct err *e)
{
    char both[2 * sizeof m->delimiter];
    size_t held = m->held_len, more = len < m->delimiter_len ? len : m->delimiter_len, keep;
    const char *found;

    memcpy(both, m->held, held);
    memcpy(both + held, data, more);
    found = memmem(both, held + more, m->delimiter, m->delimiter_len);
    if (found && found < both + held) {
        *ret_used = (size_t)(found - both) + m->delimiter_len - held;
        if (emit(m, both, (size_t)(found - both), e))
            return -1;
        delimiter_seen(m);
        return 0;
    }
    keep = beginning(m, both, held + more);
    if (keep <= more) { /* none begins in what was held */
        *ret_used = 0;
        m->held_len = 0;
        return emit(m, both, held, e);
    }
    *ret_used = more; /* all of it, too short to tell */
    memcpy(m->held, both + held + more - keep, keep);
    m->held_len = keep;
    return emit(m, both, held + more - keep, e);
}

static int feed_content(struct multipart *m, const char *data, size_t len, size_t *ret_used,
                        struct err *e)
{
    const char *found;
    size_t keep;

    if (m->held_len)
        return feed_across(m, data, len, ret_used, e);
    found = memmem(data, len, m->delimiter, m->delimiter_len);
    if (found) {
        *ret_used = (size_t)(found - data) + m->delimiter_len;
        if (emit(m, data, (size_t)(found - data), e))
            return -1;
        delimiter_seen(m);
        return 0;
    }
    *ret_used = len;
    keep = beginning(m, data, len);
    memcpy(m->held, data + len - keep, keep);
    m->held_len = keep;
    return emit(m, data, len - keep, e);
}

/* Behind a delimiter: "--" at the end of all, else a line's end; blanks before it are allowed. */
static int feed_line_end(struct multipart *m, char c, struct err *e)
{
    if (!m->held_len && (c == ' ' || c == '\t'))
        return 0;
    m->held[m->held_len++] = c;
    if (m->held_len < 2)
        return 0;
    m->held_len = 0;
    if (!memcmp(m->held, "--", 2)) {
        m->at = MULTIPART_OVER;
        return 0;
    }
    if (memcmp(m->held, "\r\n", 2) != 0)
        return bad(e, "has a broken boundary");
    if (m->file_name[0])
        return bad(e, "must have one part only");
    m->at = MULTIPART_HEAD;
    return 0;
}

int multipart_feed(struct multipart *m, const char *data, size_t len, struct err *e)
{
    while (len) {
        size_t used = 1;
        int rc = 0;
        switch (m->at) {
        case MULTIPART_PREAMBLE:
        case MULTIPART_BODY:
            rc = feed_content(m, data, len, &used, e);
            break;
        case MULTIPART_LINE_END:
            rc = feed_line_end(m, *data, e);
            break;
        case MULTIPART_HEAD:
            rc = feed_head(m, data, len, &used, e);
            break;
        case MULTIPART_OVER:
            return 0; /* what is behind it means nothing */
        }
        if (rc)
            return -1;
        data += used;
        len -= used;
    }
    return 0;
}

/* --- begin and end --------------------------------------------------------------------------- */

int multipart_begin(struct multipart *m, const char *content_type, struct err *e)
{
    size_t type = strcspn(content_type, "; \t");
    const char *at = content_type + type;
    char name[32], value[MULTIPART_BOUNDARY_MAX + 1];
    int rc;

    m->at = MULTIPART_PREAMBLE;
    m->file_name[0] = m->content_type[0] = '\0';
    m->delimiter_len = 0;
    if (type != strlen("multipart/form-data") ||
        strncasecmp(content_type, "multipart/form-data", type) != 0)
        return err_set(e, ERR_UNSUPPORTED_MEDIA_TYPE, "the body must be multipart/form-data");
    while ((rc = parameter(&at, name, sizeof name, value, sizeof value)) == 1)
        if (!strcasecmp(name, "boundary") && value[0])
            m->delimiter_len =
                (size_t)snprintf(m->delimiter, sizeof m->delimiter, "\r\n--%s", value);
    if (rc || !m->delimiter_len)
        return bad(e, "has no boundary in its Content-Type");
    memcpy(m->held, "\r\n", 2); /* the first line may be a delimiter already */
    m->held_len = 2;
    return 0;
}

int multipart_end(const struct multipart *m, struct err *e)
{
    if (m->at != MULTIPART_OVER)
        return bad(e, "ends before its last boundary");
    return m->file_name[0] ? 0 : bad(e, "must be one part with a file name");
}
