/* lm/lm.c: what all model calls have in common.
 *
 * A call waits in `queue` for its turn (lm/queue.h), is then in `flight` for all its attempts and
 * the pauses between them, and ends in call_finish or lm_cancel. Its clock starts when it leaves
 * the queue.
 *
 * The caller's code runs in `done` and `delta` and may do anything, including closing the lm. So
 * every path into it lies between lm_enter and lm_leave, the last lm_leave frees an lm that was
 * closed meanwhile, and a call leaves all lists before its `done`.
 */
#include "lm/lm.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "lm/cache.h"
#include "lm/client.h"
#include "lm/kind.h"
#include "lm/prices.h"
#include "lm/provider.h"
#include "lm/queue.h"
#include "lm/record.h"
#include "lm/reply.h"
#include "lm/request.h"
#include "lm/sampling.h"
#include "net/retry.h"

struct lm {
    struct loop *loop;
    const struct lm_client_ops *ops;
    void *client;
    const struct provider *provider; /* the models' provider; NULL: none */
    bool has_vendors;                /* model names may begin with another provider's */
    char *name;                      /* for records */
    char *model;                     /* the provider's name for it */
    struct record *record;
    struct cache *cache;
    struct prices *prices;
    struct sampling sampling;
    bool own_server;          /* the provider's own server, whose prices are known */
    struct queue_place place; /* of its calls, without the model */
    unsigned retries;
    struct lm_queue *line; /* calls waiting for their turn */
    struct lm_call_list queue, flight, owed;
    struct lm_call_list unqueued; /* followers, and calls with a known answer */
    unsigned depth;               /* nesting of lm_enter */
    bool closed;
};

static void lm_enter(struct lm *lm)
{
    lm->depth++;
}

static void lm_free(struct lm *lm)
{
    if (lm->client)
        lm->ops->close(lm->client);
    record_close(lm->record);
    cache_close(lm->cache);
    prices_close(lm->prices);
    sampling_free(&lm->sampling);
    lm_queue_free(lm->line);
    free(lm->name);
    free(lm->model);
    free(lm);
}

static void lm_leave(struct lm *lm)
{
    if (--lm->depth == 0 && lm->closed)
        lm_free(lm);
}

/* Removes the provider's name before a model, which only selects the client. An error if it
 * names another provider than the opened one. */
static int bare_model(const struct lm *lm, const char *model, const char **out, struct error *err)
{
    const struct provider *named = provider_named(model);
    bool strange = lm->provider && named && named != lm->provider;
    bool as_it_is = lm->ops == &lm_program; /* a program may serve models of all providers */
    *out = named && !strange && !as_it_is ? strchr(model, '/') + 1 : model;
    if (strange && !lm->has_vendors)
        return error_set(err, ERROR_ARGUMENT,
            "'%.60s' is a model of %s, but calls of this run go to %s: name one of its models",
            model, named->title, lm->provider->title);
    return 0;
}

/* libuv rounds its current time down to a millisecond: one more is never early. */
static void timer_start_seconds(struct timer *timer, double seconds)
{
    timer_start(timer, (uint64_t)ceil(seconds * 1000) + 1, 0);
}

static void lm_call_free(struct lm_call *call)
{
    timer_free(call->deadline);
    timer_free(call->backoff);
    timer_free(call->give);
    shared_answer_drop(call->shared_answer);
    if (call->lm->ops->release)
        call->lm->ops->release(call);
    buf_free(&call->body);
    if (call->model != call->lm->model)
        free(call->model);
    free(call);
}

/* Frees a finished call that is in no list, unless a callback model still holds its handle. */
static void call_release(struct lm_call *call, bool answer_owed)
{
    struct lm *lm = call->lm;
    if (!answer_owed || lm->closed) {
        lm_call_free(call);
        return;
    }
    timer_free(call->deadline);
    call->deadline = NULL;
    call->state = CALL_OWED;
    TAILQ_INSERT_TAIL(&lm->owed, call, link);
}

static struct lm_call_list *list_of(const struct lm_call *call)
{
    struct lm *lm = call->lm;
    switch (call->state) {
    case CALL_QUEUED:
        return &lm->queue;
    case CALL_FOLLOWS:
    case CALL_SHARED_VALUE:
        return &lm->unqueued;
    case CALL_ATTEMPT:
    case CALL_BACKOFF:
    case CALL_HELD:
        return &lm->flight;
    case CALL_OWED:
        return &lm->owed;
    }
    return NULL;
}

static void call_give(struct lm_call *call, struct shared_answer *answer);
static int call_join(struct lm_call *call, struct error *err);

/* A follower asks for itself, because its leader ended without an answer. */
static void take_lead(struct lm *lm, struct lm_call *call)
{
    struct error err = { 0 };
    TAILQ_REMOVE(&lm->unqueued, call, link);
    call->state = CALL_QUEUED;
    TAILQ_INSERT_TAIL(&lm->queue, call, link);
    call->leader = call;
    /* otherwise identical calls also ask */
    cache_set_asker(lm->cache, call->cache_key, call, NULL);
    if (call_join(call, &err) == 0)
        return;
    struct shared_answer *failure = shared_answer_new(&err, "", 0, "");
    TAILQ_REMOVE(&lm->queue, call, link);
    TAILQ_INSERT_TAIL(&lm->unqueued, call, link);
    if (failure)
        call_give(call, failure);
    shared_answer_drop(failure);
}

/* Followers of a leader that ended have received its outcome; if there was none (it was
 * cancelled, or timed out), the next one asks. */
static void hand_on_lead(struct lm *lm, struct lm_call *leader)
{
    struct lm_call *call, *next, *heir = NULL;
    cache_set_asker(lm->cache, leader->cache_key, NULL, NULL);
    leader->leader = NULL;
    for (call = TAILQ_FIRST(&lm->unqueued); call && !lm->closed; call = next) {
        next = TAILQ_NEXT(call, link);
        if (call->leader != leader)
            continue;
        call->leader = heir;
        if (heir)
            continue;
        heir = call;
        take_lead(lm, call);
    }
}

/* Gives followers the leader's outcome; each receives it from the loop. */
static void share_outcome(struct lm_call *leader, const struct lm_reply *reply)
{
    struct lm *lm = leader->lm;
    struct lm_call *call, *next;
    struct shared_answer *answer = NULL;
    if (reply->error.code == ERROR_NONE)
        cache_keep(lm->cache, leader->cache_key, leader, reply);
    if (reply->error.code == ERROR_TIMEOUT)
        return;
    for (call = TAILQ_FIRST(&lm->unqueued); call; call = next) {
        next = TAILQ_NEXT(call, link);
        if (call->state != CALL_FOLLOWS || call->leader != leader)
            continue;
        if (!answer)
            answer = shared_answer_of(reply);
        if (!answer)
            return; /* without memory, the next one asks for itself */
        call_give(call, answer);
    }
    shared_answer_drop(answer);
}

static void call_unlink(struct lm_call *call)
{
    struct lm *lm = call->lm;
    if (call->ended)
        *call->ended = true;
    call->ended = NULL;
    queue_leave(call);
    hold_leave(&call->held);
    TAILQ_REMOVE(list_of(call), call, link);
    if (call->leader == call)
        hand_on_lead(lm, call);
}

/* Clamps numbers from providers, recordings and callbacks: in the sums, a negative one would
 * refund a budget and a huge one would overflow. */
static int64_t lm_believable(int64_t tokens)
{
    static const int64_t most = 1000000000000; /* millions of such calls fit an int64_t */
    return tokens < 0 ? 0 : tokens > most ? most : tokens;
}

/* `model` is the provider's name. */
static double lm_price(const struct lm *lm, const char *model, const struct lm_usage *usage)
{
    cleanup_buf struct buf name = { 0 };
    if (lm->provider)
        buf_printf(&name, "%s/", lm->provider->name);
    buf_puts(&name, model ? model : "");
    return buf_failed(&name) ? -1 : prices_cost(lm->prices, buf_text(&name), lm->own_server, usage);
}

double lm_cost(const struct lm *lm, const char *model, const struct lm_usage *usage)
{
    const char *bare = lm->model;
    if (model && model[0] && bare_model(lm, model, &bare, NULL) < 0)
        return -1;
    return lm_price(lm, bare, usage);
}

/* A call without an attempt costs nothing. */
static double cost_of(const struct lm_call *call, const struct lm_usage *usage)
{
    return call->attempts == 0 ? 0 : lm_price(call->lm, call->model, usage);
}

static void call_finish(struct lm_call *call, const struct lm_outcome *outcome, bool answer_owed)
{
    struct lm *lm = call->lm;
    cleanup_buf struct buf message = { 0 };
    bool ok = outcome->error.code == ERROR_NONE;
    struct lm_reply reply = {
        .error = outcome->error,
        .message = outcome->message,
        .text = ok && outcome->text ? outcome->text : "",
        .len = ok ? outcome->len : 0,
        .finish = outcome->finish ? outcome->finish : "",
        .usage = { .input_tokens = lm_believable(outcome->usage.input_tokens),
            .output_tokens = lm_believable(outcome->usage.output_tokens),
            .estimated = outcome->usage.estimated,
            .cached_tokens = lm_believable(outcome->usage.cached_tokens) },
        .attempts = call->attempts,
        .seconds = clock_seconds_since(call->started_ns),
    };
    reply.cost = cost_of(call, &reply.usage);
    if (!ok && call->attempts > 1)
        reply_count_attempts(&reply, &message);
    if (call->leader == call)
        share_outcome(call, &reply);
    record_reply(lm->record, call, &reply);
    call_unlink(call);
    lm_enter(lm);
    call->done(call->arg, &reply);
    call_release(call, answer_owed);
    lm_leave(lm);
}

static void give_now(void *arg)
{
    struct lm_call *call = arg;
    const struct shared_answer *shared_answer = call->shared_answer;
    const struct buf *text = &shared_answer->text;
    bool ok = shared_answer->error.code == ERROR_NONE;
    struct lm_outcome outcome = { .error = shared_answer->error,
        .message = ok || text->len == 0 ? NULL : text->data,
        .text = buf_text(text),
        .len = text->len,
        .finish = shared_answer->finish };
    call->started_ns = clock_ns();
    if (ok && !lm_attempt_delta(call, outcome.text, outcome.len))
        return;
    call_finish(call, &outcome, false);
}

/* Ends the call with a known answer, from the loop. Its timer already exists. */
static void call_give(struct lm_call *call, struct shared_answer *answer)
{
    answer->holders++;
    call->shared_answer = answer;
    call->leader = NULL;
    call->state = CALL_SHARED_VALUE;
    timer_start(call->give, 0, 0);
}

static void call_attempt(struct lm_call *call);

static void backoff_over(void *arg)
{
    call_attempt(arg);
}

/* Before another attempt. False without memory. */
static bool call_wait(struct lm_call *call, double seconds)
{
    if (!call->backoff)
        call->backoff = timer_new(call->lm->loop, backoff_over, call);
    if (!call->backoff)
        return false;
    call->state = CALL_BACKOFF;
    timer_start_seconds(call->backoff, seconds);
    return true;
}

static void call_send(void *arg)
{
    struct lm_call *call = arg;
    struct lm *lm = call->lm;
    struct lm_outcome failed = { 0 };
    double wait = queue_take(call);
    if (wait > 0 && !call_wait(call, wait)) {
        error_memory(&failed.error);
        call_finish(call, &failed, false);
    }
    if (wait > 0)
        return;
    call->state = CALL_ATTEMPT;
    call->attempts++;
    lm_enter(lm);
    lm->ops->attempt(call);
    lm_leave(lm);
}

static void call_attempt(struct lm_call *call)
{
    if (hold_pass(call->request.hold, &call->held, call_send, call))
        call_send(call);
    else
        call->state = CALL_HELD;
}

/* The caller may end the call in it. */
static void call_tell_retry(struct lm_call *call, const struct lm_outcome *failed, double pause)
{
    struct lm *lm = call->lm;
    const struct lm_retry retry = { &failed->error, failed->message, pause, call->attempts + 1,
        lm->retries + 1 };
    if (!call->request.retry)
        return;
    lm_enter(lm);
    call->request.retry(call->arg, &retry);
    lm_leave(lm);
}

/* True if another attempt was scheduled; the call must then not be touched. */
static bool call_retry(struct lm_call *call, const struct lm_outcome *outcome)
{
    struct lm *lm = call->lm;
    if (!outcome->retry || call->attempts > lm->retries)
        return false;
    double timeout = call->request.timeout > 0 ? call->request.timeout : INFINITY;
    double left = timeout - clock_seconds_since(call->started_ns);
    double pause = retry_pause_seconds(call->attempts, outcome->retry_after, left);
    if (pause < 0 || !call_wait(call, pause))
        return false;
    call_tell_retry(call, outcome, pause);
    return true;
}

void lm_attempt_headers(struct lm_call *call, limits_header_fn *header, void *arg)
{
    queue_learn(call, header, arg);
}

void lm_attempt_done(struct lm_call *call, const struct lm_outcome *outcome)
{
    /* The server would refuse the calls behind it in the queue, too. */
    if (outcome->error.code == ERROR_MODEL_RATE && outcome->retry && outcome->retry_after > 0)
        queue_pause(call, retry_asked_seconds(outcome->retry_after));
    if (outcome->error.code == ERROR_NONE)
        queue_settle(call, lm_believable(outcome->usage.input_tokens) +
                               lm_believable(outcome->usage.output_tokens));
    if (outcome->error.code == ERROR_NONE || !call_retry(call, outcome))
        call_finish(call, outcome, false);
}

bool lm_attempt_delta(struct lm_call *call, const char *text, size_t len)
{
    struct lm *lm = call->lm;
    bool ended = false;
    if (!call->delta || len == 0)
        return true;
    lm_enter(lm);
    call->ended = &ended;
    call->delta(call->arg, text, len);
    if (!ended)
        call->ended = NULL;
    lm_leave(lm);
    return !ended;
}

/* Takes the call away from the client in any state. */
static struct lm_usage call_abort(struct lm_call *call, bool *answer_owed)
{
    const struct lm_client_ops *ops = call->lm->ops;
    bool running = call->state == CALL_ATTEMPT;
    *answer_owed = ops->owes_answers && running;
    return running ? ops->abort(call) : (struct lm_usage){ 0 };
}

static void deadline_passed(void *arg)
{
    struct lm_call *call = arg;
    bool answer_owed;
    struct lm_outcome outcome = { .usage = call_abort(call, &answer_owed) };
    error_set(&outcome.error, ERROR_TIMEOUT, "no complete answer from %.100s within %g s",
        call->model ? call->model : call->lm->name, call->request.timeout);
    call_finish(call, &outcome, answer_owed);
}

/* Creates the timer only now, because thousands of calls may be queued. False if that ended the
 * call. */
static bool call_start_clock(struct lm_call *call)
{
    struct lm_outcome outcome = { 0 };
    if (call->request.timeout <= 0)
        return true;
    call->deadline = timer_new(call->lm->loop, deadline_passed, call);
    if (call->deadline) {
        timer_start_seconds(call->deadline, call->request.timeout);
        return true;
    }
    error_memory(&outcome.error);
    call_finish(call, &outcome, false);
    return false;
}

static void call_begin(struct lm_call *call)
{
    struct lm *lm = call->lm;
    TAILQ_REMOVE(&lm->queue, call, link);
    TAILQ_INSERT_TAIL(&lm->flight, call, link);
    call->state = CALL_ATTEMPT;
    call->started_ns = clock_ns();
    if (call_start_clock(call))
        call_attempt(call);
}

static int call_fill(struct lm_call *call, const struct lm_request *request, struct error *err)
{
    struct lm *lm = call->lm;
    const char *model = lm->model;
    if (request->model && request->model[0]) {
        int rc = bare_model(lm, request->model, &model, err);
        if (rc < 0)
            return rc;
    }
    /* The lm's own name outlives its calls. */
    call->model = model == lm->model || !model ? lm->model : strdup(model);
    if (model && !call->model)
        return error_memory(err);
    call->request = *request;
    call->request.model = call->model;
    call->request.sampling = buf_text(&lm->sampling.members);
    if (request->temperature < 0)
        call->request.temperature = lm->sampling.temperature;
    call->input_bytes = request_weight(request);
    if (lm->record || lm->cache || lm->ops->needs_body) {
        int rc = record_write_head(call, err);
        if (rc < 0)
            return rc;
    }
    struct lm_request whole = call->request;
    return lm->ops->prepare ? lm->ops->prepare(call, &whole, err) : 0;
}

/* The host whose answers the calls get. */
static const char *host_of(const struct lm *lm)
{
    return lm->ops->host ? lm->ops->host(lm->client) : lm->name;
}

static int call_join(struct lm_call *call, struct error *err)
{
    struct lm *lm = call->lm;
    struct queue_place place = lm->place;
    place.host = host_of(lm);
    place.model = call->model ? call->model : "";
    return queue_join(lm->line, &place, call_begin, call, err);
}

/* The key includes the server and the model: the same messages to another one are another
 * request. */
static int make_cache_key(struct lm_call *call, struct error *err)
{
    cleanup_buf struct buf scope = { 0 };
    buf_printf(&scope, "%s/%s", host_of(call->lm), call->model ? call->model : "");
    if (call->request.sample > 1)
        buf_printf(&scope, "#%u", call->request.sample);
    return buf_failed(&scope) ? error_memory(err)
                              : record_key(call, scope.data, call->cache_key, err);
}

static void call_leave_queue(struct lm_call *call, enum call_state state)
{
    call->state = state;
    TAILQ_INSERT_TAIL(&call->lm->unqueued, call, link);
}

/* 1: the call need not ask; 0: it asks. */
static int look_in_cache(struct lm_call *call, struct error *err)
{
    struct lm *lm = call->lm;
    int rc = make_cache_key(call, err);
    if (rc < 0)
        return rc;
    call->give = timer_new(lm->loop, give_now, call);
    if (!call->give)
        return error_memory(err);
    struct shared_answer *known = cache_find(lm->cache, call->cache_key);
    if (known) {
        call_leave_queue(call, CALL_SHARED_VALUE);
        call_give(call, known);
        shared_answer_drop(known);
        return 1;
    }
    call->leader = cache_asker(lm->cache, call->cache_key);
    if (call->leader) {
        call_leave_queue(call, CALL_FOLLOWS);
        return 1;
    }
    call->leader = call;
    return cache_set_asker(lm->cache, call->cache_key, call, err);
}

/* Queues a new call, or lets it follow another one. */
static int call_place(struct lm_call *call, struct error *err)
{
    struct lm *lm = call->lm;
    int rc = lm->cache ? look_in_cache(call, err) : 0;
    if (rc != 0)
        return rc < 0 ? rc : 0;
    rc = call_join(call, err);
    if (rc == 0)
        TAILQ_INSERT_TAIL(&lm->queue, call, link);
    else if (lm->cache)
        cache_set_asker(lm->cache, call->cache_key, NULL, NULL);
    return rc;
}

int lm_start(struct lm *lm, const struct lm_request *request, lm_done_fn *done, lm_delta_fn *delta,
    void *arg, struct lm_call **out, struct error *err)
{
    int rc = request_check(request, err);
    if (rc < 0)
        return rc;
    struct lm_call *call = calloc(1, sizeof *call);
    if (!call)
        return error_memory(err);
    call->lm = lm;
    call->client = lm->client;
    call->done = done;
    call->delta = delta;
    call->arg = arg;
    rc = call_fill(call, request, err);
    if (rc == 0)
        rc = call_place(call, err);
    if (rc < 0) {
        lm_call_free(call);
        return rc;
    }
    if (out)
        *out = call;
    return 0;
}

bool lm_is_recording(const struct lm *lm)
{
    return lm->ops == &lm_replay;
}

int lm_skip_recorded(struct lm *lm, const struct lm_request *request, struct error *err)
{
    if (!lm_is_recording(lm))
        return 0;
    struct lm_call *call = calloc(1, sizeof *call);
    if (!call)
        return error_memory(err);
    call->lm = lm;
    call->client = lm->client;
    int rc = call_fill(call, request, err); /* takes over the line */
    lm_call_free(call);
    return rc;
}

void lm_cancel(struct lm_call *call, struct lm_reply *spent)
{
    bool answer_owed;
    struct lm_usage usage = call_abort(call, &answer_owed);
    if (spent)
        *spent = (struct lm_reply){ .text = "",
            .finish = "",
            .usage = usage,
            .cost = cost_of(call, &usage),
            .attempts = call->attempts,
            .seconds = call->attempts ? clock_seconds_since(call->started_ns) : 0 };
    call_unlink(call);
    call_release(call, answer_owed);
}

void lm_answer(struct lm_call *call, const char *text, size_t len, const struct lm_usage *usage,
    const struct error *error)
{
    struct lm_outcome outcome = { .text = text, .len = len, .finish = "stop" };
    if (call->state == CALL_OWED) {
        TAILQ_REMOVE(&call->lm->owed, call, link);
        lm_call_free(call);
        return;
    }
    if (error && error->code != ERROR_NONE)
        outcome.error = *error;
    else if (!text_is_utf8(text, len, NULL))
        error_set(&outcome.error, ERROR_MODEL_REPLY, "the callback's answer is not UTF-8");
    if (outcome.error.code != ERROR_NONE)
        outcome.finish = "";
    outcome.usage = usage ? *usage : lm_usage_estimate(call, len);
    lm_attempt_done(call, &outcome);
}

void lm_close(struct lm *lm)
{
    if (!lm || lm->closed)
        return;
    lm_enter(lm);
    lm->closed = true;
    struct lm_call *call;
    while ((call = TAILQ_FIRST(&lm->flight)) || (call = TAILQ_FIRST(&lm->queue)) ||
           (call = TAILQ_FIRST(&lm->unqueued)))
        lm_cancel(call, NULL);
    while ((call = TAILQ_FIRST(&lm->owed))) {
        TAILQ_REMOVE(&lm->owed, call, link);
        lm_call_free(call);
    }
    lm_leave(lm);
}

bool lm_is_of_provider(const char *model)
{
    return !kind_find(model);
}

/* Finds the client; *rest is the model's name for it. */
static int choose_client(
    struct lm *lm, const struct lm_options *options, const char **rest, struct error *err)
{
    const struct lm_kind *kind = kind_find(options->model);
    lm->ops = kind ? kind->ops : &lm_chat;
    if (kind) {
        size_t n = strlen(kind->scheme);
        *rest = options->model + (options->model[n] ? n + 1 : 0);
        return 0;
    }
    int rc = kind_check_scheme(options, err);
    if (rc == 0)
        rc = provider_find(options, options->model, &lm->provider, rest, err);
    if (rc < 0)
        return rc;
    lm->has_vendors = provider_has_vendors(lm->provider, options);
    lm->own_server = provider_account(lm->provider, options).base_url[0] == '\0';
    return 0;
}

/* Programs and recordings accept OpenAI's parameters; functions accept none. */
static int take_sampling(struct lm *lm, const struct lm_options *options, struct error *err)
{
    const struct provider *p = lm->provider;
    if (lm->ops == &lm_callback && options->sampling && options->sampling->count > 0)
        return error_set(err, ERROR_CONFIG,
            "sampling '%.60s': a model that is a function has no sampling parameters",
            options->sampling->items[0]);
    return sampling_parse(options->sampling, p ? p->dialect->sampling : SAMPLING_OPENAI,
        p ? p->title : options->model, &lm->sampling, err);
}

static int lm_fill(struct lm *lm, const struct lm_options *options, struct error *err)
{
    const char *rest = "";
    cleanup_buf struct buf name = { 0 };
    int rc = choose_client(lm, options, &rest, err);
    if (rc < 0)
        return rc;
    if (rest[0] == '\0')
        return error_set(err, ERROR_CONFIG, "'%.64s' is not the name of a model", options->model);
    if (lm->provider)
        buf_printf(&name, "%s/%s", lm->provider->name, rest);
    else
        buf_puts(&name, options->model);
    lm->name = buf_steal(&name);
    /* A recording may hold several models, so a replay has no model of its own. */
    lm->model = lm->ops == &lm_replay ? NULL : strdup(rest);
    lm->line = options->queue ? queue_hold(options->queue) : lm_queue_new(lm->loop);
    if (!lm->name || !lm->line || (!lm->model && lm->ops != &lm_replay))
        return error_memory(err);
    rc = take_sampling(lm, options, err);
    if (rc == 0)
        rc = lm->ops->open(lm->loop, options, rest, &lm->client, err);
    if (rc == 0 && options->record && options->record[0])
        rc = record_open(options->record, &lm->record, err);
    /* a replay needs no cache */
    bool cached = options->cache && options->cache[0];
    if (rc == 0 && (cached || options->deduplicate) && lm->ops != &lm_replay)
        rc = cache_open(cached ? options->cache : NULL, &lm->cache, err);
    if (rc == 0)
        rc = prices_open(options->prices, &lm->prices, err);
    return rc;
}

static struct lm_options with_defaults(const struct lm_options *requested)
{
    struct lm_options o = *requested;
    o.concurrency = o.concurrency ? o.concurrency : 64;
    o.connect_timeout = o.connect_timeout > 0 ? o.connect_timeout : 10;
    o.stall_timeout = o.stall_timeout > 0 ? o.stall_timeout : 60;
    return o;
}

int lm_open(
    struct loop *loop, const struct lm_options *requested, struct lm **out, struct error *err)
{
    struct lm_options options = with_defaults(requested);
    if (!options.model || options.model[0] == '\0')
        return error_set(err, ERROR_CONFIG,
            "no model is configured: name one, as in --model "
            "gpt-5-mini");
    struct lm *lm = calloc(1, sizeof *lm);
    if (!lm)
        return error_memory(err);
    lm->loop = loop;
    lm->place.host_most = options.concurrency;
    lm->place.model_most = options.model_concurrency;
    lm->place.rate = options.rate;
    lm->retries = options.retries;
    TAILQ_INIT(&lm->queue);
    TAILQ_INIT(&lm->flight);
    TAILQ_INIT(&lm->owed);
    TAILQ_INIT(&lm->unqueued);
    int rc = lm_fill(lm, &options, err);
    if (rc < 0) {
        lm_free(lm);
        return rc;
    }
    *out = lm;
    return 0;
}

const char *lm_call_opened(const struct lm_call *call)
{
    return call->lm->name;
}

const char *lm_call_model(const struct lm_call *call)
{
    return call->model;
}

const char *lm_name(const struct lm *lm)
{
    return lm->name;
}

bool lm_reads_urls(const struct lm *lm)
{
    return !lm->provider || lm->provider->dialect->reads_urls;
}

void lm_describe(const struct lm *lm, struct buf *out)
{
    lm->ops->describe(lm->client, out);
}
