/* The part of the JSON checker that reads numbers outside JSON: query strings, YAML, environment.
 */
#ifndef LEASEHOLD_BASE_JSON_SCAN_H
#define LEASEHOLD_BASE_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>

#define JSON_NUMBER_MAX 63 /* characters; cJSON cuts longer ones */

/* The length of the JSON number that s starts with, 0 if it starts with none. Whether it has
 * neither fraction nor exponent goes to *ret_integer. */
size_t json_number_len(const char *s, size_t len, bool *ret_integer);

/* Does a double hold the integer written at s, so that 2^53 + 1 does not silently become 2^53? */
bool json_integer_is_exact(const char *s, size_t len);

/* The value of a number so found, at most JSON_NUMBER_MAX characters long. */
double json_number_value(const char *s, size_t len);

#endif
