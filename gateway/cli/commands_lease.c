/* Options of the commands about leases, and how one of them picks its request. */
#include <string.h>

#include "command_opts.h"

const char *const lease_scopes[] = {"read", "write", NULL};

static const char *const lease_states[] = {"pending",     "active", "revoking", "expiring",
                                           "unconfirmed", "closed", NULL};

const struct opt_spec lease_grant_opts[] = {
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
    ONCE("use", NULL),
    TOKEN_FILE(NULL),
    {0},
};

const struct opt_spec lease_get_opts[] = {OPERAND("ID", "the lease's id"), {0}};

const struct opt_spec lease_list_opts[] = {
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

const struct opt_spec lease_renew_opts[] = {
    OPERAND("ID", "the lease's id"), TTL("ttl_s", NULL), TOKEN_FILE(NULL), {0}};

const struct opt_spec lease_revoke_opts[] = {
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
    {.name = "--chat",
     .kind = OPT_UUID,
     .flags = OPT_ONE_OF,
     .member = "selector/chat_id",
     .value = "ID",
     .help = "all leases of this chat"},
    {.name = "--user",
     .kind = OPT_UUID,
     .flags = OPT_ONE_OF,
     .member = "selector/user_id",
     .value = "ID",
     .help = "all leases that this user holds"},
    {.name = "--key",
     .kind = OPT_UUID,
     .flags = OPT_ONE_OF,
     .member = "selector/api_key_id",
     .value = "ID",
     .help = "all leases that this API key has issued"},
    {.name = "--kid",
     .kind = OPT_TEXT,
     .flags = OPT_ONE_OF,
     .member = "selector/kid",
     .value = "KID",
     .help = "all leases that this signing key has signed ('key signing' lists them)"},
    {.name = "--all",
     .kind = OPT_FLAG,
     .flags = OPT_ONE_OF,
     .member = "selector/all",
     .help = "all leases there are"},
    {.name = "--dry-run",
     .kind = OPT_FLAG,
     .member = "dry_run",
     .help = "tell how many it would be, and revoke none"},
    {.name = "--expected-count",
     .kind = OPT_INT,
     .member = "expected_count",
     .value = "N",
     .min = 0,
     .max = INT64_C(1) << 53,
     .help = "revoke none if it is not so many"},
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

/* The id of one lease as the selector names it. */
static const struct opt_spec selected_lease = {
    .name = "ID", .kind = OPT_UUID, .member = "selector/lease_id"};

bool revoke_selects(const struct options *o)
{
    return !options_has(o, "ID") || options_has(o, "--dry-run") ||
           options_has(o, "--expected-count");
}

int revoke_run(const struct cli *cli, const struct command *cmd, const struct options *o)
{
    struct options selecting = *o;
    if (!revoke_selects(o)) {
        return rest_run_at(cli, cmd, o, "DELETE", "/leases/{}");
    }
    for (size_t i = 0; i < o->n; i++) {
        if (strcmp(o->values[i].spec->name, "ID") == 0) {
            selecting.values[i].spec = &selected_lease;
        }
    }
    int code = rest_run_at(cli, cmd, &selecting, "POST", "/leases/revoke");
    /* That another number matches may be for the reason that nothing has this name. */
    if (code == EXIT_FAILED && options_has(o, "--expected-count")) {
        return revoke_look(cli, o) == EXIT_NOT_FOUND ? EXIT_NOT_FOUND : code;
    }
    return code;
}
