#include "env_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "leasehold/json.h"

/* Up to `size` bytes; -1 with errno. A pipe comes in pieces. */
static ssize_t read_all(int fd, char *out, size_t size)
{
    size_t len = 0;
    while (len < size) {
        ssize_t n = read(fd, out + len, size - len);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return -1;
        }
        if (n == 0) {
            break;
        }
        len += (size_t)n;
    }
    return (ssize_t)len;
}

static int read_file(const char *path, char *out, size_t size, size_t *ret_len, struct err *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read_all(fd, out, size);
    int sys = errno;
    if (fd >= 0) {
        close(fd);
    }
    if (n < 0) {
        return err_sys(e, ERR_INVALID_REQUEST, sys, "%.80s cannot be read", path);
    }
    if ((size_t)n == size) {
        return err_set(e, ERR_INVALID_REQUEST, "%.80s is too long for an environment", path);
    }
    *ret_len = (size_t)n;
    return 0;
}

static bool is_skipped(const char *line, size_t len)
{
    return len == 0 || line[0] == '#' || strspn(line, " \t\r") >= len;
}

/* `line` is NUL-terminated somewhere behind `len`. */
static int add_pair(struct buf *out, const char *line, size_t len, unsigned number, struct err *e)
{
    const char *equals = memchr(line, '=', len);
    if (equals == NULL || equals == line || memchr(line, '\0', len) != NULL ||
        !utf8_valid(line, len)) {
        return err_set(e, ERR_INVALID_REQUEST, "line %u of --env-file is not NAME=VALUE", number);
    }
    size_t name_len = (size_t)(equals - line);
    buf_add_str(out, out->len > 1 ? "," : "");
    json_add_string(out, line, name_len);
    buf_add_char(out, ':');
    json_add_string(out, equals + 1, len - name_len - 1);
    return 0;
}

static int to_json(const char *text, size_t len, struct buf *out, struct err *e)
{
    const char *end = text + len;
    buf_add_char(out, '{');
    for (unsigned number = 1; text < end; number++) {
        const char *feed = memchr(text, '\n', (size_t)(end - text));
        size_t line_len = (size_t)((feed != NULL ? feed : end) - text);
        if (!is_skipped(text, line_len) && add_pair(out, text, line_len, number, e) < 0) {
            return -1;
        }
        text += line_len + (feed != NULL);
    }
    buf_add_char(out, '}');
    return buf_ok(out) ? 0 : err_set(e, ERR_INTERNAL, "no memory");
}

static struct opt_value *env_file_option(struct options *o)
{
    for (size_t i = 0; i < o->n; i++) {
        if (o->values[i].spec->kind == OPT_ENV_FILE) {
            return &o->values[i];
        }
    }
    return NULL;
}

int env_file_load(struct options *o, struct buf *ret, struct err *e)
{
    static const struct opt_spec object = {
        .name = "--env-file", .kind = OPT_OBJECT, .member = "env"};
    char text[ENV_FILE_MAX + 1];
    size_t len = 0;
    struct opt_value *v = env_file_option(o);
    if (v == NULL) {
        return 0;
    }
    int rc = read_file(v->text, text, ENV_FILE_MAX, &len, e);
    if (rc == 0) {
        text[len] = '\0';
        rc = to_json(text, len, ret, e);
    }
    explicit_bzero(text, len);
    if (rc == 0) {
        *v = (struct opt_value){.spec = &object, .text = ret->data};
    }
    return rc;
}
