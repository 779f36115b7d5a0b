"""droste runs: the record, listed and shown."""
import json
import os
import re
import signal
import sqlite3
import subprocess
import time

import pytest
from droste_cli import DROSTE, PATIENCE, Terminal, droste, environment, recording

FIRST = """I look first.
```repl
print(len(context))
reply = llm_query("Say this: " + "ab " * 100)
```
Then I answer."""
SECOND = """```repl
import sys
print("warned", file=sys.stderr)
1/0
```
```repl
SUBMIT(answer="the answer")
```"""
QUESTION = "What is\n  it,   then? " + "é" * 300


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A home with two runs: an older one that is answered, a newer one that found no answer."""
    home = tmp_path_factory.mktemp("home")
    (home / "c.txt").write_text("x" * 1234)
    model = recording(home, FIRST, SECOND, {"content": "sub reply", "depth": 1})
    assert droste(home, "run", "--question", QUESTION, "--context", "c.txt", "--model",
                  model).stdout == "the answer\n"
    model = recording(home, "no code here", name="short.jsonl")
    assert droste(home, "run", "--question", "Unanswered?", "--model", model).returncode == 1
    return home


def runs(home):
    return json.loads(droste(home, "runs", "ls", "--json").stdout)


def test_the_list_has_the_newest_first(home):
    """One aligned line a run, the question on one line and shortened."""
    r = droste(home, "runs", "ls")
    head, newer, older = r.stdout.splitlines()
    assert head.split() == ["RUN", "WHEN", "STATUS", "MODEL", "TURNS", "CALLS", "TOKENS", "SECONDS",
                            "QUESTION"]
    assert newer.index("Unanswered?") == older.index("What is it, then? é") == head.index("QUESTION")
    assert "  error  " in newer and "  answered  " in older and "replay:model.jsonl" in older
    assert older.endswith("…") and r.stderr == "" and r.returncode == 0


def test_the_list_as_json_has_the_numbers(home):
    """--json gives an array of objects, whose fields are those of `droste run --json`."""
    newer, older = runs(home)
    assert older["status"] == "answered" and older["answer"] == "the answer"
    assert older["question"] == QUESTION and older["iterations"] == 2
    assert older["usage"]["calls"] == 3 and older["usage"]["input_tokens"] > 0
    assert older["context"]["bytes"] == 1234 and older["isolation"] in ("full", "process")
    assert newer["status"] == "error" and newer["error"] and newer["answer"] is None
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", older["started"])
    assert newer["started"] >= older["started"]


def test_the_list_can_be_limited(home):
    """--limit takes the newest."""
    assert len(droste(home, "runs", "ls", "--limit", "1").stdout.splitlines()) == 2
    for wrong in ("0", "-3", "x", "1x", ""):
        r = droste(home, "runs", "ls", "--limit", wrong)
        assert r.returncode == 2 and "--limit" in r.stderr


def test_a_run_is_shown_turn_by_turn(home):
    """Question, answer and use; then replies, code, output, errors and calls, in their order."""
    r = droste(home, "runs", "show", runs(home)[1]["run"])
    wanted = ["question  What is", "model     replay:model.jsonl", "context   c.txt, 1234 bytes",
              "status    answered", "answer    the answer", "usage     2 turns, 3 calls",
              "turn 1", "  I look first.", "  [code]", "  Then I answer.", "  > print(len(context))",
              "  | 1234", "  ok in ", ", 1 call", "  call of the cell: ok", "    < Say this: ab ab",
              "…", "    sub reply", "turn 2", "  > 1/0", "  |!warned", "ZeroDivisionError",
              "  error in ", "  > SUBMIT(answer=", '  = {"answer":', "  submitted in "]
    at = 0
    for text in wanted:
        found = r.stdout.find(text, at)
        assert found >= 0, "%r does not come after %r in\n%s" % (text, r.stdout[:at][-80:], r.stdout)
        at = found + len(text)
    assert "Say this: " + "ab " * 90 not in r.stdout
    assert r.returncode == 0


def test_full_shortens_nothing(home):
    """--full gives prompts and replies whole."""
    full = droste(home, "runs", "show", runs(home)[1]["run"], "--full").stdout
    assert "Say this: " + "ab " * 100 in full
    assert "```repl" in full and QUESTION.splitlines()[1] in full


def test_a_run_as_json_has_every_step(home):
    """--json gives the run and all its steps, with nothing shortened."""
    run = json.loads(droste(home, "runs", "show", runs(home)[1]["run"], "--json").stdout)
    first, second = run["turns"]
    assert [s["step"] for s in first["steps"]] == ["call", "cell", "call"]
    assert [s["step"] for s in second["steps"]] == ["call", "cell", "cell"]
    root, cell, sub = first["steps"]
    assert root["kind"] == "root" and root["reply"] == FIRST
    assert root["request"][0]["role"] == "system"
    assert sub["kind"] == "sub" and sub["cell"] == cell["id"] and sub["reply"] == "sub reply"
    assert cell["stdout"] == "1234\n" and cell["status"] == "ok"
    assert second["steps"][1]["error"]["type"] == "ZeroDivisionError"
    assert second["steps"][2]["submit"] == {"answer": "the answer"}


def test_a_prefix_names_a_run(home):
    """The beginning of an id is enough; one that fits none or more than one is explained."""
    newer = runs(home)[0]["run"]
    assert newer in droste(home, "runs", "show", newer[:-1]).stdout
    for prefix, words in (("nosuch", "no run begins with 'nosuch'"), ("2", "more than one run"),
                          ("../x", "is not the beginning of a run's id")):
        r = droste(home, "runs", "show", prefix)
        assert r.returncode == 2 and r.stdout == ""
        assert len(r.stderr.splitlines()) == 1 and words in r.stderr


def test_looking_makes_no_record(tmp_path):
    """Where nothing was ever run there is nothing to list, and nothing is made."""
    r = droste(tmp_path, "runs", "ls")
    assert r.returncode == 0 and r.stdout == "" and "no runs yet" in r.stderr
    assert droste(tmp_path, "runs", "ls", "--json").stdout == "[]\n"
    r = droste(tmp_path, "runs", "show", "x")
    assert r.returncode == 2 and "there is no record" in r.stderr
    assert os.listdir(tmp_path) == []


def test_the_record_can_be_elsewhere(home, tmp_path):
    """DROSTE_DATABASE and --database name the file, the flag over the variable."""
    record = home / "data" / "runs.db"
    assert len(json.loads(droste(tmp_path, "runs", "ls", "--json", DROSTE_DATABASE=str(record))
                          .stdout)) == 2
    assert len(json.loads(droste(tmp_path, "runs", "ls", "--json", "--database", record,
                                 DROSTE_DATABASE="/nonexistent/x.db").stdout)) == 2
    r = droste(tmp_path, "runs", "ls", "--database", "none")
    assert r.returncode == 2 and "turned off" in r.stderr


def test_a_file_that_is_no_record_is_an_error(tmp_path):
    """It is named, and left as it was."""
    (tmp_path / "x.db").write_text("not a database, but long enough to be looked at" * 30)
    before = (tmp_path / "x.db").read_bytes()
    r = droste(tmp_path, "runs", "ls", "--database", "x.db")
    assert r.returncode == 1 and "x.db" in r.stderr and len(r.stderr.splitlines()) == 1
    assert (tmp_path / "x.db").read_bytes() == before


def test_usage_is_explained(tmp_path):
    """What is missing or too much."""
    for words in ([], ["show"], ["list"], ["ls", "x"], ["show", "a", "b"], ["ls", "--question", "q"]):
        r = droste(tmp_path, "runs", *words)
        assert r.returncode == 2 and r.stdout == "" and "runs --help" in r.stderr


def test_a_killed_run_is_interrupted(tmp_path):
    """A run whose process was killed is listed and shown as such, with the steps that it made."""
    model = recording(tmp_path, "```repl\nprint('before')\n```\n```repl\nimport time\n"
                      "time.sleep(1000)\n```")
    process = subprocess.Popen([DROSTE, "run", "--question", "q", "--model", model], cwd=tmp_path,
                               env=environment(tmp_path), stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + PATIENCE
        while cells(tmp_path) < 2:
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.02)
        assert runs(tmp_path)[0]["status"] == "running"
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    run = runs(tmp_path)[0]
    assert run["status"] == "interrupted" and run["ended"] is None
    shown = droste(tmp_path, "runs", "show", run["run"]).stdout
    assert "status    interrupted" in shown and "  | before" in shown
    steps, _, timeline = shown.partition("\ntimeline ")
    assert steps.rstrip().endswith("interrupted") and timeline.rstrip().endswith("| not ended")


def cells(home):
    """How many cells have begun."""
    try:
        db = sqlite3.connect("file:%s?mode=ro" % (home / "data" / "runs.db"), uri=True)
        with db:
            return db.execute("SELECT count(*) FROM cells").fetchone()[0]
    except sqlite3.Error:
        return 0


def test_what_is_shown_cannot_act_on_the_terminal(tmp_path):
    """Control characters of the question, the model and the guest are shown, not obeyed."""
    model = recording(tmp_path, "\x1b]0;reply\x07\n```repl\nprint('\\x1b]0;output\\x07')\n"
                      "SUBMIT(answer='\\x1b]0;answer\\x07')\n```")
    droste(tmp_path, "run", "--question", "\x1b]0;question\x07", "--model", model)
    with Terminal(tmp_path, "runs", "ls") as t:
        assert t.status() == 0
        assert "\x1b]0;" not in t.said and "\\x1b]0;question" in t.said
    with Terminal(tmp_path, "runs", "show", "2") as t:
        assert t.status() == 0
        assert "\x1b]0;" not in t.said
        for what in ("question", "reply", "output", "answer"):
            assert "\\x1b]0;" + what in t.said
