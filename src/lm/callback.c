/* lm/callback.c: a model in the embedding program.
 *
 * It gets a copy of the request, so that it may answer when it likes and nobody else has to wait.
 * The program holds the call's handle until it answers, so a call that ends before that (cancelled,
 * out of time) is kept as CALL_OWED until the answer comes and is dropped.
 */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "lm/client.h"

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

/* One block: the messages, then their texts, each with a NUL for those who like one. */
static int callback_prepare(
    struct lm_call *call, const struct lm_request *request, struct error *err)
{
    size_t head = request->message_count * sizeof *request->messages;
    struct lm_message *copy = malloc(head + call->input_bytes + request->message_count);
    if (!copy)
        return error_memory(err);
    char *text = (char *)copy + head;
    for (size_t i = 0; i < request->message_count; i++) {
        copy[i] = (struct lm_message){ lm_role(request->messages[i].role), text,
            request->messages[i].len };
        if (copy[i].len > 0)
            memcpy(text, request->messages[i].text, copy[i].len);
        text[copy[i].len] = '\0';
        text += copy[i].len + 1;
    }
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
    .prepare = callback_prepare,
    .release = callback_release,
    .attempt = callback_attempt,
    .abort = callback_abort,
};
