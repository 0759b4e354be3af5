#include "migrate.h"

#include "leasehold/clock.h"
#include "stmt.h"

static int record(struct conn *c, const struct migration *m, struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, c, "migration",
                  "INSERT INTO schema_migrations (version, name, applied_at) VALUES (?, ?, ?)",
                  e) != 0) {
        return -1;
    }
    bind_int(&st, m->version);
    bind_text(&st, m->name);
    bind_int(&st, clock_wall_ms(&clock_system));
    return stmt_run(&st, e);
}

static int apply(struct conn *c, const struct migration *m, struct err *e)
{
    if (conn_exec(c, "BEGIN IMMEDIATE", e) != 0) {
        return -1;
    }
    if (conn_exec(c, m->sql, e) == 0 && (m->run == NULL || m->run(c, e) == 0) &&
        record(c, m, e) == 0 && conn_exec(c, "COMMIT", e) == 0) {
        return 0;
    }
    conn_rollback(c);
    return -1;
}

static int newest(struct conn *c, int64_t *ret, struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, c, "migration", "SELECT COALESCE(MAX(version), 0) FROM schema_migrations",
                  e) != 0) {
        return -1;
    }
    return stmt_end_with_int(&st, ERR_INTERNAL, ret, e);
}

int migrate(struct conn *c, const struct migration *table, int64_t *ret_applied, struct err *e)
{
    int64_t have, applied = 0, known = 0;
    if (conn_exec(c,
                  "CREATE TABLE IF NOT EXISTS schema_migrations ("
                  " version BIGINT PRIMARY KEY, name TEXT NOT NULL, applied_at BIGINT NOT NULL)",
                  e) != 0 ||
        newest(c, &have, e) != 0) {
        return -1;
    }
    for (const struct migration *m = table; m->version != 0; m++) {
        known = m->version;
        if (m->version <= have) {
            continue;
        }
        if (apply(c, m, e) != 0) {
            return -1;
        }
        applied++;
    }
    if (have > known) {
        return err_set(e, ERR_INTERNAL,
                       "the database has schema %lld, this leasehold knows %lld: use the newer one",
                       (long long)have, (long long)known);
    }
    *ret_applied = applied;
    return 0;
}
