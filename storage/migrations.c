/*
 * The schema, in what SQLite and PostgreSQL both accept: ids, names and hashes are TEXT, times
 * BIGINT milliseconds (0 = not set), truth values INTEGER 0 or 1. An id that is not set is NULL.
 *
 * A migration that has been released is never edited.
 */
#include "audit.h"
#include "migrate.h"

static const char people_and_chats[] =
    "CREATE TABLE users ("
    " user_id TEXT PRIMARY KEY,"
    " created_at BIGINT NOT NULL);"

    "CREATE TABLE workspaces ("
    " workspace_id TEXT PRIMARY KEY,"
    " user_id TEXT NOT NULL UNIQUE REFERENCES users (user_id),"
    " created_at BIGINT NOT NULL);"

    "CREATE TABLE chats ("
    " chat_id TEXT PRIMARY KEY,"
    " user_id TEXT NOT NULL REFERENCES users (user_id),"
    " workspace_id TEXT NOT NULL REFERENCES workspaces (workspace_id),"
    " title TEXT NOT NULL,"
    " metadata TEXT NOT NULL,"
    " created_at BIGINT NOT NULL,"
    " updated_at BIGINT NOT NULL,"
    " generation BIGINT NOT NULL);"
    "CREATE INDEX chats_of_user ON chats (user_id, created_at, chat_id);";

/* (chat_id, generation) is unique because a generation is never used again: a door admits by it. */
static const char sandboxes_and_leases[] =
    "CREATE TABLE sandboxes ("
    " session_id TEXT PRIMARY KEY,"
    " chat_id TEXT NOT NULL REFERENCES chats (chat_id),"
    " user_id TEXT NOT NULL,"
    " workspace_id TEXT NOT NULL,"
    " created_at BIGINT NOT NULL,"
    " container_id TEXT NOT NULL,"
    " engine TEXT NOT NULL,"
    " node TEXT NOT NULL,"
    " profile TEXT NOT NULL,"
    " generation BIGINT NOT NULL,"
    " status TEXT NOT NULL"
    "  CHECK (status IN ('starting', 'running', 'stopping', 'stopped', 'failed')),"
    " reason TEXT NOT NULL,"
    " started_at BIGINT NOT NULL,"
    " last_activity_at BIGINT NOT NULL,"
    " expires_at BIGINT NOT NULL,"
    " max_expires_at BIGINT NOT NULL,"
    " idle_ttl_s BIGINT NOT NULL,"
    " uid BIGINT NOT NULL,"
    " netns INTEGER NOT NULL CHECK (netns IN (0, 1)),"
    " userns INTEGER NOT NULL CHECK (userns IN (0, 1)),"
    " seccomp INTEGER NOT NULL CHECK (seccomp IN (0, 1)),"
    " door_secret_hash TEXT NOT NULL,"
    " door_pid BIGINT NOT NULL,"
    " door_start BIGINT NOT NULL,"
    " keep_pid BIGINT NOT NULL,"
    " keep_start BIGINT NOT NULL,"
    " door_port BIGINT NOT NULL,"
    " log_seq BIGINT NOT NULL,"
    " UNIQUE (chat_id, generation));"
    "CREATE UNIQUE INDEX sandboxes_active ON sandboxes (chat_id)"
    " WHERE status IN ('starting', 'running', 'stopping');"

    "CREATE TABLE leases ("
    " lease_id TEXT PRIMARY KEY,"
    " session_id TEXT NOT NULL REFERENCES sandboxes (session_id),"
    " chat_id TEXT NOT NULL,"
    " user_id TEXT NOT NULL,"
    " api_key_id TEXT,"
    " scope BIGINT NOT NULL,"
    " use_kind TEXT NOT NULL CHECK (use_kind IN ('multi', 'once')),"
    " max_connections BIGINT NOT NULL,"
    " state TEXT NOT NULL CHECK (state IN"
    "  ('pending', 'active', 'revoking', 'expiring', 'unconfirmed', 'closed')),"
    " issued_at BIGINT NOT NULL,"
    " expires_at BIGINT NOT NULL,"
    " max_expires_at BIGINT NOT NULL,"
    " revoked_at BIGINT NOT NULL,"
    " revoked_reason TEXT NOT NULL,"
    " grant_seq BIGINT NOT NULL,"
    " ep BIGINT NOT NULL,"
    " kid TEXT NOT NULL);"
    "CREATE INDEX leases_open ON leases (session_id, lease_id) WHERE state <> 'closed';"

    "CREATE TABLE session_log ("
    " session_id TEXT NOT NULL REFERENCES sandboxes (session_id),"
    " seq BIGINT NOT NULL,"
    " at BIGINT NOT NULL,"
    " op TEXT NOT NULL,"
    " lease_id TEXT,"
    " expires_at BIGINT NOT NULL,"
    " PRIMARY KEY (session_id, seq));";

static const char keys_and_audit[] =
    "CREATE TABLE api_keys ("
    " key_id TEXT PRIMARY KEY,"
    " name TEXT NOT NULL,"
    " role TEXT NOT NULL CHECK (role IN ('none', 'viewer', 'bot', 'admin')),"
    " secret_hash TEXT NOT NULL,"
    " limited INTEGER NOT NULL CHECK (limited IN (0, 1)),"
    " default_user TEXT,"
    " created_at BIGINT NOT NULL,"
    " expires_at BIGINT NOT NULL,"
    " last_used_at BIGINT NOT NULL,"
    " revoked_at BIGINT NOT NULL);"

    "CREATE TABLE api_key_users ("
    " key_id TEXT NOT NULL REFERENCES api_keys (key_id),"
    " place BIGINT NOT NULL,"
    " user_id TEXT NOT NULL,"
    " PRIMARY KEY (key_id, place),"
    " UNIQUE (key_id, user_id));"

    "CREATE TABLE audit ("
    " n BIGINT PRIMARY KEY,"
    " at BIGINT NOT NULL,"
    " actor TEXT NOT NULL,"
    " action TEXT NOT NULL,"
    " object TEXT NOT NULL,"
    " outcome TEXT NOT NULL,"
    " address TEXT NOT NULL,"
    " request_id TEXT NOT NULL,"
    " detail TEXT NOT NULL,"
    " prev TEXT NOT NULL,"
    " hash TEXT NOT NULL);";

/* Lists go by (created_at, id), for all and for what they are asked for most. */
static const char lists_and_idempotency[] =
    "CREATE INDEX chats_listed ON chats (created_at, chat_id);"
    "CREATE INDEX sandboxes_listed ON sandboxes (created_at, session_id);"
    "CREATE INDEX sandboxes_of_chat ON sandboxes (chat_id, created_at, session_id);"
    "CREATE INDEX sandboxes_of_user ON sandboxes (user_id, created_at, session_id);"
    "CREATE INDEX leases_listed ON leases (issued_at, lease_id);"
    "CREATE INDEX leases_of_session ON leases (session_id, issued_at, lease_id);"
    "CREATE INDEX leases_of_chat ON leases (chat_id, issued_at, lease_id);"
    "CREATE INDEX leases_of_user ON leases (user_id, issued_at, lease_id);"
    "CREATE INDEX leases_of_key ON leases (api_key_id, lease_id) WHERE state <> 'closed';"
    "CREATE INDEX api_keys_listed ON api_keys (created_at, key_id);"

    "CREATE TABLE idempotency ("
    " key_id TEXT NOT NULL REFERENCES api_keys (key_id),"
    " idempotency_key TEXT NOT NULL,"
    " fingerprint TEXT NOT NULL,"
    " created_at BIGINT NOT NULL,"
    " status BIGINT NOT NULL,"
    " code TEXT NOT NULL,"
    " pointer TEXT NOT NULL,"
    " body TEXT NOT NULL,"
    " lease_id TEXT,"
    " iat BIGINT NOT NULL,"
    " expires_at BIGINT NOT NULL,"
    " rq BIGINT NOT NULL,"
    " PRIMARY KEY (key_id, idempotency_key));"
    "CREATE INDEX idempotency_by_age ON idempotency (created_at);";

static const char door_certificates[] =
    "ALTER TABLE sandboxes ADD COLUMN door_cert_sha256 TEXT NOT NULL DEFAULT '';";

static const char leases_once_and_bound[] =
    "ALTER TABLE leases ADD COLUMN cnf_jkt TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE leases ADD COLUMN consumed_at BIGINT NOT NULL DEFAULT 0;";

static const char signing_keys[] =
    "CREATE TABLE signing_keys ("
    " kid TEXT PRIMARY KEY,"
    " x TEXT NOT NULL,"
    " y TEXT NOT NULL,"
    " file TEXT NOT NULL,"
    " state TEXT NOT NULL CHECK (state IN ('next', 'signing', 'retired', 'gone', 'killed')),"
    " created_at BIGINT NOT NULL,"
    " signing_at BIGINT NOT NULL,"
    " retired_at BIGINT NOT NULL,"
    " ended_at BIGINT NOT NULL);"
    "CREATE UNIQUE INDEX signing_keys_signing ON signing_keys (state) WHERE state = 'signing';"
    "ALTER TABLE leases ADD COLUMN renewed_kid TEXT NOT NULL DEFAULT '';";

static const char workspace_usage[] =
    "ALTER TABLE workspaces ADD COLUMN used_bytes BIGINT NOT NULL DEFAULT 0;";

/* `events` holds the events first_seq … last_seq, each a line (events.c). */
static const char event_log[] = "CREATE TABLE event_log ("
                                " first_seq BIGINT PRIMARY KEY,"
                                " last_seq BIGINT NOT NULL,"
                                " at BIGINT NOT NULL,"
                                " events TEXT NOT NULL);";

/* One row for each commit, not for each entry: storage/audit_block.h. */
static const char audit_blocks[] = "CREATE TABLE audit_blocks ("
                                   " first_n BIGINT PRIMARY KEY,"
                                   " last_n BIGINT NOT NULL,"
                                   " min_at BIGINT NOT NULL,"
                                   " max_at BIGINT NOT NULL,"
                                   " entries BYTEA NOT NULL);";

/* name_key is the name in NFC: what names are compared by. */
static const char files[] = "CREATE TABLE files ("
                            " file_id TEXT PRIMARY KEY,"
                            " chat_id TEXT NOT NULL REFERENCES chats (chat_id),"
                            " user_id TEXT NOT NULL,"
                            " name TEXT NOT NULL,"
                            " name_key TEXT NOT NULL,"
                            " content_type TEXT NOT NULL,"
                            " size_bytes BIGINT NOT NULL,"
                            " sha256 TEXT NOT NULL,"
                            " created_at BIGINT NOT NULL,"
                            " last_read_at BIGINT NOT NULL,"
                            " last_update_at BIGINT NOT NULL,"
                            " stamp_size BIGINT NOT NULL,"
                            " stamp_mtime_ns BIGINT NOT NULL,"
                            " stamp_ctime_ns BIGINT NOT NULL,"
                            " stamp_ino BIGINT NOT NULL,"
                            " UNIQUE (chat_id, name_key));"
                            "CREATE INDEX files_listed ON files (chat_id, created_at, file_id);";

static const char audit_rows_gone[] = "DROP TABLE audit;";

/* Their place in the order of issue is the key of leases, so that rows and entries of indices stand
 * where the last ones do, and not all over the file; only lease_id is random. A chat's leases are
 * those of its sessions, in order. leases_open is made behind leases_of_session because SQLite takes
 * the newest index of those that fit alike. What session_log told is told by the audit trail and the rows. */
static const char leases_in_order[] =
    "ALTER TABLE leases RENAME TO leases_before;"
    "DROP INDEX leases_open;"
    "DROP INDEX leases_listed;"
    "DROP INDEX leases_of_session;"
    "DROP INDEX leases_of_chat;"
    "DROP INDEX leases_of_user;"
    "DROP INDEX leases_of_key;"

    "CREATE TABLE leases ("
    " n INTEGER PRIMARY KEY,"
    " lease_id TEXT NOT NULL UNIQUE,"
    " session_id TEXT NOT NULL REFERENCES sandboxes (session_id),"
    " chat_id TEXT NOT NULL,"
    " user_id TEXT NOT NULL,"
    " api_key_id TEXT,"
    " scope BIGINT NOT NULL,"
    " use_kind TEXT NOT NULL CHECK (use_kind IN ('multi', 'once')),"
    " max_connections BIGINT NOT NULL,"
    " state TEXT NOT NULL CHECK (state IN"
    "  ('pending', 'active', 'revoking', 'expiring', 'unconfirmed', 'closed')),"
    " issued_at BIGINT NOT NULL,"
    " expires_at BIGINT NOT NULL,"
    " max_expires_at BIGINT NOT NULL,"
    " revoked_at BIGINT NOT NULL,"
    " revoked_reason TEXT NOT NULL,"
    " grant_seq BIGINT NOT NULL,"
    " ep BIGINT NOT NULL,"
    " kid TEXT NOT NULL,"
    " cnf_jkt TEXT NOT NULL,"
    " consumed_at BIGINT NOT NULL,"
    " renewed_kid TEXT NOT NULL);"

    "INSERT INTO leases (lease_id, session_id, chat_id, user_id, api_key_id, scope, use_kind,"
    " max_connections, state, issued_at, expires_at, max_expires_at, revoked_at, revoked_reason,"
    " grant_seq, ep, kid, cnf_jkt, consumed_at, renewed_kid)"
    " SELECT lease_id, session_id, chat_id, user_id, api_key_id, scope, use_kind,"
    " max_connections, state, issued_at, expires_at, max_expires_at, revoked_at, revoked_reason,"
    " grant_seq, ep, kid, cnf_jkt, consumed_at, renewed_kid"
    " FROM leases_before ORDER BY issued_at, lease_id;"
    "DROP TABLE leases_before;"
    "DROP TABLE session_log;"

    "CREATE INDEX leases_of_session ON leases (session_id, n);"
    "CREATE INDEX leases_open ON leases (session_id, n) WHERE state <> 'closed';"
    "CREATE INDEX leases_of_user ON leases (user_id, n);"
    "CREATE INDEX leases_of_key ON leases (api_key_id, n) WHERE state <> 'closed';";

static const char workspace_activity[] =
    "ALTER TABLE workspaces ADD COLUMN last_active_at BIGINT NOT NULL DEFAULT 0;";

static const char identities[] = "ALTER TABLE api_keys ADD COLUMN as_of BIGINT NOT NULL DEFAULT 0;";
static const char artifacts[] =
    "CREATE TABLE artifacts ("
    " artifact_id TEXT PRIMARY KEY,"
    " chat_id TEXT NOT NULL," /* outlives the chat, until its object is gone */
    " user_id TEXT NOT NULL,"
    " created_at BIGINT NOT NULL,"
    " name TEXT NOT NULL,"
    " content_type TEXT NOT NULL,"
    " object_key TEXT NOT NULL,"
    " size_bytes BIGINT NOT NULL,"
    " sha256 TEXT NOT NULL,"
    " state TEXT NOT NULL CHECK (state IN ('created', 'stored', 'delivered', 'delivery_failed',"
    " 'marked_for_delete', 'deleted')),"
    " stored_at BIGINT NOT NULL,"
    " delivery_status TEXT NOT NULL,"
    " delivery_channel TEXT NOT NULL,"
    " delivery_ref TEXT NOT NULL,"
    " delivery_detail TEXT NOT NULL,"
    " delivery_attempts BIGINT NOT NULL,"
    " delivery_at BIGINT NOT NULL,"
    " delete_after BIGINT NOT NULL,"
    " links_until BIGINT NOT NULL,"
    " upload_id TEXT NOT NULL);"
    "CREATE INDEX artifacts_by_chat ON artifacts (chat_id, created_at, artifact_id);"
    "CREATE INDEX artifacts_by_user ON artifacts (user_id, created_at, artifact_id);"
    "CREATE INDEX artifacts_by_age ON artifacts (created_at, artifact_id);"
    "CREATE INDEX artifacts_by_state ON artifacts (state, artifact_id) WHERE state <> 'deleted';";

static const char sandbox_network[] =
    "ALTER TABLE sandboxes ADD COLUMN network TEXT NOT NULL DEFAULT 'none';";

static const char counted_files[] =
    "ALTER TABLE workspaces ADD COLUMN scan_n BIGINT NOT NULL DEFAULT 0;"
    "ALTER TABLE workspaces ADD COLUMN scanned_ns BIGINT NOT NULL DEFAULT 0;"
    "ALTER TABLE files ADD COLUMN counted_bytes BIGINT NOT NULL DEFAULT 0;"
    "ALTER TABLE files ADD COLUMN counted_scan BIGINT NOT NULL DEFAULT -1;";

static const char installation[] =
    "CREATE TABLE installation (id TEXT NOT NULL);"
    "INSERT INTO installation (id) VALUES (lower(hex(randomblob(16))));";

/* What indices go by does not change before the last step: a lease that begins to end stays where it is
 * in them. leases_open is made last, as before. */
static const char leases_closed[] =
    "DROP INDEX leases_open;"
    "DROP INDEX leases_of_key;"
    "ALTER TABLE leases ADD COLUMN closed INTEGER NOT NULL DEFAULT 0;"
    "UPDATE leases SET closed = 1 WHERE state = 'closed';"
    "CREATE INDEX leases_of_key ON leases (api_key_id, n) WHERE closed = 0;"
    "CREATE INDEX leases_open ON leases (session_id, n) WHERE closed = 0;";

/* The states are compared one by one: for a list of more than two SQLite builds a table each time that a
 * row is written. */
static const char leases_compared[] =
    "ALTER TABLE leases RENAME TO leases_before;"
    "DROP INDEX leases_of_session;"
    "DROP INDEX leases_of_user;"
    "DROP INDEX leases_of_key;"
    "DROP INDEX leases_open;"

    "CREATE TABLE leases ("
    " n INTEGER PRIMARY KEY,"
    " lease_id TEXT NOT NULL UNIQUE,"
    " session_id TEXT NOT NULL REFERENCES sandboxes (session_id),"
    " chat_id TEXT NOT NULL,"
    " user_id TEXT NOT NULL,"
    " api_key_id TEXT,"
    " scope BIGINT NOT NULL,"
    " use_kind TEXT NOT NULL CHECK (use_kind = 'multi' OR use_kind = 'once'),"
    " max_connections BIGINT NOT NULL,"
    " state TEXT NOT NULL CHECK (state = 'pending' OR state = 'active' OR state = 'revoking'"
    "  OR state = 'expiring' OR state = 'unconfirmed' OR state = 'closed'),"
    " issued_at BIGINT NOT NULL,"
    " expires_at BIGINT NOT NULL,"
    " max_expires_at BIGINT NOT NULL,"
    " revoked_at BIGINT NOT NULL,"
    " revoked_reason TEXT NOT NULL,"
    " grant_seq BIGINT NOT NULL,"
    " ep BIGINT NOT NULL,"
    " kid TEXT NOT NULL,"
    " cnf_jkt TEXT NOT NULL,"
    " consumed_at BIGINT NOT NULL,"
    " renewed_kid TEXT NOT NULL,"
    " closed INTEGER NOT NULL DEFAULT 0"
    "  CHECK ((closed = 1 AND state = 'closed') OR (closed = 0 AND state <> 'closed')));"

    "INSERT INTO leases (n, lease_id, session_id, chat_id, user_id, api_key_id, scope, use_kind,"
    " max_connections, state, issued_at, expires_at, max_expires_at, revoked_at, revoked_reason,"
    " grant_seq, ep, kid, cnf_jkt, consumed_at, renewed_kid, closed)"
    " SELECT n, lease_id, session_id, chat_id, user_id, api_key_id, scope, use_kind,"
    " max_connections, state, issued_at, expires_at, max_expires_at, revoked_at, revoked_reason,"
    " grant_seq, ep, kid, cnf_jkt, consumed_at, renewed_kid, closed"
    " FROM leases_before ORDER BY n;"
    "DROP TABLE leases_before;"

    "CREATE INDEX leases_of_session ON leases (session_id, n);"
    "CREATE INDEX leases_of_user ON leases (user_id, n);"
    "CREATE INDEX leases_of_key ON leases (api_key_id, n) WHERE closed = 0;"
    "CREATE INDEX leases_open ON leases (session_id, n) WHERE closed = 0;";

static const char high_water[] = "CREATE TABLE high_water ("
                                 " one INTEGER PRIMARY KEY,"
                                 " at BIGINT NOT NULL);"
                                 "INSERT INTO high_water (one, at) VALUES (1, 0);";

static const char sandbox_detail[] =
    "ALTER TABLE sandboxes ADD COLUMN detail TEXT NOT NULL DEFAULT '';";

/* lease_blocks and lease_open_blocks stand for the indices: storage/lease_blocks.h. Without one that
 * begins with session_id SQLite would read all leases whenever a sandbox is deleted, to see that none is
 * left of it: that a lease has a session is for store_lease_insert() and store_chat_delete() to see to. */
static const char leases_in_blocks[] =
    "ALTER TABLE leases RENAME TO leases_before;"
    "DROP INDEX leases_of_session;"
    "DROP INDEX leases_of_user;"
    "DROP INDEX leases_of_key;"
    "DROP INDEX leases_open;"

    "CREATE TABLE leases ("
    " n INTEGER PRIMARY KEY,"
    " lease_id TEXT NOT NULL UNIQUE,"
    " session_id TEXT NOT NULL,"
    " chat_id TEXT NOT NULL,"
    " user_id TEXT NOT NULL,"
    " api_key_id TEXT,"
    " scope BIGINT NOT NULL,"
    " use_kind TEXT NOT NULL CHECK (use_kind = 'multi' OR use_kind = 'once'),"
    " max_connections BIGINT NOT NULL,"
    " state TEXT NOT NULL CHECK (state = 'pending' OR state = 'active' OR state = 'revoking'"
    "  OR state = 'expiring' OR state = 'unconfirmed' OR state = 'closed'),"
    " issued_at BIGINT NOT NULL,"
    " expires_at BIGINT NOT NULL,"
    " max_expires_at BIGINT NOT NULL,"
    " revoked_at BIGINT NOT NULL,"
    " revoked_reason TEXT NOT NULL,"
    " grant_seq BIGINT NOT NULL,"
    " ep BIGINT NOT NULL,"
    " kid TEXT NOT NULL,"
    " cnf_jkt TEXT NOT NULL,"
    " consumed_at BIGINT NOT NULL,"
    " renewed_kid TEXT NOT NULL,"
    " closed INTEGER NOT NULL DEFAULT 0"
    "  CHECK ((closed = 1 AND state = 'closed') OR (closed = 0 AND state <> 'closed')));"

    "INSERT INTO leases SELECT n, lease_id, session_id, chat_id, user_id, api_key_id, scope, "
    "use_kind,"
    " max_connections, state, issued_at, expires_at, max_expires_at, revoked_at, revoked_reason,"
    " grant_seq, ep, kid, cnf_jkt, consumed_at, renewed_kid, closed"
    " FROM leases_before ORDER BY n;"
    "DROP TABLE leases_before;"

    "CREATE TABLE lease_blocks ("
    " owner_id TEXT NOT NULL," /* of a session, a user or an API key */
    " block BIGINT NOT NULL,"
    " PRIMARY KEY (owner_id, block)) WITHOUT ROWID;"
    "INSERT INTO lease_blocks SELECT session_id, n / 128 FROM leases"
    " UNION SELECT user_id, n / 128 FROM leases"
    " UNION SELECT api_key_id, n / 128 FROM leases WHERE api_key_id IS NOT NULL;"
    "CREATE TABLE lease_open_blocks (block INTEGER PRIMARY KEY);"
    "INSERT INTO lease_open_blocks SELECT DISTINCT n / 128 FROM leases WHERE closed = 0;";

const struct migration migrations[] = {
    {1, "people_and_chats", people_and_chats, NULL},
    {2, "sandboxes_and_leases", sandboxes_and_leases, NULL},
    {3, "keys_and_audit", keys_and_audit, NULL},
    {4, "lists_and_idempotency", lists_and_idempotency, NULL},
    {5, "door_certificates", door_certificates, NULL},
    {6, "leases_once_and_bound", leases_once_and_bound, NULL},
    {7, "signing_keys", signing_keys, NULL},
    {8, "workspace_usage", workspace_usage, NULL},
    {9, "event_log", event_log, NULL},
    {10, "audit_blocks", audit_blocks, audit_rows_convert},
    {11, "audit_rows_gone", audit_rows_gone, NULL},
    {12, "leases_in_order", leases_in_order, NULL},
    {13, "workspace_activity", workspace_activity, NULL},
    {14, "identities", identities, NULL},
    {15, "sandbox_network", sandbox_network, NULL},
    {16, "files", files, NULL},
    {17, "artifacts", artifacts, NULL},
    {18, "counted_files", counted_files, NULL},
    {19, "installation", installation, NULL},
    {20, "leases_closed", leases_closed, NULL},
    {21, "leases_compared", leases_compared, NULL},
    {22, "high_water", high_water, NULL},
    {23, "sandbox_detail", sandbox_detail, NULL},
    {24, "leases_in_blocks", leases_in_blocks, NULL},
    {0},
};
