/*
 * What an agent asks leasetools for, as hostile words. Held against each input: what is taken points into
 * it, the name is one of a file in a directory, arguments end with NULL, and nothing of an environment is
 * taken that could name a file of the agent's.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../../runtime/init/tool_request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds)
        abort();
}

static void check_env(const char *word)
{
    const char *value = strchr(word, '=');
    require(value != NULL && strlen(value + 1) <= TOOL_ENV_VALUE_MAX);
    require(value[1] != '/' && strstr(value, "..") == NULL);
    require(strncmp(word, "LD_", 3) != 0 && strncmp(word, "PATH", 4) != 0);
}

static void check(const struct tool_request *r, const char *text, size_t len)
{
    require(r->name >= text && r->name < text + len);
    require(r->name[0] != '\0' && r->name[0] != '.' && strchr(r->name, '/') == NULL);
    require(strlen(r->name) <= TOOL_NAME_MAX);
    require(r->cwd == NULL || (r->cwd > text && r->cwd < text + len && r->cwd[0] == '/'));
    require(r->argc >= 1 && r->argc <= TOOL_WORDS_MAX + 1 && r->argv[r->argc] == NULL);
    for (size_t i = 1; i < r->argc; i++)
        require(r->argv[i] > text && r->argv[i] < text + len);
    require(r->env_n <= TOOL_ENV_NAMES);
    for (size_t i = 0; i < r->env_n; i++)
        check_env(r->env[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct tool_request request;
    char *text = malloc(size > 0 ? size : 1);
    require(text != NULL);
    if (size > 0)
        memcpy(text, data, size);
    if (tool_request_parse(&request, text, size) == 0)
        check(&request, text, size);
    free(text);
    return 0;
}
