/*
 * The answers of the gateway as structs, with the members leasectl shows or uses. Times stay text:
 * they are only shown, except in a grant.
 */
#ifndef CLI_VIEWS_H
#define CLI_VIEWS_H

#include "output.h"

#define PAGE_ITEMS_MAX 100000

/* A page of a list of T, described by `fields`. */
#define PAGE_FIELDS(fields_, T)                                                                    \
    FIELD_OBJLIST(struct list_view, items, fields_, T, .max = PAGE_ITEMS_MAX,                      \
                  .flags = FIELD_REQUIRED),                                                        \
        FIELD_STR(struct list_view, next_cursor)
#define PAGE_VIEW(fields_, columns_)                                                               \
    {                                                                                              \
        .fields = (fields_), .size = sizeof(struct list_view), .columns = (columns_)               \
    }

struct lease_view {
    char *lease_id, *session_id, *chat_id, *user_id;
    struct list scope; /* char * */
    char *use;
    int64_t max_connections;
    char *state;
    int64_t issued_at, expires_at, max_expires_at;
    char *revoked_at, *revoked_reason;
    int64_t connections;
};

struct endpoint_view {
    char *url, *protocol, *ca_pem, *cert_sha256;
};

struct grant_view {
    struct lease_view *lease;
    char *token;
    struct endpoint_view *endpoint;
    int64_t renew_after;
};

/* How far an image is that a start waits for. */
struct image_view {
    char *image;
    int64_t layers, layers_done, bytes, bytes_done;
};

struct sandbox_view {
    char *session_id, *chat_id, *user_id, *container_id, *engine, *node, *profile;
    int64_t generation;
    char *status, *reason, *detail, *created_at, *started_at, *last_activity_at, *expires_at;
    struct image_view *progress; /* NULL: nothing is waited for */
};

extern const struct field image_fields[];

struct opened_view {
    struct sandbox_view *sandbox;
    struct grant_view *grant;
};

struct message_view {
    int64_t seq;
    char *message_id, *at, *role, *author, *content;
};

struct audit_view {
    int64_t n;
    char *at, *actor, *action, *object, *outcome, *address, *request_id, *detail, *prev, *hash;
};

struct file_view {
    char *file_id, *chat_id, *name, *content_type;
    int64_t size_bytes;
    char *sha256, *created_at, *last_read_at, *last_update_at, *expires_at;
};

struct signing_key_view {
    char *kid, *state, *created_at, *signing_at, *retired_at;
};

struct stats_view {
    int64_t cpu_usage_us, memory_bytes, memory_peak_bytes, pids;
    char *at;
};

extern const struct view view_file;
extern const struct view view_files;
extern const struct view view_cleared;
extern const struct view view_message;
extern const struct view view_audit; /* of one entry */
extern const struct view view_verified;
extern const struct view view_health;
extern const struct view view_workspace;
extern const struct view view_chat;
extern const struct view view_chats;
extern const struct view view_created; /* of POST /create */
extern const struct view view_sandbox;
extern const struct view view_sandboxes;
extern const struct view view_opened;
extern const struct view view_lease;
extern const struct view view_leases;
extern const struct view view_grant;
extern const struct view view_revocation;
extern const struct view view_created_key;
extern const struct view view_api_key;
extern const struct view view_api_keys;
extern const struct view view_signing_keys;
extern const struct view view_signing_list; /* the same keys, as a struct list_view */
extern const struct view view_killed_key;
extern const struct view view_stats; /* of a sandbox */
extern const struct view view_nodes;
extern const struct view view_removed; /* by retention */

#endif
