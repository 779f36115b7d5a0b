/* serve/native/approvals.c: calls of tools that wait for an approval, over HTTP.
 *
 * They are in the record, which all workers share, so any worker lists and decides them; the one
 * that has the run looks at the record. A key sees those of its own runs. Calls that wait for a
 * function's result from the client of their run are no approvals.
 *
 * Their numbers are those of the record, so nodes of a cluster have the same ones: a request names
 * the run, too.
 */
#include "serve/native/approvals.h"

#include <stdlib.h>
#include <string.h>

#include "serve/mcp/mcp.h"
#include "serve/native/runs.h"
#include "serve/http/relay.h"
#include "serve/http/request.h"

/* ---- the list ---- */

static int approval_on_listed(void *arg, const droste_approval *a, droste_error *err)
{
    struct buf *json = arg;
    if (a->wants_result)
        return 0;
    buf_puts(json, json->data[json->len - 1] == '[' ? "" : ", ");
    return droste_approval_json(a, runs_add_piece, json, err);
}

/* As texts, times of the record's format are in their order. */
static int approval_compare(const void *a, const void *b)
{
    struct json_object *const *one = a, *const *other = b;
    return strcmp(json_get_string(*one, "asked", ""), json_get_string(*other, "asked", ""));
}

static void approval_list_reply(struct request *r, struct json_object *list)
{
    json_object_array_sort(list, approval_compare);
    request_reply_list(r, "approvals", list);
}

void handle_approval_list(struct request *r)
{
    cleanup_buf struct buf json = { 0 };
    struct json_object *list = NULL;
    droste_error err = { 0 };
    bool all = r->account->key.scopes & SCOPE_ADMIN;
    const char *run = request_query(r, "run", "");
    droste_record *record = run ? runs_record(r) : NULL;
    if (r->reply)
        return;
    buf_puts(&json, "[");
    if (record && droste_record_approvals(record, run[0] ? run : NULL,
                      all ? NULL : r->account->key.id, approval_on_listed, &json, &err) < 0) {
        request_fail(r, &err);
        return;
    }
    buf_puts(&json, "]");
    (void)json_parse_written(&json, &list, NULL);
    relay_gather_shared(r, "approvals", list, approval_list_reply);
}

/* ---- one ---- */

struct approval_found {
    const struct request *r;
    const char *run; /* that the client names, or one above it; "": none */
    bool is_mine;
    struct buf json;
};

static int approval_on_found(void *arg, const droste_approval *a, droste_error *err)
{
    struct approval_found *found = arg;
    const struct account *account = found->r->account;
    bool is_of_run =
        !found->run[0] || strcmp(a->root, found->run) == 0 || strcmp(a->run, found->run) == 0;
    found->is_mine = is_of_run && !a->wants_result &&
                     ((account->key.scopes & SCOPE_ADMIN) ||
                         (a->account && strcmp(a->account, account->key.id) == 0));
    buf_clear(&found->json);
    return droste_approval_json(a, runs_add_piece, &found->json, err);
}

/* Looks for it among those of the account; false: another node answers, or the request was refused.
 */
static bool approval_look(struct request *r, droste_record *record, struct approval_found *found)
{
    droste_error err = { .code = DROSTE_ERROR_NOT_FOUND };
    int64_t id = run_parse_number(r->name);
    found->run = request_query(r, "run", "");
    if (found->run && !found->run[0] && r->server->nodes)
        request_refuse(r, 400, "argument",
            "the nodes of a cluster have the same ids: name the run of the approval '%s', too "
            "(?run=RUN)",
            r->name);
    if (r->reply)
        return false;
    int rc =
        record && id > 0 ? droste_record_approval(record, id, approval_on_found, found, &err) : -1;
    if (rc == 0 && found->is_mine)
        return true;
    if (rc < 0 && err.code != DROSTE_ERROR_NOT_FOUND)
        request_fail(r, &err);
    else if (!found->run[0] || !relay_elsewhere(r, "approval", r->name))
        request_refuse(r, 404, "not_found", "there is no approval '%s'", r->name);
    return false;
}

void handle_approval_get(struct request *r)
{
    struct approval_found found = { .r = r };
    droste_record *record = runs_record(r);
    if (!r->reply && approval_look(r, record, &found))
        request_reply_written(r, 200, &found.json);
    buf_free(&found.json);
}

static void approval_decide(struct request *r, droste_record *record)
{
    struct approval_found found = { .r = r };
    droste_error err = { 0 };
    const char *name = r->account->key.name[0] ? r->account->key.name : "a client of the server";
    bool approve = strcmp(json_get_string(r->json, "decision", ""), "approve") == 0;
    const char *reason = json_get_string(r->json, "reason", NULL);
    bool mine = approval_look(r, record, &found);
    if (mine &&
        droste_record_decide(record, run_parse_number(r->name), approve, name, reason, &err) < 0) {
        if (err.code == DROSTE_ERROR_ARGUMENT)
            request_refuse(r, 409, "decided", "%s", err.text);
        else
            request_fail(r, &err);
    } else if (mine && approval_look(r, record, &found)) {
        request_reply_written(r, 200, &found.json);
    }
    buf_free(&found.json);
}

void handle_approval_decide(struct request *r)
{
    droste_record *record = runs_record(r);
    if (!r->reply)
        approval_decide(r, record);
}

/* ---- those of this process ---- */

/* Runs have a record, in which any client decides; a session has only the client of MCP that
 * uses it, and the webhook. */
static void approvals_on_ask(void *arg, droste_approval *a)
{
    struct server *s = arg;
    if (!s->mcp || !mcp_take_approval(s->mcp->core, a))
        droste_approval_leave(a);
}

void approvals_open(struct server *s)
{
    droste_on_approval(s->d, approvals_on_ask, s);
}
