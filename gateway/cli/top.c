/* top: the running sandboxes, the busiest first, as they go. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "command.h"
#include "leasehold/clock.h"
#include "leasehold/json.h"
#include "views.h"

#define ARENA_CAP   (64UL * 1024 * 1024)
#define LINE_CAP    4096
#define INTERVAL_S  2
#define FIRST_MS    500 /* between the two looks that the first CPU figure takes */
#define ROWS_MAX    500 /* sandboxes looked at: each is a request */
#define PAGES_MAX   50
#define LINES_USUAL 24
#define LINES_HEAD  4

struct top_row {
    char *session_id, *chat_id, *profile;
    double cpu_percent; /* NAN: not known */
    int64_t cpu_usage_us, looked_us;
    int64_t memory_bytes, pids, leases, connections;
    char *last_activity_at, *expires_at;
};

static const struct field row_fields[] = {
    FIELD_STR(struct top_row, session_id),
    FIELD_STR(struct top_row, chat_id),
    FIELD_STR(struct top_row, profile),
    FIELD_REAL(struct top_row, cpu_percent),
    FIELD_INT(struct top_row, memory_bytes, .flags = FIELD_NULL_ZERO),
    FIELD_INT(struct top_row, pids, .flags = FIELD_NULL_ZERO),
    FIELD_INT(struct top_row, leases),
    FIELD_INT(struct top_row, connections),
    FIELD_STR(struct top_row, last_activity_at, .flags = FIELD_NULL_ZERO),
    FIELD_STR(struct top_row, expires_at, .flags = FIELD_NULL_ZERO),
    {0},
};

/* One look at everything. */
struct look {
    struct arena *arena;
    struct top_row rows[ROWS_MAX];
    size_t n;
    int64_t running, leases, connections;
    bool more_leases; /* than were counted */
};

struct top {
    const struct cli *cli;
    const struct command *cmd;
    struct api *api;
    struct look *now, *before;
};

static struct look *look_new(void)
{
    struct look *l = calloc(1, sizeof *l);
    if (l != NULL && (l->arena = arena_new(ARENA_CAP)) == NULL) {
        free(l);
        l = NULL;
    }
    return l;
}

static void look_free(struct look *l)
{
    if (l != NULL) {
        arena_free(l->arena);
        free(l);
    }
}

/* --- asking ----------------------------------------------------------------------------------- */

/* An exit code. *ret_gone: what is asked for was listed and has ended since, which is not told; NULL: it
 * cannot have. */
static int get(struct top *t, const char *path, const struct view *view, void *ret, bool *ret_gone)
{
    struct api_answer a;
    struct err e;
    int code = EXIT_OK;
    api_answer_init(&a);
    if (api_call(t->api, "GET", path, NULL,
                 t->cli->timeout_ms > 0 ? t->cli->timeout_ms : t->cmd->timeout_ms, &a, &e) < 0) {
        code = report_err(&e);
    } else {
        if (ret_gone != NULL && (a.status == 404 || a.status == 409)) {
            *ret_gone = true;
        } else if (!api_answer_ok(&a)) {
            code = api_refused(&a);
        } else if (api_answer_read(&a, view->fields, ret, t->now->arena, &e) < 0) {
            code = report_err(&e);
        }
    }
    api_answer_done(&a);
    return code;
}

/* Page after page of `path`; `each` sees the items. */
static int walk(struct top *t, const char *path, const struct view *view,
                void (*each)(struct look *l, const void *item), bool *ret_more)
{
    char *cursor = NULL;
    for (int page = 0; page < PAGES_MAX; page++) {
        struct list_view list = {0};
        char at[1024];
        int n = snprintf(at, sizeof at, "%s&limit=200%s%s", path, cursor != NULL ? "&cursor=" : "",
                         cursor != NULL ? cursor : "");
        if (n < 0 || (size_t)n >= sizeof at) {
            return EXIT_FAILED;
        }
        int code = get(t, at, view, &list, NULL);
        if (code != EXIT_OK) {
            return code;
        }
        for (size_t i = 0; i < list.items.n; i++) {
            each(t->now, (const char *)list.items.items + i * view->fields->elem);
        }
        cursor = list.next_cursor;
        if (cursor == NULL) {
            return EXIT_OK;
        }
    }
    *ret_more = true;
    return EXIT_OK;
}

static void add_sandbox(struct look *l, const void *item)
{
    const struct sandbox_view *s = item;
    l->running++;
    if (l->n < ROWS_MAX && s->session_id != NULL) {
        l->rows[l->n++] = (struct top_row){
            .session_id = s->session_id,
            .chat_id = s->chat_id,
            .profile = s->profile,
            .cpu_percent = NAN,
            .last_activity_at = s->last_activity_at,
            .expires_at = s->expires_at,
        };
    }
}

static struct top_row *row_of(struct look *l, const char *session_id)
{
    for (size_t i = 0; session_id != NULL && i < l->n; i++) {
        if (strcmp(l->rows[i].session_id, session_id) == 0) {
            return &l->rows[i];
        }
    }
    return NULL;
}

static void add_lease(struct look *l, const void *item)
{
    const struct lease_view *lease = item;
    struct top_row *row = row_of(l, lease->session_id);
    l->leases++;
    l->connections += lease->connections;
    if (row != NULL) {
        row->leases++;
        row->connections += lease->connections;
    }
}

/* Of the time since the look before, as a share of one CPU. */
static void tell_cpu(struct top *t, struct top_row *row)
{
    const struct top_row *before = t->before != NULL ? row_of(t->before, row->session_id) : NULL;
    if (before == NULL || before->looked_us == 0 || row->looked_us <= before->looked_us ||
        row->cpu_usage_us < before->cpu_usage_us) {
        return;
    }
    int64_t used_us = row->cpu_usage_us - before->cpu_usage_us;
    int64_t passed_us = row->looked_us - before->looked_us;
    int64_t per_mille = (1000 * used_us + passed_us / 2) / passed_us;
    row->cpu_percent = (double)per_mille / 10;
}

/* One that ended since the list was made keeps its blanks. */
static int ask_stats(struct top *t, struct top_row *row)
{
    struct stats_view stats = {0};
    char path[128];
    bool gone = false;
    snprintf(path, sizeof path, "/sandboxes/%.36s/stats", row->session_id);
    int code = get(t, path, &view_stats, &stats, &gone);
    if (code != EXIT_OK || gone) {
        return code;
    }
    row->looked_us = clock_boot_us(&clock_system);
    row->cpu_usage_us = stats.cpu_usage_us;
    row->memory_bytes = stats.memory_bytes;
    row->pids = stats.pids;
    tell_cpu(t, row);
    return EXIT_OK;
}

static double known_or_least(double cpu_percent)
{
    return isnan(cpu_percent) ? -1 : cpu_percent;
}

static int busiest_first(const void *a, const void *b)
{
    const struct top_row *x = a, *y = b;
    double cpu_x = known_or_least(x->cpu_percent), cpu_y = known_or_least(y->cpu_percent);
    if (cpu_x != cpu_y) {
        return cpu_x < cpu_y ? 1 : -1;
    }
    return strcmp(x->session_id, y->session_id);
}

static int look(struct top *t)
{
    bool more_sandboxes = false;
    look_free(t->before);
    t->before = t->now;
    t->now = look_new();
    if (t->now == NULL) {
        struct err e;
        err_set(&e, ERR_INTERNAL, "no memory");
        return report_err(&e);
    }
    int code = walk(t, "/sandboxes?status=running", &view_sandboxes, add_sandbox, &more_sandboxes);
    if (code == EXIT_OK) {
        code = walk(t, "/leases?state=active", &view_leases, add_lease, &t->now->more_leases);
    }
    for (size_t i = 0; code == EXIT_OK && i < t->now->n; i++) {
        code = ask_stats(t, &t->now->rows[i]);
    }
    qsort(t->now->rows, t->now->n, sizeof t->now->rows[0], busiest_first);
    return code;
}

/* --- showing ---------------------------------------------------------------------------------- */

static size_t lines_of_terminal(void)
{
    struct winsize size;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > LINES_HEAD ? size.ws_row
                                                                                    : LINES_USUAL;
}

static void show_table(const struct look *l, size_t most)
{
    struct list shown = {.items = (void *)(uintptr_t)l->rows, .n = l->n < most ? l->n : most};
    printf("%" PRId64 " running, %" PRId64 "%s active leases, %" PRId64 " connections\n\n",
           l->running, l->leases, l->more_leases ? " or more" : "", l->connections);
    output_table(row_fields, &shown, sizeof l->rows[0], stdout);
    if (l->running > (int64_t)shown.n) {
        printf("(%" PRId64 " more)\n", l->running - (int64_t)shown.n);
    }
}

static void show_lines(const struct look *l)
{
    for (size_t i = 0; i < l->n; i++) {
        struct buf line;
        buf_init(&line, LINE_CAP);
        json_encode(row_fields, &l->rows[i], &line);
        if (buf_ok(&line)) {
            fwrite(line.data, 1, line.len, stdout);
            fputc('\n', stdout);
        }
        buf_done(&line);
    }
}

static int show(const struct top *t, bool live)
{
    if (t->cli->json) {
        show_lines(t->now);
    } else if (live) {
        fputs("\033[H\033[2J", stdout);
        show_table(t->now, lines_of_terminal() - LINES_HEAD);
    } else {
        show_table(t->now, ROWS_MAX);
    }
    return fflush(stdout) == 0 ? EXIT_OK : EXIT_FAILED;
}

static int run(struct top *t, bool live, unsigned interval_s)
{
    int code = look(t);
    if (code == EXIT_OK) {
        usleep(FIRST_MS * 1000);
        code = look(t);
    }
    while (code == EXIT_OK && (code = show(t, live)) == EXIT_OK && live) {
        sleep(interval_s);
        code = look(t);
    }
    return code;
}

int top_run(const struct cli *cli, const struct command *cmd, const struct options *o)
{
    struct top t = {.cli = cli, .cmd = cmd, .api = api_new(&cli->access)};
    bool live = !options_has(o, "--once") && !cli->json && isatty(STDOUT_FILENO) == 1;
    if (t.api == NULL) {
        return EXIT_FAILED;
    }
    int code = run(&t, live, (unsigned)options_int(o, "--interval", INTERVAL_S));
    look_free(t.now);
    look_free(t.before);
    api_free(t.api);
    return code;
}
