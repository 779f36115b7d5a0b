/* What a node of a cluster reads of others: byte 0 chooses what it is. What is taken from a node's
 * entry, a ledger, a window, a message of a run's log, a stream's subject or a ticket fits where it
 * is kept, and is what its format allows.
 */
#include "fuzz.h"

#include "base/cleanup.h"
#include "cluster/ledger.h"
#include "cluster/nats_internal.h"
#include "cluster/rates.h"
#include "serve/http/nodes.h"
#include "serve/queue/queue.h"

static void read_node(const char *text, size_t len)
{
    struct node node;
    if (!registry_read_node(text, len, &node))
        return;
    expect(node.name[0] && strlen(node.name) < sizeof node.name);
    expect(strlen(node.address) < sizeof node.address && strlen(node.version) < 16);
    expect(node.sandboxes <= INT64_MAX && node.most <= INT64_MAX);
    expect(node.number == 0 && node.revision == 0 && !node.is_lost);
}

/* One that is read is written as it was, and stays within a limit whatever is taken from it. */
static void read_ledger(const char *text, size_t len)
{
    struct ledger_value v, again;
    cleanup_buf struct buf written = { 0 };
    uint64_t sum = 0, limit = 1000000000;
    if (!ledger_read(text, len, &v))
        return;
    for (size_t i = 0; i < v.count; i++)
        sum += v.holds[i].nano;
    expect(sum == v.held);
    ledger_write(&v, &written);
    expect(ledger_read(buf_text(&written), written.len, &again));
    expect(again.day == v.day && again.spent == v.spent && again.held == v.held);
    ledger_free(&again);
    uint64_t used = v.spent + v.held;
    ledger_take(&v, "a run", limit, 5);
    expect(v.spent + v.held == used || v.spent + v.held <= limit);
    while (v.count > 0) {
        char holder[LEDGER_HOLDER_MAX + 1];
        snprintf(holder, sizeof holder, "%s", v.holds[0].holder);
        expect(ledger_end(&v, holder, UINT64_MAX));
    }
    expect(v.held == 0);
    ledger_free(&v);
}

/* The same of a window of rates. */
static void read_window(const char *text, size_t len)
{
    struct rate_window w, again;
    struct rate_slice slice;
    cleanup_buf struct buf written = { 0 };
    const struct rate_ask ask = { "a node", { 100, 0 }, { 5, 5 }, { 20, 20 } };
    if (!rates_read(text, len, &w))
        return;
    rates_write(&w, &written);
    expect(rates_read(buf_text(&written), written.len, &again));
    expect(memcmp(&again, &w, sizeof w) == 0);
    if (rate_take(&w, 1000000, 1003000, &ask, &slice)) {
        int64_t sum = 0;
        for (size_t i = 0; i < w.count; i++)
            sum += w.slices[i].amount.requests;
        expect(sum <= 100 && slice.amount.requests >= 5);
    }
    expect(rate_wait_ms(&w, 1000000, &ask) >= 0);
}

/* Messages, each with a length before it. */
static void read_log(struct input *in)
{
    struct queue_reading r = { 0 };
    uint64_t sequence = 0;
    while (in->left > 0) {
        size_t len;
        char *piece = input_piece(in, input_byte(in), &len);
        struct queue_head head;
        if (queue_head_read(piece, len, &head))
            expect(head.data + head.len == piece + len && strlen(head.owner) <= 16);
        queue_reading_take(
            &r, &(struct bus_answer){ .data = piece, .len = len, .sequence = ++sequence });
        free(piece);
    }
    expect(r.sequence == sequence && r.failures + r.taken <= sequence);
    queue_reading_free(&r);
}

static void read_origin(const char *text)
{
    struct message_origin origin;
    if (message_read_origin(text, &origin))
        expect(origin.consumer >= text &&
               origin.consumer + origin.consumer_len <= text + strlen(text));
}

static void read_ticket(const char *text)
{
    const char *mac;
    int64_t expires_ms, now_ms = 1700000000000;
    if (nodes_read_ticket(text, now_ms, &expires_ms, &mac))
        expect(expires_ms >= now_ms && mac > text && mac <= text + strlen(text) && mac[-1] == ' ');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    struct input in = { data + 1, size - 1 };
    cleanup_free char *text = malloc(size);
    expect(text);
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    switch ((uint8_t)(data[0] - '0') % 6) {
    case 0:
        read_node(text, strlen(text));
        break;
    case 1:
        read_ledger(text, strlen(text));
        break;
    case 2:
        read_log(&in);
        break;
    case 3:
        read_origin(text);
        break;
    case 5:
        read_window(text, strlen(text));
        break;
    default:
        read_ticket(text);
    }
    return 0;
}
