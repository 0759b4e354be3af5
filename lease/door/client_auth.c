#include <stdlib.h>
#include <string.h>

#include "client.h"
#include "leasehold/agent_link.h"
#include "leasehold/json.h"

static const char *const scope_names[] = {"read", "write", "admin", NULL};

void client_buf_wipe(struct buf *b)
{
    if (b->data)
        explicit_bzero(b->data, b->size);
    buf_done(b);
}

static void refuse(struct client *cl, const char *why)
{
    client_refuse(cl, CLOSE_UNAUTHENTICATED, why);
}

/* --- from the client ------------------------------------------------------------------------- */

struct auth {
    char *type, *token;
};

struct jwk {
    char *kty, *crv, *x, *y;
};

struct proof_message {
    char *type, *sig;
    struct jwk jwk;
};

static const struct field auth_fields[] = {
    FIELD_STR(struct auth, type, .flags = FIELD_REQUIRED),
    FIELD_STR(struct auth, token, .flags = FIELD_REQUIRED, .max = TOKEN_MAX),
    {0}};

static const struct field jwk_fields[] = {
    FIELD_STR(struct jwk, kty, .flags = FIELD_REQUIRED),
    FIELD_STR(struct jwk, crv, .flags = FIELD_REQUIRED),
    FIELD_STR(struct jwk, x, .flags = FIELD_REQUIRED, .max = TOKEN_KID_TEXT - 1),
    FIELD_STR(struct jwk, y, .flags = FIELD_REQUIRED, .max = TOKEN_KID_TEXT - 1),
    {0}};

static const struct field proof_fields[] = {
    FIELD_STR(struct proof_message, type, .flags = FIELD_REQUIRED),
    FIELD_STR(struct proof_message, sig, .flags = FIELD_REQUIRED, .max = PROOF_SIG_TEXT - 1),
    FIELD_OBJECT(struct proof_message, jwk, jwk_fields),
    {0}};

void client_token_present(struct client *cl, const char *token, size_t len)
{
    door_core_present(server_core(cl->server), &cl->peer, token, len, loop_now_us());
    client_flow(cl);
}

static void token_take(struct client *cl, struct arena *arena)
{
    struct auth m = {0};
    struct err e = {0};

    if (json_decode(cl->in.data, cl->in.len, auth_fields, &m, arena, &e) ||
        strcmp(m.type, "auth") != 0)
        refuse(cl, "auth_message");
    else
        client_token_present(cl, m.token, strlen(m.token));
    if (m.token)
        explicit_bzero(m.token, strlen(m.token));
}

static void proof_take(struct client *cl, struct arena *arena)
{
    struct proof_message m = {0};
    struct proof proof;
    struct err e = {0};

    if (json_decode(cl->in.data, cl->in.len, proof_fields, &m, arena, &e) ||
        strcmp(m.type, "proof") != 0 || !m.jwk.kty || strcmp(m.jwk.kty, "EC") != 0 ||
        strcmp(m.jwk.crv, "P-256") != 0) {
        refuse(cl, "proof_message");
        return;
    }
    proof = (struct proof){.x = m.jwk.x, .y = m.jwk.y, .sig = m.sig};
    door_core_prove(server_core(cl->server), &cl->peer, &proof, loop_now_us());
}

void client_auth_take(struct client *cl)
{
    struct arena *arena = arena_new(4 * CLIENT_AUTH_MAX);

    if (!arena)
        refuse(cl, "no_memory");
    else if (cl->peer.state == PEER_PROVING)
        proof_take(cl, arena);
    else
        token_take(cl, arena);
    arena_free(arena);
    if (cl->peer.state != PEER_ADMITTED)
        client_buf_wipe(&cl->in);
}

/* --- to the client --------------------------------------------------------------------------- */

static void message_send(struct client *cl, const struct field *fields, const void *message)
{
    struct msg *m = NULL;
    struct buf text;

    buf_init(&text, CLIENT_AUTH_MAX);
    json_encode(fields, message, &text);
    if (buf_ok(&text))
        m = msg_new_text(text.data, text.len);
    buf_done(&text);
    if (m)
        client_send(cl, m);
    else
        refuse(cl, "no_memory");
    msg_unref(m);
}

struct challenge {
    char *type, *nonce;
};

void client_challenge(struct client *cl)
{
    static const struct field fields[] = {
        FIELD_STR(struct challenge, type), FIELD_STR(struct challenge, nonce), {0}};
    char type[] = "challenge";
    struct challenge m = {.type = type, .nonce = cl->peer.nonce};

    message_send(cl, fields, &m);
    client_flow(cl);
}

struct ready {
    char *type;
    struct id session_id, lease_id;
    int64_t expires_at;
    unsigned scope;
};

void client_ready(struct client *cl)
{
    static const struct field fields[] = {FIELD_STR(struct ready, type),
                                          FIELD_ID(struct ready, session_id),
                                          FIELD_ID(struct ready, lease_id),
                                          FIELD_TIME(struct ready, expires_at),
                                          FIELD_SET(struct ready, scope, .names = scope_names),
                                          {0}};
    char type[] = "ready";
    struct ready m = {.type = type,
                      .session_id = *server_session(cl->server),
                      .lease_id = cl->peer.claims.lease_id,
                      .expires_at = door_core_expires_ms(&cl->peer),
                      .scope = cl->peer.scope};

    client_buf_wipe(&cl->in);
    buf_init(&cl->in, LINK_LINE_MAX);
    cl->reader.message_max = cl->bridge ? LINK_MESSAGE_MAX : LINK_LINE_MAX;
    message_send(cl, fields, &m);
    client_flow(cl);
}
