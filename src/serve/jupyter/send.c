/* serve/jupyter/send.c: messages to the clients of a kernel, in the format of each connection
 * (channels.c).
 */
#include <string.h>

#include "base/clock.h"
#include "base/json/fields.h"
#include "serve/jupyter/jupyter.h"

/* What waits for a client beyond output, such as results, and then ends its connection. */
enum { CHANNEL_UNSENT_MAX = 64 << 20 };

const char *const jupyter_channel_names[] = { "shell", "control", "stdin", "iopub" };

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
    const char *const parts[PARTS] = { jupyter_channel_names[channel], buf_text(&header),
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

void jupyter_channels_close(struct jupyter_kernel *k, const char *why)
{
    while (k->channels) {
        struct jupyter_channel *ch = k->channels;
        k->channels = ch->next;
        ch->kernel = NULL;
        socket_close(&ch->socket, WEBSOCKET_NORMAL, why);
    }
}
