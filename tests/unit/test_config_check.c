#include <errno.h>

#include "config_file.h"
#include "leasehold/json.h"

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

static void unknown_keys_name_line_and_key(void **state)
{
    (void)state;
    assert_refused("app: {name: x}\nhttps: {}\n", ":2: https is unknown; known: app, run_dir, ");
    assert_refused("http:\n  port: 1\n  prot: 2\n",
                   ":3: http.prot is unknown; known: host, port, max_body_bytes, "
                   "max_connections_per_address, origins, tls");
    assert_refused("http:\n  tls:\n    cert: x\n",
                   ":3: http.tls.cert is unknown; known: cert_file");
    assert_refused("profiles:\n  - name: a\n    command: [x]\n  - name: b\n    comand: [x]\n",
                   ":5: profiles[1].comand is unknown");
    assert_refused("security: {jwt: {isuer: x}}\n",
                   ":1: security.jwt.isuer is unknown; known: issuer");
    assert_refused("\"a\\e\\\"\": 1\n", ":1: a\\u001b\\u0022 is unknown");
    assert_refused("HTTP: {}\n", ":1: HTTP is unknown");
    assert_refused("<<: {}\n", ":1: << is unknown");
}

static void a_url_that_cannot_be_used_names_its_line(void **state)
{
    static const char s3[] = "objects:\n  kind: s3\n  bucket: b\n  access_key: a\n"
                             "  secret_key_file: s\n  endpoint: %s\n  public_endpoint: %s\n";
    static const char *const bad[] = {"s3.example.org", "ftp://h",      "http://",
                                      "https:///b",     "http://:80",   "http://h/b",
                                      "http://h?x",     "http://a:b@h", "'http://h /'"};
    static const char *const good[] = {"http://h", "https://h:9000/", "HTTP://[::1]:80"};
    char text[300];
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        snprintf(text, sizeof(text), s3, bad[i], "''");
        assert_refused(text, ":6: objects.endpoint must be http://HOST or https://HOST, with a "
                             "port if need be and no path");
        snprintf(text, sizeof(text), s3, "http://h", bad[i]);
        assert_refused(text, ":7: objects.public_endpoint must be http://HOST");
    }
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        snprintf(text, sizeof(text), s3, good[i], good[i]);
        assert_int_equal(load_env(text, NULL), 0);
        config_done(&c);
    }
    assert_refused("objects: {public_endpoint: bots.example.org}\n",
                   ":1: objects.public_endpoint must be http://HOST or https://HOST, with a port "
                   "and a path if need be");
    assert_refused("objects: {public_endpoint: 'http://h/p?q'}\n",
                   ":1: objects.public_endpoint must be");
    assert_refused("otel: {traces_endpoint: '127.0.0.1:4318'}\n", ":1: otel.traces_endpoint must");
    assert_int_equal(load_env("objects: {public_endpoint: 'https://h/leases'}\n"
                              "otel: {traces_endpoint: 'http://127.0.0.1:4318/v1/traces?a=b'}\n",
                              NULL),
                     0);
    config_done(&c);
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
    assert_refused("profiles:\n- {name: a, command: [x], limits: {memory_bytes: 16777215}}\n",
                   ":2: limits.memory_bytes of profile a must be at least 16777216");
    assert_refused("profiles:\n- {name: a, command: [x], services: [mysql]}\n",
                   ":2: services of profile a may hold: postgres, redis");
    assert_refused("profiles:\n- {name: a, command: [x], bundles: [x]}\n",
                   ":2: bundles of profile a must be name@version");
    assert_refused("profiles:\n- {name: a, command: [x], environment: [x]}\n",
                   ":2: environment of profile a must hold NAME=value");
    assert_refused("profiles:\n- {name: a, command: [x], environment: [\"1X=y\"]}\n",
                   ":2: environment of profile a must hold NAME=value");
    assert_refused("profiles:\n- {name: a, command: [x], environment: [\"X=y\", \"X=\"]}\n",
                   ":2: environment of profile a has a name twice");
    assert_refused("profiles:\n- {name: a, command: [x], secrets: [{name: ../x, file: /f}]}\n",
                   ":2: a secret's name may hold letters, digits and _ . -, no dot first");
    assert_refused("profiles:\n- {name: a, command: [x], secrets: [{name: x, file: /f}, "
                   "{name: x, file: /g}]}\n",
                   ":2: profile a has two secrets of the name x");
    assert_refused("lease: {ttl_seconds: 901}\n",
                   ":1: lease.ttl_seconds must not exceed lease.ttl_max_seconds");
    assert_refused("lease:\n  max_seconds: 899\n",
                   ": lease.ttl_max_seconds must not exceed lease.max_seconds");
    assert_refused("sandbox: {ttl_seconds: 43201}\n",
                   ":1: sandbox.ttl_seconds must not exceed sandbox.max_ttl_seconds");
    assert_refused("sandbox: {chat_mount_path: x}\n", ":1: sandbox: a mount path must be absolute");
    assert_refused("sandbox: {chat_mount_path: /opt/user-tools}\n", ": sandbox: two mount paths");
    assert_refused("sandbox: {chat_mount_path: /etc}\n",
                   ":1: sandbox: /etc is the sandbox's own; nothing can be mounted there");
    assert_refused("sandbox:\n  chat_mount_path: /run/leasehold/x\n",
                   ":2: sandbox: /run/leasehold/x");
    assert_refused("sandbox: {chat_mount_path: /run}\n", ":1: sandbox: /run is the sandbox's own");
    assert_refused("sandbox: {chat_mount_path: /}\n", ":1: sandbox: a mount path must be plain");
    assert_refused("sandbox: {chat_mount_path: /a/}\n", ":1: sandbox: a mount path must be plain");
    assert_refused("sandbox: {chat_mount_path: /a/../etc}\n", ":1: sandbox: a mount path must be");
    assert_refused("sandbox: {user_tools_mount_path: /usr/x}\n", ":1: sandbox: /usr/x is the");
    assert_refused("sandbox: {uid: 10002}\n", ": door.uid must not be sandbox.uid");
    assert_refused("lease: {seal_after_seconds: 3}\n",
                   ":1: lease.seal_after_seconds must exceed lease.stale_after_seconds");
    assert_refused("door: {host: 0.0.0.0}\n", ":1: door.host 0.0.0.0 needs door.public_host");
    assert_refused("profiles: [{name: default, command: [x], network: bridge}]\n",
                   ":1: network of profile default must be none with sandbox.engine local");
    assert_refused("door: {tls: files}\n",
                   ":1: door.tls files needs door.cert_file and door.key_file");
    assert_refused("lease: {issuer: 'a\"b'}\n", ":1: lease.issuer must be 1 to 127 printable");
    assert_refused("app: {node: \"n\\u00f6de\"}\n", ":1: app.node must be 1 to 127 printable");
    assert_refused("http: {tls: {key_file: x}}\n", ":1: http.tls needs cert_file and key_file");
    assert_refused("http: {tls: {client_ca_file: x}}\n", ":1: http.tls.client_ca_file needs");
    assert_refused("docker: {base_url: 'http://x'}\n", ":1: docker.base_url must be");
    assert_refused("docker: {base_url: 'unix://x'}\n", ":1: docker.base_url must be");
    assert_refused("logging: {output: file}\n", ":1: logging.output file needs");
    assert_refused("logging: {output: otel}\n", ":1: logging.output: otel is not supported");
    assert_refused("storage: {kind: mysql}\n", ":1: storage.kind must be one of: sqlite, postgres");
    assert_refused("storage: {kind: postgres, dsn_file: dsn}\n",
                   ":1: storage.kind: postgres is not supported by this build yet");
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

static void a_registry_is_named_once_and_as_images_name_it(void **state)
{
    (void)state;
    assert_refused("docker: {registries: [{host: r.example, username: u}]}\n",
                   ":1: docker.registries[0].password_file is missing");
    assert_refused("docker:\n  registries:\n"
                   "  - {host: 'https://r.example/', username: u, password_file: p}\n",
                   ":3: host of docker.registries must be HOST or HOST:PORT");
    assert_refused("docker:\n  registries:\n  - {host: R.example, username: u, password_file: p}\n"
                   "  - {host: r.example, username: v, password_file: p}\n",
                   ":4: docker.registries has r.example twice");
    assert_refused("docker:\n  registries:\n"
                   "  - {host: Index.docker.io, username: u, password_file: p}\n",
                   ":3: docker.registries knows Index.docker.io as docker.io");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unknown_keys_name_line_and_key),
        cmocka_unit_test(a_url_that_cannot_be_used_names_its_line),
        cmocka_unit_test(wrong_values_name_line_and_key),
        cmocka_unit_test(yaml_beyond_the_plain_is_refused),
        cmocka_unit_test(checks_between_keys_name_where_the_value_stands),
        cmocka_unit_test(a_registry_is_named_once_and_as_images_name_it),
        cmocka_unit_test(transports_are_checked),
        cmocka_unit_test(port_ranges_are_checked),
        cmocka_unit_test(a_long_list_is_refused),
        cmocka_unit_test(files_that_cannot_be_read_are_named),
        cmocka_unit_test(ret_is_untouched_on_failure),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
