/* rlm/replay_end.c: the end of a resumed run. A run that leaves the path of its record stops its
 * whole tree, and one that was not replayed to its end can be resumed again.
 */
#include "base/buf.h"
#include "rlm/run.h"

void run_diverged(void *arg, const struct error *why)
{
    struct rlm_run *r = run_owner(arg), *root = r->tree->root;
    if (root->finished || root->diverged.code)
        return;
    root->diverged = *why;
    if (r != root)
        error_wrap(&root->diverged, "child run %s", r->place.resume);
    timer_start(root->step, 0, 0);
}

void run_unrecorded(struct rlm_run *r, const struct error *why)
{
    struct rlm_run *root = r->tree->root;
    if (root->diverged.code ||
        root->is_place) /* of a session: only the child ends, with an error for its code */
        return;
    root->diverged = *why;
    if (!root->finished)
        timer_start(root->step, 0, 0);
}

static bool left_behind(struct rlm_run *r, enum rlm_status status)
{
    return r->resume && status != RLM_ANSWERED && status != RLM_EXHAUSTED &&
           (r->turn == 0 || r->same_cell || r->replayed || resume_is_behind(r->resume));
}

bool replay_goes_back(struct rlm_run *r, enum rlm_status status)
{
    if (!r->place.parent)
        r->tree->back = status == RLM_INTERRUPTED || r->diverged.code || left_behind(r, status);
    return r->tree->back || status == RLM_INTERRUPTED || r->tree->root->diverged.code;
}

void replay_go_back(struct rlm_run *r)
{
    r->call_record = r->cell_record = 0;
    if (r->broker)
        broker_abandon(r->broker);
}

void replay_tell(struct rlm_run *r)
{
    struct tree *tree = r->tree;
    struct buf out = { 0 };
    if (!r->resume)
        return;
    resume_tell(
        r->resume, r->place.parent ? r->result.run : NULL, &tree->replayed, &tree->repeated);
    if (!tree->back)
        resume_leave(r->resume, tree->o.store);
    if (r->place.parent)
        return;
    buf_printf(
        &out, "{\"replayed\":%zu,\"repeated\":[%s]}", tree->replayed, buf_text(&tree->repeated));
    out.failed = out.failed || buf_failed(&tree->repeated);
    r->result.resumed = buf_steal(&out);
}
