#include "leasehold/id.h"

#include <string.h>
#include <strings.h>
#include <uuid/uuid.h>

#define URN      "urn:uuid:"
#define HEX_LEN  32
#define TEXT_LEN 36

void id_random(struct id *ret)
{
    uuid_generate_random(ret->b);
}

/* Takes off one of the spellings around the digits. */
static void unwrap(const char **s, size_t *len)
{
    if (*len >= 2 && (*s)[0] == '{' && (*s)[*len - 1] == '}') {
        *s += 1;
        *len -= 2;
    } else if (*len >= strlen(URN) && strncasecmp(*s, URN, strlen(URN)) == 0) {
        *s += strlen(URN);
        *len -= strlen(URN);
    }
}

static void hyphenate(const char *hex, char text[static ID_TEXT])
{
    static const size_t group_sizes[] = {8, 4, 4, 4, 12};
    for (size_t i = 0; i < sizeof(group_sizes) / sizeof(group_sizes[0]); i++) {
        memcpy(text, hex, group_sizes[i]);
        text += group_sizes[i];
        hex += group_sizes[i];
        *text++ = '-';
    }
    text[-1] = '\0';
}

bool id_parse(const char *s, size_t len, struct id *ret)
{
    char text[ID_TEXT];
    struct id id;
    unwrap(&s, &len);
    if (len == HEX_LEN) {
        hyphenate(s, text);
    } else if (len == TEXT_LEN) {
        memcpy(text, s, len);
        text[len] = '\0';
    } else {
        return false;
    }
    if (uuid_parse(text, id.b) != 0) {
        return false;
    }
    *ret = id;
    return true;
}

char *id_format(const struct id *id, char out[static ID_TEXT])
{
    uuid_unparse_lower(id->b, out);
    return out;
}

bool id_equal(const struct id *a, const struct id *b)
{
    return memcmp(a->b, b->b, sizeof(a->b)) == 0;
}

bool id_is_zero(const struct id *id)
{
    return uuid_is_null(id->b) != 0;
}
