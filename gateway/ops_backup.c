/* A copy of the metadata and of all histories, as one file. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "leasehold/backup.h"
#include "ops.h"

struct making {
    struct services *s;
    struct backup *backup;
    struct history_place place; /* of the history that is being added */
    int rc;
    struct err *e;
};

/* One at a time: each takes as much room as the metadata. */
void op_backup_key(struct call *c, struct id *ret)
{
    (void)c;
    *ret = (struct id){{'b', 'a', 'c', 'k', 'u', 'p'}};
}

/* On the FILE lane, under the chat's key. */
static void add_locked(void *arg)
{
    struct making *m = arg;
    bool added;

    m->rc = backup_add_history(m->backup, &m->place, &added, m->e);
    if (!m->rc && !added)
        log_event(m->s->log, LOG_WARNING, "backup_without_history",
                  LF_ID("chat_id", &m->place.chat_id));
}

static int add_history(void *ctx, const struct id *user_id, const struct id *chat_id, struct err *e)
{
    struct making *m = ctx;

    if (m->s->stopping)
        return err_set(e, ERR_BUSY, "the gateway is stopping");
    m->place.user_id = *user_id;
    m->place.chat_id = *chat_id;
    m->e = e;
    return lane_call(m->s->file, chat_id, add_locked, m, e) || m->rc ? -1 : 0;
}

static int make_copy(struct services *s, const char *path, struct err *e)
{
    const struct config_sandbox *cfg = &s->cfg->sandbox;
    struct making m = {.s = s,
                       .place = {.root = cfg->chats_root, .uid = cfg->uid, .gid = cfg->gid}};
    int rc;

    if (backup_begin(s->store, path, &m.backup, e))
        return -1;
    rc = backup_each_chat(m.backup, add_history, &m, e) || backup_end(m.backup, e) ? -1 : 0;
    backup_free(m.backup);
    return rc;
}

/* Nothing has its name from here on: it is gone when it has been sent, or with the gateway. */
static int open_copy(struct call *c, const char *path, struct err *e)
{
    struct stat st;
    int *fd = call_alloc(c, sizeof *fd);

    if (!fd)
        return err_set(e, ERR_INTERNAL, "no memory for a backup");
    *fd = open(path, O_RDONLY | O_CLOEXEC);
    if (*fd < 0 || fstat(*fd, &st)) {
        err_sys(e, ERR_INTERNAL, errno, "open a backup");
        if (*fd >= 0)
            close(*fd);
        return -1;
    }
    c->state = fd;
    c->streams = true;
    c->answer_len = st.st_size;
    return 0;
}

int op_backup_get(struct call *c, struct err *e)
{
    char path[4096];
    struct id fresh;
    int rc;

    id_random(&fresh);
    if ((size_t)snprintf(path, sizeof path, "%s/backup.%s", c->s->cfg->storage.data_dir,
                         ID_STR(&fresh)) >= sizeof path)
        return err_set(e, ERR_INTERNAL, "storage.data_dir is too long a path");
    rc = make_copy(c->s, path, e) || open_copy(c, path, e) ? -1 : 0;
    (void)unlink(path);
    return rc;
}

int op_backup_give(struct call *c, struct op_piece *piece, struct err *e)
{
    (void)e;
    piece->fd = *(const int *)c->state;
    piece->offset = 0;
    piece->len = c->answer_len;
    return 0;
}

void op_backup_close(struct call *c)
{
    close(*(const int *)c->state);
}
