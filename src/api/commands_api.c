/* api/commands_api.c: commands in a session's sandbox: requests, and the function that waits. */
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "api/session_ops.h"
#include "base/cleanup.h"
#include "session/commands.h"

_Static_assert(
    (int)DROSTE_COMMAND_PIECE == (int)COMMANDS_PIECE, "the public size is the session's");

/* ---- requests ---- */

static const struct {
    const char *name;
    enum command_op op;
} commands_api_ops[] = {
    { "start", COMMAND_START },
    { "attach", COMMAND_ATTACH },
    { "connect", COMMAND_CONNECT },
    { "list", COMMAND_LIST },
    { "output", COMMAND_OUTPUT },
    { "input", COMMAND_INPUT },
    { "signal", COMMAND_SIGNAL },
    { "resize", COMMAND_RESIZE },
    { "release", COMMAND_RELEASE },
    { "detach", COMMAND_DETACH },
};

struct command_waiter {
    droste_command_fn *fn;
    void *arg;
};

/* The commands of a list in the public form: one block for all, and one for their words. */
struct command_list {
    droste_command_info *commands;
    const char **words;
    size_t count;
};

static const char *const *commands_api_words(const char ***next, const char *at, uint32_t count)
{
    const char **first = *next;
    for (uint32_t i = 0; i < count; i++, at += strlen(at) + 1)
        *(*next)++ = at;
    *(*next)++ = NULL;
    return first;
}

static int commands_api_list(
    const struct command_answer *answer, struct command_list *list, struct error *err)
{
    struct command_info info;
    size_t words = 0;
    for (size_t at = 0; command_info_next(answer, &at, &info);)
        words += (size_t)info.argc + info.envc + 2;
    list->commands = calloc(answer->listed + 1, sizeof *list->commands);
    list->words = calloc(words + 1, sizeof *list->words);
    if (!list->commands || !list->words)
        return error_memory(err);
    const char **next = list->words;
    for (size_t at = 0; command_info_next(answer, &at, &info);) {
        droste_command_info *out = &list->commands[list->count++];
        *out = (droste_command_info){ .pid = info.pid,
            .tag = info.tag,
            .user = info.user,
            .cwd = info.cwd,
            .cut = info.cut,
            .terminal = info.terminal,
            .ended = info.ended,
            .status = info.status,
            .timed_out = info.timed_out };
        out->argv = commands_api_words(&next, info.argv, info.argc);
        out->env = commands_api_words(&next, info.env, info.envc);
    }
    return 0;
}

static void commands_api_answered(
    void *arg, const struct command_answer *answer, const struct error *failure)
{
    struct command_waiter *w = arg, waiter = *w;
    struct command_list list = { 0 };
    struct error why = failure ? *failure : (struct error){ 0 };
    free(w);
    if (failure || commands_api_list(answer, &list, &why) < 0) {
        waiter.fn(waiter.arg, NULL, &why);
        free(list.commands);
        free(list.words);
        return;
    }
    const droste_command_reply reply = { .handle = answer->handle,
        .pid = answer->pid,
        .out = answer->out,
        .out_len = answer->out_len,
        .err = answer->err,
        .err_len = answer->err_len,
        .ended = answer->ended,
        .status = answer->status,
        .timed_out = answer->timed_out,
        .commands = list.commands,
        .count = list.count };
    waiter.fn(waiter.arg, &reply, NULL);
    free(list.commands);
    free(list.words);
}

static int commands_api_start(droste_session *s, const droste_command_request *r,
    droste_command_fn *fn, void *arg, struct error *err)
{
    struct command_call call = { .op = COMMAND_OP_COUNT,
        .handle = r->handle,
        .argv = r->argv,
        .env = r->env,
        .cwd = r->cwd,
        .input = r->flags & DROSTE_COMMAND_STDIN,
        .merge = r->flags & DROSTE_COMMAND_MERGE,
        .length = r->length,
        .data = r->data,
        .len = r->len,
        .eof = r->flags & DROSTE_COMMAND_EOF,
        .terminal = r->flags & DROSTE_COMMAND_TERMINAL,
        .drain = r->flags & DROSTE_COMMAND_DRAIN,
        .alone = r->flags & DROSTE_COMMAND_ALONE,
        .quiet = r->flags & DROSTE_COMMAND_QUIET,
        .user = r->user,
        .tag = r->tag,
        .pid = r->pid,
        .port = r->port,
        .columns = r->columns,
        .rows = r->rows,
        .signal = r->signal,
        .timeout_ms = r->timeout_ms };
    for (size_t i = 0; i < array_length(commands_api_ops); i++)
        if (strcmp(commands_api_ops[i].name, r->op) == 0)
            call.op = commands_api_ops[i].op;
    if (call.op == COMMAND_OP_COUNT)
        return error_set(err, ERROR_ARGUMENT, "there is no request '%.20s' for commands", r->op);
    if (!s->session)
        return error_set(err, ERROR_ARGUMENT, "the session did not open, or was finished");
    struct command_waiter *w = malloc(sizeof *w);
    if (!w)
        return error_memory(err);
    *w = (struct command_waiter){ fn, arg };
    int rc = session_command(s->session, &call, commands_api_answered, w, err);
    if (rc < 0)
        free(w);
    return rc;
}

int droste_command_start(droste_session *s, const droste_command_request *request,
    droste_command_fn *fn, void *arg, droste_error *err)
{
    return commands_api_start(s, request, fn, arg, api_error(err));
}

/* ---- waiting ---- */

/* A command that droste_command_run started: one request for output, and one for input, are open at
 * a time. */
struct command_run {
    droste_session *session;
    uint64_t handle;
    const char *input;
    size_t len; /* of the input that was not sent yet */
    bool sent;  /* all of it */
    droste_command_output_fn *fn;
    void *arg;
    bool started, ended, released;
    unsigned open; /* requests */
    bool done;     /* nothing is open, and nothing follows */
    uint64_t timeout_ms;
    int status;
    bool timed_out;
    droste_error error; /* the first one */
};

static void commands_run_step(struct command_run *run);

static bool commands_run_failed(struct command_run *run, const droste_error *err)
{
    run->open--;
    if (err && run->error.code == DROSTE_ERROR_NONE)
        run->error = *err;
    return err != NULL;
}

static void commands_run_ask(
    struct command_run *run, const droste_command_request *r, droste_command_fn *fn)
{
    droste_error err = { 0 };
    run->open++;
    if (droste_command_start(run->session, r, fn, run, &err) < 0)
        commands_run_failed(run, &err);
}

static void commands_run_released(
    void *arg, const droste_command_reply *reply, const droste_error *err)
{
    struct command_run *run = arg;
    commands_run_failed(run, err);
    commands_run_step(run);
}

/* A command may close its input, or end, before it has read all of it. */
static void commands_run_written(
    void *arg, const droste_command_reply *reply, const droste_error *err)
{
    struct command_run *run = arg;
    run->open--;
    run->sent = run->sent || err;
    commands_run_step(run);
}

static void commands_run_output(
    void *arg, const droste_command_reply *reply, const droste_error *err);

static void commands_run_read(struct command_run *run)
{
    commands_run_ask(run,
        &(droste_command_request){ .op = "output",
            .handle = run->handle,
            .length = DROSTE_COMMAND_PIECE,
            .timeout_ms = run->timeout_ms },
        commands_run_output);
}

static void commands_run_output(
    void *arg, const droste_command_reply *reply, const droste_error *err)
{
    struct command_run *run = arg;
    if (!commands_run_failed(run, err)) {
        if (run->fn && reply->out_len > 0)
            run->fn(run->arg, 1, reply->out, reply->out_len);
        if (run->fn && reply->err_len > 0)
            run->fn(run->arg, 2, reply->err, reply->err_len);
        run->ended = reply->ended;
        run->status = reply->status;
        run->timed_out = reply->timed_out;
        if (!run->ended)
            commands_run_read(run);
    }
    commands_run_step(run);
}

static void commands_run_started(
    void *arg, const droste_command_reply *reply, const droste_error *err)
{
    struct command_run *run = arg;
    if (!commands_run_failed(run, err)) {
        run->started = true;
        run->handle = reply->handle;
        commands_run_read(run);
    }
    commands_run_step(run);
}

static void commands_run_write(struct command_run *run)
{
    size_t len = run->len < DROSTE_COMMAND_PIECE ? run->len : DROSTE_COMMAND_PIECE;
    const droste_command_request r = { .op = "input",
        .handle = run->handle,
        .data = run->input,
        .len = len,
        .flags = len == run->len ? DROSTE_COMMAND_EOF : 0 };
    run->input += len;
    run->len -= len;
    run->sent = run->len == 0;
    commands_run_ask(run, &r, commands_run_written);
}

/* Called after each answer: releases what has ended or failed, otherwise writes what is left. */
static void commands_run_step(struct command_run *run)
{
    bool over = run->ended || run->error.code != DROSTE_ERROR_NONE;
    if (over && run->started && !run->released) {
        run->released = true;
        commands_run_ask(run, &(droste_command_request){ .op = "release", .handle = run->handle },
            commands_run_released);
    } else if (!over && !run->sent && run->open < 2) {
        commands_run_write(run);
    }
    run->done = run->open == 0;
}

int droste_command_run(droste_session *s, const droste_command_request *start,
    droste_command_output_fn *fn, void *arg, droste_command_reply *end, droste_error *err)
{
    err = api_error(err);
    struct command_run run = { .session = s,
        .input = start->data,
        .len = start->len,
        .sent = start->len == 0,
        .fn = fn,
        .arg = arg,
        .timeout_ms = start->timeout_ms };
    droste_command_request r = *start;
    if (s->d->waits)
        return api_enter(s->d, err);
    r.op = "start";
    r.data = NULL;
    r.len = 0;
    r.flags |= start->len > 0 ? DROSTE_COMMAND_STDIN : 0;
    commands_run_ask(&run, &r, commands_run_started);
    int rc = run.open > 0 ? api_wait(s->d, &run.done, err) : 0;
    if (rc < 0)
        return rc;
    *end = (droste_command_reply){
        .ended = run.ended, .status = run.status, .timed_out = run.timed_out
    };
    if (run.error.code == DROSTE_ERROR_NONE)
        return 0;
    if (err)
        *err = run.error;
    return -run.error.code;
}
