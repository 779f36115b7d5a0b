/* A terminal in a Daytona sandbox, step by step, with a service that does what a test says: the
 * REST client and the WebSocket are replaced here. */
#include "../test.h"

#include "base/cleanup.h"
#include "base/json/json.h"
#include "base/text.h"
#include "env/clouds/daytona/terminal.h"
#include "net/websocket.h"
#include "wire/link.h"

/* ---- what terminal.c uses ---- */

static int the_toolbox, the_request, the_socket;
static rest_done_fn *made;
static struct websocket_events socket_events;
static void *terminal_arg;
static struct buf story, typed;
static size_t largest; /* message */
static bool is_open;   /* the socket */
static bool goes_on;   /* something was sent or opened */

int daytona_account_reach(
    const struct daytona_account *a, const char *url, struct rest **out, struct error *err)
{
    *out = (struct rest *)&the_toolbox;
    return 0;
}

int rest_send(
    struct rest *r, const struct rest_ask *ask, struct rest_request **out, struct error *err)
{
    made = ask->done;
    terminal_arg = ask->arg;
    buf_puts(&story, "make;");
    goes_on = true;
    *out = (struct rest_request *)&the_request;
    return 0;
}

void rest_cancel(struct rest_request *r)
{
}

void rest_close(struct rest *r)
{
}

const char *rest_base(const struct rest *r)
{
    return "https://box.example";
}

int websocket_open(struct loop *loop, const struct websocket_options *options,
    const struct websocket_events *events, void *arg, struct websocket **out, struct error *err)
{
    assert_false(is_open);
    is_open = true;
    socket_events = *events;
    buf_puts(&story, "connect;");
    goes_on = true;
    assert_non_null(strstr(options->url, "https://box.example/process/pty/droste-"));
    *out = (struct websocket *)&the_socket;
    return 0;
}

int websocket_send(struct websocket *ws, const struct iovec *iov, int count, struct error *err)
{
    size_t len = 0;
    for (int i = 0; i < count; i++) {
        buf_append(&typed, iov[i].iov_base, iov[i].iov_len);
        len += iov[i].iov_len;
    }
    largest = len > largest ? len : largest;
    return 0;
}

void websocket_ping(struct websocket *ws)
{
}

bool websocket_heard(struct websocket *ws)
{
    return true;
}

size_t websocket_waiting(const struct websocket *ws)
{
    return 0;
}

void websocket_pause(struct websocket *ws, bool paused)
{
}

void websocket_close(struct websocket *ws)
{
    is_open = is_open && !ws;
}

/* ---- the tests ---- */

static struct loop *loop;
static struct daytona_account account;
static struct terminal *t;
static struct error end;
static bool has_ended;

static void on_terminal_joined(void *arg)
{
    buf_puts(&story, "joined;");
}

static void on_terminal_bytes(void *arg, const char *data, size_t len)
{
    buf_printf(&story, "<%.*s>;", (int)len, data);
}

static void on_terminal_cut(void *arg)
{
    buf_puts(&story, "cut;");
}

static void on_terminal_doubt(void *arg, const struct error *why)
{
    buf_puts(&story, "doubt;");
}

static void on_terminal_ended(void *arg, const struct error *why)
{
    assert_false(has_ended);
    has_ended = true;
    end = *why;
}

static int terminal_setup(void **state)
{
    static const struct terminal_events events = { on_terminal_joined, on_terminal_bytes,
        on_terminal_cut, on_terminal_doubt, on_terminal_ended };
    static const char *const words[] = { "python3", "it's", "-c", "import os\nprint(1)\n", NULL };
    is_open = has_ended = false;
    largest = 0;
    end = (struct error){ 0 };
    assert_ok(loop_open(&loop, err));
    account = (struct daytona_account){ .loop = loop, .key_variable = "DAYTONA_API_KEY" };
    assert_ok(
        terminal_open(&account, "https://box.example", "cd /tmp; ", words, &events, NULL, &t, err));
    return 0;
}

static int terminal_teardown(void **state)
{
    terminal_close(steal(&t));
    buf_free(&story);
    buf_free(&typed);
    loop_close(loop);
    return 0;
}

/* What a timer does next. */
static void wait_for_next(void)
{
    goes_on = false;
    assert_ok(loop_run_until(loop, &goes_on, err));
}

static void assert_events(const char *expected)
{
    assert_string_equal(buf_text(&story), expected);
    buf_clear(&story);
}

static void is_made(long status, int code)
{
    struct rest_answer answer = { .status = status, .error.code = (enum error_code)code };
    made(terminal_arg, &answer);
}

static void control(const char *text)
{
    socket_events.text(terminal_arg, text, strlen(text));
}

static void shows(const char *text)
{
    socket_events.bytes(terminal_arg, text, strlen(text));
}

static void closes(unsigned http, unsigned status, const char *reason)
{
    struct websocket_end how = { .http = http, .status = status, .reason = reason };
    is_open = false;
    socket_events.closed(terminal_arg, &how);
}

/* As far as a program that has written its mark. */
static void join(void)
{
    char mark[] = { LINK_MARK, 'x', '\0' };
    is_made(201, ERROR_NONE);
    control("{\"type\":\"control\",\"status\":\"connected\"}");
    shows("$ ");
    shows(mark);
    assert_non_null(strstr(buf_text(&story), "make;connect;joined;<"));
    buf_clear(&story);
    buf_clear(&typed);
}

/* One line, which a terminal accepts whole: words quoted, a program of several lines in base64. */
static void the_line_replaces_the_shell(void **state)
{
    is_made(201, ERROR_NONE);
    control("{\"type\":\"control\",\"status\":\"connected\"}");
    const char *line = buf_text(&typed);
    assert_non_null(strstr(line, " cd /tmp; exec 'python3' 'it'\\''s' '-c' 'exec(__import__("));
    assert_non_null(strstr(line, "aW1wb3J0IG9zCnByaW50KDEpCg=="));
    assert_string_equal(strchr(line, '\n'), "\n");
    assert_true(typed.len < 4096);
}

static void output_before_the_mark_is_the_shells(void **state)
{
    char both[] = { '$', ' ', LINK_MARK, 'a', '\0' };
    is_made(409, ERROR_ENVIRONMENT); /* an earlier attempt had made it */
    control("{\"type\":\"control\",\"status\":\"connected\"}");
    shows("welcome\r\n");
    shows(both);
    shows("b");
    char expected[64];
    snprintf(expected, sizeof expected, "make;connect;joined;<%s>;<b>;", both + 2);
    assert_events(expected);
}

/* Nothing else may be typed before: the shell would take it. */
static void nothing_is_written_before_the_program_is_there(void **state)
{
    struct iovec iov = { (char[]){ "data" }, 4 };
    is_made(201, ERROR_NONE);
    terminal_write(t, &iov, 1);
    assert_int_equal(typed.len, 0);
}

static void large_writes_are_cut_into_messages(void **state)
{
    cleanup_free char *large = calloc(1, 100000);
    struct iovec iov[] = { { large, 70000 }, { large, 30000 } };
    join();
    largest = 0;
    terminal_write(t, iov, 2);
    assert_int_equal(typed.len, 100000);
    assert_int_equal(largest, 32768);
}

static void python_that_does_not_start_is_named_with_the_shells_words(void **state)
{
    is_made(201, ERROR_NONE);
    control("{\"type\":\"control\",\"status\":\"connected\"}");
    shows("bash: python3: command not found\r\nlogout\r\n");
    closes(0, 1000, "{\"exitCode\":127}");
    assert_true(has_ended && end.code == ERROR_ENVIRONMENT);
    assert_non_null(strstr(end.text, "status 127): bash: python3: command not found"));
}

/* The terminal is still there: connected again at once, without making it. */
static void a_cut_connection_is_made_again(void **state)
{
    join();
    closes(0, 0, "");
    assert_events("cut;");
    wait_for_next();
    control("{\"type\":\"control\",\"status\":\"connected\"}");
    assert_events("connect;joined;");
    assert_int_equal(typed.len, 0); /* no second line */
}

/* A program that has spoken has run something: what it did is not known. */
static void a_terminal_that_is_gone_ends_the_session(void **state)
{
    join();
    closes(0, 0, "");
    wait_for_next();
    closes(404, 0, "");
    assert_events("cut;connect;doubt;");
    terminal_retry(t); /* the sandbox lives */
    assert_true(has_ended && end.code == ERROR_LOST && strstr(end.text, "is gone"));
}

static void a_rejected_key_is_not_tried_again(void **state)
{
    is_made(201, ERROR_NONE);
    closes(401, 0, "");
    assert_true(has_ended && end.code == ERROR_PERMISSION);
    assert_non_null(strstr(end.text, "DAYTONA_API_KEY"));
}

/* Before the program has spoken, a new terminal costs nothing. */
static void a_terminal_that_failed_early_is_made_anew(void **state)
{
    is_made(500, ERROR_ENVIRONMENT);
    assert_events("make;doubt;");
    terminal_retry(t);
    wait_for_next();
    assert_events("make;");
}

static void texts_of_no_control_are_ignored(void **state)
{
    is_made(201, ERROR_NONE);
    control("[]");
    control("{\"status\":\"connected\"}");
    control("{\"type\":\"control\",\"status\":7}");
    control("not json");
    assert_events("make;connect;");
    assert_int_equal(typed.len, 0);
    control("{\"type\":\"control\",\"status\":\"error\",\"error\":\"no \\u001b[1mpty\"}");
    assert_events("doubt;");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, terminal_setup, terminal_teardown)
    const struct CMUnitTest tests[] = {
        TEST(the_line_replaces_the_shell),
        TEST(output_before_the_mark_is_the_shells),
        TEST(nothing_is_written_before_the_program_is_there),
        TEST(large_writes_are_cut_into_messages),
        TEST(python_that_does_not_start_is_named_with_the_shells_words),
        TEST(a_cut_connection_is_made_again),
        TEST(a_terminal_that_is_gone_ends_the_session),
        TEST(a_rejected_key_is_not_tried_again),
        TEST(a_terminal_that_failed_early_is_made_anew),
        TEST(texts_of_no_control_are_ignored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
