/*
 * Options of a command line, described by a table: parsing, the usage line, the help text and the
 * request all come from the same rows.
 *
 * One thread. Values borrow argv.
 */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "leasehold/err.h"
#include "leasehold/id.h"

enum opt_kind {
    OPT_FLAG,        /* takes no value */
    OPT_TEXT,        /* any UTF-8 */
    OPT_UUID,        /* in any of the forms the API accepts; sent canonical */
    OPT_INT,         /* min..max */
    OPT_WORDS,       /* "a,b": a JSON array of strings */
    OPT_OBJECT,      /* the text of a JSON object */
    OPT_FILE,        /* a path that is read */
    OPT_ENV_FILE,    /* a path with NAME=VALUE lines: a JSON object (env_file.h) */
    OPT_SECRET_FILE, /* a path that receives the answer's secret, 0600 */
};

enum opt_flags {
    OPT_OPERAND = 1,  /* positional: `name` is what the usage line calls it */
    OPT_REQUIRED = 2, /* exactly one, or at least one if repeated */
    OPT_REPEATED = 4, /* may be given again; sent as a JSON array */
    OPT_ONE_OF = 8,   /* exactly one of all rows with this flag */
    OPT_NEGATED = 16, /* an OPT_FLAG that sends false */
    OPT_SOME_OF = 32, /* at least one of all rows with this flag */
};

/* A command takes at most this many values; far above any sensible use. */
#define OPTIONS_MAX 128

struct opt_spec {
    const char *name;  /* "--ttl", or "CHAT" of an operand; NULL ends the table */
    const char *brief; /* "-h": the same in short; NULL: there is none */
    enum opt_kind kind;
    unsigned flags;
    /* Where the value goes in the request: NULL nowhere, "{}" into the path, "ttl_s" a member,
     * "lease/ttl_s" a member of a member, "lease/" (of a flag) just brings that member about. */
    const char *member;
    const char *value; /* what usage calls the value; NULL for flags and operands */
    const char *needs; /* the option without which this one makes no sense */
    int64_t min, max;  /* of OPT_INT */
    /* NULL-terminated: the words that OPT_TEXT, and each part of OPT_WORDS, may be; NULL: any */
    const char *const *choices;
    const char *sends; /* the text that an OPT_FLAG stands for; NULL: true */
    const char *help;
};

struct opt_value {
    const struct opt_spec *spec;
    const char *text;
    int64_t number; /* of OPT_INT */
    struct id id;   /* of OPT_UUID */
};

struct options {
    struct opt_value values[OPTIONS_MAX];
    size_t n;
};

/*
 * Parses `argv` (without the program and command words) against two tables, the command's and the
 * global one; the second may be NULL. Values are added to *o, so that options before and behind the
 * command word meet. Options and operands may be mixed; "--" ends the options; "--name=value" is
 * accepted. Stops in front of the first operand if `specs` is NULL and sets *ret_used.
 * Errors: ERR_INVALID_REQUEST with a message for the user; it never holds a value.
 */
int options_parse(const struct opt_spec *specs, const struct opt_spec *globals, int argc,
                  char *const *argv, struct options *o, int *ret_used, struct err *e) MUST_CHECK;

/* The rules that only hold for the whole line: required, one of, needs. */
int options_check(const struct opt_spec *specs, const struct options *o, struct err *e) MUST_CHECK;

/* The last value given for `name`, or NULL. */
const struct opt_value *options_find(const struct options *o, const char *name);
bool options_has(const struct options *o, const char *name);
const char *options_text(const struct options *o, const char *name, const char *otherwise);
int64_t options_int(const struct options *o, const char *name, int64_t otherwise);

/* " CHAT [--profile P] …" */
void options_print_usage(const struct opt_spec *specs, FILE *out);

/* One aligned line for each row. */
void options_print_help(const struct opt_spec *specs, FILE *out);

#endif
