/* lm/callback.c: a model in the embedding program.
 *
 * The program holds the call's handle until it answers, so a call that ends before that (cancelled,
 * out of time) is kept as CALL_OWED until the answer comes and is dropped.
 */
#include <stdlib.h>

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
    .attempt = callback_attempt,
    .abort = callback_abort,
};
