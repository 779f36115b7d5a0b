/* wire/link.h: a reliable, ordered stream of bytes in both directions over a carrier that may be cut and
 * attached again, and that may lose what the other side said meanwhile. What goes in at one end comes out
 * at the other exactly once and in order. It does no I/O: bytes in, bytes out.
 *
 * A record is a header and a payload; numbers are little-endian:
 *
 *   bytes 0-3    magic
 *   byte 4       kind
 *   byte 5       flags
 *   bytes 6-7    length of the payload, at most LINK_PAYLOAD_MAX
 *   bytes 8-15   seq: the offset in the stream of the payload's first byte; of a record without bytes of
 *                the stream, where its sender stands
 *   bytes 16-23  ack: the sender has received everything before this offset
 *   bytes 24-27  CRC-32 of all of this but these four bytes
 *
 *   DATA    bytes of the stream
 *   ACK     only its ack; with LINK_RESEND: something is missing, send again from there
 *   RESUME  the first of an attachment; the payload is its nonce, eight bytes. The host sends it, and the
 *           other side answers with the same nonce (LINK_ANSWER). Then both send again from the other's ack.
 *   PING    asks for an ACK (with LINK_ANSWER)
 *
 * Two forms. LINK_BARE: the records as they are, over a carrier that is 8-bit clean. LINK_TEXT: each record
 * in base64 between LINK_MARK and a newline, which a terminal lets through; what stands between such lines
 * is passed over.
 *
 * At a new attachment the other side may be in the middle of a record, and this one may hear the end of
 * one first. So an attachment begins with a newline (LINK_TEXT), or with as many zeros as the largest record has bytes
 * (LINK_BARE): they end the record that was cut, whose sum is then wrong. A record whose sum is wrong is
 * passed over as a whole, and the next one looked for: no garbage costs more than one look at each byte.
 *
 * All that the host gets is from a hostile guest. What it keeps is bounded by the windows; until the
 * guest has answered RESUME, whose nonce it cannot guess before it has heard it, nothing that it says counts;
 * and it can have nothing sent again more often than honest use needs.
 */
#ifndef DROSTE_WIRE_LINK_H
#define DROSTE_WIRE_LINK_H

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
    LINK_TO_GUEST = 1 << 20,     /* windows: bytes that may be on their way without an ack */
    LINK_TO_HOST = 1 << 21,      /* of LINK_BARE */
    LINK_TO_HOST_TEXT = 1 << 18, /* who reads a terminal slowly is cut off */
};

enum link_form { LINK_BARE, LINK_TEXT };

enum link_kind { LINK_DATA = 1, LINK_ACK = 2, LINK_RESUME = 3, LINK_PING = 4 };

enum { LINK_ANSWER = 1, LINK_RESEND = 2 }; /* flags */

struct link_options {
    enum link_form form;
    size_t send_window, receive_window; /* 0: as the host has them */
    bool answers; /* the guest's side: it trusts the other one, and answers RESUME and PING */
};

struct link_events {
    /* Bytes for the carrier, all of which are taken, in order. */
    void (*write)(void *arg, const struct iovec *iov, int count);
    /* Bytes of the stream. A negative return ends the feeding. May send. */
    int (*bytes)(void *arg, const char *data, size_t len, struct error *err);
};

struct link;

/* It is not attached, and what is sent waits. */
int link_open(const struct link_options *options, const struct link_events *events, void *arg,
    struct link **out, struct error *err);
/* NULL is fine. */
void link_free(struct link *l);

/* The carrier stands for the first time, and nothing can have been lost. */
void link_begin(struct link *l);
/* It stands again. The nonce is new, and cannot be guessed. */
void link_resume(struct link *l, uint64_t nonce);
/* It is cut. */
void link_cut(struct link *l);
/* Both sides are known to hear each other. */
bool link_is_live(const struct link *l);

/* Bytes from the carrier, in pieces of any size. After a negative return nothing more comes of it:
 * ERROR_PROTOCOL, ERROR_MEMORY, or what `bytes` returned. */
int link_feed(struct link *l, const char *data, size_t len, struct error *err);
/* Copies the bytes; ERROR_MEMORY. */
int link_send(struct link *l, const struct iovec *iov, int count, struct error *err);
/* To be called now and then: asks whether something was lost, or RESUME again, if that was. */
void link_ping(struct link *l);
/* Bytes that the other side has not acknowledged yet, those that wait among them. */
size_t link_unacknowledged(const struct link *l);

#endif
