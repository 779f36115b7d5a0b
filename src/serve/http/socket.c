/* serve/http/socket.c: handshake, messages, pings and closing; base/websocket_frame.c has the
 * frames.
 *
 * Why not a library: libmicrohttpd's WebSocket parser is experimental and not in Debian, and the
 * frames are shared with the client in net/websocket.c.
 */
#include "serve/http/socket.h"

#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/text.h"
#include "serve/http/request.h"

/* A client that says nothing is pinged, and dropped when it does not answer. */
enum { SOCKET_PING_SECONDS = 25, SOCKET_SILENT_SECONDS = 60, SOCKET_CLOSE_SECONDS = 5 };
/* Pings are not answered while so much waits. */
enum { SOCKET_PONG_UNSENT_MAX = 64 << 10 };

/* ---- to the client ---- */

static void socket_send_frame(
    struct web_socket *ws, enum websocket_opcode opcode, const void *data, size_t len)
{
    struct iovec piece = { (void *)(uintptr_t)data, len };
    struct buf out = { 0 };
    if (ws->is_closing)
        return;
    websocket_encode(&out, opcode, NULL, &piece, 1);
    if (buf_failed(&out))
        upgrade_drop(&ws->upgrade);
    else
        upgrade_send(&ws->upgrade, out.data, out.len);
    buf_free(&out);
}

void socket_send(struct web_socket *ws, bool is_text, const void *data, size_t len)
{
    socket_send_frame(ws, is_text ? WEBSOCKET_TEXT : WEBSOCKET_BINARY, data, len);
}

size_t socket_unsent(const struct web_socket *ws)
{
    return upgrade_unsent(&ws->upgrade);
}

void socket_pause(struct web_socket *ws, bool is_paused)
{
    upgrade_pause(&ws->upgrade, is_paused && !ws->is_closing);
}

static void socket_begin_close(
    struct web_socket *ws, enum websocket_status status, const char *reason)
{
    char data[WEBSOCKET_CONTROL_MAX] = { (char)(status >> 8), (char)status };
    size_t len = text_utf8_whole(reason, strnlen(reason, sizeof data - 2));
    memcpy(data + 2, reason, len);
    if (ws->is_closing)
        return;
    socket_send_frame(ws, WEBSOCKET_CLOSE, data, status == WEBSOCKET_NO_STATUS ? 0 : len + 2);
    ws->is_closing = true; /* until the client's close frame, or the end of patience */
    ws->closing_ns = clock_ns();
    upgrade_pause(&ws->upgrade, false);
}

void socket_close(struct web_socket *ws, enum websocket_status status, const char *reason)
{
    socket_begin_close(ws, status, reason);
    ws->events = NULL;
}

/* ---- from the client ---- */

static void socket_tell_closed(struct web_socket *ws)
{
    if (ws->events)
        ws->events->closed(ws->arg);
    ws->events = NULL;
}

static void socket_fail(struct web_socket *ws, enum websocket_status status, const char *why)
{
    socket_begin_close(ws, status, why);
    socket_tell_closed(ws);
}

static void socket_take_message(
    struct web_socket *ws, bool is_text, bool end, const char *data, size_t len)
{
    if (ws->is_closing)
        return;
    buf_append(&ws->message, data, len);
    if (buf_failed(&ws->message)) {
        socket_fail(ws, WEBSOCKET_FAILED, "out of memory");
        return;
    }
    if (!end)
        return;
    struct buf whole = ws->message;
    ws->message = (struct buf){ 0 };
    if (is_text && !text_is_utf8(buf_text(&whole), whole.len, NULL))
        socket_fail(ws, WEBSOCKET_NO_TEXT, "a text message is not UTF-8");
    else
        ws->events->message(ws->arg, is_text, buf_text(&whole), whole.len);
    buf_free(&whole);
}

static void socket_take_close(struct web_socket *ws, const char *data, size_t len)
{
    unsigned status;
    const char *reason;
    size_t n;
    bool valid = websocket_read_close(data, len, &status, &reason, &n, NULL) == 0;
    socket_begin_close(ws, valid ? status : WEBSOCKET_WRONG, "");
    socket_tell_closed(ws);
    upgrade_end(&ws->upgrade);
}

static bool socket_on_piece(
    void *arg, enum websocket_opcode kind, bool end, const char *data, size_t len)
{
    struct web_socket *ws = arg;
    if (kind == WEBSOCKET_TEXT || kind == WEBSOCKET_BINARY)
        socket_take_message(ws, kind == WEBSOCKET_TEXT, end, data, len);
    else if (kind == WEBSOCKET_CLOSE)
        socket_take_close(ws, data, len);
    else if (kind == WEBSOCKET_PING && socket_unsent(ws) < SOCKET_PONG_UNSENT_MAX)
        socket_send_frame(ws, WEBSOCKET_PONG, data, len);
    return true;
}

static void socket_on_bytes(void *arg, const char *data, size_t len)
{
    struct web_socket *ws = arg;
    struct error why = { 0 };
    enum websocket_status status;
    ws->heard_ns = clock_ns();
    ws->has_pinged = false;
    if (websocket_decode(&ws->decoder, data, len, socket_on_piece, ws, &status, &why) == 0)
        return;
    socket_fail(ws, status, why.text);
    upgrade_end(&ws->upgrade); /* what follows cannot be read */
}

/* ---- the connection ---- */

static void socket_on_sent(void *arg)
{
    struct web_socket *ws = arg;
    if (ws->events && !ws->is_closing)
        ws->events->drained(ws->arg);
}

static void socket_on_closed(void *arg)
{
    struct web_socket *ws = arg;
    ws->is_closing = true;
    socket_tell_closed(ws);
}

static void socket_on_drain(void *arg)
{
    socket_fail(arg, WEBSOCKET_GOING_AWAY, "the server is stopping");
}

static void socket_on_tick(void *arg, uint64_t now)
{
    struct web_socket *ws = arg;
    if (ws->upgrade.is_paused)
        ws->heard_ns = now; /* it may have said something */
    double silent = (double)(now - ws->heard_ns) / 1e9;
    double closing = ws->is_closing ? (double)(now - ws->closing_ns) / 1e9 : 0;
    if (closing > SOCKET_CLOSE_SECONDS || (silent > SOCKET_SILENT_SECONDS && ws->has_pinged)) {
        ws->is_closing = true;
        upgrade_drop(&ws->upgrade);
        socket_tell_closed(ws);
    } else if (silent > SOCKET_PING_SECONDS && !ws->has_pinged) {
        socket_send_frame(ws, WEBSOCKET_PING, "", 0);
        ws->has_pinged = true;
    }
}

/* ---- the handshake ---- */

bool socket_offered(const char *list, const char *prefix, char *out, size_t size)
{
    size_t n = strlen(prefix);
    for (const char *at = list; at && *at;) {
        at += strspn(at, " \t,");
        size_t len = strcspn(at, " \t,");
        if (len >= n && strncasecmp(at, prefix, n) == 0 && len - n < size) {
            memcpy(out, at + n, len - n);
            out[len - n] = '\0';
            return true;
        }
        at += len;
    }
    return false;
}

static bool socket_has_word(struct request *r, const char *name, const char *word)
{
    char rest[2]; /* nothing may follow the word */
    const char *list = request_header_of(r, name);
    return list && socket_offered(list, word, rest, 1);
}

/* A key is 16 bytes in base64. */
static bool socket_is_key(const char *key)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    return key && strlen(key) == 24 && strspn(key, digits) == 22 && strcmp(key + 22, "==") == 0;
}

static bool socket_is_asked_for(struct request *r)
{
    const char *version = request_header_of(r, "Sec-WebSocket-Version");
    if (!socket_has_word(r, MHD_HTTP_HEADER_UPGRADE, "websocket") ||
        !socket_has_word(r, MHD_HTTP_HEADER_CONNECTION, "Upgrade")) {
        request_refuse(r, 426, "upgrade", "this path is a WebSocket (RFC 6455): send an Upgrade");
        request_header(r, MHD_HTTP_HEADER_UPGRADE, "websocket");
        return false;
    }
    if (!version || strcmp(version, "13") != 0) {
        request_refuse(r, 426, "upgrade", "the version of WebSockets must be 13");
        request_header(r, "Sec-WebSocket-Version", "13");
        return false;
    }
    if (socket_is_key(request_header_of(r, "Sec-WebSocket-Key")))
        return true;
    request_refuse(r, 400, "upgrade", "Sec-WebSocket-Key is not 16 bytes in base64");
    return false;
}

bool socket_accept(struct request *r, struct web_socket *ws, const char *protocol,
    const struct socket_events *events, void *arg)
{
    struct buf answer = { 0 };
    if (!socket_is_asked_for(r))
        return false;
    if (websocket_accept(request_header_of(r, "Sec-WebSocket-Key"), &answer, NULL) < 0) {
        buf_free(&answer);
        request_refuse_memory(r);
        return false;
    }
    *ws = (struct web_socket){
        .decoder = { .message_max = SOCKET_MESSAGE_MAX, .from_client = true },
        .events = events,
        .arg = arg,
        .heard_ns = clock_ns(),
        .upgrade = { .arg = ws,
            .on_bytes = socket_on_bytes,
            .on_sent = socket_on_sent,
            .on_closed = socket_on_closed,
            .on_drain = socket_on_drain,
            .on_tick = socket_on_tick },
    };
    upgrade_begin(r, &ws->upgrade);
    request_header(r, MHD_HTTP_HEADER_UPGRADE, "websocket");
    request_header(r, "Sec-WebSocket-Accept", buf_text(&answer));
    if (socket_has_word(r, "Sec-WebSocket-Protocol", protocol))
        request_header(r, "Sec-WebSocket-Protocol", protocol);
    buf_free(&answer);
    return true;
}

void socket_free(struct web_socket *ws)
{
    buf_free(&ws->message);
    upgrade_free(&ws->upgrade);
}
