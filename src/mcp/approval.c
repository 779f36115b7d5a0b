/* mcp/approval.c: calls of tools that wait for an approval are forms for the user of the client
 * that has them under way (elicitation). */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "mcp/run.h"
#include "mcp/session.h"

enum { ARGUMENTS_SHOWN = 4000 };

/* The request that waits for the code; NULL: there is none, or its client has gone. */
static struct mcp_call *approval_call(const struct mcp_server *server, const droste_approval *a)
{
    for (const struct mcp *mcp = server->users; mcp; mcp = mcp->next) {
        for (const struct mcp_session *s = mcp->sessions; s && a->session; s = s->next)
            if (s->session == a->session)
                return s->running;
        for (const struct mcp_run *run = mcp->runs; run && a->run; run = run->next)
            if (run->running && strcmp(run->id, a->root) == 0)
                return run->call;
    }
    return NULL;
}

static struct json_object *approval_params(const droste_approval *a)
{
    static const char schema[] =
        "{\"type\":\"object\",\"properties\":{\"approve\":{\"type\":\"boolean\",\"title\":"
        "\"Approve this call\"},\"reason\":{\"type\":\"string\",\"title\":\"Why\"}},"
        "\"required\":[\"approve\"]}";
    struct json_object *params = json_object_new_object(), *requested = NULL;
    cleanup_buf struct buf text = { 0 };
    size_t shown =
        a->len < ARGUMENTS_SHOWN ? a->len : text_utf8_floor(a->arguments, a->len, ARGUMENTS_SHOWN);
    if (strcmp(a->tool, "ask-cost") == 0)
        buf_puts(&text, "The run asks for your approval to spend more (in dollars): ");
    else
        buf_printf(&text, "The code asks for your approval to call %s(", a->tool);
    text_append_visible(&text, a->arguments, shown);
    buf_printf(&text, "%s%s", shown < a->len ? "…" : "", strcmp(a->tool, "ask-cost") ? ")" : "");
    if (a->repeated)
        buf_puts(&text, ". It had begun before, in a process that died, and may be done.");
    bool ok = params && !buf_failed(&text) &&
              json_parse(schema, sizeof schema - 1, &json_limits_small, &requested, NULL) == 0 &&
              json_put_text(params, "mode", "form") &&
              json_put_string(params, "message", text.data, text.len) &&
              json_put(params, "requestedSchema", steal(&requested));
    if (ok)
        return params;
    json_object_put(requested);
    json_object_put(params);
    return NULL;
}

static void approval_on_answer(
    void *arg, struct mcp_call *c, struct json_object *result, const char *why)
{
    droste_approval *a = arg;
    const char *action = json_get_string(result, "action", "");
    struct json_object *content = json_get_typed(result, "content", json_type_object);
    struct json_object *approve = json_get_typed(content, "approve", json_type_boolean);
    (void)c;
    (void)why;
    if (strcmp(action, "accept") == 0 && approve)
        droste_approval_answer(a, json_object_get_boolean(approve), "the user of the MCP client",
            json_get_string(content, "reason", NULL), NULL);
    else if (strcmp(action, "decline") == 0)
        droste_approval_answer(a, false, "the user of the MCP client", NULL, NULL);
    else
        droste_approval_leave(a); /* it was dismissed: others may decide */
}

bool mcp_take_approval(struct mcp_server *server, droste_approval *a)
{
    struct mcp_call *c = approval_call(server, a);
    char key[40];
    if (!c || !mcp_call_can(c, "elicitation"))
        return false;
    snprintf(key, sizeof key, "approval_%llu", (unsigned long long)++c->peer->questions);
    mcp_call_ask(c, key, "elicitation/create", approval_params(a), approval_on_answer, a);
    return true;
}

static void approval_on_ask(void *arg, droste_approval *a)
{
    if (!mcp_take_approval(arg, a))
        droste_approval_leave(a);
}

void mcp_approvals_prepare(struct mcp_server *server)
{
    if (server->host == &mcp_own_host) /* others ask other clients, too */
        droste_on_approval(server->d, approval_on_ask, server);
}
