/* A server of MCP without a transport: hostile messages, and clients that leave at any moment. */
#include "../test.h"

#include "base/cleanup.h"
#include "base/json/json.h"
#include "mcp/mcp.h"

static droste *d;
static struct mcp_server *server;
static struct mcp *mcp;
static struct buf sent; /* messages, one a line */

static void keep_sent(void *arg, const struct mcp_message *message)
{
    buf_append(&sent, message->json, message->len);
    buf_putc(&sent, '\n');
}

static int peer_setup(void **state)
{
    static const struct mcp_options options = { .max_sessions = 2 };
    droste_error why;
    if (droste_new(&d, &why) < 0 || droste_set(d, "isolation", "process", &why) < 0 ||
        droste_set(d, "database", "none", &why) < 0)
        return -1;
    buf_clear(&sent);
    if (mcp_server_new(d, &options, &server, NULL) < 0)
        return -1;
    mcp = mcp_new(server, NULL);
    return mcp ? 0 : -1;
}

static int peer_teardown(void **state)
{
    mcp_server_free(server);
    droste_free(d);
    buf_free(&sent);
    return 0;
}

static void say(struct mcp_peer *peer, const char *text)
{
    buf_clear(&sent);
    mcp_receive(peer, NULL, text, strlen(text));
}

/* The code of the error in the one message that was sent. */
static int64_t error_sent(void)
{
    cleanup_json struct json_object *o = NULL;
    assert_ok(json_parse(sent.data, sent.len, &json_limits_large, &o, err));
    return json_get_int(json_get_typed(o, "error", json_type_object), "code", 0);
}

static void wait_for_answers(struct mcp_peer *peer)
{
    droste_error why;
    while (mcp_pending(peer) > 0)
        assert_true(droste_turn(d, 1000, &why) >= 0);
}

static const char call_cell[] =
    "{\"jsonrpc\":\"2.0\",\"id\":%d,\"method\":\"tools/call\","
    "\"params\":{\"name\":\"run_python\",\"arguments\":{\"code\":\"%s\","
    "\"session\":\"%s\"}}}";

static void start_cell(struct mcp_peer *peer, int id, const char *code, const char *session)
{
    cleanup_buf struct buf text = { 0 };
    buf_printf(&text, call_cell, id, code, session);
    say(peer, buf_text(&text));
}

static struct mcp_peer *peer_ready(void)
{
    struct mcp_peer *peer = mcp_connect(mcp, keep_sent, NULL);
    assert_non_null(peer);
    say(peer, "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":"
              "{\"protocolVersion\":\"2025-11-25\",\"capabilities\":{}}}");
    assert_non_null(strstr(buf_text(&sent), "serverInfo"));
    return peer;
}

static void every_cut_message_is_answered_with_an_error(void **state)
{
    static const char whole[] =
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":"
        "{\"name\":\"list_sessions\",\"arguments\":{}}}";
    struct mcp_peer *peer = peer_ready();
    for (size_t n = 0; n < sizeof whole - 1; n++) {
        buf_clear(&sent);
        mcp_receive(peer, NULL, whole, n);
        assert_int_equal(error_sent(), -32700);
    }
    say(peer, whole);
    assert_non_null(strstr(buf_text(&sent), "\"sessions\""));
    mcp_disconnect(peer);
}

static void values_of_the_wrong_type_are_refused(void **state)
{
    static const char *const values[] = { "null", "true", "3", "1e400", "\"text\"", "[]", "{}",
        "[[[[[[]]]]]]", "\"\\u0000\"" };
    static const char *const forms[] = {
        "{\"jsonrpc\":%s,\"id\":1,\"method\":\"tools/list\"}",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":%s}",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":%s}",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":%s}}",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"ask\","
        "\"arguments\":{\"question\":%s,\"more\":1}}}",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"resources/read\",\"params\":{\"uri\":%s}}",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"prompts/get\",\"params\":{\"name\":%s}}",
    };
    struct mcp_peer *peer = peer_ready();
    for (size_t i = 0; i < array_length(forms); i++)
        for (size_t j = 0; j < array_length(values); j++) {
            cleanup_buf struct buf text = { 0 };
            char *hole = strstr(forms[i], "%s");
            buf_append(&text, forms[i], (size_t)(hole - forms[i]));
            buf_puts(&text, values[j]);
            buf_puts(&text, hole + 2);
            say(peer, buf_text(&text));
            bool failed = strstr(buf_text(&sent), "\"error\":{") ||
                          strstr(buf_text(&sent), "\"isError\":true");
            assert_true(failed);
            assert_int_equal(mcp_pending(peer), 0);
        }
    mcp_disconnect(peer);
}

static void a_client_may_leave_while_its_cells_run_and_wait(void **state)
{
    struct mcp_peer *peer = peer_ready();
    start_cell(peer, 1, "x = 1", "main");
    wait_for_answers(peer);
    start_cell(peer, 2, "while True: pass", "main");
    start_cell(peer, 3, "x = 2", "main");
    say(peer, "{\"jsonrpc\":\"2.0\",\"id\":4,\"method\":\"tools/call\",\"params\":{\"name\":"
              "\"fork_session\",\"arguments\":{\"name\":\"copy\"}}}");
    say(peer, "{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"tools/call\",\"params\":{\"name\":"
              "\"write_file\",\"arguments\":{\"path\":\"a\",\"text\":\"b\"}}}");
    assert_int_equal(mcp_pending(peer), 4);
    mcp_disconnect(peer);
    /* The session stays for the next one, without what waited. */
    struct mcp_peer *next = peer_ready();
    start_cell(next, 1, "x", "main");
    wait_for_answers(next);
    assert_non_null(strstr(buf_text(&sent), "\"result\":\"1\""));
    mcp_disconnect(next);
}

static void sessions_end_with_requests_under_way(void **state)
{
    struct mcp_peer *peer = peer_ready();
    start_cell(peer, 1, "x = 1", "main");
    wait_for_answers(peer);
    start_cell(peer, 2, "while True: pass", "main");
    start_cell(peer, 3, "x = 2", "main");
    buf_clear(&sent);
    static const char close[] =
        "{\"jsonrpc\":\"2.0\",\"id\":4,\"method\":\"tools/call\",\"params\":"
        "{\"name\":\"close_session\",\"arguments\":{}}}";
    mcp_receive(peer, NULL, close, sizeof close - 1);
    assert_int_equal(mcp_pending(peer), 0);
    size_t closed = 0;
    for (const char *at = sent.data; (at = strstr(at, "was closed meanwhile")); at++)
        closed++;
    assert_int_equal(closed, 2);
    mcp_disconnect(peer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            every_cut_message_is_answered_with_an_error, peer_setup, peer_teardown),
        cmocka_unit_test_setup_teardown(
            values_of_the_wrong_type_are_refused, peer_setup, peer_teardown),
        cmocka_unit_test_setup_teardown(
            a_client_may_leave_while_its_cells_run_and_wait, peer_setup, peer_teardown),
        cmocka_unit_test_setup_teardown(
            sessions_end_with_requests_under_way, peer_setup, peer_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
