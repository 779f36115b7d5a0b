/* Rich results that a hostile guest sends: what is malformed is refused, what is too large is left
 * out with a text that says so, and what is kept is what was sent. */
#include "../test.h"

#include "base/cleanup.h"
#include "session/bundles.h"

struct part {
    const char *data;
    size_t len;
};

static struct bundles bundles;

static int bundles_begin(void **state)
{
    bundles = (struct bundles){ 0 };
    return 0;
}

static int bundles_over(void **state)
{
    bundles_free(&bundles);
    return 0;
}

#define bundles_test(f) cmocka_unit_test_setup_teardown(f, bundles_begin, bundles_over)

/* Takes a frame with such a head and parts, in memory of exactly its length. */
static int take_parts(const char *head, const struct part *parts, size_t count, struct error *err)
{
    cleanup_buf struct buf whole = { 0 };
    size_t lengths[64], head_len = strlen(head);
    for (size_t i = 0; i < count; i++)
        lengths[i] = parts[i].len;
    buf_append(&whole, head, head_len);
    frame_parts_begin(&whole, lengths, count);
    for (size_t i = 0; i < count; i++)
        buf_append(&whole, parts[i].data, parts[i].len);
    struct frame frame = { .type = FRAME_DISPLAY,
        .head = whole.data,
        .head_len = head_len,
        .blob = whole.data + head_len,
        .blob_len = whole.len - head_len,
        .body = &whole };
    return bundles_take(&bundles, &frame, err);
}

static int take(const char *head, const char *data, struct error *err)
{
    struct part part = { data, strlen(data) };
    return take_parts(head, &part, 1, err);
}

static int take_text(const char *more, const char *data, struct error *err)
{
    cleanup_buf struct buf head = { 0 };
    buf_printf(&head, "{\"types\":[[\"text/plain\",\"text\"]]%s}", more);
    return take(buf_text(&head), data, err);
}

static void assert_json(const char *expected)
{
    cleanup_buf struct buf json = { 0 };
    bundles_put_json(&bundles, &json);
    assert_string_equal(buf_text(&json), expected);
    assert_ok(json_check(json.data, json.len, &json_limits_large, err));
}

/* A frame without parts whose data are `len` bytes of one letter. */
static int take_large(const char *head, size_t len, struct error *err)
{
    cleanup_free char *data = malloc(len);
    assert_non_null(data);
    memset(data, 'x', len);
    struct part part = { data, len };
    return take_parts(head, &part, 1, err);
}

/* ---- what is kept ---- */

/* Each form as it was sent: text, JSON as it is, bytes. */
static void every_form_is_kept(void **state)
{
    static const struct part parts[] = { { "a\"b\0c", 5 }, { "[1, 2]", 6 }, { "\0\xFF", 2 } };
    assert_ok(take_parts("{\"types\":[[\"text/plain\",\"text\"],[\"application/json\",\"json\"],"
                         "[\"image/png\",\"bytes\"]],\"metadata\":{\"w\":1}}",
        parts, 3, err));
    assert_json("[{\"text/plain\":\"a\\\"b\\u0000c\",\"application/json\":[1, 2],"
                "\"image/png\":\"AP8=\"}]");
    const struct bundle *b = &bundles.items[0];
    assert_int_equal(b->bytes, 13);
    assert_int_equal(bundles.bytes, 13);
    assert_string_equal(b->metadata, "{\"w\":1}");
    assert_string_equal(media_form_name(bundle_find(b, "image/png")->form), "bytes");
    assert_null(bundle_find(b, "image/gif"));
}

/* {"clear": true} removes all, and the limits begin again; with parts it is malformed. */
static void a_clear_removes_all(void **state)
{
    static const char clear[] = "{\"clear\":true}";
    struct frame frame = { .type = FRAME_DISPLAY, .head = clear, .head_len = strlen(clear) };
    bundles.limit = bundles.each = 4;
    assert_ok(take_text("", "1234", err));
    assert_ok(bundles_take(&bundles, &frame, err));
    assert_int_equal(bundles.latest, 0);
    assert_json("[]");
    assert_ok(take_text("", "5678", err));
    assert_json("[{\"text/plain\":\"5678\"}]");
    assert_fails_saying(ERROR_PROTOCOL, "a removal of results", take(clear, "x", err));
}

/* A large one keeps the frame's memory, a small one a copy; nothing refers to what was freed. */
static void large_and_small_are_kept(void **state)
{
    for (size_t len = (64 << 10) - 20; len < (64 << 10) + 20; len += 8) {
        const char *head = "{\"types\":[[\"text/plain\",\"text\"]]}";
        assert_ok(take_large(head, len, err));
        const struct bundle_item *item = &bundles.items[bundles.count - 1].items[0];
        assert_int_equal(item->len, len);
        assert_true(item->data[0] == 'x' && item->data[len - 1] == 'x');
        assert_string_equal(item->type, "text/plain");
    }
    assert_null(bundles.items[0].frame);
    assert_non_null(bundles.items[bundles.count - 1].frame);
}

/* The value of the last expression is one; a text that the cell has comes with it, unless it has
 * one of its own. */
static void the_main_value_has_a_text(void **state)
{
    assert_ok(take("{\"types\":[[\"text/html\",\"text\"]],\"main\":true}", "<b>", err));
    assert_ok(take_text("", "shown", err));
    assert_int_equal(bundles_main(&bundles), 0);
    assert_fails_saying(ERROR_PROTOCOL, "second value", take_text(",\"main\":true", "x", err));
    assert_ok(bundles_end(&bundles, "repr", err));
    assert_ok(bundles_end(&bundles, "other", err));
    assert_json("[{\"text/plain\":\"repr\",\"text/html\":\"<b>\"},{\"text/plain\":\"shown\"}]");
}

/* Without a bundle of its own the value is a text; no text is not a bundle. */
static void a_value_without_a_bundle_is_its_text(void **state)
{
    assert_ok(bundles_end(&bundles, NULL, err));
    assert_json("[]");
    assert_int_equal(bundles_main(&bundles), -1);
    assert_ok(bundles_end(&bundles, "42", err));
    assert_json("[{\"text/plain\":\"42\"}]");
    assert_int_equal(bundles_main(&bundles), 0);
}

/* ---- updates ---- */

/* An update replaces the last result of its id where that stands; without one it is a result. */
static void an_update_replaces(void **state)
{
    assert_ok(take_text(",\"id\":\"p\"", "first", err));
    assert_ok(take_text(",\"id\":\"p\"", "second", err));
    assert_ok(take_text("", "between", err));
    assert_ok(take_text(",\"id\":\"p\",\"update\":true", "100 %", err));
    assert_ok(take_text(",\"id\":\"q\",\"update\":true", "new", err));
    assert_ok(take_text(",\"update\":true", "no id", err));
    assert_json(
        "[{\"text/plain\":\"first\"},{\"text/plain\":\"100 %\"},{\"text/plain\":\"between\"},"
        "{\"text/plain\":\"new\"},{\"text/plain\":\"no id\"}]");
    assert_int_equal(bundles.bytes, 5 + 5 + 7 + 3 + 5);
}

/* An update needs no further room: neither the number of results nor the bytes of what it replaces
 * stand against it. */
static void an_update_needs_no_room(void **state)
{
    const char *head = "{\"types\":[[\"image/png\",\"bytes\"]],\"id\":\"p\",\"update\":true}";
    assert_ok(take_large(head, 40 << 20, err));
    assert_ok(take_large(head, 41 << 20, err));
    assert_int_equal(bundles.count, 1);
    assert_int_equal(bundles.bytes, 41 << 20);
    while (bundles.count < BUNDLES_MAX)
        assert_ok(take_text("", "x", err));
    assert_ok(take_large(head, 3, err));
    assert_int_equal(bundles.left_out, 0);
    assert_int_equal(bundles.items[0].items[0].len, 3);
}

/* ---- bounds ---- */

/* What exceeds the bytes of a cell becomes a text with its size; what follows still fits. */
static void too_many_bytes_become_a_text(void **state)
{
    const char *head = "{\"types\":[[\"image/png\",\"bytes\"]]}";
    assert_ok(take_large(head, BUNDLES_BYTES - 200, err));
    assert_ok(take_large(head, 201, err));
    assert_ok(take_large(head, 10, err));
    assert_int_equal(bundles.count, 3);
    assert_non_null(strstr(bundles.items[1].items[0].data, "a result of 201 bytes left out"));
    assert_int_equal(bundles.items[2].items[0].len, 10);
}

/* The limit may be lower, and is named. */
static void a_lower_limit_is_kept(void **state)
{
    const char *head = "{\"types\":[[\"image/png\",\"bytes\"]]}";
    bundles.limit = 1000;
    assert_ok(take_large(head, 1000, err));
    assert_ok(take_large(head, 1, err));
    assert_int_equal(bundles.items[0].items[0].len, 1000);
    assert_non_null(strstr(bundles.items[1].items[0].data, "a cell may have 1000 bytes"));
}

/* Further results are counted, and one text tells how many. */
static void too_many_results_are_counted(void **state)
{
    for (size_t i = 0; i < BUNDLES_MAX + 3; i++)
        assert_ok(take_text("", "x", err));
    assert_int_equal(bundles.count, BUNDLES_MAX);
    assert_ok(bundles_end(&bundles, NULL, err));
    assert_int_equal(bundles.count, BUNDLES_MAX + 1);
    assert_non_null(strstr(bundles.items[BUNDLES_MAX].items[0].data, "3 further results left out"));
}

/* JSON that the host would not pass on is left out; a text says why, unless there is one. */
static void bad_json_is_left_out(void **state)
{
    static const struct part parts[] = { { "{\"a\":NaN}", 9 }, { "text", 4 } };
    assert_ok(take("{\"types\":[[\"application/json\",\"json\"]]}", "[1,", err));
    assert_non_null(strstr(bundles.items[0].items[0].data, "application/json of 3 bytes left out"));
    assert_null(bundle_find(&bundles.items[0], "application/json"));
    assert_ok(take_parts(
        "{\"types\":[[\"application/json\",\"json\"],[\"text/plain\",\"text\"]]}", parts, 2, err));
    assert_int_equal(bundles.items[1].count, 1);
    assert_int_equal(bundles.items[1].bytes, 4);
    assert_memory_equal(bundle_find(&bundles.items[1], "text/plain")->data, "text", 4);
}

/* ---- what is malformed ---- */

/* A head that is not what a guest of ours sends is an error of the protocol, and adds nothing. */
static void a_malformed_head_is_refused(void **state)
{
    static const struct {
        const char *head, *words;
    } bad[] = {
        { "[]", "not an object" },
        { "{}", "0 types and 1 parts" },
        { "{\"types\":[]}", "0 types" },
        { "{\"types\":[[\"text/plain\",\"text\"],[\"a/b\",\"text\"]]}", "2 types and 1 parts" },
        { "{\"types\":[\"text/plain\"]}", "not a pair" },
        { "{\"types\":[[\"text/plain\"]]}", "not a pair" },
        { "{\"types\":[[\"text/plain\",\"image\"]]}", "unknown form" },
        { "{\"types\":[[\"text/plain\",null]]}", "unknown form" },
        { "{\"types\":[[\"text\",\"text\"]]}", "malformed media type" },
        { "{\"types\":[[\"/plain\",\"text\"]]}", "malformed media type" },
        { "{\"types\":[[\"text/\",\"text\"]]}", "malformed media type" },
        { "{\"types\":[[\"a/b/c\",\"text\"]]}", "malformed media type" },
        { "{\"types\":[[\"a/../b\",\"text\"]]}", "malformed media type" },
        { "{\"types\":[[\"a/b\\u0000\",\"text\"]]}", "malformed media type" },
        { "{\"types\":[[\"a b/c\",\"text\"]]}", "malformed media type" },
        { "{\"types\":[[7,\"text\"]]}", "malformed media type" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_fails_saying(ERROR_PROTOCOL, bad[i].words, take(bad[i].head, "x", err));
    assert_fails(ERROR_PROTOCOL, take("{\"types\":", "x", err));
    assert_int_equal(bundles.count, 0);
    assert_int_equal(bundles.bytes, 0);
}

/* Names of a type have 127 characters each; ids are bounded, too. */
static void names_are_bounded(void **state)
{
    for (int len = 127; len <= 128; len++)
        for (int first = 0; first < 2; first++) {
            char name[256], head[512];
            struct error err = { 0 };
            memset(name, 'n', sizeof name);
            snprintf(head, sizeof head, "{\"types\":[[\"%.*s/%.*s\",\"text\"]]}", first ? len : 1,
                name, first ? 1 : len, name);
            assert_int_equal(take(head, "x", &err), len == 127 ? 0 : -(int)ERROR_PROTOCOL);
        }
    for (int len = 256; len <= 257; len++) {
        char more[300];
        struct error err = { 0 };
        snprintf(more, sizeof more, ",\"id\":\"%0*d\"", len, 7);
        assert_int_equal(take_text(more, "x", &err), len == 256 ? 0 : -(int)ERROR_PROTOCOL);
    }
}

/* Two items of one type, and a text that is not UTF-8, are errors of the protocol. */
static void items_are_different_and_text_is_utf8(void **state)
{
    static const struct part parts[] = { { "a", 1 }, { "b", 1 } };
    assert_fails_saying(ERROR_PROTOCOL, "two items of one type",
        take_parts("{\"types\":[[\"a/b\",\"text\"],[\"a/b\",\"bytes\"]]}", parts, 2, err));
    assert_fails_saying(ERROR_PROTOCOL, "not UTF-8", take_text("", "a\xC3", err));
    assert_ok(take("{\"types\":[[\"image/png\",\"bytes\"]]}", "a\xC3", err));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        bundles_test(every_form_is_kept),
        bundles_test(a_clear_removes_all),
        bundles_test(large_and_small_are_kept),
        bundles_test(the_main_value_has_a_text),
        bundles_test(a_value_without_a_bundle_is_its_text),
        bundles_test(an_update_replaces),
        bundles_test(an_update_needs_no_room),
        bundles_test(a_lower_limit_is_kept),
        bundles_test(too_many_bytes_become_a_text),
        bundles_test(too_many_results_are_counted),
        bundles_test(bad_json_is_left_out),
        bundles_test(a_malformed_head_is_refused),
        bundles_test(names_are_bounded),
        bundles_test(items_are_different_and_text_is_utf8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
