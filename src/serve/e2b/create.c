/* serve/e2b/create.c: creates sandboxes from templates and snapshots, and forks one by one from an
 * image that was made for them.
 */
#include "serve/e2b/create.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/os/random.h"
#include "base/text.h"
#include "serve/e2b/connect.h"
#include "serve/e2b/contexts.h"
#include "serve/e2b/image.h"
#include "serve/http/relay.h"
#include "serve/native/templates.h"
#include "serve/options.h"

static void create_on_feature(void *arg, const droste_feature *feature)
{
    if (strcmp(feature->name, "private root") == 0 && feature->supported)
        *(bool *)arg = true;
}

/* Whether sandboxes can have a writable root directory, as E2B's have. */
static bool create_has_root(struct server *s)
{
    const char *level = droste_get(s->d, "isolation");
    bool has = false;
    if (level && strcmp(level, "auto") != 0 && strcmp(level, "full") != 0 &&
        strcmp(level, "light") != 0)
        return false;
    return droste_environment_features(s->d, NULL, create_on_feature, &has, NULL) == 0 && has;
}

static bool create_is_set(struct server *s, const char *name, const char *value)
{
    const char *set = droste_get(s->d, name);
    return set && strcmp(set, value) == 0;
}

/* Whether sandboxes may use epoll, which Node needs. The kernel counts its watches by user, so each
 * sandbox must be one of its own, unless the operator decides otherwise. */
static bool create_has_epoll(struct server *s)
{
    const char *set = droste_get(s->d, "epoll"), *env = droste_get(s->d, "env");
    if (set || (env && strcmp(env, "local") != 0))
        return !set || strcmp(set, "yes") == 0;
    return geteuid() == 0 &&
           (access("/usr/bin/node", X_OK) == 0 || access("/usr/local/bin/node", X_OK) == 0);
}

static bool create_is_empty(struct json_object *o)
{
    return !o || json_length(o) == 0;
}

/* What create may ask for and does not get; NULL: nothing. */
static const char *create_refusal(struct json_object *o)
{
    struct json_object *mcp = json_get_typed(o, "mcp", json_type_object);
    if (mcp)
        return "mcp: there is no MCP gateway in sandboxes here";
    if (json_get_typed(o, "iam", json_type_object))
        return "iam: sandboxes here have no identity";
    if (!create_is_empty(json_get_typed(o, "volumeMounts", json_type_array)))
        return "volumeMounts: volumes of E2B's API are not supported here";
    if (json_get_typed(o, "autoPauseMemory", json_type_boolean) &&
        !json_get_bool(o, "autoPauseMemory", true))
        return "autoPauseMemory: a paused sandbox keeps its memory here";
    return e2b_network_refusal(json_get_typed(o, "network", json_type_object));
}

static const struct sandbox_maker create_fork;

/* NULL: the request is for no forks. */
static struct e2b_snapshot *fork_of(const struct request *r)
{
    return r->maker == &create_fork ? (struct e2b_snapshot *)r->state : NULL;
}

/* The image that a request to create starts from; NULL: it names none that this worker has. */
static struct e2b_image *create_image_of(struct request *r)
{
    struct e2b_snapshot *s = fork_of(r);
    return s ? s->image : e2b_image_named(r, json_get_string(r->json, "templateID", ""));
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
static int64_t create_now_us(struct server *s)
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
    e2b_log_free(&e->log);
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
    const struct e2b_image *image = r->maker->from ? create_image_of(r) : NULL;
    bool closed = network && !json_get_bool(network, "allowPublicTraffic", true);
    if (!e) {
        request_refuse_memory(r);
        return false;
    }
    e->sandbox = sb;
    e->has_root = e->has_loopback = create_has_root(r->server);
    e->has_epoll = create_has_epoll(r->server);
    e->asked = json_object_get(r->json);
    if (!image && r->maker->from) { /* a template has those of the server's settings */
        e->has_root = e->has_root && create_is_set(r->server, "root", "private");
        e->has_loopback = e->has_loopback && create_is_set(r->server, "loopback", "yes");
        e->has_epoll = e->has_epoll && create_is_set(r->server, "epoll", "yes");
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

/* ---- forks ---- */

static void fork_next(struct e2b_snapshot *s)
{
    struct request *r = s->r;
    if (json_length(s->answers) < s->count)
        sandbox_create(r, &create_fork);
    else
        request_reply_json(r, 201, json_object_get(s->answers));
}

/* Adds the description, which is taken, to the answer for forks. False: the request is for none. */
static bool fork_add(struct request *r, struct json_object *described)
{
    struct e2b_snapshot *s = fork_of(r);
    struct json_object *o = s ? json_object_new_object() : NULL;
    if (!s)
        return false;
    json_put(o, "sandbox", described);
    json_object_array_add(s->answers, o);
    admission_settle(&r->admission);
    fork_next(s);
    return true;
}

bool e2b_fork_refuse(struct request *r, unsigned status, const char *text)
{
    struct e2b_snapshot *s = fork_of(r);
    while (s && json_length(s->answers) < s->count) {
        struct json_object *o = json_object_new_object(), *why = json_object_new_object();
        json_put(why, "code", json_object_new_int((int)status));
        json_put_text(why, "message", text);
        json_put(o, "error", why);
        json_object_array_add(s->answers, o);
    }
    if (s)
        fork_next(s);
    return s != NULL;
}

/* The forks are created as their sandbox was, with another deadline. */
void e2b_forks_begin(struct e2b_snapshot *s, struct e2b_sandbox *e)
{
    struct request *r = s->r;
    struct json_object *asked = json_object_new_object();
    int64_t seconds = json_get_int(r->json, "timeout", E2B_FORK_SECONDS);
    json_object_object_foreach(e->asked, name, value)
    {
        json_put(asked, name, json_object_get(value));
    }
    json_put(asked, "timeout", json_object_new_int64(seconds));
    if (e->environment)
        json_put(asked, "envVars", json_object_get(e->environment));
    json_object_put(r->json);
    r->json = asked;
    fork_next(s);
}

/* ---- the steps ---- */

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
    if (!e2b_take_timeout(r, v2 ? E2B_SECONDS_V2 : E2B_SECONDS_V1, &seconds))
        return; /* checked before; the sandbox ends with its idle time */
    e->end_ns = clock_ns() + (uint64_t)(seconds * 1e9);
    e->ready = true;
    e2b_log(e, E2B_INFO, "sandbox_start",
        (const struct e2b_field[]){ { "template", e->template }, { 0 } }, "Sandbox %s started",
        e->sandbox->id);
    struct json_object *described = e2b_describe_new(e);
    if (!fork_add(r, described))
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
    e->started_us = create_now_us(r->server);
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
    bool is_plain = !r->maker->from || create_image_of(r);
    if (is_plain && create_has_root(r->server)) {
        sandbox_setting(words, "root", "private");
        sandbox_setting(words, "loopback", "yes");
    }
    if (is_plain && create_has_epoll(r->server))
        sandbox_setting(words, "epoll", "yes");
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
    const struct e2b_image *image = create_image_of(r);
    droste_template *found = image ? image->made : templates_named(r, name);
    if (!found)
        request_refuse(r, 404, "not_found", "template '%.64s' not found: it was removed", name);
    return found;
}

static const struct sandbox_maker create_plain = { e2b_create_settings, e2b_create_prepare,
    e2b_create_ready };
static const struct sandbox_maker create_from = { e2b_create_settings, e2b_create_prepare,
    e2b_create_ready, e2b_create_from };
static const struct sandbox_maker create_fork = { e2b_create_settings, e2b_create_prepare,
    e2b_create_ready, e2b_create_from };

void e2b_handle_create(struct request *r)
{
    const char *template = json_get_string(r->json, "templateID", "");
    const struct sandbox_maker *maker =
        e2b_template_is_builtin(template) ? &create_plain : &create_from;
    const char *refusal = create_refusal(r->json);
    double seconds = 0;
    if (refusal) {
        request_refuse(r, 400, "unsupported", "%s", refusal);
        return;
    }
    if (maker->from && !create_image_of(r) && !templates_named(r, template)) {
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
