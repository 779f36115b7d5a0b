/* Requests to the proxy: what is understood, what goes on, and what is refused. */
#include "../test.h"

#include "base/cleanup.h"
#include "egress/head.h"
#include "egress/request.h"

static int parse(const char *text, struct egress_target *target)
{
    const char *why = NULL;
    static const struct egress_scope proxy = { 0 };
    int status = egress_request_parse(text, strlen(text), &proxy, target, &why);
    assert_int_equal(why == NULL, status == 0);
    return status;
}

static void goes_on_as(const char *request, const char *expected)
{
    struct egress_target target;
    assert_int_equal(parse(request, &target), 0);
    assert_string_equal(buf_text(&target.head), expected);
    egress_target_clear(&target);
}

static void refused(int status, const char *request)
{
    struct egress_target target;
    int got = parse(request, &target);
    if (got != status)
        fail_msg("%d, not %d: %s", got, status, request);
    egress_target_clear(&target);
}

static void a_request_is_written_anew(void **state)
{
    goes_on_as("GET http://A.example/x?y HTTP/1.1\r\nHost: a.example\r\nAccept: */*\r\n\r\n",
        "GET /x?y HTTP/1.1\r\nHost: a.example\r\nAccept: */*\r\nConnection: close\r\n\r\n");
    goes_on_as("GET http://a.example:8080?y HTTP/1.0\r\n\r\n",
        "GET /?y HTTP/1.1\r\nHost: a.example:8080\r\nConnection: close\r\n\r\n");
    goes_on_as("GET http://[::1]:8080/ HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: [::1]:8080\r\nConnection: close\r\n\r\n");
}

static void fields_of_the_connection_stay_behind(void **state)
{
    goes_on_as("POST http://a/ HTTP/1.1\r\nHost: a\r\nProxy-Authorization: x\r\nKeep-Alive: 1\r\n"
               "Connection: Upgrade, X-Hop\r\nUpgrade: h2c\r\nHTTP2-Settings: z\r\nX-Hop: 1\r\n"
               "TE: trailers\r\nTransfer-Encoding: chunked\r\nX: 1\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nX: 1\r\nTransfer-Encoding: chunked\r\n"
        "Connection: close\r\n\r\n");
}

static void a_tunnel_has_a_host_and_a_port(void **state)
{
    struct egress_target target;
    assert_int_equal(
        parse("CONNECT a.example:443 HTTP/1.1\r\nHost: a.example\r\n\r\n", &target), 0);
    assert_true(target.is_tunnel);
    assert_string_equal(target.host.name, "a.example");
    assert_int_equal(target.port, 443);
    egress_target_clear(&target);
    refused(400, "CONNECT a.example HTTP/1.1\r\nHost: a.example\r\n\r\n");
    refused(400, "CONNECT http://a.example:443/ HTTP/1.1\r\nHost: a.example\r\n\r\n");
    refused(400, "CONNECT a:443 HTTP/1.1\r\nHost: b:443\r\n\r\n");
    refused(400, "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\nContent-Length: 1\r\n\r\n");
}

static void what_has_two_readings_is_refused(void **state)
{
    static const char *const these[] = {
        "GET http://a/ HTTP/1.1\r\n\r\n",
        "GET http://a/ HTTP/1.1\r\nHost: b\r\n\r\n",
        "GET http://a/ HTTP/1.1\r\nHost: a:81\r\n\r\n",
        "GET http://a/ HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
        "GET http://a/ HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "GET http://a/ HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
        "GET http://a/ HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\n",
        "GET http://a/ HTTP/1.1\r\nHost: a\r\nContent-Length: 0x1\r\n\r\n",
        "GET http://a/ HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 1\r\n\r\n",
        "GET http://a/ HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n",
        "GET http://a/ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        "GET http://a/ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n",
        "GET http://a/ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n",
        "GET http://a/ HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
        "GET http://a/ HTTP/1.1\r\nHost: a\r\nConnection: content-length\r\n\r\n",
        "GET http://a/ HTTP/1.1\r\nHost : a\r\n\r\n",
        "GET http://a/ HTTP/1.1\r\nHost: a\r\n X: folded\r\n\r\n",
        "GET http://a/ HTTP/1.1\r\n X: 1\r\nHost: a\r\n\r\n",
        "GET http://a/ HTTP/1.1\r\nHost: a\nX: 1\r\n\r\n",
        "GET http://a/ HTTP/1.1\r\nHost: a\rX: 1\r\n\r\n",
        "GET http://a/ HTTP/1.1\nHost: a\r\n\r\n",
        "GET http://a/ HTTP/1.1\r\nHost: a\r\n: x\r\n\r\n",
        "GET http://a/ HTTP/1.1\r\nHost: a\r\nX\r\n\r\n",
        "GET http://a/\tb HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET  http://a/ HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET http://a/ b HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET http://a/#b HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET http://u:p@a/ HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET http://a\\b/ HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET http://0x7f.1/ HTTP/1.1\r\nHost: 0x7f.1\r\n\r\n",
        "GET http:///x HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /x HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET * HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n",
        "G(T http://a/ HTTP/1.1\r\nHost: a\r\n\r\n",
        "\r\nGET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n",
    };
    for (size_t i = 0; i < array_length(these); i++)
        refused(400, these[i]);
    refused(505, "GET http://a/ HTTP/1.2\r\nHost: a\r\n\r\n");
    refused(505, "PRI * HTTP/2.0\r\n\r\n");
    refused(501, "GET https://a/ HTTP/1.1\r\nHost: a\r\n\r\n");
    refused(405, "TRACE http://a/ HTTP/1.1\r\nHost: a\r\n\r\n");
}

static void a_head_has_an_end(void **state)
{
    static const char text[] = "GET / HTTP/1.1\r\nHost: a\r\n\r\nrest";
    size_t whole = sizeof text - sizeof "rest";
    for (size_t i = 1; i <= whole; i++)
        assert_int_equal(egress_head_end(text, i, i - 1), i == whole ? whole : 0);
    assert_int_equal(egress_head_end(text, sizeof text - 1, 0), whole);
}

/* All pieces, of each size, of a chunked body. */
static void chunks_end_where_they_end(void **state)
{
    static const char text[] =
        "5\r\nhello\r\n1F\r\n0123456789012345678901234567890\r\n0\r\n\r\nGET";
    size_t end = sizeof text - sizeof "GET";
    for (size_t piece = 1; piece < sizeof text; piece++) {
        struct egress_body body = { .framing = BODY_CHUNKED };
        size_t at = 0;
        bool bad = false;
        while (!egress_body_has_ended(&body)) {
            size_t n = sizeof text - 1 - at < piece ? sizeof text - 1 - at : piece;
            at += egress_body_take(&body, text + at, n, &bad);
            assert_false(bad);
        }
        assert_int_equal(at, end);
    }
}

static void other_chunks_are_malformed(void **state)
{
    static const char *const these[] = { "5;a=b\r\nhello\r\n", "5 \r\nhello\r\n", "\r\n", "x\r\n",
        "-1\r\n", "0x5\r\n", "5\nhello", "5\r\nhelloX", "5\r\nhello\n", "0\r\nX: trailer\r\n\r\n",
        "1000000000000000\r\n", "5\r\r\n" };
    for (size_t i = 0; i < array_length(these); i++) {
        struct egress_body body = { .framing = BODY_CHUNKED };
        bool bad;
        egress_body_take(&body, these[i], strlen(these[i]), &bad);
        if (!bad)
            fail_msg("'%s' is a body", these[i]);
    }
}

static bool answers(const char *text, const char *method, struct egress_answer *answer)
{
    cleanup_buf struct buf out = { 0 };
    struct egress_target target = { .keeps = false };
    snprintf(target.method, sizeof target.method, "%s", method);
    return egress_answer_parse(text, strlen(text), &target, answer, &out);
}

static void answers_end_where_they_end(void **state)
{
    struct egress_answer a;
    assert_true(answers("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "GET", &a));
    assert_int_equal(a.body.framing, BODY_LENGTH);
    assert_true(answers("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "HEAD", &a));
    assert_int_equal(a.body.framing, BODY_NONE);
    assert_true(answers("HTTP/1.1 304 Not\r\nContent-Length: 5\r\n\r\n", "GET", &a));
    assert_int_equal(a.body.framing, BODY_NONE);
    assert_true(answers("HTTP/1.0 200\r\n\r\n", "GET", &a));
    assert_int_equal(a.body.framing, BODY_UNTIL_CLOSE);
    static const char *const malformed[] = { "HTTP/2 200 OK\r\n\r\n", "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/1.1 2000\r\n\r\n", "ICY 200 OK\r\n\r\n", "HTTP/1.1 101 Switching\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n" };
    for (size_t i = 0; i < array_length(malformed); i++)
        assert_false(answers(malformed[i], "GET", &a));
}

static int parse_within(const char *text, struct egress_target *target)
{
    const char *why = NULL;
    struct egress_host host;
    assert_null(egress_host_parse("a.example", strlen("a.example"), &host));
    const struct egress_scope scope = { &host, 443, NULL };
    return egress_request_parse(text, strlen(text), &scope, target, &why);
}

static void within_tls_the_target_is_that_of_the_tunnel(void **state)
{
    struct egress_target target;
    assert_int_equal(parse_within("GET /x HTTP/1.1\r\nHost: A.example\r\n\r\n", &target), 0);
    assert_string_equal(buf_text(&target.head), "GET /x HTTP/1.1\r\nHost: a.example\r\n\r\n");
    assert_true(target.is_tls && target.keeps);
    egress_target_clear(&target);
    assert_int_equal(
        parse_within("GET /x HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n", &target),
        0);
    assert_false(target.keeps);
    egress_target_clear(&target);
    static const char *const refusals[] = { "GET /x HTTP/1.1\r\nHost: b.example\r\n\r\n",
        "GET /x HTTP/1.1\r\nHost: a.example:444\r\n\r\n", "GET /x HTTP/1.1\r\n\r\n",
        "GET http://a.example/x HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET https://b.example/x HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "CONNECT a.example:443 HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" };
    for (size_t i = 0; i < array_length(refusals); i++) {
        if (parse_within(refusals[i], &target) == 0)
            fail_msg("goes on: %s", refusals[i]);
        egress_target_clear(&target);
    }
}

static void chunks_of_servers_may_have_extensions_and_trailers(void **state)
{
    static const char text[] = "5;a=b\r\nhello\r\n0\r\nX: trailer\r\n\r\nnext";
    for (size_t step = 1; step < sizeof text; step++) {
        struct egress_body body = { .framing = BODY_CHUNKED, .is_lenient = true };
        size_t at = 0;
        bool bad = false;
        while (at < sizeof text - 1 && !egress_body_has_ended(&body) && !bad) {
            size_t left = sizeof text - 1 - at;
            at += egress_body_take(&body, text + at, left < step ? left : step, &bad);
        }
        assert_false(bad);
        assert_string_equal(text + at, "next");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_is_written_anew),
        cmocka_unit_test(fields_of_the_connection_stay_behind),
        cmocka_unit_test(a_tunnel_has_a_host_and_a_port),
        cmocka_unit_test(what_has_two_readings_is_refused),
        cmocka_unit_test(a_head_has_an_end),
        cmocka_unit_test(chunks_end_where_they_end),
        cmocka_unit_test(other_chunks_are_malformed),
        cmocka_unit_test(answers_end_where_they_end),
        cmocka_unit_test(within_tls_the_target_is_that_of_the_tunnel),
        cmocka_unit_test(chunks_of_servers_may_have_extensions_and_trailers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
