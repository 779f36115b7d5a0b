/* session/revive.c: goes on from a checkpoint: the automatic one before the current cell, if its
 * sandbox dies.
 */
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "session/checkpoint_list.h"

/* ---- exchanging what is in the guest ---- */

#define EXCHANGE(a, b)                                                                             \
    do {                                                                                           \
        __typeof__(a) exchange_kept;                                                               \
        memcpy(&exchange_kept, &(a), sizeof(a));                                                   \
        memcpy(&(a), &(b), sizeof(a));                                                             \
        memcpy(&(b), &exchange_kept, sizeof(a));                                                   \
    } while (0)

static void checkpoints_stop_timers(struct session *s)
{
    timer_stop(s->deadline);
    timer_stop(s->partial);
    timer_stop(s->stall);
    s->partial_running = false;
}

void checkpoints_exchange(struct session *s, struct session *state)
{
    session_calls_drop(s);
    checkpoints_stop_timers(s);
    checkpoints_stop_timers(state);
    EXCHANGE(s->sandbox, state->sandbox);
    EXCHANGE(s->ready, state->ready);
    EXCHANGE(s->dead, state->dead);
    EXCHANGE(s->death, state->death);
    EXCHANGE(s->killed, state->killed);
    EXCHANGE(s->how, state->how);
    EXCHANGE(s->decoder, state->decoder);
    EXCHANGE(s->last_id, state->last_id);
    EXCHANGE(s->last_cell, state->last_cell);
    EXCHANGE(s->variables, state->variables);
    EXCHANGE(s->held, state->held);
    EXCHANGE(s->partial_bytes, state->partial_bytes);
    s->ops->rebind(s->sandbox, s);
    s->ops->rebind(state->sandbox, state);
    session_watch_partial(s);
}

/* ---- before each cell ---- */

/* Closes the session soon, outside of its callbacks. Without memory, it is closed with the
 * checkpoints' owner, which then has no list. */
static void checkpoints_spend(struct checkpoints *c, struct session *state)
{
    struct session **all =
        state ? array_grow(c->spent, c->spent_count, &c->spent_cap, sizeof(struct session *))
              : NULL;
    if (!all)
        return;
    c->spent = all;
    c->spent[c->spent_count++] = state;
    timer_start(c->later, 0, 0);
}

bool session_take_kept(struct session *s, const struct frame *frame, int *rc, struct error *err)
{
    struct checkpoints *c = s->checkpoints;
    cleanup_json struct json_object *head = NULL;
    if (!c || c->automatic_id == 0 || frame->id != c->automatic_id)
        return false;
    c->automatic_id = 0;
    *rc = json_parse(frame->head, frame->head_len, &json_limits_small, &head, err);
    if (*rc == 0 && !json_object_is_type(head, json_type_object))
        *rc = error_set(err, ERROR_PROTOCOL, "the answer to a fork is not an object");
    if (*rc < 0)
        return true;
    if (strcmp(json_get_string(head, "status", ""), "ok") != 0) {
        struct json_object *error = json_get_typed(head, "error", json_type_object);
        error_set(&c->refusal, ERROR_ARGUMENT, "%.160s",
            error ? json_get_string(error, "message", "") : "it refused");
        checkpoints_spend(c, steal(&c->automatic));
    }
    session_deadline_begin(s);
    return true;
}

void session_end_cell(struct session *s)
{
    if (s->is_numbered)
        s->last_cell = s->operation;
    if (s->checkpoints && s->is_numbered)
        checkpoints_spend(s->checkpoints, steal(&s->checkpoints->automatic));
}

/* "… was killed; its variables are gone; raise …": the middle is not true any more. */
static void checkpoints_reword(struct error *why, const char *instead)
{
    static const char gone[] = "its variables are gone";
    struct error before = *why;
    const char *at = strstr(before.text, gone);
    if (at)
        snprintf(why->text, sizeof why->text, "%.*s%s%s", (int)(at - before.text), before.text,
            instead, at + sizeof gone - 1);
    else
        snprintf(why->text, sizeof why->text, "%.200s; %s", before.text, instead);
}

static bool checkpoints_can_revive(const struct session *s)
{
    const struct checkpoints *c = s->checkpoints;
    return c && s->is_numbered && !s->life_over && s->death.code != ERROR_PROTOCOL &&
           c->automatic && c->automatic_id == 0 && session_is_alive(c->automatic);
}

void session_revive(struct session *s, struct cell_result *r)
{
    struct checkpoints *c = s->checkpoints;
    char text[200];
    if (c && s->settings.keeps && s->is_numbered && c->refusal.code != ERROR_NONE) {
        snprintf(
            text, sizeof text, "its variables are gone (no checkpoint: %.150s)", c->refusal.text);
        checkpoints_reword(&r->reason, text);
    }
    if (!checkpoints_can_revive(s))
        return;
    struct session *state = steal(&c->automatic);
    checkpoints_exchange(s, state);
    checkpoints_spend(c, state);
    session_continue_life(s);
    r->rolled_back = true;
    r->rolled_back_to = s->last_cell;
    cell_rolled_back_text(r, text, sizeof text);
    checkpoints_reword(&r->reason, text);
}

void cell_rolled_back_text(const struct cell_result *r, char *out, size_t size)
{
    if (r->rolled_back_to > 0)
        snprintf(out, size, CELL_ROLLED_BACK "cell %llu", (unsigned long long)r->rolled_back_to);
    else
        snprintf(out, size, CELL_ROLLED_BACK "the state before the first cell");
}
