/* serve/e2b/process_calls.c: envd's calls about processes: input, signals, sizes, the list.
 *
 * A call attaches to its command, does its one thing, and detaches.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "serve/e2b/process.h"
#include "serve/sandbox/sandbox.h"

struct process_call {
    struct server *server;
    struct request *r; /* NULL: its client has gone */
    char id[SERVE_ID_SIZE];
    uint64_t handle;
    droste_command_request op; /* what is to be done */
    char *data;                /* of "input" */
    size_t len, at;
};

static bool call_start(
    struct process_call *c, const droste_command_request *request, droste_command_fn *fn)
{
    struct sandbox *sb = sandbox_find(c->server, c->id);
    droste_error err = { .code = DROSTE_ERROR_LOST, .text = "the sandbox has ended" };
    if (sb && droste_command_start(sb->session, request, fn, c, &err) == 0)
        return true;
    if (c->r)
        request_refuse(c->r, process_status(&err), "command", "%s", err.text);
    return false;
}

static void call_free(struct process_call *c)
{
    if (c->r) {
        c->r->state = NULL;
        c->r->on_free = NULL;
    }
    free(c->data);
    free(c);
}

static void call_on_free(struct request *r)
{
    struct process_call *c = r->state;
    if (c)
        c->r = NULL;
    r->state = NULL;
}

static void call_on_detached(void *arg, const droste_command_reply *reply, const droste_error *err)
{
    call_free(arg);
}

static void call_answer(struct process_call *c, const droste_error *err)
{
    if (c->r && err)
        request_refuse(c->r, process_status(err), "command", "%s", err->text);
    else if (c->r)
        request_reply(c->r, 200, "application/json", "{}", 2);
}

static void call_detach(struct process_call *c)
{
    const droste_command_request request = { .op = "detach", .handle = c->handle };
    if (!call_start(c, &request, call_on_detached))
        call_free(c);
}

static void call_on_done(void *arg, const droste_command_reply *reply, const droste_error *err);
static void call_await_end(struct process_call *c);

static void call_do(struct process_call *c)
{
    droste_command_request request = c->op;
    request.handle = c->handle;
    if (c->data) {
        size_t rest = c->len - c->at;
        request.data = c->data + c->at;
        request.len = rest < DROSTE_COMMAND_PIECE ? rest : DROSTE_COMMAND_PIECE;
        c->at += request.len;
    }
    if (!call_start(c, &request, call_on_done))
        call_free(c);
}

/* A killed process is gone when its client is answered. */
static void call_on_end(void *arg, const droste_command_reply *reply, const droste_error *err)
{
    struct process_call *c = arg;
    if (!err && !reply->ended) {
        call_await_end(c);
        return;
    }
    call_answer(c, NULL);
    call_detach(c);
}

static void call_await_end(struct process_call *c)
{
    const droste_command_request request = {
        .op = "output", .handle = c->handle, .length = DROSTE_COMMAND_PIECE
    };
    if (!call_start(c, &request, call_on_end))
        call_free(c);
}

static void call_on_done(void *arg, const droste_command_reply *reply, const droste_error *err)
{
    struct process_call *c = arg;
    if (!err && c->at < c->len) {
        call_do(c);
        return;
    }
    if (!err && c->op.signal == SIGKILL) {
        call_await_end(c);
        return;
    }
    call_answer(c, err);
    call_detach(c);
}

static void call_on_attached(void *arg, const droste_command_reply *reply, const droste_error *err)
{
    struct process_call *c = arg;
    if (err) {
        call_answer(c, err);
        call_free(c);
        return;
    }
    c->handle = reply->handle;
    call_do(c);
}

/* Takes the data, if there is some. */
static void call_begin(struct request *r, const droste_command_request *op, char *data, size_t len)
{
    /* It reads no output, so the process does not wait for it. */
    droste_command_request attach = { .op = "attach", .flags = DROSTE_COMMAND_QUIET };
    cleanup_free char *held = data;
    struct process_call *c = NULL;
    if (!e2b_running_of(r))
        return;
    if (!process_select(r->json, &attach)) {
        request_refuse(r, 400, "argument", "name a process by its pid or its tag");
        return;
    }
    c = request_alloc(r, sizeof *c);
    if (!c)
        return;
    c->server = r->server;
    c->r = r;
    memcpy(c->id, r->id, sizeof c->id);
    c->op = *op;
    c->data = steal(&held);
    c->len = len;
    r->state = c;
    r->on_free = call_on_free;
    if (!call_start(c, &attach, call_on_attached))
        call_free(c);
}

char *process_input(struct json_object *message, size_t *len)
{
    struct json_object *input = json_get_typed(message, "input", json_type_object);
    struct json_object *text = json_get_typed(input, "stdin", json_type_string);
    if (!text)
        text = json_get_typed(input, "pty", json_type_string);
    return text ? json_base64_bytes(
                      json_object_get_string(text), (size_t)json_object_get_string_len(text), len)
                : NULL;
}

void e2b_handle_process_input(struct request *r)
{
    const droste_command_request op = { .op = "input" };
    size_t len = 0;
    char *data = process_input(r->json, &len);
    if (data)
        call_begin(r, &op, data, len);
    else
        request_refuse(r, 400, "argument", "the input is not base64 of stdin or pty");
}

void e2b_handle_process_close(struct request *r)
{
    const droste_command_request op = { .op = "input", .flags = DROSTE_COMMAND_EOF };
    call_begin(r, &op, NULL, 0);
}

/* By name, or by number, as proto3's JSON has enumerations. */
static int call_signal(struct json_object *message)
{
    const char *name = json_get_string(message, "signal", "");
    int64_t number = json_get_int(message, "signal", 0);
    if (strcmp(name, "SIGNAL_SIGKILL") == 0 || number == SIGKILL)
        return SIGKILL;
    return strcmp(name, "SIGNAL_SIGTERM") == 0 || number == SIGTERM ? SIGTERM : 0;
}

void e2b_handle_process_signal(struct request *r)
{
    const droste_command_request op = {
        .op = "signal", .signal = call_signal(r->json), .flags = DROSTE_COMMAND_ALONE
    };
    if (op.signal)
        call_begin(r, &op, NULL, 0);
    else
        request_refuse(r, 400, "argument", "the signals are SIGNAL_SIGKILL and SIGNAL_SIGTERM");
}

void e2b_handle_process_update(struct request *r)
{
    struct json_object *pty = json_get_typed(r->json, "pty", json_type_object);
    struct json_object *size = json_get_typed(pty, "size", json_type_object);
    const droste_command_request op = { .op = "resize",
        .columns = (unsigned)json_get_int(size, "cols", 80),
        .rows = (unsigned)json_get_int(size, "rows", 24) };
    call_begin(r, &op, NULL, 0);
}

/* ---- the list ---- */

static struct json_object *call_words(const char *const *words)
{
    struct json_object *list = json_object_new_array();
    for (; list && words && *words; words++)
        json_object_array_add(list, json_object_new_string(*words));
    return list;
}

static struct json_object *call_describe(const droste_command_info *info)
{
    struct json_object *o = json_object_new_object(), *config = json_object_new_object(),
                       *envs = json_object_new_object();
    json_put_text(config, "cmd", info->argv && info->argv[0] ? info->argv[0] : "");
    json_put(config, "args", call_words(info->argv && info->argv[0] ? info->argv + 1 : NULL));
    for (const char *const *at = info->env; at && *at; at++) {
        size_t n = strcspn(*at, "=");
        cleanup_free char *name = strndup(*at, n);
        if (name)
            json_put_text(envs, name, *at + n + ((*at)[n] == '='));
    }
    json_put(config, "envs", envs);
    if (info->cwd && info->cwd[0])
        json_put_text(config, "cwd", info->cwd);
    json_put(o, "config", config);
    json_put(o, "pid", json_object_new_int64(info->pid));
    if (info->tag && info->tag[0])
        json_put_text(o, "tag", info->tag);
    return o;
}

static void call_on_list(void *arg, const droste_command_reply *reply, const droste_error *err)
{
    struct process_call *c = arg;
    struct request *r = c->r;
    call_free(c);
    if (!r)
        return;
    if (err) {
        request_refuse(r, process_status(err), "command", "%s", err->text);
        return;
    }
    struct json_object *o = json_object_new_object(), *list = json_object_new_array();
    for (size_t i = 0; list && i < reply->count; i++)
        if (!reply->commands[i].ended)
            json_object_array_add(list, call_describe(&reply->commands[i]));
    json_put(o, "processes", list);
    request_reply_json(r, 200, o);
}

void e2b_handle_process_list(struct request *r)
{
    const droste_command_request list = { .op = "list" };
    struct process_call *c = e2b_running_of(r) ? calloc(1, sizeof *c) : NULL;
    if (!c)
        return;
    c->server = r->server;
    c->r = r;
    memcpy(c->id, r->id, sizeof c->id);
    r->state = c;
    r->on_free = call_on_free;
    if (!call_start(c, &list, call_on_list))
        call_free(c);
}
