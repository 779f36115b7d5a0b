/* serve/e2b/process.c: envd's processes: Start and Connect, which stream a process's output.
 *
 * Each stream is a reader of a command (droste/commands.h). It asks for more output when its client
 * has read the last, so that a slow client slows its command down and nothing else. A client that
 * leaves takes its reader with it, not the command.
 */
#include "serve/e2b/process.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "serve/sandbox/exchange.h"
#include "serve/sandbox/sandbox.h"

enum { PROCESS_WORDS_MOST = 4096, PROCESS_PIECE = 64 << 10, PROCESS_EARLY_MS = 50 };

struct process_stream {
    struct connect_stream connect;
    struct exchange *x;
    struct e2b_sandbox *e2b;
    char *words; /* of the command, for the log */
    bool is_terminal, is_attached;
};

unsigned process_status(const droste_error *err)
{
    if (err->sys == ESRCH)
        return 404;
    if (err->sys == EPERM || strstr(err->text, "the user to run it as"))
        return 401; /* a user that the sandbox does not have */
    if (err->code == DROSTE_ERROR_UNSUPPORTED)
        return 501;
    if (err->sys == ENOBUFS)
        return 429; /* it did not read in time */
    if (err->sys == ENOENT || err->sys == ENOTDIR || err->sys == EACCES || err->sys == ENOEXEC ||
        err->code == DROSTE_ERROR_ARGUMENT || err->code == DROSTE_ERROR_NOT_FOUND)
        return 400;
    return err->code == DROSTE_ERROR_LOST ? 503 : 500;
}

static void process_fail(struct exchange *x, const droste_error *err)
{
    struct process_stream *p = x->arg;
    if (err->code == DROSTE_ERROR_LOST)
        connect_cut(&p->connect);
    else
        connect_end(&p->connect, connect_code(process_status(err)), err->text);
}

/* ---- output ---- */

static void process_push_data(
    struct process_stream *p, const char *name, const char *data, size_t len)
{
    cleanup_buf struct buf text = { 0 };
    if (len == 0)
        return;
    buf_printf(&text, "{\"event\":{\"data\":{\"%s\":\"", name);
    json_append_base64(&text, data, len);
    buf_puts(&text, "\"}}}");
    connect_push_text(&p->connect, &text);
}

/* "signal: killed", as Go says it. */
static void process_describe_end(int status, char out[64])
{
    if (status >= 0) {
        snprintf(out, 64, "exit status %d", status);
        return;
    }
    /* sigdescr_np() of glibc 2.32 is too new for the systems on which wheels run. */
    snprintf(out, 64, "signal: %s", strsignal(-status));
    out[8] = (char)(out[8] | 32);
}

/* The entries of a process that this stream has started. */
static void process_log(struct process_stream *p, const droste_command_reply *reply)
{
    char pid[32], status[64];
    struct e2b_field fields[] = { { "pid", pid }, { "command", p->words }, { 0 } };
    if (p->is_attached)
        return;
    snprintf(pid, sizeof pid, "%lld", (long long)p->x->pid);
    if (!reply) {
        e2b_log(p->e2b, E2B_INFO, "process_start", fields, "Process with pid %s started", pid);
        return;
    }
    e2b_log_output(p->e2b, p->is_terminal ? "pty" : "stdout", fields, reply->out, reply->out_len);
    e2b_log_output(p->e2b, "stderr", fields, reply->err, reply->err_len);
    if (!reply->ended)
        return;
    process_describe_end(reply->status, status);
    fields[1] = (struct e2b_field){ "status", reply->timed_out ? "deadline exceeded" : status };
    e2b_log(p->e2b, E2B_INFO, "process_end", fields, "Process with pid %s ended", pid);
}

static void process_push_end(struct process_stream *p, const droste_command_reply *reply)
{
    struct json_object *o = json_object_new_object();
    char text[64];
    process_describe_end(reply->status, text);
    if (o) {
        bool exited = reply->status >= 0;
        json_put(o, "exitCode", json_object_new_int(exited ? reply->status : -1));
        json_put(o, "exited", json_object_new_boolean(exited));
        json_put_text(o, "status", text);
        if (reply->status != 0)
            json_put_text(o, "error", text);
    }
    connect_push_event(&p->connect, "end", o);
}

/* After a reply. NULL: the stream is over, or it fails with the error. */
static struct process_stream *process_after(struct exchange *x, const droste_error *err)
{
    struct process_stream *p = exchange_is_over(x, err) ? NULL : x->arg;
    return p && p->connect.request ? p : NULL;
}

static void process_on_output(void *arg, const droste_command_reply *reply, const droste_error *err)
{
    struct process_stream *p = process_after(arg, err);
    if (!p)
        return;
    process_log(p, reply);
    process_push_data(p, p->is_terminal ? "pty" : "stdout", reply->out, reply->out_len);
    process_push_data(p, "stderr", reply->err, reply->err_len);
    if (!reply->ended)
        return;
    trace_command_end(&p->x->command, p->x->pid, reply);
    if (reply->timed_out) {
        connect_end(&p->connect, "deadline_exceeded", "the command's time is over; it was killed");
        return;
    }
    process_push_end(p, reply);
    connect_end(&p->connect, NULL, NULL);
}

static void process_more(struct request *r)
{
    struct exchange *x = r->state;
    struct process_stream *p = x->arg;
    const droste_command_request request = {
        .op = "output", .handle = x->handle, .length = PROCESS_PIECE
    };
    if (p->connect.request && !x->pending && x->attached)
        (void)exchange_ask(x, &request, process_on_output);
}

/* The stream has begun. */
static void process_push_start(struct process_stream *p)
{
    struct json_object *o = json_object_new_object();
    if (o)
        json_put(o, "pid", json_object_new_int64(p->x->pid));
    process_log(p, NULL);
    p->connect.request->on_drained = process_more;
    connect_push_event(&p->connect, "start", o);
}

/* Whether a command that was attached to has a terminal, which names its output. */
static void process_on_list(void *arg, const droste_command_reply *reply, const droste_error *err)
{
    struct process_stream *p = process_after(arg, err);
    if (!p)
        return;
    for (size_t i = 0; i < reply->count; i++)
        if (reply->commands[i].pid == p->x->pid)
            p->is_terminal = reply->commands[i].terminal;
    process_push_start(p);
}

static void process_on_opened(struct exchange *x)
{
    struct process_stream *p = x->arg;
    const droste_command_request list = { .op = "list" };
    if (!p->connect.request)
        return;
    if (p->is_attached)
        (void)exchange_ask(x, &list, process_on_list);
    else
        process_push_start(p);
}

/* ---- requests ---- */

static void process_on_free(struct request *r)
{
    struct exchange *x = r->state;
    struct process_stream *p = x->arg;
    connect_leave(&p->connect);
    exchange_on_free(r);
    free(p->words);
    free(p);
}

static struct process_stream *process_new(struct request *r)
{
    struct e2b_sandbox *e = e2b_running_of(r);
    struct exchange *x = e && connect_take_message(r) ? exchange_new(r) : NULL;
    struct process_stream *p = x ? request_alloc(r, sizeof *p) : NULL;
    if (!p)
        return NULL;
    p->x = x;
    p->e2b = e;
    x->arg = p;
    x->fail = process_fail;
    x->next = process_on_opened;
    r->on_free = process_on_free;
    connect_open(&p->connect, r, e);
    return p;
}

bool process_select(struct json_object *message, droste_command_request *out)
{
    struct json_object *process = json_get_typed(message, "process", json_type_object);
    out->pid = json_get_int(process, "pid", 0);
    out->tag = json_get_string(process, "tag", NULL);
    return out->tag || out->pid > 0;
}

void e2b_handle_process_connect(struct request *r)
{
    droste_command_request request = { .op = "attach" };
    struct process_stream *p = process_new(r);
    uint64_t ms = connect_timeout_ms(r);
    if (!p)
        return;
    if (ms > 0)
        p->connect.deadline_ns = clock_ns() + ms * 1000000;
    p->is_attached = true;
    if (process_select(r->json, &request))
        exchange_open(p->x, &request);
    else
        connect_end(&p->connect, "invalid_argument", "name a process by its pid or its tag");
}

/* The words of a command: the program and its arguments, and its variables. */
struct process_words {
    struct buf env;
    const char **argv, **envp;
};

static void process_add_variables(struct buf *out, struct json_object *vars, size_t *count)
{
    if (!vars)
        return;
    json_object_object_foreach(vars, name, value)
    {
        const char *text = json_object_get_string(value);
        buf_printf(out, "%s=%s", name, text ? text : "");
        buf_putc(out, '\0');
        (*count)++;
    }
}

/* The sandbox's variables, and then the command's, which replace them. */
static bool process_take_variables(
    struct json_object *of_sandbox, struct json_object *envs, struct process_words *out)
{
    size_t count = 0;
    process_add_variables(&out->env, of_sandbox, &count);
    process_add_variables(&out->env, envs, &count);
    if (count > PROCESS_WORDS_MOST || buf_failed(&out->env))
        return false;
    out->envp = calloc(count + 1, sizeof *out->envp);
    const char *at = buf_text(&out->env);
    for (size_t i = 0; out->envp && i < count; i++, at += strlen(at) + 1)
        out->envp[i] = at;
    return out->envp != NULL;
}

static bool process_take_words(
    struct json_object *of_sandbox, struct json_object *process, struct process_words *out)
{
    struct json_object *args = json_get_typed(process, "args", json_type_array);
    size_t count = json_length(args);
    if (count > PROCESS_WORDS_MOST)
        return false;
    out->argv = calloc(count + 2, sizeof *out->argv);
    if (!out->argv)
        return false;
    out->argv[0] = json_get_string(process, "cmd", "");
    for (size_t i = 0; i < count; i++) {
        out->argv[i + 1] = json_object_get_string(json_object_array_get_idx(args, i));
        if (!out->argv[i + 1])
            return false;
    }
    return out->argv[0][0] != '\0' && process_take_variables(of_sandbox,
                                          json_get_typed(process, "envs", json_type_object), out);
}

/* The program and its arguments, for the log: the last one of a shell is what the client wrote. */
static char *process_describe(const struct process_words *words)
{
    size_t count = 0;
    while (words->argv[count])
        count++;
    return strdup(words->argv[count - 1]);
}

/* Older clients have a timer of the same length for reading, and understand the end of the stream
 * better than their own: it must arrive before. */
static uint64_t process_timeout_ms(struct request *r)
{
    uint64_t ms = connect_timeout_ms(r);
    return ms > 10 * PROCESS_EARLY_MS ? ms - PROCESS_EARLY_MS : ms;
}

static void process_begin(struct process_stream *p, struct request *r, struct process_words *words)
{
    struct json_object *process = json_get_typed(r->json, "process", json_type_object);
    struct json_object *pty = json_get_typed(r->json, "pty", json_type_object);
    struct json_object *size = json_get_typed(pty, "size", json_type_object);
    struct sandbox *sb = sandbox_find(r->server, r->id);
    char user[E2B_USER_SIZE];
    e2b_user_of(r, user);
    /* Where sandboxes have one user, both names are that one. */
    bool is_own = user[0] == '\0' ||
                  (!sb->e2b->has_root && (strcmp(user, "user") == 0 || strcmp(user, "root") == 0));
    droste_command_request request = { .op = "start",
        .argv = words->argv,
        .env = words->envp,
        .cwd = json_get_string(process, "cwd", NULL),
        .flags = DROSTE_COMMAND_DRAIN,
        .tag = json_get_string(r->json, "tag", NULL),
        .user = is_own ? NULL : user,
        .timeout_ms = process_timeout_ms(r) };
    if (pty) {
        p->is_terminal = true;
        request.flags |= DROSTE_COMMAND_TERMINAL;
        request.columns = (unsigned)json_get_int(size, "cols", 80);
        request.rows = (unsigned)json_get_int(size, "rows", 24);
    } else if (json_get_bool(r->json, "stdin", true)) {
        request.flags |= DROSTE_COMMAND_STDIN;
    }
    if (request.cwd && request.cwd[0] == '\0')
        request.cwd = NULL;
    p->words = process_describe(words);
    exchange_open(p->x, &request);
}

void e2b_handle_process_start(struct request *r)
{
    struct process_stream *p = process_new(r);
    struct process_words words = { 0 };
    if (!p)
        return;
    struct json_object *process = json_get_typed(r->json, "process", json_type_object);
    struct sandbox *sb = sandbox_find(r->server, r->id);
    if (sb && process_take_words(sb->e2b->environment, process, &words))
        process_begin(p, r, &words);
    else
        connect_end(&p->connect, "invalid_argument", "a process has a cmd, and args of text");
    free(words.argv);
    free(words.envp);
    buf_free(&words.env);
}
