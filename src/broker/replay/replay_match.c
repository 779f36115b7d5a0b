/* broker/replay/replay_match.c: answers a guest's prompts from the record, in a resumed run.
 *
 *   request ── recorded? ── completed ─► its answer (if it came late: after the end of the cell)
 *                  │     └─ open ─► repeat the same call, continue the same child run
 *                  └─ no ── other calls of the cell are still due ─► wait for them
 *                        └─ the cell had not completed ─► a new call
 *                        └─ the cell ran into its deadline ─► wait for the deadline
 *                        └─ the cell had completed ─► the run diverged, and stops
 *
 * The order of threads changes on replay: a thread with recorded answers is faster than one that
 * computes or sleeps. A request therefore waits for others while the guest is running or ready to
 * run. While it is idle, one of its threads may be sleeping, but for no longer than the others took
 * originally; after that no call will come, and the run has diverged.
 */
#include "broker/replay/replay_match.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/loop.h"
#include "base/text.h"
#include "broker/ask.h"
#include "broker/fork_map.h"
#include "broker/replay/replay_log.h"
#include "wire/values.h"

enum {
    LOOK_MS = 250,         /* interval of checks on a guest with due calls */
    IDLE_MS = 2000,        /* milliseconds of idleness to wait, and then */
    IDLE_MOST_MS = 600000, /* twice the original time, up to this limit */
    BUSY_SHARE = 10,       /* below this fraction of the time, a guest only polls the clock */
    SHOWN_MAX = 40,        /* bytes of a prompt in an error */
};

static struct replay_place place_of(const struct item *item)
{
    const struct broker *b = item->ask->broker;
    return (struct replay_place){ .cell = b->cell,
        .turn = b->turn,
        .candidate = b->candidate,
        .fork = fork_map_path(b, item->ask->session) };
}

int replay_match_find_call(struct item *item, const char *text, size_t len, struct error *err)
{
    struct broker *b = item->ask->broker;
    struct replay_log *r = b->options.recorded;
    char hash[HASH_TEXT_SIZE];
    int rc = hash_sha256(text, len, hash, err);
    if (rc < 0)
        return rc;
    const struct replay_place at = place_of(item);
    const char *fallback = b->options.lm ? lm_name(b->options.lm) : "";
    item->replay_call =
        replay_log_find(r, &at, item->ask->is_tool, item->ask->model, fallback, hash);
    if (item->replay_call)
        replay_log_take(r, item->replay_call);
    return 0;
}

int replay_match_find_run(
    struct item *item, const char *question, size_t len, const char *context, struct error *err)
{
    struct broker *b = item->ask->broker;
    struct replay_log *r = b->options.recorded;
    char hash[HASH_TEXT_SIZE];
    int rc = hash_sha256(question, len, hash, err);
    if (rc < 0)
        return rc;
    const struct replay_place at = place_of(item);
    item->replay_run =
        replay_log_find_run(r, &at, item->ask->model, lm_name(b->options.lm), hash, context);
    if (item->replay_run)
        replay_log_take_run(r, item->replay_run);
    return 0;
}

void replay_match_forget(struct item *item)
{
    if (item->replay_call)
        replay_log_untake(item->ask->broker->options.recorded, steal(&item->replay_call));
    if (item->replay_run)
        replay_log_untake_run(item->ask->broker->options.recorded, steal(&item->replay_run));
}

/* ---- recorded requests ---- */

/* A file of the record may have been changed: its values are checked as a guest's are. */
static void keep_tool_answer(
    struct item *item, const struct recorded_call *call, const struct buf *text)
{
    cleanup_buf struct buf values = { 0 };
    item_keep_text(item, buf_text(text), text->len, false);
    if (!call->reply_values.hash[0] || replay_log_read(item->ask->broker->options.recorded,
                                           &call->reply_values, &values, &item->error) < 0)
        return;
    if (values_check(values.data, values.len, &item->error) < 0)
        error_wrap(&item->error, "what %s() returned cannot be read from the record", call->model);
    else
        item_keep_values(item, values.data, values.len);
}

static void keep_tool_call(struct item *item, const struct recorded_call *call)
{
    struct replay_log *r = item->ask->broker->options.recorded;
    cleanup_buf struct buf text = { 0 };
    item->error = (struct error){ 0 };
    if (!call->reply.hash[0])
        item->error = call->error; /* cancelled, or not an exception of the tool */
    else if (replay_log_read(r, &call->reply, &text, &item->error) < 0)
        return;
    else if (call->error.code == ERROR_NONE)
        keep_tool_answer(item, call, &text);
    else
        item_keep_failure(item, buf_steal(&text));
}

static void keep_call(struct item *item, const struct recorded_call *call)
{
    struct broker *b = item->ask->broker;
    cleanup_buf struct buf text = { 0 };
    if (call->tool) {
        keep_tool_call(item, call);
        return;
    }
    item->error = call->error;
    if (item->error.code == ERROR_NONE &&
        replay_log_read(b->options.recorded, &call->reply, &text, &item->error) == 0)
        item_keep_text(item, buf_text(&text), text.len, item->is_run);
}

/* A run may have both an error and an answer, its last output. */
static void keep_run(struct item *item, const struct recorded_run *run)
{
    struct broker *b = item->ask->broker;
    cleanup_buf struct buf text = { 0 };
    struct error err = { 0 };
    item->error = run->error;
    if (replay_log_read(b->options.recorded, &run->answer, &text, &err) < 0)
        item->error = err;
    else if (run->answer.hash[0])
        item_keep_text(item, buf_text(&text), text.len, false);
}

/* Empty if not recorded. */
static void replay_match_keep(struct item *item)
{
    if (item->replay_call)
        keep_call(item, item->replay_call);
    else if (item->replay_run)
        keep_run(item, item->replay_run);
}

/* Sets the recorded answer; returns 1 or an error. */
static int replay_match_answer(struct item *item, bool late)
{
    if (late) {
        item->waits = WAITS_FOR_CELL;
        return 1;
    }
    replay_match_keep(item);
    item_over(item);
    return 1;
}

/* Makes a recording skip the line that it answered then. */
static int replay_match_skip(struct broker *b, const struct recorded_call *match,
    struct lm_request *request, struct error *err)
{
    struct lm *lm = b->options.lm;
    return replay_log_is_of(match, lm, b->options.recorded_only)
               ? lm_skip_recorded(lm, request, err)
               : 0;
}

/* Repeats an open call with its key: the provider may have been paid for it. */
static int replay_match_call(struct item *item, struct lm_request *request, struct error *err)
{
    struct recorded_call *match = item->replay_call;
    if (!match->ended) {
        item->record = match->id;
        request->key = match->key[0] ? match->key : NULL;
        return 0;
    }
    int rc = replay_match_skip(item->ask->broker, match, request, err);
    return rc < 0 ? rc : replay_match_answer(item, match->late);
}

static int replay_match_run(struct item *item, struct error *err)
{
    struct broker_options *o = &item->ask->broker->options;
    struct recorded_run *match = item->replay_run;
    if (!match->ended)
        return 0;
    int rc = o->children->skip(o->children_arg, match, err);
    return rc < 0 ? rc : replay_match_answer(item, match->late);
}

/* Repeats an open call, whose outcome is unknown. */
static int replay_match_tool(struct item *item)
{
    if (item->replay_call->ended)
        return replay_match_answer(item, item->replay_call->late);
    item->record = item->replay_call->id;
    return 0;
}

/* ---- unrecorded requests ---- */

static int wait_for_others(struct item *item, struct error *err)
{
    struct broker *b = item->ask->broker;
    item->kept = text_copy(item->asked, item->asked_len);
    if (!item->kept)
        return error_memory(err);
    item->waits = WAITS_FOR_OTHERS;
    b->parked = true;
    return 1;
}

/* Stops the run: the code asks for `text`, which is not recorded. */
static void replay_match_diverge(const struct item *item, const char *text, size_t len)
{
    struct broker *b = item->ask->broker;
    struct replay_log *r = b->options.recorded;
    struct recorded_cell *cell = replay_log_cell_find(r, b->cell);
    struct recorded_call *unasked = replay_log_unasked(r, b->cell);
    cleanup_buf struct buf shown = { 0 };
    struct error why = { 0 };
    size_t n = len > SHOWN_MAX ? text_utf8_floor(text, len, SHOWN_MAX) : len;
    text_append_visible(&shown, text, n);
    for (size_t i = 0; i < shown.len; i++)
        if (shown.data[i] == '\n')
            shown.data[i] = ' ';
    error_set(&why, ERROR_MODEL_REPLAY,
        "turn %lld, cell %lld, call %lld: the code asks %sfor '%.80s%s', which differs from the "
        "record; the run cannot be resumed",
        (long long)b->turn, (long long)(cell ? cell->number : 0),
        (long long)(unasked ? unasked->number : replay_log_asked(r, b->cell) + 1),
        item->is_run ? "a child run " : "", buf_text(&shown), n < len ? "…" : "");
    b->options.diverged(b->options.arg, &why);
}

/* The budget may have refused it then, and does so again; only started calls are recorded. */
static int is_refused(struct item *item, const struct budget_call *call, struct error *err)
{
    struct budget *budget = item->ask->broker->options.budget;
    int rc = call ? budget_hold(budget, call, &item->hold, err) : 0;
    if (rc == 0)
        budget_release(budget, &item->hold);
    return rc;
}

static void begin_doubt(struct broker *b)
{
    b->seen_ns = clock_ns();
    b->busy_ns = fork_map_busy_ns(b);
    b->idle_ms = 0;
    timer_start(b->doubt, LOOK_MS, LOOK_MS);
}

/* Like replay_match_start; `call` is NULL for child runs and tools. */
static int start_unknown(struct item *item, const struct budget_call *call, struct error *err)
{
    struct broker *b = item->ask->broker;
    struct recorded_cell *cell = replay_log_cell_find(b->options.recorded, b->cell);
    if (!cell || (!cell->ended && cell->calls == 0))
        return 0;
    if (cell->ended && strcmp(cell->status, "timeout") == 0) {
        item->waits = WAITS_FOR_CELL;
        return 1;
    }
    if (cell->calls > 0) {
        begin_doubt(b);
        return wait_for_others(item, err);
    }
    int rc = is_refused(item, call, err);
    if (rc < 0)
        return rc;
    rc = wait_for_others(item, err);
    replay_match_diverge(item, item->asked, item->asked_len);
    return rc;
}

int replay_match_start(struct item *item, struct lm_request *request,
    const struct budget_call *call, struct error *err)
{
    return item->replay_call ? replay_match_call(item, request, err)
                             : start_unknown(item, call, err);
}

int replay_match_start_run(struct item *item, struct error *err)
{
    return item->replay_run ? replay_match_run(item, err) : start_unknown(item, NULL, err);
}

int replay_match_read_reply(const struct item *item, struct buf *out, struct error *err)
{
    const struct recorded_call *call = item->replay_call;
    return call && call->ended && call->error.code == ERROR_NONE
               ? replay_log_read(item->ask->broker->options.recorded, &call->reply, out, err)
               : 0;
}

int replay_match_start_tool(struct item *item, struct error *err)
{
    return item->replay_call ? replay_match_tool(item) : start_unknown(item, NULL, err);
}

int replay_match_may_ask(struct item *item, struct error *err)
{
    struct broker_options *o = &item->ask->broker->options;
    if (!o->recorded_only)
        return 0;
    replay_match_diverge(item, item->asked, item->asked_len);
    return error_set(err, ERROR_MODEL_REPLAY, "models are not called while a run is replayed");
}

/* ---- waiting requests ---- */

void replay_match_cancel(struct item *item)
{
    if (item->waits == WAITS_FOR_CELL)
        replay_match_keep(item);
    item->waits = WAITS_NOT;
}

void replay_match_start_waiting(struct broker *b)
{
    b->parked = false;
    for (struct ask *ask = b->asks, *next; ask; ask = next) {
        next = ask->next;
        ask->starting = true;
        for (size_t i = 0; i < ask->count; i++)
            if (ask->items[i].waits == WAITS_FOR_OTHERS)
                item_start_again(&ask->items[i]);
        ask->starting = false;
        if (ask->done == ask->count)
            ask_reply(ask);
    }
}

static struct item *replay_match_first_waiting(struct broker *b)
{
    for (struct ask *ask = b->asks; ask; ask = ask->next)
        for (size_t i = 0; i < ask->count; i++)
            if (ask->items[i].waits == WAITS_FOR_OTHERS)
                return &ask->items[i];
    return NULL;
}

/* Whether the guest was idle since the last check. If the host itself was delayed, the check
 * does not count. */
static bool was_idle(struct broker *b, uint64_t *ms)
{
    uint64_t now = clock_ns(), busy = fork_map_busy_ns(b);
    uint64_t passed = now - b->seen_ns, used = busy > b->busy_ns ? busy - b->busy_ns : 0;
    bool ended = busy < b->busy_ns; /* a process has ended, so the total decreased */
    b->seen_ns = now;
    b->busy_ns = busy;
    *ms = passed / 1000000 < 2 * LOOK_MS ? passed / 1000000 : 2 * LOOK_MS;
    return !ended && used < passed / BUSY_SHARE;
}

void replay_match_doubt(void *arg)
{
    struct broker *b = arg;
    struct item *item = replay_match_first_waiting(b);
    uint64_t ms = 0;
    if (!item) {
        timer_stop(b->doubt);
        return;
    }
    if (!was_idle(b, &ms)) { /* on a busy machine, a guest that polls waits to run, now and then */
        b->idle_ms -= ms < b->idle_ms ? ms : b->idle_ms;
        return;
    }
    b->idle_ms += ms;
    int64_t before_ms = replay_log_unasked_ms(b->options.recorded, b->cell);
    uint64_t asleep_ms = before_ms < IDLE_MOST_MS / 2 ? (uint64_t)before_ms * 2 : IDLE_MOST_MS;
    if (b->idle_ms < IDLE_MS + asleep_ms)
        return;
    timer_stop(b->doubt);
    replay_match_diverge(item, item->kept, item->asked_len);
}
