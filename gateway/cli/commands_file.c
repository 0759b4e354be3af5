/* Options of the commands about files. */
#include "command_opts.h"

#define CHAT_IN_PATH OPERAND("CHAT", "the chat's id")
#define FILE_NAME                                                                                  \
    {                                                                                              \
        .name = "NAME", .kind = OPT_TEXT, .flags = OPT_OPERAND | OPT_REQUIRED,                     \
        .help = "what the file is called in the chat"                                              \
    }

const struct opt_spec file_put_opts[] = {
    CHAT_IN_PATH,
    UPLOAD,
    {.name = "--keep", .kind = OPT_FLAG, .help = "fail if there is a file of that name"},
    {0},
};

const struct opt_spec file_get_opts[] = {
    CHAT_IN_PATH,
    FILE_NAME,
    OUTPUT("where it goes (default: NAME here; -: standard output)"),
    {0},
};

const struct opt_spec file_list_opts[] = {CHAT_IN_PATH, PAGE, {0}};
const struct opt_spec file_name_opts[] = {CHAT_IN_PATH, FILE_NAME, {0}};
const struct opt_spec file_chat_opts[] = {CHAT_IN_PATH, {0}};
const struct opt_spec file_id_opts[] = {OPERAND("ID", "the file's id"), {0}};
