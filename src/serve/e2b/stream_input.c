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
#include "serve/sandbox/exchange.h"

struct stream_input {
    struct exchange *x;
    struct buf in; /* of the body */
    size_t in_at;
    bool ended;       /* the body */
    const char *code; /* of the first error; NULL: none */
    char why[256];
};

static void stream_input_continue(struct stream_input *s);

static void stream_input_on_free(struct request *r)
{
    struct exchange *x = r->state;
    struct stream_input *s = x->arg;
    exchange_on_free(r);
    buf_free(&s->in);
    free(s);
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
        request_refuse_memory(s->x->r);
    else
        request_reply(s->x->r, 200, "application/connect+json", buf_text(&out), out.len);
}

static void stream_input_on_error(struct exchange *x, const droste_error *err)
{
    stream_input_fail(x->arg, connect_code(process_status(err)), err->text);
    stream_input_continue(x->arg);
}

static void stream_input_on_done(struct exchange *x)
{
    stream_input_continue(x->arg);
}

static void stream_input_attach(struct stream_input *s, struct json_object *start)
{
    droste_command_request attach = { .op = "attach", .flags = DROSTE_COMMAND_QUIET };
    if (s->x->attached)
        stream_input_fail(s, "invalid_argument", "the stream has a second start");
    else if (!process_select(start, &attach))
        stream_input_fail(s, "invalid_argument", "name a process by its pid or its tag");
    else
        exchange_open(s->x, &attach);
}

static void stream_input_take_data(struct stream_input *s, struct json_object *data)
{
    struct exchange *x = s->x;
    free(steal(&x->owned_input));
    x->sent = x->len = 0;
    if (!x->attached)
        stream_input_fail(s, "invalid_argument", "the stream does not begin with its process");
    else if (!(x->input = x->owned_input = process_input(data, &x->len)))
        stream_input_fail(s, "invalid_argument", "the input is not base64 of stdin or pty");
    else if (x->len > 0)
        exchange_write(x);
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

/* Does what is next: a message, more of the body, or the answer. */
static void stream_input_continue(struct stream_input *s)
{
    struct exchange *x = s->x;
    while (!x->pending && !s->code && stream_input_take(s))
        ;
    if (x->pending || x->r->reply)
        return;
    if (!s->ended) {
        request_resume(x->r); /* reads the next piece */
        return;
    }
    if (!s->code && (s->in_at < s->in.len || !x->attached))
        stream_input_fail(s, "invalid_argument", "the stream of input is cut off");
    stream_input_answer(s);
}

static void stream_input_on_piece(struct request *r, const char *data, size_t len)
{
    struct exchange *x = r->state;
    struct stream_input *s = x->arg;
    if (s->code)
        return;
    buf_consume(&s->in, s->in_at);
    s->in_at = 0;
    buf_append(&s->in, data, len);
    if (buf_failed(&s->in)) {
        r->gone = true;
        return;
    }
    stream_input_continue(s);
    if (!r->reply && x->pending)
        request_suspend(r);
}

static void stream_input_on_complete(struct request *r)
{
    struct exchange *x = r->state;
    struct stream_input *s = x->arg;
    s->ended = true;
    stream_input_continue(s);
}

void e2b_handle_process_stream_input(struct request *r)
{
    struct exchange *x = e2b_running_of(r) ? exchange_new(r) : NULL;
    struct stream_input *s = x ? request_alloc(r, sizeof *s) : NULL;
    if (!s)
        return;
    s->x = x;
    x->arg = s;
    x->fail = stream_input_on_error;
    x->next = x->done = stream_input_on_done;
    r->on_free = stream_input_on_free;
    r->on_piece = stream_input_on_piece;
    r->on_complete = stream_input_on_complete;
}
