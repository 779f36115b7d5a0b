/* env/clouds/daytona/sandbox.c: the state machine of one Daytona sandbox.
 *
 *   volume ──► create ──► poll ──► terminal ── doubt: check its state ──► over
 *              (resume: check, start) ─┘            ▲──────┘
 *
 * Requests are idempotent where an answer can be lost: a sandbox is created under a name of the
 * host's choice, so a retry finds the first attempt (409), and decisions depend on the state that
 * the API reports.
 */
#include "env/clouds/daytona/sandbox.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/os/random.h"
#include "base/text.h"
#include "env/clouds/daytona/create.h"
#include "env/clouds/daytona/terminal.h"
#include "net/url.h"

enum {
    ASK_SECONDS = 60,
    CREATE_SECONDS = 180, /* the service itself waits for the start for a while */
    START_SECONDS = 1200, /* a new image is built first */
    VOLUME_SECONDS = 120,
    REMOVE_TRIES = 20, /* while the service is busy with it */
    REMOVE_AGAIN_MS = 500,
    POLL_MS = 100, /* grows by a tenth each time */
    POLL_MOST_MS = 1000,
    NAME_SIZE = 40,
    ID_MAX = 128,
};

enum stage {
    STAGE_BEGIN,
    STAGE_VOLUME, /* look up, create, wait */
    STAGE_CREATE,
    STAGE_POLL, /* until it runs */
    STAGE_RUNS,
    STAGE_OVER,
};

struct daytona_sandbox {
    LIST_ENTRY(daytona_sandbox) link;
    const struct daytona_account *account;
    struct transport *transport; /* NULL: no more events are wanted */
    enum stage stage;
    struct json_object *body; /* of the create request, without the volume's id */
    char name[NAME_SIZE];
    char id[ID_MAX + 1];
    char *volume;      /* its name; NULL: none */
    bool volume_there; /* do not create the volume */
    struct list words;
    bool resume, keep;
    bool asked_for; /* the sandbox may exist */
    bool ending;
    unsigned removals;
    bool starting; /* a stopped sandbox was told to start */
    struct rest_request *request;
    struct terminal *terminal;
    struct timer *timer;
    unsigned poll_ms;
    uint64_t begun_ns;
    char reported[32]; /* the state last reported to the user */
};

static void daytona_sandbox_look(struct daytona_sandbox *s);
static void daytona_sandbox_begin(struct daytona_sandbox *s);
static void find_volume(struct daytona_sandbox *s);
static void remove_it(struct daytona_sandbox *s);

/* ---- events ---- */

static void daytona_sandbox_finish_end(void *arg, const struct error *why)
{
    struct daytona_sandbox *s = arg;
    struct error cause = *why;
    if (s->stage == STAGE_OVER)
        return;
    s->stage = STAGE_OVER;
    timer_stop(s->timer);
    rest_cancel(steal(&s->request));
    terminal_close(steal(&s->terminal));
    if (s->transport)
        transport_ended(s->transport, &cause);
}

__attribute__((format(printf, 3, 4))) static void daytona_sandbox_fail(
    struct daytona_sandbox *s, enum error_code code, const char *format, ...)
{
    struct error why;
    va_list args;
    va_start(args, format);
    error_vset(&why, code, format, args);
    va_end(args);
    daytona_sandbox_finish_end(s, &why);
}

static void daytona_sandbox_end_with(
    struct daytona_sandbox *s, const struct error *why, const char *what)
{
    struct error cause = *why;
    error_wrap(&cause, "%s", what);
    daytona_sandbox_finish_end(s, &cause);
}

static void tell_state(struct daytona_sandbox *s, const char *state)
{
    cleanup_buf struct buf notice = { 0 };
    if (strcmp(s->reported, state) == 0)
        return;
    snprintf(s->reported, sizeof s->reported, "%s", state);
    buf_puts(&notice, "Daytona: the sandbox is ");
    text_append_visible(&notice, state, strnlen(state, sizeof s->reported));
    if (s->transport)
        transport_notice(s->transport, strcmp(state, "started") == 0 ? "" : buf_text(&notice));
}

/* ---- requests ---- */

/* Without memory, the path is NULL. */
static int send_ask(struct daytona_sandbox *s, const char *method, const char *path,
    struct json_object *body, double seconds, rest_done_fn *done)
{
    struct error err = { 0 };
    struct rest_ask ask = { .method = method,
        .path = path,
        .body = body,
        .again = true, /* each of these is idempotent: see above */
        .seconds = seconds,
        .done = done,
        .arg = s };
    int rc = path ? rest_send(s->account->api, &ask, &s->request, &err) : error_memory(&err);
    if (rc < 0)
        daytona_sandbox_finish_end(s, &err);
    return rc;
}

/* A request about this sandbox: "/sandbox/ID…". */
static int daytona_sandbox_ask_of(
    struct daytona_sandbox *s, const char *method, const char *rest, rest_done_fn *done)
{
    cleanup_buf struct buf path = { 0 };
    buf_puts(&path, "/sandbox/");
    url_escape(&path, s->id[0] ? s->id : s->name);
    buf_puts(&path, rest);
    return send_ask(s, method, buf_failed(&path) ? NULL : path.data, NULL, ASK_SECONDS, done);
}

static void poll_again(struct daytona_sandbox *s)
{
    s->poll_ms = s->poll_ms ? s->poll_ms + s->poll_ms / 10 : POLL_MS;
    if (s->poll_ms > POLL_MOST_MS)
        s->poll_ms = POLL_MOST_MS;
    timer_start(s->timer, s->poll_ms, 0);
}

static void daytona_sandbox_timer_due(void *arg)
{
    struct daytona_sandbox *s = arg;
    if (s->ending)
        remove_it(s);
    else if (s->stage == STAGE_BEGIN)
        daytona_sandbox_begin(s);
    else if (s->stage == STAGE_VOLUME)
        find_volume(s);
    else
        daytona_sandbox_look(s);
}

/* ---- the program ---- */

static void terminal_joined(void *arg)
{
    struct daytona_sandbox *s = arg;
    transport_joined(s->transport);
}

static void terminal_bytes(void *arg, const char *data, size_t len)
{
    struct daytona_sandbox *s = arg;
    transport_bytes(s->transport, data, len);
}

static void terminal_cut(void *arg)
{
    struct daytona_sandbox *s = arg;
    transport_cut(s->transport);
}

static void terminal_doubt(void *arg, const struct error *why)
{
    daytona_sandbox_look(arg);
}

/* An empty volume gets the standard directories. */
static void write_directories(struct buf *out)
{
    buf_puts(out, "cd " DAYTONA_MEMORY " && [ -z \"$(ls -A)\" ] && mkdir -p");
    for (size_t i = 0; daytona_layout.directories[i]; i++)
        buf_printf(out, " %s", daytona_layout.directories[i]);
    buf_puts(out, "; cd; ");
}

static void daytona_sandbox_run(struct daytona_sandbox *s, const char *toolbox)
{
    static const struct terminal_events events = { terminal_joined, terminal_bytes, terminal_cut,
        terminal_doubt, daytona_sandbox_finish_end };
    cleanup_buf struct buf base = { 0 }, first = { 0 };
    struct error err = { 0 };
    s->stage = STAGE_RUNS;
    buf_printf(
        &base, "%.*s/", (int)(strlen(toolbox) - (toolbox[strlen(toolbox) - 1] == '/')), toolbox);
    url_escape(&base, s->id);
    if (s->volume)
        write_directories(&first);
    int rc = buf_failed(&base) || buf_failed(&first)
                 ? error_memory(&err)
                 : terminal_open(s->account, base.data, buf_text(&first),
                       (const char *const *)s->words.items, &events, s, &s->terminal, &err);
    if (rc < 0)
        daytona_sandbox_finish_end(s, &err);
}

/* ---- the sandbox's state ---- */

static void daytona_sandbox_toolbox_found(void *arg, const struct rest_answer *answer)
{
    struct daytona_sandbox *s = arg;
    s->request = NULL;
    const char *url = json_get_string(answer->body, "url", "");
    if (answer->error.code != ERROR_NONE)
        daytona_sandbox_finish_end(s, &answer->error);
    else if (!url[0])
        daytona_sandbox_fail(s, ERROR_PROTOCOL, "Daytona sent no address of the sandbox's toolbox");
    else
        daytona_sandbox_run(s, url);
}

static void daytona_sandbox_started(struct daytona_sandbox *s, struct json_object *o)
{
    const char *toolbox = json_get_string(o, "toolboxProxyUrl", "");
    if (s->stage == STAGE_RUNS)
        terminal_retry(s->terminal);
    else if (toolbox[0])
        daytona_sandbox_run(s, toolbox);
    else
        daytona_sandbox_ask_of(s, "GET", "/toolbox-proxy-url", daytona_sandbox_toolbox_found);
}

static void daytona_sandbox_start_answered(void *arg, const struct rest_answer *answer)
{
    struct daytona_sandbox *s = arg;
    s->request = NULL;
    /* An earlier attempt may have started it. */
    if (answer->error.code == ERROR_NONE || answer->status == 400 || answer->status == 409)
        poll_again(s);
    else
        daytona_sandbox_end_with(s, &answer->error, "starting the sandbox");
}

/* The error has the name of the state; which of the possible causes stopped the sandbox is not
 * known. */
static void daytona_sandbox_stopped(
    struct daytona_sandbox *s, struct json_object *o, const char *state)
{
    if (s->stage == STAGE_RUNS) {
        daytona_sandbox_fail(s, ERROR_LOST,
            "the sandbox was stopped (%.20s), from outside or because it was idle for %g min "
            "(--idle-timeout); the cell's outcome is unknown",
            state, json_get_double(o, "autoStopInterval", 0));
    } else if (s->resume && !s->starting) {
        s->starting = true;
        daytona_sandbox_ask_of(s, "POST", "/start", daytona_sandbox_start_answered);
    } else {
        poll_again(s);
    }
}

static void daytona_sandbox_stopping(
    struct daytona_sandbox *s, struct json_object *o, const char *state)
{
    if (s->stage == STAGE_RUNS)
        daytona_sandbox_stopped(s, o, state);
    else
        poll_again(s);
}

static void daytona_sandbox_destroyed(struct daytona_sandbox *s)
{
    daytona_sandbox_fail(s, ERROR_LOST,
        "the sandbox no longer exists: it was deleted, from outside or because it was idle; the "
        "cell's outcome is unknown");
}

static void daytona_sandbox_failed(
    struct daytona_sandbox *s, struct json_object *o, const char *state)
{
    cleanup_buf struct buf words = { 0 };
    const char *reason = json_get_string(o, "errorReason", "it does not say why");
    text_append_visible(&words, reason, strnlen(reason, 300));
    if (s->stage != STAGE_RUNS)
        daytona_sandbox_fail(s, ERROR_ENVIRONMENT, "the sandbox did not start (%.20s): %.150s",
            state, buf_text(&words));
    else if (strncmp(state, "destroy", 7) == 0)
        daytona_sandbox_destroyed(s);
    else
        daytona_sandbox_fail(s, ERROR_LOST,
            "the sandbox is in the state %.20s (%.100s); the cell's outcome is unknown", state,
            buf_text(&words));
}

static void take_state(struct daytona_sandbox *s, struct json_object *o)
{
    static const struct {
        const char *state;
        void (*handle)(struct daytona_sandbox *s, struct json_object *o, const char *state);
    } rows[] = {
        { "stopped", daytona_sandbox_stopped },
        { "archived", daytona_sandbox_stopped },
        { "paused", daytona_sandbox_stopped },
        { "stopping", daytona_sandbox_stopping },
        { "archiving", daytona_sandbox_stopping },
        { "pausing", daytona_sandbox_stopping },
        { "error", daytona_sandbox_failed },
        { "build_failed", daytona_sandbox_failed },
        { "destroying", daytona_sandbox_failed },
        { "destroyed", daytona_sandbox_failed },
    };
    const char *state = json_get_string(o, "state", ""), *id = json_get_string(o, "id", "");
    if (!text_is_name(id)) {
        daytona_sandbox_fail(s, ERROR_PROTOCOL, "Daytona's answer does not describe a sandbox");
        return;
    }
    snprintf(s->id, sizeof s->id, "%s", id);
    if (s->resume && s->volume && json_length(json_get_typed(o, "volumes", json_type_array)) == 0) {
        daytona_sandbox_fail(s, ERROR_ARGUMENT, "the sandbox %.60s was made without a volume", id);
        return;
    }
    if (s->stage == STAGE_CREATE)
        s->stage = STAGE_POLL;
    if (s->stage == STAGE_POLL)
        tell_state(s, state);
    if (strcmp(state, "started") == 0) {
        daytona_sandbox_started(s, o);
        return;
    }
    if (s->stage != STAGE_RUNS && clock_seconds_since(s->begun_ns) > START_SECONDS) {
        daytona_sandbox_fail(
            s, ERROR_TIMEOUT, "the sandbox is still %.30s after %d s", state, START_SECONDS);
        return;
    }
    for (size_t i = 0; i < array_length(rows); i++) {
        if (strcmp(state, rows[i].state) != 0)
            continue;
        rows[i].handle(s, o, state);
        return;
    }
    if (s->stage == STAGE_RUNS)
        terminal_retry(s->terminal);
    else
        poll_again(s);
}

static void daytona_sandbox_looked(void *arg, const struct rest_answer *answer)
{
    struct daytona_sandbox *s = arg;
    const struct error *why = &answer->error;
    s->request = NULL;
    if (why->code == ERROR_NONE)
        take_state(s, answer->body);
    else if (s->stage != STAGE_RUNS || why->code == ERROR_PERMISSION)
        daytona_sandbox_finish_end(s, why);
    else if (why->code == ERROR_NOT_FOUND)
        daytona_sandbox_destroyed(s);
    else
        terminal_retry(s->terminal); /* which has its own deadline */
}

static void daytona_sandbox_look(struct daytona_sandbox *s)
{
    if (!s->request)
        daytona_sandbox_ask_of(s, "GET", "", daytona_sandbox_looked);
}

/* ---- creation ---- */

static void daytona_sandbox_created(void *arg, const struct rest_answer *answer)
{
    struct daytona_sandbox *s = arg;
    s->request = NULL;
    /* A rejected request has not created anything. */
    if (answer->status >= 400 && answer->status < 500 && answer->status != 409)
        s->asked_for = false;
    if (s->ending)
        remove_it(s);
    else if (answer->status == 409)
        daytona_sandbox_look(s); /* an earlier attempt has created it: the name is the host's */
    else if (answer->error.code != ERROR_NONE)
        daytona_sandbox_end_with(s, &answer->error, "making a sandbox");
    else
        take_state(s, answer->body);
}

static void daytona_sandbox_create(struct daytona_sandbox *s)
{
    s->stage = s->resume ? STAGE_POLL : STAGE_CREATE;
    s->begun_ns = clock_ns();
    s->poll_ms = 0;
    s->asked_for = true;
    if (s->resume)
        daytona_sandbox_look(s);
    else
        send_ask(s, "POST", "/sandbox", s->body, CREATE_SECONDS, daytona_sandbox_created);
}

/* ---- the volume ---- */

static bool set_volume_id(struct daytona_sandbox *s, const char *id)
{
    struct json_object *all = json_get_typed(s->body, "volumes", json_type_array);
    struct json_object *one = all ? json_object_array_get_idx(all, 0) : NULL;
    return one && json_put_text(one, "volumeId", id);
}

static void take_volume(struct daytona_sandbox *s, struct json_object *o)
{
    const char *state = json_get_string(o, "state", ""), *id = json_get_string(o, "id", "");
    const char *reason = json_get_string(o, "errorReason", "");
    cleanup_buf struct buf words = { 0 };
    text_append_visible(&words, reason, strnlen(reason, 300));
    if (strcmp(state, "ready") == 0 && id[0]) {
        if (set_volume_id(s, id))
            daytona_sandbox_create(s);
        else
            daytona_sandbox_fail(s, ERROR_MEMORY, "out of memory");
    } else if (strncmp(state, "pending", 7) != 0 && strcmp(state, "creating") != 0) {
        daytona_sandbox_fail(s, ERROR_ENVIRONMENT,
            "Daytona's volume '%.60s' is in the state %.30s %.100s", s->volume, state,
            buf_text(&words));
    } else if (clock_seconds_since(s->begun_ns) > VOLUME_SECONDS) {
        daytona_sandbox_fail(s, ERROR_TIMEOUT, "Daytona's volume '%.60s' is still %.30s after %d s",
            s->volume, state, VOLUME_SECONDS);
    } else {
        poll_again(s);
    }
}

static void volume_made(void *arg, const struct rest_answer *answer)
{
    struct daytona_sandbox *s = arg;
    s->request = NULL;
    if (answer->error.code == ERROR_NONE || answer->status == 409) /* another process created it */
        poll_again(s);
    else
        daytona_sandbox_end_with(s, &answer->error, "making a volume");
}

static void volume_found(void *arg, const struct rest_answer *answer)
{
    struct daytona_sandbox *s = arg;
    cleanup_json struct json_object *body = json_object_new_object();
    s->request = NULL;
    if (answer->error.code == ERROR_NONE)
        take_volume(s, answer->body);
    else if (answer->error.code != ERROR_NOT_FOUND)
        daytona_sandbox_end_with(s, &answer->error, "looking for the volume");
    else if (s->volume_there)
        daytona_sandbox_fail(s, ERROR_NOT_FOUND, "the account has no volume '%.100s'", s->volume);
    else if (body && json_put_text(body, "name", s->volume))
        send_ask(s, "POST", "/volumes", body, ASK_SECONDS, volume_made);
    else
        daytona_sandbox_fail(s, ERROR_MEMORY, "out of memory");
}

static void find_volume(struct daytona_sandbox *s)
{
    cleanup_buf struct buf path = { 0 };
    buf_puts(&path, "/volumes/by-name/");
    url_escape(&path, s->volume);
    send_ask(s, "GET", buf_failed(&path) ? NULL : path.data, NULL, ASK_SECONDS, volume_found);
}

/* ---- public functions ---- */

static int make_name(struct daytona_sandbox *s, struct error *err)
{
    size_t n = (size_t)snprintf(s->name, sizeof s->name, "droste-");
    return random_hex(s->name + n, 20, err);
}

static int daytona_sandbox_fill(struct daytona_sandbox *s, const struct sandbox_spec *spec,
    const char *const *words, struct error *err)
{
    const struct container_spec *c = sandbox_container(spec);
    int rc = make_name(s, err);
    for (size_t i = 0; rc == 0 && words[i]; i++)
        rc = list_add(&s->words, words[i], err);
    if (rc == 0)
        rc = list_add_end(&s->words, err);
    if (rc < 0)
        return rc;
    s->volume = c->volume ? strdup(c->volume) : NULL;
    s->volume_there = c->volume_there;
    s->keep = c->keep;
    s->resume = c->resume;
    if (s->resume)
        snprintf(s->id, sizeof s->id, "%s", c->resume);
    struct daytona_create daytona_sandbox_create = {
        .spec = spec, .name = s->name, .target = s->account->target, .volume_id = s->volume
    };
    if (c->volume && !s->volume)
        return error_memory(err);
    return daytona_create_body(&daytona_sandbox_create, &s->body, err);
}

static void daytona_sandbox_begin(struct daytona_sandbox *s)
{
    s->begun_ns = clock_ns();
    s->stage = STAGE_VOLUME;
    if (s->volume && !s->resume)
        find_volume(s);
    else
        daytona_sandbox_create(s);
}

int daytona_sandbox_start(struct daytona_account *account, struct transport *transport,
    const struct sandbox_spec *spec, const char *const *words, void **own, struct error *err)
{
    struct daytona_sandbox *s = calloc(1, sizeof *s);
    if (!s)
        return error_memory(err);
    *s = (struct daytona_sandbox){ .account = account, .transport = transport };
    LIST_INSERT_HEAD(&account->sandboxes, s, link);
    s->timer = timer_new(account->loop, daytona_sandbox_timer_due, s);
    int rc = s->timer ? daytona_sandbox_fill(s, spec, words, err) : error_memory(err);
    if (rc < 0) {
        daytona_sandbox_free(s);
        return rc;
    }
    /* No event may fire within a call of the user: the timer takes the first step. */
    timer_start(s->timer, 0, 0);
    *own = s;
    return 0;
}

void daytona_sandbox_write(void *own, const struct iovec *iov, int count)
{
    const struct daytona_sandbox *s = own;
    if (s->terminal)
        terminal_write(s->terminal, iov, count);
}

size_t daytona_sandbox_waiting(void *own)
{
    const struct daytona_sandbox *s = own;
    return s->terminal ? terminal_waiting(s->terminal) : 0;
}

void daytona_sandbox_pause(void *own, bool paused)
{
    const struct daytona_sandbox *s = own;
    if (s->terminal)
        terminal_pause(s->terminal, paused);
}

const char *daytona_sandbox_id(void *own)
{
    const struct daytona_sandbox *s = own;
    return s->id[0] ? s->id : NULL;
}

const char *daytona_sandbox_volume(void *own)
{
    return ((const struct daytona_sandbox *)own)->volume ? DAYTONA_MEMORY : NULL;
}

void daytona_sandbox_describe(void *own, struct buf *out)
{
    const struct daytona_sandbox *s = own;
    buf_printf(out, "a sandbox of Daytona's%s%s, created with:\n%s\n", s->id[0] ? ": " : "", s->id,
        json_text(s->body, NULL));
}

/* ---- the end ---- */

static void daytona_sandbox_removed(void *arg, const struct rest_answer *answer)
{
    struct daytona_sandbox *s = arg;
    s->request = NULL;
    bool busy = answer->status == 409 || (answer->status == 400 && !s->keep);
    if (busy && ++s->removals < REMOVE_TRIES)
        timer_start(s->timer, REMOVE_AGAIN_MS, 0);
    else
        daytona_sandbox_free(s); /* 404: it is gone; otherwise its limits end it, or a collection */
}

static void remove_it(struct daytona_sandbox *s)
{
    int rc = -1;
    s->stage = STAGE_OVER;
    if (s->asked_for)
        rc = daytona_sandbox_ask_of(
            s, s->keep ? "POST" : "DELETE", s->keep ? "/stop" : "", daytona_sandbox_removed);
    if (rc < 0)
        daytona_sandbox_free(s);
}

void daytona_sandbox_end(void *own)
{
    struct daytona_sandbox *s = own;
    s->transport = NULL;
    s->ending = true;
    if (s->stage == STAGE_CREATE && s->request)
        return; /* wait until a pending creation has its answer */
    timer_stop(s->timer);
    rest_cancel(steal(&s->request));
    terminal_close(steal(&s->terminal));
    remove_it(s);
}

bool daytona_sandboxes_end(const struct daytona_account *account)
{
    const struct daytona_sandbox *s;
    LIST_FOREACH(s, &account->sandboxes, link)
    if (s->ending)
        return true;
    return false;
}

void daytona_sandbox_free(struct daytona_sandbox *s)
{
    LIST_REMOVE(s, link);
    rest_cancel(s->request);
    terminal_close(s->terminal);
    timer_free(s->timer);
    json_object_put(s->body);
    list_clear(&s->words);
    free(s->volume);
    free(s);
}
