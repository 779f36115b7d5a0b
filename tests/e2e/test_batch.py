"""droste batch: tasks from a file, results in another; stopped, killed and gone on with."""
import json
import os
import pty
import re
import resource
import signal
import stat
import subprocess

import pytest
from batches import LENGTH, results, some, tasks
from harness import finish, repl, wait_until, write_replay
from lives import Gate

HELD = 600000       # ms: until the test ends the batch


# Two turns, and a call in each: four calls a run. The second turn and its call take so long.
def slow_model(path, ms=0, **call):
    return write_replay(path,
                        {"content": repl("a = llm_query('one ' + context)"), "contains": "How long",
                         "repeat": True},
                        {"content": repl("SUBMIT(answer=a + llm_query('two ' + context))"),
                         "repeat": True,
                         "delay_ms": ms},
                        {"content": "1", "depth": 1, "contains": "one", "repeat": True},
                        *([{"content": "2", "depth": 1, "repeat": True, **call}] if call else []),
                        {"content": "2", "depth": 1, "repeat": True, "delay_ms": ms})


@pytest.fixture
def gate(tmp_path):
    return Gate(tmp_path / "gate")


def turns(droste, number):
    """How many runs have got so far."""
    if not os.path.exists(droste.record.path) or not droste.record.runs:
        return 0
    return len(droste.record.rows("SELECT 1 FROM turns WHERE turn = ?", number))


def calls_by_run(droste):
    return [row["n"] for row in droste.record.rows("SELECT count(*) AS n FROM calls GROUP BY run")]


# ---- tasks and results ----

def test_every_task_has_a_result_with_its_run_and_usage(droste, batch):
    """One line a task, with the id that it came with, and the run that the record has."""
    tasks(droste, *some(5))
    r = batch("--grader", "exact", "--concurrency", "2")
    assert (r.status, r.json["tasks"], r.json["statuses"]["answered"]) == (0, 5, 5), r
    lines = {line["id"]: line for line in results(droste)}
    assert sorted(lines) == ["t0", "t1", "t2", "t3", "t4"]
    for i in range(5):
        line = lines["t%d" % i]
        assert (line["status"], line["answer"], line["error"]) == ("answered", i, None)
        assert line["grade"] == {"grader": "exact", "passed": True, "score": 1}
        assert line["usage"]["calls"] == 1 and line["usage"]["input_tokens"] > 0
        assert line["seconds"] > 0
    runs = {run["id"]: run for run in droste.record.runs}
    for line in lines.values():
        assert runs[line["run"]]["task"] == line["id"]
        assert runs[line["run"]]["batch"] == os.path.realpath(
            os.path.join(droste.home, "results.jsonl"))
    assert r.json["calls"] == 5 and r.json["input_tokens"] == sum(
        line["usage"]["input_tokens"] for line in lines.values())


def test_results_come_in_the_order_of_completion(droste, batch, replay, gate):
    """A task that takes its time does not keep the next one's result back."""
    tasks(droste, {"id": "slow", "question": "wait"}, {"id": "fast", "question": "go"})
    gate.shut()
    model = replay({"content": repl("SUBMIT(answer=1)"), "contains": "go"},
                   {"content": repl(gate.code + "SUBMIT(answer=1)"), "contains": "wait"})
    process = batch(*gate.flags, model=model, start=True)
    wait_until(lambda: os.path.exists(os.path.join(droste.home, "results.jsonl"))
               and results(droste), what="a result")
    gate.open()
    assert finish(process).status == 0
    assert [line["id"] for line in results(droste)] == ["fast", "slow"]


def test_ids_are_returned_unchanged(droste, batch):
    """A number stays a number, a text a text; a task without an id has its line's number."""
    tasks(droste, {"id": 7, "question": "?"}, {"id": "8", "question": "?"}, "", {"question": "?"},
          {"id": 'q"\u00e9', "question": "?"})
    assert batch().status == 0
    assert sorted(map(repr, (line["id"] for line in results(droste)))) == sorted(
        map(repr, [7, "8", 4, 'q"\u00e9']))


def test_contexts_of_all_kinds(droste, batch, replay):
    """A path as seen from the file of tasks, a text, and JSON."""
    os.mkdir(os.path.join(droste.home, "data"))
    with open(os.path.join(droste.home, "data", "c.txt"), "w") as f:
        f.write("from a file")
    tasks(droste, {"id": "path", "question": "?", "context": "c.txt"},
          {"id": "text", "question": "?", "context_text": "given"},
          {"id": "json", "question": "?", "context_json": {"a": [1, 2]}},
          {"id": "none", "question": "?"}, name="data/tasks.jsonl")
    model = replay({"content": repl("SUBMIT(answer=[type(context).__name__, context])"),
                    "repeat": True})
    r = droste("batch", "data/tasks.jsonl", "--out", "results.jsonl", "--model", model)
    assert r.status == 0, r
    assert {line["id"]: line["answer"] for line in results(droste)} == {
        "path": ["str", "from a file"], "text": ["str", "given"], "json": ["dict", {"a": [1, 2]}],
        "none": ["str", ""]}


def test_a_task_has_contexts_by_name_and_those_of_the_command(droste, batch, replay):
    """Its own first, then the named ones as seen from the file of tasks, then the command's; each
    task its own."""
    os.mkdir(os.path.join(droste.home, "data"))
    for name in ("own.txt", "old.txt", "shared.txt"):
        with open(os.path.join(droste.home, "data", name), "w") as f:
            f.write(name[:-4])
    tasks(droste, {"id": "a", "question": "?", "context": "own.txt",
                   "contexts": {"old": "old.txt"}},
          {"id": "b", "question": "?", "context_text": "text"}, {"id": "c", "question": "?"},
          name="data/tasks.jsonl")
    model = replay({"content": repl(
        "SUBMIT([globals().get(n) for n in ('context', 'context_1', 'context_2', 'old', "
        "'shared')])"), "repeat": True})
    words = ["batch", "data/tasks.jsonl", "--out", "results.jsonl", "--model", model, "--context"]
    r = droste(*words, "shared=data/shared.txt")
    assert r.status == 0, r
    assert {line["id"]: line["answer"] for line in results(droste)} == {
        "a": ["own", "old", "shared", "old", "shared"],
        "b": ["text", "shared", None, None, "shared"],
        "c": ["shared", None, None, None, "shared"]}


@pytest.mark.parametrize("flags, message", [
    (["--context", "-"], "standard input can be read only once"),
    (["--context", "missing"], "missing"),
    (["--context", "x=t.jsonl", "--context", "x=t.jsonl"], "two contexts are called 'x'"),
    (["--tool", "x=./missing"], "./missing"),
    (["--tool-data", "x=t.jsonl", "--context", "x=t.jsonl"], "same name as a tool"),
])
def test_what_all_tasks_share_is_judged_once(droste, batch, flags, message):
    """Before a task begins; no line is written for any. (Twin: the test before.)"""
    tasks(droste, *some(3))
    tasks(droste, "1", name="t.jsonl")
    r = batch(*flags)
    assert r.status == 2 and message in r.complaint and not os.path.exists(
        os.path.join(droste.home, "results.jsonl")), r


@pytest.mark.parametrize("line, message", [
    ("{", "JSON is invalid at byte 1: "), ("[]", "not a JSON object"),
    ('{"id": 1}', "needs a `question`"),
    ('{"question": ""}', "needs a `question`"), ('{"question": "a\\u0000b"}', "needs a `question`"),
    ('{"question": "?", "id": ""}', "`id`"), ('{"question": "?", "id": 1.5}', "`id`"),
    ('{"question": "?", "id": null}', "`id`"),
    ('{"question": "?", "contxt": "x"}', "unknown member `contxt`"),
    ('{"question": "?", "context": "x", "context_text": "y"}', "exclude each other"),
    ('{"question": "?", "context": "missing.txt"}', "missing.txt"),
    ('{"question": "?", "context_text": 1}', "must be a string"),
    ('{"question": "?", "contexts": ["a.txt"]}', "object of names and paths"),
    ('{"question": "?", "contexts": {"x": "missing.txt"}}', "missing.txt"),
    ('{"question": "?", "contexts": {"print": "tasks.jsonl"}}', "Python's names"),
    ('{"question": "?", "contexts": {"a b": "tasks.jsonl"}}', "a name that is valid in Python"),
    ('{"question": "?", "contexts": {"x": 1}}', "a context must be a path"),
    ('{"question": "?", "grader": "nose"}', "'nose'"),
    ('{"question": "?", "grader": "exact"}', "expected"),
    ('{"question": "?", "grader": "program:/bin/true", "expected": 1}',
     "cannot choose the program"),
    ('{"question": "?", "settings": {"isolation": "process"}}', "cannot set 'isolation'"),
    ('{"question": "?", "settings": {"base-url": "http://127.0.0.1"}}', "cannot set 'base-url'"),
    ('{"question": "?", "settings": {"read": ["/etc"]}}', "cannot set 'read'"),
    ('{"question": "?", "settings": {"model": "exec:/bin/sh"}}', "cannot name a program"),
    ('{"question": "?", "settings": {"depth-model": ["1=exec:/bin/sh"]}}', "cannot name a program"),
    ('{"question": "?", "settings": {"instructions": "@/etc/passwd"}}', "not the name of a file"),
    ('{"question": "?", "settings": {"max-iterations": 0}}', "0 is too small; use 1 to 1,000,000"),
    ('{"question": "?", "settings": {"answer-schema": "schema.json"}}', "not the name of a file"),
    ('{"question": "?", "settings": {"answer-schema": {"properties": 1}}}', "answer-schema: "),
    ('{"question": "?", "settings": {"answer-schema": {"if": {}}}}', "'if'"),
    ('{"question": "?", "settings": {"answer-field": ["two words"]}}', "answer-field 'two words'"),
    ('{"question": "?", "settings": {"answer-field": "a", "answer-schema": {}}}',
     "use one of them"),
    ('{"question": "?", "settings": {"compaction": 2}}', "2 is too large; use 0 to 1"),
    ('{"question": "?", "settings": {"model": {"a": 1}}}', "invalid value for the setting 'model'"),
    ('{"question": "?", "settings": {"tool": ["x=/bin/sh"]}}', "cannot set 'tool'"),
    ('{"question": "?", "settings": {"memory": "64G"}}', "cannot set 'memory'"),
    ('{"question": "?", "id": "t0"}', "already has the id 't0'"),
])
def test_a_bad_line_is_named_before_anything_is_paid(droste, batch, line, message):
    """With its number, in one line; no run began and no file was made. (Twin: the next test.)"""
    tasks(droste, some(1)[0], line)
    r = batch()
    assert r.status == 2 and "tasks.jsonl, line 2: " in r.complaint and message in r.complaint, r
    assert not os.path.exists(os.path.join(droste.home, "results.jsonl"))
    assert not os.path.exists(droste.record.path)


def test_a_task_may_set_what_is_its_own(droste, batch, replay):
    """Limits of a run, and what the model is told; data of the user's own are passed over."""
    tasks(droste, {"question": "a?", "settings": {"max-iterations": 1, "max-llm-calls": "0"},
                   "meta": {"x": 1}},
          {"question": "b?", "settings": {"depth-model": ["1=callback"][:0], "include": ["*.py"]}})
    r = batch(model=replay({"content": repl("SUBMIT(answer=1)"), "contains": "b?"},
                           {"content": "Hm.", "repeat": True}))
    assert r.status == 1, r
    assert {line["id"]: line["status"] for line in results(droste)} == {1: "exhausted",
                                                                        2: "answered"}


NUMBER = {"properties": {"total": {"type": "integer"}}, "required": ["total"]}


@pytest.mark.parametrize("settings, answer", [
    ({"answer-schema": NUMBER}, {"total": 7}),
    ({"answer-schema": json.dumps(NUMBER)}, {"total": 7}),
    ({"answer-field": ["total:integer"]}, {"total": 7}), ({"answer-schema": ""}, [1]), ({}, "[1]"),
])
def test_a_task_has_a_type_of_answer_of_its_own(droste, batch, replay, settings, answer):
    """As a schema, its text, or fields, in the place of the command's; or taken back. What does not
    fit is given back to the model, which then says what the task, or else the command, wants."""
    tasks(droste, {"id": "own", "question": "?", "settings": settings},
          {"id": "other", "question": "?"})
    r = batch("--answer-schema", '{"type": "string"}', model=replay(
        {"content": repl("SUBMIT(total=7)"), "contains": "at /total", "repeat": True},
        {"content": repl("SUBMIT('[1]')"), "contains": "was rejected", "repeat": True},
        {"content": repl("SUBMIT([1])"), "repeat": True}))
    assert r.status == 0, r
    assert {line["id"]: line["answer"] for line in results(droste)} == {"own": answer,
                                                                        "other": "[1]"}


def test_a_tasks_fields_replace_those_of_the_command(droste, batch, replay):
    """Of a list the task's own; a single value is one more; the command's schema gives way to
    them."""
    tasks(droste, {"id": "list", "question": "a?", "settings": {"answer-field": ["b:string"]}},
          {"id": "more", "question": "c?", "settings": {"answer-field": "b:string"}},
          {"id": "schema", "question": "a?",
           "settings": {"answer-schema": {"type": "object", "required": ["b"]}}})
    model = replay({"content": repl("SUBMIT(b='x')"), "contains": "a?", "repeat": True},
                   {"content": repl("SUBMIT(a=1, b='x')"), "contains": "c?", "repeat": True})
    r = batch("--answer-field", "a:integer", model=model)
    assert r.status == 0, r
    assert {line["id"]: line["answer"] for line in results(droste)} == {
        "list": {"b": "x"}, "more": {"a": 1, "b": "x"}, "schema": {"b": "x"}}


def test_a_task_is_shortened_as_it_says(droste, batch, replay):
    """compaction and model-window of a task are its own: one conversation has a summary, the other
    none."""
    tasks(droste, {"id": "short", "question": "?",
                   "settings": {"compaction": 0.8, "model-window": 5000}},
          {"id": "whole", "question": "?"})
    r = batch(model=replay({"content": repl("SUBMIT('ok')"), "contains": "Turn 3 of",
                            "repeat": True},
                           {"content": "a was loud", "contains": "Write a summary", "repeat": True},
                           {"content": repl("print('a' * 8000)"), "repeat": True}))
    assert r.status == 0, r
    kinds = {run["task"]: [c["kind"] for c in droste.record.calls if c["run"] == run["id"]]
             for run in droste.record.runs}
    assert kinds == {"short": ["root", "root", "summary", "root"],
                     "whole": ["root", "root", "root"]}


def test_a_killed_task_goes_on_with_its_own_type_of_answer(droste, batch, tmp_path):
    """The record has it: a run that was under way is resumed, and its answer is of the task's
    type."""
    tasks(droste, {"id": "t", "question": "?", "settings": {"answer-field": ["total:integer"]}})
    def model(ms):
        return write_replay(tmp_path / "m", {"content": repl("a = llm_query('x')")},
                            {"content": "7", "depth": 1},
                            {"content": repl("SUBMIT(total=int(a))"), "delay_ms": ms})
    process = batch("--answer-schema", '{"type": "string"}', model=model(HELD), start=True)
    wait_until(lambda: turns(droste, 2), what="the second turn")
    process.kill()
    finish(process)
    r = batch("--answer-schema", '{"type": "string"}', model=model(0))
    assert r.status == 0 and r.json["resumed"] == 1 and len(droste.record.runs) == 1, r
    assert results(droste)[0]["answer"] == {"total": 7}


def test_a_task_that_cannot_be_answered_does_not_stop_the_others(droste, batch, replay):
    """It has a line with its error; the command says so with its status."""
    tasks(droste, {"id": "bad", "question": "fail"}, {"id": "good", "question": "go"})
    r = batch(model=replay({"error": {"code": "model_auth", "message": "no"}, "contains": "fail"},
                           {"content": repl("SUBMIT(answer=1)"), "contains": "go"}))
    assert r.status == 1 and r.json["statuses"] == {
        "answered": 1, "exhausted": 0, "budget": 0, "timeout": 0, "cancelled": 0, "error": 1}, r
    lines = {line["id"]: line for line in results(droste)}
    assert lines["bad"]["status"] == "error" and lines["bad"]["error"]["type"] == "model_auth"
    assert lines["good"]["status"] == "answered"


def test_an_error_in_the_settings_is_reported_once(droste, batch):
    """A mistake of the whole batch is one complaint before the first task, and no file of results
    begins."""
    tasks(droste, *some(3))
    r = batch(model="nowhere/model")
    assert r.status == 2 and not os.path.exists(os.path.join(droste.home, "results.jsonl")), r
    assert "nowhere" in r.complaint


# ---- the record ----

def test_the_record_tells_the_batch_and_the_task(droste, batch, replay):
    """`runs ls`, `runs show` and both exports have them for the runs of a batch, and null for
    others; the table has a column for them only where there is something in it."""
    def column():
        return "BATCH:TASK" in droste("runs", "ls").out
    assert droste("run", "--question", "?", "--model", replay(repl("SUBMIT(1)"))).status == 0
    assert not column()
    tasks(droste, {"id": "first", "question": "?"}, {"id": "<b>&", "question": "?"})
    assert batch().status == 0 and column()
    path = os.path.realpath(os.path.join(droste.home, "results.jsonl"))
    listed = {run["run"]: (run["batch"], run["task"])
              for run in droste("runs", "ls", "--json").json}
    assert sorted(map(repr, listed.values())) == sorted(
        map(repr, [(None, None), (path, "first"), (path, "<b>&")]))
    assert {line["run"]: (line["batch"], line["task"]) for line in droste.lines("run")} == listed
    for run, (of, task) in listed.items():
        shown = droste("runs", "show", run).out
        page = droste("runs", "export", run, "--format", "html").out
        found = droste("runs", "show", run, "--json").json
        assert (found["batch"], found["task"]) == (of, task)
        if task:
            escaped = task.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
            assert "\nbatch     %s\ntask      %s\n" % (of, task) in shown
            assert ("<dt>batch</dt><dd>%s</dd>" % of in page
                    and "<dt>task</dt><dd>%s</dd>" % escaped in page)
        else:
            assert ("\nbatch " not in shown and "<dt>batch</dt>" not in page
                    and "<dt>task</dt>" not in page)


def test_the_runs_of_a_batch_can_be_listed(droste, batch):
    """By its file of results, as seen from here or a part of its path, and by a task; what fits
    none is said."""
    tasks(droste, *some(2))
    assert batch().status == 0
    assert batch("--out", "other.jsonl").status == 0
    def listed(*words):
        return sorted(run["task"] for run in droste("runs", "ls", "--json", *words).json)
    assert listed("--batch", "results.jsonl") == ["t0", "t1"] == listed("--batch", "results")
    assert listed("--batch", os.path.join(droste.home, "other.jsonl"), "--task", "t1") == ["t1"]
    assert listed("--task", "t0") == ["t0", "t0"] and listed("--task", "t") == []
    assert "results.jsonl:t1" in droste("runs", "ls", "--batch", "./results.jsonl").out
    r = droste("runs", "ls", "--batch", "third.jsonl")
    assert r.status == 0 and r.out == "" and "no such runs" in r.complaint
    r = droste("runs", "gc", "--batch", "results.jsonl")
    assert r.status == 2 and "--batch does not apply to `runs gc`" in r.err


# ---- going on ----

def test_what_has_a_result_is_passed_over(droste, batch, replay):
    """The same command again asks nothing: the model would have no answer."""
    tasks(droste, *some(3))
    assert batch("--grader", "numeric").status == 0
    before = results(droste)
    r = batch("--grader", "numeric", model=replay({"content": "x", "contains": "never"}))
    assert r.status == 0 and (r.json["earlier"], r.json["graded"], r.json["passed"]) == (3, 3, 3), r
    assert results(droste) == before and r.json["calls"] == 3


def test_new_tasks_join_old_results(droste, batch):
    """A file of tasks that grew: what has a result keeps it, the rest is asked."""
    tasks(droste, *some(2))
    assert batch().status == 0
    tasks(droste, *some(4))
    assert batch().json["earlier"] == 2
    assert sorted(line["id"] for line in results(droste)) == ["t0", "t1", "t2", "t3"]


def test_again_asks_only_what_has_no_answer(droste, batch, replay):
    """Without the flag a failure stays; with it there is a second line, which counts."""
    tasks(droste, {"id": "bad", "question": "fail"}, {"id": "good", "question": "go"})
    model = replay({"error": {"code": "model_auth", "message": "no"}, "contains": "fail"},
                   {"content": repl("SUBMIT(answer=1)"), "contains": "go"})
    assert batch(model=model).status == 1
    better = replay({"content": repl("SUBMIT(answer=2)"), "contains": "fail"})
    assert batch(model=better).json["statuses"]["error"] == 1
    r = batch("--again", model=better)
    assert r.status == 0 and r.json["statuses"]["answered"] == 2 and r.json["earlier"] == 1, r
    assert [(line["id"], line["status"]) for line in results(droste)][-1] == ("bad", "answered")
    assert len(results(droste)) == 3
    assert batch(model=better).json["statuses"]["answered"] == 2


def test_a_killed_batch_goes_on_and_pays_for_nothing_twice(droste, batch, tmp_path):
    """Killed when some runs have ended and some are in their second turn: each task has one run and
    one line, each run its four calls, and only those that were under way were made again."""
    tasks(droste, *[{**t, "expected": "12"} for t in some(10)])
    model = slow_model(tmp_path / "m", contains="two xxxxxx", delay_ms=HELD)
    process = batch("--concurrency", "4", model=model, start=True)
    wait_until(lambda: turns(droste, 2) == 10 and calls_by_run(droste) == [4] * 10,
               what="the calls of the last four")
    process.kill()
    finish(process)
    slow_model(tmp_path / "m")
    ended = {row["id"]: row["ended_ms"] for row in droste.record.calls if row["status"] == "ok"}
    running = [run for run in droste.record.runs if run["status"] == "running"]
    assert len(running) == 4 and len(ended) == 36
    r = batch("--concurrency", "4", "--grader", "exact", model=model)
    assert r.status == 0 and r.json["passed"] == 10 - r.json["earlier"], r
    assert r.json["resumed"] == len(running)
    assert sorted(line["id"] for line in results(droste)) == sorted("t%d" % i for i in range(10))
    assert len(droste.record.runs) == 10 and calls_by_run(droste) == [4] * 10
    for call in droste.record.calls:
        if call["id"] in ended:
            assert call["repeated"] == 0 and call["ended_ms"] == ended[call["id"]]
    assert r.json["calls"] == 40


def test_a_result_that_was_not_written_is_made_of_the_record(droste, batch, replay):
    """Killed between the end of the run and its line: the same line, and no call."""
    tasks(droste, *some(3))
    batch("--grader", "numeric")
    before = results(droste)
    with open(os.path.join(droste.home, "results.jsonl"), "w") as f:
        f.write(json.dumps(before[0]) + "\n")
    r = batch("--grader", "numeric", model=replay({"content": "x", "contains": "never"}))
    assert r.status == 0 and r.json["resumed"] == 0, r
    after = {line["id"]: line for line in results(droste)}
    assert after == {line["id"]: line for line in before}
    assert len(droste.record.runs) == 3 and r.json["calls"] == 3


def test_a_torn_last_line_is_removed_and_reported(droste, batch):
    """It is not whole JSON; its task has its result from the record."""
    tasks(droste, *some(3))
    batch()
    path = os.path.join(droste.home, "results.jsonl")
    with open(path) as f:
        text = f.read()
    with open(path, "w") as f:
        f.write(text[:-30])
    r = batch()
    assert r.status == 0 and "removed the incomplete last line of" in r.err, r
    assert sorted(line["id"] for line in results(droste)) == ["t0", "t1", "t2"]
    assert len(droste.record.runs) == 3


def test_a_last_line_that_only_lacks_its_end_stays(droste, batch):
    """A result without its newline is whole: it counts, and nothing is said to be torn."""
    tasks(droste, *some(3))
    batch()
    path = os.path.join(droste.home, "results.jsonl")
    os.truncate(path, os.path.getsize(path) - 1)
    r = batch()
    assert r.status == 0 and r.json["earlier"] == 3 and "torn" not in r.err, r
    assert len(results(droste)) == 3


def test_what_is_no_file_of_results_is_left_alone(droste, batch):
    """A wrong --out, such as the tasks themselves, is refused by its line."""
    path = tasks(droste, *some(2))
    before = open(path).read()
    r = droste("batch", "tasks.jsonl", "--out", "tasks.jsonl", "--model", "callback")
    assert r.status == 2
    r = batch("--out", "tasks.jsonl")
    assert r.status == 2 and "line 1: this is not a result" in r.complaint, r
    assert open(path).read() == before


def test_two_batches_do_not_write_one_file(droste, batch, tmp_path, gate):
    """The second is refused while the first one runs, and not afterwards."""
    tasks(droste, *some(2))
    gate.shut()
    model = write_replay(tmp_path / "m", {"content": repl(gate.code + "SUBMIT(answer=1)"),
                                          "repeat": True})
    process = batch(*gate.flags, model=model, start=True)
    wait_until(lambda: turns(droste, 1), what="the first")
    r = batch()
    assert r.status == 2 and "another batch is writing" in r.complaint, r
    gate.open()
    assert finish(process).status == 0
    assert batch().status == 0


def test_a_task_that_is_asked_otherwise_begins_anew(droste, batch, tmp_path):
    """An interrupted run of the same id is only gone on with if it was asked the same."""
    tasks(droste, *some(1))
    process = batch(model=slow_model(tmp_path / "m", HELD), start=True)
    wait_until(lambda: turns(droste, 2), what="the second turn")
    process.kill()
    finish(process)
    tasks(droste, {**some(1)[0], "question": "What else?"})
    r = batch()
    assert r.status == 0 and "t0 starts again: run" in r.err and "another question" in r.err, r
    assert len(droste.record.runs) == 2 and r.json["resumed"] == 0


def test_without_a_record_tasks_begin_anew(droste, batch, replay):
    """There are no ids of runs then, but results are passed over all the same."""
    tasks(droste, *some(2))
    r = batch("--database", "none")
    assert r.status == 0 and all(line["run"] is None for line in results(droste)), r
    assert batch("--database", "none",
                 model=replay({"content": "x", "contains": "never"})).json["earlier"] == 2


# ---- stopping ----

def test_an_interrupt_suspends_runs(droste, batch, tmp_path):
    """Ctrl-C: no line for what did not end, `interrupted` in the record, and the same command goes
    on."""
    tasks(droste, *some(6))
    process = batch("--concurrency", "3", model=slow_model(tmp_path / "m", HELD), start=True)
    wait_until(lambda: turns(droste, 2) == 3, what="the second turns")
    process.send_signal(signal.SIGINT)
    stopped = finish(process)
    assert stopped.status == 130 and stopped.json["stopped"] == "interrupt", stopped
    assert stopped.json["interrupted"] == 3 and stopped.json["left"] == 6 and not results(droste)
    assert [run["status"] for run in droste.record.runs] == ["interrupted"] * 3
    r = batch("--concurrency", "3", model=slow_model(tmp_path / "m"))
    assert r.status == 0 and r.json["resumed"] == 3 and calls_by_run(droste) == [4] * 6, r


def test_the_calls_of_the_batch_are_limited_to_the_call(droste, batch, tmp_path):
    """No more calls than allowed are made, however many runs ask; with more allowed it goes on with
    them, and what was answered before counts. (What was under way counts when it is made again.)"""
    def answered():
        return len([call for call in droste.record.calls if call["status"] == "ok"])
    tasks(droste, *some(6))
    model = slow_model(tmp_path / "m", 30)
    r = batch("--concurrency", "3", "--batch-max-calls", "10", model=model)
    assert r.status == 3 and r.json["stopped"] == "budget" and "call limit exceeded" in r.json[
        "why"], r
    assert 5 < answered() <= len(droste.record.calls) <= 10
    assert r.json["left"] > 0 and all(line["status"] == "answered" for line in results(droste))
    assert "budget" not in [run["status"] for run in droste.record.runs]
    again = batch("--concurrency", "3", "--batch-max-calls", "10", model=model)
    assert again.status == 3 and answered() <= 10
    r = batch("--concurrency", "3", "--batch-max-calls", "24", model=model)
    assert r.status == 0 and calls_by_run(droste) == [4] * 6 and r.json["calls"] == 24, r


@pytest.mark.parametrize("code", ["SUBMIT(answer=1)", "SUBMIT(answer=len(llm_query('one')))"])
def test_a_call_under_way_that_does_not_fit_stays_under_way(droste, batch, tmp_path, code):
    """Killed in the middle of a call, of the loop or of its code, and gone on with where the limit
    is reached: the record is as it was, and with more allowed that call is made again."""
    tasks(droste, {"id": "t", "question": "?"}, {"id": "spent", "question": "!"})
    slow = {"delay_ms": HELD, "repeat": True}
    lines = [{"content": repl(code), "repeat": True}, {"content": "1", "depth": 1, "repeat": True}]
    lines["llm" in code].update(slow)
    process = batch("--concurrency", "1", model=write_replay(tmp_path / "m", *lines), start=True)
    wait_until(lambda: turns(droste, 1) and len(droste.record.calls) == 1 + ("llm" in code),
               what="the call")
    process.kill()
    finish(process)
    with open(os.path.join(droste.home, "results.jsonl"), "a") as f:
        f.write(json.dumps({"id": "spent", "status": "answered",
                            "usage": {"calls": 9, "cost": None}}) + "\n")
    for line in lines:
        line.pop("delay_ms", None)
    model, before = write_replay(tmp_path / "m", *lines), droste.record.calls[-1]
    made = "llm" in code
    r = batch("--batch-max-calls", str(9 + made), model=model)
    assert r.status == 3 and (r.json["resumed"], r.json["interrupted"]) == (1, 1), r
    assert droste.record.calls[-1] == before and before["status"] == "running"
    r = batch("--batch-max-calls", str(10 + made), model=model)
    assert r.status == 0 and r.json["calls"] == 10 + made, r
    assert droste.record.calls[-1]["repeated"] == 1 and len(droste.record.calls) == 1 + made


def test_money_and_tokens_of_the_batch_are_limited(droste, batch, tmp_path, replay):
    """The sums over all tasks end the batch; a price must be known for that."""
    tasks(droste, *some(6))
    r = batch("--batch-max-tokens", "4000", "--concurrency", "1")
    assert r.status == 3 and "total token limit" in r.json["why"] and 0 < len(
        results(droste)) < 6, r
    assert r.json["input_tokens"] + r.json["output_tokens"] <= 4000
    r = batch("--batch-max-cost", "1")
    assert r.status == 2 and "the price of" in r.complaint
    prices = tmp_path / "prices"
    model = replay({"content": LENGTH, "repeat": True,
                    "usage": {"input_tokens": 100000, "output_tokens": 0}})
    prices.write_text("* 1 1\n")
    r = batch("--batch-max-cost", "0.25", "--concurrency", "1", "--prices", prices, "--out",
              "other.jsonl", model=model)
    assert r.status == 3 and "cost limit" in r.json["why"] and r.json["cost"] == pytest.approx(
        0.3), r


def test_a_budget_of_a_task_ends_that_task_alone(droste, batch, tmp_path):
    """--max-llm-calls holds for each: its line says `budget` or what the code made of it."""
    tasks(droste, {**some(1)[0], "settings": {"max-total-tokens": 5}},
          {"id": "free", "question": "How long?"})
    r = batch()
    assert r.status == 1 and r.json["stopped"] is None, r
    assert {line["id"]: line["status"] for line in results(droste)} == {"t0": "budget",
                                                                        "free": "answered"}


def test_the_time_of_the_batch_is_limited(droste, batch, tmp_path):
    """What has begun by then is suspended, and nothing has a result; without the limit it goes
    on."""
    tasks(droste, *some(2))
    r = batch("--batch-timeout", "1s", model=slow_model(tmp_path / "m", HELD))
    assert r.status == 3 and r.json["stopped"] == "timeout" and r.json["left"] == 2, r
    assert [run["status"] for run in droste.record.runs] == ["interrupted"] * r.json["interrupted"]
    assert results(droste) == []
    r = batch(model=slow_model(tmp_path / "m", 0))
    assert r.status == 0 and calls_by_run(droste) == [4, 4], r


def test_a_full_disk_stops_the_batch(droste, batch, replay):
    """What does not fit is not written in part, and said; with room it goes on."""
    def small():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    tasks(droste, *some(8))
    model = replay({"content": repl("SUBMIT(answer='x' * 300000)"), "repeat": True})
    r = batch("--database", "none", "--concurrency", "1", model=model, preexec_fn=small)
    assert r.status == 1 and "results.jsonl" in r.err, r
    done = len(results(droste))
    assert 0 < done < 8
    assert batch("--database", "none", model=model).json["earlier"] == done


def test_more_runs_than_descriptors_are_refused(droste, batch):
    """With how many fit; those that fit run."""
    def few():
        resource.setrlimit(resource.RLIMIT_NOFILE, (140, 140))
    tasks(droste, *some(20))
    r = batch("--concurrency", "20", preexec_fn=few)
    assert r.status == 2 and "run at most 5 at once" in r.complaint, r
    assert batch("--concurrency", "5", preexec_fn=few).status == 0


# ---- mistakes ----

@pytest.mark.parametrize("flags", [
    ("--grader", "nose"), ("--grader", "program:./missing"), ("--concurrency", "0"),
    ("--concurrency", "x"),
    ("--batch-max-calls", "0"), ("--batch-max-cost", "-1"), ("--batch-timeout", "soon"),
    ("--grader-timeout", "0"),
])
def test_a_wrong_flag_is_explained(droste, batch, flags):
    """It is named, nothing begins, and the record is not even made."""
    tasks(droste, *some(1))
    r = batch(*flags)
    assert r.status == 2 and flags[0].strip("-") in r.err and not os.path.exists(
        droste.record.path), r
    assert batch().status == 0


def test_tasks_and_results_must_be_named(droste):
    """What is missing is said: the file of tasks, that of results, tasks in it."""
    r = droste("batch")
    assert r.status == 2 and "name the file of tasks" in r.err, r
    r = droste("batch", "tasks.jsonl")
    assert r.status == 2 and "--out" in r.err, r
    r = droste("batch", "missing.jsonl", "--out", "r.jsonl", "--model", "callback")
    assert r.status == 2 and "missing.jsonl" in r.complaint
    tasks(droste)
    r = droste("batch", "tasks.jsonl", "--out", "r.jsonl", "--model", "callback")
    assert r.status == 2 and "no tasks" in r.complaint


# ---- what a person sees ----

def test_a_terminal_shows_one_line_and_then_the_summary(droste, replay, gate):
    """Progress is one line that is written over; what stays is the summary."""
    tasks(droste, *some(3))
    gate.shut()
    master, slave = pty.openpty()
    process = droste.start("batch", "tasks.jsonl", "--out", "results.jsonl", "--grader", "numeric",
                           *gate.flags, "--model",
                           replay({"content": repl(gate.code + "SUBMIT(answer=len(context))"),
                                   "repeat": True}), stderr=slave)
    os.close(slave)
    seen = b""
    while True:
        try:
            piece = os.read(master, 4096)
        except OSError:
            break
        if not piece:
            break
        seen += piece
        if b"3 running" in seen:
            gate.open()
    out = process.communicate()[0].decode()
    os.close(master)
    assert b"0/3" in seen and b"3 running" in seen and seen.endswith(
        b"\r\x1b[K") and b"\n" not in seen
    assert "3 tasks: 3 answered\n3 of 3 passed (100.0 %), mean score 1\n3 calls, " in out


def test_the_summary_has_the_first_error(droste, replay):
    """With the task that had it; and a batch without errors has no such line."""
    tasks(droste, *some(2))
    words = ["batch", "tasks.jsonl", "--concurrency", "1", "--model"]
    failed = droste(*words, replay({"content": LENGTH}), "--out", "a.jsonl")
    assert re.search(r"^2 tasks: 1 answered, 1 error\nfirst error, of \S+: .*has no answer for",
                     failed.out), failed
    assert "first error" not in droste(*words, replay({"content": LENGTH, "repeat": True}),
                                       "--out", "b.jsonl").out


def test_a_pipe_receives_results_on_request(droste, replay):
    """Nothing by default; with --verbose each line as it stands in the file."""
    tasks(droste, *some(2))
    words = ["batch", "tasks.jsonl", "--model", replay({"content": LENGTH, "repeat": True})]
    assert droste(*words, "--out", "a.jsonl").err == ""
    messages = droste(*words, "--out", "b.jsonl", "--verbose").err
    assert [json.loads(line) for line in messages.splitlines()] == results(droste, "b.jsonl")


def test_only_the_owner_can_read_results(droste, batch):
    """They hold answers: only their owner reads them; a file that was there keeps its mode."""
    tasks(droste, *some(1))
    batch()
    path = os.path.join(droste.home, "results.jsonl")
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    os.chmod(path, 0o644)
    assert batch().status == 0 and stat.S_IMODE(os.stat(path).st_mode) == 0o644


def test_nothing_is_left_running(droste, batch):
    """Not even after many sandboxes."""
    tasks(droste, *some(30))
    process = batch("--concurrency", "10", start=True)
    assert finish(process).status == 0
    left = subprocess.run(["ps", "-o", "stat=", "-s", str(process.pid)], stdout=subprocess.PIPE,
                          text=True).stdout
    assert [state for state in left.split() if state[0] not in "ZX"] == []
