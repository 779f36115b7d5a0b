/* serve/openai/answer.c: answers a request with a run, as the record has it.
 *
 * The request that starts a run, one that joins it, and one that comes when it has ended are the
 * same: each follows the record. A run's id has a hash of what was asked, so that the client's next
 * try finds it, in any worker, also after the server has died; the run is then resumed.
 */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hash.h"
#include "serve/openai/openai.h"
#include "serve/access/spending.h"
#include "serve/http/relay.h"
#include "serve/sandbox/sandbox.h"
#include "serve/native/run_options.h"
#include "serve/options.h"

/* Digits of the hash in an id, behind those of the worker; random ones follow. */
enum { ANSWER_HASH_AT = SERVE_ID_PLACE, ANSWER_HASH_LEN = 12 };
/* Tries come soon: clients wait for ten minutes, and try twice again. */
enum { ANSWER_RETRY_MS = 3600 * 1000, ANSWER_RETRY_RUNS = 10000 };
/* A stream is silent no longer than that. */
enum { ANSWER_COMMENT_SECONDS = 15 };

/* ---- which run ---- */

/* What is asked: account, endpoint, key and body. */
static bool answer_hash(struct request *r, const char *key, char out[HASH_TEXT_SIZE])
{
    cleanup_hash struct hash hash = { 0 };
    const char *const words[] = { r->account->key.id, r->route->path, key ? key : "" };
    if (hash_open(&hash, NULL) < 0)
        return false;
    for (size_t i = 0; i < array_length(words); i++)
        hash_add(&hash, words[i], strlen(words[i]) + 1);
    hash_add(&hash, buf_text(&r->body), r->body.len);
    return hash_take(&hash, out, NULL) == 0;
}

struct answer_search {
    const struct request *r;
    const char *hash;
    char id[SERVE_ID_SIZE];
    bool is_interrupted;
};

static int answer_on_listed(void *arg, const droste_record_run *run, droste_error *err)
{
    struct answer_search *search = arg;
    if (strlen(run->id) != SERVE_ID_SIZE - 1 ||
        strncmp(run->id + ANSWER_HASH_AT, search->hash, ANSWER_HASH_LEN) != 0 ||
        !runs_is_mine(search->r, run))
        return 0;
    memcpy(search->id, run->id, SERVE_ID_SIZE);
    search->is_interrupted = strcmp(run->status, "interrupted") == 0;
    return -1; /* enough */
}

/* Looks for the run of an earlier try. */
static bool answer_find(struct request *r, const char *hash, struct answer_search *search)
{
    const droste_record_filter filter = { .account = r->account->key.id,
        .since_ms = clock_wall_ms() - ANSWER_RETRY_MS,
        .limit = ANSWER_RETRY_RUNS };
    droste_record *record = runs_record(r);
    *search = (struct answer_search){ .r = r, .hash = hash };
    if (record)
        droste_record_list(record, &filter, answer_on_listed, search, NULL);
    return search->id[0] != '\0';
}

/* ---- following ---- */

void openai_push(struct openai_answer *a, const char *type, const char *data, size_t len)
{
    struct request *r = a->f.r;
    if (type) {
        request_push(r, "event: ", 7);
        request_push(r, type, strlen(type));
        request_push(r, "\n", 1);
    }
    request_push(r, "data: ", 6);
    request_push(r, data, len);
    request_push(r, "\n\n", 2);
    a->told_ns = clock_ns();
}

static int answer_on_call(void *arg, const droste_record_call *call, droste_error *err)
{
    struct openai_answer *a = arg;
    if (a->form->call && call->ended_ms > 0 && (a->streams || a->form->has_steps))
        a->form->call(a, call);
    return 0;
}

static int answer_on_cell(void *arg, const droste_record_cell *cell, droste_error *err)
{
    struct openai_answer *a = arg;
    if (a->form->cell && cell->ended_ms > 0 && (a->streams || a->form->has_steps))
        a->form->cell(a, cell);
    return 0;
}

static const droste_record_visitor answer_visitor = { .call = answer_on_call,
    .cell = answer_on_cell };

static int answer_read(struct follower *f, droste_record *record)
{
    struct openai_answer *a = (struct openai_answer *)f;
    return !a->streams && !a->form->has_steps ? 0
                                              : droste_record_follow(record, f->r->id, &f->at,
                                                    RUN_EVENTS_AT_ONCE, &answer_visitor, a, NULL);
}

int openai_answer_read(struct openai_answer *a, droste_record *record)
{
    return droste_record_follow(record, a->f.r->id, &a->f.at, 0, &answer_visitor, a, NULL);
}

static void answer_tick(struct follower *f, uint64_t now_ns)
{
    static const char comment[] = ": the run goes on\n\n";
    struct openai_answer *a = (struct openai_answer *)f;
    runs_attend(f->r->server, f->r->id, now_ns);
    if (a->form->tick)
        a->form->tick(a);
    if (f->r->ended || (f->r->reply && !a->streams))
        return;
    if (!a->streams || request_unread(f->r) > 0 || now_ns < a->told_ns ||
        (double)(now_ns - a->told_ns) / 1e9 < ANSWER_COMMENT_SECONDS)
        return;
    request_push(f->r, comment, sizeof comment - 1);
    a->told_ns = now_ns;
}

/* ---- the end ---- */

void openai_answer_text(struct buf *out, const droste_record_run *run)
{
    cleanup_json struct json_object *answer = NULL;
    if (!run->answer.data)
        return;
    if (json_parse(run->answer.data, run->answer.len, &json_limits_large, &answer, NULL) == 0 &&
        json_object_is_type(answer, json_type_string))
        buf_append(out, json_object_get_string(answer), (size_t)json_object_get_string_len(answer));
    else
        buf_append(out, run->answer.data, run->answer.len);
}

static void answer_fail(struct openai_answer *a, const struct openai_error *error, const char *text)
{
    if (!a->streams) {
        openai_refuse(a->f.r, error, "%s", text);
        return;
    }
    a->form->fail(a, error, text);
    request_end(a->f.r);
}

/* A run without an answer has no better one at the next try. */
static void answer_fail_run(struct openai_answer *a, const droste_record_run *run)
{
    static const struct {
        const char *status, *code, *text;
        unsigned http;
    } ends[] = {
        { "exhausted", "run_exhausted", "the run used up its turns without an answer", 500 },
        { "budget", "run_budget", "the run used up its budget without an answer", 500 },
        { "timeout", "run_timeout", "the run used up its time without an answer", 500 },
        { "cancelled", "run_cancelled", "the run was cancelled", 409 },
        { "", "run_failed", "the run failed", 500 },
    };
    size_t i = 0;
    while (ends[i].status[0] && strcmp(ends[i].status, run->status) != 0)
        i++;
    answer_fail(a,
        &(struct openai_error){ .status = ends[i].http, .code = ends[i].code, .is_final = true },
        run->error && run->error[0] ? run->error : ends[i].text);
}

static int answer_on_end(void *arg, const droste_record_run *run, droste_error *err)
{
    struct openai_answer *a = arg;
    if (strcmp(run->status, "answered") != 0 && !a->form->has_all_ends) {
        answer_fail_run(a, run);
        return 0;
    }
    a->form->end(a, run);
    if (a->streams)
        request_end(a->f.r);
    return 0;
}

static void answer_end(struct follower *f, const char *status)
{
    struct openai_answer *a = (struct openai_answer *)f;
    struct server *s = f->r->server;
    if (status && strcmp(status, "interrupted") == 0)
        answer_fail(a, &(struct openai_error){ .status = 503, .code = "run_interrupted" },
            "the server stopped before the run had ended; the next try goes on with it");
    else if (!status || droste_record_get(s->record, f->r->id, answer_on_end, a, NULL) < 0)
        answer_fail(a,
            &(struct openai_error){ .status = 500, .code = "run_removed", .is_final = true },
            "the run is no longer in the record");
}

static const struct follower_kind answer_kind = { answer_read, answer_end, answer_tick };

/* ---- the beginning ---- */

static void answer_on_free(struct request *r)
{
    struct openai_answer *a = r->state;
    if (a->follows)
        runs_unfollow(&a->f);
    if (a->free_state)
        a->free_state(a);
    free(a);
}

static int answer_on_started(void *arg, const droste_record_run *run, droste_error *err)
{
    ((struct openai_answer *)arg)->created_ms = run->started_ms;
    return 0;
}

/* The run is in the record, and its id is the request's. */
static void answer_join(struct request *r)
{
    const struct openai_form *form = r->route->form;
    struct openai_answer *a = calloc(1, sizeof *a);
    droste_record *record = runs_record(r);
    int64_t from = form->from ? form->from(r) : 0;
    if (r->reply) {
        free(a);
        return;
    }
    if (!a || !record) {
        free(a);
        request_refuse(r, 503, "memory", "the record cannot be read");
        return;
    }
    *a = (struct openai_answer){ .f = { .r = r, .kind = &answer_kind, .at = from },
        .from = from,
        .form = form,
        .streams = json_get_bool(r->json, "stream", false),
        .told_ns = clock_ns() };
    r->state = a;
    r->on_free = answer_on_free;
    droste_record_get(record, r->id, answer_on_started, a, NULL);
    if (form->begun && !form->begun(a)) {
        if (!r->reply)
            form->reply_early(a);
        return;
    }
    runs_attend(r->server, r->id, a->told_ns);
    a->follows = true;
    runs_follow(&a->f);
    if (!a->streams)
        return;
    request_stream(r, "text/event-stream");
    request_header(r, "X-Droste-Run", r->id);
    form->begin(a);
}

static bool answer_settings(struct request *r, const char *run, struct buf *words)
{
    const struct openai_form *form = r->route->form;
    struct openai_model model;
    if (!openai_model_of(r, &model) || !run_settings(r, NULL, words))
        return false;
    sandbox_setting(words, "model", model.name);
    runs_put_trace(r, words);
    return !form->settings || form->settings(r, run, words);
}

/* How long it goes on without a client; 0: to its end. */
static double answer_patience(struct request *r)
{
    const struct openai_form *form = r->route->form;
    bool is_background = form->is_background && form->is_background(r);
    return is_background ? 0 : r->server->options->detach_seconds;
}

/* Starts it in the place that admission reserved. */
static void answer_start(struct request *r)
{
    struct server *s = r->server;
    cleanup_buf struct buf words = { 0 };
    cleanup_openai_ask struct openai_ask ask = { .r = r };
    char id[SERVE_ID_SIZE], hash[HASH_TEXT_SIZE];
    if (!r->route->form->ask(&ask))
        return;
    if (server_make_id(s, id) < 0 ||
        !answer_hash(r, request_header_of(r, "Idempotency-Key"), hash)) {
        request_refuse_memory(r);
        return;
    }
    memcpy(id + ANSWER_HASH_AT, hash, ANSWER_HASH_LEN);
    if (!answer_settings(r, id, &words))
        return;
    if (ask.shows_images)
        sandbox_setting(&words, "show-images", "yes");
    for (size_t i = 0; i < ask.image_urls.count; i++)
        sandbox_setting(&words, "image-url", ask.image_urls.items[i]);
    cleanup_free const char **settings = sandbox_list_settings(&words);
    if (!settings) {
        request_refuse_memory(r);
        return;
    }
    droste_request request = { .question = ask.question.data,
        .context = ask.path,
        .data = ask.data,
        .len = ask.len,
        .kind = ask.kind,
        .contexts = ask.paths,
        .parts = ask.images,
        .part_count = ask.image_count,
        .settings = settings,
        .id = id,
        .account = r->account->key.id };
    runs_start(r, &(struct runs_start){ &request, id, answer_join, answer_patience(r) });
}

static void answer_resume(struct request *r)
{
    if (!spending_check(r))
        return;
    droste_request request = { .resume = r->id };
    runs_start(r, &(struct runs_start){ &request, r->id, answer_join, answer_patience(r) });
}

void openai_answer_again(struct request *r, bool is_interrupted)
{
    if (is_interrupted && !runs_have(r->server, r->id))
        admission_ask(r, answer_resume);
    else
        answer_join(r);
}

void openai_answer(struct request *r)
{
    struct answer_search search;
    const char *key = request_header_of(r, "Idempotency-Key");
    const char *tries = request_header_of(r, "X-Stainless-Retry-Count");
    char hash[HASH_TEXT_SIZE];
    if (!runs_are_recorded(r))
        return;
    bool is_again = key || (tries && strcmp(tries, "0") != 0);
    if (!is_again || !answer_hash(r, key, hash) || !answer_find(r, hash, &search)) {
        /* The last node of all that were asked starts it. */
        if (!r->reply && !(is_again && relay_on_node(r)))
            admission_ask(r, answer_start);
        return;
    }
    memcpy(r->id, search.id, sizeof r->id);
    openai_answer_again(r, search.is_interrupted);
}
