"""Calls that wait for an approval: decided through the record, by the deadline, after the death of
every process; each tool is executed once for each approval, and spending goes on where it waited.

The tool is a program that writes a line to a file for each execution, so it is executed exactly
once if the file has one line for each call.
"""
import json
import os
import random
import signal
import subprocess
import time

import pytest

from droste_cli import Terminal
from harness import at, finish, repl, wait_until, write_replay
from lives import SEED, settle, VERSION_13

#: calls that wait at once when the host is killed; docs/approvals.md has the measurement of 1,000
WAITING = int(os.environ.get("DROSTE_TEST_APPROVALS", "40"))

LIMIT = 4       # seconds that a cell, a tool or a child run may take where an approval takes longer

PROGRAM = '''#!/usr/bin/python3
import json, os, sys, time
here = os.path.dirname(os.path.abspath(__file__))
asked = json.loads(sys.stdin.readline())["arguments"]
log = os.open(os.path.join(here, "done"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
os.write(log, b"%d\\n" % asked["n"])
host = os.getppid()
while asked["n"] < 0 and os.getppid() == host:
    time.sleep(0.05)
print(json.dumps(asked["n"] * 10))
'''
ABOUT = {"parameters": {"type": "object", "properties": {"n": {"type": "integer"}},
                        "required": ["n"]}}
TRIED = ("try: out = write(n=%d)\n"
         "except Exception as e: out = '%%s: %%s' %% (type(e).__name__, e)\nSUBMIT(out)")


class Place:
    """A directory with the tool, and the runs that use it."""

    def __init__(self, droste, path, cells):
        self.droste, self.path, self.processes = droste, path, []
        self.options = {"cwd": path}
        (path / "write").write_text(PROGRAM)
        (path / "write").chmod(0o755)
        (path / "write.json").write_text(json.dumps(ABOUT))
        write_replay(path / "model", *cells)
        self.flags = ["--model", "replay:%s" % (path / "model"), "--tool", "write=./write",
                      "--ask", "write"]

    def start(self, *flags):
        return self.keep(self.droste.start("run", "--question", "q", "--json", *self.flags, *flags,
                                           **self.options))

    def keep(self, process):
        self.processes.append(process)
        return process

    def resume(self):
        """Goes on with the run, in a process."""
        return self.keep(self.droste.start("runs", "resume", self.droste.record.runs[0]["id"],
                                           "--json", **self.options))

    @property
    def done(self):
        log = self.path / "done"
        return sorted(int(line) for line in log.read_text().split()) if log.exists() else []

    def listed(self):
        """The approvals that wait."""
        done = self.droste("runs", "approvals", "--json")
        assert done.status == 0, done
        return done.json

    def waiting(self, count=1):
        """The same, as soon as there are so many."""
        found = []

        def enough():
            found[:] = self.listed()
            return len(found) >= count
        wait_until(enough, what="%d approvals" % count)
        return found

    def decide(self, verb, *words):
        return self.droste("runs", verb, *[str(word) for word in words])


@pytest.fixture
def place(droste, tmp_path):
    places = []

    def make(*cells):
        places.append(Place(droste, tmp_path, cells))
        return places[-1]
    yield make
    for one in places:
        for process in one.processes:
            process.kill()
            process.wait()


# ---- a decision ----

def test_an_approved_call_runs_once_and_its_cell_goes_on(place):
    """Nothing runs before the approval; the cell has its variables, and its time has not passed."""
    p = place(repl("import os\nbefore = os.getpid()",
                   "SUBMIT([write(n=4), before == os.getpid()])"))
    process = p.start("--execute-timeout", LIMIT, "--tool-timeout", LIMIT, "--timeout", "60")
    found, = p.waiting()
    assert found["tool"] == "write" and found["arguments"] == {"n": 4} and p.done == []
    assert found["asked"] < found["until"] and found["decision"] is None
    time.sleep(LIMIT + 0.2)     # longer than the cell and the tool may take
    decision = p.decide("approve", found["id"])
    assert decision.status == 0 and decision.out == "approved %d\n" % found["id"], decision
    result = finish(process)
    assert result.json["answer"] == [40, True] and p.done == [4], result


def test_a_denied_call_is_an_error_of_the_tool(place):
    p = place(repl(TRIED % 4))
    process = p.start()
    found, = p.waiting()
    assert p.decide("deny", found["id"], "--reason", "not today").status == 0
    assert finish(process).json["answer"] == "PermissionError: the call of write() was denied " \
        "by the command line: not today"
    assert p.done == []
    shown = p.droste("runs", "export", found["run"]).out.splitlines()
    calls = [json.loads(line) for line in shown if '"kind":"tool"' in line.replace(" ", "")]
    approval = calls[0]["approval"]
    assert (approval["decision"], approval["by"], approval["reason"], approval["begun"]) == \
        ("denied", "the command line", "not today", None)


@pytest.mark.parametrize("default, answer, done", [
    ("deny", "PermissionError: the call of write() was denied: there was no answer within 0.3 s "
             "(ask-timeout)", []), ("approve", 40, [4])])
def test_the_deadline_decides(place, default, answer, done):
    p = place(repl(TRIED % 4))
    result = finish(p.start("--ask-timeout", "0.3", "--ask-default", default))
    assert result.json["answer"] == answer and p.done == done


def test_a_tool_that_is_not_marked_does_not_ask(place):
    p = place(repl("SUBMIT(write(n=4))"))
    p.flags = p.flags[:-2]
    assert finish(p.start()).json["answer"] == 40 and p.done == [4]


def test_a_call_that_is_cancelled_asks_no_more(place):
    p = place(repl(TRIED % 4))
    process = p.start()
    found, = p.waiting()
    process.send_signal(signal.SIGINT)
    finish(process)
    assert p.listed() == []
    assert "has ended already" in p.decide("approve", found["id"]).err and p.done == []


def test_a_child_run_asks_and_its_parents_wait(place):
    """The parent's cell and its call have no time left but that of the wait."""
    p = place(repl("SUBMIT(rlm_query('child'))"), at(1, repl("SUBMIT(write(n=5))")))
    process = p.start("--max-recursion-depth", "2", "--execute-timeout", LIMIT, "--broker-timeout",
                      LIMIT)
    found, = p.waiting()
    assert found["run"] != found["root"]
    time.sleep(LIMIT + 0.2)
    assert p.decide("approve", found["id"]).status == 0
    assert finish(process).json["answer"] == 50 and p.done == [5]


def test_code_that_computes_meanwhile_has_its_time_limit(place):
    p = place(repl("import threading\nthreading.Thread(target=lambda: write(n=1), daemon=True)"
                   ".start()\nwhile True: pass"), repl("SUBMIT('over')"))
    result = finish(p.start("--execute-timeout", "1"))
    assert result.json["answer"] == "over" and p.done == []
    assert p.droste.record.cells[0]["status"] == "timeout"


# ---- mistakes ----

def test_mistakes_are_named(place):
    p = place(repl(TRIED % 4))
    process = p.start("--ask-timeout", "60")
    found, = p.waiting()
    number = found["id"]
    for words, text in [(["approve", number + 1000], "there is no approval"),
                        (["approve", "x"], "is not the id of an approval"),
                        (["deny"], "needs the id of an approval"),
                        (["approvals", "nothing"], "no run begins with")]:
        decision = p.decide(*words)
        assert decision.status == 2 and text in decision.err, decision
    assert p.decide("deny", number).status == 0
    finish(process)
    again = p.decide("approve", number)
    assert again.status == 2 and "was denied already, by the command line" in again.err
    assert p.done == []


def test_a_decision_after_the_deadline_is_refused(place):
    """Also if no process is left that could have decided by it; the resumed run does then."""
    p = place(repl(TRIED % 4))
    process = p.start()
    found, = p.waiting()
    process.kill()
    process.wait()
    settle(p.droste, "UPDATE calls SET until_ms = asked_ms + 1 WHERE asked_ms IS NOT NULL")
    decision = p.decide("approve", found["id"])
    assert decision.status == 2 and "its time is up" in decision.err
    assert "denied: there was no answer" in finish(p.resume()).json["answer"] and p.done == []


@pytest.mark.parametrize("flags, text", [
    (["--ask", "wirte"], "the host has no tool of this name"),
    (["--ask-default", "maybe"], "ask-default")])
def test_settings_that_would_not_ask_are_refused(place, flags, text):
    p = place(repl(TRIED % 4))
    result = finish(p.start(*flags))
    assert result.status == 2 and text in result.err and p.done == []


def test_a_session_without_anything_that_answers_denies(droste, place):
    p = place()
    code = TRIED % 4
    flags = p.flags[2:]
    result = droste.cell(code, *flags, cwd=p.path)
    assert "PermissionError" in result["submit"]["output"] and p.done == []
    assert droste.cell(code, *flags[:-2], cwd=p.path)["submit"]["output"] == 40 and p.done == [4]


# ---- death ----

def test_a_wait_survives_and_the_decision_is_found(place):
    """Killed while it waits, decided while there is no process, resumed: executed once."""
    p = place(repl(TRIED % 4))
    process = p.start()
    found, = p.waiting()
    process.kill()
    process.wait()
    listed, = p.waiting()
    assert listed["interrupted"] and listed["asked"] == found["asked"]
    decision = p.decide("approve", found["id"])
    assert "`droste runs resume %s` goes on" % found["run"] in decision.out
    assert finish(p.resume()).json["answer"] == 40 and p.done == [4]
    assert p.droste.record.calls[-1]["repeated"] == 0


def test_an_approval_is_good_for_one_execution(place):
    """A process that dies while an approved call is executed does not know whether it was done: the
    resumed run asks again, and says so."""
    p = place(repl(TRIED % -1))
    process = p.start()
    found, = p.waiting()
    p.decide("approve", found["id"])
    wait_until(lambda: p.done == [-1])
    process.kill()
    process.wait()
    again = p.resume()
    wait_until(lambda: p.waiting()[0]["repeated"])
    assert p.done == [-1]
    p.decide("deny", found["id"], "--reason", "it was done")
    assert "it was done" in finish(again).json["answer"] and p.done == [-1]


def test_a_record_of_an_older_version_is_upgraded(place, droste):
    p = place(repl("SUBMIT(write(n=4))"))
    p.flags = p.flags[:-2]
    finish(p.start())
    settle(droste, VERSION_13)
    assert droste("runs", "approvals", "--json").json == []
    shown = droste("runs", "show", droste.record.runs[0]["id"], "--json").json
    assert shown["answer"] == 40


def decide_all(place, chance):
    """Half of them one by one, through the command; the others at once, to be quick."""
    found = place.listed()
    for approval in chance.sample(found, min(3, len(found))):
        assert place.decide("approve", approval["id"]).status == 0
    left = [a["id"] for a in place.listed()]
    if left:
        assert place.decide("approve", *left).status == 0


def test_many_waits_survive_a_kill_at_random(place):
    """Killed at a random instant, resumed and killed again while calls are asked for, answered
    while there is no process: each tool is executed exactly once."""
    p = place(repl("import threading\nfrom concurrent.futures import ThreadPoolExecutor\n"
                   "threading.stack_size(1 << 18)\n"
                   "with ThreadPoolExecutor(%d) as pool:\n"
                   "    out = list(pool.map(lambda n: write(n=n), range(%d)))\nSUBMIT(out)"
                   % (WAITING, WAITING)))
    p.options["stderr"] = subprocess.DEVNULL    # which has a line for each call
    chance = random.Random(SEED)
    # All programs begin at once: on a busy machine, each takes as long as all of them.
    process = p.start("--max-tool-calls", "100000", "--execute-timeout", "600", "--timeout", "900",
                      "--tool-timeout", "600", "--processes", str(WAITING + 100))
    for life in range(3):
        p.waiting(chance.randint(1, WAITING))
        process.kill()
        process.wait()
        assert p.done == []
        process = p.resume()
    p.waiting(WAITING)
    process.kill()
    process.wait()
    decide_all(p, chance)
    result = finish(p.resume(), 300)
    assert result.status == 0 and result.json["answer"] == [n * 10 for n in range(WAITING)], result
    assert p.done == list(range(WAITING)) and p.listed() == []


# ---- costs ----

#: Each byte of a prompt costs $0.00025. The question costs $1.4 or so, a sub-call SUB_COST more.
PRICES = "* 1000 0\n"
SUB = "x = 41\nSUBMIT([x + 1, llm_query('a' * 40000)])"
SUB_COST = 10


def spender(place, *cells, amount="4"):
    p = place(*cells)
    (p.path / "prices").write_text(PRICES)
    p.flags = [*p.flags[:2], "--prices", "prices", "--ask-cost", amount]
    return p


def test_spending_more_waits_and_goes_on_in_the_same_interpreter(place):
    """The cell has its variables, and its time has not passed."""
    p = spender(place, repl(SUB), at(1, "sub"))
    process = p.start("--execute-timeout", LIMIT, "--timeout", "60")
    found, = p.waiting()
    assert found["tool"] == "ask-cost"
    about = found["arguments"]
    assert about["limit"] == 4 and about["call"] == SUB_COST and about["model"] == p.flags[1]
    assert about["spent"] < 4 < about["spent"] + about["call"] <= about["then"] == 12
    time.sleep(LIMIT + 0.2)     # longer than the cell may take
    assert len([call for call in p.droste.record.calls if call["status"] == "ok"]) == 1
    assert p.decide("approve", found["id"]).status == 0
    assert finish(process).json["answer"] == [42, "sub"] and p.listed() == []


def test_each_further_amount_is_asked_for(place):
    """The root's own calls wait, too; what is below the amount does not."""
    p = spender(place, repl("y = 1"), repl("y += 1"), repl("SUBMIT(y)"), amount="2")
    process = p.start()
    for limit in 2, 4:
        found, = p.waiting()
        assert found["arguments"]["limit"] == limit
        assert p.decide("approve", found["id"]).status == 0
    assert finish(process).json["answer"] == 2


def test_denied_spending_ends_the_run_like_a_limit(place):
    p = spender(place, repl(SUB), at(1, "sub"), repl("SUBMIT(x)"))
    process = p.start()
    found, = p.waiting()
    assert p.decide("deny", found["id"], "--reason", "too dear").status == 0
    result = finish(process).json
    assert result["status"] == "answered" and result["answer"] == 41    # a cheap turn still fits
    shown = p.droste("runs", "show", found["run"]).out
    assert "(ask-cost): spending more was denied by the command line: too dear" in shown


@pytest.mark.parametrize("default, status, calls", [("deny", "budget", 0),
                                                    ("approve", "answered", 1)])
def test_the_deadline_decides_about_spending(place, default, status, calls):
    p = spender(place, repl("SUBMIT(1)"), amount="0.5")
    result = finish(p.start("--ask-timeout", "0.3", "--ask-default", default)).json
    assert result["status"] == status and result["usage"]["calls"] == calls
    assert status == "answered" or "no answer within 0.3 s" in result["error"]["message"]


def test_calls_that_wait_for_the_same_amount_ask_once(place):
    """Twenty at once: one question, and all of them go on."""
    p = spender(place, repl("SUBMIT(len(set(llm_query_batched(['%d' % n + 'a' * 4000 for n in "
                            "range(20)]))))"), *[at(1, "sub %d" % n) for n in range(20)],
                amount="12")
    process = p.start()
    found, = p.waiting()
    assert found["arguments"]["then"] == 24
    assert p.decide("approve", found["id"]).status == 0
    assert finish(process).json["answer"] == 20 and p.listed() == []


@pytest.mark.parametrize("verb, answer", [("approve", [42, "sub"]), ("deny", 41)])
def test_a_question_about_spending_survives_a_kill(place, verb, answer):
    """Killed while it waits, decided while there is no process, resumed: not asked again, and each
    call is made once."""
    p = spender(place, repl(SUB), at(1, "sub"), repl("SUBMIT(x)"))
    process = p.start()
    found, = p.waiting()
    process.kill()
    process.wait()
    listed, = p.listed()
    assert listed["interrupted"] and listed["asked"] == found["asked"]
    again = p.resume()
    wait_until(lambda: not p.listed()[0]["interrupted"])
    assert [a["id"] for a in p.listed()] == [found["id"]]
    again.kill()
    again.wait()
    assert p.decide(verb, found["id"]).status == 0
    result = finish(p.resume()).json
    assert result["answer"] == answer and p.listed() == []
    assert {call["repeated"] for call in p.droste.record.calls} == {0}


def test_a_child_run_asks_before_its_own_call(place):
    p = spender(place, repl("SUBMIT(rlm_query('child'))"), at(1, repl("SUBMIT(5)")), amount="2")
    process = p.start("--max-recursion-depth", "2")
    found, = p.waiting()
    assert found["run"] != found["root"]
    assert p.decide("approve", found["id"]).status == 0
    assert finish(process).json["answer"] == 5


def test_a_run_that_is_cancelled_asks_no_more(place):
    p = spender(place, repl("SUBMIT(1)"), amount="0.5")
    process = p.start()
    found, = p.waiting()
    process.send_signal(signal.SIGINT)
    assert finish(process).json["status"] == "cancelled" and p.listed() == []
    assert "has ended already" in p.decide("approve", found["id"]).err


def test_spending_cannot_ask_without_a_price_or_an_approver(droste, place):
    p = spender(place, repl("SUBMIT(1)"), {"content": "sub", "depth": 1}, amount="0.5")
    unpriced = finish(p.start("--prices", "/dev/null", "--model", "openai/unknown",
                              "--base-url", "http://127.0.0.1:1/v1"))
    assert unpriced.status != 0, unpriced
    assert "ask-cost is set, but the price of" in unpriced.err + unpriced.out
    code = "try: out = llm_query('a' * 4000)\nexcept Exception as e: out = str(e)\nSUBMIT(out)"
    result = droste.cell(code, *p.flags, cwd=p.path)
    assert "nothing that answers" in result["submit"]["output"]
    assert droste.cell(code, *p.flags[:-2], cwd=p.path)["submit"]["output"] == "sub"


def test_a_terminal_asks_about_spending(place):
    """And shows what has been spent and what the call costs."""
    p = spender(place, repl(SUB), at(1, "sub"))
    with Terminal(p.path, "run", "--question", "q", *p.flags, XDG_DATA_HOME=str(p.path)) as t:
        t.expect("Approve this call? [y/N]")
        assert "ask-cost(" in t.output and '"limit":4' in t.output.replace(" ", "")
        t.type("y\n")
        assert t.status() == 0
    assert "42" in t.output and "sub" in t.output
