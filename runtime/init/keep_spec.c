/* The spec: NUL-terminated "name=value" records. Total: every record is known and checked, or the
 * spec is refused. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "keep.h"
#include "leasehold/tool_link.h"

/* Keeps kernel arithmetic on limits (pages, microseconds) far from overflow. */
#define NUMBER_MAX (UINT64_C(1) << 53)

static const struct scalar {
    const char *name;
    size_t offset;
    bool is_number;
} scalars[] = {
    {"session", offsetof(struct keep_spec, session), false},
    {"root", offsetof(struct keep_spec, root), false},
    {"box", offsetof(struct keep_spec, box), false},
    {"cwd", offsetof(struct keep_spec, cwd), false},
    {"transport", offsetof(struct keep_spec, transport), false},
    {"uid", offsetof(struct keep_spec, uid), true},
    {"gid", offsetof(struct keep_spec, gid), true},
    {"memory_bytes", offsetof(struct keep_spec, memory_bytes), true},
    {"pids", offsetof(struct keep_spec, pids), true},
    {"cpus_milli", offsetof(struct keep_spec, cpus_milli), true},
    {"grace_ms", offsetof(struct keep_spec, grace_ms), true},
    {"max_ms", offsetof(struct keep_spec, max_ms), true},
    {"own_pids", offsetof(struct keep_spec, own_pids), true},
};

static int parse_number(const char *s, uint64_t *ret)
{
    uint64_t n = 0;
    if (*s == '\0' || strlen(s) > 16)
        return -1;
    for (; *s != '\0'; s++) {
        if (*s < '0' || *s > '9')
            return -1;
        n = n * 10 + (uint64_t)(*s - '0');
    }
    if (n > NUMBER_MAX)
        return -1;
    *ret = n;
    return 0;
}

/* Absolute, no empty, "." or ".." component, no control character. */
static bool path_is_plain(const char *path)
{
    if (path[0] != '/' || path[1] == '\0')
        return false;
    for (const char *p = path; *p != '\0';) {
        size_t len = strcspn(++p, "/");
        if (len == 0 || (len == 1 && p[0] == '.') || (len == 2 && p[0] == '.' && p[1] == '.'))
            return false;
        for (size_t i = 0; i < len; i++)
            if (iscntrl((unsigned char)p[i]))
                return false;
        p += len;
    }
    return true;
}

static bool path_is_below(const char *path, const char *dir)
{
    size_t len = strlen(dir);
    return strncmp(path, dir, len) == 0 && (path[len] == '\0' || path[len] == '/');
}

/* Where a bind would undo what the sandbox is made of. */
static bool target_is_reserved(const char *path)
{
    static const char *const dirs[] = {"/proc", "/sys",  "/dev", "/usr",   "/etc",
                                       "/bin",  "/sbin", "/lib", "/lib64", BOX_DIR};
    for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++)
        if (path_is_below(path, dirs[i]))
            return true;
    return path_is_below(BOX_DIR, path);
}

static bool target_is_allowed(const struct keep_spec *s, const char *path)
{
    bool of_tools = strcmp(path, TOOL_DIR) == 0 || strcmp(path, TOOL_RUNS) == 0;
    return !target_is_reserved(path) || (s->is_beside && of_tools);
}

static bool name_is(const char *s, const char *more)
{
    for (const char *p = s; *p != '\0'; p++)
        if (!isalnum((unsigned char)*p) && strchr(more, *p) == NULL)
            return false;
    return *s != '\0' && strlen(s) <= 64;
}

static int add_helper(struct keep_spec *s, char *value, struct fault *f)
{
    char *source = value + strcspn(value, "\t");
    if (s->helpers_n == KEEP_HELPERS_MAX || *source != '\t')
        return fault_set(f, "spec: helper %zu is not valid or one too many", s->helpers_n + 1);
    *source++ = '\0';
    if (!name_is(value, "-_") || !path_is_plain(source))
        return fault_set(f, "spec: helper %zu has no valid name and path", s->helpers_n + 1);
    s->helpers[s->helpers_n++] = (struct keep_bind){.source = source, .target = value};
    return 0;
}

static int add_bind(struct keep_spec *s, char *value, struct fault *f)
{
    size_t number = s->binds_n + 1;
    char *source = value + strcspn(value, "\t");
    char *target = *source == '\t' ? source + 1 + strcspn(source + 1, "\t") : source;
    if (s->binds_n == KEEP_BINDS_MAX || *target != '\t')
        return fault_set(f, "spec: bind %zu is not valid or one too many", number);
    *source++ = '\0';
    *target++ = '\0';
    bool mapped = s->is_beside && strcmp(value, "map") == 0;
    bool writable = mapped || strcmp(value, "rw") == 0;
    if ((!writable && strcmp(value, "ro") != 0) || !path_is_plain(source))
        return fault_set(f, "spec: bind %zu has no valid mode and source", number);
    if (!path_is_plain(target) || !target_is_allowed(s, target))
        return fault_set(f, "spec: bind %zu has no allowed target", number);
    s->binds[s->binds_n++] = (struct keep_bind){
        .source = source, .target = target, .writable = writable, .mapped = mapped};
    return 0;
}

static int add_env(struct keep_spec *s, char *value, struct fault *f)
{
    char *text = strchr(value, '=');
    if (s->env_n == KEEP_ENV_MAX || text == NULL)
        return fault_set(f, "spec: env %zu is not valid or one too many", s->env_n + 1);
    *text++ = '\0';
    if (!name_is(value, "_") || isdigit((unsigned char)value[0]))
        return fault_set(f, "spec: env %zu has no valid name", s->env_n + 1);
    s->env[s->env_n++] = (struct keep_env){.name = value, .value = text};
    return 0;
}

static int add_arg(struct keep_spec *s, char *value, struct fault *f)
{
    if (s->args_n == KEEP_ARGS_MAX)
        return fault_set(f, "spec: more than %d words in the command", KEEP_ARGS_MAX);
    s->args[s->args_n++] = value;
    return 0;
}

static int set_scalar(struct keep_spec *s, const struct scalar *sc, char *value, uint32_t *seen,
                      struct fault *f)
{
    uint32_t bit = UINT32_C(1) << (sc - scalars);
    if ((*seen & bit) != 0)
        return fault_set(f, "spec: %s is given twice", sc->name);
    *seen |= bit;
    char *field = (char *)s + sc->offset;
    if (!sc->is_number)
        memcpy(field, &value, sizeof(value));
    else if (parse_number(value, (uint64_t *)(void *)field) < 0)
        return fault_set(f, "spec: %s is no number", sc->name);
    return 0;
}

static int parse_record(struct keep_spec *s, char *record, uint32_t *seen, struct fault *f)
{
    static const struct {
        const char *name;
        int (*add)(struct keep_spec *, char *, struct fault *);
    } lists[] = {{"helper", add_helper}, {"bind", add_bind}, {"env", add_env}, {"arg", add_arg}};
    char *value = strchr(record, '=');
    if (value == NULL)
        return fault_set(f, "spec: a record without =");
    *value++ = '\0';
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
        if (strcmp(record, lists[i].name) == 0)
            return lists[i].add(s, value, f);
    for (size_t i = 0; i < sizeof(scalars) / sizeof(scalars[0]); i++)
        if (strcmp(record, scalars[i].name) == 0)
            return set_scalar(s, &scalars[i], value, seen, f);
    return fault_set(f, "spec: unknown record");
}

static int check_whole(const struct keep_spec *s, struct fault *f)
{
    if (!s->is_beside && (s->session == NULL || !name_is(s->session, "-")))
        return fault_set(f, "spec: session is missing or not valid");
    if (s->root != NULL && s->root[0] != '\0' && strcmp(s->root, "/usr") != 0)
        return fault_set(f, "spec: root can only be the host's /usr");
    if (s->box == NULL || !path_is_plain(s->box))
        return fault_set(f, "spec: box is missing or not valid");
    if (s->cwd == NULL || (strcmp(s->cwd, "/") != 0 && !path_is_plain(s->cwd)))
        return fault_set(f, "spec: cwd is missing or not valid");
    if (!s->is_beside && (s->transport == NULL || s->transport[0] == '\0'))
        return fault_set(f, "spec: transport is missing");
    if (s->args_n == 0 || s->args[0][0] == '\0')
        return fault_set(f, "spec: there is no command");
    if (s->uid > INT32_MAX || s->gid > INT32_MAX)
        return fault_set(f, "spec: uid or gid is out of range");
    if (geteuid() == 0 && (s->uid == 0 || s->gid == 0))
        return fault_set(f, "spec: an agent never runs as root");
    return 0;
}

/* Mapped onto the agent's own uid, nothing would keep it from the tools. */
static int check_beside(const struct keep_spec *s, struct fault *f)
{
    const struct keep_spec *b = s->beside;
    if (b == NULL)
        return 0;
    if (geteuid() != 0)
        return fault_set(f, "spec: only root can keep tools from agents");
    if (b->uid == s->uid || b->gid == s->gid)
        return fault_set(f, "spec: tools must not run with the uid or gid of agents");
    return check_whole(b, f);
}

static int parse_beside(struct keep_spec *s, const char *text, size_t len, struct fault *f);

static int parse_records(struct keep_spec *s, size_t len, struct fault *f)
{
    uint32_t seen = 0;
    for (char *p = s->text; p < s->text + len;) {
        size_t size = strlen(p) + 1;
        if (strcmp(p, "beside=tools") == 0)
            return parse_beside(s, p + size, len - (size_t)(p + size - s->text), f);
        if (parse_record(s, p, &seen, f) < 0)
            return -1;
        p += size;
    }
    return 0;
}

/* Of the records behind it. */
static int parse_beside(struct keep_spec *s, const char *text, size_t len, struct fault *f)
{
    if (s->is_beside)
        return fault_set(f, "spec: beside is given twice");
    struct keep_spec *b = calloc(1, sizeof(*b));
    char *own = malloc(len + 1);
    if (b == NULL || own == NULL) {
        free(b);
        free(own);
        return fault_sys(f, "spec");
    }
    memcpy(own, text, len);
    own[len] = '\0';
    *b = (struct keep_spec){.text = own, .text_size = len + 1, .is_beside = true};
    s->beside = b;
    return parse_records(b, len, f);
}

int spec_parse(struct keep_spec *s, char *text, size_t len, struct fault *f)
{
    s->text = text;
    s->text_size = KEEP_SPEC_MAX + 1;
    if (len > 0 && text[len - 1] != '\0')
        return fault_set(f, "spec: the last record is not complete");
    if (parse_records(s, len, f) < 0)
        return -1;
    if (check_whole(s, f) < 0 || check_beside(s, f) < 0)
        return -1;
    /* Without root there is one uid it can be. */
    if (geteuid() != 0) {
        s->uid = geteuid();
        s->gid = getegid();
    }
    return 0;
}

int spec_read(struct keep_spec *s, int fd, struct fault *f)
{
    char *text = malloc(KEEP_SPEC_MAX + 1);
    if (text == NULL)
        return fault_sys(f, "spec");
    size_t len = 0;
    while (len <= KEEP_SPEC_MAX) {
        ssize_t n = read(fd, text + len, KEEP_SPEC_MAX + 1 - len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            free(text);
            return fault_sys(f, "spec: cannot read descriptor %d", fd);
        }
        if (n == 0)
            break;
        len += (size_t)n;
    }
    s->text = text;
    s->text_size = KEEP_SPEC_MAX + 1;
    if (len > KEEP_SPEC_MAX)
        return fault_set(f, "spec: longer than %d bytes", KEEP_SPEC_MAX);
    return spec_parse(s, text, len, f);
}

void spec_free_beside(struct keep_spec **s)
{
    if (*s != NULL)
        free((*s)->text);
    free(*s);
    *s = NULL;
}

void spec_forget(struct keep_spec *s)
{
    if (s->text != NULL)
        explicit_bzero(s->text, s->text_size);
    free(s->text);
    spec_free_beside(&s->beside);
    *s = (struct keep_spec){.uid = s->uid,
                            .gid = s->gid,
                            .memory_bytes = s->memory_bytes,
                            .pids = s->pids,
                            .cpus_milli = s->cpus_milli,
                            .grace_ms = s->grace_ms,
                            .max_ms = s->max_ms};
}
