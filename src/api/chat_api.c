/* api/chat_api.c: conversations: several questions over one session.
 *
 * Each question is a run that goes on from the one before (rlm_options.after), in the order of the
 * record. A conversation of the record is gone over first: the cells of its runs run again, answered
 * from there, with the settings that each had; nobody is asked and nothing is written.
 */
#include "api/run_parts.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

/* A question's: contexts and tools are needed as long as the session. */
struct turn {
    struct turn *next;
    struct run_parts parts;
};

struct droste_chat {
    droste *d;
    struct turn *turns; /* the latest first */
    struct rlm_run *last;
    char last_id[STORE_RUN_ID_SIZE];
    struct models models; /* once somebody was asked; recordings go on where they are */
    bool has_settings;    /* its own, of the run that it goes on from */
    struct settings settings;
};

static int open_models(droste_chat *c, struct error *err)
{
    return c->models.opened_count > 0 ? 0 : api_models(c->d, true, &c->models, err);
}

/* The parts of one more run. */
static int next_parts(droste_chat *c, struct run_parts *p, struct error *err)
{
    int rc = open_models(c, err);
    p->models = c->models;
    p->shared = true;
    p->after = c->last;
    p->previous = c->last_id[0] ? c->last_id : NULL;
    return rc;
}

static int new_turn(droste_chat *c, struct turn **out, struct error *err)
{
    struct turn *turn = calloc(1, sizeof *turn);
    int rc = turn ? next_parts(c, &turn->parts, err) : error_memory(err);
    if (rc < 0) {
        free(turn);
        return rc;
    }
    turn->next = c->turns;
    turn->parts.keep = true;
    c->turns = turn;
    *out = turn;
    return 0;
}

static void drop_turn(droste_chat *c)
{
    struct turn *turn = c->turns;
    c->turns = turn->next;
    run_parts_free(&turn->parts);
    free(turn);
}

/* The run that has ended is the one to go on from. */
static void advance(droste_chat *c, struct rlm_run *run, const char *id)
{
    rlm_close(c->last);
    c->last = run;
    snprintf(c->last_id, sizeof c->last_id, "%s", id);
}

void droste_chat_close(droste_chat *c)
{
    if (!c)
        return;
    rlm_close(c->last);
    while (c->turns)
        drop_turn(c);
    api_models_close(&c->models);
    if (c->has_settings)
        settings_free(&c->settings);
    free(c);
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
    struct error why = { 0 };
    return api_fail(err, &why, open_chat(d, out, &why));
}

/* ---- a question ---- */

static int ask(droste_chat *c, const char *question, const char *context, struct run_waiting *w,
    struct error *err)
{
    struct turn *turn = NULL;
    struct rlm_run *run = NULL;
    int rc = new_turn(c, &turn, err);
    if (rc < 0)
        return rc;
    rc = run_parts_make(c->d, context, &turn->parts, err);
    if (rc == 0)
        rc = run_and_wait(c->d, question, &turn->parts, w, &run, err);
    if (run)
        advance(c, run, w->run);
    else
        drop_turn(c);
    return rc;
}

int droste_chat_ask(droste_chat *c, const char *question, const char *context, droste_event_fn *fn,
    void *arg, droste_result **out, droste_error *err)
{
    struct error why = { 0 };
    struct run_waiting w = { .fn = fn, .arg = arg };
    droste *d = c->d;
    struct settings now = d->settings;
    int rc = 0;
    api_forget_interrupt(d);
    if (d->run)
        rc = error_set(&why, ERROR_ARGUMENT, "a run is under way in this context already");
    else if (!question || !question[0])
        rc = error_set(&why, ERROR_ARGUMENT, "there is no question");
    if (rc == 0) {
        if (c->has_settings)
            d->settings = c->settings;
        rc = ask(c, question, context, &w, &why);
        d->settings = now;
    }
    if (rc < 0)
        droste_result_free(w.result);
    else
        *out = w.result;
    return api_fail(err, &why, rc);
}

/* ---- a conversation of the record ---- */

static int check_past(const struct run_past *past, struct error *err)
{
    if (strcmp(past->status, "running") == 0)
        return error_set(err, ERROR_ARGUMENT, "run '%.64s' has not ended", past->id);
    if (strcmp(past->status, "interrupted") == 0)
        return error_set(err, ERROR_ARGUMENT,
            "run '%.64s' was broken off; `droste runs resume` goes on with it first", past->id);
    return 0;
}

static int run_again(droste_chat *c, struct run_past *past, struct error *err)
{
    struct turn *turn = NULL;
    struct rlm_run *run = NULL;
    struct run_waiting w = { 0 };
    int rc = new_turn(c, &turn, err);
    if (rc < 0)
        return rc;
    turn->parts.store = past->store;
    turn->parts.resume = past->id;
    turn->parts.again = true;
    rc = run_past_context(c->d, past, &turn->parts, err);
    if (rc == 0)
        rc = run_and_wait(c->d, buf_text(&past->question), &turn->parts, &w, &run, err);
    droste_result_free(w.result);
    if (!run) {
        drop_turn(c);
        return rc;
    }
    advance(c, run, past->id);
    turn->parts.resume = NULL; /* the past is the caller's */
    if (rc == 0 && w.error.code == ERROR_MODEL_REPLAY) {
        *err = w.error;
        rc = error_wrap(err, "run '%.64s' cannot be gone on from", past->id);
    }
    return rc;
}

/* With the settings of then, but for models and keys. */
static int run_again_as_then(droste_chat *c, struct run_past *past, struct error *err)
{
    droste *d = c->d;
    struct settings now = d->settings;
    int rc = settings_init(&d->settings, err);
    if (rc == 0)
        rc = settings_restore(&d->settings, buf_text(&past->settings), past->settings.len, err);
    if (rc == 0)
        rc = settings_take_secrets(&d->settings, &now, err);
    if (rc == 0)
        rc = run_again(c, past, err);
    settings_free(&d->settings);
    d->settings = now;
    return rc;
}

enum { CHAIN_MAX = 10000 };

/* The runs of the conversation, the latest first, and then each again, the first one first. */
static int go_over(droste_chat *c, const char *run, struct error *err)
{
    struct run_past *chain = NULL;
    size_t count = 0;
    char id[STORE_RUN_ID_SIZE];
    int rc = open_models(c, err); /* those of now, whatever the runs had */
    snprintf(id, sizeof id, "%s", run);
    while (rc == 0 && id[0]) {
        struct run_past *more = reallocarray(chain, count + 1, sizeof *chain);
        if (!more || count >= CHAIN_MAX) {
            chain = more ? more : chain;
            rc = error_memory(err);
            break;
        }
        chain = more;
        chain[count] = (struct run_past){ 0 };
        rc = run_past_find(c->d, id, &chain[count], err);
        if (rc < 0 && count > 0)
            error_wrap(err, "the question before run '%.64s'", chain[count - 1].id);
        if (rc == 0)
            rc = check_past(&chain[count], err);
        snprintf(id, sizeof id, "%s", chain[count++].previous);
    }
    for (size_t i = count; rc == 0 && i-- > 0;)
        rc = run_again_as_then(c, &chain[i], err);
    for (size_t i = 0; i < count; i++)
        run_past_free(&chain[i]);
    free(chain);
    return rc;
}

int chat_before(
    droste *d, const char *run, droste_chat **out, struct run_parts *p, struct error *err)
{
    int rc = open_chat(d, out, err);
    if (rc == 0)
        rc = go_over(*out, run, err);
    return rc < 0 ? rc : next_parts(*out, p, err);
}

/* What is set now goes before what was set then. */
static int overlay(droste_chat *c, struct error *err)
{
    const struct settings *now = &c->d->settings;
    cleanup_buf struct buf setup = { 0 }, instructions = { 0 }, json = { 0 };
    int rc = now->setup_code ? api_text(now->setup_code, "setup code", &setup, err) : 0;
    if (rc == 0 && now->instructions)
        rc = api_text(now->instructions, "instructions", &instructions, err);
    struct settings_texts texts = { buf_text(&setup), buf_text(&instructions) };
    settings_save(now, &texts, &json);
    if (rc == 0 && buf_failed(&json))
        rc = error_memory(err);
    if (rc == 0)
        rc = settings_restore(&c->settings, json.data, json.len, err);
    return rc < 0 ? rc : settings_take_secrets(&c->settings, now, err);
}

static int take_settings(droste_chat *c, const char *run, struct error *err)
{
    struct run_past past = { 0 };
    int rc = settings_init(&c->settings, err);
    c->has_settings = rc == 0;
    if (rc == 0)
        rc = run_past_find(c->d, run, &past, err);
    if (rc == 0)
        rc = settings_restore(&c->settings, buf_text(&past.settings), past.settings.len, err);
    run_past_free(&past);
    return rc < 0 ? rc : overlay(c, err);
}

static int go_on(droste_chat *c, const char *run, struct error *err)
{
    droste *d = c->d;
    struct settings now = d->settings;
    int rc = take_settings(c, run, err);
    if (rc < 0)
        return rc;
    d->settings = c->settings;
    rc = go_over(c, run, err);
    d->settings = now;
    return rc;
}

int droste_chat_continue(droste *d, const char *run, droste_chat **out, droste_error *err)
{
    struct error why = { 0 };
    droste_chat *c = NULL;
    int rc = d->run ? error_set(&why, ERROR_ARGUMENT, "a run is under way in this context already")
                    : open_chat(d, &c, &why);
    api_forget_interrupt(d);
    if (rc == 0)
        rc = go_on(c, run, &why);
    if (rc < 0)
        droste_chat_close(c);
    else
        *out = c;
    return api_fail(err, &why, rc);
}
