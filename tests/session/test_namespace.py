"""DESIGN.md: "One persistent module namespace, `__main__`: classes, functions, `global`, late
binding, `_names`, imports and threads behave as in Python. What a cell bound before it raised stays
bound. Top-level `await` works. With `echo`, the value of a last expression is returned."
"""
import pytest

import droste


def run(session, *cells):
    """Runs cells, all of which must end well; the last one's result."""
    for cell in cells:
        result = session.execute(cell)
        assert result.ok, "%s\n%s" % (cell, result.error and result.error.traceback)
    return result


def test_variables_and_functions_stay(session):
    """One persistent module namespace: what a cell binds is there in the next ones."""
    assert run(session, "x = 20", "def double(n): return 2 * n", "SUBMIT(n=double(x) + 2)").n == 42


def test_classes_stay_and_know_their_module(session):
    """Classes behave as in Python: they are of `__main__`, can be inherited from, and are found
    there."""
    assert run(session, "class A:\n    def f(self): return 'A'",
               "class B(A):\n    def f(self): return super().f() + 'B'",
               "import sys\nSUBMIT(said=B().f(), of=B.__module__, there=sys.modules['__main__'].B "
               "is B)").fields == {
        "said": "AB", "of": "__main__", "there": True}


def test_the_namespace_is_the_module_main(session):
    """`__main__`: `import __main__` has the variables, and `globals()` is its dictionary."""
    assert run(session, "x = 1", "import __main__\n__main__.y = 2",
               "SUBMIT(s=[x, y, __name__, vars(__main__) is globals(), "
               "globals() is locals()])").s == [
        1, 2, "__main__", True, True]


def test_global_statements_bind_in_the_namespace(session):
    """`global` behaves as in Python: a function of one cell rebinds what another cell reads."""
    assert run(session, "n = 0\ndef count():\n    global n, made\n    n += 1\n    made = n",
               "count(); count()",
               "SUBMIT(s=[n, made])").s == [2, 2]


def test_names_are_bound_late(session):
    """Late binding: a function sees what a later cell defined, or defined anew."""
    assert run(session, "def outer(): return inner()", "def inner(): return 1", "first = outer()",
               "def inner(): return 2", "SUBMIT(s=[first, outer()])").s == [1, 2]


def test_names_with_underscores_stay(session):
    """`_names` are variables as others are."""
    assert run(session, "_a = 1\n__b = 2\n__c__ = 3", "SUBMIT(s=[_a, __b, __c__])").s == [1, 2, 3]


def test_imports_stay(session):
    """Imports behave as in Python: modules, submodules, names out of them, and other names for
    them."""
    assert run(session,
               "import os.path, json as j\nfrom math import factorial as f\nfrom collections "
               "import *",
               "SUBMIT(s=[os.path.basename('/a/b'), j.dumps([1]), f(4), "
               "Counter('aa')['a']])").s == ["b", "[1]", 24, 2]


HOSTS = ["context", "answer", "llm_query", "SHOW_VARS", "history", "twice"]
OVERWRITE = (
    "kept = context\ncontext = context_0 = answer = llm_query = 'mine'\ndef SHOW_VARS(): return "
    "'mine'\n"
    "def twice(n): return 'mine'\nhistory = own = 'mine'\n")
LOOK = (
    "SUBMIT(seen=[context, context_0, type(answer).__name__, llm_query('a'), SHOW_VARS() != "
    "'mine', twice(2), history, own],"
    " same=context is kept)")
RESTORED = {"seen": ["the text", "the text", "dict", "re: a", True, 4, "mine", "mine"],
            "same": True}


def twice(n: int) -> int:
    """Doubles."""
    return 2 * n


@pytest.fixture
def guarded(opened):
    """guarded(setting=value…): a session with a context, a model and a tool."""
    def open_one(**settings):
        interp = opened(model=lambda messages: "re: " + messages[-1]["content"], tools=[twice],
                        **settings)
        interp.set("context", "the text")
        interp.set("context_0", "the text")
        return interp

    return open_one


def test_names_of_the_host_are_restored_where_that_is_asked_for(guarded):
    """After each cell, whatever became of it: values of the host's are bound again, the very
    objects, with `context` the numbered ones too, and what hides a function is gone. A name that
    the host has given nothing by is the code's."""
    interp = guarded(restore_name=HOSTS)
    bound = {variable["name"]: variable for variable in run(interp, OVERWRITE).variables}
    assert (bound["context"]["length"], bound["own"]["length"]) == (8, 4)
    assert "llm_query" not in bound
    assert run(interp, LOOK).fields == RESTORED
    assert interp.execute(OVERWRITE + "1 / 0").error.type == "ZeroDivisionError"
    assert run(interp, LOOK).fields == RESTORED
    run(interp, "del context, answer")
    assert run(interp, LOOK).fields == RESTORED
    interp.set("context", "another")
    assert run(interp, "context = 1",
               "SUBMIT(seen=[context, context_0])").seen == ["another", "the text"]
    assert run(interp, "SUBMIT(seen=context)").seen == "another"
    assert interp.execute("context += ' of a cell'\nSUBMIT(seen=context)",
                          {"context": "a variable"}).seen == "a variable of a cell"
    assert run(interp, "SUBMIT(seen=context)").seen == "a variable"


def test_an_answer_that_is_a_dict_goes_on(guarded):
    """A dict in the place of `answer` is an answer as the first was, and may be filled in by later
    cells."""
    interp = guarded(restore_name=HOSTS)
    run(interp, "answer = {'content': 5, 'ready': False}")
    assert interp.execute("answer['ready'] = True").fields == {"answer": 5}


def test_without_it_names_are_pythons(guarded):
    """The twin: what a cell has bound stays bound."""
    interp = guarded()
    run(interp, OVERWRITE)
    assert run(interp,
               "SUBMIT(seen=[context, context_0, answer, llm_query, SHOW_VARS(), "
               "twice(2)])").seen == ["mine"] * 6


def test_only_names_are_restored(opened):
    """What is not a name in Python is refused, and named."""
    with pytest.raises(droste.ArgumentError, match="restore-name 'context,answer'"):
        opened(restore_name="context,answer")


def test_comprehensions_and_class_bodies_see_the_namespace(session):
    """One namespace, not two: what runs in a scope of its own finds the cell's names, in the same
    cell."""
    assert run(session, "xs = [1, 2]\ndef f(n): return n + len(xs)\n"
                        "class C:\n    ys = [f(x) for x in xs]\n    def g(self): return [f(y) for "
                        "y in self.ys]\n"
                        "SUBMIT(s=[[f(x) for x in xs], C().g(), list(map(lambda x: f(x), "
                        "xs))])").s == [
        [3, 4], [5, 6], [3, 4]]


def test_functions_call_themselves(session):
    """A function finds its own name in the namespace."""
    assert run(session,
               "def fac(n): return 1 if n < 2 else n * fac(n - 1)\nSUBMIT(n=fac(10))").n == 3628800


def test_annotations_are_resolved_in_the_namespace(session):
    """What looks names up in a module's dictionary finds those of the cells: dataclasses, type
    hints."""
    assert run(session,
               "import dataclasses, typing\n@dataclasses.dataclass\nclass Node:\n    next: "
               "'typing.Optional[Node]' = None",
               "SUBMIT(found=typing.get_type_hints(Node)['next'] == typing.Optional[Node], "
               "text=repr(Node(Node())))").fields == {
        "found": True, "text": "Node(next=Node(next=None))"}


def test_objects_of_own_classes_can_be_pickled(session):
    """Pickle finds the classes and functions of cells in `__main__`."""
    assert run(session,
               "import pickle\nclass P:\n    def __init__(self, n): self.n = n\ndef f(): return 7",
               "data = pickle.dumps([P(5), P, f])",
               "p, kind, g = pickle.loads(data)\nSUBMIT(s=[p.n, kind is P, g()])").s == [
        5, True, 7]


def test_forks_have_the_namespace(session):
    """A process that the code forks has what the cells have bound, and does not speak for the
    session."""
    assert run(session, "import os\nbase = 41\nr, w = os.pipe()",
               "pid = os.fork()\nif pid == 0:\n    os.write(w, str(base + 1).encode())\nelse:\n    "
               "os.waitpid(pid, 0)",
               "SUBMIT(value=os.read(r, 10).decode())").value == "42"


@pytest.mark.needs("semaphores")
def test_pools_of_processes_have_the_namespace(session):
    """multiprocessing behaves as in Python: functions of cells are found in the processes of a
    pool."""
    assert run(session, "import multiprocessing\ndef square(n): return n * n + base\nbase = 1",
               "with multiprocessing.get_context('fork').Pool(2) as pool: got = pool.map(square, "
               "[1, 2, 3])",
               "SUBMIT(got=got)").got == [2, 5, 10]


def test_threads_go_on_between_cells(session):
    """Threads behave as in Python: one that a cell has started sees what later cells bind, and can
    be joined."""
    assert run(session, "import threading\nseen, go = [], threading.Event()\n"
                        "def work():\n    go.wait()\n    seen.append(later)\nt = "
                        "threading.Thread(target=work)\nt.start()",
               "later = 'bound'\ngo.set()", "t.join()\nSUBMIT(seen=seen)").seen == ["bound"]


def test_cells_run_in_the_main_thread(session):
    """As a program does: signal handlers can be set, and the thread is the same in each cell."""
    assert run(session,
               "import signal, threading\nold = signal.signal(signal.SIGUSR1, lambda *a: "
               "None)\nfirst = threading.get_ident()",
               "signal.signal(signal.SIGUSR1, old)\n"
               "SUBMIT(s=[threading.current_thread() is threading.main_thread(), first == "
               "threading.get_ident()])").s == [True, True]


def test_what_was_bound_before_an_error_stays(session):
    """What a cell bound before it raised stays bound; what stands behind it is not there."""
    result = session.execute("before = 1\nimport json\nraise ValueError('x')\nafter = 2")
    assert (result.status, result.error.type) == ("error", "ValueError")
    assert run(session,
               "SUBMIT(before=before, json=json.dumps(1), after='after' in globals())").fields == {
        "before": 1, "json": "1", "after": False}


def test_a_cell_that_does_not_compile_does_nothing(session):
    """As a module: no line of it runs."""
    assert session.execute("x = 1\ny = (").error.type == "SyntaxError"
    assert run(session, "SUBMIT(x='x' in globals())").x is False


def test_deleted_names_are_gone(session):
    """`del` behaves as in Python."""
    run(session, "x = 1", "del x")
    assert session.execute("x").error.type == "NameError"


def test_top_level_await_works(session):
    """Top-level `await` works: with statements and loops too, and in comprehensions."""
    assert run(session,
               "import asyncio, contextlib\nasync def twice(n):\n    await asyncio.sleep(0)\n    "
               "return 2 * n\n"
                        "async def some():\n    for n in (1, 2):\n        yield n\n"
                        "@contextlib.asynccontextmanager\nasync def held():\n    yield 'held'",
               "got = [await twice(n) for n in (1, 2)]\nasync for n in some(): got.append(n)\n"
               "async with held() as word: got.append(word)\nSUBMIT(got=got + await "
               "asyncio.gather(twice(3), twice(4)))").got == [
        2, 4, 1, 2, "held", 6, 8]


def test_what_a_cell_bound_before_a_failed_await_stays(session):
    """An exception of what is awaited is the cell's."""
    result = session.execute("x = 1\nasync def fail(): raise KeyError('k')\nawait fail()\ny = 2")
    assert result.error.type == "KeyError"
    assert run(session, "SUBMIT(s=[x, 'y' in globals()])").s == [1, False]


def test_tasks_go_on_in_later_cells(session):
    """All cells have one event loop: a task of one can be awaited in another."""
    assert run(session,
               "import asyncio\nasync def work():\n    await asyncio.sleep(0.01)\n    return 5\n"
                        "task = asyncio.ensure_future(work())\nawait asyncio.sleep(0)",
               "SUBMIT(n=await task)").n == 5


def test_tasks_are_awaited_by_the_last_expression(session):
    """A task that statements start is awaited by the last expression, whose value is the echo."""
    code = ("import asyncio\nasync def work():\n    await asyncio.sleep(0)\n    return 6\n"
            "task = asyncio.create_task(work())\nawait task")
    assert run(session, code).echo == "6"
    assert run(session, "SUBMIT(left=[name for name in globals() if 'echo' in name])").left == []


def test_a_task_made_before_the_first_await_is_awaited_later(environment):
    """A session has one event loop, also for a cell that makes a task and does not await."""
    with environment.open() as fresh:
        assert run(fresh, "import asyncio\nasync def work():\n    return 7",
                   "task = asyncio.ensure_future(work())", "SUBMIT(n=await task)").n == 7


def test_asyncio_run_works_too(session):
    """A cell without top-level await has no running loop, so that code which starts one itself
    works."""
    assert run(session,
               "import asyncio\nasync def f(): return 3\nSUBMIT(n=asyncio.run(f()))").n == 3


@pytest.mark.parametrize("code, echo", [
    ("6 * 7", "42"), ("x = 5\nx", "5"), ("'a'", "'a'"), ("x = 5", None), ("None", None),
    ("for i in 'a': i", None),
    ("import asyncio\nawait asyncio.sleep(0, 'late')", "'late'"), ("", None), ("# nothing", None),
    ("[1,\n 2]", "[1, 2]"),
])
def test_the_value_of_a_last_expression_is_returned(session, code, echo):
    """With `echo`, the value of a last expression is returned, as its repr; None and statements
    have none."""
    result = session.execute(code)
    assert (result.status, result.echo, result.stdout) == ("ok", echo, "")


def test_a_repr_that_raises_is_the_cells_error(session):
    """The repr is the code's own and may fail; the session goes on."""
    result = session.execute(
        "class R:\n    def __repr__(self): raise ValueError('no repr')\nx = 1\nR()")
    assert (result.status, result.error.type) == ("error", "ValueError")
    assert run(session, "x").echo == "1"
    result = session.execute("class S:\n    def __repr__(self): SUBMIT(said='by repr')\nS()")
    assert (result.status, result.fields, result.echo) == ("submitted", {"said": "by repr"}, None)


def test_there_is_no_input(session):
    """Standard input is at its end, so that code which asks somebody does not wait for ever."""
    assert session.execute("input()").error.type == "EOFError"
    assert run(session, "import sys\nSUBMIT(text=sys.stdin.read())").text == ""


def test_sessions_do_not_see_each_other(session, opened):
    """Each session has a namespace, and a random state, of its own."""
    other = opened()
    run(session, "mine = 1\nimport random")
    run(other, "import random")
    assert other.execute("mine").error.type == "NameError"
    assert run(session, "random.random()").echo != run(other, "random.random()").echo
