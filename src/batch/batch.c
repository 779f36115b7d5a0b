/* batch/batch.c: runs many tasks, a limited number concurrently, until all have a result.
 *
 * One zero-delay timer (`work`) starts and stops everything: a run must be neither started nor
 * suspended within the callback of another run. A stop leaves the record as a killed process would,
 * so that the same call can resume the batch.
 *
 * droste_batch waits for a batch that was started as droste_batch_start does. A host (batch.h) may
 * start the runs itself; everything else is the same.
 */
#include "batch/slot.h"

#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "api/api.h"
#include "api/contexts.h"
#include "api/result.h"
#include "api/stage.h"
#include "api/tool_api.h"
#include "base/clock.h"
#include "base/loop.h"
#include "broker/tools.h"
#include "rlm/rlm.h"

enum {
    CONCURRENCY = 8,
    AT_ONCE = 16, /* tasks to start per iteration of the loop */
    TICK_MS = 200,
    SYNC_TICKS = 5,
    FDS_OF_RUN =
        8, /* per task: four descriptors, a pidfd, a cgroup, a context, a model connection */
    FDS_OF_US = 100,
};

static void batch_free(struct batch *b)
{
    timer_free(b->work);
    timer_free(b->tick);
    timer_free(b->deadline);
    api_models_close(&b->models);
    results_close(b->results);
    tasks_free(b->tasks);
    budget_free(&b->budget);
    settings_free(&b->settings);
    free(b);
}

/* ---- stopping ---- */

static void batch_interrupted(void *arg)
{
    struct error why = { 0 };
    error_set(&why, ERROR_CANCELLED, "the batch was interrupted");
    batch_stop(arg, "interrupt", &why);
}

static void batch_refused(void *arg)
{
    struct batch *b = arg;
    batch_stop(b, "budget", &b->budget.refused);
}

static void batch_time_is_up(void *arg)
{
    struct batch *b = arg;
    struct error why = { 0 };
    error_set(&why, ERROR_TIMEOUT, "the batch reached its time limit of %g s", b->o->timeout);
    batch_stop(b, "timeout", &why);
}

/* ---- working ---- */

static struct task_entry *next_task(struct batch *b)
{
    while (b->next < b->tasks->count) {
        struct task_entry *place = &b->tasks->entries[b->next++];
        if (place->state != TASK_DONE)
            return place;
    }
    return NULL;
}

/* The end is reported by the batch's last act; then it is gone. */
static void batch_end(struct batch *b)
{
    struct loop *loop = b->d->loop;
    struct error unsaved = { 0 };
    if (results_sync(b->results, &unsaved) < 0 && b->failed.code == ERROR_NONE)
        b->failed = unsaved;
    batch_refresh(b);
    b->ended(b->arg, &b->state, b->failed.code == ERROR_NONE ? NULL : &b->failed);
    batch_free(b);
    loop_wake(loop);
}

/* Runs of other machines do not reserve what they use: they are counted when they have ended. */
static void batch_check_spent(struct batch *b)
{
    const droste_batch_options *o = b->o;
    const struct spent *spent = &b->budget.spent;
    struct error why = { 0 };
    if (o->max_calls > 0 && spent->calls >= o->max_calls)
        error_set(
            &why, ERROR_BUDGET_CALLS, "the batch has made its %lld calls", (long long)o->max_calls);
    else if (o->max_tokens > 0 && spent->input_tokens + spent->output_tokens >= o->max_tokens)
        error_set(&why, ERROR_BUDGET_TOKENS, "the batch has used its %lld tokens",
            (long long)o->max_tokens);
    else if (o->max_cost > 0 && spent->cost >= o->max_cost)
        error_set(&why, ERROR_BUDGET_COST, "the batch has cost its $%g", o->max_cost);
    if (why.code)
        batch_stop(b, "budget", &why);
}

static void batch_work(void *arg)
{
    struct batch *b = arg;
    unsigned most = b->o->concurrency ? b->o->concurrency : CONCURRENCY;
    struct task_entry *place = NULL;
    if (b->host.is_elsewhere && !b->state.stopped)
        batch_check_spent(b);
    if (b->state.stopped)
        slots_stop(b);
    for (int n = 0; n < AT_ONCE && !b->state.stopped && b->state.running < most; n++) {
        place = next_task(b);
        if (!place)
            break;
        slot_begin(b, place);
    }
    if (place && b->state.running < most)
        batch_look(b);
    if (TAILQ_EMPTY(&b->slots) && (b->state.stopped || !place))
        batch_end(b);
}

static void batch_tick(void *arg)
{
    struct batch *b = arg;
    struct error err = { 0 };
    if (++b->ticks % SYNC_TICKS == 0 && results_sync(b->results, &err) < 0)
        batch_fail(b, &err);
    batch_tell(b, "tick", "", 0);
}

/* ---- earlier results ---- */

static void count_usage(struct batch *b, struct json_object *usage)
{
    struct json_object *cost = NULL;
    struct spent spent = {
        .calls = json_get_int(usage, "calls", 0),
        .attempts = json_get_int(usage, "attempts", 0),
        .input_tokens = json_get_int(usage, "input_tokens", 0),
        .output_tokens = json_get_int(usage, "output_tokens", 0),
        .cost = json_get_double(usage, "cost", 0),
        .estimated = json_get_bool(usage, "estimated", false),
    };
    json_object_object_get_ex(usage, "cost", &cost);
    spent.unpriced = cost ? 0 : spent.calls;
    budget_count(&b->budget, &spent);
}

static struct outcome outcome_of(struct json_object *line)
{
    struct json_object *grade = json_get_typed(line, "grade", json_type_object), *passed = NULL;
    enum rlm_status status = stored_run_status(json_get_string(line, "status", ""));
    /* Results never have the status `interrupted`; a line that does belongs to another program. */
    struct outcome outcome = { status < RLM_ERROR ? (int)status : RLM_ERROR, { 0 }, false };
    if (!grade)
        return outcome;
    json_object_object_get_ex(grade, "passed", &passed);
    outcome.grade.is_graded = json_object_is_type(passed, json_type_boolean);
    outcome.grade.passed = outcome.grade.is_graded && json_object_get_boolean(passed);
    outcome.grade.score = json_get_double(grade, "score", outcome.grade.passed);
    outcome.ungraded = !outcome.grade.is_graded;
    return outcome;
}

struct found {
    struct batch *batch;
    size_t strangers;
};

static int batch_take_line(void *arg, const char *id, struct json_object *line, struct error *err)
{
    struct found *found = arg;
    struct batch *b = found->batch;
    struct task_entry *place = tasks_find(b->tasks, id);
    count_usage(b, json_get_typed(line, "usage", json_type_object));
    if (!place) {
        found->strangers++;
        return 0;
    }
    place->outcome = outcome_of(line);
    snprintf(place->run, sizeof place->run, "%s", json_get_string(line, "run", ""));
    bool again = b->o->again && place->outcome.status != RLM_ANSWERED;
    place->state = again ? TASK_AGAIN : TASK_DONE;
    return 0;
}

/* Counts what unfinished tasks have spent before any task starts; otherwise other tasks could
 * use up that budget before their runs are resumed. */
static int count_leftover(struct batch *b, const struct task_entry *place, struct error *err)
{
    struct store_found found = { 0 };
    droste_result *result = NULL;
    int rc = store_task_find(b->store, b->results->path, place->id, &found, err);
    if (rc < 0 || !found.id[0] || strcmp(found.id, place->run) == 0)
        return rc;
    rc = stored_run_result(b->d, found.id, &result, err);
    if (rc == 0)
        budget_count(&b->budget, &result->spent);
    droste_result_free(result);
    return rc;
}

static int look_back(struct batch *b, struct error *err)
{
    struct found found = { b, 0 };
    cleanup_buf struct buf notice = { 0 };
    int rc = results_read(b->results, batch_take_line, &found, &notice, err);
    if (rc < 0)
        return rc;
    if (notice.len > 0)
        batch_notice(b, notice.data, notice.len);
    buf_clear(&notice);
    if (found.strangers > 0) {
        buf_printf(&notice, "%zu result%s in %s of tasks that %s does not contain", found.strangers,
            found.strangers == 1 ? " is" : "s are", b->results->path, b->tasks->path);
        batch_notice(b, buf_text(&notice), notice.len);
    }
    for (size_t i = 0; rc == 0 && i < b->tasks->count; i++) {
        const struct task_entry *place = &b->tasks->entries[i];
        if (place->state == TASK_DONE) {
            batch_count(b, &place->outcome);
            b->state.earlier++;
        } else if (b->store) {
            rc = count_leftover(b, place, err);
        }
    }
    return rc;
}

/* ---- the batch ---- */

/* Checks the descriptor limit in advance: running out later would fail unrelated tasks. */
static int check_descriptors(const struct batch *b, struct error *err)
{
    struct rlimit files;
    uint64_t most = b->o->concurrency ? b->o->concurrency : CONCURRENCY;
    most = most < b->tasks->count ? most : b->tasks->count;
    uint64_t need = FDS_OF_US + most * FDS_OF_RUN;
    if (getrlimit(RLIMIT_NOFILE, &files) < 0 || files.rlim_cur >= need)
        return 0;
    uint64_t fit = files.rlim_cur > FDS_OF_US ? (files.rlim_cur - FDS_OF_US) / FDS_OF_RUN : 0;
    return error_set(err, ERROR_ARGUMENT,
        "%llu runs at once need %llu open files, but only %llu are allowed (ulimit -n): raise the "
        "limit, or run at most %llu at once",
        (unsigned long long)most, (unsigned long long)need, (unsigned long long)files.rlim_cur,
        (unsigned long long)fit);
}

static int check_options(struct batch *b, struct error *err)
{
    const droste_batch_options *o = b->o;
    if (!o->tasks || !o->results)
        return error_set(
            err, ERROR_ARGUMENT, "a batch needs a file of tasks and a file for results");
    if (o->max_calls < 0 || o->max_tokens < 0 || !(o->max_cost >= 0) || !(o->timeout >= 0))
        return error_set(err, ERROR_ARGUMENT, "a limit of a batch cannot be negative");
    if (!o->grader)
        return 0;
    b->grader = &b->named;
    int rc = grader_parse(o->grader, &b->named, err);
    if (rc == 0 && b->named.program && strchr(b->named.program, '/') &&
        access(b->named.program, X_OK) < 0)
        rc = error_set_errno(err, errno == ENOENT ? ERROR_NOT_FOUND : ERROR_ARGUMENT,
            "the grader %.120s", b->named.program);
    return rc;
}

/* Opens shared resources before anything else, and reports their errors first. */
static int batch_open_models(struct batch *b, struct error *err)
{
    static const struct lm_usage some = { .input_tokens = 1, .output_tokens = 1 };
    int rc = api_models(b->d, &b->settings, false, &b->models, err);
    const struct lm *root = b->models.at[0];
    if (rc == 0 && root && b->o->max_cost > 0 && lm_cost(root, NULL, &some) < 0)
        rc = error_set(err, ERROR_CONFIG,
            "the batch's cost is limited, but the price of %.80s is unknown: set it with --prices "
            "FILE",
            lm_name(root));
    return rc;
}

/* A template is executed before the first task starts: no task may wait for it in the loop. */
/* Checks once that the contexts which all tasks share are readable and have distinct names; each
 * task reads them again. */
static int check_shared(struct batch *b, struct error *err)
{
    droste *d = b->d;
    struct tools *tools = NULL;
    struct contexts contexts = { 0 };
    cleanup_buf struct buf facts = { 0 };
    if (droste_context_reads_input(d))
        return error_set(err, ERROR_ARGUMENT,
            "standard input can be read only once, but each task needs the context: give a file");
    int rc = api_tools(d, &b->settings, &tools, &facts, err);
    if (rc == 0)
        rc = api_contexts_load(d, &b->settings, &contexts, err);
    if (rc == 0)
        rc = api_contexts_check(&contexts, tools, err);
    contexts_free(&contexts);
    tools_free(tools);
    return rc;
}

/* What the runs of this process need. */
static int batch_open_runs(struct batch *b, struct error *err)
{
    int rc = check_descriptors(b, err);
    if (rc == 0)
        rc = batch_open_models(b, err);
    if (rc == 0)
        rc = check_shared(b, err);
    if (rc == 0)
        rc = droste_template_make(b->d, err);
    return rc < 0 ? rc : api_store(b->d, &b->store, err);
}

static int batch_set_up(struct batch *b, struct error *err)
{
    const struct budget_limits limits = { .calls = -1,
        .all_calls = b->o->max_calls,
        .total_tokens = b->o->max_tokens,
        .cost = b->o->max_cost };
    droste *d = b->d;
    budget_init(&b->budget, &limits);
    b->budget.name = "the batch";
    b->budget.on_refused = batch_refused;
    b->budget.arg = b;
    b->work = timer_new(d->loop, batch_work, b);
    b->tick = timer_new(d->loop, batch_tick, b);
    b->deadline = timer_new(d->loop, batch_time_is_up, b);
    if (!b->work || !b->tick || !b->deadline)
        return error_memory(err);
    int rc = settings_copy(&b->settings, &d->settings, err);
    if (rc == 0)
        rc = settings_set_all(&b->settings, b->host.settings, err);
    if (rc == 0)
        rc = check_options(b, err);
    if (rc == 0)
        rc = tasks_open(b->o->tasks, &b->settings, b->grader, &b->host, &b->tasks, err);
    if (rc == 0 && !b->host.is_elsewhere)
        rc = batch_open_runs(b, err);
    if (rc == 0)
        rc = results_open(b->o->results, &b->results, err);
    b->state.tasks = b->tasks ? b->tasks->count : 0;
    return rc < 0 ? rc : look_back(b, err);
}

static int batch_start(droste *d, const droste_batch_options *options,
    const droste_batch_host *host, const struct batch *calls, struct batch **out, struct error *err)
{
    struct batch *b = calloc(1, sizeof *b);
    if (!b)
        return error_memory(err);
    *b = *calls;
    b->d = d;
    b->o = options;
    b->host = host ? *host : (droste_batch_host){ 0 };
    b->start_ns = clock_ns();
    TAILQ_INIT(&b->slots);
    int rc = batch_set_up(b, err);
    if (rc < 0) {
        batch_free(b);
        return rc;
    }
    batch_look(b);
    timer_start(b->tick, TICK_MS, TICK_MS);
    if (options->timeout > 0)
        timer_start(b->deadline, (uint64_t)(options->timeout * 1000), 0);
    *out = b;
    return 0;
}

/* ---- without waiting ---- */

struct droste_running_batch {
    struct batch batch;
};

int droste_batch_start(droste *d, const droste_batch_options *options,
    const droste_batch_host *host, droste_batch_fn *fn, droste_batch_done_fn *done, void *arg,
    droste_running_batch **out, droste_error *err)
{
    err = api_error(err);
    const struct batch calls = { .fn = fn, .ended = done, .arg = arg };
    struct batch *b = NULL;
    if (!done || (host && !host->start != !host->stop))
        return error_set(err, ERROR_ARGUMENT,
            "a batch needs a callback for its end, and a host starts and stops");
    int rc = batch_start(d, options, host, &calls, &b, err);
    *out = (droste_running_batch *)b;
    return rc;
}

void droste_batch_stop(droste_running_batch *running, const char *stopped, const char *why)
{
    struct error text = { 0 };
    error_set(&text, ERROR_CANCELLED, "%s", why);
    batch_stop(&running->batch, stopped, &text);
}

const droste_batch_state *droste_batch_state_of(droste_running_batch *running)
{
    batch_refresh(&running->batch);
    return &running->batch.state;
}

/* ---- waiting ---- */

struct batch_waiting {
    droste_batch_fn *fn;
    void *arg;
    droste_batch_state end;
    droste_error failed;
    bool done;
};

static void batch_waiting_event(void *arg, const droste_batch_event *event)
{
    struct batch_waiting *w = arg;
    w->end = *event->state;
    if (w->fn)
        w->fn(w->arg, event);
}

static void batch_waiting_done(void *arg, const droste_batch_state *end, const droste_error *err)
{
    struct batch_waiting *w = arg;
    w->end = *end;
    if (err)
        w->failed = *err;
    w->done = true;
}

/* Sets the droste's state while a function waits for a batch. */
static int batch_wait(
    droste *d, const droste_batch_options *options, struct batch_waiting *w, struct error *err)
{
    const struct batch calls = { .fn = batch_waiting_event, .ended = batch_waiting_done, .arg = w };
    struct batch *b = NULL;
    unsigned most = options->concurrency ? options->concurrency : CONCURRENCY;
    int64_t concurrency = d->settings.concurrency;
    /* A run waits for at most one call of its own, and all runs may have one open. */
    if (!settings_is_set(&d->settings, "concurrency") && most > concurrency)
        d->settings.concurrency = most;
    int rc = batch_start(d, options, NULL, &calls, &b, err);
    if (rc == 0) {
        d->on_interrupt = batch_interrupted;
        d->on_interrupt_arg = b;
        rc = api_wait(d, &w->done, err);
    }
    d->on_interrupt = NULL;
    d->settings.concurrency = concurrency;
    if (rc == 0 && w->failed.code)
        rc = error_set(err, (enum error_code)w->failed.code, "%s", w->failed.text);
    return rc;
}

int droste_batch(droste *d, const droste_batch_options *options, droste_batch_fn *fn, void *arg,
    droste_batch_state *end, droste_error *err)
{
    err = api_error(err);
    struct batch_waiting w = { .fn = fn, .arg = arg };
    api_forget_interrupt(d);
    int rc = d->on_interrupt || d->waits
                 ? error_set(err, ERROR_ARGUMENT, "a function waits already in this context")
                 : batch_wait(d, options, &w, err);
    if (end)
        *end = w.end;
    return rc;
}
