/* What an agent can give to a tool beside arguments and descriptors; both ends hold to it. */
#ifndef INIT_TOOL_WORDS_H
#define INIT_TOOL_WORDS_H

#include <signal.h>
#include <stddef.h>

/* What ends a tool or asks it to end. STOP and the like are none of the agent's business. */
static const int tool_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
#define TOOL_SIGNALS (sizeof(tool_signals) / sizeof(tool_signals[0]))

/* Nothing of an environment that names what is loaded or run: how things look and no more. */
static const char *const tool_env_names[] = {"LANG", "LC_ALL",  "LC_CTYPE", "TERM",
                                             "TZ",   "COLUMNS", "LINES",    "NO_COLOR"};
#define TOOL_ENV_NAMES     (sizeof(tool_env_names) / sizeof(tool_env_names[0]))
#define TOOL_ENV_VALUE_MAX 64

#endif
