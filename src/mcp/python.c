/* mcp/python.c: cells and contexts of Python sessions. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "mcp/embedded.h"
#include "mcp/session.h"

/* Of one rich result that is given as a resource or image; larger ones are named. */
enum { MEDIA_MAX = 8 << 20 };

static void cell_on_output(void *arg, int stream, const char *data, size_t len)
{
    struct mcp_session *s = arg;
    (void)stream;
    if (s->running)
        mcp_call_progress(s->running, data, len);
}

/* Adds a bundle as a model can use it: its image, else its Markdown or text. */
static void cell_add_bundle(struct json_object *result, const droste_result *r, size_t bundle)
{
    droste_media media, text = { 0 };
    for (size_t i = 0; droste_result_media(r, bundle, i, &media); i++) {
        bool is_image =
            strcmp(media.type, "image/png") == 0 || strcmp(media.type, "image/jpeg") == 0 ||
            strcmp(media.type, "image/gif") == 0 || strcmp(media.type, "image/webp") == 0;
        if (is_image && strcmp(media.form, "bytes") == 0 && media.len <= MEDIA_MAX) {
            mcp_result_add_media(result, "image", media.type, media.data, media.len);
            return;
        }
        if (strcmp(media.form, "text") == 0 &&
            (strcmp(media.type, "text/markdown") == 0 ||
                (strcmp(media.type, "text/plain") == 0 && !text.data)))
            text = media;
    }
    /* The text of the last expression's value is `result`. */
    if (text.data && (long)bundle != droste_result_main(r))
        mcp_result_add_text(result, text.data, text.len);
}

static bool put_copy(
    struct json_object *to, const char *key, struct json_object *from, const char *name)
{
    struct json_object *found = NULL;
    json_object_object_get_ex(from, name, &found);
    return json_put(to, key, found ? json_object_get(found) : NULL);
}

/* What `outputSchema` of run_python says. */
static struct json_object *cell_data(const char *session, struct json_object *cell)
{
    static const char *const same[] = { "status", "stdout", "stderr", "error", "killed",
        "rolled_back", "seconds", "left_out", "variables" };
    struct json_object *o = json_object_new_object(), *submit = NULL;
    bool ok = o && json_put_text(o, "session", session) && put_copy(o, "result", cell, "echo");
    for (size_t i = 0; ok && i < array_length(same); i++)
        ok = put_copy(o, same[i], cell, same[i]);
    if (ok && json_object_object_get_ex(cell, "submit", &submit) && submit)
        ok = json_put(o, "submitted", json_object_get(submit));
    if (ok)
        return o;
    json_object_put(o);
    return NULL;
}

/* What a model reads: what was printed, the last value, and why it failed. */
static void cell_add_text(
    struct json_object *result, const droste_result *r, const droste_error *why)
{
    cleanup_buf struct buf text = { 0 };
    size_t len;
    const char *out = droste_result_stdout(r, &len);
    buf_append(&text, out ? out : "", out ? len : 0);
    const char *errors = droste_result_stderr(r, &len);
    if (errors && len > 0) {
        buf_puts(&text, text.len > 0 && text.data[text.len - 1] != '\n' ? "\n" : "");
        buf_append(&text, errors, len);
    }
    const char *parts[] = { droste_result_echo(r), droste_result_traceback(r),
        why->code ? why->text : NULL };
    for (size_t i = 0; i < array_length(parts); i++)
        if (parts[i] && parts[i][0]) {
            buf_puts(&text, text.len > 0 && text.data[text.len - 1] != '\n' ? "\n" : "");
            buf_puts(&text, parts[i]);
        }
    if (strcmp(droste_result_status(r), "timeout") == 0 && droste_result_alive(r))
        buf_puts(&text, "The cell was interrupted because its time was up. Variables are kept.\n");
    if (text.len > 0 && !buf_failed(&text))
        mcp_result_add_text(result, text.data, text.len);
}

static void cell_on_done(
    struct mcp_session *s, struct mcp_call *c, droste_result *r, const droste_error *err)
{
    cleanup_json struct json_object *cell = NULL;
    droste_error why;
    droste_session_on_output(s->session, NULL, NULL);
    if (!c)
        return;
    if (err || !r) {
        if (err)
            mcp_tool_fail_error(c, err);
        else
            mcp_call_fail(c, RPC_INTERNAL, "out of memory");
        return;
    }
    size_t len = 0;
    const char *json = droste_result_json(r, &len);
    if (!json || json_parse(json, len, &json_limits_large, &cell, NULL) < 0) {
        mcp_call_fail(c, RPC_INTERNAL, "the result does not fit in memory");
        return;
    }
    struct json_object *result = mcp_result(), *data = cell_data(s->name, cell);
    const char *status = droste_result_status(r);
    bool failed = strcmp(status, "ok") != 0 && strcmp(status, "submitted") != 0;
    droste_result_error(r, &why);
    if (result) {
        cell_add_text(result, r, &why);
        for (size_t i = 0; i < droste_result_bundles(r); i++)
            cell_add_bundle(result, r, i);
        mcp_result_set_data(result, data);
        json_put(result, "isError", json_object_new_boolean(failed));
    } else {
        json_object_put(data);
    }
    mcp_call_answer(c, result);
}

static void cell_begin(struct mcp_call *c)
{
    struct mcp_session *s = c->session;
    struct json_object *code = json_get_typed(c->arguments, "code", json_type_string);
    double timeout = json_get_double(c->arguments, "timeout_seconds", -1);
    droste_error err;
    if (c->progress_token)
        droste_session_on_output(s->session, cell_on_output, s);
    int rc = droste_session_exec_start(s->session, json_object_get_string(code),
        (size_t)json_object_get_string_len(code), DROSTE_ECHO | DROSTE_RESULTS, timeout, &err);
    mcp_session_await(s, c, rc, &err, cell_on_done);
}

void mcp_tool_python_run(struct mcp_call *c)
{
    c->begin = cell_begin;
    mcp_session_use(c, false);
}

/* ---- contexts ---- */

static const char load_code[] = "SUBMIT(type=type(%s).__name__, length=len(%s))";

static void context_on_measured(
    struct mcp_session *s, struct mcp_call *c, droste_result *r, const droste_error *err)
{
    cleanup_json struct json_object *submit = NULL;
    size_t len = 0;
    if (!c)
        return;
    if (err) {
        mcp_tool_fail_error(c, err);
        return;
    }
    const char *json = r ? droste_result_submit(r, &len) : NULL;
    if (!json && r && droste_result_message(r)) {
        mcp_tool_fail(c, "%s", droste_result_message(r));
        return;
    }
    if (!json || json_parse(json, len, &json_limits_small, &submit, NULL) < 0 || !submit) {
        mcp_tool_fail(c, "the context is loaded, but the session does not answer");
        return;
    }
    struct json_object *result = mcp_result();
    bool ok = json_put_text(submit, "session", s->name) &&
              json_put_text(submit, "name", json_get_string(c->arguments, "name", "context"));
    const char *notice = droste_session_notice(s->session);
    if (ok && notice)
        ok = json_put_text(submit, "notice", notice);
    if (ok && result)
        mcp_result_set_data(result, json_object_get(submit));
    mcp_call_answer(c, result);
}

static void context_on_loaded(
    struct mcp_session *s, struct mcp_call *c, droste_result *r, const droste_error *err)
{
    (void)r;
    if (!c)
        return;
    if (err) {
        mcp_tool_fail_error(c, err);
        return;
    }
    const char *name = json_get_string(c->arguments, "name", "context");
    cleanup_free char *code = text_printf(load_code, name, name);
    droste_error why = { .code = DROSTE_ERROR_MEMORY, .text = "out of memory" };
    int rc = code ? droste_session_exec_start(s->session, code, strlen(code), 0, -1, &why) : -1;
    mcp_session_await(s, c, rc, &why, context_on_measured);
}

static void context_begin(struct mcp_call *c)
{
    struct mcp_session *s = c->session;
    droste_error err;
    int rc = droste_session_load_start(s->session, json_get_string(c->arguments, "name", "context"),
        json_get_string(c->arguments, "type", NULL), c->state, &err);
    mcp_session_await(s, c, rc, &err, context_on_loaded);
}

/* The sandbox itself asks for it, so the network's rules, limits, secrets and record are those of
 * its code. */
static void context_fetch(struct mcp_call *c)
{
    struct mcp_session *s = c->session;
    const char *name = json_get_string(c->arguments, "name", "context");
    const char *url = json_get_string(c->arguments, "url", "");
    droste_error why = { .code = DROSTE_ERROR_MEMORY, .text = "out of memory" };
    cleanup_buf struct buf code = { 0 };
    buf_append(&code, embedded_fetch_context, embedded_fetch_context_size);
    buf_printf(&code, "try:\n    %s = _fetch_context(", name);
    json_append_string(&code, url, strlen(url));
    buf_printf(&code, ", '%s')\nfinally:\n    del _fetch_context\n",
        json_get_string(c->arguments, "type", "auto"));
    buf_printf(&code, load_code, name, name);
    int rc = buf_failed(&code)
                 ? -1
                 : droste_session_exec_start(s->session, code.data, code.len, 0, -1, &why);
    mcp_session_await(s, c, rc, &why, context_on_measured);
}

static void context_find(struct mcp_call *c)
{
    char *path = mcp_path(c, json_get_string(c->arguments, "path", ""));
    if (!path)
        return;
    c->state = path;
    c->free_state = free;
    c->begin = context_begin;
    mcp_session_use(c, false);
}

void mcp_tool_context_load(struct mcp_call *c)
{
    const char *name = json_get_string(c->arguments, "name", "context");
    if (!text_is_identifier(name)) {
        mcp_tool_fail(c, "'%s' is not a name of a variable", name);
    } else if (json_get_string(c->arguments, "url", NULL)) {
        c->begin = context_fetch;
        mcp_session_use(c, false);
    } else {
        mcp_roots_need(c, context_find);
    }
}
