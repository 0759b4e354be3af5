/* A configuration file in a directory of its own: group set-up and tear-down, and loading a text. */
#ifndef LEASEHOLD_TESTS_CONFIG_FILE_H
#define LEASEHOLD_TESTS_CONFIG_FILE_H

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

#endif
