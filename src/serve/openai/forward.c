/* serve/openai/forward.c: requests for models that answer themselves: to their provider, and back.
 *
 * What comes back is passed on as it came, an answer in one piece or event by event; nothing is
 * read from the provider while the client does not read. A refusal of the server's own key is the
 * operator's business, so the client is only told that there was one.
 */
#include <math.h>
#include <stdlib.h>

#include "serve/openai/openai.h"
#include "serve/access/spending.h"

/* Unread bytes above which the provider waits. */
enum { FORWARD_UNREAD_MAX = SERVE_UNREAD_MAX / 2 };

struct passing {
    struct request *r; /* NULL: it has ended */
    struct table_account *account;
    droste_forward *forward; /* NULL: it has ended */
    bool is_paused;
};

static void passing_begin(void *arg)
{
    struct passing *p = arg;
    request_stream(p->r, "text/event-stream");
}

static void passing_event(void *arg, const char *data, size_t len)
{
    struct passing *p = arg;
    struct request *r = p->r;
    request_push(r, "data: ", 6);
    request_push(r, data, len);
    request_push(r, "\n\n", 2);
    if (request_unread(r) > FORWARD_UNREAD_MAX && !p->is_paused) {
        p->is_paused = true;
        droste_forward_pause(p->forward, 1);
    }
}

static void passing_on_drained(struct request *r)
{
    struct passing *p = r->state;
    if (!p || !p->forward || !p->is_paused)
        return;
    p->is_paused = false;
    droste_forward_pause(p->forward, 0);
}

/* ---- the end ---- */

/* True for {"error": {…}}, OpenAI's form. */
static bool passing_has_error(const char *body, size_t len)
{
    cleanup_json struct json_object *tree = NULL;
    return json_parse(body, len, &json_limits_small, &tree, NULL) == 0 &&
           json_get_typed(tree, "error", json_type_object) != NULL;
}

static void passing_refuse(struct request *r, const droste_forward_end *end)
{
    char seconds[16];
    struct openai_error error = { .status = (unsigned)end->status, .code = "provider_error" };
    if (end->status == 401 || end->status == 402 || end->status == 403) {
        error =
            (struct openai_error){ .status = 502, .code = "provider_refused", .is_final = true };
        openai_refuse(r, &error,
            "the model's provider refused this server's key (status %d); its operator has to look",
            end->status);
        return;
    }
    if (end->status < 400 || end->status > 599)
        error.status = 502;
    if (error.status == (unsigned)end->status && passing_has_error(end->body, end->len))
        request_reply(r, error.status, "application/json", end->body, end->len);
    else
        openai_refuse(r, &error, "the model's provider answered with status %d", end->status);
    if (end->retry_after > 0) {
        snprintf(seconds, sizeof seconds, "%.0f", ceil(end->retry_after));
        request_header(r, MHD_HTTP_HEADER_RETRY_AFTER, seconds);
    }
}

/* A stream that breaks off says so, and then lacks its end. */
static void passing_cut(struct request *r, const droste_error *why)
{
    cleanup_buf struct buf out = { 0 };
    buf_puts(&out, "data: {\"error\": ");
    openai_put_error(
        &out, &(struct openai_error){ .status = 502, .code = "provider_failed" }, why->text);
    buf_puts(&out, "}\n\n");
    request_push(r, buf_text(&out), out.len);
    request_cut(r);
}

static void passing_answer(struct request *r, const droste_forward_end *end)
{
    if (end->error && r->streaming)
        passing_cut(r, end->error);
    else if (end->error)
        openai_refuse(r,
            &(struct openai_error){
                .status = end->error->code == DROSTE_ERROR_MODEL_STALL ? 504 : 502,
                .code = "provider_failed" },
            "%s", end->error->text);
    else if (r->streaming)
        request_end(r);
    else if (end->status == 200)
        request_reply(r, 200, "application/json", end->body, end->len);
    else
        passing_refuse(r, end);
}

static void passing_end(void *arg, const droste_forward_end *end)
{
    struct passing *p = arg;
    struct request *r = p->r;
    table_spend(p->account, end->input_tokens, end->output_tokens, end->cost);
    p->forward = NULL;
    if (!r) {
        free(p);
        return;
    }
    r->state = NULL;
    r->on_gone = NULL;
    free(p);
    passing_answer(r, end);
}

static void passing_on_gone(struct request *r)
{
    struct passing *p = r->state;
    r->state = NULL;
    if (!p)
        return;
    p->r = NULL;
    droste_forward_cancel(p->forward);
}

/* ---- the beginning ---- */

static void passing_fail(struct request *r, const droste_error *err)
{
    bool is_theirs = err->code == DROSTE_ERROR_UNSUPPORTED || err->code == DROSTE_ERROR_ARGUMENT;
    if (err->code == DROSTE_ERROR_BUDGET_COST) {
        openai_refuse(r,
            &(struct openai_error){
                .status = 403, .code = "cost", .param = "model", .is_final = true },
            "%s", err->text);
        return;
    }
    openai_refuse(r,
        &(struct openai_error){ .status = is_theirs ? 400 : 500,
            .code = is_theirs ? "unsupported_model" : "configuration",
            .param = is_theirs ? "model" : NULL,
            .is_final = true },
        "%s%s", err->text, is_theirs ? "; the model droste/NAME answers with a run instead" : "");
}

void openai_forward(struct request *r, const char *model)
{
    droste_error err;
    if (!spending_check(r))
        return;
    struct passing *p = request_alloc(r, sizeof *p);
    if (!p)
        return;
    char trace[TRACEPARENT_SIZE];
    *p = (struct passing){ .r = r, .account = r->account->row };
    const droste_forward_request request = { .model = model,
        .body = buf_text(&r->body),
        .len = r->body.len,
        .traceparent = trace_field(&r->trace.span, trace) ? trace : NULL,
        .priced = r->account->key.limits.cost > 0,
        .begin = passing_begin,
        .event = passing_event,
        .end = passing_end,
        .arg = p };
    if (droste_forward_start(r->server->d, &request, &p->forward, &err) < 0) {
        free(p);
        passing_fail(r, &err);
        return;
    }
    r->state = p;
    r->on_gone = passing_on_gone;
    r->on_drained = passing_on_drained;
}
