/*
 * Keys and tokens for tests in other languages. Signs whatever claims it is given.
 *
 *   mint_token generate KEYFILE                 makes a P-256 key
 *   mint_token public KEYFILE                   its {"kid","x","y"}
 *   mint_token sign KEYFILE CLAIMS [HEADER]     a token; the header is the right one by default
 *   mint_token raw KEYFILE TEXT                 an ES256 signature over the text
 */
#include <openssl/pem.h>

#include "leasehold/token.h"
#include "token_forge.h"

static EVP_PKEY *key_read(const char *path)
{
    FILE *f = fopen(path, "r");
    EVP_PKEY *key = f ? PEM_read_PrivateKey(f, NULL, NULL, NULL) : NULL;

    forge_require(key != NULL, "key file");
    fclose(f);
    return key;
}

static struct keyset *keyset_read(const char *path)
{
    struct keyset *ks = keyset_new();
    struct err e = {0};

    forge_require(ks != NULL && keyset_add_signing_file(ks, path, &e) == 0, "key set");
    return ks;
}

static int sign(const char *path, const char *claims, const char *header)
{
    static char token[FORGE_TOKEN_SIZE];
    EVP_PKEY *key = key_read(path);
    struct keyset *ks = keyset_read(path);
    char usual[128];

    snprintf(usual, sizeof usual, "{\"alg\":\"ES256\",\"typ\":\"lease+jwt\",\"kid\":\"%s\"}",
             keyset_signing_kid(ks));
    header = header ? header : usual;
    forge_token(key, header, strlen(header), claims, strlen(claims), token);
    puts(token);
    EVP_PKEY_free(key);
    keyset_free(ks);
    return 0;
}

static int public(const char *path)
{
    struct keyset *ks = keyset_read(path);
    struct key_public key;

    keyset_get(ks, 0, &key);
    printf("{\"kid\":\"%s\",\"x\":\"%s\",\"y\":\"%s\"}\n", key.kid, key.x, key.y);
    keyset_free(ks);
    return 0;
}

static int raw(const char *path, const char *text)
{
    EVP_PKEY *key = key_read(path);
    uint8_t sig[64];
    char out[96];

    forge_sign(key, text, strlen(text), sig);
    forge_base64url(sig, sizeof sig, out);
    puts(out);
    EVP_PKEY_free(key);
    return 0;
}

int main(int argc, char **argv)
{
    struct err e = {0};

    if (argc == 3 && strcmp(argv[1], "generate") == 0)
        return keyset_generate_file(argv[2], &e) == 0 ? 0 : 1;
    if (argc == 3 && strcmp(argv[1], "public") == 0)
        return public(argv[2]);
    if ((argc == 4 || argc == 5) && strcmp(argv[1], "sign") == 0)
        return sign(argv[2], argv[3], argc == 5 ? argv[4] : NULL);
    if (argc == 4 && strcmp(argv[1], "raw") == 0)
        return raw(argv[2], argv[3]);
    fprintf(stderr, "usage: mint_token generate|public|sign|raw KEYFILE [TEXT [HEADER]]\n");
    return 2;
}
