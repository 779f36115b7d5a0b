"""Each limit of a budget has a code of its own, the same in the guest, in the result, in the record
and after a resume."""
import pytest

from harness import answered, repl
from lives import settle

PRICES = "* 1 1\n"
WHICH = ("try: %s\nexcept BudgetExceeded as e: SUBMIT(code=e.code, limit=e.limit)\n"
         "else: SUBMIT(code='none', limit=None)")


@pytest.fixture
def prices(tmp_path):
    (tmp_path / "prices").write_text(PRICES)
    return "--prices", tmp_path / "prices"


@pytest.mark.parametrize("code, flags, limit", [
    ("llm_query('a')", ["--max-llm-calls", "0"], "calls"),
    ("llm_query('a' * 40000)", ["--max-total-tokens", "9000"], "tokens"),
    ("llm_query('a' * 40000)", ["--max-input-tokens", "9000"], "tokens"),
    ("llm_query('a' * 4000000)", ["--max-cost", "0.5"], "cost"),
    ("llm_query('a' * 400000)", ["--max-record-size", "100K"], "record"),
    ("rlm_query('never')", ["--delegate-max-iterations", "1"], "turns"),
    ("rlm_query('never')", ["--max-errors", "1"], "errors")])
def test_the_guest_learns_which_limit_was_reached(ask, prices, code, flags, limit):
    """As `BudgetExceeded.limit`, and in `code`."""
    child = [{"content": repl("1 / 0"), "depth": 1, "repeat": True}]
    answered(ask([repl(WHICH % code), *child], *prices, *flags),
             {"code": "budget_" + limit, "limit": limit})


@pytest.mark.parametrize("code", ["llm_query('a')", "rlm_query('b')"])
def test_without_limits_the_prompt_names_none(ask, prices, code):
    """The twin: the same calls where there is room."""
    child = [{"content": repl("SUBMIT(1)"), "depth": 1, "repeat": True}]
    answered(ask([repl(WHICH % code), *child], *prices), {"code": "none", "limit": None})


@pytest.mark.parametrize("flags, limit", [
    (["--max-errors", "1"], "errors"), (["--max-total-tokens", "100"], "tokens"),
    (["--max-iterations", "1"], "turns"), (["--max-record-size", "4K"], "record")])
def test_a_run_that_ends_of_a_limit_says_which(ask, flags, limit):
    """The error of the result has the code as its type, and the exit status is that of limits."""
    result = ask([{"content": repl("1 / 0"), "repeat": True}], *flags)
    assert result.status == 3 and result.json["error"]["type"] == "budget_" + limit, result.json


def test_the_code_is_the_same_after_a_resume(droste, ask):
    """A child run that was refused is answered from the record, with its limit."""
    code = "try: rlm_query('never')\nexcept BudgetExceeded as e: first = e.limit\nprint(first)"
    turns = [repl(code), repl("SUBMIT(first)"),
             {"content": repl("1 / 0"), "depth": 1, "repeat": True}]
    run = answered(ask(turns, "--max-errors", "1"), "errors")["run"]
    settle(droste,
           "UPDATE runs SET status = 'running', answer = NULL, ended_ms = NULL, owner_pid = "
           "999999999, owner_start = 1"
                   " WHERE id = '%s'; DELETE FROM cells WHERE run = '%s'" % (run, run))
    again = answered(droste("runs", "resume", run, "--json"), "errors")
    # it was not begun again
    assert again["resumed"] and len([one for one in droste.record.runs if one["parent"]]) == 1
