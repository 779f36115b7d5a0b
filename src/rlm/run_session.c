/* rlm/run_session.c: prepares the session of a run up to the first block: setup code, tools, values
 * and contexts. Replaces a session whose sandbox died in a cell, and takes over the session of the
 * previous question.
 */
#include <string.h>

#include "base/cleanup.h"
#include "rlm/prompt.h"
#include "rlm/run.h"

static int run_session_open_session(struct rlm_run *r, struct error *err)
{
    const struct rlm_options *o = &r->tree->o;
    r->session_options.answer = run_answer_type(r);
    int rc = session_open(o->env, &r->session_options, &run_guest_events, r, &r->session, err);
    if (rc < 0)
        return rc;
    r->result.isolation = session_isolation(r->session);
    return o->again ? 0 : run_record_isolation(r, err);
}

static void tell_context(struct rlm_run *r, size_t index)
{
    cleanup_buf struct buf text = { 0 };
    struct context_names names;
    const struct context *c = r->place.contexts->items[index];
    context_names(c, r->chat.own + index, &names);
    if (run_context_count(r) > 1)
        buf_printf(&text, "%s, ", c->name ? c->name : names.numbered);
    prompt_describe_context(&text, json_object_array_get_idx(r->variables, index));
    buf_printf(&text, ", from %.200s", c->source);
    run_tell(r, RLM_EVENT_CONTEXT, buf_text(&text), text.len);
    cleanup_free char *notice = context_notice(c);
    if (notice)
        run_tell(r, RLM_EVENT_NOTICE, notice, strlen(notice));
}

static int bind_next(struct rlm_run *r, struct error *err);

/* Binds this question's contexts; after the death of a sandbox they are bound again. */
static int note_variable(
    struct rlm_run *r, size_t index, struct json_object *variable, struct error *err)
{
    if (!r->variables && !(r->variables = json_object_new_array()))
        return error_memory(err);
    if (index < r->chat.own || index - r->chat.own != json_object_array_length(r->variables))
        return 0;
    struct json_object *o = variable ? json_object_get(variable) : json_object_new_object();
    if (o && json_object_array_add(r->variables, o) == 0)
        return 0;
    json_object_put(o);
    return error_memory(err);
}

static void is_bound(void *arg, struct cell_result *c)
{
    struct rlm_run *r = arg;
    struct error err = { 0 };
    size_t index;
    const struct context *context = chat_bound(&r->chat, &index);
    int rc = 0;
    if (!r->finished && c->status != CELL_OK)
        rc = context_refused(context, c, &err);
    if (!r->finished && rc == 0 && context)
        rc = note_variable(r, index, c->variable, &err);
    cell_result_free(c);
    if (r->finished)
        return;
    if (rc == 0)
        rc = bind_next(r, &err);
    if (rc < 0)
        run_fail(r, &err);
}

/* All is there. */
static int is_ready(struct rlm_run *r, struct error *err)
{
    if (r->turn > 0) {
        turn_finish(r); /* the rest of the reply relies on variables that are gone */
        return 0;
    }
    for (size_t i = 0; i < run_context_count(r); i++)
        tell_context(r, i);
    int rc = message_add_first(r, err);
    if (rc == 0)
        turn_next(r);
    return rc;
}

/* Binds contexts, then the history. */
static int bind_next(struct rlm_run *r, struct error *err)
{
    int rc = chat_bind_next(&r->chat, &r->prepared, r->session, is_bound, r, err);
    return rc == 0 ? is_ready(r, err) : rc < 0 ? rc : 0;
}

static int bind_all(struct rlm_run *r, struct error *err)
{
    chat_bind_begin(&r->chat, false);
    return bind_next(r, err);
}

static void run_session_prepared(void *arg, const struct error *why)
{
    struct rlm_run *r = arg;
    struct error err = { 0 };
    if (r->finished)
        return;
    if (why)
        err = *why;
    if (why || bind_all(r, &err) < 0)
        run_fail(r, &err);
}

/* Prepares a session: setup code, tools and values, then the contexts. */
static int prepare_session(struct rlm_run *r, struct error *err)
{
    const struct session_options *o = &r->session_options;
    if (!prepare_is_needed(r->session, o, true))
        return bind_all(r, err);
    return prepare_start(&r->prepared, r->session, o, true, run_session_prepared, r, err);
}

/* After the sandbox died in a cell: opens a new one with the contexts before the model
 * continues. */
void run_session_restart(void *arg)
{
    struct rlm_run *r = arg;
    struct error err = { 0 };
    session_close(steal(&r->session));
    if (run_session_open_session(r, &err) < 0 || prepare_session(r, &err) < 0)
        run_fail(r, &err);
}

/* A busy session cannot be taken over: the end of its cell would be mistaken for another's. */
static bool take_session(struct rlm_run *r, struct rlm_run *last)
{
    if (!last || !last->session || last->in_cell || !session_is_alive(last->session))
        return false;
    r->session = steal(&last->session);
    r->prepared = last->prepared;
    last->prepared = (struct prepare){ 0 };
    session_hand_over(r->session, r);
    r->result.isolation = session_isolation(r->session);
    return true;
}

int run_session_start(struct rlm_run *r, struct error *err)
{
    int rc;
    if (take_session(r, run_before(r))) {
        rc = r->tree->o.again ? 0 : run_record_isolation(r, err);
        chat_bind_begin(&r->chat, true);
        return rc < 0 ? rc : bind_next(r, err);
    }
    r->chat.lost = run_before(r) != NULL;
    rc = run_session_open_session(r, err);
    return rc < 0 ? rc : prepare_session(r, err);
}
