/* Is text that comes in pieces UTF-8? Pieces may end inside a character. */
#ifndef LEASEHOLD_DOOR_UTF8_STREAM_H
#define LEASEHOLD_DOOR_UTF8_STREAM_H

#include <stdbool.h>
#include <stddef.h>

/* Zeroed at the start of each text. */
struct utf8_stream {
    char begun[4]; /* of a character */
    size_t begun_len;
};

/* Takes the next piece; `fin`: the last one. False: what came so far is not UTF-8. */
bool utf8_stream_take(struct utf8_stream *u, const char *text, size_t len, bool fin);

#endif
