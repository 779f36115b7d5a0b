/* Sessions over a real supervisor at the far end of a carrier: what they mean is what they mean locally, the
 * carrier may be cut at any time, and nothing is left at the end.
 */
#include "carrier.h"

#include "base/file.h"
#include "base/tree.h"
#include "session/session.h"
#include "session/submission.h"

#include <sys/stat.h>

/* Runs the loop until the condition holds; a minute is for a machine under load. */
#define wait_until(f, condition)                                                                   \
    do {                                                                                           \
        uint64_t start_ = clock_ns();                                                              \
        while (!(condition)) {                                                                     \
            if (clock_seconds_since(start_) > 60)                                                  \
                fail_msg("%s did not come true", #condition);                                      \
            loop_run_ready((f)->loop);                                                             \
            usleep(200);                                                                           \
        }                                                                                          \
    } while (0)

struct fixture {
    struct loop *loop;
    struct environment *env;
    struct remote_options options;
};

/* A session and what has come of it. */
struct side {
    struct fixture *f;
    struct session *session;
    struct cell_result last;
    bool done;
    unsigned calls, dropped;
};

static int setup_with(void **state, enum link_form form)
{
    struct fixture *f = calloc(1, sizeof *f);
    f->options = (struct remote_options){ .form = form, .eof_ends = true };
    f->options.means[LIMIT_OPEN_FILES] = LIMIT_BY_RLIMIT;
    assert_ok(loop_open(&f->loop, err));
    carrier_open(f->loop, &f->options, NULL, &f->env);
    *state = f;
    return 0;
}

/* The same with another program. */
static void reopen(struct fixture *f, const char *const *program)
{
    environment_close(f->env);
    carrier_open(f->loop, &f->options, program, &f->env);
}

static int setup_bare(void **state)
{
    return setup_with(state, LINK_BARE);
}

static int setup_text(void **state)
{
    return setup_with(state, LINK_TEXT);
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    environment_close(f->env);
    loop_close(f->loop);
    free(f);
    return 0;
}

static void took(void *arg, struct cell_result *result)
{
    struct side *s = arg;
    cell_result_free(&s->last);
    s->last = *result;
    s->done = true;
}

/* Every call is answered at once with its own prompt. */
static void called(void *arg, struct session *session, const struct session_call *call)
{
    struct side *s = arg;
    struct frame_parts parts = call->parts;
    struct session_part part = { 0 };
    assert_true(frame_parts_next(&parts, &part.data, &part.len));
    s->calls++;
    assert_ok(session_reply(session, call->id, NULL, &part, 1, err));
}

static void dropped(void *arg, struct session *session, uint64_t id)
{
    ((struct side *)arg)->dropped++;
}

static void open_side_with(
    struct fixture *f, struct side *s, const char *const *preload, size_t preload_count)
{
    static const struct session_events events = { called, dropped, NULL };
    struct session_options options;
    session_options_init(&options);
    options.spec.isolation = ISOLATION_PROCESS;
    options.spec.preload = preload;
    options.spec.preload_count = preload_count;
    options.grace = 1;
    *s = (struct side){ .f = f };
    assert_ok(session_open(f->env, &options, &events, s, &s->session, err));
}

static void open_side(struct fixture *f, struct side *s)
{
    open_side_with(f, s, NULL, 0);
}

static void close_side(struct side *s)
{
    session_close(s->session);
    cell_result_free(&s->last);
}

static void start(struct side *s, const char *code, double limit)
{
    struct session_cell cell = { .code = code, .len = strlen(code), .execute_timeout = limit };
    s->done = false;
    assert_ok(session_exec(s->session, &cell, took, s, err));
}

static const struct cell_result *wait_done(struct side *s)
{
    assert_ok(loop_run_until(s->f->loop, &s->done, err));
    return &s->last;
}

static const struct cell_result *run(struct side *s, const char *code)
{
    start(s, code, 0);
    return wait_done(s);
}

static void assert_status(const struct cell_result *r, enum cell_status status)
{
    if (r->status != status)
        fail_msg("status %s (%s: %s; %s; stderr %s), not %s", cell_status_name(r->status),
            r->error.type ? r->error.type : "-", r->error.message ? r->error.message : "-",
            r->reason.text, buf_text(&r->err), cell_status_name(status));
}

/* As JSON; NULL: nothing. */
static const char *submitted(const struct cell_result *r)
{
    return submission_json(r->submit, NULL);
}

#define assert_submits(s, code, json)                                                              \
    do {                                                                                           \
        const struct cell_result *result_ = run(s, code);                                          \
        assert_status(result_, CELL_SUBMITTED);                                                    \
        assert_string_equal(submitted(result_), json);                                             \
    } while (0)

static void a_cell_runs_and_variables_stay(void **state)
{
    struct side s;
    open_side(*state, &s);
    run(&s, "x = 41\nprint('a')");
    assert_string_equal(buf_text(&s.last.out), "a\n");
    assert_submits(&s, "SUBMIT(x=x + 1)", "{\"x\": 42}");
    close_side(&s);
}

static void a_call_is_answered(void **state)
{
    struct side s;
    open_side(*state, &s);
    assert_submits(&s, "SUBMIT(a=llm_query('hello'))", "{\"a\": \"hello\"}");
    assert_int_equal(s.calls, 1);
    close_side(&s);
}

/* ---- what a session means ---- */

static void errors_name_the_cells_own_lines(void **state)
{
    struct side s;
    open_side(*state, &s);
    const struct cell_result *r = run(&s, "kept = 5\n\nraise ValueError('no')");
    assert_status(r, CELL_ERROR);
    assert_string_equal(r->error.type, "ValueError");
    assert_non_null(strstr(r->error.traceback, "File \"<cell 1>\", line 3"));
    assert_null(strstr(r->error.traceback, "<droste>"));
    assert_submits(&s, "SUBMIT(kept=kept)", "{\"kept\": 5}");
    close_side(&s);
}

/* Of both streams, of programs and of C: all of it is there when the result is. */
static void output_is_there_before_its_result(void **state)
{
    struct side s;
    open_side(*state, &s);
    for (int i = 0; i < 100; i++) {
        cleanup_buf struct buf code = { 0 };
        cleanup_buf struct buf expected = { 0 };
        buf_printf(&code, "import os, sys\nprint('a', %d)\nos.write(1, b'b\\n')\n", i);
        buf_puts(&code, "print('c', file=sys.stderr)\nprint('d' * 20000, end='')");
        buf_printf(&expected, "a %d\nb\n", i);
        const struct cell_result *r = run(&s, code.data);
        assert_memory_equal(buf_text(&r->out), expected.data, expected.len);
        assert_int_equal(r->out.len, expected.len + 20000);
        assert_string_equal(buf_text(&r->err), "c\n");
    }
    const struct cell_result *r = run(&s, "import subprocess\nsubprocess.run(['echo', 'e'])");
    assert_string_equal(buf_text(&r->out), "e\n");
    close_side(&s);
}

static void a_flood_of_output_is_cut_in_the_middle(void **state)
{
    struct side s;
    open_side(*state, &s);
    const struct cell_result *r = run(&s, "print('A' + 'x' * 50_000_000 + 'Z', end='')");
    assert_status(r, CELL_OK);
    assert_true(r->out_left_out > 0);
    assert_true(r->out_left_out + r->out.len > 50000000);
    assert_int_equal(r->out.data[0], 'A');
    assert_int_equal(r->out.data[r->out.len - 1], 'Z');
    assert_submits(&s, "SUBMIT(1)", "{\"output\": 1}");
    close_side(&s);
}

enum { LARGE = 20 << 20 };

static char *large_text(void)
{
    char *text = malloc(LARGE);
    assert_non_null(text);
    for (size_t i = 0; i < LARGE; i++)
        text[i] = (char)('a' + (i * 2654435761u >> 11) % 26);
    return text;
}

static void set_large(struct side *s, const char *text, int fd)
{
    static const char *const name = "x";
    s->done = false;
    assert_ok(session_set(s->session, &name, 1, VALUE_TEXT, text, LARGE, fd, took, s, err));
    assert_status(wait_done(s), CELL_OK);
}

static void assert_large_comes_back(struct side *s, const char *text)
{
    const struct cell_result *r = run(s, "SUBMIT(x=x, n=len(x))");
    assert_status(r, CELL_SUBMITTED);
    assert_memory_equal(submitted(r), "{\"x\": \"", 7);
    assert_memory_equal(submitted(r) + 7, text, LARGE);
    assert_string_equal(submitted(r) + 7 + LARGE, "\", \"n\": 20971520}");
}

static void large_values_pass_in_both_directions(void **state)
{
    struct side s;
    cleanup_free char *text = large_text();
    open_side(*state, &s);
    set_large(&s, text, -1);
    assert_large_comes_back(&s, text);
    close_side(&s);
}

/* Locally a memory file is handed over; here its bytes are. */
static void a_value_in_a_memory_file_passes_too(void **state)
{
    struct side s;
    cleanup_free char *text = large_text();
    int fd = file_memfd("value", NULL);
    assert_true(fd >= 0 && file_write_all(fd, text, LARGE) == 0);
    assert_ok(file_memfd_seal(fd, err));
    open_side(*state, &s);
    set_large(&s, NULL, fd);
    assert_large_comes_back(&s, text);
    close_side(&s);
}

static void a_worker_has_a_directory_of_its_own(void **state)
{
    struct side s;
    struct stat st;
    open_side(*state, &s);
    const struct cell_result *r =
        run(&s, "import os, tempfile\nopen('file', 'w').write('x')\nos.makedirs('a/b')\n"
                "assert os.getcwd() == os.environ['HOME'] == os.environ['TMPDIR'] == "
                "tempfile.gettempdir()\n"
                "print(os.getcwd(), end='')");
    assert_status(r, CELL_OK);
    cleanup_free char *path = strdup(buf_text(&r->out));
    assert_int_equal(stat(path, &st), 0);
    close_side(&s);
    wait_until((struct fixture *)*state, stat(path, &st) < 0 && errno == ENOENT);
}

static void siblings_have_other_random_numbers(void **state)
{
    struct side a, b;
    open_side(*state, &a);
    run(&a, "pass"); /* the supervisor has had the time to import random since */
    open_side(*state, &b);
    const char *code = "import random\nprint([random.random() for _ in range(3)])";
    run(&a, code);
    run(&b, code);
    assert_string_not_equal(buf_text(&a.last.out), buf_text(&b.last.out));
    close_side(&a);
    close_side(&b);
}

static void limits_are_the_workers_own(void **state)
{
    struct side s;
    open_side(*state, &s);
    assert_submits(&s,
        "import resource\nSUBMIT(files=resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 5000, "
        "core=resource.getrlimit(resource.RLIMIT_CORE)[0])",
        "{\"files\": true, \"core\": 0}");
    assert_int_equal(s.last.usage.means[LIMIT_OPEN_FILES], LIMIT_BY_RLIMIT);
    assert_int_equal(s.last.usage.means[LIMIT_MEMORY], LIMIT_BY_NOTHING);
    close_side(&s);
}

static void modules_are_preloaded_or_refused_by_name(void **state)
{
    struct fixture *f = *state;
    const char *const good[] = { "wave" };
    const char *const bad[] = { "wave", "no_such_module" };
    struct side s;
    open_side_with(f, &s, good, 1);
    assert_submits(&s, "import sys\nSUBMIT('wave' in sys.modules)", "{\"output\": true}");
    close_side(&s);
    open_side_with(f, &s, bad, 2);
    const struct cell_result *r = run(&s, "1");
    assert_false(r->alive);
    assert_int_equal(r->reason.code, ERROR_ENVIRONMENT);
    assert_non_null(strstr(r->reason.text, "no_such_module"));
    close_side(&s);
}

static void the_standard_input_is_empty(void **state)
{
    struct side s;
    open_side(*state, &s);
    assert_submits(&s, "import sys\nSUBMIT(sys.stdin.read())", "{\"output\": \"\"}");
    close_side(&s);
}

/* ---- deadlines ---- */

static void the_soft_deadline_keeps_the_state(void **state)
{
    static const char *const codes[] = { "while True: pass", "import time; time.sleep(1e9)" };
    struct side s;
    open_side(*state, &s);
    run(&s, "x = 41");
    for (size_t i = 0; i < array_length(codes); i++) {
        start(&s, codes[i], 0.2);
        assert_status(wait_done(&s), CELL_TIMEOUT);
        assert_true(s.last.alive);
    }
    assert_submits(&s, "SUBMIT(x=x + 1)", "{\"x\": 42}");
    close_side(&s);
}

/* A container may take longer than that to be there. */
static void the_time_of_a_cell_begins_when_its_sandbox_is_there(void **state)
{
    static const char *const slow[] = { "sh", "-c", "sleep 1; exec python3 \"$@\"", "sh", NULL };
    struct side s;
    reopen(*state, slow);
    open_side(*state, &s);
    start(&s, "SUBMIT(1)", 0.5);
    assert_status(wait_done(&s), CELL_SUBMITTED);
    start(&s, "while True: pass", 0.5);
    assert_status(wait_done(&s), CELL_TIMEOUT);
    close_side(&s);
}

static void a_cell_that_does_not_stop_is_killed(void **state)
{
    struct side s;
    open_side(*state, &s);
    run(&s, "1");
    start(&s, "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass", 0.2);
    assert_status(wait_done(&s), CELL_TIMEOUT);
    assert_false(s.last.alive);
    assert_string_equal(s.last.killed, "timeout");
    close_side(&s);
}

/* ---- how sessions end ---- */

static void the_end_of_a_worker_is_told_as_it_was(void **state)
{
    static const struct {
        const char *code, *killed;
    } ends[] = {
        { "import os; os._exit(3)", "exit 3" },
        { "import os; os.kill(os.getpid(), 9)", "signal 9 SIGKILL" },
        { "import os; os.kill(os.getpid(), 11)", "signal 11 SIGSEGV" },
    };
    for (size_t i = 0; i < array_length(ends); i++) {
        struct side s;
        open_side(*state, &s);
        const struct cell_result *r = run(&s, ends[i].code);
        assert_status(r, CELL_KILLED);
        assert_string_equal(r->killed, ends[i].killed);
        assert_true(r->usage.memory_peak > 1 << 20);
        close_side(&s);
    }
}

static void what_was_said_last_is_heard(void **state)
{
    struct side s;
    open_side(*state, &s);
    const struct cell_result *r =
        run(&s, "import os\nos.write(1, b'last ' * 20000); os.write(2, b'words'); os._exit(1)");
    assert_status(r, CELL_KILLED);
    assert_int_equal(r->out.len + r->out_left_out >= 100000, 1);
    assert_string_equal(buf_text(&r->err), "words");
    close_side(&s);
}

static struct carrier *the_carrier(struct fixture *f)
{
    return carrier_of(f->env);
}

/* Runs `true` daemons: double-forked, each in a session of its own, with its streams closed. */
#define DAEMONS                                                                                    \
    "import os, time\n"                                                                            \
    "for _ in range(3):\n"                                                                         \
    "    if os.fork() == 0:\n"                                                                     \
    "        os.setsid()\n"                                                                        \
    "        if os.fork(): os._exit(0)\n"                                                          \
    "        os.closerange(0, 10)\n"                                                               \
    "        time.sleep(1e6)\n"                                                                    \
    "    os.wait()\n"

/* All but the supervisor itself. */
static size_t count_left(struct fixture *f)
{
    return count_descendants(the_carrier(f)->pid);
}

static void daemons_live_as_long_as_their_session(void **state)
{
    struct fixture *f = *state;
    struct side s;
    open_side(f, &s);
    assert_status(run(&s, DAEMONS), CELL_OK);
    assert_int_equal(count_left(f), 5);
    close_side(&s);
    wait_until(f, count_left(f) == 0);
    open_side(f, &s);
    assert_status(run(&s, DAEMONS "os._exit(0)"), CELL_KILLED);
    wait_until(f, count_left(f) == 0); /* it is closed only now */
    close_side(&s);
}

static void a_fork_bomb_ends_with_its_session(void **state)
{
    struct fixture *f = *state;
    struct side s;
    open_side(f, &s);
    run(&s, "import os, time\nfor _ in range(30):\n    if os.fork() == 0:\n"
            "        while True:\n"
            "            if os.fork(): os._exit(0)\n"
            "            time.sleep(0.002)\n");
    assert_true(count_left(f) > 10);
    close_side(&s);
    wait_until(f, count_left(f) == 0);
}

/* The keeper is a process of the same user. Then the supervisor does its work. */
static void who_kills_its_keeper_ends_too(void **state)
{
    struct fixture *f = *state;
    struct side s, other;
    struct stat st;
    open_side(f, &other);
    assert_status(run(&other, DAEMONS "x = 1"), CELL_OK);
    open_side(f, &s);
    const struct cell_result *r =
        run(&s, DAEMONS "print(os.getcwd(), end='', flush=True)\nos.kill(os.getppid(), 9)\nwhile "
                        "True: time.sleep(1)");
    assert_status(r, CELL_LOST);
    assert_int_equal(buf_text(&r->out)[0], '/');
    assert_true(stat(r->out.data, &st) < 0 && errno == ENOENT);
    wait_until(f, count_left(f) == 5);
    close_side(&s);
    assert_submits(&other, "SUBMIT(x)", "{\"output\": 1}");
    close_side(&other);
    wait_until(f, count_left(f) == 0);
}

static void who_stops_its_keeper_can_be_killed(void **state)
{
    struct fixture *f = *state;
    struct side s;
    open_side(f, &s);
    run(&s, "1");
    start(&s,
        "import os, signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "keeper = os.getppid()\nwhile True: os.kill(keeper, signal.SIGSTOP)",
        0.2);
    assert_status(wait_done(&s), CELL_TIMEOUT);
    assert_false(s.last.alive);
    close_side(&s);
    wait_until(f, count_left(f) == 0);
}

/* A test runs it as any process; in a container it is the first one, which nobody there can kill. */
static void the_end_of_the_supervisor_is_the_end_of_all(void **state)
{
    struct fixture *f = *state;
    struct process left[64];
    struct side a, b;
    open_side(f, &a);
    open_side(f, &b);
    run(&a, DAEMONS);
    run(&b, "1");
    size_t count = descendants(the_carrier(f)->pid, left, array_length(left));
    assert_int_equal(count, 7);
    start(&b, "import time; time.sleep(1e6)", 0);
    kill(the_carrier(f)->pid, SIGKILL);
    assert_status(wait_done(&b), CELL_LOST);
    wait_until(f, !session_is_alive(a.session));
    for (size_t i = 0; i < count; i++)
        wait_until(f, !is_left(&left[i]));
    close_side(&a);
    close_side(&b);
}

static void the_end_of_its_input_ends_it_with_all_workers(void **state)
{
    struct fixture *f = *state;
    struct process left[64];
    struct side s;
    open_side(f, &s);
    run(&s, DAEMONS);
    size_t count = descendants(the_carrier(f)->pid, left, array_length(left));
    assert_int_equal(count, 5);
    struct carrier *c = the_carrier(f);
    watch_free(c->in_watch);
    c->in_watch = NULL;
    close(c->in);
    c->in = open("/dev/null", O_WRONLY | O_CLOEXEC);
    wait_until(f, c->gone);
    for (size_t i = 0; i < count; i++)
        wait_until(f, !is_left(&left[i]));
    close_side(&s);
}

/* It hears nothing any more, not even the heartbeat. */
static void an_unused_lease_ends_it_with_all_workers(void **state)
{
    struct fixture *f = *state;
    f->options.lease = 1;
    f->options.eof_ends = false;
    reopen(f, NULL);
    struct side s;
    open_side(f, &s);
    run(&s, DAEMONS);
    start(&s, "import time; time.sleep(3)", 0); /* longer than the lease: the heartbeat renews it */
    assert_status(wait_done(&s), CELL_OK);
    carrier_cut(the_carrier(f));
    wait_until(f, the_carrier(f)->gone);
    assert_false(session_is_alive(s.session));
    close_side(&s);
}

/* ---- several ---- */

static void two_sessions_go_on_side_by_side(void **state)
{
    struct fixture *f = *state;
    struct side a, b;
    open_side(f, &a);
    open_side(f, &b);
    start(&a, "x = 'a'\nprint(llm_query('to a'))", 0);
    start(&b, "x = 'b'\nprint(llm_query('to b'))", 0);
    wait_done(&b);
    wait_done(&a);
    assert_string_equal(buf_text(&a.last.out), "to a\n");
    assert_string_equal(buf_text(&b.last.out), "to b\n");
    assert_submits(&a, "SUBMIT(x)", "{\"output\": \"a\"}");
    assert_submits(&b, "SUBMIT(x)", "{\"output\": \"b\"}");
    close_side(&a);
    assert_submits(&b, "SUBMIT(x)", "{\"output\": \"b\"}");
    close_side(&b);
}

/* One floods, one does not read what it is sent; the third does not notice. */
static void neither_a_flood_nor_deafness_stops_the_others(void **state)
{
    struct fixture *f = *state;
    cleanup_free char *text = large_text();
    static const char *const name = "x";
    struct side flood, deaf, other;
    open_side(f, &flood);
    open_side(f, &deaf);
    open_side(f, &other);
    start(&flood, "import os\nwhile True: os.write(1, b'x' * 65536)", 0);
    run(&deaf, "import os, signal, threading\n"
               "threading.Timer(0.01, lambda: os.kill(os.getpid(), signal.SIGSTOP)).start()");
    deaf.done = false;
    assert_ok(session_set(deaf.session, &name, 1, VALUE_TEXT, text, LARGE, -1, took, &deaf, err));
    for (int i = 0; i < 50; i++)
        assert_submits(&other, "SUBMIT(1)", "{\"output\": 1}");
    set_large(&other, text, -1);
    assert_large_comes_back(&other, text);
    assert_false(flood.done);
    close_side(&flood);
    close_side(&deaf);
    close_side(&other);
    wait_until(f, count_left(f) == 0);
}

/* As in a container. Processes that fork and end without a pause outrun whoever looks for them one by one; the
 * supervisor has the kernel kill all at once. Nobody there can kill it. */
static void as_the_first_process_it_outruns_all(void **state)
{
    static const char *const program[] = { "unshare", "--pid", "--fork", "--mount-proc",
        "--kill-child", "python3", NULL };
    struct fixture *f = *state;
    struct side s;
    if (geteuid() != 0 || access("/usr/bin/unshare", X_OK) < 0) {
        print_message("as_the_first_process_it_outruns_all: needs root and unshare\n");
        skip();
    }
    reopen(f, program);
    open_side(f, &s);
    assert_submits(
        &s, "import os, time\nos.kill(1, 9)\nSUBMIT(me=os.getpid() > 1)", "{\"me\": true}");
    assert_int_equal(json_get_int(the_carrier(f)->facts, "pid", 0), 1);
    run(&s, "import ctypes\nfork = ctypes.PyDLL(None).fork; _exit = ctypes.PyDLL(None)._exit\nfor "
            "_ in range(60):\n    if os.fork() == 0:\n"
            "        while True:\n"
            "            if fork(): _exit(0)\n");
    assert_status(run(&s, "os._exit(3)"), CELL_KILLED);
    assert_string_equal(s.last.killed, "exit 3");
    wait_until(f, count_left(f) == 1); /* the keeper itself is about to be gone */
    close_side(&s);
    open_side(f, &s);
    assert_submits(&s, "SUBMIT(1)", "{\"output\": 1}");
    close_side(&s);
}

/* To a session of the same user's: its end is told nevertheless. */
static void who_gives_its_streams_away_ends_too(void **state)
{
    struct fixture *f = *state;
    struct side giver, keeper;
    open_side(f, &giver);
    open_side(f, &keeper);
    run(&keeper, "import os, socket\nlistener = socket.socket(socket.AF_UNIX)\n"
                 "listener.bind('\\0droste-test-%d' % os.getuid())\nlistener.listen()");
    start(&giver,
        "import array, os, socket\ns = socket.socket(socket.AF_UNIX)\n"
        "s.connect('\\0droste-test-%d' % os.getuid())\n"
        "fds = array.array('i', [1, 2, 3])\n"
        "s.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])\n"
        "s.recv(1)\nos._exit(3)",
        0);
    assert_status(run(&keeper, "peer = listener.accept()[0]\nkept = peer.recvmsg(1, 100)\n"
                               "assert kept[1]\npeer.send(b'x')"),
        CELL_OK);
    wait_done(&giver);
    assert_string_equal(giver.last.killed, "exit 3");
    assert_submits(&keeper, "SUBMIT(1)", "{\"output\": 1}");
    close_side(&giver);
    close_side(&keeper);
}

static size_t count_fds_of(pid_t pid)
{
    char path[64];
    size_t count = 0;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *dir = opendir(path);
    while (dir && readdir(dir))
        count++;
    if (dir)
        closedir(dir);
    return count;
}

static void fifty_sessions_leave_nothing(void **state)
{
    struct fixture *f = *state;
    size_t mine = 0, its = 0;
    for (int i = 0; i < 50; i++) {
        struct side s;
        open_side(f, &s);
        assert_submits(&s, "print('x')\nSUBMIT(1)", "{\"output\": 1}");
        close_side(&s);
        if (i > 4)
            continue;
        wait_until(f, count_left(f) == 0);
        mine = count_fds();
        its = count_fds_of(the_carrier(f)->pid);
    }
    wait_until(f, count_left(f) == 0 && count_fds_of(the_carrier(f)->pid) <= its);
    assert_int_equal(count_fds(), mine);
    assert_int_equal(count_zombies(the_carrier(f)->pid), 0);
    assert_int_equal(remote_sandboxes(the_carrier(f)->remote), 0);
}

/* ---- cuts ---- */

/* Long enough for things to be said while nobody hears them. */
static void pass(struct fixture *f, unsigned ms)
{
    uint64_t start_ns = clock_ns();
    while (clock_seconds_since(start_ns) * 1000 < ms) {
        loop_run_ready(f->loop);
        usleep(1000);
    }
}

static void cut_for(struct fixture *f, unsigned ms)
{
    carrier_cut(the_carrier(f));
    pass(f, ms);
    carrier_join(the_carrier(f));
}

static void a_cut_before_the_first_word_is_mended(void **state)
{
    struct fixture *f = *state;
    struct side s;
    for (unsigned ms = 0; ms < 40; ms += 8) {
        reopen(f, NULL);
        open_side(f, &s);
        pass(f, ms);
        if (!the_carrier(f)->wrote) /* it has not come yet */
            cut_for(f, 40);
        assert_submits(&s, "SUBMIT(1)", "{\"output\": 1}");
        close_side(&s);
    }
}

/* Wherever the guest was cut: either the session works, or its end is told. */
static void a_cut_while_the_guest_is_sent_is_found_out(void **state)
{
    static const size_t sizes[] = { 1, 20, 20000, 60000, 90000 };
    struct fixture *f = *state;
    struct side s;
    unsigned worked = 0, ended = 0;
    for (size_t i = 0; i < array_length(sizes); i++) {
        reopen(f, NULL);
        open_side(f, &s);
        the_carrier(f)->cut_each = the_carrier(f)->until_cut = sizes[i];
        wait_until(f, the_carrier(f)->cuts > 0);
        the_carrier(f)->cut_each = 0;
        start(&s, "SUBMIT(1)", 0);
        wait_done(&s);
        worked += s.last.status == CELL_SUBMITTED;
        ended += s.last.status == CELL_LOST;
        close_side(&s);
    }
    assert_int_equal(worked + ended, array_length(sizes));
    assert_true(ended > 0);
}

static void a_cell_survives_a_cut(void **state)
{
    struct fixture *f = *state;
    struct side s;
    open_side(f, &s);
    run(&s, "1");
    start(&s, "import time\nfor i in range(20):\n    print(i)\n    time.sleep(0.01)\nSUBMIT(i)", 0);
    pass(f, 50);
    cut_for(f, 300);
    assert_status(wait_done(&s), CELL_SUBMITTED);
    assert_string_equal(buf_text(&s.last.out),
        "0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n13\n14\n15\n16\n17\n18\n19\n");
    close_side(&s);
}

/* What is begun while it is cut is done once it is not. */
static void operations_can_begin_while_it_is_cut(void **state)
{
    struct fixture *f = *state;
    struct side s, late;
    open_side(f, &s);
    run(&s, "1");
    carrier_cut(the_carrier(f));
    start(&s, "SUBMIT(2)", 0);
    open_side(f, &late);
    start(&late, "SUBMIT(3)", 0);
    pass(f, 50);
    assert_false(s.done);
    carrier_join(the_carrier(f));
    assert_string_equal(submitted(wait_done(&s)), "{\"output\": 2}");
    assert_string_equal(submitted(wait_done(&late)), "{\"output\": 3}");
    close_side(&s);
    close_side(&late);
}

static void calls_survive_cuts(void **state)
{
    struct fixture *f = *state;
    struct side s;
    open_side(f, &s);
    run(&s, "1");
    start(&s,
        "import time\nfor i in range(50):\n    assert llm_query('p%d' % i) == 'p%d' % i\n"
        "    time.sleep(0.005)\nSUBMIT(i)",
        0);
    for (int i = 0; i < 5 && !s.done; i++) {
        pass(f, 30);
        cut_for(f, 30);
    }
    assert_string_equal(submitted(wait_done(&s)), "{\"output\": 49}");
    assert_int_equal(s.calls, 50); /* each was made once */
    close_side(&s);
}

/* Again and again, after so many bytes, wherever that is. */
static void check_each(struct fixture *f, size_t each)
{
    struct carrier *c = the_carrier(f);
    cleanup_free char *text = large_text();
    struct side s;
    open_side(f, &s);
    run(&s, "1");
    c->cut_each = c->until_cut = each;
    set_large(&s, text, -1);
    assert_large_comes_back(&s, text);
    assert_submits(&s, "SUBMIT(a=llm_query('x' * 200000) == 'x' * 200000)", "{\"a\": true}");
    assert_true(c->cuts > 4);
    c->cut_each = 0;
    close_side(&s);
}

static void large_values_survive_cuts(void **state)
{
    check_each(*state, 2500001);
    check_each(*state, 700001);
}

static void a_kill_is_heard_after_a_cut(void **state)
{
    struct fixture *f = *state;
    struct side s;
    open_side(f, &s);
    run(&s, DAEMONS);
    carrier_cut(the_carrier(f));
    close_side(&s);
    pass(f, 20);
    assert_int_equal(count_left(f), 5);
    carrier_join(the_carrier(f));
    wait_until(f, count_left(f) == 0);
}

/* ---- other interpreters ---- */

static void wait_gone(struct fixture *f)
{
    wait_until(f, the_carrier(f)->gone);
}

static void an_interpreter_that_is_too_old_says_so(void **state)
{
    static const char *const old[] = { "sh", "-c",
        "printf 'a banner\\n\\036DROSTE - this is python 2.7.18 on linux2\\n'; exec sleep 100",
        NULL };
    struct fixture *f = *state;
    struct side s;
    reopen(f, old);
    open_side(f, &s);
    start(&s, "1", 0);
    wait_done(&s);
    assert_int_equal(s.last.reason.code, ERROR_ENVIRONMENT);
    assert_non_null(strstr(s.last.reason.text, "python 2.7.18"));
    cleanup_buf struct buf noise = { 0 };
    remote_noise(the_carrier(f)->remote, &noise);
    assert_string_equal(buf_text(&noise), "a banner");
    close_side(&s);
}

static void what_is_no_interpreter_is_heard_too(void **state)
{
    static const char *const none[] = { "sh", "-c", "echo 'no python \\033[1mhere'", NULL };
    struct fixture *f = *state;
    reopen(f, none);
    wait_gone(f);
    cleanup_buf struct buf noise = { 0 };
    remote_noise(the_carrier(f)->remote, &noise);
    assert_string_equal(buf_text(&noise), "no python \\x1b[1mhere");
}

/* A directory with a module `ctypes` that cannot be imported, as where Python was built without it. */
static char *without_ctypes(void)
{
    char *path = strdup("/tmp/droste-test-XXXXXX");
    char file[96];
    assert_non_null(mkdtemp(path));
    assert_int_equal(chmod(path, 0755), 0);
    snprintf(file, sizeof file, "%s/ctypes.py", path);
    int fd = open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    assert_true(fd >= 0 && write(fd, "raise ImportError\n", 18) == 18);
    close(fd);
    return path;
}

static void remove_without_ctypes(char *path)
{
    cleanup_fd int dir = open("/tmp", O_PATH | O_DIRECTORY | O_CLOEXEC);
    tree_remove(dir, path + sizeof "/tmp");
    free(path);
}

/* Then daemons outlive their session where the supervisor is not the first process, and nothing is
 * hidden; it says so. */
static void sessions_work_without_ctypes(void **state)
{
    char *path = without_ctypes();
    char variable[96];
    const char *const program[] = { "env", variable, "PYTHONDONTWRITEBYTECODE=1", "python3", NULL };
    struct fixture *f = *state;
    struct side s;
    snprintf(variable, sizeof variable, "PYTHONPATH=%s", path);
    reopen(f, program);
    open_side(f, &s);
    assert_submits(&s, "x = 1\nSUBMIT(llm_query('a'))", "{\"output\": \"a\"}");
    assert_false(json_get_bool(the_carrier(f)->facts, "ctypes", true));
    assert_false(json_get_bool(the_carrier(f)->facts, "hidden", true));
    start(&s, "while True: pass", 0.2);
    assert_status(wait_done(&s), CELL_TIMEOUT);
    assert_true(s.last.alive);
    assert_status(run(&s, "import os; os._exit(3)"), CELL_KILLED);
    close_side(&s);
    open_side(f, &s);
    assert_submits(
        &s, "import subprocess\nsubprocess.Popen(['sleep', '1000'])\nSUBMIT(1)", "{\"output\": 1}");
    close_side(&s);
    wait_until(f, count_left(f) == 0);
    remove_without_ctypes(path);
}

/* The twin: what cannot be hidden without ctypes. As an ordinary user; root sees everything. */
static void the_supervisor_is_hidden_from_its_workers(void **state)
{
    static const char code[] = "import os\n"
                               "def parent(pid): return int(open('/proc/%d/stat' % "
                               "pid).read().rpartition(')')[2].split()[1])\n"
                               "def looks(pid):\n"
                               "    try: return bool(os.listdir('/proc/%d/fd' % pid))\n"
                               "    except PermissionError: return False\n"
                               "SUBMIT(me=looks(os.getpid()), keeper=looks(os.getppid()), "
                               "supervisor=looks(parent(os.getppid())))";
    char *path = without_ctypes();
    char variable[96];
    const char *program[] = { "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "env",
        "A=1", "PYTHONDONTWRITEBYTECODE=1", "python3", NULL };
    struct fixture *f = *state;
    struct side s;
    if (geteuid() != 0 || access("/usr/bin/setpriv", X_OK) < 0) {
        print_message("the_supervisor_is_hidden_from_its_workers: needs root and setpriv\n");
        skip();
    }
    reopen(f, program);
    open_side(f, &s);
    assert_submits(&s, code, "{\"me\": true, \"keeper\": false, \"supervisor\": false}");
    assert_true(json_get_bool(the_carrier(f)->facts, "hidden", false));
    close_side(&s);
    snprintf(variable, sizeof variable, "PYTHONPATH=%s", path);
    program[5] = variable;
    reopen(f, program);
    open_side(f, &s);
    assert_submits(&s, code, "{\"me\": true, \"keeper\": true, \"supervisor\": true}");
    close_side(&s);
    remove_without_ctypes(path);
}

static void it_says_what_it_is(void **state)
{
    struct fixture *f = *state;
    wait_until(f, the_carrier(f)->facts);
    struct json_object *facts = the_carrier(f)->facts;
    assert_string_equal(json_get_string(facts, "implementation", ""), "cpython");
    assert_int_equal(json_get_int(facts, "pid", 0), the_carrier(f)->pid);
    assert_int_equal(json_get_int(facts, "uid", -1), getuid());
    assert_true(json_get_bool(facts, "ctypes", false));
    assert_non_null(json_get_typed(facts, "limits", json_type_object));
}

#define B(name) cmocka_unit_test_setup_teardown(name, setup_bare, teardown)
#define T(name)                                                                                    \
    {                                                                                              \
#name ", terminal", name, setup_text, teardown, NULL                                       \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        B(it_says_what_it_is),
        B(a_cell_runs_and_variables_stay),
        T(a_cell_runs_and_variables_stay),
        B(a_call_is_answered),
        T(a_call_is_answered),
        B(errors_name_the_cells_own_lines),
        B(output_is_there_before_its_result),
        T(output_is_there_before_its_result),
        B(a_flood_of_output_is_cut_in_the_middle),
        T(a_flood_of_output_is_cut_in_the_middle),
        B(large_values_pass_in_both_directions),
        T(large_values_pass_in_both_directions),
        B(a_value_in_a_memory_file_passes_too),
        B(a_worker_has_a_directory_of_its_own),
        B(siblings_have_other_random_numbers),
        B(limits_are_the_workers_own),
        B(modules_are_preloaded_or_refused_by_name),
        B(the_standard_input_is_empty),
        B(the_soft_deadline_keeps_the_state),
        T(the_soft_deadline_keeps_the_state),
        B(the_time_of_a_cell_begins_when_its_sandbox_is_there),
        B(a_cell_that_does_not_stop_is_killed),
        B(the_end_of_a_worker_is_told_as_it_was),
        B(what_was_said_last_is_heard),
        B(daemons_live_as_long_as_their_session),
        B(a_fork_bomb_ends_with_its_session),
        B(who_kills_its_keeper_ends_too),
        B(who_stops_its_keeper_can_be_killed),
        B(the_end_of_the_supervisor_is_the_end_of_all),
        B(the_end_of_its_input_ends_it_with_all_workers),
        B(an_unused_lease_ends_it_with_all_workers),
        B(two_sessions_go_on_side_by_side),
        B(neither_a_flood_nor_deafness_stops_the_others),
        B(as_the_first_process_it_outruns_all),
        B(who_gives_its_streams_away_ends_too),
        B(fifty_sessions_leave_nothing),
        B(a_cut_before_the_first_word_is_mended),
        T(a_cut_before_the_first_word_is_mended),
        B(a_cut_while_the_guest_is_sent_is_found_out),
        B(a_cell_survives_a_cut),
        T(a_cell_survives_a_cut),
        B(operations_can_begin_while_it_is_cut),
        B(calls_survive_cuts),
        T(calls_survive_cuts),
        B(large_values_survive_cuts),
        T(large_values_survive_cuts),
        B(a_kill_is_heard_after_a_cut),
        B(an_interpreter_that_is_too_old_says_so),
        B(what_is_no_interpreter_is_heard_too),
        B(sessions_work_without_ctypes),
        B(the_supervisor_is_hidden_from_its_workers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
