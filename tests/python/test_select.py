"""Selectors of candidates that are Python functions."""
import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import threading

import pytest

import droste
from droste import RLM

COUNT = 3


def model(messages):
    """The first turn's candidates print 1, 2 and 3; those of the second submit what was kept."""
    if len(messages) > 2:
        return "```repl\nSUBMIT(x)\n```"
    model.asked += 1
    return "reply %d\n```repl\nx = %d\nprint('printed', x)\n```" % (model.asked, model.asked)


@pytest.fixture
def rlm(tmp_path):
    model.asked = 0

    def make(select, **settings):
        return RLM(model=model, candidates=COUNT, select=select,
                   database=str(tmp_path / "runs.db"), **settings)
    return make


def third(found):
    return next((c for c in found if "printed 3" in c.output), found[0])


async def third_later(found):
    await asyncio.sleep(0)
    return third(found).number


@pytest.mark.parametrize("select", [third, third_later])
def test_the_function_chooses(rlm, select):
    """It gets all candidates with what they said, printed and submit; the run goes on with the one
    that it returns, and the record says why."""
    seen = []

    def spied(found):
        seen.append(found)
        return select(found)

    async def spied_later(found):
        seen.append(found)
        return await select(found)
    one = rlm(spied if select is third else spied_later)
    completion = one.completion("q")
    assert completion.answer == 3
    assert [c.number for c in seen[0]] == [1, 2, 3]
    assert {c.reply.split("\n")[0] for c in seen[0]} == {"reply 1", "reply 2", "reply 3"}
    assert [(c.answer, c.failed) for c in seen[0]] == [(None, False)] * COUNT
    assert [c.answer for c in seen[1]] == [3] * COUNT
    with sqlite3.connect(one_database(one)) as record:
        kept = record.execute("SELECT reason FROM turns").fetchall()
    assert kept == [("the program chose it",)] * 2


def one_database(rlm):
    return dict(rlm._pairs)["database"]


def test_within_asyncio(rlm):
    """Two runs at once have selectors of their own."""
    seen = {}

    def chooses(name):
        async def choose(found):
            seen.setdefault(name, []).append([c.reply for c in found])
            return found[-1]
        return choose

    async def both():
        return await asyncio.gather(*(rlm(chooses(name)).arun("q") for name in "ab"))
    for name, completion in zip("ab", asyncio.run(both())):
        first, second = seen[name]
        assert completion.answer == int(first[-1].split()[1]) and len(second) == COUNT
    assert not set(seen["a"][0]) & set(seen["b"][0])


@pytest.mark.parametrize("select, message", [
    (lambda found: 9, "chose candidate 9"),
    (lambda found: 0, "must return a candidate or its number"),
    (lambda found: None, "must return a candidate or its number"),
    (lambda found: 1 / 0, "ZeroDivisionError"),
])
def test_a_selector_that_fails_ends_the_run(rlm, select, message):
    with pytest.raises(droste.Error, match=message):
        rlm(select).run("q").raise_for_status()


def test_a_run_that_is_cancelled_while_it_chooses_ends(rlm):
    """What is chosen afterwards disturbs nothing."""
    go, asked = threading.Event(), threading.Event()

    async def cancelled():
        run = asyncio.ensure_future(rlm(slow).arun("q"))
        await asyncio.get_running_loop().run_in_executor(None, asked.wait)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        go.set()
        model.asked = 0
        return await rlm(third).arun("q")

    def slow(found):
        asked.set()
        go.wait(60)
        return 1

    assert asyncio.run(cancelled()).answer == 3


KILLED = r"""
import os, signal, sys
from droste import RLM

def select(found):
    select.turns += 1
    if select.turns == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return 3

select.turns = 0
asked = 0

def model(messages):
    global asked
    asked += 1
    os.write(1, b"asked\n")     # at once: others are asked in threads of their own
    if len(messages) > 2:
        return "```repl\nSUBMIT(x)\n```"
    return "```repl\nx = %d\nprint('printed', x)\n```" % asked

RLM(model=model, candidates=3, select=select, database=sys.argv[1]).run("q")
"""


def test_a_killed_run_is_resumed_through_its_tree(rlm, tmp_path):
    """Killed while the function chooses in the second turn: the first turn's choice stands, the
    function is asked for the second alone, and the model for nothing."""
    database = str(tmp_path / "runs.db")
    environment = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(droste.__file__))}
    died = subprocess.run([sys.executable, "-c", KILLED, database], env=environment,
                          capture_output=True, text=True, timeout=120)
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert died.stdout.split() == ["asked"] * (2 * COUNT)
    with sqlite3.connect(database) as record:
        (run,), = record.execute("SELECT id FROM runs").fetchall()
        assert record.execute("SELECT kept FROM turns ORDER BY turn").fetchall() == [(3,), (None,)]
    seen = []

    def second(found):
        seen.append([c.answer for c in found])
        return 2
    completion = rlm(second).resume(run)
    (x,), = {tuple(answers) for answers in map(set, seen)}
    assert completion.answer == x and len(seen) == 1 and model.asked == 0
    with sqlite3.connect(database) as record:
        assert record.execute("SELECT kept FROM turns ORDER BY turn").fetchall() == [(3,), (2,)]


def test_the_command_line_has_no_function(tmp_path):
    with pytest.raises(droste.ConfigError, match="is a function of a program"):
        RLM(model=model, candidates=2, select="callback:7", database="none").run("q")
