/* A client of MCP servers that write what they like: each server here is a shell script. */
#include "../test.h"

#include "base/cleanup.h"
#include "base/text.h"
#include "mcp_client/client.h"
#include "mcp_client/spec.h"

struct fixture {
    struct loop *loop;
    struct mcp_client *client;
    struct mcp_client_wait wait;
    struct mcp_request *request;
    bool done;
    struct error why;
    char answer[200];
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    assert_ok(loop_open(&f->loop, err));
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    mcp_client_release(f->client);
    loop_close(f->loop);
    free(f);
    return 0;
}

#define client_test(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

#define INITIALIZED                                                                                \
    "read -r l; echo '{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"protocolVersion\":"              \
    "\"2025-06-18\",\"capabilities\":{\"tools\":{}},\"serverInfo\":{\"name\":\"s\\u001b[31m\"}}}'" \
    "; read -r l; read -r l; "
#define LISTED                                                                                     \
    INITIALIZED "echo '{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"tools\":[{\"name\":\"add\","    \
                "\"inputSchema\":{\"type\":\"object\"}}]}}'; "
#define RESULT "{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{\"content\":[],\"isError\":false}}"

static void on_ready(void *arg, const struct error *why)
{
    struct fixture *f = arg;
    f->done = true;
    f->why = why ? *why : (struct error){ 0 };
}

/* Reaches a server that is this script: ERROR_NONE if it has a list then. */
static enum error_code reach(struct fixture *f, const char *script)
{
    struct mcp_spec spec = { .name = strdup("s") };
    const struct mcp_client_options options = { .loop = f->loop };
    assert_ok(list_add(&spec.words, "/bin/sh", err));
    assert_ok(list_add(&spec.words, "-c", err));
    assert_ok(list_add(&spec.words, script, err));
    mcp_client_release(f->client);
    f->done = false;
    assert_ok(mcp_client_new(&spec, &options, &f->client, err));
    mcp_spec_free(&spec);
    f->wait = (struct mcp_client_wait){ .done = on_ready, .arg = f };
    mcp_client_wait_for(f->client, &f->wait);
    assert_ok(loop_run_until(f->loop, &f->done, err));
    return f->why.code;
}

static void on_reply(void *arg, struct json_object *result, const struct error *why)
{
    struct fixture *f = arg;
    f->done = true;
    f->request = NULL;
    f->why = why ? *why : (struct error){ 0 };
    snprintf(f->answer, sizeof f->answer, "%s", result ? json_text(result, NULL) : "");
    json_object_put(result);
}

static enum error_code call(struct fixture *f)
{
    f->done = false;
    assert_ok(mcp_client_call(f->client, "add", "{}", 2, on_reply, f, &f->request, err));
    assert_ok(loop_run_until(f->loop, &f->done, err));
    return f->why.code;
}

static void a_server_is_reached_and_called(void **state)
{
    struct fixture *f = *state;
    size_t count;
    assert_int_equal(reach(f, LISTED "read -r l; echo '" RESULT "'; read -r l"), ERROR_NONE);
    assert_string_equal(mcp_client_tools(f->client, &count)->name, "add");
    assert_int_equal(count, 1);
    assert_int_equal(call(f), ERROR_NONE);
    assert_non_null(strstr(f->answer, "content"));
}

/* Each is lost or broken, says why in one line of text, and leaves nothing behind. */
static void what_is_no_server_is_an_error(void **state)
{
    static const char *const scripts[] = {
        "exit 3",
        "read -r l; printf 'no newline'",
        "read -r l; printf '\\000\\377\\n'",
        "yes",
        "read -r l; echo '{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":[]}'; read -r l",
        "read -r l; echo '{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"protocolVersion\":"
        "\"1999-01-01\"}}'; read -r l; echo '{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}'; "
        "read -r l",
        "read -r l; echo '{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{}}'; read -r l",
        "echo 'last words' >&2",
        INITIALIZED "echo '{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"tools\":{}}}'; read -r l",
        INITIALIZED "echo '{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":null}'; read -r l",
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < array_length(scripts); i++) {
        if (reach(f, scripts[i]) == ERROR_NONE)
            fail_msg("'%s' was taken for a server", scripts[i]);
        assert_true(text_is_utf8(f->why.text, strlen(f->why.text), NULL));
        assert_non_null(strstr(f->why.text, "'s'"));
    }
}

/* Answers without a question, requests, notifications and noise change nothing. */
static void noise_before_an_answer_is_passed_over(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(
        reach(f, LISTED "read -r l; echo; echo noise; echo '[]'; echo '{\"id\":3}'; "
                        "echo '{\"jsonrpc\":\"2.0\",\"id\":99,\"result\":{}}'; "
                        "echo '{\"jsonrpc\":\"2.0\",\"id\":\"3\",\"result\":{}}'; "
                        "echo '{\"jsonrpc\":\"2.0\",\"id\":-3,\"result\":{}}'; "
                        "echo '{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"roots/list\"}'; "
                        "read -r l; echo '{\"jsonrpc\":\"2.0\",\"method\":\"x\"}'; "
                        "echo '" RESULT "'; read -r l"),
        ERROR_NONE);
    assert_int_equal(call(f), ERROR_NONE);
}

static void a_broken_answer_fails_its_call_alone(void **state)
{
    static const char *const answers[] = {
        "{\"jsonrpc\":\"2.0\",\"id\":3,\"error\":{\"code\":1,\"message\":\"no\\u001b[31m\"}}",
        "{\"jsonrpc\":\"2.0\",\"id\":3,\"error\":{\"code\":\"x\",\"message\":[]}}",
        "{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":[1]}",
        "{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":null}",
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < array_length(answers); i++) {
        cleanup_buf struct buf script = { 0 };
        buf_printf(&script,
            LISTED "read -r l; echo '%s'; read -r l; "
                   "echo '{\"jsonrpc\":\"2.0\",\"id\":4,\"result\":{}}'; read -r l",
            answers[i]);
        assert_int_equal(reach(f, buf_text(&script)), ERROR_NONE);
        assert_int_not_equal(call(f), ERROR_NONE);
        assert_null(strchr(f->why.text, 0x1b));
        assert_int_equal(call(f), ERROR_NONE);
    }
}

/* The ids of its requests go on. */
#define READ        "read -r l; i=${l#*\\\"id\\\":}; i=${i%%,*}; "
#define SAY(result) "echo '{\"jsonrpc\":\"2.0\",\"id\":'$i',\"result\":" result "}'; "

static void a_server_that_dies_is_started_again(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(
        reach(f,
            READ SAY("{\"protocolVersion\":\"2025-06-18\",\"capabilities\":{}}") "read -r l; " READ
                SAY("{\"tools\":[{\"name\":\"add\",\"inputSchema\":{}}]}") "read -r l; exit 1"),
        ERROR_NONE);
    assert_int_equal(call(f), ERROR_LOST);
    f->done = false;
    f->wait = (struct mcp_client_wait){ .done = on_ready, .arg = f };
    mcp_client_wait_for(f->client, &f->wait);
    assert_ok(loop_run_until(f->loop, &f->done, err));
    assert_int_equal(f->why.code, ERROR_NONE);
}

/* Only requests of the stateless revision carry it. */
static void requests_are_those_of_the_revision_agreed_on(void **state)
{
#define TOOLS SAY("{\"tools\":[{\"name\":\"add\",\"inputSchema\":{}}]}")
#define TELL                                                                                       \
    READ "case $l in *protocolVersion*2026-07-28*) v=new;; *) v=old;; esac; " SAY(                 \
        "{\"content\":[],\"v\":\"'$v'\"}") "read -r l"
    struct fixture *f = *state;
    assert_int_equal(
        reach(f, READ SAY("{\"protocolVersion\":\"2024-11-05\"}") "read -r l; " READ TOOLS TELL),
        ERROR_NONE);
    assert_int_equal(call(f), ERROR_NONE);
    assert_non_null(strstr(f->answer, "\"old\""));
    assert_int_equal(reach(f, READ SAY("{\"protocolVersion\":\"1999-01-01\"}") READ SAY(
                                  "{\"supportedVersions\":[\"2026-07-28\"]}") READ TOOLS TELL),
        ERROR_NONE);
    assert_int_equal(call(f), ERROR_NONE);
    assert_non_null(strstr(f->answer, "\"new\""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        client_test(a_server_is_reached_and_called),
        client_test(what_is_no_server_is_an_error),
        client_test(noise_before_an_answer_is_passed_over),
        client_test(a_broken_answer_fails_its_call_alone),
        client_test(a_server_that_dies_is_started_again),
        client_test(requests_are_those_of_the_revision_agreed_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
