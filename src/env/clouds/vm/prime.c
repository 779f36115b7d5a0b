/* env/clouds/vm/prime.c: Prime's requests and answers; vm.c has the state machine.
 *
 * A machine is created by one request with an idempotency key. The service inside is behind a
 * gateway, with a token that expires and is renewed. Prime's container sandboxes have no process
 * streams and are rejected with an error.
 */

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/json/fields.h"
#include "base/text.h"
#include "env/common/owner_labels.h"
#include "env/clouds/vm/provider.h"
#include "net/url.h"

#define ADDRESS "https://api.primeintellect.ai"
#define API     "/api/v1/sandbox"

enum {
    LIFE_SECONDS = 3600,
    LIFE_MOST = 24 * 3600,
    IDLE_SECONDS = 900,
    LISTED = 100,
};

enum { TEAM }; /* of the provider's settings */

/* ---- requests ---- */

static int64_t in_minutes(double seconds)
{
    return (int64_t)ceil(seconds / 60);
}

static int64_t in_gib(uint64_t bytes)
{
    return (int64_t)ceil((double)bytes / (1 << 30));
}

/* NAME=VALUE, unchanged: Prime's labels are strings. */
static void prime_write_labels(struct buf *out, const struct container_spec *c)
{
    cleanup_buf struct buf owner = { 0 }, machine = { 0 }, line = { 0 };
    owner_labels(&owner, &machine);
    field_open(out, "labels", '[');
    field_string(out, NULL, VM_LABEL);
    buf_printf(&line, LABEL_OWNER "=%s", buf_text(&owner));
    field_string(out, NULL, buf_text(&line));
    buf_clear(&line);
    buf_printf(&line, LABEL_MACHINE "=%s", buf_text(&machine));
    field_string(out, NULL, buf_text(&line));
    for (size_t i = 0; c->labels && i < c->labels->count; i++)
        field_string(out, NULL, c->labels->items[i]);
    field_close(out, ']');
    out->failed |= buf_failed(&owner) || buf_failed(&machine) || buf_failed(&line);
}

/* An empty list of destinations allows none; without a list there is no restriction. */
static void prime_write_network(struct buf *out, const struct container_spec *c)
{
    bool some = c->allow && c->allow->count > 0;
    if (some || !c->network || strcmp(c->network, "open") != 0)
        field_list(out, "network_allowlist", c->allow);
}

/* TYPE or TYPE:COUNT */
static void write_gpus(struct buf *out, const char *gpus)
{
    if (!gpus)
        return;
    const char *colon = strrchr(gpus, ':');
    long count = colon ? strtol(colon + 1, NULL, 10) : 1;
    field_text(out, "gpu_type", gpus, colon ? (size_t)(colon - gpus) : strlen(gpus));
    field_int(out, "gpu_count", count > 0 ? count : 1);
}

static void write_size(struct buf *out, const struct sandbox_spec *spec)
{
    const struct container_spec *c = sandbox_container(spec);
    field_number(out, "cpu_cores", spec->limits.cpus > 0 ? spec->limits.cpus : 1);
    field_int(out, "memory_gb", spec->limits.memory > 0 ? in_gib(spec->limits.memory) : 2);
    field_int(out, "disk_size_gb", c->disk > 0 ? in_gib(c->disk) : 5);
    write_gpus(out, c->gpus);
}

static void write_limits_in_time(struct buf *out, const struct container_spec *c)
{
    double life = c->life > 0 ? c->life + VM_MARGIN : LIFE_SECONDS;
    life = life < LIFE_MOST ? life : LIFE_MOST;
    double idle = c->idle > 0 ? c->idle : IDLE_SECONDS;
    field_int(out, "timeout_minutes", in_minutes(life));
    field_int(out, "idle_timeout_minutes", in_minutes(idle < life ? idle : life));
}

static int prime_make_body(const struct vm *vm, const struct sandbox_spec *spec,
    struct json_object **out, struct error *err)
{
    const struct container_spec *c = sandbox_container(spec);
    cleanup_buf struct buf text = { 0 };
    char name[24];
    snprintf(name, sizeof name, "droste-%.8s", vm->key);
    buf_putc(&text, '{');
    field_string(&text, "name", name);
    field_string(&text, "idempotency_key", vm->key);
    field_string(&text, "docker_image", c->image ? c->image : "python:3.12-slim");
    field_bool(&text, "vm", true);
    write_size(&text, spec);
    prime_write_network(&text, c);
    write_limits_in_time(&text, c);
    prime_write_labels(&text, c);
    if (c->region)
        field_string(&text, "region", c->region);
    if (vm->env->settings[TEAM])
        field_string(&text, "team_id", vm->env->settings[TEAM]);
    buf_putc(&text, '}');
    return json_parse_written(&text, out, err);
}

static int prime_ask_create(
    const struct vm *vm, const struct sandbox_spec *spec, struct vm_ask *ask, struct error *err)
{
    if (sandbox_container(spec)->life > LIFE_MOST)
        return error_set(err, ERROR_UNSUPPORTED, "a sandbox of Prime can run for at most one day");
    ask->method = "POST";
    buf_puts(&ask->path, API);
    return prime_make_body(vm, spec, &ask->body, err);
}

static void ask_list(const struct vm *vm, struct vm_ask *ask)
{
    ask->method = "GET";
    buf_printf(&ask->path, API "?labels=" VM_LABEL "&is_active=true&page=%s&per_page=%d",
        ask->cursor ? ask->cursor : "1", LISTED);
    if (vm->env->settings[TEAM]) {
        buf_puts(&ask->path, "&team_id=");
        url_escape(&ask->path, vm->env->settings[TEAM]);
    }
}

static void prime_ask_of_one(
    const struct vm *vm, const char *method, const char *what, struct vm_ask *ask)
{
    ask->method = method;
    buf_puts(&ask->path, API "/");
    url_escape(&ask->path, vm->id);
    buf_puts(&ask->path, what);
}

static int prime_ask(struct vm *vm, enum vm_step step, const struct sandbox_spec *spec,
    struct vm_ask *ask, struct error *err)
{
    switch (step) {
    case VM_CREATE:
        return prime_ask_create(vm, spec, ask, err);
    case VM_RESUME:
    case VM_LOOK:
        prime_ask_of_one(vm, "GET", "", ask);
        return 0;
    case VM_ENTER:
        prime_ask_of_one(vm, "POST", "/auth", ask);
        return 0;
    case VM_DELETE:
        prime_ask_of_one(vm, "DELETE", "", ask);
        return 0;
    case VM_LIST:
        ask_list(vm, ask);
        return 0;
    case VM_STAY: /* an open stream counts as activity */
    case VM_KEEP: /* its time limits end it */
        return 0;
    }
    return 0;
}

/* ---- answers ---- */

static void read_end(struct json_object *o, const char *status, struct vm_facts *facts)
{
    cleanup_buf struct buf words = { 0 };
    const char *type = json_get_string(o, "errorType", NULL);
    const char *message = json_get_string(o, "errorMessage", NULL);
    const char *reason = json_get_string(o, "terminationReason", NULL);
    text_append_visible(&words, status, strnlen(status, 20));
    if (type || reason) {
        buf_puts(&words, ", ");
        text_append_visible(&words, type ? type : reason, strnlen(type ? type : reason, 40));
    }
    if (message) {
        buf_puts(&words, ": ");
        text_append_visible(&words, message, strnlen(message, 80));
    }
    facts->health = VM_GONE;
    snprintf(facts->words, sizeof facts->words, "%.*s",
        (int)text_utf8_floor(buf_text(&words), words.len,
            words.len < sizeof facts->words ? words.len : sizeof facts->words - 1),
        buf_text(&words));
}

static int prime_read(
    struct vm *vm, struct json_object *o, struct vm_facts *facts, struct error *err)
{
    static const char *const ended[] = { "ERROR", "TERMINATED", "TIMEOUT", "PAUSED" };
    const char *status = json_get_string(o, "status", NULL);
    const char *id = json_get_string(o, "id", NULL);
    if (!status || !id || strlen(id) >= sizeof facts->id)
        return error_set(err, ERROR_PROTOCOL, "Prime's answer does not describe a sandbox");
    snprintf(facts->id, sizeof facts->id, "%s", id);
    facts->health = strcmp(status, "RUNNING") == 0 ? VM_RUNS : VM_STARTS;
    for (size_t i = 0; i < array_length(ended); i++)
        if (strcmp(status, ended[i]) == 0)
            read_end(o, status, facts);
    if (facts->health == VM_STARTS && json_get_string(o, "pendingImageBuildId", NULL)) {
        facts->health = VM_BUILDS;
        snprintf(facts->words, sizeof facts->words,
            "Prime is building a virtual machine from the image; the first time this takes minutes");
    }
    if (facts->health == VM_RUNS && !json_get_bool(o, "vm", false))
        return error_set(err, ERROR_UNSUPPORTED,
            "it is a container, which offers no standard input for a program: use one of Prime's "
            "virtual machines");
    return 0;
}

/* Parses "2026-01-31T12:00:00.123Z", or with +00:00. Seconds from now; 0 for invalid text. */
static double seconds_until(const char *text)
{
    struct tm at = { 0 };
    const char *rest = text ? strptime(text, "%Y-%m-%dT%H:%M:%S", &at) : NULL;
    if (!rest)
        return 0;
    double seconds = difftime(timegm(&at), time(NULL));
    return seconds > 0 ? seconds : 1;
}

/* The gateway's URL is {gateway_url}/{user_ns}/{job_id}, from the answer. It must use TLS if the
 * API does. */
static int prime_enter(struct vm *vm, struct json_object *o, struct error *err)
{
    cleanup_buf struct buf url = { 0 }, header = { 0 };
    const char *gateway = json_get_string(o, "gateway_url", NULL);
    const char *space = json_get_string(o, "user_ns", NULL);
    const char *job = json_get_string(o, "job_id", NULL);
    const char *token = json_get_string(o, "token", NULL);
    if (!gateway || !space || !job || !token)
        return error_set(err, ERROR_PROTOCOL,
            "Prime's answer does not say how to connect to the "
            "sandbox");
    if (strncmp(rest_base(vm->env->api), "https:", 6) == 0 && strncmp(gateway, "https:", 6) != 0)
        return error_set(err, ERROR_PROTOCOL, "Prime's gateway has an address without TLS");
    size_t len = strlen(gateway);
    while (len > 0 && gateway[len - 1] == '/')
        len--;
    buf_append(&url, gateway, len);
    buf_putc(&url, '/');
    url_escape(&url, space);
    buf_putc(&url, '/');
    url_escape(&url, job);
    buf_printf(&header, "Authorization: Bearer %s", token);
    if (buf_failed(&url) || buf_failed(&header))
        return error_memory(err);
    const char *headers[] = { buf_text(&header), CONNECT_HEADER };
    return vm_gate(vm, buf_text(&url), token, headers, array_length(headers),
        seconds_until(json_get_string(o, "expires_at", NULL)), err);
}

/* The value of a label NAME=VALUE. */
static void label_value(struct json_object *labels, const char *name, struct buf *out)
{
    size_t n = strlen(name);
    for (size_t i = 0; i < json_length(labels); i++) {
        const char *text = json_object_get_string(json_object_array_get_idx(labels, i));
        if (text && strncmp(text, name, n) == 0 && text[n] == '=')
            buf_puts(out, text + n + 1);
    }
}

static bool prime_listed(struct json_object *answer, size_t i, char id[VM_ID_SIZE],
    struct buf *owner, struct buf *machine)
{
    struct json_object *list = json_get_typed(answer, "sandboxes", json_type_array);
    if (i >= json_length(list))
        return false;
    struct json_object *o = json_object_array_get_idx(list, i);
    struct json_object *labels = json_get_typed(o, "labels", json_type_array);
    snprintf(id, VM_ID_SIZE, "%.*s", VM_ID_SIZE - 1, json_get_string(o, "id", ""));
    label_value(labels, LABEL_OWNER, owner);
    label_value(labels, LABEL_MACHINE, machine);
    return true;
}

static bool prime_more(const struct rest_answer *answer, struct buf *cursor)
{
    bool more = json_get_bool(answer->body, "hasNext", false);
    if (more)
        buf_printf(cursor, "%lld", (long long)json_get_int(answer->body, "page", 1) + 1);
    return more;
}

/* ---- the environment ---- */

static const struct feature_state prime_features[FEATURE_COUNT] = {
    [FEATURE_STREAM] = FEATURE_YES("a command session of the machine's, by its gateway"),
    [FEATURE_REATTACH] = FEATURE_YES("for a minute"),
    [FEATURE_SNAPSHOT] = FEATURE_NO("name an image instead"),
    [FEATURE_RESUME] =
        FEATURE_YES("a machine that runs; one that is kept runs on, until its limits in time"),
    [FEATURE_IDLE] = FEATURE_YES("900 s by default; it is ended, in whole minutes"),
    [FEATURE_IMAGE] = FEATURE_YES("any of a registry's with CPython 3.8 or newer"),
    [FEATURE_PULL] = FEATURE_NO("Prime decides when an image is fetched"),
    [FEATURE_VOLUME] = FEATURE_YES("a copy of this machine's, brought back after each cell"),
    [FEATURE_WORKSPACE] = FEATURE_YES("sent at the start"),
    [FEATURE_READ] = FEATURE_NO("the machine does not see this one's files"),
    [FEATURE_NETWORK] = FEATURE_YES("none by default; open"),
    [FEATURE_ALLOW] = FEATURE_YES("domains, also *.example.org, and IPv4 addresses"),
    [FEATURE_MEMORY] = FEATURE_YES("of the machine, in whole GiB"),
    [FEATURE_PROCESSES] = FEATURE_NO("nothing but the machine bounds them"),
    [FEATURE_CPUS] = FEATURE_YES("of the machine"),
    [FEATURE_DISK] = FEATURE_YES("of the machine, in whole GiB"),
    [FEATURE_GPUS] = FEATURE_YES("TYPE or TYPE:COUNT, as H100_80GB:1"),
    [FEATURE_USER] = FEATURE_NO("they are the image's"),
    [FEATURE_SECCOMP] = FEATURE_NO("the provider has its own"),
    [FEATURE_READ_ONLY] = FEATURE_NO("the machine's files can be written to"),
    [FEATURE_ROOT] = FEATURE_NO("the sandbox's files are its own"),
    [FEATURE_LABELS] = FEATURE_YES("the machine's"),
    [FEATURE_REUSE] = FEATURE_NO("a machine has one session"),
    [FEATURE_REGION] = FEATURE_YES("one of Prime's"),
    [FEATURE_ISOLATION] = FEATURE_NO("the wall is the machine"),
    [FEATURE_DEVICE] = FEATURE_NO("use gpus"),
    FEATURES_OF_REMOTE,
};

const struct process_dialect prime_process = {
    .path = "/command_session.CommandSession", .start_key = 5, .selector_key = 3, .keyed = true
};

static const struct vm_provider prime = { .name = "prime",
    .title = "Prime",
    .key_variable = "PRIME_API_KEY",
    .key_header = "Authorization: Bearer ",
    .settings = { [TEAM] = "PRIME_TEAM_ID" },
    .features = prime_features,
    .dialect = &prime_process,
    .ask = prime_ask,
    .read = prime_read,
    .enter = prime_enter,
    .listed = prime_listed,
    .more = prime_more };

/* As in Prime's own tools, the variable has no /api/v1 at its end. */
static char *base_url(void)
{
    static const char behind[] = "/api/v1";
    const char *text = getenv("PRIME_API_BASE_URL");
    if (!text || !text[0])
        text = getenv("PRIME_BASE_URL");
    if (!text || !text[0])
        text = ADDRESS;
    size_t len = strlen(text);
    while (len > 0 && text[len - 1] == '/')
        len--;
    if (len > strlen(behind) && memcmp(text + len - strlen(behind), behind, strlen(behind)) == 0)
        len -= strlen(behind);
    return text_copy(text, len);
}

static int prime_configured(struct error *err)
{
    return vm_configured(&prime, err);
}

static int prime_open(struct loop *loop, const struct environment_options *options,
    struct environment **out, struct error *err)
{
    cleanup_free char *url = base_url();
    return vms_open(loop, &prime, url, options, out, err);
}

const struct environment_kind prime_environment = {
    .name = "prime",
    .about = "virtual machines of Prime Intellect (PRIME_API_KEY)",
    .variables = "PRIME_API_KEY PRIME_TEAM_ID PRIME_API_BASE_URL PRIME_BASE_URL",
    .features = prime_features,
    .configured = prime_configured,
    .open = prime_open,
};
