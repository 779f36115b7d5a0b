/* serve/e2b/control.c: the control plane: create, describe, list and end sandboxes. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/os/random.h"
#include "base/text.h"
#include "serve/e2b/connect.h"
#include "serve/e2b/snapshot.h"
#include "serve/http/relay.h"
#include "serve/native/templates.h"
#include "serve/sandbox/sandbox.h"
#include "serve/options.h"

/* What the first version of the interface gives to sandboxes without a timeout, and the second. */
enum { CONTROL_SECONDS_V1 = 15, CONTROL_SECONDS_V2 = 300 };

/* The templates that E2B's clients ask for by these names: a sandbox of the server. */
static const char *const control_templates[] = { "base", "code-interpreter-v1" };

bool e2b_template_is_builtin(const char *name)
{
    for (size_t i = 0; i < array_length(control_templates); i++)
        if (strcmp(control_templates[i], name) == 0)
            return true;
    return false;
}

/* ---- descriptions ---- */

int e2b_cpu_count(void)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}

/* The answer to create, connect and resume. */
static struct json_object *control_describe_new(const struct e2b_sandbox *e)
{
    struct json_object *o = json_object_new_object();
    if (o && json_put_text(o, "templateID", e->template) &&
        json_put_text(o, "sandboxID", e->sandbox->id) && json_put_text(o, "clientID", "droste") &&
        json_put_text(o, "envdVersion", E2B_ENVD_VERSION) &&
        json_put_text(o, "alias", e->template) && json_put_text(o, "envdAccessToken", e->token) &&
        (e->traffic_token[0] == '\0' || json_put_text(o, "trafficAccessToken", e->traffic_token)))
        return o;
    json_object_put(o);
    return NULL;
}

static int64_t control_end_us(const struct e2b_sandbox *e)
{
    return e->started_us + ((int64_t)e->end_ns - (int64_t)e->sandbox->created_ns) / 1000;
}

struct json_object *e2b_describe(const struct e2b_sandbox *e)
{
    struct json_object *o = json_object_new_object(), *metadata = e->sandbox->metadata;
    if (!o)
        return NULL;
    json_put_text(o, "templateID", e->template);
    json_put_text(o, "alias", e->template);
    json_put_text(o, "sandboxID", e->sandbox->id);
    json_put_text(o, "clientID", "droste");
    e2b_put_time(o, "startedAt", e->started_us);
    e2b_put_time(o, "endAt", control_end_us(e));
    json_put(o, "cpuCount", json_object_new_int(e2b_cpu_count()));
    json_put(o, "memoryMB", json_object_new_int64(e->memory_bytes >> 20));
    json_put(o, "diskSizeMB", json_object_new_int64(e->disk_bytes >> 20));
    json_put_text(o, "state", e->paused ? "paused" : "running");
    json_put_text(o, "envdVersion", E2B_ENVD_VERSION);
    json_put(o, "metadata", metadata ? json_object_get(metadata) : json_object_new_object());
    return o;
}

/* ---- create ---- */

static void control_on_feature(void *arg, const droste_feature *feature)
{
    if (strcmp(feature->name, "private root") == 0 && feature->supported)
        *(bool *)arg = true;
}

/* Whether sandboxes can have a writable root directory, as E2B's have. */
static bool control_has_root(struct server *s)
{
    const char *level = droste_get(s->d, "isolation");
    bool has = false;
    if (level && strcmp(level, "auto") != 0 && strcmp(level, "full") != 0 &&
        strcmp(level, "light") != 0)
        return false;
    return droste_environment_features(s->d, NULL, control_on_feature, &has, NULL) == 0 && has;
}

static bool control_is_set(struct server *s, const char *name, const char *value)
{
    const char *set = droste_get(s->d, name);
    return set && strcmp(set, value) == 0;
}

static bool control_is_empty(struct json_object *o)
{
    return !o || json_length(o) == 0;
}

/* Networks that no sandbox here can have. NULL: it is none of them. */
static const char *control_network_refusal(struct json_object *network)
{
    if (json_get_typed(network, "egressProxy", json_type_object))
        return "network.egressProxy: sandboxes here have a proxy of the server";
    if (json_get_typed(network, "rules", json_type_object) &&
        json_object_object_length(json_get_typed(network, "rules", json_type_object)) > 0)
        return "network.rules: requests of sandboxes here are not changed";
    for (const char *p = json_get_string(network, "maskRequestHost", ""); *p; p++)
        if (*p <= ' ' || *p > '~')
            return "network.maskRequestHost: a host has visible ASCII characters only";
    return NULL;
}

/* What create may ask for and does not get; NULL: nothing. */
static const char *control_create_refusal(struct json_object *o)
{
    struct json_object *mcp = json_get_typed(o, "mcp", json_type_object);
    if (mcp)
        return "mcp: there is no MCP gateway in sandboxes here";
    if (json_get_typed(o, "iam", json_type_object))
        return "iam: sandboxes here have no identity";
    if (!control_is_empty(json_get_typed(o, "volumeMounts", json_type_array)))
        return "volumeMounts: volumes of E2B's API are not supported here";
    if (json_get_typed(o, "autoPauseMemory", json_type_boolean) &&
        !json_get_bool(o, "autoPauseMemory", true))
        return "autoPauseMemory: a paused sandbox keeps its memory here";
    return control_network_refusal(json_get_typed(o, "network", json_type_object));
}

bool e2b_take_timeout(struct request *r, int64_t fallback, double *out)
{
    double most = r->server->options->life_seconds;
    double seconds = (double)json_get_int(r->json, "timeout", fallback);
    *out = seconds;
    if (seconds <= most)
        return true;
    request_refuse(r, 400, "argument",
        "Timeout cannot be greater than %.0f seconds, the longest life of a sandbox here", most);
    return false;
}

/* The variables of a sandbox: those of its image, and what is asked for besides. */
static struct json_object *create_take_variables(
    const struct e2b_image *image, struct json_object *asked)
{
    struct json_object *all = image ? json_object_new_object() : NULL;
    if (!all)
        return json_object_get(asked);
    struct json_object *const from[] = { image->environment, asked };
    for (size_t i = 0; i < array_length(from); i++)
        if (from[i]) {
            json_object_object_foreach(from[i], name, value)
            {
                json_put(all, name, json_object_get(value));
            }
        }
    return all;
}

static bool create_take_token(char out[E2B_TOKEN_SIZE])
{
    return random_hex(out, E2B_TOKEN_SIZE - 1, NULL) == 0;
}

/* A time that no other sandbox of this server, of any worker, has. */
static int64_t control_now_us(struct server *s)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    int64_t us = (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000, workers = s->table->workers;
    for (struct sandbox *sb = s->sandboxes; sb; sb = sb->next)
        if (sb->e2b && sb->e2b->started_us >= us)
            us = sb->e2b->started_us + 1;
    return us + (s->worker + workers - us % workers) % workers;
}

/* Ends the streams of a closed sandbox, too. */
static void e2b_sandbox_close(struct sandbox *sb)
{
    struct e2b_sandbox *e = sb->e2b;
    if (e->pausing) {
        e->pausing->state = NULL;
        request_refuse(e->pausing, 404, "not_found", "the sandbox has ended");
    }
    e2b_contexts_free(e);
    e2b_watchers_free(e);
    while (e->streams)
        connect_end(e->streams, "unavailable", "The sandbox was killed or reached its end of life");
    json_object_put(e->network);
    buf_free(&e->destinations);
    json_object_put(e->environment);
    json_object_put(e->asked);
    free(e->metrics);
    free(e->template);
    free(e);
}

/* At its deadline a sandbox may be paused instead. */
static bool e2b_sandbox_is_over(struct sandbox *sb, uint64_t now_ns)
{
    struct e2b_sandbox *e = sb->e2b;
    if (!e->ready)
        return false;
    if (e->pausing)
        e2b_sandbox_pause_for(e);
    if (!e->paused && now_ns >= e->end_ns) {
        if (!e->auto_pause)
            return true;
        e2b_sandbox_pause(e, NULL); /* or at the next sweep */
    }
    e2b_contexts_sweep(e, now_ns);
    connect_sweep(e, now_ns);
    e2b_watchers_sweep(e, now_ns);
    return false;
}

static const struct sandbox_hooks e2b_sandbox_hooks = { .is_over = e2b_sandbox_is_over,
    .close = e2b_sandbox_close };

static bool e2b_create_prepare(struct sandbox *sb, struct request *r)
{
    struct e2b_sandbox *e = calloc(1, sizeof *e);
    struct json_object *network = json_get_typed(r->json, "network", json_type_object);
    const struct e2b_image *image = r->maker->from ? e2b_image_of(r) : NULL;
    bool closed = network && !json_get_bool(network, "allowPublicTraffic", true);
    if (!e) {
        request_refuse_memory(r);
        return false;
    }
    e->sandbox = sb;
    e->started_us = control_now_us(r->server);
    e->has_root = e->has_loopback = control_has_root(r->server);
    e->asked = json_object_get(r->json);
    if (!image && r->maker->from) { /* a template has those of the server's settings */
        e->has_root = e->has_root && control_is_set(r->server, "root", "private");
        e->has_loopback = e->has_loopback && control_is_set(r->server, "loopback", "yes");
    }
    e->has_files = image != NULL;
    e->template = strdup(json_get_string(r->json, "templateID", ""));
    e->network = json_object_get(network);
    e->environment =
        create_take_variables(image, json_get_typed(r->json, "envVars", json_type_object));
    e->has_interpreter =
        image ? image->has_interpreter
              : strcmp(json_get_string(r->json, "templateID", ""), "code-interpreter-v1") == 0;
    e->auto_pause = json_get_bool(r->json, "autoPause", false);
    e->auto_resume =
        json_get_bool(json_get_typed(r->json, "autoResume", json_type_object), "enabled", false);
    e->no_internet = !json_get_bool(r->json, "allow_internet_access", true);
    sb->e2b = e;
    sb->hooks = &e2b_sandbox_hooks;
    if (!e2b_network_settings(r, r->json, network, &e->destinations))
        return false;
    sb->metadata = json_object_get(json_get_typed(r->json, "metadata", json_type_object));
    sb->idle_seconds =
        sb->life_seconds; /* use does not extend a deadline, nor does idling end it */
    if (e->template && create_take_token(e->token) &&
        (!closed || create_take_token(e->traffic_token)))
        return true;
    request_refuse_memory(r);
    return false;
}

/* The limits of a new sandbox stand in the result of its first cell. */
static void create_take_limits(struct e2b_sandbox *e, droste_result *result)
{
    size_t len = 0;
    const char *text = droste_result_json(result, &len);
    cleanup_json struct json_object *o = NULL;
    if (!text || json_parse(text, len, &json_limits_large, &o, NULL) < 0)
        return;
    struct json_object *resources = json_get_typed(o, "resources", json_type_object);
    struct json_object *limits = json_get_typed(resources, "limits", json_type_object);
    e->memory_bytes = json_get_int(json_get_typed(limits, "memory", json_type_object), "value", 0);
    e->disk_bytes = json_get_int(json_get_typed(limits, "tmp-size", json_type_object), "value", 0);
}

static void create_finish(struct e2b_sandbox *e, struct request *r)
{
    bool v2 = strncmp(r->route->path, "/v2/", 4) == 0;
    double seconds = 0;
    if (!e2b_take_timeout(r, v2 ? CONTROL_SECONDS_V2 : CONTROL_SECONDS_V1, &seconds))
        return; /* checked before; the sandbox ends with its idle time */
    e->end_ns = clock_ns() + (uint64_t)(seconds * 1e9);
    e->ready = true;
    struct json_object *described = control_describe_new(e);
    if (!e2b_fork_add(r, described))
        request_reply_json(r, 201, described);
    e2b_contexts_warm(e);
}

static void create_on_unpacked(
    struct sandbox *sb, struct request *r, droste_result *result, const droste_error *err)
{
    bool ok = !err && result && strcmp(droste_result_status(result), "ok") == 0;
    const char *why = result ? droste_result_message(result) : NULL;
    if (ok && r) {
        create_finish(sb->e2b, r);
        return;
    }
    if (r && err)
        request_fail(r, err);
    else if (r)
        request_refuse(r, 400, "snapshot", "the snapshot cannot be unpacked in a new sandbox: %s",
            why ? why : "its session ended");
    sandbox_close(sb);
}

/* The memory of a template has the variables that its session had. */
static void e2b_create_ready(struct sandbox *sb, struct request *r, droste_result *result)
{
    struct e2b_sandbox *e = sb->e2b;
    droste_error err;
    create_take_limits(e, result);
    if (!r->maker->from || (!e->has_files && !e->environment)) {
        create_finish(e, r);
        return;
    }
    int rc = e2b_image_unpack(e, e->has_files, &err);
    sandbox_await(sb, r, rc, &err, create_on_unpacked);
    if (rc < 0)
        sandbox_close(sb);
}

/* The settings of the session: the variables and the network. */
static bool e2b_create_settings(struct request *r, struct buf *words)
{
    struct json_object *env = json_get_typed(r->json, "envVars", json_type_object);
    if ((!r->maker->from || e2b_image_of(r)) && control_has_root(r->server)) {
        sandbox_setting(words, "root", "private");
        sandbox_setting(words, "loopback", "yes");
    }
    if (!e2b_network_settings(
            r, r->json, json_get_typed(r->json, "network", json_type_object), words))
        return false;
    if (!env)
        return true;
    json_object_object_foreach(env, name, value)
    {
        cleanup_free char *text = text_printf("%s=%s", name, json_object_get_string(value));
        sandbox_setting(words, "env-var", text ? text : "");
    }
    return true;
}

/* The template may have been removed while the request waited for its turn. */
static droste_template *e2b_create_from(struct request *r)
{
    const char *name = json_get_string(r->json, "templateID", "");
    const struct e2b_image *image = e2b_image_of(r);
    droste_template *found = image ? image->made : templates_named(r, name);
    if (!found)
        request_refuse(r, 404, "not_found", "template '%.64s' not found: it was removed", name);
    return found;
}

static const struct sandbox_maker create_plain = { e2b_create_settings, e2b_create_prepare,
    e2b_create_ready },
                                  create_from = { e2b_create_settings, e2b_create_prepare,
                                      e2b_create_ready, e2b_create_from };

void e2b_create_from_image(struct request *r)
{
    sandbox_create(r, &create_from);
}

void e2b_handle_create(struct request *r)
{
    const char *template = json_get_string(r->json, "templateID", "");
    const struct sandbox_maker *maker =
        e2b_template_is_builtin(template) ? &create_plain : &create_from;
    const char *refusal = control_create_refusal(r->json);
    double seconds = 0;
    if (refusal) {
        request_refuse(r, 400, "unsupported", "%s", refusal);
        return;
    }
    if (maker->from && !e2b_image_of(r) && !templates_named(r, template)) {
        if (!relay_on(r))
            request_refuse(r, 404, "not_found",
                "template '%.64s' not found: there are 'base' and 'code-interpreter-v1' here, snapshots, "
                "and what POST /v1/templates has made",
                template);
        return;
    }
    if (e2b_take_timeout(r, 0, &seconds))
        sandbox_create(r, maker);
}

/* ---- one sandbox ---- */

struct e2b_sandbox *e2b_control_sandbox(struct request *r)
{
    struct sandbox *sb = sandbox_of(r);
    if (!sb)
        return NULL;
    if (sb->e2b && sb->e2b->ready)
        return sb->e2b;
    request_refuse(r, 404, "not_found", "there is no sandbox '%s'; it may have ended", r->id);
    return NULL;
}

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
    control_extend(e, (double)json_get_int(r->json, "duration", CONTROL_SECONDS_V1));
    request_reply(r, 204, NULL, NULL, 0);
}

void e2b_handle_connect(struct request *r)
{
    double seconds = 0;
    struct e2b_sandbox *e = e2b_control_sandbox(r);
    if (!e || !e2b_take_timeout(r, CONTROL_SECONDS_V2, &seconds))
        return;
    if (json_get_typed(r->json, "memory", json_type_boolean) &&
        !json_get_bool(r->json, "memory", true)) {
        request_refuse(r, 400, "unsupported", "memory: a sandbox cannot be rebooted here");
        return;
    }
    bool was_paused = e->paused;
    control_extend(e, seconds);
    e2b_sandbox_resume(e);
    request_reply_json(r, was_paused ? 201 : 200, control_describe_new(e));
}

void e2b_handle_resume(struct request *r)
{
    double seconds = 0;
    struct e2b_sandbox *e = e2b_control_sandbox(r);
    if (!e || !e2b_take_timeout(r, CONTROL_SECONDS_V1, &seconds))
        return;
    if (!e->paused) {
        request_refuse(r, 409, "running", "the sandbox is running already");
        return;
    }
    control_extend(e, seconds);
    e2b_sandbox_resume(e);
    request_reply_json(r, 201, control_describe_new(e));
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
    const char *refusal = control_network_refusal(r->json);
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

/* There is no log beside what commands and cells give their clients. */
void e2b_handle_logs(struct request *r)
{
    static const char none[] = "{\"logs\":[]}", none_v1[] = "{\"logs\":[],\"logEntries\":[]}";
    bool v2 = strncmp(r->route->path, "/v2/", 4) == 0;
    if (!e2b_control_sandbox(r))
        return;
    request_reply(
        r, 200, "application/json", v2 ? none : none_v1, v2 ? sizeof none - 1 : sizeof none_v1 - 1);
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
