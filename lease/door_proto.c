#include "leasehold/door_proto.h"

#include <string.h>

#include "leasehold/json.h"

#define ENTRIES_MAX 65536 /* of an allow-set */
#define KEYS_MAX    64
#define SECONDS_MAX (INT64_C(1) << 40)
#define RECORD_MAX  (INT64_C(1) << 40)
/* The end of a connection may be told of twice: one that lets the last words out, then a cut. */
#define CUT_MAX (2 * DOOR_CLIENTS_MAX)

static const char *const type_names[] = {"HELLO",    "SNAPSHOT", "OP",    "ACK",      "AGENT",
                                         "ACTIVITY", "ADMIT",    "CLOSE", "DENY",     "PING",
                                         "RETIRE",   "DELTA",    "PUT",   "PUT_DONE", NULL};
static const char *const op_names[] = {"GRANT", "EXTEND",      "REVOKE", "REVOKE_ALL",
                                       "KEYS",  "REVOKE_LIST", NULL};
static const char *const agent_names[] = {"none", "up", "ended", NULL};
static const char *const scope_names[] = {"read", "write", "admin", NULL};
static const char *const use_names[] = {"multi", "once", NULL};

/* A key on the wire: the field tables know no arrays of char. */
struct wire_key {
    char *kid, *x, *y;
    int64_t retired_at;
};

/* The message and, for the wire, its keys as strings. */
struct wire_msg {
    struct door_msg m;
    struct list keys; /* struct wire_key */
};

static const struct field key_fields[] = {
    FIELD_STR(struct wire_key, kid, .flags = FIELD_REQUIRED, .min = 1, .max = TOKEN_KID_TEXT - 1),
    FIELD_STR(struct wire_key, x, .flags = FIELD_REQUIRED, .min = 1, .max = TOKEN_KID_TEXT - 1),
    FIELD_STR(struct wire_key, y, .flags = FIELD_REQUIRED, .min = 1, .max = TOKEN_KID_TEXT - 1),
    FIELD_INT(struct wire_key, retired_at),
    {0}};

static const struct field conn_fields[] = {
    FIELD_ID(struct door_conn, jti, .flags = FIELD_REQUIRED),
    FIELD_INT(struct door_conn, n, .flags = FIELD_REQUIRED, .min = 0, .max = LEASE_CONNS_MAX),
    {0}};

static const struct field allow_fields[] = {
    FIELD_ID(struct door_allow, jti, .flags = FIELD_REQUIRED),
    FIELD_INT(struct door_allow, exp, .flags = FIELD_REQUIRED, .min = 1, .max = SECONDS_MAX),
    FIELD_SET(struct door_allow, scope, .flags = FIELD_REQUIRED, .names = scope_names),
    FIELD_INT(struct door_allow, mc, .flags = FIELD_REQUIRED, .min = 1, .max = LEASE_CONNS_MAX),
    FIELD_ENUM(struct door_allow, use, .flags = FIELD_REQUIRED, .names = use_names),
    {0}};

/* Members of struct door_msg inside struct wire_msg: the offsets are the same, it comes first. */
#define TYPE   FIELD_ENUM(struct door_msg, t, .flags = FIELD_REQUIRED, .names = type_names)
#define OP     FIELD_ENUM(struct door_msg, op, .flags = FIELD_REQUIRED, .names = op_names)
#define AGENT  FIELD_ENUM(struct door_msg, agent, .flags = FIELD_REQUIRED, .names = agent_names)
#define INT(m) FIELD_INT(struct door_msg, m, .flags = FIELD_REQUIRED)
#define FROM_1(m)                                                                                  \
    FIELD_INT(struct door_msg, m, .flags = FIELD_REQUIRED, .min = 1, .max = SECONDS_MAX)
#define UP_TO(m, most)                                                                             \
    FIELD_INT(struct door_msg, m, .flags = FIELD_REQUIRED, .min = 0, .max = (most))
#define CODE  FIELD_INT(struct door_msg, code, .flags = FIELD_REQUIRED, .min = 1000, .max = 4999)
#define JTI   FIELD_ID(struct door_msg, jti, .flags = FIELD_REQUIRED)
#define MC    FIELD_INT(struct door_msg, mc, .flags = FIELD_REQUIRED, .min = 1, .max = LEASE_CONNS_MAX)
#define SCOPE FIELD_SET(struct door_msg, scope, .flags = FIELD_REQUIRED, .names = scope_names)
#define USE   FIELD_ENUM(struct door_msg, use, .flags = FIELD_REQUIRED, .names = use_names)
#define CONNS                                                                                      \
    FIELD_OBJLIST(struct door_msg, conns, conn_fields, struct door_conn, .flags = FIELD_REQUIRED,  \
                  .max = DOOR_CLIENTS_MAX)
#define ALLOW                                                                                      \
    FIELD_OBJLIST(struct door_msg, allow, allow_fields, struct door_allow,                         \
                  .flags = FIELD_REQUIRED, .max = ENTRIES_MAX)
#define CONSUMED FIELD_IDLIST(struct door_msg, consumed, .max = ENTRIES_MAX)
#define JTIS     FIELD_IDLIST(struct door_msg, jtis, .flags = FIELD_REQUIRED, .max = ENTRIES_MAX)
#define KEYS                                                                                       \
    FIELD_OBJLIST(struct wire_msg, keys, key_fields, struct wire_key, .flags = FIELD_REQUIRED,     \
                  .max = KEYS_MAX)

static const struct field hello[] = {
    TYPE,
    FIELD_ID(struct door_msg, sid, .flags = FIELD_REQUIRED),
    FROM_1(ep),
    FIELD_ID(struct door_msg, boot_id, .flags = FIELD_REQUIRED),
    FIELD_STR(struct door_msg, secret, .flags = FIELD_REQUIRED | FIELD_SECRET,
              .min = DOOR_SECRET_TEXT - 1, .max = DOOR_SECRET_TEXT - 1),
    INT(applied),
    AGENT,
    CONNS,
    CONSUMED,
    {0}};
static const struct field snapshot[] = {
    TYPE, INT(seq), INT(now), FROM_1(stale_s), FROM_1(seal_s), ALLOW, CONSUMED, KEYS, {0}};
static const struct field snapshot_rest[] = {TYPE,           INT(seq), INT(now), FROM_1(stale_s),
                                             FROM_1(seal_s), CONSUMED, KEYS,     {0}};
static const struct field delta[] = {TYPE,           INT(from), INT(seq), INT(now), FROM_1(stale_s),
                                     FROM_1(seal_s), {0}};
static const struct field op_grant[] = {TYPE,  FROM_1(seq), OP,  JTI, FROM_1(exp),
                                        SCOPE, MC,          USE, {0}};
static const struct field op_extend[] = {TYPE, FROM_1(seq), OP, JTI, FROM_1(exp), {0}};
static const struct field op_revoke[] = {TYPE, FROM_1(seq), OP, JTI, CODE, {0}};
static const struct field op_revoke_all[] = {TYPE, FROM_1(seq), OP, CODE, {0}};
static const struct field op_revoke_list[] = {TYPE, FROM_1(seq), OP, JTIS, CODE, {0}};
static const struct field op_keys[] = {TYPE, FROM_1(seq), OP, KEYS, {0}};
static const struct field ack[] = {
    TYPE, INT(seq), UP_TO(cut, CUT_MAX), UP_TO(latency_us, SECONDS_MAX), {0}};
static const struct field agent[] = {TYPE, AGENT, {0}};
static const struct field activity[] = {TYPE,           INT(last_in),
                                        INT(last_out),  INT(bytes_in),
                                        INT(bytes_out), FIELD_INT(struct door_msg, unrecorded),
                                        CONNS,          {0}};
static const struct field admit[] = {TYPE, JTI, {0}};
static const struct field close_[] = {TYPE, JTI, CODE, INT(bytes_in), INT(bytes_out), {0}};
static const struct field deny[] = {
    TYPE, FIELD_STR(struct door_msg, verdict, .flags = FIELD_REQUIRED, .min = 1, .max = 64), {0}};
static const struct field ping[] = {TYPE, INT(now), {0}};
static const struct field retire[] = {TYPE, {0}};
static const struct field put[] = {
    TYPE,
    INT(n),
    FIELD_STR(struct door_msg, path, .flags = FIELD_REQUIRED, .min = 1, .max = 4096),
    FIELD_STR(struct door_msg, name, .flags = FIELD_REQUIRED, .max = 255),
    {0}};
static const struct field put_done[] = {
    TYPE,
    INT(n),
    FIELD_STR(struct door_msg, artifact, .flags = FIELD_REQUIRED, .max = 64),
    FIELD_STR(struct door_msg, fault, .flags = FIELD_REQUIRED, .max = 512),
    {0}};

static const struct field *const type_fields[] = {
    [DOOR_HELLO] = hello,      [DOOR_SNAPSHOT] = snapshot, [DOOR_ACK] = ack,
    [DOOR_AGENT] = agent,      [DOOR_ACTIVITY] = activity, [DOOR_ADMIT] = admit,
    [DOOR_CLOSE] = close_,     [DOOR_DENY] = deny,         [DOOR_PING] = ping,
    [DOOR_RETIRE] = retire,    [DOOR_DELTA] = delta,       [DOOR_PUT] = put,
    [DOOR_PUT_DONE] = put_done};
static const struct field *const op_fields[] = {
    [DOOR_OP_GRANT] = op_grant,   [DOOR_OP_EXTEND] = op_extend,
    [DOOR_OP_REVOKE] = op_revoke, [DOOR_OP_REVOKE_ALL] = op_revoke_all,
    [DOOR_OP_KEYS] = op_keys,     [DOOR_OP_REVOKE_LIST] = op_revoke_list};

const struct field door_spec_fields[] = {
    FIELD_ID(struct door_spec, session_id, .flags = FIELD_REQUIRED),
    FIELD_INT(struct door_spec, ep, .flags = FIELD_REQUIRED, .min = 1, .max = SECONDS_MAX),
    FIELD_STR(struct door_spec, secret, .flags = FIELD_REQUIRED | FIELD_SECRET,
              .min = DOOR_SECRET_TEXT - 1, .max = DOOR_SECRET_TEXT - 1),
    FIELD_STR(struct door_spec, issuer, .flags = FIELD_REQUIRED, .min = 1, .max = 127),
    FIELD_STR(struct door_spec, node, .flags = FIELD_REQUIRED, .min = 1, .max = 127),
    FIELD_INT(struct door_spec, uid, .flags = FIELD_REQUIRED, .min = 0, .max = UINT32_MAX - 1),
    FIELD_INT(struct door_spec, gid, .flags = FIELD_REQUIRED, .min = 0, .max = UINT32_MAX - 1),
    FIELD_INT(struct door_spec, agent_gid, .flags = FIELD_REQUIRED, .min = 0,
              .max = UINT32_MAX - 1),
    FIELD_INT(struct door_spec, leeway_s, .flags = FIELD_REQUIRED, .min = 0, .max = 3600),
    FIELD_INT(struct door_spec, ttl_max_s, .flags = FIELD_REQUIRED, .min = 1, .max = 604800),
    FIELD_INT(struct door_spec, stale_s, .flags = FIELD_REQUIRED, .min = 1, .max = 86400),
    FIELD_INT(struct door_spec, seal_s, .flags = FIELD_REQUIRED, .min = 1, .max = 86400),
    FIELD_STR(struct door_spec, cert_pem, .flags = FIELD_NULL_ZERO, .max = DOOR_PEM_MAX),
    FIELD_STR(struct door_spec, key_pem, .flags = FIELD_SECRET | FIELD_NULL_ZERO,
              .max = DOOR_PEM_MAX),
    FIELD_STR(struct door_spec, transport, .flags = FIELD_REQUIRED, .min = 1, .max = 256),
    FIELD_STRLIST(struct door_spec, origins, .max = 64),
    FIELD_INT(struct door_spec, record, .max = RECORD_MAX),
    FIELD_INT(struct door_spec, life_s, .max = SECONDS_MAX),
    {0}};

/* The members of a message, NULL if t or op is none of ours. */
static const struct field *msg_fields(int t, int op)
{
    if (t == DOOR_OP)
        return op >= DOOR_OP_GRANT && op <= DOOR_OP_REVOKE_LIST ? op_fields[op] : NULL;
    return t >= DOOR_HELLO && t <= DOOR_PUT_DONE ? type_fields[t] : NULL;
}

const char *door_close_reason(int code)
{
    switch (code) {
    case CLOSE_UNSUPPORTED:
        return "not for this transport";
    case CLOSE_SLOW_READER:
        return "reader too slow";
    case CLOSE_UNAUTHENTICATED:
        return "no valid token";
    case CLOSE_REVOKED:
        return "lease revoked";
    case CLOSE_IDLE:
        return "idle";
    case CLOSE_LIMIT:
        return "limit exceeded";
    case CLOSE_OLD_GENERATION:
        return "old generation";
    case CLOSE_AGENT_ENDED:
        return "agent ended";
    case CLOSE_SCOPE:
        return "outside the scope";
    case CLOSE_NOT_LIVE:
        return "door not live, try again";
    default:
        return "";
    }
}

static void encode(const struct field *fields, const struct door_msg *m, struct buf *out)
{
    struct wire_key keys[KEYS_MAX];
    struct wire_msg w = {.m = *m, .keys = {.items = keys}};
    struct key_public *from = m->keys.items;

    if (!fields || m->keys.n > KEYS_MAX) {
        out->failed = true;
        return;
    }
    for (size_t i = 0; i < m->keys.n; i++)
        keys[i] = (struct wire_key){
            .kid = from[i].kid, .x = from[i].x, .y = from[i].y, .retired_at = from[i].retired_at};
    w.keys.n = m->keys.n;
    json_encode(fields, &w, out);
}

void door_msg_encode(const struct door_msg *m, struct buf *out)
{
    encode(msg_fields(m->t, m->op), m, out);
}

void door_snapshot_begin(struct buf *out)
{
    buf_add_str(out, "{\"allow\":[");
}

void door_snapshot_allow(const struct door_allow *a, bool first, struct buf *out)
{
    if (!first)
        buf_add_char(out, ',');
    json_encode(allow_fields, a, out);
}

void door_snapshot_end(const struct door_msg *m, struct buf *out)
{
    size_t at;

    buf_add_char(out, ']');
    at = out->len;
    encode(snapshot_rest, m, out);
    if (buf_ok(out))
        out->data[at] = ','; /* its members go on where the others end */
}

/* Moves the keys of the wire into m->keys; their lengths were checked by the table. */
static int keys_take(struct wire_msg *w, struct arena *arena, struct err *e)
{
    const struct wire_key *from = w->keys.items;
    struct key_public *to;

    if (w->keys.n == 0)
        return 0;
    to = arena_alloc(arena, w->keys.n * sizeof(*to));
    if (!to)
        return err_set(e, ERR_INTERNAL, "no memory for the keys of a message");
    for (size_t i = 0; i < w->keys.n; i++) {
        memcpy(to[i].kid, from[i].kid, strlen(from[i].kid) + 1);
        memcpy(to[i].x, from[i].x, strlen(from[i].x) + 1);
        memcpy(to[i].y, from[i].y, strlen(from[i].y) + 1);
        to[i].retired_at = from[i].retired_at;
    }
    w->m.keys = (struct list){.items = to, .n = w->keys.n};
    return 0;
}

static const struct field type_only[] = {TYPE, {0}};

/* Of a message as door_msg_encode writes it, and without lists and texts: what there are many of. */
static bool decode_written(const char *text, size_t len, struct door_msg *ret)
{
    static const struct field type_seq_op[] = {TYPE, FROM_1(seq), OP, {0}};
    struct door_msg head = {0};
    struct wire_msg w = {0};

    if (!json_decode_written_head(text, len, type_only, &head) ||
        (head.t == DOOR_OP && !json_decode_written_head(text, len, type_seq_op, &head)) ||
        !json_decode_written(text, len, msg_fields(head.t, head.op), &w))
        return false;
    *ret = w.m;
    return true;
}

int door_msg_decode(const char *text, size_t len, struct arena *arena, struct door_msg *ret,
                    struct err *e)
{
    static const struct field type_and_op[] = {TYPE, OP, {0}};
    struct door_msg head = {0};
    struct wire_msg w = {0};

    if (decode_written(text, len, ret))
        return 0;
    memset(ret, 0, sizeof(*ret));
    if (json_decode_lenient(text, len, type_only, &head, arena, e))
        return -1;
    if (head.t == DOOR_OP && json_decode_lenient(text, len, type_and_op, &head, arena, e))
        return -1;
    if (json_decode_lenient(text, len, msg_fields(head.t, head.op), &w, arena, e) ||
        keys_take(&w, arena, e))
        return -1;
    *ret = w.m;
    return 0;
}
