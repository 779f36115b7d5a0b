/* wire/frame.h: the frames between host and guest.
 *
 *   byte 0      version, FRAME_VERSION
 *   byte 1      type
 *   bytes 2-3   flags, FRAME_FD
 *   bytes 4-7   length of the head, a JSON object of UTF-8 (0: none)
 *   bytes 8-15  id: of the operation or call that the frame belongs to
 *   bytes 16-23 length of the blob, raw bytes; with FRAME_FD they are in a sealed memfd that comes
 *               with the header's first byte, and are not in the stream
 *
 * then head and blob; all numbers little-endian. Several values in one blob are *parts*: a 32-bit
 * count, that many 64-bit lengths, then the bytes one after the other.
 *
 * The guest is hostile. The decoder looks at a header before it allocates anything, and grows with
 * what really arrives. It takes a descriptor only for a frame that announces one, and maps it only
 * if the file cannot change any more (base/os/sealed.h).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/os/sealed.h"

enum {
    FRAME_VERSION = 1,
    FRAME_HEADER_SIZE = 24,
    FRAME_FD = 1,            /* flag: the blob travels as a memfd */
    FRAME_MEMFD_MIN = 65536, /* larger blobs to a local guest travel that way */
    /* Descriptors that wait for their frames. An honest guest's second one may come while the
     * first one's header is incomplete. */
    FRAME_FDS_MAX = 4,
    /* A sender that is told to stop still has bytes in flight: a cloud's some MiB, a local one
     * none. */
    FRAME_LATER_MAX = 16 << 20,
};

enum frame_type {
    /* host to guest */
    /* what this sandbox may do; answered by READY, which may come after a later frame */
    FRAME_HELLO = 1,
    FRAME_SET = 2,       /* a variable; answered by RESULT */
    FRAME_EXEC = 3,      /* a cell; answered by RESULT */
    FRAME_REPLY = 4,     /* the answer to a CALL */
    FRAME_INTERRUPT = 5, /* stop the operation with this id */
    FRAME_CLOSE = 7,     /* end in an orderly way */
    FRAME_OFFER = 8,     /* tools and answer fields from now on; not answered */
    FRAME_FILE = 9,      /* of the service (session/service.h); answered by FILED */
    FRAME_FORK = 10,     /* with FRAME_FD: the fork's status socket; answered by RESULT */
    FRAME_COMMAND = 11,  /* of the service; answered by COMMANDED */
    /* with FRAME_FD: a memory file; the guest writes its memory there; answered by RESULT */
    FRAME_SAVE = 12,
    FRAME_RESTORE = 13, /* with FRAME_FD: such a file, to continue from; precedes HELLO */
    /* guest to host */
    FRAME_READY = 17,
    FRAME_CALL = 19,
    FRAME_RESULT = 20,
    FRAME_CANCEL = 21,  /* the CALL with this id needs no answer any more */
    FRAME_DISPLAY = 22, /* a rich result of the cell with this id; session/bundles.h */
    FRAME_FILED = 23,
    FRAME_COMMANDED = 24,
};

struct frame {
    uint8_t type;
    uint16_t flags;
    uint64_t id;
    const char *head; /* head_len bytes, not NUL-terminated */
    size_t head_len;
    const char *blob;
    size_t blob_len;
    /* of a received frame: the buffer with the head and, unless it is mapped, the blob; the
     * receiver may take both */
    struct buf *body;
    struct sealed *mapped;
};

/* Writes a header of FRAME_HEADER_SIZE bytes. */
void frame_write_header(unsigned char out[FRAME_HEADER_SIZE], const struct frame *frame);

/* What a decoder accepts, one row per type; types without a row are refused. */
struct frame_rule {
    uint8_t type;
    size_t head_max;
    size_t blob_max;
    bool by_fd; /* the blob may travel as a memfd */
};

struct frame_decoder {
    const struct frame_rule *rules;
    size_t rule_count;
    unsigned char header[FRAME_HEADER_SIZE];
    size_t header_len; /* bytes of the header received so far */
    struct buf body;   /* head and blob of the incomplete frame */
    size_t head_len, blob_len;
    struct sealed mapped; /* the blob of the incomplete frame, if it is a memfd */
    int fds[FRAME_FDS_MAX];
    size_t fd_count;
    struct sealed_total *total; /* counts what is mapped; NULL: nothing does */
    bool held;                  /* by frame_hold */
    struct buf later;           /* what came while held */
};

/* Called for each complete frame, which is valid during the call. A negative return stops. */
typedef int frame_fn(void *arg, const struct frame *frame, struct error *err);

/* Takes the next bytes of the stream, in pieces of any size. After a negative return the stream
 * is unusable: ERROR_PROTOCOL, ERROR_MEMORY, or what `fn` returned. */
int frame_feed(struct frame_decoder *d, const char *data, size_t len, frame_fn *fn, void *arg,
    struct error *err);
/* Takes a descriptor that came with the bytes that are fed next. If they do not announce it, it is
 * closed. */
void frame_take_fd(struct frame_decoder *d, int fd);
/* Buffers everything after the current frame, up to FRAME_LATER_MAX bytes; more is
 * ERROR_PROTOCOL. */
void frame_hold(struct frame_decoder *d);
/* Resumes with the buffered bytes; as frame_feed. */
int frame_go_on(struct frame_decoder *d, frame_fn *fn, void *arg, struct error *err);
/* True if a frame is incomplete. */
bool frame_is_partial(const struct frame_decoder *d);
void frame_decoder_free(struct frame_decoder *d);

/* Parts. The writer needs all lengths first, then the bytes in order. */
void frame_parts_begin(struct buf *out, const size_t *lengths, size_t count);

struct frame_parts {
    size_t count;
    const char *lengths; /* unaligned 64-bit numbers */
    const char *data;
    size_t at;    /* index of the next part */
    size_t bytes; /* of all parts */
};

/* Checks that the blob is a well-formed list of at most `max` parts. */
int frame_parts_open(
    const char *blob, size_t len, size_t max, struct frame_parts *parts, struct error *err);
/* The next part; false after the last. */
bool frame_parts_next(struct frame_parts *parts, const char **data, size_t *len);
/* The part with this index, if no part was taken yet; false if there is none. */
bool frame_parts_at(const struct frame_parts *parts, int64_t index, const char **data, size_t *len);
