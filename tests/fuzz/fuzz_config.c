/*
 * Any file either is refused with a message that can be shown, or loads; what config_print writes of
 * it loads again and prints the same.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "leasehold/config.h"
#include "leasehold/json.h"

static void require(bool ok)
{
    if (!ok) {
        abort();
    }
}

/* config_load wants a file's name: this one is in memory. */
static int load(const void *data, size_t size, struct config *ret, struct err *e)
{
    char name[64];
    int fd = memfd_create("config", MFD_CLOEXEC);
    require(fd >= 0);
    require(write(fd, data, size) == (ssize_t)size);
    snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
    int rc = config_load(name, NULL, ret, e);
    close(fd);
    return rc;
}

static void print(const struct config *c, struct buf *out)
{
    buf_init(out, 16 << 20);
    config_print(c, out);
    require(buf_ok(out));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct config c, again;
    struct err e;
    struct buf once, twice;
    if (load(data, size, &c, &e) != 0) {
        require(e.code != ERR_NONE && e.msg[0] != '\0' && utf8_valid(e.msg, strlen(e.msg)));
        return 0;
    }
    print(&c, &once);
    if (load(once.data, once.len, &again, &e) != 0) {
        fprintf(stderr, "%s\n%s\n", e.msg, once.data);
        abort();
    }
    print(&again, &twice);
    require(once.len == twice.len && memcmp(once.data, twice.data, once.len) == 0);
    buf_done(&once);
    buf_done(&twice);
    config_done(&c);
    config_done(&again);
    return 0;
}
