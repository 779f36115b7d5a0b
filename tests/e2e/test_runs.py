"""droste runs: the record, listed and shown."""
import json
import os
import re
import signal
import sqlite3
import subprocess
import time

import pytest
from droste_cli import DROSTE, PATIENCE, Terminal, droste, environment, fill, recording

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
    assert newer.index("Unanswered?") == older.index("What is it, then? é") == head.index(
        "QUESTION")
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


def test_the_list_can_be_narrowed(home):
    """--status and --model leave out what does not fit, before --limit counts."""
    def listed(*words):
        return [run["question"][:5]
                for run in json.loads(droste(home, "runs", "ls", "--json", *words).stdout)]
    assert listed("--status", "answered") == ["What "] and listed("--status", "error") == ["Unans"]
    assert listed("--status", "running") == [] and listed("--model", "short") == ["Unans"]
    assert listed("--model", "replay", "--limit", "1", "--status", "answered") == ["What "]
    r = droste(home, "runs", "ls", "--model", "gpt")
    assert r.returncode == 0 and r.stdout == "" and "no such runs" in r.stderr
    r = droste(home, "runs", "ls", "--status", "done")
    assert r.returncode == 2
    assert "'done' is not a status; use running, interrupted, answered" in r.stderr


def test_a_run_is_shown_turn_by_turn(home):
    """Question, answer and use; then replies, code, output, errors and calls, in their order."""
    r = droste(home, "runs", "show", runs(home)[1]["run"])
    wanted = ["question  What is", "model     replay:model.jsonl", "context   c.txt, 1,234 bytes",
              "status    answered", "answer    the answer", "usage     2 turns, 3 calls",
              "turn 1", "  I look first.", "  [code]", "  Then I answer.",
              "  > print(len(context))", "  | 1234", "  ok in ", ", 1 call",
              "  call of the cell: ok", "    < Say this: ab ab", "…", "    sub reply", "turn 2",
              "  > 1/0", "  |!warned", "ZeroDivisionError", "  error in ", "  > SUBMIT(answer=",
              '  = {"answer":', "  submitted in "]
    at = 0
    for text in wanted:
        found = r.stdout.find(text, at)
        assert found >= 0, "%r does not come after %r in\n%s" % (text, r.stdout[:at][-80:],
                                                                 r.stdout)
        at = found + len(text)
    assert "Say this: " + "ab " * 90 not in r.stdout
    assert r.returncode == 0


def test_full_shortens_nothing(home):
    """--full gives prompts and replies whole."""
    full = droste(home, "runs", "show", runs(home)[1]["run"], "--full").stdout
    assert "Say this: " + "ab " * 100 in full
    assert "```repl" in full and QUESTION.splitlines()[1] in full


def test_the_time_is_shown_at_the_end(home):
    """A line for each call of the loop and each cell, on one scale."""
    shown = droste(home, "runs", "show", runs(home)[1]["run"]).stdout
    bars = shown.partition("\ntimeline  ")[2].splitlines()[1:]
    assert [bar.split("|")[0].split() for bar in bars] == [["turn", t, what] for t, what in (
        ("1", "model"), ("1", "code"), ("2", "model"), ("2", "code"), ("2", "code"))]
    assert len({len(bar.split("|")[1]) for bar in bars}) == 1 and all("#" in bar for bar in bars)


def test_children_are_shown(tmp_path):
    """As a tree above the turns, and under the cell that asked for them."""
    fill(tmp_path, "tree")
    shown = droste(tmp_path, "runs", "show", "root").stdout
    head, _, turns = shown.partition("\nturn 1\n")
    assert re.findall(r"^( +)(child-one|grandchild|child-two), (\w+)", head, re.M) == [
        ("  ", "child-one", "answered"), ("    ", "grandchild", "answered"),
        ("  ", "child-two", "error")]
    assert re.findall(r"^  run of the cell: (\S+),", turns, re.M) == ["child-one", "child-two"]


def test_a_run_is_shown_under_its_parent(tmp_path):
    """Also where children of two parents began in another order than these."""
    fill(tmp_path, "crossed")
    head = droste(tmp_path, "runs", "show", "root").stdout.partition("\nturn 1\n")[0]
    assert re.findall(r"^( +)((?:child|below)-\w+),", head, re.M) == [
        ("  ", "child-one"), ("    ", "below-one"), ("  ", "child-two"), ("    ", "below-two")]


def test_one_turn_is_no_turns(tmp_path):
    """A count of one has a noun of one."""
    fill(tmp_path, "crossed")
    assert "usage     1 turn, 1 call, " in droste(tmp_path, "runs", "show", "root").stdout


def test_a_run_of_many_calls_stays_short(tmp_path):
    """Of a cell's calls the first are shown and the others counted; --full has all of them."""
    fill(tmp_path, "many", 500)
    shown = droste(tmp_path, "runs", "show", "many").stdout
    assert shown.count("call of the cell: ok") == 10 and "… 490 more calls of the cell" in shown
    assert len(shown.splitlines()) < 80
    assert droste(tmp_path, "runs", "show", "many",
                  "--full").stdout.count("call of the cell: ok") == 500


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
                          ("../x", "cannot be the beginning of a run's id")):
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
    for words in ([], ["show"], ["list"], ["ls", "x"], ["show", "a", "b"],
                  ["ls", "--question", "q"]):
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
        assert "\x1b]0;" not in t.output and "\\x1b]0;question" in t.output
    with Terminal(tmp_path, "runs", "show", "2") as t:
        assert t.status() == 0
        assert "\x1b]0;" not in t.output
        for what in ("question", "reply", "output", "answer"):
            assert "\\x1b]0;" + what in t.output


# ---- removing ----

def test_runs_are_removed_with_their_children(tmp_path):
    """rm takes ids or their beginnings, removes whole trees, and says what that freed."""
    for kind in ("tree", "hostile"):
        fill(tmp_path, kind)
    r = droste(tmp_path, "runs", "rm", "roo")
    assert r.returncode == 0
    assert re.fullmatch(r"removed 4 runs and \d+ values of [\d.]+ MB; `droste runs gc` .*\n",
                        r.stdout)
    assert [run["run"] for run in runs(tmp_path)] == ["hostile"]
    r = droste(tmp_path, "runs", "rm", "nosuch")
    assert r.returncode == 2 and "no run begins with 'nosuch'" in r.stderr
    assert json.loads(droste(tmp_path, "runs", "rm", "hostile", "--json").stdout)["runs"] == 1
    assert runs(tmp_path) == [] and whole(tmp_path)


def whole(home):
    """The file has no damage, and nothing in it refers to what is not there."""
    db = sqlite3.connect("file:%s?mode=ro" % (home / "data" / "runs.db"), uri=True)
    return db.execute("PRAGMA integrity_check").fetchone() == ("ok",) and \
        db.execute("PRAGMA foreign_key_check").fetchall() == []


def test_the_collector_gives_space_back(tmp_path):
    """What rm left in the file goes; what runs still have stays."""
    fill(tmp_path, "large", 40)
    fill(tmp_path, "tree")
    with sqlite3.connect(tmp_path / "data" / "runs.db") as db:
        db.execute("INSERT INTO blobs VALUES ('waste', 3000000, 'raw', randomblob(3000000))")
    db.close()
    before = droste(tmp_path, "runs", "export", "root").stdout
    size = (tmp_path / "data" / "runs.db").stat().st_size
    r = droste(tmp_path, "runs", "gc")
    assert r.returncode == 0 and "removed 0 runs and 1 value of 3.0 MB; the file is " in r.stdout
    assert (tmp_path / "data" / "runs.db").stat().st_size < size - 2900000
    assert droste(tmp_path, "runs", "export", "root").stdout == before and whole(tmp_path)
    done = json.loads(droste(tmp_path, "runs", "gc", "--json").stdout)
    assert done == {"runs": 0, "interrupted": 0, "values": 0, "value_bytes": 0, "file_bytes": 0}


def test_the_collector_keeps_what_was_requested(tmp_path):
    """--older and --keep, alone and together: what neither keeps goes."""
    for kind in ("tree", "hostile", "large"):
        fill(tmp_path, kind)
    def kept(*words):
        assert droste(tmp_path, "runs", "gc", *words).returncode == 0
        return [run["run"] for run in runs(tmp_path)]
    assert kept("--older", "1h") == ["large", "hostile", "root"]
    with sqlite3.connect(tmp_path / "data" / "runs.db") as db:
        db.execute("UPDATE runs SET started_ms = started_ms - 7200000 WHERE id <> 'large'")
    db.close()
    assert kept("--older", "1d") == ["large", "hostile", "root"]
    assert kept("--older", "1h", "--keep", "2") == ["large", "hostile"]
    assert kept("--older", "1h") == ["large"]
    assert kept("--keep", "1") == ["large"] and kept("--keep", "0") == []
    for words in (["--older", "soon"], ["--keep", "-1"], ["--keep", "x"], ["--limit", "3"],
                  ["word"]):
        assert droste(tmp_path, "runs", "gc", *words).returncode == 2


def test_a_run_without_a_process_is_ended(tmp_path):
    """gc ends what was killed as interrupted; a run that goes on is neither ended nor removed."""
    model = recording(tmp_path, "```repl\nimport time; time.sleep(1000)\n```")
    process = subprocess.Popen([DROSTE, "run", "--question", "q", "--model", model], cwd=tmp_path,
                               env=environment(tmp_path), stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + PATIENCE
        while cells(tmp_path) < 1:
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.02)
        done = json.loads(droste(tmp_path, "runs", "gc", "--keep", "0", "--json").stdout)
        assert done["runs"] == done["interrupted"] == 0 and runs(tmp_path)[0]["status"] == "running"
        r = droste(tmp_path, "runs", "rm", "2")
        assert r.returncode == 2 and "still active in process %d" % process.pid in r.stderr
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert "marked 1 run as interrupted, whose process is gone" in droste(
        tmp_path, "runs", "gc").stdout
    (run,) = runs(tmp_path)
    assert run["status"] == "interrupted"
    assert run["ended"]
    assert run["iterations"] == 1
    assert run["usage"]["calls"] == 1
    assert droste(tmp_path, "runs", "rm", "2").returncode == 0 and runs(tmp_path) == []


# ---- records in a bad state ----

def commands(run):
    return [["ls"], ["show", run], ["export", run], ["rm", run], ["gc"]]


def test_a_locked_record_is_an_error(tmp_path):
    """Whoever keeps the file is waited for ten seconds, then named as the reason; and nothing is
    lost."""
    fill(tmp_path, "tree")
    db = sqlite3.connect(tmp_path / "data" / "runs.db", isolation_level=None)
    db.execute("PRAGMA locking_mode = EXCLUSIVE")
    db.execute("BEGIN EXCLUSIVE")
    waiting = [subprocess.Popen([DROSTE, "runs", *words], env=environment(tmp_path), cwd=tmp_path,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
               for words in commands("root")]
    for process in waiting:
        out, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 1 and out == "" and "another process has locked it" in errors
        assert len(errors.splitlines()) == 1
    db.execute("ROLLBACK")
    db.close()
    assert len(runs(tmp_path)) == 1 and whole(tmp_path)


def test_reading_goes_on_while_another_process_writes(tmp_path):
    """An open transaction of a writer is in no reader's way."""
    fill(tmp_path, "tree")
    db = sqlite3.connect(tmp_path / "data" / "runs.db", isolation_level=None)
    db.execute("BEGIN IMMEDIATE")
    db.execute("DELETE FROM calls")
    for words in commands("root")[:3]:
        r = droste(tmp_path, "runs", *words)
        assert r.returncode == 0 and r.stderr == ""
    db.execute("ROLLBACK")
    db.close()


def test_a_damaged_record_is_an_error(tmp_path):
    """Pages that were destroyed are named as damage by every command, in one line."""
    fill(tmp_path, "tree")
    path = tmp_path / "data" / "runs.db"
    data = path.read_bytes()
    path.write_bytes(data[:4096] + bytes(len(data) - 4096))
    for words in commands("root"):
        r = droste(tmp_path, "runs", *words)
        assert r.returncode == 1 and "is damaged; move it away" in r.stderr and len(
            r.stderr.splitlines()) == 1, words
    path.write_bytes(data)
    assert len(runs(tmp_path)) == 1


def test_a_record_of_a_newer_version_is_refused(tmp_path):
    """Its version is told, and it stays as it is."""
    fill(tmp_path, "tree")
    path = tmp_path / "data" / "runs.db"
    with sqlite3.connect(path) as db:
        (ours,) = db.execute("PRAGMA user_version").fetchone()
        db.execute("PRAGMA user_version = 99")
    db.close()
    before = path.read_bytes()
    for words in commands("root"):
        r = droste(tmp_path, "runs", *words)
        assert r.returncode == 1
        assert "newer Droste wrote it (version 99, supported up to %d)" % ours in r.stderr
    assert path.read_bytes() == before


def test_a_record_that_may_not_be_written_is_an_error(ordinary_user):
    """A file of somebody else: every command says so, and where one's own goes."""
    os.mkdir(ordinary_user.data, 0o755)
    os.chmod(ordinary_user.home, 0o755)
    fill(ordinary_user.home, "tree")
    os.chmod(os.path.join(ordinary_user.data, "runs.db"), 0o644)
    for words in commands("root"):
        r = ordinary_user("runs", *words)
        assert r.status == 1 and "set DROSTE_HOME to a directory that you can write" in r.complaint
