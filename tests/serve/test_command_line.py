"""Commands with --server: what they print of this machine, they print of a server."""
import json
import os
import signal
import subprocess
import sys

import pytest

from server_process import DROSTE, ROOT, Server, WAIT, until
from harness import repl
from test_keys import create as create_key
from test_runs import HANGING, Models


class Commands:
    """Runs commands of a user with a directory of its own."""

    def __init__(self, home, server, **env):
        self.home = home
        self.env = {"PATH": "/usr/bin:/bin", "HOME": str(home), "LANG": "C.UTF-8",
                    "DROSTE_HOME": str(home / "user"), "DROSTE_SERVER": server.address, **env}

    def __call__(self, *words, status=0, text=None, env=None):
        done = subprocess.run([DROSTE, *words], input=text, env={**self.env, **(env or {})},
                              cwd=str(self.home), text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=WAIT)
        assert done.returncode == status, (done.stdout, done.stderr)
        return done

    def start(self, *words):
        return subprocess.Popen([DROSTE, *words], env=self.env, cwd=str(self.home), text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def program(self, code):
        """One that uses the package, as a client."""
        env = {**self.env, "PYTHONPATH": os.path.join(ROOT, "python")}
        return subprocess.Popen([sys.executable, "-c", "import droste\n" + code], env=env,
                                cwd=str(self.home), text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE)


@pytest.fixture
def droste(server, tmp_path):
    yield Commands(tmp_path, server)
    assert server.ask("GET", "/v1/sandboxes").json["sandboxes"] == []


@pytest.mark.parametrize("code, status, out, err", [
    ("print('said'); SUBMIT(answer=42)", 0, 'said\n{"answer":42}\n', ""),
    ("import sys; print('x', file=sys.stderr)", 0, "", "x\n"),
    ("1/0", 1, "", "ZeroDivisionError: division by zero\n"),
    ("import sys; sys.exit(3)", 3, "", ""), ("import sys; sys.exit()", 0, "", ""),
    ("import sys; sys.exit('why')", 1, "", "why\n"),
    ("print('\\x1b[31m')", 0, "\x1b[31m\n", "")])
def test_exec_is_that_of_this_machine(droste, code, status, out, err):
    """Output, what was submitted, and the exit status."""
    there = droste("exec", "-c", code, status=status)
    here = droste("exec", "-c", code, status=status, env={"DROSTE_SERVER": ""})
    assert there.stdout == here.stdout.replace('"answer": ', '"answer":') == out
    assert there.stderr.endswith(err) and here.stderr.endswith(err)


def test_exec_takes_files_contexts_and_arguments(droste, tmp_path):
    """A script's arguments are sys.argv; files go in, and come out although the code raised."""
    (tmp_path / "f.py").write_text("import sys\nopen('out.txt', 'w').write(context + other + "
                                   "open('in.txt').read())\nprint(sys.argv[1:])\n1/0\n")
    (tmp_path / "c.txt").write_text("c")
    (tmp_path / "d.txt").write_text("d")
    done = droste("exec", "f.py", "a", "ü 'b'", "--context", "c.txt", "--context", "other=d.txt",
                  "--put", "d.txt:in.txt", "--get", "out.txt:got.txt", status=1)
    assert done.stdout == "['a', \"ü 'b'\"]\n" and (tmp_path / "got.txt").read_text() == "cdd"
    assert droste("exec", "-c", "print(context)", "--context", "-", text="piped").stdout == \
        "piped\n"
    found = json.loads(droste("exec", "-c", "SUBMIT(x=1)", "--json").stdout)
    assert (found["status"], found["submit"]) == ("submitted", {"x": 1})


def test_settings_are_those_of_the_flags(droste):
    """What the server does not take from a client is refused by its name."""
    done = droste("exec", "-c", "while True: pass", "--execute-timeout", "0.3", status=3)
    assert "--execute-timeout" in done.stderr
    for words, why in ((("--network", "yes"), "network"), (("--save-results", "d"), "--json"),
                       (("--volume-name", "none"), "there is no volume")):
        assert why in droste("exec", "-c", "1", *words, status=2 if "none" in words else 4).stderr


@pytest.mark.parametrize("address, status, why", [
    ("http://127.0.0.1:1", 4, "cannot be reached"), ("ftp://x", 2, "unix:PATH"),
    ("unix:/none", 4, "cannot be reached")])
def test_a_server_that_is_none(droste, address, status, why):
    assert why in droste("exec", "-c", "1", "--server", address, status=status).stderr


def test_ctrl_c_ends_a_cell_and_its_sandbox(server, droste):
    """The exit status is that of an interrupt."""
    running = droste.start("exec", "-c", "print('begun', flush=True)\nwhile True: pass")
    assert running.stdout.readline() == "begun\n"
    running.send_signal(signal.SIGINT)
    assert running.wait(WAIT) == 130
    running.communicate()


def test_volumes_of_a_server(droste, tmp_path):
    (tmp_path / "in.txt").write_text("inside\n")
    droste("volume", "create", "mine", "--volume-size", "2M")
    droste("volume", "put", "mine", "in.txt", "d/")
    assert droste("volume", "ls").stdout == "mine\n"
    assert droste("volume", "tree", "mine").stdout == "d/\n  in.txt\n"
    listed = json.loads(droste("volume", "ls", "mine", "d", "--json").stdout)
    assert [(e["path"], e["size"]) for e in listed["entries"]] == [("in.txt", 7)]
    assert droste("volume", "get", "mine", "d/in.txt", "-").stdout == "inside\n"
    droste("volume", "get", "mine", "d/in.txt", "copy.txt")
    assert (tmp_path / "copy.txt").read_text() == "inside\n"
    assert "of 2097152 bytes" in droste("volume", "du", "mine").stdout
    code = "print(open('/data/d/in.txt').read(), end='')"
    assert droste("exec", "--volume-name", "mine", "-c", code).stdout == "inside\n"
    assert "exists" in droste("volume", "create", "mine", status=2).stderr
    assert "kept 7 bytes" in droste("volume", "snapshot", "mine", "s").stdout
    assert "snapshot" in droste("volume", "snapshot", "mine", "s", status=2).stderr
    droste("volume", "rm", "mine", "d/in.txt")
    assert json.loads(droste("volume", "restore", "mine", "s", "--json").stdout) == {"bytes": 7}
    assert droste("volume", "get", "mine", "d/in.txt", "-").stdout == "inside\n"
    assert droste("volume", "ls", "mine", "--snapshots").stdout == "s\n"
    droste("volume", "rm", "mine", "--snapshot", "s")
    assert droste("volume", "ls", "mine", "--snapshots").stdout == ""
    assert "of 3145728 bytes" in droste("volume", "limit", "mine", "--volume-size", "3M").stdout
    assert "at most" in droste("volume", "limit", "mine", "--volume-size", "900T", status=2).stderr
    droste("volume", "rm", "mine", "d")
    droste("volume", "rm", "mine")
    assert droste("volume", "ls", "--json").stdout.strip() == "[]"
    assert "there is no volume" in droste("volume", "ls", "mine", status=2).stderr


@pytest.fixture
def models(tmp_path, serve):
    made = Models(tmp_path / "server", serve)
    (tmp_path / "server").mkdir()
    yield made
    for server in made.running:
        server.stop()


def test_a_run_of_a_server(models, tmp_path):
    """It is asked, listed, shown, exported and removed; a context of 10 MB goes from a file."""
    server = models([repl("print('seen')\nSUBMIT('%d of it' % len(context))")] * 2)
    droste = Commands(tmp_path, server)
    (tmp_path / "big.txt").write_text("0123456789" * 1_000_000)
    assert droste("run", "How long?", "--context", "big.txt").stdout == "10000000 of it\n"
    found = json.loads(droste("run", "How long?", "--context", "big.txt", "--max-iterations", "3",
                              "--json").stdout)
    assert (found["status"], found["answer"]) == ("answered", "10000000 of it")
    assert server.ask("GET", "/v1/contexts").json["contexts"] == []
    run = found["run"]
    listed = droste("runs", "ls").stdout
    assert run in listed and "answered" in listed and listed.startswith("RUN")
    assert len(json.loads(droste("runs", "ls", "--limit", "1", "--json").stdout)) == 1
    shown = droste("runs", "show", run[:31]).stdout
    for line in ("> print('seen')", "| seen", "= ", "answer: 10000000 of it"):
        assert line in shown
    lines = droste("runs", "export", run).stdout.splitlines()
    assert {json.loads(line)["type"] for line in lines} == {"run", "turn", "call", "cell", "end"}
    droste("runs", "export", run, "--format", "html", "--out", "page.html")
    assert (tmp_path / "page.html").read_text().lower().startswith("<!doctype html>")
    assert "interrupted" in droste("runs", "resume", run, status=2).stderr
    droste("runs", "rm", run)
    assert "there is no run" in droste("runs", "show", run, status=2).stderr
    for words in (("gc",), ("ls", "--batch", "x"), ("export", "--all")):
        assert "where the server is" in droste("runs", *words, status=4).stderr


def test_a_run_is_cancelled_by_ctrl_c_or_by_name(models, tmp_path):
    server = models(HANGING)
    droste = Commands(tmp_path, server)
    for cancel in ("signal", "name"):
        running = droste.start("run", "q")
        ids = until(lambda: [r["run"] for r in server.ask("GET", "/v1/runs").json["runs"]
                             if r["status"] == "running"])
        if cancel == "signal":
            running.send_signal(signal.SIGINT)
        else:
            droste("runs", "cancel", ids[0])
        assert running.wait(WAIT) == 130
        running.communicate()
        assert server.ask("GET", "/v1/runs/" + ids[0]).json["status"] == "cancelled"


PROGRAMS = {
    "exec": "with droste.Interpreter() as interp: interp.execute('while True: pass')",
    "run": "droste.RLM().run('q', 'x' * 2000000)",
}


@pytest.mark.parametrize("is_package", [False, True], ids=["command", "package"])
def test_an_interrupt_before_the_answer_ends_what_was_created(models, tmp_path, is_package):
    """The answer is on its way for 0.1 s, and names what is to be ended."""
    server = models(HANGING)
    program = os.path.join(ROOT, "tests", "fakes", "delay_proxy.py")
    proxy = subprocess.Popen([sys.executable, program, "--ms", "200",
                              "--to", "127.0.0.1:%d" % server.port],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    droste = Commands(tmp_path, server, DROSTE_SERVER="http://" + proxy.stdout.readline().strip())
    for kind, words in (("sandboxes", ("exec", "-c", "while True: pass")), ("runs", ("run", "q"))):
        running = droste.program(PROGRAMS[words[0]]) if is_package else droste.start(*words)
        until(lambda name=kind: server.ask("GET", "/v1/" + name).json[name])
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=WAIT)
        assert running.returncode == (-signal.SIGINT if is_package else 130), err
        assert server.ask("GET", "/v1/contexts").json["contexts"] == []
        assert server.ask("GET", "/v1/sandboxes").json["sandboxes"] == []
    assert [run["status"] for run in server.ask("GET", "/v1/runs").json["runs"]] == ["cancelled"]
    proxy.communicate()


def test_a_key_is_that_of_the_environment(tmp_path):
    """It is in no message; another one's runs and volumes are not there."""
    keys = [create_key(tmp_path, name) for name in ("one", "other")]
    server = Server(tmp_path)
    try:
        one, other = (Commands(tmp_path, server, DROSTE_API_KEY=key) for key in keys)
        assert one("exec", "-c", "print(1)").stdout == "1\n"
        one("volume", "create", "mine")
        assert other("volume", "ls").stdout.startswith("There are no volumes")
        wrong = one("volume", "ls", env={"DROSTE_API_KEY": keys[0][:-1] + "x"}, status=2).stderr
        assert "DROSTE_API_KEY" in wrong and keys[0][:-1] not in wrong
    finally:
        server.stop()


def test_other_verbs_say_that_they_are_for_servers(tmp_path):
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run([DROSTE, "runs", "follow", "x"], env=env, text=True,
                          stderr=subprocess.PIPE, timeout=WAIT)
    assert done.returncode == 4 and "--server" in done.stderr
    assert not os.path.exists(tmp_path / "x")


def test_a_batch_of_a_server(models, tmp_path):
    """Its tasks name files of this machine; the same command again asks nothing twice."""
    server = models([repl("SUBMIT(answer=len(context))")])
    droste = Commands(tmp_path, server)
    (tmp_path / "c.txt").write_text("x" * 9)
    (tmp_path / "tasks.jsonl").write_text(
        "\n".join(json.dumps({"id": i, "question": "?", "context": "c.txt", "expected": 9})
                  for i in range(3)))
    words = "batch", "tasks.jsonl", "--out", "r.jsonl", "--grader", "exact", "--json"
    end = json.loads(droste(*words).stdout)
    assert (end["tasks"], end["passed"], end["left"], end["stopped"]) == (3, 3, 0, None)
    lines = [json.loads(line) for line in (tmp_path / "r.jsonl").read_text().splitlines()]
    assert sorted(line["id"] for line in lines) == [0, 1, 2]
    assert server.ask("GET", "/v1/contexts").json["contexts"] == []
    whole = (tmp_path / "r.jsonl").read_text()
    (tmp_path / "r.jsonl").write_text(whole[:-20])   # a killed command
    assert json.loads(droste(*words).stdout)["passed"] == 3
    assert (tmp_path / "r.jsonl").read_text() == whole
    assert server.model.stats()["requests"] == 3
    (tmp_path / "other.jsonl").write_text(whole)
    done = droste("batch", "tasks.jsonl", "--out", "other.jsonl", status=2)
    assert "another batch" in done.stderr


def test_a_batch_of_a_server_that_is_refused(models, tmp_path):
    """By the line of the tasks, and by the name of what a server has not."""
    server = models([repl("SUBMIT(1)")])
    droste = Commands(tmp_path, server)
    (tmp_path / "tasks.jsonl").write_text('{"question": "?"}\n{"question": 1}\n')
    words = "batch", "tasks.jsonl", "--out", "r.jsonl"
    assert "line 2" in droste(*words, status=2).stderr
    (tmp_path / "tasks.jsonl").write_text('{"question": "?", "context": "none.txt"}\n')
    assert "none.txt" in droste(*words, status=2).stderr
    (tmp_path / "tasks.jsonl").write_text('{"question": "?"}\n')
    assert "contexts" in droste(*words, "--context", "tasks.jsonl", status=4).stderr
    assert "program" in droste(*words, "--grader", "program:/bin/true", status=2).stderr
    assert server.ask("GET", "/v1/contexts").json["contexts"] == []
    assert server.model.stats()["requests"] == 0
    assert "1 answered" in droste(*words).stdout


def test_ctrl_c_suspends_a_batch_of_a_server(models, tmp_path):
    server = models(HANGING)
    droste = Commands(tmp_path, server)
    (tmp_path / "tasks.jsonl").write_text('{"question": "?"}\n')
    words = "batch", "tasks.jsonl", "--out", "r.jsonl", "--json"
    process = droste.start(*words)
    until(lambda: server.model.stats()["requests"] == 2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=WAIT)
    assert process.returncode == 130, (out, err)
    assert json.loads(out)["stopped"] == "interrupt"
    assert len(server.ask("GET", "/v1/contexts").json["contexts"]) == 1     # its tasks
    assert json.loads(droste(*words).stdout)["statuses"]["answered"] == 1
    assert server.ask("GET", "/v1/contexts").json["contexts"] == []


def test_cp_of_a_server(droste, tmp_path):
    (tmp_path / "f").write_text("x")
    droste("volume", "create", "copied")
    droste("cp", "f", "copied:d/g")
    droste("cp", "copied:d/g", "h")
    assert (tmp_path / "h").read_text() == "x"
    assert "runs" not in droste("cp", "run/1:f", "h", status=4).stderr
    assert droste("cp", "copied:d/g", "i", "--server", "", status=2).stderr
    droste("volume", "rm", "copied")


@pytest.mark.parametrize("words", [("repl",), ("chat", "--model", "exec:cat"),
                                   ("template", "ls")])
def test_nothing_is_silently_of_this_machine(droste, words):
    """A command that uses no server says so, unless it is told to use this machine."""
    assert "DROSTE_SERVER" in droste(*words, status=4, text="").stderr
    assert words[0] in droste(*words, "--server", "http://127.0.0.1:1", status=4, text="",
                              env={"DROSTE_SERVER": ""}).stderr
    droste(*words, "--server", "", text="")
