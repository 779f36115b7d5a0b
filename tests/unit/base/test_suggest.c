/* Suggestions: a typing mistake finds its word, and another word finds nothing. */
#include "../test.h"

#include "base/cleanup.h"
#include "base/suggest.h"

static const char *suggest(const char *typed)
{
    static const char *const words[] = { "model", "sub-model", "memory", "runs", "run",
        "max-cost" };
    struct suggestion s = { .typed = typed, .len = strlen(typed) };
    for (size_t i = 0; i < array_length(words); i++)
        suggestion_consider(&s, words[i]);
    return suggestion_best(&s);
}

/* A letter that is swapped, missing, doubled or wrong. */
static void mistakes_find_their_word(void **state)
{
    static const struct {
        const char *typed, *meant;
    } cases[] = { { "modle", "model" }, { "mdel", "model" }, { "modell", "model" },
        { "memary", "memory" }, { "memroy", "memory" }, { "rnu", "run" }, { "rnus", "runs" },
        { "maxcost", "max-cost" }, { "sub-modle", "sub-model" } };
    for (size_t i = 0; i < array_length(cases); i++)
        assert_string_equal(suggest(cases[i].typed), cases[i].meant);
}

static void another_word_finds_nothing(void **state)
{
    static const char *const others[] = { "frobnicate", "x", "", "cost", "mmmmm",
        "a-word-that-is-longer-than-any-flag-or-setting-could-ever-be" };
    for (size_t i = 0; i < array_length(others); i++)
        assert_null(suggest(others[i]));
}

/* The typed word may be followed by its value. */
static void the_typed_word_may_go_on(void **state)
{
    struct suggestion s = { .typed = "modle=gpt", .len = 5 };
    suggestion_consider(&s, "model");
    assert_string_equal(suggestion_best(&s), "model");
}

/* The words are read from the rows of a table. */
static void a_refusal_lists_the_words_and_asks_about_the_nearest(void **state)
{
    static const struct {
        int number;
        const char *name;
    } rows[] = { { 1, "full" }, { 2, "light" } };
    struct error err = { 0 };
    assert_int_equal(suggest_refuse("isolation", "ligth", &rows[0].name, sizeof rows[0], 2, &err),
        -ERROR_ARGUMENT);
    assert_string_equal(
        err.text, "isolation 'ligth' is not one of full, light; did you mean light?");
    suggest_refuse("isolation", "none", &rows[0].name, sizeof rows[0], 2, &err);
    assert_string_equal(err.text, "isolation 'none' is not one of full, light");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mistakes_find_their_word),
        cmocka_unit_test(another_word_finds_nothing),
        cmocka_unit_test(the_typed_word_may_go_on),
        cmocka_unit_test(a_refusal_lists_the_words_and_asks_about_the_nearest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
