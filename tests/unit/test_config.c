#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "leasehold/config.h"
#include "leasehold/json.h"
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

static char dir[] = "/tmp/leasehold-config-XXXXXX";
static char file[64];
static struct config c;
static struct err e;

static int make_dir(void **state)
{
    (void)state;
    if (mkdtemp(dir) == NULL) {
        return -1;
    }
    snprintf(file, sizeof(file), "%s/leasehold.yaml", dir);
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    unlink(file);
    return rmdir(dir);
}

static int load_env(const char *text, char *const *env)
{
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    assert_int_equal(fclose(f), 0);
    return config_load(file, env, &c, &e);
}

static void assert_loads(const char *text)
{
    if (load_env(text, NULL) != 0) {
        fail_msg("%s\n%s", e.msg, text);
    }
}

/* `place` is what comes behind the file's name. */
static void assert_refused(const char *text, const char *place)
{
    if (load_env(text, NULL) == 0) {
        config_done(&c);
        fail_msg("accepted: %s", text);
    }
    char want[300];
    snprintf(want, sizeof(want), "%s%s", file, place);
    if (strncmp(e.msg, want, strlen(want)) != 0) {
        fail_msg("not \"%s\" but: %s", want, e.msg);
    }
    assert_true(utf8_valid(e.msg, strlen(e.msg)));
}

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
        "docker: {base_url: 'tcp://host:2376', tls: {ca_file: a, cert_file: b, "
        "key_file: c}}\n"
        "sandbox: {engine: Docker, image: \"debian:12\", default_profile: b}\n"
        "profiles:\n"
        "  - {name: a, command: [x], transport: 'tcp:7000', network: internal}\n"
        "  - {name: b, command: [x, y], transport: 'ws:7000/path', network: bridge,\n"
        "     record_history: false, services: [postgres, redis], bundles: [n@1.2]}\n"
        "  - {name: c, command: [x], transport: 'unix:/run/agent.sock'}\n"
        "door: {tls: internal-ca, port_range: 7000-7100, origins: ['https://x']}\n"
        "storage: {kind: postgres, dsn_file: dsn}\n"
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
    assert_loads("logging: {output: otel}\notel: {logs_endpoint: 'http://127.0.0.1:4318'}\n");
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

/* --- strictness ------------------------------------------------------------------------------ */

static void unknown_keys_name_line_and_key(void **state)
{
    (void)state;
    assert_refused("app: {name: x}\nhttps: {}\n", ":2: https is unknown; known: app, run_dir, ");
    assert_refused("http:\n  port: 1\n  prot: 2\n",
                   ":3: http.prot is unknown; known: host, port, max_body_bytes, tls");
    assert_refused("http:\n  tls:\n    cert: x\n",
                   ":3: http.tls.cert is unknown; known: cert_file");
    assert_refused("profiles:\n  - name: a\n    command: [x]\n  - name: b\n    comand: [x]\n",
                   ":5: profiles[1].comand is unknown");
    assert_refused("security: {jwt: {issuer: x}}\n",
                   ":1: security.jwt.issuer is unknown; known: none");
    assert_refused("\"a\\e\\\"\": 1\n", ":1: a\\u001b\\u0022 is unknown");
    assert_refused("HTTP: {}\n", ":1: HTTP is unknown");
    assert_refused("<<: {}\n", ":1: << is unknown");
}

static void wrong_values_name_line_and_key(void **state)
{
    (void)state;
    assert_refused("http:\n  port: 12x\n", ":2: http.port must be a whole number from 0 to 65535");
    assert_refused("http: {port: 65536}\n", ":1: http.port must be a whole number");
    assert_refused("http: {port: 0x10}\n", ":1: http.port must be a whole number");
    assert_refused("http: {port: 1.0}\n", ":1: http.port must be a whole number");
    assert_refused("http: {port: [1]}\n", ":1: http.port must be a single value");
    assert_refused("http: {host: ''}\n", ":1: http.host must not be empty");
    assert_refused("http: 1\n", ":1: http must be a section of keys");
    assert_refused("http: [1]\n", ":1: http must be a section of keys");
    assert_refused("metrics: {enabled: maybe}\n", ":1: metrics.enabled must be true or false");
    assert_refused("logging:\n\n  level: loud\n",
                   ":3: logging.level must be one of: debug, info, warning, error");
    assert_refused("profiles: {}\n", ":1: profiles must be a list");
    assert_refused("profiles: [x]\n", ":1: profiles must be a list of sections");
    assert_refused("profiles: [{name: a, command: x}]\n", ":1: profiles[0].command must be a list");
    assert_refused("profiles: [{name: a, command: [[x]]}]\n",
                   ":1: profiles[0].command must be a list of single values");
    assert_refused("profiles:\n- command: [x]\n", ":3: profiles[0].name is missing");
    assert_refused("profiles: [{name: , command: [x]}]\n",
                   ":1: profiles[0].name must have a value");
    assert_refused("profiles: [{name: a, limits: {cpus: .5}}]\n",
                   ":1: profiles[0].limits.cpus must be a number");
    assert_refused("app: {name: \"a\\0b\"}\n", ":1: app.name must be UTF-8 without NUL");
}

static void yaml_beyond_the_plain_is_refused(void **state)
{
    (void)state;
    assert_refused("http: {port: 1}\nhttp: {port: 2}\n", ":2: http is given twice");
    assert_refused("http: {port: 1, port: 1}\n", ":1: http.port is given twice");
    assert_refused("app: &a {name: x}\n", ":1: anchors, aliases and tags");
    assert_refused("run_dir: &a x\n", ":1: anchors, aliases and tags");
    assert_refused("run_dir: *a\n", ":1: anchors, aliases and tags");
    assert_refused("http: {port: !!int 1}\n", ":1: anchors, aliases and tags");
    assert_refused("a: 1\n---\nb: 1\n", ":1: a is unknown");
    assert_refused("run_dir: x\n---\nrun_dir: y\n", ":2: the file must hold one document");
    assert_refused("[1]\n", ":1: the file must hold sections of keys");
    assert_refused("hello\n", ":1: the file must hold sections of keys");
    assert_refused("[a]: 1\n", ":1: ");
    assert_refused("? [a]\n: 1\n", ":1: a key must be a name");
    assert_refused("http: {port: 1\n", ":2: ");
    assert_refused("http:\n\tport: 1\n", ":2: ");
    assert_refused("app: {name: \"\xff\"}\n", ": ");
    assert_refused("\x01\n", ": ");
}

static void checks_between_keys_name_where_the_value_stands(void **state)
{
    (void)state;
    assert_refused("sandbox:\n  default_profile: x\n",
                   ":2: sandbox.default_profile names no profile");
    assert_refused("profiles:\n- {name: a, command: [x]}\n",
                   ": sandbox.default_profile names no profile");
    assert_refused("profiles:\n- {name: a, command: [x]}\n- name: a\n  command: [x]\n",
                   ":3: there are two profiles of the name a");
    assert_refused("profiles: []\n", ":1: profiles must hold at least one");
    assert_refused("profiles:\n- name: a\n  command: []\n",
                   ":3: command of profile a must not be empty");
    assert_refused("profiles:\n- name: a\n", ":2: command of profile a must not be empty");
    assert_refused("profiles:\n- name: a\n  command: ['']\n",
                   ":3: command of profile a must not be empty");
    assert_refused("profiles:\n- {name: a/b, command: [x]}\n", ":2: a profile's name may hold");
    assert_refused("profiles:\n- {name: a, command: [x], limits: {cpus: 0}}\n",
                   ":2: limits.cpus of profile a must be above 0");
    assert_refused("profiles:\n- {name: a, command: [x], services: [mysql]}\n",
                   ":2: services of profile a may hold: postgres, redis");
    assert_refused("profiles:\n- {name: a, command: [x], bundles: [x]}\n",
                   ":2: bundles of profile a must be name@version");
    assert_refused("lease: {ttl_seconds: 901}\n",
                   ":1: lease.ttl_seconds must not exceed lease.ttl_max_seconds");
    assert_refused("lease:\n  max_seconds: 899\n",
                   ": lease.ttl_max_seconds must not exceed lease.max_seconds");
    assert_refused("sandbox: {ttl_seconds: 43201}\n",
                   ":1: sandbox.ttl_seconds must not exceed sandbox.max_ttl_seconds");
    assert_refused("sandbox: {chat_mount_path: x}\n", ":1: sandbox: a mount path must be absolute");
    assert_refused("sandbox: {chat_mount_path: /opt/user-tools}\n", ": sandbox: two mount paths");
    assert_refused("sandbox: {uid: 10002}\n", ": door.uid must not be sandbox.uid");
    assert_refused("http: {tls: {key_file: x}}\n", ":1: http.tls needs cert_file and key_file");
    assert_refused("http: {tls: {client_ca_file: x}}\n", ":1: http.tls.client_ca_file needs");
    assert_refused("docker: {base_url: 'http://x'}\n", ":1: docker.base_url must be");
    assert_refused("docker: {base_url: 'unix://x'}\n", ":1: docker.base_url must be");
    assert_refused("logging: {output: file}\n", ":1: logging.output file needs");
    assert_refused("logging: {output: otel}\n", ":1: logging.output otel needs");
    assert_refused("storage: {kind: mysql}\n", ":1: storage.kind must be one of: sqlite, postgres");
    assert_refused("storage: {kind: postgres}\n", ":1: storage.kind postgres needs");
    assert_refused("objects: {kind: s3}\n", ":1: objects.kind s3 needs");
    assert_refused("objects: {kind: ''}\n", ":1: objects.kind must not be empty");
    assert_refused("security: {token_header: 'X: Y'}\n", ":1: security.token_header must be");
}

static void transports_are_checked(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "STDIO",
        "stdio ",
        "tcp",
        "tcp:",
        "tcp:0",
        "tcp:01",
        "tcp:x",
        "tcp:65536",
        "tcp:7000/",
        "ws:7000",
        "ws:/x",
        "ws:0/",
        "ws:70 0/",
        "ws:7000/a b",
        "ws:7000/\xd0\xb6",
        "unix:",
        "unix:x",
        "unix:/",
        "udp:1",
        "tcp:99999999999999999999",
    };
    char text[200];
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        snprintf(text, sizeof(text),
                 "profiles:\n- name: default\n  command: [x]\n  transport: '%s'\n", bad[i]);
        assert_refused(text, *bad[i] == '\0' ? ":4: profiles[0].transport must not be empty"
                                             : ":4: transport of profile default must be one of");
    }
    static const char *const good[] = {"stdio",  "tcp:1",       "tcp:65535",
                                       "ws:80/", "ws:80/a?b=c", "unix:/a"};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        snprintf(text, sizeof(text), "profiles: [{name: default, command: [x], transport: '%s'}]\n",
                 good[i]);
        assert_loads(text);
        config_done(&c);
    }
}

static void port_ranges_are_checked(void **state)
{
    (void)state;
    static const char *const bad[] = {"00",    "-1",    "1-", "-",     "2-1",  "1-65536",    "0-5",
                                      "1-2-3", "65536", "a",  "1 - 2", "01-2", "99999999999"};
    char text[100];
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        snprintf(text, sizeof(text), "door:\n  port_range: '%s'\n", bad[i]);
        assert_refused(text, ":2: door.port_range must be 0, a port, or FIRST-LAST");
    }
    static const char *const good[] = {"0", "1", "65535", "1-65535", "80-80"};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        snprintf(text, sizeof(text), "door: {port_range: %s}\n", good[i]);
        assert_loads(text);
        config_done(&c);
    }
}

static void a_long_list_is_refused(void **state)
{
    (void)state;
    char text[600] = "door: {origins: [";
    for (int i = 0; i < 65; i++) {
        strcat(text, "x, ");
    }
    strcat(text, "]}\n");
    assert_refused(text, ":1: door.origins holds too many items");
}

static void files_that_cannot_be_read_are_named(void **state)
{
    (void)state;
    assert_int_equal(config_load("/nonexistent/leasehold.yaml", NULL, &c, &e), -1);
    assert_int_equal(e.code, ERR_NOT_FOUND);
    assert_int_equal(e.sys, ENOENT);
    assert_non_null(strstr(e.msg, "/nonexistent/leasehold.yaml: No such file"));
    assert_int_equal(config_load(dir, NULL, &c, &e), -1);
    assert_int_equal(e.sys, EISDIR);
    char name[200] = "/nonexistent";
    for (int i = 0; i < 40; i++) {
        strcat(name, "/\xd0\xb6");
    }
    strcat(name, "/end.yaml");
    assert_int_equal(config_load(name, NULL, &c, &e), -1);
    assert_non_null(strstr(e.msg, "/end.yaml: No such file"));
    assert_true(utf8_valid(e.msg, strlen(e.msg)));
}

static void ret_is_untouched_on_failure(void **state)
{
    (void)state;
    memset(&c, 0x5a, sizeof(c));
    struct config before = c;
    assert_int_equal(load_env("x: 1\n", NULL), -1);
    assert_memory_equal(&c, &before, sizeof(c));
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
    assert_non_null(strstr(text, "  tls: off\n"));
    assert_non_null(strstr(text, "  jwt: {}\n"));
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
        cmocka_unit_test(unknown_keys_name_line_and_key),
        cmocka_unit_test(wrong_values_name_line_and_key),
        cmocka_unit_test(yaml_beyond_the_plain_is_refused),
        cmocka_unit_test(checks_between_keys_name_where_the_value_stands),
        cmocka_unit_test(transports_are_checked),
        cmocka_unit_test(port_ranges_are_checked),
        cmocka_unit_test(a_long_list_is_refused),
        cmocka_unit_test(files_that_cannot_be_read_are_named),
        cmocka_unit_test(ret_is_untouched_on_failure),
        cmocka_unit_test(environment_lies_over_the_file),
        cmocka_unit_test(wrong_variables_are_named),
        cmocka_unit_test(what_is_printed_loads_as_the_same),
        cmocka_unit_test(print_shows_every_key_and_no_secret),
        cmocka_unit_test(print_that_passes_the_cap_fails_the_buffer),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
