"""DESIGN.md: "and the user's tools": functions of the host's program that code in the sandbox calls
across the wall."""
import asyncio
import threading

import pytest


def test_a_tool_is_called_with_what_the_code_gave(session):
    """Arguments by order and by name, with defaults; values are JSON, and come back as Python's."""
    calls = []

    def lookup(name: str, limit: int = 3, *, deep: bool = False):
        """Finds."""
        calls.append((name, limit, deep))
        return {"name": name, "found": [limit, None, 1.5]}

    session.tools["lookup"] = lookup
    result = session.execute(
        "SUBMIT(a=lookup('a'), b=lookup('b', limit=1, deep=True), doc=lookup.__doc__[:6])")
    assert result.fields == {"a": {"name": "a", "found": [3, None, 1.5]},
                             "b": {"name": "b", "found": [1, None, 1.5]}, "doc": "Finds."}
    assert calls == [("a", 3, False), ("b", 1, True)]


def test_keyword_only_parameters_are_so_in_the_guest(session):
    """By order they are a TypeError, and the function is not called."""
    calls = []

    def tool(*, name):
        calls.append(name)
        return name

    session.tools["tool"] = tool
    assert session.execute("tool(name='a')").echo == "'a'" and calls == ["a"]


@pytest.mark.parametrize("call", ["tool()", "tool('text')", "tool(1, 2)", "tool(n=1, m=2)",
                                  "tool(n=None)", "tool(object())"])
def test_wrong_arguments_are_a_type_error_before_anything_is_called(session, call):
    """The host holds each call to the signature."""
    calls = []

    def tool(n: int):
        calls.append(n)

    session.tools["tool"] = tool
    assert session.execute(call).error.type in ("TypeError", "ValueError") and calls == []
    assert session.execute("tool(1)").ok and calls == [1]


def test_coroutines_are_tools(session):
    """Async functions, which may wait."""
    async def later(n: int):
        await asyncio.sleep(0.001)
        return n + 1

    session.tools["later"] = later
    assert session.execute("[later(n) for n in range(3)]").echo == "[1, 2, 3]"


@pytest.mark.parametrize("kind, caught", [(KeyError, "KeyError"), (ValueError, "ValueError"),
                                          (OSError, "OSError"),
                                          (ZeroDivisionError, "ZeroDivisionError"),
                                          (type("Own", (Exception,), {}), "ToolError")])
def test_what_a_tool_raises_reaches_the_code(session, kind, caught):
    """By its own type, where Python has it; the code may catch it, and the session goes on."""
    def fail():
        raise kind("some words")

    session.tools["fail"] = fail
    result = session.execute(
        "try: fail()\nexcept Exception as e: SUBMIT(kind=type(e).__name__, message=str(e))")
    assert result.kind == caught and "some words" in result.message
    assert session.execute("fail()").error.type == caught
    assert session.execute("1").ok


def test_tools_come_and_go_between_cells(session):
    """What is added is there for the next cell, another of the same name takes its place, and what
    is removed is gone."""
    session.tools["f"] = lambda: 1
    assert session.execute("f()").echo == "1"
    session.tools["f"] = lambda: 2
    assert session.execute("f()").echo == "2"
    del session.tools["f"]
    assert session.execute("f()").error.type == "NameError"


def test_a_variable_hides_a_tool_and_del_brings_it_back(session):
    """As with the guest's other names."""
    session.tools["f"] = lambda: 1
    assert session.execute("f = 5\nseen = [f]\ndel f\nSUBMIT(seen=seen + [f()])").seen == [5, 1]


def test_threads_of_the_code_call_tools_at_once(opened):
    """Two calls that wait for each other both come back, each with its own answer."""
    both = threading.Barrier(2)

    def meet(n: int):
        both.wait(60)
        return n

    interp = opened(tools=[meet], tool_threads=True)
    assert interp.execute(
        "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(2) as p: got = "
        "list(p.map(meet, [1, 2]))\n"
        "SUBMIT(got=got)").got == [1, 2]


def test_a_tool_that_lasts_is_a_timeout_for_the_code(opened):
    """tool_timeout: TimeoutError in the guest, and the session goes on."""
    go = threading.Event()
    interp = opened(tools={"slow": lambda: go.wait(60) and 1}, tool_threads=True, tool_timeout=0.2)
    result = interp.execute("try: slow()\nexcept TimeoutError as e: SUBMIT(late=True)")
    go.set()
    assert result.fields == {"late": True} and interp.execute("1").ok


def test_the_calls_of_tools_are_bounded(opened):
    """max_tool_calls: BudgetExceeded, and the tool is not called again."""
    calls = []
    interp = opened(tools={"f": lambda: calls.append(1)}, max_tool_calls=2)
    assert interp.execute(
        "f(); f()\ntry: f()\nexcept BudgetExceeded as e: SUBMIT(message=str(e))").message and len(
        calls) == 2


def test_large_arguments_and_answers(session):
    """2 MiB each way, as they were."""
    session.tools["echo"] = lambda text: text + "!"
    assert session.execute(
        "t = ('x' * 100 + '\\U0001f600\\0\\r\\n') * 20_000\n"
        "SUBMIT(same=echo(t) == t + '!')").same is True


def test_tools_cannot_take_the_names_of_pythons_own(session):
    """Built-ins and keywords stay what they are."""
    import droste
    for name in ("print", "open", "class", "a b"):
        session.tools[name] = lambda: 1
        with pytest.raises(droste.ArgumentError):
            session.execute("1")
        del session.tools[name]
    assert session.execute("1").ok


def test_a_guest_that_dies_in_a_tool_call_harms_no_other(opened):
    """The tool's answer is for nobody, and the session says that it is lost."""
    import droste
    asked = threading.Event()
    interp = opened(tools={"f": asked.set})
    result = interp.execute(
        "import threading, os, time\nthreading.Thread(target=f).start()\nos._exit(3)")
    assert (result.status, result.killed) == ("killed", "exit 3")
    with pytest.raises(droste.LostError):
        interp.execute("1")
