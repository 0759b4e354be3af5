/* SHA-1 (RFC 3174), for the WebSocket handshake alone, where it proves nothing but that the other
 * side speaks WebSocket. leaseinit is static and links no library. */
#ifndef INIT_SHA1_H
#define INIT_SHA1_H

#include <stddef.h>
#include <stdint.h>

#define SHA1_SIZE 20u
#define SHA1_MAX  119u /* of the input: two blocks */

/* `len` is at most SHA1_MAX. */
void sha1_short(const uint8_t *data, size_t len, uint8_t ret[static SHA1_SIZE]);

#endif
