/* serve/sandbox/sandbox.c: the sandboxes of a server, by id; what ends them, and who waits for
 * them. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/json/fields.h"
#include "serve/sandbox/calls.h"
#include "serve/sandbox/sandbox.h"

/* Ids are random, so that no client can choose many with the same hash. */
static struct sandbox **sandbox_bucket(struct server *s, const char *id)
{
    return &s->by_id[hash_word(HASH_WORD, id) % SERVE_ID_BUCKETS];
}

struct sandbox *sandbox_find(struct server *s, const char *id)
{
    struct sandbox *sb = *sandbox_bucket(s, id);
    while (sb && strcmp(sb->id, id) != 0)
        sb = sb->next_by_id;
    return sb;
}

static void sandbox_enter(struct server *s, struct sandbox *sb)
{
    struct sandbox **bucket = sandbox_bucket(s, sb->id);
    sb->next_by_id = *bucket;
    *bucket = sb;
    sb->next = s->sandboxes;
    sb->link = &s->sandboxes;
    if (sb->next)
        sb->next->link = &sb->next;
    s->sandboxes = sb;
    s->sandbox_count++;
}

static void sandbox_leave(struct server *s, struct sandbox *sb)
{
    struct sandbox **at = sandbox_bucket(s, sb->id);
    while (*at != sb)
        at = &(*at)->next_by_id;
    *at = sb->next_by_id;
    *sb->link = sb->next;
    if (sb->next)
        sb->next->link = sb->link;
    s->sandbox_count--;
}

/* A session that is lost can go back to a checkpoint. */
static bool sandbox_is_lost(const struct sandbox *sb)
{
    return !sb->done && !droste_session_is_alive(sb->session) &&
           droste_session_checkpoints(sb->session, NULL, 0) == 0;
}

/* Remembers why a session was lost, for its client's next request. */
static void sandbox_note_end(const struct sandbox *sb)
{
    struct server *s = sb->server;
    struct sandbox_end *end = &s->ends[s->end_count++ % SERVE_ENDS];
    droste_error err = { .code = DROSTE_ERROR_LOST, .text = "the sandbox has ended" };
    (void)droste_session_exec_start(sb->session, "", 0, 0, -1, &err); /* says why it cannot */
    memcpy(end->id, sb->id, sizeof end->id);
    memcpy(end->key, sb->owner->key.id, sizeof end->key);
    end->code = err.code;
    snprintf(end->text, sizeof end->text, "%.*s", (int)sizeof end->text - 1, err.text);
}

/* Refuses a request for a sandbox that is not there. */
static void sandbox_refuse_absent(struct request *r)
{
    const struct server *s = r->server;
    for (size_t i = 0; i < SERVE_ENDS && i < s->end_count; i++) {
        const struct sandbox_end *end = &s->ends[(s->end_count - 1 - i) % SERVE_ENDS];
        bool is_own =
            strcmp(end->key, r->account->key.id) == 0 || (r->account->key.scopes & SCOPE_ADMIN);
        if (strcmp(end->id, r->id) == 0 && is_own) {
            request_refuse(r, 410, droste_error_name(end->code), "%s", end->text);
            return;
        }
    }
    request_refuse(r, 404, "not_found", "there is no sandbox '%s'; it may have ended", r->id);
}

bool sandbox_is_visible(const struct sandbox *sb, const struct account *account)
{
    return sb->owner == account || (account->key.scopes & SCOPE_ADMIN);
}

struct sandbox *sandbox_of(struct request *r)
{
    struct sandbox *sb = sandbox_find(r->server, r->id);
    if (sb && !sandbox_is_visible(sb, r->account))
        sb = NULL;
    if (sb && sandbox_is_lost(sb)) {
        sandbox_note_end(sb);
        sandbox_close(sb);
        sb = NULL;
    }
    if (!sb)
        sandbox_refuse_absent(r);
    else
        sb->used_ns = clock_ns();
    return sb;
}

struct sandbox *sandbox_idle_of(struct request *r)
{
    struct sandbox *sb = sandbox_of(r);
    if (!sb || !sb->done)
        return sb;
    request_refuse(r, 409, "busy", "the sandbox is executing; wait for it, or POST …/interrupt");
    return NULL;
}

/* The code of a client that has gone has no reader. The session continues. */
static void sandbox_on_gone(struct request *r)
{
    struct sandbox *sb = r->sandbox;
    r->sandbox = NULL;
    if (!sb)
        return;
    sb->request = NULL;
    droste_session_interrupt(sb->session);
}

static void sandbox_on_done(
    void *arg, droste_session *session, droste_result *result, const droste_error *err)
{
    struct sandbox *sb = arg;
    struct server *s = sb->server;
    struct request *r = sb->request;
    sandbox_done_fn *done = sb->done;
    char id[SERVE_ID_SIZE] = "";
    if (sb->hooks && sb->hooks->idle)
        memcpy(id, sb->id, sizeof id);
    sb->server->figures->gauges[GAUGE_EXECUTING] -= done != NULL;
    sb->done = NULL;
    sb->request = NULL;
    sb->used_ns = clock_ns();
    if (r) {
        r->sandbox = NULL;
        if (!r->streaming)
            r->on_gone = NULL;
    }
    if (done)
        done(sb, r, result, err);
    droste_result_free(result);
    sb = id[0] ? sandbox_find(s, id) : NULL; /* `done` may have closed it */
    if (sb && sb->hooks && !sb->done)
        sb->hooks->idle(sb);
}

void sandbox_begin(struct sandbox *sb, struct request *r, sandbox_done_fn *done)
{
    sb->server->figures->gauges[GAUGE_EXECUTING]++;
    sb->began_ns = sb->used_ns = clock_ns();
    sb->done = done;
    sb->request = r;
}

void sandbox_await(
    struct sandbox *sb, struct request *r, int rc, const droste_error *err, sandbox_done_fn *done)
{
    if (rc < 0) {
        request_fail(r, err);
        return;
    }
    sandbox_begin(sb, r, done);
    r->sandbox = sb;
    r->on_gone = sandbox_on_gone;
}

void cell_begin(struct trace_step *cell, const struct sandbox *sb, droste_session *session,
    const struct request *r, const char *language)
{
    char field[TRACEPARENT_SIZE];
    trace_step_begin(cell, sb, r, language);
    droste_session_trace(session, trace_field(&cell->span, field) ? field : NULL);
}

void cell_end(struct trace_step *cell, const droste_result *result)
{
    if (cell->began_ns == 0)
        return;
    table_count(cell->server->figures, COUNT_CELLS, 1);
    table_time(cell->server->figures, TIME_CELL, clock_ns() - cell->began_ns);
    trace_cell_end(cell, result ? droste_result_status(result) : "lost");
    cell->began_ns = 0;
}

/* Counts a sandbox of the owner, which takes the place, if that is the owner's. */
static void sandbox_count(struct server *s, struct admission *place, struct account *owner)
{
    static const struct key_limits none;
    double wait;
    if (place && place->has_place && place->account == owner)
        place->has_place = false;
    else
        table_reserve(s->table, s->worker, owner->index, &none, SIZE_MAX, clock_ns(), &wait);
    owner->row->created++;
}

struct sandbox *sandbox_add(
    struct server *s, struct admission *place, struct account *owner, droste_session *session)
{
    struct sandbox *sb = calloc(1, sizeof *sb);
    if (!sb || server_make_id(s, sb->id) < 0) {
        free(sb);
        droste_session_close(session);
        return NULL;
    }
    sb->server = s;
    sb->owner = owner;
    sb->session = session;
    sb->created_ms = clock_wall_ms();
    sb->created_ns = sb->used_ns = clock_ns();
    sb->life_seconds = s->options->life_seconds;
    sb->idle_seconds = s->options->idle_seconds;
    sandbox_enter(s, sb);
    sandbox_count(s, place, owner);
    droste_session_on_done(session, sandbox_on_done, sb);
    return sb;
}

void sandbox_close(struct sandbox *sb)
{
    struct server *s = sb->server;
    sandbox_leave(s, sb);
    table_release(s->table, s->worker, sb->owner->index);
    s->has_released = true;
    table_count(s->figures, COUNT_ENDED, 1);
    s->figures->gauges[GAUGE_EXECUTING] -= sb->done != NULL;
    cell_end(&sb->cell, NULL);
    struct request *r = sb->request;
    if (r) {
        r->sandbox = NULL;
        r->on_gone = NULL;
        if (r->streaming)
            request_cut(r);
        else
            request_refuse(r, 410, "closed", "the sandbox was closed meanwhile");
    }
    if (sb->hooks && sb->hooks->close)
        sb->hooks->close(sb);
    if (sb->build)
        sb->drop_build(sb);
    sb->listener = NULL;
    calls_close(sb);
    droste_session_on_output(sb->session, NULL, NULL);
    droste_session_on_display(sb->session, NULL, NULL);
    droste_session_on_done(sb->session, NULL, NULL);
    if (sb->forked)
        droste_session_close(sb->forked);
    droste_session_close(sb->session); /* answers the requests for files, too */
    json_object_put(sb->metadata);
    free(sb);
}

static bool sandbox_has_ended(struct sandbox *sb, uint64_t now)
{
    bool working = sb->done || sb->transfers > 0;
    double life = (double)(now - sb->created_ns) / 1e9, idle = (double)(now - sb->used_ns) / 1e9;
    return sb->owner->is_revoked || (!sb->maker && life > sb->life_seconds) ||
           (!working && idle > sb->idle_seconds) || (!working && sandbox_is_lost(sb)) ||
           (sb->hooks && sb->hooks->is_over && sb->hooks->is_over(sb, now));
}

void sandboxes_sweep(struct server *s, uint64_t now_ns)
{
    struct sandbox *next;
    for (struct sandbox *sb = s->sandboxes; sb; sb = next) {
        next = sb->next;
        if (sandbox_has_ended(sb, now_ns)) {
            if (sandbox_is_lost(sb))
                sandbox_note_end(sb);
            sandbox_close(sb);
        }
    }
}

void sandbox_put(struct buf *out, const struct sandbox *sb)
{
    double idle = sb->done ? 0 : clock_seconds_since(sb->used_ns);
    field_open(out, NULL, '{');
    field_string(out, "id", sb->id);
    field_string(out, "state", sb->done ? "executing" : "idle");
    field_bool(out, "alive", droste_session_is_alive(sb->session));
    field_int(out, "created_ms", sb->created_ms);
    field_number(out, "age_seconds", clock_seconds_since(sb->created_ns));
    field_number(out, "unused_seconds", idle);
    field_number(out, "life_seconds", sb->life_seconds);
    field_number(out, "idle_seconds", sb->idle_seconds);
    field_string(out, "isolation", droste_session_isolation(sb->session));
    field_json(out, "metadata", sb->metadata ? json_text(sb->metadata, NULL) : "{}");
    field_close(out, '}');
}
