/* api/forward_api.c: droste/forward.h over lm/forward.h.
 *
 * A model's connections are kept for its next requests, with the settings that they were opened
 * with. */
#include "api/forward_api.h"

#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "api/models.h"
#include "base/cleanup.h"
#include "lm/forward.h"

/* Kept at once; the one that was used last stays longest. */
enum { FORWARDERS_MAX = 64 };

struct shared_forwarder {
    struct shared_forwarder *next;
    char *key;
    unsigned users;
    struct forwarder *forwarder;
};

struct droste_forward {
    droste *d;
    struct shared_forwarder *shared;
    struct forward *f;
    droste_forward_request request; /* its functions and their argument */
    struct droste_forward *next, **link;
};

/* ---- connections ---- */

static void forwarders_drop(struct shared_forwarder **at)
{
    struct shared_forwarder *one = *at;
    *at = one->next;
    forwarder_close(one->forwarder);
    free(one->key);
    free(one);
}

static void forwarders_make_room(droste *d)
{
    struct shared_forwarder **last = NULL;
    size_t count = 0;
    for (struct shared_forwarder **at = &d->forwarders; *at; at = &(*at)->next, count++)
        if ((*at)->users == 0)
            last = at;
    if (count >= FORWARDERS_MAX && last)
        forwarders_drop(last);
}

static int forwarders_open(
    droste *d, const char *model, char *key, struct shared_forwarder **out, struct error *err)
{
    struct lm_options options;
    struct shared_forwarder *made = calloc(1, sizeof *made);
    int rc =
        made ? api_model_options(d, &d->settings, model, NULL, &options, err) : error_memory(err);
    if (rc == 0)
        rc = forwarder_open(d->loop, &options, &made->forwarder, err);
    if (rc < 0) {
        free(made);
        return rc;
    }
    made->key = key;
    *out = made;
    return 0;
}

static int forwarders_use(
    droste *d, const char *model, struct shared_forwarder **out, struct error *err)
{
    static const struct list no_sampling;
    cleanup_free char *key = api_model_key(d, &d->settings, model, &no_sampling);
    struct shared_forwarder **at = &d->forwarders, *one;
    if (!key)
        return error_memory(err);
    while (*at && strcmp((*at)->key, key) != 0)
        at = &(*at)->next;
    one = *at;
    if (one) {
        *at = one->next;
    } else {
        forwarders_make_room(d);
        int rc = forwarders_open(d, model, key, &one, err);
        if (rc < 0)
            return rc;
        key = NULL; /* it has it */
    }
    one->next = d->forwarders;
    d->forwarders = one;
    *out = one;
    return 0;
}

/* ---- requests ---- */

static void forward_api_free(droste_forward *f)
{
    *f->link = f->next;
    if (f->next)
        f->next->link = f->link;
    f->shared->users--;
    free(f);
}

void api_end_forwards(droste *d)
{
    struct lm_usage usage;
    double cost;
    while (d->forwards) {
        forward_cancel(d->forwards->f, &usage, &cost);
        forward_api_free(d->forwards);
    }
    while (d->forwarders)
        forwarders_drop(&d->forwarders);
}

static void forward_api_begin(void *arg)
{
    droste_forward *f = arg;
    f->request.begin(f->request.arg);
}

static void forward_api_event(void *arg, const char *data, size_t len)
{
    droste_forward *f = arg;
    f->request.event(f->request.arg, data, len);
}

static void forward_api_tell(
    droste_forward *f, droste_forward_end *end, const struct lm_usage *usage)
{
    droste_forward_request request = f->request;
    end->input_tokens = usage->input_tokens;
    end->output_tokens = usage->output_tokens;
    end->estimated = usage->estimated;
    forward_api_free(f);
    request.end(request.arg, end);
}

static void forward_api_end(void *arg, const struct forward_end *end)
{
    droste_forward_end shown = { .error = end->error.code != ERROR_NONE ? &end->error : NULL,
        .status = (int)end->status,
        .body = end->body,
        .len = end->len,
        .retry_after = end->retry_after,
        .cost = end->cost };
    forward_api_tell(arg, &shown, &end->usage);
}

static int forward_api_start(
    droste *d, const droste_forward_request *request, droste_forward **out, struct error *err)
{
    static const struct forward_handler handler = { forward_api_begin, forward_api_event,
        forward_api_end };
    struct shared_forwarder *shared = NULL;
    int rc = forwarders_use(d, request->model, &shared, err);
    if (rc == 0 && request->priced && !forwarder_is_priced(shared->forwarder))
        rc = error_set(err, ERROR_BUDGET_COST,
            "cost is limited, but the price of %.80s is unknown: set it with --prices FILE",
            request->model);
    if (rc < 0)
        return rc;
    droste_forward *f = calloc(1, sizeof *f);
    if (!f)
        return error_memory(err);
    *f = (droste_forward){ .d = d, .shared = shared, .request = *request };
    rc = forward_start(shared->forwarder, request->body, request->len, request->traceparent,
        &handler, f, &f->f, err);
    if (rc < 0) {
        free(f);
        return rc;
    }
    shared->users++;
    f->next = d->forwards;
    f->link = &d->forwards;
    if (f->next)
        f->next->link = &f->next;
    d->forwards = f;
    *out = f;
    return 0;
}

int droste_forward_start(
    droste *d, const droste_forward_request *request, droste_forward **out, droste_error *err)
{
    err = api_error(err);
    int rc = forward_api_start(d, request, out, err);
    return rc < 0 ? rc : 0;
}

void droste_forward_pause(droste_forward *f, int on)
{
    forward_pause(f->f, on != 0);
}

void droste_forward_cancel(droste_forward *f)
{
    struct lm_usage usage;
    droste_error err = { .code = DROSTE_ERROR_CANCELLED, .text = "the request was cancelled" };
    droste_forward_end end = { .error = &err };
    forward_cancel(f->f, &usage, &end.cost);
    forward_api_tell(f, &end, &usage);
}
