"""`Interpreter` without asyncio: cells, results, variables, tools, models, exceptions, what
closes."""
import gc
import threading

import pytest

import droste
from droste import Interpreter


@pytest.fixture
def interp():
    with Interpreter() as made:
        yield made


# -- cells and results

def test_submitted_fields_are_attributes_and_items(interp):
    """Also such as are called like a dict's methods."""
    r = interp.execute("SUBMIT(answer=6 * 7, items=['a'], keys=1)")
    assert (r.answer, r.items, r.keys, r["items"], "answer" in r) == (42, ["a"], 1, ["a"], True)
    assert r.output == {"answer": 42, "items": ["a"], "keys": 1} == r.fields
    assert r.status == "submitted" and r.ok and r.raise_for_status() is r
    assert interp.execute("SUBMIT('x')").output == "x"


def test_a_missing_field_says_what_there_is(interp):
    with pytest.raises(AttributeError, match="no field 'answr': it submitted answer"):
        interp.execute("SUBMIT(answer=1)").answr
    with pytest.raises(AttributeError, match="submitted nothing .status error, ZeroDivisionError"):
        interp.execute("1 / 0").answer


def test_output_errors_and_echo(interp):
    """What was printed, the last expression, and the error with its lines; variables stay."""
    r = interp.execute("x = 1\nimport sys\nprint('out')\nprint('err', file=sys.stderr)\nx + 1")
    assert (r.status, r.stdout, r.stderr, r.echo, r.error) == ("ok", "out\n", "err\n", "2", None)
    r = interp.execute("y = 2\nnowhere")
    assert r.error.type == "NameError" and "line 2" in r.error.traceback and not r.ok and r.alive
    with pytest.raises(droste.CellFailed, match="NameError") as failed:
        r.raise_for_status()
    assert failed.value.result is r
    assert interp.execute("x + y").echo == "3"
    assert {v["name"] for v in r.variables} >= {"x", "y"}


def test_a_result_outlives_its_interpreter():
    with Interpreter() as interp:
        r = interp.execute("print('kept'); SUBMIT(n=1)")
    del interp
    gc.collect()
    assert (r.stdout, r.n, r.json["status"]) == ("kept\n", 1, "submitted")


def test_a_result_is_one_and_stays_here(interp):
    """A copy would free the library's memory twice, and one in another process what is not there.
    The exception of a failed cell may go there, without it."""
    import copy
    import pickle
    r = interp.execute("1 / 0")
    assert copy.copy(r) is r and copy.deepcopy([r])[0] is r
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(r)
    with pytest.raises(droste.CellFailed) as failed:
        r.raise_for_status()
    sent = pickle.loads(pickle.dumps(failed.value))
    assert type(sent) is droste.CellFailed and str(sent) == str(
        failed.value) and sent.result is None
    assert pickle.loads(pickle.dumps(r.json)) == r.json


def test_results_show_themselves_without_markup_of_the_codes(interp):
    """In notebooks: what code printed is escaped."""
    page = interp.execute("print('<script>x</script>')")._repr_html_()
    assert "&lt;script&gt;" in page and "<script>" not in page
    assert repr(interp.execute("SUBMIT(a=1)")) == "<Result: submitted, a=1>"
    page = interp.execute("SUBMIT(**{'<b>': '<i>'})")._repr_html_()
    assert "&lt;b&gt;" in page and "&lt;i&gt;" in page and "<b>" not in page and "<i>" not in page
    long = interp.execute("print('y' * 50000); SUBMIT(a='x' * 50000)")
    assert len(repr(long)) < 200 and 5000 < len(long._repr_html_()) < 8000
    assert [len(repr(interp.execute(code))) < 200 for code in (
        "'x' * 50000", "print('x' * 50000)", "raise ValueError('x' * 50000)")] == [True] * 3


def test_settings_are_keywords():
    """All of Droste's, with '_' for '-'; what is none is refused with the one that was meant."""
    with Interpreter(isolation="process", execute_timeout=2, grace=60,
                     setup_code="base = 40") as interp:
        assert interp.isolation == "process"
        assert interp.execute("while True: pass").status == "timeout"
        assert interp.execute("while True: pass", timeout=0.5).status == "timeout"
        assert interp.execute("SUBMIT(n=base + 2)", timeout=60).n == 42
    with pytest.raises(droste.ArgumentError, match="did you mean 'memory'"):
        Interpreter(memry="1G")
    with pytest.raises(droste.ArgumentError, match="memory"):
        Interpreter(memory="few").start()
    with pytest.raises(droste.Error, match="<setup>|setup"):
        Interpreter(setup_code="1 / 0").start()


def test_settings_of_one_are_not_the_next_ones():
    """Engines are used again; what was set for one interpreter is forgotten."""
    with Interpreter(tools={"f": lambda: 1}, setup_code="here = 1", execute_timeout=5) as first:
        assert first.execute("f(), here").echo == "(1, 1)"
    with Interpreter() as second:
        assert second.execute(
            "'here' in globals(), 'f' in dir(__builtins__)").echo == "(False, False)"
        assert "execute-timeout" not in second.execute("1").resources["limits"]


# -- variables

def test_values_go_in_and_come_back(interp):
    for value in ("text é", 1.5, None, [1, {"k": [True]}], {"a": {}}, "x" * 200_000,
                  list(range(50_000))):
        interp.set("v", value)
        assert interp.get("v") == value
    interp.set("b", b"\x00\xff")
    assert interp.execute("b").echo == repr(b"\x00\xff")
    with pytest.raises(droste.ArgumentError, match="not a valid name"):
        interp.set("not a name", 1)


def test_variables_of_a_cell(interp):
    """Small ones as Python has them, large ones unchanged are not sent again, changed ones are."""
    big, rows = "y" * 5_000_000, [{"i": i} for i in range(5000)]
    values = {"inf": float("inf"), "keys": {1: 2}, "big": big, "rows": rows}
    assert interp.execute("first = id(big); (inf > 1, keys, len(big), len(rows))", values).echo == (
        "(True, {1: 2}, 5000000, 5000)")
    assert interp.execute("id(big) == first", values).echo == "True"
    rows.append({"i": -1})
    assert interp.execute("len(rows)", values).echo == "5001"


def test_files_are_loaded(interp, tmp_path):
    (tmp_path / "a.json").write_text("[1, 2]")
    interp.load("rows", tmp_path / "a.json")
    assert interp.get("rows") == [1, 2]
    interp.load("rows", tmp_path / "a.json", "text")
    assert interp.get("rows") == "[1, 2]"
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "f.txt").write_text("x")
    interp.load("files", tmp_path / "d")
    assert interp.get("files") == {"f.txt": "x"}
    with pytest.raises(droste.NotFoundError):
        interp.load("rows", tmp_path / "none")
    with pytest.raises(droste.ArgumentError):
        interp.load("rows", tmp_path / "a.json", "odd")


# -- tools

def test_what_a_tool_takes_is_read_from_it():
    """Types, defaults, what is required; `**` takes any name, and what goes by order only has no
    schema. What is said in words goes before."""
    from typing import Dict, List, Optional
    from droste._tools import collect, schema_of

    def f(a: int, b: List[str], c: Optional[int] = None, d: float = 1.5, e: str = "x",
          g: bool = True, *, h: Dict[str, int], i=2): pass
    assert schema_of(f) == {"type": "object", "additionalProperties": False,
                            "required": ["a", "b", "h"], "properties": {
        "a": {"type": "integer"}, "b": {"type": "array"}, "c": {"default": None},
        "d": {"type": "number"}, "e": {"type": "string", "default": "x"},
        "g": {"type": "boolean", "default": True}, "h": {"type": "object"}, "i": {"default": 2}}}
    assert schema_of(lambda a, **k: 1) == {"type": "object", "properties": {"a": {}},
                                           "required": ["a"], "additionalProperties": True}
    assert schema_of(lambda *a: 1) is None and schema_of(lambda a, /: 1) is None
    own = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    tools = {"f": {"tool": lambda n: n + 1, "description": "Adds one.", "parameters": own},
             "g": lambda a, **k: [a, sorted(k.items())]}
    with Interpreter(tools=tools) as interp:
        assert interp.execute("f(1), f.__doc__, g(1, x=2)").echo.startswith(
            "(2, 'Adds one.") and interp.execute("g(1, x=2)").echo == "[1, [('x', 2)]]"
        assert interp.execute("f('x')").error.type == "TypeError"
        assert interp.execute("g()").error.type == "TypeError"
    with pytest.raises(droste.ArgumentError, match="two tools with the name 'f'"):
        collect([f, f])
    with pytest.raises(droste.ArgumentError, match="is not a function"):
        collect({"f": 5})


def test_a_tool_takes_its_own_default(interp):
    """One that its annotation does not allow, left out and given; and still no third type."""
    def text(x: str = None): return [x]
    def number(n: int = 0.5): return [n]
    def flag(f: bool = "auto"): return [f]
    def many(l: list = None, d: dict = (), t: "str" = None): return [l, d, t]
    def odd(s: str = ...): return [s is ...]

    interp.tools.update(text=text, number=number, flag=flag, many=many, odd=odd)
    assert interp.execute(
        "text() + text(None) + text(x=None) + text('a')").echo == "[None, None, None, 'a']"
    assert interp.execute(
        "number() + number(0.5) + number(2) + flag() + flag('auto') + "
        "flag(True)").echo == "[0.5, 0.5, 2, 'auto', 'auto', True]"
    assert interp.execute("many(), many(None, (), None), many([1], {}, 't'), odd()").echo == (
        "([None, (), None], [None, (), None], [[1], {}, 't'], [True])")
    assert interp.execute(
        "import inspect; str(inspect.signature(text))").echo == "'(x: str = None)'"
    for wrong in ("text(1)", "number('1')", "flag([])", "many(1)", "odd(None)"):
        assert interp.execute(wrong).error.type == "TypeError", wrong


def test_tools_of_any_shape(interp):
    """Arguments without names, coroutines, and results that are not JSON."""
    async def later(n):
        return n + 1

    interp.tools.update(any_of=lambda *a, **k: [a, k], later=later, odd=lambda: {1, 2},
                        nan=lambda: float("nan"))
    assert interp.execute("any_of(1, 'x', k=2), later(1), sorted(odd()), nan()").echo == (
        "([(1, 'x'), {'k': 2}], 2, [1, 2], nan)")


def test_a_tools_exception_is_the_codes(interp):
    """By its own type, where Python has it; the code may catch it, and the session goes on."""
    class Strange(Exception):
        pass

    def fail(kind):
        raise {"key": KeyError, "own": Strange}[kind]("words")

    interp.tools["fail"] = fail
    r = interp.execute("try: fail('key')\nexcept KeyError as e: print(e)\nfail('own')")
    assert (r.stdout == "'words'\n" and r.error.type == "ToolError"
            and "Strange: words" in r.error.message)
    assert interp.execute("1").ok


def test_tools_come_and_go(interp):
    interp.tools["f"] = lambda: 1
    assert interp.execute("f()").echo == "1"
    interp.tools["f"] = lambda: 2
    assert interp.execute("f()").echo == "2"
    del interp.tools["f"]
    assert interp.execute("f()").error.type == "NameError"
    interp.tools["print"] = lambda: 1
    from droste import _tools
    before = len(_tools._bound)
    for _ in range(2):
        with pytest.raises(droste.ArgumentError, match="reserved"):
            interp.execute("1")
    assert len(_tools._bound) == before
    del interp.tools["print"]
    assert interp.execute("1").ok


# -- models

def test_functions_are_models():
    """Sync and async; they are told which model the code names, and their failures are the
    code's."""
    def root(messages, model=None):
        if messages[-1]["content"] == "fail":
            raise ValueError("words")
        return "%s %s" % (messages[-1]["content"], model)

    async def coroutine(messages):
        return messages[0]["role"]

    with Interpreter(model=root, retries=0) as interp:
        assert interp.execute(
            "llm_query('q'), llm_query('q', model='other')").echo == "('q None', 'q other')"
        assert interp.execute(
            "llm_query_batched(['1', '2', '3'])").echo == "['1 None', '2 None', '3 None']"
        assert "ValueError: words" in interp.execute("llm_query('fail')").error.message
    with Interpreter(model=coroutine) as interp:
        assert interp.execute("llm_query('q')").echo == "'user'"
    with Interpreter(model=root, sub_model=coroutine) as interp:
        assert interp.execute("llm_query('q')").echo == "'user'"
    with Interpreter(model=lambda messages: b"by\xc3\xa9tes") as interp:
        assert interp.execute("llm_query('q')").echo == "'byétes'"
    with Interpreter(model=lambda messages: 5, retries=0) as interp:
        assert "a model function must return a str, not int" in interp.execute(
            "llm_query('q')").error.message


def test_models_see_who_asks_and_what():
    """They run with the context (contextvars) of whoever runs the code; images and documents are
    parts."""
    import contextvars
    variable = contextvars.ContextVar("variable", default="none")
    seen = []

    def model(messages):
        seen.append((variable.get(), messages[-1]["content"]))
        return "said"

    async def later(messages):
        return model(messages)

    variable.set("mine")
    for each in (model, later):
        with Interpreter(model=each) as interp:
            assert interp.execute(
                "llm_query([{'role': 'user', 'content': ['look', b'\\x89PNG\\r\\n\\x1a\\n', "
                "b'%PDF-1']}])").echo == "'said'"
        assert seen.pop() == ("mine", [
            {"type": "text", "text": "look"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
            {"type": "document", "media_type": "application/pdf", "data": b"%PDF-1"}])


# -- life

def test_starting_and_closing_again_is_fine():
    interp = Interpreter()
    interp.start()
    interp.start()
    interp.shutdown()
    interp.shutdown()
    with pytest.raises(droste.Error, match="shut down"):
        interp.execute("1")


def test_a_listener_that_raises_stops_the_cell():
    def listen(stream, text):
        raise LookupError("enough")

    with Interpreter(on_output=listen, grace=60) as interp:
        with pytest.raises(LookupError, match="enough"):
            interp.execute("x = 1\nprint('a', flush=True)\nwhile True: pass")
        assert interp.execute("x").echo == "1"


def test_a_listener_that_always_raises_is_called_once():
    """What it raises while its cell is being stopped is nobody's: not the next cell's, nor the next
    interpreter's on the same engine."""
    def listen(stream, text):
        raise LookupError("enough")

    with Interpreter(on_output=listen, grace=60) as interp:
        with pytest.raises(LookupError):
            interp.execute("x = 1\nwhile True: print('a' * 1000, flush=True)")
        assert interp.execute("x").echo == "1"
    with Interpreter() as other:
        assert other.execute("1").ok


@pytest.mark.parametrize("use", [lambda i: i.execute("1"), lambda i: i.set("x", 1),
                                 lambda i: i.get("x"), lambda i: i.shutdown()])
def test_what_an_engine_calls_cannot_use_its_session(use):
    """A listener and a tool, in the thread that waits, and a tool in another thread, which would
    wait for ever; the session goes on."""
    listener = Interpreter(on_output=lambda stream, text: use(listener))
    with listener:
        with pytest.raises(droste.Error, match="callback of (its|the) engine"):
            listener.execute("print(1)")
        assert listener.execute("2").echo == "2"

    async def later():
        use(interp)

    for threads, tool in ((False, lambda: use(interp)), (True, lambda: use(interp)),
                          (False, later)):
        with Interpreter(tools={"again": tool}, tool_threads=threads, execute_timeout=60) as interp:
            error = interp.execute("again()").error
            assert error.type == "ToolError" and " cannot " in error.message
            assert interp.execute("2").echo == "2"


def test_tools_in_threads_wait_for_each_other():
    """Two calls at once, each of which needs the other; without `tool_threads`, in the thread that
    waits."""
    both = threading.Barrier(2)

    def meet():
        both.wait(60)
        return threading.current_thread() is threading.main_thread()

    code = (
        "import threading\nwaited = []\nt = threading.Thread(target=lambda: "
        "waited.append(f()))\nt.start(); waited.append(f()); t.join()\n"
        "SUBMIT(waited=waited)")
    with Interpreter(tools={"f": meet}, tool_threads=True) as interp:
        assert interp.execute(code).waited == [False, False]
    with Interpreter(tools={"f": lambda:
                            threading.current_thread() is threading.main_thread()}) as interp:
        assert interp.execute(code).waited == [True, True]


def test_a_tool_may_use_another_session():
    """The twin, in the thread that waits and in another."""
    with Interpreter() as other:
        for threads in (False, True):
            with Interpreter(tools={"f": lambda: other.execute("6 * 7").echo},
                             tool_threads=threads) as interp:
                assert interp.execute("f()").echo == "'42'"


def test_an_interrupt_ends_the_cell_under_way_and_no_other():
    """One that comes while nothing runs is nobody's; one in a cell ends it, and the next is
    whole."""
    running = threading.Event()
    with Interpreter(tools={"started": running.set}, grace=60) as interp:
        interp.interrupt()
        interp.start()
        interp.interrupt()
        assert interp.execute("import time; time.sleep(0.2); 5").echo == "5"

        def interrupt():
            running.wait(60)
            interp.interrupt()

        thread = threading.Thread(target=interrupt)
        thread.start()
        result = interp.execute("x = 1; started()\nwhile True: pass")
        assert result.error.type == "KeyboardInterrupt"
        thread.join(60)
        interp.interrupt()
        assert interp.execute("time.sleep(0.2); x").echo == "1"


def test_who_forgets_to_close_is_warned_and_loses_nothing():
    interp = Interpreter()
    interp.execute("x = 1")
    with pytest.warns(ResourceWarning, match="was not shut down"):
        del interp
        gc.collect()


def test_output_fields_name_what_is_submitted():
    with Interpreter(output_fields=["a", {"name": "b", "type": "int"}]) as interp:
        assert interp.execute("SUBMIT('x', 2)").output == {"a": "x", "b": 2}
        assert interp.execute("SUBMIT('x', 'y')").error.type == "AnswerError"
        interp.output_fields = None
        assert interp.execute("SUBMIT(1)").output == 1


def test_an_error_of_the_system_has_its_number():
    """As OSError has it; the text is the library's."""
    from droste import _library, errors
    for number in range(1, 30):
        name = _library.quick.droste_error_name(number).decode()
        with pytest.raises(errors.BY_CODE.get(name, droste.Error)) as raised:
            errors.check(-1, _library.Error(number, 13, "wörds".encode()))
        assert (str(raised.value), raised.value.code) == ("wörds", name)
        assert not isinstance(raised.value, OSError) or raised.value.errno == 13
    assert errors.check(3, _library.Error(1, 0, b"old")) == 3


def test_errors_are_one_tree():
    """Each code of the library has a class; each is an Error, and the built-in that means the
    same."""
    from droste import _library, errors
    codes = [n for n in range(1, 30)
             if _library.quick.droste_error_name(n).decode() in errors.BY_CODE]
    assert len(codes) == 24
    alike = {"TimedOut": TimeoutError, "ArgumentError": ValueError, "ConfigError": ValueError,
             "NotFoundError": LookupError,
             "PermissionDenied": PermissionError, "UnsupportedError": NotImplementedError,
             "LostError": ConnectionError,
             "IOFailed": OSError, "OutOfMemory": MemoryError, "ModelConnectError": ConnectionError,
             "ModelRateError": droste.ModelError}
    assert all(issubclass(getattr(droste, name), kind) for name, kind in alike.items())
    for kind in errors.BY_CODE.values():
        assert issubclass(kind, droste.Error) and kind.__doc__


def test_a_volume_in_an_object_store_can_be_saved_to(tmp_path):
    """Where files cannot be renamed or added to, as on mount-s3, save_to_volume and
    workspace_append write them whole, and leave nothing beside; elsewhere a rename is still what
    they do."""
    refuse = (
        "import os, builtins, errno\nrename, fsync, plain = os.replace, os.fsync, builtins.open\n"
        "def no(*words, **more):\n    raise OSError(errno.ENOSYS, 'Function not implemented')\n"
        "def opened(path, mode='r', *words, **more):\n    return no() if 'a' in mode else "
        "plain(path, mode, *words, **more)\n"
        "os.replace, builtins.open = no, opened\n")
    work = (
        "paths = [save_to_volume('a/b', 'one'), save_to_volume('a/b', 'two'), workspace_write('w', "
        "'x'), workspace_append('w', 'y')]\n"
        "SUBMIT(b=load_from_volume('a/b'), w=workspace_read('w'), "
        "beside=os.listdir(os.path.dirname(paths[0])))")
    for first in (refuse, "import os\n"):
        with droste.Interpreter(volume_name="objects", volume_root=str(tmp_path)) as interp:
            assert interp.execute(first + work).fields == {"b": "two", "w": "xy", "beside": ["b"]}
