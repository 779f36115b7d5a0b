/* Approvals in a program: what asks, and the ways in which a wait ends; and what a webhook is. */
#include "tool_session.h"

#include "broker/approval.h"
#include "broker/approval_hook.h"
#include "broker/tool_call.h"

struct fixture {
    struct tool_session s;
    unsigned executed, asked;
    void (*decide)(struct fixture *f, struct approval *a);
    struct approval *kept;
    char arguments[64];
};

static void write_tool(void *arg, struct tool_call *call, const char *json, size_t len)
{
    ((struct fixture *)arg)->executed++;
    tool_call_answer(call, "40", 2);
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    tool_session_begin(&f->s);
    assert_ok(tools_add(
        f->s.tools, &(struct tool_spec){ .name = "write", .fn = write_tool, .arg = f }, err));
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    broker_close(steal(&f->s.broker));
    if (f->kept)
        approval_leave(f->kept);
    tool_session_end(&f->s);
    free(f);
    return 0;
}

#define approval_test(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

/* ---- cells ---- */

static void show(void *arg, struct approval *a)
{
    struct fixture *f = arg;
    const droste_approval *shown = (const droste_approval *)(const void *)a;
    f->asked++;
    snprintf(f->arguments, sizeof f->arguments, "%.*s", (int)shown->len, shown->arguments);
    f->decide(f, a);
}

static char write_name[] = "write", *write_names[] = { write_name };
static const struct list write_asks = { write_names, 1 };

/* A cell that calls the tool submits this. */
static void submits(struct fixture *f, struct approval_rules rules, const char *json)
{
    if (f->decide) {
        rules.show = show;
        rules.arg = f;
    }
    tool_session_open(&f->s, (struct broker_options){ .ask = rules });
    tool_session_submits(&f->s,
        "try: out = write(n=4)\nexcept PermissionError as e: out = str(e)\nSUBMIT(out)", json);
}

static void approve(struct fixture *f, struct approval *a)
{
    assert_ok(approval_answer(a, true, NULL, NULL, err));
}

static void deny(struct fixture *f, struct approval *a)
{
    assert_ok(approval_answer(a, false, "the test", "not today", err));
}

static void leave(struct fixture *f, struct approval *a)
{
    approval_leave(a);
}

static void keep(struct fixture *f, struct approval *a)
{
    f->kept = a;
}

static void an_approved_call_is_executed_once(void **state)
{
    struct fixture *f = *state;
    f->decide = approve;
    submits(f, (struct approval_rules){ .tools = &write_asks }, "{\"output\": 40}");
    assert_int_equal(f->executed, 1);
    assert_string_equal(f->arguments, "{\"n\": 4}");
}

static void a_denied_call_is_not_executed(void **state)
{
    struct fixture *f = *state;
    f->decide = deny;
    submits(f, (struct approval_rules){ .tools = &write_asks },
        "{\"output\": \"the call of write() was denied by the test: not today\"}");
    assert_int_equal(f->executed, 0);
}

static void a_tool_that_is_not_named_does_not_ask(void **state)
{
    static char other[] = "other", *names[] = { other };
    static const struct list others = { names, 1 };
    struct fixture *f = *state;
    f->decide = deny;
    submits(f, (struct approval_rules){ .tools = &others }, "{\"output\": 40}");
    assert_int_equal(f->asked, 0);
}

static void what_nothing_else_can_decide_is_denied(void **state)
{
    struct fixture *f = *state;
    f->decide = leave;
    submits(f, (struct approval_rules){ .tools = &write_asks },
        "{\"output\": \"the call of write() was denied: nothing is left that could decide: "
        "docs/approvals.md says what can\"}");
    assert_int_equal(f->executed, 0);
}

/* The program keeps it meanwhile, and learns that it came too late. */
static void the_deadline_decides_and_an_answer_after_it_is_refused(void **state)
{
    struct fixture *f = *state;
    struct error why = { 0 };
    f->decide = keep;
    submits(f,
        (struct approval_rules){ .tools = &write_asks, .timeout = 0.1, .deadline_approves = true },
        "{\"output\": 40}");
    assert_int_equal(f->executed, 1);
    assert_int_equal(approval_answer(steal(&f->kept), false, NULL, NULL, &why), -ERROR_ARGUMENT);
    assert_int_equal(f->executed, 1);
}

/* The budget's time and the cell's go on where the call is over. */
static void a_call_that_ends_leaves_the_approval_to_the_program(void **state)
{
    struct fixture *f = *state;
    static const char code[] = "write(n=4)";
    struct session_cell cell = { .code = code, .len = sizeof code - 1 };
    struct error why = { 0 };
    f->decide = keep;
    tool_session_open(&f->s,
        (struct broker_options){
            .ask = (struct approval_rules){ .tools = &write_asks, .show = show, .arg = f } });
    assert_ok(session_exec(f->s.session, &cell, tool_session_took, &f->s, err));
    while (!f->kept)
        loop_turn(f->s.loop, 1000);
    assert_int_equal(f->s.budget.time_holds, 1);
    error_set(&why, ERROR_CANCELLED, "stop");
    broker_give_up(f->s.broker, f->s.session, &why);
    assert_int_equal(f->s.budget.time_holds, 0);
    assert_ok(loop_run_until(f->s.loop, &f->s.done, err));
    assert_int_equal(f->executed, 0);
}

/* ---- names, and the webhook ---- */

static void names_cover_tools_and_modules(void **state)
{
    assert_true(approval_name_covers("write", "write"));
    assert_false(approval_name_covers("write", "writer"));
    assert_true(approval_name_covers("*", "any.thing"));
    assert_true(approval_name_covers("a.*", "a.b"));
    assert_false(approval_name_covers("a.*", "ab.c"));
    assert_false(approval_name_covers("a.*", "a"));
    assert_false(approval_name_covers("", "a"));
}

static int check(const char *url, const char *secret)
{
    const struct approval_hook_options options = { url, secret, NULL };
    struct error why = { 0 };
    return approval_hook_check(&options, &why);
}

static void a_webhook_is_safe_and_has_a_secret(void **state)
{
    static const char secret[] = "0123456789abcdef";
    static const char *const safe[] = { "https://example.com/x?y", "http://127.0.0.1:1/",
        "http://127.9.9.9/", "http://localhost/", "http://[::1]:1/" };
    static const char *const unsafe[] = { "http://example.com/", "http://127.0.0.1.example.com/",
        "http://localhost.example.com/", "ftp://127.0.0.1/", "https://u:p@example.com/", "x", "" };
    for (size_t i = 0; i < array_length(safe); i++)
        assert_int_equal(check(safe[i], secret), 0);
    for (size_t i = 0; i < array_length(unsafe); i++)
        assert_true(check(unsafe[i], secret) < 0);
    assert_true(check(safe[0], NULL) < 0);
    assert_true(check(safe[0], "0123456789abcde") < 0);
    assert_int_equal(check(NULL, NULL), 0);
}

/* The expected text is from `printf '%s' '1764309600.{}' | openssl dgst -sha256 -hmac secret`. */
static void a_signature_is_that_of_other_programs(void **state)
{
    char out[HOOK_SIGNATURE_SIZE];
    assert_int_equal(approval_hook_sign("secret", 1764309600, "{}", 2, out), 0);
    assert_string_equal(
        out, "t=1764309600,v1=5cd066f66e7de496945dedf2364b18f84d8ac842c15df098d120d6db39092527");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        approval_test(an_approved_call_is_executed_once),
        approval_test(a_denied_call_is_not_executed),
        approval_test(a_tool_that_is_not_named_does_not_ask),
        approval_test(what_nothing_else_can_decide_is_denied),
        approval_test(the_deadline_decides_and_an_answer_after_it_is_refused),
        approval_test(a_call_that_ends_leaves_the_approval_to_the_program),
        cmocka_unit_test(names_cover_tools_and_modules),
        cmocka_unit_test(a_webhook_is_safe_and_has_a_secret),
        cmocka_unit_test(a_signature_is_that_of_other_programs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
