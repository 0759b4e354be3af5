#include "tls_server.h"

#include <openssl/rand.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <string.h>

#define NAMES_CAP 16384
#define CIPHERS                                                                                    \
    "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:"                                   \
    "ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384:"                                   \
    "ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305"

#define SESSION_CONTEXT_SIZE 16

/* Sessions of before are not resumed in another context: who was let in by an authority that has gone
 * must show its certificate again. */
static int session_context_renew(SSL_CTX *ctx)
{
    unsigned char context[SESSION_CONTEXT_SIZE];

    return RAND_bytes(context, sizeof context) == 1 &&
                   SSL_CTX_set_session_id_context(ctx, context, sizeof context) == 1
               ? 0
               : -1;
}

/* What client_ca_file holds. */
struct authorities {
    STACK_OF(X509_NAME) * names;
    X509_STORE *store;
};

static void authorities_free(struct authorities *a)
{
    sk_X509_NAME_pop_free(a->names, X509_NAME_free);
    X509_STORE_free(a->store);
}

static int authorities_read(const char *file, struct authorities *ret, struct err *e)
{
    *ret = (struct authorities){SSL_load_client_CA_file(file), X509_STORE_new()};
    if (ret->names && ret->store && X509_STORE_load_file(ret->store, file) == 1)
        return 0;
    authorities_free(ret);
    return err_set(e, ERR_INTERNAL, "http.tls.client_ca_file %s holds no certificates", file);
}

static void authorities_use(SSL_CTX *ctx, struct authorities *a) /* takes */
{
    SSL_CTX_set_client_CA_list(ctx, a->names);
    SSL_CTX_set_cert_store(ctx, a->store);
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_CLIENT_ONCE, NULL);
}

static int client_ca_load(SSL_CTX *ctx, const char *file, struct err *e)
{
    struct authorities a;

    if (authorities_read(file, &a, e))
        return -1;
    authorities_use(ctx, &a);
    return 0;
}

int tls_server_setup(void *ctx, const struct config_tls *tls, struct err *e)
{
    SSL_CTX *c = ctx;

    /* OpenSSL would go on reading for as long as a peer sends what is no data, and all others
     * would wait. */
    SSL_CTX_clear_mode(c, SSL_MODE_AUTO_RETRY);
    SSL_CTX_set_options(c, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                               SSL_OP_CIPHER_SERVER_PREFERENCE);
    if (SSL_CTX_set_min_proto_version(c, TLS1_2_VERSION) != 1 ||
        SSL_CTX_set_cipher_list(c, CIPHERS) != 1 || session_context_renew(c))
        return err_set(e, ERR_INTERNAL, "TLS cannot be set up");
    return *tls->client_ca_file ? client_ca_load(c, tls->client_ca_file, e) : 0;
}

static bool pair_use(SSL_CTX *ctx, const struct config_tls *tls)
{
    return SSL_CTX_use_certificate_chain_file(ctx, tls->cert_file) == 1 &&
           SSL_CTX_use_PrivateKey_file(ctx, tls->key_file, SSL_FILETYPE_PEM) == 1 &&
           SSL_CTX_check_private_key(ctx) == 1;
}

static bool pair_serves(const struct config_tls *tls)
{
    SSL_CTX *trial = SSL_CTX_new(TLS_server_method());
    bool good = trial && pair_use(trial, tls);

    SSL_CTX_free(trial);
    return good;
}

static int pair_refused(const struct config_tls *tls, struct err *e)
{
    return err_set(e, ERR_INTERNAL,
                   "http.tls: cert_file %s and key_file %s do not serve as certificate and key",
                   tls->cert_file, tls->key_file);
}

int tls_server_check(const struct config_tls *tls, struct err *e)
{
    struct authorities a = {0};

    if (!*tls->cert_file)
        return 0;
    if (*tls->client_ca_file && authorities_read(tls->client_ca_file, &a, e))
        return -1;
    authorities_free(&a);
    return pair_serves(tls) ? 0 : pair_refused(tls, e);
}

/* In another context first: half a pair must not get into the one that serves. */
int tls_server_reload(void *ctx, const struct config_tls *tls, struct err *e)
{
    struct authorities a = {0};

    if (*tls->client_ca_file && authorities_read(tls->client_ca_file, &a, e))
        return -1;
    if (!pair_serves(tls) || session_context_renew(ctx) || !pair_use(ctx, tls)) {
        authorities_free(&a);
        return pair_refused(tls, e);
    }
    if (a.store)
        authorities_use(ctx, &a);
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
