/* leasectl: finds the command, the gateway and the key, and runs the command's row. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "secret_file.h"

#define DEFAULT_URL "http://127.0.0.1:8123"

static const struct opt_spec global_opts[] = {
    {.name = "--url",
     .kind = OPT_TEXT,
     .value = "URL",
     .help = "the gateway (default: $LEASEHOLD_URL, else " DEFAULT_URL ")"},
    {.name = "--key-file",
     .kind = OPT_FILE,
     .value = "FILE",
     .help = "file with the API key (default: the key in $LEASEHOLD_KEY)"},
    {.name = "--ca-file",
     .kind = OPT_FILE,
     .value = "FILE",
     .help = "certificates to trust for https (default: the system's)"},
    {.name = "--timeout",
     .kind = OPT_INT,
     .value = "SECONDS",
     .min = 1,
     .max = 86400,
     .help = "wait so long for an answer"},
    {.name = "--idempotency-key",
     .kind = OPT_TEXT,
     .value = "KEY",
     .help = "with the same KEY a request is answered again, not done again"},
    {.name = "--json", .kind = OPT_FLAG, .help = "print the gateway's answer as it is"},
    {.name = "--help", .brief = "-h", .kind = OPT_FLAG, .help = "show this"},
    {.name = "--version", .brief = "-v", .kind = OPT_FLAG, .help = "show the version"},
    {0},
};

/* "chat" of "chat get": a first word that needs a second one. */
static bool is_in_group(const struct command *c, const char *word)
{
    size_t len = strlen(word);
    return strncmp(c->name, word, len) == 0 && c->name[len] == ' ';
}

static bool is_group(const char *word)
{
    const struct command *c = commands;
    while (c->name != NULL && !is_in_group(c, word)) {
        c++;
    }
    return c->name != NULL;
}

/* Those of a group; NULL: all. */
static void print_commands(const char *group, FILE *out)
{
    fputs("Commands:\n", out);
    for (const struct command *c = commands; c->name != NULL; c++) {
        if (group == NULL || is_in_group(c, group)) {
            fprintf(out, "  %-16s %s\n", c->name, c->summary);
        }
    }
}

static void print_usage(FILE *out)
{
    fputs("Usage: leasectl [OPTION]… COMMAND …\n\n", out);
    print_commands(NULL, out);
    fputs("\nOptions of every command:\n", out);
    options_print_help(global_opts, out);
    fputs("\n'leasectl COMMAND --help' or 'leasectl help COMMAND' tells more.\n"
          "Exit codes: 0, 1 failure, 2 usage, 3 not found, 4 denied, 5 unreachable.\n",
          out);
}

static void print_help(const struct command *c, FILE *out)
{
    fprintf(out, "Usage: leasectl %s", c->name);
    options_print_usage(c->opts, out);
    fprintf(out, "\n%s\n", c->summary);
    if (c->opts->name != NULL) {
        fputc('\n', out);
        options_print_help(c->opts, out);
    }
    fputs("\nOptions of every command:\n", out);
    options_print_help(global_opts, out);
    if (c->notes != NULL) {
        fprintf(out, "\n%s", c->notes);
    }
}

static int usage_error(const struct command *c, const char *why)
{
    fprintf(stderr, "leasectl: %s\n'leasectl %s%s--help' tells more.\n", why,
            c != NULL ? c->name : "", c != NULL ? " " : "");
    return EXIT_USAGE;
}

static bool asks_for_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

static int no_command(int argc, char *const *argv)
{
    if (argc == 0) {
        return usage_error(NULL, "a command is missing");
    }
    if (argc == 2 && is_group(argv[0]) && asks_for_help(argv[1])) {
        print_commands(argv[0], stdout);
        return EXIT_OK;
    }
    const char *group = is_group(argv[0]) ? argv[0] : NULL;
    if (group != NULL && argc == 1) {
        fprintf(stderr, "leasectl: %s what?\n", group);
    } else {
        fprintf(stderr, "leasectl: no such command: %.40s%s%.40s\n", argv[0],
                group != NULL ? " " : "", group != NULL ? argv[1] : "");
    }
    print_commands(group, stderr);
    return EXIT_USAGE;
}

/* Does the line begin with the words of `name`? Returns how many words, 0 for no. */
static int match_words(const char *name, int argc, char *const *argv)
{
    int words = 0;
    while (words < argc) {
        size_t len = strlen(argv[words]);
        if (len == 0 || strncmp(name, argv[words], len) != 0) {
            return 0;
        }
        words++;
        if (name[len] == '\0') {
            return words;
        }
        if (name[len] != ' ') {
            return 0;
        }
        name += len + 1;
    }
    return 0;
}

static const struct command *find_command(int argc, char *const *argv, int *ret_words)
{
    for (const struct command *c = commands; c->name != NULL; c++) {
        int words = match_words(c->name, argc, argv);
        if (words > 0) {
            *ret_words = words;
            return c;
        }
    }
    return NULL;
}

/* Finds the key; *ret stays "" if there is none. The environment's is read only without a file. */
static int find_key(const struct options *o, char ret[static API_KEY_MAX], struct err *e)
{
    const char *file = options_text(o, "--key-file", NULL);
    if (file != NULL) {
        bool open_to_others = false;
        if (secret_file_read(file, ret, API_KEY_MAX, &open_to_others, e) < 0) {
            return -1;
        }
        if (open_to_others) {
            fprintf(stderr, "leasectl: warning: %s can be read by others; chmod 600 it\n", file);
        }
        return 0;
    }
    const char *env = getenv("LEASEHOLD_KEY");
    if (env == NULL || env[0] == '\0') {
        return 0;
    }
    if (strlen(env) >= API_KEY_MAX || !secret_valid(env)) {
        return err_set(e, ERR_INVALID_REQUEST, "LEASEHOLD_KEY does not hold a key");
    }
    memcpy(ret, env, strlen(env) + 1);
    return 0;
}

/* Only one POST may go under it, so that nothing else is taken for its repetition. */
static int init_idempotency(struct api_access *ret, const struct command *c,
                            const struct options *o, struct err *e)
{
    const char *key = options_text(o, "--idempotency-key", NULL);
    if (key == NULL) {
        return 0;
    }
    size_t len = strlen(key);
    for (size_t i = 0; i < len; i++) {
        if (key[i] < '!' || key[i] > '~') {
            len = 0;
        }
    }
    if (len == 0 || len > 128) {
        return err_set(e, ERR_INVALID_REQUEST,
                       "--idempotency-key takes 1 to 128 visible ASCII characters");
    }
    bool one_post = c->run == revoke_run ? revoke_selects(o)
                                         : c->run == rest_run && strcmp(c->method, "POST") == 0;
    if (!one_post) {
        return err_set(e, ERR_INVALID_REQUEST, "%s takes no --idempotency-key", c->name);
    }
    snprintf(ret->idempotency, sizeof(ret->idempotency), "Idempotency-Key: %s", key);
    return 0;
}

static int init_access(struct api_access *ret, const struct command *c, const struct options *o,
                       struct err *e)
{
    char key[API_KEY_MAX] = "";
    const char *env = getenv("LEASEHOLD_URL");
    const char *url = options_text(o, "--url", env != NULL && env[0] != '\0' ? env : DEFAULT_URL);
    int rc = find_key(o, key, e);
    if (rc == 0 && key[0] == '\0' && !c->keyless) {
        rc = err_set(e, ERR_INVALID_REQUEST, "no API key: give --key-file, or LEASEHOLD_KEY");
    }
    if (rc == 0) {
        rc = api_access_init(ret, url, key[0] != '\0' ? key : NULL,
                             options_text(o, "--ca-file", NULL), e);
    }
    explicit_bzero(key, sizeof(key));
    return rc == 0 ? init_idempotency(ret, c, o, e) : -1;
}

static int run_command(const struct command *c, const struct options *o)
{
    struct err e;
    struct cli cli = {
        .json = options_has(o, "--json"),
        .timeout_ms = (long)options_int(o, "--timeout", 0) * 1000,
    };
    int code = EXIT_FAILED;
    if (init_access(&cli.access, c, o, &e) < 0) {
        code = report_err(&e);
    } else {
        code = c->run(&cli, c, o);
    }
    api_access_done(&cli.access);
    return code;
}

/* `more` words behind it. */
static int show_version(int more)
{
    if (more > 0) {
        return usage_error(NULL, "the version is shown alone: one argument too many");
    }
    puts("leasectl " LEASEHOLD_VERSION);
    return EXIT_OK;
}

/* "help", "help lease grant": the words behind it. */
static int show_help(int argc, char *const *argv)
{
    int words = 0;
    const struct command *c = find_command(argc, argv, &words);
    if (argc > 0 && c == NULL && !(argc == 1 && is_group(argv[0]))) {
        return no_command(argc, argv);
    }
    if (c != NULL && argc > words) {
        return usage_error(c, "one argument too many");
    }
    if (c != NULL) {
        print_help(c, stdout);
    } else if (argc > 0) {
        print_commands(argv[0], stdout);
    } else {
        print_usage(stdout);
    }
    return EXIT_OK;
}

static int run_line(int argc, char *const *argv)
{
    struct err e;
    struct options o = {0};
    int used = 0;
    if (options_parse(NULL, global_opts, argc, argv, &o, &used, &e) < 0) {
        return usage_error(NULL, e.msg);
    }
    argc -= used;
    argv += used;
    if (argc > 0 && strcmp(argv[0], "version") == 0) {
        return show_version(argc - 1);
    }
    if (options_has(&o, "--version")) {
        return show_version(argc);
    }
    if (argc == 0 && options_has(&o, "--help")) {
        return show_help(0, argv);
    }
    if (argc > 0 && strcmp(argv[0], "help") == 0) {
        return show_help(argc - 1, argv + 1);
    }
    int words = 0;
    const struct command *c = find_command(argc, argv, &words);
    if (c == NULL) {
        return no_command(argc, argv);
    }
    if (options_parse(c->opts, global_opts, argc - words, argv + words, &o, &used, &e) < 0) {
        return usage_error(c, e.msg);
    }
    if (options_has(&o, "--version")) {
        return show_version(words);
    }
    if (options_has(&o, "--help")) {
        print_help(c, stdout);
        return EXIT_OK;
    }
    if (options_check(c->opts, &o, &e) < 0) {
        return usage_error(c, e.msg);
    }
    return run_command(c, &o);
}

int main(int argc, char **argv)
{
    int code = run_line(argc - 1, argv + 1);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "leasectl: stdout cannot be written\n");
        return code == EXIT_OK ? EXIT_FAILED : code;
    }
    return code;
}
