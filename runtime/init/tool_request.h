/* What lease-tool asks for: leasehold/tool_link.h. */
#ifndef INIT_TOOL_REQUEST_H
#define INIT_TOOL_REQUEST_H

#include <stddef.h>
#include <stdint.h>

#include "leasehold/tool_link.h"
#include "tool_words.h"

struct tool_request {
    const char *name;               /* checked: of a tool, without a slash */
    const char *cwd;                /* NULL: it has none */
    char *argv[TOOL_WORDS_MAX + 2]; /* [0] is left to whoever runs it */
    size_t argc;
    char *env[TOOL_ENV_NAMES]; /* checked; NAME=VALUE */
    size_t env_n;
    int fds[3]; /* close on exec; -1: none */
};

/* Points into `text`, which ends with its last NUL. Pure. -1: not valid. */
int tool_request_parse(struct tool_request *r, char *text, size_t len);

/* Waits for a whole request, not for ever. `text`: TOOL_REQUEST_MAX bytes. -1: there was none. */
int tool_request_receive(struct tool_request *r, int fd, char *text);

#endif
