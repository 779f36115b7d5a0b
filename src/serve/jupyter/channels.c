/* serve/jupyter/channels.c: the WebSocket of a kernel, whose messages have a channel each, and the
 * two formats of a message.
 *
 * Without a subprotocol a message is one JSON object as text; before it, in a binary message, is a
 * table of buffers, which nothing here uses. In v1.kernel.websocket.jupyter.org it is binary: a
 * table of offsets, little-endian and 64 bits wide, then the channel, header, parent header,
 * metadata, content and buffers.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json/fields.h"
#include "serve/jupyter/jupyter.h"

#define BINARY_PROTOCOL "v1.kernel.websocket.jupyter.org"

/* What waits for a client beyond output, such as results, and then ends its connection. */
enum { CHANNEL_UNSENT_MAX = 64 << 20, CHANNEL_PARTS_MAX = 256, CHANNELS_MOST = 64 };

static const char *const channel_names[] = { "shell", "control", "stdin", "iopub" };

enum { PART_CHANNEL, PART_HEADER, PART_PARENT, PART_METADATA, PART_CONTENT, PARTS };

/* ---- to clients ---- */

static void channel_append_header(
    struct jupyter_kernel *k, struct buf *out, const char *type, int64_t ms)
{
    char id[JUPYTER_ID_SIZE];
    cleanup_buf struct buf number = { 0 };
    jupyter_print_id(k->id, id);
    buf_printf(&number, "%s_%llu", id, (unsigned long long)k->sent);
    buf_putc(out, '{');
    field_string(out, "msg_id", buf_text(&number));
    field_string(out, "msg_type", type);
    field_string(out, "username", "droste");
    field_string(out, "session", id);
    field_time(out, "date", ms);
    field_string(out, "version", JUPYTER_PROTOCOL);
    buf_putc(out, '}');
}

static void channel_append_u64(struct buf *out, uint64_t n)
{
    for (int i = 0; i < 8; i++)
        buf_putc(out, (char)(n >> (8 * i)));
}

/* `parts`: as the enumeration has them. */
static void channel_print(bool is_binary, const char *const parts[PARTS], struct buf *out)
{
    static const char *const names[] = { "channel", "header", "parent_header", "metadata",
        "content" };
    uint64_t at = 8 * (PARTS + 2);
    if (is_binary) {
        channel_append_u64(out, PARTS + 1);
        for (int i = 0; i <= PARTS; i++) {
            channel_append_u64(out, at);
            at += i < PARTS ? strlen(parts[i]) : 0;
        }
        for (int i = 0; i < PARTS; i++)
            buf_puts(out, parts[i]);
        return;
    }
    buf_putc(out, '{');
    field_string(out, names[0], parts[0]);
    for (int i = 1; i < PARTS; i++)
        field_json(out, names[i], parts[i]);
    field_json(out, "buffers", "[]");
}

static void channel_put(struct jupyter_channel *ch, const char *const parts[PARTS],
    const char *type, const char *number)
{
    cleanup_buf struct buf out = { 0 };
    channel_print(ch->is_binary, parts, &out);
    if (!ch->is_binary) {
        field_string(&out, "msg_id", number);
        field_string(&out, "msg_type", type);
        buf_putc(&out, '}');
    }
    if (buf_failed(&out) || socket_unsent(&ch->socket) > CHANNEL_UNSENT_MAX)
        socket_close(&ch->socket, WEBSOCKET_FAILED, "the client does not read");
    else
        socket_send(&ch->socket, !ch->is_binary, out.data, out.len);
}

static void channel_tell_lost(struct jupyter_channel *ch, const char *const parts[PARTS])
{
    const char *own[PARTS];
    cleanup_buf struct buf text = { 0 }, content = { 0 };
    memcpy(own, parts, sizeof own);
    buf_printf(&text, "[%llu bytes of output were left out: they were not read in time]\n",
        (unsigned long long)ch->lost);
    ch->lost = 0;
    buf_putc(&content, '{');
    field_string(&content, "name", "stderr");
    field_string(&content, "text", buf_text(&text));
    buf_putc(&content, '}');
    own[PART_CONTENT] = buf_text(&content);
    channel_put(ch, own, "stream", "lost");
}

void jupyter_send(struct jupyter_kernel *k, struct jupyter_channel *to,
    enum jupyter_channel_name channel, const struct jupyter_message *parent, const char *type,
    const struct buf *content)
{
    cleanup_buf struct buf header = { 0 };
    char number[JUPYTER_ID_SIZE + 24], id[JUPYTER_ID_SIZE];
    bool is_output = strcmp(type, "stream") == 0;
    if (!k->channels)
        return;
    channel_append_header(k, &header, type, clock_wall_ms());
    jupyter_print_id(k->id, id);
    snprintf(number, sizeof number, "%s_%llu", id, (unsigned long long)k->sent++);
    const char *const parts[PARTS] = { channel_names[channel], buf_text(&header),
        parent && parent->header ? json_text(parent->header, NULL) : "{}", "{}",
        buf_text(content) };
    for (struct jupyter_channel *ch = k->channels; ch; ch = ch->next) {
        if (to && ch != to)
            continue;
        if (is_output && socket_unsent(&ch->socket) > SERVE_UNREAD_MAX) {
            ch->lost += content->len;
            continue;
        }
        if (ch->lost > 0 && is_output)
            channel_tell_lost(ch, parts);
        channel_put(ch, parts, type, number);
    }
}

void jupyter_publish(struct jupyter_kernel *k, const char *type, const struct buf *content)
{
    jupyter_send(k, NULL, CHANNEL_IOPUB, k->queue, type, content);
}

void jupyter_tell_status(
    struct jupyter_kernel *k, const struct jupyter_message *parent, const char *state)
{
    cleanup_buf struct buf content = { 0 };
    buf_putc(&content, '{');
    field_string(&content, "execution_state", state);
    buf_putc(&content, '}');
    jupyter_send(k, NULL, CHANNEL_IOPUB, parent, "status", &content);
}

/* ---- from clients ---- */

static enum jupyter_channel_name channel_named(const char *name, size_t len)
{
    for (size_t i = 0; i < CHANNEL_IOPUB; i++)
        if (strlen(channel_names[i]) == len && memcmp(channel_names[i], name, len) == 0)
            return (enum jupyter_channel_name)i;
    return CHANNEL_IOPUB; /* on which clients send nothing */
}

static uint64_t channel_read_u64(const char *data)
{
    uint64_t n = 0;
    for (int i = 7; i >= 0; i--)
        n = n << 8 | (unsigned char)data[i];
    return n;
}

static int channel_parse_part(
    const char *data, size_t len, struct json_object **out, struct error *err)
{
    if (json_parse(data, len, &json_limits_large, out, err) < 0)
        return -1;
    if (!json_object_is_type(*out, json_type_object))
        return error_set(err, ERROR_PROTOCOL, "the header and the content are objects");
    return 0;
}

static int channel_parse_binary(
    const char *data, size_t len, struct jupyter_message *m, struct error *err)
{
    uint64_t at[PARTS + 1] = { 0 };
    uint64_t count = len >= 8 ? channel_read_u64(data) : 0;
    if (count < PARTS + 1 || count > CHANNEL_PARTS_MAX || len < 8 * (count + 1))
        return error_set(err, ERROR_PROTOCOL, "the table of offsets is malformed");
    for (size_t i = 0; i <= PARTS; i++) {
        at[i] = channel_read_u64(data + 8 * (i + 1));
        uint64_t least = i ? at[i - 1] : 8 * (count + 1);
        if (at[i] < least || at[i] > len)
            return error_set(err, ERROR_PROTOCOL, "an offset is outside of the message");
    }
    m->channel = channel_named(data + at[PART_CHANNEL], at[PART_HEADER] - at[PART_CHANNEL]);
    if (channel_parse_part(
            data + at[PART_HEADER], at[PART_PARENT] - at[PART_HEADER], &m->header, err) < 0)
        return -1;
    return channel_parse_part(
        data + at[PART_CONTENT], at[PART_CONTENT + 1] - at[PART_CONTENT], &m->content, err);
}

/* The JSON of a message with buffers, which are behind it. */
static int channel_skip_buffers(const char **data, size_t *len, struct error *err)
{
    uint32_t words[3] = { 0 };
    for (size_t i = 0; i < 3; i++)
        for (size_t j = 0; j < 4 && 4 * i + j < *len; j++)
            words[i] = words[i] << 8 | (unsigned char)(*data)[4 * i + j];
    uint64_t head = 4 * ((uint64_t)words[0] + 1), end = words[0] > 1 ? words[2] : *len;
    if (words[0] < 1 || words[0] > CHANNEL_PARTS_MAX || head > *len || words[1] < head ||
        end < words[1] || end > *len)
        return error_set(err, ERROR_PROTOCOL, "the table of buffers is malformed");
    *data += words[1];
    *len = end - words[1];
    return 0;
}

static int channel_parse_text(
    const char *data, size_t len, struct jupyter_message *m, struct error *err)
{
    cleanup_json struct json_object *o = NULL;
    if (channel_parse_part(data, len, &o, err) < 0)
        return -1;
    const char *channel = json_get_string(o, "channel", "shell");
    m->channel = channel_named(channel, strlen(channel));
    m->header = json_object_get(json_get_typed(o, "header", json_type_object));
    m->content = json_object_get(json_get_typed(o, "content", json_type_object));
    if (!m->header || !m->content)
        return error_set(err, ERROR_PROTOCOL, "a message has a header and a content");
    return 0;
}

static int channel_check(struct jupyter_message *m, struct error *err)
{
    const char *type = json_get_string(m->header, "msg_type", "");
    const char *version = json_get_string(m->header, "version", JUPYTER_PROTOCOL);
    if (m->channel == CHANNEL_IOPUB)
        return error_set(err, ERROR_PROTOCOL, "the channel is shell, control or stdin");
    if (!*type || strlen(type) >= sizeof m->type ||
        !json_get_typed(m->header, "msg_id", json_type_string))
        return error_set(err, ERROR_PROTOCOL, "the header has a msg_id and a msg_type");
    if (strncmp(version, "5.", 2) != 0)
        return error_set(err, ERROR_PROTOCOL,
            "the version of the messaging protocol is 5 here, not '%.16s'", version);
    snprintf(m->type, sizeof m->type, "%s", type);
    return 0;
}

static void jupyter_channel_leave(struct jupyter_channel *ch)
{
    struct jupyter_kernel *k = ch->kernel;
    if (!k)
        return;
    ch->kernel = NULL;
    for (struct jupyter_channel **at = &k->channels; *at; at = &(*at)->next)
        if (*at == ch) {
            *at = ch->next;
            break;
        }
    jupyter_forget(k, ch);
}

static void channel_on_message(void *arg, bool is_text, const char *data, size_t len)
{
    struct jupyter_channel *ch = arg;
    struct jupyter_message *m = calloc(1, sizeof *m);
    struct error err = { 0 };
    int rc = m && ch->kernel ? 0 : error_set(&err, ERROR_MEMORY, "out of memory");
    if (rc == 0 && ch->is_binary && !is_text) {
        rc = channel_parse_binary(data, len, m, &err);
    } else if (rc == 0) {
        if (!is_text)
            rc = channel_skip_buffers(&data, &len, &err);
        if (rc == 0)
            rc = channel_parse_text(data, len, m, &err);
    }
    if (rc == 0)
        rc = channel_check(m, &err);
    if (rc == 0 && ch->kernel->queue_bytes + len > JUPYTER_QUEUE_MAX)
        rc = error_set(&err, ERROR_PROTOCOL, "too many requests wait");
    if (rc < 0) {
        jupyter_message_free(m);
        jupyter_channel_leave(ch);
        socket_close(&ch->socket, WEBSOCKET_POLICY, err.text);
        return;
    }
    m->from = ch;
    m->size = len + sizeof *m;
    jupyter_take(ch->kernel, m);
}

/* ---- connections ---- */

static void channel_on_drained(void *arg)
{
}

static void channel_on_closed(void *arg)
{
    jupyter_channel_leave(arg);
}

static void channel_on_free(struct request *r)
{
    struct jupyter_channel *ch = r->state;
    jupyter_channel_leave(ch);
    socket_free(&ch->socket);
    free(ch);
}

void jupyter_channels_close(struct jupyter_kernel *k, const char *why)
{
    while (k->channels) {
        struct jupyter_channel *ch = k->channels;
        k->channels = ch->next;
        ch->kernel = NULL;
        socket_close(&ch->socket, WEBSOCKET_NORMAL, why);
    }
}

void jupyter_handle_channels(struct request *r)
{
    static const struct socket_events events = { channel_on_message, channel_on_drained,
        channel_on_closed };
    struct jupyter_kernel *k = jupyter_kernel_of(r);
    const char *offered = request_header_of(r, "Sec-WebSocket-Protocol");
    char rest[2];
    size_t count = 0;
    if (!k)
        return;
    for (struct jupyter_channel *ch = k->channels; ch; ch = ch->next)
        count++;
    if (count >= CHANNELS_MOST) {
        request_refuse(r, 429, "channels", "a kernel has at most %d connections", CHANNELS_MOST);
        return;
    }
    struct jupyter_channel *ch = request_alloc(r, sizeof *ch);
    if (!ch)
        return;
    if (!socket_accept(r, &ch->socket, BINARY_PROTOCOL, &events, ch)) {
        free(ch);
        return;
    }
    ch->socket.decoder.message_max = JUPYTER_MESSAGE_MAX;
    ch->r = r;
    ch->is_binary = offered && socket_offered(offered, BINARY_PROTOCOL, rest, 1);
    ch->kernel = k;
    ch->next = k->channels;
    k->channels = ch;
    r->state = ch;
    r->on_free = channel_on_free;
    k->activity_ms = clock_wall_ms();
}
