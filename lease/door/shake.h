/* The proof of RFC 6455, 4.2.2 that a request for a WebSocket was read. Pure. */
#ifndef LEASEHOLD_DOOR_SHAKE_H
#define LEASEHOLD_DOOR_SHAKE_H

#define SHAKE_KEY_BYTES   16
#define SHAKE_KEY_TEXT    24 /* those in base64 */
#define SHAKE_ACCEPT_TEXT 28

/* Of Sec-WebSocket-Key; writes a NUL behind. */
void shake_accept(const char key[static SHAKE_KEY_TEXT], char ret[static SHAKE_ACCEPT_TEXT + 1]);

#endif
