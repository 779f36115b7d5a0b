/* wire/mux.h: the messages between the host and a supervisor (guest/python/remote/supervisor.py), in which the
 * workers' streams are multiplexed over one link.
 *
 *   byte 0      kind
 *   byte 1      stream, of OUTPUT: 1 or 2
 *   bytes 2-3   zero
 *   bytes 4-7   the worker's number, given by the host and never again; 0: the supervisor itself
 *   bytes 8-11  length of the payload
 *
 * numbers are little-endian. BYTES to a worker have credit: the host sends at most MUX_CREDIT of them that
 * the worker has not taken, and CREDIT says how many more it has. The other way needs none: the host
 * takes what comes, and the supervisor reads nothing from workers while much waits for the host.
 *
 * The supervisor is as hostile as its guests. BYTES and OUTPUT are handed on in the pieces in which they come, so
 * that nothing of them is kept here; the others are short.
 */
#ifndef DROSTE_WIRE_MUX_H
#define DROSTE_WIRE_MUX_H

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
        1, /* JSON: "limits", names of rlimits with their values; "preload", names of modules. Or: "files", a directory
            * that what comes is put into (volume/pack.h), which ends with the worker if it is "passing"; with
            * "since" and "sum" it is told of instead */
    MUX_BYTES = 2, /* of the worker's channel; both ways */
    MUX_INTERRUPT = 3,
    MUX_KILL = 4,  /* with all of its processes; EXIT follows */
    MUX_CLOSE = 5, /* the supervisor ends, and everything with it */
    MUX_HOLD = 6,  /* one byte: 1, nothing more is read of the worker's channel; 0, it is again */
    /* supervisor to host */
    MUX_HELLO = 17,  /* the first; JSON: facts about the interpreter and where it runs */
    MUX_OUTPUT = 18, /* of the worker's standard output or error */
    MUX_EXIT =
        19, /* the last of a worker; JSON: "status", as waitpid has it; "rss", KiB of its largest
                      * process; "cpu", seconds of all; "oom"; or "error", where it could not start */
    MUX_CREDIT_MORE = 20, /* four bytes, how many the worker has taken */
};

void mux_write_header(
    unsigned char out[MUX_HEADER_SIZE], enum mux_kind kind, uint32_t worker, size_t len);

struct mux_message {
    uint8_t kind, stream;
    uint32_t worker;
    const char *data; /* of BYTES and OUTPUT a piece */
    size_t len;
};

/* Valid during the call. A negative return ends the feeding. */
typedef int mux_fn(void *arg, const struct mux_message *m, struct error *err);

/* The host's side. A zeroed one is new. */
struct mux_decoder {
    unsigned char header[MUX_HEADER_SIZE];
    size_t header_len; /* bytes of it that are here */
    struct mux_message message;
    size_t left;     /* bytes of the payload that are to come */
    struct buf body; /* those that came, unless they are handed on */
};

int mux_feed(
    struct mux_decoder *d, const char *data, size_t len, mux_fn *fn, void *arg, struct error *err);
void mux_decoder_free(struct mux_decoder *d);

#endif
