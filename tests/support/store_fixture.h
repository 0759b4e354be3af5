/* A store in a directory of its own, and rows to put into it. */
#ifndef TESTS_STORE_FIXTURE_H
#define TESTS_STORE_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "leasehold/store.h"

struct fixture {
    char dir[64];
    char path[80]; /* of the database */
    char log_path[80];
    int log_fd;
    struct log *log;
    struct store_options options;
    struct store *store;
    struct id user_id, chat_id, session_id; /* after fixture_add_session */
};

static inline void fixture_open(struct fixture *f)
{
    struct err e;
    if (store_open(&f->options, &f->store, &e) != 0) {
        fail_msg("store_open: %s", e.msg);
    }
}

static inline void fixture_reopen(struct fixture *f)
{
    store_close(f->store);
    fixture_open(f);
}

/* With the directory and the options, but not yet open. */
static inline struct fixture *fixture_new(void)
{
    struct fixture *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    strcpy(f->dir, "/tmp/leasehold-store-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->path, sizeof(f->path), "%s/lh.db", f->dir);
    snprintf(f->log_path, sizeof(f->log_path), "%s/log", f->dir);
    f->log_fd = open(f->log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    assert_true(f->log_fd >= 0);
    f->log = log_new(f->log_fd, LOG_DEBUG, LOG_JSON);
    assert_non_null(f->log);
    f->options = (struct store_options){.path = f->path, .log = f->log};
    return f;
}

static inline int fixture_remove_one(const char *path, const struct stat *st, int type,
                                     struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static inline void fixture_free(struct fixture *f)
{
    store_close(f->store);
    log_free(f->log);
    close(f->log_fd);
    nftw(f->dir, fixture_remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
    free(f);
}

static inline int fixture_setup(void **state)
{
    struct fixture *f = fixture_new();
    fixture_open(f);
    *state = f;
    return 0;
}

static inline int fixture_setup_closed(void **state)
{
    *state = fixture_new();
    return 0;
}

static inline int fixture_teardown(void **state)
{
    fixture_free(*state);
    return 0;
}

static inline bool fixture_log_has(struct fixture *f, const char *event)
{
    static char text[1 << 20];
    int fd = open(f->log_path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    ssize_t n = read(fd, text, sizeof(text) - 1);
    close(fd);
    assert_true(n >= 0);
    text[n] = '\0';
    return strstr(text, event) != NULL;
}

/* --- rows --------------------------------------------------------------------------------------- */

static inline struct sandbox fixture_sandbox(const struct id *chat_id, const struct id *user_id,
                                             int64_t generation)
{
    struct sandbox s = {.chat_id = *chat_id,
                        .user_id = *user_id,
                        .generation = generation,
                        .status = SANDBOX_RUNNING,
                        .created_at = 1000};
    id_random(&s.session_id);
    id_random(&s.workspace_id);
    return s;
}

static inline struct lease fixture_lease(const struct id *session_id, const struct id *chat_id,
                                         const struct id *user_id)
{
    struct lease l = {.session_id = *session_id,
                      .chat_id = *chat_id,
                      .user_id = *user_id,
                      .scope = SCOPE_READ | SCOPE_WRITE,
                      .max_connections = 1,
                      .issued_at = 1000,
                      .expires_at = 2000,
                      .max_expires_at = 9000,
                      .grant_seq = 1,
                      .ep = 1,
                      .kid = "kid"};
    id_random(&l.lease_id);
    return l;
}

static inline int fixture_add_chat(struct store_tx *tx, const struct id *user_id, struct id *ret,
                                   struct err *e)
{
    struct workspace w;
    bool made;
    if (store_workspace_touch(tx, user_id, &w, &made, e) != 0) {
        return -1;
    }
    struct chat c = {
        .user_id = *user_id, .workspace_id = w.workspace_id, .created_at = 1, .updated_at = 1};
    id_random(&c.chat_id);
    *ret = c.chat_id;
    return store_chat_insert(tx, &c, e);
}

static inline int fixture_add_session_fn(struct store_tx *tx, void *arg, struct err *e)
{
    struct fixture *f = arg;
    id_random(&f->user_id);
    if (fixture_add_chat(tx, &f->user_id, &f->chat_id, e) != 0) {
        return -1;
    }
    struct sandbox s = fixture_sandbox(&f->chat_id, &f->user_id, 1);
    f->session_id = s.session_id;
    return store_sandbox_insert(tx, &s, e);
}

/* A user with a chat and a running sandbox. */
static inline void fixture_add_session(struct fixture *f)
{
    struct err e;
    if (store_write(f->store, fixture_add_session_fn, f, &e) != 0) {
        fail_msg("fixture_add_session: %s", e.msg);
    }
}

static inline struct audit_entry fixture_audit_entry(const char *object)
{
    return (struct audit_entry){.at = 5,
                                .actor = "gateway",
                                .action = "test",
                                .object = object,
                                .outcome = "ok",
                                .address = "127.0.0.1",
                                .request_id = "r",
                                .detail = ""};
}

/* Runs a write or a read that must succeed. */
static inline void fixture_write(struct fixture *f, store_fn fn, void *arg)
{
    struct err e;
    if (store_write(f->store, fn, arg, &e) != 0) {
        fail_msg("store_write: %s", e.msg);
    }
}

static inline void fixture_read(struct fixture *f, store_fn fn, void *arg)
{
    struct err e;
    if (store_read(f->store, fn, arg, &e) != 0) {
        fail_msg("store_read: %s", e.msg);
    }
}

#endif
