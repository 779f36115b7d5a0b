"""SECURITY.md's table "How a cell can end", row by row, and what its notes say.

Each row names what happens; CODE has a cell that makes it happen. The rest of the row is what the
result must say, and what the next call gets.
"""
import contextlib
import json
import os
import re
import subprocess
import sys
import threading

import pytest

import adapters
import droste

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HEAD = "| what happens |"

# They call `begun` when the disturbance may come. A call that waits sees an interrupt, even if the
# code ignores the signal.
IGNORE = ("import signal, threading\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
          "threading.Thread(target=begun, daemon=True).start()\nwhile True: pass")
SLEEP = "import time\nbegun()\ntime.sleep(60)"
CATCH = "import time\ntry:\n    begun()\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    pass\n"

WRITE = "with open('big', 'wb') as f:\n    f.write(bytes(2 << 20))\n"
TOGETHER = ("import os, time\nfor _ in range(6):\n    if os.fork() == 0:\n"
            "        x = b'x' * (30 << 20)\n        time.sleep(60)\n        "
            "os._exit(0)\ntime.sleep(60)")
VOLUME = ("import os, time\nwith open(os.environ['DROSTE_VOLUME'] + '/big', 'wb') as f:\n"
          "    f.write(bytes(2 << 20))\ntime.sleep(60)")
WORKSPACE = ("import time\nwith open(WORKSPACE_ROOT + '/big', 'wb') as f:\n"
             "    f.write(bytes(2 << 20))\ntime.sleep(60)")

# What happens: (the cell, settings, what somebody does to it meanwhile, what the environment must
# have for it).
CODE = {
    "it runs to its end": ("x = 1", {}, None),
    "it raises": ("x = 1\n1 / 0", {}, None),
    "it calls `sys.exit()`": ("import sys\nsys.exit(3)", {}, None),
    "`SUBMIT`, `FINAL`, or `answer` is ready": ("SUBMIT(a=1)", {}, None),
    "it submits what is not JSON": ("SUBMIT(a=object)", {}, None),
    "it submits what does not fit `answer-schema`":
    ("SUBMIT('41')", {"answer_schema": '{"type": "integer"}'}, None),
    "it reaches its deadline and stops when interrupted":
    (SLEEP, {"execute_timeout": 0.2, "grace": 30}, None),
    "it reaches its deadline and submits all the same":
    (CATCH + "SUBMIT(late=True)", {"execute_timeout": 0.2, "grace": 30}, None),
    "it reaches its deadline and does not stop": (IGNORE, {"execute_timeout": 0.2}, None),
    "it is interrupted and stops": (SLEEP, {"grace": 30}, "interrupt"),
    "it is interrupted, catches that, and ends": (CATCH, {"grace": 30}, "interrupt"),
    "it is interrupted and does not stop": (IGNORE, {}, "interrupt"),
    "`os._exit(3)`": ("import os\nos._exit(3)", {}, None),
    "it crashes, or a signal kills it": ("import ctypes\nctypes.string_at(0)", {}, None),
    "no memory is left": ("b = bytearray(1 << 30)", {"memory": "128M"}, None, "memory"),
    "the sandbox as a whole exceeds its memory": (TOGETHER, {"memory": "96M"}, None,
                                                  "memory together"),
    "it uses up its processor time": ("while True: pass", {"cpu_time": 1}, None, "cpu time"),
    "it uses up its processor time and ignores SIGXCPU":
        ("import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass",
         {"cpu_time": 1}, None, "cpu time"),
    "it writes beyond `--file-size`": (WRITE, {"file_size": "1M"}, None, "file size"),
    "it does so without ignoring SIGXFSZ, as C programs do":
        ("import signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_DFL)\n" + WRITE,
         {"file_size": "1M"}, None, "file size"),
    "its volume exceeds the volume's limits":
        (VOLUME, {"volume_name": "full", "volume_size": "1M"}, None, "volume watch"),
    "its workspace exceeds `--workspace-size` or `--workspace-files`":
        (WORKSPACE, {"context_path": [__file__], "workspace_size": "1M"}, None, "workspace size"),
    "it violates the protocol": ("raw(b'\\0' * 24)\nimport time\ntime.sleep(60)", {}, None),
    "it is killed from outside": (SLEEP, {}, "kill", "outside"),
    "the session's time is over": (SLEEP.replace("60", "100"), {"timeout": 1}, None),
}

# The library's codes, by which the table names what the next call gets.
NEXT = {"timeout": droste.TimedOut, "cancelled": droste.Cancelled, "lost": droste.LostError,
        "protocol": droste.ProtocolError}


def table():
    """{what happens: the other columns}"""
    with open(os.path.join(ROOT, "SECURITY.md"), encoding="utf-8") as page:
        lines = page.read().partition(HEAD)[2].split("\n")[2:]
    rows = {}
    for line in lines:
        if not line.startswith("|"):
            return rows
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        rows[cells[0]] = cells[1:]
    return rows


def test_every_row_has_a_cell_and_every_cell_a_row():
    """No row of the table is left out above, and none is made up."""
    assert list(table()) == list(CODE)


def rows():
    for row, (_, _, _, *features) in CODE.items():
        yield pytest.param(row, id=re.sub(r"[^\w ]", "", row),
                           marks=[pytest.mark.needs(*features)] if features else [])


@pytest.fixture
def ending(environment, volume_root, marked):
    """ending(row): the session and the result of the row's cell, run as its settings and its
    disturbance have it."""
    made = []

    def end(row):
        """Deadlines are short; a longer one is tried where a busy machine has reached it before
        the code has called `begun`."""
        times = {"timeout", "execute_timeout"} & set(CODE[row][1])
        for factor in (1, 10, 60):
            with contextlib.suppress(droste.TimedOut):
                has_begun, *found = end_once(row, {name: CODE[row][1][name] * factor
                                                   for name in times})
                if has_begun or not times:
                    break
        return found

    def end_once(row, times):
        code, settings, disturbance = CODE[row][:3]
        begun = threading.Event()
        if {"volume_name", "context_path"} & set(settings):
            settings = {"volume_root": volume_root, **settings}
        interp = environment.open(**{"grace": 0.2, "tools": {"begun": begun.set}, **settings,
                                     **times})
        made.append(interp)
        first = interp.execute("kept = 41\n" + environment.raw, timeout=60)
        assert first.ok or first.killed == "timeout"    # then the code's cell raises TimedOut
        disturb = {None: None, "interrupt": interp.interrupt}.get(disturbance)
        if disturbance == "kill":
            mark = marked(interp)
            disturb = lambda: environment.kill(mark)
        helper = threading.Thread(target=lambda: begun.wait(60) and disturb())
        if disturb:
            helper.start()
        result = interp.execute(code)
        has_begun = begun.is_set()
        begun.set()
        if disturb:
            helper.join()
        return has_begun, interp, result

    yield end
    for interp in made:
        interp.shutdown()


@pytest.mark.parametrize("row", rows())
def test_a_cell_ends_as_the_table_says(ending, row):
    """Status, error, what killed it, whether the session goes on with its variables, and what the
    next call gets."""
    status, kind, killed, alive, afterwards = table()[row]
    interp, result = ending(row)
    data = result.json
    assert (data["status"], (data["error"] or {}).get("type",
                                                      "")) == (status, kind.split(",")[0]), data
    assert (data["killed"] or "") == killed.split(",")[0], data
    assert (data["alive"], result.alive, interp.alive) == (alive == "yes",) * 3, data
    if result.alive:
        assert afterwards == "runs"
        interp.output_fields = ["n"]       # instead of the schema that one of them has
        assert interp.execute("SUBMIT(n=kept)").fields == {"n": 41}
    else:
        kind = NEXT[afterwards.replace("error ", "").strip("`")]
        for _ in range(2):      # not a new sandbox in its place, the second time neither
            with pytest.raises(kind):
                interp.execute("SUBMIT(n=kept)")


@pytest.mark.parametrize("code, killed", [
    ("os.kill(os.getpid(), 9)", "signal 9 SIGKILL"), ("os.abort()", "signal 6 SIGABRT"),
    ("os._exit(0)", "exit 0"), ("os._exit(255)", "exit 255"),
    ("os.kill(os.getpid(), signal.SIGTERM)", "signal 15 SIGTERM"),
    ("threading.Thread(target=os._exit, args=(7,)).start(); time.sleep(60)", "exit 7")])
def test_how_the_guest_ended_is_named(opened, code, killed):
    """killed: the guest's own exit status or signal, from whatever thread."""
    result = opened().execute("import os, signal, threading, time\n" + code)
    assert (result.status, result.killed, result.alive) == ("killed", killed, False)


@pytest.mark.needs("outside")
def test_the_outcome_of_a_cell_in_a_lost_sandbox_is_unknown(ending):
    """A sandbox was killed from outside in the middle of a cell: the cell's status is unknown."""
    _, result = ending("it is killed from outside")
    assert result.status == "lost" and "the cell's outcome is unknown" in result.error.message


@pytest.mark.needs("outside")
def test_a_sandbox_that_dies_between_cells_is_not_replaced(environment, opened, marked):
    """The next call is told, and no other session feels it."""
    interp, other = opened(), opened()
    other.execute("kept = 41")
    interp.execute("x = 1")
    mark = marked(interp)
    environment.kill(mark)
    assert adapters.wait_for(lambda: environment.is_gone(mark))
    with pytest.raises(droste.LostError):
        result = interp.execute("x")
        # where the end is noticed while it is sent
        assert (result.status, result.alive) == ("lost", False)
        interp.execute("x")
    assert not interp.alive
    assert other.execute("kept").echo == "41"


def test_a_guest_that_a_thread_ended_between_cells_fails_the_next(opened):
    """SECURITY.md: the next cell is then not run, and has its status; or the call is told at
    once."""
    interp = opened()
    interp.execute(
        "import os, threading, time\nt = threading.Timer(0.05, os._exit, (5,))\nt.start()")
    try:
        result = interp.execute("time.sleep(60)")
        assert (result.status, result.killed, result.alive) == ("killed", "exit 5", False)
    except droste.LostError:
        pass
    with pytest.raises(droste.LostError):
        interp.execute("1")


@pytest.mark.needs("outside", "whole")
def test_a_sandbox_that_is_killed_from_outside_is_gone_as_a_whole(environment, opened, marked):
    """The sandbox and everything in it are gone, what it has started too."""
    mark = marked(opened())
    environment.kill(mark)
    assert adapters.wait_for(lambda: not environment.left(mark)), environment.left(mark)


HOST = """
import json, os, sys
sys.path[:0] = %r
import adapters
environment = adapters.parse(%r)
interp = environment.open()
print(json.dumps(environment.mark(interp)), flush=True)
interp.execute("import time\\nwhile True: time.sleep(0.01)")
"""


@pytest.mark.needs("outside", "with host")
def test_a_host_that_is_killed_leaves_nothing(environment, marked):
    """If the host is killed, its sandboxes are killed, with all that they started."""
    host = subprocess.Popen([sys.executable, "-c", HOST % (
        [os.path.dirname(adapters.__file__), os.path.join(ROOT, "python")], environment.id)],
                            stdout=subprocess.PIPE, text=True)
    try:
        mark = json.loads(host.stdout.readline())
        marked.all.append(mark)
        assert environment.left(mark)
    finally:
        host.kill()
        host.communicate()
    assert adapters.wait_for(lambda: not environment.left(mark)), environment.left(mark)


def test_a_transport_that_is_lost_ends_the_session(environment, opened):
    """Where the channel is closed in the middle of a cell, nobody waits for a result for ever, and
    none is made up."""
    interp = opened(execute_timeout=60)
    result = interp.execute("x = 1\n" + environment.cut)
    assert result.status in ("killed", "lost") and (result.alive, result.fields) == (False, None)
    with pytest.raises(droste.LostError):
        interp.execute("x")


PROTOCOL = {
    "another version": "raw(b'\\x09\\x14' + b'\\0' * 22)",
    "an unknown type": "raw(b'\\x01\\x63' + b'\\0' * 22)",
    "a huge length": "raw(struct.pack('<BBHIQQ', 1, 19, 0, 2 ** 32 - 1, 1, 2 ** 63))",
    "a result of no operation": "raw(struct.pack('<BBHIQQ', 1, 20, 0, 2, 2 ** 60, 0) + b'{}')",
    "a second ready": "raw(struct.pack('<BBHIQQ', 1, 17, 0, 2, 0, 0) + b'{}')",
    "JSON that is none": "raw(struct.pack('<BBHIQQ', 1, 19, 0, 2, 9, 0) + b'{x')",
    "noise": "raw(bytes(range(256)) * 64)",
}


@pytest.mark.parametrize("case", PROTOCOL)
def test_bytes_behind_the_guests_back_end_that_sandbox_only(environment, opened, case):
    """A guest that writes raw bytes to its channel gains nothing, and harms nobody else."""
    interp, other = opened(), opened()
    other.execute("kept = 41")
    interp.execute(environment.raw + "import struct, time\n")
    result = interp.execute(PROTOCOL[case] + "\ntime.sleep(60)")
    assert (result.status, result.killed, result.alive) == ("killed", "protocol", False)
    with pytest.raises(droste.ProtocolError):
        interp.execute("1")
    assert other.execute("kept").echo == "41"


def test_a_forged_result_ends_the_sandbox_at_the_next_call(environment, opened):
    """SECURITY.md: it ends the cell with what it says; the real one comes after it, for an
    operation that is over."""
    interp = opened()
    interp.execute("x = 1\n" + environment.raw)
    forged = interp.execute("import struct\nhead = b'{\"status\":\"ok\"}'\n"
                            "raw(struct.pack('<BBHIQQ', 1, 20, 0, len(head), %d, 0) + head)\nx = 2"
                            % (environment.operations + 2))
    assert forged.status == "ok"
    with pytest.raises(droste.ProtocolError):
        after = interp.execute("SUBMIT(x)")
        assert (after.status, after.killed, after.alive) == ("killed", "protocol", False)
        interp.execute("SUBMIT(x)")


@pytest.mark.parametrize("key,status", [
    ("other", "error"), ("message", "killed"), ("traceback", "killed")])
def test_whole_texts_of_an_exception_come_only_where_they_were_wanted(
        environment, opened, key, status):
    """A session that takes them cut accepts no part of that name; a field of another name is
    ignored."""
    interp = opened()
    interp.execute(environment.raw)
    forged = interp.execute(
        "import struct, time\nhead = b'{\"status\":\"error\",\"%s\":0}'\n"
        "blob = struct.pack('<IQ', 1, 3) + b'abc'\n"
        "raw(struct.pack('<BBHIQQ', 1, 20, 0, len(head), %d, len(blob)) + head + blob)\n"
        "time.sleep(60)" % (key, environment.operations + 2))
    assert forged.status == status
    assert forged.killed == ("protocol" if status == "killed" else None)
