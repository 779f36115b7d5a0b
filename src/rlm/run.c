/* rlm/run.c: the loop.
 *
 *   open a session ─► set `context` ─► turn: ask the model ─► run the reply's blocks one by one
 *        ▲                               ▲                        │
 *        │ (the sandbox died)            └── feed the output back ┘─► an answer ─► end
 *
 * Each arrow is a callback from below. A session must not be closed from within its own callback,
 * so what replaces a dead one goes through a timer of no time. Whatever happens, `finish` is the
 * one end: it closes the record and tells the caller, once. A run that is resumed takes its next
 * step from the record as long as there is one there (rlm/resume.h).
 */
#include "rlm/rlm.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/cleanup.h"
#include "base/json.h"
#include "base/text.h"
#include "broker/broker.h"
#include "rlm/parse.h"
#include "rlm/prompt.h"
#include "rlm/resume.h"

#ifndef DROSTE_VERSION
#define DROSTE_VERSION "0"
#endif

enum { RESTARTS_MAX = 5 };

struct message {
    const char *role;
    char *text;
    size_t len;
};

struct rlm_run {
    struct loop *loop;
    struct rlm_options o;
    char *question, *instructions, *setup, *settings;
    rlm_done_fn *done;
    void *done_arg;

    struct session *session;
    struct broker *broker;
    struct json_object *variable; /* what `context` became */
    unsigned restarts;

    struct message *messages;
    size_t message_count, message_cap;
    size_t recorded; /* messages that are in the record already */

    unsigned turn;
    struct lm_call *call;
    int64_t call_record;
    struct budget_hold hold;
    bool last; /* the model is being asked for an answer without code */

    struct buf reply; /* the reply whose blocks are being run */
    size_t at;        /* behind the last block that began */
    unsigned block;
    bool failed;     /* some cell of this turn did */
    unsigned errors; /* turns in a row of which that is true */
    int64_t cell_record;
    struct buf feedback;

    struct resume *resume;           /* NULL: a new run */
    struct recorded_call *known;     /* whose reply comes next */
    struct recorded_cell *same_cell; /* that runs again */
    struct buf submitted;            /* the answer, where only the end of the run is missing */
    struct error diverged;
    struct timer *step; /* takes what the record has next: not from within what came before */

    struct timer *deadline, *later;
    uint64_t start_ns;
    bool finished;
    struct rlm_result result;
};

static const char *const status_names[] = { "answered", "exhausted", "budget", "timeout",
    "cancelled", "error" };

const char *rlm_status_name(enum rlm_status status)
{
    return status_names[status];
}

/* ---- telling ---- */

static void tell_event(struct rlm_run *r, struct rlm_event *event)
{
    if (!r->o.event)
        return;
    event->turn = r->turn;
    event->turns = r->o.max_iterations;
    event->budget = &r->result.budget;
    event->pending = r->broker ? broker_pending(r->broker) : 0;
    r->o.event(r->o.arg, event);
}

static void tell(struct rlm_run *r, enum rlm_event_kind kind, const char *text, size_t len)
{
    struct rlm_event event = { .kind = kind, .text = text, .len = len };
    tell_event(r, &event);
}

static void calls_changed(void *arg)
{
    tell(arg, RLM_EVENT_CALLS, "", 0);
}

/* ---- the end ---- */

static void close_record(struct rlm_run *r)
{
    struct rlm_result *result = &r->result;
    struct store_run_end end = {
        .status = rlm_status_name(result->status),
        .error = result->error.code ? result->error.text : NULL,
        .answer = store_text(result->answer),
        .iterations = result->iterations,
        .calls = result->budget.calls,
        .input_tokens = result->budget.input_tokens,
        .output_tokens = result->budget.output_tokens,
        .cost = -1,
        .seconds = result->seconds,
    };
    struct error err = { 0 };
    if (!r->o.store || !result->run[0])
        return;
    if (store_run_end(r->o.store, result->run, &end, &err) < 0 && !result->error.code)
        result->error = err;
}

static int record_call_end(struct rlm_run *r, const struct lm_reply *reply, struct error *err)
{
    struct store_call_end end = broker_call_end(reply);
    int64_t record = r->call_record;
    r->call_record = 0;
    return record ? store_call_end(r->o.store, record, &end, err) : 0;
}

static int settle_call(struct rlm_run *r, const struct lm_reply *reply, struct error *err)
{
    budget_settle(&r->result.budget, &r->hold, &reply->usage);
    return record_call_end(r, reply, err);
}

/* The cell under way dies with the run; `by` is what ended both. */
static void close_cell(struct rlm_run *r, const char *by)
{
    struct store_cell_end end = { .status = cell_status_name(CELL_KILLED), .killed = by };
    if (r->cell_record)
        store_cell_end(r->o.store, r->cell_record, &end, NULL);
    r->cell_record = 0;
}

/* What was not replayed to its end can be tried again: the record stays as it was. */
static bool goes_back(struct rlm_run *r, enum rlm_status status)
{
    return r->resume && status != RLM_ANSWERED && status != RLM_EXHAUSTED &&
           (r->turn == 0 || r->diverged.code || r->same_cell || r->known ||
               resume_is_behind(r->resume));
}

static void finish(struct rlm_run *r, enum rlm_status status, const struct error *why)
{
    if (r->finished)
        return;
    r->finished = true;
    bool back = goes_back(r, status);
    if (back) {
        r->call_record = r->cell_record = 0;
        if (r->broker)
            broker_abandon(r->broker);
    }
    if (r->call) {
        struct lm_reply cancelled = { .text = "", .finish = "" };
        lm_cancel(steal(&r->call), &cancelled.usage);
        error_set(&cancelled.error, ERROR_CANCELLED, "the run ended");
        settle_call(r, &cancelled, NULL);
    }
    broker_close(steal(&r->broker));
    close_cell(r, rlm_status_name(status));
    r->result.status = status;
    if (why)
        r->result.error = *why;
    r->result.seconds = clock_seconds_since(r->start_ns);
    timer_stop(r->deadline);
    timer_stop(r->later);
    timer_stop(r->step);
    if (r->resume)
        r->result.resumed = resume_json(r->resume);
    if (back)
        store_run_release(r->o.store, r->result.run, NULL);
    else
        close_record(r);
    r->done(r->done_arg, &r->result);
}

static void time_is_up(void *arg)
{
    struct rlm_run *r = arg;
    struct error err = { 0 };
    error_set(&err, ERROR_TIMEOUT, "the run reached its time limit of %g s (--timeout)",
        r->o.limits.seconds);
    finish(r, RLM_TIMEOUT, &err);
}

static void fail(struct rlm_run *r, const struct error *why)
{
    /* The budget may see the end of the time before the timer strikes. */
    if (why->code == ERROR_BUDGET && budget_seconds_left(&r->result.budget) <= 0) {
        time_is_up(r);
        return;
    }
    enum rlm_status status = why->code == ERROR_BUDGET      ? RLM_BUDGET
                             : why->code == ERROR_CANCELLED ? RLM_CANCELLED
                                                            : RLM_ERROR;
    finish(r, status, why);
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
    finish(r, status, NULL);
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

/* The messages that are new since the last call, as JSON; the record keeps each once. */
static void new_messages(struct rlm_run *r, struct buf *out)
{
    buf_putc(out, '[');
    for (size_t i = r->recorded; i < r->message_count; i++) {
        buf_printf(out, "%s{\"role\":\"%s\",\"content\":", i > r->recorded ? "," : "",
            r->messages[i].role);
        json_append_string(out, r->messages[i].text, r->messages[i].len);
        buf_putc(out, '}');
    }
    buf_putc(out, ']');
}

static int record_call(struct rlm_run *r, const char *key, struct error *err)
{
    cleanup_buf struct buf request = { 0 };
    if (!r->o.store)
        return 0;
    if (r->call_record) /* it began in an earlier life of the run */
        return store_call_repeat(r->o.store, r->call_record, err);
    new_messages(r, &request);
    struct store_call_begin begin = {
        .run = r->result.run,
        .turn = r->turn,
        .kind = "root",
        .model = lm_name(r->o.lm),
        .request = { buf_text(&request), request.len },
        .key = key,
    };
    return store_call_begin(r->o.store, &begin, &r->call_record, err);
}

static const char *role_named(const char *name)
{
    static const char *const roles[] = { "system", "assistant" };
    for (size_t i = 0; i < array_length(roles); i++)
        if (strcmp(roles[i], name) == 0)
            return roles[i];
    return "user";
}

/* The run does not do what the record says that it did; returns rc. */
static int diverge(struct rlm_run *r, int rc, const struct error *why)
{
    if (why)
        r->diverged = *why;
    return rc;
}

static void model_delta(void *arg, const char *text, size_t len)
{
    tell(arg, RLM_EVENT_DELTA, text, len);
}

static void model_replied(void *arg, const struct lm_reply *reply);

/* The call is in the record: what the model was told is, too, and holds, whatever the cells have
 * printed this time. */
static int take_recorded_messages(
    struct rlm_run *r, const struct recorded_call *call, struct error *err)
{
    cleanup_buf struct buf said = { 0 }, text = { 0 };
    cleanup_json struct json_object *list = NULL;
    new_messages(r, &said);
    int rc = recorded_read(resume_recorded(r->resume), &call->request, &text, err);
    if (rc < 0 || (said.len == text.len && memcmp(buf_text(&said), buf_text(&text), text.len) == 0))
        return rc;
    rc = json_parse(buf_text(&text), text.len, &json_limits_large, &list, err);
    size_t count = json_object_is_type(list, json_type_array) ? json_object_array_length(list) : 0;
    while (r->message_count > r->recorded)
        free(r->messages[--r->message_count].text);
    for (size_t i = 0; rc == 0 && i < count; i++) {
        struct json_object *m = json_object_array_get_idx(list, i), *content = NULL;
        const char *role = role_named(json_get_string(m, "role", ""));
        json_object_object_get_ex(m, "content", &content);
        size_t len = content ? (size_t)json_object_get_string_len(content) : 0;
        rc = add_message(r, role, text_copy(json_get_string(m, "content", ""), len), len, err);
    }
    static const char notice[] = "a cell printed something else than it did before; the model "
                                 "knows what it was told then";
    if (rc == 0 && call->turn > 1)
        tell(r, RLM_EVENT_NOTICE, notice, sizeof notice - 1);
    return rc;
}

static int begin_call(
    struct rlm_run *r, struct lm_request *request, size_t bytes, struct error *err)
{
    struct budget *budget = &r->result.budget;
    char key[LM_KEY_SIZE];
    int rc = budget_reserve(budget, 0, err);
    if (rc == 0)
        rc = budget_hold(budget, bytes, &r->hold, err);
    if (rc == 0 && !request->key) {
        rc = lm_key(key, err);
        request->key = key;
    }
    if (rc == 0)
        rc = record_call(r, request->key, err);
    r->recorded = r->message_count;
    if (rc == 0)
        rc = lm_start(
            r->o.lm, request, model_replied, r->o.event ? model_delta : NULL, r, &r->call, err);
    if (rc < 0) {
        struct lm_reply never = { .error = *err, .text = "", .finish = "" };
        budget_release(budget, &r->hold);
        record_call_end(r, &never, NULL);
    }
    return rc;
}

static int ask_model(struct rlm_run *r, struct error *err)
{
    struct recorded_call *known = NULL;
    size_t bytes = 0;
    int rc = r->resume ? resume_next_call(r->resume, r->turn, &known, err) : 0;
    if (rc == 0 && known)
        rc = take_recorded_messages(r, known, err);
    if (rc < 0)
        return diverge(r, rc, err);
    cleanup_free struct lm_message *messages = calloc(r->message_count, sizeof *messages);
    if (!messages)
        return error_memory(err);
    for (size_t i = 0; i < r->message_count; i++) {
        messages[i] =
            (struct lm_message){ r->messages[i].role, r->messages[i].text, r->messages[i].len };
        bytes += r->messages[i].len;
    }
    struct lm_request request = { .messages = messages,
        .message_count = r->message_count,
        .timeout = r->o.call_timeout,
        .max_tokens = r->o.max_tokens,
        .temperature = -1 };
    if (known && known->ended) {
        r->recorded = r->message_count;
        r->known = known;
        timer_start(r->step, 0, 0);
        return lm_pass(r->o.lm, &request, err);
    }
    if (known) {
        r->call_record = known->id;
        request.key = known->key[0] ? known->key : NULL;
    }
    return begin_call(r, &request, bytes, err);
}

static void next_turn(struct rlm_run *r)
{
    struct error err = { 0 };
    int rc = 0;
    if (r->turn >= r->o.max_iterations) {
        struct buf text = { 0 };
        buf_puts(&text, prompt_last_turn);
        r->last = true;
        rc = add_buf_message(r, "user", &text, &err);
    } else {
        r->turn++;
        r->result.iterations = r->turn;
        if (r->o.store && !(r->resume && resume_has_turn(r->resume, r->turn)))
            rc = store_turn_begin(r->o.store, r->result.run, r->turn, &err);
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

/* A turn without code neither fails nor mends anything. */
static int count_errors(struct rlm_run *r, struct error *err)
{
    if (r->block > 0)
        r->errors = r->failed ? r->errors + 1 : 0;
    if (r->o.max_errors == 0 || r->errors < r->o.max_errors)
        return 0;
    return error_set(err, ERROR_BUDGET,
        "the code failed in %u turns in a row (--max-errors); `droste runs show` has the errors",
        r->errors);
}

static void finish_turn(struct rlm_run *r)
{
    struct error err = { 0 };
    if (count_errors(r, &err) < 0) {
        fail(r, &err);
        return;
    }
    if (r->turn < r->o.max_iterations)
        buf_printf(&r->feedback, "\nTurn %u of %u.", r->turn + 1, r->o.max_iterations);
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

static int record_cell_end(struct rlm_run *r, const struct cell_result *c, struct error *err)
{
    cleanup_json struct json_object *e = json_object_new_object();
    if (!r->o.store)
        return 0;
    if (e && c->error.type) {
        json_put_text(e, "type", c->error.type);
        json_put_text(e, "message", c->error.message);
        json_put_text(e, "traceback", c->error.traceback);
    }
    struct store_cell_end end = {
        .status = cell_status_name(c->status),
        .killed = c->killed[0] ? c->killed : NULL,
        .standard_output = { buf_text(&c->out), c->out.len },
        .standard_error = { buf_text(&c->err), c->err.len },
        .submit = { c->submit, c->submit_len },
        .error = store_text(c->error.type && e ? json_text(e, NULL) : NULL),
        .variables = store_text(c->variables ? json_text(c->variables, NULL) : NULL),
        .calls = c->calls,
        .seconds = c->seconds,
    };
    int64_t cell = r->cell_record;
    r->cell_record = 0;
    return store_cell_end(r->o.store, cell, &end, err);
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

/* Of a cell that ran before, the record has the end already; this one must be the same. */
static int cell_is_over(struct rlm_run *r, const struct cell_result *c, struct error *err)
{
    struct recorded_cell *same = r->same_cell;
    int rc = same ? resume_check_cell(r->resume, same, c, err) : 0;
    if (rc < 0)
        return diverge(r, rc, err);
    r->same_cell = NULL;
    if (!same || !same->ended)
        return record_cell_end(r, c, err);
    r->cell_record = 0;
    return 0;
}

static void cell_done(void *arg, struct cell_result *c)
{
    struct rlm_run *r = arg;
    struct error err = { 0 };
    bool submitted = c->status == CELL_SUBMITTED, alive = c->alive;
    struct rlm_event event = { .kind = RLM_EVENT_RESULT, .cell = c, .text = "" };
    if (r->finished) {
        cell_result_free(c);
        return;
    }
    int rc = cell_is_over(r, c, &err);
    tell_event(r, &event);
    r->failed |= c->status != CELL_OK && !submitted;
    prompt_result(&r->feedback, c, r->block, r->o.max_output_chars);
    char *answer = submitted && rc == 0 ? answer_of(c->submit, c->submit_len) : NULL;
    if (!alive && c->reason.code == ERROR_ENVIRONMENT) {
        rc = -1;
        err = c->reason;
    }
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
    struct store_cell_begin begin = {
        .run = r->result.run, .turn = r->turn, .code = { block->code, block->len }
    };
    tell(r, RLM_EVENT_CELL, block->code, block->len);
    if (r->same_cell)
        r->cell_record = r->same_cell->id;
    int rc = r->o.store && !r->same_cell
                 ? store_cell_begin(r->o.store, &begin, &r->cell_record, err)
                 : 0;
    broker_place(r->broker, r->turn, r->cell_record);
    return rc < 0 ? rc : session_exec(r->session, &cell, cell_done, r, err);
}

/* A cell of a sandbox that died later, or under it: nothing of it is left that would be needed. */
static int pass_block(struct rlm_run *r, const struct recorded_cell *cell, struct error *err)
{
    struct cell_result result;
    int rc = resume_cell_result(r->resume, cell, &result, err);
    if (rc < 0)
        return rc;
    r->failed |= result.status != CELL_OK;
    prompt_result(&r->feedback, &result, r->block, r->o.max_output_chars);
    cell_result_free(&result);
    if (!cell->died) {
        next_block(r);
        return 0;
    }
    r->restarts++;
    finish_turn(r);
    return 0;
}

static void next_block(struct rlm_run *r)
{
    struct reply_block block;
    struct recorded_cell *same = NULL;
    struct error err = { 0 };
    if (!reply_next_block(buf_text(&r->reply), r->reply.len, &r->at, &block)) {
        blocks_done(r);
        return;
    }
    if (r->block++ > 0)
        buf_putc(&r->feedback, '\n');
    int rc =
        r->resume ? resume_next_cell(r->resume, r->turn, block.code, block.len, &same, &err) : 0;
    if (rc < 0)
        diverge(r, rc, &err);
    else if (same && resume_is_gone(r->resume, same))
        rc = pass_block(r, same, &err);
    else {
        r->same_cell = same;
        rc = run_block(r, &block, &err);
    }
    if (rc < 0)
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
        "the model did not submit within %u turns; this is what it said last", r->o.max_iterations);
    r->result.error = err;
    finish_answered(r, quoted(value, value_len), RLM_EXHAUSTED);
}

static void take_reply(struct rlm_run *r, const struct lm_reply *reply)
{
    struct error err = reply->error;
    if (err.code != ERROR_NONE) {
        fail(r, &err);
        return;
    }
    tell(r, RLM_EVENT_REPLY, reply->text, reply->len);
    if (r->last) {
        take_last_words(r, reply->text, reply->len);
        return;
    }
    buf_clear(&r->reply);
    buf_append(&r->reply, reply->text, reply->len);
    buf_clear(&r->feedback);
    r->at = 0;
    r->block = 0;
    r->failed = false;
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

static void model_replied(void *arg, const struct lm_reply *reply)
{
    struct rlm_run *r = arg;
    struct error err = { 0 };
    r->call = NULL;
    if (settle_call(r, reply, &err) < 0 && reply->error.code == ERROR_NONE)
        fail(r, &err);
    else
        take_reply(r, reply);
}

/* ---- steps of the record ---- */

static void next_step(void *arg)
{
    struct rlm_run *r = arg;
    struct recorded_call *call = steal(&r->known);
    cleanup_buf struct buf text = { 0 };
    if (r->diverged.code) {
        fail(r, &r->diverged);
        return;
    }
    if (!call) { /* the answer itself was on disk when the process died */
        r->turn = r->result.iterations = (unsigned)recorded_turns(resume_recorded(r->resume));
        finish_answered(r, answer_of(buf_text(&r->submitted), r->submitted.len), RLM_ANSWERED);
        return;
    }
    struct lm_reply reply = { .error = call->error, .finish = call->finish };
    if (reply.error.code == ERROR_NONE)
        recorded_read(resume_recorded(r->resume), &call->reply, &text, &reply.error);
    reply.text = buf_text(&text);
    reply.len = text.len;
    take_reply(r, &reply);
}

/* A guest asks something else: the session that says so cannot be closed from within. */
static void guest_diverged(void *arg, const struct error *why)
{
    struct rlm_run *r = arg;
    if (r->finished || r->diverged.code)
        return;
    r->diverged = *why;
    timer_start(r->step, 0, 0);
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
    int rc = session_open(r->o.env, &r->o.session, &guest_events, r, &r->session, err);
    if (rc < 0)
        return rc;
    r->result.isolation = session_isolation(r->session);
    if (!r->o.store)
        return 0;
    return store_run_note_isolation(
        r->o.store, r->result.run, isolation_name(r->result.isolation), err);
}

static int first_messages(struct rlm_run *r, struct error *err)
{
    struct buf text = { 0 };
    prompt_system(&text, r->instructions, r->o.session.rules);
    int rc = add_buf_message(r, "system", &text, err);
    if (rc < 0)
        return rc;
    prompt_question(&text, r->question, r->o.context ? r->variable : NULL,
        r->o.context ? r->o.context->source : NULL, r->o.max_iterations);
    return add_buf_message(r, "user", &text, err);
}

static void tell_context(struct rlm_run *r)
{
    cleanup_buf struct buf text = { 0 };
    const struct context *c = r->o.context;
    if (!c)
        return;
    prompt_describe_context(&text, r->variable);
    buf_printf(&text, ", from %.200s", c->source);
    tell(r, RLM_EVENT_CONTEXT, buf_text(&text), text.len);
    cleanup_free char *notice = context_notice(c);
    if (notice)
        tell(r, RLM_EVENT_NOTICE, notice, strlen(notice));
}

static void context_is_set(void *arg, struct cell_result *c)
{
    struct rlm_run *r = arg;
    struct error err = { 0 };
    int rc = 0;
    if (!r->finished && c->status != CELL_OK)
        rc = context_refused(r->o.context, c, &err);
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
    if (r->o.context)
        return context_set(r->o.context, r->session, names, 2, context_is_set, r, err);
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
    if (!r->setup)
        return set_context(r, err);
    r->o.session.setup = r->setup;
    struct session_cell cell = session_setup_cell(&r->o.session);
    return session_exec(r->session, &cell, setup_is_done, r, err);
}

static char *context_json(const struct context *c, const char *hash)
{
    struct buf out = { 0 };
    if (!c)
        return NULL;
    buf_puts(&out, "{\"source\":");
    if (text_is_utf8(c->source, strlen(c->source), NULL))
        json_append_string(&out, c->source, strlen(c->source));
    else
        buf_puts(&out, "null");
    buf_printf(&out,
        ",\"bytes\":%zu,\"files\":%llu,\"left_out\":%llu,\"sha256\":\"%s\",\"path\":", c->len,
        (unsigned long long)c->files, (unsigned long long)c->left_out, hash);
    if (c->path && text_is_utf8(c->path, strlen(c->path), NULL))
        json_append_string(&out, c->path, strlen(c->path));
    else
        buf_puts(&out, "null");
    buf_putc(&out, '}');
    return buf_steal(&out);
}

static char *limits_json(const struct rlm_options *o)
{
    struct buf out = { 0 };
    buf_printf(&out,
        "{\"max_iterations\":%u,\"max_llm_calls\":%lld,\"input_tokens\":%lld,"
        "\"output_tokens\":%lld,\"total_tokens\":%lld,\"seconds\":%g,\"execute_timeout\":%g,"
        "\"llm_call_timeout\":%g}",
        o->max_iterations, (long long)o->limits.calls, (long long)o->limits.input_tokens,
        (long long)o->limits.output_tokens, (long long)o->limits.total_tokens, o->limits.seconds,
        o->session.execute_timeout, o->call_timeout);
    return buf_steal(&out);
}

static int begin_record(struct rlm_run *r, struct error *err)
{
    char hash[HASH_TEXT_SIZE] = "";
    cleanup_buf struct buf kept = { 0 };
    int rc = r->o.store && r->o.context ? context_keep(r->o.context, hash, &kept, err) : 0;
    if (!r->o.store || rc < 0)
        return rc;
    cleanup_free char *context = context_json(r->o.context, hash), *limits = limits_json(&r->o);
    struct store_run_begin begin = {
        .model = lm_name(r->o.lm),
        .environment = r->o.env_name,
        .version = DROSTE_VERSION,
        .question = store_text(r->question),
        .context = store_text(context),
        .limits = store_text(limits),
        .settings = store_text(r->settings),
        .context_data = { kept.data, kept.len },
    };
    return store_run_begin(r->o.store, &begin, r->result.run, err);
}

static int begin_again(struct rlm_run *r, struct error *err)
{
    struct lm *sub = r->o.sub_lm ? r->o.sub_lm : r->o.lm;
    int rc = resume_open(
        r->o.store, r->o.resume, sub, r->o.max_tokens, &r->result.budget, &r->resume, err);
    if (rc < 0)
        return rc;
    snprintf(r->result.run, sizeof r->result.run, "%s", r->o.resume);
    r->start_ns = r->result.budget.start_ns;
    resume_submitted(r->resume, &r->submitted, NULL);
    return 0;
}

void rlm_cancel(struct rlm_run *r)
{
    struct error err = { 0 };
    error_set(&err, ERROR_CANCELLED, "the run was cancelled");
    finish(r, RLM_CANCELLED, &err);
}

static int set_up(struct rlm_run *r, struct error *err)
{
    struct broker_options broker = {
        .lm = r->o.sub_lm ? r->o.sub_lm : r->o.lm,
        .budget = &r->result.budget,
        .call_timeout = r->o.call_timeout,
        .loop = r->loop,
        .answer_timeout = r->o.answer_timeout,
        .max_tokens = r->o.max_tokens,
        .depth = 1,
        .store = r->o.store,
        .run = r->result.run,
        .changed = calls_changed,
        .arg = r,
    };
    r->deadline = timer_new(r->loop, time_is_up, r);
    r->later = timer_new(r->loop, restart_session, r);
    r->step = timer_new(r->loop, next_step, r);
    if (!r->deadline || !r->later || !r->step || (r->o.settings && !r->settings) || !r->question ||
        (r->o.session.setup && !r->setup))
        return error_memory(err);
    int rc = r->o.resume ? begin_again(r, err) : begin_record(r, err);
    if (rc == 0 && r->resume) {
        broker.recorded = resume_recorded(r->resume);
        broker.diverged = guest_diverged;
    }
    if (rc == 0)
        rc = broker_open(&broker, &r->broker, err);
    if (rc < 0)
        return rc;
    tell(r, RLM_EVENT_STARTED, r->result.run, strlen(r->result.run));
    if (r->submitted.len > 0) {
        timer_start(r->step, 0, 0);
        return 0;
    }
    rc = open_session(r, err);
    if (rc == 0)
        rc = prepare_session(r, err);
    if (rc == 0 && r->o.limits.seconds > 0)
        timer_start(r->deadline, (uint64_t)(budget_seconds_left(&r->result.budget) * 1000), 0);
    return rc;
}

static void never_told(void *arg, const struct rlm_result *result)
{
}

int rlm_start(struct loop *loop, const struct rlm_options *options, rlm_done_fn *done, void *arg,
    struct rlm_run **out, struct error *err)
{
    struct rlm_run *r = calloc(1, sizeof *r);
    struct error why = { 0 };
    if (!r)
        return error_memory(err);
    *r = (struct rlm_run){
        .loop = loop, .o = *options, .done = done, .done_arg = arg, .start_ns = clock_ns()
    };
    r->question = strdup(options->question);
    r->instructions = options->instructions ? strdup(options->instructions) : NULL;
    r->setup = options->session.setup ? strdup(options->session.setup) : NULL;
    r->settings = options->settings ? strdup(options->settings) : NULL;
    r->result.rules = options->session.rules;
    r->result.left_out = options->context ? options->context->left_out : 0;
    budget_init(&r->result.budget, &options->limits);
    int rc = set_up(r, &why);
    if (rc < 0) {
        /* The caller learns it from the return; the record must say it too. */
        r->done = never_told;
        fail(r, &why);
        rlm_close(r);
        if (err)
            *err = why;
        return rc;
    }
    *out = r;
    return 0;
}

void rlm_close(struct rlm_run *r)
{
    if (!r)
        return;
    if (!r->finished) {
        r->done = never_told;
        rlm_cancel(r);
    }
    session_close(r->session);
    timer_free(r->deadline);
    timer_free(r->later);
    timer_free(r->step);
    resume_free(r->resume);
    for (size_t i = 0; i < r->message_count; i++)
        free(r->messages[i].text);
    free(r->messages);
    free(r->question);
    free(r->instructions);
    free(r->setup);
    free(r->settings);
    free(r->result.answer);
    free(r->result.resumed);
    json_object_put(r->variable);
    buf_free(&r->reply);
    buf_free(&r->feedback);
    buf_free(&r->submitted);
    free(r);
}
