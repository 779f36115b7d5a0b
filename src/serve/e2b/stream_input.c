/* serve/e2b/stream_input.c: StreamInput, whose body is a stream of envelopes with input for one
 * process: {"start": {"process"}}, then {"data": {"input"}} and {"keepalive"} in any number.
 *
 * Nothing more is read from the client while its input waits for the process. The answer, one
 * message and the end, comes when the body has ended and all input was written, or at an error.
 */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/envelope.h"
#include "serve/e2b/process.h"
#include "serve/sandbox/sandbox.h"

struct stream_input {
    struct server *server;
    struct request *r; /* NULL: its client has gone, or is answered */
    char id[SERVE_ID_SIZE];
    struct buf in; /* of the body */
    size_t in_at;
    uint64_t handle; /* of the process; 0: none yet */
    char *data;      /* of the message that is being written */
    size_t len, at;
    bool pending;     /* the sandbox owes an answer */
    bool ended;       /* the body */
    const char *code; /* of the first error; NULL: none */
    char why[256];
};

static void stream_input_continue(struct stream_input *s);

static void stream_input_free(struct stream_input *s)
{
    buf_free(&s->in);
    free(s->data);
    free(s);
}

static void stream_input_on_detached(
    void *arg, const droste_command_reply *reply, const droste_error *err)
{
    stream_input_free(arg);
}

static void stream_input_end(struct stream_input *s)
{
    const droste_command_request request = { .op = "detach", .handle = s->handle };
    struct sandbox *sb = s->handle ? sandbox_find(s->server, s->id) : NULL;
    if (!sb || droste_command_start(sb->session, &request, stream_input_on_detached, s, NULL) < 0)
        stream_input_free(s);
}

static void stream_input_on_free(struct request *r)
{
    struct stream_input *s = r->state;
    r->state = NULL;
    s->r = NULL;
    if (!s->pending)
        stream_input_end(s);
}

/* What comes after an error is read and dropped: the answer can only follow the body. */
static void stream_input_fail(struct stream_input *s, const char *code, const char *text)
{
    s->code = code;
    snprintf(s->why, sizeof s->why, "%.*s", (int)sizeof s->why - 1, text);
}

static void stream_input_answer(struct stream_input *s)
{
    cleanup_buf struct buf out = { 0 }, end = { 0 };
    if (s->code) {
        buf_printf(&end, "{\"error\":{\"code\":\"%s\",\"message\":", s->code);
        json_append_string(&end, s->why, strlen(s->why));
        buf_puts(&end, "}}");
    } else {
        envelope_append(&out, 0, "{}", 2);
        buf_puts(&end, "{}");
    }
    envelope_append(&out, ENVELOPE_END, buf_text(&end), end.len);
    if (buf_failed(&out) || buf_failed(&end))
        request_refuse_memory(s->r);
    else
        request_reply(s->r, 200, "application/connect+json", buf_text(&out), out.len);
}

static void stream_input_start(
    struct stream_input *s, const droste_command_request *request, droste_command_fn *fn)
{
    droste_error err = { .code = DROSTE_ERROR_LOST, .text = "the sandbox has ended" };
    struct sandbox *sb = sandbox_find(s->server, s->id);
    s->pending = sb && droste_command_start(sb->session, request, fn, s, &err) == 0;
    if (!s->pending)
        stream_input_fail(s, connect_code(process_status(&err)), err.text);
}

static void stream_input_on_done(
    void *arg, const droste_command_reply *reply, const droste_error *err)
{
    struct stream_input *s = arg;
    s->pending = false;
    if (!err && !s->handle)
        s->handle = reply->handle;
    if (!s->r) {
        stream_input_end(s);
        return;
    }
    if (err)
        stream_input_fail(s, connect_code(process_status(err)), err->text);
    stream_input_continue(s);
}

static void stream_input_attach(struct stream_input *s, struct json_object *start)
{
    droste_command_request attach = { .op = "attach", .flags = DROSTE_COMMAND_QUIET };
    if (s->handle)
        stream_input_fail(s, "invalid_argument", "the stream has a second start");
    else if (!process_select(start, &attach))
        stream_input_fail(s, "invalid_argument", "name a process by its pid or its tag");
    else
        stream_input_start(s, &attach, stream_input_on_done);
}

static void stream_input_take_data(struct stream_input *s, struct json_object *data)
{
    free(steal(&s->data));
    s->at = s->len = 0;
    if (!s->handle)
        stream_input_fail(s, "invalid_argument", "the stream does not begin with its process");
    else if (!(s->data = process_input(data, &s->len)))
        stream_input_fail(s, "invalid_argument", "the input is not base64 of stdin or pty");
}

static void stream_input_take_message(struct stream_input *s, const char *text, size_t len)
{
    cleanup_json struct json_object *o = NULL;
    struct error why = { 0 };
    if (json_parse(text, len, &json_limits_large, &o, &why) < 0) {
        stream_input_fail(s, "invalid_argument", why.text);
        return;
    }
    struct json_object *start = json_get_typed(o, "start", json_type_object);
    struct json_object *data = json_get_typed(o, "data", json_type_object);
    if (start)
        stream_input_attach(s, start);
    else if (data)
        stream_input_take_data(s, data);
    else if (!json_get_typed(o, "keepalive", json_type_object))
        stream_input_fail(s, "invalid_argument", "a message is neither start, data nor keepalive");
}

/* Takes the next message of the body; false: there is no whole one. */
static bool stream_input_take(struct stream_input *s)
{
    const char *at = buf_text(&s->in) + s->in_at;
    size_t size = 0, left = s->in.len - s->in_at;
    struct error why = { 0 };
    if (envelope_size(at, left, CONNECT_BODY_MAX, &size, &why) < 0) {
        stream_input_fail(s, "resource_exhausted", why.text);
        return true;
    }
    if (size == 0 || size > left)
        return false;
    s->in_at += size;
    if (at[0] != 0)
        stream_input_fail(s, "invalid_argument", "an envelope is compressed, or has other flags");
    else
        stream_input_take_message(s, at + ENVELOPE_HEAD, size - ENVELOPE_HEAD);
    return true;
}

/* Does what is next: a piece of input, a message, more of the body, or the answer. */
static void stream_input_continue(struct stream_input *s)
{
    while (s->r && !s->pending && !s->code) {
        if (s->at < s->len) {
            size_t rest = s->len - s->at;
            const droste_command_request input = { .op = "input",
                .handle = s->handle,
                .data = s->data + s->at,
                .len = rest < DROSTE_COMMAND_PIECE ? rest : DROSTE_COMMAND_PIECE };
            s->at += input.len;
            stream_input_start(s, &input, stream_input_on_done);
        } else if (!stream_input_take(s)) {
            break;
        }
    }
    if (!s->r || s->pending)
        return;
    if (!s->ended) {
        request_resume(s->r); /* reads the next piece */
        return;
    }
    if (!s->code && (s->in_at < s->in.len || !s->handle))
        stream_input_fail(s, "invalid_argument", "the stream of input is cut off");
    stream_input_answer(s);
}

static void stream_input_on_piece(struct request *r, const char *data, size_t len)
{
    struct stream_input *s = r->state;
    if (s->code)
        return;
    if (s->in_at > 0) {
        cleanup_buf struct buf rest = { 0 };
        buf_append(&rest, buf_text(&s->in) + s->in_at, s->in.len - s->in_at);
        buf_clear(&s->in);
        buf_append(&s->in, buf_text(&rest), rest.len);
        s->in_at = 0;
    }
    buf_append(&s->in, data, len);
    if (buf_failed(&s->in)) {
        r->gone = true;
        return;
    }
    stream_input_continue(s);
    if (!r->reply && s->pending)
        request_suspend(r);
}

static void stream_input_on_complete(struct request *r)
{
    struct stream_input *s = r->state;
    s->ended = true;
    stream_input_continue(s);
}

void e2b_handle_process_stream_input(struct request *r)
{
    struct stream_input *s = e2b_running_of(r) ? calloc(1, sizeof *s) : NULL;
    if (!s)
        return;
    s->server = r->server;
    s->r = r;
    memcpy(s->id, r->id, sizeof s->id);
    r->state = s;
    r->on_free = stream_input_on_free;
    r->on_piece = stream_input_on_piece;
    r->on_complete = stream_input_on_complete;
}
