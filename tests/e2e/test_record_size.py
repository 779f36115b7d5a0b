"""What one run may add to the record: --max-record-size, for all that a guest can make it keep.

The bound counts every value that a row of the record refers to, so the tests add those up from the
file and hold the sum against what the error said was used.
"""
import re

import pytest

from harness import answered, at, finish, repl, wait_until
from test_tools import Place

LIMIT = 1 << 20
BOUND = ("--max-record-size", "1M", "--max-llm-calls", "100")
UNBOUND = ("--max-record-size", "0", "--max-llm-calls", "100")
ROUNDS = 20
SAID = re.compile(r"record size exceeded: (\d+) \+ (\d+) > %d bytes \(max-record-size\)$" % LIMIT)
REFUSED = re.compile(
    r"record size exceeded: (\d+) \+ (\d+) > %d bytes \(15/16 of max-record-size\)$"
    % (LIMIT - LIMIT // 16))

# Submits how often the call was made, and what it was refused with; "" where it never was.
CODE = """n = 0
try:
    while n < %d:
        %%s
        n += 1
    said = ""
except BudgetExceeded as e: said = str(e)
SUBMIT(answer=[n, said])
""" % ROUNDS

PROGRAM = """#!/usr/bin/python3
import sys
sys.stdin.readline()
print('"' + "y" * 50000 + '"')
"""

CALLS = {
    "prompts": ("llm_query(str(n) + 'x' * 100000)", "ok", ()),
    "equal prompts": ("llm_query('x' * 100000)", "ok", ()),
    "batches": ("llm_query_batched(['x' * 50000, 'y' * 50000])", "ok", ()),
    "replies": ("llm_query('x')", "z" * 100000, ()),
    "tools": ("big(x='x' * 50000)", "", ("--tool", "big=./big")),
    "questions": ("rlm_query('x' * 30000)", repl("SUBMIT(1)"), ()),
    "plain": ("rlm_query('q', context='x' * 100000)", "ok", ("--max-recursion-depth", "0")),
}


def size_of(droste, table, column, where="1"):
    """Bytes of the values of a column, each counted as often as a row has it."""
    return int(droste.record.rows(
        "SELECT total(b.size) AS n FROM %s t JOIN blobs b ON b.hash = t.%s WHERE %s"
        % (table, column, where))[0]["n"])


def total(droste):
    return sum(size_of(droste, table, key["from"])
               for table in ("runs", "calls", "cells", "results")
               for key in droste.record.rows("PRAGMA foreign_key_list(%s)" % table)
               if key["table"] == "blobs")


def total_at_refusal(droste):
    """Without what came behind it: the end of the root's one cell, and the root's answer."""
    root = droste.record.runs[0]["id"]
    ends = ("standard_output", "standard_error", "submit", "error", "variables")
    return total(droste) - size_of(droste, "runs", "answer", "t.id = '%s'" % root) - \
        sum(size_of(droste, "cells", column, "t.run = '%s'" % root) for column in ends)


@pytest.fixture
def bounded(droste, replay, tmp_path):
    """bounded(KIND, flags…): a run whose code makes calls of a kind until one is refused."""
    program = tmp_path / "big"
    program.write_text(PROGRAM)
    program.chmod(0o755)

    def run(kind, *flags):
        call, reply, more = CALLS[kind]
        turns = [repl(CODE % call)] + [at(1, reply) for _ in range(2 * ROUNDS)]
        return droste("run", "--question", "q", "--json", "--model", replay(*turns), *more, *flags,
                      cwd=tmp_path,
                      timeout=120)
    return run


@pytest.mark.parametrize("kind", CALLS)
def test_what_code_asks_for_has_room_or_is_refused(droste, bounded, kind):
    """A call is refused once the record has no room for it, which the code can catch; what was
    counted is what is in the record, to the byte, and there is room for the answer."""
    n, error = bounded(kind, *BOUND).json["answer"]
    used, more = map(int, REFUSED.search(error).groups())
    assert 5 <= n < ROUNDS
    assert used == total_at_refusal(droste) and used + more > LIMIT - LIMIT // 16
    assert total(droste) <= LIMIT


@pytest.mark.parametrize("kind", CALLS)
def test_without_a_bound_all_is_recorded(droste, bounded, kind):
    """0 means no limit: the same code is never refused, and the record has more than 1 MiB."""
    answered(bounded(kind, *UNBOUND), [ROUNDS, ""])
    assert total(droste) > LIMIT


def test_without_a_record_there_is_no_bound(bounded):
    """--database none: nothing is kept, so nothing is refused."""
    answered(bounded("prompts", *BOUND, "--database", "none"), [ROUNDS, ""])


@pytest.mark.parametrize("cells", [
    ("print('x' * 900000)", "print('y' * 900000)", "SUBMIT(1)"), ("SUBMIT('x' * 2000000)",)],
    ids=["output", "submission"])
def test_a_cell_without_room_ends_the_run(droste, session, cells):
    """The run ends with `budget` and an error that names the setting; of the cell's values nothing
    is kept."""
    result, lines = session(*cells, flags=BOUND)
    assert result.status == 3 and result.json["status"] == "budget" and result.json[
        "answer"] is None, result
    assert SAID.search(result.json["error"]["message"])
    last = lines[-1]
    assert last["code"] and [last[name] for name in ("stdout", "stderr", "submit",
                                                     "error")] == [None] * 4
    assert total(droste) <= LIMIT and droste.record.run["status"] == "budget"


def test_the_same_cells_have_room_by_default(session):
    """The twin: 1G is enough for them."""
    result, lines = session("print('x' * 900000)", "print('y' * 900000)", "SUBMIT('x' * 2000000)")
    assert result.status == 0 and len(result.json["answer"]) == 2000000
    assert [len(cell["stdout"] or "") for cell in lines] == [900001, 900001, 0]


def test_a_run_without_room_in_the_record_sends_no_request(droste, ask):
    """What the model would be told has no room: the run ends before anything is paid for."""
    result = ask([repl("SUBMIT(1)")], "--max-record-size", "4K")
    assert result.status == 3 and result.json["status"] == "budget", result
    assert "(max-record-size)" in result.json["error"]["message"]
    assert droste.record.calls == [] and total(droste) <= 4096


def test_child_runs_of_a_session_have_a_bound(droste, replay):
    """`exec` records child runs only; one that has no room is refused, and with room it answers."""
    code = "try: r = rlm_query('x' * 30000)\nexcept BudgetExceeded as e: r = str(e)\nSUBMIT(r)"
    model = replay(at(1, repl("SUBMIT(answer='fine')")))
    refused = droste.cell(code, "--model", model, "--max-record-size", "8K")
    assert "(max-record-size)" in refused["submit"]["output"], refused
    assert droste.cell(code, "--model", model)["submit"]["output"] == "fine"


def test_what_is_recorded_counts_again_when_a_run_goes_on(droste, replay, tmp_path):
    """A run is killed when it has used up its bound, and resumed: what was refused is refused
    again, what was answered is not asked again, and nothing that has no room then is made."""
    place = Place(tmp_path)
    call = ("try: look(fail=str(n) + 'x' * 100000)\n        except BudgetExceeded: raise\n"
            "        except RuntimeError: pass")
    code = (CODE % call).replace("SUBMIT(answer=[n, said])", """look(wait='go')
try: look(fail='x' * 100000)
except BudgetExceeded as e: SUBMIT(answer=[n, said, str(e)])""")
    process = droste.start("run", "--question", "q", "--json", "--model", replay(repl(code)),
                           *place.flags, *BOUND,
                           cwd=tmp_path)
    wait_until(lambda: place.calls and "wait" in place.calls[-1],
               what="the call behind those that were refused")
    process.kill()
    finish(process)
    made = len(place.calls) - 1
    (tmp_path / "go").touch()
    result = droste("runs", "resume", droste.record.run["id"], "--json")
    n, error, last = answered(result, result.json["answer"])["answer"]
    assert n == made == len(place.calls) - 2 and 5 <= n < ROUNDS
    assert REFUSED.search(error) and int(REFUSED.search(last)[1]) == total_at_refusal(droste)
    assert result.json["resumed"]["replayed"] == n + 1
