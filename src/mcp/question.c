/* mcp/question.c: what the server asks of its client while it works on a request: a completion of
 * the client's model, a form for its user, its roots.
 *
 * Up to 2025-11-25 a question is a request on the connection, and its answer a message of its own.
 * In 2026-07-28 it is an answer: "input_required", with all the questions and a token. The call is
 * parked, and the client repeats its request with the answers and the token. Tools see no
 * difference. A token is random, so it needs no signature, holds for one repetition, of the same
 * method and name, and only for the user that got it.
 */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/os/random.h"
#include "mcp/call.h"

/* For a client to come back, which may have to ask its user. */
enum { PARKED_SECONDS = 3600, PARKED_MAX = 256, QUESTIONS_MAX = 1024 };

bool mcp_call_can(const struct mcp_call *c, const char *capability)
{
    struct json_object *found = NULL;
    return c->capabilities && json_object_object_get_ex(c->capabilities, capability, &found);
}

void mcp_call_fail_capability(struct mcp_call *c, const char *capability)
{
    struct json_object *data = json_object_new_object(), *required = json_object_new_object();
    bool ok = data && required && json_put(required, capability, json_object_new_object());
    if (ok)
        ok = json_put(data, "requiredCapabilities", steal(&required));
    json_object_put(required);
    if (!ok) {
        json_object_put(data);
        data = NULL;
    }
    c->is_refusal = true;
    mcp_call_fail_with(c, RPC_CAPABILITY, data, "the client does not offer what this needs");
}

/* Takes it from the call. */
static void question_leave(struct mcp_call *c, struct mcp_question *q)
{
    struct mcp_question **at = &c->questions;
    while (*at != q)
        at = &(*at)->next;
    *at = q->next;
}

/* False: the call has ended. */
static bool question_end(
    struct mcp_call *c, struct mcp_question *q, struct json_object *result, const char *why)
{
    struct mcp_peer *peer = c->peer;
    uint64_t serial = c->serial;
    mcp_reply_fn *fn = q->fn;
    void *arg = q->arg;
    question_leave(c, q);
    mcp_question_free(q);
    fn(arg, c, result, why);
    for (const struct mcp_call *one = peer->calls; one; one = one->next)
        if (one->serial == serial)
            return true;
    return false;
}

/* The answer to a question that came with the request, without being asked. */
static struct json_object *question_answered(struct mcp_call *c, const char *key)
{
    return c->responses ? json_get_typed(c->responses, key, json_type_object) : NULL;
}

static size_t questions_count(const struct mcp_call *c)
{
    size_t n = 0;
    for (const struct mcp_question *q = c->questions; q; q = q->next)
        n++;
    return n;
}

void mcp_call_ask(struct mcp_call *c, const char *key, const char *method,
    struct json_object *params, mcp_reply_fn *fn, void *arg)
{
    struct json_object *known = question_answered(c, key);
    if (known) {
        json_object_put(params);
        fn(arg, c, known, NULL);
        return;
    }
    struct mcp_question *q = questions_count(c) < QUESTIONS_MAX ? calloc(1, sizeof *q) : NULL;
    if (!params || !q || !(q->method = strdup(method))) {
        free(q);
        json_object_put(params);
        fn(arg, c, NULL, "out of memory");
        return;
    }
    if (c->is_stateless)
        snprintf(q->key, sizeof q->key, "%s", key);
    else
        snprintf(q->key, sizeof q->key, "droste-%llu", (unsigned long long)++c->peer->questions);
    q->params = params;
    q->fn = fn;
    q->arg = arg;
    struct mcp_question **at = &c->questions;
    while (*at)
        at = &(*at)->next;
    *at = q;
    c->peer->mcp->server->has_questions = true;
}

/* ---- as requests ---- */

void mcp_peer_take_answer(struct mcp_peer *peer, const struct rpc_message *m)
{
    const char *id =
        m->id && json_object_is_type(m->id, json_type_string) ? json_object_get_string(m->id) : "";
    for (struct mcp_call *c = peer->calls; c; c = c->next)
        for (struct mcp_question *q = c->questions; q; q = q->next) {
            if (c->is_stateless || !q->is_sent || strcmp(q->key, id) != 0)
                continue;
            bool is_result = m->result && json_object_is_type(m->result, json_type_object);
            (void)question_end(c, q, is_result ? m->result : NULL,
                is_result ? NULL
                          : json_get_string(m->error, "message", "the client gave no result"));
            return;
        }
}

static void call_send_questions(struct mcp_call *c)
{
    for (struct mcp_question *q = c->questions; q; q = q->next) {
        if (q->is_sent)
            continue;
        q->is_sent = true;
        mcp_call_note(
            c, rpc_call(json_object_new_string(q->key), q->method, json_object_get(q->params)));
    }
}

/* ---- as results ---- */

static struct json_object *questions_json(const struct mcp_call *c)
{
    struct json_object *all = json_object_new_object();
    for (const struct mcp_question *q = c->questions; all && q; q = q->next) {
        struct json_object *one = json_object_new_object();
        bool ok = one && json_put_text(one, "method", q->method) &&
                  json_put(one, "params", json_object_get(q->params));
        if (!ok) {
            json_object_put(one);
            json_object_put(all);
            return NULL;
        }
        if (!json_put(all, q->key, one)) {
            json_object_put(all);
            return NULL;
        }
    }
    return all;
}

static size_t calls_parked(const struct mcp *mcp)
{
    size_t n = 0;
    for (const struct mcp_peer *peer = mcp->peers; peer; peer = peer->next)
        for (const struct mcp_call *c = peer->calls; c; c = c->next)
            n += c->is_parked;
    return n;
}

/* Answers with the questions, and parks the call. */
static void call_park(struct mcp_call *c)
{
    struct json_object *result = json_object_new_object(), *all = questions_json(c);
    bool ok = result && all && calls_parked(c->peer->mcp) < PARKED_MAX &&
              random_hex(c->token, CALL_TOKEN_SIZE - 1, NULL) == 0 &&
              json_put_text(result, "resultType", "input_required") &&
              json_put(result, "inputRequests", steal(&all)) &&
              json_put_text(result, "requestState", c->token);
    json_object_put(all);
    struct json_object *answer =
        ok ? rpc_result(c->id ? json_object_get(c->id) : NULL, steal(&result)) : NULL;
    json_object_put(result);
    size_t len = 0;
    const char *text = answer ? json_text(answer, &len) : NULL;
    if (!text) {
        json_object_put(answer);
        while (c->questions && question_end(c, c->questions, NULL, "too many requests wait"))
            ;
        return;
    }
    const struct mcp_message message = {
        .json = text, .len = len, .stream = c->stream, .is_answer = true, .is_stateless = true
    };
    c->is_parked = true;
    c->parked_ns = clock_ns();
    c->stream = NULL;
    c->id = NULL;
    c->progress_token = NULL;
    for (struct mcp_question *q = c->questions; q; q = q->next)
        q->is_sent = true;
    c->peer->send(c->peer->arg, &message);
    json_object_put(answer);
}

static bool call_has_new_question(const struct mcp_call *c)
{
    for (const struct mcp_question *q = c->questions; q; q = q->next)
        if (!q->is_sent)
            return true;
    return false;
}

static void peer_flush(struct mcp_peer *peer)
{
    struct mcp_call *next;
    for (struct mcp_call *c = peer->calls; c; c = next) {
        next = c->next;
        if (!call_has_new_question(c) || c->is_parked)
            continue;
        if (c->is_stateless)
            call_park(c);
        else
            call_send_questions(c);
    }
}

void mcp_flush(struct mcp_server *server)
{
    if (!server->has_questions)
        return;
    server->has_questions = false;
    for (struct mcp *mcp = server->users; mcp; mcp = mcp->next)
        for (struct mcp_peer *peer = mcp->peers; peer; peer = peer->next)
            peer_flush(peer);
}

/* ---- the request again ---- */

static struct mcp_call *call_find_parked(const struct mcp *mcp, const char *token)
{
    for (struct mcp_peer *peer = mcp->peers; peer; peer = peer->next)
        for (struct mcp_call *c = peer->calls; c; c = c->next)
            if (c->is_parked && strcmp(c->token, token) == 0)
                return c;
    return NULL;
}

static bool call_is_same(const struct mcp_call *a, const struct mcp_call *b)
{
    static const char *const names[] = { "name", "uri", "arguments" };
    bool same = strcmp(a->method, b->method) == 0;
    for (size_t i = 0; same && i < array_length(names); i++) {
        struct json_object *x = NULL, *y = NULL;
        json_object_object_get_ex(a->params, names[i], &x);
        json_object_object_get_ex(b->params, names[i], &y);
        if (json_object_is_type(x, json_type_object) && json_object_object_length(x) == 0)
            x = NULL; /* an empty object was put for absent arguments */
        if (json_object_is_type(y, json_type_object) && json_object_object_length(y) == 0)
            y = NULL;
        same = x == y || (x && y && json_object_equal(x, y));
    }
    return same;
}

/* The parked call gets what belongs to the message that repeats it, which is freed without it. */
static void call_take_over(struct mcp_call *parked, struct mcp_call *c)
{
    if (!parked->origin)
        parked->origin = steal(&parked->message);
    json_object_put(parked->message);
    parked->message = steal(&c->message);
    parked->id = c->id;
    parked->stream = c->stream;
    parked->progress_token = c->progress_token;
    parked->log_level = c->log_level;
    parked->capabilities = c->capabilities;
    parked->responses = c->responses;
    parked->is_parked = false;
    parked->token[0] = '\0';
    if (parked->peer != c->peer) { /* another connection of the same user */
        struct mcp_call **at = &parked->peer->calls;
        while (*at != parked)
            at = &(*at)->next;
        *at = parked->next;
        parked->peer = c->peer;
        parked->next = c->peer->calls;
        c->peer->calls = parked;
    }
    mcp_call_drop(c);
}

/* Ends the answered questions; the others are asked again. */
static void call_take_responses(struct mcp_call *c)
{
    struct mcp_peer *peer = c->peer;
    for (struct mcp_question *q = c->questions; q; q = q->next)
        q->is_sent = false;
    for (;;) {
        struct mcp_question *q = c->questions;
        while (q && (q->is_sent || !question_answered(c, q->key)))
            q = q->next;
        if (!q)
            break;
        if (!question_end(c, q, question_answered(c, q->key), NULL))
            return;
    }
    peer->mcp->server->has_questions = true;
}

bool mcp_call_resume(struct mcp_call *c)
{
    struct json_object *state = NULL, *responses = NULL;
    bool has_state = json_object_object_get_ex(c->params, "requestState", &state);
    bool has_responses = json_object_object_get_ex(c->params, "inputResponses", &responses);
    if (has_responses && !json_object_is_type(responses, json_type_object)) {
        mcp_call_fail(c, RPC_PARAMS, "`inputResponses` is not an object");
        return true;
    }
    c->responses = responses;
    if (!has_state)
        return false;
    const char *token =
        json_object_is_type(state, json_type_string) ? json_object_get_string(state) : "";
    struct mcp_call *parked = token[0] ? call_find_parked(c->peer->mcp, token) : NULL;
    if (!parked || !call_is_same(parked, c)) {
        mcp_call_fail(c, RPC_PARAMS,
            "`requestState` is not one that this request was answered with, or its time is up");
        return true;
    }
    call_take_over(parked, c);
    if (parked->kept) {
        struct json_object *answer = steal(&parked->kept);
        json_object_object_add(answer, "id", parked->id ? json_object_get(parked->id) : NULL);
        size_t len = 0;
        const char *text = json_text(answer, &len);
        const struct mcp_message message = { .json = text,
            .len = len,
            .stream = parked->stream,
            .is_answer = true,
            .is_stateless = true };
        if (text)
            parked->peer->send(parked->peer->arg, &message);
        json_object_put(answer);
        mcp_call_drop(parked);
        return true;
    }
    call_take_responses(parked);
    return true;
}

void mcp_sweep(struct mcp_server *server, uint64_t now_ns)
{
    for (struct mcp *mcp = server->users; mcp; mcp = mcp->next)
        for (struct mcp_peer *peer = mcp->peers; peer; peer = peer->next) {
            struct mcp_call *next;
            for (struct mcp_call *c = peer->calls; c; c = next) {
                next = c->next;
                if (c->is_parked && now_ns > c->parked_ns + PARKED_SECONDS * 1000000000ull)
                    mcp_call_cancel(c);
            }
        }
}
