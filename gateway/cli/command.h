/*
 * The commands of leasectl: one table. Parsing, help and the plain REST commands need nothing but a
 * command's row.
 */
#ifndef CLI_COMMAND_H
#define CLI_COMMAND_H

#include "api.h"
#include "options.h"
#include "output.h"

struct cli {
    struct api_access access;
    bool json;
    long timeout_ms; /* asked for on the command line; 0: the command's own */
};

struct command {
    const char *name;    /* "lease grant" */
    const char *summary; /* one sentence */
    const char *notes;   /* more for --help, or NULL */
    const struct opt_spec *opts;
    const char *method, *path; /* of a REST command */
    const struct view *view;
    long timeout_ms;
    bool shows_start; /* of a sandbox, while it is waited for */
    bool keyless;     /* the operation needs no key */
    int (*run)(const struct cli *cli, const struct command *cmd, const struct options *o);
};

extern const struct command commands[]; /* ends with a row without a name */

/* One call, its answer shown: what most commands are. Returns an exit code, as all `run` do. */
int rest_run(const struct cli *cli, const struct command *cmd, const struct options *o);

/* The answer of a call that was made otherwise: shown, or its refusal told. */
int rest_show(const struct cli *cli, const struct command *cmd, const struct options *o,
              const struct api_answer *a);

/* file.c: what goes by pieces, or has a name in its path. */
int file_put_run(const struct cli *cli, const struct command *cmd, const struct options *o);
int file_get_run(const struct cli *cli, const struct command *cmd, const struct options *o);
int file_rm_run(const struct cli *cli, const struct command *cmd, const struct options *o);
/* artifact.c */
int artifact_put_run(const struct cli *cli, const struct command *cmd, const struct options *o);
int artifact_get_run(const struct cli *cli, const struct command *cmd, const struct options *o);

/* The same with another method and path than the row's. */
int rest_run_at(const struct cli *cli, const struct command *cmd, const struct options *o,
                const char *method, const char *path);
int retention_run(const struct cli *cli, const struct command *cmd, const struct options *o);

/* commands_lease.c: one lease is named in the path, many, and those that are counted first, by a
 * selector in the body of a POST. */
bool revoke_selects(const struct options *o);
int revoke_run(const struct cli *cli, const struct command *cmd, const struct options *o);
/* revoke_look.c: says so if the gateway knows nothing of the key, kid or user that is named; an exit code. */
int revoke_look(const struct cli *cli, const struct options *o);

int logs_run(const struct cli *cli, const struct command *cmd, const struct options *o);
/* Page after page, on request without end: feed.c. */
int history_run(const struct cli *cli, const struct command *cmd, const struct options *o);
int audit_run(const struct cli *cli, const struct command *cmd, const struct options *o);
int top_run(const struct cli *cli, const struct command *cmd, const struct options *o);
int connect_run(const struct cli *cli, const struct command *cmd, const struct options *o);

/* "leasectl: …" on stderr for an error of our own; returns its exit code. */
int report_err(const struct err *e);

#endif
