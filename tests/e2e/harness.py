"""What the end-to-end tests share: the built program, the record, processes, and replies of models.

Every test runs the real `droste` of $BUILD (default: build/) as a user would: as a process, with an
environment that has nothing of the machine's in it, and with its files in a temporary home.
"""
import json
import os
import signal
import sqlite3
import subprocess
import time

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, os.environ.get("BUILD", "build"))
PYTHON = "/usr/bin/python3"
#: An ordinary user without a name and without rights. Each process that runs tests has another one:
#: the kernel counts processes, watches and descriptors on their way for each user.
NOBODY = 61184 + os.getpid() % 4000
CANARY = "sk-canary-8e1f5a60c2d94b7a"
PATIENCE = 120          # seconds until a test gives up; nothing is expected to take long
PATIENT = ("--grace", "60")     # for deadlines that a guest survives: it needs time to take notice

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user here")


class Result:
    """How a command ended."""

    def __init__(self, process, stdout, stderr):
        self.pid, self.status, self.out, self.err = process.pid, process.returncode, stdout, stderr

    @property
    def json(self):
        assert self.out.count("\n") == 1, "expected one JSON object on one line, not %r" % self.out
        return json.loads(self.out)

    @property
    def complaint(self):
        """The one line with which a failure is explained."""
        lines = self.err.splitlines()
        assert len(lines) == 1 and lines[0].startswith(
            "droste"), "expected one line, not %r" % self.err
        return lines[0]

    def __repr__(self):
        return "status %s\nstdout: %.3000s\nstderr: %.3000s" % (self.status, self.out, self.err)


class Droste:
    """The program, in a home of its own."""

    def __init__(self, home, program=os.path.join(BUILD, "droste"), prefix=()):
        self.home, self.program, self.prefix = str(home), program, list(prefix)
        self.data = os.path.join(self.home, "data")
        self.env = {"PATH": "/usr/bin:/bin", "HOME": self.home, "LANG": "C.UTF-8",
                    "XDG_CONFIG_HOME": os.path.join(self.home, "config"),
                    "XDG_DATA_HOME": os.path.join(self.home, "share"), "DROSTE_HOME": self.data}

    def start(self, *args, env=None, **options):
        """Starts the program and leaves it running."""
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE,
                   "stderr": subprocess.PIPE,
                   "cwd": self.home, "start_new_session": True, **options}
        return subprocess.Popen([*self.prefix, self.program, *map(str, args)],
                                env={**self.env, **(env or {})}, **options)

    def __call__(self, *args, input=None, timeout=PATIENCE, **options):
        """Runs the program to its end."""
        if input is not None:
            options["stdin"] = subprocess.PIPE
            input = input.encode() if isinstance(input, str) else input
        process = self.start(*args, **options)
        return finish(process, timeout, input)

    def cell(self, code, *args, **options):
        """`exec --json` of a piece of code: the JSON object."""
        result = self("exec", "-c", code, "--json", *args, **options)
        return result.json

    def configure(self, text):
        directory = os.path.join(self.env["XDG_CONFIG_HOME"], "droste")
        os.makedirs(directory, exist_ok=True)
        with open(os.path.join(directory, "config.ini"), "w") as f:
            f.write(text)

    def lines(self, kind):
        """The lines of this kind in the export of all runs."""
        lines = [json.loads(line) for line in self("runs", "export", "--all").out.splitlines()]
        return [line for line in lines if line["type"] == kind]

    @property
    def record(self):
        return Record(os.path.join(self.data, "runs.db"))


def finish(process, timeout=PATIENCE, input=None):
    try:
        out, err = process.communicate(input, timeout)
    except subprocess.TimeoutExpired:
        kill_tree(process.pid)
        out, err = process.communicate()
        pytest.fail("droste did not end within %d s; stderr: %.2000r" % (timeout, err))
    return Result(process, (out or b"").decode(errors="replace"),
                  (err or b"").decode(errors="replace"))


class Record:
    """runs.db, read by a stranger."""

    def __init__(self, path):
        self.path = path

    def rows(self, query, *values):
        try:
            return self.rows_by("ro", query, values)
        except sqlite3.OperationalError as e:
            if "readonly" not in str(e):
                raise
            return self.rows_by("rw", query, values)  # its writer was killed and left it untidy

    def rows_by(self, mode, query, values):
        connection = sqlite3.connect("file:%s?mode=%s" % (self.path, mode), uri=True)
        connection.row_factory = sqlite3.Row
        try:
            return [dict(row) for row in connection.execute(query, values)]
        finally:
            connection.close()

    @property
    def runs(self):
        """None, too, where the tables are not there yet."""
        if not self.rows("SELECT 1 FROM sqlite_schema WHERE name = 'runs'"):
            return []
        return self.rows("SELECT * FROM runs ORDER BY seq")

    @property
    def run(self):
        (run,) = self.runs
        return run

    @property
    def cells(self):
        return self.rows("SELECT * FROM cells ORDER BY id")

    @property
    def calls(self):
        return self.rows("SELECT * FROM calls ORDER BY id")

    @property
    def is_whole(self):
        return self.rows("PRAGMA integrity_check")[0]["integrity_check"] == "ok" and \
            self.rows("PRAGMA foreign_key_check") == []

    def bytes(self):
        """All that is on disk of it, unpacked values included."""
        return b"".join(open(self.path + end, "rb").read() for end in ("", "-wal")
                        if os.path.exists(self.path + end))


# ---- processes ----

def process_stat(pid):
    """(state, parent, start time), or None where there is no such process."""
    try:
        with open("/proc/%d/stat" % pid) as f:
            fields = f.read().rpartition(")")[2].split()
        return fields[0], int(fields[1]), int(fields[19])
    except (OSError, IndexError):
        return None


def descendants(root):
    """{pid: start time} of everything below a process."""
    stats = {int(name): process_stat(int(name)) for name in os.listdir("/proc") if name.isdigit()}
    found, grew = {root}, True
    while grew:
        more = {pid for pid, s in stats.items() if s and s[1] in found} - found
        found |= more
        grew = bool(more)
    return {pid: stats[pid][2] for pid in found if pid != root and stats.get(pid)}


def still_alive(processes):
    """Those of `processes` that have not ended; a zombie has, only nobody has looked."""
    stats = {pid: process_stat(pid) for pid in processes}
    return [pid for pid, s in stats.items() if s and s[2] == processes[pid] and s[0] not in "ZX"]


def wait_until(condition, seconds=PATIENCE, what="it"):
    """Waits for something that must come; the limit is only there to end a test that fails."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    pytest.fail("%s did not come within %g s" % (what, seconds))


def kill_tree(pid):
    for victim in [*descendants(pid), pid]:
        try:
            os.kill(victim, signal.SIGKILL)
        except OSError:
            pass


# ---- models ----

def repl(*blocks):
    """A reply of a model: each piece of code in a fenced block."""
    return "\n".join("Next:\n```repl\n%s\n```" % block for block in blocks)


def system_prompts(droste):
    """The system prompts of all runs, the oldest run first."""
    lines = [json.loads(line) for line in droste("runs", "export", "--all").out.splitlines()]
    first = {line["run"]: line["request"][0]["content"] for line in reversed(lines)
             if line["type"] == "call" and line["kind"] == "root"}
    return [first[run["id"]] for run in droste.record.runs if run["id"] in first]


def at(depth, content, contains="", **more):
    """A line of a replay file, for calls of this depth."""
    return {"depth": depth, "content": content, **({"contains": contains} if contains else {}),
            **more}


def line(model, content="", contains="", **more):
    """An item of the server's script, for the model scripted-MODEL."""
    return {"model": model, "content": content, "contains": contains, **more}


def refused(result, status, *words):
    """It ended with this status, printed no answer, and complained on one line that has these
    words."""
    assert result.status == status and result.out == "", result
    for word in words:
        assert word in result.complaint


def when(text, reply):
    """A reply for a request whose last message contains this text."""
    return {"content": reply, "contains": text}


def answered(result, answer):
    """The run ended well and gave this; its JSON object."""
    assert result.status == 0, result
    assert result.json["status"] == "answered" and result.json["answer"] == answer, result
    assert result.json["error"] is None
    return result.json


def write_replay(path, *lines):
    """A replay file: texts are turns of the root model, dicts are lines as they stand."""
    with open(path, "w") as f:
        for line in lines:
            f.write(json.dumps({"content": line} if isinstance(line, str) else line) + "\n")
    return "replay:%s" % path
