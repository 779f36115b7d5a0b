/* net/connect.c: calls, envelopes, and the mapping of errors. */
#include "net/connect.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/envelope.h"
#include "base/text.h"

enum { WORDS_MOST = 150 };

static const struct {
    const char *name;
    long status; /* of a response by a proxy instead of the service */
    enum error_code error;
} codes[] = {
    [CONNECT_OK] = { "", 0, ERROR_NONE },
    [CONNECT_CUT] = { "", 0, ERROR_LOST },
    [CONNECT_CANCELED] = { "canceled", 499, ERROR_LOST },
    [CONNECT_UNKNOWN] = { "unknown", 0, ERROR_ENVIRONMENT },
    [CONNECT_INVALID_ARGUMENT] = { "invalid_argument", 400, ERROR_ENVIRONMENT },
    [CONNECT_DEADLINE_EXCEEDED] = { "deadline_exceeded", 504, ERROR_LOST },
    [CONNECT_NOT_FOUND] = { "not_found", 404, ERROR_LOST },
    [CONNECT_ALREADY_EXISTS] = { "already_exists", 409, ERROR_ENVIRONMENT },
    [CONNECT_PERMISSION_DENIED] = { "permission_denied", 403, ERROR_PERMISSION },
    [CONNECT_RESOURCE_EXHAUSTED] = { "resource_exhausted", 429, ERROR_ENVIRONMENT },
    [CONNECT_FAILED_PRECONDITION] = { "failed_precondition", 0, ERROR_ENVIRONMENT },
    [CONNECT_ABORTED] = { "aborted", 0, ERROR_ENVIRONMENT },
    [CONNECT_OUT_OF_RANGE] = { "out_of_range", 0, ERROR_ENVIRONMENT },
    [CONNECT_UNIMPLEMENTED] = { "unimplemented", 501, ERROR_UNSUPPORTED },
    [CONNECT_INTERNAL] = { "internal", 500, ERROR_ENVIRONMENT },
    [CONNECT_UNAVAILABLE] = { "unavailable", 503, ERROR_LOST },
    [CONNECT_DATA_LOSS] = { "data_loss", 0, ERROR_ENVIRONMENT },
    [CONNECT_UNAUTHENTICATED] = { "unauthenticated", 401, ERROR_PERMISSION },
};

struct connect_call {
    struct rest_request *request;
    struct connect_handler handler;
    void *arg;
    struct connect_decoder decoder;
    bool is_stream;
    bool over;    /* ignores further input */
    bool feeding; /* if cancelled meanwhile, it is freed afterwards */
    bool cancelled;
    struct timer *late; /* reports an end that came from within the stream */
};

/* ---- what a service says ---- */

static enum connect_code code_of_name(const char *name)
{
    for (enum connect_code c = CONNECT_CANCELED; name && c < array_length(codes); c++)
        if (strcmp(codes[c].name, name) == 0)
            return c;
    return CONNECT_UNKNOWN;
}

/* A 502 comes from a proxy whose service is unavailable. */
static enum connect_code code_of_status(long status)
{
    for (enum connect_code c = CONNECT_CANCELED; c < array_length(codes); c++)
        if (codes[c].status == status)
            return c;
    return status == 0 ? CONNECT_CUT : status == 502 ? CONNECT_UNAVAILABLE : CONNECT_UNKNOWN;
}

/* {"code": …, "message": …} */
static void read_error(struct json_object *o, struct connect_result *result)
{
    cleanup_buf struct buf words = { 0 };
    const char *name = json_get_string(o, "code", NULL);
    const char *text = json_get_string(o, "message", "it gave no reason");
    result->code = code_of_name(name);
    text_append_visible(&words, text, strnlen(text, WORDS_MOST));
    error_set(&result->error, codes[result->code].error, "%s: %s",
        result->code == CONNECT_UNKNOWN ? "unknown" : codes[result->code].name, buf_text(&words));
}

/* ---- envelopes ---- */

static int connect_take_end(
    struct connect_decoder *d, const char *data, size_t len, struct error *err)
{
    cleanup_json struct json_object *o = NULL;
    int rc = json_parse(data, len, &json_limits_small, &o, err);
    if (rc < 0)
        return rc;
    struct json_object *error = json_get_typed(o, "error", json_type_object);
    d->ended = true;
    d->result = (struct connect_result){ 0 };
    if (error)
        read_error(error, &d->result);
    return 0;
}

static int take_envelope(struct connect_decoder *d, const char *data, size_t size,
    bool (*message)(void *arg, const char *data, size_t len), void *arg, struct error *err)
{
    unsigned flags = (unsigned char)data[0];
    data += ENVELOPE_HEAD;
    size -= ENVELOPE_HEAD;
    if (flags == ENVELOPE_END)
        return connect_take_end(d, data, size, err);
    if (flags != 0)
        return error_set(err, ERROR_PROTOCOL, "an envelope with the flags %#x", flags);
    return message(arg, data, size) ? 0 : 1;
}

/* Processes the complete envelopes; *used is their length. */
static int take_whole(struct connect_decoder *d, const char *data, size_t len, size_t *used,
    bool (*message)(void *arg, const char *data, size_t len), void *arg, struct error *err)
{
    size_t size = 0;
    int rc = 0;
    *used = 0;
    while (rc == 0 && *used < len) {
        if (d->ended)
            return error_set(err, ERROR_PROTOCOL, "more behind the end of a stream");
        rc = envelope_size(data + *used, len - *used, CONNECT_MESSAGE_MAX, &size, err);
        if (rc < 0 || size == 0 || size > len - *used)
            return rc;
        rc = take_envelope(d, data + *used, size, message, arg, err);
        *used += size;
    }
    return rc;
}

int connect_feed(struct connect_decoder *d, const char *data, size_t len,
    bool (*message)(void *arg, const char *data, size_t len), void *arg, struct error *err)
{
    size_t used;
    if (d->in.len == 0) {
        int rc = take_whole(d, data, len, &used, message, arg, err);
        if (rc != 0)
            return rc;
        buf_append(&d->in, data + used, len - used);
        return buf_failed(&d->in) ? error_memory(err) : 0;
    }
    buf_append(&d->in, data, len);
    if (buf_failed(&d->in))
        return error_memory(err);
    int rc = take_whole(d, d->in.data, d->in.len, &used, message, arg, err);
    buf_consume(&d->in, used);
    return rc;
}

/* ---- calls ---- */

static void connect_call_free(struct connect_call *c)
{
    timer_free(c->late);
    buf_free(&c->decoder.in);
    free(c);
}

void connect_cancel(struct connect_call *c)
{
    if (!c)
        return;
    rest_cancel(steal(&c->request));
    c->cancelled = true;
    if (!c->feeding)
        connect_call_free(c);
}

static void connect_finish(struct connect_call *c, const struct connect_result *result)
{
    struct connect_result copy = *result;
    struct connect_handler handler = c->handler;
    void *arg = c->arg;
    connect_call_free(c);
    handler.done(arg, &copy);
}

/* The stream has reported its outcome; the rest of the response does not matter. */
static void connect_report_late(void *arg)
{
    struct connect_call *c = arg;
    rest_cancel(steal(&c->request));
    connect_finish(c, &c->decoder.result);
}

static bool connect_on_message(void *arg, const char *data, size_t len)
{
    struct connect_call *c = arg;
    c->handler.message(c->arg, data, len);
    return !c->cancelled;
}

static void on_piece(void *arg, const char *data, size_t len)
{
    struct connect_call *c = arg;
    if (c->over)
        return;
    c->feeding = true;
    int rc = connect_feed(&c->decoder, data, len, connect_on_message, c, &c->decoder.result.error);
    c->feeding = false;
    if (c->cancelled) {
        connect_call_free(c);
        return;
    }
    if (rc < 0)
        c->decoder.result.code = CONNECT_UNKNOWN;
    c->over = rc < 0 || c->decoder.ended;
    if (c->over)
        timer_start(c->late, 0, 0);
}

static void connect_explain(
    const struct connect_call *c, const struct rest_answer *answer, struct connect_result *result)
{
    const char *name = json_get_string(answer->body, "code", NULL);
    if (name && code_of_name(name) != CONNECT_UNKNOWN) {
        read_error(answer->body, result);
        return;
    }
    result->code = code_of_status(answer->error.code == ERROR_TIMEOUT ? 0 : answer->status);
    if (answer->status < 400)
        result->code = CONNECT_CUT;
    result->error = answer->error;
}

static void connect_on_done(void *arg, const struct rest_answer *answer)
{
    struct connect_call *c = arg;
    struct connect_result result = { 0 };
    c->request = NULL;
    if (c->over) {
        connect_finish(c, &c->decoder.result);
        return;
    }
    if (answer->error.code != ERROR_NONE) {
        connect_explain(c, answer, &result);
    } else if (c->is_stream) {
        result.code = CONNECT_CUT;
        error_set(&result.error, ERROR_LOST, "the stream ended without saying how");
    }
    connect_finish(c, &result);
}

static int call_open(struct rest *service, struct rest_ask *ask,
    const struct connect_handler *handler, void *arg, struct connect_call **out, struct error *err)
{
    struct connect_call *c = calloc(1, sizeof *c);
    if (!c)
        return error_memory(err);
    *c = (struct connect_call){ .handler = *handler, .arg = arg, .is_stream = ask->piece != NULL };
    c->late = timer_new(rest_loop(service), connect_report_late, c);
    ask->method = "POST";
    ask->done = connect_on_done;
    ask->arg = c;
    int rc = c->late ? rest_send(service, ask, &c->request, err) : error_memory(err);
    if (rc < 0) {
        connect_call_free(c);
        return rc;
    }
    *out = c;
    return 0;
}

int connect_send(struct rest *service, const char *path, const struct buf *message, bool again,
    double seconds, const struct connect_handler *handler, void *arg, struct connect_call **out,
    struct error *err)
{
    struct rest_ask ask = { .path = path,
        .data = buf_text(message),
        .len = message->len,
        .type = "application/proto",
        .again = again,
        .seconds = seconds };
    return call_open(service, &ask, handler, arg, out, err);
}

int connect_stream(struct rest *service, const char *path, const struct buf *message,
    const struct connect_handler *handler, void *arg, struct connect_call **out, struct error *err)
{
    cleanup_buf struct buf body = { 0 };
    envelope_append(&body, 0, message->data, message->len);
    if (buf_failed(&body))
        return error_memory(err);
    struct rest_ask ask = { .path = path,
        .data = buf_text(&body),
        .len = body.len,
        .type = "application/connect+proto",
        .piece = on_piece };
    return call_open(service, &ask, handler, arg, out, err);
}
