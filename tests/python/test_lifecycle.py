"""How sessions begin and end: again after a shutdown, and within asyncio only after what was
submitted."""
import asyncio
import os
import subprocess
import sys
import threading
import warnings

import pytest

import droste
from droste import Interpreter
from droste.compat import DaytonaInterpreter, ModalInterpreter

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
KINDS = [Interpreter, ModalInterpreter, DaytonaInterpreter]


@pytest.fixture(autouse=True)
def local(monkeypatch, tmp_path):
    """Every class opens local sessions, with volumes of the test's own."""
    monkeypatch.setenv("DROSTE_ENVIRONMENT", "local")
    monkeypatch.setenv("DROSTE_VOLUME_ROOT", str(tmp_path / "volumes"))


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 60))


# -- starting again

@pytest.mark.parametrize("kind", KINDS)
def test_a_start_after_a_shutdown_is_a_fresh_session(kind):
    """With the same settings, tools and fields, and without the variables; texts of the old one are
    sent again."""
    printed, big = [], "x" * 100000
    interp = kind(tools={"f": lambda: 7}, model=lambda messages: "said", on_output=lambda stream,
                  text: printed.append(text),
                  output_fields=["a"], setup_code="import math")
    for _ in range(3):
        interp.start()
        assert interp.execute("SUBMIT(a=[len(big), f(), llm_query('q'), math.pi > 3])",
                              {"big": big}).a == [100000, 7, "said", True]
        interp.output_fields = None
        assert interp.execute("print('here', flush=True); 'old' in globals()").echo == "False"
        interp.output_fields = ["a"]
        interp.execute("old = 1")
        interp.shutdown()
        assert not interp.alive and repr(interp) == "<%s: closed>" % kind.__name__
    assert "".join(printed) == "here\n" * 3
    with interp:
        assert interp.execute("SUBMIT(a=f())").a == 7
    assert not interp.alive


@pytest.mark.parametrize("kind", KINDS)
def test_a_start_after_a_shutdown_is_a_fresh_session_within_asyncio(kind):
    """Awaited and not, and as a context; also one that begins on another loop."""
    interp = kind(tools={"f": lambda: 7})

    async def main():
        for _ in range(2):
            await interp.start()
            assert (await interp.execute("kept = 1; SUBMIT(a=f())")).a == 7
            await interp.shutdown()
            interp.start()
            assert interp.execute("SUBMIT(a='kept' in globals())").a is False
            interp.shutdown()
            async with interp:
                assert (await interp.execute("SUBMIT(a='kept' in globals())")).a is False

    run(main())
    run(main())
    interp.start()
    assert interp.execute("SUBMIT(a=f())").a == 7
    interp.shutdown()


def test_a_cell_does_not_open_a_session_again():
    """Its variables would be gone without a word; the error says what does."""
    interp = Interpreter()
    interp.start()
    interp.shutdown()
    for use in (lambda: interp.execute("1"), lambda: interp.set("x", 1), lambda: interp.get("x"),
                lambda: interp.load("x", __file__)):
        with pytest.raises(droste.Error, match=r"was shut down; start\(\) opens a fresh session"):
            use()
    assert not interp.alive


SHIM = """#!/bin/sh
echo run >> "$0.runs"
read line < "$0.fifo"
exec %s "$@"
"""


@pytest.fixture
def shim(tmp_path):
    """A script in an interpreter's place, as version managers have it, which waits until it is told
    to go on."""
    path = tmp_path / "python3"
    path.write_text(SHIM % os.path.realpath(sys.executable))
    path.chmod(0o755)
    os.mkfifo(str(path) + ".fifo")
    return path


def test_the_first_start_does_not_hold_up_the_loop(shim):
    """The script waits for a coroutine of the loop that starts sessions with it; it is asked once,
    for all of them."""
    async def main():
        sessions = [Interpreter(python=str(shim)) for _ in range(5)]
        opening = asyncio.gather(*[session.astart() for session in sessions])
        await asyncio.get_running_loop().run_in_executor(
            None, (shim.parent / "python3.fifo").write_text, "go on\n")
        await opening
        assert [(await session.execute("%d" % n)).echo
                for n, session in enumerate(sessions)] == list("01234")
        assert len({id(session._engine) for session in sessions}) == 1
        for session in sessions:
            await session.shutdown()

    ticks = []
    thread = threading.Thread(target=lambda: ticks.append(run(main())), daemon=True)
    thread.start()
    thread.join(60)
    assert ticks == [None] and (shim.parent / "python3.runs").read_text() == "run\n"
    droste.close_idle_engines()


def test_a_guest_that_cannot_boot_fails_the_start(tmp_path):
    async def main():
        for _ in range(2):
            with pytest.raises(droste.NotFoundError, match="is not an executable file"):
                await Interpreter(python=str(tmp_path / "nowhere")).astart()
    run(main())


# -- ending

SLOW = "import time; time.sleep(0.3); open('/data/%s', 'a').write('%s')"


def test_leaving_with_finishes_what_was_submitted():
    """In order, and the session is open until then; the next one on the volume begins after it,
    opened either way."""
    async def main():
        with ModalInterpreter(volume_name="v") as interp:
            interp.execute(SLOW % ("f", "1"))
            last = interp.execute(SLOW % ("f", "2"))
        assert not last.done and not interp.alive
        with pytest.raises(droste.Error, match="was shut down"):
            interp.execute("1")
        with ModalInterpreter(volume_name="v") as interp:
            assert interp.execute("SUBMIT(text=open('/data/f').read())").text == "12"
            interp.execute(SLOW % ("f", "3"))
        async with ModalInterpreter(volume_name="v") as interp:
            assert (await interp.execute("SUBMIT(text=open('/data/f').read())")).text == "123"
            interp.execute(SLOW % ("f", "4"))
        with interp:
            assert interp.execute("SUBMIT(text=open('/data/f').read())").text == "1234"
        assert last.done
    run(main())


def test_leaving_with_does_not_stop_the_loop():
    """Its last cell waits for a coroutine of the loop, and a session without that volume opens
    meanwhile."""
    async def main():
        asked, say = asyncio.Event(), asyncio.Event()

        async def tool():
            asked.set()
            await say.wait()
            return "said"

        with Interpreter(tools=[tool], volume_name="v") as interp:
            result = interp.execute("SUBMIT(value=tool())")
        await asked.wait()
        with Interpreter(volume_name="other") as other:
            assert (await other.execute("1")).ok
        say.set()
        assert (await result).value == "said"
    run(main())


@pytest.mark.parametrize("end", ["exit", "shutdown", "aexit"])
def test_an_awaited_end_comes_after_what_was_submitted(end):
    """`async with`, and `await shutdown()`."""
    async def main():
        ran = []
        interp = Interpreter(tools=[ran.append])
        if end == "aexit":
            async with interp:
                interp.execute("import time; time.sleep(0.2); append(1)")
        else:
            interp.execute("import time; time.sleep(0.2); append(1)")
            await (interp.shutdown() if end == "shutdown" else interp.ashutdown())
        assert ran == [1] and interp._session is None
    run(main())


def test_a_block_that_raises_cancels_its_cells():
    """With both kinds of `with`; the cell that runs would do so for ever."""
    async def main():
        with pytest.raises(LookupError):
            with Interpreter() as interp:
                first, second = interp.execute("while True: pass"), interp.execute("1")
                raise LookupError
        with pytest.raises(LookupError):
            async with Interpreter() as other:
                third = other.execute("while True: pass")
                raise LookupError
        for result in (first, second, third):
            with pytest.raises(droste.Cancelled):
                await result
        assert interp._session is None and other._session is None
    run(main())


def test_cancelling_who_awaits_the_end_cancels_the_cells():
    async def main():
        interp = Interpreter()
        pending = interp.execute("while True: pass")
        ending = asyncio.ensure_future(interp.ashutdown())
        await asyncio.sleep(0)
        ending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await ending
        with pytest.raises(droste.Cancelled):
            await pending
    run(main())


def script(code, tmp_path):
    return subprocess.run([sys.executable, "-c",
                           "import asyncio, droste\nfrom droste import Interpreter\n" + code],
                          env={**os.environ, "PYTHONPATH": os.path.join(ROOT, "python")},
                          cwd=str(tmp_path),
                          capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    "then", ["", "with Interpreter(volume_name='v') as interp: interp.execute('1')\nprint(text())",
             "with Interpreter() as interp: interp.execute('1')\nprint(text())"],
    ids=["the end of the process", "a session on the volume", "a session"])
@pytest.mark.parametrize("loop", ["asyncio.run(main())\nprint(text())",
                                  "l = asyncio.new_event_loop(); l.run_until_complete(main()); "
                                  "l.close()"],
                         ids=["asyncio.run", "closed without its tasks"])
def test_the_end_of_a_loop_loses_nothing(loop, then, tmp_path):
    """asyncio.run() returns when all is done; where a loop is closed at once, the next session or
    the end of the process finishes it. Nothing is printed about it."""
    done = script("""
import glob
def text():
    return open(glob.glob("volumes/**/f", recursive=True)[0]).read()
async def main():
    with Interpreter(volume_name="v") as interp:
        interp.execute("import time; time.sleep(0.3); open('/data/f', 'a').write('1')")
        interp.execute("import time; time.sleep(0.3); open('/data/f', 'a').write('2')")
%s
%s
""" % (loop, then), tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout in ("12\n" * done.stdout.count("\n"), "")
    (found,) = (tmp_path / "volumes").glob("**/f")
    assert found.read_text() == "12"


def test_a_tool_may_open_a_session_on_the_volume_of_its_own():
    """One that is ending does not wait for what its own code opens."""
    async def main():
        async def tool():
            async with Interpreter(volume_name="v") as inner:
                return (await inner.execute("SUBMIT(a=1)")).a

        with Interpreter(volume_name="v", tools=[tool], execute_timeout=30) as interp:
            result = interp.execute("SUBMIT(a=tool())")
        assert (await result).a == 1
    run(main())


def test_unread_failures_cause_a_warning():
    """The code's, and those of the session; not those that were read, and not what succeeded."""
    async def main():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            async with Interpreter() as interp:
                interp.execute("\n1 / 0  # here")
                interp.execute("1")
                read = interp.execute("read_later")
                assert interp.execute("nowhere").status == "error"
                assert not (await interp.execute("nowhere")).ok
            assert read.error.type == "NameError"
            async with Interpreter() as interp:
                interp.execute("import os; os._exit(3)")
                interp.execute("2")
            return [str(w.message) for w in caught if w.category is RuntimeWarning]
    warned = run(main())
    assert len(warned) == 3, warned
    assert "ZeroDivisionError: division by zero (the cell: '1 / 0  # here')" in warned[0]
    assert all(any(words in text for text in warned[1:])
               for words in ("os._exit(3)", "the cell: '2'")), warned


# -- reading without await

def test_print_shows_the_result_and_repr_does_not_wait():
    """`print(interp.execute(...))` in a notebook."""
    async def main():
        with Interpreter() as interp:
            pending = interp.execute("1 + 1")
            assert "await it" in repr(pending) and not pending.done
            assert str(pending) == repr(pending) == "<Result: ok, 2>" and "%s" % interp.execute(
                "2 + 1") == "<Result: ok, 3>"
    run(main())


@pytest.mark.parametrize("code", ["tool()", "llm_query('q')"])
def test_reading_what_a_coroutine_of_this_loop_is_awaited_for_is_refused(code):
    """Each would wait for the other; so would starting again. Awaiting it is fine."""
    async def main():
        asked, say = asyncio.Event(), asyncio.Event()

        async def tool():
            asked.set()
            await say.wait()
            return "said"

        async def model(messages):
            return await tool()

        interp = Interpreter(tools=[tool], model=model)
        result = interp.execute("SUBMIT(value=%s)" % code)
        await asked.wait()
        interp.shutdown()
        for use in (lambda: result.value, lambda: str(result), interp.start):
            with pytest.raises(droste.Error, match="waits for the tool 'tool'" if "tool" in code
                               else "waits for the model 'model'") as refused:
                use()
            assert "await the result" in str(refused.value)
        say.set()
        assert (await result).value == "said"
        await interp.astart()
        assert (await interp.execute("1")).ok
        await interp.shutdown()
    run(main())


def test_a_listener_cannot_wait_for_a_result():
    """It runs within the engine; the cell goes on."""
    refused = []

    async def main():
        def listen(stream, text):
            try:
                other.execute("1").ok
            except droste.Error as e:
                refused.append(str(e))

        async with Interpreter(on_output=listen) as interp, Interpreter() as other:
            assert (await interp.execute("print(1, flush=True); 2")).echo == "2"
            assert (await other.execute("2")).echo == "2"
    run(main())
    assert refused and "cannot wait for a result" in refused[0]
