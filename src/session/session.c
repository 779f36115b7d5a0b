/* session/session.c: the state machine of one session.
 *
 *   starting ── READY ──► ready; an operation may be under way in both, the guest takes it in turn
 *   idle ── exec, set ──► busy ── RESULT with the operation's id ──► idle
 *   any ── the sandbox ends, breaks the protocol, or is killed at a deadline ──► dead
 *
 * What the guest sends is held against this state in receive.c.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "env/common/embedded.h"
#include "session/internal.h"
#include "session/options.h"
#include "session/template.h"

enum { FORK_SECONDS = 30 }; /* for the guest to copy itself, however large */

/* ---- the end of an operation ---- */

void session_deliver(struct session *s, struct cell_result *r)
{
    session_done_fn *done = s->done;
    timer_stop(s->deadline);
    s->ops->drain(s->sandbox);
    r->out_left_out = capture_take(&s->out, &r->out);
    r->err_left_out = capture_take(&s->err, &r->err);
    r->seconds = clock_seconds_since(s->started_ns);
    r->calls = s->calls;
    r->results = s->results;
    s->results = (struct bundles){ 0 };
    s->ops->usage(s->sandbox, &r->usage);
    if (s->dead)
        session_revive(s, r);
    else
        session_end_cell(s);
    r->alive = !s->dead;
    r->variables = s->variables ? json_object_get(s->variables) : NULL;
    s->operation = 0;
    s->done = NULL;
    done(s->done_arg, r);
}

void session_show(struct session *s)
{
    if (!s->events.display)
        return;
    s->ops->drain(s->sandbox);
    s->events.display(s->arg, s, &s->results);
}

static void sandbox_settled(void *arg)
{
    struct session *s = arg;
    struct cell_result r = s->settled;
    if (!s->settling)
        return;
    s->settling = false;
    session_deliver(s, &r);
}

/* Replaces the result of a cell whose volume could not be written back by that error. */
static void drop_settled(struct session *s)
{
    if (s->settling)
        cell_result_free(&s->settled);
    s->settling = false;
    if (s->fork_failed)
        cell_result_free(&s->fork_failure);
    s->fork_failed = false;
    s->forks_asked = 0;
}

static void sandbox_ended(void *arg, const struct sandbox_exit *how)
{
    struct session *s = arg;
    s->dead = true;
    s->how = *how;
    /* A sandbox that never started is not lost: the environment does not work. */
    if (!s->ready && how->error.code == ERROR_LOST)
        s->how.error.code = ERROR_ENVIRONMENT;
    session_explain_death(s);
    session_service_end(s, &s->death);
    timer_stop(s->lifetime);
    timer_stop(s->partial);
    timer_stop(s->stall);
    session_calls_drop(s);
    drop_settled(s);
    if (!s->operation)
        return;
    struct cell_result r;
    session_death(s, &r);
    session_deliver(s, &r);
}

void session_end_sandbox(struct session *s, const char *killed, const struct error *why)
{
    if (s->dead || s->death.code != ERROR_NONE)
        return;
    s->death = *why;
    snprintf(s->killed, sizeof s->killed, "%s", killed);
    s->ops->kill(s->sandbox);
}

static void sandbox_output(void *arg, int stream, const char *data, size_t len)
{
    struct session *s = arg;
    capture_add(stream == 1 ? &s->out : &s->err, data, len);
    if (s->events.output)
        s->events.output(s->arg, s, stream, data, len);
}

/* ---- operations ---- */

int session_begin(struct session *s, session_done_fn *done, void *arg, struct error *err)
{
    if (s->dead || s->death.code != ERROR_NONE) {
        if (err)
            *err = s->death;
        return -(int)s->death.code;
    }
    if (s->operation || session_is_rolling(s))
        return error_set(err, ERROR_ARGUMENT, "the session is busy with another operation");
    s->operation = ++s->last_id;
    s->is_cell = s->is_numbered = false;
    s->started_ns = clock_ns();
    s->rings = 0;
    s->deadline_passed = s->is_parked = false;
    s->calls = 0;
    s->collects = false;
    s->done = done;
    s->done_arg = arg;
    s->ops->begin_operation(s->sandbox);
    return 0;
}

int session_take_back(struct session *s, int rc)
{
    s->operation = 0;
    s->done = NULL;
    timer_stop(s->deadline);
    return rc;
}

/* How large a memory file the cell may send, and how much memory its sandbox has. The files are
 * charged to the sandbox as long as the host uses them, so together they get a quarter of it. */
static void write_files(struct buf *head, const struct session *s)
{
    uint64_t memory = s->settings.limits.sandbox.memory, most = SESSION_BLOB_MAX;
    uint64_t used = sealed_total_bytes(s->decoder.total);
    if (!(s->ops->traits & TRAIT_MEMFD) || !s->decoder.total)
        return;
    if (memory > 0 && memory / 4 < most)
        most = memory / 4;
    if (used < most)
        buf_printf(head, ",\"files\":[%" PRIu64 ",%" PRIu64 "]", most - used, memory);
}

/* Omits an empty head, so that the guest need not decode it. */
static void write_exec_head(
    struct buf *head, const struct session *s, const struct session_cell *cell)
{
    if (cell->echo)
        buf_puts(head, "{\"echo\":true");
    if (cell->results)
        buf_printf(head, "%s\"results\":%zu", head->len ? "," : "{", s->settings.results_limit);
    if (cell->results && s->settings.result_size < s->settings.results_limit)
        buf_printf(head, ",\"result\":%zu", s->settings.result_size);
    if (cell->results && cell->prints)
        buf_puts(head, ",\"print\":true");
    if (cell->whole_errors)
        buf_printf(head, "%s\"whole\":%zu", head->len ? "," : "{", s->settings.result_size);
    if (cell->tools)
        buf_puts(head, head->len ? ",\"tools\":true" : "{\"tools\":true");
    if (cell->each)
        buf_puts(head, head->len ? ",\"each\":true" : "{\"each\":true");
    if (cell->values) {
        buf_printf(head, "%s\"values\":%u", head->len ? "," : "{", cell->values);
        write_files(head, s);
    }
    if (cell->item)
        buf_puts(head, head->len ? ",\"item\":true" : "{\"item\":true");
    if (cell->only_values)
        buf_puts(head, head->len ? ",\"only\":true" : "{\"only\":true");
    if (cell->script)
        buf_printf(head, "%s\"script\":%s", head->len ? "," : "{", cell->script);
    if (cell->name) {
        buf_puts(head, head->len ? ",\"name\":" : "{\"name\":");
        json_append_string(head, cell->name, strlen(cell->name));
    }
    if (head->len)
        buf_putc(head, '}');
}

int session_exec(struct session *s, const struct session_cell *cell, session_done_fn *done,
    void *arg, struct error *err)
{
    size_t bad = 0;
    if (!text_is_utf8(cell->code, cell->len, &bad))
        return error_set(err, ERROR_ARGUMENT, "the code is not UTF-8 at byte %zu", bad);
    double limit =
        cell->execute_timeout < 0 ? s->settings.limits.execute_timeout : cell->execute_timeout;
    int rc = session_check_timeout(limit, s->settings.execute_timeout_cap, err);
    if (rc == 0)
        rc = session_begin(s, done, arg, err);
    if (rc < 0)
        return rc;
    cleanup_buf struct buf head = { 0 };
    write_exec_head(&head, s, cell);
    s->limit = limit;
    s->is_cell = true;
    s->collects = cell->results;
    s->takes_whole = cell->whole_errors;
    s->results.limit = s->settings.results_limit;
    s->results.each = s->settings.result_size;
    s->describes_tools = cell->tools;
    s->is_numbered = !cell->name;
    session_keep_before_cell(s);
    session_deadline_begin(s);
    struct session_part code = { cell->code, cell->len };
    rc = buf_failed(&head)
             ? error_memory(err)
             : session_send_blob(s, FRAME_EXEC, s->operation, head.data, head.len, &code, 1, err);
    return rc < 0 ? session_take_back(s, rc) : 0;
}

int session_offer(struct session *s, const char *json, size_t len, struct error *err)
{
    if (s->dead || s->death.code != ERROR_NONE)
        return 0; /* the next operation reports the failure */
    return session_send_blob(s, FRAME_OFFER, 0, json, len, NULL, 0, err);
}

int session_expect(struct session *s, struct schema *answer, struct error *err)
{
    cleanup_buf struct buf head = { 0 };
    buf_putc(&head, '{');
    session_write_fields(answer, &head);
    buf_putc(&head, '}');
    if (buf_failed(&head))
        return error_memory(err);
    schema_hold(answer);
    schema_drop(s->settings.answer);
    s->settings.answer = answer;
    return session_offer(s, head.data, head.len, err);
}

static const char *const kind_names[] = {
    [VALUE_TEXT] = "text",
    [VALUE_BYTES] = "bytes",
    [VALUE_AUTO] = "auto",
    [VALUE_JSON] = "json",
    [VALUE_JSONL] = "jsonl",
    [VALUE_TYPED] = "values",
    [VALUE_FILES] = "files",
};

static void write_set_head(
    struct buf *head, const char *const *names, size_t count, enum value_kind kind)
{
    buf_printf(head, "{\"kind\":\"%s\",\"names\":[", kind_names[kind]);
    for (size_t i = 0; i < count; i++) {
        buf_puts(head, i ? "," : "");
        json_append_string(head, names[i], strlen(names[i]));
    }
    buf_puts(head, "]}");
}

int session_set(struct session *s, const char *const *names, size_t name_count,
    enum value_kind kind, const void *data, size_t len, int fd_given, session_done_fn *done,
    void *arg, struct error *err)
{
    cleanup_fd int fd = fd_given;
    cleanup_buf struct buf head = { 0 };
    int rc = session_begin(s, done, arg, err);
    if (rc < 0)
        return rc;
    s->limit = 0;
    write_set_head(&head, names, name_count, kind);
    struct session_part part = { data, len };
    if (buf_failed(&head))
        rc = error_memory(err);
    else if (fd >= 0 && len > 0)
        rc = session_send_memfd(
            s, FRAME_SET, s->operation, head.data, head.len, steal_fd(&fd), len, err);
    else
        rc =
            session_send_blob(s, FRAME_SET, s->operation, head.data, head.len, &part, len > 0, err);
    return rc < 0 ? session_take_back(s, rc) : 0;
}

int session_reply(struct session *s, uint64_t id, struct json_object *head,
    const struct session_part *parts, size_t count, struct error *err)
{
    size_t head_len = 0;
    size_t total = 0;
    for (size_t i = 0; i < count; i++)
        total += parts[i].len;
    if (!s->dead && session_flow_check(s, total, err) < 0)
        return -(int)ERROR_BUDGET;
    if (s->dead || !session_call_close(s, id))
        return 0;
    cleanup_buf struct buf blob = { 0 };
    cleanup_free size_t *lengths = malloc((count + 1) * sizeof *lengths);
    if (!lengths)
        return error_memory(err);
    for (size_t i = 0; i < count; i++)
        lengths[i] = parts[i].len;
    frame_parts_begin(&blob, lengths, count);
    for (size_t i = 0; i < count; i++)
        buf_append(&blob, parts[i].data, parts[i].len);
    const char *text = head ? json_text(head, &head_len) : "";
    if (buf_failed(&blob) || !text)
        return error_memory(err);
    struct session_part part = { blob.data, blob.len };
    int rc = session_send_blob(s, FRAME_REPLY, id, text, head_len, &part, 1, err);
    session_flow_sent(s);
    return rc;
}

/* ---- opening and closing ---- */

static int session_greet(struct session *s, const struct session_options *o,
    const struct egress_grant *grant, struct error *err)
{
    cleanup_buf struct buf head = { 0 }, variables = { 0 };
    struct session_part rules_source = { (const char *)embedded_rules, embedded_rules_size };
    session_write_hello(o, grant, session_volume(s), session_workspace(s), &head);
    s->directory = session_directory(o, session_workspace(s));
    session_write_variables(o, grant, &variables);
    if (buf_failed(&head) || buf_failed(&variables))
        return error_memory(err);
    s->variables_head = variables.len > 0 ? buf_steal(&variables) : NULL;
    return session_send_blob(s, FRAME_HELLO, 0, head.data, head.len, &rules_source, o->rules, err);
}

void session_tell_finished(struct session *s, const struct error *why)
{
    session_finished_fn *done = s->finished;
    s->finished = NULL;
    if (done)
        done(s->finished_arg, why);
}

static void sandbox_finished(void *arg, const struct error *why)
{
    session_tell_finished(arg, why);
}

static bool sandbox_request(void *arg, const struct egress_request *request)
{
    struct session *s = arg;
    return !s->events.request || s->events.request(s->arg, s, request);
}

static bool sandbox_approve(void *arg, struct droste_network_request *request)
{
    struct session *s = arg;
    return s->events.approve && s->events.approve(s->arg, s, request);
}

static const struct sandbox_events sandbox_handlers = { session_receive, sandbox_output,
    sandbox_ended, sandbox_settled, session_room, sandbox_finished, session_take_fd,
    sandbox_request, sandbox_approve };

/* A session without a sandbox. */
static struct session *session_new(struct environment *env, const struct session_settings *settings,
    const struct session_events *events, void *arg)
{
    struct session *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->env = env;
    s->ops = environment_ops_of(env);
    s->settings = *settings;
    s->settings.answer = schema_hold(settings->answer);
    s->out.limit = s->err.limit = settings->limits.output;
    s->events = *events;
    s->arg = arg;
    struct loop *loop = ((struct environment_base *)s->env)->loop;
    session_receive_begin(s);
    s->deadline = timer_new(loop, session_deadline_reached, s);
    s->lifetime = timer_new(loop, session_lifetime_over, s);
    s->partial = timer_new(loop, session_partial_too_long, s);
    s->stall = timer_new(loop, session_stalled, s);
    if (s->deadline && s->lifetime && s->partial && s->stall)
        return s;
    session_close(s);
    return NULL;
}

void session_begin_life(struct session *s)
{
    s->life_over = false;
    s->life_ends_ns = s->settings.limits.timeout > 0
                          ? clock_ns() + (uint64_t)(s->settings.limits.timeout * 1e9)
                          : 0;
    session_continue_life(s);
}

void session_continue_life(struct session *s)
{
    uint64_t now_ns = clock_ns();
    if (s->life_ends_ns > 0)
        timer_start(s->lifetime,
            s->life_ends_ns > now_ns ? (s->life_ends_ns - now_ns + 999999) / 1000000 : 0, 0);
}

/* Starts its sandbox, with a grant of its own to the network. */
static int session_start(struct session *s, const struct session_options *o, struct error *err)
{
    struct sandbox_spec spec = o->spec;
    int rc = egress_grant_new(spec.egress, &spec.grant, err);
    if (rc == 0)
        rc = s->ops->open(s->env, &spec, &sandbox_handlers, s, &s->sandbox, err);
    if (rc == 0) {
        s->late = s->ops->traits & TRAIT_LATE || (s->ops->waits && s->ops->waits(s->sandbox));
        if (o->template)
            rc = session_restore(s, o->template, err);
    }
    if (rc == 0)
        rc = session_greet(s, o, spec.grant, err);
    egress_grant_release(spec.grant);
    return rc;
}

int session_open(struct environment *env, const struct session_options *options,
    const struct session_events *events, void *arg, struct session **out, struct error *err)
{
    if (session_check_timeout(options->execute_timeout, options->execute_timeout_cap, err) < 0)
        return -(int)ERROR_ARGUMENT;
    int rc = environment_check(env, &options->spec, err);
    if (rc == 0 && environment_ops_of(env)->about)
        rc = session_check_custom(options, environment_ops_of(env)->name, err);
    const struct session_settings settings = {
        .limits = { options->spec.limits, options->timeout, options->execute_timeout,
            options->output_limit },
        .execute_timeout_cap = options->execute_timeout_cap,
        .grace = options->grace,
        .stall_limit = options->stall,
        .results_limit = options->results_limit,
        .result_size = options->result_size,
        .answer = options->answer,
        .keeps = options->checkpoint_each,
        .checkpoint_memory = options->checkpoint_memory,
    };
    if (rc == 0 && options->checkpoint_each && !environment_ops_of(env)->fork)
        return error_set(err, ERROR_UNSUPPORTED,
            "--checkpoint auto: the environment '%s' cannot fork sessions; local sandboxes can",
            environment_ops_of(env)->name);
    struct session *s = rc == 0 ? session_new(env, &settings, events, arg) : NULL;
    if (!s)
        return rc < 0 ? rc : error_memory(err);
    rc = session_start(s, options, err);
    if (rc < 0) {
        session_close(s);
        return rc;
    }
    session_begin_life(s);
    *out = s;
    return 0;
}

/* ---- forks ---- */

int session_ask_fork(struct session *s, struct session *fork, uint64_t id, const char *head,
    size_t head_len, struct error *err)
{
    unsigned char header[FRAME_HEADER_SIZE];
    struct frame frame = { .type = FRAME_FORK, .flags = FRAME_FD, .id = id, .head_len = head_len };
    struct iovec iov[] = { { header, sizeof header }, { (void *)(uintptr_t)head, head_len } };
    frame_write_header(header, &frame);
    return s->ops->fork(
        s->sandbox, iov, array_length(iov), &sandbox_handlers, fork, &fork->sandbox, err);
}

struct session *session_new_fork(
    const struct session *s, const struct session_events *events, void *arg)
{
    struct session *fork = session_new(s->env, &s->settings, events, arg);
    if (!fork)
        return NULL;
    fork->last_id = s->last_id; /* cells keep numbers that are unique in tracebacks */
    fork->last_cell = s->last_cell;
    fork->variables = s->variables ? json_object_get(s->variables) : NULL;
    fork->directory = s->directory ? strdup(s->directory) : NULL;
    fork->variables_head = s->variables_head ? strdup(s->variables_head) : NULL;
    if (!s->directory == !fork->directory && !s->variables_head == !fork->variables_head)
        return fork;
    session_close(fork);
    return NULL;
}

int session_make_fork(struct session *s, uint64_t operation, const struct session_events *events,
    void *events_arg, struct session **out, struct error *err)
{
    struct session *fork = session_new_fork(s, events, events_arg);
    int rc = fork ? session_ask_fork(s, fork, operation, NULL, 0, err) : error_memory(err);
    if (rc < 0)
        session_close(fork);
    else
        *out = fork;
    return rc;
}

int session_fork(struct session *s, const struct session_events *events, void *events_arg,
    session_done_fn *done, void *arg, struct session **out, struct error *err)
{
    if (!s->ops->fork)
        return error_set(err, ERROR_UNSUPPORTED,
            "the environment '%s' cannot fork sessions; local sandboxes can", s->ops->name);
    bool joins = s->forks_asked > 0 && s->done == done && s->done_arg == arg;
    int rc = joins ? 0 : session_begin(s, done, arg, err);
    if (rc < 0)
        return rc;
    rc = session_make_fork(s, s->operation, events, events_arg, out, err);
    if (rc < 0)
        return joins ? rc : session_take_back(s, rc);
    s->forks_asked++;
    session_begin_life(*out);
    if (joins)
        return 0;
    s->limit = FORK_SECONDS;
    session_deadline_begin(s);
    return 0;
}

bool session_finish(struct session *s, session_finished_fn *done, void *arg)
{
    if (s->finished || !s->ops->finish || !s->ops->finish(s->sandbox))
        return false;
    s->finished = done;
    s->finished_arg = arg;
    if (!s->dead && s->death.code == ERROR_NONE)
        error_set(&s->death, ERROR_LOST, "the session was ended");
    session_service_free(s);
    s->dead = true;
    s->operation = 0;
    s->done = NULL;
    timer_stop(s->deadline);
    timer_stop(s->lifetime);
    timer_stop(s->partial);
    drop_settled(s);
    bundles_free(&s->results);
    session_calls_drop(s);
    return true;
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
    drop_settled(s);
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

void session_hand_over(struct session *s, void *arg)
{
    s->arg = arg;
}

bool session_is_late(const struct session *s)
{
    return s->late && !s->ready;
}

bool session_is_alive(const struct session *s)
{
    return !s->dead && s->death.code == ERROR_NONE;
}

const bool *session_is_ready(const struct session *s)
{
    return &s->ready;
}

enum isolation session_isolation(const struct session *s)
{
    return s->ops->isolation(s->sandbox);
}

const char *session_volume(const struct session *s)
{
    return s->sandbox && s->ops->volume ? s->ops->volume(s->sandbox) : NULL;
}

const char *session_workspace(const struct session *s)
{
    return s->sandbox && s->ops->workspace ? s->ops->workspace(s->sandbox) : NULL;
}

const char *session_sandbox_id(const struct session *s)
{
    return s->sandbox && s->ops->id ? s->ops->id(s->sandbox) : NULL;
}

const char *session_about(const struct session *s)
{
    return s->ops->about ? s->ops->about(s->env) : NULL;
}

bool session_figures(const struct session *s, struct sandbox_figures *out)
{
    return s->sandbox && s->ops->figures && s->ops->figures(s->sandbox, out);
}

uint64_t session_busy_ns(const struct session *s)
{
    return s->sandbox && s->ops->busy_ns ? s->ops->busy_ns(s->sandbox) : 0;
}

void session_charge(struct session *s, uint64_t ns)
{
    if (!s->dead && s->sandbox && s->ops->charge)
        s->ops->charge(s->sandbox, ns);
}

const struct session_limits *session_limits_of(const struct session *s)
{
    return &s->settings.limits;
}

void session_describe(const struct session *s, struct buf *out)
{
    if (s->ops->describe)
        s->ops->describe(s->env, s->sandbox, out);
}
