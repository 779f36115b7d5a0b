/* broker/network_ask.c: see network_ask.h. */
#include "broker/network_ask.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json/fields.h"
#include "broker/ask.h"
#include "broker/tool_call.h"
#include "broker/tools.h"
#include "egress/egress.h"
#include "wire/frame.h"

enum { DESTINATIONS_MOST = 10000 };

static void network_tool_answer(void *arg, struct tool_call *call, const char *json, size_t len)
{
    (void)arg;
    (void)json;
    (void)len;
    tool_call_answer(call, "true", 4);
}

static const struct tool network_tool = { .name = (char *)NETWORK_TOOL, .fn = network_tool_answer };

/* {"host": …, "port": …}, and of a request of HTTP its method and path. */
static void network_describe(struct buf *out, const droste_network_request *request)
{
    size_t path = request->path ? strcspn(request->path, "?") : 0;
    field_open(out, NULL, '{');
    field_string(out, "host", request->host);
    field_int(out, "port", request->port);
    if (request->path) {
        field_string(out, "method", request->method);
        field_text(out, "path", request->path, path);
    }
    field_close(out, '}');
}

static bool network_join(struct network_question *n, droste_network_request *request)
{
    droste_network_request **more = realloc(n->requests, (n->count + 1) * sizeof *n->requests);
    if (!more)
        return false;
    n->requests = more;
    n->requests[n->count++] = request;
    return true;
}

static void network_free(struct network_question *n)
{
    free(n->destination);
    free(n->requests);
    free(n);
}

/* The question under way about the same; NULL: none. */
static struct network_question *network_find(const struct broker *b, const char *destination)
{
    for (struct ask *ask = b->asks; ask; ask = ask->next)
        if (ask->network && strcmp(ask->network->destination, destination) == 0)
            return ask->network;
    return NULL;
}

int network_ask_take(
    struct ask *ask, struct json_object *head, struct frame_parts *rest, struct error *err)
{
    (void)head;
    (void)rest;
    ask->is_tool = true;
    ask->model = strdup(NETWORK_TOOL);
    return ask->model ? 0 : error_memory(err);
}

static void network_decide(struct network_question *n, bool allow, const char *why)
{
    droste_network_request **requests = steal(&n->requests);
    size_t count = n->count;
    n->count = 0;
    for (size_t i = 0; i < count; i++)
        egress_answer(requests[i], allow, why);
    free(requests);
}

static void network_drop(struct ask *ask)
{
    struct network_question *n = steal(&ask->network);
    if (!n)
        return;
    network_decide(n, false, "the question was withdrawn");
    network_free(n);
}

/* Why it was refused: the text of the tool's failure, or of the broker's error. */
static void network_why(const struct item *item, char out[EGRESS_WHY_SIZE])
{
    cleanup_json struct json_object *failure = NULL;
    if (item->failure)
        json_parse(item->failure, strlen(item->failure), &json_limits_small, &failure, NULL);
    snprintf(out, EGRESS_WHY_SIZE, "%s",
        json_get_string(failure, "message", item->error.text[0] ? item->error.text : "refused"));
}

static void network_reply(struct ask *ask)
{
    struct broker *b = ask->broker;
    const struct item *item = &ask->items[0];
    struct network_question *n = steal(&ask->network);
    bool allow = item->error.code == ERROR_NONE && !item->failure;
    struct list *decided = allow ? &b->allowed : &b->denied;
    char why[EGRESS_WHY_SIZE] = "";
    if (!allow)
        network_why(item, why);
    if (item->error.code == ERROR_NONE && decided->count < DESTINATIONS_MOST)
        list_add(decided, n->destination, NULL);
    ask_unlink(ask);
    ask_free(ask);
    network_decide(n, allow, why);
    network_free(n);
}

static struct network_question *network_new(const struct buf *text, droste_network_request *request)
{
    struct network_question *n = calloc(1, sizeof *n);
    if (n)
        *n = (struct network_question){
            .tool = &network_tool, .reply = network_reply, .drop = network_drop
        };
    if (n && (n->destination = strdup(buf_text(text))) && network_join(n, request))
        return n;
    if (n)
        network_free(n);
    return NULL;
}

/* As if the guest had called a tool. */
static int network_begin(struct broker *b, struct session *s, const struct buf *text,
    struct network_question *n, struct error *err)
{
    const int64_t length = (int64_t)text->len;
    const struct session_call call = { .parts = { .count = 1,
                                           .lengths = (const char *)&length,
                                           .data = text->data,
                                           .bytes = text->len } };
    return b->ask_network(b, s, &call, n, err);
}

bool network_ask(struct broker *b, struct session *s, droste_network_request *request)
{
    cleanup_buf struct buf text = { 0 };
    struct error why = { 0 };
    network_describe(&text, request);
    if (buf_failed(&text))
        return false;
    if (list_has(&b->allowed, buf_text(&text)) || list_has(&b->denied, buf_text(&text))) {
        egress_answer(request, list_has(&b->allowed, buf_text(&text)), "it was denied before");
        return true;
    }
    struct network_question *same = network_find(b, buf_text(&text));
    if (same)
        return network_join(same, request);
    struct network_question *n = network_new(&text, request);
    if (n && network_begin(b, s, &text, n, &why) == 0)
        return true;
    if (!n)
        return false;
    network_decide(n, false, why.text);
    network_free(n);
    return true;
}
