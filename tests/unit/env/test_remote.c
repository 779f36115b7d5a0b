/* Sessions through a real supervisor at the far end of a transport: they behave like local ones. */
#include "remote_fixture.h"

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
    static const char *const slow[] = { "sh", "-c", "sleep 2; exec python3 \"$@\"", "sh", NULL };
    struct side s;
    reopen(*state, slow);
    open_side(*state, &s);
    start(&s, "SUBMIT(1)", 1.5);
    assert_status(wait_done(&s), CELL_SUBMITTED);
    start(&s, "while True: pass", 0.2);
    assert_status(wait_done(&s), CELL_TIMEOUT);
    close_side(&s);
}

static void a_cell_that_does_not_stop_is_killed(void **state)
{
    struct side s;
    struct session_options options = side_options();
    options.grace = 0.2;
    open_side_as(*state, &s, &options);
    run(&s, "import signal");
    start(&s, "signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass", 1);
    assert_status(wait_done(&s), CELL_TIMEOUT);
    assert_false(s.last.alive);
    assert_string_equal(s.last.killed, "timeout");
    close_side(&s);
}

/* ---- other interpreters ---- */

static void wait_gone(struct fixture *f)
{
    wait_until(f, the_transport(f)->gone);
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
    remote_noise(the_transport(f)->remote, &noise);
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
    remote_noise(the_transport(f)->remote, &noise);
    assert_string_equal(buf_text(&noise), "no python \\x1b[1mhere");
}

/* A directory with a module `ctypes` that cannot be imported, as where Python was built without
 * it. */
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
    assert_false(json_get_bool(the_transport(f)->facts, "ctypes", true));
    assert_false(json_get_bool(the_transport(f)->facts, "hidden", true));
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
    assert_true(json_get_bool(the_transport(f)->facts, "hidden", false));
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
    wait_until(f, the_transport(f)->facts);
    struct json_object *facts = the_transport(f)->facts;
    assert_string_equal(json_get_string(facts, "implementation", ""), "cpython");
    assert_int_equal(json_get_int(facts, "pid", 0), the_transport(f)->pid);
    assert_int_equal(json_get_int(facts, "uid", -1), getuid());
    assert_true(json_get_bool(facts, "ctypes", false));
    assert_non_null(json_get_typed(facts, "limits", json_type_object));
}

/* Calls that are echoed, of 3 KB each. */
#define CALLS(count)                                                                               \
    "import os, struct\n"                                                                          \
    "blob = struct.pack('<IQ', 1, 3000) + b'x' * 3000\n"                                           \
    "for n in range(9000, 9000 + " #count "):\n"                                                   \
    "    data = struct.pack('<BBHIQQ', 1, 19, 0, 2, n, len(blob)) + b'{}' + blob\n"                \
    "    while data: data = data[os.write(3, data):]\n"

/* A guest far away that reads none of the replies to its calls is not heard any more when a MiB of
 * them waits here beside the one that is on its way, and is ended; another one in the same place
 * goes on. */
static void unread_replies_are_bounded(void **state)
{
    struct fixture *f = *state;
    struct session_options options = side_options();
    struct side s, other;
    options.stall = 1;
    open_side(f, &other);
    open_side_as(f, &s, &options);
    assert_status(run(&s, "x = 1"), CELL_OK);
    assert_status(run(&s, CALLS(1000000)), CELL_KILLED);
    assert_string_equal(s.last.killed, "protocol");
    assert_non_null(strstr(s.last.reason.text, "read nothing for 1 s"));
    assert_in_range(s.calls, 1, 1500);
    assert_status(run(&other, CALLS(300)), CELL_OK); /* its guest reads them afterwards */
    assert_status(run(&other, "x = 1"), CELL_OK);
    assert_int_equal(other.calls, 300);
    close_side(&s);
    close_side(&other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        B(unread_replies_are_bounded),
        T(unread_replies_are_bounded),
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
        B(an_interpreter_that_is_too_old_says_so),
        B(what_is_no_interpreter_is_heard_too),
        B(sessions_work_without_ctypes),
        B(the_supervisor_is_hidden_from_its_workers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
