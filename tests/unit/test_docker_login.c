/* Which login goes with which image, and what the engine is told of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "../../runtime/docker_login.h"

static void test_a_name_tells_its_registry(void **state)
{
    static const char *const names[][2] = {
        {"registry.example/agent:1", "registry.example"},
        {"registry.example:5000/a/b", "registry.example:5000"},
        {"localhost/agent", "localhost"},
        {"[::1]:5000/agent", "[::1]:5000"},
        {"agent", "docker.io"},
        {"agent:1.2", "docker.io"},
        {"lh/agent:1", "docker.io"},
        {"index.docker.io/lh/agent", "docker.io"},
        {"REGISTRY/agent", "REGISTRY"}, /* no name of the hub's: engines of today ask that host */
        {"rEgistry/a/b:1", "rEgistry"},
        {"", "docker.io"},
        {"/agent", "docker.io"},
    };
    char host[LOGIN_HOST_MAX];
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        docker_login_host(names[i][0], host);
        assert_string_equal(host, names[i][1]);
    }
}

/* A file of it, for as long as a test lasts. */
static void login_with(const char *password, size_t len, const char *image,
                       struct docker_login *ret, int wanted, struct err *e)
{
    char path[] = "/tmp/lh-login-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, password, len), (ssize_t)len);
    close(fd);
    struct config_registry registries[] = {
        {.host = "docker.io", .username = "hub", .password_file = path},
        {.host = "Registry.example:5000", .username = "a\"b", .password_file = path}};
    struct config_docker cfg = {.registries = {.items = registries, .n = 2}};
    int rc = docker_login_make(&cfg, image, ret, e);
    unlink(path);
    assert_int_equal(rc, wanted);
}

static void test_the_header_holds_what_an_engine_reads(void **state)
{
    struct docker_login login;
    struct err e;
    (void)state;
    /* {"username":"a\"b","password":"p?\\>","serveraddress":"Registry.example:5000"} */
    login_with("p?\\>\r\n", 6, "registry.example:5000/agent", &login, 0, &e);
    assert_string_equal(login.header,
                        "X-Registry-Auth: "
                        "eyJ1c2VybmFtZSI6ImFcImIiLCJwYXNzd29yZCI6InA_XFw-Iiwic2VydmVyYWRkcmVzcyI6"
                        "IlJlZ2lzdHJ5LmV4YW1wbGU6NTAwMCJ9");
    /* {"username":"hub","password":"x","serveraddress":"https://index.docker.io/v1/"} */
    login_with("x", 1, "agent", &login, 0, &e);
    assert_string_equal(login.header,
                        "X-Registry-Auth: "
                        "eyJ1c2VybmFtZSI6Imh1YiIsInBhc3N3b3JkIjoieCIsInNlcnZlcmFkZHJlc3MiOiJodHRw"
                        "czovL2luZGV4LmRvY2tlci5pby92MS8ifQ==");
}

static void test_another_registry_is_told_nothing(void **state)
{
    struct docker_login login;
    struct err e;
    (void)state;
    login_with("secret", 6, "registry.example:5001/agent", &login, 0, &e);
    assert_string_equal(login.header, "");
    login_with("secret", 6, "registry.example/agent", &login, 0, &e);
    assert_string_equal(login.header, "");
    login_with("secret", 6, "Elsewhere/agent", &login, 0, &e);
    assert_string_equal(login.header, "");
}

static void test_a_host_that_is_too_long_is_not_the_hub(void **state)
{
    char image[LOGIN_HOST_MAX + 32];
    struct docker_login login;
    struct err e;
    (void)state;
    memset(image, 'a', sizeof(image));
    strcpy(image + LOGIN_HOST_MAX, ".example/agent");
    login_with("secret", 6, image, &login, 0, &e);
    assert_string_equal(login.header, "");
}

static void test_a_file_that_holds_no_password_is_told_by_the_registry(void **state)
{
    static char many[8193];
    static const char *const image = "registry.example:5000/agent";
    struct docker_login login;
    struct err e;
    (void)state;
    memset(many, 'x', sizeof(many));
    login_with("\n", 1, image, &login, -1, &e);
    assert_string_equal(e.msg, "the password file for registry Registry.example:5000 is empty");
    login_with("a\0b", 3, image, &login, -1, &e);
    assert_string_equal(e.msg, "the password file for registry Registry.example:5000 is no text");
    /* JSON has no such byte: it would be another. */
    login_with("p\xe4ss", 4, image, &login, -1, &e);
    assert_string_equal(e.msg, "the password file for registry Registry.example:5000 is no text");
    login_with("ab\0\n", 4, image, &login, -1, &e);
    assert_non_null(strstr(e.msg, "is no text"));
    login_with(many, sizeof(many), image, &login, -1, &e);
    assert_non_null(strstr(e.msg, "is longer than 8 KiB"));
    login_with(many, sizeof(many) - 1, image, &login, 0, &e);
    memset(many, 1, sizeof(many)); /* each becomes six characters */
    login_with(many, sizeof(many) - 1, image, &login, -1, &e);
    assert_string_equal(login.header, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_name_tells_its_registry),
        cmocka_unit_test(test_the_header_holds_what_an_engine_reads),
        cmocka_unit_test(test_another_registry_is_told_nothing),
        cmocka_unit_test(test_a_host_that_is_too_long_is_not_the_hub),
        cmocka_unit_test(test_a_file_that_holds_no_password_is_told_by_the_registry),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
