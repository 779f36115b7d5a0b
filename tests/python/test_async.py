"""Within asyncio: the same objects, on the running loop, many at once."""
import asyncio
import errno
import os
import socket
import threading

import pytest

import droste
from droste import Interpreter
from droste.training import ReplBackend


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 60))


def started_with(event):
    """A tool by which a cell says that it runs."""
    async def started():
        event.set()
    return started


def test_every_call_may_be_awaited():
    async def main():
        interp = Interpreter()
        await interp.start()
        result = await interp.execute("SUBMIT(answer=42)")
        assert (result.answer, await result is result) == (42, True)
        await interp.set("x", "text")
        assert (await interp.aexecute("x")).echo == "'text'"
        await interp.shutdown()
        await interp.shutdown()
        async with Interpreter() as other:
            assert (await other.execute("1")).ok
        assert not other.alive and repr(other) == "<Interpreter: closed>"
        with pytest.raises(LookupError):
            async with Interpreter() as failed:
                raise LookupError
        assert not failed.alive
    run(main())


def test_many_sessions_run_at_once():
    """Two hundred sessions, each of which waits in a tool for all others: none could, one after the
    other."""
    async def main():
        count, there, all_there = 200, [0], asyncio.Event()

        async def meet(n: int) -> int:
            there[0] += 1
            if there[0] == count:
                all_there.set()
            await all_there.wait()
            return n

        async def one(n):
            async with Interpreter(tools=[meet]) as interp:
                await interp.execute("x = %d" % n)
                return (await interp.execute("SUBMIT(n=meet(x))")).n

        assert await asyncio.gather(*[one(n) for n in range(count)]) == list(range(count))
    run(main())


def test_operations_of_one_session_take_their_turn():
    async def main():
        async with Interpreter(setup_code="log = []") as interp:
            results = [interp.execute("log.append(%d); SUBMIT(log=log)" % n) for n in range(5)]
            await asyncio.gather(*results)
            assert results[-1].log == [0, 1, 2, 3, 4]
    run(main())


def test_a_result_that_was_not_awaited_is_kept():
    """As in a notebook, whose cells run within a loop; also what was started before."""
    async def main():
        interp = Interpreter()
        interp.execute("x = 20")
        pending = interp.execute("import time; time.sleep(0.2); x += 1")
        result = interp.execute("SUBMIT(x=x * 2)")
        assert not pending.done and repr(pending).startswith("<Result: running; await it")
        assert result.x == 42 and pending.done
        interp.shutdown()
    run(main())


@pytest.mark.parametrize("code", ["f()", "later()", "llm_query('q')", "coroutine('q')"])
def test_a_result_that_holds_up_the_loop_has_its_tools_and_models(code):
    """What code calls is answered while somebody waits without `await` in the loop's own thread: in
    threads."""
    async def later():
        await asyncio.sleep(0.01)
        return "said"

    async def answer(messages):
        return await later()

    async def main():
        with Interpreter(tools={"f": lambda: "said", "later": later}, execute_timeout=50,
                         model=answer if code.startswith("c")
                         else lambda messages: "said") as interp:
            assert interp.execute(code.replace("coroutine", "llm_query")).echo == "'said'"
            assert (await interp.execute(code.replace("coroutine", "llm_query"))).echo == "'said'"
    run(main())


def test_an_interrupt_is_of_the_cell_under_way():
    """Not of the next one, where nothing was."""
    async def main():
        running = asyncio.Event()
        async with Interpreter(tools={"started": started_with(running)}, grace=60) as interp:
            await interp.execute("import time")
            interp.interrupt()
            assert (await interp.execute("time.sleep(0.2); 5")).echo == "5"
            pending = interp.execute("started()\nwhile True: pass")
            await running.wait()
            interp.interrupt()
            assert (await pending).error.type == "KeyboardInterrupt"
    run(main())


def test_files_are_loaded_after_what_was_started(tmp_path):
    (tmp_path / "f").write_text("text")

    async def main():
        async with Interpreter() as interp:
            first = interp.execute("import time; time.sleep(0.2); n = 1")
            second = interp.execute("n += 1")
            interp.load("v", tmp_path / "f")
            assert first.done and second.done and (
                await interp.execute("v, n")).echo == "('text', 2)"
    run(main())


def test_a_tool_cannot_wait_for_its_own_session():
    """A coroutine and a function in a thread are told so at once."""
    async def main():
        async def again():
            return (await interp.execute("1")).echo

        async with Interpreter(tools={"again": again, "f": lambda: interp.execute("1").echo},
                               execute_timeout=50) as interp:
            for code in ("again()", "f()"):
                error = (await interp.execute(code)).error
                assert error.type == "ToolError" and "each would wait" in error.message
    run(main())


def test_a_start_that_was_cancelled_leaves_no_session():
    async def main():
        interp = Interpreter(setup_code="while True: pass")
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(interp.astart(), 0.3)
        with pytest.raises(droste.Cancelled, match="opening"):
            await interp.execute("1")
        interp.shutdown()
    run(main())


def test_no_cell_runs_after_setup_code_that_failed_or_was_cancelled():
    """Those that were asked for while it ran neither: each has the error of the setup code."""
    async def main():
        ran = []
        interp = Interpreter(setup_code="import time; time.sleep(0.2); 1 / 0", tools=[ran.append])
        first, second = interp.execute("append('first')"), interp.set("x", 1)
        for asked in (first, second):
            with pytest.raises(droste.ConfigError, match="ZeroDivisionError"):
                await asked
        interp.shutdown()

        interp = Interpreter(setup_code="import time; time.sleep(60)", tools=[ran.append])
        opening = asyncio.ensure_future(interp.astart())
        await asyncio.sleep(0)
        cell = interp.execute("append('cell')")
        opening.cancel()
        with pytest.raises(droste.Cancelled, match="opening the session was cancelled"):
            await cell
        interp.shutdown()

        async with Interpreter(setup_code="import time; time.sleep(0.2)",
                               tools=[ran.append]) as interp:
            await interp.execute("append('allowed')")
        assert ran == ["allowed"]
    run(main())


def test_a_cancelled_wait_interrupts_its_cell_only():
    """The cell stops, its variables stay, other sessions go on."""
    async def main():
        running, go_on = asyncio.Event(), asyncio.Event()

        async def wait():
            await go_on.wait()

        async with Interpreter(tools={"started": started_with(running)}, grace=60) as interp, \
                Interpreter(tools=[wait]) as other:
            beside = other.execute("wait()\n'done'")
            waits = asyncio.ensure_future(interp.aexecute("x = 1\nstarted()\nwhile True: pass"))
            await running.wait()
            waits.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waits
            assert (await interp.execute("x")).echo == "1"
            go_on.set()
            assert (await beside).echo == "'done'"
    run(main())


def test_sync_tools_do_not_stop_the_loop():
    """They run in threads, with the context of whoever runs the cell."""
    import contextvars
    variable = contextvars.ContextVar("variable", default="none")

    async def main():
        def where():
            return [threading.current_thread() is threading.main_thread(), variable.get()]

        variable.set("mine")
        async with Interpreter(tools=[where]) as interp:
            assert (await interp.execute("SUBMIT(w=where())")).w == [False, "mine"]
    run(main())


def test_tools_and_models_have_the_context_of_their_cell():
    """Of whoever asked for that cell, also where others were asked for meanwhile; and runs that of
    theirs."""
    import contextvars
    variable = contextvars.ContextVar("variable", default="none")

    async def later():
        return variable.get()

    async def model(messages):
        return variable.get()

    def in_thread(messages):
        return variable.get()

    async def main():
        tools = {"f": variable.get, "later": later}
        async with Interpreter(tools=tools, model=model,
                               sub_model=in_thread) as interp, Interpreter(model=model) as other:
            await interp.execute("1")
            results = []
            for name in ("first", "second"):
                variable.set(name)
                results.append(interp.execute("f(), later(), llm_query('q')"))
                results.append(other.execute("llm_query('q')"))
            variable.set("third")
            assert [(await result).echo for result in results] == [
                "('first', 'first', 'first')", "'first'", "('second', 'second', 'second')",
                "'second'"]

        async def root(messages):
            return "```repl\nSUBMIT(answer=[%r, f(), llm_query('q')])\n```" % variable.get()

        async def one(name):
            variable.set(name)
            return (await droste.RLM(root, sub_model=model, tools=tools).arun("q")).answer

        assert await asyncio.gather(one("a"), one("b")) == [["a"] * 3, ["b"] * 3]
    run(main())


def test_abandoned_async_tools_are_cancelled():
    async def main():
        begun, cancelled = asyncio.Event(), asyncio.Event()

        async def hang():
            begun.set()
            try:
                await asyncio.sleep(60)
            finally:
                cancelled.set()

        async with Interpreter(tools=[hang], grace=60) as interp:
            seconds = 0.5
            while not begun.is_set():       # a deadline that comes before the call says nothing
                assert (await interp.execute("hang()", timeout=seconds)).status == "timeout"
                seconds *= 2
            await cancelled.wait()
            assert (await interp.execute("1")).ok
    run(main())


def test_errors_of_a_session_are_raised_by_await():
    async def main():
        async with Interpreter() as interp:
            assert (await interp.execute("import os; os._exit(1)")).status == "killed"
            with pytest.raises(droste.LostError):
                await interp.execute("1")
        interp = Interpreter(setup_code="1 / 0")
        with pytest.raises(droste.Error, match="ZeroDivisionError"):
            await interp.start()
        with pytest.raises(droste.Error, match="ZeroDivisionError"):
            await interp.execute("1")
        interp.shutdown()
    run(main())


def test_setup_code_that_fails_at_once_is_reported(monkeypatch):
    """Its end may be there before anybody waits for it."""
    from droste import interpreter

    class Slow:
        """The library, in whose first look at a session all has happened."""
        def __getattr__(self, name):
            return getattr(lib, name)

        def droste_session_wait(self, session, ms, *out):
            return lib.droste_session_wait(session, 5000 if ms == 0 else ms, *out)

    lib = interpreter.lib
    monkeypatch.setattr(interpreter, "lib", Slow())

    async def main():
        with pytest.raises(droste.Error, match="ZeroDivisionError"):
            await Interpreter(setup_code="1 / 0").start()
        async with Interpreter(setup_code="x = 1") as interp:
            assert (await interp.execute("x")).echo == "1"
    run(main())


def test_shutting_down_with_cancel_ends_what_waits():
    async def main():
        interp = Interpreter()
        pending = interp.execute("while True: pass")
        interp.shutdown(cancel=True)
        with pytest.raises(droste.Cancelled):
            await pending
    run(main())


def test_a_loops_interpreter_is_no_other_loops():
    async def main():
        async with Interpreter() as interp:
            def elsewhere():
                for use in (interp.execute, lambda code: interp.shutdown()):
                    with pytest.raises(droste.Error, match="another running event loop"):
                        use("1")
            await asyncio.get_running_loop().run_in_executor(None, elsewhere)
    run(main())


def test_a_session_without_a_loop_works_beside_one():
    """Opened before the loop runs, it stays one that waits; its results may be awaited all the
    same."""
    async def main():
        assert (await interp.execute("1")).echo == "1"
    with Interpreter() as interp:
        run(main())
        assert interp.execute("2").echo == "2"


def test_a_loop_that_is_gone_leaves_a_session_that_can_be_closed():
    kept = []

    async def main():
        kept.append(Interpreter())
        await kept[0].execute("x = 1")

    run(main())
    with pytest.raises(droste.Error, match="is closed; create a new interpreter"):
        kept[0].execute("x")
    kept[0].shutdown()


def test_a_forgotten_session_of_a_loop_is_closed_by_it():
    """It is collected while the loop runs; others on the same engine go on."""
    import gc

    async def main():
        async with Interpreter() as other:
            interp = Interpreter(tools={"f": lambda: 1})
            await interp.execute("f()")
            with pytest.warns(ResourceWarning):
                del interp
                gc.collect()
            while other._engine.users > 1:
                await asyncio.sleep(0.01)
            assert (await other.execute("1")).ok
    run(main())


def test_a_harness_has_its_backend():
    """start, load_context, execute and stop, with sub-queries to a proxy over HTTP."""
    import http.server
    import json

    class Proxy(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            prompt = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["prompt"]
            reply = json.dumps({"response": "%s: %s" % (self.path, prompt)}).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(reply)

        def log_message(self, *args):
            pass

    async def main(url):
        backend = ReplBackend()
        await backend.start(url, "r7")
        assert await backend.load_context({"rows": [1, 2]}, 0) == 0
        await backend.load_context("second", 1)
        await backend.bootstrap("def double(x): return 2 * x")
        got = await backend.execute(
            "print(double(len(context['rows'])), context_1, llm_query('hi'))")
        assert got.stdout == "4 second /rollout/r7/llm_query: hi\n" and got.final_answer is None
        assert "context_1" in got.locals_keys and got.execution_time >= 0
        got = await backend.execute("print('before'); 1 / 0")
        assert got.stdout == "before\n" and "ZeroDivisionError" in got.stderr
        got = await backend.execute("answer['content'] = 'end'; answer['ready'] = True")
        assert got.final_answer == "end"
        assert (await backend.execute("SUBMIT(a=1, b='é')")).final_answer == '{"a": 1, "b": "é"}'
        assert (await backend.execute("SUBMIT([1, None])")).final_answer == "[1, null]"
        with pytest.raises(droste.CellFailed, match="NameError"):
            await backend.bootstrap("nowhere")
        await backend.stop()
        await backend.stop()
        with pytest.raises(RuntimeError, match="not started"):
            await backend.execute("1")

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        run(main("http://127.0.0.1:%d" % server.server_port))
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def silent_git():
    """A server that accepts git's connection and says nothing, until it is closed, and the settings
    that stage from it."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        server.setblocking(False)
        yield server, {"repo_url": "https://127.0.0.1:%d/r.git" % server.getsockname()[1]}


def test_other_sessions_run_while_one_is_staged(silent_git, tmp_path):
    """git's host accepts and says nothing: cells of another session of the loop end before the
    staging does, which ends with the connection, and with git's error."""
    server, settings = silent_git

    async def main():
        silent = Interpreter(volume_root=str(tmp_path), **settings)
        waits = asyncio.ensure_future(silent.execute("1"))
        connection, _ = await asyncio.get_running_loop().sock_accept(server)    # git is at work
        async with Interpreter() as other:
            assert (await other.execute("SUBMIT(n=6 * 7)")).n == 42
            assert not waits.done()
            server.close()
            connection.close()
            with pytest.raises(droste.Error, match="repository https://127.0.0.1"):
                await waits
            assert (await other.execute("SUBMIT(n=1)")).n == 1
        await silent.shutdown()
    run(main())
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".session-")]


@pytest.mark.parametrize("how", ["shutdown", "interrupt"])
def test_a_session_can_be_cancelled_while_it_is_staged(silent_git, tmp_path, how):
    """git is killed, which closes its connection, and nothing of the workspace is left."""
    server, settings = silent_git

    async def main():
        loop = asyncio.get_running_loop()
        silent = Interpreter(volume_root=str(tmp_path), **settings)
        waits = asyncio.ensure_future(silent.execute("1"))
        connection, _ = await loop.sock_accept(server)
        connection.setblocking(False)
        assert [name for name in os.listdir(tmp_path) if name.startswith(".session-")]
        if how == "shutdown":
            await silent.shutdown(cancel=True)
        else:
            silent.interrupt()
        with pytest.raises(droste.Cancelled):
            await waits
        while await loop.sock_recv(connection, 4096):
            pass
        connection.close()
        await silent.shutdown()
        while [name for name in os.listdir(tmp_path) if name.startswith(".session-")]:
            await asyncio.sleep(0.01)
    run(main())


def test_commands_on_the_loop_are_started_listed_and_attached_to():
    """`acommands` has all that `commands` has."""
    async def main():
        async with Interpreter() as interp:
            async with await interp.acommands.start("read word; echo got $word; exit 3", stdin=True,
                                                    env={"A": "b"}, tag="reader") as command:
                assert [each.tag for each in await interp.acommands.list()] == ["reader"]
                other = await interp.acommands.attach("reader")
                await command.write("this\n")
                assert (await command.read()).stdout == b"got this\n"
                assert (await other.read()).stdout == b"got this\n"
                assert await command.wait() == 3
                await other.close()
            async with await interp.acommands.start("echo a; echo b >&2", merge=True,
                                                    drain=True) as command:
                assert b"".join([output.stdout async for output in command]) == b"a\nb\n"
    run(main())


async def tags_running(interp, tag):
    return [each.tag for each in await interp.acommands.list()
            if each.tag == tag and each.exit_code is None]


async def has_ended(interp, tag):
    """Waits until no command with this tag runs."""
    while await tags_running(interp, tag):
        await asyncio.sleep(0.01)


def test_a_cancelled_command_is_killed():
    """With the processes that it has started, like one whose time is over; others go on."""
    async def main():
        async with Interpreter() as interp:
            other = asyncio.ensure_future(interp.acommands.run("read x; echo $x", input="fine\n",
                                                               tag="other"))
            task = asyncio.ensure_future(interp.acommands.run(
                "sleep 1000 & echo up; wait", tag="long",
                on_stdout=lambda text: task.cancel()))
            with pytest.raises(asyncio.CancelledError):
                await task
            await has_ended(interp, "long")
            while (await interp.acommands.run("pgrep -x sleep")).stdout:
                await asyncio.sleep(0.01)
            assert (await other).stdout == "fine\n"
    run(main())


@pytest.mark.parametrize("name, turns", [("run", 1), ("run", 3), ("start", 2)])
def test_a_command_that_is_cancelled_while_it_starts_does_not_stay(name, turns):
    """Whatever the host has heard of it: 260 of them are more than a session may have at once."""
    async def main():
        async with Interpreter() as interp:
            for _ in range(260):
                task = asyncio.ensure_future(getattr(interp.acommands, name)(
                    ["sleep", "1000"], tag="long"))
                for _ in range(turns):
                    await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            await has_ended(interp, "long")
            assert (await interp.acommands.run("echo fine")).stdout == "fine\n"
    run(main())


def test_pieces_that_arrive_asynchronously_become_a_file():
    """So do others, which may be appended; what a source raises reaches the caller."""
    async def pieces(*items):
        for item in items:
            await asyncio.sleep(0)
            yield item
        if not items:
            raise KeyError("the source")

    async def main():
        async with Interpreter() as interp:
            files, data = interp.afiles, os.urandom(1_500_000)
            assert await files.write_stream("a", pieces(data, b"-", b"")) == len(data) + 1
            assert await files.write_stream("a", [b"+"], append=True) == 1
            assert await files.read("a") == data + b"-+"
            with pytest.raises(KeyError, match="the source"):
                await files.write_stream("a", pieces())
            assert await files.read("a") == b""
    run(main())


def test_a_cancelled_reader_leaves_no_open_file():
    """The file is closed soon after, not before the task ends: a cancelled task waits for nothing.
    300 are more than a session may have at once."""
    async def read_at_last(interp):
        while True:
            try:
                return await interp.afiles.read("big")
            except OSError as e:
                assert e.errno == errno.EMFILE
                await asyncio.sleep(0.05)

    async def main():
        async with Interpreter() as interp:
            await interp.afiles.write("big", b"x" * (4 << 20))
            for _ in range(300):
                task = asyncio.ensure_future(interp.afiles.read("big"))
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            assert len(await read_at_last(interp)) == 4 << 20
    run(main())
