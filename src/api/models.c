/* api/models.c: the models that settings name.
 *
 * All runs and sessions that use a model with the same settings share it, with its connections, its
 * cache, and the position in a recording. The last one closes it.
 */
#include "api/models.h"

#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/cleanup.h"
#include "lm/lm.h"

struct shared_lm {
    struct shared_lm *next;
    droste *d;
    char *key; /* the settings that it was opened with */
    unsigned users;
    struct lm *lm;
};

/* ---- a model of the embedding program ---- */

/* A droste_call is a struct lm_call. */
void droste_answer(droste_call *call, const char *text, size_t len)
{
    lm_answer((struct lm_call *)call, text, len, NULL, NULL);
}

void droste_refuse(droste_call *call, const char *why)
{
    struct error err = { 0 };
    error_set(&err, ERROR_MODEL, "%s", why);
    lm_answer((struct lm_call *)call, "", 0, NULL, &err);
}

const char *droste_call_opened(const droste_call *call)
{
    return lm_call_opened((const struct lm_call *)call);
}

const char *droste_call_model(const droste_call *call)
{
    return lm_call_model((const struct lm_call *)call);
}

void droste_set_model(droste *d, droste_model_fn *fn, void *arg)
{
    d->model_fn = fn;
    d->model_arg = arg;
}

_Static_assert(sizeof(droste_message) == sizeof(struct lm_message) &&
                   offsetof(droste_message, part_count) == offsetof(struct lm_message, part_count),
    "the public message is the inner one");
_Static_assert(sizeof(droste_part) == sizeof(struct lm_part) &&
                   offsetof(droste_part, len) == offsetof(struct lm_part, len) &&
                   (int)DROSTE_PART_DOCUMENT == (int)LM_PART_DOCUMENT,
    "the public part is the inner one");

static void models_ask_program(void *arg, const struct lm_request *request, struct lm_call *call)
{
    droste *d = arg;
    d->model_fn(d->model_arg, (const droste_message *)(const void *)request->messages,
        request->message_count, (droste_call *)call);
}

/* ---- limits per minute that processes share ---- */

_Static_assert(
    sizeof(droste_rate_ask) == sizeof(struct lm_share_ask) &&
        sizeof(droste_rate_slice) == sizeof(struct rate_slice) &&
        offsetof(droste_rate_ask, change_count) == offsetof(struct lm_share_ask, change_count),
    "the public request is the inner one");

static void models_ask_share(void *arg, const struct lm_share_ask *ask)
{
    droste *d = arg;
    d->rate_fn(d->rate_arg, (const droste_rate_ask *)(const void *)ask);
}

static void models_share(droste *d)
{
    lm_queue_share(d->queue, &(struct lm_share){ d->rate_fn ? models_ask_share : NULL, d });
}

void droste_on_rate(droste *d, droste_rate_fn *fn, void *arg)
{
    d->rate_fn = fn;
    d->rate_arg = arg;
    if (d->queue)
        models_share(d);
}

void droste_rate_grant(
    droste *d, uint64_t ticket, const droste_rate_slice *granted, int64_t wait_ms)
{
    if (d->queue)
        lm_queue_grant(d->queue, ticket, (const struct rate_slice *)(const void *)granted, wait_ms);
}

/* ---- one model ---- */

int api_model_options(droste *d, const struct settings *s, const char *model,
    const struct list *sampling, struct lm_options *out, struct error *err)
{
    if (!d->queue && !(d->queue = lm_queue_new(d->loop)))
        return error_memory(err);
    models_share(d);
    *out = (struct lm_options){
        .model = model,
        .openai = { s->base_url, s->api_key },
        .anthropic = { s->anthropic_url, s->anthropic_key },
        .gemini = { s->gemini_url, s->gemini_key },
        .azure = { s->azure_url, s->azure_key },
        .azure_version = s->azure_version,
        .openrouter = { s->openrouter_url, s->openrouter_key },
        .portkey = { s->portkey_url, s->portkey_key },
        .vllm = { s->vllm_url, s->vllm_key },
        .sampling = sampling,
        .cache = s->cache,
        .deduplicate = s->deduplicate,
        .prices = s->prices,
        .record = s->record,
        .ca_file = s->ca_file,
        .queue = d->queue,
        .concurrency = (unsigned)s->concurrency,
        .model_concurrency = (unsigned)s->model_concurrency,
        .rate = s->rate,
        .retries = (unsigned)s->retries,
        .stream = s->stream,
        .connect_timeout = s->connect_timeout,
        .first_timeout = s->first_timeout,
        .stall_timeout = s->stall_timeout,
        .callback = d->model_fn ? models_ask_program : NULL,
        .callback_arg = d,
    };
    return 0;
}

static int open_model(droste *d, const struct settings *s, const char *model,
    const struct list *sampling, struct lm **out, struct error *err)
{
    struct lm_options options;
    int rc = api_model_options(d, s, model, sampling, &options, err);
    return rc < 0 ? rc : lm_open(d->loop, &options, out, err);
}

char *api_model_key(
    const droste *d, const struct settings *s, const char *model, const struct list *sampling)
{
    const char *const texts[] = { model, s->base_url, s->api_key, s->anthropic_url,
        s->anthropic_key, s->gemini_url, s->gemini_key, s->azure_url, s->azure_key,
        s->azure_version, s->openrouter_url, s->openrouter_key, s->portkey_url, s->portkey_key,
        s->vllm_url, s->vllm_key, s->cache, s->prices, s->record, s->ca_file };
    struct buf key = { 0 };
    for (size_t i = 0; i < array_length(texts); i++)
        buf_printf(&key, "%zu:%s;", texts[i] ? strlen(texts[i]) + 1 : 0, texts[i] ? texts[i] : "");
    for (size_t i = 0; i < sampling->count; i++)
        buf_printf(&key, "%zu:%s;", strlen(sampling->items[i]) + 1, sampling->items[i]);
    buf_printf(&key, "%lld %lld %lld %lld %lld %d %d %a %a %a %d", (long long)s->concurrency,
        (long long)s->model_concurrency, (long long)s->rate.requests, (long long)s->rate.tokens,
        (long long)s->retries, s->stream, s->deduplicate, s->connect_timeout, s->first_timeout,
        s->stall_timeout, d->model_fn != NULL);
    return buf_steal(&key);
}

static void models_leave(struct shared_lm *shared)
{
    if (--shared->users > 0)
        return;
    struct shared_lm **at = &shared->d->models;
    while (*at != shared)
        at = &(*at)->next;
    *at = shared->next;
    lm_close(shared->lm);
    free(shared->key);
    free(shared);
}

void api_end_models(droste *d)
{
    while (d->models)
        models_leave(d->models);
}

static int use_model(droste *d, const struct settings *s, const char *model,
    const struct list *sampling, struct shared_lm **out, struct error *err)
{
    cleanup_free char *key = api_model_key(d, s, model, sampling);
    if (!key)
        return error_memory(err);
    for (struct shared_lm *m = d->models; m; m = m->next) {
        if (strcmp(m->key, key) != 0)
            continue;
        m->users++;
        *out = m;
        return 0;
    }
    struct lm *lm = NULL;
    int rc = open_model(d, s, model, sampling, &lm, err);
    if (rc < 0)
        return rc;
    struct shared_lm *m = calloc(1, sizeof *m);
    if (!m) {
        lm_close(lm);
        return error_memory(err);
    }
    /* The program may still answer cancelled calls, so their handles live as long as the droste. */
    unsigned holders = strncmp(model, "callback", strlen("callback")) == 0 ? 2 : 1;
    *m = (struct shared_lm){ d->models, d, steal(&key), holders, lm };
    d->models = m;
    *out = m;
    return 0;
}

/* ---- those of all depths ---- */

/* Parses "2=gpt-5-nano". The depth is at least 1: the root's model is --model. */
static int parse_depth_model(
    const char *text, unsigned *depth, const char **model, struct error *err)
{
    char *end;
    unsigned long n = strtoul(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '=' || !end[1])
        return error_set(err, ERROR_ARGUMENT,
            "depth-model '%.60s': write a depth and a model, as in 1=gpt-5-nano", text);
    if (n < 1 || n > BUDGET_DEPTH_MAX + 1)
        return error_set(err, ERROR_ARGUMENT,
            "depth-model '%.60s': depths go from 1 to %d; the root's model is --model", text,
            BUDGET_DEPTH_MAX + 1);
    *depth = (unsigned)n;
    *model = end + 1;
    return 0;
}

/* Determines the model of each depth; a setting also applies to deeper calls. */
static int name_models(
    const struct settings *s, const char *names[BUDGET_DEPTH_MAX + 2], struct error *err)
{
    names[0] = s->model;
    names[1] = s->sub_model;
    for (size_t i = 0; i < s->depth_model.count; i++) {
        unsigned depth = 0;
        const char *model = NULL;
        int rc = parse_depth_model(s->depth_model.items[i], &depth, &model, err);
        if (rc < 0)
            return rc;
        names[depth] = model;
    }
    for (unsigned depth = 1; depth < BUDGET_DEPTH_MAX + 2; depth++)
        if (!names[depth])
            names[depth] = names[depth - 1];
    return 0;
}

/* The sampling of calls at a depth. An empty sub-sampling that was set means none. */
static const struct list *sampling_at(const struct settings *s, unsigned depth)
{
    return depth > 0 && settings_is_set(s, "sub-sampling") ? &s->sub_sampling : &s->sampling;
}

/* Opens each distinct model once. */
static int models_open_models(droste *d, const struct settings *s, const char *const *names,
    struct models *m, struct error *err)
{
    for (unsigned depth = 0; depth < BUDGET_DEPTH_MAX + 2; depth++) {
        unsigned same = 0;
        while (same < depth && (strcmp(names[same], names[depth]) != 0 ||
                                   sampling_at(s, same) != sampling_at(s, depth)))
            same++;
        if (same == depth) {
            struct shared_lm **opened = &m->opened[m->opened_count];
            int rc = use_model(d, s, names[depth], sampling_at(s, depth), opened, err);
            if (rc < 0)
                return rc;
            m->at[depth] = (*opened)->lm;
            m->opened_count++;
        } else {
            m->at[depth] = m->at[same];
        }
    }
    return 0;
}

void api_models_close(struct models *m)
{
    while (m->opened_count > 0)
        models_leave(m->opened[--m->opened_count]);
    *m = (struct models){ 0 };
}

int api_models(droste *d, const struct settings *s, bool need, struct models *m, struct error *err)
{
    const char *names[BUDGET_DEPTH_MAX + 2] = { 0 };
    *m = (struct models){ 0 };
    if (!s->model && need)
        return error_set(err, ERROR_CONFIG,
            "no model is configured: give one with --model PROVIDER/MODEL, DROSTE_MODEL, or `model "
            "= …` in config.ini; `droste doctor` says what each provider needs");
    int rc = name_models(s, names, err);
    if (rc == 0 && !names[1])
        return 0;
    if (!names[0])
        names[0] = names[1]; /* for a session, which has no turns */
    if (rc == 0)
        rc = models_open_models(d, s, names, m, err);
    if (rc < 0)
        api_models_close(m);
    return rc;
}
