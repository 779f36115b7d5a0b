/* env/clouds/vm/process_service.c: the streams and inputs of one remote program.
 *
 *   starting ── first event ──► joined ── cut ──► joining ── an event ──► joined
 *       └──── cut ──► joining       any ── End, or no answer for a minute ──► over
 *
 * The service sends KeepAlive events, so silence means that the connection is dead.
 */
#include "env/clouds/vm/process_service.h"

#include <stdlib.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fifo.h"
#include "base/os/random.h"
#include "net/protobuf.h"

enum {
    SILENCE_MS = 45000,   /* without an event on a stream */
    SUSPECT_MS = 2000,    /* grace period after that */
    PAUSE_FIRST_MS = 100, /* before it is rejoined */
    PAUSE_LONGEST_MS = 5000,
    REJOIN_SECONDS = 60,
    INPUT_SECONDS = 30,
    INPUT_MOST = 512 << 10, /* bytes of one SendInput */
    INPUTS = 4,         /* at once: on a slow network the next one need not wait for an answer */
    INPUT_APART_MS = 5, /* between two inputs, so that one rarely overtakes another */
    INPUT_SHORT = 16 << 10, /* bytes in progress beyond which no other input is sent */
    KILL = 9,
};

/* Field numbers by message (the providers' process.proto). */
enum {
    START_COMMAND = 1,
    START_STDIN = 4,
    COMMAND_WORD = 1,
    COMMAND_ARGUMENT = 2,
    SELECTED = 1, /* of Connect, SendInput and SendSignal */
    SELECTOR_PID = 1,
    INPUT_DATA = 2,
    INPUT_KEY = 3,
    DATA_STDIN = 1,
    SIGNAL_NUMBER = 2,
    RESPONSE_EVENT = 1,
    EVENT_START = 1,
    EVENT_DATA = 2,
    EVENT_END = 3,
    START_PID = 1,
    DATA_STDOUT = 1,
    DATA_STDERR = 2,
    END_STATUS = 3,
    END_ERROR = 4,
};

/* A SendInput without an answer. */
struct input {
    struct process_service *owner;
    struct connect_call *call; /* NULL: rejected, or done */
    size_t len;
    char key[UUID_SIZE];
    bool done; /* answered, before an earlier one */
};

struct process_service {
    struct loop *loop;
    struct rest *rest;
    const struct process_dialect *dialect;
    struct process_events events;
    void *arg;
    struct buf start;    /* the message that starts it */
    char key[UUID_SIZE]; /* the client's key of it */
    uint64_t pid;        /* 0: not known yet */
    struct connect_call *stream;
    bool starts;                 /* the stream is that of a Start */
    bool started_before;         /* there was a stream before this one, so output may be lost */
    bool joined, heard;          /* heard: any standard output has arrived */
    bool suspect;                /* silent for too long */
    bool refused;                /* the token is rejected; nothing is sent until it is renewed */
    struct fifo waiting;         /* input to send, and sent but unconfirmed */
    struct input inputs[INPUTS]; /* a ring: `oldest` has the first waiting bytes */
    unsigned oldest, input_count;
    size_t in_flight; /* bytes of all inputs in progress */
    uint64_t sent_ns; /* when the last one was sent */
    struct timer *flush, *pause, *silence;
    unsigned pause_ms;
    uint64_t lost_ns; /* since when it is not joined */
    struct error end;
    struct timer *over; /* defers the end */
};

/* ---- messages ---- */

static void put_selector(const struct process_service *p, struct buf *out)
{
    cleanup_buf struct buf selector = { 0 };
    /* A Start without a key may have run twice; the pid selects the right program. */
    if (!p->dialect->keyed && p->pid)
        protobuf_put_number(&selector, SELECTOR_PID, p->pid);
    else
        protobuf_put_text(&selector, p->dialect->selector_key, p->key);
    protobuf_put_bytes(out, SELECTED, selector.data, selector.len);
}

static void put_start(struct process_service *p, const char *const *words)
{
    cleanup_buf struct buf command = { 0 };
    protobuf_put_text(&command, COMMAND_WORD, words[0]);
    for (size_t i = 1; words[i]; i++)
        protobuf_put_text(&command, COMMAND_ARGUMENT, words[i]);
    protobuf_put_bytes(&p->start, START_COMMAND, command.data, command.len);
    protobuf_put_number(&p->start, START_STDIN, 1);
    protobuf_put_text(&p->start, p->dialect->start_key, p->key);
}

static void put_input(
    const struct process_service *p, const struct input *input, size_t at, struct buf *out)
{
    cleanup_buf struct buf data = { 0 };
    put_selector(p, out);
    protobuf_put_head(&data, DATA_STDIN, input->len);
    protobuf_put_head(out, INPUT_DATA, data.len + input->len);
    buf_append(out, data.data, data.len);
    buf_append(out, fifo_data(&p->waiting) + at, input->len);
    if (p->dialect->keyed)
        protobuf_put_text(out, INPUT_KEY, input->key);
}

static void method_path(const struct process_service *p, const char *method, struct buf *out)
{
    buf_printf(out, "%s/%s", p->dialect->path, method);
}

/* ---- losses and the end ---- */

static void cancel_input(struct process_service *p)
{
    for (int i = 0; i < INPUTS; i++)
        connect_cancel(steal(&p->inputs[i].call));
}

/* It is not known whether it was read: the link sends it again. */
static void process_service_forget_input(struct process_service *p)
{
    cancel_input(p);
    fifo_free(&p->waiting);
    p->in_flight = p->input_count = 0;
}

static void process_service_end_with(struct process_service *p, const struct error *why)
{
    p->end = *why;
    p->joined = false;
    process_service_forget_input(p);
    connect_cancel(steal(&p->stream));
    timer_stop(p->pause);
    timer_stop(p->silence);
    timer_start(p->over, 0, 0);
}

static void tell_over(void *arg)
{
    struct process_service *p = arg;
    p->events.ended(p->arg, &p->end);
}

/* The stream is lost. Inputs use other connections and continue. */
static void process_service_lose_stream(struct process_service *p)
{
    connect_cancel(steal(&p->stream));
    timer_stop(p->silence);
    if (p->lost_ns == 0)
        p->lost_ns = clock_ns();
    if (!p->joined)
        return;
    p->joined = false;
    p->events.cut(p->arg);
}

static void process_service_refuse(struct process_service *p)
{
    bool first = !p->refused;
    p->refused = true;
    if (first)
        p->events.refused(p->arg);
}

static void join_later(struct process_service *p)
{
    timer_start(p->pause, p->pause_ms, 0);
    p->pause_ms = p->pause_ms * 2 < PAUSE_LONGEST_MS ? p->pause_ms * 2 : PAUSE_LONGEST_MS;
}

static bool is_final(const struct process_service *p, enum connect_code code)
{
    switch (code) {
    case CONNECT_INVALID_ARGUMENT:
    case CONNECT_PERMISSION_DENIED:
    case CONNECT_FAILED_PRECONDITION:
    case CONNECT_UNIMPLEMENTED:
        return true;
    case CONNECT_NOT_FOUND: /* earlier, the machine may not be known everywhere yet */
        return p->pid != 0;
    default:
        return false;
    }
}

/* A stream ended without its last event, or could not be opened. */
static void process_service_lose(struct process_service *p, const struct connect_result *why)
{
    bool was_joined = p->joined;
    struct error cause = why->error;
    process_service_lose_stream(p);
    if (why->code == CONNECT_UNAUTHENTICATED) {
        process_service_refuse(p);
        return;
    }
    /* The service knows no program to join, so the Start never ran: start it. */
    if (!p->starts && p->pid == 0 && why->code == CONNECT_NOT_FOUND) {
        p->starts = true;
        join_later(p);
        return;
    }
    if (is_final(p, why->code)) {
        if (p->pid)
            cause.code = ERROR_LOST;
        process_service_end_with(p, &cause);
        return;
    }
    if (clock_seconds_since(p->lost_ns) > REJOIN_SECONDS) {
        error_wrap(&cause, "the program could not be reached for %d s", REJOIN_SECONDS);
        cause.code = ERROR_LOST;
        process_service_end_with(p, &cause);
        return;
    }
    p->starts = p->pid == 0 && p->dialect->keyed;
    p->started_before = true;
    join_later(p);
    if (!was_joined)
        p->events.doubtful(p->arg, why);
}

static void process_service_hear(struct process_service *p)
{
    p->suspect = false;
    timer_start(p->silence, SILENCE_MS, 0);
}

static void process_service_silent(void *arg)
{
    struct process_service *p = arg;
    struct connect_result why = { .code = CONNECT_CUT };
    if (!p->suspect) { /* the loop may have been blocked: first process what has arrived */
        p->suspect = true;
        timer_start(p->silence, SUSPECT_MS, 0);
        return;
    }
    error_set(&why.error, ERROR_LOST, "no data arrived for %d s", SILENCE_MS / 1000);
    process_service_lose(p, &why);
}

/* ---- output ---- */

static int take_started(struct process_service *p, struct protobuf_reader r, struct error *err)
{
    static const struct iovec newline = { (void *)(uintptr_t) "\n", 1 };
    struct protobuf_field f;
    int rc;
    while ((rc = protobuf_next(&r, &f, err)) == 1)
        if (f.number == START_PID && !f.is_bytes)
            p->pid = f.value;
    if (rc < 0 || p->joined)
        return rc;
    p->joined = true;
    p->lost_ns = 0;
    p->pause_ms = PAUSE_FIRST_MS;
    p->events.joined(p->arg);
    /* The loader's greeting may be lost: an empty line makes the loader repeat it. */
    if (p->started_before && !p->heard)
        process_service_write(p, &newline, 1);
    return 0;
}

/* Standard error counts until the first standard output: it may explain why the program cannot
 * start. */
static int process_service_take_data(
    struct process_service *p, struct protobuf_reader r, struct error *err)
{
    struct protobuf_field f;
    int rc;
    while ((rc = protobuf_next(&r, &f, err)) == 1) {
        bool out = f.number == DATA_STDOUT && f.is_bytes;
        if (!out && (f.number != DATA_STDERR || !f.is_bytes || p->heard))
            continue;
        p->heard |= out;
        if (p->joined && f.len > 0)
            p->events.bytes(p->arg, f.data, f.len);
    }
    return rc;
}

static int process_service_take_end(
    struct process_service *p, struct protobuf_reader r, struct error *err)
{
    static const struct error none = { 0 };
    struct protobuf_field f;
    int rc;
    while ((rc = protobuf_next(&r, &f, err)) == 1)
        ; /* the supervisor reports the exit status */
    if (rc == 0)
        process_service_end_with(p, &none);
    return rc;
}

static int process_service_take_event(
    struct process_service *p, struct protobuf_reader r, struct error *err)
{
    static const struct {
        uint32_t number;
        int (*take)(struct process_service *p, struct protobuf_reader r, struct error *err);
    } kinds[] = { { EVENT_START, take_started }, { EVENT_DATA, process_service_take_data },
        { EVENT_END, process_service_take_end } };
    struct protobuf_field f;
    int rc;
    while ((rc = protobuf_next(&r, &f, err)) == 1)
        for (size_t i = 0; f.is_bytes && i < array_length(kinds); i++) {
            struct protobuf_reader inner = { f.data, f.data + f.len };
            if (kinds[i].number == f.number && (rc = kinds[i].take(p, inner, err)) < 0)
                return rc;
        }
    return rc;
}

static void process_service_on_message(void *arg, const char *data, size_t len)
{
    struct process_service *p = arg;
    struct protobuf_reader r = { data, data + len };
    struct protobuf_field f;
    struct error err = { 0 };
    int rc;
    process_service_hear(p);
    while ((rc = protobuf_next(&r, &f, &err)) == 1 && p->stream)
        if (f.number == RESPONSE_EVENT && f.is_bytes) {
            struct protobuf_reader inner = { f.data, f.data + f.len };
            rc = process_service_take_event(p, inner, &err);
            if (rc < 0)
                break;
        }
    if (rc < 0 && p->stream)
        process_service_end_with(p, &err);
}

static void on_stream_done(void *arg, const struct connect_result *result)
{
    struct process_service *p = arg;
    struct connect_result why = *result;
    p->stream = NULL;
    if (why.code == CONNECT_OK) { /* its last event was lost */
        why.code = CONNECT_CUT;
        error_set(&why.error, ERROR_LOST, "the stream ended before the program");
    }
    process_service_lose(p, &why);
}

static void process_service_join(void *arg)
{
    static const struct connect_handler handler = { process_service_on_message, on_stream_done };
    struct process_service *p = arg;
    cleanup_buf struct buf message = { 0 }, path = { 0 };
    struct error err = { 0 };
    if (p->refused || p->stream)
        return;
    put_selector(p, &message);
    method_path(p, p->starts ? "Start" : "Connect", &path);
    if (buf_failed(&message) || buf_failed(&path))
        error_memory(&err);
    else
        connect_stream(p->rest, buf_text(&path), p->starts ? &p->start : &message, &handler, p,
            &p->stream, &err);
    if (err.code != ERROR_NONE)
        process_service_end_with(p, &err);
    else
        process_service_hear(p);
}

/* ---- input ---- */

static void process_service_send_some(void *arg);

static struct input *input_at(struct process_service *p, unsigned i)
{
    return &p->inputs[(p->oldest + i) % INPUTS];
}

static void on_sent(void *arg, const struct connect_result *result)
{
    struct input *input = arg;
    struct process_service *p = input->owner;
    input->call = NULL;
    if (result->code == CONNECT_UNAUTHENTICATED) {
        process_service_refuse(p);
        return;
    }
    if (result->code != CONNECT_OK) {
        process_service_forget_input(p);
        process_service_lose(p, result);
        return;
    }
    input->done = true;
    while (p->input_count > 0 && input_at(p, 0)->done) {
        fifo_drop(&p->waiting, input_at(p, 0)->len);
        p->in_flight -= input_at(p, 0)->len;
        p->oldest = (p->oldest + 1) % INPUTS;
        p->input_count--;
    }
    process_service_send_some(p);
}

/* Its bytes start at offset `at` of the waiting ones. */
static void send_input(struct process_service *p, struct input *input, size_t at)
{
    static const struct connect_handler handler = { NULL, on_sent };
    cleanup_buf struct buf message = { 0 }, path = { 0 };
    struct error err = { 0 };
    put_input(p, input, at, &message);
    method_path(p, "SendInput", &path);
    if (buf_failed(&message) || buf_failed(&path) || fifo_failed(&p->waiting))
        error_memory(&err);
    else
        connect_send(p->rest, buf_text(&path), &message, true, INPUT_SECONDS, &handler, input,
            &input->call, &err);
    if (err.code != ERROR_NONE)
        process_service_end_with(p, &err);
}

/* Resends the inputs in progress after a rejected token or a change of connection. Without a key
 * they may be read twice; the link discards duplicates. */
static void send_again(struct process_service *p)
{
    size_t at = 0;
    for (unsigned i = 0; i < p->input_count; i++) {
        struct input *input = input_at(p, i);
        if (!input->call && !input->done)
            send_input(p, input, at);
        at += input->len;
    }
}

static void process_service_send_some(void *arg)
{
    struct process_service *p = arg;
    size_t len = fifo_len(&p->waiting) - p->in_flight, at = p->in_flight;
    uint64_t since_ms = (clock_ns() - p->sent_ns) / 1000000;
    struct error err = { 0 };
    if (p->refused || len == 0 || p->input_count == INPUTS || p->in_flight > INPUT_SHORT)
        return;
    /* Nothing may come between the pieces of a long input: the loader cannot resynchronise. */
    if (p->input_count > 0 && len > INPUT_MOST)
        return;
    if (p->input_count > 0 && since_ms < INPUT_APART_MS) {
        timer_start(p->flush, INPUT_APART_MS - since_ms, 0);
        return;
    }
    struct input *input = input_at(p, p->input_count);
    *input = (struct input){ .owner = p, .len = len < INPUT_MOST ? len : INPUT_MOST };
    if (random_uuid(input->key, &err) < 0) {
        process_service_end_with(p, &err);
        return;
    }
    p->input_count++;
    p->in_flight += input->len;
    p->sent_ns = clock_ns();
    send_input(p, input, at);
}

/* Input from one iteration of the loop is sent together. */
void process_service_write(struct process_service *p, const struct iovec *iov, int count)
{
    if (!p->joined)
        return;
    for (int i = 0; i < count; i++)
        fifo_add(&p->waiting, iov[i].iov_base, iov[i].iov_len);
    timer_start(p->flush, 0, 0);
}

size_t process_service_waiting(const struct process_service *p)
{
    return fifo_len(&p->waiting);
}

/* ---- public functions ---- */

void process_service_renewed(struct process_service *p)
{
    if (!p->refused)
        return;
    p->refused = false;
    send_again(p);
    if (!p->stream)
        process_service_join(p);
}

void process_service_move(struct process_service *p, struct rest *rest)
{
    cancel_input(p);
    process_service_lose_stream(p);
    p->rest = rest;
    send_again(p);
    timer_start(p->pause, 0, 0);
}

bool process_service_kill(const struct process_service *p, struct buf *path, struct buf *message)
{
    method_path(p, "SendSignal", path);
    put_selector(p, message);
    protobuf_put_number(message, SIGNAL_NUMBER, KILL);
    return p->pid != 0 && !buf_failed(path) && !buf_failed(message);
}

void process_service_close(struct process_service *p)
{
    if (!p)
        return;
    process_service_forget_input(p);
    connect_cancel(p->stream);
    timer_free(p->flush);
    timer_free(p->pause);
    timer_free(p->silence);
    timer_free(p->over);
    buf_free(&p->start);
    free(p);
}

int process_service_open(struct loop *loop, struct rest *rest,
    const struct process_dialect *dialect, const char *const *words,
    const struct process_events *events, void *arg, struct process_service **out, struct error *err)
{
    struct process_service *p = calloc(1, sizeof *p);
    if (!p)
        return error_memory(err);
    *p = (struct process_service){ .loop = loop,
        .rest = rest,
        .dialect = dialect,
        .events = *events,
        .arg = arg,
        .starts = true,
        .pause_ms = PAUSE_FIRST_MS,
        .lost_ns = clock_ns(),
        .flush = timer_new(loop, process_service_send_some, p),
        .pause = timer_new(loop, process_service_join, p),
        .silence = timer_new(loop, process_service_silent, p),
        .over = timer_new(loop, tell_over, p) };
    int rc = random_uuid(p->key, err);
    put_start(p, words);
    if (!p->flush || !p->pause || !p->silence || !p->over || buf_failed(&p->start))
        rc = error_memory(err);
    if (rc < 0) {
        process_service_close(p);
        return rc;
    }
    timer_start(p->pause, 0, 0);
    *out = p;
    return 0;
}
