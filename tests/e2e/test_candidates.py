"""Several candidates for each turn: which one is kept, what it costs, and how runs are resumed."""
import json
import random

import pytest

from harness import finish, repl, wait_until
from lives import KILLS, SEED, Life, check_paid_once, kill_at_random, measure, take_back

TURNS = [
    repl("a = llm_query_batched(['a%d' % i for i in range(3)])\nprint(len(context), a[0])"),
    repl("b = [llm_query('b after ' + x) for x in a]"),
    repl("import hashlib\nSUBMIT(hashlib.sha256(repr((context, a, b)).encode()).hexdigest())"),
]
CALLS = {"vote": 3 * (len(TURNS) + 6), "model": 3 * (len(TURNS) + 6) + len(TURNS)}


@pytest.fixture(scope="module")
def references():
    """Runs that are not killed, by their selector, once they were measured."""
    return {"vote": {}, "model": {}}


@pytest.mark.parametrize("select", ["vote", "model"])
@pytest.mark.parametrize("number", range((KILLS + 1) // 2))
def test_killed_at_random_it_ends_as_if_it_had_not_been(droste, serve, tmp_path, references, number,
                                                        select):
    """`kill -9` at a random instant: the same candidates are kept, and no call is paid twice."""
    flags = ["--candidates", "3", "--select", select]
    expected = measure(references[select], Life(droste, serve(turns=TURNS), tmp_path, *flags))
    assert expected["calls"] == CALLS[select]
    life = Life(droste, serve(turns=TURNS), tmp_path, *flags)
    killed = kill_at_random(life, random.Random(SEED + number), expected)
    check_paid_once(life, expected, killed)


def steps_of(droste, run, kind):
    lines = [json.loads(line) for line in droste("runs", "export", run).out.splitlines()]
    return [line for line in lines if line["type"] == kind]


# The value of x differs between candidates: the current time.
DIFFER = [repl("import time\nx = time.monotonic_ns()\nprint(x)"), repl("SUBMIT(x)")]


@pytest.mark.parametrize("select", ["first", "vote", "model"])
def test_the_kept_candidate_is_the_session(droste, serve, tmp_path, select):
    """What it printed is what the next turn's model reads, and its variables are there; the record
    has all candidates, and which one was kept, and why."""
    life = Life(droste, serve(turns=DIFFER), tmp_path, "--candidates", "3", "--select", select)
    answer = life.whole().json["answer"]
    turns, cells = steps_of(droste, life.id, "turn"), steps_of(droste, life.id, "cell")
    first = [cell for cell in cells if cell["turn"] == 1]
    assert sorted(cell["candidate"] for cell in first) == [1, 2, 3]
    assert len({cell["stdout"] for cell in first}) == 3
    kept, = [cell for cell in first if cell["candidate"] == turns[0]["kept"]]
    assert int(kept["stdout"]) == answer
    assert all(turn["reason"] and turn["session"] == "kept" for turn in turns)
    asked = [call for call in steps_of(droste, life.id, "call") if call["kind"] == "root"]
    assert [call["turn"] for call in asked].count(1) == 3
    assert str(answer) in json.dumps([call["request"] for call in asked if call["turn"] == 2])


def test_a_resumed_run_keeps_what_was_kept(droste, serve, tmp_path):
    """Killed before its last cell ended: nothing is asked again, and the candidate that was kept
    runs alone."""
    turns = [repl("x = [1]\nprint(x)"), repl("SUBMIT(x)")]
    life = Life(droste, serve(turns=turns), tmp_path, "--candidates", "3", "--select", "vote")
    assert life.whole().json["answer"] == [1]
    take_back(droste, "UPDATE turns SET kept = 3 WHERE turn = 1",
              "UPDATE turns SET kept = NULL, reason = NULL, session = NULL WHERE turn = 2",
              "UPDATE cells SET status = 'running', ended_ms = NULL, submit = NULL WHERE turn = 2")
    asked = life.server.stats()["requests"]
    result = life.resume()
    assert result.status == 0 and result.json["answer"] == [1], result
    assert life.server.stats()["requests"] == asked
    assert [turn["kept"] for turn in steps_of(droste, life.id, "turn")] == [3, 1]
    assert len(steps_of(droste, life.id, "cell")) == 6


def test_a_candidate_that_dies_is_not_kept(droste, serve, tmp_path):
    """One exits, which is a failure of its own; if all do, the run goes on from before the turn."""
    turns = [repl("kept = 7"), repl("import os\nos._exit(3)"), repl("SUBMIT(kept)")]
    life = Life(droste, serve(turns=turns), tmp_path, "--candidates", "2")
    assert life.whole().json["answer"] == 7
    assert [turn["session"] for turn in steps_of(droste, life.id, "turn")] == [
        "kept", "before", "kept"]
    take_back(droste, "UPDATE cells SET status = 'running', ended_ms = NULL, submit = NULL "
              "WHERE turn = 3", "UPDATE turns SET kept = NULL WHERE turn = 3")
    assert life.resume().json["answer"] == 7


def test_all_candidates_share_one_budget(droste, serve, tmp_path):
    """Of three calls of code that two allow, one candidate's fails, and another is kept."""
    turns = [repl("SUBMIT(llm_query('x'))")]
    life = Life(droste, serve(turns=turns), tmp_path, "--candidates", "3", "--select", "vote",
                "--max-llm-calls", "2")
    assert life.whole().status == 0
    status = sorted(cell["status"] for cell in steps_of(droste, life.id, "cell"))
    assert status == ["error", "submitted", "submitted"]
    assert len(droste.record.calls) == 3 + 2


def test_threads_leave_one_candidate(droste, serve, tmp_path):
    """A session that cannot be forked goes on with one reply, and a notice says why."""
    turns = [repl("import threading\nend = threading.Event()\n"
                  "t = threading.Thread(target=end.wait, name='spin', daemon=True)\nt.start()"),
             repl("end.set(); t.join()\nSUBMIT(1)")]
    life = Life(droste, serve(turns=turns), tmp_path, "--candidates", "2")
    result = life.whole()
    assert result.json["answer"] == 1
    assert [cell.get("candidate") for cell in steps_of(droste, life.id, "cell")][-1] is None


@pytest.mark.parametrize("flags, message", [
    (["--select", "best"], "use first, vote, model or, in a program, a function"),
    (["--candidates", "0"], "candidates"),
    (["--candidates", "2", "--env", "docker"], "fork"),
])
def test_what_cannot_be_is_refused_before_anything_is_paid(droste, serve, tmp_path, flags, message):
    """An unknown selector, no candidates, an environment without forks."""
    life = Life(droste, serve(turns=TURNS), tmp_path, *flags)
    result = life.whole()
    assert result.status != 0 and message in result.complaint, result
    assert life.server.stats()["requests"] == 0


@pytest.mark.parametrize("verb, status", [("approve", "answered"), ("deny", "budget")])
def test_the_model_that_selects_waits_for_its_costs(droste, serve, tmp_path, verb, status):
    """The candidates wait with it; an approval lets it choose, a denial ends the run."""
    (tmp_path / "prices").write_text("* 1000 0\n")
    flags = ["--candidates", "2", "--select", "model", "--prices", str(tmp_path / "prices")]
    life = Life(droste, serve(turns=[repl("SUBMIT(1)")]), tmp_path, *flags)
    assert life.whole().json["answer"] == 1
    costs = [call["cost"] for call in steps_of(droste, life.id, "call")]
    assert len(costs) == 3
    life = Life(droste, serve(turns=[repl("SUBMIT(1)")]), tmp_path, *flags, "--ask-cost",
                str(sum(costs[:2]) + costs[2] / 2))
    process = life.start()
    wait_until(lambda: json.loads(droste("runs", "approvals", "--json").out), what="a question")
    found, = json.loads(droste("runs", "approvals", "--json").out)
    assert found["arguments"]["spent"] == pytest.approx(sum(costs[:2]))
    assert droste("runs", verb, str(found["id"])).status == 0
    assert finish(process).json["status"] == status
