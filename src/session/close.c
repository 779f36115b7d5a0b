/* session/close.c: closes a session with all that belongs to it, which are sessions themselves:
 * checkpoints, and forks for its calls.
 */
#include <stdlib.h>

#include "base/cleanup.h"
#include "session/checkpoint_list.h"

/* Replaces the result of a cell whose volume could not be written back by that error. */
void session_drop_settled(struct session *s)
{
    if (s->settling)
        cell_result_free(&s->settled);
    s->settling = false;
    if (s->fork_failed)
        cell_result_free(&s->fork_failure);
    s->fork_failed = false;
    s->forks_asked = 0;
}

void checkpoint_free(struct checkpoint *checkpoint)
{
    if (!checkpoint)
        return;
    session_close(checkpoint->state);
    free(checkpoint);
}

void checkpoints_remove(struct checkpoints *c, struct checkpoint *checkpoint)
{
    TAILQ_REMOVE(&c->list, checkpoint, link);
    c->count--;
    checkpoint_free(checkpoint);
}

void checkpoints_close_spent(struct checkpoints *c)
{
    while (c->spent_count > 0)
        session_close(c->spent[--c->spent_count]);
}

static void session_checkpoints_free(struct session *s)
{
    struct checkpoints *c = steal(&s->checkpoints);
    struct checkpoint *checkpoint;
    if (!c)
        return;
    while ((checkpoint = TAILQ_FIRST(&c->list)))
        checkpoints_remove(c, checkpoint);
    if (!c->rolls)
        checkpoint_free(c->pending);
    session_close(c->fork);
    session_close(c->automatic);
    checkpoints_close_spent(c);
    cell_result_free(&c->result);
    timer_free(c->later);
    free(c->spent);
    free(c);
}

static void session_call_forks_close(struct session *s)
{
    while (!LIST_EMPTY(&s->call_forks))
        session_close(LIST_FIRST(&s->call_forks));
    timer_free(s->retired);
    for (unsigned i = s->origin ? s->holds : 0; i > 0; i--)
        session_hold(s->origin, false);
    if (s->origin)
        LIST_REMOVE(s, call_fork);
    s->origin = NULL;
}

void session_close(struct session *s)
{
    if (!s)
        return;
    session_checkpoints_free(s);
    session_call_forks_close(s);
    session_service_free(s);
    if (s->sandbox)
        s->ops->close(s->sandbox);
    session_drop_settled(s);
    session_calls_drop(s);
    timer_free(s->deadline);
    timer_free(s->lifetime);
    timer_free(s->partial);
    timer_free(s->stall);
    frame_decoder_free(&s->decoder);
    sealed_total_drop(s->decoder.total);
    capture_free(&s->out);
    capture_free(&s->err);
    bundles_free(&s->results);
    json_object_put(s->variables);
    schema_drop(s->settings.answer);
    free(s->open_calls);
    free(s->directory);
    free(s->variables_head);
    free(s);
}
