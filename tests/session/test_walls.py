"""What does not reach the guest: the host's environment variables, descriptors, files and network.
And limits, each with the name under which the result says that it was hit, and a twin that is
within it.
"""
import contextlib
import os
import socket
import threading

import pytest

import adapters
import droste

SECRET = "a-secret-of-the-host-7d1f"


# -- the host's own

def test_the_hosts_environment_variables_do_not_reach_the_guest(environment, opened, monkeypatch):
    """Nor do they reach its programs; what the guest has is a fixed list."""
    for name in ("SUITE_SECRET", "OPENAI_API_KEY", "LD_PRELOAD_OF_NOBODY", "PYTHONPATH_OF_NOBODY"):
        monkeypatch.setenv(name, SECRET)
    droste.close_idle_engines()        # also not by what was started before
    result = opened().execute(
        "import os, subprocess\nSUBMIT(mine=dict(os.environ), programs=subprocess.run(['env'], "
        "capture_output=True, text=True).stdout)")
    assert SECRET not in str(result.fields) and "PATH" in result.mine


def test_the_hosts_descriptors_do_not_reach_the_guest(opened, tmp_path):
    """Not even those that programs inherit."""
    path = tmp_path / "open-in-the-host"
    path.write_text(SECRET)
    with open(path) as held:
        os.set_inheritable(held.fileno(), True)
        droste.close_idle_engines()
        made = os.fstat(held.fileno())
        result = opened().execute(
            "import os\nfound = []\nfor fd in range(256):\n    try: s = os.fstat(fd)\n    except "
            "OSError: continue\n"
            "    found.append([s.st_dev, s.st_ino])\nSUBMIT(found=found)")
        assert result.found and [made.st_dev, made.st_ino] not in result.found


@pytest.mark.needs("files")
def test_the_hosts_files_do_not_reach_the_guest(session, place):
    """Neither to be read nor to be written, though everybody on the host may read them."""
    path = os.path.join(place, "file")
    with open(path, "w") as f:
        f.write(SECRET)
    os.chmod(path, 0o666)
    for code in ("open(%r).read()", "open(%r, 'w')", "import os; os.remove(%r)",
                 "import shutil; shutil.copy(%r, '.')"):
        assert session.execute(code % path).error.type in ("FileNotFoundError", "PermissionError",
                                                           "OSError")
    with open(path) as f:
        assert f.read() == SECRET


@pytest.mark.needs("read")
def test_what_is_shown_can_be_read(environment, opened, place):
    """The twin: `read` shows a path under its own name, which cannot be written."""
    path = os.path.join(place, "file")
    with open(path, "w") as f:
        f.write("shown")
    interp = opened(read=[place])
    assert interp.execute("open(%r).read()" % path).echo == "'shown'"
    if "files" not in environment.lacks:
        assert interp.execute("open(%r, 'w')" % path).error.type in ("PermissionError", "OSError")


def test_the_guest_has_files_of_its_own(session):
    """The current directory and the temporary one can be written, by Python and by programs."""
    result = session.execute(
        "import os, subprocess, tempfile\nwith open('mine', 'w') as f: x = f.write('a')\n"
        "with tempfile.NamedTemporaryFile('w+') as t: x = t.write('b'); t.seek(0); b = t.read()\n"
        "subprocess.run('echo c > c', shell=True, check=True)\nSUBMIT(all=[read_file('mine'), b, "
        "read_file('c')])")
    assert result.fields == {"all": ["a", "b", "c\n"]}


def test_files_of_one_session_are_not_anothers(opened):
    """A sandbox's temporary files are gone with it, and nobody else's."""
    one, two = opened(), opened()
    one.execute("with open('mine', 'w') as f: f.write('a')")
    assert two.execute("import os\n'mine' in os.listdir('.')").echo == "False"


WORD = "the guest was here"


class Server:
    """Listens on all addresses of the host, and counts the guests that come; a client of another
    program may look for a server that had this port before."""

    def __init__(self):
        self.socket, self.came = socket.socket(), 0
        self.socket.bind(("0.0.0.0", 0))
        self.socket.listen()
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                client = self.socket.accept()[0]
            except OSError:
                return
            with client, contextlib.suppress(OSError):
                client.settimeout(10)
                self.came += client.recv(100) == WORD.encode()

    def close(self):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()


@pytest.fixture
def server():
    made = Server()
    yield made
    made.close()


CONNECT = ("import socket\nwith socket.create_connection((%%r, %%d), 30) as s: x = s.send(%r)"
           % WORD.encode())


def addresses():
    """Of this machine: its loopback, and the one that leads out, if there is one."""
    found = ["127.0.0.1"]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            s.connect(("192.0.2.1", 9))     # sends nothing
            found.append(s.getsockname()[0])
        except OSError:
            pass
    return found


@pytest.mark.needs("network")
def test_there_is_no_network(session, server):
    """Neither the host's services nor anybody else's names and addresses."""
    for address in addresses():
        error = session.execute(CONNECT % (address, server.port)).error
        assert error is not None and error.type in ("OSError", "ConnectionRefusedError",
                                                    "PermissionError",
                                                    "TimeoutError"), (address, error)
    assert session.execute("import socket\nsocket.getaddrinfo('example.org', 80)").error is not None
    assert server.came == 0


def test_a_sandbox_with_a_network_says_so(environment, session, server):
    """The twin: an environment that declares no wall there has none, and it is the code's own
    sockets that work."""
    assert session.execute(
        "import socket\na, b = socket.socketpair()\nx = a.send(b'x')\nb.recv(1)").echo == "b'x'"
    if "network" in environment.lacks:
        assert session.execute(CONNECT % ("127.0.0.1", server.port)).ok


# -- limits: (feature, setting, code that is over it, code that is within, what the error is)

THREADS = (
    "import threading\nstop, ts = threading.Event(), []\ntry:\n    for _ in range(%d):\n        t "
    "= threading.Thread(target=stop.wait)\n"
    "        t.start()\n        ts.append(t)\nfinally:\n    stop.set()\n    [t.join() for t in ts]")
LIMITS = {
    "memory": ({"memory": "256M"}, "x = bytearray(400 << 20)", "x = bytearray(64 << 20)\ndel x",
               "MemoryError"),
    "open files": ({"open_files": 40}, "fs = [open('/dev/null') for _ in range(100)]",
                   "fs = [open('/dev/null') for _ in range(20)]\n[f.close() for f in fs]",
                   "OSError"),
    "file size": ({"file_size": "1M"}, "with open('f', 'wb') as f: f.write(bytes(2 << 20))",
                  "with open('g', 'wb') as f: f.write(bytes(1 << 19))", "OSError"),
    "tmp size": ({"tmp_size": "4M"},
                 "import tempfile\nwith tempfile.TemporaryFile() as f: f.write(bytes(6 << 20))",
                 "import tempfile\nwith tempfile.TemporaryFile() as f: f.write(bytes(2 << 20))",
                 "OSError"),
    # Where the kernel counts all processes of a user, others of that user come and go meanwhile:
    # there is much room.
    "processes": ({"processes": 60}, THREADS % 110, THREADS % 4, "RuntimeError"),
}


@pytest.mark.parametrize("feature", [pytest.param(feature, marks=pytest.mark.needs(feature))
                                     for feature in LIMITS])
def test_what_is_over_a_limit_is_refused_to_the_code(opened, feature):
    """The code gets an error, what is within is given, and the session lives with its variables."""
    settings, over, within, kind = LIMITS[feature]
    interp = opened(**settings)
    interp.execute("kept = 41")
    assert interp.execute(within).ok
    result = interp.execute(over)
    assert (result.status, result.error.type, result.alive) == ("error", kind, True), result.json
    assert interp.execute("kept").echo == "41"
    assert interp.execute(within).ok


# What the code goes on doing after its cell has ended: so many MiB in processes of its own.
LATER = ("import os, threading, time\n"
         "def grow():\n"
         "    for _ in range(8):\n"
         "        if os.fork() == 0:\n"
         "            kept = b'x' * (%d << 20)\n"
         "            time.sleep(60)\n"
         "            os._exit(0)\n"
         "def wait_and_grow():\n"
         "    while not os.path.exists('grow'): time.sleep(0.01)\n"
         "    grow()\n"
         "threading.Thread(target=wait_and_grow).start()")


@pytest.mark.needs("memory together")
def test_what_takes_too_much_memory_between_cells_is_ended_too(opened):
    """A sandbox whose cell is over still has its limit as a whole; beside it one that takes a
    little lives."""
    greedy, modest = opened(memory="96M"), opened(memory="96M")
    for interp, size in ((modest, 1), (greedy, 40)):
        interp.execute("kept = 41")
        assert interp.execute(LATER % size).ok
    modest.files.write("grow", b"")

    def is_ended():
        with contextlib.suppress(droste.LostError):
            greedy.execute("kept")
        return not greedy.alive

    with contextlib.suppress(droste.LostError):     # it may be ended before it has answered
        greedy.files.write("grow", b"")
    assert adapters.wait_for(is_ended)
    assert modest.execute("kept").echo == "41"


def test_the_limits_in_force_are_in_the_result_and_no_others(environment, opened):
    """resources.limits: each with its value and what enforces it. What an environment does not
    enforce is not claimed."""
    names = {"memory": "memory", "processes": "processes", "open files": "open-files",
             "file size": "file-size", "tmp size": "tmp-size", "cpu time": "cpu-time"}
    some = {} if "processes" in environment.lacks else {"processes": 64}     # else it is refused
    interp = opened(**some, memory="512M", open_files=100, file_size="2M", tmp_size="8M",
                    cpu_time=30, execute_timeout=50, output_limit="5000")
    limits = interp.execute("1").resources["limits"]
    for feature, name in names.items():
        assert (name in limits) == (feature not in environment.lacks), (feature, limits)
    assert {name: limits[name]["value"] for name in ("memory", "open-files", "file-size",
                                                     "execute-timeout", "output-limit")} == {
        "memory": 512 << 20, "open-files": 100, "file-size": 2 << 20, "execute-timeout": 50,
        "output-limit": 5000}
    assert all(limit["by"] for limit in limits.values())


def test_unsupported_options_are_refused_by_name(environment):
    """DESIGN.md: a spec that asks for what an environment cannot give is refused by name; nothing
    is dropped silently."""
    asked = {"volume": {"volume_name": "v"}, "workspace": {"context_path": [__file__]},
             "cpus": {"cpus": 0.5}, "preload": {"preload": ["csv"]}, "read": {"read": ["/usr"]}}
    for feature, settings in asked.items():
        if feature in environment.lacks:
            with pytest.raises(droste.Error, match=list(settings)[0].replace("_", ".")):
                environment.open(**settings).shutdown()


def test_settings_that_are_none_are_refused_by_name(environment):
    """A name with a slip of the pen, a value that is none, another environment."""
    with pytest.raises(droste.ArgumentError, match="memry"):
        environment.open(memry="1G")
    with pytest.raises(droste.ArgumentError, match="memory"):
        environment.open(memory="much")
    with pytest.raises(droste.Error, match="no-such"):
        environment.open(env="no-such")


def test_rules_are_laid_over_any_environment(opened):
    """`rules`: imports and built-ins that are not allowed are refused, what is allowed works."""
    interp = opened(rules=True)
    assert interp.execute("import json, math\nmath.factorial(5)").echo == "120"
    assert interp.execute("import subprocess").error.type == "ImportError"
    assert interp.execute("eval('1')").error.type == "RuleError"
    assert interp.execute("1").json["rules"] is True
