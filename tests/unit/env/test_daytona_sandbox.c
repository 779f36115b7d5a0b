/* The life of a Daytona sandbox, step by step, with a service that does what a test says: the REST
 * client, the terminal and the transport are replaced here. */
#include "../test.h"

#include "base/cleanup.h"
#include "env/clouds/daytona/create.h"
#include "env/clouds/daytona/sandbox.h"
#include "env/clouds/daytona/terminal.h"

/* ---- what sandbox.c uses ---- */

struct rest_request {
    struct rest_ask ask;
    bool live;
};
static struct rest_request requests[32];
static size_t sent;
static bool was_asked, has_ended;
static struct error end;
static struct buf story;
static int the_terminal;
static struct terminal_events terminal_hooks;
static void *terminal_arg;

static const char *const directories[] = { "notes", NULL };
const struct layout daytona_layout = { .directories = directories };

int rest_send(
    struct rest *r, const struct rest_ask *ask, struct rest_request **out, struct error *err)
{
    struct rest_request *q = &requests[sent++];
    assert_true(sent <= array_length(requests));
    *q = (struct rest_request){ .ask = *ask, .live = true };
    q->ask.body = json_object_get(ask->body); /* until the test's end */
    buf_printf(&story, "%s %s;", ask->method, ask->path);
    was_asked = true;
    *out = q;
    return 0;
}

void rest_cancel(struct rest_request *q)
{
    if (q)
        q->live = false;
}

int terminal_open(const struct daytona_account *account, const char *base, const char *first,
    const char *const *words, const struct terminal_events *events, void *arg,
    struct terminal **out, struct error *err)
{
    buf_printf(&story, "run at %s;", base);
    terminal_hooks = *events;
    terminal_arg = arg;
    *out = (struct terminal *)&the_terminal;
    return 0;
}

void terminal_write(struct terminal *t, const struct iovec *iov, int count)
{
}

size_t terminal_waiting(const struct terminal *t)
{
    return 0;
}

void terminal_pause(struct terminal *t, bool paused)
{
}

void terminal_retry(struct terminal *t)
{
    buf_puts(&story, "retry;");
}

void terminal_close(struct terminal *t)
{
}

void transport_joined(struct transport *c)
{
}

void transport_bytes(struct transport *c, const char *data, size_t len)
{
}

void transport_cut(struct transport *c)
{
}

void transport_notice(struct transport *c, const char *text)
{
}

void transport_ended(struct transport *c, const struct error *why)
{
    assert_false(has_ended);
    has_ended = true;
    end = *why;
}

/* ---- the tests ---- */

static struct daytona_account account;
static void *box;
static int the_transport;

static int sandbox_setup(void **state)
{
    memset(requests, 0, sizeof requests);
    sent = 0;
    has_ended = false;
    end = (struct error){ 0 };
    account = (struct daytona_account){ 0 };
    LIST_INIT(&account.sandboxes);
    assert_ok(loop_open(&account.loop, err));
    return 0;
}

static int sandbox_teardown(void **state)
{
    if (box)
        daytona_sandbox_free(box);
    box = NULL;
    for (size_t i = 0; i < array_length(requests); i++)
        json_object_put(requests[i].ask.body);
    buf_free(&story);
    loop_close(account.loop);
    return 0;
}

/* The next request is sent by a timer. */
static void wait_for_request(void)
{
    was_asked = false;
    assert_ok(loop_run_until(account.loop, &was_asked, err));
}

static void begin_with(const struct container_spec *c)
{
    static const char *const words[] = { "python3", NULL };
    struct sandbox_spec spec = { .limits = jail_default_limits, .container = c };
    const size_t before = sent;
    assert_ok(daytona_sandbox_start(
        &account, (struct transport *)&the_transport, &spec, words, &box, err));
    assert_int_equal(sent, before); /* not within the call */
    wait_for_request();
}

/* The service's answer to the last request. */
static void answer(long status, enum error_code code, const char *text)
{
    struct rest_request *q = &requests[sent - 1];
    cleanup_json struct json_object *body = text ? json_tokener_parse(text) : NULL;
    struct rest_answer a = { .status = status, .body = body };
    if (code != ERROR_NONE)
        error_set(&a.error, code, "the service says no");
    assert_true(q->live);
    q->live = false;
    q->ask.done(q->ask.arg, &a);
}

static void happened(const char *expected)
{
    assert_string_equal(buf_text(&story), expected);
    buf_clear(&story);
}

static void run_sandbox(void)
{
    begin_with(NULL);
    answer(200, ERROR_NONE,
        "{\"id\":\"s1\",\"state\":\"started\",\"toolboxProxyUrl\":\"https://box.example/\"}");
    happened("POST /sandbox;run at https://box.example/s1;");
}

/* A new sandbox is not always started at once, and a state that is not known is waited for. */
static void a_sandbox_is_polled_until_it_runs(void **state)
{
    begin_with(NULL);
    answer(200, ERROR_NONE, "{\"id\":\"s1\",\"state\":\"creating\"}");
    wait_for_request();
    answer(200, ERROR_NONE, "{\"id\":\"s1\",\"state\":\"a_new_one\"}");
    wait_for_request();
    answer(200, ERROR_NONE, "{\"id\":\"s1\",\"state\":\"started\"}");
    happened("POST /sandbox;GET /sandbox/s1;GET /sandbox/s1;GET /sandbox/s1/toolbox-proxy-url;");
    assert_string_equal(daytona_sandbox_id(box), "s1");
    answer(200, ERROR_NONE, "{\"url\":\"https://box.example\"}");
    happened("run at https://box.example/s1;");
}

/* The answer to the first attempt was lost: its sandbox is found by its name. */
static void a_sandbox_that_exists_already_is_used(void **state)
{
    begin_with(NULL);
    buf_clear(&story);
    answer(409, ERROR_ENVIRONMENT, NULL);
    assert_non_null(strstr(buf_text(&story), "GET /sandbox/droste-"));
    buf_clear(&story);
    answer(200, ERROR_NONE,
        "{\"id\":\"s1\",\"state\":\"started\",\"toolboxProxyUrl\":\"https://box.example\"}");
    happened("run at https://box.example/s1;");
}

static void assert_refused(const char *text)
{
    begin_with(NULL);
    answer(200, ERROR_NONE, text);
    assert_true(has_ended);
    assert_int_equal(end.code, ERROR_PROTOCOL);
    assert_null(daytona_sandbox_id(box));
    daytona_sandbox_free(box);
    has_ended = false;
}

/* Its id would become a part of paths, and of a shell's command. */
static void an_answer_without_a_proper_id_is_refused(void **state)
{
    assert_refused("{\"id\":\"../volumes\",\"state\":\"started\"}");
    assert_refused("{\"id\":\"\",\"state\":\"started\"}");
    assert_refused("{\"id\":{\"a\":1},\"state\":\"started\"}");
    assert_refused("{\"state\":\"started\"}");
    assert_refused("[]");
    assert_refused("7");
    assert_refused(NULL);
    box = NULL;
}

static void a_toolbox_without_an_address_is_refused(void **state)
{
    begin_with(NULL);
    answer(200, ERROR_NONE, "{\"id\":\"s1\",\"state\":\"started\",\"toolboxProxyUrl\":[]}");
    answer(200, ERROR_NONE, "{\"url\":null}");
    assert_true(has_ended && end.code == ERROR_PROTOCOL);
}

/* What the service says is on the user's terminal: without control characters, and not endless. */
static void a_sandbox_that_cannot_start_says_why(void **state)
{
    begin_with(NULL);
    answer(200, ERROR_NONE,
        "{\"id\":\"s1\",\"state\":\"build_failed\",\"errorReason\":\"no \\u001b[2Jspace\"}");
    assert_true(has_ended && end.code == ERROR_ENVIRONMENT);
    assert_non_null(strstr(end.text, "build_failed"));
    assert_non_null(strstr(end.text, "space"));
    assert_null(strchr(end.text, '\033'));
}

/* The terminal is silent: the sandbox's state decides. */
static void a_running_sandbox_in_doubt_is_looked_at(void **state)
{
    static const struct error why = { .code = ERROR_LOST };
    run_sandbox();
    terminal_hooks.doubt(terminal_arg, &why);
    answer(200, ERROR_NONE, "{\"id\":\"s1\",\"state\":\"started\"}");
    happened("GET /sandbox/s1;retry;");
    terminal_hooks.doubt(terminal_arg, &why);
    answer(502, ERROR_ENVIRONMENT, NULL); /* the service, not the sandbox */
    happened("GET /sandbox/s1;retry;");
    terminal_hooks.doubt(terminal_arg, &why);
    answer(200, ERROR_NONE, "{\"id\":\"s1\",\"state\":\"stopped\",\"autoStopInterval\":15}");
    assert_true(has_ended && end.code == ERROR_LOST);
    assert_non_null(strstr(end.text, "idle for 15 min"));
}

static void a_running_sandbox_that_was_deleted_is_lost(void **state)
{
    static const struct error why = { .code = ERROR_LOST };
    run_sandbox();
    terminal_hooks.doubt(terminal_arg, &why);
    answer(404, ERROR_NOT_FOUND, NULL);
    assert_true(has_ended && end.code == ERROR_LOST);
    assert_non_null(strstr(end.text, "no longer exists"));
}

/* One that was kept is started once, however often it still says that it is stopped. */
static void a_stopped_sandbox_is_started_to_resume_it(void **state)
{
    const struct container_spec c = { .resume = "s1", .keep = true };
    begin_with(&c);
    answer(200, ERROR_NONE, "{\"id\":\"s1\",\"state\":\"stopped\"}");
    happened("GET /sandbox/s1;POST /sandbox/s1/start;");
    answer(409, ERROR_ENVIRONMENT, NULL);
    wait_for_request();
    answer(200, ERROR_NONE, "{\"id\":\"s1\",\"state\":\"stopped\"}");
    wait_for_request();
    answer(200, ERROR_NONE,
        "{\"id\":\"s1\",\"state\":\"started\",\"toolboxProxyUrl\":\"https://box.example\"}");
    happened("GET /sandbox/s1;GET /sandbox/s1;run at https://box.example/s1;");
}

/* A volume is made where it is missing, waited for, and named to the service by its id. */
static void a_volume_is_made_once(void **state)
{
    const struct container_spec c = { .volume = "notes" };
    begin_with(&c);
    answer(404, ERROR_NOT_FOUND, NULL);
    assert_string_equal(json_get_string(requests[1].ask.body, "name", ""), "notes");
}

static void a_volume_that_must_exist_is_not_made(void **state)
{
    const struct container_spec c = { .volume = "notes", .volume_there = true };
    begin_with(&c);
    answer(404, ERROR_NOT_FOUND, NULL);
    happened("GET /volumes/by-name/notes;");
    assert_true(has_ended && end.code == ERROR_NOT_FOUND);
}

static void the_sandbox_gets_the_id_of_its_volume(void **state)
{
    const struct container_spec c = { .volume = "notes" };
    begin_with(&c);
    answer(200, ERROR_NONE, "{\"id\":\"v1\",\"state\":\"pending_create\"}");
    wait_for_request();
    answer(200, ERROR_NONE, "{\"id\":\"v1\",\"state\":\"ready\"}");
    happened("GET /volumes/by-name/notes;GET /volumes/by-name/notes;POST /sandbox;");
    struct json_object *volumes = json_get_typed(requests[2].ask.body, "volumes", json_type_array);
    assert_int_equal(json_length(volumes), 1);
    assert_string_equal(
        json_get_string(json_object_array_get_idx(volumes, 0), "volumeId", ""), "v1");
}

/* ---- the end ---- */

static void a_sandbox_is_deleted_while_the_service_is_busy(void **state)
{
    run_sandbox();
    daytona_sandbox_end(steal(&box));
    assert_true(daytona_sandboxes_end(&account));
    answer(409, ERROR_ENVIRONMENT, NULL);
    wait_for_request();
    happened("DELETE /sandbox/s1;DELETE /sandbox/s1;");
    answer(200, ERROR_NONE, NULL);
    assert_false(daytona_sandboxes_end(&account));
    assert_false(has_ended); /* the transport was forgotten */
}

static void a_sandbox_that_is_kept_is_stopped(void **state)
{
    const struct container_spec c = { .keep = true };
    begin_with(&c);
    answer(200, ERROR_NONE, "{\"id\":\"s1\",\"state\":\"creating\"}");
    daytona_sandbox_end(steal(&box));
    happened("POST /sandbox;POST /sandbox/s1/stop;");
    answer(200, ERROR_NONE, NULL);
    assert_true(LIST_EMPTY(&account.sandboxes));
}

/* Its creation is under way: removed as soon as the answer is there, and not if it was refused. */
static void a_sandbox_that_is_left_early_is_deleted(void **state)
{
    begin_with(NULL);
    daytona_sandbox_end(steal(&box));
    happened("POST /sandbox;");
    answer(200, ERROR_NONE, "{\"id\":\"s1\",\"state\":\"creating\"}");
    assert_int_equal(strncmp(buf_text(&story), "DELETE /sandbox/droste-", 23), 0);
    answer(404, ERROR_NOT_FOUND, NULL);
    assert_true(LIST_EMPTY(&account.sandboxes));
    buf_clear(&story);
    begin_with(NULL);
    daytona_sandbox_end(steal(&box));
    answer(403, ERROR_PERMISSION, NULL);
    happened("POST /sandbox;");
    assert_true(LIST_EMPTY(&account.sandboxes));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, sandbox_setup, sandbox_teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_sandbox_is_polled_until_it_runs),
        TEST(a_sandbox_that_exists_already_is_used),
        TEST(an_answer_without_a_proper_id_is_refused),
        TEST(a_toolbox_without_an_address_is_refused),
        TEST(a_sandbox_that_cannot_start_says_why),
        TEST(a_running_sandbox_in_doubt_is_looked_at),
        TEST(a_running_sandbox_that_was_deleted_is_lost),
        TEST(a_stopped_sandbox_is_started_to_resume_it),
        TEST(a_volume_is_made_once),
        TEST(a_volume_that_must_exist_is_not_made),
        TEST(the_sandbox_gets_the_id_of_its_volume),
        TEST(a_sandbox_is_deleted_while_the_service_is_busy),
        TEST(a_sandbox_that_is_kept_is_stopped),
        TEST(a_sandbox_that_is_left_early_is_deleted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
