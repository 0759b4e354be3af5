/* leasehold, the gateway: the command line, and the one place that names a concrete engine. */
#include <limits.h>
#include <stdbool.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "app.h"
#include "auth_jwt.h"
#include "backup.h"
#include "config_files.h"
#include "leasehold/clock.h"
#include "leasehold/objects.h"
#include "tls_ca.h"
#include "tls_server.h"

static const char usage[] =
    "leasehold " LEASEHOLD_VERSION ": control plane for sandboxed AI agents\n"
    "\n"
    "  leasehold init [--dir DIR]          write configuration, keys, admin key and directories\n"
    "  leasehold [run] --config FILE       serve until SIGTERM\n"
    "  leasehold check-config --config FILE\n"
    "  leasehold print-config --config FILE   the effective configuration, secrets masked\n"
    "  leasehold admin-key --config FILE      one more admin key, into admin.key\n"
    "  leasehold backup FILE --config FILE    a copy of metadata and histories, also while it "
    "runs\n"
    "  leasehold audit-verify --config FILE   is the audit trail whole? (not while it runs)\n"
    "  leasehold clock-reset --config FILE [--mark TIME --reason TEXT]   behind a clock that was "
    "ahead\n"
    "  leasehold version\n"
    "\n"
    "Ready when <run_dir>/ready exists: line 1 is the URL, line 2 the pid. SIGTERM drains and "
    "exits\n"
    "0 (sandboxes and live connections stay), SIGHUP reloads the log level, keys, certificates "
    "and\n"
    "the credentials of the object store.\n"
    "Configuration keys may come from the environment: LEASEHOLD_HTTP_PORT=8124.\n"
    "Exit: 0, 1 failure, 2 usage.\n";

static int engine_new(const struct config *cfg, const char *bin_dir, struct engine **ret,
                      struct err *e)
{
    return cfg->sandbox.engine == ENGINE_DOCKER ? engine_docker_new(cfg, bin_dir, ret, e)
                                                : engine_local_new(cfg, bin_dir, ret, e);
}

static int s3_new(const struct config_objects *c, struct log *log, struct objects **ret,
                  struct err *e)
{
    static const enum objects_s3_signing signings[] = {
        [SIGNING_AUTO] = OBJECTS_S3_SIGN_AUTO,
        [SIGNING_SIGNED] = OBJECTS_S3_SIGN_ALL,
        [SIGNING_UNSIGNED] = OBJECTS_S3_SIGN_HEADS,
    };
    char secret[OBJECTS_SECRET_TEXT];
    const struct objects_s3_options o = {.endpoint = c->endpoint,
                                         .public_endpoint = c->public_endpoint,
                                         .region = *c->region ? c->region : "us-east-1",
                                         .bucket = c->bucket,
                                         .path_style = c->path_style,
                                         .access_key = c->access_key,
                                         .secret = secret,
                                         .ca_file = c->ca_file,
                                         .signing = signings[c->payload_signing],
                                         .log = log};
    int rc = config_objects_secret(c, secret, e) || objects_s3_new(&o, ret, e) ? -1 : 0;

    explicit_bzero(secret, sizeof secret);
    return rc;
}

static int objects_new(const struct config *cfg, struct log *log, struct objects **ret,
                       struct err *e)
{
    char dir[PATH_MAX];

    if (strcmp(cfg->objects.kind, "s3") == 0)
        return s3_new(&cfg->objects, log, ret, e);
    if ((size_t)snprintf(dir, sizeof dir, "%s/objects", cfg->storage.data_dir) >= sizeof dir)
        return err_set(e, ERR_INTERNAL, "storage.data_dir is too long a path");
    return objects_disk_new(dir, ret, e);
}

static int objects_renew(const struct config *cfg, struct objects *o, struct err *e)
{
    char secret[OBJECTS_SECRET_TEXT];
    int rc;

    if (strcmp(o->v->name, "s3") != 0 || strcmp(cfg->objects.kind, "s3") != 0)
        return 0;
    rc = config_objects_secret(&cfg->objects, secret, e) ||
                 objects_s3_renew(o, cfg->objects.access_key, secret, e)
             ? -1
             : 0;
    explicit_bzero(secret, sizeof secret);
    return rc;
}

static int fail(const struct err *e)
{
    fprintf(stderr, "leasehold: %s\n", e->msg);
    return 1;
}

/* The directory of this program: its companions stand beside it. */
static int bin_dir(char ret[static PATH_MAX], struct err *e)
{
    ssize_t n = readlink("/proc/self/exe", ret, PATH_MAX - 1);
    char *slash;

    if (n <= 0)
        return err_set(e, ERR_INTERNAL, "/proc is not mounted");
    ret[n] = '\0';
    slash = strrchr(ret, '/');
    if (!slash)
        return err_set(e, ERR_INTERNAL, "the program has no directory");
    *slash = '\0';
    return 0;
}

static int do_run(const char *file)
{
    char dir[PATH_MAX];
    struct app_options o = {.config_file = file,
                            .bin_dir = dir,
                            .engine_new = engine_new,
                            .objects_new = objects_new,
                            .objects_renew = objects_renew};
    struct err e;

    /* Of no use to us, but doors and sandboxes would inherit it. Here, as it is each thread's. */
    (void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    return bin_dir(dir, &e) || app_run(&o, &e) ? fail(&e) : 0;
}

static int secret_check(const struct config_objects *c, struct err *e)
{
    char secret[OBJECTS_SECRET_TEXT];
    int rc = strcmp(c->kind, "s3") == 0 ? config_objects_secret(c, secret, e) : 0;

    explicit_bzero(secret, sizeof secret);
    return rc;
}

/* A configuration that can be read may name keys that are of no use: run would refuse them. */
static int keys_check(const struct config *cfg, struct err *e)
{
    struct jwt_trust *trust;

    if (jwt_trust_new(cfg, &trust, e))
        return -1;
    jwt_trust_free(trust);
    return tls_server_check(&cfg->http.tls, e) || tls_ca_check(cfg, e) ||
                   secret_check(&cfg->objects, e) || engine_docker_check(cfg, e) ||
                   engine_secrets_check(cfg, e) || config_files_check(cfg, e)
               ? -1
               : 0;
}

static void exposed_warn(void *ctx, const char *key, const char *path)
{
    (void)ctx;
    fprintf(stderr, "leasehold: warning: %s %s: " CONFIG_FILES_EXPOSED "\n", key, path);
}

static int do_check(const char *file)
{
    struct config cfg;
    struct err e;
    int rc;

    if (config_load(file, environ, &cfg, &e))
        return fail(&e);
    rc = keys_check(&cfg, &e);
    config_files_exposed(&cfg, exposed_warn, NULL);
    config_done(&cfg);
    if (rc)
        return fail(&e);
    printf("%s is valid\n", file);
    return 0;
}

static int do_print(const char *file)
{
    struct config cfg;
    struct buf out;
    struct err e;

    if (config_load(file, environ, &cfg, &e))
        return fail(&e);
    buf_init(&out, 1024 * 1024);
    config_print(&cfg, &out);
    fwrite(out.data, 1, out.len, stdout);
    buf_done(&out);
    config_done(&cfg);
    return 0;
}

static int do_admin_key(const char *file)
{
    struct err e;

    if (admin_key_run(file, &e))
        return fail(&e);
    puts("wrote admin.key beside the configuration");
    return 0;
}

static int do_audit_verify(const char *file)
{
    int64_t checked, first_broken;
    struct err e;

    if (audit_verify_run(file, &checked, &first_broken, &e))
        return fail(&e);
    if (first_broken) {
        fprintf(stderr, "leasehold: the audit trail is broken at row %lld\n",
                (long long)first_broken);
        return 1;
    }
    printf("%lld rows, the chain is whole\n", (long long)checked);
    return 0;
}

static int do_init(const char *dir)
{
    struct err e;

    if (init_run(dir, &e))
        return fail(&e);
    printf("made %s: leasehold.yaml, keys/, certs/, data/, run/ and admin.key\n"
           "next: leasehold run --config %s/leasehold.yaml\n",
           dir, dir);
    return 0;
}

static int bad_usage(const char *what, const char *word)
{
    fprintf(stderr, "leasehold: %s%s%s (leasehold --help)\n", what, word ? " " : "",
            word ? word : "");
    return 2;
}

static int do_backup(const char *config, const char *file)
{
    struct err e;

    if (!config)
        return bad_usage("backup", "needs --config FILE");
    if (!file)
        return bad_usage("backup", "needs the FILE to write");
    if (backup_run(config, file, &e))
        return fail(&e);
    printf("wrote %s\n", file);
    return 0;
}

static void print_mark(const struct clock_reset *asked, const struct clock_reset_found *f)
{
    char mark[TIME_TEXT], now[TIME_TEXT];

    time_format(f->mark_ms, mark);
    printf("the clock stands at %s, the mark of the highest time seen at %s\n",
           time_format(f->now_ms, now), mark);
    if (asked->mark)
        printf("revoked %lld open leases and lowered the mark to the clock\n",
               (long long)f->leases);
    else if (f->mark_ms > f->now_ms)
        printf("to revoke the %lld open leases and lower the mark to the clock:\n"
               "leasehold clock-reset --config %s --mark %s --reason TEXT\n",
               (long long)f->leases, asked->config_file, mark);
    else
        puts("the clock is not behind: nothing to do");
}

static int do_clock_reset(const struct clock_reset *asked)
{
    struct clock_reset_found found;
    struct err e;

    if (!asked->config_file)
        return bad_usage("clock-reset", "needs --config FILE");
    if (!asked->mark != !asked->reason || (asked->reason && !*asked->reason))
        return bad_usage("clock-reset takes --mark and --reason together, or none of them", NULL);
    if (clock_reset_run(asked, &found, &e))
        return fail(&e);
    print_mark(asked, &found);
    return 0;
}

struct command {
    const char *name;
    int (*with_config)(const char *file);
};

static const struct command commands[] = {{"run", do_run},
                                          {"check-config", do_check},
                                          {"print-config", do_print},
                                          {"admin-key", do_admin_key},
                                          {"audit-verify", do_audit_verify},
                                          {NULL, NULL}};

/* The words of the command line; NULL: not given. */
struct words {
    const char *name, *config, *dir, *file, *mark, *reason;
};

static int run_command(const struct words *w)
{
    if (!strcmp(w->name, "init"))
        return w->config ? bad_usage("init takes --dir, not --config", NULL)
                         : do_init(w->dir ? w->dir : ".");
    if (w->dir)
        return bad_usage("--dir is for init", NULL);
    if (!strcmp(w->name, "clock-reset"))
        return do_clock_reset(&(struct clock_reset){w->config, w->mark, w->reason});
    if (w->mark || w->reason)
        return bad_usage("--mark and --reason are for clock-reset", NULL);
    if (!strcmp(w->name, "backup"))
        return do_backup(w->config, w->file);
    for (const struct command *c = commands; c->name; c++)
        if (!strcmp(c->name, w->name))
            return w->config ? c->with_config(w->config)
                             : bad_usage(w->name, "needs --config FILE");
    return bad_usage("there is no command", w->name);
}

/* Where the value of this option goes; NULL: there is no such option. */
static const char **value_of(struct words *w, const char *option)
{
    const struct {
        const char *name, **value;
    } options[] = {{"--config", &w->config},
                   {"--dir", &w->dir},
                   {"--mark", &w->mark},
                   {"--reason", &w->reason}};

    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        if (!strcmp(option, options[i].name))
            return options[i].value;
    return NULL;
}

/* An empty one is a variable of a script that is not set. */
static int take_value(const char *what, const char *text, const char **ret)
{
    if (!*text)
        return bad_usage(what, "needs a value that is not empty");
    if (*ret)
        return bad_usage(what, "is given twice");
    *ret = text;
    return 0;
}

static int read_words(int argc, char **argv, int from, struct words *w)
{
    for (int i = from; i < argc; i++) {
        const char *what = argv[i], **value = value_of(w, what);

        if (!value && what[0] != '-' && !strcmp(w->name, "backup") && !w->file) {
            value = &w->file;
            what = "FILE";
        } else if (!value && argv[i][0] != '-')
            return bad_usage("options come by name, as in --config FILE; unexpected:", argv[i]);
        else if (!value)
            return bad_usage("there is no option", argv[i]);
        else if (++i == argc)
            return bad_usage(what, "needs a value");
        if (take_value(what, argv[i], value))
            return 2;
    }
    return 0;
}

static bool is_command(const char *name)
{
    static const char *const others[] = {"init", "backup", "clock-reset", "version", "help"};

    for (const struct command *c = commands; c->name; c++)
        if (!strcmp(c->name, name))
            return true;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (!strcmp(others[i], name))
            return true;
    return false;
}

/* "--help" anywhere is taken out of the line; what else stands there must make sense. */
static bool take_help(int *argc, char **argv)
{
    int n = 1;

    for (int i = 1; i < *argc; i++)
        if (strcmp(argv[i], "--help") != 0 && (i > 1 || strcmp(argv[i], "-h") != 0))
            argv[n++] = argv[i];
    bool found = n < *argc;
    *argc = n;
    return found;
}

static int show_help(const char *command)
{
    if (command && !is_command(command))
        return bad_usage("there is no command", command);
    return fputs(usage, stdout) < 0;
}

static int show_version(int argc, char **argv)
{
    return argc > 2 ? bad_usage("version stands alone; unexpected:", argv[2])
                    : puts("leasehold " LEASEHOLD_VERSION) < 0;
}

static int read_line(int argc, char **argv)
{
    struct words w = {.name = "run"};
    bool help = take_help(&argc, argv), named = argc > 1 && argv[1][0] != '-';
    int rc;

    if (argc < 2)
        return help ? show_help(NULL) : bad_usage("what shall I do?", NULL);
    if (!strcmp(argv[1], "help"))
        return argc > 3 ? bad_usage("help takes one command; unexpected:", argv[3])
                        : show_help(argc == 3 ? argv[2] : NULL);
    if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-v") || !strcmp(argv[1], "version"))
        return help && argc == 2 ? show_help(NULL) : show_version(argc, argv);
    if (named)
        w.name = argv[1];
    rc = read_words(argc, argv, named ? 2 : 1, &w);
    return rc ? rc : help ? show_help(w.name) : run_command(&w);
}

int main(int argc, char **argv)
{
    umask(077);
    (void)signal(SIGXFSZ, SIG_IGN); /* a write past a limit of files just fails */
    return read_line(argc, argv);
}
