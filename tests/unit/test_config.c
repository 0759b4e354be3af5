#include "config_file.h"
#include "leasehold/log.h"

/* docs/configuration.md, as it stands there. */
static const char contract[] =
    "app: {name: leasehold, env: local, instance: default, node: \"\"}      # node: default the "
    "host name\n"
    "run_dir: run                                   # sockets live here: checked at start against "
    "the 107-byte limit\n"
    "http: {host: 127.0.0.1, port: 8123, max_body_bytes: 1048576}      # port 0 = any free one, "
    "see run/ready\n"
    "                                               # tls: {cert_file, key_file, client_ca_file}\n"
    "logging: {level: info, output: stdout, format: json}      # stdout | file (file_path) | otel; "
    "json | text\n"
    "metrics: {enabled: true}\n"
    "tracing: {enabled: false}\n"
    "otel: {service_name: leasehold, logs_endpoint: \"\", metrics_endpoint: \"\", traces_endpoint: "
    "\"\", metric_export_interval: 1000}\n"
    "docker: {base_url: \"unix:///var/run/docker.sock\"}         # or tcp://host:2376 with tls: "
    "{ca_file, cert_file, key_file}\n"
    "sandbox:\n"
    "  engine: local                                # local | docker\n"
    "  ttl_seconds: 300                             # idle\n"
    "  max_ttl_seconds: 43200\n"
    "  cleanup_interval_seconds: 60\n"
    "  start_timeout_seconds: 60\n"
    "  uid: 10001                                   # of every agent; the gateway's own when it "
    "does not run as root\n"
    "  gid: 10001\n"
    "  chats_root: data/workspaces                  # layout below it as in STORAGE.md\n"
    "  dependencies_host_path: data/bundles\n"
    "  lambda_tools_host_path: data/tools\n"
    "  chat_mount_path: /workspace/chat\n"
    "  dependencies_mount_path: /opt/dependencies\n"
    "  lambda_tools_mount_path: /opt/lambda-tools\n"
    "  user_tools_mount_path: /opt/user-tools\n"
    "  image: \"\"                                    # of the default profile, for docker\n"
    "  default_profile: default\n"
    "profiles:\n"
    "  - name: default\n"
    "    command: [/run/leasehold/demo-agent]       # echoes each line; installed with the "
    "binaries, bound read-only\n"
    "    transport: stdio                           # stdio | tcp:PORT | ws:PORT/path | unix:PATH\n"
    "    limits: {memory_bytes: 268435456, cpus: 1.0, pids: 256}\n"
    "    network: none                              # none | internal | bridge\n"
    "    record_history: true\n"
    "    services: []                               # opted-in: postgres, redis\n"
    "    bundles: []                                # name@version\n"
    "door: {uid: 10002, gid: 10002, host: 127.0.0.1, public_host: \"\", port_range: \"0\", tls: "
    "off, origins: []}     # tls: off | internal-ca | files\n"
    "lease: {issuer: leasehold, clock_skew_seconds: 5, global_max: 1000000, ttl_seconds: 120, "
    "ttl_max_seconds: 900, max_seconds: 43200, stale_after_seconds: 3, seal_after_seconds: 15, "
    "max_connections_cap: 8, per_user: 100, per_session: 20}\n"
    "storage: {kind: sqlite, data_dir: data, quota_bytes: 10737418240}     # later: postgres with "
    "dsn_file\n"
    "stages: {cleanup_on_exit: true}\n"
    "bundles: {max_bytes: 53687091200}\n"
    "objects: {kind: disk, presign_seconds: 900}    # s3: {endpoint, public_endpoint, region, "
    "bucket, prefix, path_style, access_key, secret_key_file}\n"
    "retention: {file_idle_seconds: 259200, workspace_idle_seconds: 7776000, artifact_ttl_seconds: "
    "604800, artifact_delivered_grace_seconds: 3600, interval_seconds: 300}\n"
    "services: {}                                   # postgres: {image, …}, redis: {image, …}\n"
    "security: {token_header: X-API-Token, jwt: {}, rate_limit: {requests_per_second: 200, burst: "
    "400}}\n";

static void assert_env_refused(const char *variable, const char *part)
{
    char copy[200];
    snprintf(copy, sizeof(copy), "%s", variable);
    char *env[] = {copy, NULL};
    if (load_env("", env) == 0) {
        config_done(&c);
        fail_msg("accepted: %s", variable);
    }
    if (strstr(e.msg, part) == NULL) {
        fail_msg("\"%s\" is not in: %s", part, e.msg);
    }
}

/* The printed form of what `text` loads as; the caller frees. */
static char *printed(const char *text, char *const *env)
{
    struct buf out;
    if (load_env(text, env) != 0) {
        fail_msg("%s\n%s", e.msg, text);
    }
    buf_init(&out, 1 << 20);
    config_print(&c, &out);
    assert_true(buf_ok(&out));
    config_done(&c);
    return out.data;
}

/* --- what the contract shows ----------------------------------------------------------------- */

static void contract_loads(void **state)
{
    (void)state;
    assert_loads(contract);
    assert_string_equal(c.dir, dir);
    assert_string_equal(c.app.name, "leasehold");
    assert_string_not_equal(c.app.node, "");
    assert_int_equal(c.http.port, 8123);
    assert_int_equal(c.logging.level, LOG_INFO);
    assert_int_equal(c.logging.format, LOG_JSON);
    assert_true(c.metrics_enabled);
    assert_false(c.tracing_enabled);
    assert_true(c.stages_cleanup_on_exit);
    assert_int_equal(c.sandbox.engine, ENGINE_LOCAL);
    assert_int_equal(c.profiles.n, 1);
    const struct config_profile *p = config_profile_find(&c, "default");
    assert_non_null(p);
    assert_null(config_profile_find(&c, "other"));
    assert_int_equal(p->command.n, 1);
    assert_string_equal(((char **)p->command.items)[0], "/run/leasehold/demo-agent");
    assert_string_equal(p->transport, "stdio");
    assert_int_equal(p->limits.memory_bytes, 268435456);
    assert_true(p->limits.cpus > 0.99 && p->limits.cpus < 1.01);
    assert_int_equal(p->network, NETWORK_NONE);
    assert_true(p->record_history);
    assert_string_equal(c.door.port_range, "0");
    assert_int_equal(c.door.tls, DOOR_TLS_OFF);
    assert_int_equal(c.lease.ttl_max_seconds, 900);
    assert_true(c.storage.quota_bytes == INT64_C(10737418240));
    assert_true(c.bundles_max_bytes == INT64_C(53687091200));
    assert_string_equal(c.objects.kind, "disk");
    assert_int_equal(c.retention.workspace_idle_seconds, 7776000);
    assert_int_equal(c.security.burst, 400);
    config_done(&c);
}

static void contract_template_and_empty_file_mean_the_same(void **state)
{
    (void)state;
    char *of_contract = printed(contract, NULL);
    char *of_template = printed(config_template, NULL);
    char *of_empty = printed("", NULL);
    char *of_comment = printed("# nothing\n---\n", NULL);
    assert_string_equal(of_contract, of_template);
    assert_string_equal(of_contract, of_empty);
    assert_string_equal(of_contract, of_comment);
    free(of_contract);
    free(of_template);
    free(of_empty);
    free(of_comment);
}

static void commented_variants_load(void **state)
{
    (void)state;
    assert_loads(
        "http: {port: 0, tls: {cert_file: c.pem, key_file: /k.pem, client_ca_file: ca}}\n"
        "logging: {level: WARNING, output: File, file_path: log/x.log, format: TEXT}\n"
        "docker: {base_url: 'tcp://host:2376', registries: [{host: r, username: u, "
        "password_file: p}], tls: {ca_file: a, cert_file: b, "
        "key_file: c}}\n"
        "sandbox: {engine: Docker, image: \"debian:12\", default_profile: b}\n"
        "profiles:\n"
        "  - {name: a, command: [x], transport: 'tcp:7000', network: internal}\n"
        "  - {name: b, command: [x, y], transport: 'ws:7000/path', network: bridge,\n"
        "     record_history: false, services: [postgres, redis], bundles: [n@1.2]}\n"
        "  - {name: c, command: [x], transport: 'unix:/run/agent.sock'}\n"
        "door: {tls: internal-ca, port_range: 7000-7100, origins: ['https://x']}\n"
        "storage: {kind: SQLite, dsn_file: dsn}\n"
        "objects: {kind: S3, endpoint: 'http://s', public_endpoint: 'https://p', region: r, "
        "bucket: b, prefix: p/, path_style: true, access_key: AK, secret_key_file: sk}\n"
        "services: {postgres: {image: 'postgres:15'}, redis: {image: 'redis:7'}}\n");
    char want[100];
    snprintf(want, sizeof(want), "%s/c.pem", dir);
    assert_string_equal(c.http.tls.cert_file, want);
    assert_string_equal(c.http.tls.key_file, "/k.pem");
    assert_int_equal(c.logging.level, LOG_WARNING);
    assert_int_equal(c.logging.output, LOG_TO_FILE);
    assert_int_equal(c.sandbox.engine, ENGINE_DOCKER);
    const struct config_registry *registry = c.docker.registries.items;
    snprintf(want, sizeof(want), "%s/p", dir);
    assert_string_equal(registry->password_file, want);
    assert_int_equal(c.profiles.n, 3);
    assert_int_equal(c.door.tls, DOOR_TLS_INTERNAL_CA);
    assert_string_equal(((char **)c.door.origins.items)[0], "https://x");
    assert_string_equal(c.objects.kind, "s3");
    assert_true(c.objects.path_style);
    assert_string_equal(c.redis.image, "redis:7");
    const struct config_profile *b = config_profile_find(&c, "b");
    assert_int_equal(b->services.n, 2);
    assert_string_equal(((char **)b->bundles.items)[0], "n@1.2");
    assert_false(b->record_history);
    config_done(&c);
}

static void keys_without_a_value_keep_their_default(void **state)
{
    (void)state;
    assert_loads("http:\n  port:\n  tls:\n  host: ~\nprofiles:\nservices: null\ndoor:\n");
    assert_int_equal(c.http.port, 8123);
    assert_string_equal(c.http.host, "127.0.0.1");
    assert_int_equal(c.profiles.n, 1);
    config_done(&c);
}

static void paths_resolve_from_the_directory_of_the_file(void **state)
{
    (void)state;
    assert_loads("storage: {data_dir: /var/lib/x}\nrun_dir: r\n");
    char want[100];
    snprintf(want, sizeof(want), "%s/r", dir);
    assert_string_equal(c.run_dir, want);
    snprintf(want, sizeof(want), "%s/data/workspaces", dir);
    assert_string_equal(c.sandbox.chats_root, want);
    assert_string_equal(c.storage.data_dir, "/var/lib/x");
    assert_string_equal(c.http.tls.cert_file, "");
    config_done(&c);

    char *before = getcwd(NULL, 0);
    assert_int_equal(chdir(dir), 0);
    assert_int_equal(config_load("leasehold.yaml", NULL, &c, &e), 0);
    assert_string_equal(c.dir, dir);
    config_done(&c);
    assert_int_equal(chdir(before), 0);
    free(before);
}

/* --- environment ----------------------------------------------------------------------------- */

static void environment_lies_over_the_file(void **state)
{
    (void)state;
    char *env[] = {"PATH=/bin",
                   "LEASEHOLD_HTTP_PORT=9000",
                   "LEASEHOLD_HTTP_TLS_CERT_FILE=c.pem",
                   "LEASEHOLD_HTTP_TLS_KEY_FILE=/k.pem",
                   "LEASEHOLD_RUN_DIR=elsewhere",
                   "LEASEHOLD_LOGGING_LEVEL=Debug",
                   "LEASEHOLD_METRICS_ENABLED=FALSE",
                   "LEASEHOLD_OTEL_METRICS_ENDPOINT=http://m=1",
                   "LEASEHOLD_STAGES_CLEANUP_ON_EXIT=false",
                   "LEASEHOLD_BUNDLES_MAX_BYTES=1",
                   "LEASEHOLD_SECURITY_RATE_LIMIT_REQUESTS_PER_SECOND=0.5",
                   "LEASEHOLD_SERVICES_REDIS_IMAGE=r",
                   "LEASEHOLD_APP_NODE=n1",
                   "LEASEHOLD_DOOR_PUBLIC_HOST=",
                   "LEASEHOLD_URL=http://x",
                   "LEASEHOLD_KEY=lhk_x",
                   "LEASEHOLD_TEST_ANYTHING=1",
                   "LEASEHOLD_NO_EQUALS_SIGN",
                   "LEASEHOLDX=1",
                   NULL};
    if (load_env("http: {port: 1, host: h}\n", env) != 0) {
        fail_msg("%s", e.msg);
    }
    char want[100];
    assert_int_equal(c.http.port, 9000);
    assert_string_equal(c.http.host, "h");
    snprintf(want, sizeof(want), "%s/c.pem", dir);
    assert_string_equal(c.http.tls.cert_file, want);
    snprintf(want, sizeof(want), "%s/elsewhere", dir);
    assert_string_equal(c.run_dir, want);
    assert_int_equal(c.logging.level, LOG_DEBUG);
    assert_false(c.metrics_enabled);
    assert_string_equal(c.otel.metrics_endpoint, "http://m=1");
    assert_false(c.stages_cleanup_on_exit);
    assert_int_equal(c.bundles_max_bytes, 1);
    assert_true(c.security.requests_per_second > 0.4 && c.security.requests_per_second < 0.6);
    assert_string_equal(c.redis.image, "r");
    assert_string_equal(c.app.node, "n1");
    config_done(&c);
}

static void wrong_variables_are_named(void **state)
{
    (void)state;
    assert_env_refused("LEASEHOLD_HTTP_PROT=1", "environment LEASEHOLD_HTTP_PROT: names no key");
    assert_env_refused("LEASEHOLD_=1", "environment LEASEHOLD_: names no key");
    assert_env_refused("LEASEHOLD_HTTP_=1", "names no key");
    assert_env_refused("LEASEHOLD_http_port=1", "names no key");
    assert_env_refused("LEASEHOLD_HTTP=1", "names a section, not a key");
    assert_env_refused("LEASEHOLD_PROFILES=x", "lists are set in the file only");
    assert_env_refused("LEASEHOLD_DOOR_ORIGINS=x", "lists are set in the file only");
    assert_env_refused("LEASEHOLD_PROFILES_0_NAME=x", "names no key");
    assert_env_refused("LEASEHOLD_URLS=x", "names no key");
    assert_env_refused("LEASEHOLD_HTTP_PORT=",
                       "environment LEASEHOLD_HTTP_PORT: port must be a whole number");
    assert_env_refused("LEASEHOLD_LOGGING_LEVEL=loud", "level must be one of: debug, info");
    assert_env_refused("LEASEHOLD_APP_NAME=\xff", "name must be UTF-8");
    assert_env_refused("LEASEHOLD_DOOR_PORT_RANGE=x",
                       "environment LEASEHOLD_DOOR_PORT_RANGE: door.port_range must be");
    assert_env_refused(
        "LEASEHOLD_LEASE_TTL_SECONDS=901",
        "environment LEASEHOLD_LEASE_TTL_SECONDS: lease.ttl_seconds must not exceed");
}

/* --- printing -------------------------------------------------------------------------------- */

static void what_is_printed_loads_as_the_same(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        "app: {name: \"null\", env: \"~\", instance: 'it''s: #\\'}\n",
        "app: {name: \"a\\e\\x81\\u2028\\uFEFF\\n\\tb\xd0\xb6\\U0001F600\", env: \" x \"}\n",
        "profiles:\n- {name: default, command: [x, '', '-', 'a: b', \"\\n\"], limits: {cpus: "
        "0.1}}\n"
        "- {name: other, command: [y], services: [redis]}\n",
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        char *once = printed(texts[i], NULL);
        char *twice = printed(once, NULL);
        assert_string_equal(once, twice);
        free(once);
        free(twice);
    }
}

static void print_shows_every_key_and_no_secret(void **state)
{
    (void)state;
    char *env[] = {"LEASEHOLD_OBJECTS_ACCESS_KEY=AKIASECRET", NULL};
    char *text = printed("", env);
    assert_null(strstr(text, "AKIASECRET"));
    assert_non_null(strstr(text, "access_key: \"********\""));
    assert_non_null(strstr(text, "\nhttp:\n  host: \"127.0.0.1\"\n  port: 8123\n"));
    assert_non_null(strstr(text, "  tls: \"off\"\n"));
    assert_non_null(strstr(text, "  jwt:\n    issuer: "));
    free(text);
}

static void print_that_passes_the_cap_fails_the_buffer(void **state)
{
    (void)state;
    struct buf out;
    assert_loads("");
    buf_init(&out, 100);
    config_print(&c, &out);
    assert_false(buf_ok(&out));
    buf_done(&out);
    config_done(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contract_loads),
        cmocka_unit_test(contract_template_and_empty_file_mean_the_same),
        cmocka_unit_test(commented_variants_load),
        cmocka_unit_test(keys_without_a_value_keep_their_default),
        cmocka_unit_test(paths_resolve_from_the_directory_of_the_file),
        cmocka_unit_test(environment_lies_over_the_file),
        cmocka_unit_test(wrong_variables_are_named),
        cmocka_unit_test(what_is_printed_loads_as_the_same),
        cmocka_unit_test(print_shows_every_key_and_no_secret),
        cmocka_unit_test(print_that_passes_the_cap_fails_the_buffer),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
