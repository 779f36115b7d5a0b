/* serve/jupyter/kernels.c: kernels: their sandboxes, one operation after the other, restarts.
 *
 * A kernel's session is a droste_session as any other's, which a client of the server's own
 * interface can use, too: the kernel waits until it is idle. A session whose code ended its sandbox
 * gets a new one at once, as a notebook server restarts a kernel that died.
 */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json/fields.h"
#include "base/text.h"
#include "serve/sandbox/calls.h"
#include "serve/jupyter/embedded.h"
#include "serve/jupyter/jupyter.h"
#include "serve/sandbox/sandbox.h"
#include "serve/options.h"

#define INPUT_TOOL "jupyter_input"

static void kernel_on_done(
    struct sandbox *sb, struct request *r, droste_result *result, const droste_error *err);

/* ---- kernels ---- */

struct jupyter_kernel *jupyter_kernel_find(struct request *r, const char *id)
{
    struct jupyter_kernel *k = r->server->jupyter->kernels;
    while (k && strcmp(k->id, id) != 0)
        k = k->next;
    bool is_own = k && (k->owner == r->account || (r->account->key.scopes & SCOPE_ADMIN));
    return is_own ? k : NULL;
}

struct jupyter_kernel *jupyter_kernel_of(struct request *r)
{
    char id[SERVE_ID_SIZE];
    struct jupyter_kernel *k = jupyter_parse_id(r->name, id) ? jupyter_kernel_find(r, id) : NULL;
    if (!k)
        request_refuse(r, 404, "not_found", "Kernel does not exist: %s", r->name);
    return k;
}

static const char *kernel_state(const struct jupyter_kernel *k)
{
    if (!k->used || !k->used->sandbox || k->phase == PHASE_STARTING)
        return k->waiting_is_new ? "starting" : "restarting";
    return k->queue || k->phase != PHASE_IDLE ? "busy" : "idle";
}

struct json_object *jupyter_kernel_json(const struct jupyter_kernel *k)
{
    struct json_object *tree = NULL;
    cleanup_buf struct buf out = { 0 };
    char id[JUPYTER_ID_SIZE];
    int connections = 0;
    for (const struct jupyter_channel *ch = k->channels; ch; ch = ch->next)
        connections++;
    jupyter_print_id(k->id, id);
    buf_putc(&out, '{');
    field_string(&out, "id", id);
    field_string(&out, "name", k->spec);
    field_time(&out, "last_activity", k->activity_ms);
    field_string(&out, "execution_state", kernel_state(k));
    field_int(&out, "connections", connections);
    buf_putc(&out, '}');
    return json_parse_written(&out, &tree, NULL) < 0 ? NULL : tree;
}

static void session_free(struct jupyter_session *s)
{
    struct jupyter_session **at = &s->kernel->sessions;
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    if (s->kernel->used == s)
        s->kernel->used = s->kernel->sessions;
    free(s);
}

/* Takes the sandbox of a session away; `soon`: the caller goes through the list of sandboxes. */
static void session_end(struct jupyter_session *s, bool soon)
{
    struct sandbox *sb = steal(&s->sandbox);
    s->is_prepared = false;
    if (!sb)
        return;
    sb->jupyter = NULL;
    sb->hooks = NULL;
    if (soon)
        sb->life_seconds = 0;
    else
        sandbox_close(sb);
}

static void kernel_free(struct jupyter_kernel *k)
{
    struct request *r = k->waiting;
    for (struct jupyter_kernel **at = &k->server->jupyter->kernels; *at; at = &(*at)->next)
        if (*at == k) {
            *at = k->next;
            break;
        }
    if (r) {
        r->state = NULL;
        r->on_gone = NULL;
        if (!r->reply)
            request_refuse(r, 503, "environment", "the kernel has ended");
    }
    admission_leave(&k->admission);
    for (uint64_t i = k->history_first; i < k->history_end; i++)
        free(k->history[i % JUPYTER_HISTORY].code);
    json_object_put(k->reply);
    buf_free(&k->settings);
    free(k);
}

static void kernel_end(struct jupyter_kernel *k, const char *why, bool soon)
{
    if (k->is_ended)
        return;
    k->is_ended = true;
    jupyter_abort(k);
    jupyter_tell_status(k, NULL, "dead");
    jupyter_channels_close(k, why);
    jupyter_notebooks_forget(k);
    while (k->sessions) {
        session_end(k->sessions, soon);
        session_free(k->sessions);
    }
    kernel_free(k);
}

void jupyter_kernel_end(struct jupyter_kernel *k, const char *why)
{
    kernel_end(k, why, false);
}

/* ---- sessions ---- */

static struct jupyter_session *session_new(struct jupyter_kernel *k, const char *name)
{
    struct jupyter_session *s = calloc(1, sizeof *s), **at = &k->sessions;
    if (!s)
        return NULL;
    s->kernel = k;
    snprintf(s->name, sizeof s->name, "%s", name);
    while (*at)
        at = &(*at)->next;
    *at = s;
    return s;
}

struct jupyter_session *jupyter_session_find(struct jupyter_kernel *k, const char *name)
{
    struct jupyter_session *s = k->sessions;
    while (s && strcmp(s->name, name) != 0)
        s = s->next;
    return s;
}

static void session_on_input(void *arg, droste_tool_call *call, const char *json, size_t len)
{
    struct jupyter_session *s = arg;
    s->kernel->requests->input(s->kernel, call, json, len);
}

static void session_idle(struct sandbox *sb)
{
    jupyter_kernel_step(sb->jupyter->kernel);
}

static void session_lost(struct sandbox *sb)
{
    struct jupyter_session *s = sb->jupyter;
    struct jupyter_kernel *k = s->kernel;
    s->sandbox = NULL;
    if (s == k->sessions) {
        kernel_end(k, "the kernel's sandbox has ended", true);
        return;
    }
    bool was_used = s == k->used;
    session_free(s);
    if (!was_used)
        return;
    k->phase = PHASE_IDLE;
    jupyter_fail(k, "SessionEnded", "the session has ended; cells use 'main'");
    jupyter_kernel_step(k);
}

static const struct sandbox_hooks session_hooks = { .idle = session_idle, .close = session_lost };

/* False: it has no input(). */
static bool session_take(struct jupyter_session *s, struct sandbox *sb)
{
    static const char parameters[] =
        "{\"type\": \"object\", \"properties\": {\"prompt\": {\"type\": \"string\"}, "
        "\"password\": {\"type\": \"boolean\"}}, \"required\": [\"prompt\", \"password\"]}";
    const struct key_limits *limits = &sb->owner->key.limits;
    droste_error err;
    s->sandbox = sb;
    sb->jupyter = s;
    sb->hooks = &session_hooks;
    if (limits->life_seconds > 0 && limits->life_seconds < sb->life_seconds)
        sb->life_seconds = limits->life_seconds;
    if (limits->idle_seconds > 0 && limits->idle_seconds < sb->idle_seconds)
        sb->idle_seconds = limits->idle_seconds;
    if (!sb->metadata)
        sb->metadata = json_object_new_object();
    if (sb->metadata)
        json_put_text(sb->metadata, "client", "jupyter");
    return droste_session_tool_add(sb->session, INPUT_TOOL, "Asks the notebook's reader.",
               parameters, session_on_input, s, &err) == 0;
}

/* ---- operations ---- */

bool jupyter_kernel_begin(struct jupyter_kernel *k, enum jupyter_phase phase, int rc)
{
    if (rc < 0)
        return false;
    k->phase = phase;
    sandbox_begin(k->used->sandbox, NULL, kernel_on_done);
    for (struct jupyter_session *s = k->sessions; s; s = s->next)
        if (s->sandbox)
            s->sandbox->used_ns = clock_ns();
    k->activity_ms = clock_wall_ms();
    return true;
}

/* The module of _notebook.py. Its source is a literal of Python as one of JSON. */
static void session_prepare(struct jupyter_session *s)
{
    cleanup_buf struct buf code = { 0 };
    droste_error err;
    buf_puts(&code, "(lambda m: (exec(compile(");
    json_append_string(&code, (const char *)embedded_notebook_guest, embedded_notebook_guest_size);
    buf_puts(&code,
        ", '<notebook>', 'exec'), m.__dict__), SUBMIT(**m.prepare(" INPUT_TOOL
        "))))(__import__('sys')"
        ".modules.setdefault('_droste_notebook', type(__import__('sys'))('_droste_notebook')))");
    int rc = droste_session_exec_start(s->sandbox->session, buf_text(&code), code.len, 0, -1, &err);
    if (!jupyter_kernel_begin(s->kernel, PHASE_PREPARING, rc))
        kernel_end(s->kernel, err.text, false);
}

/* Digits and dots, for kernel_info. */
static void kernel_take_version(struct jupyter_kernel *k, const droste_result *result)
{
    cleanup_json struct json_object *o = NULL;
    size_t len = 0;
    const char *text = droste_result_submit(result, &len);
    if (!text || json_parse(text, len, &json_limits_small, &o, NULL) < 0)
        return;
    const char *version = json_get_string(o, "version", "");
    if (strspn(version, "0123456789.") == strlen(version) && strlen(version) < sizeof k->version)
        strcpy(k->version, version);
}

void jupyter_kernel_step(struct jupyter_kernel *k)
{
    if (k->is_stepping || k->is_ended)
        return;
    k->is_stepping = true;
    while (!k->is_ended && k->phase == PHASE_IDLE) {
        struct jupyter_session *s = k->used;
        if (!s || !s->sandbox || s->sandbox->done)
            break;
        if (!s->is_prepared) {
            k->is_stepping = false;
            session_prepare(s);
            return;
        }
        if (k->waiting) {
            struct request *r = steal(&k->waiting);
            r->state = NULL;
            r->on_gone = NULL;
            request_reply_json(r, 200, jupyter_kernel_json(k));
        }
        if (!k->queue)
            break;
        if (!k->requests->begin(k))
            return; /* it has ended, or begun again */
    }
    k->is_stepping = false;
}

static void kernel_on_forked(struct jupyter_kernel *k, struct sandbox *sb, const droste_error *err)
{
    droste_session *session = steal(&sb->forked);
    struct sandbox *copy = NULL;
    struct jupyter_session *s = err ? NULL : session_new(k, k->fork_name);
    if (s)
        copy = sandbox_add(sb->server, &k->admission, sb->owner, session);
    else
        droste_session_close(session);
    admission_leave(&k->admission);
    if (copy) {
        table_count(sb->server->figures, COUNT_FORKED, 1);
        calls_inherit(copy, sb);
        droste_session_tool_remove(copy->session, INPUT_TOOL, NULL);
        s->is_prepared = session_take(s, copy);
        return;
    }
    k->fork_name[0] = '\0'; /* it failed */
    if (s)
        session_free(s);
}

static void kernel_on_done(
    struct sandbox *sb, struct request *r, droste_result *result, const droste_error *err)
{
    struct jupyter_session *s = sb->jupyter;
    struct jupyter_kernel *k = s ? s->kernel : NULL;
    if (!k)
        return;
    enum jupyter_phase phase = k->phase;
    const char *status = result ? droste_result_status(result) : "lost";
    (void)r;
    k->phase = PHASE_IDLE;
    if (phase == PHASE_STARTING || phase == PHASE_PREPARING) {
        if (err || (result && strcmp(status, "ok") != 0 && strcmp(status, "submitted") != 0)) {
            kernel_end(k, err ? err->text : "the kernel's sandbox did not start", false);
            return;
        }
        s->is_prepared = phase == PHASE_PREPARING;
        if (s->is_prepared)
            kernel_take_version(k, result);
        return;
    }
    if (phase == PHASE_FORK)
        kernel_on_forked(k, sb, err);
    k->requests->done(k, phase, result, err);
    if (k->phase == PHASE_IDLE && !droste_session_is_alive(sb->session))
        jupyter_kernel_restart(k, false);
}

/* ---- room ---- */

static void kernel_start_session(struct jupyter_kernel *k)
{
    struct jupyter_session *s = k->used;
    const struct key_limits *limits = &k->owner->key.limits;
    cleanup_buf struct buf words = { 0 };
    droste_session *session = NULL;
    droste_result *none = NULL;
    droste_error err = { .text = "out of memory" };
    buf_append(&words, k->settings.data, k->settings.len);
    if (limits->memory[0])
        sandbox_setting(&words, "memory", limits->memory);
    if (limits->cpus[0])
        sandbox_setting(&words, "cpus", limits->cpus);
    cleanup_free const char **settings = sandbox_list_settings(&words);
    struct sandbox *sb = NULL;
    if (settings && droste_session_start(k->server->d, settings, &session, &err) == 0)
        sb = sandbox_add(k->server, &k->admission, k->owner, session);
    admission_leave(&k->admission);
    if (!sb || !session_take(s, sb)) {
        kernel_end(k, err.text, false);
        return;
    }
    table_count(k->server->figures, COUNT_CREATED, 1);
    int rc = droste_session_wait(session, 0, &none, &err);
    k->phase = PHASE_IDLE;
    if (rc < 0)
        kernel_end(k, err.text, false);
    else if (rc == 1)
        jupyter_kernel_begin(k, PHASE_STARTING, 0);
    else
        jupyter_kernel_step(k);
}

static struct jupyter_kernel *kernel_of_admission(struct admission *a)
{
    return (
        struct jupyter_kernel *)(void *)((char *)a - offsetof(struct jupyter_kernel, admission));
}

static void kernel_on_place(struct admission *a)
{
    struct jupyter_kernel *k = kernel_of_admission(a);
    droste_error err;
    if (!k->fork_name[0]) {
        kernel_start_session(k);
        return;
    }
    struct sandbox *sb = k->used->sandbox;
    int rc = droste_session_fork_start(sb->session, &sb->forked, &err);
    k->phase = PHASE_IDLE;
    if (jupyter_kernel_begin(k, PHASE_FORK, rc))
        return;
    admission_leave(a);
    jupyter_fail(k, "Error", err.text);
    jupyter_kernel_step(k);
}

static void kernel_on_no_place(
    struct admission *a, unsigned status, const char *code, const char *text, double wait)
{
    struct jupyter_kernel *k = kernel_of_admission(a);
    (void)status, (void)code, (void)wait;
    k->phase = PHASE_IDLE;
    if (k->fork_name[0]) {
        jupyter_fail(k, "Error", text);
        jupyter_kernel_step(k);
        return;
    }
    kernel_end(k, text, false);
}

static void kernel_ask_place(struct jupyter_kernel *k, const char *fork_name)
{
    k->phase = PHASE_PLACE;
    snprintf(k->fork_name, sizeof k->fork_name, "%s", fork_name);
    k->admission = (struct admission){ .server = k->server,
        .account = k->owner,
        .go = kernel_on_place,
        .refuse = kernel_on_no_place };
    admission_seek(&k->admission);
}

void jupyter_kernel_interrupt(struct jupyter_kernel *k)
{
    if (k->used && k->used->sandbox)
        droste_session_interrupt(k->used->sandbox->session);
}

void jupyter_kernel_fork(struct jupyter_kernel *k, const char *name)
{
    kernel_ask_place(k, name);
}

void jupyter_kernel_restart(struct jupyter_kernel *k, bool all)
{
    if (!all) /* which tells clients that the kernel has died */
        jupyter_tell_status(k, NULL, "restarting");
    admission_leave(&k->admission);
    if (all) {
        jupyter_abort(k);
        k->used = k->sessions;
        while (k->sessions->next) {
            session_end(k->sessions->next, false);
            session_free(k->sessions->next);
        }
        k->count = 0;
    }
    session_end(k->used, false);
    kernel_ask_place(k, "");
}

/* ---- create ---- */

static bool kernel_settings(struct request *r, struct buf *words)
{
    const struct jupyter_kernel *k = r->state;
    buf_append(words, k->settings.data, k->settings.len);
    return true;
}

static bool kernel_prepare(struct sandbox *sb, struct request *r)
{
    struct jupyter_kernel *k = r->state;
    struct jupyter_session *s = session_new(k, "main");
    if (!s || !session_take(s, sb)) {
        request_refuse_memory(r);
        return false;
    }
    k->used = s;
    k->next = k->server->jupyter->kernels;
    k->server->jupyter->kernels = k;
    return true;
}

static void kernel_ready(struct sandbox *sb, struct request *r, droste_result *result)
{
    struct jupyter_kernel *k = r->state;
    r->state = NULL;
    k->waiting = NULL;
    k->waiting_is_new = false;
    k->phase = PHASE_IDLE;
    table_time(k->server->figures, TIME_CREATE, clock_ns() - r->began_ns);
    k->ready(k, r);
}

static void kernel_create_on_free(struct request *r)
{
    struct jupyter_kernel *k = r->state;
    if (!k)
        return;
    k->waiting = NULL;
    if (!k->sessions)
        kernel_free(k);
}

/* No time limit for input(): its reader may be at lunch. */
static void kernel_put_settings(struct request *r, struct buf *words)
{
    struct json_object *env = json_get_typed(r->json, "env", json_type_object);
    sandbox_setting(words, "tool-timeout", "0");
    sandbox_setting(words, "max-tool-calls", "1000000");
    if (!env)
        return;
    json_object_object_foreach(env, name, value)
    {
        cleanup_free char *text = text_printf("%s=%s", name, json_object_get_string(value));
        sandbox_setting(words, "env-var", text ? text : "");
    }
}

void jupyter_kernel_start(struct request *r, const char *spec,
    const struct jupyter_requests *requests,
    void (*ready)(struct jupyter_kernel *k, struct request *r))
{
    static const struct sandbox_maker maker = { kernel_settings, kernel_prepare, kernel_ready };
    struct jupyter_kernel *k = calloc(1, sizeof *k);
    if (!k || server_make_id(r->server, k->id) < 0) {
        free(k);
        request_refuse_memory(r);
        return;
    }
    k->server = r->server;
    k->owner = r->account;
    k->spec = spec;
    k->requests = requests;
    strcpy(k->version, "3");
    k->activity_ms = clock_wall_ms();
    k->phase = PHASE_STARTING;
    k->waiting = r;
    k->waiting_is_new = true;
    k->ready = ready;
    kernel_put_settings(r, &k->settings);
    r->state = k;
    r->on_free = kernel_create_on_free;
    sandbox_create(r, &maker);
}
