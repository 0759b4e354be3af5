#include "docker_body.h"

#include <stdio.h>
#include <string.h>

#include "leasehold/clock.h"
#include "leasehold/json.h"
#include "leasehold/tool_link.h"

#define FORCE_RECURSIVE_MINOR 44
#define NOFILE_MAX            16384 /* an engine can have a hard limit of 20,000 itself */
#define TEXT_MAX              4352

/* --- a writer of JSON ------------------------------------------------------------------------ */

static void comma(struct buf *out)
{
    if (out->len > 0 && strchr("{[:", out->data[out->len - 1]) == NULL)
        buf_add_char(out, ',');
}

static void name(struct buf *out, const char *key)
{
    comma(out);
    json_add_string(out, key, strlen(key));
    buf_add_char(out, ':');
}

static void text(struct buf *out, const char *value)
{
    comma(out);
    json_add_string(out, value, strlen(value));
}

static void name_text(struct buf *out, const char *key, const char *value)
{
    name(out, key);
    text(out, value);
}

static void name_int(struct buf *out, const char *key, int64_t value)
{
    name(out, key);
    buf_printf(out, "%lld", (long long)value);
}

static void name_raw(struct buf *out, const char *key, const char *json)
{
    name(out, key);
    buf_add_str(out, json);
}

static void open_brace(struct buf *out, const char *key, char brace)
{
    if (key != NULL)
        name(out, key);
    else
        comma(out);
    buf_add_char(out, brace);
}

static void texts(struct buf *out, const struct list *l)
{
    char *const *items = l->items;
    for (size_t i = 0; i < l->n; i++)
        text(out, items[i]);
}

/* --- the parts ------------------------------------------------------------------------------- */

static void labels(const struct docker_body *b, struct buf *out)
{
    const struct engine_spec *s = b->spec;
    char generation[24], at[TIME_TEXT];
    snprintf(generation, sizeof(generation), "%lld", (long long)s->generation);
    open_brace(out, "Labels", '{');
    name_text(out, LABEL_INSTANCE, b->instance);
    name_text(out, LABEL_RUN_DIR, b->run_dir);
    name_text(out, LABEL_SESSION, ID_STR(&s->session_id));
    name_text(out, LABEL_CHAT, ID_STR(&s->chat_id));
    name_text(out, LABEL_GENERATION, generation);
    name_text(out, LABEL_KIND, b->tools_chat != NULL ? KIND_TOOLS : KIND_SANDBOX);
    name_text(out, LABEL_CREATED_AT, time_format(s->created_at, at));
    /* As the service that this one replaces has them. */
    name_text(out, "session_id", ID_STR(&s->session_id));
    name_text(out, "chat_id", ID_STR(&s->chat_id));
    name_text(out, "expires_at", time_format(s->expires_at, at));
    buf_add_char(out, '}');
}

static void command(const struct docker_body *b, struct buf *out)
{
    const struct config_profile *p = b->spec->profile;
    open_brace(out, "Entrypoint", '[');
    text(out, BOX_DIR "/leaseinit");
    text(out, p->transport);
    if (b->has_env_file)
        text(out, "env=" BOX_DIR "/" DOCKER_ENV_FILE);
    if (b->spec->max_ms > 0) {
        char life[40];
        snprintf(life, sizeof(life), "max_ms=%lld", (long long)b->spec->max_ms);
        text(out, life);
    }
    text(out, "--");
    buf_add_char(out, ']');
    open_brace(out, "Cmd", '[');
    if (p->command.n > 0) {
        texts(out, &p->command);
    } else {
        texts(out, &b->image->entrypoint);
        texts(out, &b->image->cmd);
    }
    buf_add_char(out, ']');
}

static void word(struct buf *out, const char *name, const char *value)
{
    char both[TEXT_MAX];
    if ((size_t)snprintf(both, sizeof(both), "%s=%s", name, value) >= sizeof(both))
        out->failed = true;
    text(out, both);
}

static void word_int(struct buf *out, const char *name, int64_t value)
{
    char number[24];
    snprintf(number, sizeof(number), "%lld", (long long)value);
    word(out, name, number);
}

static void tools_command(const struct docker_body *b, struct buf *out)
{
    const struct engine_tools *t = b->spec->tools;
    open_brace(out, "Entrypoint", '[');
    text(out, BOX_DIR "/" TOOL_RUNNER);
    word(out, "chat", b->spec->cwd);
    word(out, "tools", t->tools_path);
    word_int(out, "runs", t->at_once);
    word_int(out, "per_second", t->per_second);
    word_int(out, "timeout_ms", t->timeout_ms);
    word_int(out, "max_ms", b->spec->max_ms);
    buf_add_str(out, "]");
    open_brace(out, "Cmd", '[');
    buf_add_char(out, ']');
}

static void mount(const struct docker_body *b, struct buf *out, const char *source,
                  const char *target, bool writable)
{
    open_brace(out, NULL, '{');
    name_text(out, "Type", "bind");
    name_text(out, "Source", source);
    name_text(out, "Target", target);
    name_raw(out, "ReadOnly", writable ? "false" : "true");
    open_brace(out, "BindOptions", '{');
    name_text(out, "Propagation", "rprivate");
    /* What is mounted below a read-only bind would stay writable. */
    if (!writable && b->api_minor >= FORCE_RECURSIVE_MINOR)
        name_raw(out, "ReadOnlyForceRecursive", "true");
    else if (!writable)
        name_raw(out, "NonRecursive", "true");
    buf_add_str(out, "}}");
}

static void helper(const struct docker_body *b, struct buf *out, const char *name)
{
    char source[TEXT_MAX], target[128];
    if ((size_t)snprintf(source, sizeof(source), "%s/%s", b->bin_dir, name) >= sizeof(source))
        out->failed = true;
    snprintf(target, sizeof(target), BOX_DIR "/%s", name);
    mount(b, out, source, target, false);
}

/* The one that is writable is the chat. */
static void tools_mounts(const struct docker_body *b, struct buf *out)
{
    const struct engine_tools *t = b->spec->tools;
    open_brace(out, "Mounts", '[');
    mount(b, out, t->box_path, BOX_DIR, false);
    helper(b, out, TOOL_RUNNER);
    mount(b, out, t->socket_path, TOOL_DIR, true);
    mount(b, out, t->runs_path, TOOL_RUNS, true);
    for (size_t i = 0; i < t->binds_n; i++)
        mount(b, out, t->binds[i].writable ? b->tools_chat : t->binds[i].source, t->binds[i].target,
              t->binds[i].writable);
    buf_add_char(out, ']');
}

static void mounts(const struct docker_body *b, struct buf *out)
{
    static const char *const helpers[] = {"leaseinit", "demo-agent", "lease-artifact", TOOL_CLIENT};
    const struct engine_spec *s = b->spec;
    open_brace(out, "Mounts", '[');
    mount(b, out, s->box_path, BOX_DIR, false);
    for (size_t i = 0; i < sizeof(helpers) / sizeof(helpers[0]); i++)
        helper(b, out, helpers[i]);
    for (size_t i = 0; i < s->binds_n; i++)
        mount(b, out, s->binds[i].source, s->binds[i].target, s->binds[i].writable);
    buf_add_char(out, ']');
}

static void tmpfs(const struct docker_body *b, struct buf *out)
{
    const struct config_profile *p = b->spec->profile;
    char *const *paths = p->tmpfs.items;
    open_brace(out, "Tmpfs", '{');
    name_text(out, "/tmp", "rw,nosuid,nodev,exec,mode=1777");
    for (size_t i = 0; i < p->tmpfs.n; i++)
        name_text(out, paths[i], "rw,nosuid,nodev,exec,mode=1777");
    buf_add_char(out, '}');
}

/* The engine refuses more than the machine has; that much is no limit at all. */
static void limits(const struct docker_body *b, struct buf *out)
{
    const struct config_limits *l = &b->spec->profile->limits;
    double cpus = b->cpus_n > 0 && l->cpus > (double)b->cpus_n ? (double)b->cpus_n : l->cpus;
    name_int(out, "Memory", l->memory_bytes);
    name_int(out, "MemorySwap", l->memory_bytes);
    /* leaseinit is one; leasetools is, and each run has one */
    name_int(out, "PidsLimit", l->pids + 1 + (b->tools_chat != NULL ? b->spec->tools->at_once : 0));
    name_int(out, "NanoCpus", (int64_t)(cpus * 1e9 + 0.5));
    open_brace(out, "Ulimits", '[');
    buf_printf(out, "{\"Name\":\"nofile\",\"Soft\":%d,\"Hard\":%d},", NOFILE_MAX, NOFILE_MAX);
    buf_add_str(out, "{\"Name\":\"core\",\"Soft\":0,\"Hard\":0}]");
}

static void host_config(const struct docker_body *b, struct buf *out)
{
    const char *runtime = b->spec->profile->runtime;
    open_brace(out, "HostConfig", '{');
    name_text(out, "NetworkMode", b->network);
    name_raw(out, "ReadonlyRootfs", "true");
    name_raw(out, "CapDrop", "[\"ALL\"]");
    name_raw(out, "SecurityOpt", "[\"no-new-privileges\"]");
    name_text(out, "IpcMode", "private");
    name_text(out, "CgroupnsMode", "private");
    name_raw(out, "RestartPolicy", "{\"Name\":\"no\"}");
    name_raw(out, "AutoRemove", "false");
    name_raw(out, "LogConfig",
             "{\"Type\":\"json-file\",\"Config\":{\"max-size\":\"1m\",\"max-file\":\"2\"}}");
    if (runtime[0] != '\0')
        name_text(out, "Runtime", runtime);
    limits(b, out);
    if (b->tools_chat != NULL) {
        name_raw(out, "Init", "false"); /* leasetools has to be the first process */
        tools_mounts(b, out);
    } else {
        mounts(b, out);
    }
    tmpfs(b, out);
    buf_add_char(out, '}');
}

int docker_body_write(const struct docker_body *b, struct buf *out, struct err *e)
{
    const struct engine_spec *s = b->spec;
    char user[48];
    if (b->tools_chat == NULL &&
        s->profile->command.n + b->image->entrypoint.n + b->image->cmd.n == 0)
        return err_set(e, ERR_SANDBOX_START_FAILED,
                       "image %.64s has no command of its own: set command of profile %.64s",
                       b->image_name, s->profile->name);
    bool of_tools = b->tools_chat != NULL;
    snprintf(user, sizeof(user), "%lld:%lld", (long long)(of_tools ? s->tools->uid : s->uid),
             (long long)(of_tools ? s->tools->gid : s->gid));
    open_brace(out, NULL, '{');
    name_text(out, "Image", b->image_name);
    name_text(out, "User", user);
    if (b->image->working_dir[0] == '\0')
        name_text(out, "WorkingDir", s->cwd);
    name_text(out, "Hostname", "sandbox");
    name_text(out, "StopSignal", "SIGTERM");
    name_raw(out, "Healthcheck", "{\"Test\":[\"NONE\"]}");
    if (b->tools_chat != NULL)
        tools_command(b, out);
    else
        command(b, out);
    labels(b, out);
    host_config(b, out);
    buf_add_char(out, '}');
    return buf_ok(out) ? 0
                       : err_set(e, ERR_SANDBOX_START_FAILED,
                                 "command and mounts of the sandbox are too long for the engine");
}
