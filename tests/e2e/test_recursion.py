"""Runs below runs: rlm_query and its kin, the one budget of a tree, and the end of all of it.

Models are recordings written by hand where the order of things does not matter, and the fake server
(tests/fakes/model_server.py) where it must count: the calls that reach it, how many are open at
once, the tokens that it told.
"""
import json
import os
import signal

import pytest

from harness import answered, at, descendants, finish, line, repl, still_alive, wait_until


def attempt(call):
    """Code that submits what the call gives, or the type and code of what it raises."""
    return repl("try: r = %s\nexcept LLMError as e: r = [type(e).__name__, e.code]\nSUBMIT(r)"
                % call)


def runs(droste, depth=None):
    rows = droste.record.rows("SELECT * FROM runs ORDER BY seq")
    return [row for row in rows if depth is None or row["depth"] == depth]


def assert_closed(droste):
    """The record is whole and nothing in it is left open."""
    assert droste.record.is_whole
    for table in ("runs", "cells", "calls"):
        assert droste.record.rows("SELECT * FROM %s WHERE status = 'running'" % table) == []


# ---- a child run ----

@pytest.mark.parametrize("name", ["rlm_query", "sub_rlm"])
def test_child_run_computes_over_its_context(ask, name):
    """A child has a session of its own with the context that it was given; what it submits is the
    value."""
    answered(ask([repl("x = 1\nSUBMIT(%s('Add it up', context=[1, 2, 3]))" % name),
                  at(1, repl("SUBMIT({'sum': sum(context), 'own': 'x' not in globals()})"),
                     "Question: Add it up")]),
             {"sum": 6, "own": True})


@pytest.mark.parametrize("value, is_there", [
    ("'täxt'", "'täxt'"), ("b'\\x00\\xff'", "b'\\x00\\xff'"),
    ("{'a': [None, 1.5]}", "{'a': [None, 1.5]}"),
    ("None", "''"), ("''", "''"), ("0", "0"), ("[]", "[]")])
def test_context_of_a_child_is_the_value(ask, value, is_there):
    """A str, bytes and all that is JSON arrive as they are; nothing is an empty str."""
    answered(ask([repl("SUBMIT(rlm_query('q?', %s))" % value),
                  at(1, repl("SUBMIT(context == %s)" % is_there))]), True)


@pytest.mark.parametrize("name", ["rlm_query_batched", "sub_rlm_batched"])
def test_batch_of_children_keeps_its_order(ask, name):
    """Each prompt has its child; a dict gives one a context of its own."""
    lines = [at(1, repl("SUBMIT(%s + len(context))" % n), "Question: %s" % p, delay_ms=ms)
             for p, n, ms in (("slow", 10, 200), ("fast", 20, 0), ("own", 30, 0))]
    answered(
        ask([repl("SUBMIT(%s(['slow', 'fast', {'prompt': 'own', 'context': 'abc'}], context='x'))"
                  % name),
             *lines]), [11, 21, 33])


def test_an_empty_batch_sends_no_request(ask):
    """No prompts, no children."""
    assert answered(ask([repl("SUBMIT(rlm_query_batched([]))")]), [])["usage"]["calls"] == 1


@pytest.mark.parametrize("call, kind", [
    ("rlm_query('')", "ValueError"), ("rlm_query(7)", "TypeError"),
    ("rlm_query('x', object())", "TypeError"),
    ("rlm_query('x', model=7)", "TypeError"), ("rlm_query_batched('x')", "TypeError"),
    ("rlm_query_batched([{'context': 1}])", "TypeError"), ("rlm_query('a\\0b')", "ValueError")])
def test_what_is_no_task_is_refused(ask, call, kind):
    """A prompt that is not a task raises, costs nothing and gives its place back."""
    run = answered(
        ask([repl("try: %s\nexcept Exception as e: r = type(e).__name__\nSUBMIT(r, rlm_query('y'))"
                  % call),
             at(1, repl("SUBMIT(1)"))], "--max-llm-calls", "1"), [kind, 1])
    assert run["usage"]["calls"] == 2


def test_prompt_that_would_fill_the_model_becomes_the_context(ask):
    """A long prompt without a context is the child's `context`, and its model is told to read
    it."""
    answered(ask([repl("SUBMIT(rlm_query('Count these: ' + 'z' * 50000))"),
                  at(1, repl("SUBMIT(context.count('z'))"), "too long to be shown")]), 50000)


def test_children_of_threads(ask):
    """rlm_query may be called from several threads."""
    code = ("from concurrent.futures import ThreadPoolExecutor\n"
            "with ThreadPoolExecutor(4) as pool: SUBMIT(sorted(pool.map(rlm_query, 'abcd')))")
    answered(ask([repl(code), at(1, repl("SUBMIT('same')"), repeat=True)]), ["same"] * 4)


def test_setup_and_rules_hold_in_a_child(ask):
    """A child's sandbox is made as its parent's: setup code and rules are there."""
    answered(ask([repl("SUBMIT(rlm_query('q'))"),
                  at(1, repl("try: import socket\nexcept ImportError: SUBMIT(given)"))],
                 "--rules", "yes", "--setup-code", "given = 5"), 5)


# ---- how deep ----

def test_record_is_a_tree(ask, droste):
    """Each run names its parent, the cell that asked and its depth; totals of a run include those
    below it."""
    answered(ask([repl("SUBMIT(rlm_query('a'))"), at(1, repl("SUBMIT(rlm_query('b', 'ctx'))")),
                  at(2, repl("SUBMIT(llm_query('c'))")), at(3, "deep")]), "deep")
    root, child, grandchild = runs(droste)
    assert [run["depth"] for run in (root, child, grandchild)] == [0, 1, 2]
    assert (root["parent"], child["parent"],
            grandchild["parent"]) == (None, root["id"], child["id"])
    cells = {cell["run"]: cell["id"] for cell in droste.record.cells}
    assert child["parent_cell"] == cells[root["id"]] and grandchild["parent_cell"] == cells[
        child["id"]]
    assert [run["calls"] for run in (root, child, grandchild)] == [4, 3, 2]
    assert [(c["kind"], c["depth"]) for c in droste.record.calls] == [("root", 0), ("root", 1),
                                                                      ("root", 2), ("sub", 3)]
    assert_closed(droste)
    shown = droste("runs", "show", root["id"])
    assert shown.status == 0 and child["id"] in shown.out


@pytest.mark.parametrize("limit", [0, 1])
def test_at_the_depth_limit_a_model_is_asked(ask, droste, limit):
    """Where no child may begin, a plain call stands in: it sees prompt and context, and the record
    says so."""
    turns = [repl("SUBMIT(rlm_query('Q?', {'k': 5}))"),
             at(1, repl("SUBMIT(rlm_query('Q?', {'k': 5}))"))][:limit + 1]
    answered(ask([*turns, at(limit + 1, "plain", 'Q?\n\nContext:\n{"k": 5}')],
                 "--max-recursion-depth", limit), "plain")
    assert len(runs(droste)) == limit + 1
    last = droste.record.calls[-1]
    assert (last["kind"], last["depth"], last["run"]) == ("plain", limit + 1,
                                                          runs(droste)[-1]["id"])


def test_bytes_need_a_child(ask):
    """At the depth limit a context that is not text is a ValueError, not a garbled prompt."""
    answered(
        ask([repl(
        "try: rlm_query('q', b'\\xff')\nexcept ValueError as e: SUBMIT('child run' in str(e))")],
            "--max-recursion-depth", "0"), True)


def test_the_prompt_names_child_runs_if_they_are_allowed(droste, serve):
    """The system prompt speaks of rlm_query while there is depth left, and not at the deepest
    run."""
    for depth, named in ((0, False), (1, True)):
        server = serve(script=[repl("SUBMIT(1)")])
        answered(droste("run", "--question", "q", "--json", "--model", "scripted", "--base-url",
                        server.url,
                        "--max-recursion-depth", depth), 1)
        assert ("rlm_query" in json.dumps(server.stats()["last"]["body"]["messages"][0])) == named


def test_models_by_depth(tree):
    """Each depth asks its own model, of which a call may name another."""
    script = [line("root",
                   repl(
        "SUBMIT(rlm_query('a'), rlm_query('b', model='scripted-named'), llm_query('c'))")),
              line("one", repl("SUBMIT(rlm_query('d'))"), "Question: a"),
              line("named", repl("SUBMIT(llm_query('e'))")),
              line("two", repl("SUBMIT(llm_query('f'))"), "Question: d"), line("two", "E", "e"),
              line("three", "F"), line("one", "C", "c")]
    result, server = tree(script)
    run = answered(result, ["F", "E", "C"])
    counts = {"root": 1, "one": 2, "named": 1, "two": 2, "three": 1}
    assert server.stats()["models"] == {"scripted-" + k: n for k, n in counts.items()}
    by_model = {k.rpartition("-")[2]: v["calls"] for k, v in run["usage"]["models"].items()}
    assert by_model == counts


def test_sub_model_is_that_of_all_depths_below_the_root(droste, serve):
    """--sub-model writes the code of children and answers theirs."""
    server = serve(script=[line("root", repl("SUBMIT(rlm_query('a'))")),
                           line("sub", repl("SUBMIT(llm_query('b'))"), "n: a"),
                           line("sub", "B")])
    answered(droste("run", "--question", "q", "--json", "--base-url", server.url, "--model",
                    "scripted-root",
                    "--sub-model", "scripted-sub"), "B")


@pytest.mark.parametrize("value", ["0=m", "x", "2=", "99=m", "-1=m"])
def test_depth_model_that_is_none(ask, value):
    """A depth-model without a depth or a model is refused before anything is paid."""
    result = ask([repl("SUBMIT(1)")], "--depth-model", value)
    assert result.status == 2 and "depth-model" in result.complaint


# ---- a child that fails ----

def test_child_that_crashes_is_an_error_in_the_guest(ask, droste):
    """A child whose sandboxes all die is an LLMError `lost`; its siblings are answered."""
    code = ("r = rlm_query_batched(['dies', 'lives'])\n"
            "SUBMIT([isinstance(r[0], FailedReply), type(r[0].error).__name__, r[0].error.code, "
            "r[1]])")
    dies = repl("import os; os._exit(9)")
    answered(ask([repl(code), at(1, dies, "Question: dies"),
                  at(1, dies, "A new one was started", repeat=True),
                  at(1, repl("SUBMIT('well')"), "Question: lives")]),
             [True, "LLMError", "lost", "well"])
    assert sorted(run["status"] for run in runs(droste, 1)) == ["answered", "error"]


def test_child_without_turns_left_gives_its_last_words(ask, droste):
    """A child that does not submit in --delegate-max-iterations raises; `.answer` has what it said
    last."""
    code = (
        "try: rlm_query('q')\nexcept BudgetExceeded as e: SUBMIT(e.answer, '2 turns' in str(e), "
        "e.code)")
    answered(ask([repl(code), at(1, repl("x = 1")), at(1, repl("x = 2")),
                  at(1, "About two.", "no more code")],
                 "--delegate-max-iterations", "2"), ["About two.", True, "budget_turns"])
    (child,) = runs(droste, 1)
    assert child["status"] == "exhausted" and child["iterations"] == 2


def test_child_whose_model_fails(ask):
    """What fails a child is its parent's error, with the code of the cause and the child's id."""
    bad = {"depth": 1, "error": {"code": "model_server", "message": "engine overheated"}}
    answered(ask([repl("try: rlm_query('q')\nexcept LLMError as e: "
                       "SUBMIT(e.code, 'overheated' in str(e), str(e)[:9], e.answer)"), bad]),
             ["model_server", True, "child run", None])


# ---- the budget of the tree ----

def test_exactly_as_many_calls_as_allowed_reach_the_server(tree, droste):
    """64 children at once, theirs, and what those ask: of all the calls below the root exactly N
    are made, and each that is refused is a BudgetExceeded in the guest that asked. The server's
    count, tokens included, is ours."""
    attempt_two = (
        "try: SUBMIT(rlm_query('two'))\nexcept BudgetExceeded as e: SUBMIT('refused ' + e.code)")
    attempt_three = (
        "try: SUBMIT(llm_query('three'))\nexcept BudgetExceeded as e: SUBMIT('refused ' + e.code)")
    script = [line("root", repl("r = rlm_query_batched(['one %d' % i for i in range(64)])\n"
                                "SUBMIT({str(x): r.count(x) for x in set(r)})")),
              line("one", repl(attempt_two), gate=64, repeat=True),
              line("two", repl(attempt_three), repeat=True),
              line("three", "said", repeat=True)]
    result, server = tree(script, "--max-llm-calls", 100, "--max-children", 64, "--concurrency", 64)
    assert result.status == 0, result
    stats, usage = server.stats(), result.json["usage"]
    assert set(result.json["answer"]) <= {"said", "refused budget_calls"} and sum(
        result.json["answer"].values()) == 64
    # the children of whom no child could begin
    assert result.json["answer"]["refused budget_calls"] >= 28
    assert stats["requests"] == 101 and stats["models"]["scripted-root"] == 1
    # all of the first generation at the same time
    assert stats["max_in_flight"] == 64
    assert usage["calls"] == usage["attempts"] == 101
    assert [d["calls"] for d in usage["depths"]][:2] == [1, 64]
    assert sum(d["calls"] for d in usage["depths"]) == 101
    for name, of_model in usage["models"].items():
        tokens = stats["reported"][name.rpartition("/")[2]]
        assert [of_model["input_tokens"], of_model["output_tokens"]] == tokens, name
        assert of_model["calls"] == stats["models"][name.rpartition("/")[2]]
    assert usage["input_tokens"] == sum(i for i, _ in stats["reported"].values()) and not usage[
        "estimated"]
    assert_closed(droste)
    (sums,) = droste.record.rows(
        "SELECT count(*) n, sum(input_tokens) i, sum(output_tokens) o FROM calls")
    assert (sums["n"], sums["i"], sums["o"]) == (101, usage["input_tokens"], usage["output_tokens"])


def test_batch_of_children_over_the_limit_is_refused_whole(ask, droste):
    """Each child needs a call at least: a batch that does not fit begins none, one that fits is
    answered."""
    code = "try: rlm_query_batched(['a', 'b', 'c'])\nexcept BudgetExceeded as e: x = str(e)\n" \
           "SUBMIT(x[:34], rlm_query_batched(['a', 'b']))"
    answered(ask([repl(code), at(1, repl("SUBMIT(1)"), repeat=True)], "--max-llm-calls", "2"),
             ["LLM call limit exceeded: 0 + 3 > 2", [1, 1]])
    assert len(runs(droste, 1)) == 2


def test_child_out_of_calls_ends(ask, droste):
    """A child whose next turn is over the limit ends as `budget`, and its parent gets
    BudgetExceeded."""
    answered(ask([attempt("rlm_query('q')"), at(1, repl("x = 1"), repeat=True)], "--max-llm-calls",
                 "3"),
             ["BudgetExceeded", "budget_calls"])
    (child,) = runs(droste, 1)
    assert child["status"] == "budget" and child["calls"] == 3


def test_usage_counts_failed_and_retried_calls(tree):
    """A call that is tried again is one call of two attempts, one that fails counts as what it
    was."""
    script = [line("root",
                   repl(
        "r = llm_query_batched(['again', 'never', 'fine'])\nSUBMIT([x[:7] for x in r])")),
              line("one", status=503, contains="again"), line("one", "at last", "again"),
              line("one", status=404, contains="never"), line("one", "at once", "fine")]
    result, server = tree(script)
    usage = answered(result, ["at last", "[ERROR]", "at once"])["usage"]
    assert usage["calls"] == 4 and usage["attempts"] == server.stats()["requests"] == 5
    (one,) = [m for name, m in usage["models"].items() if name.endswith("-one")]
    assert (one["calls"], one["attempts"]) == (3, 4)
    assert [one["input_tokens"], one["output_tokens"]] == server.stats()["reported"]["scripted-one"]


@pytest.mark.parametrize("stream", ["yes", "no"])
def test_cost_is_that_of_all_calls(tree, droste, tmp_path, stream):
    """With prices, usage has dollars: in all, by model, by depth, and in the record of each
    call."""
    (tmp_path / "prices").write_text("scripted-root 1000 2000\nscripted-* 100 0\n")
    script = [line("root", repl("SUBMIT(rlm_query('a'))")),
              line("one", repl("SUBMIT(llm_query('b'))")), line("two", "B")]
    result, server = tree(script, "--prices", tmp_path / "prices", "--stream", stream)
    usage = answered(result, "B")["usage"]
    tokens = server.stats()["reported"]
    of_root = (tokens["scripted-root"][0] * 1000 + tokens["scripted-root"][1] * 2000) / 1e6
    of_rest = (tokens["scripted-one"][0] + tokens["scripted-two"][0]) * 100 / 1e6
    assert usage["cost"] == pytest.approx(of_root + of_rest)
    assert usage["depths"][0]["cost"] == pytest.approx(of_root)
    assert usage["models"]["openai/scripted-root"]["cost"] == pytest.approx(of_root)
    assert sum(call["cost"] for call in droste.record.calls) == pytest.approx(usage["cost"])
    assert runs(droste, 0)[0]["cost"] == pytest.approx(usage["cost"])
    assert runs(droste, 1)[0]["cost"] == pytest.approx(of_rest)


def test_cost_without_a_price_is_null(ask):
    """A model that nobody knows the price of costs null, which is not zero."""
    usage = answered(ask([repl("SUBMIT(1)")]), 1)["usage"]
    assert usage["cost"] is None and usage["depths"][0]["cost"] is None


def test_money_is_limited(tree, tmp_path):
    """--max-cost refuses the call that does not fit: BudgetExceeded in the guest, nothing at the
    server."""
    (tmp_path / "prices").write_text("scripted-root 0 0\nscripted-* 1000000 0\n")
    script = [line("root",
                   repl(
        "a = llm_query('x' * 40)\ntry: llm_query('y' * 400)\nexcept BudgetExceeded as e: "
        "SUBMIT(a, str(e)[:19])")), line("one", "cheap", "x")]
    result, server = tree(script, "--prices", tmp_path / "prices", "--max-cost", "50")
    usage = answered(result, ["cheap", "cost limit exceeded"])["usage"]
    assert server.stats()["models"]["scripted-one"] == 1 and 0 < usage["cost"] <= 50


def test_money_cannot_be_limited_without_a_price(tree):
    """--max-cost with a model of no known price is refused before anything is paid, with the
    cure."""
    result, server = tree([line("root", repl("SUBMIT(1)"))], "--max-cost", "1")
    assert result.status == 2 and "--prices" in result.json["error"]["message"]
    assert server.stats()["requests"] == 0


# ---- many at once ----

def test_so_many_children_are_at_work_at_once(tree):
    """--max-children bounds them, and it is used to the full."""
    script = [line("root", repl("SUBMIT(len(rlm_query_batched(['q'] * 9)))")),
              line("one", repl("SUBMIT(1)"), gate=3, delay_ms=100, repeat=True)]
    result, server = tree(script, "--max-children", "3")
    answered(result, 9)
    assert server.stats()["max_in_flight"] == 3


def test_waiting_parents_do_not_block_their_children(ask):
    """With one child at a time at each depth, children of children still come to their turn."""
    answered(ask([repl("SUBMIT(rlm_query_batched(['a', 'b', 'c']))"),
                  at(1, repl("SUBMIT(rlm_query_batched(['d', 'e']))"), repeat=True),
                  at(2, repl("SUBMIT(1)"), repeat=True)],
                 "--max-children", "1"), [[1, 1]] * 3)


# ---- the end of all of it ----

CHILDREN = 6


def ends_in(where):
    """A script whose root has six children that are all stuck in `where`, each below a child of its
    own."""
    stuck = ({"hang": True} if where == "model"
             else {"content": repl("import time\nwhile True: time.sleep(0.01)")})
    return [line("root", repl("rlm_query_batched(['q'] * %d)" % CHILDREN)),
            line("one", repl("rlm_query('deeper')"), "Question: q", repeat=True),
            {**line("two", repeat=True), **stuck}]


def begun(server, droste, where):
    """True when all of them are where they stay."""
    if where == "model":
        return server.stats()["models"].get("scripted-two") == CHILDREN
    if server.stats()["models"].get("scripted-two") != CHILDREN:
        return False
    cells = droste.record.rows(
        "SELECT * FROM cells c JOIN runs r ON c.run = r.id WHERE r.depth = 2")
    return len(cells) == CHILDREN


@pytest.mark.parametrize("where", ["model", "cell"])
def test_interrupt_ends_the_whole_tree(tree, droste, where):
    """Ctrl-C ends every run of a tree: no sandbox is left, no call is open, each is `cancelled` in
    the record."""
    process, server = tree.start(ends_in(where))
    wait_until(lambda: begun(server, droste, where), what="the children of the children")
    below = descendants(process.pid)
    os.kill(process.pid, signal.SIGINT)
    result = finish(process)
    assert result.status == 130 and result.json["status"] == "cancelled"
    assert len(below) >= 2 * (1 + 2 * CHILDREN)      # a keeper and a worker each
    assert wait_until(lambda: not still_alive(below), what="the end of the sandboxes")
    assert [run["status"] for run in runs(droste)] == ["cancelled"] * (1 + 2 * CHILDREN)
    assert_closed(droste)
    if where == "model":
        wait_until(lambda: server.stats()["cancelled"] == CHILDREN,
                   what="the end of the calls")
        assert result.json["usage"]["attempts"] == server.stats()["requests"]


def test_time_of_the_run_ends_the_whole_tree(tree, droste):
    """--timeout ends the runs below with the root."""
    result, server = tree(ends_in("model"), "--timeout", "4")
    assert result.status == 3 and result.json["status"] == "timeout"
    assert {run["status"] for run in runs(droste)} <= {"timeout", "cancelled"}
    assert_closed(droste)
    wait_until(lambda: server.stats()["cancelled"]
               == server.stats()["models"].get("scripted-two", 0), what="the end of the calls")


GOES_ON = line("root", repl("SUBMIT('went on')"), "Turn 2")


def begun_in_time(tree, code, message, calls, *flags):
    """A run whose root gives up its children at a deadline (LIMIT in its code and flags), which is
    longer the second time if the server did not have so many of their calls by then."""
    for limit in "4", "40":
        script = [line("root", repl(code.replace("LIMIT", limit)), "Turn 1 of"),
                  {**GOES_ON, "contains": message.replace("LIMIT", limit)},
                  line("one", hang=True, repeat=True)]
        result, server = tree(script, *[flag.replace("LIMIT", limit) for flag in flags])
        answered(result, "went on")
        if server.stats()["models"].get("scripted-one") == calls:
            break
    return result, server


def children(droste, result):
    return [run for run in runs(droste, 1) if run["parent"] == result.json["run"]]


@pytest.mark.parametrize("code, flags, message, status", [
    ("rlm_query_batched(['q'] * 6)", ["--execute-timeout", "LIMIT"], "longer than LIMIT s",
     "cancelled"),
    ("import os, threading, time\nthreading.Thread(target=rlm_query_batched, args=(['q'] * "
     "6,)).start()\n"
     "time.sleep(LIMIT)\nos._exit(7)", [], "status 7", "cancelled"),
    ("r = rlm_query_batched(['q'] * 6)\nprint({type(x.error).__name__ for x in r})",
     ["--broker-timeout", "LIMIT"],
     "{'LLMTimeout'}", "timeout"),
], ids=["deadline of the cell", "death of the parent", "broker-timeout"])
def test_who_stops_waiting_stops_its_children(tree, droste, code, flags, message, status):
    """A cell at its deadline, a guest that dies, a call that waited too long: its children end,
    with their calls and sandboxes; the run goes on."""
    result, server = begun_in_time(tree, code, message, 6, *flags)
    assert [run["status"] for run in children(droste, result)] == [status] * 6
    assert_closed(droste)
    wait_until(lambda: server.stats()["cancelled"] == 6, what="the end of the calls")
    assert result.json["usage"]["calls"] == server.stats()["requests"]


def test_children_that_wait_for_their_turn_are_cancelled_too(tree, droste):
    """Of a batch that is given up, those that had not begun never do: the record has their end, and
    no call counts."""
    result, server = begun_in_time(tree, "rlm_query_batched(['q'] * 10)", "longer than", 2,
                                   "--execute-timeout", "LIMIT", "--max-children", "2",
                                   "--max-llm-calls", "10")
    below = children(droste, result)
    assert sorted(run["calls"] for run in below) == [0] * 8 + [1] * 2
    assert {run["status"] for run in below} == {"cancelled"}
    assert server.stats()["models"]["scripted-one"] == 2
    assert result.json["usage"]["depths"][1]["calls"] == 2


def test_a_submission_ends_children_in_flight(tree, droste):
    """A run that has its answer ends the children that its threads still wait for."""
    script = [line("root",
                   repl(
        "import threading\nthreading.Thread(target=rlm_query, args=('q',)).start()\n"
        "SUBMIT(llm_query('both'))")), line("one", "done", "both", gate=2),
              line("one", hang=True)]
    result, server = tree(script)
    answered(result, "done")
    assert [run["status"] for run in runs(droste, 1)] == ["cancelled"]
    assert_closed(droste)


# ---- recorded ----

def test_recorded_tree_is_answered_again(tree, droste, tmp_path):
    """--record keeps the calls of all depths, and --model replay: gives the whole tree its answers
    again."""
    script = [line("root", repl("SUBMIT(rlm_query_batched(['a', 'b'], [1, 2]))")),
              line("one", repl("SUBMIT([llm_query('c'), len(context)])"), repeat=True),
              line("two", "C", repeat=True)]
    answer = [["C", 2], ["C", 2]]
    answered(tree(script, "--record", tmp_path / "calls.jsonl")[0], answer)
    again = droste("run", "--question", "q", "--json", "--model",
                   "replay:%s" % (tmp_path / "calls.jsonl"))
    assert answered(again, answer)["usage"]["calls"] == 5


def test_tree_is_removed_whole(ask, droste):
    """`runs rm` of the root removes what was below it, and the record stays whole."""
    answered(ask([repl("SUBMIT(rlm_query('a'))"), at(1, repl("SUBMIT(rlm_query('b'))")),
                  at(2, repl("SUBMIT(1)"))]), 1)
    assert droste("runs", "rm", runs(droste, 0)[0]["id"]).status == 0
    assert runs(droste) == [] and droste.record.cells == [] and droste.record.is_whole


# ---- without a run ----

def test_session_without_a_run_starts_child_runs(droste, replay):
    """The code of `droste exec` starts runs as that of a run does: with their contexts, below each
    other, recorded."""
    script = [at(1, repl("SUBMIT([context * 2, rlm_query('deeper', context=context)])"),
                 "Question: q"),
              at(2, repl("SUBMIT(len(context))"), "Question: deeper")]
    cell = droste.cell("SUBMIT(got=rlm_query('q', 'abc'))", "--model", replay(*script))
    assert cell["submit"] == {"got": ["abcabc", 3]}, cell
    outer, inner = runs(droste)
    assert (outer["parent"],
            inner["parent"]) == (None, outer["id"]) and (outer["depth"], inner["depth"]) == (1, 2)
    assert outer["calls"] == 2 and outer["status"] == inner["status"] == "answered"
    assert_closed(droste)
    shown = droste("runs", "show", outer["id"])
    assert shown.status == 0 and "deeper" in shown.out
    resumed = droste("runs", "resume", outer["id"])
    assert resumed.status != 0 and "started by the code of a session" in resumed.err


def test_depth_of_a_session_without_a_run(droste, replay):
    """--max-recursion-depth says how deep they may stand; where none may begin, a plain call stands
    in."""
    script = [at(1, "plain", "q\n\nContext:\nabc")]
    cell = droste.cell("SUBMIT(rlm_query('q', 'abc'))", "--model", replay(*script),
                       "--max-recursion-depth", "0")
    assert cell["submit"] == {"output": "plain"}, cell
    script = [at(1, repl("SUBMIT(rlm_query('deeper', 'abc'))"), "Question: q"),
              at(2, "plain", "deeper\n\nContext:\nabc")]
    cell = droste.cell("SUBMIT(rlm_query('q'))", "--model", replay(*script),
                       "--max-recursion-depth", "1")
    assert cell["submit"] == {"output": "plain"} and len(runs(droste)) == 1, cell


@pytest.mark.parametrize("options, code, limit", [
    (["--max-llm-calls", "2"], "rlm_query('q')", "calls"),
    (["--delegate-max-iterations", "2"], "rlm_query('q')", "turns"),
    (["--max-llm-calls", "2"], "rlm_query('q', 'abc'); llm_query('more')", "calls")])
def test_limits_of_a_session_without_a_run(droste, replay, options, code, limit):
    """Turns of child runs are calls of the session's one budget, and have a number of their own; in
    that of exec, too."""
    script = replay(*[at(1, repl("1")) for _ in range(5)], at(1, "the last words"))
    cell = droste.cell("try: %s\nexcept BudgetExceeded as e: SUBMIT(why=e.limit)" % code, "--model",
                       script, *options)
    assert cell["submit"] == {"why": limit}, cell
    assert_closed(droste)


def test_repl_starts_child_runs(droste, replay):
    """As exec."""
    model = replay(at(1, repl("SUBMIT(len(context))"), "Question: q"))
    output = droste("repl", "--model", model, input="x = rlm_query('q', 'abcd')\nprint('got', x)\n")
    assert "got 4" in output.out, (output.out, output.err)


def test_session_without_a_model_says_so(droste):
    """The refusal names what to give; nothing is recorded."""
    cell = droste.cell("try: rlm_query('q')\nexcept LLMError as e: SUBMIT(str(e))")
    assert "no model is configured" in cell["submit"]["output"] and not os.path.exists(
        droste.record.path)
