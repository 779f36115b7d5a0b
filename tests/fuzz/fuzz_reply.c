/* A model's reply: blocks and final answers lie within it, and looking for them comes to an end. */
#include "fuzz.h"

#include "rlm/parse.h"

static void find_blocks(const char *text, size_t len)
{
    struct reply_block block;
    size_t at = 0, before = 0;
    while (reply_next_block(text, len, &at, &block)) {
        expect(at > before && at <= len);
        expect(block.code >= text + before && block.code <= text + at);
        expect(block.len <= (size_t)(text + at - block.code));
        before = at;
    }
    expect(at >= len);
}

static void find_final(const char *text, size_t len)
{
    const char *value = NULL;
    size_t value_len = 0;
    if (reply_find_final(text, len, &value, &value_len) == FINAL_NONE)
        return;
    expect(value >= text && value <= text + len);
    expect(value_len <= (size_t)(text + len - value));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = { data, size };
    size_t len;
    char *text = input_piece(&in, size, &len);
    find_blocks(text, len);
    find_final(text, len);
    free(text);
    return 0;
}
