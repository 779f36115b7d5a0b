/* env/clouds/vm/vm.c: the state machine of one machine.
 *
 *   creating ──► waiting ──► entering ──► live ── lost ──► judging ──► over
 *       └─────────────┴────────── failure ──────────────────────────► over
 *   any ── its session is over ──► leaving ──► freed
 *
 * A session that is closed during creation waits for the answer, so that the machine can be
 * deleted.
 */
#include "env/clouds/vm/provider.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/text.h"

enum {
    ANSWER_SECONDS = 60,
    CREATE_SECONDS = 120,
    START_SECONDS = 300,  /* until it runs */
    BUILD_SECONDS = 3000, /* while an image is built for it */
    BUILD_LOOK_MS = 5000,
    LOOK_FIRST_MS = 200,
    LOOK_LONGEST_MS = 5000,
    TOKEN_MARGIN = 60, /* seconds before its expiry a token is renewed */
    LEAVE_SECONDS = 30,
    /* when the environment closes, for the remaining machines to be deleted */
    GOODBYE_SECONDS = 15,
    /* without a message from the host: a program that thinks between its cells sends none */
    LEASE_SECONDS = 3600,
    REFUSALS_MOST = 6,
};

static void vm_enter(void *arg);
static void start_looking(struct vm *vm);

/* ---- requests ---- */

static const char *step_name(enum vm_step step)
{
    static const char *const names[] = { "creating a sandbox", "going on in sandbox", "sandbox",
        "a token for sandbox", "sandbox", "stopping sandbox", "deleting sandbox", "sandboxes" };
    return names[step];
}

/* 1: sent; 0: this step needs no request. */
static int vm_ask_provider(struct vm *vm, enum vm_step step, const struct sandbox_spec *spec,
    bool again, double seconds, rest_done_fn *done, struct rest_request **out, struct error *err)
{
    struct vm_ask what = { 0 };
    struct rest_request *unused;
    int rc = vm->env->provider->ask(vm, step, spec, &what, err);
    struct rest_ask sent = { .method = what.method,
        .path = buf_text(&what.path),
        .body = what.body,
        .headers = (const char *const *)&what.header,
        .header_count = what.header ? 1 : 0,
        .again = again,
        .seconds = seconds,
        .done = done,
        .arg = vm };
    if (rc == 0 && buf_failed(&what.path))
        rc = error_memory(err);
    if (rc == 0 && what.body && !vm->request_text && (step == VM_CREATE || step == VM_RESUME))
        vm->request_text = strdup(json_text(what.body, NULL));
    if (rc == 0 && what.method)
        rc = rest_send(vm->env->api, &sent, out ? out : &unused, err);
    bool asked = what.method != NULL;
    buf_free(&what.path);
    json_object_put(what.body);
    free(what.header);
    return rc < 0 ? rc : asked;
}

/* ---- the end ---- */

static void set_phase(struct vm *vm, enum vm_phase phase)
{
    vm->phase = phase;
    vm->since_ns = clock_ns();
}

static void vm_free(struct vm *vm)
{
    LIST_REMOVE(vm, link);
    rest_cancel(vm->request);
    rest_cancel(vm->staying);
    connect_cancel(vm->killing);
    process_service_close(vm->process);
    rest_close(vm->gate);
    timer_free(vm->timer);
    timer_free(vm->stay);
    list_clear(&vm->words);
    free(vm->token);
    free(vm->domain);
    free(vm->request_text);
    free(vm);
}

/* Reports the end, unless the session is over. */
static void vm_finish(struct vm *vm, const struct error *why)
{
    struct error cause = *why;
    if (vm->phase == PHASE_OVER || !vm->transport)
        return;
    set_phase(vm, PHASE_OVER);
    timer_stop(vm->timer);
    timer_stop(vm->stay);
    transport_ended(vm->transport, &cause);
}

static void vm_fail(struct vm *vm, const struct error *why, const char *what)
{
    struct error cause = *why;
    error_wrap(&cause, "%s%s%.40s", what, vm->id[0] ? " " : "", vm->id);
    vm_finish(vm, &cause);
}

static void fail_gone(struct vm *vm, const struct vm_facts *facts)
{
    struct error why = { 0 };
    bool began = vm->phase == PHASE_LIVE || vm->phase == PHASE_JUDGING;
    error_set(&why, began ? ERROR_LOST : ERROR_ENVIRONMENT,
        "%s's sandbox %.40s has ended: %.150s%s", vm->env->provider->title, vm->id, facts->words,
        began ? "; the cell's outcome is unknown" : "");
    vm_finish(vm, &why);
}

/* ---- leaving ---- */

static void vm_left(void *arg, const struct rest_answer *answer)
{
    struct vm *vm = arg;
    vm->request = NULL;
    vm_free(vm);
}

static void leave_now(struct vm *vm)
{
    enum vm_step step = vm->keep ? VM_KEEP : VM_DELETE;
    if (vm->id[0] == '\0' ||
        vm_ask_provider(vm, step, NULL, true, LEAVE_SECONDS, vm_left, &vm->request, NULL) != 1)
        vm_free(vm);
}

static void vm_killed(void *arg, const struct connect_result *result)
{
    struct vm *vm = arg;
    vm->killing = NULL;
    leave_now(vm);
}

/* A machine that is kept must not keep the program. */
static bool kill_program(struct vm *vm)
{
    static const struct connect_handler handler = { NULL, vm_killed };
    cleanup_buf struct buf path = { 0 }, message = { 0 };
    if (!vm->keep || !vm->process || !process_service_kill(vm->process, &path, &message))
        return false;
    return connect_send(vm->gate, buf_text(&path), &message, true, LEAVE_SECONDS, &handler, vm,
               &vm->killing, NULL) == 0;
}

static void vm_leave(void *own)
{
    struct vm *vm = own;
    bool creating = vm->phase == PHASE_CREATING;
    vm->transport = NULL;
    set_phase(vm, PHASE_LEAVING);
    timer_stop(vm->timer);
    timer_stop(vm->stay);
    rest_cancel(steal(&vm->staying));
    if (creating && vm->request)
        return; /* the answer has the id to delete */
    rest_cancel(steal(&vm->request));
    bool waits = kill_program(vm);
    process_service_close(steal(&vm->process));
    if (!waits)
        leave_now(vm);
}

/* ---- live ---- */

static void process_joined(void *arg)
{
    struct vm *vm = arg;
    transport_joined(vm->transport);
}

static void process_cut(void *arg)
{
    struct vm *vm = arg;
    transport_cut(vm->transport);
}

static void process_bytes(void *arg, const char *data, size_t len)
{
    struct vm *vm = arg;
    transport_bytes(vm->transport, data, len);
}

/* The API's answer about a machine that may be lost. */
static void vm_judged(void *arg, const struct rest_answer *answer)
{
    struct vm *vm = arg;
    struct vm_facts facts = { .health = VM_RUNS };
    struct error err = { 0 };
    vm->request = NULL;
    if (answer->error.code == ERROR_NOT_FOUND) {
        facts.health = VM_GONE;
        snprintf(facts.words, sizeof facts.words, "it no longer exists");
    } else if (answer->error.code == ERROR_NONE) {
        (void)vm->env->provider->read(vm, answer->body, &facts, &err);
    }
    if (facts.health == VM_GONE) {
        fail_gone(vm, &facts);
    } else if (vm->phase == PHASE_JUDGING) {
        struct error none = { 0 };
        if (vm->lost.code == ERROR_NONE)
            vm_finish(vm, &none);
        else
            vm_fail(vm, &vm->lost, "the program in sandbox");
    }
}

static bool vm_judge(struct vm *vm)
{
    return vm->request || vm_ask_provider(vm, VM_LOOK, NULL, true, LEAVE_SECONDS, vm_judged,
                              &vm->request, NULL) == 1;
}

static void process_doubtful(void *arg, const struct connect_result *why)
{
    vm_judge(arg);
}

static void vm_process_ended(void *arg, const struct error *why)
{
    struct vm *vm = arg;
    if (vm->phase != PHASE_LIVE)
        return;
    vm->lost = *why;
    set_phase(vm, PHASE_JUDGING);
    rest_cancel(steal(&vm->request));
    if (!vm_judge(vm))
        vm_fail(vm, why, "the program in sandbox");
}

static void vm_stayed(void *arg, const struct rest_answer *answer)
{
    struct vm *vm = arg;
    vm->staying =
        NULL; /* after a failure the next one may succeed; other events report that it is gone */
}

static void vm_stay(void *arg)
{
    struct vm *vm = arg;
    if (!vm->staying)
        vm_ask_provider(vm, VM_STAY, NULL, true, LEAVE_SECONDS, vm_stayed, &vm->staying, NULL);
}

static int vm_begin(struct vm *vm, struct error *err)
{
    static const struct process_events events = { process_joined, process_cut, process_bytes,
        vm_enter, process_doubtful, vm_process_ended };
    uint64_t ms = (uint64_t)(vm->stay_seconds * 1000);
    set_phase(vm, PHASE_LIVE);
    if (ms > 0)
        timer_start(vm->stay, ms, ms);
    return process_service_open(vm->env->loop, vm->gate, vm->env->provider->dialect,
        (const char *const *)vm->words.items, &events, vm, &vm->process, err);
}

/* ---- entering ---- */

static void vm_entered(struct vm *vm, struct json_object *answer)
{
    struct error err = { 0 };
    int rc = vm->env->provider->enter(vm, answer, &err);
    if (rc == 0 && !vm->process)
        rc = vm_begin(vm, &err);
    else if (rc == 0)
        process_service_renewed(vm->process);
    if (rc < 0)
        vm_fail(vm, &err, "entering sandbox");
}

/* A running machine may not be known everywhere yet: check whether it still runs. */
static void token_failed(struct vm *vm, const struct error *why)
{
    if (why->code == ERROR_PERMISSION || ++vm->refusals > REFUSALS_MOST) {
        vm_fail(vm, why, step_name(VM_ENTER));
        return;
    }
    timer_start(vm->timer, LOOK_FIRST_MS << vm->refusals, 0);
    if (vm->process)
        vm_judge(vm);
}

static void vm_token_answered(void *arg, const struct rest_answer *answer)
{
    struct vm *vm = arg;
    vm->request = NULL;
    if (answer->error.code != ERROR_NONE) {
        token_failed(vm, &answer->error);
        return;
    }
    vm->refusals = 0;
    vm_entered(vm, answer->body);
}

/* Requests a token, the first or a new one. */
static void vm_enter(void *arg)
{
    struct vm *vm = arg;
    struct error err = { 0 };
    if (vm->request && vm->phase == PHASE_LIVE)
        rest_cancel(steal(&vm->request));
    int rc = vm_ask_provider(
        vm, VM_ENTER, NULL, true, ANSWER_SECONDS, vm_token_answered, &vm->request, &err);
    if (rc == 0 && vm->process)
        rc = error_set(&err, ERROR_PERMISSION, "the token is no longer accepted");
    if (rc < 0)
        vm_fail(vm, &err, step_name(VM_ENTER));
    else if (rc == 0)
        vm_entered(vm, NULL);
}

/* Before it expires, but not immediately. */
static uint64_t renewal_ms(double seconds)
{
    double after = seconds > 2 * TOKEN_MARGIN ? seconds - TOKEN_MARGIN : seconds / 2;
    return (uint64_t)((after > 1 ? after : 1) * 1000);
}

int vm_gate(struct vm *vm, const char *base_url, const char *secret, const char *const *headers,
    size_t header_count, double seconds, struct error *err)
{
    char where[40];
    snprintf(where, sizeof where, "%s's sandbox", vm->env->provider->title);
    struct rest_options options = { .base_url = base_url,
        .name = where,
        .key_variable = "the account",
        .secret = secret,
        .headers = headers,
        .header_count = header_count,
        .ca_file = vm->env->ca_file,
        .connections = 8 };
    struct rest *gate = NULL, *before = vm->gate;
    int rc;
    if (before && strcmp(rest_base(before), base_url) == 0) {
        rc = rest_renew(before, secret, headers[0], err);
    } else {
        rc = rest_open(vm->env->loop, &options, &gate, err);
        if (rc == 0) {
            vm->gate = gate;
            if (vm->process)
                process_service_move(vm->process, gate);
            rest_close(before);
        }
    }
    if (rc == 0 && seconds > 0)
        timer_start(vm->timer, renewal_ms(seconds), 0);
    return rc;
}

/* ---- until it runs ---- */

static void take_facts(struct vm *vm, struct json_object *answer, const char *what)
{
    struct vm_facts facts = { .health = VM_STARTS };
    struct error err = { 0 };
    int rc = vm->env->provider->read(vm, answer, &facts, &err);
    if (facts.id[0] && vm->id[0] == '\0')
        memcpy(vm->id, facts.id, sizeof vm->id);
    if (rc == 0 && vm->id[0] == '\0')
        rc = error_set(
            &err, ERROR_PROTOCOL, "%s did not send the sandbox's id", vm->env->provider->title);
    if (!vm->transport) {
        leave_now(vm);
    } else if (rc < 0) {
        vm_fail(vm, &err, what);
    } else if (facts.health == VM_GONE) {
        fail_gone(vm, &facts);
    } else if (facts.health == VM_RUNS) {
        set_phase(vm, PHASE_ENTERING);
        vm_enter(vm);
    } else {
        if (facts.health == VM_BUILDS && !vm->notice_sent)
            transport_notice(vm->transport, facts.words);
        vm->notice_sent |= facts.health == VM_BUILDS;
        if (vm->phase != PHASE_WAITING)
            set_phase(vm, PHASE_WAITING);
        start_looking(vm);
    }
}

static void vm_looked(void *arg, const struct rest_answer *answer)
{
    struct vm *vm = arg;
    vm->request = NULL;
    if (answer->error.code == ERROR_NONE)
        take_facts(vm, answer->body, step_name(VM_LOOK));
    else
        vm_fail(vm, &answer->error, "waiting for sandbox");
}

static void vm_look(struct vm *vm)
{
    struct error err = { 0 };
    double seconds = clock_seconds_since(vm->since_ns);
    int most = vm->notice_sent ? BUILD_SECONDS : START_SECONDS;
    if (seconds > most)
        error_set(&err, ERROR_TIMEOUT, "it was not running after %d s", most);
    else
        vm_ask_provider(vm, VM_LOOK, NULL, true, ANSWER_SECONDS, vm_looked, &vm->request, &err);
    if (err.code != ERROR_NONE)
        vm_fail(vm, &err, "waiting for sandbox");
}

static void start_looking(struct vm *vm)
{
    unsigned ms = LOOK_FIRST_MS << (vm->looks < 5 ? vm->looks : 5);
    vm->looks++;
    timer_start(vm->timer,
        vm->notice_sent        ? BUILD_LOOK_MS
        : ms < LOOK_LONGEST_MS ? ms
                               : LOOK_LONGEST_MS,
        0);
}

static void vm_timer_due(void *arg)
{
    struct vm *vm = arg;
    if (vm->phase == PHASE_WAITING)
        vm_look(vm);
    else if (vm->phase == PHASE_LIVE || vm->phase == PHASE_ENTERING)
        vm_enter(vm);
}

static void vm_created(void *arg, const struct rest_answer *answer)
{
    struct vm *vm = arg;
    vm->request = NULL;
    if (answer->error.code == ERROR_NONE)
        take_facts(vm, answer->body, step_name(VM_CREATE));
    else if (!vm->transport)
        leave_now(vm);
    else
        vm_fail(vm, &answer->error, step_name(vm->resumed ? VM_RESUME : VM_CREATE));
}

/* ---- the interface of transports ---- */

/* Checks the network policy: "none", "open", or a list of destinations. */
static int vm_check_network(
    const struct vms *env, const struct sandbox_spec *spec, struct error *err)
{
    const char *network = sandbox_container(spec)->network;
    if (!network || strcmp(network, "none") == 0 || strcmp(network, "open") == 0)
        return 0;
    return error_set(err, ERROR_UNSUPPORTED,
        "%s has no network '%.40s': use none or open, or list the allowed destinations with "
        "--network-allow",
        env->provider->title, network);
}

static int vm_fill(
    struct vm *vm, const struct sandbox_spec *spec, const char *const *words, struct error *err)
{
    const struct container_spec *c = sandbox_container(spec);
    int rc = vm_check_network(vm->env, spec, err);
    for (size_t i = 0; rc == 0 && words[i]; i++)
        rc = list_add(&vm->words, words[i], err);
    if (rc == 0)
        rc = list_add_end(&vm->words, err);
    if (rc == 0)
        rc = random_uuid(vm->key, err);
    vm->keep = c->keep;
    vm->resumed = c->resume != NULL;
    if (rc == 0 && c->resume && strlen(c->resume) >= sizeof vm->id)
        rc = error_set(err, ERROR_ARGUMENT, "'%.40s...' is not the id of a sandbox", c->resume);
    if (rc == 0 && c->resume)
        snprintf(vm->id, sizeof vm->id, "%s", c->resume);
    if (rc == 0 && (!vm->timer || !vm->stay))
        rc = error_memory(err);
    return rc;
}

static int vm_start(void *arg, struct transport *transport, const struct sandbox_spec *spec,
    const char *const *words, void **own, struct error *err)
{
    struct vms *env = arg;
    struct vm *vm = calloc(1, sizeof *vm);
    if (!vm)
        return error_memory(err);
    vm->env = env;
    vm->transport = transport;
    vm->timer = timer_new(env->loop, vm_timer_due, vm);
    vm->stay = timer_new(env->loop, vm_stay, vm);
    LIST_INSERT_HEAD(&env->all, vm, link);
    set_phase(vm, PHASE_CREATING);
    int rc = vm_fill(vm, spec, words, err);
    if (rc == 0)
        rc = vm_ask_provider(vm, vm->resumed ? VM_RESUME : VM_CREATE, spec, true, CREATE_SECONDS,
            vm_created, &vm->request, err);
    if (rc < 0) {
        vm_free(vm);
        return rc;
    }
    *own = vm;
    return 0;
}

static void vm_write(void *own, const struct iovec *iov, int count)
{
    struct vm *vm = own;
    if (vm->process && vm->phase == PHASE_LIVE)
        process_service_write(vm->process, iov, count);
}

static size_t vm_waiting(void *own)
{
    const struct vm *vm = own;
    return vm->process ? process_service_waiting(vm->process) : 0;
}

static const char *vm_id(void *own)
{
    const struct vm *vm = own;
    return vm->id[0] ? vm->id : NULL;
}

static void vm_describe(void *own, struct buf *out)
{
    const struct vm *vm = own;
    buf_printf(out, "a virtual machine of %s%s%s, created with:\n%s\n", vm->env->provider->title,
        vm->id[0] ? ": " : "", vm->id, vm->request_text ? vm->request_text : "nothing");
}

static bool vm_settling(const void *arg)
{
    const struct vms *env = arg;
    const struct vm *vm;
    LIST_FOREACH(vm, &env->all, link)
    if (vm->phase == PHASE_LEAVING)
        return true;
    return false;
}

/* ---- machines of dead hosts ---- */

static int vm_orphans_ask(struct vms *env, enum vm_step step, const char *id, const char *cursor,
    rest_done_fn *done, struct error *err)
{
    struct vm vm = { .env = env }; /* stands for the machine that the request is about */
    struct vm_ask what = { .cursor = cursor };
    snprintf(vm.id, sizeof vm.id, "%s", id);
    int rc = env->provider->ask(&vm, step, NULL, &what, err);
    struct rest_ask sent = { .method = what.method,
        .path = buf_text(&what.path),
        .body = what.body,
        .tell_header = env->provider->cursor_header,
        .again = true,
        .seconds = ANSWER_SECONDS,
        .done = done,
        .arg = env };
    if (rc == 0)
        rc = rest_send(env->api, &sent, &env->collecting, err);
    buf_free(&what.path);
    json_object_put(what.body);
    free(what.header);
    return rc;
}

static void vm_orphans_listed(void *arg, const struct rest_answer *answer)
{
    struct vms *env = arg;
    const struct vm_provider *provider = env->provider;
    bool good = answer->error.code == ERROR_NONE;
    cleanup_buf struct buf cursor = { 0 };
    char id[VM_ID_SIZE];
    env->collecting = NULL;
    for (size_t i = 0; good; i++) {
        cleanup_buf struct buf owner = { 0 }, machine = { 0 };
        if (!provider->listed(answer->body, i, id, &owner, &machine))
            break;
        orphans_note(&env->orphans, id, buf_text(&owner), buf_text(&machine));
    }
    bool more = good && provider->more(answer, &cursor) && !buf_failed(&cursor);
    orphans_listed(&env->orphans, &answer->error, more ? buf_text(&cursor) : NULL);
}

static int vm_orphans_list(void *arg, const char *cursor, struct error *err)
{
    return vm_orphans_ask(arg, VM_LIST, "", cursor, vm_orphans_listed, err);
}

static void vm_orphan_removed(void *arg, const struct rest_answer *answer)
{
    struct vms *env = arg;
    env->collecting = NULL;
    orphans_removed(&env->orphans, &answer->error);
}

static int vm_orphan_remove(void *arg, const char *id, struct error *err)
{
    return vm_orphans_ask(arg, VM_DELETE, id, NULL, vm_orphan_removed, err);
}

static int vm_collect(void *arg, environment_collected_fn *done, void *done_arg, struct error *err)
{
    static const struct orphans_ops ops = { vm_orphans_list, vm_orphan_remove };
    struct vms *env = arg;
    return orphans_collect(&env->orphans, &ops, env, done, done_arg, err);
}

/* ---- the environment ---- */

static void vms_free(struct vms *env)
{
    struct vm *vm;
    rest_cancel(steal(&env->collecting));
    orphans_cancel(&env->orphans);
    while ((vm = LIST_FIRST(&env->all)))
        vm_free(vm);
    rest_close(env->api);
    free(env->ca_file);
    for (size_t i = 0; i < VM_SETTINGS; i++)
        free(env->settings[i]);
    free(env);
}

/* Waits for a limited time until the remaining machines are deleted. */
static void vms_wait_for_deletions(void *arg)
{
    struct vms *env = arg;
    uint64_t begun = clock_ns();
    while (!LIST_EMPTY(&env->all) && clock_seconds_since(begun) < GOODBYE_SECONDS)
        loop_turn(env->loop, 1000);
    vms_free(env);
}

char *vm_variable(const char *name)
{
    const char *value = getenv(name);
    return value && value[0] ? strdup(value) : NULL;
}

int vm_configured(const struct vm_provider *provider, struct error *err)
{
    const char *key = getenv(provider->key_variable);
    return key && key[0] ? 0
                         : error_set(err, ERROR_CONFIG, "%s needs a key: set %s", provider->title,
                               provider->key_variable);
}

static int vms_reach(struct vms *env, const char *url, struct error *err)
{
    const struct vm_provider *provider = env->provider;
    const char *key = getenv(provider->key_variable);
    cleanup_free char *header = text_printf("%s%s", provider->key_header, key);
    const char *headers[] = { header };
    struct rest_options api = { .base_url = url,
        .name = provider->title,
        .key_variable = provider->key_variable,
        .secret = key,
        .headers = headers,
        .header_count = 1,
        .ca_file = env->ca_file };
    return header ? rest_open(env->loop, &api, &env->api, err) : error_memory(err);
}

int vms_open(struct loop *loop, const struct vm_provider *provider, const char *url,
    const struct environment_options *options, struct environment **out, struct error *err)
{
    int rc = vm_configured(provider, err);
    if (rc < 0)
        return rc;
    struct vms *env = calloc(1, sizeof *env);
    if (!env)
        return error_memory(err);
    *env = (struct vms){ .loop = loop, .provider = provider };
    LIST_INIT(&env->all);
    env->ca_file = options->ca_file ? strdup(options->ca_file) : NULL;
    for (size_t i = 0; i < VM_SETTINGS && provider->settings[i]; i++)
        env->settings[i] = vm_variable(provider->settings[i]);
    rc = !url || (options->ca_file && !env->ca_file) ? error_memory(err) : vms_reach(env, url, err);
    if (rc < 0) {
        vms_free(env);
        return rc;
    }
    env->ops = (struct transport_ops){ .name = provider->name,
        .features = provider->features,
        .form = LINK_BARE,
        .lease = LEASE_SECONDS,
        .start = vm_start,
        .write = vm_write,
        .waiting = vm_waiting,
        .end = vm_leave,
        .id = vm_id,
        .settling = vm_settling,
        .collect = vm_collect,
        .describe = vm_describe,
        .free = vms_wait_for_deletions };
    return stdio_env_open(loop, &env->ops, env, out, err);
}
