/*
 * Callers' JWTs and the key files of their issuers, on hostile bytes. The first byte chooses:
 *   0: the rest is a token;
 *   1: the rest are claims, signed behind a good header;
 *   2: header, NUL, claims: both as they are, signed;
 *   3: the rest is a key file.
 * Held against each input: the verdict is the same twice; what is let in was signed by us, under the
 * one algorithm that is configured, and obeys issuer, audience and times; a refusal is always 401 and
 * fit to be shown; a key file that loads holds a key of use under the names that it says.
 */
#include <openssl/bio.h>
#include <openssl/pem.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../gateway/auth_jwks.h"
#include "../../gateway/auth_jwt.h"
#include "../support/token_forge.h"
#include "leasehold/json.h"

/* The seed corpus speaks of these. */
#define NOW_MS INT64_C(1700000001000)
#define LEEWAY 5
#define ISSUER "https://id.example"
#define SHARED "leasehold"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static EVP_PKEY *key;
static struct jwt_trust *trust;
static struct config config;

/* Loads a key file that stands in memory. */
static int load(const void *data, size_t size, struct jwks **ret, struct err *e)
{
    char name[64];
    int fd = memfd_create("keys", MFD_CLOEXEC), rc;

    forge_require(fd >= 0 && write(fd, data, size) == (ssize_t)size, "memfd");
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    rc = jwks_load(name, ret, e);
    close(fd);
    return rc;
}

static void trust_make(void)
{
    static char issuer[] = ISSUER, audience[] = SHARED, role[] = "role", users[] = "users",
                name[64];
    int fd = memfd_create("key", MFD_CLOEXEC);
    FILE *file = fdopen(fd, "w");
    struct err e;

    forge_require(file && PEM_write_PUBKEY(file, key) == 1 && fflush(file) == 0, "the key's file");
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    config.security.jwt = (struct config_jwt){.issuer = issuer,
                                              .audience = audience,
                                              .key_file = name,
                                              .role_claim = role,
                                              .users_claim = users,
                                              .leeway_seconds = LEEWAY};
    while (strcmp(jwt_algorithm_names[config.security.jwt.algorithm], "ES256") != 0)
        config.security.jwt.algorithm++;
    forge_require(jwt_trust_new(&config, &trust, &e) == 0 && trust, "jwt_trust_new");
    fclose(file);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    key = forge_key("test_token");
    trust_make();
    return 0;
}

static void check_refusal(const struct err *e)
{
    forge_require(e->code == ERR_UNAUTHENTICATED, "a refusal is 401");
    forge_require(e->msg[0] && utf8_valid(e->msg, strlen(e->msg)), "a refusal can be shown");
}

static bool same(const struct jwt_caller *a, const struct jwt_caller *b)
{
    return strcmp(a->sub, b->sub) == 0 && a->role == b->role && a->limited == b->limited &&
           a->users.n == b->users.n && a->issued_at == b->issued_at &&
           a->expires_at == b->expires_at;
}

static void check_caller(const struct jwt_caller *c, const char *token, bool signed_here)
{
    int64_t leeway_ms = LEEWAY * INT64_C(1000);

    forge_require(signed_here, "nobody else's signature is taken");
    forge_require(jwt_is_shaped(token), "it has the form of a JWT");
    forge_require(c->sub[0] != '\0', "a caller has a name");
    forge_require(c->role >= ROLE_VIEWER && c->role <= ROLE_ADMIN, "a role of ours");
    forge_require(c->limited || c->role == ROLE_ADMIN, "only admins see everybody");
    forge_require(c->expires_at + leeway_ms > NOW_MS, "exp");
    forge_require(c->issued_at <= NOW_MS + leeway_ms, "iat");
}

static void check_token(const char *token, bool signed_here)
{
    struct arena *arena = arena_new(1024 * 1024), *other = arena_new(1024 * 1024);
    struct jwt_caller caller, again;
    struct err e;
    int rc;

    forge_require(arena && other, "arena");
    rc = jwt_trust_check(trust, token, NOW_MS, arena, &caller, &e);
    if (rc)
        check_refusal(&e);
    else
        check_caller(&caller, token, signed_here);
    forge_require(jwt_trust_check(trust, token, NOW_MS, other, &again, &e) == rc, "determinism");
    forge_require(rc || same(&caller, &again), "the same caller twice");
    arena_free(arena);
    arena_free(other);
}

static void check_key(const char *pem, size_t len)
{
    BIO *bio = BIO_new_mem_buf(pem, (int)len);
    EVP_PKEY *found = PEM_read_bio_PUBKEY(bio, NULL, NULL, NULL);

    forge_require(found && (EVP_PKEY_is_a(found, "RSA") || EVP_PKEY_is_a(found, "EC")),
                  "what is found is a public key");
    forge_require(EVP_PKEY_is_a(found, "EC") || EVP_PKEY_get_bits(found) >= 2048, "a strong one");
    EVP_PKEY_free(found);
    BIO_free(bio);
}

static void check_keys(const uint8_t *data, size_t size)
{
    static const char *const names[] = {NULL, "", "a", "b"};
    struct jwks *set;
    size_t len;
    struct err e;

    if (load(data, size, &set, &e)) {
        forge_require(e.msg[0] && utf8_valid(e.msg, strlen(e.msg)), "a refusal can be shown");
        return;
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *pem = jwks_find(set, names[i], &len);

        if (pem)
            check_key(pem, len);
    }
    jwks_free(set);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char good[] = "{\"alg\":\"ES256\",\"typ\":\"JWT\"}";
    static char token[FORGE_TOKEN_SIZE];
    char text[4097];

    if (size < 1 || size > sizeof text)
        return -1;
    memcpy(text, data + 1, size - 1);
    text[--size] = '\0';
    if (data[0] % 4 == 3) {
        check_keys(data + 1, size);
    } else if (data[0] % 4 == 0) {
        check_token(text, false);
    } else if (data[0] % 4 == 1) {
        token[forge_token(key, good, strlen(good), text, size, token)] = '\0';
        check_token(token, true);
    } else {
        size_t header_len = strnlen(text, size), skip = header_len < size ? header_len + 1 : size;

        token[forge_token(key, text, header_len, text + skip, size - skip, token)] = '\0';
        check_token(token, true);
    }
    return 0;
}
