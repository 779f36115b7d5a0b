"""The border between host and guest: what a guest sends is data, what it forges has no effect, and
neither the host's secrets nor another session is within its reach.

Each docstring says first what other runtimes for recursive language models (alexzhang13/rlm,
dspy.RLM, verifiers, fleet-rlm, agentic-codebase-navigator) do there, then what is right here.
"""
import base64
import contextlib
import glob
import hashlib
import json
import os
import pickle
import subprocess

import pytest

from harness import CANARY, answered, at, descendants, finish, line, needs_root, wait_until

LEVELS = ["full", "light", "landlock", "process"]


def listening(root):
    """The ports at which a process or one below it listens."""
    sockets = set()
    for pid in [root, *descendants(root)]:
        for fd in glob.glob("/proc/%d/fd/*" % pid):
            with contextlib.suppress(OSError):      # closed meanwhile
                sockets.add(os.readlink(fd))
    found = []
    for table in ("tcp", "tcp6", "udp", "udp6"):
        with open("/proc/%d/net/%s" % (root, table)) as lines:
            rows = [row.split() for row in list(lines)[1:]]
        found += [row[1] for row in rows if row[3] in ("0A", "07")
                  and "socket:[%s]" % row[9] in sockets]
    return found


@pytest.mark.parametrize("isolation", ["full", "process"])
def test_nothing_listens_for_calls(droste, serve, isolation):
    """There: calls go through a server on all of the host's addresses that anybody may ask. Here:
    while a guest waits for a model nothing of Droste listens anywhere; the model's server, which
    does, is the twin."""
    server = serve(script=[line("sub", hang=True)])
    assert len(listening(server.pid)) == 2
    process = droste.start("exec", "-c", "llm_query('x')", "--isolation", isolation, "--base-url",
                           server.url,
                           "--model", "scripted-sub")
    wait_until(lambda: server.stats()["requests"] == 1, what="the call")
    found = listening(process.pid)
    process.terminate()
    assert finish(process).status == 130 and found == []


def test_each_sandbox_has_limits(droste):
    """There: containers without limits of memory, processes, processor time or files. Here: limits
    are in force where nobody set any, and the result names who enforces them."""
    limits = droste.cell("x = 1")["resources"]["limits"]
    for name in ("memory", "processes", "open-files", "file-size", "tmp-size", "output-limit"):
        assert limits[name]["value"] > 0 and limits[name]["by"] in ("cgroup", "rlimit", "mount",
                                                                    "host"), name


@pytest.mark.parametrize("isolation", LEVELS)
def test_a_level_is_what_it_says(droste, isolation):
    """There: one page calls a container fully isolated, another not isolated. Here: the result
    names the level, and each that claims to be a wall hides a file of the user's; `process`, which
    does not, does not."""
    secret = os.path.join(droste.home, "secret")
    open(secret, "w").write("the host's")
    os.chmod(secret, 0o644)
    code = "try: r = open(%r).read()\nexcept OSError: r = None\nSUBMIT(r)" % secret
    result = droste.cell(code, "--isolation", isolation)
    assert result["isolation"] == isolation
    assert result["submit"] == {"output": "the host's" if isolation == "process" else None}


# The channel, spoken by hand as in src/wire/frame.h. The guest's own message, that it is ready,
# goes first.
FRAME = (
    "import os, struct\nlink = SUBMIT.__globals__['state'].link\nrunning = "
    "SUBMIT.__globals__['state'].session.running\n"
    "def say(kind, ident, head=b'', blob=b''):\n    held = b''.join(link.send_queue)\n    "
    "link.send_queue.clear()\n"
    "    os.write(3, held + struct.pack('<BBHIQQ', 1, kind, 0, len(head), ident, len(blob)) + head "
    "+ blob)\n")


class Bomb:
    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (self.mark,)


TRANSPORTS = {
    "on the channel": "os.write(3, bomb)", "as the head of a call": "say(19, 9, bomb)",
    "in a result": "say(20, running, b'{\"status\": \"ok\", \"submitted\": 0}',"
                   " struct.pack('<IQ', 1, len(bomb)) + bomb)",
    "on standard output": "os.write(1, bomb)", "submitted": "SUBMIT(bomb)",
    "as a prompt": "try: llm_query([bomb])\nexcept ValueError: pass",
}


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_host_unpickles_nothing(session, tmp_path, transport):
    """There: code runs in the host's process, and the host unpickles what it sends. Here: whatever
    carries the bytes, the host makes nothing of them, and the run goes on, in a new sandbox if
    need be; unpickled by this test, they act."""
    mark = str(tmp_path / "mark")
    bomb = pickle.dumps(Bomb(mark))
    result, _ = session(FRAME + "bomb = %r\n%s" % (bomb, TRANSPORTS[transport]),
                        *["SUBMIT('went on')"] * 2,
                        replies=[at(1, "x", repeat=True)])
    answered(result, base64.b64encode(bomb).decode() if transport == "submitted" else "went on")
    assert not os.path.exists(mark)
    pickle.loads(bomb)
    assert os.path.isdir(mark)


@pytest.mark.parametrize("isolation", LEVELS)
def test_code_runs_in_another_process(droste, isolation):
    """There: in the host's own. Here: at no isolation, and what it ends, crashes or exhausts is
    not the host's."""
    code = "import os\nprint(os.getpid(), os.readlink('/proc/self/exe'), flush=True)\nos.abort()"
    result = droste("exec", "--json", "--isolation", isolation, "-c", code)
    pid, program = result.json["stdout"].split()
    assert int(pid) != result.pid and "python" in program
    assert (result.status, result.json["killed"]) == (3, "signal 6 SIGABRT")


FORGED = {  # what a guest says before its own result, and what then becomes of its cell
    "forged": (
    "b = b'{\"output\": \"FORGED\"}'\nsay(20, running, b'{\"status\": \"ok\", \"submitted\": 0}',"
    " struct.pack('<IQ', 1, len(b)) + b)",
    ("submitted", {"output": "FORGED"})),
    "empty": ("say(20, running, b'{\"status\": \"ok\"}')", ("ok", None)),
    "broken": ("say(20, running, b'{\"status\": \"ok\", \"submitted\": 0}',"
               " struct.pack('<IQ', 1, 5) + b'{\"a\":')", ("error", None)),
    "of the next cell": ("say(20, running + 1, b'{\"status\": \"ok\"}')", ("killed", None)),
}


@pytest.mark.parametrize("how", FORGED)
def test_a_forged_result_shifts_nothing(droste, how):
    """There: a forged reply is taken, and each call after it gets the one before: off by one for
    ever. Here: it is at most that cell's own; the sandbox whose result is left over is replaced,
    and all later cells get theirs."""
    code, outcome = FORGED[how]
    cell = FRAME + code + "\nimport time\ntime.sleep(%s)\n"
    reply = droste.cell(cell % 600)
    assert (reply["status"], reply["submit"]) == outcome
    result = droste("repl", input="exec(%r)\n'two'\n'three'\n'four'\n" % (cell % 0.5))
    shown = result.out.replace("submitted: %s\n" % json.dumps(outcome[1]), "")
    assert shown in ("'two'\n'three'\n'four'\n", "'three'\n'four'\n")
    assert result.err.count("new session: the variables are lost") == 1


def test_a_fork_cannot_answer_for_its_parent(droste):
    """There: a forked child sends results too, and all later calls are off by one. Here: it has no
    channel; it ends where the cell ends, and what it prints is the cell's."""
    result = droste("repl", input="import os; pid = os.fork(); print('one', flush=True)\n"
                    "pid > 0 and os.waitpid(pid, 0)[1]\n'three'\n")
    assert result.out == "one\none\n0\n'three'\n" and result.status == 0


def test_what_escapes_the_rules_finds_no_key_and_no_network(droste, serve):
    """There: a list of modules is the only wall, and behind it are the host's files, network and
    forty variables with keys. Here: code that finds `os` through any of these has the sandbox's;
    the twin is what it may have."""
    server = serve()
    code = ("import pathlib, random, typing\n"
            "classes = {c.__name__: c for c in ().__class__.__base__.__subclasses__()}\n"
            "ways = [pathlib.os, random._os, typing.sys.modules['os'], "
            "print.__self__.__import__('os'),\n"
            "  llm_query.__globals__['sys'].modules['os'], "
            "classes['_wrap_close'].__init__.__globals__]\n"
            "os = ways[0]\nkeys = [n for n in os.environ if 'KEY' in n or 'DROSTE' in n]\n"
            "try: import socket; net = socket.create_connection(('127.0.0.1', %s), 2) and True\n"
            "except (ImportError, OSError): net = False\n"
            "try: home = os.listdir(%r)\nexcept OSError: home = None\n"
            "SUBMIT(n=len(ways), keys=keys, net=net, home=home, said=llm_query('x'))"
            % (server.url.split(":")[2].split("/")[0], droste.home))
    result = droste.cell(code, "--base-url", server.url, "--model", "ok", "--isolation", "full",
                         env={"OPENAI_API_KEY": CANARY})
    assert result["submit"] == {"n": 6, "keys": [], "net": False, "home": None,
                                "said": "The answer is ⟨42⟩."}


def named(name):
    """The processes that were started under this name."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/cmdline" % pid, "rb") as command:
                found += [pid] if command.read().startswith(name.encode()) else []
        except OSError:
            pass
    return found


@pytest.mark.parametrize("isolation", LEVELS)
def test_a_grandchild_in_a_session_of_its_own_ends_too(droste, isolation):
    """There: what called setsid outlives the clean-up. Here: it ends with the sandbox, whatever it
    is the child of."""
    name = "droste-orphan-%d-%s" % (os.getpid(), isolation)
    code = ("import os\nif os.fork() == 0:\n    os.setsid()\n"
            "    os.fork() or os.execv('/bin/sleep', [%r, '600'])\n    os._exit(0)\nos.wait()"
            % name)
    process = droste.start("repl", "--isolation", isolation, stdin=subprocess.PIPE)
    process.stdin.write(b"exec(%a)\n" % code)
    process.stdin.flush()
    wait_until(lambda: named(name), what="the grandchild")
    assert finish(process, input=b"'end'\n").out == "'end'\n"
    wait_until(lambda: not named(name), what="its end")


ODD = [   # a cell, and the type of its error
    ("raise SystemExit", "SystemExit"), ("raise KeyboardInterrupt", "KeyboardInterrupt"),
    ("raise GeneratorExit", "GeneratorExit"), ("class E(BaseException): pass\nraise E", "E"),
    ("import sys\nsys.stdout = sys.__stdout__\nsys.exit('bye')", "SystemExit"),
       ("def f(): f()\nf()", "RecursionError"),
    ("l = []; l.append(l); d = {}; d['d'] = d", None), ("x = 10 ** 10000", None),
    ("class R:\n    def __repr__(self): raise SystemExit\n    __str__ = __len__ = __repr__\n"
     "r = R()", None),
    ("class X(Exception):\n    def __str__(self): raise KeyboardInterrupt\nraise X", "X"),
    ("SUBMIT(object())", "TypeError"), ("SUBMIT(l)", "ValueError"),
       ("SUBMIT(float('nan'))", "ValueError"),
    ("SUBMIT({'a': [1, -float('inf')]})", "ValueError"), ("SUBMIT('\\ud800')", "ValueError"),
    ("import sys\nsys.stdout = sys.stderr = None", None), ("del __builtins__.print", None),
]


def test_nothing_odd_ends_a_worker(session):
    """There: SystemExit, an interrupt, a list that holds itself, or an object that cannot be
    submitted ends the worker. Here: each is at most the error of its cell, the variables stay, and
    what is submitted at last is strict JSON."""
    result, cells = session("kept = 41", *[code for code, _ in ODD], "SUBMIT([kept, {1}, (2,)])")
    answered(result, [41, [1], [2]])
    assert [(cell["error"] or {}).get("type")
            for cell in cells] == [None, *[kind for _, kind in ODD], None]


@pytest.mark.parametrize("isolation", ["full", "light", "landlock"])
def test_a_guest_is_nobody_with_no_rights(droste, isolation):
    """There: root with all of a container's capabilities. Here: no user of the host's, no
    capability in any set that counts, no new privileges, and system calls are filtered."""
    code = "SUBMIT(open('/proc/self/status').read())"
    status = droste.cell(code, "--isolation", isolation)["submit"]["output"]
    rows = dict(row.split(":\t") for row in status.splitlines())
    assert {int(rows[name], 16) for name in ("CapEff", "CapPrm", "CapInh", "CapAmb")} == {0}
    assert (rows["NoNewPrivs"], rows["Seccomp"]) == ("1", "2") and "0" not in rows["Uid"].split()


def test_a_last_line_is_no_result(droste):
    """There: the host reads a result from the last line, also that of a process that ended itself.
    Here: its end is its end."""
    forged = json.dumps({"status": "ok", "submit": {"output": 1}, "stdout": "", "alive": True})
    result = droste("exec", "--json", "-c", "import os\nprint(%r, flush=True)\nos._exit(0)"
                    % forged)
    cell = result.json
    assert (result.status, cell["status"], cell["killed"],
            cell["submit"]) == (3, "killed", "exit 0", None)
    assert cell["stdout"] == forged + "\n"


def test_a_key_is_not_in_the_guests_memory(droste, serve):
    """There: the whole secret is in the sandbox's environment. Here: with a key in use, from the
    environment and from the configuration, it is nowhere in the guest's memory, which is a copy of
    the zygote's. The guest knows its hash and looks at all that begins as it does; a key that it
    makes up itself, the twin, it finds."""
    droste.configure("anthropic-api-key = %s\n" % CANARY)
    server = serve(key=CANARY)
    made = CANARY[:10] + "0" * (len(CANARY) - 10)
    hashes = [hashlib.sha256(key.encode()).hexdigest() for key in (CANARY, made)]
    code = ("said = llm_query('x')\nimport hashlib, re\nmade = %r + '0' * %d\nseen = set()\n"
            "with open('/proc/self/maps') as maps, open('/proc/self/mem', 'rb', 0) as mem:\n"
            "    for row in maps:\n        a, b = (int(n, 16) for n in row.split()[0].split('-'))\n"
            "        try: mem.seek(a); data = mem.read(b - a)\n"
            "        except (OSError, ValueError, OverflowError): continue\n"
            "        for key in re.findall(made[:10].encode() + b'.{%d}', data, re.S):\n"
            "            seen.add(hashlib.sha256(key).hexdigest())\n"
            "SUBMIT(said=said, found=[h in seen for h in %r])"
            % (CANARY[:10], len(made) - 10, len(made) - 10, hashes))
    result = droste.cell(code, "--base-url", server.url, "--model", "ok",
                         env={"OPENAI_API_KEY": CANARY})
    assert result["submit"] == {"said": "The answer is ⟨42⟩.", "found": [False, True]}


def test_input_takes_nothing_of_the_channel(droste):
    """There: `input()` eats lines of the protocol. Here: it is at its end, and later cells get
    their results."""
    result = droste("repl",
                    input="input()\nimport sys, os; sys.stdin.read(), os.read(0, 100)\n'three'\n")
    assert "EOFError" in result.err and result.out == "('', b'')\n'three'\n"


def test_a_child_process_inherits_no_channel(droste):
    """There: any process in the sandbox can take a call and answer it. Here: a program that code
    starts has the standard descriptors alone, also where it asks to keep all; the guest itself,
    the twin, has the channel."""
    code = (
        "import os, subprocess\nlook = ['/bin/sh', '-c', 'for fd in /proc/$$/fd/*; do readlink "
        "$fd; done']\n"
        "theirs = subprocess.run(look, capture_output=True, text=True, close_fds=False).stdout\n"
        "SUBMIT(channel=os.readlink('/proc/self/fd/3'), theirs=theirs)")
    reply = droste.cell(code)["submit"]
    assert reply["channel"].startswith("socket:") and len(reply["theirs"].split("\n")) >= 3
    assert "socket:" not in reply["theirs"]


def outside(droste):
    """The files below the home of a user."""
    return sorted(os.path.join(place, name) for place, _, names in os.walk(droste.home)
                  for name in names)


@needs_root
def test_a_wall_needs_nothing_but_python(ordinary_user):
    """There: Deno and a download of Pyodide, or pip in each container, or no local sandbox at all.
    Here: an ordinary user has the full wall on a machine without a network, and nothing is
    installed or left in the home."""
    ordinary_user.prefix = ["unshare", "--net", *ordinary_user.prefix]
    before = outside(ordinary_user)
    result = ordinary_user.cell(
        "import os\nSUBMIT(sorted(os.listdir('/home')) if os.path.exists('/home') else [])")
    assert (result["status"], result["isolation"],
            result["submit"]) == ("submitted", "full", {"output": []})
    assert outside(ordinary_user) == before


def test_native_code_runs_behind_the_wall(droste, tmp_path):
    """There: only packages that were built for WebAssembly, no processes, no threads. Here: a
    library that was just compiled for this machine, a process and a thread."""
    place = tmp_path / "lib"
    place.mkdir()
    place.chmod(0o755)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", place / "own.so", "-x", "c", "-"], check=True,
                   input=b"int twice(int n) { return 2 * n; }")
    code = ("import ctypes, subprocess, threading\nr = []\n"
            "t = threading.Thread(target=lambda: r.append(ctypes.CDLL(%r).twice(21))); t.start(); "
            "t.join()\n"
            "SUBMIT(r + [subprocess.check_output(['/bin/echo', 'hi'], text=True)])"
            % str(place / "own.so"))
    result = droste.cell(code, "--isolation", "full", "--read", place)
    assert result["submit"] == {"output": [42, "hi\n"]}
