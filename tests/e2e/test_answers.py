"""Typed answers: what does not fit the schema is not an answer, and the model is told why."""
import json

import pytest

from harness import answered, repl, system_prompts, when, write_replay

BILL = {"type": "object",
        "properties": {"name": {"type": "string", "minLength": 1},
                       "total": {"type": "integer", "minimum": 0}},
        "required": ["name", "total"], "additionalProperties": False}
ADA = {"name": "Ada", "total": 3}


@pytest.fixture
def typed(ask):
    """typed(turns, schema): a run whose answer must fit."""
    return lambda turns, schema=BILL, *flags, **more: ask(
        turns, "--answer-schema", json.dumps(schema), *flags, **more)


@pytest.mark.parametrize("code", [
    "SUBMIT(name='Ada', total=3)", "SUBMIT('Ada', 3)", "SUBMIT('Ada', total=3)",
    "SUBMIT({'name': 'Ada', 'total': 3})",
    "FINAL({'name': 'Ada', 'total': 3})", "x = {'name': 'Ada', 'total': 3}\nFINAL_VAR('x')",
    "answer['content'] = {'name': 'Ada', 'total': 3}\nanswer['ready'] = True"])
def test_answer_that_fits_is_taken(typed, code):
    """However it is given."""
    answered(typed([repl(code)]), ADA)


def test_an_answer_that_does_not_fit_goes_back_to_the_model(typed, droste):
    """The model is told where and what, the run goes on, and the record has the cell as a failed
    one."""
    answered(typed([repl("SUBMIT(name='Ada', total='3')"),
                    when("at /total: expected an integer, not a string",
                         repl("SUBMIT(name='Ada')")),
                    when("lacks 'total'", repl("SUBMIT(name='Ada', total=3, tip=1)")),
                    when("has the unknown member 'tip'", repl("SUBMIT(name='Ada', total=3)"))]),
             ADA)
    assert [cell["status"] for cell in droste.record.cells] == ["error", "error", "error",
                                                                "submitted"]


def test_blocks_behind_an_answer_that_was_not_taken_run(typed):
    """It is an error of its cell, as another would be."""
    answered(typed([repl("SUBMIT(1, 2)", "SUBMIT('Ada', 3)")]), ADA)


def test_model_is_shown_the_schema(typed, ask, droste):
    """With its fields by name; without a schema there is no word of one."""
    answered(typed([repl("SUBMIT('Ada', 3)")]), ADA)
    answered(ask([repl("SUBMIT(1)")]), 1)
    first, second = system_prompts(droste)
    assert "`SUBMIT(name=value, total=value)`" in first and json.dumps(
        BILL, separators=(",", ":")) in first
    assert "chema" not in second and "`SUBMIT(answer=value)`" in second


def test_answers_that_do_not_fit_are_errors_in_a_row(typed):
    """--max-errors counts them, in code and in words."""
    result = typed([repl("SUBMIT(1)"), "FINAL(1)"], BILL, "--max-errors", "2")
    assert result.status == 3 and result.json["status"] == "budget"
    assert "2 turns in a row" in result.json["error"]["message"]


def test_words_that_fit_answer(typed):
    """FINAL(…) outside of code is read as JSON."""
    answered(typed(['FINAL({"name": "Ada", "total": 3})']), ADA)


def test_final_text_that_does_not_fit_goes_back_to_the_model(typed):
    """The model may mend them in words or in code."""
    answered(typed(["FINAL(three)", when("not JSON", 'FINAL({"name": "Ada"})'),
                    when("lacks 'total'", repl("SUBMIT('Ada', 3)"))]), ADA)


def test_words_are_a_string_where_one_is_wanted(typed):
    """A schema of a string takes the words as they are, one of a list does not."""
    answered(typed(["FINAL(It is (about) 5.)"], {"type": "string", "pattern": "about"}),
             "It is (about) 5.")


def test_last_words_are_asked_for_again(typed):
    """When the turns are used up, a few times, and in a fence is fine."""
    answer = "```json\n%s\n```" % json.dumps(ADA, indent=1)
    result = typed([repl("x = 1"), when("as JSON that matches the schema", "It is Ada."),
                    when("Your answer was not accepted", '{"name": "Ada"}'),
                    when("lacks 'total'", answer)],
                   BILL, "--max-iterations", "1")
    assert result.status == 3 and result.json["status"] == "exhausted" and result.json[
        "answer"] == ADA


def test_last_words_that_never_fit_are_no_answer(typed, droste):
    """The run ends without an answer rather than with one of another shape."""
    result = typed([repl("x = 1"), "one", "two", "three", repl("SUBMIT('never asked', 4)")], BILL,
                   "--max-iterations", "1")
    assert result.status == 3 and result.json["status"] == "exhausted" and result.json[
        "answer"] is None
    assert "does not fit the schema" in result.json["error"]["message"]
    assert len(droste.record.calls) == 4


def test_other_schemas_are_of_the_value(typed):
    """A schema without properties is one of the value that is submitted."""
    answered(typed([repl("SUBMIT('ab')"), when("expected a list", repl("SUBMIT(['a', 1])")),
                    when("at /1: expected a string", repl("SUBMIT(['a', 'b'])"))],
                   {"type": "array", "items": {"type": "string"}}), ["a", "b"])


def test_fields_are_short_for_a_schema(ask):
    """--answer-field names them, with a type or without; all are there, and no others."""
    fields = ("--answer-field", "name:string", "--answer-field", "what")
    answered(ask([repl("SUBMIT(1, 2)"), when("at /name: expected a string", repl("SUBMIT('a')")),
                  when("lacks 'what'", repl("SUBMIT('a', [None], 3)")),
                  when("got 3 values", repl("SUBMIT('a', [None])"))], *fields),
             {"name": "a", "what": [None]})


def test_schema_of_a_file(ask, tmp_path):
    """A value that does not begin with { is a file."""
    (tmp_path / "s.json").write_text(json.dumps(BILL))
    answered(ask([repl("SUBMIT('Ada', 3)")], "--answer-schema", tmp_path / "s.json"), ADA)


@pytest.mark.parametrize("flags, message", [
    (("--answer-schema", '{"if": {}}'), "keyword 'if' is not supported"),
    (("--answer-schema", '{"type": "str"}'), "'type' must be the name of a JSON type"),
    (("--answer-schema", '{"pattern": "(?i)a"}'), "ECMA-262 does not define"),
    (("--answer-schema", "{"), "the schema: JSON is invalid"),
    (("--answer-schema", "missing.json"), "missing.json"),
    (("--answer-field", "a b"), "expected NAME or NAME:TYPE"),
    (("--answer-field", "a:str"), "answer-field"),
    (("--answer-field", "a", "--answer-schema", "{}"), "exclude each other"),
])
def test_schema_that_cannot_be_held_is_refused_before_the_run(ask, droste, flags, message):
    """By name, with nothing recorded and no model asked."""
    result = ask([repl("SUBMIT(1)")], *flags)
    assert result.status == 2 and message in result.complaint
    assert not droste.record.runs


def test_children_answer_what_they_like(typed):
    """The type is that of the root's answer alone."""
    child = {"content": repl("SUBMIT(['child'])"), "depth": 1}
    answered(typed([repl("SUBMIT('Ada', len(rlm_query('q')))"), child], BILL),
             {"name": "Ada", "total": 1})


def test_type_stays_that_of_a_conversation(typed, droste, tmp_path):
    """Its questions have the type of the first; another one is refused."""
    first = answered(typed([repl("SUBMIT('Ada', 3)")]), ADA)

    def go_on(*flags):
        turns = [repl("SUBMIT('Bob')"), when("lacks 'total'", repl("SUBMIT('Bob', 4)"))]
        return droste("run", "--continue", first["run"], "--question", "And?", "--json", "--model",
                      write_replay(tmp_path / "next.jsonl", *turns), *flags)
    answered(go_on(), {"name": "Bob", "total": 4})
    assert "cannot change within a conversation" in go_on("--answer-schema",
                                                          '{"type": "string"}').complaint


def test_exec_has_types_too(droste):
    """A cell that submits another type has failed."""
    assert droste.cell("SUBMIT('Ada', 3)", "--answer-schema", json.dumps(BILL))["submit"] == ADA
    cell = droste.cell("SUBMIT('Ada', -3)", "--answer-schema", json.dumps(BILL))
    assert cell["status"] == "error" and cell["submit"] is None and cell["error"][
        "type"] == "AnswerError"
    assert "at /total: expected a number of at least 0, not -3" in cell["error"]["message"]


def test_large_number_is_answered_as_it_is(ask):
    """Whatever its size, without a schema."""
    answered(ask([repl("SUBMIT(2 ** 70)")]), 2 ** 70)


LONG = "é\"\\\n\t\u0001€😀x" * 20000        # it travels beside the JSON


@pytest.mark.parametrize("submission", ["SUBMIT(%s)", "FINAL(%s)",
                                        "answer['content'] = %s\nanswer['ready'] = True",
                                        "SUBMIT(rlm_query('q'))"])
def test_long_answer_is_the_same_everywhere(ask, droste, submission):
    """Answered, recorded, exported and shown; of a child, too."""
    code = "'é\"\\\\\\n\\t\\1€😀x' * 20000"
    turns = [repl(submission % code if "%s" in submission else submission),
             {"content": repl("SUBMIT(%s)" % code), "depth": 1}]
    run = answered(ask(turns), LONG)["run"]
    exported = [line["submit"] for line in map(json.loads,
                                               droste("runs", "export", run).out.splitlines())
                if line["type"] == "cell"]
    shown = json.loads(droste("runs", "show", run, "--json").out)["turns"][0]["steps"]
    for fields in exported + [step["submit"] for step in shown if step["step"] == "cell"]:
        assert list(fields.values()) == [LONG]
    assert len(exported) == 1 + ("rlm" in submission)


def test_long_values_have_types_too(typed):
    schema = {"type": "object", "properties":
              {"t": {"type": "string", "maxLength": 70000}, "n": {"type": "integer"}}}
    answered(typed([repl("SUBMIT('x' * 70001, 1)", "SUBMIT('é' * 70000, 1)")], schema),
             {"t": "é" * 70000, "n": 1})
