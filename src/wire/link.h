/* wire/link.h: a reliable, ordered byte stream in both directions over a transport that may be cut
 * and attached again, and may lose data in between. Every byte arrives exactly once and in order.
 * The link does no I/O itself: bytes in, bytes out.
 *
 * A record is a header and a payload; numbers are little-endian:
 *
 *   bytes 0-3    magic
 *   byte 4       kind
 *   byte 5       flags
 *   bytes 6-7    length of the payload, at most LINK_PAYLOAD_MAX
 *   bytes 8-15   seq: the stream offset of the payload's first byte; without payload of the stream,
 *                the sender's current offset
 *   bytes 16-23  ack: the sender has received everything before this offset
 *   bytes 24-27  CRC-32 of everything but these four bytes
 *
 *   DATA    bytes of the stream
 *   ACK     only its ack; with LINK_RESEND: something is missing, send again from there
 *   RESUME  the first of an attachment; the payload is a nonce of eight bytes. The host sends it,
 *           the other side answers with the same nonce (LINK_ANSWER), and both resend from the
 *           other's ack.
 *   PING    requests an ACK (with LINK_ANSWER)
 *
 * There are two encodings. LINK_BARE sends plain records over an 8-bit clean transport. LINK_TEXT
 * sends each record in base64 between LINK_MARK and a newline, which passes through terminals; text
 * between such lines is ignored.
 *
 * At a new attachment, the other side may be in the middle of a record, and this side may first
 * receive the rest of one. An attachment therefore begins with a newline (LINK_TEXT), or with as
 * many zeros as the longest record has bytes (LINK_BARE). They terminate the interrupted record,
 * whose checksum then fails. A record with a wrong checksum is skipped as a whole; each byte of
 * garbage is examined once.
 *
 * The host receives all this from a hostile guest. The windows bound what the host buffers. Until
 * the guest has answered RESUME, with a nonce that it cannot guess, the host ignores everything
 * else; and the guest cannot request resends more often than honest use needs.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/error.h"

enum {
    LINK_HEADER_SIZE = 28,
    LINK_PAYLOAD_MAX = 32768,
    LINK_RECORD_MAX = LINK_HEADER_SIZE + LINK_PAYLOAD_MAX,
    LINK_MARK = 0x1E,
    LINK_TO_GUEST = 1 << 20,     /* windows: bytes that may be unacknowledged */
    LINK_TO_HOST = 1 << 21,      /* of LINK_BARE */
    LINK_TO_HOST_TEXT = 1 << 18, /* a slow reader of a terminal is cut off */
};

enum link_form { LINK_BARE, LINK_TEXT };

enum link_kind { LINK_DATA = 1, LINK_ACK = 2, LINK_RESUME = 3, LINK_PING = 4 };

enum { LINK_ANSWER = 1, LINK_RESEND = 2 }; /* flags */

struct link_options {
    enum link_form form;
    size_t send_window, receive_window; /* 0: the host's */
    bool answers; /* the guest's side: trusts the other side, and answers RESUME and PING */
};

struct link_events {
    /* Bytes for the transport, which takes all of them, in order. */
    void (*write)(void *arg, const struct iovec *iov, int count);
    /* Bytes of the stream. A negative return stops. May call link_send. */
    int (*bytes)(void *arg, const char *data, size_t len, struct error *err);
};

struct link;

/* Creates a link that is not attached; what is sent waits. */
int link_open(const struct link_options *options, const struct link_events *events, void *arg,
    struct link **out, struct error *err);
/* NULL is fine. */
void link_free(struct link *l);

/* The transport is attached for the first time; nothing can have been lost. */
void link_begin(struct link *l);
/* It is attached again. The nonce is new and unpredictable. */
void link_resume(struct link *l, uint64_t nonce);
/* The transport was cut. */
void link_cut(struct link *l);
/* True once both sides have heard each other. */
bool link_is_live(const struct link *l);

/* Bytes from the transport, in pieces of any size. After a negative return the stream is
 * unusable: ERROR_PROTOCOL, ERROR_MEMORY, or what `bytes` returned. */
int link_feed(struct link *l, const char *data, size_t len, struct error *err);
/* Copies the bytes; ERROR_MEMORY. */
int link_send(struct link *l, const struct iovec *iov, int count, struct error *err);
/* Call it periodically: asks whether something was lost, or repeats a lost RESUME. */
void link_ping(struct link *l);
/* Bytes that the other side has not acknowledged, including those that wait to be sent. */
size_t link_unacknowledged(const struct link *l);
