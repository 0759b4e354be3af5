#include "command.h"

#include "views.h"

#define SECOND  1000L
#define QUICK   (30 * SECOND)
#define STARTUP (150 * SECOND) /* the gateway's own start timeout is 60 s by default */

#define DAY_S 86400

static const char *const scopes[] = {"read", "write", NULL};
static const char *const roles[] = {"admin", "bot", "viewer", NULL};
static const char *const statuses[] = {"starting", "running", "stopping",
                                       "stopped",  "failed",  NULL};
static const char *const lease_states[] = {"pending",     "active", "revoking", "expiring",
                                           "unconfirmed", "closed", NULL};

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
        .needs = (with), .choices = scopes, .help = "read, write or read,write (default: both)"    \
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
#define ALLOWED_USER                                                                               \
    {                                                                                              \
        .name = "--allowed-user", .kind = OPT_UUID, .flags = OPT_REPEATED,                         \
        .member = "allowed_users", .value = "UUID",                                                \
        .help = "limit it to this user (may be given again)"                                       \
    }
#define DEFAULT_USER                                                                               \
    {                                                                                              \
        .name = "--default-user", .kind = OPT_UUID, .member = "default_user", .value = "UUID",     \
        .help = "owner of chats that 'sandbox create' makes"                                       \
    }
#define EXPIRES                                                                                    \
    {                                                                                              \
        .name = "--expires", .kind = OPT_TEXT, .member = "expires_at", .value = "TIME",            \
        .help = "when it ends, as 2027-01-31T12:00:00Z"                                            \
    }

static const struct opt_spec no_opts[] = {{0}};

static const struct opt_spec chat_create_opts[] = {
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

static const struct opt_spec chat_get_opts[] = {OPERAND("ID", "the chat's id"), {0}};

static const struct opt_spec chat_list_opts[] = {
    ONLY("--user", "user_id", "only this user's"), PAGE, {0}};

static const struct opt_spec workspace_get_opts[] = {OPERAND("USER", "whose workspace"), {0}};

static const struct opt_spec sandbox_create_opts[] = {CHAT_OPERAND, {0}};

static const struct opt_spec sandbox_open_opts[] = {
    CHAT_OPERAND,
    PROFILE,
    IDLE_TTL,
    {.name = "--env-file",
     .kind = OPT_ENV_FILE,
     .value = "FILE",
     .help = "file of NAME=VALUE lines for the agent's environment, if a sandbox is started"},
    {.name = "--no-wait",
     .kind = OPT_FLAG,
     .flags = OPT_NEGATED,
     .member = "wait",
     .help = "do not wait until the sandbox is ready"},
    {.name = "--lease",
     .kind = OPT_FLAG,
     .member = "lease/",
     .help = "ask for a lease in the same call"},
    SCOPE("lease/scope", "--lease"),
    TTL("lease/ttl_s", "--lease"),
    CONNECTIONS("lease/max_connections", "--lease"),
    TOKEN_FILE("--lease"),
    {0},
};

static const struct opt_spec sandbox_get_opts[] = {OPERAND("ID", "the session's id"), {0}};

static const struct opt_spec sandbox_list_opts[] = {
    ONLY("--chat", "chat_id", "only this chat's"),
    ONLY("--user", "user_id", "only this user's"),
    {.name = "--status",
     .kind = OPT_TEXT,
     .member = "status",
     .value = "STATUS",
     .choices = statuses,
     .help = "starting, running, stopping, stopped or failed"},
    PAGE,
    {0},
};

static const struct opt_spec sandbox_renew_opts[] = {
    OPERAND("ID", "the session's id"), IDLE_TTL, {0}};

static const struct opt_spec sandbox_logs_opts[] = {
    OPERAND("ID", "the session's id"),
    {.name = "--follow",
     .kind = OPT_FLAG,
     .member = "follow",
     .help = "go on until the sandbox has ended"},
    {.name = "--tail",
     .kind = OPT_INT,
     .member = "tail",
     .value = "LINES",
     .min = 0,
     .max = 1000000,
     .help = "begin so many lines before the end (default: with the oldest that is kept)"},
    {.name = "--since",
     .kind = OPT_TEXT,
     .member = "since",
     .value = "TIME",
     .help = "only what was said at TIME (2026-01-31T12:00:00Z) or later"},
    {0},
};

static const struct opt_spec sandbox_stop_opts[] = {
    OPERAND("ID", "the session's id"),
    REASON,
    {.name = "--grace",
     .kind = OPT_INT,
     .member = "grace_s",
     .value = "SECONDS",
     .min = 0,
     .max = DAY_S,
     .help = "how long the agent may take to end"},
    {0},
};

static const struct opt_spec lease_grant_opts[] = {
    {.name = "--session",
     .kind = OPT_UUID,
     .flags = OPT_ONE_OF,
     .member = "session_id",
     .value = "ID",
     .help = "for this running sandbox"},
    {.name = "--chat",
     .kind = OPT_UUID,
     .flags = OPT_ONE_OF,
     .member = "chat_id",
     .value = "ID",
     .help = "for the running sandbox of this chat"},
    {.name = "--user",
     .kind = OPT_UUID,
     .member = "user_id",
     .value = "UUID",
     .help = "who shall hold it (default: the chat's owner)"},
    SCOPE("scope", NULL),
    TTL("ttl_s", NULL),
    CONNECTIONS("max_connections", NULL),
    TOKEN_FILE(NULL),
    {0},
};

static const struct opt_spec lease_get_opts[] = {OPERAND("ID", "the lease's id"), {0}};

static const struct opt_spec lease_list_opts[] = {
    ONLY("--session", "session_id", "only of this sandbox"),
    ONLY("--chat", "chat_id", "only of this chat"),
    ONLY("--user", "user_id", "only this user's"),
    {.name = "--state",
     .kind = OPT_TEXT,
     .member = "state",
     .value = "STATE",
     .choices = lease_states,
     .help = "pending, active, revoking, expiring, unconfirmed or closed"},
    PAGE,
    {0},
};

static const struct opt_spec lease_renew_opts[] = {
    OPERAND("ID", "the lease's id"), TTL("ttl_s", NULL), TOKEN_FILE(NULL), {0}};

static const struct opt_spec lease_revoke_opts[] = {
    {.name = "ID",
     .kind = OPT_UUID,
     .flags = OPT_OPERAND | OPT_ONE_OF,
     .member = "{}",
     .help = "the lease's id"},
    {.name = "--session",
     .kind = OPT_UUID,
     .flags = OPT_ONE_OF,
     .member = "selector/session_id",
     .value = "ID",
     .help = "all leases of this sandbox"},
    REASON,
    {.name = "--wait",
     .kind = OPT_INT,
     .member = "wait_ms",
     .value = "MS",
     .min = 0,
     .max = 10000,
     .help = "wait so long for the doors to confirm"},
    {0},
};

static const struct opt_spec key_create_opts[] = {
    NAME(OPT_REQUIRED),
    ROLE(OPT_REQUIRED),
    ALLOWED_USER,
    DEFAULT_USER,
    EXPIRES,
    {.name = "--out",
     .kind = OPT_SECRET_FILE,
     .value = "FILE",
     .help = "write the key to FILE, 0600, a new one, instead of showing it"},
    {0},
};

static const struct opt_spec key_list_opts[] = {PAGE, {0}};

static const struct opt_spec key_update_opts[] = {
    OPERAND("ID", "the key's id"), NAME(0), ROLE(0), ALLOWED_USER, DEFAULT_USER, EXPIRES, {0}};

static const struct opt_spec key_revoke_opts[] = {OPERAND("ID", "the key's id"), {0}};

static const struct opt_spec key_rotate_opts[] = {{0}};

static const struct opt_spec key_kill_opts[] = {
    {.name = "KID",
     .kind = OPT_TEXT,
     .flags = OPT_OPERAND | OPT_REQUIRED,
     .member = "{}",
     .help = "the signing key's id"},
    {0},
};

static const struct opt_spec connect_opts[] = {
    CHAT_OPERAND,
    PROFILE,
    SCOPE("lease/scope", NULL),
    TTL("lease/ttl_s", NULL),
    {.name = "--linger",
     .kind = OPT_INT,
     .value = "MS",
     .min = 0,
     .max = DAY_S * SECOND,
     .help = "at the end of stdin wait until no answer came for so long (default: 500)"},
    {.name = "--retry",
     .kind = OPT_INT,
     .value = "SECONDS",
     .min = 0,
     .max = DAY_S,
     .help = "try so long to connect again when the door or the gateway is away (default: 60)"},
    {0},
};

static const char connect_notes[] =
    "Opens (or finds) the chat's sandbox and a lease in one call and connects straight to the\n"
    "sandbox's door. Each line of stdin goes out as one message, each message comes to stdout as\n"
    "a line; binary messages are written as they are. On a terminal control characters are shown\n"
    "as '?'. The lease is renewed in good time and given back at the end. When the door is away\n"
    "for a moment, or the connection is lost, leasectl connects again with a new lease. When the\n"
    "session has failed meanwhile, it opens the chat's sandbox again; one that was stopped, or "
    "ran\n"
    "out of its time, is left ended. Lines that were not sent at the end are counted on stderr.\n"
    "With --json, what happens is told on stderr, one JSON object a line: ready, renewed,\n"
    "renew_failed, reconnecting, reopening, closed, error, unsent.\n"
    "\n"
    "Exit codes: 0 end of stdin, or the agent ended (close code 4411); 3 no such chat; 4 lease\n"
    "revoked (4403), refused or expired (4401), or not allowed to write (4430); 5 the gateway or\n"
    "the door cannot be reached; 1 anything else.\n";

const struct command commands[] = {
    {.name = "health",
     .summary = "Ask whether the gateway is there.",
     .opts = no_opts,
     .method = "GET",
     .path = "/health",
     .view = &view_health,
     .timeout_ms = 10 * SECOND,
     .keyless = true,
     .run = rest_run},
    {.name = "chat create",
     .summary = "Make a chat.",
     .opts = chat_create_opts,
     .method = "POST",
     .path = "/chats",
     .view = &view_chat,
     .timeout_ms = QUICK,
     .run = rest_run},
    {.name = "chat get",
     .summary = "Show a chat.",
     .opts = chat_get_opts,
     .method = "GET",
     .path = "/chats/{}",
     .view = &view_chat,
     .timeout_ms = QUICK,
     .run = rest_run},
    {.name = "chat ls",
     .summary = "List chats, oldest first.",
     .opts = chat_list_opts,
     .method = "GET",
     .path = "/chats",
     .view = &view_chats,
     .timeout_ms = QUICK,
     .run = rest_run},
    {.name = "chat rm",
     .summary = "Delete a chat with its files and history.",
     .notes = "Refused while its sandbox is active: stop that first.\n",
     .opts = chat_get_opts,
     .method = "DELETE",
     .path = "/chats/{}",
     .timeout_ms = QUICK,
     .run = rest_run},
    {.name = "workspace get",
     .summary = "Show what a user's chats hold and may hold.",
     .opts = workspace_get_opts,
     .method = "GET",
     .path = "/users/{}/workspace",
     .view = &view_workspace,
     .timeout_ms = QUICK,
     .run = rest_run},
    {.name = "sandbox create",
     .summary = "Start or find the sandbox of a chat; an unknown chat is made.",
     .opts = sandbox_create_opts,
     .method = "POST",
     .path = "/create",
     .view = &view_created,
     .timeout_ms = STARTUP,
     .run = rest_run},
    {.name = "sandbox open",
     .summary = "Start or find the sandbox of a chat, on request with a lease.",
     .notes =
         "The token of the lease is shown only with --json. In an --env-file blank lines and\n"
         "lines that begin with '#' are skipped; all behind the first '=' is the value. It is\n"
         "refused when the chat's sandbox runs already. With --no-wait 'sandbox get' tells how\n"
         "the start goes; a lease cannot be had in the same call then.\n",
     .opts = sandbox_open_opts,
     .method = "POST",
     .path = "/sandboxes",
     .view = &view_opened,
     .timeout_ms = STARTUP,
     .run = rest_run},
    {.name = "sandbox get",
     .summary = "Show a sandbox.",
     .opts = sandbox_get_opts,
     .method = "GET",
     .path = "/sandboxes/{}",
     .view = &view_sandbox,
     .timeout_ms = QUICK,
     .run = rest_run},
    {.name = "sandbox ls",
     .summary = "List sandboxes, live and ended, oldest first.",
     .opts = sandbox_list_opts,
     .method = "GET",
     .path = "/sandboxes",
     .view = &view_sandboxes,
     .timeout_ms = QUICK,
     .run = rest_run},
    {.name = "sandbox renew",
     .summary = "Start the idle time of a running sandbox anew.",
     .opts = sandbox_renew_opts,
     .method = "POST",
     .path = "/sandboxes/{}/renew",
     .view = &view_sandbox,
     .timeout_ms = QUICK,
     .run = rest_run},
    {.name = "sandbox logs",
     .summary = "Show what the agent of a running sandbox says on its standard error.",
     .notes = "On a terminal, control characters are shown as \"?\".\n",
     .opts = sandbox_logs_opts,
     .method = "GET",
     .path = "/sandboxes/{}/logs",
     .run = logs_run},
    {.name = "sandbox stop",
     .summary = "Stop a sandbox; its leases end.",
     .opts = sandbox_stop_opts,
     .method = "POST",
     .path = "/sandboxes/{}/stop",
     .view = &view_sandbox,
     .timeout_ms = STARTUP,
     .run = rest_run},
    {.name = "lease grant",
     .summary = "Ask for a lease of a running sandbox.",
     .notes = "The token is shown only with --json.\n",
     .opts = lease_grant_opts,
     .method = "POST",
     .path = "/leases",
     .view = &view_grant,
     .timeout_ms = QUICK,
     .run = rest_run},
    {.name = "lease get",
     .summary = "Show a lease.",
     .opts = lease_get_opts,
     .method = "GET",
     .path = "/leases/{}",
     .view = &view_lease,
     .timeout_ms = QUICK,
     .run = rest_run},
    {.name = "lease ls",
     .summary = "List leases, open and ended, oldest first.",
     .opts = lease_list_opts,
     .method = "GET",
     .path = "/leases",
     .view = &view_leases,
     .timeout_ms = QUICK,
     .run = rest_run},
    {.name = "lease renew",
     .summary = "Prolong a lease; connections under it stay up.",
     .notes = "The new token is shown only with --json.\n",
     .opts = lease_renew_opts,
     .method = "POST",
     .path = "/leases/{}/renew",
     .view = &view_grant,
     .timeout_ms = QUICK,
     .run = rest_run},
    {.name = "lease revoke",
     .summary = "Withdraw leases; live connections under them are cut.",
     .notes =
         "Without --wait the answer comes once the revocation is durable. With it, each door\n"
         "is listed with the connections it cut and the time that took; exit code 1 says that\n"
         "a door has not confirmed yet.\n",
     .opts = lease_revoke_opts,
     .view = &view_revocation,
     .timeout_ms = QUICK,
     .run = revoke_run},
    {.name = "key create",
     .summary = "Make an API key; it is shown this once.",
     .opts = key_create_opts,
     .method = "POST",
     .path = "/api-keys",
     .view = &view_created_key,
     .timeout_ms = QUICK,
     .run = rest_run},
    {.name = "key ls",
     .summary = "List API keys, oldest first.",
     .opts = key_list_opts,
     .method = "GET",
     .path = "/api-keys",
     .view = &view_api_keys,
     .timeout_ms = QUICK,
     .run = rest_run},
    {.name = "key update",
     .summary = "Change what an API key may.",
     .notes = "Users that are given replace the ones before. Leases that the key may not have "
              "issued any\n"
              "more end, and live connections under them are cut.\n",
     .opts = key_update_opts,
     .method = "PATCH",
     .path = "/api-keys/{}",
     .view = &view_api_key,
     .timeout_ms = QUICK,
     .run = rest_run},
    {.name = "key revoke",
     .summary = "End an API key; leases that it issued end too.",
     .opts = key_revoke_opts,
     .method = "DELETE",
     .path = "/api-keys/{}",
     .timeout_ms = QUICK,
     .run = rest_run},
    {.name = "key rotate",
     .summary = "Sign leases with the next key from now on.",
     .opts = key_rotate_opts,
     .method = "POST",
     .path = "/keys/rotate",
     .view = &view_signing_keys,
     .timeout_ms = QUICK,
     .run = rest_run},
    {.name = "key kill",
     .summary = "End a signing key everywhere, and the leases that it signed.",
     .opts = key_kill_opts,
     .method = "POST",
     .path = "/keys/{}/kill",
     .view = &view_killed_key,
     .timeout_ms = QUICK,
     .run = rest_run},
    {.name = "connect",
     .summary = "Talk to the agent of a chat.",
     .notes = connect_notes,
     .opts = connect_opts,
     .method = "POST",
     .path = "/sandboxes",
     .timeout_ms = STARTUP,
     .run = connect_run},
    {0},
};
