/* api/session_ops.c: the operations of a session: cells, values, contexts.
 *
 * A blocking call waits for the end of its operation; the ends of others are reported to the
 * function of droste_session_on_done, by a timer, because the function may close the session.
 */
#include "api/session_ops.h"

#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "api/contexts.h"
#include "api/result.h"
#include "api/stage.h"
#include "base/cleanup.h"
#include "base/json/fields.h"
#include "base/loop.h"
#include "base/text.h"
#include "broker/broker.h"
#include "broker/tools.h"
#include "session/context.h"
#include "session/template.h"
#include "wire/values.h"

/* ---- an end ---- */

static void session_ops_over(droste_session *s)
{
    droste *d = s->d;
    s->done = true;
    if (s->waited_for || !s->on_done)
        return;
    s->is_answered = true;
    TAILQ_INSERT_TAIL(&d->answered, s, answered);
    timer_start(d->tell, 0, 0);
}

static void operation_done(void *arg, struct cell_result *result)
{
    droste_session *s = arg;
    s->result = *result;
    session_ops_over(s);
}

static void session_ops_prepared(void *arg, const struct error *why)
{
    droste_session *s = arg;
    if (why)
        s->failure = *why;
    session_ops_over(s);
}

void session_api_opened(droste_session *s, const struct error *why)
{
    s->operation = OPERATION_OPEN;
    session_ops_prepared(s, why);
}

void session_api_drop_end(droste_session *s)
{
    if (s->is_answered)
        TAILQ_REMOVE(&s->d->answered, s, answered);
    s->is_answered = false;
}

void session_api_leave_environment(droste_session *s)
{
    s->d->env_sessions -= s->uses_env;
    s->uses_env = false;
}

static int session_ops_take_cell(droste_session *s, droste_result **out, struct error *err)
{
    struct cell_result result = s->result;
    s->result = (struct cell_result){ 0 };
    if (result.status == CELL_TIMEOUT)
        broker_deadline(s->broker, s->session, result.error.message);
    if (result.reason.code == ERROR_ENVIRONMENT) {
        *err = result.reason;
        cell_result_free(&result);
        return -(int)ERROR_ENVIRONMENT;
    }
    *out = result_of_cell(&result, s->session, session_api_origin(s)->parts.workspace, s->rules);
    return *out ? 0 : error_memory(err);
}

static int session_ops_take_value(droste_session *s, struct error *err)
{
    int rc = s->result.status == CELL_OK ? 0 : context_refused(s->context, &s->result, err);
    cell_result_free(&s->result);
    context_free(s->context);
    s->context = NULL;
    return rc;
}

/* Of a fork, which is dead if it was refused, or a template. */
static int session_ops_take_copy(droste_session *s, struct error *err)
{
    int rc = 0;
    if (s->result.status == CELL_ERROR)
        rc = error_set(err, ERROR_ARGUMENT, "%s",
            s->result.error.message ? s->result.error.message : "the session refused");
    else if (s->result.status != CELL_OK) {
        *err = s->result.reason;
        rc = -(int)err->code;
    }
    cell_result_free(&s->result);
    return rc;
}

/* The guest has the tools of the checkpoint. */
static int session_ops_take_rollback(droste_session *s, struct error *err)
{
    cleanup_buf struct buf json = { 0 };
    struct session_options offered = { 0 };
    int rc = session_ops_take_copy(s, err);
    tools_offer(s->tools, &offered);
    if (rc < 0 || !offered.tools)
        return rc;
    buf_printf(&json, "{\"tools\":%s}", offered.tools);
    return buf_failed(&json) ? error_memory(err)
                             : session_offer(s->session, json.data, json.len, err);
}

static int session_ops_take_template(droste_session *s, struct error *err)
{
    struct template *made = steal(&s->saving);
    int rc = session_ops_take_copy(s, err);
    if (rc == 0)
        rc = template_seal(made, err);
    template_drop(made);
    return rc;
}

static int take_failure(droste_session *s, struct error *err)
{
    *err = s->failure;
    s->failure = (struct error){ 0 };
    return -(int)err->code;
}

/* Takes the end of the operation, so that the session may begin another. */
static int session_ops_take(droste_session *s, droste_result **out, struct error *err)
{
    enum operation operation = s->operation;
    s->operation = OPERATION_NONE;
    s->done = false;
    session_api_drop_end(s);
    if (operation == OPERATION_CELL)
        return session_ops_take_cell(s, out, err);
    if (operation == OPERATION_VALUE)
        return session_ops_take_value(s, err);
    if (operation == OPERATION_FORK)
        return session_ops_take_copy(s, err);
    if (operation == OPERATION_ROLLBACK)
        return session_ops_take_rollback(s, err);
    if (operation == OPERATION_SAVE)
        return session_ops_take_template(s, err);
    return operation == OPERATION_NONE ? 0 : take_failure(s, err);
}

void droste_session_on_done(droste_session *s, droste_session_done_fn *fn, void *arg)
{
    if (!fn)
        session_api_drop_end(s);
    s->on_done = fn;
    s->on_done_arg = arg;
}

/* The functions of the program may start operations, and close sessions. */
void api_tell_sessions(droste *d)
{
    droste_session *s;
    while ((s = TAILQ_FIRST(&d->answered))) {
        droste_error error = { 0 };
        droste_result *result = NULL;
        int rc = session_ops_take(s, &result, &error);
        s->on_done(s->on_done_arg, s, result, rc < 0 ? &error : NULL);
    }
}

/* ---- waiting ---- */

/* Polls only a session that is ready: starting a sandbox needs the processors more. */
static int session_ops_wait_for(droste_session *s, int ms, droste_result **out, struct error *err)
{
    *out = NULL;
    if (s->operation == OPERATION_NONE)
        return 0;
    s->waited_for = true;
    static const bool never;
    const bool *soon = s->session ? session_is_ready(s->session) : &never;
    int rc = api_wait_soon(s->d, &s->done, soon, ms, err);
    s->waited_for = false;
    return rc != 0 ? rc : session_ops_take(s, out, err);
}

int droste_session_wait(droste_session *s, int milliseconds, droste_result **out, droste_error *err)
{
    err = api_error(err);
    return session_ops_wait_for(s, milliseconds, out, err);
}

int session_api_finish(droste_session *s, int rc, droste_result **out, struct error *err)
{
    droste_result *result = NULL;
    if (rc < 0)
        return rc;
    rc = session_ops_wait_for(s, -1, &result, err);
    if (out)
        *out = result;
    return rc;
}

/* ---- beginning ---- */

static int session_ops_begin(droste_session *s, enum operation operation, struct error *err)
{
    if (s->operation != OPERATION_NONE)
        return error_set(err, ERROR_ARGUMENT,
            s->done ? "the end of the session's last operation was not taken yet"
                    : "the session is busy with another operation");
    if (!s->session && operation != OPERATION_OPEN)
        return error_set(err, ERROR_ARGUMENT, "the session did not open, or was finished");
    s->operation = operation;
    s->done = false;
    return 0;
}

static int session_ops_began(droste_session *s, int rc)
{
    if (rc < 0)
        s->operation = OPERATION_NONE;
    return rc;
}

int session_api_prepare(droste_session *s, struct error *err)
{
    int rc = session_ops_begin(s, OPERATION_OPEN, err);
    if (rc < 0)
        return rc;
    return session_ops_began(s,
        prepare_start(&s->prepare, s->session, &s->options, false, session_ops_prepared, s, err));
}

int session_api_stage(droste_session *s, staging_done_fn *done, struct error *err)
{
    int rc = session_ops_begin(s, OPERATION_OPEN, err);
    return rc < 0 ? rc : session_ops_began(s, staging_start(s->d->loop, &s->staging, done, s, err));
}

/* The file's directory, behind symbolic links, as Python puts it first in sys.path. */
static void script_put_directory(const char *file, struct buf *out)
{
    cleanup_free char *real = realpath(file, NULL);
    const char *path = real ? real : file, *slash = strrchr(path, '/');
    cleanup_free char *directory = strndup(path, slash ? (size_t)(slash - path) : 0);
    bool is_utf8 = directory && text_is_utf8(directory, strlen(directory), NULL);
    field_string(out, "directory", !is_utf8 ? "" : slash == path ? "/" : directory);
}

int droste_session_script(
    droste_session *s, const char *file, const char *const *argv, droste_error *err)
{
    err = api_error(err);
    cleanup_buf struct buf out = { 0 };
    bool fine = !file || text_is_utf8(file, strlen(file), NULL);
    for (size_t i = 0; argv[i] && fine; i++)
        fine = text_is_utf8(argv[i], strlen(argv[i]), NULL);
    buf_putc(&out, '{');
    field_strings(&out, "argv", argv);
    if (file)
        field_string(&out, "file", file), script_put_directory(file, &out);
    buf_putc(&out, '}');
    free(steal(&s->script));
    if (!fine)
        return error_set(err, ERROR_ARGUMENT, "the arguments of a script must be UTF-8");
    s->script = buf_steal(&out);
    return s->script ? 0 : error_memory(err);
}

void droste_session_trace(droste_session *s, const char *traceparent)
{
    struct traceparent parsed;
    s->trace[0] = '\0';
    if (traceparent_parse(traceparent, &parsed))
        traceparent_write(&parsed, parsed.span, s->trace);
}

static int start_cell(
    droste_session *s, const char *code, size_t len, int flags, double timeout, struct error *err)
{
    struct session_cell cell = {
        .code = code,
        .len = len,
        .echo = flags & DROSTE_ECHO,
        .results = flags & DROSTE_RESULTS,
        .prints = flags & DROSTE_PRINT,
        .whole_errors = flags & DROSTE_WHOLE_ERRORS,
        .values = flags & DROSTE_VALUES ? VALUES_VERSION : 0,
        .only_values = flags & DROSTE_ONLY_VALUES,
        .execute_timeout = timeout,
    };
    cleanup_free char *script = steal(&s->script);
    cell.script = script;
    int rc = s->asks_checked || s->plain ? 0 : api_ask_check(&s->settings, s->tools, err);
    if (rc < 0)
        return rc;
    s->asks_checked = true;
    rc = session_ops_begin(s, OPERATION_CELL, err);
    return rc < 0 ? rc
                  : session_ops_began(s, session_exec(s->session, &cell, operation_done, s, err));
}

int droste_session_exec_start(
    droste_session *s, const char *code, size_t len, int flags, double timeout, droste_error *err)
{
    return start_cell(s, code, len, flags, timeout, api_error(err));
}

int droste_session_exec(droste_session *s, const char *code, size_t len, int flags,
    droste_result **out, droste_error *err)
{
    err = api_error(err);
    api_forget_interrupt(s->d);
    int rc = start_cell(s, code, len, flags, -1, err);
    return session_api_finish(s, rc, out, err);
}

/* ---- forks ---- */

droste_session *session_api_origin(droste_session *s)
{
    return s->origin ? s->origin : s;
}

int session_api_fork(
    droste_session *s, droste_session *fork, const struct session_events *events, struct error *err)
{
    if (s->operation == OPERATION_FORK && !s->done)
        return session_fork(s->session, events, fork, operation_done, s, &fork->session, err);
    int rc = session_ops_begin(s, OPERATION_FORK, err);
    return rc < 0 ? rc
                  : session_ops_began(s, session_fork(s->session, events, fork, operation_done, s,
                                             &fork->session, err));
}

/* ---- checkpoints ---- */

static int start_checkpoint(droste_session *s, unsigned *id, struct error *err)
{
    int rc = session_ops_begin(s, OPERATION_FORK, err);
    return rc < 0
               ? rc
               : session_ops_began(s, session_checkpoint(s->session, operation_done, s, id, err));
}

int droste_session_checkpoint_start(droste_session *s, unsigned *id, droste_error *err)
{
    return start_checkpoint(s, id, api_error(err));
}

int droste_session_checkpoint(droste_session *s, unsigned *id, droste_error *err)
{
    err = api_error(err);
    api_forget_interrupt(s->d);
    return session_api_finish(s, start_checkpoint(s, id, err), NULL, err);
}

static int start_rollback(droste_session *s, unsigned id, struct error *err)
{
    int rc = session_ops_begin(s, OPERATION_ROLLBACK, err);
    return rc < 0 ? rc
                  : session_ops_began(s, session_rollback(s->session, id, operation_done, s, err));
}

int droste_session_rollback_start(droste_session *s, unsigned id, droste_error *err)
{
    return start_rollback(s, id, api_error(err));
}

int droste_session_rollback(droste_session *s, unsigned id, droste_error *err)
{
    err = api_error(err);
    api_forget_interrupt(s->d);
    return session_api_finish(s, start_rollback(s, id, err), NULL, err);
}

int session_api_at(droste_session *s, unsigned id, droste_session *fork,
    const struct session_events *events, struct error *err)
{
    int rc = session_ops_begin(s, OPERATION_FORK, err);
    return rc < 0 ? rc
                  : session_ops_began(s, session_at(s->session, id, events, fork, operation_done, s,
                                             &fork->session, err));
}

size_t droste_session_checkpoints(const droste_session *s, droste_checkpoint *out, size_t most)
{
    cleanup_free struct checkpoint_info *all = calloc(most + 1, sizeof *all);
    size_t count = s->session && all ? session_checkpoints(s->session, all, most) : 0;
    for (size_t i = 0; i < count && i < most; i++)
        out[i] = (droste_checkpoint){ all[i].id, all[i].parent, all[i].cell, all[i].memory,
            all[i].current };
    return count;
}

int droste_session_forget(droste_session *s, unsigned id, droste_error *err)
{
    err = api_error(err);
    return s->session ? session_forget(s->session, id, err)
                      : error_set(err, ERROR_ARGUMENT, "the session did not open");
}

int session_api_save(droste_session *s, struct template **out, struct error *err)
{
    int rc = session_ops_begin(s, OPERATION_SAVE, err);
    if (rc < 0)
        return rc;
    rc = session_ops_began(s, session_save(s->session, out, operation_done, s, err));
    if (rc == 0)
        s->saving = template_hold(*out);
    return rc;
}

/* ---- the end of the session ---- */

static void session_ops_finished(void *arg, const struct error *why)
{
    droste_session *s = arg;
    s->failure = *why;
    session_ops_over(s);
}

/* Drops the current operation, or its end that was not taken. */
static void drop_operation(droste_session *s)
{
    session_api_drop_end(s);
    cell_result_free(&s->result);
    context_free(s->context);
    s->context = NULL;
    template_drop(steal(&s->saving));
    s->failure = (struct error){ 0 };
}

static void start_finish(droste_session *s)
{
    if (s->operation == OPERATION_FINISH)
        return;
    if (s->staging) {
        staging_drop(steal(&s->staging));
        session_api_leave_environment(s);
        drop_operation(s);
        s->operation = OPERATION_NONE;
    }
    if (s->session && session_finish(s->session, session_ops_finished, s)) {
        drop_operation(s);
        s->operation = OPERATION_FINISH;
        s->done = false;
    }
}

int droste_session_finish_start(droste_session *s)
{
    start_finish(s);
    return s->operation == OPERATION_FINISH;
}

int droste_session_finish(droste_session *s, droste_error *err)
{
    err = api_error(err);
    start_finish(s);
    if (s->operation != OPERATION_FINISH)
        return 0;
    return session_api_finish(s, 0, NULL, err);
}

/* ---- values ---- */

/* Takes the context, also on failure. */
static int start_value(droste_session *s, struct context *context, const char *const *names,
    size_t count, struct error *err)
{
    int rc = session_ops_begin(s, OPERATION_VALUE, err);
    if (rc < 0) {
        context_free(context);
        return rc;
    }
    s->context = context;
    rc = context_set(context, s->session, names, count, operation_done, s, err);
    if (rc < 0) {
        context_free(context);
        s->context = NULL;
    }
    return session_ops_began(s, rc);
}

static int start_set(droste_session *s, const char *name, const char *kind, const void *data,
    size_t len, struct error *err)
{
    struct context *context = NULL;
    enum value_kind value;
    int rc = context_kind_parse(kind, &value, err);
    if (rc == 0)
        rc = context_from_memory(data, len, value, &context, err);
    return rc < 0 ? rc : start_value(s, context, &name, 1, err);
}

int droste_session_set_start(droste_session *s, const char *name, const char *kind,
    const void *data, size_t len, droste_error *err)
{
    return start_set(s, name, kind, data, len, api_error(err));
}

int droste_session_set_pieces_start(droste_session *s, const char *name, const char *kind,
    const droste_piece *pieces, size_t count, droste_error *err)
{
    err = api_error(err);
    struct context *context = NULL;
    enum value_kind value;
    cleanup_free struct session_part *own = calloc(count + 1, sizeof *own);
    if (!own)
        return error_memory(err);
    for (size_t i = 0; i < count; i++)
        own[i] = (struct session_part){ pieces[i].data, pieces[i].len };
    int rc = context_kind_parse(kind, &value, err);
    if (rc == 0)
        rc = context_from_parts(own, count, value, &context, err);
    return rc < 0 ? rc : start_value(s, context, &name, 1, err);
}

int droste_session_set(droste_session *s, const char *name, const char *kind, const void *data,
    size_t len, droste_error *err)
{
    err = api_error(err);
    int rc = start_set(s, name, kind, data, len, err);
    return session_api_finish(s, rc, NULL, err);
}

int droste_session_load(
    droste_session *s, const char *name, const char *kind, const char *path, droste_error *failure)
{
    struct error *err = api_error(failure);
    int rc = droste_session_load_start(s, name, kind, path, failure);
    return rc < 0 ? rc : session_api_finish(s, 0, NULL, err);
}

int droste_session_load_start(
    droste_session *s, const char *name, const char *kind, const char *path, droste_error *err)
{
    err = api_error(err);
    struct context *context = NULL;
    free(steal(&s->notice));
    int rc = api_context_load(s->d, &s->settings, path, kind, &context, err);
    char *notice = rc == 0 ? context_notice(context) : NULL;
    if (rc == 0)
        rc = start_value(s, context, &name, 1, err);
    if (rc == 0)
        s->notice = steal(&notice);
    free(notice);
    return rc;
}

/* Appends a context's notice to the line of notices. */
static int add_notice(droste_session *s, const struct context *context, struct error *err)
{
    cleanup_free char *notice = context_notice(context), *before = steal(&s->notice);
    struct buf all = { 0 };
    if (!notice) {
        s->notice = steal(&before);
        return 0;
    }
    buf_printf(&all, "%s%s%s", before ? before : "", before ? "; " : "", notice);
    s->notice = buf_steal(&all);
    return s->notice ? 0 : error_memory(err);
}

int droste_session_load_contexts(droste_session *s, droste_error *err)
{
    err = api_error(err);
    struct contexts all = { 0 };
    free(steal(&s->notice));
    int rc = api_contexts_load(s->d, &s->settings, &all, err);
    if (rc == 0)
        rc = api_contexts_check(&all, s->tools, err);
    for (size_t i = 0; rc == 0 && i < all.count; i++) {
        struct context_names names;
        context_names(all.items[i], i, &names);
        rc = prepare_check_context(&s->prepare, all.items[i], err);
        if (rc == 0)
            rc = add_notice(s, all.items[i], err);
        if (rc == 0)
            rc = start_value(s, steal(&all.items[i]), names.names, names.count, err);
        rc = session_api_finish(s, rc, NULL, err);
    }
    contexts_free(&all);
    return rc;
}
