#include "spec.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "leasehold/json.h"

/* Two PEM texts, each line feed of them escaped, and the rest. */
#define SPEC_MAX (3 * DOOR_PEM_MAX)

/* Fills `to` until end of file. -1: unreadable or longer than `size`. */
static ssize_t read_all(int fd, char *to, size_t size)
{
    size_t len = 0;

    for (;;) {
        ssize_t n = read(fd, to + len, size - len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 || (n > 0 && len + (size_t)n == size))
            return -1;
        if (n == 0)
            return (ssize_t)len;
        len += (size_t)n;
    }
}

int door_spec_read(int fd, struct arena *arena, struct door_spec *ret, struct err *e)
{
    struct door_spec spec = {0};
    char text[SPEC_MAX];
    ssize_t len = read_all(fd, text, sizeof(text));
    int r = -1;

    close(fd);
    if (len < 0)
        err_set(e, ERR_MALFORMED_REQUEST, "the spec cannot be read or is too long");
    else
        r = json_decode(text, (size_t)len, door_spec_fields, &spec, arena, e);
    /* No more than was written: pages of the stack once touched are ours for ever. */
    explicit_bzero(text, len < 0 ? sizeof(text) : (size_t)len);
    if (r)
        return -1;
    if (!spec.cert_pem != !spec.key_pem)
        return err_field(e, "/key_pem", "a certificate and its key come together");
    if (spec.stale_s >= spec.seal_s)
        return err_field(e, "/stale_s", "must be less than seal_s");
    *ret = spec;
    return 0;
}

void door_spec_wipe(struct door_spec *spec)
{
    if (spec->secret)
        explicit_bzero(spec->secret, strlen(spec->secret));
    if (spec->key_pem)
        explicit_bzero(spec->key_pem, strlen(spec->key_pem));
}
