/* rlm/candidates.c: several replies to one turn, each of which is executed on a fork of the
 * session; a selector keeps one (select.h).
 *
 *   fork the session, once for each ─► ask the model, for all ─► execute each reply on its fork
 *        ┌────────────── record which one is kept ◄── select ◄──────────┘ all are over
 *        └─► its session becomes the run's, and its reply and output become the conversation's
 *
 * What is recorded decides: a resumed run executes the candidate that was kept, and no other. As
 * long as none was kept, all candidates are replayed like turns of their own.
 *
 * A candidate that dies leaves the run's own session, which continues from before the turn.
 */

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "rlm/candidate.h"
#include "rlm/run.h"
#include "session/submission.h"

enum { SHOWN_MAX = 8000 }; /* bytes of a candidate's code and of its output for the model */

static const char *const select_names[SELECT_COUNT] = { "first", "vote", "model", "callback" };

int rlm_select_parse(const char *name, enum rlm_select *out, struct error *err)
{
    for (enum rlm_select s = SELECT_FIRST; s < SELECT_COUNT; s++) {
        if (strcmp(name, select_names[s]) == 0) {
            *out = s;
            return 0;
        }
    }
    if (strncmp(name, "callback:", strlen("callback:")) == 0) {
        *out = SELECT_PROGRAM;
        return 0;
    }
    return error_set(err, ERROR_ARGUMENT,
        "select '%.40s': use first, vote, model or, in a program, a function", name);
}

/* ---- freeing them ---- */

static void candidate_free(struct rlm_run *c)
{
    session_close(c->session);
    for (size_t i = 0; i < c->tried_count; i++) {
        free(c->tried[i].code);
        cell_result_free(&c->tried[i].result);
    }
    free(c->tried);
    free(c->code);
    timer_free(c->step);
    images_drop(c);
    free(c->result.answer);
    free(c->result.message);
    submission_free(c->result.submit);
    buf_free(&c->reply);
    buf_free(&c->text);
    buf_free(&c->feedback);
    free(c);
}

void candidates_free(struct rlm_run *r)
{
    struct candidates *all = steal(&r->candidates);
    if (!all)
        return;
    for (size_t i = 0; i < all->count; i++) {
        if (!all->items[i]->finished)
            candidate_end(all->items[i], "not kept");
        candidate_free(all->items[i]);
    }
    timer_free(all->step);
    free(all);
}

/* ---- the one that is kept ---- */

static bool succeeded(const struct rlm_run *c)
{
    return candidate_is_usable(c) && !c->failed;
}

/* Events describe the candidate that is kept, as if it had been the only one. */
static void tell_kept(struct rlm_run *r, struct rlm_run *c, const char *reason)
{
    cleanup_buf struct buf text = { 0 };
    buf_printf(
        &text, "candidate %u of %zu is kept: %s", c->candidate, r->candidates->count, reason);
    run_tell(r, RLM_EVENT_NOTICE, buf_text(&text), text.len);
    run_tell(r, RLM_EVENT_REPLY, buf_text(&c->text), c->text.len);
    for (size_t i = 0; i < c->tried_count; i++) {
        struct cell_result *result = &c->tried[i].result;
        const char *why = run_cell_complaint(result);
        struct rlm_event out = { .kind = RLM_EVENT_OUTPUT,
            .stream = 1,
            .text = buf_text(&result->out),
            .len = result->out.len };
        struct rlm_event ended = { .kind = RLM_EVENT_RESULT,
            .cell = result,
            .results = &result->results,
            .text = why,
            .len = strlen(why) };
        run_tell(r, RLM_EVENT_CELL, c->tried[i].code, strlen(c->tried[i].code));
        if (result->out.len > 0)
            run_tell_event(r, &out);
        out.stream = 2;
        out.text = buf_text(&result->err);
        out.len = result->err.len;
        if (out.len > 0)
            run_tell_event(r, &out);
        run_tell_event(r, &ended);
    }
}

/* Its session becomes the run's; a dead one leaves the session from before the turn. */
static void take_session(struct rlm_run *r, struct rlm_run *c)
{
    if (!session_is_alive(c->session))
        return;
    broker_close(r->broker);
    session_close(r->session);
    r->session = steal(&c->session);
    r->broker = steal(&c->broker);
    session_hand_over(r->session, r);
}

static void take_turn(struct rlm_run *r, struct rlm_run *c)
{
    buf_free(&r->feedback);
    r->feedback = c->feedback;
    c->feedback = (struct buf){ 0 };
    images_drop(r);
    r->images = c->images;
    r->images_left_out = c->images_left_out;
    c->images = (struct images){ 0 };
    r->block = c->block;
    r->failed = c->failed;
    r->result.submit = steal(&c->result.submit);
}

static void candidates_keep(struct rlm_run *r, struct rlm_run *c, const char *reason)
{
    struct error err = { 0 };
    const char *state = session_is_alive(c->session)   ? "kept"
                        : session_is_alive(r->session) ? "before"
                                                       : "lost";
    char *answer = steal(&c->result.answer);
    int rc = run_record_kept(r, c->candidate, reason, state, &err);
    if (rc == 0)
        rc = message_add_reply(r, buf_text(&c->text), c->text.len, &err);
    if (rc == 0) {
        tell_kept(r, c, reason);
        take_session(r, c);
        take_turn(r, c);
    }
    void (*go_on)(struct rlm_run * r) = r->candidates->kept;
    candidates_free(r);
    if (rc < 0) {
        free(answer);
        run_fail(r, &err);
    } else if (answer) {
        run_answered(r, answer, RLM_ANSWERED);
    } else if (!session_is_alive(r->session)) {
        timer_start(r->later, 0, 0);
    } else {
        go_on(r);
    }
}

/* ---- selectors ---- */

static struct rlm_run *earliest(struct candidates *all, bool (*is)(const struct rlm_run *c))
{
    struct rlm_run *best = NULL;
    for (size_t i = 0; i < all->count; i++)
        if (is(all->items[i]) && (!best || all->items[i]->order < best->order))
            best = all->items[i];
    return best;
}

static void select_first(struct rlm_run *r)
{
    struct candidates *all = r->candidates;
    struct rlm_run *best = earliest(all, candidate_has_submitted);
    if (best) {
        candidates_keep(r, best, "it was the first to submit an answer");
    } else if ((best = earliest(all, succeeded))) {
        candidates_keep(r, best, "it was the first whose code ended without an error");
    } else {
        candidates_keep(r, earliest(all, candidate_is_usable), "all failed, and it ended first");
    }
}

/* Whether two candidates submitted the same answer or, without one, printed the same. */
static bool candidates_agree(const struct rlm_run *a, const struct rlm_run *b)
{
    bool agree = a->tried_count == b->tried_count;
    if (a->result.answer || b->result.answer)
        return a->result.answer && b->result.answer &&
               strcmp(a->result.answer, b->result.answer) == 0;
    for (size_t i = 0; agree && i < a->tried_count; i++) {
        const struct buf *x = &a->tried[i].result.out, *y = &b->tried[i].result.out;
        agree = x->len == y->len && memcmp(buf_text(x), buf_text(y), x->len) == 0;
    }
    return agree;
}

static void select_vote(struct rlm_run *r)
{
    struct candidates *all = r->candidates;
    bool (*may)(const struct rlm_run *c) = earliest(all, candidate_has_submitted)
                                               ? candidate_has_submitted
                                           : earliest(all, succeeded) ? succeeded
                                                                      : candidate_is_usable;
    struct rlm_run *best = NULL;
    unsigned most = 0, votes = 0;
    char reason[80];
    for (size_t i = 0; i < all->count; i++) {
        unsigned same = 0;
        if (!may(all->items[i]))
            continue;
        votes++;
        for (size_t k = 0; k < all->count; k++)
            same += may(all->items[k]) && candidates_agree(all->items[i], all->items[k]);
        if (same > most)
            best = all->items[i];
        most = same > most ? same : most;
    }
    snprintf(reason, sizeof reason, "%u of %u have the same %s", most, votes,
        best->result.answer ? "answer" : "output");
    candidates_keep(r, best, reason);
}

/* ---- the model as the selector ---- */

static void choose_by_reply(struct rlm_run *r, const struct lm_reply *reply)
{
    struct candidates *all = r->candidates;
    const char *at = reply->text;
    struct rlm_run *best = earliest(all, candidate_is_usable);
    while (*at && !isdigit((unsigned char)*at))
        at++;
    unsigned long number = strtoul(at, NULL, 10);
    if (reply->error.code != ERROR_NONE) {
        run_fail(r, &reply->error);
    } else if (number >= 1 && number <= all->count && candidate_is_usable(all->items[number - 1])) {
        candidates_keep(r, all->items[number - 1], "the model chose it");
    } else {
        candidates_keep(r, best, "the model named no candidate, and it ended first");
    }
}

static void select_replied(void *arg, const struct lm_reply *reply)
{
    struct rlm_run *r = arg;
    struct error err = { 0 };
    r->candidates->call = NULL;
    budget_settle(&r->tree->budget, &r->hold, reply);
    if (run_record_call_end(r, reply, &err) < 0)
        run_fail(r, &err);
    else
        choose_by_reply(r, reply);
}

static void show_candidate(struct rlm_run *r, const struct rlm_run *c, struct buf *out)
{
    size_t shown = c->text.len < SHOWN_MAX
                       ? c->text.len
                       : text_utf8_floor(buf_text(&c->text), c->text.len, SHOWN_MAX);
    size_t feedback = c->feedback.len < SHOWN_MAX
                          ? c->feedback.len
                          : text_utf8_floor(buf_text(&c->feedback), c->feedback.len, SHOWN_MAX);
    buf_printf(out, "\n## Candidate %u\n\n", c->candidate);
    buf_append(out, buf_text(&c->text), shown);
    buf_puts(out, "\n\nWhat it printed:\n");
    buf_append(out, buf_text(&c->feedback), feedback);
    if (c->result.answer)
        buf_printf(out, "\nIt submits this answer: %.2000s\n", c->result.answer);
}

static void select_by_model(struct rlm_run *r);

static void select_go(void *run)
{
    select_by_model(run);
}

static int ask_model(struct rlm_run *r, const struct buf *prompt, struct error *err)
{
    const struct lm_message message = { .role = "user", .text = prompt->data, .len = prompt->len };
    struct recorded_call *recorded = r->candidates->recorded;
    char key[LM_KEY_SIZE];
    struct lm_request request = { .model = r->model,
        .messages = &message,
        .message_count = 1,
        .depth = r->place.depth,
        .timeout = r->tree->o.call_timeout,
        .traceparent = r->tree->o.traceparent,
        .is_recorded = true,
        .max_tokens = r->tree->o.max_tokens,
        .key = recorded && recorded->key[0] ? recorded->key : NULL,
        .hold = r->tree->o.hold,
        .temperature = -1 };
    const struct budget_call call = { .model = r->model ? r->model : lm_name(r->lm),
        .depth = r->place.depth,
        .prompt_bytes = prompt->len,
        .max_tokens = request.max_tokens,
        .lm = r->lm,
        .lm_model = r->model,
        .account = &r->account };
    bool asks = cost_ask_is_due(&r->tree->budget, &call), asked = r->asked_key[0] != '\0';
    int rc = asks ? 0 : budget_hold(&r->tree->budget, &call, &r->hold, err);
    snprintf(key, sizeof key, "%s", r->asked_key);
    if (rc == 0 && !request.key && !asked)
        rc = lm_key(key, err);
    request.key = request.key ? request.key : key;
    if (!asked)
        r->call_record = recorded ? recorded->id : 0;
    if (rc == 0 && !asked)
        rc = run_record_select(r, prompt, request.key, err);
    if (rc == 0 && asks)
        return model_call_ask(r, &call, request.key, select_go, err);
    r->asked_key[0] = '\0';
    if (rc == 0)
        rc = lm_start(r->lm, &request, select_replied, NULL, r, &r->candidates->call, err);
    if (rc < 0)
        budget_release(&r->tree->budget, &r->hold);
    return rc;
}

static void select_by_model(struct rlm_run *r)
{
    struct candidates *all = r->candidates;
    struct error err = { 0 };
    cleanup_buf struct buf prompt = { 0 }, text = { 0 };
    size_t usable = 0;
    for (size_t i = 0; i < all->count; i++)
        usable += candidate_is_usable(all->items[i]);
    if (usable == 1) {
        candidates_keep(r, earliest(all, candidate_is_usable), "it is the only one with a reply");
        return;
    }
    all->recorded = r->resume ? resume_next_select(r->resume, r->turn) : NULL;
    if (all->recorded && all->recorded->ended) {
        struct lm_reply reply = { .error = all->recorded->error };
        if (reply.error.code == ERROR_NONE)
            replay_log_read(resume_recorded(r->resume), &all->recorded->reply, &text, &reply.error);
        reply.text = buf_text(&text);
        reply.len = text.len;
        choose_by_reply(r, &reply);
        return;
    }
    buf_printf(&prompt,
        "Several candidates have tried the next step of this task: %.4000s\n\n"
        "Choose the one that is most likely to be right, and reply with its number only.\n",
        r->question);
    for (size_t i = 0; i < all->count; i++)
        if (candidate_is_usable(all->items[i]))
            show_candidate(r, all->items[i], &prompt);
    if (buf_failed(&prompt))
        error_memory(&err);
    if (err.code != ERROR_NONE || ask_model(r, &prompt, &err) < 0)
        run_fail(r, &err);
}

/* ---- the program as the selector ---- */

static void choose_number(struct rlm_run *r, unsigned number)
{
    struct candidates *all = r->candidates;
    struct error err = { 0 };
    if (number >= 1 && number <= all->count && candidate_is_usable(all->items[number - 1])) {
        candidates_keep(r, all->items[number - 1], "the program chose it");
        return;
    }
    error_set(&err, ERROR_ARGUMENT,
        "the selector chose candidate %u, which is not one of those that it was given", number);
    run_fail(r, &err);
}

const char *rlm_choice_name(const struct rlm_choice *choice)
{
    return choice->name;
}

void rlm_choose(struct rlm_choice *choice, unsigned number, const struct error *why)
{
    struct rlm_run *r = choice->run;
    free(choice);
    if (!r)
        return;
    r->candidates->choice = NULL;
    if (why)
        run_fail(r, why);
    else
        choose_number(r, number);
}

/* What it chooses is recorded with the turn: a resumed run asks it only where it had not. */
static void select_by_program(struct rlm_run *r)
{
    struct candidates *all = r->candidates;
    struct error err = { 0 };
    size_t count = 0;
    struct rlm_choice *choice = calloc(1, sizeof *choice);
    if (!choice) {
        error_memory(&err);
        run_fail(r, &err);
        return;
    }
    choice->run = r;
    snprintf(choice->name, sizeof choice->name, "%s", r->tree->o.select_name);
    for (size_t i = 0; i < all->count; i++) {
        const struct rlm_run *c = all->items[i];
        if (candidate_is_usable(c))
            choice->all[count++] = (struct rlm_candidate){ c->candidate, buf_text(&c->text),
                c->text.len, buf_text(&c->feedback), c->feedback.len, c->result.answer, c->failed };
    }
    all->choice = choice;
    r->tree->o.choose(r->tree->o.choose_arg, choice->all, count, choice);
}

static void candidates_select(struct rlm_run *r)
{
    static void (*const selectors[SELECT_COUNT])(
        struct rlm_run * r) = { select_first, select_vote, select_by_model, select_by_program };
    struct candidates *all = r->candidates;
    if (earliest(all, candidate_is_usable)) {
        selectors[r->tree->o.select](r);
        return;
    }
    struct error why = all->items[0]->result.error;
    run_fail(r, &why);
}

/* ---- the beginning ---- */

static struct rlm_run *candidate_new(struct rlm_run *r, unsigned number)
{
    struct rlm_run *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    *c = (struct rlm_run){ .tree = r->tree,
        .of = r,
        .candidate = number,
        .place = r->place,
        .question = r->question,
        .model = r->model,
        .lm = r->lm,
        .replied = r->replied,
        .account = { .up = &r->account },
        .resume = r->resume,
        .turn = r->turn,
        .start_ns = r->start_ns,
        .result = { .budget = r->result.budget } };
    memcpy(c->result.run, r->result.run, sizeof c->result.run);
    c->step = timer_new(r->tree->loop, replay_step, c);
    if (c->step)
        return c;
    free(c);
    return NULL;
}

/* One reply, on the session itself, which cannot be forked with what an earlier turn left. */
static int begin_alone(struct rlm_run *r, const char *why, struct error *err)
{
    cleanup_buf struct buf text = { 0 };
    buf_printf(&text, "this turn has one candidate: %.600s", why);
    run_tell(r, RLM_EVENT_NOTICE, buf_text(&text), text.len);
    candidates_free(r);
    return model_call_begin(r, err);
}

static int ask_all(struct rlm_run *r, struct error *err)
{
    struct candidates *all = r->candidates;
    for (size_t i = 0; i < all->count; i++) {
        struct error why = { 0 };
        if (run_open_broker(all->items[i], &why) < 0 || model_call_begin(all->items[i], &why) < 0)
            run_fail(all->items[i], &why);
    }
    return 0;
}

static void candidate_forked(void *arg, struct cell_result *result)
{
    struct rlm_run *r = arg;
    struct candidates *all = r->candidates;
    if (!r->finished && all && result->status != CELL_OK)
        error_set(&all->refused, ERROR_ARGUMENT, "%.400s",
            result->error.message ? result->error.message : result->reason.text);
    cell_result_free(result);
    if (!r->finished && all)
        timer_start(all->step, 0, 0);
}

static int fork_next(struct rlm_run *r, struct error *err)
{
    struct candidates *all = r->candidates;
    if (all->count == r->tree->o.candidates) {
        all->forked = true;
        return ask_all(r, err);
    }
    struct rlm_run *c = candidate_new(r, (unsigned)all->count + 1);
    if (!c)
        return error_memory(err);
    all->items[all->count++] = c;
    return session_fork(r->session, &run_guest_events, c, candidate_forked, r, &c->session, err);
}

static void candidates_step(void *arg)
{
    struct rlm_run *r = arg;
    struct candidates *all = r->candidates;
    struct error err = { 0 }, why;
    int rc = 0;
    if (r->finished || !all)
        return;
    if (all->forked) {
        candidates_select(r);
        return;
    }
    why = all->refused;
    rc = why.code ? begin_alone(r, why.text, &err) : fork_next(r, &err);
    if (rc < 0)
        run_fail(r, &err);
}

int candidates_begin(struct rlm_run *r, void (*kept)(struct rlm_run *r), struct error *err)
{
    enum resume_turn had =
        r->resume ? resume_candidates(r->resume, r->turn, &r->candidate) : RESUME_TURN_NEW;
    if (had == RESUME_TURN_ALONE || had == RESUME_TURN_KEPT)
        return model_call_begin(r, err);
    r->candidates = calloc(1, sizeof *r->candidates);
    if (!r->candidates)
        return error_memory(err);
    r->candidates->kept = kept;
    r->candidates->step = timer_new(r->tree->loop, candidates_step, r);
    return r->candidates->step ? fork_next(r, err) : error_memory(err);
}
