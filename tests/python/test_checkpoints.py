"""Checkpoints: states of a session to go back to, made by hand and before each cell."""
import asyncio

import pytest

import droste
from deadlines import DEAF, cut_short
from droste import Interpreter
from hostile_guest import PATCH

THREAD = ("import threading; e = threading.Event()\n"
          "threading.Thread(target=e.wait, name='w').start()")
DIE = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"


@pytest.fixture
def interp():
    with Interpreter() as made:
        yield made


def value(interp, name):
    return interp.execute("SUBMIT(v=%s)" % name).v


# -- by hand

def test_rolling_back_restores_variables(interp):
    """Several times, and in any order; a checkpoint stays as it was."""
    interp.execute("x = [1]")
    first = interp.checkpoint()
    interp.execute("x.append(2)")
    second = interp.checkpoint()
    interp.execute("x.clear()")
    interp.rollback(second)
    assert value(interp, "x") == [1, 2]
    interp.rollback(first)
    interp.execute("x.append(3)")
    with interp.at(second) as beside:
        assert value(beside, "x") == [1, 2]
        beside.execute("x.clear()")
    assert value(interp, "x") == [1, 3]
    for _ in range(3):
        interp.rollback(second)
        interp.execute("x.append(9)")
        assert value(interp, "x") == [1, 2, 9]


def test_a_checkpoint_survives_what_kills_the_session(level):
    """A kill at a deadline, and then an exit: the session continues from its checkpoint."""
    with Interpreter(isolation=level, grace=0.1) as interp:
        interp.execute("x = 1")
        checkpoint = interp.checkpoint()
        for death, status in ((DEAF + "while True: pass", "timeout"),
                              ("import os; os._exit(3)", "killed")):
            r = (cut_short(interp, death, lambda result: not result.alive) if status == "timeout"
                 else interp.execute(death))
            assert (r.status, r.alive, r.rolled_back) == (status, False, None)
            interp.rollback(checkpoint)
            assert interp.alive
            assert interp.execute("x += 1; SUBMIT(x=x)").x == 2


def test_checkpoints_form_a_tree(interp):
    """Each has the one before it as its parent; after going back, a second branch begins there.
    What is forgotten leaves its children to its parent."""
    assert interp.checkpoints() == []
    interp.execute("x = 1")
    root = interp.checkpoint()
    interp.execute("x = 2")
    left = interp.checkpoint()
    interp.rollback(root)
    right = interp.checkpoint()
    while not all(c.memory > 0 for c in interp.checkpoints()):
        interp.execute("1")     # meanwhile the host hears that the last fork has begun
    tree = {c.id: c for c in interp.checkpoints()}
    assert [(c.id, c.parent, c.current) for c in tree.values()] == [
        (root, 0, False), (left, root, False), (right, root, True)]
    assert tree[root].cell == tree[right].cell < tree[left].cell
    interp.forget(root)
    assert [(c.id, c.parent) for c in interp.checkpoints()] == [(left, 0), (right, 0)]
    interp.rollback(left)
    assert value(interp, "x") == 2


def test_what_is_not_a_checkpoint_is_refused_with_those_that_are(interp):
    first = interp.checkpoint()
    for call in (interp.rollback, interp.at, interp.forget):
        with pytest.raises(droste.NotFoundError, match="no checkpoint 7; there are: %d$" % first):
            call(7)
        with pytest.raises(droste.ArgumentError, match="the int that checkpoint"):
            call("1")
    interp.forget(first)
    with pytest.raises(droste.NotFoundError, match="there are: none"):
        interp.rollback(first)


def test_the_number_of_checkpoints_is_bounded_by_that_of_processes():
    """The error says so, and nothing is lost; what is forgotten makes room."""
    with Interpreter(isolation="full", processes=8) as interp:
        interp.execute("x = 1")
        kept = [interp.checkpoint(), interp.checkpoint()]
        with pytest.raises(droste.ArgumentError, match="forking the session.*processes"):
            for _ in range(3):
                kept.append(interp.checkpoint())
        assert value(interp, "x") == 1
        interp.forget(kept.pop())
        assert interp.checkpoints()[-1].id == kept[-1]


def test_the_memory_of_checkpoints_is_bounded():
    """What changes after a checkpoint is its own: over the limit, no other is made until one is
    forgotten."""
    with Interpreter(checkpoint_memory="40M") as interp:
        kept = []
        with pytest.raises(droste.ArgumentError,
                           match="hold .* MB; forget some, or raise --checkpoint-memory"):
            for n in range(20):
                interp.execute("data = bytearray(b'%d') * 10_000_000" % (n % 10))
                kept.append(interp.checkpoint())
        assert 2 <= len(kept) < 20
        for checkpoint in kept:
            interp.forget(checkpoint)
        interp.checkpoint()


def test_tools_and_types_of_answers_are_those_of_the_session(interp):
    """Not those of the checkpoint: what was offered since is there, and is called."""
    interp.tools["double"] = lambda x: 2 * x
    assert interp.execute("SUBMIT(v=double(2))").v == 4
    checkpoint = interp.checkpoint()
    interp.tools["triple"] = lambda x: 3 * x
    interp.output_fields = ["w"]
    assert interp.execute("SUBMIT(w=triple(2))").w == 6
    interp.rollback(checkpoint)
    assert interp.execute("SUBMIT(w=triple(3) + double(1))").w == 11
    assert interp.execute("SUBMIT(v=1)").error.type in ("AnswerError", "TypeError")


def test_large_values_are_sent_again_after_going_back(interp):
    """The session knows no longer what was sent after the checkpoint."""
    checkpoint = interp.checkpoint()
    text = "x" * 100000
    assert interp.execute("SUBMIT(n=len(t))", {"t": text}).n == 100000
    interp.rollback(checkpoint)
    assert interp.execute("SUBMIT(n=len(t))", {"t": text}).n == 100000


def test_files_work_after_going_back(interp):
    """They are the sandbox's: the ones written since are there, before and after the session that
    wrote them is gone."""
    checkpoint = interp.checkpoint()
    interp.files.write("/tmp/a", b"1")
    interp.rollback(checkpoint)
    assert interp.files.read("/tmp/a") == b"1"
    interp.execute("import os; os._exit(1)")
    interp.rollback(checkpoint)
    assert interp.files.read("/tmp/a") == b"1"


def test_threads_prevent_a_checkpoint_and_end_with_a_rollback(interp):
    interp.execute("x = 1")
    checkpoint = interp.checkpoint()
    interp.execute(THREAD)
    with pytest.raises(droste.ArgumentError, match="threads run: w"):
        interp.checkpoint()
    interp.rollback(checkpoint)
    interp.forget(interp.checkpoint())


def test_a_forks_checkpoints_are_its_own(interp):
    interp.checkpoint()
    with interp.fork() as fork:
        assert fork.checkpoints() == []
        fork.execute("x = 5")
        own = fork.checkpoint()
        fork.execute("del x")
        interp.shutdown()
        fork.rollback(own)
        assert value(fork, "x") == 5


def test_checkpoints_within_asyncio():
    """The same functions, awaited."""
    async def main():
        async with Interpreter() as interp:
            await interp.execute("x = 1")
            checkpoint = await interp.checkpoint()
            await interp.execute("x = 2")
            await interp.rollback(checkpoint)
            fork = await interp.at(checkpoint)
            seen = [(await i.execute("x += 1; SUBMIT(x=x)")).x for i in (interp, fork, fork)]
            await fork.ashutdown()
            await interp.execute("import os; os._exit(1)")
            await interp.rollback(checkpoint)
            seen.append((await interp.execute("SUBMIT(x=x)")).x)
            with pytest.raises(droste.NotFoundError):
                await interp.rollback(99)
            interp.forget(checkpoint)
            return seen
    assert asyncio.run(main()) == [2, 2, 3, 1]


# -- a hostile guest

@pytest.mark.parametrize("act", [
    "os.write(3, b'?' * 64)",  # no frame at all
    "os.write(3, struct.pack('<BBHIQQ', 1, 17, 0, 0, 0, 0))\n        "
    "os.write(3, struct.pack('<BBHIQQ', 1, 19, 0, 2, 1, 0) + b'{}')",  # ready, then a call
    "os._exit(0)",
])
def test_a_checkpoint_that_acts_is_lost_alone(level, act):
    """Its code runs in it all the same, but the host hears only answers: the session and the other
    checkpoints go on."""
    with Interpreter(isolation=level) as interp:
        interp.execute(PATCH + "import time\nx = 1")
        good = interp.checkpoint()
        interp.execute("class Acts(Kept):\n    def zygote_fork(self, status, ident):\n"
                       "        if not fork_by_hand(status): return UNANSWERED\n"
                       "        %s\n        time.sleep(1000)\nstate.library = Acts()" % act)
        bad = interp.checkpoint()
        assert value(interp, "x") == 1
        with pytest.raises(droste.Error):
            for _ in range(1000):      # until the host has heard of it
                interp.rollback(bad)
                interp.execute("time.sleep(0.01)", timeout=1).raise_for_status()
        interp.rollback(good)
        interp.execute("x += 1")
        assert value(interp, "x") == 2


# -- before each cell

def test_a_killed_cell_is_undone(level):
    """By a deadline, a signal and an exit; the result says what the session went back to, and the
    session goes on."""
    with Interpreter(isolation=level, checkpoint="auto", grace=0.1) as interp:
        interp.execute("x = [1]")
        traceback = interp.execute("1 / 0").error.traceback
        number = int(traceback.split("<cell ")[1].split(">")[0])
        r = cut_short(interp, DEAF + "x.append(2)\nwhile True: pass",
                      lambda result: result.rolled_back is not None)
        assert (r.status, r.alive, r.rolled_back) == ("timeout", True, number)
        assert r.error.message.endswith("was killed; rolled back to cell %d" % number)
        assert r.json["rolled_back"] == number
        for death in (DIE, "import os; os._exit(3)"):
            r = interp.execute("x.append(2); " + death)
            assert (r.status, r.alive, r.rolled_back) == ("killed", True, number)
        assert value(interp, "x") == [1]


def test_a_cell_that_ends_is_not_undone():
    """Its errors and timeouts that keep the variables do not go back; without the setting, a kill
    ends the session."""
    with Interpreter(checkpoint="auto", grace=60) as interp:
        r = interp.execute("x = 1; 1 / 0")
        assert (r.status, r.rolled_back) == ("error", None) and r.json["rolled_back"] is None
        r = cut_short(interp, "x += 1\nwhile True: pass", lambda result: value(interp, "x") == 2)
        assert (r.status, r.rolled_back) == ("timeout", None)
        assert value(interp, "x") == 2
    with Interpreter() as interp:
        r = interp.execute(DIE)
        assert (r.alive, r.rolled_back) == (False, None)


def test_the_limit_of_memory_undoes_the_cell():
    """Of processes that the cell has started, since a single one gets a MemoryError."""
    code = ("import os, time\nx.append(2)\nfor _ in range(8):\n    if os.fork() == 0:\n"
            "        data = bytearray(os.urandom(4096) * 12800); time.sleep(1000)\n"
            "time.sleep(1000)")
    with Interpreter(checkpoint="auto", memory="200M") as interp:
        interp.execute("x = [1]")
        r = interp.execute(code, timeout=60)
        assert (r.status, r.json["killed"], r.alive) == ("killed", "memory", True), r.error
        assert r.rolled_back is not None
        assert value(interp, "x") == [1]


def test_before_the_first_cell():
    """What was set up and bound before it is still there."""
    with Interpreter(checkpoint="auto", setup_code="y = 5") as interp:
        r = interp.execute("y = 6; " + DIE)
        assert r.rolled_back == 0
        assert "rolled back to the state before the first cell" in str(r.error)
        assert value(interp, "y") == 5


def test_a_state_that_cannot_be_kept_is_named():
    """A running thread: the cell runs all the same; if it is killed, the error says why the session
    did not go back."""
    with Interpreter(checkpoint="auto") as interp:
        interp.execute(THREAD)
        assert interp.execute("SUBMIT(x=1)").x == 1
        r = interp.execute(DIE)
        assert (r.alive, r.rolled_back) == (False, None)
        assert "no checkpoint: the session cannot be forked while threads run: w" in r.error.message


def test_the_lifetime_of_a_session_is_not_prolonged():
    """Its end is not an end of a cell: the session is over, whatever was kept."""
    with Interpreter(checkpoint="auto", timeout=1) as interp:
        r = interp.execute("while True: pass")
        assert (r.status, r.alive, r.rolled_back) == ("timeout", False, None)


def test_a_guest_that_breaks_the_protocol_is_not_continued():
    with Interpreter(checkpoint="auto") as interp:
        r = interp.execute("import os\nos.write(3, b'?' * 64)\nimport time; time.sleep(60)")
        if r.ok:
            pytest.skip("descriptor 3 is not the channel")
        assert (r.json["killed"], r.alive, r.rolled_back) == ("protocol", False, None)


def test_an_environment_without_forks_refuses_the_setting(tmp_path):
    with pytest.raises(droste.ArgumentError, match="checkpoint"):
        Interpreter(checkpoint="always").start()
