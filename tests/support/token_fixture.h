/*
 * What the tests of the token codec start from: one key, one set of good claims as a struct and as
 * JSON by hand, and verifiers of minted and of forged tokens.
 */
#ifndef TESTS_TOKEN_FIXTURE_H
#define TESTS_TOKEN_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "leasehold/token.h"
#include "token_forge.h"

#define NOW INT64_C(1700000000)
#define SID "3b241101-e2bb-4255-8caf-4136c566a962"
#define JKT "oKIywvGUpTVTyxMQ3bwIIeQUudfr_CkLMjCE19ECD-U"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

struct fixture {
    EVP_PKEY *key;
    struct keyset *ks;
    struct token_claims claims;
    struct token_expect expect;
    struct buf token;
    struct err e;
    char header[128];
    char forged[FORGE_TOKEN_SIZE];
};

static inline struct id id_of(const char *text)
{
    struct id id;
    assert_true(id_parse(text, strlen(text), &id));
    return id;
}

static inline int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    char path[] = "/tmp/test_token.XXXXXX";

    f->key = forge_key("test_token");
    f->ks = keyset_new();
    forge_key_file(f->key, path);
    int rc = keyset_add_signing_file(f->ks, path, &f->e);
    unlink(path);
    buf_init(&f->token, TOKEN_MAX);
    f->claims = (struct token_claims){.iss = "https://leasehold.example",
                                      .session_id = id_of(SID),
                                      .user_id = id_of("11111111-0000-0000-0000-000000000001"),
                                      .chat_id = id_of("22222222-0000-0000-0000-000000000002"),
                                      .lease_id = id_of("6fa459ea-ee8a-4ca4-894e-db77e160355e"),
                                      .node = "node-1",
                                      .ep = 7,
                                      .rq = 4711,
                                      .iat = NOW,
                                      .nbf = NOW,
                                      .exp = NOW + 120,
                                      .mex = NOW + 43200,
                                      .scope = SCOPE_READ | SCOPE_WRITE,
                                      .use = USE_MULTI,
                                      .mc = 1};
    f->expect = (struct token_expect){.iss = f->claims.iss,
                                      .node = f->claims.node,
                                      .session_id = f->claims.session_id,
                                      .ep = 7,
                                      .now = NOW + 1,
                                      .leeway = 5,
                                      .ttl_max = 900};
    snprintf(f->header, sizeof f->header,
             "{\"alg\":\"ES256\",\"typ\":\"lease+jwt\",\"kid\":\"%s\"}", keyset_signing_kid(f->ks));
    *state = f;
    return rc;
}

static inline int teardown(void **state)
{
    struct fixture *f = *state;
    buf_done(&f->token);
    keyset_free(f->ks);
    EVP_PKEY_free(f->key);
    free(f);
    return 0;
}

static inline void mint(struct fixture *f)
{
    buf_reset(&f->token);
    assert_int_equal(token_mint(f->ks, &f->claims, &f->token, &f->e), 0);
}

static inline enum token_verdict verify_bytes(const struct fixture *f, const char *token,
                                              size_t len)
{
    struct token_claims got, untouched;
    memset(&got, 0x5a, sizeof got);
    memset(&untouched, 0x5a, sizeof untouched);
    enum token_verdict v = token_verify(f->ks, token, len, &f->expect, &got);
    if (v != TOKEN_OK && v != TOKEN_EXPIRED)
        assert_memory_equal(&got, &untouched, sizeof got);
    return v;
}

static inline enum token_verdict verify_minted(const struct fixture *f)
{
    return verify_bytes(f, f->token.data, f->token.len);
}

static inline enum token_verdict verify_forged(struct fixture *f, const char *header,
                                               const char *claims)
{
    size_t n = forge_token(f->key, header, strlen(header), claims, strlen(claims), f->forged);
    return verify_bytes(f, f->forged, n);
}

static inline void assert_claims_equal(const struct token_claims *a, const struct token_claims *b)
{
    assert_string_equal(a->iss, b->iss);
    assert_string_equal(a->node, b->node);
    assert_true(id_equal(&a->session_id, &b->session_id));
    assert_true(id_equal(&a->user_id, &b->user_id));
    assert_true(id_equal(&a->chat_id, &b->chat_id));
    assert_true(id_equal(&a->lease_id, &b->lease_id));
    assert_int_equal(a->ep, b->ep);
    assert_int_equal(a->rq, b->rq);
    assert_int_equal(a->iat, b->iat);
    assert_int_equal(a->nbf, b->nbf);
    assert_int_equal(a->exp, b->exp);
    assert_int_equal(a->mex, b->mex);
    assert_int_equal(a->scope, b->scope);
    assert_int_equal(a->use, b->use);
    assert_int_equal(a->mc, b->mc);
    assert_string_equal(a->cnf_jkt, b->cnf_jkt);
}

/* --- claims by hand ------------------------------------------------------------------------ */

static const struct {
    const char *name, *value;
} sample[] = {
    {"iss", "\"https://leasehold.example\""},
    {"aud", "\"door:" SID "\""},
    {"sub", "\"11111111-0000-0000-0000-000000000001\""},
    {"chat", "\"22222222-0000-0000-0000-000000000002\""},
    {"node", "\"node-1\""},
    {"sid", "\"" SID "\""},
    {"ep", "7"},
    {"jti", "\"6fa459ea-ee8a-4ca4-894e-db77e160355e\""},
    {"scope", "[\"read\",\"write\"]"},
    {"iat", "1700000000"},
    {"nbf", "1700000000"},
    {"exp", "1700000120"},
    {"mex", "1700043200"},
    {"rq", "4711"},
    {"use", "\"multi\""},
    {"mc", "1"},
    {"cnf", "{\"jkt\":\"" JKT "\"}"},
};
#define OPTIONAL_FROM 14

/* The sample with the value of `name` replaced (NULL: left out), and `extra` behind. */
static inline const char *claims_with(const char *name, const char *value, const char *extra,
                                      char out[static 4096])
{
    size_t n = 0;
    const char *sep = "{";
    for (size_t i = 0; i < COUNT(sample); i++) {
        const char *v = sample[i].value;
        if (name != NULL && strcmp(name, sample[i].name) == 0)
            v = value;
        if (v == NULL)
            continue;
        n += (size_t)snprintf(out + n, 4096 - n, "%s\"%s\":%s", sep, sample[i].name, v);
        sep = ",";
    }
    snprintf(out + n, 4096 - n, "%s}", extra);
    return out;
}

static inline enum token_verdict verdict_with(struct fixture *f, const char *name,
                                              const char *value)
{
    char text[4096];
    return verify_forged(f, f->header, claims_with(name, value, "", text));
}

#endif
