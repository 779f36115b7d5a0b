/* env/remote/remote.c: multiplexes sandboxes over one link to the supervisor.
 *
 *   waiting ── loader's greeting ──► booting ── HELLO ──► ready ── remote_ended ──► over
 *   any ── protocol violation, or cannot boot ──► failed ── remote_ended ──► over
 *
 * Messages of sandboxes go to the link at once, in any state; it queues what it cannot send. Flow
 * control is by credit: bytes of a channel beyond the credit that the supervisor has granted wait
 * here.
 */
#include "env/remote/remote.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/json/fields.h"
#include "base/clock.h"
#include "base/fifo.h"
#include "base/os/random.h"
#include "base/text.h"
#include "env/remote/boot.h"
#include "env/common/fair_reading.h"
#include "wire/mux.h"

enum {
    BOOT_MS = 60000, /* from the connection to HELLO */
    BEAT_MS = 5000,  /* interval of keep-alives and resend requests */
    IDLE_BEAT_MS = 15000,
    KILL_MS = 10000, /* for EXIT to arrive after a kill; then the worker counts as gone */
    NOISE_MAX = 500,
    PIECE = 65536, /* of a file */
    /* Bytes that may wait in the transport. At most LINK_TO_GUEST are unacknowledged, a few times
     * as many where they are resent, and LINK_TEXT encodes three bytes as four. */
    TRANSPORT_MAX = 16 << 20,
};

enum state { STATE_WAITING, STATE_BOOTING, STATE_READY, STATE_FAILED, STATE_OVER };

TAILQ_HEAD(sandbox_list, sandbox);

struct remote {
    struct loop *loop;
    struct remote_options options;
    struct remote_events events;
    void *arg;
    enum state state;
    bool connected, was_connected;
    size_t guest_len; /* bytes sent to the loader */
    struct remote_boot boot;
    struct link *link;
    struct mux_decoder decoder;
    struct timer *boot_timer, *beat;
    struct sandbox_list sandboxes;
    struct fair_reader turn;
    bool says_more; /* the last bytes that were fed end within a message */
    unsigned holds;
    uint32_t last_id;
};

struct sandbox {
    TAILQ_ENTRY(sandbox) link;
    struct remote *remote;
    uint32_t id;
    struct sandbox_events events;
    void *arg;
    size_t credit;       /* bytes that the supervisor accepts */
    struct fifo waiting; /* bytes beyond the credit */
    int source;          /* a file whose content follows; -1: none */
    struct jail_limits limits;
    struct buf start; /* the content of START, while it waits for remote_release */
    struct timer *kill_timer;
    bool wants_kill, ended;
    bool rings_late; /* interrupt again once nothing waits */
    struct sandbox_exit how;
    struct sandbox_usage usage;
};

/* ---- to the supervisor ---- */

static int send_message(struct remote *r, enum mux_kind kind, uint32_t worker, const void *data,
    size_t len, struct error *err)
{
    unsigned char header[MUX_HEADER_SIZE];
    struct iovec iov[2] = { { header, sizeof header }, { (void *)(uintptr_t)data, len } };
    mux_write_header(header, kind, worker, len);
    return link_send(r->link, iov, len ? 2 : 1, err);
}

/* Sends what the credit allows. */
static int remote_send_waiting(struct sandbox *s, struct error *err)
{
    int rc = 0;
    while (rc == 0 && s->start.len == 0 && s->credit > 0 && fifo_len(&s->waiting) > 0) {
        size_t len = fifo_len(&s->waiting) < s->credit ? fifo_len(&s->waiting) : s->credit;
        rc = send_message(s->remote, MUX_BYTES, s->id, fifo_data(&s->waiting), len, err);
        fifo_drop(&s->waiting, len);
        s->credit -= len;
    }
    return rc;
}

/* Then sends the file's content. No end marker is needed: the content is self-delimiting. */
static int send_source(struct sandbox *s, struct error *err)
{
    char piece[PIECE];
    ssize_t n = 1;
    int rc = remote_send_waiting(s, err);
    while (rc == 0 && n > 0 && s->source >= 0 && s->credit > 0) {
        n = read(s->source, piece, s->credit < PIECE ? s->credit : PIECE);
        if (n < 0)
            return error_set_errno(err, ERROR_IO, "reading the data to send");
        rc = send_message(s->remote, MUX_BYTES, s->id, piece, (size_t)n, err);
        s->credit -= (size_t)n;
    }
    return rc;
}

int remote_send(
    struct sandbox *s, const struct iovec *iov, int count, int fd_given, struct error *err)
{
    cleanup_fd int fd = fd_given;
    if (s->ended)
        return 0;
    if (fd >= 0)
        return error_set(err, ERROR_UNSUPPORTED, "a remote guest cannot receive descriptors");
    for (int i = 0; i < count; i++)
        fifo_add(&s->waiting, iov[i].iov_base, iov[i].iov_len);
    return fifo_failed(&s->waiting) ? error_memory(err) : remote_send_waiting(s, err);
}

size_t remote_unread(const struct sandbox *s)
{
    return fifo_len(&s->waiting);
}

void remote_hold_channel(struct sandbox *s, bool on)
{
    unsigned char flag = on;
    if (!s->ended && s->start.len == 0)
        send_message(s->remote, MUX_HOLD, s->id, &flag, 1, NULL);
}

static void remote_ring(const struct sandbox *s)
{
    send_message(s->remote, MUX_INTERRUPT, s->id, NULL, 0, NULL);
}

/* ---- from the supervisor ---- */

static void end_sandbox(void *arg)
{
    struct sandbox *s = arg;
    if (s->ended)
        return;
    s->ended = true;
    timer_stop(s->kill_timer);
    fifo_free(&s->waiting);
    buf_free(&s->start);
    close_fd(&s->source);
    s->events.ended(s->arg, &s->how);
}

static void remote_fail(struct remote *r, const struct error *why)
{
    if (r->state == STATE_FAILED || r->state == STATE_OVER)
        return;
    r->state = STATE_FAILED;
    timer_stop(r->boot_timer);
    timer_stop(r->beat);
    link_cut(r->link);
    r->events.failed(r->arg, why);
}

static struct sandbox *find_sandbox(const struct remote *r, uint32_t id)
{
    struct sandbox *s;
    TAILQ_FOREACH(s, &r->sandboxes, link)
    if (s->id == id)
        return s;
    return NULL;
}

static int parse_object(const struct mux_message *m, struct json_object **out, struct error *err)
{
    static const struct json_limits limits = { MUX_JSON_MAX, 8, 5000 };
    int rc = json_parse(m->data, m->len, &limits, out, err);
    if (rc == 0 && !json_object_is_type(*out, json_type_object))
        return error_set(err, ERROR_PROTOCOL, "the supervisor sent JSON that is not an object");
    return rc;
}

static int remote_on_hello(
    struct remote *r, struct sandbox *s, const struct mux_message *m, struct error *err)
{
    cleanup_json struct json_object *facts = NULL;
    if (r->state != STATE_BOOTING)
        return error_set(err, ERROR_PROTOCOL, "the supervisor sent HELLO twice");
    int rc = parse_object(m, &facts, err);
    if (rc < 0)
        return rc;
    r->state = STATE_READY;
    timer_stop(r->boot_timer);
    if (r->events.ready)
        r->events.ready(r->arg, facts);
    return 0;
}

static int remote_on_bytes(
    struct remote *r, struct sandbox *s, const struct mux_message *m, struct error *err)
{
    r->says_more = s->events.bytes(s->arg, m->data, m->len);
    return 0;
}

static int on_output(
    struct remote *r, struct sandbox *s, const struct mux_message *m, struct error *err)
{
    s->events.output(s->arg, m->stream, m->data, m->len);
    r->says_more = true;
    return 0;
}

static int on_credit(
    struct remote *r, struct sandbox *s, const struct mux_message *m, struct error *err)
{
    uint32_t more;
    if (m->len != sizeof more)
        return error_set(err, ERROR_PROTOCOL, "credit without a number");
    memcpy(&more, m->data, sizeof more);
    more = le32toh(more);
    if (more > MUX_CREDIT - s->credit)
        return error_set(err, ERROR_PROTOCOL, "the supervisor acknowledged more than it was sent");
    s->credit += more;
    size_t unread = fifo_len(&s->waiting);
    int rc = send_source(s, err);
    if (rc == 0 && fifo_len(&s->waiting) < unread && s->events.room)
        s->events.room(s->arg);
    if (rc == 0 && !s->ended && s->rings_late && fifo_len(&s->waiting) == 0) {
        s->rings_late = false;
        remote_ring(s);
    }
    return rc;
}

/* Untrusted numbers: a value of the wrong type or range counts as missing. */
static double number_between(struct json_object *o, const char *key, double most)
{
    double value = json_get_double(o, key, 0);
    return value >= 0 && value <= most ? value : 0;
}

static int on_exit_(
    struct remote *r, struct sandbox *s, const struct mux_message *m, struct error *err)
{
    cleanup_json struct json_object *o = NULL;
    cleanup_buf struct buf shown = { 0 };
    int rc = parse_object(m, &o, err);
    if (rc < 0)
        return rc;
    int64_t status = json_get_int(o, "status", -1);
    const char *why = json_get_string(o, "error", NULL);
    s->how.has_status = !s->wants_kill && status >= 0 && status <= 0xFFFF;
    s->how.wait_status = s->how.has_status ? (int)status : 0;
    s->usage.memory_peak = (uint64_t)(number_between(o, "rss", 1e12) * 1024);
    s->usage.cpu_seconds = number_between(o, "cpu", 1e12);
    if (json_get_bool(o, "oom", false) && !s->wants_kill)
        s->how.limit = LIMIT_MEMORY;
    if (why) {
        text_append_visible(&shown, why, strlen(why));
        error_set(&s->how.error, ERROR_ENVIRONMENT, "starting a worker in the sandbox: %.160s",
            buf_text(&shown));
    }
    end_sandbox(s);
    return 0;
}

static const struct {
    uint8_t kind;
    int (*handle)(
        struct remote *r, struct sandbox *s, const struct mux_message *m, struct error *err);
} handlers[] = {
    { MUX_HELLO, remote_on_hello },
    { MUX_BYTES, remote_on_bytes },
    { MUX_OUTPUT, on_output },
    { MUX_CREDIT_MORE, on_credit },
    { MUX_EXIT, on_exit_ },
};

static int remote_on_message(void *arg, const struct mux_message *m, struct error *err)
{
    struct remote *r = arg;
    struct sandbox *s = NULL;
    if (r->state == STATE_BOOTING && m->kind != MUX_HELLO)
        return error_set(err, ERROR_PROTOCOL, "the first message of the supervisor is not HELLO");
    if (m->worker > r->last_id)
        return error_set(err, ERROR_PROTOCOL, "the supervisor named a worker that was not started");
    if (m->worker)
        s = find_sandbox(r, m->worker);
    if (m->worker && (!s || s->ended))
        return 0; /* it was closed in the meantime */
    for (size_t i = 0; i < array_length(handlers); i++)
        if (handlers[i].kind == m->kind)
            return handlers[i].handle(r, s, m, err);
    return error_set(err, ERROR_PROTOCOL, "a message of unexpected kind %u", m->kind);
}

static int link_bytes(void *arg, const char *data, size_t len, struct error *err)
{
    struct remote *r = arg;
    return mux_feed(&r->decoder, data, len, remote_on_message, r, err);
}

static void link_write(void *arg, const struct iovec *iov, int count)
{
    struct remote *r = arg;
    struct error why = { 0 };
    r->events.write(r->arg, iov, count);
    if (!r->events.waiting || r->events.waiting(r->arg) <= TRANSPORT_MAX)
        return;
    error_set(&why, ERROR_PROTOCOL,
        "the supervisor acknowledges data that it does not read: %d MiB wait for it",
        TRANSPORT_MAX >> 20);
    remote_fail(r, &why);
}

/* ---- the transport ---- */

/* Handles bytes of the loader. True once its greeting is complete; bytes from `*used` on belong to
 * the link. */
static bool env_remote_boot(struct remote *r, const char *data, size_t len, size_t *used)
{
    cleanup_buf struct buf guest = { 0 };
    struct error err = { 0 };
    int rc = remote_boot_feed(&r->boot, &r->options.boot, data, len, used, &guest, &err);
    if (rc < 0)
        remote_fail(r, &err);
    if (rc <= 0)
        return false;
    r->state = STATE_BOOTING;
    r->guest_len = guest.len;
    struct iovec iov = { guest.data, guest.len };
    r->events.write(r->arg, &iov, 1);
    link_begin(r->link);
    return true;
}

void remote_feed(struct remote *r, const char *data, size_t len)
{
    struct error err = { 0 };
    size_t used = 0;
    if (!r->connected)
        return;
    if (r->state == STATE_WAITING && !env_remote_boot(r, data, len, &used))
        return;
    if (r->state != STATE_BOOTING && r->state != STATE_READY)
        return;
    r->says_more = false;
    uint64_t begun = clock_ns(), worked = clock_thread_ns();
    if (link_feed(r->link, data + used, len - used, &err) < 0) {
        error_wrap(&err, "the supervisor broke the protocol");
        remote_fail(r, &err);
    } else if (r->options.fair_reading) {
        fair_reading_add_use(
            r->options.fair_reading, &r->turn, clock_thread_ns() - worked, clock_ns() - begun);
        if (!fair_reading_put_off(r->options.fair_reading, &r->turn) && r->says_more)
            fair_reading_wait(r->options.fair_reading, &r->turn, len);
    }
}

static bool remote_is_over(const struct remote *r)
{
    return r->state == STATE_FAILED || r->state == STATE_OVER;
}

bool remote_wants_more(const struct remote *r)
{
    return !r->turn.waits;
}

static void remote_turn_came(void *arg, unsigned port)
{
    struct remote *r = arg;
    r->events.more(r->arg);
}

/* Keeps the supervisor's lease alive and detects losses. */
static void start_beat(struct remote *r)
{
    bool idle = link_is_live(r->link) && !link_unacknowledged(r->link);
    double third = r->options.boot.lease * 1000 / 3;
    double ms = idle ? IDLE_BEAT_MS : BEAT_MS;
    timer_start(r->beat, (uint64_t)(third > 0 && third < ms ? third + 1 : ms), 0);
}

static void remote_beat(void *arg)
{
    struct remote *r = arg;
    link_ping(r->link);
    start_beat(r);
}

static void boot_too_long(void *arg)
{
    struct remote *r = arg;
    struct error why = { 0 };
    cleanup_buf struct buf noise = { 0 };
    remote_noise(r, &noise);
    error_set(&why, ERROR_ENVIRONMENT, "python3 in the sandbox did not start within %d s%s%.120s",
        BOOT_MS / 1000, noise.len ? ": " : "", buf_text(&noise));
    remote_fail(r, &why);
}

/* If the transport was cut while the guest was being sent, the loader still waits for the rest of
 * it, or of the line before it. Filler completes that with invalid content, and the loader ends. A
 * running supervisor ignores the filler. */
static void fill_up(struct remote *r)
{
    char filling[4096];
    struct iovec iov[2] = { { filling, sizeof filling }, { (void *)(uintptr_t) "\n", 1 } };
    memset(filling, 'x', sizeof filling);
    for (size_t sent = 0; sent < r->guest_len; sent += sizeof filling)
        r->events.write(r->arg, iov, 1);
    r->events.write(r->arg, iov + 1, 1);
}

void remote_connected(struct remote *r)
{
    static const struct iovec newline = { (void *)(uintptr_t) "\n", 1 };
    struct error err = { 0 };
    uint64_t nonce = 0;
    if (r->connected || remote_is_over(r))
        return;
    r->connected = true;
    if (r->state == STATE_WAITING || r->state == STATE_BOOTING)
        timer_start(r->boot_timer, BOOT_MS, 0);
    start_beat(r);
    if (r->state == STATE_WAITING) {
        if (r->was_connected) /* the greeting may have been lost: ask for it again */
            r->events.write(r->arg, &newline, 1);
        r->was_connected = true;
        return;
    }
    if (r->state == STATE_BOOTING)
        fill_up(r);
    if (random_bytes(&nonce, sizeof nonce, &err) < 0)
        remote_fail(r, &err);
    else
        link_resume(r->link, nonce);
}

void remote_disconnected(struct remote *r)
{
    r->connected = false;
    timer_stop(r->boot_timer);
    timer_stop(r->beat);
    link_cut(r->link);
}

void remote_noise(const struct remote *r, struct buf *out)
{
    const struct buf *heard = &r->boot.heard;
    size_t skip = heard->len > NOISE_MAX ? heard->len - NOISE_MAX : 0;
    cleanup_buf struct buf text = { 0 };
    text_append_utf8(&text, buf_text(heard) + skip, heard->len - skip);
    while (text.len > 0 && strchr(" \t\r\n", text.data[text.len - 1]))
        text.len--;
    text_append_visible(out, buf_text(&text), text.len);
}

void remote_ended(struct remote *r, const struct sandbox_exit *how)
{
    struct sandbox *s, *next;
    r->state = STATE_OVER;
    remote_disconnected(r);
    for (s = TAILQ_FIRST(&r->sandboxes); s; s = next) {
        next = TAILQ_NEXT(s, link);
        if (!s->ended)
            s->how = *how;
        end_sandbox(s);
    }
}

int remote_open(struct loop *loop, const struct remote_options *options,
    const struct remote_events *events, void *arg, struct remote **out, struct error *err)
{
    static const struct link_events handed = { link_write, link_bytes };
    struct link_options link = { .form = options->boot.form };
    struct remote *r = calloc(1, sizeof *r);
    if (!r)
        return error_memory(err);
    r->loop = loop;
    r->options = *options;
    r->events = *events;
    r->arg = arg;
    r->turn = (struct fair_reader){ .next = remote_turn_came, .read = remote_turn_came, .arg = r };
    TAILQ_INIT(&r->sandboxes);
    r->boot_timer = timer_new(loop, boot_too_long, r);
    r->beat = timer_new(loop, remote_beat, r);
    int rc =
        r->boot_timer && r->beat ? link_open(&link, &handed, r, &r->link, err) : error_memory(err);
    if (rc < 0) {
        remote_free(r);
        return rc;
    }
    *out = r;
    return 0;
}

void remote_free(struct remote *r)
{
    if (!r)
        return;
    if (r->options.fair_reading) {
        fair_reading_leave(r->options.fair_reading, &r->turn);
        fair_reading_begin(r->options.fair_reading, &r->turn);
    }
    timer_free(r->boot_timer);
    timer_free(r->beat);
    link_free(r->link);
    mux_decoder_free(&r->decoder);
    remote_boot_free(&r->boot);
    free(r);
}

/* ---- sandboxes ---- */

void remote_begin_operation(struct sandbox *s)
{
    if (s->remote->options.fair_reading)
        fair_reading_begin(s->remote->options.fair_reading, &s->remote->turn);
}

void remote_charge(struct sandbox *s, uint64_t ns)
{
    if (s->remote->options.fair_reading)
        fair_reading_charge(s->remote->options.fair_reading, &s->remote->turn, ns);
}

void remote_drain(struct sandbox *s)
{
}

void remote_interrupt(struct sandbox *s)
{
    if (s->ended)
        return;
    /* The INTERRUPT frame may wait behind other bytes. */
    s->rings_late = fifo_len(&s->waiting) > 0;
    remote_ring(s);
}

void remote_kill(struct sandbox *s)
{
    if (s->ended || s->wants_kill)
        return;
    s->wants_kill = true;
    if (s->start.len > 0) { /* the supervisor does not know it yet */
        timer_start(s->kill_timer, 0, 0);
        return;
    }
    timer_start(s->kill_timer, KILL_MS, 0);
    send_message(s->remote, MUX_KILL, s->id, NULL, 0, NULL);
}

void remote_end_sandbox(struct sandbox *s, const struct sandbox_exit *how)
{
    if (s->ended)
        return;
    remote_kill(s);
    s->how = *how;
    end_sandbox(s);
}

bool remote_is_cut(const struct sandbox *s)
{
    return !link_is_live(s->remote->link);
}

void remote_usage(const struct sandbox *s, struct sandbox_usage *out)
{
    *out = s->usage;
}

void remote_close_sandbox(struct sandbox *s)
{
    if (!s)
        return;
    remote_kill(s);
    TAILQ_REMOVE(&s->remote->sandboxes, s, link);
    timer_free(s->kill_timer);
    fifo_free(&s->waiting);
    buf_free(&s->start);
    close_fd(&s->source);
    free(s);
}

struct remote *remote_of(const struct sandbox *s)
{
    return s->remote;
}

void *remote_arg(const struct remote *r)
{
    return r->arg;
}

/* Limits that the worker sets for itself, including memory where the container has a limit too, so
 * that Python can raise MemoryError. The names are those of Python's module `resource`. */
static void write_limits(const struct remote *r, const struct jail_limits *limits, struct buf *out)
{
    static const struct {
        enum limit limit;
        const char *name;
    } rows[] = {
        { LIMIT_MEMORY, "RLIMIT_DATA" },
        { LIMIT_PROCESSES, "RLIMIT_NPROC" },
        { LIMIT_CPU_TIME, "RLIMIT_CPU" },
        { LIMIT_OPEN_FILES, "RLIMIT_NOFILE" },
        { LIMIT_FILE_SIZE, "RLIMIT_FSIZE" },
    };
    buf_puts(out, "\"limits\":{\"RLIMIT_CORE\":0");
    for (size_t i = 0; i < array_length(rows); i++)
        if ((r->options.means[rows[i].limit] == LIMIT_BY_RLIMIT || rows[i].limit == LIMIT_MEMORY) &&
            limit_value(rows[i].limit, limits) > 0)
            buf_printf(out, ",\"%s\":%.0f", rows[i].name, limit_value(rows[i].limit, limits));
    buf_putc(out, '}');
}

static void write_start(const struct remote *r, const struct sandbox_spec *spec, struct buf *json)
{
    buf_putc(json, '{');
    write_limits(r, &spec->limits, json);
    field_open(json, "preload", '[');
    for (size_t i = 0; i < spec->preload_count; i++)
        field_string(json, NULL, spec->preload[i]);
    buf_puts(json, "]}");
}

/* Sends START and what follows it. */
static int remote_start(struct sandbox *s, const struct buf *json, struct error *err)
{
    if (buf_failed(json))
        return error_memory(err);
    int rc = send_message(s->remote, MUX_START, s->id, json->data, json->len, err);
    return rc < 0 ? rc : send_source(s, err);
}

static int worker_new(struct remote *r, int source_given, const struct sandbox_events *events,
    void *arg, struct sandbox **out, struct error *err)
{
    cleanup_fd int source = source_given;
    if (remote_is_over(r))
        return error_set(err, ERROR_LOST, "the remote machine or container of the sandbox is gone");
    struct sandbox *s = calloc(1, sizeof *s);
    if (!s)
        return error_memory(err);
    s->remote = r;
    s->id = ++r->last_id;
    s->events = *events;
    s->arg = arg;
    s->credit = MUX_CREDIT;
    s->source = steal_fd(&source);
    TAILQ_INSERT_TAIL(&r->sandboxes, s, link);
    s->kill_timer = timer_new(r->loop, end_sandbox, s);
    if (!s->kill_timer) {
        remote_close_sandbox(s);
        return error_memory(err);
    }
    *out = s;
    return 0;
}

int remote_open_worker(struct remote *r, const struct buf *json, int source,
    const struct sandbox_events *events, void *arg, struct sandbox **out, struct error *err)
{
    int rc = worker_new(r, source, events, arg, out, err);
    if (rc == 0 && (rc = remote_start(*out, json, err)) < 0)
        remote_close_sandbox(*out);
    return rc;
}

int remote_open_sandbox(struct remote *r, const struct sandbox_spec *spec,
    const struct sandbox_events *events, void *arg, struct sandbox **out, struct error *err)
{
    cleanup_buf struct buf json = { 0 };
    struct sandbox *s = NULL;
    int rc = worker_new(r, -1, events, arg, &s, err);
    if (rc < 0)
        return rc;
    s->limits = spec->limits;
    for (enum limit l = LIMIT_NONE + 1; l < LIMIT_COUNT; l++)
        if (limit_value(l, &spec->limits) > 0)
            s->usage.means[l] = r->options.means[l];
    write_start(r, spec, &json);
    if (r->holds > 0 && !buf_failed(&json)) {
        s->start = json;
        json = (struct buf){ 0 };
    } else {
        rc = remote_start(s, &json, err);
    }
    if (rc < 0) {
        remote_close_sandbox(s);
        return rc;
    }
    *out = s;
    return 0;
}

int remote_open_companion(struct sandbox *of, const struct sandbox_events *events, void *arg,
    struct sandbox **out, struct error *err)
{
    cleanup_buf struct buf json = { 0 };
    if (of->ended || of->start.len > 0)
        return error_set(err, ERROR_LOST, "the sandbox has ended, or has not started yet");
    buf_printf(&json, "{\"beside\":%u,", of->id);
    write_limits(of->remote, &of->limits, &json);
    buf_putc(&json, '}');
    return remote_open_worker(of->remote, &json, -1, events, arg, out, err);
}

void remote_hold(struct remote *r)
{
    r->holds++;
}

void remote_release(struct remote *r, const struct error *why)
{
    struct sandbox *s, *next;
    if (--r->holds > 0 && !why)
        return;
    for (s = TAILQ_FIRST(&r->sandboxes); s; s = next) {
        struct error err = { 0 };
        next = TAILQ_NEXT(s, link);
        if (s->start.len == 0 || s->ended)
            continue;
        cleanup_buf struct buf json = s->start;
        s->start = (struct buf){ 0 };
        if (why || remote_start(s, &json, &err) < 0) {
            s->how.error = why ? *why : err;
            end_sandbox(s);
        }
    }
}
