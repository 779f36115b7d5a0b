/* Failures of the network and the server: which are retried, and how errors describe them. */
#include "fixture.h"

#include "base/clock.h"

/* The seconds between a model's first and second request, as the server saw them. */
static double gap(const struct fake *f, const char *model)
{
    cleanup_json struct json_object *stats = fake_stats(f);
    struct json_object *all = json_get_typed(stats, "seconds", json_type_object);
    struct json_object *times = json_get_typed(all, model, json_type_array);
    assert_true(times && json_object_array_length(times) >= 2);
    return json_object_get_double(json_object_array_get_idx(times, 1)) -
           json_object_get_double(json_object_array_get_idx(times, 0));
}

/* Every request of the server's so far carried one and the same idempotency key. */
static void assert_one_idempotency_key(const struct fake *f, int64_t requests)
{
    cleanup_json struct json_object *stats = fake_stats(f);
    struct json_object *keys = json_get_typed(stats, "idempotency", json_type_object);
    assert_int_equal(json_object_object_length(keys), 1);
    json_object_object_foreach(keys, key, count)
    {
        assert_int_equal(strlen(key), 32);
        assert_int_equal(json_object_get_int64(count), requests);
    }
}

/* A pause that the server asks for is kept, and the call succeeds with the same idempotency key. */
static void a_rate_limit_is_waited_out(void **state)
{
    struct fake *f = *state;
    struct lm_options options = options_for(f, "429-2");
    cleanup_answer struct answer a = { 0 };
    options.retries = 3;
    ask_once(f->loop, &options, &a);
    assert_int_equal(a.error.code, ERROR_NONE);
    assert_int_equal(a.attempts, 3);
    assert_true(gap(f, "429-2") >= 1.0);
    assert_one_idempotency_key(f, 3);
}

/* Retry-After as a date, two seconds ahead in whole seconds. */
static void a_rate_limit_with_a_date_is_waited_out(void **state)
{
    struct fake *f = *state;
    struct lm_options options = options_for(f, "429-date-1");
    cleanup_answer struct answer a = { 0 };
    options.retries = 1;
    ask_once(f->loop, &options, &a);
    assert_int_equal(a.error.code, ERROR_NONE);
    assert_int_equal(a.attempts, 2);
    assert_true(gap(f, "429-date-1") >= 1.0);
}

/* When the retries are used up the error says how many attempts there were. */
static void a_rate_limit_that_lasts_is_an_error(void **state)
{
    struct fake *f = *state;
    struct lm_options options = options_for(f, "429-9");
    cleanup_answer struct answer a = { 0 };
    options.retries = 1;
    ask_once(f->loop, &options, &a);
    assert_failed(&a, ERROR_MODEL_RATE, "after 2 attempts");
    assert_int_equal(fake_stat(f, "requests"), 2);
    assert_int_equal(a.usage.input_tokens, 0);
}

/* A pause that would end after the call's deadline (50 s) is not begun: the rate limit is the
 * error. */
static void a_pause_past_the_deadline_is_not_begun(void **state)
{
    struct fake *f = *state;
    struct lm_options options = options_for(f, "429-minute-9");
    cleanup_answer struct answer a = { 0 };
    options.retries = 5;
    ask_once(f->loop, &options, &a);
    assert_failed(&a, ERROR_MODEL_RATE, "429");
    assert_int_equal(a.attempts, 1);
}

/* Each of a provider's failures is tried again. */
static void server_failures_are_tried_again(void **state)
{
    static const char *const models[] = { "500-1", "502-1", "503-1", "504-1", "529-1" };
    struct fake *f = *state;
    for (size_t i = 0; i < array_length(models); i++) {
        struct lm_options options = options_for(f, models[i]);
        cleanup_answer struct answer a = { 0 };
        options.retries = 1;
        ask_once(f->loop, &options, &a);
        assert_int_equal(a.error.code, ERROR_NONE);
        assert_int_equal(a.attempts, 2);
    }
    assert_int_equal(fake_stat(f, "requests"), 2 * array_length(models));
}

/* To the end: every retry was made, and the provider's last words are in the error. */
static void a_server_that_keeps_failing_is_an_error(void **state)
{
    struct fake *f = *state;
    struct lm_options options = options_for(f, "500-9");
    cleanup_answer struct answer a = { 0 };
    options.retries = 2;
    ask_once(f->loop, &options, &a);
    assert_failed(&a, ERROR_MODEL_SERVER, "failure 3 of 9");
    assert_int_equal(a.attempts, 3);
    assert_one_idempotency_key(f, 3);
}

/* A stream that stops is given up, not tried again, and what it may have cost is estimated. */
static void a_stalled_stream_is_cancelled(void **state)
{
    struct fake *f = *state;
    struct lm_options options = options_for(f, "stall");
    cleanup_answer struct answer a = { 0 };
    options.stream = true;
    options.retries = 3;
    options.stall_timeout = 0.3;
    ask_once(f->loop, &options, &a);
    assert_failed(&a, ERROR_MODEL_STALL, "no data arrived for 0.3 s");
    assert_string_equal(buf_text(&a.deltas), "a first word");
    assert_true(a.usage.estimated);
    assert_int_equal(a.usage.output_tokens, 3);
    assert_int_equal(fake_stat(f, "requests"), 1);
}

/* The limit to the first byte is its own: a slow answer within it is not a stall. */
static void the_first_byte_has_a_limit_of_its_own(void **state)
{
    struct fake *f = *state;
    struct lm_options options = options_for(f, "hang");
    cleanup_answer struct answer a = { 0 }, b = { 0 };
    options.first_timeout = 0.3;
    options.retries = 3;
    ask_once(f->loop, &options, &a);
    assert_failed(&a, ERROR_MODEL_STALL, "after 0 bytes");
    options.model = "slow-700";
    options.first_timeout = 0;
    options.stall_timeout = 0.2;
    ask_once(f->loop, &options, &b);
    assert_int_equal(b.error.code, ERROR_NONE);
    assert_int_equal(fake_stat(f, "requests"), 2);
}

/* A connection that is cut in the middle of an answer: paid for, so not tried again. */
static void a_cut_answer_is_not_tried_again(void **state)
{
    static const char *const models[] = { "stream-cut", "cut-body" };
    struct fake *f = *state;
    for (size_t i = 0; i < array_length(models); i++) {
        struct lm_options options = options_for(f, models[i]);
        cleanup_answer struct answer a = { 0 };
        options.stream = i == 0;
        options.retries = 3;
        ask_once(f->loop, &options, &a);
        assert_failed(&a, ERROR_MODEL_CUT, "127.0.0.1:");
        assert_int_equal(a.attempts, 1);
        assert_true(a.usage.input_tokens > 0);
    }
    assert_int_equal(fake_stat(f, "requests"), 2);
}

/* Cut before a byte came, on a fresh connection: the server may have acted on it. */
static void a_cut_before_the_answer_is_an_error(void **state)
{
    struct fake *f = *state;
    struct lm_options options = options_for(f, "cut-before");
    cleanup_answer struct answer a = { 0 };
    options.retries = 3;
    ask_once(f->loop, &options, &a);
    assert_failed(&a, ERROR_MODEL_CUT, "after 0 bytes");
    assert_int_equal(fake_stat(f, "requests"), 1);
}

/* Cut before a byte came, on an old connection: the server had closed it; a fresh one serves. */
static void a_cut_reused_connection_is_replaced(void **state)
{
    struct fake *f = *state;
    struct lm_options options = options_for(f, "cut-reused");
    struct lm *lm = open_lm(f->loop, &options);
    for (int i = 0; i < 3; i++) {
        cleanup_answer struct answer a = { 0 };
        ask(f->loop, lm, "x", &a);
        assert_answered(&a, "fresh");
    }
    lm_close(lm);
    assert_int_equal(fake_stat(f, "requests"), 5);
    assert_int_equal(fake_stat(f, "connections"), 3);
}

/* A port where nobody listens: nothing was sent, so it is tried again, and costs nothing. */
static void a_refused_port_is_a_connect_error(void **state)
{
    struct fake *f = *state;
    struct lm_options options = options_for(f, "ok");
    cleanup_answer struct answer a = { 0 };
    options.openai.base_url = "http://127.0.0.1:1/v1";
    options.retries = 1;
    ask_once(f->loop, &options, &a);
    assert_failed(&a, ERROR_MODEL_CONNECT, "127.0.0.1:1");
    assert_int_equal(a.attempts, 2);
    assert_int_equal(a.usage.input_tokens, 0);
}

/* A name that does not exist (RFC 6761 keeps .invalid for that). */
static void an_unknown_host_is_a_connect_error(void **state)
{
    struct fake *f = *state;
    struct lm_options options = options_for(f, "ok");
    cleanup_answer struct answer a = { 0 };
    options.openai.base_url = "http://nobody.invalid/v1";
    ask_once(f->loop, &options, &a);
    assert_failed(&a, ERROR_MODEL_CONNECT, "nobody.invalid");
}

/* A failed look-up is made anew by each attempt, so that a network that comes back is found. */
static void each_attempt_looks_an_unknown_host_up_again(void **state)
{
    struct fake *f = *state;
    struct lm_options options = options_for(f, "ok");
    struct answer answers[20] = { 0 };
    options.openai.base_url = "http://nobody.invalid/v1";
    options.retries = 1;
    struct lm *lm = open_lm(f->loop, &options);
    for (size_t i = 0; i < array_length(answers); i++)
        start(lm, NULL, "x", 1, 0, &answers[i]);
    for (size_t i = 0; i < array_length(answers); i++) {
        assert_ok(loop_run_until(f->loop, &answers[i].done, err));
        assert_failed(&answers[i], ERROR_MODEL_CONNECT, "address was not found");
        assert_int_equal(answers[i].attempts, 2);
    }
    lm_close(lm);
}

/* A server that takes the connection and then does not speak TLS: the connect limit ends it. */
static void a_silent_tls_server_is_a_connect_error(void **state)
{
    struct fake *f = *state;
    struct sockaddr_in at = { .sin_family = AF_INET };
    socklen_t size = sizeof at;
    char url[64];
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    cleanup_fd int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, size), 0);
    assert_int_equal(listen(fd, 8), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &size), 0);
    snprintf(url, sizeof url, "https://127.0.0.1:%d/v1", ntohs(at.sin_port));
    struct lm_options options = options_for(f, "ok");
    cleanup_answer struct answer a = { 0 };
    options.openai.base_url = url;
    options.connect_timeout = 0.3;
    ask_once(f->loop, &options, &a);
    assert_failed(&a, ERROR_MODEL_CONNECT, "127.0.0.1:");
    assert_int_equal(a.usage.input_tokens, 0);
}

/* The environment's proxy is used, and then the host is the proxy's to look up. */
static void a_proxy_of_the_environment_is_used(void **state)
{
    struct fake *f = *state;
    struct lm_options options = options_for(f, "ok");
    cleanup_answer struct answer a = { 0 };
    char proxy[64];
    snprintf(proxy, sizeof proxy, "http://127.0.0.1:%d", f->port);
    setenv("http_proxy", proxy, 1);
    options.openai.base_url = "http://nobody.invalid/v1";
    ask_once(f->loop, &options, &a);
    unsetenv("http_proxy");
    assert_int_equal(a.error.code, ERROR_NONE);
    assert_int_equal(fake_stat(f, "requests"), 1);
}

/* TLS with the right authority: the name is looked up, the certificate is checked, it works. */
static void tls_works_with_the_servers_authority(void **state)
{
    struct fake *f = *state;
    struct lm_options options = options_for(f, "ok");
    cleanup_answer struct answer a = { 0 };
    options.openai.base_url = f->tls_url;
    options.ca_file = f->ca_file;
    options.stream = true;
    ask_once(f->loop, &options, &a);
    assert_int_equal(a.error.code, ERROR_NONE);
    assert_int_equal(fake_stat(f, "requests"), 1);
}

/* TLS with the system's authorities: the certificate is refused, nothing is sent. */
static void tls_refuses_an_unsigned_certificate(void **state)
{
    struct fake *f = *state;
    struct lm_options options = options_for(f, "ok");
    cleanup_answer struct answer a = { 0 };
    options.openai.base_url = f->tls_url;
    options.retries = 3;
    ask_once(f->loop, &options, &a);
    assert_failed(&a, ERROR_MODEL_CONNECT, "certificate is not trusted");
    assert_int_equal(a.attempts, 1);
    assert_int_equal(fake_stat(f, "requests"), 0);
}

/* A file that holds no certificate is an error of the configuration, not of the network. */
static void a_ca_file_without_certificates_is_a_config_error(void **state)
{
    struct fake *f = *state;
    struct lm_options options = options_for(f, "ok");
    cleanup_answer struct answer a = { 0 };
    options.openai.base_url = f->tls_url;
    options.ca_file = "/dev/null";
    ask_once(f->loop, &options, &a);
    assert_failed(&a, ERROR_CONFIG, "/dev/null");
}

/* TLS whose connection is cut: an error, and not a signal that ends the process. */
static void a_cut_over_tls_is_an_error(void **state)
{
    static const char *const models[] = { "stream-cut", "cut-before", "cut-body" };
    struct fake *f = *state;
    for (size_t i = 0; i < array_length(models); i++) {
        struct lm_options options = options_for(f, models[i]);
        cleanup_answer struct answer a = { 0 };
        options.openai.base_url = f->tls_url;
        options.ca_file = f->ca_file;
        options.stream = i == 0;
        ask_once(f->loop, &options, &a);
        assert_failed(&a, ERROR_MODEL_CUT, NULL);
    }
}

/* The call's own deadline ends it, whatever the server does; the attempt's cost is estimated. */
static void a_call_ends_at_its_deadline(void **state)
{
    struct fake *f = *state;
    struct lm_options options = options_for(f, "hang");
    cleanup_answer struct answer a = { 0 };
    struct lm_message message = { "user", "12345678", 8 };
    struct lm_request request = { .messages = &message, .message_count = 1, .timeout = 0.3 };
    struct lm *lm = open_lm(f->loop, &options);
    assert_ok(lm_start(lm, &request, on_answer, NULL, &a, NULL, err));
    assert_ok(loop_run_until(f->loop, &a.done, err));
    lm_close(lm);
    assert_failed(&a, ERROR_TIMEOUT, "within 0.3 s");
    assert_true(a.seconds >= 0.3);
    assert_int_equal(a.usage.input_tokens, 2);
}

#define server_test(f) cmocka_unit_test_setup_teardown(f, with_server, without_server)

int main(void)
{
    const struct CMUnitTest tests[] = {
        server_test(a_rate_limit_is_waited_out),
        server_test(a_rate_limit_with_a_date_is_waited_out),
        server_test(a_rate_limit_that_lasts_is_an_error),
        server_test(a_pause_past_the_deadline_is_not_begun),
        server_test(server_failures_are_tried_again),
        server_test(a_server_that_keeps_failing_is_an_error),
        server_test(a_stalled_stream_is_cancelled),
        server_test(the_first_byte_has_a_limit_of_its_own),
        server_test(a_cut_answer_is_not_tried_again),
        server_test(a_cut_before_the_answer_is_an_error),
        server_test(a_cut_reused_connection_is_replaced),
        server_test(a_refused_port_is_a_connect_error),
        server_test(an_unknown_host_is_a_connect_error),
        server_test(each_attempt_looks_an_unknown_host_up_again),
        server_test(a_silent_tls_server_is_a_connect_error),
        server_test(a_proxy_of_the_environment_is_used),
        server_test(a_ca_file_without_certificates_is_a_config_error),
        server_test(tls_works_with_the_servers_authority),
        server_test(tls_refuses_an_unsigned_certificate),
        server_test(a_cut_over_tls_is_an_error),
        server_test(a_call_ends_at_its_deadline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
