/* Shortening a conversation that has become too long. */
#include "../test.h"

#include "base/cleanup.h"
#include "rlm/run.h"

static struct tree tree;
static struct rlm_run run;

enum { WINDOW = 1000 };

static int run_begin(void **state)
{
    tree = (struct tree){ .o = { .compaction = 0.5, .window = WINDOW } };
    run = (struct rlm_run){ .tree = &tree, .place = { .model = "m" } };
    return 0;
}

static int run_over(void **state)
{
    for (size_t i = 0; i < run.message_count; i++)
        free(run.messages[i].text);
    free(run.messages);
    return 0;
}

#define conversation_test(f) cmocka_unit_test_setup_teardown(f, run_begin, run_over)

/* A message of so many tokens, as they are estimated. */
static void say(const char *role, unsigned tokens)
{
    char *text = malloc(tokens * 4 + 1);
    memset(text, 'x', tokens * 4);
    text[tokens * 4] = '\0';
    assert_ok(message_add(&run, role, text, tokens * 4, err));
}

static void say_turns(unsigned turns, unsigned tokens)
{
    for (unsigned i = 0; i < turns; i++) {
        say("assistant", tokens / 2);
        say("user", tokens - tokens / 2);
    }
}

static void say_question(void)
{
    say("system", 10);
    say("user", 10);
}

/* ---- messages ---- */

/* A reply is kept as it is, zero bytes included; an empty one gets words, because some providers
 * refuse a message without text. */
static void a_reply_is_kept(void **state)
{
    assert_ok(message_add_reply(&run, "a\0b", 3, err));
    assert_ok(message_add_reply(&run, "", 0, err));
    assert_int_equal(run.message_count, 2);
    assert_int_equal(run.messages[0].len, 3);
    assert_memory_equal(run.messages[0].text, "a\0b", 4);
    assert_string_equal(run.messages[1].text, "(no reply)");
    assert_int_equal(run.messages[1].len, strlen("(no reply)"));
    assert_string_equal(run.messages[1].role, "assistant");
}

/* A text that could not be made is an error, and adds no message. */
static void a_text_that_is_missing_is_an_error(void **state)
{
    struct buf failed = { 0 };
    say_question();
    assert_fails(ERROR_MEMORY, message_add(&run, "user", NULL, 5, err));
    buf_puts(&failed, "x");
    assert_ok(message_add_buf(&run, "user", &failed, err));
    assert_int_equal(failed.len, 0); /* it is the run's now */
    assert_int_equal(run.message_count, 3);
}

/* Many messages keep their order. */
static void messages_keep_their_order(void **state)
{
    for (unsigned i = 0; i < 500; i++) {
        struct buf text = { 0 };
        buf_printf(&text, "%u", i);
        assert_ok(message_add_buf(&run, "user", &text, err));
    }
    for (unsigned i = 0; i < 500; i++)
        assert_int_equal(atoi(run.messages[i].text), i);
}

/* ---- when it is too long ---- */

/* It is due from its share of the window on, and not before. */
static void it_is_due_at_its_share_of_the_window(void **state)
{
    say_question();
    say_turns(4, 100);
    assert_false(compact_is_due(&run)); /* 420 of 500 */
    say_turns(1, 100);
    assert_true(compact_is_due(&run));
    tree.o.compaction = 0.6;
    assert_false(compact_is_due(&run));
    tree.o.window = 800;
    assert_true(compact_is_due(&run));
}

/* Without a window in the options it is the model's, of whatever provider. */
static void the_window_is_the_models(void **state)
{
    tree.o.window = 0;
    run.place.model = "gpt-3.5-turbo"; /* 16385 tokens */
    say_question();
    say_turns(4, 2000);
    assert_false(compact_is_due(&run));
    say_turns(1, 2000);
    assert_true(compact_is_due(&run));
    run.place.model = "claude-x";
    assert_false(compact_is_due(&run));
}

/* What the provider counted counts, and the estimate only for what came later. */
static void the_providers_count_is_taken(void **state)
{
    const struct lm_usage more = { .input_tokens = 480 }, none = { 0 };
    say_question();
    say_turns(2, 100);
    assert_false(compact_is_due(&run));
    compact_count(&run, &more);
    assert_false(compact_is_due(&run));
    compact_count(&run, &none); /* a provider that does not count changes nothing */
    say_turns(1, 20);
    assert_true(compact_is_due(&run));
    run.counted_tokens = 0;
    run.counted = 0;
    run.compacting = true; /* the call for a summary is not the conversation */
    compact_count(&run, &more);
    assert_int_equal(run.counted_tokens, 0);
}

/* A conversation of one turn has nothing to take out, nor one that is a summary and a turn. */
static void the_last_turn_stays(void **state)
{
    say_question();
    say_turns(1, 5000);
    assert_false(compact_is_due(&run));
    run.summaries = 1;
    say_turns(1, 5000);
    run.messages[2].role = "user"; /* the summary, and with it the first reply */
    assert_true(compact_is_due(&run));
    run.message_count--;
    free(run.messages[run.message_count].text);
    free(run.messages[3].text);
    run.messages[3] = run.messages[4];
    run.message_count--;
    assert_false(compact_is_due(&run));
}

/* Where shortening did not help, it is not tried again until the conversation has grown by a
 * quarter of what it may have. */
static void what_did_not_help_is_not_tried_at_once(void **state)
{
    say_question();
    say_turns(6, 100);
    assert_true(compact_is_due(&run));
    run.compacted_tokens = 600;
    assert_false(compact_is_due(&run));
    say_turns(1, 100);
    assert_false(compact_is_due(&run)); /* 720 < 600 + 125 */
    say_turns(1, 10);
    assert_true(compact_is_due(&run));
}

/* Off is off, and a run whose cells are only run again asks for nothing. */
static void it_can_be_off(void **state)
{
    say_question();
    say_turns(20, 1000);
    assert_true(compact_is_due(&run));
    tree.o.again = true;
    assert_false(compact_is_due(&run));
    tree.o.again = false;
    tree.o.compaction = 0;
    assert_false(compact_is_due(&run));
}

/* A run that goes on from another one goes on with its counts. */
static void the_next_question_takes_the_counts_over(void **state)
{
    struct rlm_run next = { .tree = &tree };
    run.counted = 7;
    run.counted_tokens = 70;
    run.compacted_tokens = 50;
    run.summaries = 2;
    run.shortened = true;
    run.in_history = 5;
    compact_take_over(&next, &run);
    assert_int_equal(next.counted, 7);
    assert_int_equal(next.counted_tokens, 70);
    assert_int_equal(next.compacted_tokens, 50);
    assert_int_equal(next.summaries, 2);
    assert_true(next.shortened);
    assert_int_equal(next.in_history, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        conversation_test(a_reply_is_kept),
        conversation_test(a_text_that_is_missing_is_an_error),
        conversation_test(messages_keep_their_order),
        conversation_test(it_is_due_at_its_share_of_the_window),
        conversation_test(the_window_is_the_models),
        conversation_test(the_providers_count_is_taken),
        conversation_test(the_last_turn_stays),
        conversation_test(what_did_not_help_is_not_tried_at_once),
        conversation_test(it_can_be_off),
        conversation_test(the_next_question_takes_the_counts_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
