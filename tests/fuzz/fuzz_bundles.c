/* Rich results of a cell: the input is a sequence of DISPLAY frames, each a head, the lengths of
 * its parts, and their bytes. What is accepted is valid: media types, UTF-8, JSON, and within its
 * bounds; all of it as JSON is JSON.
 */
#include "fuzz.h"

#include "base/cleanup.h"
#include "session/bundles.h"

enum { PARTS = 4 };

static void expect_item(const struct bundle_item *item)
{
    const char *slash = strchr(item->type, '/');
    expect(slash && slash != item->type && slash[1] && strlen(item->type) <= 255);
    if (item->form != MEDIA_BYTES)
        expect(text_is_utf8(item->data, item->len, NULL));
    if (item->form == MEDIA_JSON)
        expect(json_check(item->data, item->len, &json_limits_large, NULL) == 0);
}

static void expect_bundles(const struct bundles *bundles)
{
    size_t bytes = 0, mains = 0;
    for (size_t i = 0; i < bundles->count; i++) {
        const struct bundle *b = &bundles->items[i];
        expect(b->count <= BUNDLES_TYPES_MAX + 1);
        for (size_t j = 0; j < b->count; j++) {
            expect_item(&b->items[j]);
            expect(bundle_find(b, b->items[j].type) == &b->items[j]);
            bytes += b->items[j].len;
        }
        mains += b->is_main;
    }
    expect(mains <= 1 && bytes == bundles->bytes);
}

/* One frame from the input; negative as bundles_take. */
static int take(struct bundles *bundles, struct input *in)
{
    size_t head_len, body_len, lengths[PARTS];
    size_t count = input_byte(in) % (PARTS + 1);
    cleanup_free char *head = input_piece(in, input_byte(in), &head_len);
    cleanup_free char *body = input_piece(in, input_byte(in), &body_len);
    /* Now and then large enough that the memory is taken over instead of copied. */
    size_t filler = input_byte(in) == 1 ? 70000 : 0;
    cleanup_buf struct buf whole = { 0 };
    struct error err = { 0 };
    for (size_t i = 0, left = body_len; i < count; left -= lengths[i++])
        lengths[i] = i + 1 < count ? input_byte(in) % (left + 1) : left;
    if (count > 0)
        lengths[count - 1] += filler;
    buf_append(&whole, head, head_len);
    frame_parts_begin(&whole, lengths, count);
    buf_append(&whole, body, count > 0 ? body_len : 0);
    for (size_t i = 0; i < (count > 0 ? filler : 0); i++)
        buf_putc(&whole, ' ');
    struct frame frame = { .type = FRAME_DISPLAY,
        .head = buf_text(&whole),
        .head_len = head_len,
        .blob = buf_text(&whole) + head_len,
        .blob_len = whole.len - head_len,
        .body = &whole };
    int rc = bundles_take(bundles, &frame, &err);
    if (rc < 0)
        expect_error(rc, &err);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = { data, size };
    struct bundles bundles = { 0 };
    cleanup_buf struct buf json = { 0 };
    bool has_text = input_byte(&in) % 2;
    int rc = 0;
    while (rc == 0 && in.left > 0)
        rc = take(&bundles, &in);
    expect_bundles(&bundles);
    expect(bundles_end(&bundles, has_text ? "text" : NULL, NULL) == 0);
    expect(!has_text || bundles_main(&bundles) >= 0);
    bundles_put_json(&bundles, &json);
    expect(json_check(buf_text(&json), json.len, &json_limits_large, NULL) == 0);
    bundles_free(&bundles);
    return 0;
}
