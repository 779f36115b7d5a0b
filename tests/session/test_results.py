"""DESIGN.md: "The result of a cell: status, stdout, stderr, error {type, message, traceback with
the cell's own line numbers}, submitted fields, a summary of the variables (name, type, length,
short preview; never whole values), seconds, and the calls that it made." And: "Submitted values are
strict JSON. A field may have any name; `result.items` is the submitted field, and `result["items"]`
and `result.output` work too."
"""
import re

import pytest

MEMBERS = {"status", "submit", "stdout", "stderr", "left_out", "error", "echo", "killed", "alive",
           "rolled_back", "calls", "seconds", "isolation", "rules", "repo", "resources", "results",
           "main_result", "variables"}


def lines_of(traceback):
    """[(line, function)…] of the frames in a traceback, all of which are the cells' own."""
    return [(int(line), where)
            for line, where in re.findall(r'File "<cell \d+>", line (\d+), in (.*)', traceback)]


def test_a_result_has_the_documented_fields(session):
    """docs/guest.md has them; each is there, whatever the cell came to."""
    for code in ("1", "1 / 0", "SUBMIT(a=1)", "print(1)"):
        found = session.execute(code).json
        assert set(found) == MEMBERS
        assert isinstance(found["seconds"],
                          float) and found["alive"] is True and isinstance(found["isolation"], str)


@pytest.mark.parametrize("code, status", [
    ("x = 1", "ok"), ("SUBMIT(a=1)", "submitted"), ("1 / 0", "error"),
    ("import sys; sys.exit()", "error"), ("x = (", "error")])
def test_the_status_says_what_the_cell_came_to(session, code, status):
    """status: ok, submitted, error; the others are in test_endings.py."""
    result = session.execute(code)
    assert (result.status, result.ok,
            result.error is None) == (status, status != "error", status != "error")


def test_an_error_has_the_cells_own_line_numbers(session):
    """error {type, message, traceback}: frames of the cells' code, with their lines; none of the
    runtime's."""
    session.execute("def divide(n):\n\n    return 1 / n\n")
    error = session.execute("x = 5\n\n\ndivide(0)").error
    assert (error.type, error.message) == ("ZeroDivisionError", "division by zero")
    assert lines_of(error.traceback) == [(4, "<module>"), (3, "divide")]
    assert "    divide(0)\n" in error.traceback and "    return 1 / n\n" in error.traceback
    assert error.traceback.count("File ") == 2


def test_an_error_in_a_library_has_the_librarys_frames(session):
    """Frames of Python's own modules stand below the cell's."""
    error = session.execute("import json\n\njson.loads('{')").error
    assert error.type == "JSONDecodeError" and lines_of(error.traceback)[0] == (3, "<module>")
    assert "decoder.py" in error.traceback


def test_a_syntax_error_has_the_cells_line(session):
    """What does not compile says where."""
    error = session.execute("x = 1\ny = 2\nif x\n").error
    assert error.type == "SyntaxError" and re.search(r'File "<cell \d+>", line 3', error.traceback)


def test_the_causes_of_an_error_are_told(session):
    """`raise … from` and errors within handlers behave as in Python."""
    error = session.execute(
        "try:\n    {}['k']\nexcept KeyError as e:\n    raise ValueError('no') from e").error
    assert (error.type == "ValueError" and "KeyError: 'k'" in error.traceback
            and "direct cause" in error.traceback)


def test_an_exception_of_the_codes_own_is_named(session):
    """Whatever its str() does, and whatever it derives from."""
    error = session.execute(
        "class Own(BaseException):\n    def __str__(self): raise SystemExit\nraise Own").error
    assert error.type == "Own" and "failed" in error.message
    assert session.execute("raise Exception('a\\0\\ud800\U0001f600')").error.type == "Exception"


def test_a_long_message_is_bounded(session):
    """A message of megabytes does not come whole."""
    error = session.execute("raise ValueError('x' * 5_000_000)").error
    assert error.type == "ValueError" and len(error.message) < 1_000_000 and len(
        error.traceback) < 1_000_000


def test_variables_are_summarised(session):
    """A summary of the variables: name, type, length, short preview."""
    session.execute("text, number, rows = 'hello', 7, [1, 2, 3]\ndef f(): pass")
    found = {v["name"]: v for v in session.execute("1").variables}
    assert found["text"] == {"name": "text", "type": "str", "length": 5, "preview": "'hello'"}
    assert found["number"] == {"name": "number", "type": "int", "preview": "7"}
    assert found["rows"] == {"name": "rows", "type": "list", "length": 3}
    assert found["f"]["type"] == "function"


def test_whole_values_are_never_in_the_summary(session):
    """Never whole values: a large text is a preview of some characters, and a list is its
    length."""
    result = session.execute(
        "text = 'secret ' * 1_000_000\nrows = ['secret'] * 1000\nnumber = 10 ** 5000")
    assert len(str(result.variables)) < 2000
    assert {v["name"]: v.get("length") for v in result.variables
            if v["name"] in ("text", "rows")} == {
        "text": 7_000_000, "rows": 1000}


def test_the_summary_runs_nothing_of_the_codes(session):
    """A __len__ or __repr__ of the code's own is not called for it; modules and `_names` are left
    out."""
    result = session.execute(
        "class Odd:\n    def __len__(self): raise SystemExit\n    __repr__ = __class_getitem__ = "
        "__len__\n"
        "odd, _hidden = Odd(), 1\nimport json")
    names = {v["name"]: v["type"] for v in result.variables}
    assert result.ok and names["odd"] == "Odd" and not {"_hidden", "json"} & set(names)


def test_the_calls_of_a_cell_are_counted(session):
    """The calls that it made: a batch is one, and the next cell begins at none."""
    assert session.execute("llm_query('a'); x = llm_query_batched(['b', 'c'])").calls == 2
    assert session.execute("1").calls == 0


# -- submitted values

@pytest.mark.parametrize("name", ["items", "keys", "get", "output", "self", "name", "values",
                                  "class", "größe", "a b", "", "0",
                                  "a.b", "\U0001f600", "status", "fields", "_private", "__dict__"])
def test_a_field_may_have_any_name(session, name):
    """A field may have any name, also one of a dict's methods, of the host's, or none at all."""
    result = session.execute("SUBMIT(**{%r: [1]})" % name)
    assert result.status == "submitted" and result.fields == {name: [1]} and result[name] == [
        1] and name in result


def test_fields_are_attributes_items_and_output(session):
    """`result.items` is the submitted field, and `result["items"]` and `result.output` work too."""
    result = session.execute("SUBMIT(items=[1], answer='a', keys=None)")
    assert (result.items, result["items"], result.answer, result.keys) == ([1], [1], "a", None)
    assert result.output == result.fields == {"items": [1], "answer": "a", "keys": None}
    assert list(result.fields) == ["items", "answer", "keys"]
    assert session.execute("SUBMIT(output=5, other=6)").output == 5


def test_a_field_does_not_hide_what_the_host_says(session):
    """Code cannot pretend to have another status."""
    result = session.execute("SUBMIT(status='killed', alive=False, stdout='x', error='e')")
    assert (result.status, result.alive, result.stdout,
            result.error) == ("submitted", True, "", None)
    assert result["status"] == "killed"


@pytest.mark.parametrize("code, value", [
    ("'a\"\\\\\\n\\0\U0001f600'", 'a"\\\n\0\U0001f600'), ("''", ""), ("0", 0),
    ("-1.5e-300", -1.5e-300), ("10 ** 30", 10 ** 30), ("True", True), ("None", None),
    ("[]", []), ("{}", {}), ("[1, [2, {'k': None}]]", [1, [2, {"k": None}]]), ("(1, 2)", [1, 2]),
    ("{3}", [3]), ("b'bytes'", "Ynl0ZXM="), ("1j", [0.0, 1.0]),
    ("{1: 'a', None: 'b', True: 'c'}", None),
    ("__import__('pathlib').PurePosixPath('/a/b')", "/a/b"),
    ("{'a': 'x' * 100_000}", {"a": "x" * 100_000}),
], ids=lambda v: None if not isinstance(v, str) else v[:12] if v.isascii() and v.isprintable()
                         else "text")
def test_submitted_values_are_json(session, code, value):
    """Submitted values have a form in strict JSON; tuples, sets and paths what is nearest."""
    result = session.execute("SUBMIT(v=%s)" % code)
    assert result.status == "submitted", result.error
    if "True: 'c'" in code:     # 1 and True are one key in Python
        value = {"1": "c", "null": "b"}
    form = result.json["submit"]["v"]
    assert form == value and type(form) is type(value)


@pytest.mark.parametrize("code", ["float('nan')", "[float('inf')]", "-float('inf')", "object()",
                                  "'\\ud800'",
                                  "cycle", "deep", "{(1, 2): 3}", "lambda: 1"])
def test_what_is_not_json_is_refused_in_the_cell(session, code):
    """Strict JSON: anything else raises TypeError or ValueError, and the session goes on."""
    session.execute(
        "cycle = []\ncycle.append(cycle)\ndeep = []\nfor _ in range(5000): deep = [deep]")
    result = session.execute("SUBMIT(v=%s)" % code)
    assert result.status == "error" and result.error.type in ("TypeError", "ValueError",
                                                              "RecursionError"), result.json
    assert session.execute("SUBMIT(v=1)").v == 1


def test_code_that_catches_the_refusal_goes_on(session):
    """The cell may submit something else then."""
    result = session.execute("try: SUBMIT(v=object())\nexcept TypeError as e: SUBMIT(v=str(e))")
    assert "not JSON" in result.v


@pytest.mark.parametrize("code, fields", [
    ("SUBMIT(5)", {"output": 5}), ("SUBMIT(1, 2)", {"output": [1, 2]}),
    ("SUBMIT({'a': 1})", {"output": {"a": 1}}),
    ("FINAL('x')", {"answer": "x"}), ("v = [1]\nFINAL_VAR('v')", {"answer": [1]}),
    ("answer['content'] = 'x'; answer['ready'] = True", {"answer": "x"}),
    ("answer = {'content': 'x', 'ready': True}", {"answer": "x"}),
    ("answer['content'] = 'x'; answer['ready'] = True\n1 / 0", {"answer": "x"}),
])
def test_every_form_of_answer(session, code, fields):
    """SUBMIT with and without names, FINAL, FINAL_VAR and `answer`; once, and not again in the next
    cell."""
    result = session.execute(code)
    assert (result.status, result.fields) == ("submitted", fields)
    assert session.execute("1").status == "ok"


def test_submitting_ends_the_cell(session):
    """`except Exception` does not catch it; `finally` runs; the lines behind it do not."""
    result = session.execute(
        "done = []\ntry:\n    SUBMIT(a=1)\nexcept Exception:\n    "
        "done.append('caught')\nfinally:\n    done.append('finally')\n"
        "done.append('after')")
    assert result.fields == {"a": 1} and session.execute("done").echo == "['finally']"


def test_fields_that_are_asked_for_are_checked(opened):
    """Where the host says which fields it wants, positions bind to them, and what does not fit is
    the cell's error."""
    interp = opened(output_fields=["name", {"name": "count", "type": "int"}])
    assert interp.execute("SUBMIT('a', 2)").fields == {"name": "a", "count": 2}
    result = interp.execute("SUBMIT('a', 'b')")
    assert (result.status, result.error.type, result.fields,
            result.alive) == ("error", "AnswerError", None, True)
    assert interp.execute("SUBMIT(name='a', count=3)")["count"] == 3


def test_exceptions_may_render_their_traceback(session):
    """By the method that IPython calls; one that fails is as if it were not there."""
    session.execute("class Own(Exception):\n"
                    "    def _render_traceback_(self): return self.args[0]")
    error = session.execute("raise Own(['a', 'b'])").error
    assert (error.type, error.traceback) == ("Own", "a\nb")
    assert "Own: 5" in session.execute("raise Own(5)").error.traceback
