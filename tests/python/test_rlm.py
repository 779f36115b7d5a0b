"""`RLM`: runs with models that are functions, events, limits, and the names of rlm."""
import asyncio
import io
import pathlib

import pytest

import droste
from droste import RLM


def scripted(*replies):
    """A model that says these things in turn."""
    left = list(replies)

    def model(messages):
        model.seen.append(messages)
        return left.pop(0)

    model.seen = []
    return model


SUBMIT = "```repl\nSUBMIT(answer=len(context))\n```"


def test_a_run_answers():
    """Code over a context, a sub-query, a tool and a value; the completion has the answer and what
    it took."""
    def triple(n: int) -> int:
        """Three times."""
        return 3 * n

    root = scripted("First I look.\n```repl\nx = llm_query('2 + 2')\nprint(len(context), x)\n```",
                    "```repl\nSUBMIT(answer={'n': triple(len(context)) + base, 'x': x})\n```")
    rlm = RLM(root, sub_model=lambda messages: "four", tools=[triple], tool_data={"base": 1},
              max_llm_calls=5)
    done = rlm.run("How long?", "hello")
    assert done.answer == {"n": 16, "x": "four"} and done.ok and done.status == "answered"
    assert done.iterations == 2 and done.usage["calls"] == 3 and done.error is None
    assert "triple" in root.seen[0][0]["content"] and "5 four" in root.seen[1][-1][
        "content"] + root.seen[1][-2]["content"]
    assert '"n": 16' in done.response and done.raise_for_status() is done
    assert [step.kind for step in done.steps] == ["reply", "cell", "output", "result", "reply",
                                                  "cell", "result"]
    assert done.cost is None and done.json["isolation"] and done.metadata is None and str(
        done) == done.response
    page = done._repr_html_()
    assert "How long" not in page and "triple(len(context))" in page


def test_contexts_of_all_kinds(tmp_path):
    (tmp_path / "f.txt").write_text("four")
    for context, length in (("text", 4), (b"\x00\xff", 2), ([1, 2, 3], 3), ({"a": 1}, 1),
                            (tmp_path / "f.txt", 4),
                            (pathlib.Path(tmp_path), 1)):
        assert RLM(scripted(SUBMIT)).run("q", context).answer == length


def test_who_comes_to_no_answer_says_why():
    """A completion with a status; raise_for_status raises."""
    done = RLM(scripted("no code", "no code", "a last word"), max_iterations=2).run("q")
    assert done.status == "exhausted" and not done.ok
    with pytest.raises(droste.RunFailed) as failed:
        done.raise_for_status()
    assert failed.value.completion is done

    def broken(messages):
        raise ValueError("words")

    done = RLM(broken, retries=0).run("q")
    assert done.status == "error" and isinstance(done.error,
                                                 droste.ModelError) and "words" in str(done.error)
    with pytest.raises(droste.ConfigError, match="no model"):
        RLM().run("q")


def test_events_are_sent_as_they_happen():
    """In order, to a listener and to a stream, whose last has the completion."""
    seen = []
    events = list(RLM(scripted("```repl\nprint('out')\n```", SUBMIT),
                      on_event=seen.append).stream("q", "abc"))
    kinds = [e.kind for e in events]
    assert kinds[0] == "started" and kinds[-1] == "end" and events[-1].completion.answer == 3
    assert kinds.index("turn") < kinds.index("reply") < kinds.index("cell") < kinds.index(
        "output") < kinds.index("result")
    assert [e.kind for e in seen] == kinds
    assert next(e for e in events if e.kind == "output").text == "out\n"


def test_rich_results_of_cells_are_told():
    """As they are shown, in events, and with the end of their cell, in events and steps; the model
    reads their text. A cell without results has none."""
    class Seen(list):
        def __call__(self, event):
            self.append((event.kind, [dict(result.bundle) for result in event.results]))

    seen = Seen()
    root = scripted("""```repl
handle = display({"text/plain": "first", "image/png": b"\\x89PNG"}, raw=True, display_id="d")
handle.update({"text/plain": "second", "image/svg+xml": "<svg/>"}, raw=True)
```""", SUBMIT)
    done = RLM(root, on_event=seen).run("q", "hello")
    png, text = {"text/plain": "first", "image/png":
                 b"\x89PNG"}, {"text/plain": "second", "image/svg+xml": "<svg/>"}
    assert [event for event in seen if event[0] in ("display", "result")] == [
        ("display", [png]), ("display", [text]), ("result", [text]), ("result", [])]
    assert [[r.text for r in step.results] for step in done.steps
            if step.kind == "result"] == [["second"], []]
    assert "first\nsecond" in root.seen[1][-1]["content"] and done.answer == 5
    assert "data:image/svg+xml;base64,PHN2Zy8+" in done._repr_html_()


def test_a_listener_that_raises_ends_the_run():
    """Its exception is the caller's, with and without asyncio; nothing more is asked."""
    def listen(event):
        if event.kind == "cell":
            raise LookupError("enough")

    model = scripted("```repl\nimport time; time.sleep(60)\n```", SUBMIT)
    with pytest.raises(LookupError, match="enough"):
        RLM(model, on_event=listen).run("q", "abc")
    assert len(model.seen) == 1
    seen = []

    def listen_once(event):
        seen.append(event.kind)
        listen(event)

    model = scripted("```repl\nimport time; time.sleep(60)\n```", SUBMIT)
    with pytest.raises(LookupError, match="enough"):
        asyncio.run(asyncio.wait_for(RLM(model, on_event=listen_once).arun("q", "abc"), 50))
    assert len(model.seen) == 1 and seen[-1] == "cell" and seen.count("cell") == 1


def test_who_stops_listening_cancels_the_run():
    """Nothing is asked afterwards, and the engine serves the next run."""
    model = scripted("```repl\nimport time; time.sleep(60)\n```", SUBMIT)
    for event in RLM(model).stream("q", "abc"):
        if event.kind == "cell":
            break
    assert len(model.seen) == 1
    assert RLM(scripted(SUBMIT)).run("q", "ab").answer == 2


def test_runs_within_asyncio():
    """Many at once with coroutines as models; a cancelled one asks nothing more; events there
    too."""
    async def main():
        met, all_met = [0], asyncio.Event()

        async def model(messages):
            met[0] += 1
            if met[0] == 10:
                all_met.set()
            await all_met.wait()
            return SUBMIT

        rlm = RLM(model)
        done = await asyncio.gather(*[rlm.arun("q", "x" * n) for n in range(10)])
        assert [d.answer for d in done] == list(range(10))
        events = [e async for e in rlm.astream("q", "four")]
        assert events[-1].completion.answer == 4

        async def hang(messages):
            await asyncio.sleep(60)

        left = scripted("```repl\nimport time; time.sleep(0.3)\n```", SUBMIT)
        stream = RLM(left).astream("q", "abc")
        async for event in stream:
            if event.kind == "cell":
                break
        await stream.aclose()
        assert (await rlm.arun("q", "ab")).answer == 2
        await asyncio.sleep(0.6)
        assert len(left.seen) == 1

        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(RLM(hang).arun("q"), 0.3)
        assert (await rlm.acompletion("text")).answer == 4

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_runs_tools_are_no_other_sessions():
    """Neither of one that begins beside it on the loop's engine, nor of the next one on an engine
    that is used again."""
    options = {"tools": {"secret": lambda: 5}, "tool_data": {"value": 1},
               "tool_source": {"more": 'def helper():\n    "H."\n    return 2\n'}}
    code = "[n for n in ('secret', 'value', 'helper') if n in globals() or n in dir(__builtins__)]"
    cell = "```repl\nSUBMIT(answer=[secret(), value, helper()])\n```"

    async def main():
        asked, go_on = asyncio.Event(), asyncio.Event()

        async def model(messages):
            asked.set()
            await go_on.wait()
            return cell

        run = asyncio.ensure_future(RLM(model, **options).arun("q"))
        await asked.wait()
        async with droste.Interpreter() as beside:
            assert (await beside.execute(code)).echo == "[]"
        go_on.set()
        assert (await run).answer == [5, 1, 2]      # the twin

    asyncio.run(asyncio.wait_for(main(), 60))
    assert RLM(scripted(cell), **options).run("q").answer == [5, 1, 2]
    with droste.Interpreter() as after:
        assert after.execute(code).echo == "[]"


def test_async_models_and_tools_without_a_loop():
    async def model(messages):
        await asyncio.sleep(0.01)
        return "```repl\nSUBMIT(answer=wait(2))\n```"

    async def wait(n):
        await asyncio.sleep(0.01)
        return n

    assert RLM(model, tools=[wait]).run("q").answer == 2


def test_runs_are_recorded_and_resumed(tmp_path):
    """The record has the run by its id; one that has ended cannot be resumed, and says so."""
    import sqlite3
    database = tmp_path / "runs.db"
    done = RLM(scripted(SUBMIT), database=database).run("q", "abc")
    with sqlite3.connect(str(database)) as record:
        assert record.execute("select id, status from runs").fetchall() == [(done.run, "answered")]
    with pytest.raises(droste.Error, match="ended|answered"):
        RLM(scripted(SUBMIT), database=database).resume(done.run)
    # the twin: the variable says `none`
    assert RLM(scripted(SUBMIT)).run("q", "abc").run is None


def test_a_run_whose_process_was_killed_goes_on(tmp_path):
    """With its variables and its tools; what was answered is not asked again."""
    import os
    import sqlite3
    import subprocess
    import sys
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    done = subprocess.run([sys.executable, "-c", """
import os, sys
from droste import RLM
def model(messages):
    if len(messages) > 2:
        os._exit(9)
    return "```repl\\nx = add(len(context))\\nprint('x is', x)\\n```"
RLM(model, database=sys.argv[1], tools={"add": lambda n: n + 1}).run("How long?", "abc")
""", str(tmp_path / "runs.db")], env={**os.environ, "PYTHONPATH": os.path.join(root, "python")},
                          timeout=60)
    assert done.returncode == 9
    ((run,),) = sqlite3.connect(tmp_path / "runs.db").execute("select id from runs").fetchall()
    model = scripted("```repl\nSUBMIT(answer=[x, add(x)])\n```")
    done = RLM(model, database=tmp_path / "runs.db", tools={"add": lambda n: n + 1}).resume(run)
    assert (done.answer, done.status, done.run, done.iterations) == ([4, 5], "answered", run, 2)
    assert len(model.seen) == 1 and "x is 4" in str(model.seen[0])
    with pytest.raises(droste.NotFoundError):
        RLM(scripted(SUBMIT), database=tmp_path / "runs.db").resume("nothing")


def test_progress_is_shown_on_a_terminal():
    from droste.progress import OnTerminal
    screen = io.StringIO()
    RLM(scripted("```repl\nx = 1\n```", SUBMIT), on_event=OnTerminal(screen)).run("q", "abc")
    shown = screen.getvalue().split("\r\x1b[K")
    assert len(shown) > 2 and all("of 30" in line for line in shown[1:])
    assert "turn 2 of 30, answered, 2 calls" in shown[-1] and shown[-1].endswith("s\n")


def test_progress_is_for_who_looks(monkeypatch):
    """None: on a terminal only; True: anyway; False: never."""
    from droste import progress

    class Screen(io.StringIO):
        def isatty(self):
            return True

    assert progress.listener(None) is progress.listener(False) is None
    assert isinstance(progress.listener(True), progress.OnTerminal)
    monkeypatch.setattr("sys.stderr", Screen())
    assert isinstance(progress.listener(None),
                      progress.OnTerminal) and progress.listener(False) is None


def test_progress_is_shown_in_a_notebook():
    """One output that is updated; what is in it is escaped."""
    import sys
    import types
    displayed = []

    class Handle:
        def update(self, thing):
            displayed.append(thing)

    module = types.ModuleType("IPython.display")
    module.HTML = str
    module.display = lambda thing, display_id: displayed.append(thing) or Handle()
    sys.modules["IPython"], sys.modules["IPython.display"] = types.ModuleType("IPython"), module
    try:
        from droste.progress import InNotebook
        RLM(scripted(SUBMIT), on_event=InNotebook()).run("q", "abc")
    finally:
        del sys.modules["IPython"], sys.modules["IPython.display"]
    assert len(displayed) >= 2 and "<progress" in displayed[-1] and "answered" in displayed[-1]


# -- the names of rlm

def test_completion_takes_a_prompt_and_a_root_prompt():
    model = scripted(SUBMIT)
    done = RLM(model).completion("abcdef", root_prompt="How long is it?")
    assert done.answer == 6 and done.response == "6" and done.root_model == "model"
    assert "How long is it?" in "".join(m["content"] for m in model.seen[0])
    assert done.usage_summary.model_usage_summaries[
        "model"].total_calls == 1 and done.execution_time > 0


def test_what_a_run_cost_is_told():
    """From the record's own numbers; unknown is None, and not nothing."""
    summary = {"answer": [1], "status": "answered", "run": "r", "iterations": 1, "usage": {
        "calls": 2, "input_tokens": 3, "output_tokens": 4, "cost": 0.25, "seconds": 1.5,
        "models": {"m": {"calls": 2, "input_tokens": 3, "output_tokens": 4, "cost": 0.25}}}}
    done = droste.Completion(summary, "p", "m", [])
    assert (done.cost, done.execution_time, done.response,
            str(done)) == (0.25, 1.5, "[1]", "[1]") and "$0.2500" in done._repr_html_()
    assert done.usage_summary.to_dict() == {"total_cost": 0.25, "model_usage_summaries": {
        "m": {"total_calls": 2, "total_input_tokens": 3, "total_output_tokens": 4,
              "total_cost": 0.25}}}


def test_rlms_arguments_are_settings():
    rlm = RLM(backend="anthropic", backend_kwargs={"model_name": "claude-x", "api_key": "k",
                                                   "sampling_args": {"max_tokens": 5}},
              other_backends=["openai"], other_backend_kwargs=[{"model_name": "small"}],
              max_depth=1, max_iterations=7,
              max_budget=1.5, max_timeout=60, max_tokens=1000, max_errors=3, compaction=True,
              max_concurrent_subcalls=2,
              custom_tools={"f": {"tool": len, "description": "Counts."}, "d": [1]},
              custom_sub_tools={}, verbose=False)
    assert dict(rlm._pairs) == {
        "model": "anthropic/claude-x", "sub-model": "openai/small", "anthropic-api-key": "k",
        "max-tokens": "5",
        "max-recursion-depth": "0", "max-iterations": "7", "max-cost": "1.5", "timeout": "60",
        "max-total-tokens": "1000",
        "max-errors": "3", "compaction": "0.85", "max-children": "2", "sub-tools": "no",
        "sub-sampling": "", "sub-max-tokens": "0", "restore-name": "f"}
    assert [value for name, value in rlm._pairs if name == "restore-name"] == [
        "llm_query", "llm_query_batched", "rlm_query", "rlm_query_batched", "SHOW_VARS", "answer",
        "context", "history", "f"]
    assert list(rlm._tools) == ["f"] and rlm._tool_data == {"d": (b"[1]", None)}


@pytest.mark.parametrize("arguments, words", [
    ({"backend": "bedrock", "backend_kwargs": {"model_name": "m"}}, "bedrock"),
    ({"backend": "openai", "backend_kwargs": {}}, "model_name"),
    ({"backend_kwargs": {"model_name": "m", "odd": 1}}, "odd"),
    ({"persistent": True, "environment": "modal"}, "persistent"),
    ({"logger": object()}, "logger"),
    ({"environment": "local", "environment_kwargs": {"odd": 1}}, "odd"),
    ({"nonsense": 1}, "nonsense"),
])
def test_unknown_arguments_are_refused_by_name(arguments, words):
    with pytest.raises(droste.Error, match=words):
        RLM(**arguments)


def test_an_interpreter_refuses_artifacts_and_a_run_saves_them(tmp_path):
    """A session has no end at which files are saved, so the setting is not a keyword of it."""
    with pytest.raises(droste.ArgumentError, match="a session saves no artifacts"):
        droste.Interpreter(artifacts=["a.txt"]).start()
    rlm = RLM(lambda messages: "```repl\nopen('a.txt', 'w').write('hello')\nSUBMIT(1)\n```",
              artifacts=["a.txt"], artifacts_dir=tmp_path, database="none")
    saved, = rlm.run("?").artifacts
    assert (saved.name, saved.size, saved.read_bytes()) == ("a.txt", 5, b"hello")
    assert saved.path == str(tmp_path / "a.txt")
