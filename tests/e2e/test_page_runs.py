"""Several runs on one page: the table of a batch with its grades, and two runs side by side."""
import json

import pytest
from browser import needs_browser
from droste_cli import droste, fill, recording

pytestmark = needs_browser

REPLIES = [
    {"content": "```repl\nSUBMIT(answer='3')\n```", "contains": "it is t1", "repeat": True},
    {"content": "```repl\n1/0\n```\n```repl\nSUBMIT(answer='x')\n```", "contains": "it is t2",
     "repeat": True},
    {"content": "```repl\nSUBMIT(answer='x')\n```", "contains": "it is t3", "repeat": True},
    {"content": "```repl\nprint('it is ' + context)\n```", "repeat": True}]
TASKS = [{"id": "t1", "question": "How many x are in aaa?", "expected": "3"},
         {"id": "t2", "question": "How many x are in <b>bbb</b>?", "expected": "4"},
         {"id": "t3", "question":
          "A question that is long enough to need more than one line on the screen of a telephone",
          "expected": "5"}]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A batch of three tasks, of which one passes; the second breaks off with an error in its
    code."""
    home = tmp_path_factory.mktemp("runs")
    tasks = [{**task, "context_text": task["id"]} for task in TASKS]
    (home / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    done = droste(home, "batch", "tasks.jsonl", "--out", "results.jsonl", "--grader", "exact",
                  "--concurrency", "1",
                  "--model", recording(home, *REPLIES))
    assert done.returncode == 0, done.stderr
    return home


@pytest.fixture(scope="module")
def tree(home):
    """The same record with a run that has children."""
    fill(home, "tree")
    return home


@pytest.fixture(scope="module", autouse=True)
def no_errors(browser):
    """No page of this file reports an error or breaks its policy."""
    yield
    assert browser.console_errors == []


def page_of(home, *words):
    page = home / "page.html"
    done = droste(home, "runs", "export", *words, "--format", "html", "--out", page)
    assert done.returncode == 0, done.stderr
    return "file://%s" % page


def column(browser, name):
    return browser.js(
        "[...document.querySelectorAll('.runs tbody tr')].map((r) => "
        "r.querySelector('%s').textContent)" % name)


@pytest.fixture
def batch(home, browser):
    browser.resize(1200, 900)
    return browser.open(page_of(home, "--batch", "results.jsonl"))


def test_a_batch_is_a_table_with_grades(batch):
    """Question, task, grade, status and use of each run, and what they come to."""
    assert batch.js(
        "document.querySelector('#summary h1').textContent") == "3 runs of results.jsonl"
    assert batch.js("document.title") == "3 runs of results.jsonl · Droste"
    assert column(batch, ".question") == [task["question"] for task in TASKS]
    assert column(batch, "[data-name=grade]") == ["passed", "failed", "failed"]
    assert batch.js("[...document.querySelectorAll('[data-name=grade] span')].map("
                    "(word) => word.getClientRects().length)") == [1, 1, 1]     # not "passe" "d"
    assert column(batch,
                  ".pill") == ["answered"] * 3 and column(batch, "[data-name=turns]") == ["2"] * 3
    assert [text.split(" · ")[0] for text in column(batch, ".row-facts")] == ["task t1", "task t2",
                                                                              "task t3"]
    totals = batch.js("document.querySelector('.totals').textContent")
    assert totals.startswith("3 runs · 3 answered · 1 of 3 passed (33%)") and "tokens" in totals


def test_a_batch_can_be_exported_as_lines(home):
    """The runs of the batch, the oldest first; a batch that the record lacks is an error."""
    done = droste(home, "runs", "export", "--batch", "results.jsonl")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["task"] for line in lines if line["type"] == "run"] == ["t1", "t2", "t3"]
    done = droste(home, "runs", "export", "--batch", "nosuch.jsonl", "--format", "html", "--out",
                  home / "none.html")
    assert done.returncode == 2
    assert "no run of batch nosuch.jsonl" in done.stderr
    assert not (home / "none.html").exists()


def test_a_grade_of_a_hostile_file_is_text(home, browser):
    """Lines that are not results are skipped, and no text of the file becomes markup."""
    lines = [json.loads(line) for line in (home / "results.jsonl").read_text().splitlines()]
    bad = "</script><script>document.title='owned'</script>"
    lines[0]["grade"] = {"grader": bad, "passed": None, "score": 1, "error": bad}
    lines[1]["run"], lines[2]["grade"] = bad, {"passed": bad, "score": bad}
    (home / "bad.jsonl").write_text("[1]\nnull\n{\n\"x\"\n"
                                    + "".join(json.dumps(line) + "\n" for line in lines))
    (home / "results.jsonl").rename(home / "kept.jsonl")
    try:
        (home / "bad.jsonl").rename(home / "results.jsonl")
        browser.open(page_of(home, "--batch", "results.jsonl"))
    finally:
        (home / "kept.jsonl").rename(home / "results.jsonl")
    assert column(browser, "[data-name=grade]") == ["not graded", "", "not graded"] and browser.js(
        "document.title") != "owned"
    browser.open(page_of(home, "--batch", "results.jsonl"))
    assert column(browser, "[data-name=grade]") == ["passed", "failed", "failed"]


def test_the_table_is_sorted_and_filtered(batch):
    """By a column, both ways; by words, and by grade."""
    sort = ("[...document.querySelectorAll('.runs th button')].find((b) => "
            "b.textContent.startsWith('question')).click()")
    batch.js(sort)
    assert column(batch, ".question") == sorted(task["question"] for task in TASKS)
    assert batch.js(
        "document.querySelector('.runs th[aria-sort=ascending]').textContent") == "question ↑"
    batch.js(sort)
    assert column(batch, ".question") == sorted((task["question"] for task in TASKS), reverse=True)
    batch.js("document.querySelector('.filters input').focus()")
    batch.type("T2 many")
    assert column(batch, ".question") == [TASKS[1]["question"]]
    batch.js("document.querySelector('.filters input').select()")
    batch.type("no such run")
    assert column(batch, ".question") == [] and batch.js(
        "document.querySelector('.totals').textContent") == "0 runs"
    batch.js("document.querySelector('.filters input').select()")
    batch.type(" ")
    batch.js("""(() => { const grade = document.querySelector("select[aria-label=grade]");
        grade.value = "passed"; grade.dispatchEvent(new Event("change")); })()""")
    assert column(batch, ".question") == [TASKS[0]["question"]]


def test_a_run_of_the_table_opens_and_leads_back(batch):
    """Its question is a link to its own view, with header, answer and turns."""
    batch.js("document.querySelectorAll('.runs .question')[1].click()")
    batch.wait("document.querySelector('header.of-view')")
    assert batch.js("document.querySelector('header.of-view h1').textContent") == TASKS[1][
        "question"]
    assert batch.js(
        "document.querySelectorAll('header.of-view, #summary:not([hidden])').length") == 1
    assert batch.js("document.querySelectorAll('.turn.bad').length") == 1
    batch.js("document.getElementById('back').click()")
    batch.wait("document.querySelector('.runs')")
    assert batch.js("document.querySelector('#summary').hidden") is False


def test_search_and_errors_go_through_all_runs(batch):
    """A match or an error in a run that is not shown opens that run, but not while one types."""
    assert batch.js("document.getElementById('errors').textContent") == "1 error"
    batch.press("e")
    assert batch.js("document.querySelector('header.of-view h1').textContent") == TASKS[1][
        "question"]
    batch.press("/")
    batch.type("SUBMIT(answer='3')")
    batch.wait("document.documentElement.dataset.searched")
    assert batch.js("document.getElementById('found').textContent") == "1 match"
    assert batch.js("document.querySelector('header.of-view h1').textContent") == TASKS[1][
        "question"]
    batch.press("Enter")
    assert batch.js("document.getElementById('found').textContent") == "1 of 1"
    assert batch.js("document.querySelector('header.of-view h1').textContent") == TASKS[0][
        "question"]


def test_two_runs_are_compared_turn_by_turn(batch):
    """Chosen in the table; each turn is beside the other run's, and equal code is marked."""
    assert batch.js("document.getElementById('compare').disabled")
    batch.js(
        "document.querySelectorAll('.runs input')[0].click(); document.querySelectorAll('.runs "
        "input')[2].click()")
    batch.js("document.getElementById('compare').click()")
    batch.wait("document.querySelector('.compare')")
    assert batch.js(
        "[...document.querySelectorAll('.compare h3 a')].map((a) => a.textContent)") == [
        TASKS[0]["question"], TASKS[2]["question"]]
    assert batch.js("[...document.querySelectorAll('.same')].map((p) => p.textContent)") == [
        "Turn 1: the same code", ""]
    sides = batch.js(
        "[...document.querySelectorAll('.pair > .turn')].map((t) => t.getBoundingClientRect())"
        ".map((box) => [box.left, box.top])")
    assert len(sides) == 4 and sides[0][1] == sides[1][1] and sides[0][0] < sides[1][0] and sides[
        2][1] == sides[3][1]


def test_a_narrow_screen_shows_the_questions(tree, browser):
    """At 360 pixels nothing is wider than the screen, and lists of runs begin with the question,
    of which all lines are visible."""
    browser.resize(360, 740)
    for words, row in ((["--batch", "results.jsonl"], ".runs tbody tr"), (["root"], "ul.tree li")):
        browser.open(page_of(tree, *words))
        assert browser.js("document.documentElement.scrollWidth <= 360")
        rows = browser.js(
            """[...document.querySelectorAll(%s)].map((r) => { const q = r.querySelector(".question"), box = q.getBoundingClientRect();
            const facts = r.querySelector(".row-facts").getBoundingClientRect();
            return [q.textContent, box.width > 200, q.scrollWidth <= q.clientWidth + 1, facts.top >= box.bottom - 1]; })""" % json.dumps(row))
        assert len(rows) >= 3 and all(r[0] and all(r[1:]) for r in rows), rows
    browser.resize(1200, 900)


def test_a_run_and_its_child_that_are_both_named_are_there_once(tree, browser):
    """The child stands in its cell, whichever was named first."""
    for words in (["root", "child-one"], ["child-one", "root"]):
        browser.open(page_of(tree, *words))
        assert browser.js("document.querySelectorAll('ul.tree li').length") == 4
        browser.idle()
        assert browser.js(
            "document.querySelectorAll('[data-run=child-one] [data-turn]').length") >= 1
        assert browser.js("[...document.querySelectorAll('.turn')].filter((t) => "
                          "t.dataset.turn === 'child-one 1').length") == 1


def test_a_run_that_is_named_twice_is_one(home):
    """Its lines are exported once, and its page is that of one run."""
    (run, *_) = [run["run"] for run in json.loads(droste(home, "runs", "ls", "--json").stdout)]
    once, twice = (droste(home, "runs", "export", *words).stdout for words in ([run], [run, run]))
    assert once == twice and once.count('"type":"run"') >= 1
    assert page_of(home, run, run) and (home / "page.html").read_text().count("<header") == 1
