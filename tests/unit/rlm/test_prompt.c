/* The prompts: that they are true, complete and bounded. */
#include "../session/fixture.h"

#include "rlm/prompt.h"

/* The identifier at the start of `text`; its length, 0 where there is none. */
static size_t name_length(const char *text)
{
    size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");
    return n > 0 && (text[0] < '0' || text[0] > '9') ? n : 0;
}

/* Everything in single backticks that begins with a name is a name of the session. */
static unsigned evaluate_names(struct fixture *f, const char *text)
{
    unsigned count = 0;
    for (const char *at = strchr(text, '`'); at; at = strchr(at, '`')) {
        char code[200];
        size_t marks = strspn(at, "`"), n = name_length(at + marks);
        const char *end = strchr(at + marks, '`');
        if (marks == 1 && n > 0 && end) {
            snprintf(code, sizeof code, "%.*s", (int)n, at + 1);
            const struct cell_result *r = run(f, code);
            if (r->status != CELL_OK)
                fail_msg(
                    "the prompt speaks of `%s`, and the guest says %s", code, r->error.message);
            count++;
        }
        at = marks == 1 && end ? end + 1 : at + marks;
    }
    return count;
}

static void every_name_of_the_prompt_is_there(void **state)
{
    struct fixture *f = *state;
    cleanup_buf struct buf text = { 0 };
    static const char *const names[] = { "context" };
    fixture_open_plain(f);
    f->done = false;
    assert_ok(session_set(f->session, names, 1, VALUE_TEXT, "", 0, -1, fixture_took, f, err));
    assert_ok(loop_run_until(f->loop, &f->done, err));
    prompt_system(&text, &(struct prompt_session){ .children = true, .helpers = true });
    assert_true(evaluate_names(f, buf_text(&text)) >= 20);
}

/* Of child runs the model is told where there may be some, and of nothing less where not. */
static void the_prompt_names_child_runs_if_they_are_allowed(void **state)
{
    cleanup_buf struct buf with = { 0 }, without = { 0 };
    prompt_system(&with, &(struct prompt_session){ .children = true });
    prompt_system(&without, &(struct prompt_session){ 0 });
    assert_non_null(strstr(buf_text(&with), "`rlm_query(prompt, context=value)`"));
    assert_non_null(strstr(buf_text(&with), "`rlm_query_batched(prompts, context=value)`"));
    assert_null(strstr(buf_text(&without), "rlm_query"));
    const char *children = strstr(buf_text(&with), "- `rlm_query(");
    const char *after = strstr(buf_text(&with), "- `add_buffer");
    assert_true(children && after && children < after);
    assert_int_equal(with.len - without.len, (size_t)(after - children));
    assert_memory_equal(after, without.data + (children - with.data), strlen(after));
}

/* A line for the helpers that are there: not for `run` where rules forbid processes, nor where the
 * name is a context's or a tool's. */
static void the_prompt_names_helpers_that_exist(void **state)
{
    static const struct {
        bool rules, taken, grep, run, files;
    } cases[] = {
        { false, false, true, true, true },
        { true, false, true, false, true },
        { false, true, false, true, false },
    };
    char name[] = "grep";
    struct context context = { .name = name }, *items[] = { &context };
    struct contexts contexts = { items, 1 };
    struct prepare prepared = { 0 };
    static const char tools[] = "[{\"name\":\"read_file\"}]";
    assert_ok(json_parse(tools, strlen(tools), &json_limits_small, &prepared.tools, err));
    for (size_t i = 0; i < array_length(cases); i++) {
        cleanup_buf struct buf text = { 0 };
        struct prompt_session session = { .helpers = true, .rules = cases[i].rules };
        if (cases[i].taken) {
            session.contexts = &contexts;
            session.prepared = &prepared;
        }
        prompt_system(&text, &session);
        assert_int_equal(strstr(buf_text(&text), "`grep(") != NULL, cases[i].grep);
        assert_int_equal(strstr(buf_text(&text), "`run(") != NULL, cases[i].run);
        assert_int_equal(strstr(buf_text(&text), "`find_files(") != NULL, cases[i].files);
        assert_non_null(strstr(buf_text(&text), "`peek("));
    }
    json_object_put(prepared.tools);
}

/* The first block of the prompt, and what it prints. */
static void the_first_block_of_the_prompt_runs(void **state)
{
    struct fixture *f = *state;
    fixture_open_plain(f);
    assert_status(run(f, "context = ''"), CELL_OK);
    assert_status(run(f, "print(type(context), len(context))"), CELL_OK);
    cleanup_buf struct buf text = { 0 };
    prompt_system(&text, &(struct prompt_session){ 0 });
    assert_non_null(strstr(buf_text(&text), "```repl\nprint(type(context), len(context))\n```\n"));
}

/* Also where they are full of marks. */
static void instructions_follow_the_system_prompt(void **state)
{
    cleanup_buf struct buf with = { 0 }, without = { 0 };
    prompt_system(&without, &(struct prompt_session){ .instructions = "" });
    prompt_system(&with, &(struct prompt_session){ .instructions = "In French: 100%s {tools}." });
    assert_memory_equal(with.data, without.data, without.len);
    assert_string_equal(
        with.data + without.len, "\nInstructions for this task:\nIn French: 100%s {tools}.\n");
    assert_null(strstr(buf_text(&without), "Instructions"));
}

/* Known placeholders alone; a paragraph of an empty one goes, a line of one stays. */
static void placeholders_are_filled(void **state)
{
    static const struct {
        const char *text, *filled;
    } cases[] = {
        { "", "" },
        { "a {x} {y}{x}", "a 1 1" },
        { "{x", "{x" },
        { "{", "{" },
        { "{{x}} {z} {} {x }", "{1} {z} {} {x }" },
        { "f\"{start + i}: {text}\" {x}", "f\"{start + i}: {text}\" 1" },
        { "a\n\n{y}\n\nb", "a\n\nb" },
        { "{y}\n\nb", "b" },
        { "a\n{y}\nb", "a\n\nb" },
        { "a\n\n{x}\n\nb", "a\n\n1\n\nb" },
    };
    const struct prompt_value values[] = { { "x", "1" }, { "y", "" }, { 0 } };
    for (size_t i = 0; i < array_length(cases); i++) {
        cleanup_buf struct buf out = { 0 };
        prompt_fill(&out, cases[i].text, values);
        assert_string_equal(buf_text(&out), cases[i].filled);
    }
}

/* By its name; the longest family counts, and no family is fine. */
static void a_family_of_models_has_its_own_advice(void **state)
{
    static const struct {
        const char *model, *has, *lacks;
    } cases[] = {
        { "openrouter/qwen/Qwen3-Coder-480B", "200,000 characters", "32,000" },
        { "vllm/Qwen3-8B", "32,000", "200,000 characters" },
        { "gpt-5-mini", NULL, "IMPORTANT" },
        { NULL, NULL, "IMPORTANT" },
    };
    for (size_t i = 0; i < array_length(cases); i++) {
        cleanup_buf struct buf text = { 0 };
        prompt_system(&text, &(struct prompt_session){ .model = cases[i].model });
        if (cases[i].has)
            assert_non_null(strstr(buf_text(&text), cases[i].has));
        assert_null(strstr(buf_text(&text), cases[i].lacks));
    }
}

/* No placeholder is left in what a model gets, with everything on and with everything off. */
static void no_placeholder_is_left(void **state)
{
    static const char *const names[] = { "session", "model_notes", "rules", "imports",
        "answer_schema", "schema", "fields", "instructions", "tools", "root", "below" };
    const struct prompt_session sessions[] = {
        { 0 },
        { .rules = true, .children = true, .helpers = true, .volume = "/data", .model = "qwen" },
        { .about = "- `f()`: a function.\n", .rules = true },
    };
    for (size_t i = 0; i < array_length(sessions); i++) {
        cleanup_buf struct buf text = { 0 };
        prompt_system(&text, &sessions[i]);
        for (size_t k = 0; k < array_length(names); k++) {
            char mark[32];
            snprintf(mark, sizeof mark, "{%s}", names[k]);
            assert_null(strstr(buf_text(&text), mark));
        }
        assert_null(strstr(buf_text(&text), "\n\n\n"));
    }
}

static void the_prompt_names_rules_if_there_are_some(void **state)
{
    cleanup_buf struct buf with = { 0 }, without = { 0 };
    prompt_system(&without, &(struct prompt_session){ 0 });
    prompt_system(&with, &(struct prompt_session){ .rules = true });
    const char *rules = strstr(buf_text(&with), "This session has rules.");
    assert_non_null(rules);
    assert_null(strstr(buf_text(&without), "rules"));
    size_t before = (size_t)(rules - with.data);
    assert_memory_equal(with.data, without.data, before);
    assert_string_equal(strstr(rules, "\n\n") + 2, without.data + before);
}

static void the_context_is_described_and_not_shown(void **state)
{
    cleanup_json struct json_object *variable = NULL;
    cleanup_buf struct buf text = { 0 };
    static const char described[] =
        "[{\"type\":\"str\",\"length\":1234567,\"preview\":\"'begin'\"}]";
    assert_ok(json_parse(described, strlen(described), &json_limits_small, &variable, err));
    char source[] = "mail.txt";
    struct context context = { .source = source }, *items[] = { &context };
    prompt_question(&text, "How many %d?", &(struct contexts){ items, 1 }, variable, 30);
    assert_non_null(strstr(buf_text(&text), "Question: How many %d?\n"));
    assert_non_null(
        strstr(buf_text(&text), "`context` is a str of 1,234,567 characters, from mail.txt."));
    assert_non_null(strstr(buf_text(&text), "It begins with 'begin'"));
    assert_non_null(strstr(buf_text(&text), "Turn 1 of 30."));
}

static void long_output_keeps_both_ends_and_whole_characters(void **state)
{
    struct cell_result r = { .alive = true };
    cleanup_buf struct buf text = { 0 };
    for (int i = 0; i < 1000; i++)
        buf_puts(&r.out, "\xC3\xA9");
    prompt_result(&text, &r, 1, 201);
    assert_true(text.len < 400);
    assert_non_null(strstr(buf_text(&text), "bytes left out"));
    for (size_t i = 0; i < text.len; i++)
        if ((unsigned char)text.data[i] == 0xC3)
            assert_int_equal((unsigned char)text.data[++i], 0xA9);
        else
            assert_true((unsigned char)text.data[i] < 0x80);
    buf_free(&r.out);
}

static void silence_is_reported(void **state)
{
    struct cell_result r = { .alive = true };
    cleanup_buf struct buf text = { 0 };
    prompt_result(&text, &r, 1, 1000);
    assert_non_null(strstr(buf_text(&text), "(nothing was printed)"));
}

static void a_dead_session_is_reported(void **state)
{
    struct cell_result r = { .status = CELL_KILLED };
    cleanup_buf struct buf text = { 0 };
    error_set(&r.reason, ERROR_LOST, "it exited");
    prompt_result(&text, &r, 1, 1000);
    assert_non_null(strstr(buf_text(&text), "The session ended: it exited."));
    assert_non_null(strstr(buf_text(&text), "there again, but your variables\nare gone."));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(every_name_of_the_prompt_is_there),
        T(the_first_block_of_the_prompt_runs),
        cmocka_unit_test(placeholders_are_filled),
        cmocka_unit_test(a_family_of_models_has_its_own_advice),
        cmocka_unit_test(no_placeholder_is_left),
        cmocka_unit_test(the_prompt_names_helpers_that_exist),
        cmocka_unit_test(the_prompt_names_child_runs_if_they_are_allowed),
        cmocka_unit_test(instructions_follow_the_system_prompt),
        cmocka_unit_test(the_prompt_names_rules_if_there_are_some),
        cmocka_unit_test(the_context_is_described_and_not_shown),
        cmocka_unit_test(long_output_keeps_both_ends_and_whole_characters),
        cmocka_unit_test(silence_is_reported),
        cmocka_unit_test(a_dead_session_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
