/*
 * How a user's scripts and dynamic programs are run for an agent that must not read them (docs/adr/0010).
 * They are run by leasetools, pid 1 of a second sandbox of the session under a uid of its own. In the
 * agent's sandbox lease-tool stands in the place of each of them: the directory of tools that it sees has a
 * link a tool, to lease-tool or to the static one itself in TOOL_STATIC beside it. (A mount for each would tell
 * their names, and an agent may not list them.) Header-only: both are static and use no
 * library of ours.
 *
 * lease-tool connects to TOOL_SOCKET, one connection a run, and sends
 *   length (4 bytes, big endian; with it, by SCM_RIGHTS, exactly three descriptors: 0, 1 and 2 of the tool)
 *   words, TOOL_REQUEST_MAX bytes at most: a tag (enum tool_word), text, NUL
 * and then, while the tool runs, a byte for each signal that it gets (tool_signals). Its end is the end of
 * the tool and of all that the tool has started. leasetools answers one of enum tool_answer and closes.
 *
 * What comes from there is hostile to leasetools; what leasetools does is recorded at TOOL_RUNS, where the
 * gateway reads it: records of TOOL_RECORD bytes, appended. The first one says that leasetools is ready. It
 * begins to serve when the gateway has made file and directory of the socket its own: from then on nothing
 * that runs below leasetools can open them for writing.
 *
 * Where the supervisor can start leasetools again, should it be killed (keep_tools.c), TOOL_AGAIN is there. Each
 * one that is started says with a record of its own that it is ready: of what stands before it nothing runs.
 */
#ifndef LEASEHOLD_TOOL_LINK_H
#define LEASEHOLD_TOOL_LINK_H

#include <stdint.h>

#include "leasehold/keep_spec.h"

#define TOOL_DIR     BOX_DIR "/tools"
#define TOOL_SOCKET  TOOL_DIR "/sock"
#define TOOL_AGAIN   TOOL_DIR "/again"
#define TOOL_RUNS    BOX_DIR "/runs"
#define TOOL_RUNNER  "leasetools"
#define TOOL_CLIENT  "lease-tool"
#define TOOL_STATIC  ".static" /* behind the path of the directory of tools */
#define TOOL_DIR_BOX "tools"   /* its name in the box of the agent */

#define TOOL_REQUEST_MAX (256u * 1024)
#define TOOL_WORDS_MAX   4096u
#define TOOL_NAME_MAX    99u
#define TOOL_RUNS_MAX    (4 * 1024 * 1024) /* bytes on the disk that wait for the gateway */

enum tool_word {
    TOOL_WORD_NAME = 'n',
    TOOL_WORD_CWD = 'c',
    TOOL_WORD_ARG = 'a', /* each but the name */
    TOOL_WORD_ENV = 'e', /* NAME=VALUE, of a few names (tool_request.c) */
};

enum tool_answer {
    TOOL_ENDED = 'e',   /* code (1 byte), signal or 0 (1 byte) */
    TOOL_REFUSED = 'n', /* code (1 byte), text */
    TOOL_OVERDUE = 't', /* its time was over */
};

#define TOOL_ANSWER_MAX 256u

enum tool_record_what { TOOL_IS_READY = 1, TOOL_BEGUN, TOOL_OVER };

/* TOOL_CUT: what ran it was killed, and all that it had started with it. */
enum tool_how {
    TOOL_OK,
    TOOL_FAILED,
    TOOL_SIGNALED,
    TOOL_TIMED_OUT,
    TOOL_LEFT,
    TOOL_CUT,
    TOOL_HOWS
};

#define TOOL_RECORD 128u

struct tool_record {
    int64_t at_ms; /* wall clock */
    uint8_t what;  /* enum tool_record_what */
    uint8_t how;   /* of TOOL_OVER, as all below but the name: enum tool_how … */
    uint8_t code;  /* … exit status of TOOL_OK and TOOL_FAILED … */
    uint8_t sig;   /* … of TOOL_SIGNALED */
    uint8_t zero[4];
    char name[TOOL_RECORD - 24]; /* NUL-terminated */
    int64_t begun_ms;            /* at_ms of its TOOL_BEGUN; 0: written by an earlier version */
};

_Static_assert(sizeof(struct tool_record) == TOOL_RECORD, "records are of one size");
_Static_assert(sizeof(((struct tool_record *)0)->name) > TOOL_NAME_MAX, "a name is told whole");

#endif
