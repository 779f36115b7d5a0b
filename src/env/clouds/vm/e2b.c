/* env/clouds/vm/e2b.c: E2B's requests and answers; vm.c has the state machine.
 *
 * A sandbox is created from a template, which determines its size. Its lifetime is short and is
 * extended as long as its session lives, so it ends soon after its host has died. The service
 * inside (envd) is behind a proxy, with a token that is valid as long as the sandbox exists.
 */

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json/fields.h"
#include "base/clock.h"
#include "base/text.h"
#include "env/common/owner_labels.h"
#include "env/clouds/vm/provider.h"
#include "net/url.h"

#define DOMAIN "e2b.app"
#define PORT   "49983" /* envd's */

enum {
    LIFE_SECONDS = 3600,
    LIFE_MOST = 24 * 3600,
    IDLE_SECONDS = 900, /* without the host */
    STAYS = 3,          /* extensions within this time */
    LISTED = 100,
};

enum { OWN_DOMAIN, SANDBOX_URL }; /* of the provider's settings */

/* Providers that serve all sandboxes under one host name. */
static const char *const one_name[] = { "e2b.app", "e2b.dev", "e2b.pro" };

/* ---- requests ---- */

/* Its lifetime from now on. */
static int64_t next_life(const struct vm *vm)
{
    double left = vm->life - clock_seconds_since(vm->begun_ns);
    double idle = vm->stay_seconds * STAYS;
    double next = idle < left ? idle : left;
    return next > 1 ? (int64_t)next : 1;
}

/* Allowed destinations take precedence over denied ones. */
static void e2b_write_network(struct buf *out, const struct container_spec *c)
{
    bool some = c->allow && c->allow->count > 0;
    field_bool(
        out, "allow_internet_access", some || (c->network && strcmp(c->network, "open") == 0));
    if (!some)
        return;
    field_open(out, "network", '{');
    field_list(out, "allowOut", c->allow);
    buf_puts(out, ",\"denyOut\":[\"0.0.0.0/0\"]}");
}

/* Sets the times from which its lifetime is computed. */
static int set_times(struct vm *vm, const struct container_spec *c, struct error *err)
{
    double idle = c->idle > 0 ? c->idle : IDLE_SECONDS;
    vm->life = c->life > 0 ? c->life + VM_MARGIN : LIFE_SECONDS;
    vm->begun_ns = clock_ns();
    vm->stay_seconds = (idle < vm->life ? idle : vm->life) / STAYS;
    if (c->life > LIFE_MOST)
        return error_set(err, ERROR_UNSUPPORTED, "a sandbox of E2B can run for at most one day");
    vm->life = vm->life < LIFE_MOST ? vm->life : LIFE_MOST;
    return 0;
}

static int e2b_ask_create(
    struct vm *vm, const struct container_spec *c, struct vm_ask *ask, struct error *err)
{
    cleanup_buf struct buf text = { 0 };
    ask->method = "POST";
    ask->header = text_printf("Idempotency-Key: %s", vm->key);
    buf_puts(&ask->path, "/v2/sandboxes");
    buf_putc(&text, '{');
    field_string(&text, "templateID", c->snapshot ? c->snapshot : c->image ? c->image : "base");
    field_int(&text, "timeout", next_life(vm));
    e2b_write_network(&text, c);
    field_bool(&text, "secure", true);
    field_bool(&text, "autoPause", false);
    field_open(&text, "metadata", '{');
    owner_labels_write(&text, c->labels);
    field_string(&text, VM_LABEL, "1");
    buf_puts(&text, "}}");
    if (!ask->header)
        return error_memory(err);
    return json_parse_written(&text, &ask->body, err);
}

static int e2b_ask_of_one(const struct vm *vm, const char *method, const char *before,
    const char *behind, struct vm_ask *ask)
{
    ask->method = method;
    buf_printf(&ask->path, "%s/sandboxes/", before);
    url_escape(&ask->path, vm->id);
    buf_puts(&ask->path, behind);
    return 0;
}

/* The same path, followed by the lifetime from now on. */
static int ask_with_time(const struct vm *vm, const char *before, const char *behind,
    struct vm_ask *ask, struct error *err)
{
    ask->body = json_object_new_object();
    if (!ask->body || !json_put(ask->body, "timeout", json_object_new_int64(next_life(vm))))
        return error_memory(err);
    return e2b_ask_of_one(vm, "POST", before, behind, ask);
}

static int e2b_ask(struct vm *vm, enum vm_step step, const struct sandbox_spec *spec,
    struct vm_ask *ask, struct error *err)
{
    int rc = spec ? set_times(vm, sandbox_container(spec), err) : 0;
    if (rc < 0)
        return rc;
    switch (step) {
    case VM_CREATE:
        return e2b_ask_create(vm, sandbox_container(spec), ask, err);
    case VM_RESUME:
        return ask_with_time(vm, "/v2", "/connect", ask, err);
    case VM_LOOK:
        return e2b_ask_of_one(vm, "GET", "", "", ask);
    case VM_STAY:
        return ask_with_time(vm, "", "/timeout", ask, err);
    case VM_KEEP:
        ask->body = json_object_new_object();
        return ask->body ? e2b_ask_of_one(vm, "POST", "", "/pause", ask) : error_memory(err);
    case VM_DELETE:
        return e2b_ask_of_one(vm, "DELETE", "", "", ask);
    case VM_LIST:
        ask->method = "GET";
        buf_printf(&ask->path, "/v2/sandboxes?metadata=" VM_LABEL "%%3D1&limit=%d", LISTED);
        if (ask->cursor) {
            buf_puts(&ask->path, "&nextToken=");
            url_escape(&ask->path, ask->cursor);
        }
        return 0;
    case VM_ENTER:
        return 0;
    }
    return 0;
}

/* ---- answers ---- */

static int keep_token(struct vm *vm, struct json_object *o, struct error *err)
{
    const char *token = json_get_string(o, "envdAccessToken", NULL);
    const char *domain = json_get_string(o, "domain", NULL);
    if (token && !vm->token) {
        vm->token = strdup(token);
        vm->domain = domain && domain[0] ? strdup(domain) : NULL;
    }
    return token && !vm->token ? error_memory(err) : 0;
}

/* A created sandbox is running. Later answers have its state. */
static int e2b_read(struct vm *vm, struct json_object *o, struct vm_facts *facts, struct error *err)
{
    const char *id = json_get_string(o, "sandboxID", NULL);
    const char *state = json_get_string(o, "state", "running");
    if (!id || strlen(id) >= sizeof facts->id)
        return error_set(err, ERROR_PROTOCOL, "E2B's answer does not describe a sandbox");
    snprintf(facts->id, sizeof facts->id, "%s", id);
    facts->health = strcmp(state, "running") == 0 ? VM_RUNS : VM_GONE;
    if (facts->health == VM_GONE)
        snprintf(facts->words, sizeof facts->words, "its state is %.40s", state);
    return keep_token(vm, o, err);
}

static bool is_behind_one_name(const char *domain)
{
    for (size_t i = 0; i < array_length(one_name); i++)
        if (strcmp(one_name[i], domain) == 0)
            return true;
    return false;
}

static void put_url(const struct vm *vm, struct buf *out)
{
    const char *domain = vm->domain                      ? vm->domain
                         : vm->env->settings[OWN_DOMAIN] ? vm->env->settings[OWN_DOMAIN]
                                                         : DOMAIN;
    if (vm->env->settings[SANDBOX_URL])
        buf_puts(out, vm->env->settings[SANDBOX_URL]);
    else if (is_behind_one_name(domain))
        buf_printf(out, "https://sandbox.%s", domain);
    else
        buf_printf(out, "https://" PORT "-%s.%s", vm->id, domain);
}

static int e2b_enter(struct vm *vm, struct json_object *answer, struct error *err)
{
    cleanup_buf struct buf url = { 0 }, token = { 0 }, id = { 0 };
    put_url(vm, &url);
    buf_printf(&token, "X-Access-Token: %s", vm->token ? vm->token : "");
    buf_printf(&id, "E2b-Sandbox-Id: %s", vm->id);
    if (buf_failed(&url) || buf_failed(&token) || buf_failed(&id))
        return error_memory(err);
    const char *headers[] = { buf_text(&token), buf_text(&id), "E2b-Sandbox-Port: " PORT,
        "Keepalive-Ping-Interval: 20", CONNECT_HEADER };
    return vm_gate(vm, buf_text(&url), vm->token, headers, array_length(headers), 0, err);
}

static bool e2b_listed(struct json_object *answer, size_t i, char id[VM_ID_SIZE], struct buf *owner,
    struct buf *machine)
{
    if (!json_object_is_type(answer, json_type_array) || i >= json_length(answer))
        return false;
    struct json_object *o = json_object_array_get_idx(answer, i);
    struct json_object *labels = json_get_typed(o, "metadata", json_type_object);
    snprintf(id, VM_ID_SIZE, "%.*s", VM_ID_SIZE - 1, json_get_string(o, "sandboxID", ""));
    buf_puts(owner, json_get_string(labels, LABEL_OWNER, ""));
    buf_puts(machine, json_get_string(labels, LABEL_MACHINE, ""));
    return true;
}

static bool e2b_more(const struct rest_answer *answer, struct buf *cursor)
{
    if (answer->header)
        buf_puts(cursor, answer->header);
    return cursor->len > 0;
}

/* ---- the environment ---- */

static const struct feature_state e2b_features[FEATURE_COUNT] = {
    [FEATURE_STREAM] = FEATURE_YES("a process of envd's, by E2B's proxy"),
    [FEATURE_REATTACH] = FEATURE_YES("for a minute"),
    [FEATURE_SNAPSHOT] = FEATURE_YES("one of E2B's, by its id"),
    [FEATURE_RESUME] =
        FEATURE_YES("one that is kept is paused with its files; another session goes on in it"),
    [FEATURE_IDLE] =
        FEATURE_YES("900 s by default, from when its host was last there; it is ended"),
    [FEATURE_IMAGE] = FEATURE_YES("a template of E2B's, base by default"),
    [FEATURE_PULL] = FEATURE_NO("templates are built before"),
    [FEATURE_VOLUME] = FEATURE_YES("a copy of this machine's, brought back after each cell"),
    [FEATURE_WORKSPACE] = FEATURE_YES("sent at the start"),
    [FEATURE_READ] = FEATURE_NO("the sandbox does not see this machine's files"),
    [FEATURE_NETWORK] = FEATURE_YES("none by default; open"),
    [FEATURE_ALLOW] = FEATURE_YES("domains and addresses (CIDR)"),
    [FEATURE_MEMORY] = FEATURE_YES("of each process; the sandbox has what its template says"),
    [FEATURE_PROCESSES] = FEATURE_NO("nothing but the machine bounds them"),
    [FEATURE_CPUS] = FEATURE_NO("the template says how many"),
    [FEATURE_DISK] = FEATURE_NO("the template says how much"),
    [FEATURE_GPUS] = FEATURE_NO("E2B has none"),
    [FEATURE_USER] = FEATURE_NO("it is the template's"),
    [FEATURE_SECCOMP] = FEATURE_NO("the machine has a kernel of its own"),
    [FEATURE_READ_ONLY] = FEATURE_NO("the sandbox's files can be written to"),
    [FEATURE_ROOT] = FEATURE_NO("the sandbox's files are its own"),
    [FEATURE_LABELS] = FEATURE_YES("the sandbox's metadata"),
    [FEATURE_REUSE] = FEATURE_NO("a sandbox has one session"),
    [FEATURE_REGION] = FEATURE_NO("the account says where"),
    [FEATURE_ISOLATION] = FEATURE_NO("the wall is the sandbox, a virtual machine"),
    [FEATURE_DEVICE] = FEATURE_NO("E2B has none"),
    FEATURES_OF_REMOTE,
};

const struct process_dialect e2b_process = {
    .path = "/process.Process", .start_key = 3, .selector_key = 2
};

static const struct vm_provider e2b = { .name = "e2b",
    .title = "E2B",
    .key_variable = "E2B_API_KEY",
    .key_header = "X-API-KEY: ",
    .settings = { [OWN_DOMAIN] = "E2B_DOMAIN", [SANDBOX_URL] = "E2B_SANDBOX_URL" },
    .features = e2b_features,
    .dialect = &e2b_process,
    .ask = e2b_ask,
    .read = e2b_read,
    .enter = e2b_enter,
    .listed = e2b_listed,
    .more = e2b_more,
    .cursor_header = "x-next-token" };

static int e2b_configured(struct error *err)
{
    return vm_configured(&e2b, err);
}

static int e2b_open(struct loop *loop, const struct environment_options *options,
    struct environment **out, struct error *err)
{
    const char *domain = getenv("E2B_DOMAIN");
    cleanup_free char *url = vm_variable("E2B_API_URL");
    if (!url)
        url = text_printf("https://api.%s", domain && domain[0] ? domain : DOMAIN);
    return vms_open(loop, &e2b, url, options, out, err);
}

const struct environment_kind e2b_environment = {
    .name = "e2b",
    .about = "sandboxes of E2B (E2B_API_KEY)",
    .variables = "E2B_API_KEY E2B_DOMAIN E2B_API_URL E2B_SANDBOX_URL",
    .features = e2b_features,
    .configured = e2b_configured,
    .open = e2b_open,
};
