"""How a cell can end: SECURITY.md's table, row by row, through the built library.

Each row of the table names what happens; CODE has a cell that makes it happen. The rest of the row
is what the result must say, and what the next call gets.
"""
import ctypes
import json
import os
import signal
import threading

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LIBRARY = os.path.join(ROOT, os.environ.get("BUILD", "build"), "libdroste.so")
HEAD = "| what happens |"

# They call `begun` when somebody may disturb them; who waits in a call hears of an interrupt whatever is ignored.
IGNORE = ("import signal, threading\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
          "threading.Thread(target=begun, daemon=True).start()\nwhile True: pass")
SLEEP = "import time\nbegun()\ntime.sleep(30)"
CATCH = "import time\ntry:\n    begun()\n    time.sleep(30)\nexcept KeyboardInterrupt:\n    pass\n"

WRITE = "with open('big', 'wb') as f:\n    f.write(bytes(2 << 20))\n"
TOGETHER = ("import os, time\nfor _ in range(6):\n    if os.fork() == 0:\n"
            "        x = b'x' * (30 << 20)\n        time.sleep(30)\n        os._exit(0)\ntime.sleep(30)")

# What happens: (the cell, settings, what somebody does to it meanwhile).
CODE = {
    "it runs to its end": ("x = 1", {}, None),
    "it raises": ("x = 1\n1 / 0", {}, None),
    "it calls `sys.exit()`": ("import sys\nsys.exit(3)", {}, None),
    "`SUBMIT`, `FINAL`, or `answer` is ready": ("SUBMIT(a=1)", {}, None),
    "it submits what is not JSON": ("SUBMIT(a=object)", {}, None),
    "it submits what does not fit `answer-schema`":
        ("SUBMIT('41')", {"answer-schema": '{"type": "integer"}'}, None),
    "it reaches its deadline and stops when interrupted":
        (SLEEP, {"execute-timeout": "0.3"}, None),
    "it reaches its deadline and submits all the same":
        (CATCH + "SUBMIT(late=True)", {"execute-timeout": "0.3"}, None),
    "it reaches its deadline and does not stop": (IGNORE, {"execute-timeout": "0.3"}, None),
    "it is interrupted and stops": (SLEEP, {}, "interrupt"),
    "it is interrupted, catches that, and ends": (CATCH, {}, "interrupt"),
    "it is interrupted and does not stop": (IGNORE, {}, "interrupt"),
    "`os._exit(3)`": ("import os\nos._exit(3)", {}, None),
    "it crashes, or a signal kills it": ("import ctypes\nctypes.string_at(0)", {}, None),
    "no memory is left": ("b = bytearray(1 << 30)", {"memory": "128M"}, None),
    "its processes together use up the memory (with a cgroup)": (TOGETHER, {"memory": "96M"}, None),
    "it uses up its processor time": ("while True: pass", {"cpu-time": "1"}, None),
    "it ignores that its processor time is used up":
        ("import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass",
         {"cpu-time": "1"}, None),
    "it writes more than a file may have": (WRITE, {"file-size": "1M"}, None),
    "it does so without ignoring SIGXFSZ, as C programs do":
        ("import signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_DFL)\n" + WRITE,
         {"file-size": "1M"}, None),
    "what is in its volume is over the volume's limits":
        ("import os, time\nwith open(os.environ['DROSTE_VOLUME'] + '/big', 'wb') as f:\n    f.write(bytes(2 << 20))\ntime.sleep(30)",
         {"volume-name": "v", "volume-size": "1M"}, None),
    "what is in its workspace is over `--workspace-size` or `--workspace-files`":
        ("import time\nwith open(WORKSPACE_ROOT + '/big', 'wb') as f:\n    f.write(bytes(2 << 20))\ntime.sleep(30)",
         {"context-path": __file__, "workspace-size": "1M"}, None),
    "it breaks the protocol": ("import os\nos.write(3, b'\\0' * 24)", {}, None),
    "somebody outside kills the sandbox": (SLEEP, {}, "kill"),
    "the session's time is over": (SLEEP, {"timeout": "0.5"}, None),
}


class Error(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int), ("sys", ctypes.c_int), ("text", ctypes.c_char * 240)]


TOOL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t)


class Refused(Exception):
    """The library's error; `args[0]` is the name of its code."""


class Library:
    """One `droste` object with one session at a time."""

    def __init__(self):
        self.so = ctypes.CDLL(LIBRARY)
        self.so.droste_error_name.restype = ctypes.c_char_p
        self.so.droste_result_json.restype = ctypes.c_char_p
        self.d = self.new("droste_new")
        self.begun = threading.Event()
        self.told = TOOL(self.cell_begun)
        err = Error()
        assert self.so.droste_tool_add(self.d, b"begun", None, None, self.told, None, ctypes.byref(err)) == 0, err.text

    def cell_begun(self, _, call, _json, _len):
        self.begun.set()
        self.so.droste_tool_answer(ctypes.c_void_p(call), b"null", ctypes.c_size_t(4))

    def new(self, name, *args):
        out, err = ctypes.c_void_p(), Error()
        if getattr(self.so, name)(*args, ctypes.byref(out), ctypes.byref(err)) < 0:
            raise Refused(self.so.droste_error_name(err.code).decode(), err.text.decode())
        return out

    def set(self, name, value):
        err = Error()
        assert self.so.droste_set(self.d, name.encode(), value.encode(), ctypes.byref(err)) == 0, \
            err.text.decode()

    def execute(self, session, code):
        text = code.encode()
        result = self.new("droste_session_exec", session, text, ctypes.c_size_t(len(text)), 0)
        told = json.loads(self.so.droste_result_json(result, None))
        self.so.droste_result_free(result)
        return told


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


def children(pid):
    with open("/proc/%d/task/%d/children" % (pid, pid)) as listing:
        return [int(word) for word in listing.read().split()]


def kill_keeper():
    """The keeper is the child of the zygote, which is the child of this process."""
    keepers = [keeper for zygote in children(os.getpid()) for keeper in children(zygote)]
    assert len(keepers) == 1
    os.kill(keepers[0], signal.SIGKILL)


def disturb(library, how):
    assert library.begun.wait(30)
    if how == "interrupt":
        library.so.droste_interrupt(library.d)
    else:
        kill_keeper()


@pytest.fixture
def library(tmp_path):
    library = Library()
    library.set("grace", "0.4")
    library.set("volume-root", str(tmp_path / "volumes"))
    yield library
    library.so.droste_free(library.d)


def test_every_row_has_a_cell_and_every_cell_a_row():
    """No row of the table is left out below, and none is made up."""
    assert list(table()) == list(CODE)


@pytest.mark.parametrize("isolation", ["full", "process"])
@pytest.mark.parametrize("row", CODE)
def test_a_cell_ends_as_the_table_says(library, row, isolation):
    """Status, error, what killed it, whether the session goes on with its variables, and what the next call gets."""
    status, kind, killed, alive, afterwards = table()[row]
    code, settings, disturbance = CODE[row]
    for name, value in {**settings, "isolation": isolation}.items():
        library.set(name, value)
    session = library.new("droste_session_open", library.d)
    before = library.execute(session, "kept = 41")
    if "(with a cgroup)" in row and before["resources"]["limits"]["memory"]["by"] != "cgroup":
        pytest.skip("there is no cgroup to be had here; make check-vm has one")
    helper = threading.Thread(target=disturb, args=(library, disturbance))
    if disturbance:
        helper.start()
    result = library.execute(session, code)
    if disturbance:
        helper.join()
    error = (result["error"] or {}).get("type", "")
    assert result["status"] == status, result
    assert error == kind.split(",")[0], result
    assert (result["killed"] or "") == killed.split(",")[0], result
    assert result["alive"] == (alive == "yes"), result
    if result["alive"]:
        assert afterwards == "runs"
        assert library.execute(session, "SUBMIT(kept)")["submit"] == {"output": 41}
    else:
        with pytest.raises(Refused) as refused:
            library.execute(session, "SUBMIT(kept)")
        assert afterwards == "error `%s`" % refused.value.args[0]
    library.so.droste_session_close(session)


def test_a_forged_result_ends_the_sandbox_at_the_next_call(library):
    """The real result comes after it, for an operation that is over."""
    library.set("isolation", "full")
    session = library.new("droste_session_open", library.d)
    library.execute(session, "x = 1")
    forged = library.execute(session, "import os, struct\nhead = b'{\"status\":\"ok\"}'\n"
                             "os.write(3, struct.pack('<BBHIQQ', 1, 20, 0, len(head), 2, 0) + head)\n")
    assert forged["status"] == "ok"
    try:
        after = library.execute(session, "SUBMIT(x)")
        assert (after["status"], after["killed"], after["alive"]) == ("killed", "protocol", False)
    except Refused as refused:
        assert refused.args[0] == "protocol"
    library.so.droste_session_close(session)
