/*
 * The reader of S3's answers on hostile bytes. Held against each input: what it finds lies within what
 * it was given, goes on behind it, and a text has no NUL and fits.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../../storage/s3_xml.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"Upload", "Key", "Code", "a"};
    char *copy = malloc(size > 0 ? size : 1); /* no longer: a sanitizer sees a step too far */
    char text[16];
    require(copy != NULL);
    if (size > 0) {
        memcpy(copy, data, size);
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct s3_slice in = {copy, size}, found;
        while (s3_xml_next(&in, names[i], &found)) {
            require(found.at >= copy && found.at + found.len <= in.at);
            require(in.at + in.len == copy + size);
        }
        bool there = s3_xml_text((struct s3_slice){copy, size}, names[i], text, sizeof(text));
        require(strlen(text) < sizeof(text) && (there || text[0] == '\0'));
    }
    free(copy);
    return 0;
}
