/*
 * A file of the chat as it stands at one moment, where its file system can share blocks (xfs, btrfs):
 * nothing is copied, and what an agent writes from then on is not in it. It is summed as a body is, and
 * becomes the object, or goes to the store from there.
 */
#include <errno.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "artifacts.h"

#define CLONE_FROM  ((int64_t)1024 * 1024) /* what is shorter is copied as fast */
#define PIECE_BYTES (256 * 1024)
#define EXTENTS_MAX 8192 /* about 0.15 s */

static int sum_pieces(struct artifact_upload *u, char *piece, struct err *e)
{
    int64_t at = 0;

    while (at < u->a.size_bytes) {
        int64_t left = u->a.size_bytes - at;
        ssize_t n = pread(u->fd, piece, left < PIECE_BYTES ? (size_t)left : PIECE_BYTES, at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(e, ERR_INTERNAL, errno, "read an upload");
        if (n == 0)
            return err_set(e, ERR_INVALID_REQUEST, "the file became shorter meanwhile");
        if (atomic_load(&u->s->stopping))
            return err_set(e, ERR_BUSY, "the upload was cancelled");
        if (objects_check_add(u->sum, piece, (size_t)n, e))
            return -1;
        at += n;
    }
    return 0;
}

static int sum(struct artifact_upload *u, struct err *e)
{
    char *piece = malloc(PIECE_BYTES);
    int rc = piece ? sum_pieces(u, piece, e) : err_set(e, ERR_INTERNAL, "no memory for an upload");

    free(piece);
    return rc;
}

/* The kernel shares one run of blocks after the other, and nothing but a kill stops it: a file with a hole
 * behind every block keeps it busy for two seconds a GiB. A copy can be cancelled. */
static bool is_in_few_runs(int fd)
{
    struct fiemap all = {.fm_length = FIEMAP_MAX_OFFSET};

    return ioctl(fd, FS_IOC_FIEMAP, &all) == 0 && all.fm_mapped_extents <= EXTENTS_MAX;
}

/* What the agent has added since the file was opened is not of this artifact. */
static bool clone_blocks(int to, int from, int64_t size_bytes)
{
    struct stat st;

    return ioctl(to, FICLONE, from) == 0 && fstat(to, &st) == 0 &&
           (st.st_size <= size_bytes || ftruncate(to, size_bytes) == 0);
}

static void spool_drop(struct artifact_upload *u)
{
    if (u->fd >= 0)
        close(u->fd);
    objects_check_free(u->sum);
    u->sum = NULL;
    u->in_store = false;
}

int artifact_upload_clone(struct artifact_upload *u, struct err *e)
{
    int of_chat = u->fd;
    struct err ignored;

    if (u->sum || u->a.size_bytes < CLONE_FROM || !is_in_few_runs(of_chat))
        return 0;
    u->fd = -1;
    if (artifact_upload_spool(u, &ignored) || !clone_blocks(u->fd, of_chat, u->a.size_bytes)) {
        spool_drop(u);
        u->fd = of_chat;
        return 0;
    }
    close(of_chat);
    return sum(u, e);
}
