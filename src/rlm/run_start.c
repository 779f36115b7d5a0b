/* rlm/run_start.c: a run, from its start to its end.
 *
 *   open a session ─► set the contexts ─► turn: ask the model ─► run the reply's blocks one by one
 *        ▲                               ▲                        │
 *        │ (the sandbox died)            └── feed the output back ┘─► an answer ─► end
 *
 * Each arrow is a callback from a lower layer. A session must not be closed within its own
 * callback, so a zero-delay timer replaces a dead one. run_session.c leads to the first turn,
 * turn.c has the turns, and run_end.c the end.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "rlm/run.h"

/* The session was opened for one type of answers. */
static int check_type(const struct rlm_run *r, const struct rlm_run *last, struct error *err)
{
    const struct schema *now = run_answer_type(r), *then = run_answer_type(last);
    if (now == then || (now && then && strcmp(schema_text(now), schema_text(then)) == 0))
        return 0;
    return error_set(err, ERROR_ARGUMENT,
        "the type of the answers (answer-schema, answer-field) cannot change within a "
        "conversation; "
        "begin another");
}

/* What the question before this one and its model have said, without the system prompt. */
static int keep_messages(struct rlm_run *r, const struct rlm_run *last, struct error *err)
{
    int rc = chat_begin_earlier(&r->chat, err);
    for (size_t i = last->shortened ? 0 : last->inherited; rc == 0 && i < last->message_count;
         i++) {
        const struct message *m = &last->messages[i];
        if (strcmp(m->role, "system") != 0)
            rc = chat_add_earlier(&r->chat, m->role, m->text, m->len, err);
    }
    return rc;
}

/* Messages of earlier questions, and their number. */
static int begin_chat(struct rlm_run *r, struct error *err)
{
    struct rlm_run *last = run_before(r);
    if (!last)
        return chat_begin(&r->chat, r->place.contexts, err);
    int rc = chat_go_on(
        &r->chat, &last->chat, last->question, last->result.answer, r->place.contexts, err);
    if (rc == 0)
        rc = keep_messages(r, last, err);
    if (rc == 0)
        rc = check_type(r, last, err);
    compact_take_over(r, last);
    for (size_t i = 0; rc == 0 && i < last->message_count; i++) {
        const struct message *m = &last->messages[i];
        rc = message_add(r, m->role, text_copy(m->text, m->len), m->len, err);
        if (rc == 0)
            rc = images_copy(&r->messages[r->message_count - 1].images, &m->images, err);
    }
    r->recorded = r->inherited = r->message_count;
    return rc;
}

static int run_set_up(struct rlm_run *r, struct error *err)
{
    double seconds = r->tree->o.limits.seconds;
    r->session_options = r->tree->o.session;
    tools_offer(run_has_tools(r) ? r->tree->o.tools : NULL, &r->session_options);
    r->deadline = timer_new(r->tree->loop, run_time_is_up, r);
    r->later = timer_new(r->tree->loop, run_session_restart, r);
    r->step = timer_new(r->tree->loop, replay_step, r);
    if (!r->deadline || !r->later || !r->step || !r->question || (r->place.model && !r->model))
        return error_memory(err);
    int rc = images_check(r, err);
    if (rc == 0)
        rc = begin_chat(r, err);
    if (rc == 0)
        rc = r->place.resume ? replay_open(r, err) : run_record_begin(r, err);
    if (rc == 0)
        rc = run_open_broker(r, err);
    if (rc < 0)
        return rc;
    run_tell(r, RLM_EVENT_STARTED, r->result.run, strlen(r->result.run));
    if (r->submitted.len > 0) {
        timer_start(r->step, 0, 0);
        return 0;
    }
    rc = run_session_start(r, err);
    if (rc == 0 && seconds > 0 && !r->place.parent) /* it ends the others */
        timer_start(r->deadline, (uint64_t)(budget_seconds_left(&r->tree->budget) * 1000), 0);
    return rc;
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
        .replied = turn_take_reply,
        .reserved = place->reserved,
        .done = done,
        .done_arg = arg,
        .start_ns = clock_ns(),
        .result = { .rules = tree->o.session.rules,
            .workspace = tree->o.session.spec.workspace,
            .budget = &tree->budget } };
    for (size_t i = 0; i < run_context_count(r); i++)
        r->result.left_out += place->contexts->items[i]->left_out;
    return r;
}

int run_start(struct tree *tree, const struct run_place *place, rlm_done_fn *done, void *arg,
    struct rlm_run **out, struct error *err)
{
    struct error why = { 0 };
    struct rlm_run *r = new_run(tree, place, done, arg);
    if (!r) {
        budget_unreserve(&tree->budget, place->reserved);
        return error_memory(err);
    }
    if (!place->parent)
        tree->root = r;
    int rc = run_set_up(r, &why);
    if (rc < 0) {
        /* The caller gets the error as the return value; the record needs it, too. */
        r->done = NULL;
        run_end_badly(r, &why);
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
    artifacts_free(r->artifacts);
    artifact_list_free(&r->result.artifacts);
    candidates_free(r);
    session_close(r->session);
    prepare_free(&r->prepared);
    chat_free(&r->chat);
    timer_free(r->deadline);
    timer_free(r->later);
    timer_free(r->step);
    resume_free(r->resume);
    for (size_t i = 0; i < r->message_count; i++)
        message_free(&r->messages[i]);
    free(r->messages);
    images_drop(r);
    free(r->question);
    free(r->model);
    free(r->result.answer);
    submission_free(r->result.submit);
    free(r->result.resumed);
    free(r->result.message);
    json_object_put(r->variables);
    buf_free(&r->reply);
    buf_free(&r->feedback);
    buf_free(&r->submitted);
    free(r);
}
