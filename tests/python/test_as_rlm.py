"""`RLM` by rlm's names means what it means there, or is refused by name."""
import asyncio
import decimal
import json
import re
import socket
import sys
import threading

import pytest

import droste
from droste import RLM
from droste.compat import rlm_errors as errors


def scripted(*replies):
    left = list(replies)

    def model(messages):
        model.seen.append([m["content"] for m in messages])
        return left.pop(0) if len(messages) > 1 else "plain"

    model.seen = []
    return model


def block(code):
    return "```repl\n%s\n```" % code


def by_completion(rlm):
    return rlm.completion("abc", root_prompt="q")


def by_acompletion(rlm):
    return asyncio.run(rlm.acompletion("abc", root_prompt="q"))


both = pytest.mark.parametrize("complete", [by_completion, by_acompletion])


# ---- depth

def test_a_run_by_rlms_names_is_as_deep_as_there():
    """With `backend`, max_depth is 1 unless it is said: rlm_query asks a model. Droste's own names
    keep Droste's default."""
    model = scripted(block("SUBMIT(rlm_query('q', 'abc'))"))
    done = RLM(backend="openai",
               backend_kwargs={"model_name": model}).completion("abc", root_prompt="q")
    assert done.answer == "plain" and model.seen[1] == ["q\n\nContext:\nabc"]
    for options in ({"max_depth": 2}, {"max_recursion_depth": 1}):
        model = scripted(block("SUBMIT(rlm_query('deeper', 'abc'))"), block("SUBMIT(context * 2)"))
        assert RLM(backend="openai", backend_kwargs={"model_name": model},
                   **options).completion("abc", root_prompt="q").answer == "abcabc"
    model = scripted(block("SUBMIT(rlm_query('deeper', 'abc'))"), block("SUBMIT(context * 2)"))
    assert RLM(model).run("q").answer == "abcabc"


def test_a_depth_without_code_is_refused():
    """There it is a call of the model."""
    with pytest.raises(droste.UnsupportedError, match="max_depth=0"):
        RLM(backend="openai", backend_kwargs={"model_name": "m"}, max_depth=0)


# ---- names that code overwrites

OVERWRITE = block(
    "context = llm_query = llm_query_batched = rlm_query = rlm_query_batched = SHOW_VARS = answer "
    "= twice = FINAL_VAR = 'mine'")


def twice(n):
    """Doubles."""
    return 2 * n


def test_what_the_code_overwrites_is_restored():
    """As rlm restores it after each cell: what the host has given by the names of rlm's list, and
    tools that are functions. Other names stay the code's."""
    look = block(
        "SUBMIT([context, llm_query('q'), llm_query_batched(['q']), rlm_query('r'), "
        "rlm_query_batched(['r']),"
        " type(answer).__name__, 'context' in SHOW_VARS(), twice(2), FINAL_VAR])")
    rlm = RLM(backend="openai", backend_kwargs={"model_name": scripted(OVERWRITE, look)},
              custom_tools={"twice": twice})
    assert rlm.completion("abc", root_prompt="q").answer == [
        "abc", "plain", ["plain"], "plain", ["plain"], "dict", True, 4, "mine"]


def test_by_drostes_names_it_stays():
    """The twin, which Python's own semantics have; and by rlm's names where a program asks for
    that."""
    look = block("SUBMIT([context, llm_query, SHOW_VARS, answer, twice])")
    assert RLM(scripted(OVERWRITE, look), tools=[twice]).run("q", "abc").answer == ["mine"] * 5
    rlm = RLM(backend="openai", backend_kwargs={"model_name": scripted(OVERWRITE, look)},
              tools=[twice], restore_name=[])
    assert rlm.run("q", "abc").answer == ["mine"] * 5


# ---- completions without an answer

@both
def test_a_server_that_cannot_be_reached_raises(complete):
    """With the completion; `run` has it as a status."""
    with socket.socket() as taken:      # bound, and nothing listens there
        taken.bind(("127.0.0.1", 0))
        rlm = RLM(backend="openai", backend_kwargs={"model_name": "m", "api_key": "k",
                                                    "max_retries": 0,
                                                    "base_url": "http://127.0.0.1:%d/v1"
                                                    % taken.getsockname()[1]})
        with pytest.raises(droste.ModelConnectError) as failed:
            complete(rlm)
        assert failed.value.completion.status == "error" and failed.value.completion.response == ""
        assert rlm.run("q").status == "error"


@both
def test_the_end_of_the_time_raises(complete):
    """rlm's exception; `run` has it as a status."""
    ended = threading.Event()
    rlm = RLM(lambda messages: ended.wait(60) and "late", max_timeout=0.5)
    with pytest.raises(errors.TimeoutExceededError) as failed:
        complete(rlm)
    assert failed.value.timeout == 0.5 and failed.value.elapsed > 0.4 and isinstance(
        failed.value.__cause__, droste.TimedOut)
    assert failed.value.completion.status == rlm.run("q").status == "timeout"
    ended.set()


@both
@pytest.mark.parametrize("limit, kind, number", [
    ({"max_tokens": 10, "backend": "openai"}, errors.TokenLimitExceededError, ("token_limit", 10)),
    ({"max_errors": 2}, errors.ErrorThresholdExceededError, ("threshold", 2))])
def test_a_limit_that_is_reached_raises(complete, limit, kind, number):
    """By the names of rlm's exceptions."""
    model = scripted(*[block("1 / 0")] * 9)
    options = ({"model": model} if "backend" not in limit
               else {"backend_kwargs": {"model_name": model}})
    with pytest.raises(kind) as failed:
        complete(RLM(**options, **limit))
    assert getattr(failed.value,
                   number[0]) == number[1] and failed.value.completion.status == "budget"


@both
def test_the_end_of_the_money_raises(complete, tmp_path):
    """With what is spent, and the limit."""
    (tmp_path / "prices").write_text("* 1 1\n")
    with pytest.raises(errors.BudgetExceededError) as failed:
        complete(RLM(scripted(*[block("print('x' * 9000)")] * 30), max_budget=0.01,
                     prices=tmp_path / "prices"))
    assert failed.value.budget == 0.01 and 0 < failed.value.spent <= 0.02


def test_turns_that_run_out_do_not_raise():
    """As there: the model's last words are the answer."""
    assert RLM(scripted(block("1"), "last words"),
               max_iterations=1).completion("abc").response == "last words"


# ---- custom_tools

def test_custom_tools_are_what_a_sandbox_can_have():
    """Functions are called here; modules, their classes and patterns are made there; values are
    values. The model is told of each."""
    def count(text: str) -> int:
        """Counts."""
        return len(text)

    model = scripted(
        block(
        "SUBMIT([count('abc'), text.dumps({}), word.findall('a1 B2'), str(Number('1.10')), table, "
        "json2.loads('[1]')])"))
    done = RLM(model, custom_tools={
        "count": count, "text": json, "word": re.compile(r"[a-z]\d", re.I),
        "Number": decimal.Decimal, "table": {"a": [1, None]},
        "json2": {"tool": json, "description": "Reads JSON."},
        "pi": {"tool": 3.14, "description": "Of a circle."}}).run("q")
    assert done.answer == [3, "{}", ["a1", "B2"], "1.10", {"a": [1, None]}, [1]], done.error
    prompt = "\n".join(model.seen[0])
    for words in ("`text`: the module `json`", "`word`: a compiled pattern",
                  "`Number`: the class `decimal.Decimal`", "`json2`: Reads JSON.",
                  "`pi`: Of a circle.", "Counts."):
        assert words in prompt


class Client:
    pass


@pytest.mark.parametrize("thing, words", [
    (Client(), "'it'.*Client"), (sys.modules["__main__"], "'it'.*running program"),
    (object(), "'it'.*object"), (open, None),
    ([Client()], "'it'.*Client"), ({"tool": Client()}, "'it'.*Client"),
    (type("Local", (), {"__module__": "__main__"}), "'it'.*class of this program")])
def test_custom_tools_that_a_sandbox_cannot_have_are_refused(thing, words):
    """By the name of the tool and the type of the thing; nothing becomes its repr. A function is
    always possible."""
    if words is None:
        assert list(RLM(scripted(), custom_tools={"it": thing})._tools) == ["it"]
        return
    with pytest.raises(droste.UnsupportedError, match=words):
        RLM(scripted(), custom_tools={"it": thing})


def test_a_module_that_the_sandbox_has_not_ends_the_run(tmp_path, monkeypatch):
    """When it begins, by its name."""
    (tmp_path / "only_here.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    import only_here
    done = RLM(scripted(block("1")), custom_tools={"mine": only_here}).run("q")
    assert done.status == "error" and "only_here" in str(done.error)


def test_rlms_own_names_are_kept():
    """With its words."""
    with pytest.raises(ValueError, match="Custom tools cannot override reserved REPL functions"):
        RLM(scripted(), custom_tools={"llm_query": len})
