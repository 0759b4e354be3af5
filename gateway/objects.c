#include "objects.h"

#include <stdio.h>
#include <string.h>

#include "leasehold/artifacts.h"
#include "op.h"

const struct field chat_fields[] = {
    FIELD_ID(struct chat, chat_id, .doc = "the chat"),
    FIELD_ID(struct chat, user_id, .doc = "its owner"),
    FIELD_ID(struct chat, workspace_id, .doc = "the workspace it stands in"),
    FIELD_CHARS(struct chat, title, .doc = "for people"),
    FIELD_RAW(struct chat, metadata, .doc = "the caller's own, an object of at most 16 KiB"),
    FIELD_TIME(struct chat, created_at, .doc = "when it was made"),
    FIELD_TIME(struct chat, updated_at, .doc = "when its title or metadata last changed"),
    {0},
};

/* Null until the engine has told: false would be its word that there is none. */
#define IF_KNOWN .has = offsetof(struct sandbox_isolation, known)

static const struct field isolation_fields[] = {
    FIELD_STR(struct sandbox_isolation, network, .doc = "none, internal or bridge"),
    FIELD_BOOL(struct sandbox_isolation, netns, IF_KNOWN, .doc = "a network namespace of its own"),
    FIELD_BOOL(struct sandbox_isolation, userns, IF_KNOWN, .doc = "a user namespace of its own"),
    FIELD_INT(struct sandbox_isolation, uid, IF_KNOWN, .doc = "the agent's uid on the host"),
    FIELD_BOOL(struct sandbox_isolation, seccomp, IF_KNOWN, .doc = "a system call filter"),
    {0},
};

/* The row of a member of the sandbox inside its view. */
#define SANDBOX(kind_, member, ...)                                                                \
    {                                                                                              \
        .name = #member, .kind = (kind_), .offset = offsetof(struct sandbox_view, s.member),       \
        __VA_ARGS__                                                                                \
    }

static const struct field progress_fields[] = {
    FIELD_STR(struct pull_progress, image, .doc = "what is pulled"),
    FIELD_INT(struct pull_progress, layers, .doc = "of it, as far as they are known yet"),
    FIELD_INT(struct pull_progress, layers_done, .doc = "of them that have come"),
    FIELD_INT(struct pull_progress, bytes, .doc = "of the layers whose size is known yet"),
    FIELD_INT(struct pull_progress, bytes_done, .doc = "of them that have come"),
    {0},
};

const struct field sandbox_fields[] = {
    SANDBOX(FIELD_KIND_ID, session_id, .doc = "the session; a chat has one at a time"),
    SANDBOX(FIELD_KIND_ID, chat_id, .doc = "the chat it works for"),
    SANDBOX(FIELD_KIND_ID, user_id, .doc = "the chat's owner"),
    SANDBOX(FIELD_KIND_CHARS, container_id, .flags = FIELD_NULL_ZERO,
            .doc = "the engine's name of it"),
    SANDBOX(FIELD_KIND_CHARS, engine, .doc = "what isolates it"),
    SANDBOX(FIELD_KIND_CHARS, node, .doc = "the machine it runs on"),
    SANDBOX(FIELD_KIND_CHARS, profile, .doc = "of the configuration"),
    SANDBOX(FIELD_KIND_INT, generation, .doc = "counts the chat's sessions"),
    SANDBOX(FIELD_KIND_ENUM, status, .names = sandbox_status_names,
            .doc = "where it is in its life"),
    SANDBOX(FIELD_KIND_CHARS, reason, .flags = FIELD_NULL_ZERO, .doc = "why it ended"),
    SANDBOX(FIELD_KIND_CHARS, detail, .flags = FIELD_NULL_ZERO,
            .doc = "why a start failed, as a waiting open was told"),
    SANDBOX(FIELD_KIND_TIME, created_at, .doc = "when it was asked for"),
    SANDBOX(FIELD_KIND_TIME, started_at, .flags = FIELD_NULL_ZERO,
            .doc = "when its agent and door were ready"),
    SANDBOX(FIELD_KIND_TIME, last_activity_at, .flags = FIELD_NULL_ZERO,
            .doc = "when a client last talked to it"),
    SANDBOX(FIELD_KIND_TIME, expires_at, .flags = FIELD_NULL_ZERO,
            .doc = "when it is stopped unless it is used or renewed"),
    FIELD_OBJECT(struct sandbox_view, isolation, isolation_fields,
                 .doc =
                     "what stands between the agent and the host; until the sandbox has run, null "
                     "but its network"),
    FIELD_OBJPTR(struct sandbox_view, progress, progress_fields, struct pull_progress,
                 .flags = FIELD_OMIT_ZERO,
                 .doc = "of the image that a start waits for; absent otherwise"),
    {0},
};

void sandbox_view_fill(struct sandbox_view *v, const struct sandbox *s)
{
    v->s = *s;
    v->progress = NULL;
    v->isolation = (struct sandbox_isolation){.network = v->s.network,
                                              .known = s->started_at != 0,
                                              .netns = s->netns,
                                              .userns = s->userns,
                                              .seccomp = s->seccomp,
                                              .uid = s->uid};
}

static const struct field delivery_fields[] = {
    FIELD_CHARS(struct artifact_delivery, status, .flags = FIELD_NULL_ZERO,
                .doc = "delivered or failed; null: nobody has told yet"),
    FIELD_CHARS(struct artifact_delivery, channel, .flags = FIELD_NULL_ZERO,
                .doc = "where it was delivered to"),
    FIELD_CHARS(struct artifact_delivery, external_ref, .flags = FIELD_NULL_ZERO,
                .doc = "what it is called there"),
    FIELD_CHARS(struct artifact_delivery, detail, .flags = FIELD_NULL_ZERO, .doc = "for people"),
    FIELD_INT(struct artifact_delivery, attempts, .doc = "how often was told"),
    FIELD_TIME(struct artifact_delivery, at, .flags = FIELD_NULL_ZERO, .doc = "of the last time"),
    {0},
};

const struct field artifact_fields[] = {
    FIELD_ID(struct artifact, artifact_id, .doc = "the artifact"),
    FIELD_ID(struct artifact, chat_id, .doc = "the chat it is a result of"),
    FIELD_ID(struct artifact, user_id, .doc = "the chat's owner"),
    FIELD_CHARS(struct artifact, name, .doc = "its name"),
    FIELD_CHARS(struct artifact, content_type, .doc = "its media type"),
    FIELD_INT(struct artifact, size_bytes, .doc = "its size"),
    FIELD_CHARS(struct artifact, sha256, .flags = FIELD_NULL_ZERO,
                .doc = "of its bytes; null: not stored yet"),
    FIELD_ENUM(struct artifact, state, .names = artifact_state_names,
               .doc = "where it is in its life"),
    FIELD_TIME(struct artifact, created_at, .doc = "when its upload began"),
    FIELD_TIME(struct artifact, stored_at, .flags = FIELD_NULL_ZERO,
               .doc = "when it was proven to be stored"),
    FIELD_OBJECT(struct artifact, delivery, delivery_fields, .doc = "what became of it outside"),
    FIELD_TIME(struct artifact, delete_after, .flags = FIELD_NULL_ZERO,
               .doc = "when it is deleted"),
    {0},
};

const struct field lease_fields[] = {
    FIELD_ID(struct lease, lease_id, .doc = "the lease"),
    FIELD_ID(struct lease, session_id, .doc = "the session it opens"),
    FIELD_ID(struct lease, chat_id, .doc = "the session's chat"),
    FIELD_ID(struct lease, user_id, .doc = "whom it was granted for"),
    FIELD_SET(struct lease, scope, .names = lease_scope_names, .doc = "what it lets do"),
    FIELD_ENUM(struct lease, use, .names = lease_use_names, .doc = "how often it lets in"),
    FIELD_INT(struct lease, max_connections, .doc = "live at once"),
    FIELD_ENUM(struct lease, state, .names = lease_state_names, .doc = "where it is in its life"),
    FIELD_TIME(struct lease, issued_at, .doc = "when it was granted"),
    FIELD_TIME(struct lease, expires_at,
               .doc = "when its connections are cut unless it is renewed"),
    FIELD_TIME(struct lease, max_expires_at, .doc = "past which it cannot be renewed"),
    FIELD_TIME(struct lease, revoked_at, .flags = FIELD_NULL_ZERO, .doc = "when it was revoked"),
    FIELD_CHARS(struct lease, revoked_reason, .flags = FIELD_NULL_ZERO,
                .doc = "why it ended before its time"),
    FIELD_INT(struct lease, connections, .doc = "live ones"),
    {0},
};

static const struct field endpoint_fields[] = {
    FIELD_CHARS(struct grant_endpoint, url, .doc = "where to open the WebSocket"),
    FIELD_STR(struct grant_endpoint, protocol, .doc = "its subprotocol"),
    FIELD_STR(struct grant_endpoint, ca_pem, .flags = FIELD_NULL_ZERO,
              .doc = "the authority to trust alone for this door"),
    FIELD_STR(struct grant_endpoint, cert_sha256, .flags = FIELD_NULL_ZERO,
              .doc = "the fingerprint of the door's certificate"),
    {0},
};

const struct field grant_fields[] = {
    FIELD_OBJECT(struct grant, lease, lease_fields),
    FIELD_STR(struct grant, token, .flags = FIELD_NULL_ZERO, .max = TOKEN_MAX,
              .doc = "the bearer token to show at the door"),
    FIELD_OBJECT(struct grant, endpoint, endpoint_fields, .doc = "the session's door"),
    FIELD_TIME(struct grant, renew_after, .doc = "when to renew"),
    {0},
};

const struct field api_key_fields[] = {
    FIELD_ID(struct api_key, key_id, .doc = "the key"),
    FIELD_CHARS(struct api_key, name, .doc = "for people"),
    FIELD_ENUM(struct api_key, role, .names = role_names, .doc = "what it may"),
    FIELD_IDLIST(struct api_key, allowed_users, .has = offsetof(struct api_key, limited),
                 .doc = "whom it may act for; null: everyone"),
    FIELD_ID(struct api_key, default_user, .flags = FIELD_NULL_ZERO,
             .doc = "whose workspace POST /create uses for unknown chats"),
    FIELD_TIME(struct api_key, created_at, .doc = "when it was made"),
    FIELD_TIME(struct api_key, expires_at, .flags = FIELD_NULL_ZERO, .doc = "when it ends"),
    FIELD_TIME(struct api_key, last_used_at, .flags = FIELD_NULL_ZERO,
               .doc = "when it was last used"),
    FIELD_TIME(struct api_key, revoked_at, .flags = FIELD_NULL_ZERO, .doc = "when it was revoked"),
    {0},
};

int grant_describe(struct call *c, const struct lease *l, const struct sandbox *s,
                   struct grant *ret, struct err *e)
{
    int64_t now_ms = clock_wall_ms(c->s->clock);

    ret->lease = *l;
    ret->keys = c->s->keys;
    ret->renew_after = lease_renew_after(l, now_ms);
    ret->iat = now_ms / 1000;
    ret->endpoint.protocol = (char *)"leasehold.door.v1";
    sandbox_host_url(c->s->cfg, s, ret->endpoint.url, sizeof ret->endpoint.url);
    if (!s->door_cert_sha256[0])
        return 0;
    ret->endpoint.ca_pem = (char *)tls_ca_pem(c->s->tls);
    ret->endpoint.cert_sha256 =
        arena_strndup(c->arena, s->door_cert_sha256, strlen(s->door_cert_sha256));
    return ret->endpoint.cert_sha256 ? 0 : err_set(e, ERR_INTERNAL, "no memory for the grant");
}

/* Into the arena of its call. */
static int token_take(struct call *c, struct grant *g, struct buf *token, struct err *e)
{
    g->token = arena_strndup(c->arena, token->data, token->len);
    return g->token ? 0 : err_set(e, ERR_INTERNAL, "no memory for the token");
}

static void token_done(struct buf *token)
{
    if (token->data)
        explicit_bzero(token->data, token->len);
    buf_done(token);
}

int grant_sign(struct call *c, struct grant *g, struct err *e)
{
    struct buf token;
    int rc;

    buf_init(&token, TOKEN_MAX);
    rc = lease_mint(&c->s->policy, g->keys, &g->lease, g->iat * 1000, &token, e);
    if (!rc)
        rc = token_take(c, g, &token, e);
    token_done(&token);
    return rc;
}

void grant_sign_all(struct call **calls, size_t n)
{
    struct lease_order orders[CALL_SIGN_MAX];
    struct buf tokens[CALL_SIGN_MAX];

    for (size_t i = 0; i < n; i++) {
        const struct grant *g = calls[i]->result;

        buf_init(&tokens[i], TOKEN_MAX);
        orders[i] = (struct lease_order){
            .keys = g->keys, .lease = &g->lease, .now_ms = g->iat * 1000, .out = &tokens[i]};
    }
    lease_mint_all(&calls[0]->s->policy, orders, n);
    for (size_t i = 0; i < n; i++) {
        struct call *c = calls[i];

        c->rc = orders[i].rc;
        c->e = orders[i].e;
        if (!c->rc)
            c->rc = token_take(c, c->result, &tokens[i], &c->e);
        token_done(&tokens[i]);
    }
}
