"""`ask=` and `approvals=`: calls of tools that wait for an approval, in runs and sessions."""
import json
import threading

import pytest

import droste
from droste import ArgumentError, Interpreter, NotFoundError, RLM, runs


class Tool:
    """A tool that counts its executions."""

    def __init__(self):
        self.done = []

    def write(self, n: int):
        """Writes it."""
        self.done.append(n)
        return n * 10


TRIED = ("try: out = write(n=4)\n"
         "except Exception as e: out = '%s: %s' % (type(e).__name__, e)\nSUBMIT(out)")


@pytest.fixture
def tool():
    return Tool()


@pytest.fixture
def database(tmp_path):
    return str(tmp_path / "runs.db")


def scripted(messages):
    return "```repl\n%s\n```" % TRIED


def decide(*decisions):
    """A function of approvals that returns these, and keeps what it is asked."""
    def function(approval):
        function.asked.append(approval)
        return decisions[len(function.asked) - 1]
    function.asked = []
    return function


DECISIONS = pytest.mark.parametrize("decision, answer, done", [
    (True, 40, [4]), ((True, "fine"), 40, [4]),
    (False, "PermissionError: the call of write() was denied by the program", []),
    ((False, "no"), "PermissionError: the call of write() was denied by the program: no", []),
    ("yes", "PermissionError: the call of write() was denied by the program: TypeError: a function "
            "of approvals must return True, False or None, with a reason or without, not 'yes'",
     [])])


@DECISIONS
def test_a_function_decides_for_a_session(tool, decision, answer, done):
    function = decide(decision)
    with Interpreter(tools=[tool.write], ask=["write"], approvals=function) as interp:
        assert interp.execute(TRIED).output == answer and tool.done == done
    asked, = function.asked
    assert (asked.id, asked.run, asked.tool, asked.arguments) == (0, None, "write", {"n": 4})


@DECISIONS
def test_a_function_decides_for_a_run(tool, decision, answer, done, database):
    function = decide(decision)
    rlm = RLM(scripted, tools=[tool.write], ask=["write"], approvals=function, database=database)
    completion = rlm.run("q")
    assert completion.answer == answer and tool.done == done
    asked, = function.asked
    assert asked.run == completion.run and asked.arguments == {"n": 4} and asked.id
    found = runs.approval(asked.id, database=database)
    assert found.by == "the program" and found.decision == ("approved" if done else "denied")
    assert (found.begun is not None) == bool(done)


def test_an_async_function_decides(tool, database):
    import asyncio

    async def function(approval):
        await asyncio.sleep(0)
        return approval.arguments["n"] == 4

    async def both():
        async with Interpreter(tools=[tool.write], ask=["*"], approvals=function) as interp:
            result = await interp.aexecute(TRIED)
        rlm = RLM(scripted, tools=[tool.write], ask=["*"], approvals=function, database=database)
        return result.output, (await rlm.arun("q")).answer
    assert asyncio.run(both()) == (40, 40) and tool.done == [4, 4]


def test_other_tools_do_not_ask_and_a_fork_does(tool):
    function = decide(True, True)
    with Interpreter(tools={"write": tool.write, "read": lambda: 1}, ask=["write"],
                     approvals=function) as interp:
        assert interp.execute("SUBMIT(read())").output == 1 and function.asked == []
        with interp.fork() as fork:
            assert fork.execute(TRIED).output == 40
        assert interp.execute(TRIED).output == 40
    assert len(function.asked) == 2


def test_without_a_function_a_session_denies(tool):
    with Interpreter(tools=[tool.write], ask=["write"]) as interp:
        assert "PermissionError" in interp.execute(TRIED).output
    assert tool.done == []


def test_the_record_decides_for_a_run_that_waits(tool, database):
    """Another thread, as another process would; the function leaves it to others."""
    rlm = RLM(scripted, tools=[tool.write], ask=["write"], approvals=decide(None),
              database=database)

    def approve():
        while not runs.approvals(database=database):
            threading.Event().wait(0.02)
        asked, = runs.approvals(database=database)
        assert runs.approvals(asked.run, database=database) == [asked]
        assert runs.approve(asked.id, "fine", database=database).decision == "approved"
        with pytest.raises(ArgumentError, match="approved already"):
            runs.deny(asked.id, database=database)
    thread = threading.Thread(target=approve)
    thread.start()
    assert rlm.run("q").answer == 40 and tool.done == [4]
    thread.join()
    assert runs.approvals(database=database) == []
    with pytest.raises(NotFoundError):
        runs.approve(10 ** 9, database=database)


def test_mistakes_are_named(tool, database):
    with pytest.raises(ArgumentError, match="function of an Approval"):
        RLM(scripted, approvals=True)
    with pytest.raises(droste.Error, match="no tool of this name"):
        RLM(scripted, tools=[tool.write], ask=["wirte"], database=database).run("q")
    with Interpreter(tools=[tool.write], ask=["wirte"]) as interp:
        with pytest.raises(droste.Error, match="no tool of this name"):
            interp.execute("1")
    assert json.dumps(tool.done) == "[]"
