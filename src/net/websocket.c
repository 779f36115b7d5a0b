/* net/websocket.c: handshake, messages and closing; base/websocket_frame.c has the frames. */
#include "net/websocket.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "base/json/json.h"
#include "base/os/random.h"
#include "base/text.h"
#include "base/websocket_frame.h"
#include "net/stream.h"

enum {
    KEY_SIZE = 16,
    PONGS_WAITING = 1 << 20, /* queued bytes above which pings are not answered */
};

struct websocket {
    struct websocket_events events;
    void *arg;
    enum error_code code;
    char *peer;
    struct buf accept; /* the expected Sec-WebSocket-Accept */
    struct stream *stream;
    struct websocket_decoder decoder;
    struct buf out, text;
    unsigned http;
    bool open, heard;
    bool over;      /* `closed` was or will be called */
    unsigned depth; /* our frames on the stack; the last one frees it */
    bool closing;
};

static void websocket_free(struct websocket *ws)
{
    stream_close(ws->stream);
    buf_free(&ws->accept);
    buf_free(&ws->out);
    buf_free(&ws->text);
    free(ws->peer);
    free(ws);
}

static void websocket_leave(struct websocket *ws)
{
    if (--ws->depth == 0 && ws->closing)
        websocket_free(ws);
}

/* ---- to the server ---- */

static int websocket_send_frame(struct websocket *ws, enum websocket_opcode opcode,
    const struct iovec *iov, int count, struct error *err)
{
    unsigned char mask[4];
    if (!ws->open || ws->over)
        return 0;
    int rc = random_bytes(mask, sizeof mask, err);
    if (rc < 0)
        return rc;
    buf_clear(&ws->out);
    websocket_encode(&ws->out, opcode, mask, iov, count);
    if (buf_failed(&ws->out))
        return error_memory(err);
    return stream_send(ws->stream, &(struct iovec){ ws->out.data, ws->out.len }, 1, err);
}

static void send_control(
    struct websocket *ws, enum websocket_opcode opcode, const char *data, size_t len)
{
    websocket_send_frame(ws, opcode, &(struct iovec){ (void *)(uintptr_t)data, len }, 1, NULL);
}

static void send_close(struct websocket *ws, unsigned status)
{
    char code[2] = { (char)(status >> 8), (char)status };
    send_control(ws, WEBSOCKET_CLOSE, code, status == WEBSOCKET_NO_STATUS ? 0 : sizeof code);
}

/* ---- its end ---- */

static void websocket_tell_closed(struct websocket *ws, const struct websocket_end *end)
{
    if (ws->over)
        return;
    ws->over = true;
    ws->events.closed(ws->arg, end);
}

static void tell_wrong(struct websocket *ws, enum websocket_status status, const struct error *why)
{
    struct websocket_end end = { .reason = "", .error = *why };
    send_close(ws, status);
    error_wrap(&end.error, "%.80s", ws->peer);
    websocket_tell_closed(ws, &end);
}

static void closed_by_server(struct websocket *ws, const char *data, size_t len)
{
    char words[WEBSOCKET_CONTROL_MAX + 1];
    struct websocket_end end = { .reason = words };
    struct error err = { 0 };
    const char *reason;
    size_t n;
    if (websocket_read_close(data, len, &end.status, &reason, &n, &err) < 0) {
        tell_wrong(ws, WEBSOCKET_WRONG, &err);
        return;
    }
    memcpy(words, reason, n);
    words[n] = '\0';
    send_close(ws, end.status);
    websocket_tell_closed(ws, &end);
}

/* ---- from the server ---- */

static void websocket_take_text(struct websocket *ws, bool end, const char *data, size_t len)
{
    struct error why = { 0 };
    buf_append(&ws->text, data, len);
    if (!end && !buf_failed(&ws->text))
        return;
    cleanup_buf struct buf text = ws->text;
    ws->text = (struct buf){ 0 };
    if (buf_failed(&text)) {
        error_memory(&why);
        tell_wrong(ws, WEBSOCKET_TOO_LARGE, &why);
    } else if (!text_is_utf8(buf_text(&text), text.len, NULL)) {
        error_set(&why, ERROR_PROTOCOL, "a WebSocket message of text is none");
        tell_wrong(ws, WEBSOCKET_NO_TEXT, &why);
    } else {
        ws->events.text(ws->arg, buf_text(&text), text.len);
    }
}

static bool take_piece(
    void *arg, enum websocket_opcode kind, bool end, const char *data, size_t len)
{
    struct websocket *ws = arg;
    if (kind == WEBSOCKET_TEXT)
        websocket_take_text(ws, end, data, len);
    else if (kind == WEBSOCKET_BINARY && len > 0)
        ws->events.bytes(ws->arg, data, len);
    else if (kind == WEBSOCKET_CLOSE)
        closed_by_server(ws, data, len);
    else if (kind == WEBSOCKET_PING && stream_waiting(ws->stream) < PONGS_WAITING)
        send_control(ws, WEBSOCKET_PONG, data, len);
    return !ws->closing && !ws->over;
}

static void websocket_stream_bytes(void *arg, const char *data, size_t len)
{
    struct websocket *ws = arg;
    struct error why = { 0 };
    enum websocket_status status;
    ws->depth++;
    ws->heard = true;
    if (websocket_decode(&ws->decoder, data, len, take_piece, ws, &status, &why) < 0 &&
        !ws->closing)
        tell_wrong(ws, status, &why);
    websocket_leave(ws);
}

static void websocket_stream_connected(void *arg)
{
    struct websocket *ws = arg;
    ws->depth++;
    ws->open = ws->heard = true;
    ws->events.connected(ws->arg);
    websocket_leave(ws);
}

static void websocket_stream_closed(void *arg, const struct error *why)
{
    struct websocket *ws = arg;
    struct websocket_end end = { .http = ws->http, .reason = "", .error = *why };
    ws->depth++;
    if (why->code == ERROR_NONE)
        error_set(&end.error, ws->code, "%.80s: the connection ended without a closing message",
            ws->peer);
    websocket_tell_closed(ws, &end);
    websocket_leave(ws);
}

/* ---- the handshake ---- */

/* The value of the first header with this name; NULL if absent. `len` excludes surrounding white
 * space. */
static const char *find_header(const char *head, const char *name, size_t *len)
{
    size_t n = strlen(name);
    for (const char *line = head; (line = strstr(line, "\r\n")) && line[2] != '\r';) {
        line += 2;
        if (strncasecmp(line, name, n) != 0 || line[n] != ':')
            continue;
        const char *value = line + n + 1;
        value += strspn(value, " \t");
        *len = strcspn(value, "\r\n");
        while (*len > 0 && strchr(" \t", value[*len - 1]))
            (*len)--;
        return value;
    }
    return NULL;
}

/* Whether the header has this value, or contains this word. */
static bool websocket_has_word(const char *head, const char *name, const char *word)
{
    size_t len = 0, n = strlen(word);
    const char *at = find_header(head, name, &len), *end = at ? at + len : NULL;
    while (at && at < end) {
        size_t part = strcspn(at, ",\r\n"), white = strspn(at, " \t");
        if (part >= white + n && strncasecmp(at + white, word, n) == 0 &&
            strspn(at + white + n, " \t") >= part - white - n)
            return true;
        at += part + 1;
    }
    return false;
}

static int websocket_refused(struct websocket *ws, const char *what, struct error *err)
{
    return error_set(err, ERROR_PROTOCOL, "%.80s: its answer %s", ws->peer, what);
}

static int websocket_agree(void *arg, unsigned status, const char *head, struct error *err)
{
    struct websocket *ws = arg;
    size_t len = 0;
    const char *body = strstr(head, "\r\n\r\n"), *accept;
    if (status != 101) {
        ws->http = status;
        return error_set(err, ws->code, "%.80s: %.*s: %.120s", ws->peer, (int)strcspn(head, "\r\n"),
            head, body ? body + 4 : "");
    }
    if (!websocket_has_word(head, "Upgrade", "websocket") ||
        !websocket_has_word(head, "Connection", "Upgrade"))
        return websocket_refused(ws, "is not an upgrade to a WebSocket", err);
    accept = find_header(head, "Sec-WebSocket-Accept", &len);
    if (!accept || len != ws->accept.len || memcmp(accept, ws->accept.data, len) != 0)
        return websocket_refused(ws, "was not made for this request (Sec-WebSocket-Accept)", err);
    if (find_header(head, "Sec-WebSocket-Extensions", &len) ||
        find_header(head, "Sec-WebSocket-Protocol", &len))
        return websocket_refused(
            ws, "has an extension or a subprotocol, which was not requested", err);
    return 0;
}

static bool fits_a_line(const char *text)
{
    return text[strcspn(text, "\r\n")] == '\0';
}

/* Creates the request, and the accept value that the response must have. */
static int make_request(
    struct websocket *ws, const struct websocket_options *o, struct buf *out, struct error *err)
{
    unsigned char random[KEY_SIZE];
    cleanup_buf struct buf key = { 0 };
    const char *host = strstr(o->url, "://");
    if (!host || !fits_a_line(o->url) || strchr(o->url, ' '))
        return error_set(err, ERROR_ARGUMENT, "%.80s: the address is not a URL", o->peer);
    host += 3;
    int rc = random_bytes(random, sizeof random, err);
    if (rc < 0)
        return rc;
    json_append_base64(&key, random, sizeof random);
    size_t n = strcspn(host, "/?");
    buf_printf(out,
        "GET %s%s HTTP/1.1\r\nHost: %.*s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n",
        host[n] == '/' ? "" : "/", host + n, (int)n, host, buf_text(&key));
    for (size_t i = 0; i < o->header_count; i++) {
        if (!fits_a_line(o->headers[i]))
            return error_set(err, ERROR_ARGUMENT, "a header of the request contains a line break");
        buf_printf(out, "%s\r\n", o->headers[i]);
    }
    buf_puts(out, "\r\n");
    if (buf_failed(out) || buf_failed(&key))
        return error_memory(err);
    return websocket_accept(buf_text(&key), &ws->accept, err);
}

/* ---- the user's ---- */

static int connect_to(
    struct loop *loop, struct websocket *ws, const struct websocket_options *o, struct error *err)
{
    static const struct stream_events events = { websocket_stream_connected, websocket_stream_bytes,
        websocket_stream_closed };
    cleanup_buf struct buf request = { 0 };
    int rc = make_request(ws, o, &request, err);
    if (rc < 0)
        return rc;
    struct stream_options options = { .url = o->url,
        .connect_options = o->connect_options,
        .peer = o->peer,
        .code = o->code,
        .connect_timeout = o->connect_timeout,
        .upgrade = buf_text(&request),
        .agree = websocket_agree };
    return stream_open(loop, &options, &events, ws, &ws->stream, err);
}

int websocket_open(struct loop *loop, const struct websocket_options *options,
    const struct websocket_events *events, void *arg, struct websocket **out, struct error *err)
{
    struct websocket *ws = calloc(1, sizeof *ws);
    if (!ws)
        return error_memory(err);
    *ws = (struct websocket){ .events = *events,
        .arg = arg,
        .code = options->code,
        .decoder.message_max = options->message_max };
    ws->peer = strdup(options->peer);
    int rc = ws->peer ? connect_to(loop, ws, options, err) : error_memory(err);
    if (rc < 0) {
        websocket_free(ws);
        return rc;
    }
    *out = ws;
    return 0;
}

int websocket_send(struct websocket *ws, const struct iovec *iov, int count, struct error *err)
{
    return websocket_send_frame(ws, WEBSOCKET_BINARY, iov, count, err);
}

void websocket_ping(struct websocket *ws)
{
    send_control(ws, WEBSOCKET_PING, "", 0);
}

bool websocket_heard(struct websocket *ws)
{
    bool heard = ws->heard;
    ws->heard = false;
    return heard;
}

size_t websocket_waiting(const struct websocket *ws)
{
    return stream_waiting(ws->stream);
}

void websocket_pause(struct websocket *ws, bool paused)
{
    stream_pause(ws->stream, paused);
}

void websocket_close(struct websocket *ws)
{
    if (!ws)
        return;
    ws->depth++;
    send_close(ws, WEBSOCKET_NORMAL);
    ws->closing = ws->over = true;
    websocket_leave(ws);
}
