/* lm/callback.c: models that the embedding program implements as a function.
 *
 * The function gets a copy of the request, so that it may answer at any time. The program holds the
 * call's handle until it answers; a call that ends earlier (cancelled, out of time) stays as
 * CALL_OWED until the answer arrives and is dropped.
 */
#include <stdlib.h>
#include <string.h>

#include "lm/client.h"
#include "lm/request.h"

struct callback {
    lm_callback_fn *fn;
    void *arg;
};

static int callback_open(struct loop *loop, const struct lm_options *options, const char *model,
    void **client, struct error *err)
{
    if (!options->callback)
        return error_set(err, ERROR_CONFIG, "the model 'callback' needs a function to call");
    struct callback *cb = malloc(sizeof *cb);
    if (!cb)
        return error_memory(err);
    *cb = (struct callback){ options->callback, options->callback_arg };
    *client = cb;
    return 0;
}

static void callback_close(void *client)
{
    free(client);
}

static void callback_describe(const void *client, struct buf *out)
{
    buf_puts(out, "a function of this program");
}

/* The copy of a request; arrays come first, because the bytes after them need no alignment. */
struct room {
    size_t parts, bytes;
};

static struct room room_of(const struct lm_request *request)
{
    struct room room = { 0 };
    for (size_t i = 0; i < request->message_count; i++) {
        const struct lm_message *m = &request->messages[i];
        room.parts += m->part_count;
        room.bytes += m->part_count == 0 ? m->len + 1 : 0;
        for (size_t k = 0; k < m->part_count; k++) {
            const char *type = m->parts[k].media_type;
            room.bytes += m->parts[k].len + 1 + (type ? strlen(type) + 1 : 0);
        }
    }
    return room;
}

/* Copies to *to, adds a NUL for convenience, and advances it. */
static const char *put_bytes(char **to, const char *bytes, size_t len)
{
    char *at = *to;
    if (len > 0)
        memcpy(at, bytes, len);
    at[len] = '\0';
    *to += len + 1;
    return at;
}

static void copy_message(
    struct lm_message *to, const struct lm_message *from, struct lm_part **parts, char **bytes)
{
    *to = (struct lm_message){ .role = lm_role(from->role), .part_count = from->part_count };
    if (from->part_count == 0) {
        to->text = put_bytes(bytes, from->text, from->len);
        to->len = from->len;
        return;
    }
    to->text = "";
    to->parts = *parts;
    for (size_t k = 0; k < from->part_count; k++) {
        const struct lm_part *part = &from->parts[k];
        const char *type = part->media_type;
        *(*parts)++ = (struct lm_part){
            .kind = part->kind,
            .media_type = type ? put_bytes(bytes, type, strlen(type)) : NULL,
            .data = put_bytes(bytes, part->data, part->len),
            .len = part->len,
        };
    }
}

/* One allocation: the messages, their parts, then the bytes of both. */
static int callback_prepare(
    struct lm_call *call, const struct lm_request *request, struct error *err)
{
    struct room room = room_of(request);
    size_t count = request->message_count;
    struct lm_message *copy =
        malloc(count * sizeof *copy + room.parts * sizeof(struct lm_part) + room.bytes);
    if (!copy)
        return error_memory(err);
    struct lm_part *parts = (struct lm_part *)(void *)(copy + count);
    char *bytes = (char *)(parts + room.parts);
    for (size_t i = 0; i < count; i++)
        copy_message(&copy[i], &request->messages[i], &parts, &bytes);
    call->own = copy;
    call->request.messages = copy;
    return 0;
}

static void callback_release(struct lm_call *call)
{
    free(call->own);
}

static void callback_attempt(struct lm_call *call)
{
    struct callback *cb = call->client;
    cb->fn(cb->arg, &call->request, call);
}

static struct lm_usage callback_abort(struct lm_call *call)
{
    return lm_usage_estimate(call, 0);
}

const struct lm_client_ops lm_callback = {
    .owes_answers = true,
    .open = callback_open,
    .close = callback_close,
    .describe = callback_describe,
    .prepare = callback_prepare,
    .release = callback_release,
    .attempt = callback_attempt,
    .abort = callback_abort,
};
