#include "command.h"

#include <stdio.h>
#include <string.h>

#include "env_file.h"
#include "request.h"
#include "secret_file.h"
#include "start_watch.h"

#define ARENA_CAP    (32UL * 1024 * 1024)
#define ENV_JSON_CAP (8UL * ENV_FILE_MAX) /* each byte may become an escape */

int report_err(const struct err *e)
{
    fprintf(stderr, "leasectl: %s\n", e->msg);
    return api_exit_code_of_err(e);
}

static const struct opt_value *secret_file_option(const struct options *o)
{
    for (size_t i = 0; i < o->n; i++) {
        if (o->values[i].spec->kind == OPT_SECRET_FILE) {
            return &o->values[i];
        }
    }
    return NULL;
}

static void print_body(const struct buf *body)
{
    fwrite(body->data, 1, body->len, stdout);
    if (body->len > 0 && body->data[body->len - 1] != '\n') {
        fputc('\n', stdout);
    }
}

static int save_secret(const struct view *view, const void *obj, struct secret_file *file,
                       struct err *e)
{
    const char *secret = view->secret(obj);
    if (secret == NULL || !secret_valid(secret)) {
        return err_set(e, ERR_INTERNAL, "the answer holds no secret to be written");
    }
    return secret_file_commit(file, secret, e);
}

/* Where a list goes on is told apart from it. */
static void show_list(const struct view *view, const struct list_view *page)
{
    output_table(view->columns, &page->items, view->fields->elem, stdout);
    if (page->next_cursor != NULL) {
        fputs("leasectl: there is more, with --cursor ", stderr);
        output_text(page->next_cursor, strlen(page->next_cursor), stderr);
        fputc('\n', stderr);
    }
}

/* Nobody can have it again: the gateway does not keep it. */
static void tell_lost_token(const struct view *view, const void *obj)
{
    const char *token = view->secret != NULL ? view->secret(obj) : NULL;
    if (token != NULL && token[0] != '\0') {
        fputs("leasectl: the token is lost: it goes to --token-file FILE, or is shown with --json; "
              "'leasectl lease renew ID' with one of them makes another\n",
              stderr);
    }
}

/* `file` NULL: none was asked for. */
static int show_answer(const struct cli *cli, const struct command *cmd, const struct options *o,
                       const struct api_answer *a, struct secret_file *file, struct arena *arena)
{
    struct err e;
    if (cmd->view == NULL) {
        if (a->status == 204) {
            return EXIT_OK;
        }
        api_answer_foreign(&e, "it should hold nothing");
        return report_err(&e);
    }
    void *obj = arena_alloc(arena, cmd->view->size);
    if (obj == NULL) {
        err_set(&e, ERR_INTERNAL, "no memory");
        return report_err(&e);
    }
    if (api_answer_read(a, cmd->view->fields, obj, arena, &e) < 0) {
        return report_err(&e);
    }
    /* First what cannot be had again, then what is only shown. */
    if (file != NULL && save_secret(cmd->view, obj, file, &e) < 0) {
        return report_err(&e);
    }
    if (cli->json) {
        print_body(&a->body);
    } else if (cmd->view->columns != NULL) {
        show_list(cmd->view, obj);
    } else {
        bool show_secret = cmd->view->show_secret && file == NULL;
        output_object(cmd->view->fields, obj, show_secret, stdout);
        if (file == NULL && !show_secret) {
            tell_lost_token(cmd->view, obj);
        }
    }
    return cmd->view->outcome != NULL ? cmd->view->outcome(cli, obj, o) : EXIT_OK;
}

static int finish(const struct cli *cli, const struct command *cmd, const struct options *o,
                  const struct api_answer *a, struct secret_file *file)
{
    struct arena *arena = arena_new(ARENA_CAP);
    if (arena == NULL) {
        return EXIT_FAILED;
    }
    int code = api_exit_code(a->status);
    if (api_answer_ok(a)) {
        code = show_answer(cli, cmd, o, a, file, arena);
    } else {
        struct api_problem p;
        api_problem_read(a, arena, &p);
        api_problem_print(&p);
    }
    arena_free(arena);
    return code;
}

static int call(const struct cli *cli, const struct command *cmd, const struct options *o,
                const struct request *req, struct api_answer *ret, struct err *e)
{
    struct api *api = api_new(&cli->access);
    if (api == NULL) {
        return err_set(e, ERR_INTERNAL, "no memory");
    }
    /* The gateway answers a stop when the sandbox has used its grace. */
    long timeout_ms = cmd->timeout_ms + (long)options_int(o, "--grace", 0) * 1000;
    struct start_watch *watch = cmd->shows_start ? start_watch_begin(cli, o) : NULL;
    int rc = api_call(api, req->method, req->path.data, req->body.len > 0 ? &req->body : NULL,
                      cli->timeout_ms > 0 ? cli->timeout_ms : timeout_ms, ret, e);
    start_watch_end(watch);
    api_free(api);
    return rc;
}

static int send_request(const struct cli *cli, const struct command *cmd, const struct options *o,
                        const struct request *req)
{
    struct err e;
    struct secret_file file = {0};
    const struct opt_value *out = secret_file_option(o);
    /* A token is written over its predecessor; a key never over another key. */
    bool replace = out != NULL && strcmp(out->spec->name, "--token-file") == 0;
    if (out != NULL && secret_file_prepare(&file, out->text, replace, &e) < 0) {
        return report_err(&e);
    }
    struct api_answer answer;
    api_answer_init(&answer);
    int code;
    if (call(cli, cmd, o, req, &answer, &e) < 0) {
        code = report_err(&e);
    } else {
        code = finish(cli, cmd, o, &answer, out != NULL ? &file : NULL);
    }
    api_answer_done(&answer);
    secret_file_abort(&file);
    return code;
}

int rest_run_at(const struct cli *cli, const struct command *cmd, const struct options *o,
                const char *method, const char *path)
{
    struct err e;
    struct request req;
    struct options loaded = *o;
    struct buf env;
    request_init(&req);
    buf_init(&env, ENV_JSON_CAP);
    int code;
    if (env_file_load(&loaded, &env, &e) < 0 ||
        request_build(method, path, &loaded, &req, &e) < 0) {
        code = report_err(&e);
    } else {
        code = send_request(cli, cmd, o, &req);
    }
    request_done(&req);
    if (env.data != NULL) {
        explicit_bzero(env.data, env.size);
    }
    buf_done(&env);
    return code;
}

int rest_show(const struct cli *cli, const struct command *cmd, const struct options *o,
              const struct api_answer *a)
{
    return finish(cli, cmd, o, a, NULL);
}

int rest_run(const struct cli *cli, const struct command *cmd, const struct options *o)
{
    return rest_run_at(cli, cmd, o, cmd->method, cmd->path);
}

/* Whether it is tried only stands in the query. */
int retention_run(const struct cli *cli, const struct command *cmd, const struct options *o)
{
    return rest_run_at(cli, cmd, o, cmd->method,
                       options_has(o, "--dry-run") ? "/retention/run?dry_run=true" : cmd->path);
}
