/* serve/e2b/contexts.c: code contexts, and the executions that wait for each.
 *
 * A context's session is forked when it is first needed. Then its operations follow each other:
 * the directory once, and for each execution its variables, its code, and the variables as they
 * were. A session that ended (the code left, or was killed) is replaced by another fork.
 */
#include "serve/e2b/contexts.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "serve/e2b/embedded.h"
#include "serve/e2b/image.h"
#include "serve/sandbox/sandbox.h"
#include "serve/e2b/ipython.h"

enum { CONTEXTS_MOST = 64 };
/* Executions that wait for a context, and their code in all. */
enum { CONTEXT_QUEUE_MOST = 256, CONTEXT_BYTES_MOST = 16 << 20 };
enum { CONTEXT_FLAGS = DROSTE_ECHO | DROSTE_RESULTS | DROSTE_WHOLE_ERRORS };

static void context_step(struct e2b_context *c);

/* The names that clients use of a language, and ours. */
static const struct context_language {
    const char *name, *ours;
    bool needs_node;
} context_languages[] = { { "python", "python" }, { "python3", "python" }, { "bash", "bash" },
    { "javascript", "javascript", true }, { "js", "javascript", true },
    { "typescript", "typescript", true }, { "ts", "typescript", true } };

static const struct context_language *context_language_named(const char *name)
{
    for (size_t i = 0; i < array_length(context_languages); i++)
        if (strcasecmp(context_languages[i].name, name) == 0)
            return &context_languages[i];
    return NULL;
}

/* NULL: the sandbox has no such language. */
static const char *context_language(const struct e2b_sandbox *e, const char *name)
{
    const struct context_language *l = context_language_named(name);
    return l && (e->has_epoll || !l->needs_node) ? l->ours : NULL;
}

static void context_refuse_language(struct request *r, const char *language)
{
    if (context_language_named(language))
        request_refuse(r, 400, "unsupported",
            "the language '%.32s' needs Node.js on the machine of the server (apt install nodejs), and "
            "a server that runs as root or with --epoll yes",
            language);
    else
        request_refuse(r, 400, "unsupported",
            "there is no kernel for the language '%.32s' here: there are python and bash, and "
            "javascript and typescript with Node.js",
            language);
}

/* ---- the list ---- */

static struct e2b_context *context_add(struct e2b_sandbox *e, const char *language, const char *cwd)
{
    struct e2b_context *c = calloc(1, sizeof *c), **at = &e->contexts;
    if (!c || random_uuid(c->id, NULL) < 0 || !(c->cwd = strdup(cwd))) {
        free(c);
        return NULL;
    }
    c->e2b = e;
    c->language = language;
    while (*at)
        at = &(*at)->next;
    *at = c;
    return c;
}

struct e2b_context *e2b_context_find(struct e2b_sandbox *e, const char *id)
{
    for (struct e2b_context *c = e->contexts; c; c = c->next)
        if (!c->is_hidden && strcmp(c->id, id) == 0)
            return c;
    return NULL;
}

/* The oldest one of its language. */
struct e2b_context *e2b_context_default(struct e2b_sandbox *e, const char *language)
{
    const char *ours = context_language(e, language);
    for (struct e2b_context *c = e->contexts; ours && c; c = c->next)
        if (c->language == ours && !c->is_hidden)
            return c;
    return ours ? context_add(e, ours, e2b_home(e, NULL)) : NULL;
}

struct e2b_context *e2b_context_hidden(struct e2b_sandbox *e)
{
    struct e2b_context *c = context_add(e, context_language(e, "python"), e2b_home(e, NULL));
    if (c)
        c->is_hidden = true;
    return c;
}

static void context_drop_session(struct e2b_context *c)
{
    droste_session *session = steal(&c->session);
    c->is_set_up = false;
    c->phase = CONTEXT_IDLE;
    cell_end(&c->cell, NULL);
    if (!session)
        return;
    droste_session_on_done(session, NULL, NULL);
    droste_session_on_output(session, NULL, NULL);
    droste_session_on_display(session, NULL, NULL);
    droste_session_close(session);
}

static void context_free(struct e2b_context *c)
{
    struct e2b_sandbox *e = c->e2b;
    for (struct e2b_context **at = &e->contexts; *at; at = &(*at)->next)
        if (*at == c) {
            *at = c->next;
            break;
        }
    if (e->forking == c)
        e->forking = NULL;
    context_drop_session(c);
    while (c->queue) {
        struct e2b_execution *x = c->queue;
        c->queue = x->next;
        e2b_execution_cut(x);
        e2b_execution_free(x);
    }
    free(c->cwd);
    free(c);
}

void e2b_contexts_free(struct e2b_sandbox *e)
{
    while (e->contexts)
        context_free(e->contexts);
}

/* ---- executions ---- */

static void context_finish_first(struct e2b_context *c)
{
    struct e2b_execution *x = c->queue;
    if (!x)
        return;
    c->queue = x->next;
    e2b_execution_free(x);
}

static void context_fail_first(struct e2b_context *c, const droste_error *err)
{
    if (c->queue)
        e2b_execution_fail(c->queue, "KernelError", err->text);
    context_finish_first(c);
}

static void context_on_output(void *arg, int stream, const char *data, size_t len)
{
    struct e2b_context *c = arg;
    if (c->phase != CONTEXT_RUNNING || !c->queue)
        return;
    const struct e2b_field of = { "context", c->id };
    e2b_log_output(c->e2b, stream == 2 ? "stderr" : "stdout", &of, data, len);
    e2b_execution_output(c->queue, stream, data, len);
}

static void context_on_display(void *arg, const droste_bundles *bundles, size_t index)
{
    struct e2b_context *c = arg;
    if (c->phase == CONTEXT_RUNNING && c->queue)
        e2b_execution_show(c->queue, bundles, index);
}

/* Begins to pack the files. */
static int context_pack(struct e2b_context *c, droste_error *err)
{
    char call[40];
    snprintf(call, sizeof call, "pack(%lld)", (long long)c->e2b->memory_bytes);
    int rc = e2b_image_exec(c->session, call, err);
    if (rc == 0)
        c->phase = CONTEXT_PACKING;
    return rc;
}

/* Continues a snapshot when an operation of the phase has ended. */
static int context_snapshot_go_on(struct e2b_context *c, enum context_phase phase,
    const droste_result *result, const droste_error *ended, droste_error *err)
{
    struct e2b_snapshot *s = c->queue->snapshot;
    bool ok = !ended && (!result || strcmp(droste_result_status(result), "ok") == 0);
    const char *why = result ? droste_result_message(result) : NULL;
    int rc = 0;
    if (phase == CONTEXT_DROPPING)
        return 0;
    if (!ok)
        e2b_snapshot_fail(s, 400, ended ? ended->text : why ? why : "the files cannot be packed");
    if (phase == CONTEXT_PACKING && ok) {
        rc = droste_session_template_start(c->session, &s->made, err);
        c->phase = rc == 0 ? CONTEXT_SAVING : c->phase;
        return rc;
    }
    rc = e2b_image_exec(c->session, "drop()", err);
    c->phase = rc == 0 ? CONTEXT_DROPPING : c->phase;
    if (ok)
        s->on_saved(s, c->e2b);
    return rc;
}

/* The next step of a snapshot. */
static void context_snapshot(struct e2b_context *c, enum context_phase phase,
    const droste_result *result, const droste_error *ended)
{
    droste_error err = { .text = "the session ended" };
    bool is_alive = droste_session_is_alive(c->session);
    if (!is_alive || context_snapshot_go_on(c, phase, result, ended, &err) < 0)
        context_fail_first(c, &err);
    else if (c->phase == CONTEXT_IDLE)
        context_finish_first(c);
}

/* The entry of a cell that begins, or has ended. */
static void context_log(struct e2b_context *c, const droste_result *result, const droste_error *err)
{
    unsigned long long count = c->count;
    const char *status = result ? droste_result_status(result) : NULL;
    struct e2b_field fields[] = { { "context", c->id }, { "language", c->language },
        { "code", c->queue ? c->queue->code : NULL }, { 0 } };
    if (!result && !err) {
        e2b_log(c->e2b, E2B_INFO, "cell_start", fields, "Execution %llu started", count);
        return;
    }
    fields[1] = (struct e2b_field){ "status", status ? status : "error" };
    fields[2] = (struct e2b_field){ "error", err ? err->text : droste_result_message(result) };
    bool failed = err || strcmp(status, "ok") != 0;
    e2b_log(
        c->e2b, failed ? E2B_ERROR : E2B_INFO, "cell_end", fields, "Execution %llu ended", count);
}

static void context_on_done(
    void *arg, droste_session *session, droste_result *result, const droste_error *err)
{
    struct e2b_context *c = arg;
    enum context_phase phase = c->phase;
    bool failed = err || (result && strcmp(droste_result_status(result), "ok") != 0);
    c->phase = CONTEXT_IDLE;
    if (phase == CONTEXT_RUNNING) {
        cell_end(&c->cell, result);
        context_log(c, result, err);
        e2b_execution_end(c->queue, result, err);
        if (c->queue->environment)
            c->phase = CONTEXT_LEAVING;
        else
            context_finish_first(c);
    } else if (phase == CONTEXT_LEAVING) {
        context_finish_first(c);
    } else if (phase == CONTEXT_ENTERING) {
        c->entered = true;
    } else if (phase >= CONTEXT_PACKING) {
        context_snapshot(c, phase, result, err);
    } else if (phase == CONTEXT_SETTING_UP) {
        c->is_set_up = !failed;
        if (failed && c->queue) {
            e2b_execution_fail(c->queue, "FileNotFoundError", c->cwd);
            context_finish_first(c);
        }
    }
    droste_result_free(result);
    if (!droste_session_is_alive(session)) {
        if (c->phase == CONTEXT_LEAVING)
            context_finish_first(c);
        context_drop_session(c);
    }
    if (c->is_hidden && !c->queue)
        context_free(c);
    else
        context_step(c);
}

/* Code of the adapter: expressions, which leave no names. Texts of JSON are texts of Python. */
static int context_run(struct e2b_context *c, const char *code, size_t len, int flags,
    enum context_phase phase, droste_error *err)
{
    int rc = droste_session_exec_start(c->session, code, len, flags, 0, err);
    if (rc == 0)
        c->phase = phase;
    return rc;
}

static bool context_is_python(const struct e2b_context *c)
{
    return strcmp(c->language, "python") == 0;
}

/* Another language has a kernel, which is Python (kernels.py). After an interrupt it ends its
 * program in time, before the session would be ended. */
static void context_put_kernel(const struct e2b_context *c, struct buf *code)
{
    double grace;
    if (context_is_python(c))
        return;
    buf_append(code, embedded_kernels, embedded_kernels_size);
    if (strcmp(c->language, "bash") == 0) {
        buf_puts(code, "\nkernel = Bash()\n");
    } else {
        buf_puts(code, "\nkernel = Node(");
        json_append_string(code, (const char *)embedded_node_kernel, embedded_node_kernel_size);
        buf_printf(code, ", '%s')\n", c->language);
    }
    if (droste_get_number(c->e2b->sandbox->server->d, "grace", &grace))
        buf_printf(code, "kernel.patience = %g\n", grace / 2);
}

static int context_set_up(struct e2b_context *c, droste_error *err)
{
    cleanup_buf struct buf code = { 0 };
    context_put_kernel(c, &code);
    buf_puts(&code, "__import__('os').chdir(");
    json_append_string(&code, c->cwd, strlen(c->cwd));
    buf_puts(&code, ")");
    return context_run(c, buf_text(&code), code.len, 0, CONTEXT_SETTING_UP, err);
}

static int context_enter(struct e2b_context *c, droste_error *err)
{
    cleanup_buf struct buf code = { 0 };
    size_t len = 0;
    const char *env = json_text(c->queue->environment, &len);
    buf_puts(&code, "(lambda e, new: (setattr(e, '_before', {k: e.get(k) for k in new}), "
                    "e.update(new)))(__import__('os').environ, ");
    buf_append(&code, env ? env : "{}", env ? len : 2);
    buf_puts(&code, ")");
    return context_run(c, buf_text(&code), code.len, 0, CONTEXT_ENTERING, err);
}

static int context_leave(struct e2b_context *c, droste_error *err)
{
    static const char code[] =
        "(lambda e: [e.pop(k, None) if v is None else e.__setitem__(k, v) for k, v in "
        "e.__dict__.pop('_before', {}).items()])(__import__('os').environ)";
    return context_run(c, code, sizeof code - 1, 0, CONTEXT_LEAVING, err);
}

static int context_execute(struct e2b_context *c, droste_error *err)
{
    struct e2b_execution *x = c->queue;
    cleanup_buf struct buf code = { 0 };
    c->count++;
    e2b_execution_begin(x, c->count);
    context_log(c, NULL, NULL);
    cell_begin(&c->cell, c->e2b->sandbox, c->session, x->request, c->language);
    if (context_is_python(c)) {
        bool is_other = e2b_from_ipython(x->code, x->len, &code);
        return context_run(c, is_other ? buf_text(&code) : x->code, is_other ? code.len : x->len,
            CONTEXT_FLAGS, CONTEXT_RUNNING, err);
    }
    buf_puts(&code, "kernel.run(");
    json_append_string(&code, x->code, x->len);
    buf_puts(&code, ")");
    return context_run(c, buf_text(&code), code.len, CONTEXT_FLAGS, CONTEXT_RUNNING, err);
}

/* ---- sessions ---- */

static void context_on_forked(
    struct sandbox *sb, struct request *r, droste_result *result, const droste_error *err)
{
    droste_session *session = steal(&sb->forked);
    struct e2b_sandbox *e = sb->e2b;
    struct e2b_context *c = steal(&e->forking);
    if (c && !err) {
        c->session = steal(&session);
        c->wants_session = false;
        droste_session_on_done(c->session, context_on_done, c);
        droste_session_on_output(c->session, context_on_output, c);
        droste_session_on_display(c->session, context_on_display, c);
    }
    droste_session_close(session);
    if (c && err) {
        c->wants_session = false;
        context_fail_first(c, err);
    }
    if (c)
        context_step(c);
    for (c = e->contexts; c && !sb->done; c = c->next)
        if (c->wants_session)
            context_step(c);
}

/* The session of the sandbox forks one at a time. */
static void context_fork(struct e2b_context *c)
{
    struct sandbox *sb = c->e2b->sandbox;
    droste_error err;
    c->wants_session = true;
    if (sb->done)
        return;
    if (droste_session_fork_start(sb->session, &sb->forked, &err) < 0) {
        c->wants_session = false;
        context_fail_first(c, &err);
        return;
    }
    sandbox_begin(sb, NULL, context_on_forked);
    c->e2b->forking = c;
}

static void context_step(struct e2b_context *c)
{
    droste_error err;
    int rc = 0;
    while (c->phase == CONTEXT_IDLE || c->phase == CONTEXT_LEAVING) {
        struct e2b_execution *x = c->queue;
        if (c->phase == CONTEXT_LEAVING) {
            rc = context_leave(c, &err);
            break;
        }
        if (!x)
            return;
        if (!(x->snapshot ? x->snapshot->r : x->request)) { /* its client left before its turn */
            context_finish_first(c);
            continue;
        }
        if (!c->session) {
            if (c->e2b->forking != c)
                context_fork(c);
            return;
        }
        bool entered = c->entered;
        c->entered = false;
        rc = !c->is_set_up                ? context_set_up(c, &err)
             : x->snapshot                ? context_pack(c, &err)
             : x->environment && !entered ? context_enter(c, &err)
                                          : context_execute(c, &err);
        break;
    }
    if (rc < 0) {
        c->phase = CONTEXT_IDLE;
        context_fail_first(c, &err);
        context_drop_session(c);
    }
}

bool e2b_context_has_room(struct request *r, const struct e2b_context *c, size_t len)
{
    size_t count = 0, bytes = len;
    for (const struct e2b_execution *x = c->queue; x; x = x->next, count++)
        bytes += x->len;
    if (count < CONTEXT_QUEUE_MOST && (count == 0 || bytes <= CONTEXT_BYTES_MOST))
        return true;
    request_refuse(r, 429, "busy", "the context has too much code that waits; wait for answers");
    request_header(r, MHD_HTTP_HEADER_RETRY_AFTER, "1");
    return false;
}

void e2b_context_queue(struct e2b_context *c, struct e2b_execution *x)
{
    struct e2b_execution **at = &c->queue;
    while (*at)
        at = &(*at)->next;
    *at = x;
    x->context = c;
    if (c->queue == x)
        context_step(c);
}

void e2b_contexts_warm(struct e2b_sandbox *e)
{
    if (!e->has_interpreter)
        return;
    struct e2b_context *c = e2b_context_default(e, "python");
    if (c)
        context_fork(c);
}

void e2b_contexts_sweep(struct e2b_sandbox *e, uint64_t now_ns)
{
    struct e2b_context *next;
    for (struct e2b_context *c = e->contexts; c; c = next) {
        next = c->next;
        if (c->is_hidden && !c->queue && e->forking != c) {
            context_free(c);
            continue;
        }
        if (c->wants_session && !e->sandbox->done)
            context_fork(c);
        for (struct e2b_execution *x = c->queue; x; x = x->next)
            e2b_execution_keep_alive(x, now_ns);
    }
}

/* ---- the routes ---- */

static struct json_object *context_json(const struct e2b_context *c)
{
    struct json_object *o = json_object_new_object();
    if (o && json_put_text(o, "id", c->id) && json_put_text(o, "language", c->language) &&
        json_put_text(o, "cwd", c->cwd))
        return o;
    json_object_put(o);
    return NULL;
}

/* Those that clients find in each sandbox; their sessions are forked when they run code. */
static void context_add_defaults(struct e2b_sandbox *e)
{
    e2b_context_default(e, "python");
    e2b_context_default(e, "javascript");
}

void e2b_handle_contexts(struct request *r)
{
    struct e2b_sandbox *e = e2b_running_of(r);
    struct json_object *list = e ? json_object_new_array() : NULL;
    if (!e)
        return;
    context_add_defaults(e);
    for (struct e2b_context *c = e->contexts; list && c; c = c->next)
        if (!c->is_hidden)
            json_object_array_add(list, context_json(c));
    request_reply_json(r, 200, list);
}

void e2b_handle_context_create(struct request *r)
{
    struct e2b_sandbox *e = e2b_running_of(r);
    const char *language = json_get_string(r->json, "language", "python");
    size_t count = 0;
    if (!e)
        return;
    if (!context_language(e, language)) {
        context_refuse_language(r, language);
        return;
    }
    context_add_defaults(e); /* a new one does not become the default */
    e2b_context_default(e, language);
    for (struct e2b_context *c = e->contexts; c; c = c->next)
        count++;
    if (count >= CONTEXTS_MOST) {
        request_refuse(r, 429, "contexts", "a sandbox has at most %d contexts", CONTEXTS_MOST);
        return;
    }
    struct e2b_context *c = context_add(
        e, context_language(e, language), json_get_string(r->json, "cwd", e2b_home(e, NULL)));
    request_reply_json(r, 200, c ? context_json(c) : NULL);
}

static struct e2b_context *context_of(struct request *r)
{
    struct e2b_sandbox *e = e2b_running_of(r);
    struct e2b_context *c = e ? e2b_context_find(e, r->name) : NULL;
    if (e && !c)
        request_refuse(r, 404, "not_found", "Context %s not found", r->name);
    return c;
}

void e2b_handle_context_remove(struct request *r)
{
    struct e2b_context *c = context_of(r);
    if (!c)
        return;
    context_free(c);
    request_reply(r, 204, NULL, NULL, 0);
}

void e2b_handle_context_restart(struct request *r)
{
    struct e2b_context *c = context_of(r);
    if (!c)
        return;
    if (c->phase >= CONTEXT_RUNNING) {
        e2b_execution_cut(c->queue);
        context_finish_first(c);
    }
    context_drop_session(c);
    c->count = 0;
    context_step(c);
    request_reply(r, 204, NULL, NULL, 0);
}

/* ---- POST /execute ---- */

/* Its client has gone. */
static void context_abandon(struct e2b_execution *x)
{
    struct e2b_context *c = x->context;
    x->request = NULL;
    if (c && c->queue == x && c->phase == CONTEXT_RUNNING)
        droste_session_interrupt(c->session);
}

static void execution_on_gone(struct request *r)
{
    if (r->state)
        context_abandon(r->state);
    r->state = NULL;
}

/* The context that a request means; NULL: it was refused. */
static struct e2b_context *execution_context(struct request *r, struct e2b_sandbox *e)
{
    const char *id = json_get_string(r->json, "context_id", NULL);
    const char *language = json_get_string(r->json, "language", NULL);
    if (id && language) {
        request_refuse(r, 400, "argument", "Only one of context_id or language can be provided");
        return NULL;
    }
    struct e2b_context *c =
        id ? e2b_context_find(e, id) : e2b_context_default(e, language ? language : "python");
    if (!c && id)
        request_refuse(r, 404, "not_found", "Context %s not found", id);
    else if (!c)
        context_refuse_language(r, language ? language : "python");
    return c;
}

void e2b_handle_execute(struct request *r)
{
    struct e2b_sandbox *e = e2b_running_of(r);
    struct e2b_context *c = e ? execution_context(r, e) : NULL;
    struct json_object *code = json_get_typed(r->json, "code", json_type_string);
    struct json_object *env = json_get_typed(r->json, "env_vars", json_type_object);
    size_t len = (size_t)json_object_get_string_len(code);
    if (!c || !e2b_context_has_room(r, c, len))
        return;
    struct e2b_execution *x = calloc(1, sizeof *x);
    if (x) {
        x->len = len;
        x->code = text_copy(json_object_get_string(code), x->len);
    }
    if (!x || !x->code) {
        free(x);
        request_refuse_memory(r);
        return;
    }
    x->request = r;
    x->spoken_ns = clock_ns();
    x->environment = env && json_object_object_length(env) > 0 ? json_object_get(env) : NULL;
    r->state = x;
    r->on_gone = execution_on_gone;
    request_stream(r, "application/json");
    e2b_context_queue(c, x);
}
