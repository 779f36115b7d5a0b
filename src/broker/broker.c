/* broker/broker.c: handles calls of guests.
 *
 * An `ask` is one call of a guest; its `items` are the prompts. The function that was called
 * determines the kind of the items: a model call (model_call.c), a child run (child_run.c) or a
 * tool call (tool_call.c). In a resumed run, an item is first looked up in the record
 * (replay/replay_match.c).
 *
 * The head of a call has `name`, the function, and `model`, for all prompts. llm_query has
 * `messages`, the indices of prompts that are JSON lists of messages. rlm_query has `kinds`, the
 * kinds of the contexts that follow the prompts, and `of`, for each prompt the index of its context
 * or -1; its answers are JSON. tool has `tool`, the name, and one part, the arguments as a JSON
 * object (tool_call.c). fork_map has `workers` and `timeout`, and an empty part for each item; its
 * answers are containers (fork_map.c).
 */
#include "broker/broker.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/loop.h"
#include "broker/approval.h"
#include "broker/ask.h"
#include "broker/child_run.h"
#include "broker/fork_map.h"
#include "broker/model_call.h"
#include "broker/network_ask.h"
#include "broker/network_log.h"
#include "broker/prompt.h"
#include "broker/replay/replay_match.h"
#include "broker/tool_call.h"
#include "broker/tools.h"
#include "session/session.h"

enum {
    HELD_LOOK_MS = 250,       /* the shortest time until held calls are looked at again */
    UNDER_WAY_MAX = 64 << 20, /* bytes of unanswered prompts when another call arrives */
    PROMPTS_MAX = 20000,      /* per call; all start in one iteration of the loop */
    MODEL_NAME_MAX = 256,     /* bytes; kept for each open call, and recorded */
};

static void broker_fork_called(void *arg, struct session *s, const struct session_call *call)
{
    broker_call(arg, s, call);
}

static void broker_fork_dropped_call(void *arg, struct session *s, uint64_t id)
{
    broker_drop(arg, s, id);
}

static bool broker_fork_request(void *arg, struct session *s, const struct egress_request *request)
{
    return network_log_add(arg, request);
}

static bool broker_fork_approve(
    void *arg, struct session *s, struct droste_network_request *request)
{
    return network_ask(arg, s, request);
}

static const struct session_events fork_events = { .call = broker_fork_called,
    .call_dropped = broker_fork_dropped_call,
    .request = broker_fork_request,
    .approve = broker_fork_approve };

void broker_abandon(struct broker *b)
{
    b->options.store = NULL;
}

void broker_place(struct broker *b, int64_t turn, unsigned candidate, int64_t cell)
{
    b->turn = turn;
    b->candidate = candidate;
    b->cell = cell;
    b->maps = 0;
}

/* ---- one call of a guest ---- */

static size_t prompt_bytes(const struct item *item, size_t len)
{
    return len;
}

/* The functions that guests may call. */
static const struct broker_function functions[] = {
    { "llm_query", model_take, model_find, prompt_bytes, model_start, true, false },
    { "rlm_query", child_take, child_find, child_record_bytes, child_start, true, false },
    { "tool", tool_take, tool_find, prompt_bytes, tool_start, false, false },
    { "fork_map", fork_map_take, fork_map_find, prompt_bytes, fork_map_start, false, true },
};

/* A request to the network that needs an approval; no guest names it. */
static const struct broker_function network_function = { "", network_ask_take, tool_find,
    prompt_bytes, tool_start, false, false };

static const struct broker_function *find_function(const char *name)
{
    for (size_t i = 0; i < array_length(functions); i++)
        if (strcmp(functions[i].name, name) == 0)
            return &functions[i];
    return NULL;
}

/* Splits the parts into prompts and what follows them: the head has the kinds of contexts, or the
 * number of parts of a tool's typed arguments. */
static size_t count_prompts(const struct session_call *call)
{
    size_t contexts = json_length(json_get_typed(call->head, "kinds", json_type_array));
    int64_t pieces = json_get_int(call->head, "pieces", 0);
    size_t others = pieces > 0 ? (size_t)pieces : contexts;
    return others < call->parts.count ? call->parts.count - others : 0;
}

static int broker_check_call(struct broker *b, const struct session_call *call, struct error *err)
{
    const char *name = json_get_string(call->head, "name", "");
    size_t prompts = count_prompts(call);
    const struct broker_function *function = find_function(name);
    if (!function)
        return error_set(err, ERROR_ARGUMENT, "the host has no function '%.64s'", name);
    if (function->needs_model && !b->options.lm)
        return error_set(err, ERROR_CONFIG,
            "no model is configured: give one with --model, DROSTE_MODEL or config.ini");
    if (prompts == 0)
        return error_set(err, ERROR_ARGUMENT, "the call has no prompt");
    if (call->parts.count > 2 * PROMPTS_MAX || prompts > PROMPTS_MAX)
        return error_set(err, ERROR_ARGUMENT,
            "%zu prompts in one call, but at most %d are allowed; split them over several calls",
            prompts, PROMPTS_MAX);
    if (strlen(json_get_string(call->head, "model", "")) > MODEL_NAME_MAX)
        return error_set(
            err, ERROR_ARGUMENT, "the name of a model may have at most %d bytes", MODEL_NAME_MAX);
    if (b->under_way > UNDER_WAY_MAX)
        return error_set(err, ERROR_BUDGET,
            "%zu MiB of prompts already wait for answers; ask again when some answers have arrived",
            b->under_way >> 20);
    /* Checks limits before any allocation. Items that the record answers cost nothing. */
    return function->needs_model && !b->options.recorded
               ? budget_check(b->options.budget, (int64_t)prompts, err)
               : 0;
}

static bool broker_is_open(const struct item *item)
{
    return item->call || item->child || item->tool || item->fork || item->waits != WAITS_NOT;
}

/* Cancels an item and settles its costs. */
static void cancel_item(struct item *item, const struct error *why)
{
    item->error = *why;
    if (item->waits != WAITS_NOT && item->waits != WAITS_FOR_COST)
        replay_match_cancel(item);
    else if (item->child)
        child_cancel(item, why);
    else if (item->tool)
        tool_cancel(item);
    else if (item->fork)
        fork_map_cancel(item);
    else
        model_cancel(item, why);
}

/* Ends an ask: open items get the error, others keep their answers. */
static void broker_give_up_ask(struct ask *ask, const struct error *why)
{
    struct broker *b = ask->broker;
    for (size_t i = 0; i < ask->count; i++)
        if (broker_is_open(&ask->items[i]))
            cancel_item(&ask->items[i], why);
    ask_reply(ask);
    broker_tell_changed(b);
}

void broker_give_up(struct broker *b, struct session *s, const struct error *why)
{
    for (struct ask *ask = b->asks, *next; ask; ask = next) {
        next = ask->next;
        if (ask->session == s)
            broker_give_up_ask(ask, why);
    }
}

void broker_deadline(struct broker *b, struct session *s, const char *message)
{
    struct error why = { 0 };
    error_set(&why, ERROR_TIMEOUT, "the call was cancelled at the deadline of its cell: %.120s",
        message ? message : "");
    broker_give_up(b, s, &why);
}

/* Whether the tool's deadline is earlier than that of calls. */
static bool waits_for_tool(const struct ask *ask)
{
    const struct broker_options *o = &ask->broker->options;
    return ask->is_tool && o->tool_timeout > 0 &&
           (o->answer_timeout <= 0 || o->tool_timeout < o->answer_timeout);
}

/* The time of a tool that has a limit of its own, that of a build; 0: it has none. */
static double broker_own_seconds(const struct ask *ask)
{
    const struct tool *tool =
        ask->is_tool && !ask->network ? tools_find(ask->broker->options.tools, ask->model) : NULL;
    return tool ? tool->seconds : 0;
}

/* What the forks of fork_map ask for has limits of its own. */
static double seconds_for(const struct ask *ask)
{
    const struct broker_options *o = &ask->broker->options;
    if (ask->map.most > 0)
        return 0;
    double own = broker_own_seconds(ask);
    return own > 0 ? own : waits_for_tool(ask) ? o->tool_timeout : o->answer_timeout;
}

static void broker_patience_is_over(void *arg)
{
    struct ask *ask = arg;
    struct error why = { 0 };
    uint64_t held_ns = budget_held_ns(ask->broker->options.budget);
    uint64_t more_ms = (held_ns - ask->held_ns) / 1000000;
    if (more_ms > 0) { /* calls of the tree wait for approvals, or have */
        ask->held_ns = held_ns;
        timer_start(ask->patience, more_ms > HELD_LOOK_MS ? more_ms : HELD_LOOK_MS, 0);
        return;
    }
    error_set(&why, ERROR_TIMEOUT, "no answer within %g s (%s); the call was cancelled",
        seconds_for(ask),
        broker_own_seconds(ask) > 0 ? "packages-timeout"
        : waits_for_tool(ask)       ? "tool-timeout"
                                    : "broker-timeout");
    broker_give_up_ask(ask, &why);
}

static int begin_patience(struct ask *ask, struct error *err)
{
    struct broker_options *o = &ask->broker->options;
    double seconds = seconds_for(ask);
    if (seconds <= 0)
        return 0;
    ask->held_ns = budget_held_ns(o->budget);
    ask->patience = timer_new(o->loop, broker_patience_is_over, ask);
    if (!ask->patience)
        return error_memory(err);
    timer_start(ask->patience, (uint64_t)(seconds * 1000 + 0.5), 0);
    return 0;
}

/* Reserves calls, and record space for their requests: for all or for none. */
static int reserve_room(struct ask *ask, int64_t calls, size_t bytes, struct error *err)
{
    struct budget *budget = ask->broker->options.budget;
    int rc = budget_reserve_request(budget, bytes, err);
    if (rc < 0)
        return rc;
    rc = ask->is_tool ? budget_reserve_tool(budget, err) : budget_reserve(budget, calls, err);
    if (rc < 0)
        budget_unreserve_record(budget, bytes);
    return rc;
}

/* Reserves budget for prompts that are not in the record; the others had theirs before. */
static int broker_reserve(struct ask *ask, struct error *err)
{
    struct broker_options *o = &ask->broker->options;
    size_t bytes = 0;
    int64_t fresh = 0;
    int rc = 0;
    for (size_t i = 0; i < ask->count && rc == 0; i++) {
        struct item *item = &ask->items[i];
        if (o->recorded)
            rc = ask->function->find(item, item->asked, item->asked_len, err);
        bool known = item->replay_call || item->replay_run;
        item->reserved = known || ask->function->is_free ? 0 : 1;
        fresh += item->reserved;
        if (o->store && item->reserved)
            item->unwritten = ask->function->record_bytes(item, item->asked_len);
        bytes += item->unwritten;
    }
    if (rc == 0 && fresh > 0)
        rc = reserve_room(ask, fresh, bytes, err);
    if (ask->is_tool)
        ask->items[0].reserved = 0; /* not a model call */
    for (size_t i = ask->count; rc < 0 && i-- > 0;) {
        replay_match_forget(&ask->items[i]);
        ask->items[i].unwritten = 0;
    }
    return rc;
}

/* Takes the prompts, parses the head's data about them, and sets the deadline. */
static int broker_prepare(struct ask *ask, const struct session_call *call, struct error *err)
{
    struct frame_parts rest = call->parts;
    for (size_t i = 0; i < ask->count; i++) {
        struct item *item = &ask->items[i];
        item->ask = ask;
        frame_parts_next(&rest, &item->asked, &item->asked_len);
    }
    int rc = ask->function->take(ask, call->head, &rest, err);
    /* A call that asks has its time when it is approved. */
    if (rc == 0 && !(ask->is_tool && approval_is_due(ask)))
        rc = begin_patience(ask, err);
    return rc < 0 ? rc : broker_reserve(ask, err);
}

static struct ask *new_ask(struct broker *b, struct session *s, const struct session_call *call,
    const struct broker_function *function, struct network_question *network, struct error *err)
{
    const char *model = json_get_string(call->head, "model", NULL);
    size_t count = count_prompts(call);
    struct ask *ask = calloc(1, sizeof *ask + count * sizeof(struct item));
    if (ask)
        *ask = (struct ask){ .next = b->asks,
            .broker = b,
            .session = s,
            .id = call->id,
            .function = function,
            .network = network,
            .model = model ? strdup(model) : NULL,
            .count = count,
            .bytes = call->parts.bytes,
            .limits = prompt_limits,
            .starting = true };
    if (!ask || (model && !ask->model) || broker_prepare(ask, call, err) < 0) {
        if (!ask || (model && !ask->model))
            error_memory(err);
        if (ask)
            ask->network = NULL; /* the caller keeps it */
        if (ask)
            ask_free(ask);
        return NULL;
    }
    return ask;
}

static void broker_begin(struct broker *b, struct ask *ask)
{
    b->asks = ask;
    b->under_way += ask->bytes;
    for (size_t i = 0; i < ask->count; i++)
        item_start(&ask->items[i], ask->items[i].asked, ask->items[i].asked_len);
    ask->starting = false;
    if (ask->done == ask->count)
        ask_reply(ask);
    if (b->parked)
        replay_match_start_waiting(b);
}

void broker_call(struct broker *b, struct session *s, const struct session_call *call)
{
    struct error err = { 0 };
    const struct broker_function *function = find_function(json_get_string(call->head, "name", ""));
    struct ask *ask =
        broker_check_call(b, call, &err) < 0 ? NULL : new_ask(b, s, call, function, NULL, &err);
    if (!ask) {
        ask_refuse(s, call->id, &err);
        return;
    }
    broker_begin(b, ask);
}

static int broker_ask_network(struct broker *b, struct session *s, const struct session_call *call,
    struct network_question *network, struct error *err)
{
    struct ask *ask = new_ask(b, s, call, &network_function, network, err);
    if (!ask)
        return -(int)err->code;
    broker_begin(b, ask);
    return 0;
}

int broker_open(const struct broker_options *options, struct broker **out, struct error *err)
{
    struct broker *b = calloc(1, sizeof *b);
    if (!b)
        return error_memory(err);
    b->options = *options;
    b->fork_events = &fork_events;
    b->begin_patience = begin_patience;
    b->ask_network = broker_ask_network;
    b->seen_version = -1;
    TAILQ_INIT(&b->approvals);
    if (options->recorded && !(b->doubt = timer_new(options->loop, replay_match_doubt, b))) {
        free(b);
        return error_memory(err);
    }
    *out = b;
    return 0;
}

static void cancel_ask(struct ask *ask)
{
    struct error why = { 0 };
    error_set(&why, ERROR_CANCELLED, "the call was cancelled, and its answer dropped");
    ask_unlink(ask);
    for (size_t i = 0; i < ask->count; i++)
        if (broker_is_open(&ask->items[i]))
            cancel_item(&ask->items[i], &why);
    ask_free(ask);
}

void broker_drop(struct broker *b, struct session *s, uint64_t id)
{
    for (struct ask *ask = b->asks; ask; ask = ask->next) {
        if (ask->session != s || ask->id != id)
            continue;
        cancel_ask(ask);
        return;
    }
}

void broker_close(struct broker *b)
{
    if (!b)
        return;
    while (b->asks)
        cancel_ask(b->asks);
    approval_hook_close(b->hook);
    list_clear(&b->allowed);
    list_clear(&b->denied);
    network_log_free(b);
    timer_free(b->doubt);
    timer_free(b->look);
    free(b);
}
