#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "leasehold/field.h"

struct inner {
    int64_t depth;
    char *label;
};

struct thing {
    char *name;
    struct id id;
    int64_t count, small, at;
    double ratio;
    bool on, has_count;
    int color;
    unsigned colors;
    char *raw;
    struct inner inner;
    struct inner *ptr;
    struct list names;
};

static const char *const colors[] = {"red", "green", "blue", NULL};

static const struct field inner_fields[] = {
    FIELD_INT(struct inner, depth, .def = "7"),
    FIELD_STR(struct inner, label, .def = "deep"),
    {0},
};

enum { NAME, ID, COUNT, SMALL, AT, RATIO, ON, COLOR, COLORS, RAW, INNER, PTR, NAMES };

static const struct field fields[] = {
    FIELD_STR(struct thing, name, .min = 1, .max = 8, .def = "x"),
    FIELD_ID(struct thing, id),
    FIELD_INT(struct thing, count, .has = offsetof(struct thing, has_count), .def = "3"),
    FIELD_INT(struct thing, small, .min = -2, .max = 5),
    FIELD_TIME(struct thing, at),
    FIELD_REAL(struct thing, ratio, .def = "0.5"),
    FIELD_BOOL(struct thing, on, .flags = FIELD_ANY_CASE, .def = "true"),
    FIELD_ENUM(struct thing, color, .names = colors, .flags = FIELD_ANY_CASE, .def = "green"),
    FIELD_SET(struct thing, colors, .names = colors, .def = "red,blue"),
    FIELD_RAW(struct thing, raw, .max = 20, .def = "{}"),
    FIELD_OBJECT(struct thing, inner, inner_fields),
    FIELD_OBJPTR(struct thing, ptr, inner_fields, struct inner),
    FIELD_STRLIST(struct thing, names),
    {0},
};

static struct arena *arena;
static struct thing thing;
static struct err e;

static int set_up(void **state)
{
    (void)state;
    arena = arena_new(1 << 16);
    memset(&thing, 0, sizeof(thing));
    err_clear(&e);
    return arena == NULL;
}

static int tear_down(void **state)
{
    (void)state;
    arena_free(arena);
    return 0;
}

static int set(int field, const char *text)
{
    return field_set_text(&fields[field], &thing, text, strlen(text), arena, &e);
}

static void assert_refused(int field, const char *text, const char *pointer, const char *msg)
{
    if (set(field, text) != -1) {
        fail_msg("accepted: %s", text);
    }
    assert_int_equal(e.code, ERR_INVALID_REQUEST);
    assert_string_equal(e.pointer, pointer);
    assert_string_equal(e.msg, msg);
}

static void defaults_reach_every_field(void **state)
{
    (void)state;
    memset(&thing, 0xff, sizeof(thing));
    assert_int_equal(field_set_defaults(fields, &thing, arena, &e), 0);
    assert_string_equal(thing.name, "x");
    assert_true(id_is_zero(&thing.id));
    assert_int_equal(thing.count, 3);
    assert_false(thing.has_count);
    assert_int_equal(thing.small, 0);
    assert_int_equal(thing.at, 0);
    assert_true(thing.ratio > 0.49 && thing.ratio < 0.51);
    assert_true(thing.on);
    assert_int_equal(thing.color, 1);
    assert_int_equal(thing.colors, 5);
    assert_string_equal(thing.raw, "{}");
    assert_int_equal(thing.inner.depth, 7);
    assert_string_equal(thing.inner.label, "deep");
    assert_null(thing.ptr);
    assert_int_equal(thing.names.n, 0);
}

static void a_wrong_default_is_our_own_fault(void **state)
{
    (void)state;
    static const struct field wrong[] = {
        FIELD_INT(struct thing, count, .def = "many"),
        {0},
    };
    assert_int_equal(field_set_defaults(wrong, &thing, arena, &e), -1);
    assert_int_equal(e.code, ERR_INTERNAL);
}

static void strings_have_bounds_and_are_utf8(void **state)
{
    (void)state;
    assert_int_equal(set(NAME, "12345678"), 0);
    assert_string_equal(thing.name, "12345678");
    assert_refused(NAME, "123456789", "/name", "name must be at most 8 bytes long");
    assert_refused(NAME, "", "/name", "name must not be empty");
    assert_refused(NAME, "\xff", "/name", "name must be UTF-8 without NUL");
    assert_int_equal(field_set_text(&fields[NAME], &thing, "a\0b", 3, arena, &e), -1);
    assert_string_equal(thing.name, "12345678");
}

static void integers_are_strict(void **state)
{
    (void)state;
    static const char *const bad[] = {"",     " 1",  "1 ",   "+1",  "01",
                                      "0x10", "1.0", "1e2",  "12x", "9007199254740993",
                                      "-1",   "--1", "1\n2", "",    "99999999999999999999999999"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_refused(COUNT, bad[i], "/count",
                       "count must be a whole number from 0 to 9007199254740992");
        assert_false(thing.has_count);
    }
    assert_int_equal(set(COUNT, "9007199254740992"), 0);
    assert_true(thing.count == INT64_C(1) << 53);
    assert_true(thing.has_count);
    assert_int_equal(set(SMALL, "-2"), 0);
    assert_int_equal(thing.small, -2);
    assert_refused(SMALL, "6", "/small", "small must be a whole number from -2 to 5");
}

static void reals_are_finite(void **state)
{
    (void)state;
    assert_int_equal(set(RATIO, "-2.5e1"), 0);
    assert_true(thing.ratio < -24.9 && thing.ratio > -25.1);
    assert_refused(RATIO, "1e999", "/ratio", "ratio must be a number");
    assert_refused(RATIO, "nan", "/ratio", "ratio must be a number");
    assert_refused(RATIO, ".5", "/ratio", "ratio must be a number");
}

static void booleans_have_two_spellings_each(void **state)
{
    (void)state;
    assert_int_equal(set(ON, "1"), 0);
    assert_true(thing.on);
    assert_int_equal(set(ON, "False"), 0);
    assert_false(thing.on);
    assert_refused(ON, "yes", "/on", "on must be true or false");
}

static void enums_and_sets_name_what_is_allowed(void **state)
{
    (void)state;
    assert_int_equal(set(COLOR, "BLUE"), 0);
    assert_int_equal(thing.color, 2);
    assert_refused(COLOR, "pink", "/color", "color must be one of: red, green, blue");
    assert_refused(COLOR, "", "/color", "color must be one of: red, green, blue");
    assert_int_equal(set(COLORS, "green,blue"), 0);
    assert_int_equal(thing.colors, 6);
    assert_refused(COLORS, "red,pink", "/colors", "colors may hold: red, green, blue");
    assert_refused(COLORS, "red,red", "/colors", "colors holds \"red\" twice");
    assert_refused(COLORS, "", "/colors", "colors must hold at least one of: red, green, blue");
}

static void ids_times_and_raw_objects_are_checked(void **state)
{
    (void)state;
    assert_int_equal(set(ID, "{0F5D2C1A9B3E4C7D8A6F0123456789AB}"), 0);
    assert_string_equal(ID_STR(&thing.id), "0f5d2c1a-9b3e-4c7d-8a6f-0123456789ab");
    assert_refused(ID, "1", "/id", "id must be a UUID");
    assert_int_equal(set(AT, "1970-01-01T00:00:01Z"), 0);
    assert_int_equal(thing.at, 1000);
    assert_refused(AT, "now", "/at", "at must be an RFC 3339 time");
    assert_int_equal(set(RAW, "{\"a\":[1]}"), 0);
    assert_string_equal(thing.raw, "{\"a\":[1]}");
    assert_refused(RAW, "[1]", "/raw", "raw must be a JSON object");
    assert_refused(RAW, "{\"aaaaaaaaaa\":\"bbbbbbb\"}", "/raw",
                   "raw must be at most 20 bytes of JSON");
}

static void what_has_parts_is_no_text(void **state)
{
    (void)state;
    assert_refused(INNER, "x", "/inner", "inner cannot be given as text");
    assert_refused(PTR, "x", "/ptr", "ptr cannot be given as text");
    assert_refused(NAMES, "x", "/names", "names cannot be given as text");
}

static void a_full_arena_is_an_error(void **state)
{
    (void)state;
    struct arena *tiny = arena_new(4);
    assert_int_equal(field_set_text(&fields[NAME], &thing, "12345", 5, tiny, &e), -1);
    assert_int_equal(e.code, ERR_TOO_LARGE);
    arena_free(tiny);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(defaults_reach_every_field),
        TEST(a_wrong_default_is_our_own_fault),
        TEST(strings_have_bounds_and_are_utf8),
        TEST(integers_are_strict),
        TEST(reals_are_finite),
        TEST(booleans_have_two_spellings_each),
        TEST(enums_and_sets_name_what_is_allowed),
        TEST(ids_times_and_raw_objects_are_checked),
        TEST(what_has_parts_is_no_text),
        TEST(a_full_arena_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
