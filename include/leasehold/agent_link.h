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
 *
 * Transports `tcp:PORT`, `unix:PATH` and `ws:PORT/path` have one connection of the agent per client.
 * HELLO comes once the agent accepts connections. For each client the door sends DIAL with a number
 * of its choice on the first link; leaseinit connects to the agent (`ws`: and shakes hands), makes one
 * more connection to AGENT_SOCKET and says CONN with that number there, in one message that carries
 * the agent's connection as a descriptor (SCM_RIGHTS), exactly one; then it is done with both. Or it
 * answers DIAL_FAILED on the first link. From then on door and agent talk without leaseinit: raw
 * bytes (`tcp`, `unix`), or WebSocket frames from the first byte behind the handshake (`ws`), messages
 * of at most LINK_MESSAGE_MAX bytes. CONN counts only from the process that has the first link.
 *
 * Any other process of the sandbox may connect to AGENT_SOCKET, say PUT and wait: a file is stored as an
 * artifact of the session's chat, and PUT_DONE says as which, or why not (lease-artifact).
 */
#ifndef LEASEHOLD_AGENT_LINK_H
#define LEASEHOLD_AGENT_LINK_H

#include <stdint.h>

#define LINK_HEADER   5u
#define LINK_LINE_MAX (1024u * 1024u)
#define LINK_VERSION  2

#define LINK_MESSAGE_MAX (16u * 1024u * 1024u)
#define LINK_PUT_MAX     (4096u + 256u)
#define LINK_DONE_MAX    1024u

enum link_frame {
    LINK_HELLO = 1, /* init → door: payload = version (1 byte), transport name ("stdio") */
    LINK_LINE = 2,  /* both ways */
    LINK_EXIT = 3,  /* init → door: payload = exit code (1 byte), signal or 0 (1 byte); last */
    LINK_DIAL = 4,  /* door → init: payload = number (4 bytes, big endian) */
    LINK_DIAL_FAILED = 5, /* init → door: payload = number */
    LINK_CONN = 6,        /* init → door, alone on a further connection: payload = number */
    LINK_PUT = 7,      /* agent → door, alone on a connection: payload = path, NUL, name or "" */
    LINK_PUT_DONE = 8, /* door → agent: payload = 1 and the artifact's id, or 0 and why not */
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
