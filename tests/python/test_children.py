"""Child runs of sessions: `rlm_query` in an interpreter starts runs, under the interpreter's
limits."""
import asyncio
import sqlite3
import threading

import pytest

import droste
from droste import Interpreter
from droste.compat import DaytonaInterpreter, ModalInterpreter


def model(messages):
    """Plain prompts get an answer; a child run doubles its context, and asks for more where it is
    told to."""
    if len(messages) == 1:
        return "plain"
    question = messages[1]["content"]
    return "```repl\n%s\n```" % ("SUBMIT(rlm_query('leaf', context))" if "go on" in question
                                 else "SUBMIT(context * 2)")


def lm(prompt=None, messages=None):
    """The same, as language models of dspy's are called."""
    return [model(messages or [{"role": "user", "content": prompt}])]


CODE = ("SUBMIT(got=[rlm_query('q', 'ab'), sub_rlm('go on', [1]), llm_query('x'), "
        "rlm_query_batched(['q', 'q'], 3)])")
GOT = ["abab", [1, 1], "plain", [6, 6]]


@pytest.fixture
def locally(monkeypatch):
    monkeypatch.setenv("DROSTE_ENVIRONMENT", "local")


@pytest.mark.parametrize("open_one", [
    lambda: Interpreter(model=model), lambda: Interpreter(sub_model=model),
    lambda: ModalInterpreter(sub_lm=lm), lambda: DaytonaInterpreter(sub_lm=lm)])
def test_the_code_of_an_interpreter_starts_child_runs(locally, open_one):
    """Each with its context and a session of its own, below each other, and many at once."""
    with open_one() as interp:
        assert interp.execute(CODE).got == GOT


@pytest.mark.parametrize("kind", [Interpreter, ModalInterpreter, DaytonaInterpreter])
def test_within_asyncio(locally, kind):
    """As without; several sessions of a loop start theirs at once."""
    async def one():
        async with (kind(model=model) if kind is Interpreter else kind(sub_lm=lm)) as interp:
            return (await interp.execute(CODE)).got

    async def several():
        return await asyncio.gather(*(one() for _ in range(3)))

    assert asyncio.run(several()) == [GOT] * 3


def test_how_deep_they_stand(locally):
    """max_recursion_depth: below it a plain call stands in; with 0 no child begins."""
    for depth, got in ((2, [1, 1]), (1, "plain"), (0, "plain")):
        with DaytonaInterpreter(sub_lm=lm, max_recursion_depth=depth) as interp:
            assert interp.execute("SUBMIT(got=rlm_query('go on', [1]))").got == got


def test_how_many_turns_they_have(locally):
    """delegate_max_iterations; what was said last comes with the error."""
    seen = []

    def never(prompt=None, messages=None):
        seen.append(messages)
        return ["```repl\n1\n```"]

    with DaytonaInterpreter(sub_lm=never, delegate_max_iterations=3) as interp:
        result = interp.execute(
            "try: rlm_query('q')\nexcept BudgetExceeded as e: SUBMIT(why=str(e))")
    assert "within 3 turns" in result.why and len(seen) == 4        # and its last words


def test_their_calls_are_the_sessions(locally):
    """max_llm_calls holds for what the code asks and for the turns of child runs together."""
    with ModalInterpreter(sub_lm=lm, max_llm_calls=3) as interp:
        assert interp.execute("llm_query('x')\nSUBMIT(got=rlm_query('go on', 'a'))").got == "aa"
        result = interp.execute(
            "try: rlm_query('q')\nexcept BudgetExceeded as e: SUBMIT(code=e.code, limit=e.limit)")
        assert (result.code, result["limit"]) == ("budget_calls", "calls")


def test_they_are_recorded_as_runs(tmp_path):
    """Where a database is on: with their calls and cells, and one below the other. A session that
    starts none does not open it."""
    path = tmp_path / "runs.db"
    with Interpreter(model=model, database=path) as interp:
        assert interp.execute("SUBMIT(got=llm_query('x'))").got == "plain" and not path.exists()
        assert interp.execute("SUBMIT(got=rlm_query('go on', 'a'))").got == "aa"
    with sqlite3.connect(str(path)) as record:
        outer, inner = record.execute(
            "select id, parent, depth, status, calls from runs order by seq").fetchall()
        assert outer[1:] == (None, 1, "answered", 2) and inner[1:] == (outer[0], 2, "answered", 1)
        assert record.execute(
            "select count(*) from cells where status = 'submitted'").fetchone() == (2,)
    with pytest.raises(droste.UnsupportedError, match="started by the code of a session"):
        droste.RLM(model, database=path).resume(outer[0])


def test_a_record_that_cannot_be_written_is_an_exception(tmp_path):
    """The child does not begin, and the session goes on."""
    (tmp_path / "a file").write_text("")
    with Interpreter(model=model, database=tmp_path / "a file" / "runs.db") as interp:
        assert "a file" in str(interp.execute("rlm_query('q')").error)
        assert interp.execute("SUBMIT(got=llm_query('x'))").got == "plain"


def test_tools_are_theirs_too():
    """Those of the session, also one that came later; without `sub_tools` they have none."""
    def child(messages):
        return "```repl\ntry: got = double(context)\nexcept NameError: got = None\nSUBMIT(got)\n```"

    for sub_tools, got in ((True, 6), (False, None)):
        with Interpreter(model=child, tools={"double": lambda n: n * 2},
                         sub_tools=sub_tools) as interp:
            assert interp.execute("SUBMIT(got=rlm_query('q', 3))").got == got


def test_a_cell_that_ends_ends_its_child_runs(tmp_path):
    """At its deadline, and with the interpreter: the record says that they were cancelled; the
    session goes on."""
    asked, go = threading.Event(), threading.Event()

    def slow(messages):
        asked.set()
        go.wait(60)
        return "late"

    path = tmp_path / "runs.db"
    with Interpreter(model=slow, database=path) as interp:
        result = interp.execute("rlm_query('q')", timeout=4)
        assert result.status == "timeout" and interp.execute("SUBMIT(x=1)").x == 1
        assert asked.is_set()
        interp.execute(
            "import threading\nthreading.Thread(target=rlm_query, args=('r',), "
            "daemon=True).start()\nimport time; time.sleep(0.3)")
    go.set()
    with sqlite3.connect(str(path)) as record:
        assert not record.execute(
            "select * from runs where status not in ('cancelled', 'timeout')").fetchall()
        assert record.execute("select count(*) from runs").fetchone()[0] >= 1


def test_without_a_model_they_are_refused():
    """By name, with what to give."""
    with Interpreter() as interp:
        assert "no model is configured" in str(interp.execute("rlm_query('q')").error)
