/* The opening handshake of RFC 6455, client's side. Pure functions; the answer is hostile. */
#ifndef INIT_WS_SHAKE_H
#define INIT_WS_SHAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WSC_NONCE       16u
#define WSC_KEY_TEXT    25u /* base64 of the nonce, and NUL */
#define WSC_ACCEPT_TEXT 29u /* base64 of a SHA-1, and NUL */
#define WSC_ANSWER_MAX  8192u
#define WSC_REQUEST_MAX 1024u

/* The key, and what the answer must make of it. */
void wsc_key_make(const uint8_t nonce[static WSC_NONCE], char ret_key[static WSC_KEY_TEXT],
                  char ret_accept[static WSC_ACCEPT_TEXT]);

/* Writes the request. Returns its length, 0 when it does not fit. */
size_t wsc_request_put(char *out, size_t size, const char *host, const char *path, const char *key);

/* The length of the answer's head with its empty line; 0: not complete; -1: too long. */
long wsc_answer_end(const uint8_t *in, size_t len);

/* Does this head accept our upgrade, and nothing that we did not offer? */
bool wsc_answer_accepts(const uint8_t *head, size_t len, const char *accept);

#endif
