/* Who has to make room among those that are not admitted yet. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include <cmocka.h>

#include "../../lease/door/crowd.h"

static struct crowd_key key_of(const char *text)
{
    struct sockaddr_in four = {.sin_family = AF_INET};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6};
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    struct crowd_key key;
    if (inet_pton(AF_INET, text, &four.sin_addr) == 1) {
        crowd_key_of((struct sockaddr *)&four, &key);
    } else if (inet_pton(AF_INET6, text, &six.sin6_addr) == 1) {
        crowd_key_of((struct sockaddr *)&six, &key);
    } else {
        crowd_key_of((struct sockaddr *)&un, &key);
    }
    return key;
}

static bool same(const char *a, const char *b)
{
    struct crowd_key one = key_of(a), other = key_of(b);
    return memcmp(&one, &other, sizeof one) == 0;
}

static void an_address_is_one_source_and_so_is_a_64_of_ipv6(void **state)
{
    (void)state;
    assert_true(same("10.0.0.1", "10.0.0.1"));
    assert_false(same("10.0.0.1", "10.0.0.2"));
    assert_true(same("2001:db8:1:2::1", "2001:db8:1:2:ffff::9"));
    assert_false(same("2001:db8:1:2::1", "2001:db8:1:3::1"));
    assert_true(same("::ffff:10.0.0.1", "10.0.0.1"));
    assert_false(same("::ffff:10.0.0.1", "::ffff:10.0.0.2"));
    assert_true(same("unix", "unix"));
    assert_false(same("unix", "10.0.0.1"));
}

static void come(struct crowd *c, struct crowd_entry *entry, const char *from)
{
    struct crowd_key key = key_of(from);
    crowd_enter(c, entry, &key);
}

static void nobody_goes_while_there_is_room(void **state)
{
    (void)state;
    struct crowd c = {0};
    static struct crowd_entry entries[CROWD_MAX];
    for (size_t i = 0; i < CROWD_MAX; i++) {
        come(&c, &entries[i], "10.0.0.1");
        assert_null(crowd_excess(&c));
    }
}

static void the_oldest_of_the_greediest_goes_first(void **state)
{
    (void)state;
    struct crowd c = {0};
    static struct crowd_entry flood[CROWD_MAX], honest, more;
    come(&c, &honest, "10.0.0.9"); /* the oldest of all */
    for (size_t i = 0; i + 1 < CROWD_MAX; i++) {
        come(&c, &flood[i], "10.0.0.1");
    }
    come(&c, &more, "10.0.0.8");
    assert_ptr_equal(crowd_excess(&c), &flood[0]);
    crowd_leave(&c, &flood[0]);
    assert_null(crowd_excess(&c));
    come(&c, &flood[0], "10.0.0.1");
    assert_ptr_equal(crowd_excess(&c), &flood[1]);
}

static void among_equals_the_oldest_goes(void **state)
{
    (void)state;
    struct crowd c = {0};
    static struct crowd_entry entries[CROWD_MAX + 1];
    char address[16];
    for (unsigned i = 0; i <= CROWD_MAX; i++) {
        (void)snprintf(address, sizeof address, "10.0.1.%u", i);
        come(&c, &entries[i], address);
    }
    assert_ptr_equal(crowd_excess(&c), &entries[0]);
    crowd_leave(&c, &entries[0]);
    crowd_leave(&c, &entries[0]); /* again: nothing */
    assert_int_equal(c.n, CROWD_MAX);
}

/* However they come and go: a source that never has more than its share is never touched. */
static void who_takes_no_more_than_a_share_is_never_put_out(void **state)
{
    (void)state;
    struct crowd c = {0};
    static struct crowd_entry flood[4096], modest[2];
    size_t next = 0;
    come(&c, &modest[0], "10.0.0.9");
    come(&c, &modest[1], "10.0.0.9");
    for (; next < sizeof flood / sizeof flood[0]; next++) {
        come(&c, &flood[next], next % 3 ? "10.0.0.1" : "10.0.0.2");
        struct crowd_entry *worst = crowd_excess(&c);
        assert_true(worst != &modest[0] && worst != &modest[1]);
        if (worst != NULL) {
            crowd_leave(&c, worst);
        }
        assert_true(c.n <= CROWD_MAX);
    }
    assert_non_null(modest[0].source);
    assert_non_null(modest[1].source);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_address_is_one_source_and_so_is_a_64_of_ipv6),
        cmocka_unit_test(nobody_goes_while_there_is_room),
        cmocka_unit_test(the_oldest_of_the_greediest_goes_first),
        cmocka_unit_test(among_equals_the_oldest_goes),
        cmocka_unit_test(who_takes_no_more_than_a_share_is_never_put_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
