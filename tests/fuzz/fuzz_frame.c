/* The decoder of frames and parts: byte 0 is the size of the pieces in which the rest, a stream of
 * the guest's, is fed; each piece's last byte says how long the next one is. The frames must be the
 * same as those of the stream fed at once.
 */
#include "fuzz.h"

#include "wire/frame.h"

static const struct frame_rule rules[] = {
    { FRAME_READY, 64, 0 },
    { FRAME_CALL, 4096, 65536 },
    { FRAME_RESULT, 2 << 20, 256u << 20 },
};

struct seen {
    unsigned frames;
    uint64_t sum; /* of everything in them, in order */
};

static void add(struct seen *s, uint64_t value)
{
    s->sum = (s->sum ^ value) * 1099511628211u;
}

static void add_bytes(struct seen *s, const char *data, size_t len)
{
    add(s, len);
    for (size_t i = 0; i < len; i++)
        add(s, (unsigned char)data[i]);
}

static void see_parts(struct seen *s, const struct frame *frame)
{
    struct frame_parts parts;
    struct error err = { 0 };
    const char *data, *next = NULL;
    size_t len, count = 0;
    int rc = frame_parts_open(frame->blob, frame->blob_len, 1000, &parts, &err);
    if (rc < 0) {
        expect_error(rc, &err);
        return;
    }
    expect(parts.count <= 1000);
    for (; frame_parts_next(&parts, &data, &len); count++) {
        expect(!next || data == next);
        add_bytes(s, data, len);
        next = data + len;
    }
    expect(count == parts.count);
    expect(!next || next == frame->blob + frame->blob_len);
}

static int see(void *arg, const struct frame *frame, struct error *err)
{
    struct seen *s = arg;
    s->frames++;
    add(s, frame->type);
    add(s, frame->id);
    expect(frame->flags == 0);
    add_bytes(s, frame->head, frame->head_len);
    add_bytes(s, frame->blob, frame->blob_len);
    see_parts(s, frame);
    return 0;
}

/* Feeds the stream in pieces, or at once where `step` is 0. */
static int feed(struct input in, size_t step, struct seen *seen, bool *partial)
{
    struct frame_decoder d = { .rules = rules, .rule_count = sizeof rules / sizeof *rules };
    struct error err = { 0 };
    int rc = 0;
    while (rc == 0 && in.left > 0) {
        size_t len;
        char *piece = input_piece(&in, step ? step : in.left, &len);
        rc = frame_feed(&d, piece, len, see, seen, &err);
        if (step)
            step = (unsigned char)piece[len - 1] % 40 + 1;
        free(piece);
    }
    if (rc < 0)
        expect_error(rc, &err);
    *partial = frame_is_partial(&d);
    frame_decoder_free(&d);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = { data, size };
    struct seen whole = { 0 }, pieces = { 0 };
    bool whole_partial, pieces_partial;
    size_t step = input_byte(&in) % 40 + 1;
    int rc = feed(in, 0, &whole, &whole_partial);
    expect(feed(in, step, &pieces, &pieces_partial) == rc);
    expect(whole.frames == pieces.frames && whole.sum == pieces.sum);
    expect(whole_partial == pieces_partial);
    return 0;
}
