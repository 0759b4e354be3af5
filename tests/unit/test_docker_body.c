/* The body of "create a container", and how names go into the engine's URLs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../../runtime/docker_body.h"

static char *const shell[] = {(char *)"/bin/sh", (char *)"-c", (char *)"say \"hi\"\n"};
static char *const entry[] = {(char *)"/entry"};
static char *const cmd[] = {(char *)"one", (char *)"two"};
static char *const tmpfs[] = {(char *)"/var/x"};

static struct config_profile profile;
static struct engine_spec spec;
static struct engine_image image;
static struct docker_body body;
static struct buf out;
static struct err e;

static const struct engine_bind binds[] = {{"/host/files", "/workspace/chat", true},
                                           {"/host/tools", "/opt/tools", false}};

static int set_up(void **state)
{
    (void)state;
    profile = (struct config_profile){.name = (char *)"p",
                                      .transport = (char *)"stdio",
                                      .runtime = (char *)"",
                                      .limits = {.memory_bytes = 1000000, .pids = 10, .cpus = 1.5}};
    spec = (struct engine_spec){.run_path = "/run/lh/s",
                                .box_path = "/run/lh/s/box",
                                .profile = &profile,
                                .uid = 7,
                                .gid = 8,
                                .binds = binds,
                                .binds_n = 2,
                                .generation = 3,
                                .cwd = "/workspace/chat",
                                .max_ms = 5000};
    image = (struct engine_image){.working_dir = (char *)""};
    body = (struct docker_body){.spec = &spec,
                                .image = &image,
                                .image_name = "img",
                                .instance = "in\"stance",
                                .run_dir = "/run/lh",
                                .bin_dir = "/opt/bin",
                                .network = "none",
                                .api_minor = 41,
                                .cpus_n = 8};
    buf_init(&out, 100000);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    buf_done(&out);
    return 0;
}

static void write_it(void)
{
    buf_reset(&out);
    if (docker_body_write(&body, &out, &e) != 0)
        fail_msg("%s", e.msg);
    assert_int_equal(json_check(out.data, out.len, true, &e), 0);
}

static void assert_has(const char *text)
{
    if (strstr(out.data, text) == NULL)
        fail_msg("%s is not in %s", text, out.data);
}

static void assert_has_not(const char *text)
{
    assert_null(strstr(out.data, text));
}

static void whatever_is_put_in_it_holds_the_container(void **state)
{
    (void)state;
    profile.command = (struct list){(void *)shell, 3};
    write_it();
    assert_has("\"User\":\"7:8\"");
    assert_has("\"NetworkMode\":\"none\"");
    assert_has("\"ReadonlyRootfs\":true");
    assert_has("\"CapDrop\":[\"ALL\"]");
    assert_has("\"SecurityOpt\":[\"no-new-privileges\"]");
    assert_has(
        "\"Memory\":1000000,\"MemorySwap\":1000000,\"PidsLimit\":11,\"NanoCpus\":1500000000");
    assert_has("{\"Name\":\"core\",\"Soft\":0,\"Hard\":0}");
    assert_has("\"RestartPolicy\":{\"Name\":\"no\"},\"AutoRemove\":false");
    assert_has("\"leasehold.instance\":\"in\\\"stance\"");
    assert_has("\"leasehold.generation\":\"3\"");
    static const char *const never[] = {"Privileged",   "CapAdd",      "Devices",    "Binds",
                                        "PortBindings", "VolumesFrom", "Sysctls",    "PidMode",
                                        "CgroupParent", "MaskedPaths", "unconfined", "\"Runtime\""};
    for (size_t i = 0; i < sizeof(never) / sizeof(never[0]); i++)
        assert_has_not(never[i]);
}

static void only_what_may_be_written_is_writable(void **state)
{
    (void)state;
    profile.command = (struct list){(void *)shell, 3};
    write_it();
    assert_has("{\"Type\":\"bind\",\"Source\":\"/host/files\",\"Target\":\"/workspace/chat\","
               "\"ReadOnly\":false,\"BindOptions\":{\"Propagation\":\"rprivate\"}}");
    assert_has("{\"Type\":\"bind\",\"Source\":\"/host/tools\",\"Target\":\"/opt/tools\","
               "\"ReadOnly\":true,\"BindOptions\":{\"Propagation\":\"rprivate\","
               "\"NonRecursive\":true}}");
    assert_has("\"Source\":\"/run/lh/s/box\",\"Target\":\"/run/leasehold\",\"ReadOnly\":true");
    assert_has("\"Source\":\"/opt/bin/leaseinit\",\"Target\":\"/run/leasehold/leaseinit\","
               "\"ReadOnly\":true");
    body.api_minor = 44;
    write_it();
    assert_has("\"ReadOnlyForceRecursive\":true");
    assert_has_not("NonRecursive");
}

static void leaseinit_stands_before_the_profiles_command_or_the_images(void **state)
{
    (void)state;
    image.entrypoint = (struct list){(void *)entry, 1};
    image.cmd = (struct list){(void *)cmd, 2};
    write_it();
    assert_has("\"Entrypoint\":[\"/run/leasehold/leaseinit\",\"stdio\",\"max_ms=5000\",\"--\"]");
    assert_has("\"Cmd\":[\"/entry\",\"one\",\"two\"]");
    profile.command = (struct list){(void *)shell, 3};
    body.has_env_file = true;
    write_it();
    assert_has("\"stdio\",\"env=/run/leasehold/env\",\"max_ms=5000\",\"--\"]");
    assert_has("\"Cmd\":[\"/bin/sh\",\"-c\",\"say \\\"hi\\\"\\n\"]");
}

static void an_image_without_a_command_needs_one_of_the_profile(void **state)
{
    (void)state;
    assert_int_equal(docker_body_write(&body, &out, &e), -1);
    assert_int_equal(e.code, ERR_SANDBOX_START_FAILED);
    assert_non_null(strstr(e.msg, "no command"));
}

static void an_images_directory_is_kept(void **state)
{
    (void)state;
    profile.command = (struct list){(void *)shell, 3};
    write_it();
    assert_has("\"WorkingDir\":\"/workspace/chat\"");
    image.working_dir = (char *)"/srv";
    write_it();
    assert_has_not("WorkingDir");
}

static void a_profile_may_choose_runtime_tmpfs_and_network(void **state)
{
    (void)state;
    profile.command = (struct list){(void *)shell, 3};
    profile.runtime = (char *)"runsc";
    profile.tmpfs = (struct list){(void *)tmpfs, 1};
    body.network = "bridge";
    write_it();
    assert_has("\"Runtime\":\"runsc\"");
    assert_has("\"Tmpfs\":{\"/tmp\":\"rw,nosuid,nodev,exec,mode=1777\",\"/var/x\":");
    assert_has("\"NetworkMode\":\"bridge\"");
}

static void more_cpus_than_there_are_is_all_of_them(void **state)
{
    (void)state;
    profile.command = (struct list){(void *)shell, 3};
    profile.limits.cpus = 100;
    write_it();
    assert_has("\"NanoCpus\":8000000000");
}

static void tools_have_a_container_that_is_held_the_same(void **state)
{
    (void)state;
    const struct engine_tools tools = {.uid = 9,
                                       .gid = 10,
                                       .box_path = "/run/lh/s/tools",
                                       .socket_path = "/run/lh/s/box/tools",
                                       .runs_path = "/data/runs",
                                       .binds = binds,
                                       .binds_n = 2,
                                       .tools_path = "/opt/user-tools",
                                       .timeout_ms = 600,
                                       .at_once = 4,
                                       .per_second = 7};
    profile.command = (struct list){(void *)shell, 3};
    spec.tools = &tools;
    body.tools_chat = "/run/lh/s/mapped";
    write_it();
    assert_has("\"User\":\"9:10\"");
    assert_has("\"Entrypoint\":[\"/run/leasehold/leasetools\",\"chat=/workspace/chat\","
               "\"tools=/opt/"
               "user-tools\",\"runs=4\",\"per_second=7\",\"timeout_ms=600\",\"max_ms=5000\"]");
    assert_has("\"Cmd\":[]");
    assert_has("\"leasehold.kind\":\"tools\"");
    assert_has("\"CapDrop\":[\"ALL\"]");
    assert_has("\"SecurityOpt\":[\"no-new-privileges\"]");
    assert_has("\"PidsLimit\":15,");
    assert_has("\"Source\":\"/run/lh/s/mapped\",\"Target\":\"/workspace/chat\",\"ReadOnly\":false");
    assert_has("\"Source\":\"/host/tools\",\"Target\":\"/opt/tools\",\"ReadOnly\":true");
    assert_has("\"Source\":\"/run/lh/s/tools\",\"Target\":\"/run/leasehold\",\"ReadOnly\":true");
    assert_has_not("/host/files");
    assert_has_not("leaseinit");
    assert_has_not("\"Source\":\"/run/lh/s/box\"");
}

static void names_cannot_leave_their_place_in_a_url(void **state)
{
    (void)state;
    docker_url_add(&out, "reg:5000/a b?x=1#&%\n", true);
    assert_string_equal(out.data, "reg:5000/a%20b%3Fx%3D1%23%26%25%0A");
    buf_reset(&out);
    docker_url_add(&out, "a/b:c@d", false);
    assert_string_equal(out.data, "a%2Fb%3Ac%40d");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(whatever_is_put_in_it_holds_the_container),
        TEST(only_what_may_be_written_is_writable),
        TEST(leaseinit_stands_before_the_profiles_command_or_the_images),
        TEST(an_image_without_a_command_needs_one_of_the_profile),
        TEST(an_images_directory_is_kept),
        TEST(a_profile_may_choose_runtime_tmpfs_and_network),
        TEST(more_cpus_than_there_are_is_all_of_them),
        TEST(tools_have_a_container_that_is_held_the_same),
        TEST(names_cannot_leave_their_place_in_a_url),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
