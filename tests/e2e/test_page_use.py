"""What a reader does with the page of a run: searching, going from error to error, links to a
place, keys. A real browser is driven (browser.py), and what it shows is asked for."""
import json
import re

import pytest
from browser import needs_browser
from droste_cli import droste, fill, recording

pytestmark = needs_browser

MANY = 130      # turns, more than a portion
TURNS = [
    "First I **look** at the `rows` of [the table](https://example.com/t).\n\n## Plan\n\n- one "
    "needle\n- two\n\n"
    "| name | n |\n|---|---|\n| a | 1 |\n\n```repl\nimport json\nrows = [1, 2]\nprint('needle in "
    "the output')\n"
    "reply = llm_query('Say the needle')\n```",
    "```repl\nvalue = {}['needle']\n```",
    "```repl\nSUBMIT(answer='# Result\\n\\nThe *needle* was found.', "
    "rows=12345678901234567890)\n```",
    {"content": '{"needle": {"deep": [1, 2, {"x": null}]}, "text": "%s"}' % ("long " * 30),
     "depth": 1}]


def page_of(home, *words):
    page = home / "page.html"
    done = droste(home, "runs", "export", *words, "--format", "html", "--out", page)
    assert done.returncode == 0, done.stderr
    return "file://%s" % page


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("use")
    model = recording(home, *TURNS)
    assert droste(home, "run", "--question", "Where is the needle?", "--model",
                  model).returncode == 0
    many = ["```repl\n# step %d\nx = %d%s\n```" % (i, i, "\n1/0" if i % 50 == 49 else "")
            for i in range(MANY - 1)]
    model = recording(home, *many, "```repl\nSUBMIT(answer='the last haystack')\n```",
                      name="many.jsonl")
    done = droste(home, "run", "--question", "How many?", "--model", model, "--max-iterations",
                  MANY)
    assert done.returncode == 0, done.stderr
    fill(home, "tree")
    return home


@pytest.fixture
def find(home, browser):
    """Opens the page of the run with this question."""
    def find(question, at=""):
        browser.console_errors.clear()
        runs = json.loads(droste(home, "runs", "ls", "--json").stdout)
        (run,) = [run["run"] for run in runs if run["question"] == question]
        return browser.open(page_of(home, run) + at)
    yield find
    assert browser.console_errors == []


def marked(browser):
    """The text of the match that is visited, and whether it is on the screen."""
    return browser.js("""(() => { const [range] = CSS.highlights.get("current") || [];
        if (!range) return null;
        const box = range.getBoundingClientRect();
        return [range.toString(), box.height > 0 && box.top >= 0 && box.bottom <= innerHeight,
                range.startContainer.parentElement.closest("pre, p, h1, h4, li, div").className]; })()""")


def look_for(browser, words):
    browser.js(
        "document.getElementById('search').focus(); document.getElementById('search').select()")
    browser.type(words)
    browser.wait("document.documentElement.dataset.searched === %s" % json.dumps(words))
    browser.frame()
    return browser.js("document.getElementById('found').textContent")


def test_search_visits_questions_code_output_errors_and_answers(find):
    """Each match is counted, opened, marked and on the screen; after the last comes the first."""
    page = find("Where is the needle?")
    page.js("document.querySelectorAll('#run details[open]').forEach((d) => d.open = false)")
    counter = look_for(page, "needle")
    count = int(counter.split(" of ")[1])
    assert counter == "1 of %d" % count and count >= 9
    seen = []
    for i in range(count):
        text, visible, where = marked(page)
        assert text == "needle" and visible, (i, where)
        seen.append(where)
        page.press("Enter")
    assert page.js("document.getElementById('found').textContent") == "1 of %d" % count
    page.press("Enter", shift=True)
    assert page.js("document.getElementById('found').textContent") == "%d of %d" % (count, count)
    assert {"", "out ", "out failure"} <= set(seen)


def test_search_finds_across_colored_code_and_says_when_there_is_nothing(find):
    """Letters of either case and white space of any width match; what is nowhere is not found."""
    page = find("Where is the needle?")
    assert look_for(page, "ROWS =  [1,") == "1 of 1" and marked(page)[:2] == ["rows = [1,", True]
    assert look_for(page, "no such words (.*") == "not found" and marked(page) is None
    assert page.js("document.getElementById('search-next').disabled")


def test_search_reaches_what_is_not_drawn(find):
    """A match in the last of many turns draws the list up to it, and a child run's is opened."""
    page = find("How many?")
    assert page.js("document.querySelectorAll('.turn').length") == 100
    assert look_for(page, "haystack") == "1 of 3"
    page.press("Enter")
    page.press("Enter")
    assert marked(page)[:2] == ["haystack", True] and page.js(
        "document.querySelectorAll('.turn').length") == MANY
    page = find("Which of the three reports contradict each other?")
    assert look_for(page, "table in it") == "1 of 1" and marked(page)[:2] == ["table in it", True]
    assert page.js("document.querySelector('[data-run=grandchild][open]') !== null")


def test_errors_are_visited_and_filtered(find):
    """Next and previous go round all errors; the filter shows only the turns that have one."""
    page = find("How many?")
    assert page.js("document.getElementById('errors').textContent") == "2 errors"
    places = []
    for _ in range(3):
        page.js("document.getElementById('error-next').click()")
        page.frame()
        places.append(page.js("""[...document.querySelectorAll(".failure")].filter((e) => {
            const box = e.getBoundingClientRect(); return e.tagName === "PRE" && box.top < innerHeight && box.bottom > 0;
        }).map((e) => e.closest(".turn").dataset.turn.split(" ")[1])[0]"""))
    assert places == ["50", "100", "50"]
    page.js("document.getElementById('only-errors').click()")
    assert page.js(
        "[...document.querySelectorAll('.turn')].map((t) => "
        "t.dataset.turn.split(' ')[1]).join()") == "50,100"
    assert page.js("document.getElementById('only-errors').getAttribute('aria-pressed')") == "true"
    look_for(page, "step 7")        # a turn without an error: the filter goes off
    assert marked(page)[1] and page.js(
        "document.getElementById('only-errors').getAttribute('aria-pressed')") == "false"


def test_buttons_stay_under_the_finger(find):
    """Going from error to error and from match to match moves none of them; at 320 columns nothing
    is wider than the screen, and no number stands apart from its unit."""
    page = find("How many?")
    places = ("[...document.querySelectorAll('#bar button')].map((b) => "
              "Math.round(b.getBoundingClientRect().left))")
    for width in (1200, 390, 320):
        page.resize(width, 900)
        page = find("How many?").idle()
        before = page.js(places)
        page.press("e")
        page.press("/")
        page.type("step 1")
        page.wait("document.documentElement.dataset.searched === 'step 1'")
        assert page.js(places) == before and len(set(before)) > 4
        assert page.js("document.documentElement.scrollWidth") <= width
    page.resize(1200, 900)
    facts = page.js("document.querySelector('.turn .facts-line').textContent")
    assert re.search(r"\d\xa0m?s", facts) and not re.search(r"\d m?s\b", facts)


def test_links_lead_to_a_turn_a_cell_and_a_call(find):
    """The address of each `#` opens what is around its place, shows it and moves the focus
    there."""
    page = find("Where is the needle?")
    page.js(
        "document.querySelectorAll('#run details').forEach((d) => { d.open = true; d.draw(); })")
    page.js(
        "document.querySelectorAll('#run details').forEach((d) => { d.open = true; d.draw(); })")
    links = page.js(
        "[...document.querySelectorAll('#run a.link')].map((a) => a.getAttribute('href'))")
    kinds = {link.split("-")[0] for link in links}
    assert kinds == {"#turn", "#step"} and len(set(links)) >= 3 + 3 + 3
    for link in dict.fromkeys(links):
        page = find("Where is the needle?", link)
        place = page.js(
            """(() => { const e = document.activeElement, box = e.getBoundingClientRect();
            return [e.closest("[data-id], .turn").dataset.id || e.closest(".turn").dataset.turn, box.height > 0 && box.top < innerHeight && box.bottom > 0]; })()""")
        wanted = link[6:].replace("/", " ")
        assert place == [wanted, True], link


def test_the_browsers_own_search_opens_closed_turns(home, find):
    """A text fragment of the address, which is the browser's search, opens the turn that has it."""
    assert find("How many?").js("document.querySelectorAll('.turn:not([open])').length") == 60
    page = find("How many?", "#:~:text=x%20%3D%2045")
    page.wait("document.querySelectorAll('.turn:not([open])').length === 59")
    assert page.js(
        "[...document.querySelectorAll('.turn[open]')].pop().dataset.turn.split(' ')[1]") == "46"


def test_keys_do_what_the_buttons_do(find):
    """`/` searches, n and N visit matches, e an error, j and k turns, ? lists the keys; in the
    search they are letters."""
    page = find("How many?")
    page.press("/")
    assert page.js("document.activeElement.id") == "search"
    for key in "step 1":
        page.press(key)
    page.wait("document.documentElement.dataset.searched === 'step 1'")
    page.press("Escape")
    page.press("n")
    assert page.js("document.getElementById('found').textContent").startswith("2 of ")
    page.press("N", shift=True)
    assert page.js("document.getElementById('found').textContent").startswith("1 of ")
    page.press("e")
    assert page.js("document.getElementById('errors').textContent") == "error 1 of 2"
    page = find("How many?")
    for key, turn in (("j", "1"), ("j", "2"), ("j", "3"), ("k", "2")):
        page.press(key)
        assert page.js("document.activeElement.closest('.turn').dataset.turn.split(' ')[1]") == turn
    page.press("?")
    assert page.js(
        "document.getElementById('help').open && document.querySelectorAll('#help "
        "kbd').length") == 10
    page.press("Escape")
    assert not page.js("document.getElementById('help').open")


def test_every_turn_says_what_it_did(find):
    """Its intent, first line of code, calls, tokens, time, and what went wrong."""
    page = find("Where is the needle?")
    first, second, third = page.js(
        "[...document.querySelectorAll('.turn > summary')].map((s) => s.textContent)")
    assert "Turn 1" in first
    assert "First I look at the rows" in first
    assert "rows = [1, 2]" in first
    assert "import json" not in first
    assert "1 call" in first and re.search(r' · (<\xa0)?[\d.]+\xa0m?s ',
                                           first) and "tokens" in first and "error" not in first
    assert "value = {}['needle']" in second and "1 error: KeyError" in second
    assert "SUBMIT(" in third


def test_an_answer_of_several_fields_is_readable(find):
    """A field with lines of text is drawn as a text beside the others; a number keeps all its
    digits."""
    page = find("Where is the needle?")
    answer = page.js(
        "[...document.querySelectorAll('header .members > *')].map((e) => e.textContent)")
    assert answer == ["answer", "ResultThe needle was found.", "rows", "12345678901234567890"]
    assert page.js(
        "[...document.querySelectorAll('header .members em, header .members h4')].map((e) => "
        "e.textContent)") == ["Result", "needle"]


def test_markdown_json_and_numbers_are_formatted(find):
    """Replies, prompts and answers are drawn; one button shows them as they were written."""
    page = find("Where is the needle?").idle()
    shape = page.js("""(() => { const said = document.querySelector(".said");
        return [...said.querySelectorAll("strong, code, a, h5, li, th, td")].map((e) => e.tagName + " " + e.textContent); })()""")
    assert shape == ["STRONG look", "CODE rows", "A the table", "H5 Plan", "LI one needle",
                     "LI two", "TH name", "TH n", "TD a", "TD 1"]
    link = page.js(
        "(() => { const a = document.querySelector('.said a'); return [a.href, a.rel, "
        "a.nextSibling.textContent]; })()")
    assert link == ["https://example.com/t", "noopener noreferrer nofollow", " (example.com)"]
    reply = page.js("document.querySelector('.call .json').textContent")
    assert reply.startswith(
        '{\n  "needle": {"deep": [1, 2, {"x": null}]},\n  "text": "long ') and reply.endswith(
        '"\n}')
    tokens = page.js(
        "[...document.querySelectorAll('header.of-view dd')].map((d) => d.textContent).find((t) => "
        "t.endsWith(' out'))")
    assert tokens.split(" in")[0].count(",") == 1
    page.js("document.getElementById('formatted').click()")
    assert page.js("document.querySelector('.said').textContent").startswith(
        "First I **look** at the `rows` of [the table](")
