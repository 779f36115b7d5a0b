/* What Prime and E2B are asked for, and what their answers mean, without a service: vm.c, which
 * sends the requests, is replaced here. */
#include "../test.h"

#include "base/cleanup.h"
#include "base/text.h"
#include "env/clouds/vm/provider.h"

static const struct vm_provider *prime, *e2b;
static struct buf gate; /* what vm_gate was called with */
static char *api_url;
static const char *api_base = "https://api.example";

int vms_open(struct loop *loop, const struct vm_provider *provider, const char *url,
    const struct environment_options *options, struct environment **out, struct error *err)
{
    *(strcmp(provider->name, "e2b") == 0 ? &e2b : &prime) = provider;
    free(api_url);
    api_url = strdup(url);
    return 0;
}

int vm_gate(struct vm *vm, const char *base_url, const char *secret, const char *const *headers,
    size_t header_count, double seconds, struct error *err)
{
    buf_clear(&gate);
    buf_printf(&gate, "%s|%s|%s|%s", base_url, secret, headers[0],
        seconds == 0   ? "as long"
        : seconds <= 1 ? "over"
                       : "later");
    return 0;
}

char *vm_variable(const char *name)
{
    const char *value = getenv(name);
    return value && value[0] ? strdup(value) : NULL;
}

int vm_configured(const struct vm_provider *provider, struct error *err)
{
    return 0;
}

const char *rest_base(const struct rest *r)
{
    return api_base;
}

static struct vms env;
static struct vm vm;
static struct container_spec container;
static struct sandbox_spec spec = { .container = &container };

static int providers_setup(void **state)
{
    struct environment *unused;
    env = (struct vms){ 0 };
    vm = (struct vm){ .env = &env, .id = "a/b", .key = "0123456789abcdef" };
    container = (struct container_spec){ 0 };
    spec.limits = (struct jail_limits){ 0 };
    assert_ok(prime_environment.open(NULL, NULL, &unused, err));
    assert_ok(e2b_environment.open(NULL, NULL, &unused, err));
    return 0;
}

static int providers_teardown(void **state)
{
    free(steal(&vm.token));
    free(steal(&vm.domain));
    free(steal(&api_url));
    buf_free(&gate);
    return 0;
}

static void ask_free(struct vm_ask *ask)
{
    buf_free(&ask->path);
    json_object_put(ask->body);
    free(ask->header);
}

/* "METHOD PATH" of a step; "" for none. */
static void asks(
    const struct vm_provider *p, enum vm_step step, const char *cursor, const char *expected)
{
    struct vm_ask ask = { .cursor = cursor };
    cleanup_buf struct buf line = { 0 };
    assert_ok(p->ask(&vm, step, step == VM_RESUME ? &spec : NULL, &ask, err));
    if (ask.method)
        buf_printf(&line, "%s %s", ask.method, buf_text(&ask.path));
    assert_string_equal(buf_text(&line), expected);
    ask_free(&ask);
}

/* An id of the service cannot leave its place in a path. */
static void each_step_has_its_request(void **state)
{
    asks(prime, VM_LOOK, NULL, "GET /api/v1/sandbox/a%2Fb");
    asks(prime, VM_ENTER, NULL, "POST /api/v1/sandbox/a%2Fb/auth");
    asks(prime, VM_DELETE, NULL, "DELETE /api/v1/sandbox/a%2Fb");
    asks(prime, VM_STAY, NULL, "");
    asks(prime, VM_KEEP, NULL, "");
    asks(prime, VM_LIST, NULL,
        "GET /api/v1/sandbox?labels=droste&is_active=true&page=1&per_page=100");
    env.settings[0] = (char[]){ "my team" };
    asks(prime, VM_LIST, "2",
        "GET /api/v1/sandbox?labels=droste&is_active=true&page=2&per_page=100&team_id=my%20team");
    asks(e2b, VM_LOOK, NULL, "GET /sandboxes/a%2Fb");
    asks(e2b, VM_RESUME, NULL, "POST /v2/sandboxes/a%2Fb/connect");
    asks(e2b, VM_STAY, NULL, "POST /sandboxes/a%2Fb/timeout");
    asks(e2b, VM_KEEP, NULL, "POST /sandboxes/a%2Fb/pause");
    asks(e2b, VM_DELETE, NULL, "DELETE /sandboxes/a%2Fb");
    asks(e2b, VM_ENTER, NULL, "");
    asks(e2b, VM_LIST, "a&b", "GET /v2/sandboxes?metadata=droste%3D1&limit=100&nextToken=a%26b");
}

static struct json_object *body_of(const struct vm_provider *p)
{
    struct vm_ask ask = { 0 };
    assert_ok(p->ask(&vm, VM_CREATE, &spec, &ask, err));
    struct json_object *body = json_object_get(ask.body);
    ask_free(&ask);
    return body;
}

static void has(struct json_object *body, const char *member, const char *text)
{
    struct json_object *found = json_object_object_get(body, member);
    if (!found || strcmp(json_text(found, NULL), text) != 0)
        fail_msg("%s is %s, not %s", member, found ? json_text(found, NULL) : "missing", text);
}

/* A machine that its host cannot delete ends by itself, and reaches nothing. */
static void a_machine_has_an_end_and_no_network(void **state)
{
    cleanup_json struct json_object *p = body_of(prime), *e = body_of(e2b);
    has(p, "network_allowlist", "[]");
    has(p, "timeout_minutes", "60");
    has(p, "idle_timeout_minutes", "15");
    has(p, "vm", "true");
    has(p, "name", "\"droste-01234567\"");
    has(e, "allow_internet_access", "false");
    has(e, "timeout", "900");
    has(e, "autoPause", "false");
    assert_null(json_object_object_get(e, "network"));
}

static void sizes_are_rounded_up_to_what_the_service_counts_in(void **state)
{
    container = (struct container_spec){
        .disk = (5ull << 30) + 1, .gpus = "H100_80GB:2", .life = 61, .idle = 30
    };
    spec.limits.memory = (1ull << 30) + 1;
    spec.limits.cpus = 0.5;
    cleanup_json struct json_object *body = body_of(prime);
    has(body, "memory_gb", "2");
    has(body, "disk_size_gb", "6");
    has(body, "cpu_cores", "0.5");
    has(body, "gpu_type", "\"H100_80GB\"");
    has(body, "gpu_count", "2");
    has(body, "timeout_minutes", "3"); /* a minute longer than its session */
    has(body, "idle_timeout_minutes", "1");
    container.gpus = "A100:0";
    cleanup_json struct json_object *none = body_of(prime);
    has(none, "gpu_count", "1");
}

static void destinations_are_passed_on(void **state)
{
    struct list allow = { 0 };
    assert_ok(list_add(&allow, "pypi.org", err));
    container.allow = &allow;
    cleanup_json struct json_object *p = body_of(prime), *e = body_of(e2b);
    has(p, "network_allowlist", "[\"pypi.org\"]");
    has(e, "allow_internet_access", "true");
    has(e, "network", "{\"allowOut\":[\"pypi.org\"],\"denyOut\":[\"0.0.0.0/0\"]}");
    list_clear(&allow);
    container.network = "open";
    cleanup_json struct json_object *po = body_of(prime), *eo = body_of(e2b);
    assert_null(json_object_object_get(po, "network_allowlist"));
    has(eo, "allow_internet_access", "true");
}

static void a_life_beyond_a_day_is_refused(void **state)
{
    const struct vm_provider *all[] = { prime, e2b };
    for (size_t i = 0; i < 2; i++) {
        struct vm_ask ask = { 0 };
        container.life = 24 * 3600 + 1;
        assert_fails_saying(
            ERROR_UNSUPPORTED, "one day", all[i]->ask(&vm, VM_CREATE, &spec, &ask, err));
        ask_free(&ask);
        container.life = 24 * 3600;
        json_object_put(body_of(all[i]));
    }
}

/* Reads an answer as text; returns the health, or the negative error. */
static int health(const struct vm_provider *p, const char *text, struct vm_facts *facts)
{
    cleanup_json struct json_object *o = json_tokener_parse(text);
    struct error err = { 0 };
    *facts = (struct vm_facts){ 0 };
    assert_non_null(o);
    int rc = p->read(&vm, o, facts, &err);
    return rc < 0 ? rc : (int)facts->health;
}

static void answers_tell_the_state_of_a_machine(void **state)
{
    struct vm_facts f;
    assert_int_equal(health(prime, "{\"id\":\"m\",\"status\":\"PENDING\"}", &f), VM_STARTS);
    assert_int_equal(
        health(prime, "{\"id\":\"m\",\"status\":\"PENDING\",\"pendingImageBuildId\":\"1\"}", &f),
        VM_BUILDS);
    assert_int_equal(
        health(prime, "{\"id\":\"m\",\"status\":\"RUNNING\",\"vm\":true}", &f), VM_RUNS);
    assert_string_equal(f.id, "m");
    assert_int_equal(health(prime, "{\"id\":\"m\",\"status\":\"RUNNING\"}", &f),
        -ERROR_UNSUPPORTED); /* a container */
    assert_int_equal(health(prime,
                         "{\"id\":\"m\",\"status\":\"ERROR\",\"errorType\":\"OOM\","
                         "\"errorMessage\":\"no \\u001b[1m room\"}",
                         &f),
        VM_GONE);
    assert_string_equal(f.words, "ERROR, OOM: no \\x1b[1m room");
    assert_int_equal(health(e2b, "{\"sandboxID\":\"m\"}", &f), VM_RUNS);
    assert_int_equal(health(e2b, "{\"sandboxID\":\"m\",\"state\":\"paused\"}", &f), VM_GONE);
    assert_string_equal(f.words, "its state is paused");
}

static void answers_of_no_machine_are_refused(void **state)
{
    char id[VM_ID_SIZE + 1], text[VM_ID_SIZE + 60];
    struct vm_facts f;
    memset(id, 'x', VM_ID_SIZE);
    id[VM_ID_SIZE] = '\0';
    assert_int_equal(health(prime, "{}", &f), -ERROR_PROTOCOL);
    assert_int_equal(health(prime, "{\"id\":1,\"status\":[]}", &f), -ERROR_PROTOCOL);
    assert_int_equal(health(e2b, "[]", &f), -ERROR_PROTOCOL);
    snprintf(text, sizeof text, "{\"id\":\"%s\",\"status\":\"RUNNING\",\"vm\":true}", id);
    assert_int_equal(health(prime, text, &f), -ERROR_PROTOCOL);
    snprintf(text, sizeof text, "{\"sandboxID\":\"%s\"}", id);
    assert_int_equal(health(e2b, text, &f), -ERROR_PROTOCOL);
}

static int prime_enters(const char *gateway, const char *until, struct error *err)
{
    cleanup_free char *text = text_printf("{\"gateway_url\":\"%s\",\"user_ns\":\"u/1\",\"job_id\":"
                                          "\"j\",\"token\":\"secret\",\"expires_at\":\"%s\"}",
        gateway, until);
    cleanup_json struct json_object *o = json_tokener_parse(text);
    return prime->enter(&vm, o, err);
}

/* The token goes where the API says, but to no address without TLS if the API has it. */
static void prime_says_where_its_machine_is(void **state)
{
    assert_ok(prime_enters("https://gate.example//", "2199-01-01T00:00:00Z", err));
    assert_string_equal(
        buf_text(&gate), "https://gate.example/u%2F1/j|secret|Authorization: Bearer secret|later");
    assert_ok(prime_enters("https://gate.example", "2001-01-01T00:00:00.5Z", err));
    assert_non_null(strstr(buf_text(&gate), "|over"));
    assert_ok(prime_enters("https://gate.example", "soon", err));
    assert_non_null(strstr(buf_text(&gate), "|as long"));
    assert_fails_saying(ERROR_PROTOCOL, "without TLS",
        prime_enters("http://gate.example", "2199-01-01T00:00:00Z", err));
    api_base = "http://127.0.0.1:1";
    assert_ok(prime_enters("http://127.0.0.1:2", "2199-01-01T00:00:00Z", err));
    api_base = "https://api.example";
    cleanup_json struct json_object *empty = json_object_new_object();
    assert_fails(ERROR_PROTOCOL, prime->enter(&vm, empty, err));
}

static void e2bs_machines_have_a_host_of_their_own_or_share_one(void **state)
{
    struct vm_facts f;
    assert_int_equal(
        health(e2b, "{\"sandboxID\":\"m\",\"envdAccessToken\":\"secret\"}", &f), VM_RUNS);
    snprintf(vm.id, sizeof vm.id, "m");
    assert_ok(e2b->enter(&vm, NULL, err));
    assert_string_equal(
        buf_text(&gate), "https://sandbox.e2b.app|secret|X-Access-Token: secret|as long");
    vm.domain = strdup("cloud.example");
    assert_ok(e2b->enter(&vm, NULL, err));
    assert_non_null(strstr(buf_text(&gate), "https://49983-m.cloud.example|"));
    env.settings[1] = (char[]){ "http://127.0.0.1:3" };
    assert_ok(e2b->enter(&vm, NULL, err));
    assert_non_null(strstr(buf_text(&gate), "http://127.0.0.1:3|"));
}

static void lists_are_read_to_their_end(void **state)
{
    cleanup_json struct json_object *p =
        json_tokener_parse("{\"sandboxes\":[{\"id\":\"m\",\"labels\":[\"droste\",\"droste.owner=1 2"
                           "\",7,\"droste.machine=here\"]},{}],\"hasNext\":true,\"page\":3}");
    cleanup_json struct json_object *e =
        json_tokener_parse("[{\"sandboxID\":\"n\",\"metadata\":{\"droste.owner\":\"1 2\"}}]");
    struct rest_answer page = { .body = p }, last = { .body = e }, next = { .header = "tok" };
    cleanup_buf struct buf owner = { 0 }, machine = { 0 }, cursor = { 0 };
    char id[VM_ID_SIZE];
    assert_true(prime->listed(p, 0, id, &owner, &machine));
    assert_string_equal(id, "m");
    assert_string_equal(buf_text(&owner), "1 2");
    assert_string_equal(buf_text(&machine), "here");
    assert_true(prime->listed(p, 1, id, &owner, &machine));
    assert_string_equal(id, "");
    assert_false(prime->listed(p, 2, id, &owner, &machine));
    assert_true(prime->more(&page, &cursor));
    assert_string_equal(buf_text(&cursor), "4");
    assert_false(prime->more(&last, &cursor));
    buf_clear(&owner);
    buf_clear(&cursor);
    assert_true(e2b->listed(e, 0, id, &owner, &machine));
    assert_string_equal(buf_text(&owner), "1 2");
    assert_false(e2b->listed(e, 1, id, &owner, &machine));
    assert_false(e2b->listed(p, 0, id, &owner, &machine));
    assert_false(e2b->more(&last, &cursor));
    assert_true(e2b->more(&next, &cursor));
}

/* As Prime's own tools, the variable may end in /api/v1. */
static void addresses_come_from_the_environment(void **state)
{
    static const char *const urls[][2] = { { "https://x.example/api/v1/", "https://x.example" },
        { "https://x.example", "https://x.example" } };
    struct environment *unused;
    assert_string_equal(api_url, "https://api.e2b.app");
    for (size_t i = 0; i < 2; i++) {
        setenv("PRIME_API_BASE_URL", urls[i][0], 1);
        assert_ok(prime_environment.open(NULL, NULL, &unused, err));
        assert_string_equal(api_url, urls[i][1]);
    }
    unsetenv("PRIME_API_BASE_URL");
    setenv("E2B_DOMAIN", "cloud.example", 1);
    assert_ok(e2b_environment.open(NULL, NULL, &unused, err));
    assert_string_equal(api_url, "https://api.cloud.example");
    unsetenv("E2B_DOMAIN");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, providers_setup, providers_teardown)
    const struct CMUnitTest tests[] = {
        TEST(each_step_has_its_request),
        TEST(a_machine_has_an_end_and_no_network),
        TEST(sizes_are_rounded_up_to_what_the_service_counts_in),
        TEST(destinations_are_passed_on),
        TEST(a_life_beyond_a_day_is_refused),
        TEST(answers_tell_the_state_of_a_machine),
        TEST(answers_of_no_machine_are_refused),
        TEST(prime_says_where_its_machine_is),
        TEST(e2bs_machines_have_a_host_of_their_own_or_share_one),
        TEST(lists_are_read_to_their_end),
        TEST(addresses_come_from_the_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
