"""droste runs resume: a run that was killed goes on, and nothing that was paid for is paid again.

The model is tests/fakes/model_server.py over real HTTP, whose answers are functions of what it is
asked, so that two lives of a run cannot help each other by it; it counts requests and tokens by
idempotency key.
"""
import json
import os
import random
import signal

import pytest

from harness import PATIENT, finish, repl, wait_until, write_replay
from lives import (KILLS, SEED, Gate, Life, begun, check_paid_once, in_flight, kill, kill_at_random,
                   measure, settle,
                   take_back)

# Three turns with batches, calls one by one, and calls of threads; what one finds the next needs.
TURNS = [
    repl("a = llm_query_batched(['a%d' % i for i in range(12)])\nprint(len(context), a[0])",
         "b = [llm_query('b%d after %s' % (i, a[i])) for i in range(3)]\nprint(b[-1])"),
    repl("from concurrent.futures import ThreadPoolExecutor\n"
         "with ThreadPoolExecutor(4) as pool: c = list(pool.map(llm_query, ['c%d' % (i // 2) for i "
         "in range(8)]))\n"
         "print(c)"),
    repl("d = llm_query_batched(['d' + x for x in c])"),
    repl(
    "import hashlib\nSUBMIT(hashlib.sha256(repr((context, a, b, c, d)).encode()).hexdigest())"),
]
CALLS = len(TURNS) + 12 + 3 + 8 + 8


@pytest.fixture
def life(droste, serve, tmp_path):
    return Life(droste, serve(turns=TURNS), tmp_path)


@pytest.fixture(scope="module")
def reference():
    """A run that is not killed, once it was measured."""
    return {}


@pytest.mark.parametrize("number", range(KILLS))
def test_killed_at_random_it_ends_as_if_it_had_not_been(droste, serve, tmp_path, reference, number):
    """`kill -9` at a random instant, and of some the resumed run too: the same answer, no call
    whose answer was recorded is made again, those in flight are made again with their keys, the
    usage is the server's."""
    expected = measure(reference, Life(droste, serve(turns=TURNS), tmp_path))
    assert expected["calls"] == CALLS
    life = Life(droste, serve(turns=TURNS), tmp_path)
    killed = kill_at_random(life, random.Random(SEED + number), expected)
    check_paid_once(life, expected, killed)


# ---- the first and the last step ----

DIED_BEFORE = pytest.mark.parametrize("more, requests", [
    (["DELETE FROM calls", "DELETE FROM cells", "DELETE FROM turns"], 2),
    (["DELETE FROM calls", "DELETE FROM cells"], 2),
    (["UPDATE calls SET status = 'running', ended_ms = NULL, reply = NULL WHERE kind = 'root'",
      "DELETE FROM calls WHERE kind = 'sub'", "DELETE FROM cells"], 2),
    (["DELETE FROM calls WHERE kind = 'sub'", "DELETE FROM cells"], 1),
    (["DELETE FROM calls WHERE kind = 'sub'",
      "UPDATE cells SET status = 'running', ended_ms = NULL, submit = NULL"],
     1),
    (["UPDATE calls SET status = 'running', ended_ms = NULL, reply = NULL WHERE kind = 'sub'",
      "UPDATE cells SET status = 'running', ended_ms = NULL, submit = NULL"], 1),
    (["UPDATE cells SET status = 'running', ended_ms = NULL, submit = NULL"], 0),
    ([], 0),
], ids=["first turn", "first call", "first answer", "first cell", "call of the cell", "its answer",
        "end of the cell",
        "end of the run"])


@DIED_BEFORE
def test_each_step_can_be_the_one_that_is_missing(droste, serve, tmp_path, more, requests):
    """Killed before any one step of a run, the first and the last among them: it ends with its
    answer, and only what is not in the record is asked."""
    life = Life(droste, serve(turns=[repl("SUBMIT(llm_query('x') + context[:6])")]), tmp_path)
    answer = life.whole().json["answer"]
    before = life.server.stats()["requests"]
    take_back(droste, *more)
    result = life.resume()
    assert result.status == 0 and result.json["answer"] == answer, result
    assert life.server.stats()["requests"] - before == requests
    assert result.json["usage"]["calls"] == 2 == droste.record.run["calls"]
    assert [c["status"] for c in droste.record.cells] == ["submitted"]


# ---- whom it may be ----

def killed_in(droste, life, prompt="hang", flags=()):
    """Kills the run while the call with this prompt is under way."""
    process = life.start(*flags)

    def hangs():
        assert process.poll() is None, finish(process)
        return life.server.stats()["last"] and \
            str(life.server.stats()["last"]["body"]["messages"][-1]["content"]).startswith(prompt)

    wait_until(hangs, what="the call")
    kill(process)


@pytest.fixture
def interrupted(droste, serve, tmp_path):
    """interrupted(turns): a run of theirs that died while it waited for the answer to `hang…`."""
    def make(*turns, flags=()):
        life = Life(droste, serve(turns=turns), tmp_path)
        killed_in(droste, life, flags=flags)
        return life
    return make


def refused(result, *words):
    assert result.status == 2 and result.out == "", result
    for word in words:
        assert word in result.complaint


def test_a_call_in_flight_is_repeated_with_its_key_and_reported(interrupted, droste):
    """The result and the record list what was made again; the server saw one key twice."""
    life = interrupted(repl("x = llm_query('a')\ny = llm_query('hang')\nSUBMIT(len(x + y))"))
    key, = in_flight(droste.record)
    result = life.resume()
    assert result.json["answer"] == 24
    assert result.json["resumed"] == {"replayed": 2,
                                      "repeated": [{"turn": 1, "cell": 1, "call": 2}]}
    assert life.server.stats()["idempotency"][key] == 2
    assert [c["repeated"] for c in droste.record.calls] == [0, 0, 1]
    lines = [json.loads(line) for line in droste("runs", "export", life.id).out.splitlines()]
    assert [line["repeated"] for line in lines if line["type"] == "call"] == [0, 0, 1]
    assert droste("runs", "show", life.id).out.count("repeated after the process was killed") == 1


def test_run_that_goes_on_is_not_taken(droste, serve, tmp_path):
    """A run whose process lives is refused, and ends as if nobody had asked."""
    gate = Gate(tmp_path / "gate")
    gate.shut()
    life = Life(droste, serve(turns=[repl(gate.code + "SUBMIT(1)")]), tmp_path, *gate.flags)
    process = life.start()
    wait_until(lambda: begun(droste), what="the run")
    refused(life.resume(), "still active in process %d" % process.pid)
    gate.open()
    assert finish(process).json["answer"] == 1


def test_run_that_has_ended_is_not_taken(droste, serve, tmp_path):
    """A run that has its answer is refused."""
    life = Life(droste, serve(turns=[repl("SUBMIT(1)")]), tmp_path)
    life.whole()
    refused(life.resume(), "has ended: answered")


def test_run_that_is_not_there(droste, serve, tmp_path):
    """An id that nobody has is named; a beginning that one run has is enough."""
    life = Life(droste, serve(turns=[repl("SUBMIT(1)")]), tmp_path)
    life.whole()
    refused(droste("runs", "resume", "nonsense"), "nonsense")
    assert "resume needs the id of a run" in droste("runs", "resume").err
    settle(droste, "UPDATE runs SET id = 'one'")
    refused(droste("runs", "resume", "on"), "'one' has ended")


# ---- the settings and the context ----

def test_settings_are_those_of_the_run(interrupted, droste, tmp_path):
    """Limits, instructions and setup code come from the record, not from today's configuration."""
    (tmp_path / "setup.py").write_text("given = 7\n")
    (tmp_path / "i.txt").write_text("@ll of it, briefly.")
    life = interrupted(repl("llm_query('hang')\nSUBMIT(given)"), flags=[
        "--setup-code", "@%s" % (tmp_path / "setup.py"), "--max-llm-calls", "1",
        "--instructions", "@%s" % (tmp_path / "i.txt")])
    (tmp_path / "setup.py").write_text("given = 8\n")
    (tmp_path / "i.txt").unlink()
    droste.configure("max-llm-calls = 0\nmodel = nobody\n")
    assert life.resume().json["answer"] == 7


def test_type_of_the_answer_is_that_of_the_run(interrupted, tmp_path):
    """The schema comes from the record, and an answer that was not taken is not taken again."""
    schema = tmp_path / "s.json"
    schema.write_text(
        '{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}')
    life = interrupted(repl("SUBMIT(n='1')", "llm_query('hang')"),
                       repl("SUBMIT(n='2')", "SUBMIT({'n': 3})"),
                       flags=["--answer-schema", schema])
    schema.unlink()
    result = life.resume()
    assert result.status == 0 and result.json["answer"] == {"n": 3}
    assert [c["status"] for c in life.droste.record.cells] == ["error", "ok", "error", "submitted"]


def test_keys_are_not_in_the_record(interrupted, droste):
    """The key of today is used; the one of then is in no file."""
    life = interrupted(repl("SUBMIT(llm_query('hang'))"))
    (settings,) = droste.record.rows("SELECT data FROM blobs JOIN runs ON hash = settings")
    assert b"base-url" in settings["data"] and b"api-key" not in settings["data"]
    assert life.resume().status == 0


def test_context_that_changed_is_refused(interrupted, droste):
    """Another text under the same path is not the context; when it is back, the run goes on."""
    life = interrupted(repl("llm_query('hang')\nSUBMIT(len(context))"))
    text = life.context.read_text()
    life.context.write_text("something else")
    refused(life.resume(), "c.txt", "has changed")
    assert droste("runs", "show", life.id, "--json").json["status"] == "interrupted"
    life.context.write_text(text)
    assert life.resume().json["answer"] == 700


def test_context_from_a_pipe_is_in_the_record(droste, serve, tmp_path):
    """What came from standard input cannot be read again, and is kept."""
    life = Life(droste, serve(turns=[repl("llm_query('hang')\nSUBMIT(context)")]), tmp_path)
    with open(life.context) as f:
        process = droste.start("run", "--question", "q", "--json", "--model", "turns",
                               "--sub-model", "digest",
                               "--context", "-", env=life.env, stdin=f)
    wait_until(lambda: life.server.stats()["requests"] == 2, what="the call")
    kill(process)
    life.context.unlink()
    assert life.resume().json["answer"] == "needle\n" * 100


def test_context_of_a_directory(droste, serve, tmp_path):
    """A directory is read again; a file more or less is noticed."""
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "a.py").write_text("a = 1\n")
    life = Life(droste, serve(turns=[repl("llm_query('hang')\nSUBMIT(context)")]), tmp_path)
    life.context = tmp_path / "d"
    killed_in(droste, life)
    (tmp_path / "d" / "b.py").write_text("b = 1\n")
    refused(life.resume(), "has changed")
    (tmp_path / "d" / "b.py").unlink()
    assert life.resume().json["answer"] == {"a.py": "a = 1\n"}


def test_run_of_an_older_record_is_refused(interrupted, droste):
    """A record without settings cannot be resumed, and says why."""
    life = interrupted(repl("SUBMIT(llm_query('hang'))"))
    settle(droste, "UPDATE runs SET settings = NULL")
    result = life.resume()
    assert result.status == 4 and "did not keep its settings" in result.complaint


# ---- a replay that leaves the path ----

def test_code_that_asks_something_else_stops_the_run(interrupted, droste):
    """A prompt that is not the recorded one ends the replay with turn, cell and call; nothing is
    asked, and the run stays as it was."""
    life = interrupted(repl("print(1)"), repl(
        "pass", "import os\nllm_query('a')\nllm_query('b' + os.urandom(4).hex())\n"
        "llm_query('hang')"))
    before, calls = life.server.stats()["requests"], droste.record.calls
    result = life.resume()
    assert result.status == 1 and result.json["status"] == "error"
    assert result.json["error"]["type"] == "model_replay"
    assert "turn 2, cell 2, call 2: the code asks for 'b" in result.json["error"]["message"]
    assert life.server.stats()["requests"] == before and droste.record.calls == calls
    assert droste("runs", "show", life.id, "--json").json["status"] == "interrupted"


@pytest.fixture
def changed(tmp_path, interrupted):
    """changed(code): a run whose first cell is this code, in which CHANGED was False and is True
    when it is resumed."""
    def make(code):
        shown = tmp_path / "shown"
        shown.mkdir()
        shown.chmod(0o755)
        looks = "__import__('os').path.exists(%r)" % str(shown / "flag")
        life = interrupted(repl(code.replace("CHANGED", looks)),
                           repl("llm_query('hang')\nSUBMIT(1)"),
                           flags=["--read", shown])
        (shown / "flag").touch()
        return life
    return make


@pytest.mark.parametrize("code, words", [
    ("for i in range(1 + CHANGED): llm_query('x%d' % i)", "call 2: the code asks for 'x1'"),
    ("for i in range(2 - CHANGED): llm_query('x%d' % i)", "call 2: the code did not make"),
    ("llm_query('x%d' % CHANGED)", "call 1: the code asks for 'x1'"),
    ("llm_query_batched(['a', 'b%d' % CHANGED])", "call 2: the code asks for 'b1'"),
    ("assert not CHANGED", "it ended as 'error', but the record says 'ok'"),
], ids=["more", "less", "other", "in a batch", "raises"])
def test_finished_cell_that_does_otherwise_stops_the_run(changed, code, words):
    """A cell that had ended asks more, less or something else, or ends otherwise: the place is
    named."""
    life = changed(code)
    before = life.server.stats()["requests"]
    result = life.resume()
    assert result.status == 1 and "turn 1, cell 1" in result.json["error"]["message"], result
    assert words in result.json["error"]["message"] and life.server.stats()["requests"] == before


def test_finished_cell_that_does_the_same_goes_on(changed):
    """With the same file there, code that does not mind goes on."""
    assert changed("for i in range(1 + 0 * CHANGED): llm_query('x%d' % i)").resume().json[
        "answer"] == 1


SLOW = {
    "computes": "t = time.process_time()\nwhile time.process_time() < t + 3: pass",
    "sleeps": "time.sleep(3)",
    "waits for a program":
    "subprocess.run([sys.executable, '-c', 'import time\\nwhile time.process_time() < 3: pass'])",
}
ANOTHER_ORDER = """import subprocess, sys, threading, time
said = []
def other():
%s
    said.append(llm_query('other'))
thread = threading.Thread(target=other)
thread.start()
said.append(llm_query('hang'))
said.append(llm_query('new'))
thread.join()
SUBMIT(len(said))"""


@pytest.mark.parametrize("delay", SLOW)
def test_a_thread_may_take_as_long_as_it_did(droste, serve, tmp_path, delay):
    """One whose answer is there at once this time asks something new, while another one that came
    first is still on its way: that is another order, and no other path."""
    slow = "\n".join("    " + line for line in SLOW[delay].split("\n"))
    life = Life(droste, serve(turns=[repl(ANOTHER_ORDER % slow)]), tmp_path)
    process = life.start()
    wait_until(lambda: begun(droste)
               and len([c for c in droste.record.calls if c["status"] == "ok"]) == 2,
               what="its call")
    kill(process)
    assert [c["status"] for c in droste.record.calls] == ["ok", "running", "ok"]
    result = life.resume()
    assert result.status == 0 and result.json["answer"] == 3, result
    assert result.json["resumed"]["replayed"] == 2 and len(droste.record.calls) == 4


@pytest.mark.parametrize("waits", ["thread.join()", "while thread.is_alive(): time.sleep(0.05)"],
                         ids=["asleep", "looking"])
def test_threads_that_never_come_stop_the_run(changed, waits):
    """Nobody computes, and one only looks from time to time: what the record has will not be asked
    any more."""
    life = changed("import threading, time\ndef ask():\n    llm_query('x%d' % CHANGED)\n"
                   "    llm_query('y')\nthread = threading.Thread(target=ask)\nthread.start()\n"
                   + waits)
    before = life.server.stats()["requests"]
    result = life.resume()
    assert result.status == 1 and "call 1: the code asks for 'x1'" in result.json["error"][
        "message"], result
    assert life.server.stats()["requests"] == before


def test_what_is_printed_may_differ(interrupted, droste):
    """Other output is no other path: the model keeps what it was told, and a note says so."""
    life = interrupted(repl("import os\nprint(os.urandom(4).hex())"),
                       repl("SUBMIT(len(llm_query('hang')))"))
    requests = [c["request"] for c in droste.record.calls]
    result = life.resume("--verbose")
    assert result.json["answer"] == 12 and "output differs from the recorded one" in result.err
    assert [c["request"] for c in droste.record.calls] == requests


# ---- cells that died, and deadlines ----

def test_cells_of_a_dead_sandbox_are_not_run_again(interrupted, droste):
    """What a sandbox did that died later is not done again: the run begins with the one after
    it."""
    life = interrupted(repl("print(llm_query('a'))", "import os; os._exit(3)"),
                       repl("x = 'x' in globals()\nllm_query('hang')\nSUBMIT([x, len(context)])"))
    result = life.resume()
    assert result.json["answer"] == [False, 700] and result.json["resumed"]["replayed"] == 3
    assert [c["status"] for c in droste.record.cells] == ["ok", "killed", "submitted"]


def test_a_cell_that_was_undone_is_not_run_again(interrupted, droste):
    """With checkpoint=auto, the cells before and after it are, in one sandbox; its own call, which
    was paid for, is not made again."""
    life = interrupted(repl("x = [1]"), repl("x.append(llm_query('a')); import os; os._exit(3)"),
                       repl("x.append(2)\nllm_query('hang')\nSUBMIT([x, len(context)])"),
                       flags=["--checkpoint", "auto"])
    result = life.resume()
    assert result.json["answer"] == [[1, 2], 700]
    assert [(c["status"], c["killed"]) for c in droste.record.cells] == [
        ("ok", None), ("killed", "exit 3; rolled back to cell 2"), ("submitted", None)]


def test_deadline_in_a_call_is_reached_again(droste, serve, tmp_path):
    """A cell that ran into its deadline while it waited for a model does so again, though it is
    known by now what became of the call."""
    for limit in "1", "10":
        life = Life(droste, serve(turns=[repl("x = 5\nllm_query('q', model='slow-600000')"),
                                         repl("SUBMIT(x)")]), tmp_path)
        assert life.whole("--execute-timeout", limit, *PATIENT).json["answer"] == 5
        if "slow-600000" in life.server.stats()["models"]:
            break       # else the deadline came before the request
        assert droste("runs", "rm", life.id).status == 0
    take_back(droste, "DELETE FROM cells WHERE turn = 2")
    result = life.resume()
    assert result.json["answer"] == 5 and life.server.stats()["models"]["slow-600000"] == 1
    assert [c["status"] for c in droste.record.cells] == ["timeout", "submitted"]


def test_failed_call_fails_again(interrupted, droste):
    """An error that the code was given is given again, and not tried anew."""
    life = interrupted(
        repl(
        "try: llm_query('x', model='no-such-model')\n"
        "except LLMError as e: kind = type(e).__name__"),
        repl("llm_query('hang')\nSUBMIT(kind)"))
    before = life.server.stats()["models"]["no-such-model"]
    assert life.resume().json["answer"] == "LLMError"
    assert life.server.stats()["models"]["no-such-model"] == before


def test_limit_on_calls_counts_both_lives(interrupted, droste):
    """What the first life was refused the second is, too, and together they may not ask more than
    one run."""
    code = (
        "llm_query('a')\nllm_query('hang')\ntry: llm_query('c')\nexcept BudgetExceeded: "
        "SUBMIT('refused')")
    life = interrupted(repl(code), flags=["--max-llm-calls", "2"])
    assert life.resume().json["answer"] == "refused"


def test_refusal_in_a_finished_cell_is_no_other_path(interrupted, droste):
    """A call that was refused is not in the record; asked for again it is refused again."""
    life = interrupted(
        repl("llm_query('a')\ntry: llm_query_batched(['b'] * 9)\nexcept BudgetExceeded: x = 1"),
        repl("llm_query('hang')\nSUBMIT(x)"), flags=["--max-llm-calls", "3"])
    assert life.resume().json["answer"] == 1


# ---- with a recording ----

def test_recording_goes_on_where_it_was(droste, replay):
    """A run over `replay:FILE` goes on behind the lines that were used, and --record holds each
    call once."""
    def lines(**last):
        return replay(repl("a = llm_query_batched(['x', 'x'])"),
                      repl("import os, time\nSUBMIT([a, llm_query('x')])"),
                      {"content": "A", "depth": 1}, {"content": "B", "depth": 1},
                      {"content": "C", "depth": 1, **last})
    model = lines(delay_ms=600000)
    process = droste.start("run", "--question", "q", "--json", "--model", model, "--record",
                           "calls.jsonl")
    wait_until(lambda: begun(droste) and len(droste.record.calls) == 5, what="the call")
    kill(process)
    lines()
    result = droste("runs", "resume", droste.record.run["id"], "--json")
    assert result.json["answer"] == [["A", "B"], "C"], result
    with open(os.path.join(droste.home, "calls.jsonl")) as f:
        assert len(f.readlines()) == 5
    again = droste("run", "--question", "q", "--json", "--model", "replay:calls.jsonl")
    assert again.json["answer"] == [["A", "B"], "C"]


# ---- other ends, other replies ----

@pytest.mark.parametrize("turns, flags, status, answer", [
    ([repl("x = 1"), "It is one."], ["--max-iterations", "1"], "exhausted", "It is one."),
    (["Let me think.", "FINAL(it is 1)"], [], "answered", "it is 1"),
    ([repl("found = [llm_query('x')]"), "FINAL_VAR(found)"], [], "answered", None),
    ([repl("1 / 0"), repl("1 / 0")], ["--max-errors", "2"], "budget", None),
], ids=["last words", "words", "a variable", "errors"])
def test_other_ends_are_the_same_again(droste, serve, tmp_path, turns, flags, status, answer):
    """Killed before the end of a run that ends otherwise than by SUBMIT: it ends so again, and asks
    nothing."""
    life = Life(droste, serve(turns=turns), tmp_path)
    first = life.whole(*flags).json
    assert first["status"] == status and answer in (None, first["answer"])
    before = life.server.stats()["requests"]
    take_back(droste, "DELETE FROM cells WHERE turn = 2")
    again = life.resume().json
    assert (again["status"], again["answer"]) == (status, first["answer"])
    for count in ("calls", "input_tokens", "output_tokens"):
        assert again["usage"][count] == first["usage"][count]
    assert life.server.stats()["requests"] == before and again["iterations"] == first["iterations"]


def test_interrupted_replay_can_be_resumed_again(interrupted, droste, tmp_path):
    """Ctrl-C before the replay has caught up leaves the run as it was; later it ends."""
    gate = Gate(tmp_path / "gate")
    life = interrupted(repl(gate.code), repl("SUBMIT(len(llm_query('hang')))"), flags=gate.flags)
    gate.shut()
    calls = droste.record.calls
    process = life.start_again()
    wait_until(lambda: droste.record.run["owner_pid"] == process.pid, what="the new owner")
    process.send_signal(signal.SIGINT)
    assert finish(process).status == 130
    gate.open()
    assert droste.record.run["status"] == "interrupted" and droste.record.calls == calls
    assert life.resume().json["answer"] == 12


def test_only_one_takes_the_run(interrupted, droste, tmp_path):
    """Of two who resume the same run at the same time one gets it, and the other is told."""
    gate = Gate(tmp_path / "gate")
    life = interrupted(repl(gate.code + "SUBMIT(len(llm_query('hang')))"), flags=gate.flags)
    gate.shut()
    both = [life.start_again() for _ in range(2)]
    wait_until(lambda: any(process.poll() is not None for process in both),
               what="the one that is told")
    gate.open()
    results = sorted((finish(process) for process in both), key=lambda r: r.status)
    assert [r.status for r in results] == [0, 2] and results[0].json["answer"] == 12
    assert "still active in process" in results[1].complaint


def test_anybody_resumes_their_run(anybody):
    """As root and as an ordinary user, behind the full wall."""
    path = os.path.join(os.path.dirname(anybody.home), "r.jsonl")

    def lines(**last):
        return write_replay(path, repl("x = llm_query('a')"), repl("SUBMIT(x + llm_query('b'))"),
                            {"content": "A", "depth": 1}, {"content": "B", "depth": 1, **last})
    model = lines(delay_ms=600000)
    os.chmod(path, 0o644)
    process = anybody.start("run", "--question", "q", "--model", model)
    wait_until(lambda: begun(anybody) and len(anybody.record.calls) == 4, what="the call")
    kill(process)
    lines()
    result = anybody("runs", "resume", anybody.record.run["id"], "--json")
    assert result.json["answer"] == "AB" and result.json["isolation"] == "full", result
