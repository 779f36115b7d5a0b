/* A session over real local sandboxes: what a cell does, how it can end, what is kept.
 *
 * Runs at the isolation that DROSTE_TEST_ISOLATION names, `full` by default.
 */
#include "fixture.h"

#include "base/os/file.h"

/* Calls that wait until the test answers them. */
static struct {
    uint64_t ids[64];
    unsigned count;
} kept;

static void keep_call(void *arg, struct session *s, const struct session_call *call)
{
    assert_true(kept.count < array_length(kept.ids));
    kept.ids[kept.count++] = call->id;
}

static void open_keeping_calls(struct fixture *f)
{
    static const struct session_events events = { keep_call, fixture_dropped, NULL };
    struct session_options options = fixture_options();
    kept.count = 0;
    fixture_close(f);
    assert_ok(session_open(f->env, &options, &events, f, &f->session, err));
}

static void answer_kept(struct fixture *f, unsigned index, const char *text)
{
    struct session_part part = { text, strlen(text) };
    assert_ok(session_reply(f->session, kept.ids[index], NULL, &part, 1, err));
}

static void wait_done(struct fixture *f)
{
    assert_ok(loop_run_until(f->loop, &f->done, err));
}

static void submit_gives_strict_json(void **state)
{
    struct fixture *f = *state;
    fixture_open_plain(f);
    const struct cell_result *r = run(f, "import math\nSUBMIT(answer=math.factorial(15))");
    assert_status(r, CELL_SUBMITTED);
    assert_string_equal(submitted(r), "{\"answer\": 1307674368000}");
    assert_true(r->alive);
}

static void variables_functions_and_classes_stay(void **state)
{
    struct fixture *f = *state;
    fixture_open_plain(f);
    run(f, "x = 1\n_hidden = 2\nimport json\nclass A:\n    v = 3\ndef f(): return x + y\n");
    run(f, "y = 10");
    assert_string_equal(submitted(run(f, "SUBMIT(f(), A().v, _hidden, json.dumps([1]))")),
        "{\"output\": [11, 3, 2, \"[1]\"]}");
}

static void what_was_bound_before_an_error_stays(void **state)
{
    struct fixture *f = *state;
    fixture_open_plain(f);
    const struct cell_result *r = run(f, "kept = 5\n\nraise ValueError('no')\nlost = 1");
    assert_status(r, CELL_ERROR);
    assert_string_equal(r->error.type, "ValueError");
    assert_string_equal(r->error.message, "no");
    assert_non_null(strstr(r->error.traceback, "File \"<cell 1>\", line 3"));
    assert_non_null(strstr(r->error.traceback, "raise ValueError('no')"));
    assert_null(strstr(r->error.traceback, "<droste>"));
    assert_string_equal(submitted(run(f, "SUBMIT(kept=kept, lost='lost' in globals())")),
        "{\"kept\": 5, \"lost\": false}");
}

static void both_streams_are_captured_at_the_descriptors(void **state)
{
    struct fixture *f = *state;
    fixture_open_plain(f);
    const struct cell_result *r =
        run(f, "import os, subprocess, sys\n"
               "print('a')\nsubprocess.run(['sh', '-c', 'echo b; echo c >&2'])\n"
               "os.write(1, b'd\\n')\nprint('e', end='')\nprint('f', file=sys.stderr)");
    assert_status(r, CELL_OK);
    assert_string_equal(buf_text(&r->out), "a\nb\nd\ne");
    assert_string_equal(buf_text(&r->err), "c\nf\n");
}

static void long_output_keeps_head_and_tail(void **state)
{
    struct fixture *f = *state;
    struct session_options options = fixture_options();
    options.output_limit = 1000;
    fixture_open(f, &options);
    const struct cell_result *r = run(f, "print('A' * 600 + 'B' * 100000 + 'C' * 600, end='')");
    assert_true(r->out_left_out > 100000 - 1000);
    assert_true(r->out.len < 1200);
    assert_int_equal(r->out.data[0], 'A');
    assert_int_equal(r->out.data[r->out.len - 1], 'C');
    assert_non_null(strstr(r->out.data, "bytes left out"));
    assert_int_equal(run(f, "print('x' * 1000, end='')")->out.len, 1000);
}

static void the_soft_deadline_keeps_the_state(void **state)
{
    struct fixture *f = *state;
    fixture_open_plain(f);
    run(f, "x = 41");
    const struct cell_result *r = run_limited(f, "print('begun')\nwhile True: pass", 1);
    assert_status(r, CELL_TIMEOUT);
    assert_true(r->alive);
    assert_string_equal(r->error.type, "TimeoutError");
    assert_string_equal(buf_text(&r->out), "begun\n");
    assert_string_equal(submitted(run(f, "SUBMIT(x=x + 1)")), "{\"x\": 42}");
}

static void a_blocking_call_is_interrupted_too(void **state)
{
    struct fixture *f = *state;
    fixture_open_plain(f);
    assert_status(run_limited(f, "import time; time.sleep(1e9)", 1), CELL_TIMEOUT);
    assert_true(f->last.alive);
}

static void a_cell_that_does_not_stop_is_killed(void **state)
{
    struct fixture *f = *state;
    struct session_options options = fixture_options();
    options.grace = 0.2;
    fixture_open(f, &options);
    run(f, "import signal");
    const struct cell_result *r =
        run_limited(f, "signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass", 1);
    assert_status(r, CELL_TIMEOUT);
    assert_false(r->alive);
    assert_string_equal(r->killed, "timeout");
    struct session_cell next = { .code = "1", .len = 1 };
    assert_fails(ERROR_TIMEOUT, session_exec(f->session, &next, fixture_took, f, err));
}

static void an_interrupt_in_the_idle_state_does_nothing(void **state)
{
    struct fixture *f = *state;
    fixture_open_plain(f);
    run(f, "x = 1");
    session_interrupt(f->session);
    assert_status(run(f, "import time; time.sleep(0.05); SUBMIT(x=x)"), CELL_SUBMITTED);
}

static void sys_exit_is_an_error_and_the_session_lives(void **state)
{
    struct fixture *f = *state;
    fixture_open_plain(f);
    const struct cell_result *r = run(f, "x = 1\nimport sys\nsys.exit(3)");
    assert_status(r, CELL_ERROR);
    assert_string_equal(r->error.type, "SystemExit");
    assert_string_equal(submitted(run(f, "SUBMIT(x=x)")), "{\"x\": 1}");
}

static void a_guest_that_ends_itself_is_named(void **state)
{
    static const struct {
        const char *code, *killed;
    } ways[] = {
        { "import os; os._exit(3)", "exit 3" },
        { "import os; os.kill(os.getpid(), 9)", "signal 9 SIGKILL" },
        { "import os; os.abort()", "signal 6 SIGABRT" },
        { "import ctypes; ctypes.string_at(0)", "signal 11 SIGSEGV" },
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < array_length(ways); i++) {
        fixture_open_plain(f);
        const struct cell_result *r = run(f, ways[i].code);
        assert_status(r, CELL_KILLED);
        assert_false(r->alive);
        assert_string_equal(r->killed, ways[i].killed);
        fixture_close(f);
    }
}

static void calls_go_out_and_come_back(void **state)
{
    struct fixture *f = *state;
    fixture_open_plain(f);
    const struct cell_result *r = run(f, "SUBMIT(reply=llm_query('what is 2+2?'))");
    assert_string_equal(submitted(r), "{\"reply\": \"what is 2+2?\"}");
    assert_int_equal(r->calls, 1);
}

/* A cell that ends without them fails the test, and does not hold it. */
static void wait_for_calls(struct fixture *f, unsigned count)
{
    while (kept.count < count && !f->done)
        uv_run(&f->loop->uv, UV_RUN_ONCE);
    assert_true(kept.count >= count);
}

static void threads_call_at_once_and_are_answered_in_any_order(void **state)
{
    struct fixture *f = *state;
    open_keeping_calls(f);
    const char *code = "import threading\nout = [None] * 8\n"
                       "def ask(i): out[i] = llm_query('q%d' % i)\n"
                       "ts = [threading.Thread(target=ask, args=(i,)) for i in range(8)]\n"
                       "[t.start() for t in ts]\n[t.join() for t in ts]\n"
                       "SUBMIT(n=len(out), answered=sum(o is not None for o in out))";
    struct session_cell cell = { .code = code, .len = strlen(code) };
    f->done = false;
    assert_ok(session_exec(f->session, &cell, fixture_took, f, err));
    wait_for_calls(f, 8);
    for (unsigned i = 8; i-- > 0;)
        answer_kept(f, i, "r");
    wait_done(f);
    assert_string_equal(submitted(&f->last), "{\"n\": 8, \"answered\": 8}");
}

static void a_call_can_be_interrupted_and_the_next_one_works(void **state)
{
    struct fixture *f = *state;
    open_keeping_calls(f);
    fixture_start(f, "llm_query('slow')", 0);
    wait_for_calls(f, 1);
    session_interrupt(f->session);
    wait_done(f);
    assert_status(&f->last, CELL_ERROR);
    assert_true(f->last.alive);
    answer_kept(f, 0, "too late");
    fixture_start(f, "SUBMIT(r=llm_query('new'))", 0);
    wait_for_calls(f, 2);
    answer_kept(f, 1, "in time");
    wait_done(f);
    assert_string_equal(submitted(&f->last), "{\"r\": \"in time\"}");
}

/* What a guest says of a call on the raw channel, in a cell: 19 is CALL, 21 CANCEL. */
#define SAY                                                                                        \
    "import os, struct\n"                                                                          \
    "def say(kind, ident, head=b'', blob=b''):\n"                                                  \
    "    os.write(3, struct.pack('<BBHIQQ', 1, kind, 0, len(head), ident, len(blob)) + head + "    \
    "blob)\n"

static void calls_of_a_dead_session_are_dropped(void **state)
{
    struct fixture *f = *state;
    open_keeping_calls(f);
    run(f, "pass");
    fixture_start(f,
        SAY "import time\n"
            "try:\n"
            "    say(19, 900, b'{\"name\":\"llm_query\"}', bytes(4))\n"
            "    time.sleep(1e6)\n"
            "except KeyboardInterrupt: os._exit(0)",
        0);
    wait_for_calls(f, 1);
    session_interrupt(f->session);
    wait_done(f);
    assert_status(&f->last, CELL_KILLED);
    assert_int_equal(f->dropped, 1);
}

/* The host forgets it and goes on: no answer comes, and the number may be used again. */
static void a_cancelled_call_is_dropped(void **state)
{
    struct fixture *f = *state;
    open_keeping_calls(f);
    run(f, "pass");
    const struct cell_result *r =
        run(f, SAY "say(19, 900, b'{\"name\":\"llm_query\"}', bytes(4))\nsay(21, 900)\n"
                   "say(19, 900, b'{\"name\":\"llm_query\"}', bytes(4))\nSUBMIT(1)");
    assert_status(r, CELL_SUBMITTED);
    assert_int_equal(f->dropped, 1);
    assert_int_equal(kept.count, 2);
}

/* Its answer may have been on the way; a guest can say it of any number. */
static void cancelling_what_is_not_open_is_nothing(void **state)
{
    struct fixture *f = *state;
    open_keeping_calls(f);
    run(f, "pass");
    const struct cell_result *r = run(f, SAY "say(21, 7)\nsay(21, 2**64 - 1)\nSUBMIT(1)");
    assert_status(r, CELL_SUBMITTED);
    assert_int_equal(f->dropped, 0);
}

/* The twin that is refused: it has nothing to say beyond that. */
static void a_cancel_with_a_head_breaks_the_protocol(void **state)
{
    struct fixture *f = *state;
    open_keeping_calls(f);
    run(f, "pass");
    const struct cell_result *r = run(f, SAY "say(21, 7, b'{}')\nimport time; time.sleep(30)");
    assert_status(r, CELL_KILLED);
    assert_string_equal(r->killed, "protocol");
}

static void values_arrive_as_they_were(void **state)
{
    struct fixture *f = *state;
    static const char text[] = "quote\" \\ \r\n nul:\0 \xC3\xA9 \xF0\x9F\x98\x80'''\"\"\"";
    static const char *const names[] = { "context", "context_0" };
    fixture_open_plain(f);
    f->done = false;
    assert_ok(session_set(
        f->session, names, 2, VALUE_TEXT, text, sizeof text - 1, -1, fixture_took, f, err));
    wait_done(f);
    assert_status(&f->last, CELL_OK);
    assert_string_equal(json_get_string(f->last.variable, "type", ""), "str");
    run(f, "SUBMIT(ok=context == 'quote\" \\\\ \\r\\n nul:\\0 \\xe9 \\U0001f600\\'\\'\\'\"\"\"', "
           "same=context is context_0)");
    assert_string_equal(submitted(&f->last), "{\"ok\": true, \"same\": true}");
}

static void large_values_travel_as_memory_files(void **state)
{
    struct fixture *f = *state;
    size_t size = 32u << 20;
    cleanup_free char *data = malloc(size);
    static const char *const names[] = { "context" };
    memset(data, 'x', size);
    fixture_open_plain(f);
    f->done = false;
    assert_ok(session_set(f->session, names, 1, VALUE_AUTO, data, size, -1, fixture_took, f, err));
    wait_done(f);
    assert_string_equal(submitted(run(f, "SUBMIT(n=len(context), x=context.count('x'))")),
        "{\"n\": 33554432, \"x\": 33554432}");
}

static void json_that_is_none_is_an_error(void **state)
{
    struct fixture *f = *state;
    static const char *const names[] = { "context" };
    fixture_open_plain(f);
    f->done = false;
    assert_ok(session_set(f->session, names, 1, VALUE_JSON, "{nope", 5, -1, fixture_took, f, err));
    wait_done(f);
    assert_status(&f->last, CELL_ERROR);
    f->done = false;
    assert_ok(session_set(f->session, names, 1, VALUE_JSON, "[1]", 3, -1, fixture_took, f, err));
    wait_done(f);
    assert_status(&f->last, CELL_OK);
}

static void every_documented_form_of_answer_works(void **state)
{
    static const char *const ways[][2] = {
        { "answer['content'] = 'x'; answer['ready'] = True", "{\"answer\": \"x\"}" },
        { "answer['ready'] = True; answer['content'] = 'x'", "{\"answer\": \"x\"}" },
        { "answer.update(content='x', ready=True)", "{\"answer\": \"x\"}" },
        { "answer = {'content': 'x', 'ready': True}", "{\"answer\": \"x\"}" },
        { "FINAL('x')", "{\"answer\": \"x\"}" },
        { "v = 'x'\nFINAL_VAR('v')", "{\"answer\": \"x\"}" },
        { "SUBMIT('x')", "{\"output\": \"x\"}" },
        { "SUBMIT(1, 2)", "{\"output\": [1, 2]}" },
        { "SUBMIT(items=[1], keys={})", "{\"items\": [1], \"keys\": {}}" },
        { "try:\n    SUBMIT(a=1)\nexcept Exception:\n    pass\nb = 1", "{\"a\": 1}" },
    };
    struct fixture *f = *state;
    fixture_open_plain(f);
    for (size_t i = 0; i < array_length(ways); i++) {
        assert_status(run(f, ways[i][0]), CELL_SUBMITTED);
        assert_string_equal(submitted(&f->last), ways[i][1]);
    }
    assert_status(run(f, "pass"), CELL_OK); /* an answer counts once */
}

static void what_is_not_json_is_refused_in_the_cell(void **state)
{
    static const char *const bad[] = { "SUBMIT(x=float('nan'))", "SUBMIT(x=object())",
        "SUBMIT(x=[object])", "SUBMIT(x='\\ud800')", "a = []; a.append(a); SUBMIT(x=a)",
        "SUBMIT(1, x=2)", "x = []\nfor i in range(200): x = [x]\nSUBMIT(x=x)" };
    struct fixture *f = *state;
    fixture_open_plain(f);
    for (size_t i = 0; i < array_length(bad); i++) {
        assert_status(run(f, bad[i]), CELL_ERROR);
        assert_true(f->last.alive);
    }
    assert_status(run(f, "SUBMIT(x={1, 2} and [3])"), CELL_SUBMITTED);
    assert_status(run(f, "SUBMIT(x=b'')"), CELL_SUBMITTED);
}

static void top_level_await_works(void **state)
{
    struct fixture *f = *state;
    fixture_open_plain(f);
    run(f, "import asyncio\nasync def g():\n    await asyncio.sleep(0)\n    return 7");
    assert_string_equal(submitted(run(f, "x = await g()\nSUBMIT(x=x)")), "{\"x\": 7}");
}

static void a_last_expression_is_echoed_when_asked(void **state)
{
    struct fixture *f = *state;
    struct session_cell cell = { .code = "x = 2\nx + 1", .len = 11, .echo = true };
    fixture_open_plain(f);
    f->done = false;
    assert_ok(session_exec(f->session, &cell, fixture_took, f, err));
    wait_done(f);
    assert_string_equal(f->last.echo, "3");
    assert_null(run(f, "x + 1")->echo);
}

static void buffers_keep_lists(void **state)
{
    struct fixture *f = *state;
    fixture_open_plain(f);
    run(f, "add_buffer('findings', 'Step 1: setup complete')");
    run(f, "add_buffer('findings', 'Step 2: data loaded')");
    assert_string_equal(submitted(run(f, "SUBMIT(log=get_buffer('findings'))")),
        "{\"log\": [\"Step 1: setup complete\", \"Step 2: data loaded\"]}");
    run(f, "clear_buffer()");
    assert_string_equal(submitted(run(f, "SUBMIT(log=get_buffer('findings'))")), "{\"log\": []}");
}

static void variables_are_summarised_not_sent(void **state)
{
    struct fixture *f = *state;
    fixture_open_plain(f);
    run(f, "big = 'x' * 1000000\nclass L:\n    def __len__(self): raise SystemExit\nodd = L()");
    size_t len;
    const char *text = json_text(f->last.variables, &len);
    assert_non_null(strstr(text, "\"name\":\"big\",\"type\":\"str\",\"length\":1000000"));
    assert_non_null(strstr(text, "\"name\":\"odd\",\"type\":\"L\""));
    assert_true(len < 2000);
}

static void input_ends_at_once(void **state)
{
    struct fixture *f = *state;
    fixture_open_plain(f);
    assert_status(run(f, "input()"), CELL_ERROR);
    assert_string_equal(f->last.error.type, "EOFError");
}

static void forked_children_do_not_speak_for_the_guest(void **state)
{
    struct fixture *f = *state;
    fixture_open_plain(f);
    const struct cell_result *r =
        run(f, "import os\npid = os.fork()\nif pid == 0:\n    print('child')\nelse:\n"
               "    os.waitpid(pid, 0)\n    SUBMIT(parent=True)");
    assert_status(r, CELL_SUBMITTED);
    assert_string_equal(buf_text(&r->out), "child\n");
    assert_status(run(f, "x = 1"), CELL_OK);
}

static void forged_frames_end_that_sandbox_only(void **state)
{
    struct fixture *f = *state;
    fixture_open_plain(f);
    struct session *other = f->session;
    f->session = NULL; /* beside the one that forges */
    fixture_open_plain(f);
    assert_status(run(f, "import os\nos.write(3, bytes(24))\nwhile True: pass"), CELL_KILLED);
    assert_string_equal(f->last.killed, "protocol");
    fixture_close(f);
    f->session = other;
    assert_status(run(f, "SUBMIT(x=1)"), CELL_SUBMITTED);
}

static void never_answer(void *arg, struct session *s, const struct session_call *call)
{
    ((struct fixture *)arg)->call_count++;
}

/* Writes calls with these ids by hand, which nobody answers. */
static const struct cell_result *call_by_hand(struct fixture *f, const char *ids)
{
    static const struct session_events events = { never_answer, fixture_dropped, NULL };
    struct session_options options = fixture_options();
    char code[300];
    fixture_close(f);
    assert_ok(session_open(f->env, &options, &events, f, &f->session, err));
    assert_status(run(f, "x = 1"), CELL_OK); /* it has greeted now */
    f->call_count = f->dropped = 0;
    snprintf(code, sizeof code,
        "import os, struct\n"
        "for n in %s:\n"
        "    assert os.write(3, struct.pack('<BBHIQQ', 1, 19, 0, 2, n, 4) + b'{}' + bytes(4)) == "
        "30\n",
        ids);
    return run(f, code);
}

/* The id of an open call cannot be had a second time, and only so many can be open: more would be
 * state of the host's that a guest makes. All that can be are taken, and dropped with their
 * cell. */
static void open_calls_have_ids_of_their_own_and_are_bounded(void **state)
{
    struct fixture *f = *state;
    assert_status(call_by_hand(f, "(9001, 9001)"), CELL_KILLED);
    assert_string_equal(f->last.killed, "protocol");
    assert_int_equal(f->call_count, 1);
    assert_status(call_by_hand(f, "range(9000, 9000 + 16385)"), CELL_KILLED);
    assert_string_equal(f->last.killed, "protocol");
    assert_int_equal(f->call_count, 16384);
    assert_status(call_by_hand(f, "range(9000, 9000 + 16384)"), CELL_OK);
    assert_int_equal(f->call_count, 16384);
}

/* What the host answers each call with, and the largest number that a new descriptor had
 * meanwhile. */
static struct {
    const char *text;
    size_t len;
    int most;
} answer;

static void answer_at_once(void *arg, struct session *s, const struct session_call *call)
{
    struct session_part part = { answer.text, answer.len };
    int fd = dup(0);
    close(fd);
    answer.most = fd > answer.most ? fd : answer.most;
    ((struct fixture *)arg)->call_count++;
    assert_ok(session_reply(s, call->id, NULL, &part, 1, err));
}

static void open_answering(struct fixture *f, const char *text, size_t len, double stall)
{
    static const struct session_events events = { answer_at_once, fixture_dropped, NULL };
    struct session_options options = fixture_options();
    options.stall = stall;
    fixture_close(f);
    assert_ok(session_open(f->env, &options, &events, f, &f->session, err));
    assert_status(run(f, "x = 1"), CELL_OK);
    answer.text = text;
    answer.len = len;
    answer.most = 0;
    f->call_count = 0;
}

/* A guest that makes a million calls and reads nothing is not read any more when a MiB of replies
 * waits for it, whatever their size, and is ended when it goes on like that. Only one descriptor is
 * ever on its way. */
static void unread_replies_are_bounded(void **state)
{
    static const char flood[] =
        "import os, struct\n"
        "for n in range(9000, 1009000):\n"
        "    os.write(3, struct.pack('<BBHIQQ', 1, 19, 0, 2, n, 4) + b'{}' + bytes(4))\n";
    static const struct {
        size_t len;
        unsigned calls; /* some MiB of replies, with what the kernel holds and adds for each */
    } rows[] = { { 2, 40000 }, { 3000, 1000 }, { 70000, 40 } };
    struct fixture *f = *state;
    cleanup_free char *text = calloc(1, 70000);
    for (size_t i = 0; i < array_length(rows); i++) {
        open_answering(f, text, rows[i].len, 0.5);
        int first = dup(0);
        close(first);
        assert_status(run(f, flood), CELL_KILLED);
        assert_string_equal(f->last.killed, "protocol");
        assert_non_null(strstr(f->last.reason.text, "read nothing for 0.5 s"));
        assert_in_range(f->call_count, 1, rows[i].calls);
        assert_in_range(answer.most, 0, first + 4);
    }
}

/* The same calls, made before any reply is read: a thread that cannot write reads, and nothing is
 * lost. */
static void calls_of_a_guest_that_reads_late_are_all_answered(void **state)
{
    static const char code[] =
        "import sys\n"
        "f = sys._getframe()\n"
        "while 'CHANNEL_FD' not in f.f_globals: f = f.f_back\n"
        "link, Waiter = f.f_globals['state'].link, f.f_globals['Waiter']\n"
        "def ask(count, size):\n"
        "    waiters = {next(link.ids): Waiter() for _ in range(count)}\n"
        "    for n, w in waiters.items(): link.begin(n, w, {'name': 'x'}, [b'p'])\n"
        "    for w in waiters.values():\n"
        "        link.wait(w, lambda: w.frame is not None)\n"
        "        assert len(w.frame[1]) == size + 12, len(w.frame[1])\n";
    static const struct {
        size_t len;
        const char *code;
    } rows[] = { { 100, "ask(30000, 100)" }, { 70000, "ask(500, 70000)" } };
    struct fixture *f = *state;
    cleanup_free char *text = calloc(1, 70000);
    for (size_t i = 0; i < array_length(rows); i++) {
        open_answering(f, text, rows[i].len, 60);
        assert_status(run(f, code), CELL_OK);
        assert_status(run(f, rows[i].code), CELL_OK);
    }
}

static void typed_fields_bind_positions_and_are_checked(void **state)
{
    struct fixture *f = *state;
    static const char schema[] =
        "{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"},\"population\":"
        "{\"type\":\"integer\"}},\"required\":[\"city\",\"population\"],"
        "\"additionalProperties\":false}";
    struct session_options options = fixture_options();
    assert_ok(schema_parse(schema, strlen(schema), &options.answer, err));
    fixture_open(f, &options);
    schema_drop(options.answer); /* the session holds it */
    assert_submits(f, "SUBMIT('Oslo', population=1)", "{\"population\": 1, \"city\": \"Oslo\"}");
    assert_submits(f, "SUBMIT('Oslo', 1)", "{\"city\": \"Oslo\", \"population\": 1}");
    assert_submits(
        f, "SUBMIT({'city': 'Oslo', 'population': 1})", "{\"city\": \"Oslo\", \"population\": 1}");
    assert_submits(
        f, "FINAL({'city': 'Oslo', 'population': 1})", "{\"city\": \"Oslo\", \"population\": 1}");
    assert_submits(f,
        "answer['content'] = {'city': 'Oslo', 'population': 1}\nanswer['ready'] = True",
        "{\"city\": \"Oslo\", \"population\": 1}");
    static const struct {
        const char *code, *type, *why;
    } wrong[] = {
        { "SUBMIT('Oslo')", "AnswerError", "lacks 'population'" },
        { "SUBMIT(city='Oslo', size=1)", "AnswerError", "lacks 'population'" },
        { "SUBMIT('Oslo', '1')", "AnswerError",
            "at /population: expected an integer, not a string" },
        { "SUBMIT('Oslo', 1, 2)", "TypeError", "the fields city, population, got 3 values" },
        { "SUBMIT('Oslo', city=1)", "TypeError", "two values for 'city'" },
        { "FINAL('Oslo')", "AnswerError", "lacks 'population'" },
        { "answer.update(content='', ready=True)", "AnswerError", "lacks 'population'" },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const struct cell_result *r = run(f, wrong[i].code);
        assert_status(r, CELL_ERROR);
        assert_true(r->alive && !r->submit);
        assert_string_equal(r->error.type, wrong[i].type);
        if (!strstr(r->error.message, wrong[i].why))
            fail_msg("%s: %s", wrong[i].code, r->error.message);
    }
    assert_submits(f, "SUBMIT('Oslo', 1)", "{\"city\": \"Oslo\", \"population\": 1}");
}

/* Of each cell that has ended, also where it raised; what it printed is not known to the guest. */
static void cells_are_in_the_history(void **state)
{
    struct fixture *f = *state;
    fixture_open_plain(f);
    run(f, "print(1)");
    run(f, "1 / 0");
    run(f, "SUBMIT(1)");
    assert_submits(f,
        "SUBMIT(h=[[e['code_preview'], e['had_final'], e['metadata']['had_error'], "
        "e['stdout_preview']] for e in get_session_history()])",
        "{\"h\": [[\"print(1)\", false, false, \"\"], [\"1 / 0\", false, true, \"\"], "
        "[\"SUBMIT(1)\", true, false, \"\"]]}");
}

static void the_environment_is_clean(void **state)
{
    struct fixture *f = *state;
    setenv("DROSTE_CANARY", "secret-canary", 1);
    fixture_open_plain(f);
    run(f, "import os\nSUBMIT(found='secret-canary' in str(dict(os.environ)) + "
           "open('/proc/self/environ').read(), path='PATH' in os.environ)");
    assert_string_equal(submitted(&f->last), "{\"found\": false, \"path\": true}");
}

static void only_the_standard_descriptors_and_the_channel_are_open(void **state)
{
    struct fixture *f = *state;
    fixture_open_plain(f);
    run(f, "import os\nfds = []\nfor fd in range(1000):\n    try: os.fstat(fd); fds.append(fd)\n"
           "    except OSError: pass\nSUBMIT(fds=fds)");
    assert_string_equal(submitted(&f->last), "{\"fds\": [0, 1, 2, 3]}");
}

static void random_generators_differ_between_sandboxes(void **state)
{
    struct fixture *f = *state;
    char first[128];
    fixture_open_plain(f);
    snprintf(
        first, sizeof first, "%s", submitted(run(f, "import random; SUBMIT(r=random.random())")));
    fixture_close(f);
    fixture_open_plain(f);
    assert_string_not_equal(submitted(run(f, "import random; SUBMIT(r=random.random())")), first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(submit_gives_strict_json),
        T(variables_functions_and_classes_stay),
        T(what_was_bound_before_an_error_stays),
        T(both_streams_are_captured_at_the_descriptors),
        T(long_output_keeps_head_and_tail),
        T(the_soft_deadline_keeps_the_state),
        T(a_blocking_call_is_interrupted_too),
        T(a_cell_that_does_not_stop_is_killed),
        T(an_interrupt_in_the_idle_state_does_nothing),
        T(sys_exit_is_an_error_and_the_session_lives),
        T(a_guest_that_ends_itself_is_named),
        T(calls_go_out_and_come_back),
        T(threads_call_at_once_and_are_answered_in_any_order),
        T(a_call_can_be_interrupted_and_the_next_one_works),
        T(calls_of_a_dead_session_are_dropped),
        T(a_cancelled_call_is_dropped),
        T(cancelling_what_is_not_open_is_nothing),
        T(a_cancel_with_a_head_breaks_the_protocol),
        T(values_arrive_as_they_were),
        T(large_values_travel_as_memory_files),
        T(json_that_is_none_is_an_error),
        T(every_documented_form_of_answer_works),
        T(what_is_not_json_is_refused_in_the_cell),
        T(top_level_await_works),
        T(a_last_expression_is_echoed_when_asked),
        T(buffers_keep_lists),
        T(variables_are_summarised_not_sent),
        T(input_ends_at_once),
        T(forked_children_do_not_speak_for_the_guest),
        T(forged_frames_end_that_sandbox_only),
        T(open_calls_have_ids_of_their_own_and_are_bounded),
        T(unread_replies_are_bounded),
        T(calls_of_a_guest_that_reads_late_are_all_answered),
        T(typed_fields_bind_positions_and_are_checked),
        T(cells_are_in_the_history),
        T(the_environment_is_clean),
        T(only_the_standard_descriptors_and_the_channel_are_open),
        T(random_generators_differ_between_sandboxes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
