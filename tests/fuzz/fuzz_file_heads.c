/*
 * What a request's head says of a file, on hostile text: ranges stay in the file and do not touch each
 * other, dates come back as they were, a name is one header line that nobody can break out of, and a
 * name that is valid has a normal form that is its own.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../../gateway/http_when.h"
#include "leasehold/file_name.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds) {
        abort();
    }
}

static void try_ranges(const char *text, int64_t size)
{
    struct http_range r[HTTP_RANGES_MAX];
    int n = http_ranges(text, size, r);
    require(n >= -1 && n <= HTTP_RANGES_MAX);
    for (int i = 0; i < n; i++) {
        require(r[i].from >= 0 && r[i].len > 0 && r[i].from + r[i].len <= size);
        for (int k = 0; k < i; k++) {
            bool apart = r[k].from + r[k].len < r[i].from || r[i].from + r[i].len < r[k].from;
            require(apart);
        }
    }
}

static void try_conditions(const char *text)
{
    const struct op_when w = {"", text, text, text, text, text};
    (void)http_when(&w, "\"abc\"", 1000000000, true);
    require(http_when(&w, "\"abc\"", 1000000000, false) != HTTP_NOT_MODIFIED);
    (void)http_when(&w, NULL, 0, false);
    (void)http_if_range(text, "\"abc\"", 1000000000);
}

static void try_date(const char *text)
{
    char again[HTTP_DATE_SIZE];
    int64_t at, same;
    if (http_date_parse(text, &at) && at >= 0 && at < 253402300800) {
        http_date_format(at, again);
        require(http_date_parse(again, &same) && same == at);
    }
}

static void try_name(const char *text)
{
    char key[FILE_NAME_KEY_SIZE], again[FILE_NAME_KEY_SIZE];
    struct buf b;
    if (!file_name_valid(text)) {
        return;
    }
    require(strpbrk(text, "/\\\r\n") == NULL && strcmp(text, "..") != 0);
    if (file_name_key(text, key)) {
        require(file_name_key(key, again) && strcmp(key, again) == 0);
    }
    buf_init(&b, 65536);
    http_disposition(text, &b);
    require(buf_ok(&b) && strchr(b.data, '\n') == b.data + b.len - 1);
    require(strchr(b.data, '\r') == b.data + b.len - 2);
    const char *open = strchr(b.data, '"');
    require(open != NULL && strchr(open + 1, '"') != NULL);
    require(strchr(strchr(open + 1, '"') + 1, '"') == NULL);
    for (size_t i = 0; i < b.len; i++) {
        require((unsigned char)b.data[i] < 0x80);
    }
    buf_done(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1) {
        return 0;
    }
    char *text = malloc(size);
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    try_ranges(text, data[0]);
    try_ranges(text, INT64_MAX);
    try_conditions(text);
    try_date(text);
    try_name(text);
    free(text);
    return 0;
}
