/* WebSocket frames: byte 0 is the limit of a message, byte 1 the size of the pieces in which the
 * rest arrives, and its first bit says that a client sends them, masked. What comes out must be
 * what comes of the stream that arrives at once, within the limit, and a refusal has its status.
 */
#include "fuzz.h"

#include "base/websocket_frame.h"

struct seen {
    unsigned messages;
    size_t limit, len; /* of the message that is under way */
    uint64_t sum;      /* of all, in order */
    bool closed;
};

static void add(struct seen *seen, const char *data, size_t len)
{
    for (size_t i = 0; i < len; i++)
        seen->sum = (seen->sum ^ (unsigned char)data[i]) * 1099511628211u;
}

static bool see(void *arg, enum websocket_opcode kind, bool end, const char *data, size_t len)
{
    struct seen *seen = arg;
    expect(!seen->closed && (end || len > 0));
    if (kind >= WEBSOCKET_CLOSE) {
        expect(end && len <= WEBSOCKET_CONTROL_MAX);
        seen->closed = kind == WEBSOCKET_CLOSE;
        unsigned status = 0;
        const char *reason;
        size_t n;
        struct error err = { 0 };
        int rc = seen->closed ? websocket_read_close(data, len, &status, &reason, &n, &err) : 0;
        expect(rc < 0 || !seen->closed || status >= 1000);
    } else {
        seen->len += len;
        expect(seen->len <= seen->limit);
        if (end)
            seen->len = 0;
    }
    if (end)
        seen->messages++;
    if (kind < WEBSOCKET_CLOSE)
        add(seen, data, len);
    return true;
}

static int feed(struct input in, bool from_client, size_t limit, size_t step, struct seen *seen)
{
    struct websocket_decoder d = { .message_max = limit, .from_client = from_client };
    struct error err = { 0 };
    enum websocket_status status = 0;
    int rc = 0;
    seen->limit = limit;
    while (rc == 0 && in.left > 0) {
        size_t len;
        char *piece = input_piece(&in, step, &len);
        rc = websocket_decode(&d, piece, len, see, seen, &status, &err);
        free(piece);
    }
    if (rc < 0) {
        expect_error(rc, &err);
        expect(status == WEBSOCKET_WRONG || status == WEBSOCKET_TOO_LARGE);
    }
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = { data, size };
    struct seen whole = { 0 }, pieces = { 0 };
    size_t limit = (size_t)input_byte(&in) * 300;
    unsigned second = input_byte(&in);
    bool from_client = second & 0x80;
    int rc = feed(in, from_client, limit, SIZE_MAX, &whole);
    expect(feed(in, from_client, limit, second % 20 + 1, &pieces) == rc);
    expect(whole.messages == pieces.messages && whole.sum == pieces.sum);
    return 0;
}
