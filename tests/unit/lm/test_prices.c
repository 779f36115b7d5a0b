/* The cost of a call: the built-in table, the user's table, which takes precedence, and unknown
 * prices. */
#include "fixture.h"

#include <math.h>

#include "lm/prices.h"

static const struct lm_usage usage = { 1000000, 100000, false, 400000 };

static void write_table(char path[64], const char *text)
{
    snprintf(path, 64, "/tmp/droste-test-prices-%d", getpid());
    FILE *f = fopen(path, "w");
    fputs(text, f);
    fclose(f);
}

static void costs(const struct prices *p, const char *model, bool built_in, double dollars)
{
    double is = prices_cost(p, model, built_in, &usage);
    if (fabs(is - dollars) > 1e-9)
        fail_msg("%s costs %g, not %g", model, is, dollars);
}

/* Fresh input, cached input and output have prices of their own; a version's date is no matter. */
static void built_in_prices_are_used(void **state)
{
    struct prices *p = NULL;
    assert_ok(prices_open(NULL, &p, err));
    costs(p, "openai/gpt-5-mini", true, 0.6 * 0.25 + 0.4 * 0.025 + 0.1 * 2);
    costs(p, "openai/gpt-5-mini-2025-08-07", true, 0.36);
    costs(p, "anthropic/claude-haiku-4-5-20251001", true, 0.6 + 0.4 * 0.1 + 0.1 * 5);
    prices_close(p);
}

/* A model that is in no table, or is served by somebody else, has no price. */
static void an_unknown_price_is_not_zero(void **state)
{
    struct prices *p = NULL;
    assert_ok(prices_open("", &p, err));
    costs(p, "openai/gpt-5-mini", false, -1);
    costs(p, "openai/gpt-5-minimal", true, -1);
    costs(p, "vllm/gpt-5-mini", true, -1);
    costs(p, "gpt-5-mini", true, -1);
    costs(p, "", true, -1);
    prices_close(p);
}

/* The user's table comes first; whole names before beginnings, longer before shorter. */
static void the_users_table_comes_first(void **state)
{
    struct prices *p = NULL;
    char path[64];
    write_table(path, "# dollars per million tokens\n"
                      "\n"
                      "openai/gpt-5-mini 1 10 0.5 # ours\r\n"
                      "  vllm/*\t0 0\n"
                      "vllm/big* 2 2\n"
                      "vllm/big-one 3 3\n"
                      "mine 4 4");
    assert_ok(prices_open(path, &p, err));
    unlink(path);
    costs(p, "openai/gpt-5-mini", true, 0.6 + 0.2 + 1);
    costs(p, "openai/gpt-5-mini", false, 1.8);
    costs(p, "openai/gpt-5-nano", true, 0.6 * 0.05 + 0.4 * 0.005 + 0.1 * 0.4);
    costs(p, "vllm/small", false, 0);
    costs(p, "vllm/big-two", false, 2.2);
    costs(p, "vllm/big-one", false, 3.3);
    costs(p, "azure/mine", false, 4.4);
    prices_close(p);
}

/* A line that is wrong is named with its number. */
static void a_wrong_line_is_named(void **state)
{
    static const char *const lines[] = { "a", "a 1", "a 1 x", "a 1 2 x", "a 1 2 3 4", "a -1 2",
        "a nan 2", "a 1e9 2", "a 0x10 2", "a . 2" };
    struct prices *p = NULL;
    char path[64], text[80];
    for (size_t i = 0; i < array_length(lines); i++) {
        struct error err = { 0 };
        snprintf(text, sizeof text, "good 1 2\n%s\n", lines[i]);
        write_table(path, text);
        assert_int_equal(prices_open(path, &p, &err), -ERROR_CONFIG);
        assert_non_null(strstr(err.text, "line 2: expected MODEL"));
    }
    unlink(path);
    assert_fails(ERROR_NOT_FOUND, prices_open(path, &p, err));
}

/* A reply says what it cost, by the provider's own count. */
static void a_reply_has_its_cost(void **state)
{
    struct fake *f = *state;
    struct lm_options options = options_for(f, "anthropic/ok");
    char path[64];
    write_table(path, "anthropic/ok 1000000 1000000 500000\n");
    options.prices = path;
    struct answer a = { 0 }, b = { 0 };
    struct lm *lm = open_lm(f->loop, &options);
    unlink(path);
    start(lm, NULL, "hello", 5, 0, &a);
    start(lm, "json", "hello", 5, 0, &b);
    assert_ok(loop_run_until(f->loop, &a.done, err));
    assert_ok(loop_run_until(f->loop, &b.done, err));
    lm_close(lm);
    assert_true(fabs(a.cost - (1 + 3 * 0.5 + 4)) < 1e-9);
    assert_true(b.cost < 0);
    answer_free(&a);
    answer_free(&b);
}

#define server_test(f) cmocka_unit_test_setup_teardown(f, with_server, without_server)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(built_in_prices_are_used),
        cmocka_unit_test(an_unknown_price_is_not_zero),
        cmocka_unit_test(the_users_table_comes_first),
        cmocka_unit_test(a_wrong_line_is_named),
        server_test(a_reply_has_its_cost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
