/* Sessions through a real supervisor at the far end of a transport: how they end, several at the
 * same time, and with a transport that is cut at any time. Nothing is left behind. */
#include "remote_fixture.h"

/* ---- how sessions end ---- */

static void the_end_of_a_worker_is_reported_exactly(void **state)
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

static void the_last_words_are_received(void **state)
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

/* Chains of processes, each of which forks the next one: a look at /proc misses most of them. All
 * hold a FIFO open, which therefore ends with the last one. */
static void a_fork_bomb_ends_with_its_session(void **state)
{
    enum { CHAINS = 30 };
    struct fixture *f = *state;
    struct side s;
    char dir[] = "/tmp/droste-test-XXXXXX", path[40], code[400], some[CHAINS];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/alive", dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    cleanup_fd int alive = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    open_side(f, &s);
    snprintf(code, sizeof code,
        "import os, time\nalive = os.open('%s', os.O_WRONLY)\nfor _ in range(%d):\n"
        "    if os.fork() == 0:\n"
        "        if os.fork(): os._exit(0)\n"
        "        os.write(alive, b'.')\n"
        "        while True:\n"
        "            if os.fork(): os._exit(0)\n"
        "            time.sleep(0.002)\n",
        path, CHAINS);
    assert_status(run(&s, code), CELL_OK);
    ssize_t begun = 0, n = 0;
    wait_until(f, (n = read(alive, some, sizeof some), begun += n > 0 ? n : 0) == CHAINS);
    close_side(&s);
    wait_until(f, read(alive, some, sizeof some) == 0);
    wait_until(f, count_left(f) == 0);
    unlink(path);
    rmdir(dir);
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
    struct session_options options = side_options();
    options.grace = 0.2;
    open_side_as(f, &s, &options);
    run(&s, "import os, signal");
    start(&s,
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "keeper = os.getppid()\nwhile True: os.kill(keeper, signal.SIGSTOP)",
        1);
    assert_status(wait_done(&s), CELL_TIMEOUT);
    assert_false(s.last.alive);
    close_side(&s);
    wait_until(f, count_left(f) == 0);
}

/* A test runs it as any process; in a container it is the first one, which nobody there can
 * kill. */
static void the_end_of_the_supervisor_is_the_end_of_all(void **state)
{
    struct fixture *f = *state;
    struct process left[64];
    struct side a, b;
    open_side(f, &a);
    open_side(f, &b);
    run(&a, DAEMONS);
    run(&b, "1");
    size_t count = descendants(the_transport(f)->pid, left, array_length(left));
    assert_int_equal(count, 7);
    start(&b, "import time; time.sleep(1e6)", 0);
    kill(the_transport(f)->pid, SIGKILL);
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
    size_t count = descendants(the_transport(f)->pid, left, array_length(left));
    assert_int_equal(count, 5);
    struct transport *c = the_transport(f);
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
    f->options.boot.lease = 2;
    f->options.boot.eof_ends = false;
    reopen(f, NULL);
    struct side s;
    open_side(f, &s);
    run(&s, DAEMONS);
    start(&s, "import time; time.sleep(3)", 0); /* longer than the lease: the heartbeat renews it */
    assert_status(wait_done(&s), CELL_OK);
    transport_cut(the_transport(f));
    wait_until(f, the_transport(f)->gone);
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

/* Long enough for things to be said while nobody hears them. */
static void pass(struct fixture *f, unsigned ms)
{
    uint64_t start_ns = clock_ns();
    while (clock_seconds_since(start_ns) * 1000 < ms) {
        loop_turn(f->loop, 0);
        usleep(1000);
    }
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
               "threading.Timer(1, lambda: os.kill(os.getpid(), signal.SIGSTOP)).start()");
    pass(f, 1500); /* until it has stopped: not before its cell has ended */
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

/* As in a container. Processes that fork and end without a pause outrun a search that kills them
 * one by one; the supervisor has the kernel kill all at once. The guest cannot kill the
 * supervisor. */
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
    assert_int_equal(json_get_int(the_transport(f)->facts, "pid", 0), 1);
    run(&s, "import ctypes\nfork = ctypes.PyDLL(None).fork; _exit = ctypes.PyDLL(None)._exit\nfor "
            "_ in range(16):\n    if os.fork() == 0:\n"
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
        its = count_fds_of(the_transport(f)->pid);
    }
    wait_until(f, count_left(f) == 0 && count_fds_of(the_transport(f)->pid) <= its &&
                      count_zombies(the_transport(f)->pid) ==
                          0); /* who has ended is taken away a moment later */
    assert_int_equal(count_fds(), mine);
}

/* ---- cuts ---- */

static void cut_for(struct fixture *f, unsigned ms)
{
    transport_cut(the_transport(f));
    pass(f, ms);
    transport_join(the_transport(f));
}

static void a_cut_before_the_first_word_is_mended(void **state)
{
    struct fixture *f = *state;
    struct side s;
    for (unsigned ms = 0; ms < 40; ms += 8) {
        reopen(f, NULL);
        open_side(f, &s);
        pass(f, ms);
        if (!the_transport(f)->wrote) /* it has not come yet */
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
        the_transport(f)->cut_each = the_transport(f)->until_cut = sizes[i];
        wait_until(f, the_transport(f)->cuts > 0);
        the_transport(f)->cut_each = 0;
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
    transport_cut(the_transport(f));
    start(&s, "SUBMIT(2)", 0);
    open_side(f, &late);
    start(&late, "SUBMIT(3)", 0);
    pass(f, 50);
    assert_false(s.done);
    transport_join(the_transport(f));
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
    struct transport *c = the_transport(f);
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
    transport_cut(the_transport(f));
    close_side(&s);
    pass(f, 20);
    assert_int_equal(count_left(f), 5);
    transport_join(the_transport(f));
    wait_until(f, count_left(f) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        B(the_end_of_a_worker_is_reported_exactly),
        B(the_last_words_are_received),
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
