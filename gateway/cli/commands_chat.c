/* Options of the commands about chats, histories, workspaces and the audit trail. */
#include "command_opts.h"

static const char *const message_roles[] = {"user", "agent", "system", "tool", NULL};

const struct opt_spec chat_create_opts[] = {
    {.name = "--user",
     .kind = OPT_UUID,
     .flags = OPT_REQUIRED,
     .member = "user_id",
     .value = "UUID",
     .help = "whose chat it is"},
    {.name = "--chat-id",
     .kind = OPT_UUID,
     .member = "chat_id",
     .value = "UUID",
     .help = "the id it shall have (default: a new one)"},
    {.name = "--title", .kind = OPT_TEXT, .member = "title", .value = "T", .help = "its title"},
    {.name = "--metadata",
     .kind = OPT_OBJECT,
     .member = "metadata",
     .value = "JSON",
     .help = "an object of your own"},
    {0},
};

const struct opt_spec chat_get_opts[] = {OPERAND("ID", "the chat's id"), {0}};

const struct opt_spec chat_list_opts[] = {ONLY("--user", "user_id", "only this user's"), PAGE, {0}};

const struct opt_spec workspace_get_opts[] = {OPERAND("USER", "whose workspace"), {0}};

/* They shape the pages that feed.c asks for. */
#define FEED(last)                                                                                 \
    {.name = "--follow", .kind = OPT_FLAG, .help = "go on with what comes"},                       \
        {.name = "--after",                                                                        \
         .kind = OPT_INT,                                                                          \
         .value = "N",                                                                             \
         .min = 0,                                                                                 \
         .max = INT64_C(1) << 53,                                                                  \
         .help = (last)},                                                                          \
    {                                                                                              \
        .name = "--limit", .kind = OPT_INT, .value = "N", .min = 1, .max = 200,                    \
        .help = "most of them (default: 50; with --follow: end after so many)"                     \
    }

const struct opt_spec history_append_opts[] = {
    OPERAND("CHAT", "the chat's id"),
    {.name = "--role",
     .kind = OPT_TEXT,
     .flags = OPT_REQUIRED,
     .member = "role",
     .value = "ROLE",
     .choices = message_roles,
     .help = "user, agent, system or tool"},
    {.name = "--content",
     .kind = OPT_TEXT,
     .flags = OPT_REQUIRED,
     .member = "content",
     .value = "TEXT",
     .help = "what is said"},
    {.name = "--author", .kind = OPT_TEXT, .member = "author", .value = "NAME", .help = "by whom"},
    {.name = "--at",
     .kind = OPT_TEXT,
     .member = "at",
     .value = "TIME",
     .help = "when it was said, as 2027-01-31T12:00:00Z (default: now)"},
    {.name = "--client-message-id",
     .kind = OPT_TEXT,
     .member = "client_message_id",
     .value = "ID",
     .help = "your own id of it: sent again it is there once"},
    {0},
};

const struct opt_spec history_opts[] = {
    OPERAND("CHAT", "the chat's id"), FEED("only messages with a higher seq"), {0}};

const struct opt_spec audit_opts[] = {
    FEED("only entries with a higher n"),
    {.name = "--actor",
     .kind = OPT_TEXT,
     .member = "actor",
     .value = "WHO",
     .help = "only what this key did, or door:ID, gateway, stranger"},
    {.name = "--object",
     .kind = OPT_TEXT,
     .member = "object",
     .value = "KIND:ID",
     .help = "only what was done to this, as chat:ID"},
    {.name = "--action",
     .kind = OPT_TEXT,
     .member = "action",
     .value = "ACTION",
     .help = "only this, as chat.get"},
    {.name = "--since",
     .kind = OPT_TEXT,
     .member = "since",
     .value = "TIME",
     .help = "only at TIME (2027-01-31T12:00:00Z) or later"},
    {.name = "--until",
     .kind = OPT_TEXT,
     .member = "until",
     .value = "TIME",
     .help = "only before TIME"},
    {0},
};
