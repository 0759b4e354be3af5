/*
 * The files of one chat on disk: <root>/<user_id>/chats/<chat_id>/files/. Everything in there is an
 * agent's to change at any moment, into anything: so it is entered beneath-only and without links,
 * by descriptors that stay; what was opened is looked at before it is used; and what must not be
 * tampered with (a file that still arrives) stands outside, in the chat's own directory.
 *
 * Blocks. Any thread; changes of one chat's files are one at a time, which the caller sees to.
 */
#ifndef LEASEHOLD_CHATFILE_H
#define LEASEHOLD_CHATFILE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "leasehold/err.h"
#include "leasehold/id.h"
#include "leasehold/model.h"

/* What has left the disk: the bytes that nobody has any more, and when they last changed. */
struct file_gone {
    int64_t bytes, ctime_ns;
};

struct chatfiles {
    int chat_fd, files_fd;
    uid_t uid; /* whose files/ is */
    gid_t gid;
};

/* ERR_CHAT_NOT_FOUND if it is not there, ERR_CONFLICT if it is not what the gateway has made. */
int chatfiles_open(const char *root, const struct id *user_id, const struct id *chat_id,
                   struct chatfiles *ret, struct err *e) MUST_CHECK;
void chatfiles_close(struct chatfiles *d);

/* Opens for reading, never waiting for what an agent holds. Links, directories, pipes, sockets,
 * devices and hard links to others' files are ERR_CHAT_FILE_NOT_FOUND, as if they were not there. */
int chatfiles_read(const struct chatfiles *d, const char *name, int *ret_fd,
                   struct file_stamp *ret_stamp, struct err *e) MUST_CHECK;

/* The same of a path that may lead through directories, but not out of files/ nor over a link. */
int chatfiles_read_beneath(const struct chatfiles *d, const char *path, int *ret_fd,
                           struct file_stamp *ret_stamp, struct err *e) MUST_CHECK;

/* The stamp of what chatfiles_read would open. */
int chatfiles_stat(const struct chatfiles *d, const char *name, struct file_stamp *ret,
                   struct err *e) MUST_CHECK;

/* Every file with a name that files may have; not more than `max` entries are looked at. `each`
 * answers -1 to stop. */
int chatfiles_each(const struct chatfiles *d, size_t max,
                   int (*each)(void *ctx, const char *name, const struct file_stamp *s,
                               struct err *e),
                   void *ctx, struct err *e) MUST_CHECK;

/* ERR_CHAT_FILE_NOT_FOUND. Durable with the next chatfiles_sync. */
int chatfiles_remove(const struct chatfiles *d, const char *name, struct file_gone *ret,
                     struct err *e) MUST_CHECK;
int chatfiles_sync(const struct chatfiles *d, struct err *e) MUST_CHECK;

bool file_stamp_equal(const struct file_stamp *a, const struct file_stamp *b);

/* SHA-256 of all that fd holds, as hex. *ret_stable: it was one and the same file all the time, else
 * it may end early. *stop (NULL: never) ends it, too: ERR_BUSY. */
int chatfile_hash(int fd, const struct file_stamp *stamp, const atomic_bool *stop,
                  char ret[static 65], bool *ret_stable, struct err *e) MUST_CHECK;

/* --- a file that arrives --------------------------------------------------------------------- */

#define CHATFILE_TEMP 64

struct chatfile {
    struct chatfiles dir;
    int fd;
    char temp[CHATFILE_TEMP]; /* its name in the chat's directory; "": it has none */
    bool placed;              /* stands under its name; what it replaced is `temp` */
    bool replaced;            /* and that was a file */
    char name[FILE_NAME_MAX + 1];
    int64_t size, flushed;
    struct evp_md_ctx_st *md; /* of what was written */
};

/* Takes *dir. Where the file system can, it has no name yet: a crash leaves nothing. */
int chatfile_begin(struct chatfiles *dir, struct chatfile *ret, struct err *e) MUST_CHECK;
/* One that goes nowhere: only its sum is wanted. */
int chatfile_begin_sum(struct chatfile *ret, struct err *e) MUST_CHECK;
int chatfile_write(struct chatfile *f, const char *data, size_t len, struct err *e) MUST_CHECK;
/* The content is durable; answers its SHA-256. */
int chatfile_sync(struct chatfile *f, char ret_sha256[static 65], struct err *e) MUST_CHECK;

/* Puts it under its name in one step, in place of what was there; durable. `fresh`: there must be
 * nothing (ERR_PRECONDITION_FAILED). A directory of that name is ERR_CONFLICT. Also removes what a
 * killed gateway has left in this chat. *ret_gone: what it replaces, nothing if it is new. */
int chatfile_place(struct chatfile *f, const char *name, bool fresh, struct file_stamp *ret_stamp,
                   struct file_gone *ret_gone, struct err *e) MUST_CHECK;
void chatfile_displace(struct chatfile *f); /* as it was before chatfile_place */

/* Removes what was replaced, or what was never placed, and closes. */
void chatfile_end(struct chatfile *f);

/* Removes what a killed gateway has left in the chat's directory. */
void chatfiles_sweep(const struct chatfiles *d);

#endif
