/* The keys of the file in the order of docs/configuration.md: names, bounds and defaults. */
#include "config_load.h"

#define SECONDS_MAX (10 * INT64_C(31536000)) /* ten years: nothing here is meant to last longer */
#define BYTES_MAX   (INT64_C(1) << 53)
#define ID_MAX      INT64_C(4294967294) /* (uid_t)-1 means "leave it" to the kernel */
#define COUNT_MAX   INT64_C(1000000000)

#define SECONDS(T, m, default_text)                                                                \
    FIELD_INT(T, m, .min = 1, .max = SECONDS_MAX, .def = default_text)
#define TEXT(T, m, default_text)        FIELD_STR(T, m, .def = default_text)
#define TEXT_NEEDED(T, m, default_text) FIELD_STR(T, m, .min = 1, .def = default_text)
#define CHOICE(T, m, choices, default_text)                                                        \
    FIELD_ENUM(T, m, .names = (choices), .flags = FIELD_ANY_CASE, .def = default_text)

/* A key whose member stands in struct config itself under a longer name. */
#define FLAG_OF(key, member, default_text)                                                         \
    {                                                                                              \
        .name = (key), .kind = FIELD_KIND_BOOL, .flags = FIELD_ANY_CASE,                           \
        .offset = offsetof(struct config, member), .def = default_text                             \
    }
#define SECTION_OF(key, where, table)                                                              \
    {                                                                                              \
        .name = (key), .kind = FIELD_KIND_OBJECT, .offset = (where), .fields = (table)             \
    }

static const char *const level_names[] = {"debug", "info", "warning", "error", NULL};
static const char *const output_names[] = {"stdout", "file", "otel", NULL};
static const char *const format_names[] = {"json", "text", NULL};
static const char *const engine_names[] = {"local", "docker", NULL};
const char *const config_network_names[] = {"none", "internal", "bridge", NULL};
static const char *const signing_names[] = {"auto", "signed", "unsigned", NULL};
static const char *const door_tls_names[] = {"off", "internal-ca", "files", NULL};

const char *const jwt_algorithm_names[] = {"RS256", "RS384", "RS512", "ES256",
                                           "ES384", "ES512", NULL};
const char *const certificate_role_names[] = {"viewer", "bot", "admin", NULL};

static const struct field app_fields[] = {
    TEXT_NEEDED(struct config_app, name, "leasehold"),
    TEXT(struct config_app, env, "local"),
    TEXT_NEEDED(struct config_app, instance, "default"),
    FIELD_STR(struct config_app, node, .max = 127, .def = "", .doc = "Default: the host name."),
    {0},
};

static const struct field http_tls_fields[] = {
    TEXT(struct config_tls, cert_file, ""),
    TEXT(struct config_tls, key_file, ""),
    TEXT(struct config_tls, client_ca_file, ""),
    {0},
};

static const struct field http_fields[] = {
    TEXT_NEEDED(struct config_http, host, "127.0.0.1"),
    FIELD_INT(struct config_http, port, .min = 0, .max = 65535, .def = "8123"),
    FIELD_INT(struct config_http, max_body_bytes, .min = 1, .max = INT64_C(1) << 30,
              .def = "1048576"),
    FIELD_INT(struct config_http, max_connections_per_address, .min = 0, .max = COUNT_MAX,
              .def = "1000"),
    FIELD_STRLIST(struct config_http, origins, .max = CONFIG_LIST_MAX),
    FIELD_OBJECT(struct config_http, tls, http_tls_fields),
    {0},
};

static const struct field logging_fields[] = {
    CHOICE(struct config_logging, level, level_names, "info"),
    CHOICE(struct config_logging, output, output_names, "stdout"),
    CHOICE(struct config_logging, format, format_names, "json"),
    TEXT(struct config_logging, file_path, ""),
    {0},
};

static const struct field metrics_fields[] = {FLAG_OF("enabled", metrics_enabled, "true"), {0}};
static const struct field tracing_fields[] = {FLAG_OF("enabled", tracing_enabled, "false"), {0}};

static const struct field otel_fields[] = {
    TEXT(struct config_otel, service_name, "leasehold"),
    TEXT(struct config_otel, logs_endpoint, ""),
    TEXT(struct config_otel, metrics_endpoint, ""),
    TEXT(struct config_otel, traces_endpoint, ""),
    FIELD_INT(struct config_otel, metric_export_interval, .min = 1, .max = 86400000, .def = "1000"),
    {0},
};

static const struct field docker_tls_fields[] = {
    TEXT(struct config_tls, ca_file, ""),
    TEXT(struct config_tls, cert_file, ""),
    TEXT(struct config_tls, key_file, ""),
    {0},
};

static const struct field registry_fields[] = {
    FIELD_STR(struct config_registry, host, .min = 1, .max = 255, .flags = FIELD_REQUIRED),
    FIELD_STR(struct config_registry, username, .min = 1, .max = 255, .flags = FIELD_REQUIRED),
    FIELD_STR(struct config_registry, password_file, .min = 1, .flags = FIELD_REQUIRED),
    {0},
};

static const struct field docker_fields[] = {
    TEXT_NEEDED(struct config_docker, base_url, "unix:///var/run/docker.sock"),
    SECONDS(struct config_docker, pull_timeout_seconds, "600"),
    FIELD_OBJLIST(struct config_docker, registries, registry_fields, struct config_registry,
                  .max = CONFIG_LIST_MAX),
    FIELD_OBJECT(struct config_docker, tls, docker_tls_fields),
    {0},
};

static const struct field sandbox_fields[] = {
    CHOICE(struct config_sandbox, engine, engine_names, "local"),
    SECONDS(struct config_sandbox, ttl_seconds, "300"),
    SECONDS(struct config_sandbox, max_ttl_seconds, "43200"),
    SECONDS(struct config_sandbox, cleanup_interval_seconds, "60"),
    SECONDS(struct config_sandbox, start_timeout_seconds, "60"),
    FIELD_INT(struct config_sandbox, uid, .min = 1, .max = ID_MAX, .def = "10001"),
    FIELD_INT(struct config_sandbox, gid, .min = 1, .max = ID_MAX, .def = "10001"),
    TEXT_NEEDED(struct config_sandbox, chats_root, "data/workspaces"),
    TEXT_NEEDED(struct config_sandbox, dependencies_host_path, "data/bundles"),
    TEXT_NEEDED(struct config_sandbox, lambda_tools_host_path, "data/tools"),
    TEXT_NEEDED(struct config_sandbox, chat_mount_path, "/workspace/chat"),
    TEXT_NEEDED(struct config_sandbox, dependencies_mount_path, "/opt/dependencies"),
    TEXT_NEEDED(struct config_sandbox, lambda_tools_mount_path, "/opt/lambda-tools"),
    TEXT_NEEDED(struct config_sandbox, user_tools_mount_path, "/opt/user-tools"),
    FIELD_INT(struct config_sandbox, user_tools_uid, .min = 1, .max = ID_MAX, .def = "10003"),
    FIELD_INT(struct config_sandbox, user_tools_gid, .min = 1, .max = ID_MAX, .def = "10003"),
    SECONDS(struct config_sandbox, user_tools_timeout_seconds, "600"),
    FIELD_INT(struct config_sandbox, user_tools_at_once, .min = 1, .max = 64, .def = "8"),
    FIELD_INT(struct config_sandbox, user_tools_per_second, .min = 1, .max = 1000, .def = "20"),
    TEXT(struct config_sandbox, image, ""),
    TEXT_NEEDED(struct config_sandbox, default_profile, "default"),
    {0},
};

static const struct field limits_fields[] = {
    FIELD_INT(struct config_limits, memory_bytes, .min = 1, .max = BYTES_MAX, .def = "268435456"),
    FIELD_REAL(struct config_limits, cpus, .min = 0, .max = 4096, .def = "1"),
    FIELD_INT(struct config_limits, pids, .min = 1, .max = INT64_C(1) << 22, .def = "256"),
    {0},
};

static const struct field secret_fields[] = {
    FIELD_STR(struct config_secret, name, .min = 1, .max = 64, .flags = FIELD_REQUIRED),
    FIELD_STR(struct config_secret, file, .min = 1, .flags = FIELD_REQUIRED),
    {0},
};

static const struct field profile_fields[] = {
    FIELD_STR(struct config_profile, name, .min = 1, .max = 64, .flags = FIELD_REQUIRED),
    FIELD_STRLIST(struct config_profile, command, .max = CONFIG_LIST_MAX),
    TEXT_NEEDED(struct config_profile, transport, "stdio"),
    TEXT(struct config_profile, image, ""),
    TEXT(struct config_profile, runtime, ""),
    FIELD_OBJECT(struct config_profile, limits, limits_fields),
    CHOICE(struct config_profile, network, config_network_names, "none"),
    FIELD_STRLIST(struct config_profile, tmpfs, .max = CONFIG_LIST_MAX),
    FIELD_BOOL(struct config_profile, record_history, .flags = FIELD_ANY_CASE, .def = "true"),
    FIELD_STRLIST(struct config_profile, environment, .max = CONFIG_LIST_MAX),
    FIELD_OBJLIST(struct config_profile, secrets, secret_fields, struct config_secret,
                  .max = CONFIG_LIST_MAX),
    FIELD_STRLIST(struct config_profile, services, .max = CONFIG_LIST_MAX),
    FIELD_STRLIST(struct config_profile, bundles, .max = CONFIG_LIST_MAX),
    {0},
};

static const struct field door_fields[] = {
    FIELD_INT(struct config_door, uid, .min = 1, .max = ID_MAX, .def = "10002"),
    FIELD_INT(struct config_door, gid, .min = 1, .max = ID_MAX, .def = "10002"),
    TEXT_NEEDED(struct config_door, host, "127.0.0.1"),
    TEXT(struct config_door, public_host, ""),
    TEXT_NEEDED(struct config_door, port_range, "0"),
    CHOICE(struct config_door, tls, door_tls_names, "off"),
    TEXT(struct config_door, cert_file, ""),
    TEXT(struct config_door, key_file, ""),
    FIELD_STRLIST(struct config_door, origins, .max = CONFIG_LIST_MAX),
    {0},
};

static const struct field lease_fields[] = {
    FIELD_STR(struct config_lease, issuer, .min = 1, .max = 127, .def = "leasehold"),
    FIELD_INT(struct config_lease, clock_skew_seconds, .min = 0, .max = 3600, .def = "5"),
    FIELD_INT(struct config_lease, global_max, .min = 1, .max = COUNT_MAX, .def = "1000000"),
    SECONDS(struct config_lease, ttl_seconds, "120"),
    SECONDS(struct config_lease, ttl_max_seconds, "900"),
    SECONDS(struct config_lease, max_seconds, "43200"),
    SECONDS(struct config_lease, stale_after_seconds, "3"),
    SECONDS(struct config_lease, seal_after_seconds, "15"),
    FIELD_INT(struct config_lease, max_connections_cap, .min = 1, .max = 8, .def = "8"),
    FIELD_INT(struct config_lease, per_user, .min = 1, .max = COUNT_MAX, .def = "100"),
    FIELD_INT(struct config_lease, per_session, .min = 1, .max = COUNT_MAX, .def = "20"),
    {0},
};

static const struct field storage_fields[] = {
    TEXT_NEEDED(struct config_storage, kind, "sqlite"),
    TEXT_NEEDED(struct config_storage, data_dir, "data"),
    TEXT(struct config_storage, dsn_file, ""),
    FIELD_INT(struct config_storage, quota_bytes, .min = 1, .max = BYTES_MAX, .def = "10737418240"),
    {0},
};

static const struct field stages_fields[] = {
    FLAG_OF("cleanup_on_exit", stages_cleanup_on_exit, "true"),
    {0},
};

static const struct field bundles_fields[] = {
    {.name = "max_bytes",
     .kind = FIELD_KIND_INT,
     .offset = offsetof(struct config, bundles_max_bytes),
     .min = 1,
     .max = BYTES_MAX,
     .def = "53687091200"},
    {0},
};

static const struct field objects_fields[] = {
    TEXT_NEEDED(struct config_objects, kind, "disk"),
    FIELD_INT(struct config_objects, presign_seconds, .min = 1, .max = 604800, .def = "900"),
    TEXT(struct config_objects, endpoint, ""),
    TEXT(struct config_objects, public_endpoint, ""),
    TEXT(struct config_objects, region, ""),
    TEXT(struct config_objects, bucket, ""),
    TEXT(struct config_objects, prefix, ""),
    FIELD_BOOL(struct config_objects, path_style, .flags = FIELD_ANY_CASE, .def = "true"),
    FIELD_STR(struct config_objects, access_key, .flags = FIELD_SECRET, .def = ""),
    TEXT(struct config_objects, secret_key_file, ""),
    TEXT(struct config_objects, ca_file, ""),
    CHOICE(struct config_objects, payload_signing, signing_names, "auto"),
    {0},
};

static const struct field retention_fields[] = {
    SECONDS(struct config_retention, file_idle_seconds, "259200"),
    SECONDS(struct config_retention, workspace_idle_seconds, "7776000"),
    SECONDS(struct config_retention, artifact_ttl_seconds, "604800"),
    SECONDS(struct config_retention, artifact_delivered_grace_seconds, "3600"),
    SECONDS(struct config_retention, interval_seconds, "300"),
    SECONDS(struct config_retention, events_seconds, "604800"),
    FIELD_INT(struct config_retention, events_max, .min = 1, .max = COUNT_MAX, .def = "1000000"),
    {0},
};

static const struct field service_fields[] = {
    TEXT(struct config_service, image, ""),
    {0},
};

static const struct field services_fields[] = {
    FIELD_OBJECT(struct config, postgres, service_fields),
    FIELD_OBJECT(struct config, redis, service_fields),
    {0},
};

static const struct field jwt_fields[] = {
    TEXT(struct config_jwt, issuer, ""),
    TEXT(struct config_jwt, audience, ""),
    CHOICE(struct config_jwt, algorithm, jwt_algorithm_names, "RS256"),
    TEXT(struct config_jwt, key_file, ""),
    FIELD_INT(struct config_jwt, leeway_seconds, .min = 0, .max = 3600, .def = "30"),
    FIELD_STR(struct config_jwt, role_claim, .min = 1, .max = 64, .def = "role"),
    FIELD_STR(struct config_jwt, users_claim, .max = 64, .def = ""),
    {0},
};

static const struct field certificate_fields[] = {
    FIELD_STR(struct config_certificate, name, .min = 1, .max = 120, .flags = FIELD_REQUIRED),
    FIELD_ENUM(struct config_certificate, role, .names = certificate_role_names,
               .flags = FIELD_REQUIRED | FIELD_ANY_CASE),
    FIELD_IDLIST(struct config_certificate, allowed_users, .max = CONFIG_LIST_MAX,
                 .has = offsetof(struct config_certificate, has_allowed_users)),
    {0},
};

static const struct field rate_limit_fields[] = {
    FIELD_REAL(struct config_security, requests_per_second, .min = 0, .max = COUNT_MAX,
               .def = "200"),
    FIELD_INT(struct config_security, burst, .min = 0, .max = COUNT_MAX, .def = "400"),
    {0},
};

static const struct field security_fields[] = {
    FIELD_STR(struct config_security, token_header, .min = 1, .max = 64, .def = "X-API-Token"),
    FIELD_OBJECT(struct config_security, jwt, jwt_fields),
    FIELD_OBJLIST(struct config_security, client_certificates, certificate_fields,
                  struct config_certificate, .max = CONFIG_LIST_MAX),
    SECTION_OF("rate_limit", 0, rate_limit_fields),
    {0},
};

const struct field config_fields[] = {
    FIELD_OBJECT(struct config, app, app_fields),
    TEXT_NEEDED(struct config, run_dir, "run"),
    FIELD_OBJECT(struct config, http, http_fields),
    FIELD_OBJECT(struct config, logging, logging_fields),
    SECTION_OF("metrics", 0, metrics_fields),
    SECTION_OF("tracing", 0, tracing_fields),
    FIELD_OBJECT(struct config, otel, otel_fields),
    FIELD_OBJECT(struct config, docker, docker_fields),
    FIELD_OBJECT(struct config, sandbox, sandbox_fields),
    FIELD_OBJLIST(struct config, profiles, profile_fields, struct config_profile,
                  .max = CONFIG_LIST_MAX),
    FIELD_OBJECT(struct config, door, door_fields),
    FIELD_OBJECT(struct config, lease, lease_fields),
    FIELD_OBJECT(struct config, storage, storage_fields),
    SECTION_OF("stages", 0, stages_fields),
    SECTION_OF("bundles", 0, bundles_fields),
    FIELD_OBJECT(struct config, objects, objects_fields),
    FIELD_OBJECT(struct config, retention, retention_fields),
    SECTION_OF("services", 0, services_fields),
    FIELD_OBJECT(struct config, security, security_fields),
    {0},
};

const size_t config_path_offsets[] = {
    offsetof(struct config, run_dir),
    offsetof(struct config, http.tls.cert_file),
    offsetof(struct config, http.tls.key_file),
    offsetof(struct config, http.tls.client_ca_file),
    offsetof(struct config, logging.file_path),
    offsetof(struct config, docker.tls.ca_file),
    offsetof(struct config, docker.tls.cert_file),
    offsetof(struct config, docker.tls.key_file),
    offsetof(struct config, sandbox.chats_root),
    offsetof(struct config, sandbox.dependencies_host_path),
    offsetof(struct config, sandbox.lambda_tools_host_path),
    offsetof(struct config, door.cert_file),
    offsetof(struct config, door.key_file),
    offsetof(struct config, storage.data_dir),
    offsetof(struct config, storage.dsn_file),
    offsetof(struct config, objects.secret_key_file),
    offsetof(struct config, security.jwt.key_file),
    offsetof(struct config, objects.ca_file),
};

const size_t config_path_count = sizeof(config_path_offsets) / sizeof(config_path_offsets[0]);
