/* serve/e2b/process_calls.c: envd's calls about processes: input, signals, sizes, the list. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "serve/e2b/process.h"
#include "serve/sandbox/exchange.h"

static void call_fail(struct exchange *x, const droste_error *err)
{
    request_refuse(x->r, process_status(err), "command", "%s", err->text);
}

static void call_answer(struct exchange *x)
{
    request_reply(x->r, 200, "application/json", "{}", 2);
}

static struct exchange *call_new(struct request *r)
{
    struct exchange *x = e2b_running_of(r) ? exchange_new(r) : NULL;
    if (x) {
        x->fail = call_fail;
        x->done = call_answer;
    }
    return x;
}

/* NULL: the request was refused. */
static struct exchange *call_begin(struct request *r, void (*next)(struct exchange *x))
{
    /* It reads no output, so the process does not wait for it. */
    droste_command_request attach = { .op = "attach", .flags = DROSTE_COMMAND_QUIET };
    struct exchange *x = call_new(r);
    if (!x)
        return NULL;
    x->next = next;
    if (process_select(r->json, &attach))
        exchange_open(x, &attach);
    else
        request_refuse(r, 400, "argument", "name a process by its pid or its tag");
    return x;
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
    size_t len = 0;
    char *data = process_input(r->json, &len);
    struct exchange *x = data ? call_begin(r, exchange_write) : NULL;
    if (x) {
        x->input = x->owned_input = data;
        x->len = len;
        return;
    }
    if (!data)
        request_refuse(r, 400, "argument", "the input is not base64 of stdin or pty");
    free(data);
}

static void call_close(struct exchange *x)
{
    x->eof = true;
    exchange_write(x);
}

void e2b_handle_process_close(struct request *r)
{
    (void)call_begin(r, call_close);
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

static void call_await_end(struct exchange *x);

/* A killed process is gone when its client is answered. */
static void call_on_output(void *arg, const droste_command_reply *reply, const droste_error *err)
{
    struct exchange *x = arg;
    if (exchange_is_over(x, NULL))
        return;
    if (!err && !reply->ended)
        call_await_end(x);
    else
        call_answer(x);
}

static void call_await_end(struct exchange *x)
{
    const droste_command_request request = {
        .op = "output", .handle = x->handle, .length = DROSTE_COMMAND_PIECE
    };
    (void)exchange_ask(x, &request, call_on_output);
}

static void call_send_signal(struct exchange *x)
{
    const droste_command_request request = { .op = "signal",
        .handle = x->handle,
        .signal = call_signal(x->r->json),
        .flags = DROSTE_COMMAND_ALONE };
    if (request.signal == SIGKILL)
        x->done = call_await_end;
    (void)exchange_ask(x, &request, exchange_on_done);
}

void e2b_handle_process_signal(struct request *r)
{
    if (call_signal(r->json))
        (void)call_begin(r, call_send_signal);
    else
        request_refuse(r, 400, "argument", "the signals are SIGNAL_SIGKILL and SIGNAL_SIGTERM");
}

static void call_set_size(struct exchange *x)
{
    struct json_object *pty = json_get_typed(x->r->json, "pty", json_type_object);
    struct json_object *size = json_get_typed(pty, "size", json_type_object);
    const droste_command_request request = { .op = "resize",
        .handle = x->handle,
        .columns = (unsigned)json_get_int(size, "cols", 80),
        .rows = (unsigned)json_get_int(size, "rows", 24) };
    (void)exchange_ask(x, &request, exchange_on_done);
}

void e2b_handle_process_update(struct request *r)
{
    (void)call_begin(r, call_set_size);
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
    struct exchange *x = arg;
    if (exchange_is_over(x, err))
        return;
    struct json_object *list = json_object_new_array();
    for (size_t i = 0; list && i < reply->count; i++)
        if (!reply->commands[i].ended)
            json_object_array_add(list, call_describe(&reply->commands[i]));
    request_reply_list(x->r, "processes", list);
}

void e2b_handle_process_list(struct request *r)
{
    struct exchange *x = call_new(r);
    if (x)
        (void)exchange_ask(x, &(droste_command_request){ .op = "list" }, call_on_list);
}
