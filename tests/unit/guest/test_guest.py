"""The parts of the guest that need no sandbox: parts, JSON, summaries, cells, values."""
import ast
import json
import re
import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys

import pytest

from conftest import SOURCE


def test_the_source_is_python_3_8():
    ast.parse(SOURCE.read_text(), feature_version=(3, 8))


def test_the_grammar_check_can_fail():
    with pytest.raises(SyntaxError):
        ast.parse("match x:\n    case 1: pass", feature_version=(3, 8))


def test_importing_threading_is_left_to_user_code():
    """Its at-fork hooks cost more than a clone."""
    code = (
        "import runpy, sys; runpy.run_path(%r, run_name='g'); sys.exit('threading' in sys.modules)")
    assert subprocess.run([sys.executable, "-I", "-S", "-c", code % str(SOURCE)]).returncode == 0


# ---- parts ----

@pytest.mark.parametrize("parts", [[], [b""], [b"one"], [b"", b"a", b""],
                                   [b"x" * 100000, b"\0\xff"]])
def test_parts_come_out_as_they_went_in(guest, parts):
    assert [bytes(p) for p in guest.split_parts(guest.table_of(parts) + b"".join(parts))] == parts


def test_parts_have_the_documented_bytes(guest):
    assert guest.table_of([b"ab", b"c"]) == struct.pack("<IQQ", 2, 2, 1)


# ---- JSON ----

@pytest.mark.parametrize("value, text", [
    ({"a": [1, 2.5, None, True, "é\n\""]}, '{"a": [1, 2.5, null, true, "é\\n\\""]}'),
    ((1, 2), "[1, 2]"),
    ({3}, "[3]"),
    (pathlib.PurePosixPath("/a/b"), '"/a/b"'),
    ({1: "x"}, '{"1": "x"}'),
])
def test_json_of_plain_values(guest, value, text):
    assert guest.to_json(value) == text.encode()


@pytest.mark.parametrize("character", ["a", "é", '"', "\\", "\n", "\t", "\r", "\0", "\x1f", "\x7f",
                                       "\u2028"])
def test_a_long_text_is_written_as_json_writes_it(guest, character):
    """The faster way for it, with each character that is written otherwise; beside short values."""
    value = {"first": 1, "long": character * (guest.LONG + 1), 'a "name"': [character]}
    assert guest.to_json(value) == json.dumps(value, ensure_ascii=False).encode()
    with pytest.raises(ValueError, match="surrogate"):
        guest.to_json({"long": "\ud800" * (guest.LONG + 1)})


@pytest.mark.parametrize("character", ["a", "é", "\0"])
def test_a_long_text_is_submitted_beside_the_json(guest, character):
    """In the order of the fields; one of the border's length, one in a list and one that is of
    another type are within."""
    text, other = character * (guest.LONG + 1), character * (2 * guest.LONG)
    within = {"b": character * guest.LONG, "l": [text], "s": type("Own", (str,), {})(text)}
    submitted = guest.to_parts({"long": text, **within, 1: other})
    assert submitted[1:] == [text.encode(), other.encode()]
    holes = []
    outline = json.loads(submitted[0], parse_constant=lambda name: holes.append(name) or len(holes))
    assert outline == {"long": 1, **within, "1":
                       2} and list(outline) == ["long", "b", "l", "s", "1"]
    assert holes == ["NaN"] * 2
    with pytest.raises(ValueError, match="surrogate"):
        guest.to_parts({"long": "\ud800" * (guest.LONG + 1)})


def test_what_is_short_is_json_alone(guest):
    assert guest.to_parts({"a": "NaN", "b": ""}) == [b'{"a": "NaN", "b": ""}']
    with pytest.raises(ValueError, match="NaN"):
        guest.to_parts({"a": float("nan"), "long": "x" * (guest.LONG + 1)})


@pytest.mark.parametrize("values, fields, named", [
    ((1, 2), {}, {"a": 1, "b": 2}), ((1,), {"b": 2}, {"a": 1, "b": 2}), ((), {"c": 3}, {"c": 3}),
    (({"a": 1},), {}, {"a": 1}),
    (({"x": 1},), {}, {"a": {"x": 1}}), (({"a": 1}, 2), {}, {"a": {"a": 1}, "b": 2}),
    (({},), {}, {"a": {}})])
def test_values_get_the_names_that_are_wanted(guest, values, fields, named):
    assert guest.name_values(["a", "b"], values, fields) == named


@pytest.mark.parametrize("values, fields, message", [
    ((1, 2, 3), {}, "takes the fields a, b, got 3 values"), ((1,), {"a": 2}, "two values for 'a'")])
def test_values_that_have_no_name_are_refused(guest, values, fields, message):
    with pytest.raises(TypeError, match=message):
        guest.name_values(["a", "b"], values, fields)


@pytest.mark.parametrize("value, form", [
    (b"", ""), (b"bytes", "Ynl0ZXM="), (1j, [0.0, 1.0]), ({"x": {1j}}, {"x": [[0.0, 1.0]]})])
def test_bytes_and_complex_numbers_have_a_form_in_json(guest, value, form):
    assert json.loads(guest.to_json(value)) == form


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [float("-inf")], object(),
                                   {"x": {1j, object()}}, "\ud800", {"\udfff": 1}, {(1, 2): 3}])
def test_what_is_not_json_is_refused(guest, value):
    with pytest.raises((ValueError, TypeError)) as e:
        guest.to_json(value)
    assert str(e.value)


def test_a_circle_is_refused(guest):
    circle = []
    circle.append(circle)
    with pytest.raises(ValueError):
        guest.to_json(circle)


# ---- summaries ----

class Hostile:
    """Everything about it raises."""
    def no(self, *args):
        raise AssertionError("the guest called user code")
    __len__ = __repr__ = __str__ = __bool__ = __eq__ = __hash__ = __getattribute__ = no


class HostileStr(str):
    __len__ = __repr__ = __str__ = __getitem__ = Hostile.no


class HostileDict(dict):
    __len__ = __repr__ = __iter__ = Hostile.no


class Meta(type):
    @property
    def __name__(cls):
        raise AssertionError("the guest called user code")


class Named(metaclass=Meta):
    pass


@pytest.mark.parametrize("make, name", [(Hostile, "Hostile"),
                                        (lambda: HostileStr("x"), "HostileStr"),
                                        (HostileDict, "HostileDict"), (lambda: Named(), "Named")],
                         ids=["object", "str", "dict", "metaclass"])
def test_describe_never_calls_user_code(guest, make, name):
    assert guest.describe("v", make()) == {"name": "v", "type": name}


@pytest.mark.parametrize("value, entry", [
    ("x" * 100, {"type": "str", "length": 100, "preview": repr("x" * 80)}),
    (b"ab", {"type": "bytes", "length": 2, "preview": "b'ab'"}),
    ([1, 2], {"type": "list", "length": 2}),
    ({}, {"type": "dict", "length": 0}),
    (7, {"type": "int", "preview": "7"}),
    (None, {"type": "NoneType", "preview": "None"}),
    (1 << 5000, {"type": "int"}),
])
def test_describe_built_in_types(guest, value, entry):
    assert guest.describe("v", value) == dict(entry, name="v")


def test_a_summary_is_bounded_and_strict_json(guest):
    """Whatever the names: the host refuses lone surrogates and heads over its limit."""
    space = guest.state.session.namespace
    space["\ud800"] = 1
    space["n" * 10000] = type("T" * 1000000, (), {})()
    for i in range(1000):
        space["v%d" % i] = "\U000e0001" * 100
    text = json.dumps(guest.variables_if_changed())
    assert len(text) < 1 << 19
    for entry in json.loads(text):
        entry["name"].encode("utf-8")


def test_an_unchanged_summary_is_not_sent_again(guest):
    guest.state.session.namespace["x"] = 1
    assert [v["name"] for v in guest.variables_if_changed()] == ["x"]
    assert guest.variables_if_changed() is None
    guest.state.session.namespace["x"] = 2
    assert guest.variables_if_changed() is not None


def test_modules_and_private_names_are_not_variables(guest):
    guest.state.session.namespace.update(os=os, _x=1, y=2)
    assert [name for name, _ in guest.user_variables()] == ["y"]


# ---- cells ----

def run(guest, code, echo):
    body, last = guest.compile_cell(code, "<cell 1>", echo)
    space = guest.state.session.namespace
    exec(body, space)
    return last and eval(last, space)


@pytest.mark.parametrize("code, value", [("1 + 1", 2), ("x = 1\nx + 1", 2), ("x = 1", None),
                                         ("", None),
                                         ("# nothing", None), ("1; 2", 2),
                                         ("def f(): return 3\nf()", 3)])
def test_the_last_expression_is_echoed(guest, code, value):
    assert run(guest, code, True) == value


def test_without_echo_there_is_no_last_expression(guest):
    assert guest.compile_cell("1 + 1", "<cell 1>", False)[1] is None


def test_lines_are_counted_as_in_the_cell(guest):
    _, last = guest.compile_cell("\n\nx = 1\n\n1 / 0", "<cell 1>", True)
    with pytest.raises(ZeroDivisionError) as e:
        eval(last, {})
    assert e.tb.tb_next.tb_lineno == 5


def test_lines_are_split_as_the_compiler_counts_them(guest):
    code = "a = '\x0c\u2028\x85'\r\nb\rc\n"
    assert guest.source_lines(code)[:3] == ["a = '\x0c\u2028\x85'\n", "b\n", "c\n"]


@pytest.mark.parametrize("code", ["x =", "\0", "return 1", "  x = 1"])
def test_bad_syntax_raises(guest, code):
    with pytest.raises((SyntaxError, ValueError)):
        guest.compile_cell(code, "<cell 1>", True)


# ---- errors, answers and output of hostile code: they must not end the session ----

class BadError(Exception):
    def __str__(self):
        raise SystemExit


class OddError(Exception):
    def __str__(self):
        return HostileStr("odd \ud800")


def test_errors_whose_str_fails_or_lies(guest):
    assert guest.error_of(BadError())["message"] == "<str() of the exception failed>"
    assert guest.error_of(OddError())["message"] == "odd \\ud800"
    assert guest.error_of(OddError())["type"] == "OddError"


class NoTruth:
    def __bool__(self):
        raise ValueError("ambiguous")


class NoText:
    def __str__(self):
        raise SystemExit
    __repr__ = __str__


def answer_with(guest, content, ready=True):
    """Submits an answer as a cell's end does: the JSON that is submitted, and the refusal."""
    state = guest.state.session
    state.submitted = state.values = None
    state.namespace["answer"] = {"content": content, "ready": ready}
    refusal = guest.submit_answer()
    return state.submitted, refusal


def test_an_answer_that_cannot_be_asked_is_none(guest):
    """A value whose truth cannot be asked is not ready."""
    assert answer_with(guest, "x", NoTruth()) == (None, None)
    assert answer_with(guest, "x")[0] is not None


def test_an_answer_counts_once(guest):
    """It is submitted as it is, and not again by the next cell."""
    for content in ("x", 3, [None], {"k": 1.5}):
        submitted, refusal = answer_with(guest, content)
        assert json.loads(b"".join(submitted)) == {"answer": content} and refusal is None
        guest.state.session.submitted = None
        assert guest.submit_answer() is None and guest.state.session.submitted is None


def test_an_answer_that_is_not_json_is_an_error_once(guest):
    """It does not become its repr, whatever it is: the cell fails, and says of which type it
    was."""
    deep = []
    for _ in range(100000):
        deep = [deep]
    refused = {"NaN": float("nan"), "surrogate": "\ud800", r"type \S*NoText": NoText(),
               "recursion": deep,
               r"answer\['rows'\]\[1\]: a value of type object": {"rows": [1, object()]},
               "answer has a key of type tuple": {(1, 2): 3}}
    for words, content in refused.items():
        submitted, refusal = answer_with(guest, content)
        assert submitted is None and re.search(words, str(refusal)), refusal
        assert guest.submit_answer() is None and guest.state.session.submitted is None
    while deep:
        deep = deep[0]


@pytest.mark.parametrize("make", [lambda: None, list, dict, lambda: 3, Hostile],
                         ids=["None", "list", "dict", "int", "object"])
def test_flushing_passes_over_what_is_no_stream(guest, make):
    """It raises nothing, and the streams behind it are flushed, each once."""
    flushed = []

    class Stream:
        def __init__(self, name):
            self.name = name

        def flush(self):
            flushed.append(self.name)

    complaints = Stream("stderr")
    before = sys.stdout, sys.__stdout__, sys.stderr, sys.__stderr__
    sys.stdout, sys.__stdout__, sys.stderr, sys.__stderr__ = make(), Stream(
        "__stdout__"), complaints, complaints
    try:
        guest.flush_output()
    finally:
        sys.stdout, sys.__stdout__, sys.stderr, sys.__stderr__ = before
    assert flushed == ["__stdout__", "stderr"]


# ---- values ----

def files_blob(files):
    blob = struct.pack("<I", len(files))
    for path, text in files:
        blob += struct.pack("<IQ", len(path), len(text)) + path + text
    return blob


def test_files_are_decoded(guest):
    blob = files_blob([(b"a.txt", "é".encode()), (b"b/\xff", b""), (b"", b"x")])
    assert guest.decode_files(blob) == {"a.txt": "é", os.fsdecode(b"b/\xff"): "", "": "x"}
    assert guest.decode_files(struct.pack("<I", 0)) == {}


def test_broken_files_raise(guest):
    blob = files_blob([(b"a", b"xyz")])
    for end in range(16):
        with pytest.raises(Exception):
            guest.decode_files(blob[:end])


def test_auto_is_text_where_it_can_be(guest):
    assert guest.decode_auto("é".encode()) == "é"
    assert guest.decode_auto(b"\xff") == b"\xff"


def test_json_lines_may_hold_any_separator(guest):
    assert guest.DECODERS["jsonl"]('{"a": "\u2028"}\n\n[1]\n'.encode()) == [{"a": "\u2028"}, [1]]


@pytest.mark.parametrize("prompt", ["", None, 3, [], [{}], [{"role": "user"}],
                                    {"role": 1, "content": "x"}])
def test_prompts_that_are_none_are_refused(guest, prompt):
    with pytest.raises((ValueError, TypeError)):
        guest.encode_prompt(prompt)


def test_prompts_are_text_or_messages(guest):
    assert guest.encode_prompt("é") == ("é".encode(), False)
    message = {"role": "user", "content": "x"}
    for prompt in (message, [message], (message,), [dict(message, more=1)]):
        data, is_list = guest.encode_prompt(prompt)
        assert json.loads(data) == [message] and is_list


# ---- before the clones ----

def hooks_wanted(modules, hidden=()):
    """Whether clones have to run hooks after these were preloaded, in a fresh interpreter."""
    code = ("import importlib, runpy, sys\n"
            "g = runpy.run_path(%r, run_name='g')\n"
            "for name in %r: sys.modules.setdefault(name, sys)\n"
            "with g['ForkHooks']() as hooks:\n"
            "    for name in %r: importlib.import_module(name)\n"
            "print(hooks.wanted)" % (str(SOURCE), list(hidden), list(modules)))
    return subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True, text=True,
                          stdout=subprocess.PIPE).stdout == "True\n"


def test_the_modules_of_every_zygote_need_no_fork_hooks(guest):
    assert not hooks_wanted(guest.PRELOAD)


@pytest.mark.parametrize("module", ["threading", "logging", "concurrent.futures.thread"])
def test_a_module_with_fork_hooks_gets_them_run(module):
    assert hooks_wanted([module])


def test_hooks_from_before_the_start_are_run():
    assert hooks_wanted([], hidden=["threading"])


def test_a_rehearsal_leaves_nothing_behind(guest, monkeypatch):
    import linecache
    monkeypatch.setattr(guest._signal, "signal", lambda *a: None)
    before = guest.state.link, guest.state.session, sys.modules["__main__"], os.listdir(
        "/proc/self/fd")
    monkeypatch.setattr(linecache, "cache", {})
    guest.rehearse(3)
    assert before == (guest.state.link, guest.state.session, sys.modules["__main__"],
                      os.listdir("/proc/self/fd"))
    assert not linecache.cache
    assert "x" not in guest.state.session.namespace
    assert guest.state.session.running is None


def test_a_rehearsal_runs_the_cell_it_says(guest, monkeypatch):
    """Else it would warm nothing."""
    ran = []
    real = guest.run_cell
    monkeypatch.setattr(guest._signal, "signal", lambda *a: None)
    monkeypatch.setattr(guest, "run_cell", lambda *a: ran.append((a, real(*a))) or ran[-1][1])
    guest.rehearse(2)
    assert [(code, result) for (_, _, code, *_), result in ran] == [("x = 1 + 1", (None, None))] * 2


# ---- interrupts ----

def frame(guest, kind, ident):
    return guest.HEADER.pack(guest.VERSION, kind, 0, 0, ident, 0)


def test_an_interrupt_while_the_first_frames_are_read_reads_none_twice(guest, monkeypatch):
    """A clone is interrupted as early as it can be: between two frames of the first that it reads.
    Each is there once, and the interrupt is known."""
    host, fd = socket.socketpair()
    link = guest.Link(fd.detach())
    monkeypatch.setattr(guest.state, "link", link)
    monkeypatch.setattr(guest.state, "seeds", [])
    usual = signal.signal(signal.SIGINT, guest.on_interrupt)
    dispatch = link.dispatch

    def interrupted_dispatch(kind, *rest):
        dispatch(kind, *rest)
        if kind == guest.HELLO:
            host.sendall(frame(guest, guest.INTERRUPT, 1))
            signal.raise_signal(signal.SIGINT)

    link.dispatch = interrupted_dispatch
    try:
        host.sendall(frame(guest, guest.HELLO, 0) + frame(guest, guest.EXEC, 1))
        assert guest.begin()
        assert [(kind, ident) for kind, ident, _, _ in link.inbox] == [(guest.HELLO, 0),
                                                                       (guest.EXEC, 1)]
        assert link.interrupted == 1
    finally:
        signal.signal(signal.SIGINT, usual)
        link.sock.close()
        host.close()


@pytest.mark.parametrize("name, stays", [("droste-1", False), ("other", True), ("droste", True)])
def test_only_the_plans_own_directory_is_removed_at_the_end(guest, tmp_path, name, stays):
    """The zygote's scratch directory, and none of another name; without one, nothing is removed."""
    scratch = tmp_path / name
    (scratch / "a").mkdir(parents=True)
    (scratch / "a" / "file").write_text("x")
    for scratch_dir in (None, b"", os.fsencode(scratch)):
        pid = os.fork()     # it ends all children of its process
        if pid == 0:
            guest.tidy_up(scratch_dir)
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        assert scratch.exists() or scratch_dir
    assert scratch.exists() == stays
