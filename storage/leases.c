#include <assert.h>

#include "leases.h"
#include "list.h"

/* In the order of bind_lease and read_lease. */
#define LEASE_COLUMNS                                                                              \
    "n, lease_id, session_id, chat_id, user_id, api_key_id, scope, use_kind, max_connections, "    \
    "state,"                                                                                       \
    " issued_at, expires_at, max_expires_at, revoked_at, revoked_reason, grant_seq, ep, kid, "     \
    "cnf_jkt,"                                                                                     \
    " consumed_at, renewed_kid"

#define SELECT_LEASE "SELECT " LEASE_COLUMNS " FROM leases "

/* Those of the blocks that an owner is named in, or all that may be open: storage/lease_blocks.h. */
#define SELECT_OF_BLOCKS "SELECT " LEASE_COLUMNS " FROM lease_blocks CROSS JOIN leases "
#define SELECT_OF_OPEN_BLOCKS                                                                      \
    "SELECT " LEASE_COLUMNS " FROM lease_open_blocks CROSS JOIN leases WHERE " LEASE_IN_BLOCK      \
    "AND closed = 0 "

static void bind_lease(struct stmt *st, const struct lease *l)
{
    bind_int(st, l->n);
    bind_id(st, &l->lease_id);
    bind_id(st, &l->session_id);
    bind_id(st, &l->chat_id);
    bind_id(st, &l->user_id);
    bind_id_or_null(st, &l->api_key_id);
    bind_int(st, l->scope);
    bind_text(st, lease_use_names[l->use]);
    bind_int(st, l->max_connections);
    bind_text(st, lease_state_names[l->state]);
    bind_int(st, l->issued_at);
    bind_int(st, l->expires_at);
    bind_int(st, l->max_expires_at);
    bind_int(st, l->revoked_at);
    bind_text(st, l->revoked_reason);
    bind_int(st, l->grant_seq);
    bind_int(st, l->ep);
    bind_text(st, l->kid);
    bind_text(st, l->cnf_jkt);
    bind_int(st, l->consumed_at);
    bind_text(st, l->renewed_kid);
}

static void read_lease(struct stmt *st, struct lease *l)
{
    *l = (struct lease){.n = column_int(st)};
    column_id(st, &l->lease_id);
    column_id(st, &l->session_id);
    column_id(st, &l->chat_id);
    column_id(st, &l->user_id);
    column_id(st, &l->api_key_id);
    l->scope = (unsigned)column_int(st);
    l->use = (enum lease_use)column_enum(st, lease_use_names);
    l->max_connections = column_int(st);
    l->state = (enum lease_state)column_enum(st, lease_state_names);
    l->issued_at = column_int(st);
    l->expires_at = column_int(st);
    l->max_expires_at = column_int(st);
    l->revoked_at = column_int(st);
    column_text(st, l->revoked_reason, sizeof(l->revoked_reason));
    l->grant_seq = column_int(st);
    l->ep = column_int(st);
    column_text(st, l->kid, sizeof(l->kid));
    column_text(st, l->cnf_jkt, sizeof(l->cnf_jkt));
    l->consumed_at = column_int(st);
    column_text(st, l->renewed_kid, sizeof(l->renewed_kid));
}

/* The first row of a statement whose ids are bound; ends it. */
static int end_with_lease(struct stmt *st, struct lease *ret, struct err *e)
{
    struct lease l;
    int rc = stmt_first(st, ERR_NOT_FOUND, e);
    if (rc == 0) {
        read_lease(st, &l);
    }
    if (stmt_end(st, rc, e) != 0) {
        return -1;
    }
    *ret = l;
    return 0;
}

static bool is_open(enum lease_state state)
{
    return state == LEASE_PENDING || state == LEASE_ACTIVE;
}

static int insert_row(struct store_tx *tx, const struct lease *l, struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, tx->conn, "lease",
                  "INSERT INTO leases (" LEASE_COLUMNS ", closed)"
                  " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                  e) != 0) {
        return -1;
    }
    bind_lease(&st, l);
    bind_int(&st, l->state == LEASE_CLOSED);
    return stmt_run(&st, e);
}

/* For SQLite to see to it there would have to be an index of leases by session. */
static int check_session(struct store_tx *tx, const struct lease *l, struct err *e)
{
    struct sandbox s;
    struct err why;
    if (session_cache_get(tx->sessions, &l->session_id) != NULL ||
        store_sandbox_get(tx, &l->session_id, &s, &why) == 0) {
        return 0;
    }
    return why.code == ERR_NOT_FOUND
               ? err_set(e, ERR_CONFLICT, "the session of the lease does not exist")
               : err_set(e, why.code, "%s", why.msg);
}

/* A number that was taken by a write which failed is not given again. */
int store_lease_insert(struct store_tx *tx, struct lease *l, struct err *e)
{
    if (tx->leases == NULL) {
        return err_set(e, ERR_INTERNAL, "lease inserted in a read");
    }
    if (check_session(tx, l, e) != 0) {
        return -1;
    }
    l->n = ++tx->leases->last_n;
    if (insert_row(tx, l, e) != 0 || lease_blocks_add(tx->lease_blocks, tx->conn, l, e) != 0) {
        return -1;
    }
    return is_open(l->state) ? lease_counts_add(tx->leases, &l->session_id, &l->user_id, 1, e) : 0;
}

int store_lease_get(struct store_tx *tx, const struct id *lease_id, struct lease *ret,
                    struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, tx->conn, "lease", SELECT_LEASE "WHERE lease_id = ?", e) != 0) {
        return -1;
    }
    bind_id(&st, lease_id);
    return end_with_lease(&st, ret, e);
}

/* Of one that stays open. */
static int update_open(struct store_tx *tx, const struct lease *l, struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, tx->conn, "lease",
                  "UPDATE leases SET (scope, max_connections, expires_at, grant_seq, consumed_at,"
                  " renewed_kid) = (?, ?, ?, ?, ?, ?) WHERE n = ?",
                  e) != 0) {
        return -1;
    }
    bind_int(&st, l->scope);
    bind_int(&st, l->max_connections);
    bind_int(&st, l->expires_at);
    bind_int(&st, l->grant_seq);
    bind_int(&st, l->consumed_at);
    bind_text(&st, l->renewed_kid);
    bind_int(&st, l->n);
    return stmt_run_one(&st, ERR_NOT_FOUND, e);
}

/* Of one that is open no more. `sql` names the states that it may have until now. */
static int update_row(struct store_tx *tx, const struct lease *l, const char *sql, bool *ret_found,
                      struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, tx->conn, "lease", sql, e) != 0) {
        return -1;
    }
    bind_text(&st, lease_state_names[l->state]);
    bind_int(&st, l->revoked_at);
    bind_text(&st, l->revoked_reason);
    bind_int(&st, l->consumed_at);
    bind_int(&st, l->n);
    int rc = stmt_run(&st, e);
    *ret_found = rc == 0 && sqlite3_changes(tx->conn->db) == 1;
    return rc;
}

/* Of one that ends, and was not closed before. */
static int update_ended(struct store_tx *tx, const struct lease *l, const char *sql,
                        bool *ret_found, struct err *e)
{
    if (update_row(tx, l, sql, ret_found, e) != 0) {
        return -1;
    }
    return *ret_found && l->state == LEASE_CLOSED ? lease_blocks_close(tx->lease_blocks, l->n, e)
                                                  : 0;
}

/* `closed`, which indices go by, is named by that alone which changes it. */
#define END_LEASE(closed)                                                                          \
    "UPDATE leases SET state = ?, revoked_at = ?, revoked_reason = ?, consumed_at = ?" closed      \
    " WHERE n = ? AND "

#define IS_NOT_OPEN "NOT " LEASE_IS_OPEN

static int end_open(struct store_tx *tx, const struct lease *l, bool *ret_found, struct err *e)
{
    const char *sql = l->state == LEASE_CLOSED ? END_LEASE(", closed = 1") LEASE_IS_OPEN
                                               : END_LEASE("") LEASE_IS_OPEN;
    if (update_ended(tx, l, sql, ret_found, e) != 0) {
        return -1;
    }
    return *ret_found ? lease_counts_add(tx->leases, &l->session_id, &l->user_id, -1, e) : 0;
}

static int end_ending(struct store_tx *tx, const struct lease *l, bool *ret_found, struct err *e)
{
    return update_ended(tx, l,
                        l->state == LEASE_CLOSED ? END_LEASE(", closed = 1") IS_NOT_OPEN
                            " AND closed = 0"
                                                 : END_LEASE("") IS_NOT_OPEN " AND closed = 0",
                        ret_found, e);
}

/* A use that is told late is noted in the row of one that is closed. */
static int update_closed(struct store_tx *tx, const struct lease *l, bool *ret_found, struct err *e)
{
    return update_row(tx, l, END_LEASE("") "closed = 1", ret_found, e);
}

/* Whose lease it is, in which session, for which key and until when at most never changes; nor does
 * one open again that was open no more. What is closed was ending before, as a rule. */
int store_lease_update(struct store_tx *tx, const struct lease *l, struct err *e)
{
    bool found = false, closes = l->state == LEASE_CLOSED;
    if (is_open(l->state)) {
        return update_open(tx, l, e);
    }
    if ((closes ? end_ending : end_open)(tx, l, &found, e) != 0 ||
        (!found && (closes ? end_open : end_ending)(tx, l, &found, e) != 0) ||
        (!found && closes && update_closed(tx, l, &found, e) != 0)) {
        return -1;
    }
    return found ? 0 : err_set(e, ERR_NOT_FOUND, "no such lease");
}

void store_lease_count(const struct store_tx *tx, const struct id *session_id,
                       const struct id *user_id, struct store_lease_counts *ret)
{
    *ret = (struct store_lease_counts){
        .of_session = lease_counts_of_session(tx->leases, session_id),
        .of_user = lease_counts_of_user(tx->leases, user_id),
        .all = tx->leases->all,
    };
}

static int next_open_of_session(struct store_tx *tx, const struct id *session_id, int64_t after,
                                struct lease *ret, struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, tx->conn, "lease",
                  SELECT_OF_BLOCKS "WHERE owner_id = ? AND block >= ? / " LEASE_BLOCK_SQL
                                   " AND " LEASE_BLOCK_IS_OPEN "AND " LEASE_IN_BLOCK
                                   "AND session_id = ? AND n > ? AND closed = 0"
                                   " ORDER BY block, n LIMIT 1",
                  e) != 0) {
        return -1;
    }
    bind_id(&st, session_id);
    bind_int(&st, after);
    bind_id(&st, session_id);
    bind_int(&st, after);
    return end_with_lease(&st, ret, e);
}

/* One look-up a row, and none open during `each`: it may write to the table that is walked. */
int store_lease_each_open_of(struct store_tx *tx, const struct id *session_id,
                             int (*each)(void *ctx, const struct lease *l, struct err *e),
                             void *ctx, struct err *e)
{
    struct lease l = {.session_id = *session_id};
    for (;;) {
        struct err last;
        if (next_open_of_session(tx, session_id, l.n, &l, &last) != 0) {
            return stmt_walk_end(&last, e);
        }
        if (each(ctx, &l, e) != 0) {
            return -1;
        }
    }
}

struct lease_walk {
    int (*each)(void *ctx, const struct lease *l, struct err *e);
    void *ctx;
};

static int walk_lease(struct stmt *st, void *arg, struct err *e)
{
    const struct lease_walk *w = arg;
    struct lease l;
    read_lease(st, &l);
    return w->each(w->ctx, &l, e);
}

int store_lease_each_open(struct store_tx *tx,
                          int (*each)(void *ctx, const struct lease *l, struct err *e), void *ctx,
                          struct err *e)
{
    struct lease_walk w = {.each = each, .ctx = ctx};
    struct stmt st;
    if (stmt_open(&st, tx->conn, "lease", SELECT_OF_OPEN_BLOCKS "ORDER BY block, n", e) != 0) {
        return -1;
    }
    return list_walk(&st, walk_lease, &w, e);
}

/* --- list ------------------------------------------------------------------------------------- */

#define FILTER_LEASES LIST_OPTIONAL("user_id") "(? = '' OR state IN (?, ?)) AND " LIST_SEEN

/* All are in the order of issue: a page begins in the block of the last lease of the page before. */
#define LIST_ALL SELECT_LEASE "WHERE " FILTER_LEASES "AND n > ? ORDER BY n LIMIT ?"

#define LIST_OF_OWNER(which)                                                                       \
    SELECT_OF_BLOCKS "WHERE owner_id = ? AND block >= ? / " LEASE_BLOCK_SQL " AND " LEASE_IN_BLOCK \
                     "AND " which FILTER_LEASES "AND n > ? ORDER BY block, n LIMIT ?"

/* A chat has one session after the other, and leases of one at a time. */
#define LIST_OF_CHAT                                                                               \
    "SELECT " LEASE_COLUMNS " FROM (SELECT session_id AS of_session, generation FROM sandboxes"    \
    " WHERE chat_id = ? AND generation >= COALESCE((SELECT ep FROM leases WHERE n = ?), 0))"       \
    " AS sessions CROSS JOIN lease_blocks CROSS JOIN leases"                                       \
    " WHERE owner_id = of_session AND block >= ? / " LEASE_BLOCK_SQL " AND " LEASE_IN_BLOCK        \
    "AND session_id = of_session AND " FILTER_LEASES                                               \
    "AND n > ? ORDER BY generation, block, n LIMIT ?"

static int open_of_chat(struct store_tx *tx, const struct store_list *l,
                        const struct store_filter *f, struct stmt *st, struct err *e)
{
    if (stmt_open(st, tx->conn, "lease", LIST_OF_CHAT, e) != 0) {
        return -1;
    }
    bind_id(st, &f->chat_id);
    bind_int(st, l->after.created_at);
    bind_int(st, l->after.created_at);
    return 0;
}

static int open_of_owner(struct store_tx *tx, const struct store_list *l, const struct id *owner,
                         const char *sql, struct stmt *st, struct err *e)
{
    if (stmt_open(st, tx->conn, "lease", sql, e) != 0) {
        return -1;
    }
    bind_id(st, owner);
    bind_int(st, l->after.created_at);
    bind_id(st, owner);
    return 0;
}

/* What the rows are found by is bound. */
static int list_open(struct store_tx *tx, const struct store_list *l, const struct store_filter *f,
                     struct stmt *st, struct err *e)
{
    bool of_session = !id_is_zero(&f->session_id), of_chat = !id_is_zero(&f->chat_id);
    if (of_session && of_chat) {
        int rc = open_of_owner(tx, l, &f->session_id,
                               LIST_OF_OWNER("session_id = ? AND chat_id = ? AND "), st, e);
        if (rc == 0) {
            bind_id(st, &f->chat_id);
        }
        return rc;
    }
    if (of_session) {
        return open_of_owner(tx, l, &f->session_id, LIST_OF_OWNER("session_id = ? AND "), st, e);
    }
    if (of_chat) {
        return open_of_chat(tx, l, f, st, e);
    }
    if (!id_is_zero(&f->user_id)) {
        return open_of_owner(tx, l, &f->user_id, LIST_OF_OWNER("user_id = ? AND "), st, e);
    }
    return stmt_open(st, tx->conn, "lease", LIST_ALL, e);
}

int store_lease_list(struct store_tx *tx, const struct store_list *l, const struct store_filter *f,
                     int (*each)(void *ctx, const struct lease *lease, struct err *e), void *ctx,
                     struct err *e)
{
    assert(f != NULL);
    struct lease_walk w = {.each = each, .ctx = ctx};
    struct stmt st;
    if (list_open(tx, l, f, &st, e) != 0) {
        return -1;
    }
    list_bind_optional_id(&st, &f->user_id);
    const char *one = f->names != NULL ? f->names[0] : NULL;
    bind_text(&st, one);
    bind_text(&st, one);
    bind_text(&st, one != NULL && f->names[1] != NULL ? f->names[1] : one);
    list_bind_seen(&st, l);
    bind_int(&st, l->after.created_at);
    bind_int(&st, l->limit);
    return list_walk(&st, walk_lease, &w, e);
}

/* --- what is to end -----------------------------------------------------------------------------
 * Leases are open only while their session is active, so a chat's and a user's are found by their
 * few active sessions, not among all that they ever had. */

/* Whose rows are found session by session needs no order. The others are sorted by their numbers alone
 * and read again, for in memory all rows would be a multiple; LIMIT has SQLite keep the inner order. */
#define MATCH_OPEN "AND closed = 0 AND " LEASE_IS_OPEN " AND " LIST_SEEN

#define MATCH_SORTED(found)                                                                        \
    "SELECT " LEASE_COLUMNS " FROM (SELECT n AS of_n FROM " found MATCH_OPEN                       \
    "ORDER BY session_id, n LIMIT -1) CROSS JOIN leases WHERE n = of_n"

#define OWNER_OPEN                                                                                 \
    "lease_blocks CROSS JOIN leases WHERE owner_id = ? AND " LEASE_BLOCK_IS_OPEN                   \
    "AND " LEASE_IN_BLOCK

#define ALL_OPEN "lease_open_blocks CROSS JOIN leases WHERE " LEASE_IN_BLOCK

#define MATCH_OF_ACTIVE_SESSIONS(which)                                                            \
    "SELECT " LEASE_COLUMNS " FROM (SELECT session_id AS of_session FROM sandboxes WHERE " which   \
    " = ? AND status IN ('starting', 'running', 'stopping')) AS sessions"                          \
    " CROSS JOIN lease_blocks CROSS JOIN leases WHERE owner_id = of_session "                      \
    "AND " LEASE_BLOCK_IS_OPEN "AND " LEASE_IN_BLOCK "AND session_id = of_session " MATCH_OPEN

static const char *match_sql(const struct store_match *m)
{
    switch (m->by) {
    case MATCH_SESSION:
        return "SELECT " LEASE_COLUMNS " FROM " OWNER_OPEN "AND session_id = ? " MATCH_OPEN;
    case MATCH_CHAT:
        return MATCH_OF_ACTIVE_SESSIONS("chat_id");
    case MATCH_USER:
        return MATCH_OF_ACTIVE_SESSIONS("user_id");
    case MATCH_API_KEY:
        return MATCH_SORTED(OWNER_OPEN "AND api_key_id = ? ");
    case MATCH_KID:
        return MATCH_SORTED(ALL_OPEN "AND (kid = ? OR renewed_kid = ?) ");
    case MATCH_ALL:
        break;
    }
    return MATCH_SORTED(ALL_OPEN);
}

static void match_bind(struct stmt *st, const struct store_match *m)
{
    switch (m->by) {
    case MATCH_SESSION:
    case MATCH_API_KEY:
        bind_id(st, &m->id);
        bind_id(st, &m->id);
        break;
    case MATCH_CHAT:
    case MATCH_USER:
        bind_id(st, &m->id);
        break;
    case MATCH_KID:
        bind_text(st, m->kid);
        bind_text(st, m->kid);
        break;
    case MATCH_ALL:
        break;
    }
}

int store_lease_each_match(struct store_tx *tx, const struct store_match *m,
                           const struct caller *caller,
                           int (*each)(void *ctx, const struct lease *l, struct err *e), void *ctx,
                           struct err *e)
{
    struct lease_walk w = {.each = each, .ctx = ctx};
    struct stmt st;
    if (stmt_open(&st, tx->conn, "lease", match_sql(m), e) != 0) {
        return -1;
    }
    match_bind(&st, m);
    list_bind_seen(&st, &(struct store_list){.caller = caller});
    return list_walk(&st, walk_lease, &w, e);
}

/* --- removal ---------------------------------------------------------------------------------- */

static int forget_row(struct stmt *st, void *arg, struct err *e)
{
    int64_t n = column_int(st);
    return column_bool(st) ? 0 : lease_blocks_close(arg, n, e);
}

static int delete_rows(struct store_tx *tx, const struct id *chat_id, struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, tx->conn, "lease",
                  "DELETE FROM leases WHERE n IN (SELECT n FROM"
                  " (SELECT session_id AS of_session FROM sandboxes WHERE chat_id = ?) AS sessions"
                  " CROSS JOIN lease_blocks CROSS JOIN leases"
                  " WHERE owner_id = of_session AND " LEASE_IN_BLOCK "AND session_id = of_session)"
                  " RETURNING n, closed",
                  e) != 0) {
        return -1;
    }
    bind_id(&st, chat_id);
    return list_walk(&st, forget_row, tx->lease_blocks, e);
}

/* Keys stay named in the blocks: a row for all that one has in a block. */
static const char forget_user[] =
    "DELETE FROM lease_blocks WHERE owner_id = (SELECT user_id FROM chats WHERE chat_id = ?)"
    " AND block IN (SELECT block FROM lease_blocks WHERE owner_id IN"
    " (SELECT session_id FROM sandboxes WHERE chat_id = ?))"
    " AND NOT EXISTS (SELECT 1 FROM leases WHERE " LEASE_IN_BLOCK
    "AND user_id = lease_blocks.owner_id)";

static const char forget_sessions[] = "DELETE FROM lease_blocks WHERE owner_id IN"
                                      " (SELECT session_id FROM sandboxes WHERE chat_id = ?)";

static int forget_names(struct store_tx *tx, const struct id *chat_id, struct err *e)
{
    struct stmt user, sessions;
    lease_blocks_forget(tx->lease_blocks);
    if (stmt_open(&user, tx->conn, "lease", forget_user, e) != 0) {
        return -1;
    }
    bind_id(&user, chat_id);
    bind_id(&user, chat_id);
    if (stmt_run(&user, e) != 0 ||
        stmt_open(&sessions, tx->conn, "lease", forget_sessions, e) != 0) {
        return -1;
    }
    bind_id(&sessions, chat_id);
    return stmt_run(&sessions, e);
}

int leases_delete_of_chat(struct store_tx *tx, const struct id *chat_id, struct err *e)
{
    return delete_rows(tx, chat_id, e) == 0 ? forget_names(tx, chat_id, e) : -1;
}
