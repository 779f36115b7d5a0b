/* Which models are known to read images, by name. */
#include "../test.h"

#include "lm/vision.h"

static void the_longest_beginning_of_a_name_counts(void **state)
{
    static const struct {
        const char *model;
        bool sees;
    } cases[] = {
        { "openai/gpt-5-mini", true },
        { "gpt-4o", true },
        { "gpt-4o-audio-preview", false },
        { "gpt-3.5-turbo", false },
        { "o1", true },
        { "o1-mini", false },
        { "anthropic/claude-sonnet-5-20260101", true },
        { "claude-2.1", false },
        { "openrouter/google/gemini-2.5-flash", true },
        { "replay:gpt-5.jsonl", false },
        { "vllm/mine", false },
        { "", false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(lm_sees_images(cases[i].model), cases[i].sees);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(the_longest_beginning_of_a_name_counts) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
