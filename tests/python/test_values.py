"""What values become on their way into the sandbox: of any kind, size and shape."""
import array
import asyncio
import collections
import dataclasses
import datetime
import decimal
import enum
import math
import re
import types
import zlib

import pytest

import droste
from droste import Interpreter, RLM


@pytest.fixture(scope="module")
def interp():
    with Interpreter() as made:
        yield made


class Colour(str, enum.Enum):
    RED = "red"


class Count(enum.IntEnum):
    TWO = 2


class Plain(enum.Enum):
    KIND = "kind"


class Uncopyable(list):
    def __deepcopy__(self, memo):
        raise TypeError("not copied")


Pair = collections.namedtuple("Pair", "a b")


class Doc:
    """An object of the program's own, whose repr says nothing."""


@dataclasses.dataclass
class Point:
    x: int
    inner: object = None


class Pydantic:
    def model_dump(self, mode):
        return {"mode": mode}


@pytest.mark.parametrize("value, seen", [
    (Colour.RED, "red"), (Count.TWO, 2), (memoryview(b"ab"), b"ab"),
    ({"k": {1: None, 2.5: True}}, {"k": {1: None, 2.5: True}}),
    (Point(1, [Point(2)]), {"x": 1, "inner": [{"x": 2, "inner": None}]}),
    (Pydantic(), {"mode": "python"}),
    (collections.deque([1]), [1]), (Plain.KIND, "kind"),
    (types.MappingProxyType({"k": 1}), {"k": 1}), ({}.keys(), []),
    ([b"\xff"], [b"\xff"]), (Point(1, Uncopyable([2])), {"x": 1, "inner": [2]}),
    (Pair(1, 2), (1, 2)),
    (10 ** 5000, 10 ** 5000), (-(10 ** 5000), -(10 ** 5000)), (-math.inf, -math.inf),
    ("\ud800", "\ud800"),
], ids=lambda value: "")
@pytest.mark.parametrize("padding", [0, 20000, 2000000])
def test_a_value_is_what_it_was(interp, value, seen, padding):
    """Subclasses of str and int, bytes of every kind, keys that are not str, numbers of any length:
    alone, and in a list of any size, where it goes in another way."""
    text = (hex(seen) if isinstance(seen, int) else "float('%s')" % seen if isinstance(seen, float)
            else repr(seen))
    assert interp.execute("type(v) is type(%s) and v == %s" % (text, text),
                          {"v": value}).echo == "True"
    whole = {"v": [value, "p" * padding, {"within": {"it": value}}]}
    result = interp.execute(
        "[type(one) is type(%s) and one == %s for one in (v[0], v[2]['within']['it'])], len(v[1])"
        % (text, text), whole)
    assert result.echo == "([True, True], %d)" % padding, result
    assert interp.execute("[name for name in globals() if 'marked' in name]").echo == "[]"


@pytest.mark.parametrize("padding", ["", "p" * 20000])
def test_a_mark_of_the_programs_own_is_a_value(interp, padding):
    """A dict that looks as what Droste writes in the place of a value is a dict."""
    own = {"$droste": ["bytes", "00"]}
    assert interp.execute("v[0] == %r, v[1]" % own,
                          {"v": [own, b"\xff", padding]}).echo == "(True, b'\\xff')"


REFUSED = {
    "an object": (Doc(), r"{} is of type [\w.]*Doc, "), "a class": (Doc, r"{} is the class Doc"),
    "within": ({"rows": [1, {"doc": Doc()}]}, r"{}\['rows'\]\[1\]\['doc'\] is of type [\w.]*Doc"),
    "an attribute": ([Point(1, Point(2, Doc()))], r"{}\[0\].inner.inner is of type [\w.]*Doc"),
    "a function": ([len], r"{}\[0\] is of type builtin_function"),
    "a module": ([math], r"{}\[0\] is the module math"),
    "a pattern": ([re.compile("x")], r"{}\[0\] is of type re.Pattern"),
    "an exception": ([ValueError("x")], r"{}\[0\] is of type ValueError"),
    "a generator": ((i for i in "ab"), r"{} is of type generator"),
    "a key": ([{(1, Doc()): 3}], r"{}\[0\] (is a dict with|has) a key that is of type "),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_means_nothing_in_the_sandbox_is_refused_by_its_path(interp, what):
    """As a variable, a set value, a tool's result, a run's context and its tools' data; never as
    its repr."""
    value, words = REFUSED[what]
    asked = []

    def model(messages):
        asked.append(messages)
        return "FINAL(1)"

    with pytest.raises(droste.ArgumentError, match="^" + words.format("v")):
        interp.execute("v", {"v": value})
    with pytest.raises(droste.ArgumentError, match="^" + words.format("v")):
        interp.set("v", value)
    with pytest.raises(droste.ArgumentError, match="^" + words.format("context")):
        RLM(model).run("q", value)
    with pytest.raises(droste.ArgumentError, match="^" + words.format("context")):
        next(RLM(model).stream("q", value))
    with pytest.raises(droste.ArgumentError, match="^" + words.format("context")):
        asyncio.run(RLM(model).arun("q", value))
    with pytest.raises(droste.ArgumentError, match="^" + words.format("data")):
        RLM(model, tool_data={"data": value})
    interp.tools["f"] = lambda: value
    result = interp.execute("f()")
    assert result.status == "error" and re.search(words.format(r"what f\(\) returned"),
                                                  result.error.message), result.error
    del interp.tools["f"]
    assert interp.execute("1 + 1").echo == "2" and not asked


def test_the_data_of_tools_keeps_its_types():
    """Also for a child run; was: JSON, in which a date was text and a NaN, too."""
    data = {"when": datetime.date(2026, 5, 4), "raw": [b"\xff"], "pair": (1, 2), "tags": {"b", "a"},
            "rate": decimal.Decimal("0.10"), "plain": {"n": [1, "é"]}}
    code = "SUBMIT(answer={name: globals()[name] for name in %r})" % list(data)

    def model(messages):
        return "```repl\n%s\n```" % code

    assert RLM(model, tool_data=data).run("q").answer == data
    calls = "```repl\nSUBMIT(answer=rlm_query('go'))\n```"
    asked = iter([calls, "```repl\nSUBMIT(answer=f'{when!r} {pair!r}')\n```"])
    assert RLM(lambda messages: next(asked), tool_data=data, max_depth=2).run("q").answer == (
        "datetime.date(2026, 5, 4) (1, 2)")
    odd = RLM(lambda messages: "```repl\nSUBMIT(answer=repr(x))\n```",
              tool_data={"x": [math.nan, math.inf]})
    assert odd.run("q").answer == "[nan, inf]"


def test_a_completion_and_a_rollout_refuse_it_too():
    """By rlm's own name for a run, and in a REPL for training."""
    from droste.training import ReplBackend

    async def rollout():
        backend = ReplBackend()
        await backend.start()
        try:
            await backend.load_context({"d": Doc()})
        finally:
            await backend.stop()

    with pytest.raises(droste.ArgumentError, match=r"context\['d'\] is of type [\w.]*Doc"):
        RLM(lambda messages: "FINAL(1)").completion({"d": Doc()})
    with pytest.raises(droste.ArgumentError, match=r"context_0\['d'\] is of type [\w.]*Doc"):
        asyncio.run(rollout())


def test_a_setting_that_is_an_object_is_refused():
    """By the setting's name; the twin is a path."""
    for value in (Doc(), [Doc()], {"NAME": Doc()}):
        with pytest.raises(droste.ArgumentError, match=r"env_var is of type [\w.]*Doc"):
            Interpreter(env_var=value)
    with Interpreter(env_var={"NAME": "text"}) as interp:
        assert interp.commands.run("echo $NAME").stdout == "text\n"
        with interp.fork() as fork:
            assert fork.commands.run("echo $NAME").stdout == "text\n"
        assert interp.execute("import os; os.environ['NAME']").echo == "'text'"


@pytest.mark.parametrize("code, words", [
    ("SUBMIT(rows=[1, {'d': D()}])", r"rows\[1\]\['d'\]: a value of type D is not JSON"),
    ("FINAL({(1, 2): 3})", "answer has a key of type tuple"),
    ("answer['content'] = D(); answer['ready'] = True", "answer: a value of type D"),
    ("rlm_query('q', context=[D()])", r"context\[0\]: a value of type D"),
    ("f(rows=[D()])", r"rows\[0\]: a value of type D"),
])
def test_code_hears_what_it_cannot_submit_or_give(interp, code, words):
    """By its path and type, as an error of the cell; the same of JSON is taken."""
    interp.tools["f"] = lambda rows: len(rows)
    result = interp.execute("class D: pass\n" + code)
    assert result.status == "error" and result.error.type == "TypeError" and re.search(
        words, result.error.message), result.error
    assert interp.execute("f(rows=[1, 2])").echo == "2" and interp.execute(
        "SUBMIT(rows=[{'d': 1}])").rows == [{"d": 1}]
    del interp.tools["f"]


def test_a_tool_is_not_called_with_nan(interp):
    """JSON has no form for it; its result may be one, and an array may have one."""
    called = []
    interp.tools["f"] = lambda x: called.append(x) or math.nan
    for argument in ("float('nan')", "[1.0, float('inf')]", "(1, float('-inf'))"):
        error = interp.execute("f(%s)" % argument).error
        assert error.type == "ValueError" and "NaN and Infinity are not JSON" in error.message
    assert not called and interp.execute("f(1)").echo == "nan" and called == [1]
    del interp.tools["f"]


def test_nan_is_a_number(interp):
    """As a variable of a cell, and where it is set and fetched."""
    assert interp.execute("[v != v for v in vs]", {"vs": [math.nan]}).echo == "[True]"
    interp.set("vs", [math.nan, math.inf])
    assert math.isnan(interp.get("vs")[0]) and interp.get("vs")[1] == math.inf


def test_a_large_value_arrives_unchanged(interp):
    """Also where the code has changed it meanwhile, or the program has; a text that was sent is
    sent again when there is another, and when the guest has lost it."""
    rows = {"rows": list(range(20000))}
    assert interp.execute("rows.append(1); len(rows)", rows).echo == "20001"
    assert interp.execute("len(rows)", rows).echo == "20000"
    for text in ("a" * 20000, "b" * 20000, b"a" * 20000, "a" * 20000):
        assert interp.execute("v[:1]", {"v": text}).echo == repr(text[:1])
    interp.execute("del _input_v")
    with pytest.raises(droste.CellFailed, match="_input_v"):
        interp.execute("v", {"v": "a" * 20000})
    assert interp.execute("v[:1]", {"v": "a" * 20000}).echo == "'a'"


def nested(levels):
    value = []
    for _ in range(levels):
        value = [value]
    return value


def test_deeply_nested_values(interp):
    """As Python where that reads it, as JSON below; what no JSON can be is refused before anything
    is sent."""
    depth = "d, n = v, 0\nwhile d: d, n = d[0], n + 1\nn"
    for levels in (3, 40, 60, 100):
        assert interp.execute(depth, {"v": nested(levels)}).echo == str(levels)
    loop = []
    loop.append(loop)
    for value in (loop, {"k": loop}, nested(100000)):
        with pytest.raises(droste.ArgumentError, match="nested too deeply"):
            interp.execute("1", {"v": value})
        with pytest.raises(droste.ArgumentError, match="nested too deeply"):
            interp.set("v", value)
    interp.set("v", 10 ** 5000)
    assert interp.get("v") == 10 ** 5000
    assert interp.execute("1").ok


def test_texts_that_end_early_for_the_library_are_refused(tmp_path):
    """A NUL would cut them: a path would be another, a program half of itself."""
    (tmp_path / "a").write_text("x")
    with Interpreter() as interp:
        interp.load("v", tmp_path / "a")       # the twin
        with pytest.raises(droste.ArgumentError, match="a path cannot contain a NUL"):
            interp.load("v", "%s/a\0.json" % tmp_path)
    with pytest.raises(droste.ArgumentError, match="'setup-code' cannot contain a NUL"):
        Interpreter(setup_code="a = 1\0").start()
    with pytest.raises(droste.ArgumentError, match="question cannot contain a NUL"):
        RLM(lambda messages: "").run("a\0b")


def test_names_of_files_are_bytes(interp, tmp_path):
    """One that is not UTF-8 is loaded like any other."""
    path = tmp_path / b"\xff.txt".decode("utf-8", "surrogateescape")
    path.write_text("text")
    for name in (path, str(path), bytes(path)):
        interp.load("v", name)
        assert interp.get("v") == "text"


@pytest.mark.parametrize("timeout", [-1, -0.5, math.nan, "soon", [1]])
def test_a_timeout_is_a_number_of_seconds(interp, timeout):
    with pytest.raises(droste.ArgumentError, match="number of seconds"):
        interp.execute("1", timeout=timeout)


@pytest.mark.parametrize("timeout", [0, 5, 5.5, math.inf, None])
def test_a_timeout_may_be_none(interp, timeout):
    """The twin."""
    assert interp.execute("1", timeout=timeout).ok


def test_a_variable_is_fetched_whatever_is_to_be_submitted():
    with Interpreter(output_fields=["a"]) as interp:
        interp.set("x", 5)
        assert interp.get("x") == 5
        # and the fields are as they were
        assert interp.execute("SUBMIT(b=1)").error.type == "AnswerError"


BORDER = 65536      # characters; a longer text that is a field comes beside the JSON


@pytest.mark.parametrize("piece", ["a", "é", "€", "😀", "\0", '"', "\\", "\n\t\r", "a€😀\x7f", "NaN"])
@pytest.mark.parametrize("length", [0, 1, BORDER - 1, BORDER, BORDER + 1, 3 * BORDER])
def test_a_text_of_any_length_comes_back(interp, piece, length):
    text = (piece * length)[:length]
    interp.set("v", text)
    assert interp.get("v") == text
    assert interp.execute("import zlib; zlib.crc32(v.encode())").echo == str(
        zlib.crc32(text.encode()))


def test_long_texts_anywhere(interp):
    """As fields, within them, of many kinds at once; as items, attributes and in `json` the
    same."""
    value = {"long": "é" * 70000, "n": 1.5, "NaN": "NaN", "more": "x" * 70000,
             "within": [{"long": "y" * 70000}, None, True, "NaN"], "": "z" * BORDER,
             "last": '"\\' * 50000}
    interp.set("value", value)
    result = interp.execute("SUBMIT(**value)")
    assert result.fields == value and list(result.fields) == list(value)
    assert result.json["submit"] == value and list(result.json["submit"]) == list(value)
    assert result.more == value["more"] and result["last"] == value["last"]
    assert interp.get("value") == value
    assert interp.execute("SUBMIT(value)").output == value


def test_many_long_fields(interp):
    interp.execute("fields = {'f%d' % n: chr(97 + n % 26) * (65500 + n) for n in range(200)}")
    fields = {"f%d" % n: chr(97 + n % 26) * (65500 + n) for n in range(200)}
    result = interp.execute("SUBMIT(**fields)")
    assert result.fields == fields and result.json["submit"] == fields


def test_more_fields_than_a_system_call_takes(interp):
    """The guest sends the pieces of a message together, up to as many as the kernel takes at
    once."""
    fields = interp.execute("SUBMIT(**{'f%d' % n: 'x' * 65537 for n in range(1100)})").fields
    assert len(fields) == 1100 and set(fields.values()) == {"x" * 65537}


def test_long_texts_are_themselves_among_threads_calls(interp):
    """Frames of others come between none of its pieces."""
    interp.tools["f"] = lambda text: text[::-1]
    code = ("from concurrent.futures import ThreadPoolExecutor\n"
            "with ThreadPoolExecutor(4) as pool:\n"
            "    answers = list(pool.map(f, [chr(97 + n) * (50000 + 10000 * (n % 4)) for n in "
            "range(16)]))\n"
            "SUBMIT(**{'a%d' % n: a for n, a in enumerate(answers)})")
    fields = interp.execute(code).fields
    assert fields == {"a%d" % n: chr(97 + n) * (50000 + 10000 * (n % 4)) for n in range(16)}


@pytest.mark.parametrize("length", [1, BORDER, BORDER + 1])
def test_what_is_no_text(interp, length):
    """A lone surrogate is refused in a submission, whatever its length, and a question mark on the
    way in; bytes come back as bytes."""
    result = interp.execute("SUBMIT(a='x', v='\\ud800' * %d)" % length)
    assert (result.error.type == "ValueError" and "surrogate" in result.error.message
            and result.fields is None)
    interp.set("v", "\ud800" * length)
    assert interp.get("v") == "?" * length
    interp.set("v", b"\xff" * length)
    assert interp.execute("v == b'\\xff' * %d" % length).echo == "True"
    assert interp.execute("SUBMIT(v=v)").v == b"\xff" * length
    assert interp.execute("SUBMIT(x='x' * 70000, v=float('nan'))").error.type == "ValueError"


class Upper(str):
    """With methods of its own, which nobody asks."""

    def __len__(self):
        return 3

    def isascii(self):
        return True


@pytest.mark.parametrize("text", ["a" * 20000, "é" * 20000])
def test_a_subclass_of_str_is_its_text(interp, text):
    interp.set("v", Upper(text))
    assert interp.get("v") == text
    assert interp.execute("SUBMIT(v=type('Own', (str,), {})(v) * 4)").v == text * 4


def test_long_texts_have_the_types_that_are_asked_for():
    with Interpreter(output_fields=[{"name": "n", "type": "int"},
                                    {"name": "text", "type": "str"}]) as interp:
        assert interp.execute("SUBMIT(1, 'é' * 70000)").fields == {"n": 1, "text": "é" * 70000}
        assert interp.execute("SUBMIT('é' * 70000, 'x' * 70000)").error.type == "AnswerError"
        assert interp.execute("SUBMIT(2, '')").fields == {"n": 2, "text": ""}
