"""Runs whose code calls fork_map, in the record and when they are resumed."""
import json
import random

import pytest

from harness import repl
from lives import KILLS, SEED, Life, check_paid_once, kill_at_random, measure, take_back

# Items whose prompts are the same, in forks and in forks of forks.
TURNS = [
    repl("def ask(i):\n    return llm_query('shared') + llm_query('own %d' % i)\n"
         "a = fork_map(ask, range(6), max_workers=3)\nprint(a[0])"),
    repl("def twice(i):\n"
         "    return fork_map(lambda j: llm_query('inner %d' % (i // 2)), range(2))\n"
         "b = fork_map(twice, range(4))"),
    repl("import hashlib\nSUBMIT(hashlib.sha256(repr((context, a, b)).encode()).hexdigest())"),
]
CALLS = len(TURNS) + 12 + 8


@pytest.fixture(scope="module")
def reference():
    """A run that is not killed, once it was measured."""
    return {}


@pytest.mark.parametrize("number", range(KILLS))
def test_killed_at_random_it_ends_as_if_it_had_not_been(droste, serve, tmp_path, reference, number):
    """However the forks interleave in each life, no call whose answer is recorded is made again."""
    expected = measure(reference, Life(droste, serve(turns=TURNS), tmp_path))
    assert expected["calls"] == CALLS
    life = Life(droste, serve(turns=TURNS), tmp_path)
    killed = kill_at_random(life, random.Random(SEED + number), expected)
    check_paid_once(life, expected, killed)


def calls_of_forks(droste):
    return {call["fork"]: call for call in droste.record.calls if call["fork"]}


def test_each_fork_gets_its_own_answers_back(droste, serve, tmp_path):
    """The same prompt in two forks, with different recorded answers, in the other order: the answer
    belongs to the place of the fork, and without forks to the order."""
    life = Life(droste, serve(turns=[repl(
        "found = fork_map(lambda i: llm_query('same'), range(2), max_workers=1)\n"
        "SUBMIT(found + [llm_query('other')])")]), tmp_path)
    first = life.whole().json["answer"]
    same, other = first[0], first[2]
    assert first == [same, same, other] and same != other
    forks = calls_of_forks(droste)
    assert sorted(forks) == ["1:0", "1:1"] and forks["1:0"]["id"] < forks["1:1"]["id"]
    # Item 1 asked first then, and got an answer of its own.
    take_back(droste, "UPDATE cells SET status = 'running', ended_ms = NULL, submit = NULL",
              "UPDATE calls SET reply = (SELECT reply FROM calls WHERE request = (SELECT request "
              "FROM calls WHERE kind = 'sub' AND fork IS NULL) AND kind = 'sub') "
              "WHERE fork = '1:0'",
              "UPDATE calls SET fork = CASE fork WHEN '1:0' THEN '1:1' WHEN '1:1' THEN '1:0' END")
    asked = life.server.stats()["requests"]
    assert life.resume().json["answer"] == [same, other, other]
    assert life.server.stats()["requests"] == asked


def test_the_record_names_the_fork_of_a_call(droste, serve, tmp_path):
    """In the exported steps; calls of the cell itself have no such member."""
    life = Life(droste, serve(turns=[repl(
        "fork_map(lambda i: llm_query('x'), range(2), max_workers=1)\nSUBMIT(llm_query('z'))")]),
        tmp_path)
    assert life.whole().status == 0
    steps = [json.loads(line) for line in droste("runs", "export", life.id).out.splitlines()]
    assert [step.get("fork") for step in steps if step["type"] == "call" and step["kind"] == "sub"
            ] == ["1:0", "1:1", None]


def test_the_fork_of_a_call_and_of_a_child_run_is_shown(droste, ask):
    """by `runs show`; a call of the cell itself has none."""
    asked = ask([repl("fork_map(lambda i: llm_query('q%d' % i), range(2), max_workers=1)\n"
                      "fork_map(lambda i: rlm_query('run %d' % i), range(1))\n"
                      "SUBMIT(llm_query('q2'))"),
                 {"content": "a", "depth": 1}, {"content": "b", "depth": 1},
                 {"content": repl("SUBMIT(1)"), "depth": 1}, {"content": "c", "depth": 1}])
    assert asked.status == 0, asked.out
    shown = droste("runs", "show", asked.json["run"]).out
    assert "call of the cell: fork 1:0, ok" in shown and "fork 1:1, ok" in shown
    assert "of fork 2:0: run 0" in shown
    assert shown.count("call of the cell: ok") == 1
