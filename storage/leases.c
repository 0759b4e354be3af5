#include <assert.h>

#include "list.h"

/* In the order of bind_lease and read_lease. */
#define LEASE_COLUMNS                                                                              \
    "lease_id, session_id, chat_id, user_id, api_key_id, scope, use_kind, max_connections, state," \
    " issued_at, expires_at, max_expires_at, revoked_at, revoked_reason, grant_seq, ep, kid, "     \
    "cnf_jkt,"                                                                                     \
    " consumed_at, renewed_kid"

#define SELECT_LEASE "SELECT " LEASE_COLUMNS " FROM leases "

static void bind_lease(struct stmt *st, const struct lease *l)
{
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
    *l = (struct lease){0};
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
                  "INSERT INTO leases (" LEASE_COLUMNS ")"
                  " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                  e) != 0) {
        return -1;
    }
    bind_lease(&st, l);
    return stmt_run(&st, e);
}

int store_lease_insert(struct store_tx *tx, const struct lease *l, struct err *e)
{
    if (insert_row(tx, l, e) != 0) {
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

static int state_of(struct store_tx *tx, const struct id *lease_id, enum lease_state *ret,
                    struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, tx->conn, "lease", "SELECT state FROM leases WHERE lease_id = ?", e) != 0) {
        return -1;
    }
    bind_id(&st, lease_id);
    int rc = stmt_first(&st, ERR_NOT_FOUND, e);
    if (rc == 0) {
        *ret = (enum lease_state)column_enum(&st, lease_state_names);
    }
    return stmt_end(&st, rc, e);
}

static int update_row(struct store_tx *tx, const struct lease *l, struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, tx->conn, "lease",
                  "UPDATE leases SET (scope, max_connections, state, expires_at, revoked_at,"
                  " revoked_reason, grant_seq, ep, kid, consumed_at,"
                  " renewed_kid) = (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
                  " WHERE lease_id = ?",
                  e) != 0) {
        return -1;
    }
    bind_int(&st, l->scope);
    bind_int(&st, l->max_connections);
    bind_text(&st, lease_state_names[l->state]);
    bind_int(&st, l->expires_at);
    bind_int(&st, l->revoked_at);
    bind_text(&st, l->revoked_reason);
    bind_int(&st, l->grant_seq);
    bind_int(&st, l->ep);
    bind_text(&st, l->kid);
    bind_int(&st, l->consumed_at);
    bind_text(&st, l->renewed_kid);
    bind_id(&st, &l->lease_id);
    return stmt_run_one(&st, ERR_NOT_FOUND, e);
}

/* Whose lease it is, in which session, for which key and until when at most never changes; nor does one open again
 * that was open no more. */
int store_lease_update(struct store_tx *tx, const struct lease *l, struct err *e)
{
    enum lease_state before = l->state;
    if (!is_open(l->state) && state_of(tx, &l->lease_id, &before, e) != 0) {
        return -1;
    }
    if (update_row(tx, l, e) != 0) {
        return -1;
    }
    return is_open(before) && !is_open(l->state)
               ? lease_counts_add(tx->leases, &l->session_id, &l->user_id, -1, e)
               : 0;
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

static int next_open_of_all(struct store_tx *tx, const struct lease *after, struct lease *ret,
                            struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, tx->conn, "lease",
                  SELECT_LEASE "WHERE (session_id, lease_id) > (?, ?) AND state <> 'closed'"
                               " ORDER BY session_id, lease_id LIMIT 1",
                  e) != 0) {
        return -1;
    }
    bind_id(&st, &after->session_id);
    bind_id(&st, &after->lease_id);
    return end_with_lease(&st, ret, e);
}

static int next_open_of_session(struct store_tx *tx, const struct lease *after, struct lease *ret,
                                struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, tx->conn, "lease",
                  SELECT_LEASE "WHERE session_id = ? AND lease_id > ? AND state <> 'closed'"
                               " ORDER BY lease_id LIMIT 1",
                  e) != 0) {
        return -1;
    }
    bind_id(&st, &after->session_id);
    bind_id(&st, &after->lease_id);
    return end_with_lease(&st, ret, e);
}

/* One look-up a row, and none open during `each`: it may write to the table that is walked. */
int store_lease_each_open(struct store_tx *tx, const struct id *session_id,
                          int (*each)(void *ctx, const struct lease *l, struct err *e), void *ctx,
                          struct err *e)
{
    struct lease l = {0};
    if (session_id != NULL) {
        l.session_id = *session_id;
    }
    for (;;) {
        struct lease after = l;
        struct err last;
        int rc = session_id != NULL ? next_open_of_session(tx, &after, &l, &last)
                                    : next_open_of_all(tx, &after, &l, &last);
        if (rc != 0) {
            return stmt_walk_end(&last, e);
        }
        if (each(ctx, &l, e) != 0) {
            return -1;
        }
    }
}

/* --- list ------------------------------------------------------------------------------------- */

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

/* `narrowest` names the index the rows are found by. */
#define LIST_LEASES(narrowest)                                                                     \
    SELECT_LEASE "WHERE " narrowest LIST_OPTIONAL("chat_id") LIST_OPTIONAL(                        \
        "user_id") "(? = '' OR state IN (?, ?)) AND " LIST_SEEN LIST_PAGE("issued_at", "lease_id")

static const char *list_sql(const struct store_filter *f, const struct id **ret_by)
{
    if (!id_is_zero(&f->session_id)) {
        *ret_by = &f->session_id;
        return LIST_LEASES("session_id = ? AND ");
    }
    if (!id_is_zero(&f->chat_id)) {
        *ret_by = &f->chat_id;
        return LIST_LEASES("chat_id = ? AND ");
    }
    if (!id_is_zero(&f->user_id)) {
        *ret_by = &f->user_id;
        return LIST_LEASES("user_id = ? AND ");
    }
    *ret_by = NULL;
    return LIST_LEASES("");
}

int store_lease_list(struct store_tx *tx, const struct store_list *l, const struct store_filter *f,
                     int (*each)(void *ctx, const struct lease *lease, struct err *e), void *ctx,
                     struct err *e)
{
    assert(f != NULL);
    struct lease_walk w = {.each = each, .ctx = ctx};
    const struct id *by;
    const char *sql = list_sql(f, &by);
    struct stmt st;
    if (stmt_open(&st, tx->conn, "lease", sql, e) != 0) {
        return -1;
    }
    if (by != NULL) {
        bind_id(&st, by);
    }
    list_bind_optional_id(&st, &f->chat_id);
    list_bind_optional_id(&st, &f->user_id);
    const char *one = f->names != NULL ? f->names[0] : NULL;
    bind_text(&st, one);
    bind_text(&st, one);
    bind_text(&st, one != NULL && f->names[1] != NULL ? f->names[1] : one);
    list_bind_seen(&st, l);
    list_bind_page(&st, l);
    return list_walk(&st, walk_lease, &w, e);
}

/* --- what is to end -----------------------------------------------------------------------------
 * Leases are open only while their session is active, so a chat's and a user's are found by their
 * few active sessions, not among all that they ever had. */

/* The first term is the one of the indices. */
#define MATCH_LEASES(which)                                                                        \
    SELECT_LEASE "WHERE state <> 'closed' AND state IN ('pending', 'active') AND " which           \
                 " AND " LIST_SEEN "ORDER BY session_id, lease_id"

#define OF_ACTIVE_SESSIONS(column)                                                                 \
    "session_id IN (SELECT session_id FROM sandboxes WHERE " column " = ?"                         \
    " AND status IN ('starting', 'running', 'stopping'))"

static const char *match_sql(const struct store_match *m)
{
    switch (m->by) {
    case MATCH_SESSION:
        return MATCH_LEASES("session_id = ?");
    case MATCH_CHAT:
        return MATCH_LEASES(OF_ACTIVE_SESSIONS("chat_id"));
    case MATCH_USER:
        return MATCH_LEASES(OF_ACTIVE_SESSIONS("user_id"));
    case MATCH_API_KEY:
        return MATCH_LEASES("api_key_id = ?");
    case MATCH_KID:
        return MATCH_LEASES("(kid = ? OR renewed_kid = ?)");
    case MATCH_ALL:
        break;
    }
    return MATCH_LEASES("1 = 1");
}

static void match_bind(struct stmt *st, const struct store_match *m)
{
    if (m->by == MATCH_KID) {
        bind_text(st, m->kid);
        bind_text(st, m->kid);
    } else if (m->by != MATCH_ALL) {
        bind_id(st, &m->id);
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

int store_log_append(struct store_tx *tx, const struct id *session_id, int64_t seq, const char *op,
                     const struct id *lease_id, int64_t expires_at, struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, tx->conn, "log entry",
                  "INSERT INTO session_log (session_id, seq, at, op, lease_id, expires_at)"
                  " VALUES (?, ?, ?, ?, ?, ?)",
                  e) != 0) {
        return -1;
    }
    bind_id(&st, session_id);
    bind_int(&st, seq);
    bind_int(&st, tx->now_ms);
    bind_text(&st, op);
    bind_id_or_null(&st, lease_id);
    bind_int(&st, expires_at);
    return stmt_run(&st, e);
}
