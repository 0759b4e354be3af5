#include "options.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "leasehold/json.h"

static bool is_operand(const struct opt_spec *s)
{
    return (s->flags & OPT_OPERAND) != 0;
}

static bool is_word(const char *word, const char *name, size_t len)
{
    return word != NULL && strlen(word) == len && memcmp(word, name, len) == 0;
}

static const struct opt_spec *find_option(const struct opt_spec *specs, const char *name,
                                          size_t len)
{
    for (const struct opt_spec *s = specs; s != NULL && s->name != NULL; s++) {
        if (!is_operand(s) && (is_word(s->name, name, len) || is_word(s->brief, name, len))) {
            return s;
        }
    }
    return NULL;
}

static bool was_given(const struct options *o, const struct opt_spec *s)
{
    for (size_t i = 0; i < o->n; i++) {
        if (o->values[i].spec == s) {
            return true;
        }
    }
    return false;
}

/* The first operand row that still takes a value. */
static const struct opt_spec *next_operand(const struct opt_spec *specs, const struct options *o)
{
    for (const struct opt_spec *s = specs; s != NULL && s->name != NULL; s++) {
        if (is_operand(s) && ((s->flags & OPT_REPEATED) != 0 || !was_given(o, s))) {
            return s;
        }
    }
    return NULL;
}

static int parse_int(const struct opt_spec *s, const char *text, int64_t *ret, struct err *e)
{
    char *end = NULL;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    bool digits = text[0] >= '0' && text[0] <= '9';
    if (!digits || *end != '\0' || errno != 0 || v < s->min || v > s->max) {
        return err_set(e, ERR_INVALID_REQUEST, "%s takes a number from %" PRId64 " to %" PRId64,
                       s->name, s->min, s->max);
    }
    *ret = v;
    return 0;
}

/* Every part of a comma list must be a word: ",,": is no list the server would understand. */
static bool words_valid(const char *text)
{
    size_t len = strlen(text);
    return len > 0 && text[0] != ',' && text[len - 1] != ',' && strstr(text, ",,") == NULL;
}

static bool is_choice(const struct opt_spec *s, const char *word, size_t len)
{
    for (const char *const *c = s->choices; *c != NULL; c++) {
        if (strlen(*c) == len && memcmp(*c, word, len) == 0) {
            return true;
        }
    }
    return false;
}

/* "a, b or c" */
static void list_choices(const struct opt_spec *s, char *ret, size_t size)
{
    size_t len = 0;
    ret[0] = '\0';
    for (const char *const *c = s->choices; *c != NULL && len < size; c++) {
        const char *before = c == s->choices ? "" : c[1] == NULL ? " or " : ", ";
        len += (size_t)snprintf(ret + len, size - len, "%s%s", before, *c);
    }
}

static int check_choice(const struct opt_value *v, struct err *e)
{
    const struct opt_spec *s = v->spec;
    char list[96];
    if (s->choices == NULL) {
        return 0;
    }
    for (const char *p = v->text;; p++) {
        size_t len = s->kind == OPT_WORDS ? strcspn(p, ",") : strlen(p);
        if (!is_choice(s, p, len)) {
            list_choices(s, list, sizeof(list));
            return err_set(e, ERR_INVALID_REQUEST, "%s takes %s%s", s->name, list,
                           s->kind == OPT_WORDS ? ", or several with commas between" : "");
        }
        p += len;
        if (*p == '\0') {
            return 0;
        }
    }
}

static int check_value(struct opt_value *v, struct err *e)
{
    const struct opt_spec *s = v->spec;
    struct err inner;
    if (s->kind != OPT_FLAG && !utf8_valid(v->text, strlen(v->text))) {
        return err_set(e, ERR_INVALID_REQUEST, "%s is not valid UTF-8", s->name);
    }
    switch (s->kind) {
    case OPT_UUID:
        if (!id_parse(v->text, strlen(v->text), &v->id)) {
            return err_set(e, ERR_INVALID_REQUEST, "%s takes a UUID", s->name);
        }
        return 0;
    case OPT_INT:
        return parse_int(s, v->text, &v->number, e);
    case OPT_WORDS:
        if (!words_valid(v->text)) {
            return err_set(e, ERR_INVALID_REQUEST, "%s takes words with commas between", s->name);
        }
        return check_choice(v, e);
    case OPT_OBJECT:
        if (json_check(v->text, strlen(v->text), true, &inner) < 0) {
            return err_set(e, ERR_INVALID_REQUEST, "%s takes a JSON object", s->name);
        }
        return 0;
    case OPT_FILE:
    case OPT_ENV_FILE:
    case OPT_SECRET_FILE:
        if (v->text[0] == '\0') {
            return err_set(e, ERR_INVALID_REQUEST, "%s takes a file name", s->name);
        }
        return 0;
    case OPT_TEXT:
        return check_choice(v, e);
    case OPT_FLAG:
        break;
    }
    return 0;
}

static int add_value(struct options *o, const struct opt_spec *s, const char *text, struct err *e)
{
    if (o->n == OPTIONS_MAX) {
        return err_set(e, ERR_INVALID_REQUEST, "too many arguments");
    }
    if ((s->flags & OPT_REPEATED) == 0 && was_given(o, s)) {
        return err_set(e, ERR_INVALID_REQUEST, "%s is given twice", s->name);
    }
    struct opt_value v = {.spec = s, .text = text};
    if (check_value(&v, e) < 0) {
        return -1;
    }
    o->values[o->n++] = v;
    return 0;
}

/* A kid or a name may begin with "-", too. */
static int no_such_option(const struct opt_spec *specs, const char *arg, size_t len, struct err *e)
{
    bool maybe_none = specs != NULL && (specs->flags & OPT_OPERAND) != 0 && arg[1] != '-';
    return err_set(e, ERR_INVALID_REQUEST, "no such option: %.*s%s", (int)(len > 40 ? 40 : len),
                   arg, maybe_none ? " (what is none goes behind '--')" : "");
}

/* Takes one "--option" and its value; *i is moved on by what was used. */
static int parse_option(const struct opt_spec *specs, const struct opt_spec *globals, int argc,
                        char *const *argv, int *i, struct options *o, struct err *e)
{
    const char *arg = argv[*i];
    size_t len = strcspn(arg, "=");
    const struct opt_spec *s = find_option(specs, arg, len);
    if (s == NULL) {
        s = find_option(globals, arg, len);
    }
    if (s == NULL) {
        return no_such_option(specs, arg, len, e);
    }
    const char *text = arg[len] == '=' ? arg + len + 1 : NULL;
    if (s->kind == OPT_FLAG) {
        if (text != NULL) {
            return err_set(e, ERR_INVALID_REQUEST, "%s takes no value", s->name);
        }
        *i += 1;
        return add_value(o, s, NULL, e);
    }
    if (text == NULL) {
        if (*i + 1 >= argc) {
            return err_set(e, ERR_INVALID_REQUEST, "%s needs a value", s->name);
        }
        text = argv[++*i];
    }
    *i += 1;
    return add_value(o, s, text, e);
}

int options_parse(const struct opt_spec *specs, const struct opt_spec *globals, int argc,
                  char *const *argv, struct options *o, int *ret_used, struct err *e)
{
    int i = 0;
    bool only_operands = false;
    while (i < argc) {
        if (!only_operands && strcmp(argv[i], "--") == 0) {
            only_operands = true;
            i++;
            continue;
        }
        if (!only_operands && argv[i][0] == '-' && argv[i][1] != '\0') {
            if (parse_option(specs, globals, argc, argv, &i, o, e) < 0) {
                return -1;
            }
            continue;
        }
        if (specs == NULL) {
            break;
        }
        const struct opt_spec *s = next_operand(specs, o);
        if (s == NULL) {
            return err_set(e, ERR_INVALID_REQUEST, "one argument too many");
        }
        if (add_value(o, s, argv[i], e) < 0) {
            return -1;
        }
        i++;
    }
    *ret_used = i;
    return 0;
}

/* How many of the rows with this flag were given, and what all are called. */
struct among {
    size_t rows, given;
    char names[96];
};

static struct among count_flagged(const struct opt_spec *specs, unsigned flag,
                                  const struct options *o)
{
    struct among a = {0};
    for (const struct opt_spec *s = specs; s->name != NULL; s++) {
        if ((s->flags & flag) == 0) {
            continue;
        }
        size_t used = strlen(a.names);
        snprintf(a.names + used, sizeof(a.names) - used, "%s%s", a.rows > 0 ? " or " : "", s->name);
        a.rows++;
        a.given += was_given(o, s);
    }
    return a;
}

static int check_groups(const struct opt_spec *specs, const struct options *o, struct err *e)
{
    const struct among one = count_flagged(specs, OPT_ONE_OF, o);
    const struct among some = count_flagged(specs, OPT_SOME_OF, o);
    if (one.rows > 0 && one.given != 1) {
        return err_set(e, ERR_INVALID_REQUEST, "give %s%s", one.names,
                       one.given > 1 ? ", only one of them" : "");
    }
    if (some.rows > 0 && some.given == 0) {
        return err_set(e, ERR_INVALID_REQUEST, "nothing to do: give %s", some.names);
    }
    return 0;
}

int options_check(const struct opt_spec *specs, const struct options *o, struct err *e)
{
    for (const struct opt_spec *s = specs; s->name != NULL; s++) {
        bool given = was_given(o, s);
        if (!given && (s->flags & OPT_REQUIRED) != 0) {
            return err_set(e, ERR_INVALID_REQUEST, "%s is missing", s->name);
        }
        if (given && s->needs != NULL && !options_has(o, s->needs)) {
            return err_set(e, ERR_INVALID_REQUEST, "%s needs %s", s->name, s->needs);
        }
    }
    return check_groups(specs, o, e);
}

const struct opt_value *options_find(const struct options *o, const char *name)
{
    for (size_t i = o->n; i > 0; i--) {
        if (strcmp(o->values[i - 1].spec->name, name) == 0) {
            return &o->values[i - 1];
        }
    }
    return NULL;
}

bool options_has(const struct options *o, const char *name)
{
    return options_find(o, name) != NULL;
}

const char *options_text(const struct options *o, const char *name, const char *otherwise)
{
    const struct opt_value *v = options_find(o, name);
    return v != NULL ? v->text : otherwise;
}

int64_t options_int(const struct options *o, const char *name, int64_t otherwise)
{
    const struct opt_value *v = options_find(o, name);
    return v != NULL ? v->number : otherwise;
}

static void print_row(const struct opt_spec *s, FILE *out)
{
    fprintf(out, "%s", s->name);
    if (s->value != NULL) {
        fprintf(out, " %s", s->value);
    }
}

/* A row in brackets, with those inside that make sense with it only. */
static void print_optional(const struct opt_spec *specs, const struct opt_spec *s, FILE *out)
{
    fputs(" [", out);
    print_row(s, out);
    for (const struct opt_spec *t = specs; t->name != NULL; t++) {
        if (t->needs != NULL && strcmp(t->needs, s->name) == 0) {
            print_optional(specs, t, out);
        }
    }
    fputs((s->flags & OPT_REPEATED) != 0 ? "]…" : "]", out);
}

void options_print_usage(const struct opt_spec *specs, FILE *out)
{
    const char *before = " (";
    for (const struct opt_spec *s = specs; s->name != NULL; s++) {
        if ((s->flags & OPT_ONE_OF) != 0) {
            fputs(before, out);
            print_row(s, out);
            before = " | ";
        }
    }
    if (before[1] == '|') {
        fputc(')', out);
    }
    for (const struct opt_spec *s = specs; s->name != NULL; s++) {
        if ((s->flags & OPT_REQUIRED) != 0) {
            fputc(' ', out);
            print_row(s, out);
        } else if ((s->flags & OPT_ONE_OF) == 0 && s->needs == NULL) {
            print_optional(specs, s, out);
        }
    }
}

void options_print_help(const struct opt_spec *specs, FILE *out)
{
    for (const struct opt_spec *s = specs; s->name != NULL; s++) {
        char left[48];
        snprintf(left, sizeof(left), "%s%s%s%s%s", s->name, s->brief != NULL ? ", " : "",
                 s->brief != NULL ? s->brief : "", s->value != NULL ? " " : "",
                 s->value != NULL ? s->value : "");
        fprintf(out, "  %-24s %s\n", left, s->help);
    }
}
