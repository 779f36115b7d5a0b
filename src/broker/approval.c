/* broker/approval.c: see approval.h. */
#include "broker/approval.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/loop.h"
#include "base/text.h"
#include "broker/approval_hook.h"
#include "broker/ask.h"
#include "broker/tools.h"
#include "session/session.h"
#include "store/store.h"

/* How often the record is looked at for decisions of other processes. */
enum { LOOK_MS = 200 };

struct approval {
    droste_approval shown; /* to the program */
    struct broker *broker; /* NULL: decided, or cancelled */
    struct session *session;
    TAILQ_ENTRY(approval) link;
    bool is_shown;                  /* the program has it */
    struct announcement *announced; /* to the webhook; NULL: it is not */
    bool told_failure;
    uint64_t seen; /* the last look */
    approval_fn *fn;
    void *arg;
    struct approval **owner;
    char *tool, *arguments, *run, *root;
};

bool approval_name_covers(const char *name, const char *tool)
{
    size_t n = strlen(name);
    if (n > 2 && strcmp(name + n - 2, ".*") == 0)
        return strncmp(name, tool, n - 1) == 0;
    return strcmp(name, "*") == 0 || strcmp(name, tool) == 0;
}

bool approval_is_due(const struct ask *ask)
{
    const struct list *names = ask->broker->options.ask.tools;
    for (size_t i = 0; names && i < names->count; i++)
        if (approval_name_covers(names->items[i], ask->model))
            return true;
    return ask->network != NULL || tools_are_of_client(ask->broker->options.tools, ask->model);
}

/* ---- the state in the record ---- */

struct approval_state {
    bool decided, approved, begun, ended;
    int64_t asked_ms, until_ms;
    char by[128], reason[512];
};

static int approval_take_state(void *arg, const droste_approval *a, struct error *err)
{
    struct approval_state *state = arg;
    state->decided = a->decision != NULL;
    state->approved = a->decision && strcmp(a->decision, "approved") == 0;
    state->begun = a->begun_ms != 0;
    state->ended = a->ended != 0;
    state->asked_ms = a->asked_ms;
    state->until_ms = a->until_ms;
    snprintf(state->by, sizeof state->by, "%s", a->decided_by ? a->decided_by : "");
    snprintf(
        state->reason, sizeof state->reason, "%s", a->decision_reason ? a->decision_reason : "");
    return 0;
}

/* 1: the call has asked; 0: it has not. */
static int approval_read_state(
    struct store *store, int64_t call, struct approval_state *state, struct error *err)
{
    struct error why = { 0 };
    *state = (struct approval_state){ 0 };
    int rc = store && call ? store_approval_read(store, call, approval_take_state, state, &why)
                           : -(int)ERROR_NOT_FOUND;
    if (rc == 0)
        return 1;
    if (rc == -(int)ERROR_NOT_FOUND)
        return 0;
    if (err)
        *err = why;
    return rc;
}

bool approval_is_recorded(struct store *store, int64_t call)
{
    struct approval_state state;
    return approval_read_state(store, call, &state, NULL) == 1 && !state.begun && !state.ended;
}

/* ---- the end ---- */

static void approval_free(struct approval *a)
{
    free(a->tool);
    free(a->arguments);
    free(a->run);
    free(a->root);
    free(a);
}

void approval_hold(struct broker *b, struct session *s, bool on)
{
    const struct broker_options *o = &b->options;
    session_hold(s, on);
    budget_hold_time(o->budget, on);
    if (o->waits)
        o->waits(o->waits_arg, on);
}

/* It no longer waits; freed unless the program has it. */
static void approval_end(struct approval *a)
{
    struct broker *b = a->broker;
    announcement_cancel(a->announced);
    approval_hold(b, a->session, false);
    TAILQ_REMOVE(&b->approvals, a, link);
    if (TAILQ_EMPTY(&b->approvals))
        timer_stop(b->look);
    *a->owner = NULL;
    a->broker = NULL;
    if (!a->is_shown)
        approval_free(a);
}

void approval_cancel(struct approval *a)
{
    approval_end(a);
}

static void approval_tell(struct approval *a, const char *status, const char *text)
{
    const struct broker_options *o = &a->broker->options;
    if (o->approval_event)
        o->approval_event(o->arg, &a->shown, status, text);
}

static void approval_say_denied(
    const struct approval *a, const struct approval_state *state, struct buf *out)
{
    if (strcmp(a->tool, NETWORK_TOOL) == 0)
        buf_puts(out, "the request was denied");
    else if (strcmp(a->tool, COST_TOOL) == 0)
        buf_puts(out, "spending more was denied");
    else
        buf_printf(out, "the call of %.64s() was denied", a->tool);
    if (strcmp(state->by, "deadline") == 0)
        buf_printf(
            out, ": there was no answer within %g s (ask-timeout)", a->broker->options.ask.timeout);
    else if (state->by[0])
        buf_printf(out, " by %s", state->by);
    if (state->reason[0])
        buf_printf(out, ": %s", state->reason);
}

static void approval_settle(struct approval *a, const struct approval_state *state)
{
    cleanup_buf struct buf why = { 0 };
    approval_fn *fn = a->fn;
    void *arg = a->arg;
    if (!state->approved)
        approval_say_denied(a, state, &why);
    approval_tell(a, state->approved ? "approved" : "denied", "");
    approval_end(a);
    fn(arg, state->approved, buf_text(&why));
}

/* ---- waiting ---- */

/* Decides, in the record if there is one. */
static int approval_decide(
    struct approval *a, const struct approval_state *state, bool late, struct error *err)
{
    struct store *store = a->broker->options.store;
    int rc = store && a->shown.id ? store_call_decide(store, a->shown.id, state->approved,
                                        state->by[0] ? state->by : NULL,
                                        state->reason[0] ? state->reason : NULL, late, err)
                                  : 0;
    if (rc == 0)
        approval_settle(a, state);
    return rc;
}

static void approval_look_at(struct approval *a, bool changed)
{
    const struct broker_options *o = &a->broker->options;
    struct approval_state state = { 0 };
    if (changed && approval_read_state(o->store, a->shown.id, &state, NULL) == 1 && state.decided) {
        approval_settle(a, &state);
        return;
    }
    if (!a->shown.until_ms || clock_wall_ms() < a->shown.until_ms)
        return;
    state = (struct approval_state){ .approved = o->ask.deadline_approves && !a->shown.wants_result,
        .by = "deadline" };
    if (approval_decide(a, &state, true, NULL) < 0)
        a->broker->seen_version = -1; /* another process was faster: the next look sees it */
}

/* The timer's. Calls that are answered at once may make more. */
static void approvals_look(void *arg)
{
    struct broker *b = arg;
    struct approval *a;
    int64_t version = b->seen_version;
    if (b->options.store && store_version(b->options.store, &version, NULL) < 0)
        return;
    bool changed = version != b->seen_version;
    uint64_t look = ++b->looks;
    b->seen_version = version;
    do {
        TAILQ_FOREACH(a, &b->approvals, link)
        if (a->seen != look)
            break;
        if (!a)
            return;
        a->seen = look;
        approval_look_at(a, changed);
    } while (!TAILQ_EMPTY(&b->approvals));
}

/* Puts the question into the record. */
static int approval_record(struct approval *a, struct error *err)
{
    const struct broker_options *o = &a->broker->options;
    int64_t now_ms = clock_wall_ms();
    a->shown.asked_ms = now_ms;
    a->shown.until_ms = o->ask.timeout > 0 ? now_ms + (int64_t)(o->ask.timeout * 1000) : 0;
    const char *about = strcmp(a->tool, COST_TOOL) == 0 ? a->arguments : NULL;
    return a->shown.id ? store_call_ask(o->store, a->shown.id, about, a->shown.until_ms, err) : 0;
}

static struct approval *approval_new(
    const struct approval_call *call, const char *json, size_t len, approval_fn *fn, void *arg)
{
    struct broker *b = call->broker;
    const char *run = b->options.store ? b->options.run : NULL;
    struct approval *a = calloc(1, sizeof *a);
    if (!a)
        return NULL;
    *a = (struct approval){ .broker = b,
        .session = call->session,
        .fn = fn,
        .arg = arg,
        .tool = strdup(call->tool),
        .arguments = text_copy(json, len),
        .run = run ? strdup(run) : NULL,
        .root = run ? strdup(b->options.root ? b->options.root : run) : NULL };
    a->shown = (droste_approval){ .id = b->options.store ? call->record : 0,
        .run = a->run,
        .root = a->root,
        .tool = a->tool,
        .arguments = a->arguments,
        .len = len,
        .wants_result = tools_are_of_client(b->options.tools, call->tool) };
    if (a->tool && a->arguments && ((a->run && a->root) || !run))
        return a;
    approval_free(a);
    return NULL;
}

static int approval_wait(struct approval *a, struct error *err)
{
    struct broker *b = a->broker;
    if (!b->look && !(b->look = timer_new(b->options.loop, approvals_look, b)))
        return error_memory(err);
    if (TAILQ_EMPTY(&b->approvals))
        timer_start(b->look, LOOK_MS, LOOK_MS);
    TAILQ_INSERT_TAIL(&b->approvals, a, link);
    approval_hold(b, a->session, true);
    approval_tell(a, NULL, "");
    return 0;
}

/* ---- the webhook ---- */

bool approval_has_hook(const struct broker *b)
{
    return b->options.ask.hook.url != NULL;
}

static void approval_hook_failed(struct approval *a, const char *why)
{
    struct approval_state state = { 0 };
    if (!a->shown.id && !a->is_shown) { /* nothing else could decide */
        snprintf(state.reason, sizeof state.reason, "%s", why);
        approval_decide(a, &state, false, NULL);
        return;
    }
    if (!a->told_failure)
        approval_tell(a, "unannounced", why);
    a->told_failure = true;
}

static void approval_on_hook(void *arg, const struct hook_answer *answer)
{
    struct approval *a = arg;
    struct approval_state state = { .approved = answer->approve, .by = "the webhook" };
    if (!answer->decided) {
        approval_hook_failed(a, answer->failure);
        return;
    }
    snprintf(state.reason, sizeof state.reason, "%.*s",
        answer->reason
            ? (int)text_utf8_floor(answer->reason, strlen(answer->reason), sizeof state.reason - 1)
            : 0,
        answer->reason ? answer->reason : "");
    if (approval_decide(a, &state, false, NULL) < 0)
        a->broker->seen_version = -1; /* another one was faster: the next look sees it */
}

static void approval_announce(struct approval *a)
{
    struct broker *b = a->broker;
    struct error why = { 0 };
    int rc =
        b->hook ? 0 : approval_hook_open(b->options.loop, &b->options.ask.hook, &b->hook, &why);
    if (rc == 0)
        rc = approval_hook_announce(b->hook, &a->shown, approval_on_hook, a, &a->announced, &why);
    if (rc < 0)
        approval_hook_failed(a, why.text);
}

/* The program may decide at once. */
static void approval_offer(struct approval *a)
{
    if (a->shown.wants_result)
        return; /* its answer comes through the record */
    a->is_shown = a->broker->options.ask.show != NULL;
    if (approval_has_hook(a->broker))
        approval_announce(a);
    if (a->is_shown)
        a->broker->options.ask.show(a->broker->options.ask.arg, a);
}

int approval_ask(const struct approval_call *call, const char *json, size_t len, approval_fn *fn,
    void *arg, struct approval **out, struct error *err)
{
    struct approval_state state;
    int known = approval_read_state(call->broker->options.store, call->record, &state, err);
    if (known < 0)
        return known;
    struct approval *a = approval_new(call, json, len, fn, arg);
    if (!a)
        return error_memory(err);
    a->owner = out;
    a->shown.repeated = known && state.begun;
    a->shown.asked_ms = state.asked_ms;
    a->shown.until_ms = state.until_ms;
    int rc = known && !state.begun ? 0 : approval_record(a, err);
    if (rc == 0)
        rc = approval_wait(a, err);
    if (rc < 0) {
        approval_free(a);
        return rc;
    }
    *out = a;
    if (known && !state.begun && state.decided)
        approval_settle(a, &state);
    else
        approval_offer(a);
    return 0;
}

/* ---- the program's ---- */

/* It is not the program's any more; false: it has ended, and is freed. */
static bool approval_take_back(struct approval *a)
{
    bool waits = a->broker != NULL;
    a->is_shown = false;
    if (!waits)
        approval_free(a);
    return waits;
}

void approval_leave(struct approval *a)
{
    static const struct approval_state denied = {
        .reason = "nothing is left that could decide: docs/approvals.md says what can"
    };
    if (approval_take_back(a) && !a->shown.id && !a->announced)
        approval_decide(a, &denied, false, NULL);
}

int approval_answer(
    struct approval *a, bool approve, const char *by, const char *reason, struct error *err)
{
    struct approval_state state = { .approved = approve };
    snprintf(state.by, sizeof state.by, "%s", by ? by : "the program");
    snprintf(state.reason, sizeof state.reason, "%s", reason ? reason : "");
    if (!approval_take_back(a))
        return error_set(err, ERROR_ARGUMENT, "the call was decided already, or has ended");
    return approval_decide(a, &state, false, err);
}
