#include "chat_history.h"

#include "conn.h"

static const char schema[] =
    "CREATE TABLE meta (schema_version INTEGER NOT NULL);"
    "INSERT INTO meta (schema_version) VALUES (1);"
    "CREATE TABLE messages ("
    " seq INTEGER PRIMARY KEY,"
    " message_id TEXT NOT NULL UNIQUE,"
    " at INTEGER NOT NULL,"
    " role TEXT NOT NULL CHECK (role IN ('user', 'agent', 'system', 'tool')),"
    " author TEXT NOT NULL,"
    " content TEXT NOT NULL);";

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
                                 : conn_exec(&c, schema, e) != 0 || serialize(&c, out, e) != 0;
    conn_close(&c);
    return failed != 0 ? -1 : 0;
}
