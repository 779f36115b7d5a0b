/* rlm/turn.c: the turns of a run.
 *
 *   ask the model ─► its reply ─► its blocks, one after the other ─► what they printed ─► ask again
 *                       └─► an answer in words          └─► an answer that was submitted
 *
 * A run that is resumed does the same; where the record has the next step already, it comes from
 * there (replay.c).
 */
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/json/json.h"
#include "base/text.h"
#include "rlm/parse.h"
#include "rlm/prompt.h"
#include "rlm/run.h"
#include "session/answer.h"
#include "session/submission.h"

enum {
    RESTARTS_MAX = 5,
    LAST_WORDS_MAX = 3, /* how often to ask the model for them */
};

void turn_next(struct rlm_run *r)
{
    struct error err = { 0 };
    if (r->turn >= r->place.iterations || !compact_is_due(r))
        turn_begin(r);
    else if (compact_begin(r, &err) < 0)
        run_fail(r, &err);
}

void turn_begin(struct rlm_run *r)
{
    struct error err = { 0 };
    int rc = 0;
    if (r->tree->o.again && !resume_is_behind(r->resume)) {
        run_end(r, RLM_EXHAUSTED, NULL); /* ended, with or without an error */
        return;
    }
    if (r->turn >= r->place.iterations) {
        struct buf text = { 0 };
        buf_puts(
            &text, prompt_text(run_answer_type(r) ? PROMPT_LAST_TURN_TYPED : PROMPT_LAST_TURN));
        r->last = 1;
        rc = message_add_buf(r, "user", &text, &err);
    } else {
        r->turn++;
        r->result.iterations = r->turn;
        if (!r->resume || !resume_has_turn(r->resume, r->turn))
            rc = run_record_turn(r, &err);
        run_tell(r, RLM_EVENT_TURN, "", 0);
    }
    r->candidate = 0;
    bool several = r->tree->o.candidates > 1 && !r->place.parent && !r->last;
    if (rc == 0)
        rc = several ? candidates_begin(r, turn_finish, &err) : model_call_begin(r, &err);
    if (rc < 0)
        run_fail(r, &err);
}

/* ---- the reply's blocks ---- */

/* A turn without code resets no failures; it fails only if its answer has the wrong type. */
static int count_errors(struct rlm_run *r, struct error *err)
{
    unsigned max = r->tree->o.max_errors;
    if (r->block > 0 || r->failed)
        r->errors = r->failed ? r->errors + 1 : 0;
    if (max == 0 || r->errors < max)
        return 0;
    return error_set(err, ERROR_BUDGET_ERRORS,
        "the code failed in %u turn%s in a row (--max-errors); `droste runs show` has the errors",
        r->errors, text_plural(r->errors));
}

void turn_finish(struct rlm_run *r)
{
    struct error err = { 0 };
    if (r->of) {
        candidate_over(r);
        return;
    }
    if (count_errors(r, &err) < 0) {
        run_fail(r, &err);
        return;
    }
    r->candidate = 0;
    images_tell(r, "that this code showed", &r->feedback);
    if (r->turn < r->place.iterations)
        buf_printf(&r->feedback, "\nTurn %u of %u.", r->turn + 1, r->place.iterations);
    if (message_add_buf(r, "user", &r->feedback, &err) < 0) {
        run_fail(r, &err);
        return;
    }
    images_attach(r);
    turn_next(r);
}

/* Takes an answer of the right type; otherwise tells the model what is wrong. */
static void turn_take_words(struct rlm_run *r, const char *text, size_t len)
{
    struct error err = { 0 };
    char *answer = NULL;
    int rc = answer_from_words(run_answer_type(r), text, len, &answer, &err);
    if (rc == -(int)ERROR_ARGUMENT) {
        r->failed = true;
        PROMPT_FILL(&r->feedback,
            session_about(r->session) ? PROMPT_ANSWER_REFUSED_CUSTOM : PROMPT_ANSWER_REFUSED,
            { "why", err.text });
        turn_finish(r);
        return;
    }
    run_answered(r, answer, RLM_ANSWERED);
}

/* Without further code: an answer in words, a nudge, or the next turn. */
static void blocks_done(struct rlm_run *r)
{
    const char *value = NULL;
    size_t len = 0;
    enum reply_final final = reply_find_final(buf_text(&r->reply), r->reply.len, &value, &len);
    if (final == FINAL_TEXT) {
        turn_take_words(r, value, len);
        return;
    }
    if (final == FINAL_VARIABLE) {
        struct buf code = { 0 };
        /* This reply has no answer in words, so this runs only once. */
        buf_puts(&code, "```repl\nFINAL_VAR(");
        json_append_string(&code, value, len);
        buf_puts(&code, ")\n```\n");
        buf_free(&r->reply);
        r->reply = code;
        r->at = 0;
        turn_next_block(r);
        return;
    }
    if (r->block == 0)
        buf_puts(&r->feedback,
            prompt_text(session_about(r->session) ? PROMPT_NO_CODE_CUSTOM : PROMPT_NO_CODE));
    turn_finish(r);
}

/* A replayed cell must end as recorded. */
static int cell_is_over(struct rlm_run *r, const struct cell_result *c, struct error *err)
{
    bool ended = r->same_cell && r->same_cell->ended;
    int rc = r->same_cell ? replay_check_cell(r, c, err) : 0;
    if (rc == 0 && !ended)
        return run_record_cell_end(r, c, err);
    r->cell_record = 0;
    return rc;
}

/* NULL without memory. */
static char *submitted_answer(struct rlm_run *r, struct submission *submit)
{
    size_t len;
    const char *json = submission_json(submit, &len);
    return json ? answer_of(json, len, run_answer_type(r)) : NULL;
}

static void cell_done(void *arg, struct cell_result *c)
{
    struct rlm_run *r = arg;
    struct error err = { 0 };
    bool submitted = c->status == CELL_SUBMITTED, alive = c->alive;
    r->in_cell = false;
    bool late = c->status == CELL_TIMEOUT;
    const char *complaint = run_cell_complaint(c);
    struct rlm_event event = {
        .kind = RLM_EVENT_RESULT,
        .cell = c,
        .results = &c->results,
        .text = complaint,
        .len = strlen(complaint),
    };
    if (r->finished) {
        cell_result_free(c);
        return;
    }
    int rc = submitted ? 0 : images_take(r, &c->results, &err);
    if (rc == 0)
        rc = cell_is_over(r, c, &err);
    run_tell_event(r, &event);
    r->failed |= c->status != CELL_OK && !submitted;
    prompt_result(&r->feedback, c, r->block, r->tree->o.max_output_chars);
    char *answer = submitted && rc == 0 ? submitted_answer(r, c->submit) : NULL;
    if (!alive && c->reason.code == ERROR_ENVIRONMENT) {
        rc = -1;
        err = c->reason;
    }
    if (late)
        broker_deadline(r->broker, r->session, c->error.message);
    if (submitted && submission_values(c->submit, NULL))
        r->result.submit = steal(&c->submit);
    if (r->of)
        candidate_note_cell(r, c);
    else
        cell_result_free(c);
    if (rc < 0)
        run_fail(r, &err);
    else if (submitted)
        run_answered(r, answer, RLM_ANSWERED);
    else if (alive)
        turn_next_block(r);
    else if (r->of)
        turn_finish(r);
    else if (++r->restarts > RESTARTS_MAX) {
        error_set(
            &err, ERROR_LOST, "the sandbox died %u times, so the run was given up", r->restarts);
        run_fail(r, &err);
    } else {
        timer_start(r->later, 0, 0);
    }
}

static int run_block(struct rlm_run *r, const struct reply_block *block, struct error *err)
{
    struct session_cell cell = { .code = block->code,
        .len = block->len,
        .results = true,
        .prints = true, /* for the model, which reads the output */
        .values = r->place.parent ? 0 : r->tree->o.values,
        .execute_timeout = -1 };
    run_tell(r, RLM_EVENT_CELL, block->code, block->len);
    if (r->of) {
        free(r->code);
        r->code = text_copy(block->code, block->len);
    }
    int rc = r->same_cell ? 0 : run_record_cell(r, block->code, block->len, err);
    if (r->same_cell)
        r->cell_record = r->same_cell->id;
    broker_place(r->broker, r->turn, r->candidate, r->cell_record);
    if (rc < 0)
        return rc;
    if (session_is_alive(r->session)) {
        rc = session_exec(r->session, &cell, cell_done, r, err);
        r->in_cell = rc == 0;
        return rc;
    }
    struct cell_result dead; /* a thread of an earlier cell may end the sandbox meanwhile */
    session_death(r->session, &dead);
    cell_done(r, &dead);
    return 0;
}

void turn_next_block(struct rlm_run *r)
{
    struct reply_block block;
    struct error err = { 0 };
    if (!reply_next_block(buf_text(&r->reply), r->reply.len, &r->at, &block)) {
        blocks_done(r);
        return;
    }
    if (r->block++ > 0)
        buf_putc(&r->feedback, '\n');
    int rc = r->resume ? replay_next_block(r, &block, &err) : 0;
    if (rc == REPLAY_SKIPPED)
        turn_next_block(r);
    else if (rc == REPLAY_DIED)
        turn_finish(r);
    else if (rc == 0 && r->tree->o.again && !r->same_cell)
        run_end(r, RLM_EXHAUSTED, NULL);
    else if (rc == 0)
        rc = run_block(r, &block, &err);
    if (rc < 0)
        run_fail(r, &err);
}

/* The last reply has the wrong type; the model may retry a few times. */
static void ask_for_other_words(
    struct rlm_run *r, const char *reply, size_t len, const struct error *why)
{
    struct error err = { 0 };
    struct buf text = { 0 };
    if (r->last++ >= LAST_WORDS_MAX) {
        error_set(&err, ERROR_BUDGET_TURNS,
            "the model did not submit within %u turn%s, and its last reply does not fit the "
            "schema: %s",
            r->place.iterations, text_plural(r->place.iterations), why->text);
        run_end(r, RLM_EXHAUSTED, &err);
        return;
    }
    PROMPT_FILL(&text, PROMPT_ANSWER_REFUSED_LAST, { "why", why->text });
    int rc = message_add_reply(r, reply, len, &err);
    if (rc == 0)
        rc = message_add_buf(r, "user", &text, &err);
    if (rc == 0)
        rc = model_call_begin(r, &err);
    buf_free(&text);
    if (rc < 0)
        run_fail(r, &err);
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
    struct error err = { 0 }, why = { 0 };
    char *answer = NULL;
    int rc = answer_from_words(run_answer_type(r), value, value_len, &answer, &why);
    if (rc == -(int)ERROR_ARGUMENT) {
        ask_for_other_words(r, text, len, &why);
        return;
    }
    error_set(&err, ERROR_BUDGET_TURNS,
        "the model did not submit within %u turn%s; this is its last reply", r->place.iterations,
        text_plural(r->place.iterations));
    r->result.error = err;
    run_answered(r, answer, RLM_EXHAUSTED);
}

/* ---- a summary before a turn ---- */

/* If the session is dead, the new one receives the history, too. */
static void history_is_set(void *arg, struct cell_result *c)
{
    struct rlm_run *r = arg;
    struct error err = { 0 };
    bool bad = c->status != CELL_OK && c->alive;
    if (bad)
        context_refused(r->chat.bound_history, c, &err);
    cell_result_free(c);
    if (r->finished)
        return;
    if (bad) {
        run_fail(r, &err);
        return;
    }
    turn_begin(r);
}

static void take_summary(struct rlm_run *r, const struct lm_reply *reply)
{
    struct error err = { 0 };
    int rc = compact_take_summary(r, reply->text, reply->len, &err);
    bool binds = rc == 0 && compact_has_history(r) && session_is_alive(r->session);
    if (binds)
        rc = chat_bind_history(&r->chat, r->session, history_is_set, r, &err);
    if (rc < 0)
        run_fail(r, &err);
    else if (!binds)
        turn_begin(r);
}

/* ---- the reply ---- */

void turn_take_reply(struct rlm_run *r, const struct lm_reply *reply)
{
    struct error err = reply->error;
    if (err.code != ERROR_NONE) {
        if (reply->message && !r->result.message)
            r->result.message = strdup(reply->message); /* without it, the error has a part */
        run_fail(r, &err);
        return;
    }
    compact_count(run_owner(r), &reply->usage);
    if (r->compacting) {
        take_summary(r, reply);
        return;
    }
    run_tell(r, RLM_EVENT_REPLY, reply->text, reply->len);
    if (r->place.parent)
        run_calls_changed(r);
    if (r->last) {
        take_last_words(r, reply->text, reply->len);
        return;
    }
    buf_clear(&r->reply);
    buf_append(&r->reply, reply->text, reply->len);
    buf_clear(&r->feedback);
    images_drop(r);
    r->at = 0;
    r->block = 0;
    r->failed = false;
    if (r->of)
        buf_append(&r->text, reply->text, reply->len);
    int rc = 0;
    if (buf_failed(&r->reply) || buf_failed(&r->text))
        rc = error_memory(&err);
    else if (!r->of)
        rc = message_add_reply(r, reply->text, reply->len, &err);
    if (rc < 0)
        run_fail(r, &err);
    else
        turn_next_block(r);
}
