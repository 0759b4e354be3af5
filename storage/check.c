#include "check.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "leasehold/clock.h"
#include "stmt.h"

#define NICENESS 10 /* of the thread: who serves goes first */

static int unusable(const char *path, const char *why, struct err *e)
{
    return err_set(e, ERR_INTERNAL, "the database is unusable (%.60s), restore a backup: %s", why,
                   path);
}

/* What SQLite finds wrong with the file, "ok" if nothing. */
static int read_check(struct conn *c, char *ret, size_t size, struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, c, "check", "PRAGMA quick_check(1)", e) != 0) {
        return -1;
    }
    int rc = stmt_first(&st, ERR_INTERNAL, e);
    if (rc == 0) {
        column_text(&st, ret, size);
    }
    return stmt_end(&st, rc, e);
}

static void log_whole(struct log *log, const char *path, int64_t start_us)
{
    log_event(log, LOG_WARNING, "store_checked", LF_STR("path", path),
              LF_STR("cause", "unclean stop"),
              LF_INT("ms", (clock_boot_us(&clock_system) - start_us) / 1000));
}

int store_check_now(struct conn *c, const struct store_options *o, struct err *e)
{
    char found[512];
    int64_t start_us = clock_boot_us(&clock_system);
    if (read_check(c, found, sizeof(found), e) != 0) {
        return unusable(o->path, e->msg, e);
    }
    if (strcmp(found, "ok") != 0) {
        return unusable(o->path, found, e);
    }
    log_whole(o->log, o->path, start_us);
    return 0;
}

/* --- behind the opening ------------------------------------------------------------------------- */

static void tell_damage(struct store_check *c, const char *found)
{
    struct err e;
    (void)unusable(c->path, found, &e);
    log_error(c->log, "store_damaged", &e, LF_STR("detail", "no further write is taken"));
    metric_set(c->damage, 0, 0, 1);
    c->damaged(c->ctx, found);
}

/* Or was the check broken off, or had no memory: then nothing is known, and the next start asks again. */
static bool is_corrupt(const struct conn *c)
{
    int rc = sqlite3_errcode(c->db) & 0xff;
    return rc == SQLITE_CORRUPT || rc == SQLITE_NOTADB;
}

static void *check_main(void *arg)
{
    struct store_check *c = arg;
    char found[512];
    struct err e;
    int64_t start_us = clock_boot_us(&clock_system);
    (void)setpriority(PRIO_PROCESS, 0, NICENESS); /* of this thread alone, on Linux */
    int rc = read_check(&c->conn, found, sizeof(found), &e);
    c->whole = rc == 0 && strcmp(found, "ok") == 0;
    if (c->whole) {
        log_whole(c->log, c->path, start_us);
    } else if (rc == 0) {
        tell_damage(c, found);
    } else if (is_corrupt(&c->conn)) {
        tell_damage(c, e.msg);
    } else {
        log_error(c->log, "store_check_failed", &e, LF_STR("path", c->path));
    }
    return NULL;
}

int store_check_begin(struct store_check *c, const struct store_options *o, struct err *e)
{
    c->log = o->log;
    c->damage = o->meters.damage;
    c->path = strdup(o->path);
    if (c->path == NULL) {
        return err_set(e, ERR_INTERNAL, "no memory to check the database");
    }
    if (conn_open(o->path, CONN_READ, &c->conn, e) != 0) {
        return -1;
    }
    log_event(o->log, LOG_WARNING, "store_check_begun", LF_STR("path", o->path),
              LF_STR("cause", "unclean stop"));
    int rc = pthread_create(&c->thread, NULL, check_main, c);
    if (rc != 0) {
        return err_sys(e, ERR_INTERNAL, rc, "cannot start the check of the database");
    }
    pthread_setname_np(c->thread, "check");
    c->started = true;
    return 0;
}

bool store_check_end(struct store_check *c)
{
    bool asked = c->started;
    if (c->started) {
        sqlite3_interrupt(c->conn.db);
        pthread_join(c->thread, NULL);
        c->started = false;
    }
    if (c->conn.db != NULL) {
        conn_close(&c->conn);
    }
    free(c->path);
    c->path = NULL;
    return !asked || c->whole;
}
