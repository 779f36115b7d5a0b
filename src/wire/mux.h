/* wire/mux.h: messages between the host and a supervisor (guest/python/remote/supervisor.py), which
 * multiplex the workers' streams over one link.
 *
 *   byte 0      kind
 *   byte 1      stream, of OUTPUT: 1 or 2
 *   bytes 2-3   zero
 *   bytes 4-7   the worker's number, chosen by the host and never reused; 0: the supervisor itself
 *   bytes 8-11  length of the payload
 *
 * Numbers are little-endian. BYTES to a worker are limited by credit: the host sends at most
 * MUX_CREDIT bytes that the worker has not taken, and CREDIT grants more. The other direction needs
 * none: the host accepts everything, and the supervisor stops reading from workers while much waits
 * for the host.
 *
 * The supervisor is as hostile as its guests. BYTES and OUTPUT are passed on in the pieces in which
 * they arrive and are not buffered here; the other messages are short.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"

enum {
    MUX_HEADER_SIZE = 12,
    MUX_CREDIT = 1 << 20,
    MUX_JSON_MAX = 65536, /* of HELLO and EXIT */
    MUX_PIECE_MAX = 1 << 20,
};

enum mux_kind {
    /* host to supervisor */
    MUX_START =
        /* JSON: "limits", names of rlimits with their values; "preload", names of modules;
         * "beside", the worker whose directory it uses. Or:
         * "files", a directory to receive an archive (volume/pack.h), removed with the worker if
         * it is "ephemeral"; with "since" and "sum" the supervisor reports changes to it instead */
    1,
    MUX_BYTES = 2, /* of the worker's channel; both ways */
    MUX_INTERRUPT = 3,
    MUX_KILL = 4,  /* with all its processes; EXIT follows */
    MUX_CLOSE = 5, /* the supervisor and everything it started end */
    MUX_HOLD = 6,  /* one byte: 1 stops reading the worker's channel, 0 resumes */
    /* supervisor to host */
    MUX_HELLO = 17,  /* the first; JSON: facts about the interpreter and where it runs */
    MUX_OUTPUT = 18, /* the worker's standard output or error */
    MUX_EXIT =
        /* the last message of a worker; JSON: "status", as from waitpid; "rss", KiB of its
         * largest process; "cpu", seconds of all; "oom"; or "error" if it could not start */
    19,
    MUX_CREDIT_MORE = 20, /* four bytes: how many the worker has taken */
};

void mux_write_header(
    unsigned char out[MUX_HEADER_SIZE], enum mux_kind kind, uint32_t worker, size_t len);

struct mux_message {
    uint8_t kind, stream;
    uint32_t worker;
    const char *data; /* a piece, of BYTES and OUTPUT */
    size_t len;
};

/* Valid during the call. A negative return stops. */
typedef int mux_fn(void *arg, const struct mux_message *m, struct error *err);

/* The host's decoder. A zeroed one is new. */
struct mux_decoder {
    unsigned char header[MUX_HEADER_SIZE];
    size_t header_len; /* bytes of the header received so far */
    struct mux_message message;
    size_t left;     /* bytes of the payload still to come */
    struct buf body; /* the payload so far, unless it is passed on in pieces */
};

int mux_feed(
    struct mux_decoder *d, const char *data, size_t len, mux_fn *fn, void *arg, struct error *err);
void mux_decoder_free(struct mux_decoder *d);
