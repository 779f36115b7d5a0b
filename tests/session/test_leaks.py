"""What is left on the host: nothing. Descriptors, processes and temporary files are as before,
after sessions that ended in every way. The adapter counts them.
"""
import gc
import os
import time

import pytest

import adapters
import droste

ROUNDS = 3

ENDS = {
    "closed": "x = 1",
    "submitted": "SUBMIT(a=1)",
    "killed by itself": "import os; os._exit(3)",
    "crashed": "import os; os.abort()",
    "timed out": "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass",
    "with programs": "import subprocess; p = subprocess.Popen(['sleep', '100'])",
    "with a daemon":
    "import subprocess; subprocess.run('setsid sleep 100 & setsid sh -c \"sleep 100\" &', "
    "shell=True)",
    "with threads":
    "import threading; t = threading.Thread(target=threading.Event().wait); t.start()",
    "with files": "open('f', 'w').write('x' * 100000); import os; os.makedirs('a/b/c')",
    "with calls":
    "import threading; t = threading.Thread(target=llm_query, args=('q',), daemon=True); t.start()",
}


def holdings(environment):
    gc.collect()
    return environment.holdings()


def open_and_end(environment, ends, rounds):
    for _ in range(rounds):
        for end in ends:
            settings = {"execute_timeout": 0.1, "grace": 0.1} if end == "timed out" else {}
            interp = environment.open(model=lambda messages: "a", **settings)
            interp.execute(ENDS[end])
            interp.shutdown()


def is_as_before(environment, before, looks=25):
    """Looks until nothing more is held than before, or so many looks have seen no change."""
    unchanged, last = 0, None
    while unchanged < looks:
        held = holdings(environment)
        if all(now <= before[name] for name, now in held.items()):
            return True
        unchanged, last = unchanged + 1 if held == last else 0, held
        time.sleep(0.2)
    return False


def test_sessions_leave_nothing_behind(environment):
    """After N sessions the host's descriptors and child processes are as before, however they
    ended."""
    open_and_end(environment, ENDS, 1)
    before = holdings(environment)
    open_and_end(environment, ENDS, ROUNDS)
    if not is_as_before(environment, before):
        leaks = []
        for end in ENDS:        # which of them?
            before = holdings(environment)
            open_and_end(environment, [end], ROUNDS)
            leaks += [end] * (not is_as_before(environment, before, 1))
        pytest.fail("these leave something behind: %s" % (leaks or "all together"))


def test_sessions_that_do_not_open_leave_nothing_behind(environment):
    """Setup code that fails, settings that cannot be had."""
    def some(count):
        for _ in range(count):
            for settings in ({"setup_code": "1 / 0"}, {"python": "/nowhere/python3"},
                             {"context_path": ["/nowhere"]}):
                with pytest.raises(droste.Error):
                    environment.open(**settings)

    some(1)
    before = holdings(environment)
    some(ROUNDS)
    assert is_as_before(environment, before), (before, holdings(environment))


@pytest.mark.needs("volume", "workspace")
def test_a_volume_and_staged_files_leave_nothing_behind(environment, volume_root):
    """What was staged is gone with its session; the volume is one directory, however many had
    it."""
    def some(count):
        for _ in range(count):
            interp = environment.open(volume_name="left", volume_root=volume_root,
                                      context_path=[__file__])
            assert interp.execute("save_to_volume('a', 'b'); workspace_write('c', 'd')").ok
            interp.shutdown()

    def found():
        return sorted(os.path.join(at, name) for at, _, names in os.walk(volume_root)
                      for name in names)

    some(1)
    before, files = holdings(environment), found()
    some(ROUNDS)
    assert is_as_before(environment, before), (before, holdings(environment))
    assert found() == files


@pytest.mark.needs("outside")
def test_a_closed_session_has_no_processes(environment, opened, marked):
    """All of its processes end with it, those that it has started in the background too."""
    interp = opened()
    mark = marked(interp)
    assert environment.left(mark)
    interp.shutdown()
    assert adapters.wait_for(lambda: not environment.left(mark)), environment.left(mark)


@pytest.mark.needs("outside")
@pytest.mark.parametrize("end", ["closed", "killed by itself", "crashed", "timed out"])
def test_daemons_end_with_their_session(environment, opened, end):
    """What has left its parents, its group and its terminal is still the sandbox's, however that
    ends."""
    word = adapters.new_word()
    interp = opened(grace=0.2)
    assert interp.execute("import subprocess\nx = subprocess.run(%r, shell=True)" % (
        "setsid sh -c 'sleep %s & setsid sleep %s & :' </dev/null >/dev/null 2>&1 &"
        % (word, word))).ok
    assert adapters.wait_for(lambda: len(environment.processes_of(word)) == 2)
    try:
        interp.execute(ENDS[end], timeout=0.2)
        interp.shutdown()
        assert adapters.wait_for(lambda: not environment.processes_of(
            word)), environment.processes_of(word)
    finally:
        for pid in environment.processes_of(word):
            os.kill(pid, 9)


def test_an_interpreter_that_was_forgotten_is_closed(environment):
    """With a warning, and without what it held."""
    before = holdings(environment)
    interp = environment.open()
    interp.execute("x = 1")
    with pytest.warns(ResourceWarning):
        del interp
        gc.collect()
    assert is_as_before(environment, before), (before, holdings(environment))


def test_cells_leave_nothing_in_the_guest(environment):
    """A session may have as many cells as it likes: what it keeps of each, it keeps of the last
    thousand. What a cell has defined is kept, and its source."""
    counts = "import gc; SUBMIT(objects=len(gc.get_objects()))"
    with environment.open() as interp:
        interp.execute("def wrong(): raise ValueError('mine')")
        found = []
        for _ in range(2):
            for _ in range(1200):
                interp.execute("n = 1")
            found.append(interp.execute(counts).fields["objects"])
        assert found[1] - found[0] < 200, found
        assert "def wrong(): raise ValueError('mine')" in interp.execute("wrong()").error.traceback
