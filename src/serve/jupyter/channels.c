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

enum { CHANNEL_PARTS_MAX = 256, CHANNELS_MOST = 64 };

/* ---- from clients ---- */

static enum jupyter_channel_name channel_named(const char *name, size_t len)
{
    for (size_t i = 0; i < CHANNEL_IOPUB; i++)
        if (strlen(jupyter_channel_names[i]) == len &&
            memcmp(jupyter_channel_names[i], name, len) == 0)
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
