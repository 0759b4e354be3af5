/* What the tables of options have in common, and the tables that stand beside commands.c. */
#ifndef CLI_COMMAND_OPTS_H
#define CLI_COMMAND_OPTS_H

#include "command.h"

#define SECOND 1000L
#define QUICK  (30 * SECOND)
/* The gateway's own time for a start is 60 s by default, and 600 s for an image before it. */
#define STARTUP (150 * SECOND)
#define OPENING (720 * SECOND)

#define DAY_S 86400

#define OPERAND(id, about)                                                                         \
    {                                                                                              \
        .name = (id), .kind = OPT_UUID, .flags = OPT_OPERAND | OPT_REQUIRED, .member = "{}",       \
        .help = (about)                                                                            \
    }
#define CHAT_OPERAND                                                                               \
    {                                                                                              \
        .name = "CHAT", .kind = OPT_UUID, .flags = OPT_OPERAND | OPT_REQUIRED,                     \
        .member = "chat_id", .help = "the chat's id"                                               \
    }
#define PROFILE                                                                                    \
    {                                                                                              \
        .name = "--profile", .kind = OPT_TEXT, .member = "profile", .value = "P",                  \
        .help = "profile of the gateway's configuration"                                           \
    }
#define SCOPE(where, with)                                                                         \
    {                                                                                              \
        .name = "--scope", .kind = OPT_WORDS, .member = (where), .value = "SCOPE",                 \
        .needs = (with), .choices = lease_scopes,                                                  \
        .help = "read, write or read,write (default: both)"                                        \
    }
#define TTL(where, with)                                                                           \
    {                                                                                              \
        .name = "--ttl", .kind = OPT_INT, .member = (where), .value = "SECONDS", .needs = (with),  \
        .min = 1, .max = 365 * DAY_S,                                                              \
        .help = "how long the lease lasts, up to what the gateway allows"                          \
    }
#define CONNECTIONS(where, with)                                                                   \
    {                                                                                              \
        .name = "--max-connections", .kind = OPT_INT, .member = (where), .value = "N",             \
        .needs = (with), .min = 1, .max = 1000,                                                    \
        .help = "most connections at once (default: 1), up to what the gateway allows"             \
    }
#define ONCE(where, with)                                                                          \
    {                                                                                              \
        .name = "--once", .kind = OPT_FLAG, .member = (where), .needs = (with), .sends = "once",   \
        .help = "good for one connection, then it ends"                                            \
    }
#define TOKEN_FILE(with)                                                                           \
    {                                                                                              \
        .name = "--token-file", .kind = OPT_SECRET_FILE, .value = "FILE", .needs = (with),         \
        .help = "write the token to FILE, 0600 (replaced if it exists)"                            \
    }
#define REASON                                                                                     \
    {                                                                                              \
        .name = "--reason", .kind = OPT_TEXT, .member = "reason", .value = "R",                    \
        .help = "kept with the lease and in the audit"                                             \
    }

#define IDLE_TTL                                                                                   \
    {                                                                                              \
        .name = "--idle-ttl", .kind = OPT_INT, .member = "idle_ttl_s", .value = "SECONDS",         \
        .min = 1, .max = 365 * DAY_S, .help = "stop the sandbox after so long without use"         \
    }
#define PAGE                                                                                       \
    {.name = "--limit",                                                                            \
     .kind = OPT_INT,                                                                              \
     .member = "limit",                                                                            \
     .value = "N",                                                                                 \
     .min = 1,                                                                                     \
     .max = 200,                                                                                   \
     .help = "most rows (default: 50)"},                                                           \
    {                                                                                              \
        .name = "--cursor", .kind = OPT_TEXT, .member = "cursor", .value = "CURSOR",               \
        .help = "go on where the page before ended"                                                \
    }
#define ONLY(option, id, about)                                                                    \
    {                                                                                              \
        .name = (option), .kind = OPT_UUID, .member = (id), .value = "ID", .help = (about)         \
    }
#define NAME(required)                                                                             \
    {                                                                                              \
        .name = "--name", .kind = OPT_TEXT, .flags = (required), .member = "name",                 \
        .value = "NAME", .help = "what it is for"                                                  \
    }
#define ROLE(required)                                                                             \
    {                                                                                              \
        .name = "--role", .kind = OPT_TEXT, .flags = (required), .member = "role",                 \
        .value = "ROLE", .choices = roles, .help = "admin, bot or viewer"                          \
    }
#define ALLOWED_USER(more)                                                                         \
    {                                                                                              \
        .name = "--allowed-user", .kind = OPT_UUID, .flags = OPT_REPEATED | (more),                \
        .member = "allowed_users", .value = "UUID",                                                \
        .help = "limit it to this user (may be given again)"                                       \
    }
#define DEFAULT_USER(more)                                                                         \
    {                                                                                              \
        .name = "--default-user", .kind = OPT_UUID, .flags = (more), .member = "default_user",     \
        .value = "UUID", .help = "owner of chats that 'sandbox create' makes"                      \
    }
#define EXPIRES(more)                                                                              \
    {                                                                                              \
        .name = "--expires", .kind = OPT_TEXT, .flags = (more), .member = "expires_at",            \
        .value = "TIME", .help = "when it ends, as 2027-01-31T12:00:00Z"                           \
    }

/* Of what goes up, and of what comes down. */
#define UPLOAD                                                                                     \
    {.name = "FILE",                                                                               \
     .kind = OPT_TEXT,                                                                             \
     .flags = OPT_OPERAND | OPT_REQUIRED,                                                          \
     .help = "what to put"},                                                                       \
        {.name = "--name",                                                                         \
         .kind = OPT_TEXT,                                                                         \
         .value = "NAME",                                                                          \
         .help = "what it is to be called (default: as FILE is)"},                                 \
    {                                                                                              \
        .name = "--type", .kind = OPT_TEXT, .value = "TYPE",                                       \
        .help = "its content type (default: by the name's ending)"                                 \
    }
#define OUTPUT(about)                                                                              \
    {                                                                                              \
        .name = "--output", .kind = OPT_TEXT, .value = "FILE", .help = (about)                     \
    }

/* commands_chat.c */
extern const struct opt_spec chat_create_opts[], chat_get_opts[], chat_list_opts[];
extern const struct opt_spec workspace_get_opts[];
extern const struct opt_spec history_append_opts[], history_opts[];
extern const struct opt_spec audit_opts[];

/* commands_file.c */
extern const struct opt_spec file_put_opts[], file_get_opts[], file_list_opts[], file_name_opts[],
    file_chat_opts[], file_id_opts[];

/* commands_lease.c */
extern const char *const lease_scopes[];
extern const struct opt_spec lease_grant_opts[], lease_get_opts[], lease_list_opts[],
    lease_renew_opts[], lease_revoke_opts[];

/* commands_artifact.c */
extern const struct opt_spec artifact_put_opts[], artifact_get_opts[], artifact_list_opts[],
    artifact_id_opts[], artifact_ack_opts[];

#endif
