/* Images of rich results: which of them the model sees. Their bytes are a guest's. */
#include "../test.h"

#include "base/cleanup.h"
#include "rlm/run.h"

static struct tree tree;
static struct rlm_run run;
static struct message messages[2];
static char some_model[] = "some/model", seeing_model[] = "openai/gpt-5-mini";

static int images_begin(void **state)
{
    tree = (struct tree){ .o = { .max_images = 4, .images_of_all = true } };
    memset(messages, 0, sizeof messages);
    run = (struct rlm_run){ .tree = &tree, .messages = messages, .model = some_model };
    return 0;
}

static int images_end(void **state)
{
    images_drop(&run);
    for (size_t i = 0; i < array_length(messages); i++)
        images_free(&messages[i].images);
    return 0;
}

#define images_test(f) cmocka_unit_test_setup_teardown(f, images_begin, images_end)

/* A PNG's first 33 bytes, of this size in pixels. */
#define PNG(width, height)                                                                         \
    "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0" width "\0\0" height "\x08\x02\0\0\0abcd"
/* A JPEG's signature, and the header of its frame. */
#define JPEG(before, sides) "\xFF\xD8" before "\xFF\xC0\0\x0B\x08" sides "\1\1"

static const char png[] = PNG("\x00\x20", "\x1F\x40"); /* 32 by 8000 */
static const char jpeg[] = JPEG("\xFF\xE0\0\x04"
                                "ab",
    "\0\x10\0\x10");

static int take_one(const char *type, enum media_form form, const char *data, size_t len)
{
    struct bundle_item item = { .type = type, .form = form, .data = data, .len = len };
    struct bundle bundle = { .items = &item, .count = 1 };
    const struct bundles results = { .items = &bundle, .count = 1 };
    size_t before = run.images.count;
    assert_ok(images_take(&run, &results, err));
    return (int)(run.images.count - before);
}

#define takes(type, data)  assert_int_equal(take_one(type, MEDIA_BYTES, data, sizeof data - 1), 1)
#define leaves(type, data) assert_int_equal(take_one(type, MEDIA_BYTES, data, sizeof data - 1), 0)

static void sound_headers_are_taken(void **state)
{
    takes("image/png", png);
    takes("image/jpeg", jpeg);
    assert_string_equal(run.images.items[0].type, "image/png");
    assert_memory_equal(run.images.items[1].data, jpeg, sizeof jpeg - 1);
    assert_int_equal(run.images_left_out, 0);
}

/* A provider would refuse the whole request for one image that is none. */
static void what_is_no_image_is_not_sent(void **state)
{
    leaves("image/png", jpeg);
    leaves("image/jpeg", png);
    leaves("image/png", "\x89PNG\r\n\x1a\n");
    leaves("image/jpeg", "\xFF\xD8\xFF\xC0");
    leaves("image/jpeg", "");
    leaves("image/gif", png);
    assert_int_equal(take_one("image/png", MEDIA_TEXT, png, sizeof png - 1), 0);
    assert_int_equal(take_one("image/png", MEDIA_BYTES, png, 32), 0);
    assert_int_equal(run.images_left_out, 0);
}

static void sides_are_within_what_providers_accept(void **state)
{
    static const char none[] = PNG("\0\0", "\0\1"), wide[] = PNG("\x1F\x41", "\0\1");
    static const char flat[] = JPEG("", "\0\0\0\1"), high[] = JPEG("", "\x1F\x41\0\1");
    static const char largest[] = JPEG("", "\x1F\x40\x1F\x40");
    leaves("image/png", none);
    leaves("image/png", wide);
    leaves("image/jpeg", flat);
    leaves("image/jpeg", high);
    takes("image/jpeg", largest);
}

/* Segments are skipped by their lengths, which may lead anywhere; before a marker may stand any
 * number of fill bytes (ITU T.81, B.1.1.2). */
static void the_frame_of_a_jpeg_is_found(void **state)
{
    static const char tables[] = JPEG("\xFF\xC4\0\x03x\xFF\xDB\0\x02", "\0\x10\0\x10");
    static const char filled[] = JPEG("\xFF", "\0\x10\0\x10");
    static const char filled_twice[] = JPEG("\xFF\xFF", "\0\x10\0\x10");
    static const char beyond[] = JPEG("\xFF\xE0\xFF\xFF", "\0\x10\0\x10");
    static const char zero[] = JPEG("\xFF\xE0\0\0", "\0\x10\0\x10");
    static const char lost[] = JPEG("\xFF\xE0\0\x03", "\0\x10\0\x10");
    takes("image/jpeg", tables);
    takes("image/jpeg", filled);
    takes("image/jpeg", filled_twice);
    leaves("image/jpeg", beyond);
    leaves("image/jpeg", lost);
    assert_true(take_one("image/jpeg", MEDIA_BYTES, zero, sizeof zero - 1) >= 0);
}

static void those_beyond_the_setting_are_counted(void **state)
{
    cleanup_buf struct buf text = { 0 };
    tree.o.max_images = 2;
    takes("image/png", png);
    takes("image/png", png);
    leaves("image/png", png);
    images_tell(&run, "that this code showed", &text);
    assert_string_equal(buf_text(&text),
        "\n[2 images that this code showed: below, in order]\n"
        "\n[1 further image is not shown to you: too many or too large]\n");
    images_drop(&run);
    buf_clear(&text);
    images_tell(&run, "that this code showed", &text);
    assert_int_equal(text.len, 0);
}

/* A model that is not known to read images gets none, unless the user said how many. */
static void a_model_that_sees_nothing_gets_none(void **state)
{
    tree.o.images_of_all = false;
    leaves("image/png", png);
    assert_int_equal(run.images_left_out, 0);
    run.model = seeing_model;
    takes("image/png", png);
}

static void a_request_has_a_bounded_size(void **state)
{
    enum { LARGE = (3 << 20) + 1 };
    cleanup_free char *large = calloc(1, LARGE);
    assert_non_null(large);
    memcpy(large, png, sizeof png - 1);
    tree.o.max_images = 100;
    assert_int_equal(take_one("image/png", MEDIA_BYTES, large, LARGE), 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(take_one("image/png", MEDIA_BYTES, large, LARGE - 1), 1);
    leaves("image/png", png); /* 12 MiB are full */
    assert_int_equal(run.images_left_out, 2);
}

/* Those of earlier messages, which the model sees again, count too. */
static void a_conversation_has_twenty(void **state)
{
    tree.o.max_images = 100;
    run.message_count = 1;
    for (int i = 0; i < 15; i++)
        takes("image/png", png);
    images_attach(&run);
    assert_int_equal(messages[0].images.count, 15);
    assert_int_equal(run.images.count, 0);
    for (int i = 0; i < 5; i++)
        takes("image/png", png);
    leaves("image/png", png);
}

static void a_message_has_its_text_first(void **state)
{
    struct lm_part parts[3];
    run.message_count = 1;
    messages[0].text = (char *)"look";
    messages[0].len = 4;
    takes("image/png", png);
    takes("image/jpeg", jpeg);
    images_attach(&run);
    assert_int_equal(images_parts(&messages[0], parts), 3);
    assert_int_equal(parts[0].kind, LM_PART_TEXT);
    assert_string_equal(parts[1].media_type, "image/png");
    assert_string_equal(parts[2].media_type, "image/jpeg");
}

static void the_record_names_them_by_their_hashes(void **state)
{
    cleanup_buf struct buf json = { 0 };
    takes("image/png", png);
    images_put_json(&run.images, &json);
    assert_non_null(strstr(buf_text(&json), ",\"images\":[{\"type\":\"image/png\",\"bytes\":33,"));
    assert_non_null(strstr(buf_text(&json), run.images.items[0].hash));
    assert_int_equal(strlen(run.images.items[0].hash), 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        images_test(sound_headers_are_taken),
        images_test(what_is_no_image_is_not_sent),
        images_test(sides_are_within_what_providers_accept),
        images_test(the_frame_of_a_jpeg_is_found),
        images_test(those_beyond_the_setting_are_counted),
        images_test(a_model_that_sees_nothing_gets_none),
        images_test(a_request_has_a_bounded_size),
        images_test(a_conversation_has_twenty),
        images_test(a_message_has_its_text_first),
        images_test(the_record_names_them_by_their_hashes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
