"""droste.batch does what `droste batch` does: graded results, and the rest when called again."""
import asyncio
import json
import os

import pytest

import droste

ONE = {"content": "```repl\nSUBMIT(answer=len(context))\n```", "repeat": True}


def write_lines(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


@pytest.fixture
def home(tmp_path):
    """What all calls need: a replayed model, a record and a file of results."""
    return {"model": "replay:" + write_lines(tmp_path / "model.jsonl", [ONE]),
            "database": tmp_path / "runs.db", "results": tmp_path / "results.jsonl"}


def some(count, **more):
    return [dict({"id": "t%d" % i, "question": "How long?", "context_text": "x" * i, "expected": i},
                 **more) for i in range(count)]


def test_each_task_has_a_typed_result(home):
    """Status, answer, grade, usage and the run in the record, as in the file of results."""
    done = droste.batch(some(3), grader="exact", concurrency=2, **home)
    assert (done.tasks, done.answered, done.graded, done.passed, done.left) == (3, 3, 3, 3, 0)
    assert done.stopped is None and done.score == 1 and done.calls == 3
    found = {result.id: result for result in done.results}
    assert [found["t%d" % i].answer for i in range(3)] == [0, 1, 2]
    one = found["t1"]
    assert one.grade == droste.Grade("exact", True, 1, None) and one.error is None
    assert one.usage["calls"] == 1
    assert droste.runs.get(one.run, database=home["database"]).task == "t1"
    lines = [json.loads(line) for line in home["results"].read_text().splitlines()]
    assert {line["id"] for line in lines} == set(found)


def test_the_same_call_does_the_remaining_work(home, tmp_path):
    """Tasks with a result are skipped; `again` repeats those without an answer, and no other."""
    assert droste.batch(some(2), **home).earlier == 0
    done = droste.batch(some(4), **home)
    assert (done.earlier, done.answered, done.calls) == (2, 4, 4)
    assert droste.batch(some(4), again=True, **home).earlier == 4
    home["model"] = "replay:" + write_lines(tmp_path / "second.jsonl", [
        {"content": "no code", "contains": "never", "repeat": True}, ONE])
    more = some(4) + [{"id": "bad", "question": "never", "settings": {"max-iterations": 1}}]
    assert droste.batch(more, **home).exhausted == 1
    assert droste.batch(more, **home).earlier == 5
    assert droste.batch(more, again=True, **home).earlier == 4


def test_a_file_of_tasks_and_contexts_by_path(home, tmp_path, monkeypatch):
    """A file's paths are relative to it, those of a list to the current directory."""
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "text").write_text("12345")
    (tmp_path / "text").write_text("12")
    tasks = [{"id": "a", "question": "How long?", "context": "text"}]
    path = write_lines(tmp_path / "deep" / "tasks.jsonl", tasks)
    monkeypatch.chdir(tmp_path)
    assert droste.batch(path, **home).results[0].answer == 5
    tasks[0]["id"] = "b"
    assert droste.batch(tasks, **home).results[-1].answer == 2
    named = [{"id": "c", "question": "How long?", "contexts": {"one": "text"}}]
    home["model"] = "replay:" + write_lines(tmp_path / "named.jsonl", [
        {"content": "```repl\nSUBMIT(answer=[len(one), len(more)])\n```", "repeat": True}])
    home["results"] = tmp_path / "named-results.jsonl"
    done = droste.batch(named, context={"more": "deep/text"}, **home)
    assert done.results[0].answer == [2, 5]


def test_graders_programs_and_their_failures(home, tmp_path):
    """A program's verdict counts; where it fails, the answer is kept and is not graded."""
    program = tmp_path / "grade"
    program.write_text("#!/bin/sh\nread line\ncase $line in *t0*) exit 0;; *t1*) exit 1;; esac\n"
                       "exit 7\n")
    program.chmod(0o755)
    done = droste.batch(some(3), grader="program:%s" % program, grader_timeout=60, **home)
    assert (done.passed, done.graded, done.ungraded) == (1, 2, 1)
    failed = next(result for result in done.results if result.id == "t2")
    assert failed.answer == 2 and failed.grade.passed is None and failed.grade.error


def test_limits_suspend_and_a_larger_limit_goes_on(home):
    done = droste.batch(some(4), concurrency=1, batch_max_calls=2, **home)
    assert done.stopped == "budget" and done.why and done.left == 2 and done.answered == 2
    done = droste.batch(some(4), concurrency=1, batch_max_calls=4, **home)
    assert done.stopped is None and done.answered == 4 and done.calls == 4


def test_functions_get_results_and_state(home):
    results, states = [], []
    droste.batch(some(3), on_result=results.append, on_state=states.append, **home)
    assert sorted(result.id for result in results) == ["t0", "t1", "t2"]
    assert states and all(state.tasks == 3 and state.results == [] for state in states)


@pytest.mark.parametrize("kind", [ZeroDivisionError, KeyboardInterrupt])
def test_an_exception_suspends_the_runs_and_is_raised(home, kind):
    """What was done is kept, and the same call does the rest."""
    def fail(result):
        raise kind()
    with pytest.raises(kind):
        droste.batch(some(6), concurrency=1, on_result=fail, **home)
    kept = len(home["results"].read_text().splitlines())
    assert 1 <= kept < 6
    done = droste.batch(some(6), **home)
    assert (done.earlier, done.answered) == (kept, 6)


def test_within_asyncio(home):
    """Two batches at once; the functions are called in the loop's thread."""
    async def main():
        loop, loops = asyncio.get_running_loop(), []
        second = dict(home, results=str(home["results"]) + ".2")
        done = await asyncio.gather(
            droste.abatch(some(2), on_result=lambda result: loops.append(
                asyncio.get_running_loop()), **home),
            droste.abatch(some(3), **second))
        await asyncio.sleep(0)
        assert loops == [loop, loop]
        return [one.answered for one in done]
    assert asyncio.run(main()) == [2, 3]


def test_a_cancelled_coroutine_suspends(home, tmp_path):
    """The task ends as cancelled, the runs are interrupted, and the same call goes on."""
    slow = write_lines(tmp_path / "slow.jsonl", [dict(ONE, delay_ms=600000)])

    async def main():
        begun = asyncio.Event()
        task = asyncio.ensure_future(droste.abatch(
            some(2), on_state=lambda state: state.running == 2 and begun.set(),
            **dict(home, model="replay:" + slow, llm_call_timeout=0)))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    asyncio.run(main())
    statuses = {run.status for run in droste.runs.ls(database=home["database"])}
    assert statuses <= {"interrupted"}
    assert droste.batch(some(2), **home).answered == 2


@pytest.mark.parametrize("tasks, options, error, message", [
    ([{"id": "a"}], {}, droste.ArgumentError, "question"),
    (["text"], {}, droste.ArgumentError, "a task is a dict"),
    (b"tasks", {}, droste.ArgumentError, "path of a file"),
    ({"question": "?"}, {}, droste.ArgumentError, "list of dicts"),
    ("/nowhere.jsonl", {}, droste.NotFoundError, "nowhere"),
    (some(1), {"grader": "nose"}, droste.ArgumentError, "nose"),
    (some(1), {"concurrency": 0}, droste.ArgumentError, "1 to 100000"),
    (some(1), {"batch_max_calls": 0}, droste.ArgumentError, "batch_max_calls"),
    (some(1), {"batch_timeout": float("nan")}, droste.ArgumentError, "batch_timeout"),
    (some(1), {"grader_timeout": -1}, droste.ArgumentError, "grader_timeout"),
    (some(1), {"no_such_setting": 1}, droste.ArgumentError, "no_such_setting"),
    (some(1), {"model": print}, droste.UnsupportedError, "RLM"),
    (some(1), {"context": "/nowhere/at/all"}, droste.Error, "nowhere"),
])
def test_refusals_come_before_anything_is_written(home, tasks, options, error, message):
    with pytest.raises(error, match=message):
        droste.batch(tasks, **dict(home, **options))
    assert not os.path.exists(home["results"]) or home["results"].read_text() == ""


def test_a_file_that_is_no_results_is_left_alone(home):
    home["results"].write_text("my notes\n")
    with pytest.raises(droste.ArgumentError, match="not a result"):
        droste.batch(some(1), **home)
    assert home["results"].read_text() == "my notes\n"
