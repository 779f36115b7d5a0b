/* api/options.c: see options.h.
 *
 * Rules have default limits of their own. The directories of --allow-import are visible in the
 * sandbox, as those of --read are.
 */
#include "api/options.h"

#include <math.h>
#include <string.h>

#include "api/api.h"
#include "api/environment_api.h"
#include "api/packages.h"
#include "api/secrets.h"
#include "base/cleanup.h"
#include "base/os/file.h"
#include "base/json/json.h"
#include "base/suggest.h"
#include "base/text.h"
#include "base/traceparent.h"
#include "broker/tools.h"
#include "egress/address.h"
#include "image/image.h"
#include "session/template.h"
#include "volume/volume.h"
#include "volume/workspace.h"

enum { TEXT_MAX = 16 << 20, IMAGE_URL_MAX = 8192 };

/* ---- limits ---- */

/* Defaults under rules. */
static const struct {
    const char *name;
    double seconds;
} with_rules[] = {
    { "execute-timeout", 30 },
    { "execute-timeout-cap", 300 },
    { "broker-timeout", 30 },
};

static double options_seconds_of(const struct settings *s, const char *name, double value)
{
    for (size_t i = 0; s->rules && i < array_length(with_rules); i++)
        if (strcmp(with_rules[i].name, name) == 0 && !settings_is_set(s, name))
            return with_rules[i].seconds;
    return value;
}

double api_broker_timeout(const struct settings *s)
{
    return options_seconds_of(s, "broker-timeout", s->broker_timeout);
}

/* A default limit is lowered to the cap; session_check_timeout rejects a limit that was set. */
static int set_timeouts(const struct settings *s, struct session_options *o, struct error *err)
{
    double cap = options_seconds_of(s, "execute-timeout-cap", s->execute_timeout_cap);
    double limit = options_seconds_of(s, "execute-timeout", s->execute_timeout);
    if (!settings_is_set(s, "execute-timeout") && cap > 0 && (limit <= 0 || limit > cap))
        limit = cap;
    o->timeout = s->timeout;
    o->execute_timeout = limit;
    o->execute_timeout_cap = cap;
    o->grace = s->grace;
    return session_check_timeout(limit, cap, err);
}

/* ---- rules ---- */

static bool options_is_path(const char *root)
{
    return strchr(root, '/') != NULL;
}

/* Preloaded modules may be imported. */
static int lay_rules(const struct settings *s, struct session_parts *parts,
    struct session_options *o, struct error *err)
{
    struct list *shown = &parts->shown, *allowed = &parts->allowed;
    int rc = list_add_all(shown, &s->read, err);
    if (rc == 0)
        rc = list_add_all(allowed, &s->allow_import, err);
    if (rc == 0)
        rc = list_add_all(allowed, &s->preload, err);
    for (size_t i = 0; rc == 0 && i < s->allow_import.count; i++) {
        const char *root = s->allow_import.items[i];
        if (options_is_path(root) && root[0] != '/')
            rc = error_set(err, ERROR_ARGUMENT,
                "allow-import '%.100s' is neither a module's name nor an absolute path", root);
        else if (options_is_path(root))
            rc = list_add(shown, root, err);
    }
    o->rules = true;
    o->no_standard_imports = !s->standard_imports;
    o->spec.read_paths = (const char *const *)shown->items;
    o->spec.read_path_count = shown->count;
    o->allow_imports = (const char *const *)allowed->items;
    o->allow_import_count = allowed->count;
    return rc;
}

static int set_restored(const struct settings *s, struct session_options *o, struct error *err)
{
    for (size_t i = 0; i < s->restore_name.count; i++)
        if (!text_is_identifier(s->restore_name.items[i]))
            return error_set(err, ERROR_ARGUMENT,
                "restore-name '%.64s' is not a Python name; give one name at a time",
                s->restore_name.items[i]);
    o->restored = &s->restore_name;
    return 0;
}

void session_parts_free(struct session_parts *parts)
{
    list_clear(&parts->shown);
    list_clear(&parts->allowed);
    buf_free(&parts->setup);
    buf_free(&parts->gpus);
    schema_drop(parts->answer);
    volume_release(parts->volume);
    workspace_release(parts->workspace);
    image_close(parts->image);
    template_drop(parts->template);
    egress_policy_release(parts->egress);
    *parts = (struct session_parts){ 0 };
}

/* ---- texts ---- */

int api_text(const char *value, const char *what, struct buf *out, struct error *err)
{
    buf_clear(out);
    if (value[0] != '@')
        buf_puts(out, value);
    else if (file_read(value + 1, TEXT_MAX, out, err) < 0)
        return error_wrap(err, "reading the %s", what);
    if (buf_failed(out))
        return error_memory(err);
    if (strlen(buf_text(out)) != out->len)
        return error_set(
            err, ERROR_ARGUMENT, "the %s of '%.100s' contains a zero byte", what, value + 1);
    return 0;
}

static int read_setup(const struct settings *s, struct session_parts *parts,
    struct session_options *o, struct error *err)
{
    int rc = s->setup_code ? api_text(s->setup_code, "setup code", &parts->setup, err) : 0;
    if (rc == 0 && s->setup_code)
        o->setup = buf_text(&parts->setup);
    o->setup_each = s->setup_each;
    return rc;
}

/* ---- the type of the answer ---- */

static int parse_answer(const char *json, size_t len, struct schema **out, struct error *err)
{
    if (schema_parse(json, len, out, err) == 0)
        return 0;
    return error_wrap(err, "answer-schema");
}

static int options_read_schema(const char *value, struct schema **out, struct error *err)
{
    cleanup_buf struct buf text = { 0 };
    const char *json = value + strspn(value, " \t\r\n");
    if (json[0] == '{')
        return parse_answer(json, strlen(json), out, err);
    if (file_read(value, SCHEMA_BYTES_MAX, &text, err) < 0)
        return error_wrap(err, "reading the answer-schema (JSON begins with a '{')");
    return parse_answer(buf_text(&text), text.len, out, err);
}

/* Makes a schema that requires all fields and allows no others. */
static int schema_of_fields(const struct list *fields, struct schema **out, struct error *err)
{
    cleanup_buf struct buf names = { 0 }, json = { 0 };
    buf_puts(&json, "{\"type\":\"object\",\"properties\":{");
    for (size_t i = 0; i < fields->count; i++) {
        const char *field = fields->items[i], *colon = strchr(field, ':');
        size_t n = colon ? (size_t)(colon - field) : strlen(field);
        cleanup_free char *name = text_copy(field, n);
        if (!name)
            return error_memory(err);
        if (!text_is_identifier(name))
            return error_set(err, ERROR_ARGUMENT,
                "answer-field '%.60s': expected NAME or NAME:TYPE, the name one that Python can "
                "have",
                field);
        buf_printf(&names, "%s\"%s\"", i ? "," : "", name);
        buf_printf(&json, "%s\"%s\":{", i ? "," : "", name);
        if (colon) {
            buf_puts(&json, "\"type\":");
            json_append_string(&json, colon + 1, strlen(colon + 1));
        }
        buf_putc(&json, '}');
    }
    buf_printf(&json, "},\"required\":[%s],\"additionalProperties\":false}", buf_text(&names));
    if (buf_failed(&names) || buf_failed(&json))
        return error_memory(err);
    int rc = schema_parse(buf_text(&json), json.len, out, err);
    return rc < 0 ? error_wrap(err, "answer-field") : 0;
}

int api_answer_type(const struct settings *s, struct schema **out, struct error *err)
{
    *out = NULL;
    if (s->answer_schema && s->answer_field.count > 0)
        return error_set(err, ERROR_ARGUMENT,
            "answer-schema and answer-field exclude each other; use one of them");
    if (s->answer_schema)
        return options_read_schema(s->answer_schema, out, err);
    return s->answer_field.count > 0 ? schema_of_fields(&s->answer_field, out, err) : 0;
}

/* ---- the volume ---- */

int api_volume_root(const struct settings *s, char **out, struct error *err)
{
    return volume_root(s->volume_root, out, err);
}

struct volume_limits api_volume_limits(const struct settings *s)
{
    return (struct volume_limits){ (uint64_t)s->volume_size, (uint64_t)s->volume_files };
}

/* ---- the container ---- */

static int check_pairs(const struct list *list, const char *what, struct error *err)
{
    for (size_t i = 0; i < list->count; i++)
        if (!strchr(list->items[i], '=') || list->items[i][0] == '=')
            return error_set(
                err, ERROR_ARGUMENT, "%s '%.80s': expected NAME=VALUE", what, list->items[i]);
    return 0;
}

/* Labels go to daemons and providers as JSON. */
static int check_labels(const struct list *labels, struct error *err)
{
    int rc = check_pairs(labels, "label", err);
    for (size_t i = 0; rc == 0 && i < labels->count; i++)
        if (!text_is_utf8(labels->items[i], strlen(labels->items[i]), NULL))
            rc = error_set(err, ERROR_ARGUMENT, "label %zu is not UTF-8", i + 1);
    return rc;
}

static int options_take_word(const char *name, const char *value, const char *const *words,
    size_t count, size_t *out, struct error *err)
{
    *out = 0;
    for (size_t i = 0; value && i < count; i++)
        if (strcmp(words[i], value) == 0) {
            *out = i;
            return 0;
        }
    return value ? suggest_refuse(name, value, words, sizeof *words, count, err) : 0;
}

/* Features that settings request. Isolation is not a request: "auto" accepts any level. */
static uint64_t asked_features(const struct settings *s)
{
    uint64_t asked = 0;
    for (size_t i = 0; droste_option_at(i); i++) {
        if (!s->given[i] || settings_is_emptied(s, i))
            continue;
        enum feature p = feature_of_setting(droste_option_at(i)->name);
        if (p != FEATURE_COUNT && p != FEATURE_ISOLATION)
            asked |= (uint64_t)1 << p;
    }
    return asked;
}

/* A daemon of containers has its own words for GPUs, and its own idea of what they need. */
static int set_devices(const struct settings *s, struct session_parts *parts,
    struct session_options *o, struct error *err)
{
    struct device_request *devices = &o->spec.devices;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < s->device.count; i++)
        rc = device_parse(s->device.items[i], devices, err);
    if (rc < 0 || !devices->nvidia)
        return rc;
    if (s->gpus && s->gpus[0])
        return error_set(
            err, ERROR_ARGUMENT, "device and gpus exclude each other; use one of them");
    buf_puts(&parts->gpus, devices->gpus ? "device=" : "all");
    device_print_gpus(devices, &parts->gpus);
    return buf_failed(&parts->gpus) ? error_memory(err) : 0;
}

static int set_container(const struct settings *s, struct session_parts *parts,
    struct session_options *o, struct error *err)
{
    static const char *const pulls[] = { "missing", "never", "always" };
    static const char *const filters[] = { "auto", "droste", "daemon" };
    static const char *const reuses[] = { "none", "container" };
    static const char *const ends[] = { "delete", "stop" };
    size_t pull = 0, seccomp = 0, reuse = 0, end = 0;
    int rc = options_take_word("pull", s->pull, pulls, array_length(pulls), &pull, err);
    if (rc == 0)
        rc =
            options_take_word("seccomp", s->seccomp, filters, array_length(filters), &seccomp, err);
    if (rc == 0)
        rc = options_take_word("reuse", s->reuse, reuses, array_length(reuses), &reuse, err);
    if (rc == 0)
        rc = options_take_word("on-close", s->on_close, ends, array_length(ends), &end, err);
    if (rc == 0)
        rc = check_labels(&s->label, err);
    if (rc == 0)
        rc = check_pairs(&s->env_var, "env-var", err);
    parts->container = (struct container_spec){
        .image = s->image,
        .snapshot = s->snapshot,
        .allow = &s->network_allow,
        .region = s->region,
        .app = s->app_name,
        .resume = s->sandbox,
        .keep = end == 1,
        .life = s->timeout,
        .idle = s->idle_timeout,
        .volume = s->volume_name,
        .volume_subpath = s->volume_subpath,
        .network = settings_is_set(s, "network") ? s->network : NULL,
        .user = s->user,
        .gpus = parts->gpus.len ? buf_text(&parts->gpus) : s->gpus,
        .labels = &s->label,
        .pull = (enum container_pull)pull,
        .seccomp = (enum container_seccomp)seccomp,
        .disk = (uint64_t)s->disk_size,
        .writable_root = !s->read_only_root,
        .reuse = reuse == 1,
    };
    o->variables = &s->env_var;
    o->spec.container = &parts->container;
    return rc;
}

static int set_checkpoints(const struct settings *s, struct session_options *o, struct error *err)
{
    static const char *const words[] = { "no", "auto" };
    size_t word = 0;
    int rc = options_take_word("checkpoint", s->checkpoint, words, array_length(words), &word, err);
    o->checkpoint_each = word == 1;
    o->checkpoint_memory = (uint64_t)s->checkpoint_memory;
    return rc;
}

static int set_root(const struct settings *s, struct session_options *o, struct error *err)
{
    static const char *const roots[] = { "read-only", "private" };
    size_t root;
    int rc = options_take_word("root", s->root, roots, array_length(roots), &root, err);
    o->spec.private_root = root == 1;
    return rc;
}

static int set_egress(droste *d, const struct settings *s, struct session_parts *parts,
    struct session_options *o, struct error *err)
{
    const struct egress_limits limits = { .bytes = (uint64_t)s->max_net_bytes,
        .requests = (uint64_t)s->max_net_requests,
        .seconds = s->net_timeout };
    int rc = egress_policy_parse(&s->allow_net, &limits, &parts->egress, err);
    if (rc == 0 && parts->egress)
        rc = egress_policy_trust(parts->egress, s->net_ca, err);
    if (rc == 0)
        rc = api_add_secrets(d, s, parts->egress, err);
    if (rc == 0 && parts->egress)
        egress_policy_on_request(parts->egress, d->network_fn, d->network_arg);
    o->spec.egress = parts->egress;
    o->spec.loopback = o->spec.loopback || parts->egress;
    return rc;
}

/* What a local sandbox with an image cannot have. */
static int check_image(const struct settings *s, struct error *err)
{
    bool local = !s->env || strcmp(s->env, "local") == 0;
    if (!local || !(s->image || s->rootfs))
        return 0;
    if (api_packages_are_wanted(s))
        return error_set(err, ERROR_UNSUPPORTED,
            "packages are built for this machine's interpreter, not for an image's (--image, "
            "--rootfs); use an image that has them");
    if (s->sandbox_users && strchr(s->sandbox_users, '-'))
        return error_set(err, ERROR_UNSUPPORTED,
            "sandbox-users needs an interpreter that may change users, which an image's (--image, "
            "--rootfs) may not; leave it out");
    return 0;
}

/* ---- all of it ---- */

int api_session_options(droste *d, const struct settings *s, struct session_parts *parts,
    struct session_options *o, struct error *err)
{
    struct environment *env = NULL;
    *parts = (struct session_parts){ 0 };
    session_options_init(o);
    o->spec.python = s->python;
    o->spec.rootfs = s->rootfs;
    o->spec.preload = (const char *const *)s->preload.items;
    o->spec.preload_count = s->preload.count;
    o->spec.read_paths = (const char *const *)s->read.items;
    o->spec.read_path_count = s->read.count;
    /* A program that starts a second sandbox will probably start more. */
    if (!d->makes_image && (settings_is_set(s, "pool") || d->started))
        o->spec.pool = (unsigned)s->pool;
    d->started = true;
    o->spec.start_wait = s->start_wait;
    o->spec.one_start = !s->warm_up;
    o->spec.huge_pages = s->huge_pages;
    o->spec.loopback = s->loopback;
    o->spec.epoll = s->epoll;
    o->spec.limits = (struct jail_limits){
        .memory = (uint64_t)s->memory,
        .processes = (uint64_t)s->processes,
        .cpus = s->cpus,
        .cpu_time = (uint64_t)ceil(s->cpu_time),
        .open_files = (uint64_t)s->open_files,
        .file_size = (uint64_t)s->file_size,
        .tmp_size = (uint64_t)s->tmp_size,
    };
    o->output_limit = (size_t)s->output_limit;
    o->results_limit = (size_t)s->results_limit;
    o->result_size = (size_t)s->result_size;
    o->no_helpers = !s->helpers;
    o->literal_grep = s->literal_grep;
    int rc = set_timeouts(s, o, err);
    if (rc == 0)
        rc = set_checkpoints(s, o, err);
    if (rc == 0)
        rc = set_restored(s, o, err);
    if (rc == 0)
        rc = user_range_parse(s->sandbox_users, &o->spec.users, err);
    if (rc == 0)
        rc = read_setup(s, parts, o, err);
    if (rc == 0)
        rc = api_answer_type(s, &parts->answer, err);
    o->answer = parts->answer;
    o->spec.asked = asked_features(s);
    if (rc == 0)
        rc = api_environment(d, s, &env, err);
    if (rc == 0)
        rc = environment_check(env, &o->spec, err);
    if (rc == 0)
        rc = environment_layout(s->layout, &o->spec.layout, err);
    if (rc == 0 && s->rules)
        rc = lay_rules(s, parts, o, err);
    if (rc == 0)
        rc = set_devices(s, parts, o, err);
    if (rc == 0)
        rc = set_container(s, parts, o, err);
    if (rc == 0)
        rc = set_root(s, o, err);
    if (rc == 0)
        rc = set_egress(d, s, parts, o, err);
    if (rc == 0)
        rc = check_image(s, err);
    if (rc == 0)
        rc = api_packages_use(d, s, &parts->shown, &parts->packages, o, err);
    return rc < 0 ? rc
                  : isolation_parse(s->isolation ? s->isolation : "auto", &o->spec.isolation, err);
}

/* ---- runs ---- */

/* NULL, or what is wrong with the address of an image. A provider may be a server of the operator,
 * which reaches more than the public network. */
static const char *image_url_refusal(const char *url)
{
    static const char scheme[] = "https://";
    const char *authority = url + sizeof scheme - 1;
    struct egress_host host;
    unsigned port = 443;
    if (strncmp(url, scheme, sizeof scheme - 1) != 0)
        return "it does not begin with https://";
    if (strlen(url) > IMAGE_URL_MAX)
        return "it is too long";
    for (const char *at = url; *at; at++)
        if (*at <= ' ' || *at > '~')
            return "it has a space, or a character that has to be escaped";
    const char *why = egress_authority_parse(authority, strcspn(authority, "/?#"), &host, &port);
    if (!why && host.is_address)
        why = egress_address_refusal(&host.address);
    return why || host.is_address || strchr(host.name, '.') ? why : "its host has no full name";
}

int api_check_image_urls(const struct settings *s, struct error *err)
{
    for (size_t i = 0; i < s->image_url.count; i++) {
        const char *why = image_url_refusal(s->image_url.items[i]);
        if (why)
            return error_set(err, ERROR_ARGUMENT, "the address of an image, '%.100s': %s",
                s->image_url.items[i], why);
    }
    return 0;
}

static struct approval_hook_options ask_hook(const struct settings *s)
{
    return (struct approval_hook_options){ s->ask_webhook, s->ask_webhook_secret, s->ca_file };
}

int api_ask_check_rules(const struct settings *s, struct error *err)
{
    static const char *const defaults[] = { "deny", "approve" };
    const char *word = s->ask_default ? s->ask_default : "deny";
    const struct approval_hook_options hook = ask_hook(s);
    if (strcmp(word, "deny") == 0 || strcmp(word, "approve") == 0)
        return approval_hook_check(&hook, err);
    return suggest_refuse(
        "ask-default", word, defaults, sizeof *defaults, array_length(defaults), err);
}

/* Whether a name of "ask" is a tool, or "MODULE.*" of a module that exists. */
static bool options_ask_is_known(const struct tools *tools, const char *name)
{
    size_t n = strlen(name);
    bool is_module = n > 2 && strcmp(name + n - 2, ".*") == 0;
    cleanup_free char *module = is_module ? strndup(name, n - 2) : NULL;
    return module ? tools_have(tools, module) : tools_find(tools, name) != NULL;
}

int api_ask_check(const struct settings *s, const struct tools *tools, struct error *err)
{
    int rc = api_ask_check_rules(s, err);
    for (size_t i = 0; rc == 0 && i < s->ask.count; i++) {
        const char *name = s->ask.items[i];
        if (strcmp(name, "*") != 0 && !options_ask_is_known(tools, name))
            return error_set(err, ERROR_ARGUMENT,
                "ask '%.64s': the host has no tool of this name, so no call of it would ask", name);
    }
    return rc;
}

struct approval_rules api_ask_rules(const struct settings *s)
{
    return (struct approval_rules){ .tools = &s->ask,
        .timeout = s->ask_timeout,
        .deadline_approves = s->ask_default && strcmp(s->ask_default, "approve") == 0,
        .hook = ask_hook(s) };
}

struct rlm_options api_run_options(const struct settings *s)
{
    return (struct rlm_options){
        .limits = {
            .calls = s->max_llm_calls,
            .tool_calls = s->max_tool_calls,
            .record_bytes = s->max_record_size,
            .result_bytes = s->max_results_size,
            .input_tokens = s->max_input_tokens,
            .output_tokens = s->max_output_tokens,
            .total_tokens = s->max_total_tokens,
            .cost = s->max_cost,
            .ask_cost = s->ask_cost,
            .depth = (unsigned)s->max_recursion_depth,
            .children = (unsigned)s->max_children,
        },
        .sub_tools = s->sub_tools,
        .tool_timeout = s->tool_timeout,
        .ask = api_ask_rules(s),
        .call_timeout = s->call_timeout,
        .answer_timeout = api_broker_timeout(s),
        .max_tokens = s->max_tokens,
        .sub_max_tokens = settings_sub_max_tokens(s),
        .max_iterations = (unsigned)s->max_iterations,
        .child_iterations = (unsigned)s->delegate_max_iterations,
        .compaction = s->compaction,
        .window = s->model_window,
        .max_output_chars = (size_t)s->max_output_chars,
        .max_images = (unsigned)s->max_images,
        .images_of_all = settings_is_set(s, "max-images"),
        .show_images = s->show_images,
        .candidates = (unsigned)s->candidates,
        .max_errors = (unsigned)s->max_errors,
    };
}

static void options_choose(
    void *arg, const struct rlm_candidate *all, size_t count, struct rlm_choice *choice)
{
    const droste *d = arg;
    d->select_fn(
        d->select_arg, (const droste_candidate *)(const void *)all, count, (droste_choice *)choice);
}

_Static_assert(sizeof(droste_candidate) == sizeof(struct rlm_candidate) &&
                   offsetof(droste_candidate, failed) == offsetof(struct rlm_candidate, failed),
    "the public candidate is the inner one");

void droste_set_select(droste *d, droste_select_fn *fn, void *arg)
{
    d->select_fn = fn;
    d->select_arg = arg;
}

const char *droste_choice_opened(const droste_choice *choice)
{
    return rlm_choice_name((const struct rlm_choice *)choice);
}

void droste_choose(droste_choice *choice, unsigned number)
{
    rlm_choose((struct rlm_choice *)choice, number, NULL);
}

void droste_choose_none(droste_choice *choice, const char *why)
{
    struct error err = { 0 };
    error_set(&err, ERROR_ARGUMENT, "the selector failed: %.1500s", why);
    rlm_choose((struct rlm_choice *)choice, 0, &err);
}

int api_select(droste *d, const struct settings *s, struct rlm_options *o, struct error *err)
{
    int rc = rlm_select_parse(s->select ? s->select : "first", &o->select, err);
    if (rc == 0 && o->select == SELECT_PROGRAM && strlen(s->select) >= SELECT_NAME_SIZE)
        rc = error_set(err, ERROR_ARGUMENT, "select '%.40s…': the name is too long", s->select);
    o->select_name = s->select;
    o->choose = options_choose;
    o->choose_arg = d;
    if (rc == 0 && o->select == SELECT_PROGRAM && o->candidates > 1 && !d->select_fn)
        rc = error_set(err, ERROR_CONFIG,
            "select '%.40s' is a function of a program, and this one has none: use first, vote or "
            "model, or resume the run in that program",
            s->select);
    if (rc == 0 && o->candidates > 1 && !environment_ops_of(o->env)->fork)
        rc = error_set(err, ERROR_UNSUPPORTED,
            "candidates are forks of the session, which the environment '%s' cannot make; use "
            "--env local, or --candidates 1",
            environment_ops_of(o->env)->name);
    return rc;
}

int api_traceparent(const struct settings *s, const char **out, struct error *err)
{
    struct traceparent parsed;
    *out = s->traceparent && s->traceparent[0] ? s->traceparent : NULL;
    if (!*out || traceparent_parse(*out, &parsed))
        return 0;
    return error_set(err, ERROR_ARGUMENT,
        "traceparent '%.80s' is not 00-TRACE-SPAN-FLAGS with 32, 16 and 2 lower-case hexadecimal "
        "digits",
        *out);
}

static int prose_setting(const char *value, const char *name, struct buf *out, struct error *err)
{
    int rc = value ? api_text(value, name, out, err) : 0;
    if (rc == 0 && !text_is_utf8(buf_text(out), out->len, NULL))
        rc = error_set(err, ERROR_ARGUMENT, "the %s: not UTF-8", name);
    return rc;
}

int api_instructions(const struct settings *s, struct buf *out, struct error *err)
{
    return prose_setting(s->instructions, "instructions", out, err);
}

int api_system_prompt(const struct settings *s, struct buf *out, struct error *err)
{
    return prose_setting(s->system_prompt, "system prompt", out, err);
}
