/* session/session.c: the state machine of one session.
 *
 *   starting ── READY ──► ready; an operation may be under way in both, the guest takes it in turn
 *   idle ── exec, set ──► busy ── RESULT with the operation's id ──► idle
 *   any ── the sandbox ends, breaks the protocol, or is killed at a deadline ──► dead
 *
 * What the guest sends is checked against this state: READY once and first, RESULT only for the
 * operation under way, CALL with an id that is not open. Anything else ends the sandbox.
 */
#include "session/session.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/text.h"
#include "env/embedded.h"
#include "session/answer.h"
#include "session/capture.h"
#include "session/options.h"

enum {
    CALLS_MAX = 16384,        /* open at once */
    PARTS_MAX = 1000000,      /* of one call */
    RESULT_PARTS_MAX = 16,    /* of one result */
    PARTIAL_FRAME_MS = 30000, /* a frame that has begun must be complete by then */
    HEAD_MAX = 2 << 20,
};

struct session {
    struct environment *env;
    const struct environment_ops *ops;
    struct sandbox *sandbox;
    struct session_events events;
    void *arg;
    struct session_limits limits;
    double execute_timeout_cap, grace;
    struct schema *answer; /* NULL: any */

    bool ready, dead;
    struct error death; /* why, once dead */
    char killed[64];    /* by what the host ended it, "" if it did not */
    struct sandbox_exit how;
    struct frame_decoder decoder;

    /* the operation under way */
    uint64_t operation; /* its id, 0: none */
    uint64_t last_id;
    uint64_t started_ns;
    double limit;   /* seconds of this operation, 0: none */
    unsigned rings; /* how often it was interrupted */
    bool deadline_passed;
    unsigned calls;
    session_done_fn *done;
    void *done_arg;
    struct capture out, err;

    struct json_object *variables;
    uint64_t *open_calls;
    size_t open_count, open_cap;
    struct timer *deadline, *lifetime, *partial;
    bool partial_running;
};

static const char *const status_names[] = { "ok", "submitted", "error", "timeout", "killed",
    "lost" };

const char *cell_status_name(enum cell_status status)
{
    return status_names[status];
}

void cell_result_free(struct cell_result *r)
{
    buf_free(&r->out);
    buf_free(&r->err);
    free(r->submit);
    free(r->echo);
    free(r->error.type);
    free(r->error.message);
    free(r->error.traceback);
    json_object_put(r->variables);
    json_object_put(r->variable);
    *r = (struct cell_result){ 0 };
}

/* ---- frames to the guest ---- */

static int send_frame(struct session *s, uint8_t type, uint64_t id, const char *head,
    size_t head_len, const struct session_part *blob, size_t blob_parts, struct error *err)
{
    unsigned char header[FRAME_HEADER_SIZE];
    struct iovec iov[4] = { { header, sizeof header }, { (void *)(uintptr_t)head, head_len } };
    struct frame frame = { .type = type, .id = id, .head_len = head_len };
    int count = 2;
    for (size_t i = 0; i < blob_parts; i++) {
        frame.blob_len += blob[i].len;
        iov[count++] = (struct iovec){ (void *)(uintptr_t)blob[i].data, blob[i].len };
    }
    frame_write_header(header, &frame);
    return s->ops->send(s->sandbox, iov, count, -1, err);
}

/* The blob is in a sealed memfd, which is taken. */
static int send_memfd(struct session *s, uint8_t type, uint64_t id, const char *head,
    size_t head_len, int fd, size_t len, struct error *err)
{
    unsigned char header[FRAME_HEADER_SIZE];
    struct frame frame = {
        .type = type, .flags = FRAME_FD, .id = id, .head_len = head_len, .blob_len = len
    };
    struct iovec iov[2] = { { header, sizeof header }, { (void *)(uintptr_t)head, head_len } };
    frame_write_header(header, &frame);
    return s->ops->send(s->sandbox, iov, 2, fd, err);
}

static int seal_parts(const struct session_part *parts, size_t count, struct error *err)
{
    cleanup_fd int fd = file_memfd("droste-value", err);
    if (fd < 0)
        return fd;
    for (size_t i = 0; i < count; i++)
        if (file_write_all(fd, parts[i].data, parts[i].len) < 0)
            return error_set_errno(err, ERROR_IO, "writing a value for the guest");
    int rc = file_memfd_seal(fd, err);
    return rc < 0 ? rc : steal_fd(&fd);
}

/* Sends a blob the way that suits its size: in the stream, or in a memfd. */
static int send_blob(struct session *s, uint8_t type, uint64_t id, const char *head,
    size_t head_len, const struct session_part *blob, size_t parts, struct error *err)
{
    size_t total = 0;
    for (size_t i = 0; i < parts; i++)
        total += blob[i].len;
    if (total <= FRAME_MEMFD_MIN || !(s->ops->powers & POWER_MEMFD))
        return send_frame(s, type, id, head, head_len, blob, parts, err);
    int fd = seal_parts(blob, parts, err);
    return fd < 0 ? fd : send_memfd(s, type, id, head, head_len, fd, total, err);
}

/* ---- the end of an operation ---- */

/* Hands the result over; the session is idle (or dead) before the receiver hears of it. */
static void deliver(struct session *s, struct cell_result *r)
{
    session_done_fn *done = s->done;
    timer_stop(s->deadline);
    s->ops->drain(s->sandbox);
    r->out_left_out = capture_take(&s->out, &r->out);
    r->err_left_out = capture_take(&s->err, &r->err);
    r->seconds = clock_seconds_since(s->started_ns);
    r->calls = s->calls;
    r->alive = !s->dead;
    s->ops->usage(s->sandbox, &r->usage);
    r->variables = s->variables ? json_object_get(s->variables) : NULL;
    s->operation = 0;
    s->done = NULL;
    done(s->done_arg, r);
}

static void name_signal(int signal, char *out, size_t size)
{
    const char *name = sigabbrev_np(signal);
    snprintf(out, size, "signal %d%s%s", signal, name ? " SIG" : "", name ? name : "");
}

/* The limit that the kernel enforced by ending the worker; LIMIT_NONE: none of them. */
static enum limit limit_that_ended(const struct session *s, const struct sandbox_usage *usage)
{
    static const struct {
        int signal;
        enum limit limit;
    } signals[] = { { SIGXCPU, LIMIT_CPU_TIME }, { SIGXFSZ, LIMIT_FILE_SIZE } };
    const struct sandbox_exit *how = &s->how;
    if (how->limit != LIMIT_NONE || !how->known || !WIFSIGNALED(how->wait_status))
        return how->limit;
    int signal = WTERMSIG(how->wait_status);
    for (size_t i = 0; i < array_length(signals); i++)
        if (signals[i].signal == signal && usage->means[signals[i].limit] != LIMIT_BY_NOTHING)
            return signals[i].limit;
    /* Who ignores SIGXCPU is killed a second later. */
    double cpu_time = limit_value(LIMIT_CPU_TIME, &s->limits.sandbox);
    bool spent = signal == SIGKILL && cpu_time > 0 && usage->cpu_seconds >= cpu_time;
    return spent ? LIMIT_CPU_TIME : LIMIT_NONE;
}

/* True if a limit has ended it: then that is said, and what raises it. */
static bool explain_limit(struct session *s)
{
    struct sandbox_usage usage;
    cleanup_buf struct buf value = { 0 };
    s->ops->usage(s->sandbox, &usage);
    enum limit limit = limit_that_ended(s, &usage);
    if (limit == LIMIT_NONE)
        return false;
    limit_print(limit, &s->limits.sandbox, &value);
    snprintf(s->killed, sizeof s->killed, "%s", limit_name(limit));
    error_set(&s->death, ERROR_LOST,
        "%s reached the limit of %s (%s) and was killed; its variables are gone; --%s raises it",
        usage.means[limit] == LIMIT_BY_CGROUP ? "the sandbox as a whole" : "the guest's process",
        limit_name(limit), buf_text(&value), limit_option(limit));
    return true;
}

/* Why the sandbox is gone, for the result of the operation that it took along and for later ones. */
static void explain_death(struct session *s)
{
    const struct sandbox_exit *how = &s->how;
    if (s->death.code != ERROR_NONE)
        return;
    if (how->error.code != ERROR_NONE) {
        s->death = how->error;
        return;
    }
    if (explain_limit(s))
        return;
    if (how->known && WIFSIGNALED(how->wait_status)) {
        name_signal(WTERMSIG(how->wait_status), s->killed, sizeof s->killed);
        error_set(&s->death, ERROR_LOST, "the guest's process died of %s; its variables are gone",
            s->killed);
    } else if (how->known) {
        snprintf(s->killed, sizeof s->killed, "exit %d", WEXITSTATUS(how->wait_status));
        error_set(&s->death, ERROR_LOST,
            "the guest's process ended itself with status %d; its variables are gone",
            WEXITSTATUS(how->wait_status));
    } else {
        error_set(&s->death, ERROR_LOST, "the sandbox is gone; what the cell did is not known");
    }
}

static void drop_calls(struct session *s)
{
    while (s->open_count > 0) {
        uint64_t id = s->open_calls[--s->open_count];
        s->events.call_dropped(s->arg, s, id);
    }
}

void session_death(const struct session *s, struct cell_result *out)
{
    *out = (struct cell_result){ .status = s->killed[0] ? CELL_KILLED : CELL_LOST,
        .reason = s->death };
    snprintf(out->killed, sizeof out->killed, "%s", s->killed);
    if (s->death.code == ERROR_TIMEOUT)
        out->status = CELL_TIMEOUT;
}

static void sandbox_ended(void *arg, const struct sandbox_exit *how)
{
    struct session *s = arg;
    s->dead = true;
    s->how = *how;
    explain_death(s);
    timer_stop(s->lifetime);
    timer_stop(s->partial);
    drop_calls(s);
    if (!s->operation)
        return;
    struct cell_result r;
    session_death(s, &r);
    deliver(s, &r);
}

/* The host ends the sandbox; `ended` follows and tells. */
static void end_sandbox(struct session *s, const char *killed, const struct error *why)
{
    if (s->dead || s->death.code != ERROR_NONE)
        return;
    s->death = *why;
    snprintf(s->killed, sizeof s->killed, "%s", killed);
    s->ops->kill(s->sandbox);
}

/* ---- frames from the guest ---- */

static char *copy_member(struct json_object *o, const char *key)
{
    const char *text = json_get_string(o, key, NULL);
    return text ? strdup(text) : NULL;
}

static void take_error(struct json_object *head, struct cell_error *error)
{
    struct json_object *e = json_get_typed(head, "error", json_type_object);
    if (!e)
        return;
    error->type = copy_member(e, "type");
    error->message = copy_member(e, "message");
    error->traceback = copy_member(e, "traceback");
}

static void set_cell_error(struct cell_error *error, const char *type, const char *message)
{
    free(error->type);
    free(error->message);
    error->type = strdup(type);
    error->message = strdup(message);
}

/* The part with the index that the head gives under `key`, copied. */
static char *take_part(struct json_object *head, const char *key, const struct frame *frame,
    size_t *len, struct error *err)
{
    struct frame_parts parts;
    const char *data;
    int64_t index = json_get_int(head, key, -1);
    if (index < 0 ||
        frame_parts_open(frame->blob, frame->blob_len, RESULT_PARTS_MAX, &parts, err) < 0)
        return NULL;
    for (int64_t i = 0; frame_parts_next(&parts, &data, len); i++)
        if (i == index)
            return text_copy(data, *len);
    return NULL;
}

/* A part as text: the guest sends UTF-8, but a guest may send anything. */
static char *take_text(struct json_object *head, const char *key, const struct frame *frame)
{
    cleanup_buf struct buf text = { 0 };
    size_t len = 0;
    cleanup_free char *part = take_part(head, key, frame, &len, NULL);
    if (!part)
        return NULL;
    text_append_utf8(&text, part, len);
    return buf_steal(&text);
}

/* What was submitted must be an object of strict JSON, and of the type that was asked for; else it is
 * the cell's error. */
static void take_submit(
    struct session *s, struct json_object *head, const struct frame *frame, struct cell_result *r)
{
    struct error why = { 0 };
    char text[sizeof why.text + 80];
    r->submit = take_part(head, "submitted", frame, &r->submit_len, NULL);
    if (!r->submit)
        return;
    int rc = json_check(r->submit, r->submit_len, &json_limits_large, &why);
    bool object = rc == 0 && r->submit[0] == '{';
    if (object && s->answer)
        rc = answer_check(s->answer, r->submit, r->submit_len, &why);
    if (object && rc == 0) {
        r->status = CELL_SUBMITTED;
        return;
    }
    free(steal(&r->submit));
    r->status = CELL_ERROR;
    if (object) {
        snprintf(text, sizeof text, "the answer was not taken, it does not fit its schema: %s",
            why.text);
        set_cell_error(&r->error, "AnswerError", text);
        free(r->error.traceback);
        r->error.traceback = strdup(text);
        return;
    }
    set_cell_error(&r->error, "ValueError", rc < 0 ? why.text : "SUBMIT takes an object");
}

/* The status that the host gives, from what the guest says and what the host did. */
static void judge(struct session *s, struct json_object *head, struct cell_result *r)
{
    const char *status = json_get_string(head, "status", "");
    r->status = strcmp(status, "ok") == 0 ? CELL_OK : CELL_ERROR;
    if (!s->deadline_passed)
        return;
    char text[160];
    snprintf(text, sizeof text,
        "the cell ran longer than %g s and was interrupted; its variables are kept", s->limit);
    set_cell_error(&r->error, "TimeoutError", text);
    r->status = CELL_TIMEOUT;
}

static bool is_known_status(const char *status)
{
    static const char *const known[] = { "ok", "error", "interrupted" };
    for (size_t i = 0; status && i < array_length(known); i++)
        if (strcmp(status, known[i]) == 0)
            return true;
    return false;
}

/* A result says a known status, and the parts that it names are there. */
static int check_result(struct json_object *head, const struct frame *frame, struct error *err)
{
    struct frame_parts parts = { 0 };
    if (!json_object_is_type(head, json_type_object) ||
        !is_known_status(json_get_string(head, "status", NULL)))
        return error_set(err, ERROR_PROTOCOL, "a result without a known status");
    if (frame->blob_len > 0 &&
        frame_parts_open(frame->blob, frame->blob_len, RESULT_PARTS_MAX, &parts, err) < 0)
        return -1;
    int64_t count = (int64_t)parts.count;
    if (json_get_int(head, "submitted", -1) >= count || json_get_int(head, "echo", -1) >= count)
        return error_set(err, ERROR_PROTOCOL, "a result names a part that is not there");
    return 0;
}

static int on_result(struct session *s, const struct frame *frame, struct error *err)
{
    cleanup_json struct json_object *head = NULL;
    if (!s->ready || !s->operation || frame->id != s->operation)
        return error_set(err, ERROR_PROTOCOL, "a result for an operation that is not under way");
    int rc = json_parse(frame->head, frame->head_len, &json_limits_small, &head, err);
    if (rc == 0)
        rc = check_result(head, frame, err);
    if (rc < 0)
        return rc;
    struct cell_result r = { 0 };
    take_error(head, &r.error);
    judge(s, head, &r);
    take_submit(s, head, frame, &r);
    r.echo = take_text(head, "echo", frame);
    struct json_object *variables = json_get_typed(head, "variables", json_type_array);
    if (variables) {
        json_object_put(s->variables);
        s->variables = json_object_get(variables);
    }
    struct json_object *variable = json_get_typed(head, "variable", json_type_object);
    r.variable = variable ? json_object_get(variable) : NULL;
    deliver(s, &r);
    return 0;
}

static int on_ready(struct session *s, const struct frame *frame, struct error *err)
{
    if (s->ready)
        return error_set(err, ERROR_PROTOCOL, "a second READY");
    s->ready = true;
    return 0;
}

static size_t find_call(const struct session *s, uint64_t id)
{
    size_t i = 0;
    while (i < s->open_count && s->open_calls[i] != id)
        i++;
    return i;
}

static int remember_call(struct session *s, uint64_t id, struct error *err)
{
    if (s->open_count >= CALLS_MAX || find_call(s, id) < s->open_count)
        return error_set(err, ERROR_PROTOCOL, "call %llu is open already, or too many are",
            (unsigned long long)id);
    if (s->open_count == s->open_cap) {
        size_t cap = s->open_cap ? 2 * s->open_cap : 16;
        uint64_t *calls = realloc(s->open_calls, cap * sizeof *calls);
        if (!calls)
            return error_memory(err);
        s->open_calls = calls;
        s->open_cap = cap;
    }
    s->open_calls[s->open_count++] = id;
    return 0;
}

static int on_call(struct session *s, const struct frame *frame, struct error *err)
{
    cleanup_json struct json_object *head = NULL;
    struct session_call call = { .id = frame->id };
    if (!s->ready)
        return error_set(err, ERROR_PROTOCOL, "a call before READY");
    int rc = json_parse(frame->head, frame->head_len, &json_limits_small, &head, err);
    if (rc == 0 && !json_object_is_type(head, json_type_object))
        rc = error_set(err, ERROR_PROTOCOL, "a call's head is no object");
    if (rc == 0)
        rc = frame_parts_open(frame->blob, frame->blob_len, PARTS_MAX, &call.parts, err);
    if (rc == 0)
        rc = remember_call(s, frame->id, err);
    if (rc < 0)
        return rc;
    s->calls++;
    call.head = head;
    s->events.call(s->arg, s, &call);
    return 0;
}

/* The answer may be on its way already: then there is nothing left to cancel. */
static int on_cancel(struct session *s, const struct frame *frame, struct error *err)
{
    size_t i = find_call(s, frame->id);
    if (!s->ready)
        return error_set(err, ERROR_PROTOCOL, "a call is cancelled before READY");
    if (i == s->open_count)
        return 0;
    s->open_calls[i] = s->open_calls[--s->open_count];
    s->events.call_dropped(s->arg, s, frame->id);
    return 0;
}

static const struct {
    uint8_t type;
    int (*handle)(struct session *s, const struct frame *frame, struct error *err);
} handlers[] = {
    { FRAME_READY, on_ready },
    { FRAME_CALL, on_call },
    { FRAME_RESULT, on_result },
    { FRAME_CANCEL, on_cancel },
};

static const struct frame_rule rules[] = {
    { FRAME_READY, 4096, 0 },
    { FRAME_CALL, HEAD_MAX, 256u << 20 },
    { FRAME_RESULT, HEAD_MAX, 256u << 20 },
    { FRAME_CANCEL, 0, 0 },
};

static int on_frame(void *arg, const struct frame *frame, struct error *err)
{
    struct session *s = arg;
    if (s->dead || s->death.code != ERROR_NONE)
        return 0; /* it is being ended; nothing that it still says counts */
    for (size_t i = 0; i < array_length(handlers); i++)
        if (handlers[i].type == frame->type)
            return handlers[i].handle(s, frame, err);
    return error_set(err, ERROR_PROTOCOL, "frame of unexpected type %u", frame->type);
}

static void watch_partial(struct session *s)
{
    bool partial = frame_is_partial(&s->decoder);
    if (partial == s->partial_running)
        return;
    s->partial_running = partial;
    if (partial)
        timer_start(s->partial, PARTIAL_FRAME_MS, 0);
    else
        timer_stop(s->partial);
}

static bool sandbox_bytes(void *arg, const char *data, size_t len)
{
    struct session *s = arg;
    struct error err = { 0 };
    if (s->death.code != ERROR_NONE)
        return true;
    if (frame_feed(&s->decoder, data, len, on_frame, s, &err) < 0) {
        error_wrap(&err, "the guest broke the protocol and was ended");
        end_sandbox(s, "protocol", &err);
        return true;
    }
    if (!s->dead)
        watch_partial(s);
    return frame_is_partial(&s->decoder);
}

static void partial_too_long(void *arg)
{
    struct session *s = arg;
    struct error why = { 0 };
    error_set(&why, ERROR_PROTOCOL,
        "the guest began a message and did not end it within %d s, and was ended",
        PARTIAL_FRAME_MS / 1000);
    end_sandbox(s, "protocol", &why);
}

static void sandbox_output(void *arg, int stream, const char *data, size_t len)
{
    struct session *s = arg;
    capture_add(stream == 1 ? &s->out : &s->err, data, len);
    if (s->events.output)
        s->events.output(s->arg, s, stream, data, len);
}

/* ---- deadlines ---- */

/* Twice within the grace: Python drops an exception that a signal raises inside a destructor or a
 * callback of a weak reference. A cell that caught the first one is hit by the second. */
enum { RINGS = 2 };

static void ring(struct session *s)
{
    s->rings++;
    send_frame(s, FRAME_INTERRUPT, s->operation, "", 0, NULL, 0, NULL);
    s->ops->interrupt(s->sandbox);
    timer_start(s->deadline, (uint64_t)(s->grace * 1000 / RINGS), 0);
}

static void deadline_reached(void *arg)
{
    struct session *s = arg;
    struct error why = { 0 };
    if (!s->operation)
        return;
    if (s->rings < RINGS) {
        s->deadline_passed = s->deadline_passed || s->rings == 0;
        ring(s);
        return;
    }
    if (s->deadline_passed)
        error_set(&why, ERROR_TIMEOUT,
            "the cell ran longer than %g s, did not stop within %g s of the interrupt, and was "
            "killed; its variables are gone",
            s->limit, s->grace);
    else
        error_set(&why, ERROR_CANCELLED,
            "the cell did not stop within %g s of the interrupt and was killed; its variables are "
            "gone",
            s->grace);
    end_sandbox(s, s->deadline_passed ? "timeout" : "interrupt", &why);
}

static void lifetime_over(void *arg)
{
    struct session *s = arg;
    struct error why = { 0 };
    error_set(&why, ERROR_TIMEOUT,
        "the session reached the end of its time and was killed; its variables are gone");
    end_sandbox(s, "timeout", &why);
}

void session_interrupt(struct session *s)
{
    if (s->operation && s->rings == 0 && !s->dead)
        ring(s);
}

/* ---- operations ---- */

static int begin(struct session *s, session_done_fn *done, void *arg, struct error *err)
{
    if (s->dead || s->death.code != ERROR_NONE) {
        if (err)
            *err = s->death;
        return -(int)s->death.code;
    }
    if (s->operation)
        return error_set(err, ERROR_ARGUMENT, "the session is busy with another operation");
    s->operation = ++s->last_id;
    s->started_ns = clock_ns();
    s->rings = 0;
    s->deadline_passed = false;
    s->calls = 0;
    s->done = done;
    s->done_arg = arg;
    s->ops->attend(s->sandbox);
    return 0;
}

/* The operation could not be sent: it never began. */
static int take_back(struct session *s, int rc)
{
    s->operation = 0;
    s->done = NULL;
    timer_stop(s->deadline);
    return rc;
}

/* Nothing where there is nothing to say: the guest need not decode it. */
static void write_exec_head(struct buf *head, const struct session_cell *cell)
{
    if (cell->echo)
        buf_puts(head, "{\"echo\":true");
    if (cell->tools)
        buf_puts(head, head->len ? ",\"tools\":true" : "{\"tools\":true");
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
    double limit = cell->execute_timeout < 0 ? s->limits.execute_timeout : cell->execute_timeout;
    int rc = session_check_timeout(limit, s->execute_timeout_cap, err);
    if (rc == 0)
        rc = begin(s, done, arg, err);
    if (rc < 0)
        return rc;
    cleanup_buf struct buf head = { 0 };
    write_exec_head(&head, cell);
    s->limit = limit;
    if (s->limit > 0)
        timer_start(s->deadline, (uint64_t)(s->limit * 1000 + 0.5), 0);
    struct session_part code = { cell->code, cell->len };
    rc = buf_failed(&head)
             ? error_memory(err)
             : send_blob(s, FRAME_EXEC, s->operation, head.data, head.len, &code, 1, err);
    return rc < 0 ? take_back(s, rc) : 0;
}

static const char *const kind_names[] = {
    [VALUE_TEXT] = "text",
    [VALUE_BYTES] = "bytes",
    [VALUE_AUTO] = "auto",
    [VALUE_JSON] = "json",
    [VALUE_JSONL] = "jsonl",
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
    int rc = begin(s, done, arg, err);
    if (rc < 0)
        return rc;
    s->limit = 0;
    write_set_head(&head, names, name_count, kind);
    struct session_part part = { data, len };
    if (buf_failed(&head))
        rc = error_memory(err);
    else if (fd >= 0 && len > 0)
        rc = send_memfd(s, FRAME_SET, s->operation, head.data, head.len, steal_fd(&fd), len, err);
    else
        rc = send_blob(s, FRAME_SET, s->operation, head.data, head.len, &part, len > 0, err);
    return rc < 0 ? take_back(s, rc) : 0;
}

int session_reply(struct session *s, uint64_t id, struct json_object *head,
    const struct session_part *parts, size_t count, struct error *err)
{
    size_t at = find_call(s, id), head_len = 0;
    if (s->dead || at == s->open_count)
        return 0;
    s->open_calls[at] = s->open_calls[--s->open_count];
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
    return send_blob(s, FRAME_REPLY, id, text, head_len, &part, 1, err);
}

/* ---- opening and closing ---- */

static int greet(struct session *s, const struct session_options *o, struct error *err)
{
    cleanup_buf struct buf head = { 0 };
    struct session_part rules_source = { (const char *)embedded_rules, embedded_rules_size };
    session_write_hello(o, &head);
    if (buf_failed(&head))
        return error_memory(err);
    return send_blob(s, FRAME_HELLO, 0, head.data, head.len, &rules_source, o->rules, err);
}

static const struct sandbox_events sandbox_handlers = { sandbox_bytes, sandbox_output,
    sandbox_ended };

int session_open(struct environment *env, const struct session_options *options,
    const struct session_events *events, void *arg, struct session **out, struct error *err)
{
    struct loop *loop = ((struct environment_base *)env)->loop;
    if (session_check_timeout(options->execute_timeout, options->execute_timeout_cap, err) < 0)
        return -(int)ERROR_ARGUMENT;
    struct session *s = calloc(1, sizeof *s);
    if (!s)
        return error_memory(err);
    *s = (struct session){
        .env = env,
        .ops = environment_ops_of(env),
        .events = *events,
        .arg = arg,
        .execute_timeout_cap = options->execute_timeout_cap,
        .limits = { options->spec.limits, options->timeout, options->execute_timeout,
            options->output_limit },
        .grace = options->grace,
        .answer = schema_hold(options->answer),
        .decoder = { .rules = rules, .rule_count = array_length(rules) },
        .out = { .limit = options->output_limit },
        .err = { .limit = options->output_limit },
    };
    s->deadline = timer_new(loop, deadline_reached, s);
    s->lifetime = timer_new(loop, lifetime_over, s);
    s->partial = timer_new(loop, partial_too_long, s);
    int rc = s->deadline && s->lifetime && s->partial ? 0 : error_memory(err);
    if (rc == 0)
        rc = s->ops->open(env, &options->spec, &sandbox_handlers, s, &s->sandbox, err);
    if (rc == 0)
        rc = greet(s, options, err);
    if (rc < 0) {
        session_close(s);
        return rc;
    }
    if (options->timeout > 0)
        timer_start(s->lifetime, (uint64_t)(options->timeout * 1000), 0);
    *out = s;
    return 0;
}

void session_close(struct session *s)
{
    if (!s)
        return;
    if (s->sandbox)
        s->ops->close(s->sandbox);
    drop_calls(s);
    timer_free(s->deadline);
    timer_free(s->lifetime);
    timer_free(s->partial);
    frame_decoder_free(&s->decoder);
    capture_free(&s->out);
    capture_free(&s->err);
    json_object_put(s->variables);
    schema_drop(s->answer);
    free(s->open_calls);
    free(s);
}

void session_hand_over(struct session *s, void *arg)
{
    s->arg = arg;
}

bool session_is_alive(const struct session *s)
{
    return !s->dead && s->death.code == ERROR_NONE;
}

enum isolation session_isolation(const struct session *s)
{
    return s->ops->isolation(s->sandbox);
}

const struct session_limits *session_limits_of(const struct session *s)
{
    return &s->limits;
}

void session_describe(const struct session *s, struct buf *out)
{
    if (s->ops->describe)
        s->ops->describe(s->env, s->sandbox, out);
}
