#include "chat_history.h"

#include "stmt.h"

/* One step a version; a step is never changed. */
static const char *const steps[] = {
    "CREATE TABLE meta (schema_version INTEGER NOT NULL);"
    "INSERT INTO meta (schema_version) VALUES (1);"
    "CREATE TABLE messages ("
    " seq INTEGER PRIMARY KEY,"
    " message_id TEXT NOT NULL UNIQUE,"
    " at INTEGER NOT NULL,"
    " role TEXT NOT NULL CHECK (role IN ('user', 'agent', 'system', 'tool')),"
    " author TEXT NOT NULL,"
    " content TEXT NOT NULL);",

    /* session_id, n: of a message that came out of a session's spool. projection: history.md holds
     * the messages up to md_seq in its first md_bytes bytes; 0 bytes: it is not known yet. */
    "ALTER TABLE messages ADD COLUMN session_id TEXT;"
    "ALTER TABLE messages ADD COLUMN n INTEGER;"
    "CREATE UNIQUE INDEX messages_once ON messages (session_id, n) WHERE session_id IS NOT NULL;"
    "CREATE TABLE spools ("
    " session_id TEXT NOT NULL PRIMARY KEY,"
    " n INTEGER NOT NULL,"
    " bytes INTEGER NOT NULL,"
    " lost INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE projection (md_seq INTEGER NOT NULL, md_bytes INTEGER NOT NULL);"
    "INSERT INTO projection (md_seq, md_bytes) VALUES (0, 0);"
    "UPDATE meta SET schema_version = 2;",

    /* What the client calls a message that it may send again. */
    "ALTER TABLE messages ADD COLUMN client_id TEXT;"
    "CREATE UNIQUE INDEX messages_sent_once ON messages (client_id) WHERE client_id IS NOT NULL;"
    "UPDATE meta SET schema_version = 3;",
};

#define VERSION ((int64_t)(sizeof(steps) / sizeof(steps[0])))

static int step(struct conn *c, const char *sql, struct err *e)
{
    if (conn_exec(c, "BEGIN IMMEDIATE", e) != 0) {
        return -1;
    }
    if (conn_exec(c, sql, e) == 0 && conn_exec(c, "COMMIT", e) == 0) {
        return 0;
    }
    conn_rollback(c);
    return -1;
}

static int migrate_from(struct conn *c, int64_t version, struct err *e)
{
    for (int64_t v = version; v < VERSION; v++) {
        if (step(c, steps[v], e) != 0) {
            return -1;
        }
    }
    return 0;
}

int chat_history_migrate(struct conn *c, struct err *e)
{
    struct stmt st;
    int64_t version;
    if (stmt_open(&st, c, "history", "SELECT schema_version FROM meta", e) != 0 ||
        stmt_end_with_int(&st, ERR_INTERNAL, &version, e) != 0) {
        return -1;
    }
    if (version < 1 || version > VERSION) {
        return err_set(e, ERR_CONFLICT, "history.db was made by a newer leasehold");
    }
    return migrate_from(c, version, e);
}

static int serialize(struct conn *c, struct buf *out, struct err *e)
{
    sqlite3_int64 size;
    unsigned char *image = sqlite3_serialize(c->db, "main", &size, 0);
    if (image == NULL) {
        return err_set(e, ERR_INTERNAL, "no memory for a history");
    }
    buf_add(out, image, (size_t)size);
    sqlite3_free(image);
    return buf_ok(out) ? 0 : err_set(e, ERR_INTERNAL, "no memory for a history");
}

int chat_history_image(struct buf *out, struct err *e)
{
    struct conn c = {0};
    int rc = sqlite3_open_v2(":memory:", &c.db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    int failed = rc != SQLITE_OK ? conn_fail(&c, rc, "history", e)
                                 : migrate_from(&c, 0, e) != 0 || serialize(&c, out, e) != 0;
    conn_close(&c);
    return failed != 0 ? -1 : 0;
}
