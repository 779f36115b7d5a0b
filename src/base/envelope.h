/* base/envelope.h: the envelopes of Connect's streams (connectrpc.com/docs/protocol): a byte of
 * flags and the length, big-endian, before each message. */
#pragma once

#include <stddef.h>

#include "base/buf.h"
#include "base/error.h"

enum { ENVELOPE_HEAD = 5, ENVELOPE_END = 2 }; /* bytes; the flag of the last one */

/* *out: the length of the first envelope with its head; 0: not known yet. ERROR_PROTOCOL if its
 * message has more than `most` bytes. */
int envelope_size(const char *data, size_t len, size_t most, size_t *out, struct error *err);
void envelope_append(struct buf *out, unsigned flags, const void *message, size_t len);
