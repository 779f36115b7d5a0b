/* Questions to clients: parked calls that are repeated, left, or forgotten; answers to nothing. */
#include "../test.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "mcp/call.h"

static droste *d;
static struct mcp_server *server;
static struct mcp_peer *peer;
static struct buf sent;
static unsigned answers, drops;

static void keep_sent(void *arg, const struct mcp_message *message)
{
    buf_append(&sent, message->json, message->len);
    buf_putc(&sent, '\n');
}

static void on_answer(void *arg, struct mcp_call *c, struct json_object *result, const char *why)
{
    if (!c) {
        drops++;
        return;
    }
    answers++;
    struct json_object *o = mcp_result();
    mcp_result_add_text(o, result ? "answered" : why, strlen(result ? "answered" : why));
    mcp_call_answer(c, o);
}

static void tool_asks(struct mcp_call *c)
{
    mcp_call_ask(c, "k", "elicitation/create", json_object_new_object(), on_answer, NULL);
}

static const struct mcp_tool tools[] = { { .name = "asks",
    .title = "asks",
    .description = "Asks.",
    .input = "{\"type\":\"object\"}",
    .run = tool_asks } };
static const struct mcp_extension extension = { .tools = tools, .tool_count = 1 };

static int questions_setup(void **state)
{
    static const struct mcp_options options = { .max_sessions = 2, .extension = &extension };
    answers = drops = 0;
    buf_clear(&sent);
    if (droste_new(&d, NULL) < 0 || mcp_server_new(d, &options, &server, NULL) < 0)
        return -1;
    struct mcp *mcp = mcp_new(server, NULL);
    peer = mcp ? mcp_connect(mcp, keep_sent, NULL) : NULL;
    return peer ? 0 : -1;
}

static int questions_teardown(void **state)
{
    mcp_server_free(server);
    droste_free(d);
    buf_free(&sent);
    return 0;
}

static void say(const char *text)
{
    buf_clear(&sent);
    mcp_receive(peer, NULL, text, strlen(text));
    mcp_flush(server);
}

#define CALL(id, more)                                                                             \
    "{\"jsonrpc\":\"2.0\",\"id\":" id ",\"method\":\"tools/call\",\"params\":{\"name\":\"asks\","  \
    "\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\","                       \
    "\"io.modelcontextprotocol/clientCapabilities\":{\"elicitation\":{}}}" more "}}"

/* Asks, and copies the token. */
static void ask(char token[CALL_TOKEN_SIZE])
{
    say(CALL("1", ""));
    const char *at = strstr(buf_text(&sent), "\"requestState\":\"");
    assert_non_null(at);
    snprintf(token, CALL_TOKEN_SIZE, "%s", at + strlen("\"requestState\":\""));
    assert_int_equal(mcp_pending(peer), 1);
}

static void repeat(const char *token)
{
    char text[1024];
    snprintf(text, sizeof text,
        CALL("2", ",\"requestState\":\"%s\",\"inputResponses\":{\"k\":{\"action\":\"accept\"}}"),
        token);
    say(text);
}

static void a_repeated_request_continues_the_call(void **state)
{
    char token[CALL_TOKEN_SIZE];
    ask(token);
    repeat(token);
    assert_non_null(strstr(buf_text(&sent), "\"id\":2"));
    assert_non_null(strstr(buf_text(&sent), "answered"));
    assert_int_equal(answers, 1);
    assert_int_equal(mcp_pending(peer), 0);
    repeat(token); /* it holds once */
    assert_non_null(strstr(buf_text(&sent), "-32602"));
    assert_int_equal(answers, 1);
}

static void a_client_that_does_not_come_back_is_forgotten(void **state)
{
    char token[CALL_TOKEN_SIZE];
    ask(token);
    mcp_sweep(server, clock_ns() + 3599 * 1000000000ull);
    assert_int_equal(mcp_pending(peer), 1);
    mcp_sweep(server, clock_ns() + 3601 * 1000000000ull);
    assert_int_equal(mcp_pending(peer), 0);
    assert_int_equal(drops, 1);
    repeat(token);
    assert_non_null(strstr(buf_text(&sent), "-32602"));
}

static void a_connection_ends_with_parked_calls(void **state)
{
    char token[CALL_TOKEN_SIZE];
    ask(token);
    mcp_disconnect(peer);
    assert_int_equal(drops, 1);
    assert_int_equal(answers, 0);
}

/* Of another user, with the right token. */
static void another_user_cannot_continue_a_call(void **state)
{
    char token[CALL_TOKEN_SIZE];
    ask(token);
    struct mcp_peer *own = peer;
    struct mcp *other = mcp_new(server, NULL);
    peer = mcp_connect(other, keep_sent, NULL);
    assert_non_null(peer);
    repeat(token);
    assert_non_null(strstr(buf_text(&sent), "-32602"));
    peer = own;
    repeat(token);
    assert_non_null(strstr(buf_text(&sent), "answered"));
}

static void answers_to_nothing_change_nothing(void **state)
{
    static const char *const texts[] = {
        "{\"jsonrpc\":\"2.0\",\"id\":\"droste-1\",\"result\":{}}",
        "{\"jsonrpc\":\"2.0\",\"id\":7,\"error\":{\"code\":1,\"message\":\"x\"}}",
        "{\"jsonrpc\":\"2.0\",\"id\":null,\"result\":3}",
        "{\"jsonrpc\":\"2.0\",\"result\":null}",
    };
    char token[CALL_TOKEN_SIZE];
    ask(token);
    for (size_t i = 0; i < array_length(texts); i++) {
        say(texts[i]);
        assert_int_equal(sent.len, 0);
    }
    assert_int_equal(answers, 0);
    repeat(token);
    assert_int_equal(answers, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            a_repeated_request_continues_the_call, questions_setup, questions_teardown),
        cmocka_unit_test_setup_teardown(
            a_client_that_does_not_come_back_is_forgotten, questions_setup, questions_teardown),
        cmocka_unit_test_setup_teardown(
            a_connection_ends_with_parked_calls, questions_setup, questions_teardown),
        cmocka_unit_test_setup_teardown(
            another_user_cannot_continue_a_call, questions_setup, questions_teardown),
        cmocka_unit_test_setup_teardown(
            answers_to_nothing_change_nothing, questions_setup, questions_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
