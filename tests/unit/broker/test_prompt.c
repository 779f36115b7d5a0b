/* Converting a guest's prompts into messages for a model: texts, lists of messages, parts. */
#include "../test.h"

#include "base/cleanup.h"
#include "broker/prompt.h"

static struct prompt prompt;

static int open_text(const char *text, bool is_messages, struct error *err)
{
    struct json_limits limits = prompt_limits;
    return prompt_open(&prompt, text, strlen(text), is_messages, &limits, err);
}

static void a_text_is_one_message_of_a_user(void **state)
{
    assert_ok(open_text("[not json", false, err));
    assert_int_equal(prompt.count, 1);
    assert_string_equal(prompt.messages[0].role, "user");
    assert_string_equal(prompt.messages[0].text, "[not json");
    prompt_close(&prompt);
}

static void messages_keep_their_order_roles_and_zero_bytes(void **state)
{
    assert_ok(open_text("[{\"role\":\"system\",\"content\":\"a\\u0000b\"},"
                        "{\"role\":\"assistant\",\"content\":\"\"}]",
        true, err));
    assert_int_equal(prompt.count, 2);
    assert_string_equal(prompt.messages[0].role, "system");
    assert_int_equal(prompt.messages[0].len, 3);
    assert_memory_equal(prompt.messages[0].text, "a\0b", 3);
    assert_string_equal(prompt.messages[1].role, "assistant");
    assert_int_equal(prompt.messages[1].len, 0);
    prompt_close(&prompt);
}

static void parts_are_texts_and_bytes(void **state)
{
    assert_ok(open_text("[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"what?\"},"
                        "{\"type\":\"image\",\"media_type\":\"image/png\",\"data\":\"AAEC\"}]},"
                        "{\"role\":\"user\",\"content\":[{\"type\":\"document\",\"media_type\":"
                        "\"application/pdf\",\"data\":\"\"}]}]",
        true, err));
    const struct lm_message *m = prompt.messages;
    assert_int_equal(m[0].part_count, 2);
    assert_int_equal(m[0].parts[0].kind, LM_PART_TEXT);
    assert_string_equal(m[0].parts[0].data, "what?");
    assert_int_equal(m[0].parts[1].kind, LM_PART_IMAGE);
    assert_string_equal(m[0].parts[1].media_type, "image/png");
    assert_int_equal(m[0].parts[1].len, 3);
    assert_memory_equal(m[0].parts[1].data, "\0\1\2", 3);
    assert_int_equal(m[1].part_count, 1);
    assert_int_equal(m[1].parts[0].kind, LM_PART_DOCUMENT);
    assert_int_equal(m[1].parts[0].len, 0);
    prompt_close(&prompt);
}

static void what_is_no_prompt_is_refused_in_words(void **state)
{
    static const struct {
        const char *text, *word;
    } wrong[] = {
        { "{}", "1 to 10000 messages" },
        { "[]", "1 to 10000 messages" },
        { "[1]", "the role of message 0 is ''" },
        { "[{\"role\":\"user\"}]", "must be a text or a list" },
        { "[{\"role\":\"user\",\"content\":{}}]", "must be a text or a list" },
        { "[{\"role\":\"tool\",\"content\":\"x\"}]", "the role of message 0 is 'tool'" },
        { "[{\"role\":\"user\",\"content\":[]}]", "has no parts" },
        { "[{\"role\":\"user\",\"content\":[[]]}]", "the unknown type ''" },
        { "[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]", "has no text" },
        { "[{\"role\":\"user\",\"content\":[{\"type\":\"audio\"}]}]", "'audio'" },
        { "[{\"role\":\"user\",\"content\":[{\"type\":\"image\",\"data\":\"A\"}]}]",
            "not valid base64" },
        { "[{\"role\":\"user\",\"content\":[{\"type\":\"image\",\"data\":7}]}]",
            "not valid base64" },
        { "[{\"role\":\"user\",\"content\":[{\"type\":\"image\",\"data\":\"AAAA\"},"
          "{\"type\":\"image\"}]}]",
            "not valid base64" },
    };
    for (size_t i = 0; i < array_length(wrong); i++) {
        struct error why = { 0 };
        assert_int_equal(open_text(wrong[i].text, true, &why), -(int)ERROR_ARGUMENT);
        if (!strstr(why.text, wrong[i].word))
            fail_msg("%s: %s", wrong[i].text, why.text);
    }
    assert_fails(ERROR_ARGUMENT, open_text("", false, err));
    assert_fails(ERROR_ARGUMENT, open_text("\xff", false, err));
}

/* A list of so many messages that each hold a list of junk, which is passed over but has to be
 * built. */
static void write_list(struct buf *out, unsigned messages, unsigned junk)
{
    for (unsigned i = 0; i < messages; i++) {
        buf_puts(out, i ? "," : "[");
        buf_puts(out, "{\"role\":\"user\",\"content\":\"x\",\"junk\":[0");
        for (unsigned k = 1; k < junk; k++)
            buf_puts(out, ",0");
        buf_puts(out, "]}");
    }
    buf_putc(out, ']');
}

/* What the lists of one call have is bounded for all of them together, whatever they have; as many
 * messages as a list may have fit. */
static void values_are_bounded_for_all_lists_of_a_call(void **state)
{
    cleanup_buf struct buf most = { 0 }, half = { 0 }, over = { 0 };
    struct json_limits limits = prompt_limits;
    write_list(&most, 10000, 1);
    write_list(&half, 1, 60000);
    write_list(&over, 1, 3900000);
    assert_ok(open_text(buf_text(&most), true, err));
    assert_int_equal(prompt.count, 10000);
    prompt_close(&prompt);
    assert_ok(prompt_open(&prompt, half.data, half.len, true, &limits, err));
    prompt_close(&prompt);
    assert_fails(ERROR_ARGUMENT, prompt_open(&prompt, half.data, half.len, true, &limits, err));
    assert_fails(ERROR_ARGUMENT, open_text(buf_text(&over), true, err));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_is_one_message_of_a_user),
        cmocka_unit_test(messages_keep_their_order_roles_and_zero_bytes),
        cmocka_unit_test(parts_are_texts_and_bytes),
        cmocka_unit_test(what_is_no_prompt_is_refused_in_words),
        cmocka_unit_test(values_are_bounded_for_all_lists_of_a_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
