/* Histories and the audit trail: a page, or page after page and then whatever comes. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "leasehold/json.h"
#include "request.h"
#include "views.h"

#define ARENA_CAP (64UL * 1024 * 1024)
#define LINE_CAP  (32UL * 1024 * 1024)
#define PAGE_MAX  200 /* of the API */
#define PAGE      50
#define POLL_S    1

/* What is listed are items whose first member counts up. */
struct feed {
    void (*show)(const void *item);
    const struct cli *cli;
    const struct command *cmd;
    const struct options *o;
    struct api *api;
    const char *own_action; /* what listing is called where it is listed itself; NULL: nowhere */
    char own_key[ID_TEXT];  /* "": not known */
    bool follow;
    int64_t after;
    int64_t left; /* so many are still to be shown */
    bool more;    /* there was, at the last page */
};

static int64_t number_of(const void *item)
{
    return *(const int64_t *)item;
}

/* --- for people ------------------------------------------------------------------------------- */

static void show_word(const char *text, char end)
{
    if (text == NULL || text[0] == '\0') {
        fputc('-', stdout);
    } else {
        output_text(text, strlen(text), stdout);
    }
    fputc(end, stdout);
}

/* Each of its lines behind four blanks, so that none can pass for the head of a message. */
static void show_lines(const char *text)
{
    const char *end;
    for (; *text != '\0'; text = *end == '\n' ? end + 1 : end) {
        end = text + strcspn(text, "\n");
        fputs("    ", stdout);
        output_text(text, (size_t)(end - text), stdout);
        fputc('\n', stdout);
    }
}

static void show_message(const void *item)
{
    const struct message_view *m = item;
    printf("%" PRId64 " ", m->seq);
    show_word(m->at, ' ');
    show_word(m->role, ' ');
    show_word(m->author, '\n');
    show_lines(m->content != NULL ? m->content : "");
}

static void show_entry(const void *item)
{
    const struct audit_view *a = item;
    printf("%" PRId64 " ", a->n);
    show_word(a->at, ' ');
    show_word(a->outcome, ' ');
    show_word(a->action, ' ');
    show_word(a->object, ' ');
    show_word(a->actor, ' ');
    show_word(a->address, ' ');
    show_word(a->detail, '\n');
}

static void show_json(const struct field *fields, const void *item)
{
    struct buf line;
    buf_init(&line, LINE_CAP);
    json_encode(fields, item, &line);
    if (buf_ok(&line)) {
        fwrite(line.data, 1, line.len, stdout);
        fputc('\n', stdout);
    }
    buf_done(&line);
}

/* --- pages ------------------------------------------------------------------------------------ */

static int read_page(const struct feed *f, const struct api_answer *a, struct arena *arena,
                     struct list_view *ret, struct err *e)
{
    const struct field fields[] = {
        {.name = "items",
         .kind = FIELD_KIND_LIST,
         .offset = offsetof(struct list_view, items),
         .fields = f->cmd->view->fields,
         .elem = f->cmd->view->size,
         .max = PAGE_MAX,
         .flags = FIELD_REQUIRED},
        {.name = "next_cursor",
         .kind = FIELD_KIND_STR,
         .offset = offsetof(struct list_view, next_cursor)},
        {0},
    };
    return api_answer_read(a, fields, ret, arena, e);
}

/* Each look of a follower at the audit trail is an entry of it: shown, they would be all there is. */
static bool made_by_following(const struct feed *f, const void *item)
{
    if (!f->follow || f->own_action == NULL) {
        return false;
    }
    const struct audit_view *a = item;
    return a->action != NULL && strcmp(a->action, f->own_action) == 0 && a->actor != NULL &&
           strcmp(a->actor, f->own_key) == 0;
}

static void show_page(struct feed *f, const struct list_view *page)
{
    const struct view *view = f->cmd->view;
    for (size_t i = 0; i < page->items.n && f->left > 0; i++) {
        const void *item = (const char *)page->items.items + i * view->size;
        f->after = number_of(item);
        if (made_by_following(f, item)) {
            continue;
        }
        if (f->cli->json) {
            show_json(view->fields, item);
        } else {
            f->show(item);
        }
        f->left--;
    }
    f->more = page->next_cursor != NULL;
}

static int take_answer(struct feed *f, const struct api_answer *a)
{
    struct arena *arena = arena_new(ARENA_CAP);
    struct list_view page = {0};
    struct err e;
    int code = EXIT_OK;
    if (arena == NULL) {
        return EXIT_FAILED;
    }
    if (!api_answer_ok(a)) {
        struct api_problem p;
        api_problem_read(a, arena, &p);
        api_problem_print(&p);
        code = api_exit_code(a->status);
    } else if (read_page(f, a, arena, &page, &e) < 0) {
        code = report_err(&e);
    } else {
        show_page(f, &page);
    }
    arena_free(arena);
    return code != EXIT_OK || fflush(stdout) == 0 ? code : EXIT_FAILED;
}

static int ask(struct feed *f)
{
    struct api_answer answer;
    struct request req;
    struct err e;
    int code;
    request_init(&req);
    api_answer_init(&answer);
    int rc = request_build(f->cmd->method, f->cmd->path, f->o, &req, &e);
    if (rc == 0) {
        buf_printf(&req.path, "%cafter=%" PRId64 "&limit=%" PRId64,
                   strchr(req.path.data, '?') != NULL ? '&' : '?', f->after,
                   f->follow || f->left > PAGE_MAX ? PAGE_MAX : f->left);
        rc =
            api_call(f->api, req.method, req.path.data, NULL,
                     f->cli->timeout_ms > 0 ? f->cli->timeout_ms : f->cmd->timeout_ms, &answer, &e);
    }
    code = rc == 0 ? take_answer(f, &answer) : report_err(&e);
    api_answer_done(&answer);
    request_done(&req);
    return code;
}

static int run_all(struct feed *f)
{
    int code = ask(f);
    while (code == EXIT_OK && f->follow && f->left > 0) {
        sleep(POLL_S);
        code = ask(f);
    }
    if (code == EXIT_OK && f->more && !f->follow) {
        fprintf(stderr, "leasectl: there is more, with --after %" PRId64 "\n", f->after);
    }
    return code;
}

static int run(struct feed *f, const struct cli *cli, const struct command *cmd,
               const struct options *o)
{
    f->cli = cli;
    f->cmd = cmd;
    f->o = o;
    f->follow = options_has(o, "--follow");
    f->after = options_int(o, "--after", 0);
    f->left = options_int(o, "--limit", f->follow ? INT64_MAX : PAGE);
    f->api = api_new(&cli->access);
    if (f->api == NULL) {
        return EXIT_FAILED;
    }
    int code = run_all(f);
    api_free(f->api);
    return code;
}

int history_run(const struct cli *cli, const struct command *cmd, const struct options *o)
{
    struct feed f = {.show = show_message};
    return run(&f, cli, cmd, o);
}

int audit_run(const struct cli *cli, const struct command *cmd, const struct options *o)
{
    struct feed f = {.show = show_entry, .own_action = "audit.list"};
    api_access_key_id(&cli->access, f.own_key);
    return run(&f, cli, cmd, o);
}
