/* The streams of Connect and the protocol buffers in them: byte 0 is the size of the pieces in
 * which the rest, what a server says, is fed. Messages and end are those of the stream fed at once;
 * each message is read as one, and the messages in it, three deep.
 */
#include "fuzz.h"

#include "net/connect.h"
#include "net/protobuf.h"

struct seen {
    unsigned count;
    uint64_t sum;
};

static void walk(const char *data, size_t len, int depth)
{
    struct protobuf_reader r = { data, data + len };
    struct protobuf_field f;
    struct error err = { 0 };
    int rc;
    while ((rc = protobuf_next(&r, &f, &err)) == 1) {
        expect(f.number > 0 && r.at <= r.end);
        if (!f.is_bytes)
            continue;
        expect(f.data >= data && f.len <= (size_t)(data + len - f.data));
        if (depth > 0)
            walk(f.data, f.len, depth - 1);
    }
    if (rc < 0)
        expect_error(rc, &err);
}

static bool see(void *arg, const char *data, size_t len)
{
    struct seen *s = arg;
    s->count++;
    for (size_t i = 0; i < len; i++)
        s->sum = (s->sum ^ (unsigned char)data[i]) * 1099511628211u;
    walk(data, len, 3);
    return true;
}

static int feed(
    struct connect_decoder *d, struct seen *s, const uint8_t *data, size_t size, size_t piece)
{
    struct input in = { data, size };
    struct error err = { 0 };
    int rc = 0;
    while (rc == 0 && in.left > 0) {
        size_t len;
        char *own = input_piece(&in, piece, &len);
        rc = connect_feed(d, own, len, see, s, &err);
        free(own);
        if (rc < 0)
            expect_error(rc, &err);
    }
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct connect_decoder whole = { 0 }, pieces = { 0 };
    struct seen first = { 0 }, second = { 0 };
    if (size < 2)
        return 0;
    int one = feed(&whole, &first, data + 1, size - 1, size);
    int two = feed(&pieces, &second, data + 1, size - 1, (size_t)data[0] % 31 + 1);
    expect(one == two && first.count == second.count && first.sum == second.sum);
    expect(whole.ended == pieces.ended && whole.result.code == pieces.result.code);
    buf_free(&whole.in);
    buf_free(&pieces.in);
    return 0;
}
