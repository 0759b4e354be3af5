/*
 * TLS of the gateway's own listener (http.tls), as far as libwebsockets leaves it to us. Loop thread.
 * SSL_CTX and SSL are passed as void: only the files of gateway/tls* see OpenSSL's headers.
 */
#ifndef GATEWAY_TLS_SERVER_H
#define GATEWAY_TLS_SERVER_H

#include "leasehold/config.h"

/* TLS 1.2 and 1.3 with forward secrecy, no renegotiation; with client_ca_file a client may show a
 * certificate, which is then verified. */
int tls_server_setup(void *ctx, const struct config_tls *tls, struct err *e) MUST_CHECK;

/* Would these files serve? */
int tls_server_check(const struct config_tls *tls, struct err *e) MUST_CHECK;

/* Reads certificate, key and client_ca_file anew for the handshakes to come; connections go on. On
 * failure all stays as it was. */
int tls_server_reload(void *ctx, const struct config_tls *tls, struct err *e) MUST_CHECK;

/* The common name and the alternative names (DNS, email, URI) in the verified certificate of the
 * peer, a line each, for free(); NULL: it has shown none, or no memory. */
char *tls_peer_names(void *ssl);

#endif
