#include "views.h"

#include "api.h"
#include "command.h"

#define PEM_MAX     65536
#define CONTENT_MAX (4 * 1024 * 1024)

struct health_view {
    char *status, *name, *version, *env;
};

static const struct field health_fields[] = {
    FIELD_STR(struct health_view, status, .flags = FIELD_REQUIRED),
    FIELD_STR(struct health_view, name),
    FIELD_STR(struct health_view, version),
    FIELD_STR(struct health_view, env),
    {0},
};
const struct view view_health = {.fields = health_fields, .size = sizeof(struct health_view)};

struct chat_view {
    char *chat_id, *user_id, *workspace_id, *title, *metadata, *created_at, *updated_at;
};

static const struct field chat_fields[] = {
    FIELD_STR(struct chat_view, chat_id, .flags = FIELD_REQUIRED),
    FIELD_STR(struct chat_view, user_id),
    FIELD_STR(struct chat_view, workspace_id),
    FIELD_STR(struct chat_view, title),
    FIELD_RAW(struct chat_view, metadata, .max = 65536),
    FIELD_STR(struct chat_view, created_at),
    FIELD_STR(struct chat_view, updated_at),
    {0},
};
static const struct field chat_columns[] = {
    FIELD_STR(struct chat_view, chat_id),
    FIELD_STR(struct chat_view, user_id),
    FIELD_STR(struct chat_view, created_at),
    FIELD_STR(struct chat_view, title),
    {0},
};
static const struct field chats_fields[] = {PAGE_FIELDS(chat_fields, struct chat_view), {0}};
const struct view view_chats = PAGE_VIEW(chats_fields, chat_columns);
const struct view view_chat = {.fields = chat_fields, .size = sizeof(struct chat_view)};

struct workspace_view {
    char *workspace_id, *user_id, *created_at;
    int64_t used_bytes, quota_bytes, chats;
    bool over_quota;
};

static const struct field workspace_fields[] = {
    FIELD_STR(struct workspace_view, workspace_id, .flags = FIELD_REQUIRED),
    FIELD_STR(struct workspace_view, user_id),
    FIELD_STR(struct workspace_view, created_at),
    FIELD_INT(struct workspace_view, used_bytes),
    FIELD_INT(struct workspace_view, quota_bytes),
    FIELD_BOOL(struct workspace_view, over_quota),
    FIELD_INT(struct workspace_view, chats),
    {0},
};
const struct view view_workspace = {.fields = workspace_fields,
                                    .size = sizeof(struct workspace_view)};

static const struct field file_fields[] = {
    FIELD_STR(struct file_view, file_id, .flags = FIELD_REQUIRED),
    FIELD_STR(struct file_view, chat_id),
    FIELD_STR(struct file_view, name),
    FIELD_STR(struct file_view, content_type),
    FIELD_INT(struct file_view, size_bytes),
    FIELD_STR(struct file_view, sha256),
    FIELD_STR(struct file_view, created_at),
    FIELD_STR(struct file_view, last_read_at),
    FIELD_STR(struct file_view, last_update_at),
    FIELD_STR(struct file_view, expires_at),
    {0},
};
const struct view view_file = {.fields = file_fields, .size = sizeof(struct file_view)};

static const struct field file_columns[] = {
    FIELD_STR(struct file_view, file_id),
    FIELD_INT(struct file_view, size_bytes),
    FIELD_STR(struct file_view, last_update_at),
    FIELD_STR(struct file_view, name),
    {0},
};
static const struct field files_fields[] = {PAGE_FIELDS(file_fields, struct file_view), {0}};
const struct view view_files = PAGE_VIEW(files_fields, file_columns);

struct cleared_view {
    int64_t deleted;
};
static const struct field cleared_fields[] = {
    FIELD_INT(struct cleared_view, deleted, .flags = FIELD_REQUIRED), {0}};
const struct view view_cleared = {.fields = cleared_fields, .size = sizeof(struct cleared_view)};

static const struct field created_fields[] = {
    FIELD_STR(struct sandbox_view, session_id, .flags = FIELD_REQUIRED),
    FIELD_STR(struct sandbox_view, chat_id),
    FIELD_STR(struct sandbox_view, container_id),
    FIELD_STR(struct sandbox_view, status),
    FIELD_STR(struct sandbox_view, expires_at),
    {0},
};
const struct view view_created = {.fields = created_fields, .size = sizeof(struct sandbox_view)};

const struct field image_fields[] = {
    FIELD_STR(struct image_view, image),       FIELD_INT(struct image_view, layers),
    FIELD_INT(struct image_view, layers_done), FIELD_INT(struct image_view, bytes),
    FIELD_INT(struct image_view, bytes_done),  {0},
};

static const struct field sandbox_fields[] = {
    FIELD_STR(struct sandbox_view, session_id, .flags = FIELD_REQUIRED),
    FIELD_STR(struct sandbox_view, chat_id),
    FIELD_STR(struct sandbox_view, user_id),
    FIELD_STR(struct sandbox_view, container_id),
    FIELD_STR(struct sandbox_view, engine),
    FIELD_STR(struct sandbox_view, node),
    FIELD_STR(struct sandbox_view, profile),
    FIELD_INT(struct sandbox_view, generation),
    FIELD_STR(struct sandbox_view, status),
    FIELD_STR(struct sandbox_view, reason),
    FIELD_STR(struct sandbox_view, detail),
    FIELD_STR(struct sandbox_view, created_at),
    FIELD_STR(struct sandbox_view, started_at),
    FIELD_STR(struct sandbox_view, last_activity_at),
    FIELD_STR(struct sandbox_view, expires_at),
    FIELD_OBJPTR(struct sandbox_view, progress, image_fields, struct image_view),
    {0},
};
const struct view view_sandbox = {.fields = sandbox_fields, .size = sizeof(struct sandbox_view)};

static const struct field sandbox_columns[] = {
    FIELD_STR(struct sandbox_view, session_id),
    FIELD_STR(struct sandbox_view, chat_id),
    FIELD_STR(struct sandbox_view, status),
    FIELD_STR(struct sandbox_view, created_at),
    FIELD_STR(struct sandbox_view, expires_at),
    FIELD_STR(struct sandbox_view, reason),
    {0},
};
static const struct field sandboxes_fields[] = {PAGE_FIELDS(sandbox_fields, struct sandbox_view),
                                                {0}};
const struct view view_sandboxes = PAGE_VIEW(sandboxes_fields, sandbox_columns);

static const struct field lease_fields[] = {
    FIELD_STR(struct lease_view, lease_id, .flags = FIELD_REQUIRED),
    FIELD_STR(struct lease_view, session_id),
    FIELD_STR(struct lease_view, chat_id),
    FIELD_STR(struct lease_view, user_id),
    FIELD_STRLIST(struct lease_view, scope),
    FIELD_STR(struct lease_view, use),
    FIELD_INT(struct lease_view, max_connections),
    FIELD_STR(struct lease_view, state),
    FIELD_TIME(struct lease_view, issued_at),
    FIELD_TIME(struct lease_view, expires_at),
    FIELD_TIME(struct lease_view, max_expires_at),
    FIELD_STR(struct lease_view, revoked_at),
    FIELD_STR(struct lease_view, revoked_reason),
    FIELD_INT(struct lease_view, connections),
    {0},
};
const struct view view_lease = {.fields = lease_fields, .size = sizeof(struct lease_view)};

static const struct field lease_columns[] = {
    FIELD_STR(struct lease_view, lease_id),       FIELD_STR(struct lease_view, session_id),
    FIELD_STR(struct lease_view, state),          FIELD_INT(struct lease_view, connections),
    FIELD_TIME(struct lease_view, issued_at),     FIELD_TIME(struct lease_view, expires_at),
    FIELD_STR(struct lease_view, revoked_reason), {0},
};
static const struct field leases_fields[] = {PAGE_FIELDS(lease_fields, struct lease_view), {0}};
const struct view view_leases = PAGE_VIEW(leases_fields, lease_columns);

static const struct field endpoint_fields[] = {
    FIELD_STR(struct endpoint_view, url),
    FIELD_STR(struct endpoint_view, protocol),
    FIELD_STR(struct endpoint_view, ca_pem, .max = PEM_MAX,
              .flags = FIELD_SECRET), /* for programs */
    FIELD_STR(struct endpoint_view, cert_sha256),
    {0},
};

static const struct field grant_fields[] = {
    FIELD_OBJPTR(struct grant_view, lease, lease_fields, struct lease_view,
                 .flags = FIELD_REQUIRED),
    FIELD_OBJPTR(struct grant_view, endpoint, endpoint_fields, struct endpoint_view),
    FIELD_TIME(struct grant_view, renew_after),
    FIELD_STR(struct grant_view, token, .flags = FIELD_SECRET),
    {0},
};

static const char *grant_secret(const void *obj)
{
    return ((const struct grant_view *)obj)->token;
}

const struct view view_grant = {
    .fields = grant_fields, .size = sizeof(struct grant_view), .secret = grant_secret};

static const struct field opened_fields[] = {
    FIELD_OBJPTR(struct opened_view, sandbox, sandbox_fields, struct sandbox_view,
                 .flags = FIELD_REQUIRED),
    FIELD_OBJPTR(struct opened_view, grant, grant_fields, struct grant_view),
    {0},
};

static const char *opened_secret(const void *obj)
{
    const struct opened_view *v = obj;
    return v->grant != NULL ? v->grant->token : NULL;
}

const struct view view_opened = {
    .fields = opened_fields, .size = sizeof(struct opened_view), .secret = opened_secret};

struct door_view {
    char *session_id;
    bool acked;
    int64_t cut, latency_us;
};

struct revocation_view {
    int64_t matched, revoked;
    struct list doors;       /* struct door_view */
    struct list unconfirmed; /* char * */
};

static const struct field door_fields[] = {
    FIELD_STR(struct door_view, session_id),
    FIELD_BOOL(struct door_view, acked),
    FIELD_INT(struct door_view, cut),
    FIELD_INT(struct door_view, latency_us),
    {0},
};

static const struct field revocation_fields[] = {
    FIELD_INT(struct revocation_view, matched, .flags = FIELD_REQUIRED),
    FIELD_INT(struct revocation_view, revoked),
    FIELD_OBJLIST(struct revocation_view, doors, door_fields, struct door_view,
                  .max = PAGE_ITEMS_MAX),
    FIELD_STRLIST(struct revocation_view, unconfirmed, .max = PAGE_ITEMS_MAX),
    {0},
};

/* Who asks to wait wants to know that nobody is connected any more; and of what nobody knows nothing
 * matches either. */
static int revocation_outcome(const struct cli *cli, const void *obj, const struct options *o)
{
    const struct revocation_view *v = obj;
    if (v->matched == 0) {
        return revoke_look(cli, o);
    }
    return options_has(o, "--wait") && v->unconfirmed.n > 0 ? EXIT_FAILED : EXIT_OK;
}

const struct view view_revocation = {.fields = revocation_fields,
                                     .size = sizeof(struct revocation_view),
                                     .outcome = revocation_outcome};

struct signing_keys_view {
    int64_t revoked;
    struct list keys; /* struct signing_key_view */
};

static const struct field signing_key_fields[] = {
    FIELD_STR(struct signing_key_view, kid, .flags = FIELD_REQUIRED),
    FIELD_STR(struct signing_key_view, state),
    FIELD_STR(struct signing_key_view, created_at),
    FIELD_STR(struct signing_key_view, signing_at),
    FIELD_STR(struct signing_key_view, retired_at),
    {0},
};

static const struct field signing_keys_fields[] = {
    FIELD_OBJLIST(struct signing_keys_view, keys, signing_key_fields, struct signing_key_view,
                  .max = PAGE_ITEMS_MAX, .flags = FIELD_REQUIRED),
    {0},
};

static const struct field killed_key_fields[] = {
    FIELD_INT(struct signing_keys_view, revoked, .flags = FIELD_REQUIRED),
    FIELD_OBJLIST(struct signing_keys_view, keys, signing_key_fields, struct signing_key_view,
                  .max = PAGE_ITEMS_MAX),
    {0},
};

static const struct field signing_list_fields[] = {
    {.name = "keys",
     .kind = FIELD_KIND_LIST,
     .flags = FIELD_REQUIRED,
     .offset = offsetof(struct list_view, items),
     .fields = signing_key_fields,
     .elem = sizeof(struct signing_key_view),
     .max = PAGE_ITEMS_MAX},
    {0},
};
const struct view view_signing_list = PAGE_VIEW(signing_list_fields, signing_key_fields);

const struct view view_signing_keys = {.fields = signing_keys_fields,
                                       .size = sizeof(struct signing_keys_view)};
const struct view view_killed_key = {.fields = killed_key_fields,
                                     .size = sizeof(struct signing_keys_view)};

struct api_key_view {
    char *key_id, *name, *role;
    struct list allowed_users; /* char * */
    char *default_user, *created_at, *expires_at, *revoked_at, *last_used_at;
};

struct created_key_view {
    struct api_key_view *api_key;
    char *key;
};

static const struct field api_key_fields[] = {
    FIELD_STR(struct api_key_view, key_id, .flags = FIELD_REQUIRED),
    FIELD_STR(struct api_key_view, name),
    FIELD_STR(struct api_key_view, role),
    FIELD_STRLIST(struct api_key_view, allowed_users),
    FIELD_STR(struct api_key_view, default_user),
    FIELD_STR(struct api_key_view, created_at),
    FIELD_STR(struct api_key_view, expires_at),
    FIELD_STR(struct api_key_view, revoked_at),
    FIELD_STR(struct api_key_view, last_used_at),
    {0},
};

const struct view view_api_key = {.fields = api_key_fields, .size = sizeof(struct api_key_view)};

static const struct field api_key_columns[] = {
    FIELD_STR(struct api_key_view, key_id),
    FIELD_STR(struct api_key_view, role),
    FIELD_STR(struct api_key_view, created_at),
    FIELD_STR(struct api_key_view, expires_at),
    FIELD_STR(struct api_key_view, revoked_at),
    FIELD_STR(struct api_key_view, last_used_at),
    FIELD_STRLIST(struct api_key_view, allowed_users),
    FIELD_STR(struct api_key_view, name),
    {0},
};
static const struct field api_keys_fields[] = {PAGE_FIELDS(api_key_fields, struct api_key_view),
                                               {0}};
const struct view view_api_keys = PAGE_VIEW(api_keys_fields, api_key_columns);

static const struct field created_key_fields[] = {
    FIELD_OBJPTR(struct created_key_view, api_key, api_key_fields, struct api_key_view,
                 .flags = FIELD_REQUIRED),
    FIELD_STR(struct created_key_view, key, .flags = FIELD_SECRET),
    {0},
};

static const char *created_key_secret(const void *obj)
{
    return ((const struct created_key_view *)obj)->key;
}

const struct view view_created_key = {.fields = created_key_fields,
                                      .size = sizeof(struct created_key_view),
                                      .secret = created_key_secret,
                                      .show_secret = true};

static const struct field message_fields[] = {
    FIELD_INT(struct message_view, seq, .flags = FIELD_REQUIRED),
    FIELD_STR(struct message_view, message_id),
    FIELD_STR(struct message_view, at),
    FIELD_STR(struct message_view, role),
    FIELD_STR(struct message_view, author, .flags = FIELD_NULL_ZERO),
    FIELD_STR(struct message_view, content, .max = CONTENT_MAX),
    {0},
};
const struct view view_message = {.fields = message_fields, .size = sizeof(struct message_view)};

static const struct field audit_fields[] = {
    FIELD_INT(struct audit_view, n, .flags = FIELD_REQUIRED),
    FIELD_STR(struct audit_view, at),
    FIELD_STR(struct audit_view, actor),
    FIELD_STR(struct audit_view, action),
    FIELD_STR(struct audit_view, object),
    FIELD_STR(struct audit_view, outcome),
    FIELD_STR(struct audit_view, address, .flags = FIELD_NULL_ZERO),
    FIELD_STR(struct audit_view, request_id, .flags = FIELD_NULL_ZERO),
    FIELD_STR(struct audit_view, detail, .flags = FIELD_NULL_ZERO),
    FIELD_STR(struct audit_view, prev),
    FIELD_STR(struct audit_view, hash),
    {0},
};
const struct view view_audit = {.fields = audit_fields, .size = sizeof(struct audit_view)};

struct verified_view {
    bool ok;
    int64_t checked, first_broken;
};

static const struct field verified_fields[] = {
    FIELD_BOOL(struct verified_view, ok, .flags = FIELD_REQUIRED),
    FIELD_INT(struct verified_view, checked),
    FIELD_INT(struct verified_view, first_broken, .flags = FIELD_NULL_ZERO),
    {0},
};

/* A broken chain is what the command was asked to find. */
static int verified_outcome(const struct cli *cli, const void *obj, const struct options *o)
{
    (void)cli;
    (void)o;
    return ((const struct verified_view *)obj)->ok ? EXIT_OK : EXIT_FAILED;
}

const struct view view_verified = {
    .fields = verified_fields, .size = sizeof(struct verified_view), .outcome = verified_outcome};

static const struct field stats_fields[] = {
    FIELD_INT(struct stats_view, cpu_usage_us, .flags = FIELD_REQUIRED),
    FIELD_INT(struct stats_view, memory_bytes),
    FIELD_INT(struct stats_view, memory_peak_bytes),
    FIELD_INT(struct stats_view, pids),
    FIELD_STR(struct stats_view, at),
    {0},
};
const struct view view_stats = {.fields = stats_fields, .size = sizeof(struct stats_view)};

struct node_versions_view {
    char *leasehold, *engine;
};

struct node_load_view {
    int64_t sandboxes, memory_available_bytes;
};

struct node_view {
    char *node, *engine;
    bool available;
    struct node_versions_view versions;
    struct node_load_view load;
};

static const struct field node_versions_fields[] = {
    FIELD_STR(struct node_versions_view, leasehold),
    FIELD_STR(struct node_versions_view, engine),
    {0},
};

static const struct field node_load_fields[] = {
    FIELD_INT(struct node_load_view, sandboxes),
    FIELD_INT(struct node_load_view, memory_available_bytes),
    {0},
};

static const struct field node_fields[] = {
    FIELD_STR(struct node_view, node, .flags = FIELD_REQUIRED),
    FIELD_STR(struct node_view, engine),
    FIELD_BOOL(struct node_view, available),
    FIELD_OBJECT(struct node_view, versions, node_versions_fields),
    FIELD_OBJECT(struct node_view, load, node_load_fields),
    {0},
};

static const struct field node_columns[] = {
    FIELD_STR(struct node_view, node),
    FIELD_STR(struct node_view, engine),
    FIELD_BOOL(struct node_view, available),
    FIELD_STR(struct node_view, versions.leasehold),
    FIELD_INT(struct node_view, load.sandboxes),
    FIELD_INT(struct node_view, load.memory_available_bytes),
    {0},
};
static const struct field nodes_fields[] = {PAGE_FIELDS(node_fields, struct node_view), {0}};
const struct view view_nodes = PAGE_VIEW(nodes_fields, node_columns);

struct removed_view {
    char *kind, *id, *reason;
    int64_t size_bytes;
};

static const struct field removed_fields[] = {
    FIELD_STR(struct removed_view, kind, .flags = FIELD_REQUIRED),
    FIELD_STR(struct removed_view, id),
    FIELD_STR(struct removed_view, reason),
    FIELD_INT(struct removed_view, size_bytes),
    {0},
};
static const struct field removed_page_fields[] = {PAGE_FIELDS(removed_fields, struct removed_view),
                                                   {0}};
const struct view view_removed = PAGE_VIEW(removed_page_fields, removed_fields);
