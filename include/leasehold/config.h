/*
 * The configuration: one YAML file (libyaml) decoded by field tables, every scalar key also by
 * environment. docs/configuration.md is the contract; tables and structs follow its order.
 *
 * Read once at start, then constant: any thread may read it. Strings live in the config's arena.
 */
#ifndef LEASEHOLD_CONFIG_H
#define LEASEHOLD_CONFIG_H

#include "leasehold/field.h"

enum config_engine { ENGINE_LOCAL, ENGINE_DOCKER };
enum config_network { NETWORK_NONE, NETWORK_INTERNAL, NETWORK_BRIDGE };
extern const char *const config_network_names[];
enum config_door_tls { DOOR_TLS_OFF, DOOR_TLS_INTERNAL_CA, DOOR_TLS_FILES };
enum config_signing { SIGNING_AUTO, SIGNING_SIGNED, SIGNING_UNSIGNED };
enum config_log_output { LOG_TO_STDOUT, LOG_TO_FILE, LOG_TO_OTEL };

struct config_tls {
    char *cert_file, *key_file, *client_ca_file, *ca_file;
};

struct config_app {
    char *name, *env, *instance, *node;
};

struct config_http {
    char *host;
    int64_t port, max_body_bytes;
    int64_t max_connections_per_address; /* 0: any number */
    struct list origins;                 /* char * */
    struct config_tls tls;
};

struct config_logging {
    int level;  /* enum log_level */
    int output; /* enum config_log_output */
    int format; /* enum log_format */
    char *file_path;
};

struct config_limits {
    int64_t memory_bytes, pids;
    double cpus;
};

/* A file of the host of which a sandbox sees a copy. */
struct config_secret {
    char *name, *file;
};

struct config_profile {
    char *name;
    struct list command; /* char * */
    char *transport;
    char *image;
    char *runtime; /* "": the engine's own */
    struct config_limits limits;
    int network;       /* enum config_network */
    struct list tmpfs; /* char *: paths in the sandbox */
    bool record_history;
    struct list environment; /* char *: NAME=value */
    struct list secrets;     /* struct config_secret */
    struct list services;    /* char * */
    struct list bundles;     /* char * */
};

struct config_sandbox {
    int engine; /* enum config_engine */
    int64_t ttl_seconds, max_ttl_seconds, cleanup_interval_seconds, start_timeout_seconds, uid, gid;
    int64_t user_tools_uid, user_tools_gid, user_tools_timeout_seconds, user_tools_at_once,
        user_tools_per_second;
    char *chats_root, *dependencies_host_path, *lambda_tools_host_path, *chat_mount_path,
        *dependencies_mount_path, *lambda_tools_mount_path, *user_tools_mount_path, *image,
        *default_profile;
};

struct config_door {
    int64_t uid, gid;
    char *host, *public_host, *port_range;
    int tls;                    /* enum config_door_tls */
    char *cert_file, *key_file; /* of DOOR_TLS_FILES */
    struct list origins;        /* char * */
};

struct config_lease {
    char *issuer;
    int64_t clock_skew_seconds, global_max, ttl_seconds, ttl_max_seconds, max_seconds,
        stale_after_seconds, seal_after_seconds, max_connections_cap, per_user, per_session;
};

struct config_storage {
    char *kind, *data_dir, *dsn_file;
    int64_t quota_bytes;
};

/* Sections whose owners come later are decoded and checked already, so that a file written for the
 * contract loads: metrics, tracing, otel, docker, stages, bundles, services. */
struct config_otel {
    char *service_name, *logs_endpoint, *metrics_endpoint, *traces_endpoint;
    int64_t metric_export_interval;
};

/* Whom a registry of images knows. */
struct config_registry {
    char *host; /* with its port, as images name it */
    char *username, *password_file;
};

struct config_docker {
    char *base_url;
    int64_t pull_timeout_seconds;
    struct list registries; /* struct config_registry */
    struct config_tls tls;
};

struct config_objects {
    char *kind, *endpoint, *public_endpoint, *region, *bucket, *prefix, *access_key,
        *secret_key_file, *ca_file;
    int payload_signing; /* enum config_signing */
    int64_t presign_seconds;
    bool path_style;
};

struct config_retention {
    int64_t file_idle_seconds, workspace_idle_seconds, artifact_ttl_seconds,
        artifact_delivered_grace_seconds, interval_seconds;
    int64_t events_seconds, events_max;
};

struct config_service {
    char *image;
};

/* Tokens of another issuer that callers may come with; issuer "": none. */
struct config_jwt {
    char *issuer, *audience, *key_file, *role_claim, *users_claim;
    int64_t leeway_seconds;
    int algorithm; /* of jwt_algorithm_names */
};
extern const char *const jwt_algorithm_names[];

/* A client certificate of http.tls.client_ca_file, and what it may. */
struct config_certificate {
    char *name; /* its common name, or one of its alternative names */
    int role;   /* of certificate_role_names */
    bool has_allowed_users;
    struct list allowed_users; /* struct id */
};
extern const char *const certificate_role_names[];

struct config_security {
    char *token_header;
    struct config_jwt jwt;
    struct list client_certificates; /* struct config_certificate */
    double requests_per_second;
    int64_t burst;
};

struct config {
    struct arena *arena;
    char *dir; /* of the config file, absolute; relative paths start here */
    char *run_dir;
    struct config_app app;
    struct config_http http;
    struct config_logging logging;
    bool metrics_enabled, tracing_enabled, stages_cleanup_on_exit;
    struct config_otel otel;
    struct config_docker docker;
    struct config_sandbox sandbox;
    struct list profiles; /* struct config_profile, at least one */
    struct config_door door;
    struct config_lease lease;
    struct config_storage storage;
    int64_t bundles_max_bytes;
    struct config_objects objects;
    struct config_retention retention;
    struct config_service postgres, redis;
    struct config_security security;
};

/*
 * Loads FILE, lays LEASEHOLD_… environment (`env`, usually environ) over it, applies defaults,
 * resolves relative paths against the file's directory and checks what can be checked without
 * touching the machine. An error names file, line and key, or the environment variable.
 */
int config_load(const char *file, char *const *env, struct config *ret, struct err *e) MUST_CHECK;
void config_done(struct config *c);

/* Appends the effective configuration as YAML, secrets masked. */
void config_print(const struct config *c, struct buf *out);

/* The text that `leasehold init` writes. */
extern const char config_template[];

/* Letters, digits and _, no digit first. */
bool config_env_name_valid(const char *name, size_t len);

const struct config_profile *config_profile_find(const struct config *c, const char *name);

#endif
