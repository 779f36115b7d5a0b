"""What a tree of runs costs and what of it is recorded: usage, money, limits, retries, the cache
and replay.

Each docstring says first what other runtimes for recursive language models (alexzhang13/rlm,
dspy.RLM, verifiers, fleet-rlm, agentic-codebase-navigator) do there, then what is right here.
"""
import os
import re

import pytest

from harness import answered, at, line, repl


def test_usage_of_a_tree_is_the_servers_own_count(droste, serve):
    """There: root and children of one model's name overwrite each other's counters, children's
    calls are lost, and all items of a batch get the last one's tokens. Here: one name at all
    depths, and each call is counted as it was."""
    root = repl("SUBMIT(rlm_query('go'), llm_query_batched(['x' * 400, 'y' * 4000, 'z']))")
    server = serve(script=[line("m", root, "Question: q"),
                           line("m", repl("SUBMIT(llm_query('w' * 800))"), "Question: go"),
                           line("m", "said", repeat=True)])
    result = droste("run", "--question", "q", "--json", "--base-url", server.url, "--model",
                    "scripted-m")
    usage = answered(result, ["said", ["said"] * 3])["usage"]
    tokens = server.stats()["reported"]["scripted-m"]
    assert usage["calls"] == server.stats()["requests"] == 6
    assert [usage["input_tokens"], usage["output_tokens"]] == tokens and not usage["estimated"]
    of_prompts = sorted(call["input_tokens"] for call in droste.lines("call")
                        if call["kind"] == "sub")
    assert of_prompts == [0, 100, 200, 1000]


def test_money_is_bounded_over_the_whole_tree(tree, tmp_path):
    """There: what children spent is forgotten after each turn, and a run goes over its budget
    without saying so. Here: four children ask until they are refused, and all of them together
    stay below the limit."""
    # a dollar an input token
    (tmp_path / "prices").write_text("scripted-two 1000000 0\nscripted-* 0 0\n")
    child = ("n = 0\ntry:\n    while True:\n        llm_query('x' * 400)\n        n += 1\n"
             "except BudgetExceeded: SUBMIT(n)")
    result, server = tree([line("root", repl("SUBMIT(sum(rlm_query_batched(['go'] * 4)))")),
                           line("one", repl(child), repeat=True), line("two", "said", repeat=True)],
                          "--prices", tmp_path / "prices", "--max-cost", "750", "--max-llm-calls",
                          "1000")
    assert result.status == 0, result
    stats = server.stats()
    calls, (tokens, _) = stats["models"]["scripted-two"], stats["reported"]["scripted-two"]
    assert result.json["answer"] == calls > 1 and tokens == calls * 100
    assert result.json["usage"]["cost"] == pytest.approx(tokens) and tokens <= 750


def test_a_result_has_one_shape_at_every_depth(ask):
    """There: at the depth limit a bare text comes back where elsewhere an object does. Here: the
    same members, and the calls at the limit are in the usage."""
    turns = [repl("SUBMIT(rlm_query('q'))"), at(1, repl("SUBMIT('deep')"), "Question: q"),
             at(1, "deep")]
    with_child, without = (answered(ask(turns, "--max-recursion-depth", n), "deep") for n in (1, 0))
    assert set(with_child) == set(without) and with_child["usage"]["calls"] == without["usage"][
        "calls"] == 2


def test_progress_and_results_can_be_looked_at(droste, replay):
    """There: the callbacks of turns are never called, and a result with sub-calls cannot be
    printed. Here: each turn, its code and output are told as they come, and the run can be shown
    afterwards."""
    result = droste("run", "--question", "q", "--verbose", "--model",
                    replay(repl("print(llm_query('x'), 1 + 1)"), at(1, "sub said"),
                           repl("SUBMIT('end')")))
    expected = ["turn 1 of", "> print(llm_query('x'), 1 + 1)", "| sub said 2", "turn 2 of",
                "> SUBMIT('end')"]
    assert re.search(".*".join(map(re.escape, expected)), result.err, re.S), result.err
    (run,) = droste.record.runs
    shown = droste("runs", "show", run["id"])
    assert (shown.status == 0 and "print(llm_query('x'), 1 + 1)" in shown.out
            and "sub said 2" in shown.out)


def test_a_record_holds_a_context_once(droste, replay):
    """There: each step's log has the whole conversation and all variables again, ten times the
    context in five turns. Here: 4 MB of digits that came through a pipe, bound to five more names
    and given to a child, are kept once, packed."""
    context = os.urandom(2 << 20).hex()
    turns = [repl("copy%d = context + '.'\nprint(len(copy%d))" % (n, n)) for n in range(5)]
    result = droste("run", "--question", "q", "--json", "--context", "-", "--model", replay(
        *turns, repl("SUBMIT(rlm_query('q', context))"), at(1, repl("SUBMIT(len(context))"))),
                    input=context)
    answered(result, len(context))
    assert len(context) / 2 < len(droste.record.bytes()) < 0.9 * len(context)


def test_children_share_what_is_left(droste, serve):
    """There: each child gets the whole remaining budget, four times over. Here: eight children,
    and theirs, ask until they are refused, and as many calls as were allowed reach the server."""
    asks = (
        "n = %s\ntry:\n    while True: n += llm_query('more') == 'in'\n"
        "except BudgetExceeded: SUBMIT(n)")
    server = serve(script=[line("m", repl("SUBMIT(sum(rlm_query_batched(['child'] * 8)))"),
                                "Question: q"),
                           line("m", repl(asks % "rlm_query('grandchild')"), "Question: child",
                                repeat=True),
                           line("m", repl(asks % 0), "Question: grandchild", repeat=True),
                           line("m", "in", repeat=True)])
    result = droste("run", "--question", "q", "--json", "--base-url", server.url, "--model",
                    "scripted-m",
                    "--max-llm-calls", "60")
    assert answered(result, 60 - 16)["usage"]["calls"] == server.stats()["requests"] == 61


def test_the_same_question_is_paid_once(droste, serve, tmp_path):
    """Wanted: a cache of calls. Here: the same calls again, in another session, reach no server."""
    server = serve()
    for _ in range(2):
        result = droste.cell("SUBMIT(llm_query_batched(['a', 'b', 'a']))", "--base-url", server.url,
                             "--model", "echo", "--cache", tmp_path / "cache")
        assert result["submit"] == {"output": ["1:a", "1:b", "1:a"]}
    assert server.stats()["requests"] == 2


def test_a_failure_that_passes_is_tried_again(droste, serve):
    """Wanted: retries that a guest does not see. Here: two refusals, one call, one answer."""
    server = serve()
    result = droste.cell("SUBMIT(llm_query('x'))", "--base-url", server.url, "--model", "503-2")
    assert result["submit"] == {"output": "The answer is ⟨42⟩."} and server.stats()["requests"] == 3


def test_a_tree_is_replayed_from_its_recording(tree, droste, tmp_path):
    """Wanted: model calls recorded and answered again. Here: the whole tree, from a file, with the
    same record of steps."""
    script = [line("root", repl("SUBMIT(rlm_query('a'), llm_query('b'))")),
              line("one", repl("SUBMIT(7)"), "Question: a"), line("one", "B")]
    result, server = tree(script, "--record", tmp_path / "calls.jsonl")
    answered(result, [7, "B"])
    first = [(cell["code"], cell["submit"]) for cell in droste.lines("cell")]
    answered(droste("run", "--question", "q", "--json", "--model",
                    "replay:%s" % (tmp_path / "calls.jsonl")), [7, "B"])
    assert [(cell["code"], cell["submit"]) for cell in droste.lines("cell")] == first * 2
    assert server.stats()["requests"] == 3
