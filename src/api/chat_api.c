/* api/chat_api.c: conversations: several questions over one session.
 *
 * Each question is a run that continues from the one before (rlm_options.after), in the order of
 * the record. A recorded conversation is replayed first: the cells of its runs execute again, each
 * with its own settings, and are answered from the record; no model is called and nothing is
 * written. Runs that have ended are kept: the session needs their contexts and tools, and a
 * recording continues at the position of their models.
 */
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "api/options.h"
#include "api/result.h"
#include "api/run_api.h"
#include "api/running.h"
#include "api/stored_run.h"
#include "base/cleanup.h"

struct droste_chat {
    droste *d;
    droste_running *last; /* the latest run; `earlier` leads to the others */
    char last_id[STORE_RUN_ID_SIZE];
    bool asking;       /* a question in the background is active */
    bool has_settings; /* of the recorded run; otherwise those of the droste apply */
    struct settings settings;
};

void droste_chat_close(droste_chat *c)
{
    if (!c)
        return;
    while (c->last) {
        droste_running *r = c->last;
        c->last = r->earlier;
        running_free(r);
    }
    if (c->has_settings)
        settings_free(&c->settings);
    free(c);
}

struct chat_end {
    bool done;
    struct error why;
};

static void chat_finished(void *arg, const struct error *why)
{
    struct chat_end *end = arg;
    end->done = true;
    end->why = *why;
}

int droste_chat_finish(droste_chat *c, droste_error *err)
{
    err = api_error(err);
    struct chat_end end = { 0 };
    if (!c->last || !c->last->run || !rlm_finish(c->last->run, chat_finished, &end))
        return 0;
    c->d->finishing = c->last->run;
    int rc = api_wait(c->d, &end.done, err);
    c->d->finishing = NULL;
    if (rc < 0)
        rlm_finish_cancel(c->last->run); /* `end` does not outlive this call */
    else
        *err = end.why;
    return -(int)err->code;
}

static int open_chat(droste *d, droste_chat **out, struct error *err)
{
    *out = calloc(1, sizeof **out);
    if (!*out)
        return error_memory(err);
    (*out)->d = d;
    return 0;
}

int droste_chat_open(droste *d, droste_chat **out, droste_error *err)
{
    return open_chat(d, out, api_error(err));
}

/* ---- a question ---- */

static struct run_link next_link(const droste_chat *c)
{
    return (struct run_link){ .after = c->last ? c->last->run : NULL,
        .previous = c->last_id[0] ? c->last_id : NULL,
        .workspace = c->last ? c->last->session.workspace : NULL,
        .settings = c->has_settings ? &c->settings : &c->d->settings };
}

static int chat_next(droste_chat *c, struct run_link *link, struct error *err)
{
    if (c->asking)
        return error_set(
            err, ERROR_ARGUMENT, "a question of this conversation is active: wait for its answer");
    c->asking = true;
    *link = next_link(c);
    return 0;
}

/* The next question continues from this run; NULL: the question did not begin. */
static void chat_advance(droste_chat *c, droste_running *r, const char *id)
{
    c->asking = false;
    if (!r)
        return;
    if (c->last)
        rlm_close(steal(&c->last->run));
    r->earlier = c->last;
    c->last = r;
    snprintf(c->last_id, sizeof c->last_id, "%s", id);
}

static int run_one(droste_chat *c, droste_request *q, const struct run_link *link,
    droste_result **out, struct error *err)
{
    droste_running *r = NULL;
    int rc = api_run(c->d, q, link, &r, out, err);
    if (rc == 0)
        chat_advance(c, r, (*out)->run);
    return rc;
}

static int chat_ask(droste_chat *c, droste_request *q, droste_result **out, struct error *err)
{
    struct run_link link;
    int rc = chat_next(c, &link, err);
    if (rc < 0)
        return rc;
    rc = run_one(c, q, &link, out, err);
    c->asking = false;
    return rc;
}

int droste_chat_ask(droste_chat *c, const char *question, const char *context, droste_event_fn *fn,
    void *arg, droste_result **out, droste_error *err)
{
    err = api_error(err);
    droste_request q = { .question = question, .context = context, .event = fn, .arg = arg };
    return chat_ask(c, &q, out, err);
}

/* ---- a conversation of the record ---- */

static int check_stored_run(const struct stored_run *stored_run, struct error *err)
{
    if (strcmp(stored_run->status, "running") == 0)
        return error_set(err, ERROR_ARGUMENT, "run '%.64s' has not ended", stored_run->id);
    if (strcmp(stored_run->status, "interrupted") == 0)
        return error_set(err, ERROR_ARGUMENT,
            "run '%.64s' was interrupted; continue it with `droste runs resume` first",
            stored_run->id);
    return 0;
}

static int run_again(droste_chat *c, const char *id, struct error *err)
{
    droste_request q = { .resume = id };
    droste_result *result = NULL;
    struct run_link link = next_link(c);
    link.again = true;
    int rc = run_one(c, &q, &link, &result, err);
    if (rc == 0 && result->error.code == ERROR_MODEL_REPLAY) {
        *err = result->error;
        rc = error_wrap(err, "run '%.64s' cannot be gone on from", id);
    }
    droste_result_free(result);
    return rc;
}

enum { CHAIN_MAX = 10000 };

/* The ids, the latest first. */
static int find_chain(droste *d, const char *run, struct list *chain, struct error *err)
{
    char id[STORE_RUN_ID_SIZE];
    int rc = 0;
    snprintf(id, sizeof id, "%s", run);
    while (rc == 0 && id[0]) {
        struct stored_run stored_run = { 0 };
        rc = stored_run_find(d, id, &stored_run, err);
        if (rc < 0 && chain->count > 0)
            error_wrap(err, "the question before run '%.64s'", chain->items[chain->count - 1]);
        if (rc == 0)
            rc = check_stored_run(&stored_run, err);
        if (rc == 0)
            rc = chain->count < CHAIN_MAX ? list_add(chain, stored_run.id, err) : error_memory(err);
        snprintf(id, sizeof id, "%s", stored_run.previous);
        stored_run_free(&stored_run);
    }
    return rc;
}

static int go_over(droste_chat *c, const char *run, struct error *err)
{
    struct list chain = { 0 };
    int rc = find_chain(c->d, run, &chain, err);
    for (size_t i = chain.count; rc == 0 && i-- > 0;)
        rc = run_again(c, chain.items[i], err);
    list_clear(&chain);
    return rc;
}

static int chat_before(droste *d, const char *run, const struct settings *s, droste_chat **out,
    struct run_link *link, struct error *err)
{
    int rc = open_chat(d, out, err);
    if (rc == 0)
        rc = settings_copy(&(*out)->settings, s, err);
    if (*out)
        (*out)->has_settings = true;
    if (rc == 0)
        rc = go_over(*out, run, err);
    if (rc == 0)
        *link = next_link(*out);
    return rc;
}

/* Current settings take precedence over recorded ones. */
static int chat_api_overlay(droste_chat *c, struct error *err)
{
    const struct settings *now = &c->d->settings;
    cleanup_buf struct buf setup = { 0 }, instructions = { 0 }, system = { 0 }, json = { 0 };
    int rc = now->setup_code ? api_text(now->setup_code, "setup code", &setup, err) : 0;
    if (rc == 0 && now->instructions)
        rc = api_text(now->instructions, "instructions", &instructions, err);
    if (rc == 0)
        rc = api_system_prompt(now, &system, err);
    struct settings_texts texts = { .setup_code = buf_text(&setup),
        .instructions = buf_text(&instructions),
        .system_prompt = buf_text(&system),
        .answer_schema = now->answer_schema,
        .template = now->template };
    settings_save(now, &texts, &json);
    if (rc == 0 && buf_failed(&json))
        rc = error_memory(err);
    if (rc == 0)
        rc = settings_restore(&c->settings, json.data, json.len, err);
    return rc;
}

static int chat_api_take_settings(droste_chat *c, const char *run, struct error *err)
{
    struct stored_run stored_run = { 0 };
    int rc = stored_run_find(c->d, run, &stored_run, err);
    if (rc == 0) {
        c->has_settings = true;
        rc = stored_run_settings(c->d, &stored_run, &c->settings, err);
    }
    stored_run_free(&stored_run);
    return rc < 0 ? rc : chat_api_overlay(c, err);
}

int droste_chat_continue(droste *d, const char *run, droste_chat **out, droste_error *err)
{
    err = api_error(err);
    droste_chat *c = NULL;
    int rc = open_chat(d, &c, err);
    if (rc == 0)
        rc = chat_api_take_settings(c, run, err);
    if (rc == 0)
        rc = go_over(c, run, err);
    if (rc < 0)
        droste_chat_close(c);
    else
        *out = c;
    return rc;
}

/* ---- runs that may be part of a conversation ---- */

int droste_start(droste *d, const droste_request *q, droste_running **out, droste_error *err)
{
    err = api_error(err);
    struct run_link link = { 0 };
    droste_running *r = NULL;
    int rc = q->done ? 0 : error_set(err, ERROR_ARGUMENT, "a run needs a callback for its end");
    if (rc == 0 && q->chat)
        rc = chat_next(q->chat, &link, err);
    if (rc == 0 && q->chat) {
        link.ended = chat_advance;
        link.chat = q->chat;
    }
    if (rc == 0)
        rc = api_start(d, q, q->chat ? &link : NULL, &r, err);
    if (rc == 0 && out)
        *out = r;
    if (rc < 0 && link.chat)
        chat_advance(q->chat, NULL, "");
    return rc;
}

/* Replays the questions before the run, if it is part of a conversation. */
static int find_before(
    droste *d, const char *run, droste_chat **chat, struct run_link *link, struct error *err)
{
    struct stored_run stored_run = { 0 };
    struct settings s = { 0 };
    int rc = d->waits ? 0 : stored_run_find(d, run, &stored_run, err);
    if (rc == 0 && stored_run.previous[0]) {
        rc = stored_run_settings(d, &stored_run, &s, err);
        if (rc == 0)
            rc = chat_before(d, stored_run.previous, &s, chat, link, err);
        settings_free(&s);
    }
    stored_run_free(&stored_run);
    return rc;
}

static int chat_resume(droste *d, droste_request *q, droste_result **out, struct error *err)
{
    struct run_link link = { 0 };
    droste_chat *chat = NULL;
    int rc = find_before(d, q->resume, &chat, &link, err);
    if (rc == 0)
        rc = api_run(d, q, chat ? &link : NULL, NULL, out, err);
    droste_chat_close(chat);
    return rc;
}

int droste_resume(droste *d, const char *run, droste_event_fn *fn, void *arg, droste_result **out,
    droste_error *err)
{
    err = api_error(err);
    droste_request q = { .resume = run, .event = fn, .arg = arg };
    return chat_resume(d, &q, out, err);
}

int droste_ask(droste *d, const droste_request *request, droste_result **out, droste_error *err)
{
    err = api_error(err);
    droste_request q = *request;
    int rc;
    if (q.chat)
        rc = chat_ask(q.chat, &q, out, err);
    else if (q.resume && !q.question)
        rc = chat_resume(d, &q, out, err);
    else
        rc = api_run(d, &q, NULL, NULL, out, err);
    return rc;
}
