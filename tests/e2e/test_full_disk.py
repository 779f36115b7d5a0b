"""A disk that is full: the record says so, and what was written is there when there is room
again."""
import http.server
import json
import os
import subprocess
import textwrap
import threading

import pytest

from harness import finish, repl, wait_until, write_replay
from lives import Gate, begun

# Each task writes 80 KB into the record in its first turn, and asks a model in its second.
LOUD = repl("import os\nx = os.urandom(40000).hex()\nprint(x)")
ASKS = repl("SUBMIT(answer=[len(x), llm_query('n')])")
TASKS = 12

pytestmark = pytest.mark.skipif(os.getuid() != 0,
                                reason="only root can mount a file system of its own")


@pytest.fixture
def small(droste):
    """The record's directory is a disk of its own, of 1100 KiB; small(KiB) makes it another
    size."""
    os.makedirs(droste.data)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1100k", "tmpfs", droste.data],
                             capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip("no file system can be mounted here: %s" % mounted.stderr.strip())

    def resize(kib):
        subprocess.run(["mount", "-o", "remount,size=%dk" % kib, droste.data], check=True)
    yield resize
    subprocess.run(["umount", "--lazy", droste.data], check=True)


@pytest.fixture
def model(tmp_path):
    return write_replay(tmp_path / "m.jsonl",
                        {"content": LOUD, "contains": "Turn 1 of", "repeat": True},
                        {"content": ASKS, "repeat": True},
                        {"content": "2", "depth": 1, "repeat": True})


def results(droste):
    with open(os.path.join(droste.home, "r.jsonl")) as f:
        return [json.loads(line) for line in f]


def steps(droste):
    """What the record has of each run: calls and cells that ended."""
    return {(table, row["id"]): row for table in ("calls", "cells")
            for row in droste.record.rows("SELECT * FROM %s WHERE ended_ms IS NOT NULL" % table)}


def names_record(result, droste):
    """Where, what and what to do, on one line at the end."""
    last = result.err.splitlines()[-1]
    return ("record %s" % os.path.join(droste.data, "runs.db") in last
            and "the disk is full; free some space" in last)


def test_a_batch_stops_and_goes_on_when_there_is_room(droste, small, model):
    """No task gets a line for what could not be recorded: those under way are suspended, as the
    record has them, and the same command ends them all, and makes no call again whose answer was
    recorded."""
    with open(os.path.join(droste.home, "tasks.jsonl"), "w") as f:
        f.writelines(json.dumps({"id": i, "question": "q %d" % i}) + "\n" for i in range(TASKS))
    words = ["batch", "tasks.jsonl", "--out", "r.jsonl", "--json", "--model", model,
             "--concurrency", "3"]
    stopped = droste(*words)
    assert stopped.status == 1 and stopped.json["stopped"] == "error", stopped
    assert names_record(stopped, droste), stopped
    before = results(droste)
    assert 0 < len(before) < TASKS and {line["status"] for line in before} == {"answered"}
    assert stopped.json["left"] == TASKS - len(before) and stopped.json["interrupted"] >= 1
    assert droste.record.is_whole and {run["status"] for run in droste.record.runs} <= {
        "answered", "running", "interrupted"}
    ended = steps(droste)
    small(20 << 10)
    whole = droste(*words)
    assert whole.status == 0 and whole.json["earlier"] == len(before) and whole.json[
        "resumed"] >= 1, whole
    assert results(droste)[:len(before)] == before
    assert sorted(line["id"] for line in results(droste)) == list(range(TASKS))
    assert {tuple(line["answer"]) for line in results(droste)} == {(80000, "2")}
    now = steps(droste)
    assert {key: now[key] for key in ended} == ended
    assert len(droste.record.runs) == TASKS and {run["status"]
                                                 for run in droste.record.runs} == {"answered"}
    assert len(droste.record.calls) == 3 * TASKS == whole.json["calls"]


def fill(droste):
    """Leaves no byte."""
    fd = os.open(os.path.join(droste.data, "filler"), os.O_WRONLY | os.O_CREAT)
    try:
        while True:
            os.write(fd, b"x" * 4096)
    except OSError:
        os.close(fd)


CODE = repl("""%s
try: a = %s
except Exception: time.sleep(600)
SUBMIT(a)""")
MODEL = """#!/usr/bin/python3
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    text = %r
    if asked["messages"][-1]["content"] == "part":
%s
        text = "said"
    print(json.dumps({"id": asked["id"], "text": text}), flush=True)
"""
TOOL = "#!/usr/bin/python3\nimport sys\nsys.stdin.read()\n%s\nprint('\"said\"')\n"


@pytest.fixture
def said():
    """The address of a server that says so."""
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"said")

        def log_message(self, *args):
            pass
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever).start()
        yield "127.0.0.1:%d" % server.server_port
        server.shutdown()


@pytest.mark.parametrize("held, call", [
    ("code", "llm_query('part')"), ("model", "llm_query('part')"),
    ("code", "tool()"), ("tool", "tool()"),
    ("code", "__import__('urllib.request').request.urlopen(context).read().decode()")])
def test_a_call_that_cannot_be_recorded_ends_the_run_whatever_its_code_does(
        droste, small, said, tmp_path, held, call):
    """Its beginning, and its end. The code could go on without the answer, which a resumed run
    would have."""
    gate = Gate(tmp_path / "gate")
    gate.shut()
    at = {name: gate.code if name == held else "import time" for name in ("code", "model", "tool")}
    for name, text in (("model", MODEL % (CODE % (at["code"], call),
                                          textwrap.indent(at["model"], " " * 8))),
                       ("tool", TOOL % at["tool"])):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "address").write_text("http://%s/" % said)
    process = droste.start("run", "--question", "q", "--json", *gate.flags, "--allow-net", said,
                           "--context", tmp_path / "address",
                           "--model", "exec:%s" % (tmp_path / "model"),
                           "--tool", "tool=%s" % (tmp_path / "tool"))
    wait_until(lambda: begun(droste) and len(droste.record.cells) == 1
               and len(droste.record.calls) == (1 if held == "code" else 2), what="the cell")
    fill(droste)
    gate.open()
    result = finish(process)
    assert (result.status, result.json["error"]["type"]) == (1, "store"), result
    os.unlink(os.path.join(droste.data, "filler"))
    (run,) = droste("runs", "ls", "--json").json
    assert run["status"] == "interrupted" and droste.record.is_whole
    again = droste("runs", "resume", run["run"], "--json")
    assert again.status == 0 and again.json["answer"] == "said", again


def test_a_run_stays_interrupted_and_is_resumed(droste, small, serve):
    """Full in the middle of a run, in a child of it: it ends with the error, the record has all of
    it up to there, and once there is room it goes on from there, with nothing asked twice whose
    answer was recorded."""
    server = serve(turns={"": [repl("a = rlm_query('child', model='turns-child')"),
                               repl("SUBMIT(a)")],
                          "child": [repl("a = llm_query('a', model='digest')"),
                                    repl(
        "import time\nwhile not __import__('os').path.exists('%s'): time.sleep(0.05)\n"
        "print('x' * 200000)\nSUBMIT(a + llm_query('b', model='digest'))"
        % os.path.join(droste.home, "shown", "go"))]})
    env = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": server.url}
    shown = os.path.join(droste.home, "shown")
    os.mkdir(shown)
    process = droste.start("run", "--question", "q", "--json", "--model", "turns", "--read", shown,
                           env=env)
    wait_until(lambda: begun(droste) and len(droste.record.cells) == 3,
               what="the child's second cell")
    fill(droste)
    ended = steps(droste)
    open(os.path.join(shown, "go"), "w").close()
    result = finish(process)
    assert result.status == 1 and result.json["status"] == "error" and result.json["error"][
        "type"] == "store", result
    assert "the disk is full; free some space" in result.json["error"]["message"]
    os.unlink(os.path.join(droste.data, "filler"))
    small(20 << 10)
    runs = [run["run"] for run in droste("runs", "ls", "--json").json]
    assert [run["status"] for run in droste("runs", "ls", "--json").json] == ["interrupted"]
    assert {key: steps(droste)[key] for key in ended} == ended and droste.record.is_whole
    again = droste("runs", "resume", runs[0], "--json", env=env)
    assert again.status == 0 and len(again.json["answer"]) == 24, again
    assert {run["status"]
            for run in droste.record.runs} == {"answered"} and len(droste.record.runs) == 2
    stats = server.stats()["idempotency"]
    assert all(count == 1 for key, count in stats.items()
               if key in {row["key"] for (table, _), row in ended.items() if table == "calls"})


def test_a_record_that_cannot_be_made_fails_before_any_model_call(droste, small, serve):
    """Nothing is paid for what could not be recorded; with room the same command works."""
    server = serve(turns=[repl("SUBMIT(1)")])
    env = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": server.url}
    fill(droste)
    words = ["run", "--question", "q", "--json", "--model", "turns"]
    result = droste(*words, env=env)
    assert result.status == 1 and names_record(result,
                                               droste) and server.stats()["requests"] == 0, result
    os.unlink(os.path.join(droste.data, "filler"))
    assert droste(*words, env=env).json["answer"] == 1
