#include "history_md.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "history_text.h"

#define FLUSH_BYTES 262144
#define OUT_MAX     (1024 * 1024 * 1024) /* one message fits; each flush empties it */

static int fail(struct err *e, int sys)
{
    bool full = sys == ENOSPC || sys == EDQUOT;
    return err_sys(e, full ? ERR_STORAGE_FULL : ERR_INTERNAL, sys, "history.md");
}

int history_md_open(int dir, struct history_md *ret, struct err *e)
{
    struct stat st;
    int fd = openat(dir, "history.md", O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        return fail(e, errno);
    }
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_nlink != 1) {
        close(fd);
        return err_set(e, ERR_CONFLICT, "history.md is not what the gateway made");
    }
    *ret = (struct history_md){.fd = fd};
    buf_init(&ret->out, OUT_MAX);
    return 0;
}

void history_md_close(struct history_md *md)
{
    if (md->fd >= 0) {
        close(md->fd);
    }
    md->fd = -1;
    buf_done(&md->out);
}

int history_md_size(const struct history_md *md, int64_t *ret, struct err *e)
{
    struct stat st;
    if (fstat(md->fd, &st) != 0) {
        return fail(e, errno);
    }
    *ret = st.st_size;
    return 0;
}

int history_md_cut(struct history_md *md, int64_t bytes, struct err *e)
{
    md->bytes = bytes;
    md->ahead = 0;
    buf_reset(&md->out);
    return ftruncate(md->fd, bytes) == 0 ? 0 : fail(e, errno);
}

static int flush(struct history_md *md, struct err *e)
{
    size_t done = 0;
    if (!buf_ok(&md->out)) {
        return err_set(e, ERR_INTERNAL, "no memory for history.md");
    }
    while (done < md->out.len) {
        ssize_t n = pwrite(md->fd, md->out.data + done, md->out.len - done, md->bytes + md->ahead);
        if (n < 0 && errno != EINTR) {
            return fail(e, errno);
        }
        done += n > 0 ? (size_t)n : 0;
        md->ahead += n > 0 ? n : 0;
    }
    buf_reset(&md->out);
    return 0;
}

int history_md_head(struct history_md *md, const struct id *chat_id, struct err *e)
{
    buf_printf(&md->out, "# %s\n", ID_STR(chat_id));
    return flush(md, e);
}

int history_md_add(struct history_md *md, const struct history_message *m, struct err *e)
{
    history_text_entry(m, &md->out);
    return md->out.len >= FLUSH_BYTES || !buf_ok(&md->out) ? flush(md, e) : 0;
}

int history_md_sync(struct history_md *md, struct err *e)
{
    if (flush(md, e) != 0) {
        return -1;
    }
    return fdatasync(md->fd) == 0 ? 0 : fail(e, errno);
}

void history_md_keep(struct history_md *md)
{
    md->bytes += md->ahead;
    md->ahead = 0;
}

void history_md_drop(struct history_md *md)
{
    struct err e;
    (void)!history_md_cut(md, md->bytes, &e); /* else the next open does it */
}
