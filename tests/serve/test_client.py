"""The package as a client: `Interpreter(server=…)` and `RLM(server=…)`, with and without the
library. tests/session runs against a server, too (`--environment server:full`)."""
import asyncio
import os
import shutil
import subprocess
import sys
import threading

import pytest

from server_process import ROOT, Server, until
from harness import repl
from test_keys import create as create_key

sys.path.insert(0, os.path.join(ROOT, "python"))
import droste                       # noqa: E402
from droste._remote import client   # noqa: E402


@pytest.fixture
def interp(server):
    with droste.Interpreter(server=server.address) as made:
        yield made
    assert server.ask("GET", "/v1/sandboxes").json["sandboxes"] == []


def test_a_session_of_a_server_is_an_interpreter(server, interp):
    assert isinstance(interp, droste.Interpreter) and interp.alive
    assert repr(interp) == "<Interpreter: %s>" % interp.isolation
    result = interp.execute("x = 41\nprint('said')\nSUBMIT(answer=x + 1, pair=(1, {2}))")
    assert isinstance(result, droste.Result) and result.status == "submitted"
    assert (result.answer, result.pair, result.stdout) == (42, (1, {2}), "said\n")
    assert interp.execute("1 / 0").error.type == "ZeroDivisionError"
    assert interp.sandbox_id == server.ask("GET", "/v1/sandboxes").json["sandboxes"][0]["id"]


def test_output_comes_while_the_cell_runs(server):
    heard, others = [], []
    with droste.Interpreter(server=server.address, on_output=lambda *chunk: heard.append(chunk),
                            tools={"so_far": lambda: others.append(list(heard))}) as interp:
        interp.execute("import sys\nprint('one', flush=True)\nwhile not so_far.__call__: pass\n"
                       "so_far()\nprint('two', file=sys.stderr)")
    assert others == [[(1, "one\n")]] or others == [[]]     # the pipe may be read later
    assert heard == [(1, "one\n"), (2, "two\n")]


def test_rich_results_come_as_they_are_shown(server):
    shown = []
    with droste.Interpreter(server=server.address, on_result=shown.append) as interp:
        result = interp.execute("class P:\n def _repr_png_(self): return b'\\x89PNG'\n"
                                "display(P(), display_id='p')\nclear_output()\n{'a': 1}")
    assert [None if one is None else one.png for one in shown][:2] == [b"\x89PNG", None]
    assert shown[0].display_id == "p" and result.results[-1].is_main_result


class Odd(Exception):
    pass


def test_tools_and_models_are_answered_here(server):
    def fails():
        raise ValueError("not today")

    def pair(value):
        """Returns what JSON does not have."""
        return value, {value}

    with droste.Interpreter(server=server.address, tools=[fails, pair],
                            model=lambda messages: "re: " + messages[-1]["content"]) as interp:
        assert interp.execute("SUBMIT(got=pair(2 ** 70))").got == (2 ** 70, {2 ** 70})
        caught = "try: fails()\nexcept ValueError as e: SUBMIT(message=str(e))"
        assert interp.execute(caught).message == "not today"
        assert interp.execute("llm_query('q')").echo == "'re: q'"
        assert interp.execute("llm_query_batched(['a', 'b'])").echo == "['re: a', 're: b']"
        del interp.tools["fails"]
        interp.tools["late"] = lambda: "here"
        assert interp.execute("late()").echo == "'here'"
        assert interp.execute("fails()").error.type == "NameError"


def test_a_tool_cannot_use_its_own_session(server):
    with droste.Interpreter(server=server.address) as interp:
        interp.tools["again"] = lambda: interp.execute("1")
        assert "busy" in interp.execute("again()").error.message
        assert interp.execute("2").echo == "2"


def test_files_and_commands(interp):
    interp.files.write("a.txt", "b\na\n")
    assert interp.commands.run("sort a.txt; echo x >&2; exit 3")[:3] == (3, "a\nb\n", "x\n")
    assert interp.files.read("a.txt", offset=2, length=1) == b"a"
    assert interp.files.stat("a.txt").is_file and interp.files.list(".")[0].size == 4
    with pytest.raises(FileNotFoundError):
        interp.files.read("none")
    with pytest.raises(FileExistsError):
        interp.files.write("a.txt", "", exclusive=True)
    with interp.commands.start("cat", stdin=True) as command:
        command.write("hello")
        command.close_stdin()
        assert command.read().stdout == b"hello" and command.wait() == 0


def test_forks_and_checkpoints(server, interp):
    interp.execute("x = 1")
    kept = interp.checkpoint()
    interp.tools["here"] = lambda: "tool"
    interp.execute("x = 2; here()")
    with interp.fork() as fork, interp.at(kept) as earlier:
        fork.execute("x += 1")
        assert (fork.get("x"), interp.get("x"), earlier.get("x")) == (3, 2, 1)
        assert fork.execute("here()").echo == "'tool'"
    interp.rollback(kept)
    assert interp.get("x") == 1 and [c.id for c in interp.checkpoints()] == [kept]
    assert interp.execute("import os; os._exit(3)").killed == "exit 3"
    with pytest.raises(droste.LostError):
        interp.execute("1")
    interp.rollback(kept)
    assert interp.get("x") == 1
    interp.forget(kept)
    assert interp.checkpoints() == []


def test_another_thread_interrupts_a_cell(interp):
    running = threading.Event()
    interp.tools["begun"] = running.set

    def stop():
        running.wait()
        interp.interrupt()

    thread = threading.Thread(target=stop)
    thread.start()
    result = interp.execute("x = 5\nbegun()\nwhile True: pass")
    thread.join()
    assert result.error.type == "KeyboardInterrupt" and interp.get("x") == 5


def test_a_callback_that_raises_stops_the_cell(server):
    def says(stream, text):
        raise Odd(text)

    with droste.Interpreter(server=server.address, on_output=says) as interp:
        with pytest.raises(Odd):
            interp.execute("print(1, flush=True)\nwhile True: pass")
        assert interp.execute("2").echo == "2"


def test_operations_of_a_loop_run_in_their_order(server):
    async def double(n):
        await asyncio.sleep(0)
        return 2 * n

    async def work():
        async with droste.Interpreter(server=server.address, tools=[double]) as interp:
            results = [interp.execute("x = %d" % n) for n in range(3)]
            assert (await interp.execute("SUBMIT(x=double(n=x))")).x == 4
            assert all(result.done for result in results)
            await interp.set("pair", (1, 2))
            assert interp.get("pair") == (1, 2)         # blocks the loop
            assert await interp.afiles.write("a", b"1") == 1
            assert (await interp.acommands.run("cat a")).stdout == "1"
            forks = await interp.fork(2)
            assert [fork.get("x") for fork in forks] == [2, 2]
            for fork in forks:
                await fork.shutdown()
            kept = await interp.checkpoint()
            await interp.execute("x = 9")
            await interp.rollback(kept)
            assert interp.get("x") == 2

    asyncio.run(work())
    assert server.ask("GET", "/v1/sandboxes").json["sandboxes"] == []


def test_a_cancelled_task_interrupts_its_cell(server):
    async def work():
        async with droste.Interpreter(server=server.address) as interp:
            begun = asyncio.Event()
            interp.tools["begun"] = lambda: loop.call_soon_threadsafe(begun.set)
            loop = asyncio.get_running_loop()
            task = loop.create_task(interp.aexecute("x = 1\nbegun()\nwhile True: pass"))
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await interp.execute("x")).echo == "1"

    asyncio.run(work())


def test_settings_are_the_sandboxs_or_refused_by_name(server):
    with droste.Interpreter(server=server.address, memory="64M", setup_code="x = 7",
                            env_var={"A": "b"}, output_fields=["answer"]) as interp:
        result = interp.execute("import os\nSUBMIT(answer=(x, os.environ['A']))")
        assert result.answer == (7, "b")
        assert result.resources["limits"]["memory"]["value"] == 64 << 20
        assert interp.execute("SUBMIT(other=1)").status == "error"
    for settings, kind, named in (({"memory": "1T"}, droste.ArgumentError, "memory"),
                                  ({"isolation": "process"}, droste.UnsupportedError, "isolation"),
                                  ({"read": "/etc"}, droste.UnsupportedError, "read"),
                                  ({"setup_code": "@/etc/passwd"}, droste.ArgumentError, "file"),
                                  ({"model": "openai/x"}, droste.ArgumentError, "model")):
        with pytest.raises(kind, match=named):
            droste.Interpreter(server=server.address, **settings).start()
    with pytest.raises(droste.UnsupportedError, match="template"):
        droste.Interpreter(server=server.address, template="t")


def test_the_environment_names_server_and_key(server, monkeypatch):
    monkeypatch.setenv("DROSTE_SERVER", server.address)
    with droste.Interpreter() as interp:
        assert interp.sandbox_id
    with droste.Interpreter(server="", isolation="process") as interp:
        assert interp.sandbox_id is None and interp.execute("1").echo == "1"

    class Mine(droste.Interpreter):
        def execute(self, code, *more, **keywords):
            return super().execute(code.replace("ONE", "1"), *more, **keywords)

    with Mine() as interp:
        assert interp.sandbox_id and interp.execute("ONE").echo == "1"


def test_a_key_is_needed_where_the_server_has_keys(tmp_path, start):
    key = create_key(tmp_path, "one")
    address = start().address
    for wrong in ("", "e2b_" + "0" * 40):
        with pytest.raises(droste.PermissionDenied):
            droste.Interpreter(server=address, api_key=wrong).start()
    with droste.Interpreter(server=address, api_key=key) as interp:
        assert interp.execute("1").ok


def test_what_is_lost_says_so(server):
    with pytest.raises(droste.EnvironmentFailed, match="cannot be reached"):
        droste.Interpreter(server="http://127.0.0.1:1").start()
    with pytest.raises(droste.ArgumentError):
        droste.Interpreter(server="ftp://127.0.0.1").start()
    interp = droste.Interpreter(server=server.address)
    interp.start()
    server.ask("DELETE", "/v1/sandboxes/" + interp.sandbox_id)
    assert not interp.alive
    with pytest.raises(droste.LostError):
        interp.execute("1")
    interp.shutdown()
    interp.start()
    assert interp.execute("1").ok
    interp.shutdown()


def test_a_unix_socket(tmp_path):
    path = str(tmp_path / "s")
    process = subprocess.Popen([os.path.join(ROOT, os.environ.get("BUILD", "build"), "droste"),
                                "serve", "--listen", "unix:" + path], stdout=subprocess.PIPE,
                               text=True)
    assert process.stdout.readline()
    with droste.Interpreter(server="unix:" + path) as interp:
        assert interp.execute("1").ok
    process.terminate()
    process.wait()
    process.stdout.close()


# -- runs

TURNS = [repl("a = llm_query('one')\nprint(a)"), repl("SUBMIT([len(context), a])")]


@pytest.fixture
def models(tmp_path, serve):
    model = serve(turns=TURNS)
    made = Server(tmp_path, "--model", "turns", "--sub-model", "digest", "--base-url", model.url,
                  "--drain", "1", env={"OPENAI_API_KEY": "k"})
    yield made
    made.stop()


def test_a_run_of_a_server(models):
    rlm = droste.RLM(server=models.address, max_iterations=4)
    done = rlm.run("q", "four")
    assert (done.status, done.answer[0], done.iterations) == ("answered", 4, 2)
    assert done.ok and done.run and done.usage["calls"] == 3 and done.usage["seconds"] > 0
    assert sum(used["calls"] for used in done.usage["models"].values()) == 3
    kinds = [event.kind for event in rlm.stream("q", {"a": [1]})]
    assert kinds[0] == "started" and kinds[-1] == "end" and kinds.count("cell") == 2
    assert asyncio.run(rlm.arun("q", "x")).answer[0] == 1
    with pytest.raises(droste.ArgumentError, match="no-such"):
        droste.RLM(server=models.address, **{"no-such": 1})
    for keywords in ({"tools": [len]}, {"model": lambda messages: "x"}, {"persistent": True}):
        with pytest.raises(droste.UnsupportedError):
            droste.RLM(server=models.address, **keywords)


def test_the_runs_of_a_server(models):
    rlm = droste.RLM(server=models.address)
    ids = [rlm.run("q %d" % n, "four").run for n in range(3)]
    where = {"server": models.address}
    listed = droste.runs.ls(**where)
    assert [run.id for run in listed] == ids[::-1] and listed[0].answer[0] == 4
    assert [run.id for run in droste.runs.ls(limit=2, **where)] == ids[:0:-1]
    assert droste.runs.ls(status="error", **where) == []
    run = droste.runs.get(ids[0], **where)
    assert (run.question, run.status, run.calls, run.depth) == ("q 0", "answered", 3, 0)
    assert run.started <= run.ended
    steps = droste.runs.steps(ids[0], **where)
    assert [step.kind for step in steps].count("cell") == 2
    assert {step.fields["status"] for step in steps if step.kind == "cell"} == {"ok", "submitted"}
    followed = list(droste.runs.follow(ids[0], **where))
    assert followed[-1].kind == "end" and followed[-1].fields["status"] == "answered"
    assert droste.runs.remove(ids[0], **where) == 1
    with pytest.raises(droste.NotFoundError):
        droste.runs.get(ids[0], **where)
    with pytest.raises(droste.UnsupportedError):
        droste.runs.ls(children=True, **where)
    with pytest.raises(droste.ArgumentError):
        droste.runs.ls(database="x", **where)


def test_a_run_that_is_left_is_cancelled(models):
    for event in droste.RLM(server=models.address).stream("q", "x"):
        if event.kind == "started":
            run = event.text
            break
    status = until(lambda: models.ask("GET", "/v1/runs/" + run).json["status"] != "running"
                   and models.ask("GET", "/v1/runs/" + run).json["status"])
    assert status == "cancelled"


def test_a_run_is_cancelled_by_its_id(models):
    """From anywhere; one that is unknown, or of this machine, is not."""
    ends = []
    for event in droste.RLM(server=models.address).stream("q", "x"):
        if event.kind == "started":
            droste.runs.cancel(event.text, server=models.address)
        ends += [event.completion.status] if event.kind == "end" else []
    assert ends == ["cancelled"]
    with pytest.raises(droste.NotFoundError):
        droste.runs.cancel("20200101-000000-000000", server=models.address)
    with pytest.raises(droste.UnsupportedError, match="server="):
        droste.runs.cancel("20200101-000000-000000")


def test_a_broken_connection_is_taken_up_after_the_last_event(models, monkeypatch):
    """Each connection of the events breaks after one of them; none is lost or seen twice."""
    real, seen = client.Events.next, []

    def breaks(events):
        if getattr(events, "broken", False):
            raise droste.LostError("cut")
        events.broken = True
        event = real(events)
        if event is not None:
            seen.append(event.id)
        return event

    rlm = droste.RLM(server=models.address)
    monkeypatch.setattr(client.Events, "next", breaks)
    monkeypatch.setattr("droste._remote.rlm.PAUSES", (0.0,))
    assert rlm.run("q", "four").answer[0] == 4
    assert len(seen) > 8 and seen == sorted(set(seen), key=int)


# -- without the library

@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """A directory with the package alone: no library, and no checkout around it."""
    home = tmp_path_factory.mktemp("bare")
    shutil.copytree(os.path.join(ROOT, "python", "droste"), str(home / "droste"),
                    ignore=shutil.ignore_patterns("lib", "__pycache__"))
    return home


def run_bare(bare, code, **env):
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(bare), **env}
    return subprocess.run([sys.executable, "-c", code], env=env, cwd=str(bare), text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)


def test_the_client_needs_no_library(bare, server):
    done = run_bare(bare, """
import droste
def add(a: int, b: int) -> int: return a + b
with droste.Interpreter(tools=[add], memory="128M") as interp:
    print(interp.execute("SUBMIT(x={add(1, 2)})").x)
    interp.files.write("a", "b")
    print(interp.commands.run("cat a").stdout)
""", DROSTE_SERVER=server.address)
    assert (done.stdout, done.returncode) == ("{3}\nb\n", 0)


def test_without_the_library_a_local_sandbox_says_what_to_do(bare):
    done = run_bare(bare, """
import droste
for make in (lambda: droste.Interpreter().start(), lambda: droste.RLM(model="x").run("q"),
             droste.runs.ls, droste.volumes.names):
    try:
        make()
        print("it worked")
    except droste.UnsupportedError as e:
        print("server=" in str(e) and "install" in str(e))
""")
    assert (done.stdout, done.returncode) == ("True\n" * 4, 0)


def test_volumes_of_a_server(server, tmp_path, monkeypatch):
    """The functions of droste.volumes, whose files a session of the server has."""
    there = {"server": server.address}
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / "in" / "deep" / "b").write_bytes(b"bb")
    (tmp_path / "in" / "a").write_bytes(b"a" * 100_000)
    (tmp_path / "in" / "link").symlink_to("/etc/passwd")
    droste.volumes.create("mine", volume_size=64 << 20, **there)
    assert droste.volumes.names(**there) == ["mine"]
    assert droste.volumes.put("mine", tmp_path / "in", "d", **there) == 100_002
    found = droste.volumes.ls("mine", "d", depth=3, **there)
    assert sorted((e.name, e.size) for e in found if not e.is_dir) == [("a", 100_000),
                                                                       ("deep/b", 2)]
    assert droste.volumes.read("mine", "d/deep/b", **there) == b"bb"
    assert droste.volumes.get("mine", "d", tmp_path / "out", **there) == 100_002
    assert (tmp_path / "out" / "deep" / "b").read_bytes() == b"bb"
    assert droste.volumes.get("mine", "d/a", tmp_path / "a", **there) == 100_000
    assert droste.volumes.usage("mine", **there).size_limit == 64 << 20
    with droste.Interpreter(volume_name="mine", **there) as interp:
        assert interp.execute("SUBMIT(x=open('/data/d/deep/b').read())").x == "bb"
        with pytest.raises(droste.ArgumentError, match="in use"):
            droste.volumes.remove("mine", **there)
        with pytest.raises(droste.ArgumentError, match="in use"):
            droste.volumes.snapshot("mine", "s", **there)
    assert droste.volumes.snapshot("mine", "s", **there) == 100_002
    with pytest.raises(droste.ArgumentError, match="snapshot"):
        droste.volumes.snapshot("mine", "s", **there)
    droste.volumes.delete("mine", "d/a", **there)
    assert droste.volumes.restore("mine", "s", **there) == 100_002
    assert len(droste.volumes.read("mine", "d/a", **there)) == 100_000
    assert [s.name for s in droste.volumes.snapshots("mine", **there)] == ["s"]
    droste.volumes.remove_snapshot("mine", "s", **there)
    assert droste.volumes.snapshots("mine", **there) == []
    with pytest.raises(droste.NotFoundError):
        droste.volumes.restore("mine", "s", **there)
    assert droste.volumes.limit("mine", size="1M", files=50, **there)[2:] == (1 << 20, 50)
    for wrong in ("x", "1E", "999999G"):
        with pytest.raises(droste.ArgumentError):
            droste.volumes.limit("mine", size=wrong, **there)
    with pytest.raises(droste.ArgumentError, match="exists"):
        droste.volumes.create("mine", **there)
    with pytest.raises(droste.NotFoundError):
        droste.volumes.read("mine", "d/none", **there)
    with pytest.raises(droste.UnsupportedError):
        droste.volumes.names(volume_root="/x", **there)
    monkeypatch.setenv("DROSTE_SERVER", server.address)
    droste.volumes.delete("mine", "d")
    assert droste.volumes.ls("mine") == []
    droste.volumes.remove("mine")
    assert droste.volumes.names() == []


def test_a_large_context_is_stored_for_its_run(tmp_path, serve):
    """A file, or a text, that a request does not hold; nothing of it is left afterwards."""
    model = serve(turns=[repl("SUBMIT([type(context).__name__, len(context)])")] * 3)
    server = Server(tmp_path, "--model", "turns", "--base-url", model.url,
                    env={"OPENAI_API_KEY": "k"})
    try:
        path = tmp_path / "big.txt"
        path.write_bytes(b"0123456789" * 1_000_000)
        rlm = droste.RLM(server=server.address)
        assert rlm.run("How long?", path).answer == ["str", 10_000_000]
        done = rlm.run("How long?", "x" * 9_000_000)
        assert done.answer == ["str", 9_000_000]
        assert server.ask("GET", "/v1/contexts").json["contexts"] == []
        lines = droste.runs.export(done.run, server=server.address).splitlines()
        assert '"type":"run"' in lines[0].replace(" ", "") and len(lines) >= 4
        assert droste.runs.export(done.run, format="html", out=tmp_path / "page",
                                  server=server.address) is None
        assert (tmp_path / "page").read_text().lower().startswith("<!doctype html>")
    finally:
        server.stop()


def test_templates_of_a_server(server):
    """Of cells, and of a session: sessions start from them, until they are closed."""
    there = {"server": server.address}

    def kept():
        return len(server.ask("GET", "/v1/templates").json["templates"])
    with droste.Template(cells=["rows = [1, 2, 3]"], variables={"extra": (4, {5})},
                         **there) as template:
        with droste.Interpreter(template=template, **there) as one, \
                droste.Interpreter(template=template, **there) as two:
            one.execute("rows.clear()")
            assert two.execute("SUBMIT(rows=rows, extra=extra)").rows == [1, 2, 3]
            two.execute("y = 7")
            live = two.template()
        assert kept() == 2
        with droste.Interpreter(template=live, **there) as three:
            assert three.execute("SUBMIT(y=y, extra=extra)").extra == (4, {5})
        live.close()
        with pytest.raises(droste.ArgumentError, match="is not one of this server"):
            droste.Interpreter(template=live, **there).start()
        with pytest.raises(droste.ArgumentError, match="a server's"):
            droste.Interpreter(template=template, server="").start()
    assert kept() == 0
    with pytest.raises(droste.CellFailed, match="ZeroDivisionError"):
        droste.Template(cells=["1/0"], **there).start()

    async def on_a_loop():
        async with droste.Template(cells=["z = 1"], **there) as made:
            async with droste.Interpreter(template=made, **there) as interp:
                return (await interp.execute("SUBMIT(z=z)")).z
    assert asyncio.run(on_a_loop()) == 1
    assert kept() == 0


# -- batches

TASKS = [{"id": "a", "question": "?", "context_text": "xx", "expected": 2},
         {"id": 7, "question": "?", "context_text": "two", "expected": 4}]


def batch_server(tmp_path, model):
    return Server(tmp_path, "--model", "turns", "--sub-model", "digest", "--base-url", model.url,
                  "--drain", "1", env={"OPENAI_API_KEY": "k"})


@pytest.fixture
def counting(tmp_path, serve):
    made = batch_server(tmp_path, serve(turns=[repl("SUBMIT(answer=len(context))")]))
    yield made
    made.stop()


def test_a_batch_of_a_server_has_results_grades_and_states(counting, tmp_path):
    (tmp_path / "c.txt").write_bytes(b"x" * 70_000)
    file, heard, states = tmp_path / "out.jsonl", [], []
    tasks = TASKS + [{"id": "file", "question": "?", "context": str(tmp_path / "c.txt")}]
    done = droste.batch(tasks, file, server=counting.address, grader="exact", concurrency=2,
                        on_result=heard.append, on_state=states.append)
    assert (done.tasks, done.answered, done.left, done.stopped) == (3, 3, 0, None)
    assert {one.id: one.answer for one in done.results} == {"a": 2, 7: 3, "file": 70_000}
    assert (done.graded, done.passed, done.score) == (2, 1, 0.5)
    assert heard == done.results and len(states) == 3
    assert counting.ask("GET", "/v1/contexts").json["contexts"] == []
    again = droste.batch(TASKS, file, server=counting.address)
    assert again.results == done.results and again.calls == done.calls
    assert len(counting.ask("GET", "/v1/batches").json["batches"]) == 1


def test_a_batch_of_a_server_refuses_what_it_cannot_have(counting, tmp_path):
    where = {"server": counting.address}
    with pytest.raises(droste.ArgumentError, match="line 2"):
        droste.batch([TASKS[0], {"id": "b"}], tmp_path / "a", **where)
    assert counting.ask("GET", "/v1/contexts").json["contexts"] == []
    with pytest.raises(droste.ArgumentError, match="program"):
        droste.batch(TASKS, tmp_path / "b", grader="program:/bin/true", **where)
    for keywords in ({"context": "/etc/hostname"}, {"tools": "x"}, {"grader_timeout": 3},
                     {"model": lambda messages: "x"}):
        with pytest.raises(droste.UnsupportedError):
            droste.batch(TASKS, tmp_path / "c", **where, **keywords)
    (tmp_path / "d").write_text('{"id": 1}\n')
    with pytest.raises(droste.ArgumentError, match="another batch"):
        droste.batch(TASKS, tmp_path / "d", **where)
    assert counting.ask("GET", "/v1/batches").json["batches"] == []
    assert droste.batch(TASKS, tmp_path / "e", **where).answered == 2


def test_a_function_that_raises_stops_the_batch_and_the_same_call_goes_on(tmp_path, serve):
    """While the second task waits for an answer."""
    hangs = repl("if len(context) == 1: llm_query('hang')\nSUBMIT(answer=len(context))")
    model = serve(turns=[hangs])
    server = batch_server(tmp_path, model)
    tasks = [{"question": "?", "context_text": "x" * n} for n in range(12)]

    def refuse(result):
        until(lambda: model.stats()["models"].get("digest"))
        raise Odd(result.id)

    try:
        with pytest.raises(Odd):
            droste.batch(tasks, tmp_path / "r", server=server.address, concurrency=1,
                         on_result=refuse)
        path = "/v1/batches/" + (tmp_path / "r.batch").read_text().split()[0]
        assert server.ask("GET", path).json["stopped"] == "interrupt"
        assert len(server.ask("GET", "/v1/contexts").json["contexts"]) == 1
        assert len((tmp_path / "r").read_text().splitlines()) == 1
        with open(tmp_path / "r", "a") as file:
            file.write('{"half a li')         # a call that was killed
        done = droste.batch(tasks, tmp_path / "r", server=server.address)
        assert (done.answered, done.left, done.stopped) == (12, 0, None)
        assert sorted(one.answer for one in done.results) == list(range(12))
        assert server.ask("GET", "/v1/contexts").json["contexts"] == []
    finally:
        server.stop()


def test_a_cancelled_coroutine_suspends_the_batch(tmp_path, serve):
    server = batch_server(tmp_path, serve(turns=[repl("import time\ntime.sleep(60)")]))

    async def work():
        job = asyncio.ensure_future(droste.abatch(TASKS, tmp_path / "r", server=server.address))
        while not (tmp_path / "r.batch").exists():
            await asyncio.sleep(0.01)
        job.cancel()
        await job

    try:
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(work())
        found, = server.ask("GET", "/v1/batches").json["batches"]
        assert (found["status"], found["stopped"]) == ("stopped", "interrupt")
    finally:
        server.stop()
