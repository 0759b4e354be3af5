/*
 * Forms on hostile bytes. The first byte says where the rest is cut in two; whole or cut, the outcome is
 * the same: name, type, content, or refusal. What is passed on is within what came.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../../gateway/multipart.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct got {
    char *data;
    size_t len, cap;
    int files;
};

static void require(int holds)
{
    if (!holds) {
        abort();
    }
}

static int on_file(void *ctx, const struct multipart *m, struct err *e)
{
    struct got *g = ctx;
    (void)e;
    require(m->file_name[0] != '\0' && strlen(m->file_name) < sizeof m->file_name);
    g->files++;
    return 0;
}

static int on_data(void *ctx, const char *data, size_t len, struct err *e)
{
    struct got *g = ctx;
    (void)e;
    require(g->files == 1 && len > 0 && g->len + len <= g->cap);
    memcpy(g->data + g->len, data, len);
    g->len += len;
    return 0;
}

static int run(const char *data, size_t size, size_t cut, struct multipart *m, struct got *g)
{
    struct err e;
    *m = (struct multipart){.ctx = g, .file = on_file, .data = on_data};
    if (multipart_begin(m, "multipart/form-data; boundary=XX", &e) != 0 ||
        multipart_feed(m, data, cut, &e) != 0 ||
        multipart_feed(m, data + cut, size - cut, &e) != 0) {
        return -1;
    }
    return multipart_end(m, &e);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct multipart one, two; /* large */
    if (size < 1) {
        return 0;
    }
    const char *text = (const char *)data + 1;
    size_t len = size - 1, cut = len == 0 ? 0 : data[0] % (len + 1);
    struct got whole = {.data = malloc(len + 1), .cap = len},
               parts = {.data = malloc(len + 1), .cap = len};
    int first = run(text, len, len, &one, &whole), second = run(text, len, cut, &two, &parts);
    require(first == second);
    if (first == 0) {
        require(whole.files == 1 && parts.files == 1 && whole.len == parts.len);
        require(memcmp(whole.data, parts.data, whole.len) == 0);
        require(strcmp(one.file_name, two.file_name) == 0);
        require(strcmp(one.content_type, two.content_type) == 0);
    }
    free(whole.data);
    free(parts.data);
    struct err e;
    char type[200];
    size_t n = len < sizeof type - 1 ? len : sizeof type - 1;
    memcpy(type, text, n);
    type[n] = '\0';
    if (multipart_begin(&one, type, &e) == 0) {
        require(one.delimiter_len > 4 && one.delimiter_len < sizeof one.delimiter);
    }
    return 0;
}
