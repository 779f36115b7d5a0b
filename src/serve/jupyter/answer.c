/* serve/jupyter/answer.c: the requests of clients (jupyter-client's "messaging", version 5.3).
 *
 * Each request is answered between the states "busy" and "idle", all in order but those on the
 * control channel, which are answered at once. What the sandbox returns is read as any guest's.
 */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json/fields.h"
#include "base/text.h"
#include "serve/jupyter/reply.h"
#include "serve/sandbox/sandbox.h"

enum { MATCHES_MAX = 500 };

/* ---- the end of a cell ---- */

/* An exception, a time limit, or the end of the sandbox. */
static void answer_failed_cell(
    struct jupyter_kernel *k, const droste_result *result, const droste_error *err)
{
    droste_error why = { .text = "there is no result" };
    cleanup_json struct json_object *o = NULL;
    cleanup_buf struct buf lines = { 0 };
    size_t len = 0;
    if (!result || err) {
        reply_failed(k, "KernelError", err ? err->text : why.text, NULL);
        return;
    }
    if (!droste_result_alive(result)) {
        droste_result_error(result, &why);
        reply_failed(k, "KernelDied", why.text, NULL);
        return;
    }
    const char *text = droste_result_json(result, &len), *status = droste_result_status(result);
    const char *message = droste_result_message(result);
    if (text)
        (void)json_parse(text, len, &json_limits_large, &o, NULL);
    struct json_object *error = json_get_typed(o, "error", json_type_object);
    const char *traceback = droste_result_traceback(result);
    buf_puts(&lines, traceback ? traceback : message ? message : "");
    if (strcmp(status, "timeout") == 0)
        buf_puts(&lines, "\nThe cell was interrupted because its time was up. Variables are kept.");
    reply_failed(
        k, json_get_string(error, "type", status), message ? message : "", buf_text(&lines));
}

/* ---- questions to the sandbox ---- */

/* `words` are the arguments behind the names of the session. */
static bool answer_ask(struct jupyter_kernel *k, enum jupyter_phase phase, const char *function,
    const struct buf *words)
{
    cleanup_buf struct buf code = { 0 };
    droste_error err;
    buf_printf(
        &code, "SUBMIT(**__import__('sys').modules['_droste_notebook'].%s(globals(), ", function);
    buf_append(&code, words->data, words->len);
    buf_puts(&code, "))");
    if (buf_failed(&code) || buf_failed(words))
        return false;
    int rc = droste_session_exec_start(
        k->used->sandbox->session, buf_text(&code), code.len, 0, -1, &err);
    return jupyter_kernel_begin(k, phase, rc);
}

static struct json_object *answer_submitted(const droste_result *result)
{
    struct json_object *o = NULL;
    size_t len = 0;
    const char *text = result ? droste_result_submit(result, &len) : NULL;
    if (text)
        (void)json_parse(text, len, &json_limits_large, &o, NULL);
    return o;
}

static void answer_put_words(struct buf *words, const struct jupyter_message *m, bool has_cursor)
{
    const char *code = json_get_string(m->content, "code", "");
    json_append_string(words, code, strlen(code));
    if (has_cursor)
        buf_printf(words, ", %lld", (long long)json_get_int(m->content, "cursor_pos", 0));
}

static void answer_begin_question(struct jupyter_kernel *k, const char *function, bool has_cursor)
{
    cleanup_buf struct buf words = { 0 };
    answer_put_words(&words, k->queue, has_cursor);
    if (strcmp(function, "describe") == 0)
        buf_puts(
            &words, json_get_int(k->queue->content, "detail_level", 0) > 0 ? ", True" : ", False");
    if (!answer_ask(k, PHASE_ASKING, function, &words))
        reply_first_text(k, "{\"status\": \"error\"}");
}

static void answer_completed(struct jupyter_kernel *k, struct json_object *o)
{
    struct json_object *all = json_get_typed(o, "matches", json_type_array);
    int64_t end = json_get_int(k->queue->content, "cursor_pos", 0);
    int64_t start = json_get_int(o, "start", end);
    cleanup_buf struct buf content = { 0 };
    buf_putc(&content, '{');
    field_string(&content, "status", "ok");
    field_open(&content, "matches", '[');
    for (size_t i = 0; i < json_length(all) && i < MATCHES_MAX; i++) {
        struct json_object *match = json_object_array_get_idx(all, i);
        if (json_object_is_type(match, json_type_string))
            field_string(&content, NULL, json_object_get_string(match));
    }
    field_close(&content, ']');
    field_int(&content, "cursor_start", start < 0 || start > end ? end : start);
    field_int(&content, "cursor_end", end);
    field_json(&content, "metadata", "{}");
    buf_putc(&content, '}');
    reply_first(k, &content);
}

static void answer_described(struct jupyter_kernel *k, struct json_object *o)
{
    const char *text = json_get_string(o, "text", NULL);
    cleanup_buf struct buf content = { 0 };
    buf_putc(&content, '{');
    field_string(&content, "status", "ok");
    field_bool(&content, "found", text != NULL);
    field_open(&content, "data", '{');
    if (text)
        field_string(&content, "text/plain", text);
    field_close(&content, '}');
    field_json(&content, "metadata", "{}");
    buf_putc(&content, '}');
    reply_first(k, &content);
}

static void answer_is_complete(struct jupyter_kernel *k, struct json_object *o)
{
    static const char *const states[] = { "complete", "incomplete", "invalid" };
    const char *status = json_get_string(o, "status", ""), *found = "unknown";
    cleanup_buf struct buf content = { 0 };
    for (size_t i = 0; i < array_length(states); i++)
        if (strcmp(states[i], status) == 0)
            found = states[i];
    buf_putc(&content, '{');
    field_string(&content, "status", found);
    field_string(&content, "indent", json_get_string(o, "indent", ""));
    buf_putc(&content, '}');
    reply_first(k, &content);
}

static void answer_asked(struct jupyter_kernel *k, const droste_result *result)
{
    cleanup_json struct json_object *o = answer_submitted(result);
    if (strcmp(k->queue->type, "complete_request") == 0)
        answer_completed(k, o);
    else if (strcmp(k->queue->type, "inspect_request") == 0)
        answer_described(k, o);
    else
        answer_is_complete(k, o);
}

/* ---- expressions beside a cell ---- */

static void answer_put_expressions(struct buf *out, struct json_object *o)
{
    struct json_object *values = json_get_typed(o, "values", json_type_object);
    struct json_object *errors = json_get_typed(o, "errors", json_type_object);
    buf_putc(out, '{');
    if (values) {
        json_object_object_foreach(values, name, value)
        {
            field_open(out, name, '{');
            field_string(out, "status", "ok");
            field_open(out, "data", '{');
            field_string(out, "text/plain", json_object_get_string(value));
            field_close(out, '}');
            field_json(out, "metadata", "{}");
            field_close(out, '}');
        }
    }
    if (errors) {
        json_object_object_foreach(errors, name, error)
        {
            const char *type = json_length(error) == 2
                                   ? json_object_get_string(json_object_array_get_idx(error, 0))
                                   : "Error";
            const char *text = json_length(error) == 2
                                   ? json_object_get_string(json_object_array_get_idx(error, 1))
                                   : "";
            field_open(out, name, '{');
            field_string(out, "status", "error");
            reply_put_error(out, type ? type : "Error", text ? text : "", NULL);
            field_close(out, '}');
        }
    }
    buf_putc(out, '}');
}

static void answer_evaluated(struct jupyter_kernel *k, const droste_result *result)
{
    cleanup_json struct json_object *o = answer_submitted(result);
    cleanup_buf struct buf content = { 0 }, expressions = { 0 };
    answer_put_expressions(&expressions, o);
    reply_put_ok(k, &content, buf_text(&expressions));
    reply_first(k, &content);
}

static void answer_cell_ok(struct jupyter_kernel *k)
{
    struct json_object *expressions =
        json_get_typed(k->queue->content, "user_expressions", json_type_object);
    cleanup_buf struct buf words = { 0 }, content = { 0 };
    if (expressions && json_object_object_length(expressions) > 0) {
        buf_puts(&words, json_text(expressions, NULL));
        if (answer_ask(k, PHASE_EXPRESSIONS, "evaluate", &words))
            return;
    }
    reply_put_ok(k, &content, "{}");
    reply_first(k, &content);
}

/* ---- magics ---- */

/* Prints a line as the cell's output, and ends the cell. */
static void magic_say(struct jupyter_kernel *k, const char *text)
{
    jupyter_show_output(k, 1, text, strlen(text));
    answer_cell_ok(k);
}

static void magic_rollback(struct jupyter_kernel *k, const char *argument)
{
    droste_session *session = k->used->sandbox->session;
    droste_error err = { 0 };
    size_t count = droste_session_checkpoints(session, NULL, 0);
    cleanup_free droste_checkpoint *all = calloc(count + 1, sizeof *all);
    char *end = NULL;
    unsigned long id = strtoul(argument, &end, 10);
    if (all)
        droste_session_checkpoints(session, all, count);
    if (!*argument && all && count > 0)
        id = all[count - 1].id;
    if (count == 0 || *end || id == 0 || id > UINT32_MAX) {
        reply_failed(
            k, "Error", "expected the number of a checkpoint; %checkpoint makes one", NULL);
        return;
    }
    k->used->sandbox->checkpoint = (unsigned)id;
    int rc = droste_session_rollback_start(session, (unsigned)id, &err);
    if (!jupyter_kernel_begin(k, PHASE_ROLLBACK, rc))
        reply_failed(k, "Error", err.text, NULL);
}

static void magic_checkpoint(struct jupyter_kernel *k, const char *argument)
{
    struct sandbox *sb = k->used->sandbox;
    droste_error err;
    (void)argument;
    int rc = droste_session_checkpoint_start(sb->session, &sb->checkpoint, &err);
    if (!jupyter_kernel_begin(k, PHASE_CHECKPOINT, rc))
        reply_failed(k, "Error", err.text, NULL);
}

static void magic_fork(struct jupyter_kernel *k, const char *argument)
{
    if (!text_is_name(argument) || jupyter_session_find(k, argument))
        reply_failed(k, "Error", "expected a new name: %fork NAME", NULL);
    else
        jupyter_kernel_fork(k, argument);
}

static void magic_session(struct jupyter_kernel *k, const char *argument)
{
    const char *name = *argument ? argument : "main";
    struct jupyter_session *s = jupyter_session_find(k, name);
    cleanup_free char *text = s ? text_printf("cells use the session '%s'\n", name)
                                : text_printf("there is no session '%s'; %%fork makes one", name);
    if (!s) {
        reply_failed(k, "Error", text ? text : "", NULL);
        return;
    }
    k->used = s;
    magic_say(k, text ? text : "");
}

static void magic_sessions(struct jupyter_kernel *k, const char *argument)
{
    cleanup_buf struct buf text = { 0 };
    (void)argument;
    for (const struct jupyter_session *s = k->sessions; s; s = s->next)
        buf_printf(&text, "%s%s\n", s == k->used ? "* " : "  ", s->name);
    magic_say(k, buf_text(&text));
}

static const struct {
    const char *word;
    void (*begin)(struct jupyter_kernel *k, const char *argument);
} magics[] = { { "checkpoint", magic_checkpoint }, { "rollback", magic_rollback },
    { "fork", magic_fork }, { "session", magic_session }, { "sessions", magic_sessions } };

/* A cell that is one word after a percent sign, and at most one more. True: it was one. */
static bool magic_begin(struct jupyter_kernel *k, const char *code)
{
    char word[16], argument[SERVE_NAME_SIZE] = "";
    int end = 0, only = 0;
    int count = sscanf(code, " %%%15[a-z]%n%*[ \t]%64s%n", word, &only, argument, &end);
    const char *rest = code + (count == 2 ? end : only);
    if (count < 1 || rest[strspn(rest, " \t\r\n")] != '\0')
        return false;
    for (size_t i = 0; i < array_length(magics); i++)
        if (strcmp(magics[i].word, word) == 0) {
            magics[i].begin(k, argument);
            return true;
        }
    return false;
}

static void magic_done(struct jupyter_kernel *k, enum jupyter_phase phase, const droste_error *err)
{
    unsigned id = k->used->sandbox ? k->used->sandbox->checkpoint : 0;
    bool lost = phase == PHASE_FORK && !jupyter_session_find(k, k->fork_name);
    if (err || lost) {
        reply_failed(k, "Error", err ? err->text : "the session could not be kept", NULL);
        return;
    }
    cleanup_free char *text = phase == PHASE_CHECKPOINT ? text_printf("checkpoint %u\n", id)
                              : phase == PHASE_ROLLBACK
                                  ? text_printf("rolled back to checkpoint %u\n", id)
                                  : text_printf("forked '%s' as '%s'; %%session %s uses it\n",
                                        k->used->name, k->fork_name, k->fork_name);
    magic_say(k, text ? text : "");
}

/* ---- cells ---- */

static void cell_on_output(void *arg, int stream, const char *data, size_t len)
{
    struct jupyter_kernel *k = arg;
    if (k->phase == PHASE_CELL && k->queue)
        jupyter_show_output(k, stream, data, len);
}

static void cell_on_display(void *arg, const droste_bundles *bundles, size_t index)
{
    struct jupyter_kernel *k = arg;
    if (k->phase == PHASE_CELL && k->queue)
        jupyter_show_result(k, bundles, index);
}

static void answer_begin_cell(struct jupyter_kernel *k)
{
    struct json_object *o = k->queue->content;
    struct json_object *code = json_get_typed(o, "code", json_type_string);
    const char *text = code ? json_object_get_string(code) : "";
    size_t len = code ? (size_t)json_object_get_string_len(code) : 0;
    droste_session *session = k->used->sandbox->session;
    cleanup_buf struct buf input = { 0 };
    droste_error err;
    k->is_silent = json_get_bool(o, "silent", false);
    if (!k->is_silent && json_get_bool(o, "store_history", true)) {
        k->count++;
        jupyter_history_add(k, text);
    }
    buf_putc(&input, '{');
    field_text(&input, "code", text, len);
    field_int(&input, "execution_count", (int64_t)k->count);
    buf_putc(&input, '}');
    if (!k->is_silent)
        jupyter_publish(k, "execute_input", &input);
    if (magic_begin(k, text))
        return;
    droste_session_on_output(session, cell_on_output, k);
    droste_session_on_display(session, cell_on_display, k);
    int rc = droste_session_exec_start(
        session, text, len, DROSTE_ECHO | DROSTE_RESULTS | DROSTE_WHOLE_ERRORS, -1, &err);
    const struct jupyter_channel *from = k->queue->from;
    if (jupyter_kernel_begin(k, PHASE_CELL, rc))
        cell_begin(
            &k->used->sandbox->cell, k->used->sandbox, session, from ? from->r : NULL, "python");
    else
        reply_failed(k, "KernelError", err.text, NULL);
}

static void answer_cell_done(
    struct jupyter_kernel *k, const droste_result *result, const droste_error *err)
{
    struct sandbox *sb = k->used->sandbox;
    const char *status = result && !err ? droste_result_status(result) : "lost";
    droste_session_on_output(sb->session, NULL, NULL);
    droste_session_on_display(sb->session, NULL, NULL);
    cell_end(&sb->cell, err ? NULL : result);
    jupyter_show_rest(k);
    if (strcmp(status, "ok") == 0 || strcmp(status, "submitted") == 0)
        answer_cell_ok(k);
    else
        answer_failed_cell(k, result, err);
}

static void answer_done(struct jupyter_kernel *k, enum jupyter_phase phase, droste_result *result,
    const droste_error *err)
{
    if (!k->queue)
        return;
    if (phase == PHASE_CELL)
        answer_cell_done(k, result, err);
    else if (phase == PHASE_EXPRESSIONS)
        answer_evaluated(k, result);
    else if (phase == PHASE_ASKING)
        answer_asked(k, result);
    else
        magic_done(k, phase, err);
}

/* ---- input() ---- */

static void input_on_cancel(void *arg, droste_tool_call *call)
{
    struct jupyter_kernel *k = arg;
    k->asking = NULL;
    droste_tool_fail(call, "RuntimeError", "its cell was stopped");
}

static void answer_input(
    struct jupyter_kernel *k, droste_tool_call *call, const char *json, size_t len)
{
    cleanup_json struct json_object *o = NULL;
    cleanup_buf struct buf content = { 0 };
    struct jupyter_message *m = k->queue;
    bool may = m && m->from && k->phase == PHASE_CELL && !k->asking &&
               json_get_bool(m->content, "allow_stdin", true);
    if (!may || json_parse(json, len, &json_limits_large, &o, NULL) < 0) {
        droste_tool_fail(call, "StdinNotImplementedError", "no client answers input() here");
        return;
    }
    k->asking = call;
    droste_tool_on_cancel(call, input_on_cancel, k);
    buf_putc(&content, '{');
    field_string(&content, "prompt", json_get_string(o, "prompt", ""));
    field_bool(&content, "password", json_get_bool(o, "password", false));
    buf_putc(&content, '}');
    jupyter_send(k, m->from, CHANNEL_STDIN, m, "input_request", &content);
}

static void input_take(struct jupyter_kernel *k, struct jupyter_message *m)
{
    struct json_object *value = json_get_typed(m->content, "value", json_type_string);
    size_t len = 0;
    const char *text = value ? json_text(value, &len) : NULL;
    bool is_asked = k->asking && k->queue && k->queue->from == m->from;
    if (is_asked && strcmp(m->type, "input_reply") == 0 && text)
        droste_tool_answer(steal(&k->asking), text, len);
    jupyter_message_free(m);
}

/* ---- the other requests ---- */

static void answer_kernel_info(struct jupyter_kernel *k, struct buf *out)
{
    buf_putc(out, '{');
    field_string(out, "status", "ok");
    field_string(out, "protocol_version", JUPYTER_PROTOCOL);
    field_string(out, "implementation", "droste");
    field_string(out, "implementation_version", droste_version());
    field_open(out, "language_info", '{');
    field_string(out, "name", "python");
    field_string(out, "version", k->version);
    field_string(out, "mimetype", "text/x-python");
    field_string(out, "file_extension", ".py");
    field_string(out, "pygments_lexer", "ipython3");
    field_string(out, "nbconvert_exporter", "python");
    field_json(out, "codemirror_mode", "{\"name\": \"ipython\", \"version\": 3}");
    field_close(out, '}');
    field_string(out, "banner", "Droste: Python in a sandbox");
    field_json(out, "help_links", "[]");
    field_json(out, "supported_features", "[]");
    field_bool(out, "debugger", false);
    buf_putc(out, '}');
}

/* There are no comms: a client that opens one hears that it is closed. */
static void answer_comm_open(struct jupyter_kernel *k)
{
    cleanup_buf struct buf content = { 0 };
    const char *id = json_get_string(k->queue->content, "comm_id", "");
    buf_putc(&content, '{');
    field_string(&content, "comm_id", id);
    field_json(&content, "data", "{}");
    buf_putc(&content, '}');
    jupyter_publish(k, "comm_close", &content);
}

static void answer_unknown(struct buf *out, const char *type)
{
    buf_putc(out, '{');
    field_string(out, "status", "error");
    reply_put_error(out, "UnsupportedRequest", type, NULL);
    buf_putc(out, '}');
}

/* Answers it at once, whatever runs. False: the kernel has ended. */
static bool answer_control(struct jupyter_kernel *k, struct jupyter_message *m)
{
    cleanup_buf struct buf content = { 0 };
    bool restarts = json_get_bool(m->content, "restart", false);
    bool shuts_down = strcmp(m->type, "shutdown_request") == 0;
    if (strcmp(m->type, "interrupt_request") == 0) {
        jupyter_kernel_interrupt(k);
        buf_puts(&content, "{\"status\": \"ok\"}");
    } else if (shuts_down) {
        buf_printf(&content, "{\"status\": \"ok\", \"restart\": %s}", restarts ? "true" : "false");
    } else if (strcmp(m->type, "kernel_info_request") == 0) {
        answer_kernel_info(k, &content);
    } else {
        answer_unknown(&content, m->type);
    }
    jupyter_tell_status(k, m, "busy");
    reply_send(k, m, &content);
    jupyter_tell_status(k, m, "idle");
    jupyter_message_free(m);
    if (shuts_down && restarts)
        jupyter_kernel_restart(k, true);
    else if (shuts_down)
        jupyter_kernel_end(k, "the kernel was shut down");
    return !shuts_down;
}

static bool answer_begin(struct jupyter_kernel *k)
{
    struct jupyter_message *m = k->queue;
    cleanup_buf struct buf content = { 0 };
    if (strcmp(m->type, "shutdown_request") == 0 || strcmp(m->type, "interrupt_request") == 0) {
        k->queue = m->next;
        k->queue_bytes -= m->size;
        k->is_stepping = false; /* a restart goes on by itself */
        if (!answer_control(k, m))
            return false;
        k->is_stepping = true;
        return true;
    }
    jupyter_tell_status(k, m, "busy");
    if (strcmp(m->type, "execute_request") == 0)
        answer_begin_cell(k);
    else if (strcmp(m->type, "complete_request") == 0)
        answer_begin_question(k, "complete", true);
    else if (strcmp(m->type, "inspect_request") == 0)
        answer_begin_question(k, "describe", true);
    else if (strcmp(m->type, "is_complete_request") == 0)
        answer_begin_question(k, "is_complete", false);
    else if (strcmp(m->type, "comm_info_request") == 0)
        reply_first_text(k, "{\"status\": \"ok\", \"comms\": {}}");
    else if (strcmp(m->type, "kernel_info_request") == 0) {
        answer_kernel_info(k, &content);
        reply_first(k, &content);
    } else if (strcmp(m->type, "history_request") == 0) {
        jupyter_history_put(k, m->content, &content);
        reply_first(k, &content);
    } else if (strncmp(m->type, "comm_", 5) == 0) {
        if (strcmp(m->type, "comm_open") == 0)
            answer_comm_open(k);
        jupyter_tell_status(k, m, "idle");
        reply_pop(k);
    } else {
        answer_unknown(&content, m->type);
        reply_first(k, &content);
    }
    return true;
}

void jupyter_take(struct jupyter_kernel *k, struct jupyter_message *m)
{
    struct jupyter_message **at = &k->queue;
    if (m->channel == CHANNEL_STDIN) {
        input_take(k, m);
        return;
    }
    if (m->channel == CHANNEL_CONTROL) {
        (void)answer_control(k, m);
        return;
    }
    while (*at)
        at = &(*at)->next;
    *at = m;
    k->queue_bytes += m->size;
    jupyter_kernel_step(k);
}

const struct jupyter_requests jupyter_requests = { answer_begin, answer_done, answer_input };
