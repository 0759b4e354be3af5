/*
 * The canonicaliser on hostile bytes: parts split at 0xFF are path, then pairs of names and values
 * of query and headers in turn. Held against each input: the wire form of the path decodes to what
 * was given; query and headers are sorted; no value can make a line of its own; signing again gives
 * the same signature.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../storage/s3_sign.h"

#define PAIRS_MAX 16

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds) {
        abort();
    }
}

static char *next_part(char **rest)
{
    char *part = *rest, *end = strchr(part, '\xff');
    if (end != NULL) {
        *end = '\0';
        *rest = end + 1;
    } else {
        *rest = part + strlen(part);
    }
    return part;
}

static void split(char *text, struct s3_to_sign *r, struct s3_pair *query, struct s3_pair *headers)
{
    r->path = next_part(&text);
    while (*text != '\0' && r->headers_n < PAIRS_MAX) {
        struct s3_pair *to =
            r->query_n <= r->headers_n ? &query[r->query_n++] : &headers[r->headers_n++];
        to->name = next_part(&text);
        to->value = next_part(&text);
    }
    r->query = query;
    r->headers = headers;
}

static void require_decodes(const char *wire, const char *given)
{
    for (; *given != '\0'; given++) {
        unsigned byte = (uint8_t)*wire;
        if (*wire == '%') {
            require(sscanf(wire + 1, "%2X", &byte) == 1);
            wire += 2;
        }
        require(byte == (uint8_t)*given);
        wire++;
    }
    require(*wire == '\0');
}

static size_t lines(const char *text)
{
    size_t n = 0;
    for (; *text != '\0'; text++) {
        n += *text == '\n';
    }
    return n;
}

/* Names may hold line ends here (a caller's fault); values may not make any. */
static void require_lines(const struct s3_to_sign *r, const struct s3_signed *got)
{
    size_t most = 8;
    for (size_t i = 0; i < r->headers_n; i++) {
        most += 1 + 2 * lines(r->headers[i].name);
    }
    require(lines(got->canonical.data) <= most);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct s3_credentials c = {.key_id = "id:1", .secret = "secret", .token = "a/b+c="};
    struct s3_pair query[PAIRS_MAX + 1], headers[PAIRS_MAX + 1];
    struct s3_to_sign r = {
        .method = "PUT", .payload_hash = S3_UNSIGNED_PAYLOAD, .at_s = (int64_t)size};
    struct s3_signer *s = s3_signer_new(&c, "garage", "s3");
    struct s3_signed got, again;
    struct err e;
    char *text = malloc(size + 1);
    require(s != NULL && text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    split(text, &r, query, headers);
    s3_signed_init(&got);
    s3_signed_init(&again);
    if (s3_sign(s, &r, &got, &e) == 0) {
        require_decodes(got.path.data ? got.path.data : "", r.path);
        require_lines(&r, &got);
        require(s3_sign(s, &r, &again, &e) == 0 && strcmp(got.signature, again.signature) == 0);
        require(s3_presign(s, &r, 60, &again, &e) == 0);
        require(strpbrk(again.query.data, " \r\n\t\"<>") == NULL);
    }
    s3_signed_done(&got);
    s3_signed_done(&again);
    s3_signer_free(s);
    free(text);
    return 0;
}
