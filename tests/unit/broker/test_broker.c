/* The broker between a real guest and a model in this program. */
#include "tool_session.h"

#include "broker/shared_value.h"
#include "lm/lm.h"

enum { CALLS_MAX = 64 };

struct fixture {
    struct tool_session s;
    struct lm *lm;
    /* the model */
    size_t wait_for; /* answers come when so many calls are open, the latest first */
    size_t started, open;
    struct lm_call *calls[CALLS_MAX];
    char prompts[CALLS_MAX][32];
    unsigned changes;
    double answer_timeout;
    bool keep_first; /* the first call is never answered */
    /* children that were started: they wait here until a test ends them */
    bool has_children;
    struct child {
        struct fixture *f;
        char prompt[32], model[32], context[32];
        enum value_kind kind;
        broker_child_fn *done;
        void *arg;
        struct error cancelled;
    } children[4];
    size_t child_count;
};

static enum value_kind kind_of(struct shared_value *value)
{
    const struct context *context = NULL;
    assert_int_equal(shared_value_use(value, &context, NULL), 0);
    enum value_kind kind = context->kind;
    shared_value_rest(value);
    return kind;
}

static int start_child(void *arg, const struct broker_child *ask, broker_child_fn *done,
    void *done_arg, struct child **out, struct error *err)
{
    struct fixture *f = arg;
    struct child *c = &f->children[f->child_count];
    size_t len = 0;
    const char *context = ask->context ? shared_value_bytes(ask->context, &len) : "";
    if (strncmp(ask->prompt, "bad", 3) == 0)
        return error_set(err, ERROR_ENVIRONMENT, "no sandbox");
    *c = (struct child){ .f = f, .done = done, .arg = done_arg };
    snprintf(c->prompt, sizeof c->prompt, "%.*s", (int)ask->len, ask->prompt);
    snprintf(c->model, sizeof c->model, "%s", ask->model ? ask->model : "");
    snprintf(c->context, sizeof c->context, "%.*s", (int)len, context);
    c->kind = ask->context ? kind_of(ask->context) : VALUE_TEXT;
    f->child_count++;
    *out = c;
    return 0;
}

static void cancel_child(struct child *c, const struct error *why)
{
    c->cancelled = *why;
    budget_unreserve(&c->f->s.budget, 1);
}

static const struct broker_children children = { start_child, cancel_child };

static void end_child(struct child *c, const char *json, enum error_code code)
{
    struct error why = { 0 };
    if (code != ERROR_NONE)
        error_set(&why, code, "it failed");
    c->done(c->arg, json, json ? strlen(json) : 0, &why);
}

/* Says the prompt back; a prompt that begins with "bad" fails. */
static void answer_latest(struct fixture *f)
{
    const struct lm_usage usage = { .input_tokens = 10, .output_tokens = 3 };
    struct error why = { 0 };
    const char *prompt = f->prompts[--f->open];
    if (strncmp(prompt, "bad", 3) == 0)
        error_set(&why, ERROR_MODEL_SERVER, "the engine is hot");
    lm_answer(
        f->calls[f->open], why.code ? "" : prompt, why.code ? 0 : strlen(prompt), &usage, &why);
}

static void model(void *arg, const struct lm_request *request, struct lm_call *call)
{
    struct fixture *f = arg;
    const struct lm_message *last = &request->messages[request->message_count - 1];
    assert_true(f->open < CALLS_MAX);
    assert_int_equal(request->depth, 1);
    snprintf(f->prompts[f->open], sizeof f->prompts[0], "%.*s", (int)last->len, last->text);
    f->calls[f->open++] = call;
    f->started++;
    while (f->open >= f->wait_for && f->open > f->keep_first)
        for (size_t n = f->open; n > f->keep_first; n--)
            answer_latest(f);
}

static void changed(void *arg)
{
    ((struct fixture *)arg)->changes++;
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct lm_options options = { .model = "callback", .callback = model, .callback_arg = f };
    f->wait_for = 1;
    tool_session_begin(&f->s);
    assert_ok(lm_open(f->s.loop, &options, &f->lm, err));
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    broker_close(steal(&f->s.broker)); /* it uses the model */
    lm_close(f->lm);
    tool_session_end(&f->s);
    free(f);
    return 0;
}

static void open_with(struct fixture *f, struct budget_limits limits, struct lm *lm)
{
    const struct broker_options broker = { .lm = lm,
        .children = f->has_children ? &children : NULL,
        .children_arg = f,
        .answer_timeout = f->answer_timeout,
        .changed = changed,
        .arg = f };
    tool_session_open_limited(&f->s, broker, limits);
}

static void open_limited(struct fixture *f, int64_t calls)
{
    open_with(f, (struct budget_limits){ .calls = calls }, f->lm);
}

static const struct cell_result *run(struct fixture *f, const char *code)
{
    tool_session_start(&f->s, code, 0);
    assert_ok(loop_run_until(f->s.loop, &f->s.done, err));
    return &f->s.last;
}

static void assert_submits(struct fixture *f, const char *code, const char *json)
{
    tool_session_submits(&f->s, code, json);
}

static void one_prompt_is_answered_and_settled(void **state)
{
    struct fixture *f = *state;
    open_limited(f, -1);
    assert_submits(f, "SUBMIT(a=llm_query('hello'))", "{\"a\": \"hello\"}");
    assert_int_equal(f->s.budget.spent.calls, 1);
    assert_int_equal(f->s.budget.spent.input_tokens, 10);
    assert_int_equal(f->s.budget.spent.output_tokens, 3);
    assert_int_equal(f->s.budget.held_tokens, 0);
    assert_int_equal(f->s.budget.open, 0);
    assert_int_equal(f->changes, 1);
}

/* The model answers the latest first; the guest gets the order of its prompts. */
static void a_batch_keeps_its_order(void **state)
{
    struct fixture *f = *state;
    open_limited(f, -1);
    f->wait_for = 4;
    assert_submits(f, "SUBMIT(a=llm_query_batched(['p', 'q', 'r', 's']))",
        "{\"a\": [\"p\", \"q\", \"r\", \"s\"]}");
    assert_int_equal(f->s.budget.spent.calls, 4);
}

static void one_item_fails_alone(void **state)
{
    struct fixture *f = *state;
    open_limited(f, -1);
    f->wait_for = 3;
    assert_submits(f,
        "r = llm_query_batched(['p', 'bad', 's'])\n"
        "SUBMIT(a=r, code=r[1].error.code)",
        "{\"a\": [\"p\", \"[ERROR] the engine is hot\", \"s\"], \"code\": \"model_server\"}");
    assert_int_equal(f->s.budget.spent.calls, 3);
}

static void a_single_failure_is_raised(void **state)
{
    struct fixture *f = *state;
    open_limited(f, -1);
    assert_submits(f, "try: llm_query('bad')\nexcept LLMError as e: SUBMIT(a=str(e), code=e.code)",
        "{\"a\": \"the engine is hot\", \"code\": \"model_server\"}");
}

/* A batch over the limit starts no call at all and leaves the room to one that fits. */
static void the_budget_refuses_a_batch_whole(void **state)
{
    struct fixture *f = *state;
    open_limited(f, 2);
    assert_submits(f,
        "try: llm_query_batched(['p', 'q', 'r'])\nexcept BudgetExceeded as e: "
        "SUBMIT(a=str(e)[:34])",
        "{\"a\": \"LLM call limit exceeded: 0 + 3 > 2\"}");
    assert_int_equal(f->started, 0);
    assert_int_equal(f->s.budget.guest_calls, 0);
    assert_submits(f, "SUBMIT(a=llm_query_batched(['p', 'q']))", "{\"a\": [\"p\", \"q\"]}");
    assert_int_equal(f->started, 2);
}

/* The guest's own function that sends frames: in order, and nobody waits for them. */
#define SEND                                                                                       \
    "import sys\nf = sys._getframe()\n"                                                            \
    "while 'CHANNEL_FD' not in f.f_globals: f = f.f_back\n"                                        \
    "send = f.f_globals['state'].link.send\n"

/* What nobody waits for any more is cancelled, counted and not answered. */
static void calls_of_a_dead_guest_are_cancelled(void **state)
{
    struct fixture *f = *state;
    open_limited(f, -1);
    f->wait_for = CALLS_MAX;
    tool_session_start(&f->s,
        SEND "import os, time\n"
             "try:\n"
             "    for i in (8001, 8002): send(19, i, b'{\"name\": \"llm_query\"}', [b'p'])\n"
             "    time.sleep(1e6)\n"
             "except KeyboardInterrupt: os._exit(0)",
        0);
    while (f->started < 2 && !f->s.done)
        loop_turn(f->s.loop, 10);
    session_interrupt(f->s.session);
    assert_ok(loop_run_until(f->s.loop, &f->s.done, err));
    assert_int_equal(f->s.last.status, CELL_KILLED);
    assert_int_equal(f->started, 2);
    assert_int_equal(f->s.budget.open, 0);
    assert_int_equal(f->s.budget.spent.calls, 2);
    assert_int_equal(f->s.budget.held_tokens, 0);
    while (f->open > 0)
        answer_latest(f); /* too late: dropped */
    assert_int_equal(f->s.budget.spent.calls, 2);
}

/* Interrupts a cell whose call is under way. */
static void interrupt_a_call(struct fixture *f)
{
    tool_session_start(&f->s, "llm_query('late')", 0);
    while (f->started == 0 && !f->s.done)
        loop_turn(f->s.loop, 10);
    session_interrupt(f->s.session);
    assert_ok(loop_run_until(f->s.loop, &f->s.done, err));
    assert_int_equal(f->s.last.status, CELL_ERROR);
    assert_string_equal(f->s.last.error.type, "KeyboardInterrupt");
}

/* A guest that gave up waiting lives on; the answer that comes late disturbs nothing. */
static void a_late_answer_disturbs_nothing(void **state)
{
    struct fixture *f = *state;
    open_limited(f, -1);
    f->wait_for = 2;
    interrupt_a_call(f);
    assert_true(f->s.last.alive);
    assert_submits(f, "SUBMIT(a=llm_query('new'))", "{\"a\": \"new\"}");
    assert_int_equal(f->s.budget.spent.calls, 2);
}

/* A cell that is interrupted tells the host that it waits no more: nothing is paid for nobody. */
static void an_interrupted_cell_cancels_its_calls(void **state)
{
    struct fixture *f = *state;
    open_limited(f, -1);
    f->wait_for = CALLS_MAX;
    interrupt_a_call(f);
    assert_submits(f, "SUBMIT(a=1)", "{\"a\": 1}");
    assert_int_equal(f->s.budget.open, 0);
    assert_int_equal(f->s.budget.held_tokens, 0);
}

static void closing_cancels_what_is_under_way(void **state)
{
    struct fixture *f = *state;
    open_limited(f, -1);
    f->wait_for = CALLS_MAX;
    run(f, "future = llm_submit('late')");
    assert_int_equal(f->s.budget.open, 1);
    broker_close(steal(&f->s.broker));
    assert_int_equal(f->s.budget.spent.calls, 1);
    assert_int_equal(f->s.budget.held_tokens, 0);
}

/* Its call is cancelled and settled in the host; the session goes on, and so does its next call. */
static void a_call_waits_only_so_long(void **state)
{
    struct fixture *f = *state;
    f->answer_timeout = 0.2;
    open_limited(f, -1);
    f->wait_for = CALLS_MAX;
    assert_submits(f,
        "try: llm_query('slow')\n"
        "except TimeoutError as e: SUBMIT(a=str(e), code=e.code, llm=isinstance(e, LLMError))",
        "{\"a\": \"no answer within 0.2 s (broker-timeout); the call was cancelled\", "
        "\"code\": \"timeout\", \"llm\": true}");
    assert_int_equal(f->s.budget.open, 0);
    assert_int_equal(f->s.budget.spent.calls, 1);
    assert_int_equal(f->s.budget.held_tokens, 0);
    answer_latest(f); /* too late: dropped */
    f->wait_for = 1;
    assert_submits(f, "SUBMIT(a=llm_query('new'))", "{\"a\": \"new\"}");
    assert_int_equal(f->s.budget.spent.calls, 2);
}

/* The answers that came in time are kept. */
static void a_batch_that_waited_too_long_keeps_what_has_come(void **state)
{
    struct fixture *f = *state;
    f->answer_timeout = 0.2;
    open_limited(f, -1);
    f->wait_for = 3;
    f->keep_first = true;
    assert_submits(f,
        "r = llm_query_batched(['p', 'q', 'r'])\n"
        "SUBMIT(first=r[0].error.code, rest=r[1:], kind=type(r[0].error).__name__)",
        "{\"first\": \"timeout\", \"rest\": [\"q\", \"r\"], \"kind\": \"LLMTimeout\"}");
    assert_int_equal(f->s.budget.spent.calls, 3);
    assert_int_equal(f->s.budget.held_tokens, 0);
}

static void prompts_that_wait_for_answers_are_bounded(void **state)
{
    struct fixture *f = *state;
    open_limited(f, -1);
    f->wait_for = 4;
    assert_submits(f,
        SEND
        "for i in (8001, 8002): send(19, i, b'{\"name\": \"llm_query\"}', [b'x' * (40 << 20)])\n"
        "try: llm_query('q')\n"
        "except BudgetExceeded as e: SUBMIT(a=str(e))",
        "{\"a\": \"80 MiB of prompts already wait for answers; ask again when some answers have "
        "arrived\"}");
    assert_int_equal(f->s.budget.open, 2);
    while (f->open > 0)
        answer_latest(f);
    assert_int_equal(f->s.budget.open, 0);
    f->wait_for = 1;
    assert_submits(f, "SUBMIT(a=llm_query('q'))", "{\"a\": \"q\"}");
}

static void without_a_model_a_call_fails_clearly(void **state)
{
    struct fixture *f = *state;
    open_with(f, (struct budget_limits){ .calls = -1 }, NULL);
    assert_submits(f, "try: llm_query('p')\nexcept LLMError as e: SUBMIT(a='--model' in str(e))",
        "{\"a\": true}");
}

static void a_prompt_may_be_messages(void **state)
{
    struct fixture *f = *state;
    open_limited(f, -1);
    assert_submits(f,
        "SUBMIT(a=llm_query([{'role': 'system', 'content': 's'}, {'role': 'user', 'content': "
        "'u'}]))",
        "{\"a\": \"u\"}");
    assert_submits(f,
        "try: llm_query([{'role': 'tool', 'content': 's'}])\nexcept ValueError as e: "
        "SUBMIT(a='tool' in str(e))",
        "{\"a\": true}");
}

/* ---- child runs ---- */

/* Begins a cell that asks for `count` children, and waits until they are asked for. */
static void begin_asking(struct fixture *f, const char *code, size_t count)
{
    tool_session_start(&f->s, code, 0);
    while (f->child_count < count && !f->s.done)
        loop_turn(f->s.loop, 0);
    assert_int_equal(f->child_count, count);
}

static void finish_asking(struct fixture *f, const char *json)
{
    tool_session_finish(&f->s, json);
}

/* Each prompt goes with the context that it is to have; values come back as they are. */
static void children_get_their_contexts_and_give_values(void **state)
{
    struct fixture *f = *state;
    f->has_children = true;
    open_limited(f, 3);
    begin_asking(f,
        "SUBMIT(a=rlm_query_batched(['p', {'prompt': 'q', 'context': [1]}, "
        "{'prompt': 'r', 'context': None}], context='text', model='m'))",
        3);
    assert_string_equal(f->children[0].context, "text");
    assert_int_equal(f->children[0].kind, VALUE_TEXT);
    assert_string_equal(f->children[1].context, "[1]");
    assert_int_equal(f->children[1].kind, VALUE_JSON);
    assert_string_equal(f->children[2].context, "");
    assert_string_equal(f->children[2].model, "m");
    assert_int_equal(f->s.budget.guest_calls, 3);
    end_child(&f->children[2], "{\"k\": null}", ERROR_NONE);
    end_child(&f->children[0], "\"x\"", ERROR_NONE);
    end_child(&f->children[1], "2.5", ERROR_NONE);
    finish_asking(f, "{\"a\": [\"x\", 2.5, {\"k\": null}]}");
    assert_int_equal(f->started, 0);
}

/* What a child said all the same comes with its error; one that never began gives its place
 * back. */
static void failed_children_are_errors_in_order(void **state)
{
    struct fixture *f = *state;
    f->has_children = true;
    open_limited(f, 2);
    begin_asking(f,
        "r = rlm_query_batched(['p', 'bad'])\n"
        "SUBMIT(a=[[type(x.error).__name__, x.error.code, x.error.answer, x[:7]] for x in r])",
        1);
    assert_int_equal(f->s.budget.guest_calls, 1);
    end_child(&f->children[0], "\"about\"", ERROR_BUDGET);
    finish_asking(f, "{\"a\": [[\"BudgetExceeded\", \"budget\", \"about\", \"[ERROR]\"], "
                     "[\"LLMError\", \"environment\", null, \"[ERROR]\"]]}");
}

static void giving_up_cancels_children_and_tells_the_guest(void **state)
{
    struct fixture *f = *state;
    struct error why = { 0 };
    f->has_children = true;
    open_limited(f, 2);
    begin_asking(
        f, "r = rlm_query_batched(['p', 'q'])\nSUBMIT(a=[r[0], type(r[1].error).__name__])", 2);
    end_child(&f->children[0], "1", ERROR_NONE);
    error_set(&why, ERROR_TIMEOUT, "too late");
    broker_give_up(f->s.broker, f->s.session, &why);
    assert_int_equal(f->children[0].cancelled.code, ERROR_NONE);
    assert_int_equal(f->children[1].cancelled.code, ERROR_TIMEOUT);
    finish_asking(f, "{\"a\": [1, \"LLMTimeout\"]}");
}

static void closing_cancels_children(void **state)
{
    struct fixture *f = *state;
    f->has_children = true;
    open_limited(f, 1);
    begin_asking(f, "rlm_query('p')", 1);
    broker_close(steal(&f->s.broker));
    assert_int_equal(f->children[0].cancelled.code, ERROR_CANCELLED);
    assert_int_equal(f->s.budget.guest_calls, 0);
}

/* Forged heads: kinds without parts, indices out of range, no prompt at all. */
static void a_forged_call_for_children_is_refused_or_harmless(void **state)
{
    struct fixture *f = *state;
    open_limited(f, 9);
    assert_submits(f,
        "import sys, json\nf = sys._getframe()\n"
        "while 'CHANNEL_FD' not in f.f_globals: f = f.f_back\n"
        "link = f.f_globals['state'].link\n"
        "def ask(head, parts): return link.call(dict(head, name='rlm_query'), parts)[0]\n"
        "a = [ask({'kinds': ['text'] * 9, 'of': [0]}, [b'p'])['error']['type'],\n"
        "     ask({'kinds': ['pickle'], 'of': [0]}, [b'p', b'c'])['error']['type'],\n"
        "     ask({'kinds': [7], 'of': [0]}, [b'p', b'c'])['error']['type'],\n"
        "     ask({'kinds': ['text'], 'of': [99, -5, 'x']}, [b'p', b'c']),\n"
        "     ask({'kinds': 5, 'of': {}}, [b'p'])]\n"
        "SUBMIT(a=a)",
        "{\"a\": [\"ValueError\", \"ValueError\", \"ValueError\", {}, {}]}");
    assert_int_equal(f->s.budget.guest_calls, 2);
}

/* Where none may begin, a model is asked with the context behind the prompt. */
static void without_children_a_model_is_asked(void **state)
{
    struct fixture *f = *state;
    open_limited(f, 1);
    assert_submits(f, "SUBMIT(a=rlm_query('p', 'c'))", "{\"a\": \"p\\n\\nContext:\\nc\"}");
    assert_int_equal(f->s.budget.spent.calls, 1);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(one_prompt_is_answered_and_settled),
        T(a_batch_keeps_its_order),
        T(one_item_fails_alone),
        T(a_single_failure_is_raised),
        T(the_budget_refuses_a_batch_whole),
        T(calls_of_a_dead_guest_are_cancelled),
        T(a_late_answer_disturbs_nothing),
        T(an_interrupted_cell_cancels_its_calls),
        T(closing_cancels_what_is_under_way),
        T(a_call_waits_only_so_long),
        T(a_batch_that_waited_too_long_keeps_what_has_come),
        T(prompts_that_wait_for_answers_are_bounded),
        T(without_a_model_a_call_fails_clearly),
        T(a_prompt_may_be_messages),
        T(children_get_their_contexts_and_give_values),
        T(failed_children_are_errors_in_order),
        T(giving_up_cancels_children_and_tells_the_guest),
        T(closing_cancels_children),
        T(a_forged_call_for_children_is_refused_or_harmless),
        T(without_children_a_model_is_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
