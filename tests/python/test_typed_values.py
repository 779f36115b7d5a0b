"""Values keep their types on the way into the sandbox and out of it, by every way there is."""
import array
import dataclasses
import datetime
import decimal
import enum
import fractions
import gc
import ipaddress
import json
import math
import os
import pathlib
import sqlite3
import subprocess
import sys
import uuid
import zoneinfo

import pytest

import droste
from droste import Interpreter

PARIS = zoneinfo.ZoneInfo("Europe/Paris")
EAST = datetime.timezone(datetime.timedelta(hours=5, minutes=30))

VALUES = {
    "empty tuple": (), "tuple": (1, (2, [3])), "set": {1, 2, 3}, "empty set": set(),
    "frozenset": frozenset({"a"}), "set of tuples": {(1, "a"), (2, "b")},
    "complex": complex(1.5, -2),
    "complex nan": complex(0, math.inf), "bytes": b"\xff\0", "empty bytes": b"",
    "long bytes": b"\xfe" * 100000,
    "bytearray": bytearray(b"\xff"), "decimal": decimal.Decimal("1.50"),
    "infinite decimal": decimal.Decimal("-Infinity"),
    "fraction": fractions.Fraction(-1, 3), "date": datetime.date(2026, 1, 2),
    "datetime": datetime.datetime(2026, 1, 2, 3, 4, 5, 6),
    "zoned": datetime.datetime(2026, 1, 2, tzinfo=PARIS),
    "fold": datetime.datetime(2026, 10, 25, 2, 30, tzinfo=PARIS, fold=1),
    "offset": datetime.datetime(2026, 1, 2, tzinfo=EAST),
    "utc": datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc),
    "time": datetime.time(1, 2, 3, 4),
    "zoned time": datetime.time(1, 2, tzinfo=EAST), "timedelta": datetime.timedelta(-1, 2, 3),
    "uuid": uuid.UUID(int=7),
    "path": pathlib.Path("/a/b"), "windows path": pathlib.PureWindowsPath("c:/x"),
    "address": ipaddress.ip_address("::1"),
    "network": ipaddress.ip_network("10.0.0.0/8"), "range": range(1, 10, 3),
    "array": array.array("d", [1, 2.5]),
    "dict of odd keys": {(1, 2): 3, 4: {5}, None: b"", "$droste": ["bytes", "00"]},
    "nan": [1.0, math.inf],
    "long int": -(10 ** 5000), "surrogate": ["\ud800"], "floats": [0.5] * 5000,
    "ints": list(range(-5000, 5000)),
    "large ints": [2 ** 70] * 5000, "texts": ["é%d" % n for n in range(5000)],
    "nested": {"a": [{"b": (1, {2: [b"c"]})}]},
}


@pytest.fixture(scope="module")
def interp():
    with Interpreter() as made:
        yield made


def same(one, other):
    return type(one) is type(other) and one == other


@pytest.mark.parametrize("name", VALUES)
def test_a_value_keeps_its_type_both_ways(interp, name):
    """Where it is set, where it is a variable of a cell, and in a container."""
    value = VALUES[name]
    interp.set("v", value)
    assert same(interp.get("v"), value)
    assert interp.execute("w = v; type(w).__name__",
                          {"v": value}).echo == repr(type(value).__name__)
    assert same(interp.get("w"), value)
    interp.set("v", {"rows": [value, 1.5], "n": None})
    found = interp.get("v")
    assert same(found["rows"][0], value) and found["rows"][1] == 1.5 and found["n"] is None


SUBMITTED = ("tuple", "set", "bytes", "decimal", "zoned", "timedelta", "uuid", "path", "complex",
             "fraction", "nested")


@pytest.mark.parametrize("name", SUBMITTED)
def test_a_submitted_value_keeps_its_type_and_has_a_json_form(interp, name):
    value = VALUES[name] if name != "nested" else {"a": [(1, [b"c"])]}
    result = interp.execute("SUBMIT(n=1, value=v, text='x' * 70000)", {"v": value})
    assert same(result.value, value) and result.n == 1 and result.text == "x" * 70000
    assert result.json["submit"]["n"] == 1 and "$droste" not in str(result.json["submit"]["value"])


def test_the_json_forms(interp):
    code = ("import datetime, decimal, uuid, pathlib, fractions\n"
            "SUBMIT(t=(1, 2), s={3, 1, 2}, b=b'\\xff', d=decimal.Decimal('1.50'), "
            "f=fractions.Fraction(1, 2),"
            " when=datetime.datetime(2026, 1, 2), span=datetime.timedelta(1, 2), "
            "u=uuid.UUID(int=1), p=pathlib.Path('/x'),"
            " c=1+2j, r=range(3))")
    form = interp.execute(code).json["submit"]
    assert form == {"t": [1, 2], "s": [1, 2, 3], "b": "/w==", "d": "1.50", "f": "1/2",
                    "when": "2026-01-02T00:00:00",
                    "span": "P1DT2S", "u": "00000000-0000-0000-0000-000000000001", "p": "/x",
                    "c": [1.0, 2.0], "r": [0, 1, 2]}


def test_tools_take_and_return_typed_values(interp):
    seen = []

    def tool(value, more=None):
        seen.append((value, more))
        return {"back": (value, datetime.date(2026, 1, 2))}

    interp.tools["tool"] = tool
    interp.set("v", {1: decimal.Decimal("1.5")})
    result = interp.execute(
        "out = tool({'v': v, 't': (1,)}, more=3); type(out['back']).__name__, "
        "type(out['back'][1]).__name__")
    assert result.echo == "('tuple', 'date')", result.error
    assert seen == [({"v": {1: decimal.Decimal("1.5")}, "t": (1,)}, 3)]
    assert same(interp.execute("SUBMIT(o=tool(b'x' * 300000))").o,
                {"back": (b"x" * 300000, datetime.date(2026, 1, 2))})
    del interp.tools["tool"]


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Row:
    when: datetime.date
    colour: Colour
    tags: set


class Model:
    """As pydantic's, which is not installed everywhere."""

    def model_dump(self, mode):
        return {"when": datetime.date(2026, 1, 2)} if mode == "python" else {"when": "text"}


def test_dataclasses_models_and_enums_are_dicts_of_typed_values(interp):
    interp.set("row", [Row(datetime.date(2026, 1, 2), Colour.RED, {1}), Model(), Colour.RED])
    assert interp.get("row") == [{"when": datetime.date(2026, 1, 2), "colour": "red", "tags": {1}},
                                 {"when": datetime.date(2026, 1, 2)}, "red"]
    code = (
        "import dataclasses\n@dataclasses.dataclass\nclass P:\n    x: int\n    y: object\np = P(1, "
        "(2,))\n"
        "SUBMIT(p=p)")
    assert interp.execute(code).p == {"x": 1, "y": (2,)} and interp.get("p") == {"x": 1, "y": (2,)}


class Opaque:
    pass


REFUSED = {
    "row.when": (Row(Opaque(), Colour.RED, set()), r"^row\.when is of type [\w.]*Opaque"),
    "tuple": ((1, [Opaque()]), r"^row\[1\]\[0\] is of type"),
    "key": ({(1, Opaque()): 1}, r"^row is a dict with a key that is of type"),
    "zone": ([datetime.datetime(2026, 1, 1, tzinfo=type(
    "Z", (datetime.tzinfo,), {"utcoffset": lambda s, d: datetime.timedelta(1)})())],
             r"^row\[0\] is a time zone Z"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_travel_is_refused_by_its_path(interp, what):
    value, words = REFUSED[what]
    with pytest.raises(droste.ArgumentError, match=words):
        interp.set("row", value)
    with pytest.raises(droste.ArgumentError, match=words):
        interp.execute("row", {"row": value})


@pytest.mark.parametrize("made, where", [
    ("{'items': [0, 1, 2, {'when': D()}]}", r"answer\['items'\]\[3\]\['when'\]"),
    ("(D(),)", r"answer\[0\]"), ("[len]", r"answer\[0\]"), ("P(D())", r"answer\.when"),
])
def test_what_cannot_leave_is_refused_by_its_path(interp, made, where):
    interp.execute(
        "import dataclasses\nclass D: pass\n@dataclasses.dataclass\nclass P:\n    when: "
        "object\nanswer = %s" % made)
    with pytest.raises(droste.CellFailed, match=where + " is of type"):
        interp.get("answer")
    result = interp.execute("SUBMIT(answer=answer)")
    assert result.error.type == "TypeError" and result.fields is None
    assert interp.execute("answer = 1; 1").ok and interp.get("answer") == 1


def test_get_gives_the_json_form_if_asked(interp):
    interp.set("v", {"t": (1,), "d": datetime.date(2026, 1, 2)})
    assert interp.get("v", plain=True) == {"t": [1], "d": "2026-01-02"}


def test_get_with_output_fields():
    with Interpreter(output_fields=["a"]) as interp:
        interp.set("x", (5,))
        assert interp.get("x") == (5,) and interp.execute("SUBMIT(b=1)").error.type == "AnswerError"


def test_a_schema_sees_the_json_form():
    with Interpreter(output_fields=[{"name": "rows", "type": "list"}]) as interp:
        assert interp.execute("SUBMIT(rows=(1, 2))").rows == (1, 2)
        assert interp.execute("SUBMIT(rows={'a': (1,)})").error.type == "AnswerError"


def test_a_guest_cannot_submit_two_different_values():
    """The JSON is checked against the schema, so the typed value must be the same."""
    lie = ("import sys\nours = SUBMIT.__globals__\nsession = ours['state'].session\n"
           "session.submitted = [b'{\"rows\": [1]}']\n"
           "session.values = ours['encode_value']({'rows': %s})\nraise ours['Submitted']")
    with Interpreter(output_fields=[{"name": "rows", "type": "list"}]) as interp:
        assert interp.execute(lie % "(1,)").fields == {"rows": (1,)}        # the twin
        for other in ("(2,)", "'text'", "(True,)", "{1}  | {2}"):
            result = interp.execute(lie % other)
            with pytest.raises(droste.ProtocolError, match="two different values"):
                result.fields
        assert interp.alive


def test_within_asyncio():
    import asyncio

    async def main():
        async with Interpreter() as interp:
            value = [(1, b"\xff" * 300000)]
            setting = interp.set("v", value)
            value.append("later")
            await setting
            result = await interp.execute("SUBMIT(v=v, n=len(v))")
            assert result.v == [(1, b"\xff" * 300000)] and result.n == 1

    asyncio.run(main())


def test_a_run_has_a_typed_context():
    def model(messages):
        return "```repl\nFINAL(type(context).__name__ + type(context['when']).__name__)\n```"

    assert droste.RLM(model).run("q", {"when": datetime.date(2026, 1, 2),
                                       "t": (1,)}).answer == "dictdate"


def run_once(code, **options):
    return droste.RLM(lambda messages: "```repl\n%s\n```" % code,
                      **options).run("q").raise_for_status()


def test_the_answer_of_a_run_has_its_types():
    """Of all ways to answer; the JSON form stays what `json`, `response` and the record have."""
    done = run_once("import datetime; SUBMIT(when=datetime.date(2026, 1, 2), rows=(1, {2}), n=1)")
    assert done.answer == {"when": datetime.date(2026, 1, 2), "rows": (1, {2}), "n": 1}
    assert done.json["answer"] == {"when": "2026-01-02", "rows": [1, [2]], "n": 1}
    assert done.response == '{"when": "2026-01-02", "rows": [1, [2]], "n": 1}'
    assert same(run_once("FINAL((1, b'\\xff'))").answer, (1, b"\xff"))
    assert same(run_once("SUBMIT({1, 2})").answer, {1, 2})
    assert same(run_once("SUBMIT(answer={'answer': (1,)})").answer, {"answer": (1,)})
    assert same(run_once("SUBMIT(answer=(1,), n=2)").answer, {"answer": (1,), "n": 2})
    assert same(run_once("answer['content'], answer['ready'] = b'x', True").answer, b"x")
    assert same(run_once("FINAL([1, 'a'])").answer, [1, "a"])


def test_an_answer_with_a_schema_has_its_types():
    """The schema sees the JSON form."""
    schema = {"type": "object", "properties": {"when": {"type": "string"}}, "required": ["when"]}
    code = "import datetime; SUBMIT(when=datetime.date(2026, 1, 2))"
    assert run_once(code,
                    answer_schema=json.dumps(schema)).answer == {"when": datetime.date(2026, 1, 2)}


def test_tools_of_a_run_take_typed_arguments(tmp_path):
    """The record has their JSON form."""
    seen = []
    database = str(tmp_path / "record.db")
    done = run_once("import decimal; SUBMIT(n=keep(decimal.Decimal('1.50'), b=(1, b'x')))",
                    database=database, tools={"keep": lambda a, b: seen.append((a, b)) or 7})
    assert done.answer == {"n": 7} and seen == [(decimal.Decimal("1.50"), (1, b"x"))]
    program = os.path.join(os.environ.get("BUILD", "build"), "droste")
    shown = subprocess.run([program, "runs", "show", done.run, "--json", "--database", database],
                           check=True,
                           stdout=subprocess.PIPE).stdout
    steps = [step for turn in json.loads(shown)["turns"] for step in turn["steps"]]
    call = next(step for step in steps if step.get("kind") == "tool")
    assert call["request"] == '{"a": "1.50", "b": [1, "eA=="]}' and call["reply"] == "7"


RETURNED = {
    "tuple": (1, (2,)), "set": {1, 2}, "bytes": b"\xff\0", "date": datetime.date(2026, 1, 2),
    "decimal": decimal.Decimal("1.50"), "infinite": math.inf, "surrogate": ["\ud800"],
    "many": array.array("d", range(200000)),
}
KILLED = """
import os, sys
sys.path.insert(0, os.path.dirname(sys.argv[2]))
import droste, test_typed_values
def model(messages):
    if len(messages) > 2:
        os._exit(9)
    return test_typed_values.GIVE
give = lambda key: test_typed_values.RETURNED[key]
droste.RLM(model, database=sys.argv[1], tools={"give": give}).run("q")
"""
#: of these, SUBMIT refuses those without a JSON form
WITHOUT_JSON = ["infinite", "surrogate"]
SUBMITS = ("```repl\nodd = [ascii(kept.pop(name)) for name in %r]\n"
           "SUBMIT(kept=kept, one=give('set'), odd=odd)\n```" % WITHOUT_JSON)
GIVE = "```repl\nkept = {name: give(name) for name in %r}\n```" % sorted(RETURNED)


def test_what_a_tool_of_a_run_returned_has_its_type_also_when_resumed(tmp_path):
    """The record has the value beside its JSON form, so the tool is not called again."""
    database = str(tmp_path / "record.db")
    done = subprocess.run([sys.executable, "-c", KILLED, database, __file__],
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, timeout=60)
    assert done.returncode == 9
    with sqlite3.connect(database) as db:
        ((run,),) = db.execute("SELECT id FROM runs").fetchall()
        assert db.execute("SELECT count(*), count(reply_values) FROM calls"
                          " WHERE kind = 'tool'").fetchone() == (8, 8)
    calls = []
    done = droste.RLM(lambda messages: SUBMITS, database=database,
                      tools={"give": lambda key: calls.append(key) or RETURNED[key]}).resume(run)
    there = {name: value for name, value in RETURNED.items() if name not in WITHOUT_JSON}
    assert same(done.raise_for_status().answer, {
        "kept": there, "one": {1, 2}, "odd": [ascii(RETURNED[name]) for name in WITHOUT_JSON]})
    assert calls == ["set"]


# -- large values, which leave the sandbox in memory files

def mapped_values():
    """Bytes of this process's mappings of values from sandboxes."""
    total = 0
    gc.collect()        # what earlier tests have left in cycles
    with open("/proc/self/maps") as maps:
        for line in maps:
            if "droste-value" in line:
                begin, end = line.split()[0].split("-")
                total += int(end, 16) - int(begin, 16)
    return total


@pytest.mark.parametrize("level", ["full", "light", "landlock"])
def test_a_large_value_is_mapped_until_it_is_dropped(level):
    """The host maps what the cell has written, and unmaps it with the last user of the memory."""
    before = mapped_values()
    with Interpreter(isolation=level) as interp:
        interp.execute("import array; a = array.array('d', range(100000))")
        result = interp.execute("SUBMIT(a=memoryview(a), b='x' * 1000000)")
        assert bytes(result.a)[:8] == b"\0" * 8 and len(result.a) == 800000
        assert result.b == "x" * 1000000
        assert mapped_values() > before
        del result
        assert mapped_values() == before
        assert interp.get("a") == array.array("d", range(100000))


def test_a_small_value_comes_in_the_stream(interp):
    """A mapping costs more than a copy of a small value."""
    before = mapped_values()
    interp.execute("a = b'x' * 1000")
    result = interp.execute("SUBMIT(a=a)")
    assert result.a == b"x" * 1000
    assert mapped_values() == before


def test_a_mapped_array_may_be_changed_here_alone():
    """A write copies a page of the mapping; a variable in the sandbox keeps its value."""
    numpy = pytest.importorskip("numpy")
    with Interpreter() as interp:
        interp.execute("import numpy; a = numpy.zeros(1000000)")
        one, two = interp.get("a"), interp.get("a")
        one[:] = 7
        assert not two.any() and interp.execute("SUBMIT(sum=float(a.sum()))").sum == 0
        assert numpy.all(one == 7) and one.flags.aligned


def test_what_the_host_keeps_is_bounded_by_the_sandboxs_memory():
    """Mapped values count as the sandbox's memory: more than a quarter of it comes as a copy."""
    before, kept = mapped_values(), []
    with Interpreter(memory="400M") as interp:
        interp.execute("a = bytes(range(256)) * 160000")
        for _ in range(8):
            kept.append(interp.execute("SUBMIT(a=a)"))
        assert 0 < mapped_values() - before <= 100 << 20
        assert all(len(result.a) == 40960000 and result.a[-1] == 255 for result in kept)


def test_a_cell_that_uses_most_of_its_memory_sends_no_file():
    """A memory file is a copy in the sandbox: it must not be what exceeds the limit."""
    with Interpreter(memory="300M") as interp:
        interp.execute("a = b'xyz' * 20000000; rest = b'x' * (160 << 20)").raise_for_status()
        assert len(interp.get("a")) == 60000000 and interp.execute("len(rest)").echo == str(
            160 << 20)


def test_a_tool_takes_a_large_argument():
    """A call's arguments leave in a memory file like a result."""
    seen = []
    with Interpreter(tools={"take": lambda data: seen.append(data) or data[:3]}) as interp:
        assert interp.execute("SUBMIT(a=take(b'abc' * 1000000))").a == b"abc"
    assert seen == [b"abc" * 1000000]


def test_without_memory_files_values_come_in_the_stream(interp):
    """Where the kernel refuses to make or to pass a memory file, a value arrives all the same."""
    code = """
import os, sys
frame = sys._getframe()
while "CHANNEL_FD" not in frame.f_globals:
    frame = frame.f_back
link, made = frame.f_globals["state"].link, os.memfd_create
"""
    try:
        for refuse in ("del os.memfd_create", """
class Refusing:
    def __getattr__(self, name):
        return getattr(link_sock, name)
    def sendmsg(self, buffers, ancillary, flags):
        if ancillary:
            raise OSError(109, "too many references")
        return link_sock.sendmsg(buffers, ancillary, flags)
link_sock, link.sock = link.sock, Refusing()
"""):
            interp.execute("a = b'xyz' * 1000000")
            interp.execute(code + refuse).raise_for_status()
            assert interp.execute("SUBMIT(a=a)").a == b"xyz" * 1000000
            interp.execute("os.memfd_create = made")
    finally:
        interp.execute("link.sock = link_sock; del link, made, frame")


def test_a_long_text_within_other_values_goes_as_a_buffer(interp):
    """As JSON it would take several times as long."""
    from droste._encoding import codec
    text = "a\n" * 500000
    assert len(b"".join(codec.encode_value({"a": [text]}))) < 1.1 * len(text)
    for value in (text, [text, 1], {"a": text + "é"}, text + "\ud800"):
        interp.set("v", {"v": value})
        assert interp.get("v") == {"v": value}
