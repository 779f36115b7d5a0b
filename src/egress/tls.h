/* egress/tls.h: TLS of both sides of a connection whose requests the proxy must read.
 *
 * Towards the guest, the proxy is the server: with a certificate that the session's own authority
 * has issued for the host. Towards the host it is the client, and checks that one's certificate.
 * OpenSSL never sees a socket: ciphertext goes in and out of memory, because its own writes raise
 * SIGPIPE, and the proxy's sides already queue what a socket does not take.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/error.h"
#include "egress/address.h"

enum { EGRESS_TLS_RECORD = 16 << 10 }; /* a record's plaintext */

/* ---- the authority of a session ---- */

struct egress_authority;
/* Makes its keys, which never leave the process. */
int egress_authority_new(struct egress_authority **out, struct error *err);
void egress_authority_free(struct egress_authority *authority); /* NULL is fine */
/* Appends its certificate as PEM. */
void egress_authority_print(const struct egress_authority *authority, struct buf *out);

/* ---- whom the proxy trusts ---- */

struct egress_trust;
/* The system's certificates, and those in the file; NULL: none. */
int egress_trust_new(const char *file, struct egress_trust **out, struct error *err);
void egress_trust_free(struct egress_trust *trust); /* NULL is fine */
/* Appends the same certificates for the guest, as PEM. */
void egress_trust_print(const struct egress_trust *trust, struct buf *out);

/* ---- one side ---- */

struct egress_tls;
/* As the server `host` for the guest. NULL: out of memory. */
struct egress_tls *egress_tls_accept(
    struct egress_authority *authority, const struct egress_host *host);
/* As a client of `host`. NULL: out of memory. */
struct egress_tls *egress_tls_connect(struct egress_trust *trust, const struct egress_host *host);
void egress_tls_free(struct egress_tls *tls); /* NULL is fine */

/* Takes ciphertext that was read. */
bool egress_tls_feed(struct egress_tls *tls, const void *data, size_t len);
/* Continues the handshake. False: it has failed. */
bool egress_tls_shake(struct egress_tls *tls);
bool egress_tls_is_up(const struct egress_tls *tls);
/* Why it failed, for the record. */
void egress_tls_why(const struct egress_tls *tls, char *out, size_t size);
/* Plaintext: its length; 0: none now; -1: malformed, or the connection is broken. */
ssize_t egress_tls_read(struct egress_tls *tls, void *out, size_t size);
/* The other side has said that nothing follows. */
bool egress_tls_has_ended(const struct egress_tls *tls);
bool egress_tls_write(struct egress_tls *tls, const void *data, size_t len);
/* Says that nothing follows. */
void egress_tls_end(struct egress_tls *tls);
/* Ciphertext to send, valid until the next call; 0: none. */
size_t egress_tls_peek(struct egress_tls *tls, char **data);
/* It was sent, or queued. */
void egress_tls_sent(struct egress_tls *tls);
