/* The functions and tables behind the rows of ops.c, by subject. */
#ifndef GATEWAY_OPS_H
#define GATEWAY_OPS_H

#include "objects.h"
#include "op.h"
#include "page.h"

/* --- ops_meta.c: health, readiness, keys of verification ------------------------------------- */

struct health {
    char *status, *name, *version, *env;
};
struct healthz {
    char *status;
};
struct ready_check {
    char *name, *detail;
    bool ok;
};
struct readyz {
    char *status;
    struct list checks;
};
extern const struct field health_out[], healthz_out[], readyz_out[];
int op_health(struct call *c, struct err *e);
int op_healthz(struct call *c, struct err *e);
int op_readyz(struct call *c, struct err *e);
int op_jwks(struct call *c, struct err *e);
int op_metrics(struct call *c, struct err *e);
int op_openapi(struct call *c, struct err *e);

/* --- ops_key.c ------------------------------------------------------------------------------- */

struct key_create_args {
    char *name;
    int role;
    bool has_allowed_users, has_default_user;
    struct list allowed_users;
    struct id default_user;
    int64_t expires_at;
};
struct key_created {
    struct api_key api_key;
    char *key;
};
extern const struct field key_create_in[], key_create_out[];
struct key_args {
    struct id key_id;
};
struct key_list_args {
    struct page_args page;
};
struct key_update_args {
    struct id key_id;
    char *name;
    int role;
    bool has_role, has_allowed_users, has_default_user, has_expires_at;
    struct list allowed_users;
    struct id default_user;
    int64_t expires_at;
    unsigned clear; /* bits of key_clear_names */
};
extern const struct field key_in[], key_list_in[], key_list_out[], key_update_in[];
int op_key_create(struct call *c, struct err *e);
bool op_key_created(struct call *c);
void op_key_secret(struct call *c, struct op_secret *ret);
int op_key_list(struct call *c, struct err *e);
int op_key_update(struct call *c, struct err *e);
int op_key_revoke(struct call *c, struct err *e);
bool op_key_listed(struct call *c);
bool op_key_changed(struct call *c);

/* In a write: puts the key into the store (`made`: for the first time), and collects and ends the
 * leases that it may not have issued any more; the operation runs again while there are more of them,
 * with key_end_more. Its `after` is op_key_changed. */
int key_record(struct call *c, struct api_key *k, bool made, struct err *e) MUST_CHECK;
int key_end_more(struct call *c, struct err *e) MUST_CHECK;

/* --- ops_signing.c --------------------------------------------------------------------------- */

struct signing_key_args {
    char *kid;
};
struct signing_keys_view {
    struct list keys; /* struct signing_key */
    int64_t revoked;
};
extern const struct field signing_none_in[], signing_key_in[], signing_keys_out[],
    signing_kill_out[];
int op_signing_list(struct call *c, struct err *e);
int op_signing_rotate(struct call *c, struct err *e);
int op_signing_kill(struct call *c, struct err *e);

/* --- ops_chat.c ------------------------------------------------------------------------------ */

struct chat_create_args {
    struct id user_id, chat_id;
    bool has_chat_id;
    char *title, *metadata;
};
struct chat_args {
    struct id chat_id;
};
struct chat_list_args {
    struct page_args page;
    struct id user_id;
};
extern const struct field chat_create_in[], chat_in[], chat_list_in[], chat_list_out[];
int op_chat_create(struct call *c, struct err *e);
void op_chat_create_key(struct call *c, struct id *ret);
int op_chat_get(struct call *c, struct err *e);
int op_chat_list(struct call *c, struct err *e);
int op_chat_delete(struct call *c, struct err *e);
void op_chat_delete_key(struct call *c, struct id *ret);

/* Makes the chat (and the user's workspace) unless the same owner has it. Blocks on disk and store:
 * FILE and RUNTIME lanes. */
int chat_ensure(struct call *c, const struct chat_create_args *a, struct err *e) MUST_CHECK;

/* The chat if the caller may see it (inside a read or a write). */
int chat_visible(struct store_tx *tx, const struct caller *caller, const struct id *chat_id,
                 struct arena *arena, struct chat *ret, struct err *e) MUST_CHECK;

/* --- ops_history.c --------------------------------------------------------------------------- */

struct message_view {
    int64_t seq;
    struct id message_id;
    int64_t at;
    int role;
    char *author, *content;
};
struct history_args {
    struct id chat_id;
};
struct history_append_args {
    struct id chat_id;
    int role;
    char *content, *author, *client_message_id;
    bool has_at;
    int64_t at;
};
struct history_list_args {
    struct id chat_id;
    struct page_args page;
    int64_t after;
};
extern const struct field message_fields[], history_append_in[], history_list_in[],
    history_list_out[], history_in[];
int op_history_append(struct call *c, struct err *e);
bool op_history_append_queue(struct call *c);
int op_history_list(struct call *c, struct err *e);
int op_history_markdown(struct call *c, struct err *e);
int op_history_markdown_give(struct call *c, struct op_piece *piece, struct err *e);
void op_history_markdown_close(struct call *c);
void op_history_key(struct call *c, struct id *ret);

/* --- ops_file*.c ----------------------------------------------------------------------------- */

struct file_name_args {
    struct id chat_id;
    char *name;
};
struct file_list_args {
    struct page_args page;
    struct id chat_id;
};
struct file_id_args {
    struct id file_id;
};
struct file_cleared {
    int64_t deleted;
};
extern const struct field file_fields[], file_name_in[], file_form_in[], file_list_in[],
    file_list_out[], file_id_in[], file_cleared_out[];
int op_file_put(struct call *c, struct err *e);
int op_file_put_form(struct call *c, struct err *e);
int op_file_take(struct call *c, const char *data, size_t len, struct err *e);
int op_file_end(struct call *c, struct err *e);
void op_file_undo(struct call *c);
int op_file_get(struct call *c, struct err *e);
int op_file_give(struct call *c, struct op_piece *piece, struct err *e);
void op_file_close(struct call *c);
int op_file_list(struct call *c, struct err *e);
int op_file_stat(struct call *c, struct err *e);
int op_file_delete(struct call *c, struct err *e);
int op_file_clear(struct call *c, struct err *e);

/* --- ops_workspace.c ------------------------------------------------------------------------- */

struct workspace_args {
    struct id user_id;
};
struct workspace_view {
    struct id workspace_id, user_id;
    int64_t created_at, used_bytes, quota_bytes, chats;
    bool over_quota;
};
extern const struct field workspace_in[], workspace_fields[];
int op_workspace_put(struct call *c, struct err *e);
int op_workspace_get(struct call *c, struct err *e);
int op_workspace_delete(struct call *c, struct err *e);
void op_workspace_delete_key(struct call *c, struct id *ret);

/* --- ops_sandbox.c --------------------------------------------------------------------------- */

struct cnf_args {
    char *jkt;
};
struct lease_args {
    struct id user_id;
    unsigned scope;
    int64_t ttl_s, max_connections;
    int use;
    struct cnf_args *cnf;
};
struct sandbox_open_args {
    struct id chat_id;
    char *profile;
    int64_t idle_ttl_s;
    char *env; /* an object of strings */
    bool wait, has_lease;
    struct lease_args *lease;
    bool late; /* ours: there was nothing to join */
};
struct sandbox_open_result {
    struct sandbox_view sandbox;
    struct grant *grant;
};
struct sandbox_args {
    struct id session_id;
};
struct sandbox_stop_args {
    struct id session_id;
    char *reason;
    int64_t grace_s;
};
struct sandbox_renew_args {
    struct id session_id;
    int64_t idle_ttl_s;
};
struct sandbox_list_args {
    struct page_args page;
    struct id chat_id, user_id;
    bool has_status;
    int status;
};
extern const struct field sandbox_list_in[], sandbox_list_out[], sandbox_renew_in[];
extern const struct field sandbox_create_in[], sandbox_create_out[], sandbox_open_in[],
    sandbox_open_out[], sandbox_in[], sandbox_stop_in[];
/* The session if the caller may see it (inside a read or a write). */
int sandbox_visible(struct store_tx *tx, const struct caller *caller, const struct id *session_id,
                    struct sandbox *ret, struct err *e) MUST_CHECK;
int op_sandbox_create(struct call *c, struct err *e);
int op_sandbox_open(struct call *c, struct err *e);
int op_sandbox_get(struct call *c, struct err *e);
void op_sandbox_stop_prepare(struct call *c);
int op_sandbox_stop(struct call *c, struct err *e);
int op_sandbox_list(struct call *c, struct err *e);
int op_sandbox_renew(struct call *c, struct err *e);
void op_sandbox_open_secret(struct call *c, struct op_secret *ret);
void op_sandbox_open_prepare(struct call *c);
void op_sandbox_open_key(struct call *c, struct id *ret);
bool op_sandbox_open_after(struct call *c);
void op_sandbox_create_key(struct call *c, struct id *ret);
void op_sandbox_stop_key(struct call *c, struct id *ret);

/* --- ops_look.c ------------------------------------------------------------------------------ */

struct sandbox_stats_view {
    int64_t cpu_usage_us, memory_bytes, memory_peak_bytes, pids, at;
};
struct sandbox_logs_args {
    struct id session_id;
    bool follow;
    int64_t tail, since;
};
extern const struct field sandbox_stats_out[], sandbox_logs_in[];
int op_sandbox_stats(struct call *c, struct err *e);
int op_sandbox_logs(struct call *c, struct err *e);
int op_sandbox_logs_give(struct call *c, struct op_piece *piece, struct err *e);
void op_sandbox_logs_close(struct call *c);

/* --- ops_node.c ------------------------------------------------------------------------------ */

struct node_list_args {
    struct page_args page;
};
struct node_versions {
    char *leasehold, *engine, *kernel;
};
struct node_load {
    int64_t cpus, runnable_milli, memory_bytes, memory_available_bytes, sandboxes;
};
struct node_view {
    char *node, *instance, *engine;
    bool available;
    struct node_versions versions;
    struct node_load load;
    struct list warnings; /* char * */
};
extern const struct field node_list_in[], node_list_out[];
int op_node_list(struct call *c, struct err *e);

/* --- ops_lease.c ----------------------------------------------------------------------------- */

struct lease_grant_args {
    struct id session_id, chat_id, user_id;
    bool has_session_id, has_chat_id;
    unsigned scope;
    int64_t ttl_s, max_connections;
    int use;
    struct cnf_args *cnf;
};
struct lease_id_args {
    struct id lease_id;
};
struct lease_renew_args {
    struct id lease_id;
    int64_t ttl_s;
    bool confirmed; /* its door has acknowledged it: op_lease_renew_prepare */
};
struct lease_list_args {
    struct page_args page;
    struct id session_id, chat_id, user_id;
    bool has_state;
    int state;
};
extern const struct field cnf_in[];
extern const struct field lease_grant_in[], lease_id_in[], lease_renew_in[];
extern const struct field lease_list_in[], lease_list_out[];
int op_lease_list(struct call *c, struct err *e);
bool op_lease_listed(struct call *c);
int op_lease_grant(struct call *c, struct err *e);
void op_grant_sign(struct call **calls, size_t n);
void op_grant_secret(struct call *c, struct op_secret *ret);
int op_lease_get(struct call *c, struct err *e);
bool op_lease_got(struct call *c);
int op_lease_renew(struct call *c, struct err *e);
void op_lease_renew_prepare(struct call *c);

/* --- ops_audit.c ----------------------------------------------------------------------------- */

struct audit_list_args {
    struct page_args page;
    char *actor, *object, *action;
    int64_t since, until, after;
};
struct audit_view {
    int64_t n, at;
    char *actor, *action, *object, *outcome, *address, *request_id, *detail;
    char prev[65], hash[65];
};
struct audit_verified {
    bool ok;
    int64_t checked, first_broken;
};
extern const struct field audit_list_in[], audit_list_out[], audit_verify_out[];
void op_audit_prepare(struct call *c);
int op_audit_list(struct call *c, struct err *e);
void op_audit_verify_key(struct call *c, struct id *ret);
int op_audit_verify(struct call *c, struct err *e);

/* --- ops_retention.c ------------------------------------------------------------------------- */

struct retention_run_args {
    bool dry_run;
};
struct retention_view {
    char *kind, *id, *reason;
    int64_t size_bytes;
};
struct retention_result {
    struct list items;
};
extern const struct field retention_run_in[], retention_run_out[];
void op_retention_key(struct call *c, struct id *ret);
int op_retention_run(struct call *c, struct err *e);

/* --- ops_backup.c ---------------------------------------------------------------------------- */

void op_backup_key(struct call *c, struct id *ret);
int op_backup_get(struct call *c, struct err *e);
int op_backup_give(struct call *c, struct op_piece *piece, struct err *e);
void op_backup_close(struct call *c);

/* --- ops_introspect.c ------------------------------------------------------------------------ */

struct introspect_args {
    char *token, *token_type_hint;
};
struct introspected {
    bool active;
    struct id jti, sub, sid;
    char *scope;
    int64_t exp;
};
extern const struct field introspect_in[], introspect_out[];
int op_lease_introspect(struct call *c, struct err *e);

/* --- ops_revoke.c ---------------------------------------------------------------------------- */

struct lease_revoke_args { /* DELETE /leases/{lease_id} */
    struct id lease_id;
    char *reason;
    bool has_wait_ms;
    int64_t wait_ms;
};
struct revoke_selector { /* exactly one of them */
    struct id lease_id, session_id, chat_id, user_id, api_key_id;
    bool has_lease_id, has_session_id, has_chat_id, has_user_id, has_api_key_id;
    char *kid;
    bool all;
};
struct lease_revoke_by_args { /* POST /leases/revoke */
    struct revoke_selector selector;
    char *reason;
    bool dry_run, has_expected_count, has_wait_ms;
    int64_t expected_count, wait_ms;
};
struct revoke_door {
    struct id session_id;
    bool acked;
    int64_t cut, latency_us;
};
struct lease_revoked {
    int64_t matched, revoked;
    struct list doors;       /* struct revoke_door */
    struct list unconfirmed; /* struct id */
};
extern const struct field lease_revoke_in[], lease_revoke_by_in[], lease_revoked_out[];
int op_lease_revoke(struct call *c, struct err *e);
int op_lease_revoke_by(struct call *c, struct err *e);
bool op_lease_revoked(struct call *c);
bool op_lease_revoked_by(struct call *c);

/* --- ops_artifact.c -------------------------------------------------------------------------- */

struct artifact_put_args {
    struct id chat_id;
    char *query_name, *path, *name;
};
struct artifact_args {
    struct id artifact_id;
};
struct artifact_list_args {
    struct page_args page;
    struct id chat_id, user_id;
    bool has_state;
    int state;
};
struct artifact_download_args {
    struct id artifact_id;
    int64_t redirect;
};
struct artifact_link {
    char *url;
    int64_t expires_at;
};
struct artifact_deliver_args {
    struct id artifact_id;
    int status;
    char *channel, *external_ref, *detail;
};
extern const struct field artifact_put_in[], artifact_in[], artifact_list_in[],
    artifact_chat_list_in[], artifact_list_out[], artifact_download_in[], artifact_download_out[],
    artifact_deliver_in[];
int op_artifact_put(struct call *c, struct err *e);
int op_artifact_take(struct call *c, const char *data, size_t len, struct err *e);
int op_artifact_end(struct call *c, struct err *e);
void op_artifact_undo(struct call *c);
int op_artifact_get(struct call *c, struct err *e);
int op_artifact_list(struct call *c, struct err *e);
int op_artifact_download(struct call *c, struct err *e);
int op_artifact_deliver(struct call *c, struct err *e);
int op_artifact_delete(struct call *c, struct err *e);

/* --- ops_object.c ---------------------------------------------------------------------------- */

struct object_get_args {
    struct id user_id, chat_id, artifact_id;
    int64_t expires;
    char *disposition, *content_type, *signature;
};
extern const struct field object_get_in[];
int op_object_get(struct call *c, struct err *e);
int op_object_give(struct call *c, struct op_piece *piece, struct err *e);
void op_object_close(struct call *c);

#endif
