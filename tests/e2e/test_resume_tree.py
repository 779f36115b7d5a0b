"""droste runs resume, of runs that have child runs: what had ended is told again, what was under
way goes on.

The models are those of test_resume.py; each kind of run has turns of its own.
"""
import json
import random
import signal

import pytest

from harness import finish, repl, wait_until
from lives import (KILLS, SEED, Gate, Life, begun, check_paid_once, in_flight, kill, kill_at_random,
                   measure)

# The root starts children in a batch and from threads; each has children of its own, and those have
# theirs, whose rlm_query finds no more depth and asks a model.
TREE = {
    "": [repl("a = llm_query_batched(['a%d' % i for i in range(3)], model='digest')\n"
              "b = rlm_query_batched(['child %d' % (i // 2) for i in range(4)], context=context, "
              "model='turns-child')"),
         repl("from concurrent.futures import ThreadPoolExecutor\n"
              "def ask(i): return rlm_query('thread %d after %s' % (i, a[i]), {'n': i}, "
              "model='turns-child')\n"
              "with ThreadPoolExecutor(3) as pool: c = list(pool.map(ask, range(2)))\n"
              "d = rlm_query('d' * 40000, model='turns-large')"),
         repl(
    "import hashlib\nSUBMIT(hashlib.sha256(repr((context, a, b, c, d)).encode()).hexdigest())")],
    "child":
    [repl(
    "x = llm_query_batched(['x%d %s' % (i, str(context)[:9]) for i in range(3)], model='digest')"),
     repl(
    "y = rlm_query_batched(['grand %d' % i for i in range(2)], context=x, model='turns-grand')"),
     repl("SUBMIT([x, y])")],
    "grand": [repl("z = rlm_query('leaf', context=context, model='turns-leaf')"),
              repl("SUBMIT([z, llm_query('g %s' % z, model='digest')])")],
    "leaf":
    [repl(
    "SUBMIT([llm_query(str(context)[:99], model='digest'), len(rlm_query('p', context, "
    "model='digest'))])")],
    "large": [repl("SUBMIT(len(context))")],
}
DEPTHS = [1, 7, 12, 12]  # runs
FLAGS = ["--max-recursion-depth", "3", "--max-llm-calls", "1000"]


def check_tree(life):
    """Each run of the tree is in the record once, and has ended."""
    runs = life.droste.record.runs
    assert [sum(run["depth"] == depth for run in runs) for depth in range(4)] == DEPTHS
    assert {run["status"] for run in runs} == {"answered"}
    root = life.root
    for name in ("calls", "input_tokens", "output_tokens"):
        below = sum(run[name] for run in runs if run["parent"] == root["id"])
        own = life.droste.record.rows("SELECT count(*) AS calls, sum(input_tokens) AS input_tokens,"
                                      " sum(output_tokens) AS output_tokens FROM calls WHERE run = "
                                      "?", root["id"])
        assert root[name] == below + own[0][name]
    lines = [json.loads(line) for line in life.droste("runs", "export", life.id).out.splitlines()]
    assert sum(line["type"] == "run"
               for line in lines) == len(runs) == sum(line["type"] == "end" for line in lines)


@pytest.fixture(scope="module")
def reference():
    """A tree that is not killed, once it was measured."""
    return {}


@pytest.mark.parametrize("number", range(KILLS))
def test_tree_killed_at_random_ends_as_if_it_had_not_been(droste, serve, tmp_path, reference,
                                                          number):
    """`kill -9` at random instants, of a tree three runs deep with batches and threads: the same
    answer, no recorded call is made again, those in flight are, with their keys, and are listed; no
    run is started twice."""
    (tmp_path / "prices").write_text("turns 100 200\nturns-* 10 20\n* 1 2\n")
    flags = [*FLAGS, "--prices", tmp_path / "prices"]
    expected = measure(reference, Life(droste, serve(turns=TREE), tmp_path, *flags))
    assert expected["cost"] > 0
    life = Life(droste, serve(turns=TREE), tmp_path, *flags)
    killed = kill_at_random(life, random.Random(SEED + number), expected)
    check_paid_once(life, expected, killed)
    check_tree(life)


# ---- one child ----

@pytest.fixture
def interrupted(droste, serve, tmp_path):
    """interrupted({name: turns}, flags…): a tree that died while it waited for the answers to all
    `hang…`."""
    def make(turns, *flags, hanging=1):
        life = Life(droste, serve(turns=turns), tmp_path, *flags)
        process = life.start()

        def hang():
            assert process.poll() is None, finish(process)
            waits = begun(droste) and droste.record.rows(
                "SELECT 1 FROM calls JOIN blobs ON hash = request WHERE status = 'running' AND "
                "CAST(data AS TEXT) LIKE 'hang%'")
            # A call that its cell has cancelled at once may never have reached the server.
            return (waits and len(waits) == hanging
                    and in_flight(droste.record) <= set(life.server.stats()["idempotency"]))

        wait_until(hang, what="the calls")
        kill(process)
        return life
    return make


def asked(life):
    """How many requests each model had."""
    return dict(life.server.stats()["models"])


CHILD = "rlm_query('%s', model='turns-child')"


def test_a_child_that_had_ended_is_replayed(interrupted, droste):
    """Its answer comes from the record; nothing of it is asked, and its row stays as it was."""
    life = interrupted({"": [repl("x = %s" % (CHILD % "q"), "SUBMIT([x, len(llm_query('hang'))])")],
                        "child": [repl("y = llm_query('a')"), repl("SUBMIT({'y': y})")]})
    before, child = asked(life), droste.record.runs[1]
    result = life.resume()
    assert result.json["answer"][1] == 12 and list(result.json["answer"][0]) == ["y"], result
    assert asked(life) == {**before, "digest": before["digest"] + 1}
    assert droste.record.runs[1] == child and len(droste.record.runs) == 2
    assert result.json["resumed"] == {"replayed": 4,
                                      "repeated": [{"turn": 1, "cell": 2, "call": 1}]}


def test_child_under_way_goes_on(interrupted, droste):
    """What it had is replayed, its call in flight is made again with its key and told with the
    child's id; the child keeps its row, and `runs show` and the export have one."""
    life = interrupted({"": [repl("SUBMIT(%s)" % (CHILD % "q"))],
                        "child": [repl("y = llm_query('a')"),
                                  repl("SUBMIT([y, len(llm_query('hang'))])")]})
    before, (key,) = asked(life), in_flight(droste.record)
    child = droste.record.runs[1]
    result = life.resume()
    assert result.json["answer"][1] == 12, result
    assert asked(life) == {**before, "digest": before["digest"] + 1}
    assert life.server.stats()["idempotency"][key] == 2
    assert result.json["resumed"] == {
        "replayed": 4, "repeated": [{"run": child["id"], "turn": 2, "cell": 1, "call": 1}]}
    after = droste.record.runs[1]
    assert (after["id"], after["seq"], after["status"]) == (child["id"], child["seq"], "answered")
    assert after["calls"] == 4 and droste.record.runs[0]["calls"] == 5 and len(
        droste.record.runs) == 2
    # among the children, and at its cell
    assert droste("runs", "show", life.id).out.count(child["id"]) == 2


@pytest.mark.parametrize("batch", ["rlm_query_batched(['q'] * 3 + ['p'], model='turns-child')",
                                   "list(ThreadPoolExecutor(4).map(lambda q: rlm_query(q, "
                                   "model='turns-child'),"
                                   " ['q', 'q', 'q', 'p']))"], ids=["batch", "threads"])
def test_equal_children_keep_their_order(interrupted, droste, batch):
    """Of children that were asked the same, each goes on as itself; no fifth one begins."""
    life = interrupted({"": [
        repl("from concurrent.futures import ThreadPoolExecutor\nr = %s\nSUBMIT(len(r))" % batch)],
                        "child": [repl("SUBMIT(llm_query('hang'))")]}, hanging=4)
    runs, keys = [r["id"] for r in droste.record.runs], in_flight(droste.record)
    result = life.resume()
    assert result.json["answer"] == 4 and [r["id"] for r in droste.record.runs] == runs
    assert {r["run"] for r in result.json["resumed"]["repeated"]} == set(runs[1:])
    assert {c["key"] for c in droste.record.calls if c["repeated"]} == keys
    assert {r["status"] for r in droste.record.runs} == {"answered"}


def test_context_tells_children_apart(interrupted, droste):
    """The same question about another context is another child."""
    code = "SUBMIT([rlm_query('q', i, model='turns-child') for i in range(2)])"
    life = interrupted({"": [repl(code)], "child":
                        [repl("SUBMIT([context, llm_query('hang')[:0] if context else ''])")]})
    assert life.resume().json["answer"] == [[0, ""], [1, ""]]
    assert len(droste.record.runs) == 3


@pytest.mark.parametrize("child, caught", [
    (["Nothing."] * 9, ["BudgetExceeded", "Nothing."]),
    ([repl("llm_query('x', model='no-such-model')"), "x"] + ["x"] * 8, ["BudgetExceeded", "x"]),
    ([], ["LLMError", None]),
], ids=["last words", "last words after an error", "its model refuses"])
def test_the_error_of_a_child_is_replayed(interrupted, droste, child, caught):
    """The kind, the text and the last words of a child that came to no answer are those of then."""
    code = (
        "try: %s\nexcept RuntimeError as e: told = [type(e).__name__, e.code, e.answer, "
        "str(e)]\nprint(told)\n"
        "SUBMIT([told, len(llm_query('hang'))])" % (CHILD % "q"))
    life = interrupted({"": [repl(code)], "child": child})
    before = asked(life)
    (run,) = droste.record.runs[1:]
    error, _ = life.resume().json["answer"]
    assert [error[0], error[2]] == caught and error[1] == run["error_code"]
    assert error[3] == "child run %s: %s" % (run["id"], run["error"])
    assert asked(life) == {**before, "digest": before.get("digest", 0) + 1}


# ---- a replay that leaves the path ----

def stopped(life, *words):
    """The run stopped, said where, asked nothing, and can be tried again."""
    before, calls = asked(life), life.droste.record.calls
    result = life.resume()
    assert result.status == 1 and result.json["error"]["type"] == "model_replay", result
    for word in words:
        assert word in result.json["error"]["message"], result
    assert life.droste.record.calls == calls and asked(life) == before
    assert life.droste("runs", "show", life.id, "--json").json["status"] == "interrupted"


def test_child_that_asks_something_else_stops_the_tree(interrupted, droste):
    """The child's id, turn, cell and call are named."""
    life = interrupted({"": [repl("x = %s" % (CHILD % "q"))],
                        "child": [repl("import os\nllm_query('b' + os.urandom(4).hex())"),
                                  repl("llm_query('hang')")]})
    stopped(life, "child run %s: turn 1, cell 1, call 1: the code asks for 'b"
            % droste.record.runs[1]["id"])


def test_parent_that_asks_for_another_child_stops(interrupted):
    """A child run of another question, in a cell that had ended."""
    stopped(interrupted(
        {"": [repl("import os\nx = rlm_query('b' + os.urandom(4).hex(), model='turns-child')"),
              repl("llm_query('hang')")], "child": [repl("SUBMIT(1)")]}),
            "turn 1, cell 1, call 1: the code asks a child run for 'b")


def test_parent_that_asks_for_no_child_stops(interrupted, droste, tmp_path):
    """A finished cell that does not ask for the child that it had."""
    shown = tmp_path / "shown"
    shown.mkdir()
    shown.chmod(0o755)
    code = "import os\nif not os.path.exists(%r): %s" % (str(shown / "flag"), CHILD % "q")
    life = interrupted({"": [repl(code), repl("llm_query('hang')")], "child": [repl("SUBMIT(1)")]},
                       "--read", shown)
    (shown / "flag").touch()
    stopped(life, "turn 1, cell 1: the code did not start the recorded child run %s"
            % droste.record.runs[1]["id"])


def test_tree_that_was_stopped_goes_on_later(interrupted, droste, tmp_path):
    """Ctrl-C while a child is replayed leaves the tree as it was, children included."""
    gate = Gate(tmp_path / "gate")
    life = interrupted({"": [repl("SUBMIT(%s)" % (CHILD % "q"))],
                        "child": [repl(gate.code), repl("SUBMIT(len(llm_query('hang')))")]},
                       *gate.flags)
    gate.shut()
    calls, runs = droste.record.calls, [r["id"] for r in droste.record.runs]
    process = life.start_again()
    wait_until(lambda: droste.record.runs[1]["owner_pid"] == process.pid, what="the child")
    process.send_signal(signal.SIGINT)
    assert finish(process).status == 130
    gate.open()
    assert droste.record.calls == calls and {r["status"]
                                             for r in droste.record.runs} == {"interrupted"}
    assert life.resume().json["answer"] == 12 and [r["id"] for r in droste.record.runs] == runs


# ---- deadlines, deaths, limits ----

@pytest.mark.parametrize("code, flags, statuses", [
    # A second later, that the child's own cell, which has the same limit, is not at its end as
    # well.
    ("import time; time.sleep(1); r = rlm_query_batched(['q'] * 3, model='turns-slow')",
     ["--execute-timeout", "6"],
     ["cancelled"] * 3),
    ("f = [rlm_submit('q', model='turns-slow') for i in range(3)]\nr = [g.cancel() for g in f]", [],
     ["cancelled"] * 3),
    ("r = rlm_query_batched(['q'] * 3, model='turns-slow')\nprint(r)", ["--broker-timeout", "6"],
     ["timeout"] * 3),
], ids=["deadline of the cell", "its own code", "broker-timeout"])
def test_cancelled_children_stay_cancelled(interrupted, droste, code, flags, statuses):
    """One was at work and two waited for their turn: none begins anew, and the cell ends as it did.
    (The limits hold for the call that hangs, too, and the kill must come before them.)"""
    life = interrupted(
        {"": [repl(code), repl("SUBMIT([len(globals().get('r', [])), len(llm_query('hang'))])")],
         "slow": [repl("while True: pass")]}, "--max-children", "1", *flags)
    before, runs = asked(life), droste.record.runs
    assert [r["status"] for r in runs[1:]] == statuses
    result = life.resume()
    assert result.status == 0 and result.json["answer"][1] == 12, result
    assert asked(life) == {**before, "digest": before.get("digest", 0)
                           + 1} and droste.record.runs[1:] == runs[1:]


def test_children_of_a_dead_sandbox_are_not_begun_again(interrupted, droste):
    """A cell that asked for a child and died is passed over, its child with it."""
    life = interrupted({"": [repl("x = %s\nimport os; os._exit(3)" % (CHILD % "q")),
                             repl("SUBMIT(['x' in globals(), len(llm_query('hang'))])")],
                        "child": [repl("SUBMIT(llm_query('a'))")]})
    before = asked(life)
    result = life.resume()
    assert result.json["answer"] == [False, 12] and result.json["resumed"]["replayed"] == 4
    assert asked(life) == {**before, "digest": before["digest"]
                           + 1} and len(droste.record.runs) == 2


def test_limit_on_calls_counts_the_tree_once(interrupted):
    """Together two lives may ask what one may: the turns of children and their calls, those in
    flight included."""
    life = interrupted({"": [repl(
        "x = %s\ny = llm_query('b')\ntry: llm_query('c')\nexcept BudgetExceeded: SUBMIT('refused')"
        % (CHILD % "q"))],
                        "child": [repl("SUBMIT(llm_query('a') + llm_query('hang'))")]},
                       "--max-llm-calls", "4")
    assert life.resume().json["answer"] == "refused"


def test_recording_goes_on_where_it_was(droste, replay):
    """A tree over `replay:FILE` passes over the lines that its first life was given, those of
    children too."""
    def lines(**last):
        return replay(repl("a = [rlm_query('q') for i in range(2)]"),
                      repl("SUBMIT([a, rlm_query('q')])"),
                      *[{"content": repl("SUBMIT(llm_query('x'))"), "depth": 1} for _ in range(3)],
                      {"content": "A", "depth": 2}, {"content": "B", "depth": 2},
                      {"content": "C", "depth": 2, **last})
    model = lines(delay_ms=600000)
    process = droste.start("run", "--question", "q", "--json", "--model", model)
    wait_until(lambda: begun(droste) and len(droste.record.calls) == 8, what="the call")
    kill(process)
    lines()
    result = droste("runs", "resume", droste.record.runs[0]["id"], "--json")
    assert result.json["answer"] == [["A", "B"], "C"] and len(droste.record.runs) == 4, result
