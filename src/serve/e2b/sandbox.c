/* serve/e2b/sandbox.c: the sandbox that a request of E2B's clients means, how it is described to
 * them, and refusals in E2B's form.
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "serve/e2b/connect.h"
#include "serve/sandbox/sandbox.h"

void e2b_put_time(struct json_object *o, const char *key, int64_t us)
{
    char text[64];
    struct tm tm;
    time_t seconds = (time_t)(us / 1000000);
    gmtime_r(&seconds, &tm);
    size_t n = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(text + n, sizeof text - n, ".%06dZ", (int)(us % 1000000));
    json_put_text(o, key, text);
}

int e2b_cpu_count(void)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}

struct json_object *e2b_describe_new(const struct e2b_sandbox *e)
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

static int64_t sandbox_end_us(const struct e2b_sandbox *e)
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
    e2b_put_time(o, "endAt", sandbox_end_us(e));
    json_put(o, "cpuCount", json_object_new_int(e2b_cpu_count()));
    json_put(o, "memoryMB", json_object_new_int64(e->memory_bytes >> 20));
    json_put(o, "diskSizeMB", json_object_new_int64(e->disk_bytes >> 20));
    json_put_text(o, "state", e->paused ? "paused" : "running");
    json_put_text(o, "envdVersion", E2B_ENVD_VERSION);
    json_put(o, "metadata", metadata ? json_object_get(metadata) : json_object_new_object());
    return o;
}

const char *e2b_home(const struct e2b_sandbox *e, const char *user)
{
    bool is_root = user && strcmp(user, "root") == 0;
    return !e->has_root ? "/tmp" : is_root ? "/root" : "/home/user";
}

void e2b_refuse(struct request *r, unsigned status, const char *sandbox, const char *text)
{
    struct json_object *o = json_object_new_object();
    if (!o || !json_put(o, "code", json_object_new_int((int)status)) ||
        !json_put_text(o, "message", text) ||
        (sandbox && !json_put_text(o, "sandboxId", sandbox))) {
        json_object_put(o);
        o = NULL;
    }
    request_reply_json(r, status, o);
    /* Newer clients repeat what they are not told to leave. */
    if (status >= 429 && (status != 429 || !MHD_get_response_header(r->reply, "Retry-After")))
        request_header(r, "Should-Retry", "false");
}

void e2b_refuse_gone(struct request *r)
{
    e2b_refuse(r, 502, r->id, "The sandbox was not found");
}

struct e2b_sandbox *e2b_running_of(struct request *r)
{
    struct sandbox *sb = sandbox_find(r->server, r->id);
    if (sb && sb->e2b && droste_session_is_alive(sb->session))
        return sb->e2b;
    e2b_refuse_gone(r);
    return NULL;
}

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

void e2b_user_of(struct request *r, char out[E2B_USER_SIZE])
{
    const char *query = request_parameter(r, "username");
    const char *basic = request_header_of(r, MHD_HTTP_HEADER_AUTHORIZATION);
    size_t len = 0;
    snprintf(out, E2B_USER_SIZE, "%s", query ? query : "");
    if (out[0] || !basic || strncasecmp(basic, "Basic ", 6) != 0)
        return;
    cleanup_free char *text = json_base64_bytes(basic + 6, strlen(basic + 6), &len);
    size_t n = text ? strnlen(text, len) : 0;
    const char *colon = text ? memchr(text, ':', n) : NULL;
    n = colon ? (size_t)(colon - text) : n;
    snprintf(out, E2B_USER_SIZE, "%.*s", (int)n, text ? text : "");
}
