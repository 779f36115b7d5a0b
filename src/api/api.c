/* api/api.c: a `droste`: settings, loop, environment, models. */
#include "api/api.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"

_Static_assert(sizeof(droste_error) == sizeof(struct error), "the public error is the inner one");
_Static_assert((int)DROSTE_ERROR_STORE == (int)ERROR_STORE &&
                   (int)DROSTE_ERROR_MODEL_REPLAY == (int)ERROR_MODEL_REPLAY,
    "the public codes are the inner ones");

const char *droste_version(void)
{
    return DROSTE_VERSION;
}

const char *droste_error_name(int code)
{
    return error_code_name((enum error_code)code);
}

int api_fail(droste_error *out, const struct error *err, int rc)
{
    if (out) {
        out->code = (int)err->code;
        out->sys = err->sys;
        memcpy(out->text, err->text, sizeof out->text);
    }
    return rc;
}

/* ---- interrupts ---- */

void droste_interrupt(droste *d)
{
    uint64_t one = 1;
    int saved = errno; /* this may be a signal handler */
    (void)!write(d->interrupt_fd, &one, sizeof one);
    errno = saved;
}

void api_forget_interrupt(droste *d)
{
    uint64_t count;
    (void)!read(d->interrupt_fd, &count, sizeof count);
}

static void interrupted(void *arg, int status, int events)
{
    droste *d = arg;
    uint64_t count;
    if (read(d->interrupt_fd, &count, sizeof count) < 0)
        return;
    if (d->run)
        rlm_cancel(d->run);
    api_interrupt_sessions(d);
}

/* ---- life ---- */

static int set_up(droste *d, struct error *err)
{
    int rc = settings_init(&d->settings, err);
    if (rc == 0)
        rc = loop_open(&d->loop, err);
    if (rc < 0)
        return rc;
    d->interrupt_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (d->interrupt_fd < 0)
        return error_set_errno(err, ERROR_IO, "making an eventfd");
    d->interrupt_watch = watch_new(d->loop, d->interrupt_fd, interrupted, d);
    if (!d->interrupt_watch)
        return error_memory(err);
    watch_events(d->interrupt_watch, UV_READABLE);
    return 0;
}

int droste_new(droste **out, droste_error *err)
{
    struct error why = { 0 };
    droste *d = calloc(1, sizeof *d);
    if (!d)
        return api_fail(err, &why, error_memory(&why));
    d->interrupt_fd = -1;
    int rc = set_up(d, &why);
    if (rc < 0) {
        droste_free(d);
        return api_fail(err, &why, rc);
    }
    *out = d;
    return 0;
}

void droste_free(droste *d)
{
    if (!d)
        return;
    while (d->sessions)
        droste_session_close(d->sessions);
    environment_close(d->env);
    store_close(d->store);
    lm_queue_free(d->queue);
    watch_free(d->interrupt_watch);
    loop_close(d->loop);
    close_fd(&d->interrupt_fd);
    settings_free(&d->settings);
    tools_free(d->tools);
    list_clear(&d->shown);
    list_clear(&d->allowed);
    buf_free(&d->setup);
    free(d->env_name);
    free(d->store_path);
    free(d);
}

/* ---- settings ---- */

int droste_set(droste *d, const char *option, const char *value, droste_error *err)
{
    struct error why = { 0 };
    char source[80];
    snprintf(source, sizeof source, "--%s", option);
    return api_fail(err, &why, settings_set(&d->settings, option, value, source, &why));
}

int droste_configure(droste *d, const char *path, droste_error *err)
{
    struct error why = { 0 };
    cleanup_free char *home = NULL;
    cleanup_buf struct buf file = { 0 };
    int rc = settings_from_environment(&d->settings, &why);
    if (rc == 0 && !path && file_config_home(&home, NULL) == 0) {
        buf_printf(&file, "%s/config.ini", home);
        rc = settings_from_file(&d->settings, buf_text(&file), true, &why);
    } else if (rc == 0 && path) {
        rc = settings_from_file(&d->settings, path, false, &why);
    }
    return api_fail(err, &why, rc);
}

/* ---- what the settings name ---- */

int api_environment(droste *d, struct environment **out, struct error *err)
{
    const char *name = d->settings.env ? d->settings.env : "local";
    if (d->env && strcmp(d->env_name, name) != 0) {
        if (d->sessions)
            return error_set(err, ERROR_ARGUMENT,
                "the environment cannot change from %s to %.40s while sessions are open",
                d->env_name, name);
        environment_close(d->env);
        d->env = NULL;
    }
    if (!d->env) {
        free(steal(&d->env_name));
        d->env_name = strdup(name);
        int rc = d->env_name ? environment_open(name, d->loop, &d->env, err) : error_memory(err);
        if (rc < 0)
            return rc;
    }
    *out = d->env;
    return 0;
}

struct context_filter api_filter(const droste *d)
{
    const struct list *include = &d->settings.include;
    return (struct context_filter){ (const char *const *)include->items, include->count };
}

int api_context_kind(const droste *d, enum value_kind *kind, struct error *err)
{
    const char *word = d->settings.context_type;
    return context_kind_parse(word ? word : "auto", kind, err);
}

int api_store(droste *d, struct store **out, struct error *err)
{
    const char *path = d->settings.database ? d->settings.database : "";
    *out = NULL;
    if (strcmp(path, "none") == 0)
        return 0;
    if (d->store && strcmp(path, d->store_path) != 0) {
        store_close(d->store);
        d->store = NULL;
    }
    if (!d->store) {
        free(steal(&d->store_path));
        d->store_path = strdup(path);
        int rc =
            d->store_path ? store_open(path[0] ? path : NULL, &d->store, err) : error_memory(err);
        if (rc < 0)
            return rc;
    }
    *out = d->store;
    return 0;
}

/* ---- models ---- */

/* The public handle of a call is the inner one. */
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

static void ask_program(void *arg, const struct lm_request *request, struct lm_call *call)
{
    droste *d = arg;
    d->model_fn(d->model_arg, (const droste_message *)(const void *)request->messages,
        request->message_count, (droste_call *)call);
}

static int open_model(droste *d, const char *model, struct lm **out, struct error *err)
{
    const struct settings *s = &d->settings;
    if (!d->queue && !(d->queue = lm_queue_new(d->loop)))
        return error_memory(err);
    struct lm_options options = {
        .model = model,
        .openai = { s->base_url, s->api_key },
        .anthropic = { s->anthropic_url, s->anthropic_key },
        .gemini = { s->gemini_url, s->gemini_key },
        .azure = { s->azure_url, s->azure_key },
        .azure_version = s->azure_version,
        .openrouter = { s->openrouter_url, s->openrouter_key },
        .vllm = { s->vllm_url, s->vllm_key },
        .cache = s->cache,
        .prices = s->prices,
        .record = s->record,
        .ca_file = s->ca_file,
        .queue = d->queue,
        .concurrency = (unsigned)s->concurrency,
        .model_concurrency = (unsigned)s->model_concurrency,
        .retries = (unsigned)s->retries,
        .stream = s->stream,
        .connect_timeout = s->connect_timeout,
        .first_timeout = s->first_timeout,
        .stall_timeout = s->stall_timeout,
        .callback = d->model_fn ? ask_program : NULL,
        .callback_arg = d,
    };
    return lm_open(d->loop, &options, out, err);
}

/* "2=gpt-5-nano"; the depth is 1 or more: the root's is --model. */
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

/* The name of each depth's model: what was said of a depth holds for those below it. */
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

/* Opened once, however many depths it is of. */
static int open_models(droste *d, const char *const *names, struct models *m, struct error *err)
{
    for (unsigned depth = 0; depth < BUDGET_DEPTH_MAX + 2; depth++) {
        unsigned same = 0;
        while (same < depth && strcmp(names[same], names[depth]) != 0)
            same++;
        if (same == depth) {
            int rc = open_model(d, names[depth], &m->opened[m->opened_count], err);
            if (rc < 0)
                return rc;
            m->at[depth] = m->opened[m->opened_count++];
        } else {
            m->at[depth] = m->at[same];
        }
    }
    return 0;
}

void api_models_close(struct models *m)
{
    while (m->opened_count > 0)
        lm_close(m->opened[--m->opened_count]);
    *m = (struct models){ 0 };
}

int api_models(droste *d, bool need, struct models *m, struct error *err)
{
    const char *names[BUDGET_DEPTH_MAX + 2] = { 0 };
    *m = (struct models){ 0 };
    if (!d->settings.model && !need)
        return 0;
    if (!d->settings.model)
        return error_set(err, ERROR_CONFIG,
            "no model is configured: give one with --model, DROSTE_MODEL, or `model = …` in "
            "config.ini (and OPENAI_API_KEY or OPENAI_BASE_URL)");
    int rc = name_models(&d->settings, names, err);
    if (rc == 0)
        rc = open_models(d, names, m, err);
    if (rc < 0)
        api_models_close(m);
    return rc;
}
