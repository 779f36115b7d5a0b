/* rlm/child.c: the child runs of a tree.
 *
 *   waiting ── room at its depth ──► active ── ends, or is cancelled ──► over ──► freed
 *
 * The number of active runs is limited per depth, not per tree, because a run that waits for its
 * children must not take their places. A zero-delay timer starts and frees runs: requests and ends
 * arrive within callbacks of a session that must not be closed there.
 */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "rlm/run.h"

struct child {
    TAILQ_ENTRY(child) link;
    struct tree *tree;
    struct rlm_run *parent;
    unsigned depth, number;               /* the number: 0 until it begins */
    char *prompt, *model, *resume, *fork; /* all but the first may be NULL */
    bool reserved;
    struct shared_value *context;
    const struct context *used; /* NULL: none is in use */
    struct contexts contexts;   /* the one, where there is one */
    int64_t cell;
    enum { WAITING, AT_WORK, OVER } state;
    struct rlm_run *run; /* from when it begins until it is buried */
    broker_child_fn *done;
    void *done_arg; /* cancelled: `done` is NULL */
};

static void free_child(struct child *c)
{
    run_free(c->run);
    if (c->used)
        shared_value_rest(c->context);
    shared_value_drop(c->context);
    free(c->prompt);
    free(c->model);
    free(c->resume);
    free(c->fork);
    free(c);
}

void tree_free_children(struct tree *tree, bool all)
{
    struct child *c, *next;
    for (c = TAILQ_FIRST(&tree->children); c; c = next) {
        next = TAILQ_NEXT(c, link);
        if (c->state != OVER && !all)
            continue;
        TAILQ_REMOVE(&tree->children, c, link);
        free_child(c);
    }
}

/* Reports the end to the parent, unless cancelled. */
static void end_child(struct child *c, const char *json, const struct error *error)
{
    broker_child_fn *done = steal(&c->done);
    if (c->state == AT_WORK)
        c->tree->budget.children[c->depth]--;
    c->state = OVER;
    timer_start(c->tree->later, 0, 0);
    if (done)
        done(c->done_arg, json, json ? strlen(json) : 0, error);
}

static void tell_end(
    struct child *c, const char *answer, const struct rlm_result *result, const struct error *why)
{
    const struct spent *spent = c->run ? &c->run->account.spent : NULL;
    struct lm_usage used = { .input_tokens = spent ? spent->input_tokens : 0,
        .output_tokens = spent ? spent->output_tokens : 0 };
    struct rlm_event event = { .kind = RLM_EVENT_CHILD_END,
        .call = c->number,
        .model = c->model,
        .text = answer ? answer : why->text,
        .len = strlen(answer ? answer : why->text),
        .status = result ? rlm_status_name(result->status) : error_code_name(why->code),
        .seconds = result ? result->seconds : 0,
        .used_calls = spent ? spent->calls : 0,
        .used = &used };
    if (c->tree->o.all_events)
        run_tell_event(c->parent, &event);
}

static void tell_begin(struct child *c)
{
    struct rlm_event event = { .kind = RLM_EVENT_CHILD,
        .call = c->number,
        .model = c->model,
        .text = c->prompt,
        .len = strlen(c->prompt) };
    if (c->tree->o.all_events)
        run_tell_event(c->parent, &event);
}

static void tell_parent(struct child *c, const struct rlm_result *result)
{
    struct error error = result->error;
    tell_end(c, result->answer, result, &error);
    if (error.code != ERROR_NONE && result->run[0])
        error_wrap(&error, "child run %s", result->run);
    end_child(c, result->answer, &error);
}

static void child_finished(void *arg, const struct error *why)
{
    struct child *c = arg;
    struct rlm_result result = c->run->result;
    if (why->code != ERROR_NONE)
        result.answer = NULL;
    tell_parent(c, &result);
}

/* A child with a volume ends when that is written back: its parent may read it next. */
static void child_ended(void *arg, const struct rlm_result *result)
{
    struct child *c = arg;
    if (!c->done || !c->run || !rlm_finish(c->run, child_finished, c))
        tell_parent(c, result);
}

static struct run_place child_place_of(const struct child *c)
{
    return (struct run_place){ .parent = c->parent,
        .parent_cell = c->cell,
        .parent_fork = c->fork,
        .depth = c->depth,
        .number = c->number,
        .iterations = c->tree->o.child_iterations,
        .question = c->prompt,
        .model = c->model,
        .resume = c->resume,
        .reserved = c->reserved };
}

/* Its context and hash, while the child needs them. */
static int use_context(struct child *c, struct run_place *place, struct error *err)
{
    if (!c->context)
        return 0;
    int rc = shared_value_use(c->context, &c->used, err);
    c->contexts = (struct contexts){ (struct context **)&c->used, 1 };
    place->contexts = &c->contexts;
    place->context_hash = rc == 0 ? shared_value_hash(c->context, err) : NULL;
    return rc == 0 && !place->context_hash ? -(int)ERROR_IO : rc;
}

static int begin_run(struct child *c, struct error *err)
{
    struct run_place place = child_place_of(c);
    int rc = use_context(c, &place, err);
    if (rc < 0) {
        budget_unreserve(&c->tree->budget, c->reserved);
        return rc;
    }
    return run_start(c->tree, &place, child_ended, c, &c->run, err);
}

static void begin_child(struct child *c)
{
    struct error err = { 0 };
    c->state = AT_WORK;
    c->number = ++c->tree->begun;
    c->tree->budget.children[c->depth]++;
    tell_begin(c);
    if (begin_run(c, &err) < 0) {
        tell_end(c, NULL, NULL, &err);
        end_child(c, NULL, &err);
    }
}

static struct child *next_to_begin(struct tree *tree)
{
    struct child *c;
    TAILQ_FOREACH(c, &tree->children, link)
    if (c->state == WAITING && tree->budget.children[c->depth] < tree->budget.limits.children)
        return c;
    return NULL;
}

void tree_look(void *arg)
{
    struct tree *tree = arg;
    struct child *c;
    tree_free_children(tree, false);
    while ((c = next_to_begin(tree)))
        begin_child(c);
}

/* ---- the broker's interface ---- */

static int child_start_child(void *arg, const struct broker_child *ask, broker_child_fn *done,
    void *done_arg, struct child **out, struct error *err)
{
    struct rlm_run *parent = arg;
    struct child *c = calloc(1, sizeof *c);
    if (!c)
        return error_memory(err);
    *c = (struct child){ .tree = parent->tree,
        .parent = parent,
        .depth = parent->place.depth + 1,
        .prompt = text_copy(ask->prompt, ask->len),
        .model = ask->model ? strdup(ask->model) : NULL,
        .context = shared_value_hold(ask->context),
        .cell = ask->cell,
        .resume = ask->resume ? strdup(ask->resume) : NULL,
        .fork = ask->fork ? strdup(ask->fork) : NULL,
        .reserved = ask->reserved,
        .done = done,
        .done_arg = done_arg };
    if (!c->prompt || (ask->model && !c->model) || (ask->resume && !c->resume) ||
        (ask->fork && !c->fork)) {
        free_child(c);
        return error_memory(err);
    }
    TAILQ_INSERT_TAIL(&c->tree->children, c, link);
    timer_start(c->tree->later, 0, 0);
    *out = c;
    return 0;
}

/* Records the refusal as if the run had started, so that a resumed parent gets it again. */
static void record_never(struct child *c, enum rlm_status status, const struct error *why)
{
    struct run_place place = child_place_of(c);
    if (c->parent->finished)
        return;
    if (use_context(c, &place, NULL) == 0)
        run_record_unstarted(&place, c->tree, status, why);
}

static void child_cancel_child(struct child *c, const struct error *why)
{
    enum rlm_status status = why->code == ERROR_TIMEOUT ? RLM_TIMEOUT : RLM_CANCELLED;
    c->done = NULL;
    if (c->state == AT_WORK) {
        run_end(c->run, status, why);
        return;
    }
    budget_unreserve(&c->tree->budget, c->reserved);
    record_never(c, status, why);
    end_child(c, NULL, why);
}

const struct broker_children run_children = { child_start_child, child_cancel_child,
    replay_skip_child };
