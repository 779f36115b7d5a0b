/* session/checkpoints.c: states of a session that are kept, to continue from them.
 *
 * A checkpoint is a fork of the session that nothing uses: an idle process, which costs memory only
 * for what changes afterwards. Rolling back has the checkpoint fork itself, keeps that fork as the
 * checkpoint, and makes the first process the session: the parent of a fork goes on sooner than
 * its child. What the session owns in the guest (its sandbox, the decoder, the numbers of cells)
 * is exchanged; callers keep the same `struct session`.
 *
 * A guest may use a checkpoint to act while nothing is expected of it. Whatever it sends, except
 * the answer to a request, ends that checkpoint alone.
 */
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "session/checkpoint_list.h"

enum {
    MEASURE_COST = 10, /* pause after measuring the memory, as a multiple of its duration */
};
#define AUTOMATIC_ID (UINT64_C(1) << 63) /* its request's: the cell's with this bit */

/* ---- the session of a checkpoint ---- */

static void checkpoint_called(void *arg, struct session *s, const struct session_call *call)
{
    session_end_sandbox(s, "protocol", ERROR_PROTOCOL, "a checkpoint made a call");
}

static void checkpoint_call_dropped(void *arg, struct session *s, uint64_t id)
{
}

static const struct session_events checkpoint_events = { .call = checkpoint_called,
    .call_dropped = checkpoint_call_dropped };

/* ---- the list ---- */

static void checkpoints_settle(void *session);

static int checkpoints_begin(struct session *s, struct error *err)
{
    if (!s->ops->fork || !s->ops->rebind)
        return error_set(err, ERROR_UNSUPPORTED,
            "the environment '%s' cannot keep checkpoints; local sandboxes can", s->ops->name);
    if (s->checkpoints)
        return 0;
    struct checkpoints *c = calloc(1, sizeof *c);
    struct loop *loop = ((struct environment_base *)s->env)->loop;
    if (c)
        c->later = timer_new(loop, checkpoints_settle, s);
    if (!c || !c->later) {
        free(c);
        return error_memory(err);
    }
    TAILQ_INIT(&c->list);
    s->checkpoints = c;
    return 0;
}

static struct checkpoint *checkpoints_find(struct session *s, unsigned id, struct error *err)
{
    struct checkpoint *checkpoint;
    cleanup_buf struct buf ids = { 0 };
    if (s->checkpoints)
        TAILQ_FOREACH(checkpoint, &s->checkpoints->list, link)
        {
            if (checkpoint->info.id == id)
                return checkpoint;
            if (ids.len < 100)
                buf_printf(&ids, "%s%u", ids.len ? ", " : "", checkpoint->info.id);
        }
    error_set(err, ERROR_NOT_FOUND, "there is no checkpoint %u; there are: %s", id,
        ids.len ? buf_text(&ids) : "none");
    return NULL;
}

size_t session_checkpoints(const struct session *s, struct checkpoint_info *out, size_t most)
{
    const struct checkpoint *checkpoint;
    size_t count = 0;
    if (!s->checkpoints)
        return 0;
    TAILQ_FOREACH(checkpoint, &s->checkpoints->list, link)
    {
        if (count < most) {
            out[count] = checkpoint->info;
            out[count].memory = s->ops->memory ? s->ops->memory(checkpoint->state->sandbox) : 0;
            out[count].current = checkpoint->info.id == s->checkpoints->at;
        }
        count++;
    }
    return count;
}

int session_forget(struct session *s, unsigned id, struct error *err)
{
    struct checkpoint *checkpoint = checkpoints_find(s, id, err), *other;
    if (!checkpoint)
        return -(int)ERROR_NOT_FOUND;
    if (checkpoint->state->operation)
        return error_set(err, ERROR_ARGUMENT, "the checkpoint %u is in use", id);
    TAILQ_FOREACH(other, &s->checkpoints->list, link)
    if (other->info.parent == id)
        other->info.parent = checkpoint->info.parent;
    if (s->checkpoints->at == id)
        s->checkpoints->at = checkpoint->info.parent;
    checkpoints_remove(s->checkpoints, checkpoint);
    return 0;
}

/* ---- making one, and rolling back ---- */

static void checkpoints_fork_done(void *arg, struct cell_result *result)
{
    struct session *s = arg;
    s->checkpoints->result = *result;
    timer_start(s->checkpoints->later, 0, 0);
}

static void checkpoints_keep(struct checkpoints *c)
{
    struct checkpoint *made = steal(&c->pending);
    made->state = steal(&c->fork);
    TAILQ_INSERT_TAIL(&c->list, made, link);
    c->count++;
    c->at = made->info.id;
}

static void checkpoints_go_back(struct session *s)
{
    struct checkpoints *c = s->checkpoints;
    struct checkpoint *to = steal(&c->pending);
    struct session *state = to->state;
    to->state = steal(&c->fork);
    checkpoints_exchange(s, state);
    session_close(state);
    session_begin_life(s);
    if (s->settings.answer != to->state->settings.answer)
        session_expect(s, s->settings.answer, NULL);
    c->at = to->info.id;
}

/* The timer's: all callbacks of the sessions have returned. */
static void checkpoints_settle(void *arg)
{
    struct session *s = arg;
    struct checkpoints *c = s->checkpoints;
    session_done_fn *done = c->done;
    checkpoints_close_spent(c);
    bool is_over = done && (c->rolls ? !c->pending->state->operation : !s->operation);
    if (!is_over)
        return;
    struct cell_result result = c->result;
    c->result = (struct cell_result){ 0 };
    c->done = NULL;
    if (result.status == CELL_OK && c->rolls) {
        checkpoints_go_back(s);
    } else if (result.status == CELL_OK) {
        checkpoints_keep(c);
    } else {
        if (!c->rolls)
            checkpoint_free(c->pending);
        c->pending = NULL;
        session_close(steal(&c->fork));
    }
    result.alive = session_is_alive(s);
    c->rolls = false;
    done(c->arg, &result);
}

/* Measures seldom, because that takes a millisecond for each 100 MB. */
static int checkpoints_check_memory(struct session *s, struct error *err)
{
    struct checkpoints *c = s->checkpoints;
    const struct checkpoint *checkpoint;
    uint64_t most = s->settings.checkpoint_memory ? s->settings.checkpoint_memory
                                                  : s->settings.limits.sandbox.memory;
    uint64_t begun_ns = clock_ns(), sum = 0;
    if (most == 0 || !s->ops->memory || begun_ns < c->measure_ns)
        return 0;
    TAILQ_FOREACH(checkpoint, &c->list, link)
    sum += s->ops->memory(checkpoint->state->sandbox);
    uint64_t ended_ns = clock_ns();
    if (sum > most)
        return error_set(err, ERROR_ARGUMENT,
            "the session's checkpoints hold %llu MB of memory of their own, and may hold %llu MB; "
            "forget some, or raise --checkpoint-memory",
            (unsigned long long)(sum >> 20), (unsigned long long)(most >> 20));
    c->measure_ns = ended_ns + MEASURE_COST * (ended_ns - begun_ns);
    return 0;
}

static int checkpoints_check_bounds(struct session *s, struct error *err)
{
    if (s->checkpoints->count >= CHECKPOINTS_MAX)
        return error_set(err, ERROR_ARGUMENT, "there are %d checkpoints already; forget one first",
            CHECKPOINTS_MAX);
    return checkpoints_check_memory(s, err);
}

int session_checkpoint(
    struct session *s, session_done_fn *done, void *arg, unsigned *id, struct error *err)
{
    int rc = checkpoints_begin(s, err);
    if (rc == 0)
        rc = checkpoints_check_bounds(s, err);
    if (rc < 0)
        return rc;
    struct checkpoints *c = s->checkpoints;
    if (c->done)
        return error_set(err, ERROR_ARGUMENT, "the session is busy with another operation");
    struct checkpoint *made = calloc(1, sizeof *made);
    if (!made)
        return error_memory(err);
    made->info =
        (struct checkpoint_info){ .id = c->last_id + 1, .parent = c->at, .cell = s->last_cell };
    rc = session_fork(s, &checkpoint_events, NULL, checkpoints_fork_done, s, &c->fork, err);
    if (rc < 0) {
        free(made);
        return rc;
    }
    timer_stop(c->fork->lifetime);
    *id = ++c->last_id;
    c->pending = made;
    c->rolls = false;
    c->done = done;
    c->arg = arg;
    return 0;
}

/* A checkpoint whose processes are gone is of no use. */
static int checkpoints_take_usable(
    struct session *s, unsigned id, struct checkpoint **out, struct error *err)
{
    struct checkpoint *found = checkpoints_find(s, id, err);
    if (!found)
        return -(int)ERROR_NOT_FOUND;
    if (s->operation || s->checkpoints->done)
        return error_set(err, ERROR_ARGUMENT, "the session is busy with another operation");
    if (!session_is_alive(found->state)) {
        error_set(
            err, ERROR_LOST, "the checkpoint %u is lost: %.160s", id, found->state->death.text);
        session_forget(s, id, NULL);
        return -(int)ERROR_LOST;
    }
    *out = found;
    return 0;
}

int session_rollback(
    struct session *s, unsigned id, session_done_fn *done, void *arg, struct error *err)
{
    struct checkpoint *to = NULL;
    int rc = checkpoints_take_usable(s, id, &to, err);
    if (rc < 0)
        return rc;
    struct checkpoints *c = s->checkpoints;
    rc = session_fork(to->state, &checkpoint_events, NULL, checkpoints_fork_done, s, &c->fork, err);
    if (rc < 0)
        return rc;
    session_deadline_of_checkpoint(to->state);
    timer_stop(c->fork->lifetime);
    c->pending = to;
    c->rolls = true;
    c->done = done;
    c->arg = arg;
    return 0;
}

int session_at(struct session *s, unsigned id, const struct session_events *events,
    void *events_arg, session_done_fn *done, void *arg, struct session **out, struct error *err)
{
    struct checkpoint *from = NULL;
    int rc = checkpoints_take_usable(s, id, &from, err);
    if (rc == 0)
        rc = session_fork(from->state, events, events_arg, done, arg, out, err);
    if (rc == 0)
        session_deadline_of_checkpoint(from->state);
    return rc;
}

/* ---- before each cell ---- */

void session_keep_before_cell(struct session *s)
{
    struct error why = { 0 };
    if (!s->settings.keeps || !s->is_numbered || checkpoints_begin(s, &why) < 0)
        return;
    struct checkpoints *c = s->checkpoints;
    session_close(steal(&c->automatic));
    c->refusal = (struct error){ 0 };
    c->automatic_id = s->operation | AUTOMATIC_ID;
    if (session_make_fork(
            s, c->automatic_id, &checkpoint_events, NULL, &c->automatic, &c->refusal) < 0)
        c->automatic_id = 0;
}
