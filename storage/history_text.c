#include "history_text.h"

#include <string.h>

#include "leasehold/clock.h"
#include "leasehold/json.h"

#define REPLACEMENT  "\xEF\xBF\xBD"
#define SEQUENCE_MAX 4

const char *const history_role_names[] = {"user", "agent", "system", "tool", NULL};

/* --- content --------------------------------------------------------------------------------- */

bool history_text_is_clean(const char *text, size_t len)
{
    return len == 0 || (memchr(text, '\0', len) == NULL && utf8_valid(text, len));
}

/* Length of the well-formed sequence at the front, 0 if there is none. */
static size_t sequence_len(const char *text, size_t left)
{
    for (size_t n = 1; n <= SEQUENCE_MAX && n <= left; n++) {
        if (utf8_valid(text, n)) {
            return text[0] != '\0' ? n : 0;
        }
    }
    return 0;
}

void history_text_clean(const char *text, size_t len, struct buf *out)
{
    for (size_t at = 0; at < len;) {
        size_t n = sequence_len(text + at, len - at);
        if (n > 0) {
            buf_add(out, text + at, n);
        } else {
            buf_add_str(out, REPLACEMENT);
        }
        at += n > 0 ? n : 1;
    }
}

/* --- history.md ------------------------------------------------------------------------------ */

static bool is_line_end(char c)
{
    return c == '\n' || c == '\r';
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* Where the '#' of a heading of the first or second level stands in this line, or -1. */
static long heading_at(const char *line, size_t len)
{
    size_t at = 0, level = 0;
    while (at < len && at < 3 && line[at] == ' ') {
        at++;
    }
    while (at + level < len && line[at + level] == '#') {
        level++;
    }
    size_t end = at + level;
    bool ends = end == len || is_line_end(line[end]) || is_blank(line[end]);
    return level >= 1 && level <= 2 && ends ? (long)at : -1;
}

static void add_line(const char *line, size_t len, struct buf *out)
{
    long at = heading_at(line, len);
    if (at < 0) {
        buf_add(out, line, len);
        return;
    }
    buf_add(out, line, (size_t)at);
    buf_add_char(out, '\\');
    buf_add(out, line + at, len - (size_t)at);
}

static void add_content(const char *text, size_t len, struct buf *out)
{
    for (size_t at = 0; at < len;) {
        size_t end = at;
        while (end < len && !is_line_end(text[end])) {
            end++;
        }
        end += end < len;
        add_line(text + at, end - at, out);
        at = end;
    }
}

/* In one line, whatever it is. */
static void add_author(const char *author, struct buf *out)
{
    for (const char *p = author; *p != '\0'; p++) {
        buf_add_char(out, (char)((unsigned char)*p < ' ' ? ' ' : *p));
    }
}

void history_text_entry(const struct history_message *m, struct buf *out)
{
    char at[TIME_TEXT];
    buf_printf(out, "\n## %s %s", time_format(m->at, at), history_role_names[m->role]);
    if (m->author[0] != '\0') {
        buf_add_char(out, ' ');
        add_author(m->author, out);
    }
    buf_add_str(out, "\n\n");
    add_content(m->content, m->content_len, out);
    buf_add_char(out, '\n');
}
