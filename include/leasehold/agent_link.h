/*
 * The link between leaseinit (pid 1 in the sandbox) and the door: a stream unix socket to which
 * leaseinit connects, over which both send frames. Header-only: leaseinit is static and uses no
 * library of ours.
 *
 *   frame = type (1 byte) · length (4 bytes, big endian) · payload (length bytes)
 *
 * The door treats everything from here as hostile: a frame that is unknown, too long or out of
 * order ends the link. One link at a time; the first HELLO wins and later connections are closed.
 *
 * Transport `stdio`: after HELLO, LINE frames both ways, one line of text each without its line
 * feed. A line of the agent longer than LINK_LINE_MAX arrives as several LINE frames of that
 * length. Backpressure is the socket's: who cannot take more stops reading.
 * Transports with a connection per client get their own frames beside LINE later (OPEN, DATA …).
 */
#ifndef LEASEHOLD_AGENT_LINK_H
#define LEASEHOLD_AGENT_LINK_H

#include <stdint.h>

#define LINK_HEADER   5u
#define LINK_LINE_MAX (1024u * 1024u)
#define LINK_VERSION  1

enum link_frame {
    LINK_HELLO = 1, /* init → door: payload = version (1 byte), transport name ("stdio") */
    LINK_LINE = 2,  /* both ways */
    LINK_EXIT = 3,  /* init → door: payload = exit code (1 byte), signal or 0 (1 byte); last */
};

static inline void link_header_put(uint8_t out[static LINK_HEADER], uint8_t type, uint32_t len)
{
    out[0] = type;
    out[1] = (uint8_t)(len >> 24);
    out[2] = (uint8_t)(len >> 16);
    out[3] = (uint8_t)(len >> 8);
    out[4] = (uint8_t)len;
}

static inline uint32_t link_header_len(const uint8_t in[static LINK_HEADER])
{
    return (uint32_t)in[1] << 24 | (uint32_t)in[2] << 16 | (uint32_t)in[3] << 8 | in[4];
}

#endif
