/* A session's state machine over a made-up environment: the input is a script of what the guest and
 * the machine do (bytes, frames, output, an end) and of what the caller does meanwhile (operations,
 * answers, interrupts). Every operation ends in exactly one result, every call is answered or
 * dropped exactly once, and what a result promises holds, whatever the guest says.
 *
 * The environment keeps to its own contract: nothing is sent, no event comes within `open`, `ended`
 * follows `kill` and is the last event.
 */
#include "fuzz.h"

#include <sys/wait.h>

#include "session/session.h"

enum { CALLS = 8, PARTS = 4 };

struct world;
struct sandbox {
    struct world *world;
};

struct world {
    struct environment_base env; /* first, as in every environment */
    struct sandbox sandbox;
    const struct sandbox_events *events;
    void *arg;
    struct session *session;
    struct input in;
    bool open, ended, killed;
    unsigned char sum;            /* of all that was sent, so that every byte of it is read */
    bool answer_at_once, go_on;   /* from within the callbacks: answer a call, start a cell */
    unsigned sends, failing_send; /* which of the sends fails; 0: none */
    unsigned begun, finished, depth;
    struct {
        uint64_t id;
        bool open;
    } calls[CALLS];
};

/* ---- the environment ---- */

static int world_open(struct environment *env, const struct sandbox_spec *spec,
    const struct sandbox_events *events, void *arg, struct sandbox **out, struct error *err)
{
    struct world *w = (struct world *)env;
    w->events = events;
    w->arg = arg;
    w->open = true;
    w->sandbox = (struct sandbox){ w };
    *out = &w->sandbox;
    return 0;
}

static int world_send(
    struct sandbox *s, const struct iovec *iov, int count, int fd, struct error *err)
{
    struct world *w = s->world;
    for (int i = 0; i < count; i++)
        for (size_t at = 0; at < iov[i].iov_len; at++)
            w->sum ^= ((const unsigned char *)iov[i].iov_base)[at];
    if (fd >= 0)
        close(fd);
    if (++w->sends == w->failing_send)
        return error_set(err, ERROR_IO, "the made-up channel is broken");
    return 0;
}

static void world_interrupt(struct sandbox *s)
{
}

static void world_kill(struct sandbox *s)
{
    s->world->killed = true;
}

static void world_drain(struct sandbox *s)
{
    struct world *w = s->world;
    if (w->open && !w->ended)
        w->events->output(w->arg, 2, "drained\xC3", 8);
}

static enum isolation world_isolation(const struct sandbox *s)
{
    return ISOLATION_PROCESS;
}

static void world_close(struct sandbox *s)
{
    s->world->open = false;
}

static void world_usage(const struct sandbox *s, struct sandbox_usage *out)
{
    *out = (struct sandbox_usage){ 0 };
}

static void world_attend(struct sandbox *s)
{
}

static const struct environment_ops world_ops = {
    .name = "fuzz",
    .traits = TRAIT_MEMFD | TRAIT_SIGNAL,
    .open = world_open,
    .send = world_send,
    .begin_operation = world_attend,
    .interrupt = world_interrupt,
    .kill = world_kill,
    .drain = world_drain,
    .isolation = world_isolation,
    .usage = world_usage,
    .close = world_close,
};

/* ---- the caller ---- */

static void start_cell(struct world *w);

static void expect_text(const char *text)
{
    expect(!text || text_is_utf8(text, strlen(text), NULL));
}

/* All of it is an object of strict JSON, and its texts are text, as many as have a place. */
static void expect_submission(struct submission *s)
{
    size_t len, outline_len, text_len, texts = 0, places = 0;
    const char *outline = submission_outline(s, &outline_len), *text;
    const char *json = submission_json(s, &len);
    expect(json && json[0] == '{' && json_check(json, len, &json_limits_large, NULL) == 0);
    for (; (text = submission_text(s, texts, &text_len)); texts++)
        expect(text_is_utf8(text, text_len, NULL));
    size_t *at = calloc(texts + 1, sizeof *at);
    expect(json_check_outline(outline, outline_len, &json_limits_large, at, texts, &places, NULL) ==
           0);
    expect(places == texts && (texts > 0 || strcmp(json, outline) == 0));
    free(at);
}

static void finished(void *arg, struct cell_result *r)
{
    struct world *w = arg;
    w->finished++;
    expect(w->finished == w->begun);
    expect(cell_status_name(r->status));
    expect(!r->alive == w->ended);
    expect((r->status == CELL_SUBMITTED) == (r->submit != NULL));
    if (r->submit)
        expect_submission(r->submit);
    if (r->status == CELL_KILLED || r->status == CELL_LOST)
        expect(!r->alive && r->reason.code != ERROR_NONE);
    expect(text_is_utf8(buf_text(&r->out), r->out.len, NULL));
    expect(text_is_utf8(buf_text(&r->err), r->err.len, NULL));
    expect_text(r->echo);
    expect_text(r->error.type);
    expect_text(r->error.message);
    expect_text(r->error.traceback);
    expect_text(r->reason.text);
    cell_result_free(r);
    if (w->go_on && w->depth < 4) {
        w->depth++;
        start_cell(w);
        w->depth--;
    }
}

/* What became of an operation that was asked for. */
static void begun(struct world *w, int rc, const struct error *err, bool busy)
{
    if (rc < 0) {
        expect_error(rc, err);
        w->begun--;
        return;
    }
    expect(!busy);
}

static void start_cell(struct world *w)
{
    struct error err = { 0 };
    size_t len;
    bool busy = w->begun > w->finished;
    char *code = input_piece(&w->in, input_byte(&w->in) % 8, &len);
    struct session_cell cell = { .code = code,
        .len = len,
        .echo = true,
        .results = true,
        .name = "<fuzz>",
        .execute_timeout = input_byte(&w->in) % 2 ? 0.0001 : 0 };
    w->begun++;
    begun(w, session_exec(w->session, &cell, finished, w, &err), &err, busy);
    free(code);
}

static void start_set(struct world *w)
{
    static const char *const names[] = { "x", "y\"" };
    static char large[FRAME_MEMFD_MIN + 1]; /* goes as a memfd */
    struct error err = { 0 };
    bool busy = w->begun > w->finished;
    w->begun++;
    size_t len = input_byte(&w->in) % 2 ? sizeof large : 3;
    begun(w, session_set(w->session, names, 2, VALUE_TEXT, large, len, -1, finished, w, &err), &err,
        busy);
}

static void reply(struct world *w, uint64_t id)
{
    struct error err = { 0 };
    struct session_part parts[2] = { { "one", 3 }, { "", 0 } };
    struct json_object *head = json_object_new_object();
    for (size_t i = 0; i < CALLS; i++)
        if (w->calls[i].id == id)
            w->calls[i].open = false;
    int rc = session_reply(w->session, id, head, parts, 2, &err);
    if (rc < 0)
        expect_error(rc, &err);
    json_object_put(head);
}

static void called(void *arg, struct session *s, const struct session_call *call)
{
    struct world *w = arg;
    struct frame_parts parts = call->parts;
    const char *data;
    size_t len, total = 0;
    expect(json_object_is_type(call->head, json_type_object));
    while (frame_parts_next(&parts, &data, &len))
        for (size_t i = 0; i < len; i++)
            total += (unsigned char)data[i];
    expect(total < SIZE_MAX);
    for (size_t i = 0; i < CALLS; i++)
        expect(!w->calls[i].open || w->calls[i].id != call->id);
    for (size_t i = 0; i < CALLS; i++) {
        if (w->calls[i].open)
            continue;
        w->calls[i].id = call->id;
        w->calls[i].open = true;
        if (w->answer_at_once)
            reply(w, call->id);
        return;
    }
    reply(w, call->id); /* more than this caller keeps in mind */
}

static void call_dropped(void *arg, struct session *s, uint64_t id)
{
    struct world *w = arg;
    for (size_t i = 0; i < CALLS; i++) {
        if (!w->calls[i].open || w->calls[i].id != id)
            continue;
        w->calls[i].open = false;
        return;
    }
    expect(!"a call was dropped that is not open");
}

static void put_out(void *arg, struct session *s, int stream, const char *data, size_t len)
{
    expect(stream == 1 || stream == 2);
}

/* ---- the guest and the machine ---- */

static void send_bytes(struct world *w)
{
    size_t len;
    char *piece = input_piece(&w->in, input_byte(&w->in), &len);
    w->events->bytes(w->arg, piece, len);
    free(piece);
}

/* A well-formed frame with a head, and raw bytes or so many parts, so that the input need not guess
 * lengths. */
static void send_frame(struct world *w, uint8_t type, uint64_t id, size_t count)
{
    size_t head_len, body_len, lengths[PARTS], parts;
    char *head = input_piece(&w->in, input_byte(&w->in), &head_len);
    uint8_t how = input_byte(&w->in);
    char *body = input_piece(&w->in, how / 2, &body_len);
    cleanup_buf struct buf blob = { 0 }, frame = { 0 };
    unsigned char header[FRAME_HEADER_SIZE];
    parts = how % 2 ? 0 : count;
    for (size_t i = 0, left = body_len; i < parts; left -= lengths[i++])
        lengths[i] = i + 1 < parts ? input_byte(&w->in) % (left + 1) : left;
    if (parts > 0)
        frame_parts_begin(&blob, lengths, parts);
    buf_append(&blob, body, body_len);
    if (type == FRAME_READY)
        buf_clear(&blob);
    struct frame f = { .type = type, .id = id, .head_len = head_len, .blob_len = blob.len };
    frame_write_header(header, &f);
    buf_append(&frame, header, sizeof header);
    buf_append(&frame, head, head_len);
    buf_append(&frame, buf_text(&blob), blob.len);
    w->events->bytes(w->arg, frame.data, frame.len);
    free(head);
    free(body);
}

static void send_output(struct world *w)
{
    size_t len;
    uint8_t how = input_byte(&w->in);
    char *piece = input_piece(&w->in, how / 2, &len);
    w->events->output(w->arg, how % 2 + 1, piece, len);
    free(piece);
}

static void end(struct world *w, uint8_t how)
{
    struct sandbox_exit exit = { .has_status = how & 1,
        .wait_status = (how & 2) ? 11 : (how >> 2) << 8,
        .limit = how % LIMIT_COUNT };
    if ((how & 7) == 4)
        error_set(&exit.error, ERROR_ENVIRONMENT, "the made-up sandbox did not start");
    w->ended = true;
    w->events->ended(w->arg, &exit);
    expect(w->begun == w->finished && !session_is_alive(w->session));
    for (size_t i = 0; i < CALLS; i++)
        expect(!w->calls[i].open);
}

static void act(struct world *w, struct loop *loop)
{
    uint8_t what = input_byte(&w->in) % 16;
    if (what == 0)
        start_cell(w);
    else if (what == 1)
        start_set(w);
    else if (what == 2)
        reply(w, input_byte(&w->in));
    else if (what == 3)
        session_interrupt(w->session);
    else if (what == 4)
        loop_turn(loop, 0); /* deadlines here are over at once */
    else if (w->ended)
        return;
    else if (what == 5)
        send_bytes(w);
    else if (what == 6)
        send_frame(w, input_byte(&w->in), input_byte(&w->in), 1);
    else if (what == 7)
        send_frame(w, FRAME_READY, 0, 1);
    else if (what == 8)
        send_frame(w, FRAME_CALL, input_byte(&w->in), 1);
    else if (what == 9)
        send_frame(w, FRAME_RESULT, input_byte(&w->in), 1);
    else if (what == 10)
        send_output(w);
    else if (what == 11)
        send_frame(w, FRAME_CANCEL, input_byte(&w->in), 1);
    else if (what == 14)
        send_frame(w, FRAME_DISPLAY, input_byte(&w->in), 1);
    else if (what == 15)
        send_frame(w, FRAME_DISPLAY, input_byte(&w->in), PARTS);
    else if (what == 13)
        send_frame(w, FRAME_RESULT, input_byte(&w->in), PARTS);
    else
        end(w, input_byte(&w->in));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct loop *loop;
    static const struct session_events events = { called, call_dropped, put_out };
    struct session_options options;
    struct error err = { 0 };
    if (!loop)
        expect(loop_open(&loop, NULL) == 0);
    struct world w = { .env = { &world_ops, loop }, .in = { data, size } };
    uint8_t manner = input_byte(&w.in);
    w.answer_at_once = manner & 1;
    w.go_on = manner & 2;
    w.failing_send = manner >> 5;
    session_options_init(&options);
    options.grace = 0;
    options.output_limit = 64;
    int rc = session_open((struct environment *)&w, &options, &events, &w, &w.session, &err);
    if (rc < 0) {
        expect_error(rc, &err);
        expect(!w.open);
        return 0;
    }
    while (w.in.left > 0)
        act(&w, loop);
    /* A sandbox that was killed ends; another one may be closed in the middle of it all. */
    if (w.killed && !w.ended)
        end(&w, manner);
    session_close(w.session);
    expect(!w.open && w.finished <= w.begun && w.begun - w.finished <= 1);
    for (size_t i = 0; i < CALLS; i++)
        expect(!w.calls[i].open);
    loop_turn(loop, 0);
    return 0;
}
