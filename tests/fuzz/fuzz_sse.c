/* An event stream: byte 0 is the limit of an event, byte 1 the size of the pieces in which the rest
 * arrives. The events must be those of the stream that arrives at once.
 */
#include "fuzz.h"

#include "net/sse.h"

struct seen {
    unsigned events;
    uint64_t sum; /* of their data, in order */
};

static void see(struct seen *seen, const struct sse *s)
{
    expect(s->data.len <= s->limit);
    seen->events++;
    seen->sum = (seen->sum ^ s->data.len) * 1099511628211u;
    for (size_t i = 0; i < s->data.len; i++)
        seen->sum = (seen->sum ^ (unsigned char)s->data.data[i]) * 1099511628211u;
}

static int feed(struct input in, size_t limit, size_t step, struct seen *seen)
{
    struct sse s = { .limit = limit, .code = ERROR_PROTOCOL };
    struct error err = { 0 };
    int rc = 0;
    while (rc == 0 && in.left > 0) {
        size_t len;
        char *piece = input_piece(&in, step, &len);
        const char *p = piece;
        while ((rc = sse_next(&s, &p, piece + len, &err)) > 0)
            see(seen, &s);
        expect(rc < 0 || p == piece + len);
        free(piece);
    }
    if (rc < 0)
        expect_error(rc, &err);
    sse_free(&s);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = { data, size };
    struct seen whole = { 0 }, pieces = { 0 };
    size_t limit = (size_t)input_byte(&in) * 8, step = input_byte(&in) % 20 + 1;
    int rc = feed(in, limit, SIZE_MAX, &whole);
    expect(feed(in, limit, step, &pieces) == rc);
    expect(whole.events == pieces.events && whole.sum == pieces.sum);
    return 0;
}
