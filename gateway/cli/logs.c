/* sandbox logs: what an agent says, to stdout. */
#include <stdio.h>
#include <unistd.h>

#include "command.h"
#include "request.h"

#define LEAD '\xc2' /* of a control character of two bytes */

struct shown {
    bool terminal; /* an agent is not to be trusted with one: only text goes through */
    bool held;     /* a LEAD, until the byte behind it has come */
};

static void show_clean(struct shown *s, const char *data, size_t len)
{
    struct buf text, clean;

    buf_init(&text, len + 1);
    buf_init(&clean, len + 1);
    if (s->held) {
        buf_add_char(&text, LEAD);
    }
    s->held = data[len - 1] == LEAD;
    buf_add(&text, data, len - s->held);
    output_clean(text.data, text.len, true, &clean);
    fwrite(clean.data, 1, clean.len, stdout);
    buf_done(&text);
    buf_done(&clean);
}

static bool show(void *ctx, const char *data, size_t len)
{
    struct shown *s = ctx;

    if (len > 0 && s->terminal) {
        show_clean(s, data, len);
    } else {
        fwrite(data, 1, len, stdout);
    }
    return fflush(stdout) == 0;
}

static int fetch(struct api *api, const char *path)
{
    struct shown shown = {.terminal = isatty(STDOUT_FILENO) == 1};
    struct api_sink sink = {&shown, show};
    struct api_answer answer;
    struct err e;

    api_answer_init(&answer);
    int code = api_fetch(api, path, &sink, &answer, &e) < 0 ? report_err(&e)
               : api_answer_ok(&answer)                     ? EXIT_OK
                                                            : api_refused(&answer);
    api_answer_done(&answer);
    return code == EXIT_OK && ferror(stdout) ? EXIT_FAILED : code;
}

int logs_run(const struct cli *cli, const struct command *cmd, const struct options *o)
{
    struct request req;
    struct err e;
    int code;

    request_init(&req);
    struct api *api = api_new(&cli->access);
    if (api == NULL) {
        err_set(&e, ERR_INTERNAL, "no memory");
        code = report_err(&e);
    } else if (request_build(cmd->method, cmd->path, o, &req, &e) < 0) {
        code = report_err(&e);
    } else {
        code = fetch(api, req.path.data);
    }
    api_free(api);
    request_done(&req);
    return code;
}
