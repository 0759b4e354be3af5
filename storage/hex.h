/* SHA-256 sums as they stand in the store: 64 lower-case hexadecimal digits. */
#ifndef STORAGE_HEX_H
#define STORAGE_HEX_H

#include <stddef.h>
#include <stdint.h>

#define HASH_HEX 65 /* digits and NUL */

void hash_to_hex(const uint8_t hash[static 32], char out[static HASH_HEX]);
int hash_from_hex(const char *text, size_t len, uint8_t ret[static 32]); /* -1: not canonical */

#endif
