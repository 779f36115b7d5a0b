/* serve/e2b/control.c: the control plane of a sandbox: describe, pause, resume and end it. */
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "serve/e2b/image.h"
#include "serve/http/relay.h"
#include "serve/native/templates.h"
#include "serve/sandbox/sandbox.h"

/* ---- one sandbox ---- */

void e2b_handle_get(struct request *r)
{
    struct e2b_sandbox *e = e2b_control_sandbox(r);
    struct json_object *o = e ? e2b_describe(e) : NULL;
    if (!e)
        return;
    if (o) {
        struct json_object *life = json_object_new_object();
        json_put_text(o, "envdAccessToken", e->token);
        json_put(o, "allowInternetAccess", json_object_new_boolean(!e->no_internet));
        if (e->network)
            json_put(o, "network", json_object_get(e->network));
        json_put_text(life, "onTimeout", e->auto_pause ? "pause" : "kill");
        json_put(life, "autoResume", json_object_new_boolean(e->auto_resume));
        json_put(o, "lifecycle", life);
    }
    request_reply_json(r, 200, o);
}

void e2b_handle_kill(struct request *r)
{
    struct e2b_sandbox *e = e2b_control_sandbox(r);
    if (!e)
        return;
    sandbox_close(e->sandbox);
    request_reply(r, 204, NULL, NULL, 0);
}

void e2b_handle_timeout(struct request *r)
{
    double seconds = 0;
    struct e2b_sandbox *e = e2b_control_sandbox(r);
    if (!e || !e2b_take_timeout(r, 0, &seconds))
        return;
    e->end_ns = clock_ns() + (uint64_t)(seconds * 1e9);
    request_reply(r, 204, NULL, NULL, 0);
}

static void control_extend(struct e2b_sandbox *e, double seconds)
{
    uint64_t end = clock_ns() + (uint64_t)(seconds * 1e9);
    if (end > e->end_ns || e->paused)
        e->end_ns = end;
}

void e2b_handle_refresh(struct request *r)
{
    struct e2b_sandbox *e = e2b_control_sandbox(r);
    if (!e)
        return;
    control_extend(e, (double)json_get_int(r->json, "duration", E2B_SECONDS_V1));
    request_reply(r, 204, NULL, NULL, 0);
}

void e2b_handle_connect(struct request *r)
{
    double seconds = 0;
    struct e2b_sandbox *e = e2b_control_sandbox(r);
    if (!e || !e2b_take_timeout(r, E2B_SECONDS_V2, &seconds))
        return;
    if (json_get_typed(r->json, "memory", json_type_boolean) &&
        !json_get_bool(r->json, "memory", true)) {
        request_refuse(r, 400, "unsupported", "memory: a sandbox cannot be rebooted here");
        return;
    }
    bool was_paused = e->paused;
    control_extend(e, seconds);
    e2b_sandbox_resume(e);
    request_reply_json(r, was_paused ? 201 : 200, e2b_describe_new(e));
}

void e2b_handle_resume(struct request *r)
{
    double seconds = 0;
    struct e2b_sandbox *e = e2b_control_sandbox(r);
    if (!e || !e2b_take_timeout(r, E2B_SECONDS_V1, &seconds))
        return;
    if (!e->paused) {
        request_refuse(r, 409, "running", "the sandbox is running already");
        return;
    }
    control_extend(e, seconds);
    e2b_sandbox_resume(e);
    request_reply_json(r, 201, e2b_describe_new(e));
}

static void control_on_pause_free(struct request *r)
{
    struct e2b_sandbox *e = r->state;
    if (e)
        e->pausing = NULL;
}

void e2b_handle_pause(struct request *r)
{
    struct e2b_sandbox *e = e2b_control_sandbox(r);
    if (!e)
        return;
    if (e->paused || e->pausing) {
        request_refuse(r, 409, "paused", "the sandbox is paused already");
        return;
    }
    if (!json_get_bool(r->json, "memory", true)) {
        request_refuse(
            r, 400, "unsupported", "memory: a sandbox cannot be paused without its memory here");
        return;
    }
    e->pausing = r;
    r->state = e;
    r->on_free = control_on_pause_free;
    e2b_sandbox_pause_for(e);
}

void e2b_handle_network(struct request *r)
{
    struct e2b_sandbox *e = e2b_control_sandbox(r);
    const char *refusal = e2b_network_refusal(r->json);
    cleanup_buf struct buf asked = { 0 };
    if (!e)
        return;
    if (refusal) {
        request_refuse(r, 400, "unsupported", "%s", refusal);
        return;
    }
    if (!e2b_network_settings(r, r->json, r->json, &asked))
        return;
    if (!e2b_network_holds(e, &asked)) {
        request_refuse(r, 400, "unsupported",
            "network: the destinations of a sandbox do not change here; create another one");
        return;
    }
    e->no_internet = !json_get_bool(r->json, "allow_internet_access", true);
    json_object_put(e->network);
    e->network = json_object_get(r->json);
    request_reply(r, 204, NULL, NULL, 0);
}

static void control_reply_alias(struct request *r, struct json_object *found)
{
    bool is_ours = e2b_template_is_builtin(r->name);
    if (json_length(found) > 0 || is_ours) {
        struct json_object *o = json_object_new_object();
        json_put_text(o, "templateID", r->name);
        json_put(o, "public", json_object_new_boolean(is_ours));
        request_reply_json(r, 200, o);
    } else {
        request_refuse(r, 404, "not_found", "there is no template '%s'", r->name);
    }
    json_object_put(found);
}

void e2b_handle_alias(struct request *r)
{
    struct json_object *own = json_object_new_array();
    if (templates_named(r, r->name) || e2b_image_named(r, r->name))
        json_object_array_add(own, json_object_new_string(r->name));
    relay_gather(r, "templates", own, control_reply_alias);
}

/* ---- health ---- */

void e2b_handle_envd_health(struct request *r)
{
    if (e2b_running_of(r))
        request_reply(r, 204, NULL, NULL, 0);
}

void e2b_handle_interpreter_health(struct request *r)
{
    if (e2b_running_of(r))
        request_reply(r, 200, "text/plain", "OK", 2);
}
