"""Environments that are written in Python: their code is executed there on every way to run it, by
the one loop of all."""
import asyncio
import contextlib
import io
import os
import sqlite3
import subprocess
import sys
import threading

import pytest

import droste
from droste import RLM, ReplResult, registry

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Here:
    """Executes code in a namespace of this process."""
    instructions = (
        "- `llm_query(prompt)`: asks a model.\n- `rlm_query(prompt, context)`: asks a worker.")
    made = []

    def __init__(self, *, broker, broker_address, correlation_id, **options):
        self.broker, self.options, self.clean, self.threads = broker, options, False, {
            threading.get_ident()}
        self.names = {"llm_query": broker.complete, "llm_query_batched": broker.complete_batched,
                      "rlm_query": broker.rlm_query,
                      "rlm_query_batched": broker.rlm_query_batched, "here": self}
        type(self).made.append(self)

    def load_context(self, context_payload):
        self.threads.add(threading.get_ident())
        self.names["context"] = context_payload

    def execute_code(self, code):
        self.threads.add(threading.get_ident())
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(code, self.names)
        return ReplResult(stdout=out.getvalue(),
                          locals={n: v for n, v in self.names.items() if not n.startswith("__")},
                          final_answer=self.names.pop("final", None))

    def cleanup(self):
        self.threads.add(threading.get_ident())
        self.clean = True


@pytest.fixture
def here():
    Here.made = []
    registry.register("here", Here)
    yield Here
    registry.unregister("here")


def block(code):
    return "```repl\n%s\n```" % code


def scripted(*replies):
    """A model that says these things in turn, and `sub` to what code asks."""
    left = list(replies)

    def model(messages):
        if len(messages) == 1:
            return "sub"
        model.seen.append([m["content"] for m in messages])
        return left.pop(0)

    model.seen = []
    return model


def by_run(rlm, question, context):
    return rlm.run(question, context)


def by_arun(rlm, question, context):
    return asyncio.run(rlm.arun(question, context))


def by_completion(rlm, question, context):
    return rlm.completion(context, root_prompt=question)


def by_acompletion(rlm, question, context):
    return asyncio.run(rlm.acompletion(context, root_prompt=question))


def by_stream(rlm, question, context):
    return list(rlm.stream(question, context))[-1].completion


def by_astream(rlm, question, context):
    async def last():
        return [event async for event in rlm.astream(question, context)][-1].completion
    return asyncio.run(last())


@pytest.mark.parametrize("run", [by_run, by_arun, by_completion, by_acompletion, by_stream,
                                 by_astream])
def test_every_kind_of_run_executes_code_there(here, run):
    """In the registered environment, not in a sandbox of this machine: in one thread of its own,
    and cleaned up at the end."""
    model = scripted(block("n = len(context)\nprint(n, llm_query('half?'), here.options)"),
                     "FINAL_VAR(n)")
    done = run(RLM(model, environment="here", environment_kwargs={"custom_option": 1}), "How long?",
               "abcd")
    (made,) = here.made
    assert (done.answer, done.status, done.iterations, done.usage["calls"]) == (4, "answered", 2, 3)
    assert made.clean and len(made.threads) == 1 and threading.get_ident() not in made.threads
    assert "4 sub {'custom_option': 1}" in model.seen[1][-1] and done.json["isolation"] == "custom"


def test_the_prompt_names_what_exists(here):
    """Its own words for what the code has; nothing of the functions that only Droste's guests
    have."""
    model = scripted("FINAL(at once)")
    RLM(model, environment="here").run("q", "abcd")
    text = "\n".join(model.seen[0])
    assert ("- `rlm_query(prompt, context)`: asks a worker." in text and "FINAL(the answer)" in text
            and "a str of 4 characters" in text)
    assert "SUBMIT" not in text and "add_buffer" not in text and "grep" not in text


def test_a_listener_hears_of_it(here):
    """The same events as of every run."""
    kinds, output = [], []

    def listen(event):
        kinds.append(event.kind)
        if event.kind == "output":
            output.append(event.text)

    done = RLM(scripted(block("print('said')"), "FINAL(x)"), environment="here",
               on_event=listen).run("q", "abc")
    assert [kind for kind in kinds if kind != "delta"] == [
        "started", "context", "turn", "reply", "cell", "output", "result", "turn", "reply", "end"]
    assert output == ["said\n"] and [step.kind for step in done.steps] == [
        "reply", "cell", "output", "result", "reply"]


def test_the_limit_on_calls_is_for_what_code_asks(here):
    """The loop's own turns do not use it up; what is over it is an error in the code, of which the
    model is told."""
    turns = [block("llm_query('one')")] + [block("1")] * 3 + [block("llm_query('two')"),
                                                              "FINAL(done)"]
    model = scripted(*turns)
    done = RLM(model, environment="here", max_llm_calls=1).run("q", "abc")
    assert (done.answer, done.status, done.iterations) == ("done", "answered", 6)
    assert "BudgetError: " in model.seen[-1][-1], model.seen[-1][-1]
    assert "BudgetError" not in model.seen[-2][-1]


def test_the_time_of_a_run_ends_it(here):
    """While its code still runs: the status says so, and the environment is cleaned up when its
    method has come back."""
    go = threading.Event()
    here.go = go
    done = RLM(scripted(block("type(here).go.wait(60)")), environment="here",
               max_timeout=5).run("q", "abc")
    (made,) = here.made
    assert done.status == "timeout" and isinstance(done.error, droste.TimedOut) and not made.clean
    go.set()
    for thread in threading.enumerate():
        if thread.name == "droste-environment":
            thread.join(60)
    assert made.clean


def test_the_time_of_a_cell_ends_it(here):
    """With `interrupt`, the cell ends and its variables stay; without, a new environment takes its
    place."""
    class Stops(Here):
        def interrupt(self):
            self.stop.set()

        def execute_code(self, code):
            self.stop = self.names["stop"] = threading.Event()
            return super().execute_code(code)

    code = [block("kept = 1\nstop.wait(60)\nprint('woken')"), block("print('kept' in globals())"),
            "FINAL(x)"]
    registry.register("stops", Stops)
    try:
        model = scripted(*code)
        done = RLM(model, environment="stops", execute_timeout=2).run("q", "abc")
        assert done.answer == "x" and len(Stops.made) == 1 and "TimeoutError" in model.seen[1][
            -1] and "True" in model.seen[2][-1]
    finally:
        registry.unregister("stops")
    Here.made = []
    here.go = threading.Event()
    model = scripted(block("kept = 1\ntype(here).go.wait(60)"), *code[1:])
    done = RLM(model, environment="here", execute_timeout=2).run("q", "abc")
    here.go.set()
    assert done.answer == "x" and len(Here.made) == 2 and "False" in model.seen[2][
        -1] and "A new one was started" in model.seen[1][-1]


def test_code_that_waits_for_a_model_is_interrupted(here):
    """Its call is cancelled; the code gets an error, and the session stays."""
    asked = threading.Event()

    def sub(messages):
        asked.wait(60)
        return "late"

    model = scripted(block("kept = 1\nllm_query('long')"), block("print('kept' in globals())"),
                     "FINAL(x)")
    done = RLM(model, sub_model=sub, environment="here", execute_timeout=2).run("q", "abc")
    asked.set()
    assert done.answer == "x" and len(Here.made) == 1 and "True" in model.seen[2][-1]


def test_child_runs_have_an_environment_of_the_same_kind(here, tmp_path):
    """Each its own, with its context; under the run that asked in the record."""
    def model(messages):
        text = messages[1]["content"]
        if "outer" not in text:
            return block("x = context * 2") if len(messages) == 2 else "FINAL_VAR(x)"
        if len(messages) == 2:
            return block(
                "answers = [rlm_query('inner', [1, 2])] + rlm_query_batched(['inner', {'prompt': "
                "'inner', 'context': 'b'}], 'a')")
        return "FINAL_VAR(answers)"

    done = RLM(model, environment="here", database=tmp_path / "runs.db").run("outer", "abc")
    assert done.answer == [[1, 2, 1, 2], "aa",
                           "bb"] and len(here.made) == 4 and all(made.clean for made in here.made)
    with sqlite3.connect(str(tmp_path / "runs.db")) as record:
        rows = record.execute(
            "select id = ?, parent, environment, status, isolation from runs order by seq",
            (done.run,)).fetchall()
        cells = record.execute("select count(*) from cells where status = 'ok' and run = ?",
                               (done.run,)).fetchone()
    assert rows == [(1, None, "here", "answered", "custom")] + [
        (0, done.run, "here", "answered", "custom")] * 3 and cells == (1,)
    done = RLM(model, environment="here", max_recursion_depth=0,
               sub_model=lambda messages: messages[0]["content"]).run("outer", "abc")
    # the twin: no child may begin, and a model answers
    assert done.answer[1].startswith("inner")


@pytest.mark.parametrize("code, words", [
    ("1 / 0", "ZeroDivisionError: division by zero"), ("x = (", "SyntaxError"),
    ("raise SystemExit(3)", "SystemExit: 3"),
    ("llm_query('')", "ArgumentError"), ("final = 'no more'", None)])
def test_an_error_of_the_code_is_reported_to_the_model(here, code, words):
    """And the run goes on; a final answer of the environment ends it."""
    model = scripted(block(code), "FINAL(then)")
    done = RLM(model, environment="here").run("q", "abc")
    assert done.answer == ("then" if words else "no more") and done.status == "answered"
    assert words is None or words in model.seen[1][-1]


def test_errors_may_come_as_standard_error(here, tmp_path):
    """A last line that says what was raised makes a failed cell, of which max_errors counts; a
    warning does not."""
    class Says(Here):
        def execute_code(self, code):
            return ReplResult(stderr=code)
    registry.register("says", Says)
    try:
        model = scripted(*[block("\nKeyError: 'x'")] * 2)
        done = RLM(model, environment="says", max_errors=2).run("q", "abc")
        assert done.status == "budget" and "max-errors" in str(
            done.error) and "KeyError: 'x'" in model.seen[1][-1]
        model = scripted(*[block("w.py:1: DeprecationWarning: old")] * 2, "FINAL(x)")
        assert RLM(model, environment="says", max_errors=2).run("q", "abc").answer == "x"
    finally:
        registry.unregister("says")


def test_an_environment_that_fails_ends_the_run(here):
    """By its name, with what it raised: when it is made, when it gets its context, when it executes
    code. It is cleaned up."""
    class Fails(Here):
        def __init__(self, *, at, **options):
            super().__init__(**options)
            self.at = at
            if at == "start":
                raise OSError("no machine")

        def load_context(self, payload):
            if self.at == "context":
                raise OSError("no machine")

        def execute_code(self, code):
            raise OSError("no machine")

    registry.register("fails", Fails)
    registry.register("half", lambda **options: object())
    try:
        for at in ("start", "context", "code"):
            Fails.made = []
            model = scripted(block("1"))
            done = RLM(model, environment="fails", environment_kwargs={"at": at}).run("q", "abc")
            assert done.status == "error" and isinstance(done.error, droste.EnvironmentFailed)
            assert "environment 'fails': OSError: no machine" in str(done.error)
            assert len(model.seen) == (at == "code") and Fails.made[0].clean == (at != "start")
        assert "must have the methods" in str(RLM(scripted(), environment="half").run("q").error)
        assert "'at'" in str(RLM(scripted(), environment="fails",
                                 environment_kwargs={"odd": 1}).run("q").error)
    finally:
        registry.unregister("fails")
        registry.unregister("half")


def test_what_such_an_environment_cannot_have_is_refused_by_name(here):
    """Tools, values and rules are the guest's, limits a sandbox's; without them the run begins."""
    for settings, word in (({"tools": {"count": len}}, "tools"),
                           ({"tool_data": {"x": 1}}, "tool-data"), ({"rules": True}, "rules"),
                           ({"memory": "1G"}, "memory"), ({"isolation": "full"}, "isolation"),
                           ({"env_var": ["A=b"]}, "env-var")):
        with pytest.raises(droste.UnsupportedError, match=word):
            RLM(scripted(), environment="here", **settings).run("q")
    assert not here.made and RLM(scripted("FINAL(x)"), environment="here").run("q").answer == "x"


def test_many_runs_at_once(here):
    """Of one RLM, in one loop: each has its own environment, and its own context."""
    def model(messages):
        return block("x = context * 2") if len(messages) == 2 else "FINAL_VAR(x)"

    async def all_of_them():
        rlm = RLM(model, environment="here")
        return await asyncio.gather(*(rlm.arun("q", str(n)) for n in range(8)))

    assert [done.answer for done in asyncio.run(all_of_them())] == [str(n) * 2 for n in range(8)]
    assert len(here.made) == 8 and all(made.clean for made in here.made)


def test_a_run_whose_process_was_killed_goes_on_there(here, tmp_path):
    """Where the environment is registered again; elsewhere it is refused by its name. What was
    answered is not asked again."""
    path = str(tmp_path / "runs.db")
    died = subprocess.run([sys.executable, "-c", """
import os, sys
sys.path[:0] = sys.argv[2:]
import test_environments as t
from droste import RLM, registry
registry.register("here", t.Here)
def model(messages):
    if len(messages) == 1:
        return "paid"
    if len(messages) > 2:
        os._exit(9)
    return t.block("x = llm_query(context)")
RLM(model, environment="here", database=sys.argv[1]).run("q", "abc")
""", path, os.path.join(ROOT, "python"), os.path.dirname(os.path.abspath(__file__))], timeout=60)
    assert died.returncode == 9
    ((run,),) = sqlite3.connect(path).execute("select id from runs").fetchall()
    with pytest.raises(droste.Error, match="environment 'here'"):
        RLM(scripted(), database=path).resume(run)
    model = scripted("FINAL_VAR(x)")
    done = RLM(model, environment="here", database=path).resume(run)
    assert (done.answer, done.status, done.run, len(model.seen)) == ("paid", "answered", run, 1)


def test_an_answer_has_the_type_that_was_asked_for(here):
    """As in every environment: one that has not is not taken, and the model is told."""
    model = scripted("FINAL(not a number)", block("final = 7"))
    done = RLM(model, environment="here", answer_schema='{"type": "integer"}').run("q", "abc")
    assert done.answer == 7 and "does not match its schema" in model.seen[1][
        -1] and "SUBMIT" not in model.seen[1][-1]


def test_a_broker_is_not_asked_from_the_loops_thread(here):
    """That would wait for itself; it says so.."""
    caught = []

    def listen(event):
        if event.kind == "cell":
            try:
                here.made[0].broker.complete("x")
            except droste.Error as e:
                caught.append(str(e))

    RLM(scripted(block("1"), "FINAL(x)"), environment="here", on_event=listen).run("q")
    assert len(caught) == 1 and "the thread of the run's loop" in caught[0]
