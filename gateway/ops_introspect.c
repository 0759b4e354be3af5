/* Introspection of a lease token (RFC 7662). */
#include <string.h>

#include "ops.h"

#define TOKEN_SHOWN_MAX 65536 /* what is longer than a token is inactive, not invalid */

const struct field introspect_in[] = {
    FIELD_STR(struct introspect_args, token, .flags = FIELD_REQUIRED | FIELD_FORM | FIELD_SECRET,
              .max = TOKEN_SHOWN_MAX, .doc = "the token"),
    FIELD_STR(struct introspect_args, token_type_hint, .flags = FIELD_FORM,
              .doc = "allowed by RFC 7662; there is one type here"),
    {0},
};

const struct field introspect_out[] = {
    FIELD_BOOL(struct introspected, active, .doc = "whether its door would admit it now"),
    FIELD_ID(struct introspected, jti, .flags = FIELD_OMIT_ZERO, .doc = "the lease"),
    FIELD_ID(struct introspected, sub, .flags = FIELD_OMIT_ZERO, .doc = "its user"),
    FIELD_ID(struct introspected, sid, .flags = FIELD_OMIT_ZERO, .doc = "its session"),
    FIELD_STR(struct introspected, scope, .flags = FIELD_OMIT_ZERO,
              .doc = "what it lets do, words with a space between"),
    FIELD_INT(struct introspected, exp, .flags = FIELD_OMIT_ZERO,
              .doc = "when the token ends, seconds since the epoch"),
    {0},
};

static char *scope_words(struct call *c, unsigned scope)
{
    struct buf words;
    char *ret;

    buf_init(&words, 256);
    for (unsigned i = 0; lease_scope_names[i]; i++)
        if (scope & 1u << i)
            buf_printf(&words, "%s%s", words.len ? " " : "", lease_scope_names[i]);
    ret = buf_ok(&words) ? arena_strndup(c->arena, words.data, words.len) : NULL;
    buf_done(&words);
    return ret;
}

int op_lease_introspect(struct call *c, struct err *e)
{
    const struct introspect_args *a = c->args;
    struct introspected *out = c->result;
    struct token_claims claims;
    bool active;

    if (lease_introspect(c->tx, &c->s->policy, c->s->keys, &c->caller, a->token, &active, &claims,
                         e))
        return -1;
    if (!active)
        return 0;
    *out = (struct introspected){.active = true,
                                 .jti = claims.lease_id,
                                 .sub = claims.user_id,
                                 .sid = claims.session_id,
                                 .scope = scope_words(c, claims.scope),
                                 .exp = claims.exp};
    return out->scope ? 0 : err_set(e, ERR_INTERNAL, "no memory for the answer");
}
