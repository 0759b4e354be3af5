#include "tls_server.h"

#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <string.h>

#define NAMES_CAP 16384
#define CIPHERS                                                                                    \
    "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:"                                   \
    "ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384:"                                   \
    "ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305"

static const unsigned char session_context[] = "leasehold";

static int client_ca_load(SSL_CTX *ctx, const char *file, struct err *e)
{
    STACK_OF(X509_NAME) *names = SSL_load_client_CA_file(file);

    if (!names || SSL_CTX_load_verify_file(ctx, file) != 1) {
        sk_X509_NAME_pop_free(names, X509_NAME_free);
        return err_set(e, ERR_INTERNAL, "http.tls.client_ca_file %s holds no certificates", file);
    }
    SSL_CTX_set_client_CA_list(ctx, names); /* takes them */
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_CLIENT_ONCE, NULL);
    return 0;
}

int tls_server_setup(void *ctx, const struct config_tls *tls, struct err *e)
{
    SSL_CTX *c = ctx;

    SSL_CTX_set_options(c, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                               SSL_OP_CIPHER_SERVER_PREFERENCE);
    if (SSL_CTX_set_min_proto_version(c, TLS1_2_VERSION) != 1 ||
        SSL_CTX_set_cipher_list(c, CIPHERS) != 1 ||
        SSL_CTX_set_session_id_context(c, session_context, sizeof session_context - 1) != 1)
        return err_set(e, ERR_INTERNAL, "TLS cannot be set up");
    return *tls->client_ca_file ? client_ca_load(c, tls->client_ca_file, e) : 0;
}

static bool pair_use(SSL_CTX *ctx, const struct config_tls *tls)
{
    return SSL_CTX_use_certificate_chain_file(ctx, tls->cert_file) == 1 &&
           SSL_CTX_use_PrivateKey_file(ctx, tls->key_file, SSL_FILETYPE_PEM) == 1 &&
           SSL_CTX_check_private_key(ctx) == 1;
}

/* In another context first: half a pair must not get into the one that serves. */
int tls_server_reload(void *ctx, const struct config_tls *tls, struct err *e)
{
    SSL_CTX *trial = SSL_CTX_new(TLS_server_method());
    bool good = trial && pair_use(trial, tls);

    SSL_CTX_free(trial);
    if (!good || !pair_use(ctx, tls))
        return err_set(e, ERR_INTERNAL, "%s and %s do not serve as certificate and key",
                       tls->cert_file, tls->key_file);
    return 0;
}

/* --- the peer -------------------------------------------------------------------------------- */

/* A name with a line end in it would be two. */
static void name_add(struct buf *out, const ASN1_STRING *name)
{
    unsigned char *text = NULL;
    int len = ASN1_STRING_to_UTF8(&text, name);

    if (len > 0 && !memchr(text, '\n', (size_t)len) && !memchr(text, '\0', (size_t)len)) {
        buf_add(out, text, (size_t)len);
        buf_add_char(out, '\n');
    }
    OPENSSL_free(text);
}

static void common_name_add(struct buf *out, X509 *cert)
{
    const X509_NAME *subject = X509_get_subject_name(cert);
    int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);

    if (at >= 0)
        name_add(out, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)));
}

static void alternative_names_add(struct buf *out, X509 *cert)
{
    GENERAL_NAMES *names = X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL);

    for (int i = 0; i < sk_GENERAL_NAME_num(names); i++) {
        const GENERAL_NAME *n = sk_GENERAL_NAME_value(names, i);

        if (n->type == GEN_DNS || n->type == GEN_EMAIL || n->type == GEN_URI)
            name_add(out, n->d.ia5);
    }
    GENERAL_NAMES_free(names);
}

char *tls_peer_names(void *ssl)
{
    X509 *cert = SSL_get0_peer_certificate(ssl);
    struct buf out;

    if (!cert || SSL_get_verify_result(ssl) != X509_V_OK)
        return NULL;
    buf_init(&out, NAMES_CAP);
    common_name_add(&out, cert);
    alternative_names_add(&out, cert);
    if (buf_ok(&out) && out.len)
        return out.data;
    buf_done(&out);
    return NULL;
}
