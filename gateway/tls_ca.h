/*
 * The certificates of doors (door.tls). `internal-ca`: a CA of our own, made at the first start in
 * certs/ (ca.pem, and ca.key for us alone), that signs a fresh P-256 certificate for each session;
 * clients get the CA with their grant and trust nothing else. `files`: one certificate of the
 * operator's for all doors.
 *
 * Constant after tls_ca_new; any thread.
 */
#ifndef GATEWAY_TLS_CA_H
#define GATEWAY_TLS_CA_H

#include <stdint.h>

#include "leasehold/buf.h"
#include "leasehold/config.h"
#include "leasehold/door_proto.h"
#include "leasehold/err.h"
#include "leasehold/id.h"

#define TLS_PEM_MAX     DOOR_PEM_MAX
#define TLS_CA_KEY_FILE "certs/ca.key" /* below the config's directory */
#define TLS_SHA256_TEXT 65             /* lower-case hex and NUL */

struct tls_ca;

/* NULL in *ret when door.tls is off. */
int tls_ca_new(const struct config *cfg, struct tls_ca **ret, struct err *e) MUST_CHECK;
void tls_ca_free(struct tls_ca *ca);

/* Would tls_ca_new refuse what is there? Writes nothing. */
int tls_ca_check(const struct config *cfg, struct err *e) MUST_CHECK;

/* The files are read anew (an internal CA that has gone is made anew): *ca is what is there now, on
 * failure what it was. The former one stays good until the new one is freed, for those who use it still.
 * Doors that run keep their certificates: a former internal CA stays among those to be trusted, in the
 * grants and in ca.pem, until it is taken out there. */
int tls_ca_renew(const struct config *cfg, struct tls_ca **ca, struct err *e) MUST_CHECK;

/* What a client must trust, one or more certificates; NULL: the system's authorities (`files`). */
const char *tls_ca_pem(const struct tls_ca *ca);

/*
 * The certificate chain and key of one session's door as PEM, for the host name or address `host`,
 * valid from an hour ago to `until_ms`; and the certificate's SHA-256 (RFC 7469's pin is of the
 * key; this one is of the whole DER certificate). The buffers have a cap of TLS_PEM_MAX; the caller
 * cleanses the key.
 */
int tls_ca_issue(const struct tls_ca *ca, const struct id *session_id, const char *host,
                 int64_t until_ms, struct buf *cert_pem, struct buf *key_pem,
                 char sha256[static TLS_SHA256_TEXT], struct err *e) MUST_CHECK;

#endif
