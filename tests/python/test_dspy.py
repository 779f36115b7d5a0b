"""droste.dspy under the real dspy, with scripted language models: the contract of its
CodeInterpreter, and the four modules that use one."""
import collections
import dataclasses
import datetime
import decimal
import enum
import json
import re
import threading
import uuid

import pytest

dspy = pytest.importorskip("dspy",
                           reason="dspy is not installed in this interpreter (scripts/setup dspy)")

from dspy.primitives.code_interpreter import (CodeExecutionError, CodeInterpreter,  # noqa: E402
                                              CodeInterpreterError, FinalOutput)
from dspy.utils import DummyLM  # noqa: E402

import pydantic  # noqa: E402

from droste.dspy import DrosteInterpreter  # noqa: E402


@pytest.fixture
def interp():
    with DrosteInterpreter() as made:
        yield made


newer = pytest.mark.skipif(not hasattr(dspy.primitives.code_interpreter,
                                       "resolve_interpreter_factory"),
                           reason="this dspy has no configured factory and no predictors in RLM's "
                                  "code (3.4 has)")


def scripted(*answers):
    """A language model that gives these answers, in order."""
    return DummyLM(list(answers))


# -- the contract

def test_it_is_an_interpreter_and_its_class_is_a_factory():
    """dspy takes it for its protocol, and the class for a factory, with its instructions."""
    assert isinstance(DrosteInterpreter(), CodeInterpreter)
    dspy.RLM("q -> a", interpreter_factory=DrosteInterpreter)
    made = DrosteInterpreter.factory(memory="1G")
    assert "CPython" in made.execution_instructions and isinstance(made(), DrosteInterpreter)


def test_values_and_output_come_back(interp):
    """The last expression's value, else what was printed, else None; both where there are both."""
    assert interp.execute("1 + 1") == 2
    assert interp.execute("'text'") == "text"
    assert interp.execute("{'a': [1, None]}") == {"a": [1, None]}
    assert interp.execute("print('said')") == "said\n"
    assert interp.execute("x = 5") is None
    assert interp.execute("print('said')\nx") == "said\n5"
    assert interp.execute("object").startswith("<class")
    assert interp.execute("print('said', end='')\nx") == "said\n5"
    assert interp.execute("[0] * 1000") == [0] * 1000
    assert "characters left out" in interp.execute("[0] * 60000")


def test_it_is_of_no_event_loop():
    """dspy calls it within its own, expects the result at once, and goes on in another thread."""
    import asyncio

    async def main():
        with DrosteInterpreter(tools={"f": lambda: 2}) as interp:
            assert interp.execute("x = f()\nx") == 2
            return await asyncio.get_running_loop().run_in_executor(None, interp.execute, "x + f()")

    assert asyncio.run(asyncio.wait_for(main(), 60)) == 4


class Listener:
    """Of dspy's callbacks: what it was told of an interpreter, in order."""

    def __new__(cls):
        from dspy.utils.callback import ACTIVE_CALL_ID, BaseCallback
        events = []

        def start(what):
            return lambda self, call_id, instance, inputs: events.append(
                (what, call_id, ACTIVE_CALL_ID.get(), inputs))

        def end(what):
            return lambda self, call_id, outputs, exception=None: events.append(
                ("end of " + what, call_id, outputs, exception))

        methods = {"on_interpreter_%s_%s" % (what, when): make(what)
                   for what in ("startup", "execute", "tool_call", "shutdown")
                   for when, make in (("start", start), ("end", end))}
        listener = type("Told", (BaseCallback,), methods)()
        listener.events = events
        return listener


def test_callbacks_see_a_lazy_start_within_the_first_cell():
    """The session opens once, inside the first execute, not in `with` and not with each cell; a
    tool's call belongs to the cell that made it, async tools' too."""
    async def later(n: int) -> int:
        return n + 2

    listener = Listener()
    with DrosteInterpreter(tools={"f": lambda n: n + 1, "later": later},
                           callbacks=[listener]) as interp:
        assert not listener.events
        assert interp.execute("f(1)", {"v": 1}) == 2
        assert interp.execute("later(1)") == 3
    assert [what for what, *_ in listener.events] == [
        "execute", "startup", "end of startup", "tool_call", "end of tool_call", "end of execute",
        "execute", "tool_call", "end of tool_call", "end of execute", "shutdown", "end of shutdown"]
    cell, startup, _, call, answer, end = listener.events[:6]
    assert cell[2] is None and cell[3] == {"code": "f(1)", "variables": {"v": 1}}
    assert startup[2] == call[2] == cell[1] == end[1] and startup[3] == {}
    assert call[3] == {"tool_name": "f", "kwargs": {"n": 1}} and answer[2:] == (2, None)
    assert listener.events[7][3] == {"tool_name": "later",
                                     "kwargs": {"n": 1}} and listener.events[8][2:] == (3, None)


def test_callbacks_see_each_explicit_start_and_shutdown():
    """As dspy's own interpreter has it; a failure is told with its exception, which goes on to the
    caller."""
    listener = Listener()
    interp = DrosteInterpreter(callbacks=[listener])
    interp.start()
    interp.start()
    with pytest.raises(CodeExecutionError) as raised:
        interp.execute("raise ValueError('boom')")
    interp.shutdown()
    interp.shutdown()
    kinds = [what for what, *_ in listener.events]
    assert [kinds.count(what) for what in ("startup", "end of startup", "execute", "shutdown",
                                           "end of shutdown")] == [2, 2, 1, 2, 2]
    assert next(t for t in listener.events if t[0] == "end of execute")[2:] == (None, raised.value)


def test_invoke_tool_gives_what_the_tool_gives():
    """`invoke_tool(name, kwargs)`: the raw result, the raw exception; an unknown tool is a
    CodeInterpreterError."""
    raw, failure, listener = object(), RuntimeError("failed"), Listener()

    def fail():
        raise failure

    async def later(n: int) -> int:
        return n + 1

    interp = DrosteInterpreter(tools={"raw": lambda: raw, "fail": fail, "later": later},
                               callbacks=[listener])
    assert interp.invoke_tool("raw", {}) is raw and interp.invoke_tool("later", {"n": 1}) == 2
    with pytest.raises(RuntimeError) as raised:
        interp.invoke_tool("fail", {})
    with pytest.raises(CodeInterpreterError, match="Unknown tool: missing") as unknown:
        interp.invoke_tool("missing", {})
    ends = [event for event in listener.events if event[0] == "end of tool_call"]
    assert raised.value is failure and [end[2:] for end in ends] == [
        (raw, None), (2, None), (None, failure), (None, unknown.value)]
    assert listener.events[0][3] == {"tool_name": "raw", "kwargs": {}}


def test_a_tool_cannot_execute_in_its_own_interpreter(interp):
    """It would wait for itself: the code gets an error, and the session goes on."""
    interp.tools["again"] = lambda: interp.execute("'nested'")
    with pytest.raises(CodeExecutionError, match="cannot execute recursively"):
        interp.execute("again()")
    assert interp.execute("40 + 2") == 42


# -- where the code runs

def test_the_guest_is_the_hosts_python(interp):
    """The version and the packages of the interpreter that dspy runs in, whatever PATH has; the
    model is told so."""
    import sys
    here = list(sys.version_info[:3]), __import__("pydantic").__version__
    assert interp.execute(
        "import sys, pydantic\n(list(sys.version_info[:3]), pydantic.__version__)") == list(here)
    assert "CPython %d.%d" % sys.version_info[:2] in DrosteInterpreter.execution_instructions
    assert "packages of the host's Python environment" in interp.execution_instructions


def test_the_instructions_are_true_of_other_settings(monkeypatch):
    """Of another interpreter, and of an environment elsewhere, the model is not told that it is the
    host's."""
    import sys
    for settings in ({"python": "/usr/bin/python3"}, {"env": "docker"}):
        for instructions in (DrosteInterpreter.factory(**settings).execution_instructions,
                             DrosteInterpreter(**settings).execution_instructions):
            assert "host's Python environment" not in instructions and "CPython" in instructions
    assert "docker" in DrosteInterpreter.factory(env="docker").execution_instructions
    assert DrosteInterpreter(python="/usr/bin/python3")._inner._session._pairs == [
        ("python", "/usr/bin/python3")]
    assert ("python", sys.executable) in DrosteInterpreter()._inner._session._pairs
    monkeypatch.setenv("DROSTE_PYTHON", "/usr/bin/python3")
    assert (not DrosteInterpreter()._inner._session._pairs
            and "host's Python" not in DrosteInterpreter.execution_instructions)
    monkeypatch.setenv("DROSTE_ENVIRONMENT", "docker")
    assert "docker" in DrosteInterpreter.execution_instructions


def test_submit_ends_the_cell_with_fields(interp):
    """With output fields, by order or name; without, one value is `output`."""
    assert interp.execute("SUBMIT(3)\nprint('never')") == FinalOutput({"output": 3})
    interp.output_fields = [{"name": "a", "type": "int"}, {"name": "b"}]
    assert interp.execute("SUBMIT(1, 'x')") == FinalOutput({"a": 1, "b": "x"})
    assert interp.execute("SUBMIT(b=2, a=1)") == FinalOutput({"b": 2, "a": 1})
    with pytest.raises(CodeExecutionError, match="fields a, b"):
        interp.execute("SUBMIT(1, 2, 3)")
    interp.output_fields = None
    assert interp.execute("SUBMIT('y')") == FinalOutput({"output": "y"})


def test_errors_of_code_leave_the_session(interp):
    """What code raises, SystemExit too, is recoverable; state before it stays."""
    with pytest.raises(CodeExecutionError, match="ZeroDivisionError: division by zero"):
        interp.execute("kept = 1\n1 / 0")
    with pytest.raises(CodeExecutionError, match="SystemExit"):
        interp.execute("raise SystemExit(3)")
    with pytest.raises(SyntaxError):
        interp.execute("x = = 1")
    assert interp.execute("kept") == 1


def test_a_dead_session_is_never_silently_another(interp):
    """A sandbox that is gone is a terminal error, for this cell, the next, and start(); shutdown is
    final."""
    with pytest.raises(CodeInterpreterError) as ended:
        interp.execute("import os; os._exit(3)")
    assert not isinstance(ended.value, CodeExecutionError)
    for again in (interp.start, lambda: interp.execute("1")):
        with pytest.raises(CodeInterpreterError):
            again()
    interp.shutdown()
    interp.shutdown()
    with pytest.raises(CodeInterpreterError, match="session has ended"):
        interp.start()


def test_a_deadline_is_recoverable():
    """A cell over its time is interrupted, and its variables are there."""
    with DrosteInterpreter(execute_timeout=2, grace=60) as interp:
        with pytest.raises(CodeExecutionError, match="TimeoutError"):
            interp.execute("x = 1\nwhile True: pass")
        assert interp.execute("x") == 1


def test_variables_are_bound_before_each_cell(interp):
    """All kinds; what the code did to its name is undone by the next cell's variables."""
    values = {"t": "x" * 100000, "n": None, "f": float("inf"), "d": {"k": [1, 2.5, True]}, "s": {1},
              "u": (1, 2)}
    assert interp.execute("(len(t), n, f > 1, d, s, u)",
                          values) == [100000, None, True, {"k": [1, 2.5, True]}, [1], [1, 2]]
    interp.execute("t = 'gone'", values)
    assert interp.execute("len(t)", values) == 100000
    with pytest.raises(CodeInterpreterError, match="Invalid variable name: 'not a name'"):
        interp.execute("1", {"not a name": 1})


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int
    tags: object = None


class Uncopyable(list):
    def __deepcopy__(self, memo):
        raise TypeError("not copied")


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
    id: int
    value: object = None


Pair = collections.namedtuple("Pair", "a b")
LATE = datetime.datetime(2026, 1, 2, 3, 4, 5)

VALUES = [
    (Colour.RED, "red"), (LATE, "2026-01-02T03:04:05"),
    (LATE.replace(tzinfo=datetime.timezone.utc), "2026-01-02T03:04:05Z"),
    (LATE.date(), "2026-01-02"), (datetime.timedelta(days=1, hours=2, seconds=3.5), "P1DT2H3.5S"),
    (collections.deque([1, 2]), [1, 2]),
    ({3, 1, 2}, [1, 2, 3]), (Point(1, Uncopyable([Colour.RED])), {"x": 1, "tags": ["red"]}),
    (1 + 2j, "1+2j"),
    (Model(id=1, value=LATE), {"id": 1, "value": "2026-01-02T03:04:05"}),
    (uuid.UUID(int=1), "0" * 8 + "-0000-0000-0000-000000000001"),
    (decimal.Decimal("1.50"), "1.50"), ({LATE.date(): Colour.RED}, {"2026-01-02": "red"}),
    (re.compile("a.b"), "a.b"),
]


@pytest.mark.parametrize("value, seen", VALUES, ids=lambda value: type(value).__name__)
def test_values_are_what_dspys_own_interpreter_has(interp, value, seen):
    """As a variable, within others, and as a tool's result."""
    interp.tools["f"] = lambda: {"r": [value]}
    assert interp.execute("(v, [w['k'] for w in ws], f())",
                          {"v": value, "ws": [{"k": value}]}) == [seen, [seen], {"r": [seen]}]
    assert dspy.PythonInterpreter._serialize_value(object.__new__(dspy.PythonInterpreter),
                                                   value) == repr(seen)


def test_a_tools_namedtuple_keeps_its_names(interp):
    """As a variable it is a list; both as in dspy."""
    interp.tools["f"] = lambda: [Pair(1, Pair(2, Colour.RED))]
    assert interp.execute("f(), v", {"v": Pair(1, 2)}) == [[{"a": 1, "b": {"a": 2, "b": "red"}}],
                                                           [1, 2]]


class Doc:
    pass


@pytest.mark.parametrize("value, words", [
    (Doc(), r"{} is of type \S*Doc"), ([{"doc": Doc()}], r"{}\[0\]\['doc'\] is of type \S*Doc"),
    (Doc, "{} is the class Doc"),
    (Point(1, threading.Lock()), "{}.tags is of type _thread.lock"),
    ({(1, 2): 3}, "{} has a key that is of type tuple"),
    (Model(id=1, value=Doc()), "{}: Unable to serialize Model as JSON"),
    ([b"\xff"], r"{}\[0\] is bytes"),
], ids=lambda value: type(value).__name__)
def test_what_cannot_go_into_the_sandbox_is_refused_by_its_path(value, words):
    """As a variable before anything is started, as a tool's result in the code; never as its
    repr."""
    with DrosteInterpreter(tools={"f": lambda: value, "fine": lambda: [1]}) as interp:
        with pytest.raises(CodeInterpreterError, match="^" + words.format("v")) as refused:
            interp.execute("v", {"v": value})
        assert type(refused.value) is CodeInterpreterError and "not started" in repr(interp._inner)
        with pytest.raises(CodeExecutionError, match="^RuntimeError: CodeInterpreterError: "
                           + words.format(r"what f\(\) returned")):
            interp.execute("f()")
        assert interp.execute("fine(), v", {"v": {"k": 1}}) == [[1], {"k": 1}]


def test_a_value_within_itself_is_refused(interp):
    """By its name."""
    loop = []
    loop.append(loop)
    with pytest.raises(CodeInterpreterError, match="^v is nested too deeply"):
        interp.execute("v", {"v": loop})
    interp.tools["f"] = lambda: loop
    with pytest.raises(CodeExecutionError, match=r"what f\(\) returned is nested too deeply"):
        interp.execute("f()")


def test_large_variables_are_sent_once(interp):
    """The same text is not sent again; a changed one is."""
    text = "y" * 3_000_000
    interp.execute("first = id(t)", {"t": text})
    assert interp.execute("id(t) == first", {"t": text}) is True
    assert interp.execute("id(t) == first and False or len(t)", {"t": text + "z"}) == 3_000_001


def test_tools_are_live_and_take_names_only(interp):
    """Tools that come later are there; calls by order reach them by name; async ones are
    awaited."""
    seen = []

    def add(a: int, b: int = 2) -> int:
        return a + b

    def wrapped(**kwargs):
        seen.append(kwargs)
        return add(**kwargs)

    import inspect
    wrapped.__signature__ = inspect.signature(add)

    async def later(x: str) -> str:
        return x + "!"

    interp.execute("1")
    interp.tools.update(add=wrapped, later=later)
    assert interp.execute("add(1, 5), add(a=1), later('x')") == [6, 3, "x!"]
    assert seen == [{"a": 1, "b": 5}, {"a": 1, "b": 2}]
    assert interp.execute("'add' in globals()") is True
    interp.tools["add"] = lambda a: -a
    assert interp.execute("add(1)") == -1
    del interp.tools["later"]
    with pytest.raises(CodeExecutionError, match="NameError"):
        interp.execute("later('x')")


def test_a_tools_exception_is_a_runtime_error_in_the_code(interp):
    """By its type and words; code that catches it goes on."""
    def fails():
        raise KeyError("nothing")

    interp.tools["fails"] = fails
    with pytest.raises(CodeExecutionError, match="RuntimeError: KeyError: 'nothing'"):
        interp.execute("fails()")
    assert interp.execute(
        "try: fails()\nexcept RuntimeError as e: print(e)") == "KeyError: 'nothing'\n"


def test_threads_of_the_code_are_answered_at_once(interp):
    """Tools run beside each other: two calls that wait for each other both return."""
    barrier = threading.Barrier(2)

    def meet(n: int) -> int:
        barrier.wait(60)
        return n

    interp.tools["meet"] = meet
    code = ("from concurrent.futures import ThreadPoolExecutor as T\n"
            "with T(2) as t: print(sorted(t.map(meet, [1, 2])))")
    assert interp.execute(code) == "[1, 2]\n"


# -- the modules

def test_rlm_with_tools_typed_outputs_and_sub_queries():
    """dspy.RLM over several steps: an error that the model sees, llm_query with dspy's counter, a
    tool, and typed fields."""
    steps = scripted({"reasoning": "look", "code": "print(len(context), nowhere)"},
                     {"reasoning": "ask", "code":
                      "replies = llm_query_batched(['a', 'b'])\nprint(replies, upper('x'))"},
                     {"reasoning": "end", "code": "SUBMIT(len(context), [r for r in replies])"})

    def upper(text: str) -> str:
        """In capitals."""
        return text.upper()

    class Sub(dspy.LM):
        def __init__(self):
            super().__init__("scripted")

        def __call__(self, prompt=None, messages=None, **kwargs):
            return ["reply to " + (prompt or messages[-1]["content"])]

    with dspy.context(lm=steps):
        rlm = dspy.RLM("context: str, question: str -> length: int, replies: list[str]",
                       tools=[upper], sub_lm=Sub(),
                       interpreter_factory=DrosteInterpreter)
        found = rlm(context="z" * 50000, question="how long?")
    assert found.length == 50000 and sorted(found.replies) == ["reply to a", "reply to b"]
    assert "NameError" in found.trajectory[0]["output"] and "X" in found.trajectory[1]["output"]


@newer
def test_rlm_from_the_configured_factory():
    """dspy.configure's factory is enough."""
    with dspy.context(lm=scripted({"reasoning": "r", "code": "SUBMIT(answer=context[::-1])"}),
                      interpreter_factory=DrosteInterpreter.factory()):
        assert dspy.RLM("context -> answer")(context="abc").answer == "cba"


@newer
def test_rlms_code_builds_predictors_of_its_own():
    """dspy's stand-in in the sandbox works: code makes a Predict, which runs on the host."""
    code = "p = dspy.Predict('question -> answer')\nSUBMIT(p(question='2+2').answer)"
    with dspy.context(lm=scripted({"reasoning": "r", "code": code}, {"answer": "four"})):
        rlm = dspy.RLM("context -> answer", interpreter_factory=DrosteInterpreter)
        assert rlm(context="x").answer == "four"


def test_rlms_calls_are_counted():
    """Over max_llm_calls the code gets dspy's own error."""
    code = ("try: llm_query_batched(['a', 'b', 'c'])\n"
            "except RuntimeError as e: SUBMIT('refused: %s' % e)")
    with dspy.context(lm=scripted({"reasoning": "r", "code": code})):
        rlm = dspy.RLM("context -> answer", max_llm_calls=2, interpreter_factory=DrosteInterpreter)
        answer = rlm(context="x").answer
        assert answer.startswith("refused: ") and "limit" in answer


def test_program_of_thought_with_an_interpreter_of_the_callers(interp):
    """The positional form: the caller's interpreter, which stays open."""
    lm = scripted({"reasoning": "r", "generated_code": "```python\nSUBMIT({'answer': 6 * 7})\n```"},
                  {"reasoning": "r", "answer": "42"})
    with dspy.context(lm=lm):
        assert dspy.ProgramOfThought("question -> answer")(interp, question="6*7?").answer == "42"
    assert interp.execute("1") == 1


def test_code_act_runs_the_tools_own_source():
    """dspy.CodeAct defines its tools in the sandbox, and later code calls them."""
    lm = scripted({"generated_code": "print(triple(14))", "finished": "True"},
                  {"reasoning": "r", "answer": "42"})
    with dspy.context(lm=lm):
        act = dspy.CodeAct("question -> answer", tools=[triple],
                           interpreter_factory=DrosteInterpreter)
        found = act(question="3 * 14?")
    assert found.answer == "42" and "42" in json.dumps(found.trajectory)


def triple(n: int) -> int:
    """Three times."""
    return 3 * n


@pytest.mark.skipif(not hasattr(dspy, "Flex"), reason="this dspy has no Flex")
def test_flex_runs_a_module_of_its_own_source():
    """dspy.Flex runs a module in the sandbox, whose predictor runs on the host."""
    with dspy.context(lm=scripted({"reasoning": "r", "answer": "flexed"}, {"answer": "flexed"})):
        flex = dspy.Flex("question -> answer", interpreter_factory=DrosteInterpreter)
        assert flex(question="q").answer == "flexed"


# -- fleet-rlm's names, which dspy takes for interpreters

@pytest.fixture(params=["ModalInterpreter", "DaytonaInterpreter"])
def named(request, monkeypatch):
    """A class of droste.compat.providers, which runs here."""
    from droste.compat import providers
    monkeypatch.setenv("DROSTE_ENVIRONMENT", "local")
    return getattr(providers, request.param)


def test_a_submission_by_another_name_is_a_final_output(named):
    """Sync and awaited; with the fields as attributes, as fleet-rlm's pages read them. What submits
    nothing is none."""
    import asyncio
    with named() as interp:
        assert isinstance(interp, CodeInterpreter)
        result = interp.execute("SUBMIT(answer=6 * 7, items=[1])")
        assert isinstance(result, FinalOutput) and result.answer == 42 and result["items"] == [
            1] and result.status == "submitted"
        assert result == FinalOutput({"answer": 42,
                                      "items": [1]}) and result != FinalOutput({"answer": 41})
        assert not isinstance(interp.execute("print(1)"), FinalOutput)

    async def main():
        async with named() as interp:
            return await interp.execute("SUBMIT(answer=42)")

    awaited = asyncio.run(main())
    assert isinstance(awaited,
                      FinalOutput) and awaited.answer == 42 and awaited.output == {"answer": 42}


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_rlm_sees_what_is_submitted_under_another_name(named, mode):
    """dspy.RLM over several steps: an error that the model sees, a tool, and its SUBMIT, which ends
    the run."""
    import asyncio

    def upper(text: str) -> str:
        """In capitals."""
        return text.upper()

    steps = scripted({"reasoning": "look", "code": "kept = len(context)\nprint(kept, nowhere)"},
                     {"reasoning": "print", "code": "print(upper('shown'))"},
                     {"reasoning": "end", "code": "SUBMIT(answer=kept)"})
    with dspy.context(lm=steps):
        rlm = dspy.RLM("context: str -> answer: int", tools=[upper], interpreter_factory=named,
                       max_iters=5)
        found = (rlm(context="z" * 5000) if mode == "sync"
                 else asyncio.run(rlm.acall(context="z" * 5000)))
    assert found.answer == 5000 and len(found.trajectory) == 3
    assert "NameError" in found.trajectory[0]["output"] and "SHOWN" in found.trajectory[1]["output"]
