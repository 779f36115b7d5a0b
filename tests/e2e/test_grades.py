"""Grades of a batch's answers: graders that are programs, and those that tasks name."""
import os

import pytest
from batches import results, some, tasks


def grader(droste, name, text):
    path = os.path.join(droste.home, name)
    with open(path, "w") as f:
        f.write("#!/usr/bin/python3\n" + text)
    os.chmod(path, 0o755)
    return "program:" + path


def test_a_program_grades(droste, batch):
    """It is told the id, the question, what was expected and the answer; it says passed and a
    score."""
    tasks(droste, *some(4))
    program = grader(droste, "g", "import json, sys\nt = json.loads(sys.stdin.readline())\n"
                     "assert t['question'] == 'How long?' and t['id'] == 't%d' % t['expected']\n"
                     "print(json.dumps({'passed': t['answer'] % 2 == 0, 'score': "
                     "t['answer'] / 4}))")
    r = batch("--grader", program)
    assert r.status == 0 and (r.json["graded"], r.json["passed"],
                              r.json["score"]) == (4, 2, 0.375), r
    assert {line["id"]: line["grade"] for line in results(droste)}["t3"] == {
        "grader": "program", "passed": False, "score": 0.75}


@pytest.mark.parametrize("started_by", [[], ["env", "--ignore-signal=CHLD"]],
                         ids=["", "who-ignores-children"])
def test_a_programs_status_is_a_grade_too(droste, batch, started_by):
    """A grader that prints nothing says it by its status: 0 is passed, 1 is not."""
    tasks(droste, *some(4))
    droste.prefix = started_by
    program = grader(droste, "g", "import json, sys\nsys.exit(json.load(sys.stdin)['answer'] > 1)")
    r = batch("--grader", program)
    assert (r.json["graded"], r.json["passed"], r.json["ungraded"]) == (4, 2, 0), r


@pytest.mark.parametrize("text, flags, message", [
    ("import sys; sys.exit(9)", [], "status 9"),
    ("import os; os.kill(os.getpid(), 9)", [], "signal 9"),
    ("print('good')", [], "did not print a grade: good"),
    ("print('{\"passed\": 1}')", [], "did not print a grade"),
    ("import time; time.sleep(600)", ["--grader-timeout", "500ms"], "more than 0.5 s"),
])
def test_a_program_that_fails_is_no_grade(droste, batch, text, flags, message):
    """The answer stays, is counted neither as passed nor as failed, and the line says why."""
    tasks(droste, *some(1))
    r = batch("--grader", grader(droste, "g", text), *flags)
    assert r.status == 0 and (r.json["graded"], r.json["ungraded"]) == (0, 1), r
    (line,) = results(droste)
    assert line["answer"] == 0 and line["grade"]["passed"] is None and message in line["grade"][
        "error"]


def test_graders_of_tasks_come_before_the_batchs(droste, batch):
    """A task without `expected` has no grade."""
    tasks(droste, {"id": "a", "question": "?", "context_text": "xx", "expected": "2.1",
                   "grader": "numeric:0.2"},
          {"id": "b", "question": "?", "context_text": "xx", "expected": "2.1"},
          {"id": "c", "question": "?"})
    batch("--grader", "exact")
    grades = {line["id"]: line["grade"] for line in results(droste)}
    assert grades["a"]["passed"] is True and grades["b"]["passed"] is False and grades["c"] is None


def test_no_answer_is_not_passed(droste, batch, replay):
    """A task whose run failed is graded as not passed, without a grader being asked."""
    tasks(droste, {"question": "?", "expected": "x"})
    r = batch("--grader", "contains",
              model=replay({"error": {"code": "model_auth", "message": "no"}}))
    assert (r.json["graded"], r.json["passed"]) == (1, 0), r
