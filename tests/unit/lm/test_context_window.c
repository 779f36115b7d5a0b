/* The sizes of models' context windows, by name. */
#include "../test.h"

#include "lm/context_window.h"

static void the_longest_beginning_of_a_name_counts(void **state)
{
    static const struct {
        const char *model;
        int64_t tokens;
    } cases[] = {
        { "openai/gpt-5-mini", 400000 },
        { "gpt-4.1", 1047576 },
        { "gpt-4o", LM_WINDOW_DEFAULT },
        { "anthropic/claude-sonnet-5-20260101", 200000 },
        { "openrouter/anthropic/claude-opus-5", 200000 },
        { "gemini/gemini-2.5-flash", 1048576 },
        { "replay:gpt-5.jsonl", LM_WINDOW_DEFAULT },
        { "vllm/mine", LM_WINDOW_DEFAULT },
        { "", LM_WINDOW_DEFAULT },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(lm_window(cases[i].model), cases[i].tokens);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(the_longest_beginning_of_a_name_counts) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
