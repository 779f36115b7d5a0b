/* rlm/replay.c: the steps of a resumed run.
 *
 * turn.c asks for the recorded next step before it takes one (resume.h). If the run does something
 * else, it has diverged: its whole tree stops, and none of that is recorded.
 */
#include <string.h>

#include "base/cleanup.h"
#include "base/json/json.h"
#include "base/text.h"
#include "lm/request.h"
#include "rlm/prompt.h"
#include "rlm/run.h"
#include "session/answer.h"

/* Returns rc. */
static int replay_diverge(struct rlm_run *r, int rc, const struct error *why)
{
    if (why)
        run_diverged(r, why);
    return rc;
}

/* ---- the beginning ---- */

/* Marks the requests of a sandbox that died later as used; no code repeats them. */
static int take_gone(struct rlm_run *r, struct error *err)
{
    struct replay_log *recorded = resume_recorded(r->resume);
    struct recorded_call *call;
    struct recorded_run *run;
    int rc = 0;
    for (size_t i = 0; rc == 0 && (call = replay_log_call_at(recorded, i)); i++) {
        if (call->root || call->asked || !resume_is_gone_cell(r->resume, call->cell))
            continue;
        replay_log_take(recorded, call);
        rc = call->ended ? skip_recorded_call(r->tree, recorded, call, err) : 0;
    }
    for (size_t i = 0; rc == 0 && (run = replay_log_run_at(recorded, i)); i++) {
        if (!run->own || !resume_is_gone_cell(r->resume, run->cell))
            continue;
        replay_log_take_run(recorded, run);
        rc = skip_recorded_run(r->tree, recorded, run, err);
    }
    return rc;
}

static int replay_take_stored_run(struct rlm_run *r, struct error *err)
{
    bool again = r->tree->o.again; /* then no time has passed, and the session itself is needed */
    uint64_t ns = again ? 0 : (uint64_t)(resume_seconds(r->resume) * 1e9);
    int rc = 0;
    r->start_ns -= ns;
    if (r->place.parent) {
        resume_count_child(r->resume, &r->account);
    } else {
        r->tree->budget.start_ns -= ns;
        rc = resume_count(r->resume, &r->tree->budget, &r->account, err);
        if (rc == 0)
            rc = cost_ask_resume(&r->tree->budget, r->tree->o.store, r->place.resume, err);
    }
    if (!again)
        resume_submitted(r->resume, &r->submitted, NULL);
    return rc < 0 ? rc : take_gone(r, err);
}

int replay_open(struct rlm_run *r, struct error *err)
{
    const struct rlm_options *o = &r->tree->o;
    int rc = resume_open(o->store, r->place.resume, o->again, &r->resume, err);
    if (rc == 0) {
        snprintf(r->result.run, sizeof r->result.run, "%s", r->place.resume);
        rc = replay_take_stored_run(r, err);
    }
    /* Does not report a failure to a parent whose child merely could not be replayed. */
    return rc < 0 && r->place.parent ? replay_diverge(r, rc, err) : rc;
}

int replay_skip_child(void *arg, const struct recorded_run *run, struct error *err)
{
    struct rlm_run *r = arg;
    return skip_recorded_run(r->tree, resume_recorded(r->resume), run, err);
}

/* ---- calls of the loop ---- */

/* Replaces the messages that the loop was about to send by the recorded ones. */
static int replace_messages(struct rlm_run *r, struct json_object *list, struct error *err)
{
    size_t count = json_length(list);
    int rc = 0;
    r = run_owner(r);
    while (r->message_count > r->recorded)
        message_free(&r->messages[--r->message_count]);
    for (size_t i = 0; rc == 0 && i < count; i++) {
        struct json_object *m = json_object_array_get_idx(list, i), *content = NULL;
        const char *role = lm_role(json_get_string(m, "role", NULL));
        json_object_object_get_ex(m, "content", &content);
        size_t len = content ? (size_t)json_object_get_string_len(content) : 0;
        rc = message_add(
            r, role ? role : "user", text_copy(json_get_string(m, "content", ""), len), len, err);
        if (rc == 0)
            rc = images_recall(r, m, &r->messages[r->message_count - 1].images, err);
    }
    return rc;
}

/* Replays a recorded call with the recorded messages, whatever the cells have printed this time. */
static int take_recorded_messages(
    struct rlm_run *r, const struct recorded_call *call, struct error *err)
{
    static const char notice[] =
        "a cell's output differs from the recorded one, which the model has seen";
    cleanup_buf struct buf messages = { 0 }, text = { 0 };
    cleanup_json struct json_object *list = NULL;
    run_record_messages(run_owner(r), &messages);
    int rc = replay_log_read(resume_recorded(r->resume), &call->request, &text, err);
    if (rc < 0 ||
        (messages.len == text.len && memcmp(buf_text(&messages), buf_text(&text), text.len) == 0))
        return rc;
    rc = json_parse(buf_text(&text), text.len, &json_limits_large, &list, err);
    if (rc == 0)
        rc = replace_messages(r, list, err);
    if (rc == 0 && call->turn > 1)
        run_tell(r, RLM_EVENT_NOTICE, notice, sizeof notice - 1);
    return rc;
}

int replay_next_call(struct rlm_run *r, struct recorded_call **out, struct error *err)
{
    int rc = resume_next_call(r->resume, r->turn, r->candidate, out, err);
    if (rc == 0 && *out)
        rc = take_recorded_messages(r, *out, err);
    return rc < 0 ? replay_diverge(r, rc, err) : 0;
}

int replay_reply(struct rlm_run *r, struct recorded_call *call, const struct lm_request *request,
    struct error *err)
{
    bool is_of = replay_log_is_of(call, r->lm, r->tree->o.again);
    size_t times = r->of || !r->candidate ? 1 : resume_replies(r->resume, r->turn);
    int rc = 0;
    run_owner(r)->recorded = run_owner(r)->message_count;
    r->replayed = call;
    timer_start(r->step, 0, 0);
    while (is_of && rc == 0 && times-- > 0)
        rc = lm_skip_recorded(r->lm, request, err);
    return rc;
}

void replay_step(void *arg)
{
    struct rlm_run *r = arg;
    struct recorded_call *call = steal(&r->replayed);
    cleanup_buf struct buf text = { 0 };
    if (r->diverged.code) {
        run_end(r, RLM_ERROR, &r->diverged);
        return;
    }
    if (!call) { /* the answer was recorded when the process died */
        r->turn = r->result.iterations = (unsigned)replay_log_turns(resume_recorded(r->resume));
        run_answered(r, answer_of(buf_text(&r->submitted), r->submitted.len, run_answer_type(r)),
            RLM_ANSWERED);
        return;
    }
    struct lm_reply reply = { .error = call->error, .finish = call->finish, .usage = call->usage };
    if (reply.error.code == ERROR_NONE)
        replay_log_read(resume_recorded(r->resume), &call->reply, &text, &reply.error);
    reply.text = buf_text(&text);
    reply.len = text.len;
    r->replied(r, &reply);
}

/* ---- cells ---- */

/* A cell of a sandbox that died later, or in this cell, left nothing that is needed. */
static int skip_recorded_block(
    struct rlm_run *r, const struct recorded_cell *cell, struct error *err)
{
    struct cell_result result;
    int rc = resume_cell_result(r->resume, cell, &result, err);
    if (rc < 0)
        return rc;
    r->failed |= result.status != CELL_OK;
    prompt_result(&r->feedback, &result, r->block, r->tree->o.max_output_chars);
    if (r->of)
        candidate_note_cell(r, &result);
    else
        cell_result_free(&result);
    r->restarts += cell->died;
    return cell->died ? REPLAY_DIED : REPLAY_SKIPPED;
}

int replay_next_block(struct rlm_run *r, const struct reply_block *block, struct error *err)
{
    struct recorded_cell *same = NULL;
    int rc =
        resume_next_cell(r->resume, r->turn, r->candidate, block->code, block->len, &same, err);
    if (rc < 0)
        return replay_diverge(r, rc, err);
    if (same && resume_is_gone(r->resume, same))
        return skip_recorded_block(r, same, err);
    r->same_cell = same;
    return 0;
}

int replay_check_cell(struct rlm_run *r, const struct cell_result *result, struct error *err)
{
    int rc = resume_check_cell(r->resume, r->same_cell, result, err);
    if (rc < 0)
        return replay_diverge(r, rc, err);
    r->same_cell = NULL;
    return 0;
}
