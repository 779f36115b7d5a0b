/* rlm/run.c: the loop.
 *
 *   open a session ─► set `context` ─► turn: ask the model ─► run the reply's blocks one by one
 *        ▲                               ▲                        │
 *        │ (the sandbox died)            └── feed the output back ┘─► an answer ─► end
 *
 * Each arrow is a callback from below. A session must not be closed from within its own callback,
 * so what replaces a dead one goes through a timer of no time. Whatever happens, `run_end` is the
 * one end: it ends the runs below, closes the record and tells the caller, once.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/cleanup.h"
#include "base/json.h"
#include "base/text.h"
#include "rlm/parse.h"
#include "rlm/prompt.h"
#include "rlm/run.h"

enum { RESTARTS_MAX = 5 };

static const char *const status_names[] = { "answered", "exhausted", "budget", "timeout",
    "cancelled", "error" };

const char *rlm_status_name(enum rlm_status status)
{
    return status_names[status];
}

/* ---- telling ---- */

static void tell_event(struct rlm_run *r, struct rlm_event *event)
{
    const struct rlm_options *o = &r->tree->o;
    if (!o->event || r->place.parent)
        return;
    event->turn = r->turn;
    event->turns = r->place.iterations;
    event->budget = &r->tree->budget;
    event->pending = r->tree->budget.open;
    o->event(o->arg, event);
}

static void tell(struct rlm_run *r, enum rlm_event_kind kind, const char *text, size_t len)
{
    struct rlm_event event = { .kind = kind, .text = text, .len = len };
    tell_event(r, &event);
}

static void calls_changed(void *arg)
{
    struct rlm_run *r = arg;
    tell(r->tree->root, RLM_EVENT_CALLS, "", 0);
}

/* ---- the end ---- */

static int settle_call(struct rlm_run *r, const struct lm_reply *reply, struct error *err)
{
    budget_settle(&r->tree->budget, &r->hold, reply);
    return run_record_call_end(r, reply, err);
}

static void cancel_call(struct rlm_run *r)
{
    struct lm_reply cancelled = { 0 };
    if (!r->call)
        return;
    lm_cancel(steal(&r->call), &cancelled);
    error_set(&cancelled.error, ERROR_CANCELLED, "the run ended");
    settle_call(r, &cancelled, NULL);
}

void run_end(struct rlm_run *r, enum rlm_status status, const struct error *why)
{
    if (r->finished)
        return;
    r->finished = true;
    cancel_call(r);
    if (r->reserved)
        budget_unreserve(&r->tree->budget, 1);
    broker_close(steal(&r->broker));
    run_record_cell_lost(r, rlm_status_name(status));
    r->result.status = status;
    if (why)
        r->result.error = *why;
    r->result.seconds = clock_seconds_since(r->start_ns);
    timer_stop(r->deadline);
    timer_stop(r->later);
    run_record_end(r);
    r->done(r->done_arg, &r->result);
}

static void time_is_up(void *arg)
{
    struct rlm_run *r = arg;
    struct error err = { 0 };
    error_set(&err, ERROR_TIMEOUT, "the run reached its time limit of %g s (--timeout)",
        r->tree->o.limits.seconds);
    run_end(r, RLM_TIMEOUT, &err);
}

static void fail(struct rlm_run *r, const struct error *why)
{
    /* The budget may see the end of the time before the timer strikes. */
    if (why->code == ERROR_BUDGET && budget_seconds_left(&r->tree->budget) <= 0) {
        time_is_up(r);
        return;
    }
    enum rlm_status status = why->code == ERROR_BUDGET      ? RLM_BUDGET
                             : why->code == ERROR_CANCELLED ? RLM_CANCELLED
                                                            : RLM_ERROR;
    run_end(r, status, why);
}

static void finish_answered(struct rlm_run *r, char *json, enum rlm_status status)
{
    struct error err = { 0 };
    r->result.answer = json;
    if (!json) {
        error_memory(&err);
        fail(r, &err);
        return;
    }
    run_end(r, status, NULL);
}

/* Words as a JSON string. */
static char *quoted(const char *text, size_t len)
{
    struct buf out = { 0 };
    json_append_string(&out, text, len);
    return buf_steal(&out);
}

/* SUBMIT(answer=x) and SUBMIT(x) answer x; several fields answer the object. */
static char *answer_of(const char *submit, size_t len)
{
    cleanup_json struct json_object *o = NULL;
    struct json_object *value = NULL;
    if (json_parse(submit, len, &json_limits_large, &o, NULL) == 0 &&
        json_object_object_length(o) == 1 &&
        (json_object_object_get_ex(o, "answer", &value) ||
            json_object_object_get_ex(o, "output", &value))) {
        const char *text = value ? json_text(value, &len) : "null";
        return text ? strdup(text) : NULL;
    }
    return text_copy(submit, len);
}

/* ---- the conversation ---- */

/* Takes the text, which is NULL without memory. */
static int add_message(
    struct rlm_run *r, const char *role, char *text, size_t len, struct error *err)
{
    if (text && r->message_count == r->message_cap) {
        size_t cap = r->message_cap ? 2 * r->message_cap : 16;
        struct message *messages = realloc(r->messages, cap * sizeof *messages);
        if (messages) {
            r->messages = messages;
            r->message_cap = cap;
        }
    }
    if (!text || r->message_count == r->message_cap) {
        free(text);
        return error_memory(err);
    }
    r->messages[r->message_count++] = (struct message){ role, text, len };
    return 0;
}

static int add_buf_message(struct rlm_run *r, const char *role, struct buf *text, struct error *err)
{
    size_t len = text->len;
    return add_message(r, role, buf_steal(text), len, err);
}

static void model_delta(void *arg, const char *text, size_t len)
{
    tell(arg, RLM_EVENT_DELTA, text, len);
}

static void model_replied(void *arg, const struct lm_reply *reply);

/* The place of a call: the root's turns are bounded by their number, a child's count as its parent's
 * guest's. */
static int reserve_call(struct rlm_run *r, struct error *err)
{
    struct budget *budget = &r->tree->budget;
    if (r->reserved) {
        r->reserved = false;
        return 0;
    }
    return budget_reserve(budget, r->place.parent ? 1 : 0, err);
}

static int start_call(
    struct rlm_run *r, const struct lm_request *request, size_t bytes, struct error *err)
{
    bool streamed = r->tree->o.event && !r->place.parent;
    const struct budget_call call = { .model = r->model ? r->model : lm_name(r->lm),
        .depth = r->place.depth,
        .prompt_bytes = bytes,
        .max_tokens = request->max_tokens,
        .lm = r->lm,
        .lm_model = r->model,
        .account = &r->account };
    int rc = budget_hold(&r->tree->budget, &call, &r->hold, err);
    if (rc == 0)
        rc = run_record_call(r, err);
    r->recorded = r->message_count;
    if (rc == 0)
        rc = lm_start(
            r->lm, request, model_replied, streamed ? model_delta : NULL, r, &r->call, err);
    return rc;
}

static int ask_model(struct rlm_run *r, struct error *err)
{
    size_t bytes = 0;
    cleanup_free struct lm_message *messages = calloc(r->message_count, sizeof *messages);
    if (!messages)
        return error_memory(err);
    for (size_t i = 0; i < r->message_count; i++) {
        messages[i] = (struct lm_message){
            .role = r->messages[i].role, .text = r->messages[i].text, .len = r->messages[i].len
        };
        bytes += r->messages[i].len;
    }
    struct lm_request request = { .model = r->model,
        .messages = messages,
        .message_count = r->message_count,
        .depth = r->place.depth,
        .timeout = r->tree->o.call_timeout,
        .max_tokens = r->tree->o.max_tokens,
        .temperature = -1 };
    int rc = reserve_call(r, err);
    if (rc < 0)
        return rc;
    rc = start_call(r, &request, bytes, err);
    if (rc < 0) {
        struct lm_reply never = { .error = *err, .text = "", .finish = "" };
        budget_release(&r->tree->budget, &r->hold);
        budget_unreserve(&r->tree->budget, r->place.parent ? 1 : 0);
        run_record_call_end(r, &never, NULL);
    }
    return rc;
}

static void next_turn(struct rlm_run *r)
{
    struct error err = { 0 };
    int rc = 0;
    if (r->turn >= r->place.iterations) {
        struct buf text = { 0 };
        buf_puts(&text, prompt_last_turn);
        r->last = true;
        rc = add_buf_message(r, "user", &text, &err);
    } else {
        r->turn++;
        r->result.iterations = r->turn;
        rc = run_record_turn(r, &err);
        tell(r, RLM_EVENT_TURN, "", 0);
    }
    if (rc == 0)
        rc = ask_model(r, &err);
    if (rc < 0)
        fail(r, &err);
}

/* ---- the reply's blocks ---- */

static void next_block(struct rlm_run *r);
static int open_session(struct rlm_run *r, struct error *err);
static int prepare_session(struct rlm_run *r, struct error *err);

static void finish_turn(struct rlm_run *r)
{
    struct error err = { 0 };
    if (r->turn < r->place.iterations)
        buf_printf(&r->feedback, "\nTurn %u of %u.", r->turn + 1, r->place.iterations);
    if (add_buf_message(r, "user", &r->feedback, &err) < 0)
        fail(r, &err);
    else
        next_turn(r);
}

/* No (more) code: an answer in words, a nudge, or the next turn. */
static void blocks_done(struct rlm_run *r)
{
    const char *value = NULL;
    size_t len = 0;
    enum reply_final final = reply_find_final(buf_text(&r->reply), r->reply.len, &value, &len);
    if (final == FINAL_TEXT) {
        finish_answered(r, quoted(value, len), RLM_ANSWERED);
        return;
    }
    if (final == FINAL_VARIABLE) {
        struct buf code = { 0 };
        /* This reply has no answer in words any more, so it comes here once. */
        buf_puts(&code, "```repl\nFINAL_VAR(");
        json_append_string(&code, value, len);
        buf_puts(&code, ")\n```\n");
        buf_free(&r->reply);
        r->reply = code;
        r->at = 0;
        next_block(r);
        return;
    }
    if (r->block == 0)
        buf_puts(&r->feedback, prompt_no_code);
    finish_turn(r);
}

/* The sandbox died under the cell: a new one, with the context again, before the model goes on. */
static void restart_session(void *arg)
{
    struct rlm_run *r = arg;
    struct error err = { 0 };
    session_close(steal(&r->session));
    if (open_session(r, &err) < 0 || prepare_session(r, &err) < 0)
        fail(r, &err);
}

/* What a cell was waiting for at its deadline, nobody needs any more, whole runs below included. */
static void stop_waiting(struct rlm_run *r, const char *message)
{
    struct error why = { 0 };
    error_set(&why, ERROR_TIMEOUT, "the call was cancelled at the deadline of its cell: %.120s",
        message ? message : "");
    broker_give_up(r->broker, r->session, &why);
}

static void cell_done(void *arg, struct cell_result *c)
{
    struct rlm_run *r = arg;
    struct error err = { 0 };
    bool submitted = c->status == CELL_SUBMITTED, alive = c->alive;
    bool late = c->status == CELL_TIMEOUT;
    struct rlm_event event = { .kind = RLM_EVENT_RESULT, .cell = c, .text = "" };
    if (r->finished) {
        cell_result_free(c);
        return;
    }
    int rc = run_record_cell_end(r, c, &err);
    tell_event(r, &event);
    prompt_result(&r->feedback, c, r->block, r->tree->o.max_output_chars);
    char *answer = submitted && rc == 0 ? answer_of(c->submit, c->submit_len) : NULL;
    if (!alive && c->reason.code == ERROR_ENVIRONMENT) {
        rc = -1;
        err = c->reason;
    }
    if (late)
        stop_waiting(r, c->error.message);
    cell_result_free(c);
    if (rc < 0)
        fail(r, &err);
    else if (submitted)
        finish_answered(r, answer, RLM_ANSWERED);
    else if (alive)
        next_block(r);
    else if (++r->restarts > RESTARTS_MAX) {
        error_set(&err, ERROR_LOST, "the sandbox died %u times; the run was given up", r->restarts);
        fail(r, &err);
    } else {
        timer_start(r->later, 0, 0);
    }
}

static int run_block(struct rlm_run *r, const struct reply_block *block, struct error *err)
{
    struct session_cell cell = { .code = block->code, .len = block->len, .execute_timeout = -1 };
    tell(r, RLM_EVENT_CELL, block->code, block->len);
    int rc = run_record_cell(r, block->code, block->len, err);
    broker_place(r->broker, r->turn, r->cell_record);
    return rc < 0 ? rc : session_exec(r->session, &cell, cell_done, r, err);
}

static void next_block(struct rlm_run *r)
{
    struct reply_block block;
    struct error err = { 0 };
    if (!reply_next_block(buf_text(&r->reply), r->reply.len, &r->at, &block)) {
        blocks_done(r);
        return;
    }
    if (r->block++ > 0)
        buf_putc(&r->feedback, '\n');
    if (run_block(r, &block, &err) < 0)
        fail(r, &err);
}

/* The reply to prompt_last_turn. */
static void take_last_words(struct rlm_run *r, const char *text, size_t len)
{
    const char *value = text;
    size_t value_len = len;
    if (reply_find_final(text, len, &value, &value_len) == FINAL_NONE) {
        value = text;
        value_len = len;
    }
    struct error err = { 0 };
    error_set(&err, ERROR_BUDGET,
        "the model did not submit within %u turns; this is what it said last", r->place.iterations);
    r->result.error = err;
    finish_answered(r, quoted(value, value_len), RLM_EXHAUSTED);
}

static void model_replied(void *arg, const struct lm_reply *reply)
{
    struct rlm_run *r = arg;
    struct error err = { 0 };
    r->call = NULL;
    int rc = settle_call(r, reply, &err);
    if (reply->error.code != ERROR_NONE)
        err = reply->error;
    if (rc < 0 || err.code != ERROR_NONE) {
        fail(r, &err);
        return;
    }
    tell(r, RLM_EVENT_REPLY, reply->text, reply->len);
    if (r->place.parent)
        calls_changed(r);
    if (r->last) {
        take_last_words(r, reply->text, reply->len);
        return;
    }
    buf_clear(&r->reply);
    buf_append(&r->reply, reply->text, reply->len);
    buf_clear(&r->feedback);
    r->at = 0;
    r->block = 0;
    /* Some providers refuse an assistant's message without text. */
    char *said = reply->len > 0 ? text_copy(reply->text, reply->len) : strdup("(no reply)");
    if (buf_failed(&r->reply)) {
        free(said);
        error_memory(&err);
        fail(r, &err);
    } else if (add_message(r, "assistant", said, said ? strlen(said) : 0, &err) < 0) {
        fail(r, &err);
    } else {
        next_block(r);
    }
}

/* ---- the beginning ---- */

static void guest_call(void *arg, struct session *s, const struct session_call *call)
{
    struct rlm_run *r = arg;
    if (r->broker)
        broker_call(r->broker, s, call);
}

static void guest_call_dropped(void *arg, struct session *s, uint64_t id)
{
    struct rlm_run *r = arg;
    if (r->broker)
        broker_drop(r->broker, s, id);
}

static void guest_output(void *arg, struct session *s, int stream, const char *data, size_t len)
{
    struct rlm_run *r = arg;
    struct rlm_event event = {
        .kind = RLM_EVENT_OUTPUT, .stream = stream, .text = data, .len = len
    };
    if (!r->finished)
        tell_event(r, &event);
}

static const struct session_events guest_events = { guest_call, guest_call_dropped, guest_output };

static int open_session(struct rlm_run *r, struct error *err)
{
    const struct rlm_options *o = &r->tree->o;
    int rc = session_open(o->env, &o->session, &guest_events, r, &r->session, err);
    if (rc < 0)
        return rc;
    r->result.isolation = session_isolation(r->session);
    return run_record_isolation(r, err);
}

static bool may_have_children(const struct rlm_run *r)
{
    return r->place.depth < r->tree->budget.limits.depth;
}

static int first_messages(struct rlm_run *r, struct error *err)
{
    const struct context *context = r->place.context;
    struct buf text = { 0 };
    prompt_system(&text, r->tree->instructions, r->tree->o.session.rules, may_have_children(r));
    int rc = add_buf_message(r, "system", &text, err);
    if (rc < 0)
        return rc;
    prompt_question(&text, r->question, context ? r->variable : NULL,
        context ? context->source : NULL, r->place.iterations);
    return add_buf_message(r, "user", &text, err);
}

static void tell_context(struct rlm_run *r)
{
    cleanup_buf struct buf text = { 0 };
    const struct context *c = r->place.context;
    if (!c)
        return;
    prompt_describe_context(&text, r->variable);
    buf_printf(&text, ", from %.200s", c->source);
    tell(r, RLM_EVENT_CONTEXT, buf_text(&text), text.len);
    cleanup_free char *notice = context_notice(c);
    if (notice)
        tell(r, RLM_EVENT_NOTICE, notice, strlen(notice));
}

static int context_error(const struct rlm_run *r, const struct cell_result *c, struct error *err)
{
    if (!c->error.type) {
        if (err)
            *err = c->reason;
        return -(int)c->reason.code;
    }
    return error_set(err, ERROR_ARGUMENT,
        "the context %.60s cannot be read as asked: %.40s: %.80s; give another --context-type",
        r->place.context ? r->place.context->source : "", c->error.type, c->error.message);
}

static void context_is_set(void *arg, struct cell_result *c)
{
    struct rlm_run *r = arg;
    struct error err = { 0 };
    int rc = 0;
    if (!r->finished && c->status != CELL_OK)
        rc = context_error(r, c, &err);
    bool again = r->variable != NULL;
    if (rc == 0 && !again)
        r->variable = c->variable ? json_object_get(c->variable) : json_object_new_object();
    cell_result_free(c);
    if (r->finished)
        return;
    if (rc == 0 && !again) {
        tell_context(r);
        rc = first_messages(r, &err);
    }
    if (rc < 0)
        fail(r, &err);
    else if (again)
        finish_turn(r); /* what is left of the reply was written for variables that are gone */
    else
        next_turn(r);
}

static int set_context(struct rlm_run *r, struct error *err)
{
    static const char *const names[] = { "context", "context_0" };
    if (r->place.context)
        return context_set(r->place.context, r->session, names, 2, context_is_set, r, err);
    return session_set(r->session, names, 1, VALUE_TEXT, "", 0, -1, context_is_set, r, err);
}

static void setup_is_done(void *arg, struct cell_result *c)
{
    struct rlm_run *r = arg;
    struct error err = { 0 };
    int rc = r->finished ? 0 : session_setup_outcome(c, &err);
    cell_result_free(c);
    if (r->finished)
        return;
    if (rc == 0)
        rc = set_context(r, &err);
    if (rc < 0)
        fail(r, &err);
}

/* What comes before the first block of a session: the setup code, then the context. */
static int prepare_session(struct rlm_run *r, struct error *err)
{
    if (!r->tree->setup)
        return set_context(r, err);
    struct session_cell cell = session_setup_cell(&r->tree->o.session);
    return session_exec(r->session, &cell, setup_is_done, r, err);
}

struct lm *tree_lm(const struct tree *tree, unsigned depth)
{
    size_t last = tree->o.model_count - 1;
    return tree->o.models[depth < last ? depth : last];
}

static int open_broker(struct rlm_run *r, struct error *err)
{
    const struct rlm_options *o = &r->tree->o;
    struct broker_options broker = {
        .lm = tree_lm(r->tree, r->place.depth + 1),
        .children = may_have_children(r) ? &run_children : NULL,
        .children_arg = r,
        .budget = &r->tree->budget,
        .account = &r->account,
        .call_timeout = o->call_timeout,
        .loop = r->tree->loop,
        .answer_timeout = o->answer_timeout,
        .max_tokens = o->max_tokens,
        .depth = r->place.depth + 1,
        .store = o->store,
        .run = r->result.run,
        .changed = calls_changed,
        .arg = r,
    };
    return broker_open(&broker, &r->broker, err);
}

static int set_up(struct rlm_run *r, struct error *err)
{
    double seconds = r->tree->o.limits.seconds;
    r->deadline = timer_new(r->tree->loop, time_is_up, r);
    r->later = timer_new(r->tree->loop, restart_session, r);
    if (!r->deadline || !r->later || !r->question || (r->place.model && !r->model))
        return error_memory(err);
    int rc = open_broker(r, err);
    if (rc == 0)
        rc = run_record_begin(r, err);
    if (rc < 0)
        return rc;
    tell(r, RLM_EVENT_STARTED, r->result.run, strlen(r->result.run));
    rc = open_session(r, err);
    if (rc == 0)
        rc = prepare_session(r, err);
    if (rc == 0 && seconds > 0 && !r->place.parent) /* it ends the others */
        timer_start(r->deadline, (uint64_t)(seconds * 1000), 0);
    return rc;
}

static void never_told(void *arg, const struct rlm_result *result)
{
}

static struct rlm_run *new_run(
    struct tree *tree, const struct run_place *place, rlm_done_fn *done, void *arg)
{
    struct rlm_run *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    *r = (struct rlm_run){ .tree = tree,
        .place = *place,
        .question = strdup(place->question),
        .model = place->model ? strdup(place->model) : NULL,
        .lm = tree_lm(tree, place->depth),
        .account = { .up = place->parent ? &place->parent->account : NULL },
        .reserved = place->parent != NULL,
        .done = done,
        .done_arg = arg,
        .start_ns = clock_ns(),
        .result = { .rules = tree->o.session.rules,
            .left_out = place->context ? place->context->left_out : 0,
            .budget = &tree->budget } };
    return r;
}

int run_start(struct tree *tree, const struct run_place *place, rlm_done_fn *done, void *arg,
    struct rlm_run **out, struct error *err)
{
    struct error why = { 0 };
    struct rlm_run *r = new_run(tree, place, done, arg);
    if (!r) {
        budget_unreserve(&tree->budget, place->parent ? 1 : 0);
        return error_memory(err);
    }
    if (!place->parent)
        tree->root = r;
    int rc = set_up(r, &why);
    if (rc < 0) {
        /* The caller learns it from the return; the record must say it too. */
        r->done = never_told;
        fail(r, &why);
        run_free(r);
        if (err)
            *err = why;
        return rc;
    }
    *out = r;
    return 0;
}

void run_free(struct rlm_run *r)
{
    if (!r)
        return;
    session_close(r->session);
    timer_free(r->deadline);
    timer_free(r->later);
    for (size_t i = 0; i < r->message_count; i++)
        free(r->messages[i].text);
    free(r->messages);
    free(r->question);
    free(r->model);
    free(r->result.answer);
    json_object_put(r->variable);
    buf_free(&r->reply);
    buf_free(&r->feedback);
    free(r);
}

/* ---- the tree ---- */

static void close_tree(struct tree *tree)
{
    if (!tree)
        return;
    tree_bury(tree, true);
    run_free(tree->root);
    timer_free(tree->later);
    budget_free(&tree->budget);
    free(tree->instructions);
    free(tree->setup);
    free(tree);
}

static struct tree *open_tree(struct loop *loop, const struct rlm_options *options)
{
    const char *setup = options->session.setup, *instructions = options->instructions;
    struct tree *tree = calloc(1, sizeof *tree);
    if (!tree)
        return NULL;
    *tree = (struct tree){ .loop = loop,
        .o = *options,
        .instructions = instructions ? strdup(instructions) : NULL,
        .setup = setup ? strdup(setup) : NULL };
    TAILQ_INIT(&tree->children);
    budget_init(&tree->budget, &options->limits);
    tree->later = timer_new(loop, tree_look, tree);
    if (!tree->later || (setup && !tree->setup) || (instructions && !tree->instructions)) {
        close_tree(tree);
        return NULL;
    }
    tree->o.session.setup = tree->setup;
    return tree;
}

int rlm_start(struct loop *loop, const struct rlm_options *options, rlm_done_fn *done, void *arg,
    struct rlm_run **out, struct error *err)
{
    struct run_place place = { .question = options->question,
        .context = options->context,
        .iterations = options->max_iterations };
    struct tree *tree = open_tree(loop, options);
    if (!tree)
        return error_memory(err);
    int rc = run_start(tree, &place, done, arg, out, err);
    if (rc < 0) {
        tree->root = NULL; /* it is gone */
        close_tree(tree);
    }
    return rc;
}

void rlm_cancel(struct rlm_run *r)
{
    struct error err = { 0 };
    error_set(&err, ERROR_CANCELLED, "the run was cancelled");
    run_end(r, RLM_CANCELLED, &err);
}

void rlm_close(struct rlm_run *r)
{
    if (!r)
        return;
    if (!r->finished) {
        r->done = never_told;
        rlm_cancel(r);
    }
    close_tree(r->tree);
}
