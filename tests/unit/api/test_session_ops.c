/* Asynchronous operations of sessions, whose ends are reported or awaited; tools and types of an
 * open session; a droste within another event loop. */
#include "../test.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../processes.h"
#include "base/cleanup.h"
#include "base/os/tree.h"
#include "droste.h"

#define API_ERROR err
#include "assert_fine.h"

static droste *d;
static droste_session *session;
static droste_error err;

static size_t sockets(void);
static size_t before; /* the droste */

static int setup(void **state)
{
    session = NULL;
    before = sockets();
    assert_fine(droste_new(&d, &err));
    assert_fine(droste_set(d, "database", "none", &err));
    return 0;
}

static int teardown(void **state)
{
    droste_free(d);
    return 0;
}

static void open_session(void)
{
    assert_fine(droste_session_start(d, NULL, &session, &err));
}

static void start(droste_session *s, const char *code)
{
    assert_fine(droste_session_exec_start(s, code, strlen(code), DROSTE_ECHO, -1, &err));
}

static droste_result *wait_for(droste_session *s)
{
    droste_result *r = NULL;
    int rc = droste_session_wait(s, -1, &r, &err);
    if (rc != 0)
        fail_msg("waiting: %d, %s", rc, err.text);
    return r;
}

static void expect_echo(droste_session *s, const char *code, const char *echo)
{
    start(s, code);
    droste_result *r = wait_for(s);
    if (!droste_result_echo(r) || strcmp(droste_result_echo(r), echo) != 0)
        fail_msg("%s, not %s", droste_result_json(r, NULL), echo);
    droste_result_free(r);
}

/* ---- a tool that a cell waits for ---- */

static bool gate_is_open;
static droste_tool_call *held;

static void answer_gate(void *arg, droste_tool_call *call, const char *json, size_t len)
{
    droste_tool_answer(call, gate_is_open ? "1" : "0", 1);
}

static void hold(void *arg, droste_tool_call *call, const char *json, size_t len)
{
    held = call;
}

/* Starts a cell that does not end before `held` is answered, and waits until it is. */
static void start_held(droste_session *s)
{
    held = NULL;
    assert_fine(droste_session_tool_add(s, "hold", NULL, NULL, hold, NULL, &err));
    start(s, "hold()");
    while (!held)
        assert_fine(droste_turn(d, 1000, &err));
}

/* DOCKER_HOST counts as it is when a session opens, not as it was for the one before. */
static void the_daemon_is_at_its_present_address(void **state)
{
    static const char *const hosts[] = { "unix:///nonexistent/a", "unix:///nonexistent/b" };
    assert_fine(droste_set(d, "env", "docker", &err));
    for (size_t i = 0; i < 2; i++) {
        setenv("DOCKER_HOST", hosts[i], 1);
        assert_int_equal(droste_session_open(d, &session, &err), -DROSTE_ERROR_ENVIRONMENT);
        if (!strstr(err.text, hosts[i]))
            fail_msg("%s, not of %s", err.text, hosts[i]);
    }
    unsetenv("DOCKER_HOST");
}

/* A wait of some time ends before the cell does, which goes on; its end is there for the next
 * wait. */
static void a_wait_may_end_before_the_cell(void **state)
{
    droste_result *r = NULL;
    open_session();
    start_held(session);
    assert_int_equal(droste_session_wait(session, 20, &r, &err), 1);
    assert_null(r);
    droste_tool_answer(held, "7", 1);
    r = wait_for(session);
    assert_string_equal(droste_result_echo(r), "7");
    droste_result_free(r);
    assert_int_equal(droste_session_wait(session, -1, &r, &err), 0); /* nothing is under way */
    assert_null(r);
    /* Nor does the time of a wait that ended in time end a later one. */
    start(session, "1");
    while (droste_session_wait(session, 1000, &r, &err) == 1)
        ;
    droste_result_free(r);
    start(session, "import time; time.sleep(1.2)");
    droste_result_free(wait_for(session));
}

/* A second operation is refused while one is under way, and taken once its end was taken. */
static void one_operation_at_a_time(void **state)
{
    open_session();
    start(session, "1");
    assert_int_equal(
        droste_session_set_start(session, "x", "json", "1", 1, &err), -DROSTE_ERROR_ARGUMENT);
    droste_result_free(wait_for(session));
    assert_fine(droste_session_set_start(session, "x", "json", "1", 1, &err));
    assert_null(wait_for(session));
    expect_echo(session, "x", "1");
}

/* A value that cannot be made is an error of the wait, and the session goes on. */
static void a_value_may_fail(void **state)
{
    droste_result *r = NULL;
    open_session();
    assert_fine(droste_session_set_start(session, "x", "json", "{", 1, &err));
    assert_true(droste_session_wait(session, -1, &r, &err) < 0);
    expect_echo(session, "2", "2");
}

/* What could not be started is not under way; nor is anything in a session whose sandbox is
 * gone. */
static void what_did_not_start_is_not_waited_for(void **state)
{
    open_session();
    assert_int_equal(
        droste_session_exec_start(session, "\xff", 1, 0, -1, &err), -DROSTE_ERROR_ARGUMENT);
    assert_null(wait_for(session));
    expect_echo(session, "2", "2");
    assert_true(droste_session_is_alive(session));
    start(session, "import os; os._exit(3)");
    droste_result_free(wait_for(session));
    assert_false(droste_session_is_alive(session));
    for (int i = 0; i < 2; i++)
        assert_int_equal(
            droste_session_exec_start(session, "1", 1, 0, -1, &err), -DROSTE_ERROR_LOST);
}

/* Settings of one session are those of no other. What they have it begin with may fail, which its
 * first wait says. */
static void a_session_has_settings_of_its_own(void **state)
{
    const char *const settings[] = { "setup-code", "here = 1", NULL };
    droste_session *other = NULL;
    assert_fine(droste_session_start(d, settings, &session, &err));
    assert_fine(droste_session_start(d, NULL, &other, &err));
    assert_null(wait_for(session)); /* for the setup code */
    expect_echo(session, "here", "1");
    expect_echo(other, "'here' in globals()", "False");
    const char *const raises[] = { "setup-code", "1/0", NULL };
    droste_result *r = NULL;
    assert_fine(droste_session_start(d, raises, &other, &err));
    assert_true(droste_session_wait(other, -1, &r, &err) < 0);
    assert_non_null(strstr(err.text, "ZeroDivisionError"));
    const char *const wrong[] = { "memory", "few", NULL };
    droste_session *none = NULL;
    assert_int_equal(droste_session_start(d, wrong, &none, &err), -DROSTE_ERROR_ARGUMENT);
    assert_null(none);
}

/* ---- told ---- */

static unsigned ends, closed;
static int end_code;

static void count_end(void *arg, droste_session *s, droste_result *r, const droste_error *why)
{
    ends++;
    end_code = why ? why->code : 0;
    droste_result_free(r);
    if (arg) {
        droste_session_close(s);
        closed++;
    }
}

/* A waiting caller gets the end of a cell; no callback reports it a second time. */
static void an_end_is_taken_once(void **state)
{
    open_session();
    ends = 0;
    droste_session_on_done(session, count_end, NULL);
    expect_echo(session, "1", "1");
    assert_fine(droste_dispatch(d, &err));
    assert_int_equal(ends, 0);
    start(session, "2");
    while (ends == 0)
        assert_fine(droste_turn(d, 1000, &err));
    assert_null(wait_for(session)); /* nothing is left to be taken */
    assert_int_equal(ends, 1);
}

static droste_session *pair[2];

static void closes_the_other(
    void *arg, droste_session *s, droste_result *r, const droste_error *why)
{
    ends++;
    droste_result_free(r);
    droste_session_close(pair[s == pair[0]]);
}

static void silences_the_other(
    void *arg, droste_session *s, droste_result *r, const droste_error *why)
{
    ends++;
    droste_result_free(r);
    droste_session_on_done(pair[s == pair[0]], NULL, NULL);
    pair[0] = pair[s == pair[0]];
}

/* Starts a cell in two sessions; both are over, in all likelihood, before the droste looks. */
static void run_two(droste_session_done_fn *fn)
{
    ends = 0;
    for (int i = 0; i < 2; i++) {
        assert_fine(droste_session_start(d, NULL, &pair[i], &err));
        expect_echo(pair[i], "1", "1");
        droste_session_on_done(pair[i], fn, NULL);
    }
    start(pair[0], "1");
    start(pair[1], "1");
    usleep(50000);
    while (ends == 0)
        assert_fine(droste_turn(d, 1000, &err));
    assert_fine(droste_dispatch(d, &err));
    assert_int_equal(ends, 1);
}

/* The callback of one end may close another session that has ended too, or remove its callback: a
 * caller that waits still gets that session's end. */
static void a_callback_may_close_another_session_that_ended(void **state)
{
    run_two(closes_the_other);
    run_two(silences_the_other);
    droste_result_free(wait_for(pair[0]));
    expect_echo(pair[0], "3", "3");
}

/* Many sessions run at once, driven by poll on one descriptor; each end is told once, and whoever
 * is told may close the session. */
static void many_sessions_within_another_loop(void **state)
{
    enum { SESSIONS = 20 };
    droste_session *all[SESSIONS];
    ends = closed = 0;
    struct pollfd p = { .fd = droste_fd(d, &err), .events = POLLIN };
    assert_true(p.fd >= 0);
    assert_int_equal(p.fd, droste_fd(d, &err));
    for (unsigned i = 0; i < SESSIONS; i++) {
        assert_fine(droste_session_start(d, NULL, &all[i], &err));
        droste_session_on_done(all[i], count_end, d);
        start(all[i], "import time; time.sleep(0.05)");
    }
    for (unsigned turns = 0; ends < SESSIONS && turns < 10000; turns++) {
        assert_fine(droste_dispatch(d, &err));
        if (ends < SESSIONS)
            assert_true(poll(&p, 1, 30000) > 0);
    }
    assert_int_equal(ends, SESSIONS);
    assert_int_equal(closed, SESSIONS);
}

/* A deadline is told too, although nothing but time makes it come. */
static void a_deadline_wakes_another_loop(void **state)
{
    open_session();
    struct pollfd p = { .fd = droste_fd(d, &err), .events = POLLIN };
    ends = 0;
    droste_session_on_done(session, count_end, NULL);
    const char *code = "while True: pass";
    assert_fine(droste_session_exec_start(session, code, strlen(code), 0, 0.2, &err));
    while (ends == 0) {
        assert_fine(droste_dispatch(d, &err));
        if (ends == 0)
            assert_true(poll(&p, 1, 30000) > 0);
    }
    assert_true(droste_session_is_alive(session));
}

static void *wake(void *arg)
{
    usleep(50000);
    droste_wake(d);
    return NULL;
}

/* Another thread has a wait end early; the cell goes on, until it alone is interrupted. */
static void another_thread_wakes_the_wait(void **state)
{
    pthread_t thread;
    droste_result *r = NULL;
    droste_session *other = NULL;
    open_session();
    assert_fine(droste_session_start(d, NULL, &other, &err));
    start_held(other);
    start(session, "import time; time.sleep(1e6)");
    pthread_create(&thread, NULL, wake, NULL);
    assert_int_equal(droste_session_wait(session, -1, &r, &err), 1);
    pthread_join(thread, NULL);
    droste_session_interrupt(session);
    r = wait_for(session);
    assert_non_null(strstr(droste_result_traceback(r), "KeyboardInterrupt"));
    droste_result_free(r);
    droste_tool_answer(held, "6", 1);
    r = wait_for(other);
    assert_string_equal(droste_result_echo(r), "6");
    droste_result_free(r);
}

/* ---- tools and types ---- */

static void answer_seven(void *arg, droste_tool_call *call, const char *json, size_t len)
{
    droste_tool_answer(call, "7", 1);
}

/* A tool that comes while the session is open is there for the next cell, and gone once it was
 * removed. */
static void tools_come_and_go(void **state)
{
    open_session();
    expect_echo(session, "'seven' in dir(__builtins__)", "False");
    assert_fine(droste_session_tool_add(session, "seven", NULL, NULL, answer_seven, NULL, &err));
    expect_echo(session, "seven()", "7");
    assert_int_equal(
        droste_session_tool_add(session, "seven", NULL, NULL, answer_seven, NULL, &err),
        -DROSTE_ERROR_ARGUMENT);
    assert_fine(droste_session_tool_remove(session, "seven", &err));
    expect_echo(session, "'seven' in dir(__builtins__)", "False");
    assert_int_equal(droste_session_tool_remove(session, "seven", &err), -DROSTE_ERROR_NOT_FOUND);
}

/* A tool may take the place of one of the guest's own functions, which is back once it is gone;
 * names of Python's may not be taken. */
static void a_tool_may_replace_the_guests_own(void **state)
{
    open_session();
    assert_fine(
        droste_session_tool_add(session, "llm_query", NULL, NULL, answer_seven, NULL, &err));
    expect_echo(session, "llm_query('x')", "7");
    assert_fine(droste_session_tool_remove(session, "llm_query", &err));
    expect_echo(session, "llm_query.__doc__[:4]", "'Asks'");
    assert_int_equal(
        droste_session_tool_add(session, "print", NULL, NULL, answer_seven, NULL, &err),
        -DROSTE_ERROR_ARGUMENT);
    assert_int_equal(droste_tool_add(d, "llm_query", NULL, NULL, answer_seven, NULL, &err),
        -DROSTE_ERROR_ARGUMENT);
}

/* What was added to the droste is not there for sessions that begin after droste_tools_clear. */
static void tools_of_the_droste_may_be_cleared(void **state)
{
    droste_session *later = NULL;
    assert_fine(droste_tool_add(d, "seven", NULL, NULL, answer_seven, NULL, &err));
    open_session();
    droste_tools_clear(d);
    assert_fine(droste_session_start(d, NULL, &later, &err));
    expect_echo(session, "seven()", "7");
    expect_echo(later, "'seven' in dir(__builtins__)", "False");
}

/* ---- pauses ---- */

static void remember_output(void *arg, int stream, const char *data, size_t len)
{
    *(bool *)arg = true;
}

/* Waits until no process below this one runs: a stopped one must be scheduled to stop. */
static void await_rest(void)
{
    static struct process list[PROCESSES_MAX];
    for (bool runs = true; runs;) {
        size_t count = descendants(getpid(), list, PROCESSES_MAX);
        runs = false;
        for (size_t i = 0; i < count; i++)
            runs = runs || list[i].state == 'R';
    }
}

/* Runs the cell below with this limit, paused for longer than that or not at all; whether it ended
 * in time. */
static bool ends_in_time(double limit, bool paused)
{
    static const char code[] =
        "import subprocess, threading\n"
        "children = [subprocess.Popen(['/bin/sh', '-c', 'while :; do :; done']) for _ in range(3)]\n"
        "threads = [threading.Thread(target=lambda: [0 for _ in iter(int, 1)], daemon=True)]\n"
        "threads[0].start()\n"
        "print('on', flush=True)\n"
        "while gate() != 1: pass\n"
        "[c.kill() for c in children]\n"
        "[c.wait() for c in children]";
    bool has_output = false;
    droste_result *r = NULL;
    gate_is_open = false;
    open_session();
    assert_fine(droste_session_tool_add(session, "gate", NULL, NULL, answer_gate, NULL, &err));
    droste_session_on_output(session, remember_output, &has_output);
    assert_fine(droste_session_exec_start(session, code, strlen(code), 0, limit, &err));
    while (!has_output && droste_session_wait(session, 10, &r, &err) == 1)
        ;
    if (has_output && paused) {
        assert_fine(droste_session_pause(session, 1, &err));
        assert_fine(droste_session_pause(session, 1, &err)); /* it is already */
        await_rest();
        assert_int_equal(droste_session_wait(session, (int)(limit * 1100), &r, &err), 1);
        await_rest();
        gate_is_open = true;
        assert_fine(droste_session_pause(session, 0, &err));
    }
    if (!r)
        r = wait_for(session);
    bool in_time = strcmp(droste_result_status(r), "ok") == 0;
    droste_result_free(r);
    droste_session_close(session);
    return in_time;
}

/* A paused session uses no time, and its cell has the whole of its own when it goes on. Without the
 * pause the same cell is ended. On a busy machine it needs more than a second itself. */
static void a_pause_does_not_count_for_the_cell(void **state)
{
    assert_false(ends_in_time(1, false));
    assert_true(ends_in_time(1, true) || ends_in_time(8, true) || ends_in_time(40, true));
}

/* What the code itself had stopped stays so, forks and commands are stopped too, and a paused
 * session can be closed. */
static void a_pause_leaves_no_trace(void **state)
{
    droste_session *fork = NULL;
    open_session();
    expect_echo(session,
        "import os, subprocess\n"
        "p = subprocess.Popen(['/bin/sh', '-c', 'kill -STOP $$; exit 3'])\n"
        "q = subprocess.Popen(['/bin/cat'], stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        "os.WIFSTOPPED(os.waitpid(p.pid, os.WUNTRACED)[1])",
        "True");
    assert_fine(droste_session_pause(session, 1, &err));
    assert_fine(droste_session_pause(session, 0, &err));
    expect_echo(session, "os.waitpid(p.pid, os.WNOHANG | os.WCONTINUED)", "(0, 0)");
    expect_echo(session, "p.send_signal(18); p.wait()", "3");
    expect_echo(session, "q.communicate(b'x')[0]", "b'x'");
    assert_fine(droste_session_fork(session, &fork, &err));
    assert_fine(droste_session_pause(fork, 1, &err)); /* all of them */
    assert_fine(droste_session_exec_start(session, "1", 1, DROSTE_ECHO, -1, &err));
    droste_result *r = NULL;
    assert_int_equal(droste_session_wait(session, 100, &r, &err), 1);
    assert_fine(droste_session_pause(session, 0, &err));
    droste_result_free(wait_for(session));
    assert_fine(droste_session_pause(session, 1, &err));
    droste_session_close(fork);
    droste_session_close(session);
}

/* What it uses grows with its memory, its files and its work, and what a fork uses counts, too. */
static void a_session_knows_what_it_uses(void **state)
{
    droste_usage first, now;
    droste_session *fork = NULL;
    open_session();
    do
        expect_echo(session, "1", "1"); /* which may be there before the sandbox's pid */
    while (droste_session_usage(session, &first, &err) == -DROSTE_ERROR_UNSUPPORTED);
    assert_true(first.memory > 0 && first.memory < 200e6);
    expect_echo(session,
        "import time\n"
        "x = b'x' * 40_000_000\n"
        "with open('/tmp/f', 'wb') as f: n = f.write(x[:10_000_000])\n"
        "while time.process_time() < 0.1: pass\n"
        "n",
        "10000000");
    assert_fine(droste_session_usage(session, &now, &err));
    assert_true(now.cpu_seconds >= first.cpu_seconds + 0.05);
    assert_true(now.memory >= first.memory + 40000000);
    if (first.files_limit > 0) { /* it has a file system of its own */
        assert_true(now.files >= first.files + 10000000 && now.files <= now.files_limit);
        assert_true(now.memory >= first.memory + 50000000);
    }
    assert_fine(droste_session_fork(session, &fork, &err));
    expect_echo(fork, "y = b'y' * 40_000_000; len(y)", "40000000");
    assert_fine(droste_session_usage(session, &first, &err));
    assert_true(first.memory >= now.memory + 40000000);
    droste_session_close(fork);
    droste_session_close(session);
}

/* The type of the answer may change; what does not fit the new one is not taken. */
static void the_type_of_the_answer_may_change(void **state)
{
    static const char two[] = "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},"
                              "\"b\":{\"type\":\"string\"}},\"required\":[\"a\",\"b\"]}";
    open_session();
    assert_fine(droste_session_expect(session, two, &err));
    start(session, "SUBMIT(1, 'x')");
    droste_result *r = wait_for(session);
    assert_string_equal(droste_result_submit(r, NULL), "{\"a\": 1, \"b\": \"x\"}");
    droste_result_free(r);
    start(session, "SUBMIT('x', 1)");
    r = wait_for(session);
    assert_string_equal(droste_result_status(r), "error");
    droste_result_free(r);
    assert_fine(droste_session_expect(session, NULL, &err));
    start(session, "SUBMIT('x')");
    r = wait_for(session);
    assert_string_equal(droste_result_submit(r, NULL), "{\"output\": \"x\"}");
    droste_result_free(r);
}

/* Long texts come in pieces, or together, in either order, and are the same; also where a type is
 * asked for. */
static void long_texts_come_in_pieces_or_together(void **state)
{
    static const char type[] =
        "{\"type\":\"object\",\"properties\":{\"n\":{\"type\":\"integer\"},"
        "\"a\":{\"type\":\"string\",\"maxLength\":70000}},\"required\":[\"n\",\"a\"]}";
    size_t len = 0;
    open_session();
    assert_fine(droste_session_expect(session, type, &err));
    start(session, "SUBMIT(1, '\\n' * 70000)");
    droste_result *r = wait_for(session);
    assert_string_equal(droste_result_outline(r, NULL), "{\"n\": 1, \"a\": NaN}");
    const char *text = droste_result_text(r, 0, &len);
    assert_int_equal(len, 70000);
    assert_true(text[0] == '\n' && memcmp(text, text + 1, len - 1) == 0);
    assert_null(droste_result_text(r, 1, &len));
    const char *all = droste_result_json(r, &len);
    const char *submit = droste_result_submit(r, &len);
    assert_int_equal(len, 70000 * 2 + strlen("{\"n\": 1, \"a\": \"\"}"));
    assert_memory_equal(strstr(all, "\"submit\":") + strlen("\"submit\":"), submit, len);
    assert_non_null(strstr(all, "\\n\"},\"stdout\":\"\","));
    assert_ptr_equal(droste_result_json(r, NULL), all);
    droste_result_free(r);
    start(session, "answer.update(content={'n': 1, 'a': 'x' * 70001}, ready=True)\n5");
    r = wait_for(session);
    assert_string_equal(droste_result_status(r), "error");
    assert_string_equal(droste_result_echo(r), "5");
    assert_null(droste_result_outline(r, NULL));
    assert_null(droste_result_text(r, 0, NULL));
    assert_non_null(strstr(droste_result_json(r, NULL), "\"submit\":null,"));
    droste_result_free(r);
}

/* ---- forks ---- */

/* Sockets, and what waits for descriptors. */
static size_t sockets(void)
{
    size_t count = 0;
    for (int fd = 0; fd < 1024; fd++) {
        char path[32], what[40] = "";
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        if (readlink(path, what, sizeof what - 1) > 0)
            count += strstr(what, "socket:") || strstr(what, "[eventpoll]");
    }
    return count;
}

/* A child that forgets the droste leaves the parent's sandbox as it is, and keeps nothing by which
 * that or its zygote would take the child for their host. */
static void a_forked_child_harms_nothing(void **state)
{
    open_session();
    expect_echo(session, "x = 1; x", "1");
    assert_true(sockets() > before);
    int fd = droste_fd(d, &err);
    pid_t child = fork();
    if (child == 0) {
        droste_forked(d);
        _exit(sockets() > before || fcntl(fd, F_GETFD) >= 0);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    expect_echo(session, "x", "1");
}

/* ---- volumes ---- */

static char place[64];

/* A session with a volume of at most 4 MiB, in a directory that all users can reach. */
static droste_session *open_with_volume(void)
{
    const char *const settings[] = { "volume-name", "v", "volume-root", place, "volume-size", "4M",
        NULL };
    droste_session *s = NULL;
    droste_result *none = NULL;
    assert_fine(droste_session_start(d, settings, &s, &err));
    assert_int_equal(
        droste_session_wait(s, -1, &none, &err), 0); /* the volume is opened meanwhile */
    return s;
}

static void make_directory(void)
{
    snprintf(place, sizeof place, "/tmp/droste-session-XXXXXX");
    assert_non_null(mkdtemp(place));
    assert_int_equal(chmod(place, 0755), 0);
}

/* Every session of a volume that is full is ended, not only the one that has filled it. */
static void a_full_volume_ends_all_its_sessions(void **state)
{
    make_directory();
    droste_session *idle = open_with_volume(), *busy = open_with_volume();
    start(idle, "import time; time.sleep(1e6)");
    start(busy, "import os\nf = open(os.environ['DROSTE_VOLUME'] + '/f', 'wb')\n"
                "while True: f.write(bytes(1 << 20))");
    droste_session *both[] = { busy, idle };
    for (int i = 0; i < 2; i++) {
        droste_result *r = wait_for(both[i]);
        assert_string_equal(droste_result_status(r), "killed");
        assert_non_null(strstr(droste_result_json(r, NULL), "\"killed\":\"volume size\""));
        droste_result_free(r);
    }
    droste_session_close(busy);
    droste_session_close(idle);
    assert_true(tree_remove(AT_FDCWD, place));
}

/* Once a session is closed nothing of it is left that would use its volume. What it holds in memory
 * takes a moment to go. */
static void a_closed_session_has_let_go_of_its_volume(void **state)
{
    char path[100];
    make_directory();
    droste_session *s = open_with_volume();
    expect_echo(s,
        "import os, fcntl; f = open(os.environ['DROSTE_VOLUME'] + '/held', 'w'); "
        "fcntl.flock(f, fcntl.LOCK_EX); held = bytearray(b'x') * (100 << 20); 1",
        "1");
    snprintf(path, sizeof path, "%s/v/data/held", place);
    cleanup_fd int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), -1);
    droste_session_close(s);
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
    assert_true(tree_remove(AT_FDCWD, place));
}

/* ---- models by name ---- */

static char asked[200];

static void answer_ok(void *arg, const droste_message *messages, size_t count, droste_call *call)
{
    snprintf(asked, sizeof asked, "%s %s", droste_call_opened(call), droste_call_model(call));
    droste_answer(call, "ok", 2);
}

/* Settings come in pairs: a name without a value is an error that names it. */
static void a_setting_without_a_value_is_refused(void **state)
{
    const char *const settings[] = { "isolation", NULL };
    session = NULL;
    assert_true(droste_session_start(d, settings, &session, &err) < 0);
    assert_int_equal(err.code, DROSTE_ERROR_ARGUMENT);
    assert_non_null(strstr(err.text, "isolation has no value"));
}

/* A callback has a name, by which the program knows who is asked. */
static void a_callback_may_have_a_name(void **state)
{
    const char *const settings[] = { "model", "callback:mine", NULL };
    droste_set_model(d, answer_ok, NULL);
    assert_fine(droste_session_start(d, settings, &session, &err));
    expect_echo(session, "llm_query('x')", "'ok'");
    assert_string_equal(asked, "callback:mine mine");
    expect_echo(session, "llm_query('x', model='other')", "'ok'");
    assert_string_equal(asked, "callback:mine other");
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

/* What a cell shows and prints, as it is told: bytes of output, and results by a mark. */
struct shown {
    size_t bytes;
    size_t results;
    size_t early; /* results that were told before what was printed before them */
};

enum { SHOWN_CELLS = 300 };

static void shown_output(void *arg, int stream, const char *data, size_t len)
{
    ((struct shown *)arg)->bytes += len;
}

static void shown_result(void *arg, const droste_bundles *results, size_t result)
{
    struct shown *shown = arg;
    shown->results++;
    shown->early += shown->bytes < shown->results;
}

/* A rich result comes after the output that the code wrote before it. That goes through a pipe of
 * its own, which the host may read later. */
static void results_follow_the_output_before_them(void **state)
{
    static const char code[] = "print(end='x')\n1";
    struct shown shown = { 0 };
    open_session();
    droste_session_on_output(session, shown_output, &shown);
    droste_session_on_display(session, shown_result, &shown);
    for (size_t i = 0; i < SHOWN_CELLS; i++) {
        assert_fine(droste_session_exec_start(
            session, code, sizeof code - 1, DROSTE_ECHO | DROSTE_RESULTS, -1, &err));
        droste_result_free(wait_for(session));
    }
    assert_int_equal(shown.results, SHOWN_CELLS);
    assert_int_equal(shown.bytes, SHOWN_CELLS);
    assert_int_equal(shown.early, 0);
    droste_session_close(session);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(the_daemon_is_at_its_present_address),
        T(a_wait_may_end_before_the_cell),
        T(one_operation_at_a_time),
        T(a_value_may_fail),
        T(what_did_not_start_is_not_waited_for),
        T(a_session_has_settings_of_its_own),
        T(a_setting_without_a_value_is_refused),
        T(an_end_is_taken_once),
        T(a_callback_may_close_another_session_that_ended),
        T(many_sessions_within_another_loop),
        T(a_deadline_wakes_another_loop),
        T(another_thread_wakes_the_wait),
        T(a_pause_does_not_count_for_the_cell),
        T(a_pause_leaves_no_trace),
        T(a_session_knows_what_it_uses),
        T(tools_come_and_go),
        T(a_tool_may_replace_the_guests_own),
        T(tools_of_the_droste_may_be_cleared),
        T(the_type_of_the_answer_may_change),
        T(long_texts_come_in_pieces_or_together),
        T(a_forked_child_harms_nothing),
        T(a_full_volume_ends_all_its_sessions),
        T(a_closed_session_has_let_go_of_its_volume),
        T(a_callback_may_have_a_name),
        T(results_follow_the_output_before_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
