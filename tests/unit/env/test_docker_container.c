/* The life of a container, step by step, with a daemon that does what a test says: the engine, the
 * stream and the supervisor behind it are replaced here. */
#include "../test.h"

#include "base/cleanup.h"
#include "env/docker/container.h"
#include "env/remote/remote.h"

/* ---- what container.c uses ---- */

struct engine_request {
    struct engine_ask ask;
    char path[256];
    bool live;
};
static struct engine_request requests[16];
static size_t sent;
static struct buf story; /* what reached the remote and the user */
static struct sandbox_exit end;
static bool ended, is_gone, wants_more, hijack_fails, was_asked;
static const struct stream_events *stream_events;
static void *stream_arg;
static int the_stream, the_remote;
static struct remote_events remote_hooks;
static void *remote_hook_arg;

int engine_send(
    struct engine *e, const struct engine_ask *ask, struct engine_request **out, struct error *err)
{
    struct engine_request *r = &requests[sent++];
    assert_true(sent <= array_length(requests));
    *r = (struct engine_request){ .ask = *ask, .live = true };
    snprintf(r->path, sizeof r->path, "%s %s", ask->method, ask->path);
    *out = r;
    was_asked = true;
    return 0;
}

void engine_cancel(struct engine_request *r)
{
    if (r)
        r->live = false;
}

int engine_hijack(struct engine *e, const char *path, const struct stream_events *events, void *arg,
    struct stream **stream, struct error *err)
{
    if (hijack_fails)
        return error_set(err, ERROR_LOST, "the daemon hung up");
    buf_puts(&story, "attach;");
    stream_events = events;
    stream_arg = arg;
    *stream = (struct stream *)&the_stream;
    return 0;
}

void stream_close(struct stream *s)
{
}

void stream_pause(struct stream *s, bool paused)
{
    buf_puts(&story, paused ? "pause;" : "");
}

int stream_send(struct stream *s, const struct iovec *iov, int count, struct error *err)
{
    return 0;
}

size_t stream_waiting(const struct stream *s)
{
    return 0;
}

int remote_open(struct loop *loop, const struct remote_options *options,
    const struct remote_events *events, void *arg, struct remote **out, struct error *err)
{
    remote_hooks = *events;
    remote_hook_arg = arg;
    *out = (struct remote *)&the_remote;
    return 0;
}

void remote_connected(struct remote *r)
{
    buf_puts(&story, "connected;");
}

void remote_disconnected(struct remote *r)
{
    buf_puts(&story, "cut;");
}

void remote_feed(struct remote *r, const char *data, size_t len)
{
    buf_printf(&story, "fed %.*s;", (int)len, data);
}

bool remote_wants_more(const struct remote *r)
{
    return wants_more;
}

void remote_noise(const struct remote *r, struct buf *out)
{
}

void remote_ended(struct remote *r, const struct sandbox_exit *how)
{
    assert_false(ended);
    ended = true;
    end = *how;
}

void remote_free(struct remote *r)
{
}

/* ---- the tests ---- */

static struct loop *loop;
static struct container *c;

static void on_container_notice(void *arg, const char *text)
{
    buf_printf(&story, "says %.20s;", text);
}

static void on_container_gone(void *arg)
{
    is_gone = true;
    c = NULL;
}

static void begin_with(enum container_pull pull, bool input_once, const char *profile)
{
    static const enum limit_means means[LIMIT_COUNT];
    static const struct container_events events = { on_container_notice, on_container_gone };
    const struct container_plan plan = { .body = json_tokener_parse(profile),
        .image = "python",
        .pull = pull,
        .may_drop_filter = true,
        .input_once = input_once,
        .means = means };
    assert_ok(container_open(loop, NULL, &plan, &events, NULL, &c, err));
}

static int container_setup(void **state)
{
    memset(requests, 0, sizeof requests);
    sent = 0;
    end = (struct sandbox_exit){ 0 };
    ended = is_gone = hijack_fails = false;
    wants_more = true;
    return loop_open(&loop, &(struct error){ 0 });
}

static int container_teardown(void **state)
{
    container_free(steal(&c));
    buf_free(&story);
    loop_close(loop);
    return 0;
}

/* The daemon's answer to the last request, or to the one before. */
static void answer_to(size_t back, int code, const char *text, const char *why)
{
    struct engine_request *r = &requests[sent - 1 - back];
    cleanup_json struct json_object *body = text ? json_tokener_parse(text) : NULL;
    struct engine_answer answer = { .body = body, .status = code ? 500 : 200 };
    if (code)
        error_set(&answer.error, (enum error_code)code, "%s", why);
    assert_true(r->live);
    r->live = false;
    r->ask.done(r->ask.arg, &answer);
}

static const char *last_path(void)
{
    return sent ? requests[sent - 1].path : "";
}

/* The next one is sent later, by a timer. */
static void wait_for_request(void)
{
    was_asked = false;
    assert_ok(loop_run_until(loop, &was_asked, err));
}

static void assert_events(const char *expected)
{
    assert_string_equal(buf_text(&story), expected);
    buf_clear(&story);
}

/* As far as a supervisor that has said something. */
static void run_container(bool input_once)
{
    begin_with(PULL_MISSING, input_once, "{}");
    answer_to(0, 0, "{\"Id\":\"abc\"}", NULL);
    stream_events->connected(stream_arg);
    assert_string_equal(requests[1].path, "POST /containers/abc/wait?condition=next-exit");
    assert_string_equal(requests[2].path, "POST /containers/abc/start");
    answer_to(0, 0, NULL, NULL);
    remote_hooks.ready(remote_hook_arg, NULL);
    assert_events("attach;connected;");
    assert_true(container_lives(c));
}

static void a_missing_image_is_pulled_once(void **state)
{
    begin_with(PULL_MISSING, true, "{}");
    assert_non_null(strstr(last_path(), "POST /containers/create?name=droste-rlm-"));
    answer_to(0, ERROR_NOT_FOUND, NULL, "No such image");
    assert_string_equal(last_path(), "POST /images/create?fromImage=python&tag=latest");
    assert_events("says pulling python;");
    answer_to(0, 0, NULL, NULL);
    answer_to(0, ERROR_NOT_FOUND, NULL, "No such image");
    assert_true(ended && end.error.code == ERROR_ENVIRONMENT);
    assert_non_null(strstr(end.error.text, "docker pull"));
}

static void an_image_is_not_pulled_against_the_users_will(void **state)
{
    begin_with(PULL_NEVER, true, "{}");
    answer_to(0, ERROR_NOT_FOUND, NULL, "No such image");
    assert_true(ended && sent == 1);
}

/* A pull can fail in its answer's lines although its status was fine. */
static void a_pull_that_fails_names_its_reason(void **state)
{
    begin_with(PULL_ALWAYS, true, "{}");
    cleanup_json struct json_object *line = json_tokener_parse("{\"error\":\"manifest unknown\"}");
    requests[0].ask.line(requests[0].ask.arg, line);
    answer_to(0, 0, NULL, NULL);
    assert_true(ended && strstr(end.error.text, "manifest unknown"));
}

/* Podman reads the profile as a file's name; other refusals are errors. */
static void a_filter_that_the_daemon_refuses_is_dropped_once(void **state)
{
    static const char profile[] =
        "{\"HostConfig\":{\"SecurityOpt\":[\"no-new-privileges\",\"seccomp={}\"]}}";
    begin_with(PULL_MISSING, true, profile);
    answer_to(0, ERROR_ENVIRONMENT, NULL, "opening seccomp profile failed");
    assert_int_equal(sent, 2);
    assert_null(strstr(json_text(requests[1].ask.body, NULL), "seccomp"));
    answer_to(0, ERROR_ENVIRONMENT, NULL, "opening seccomp profile failed");
    assert_true(ended && sent == 2);
}

/* It would become a part of paths. */
static void an_id_with_a_slash_is_refused(void **state)
{
    begin_with(PULL_MISSING, true, "{}");
    answer_to(0, 0, "{\"Id\":\"../images\"}", NULL);
    assert_true(ended && end.error.code == ERROR_PROTOCOL);
    container_leave(c);
    loop_turn(loop, 0);
    assert_true(is_gone && sent == 1); /* nothing to delete */
}

/* Headers and data in pieces of any size; standard error is not a message. */
static void frames_are_taken_apart(void **state)
{
    static const char stream[] = "\1\0\0\0\0\0\0\2ab\2\0\0\0\0\0\0\3err\1\0\0\0\0\0\0\0"
                                 "\1\0\0\0\0\0\0\1c";
    run_container(true);
    for (size_t i = 0; i < sizeof stream - 1; i++)
        stream_events->bytes(stream_arg, stream + i, 1);
    assert_events("fed a;fed b;fed c;");
    wants_more = false;
    stream_events->bytes(stream_arg, stream, 10);
    assert_events("fed ab;pause;");
}

static void the_exit_status_tells_how_it_ended(void **state)
{
    run_container(true);
    answer_to(1, 0, "{\"StatusCode\":137}", NULL);
    assert_false(ended); /* its last output may follow */
    stream_events->closed(stream_arg, &(struct error){ 0 });
    assert_true(ended && end.error.code == ERROR_LOST);
    assert_non_null(strstr(end.error.text, "killed from outside"));
}

/* Over TCP only the connection may be lost; the container is looked at before it is given up. */
static void a_lost_connection_is_attached_again(void **state)
{
    run_container(false);
    stream_events->closed(stream_arg, &(struct error){ 0 });
    assert_events("cut;");
    wait_for_request();
    assert_string_equal(last_path(), "GET /containers/abc/json");
    answer_to(0, 0, "{\"State\":{\"Running\":true}}", NULL);
    stream_events->connected(stream_arg);
    assert_events("attach;connected;");
    assert_true(container_lives(c) && !ended);
    stream_events->closed(stream_arg, &(struct error){ 0 });
    wait_for_request();
    answer_to(0, 0, "{\"State\":{\"Running\":false,\"ExitCode\":137,\"OOMKilled\":true}}", NULL);
    assert_true(ended && end.limit == LIMIT_MEMORY);
}

static void a_start_that_fails_has_advice(void **state)
{
    begin_with(PULL_MISSING, true, "{}");
    answer_to(0, 0, "{\"Id\":\"abc\"}", NULL);
    stream_events->connected(stream_arg);
    stream_events->closed(stream_arg, &(struct error){ 0 });
    assert_false(ended); /* the answer has the reason */
    answer_to(0, ERROR_ENVIRONMENT, NULL, "exec: \"python4\": executable file not found in $PATH");
    assert_true(ended && strstr(end.error.text, "--python"));
}

static void a_container_that_is_left_is_removed(void **state)
{
    run_container(true);
    container_leave(c);
    assert_true(ended && end.error.code == ERROR_LOST);
    assert_string_equal(last_path(), "DELETE /containers/abc?force=1&v=1");
    answer_to(0, ERROR_NOT_FOUND, NULL, "No such container"); /* gone by itself */
    assert_true(is_gone);
}

/* Its creation is under way: removed as soon as its id is known. */
static void a_container_that_is_left_early_is_removed(void **state)
{
    begin_with(PULL_MISSING, true, "{}");
    container_leave(c);
    assert_true(sent == 1 && !is_gone);
    answer_to(0, 0, "{\"Id\":\"abc\"}", NULL);
    assert_string_equal(last_path(), "DELETE /containers/abc?force=1&v=1");
    answer_to(0, 0, NULL, NULL);
    assert_true(is_gone);
}

static void a_limit_that_is_hit_is_the_reason(void **state)
{
    run_container(true);
    container_kill(c, LIMIT_MEMORY);
    assert_string_equal(last_path(), "POST /containers/abc/kill");
    assert_false(container_lives(c));
    answer_to(0, ERROR_LOST, NULL, "no answer"); /* nothing else would end it */
    assert_true(ended && end.limit == LIMIT_MEMORY && end.error.code == ERROR_NONE);
}

static void a_daemon_that_hangs_up_ends_it(void **state)
{
    hijack_fails = true;
    begin_with(PULL_MISSING, true, "{}");
    answer_to(0, 0, "{\"Id\":\"abc\"}", NULL);
    assert_true(ended && strstr(end.error.text, "hung up"));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, container_setup, container_teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_missing_image_is_pulled_once),
        TEST(an_image_is_not_pulled_against_the_users_will),
        TEST(a_pull_that_fails_names_its_reason),
        TEST(a_filter_that_the_daemon_refuses_is_dropped_once),
        TEST(an_id_with_a_slash_is_refused),
        TEST(frames_are_taken_apart),
        TEST(the_exit_status_tells_how_it_ended),
        TEST(a_lost_connection_is_attached_again),
        TEST(a_start_that_fails_has_advice),
        TEST(a_container_that_is_left_is_removed),
        TEST(a_container_that_is_left_early_is_removed),
        TEST(a_limit_that_is_hit_is_the_reason),
        TEST(a_daemon_that_hangs_up_ends_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
