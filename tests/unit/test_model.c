/* Who may see whom. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "leasehold/model.h"

static void an_unlimited_caller_sees_everybody(void **state)
{
    (void)state;
    struct id user;
    id_random(&user);
    for (int role = ROLE_NONE; role <= ROLE_ADMIN; role++) {
        struct caller c = {.role = (enum role)role};
        assert_true(caller_may_see(&c, &user));
    }
}

static void a_limited_caller_of_any_role_sees_only_its_users(void **state)
{
    (void)state;
    struct id users[2], other;
    id_random(&users[0]);
    id_random(&users[1]);
    id_random(&other);
    for (int role = ROLE_NONE; role <= ROLE_ADMIN; role++) {
        struct caller c = {.role = (enum role)role, .limited = true, .users = users, .users_n = 2};
        assert_true(caller_may_see(&c, &users[0]));
        assert_true(caller_may_see(&c, &users[1]));
        assert_false(caller_may_see(&c, &other));
    }
}

static void a_caller_limited_to_nobody_sees_nobody(void **state)
{
    (void)state;
    struct id user = {{0}};
    struct caller c = {.role = ROLE_ADMIN, .limited = true};
    assert_false(caller_may_see(&c, &user));
}

static void every_name_table_ends(void **state)
{
    (void)state;
    assert_null(role_names[ROLE_ADMIN + 1]);
    assert_null(sandbox_status_names[SANDBOX_FAILED + 1]);
    assert_null(lease_state_names[LEASE_CLOSED + 1]);
    assert_null(lease_use_names[USE_ONCE + 1]);
    assert_null(lease_scope_names[3]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_unlimited_caller_sees_everybody),
        cmocka_unit_test(a_limited_caller_of_any_role_sees_only_its_users),
        cmocka_unit_test(a_caller_limited_to_nobody_sees_nobody),
        cmocka_unit_test(every_name_table_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
