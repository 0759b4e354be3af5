/* Nodes: the machines that run sandboxes. A gateway runs them on its own. */
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "ops.h"
#include "services.h"

const struct field node_list_in[] = {
    PAGE_IN(struct node_list_args),
    {0},
};

static const struct field node_versions_fields[] = {
    FIELD_STR(struct node_versions, leasehold, .doc = "of the gateway"),
    FIELD_STR(struct node_versions, engine, .doc = "of what runs the sandboxes"),
    FIELD_STR(struct node_versions, kernel, .doc = "of the machine"),
    {0},
};

static const struct field node_load_fields[] = {
    FIELD_INT(struct node_load, cpus, .doc = "processors"),
    FIELD_INT(struct node_load, runnable_milli,
              .doc = "processes that ran or waited, on average of the last minute, in thousandths"),
    FIELD_INT(struct node_load, memory_bytes, .doc = "of the machine"),
    FIELD_INT(struct node_load, memory_available_bytes, .doc = "what new work can have of it"),
    FIELD_INT(struct node_load, sandboxes, .doc = "starting, running and stopping"),
    {0},
};

static const struct field node_fields[] = {
    FIELD_STR(struct node_view, node, .doc = "app.node of the configuration"),
    FIELD_STR(struct node_view, instance, .doc = "app.instance of the configuration"),
    FIELD_STR(struct node_view, engine, .doc = "local or docker"),
    FIELD_BOOL(struct node_view, available, .doc = "whether the engine answers"),
    FIELD_OBJECT(struct node_view, versions, node_versions_fields, .doc = "what runs there"),
    FIELD_OBJECT(struct node_view, load, node_load_fields, .doc = "how busy it is"),
    FIELD_STRLIST(struct node_view, warnings, .doc = "what an operator should set up otherwise"),
    {0},
};

const struct field node_list_out[] = {
    PAGE_OUT(node_fields, struct node_view),
    {0},
};

static char *text(struct call *c, const char *s)
{
    return arena_strndup(c->arena, s, strlen(s));
}

/* --- load -------------------------------------------------------------------------------------- */

static int64_t meminfo(const char *key)
{
    FILE *f = fopen("/proc/meminfo", "re");
    char line[128];
    long long kib = 0;
    size_t len = strlen(key);

    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, key, len) && sscanf(line + len, ": %lld kB", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return kib * 1024;
}

static int64_t runnable_milli(void)
{
    FILE *f = fopen("/proc/loadavg", "re");
    double one = 0;

    if (f && fscanf(f, "%lf", &one) != 1)
        one = 0;
    if (f)
        fclose(f);
    return (int64_t)(one * 1000);
}

static int count_sandbox(void *ctx, const struct sandbox *s, struct err *e)
{
    (void)s;
    (void)e;
    ++*(int64_t *)ctx;
    return 0;
}

static int count_sandboxes(struct store_tx *tx, void *arg, struct err *e)
{
    return store_sandbox_each_active(tx, count_sandbox, arg, e);
}

static int load_fill(struct call *c, struct node_load *ret, struct err *e)
{
    *ret = (struct node_load){.cpus = sysconf(_SC_NPROCESSORS_ONLN),
                              .runnable_milli = runnable_milli(),
                              .memory_bytes = meminfo("MemTotal"),
                              .memory_available_bytes = meminfo("MemAvailable")};
    return store_read(c->s->store, count_sandboxes, &ret->sandboxes, e);
}

/* --- the node ---------------------------------------------------------------------------------- */

/* An engine that does not answer is told as what it is: the list is there to find that out. */
static int engine_fill(struct call *c, struct node_view *v, struct err *e)
{
    struct engine *g = c->s->host.engine;
    struct engine_info info = {.warnings_n = 0};
    struct err why;
    char **warnings;

    v->engine = text(c, g->v->name);
    v->available = !g->v->info(g, &info, &why);
    if (!v->available)
        snprintf(info.warnings[info.warnings_n++], sizeof info.warnings[0], "%s", why.msg);
    v->versions.engine = text(c, info.version);
    warnings = call_alloc(c, (info.warnings_n + 1) * sizeof *warnings);
    if (!warnings)
        return err_set(e, ERR_INTERNAL, "no memory for the node");
    for (size_t i = 0; i < info.warnings_n; i++)
        warnings[i] = text(c, info.warnings[i]);
    v->warnings = (struct list){warnings, info.warnings_n};
    return 0;
}

int op_node_list(struct call *c, struct err *e)
{
    const struct node_list_args *a = c->args;
    struct node_view *v = call_alloc(c, sizeof *v);
    struct page *page = c->result;
    struct utsname host;

    if (a->page.cursor) /* none is ever answered */
        return err_field(e, "/cursor", "cursor is not one of this list");
    if (!v || uname(&host))
        return err_set(e, ERR_INTERNAL, "no memory for the node");
    *v = (struct node_view){
        .node = c->s->cfg->app.node,
        .instance = c->s->cfg->app.instance,
        .versions = {.leasehold = (char *)LEASEHOLD_VERSION, .kernel = text(c, host.release)}};
    if (engine_fill(c, v, e) || load_fill(c, &v->load, e))
        return -1;
    *page = (struct page){.items = {v, 1}};
    return 0;
}
