"""Runs of models and terminals in the console, in a real browser; a checker of accessibility."""
import json
import os

import pytest
from browser import browser, needs_browser  # noqa: F401: a fixture
from server_process import ROOT, Server
from harness import repl
from test_approvals import tool  # noqa: F401: a fixture
from test_console import HOSTILE, OWN, SHIFT, Console, console  # noqa: F401: a fixture
from test_keys import create
from test_runs import HANGING, ask, ended, models  # noqa: F401: a fixture

pytestmark = needs_browser

AXE = os.path.join(ROOT, os.environ.get("BUILD", "build"),
                   "console", "node_modules", "axe-core", "axe.min.js")
# A failing cell, a child run with the same turns, hostile texts, an answer.
TURNS = [repl("1 / 0"), repl("print(%r)\nb = llm_query('x')" % HOSTILE),
         repl("SUBMIT(%r)" % ("the answer " + HOSTILE))]


@pytest.fixture
def see(browser):  # noqa: F811
    """see(server): its console; nothing may have failed in it."""
    seen = []

    def open_console(server):
        seen.append(Console(browser, server))
        return seen[-1]
    yield open_console
    seen[-1].is_quiet()
    browser.call("Page.navigate", url="about:blank")


def statuses(console):  # noqa: F811
    return console.page.js("Array.from(document.querySelectorAll('#run-rows tr')).map("
                           "(r) => r.dataset.status)")


def test_a_run_is_started_and_seen_to_its_end(see, models):  # noqa: F811
    """Its steps, the errors first, and the answer; found by words of its question, and removed."""
    server = models(TURNS)
    console = see(server)  # noqa: F811
    console.go("runs")
    console.sees("0 runs")
    console.page.js("document.getElementById('new-run').open = true; "
                    "document.getElementById('question-text').focus()")
    console.page.type("How many? " + HOSTILE)
    console.page.js("document.getElementById('context-text').focus()")
    console.page.type("a b")
    console.button("Start")
    console.sees("the answer <script>", ".answer")
    console.sees("ZeroDivisionError", ".trouble")
    console.page.wait("document.querySelectorAll('.step').length === 7")
    console.page.js("document.querySelectorAll('.step').forEach((d) => (d.open = true))")
    console.sees("<img src=x", ".step")
    console.sees("Traceback", ".step.failed")
    assert console.page.js("document.title") != "owned"
    assert console.page.js("document.querySelectorAll('main script, main img, main svg, iframe, "
                           "base, [onload], [onerror], a[href^=javascript]').length") == 0
    assert server.ask("GET", "/v1/runs").json["runs"][0]["context"]["bytes"] == 3
    ask(server, "another question")
    console.go("runs")
    console.sees("2 runs")
    console.page.js("document.getElementById('run-search').focus()")
    console.page.type("how MANY")
    console.sees("2 runs, 1 found")
    console.button("Remove " + console.page.js(
        "document.querySelector('#run-rows .mono').textContent.trim()"))
    console.button("Remove it")
    console.sees("1 run, 0 found")
    assert [run["question"] for run in server.ask("GET", "/v1/runs").json["runs"]] == \
        ["another question"]


def test_a_run_is_cancelled_and_one_resumed(see, models):  # noqa: F811
    """What needs a look comes before what runs, which is newer."""
    server = models(HANGING)
    model = server.model
    first = ask(server)
    console = see(server)  # noqa: F811
    console.go("runs/" + first[9:])
    console.sees("running", ".steps")
    console.button("Cancel the run")
    console.sees("cancelled", "#run")
    assert server.ask("GET", first).json["status"] == "cancelled"
    second = ask(server)
    console.go("runs")
    console.page.wait("document.querySelectorAll('#run-rows tr').length === 2")
    assert statuses(console) == ["cancelled", "running"]
    console.page.call("Page.navigate", url="about:blank")
    server.stop()
    server = models(HANGING, model=model)
    console = see(server)  # noqa: F811
    console.go("runs/" + second[9:])
    console.sees("interrupted", ".facts-of")
    console.button("Resume the run")
    console.sees("answered", ".facts-of")
    assert server.ask("GET", second).json["status"] == "answered"


# ---- terminals ----

def typed(console, text):  # noqa: F811
    """Keys, one after the other, to what has the focus."""
    for key in text:
        named = "Enter" if key == "\n" else key
        common = {"key": named, "text": "\r" if key == "\n" else key}
        console.page.call("Input.dispatchKeyEvent", type="keyDown", **common)
        console.page.call("Input.dispatchKeyEvent", type="keyUp", key=named)


def open_terminal(console, sandbox):  # noqa: F811
    console.go(sandbox + "/terminal")
    console.page.wait("document.activeElement.className === 'screen' && "
                      "document.activeElement.textContent.includes('$')")


def test_a_terminal_is_a_shell_and_obeys_nothing_of_a_guest(console, server):  # noqa: F811
    path = server.create()
    server.execute(path, "open('/tmp/strange', 'w').write(%r)" % (
        "\x1b]0;%s\x07\x1b[31mred\x1b[0m \x1b[2J\x1b[?1049h" % OWN + HOSTILE + "\x1b[6n\n"))
    open_terminal(console, path[14:])
    typed(console, "echo a$((40+2))b; cat /tmp/strange\n")
    console.sees("a42b", ".screen")
    console.sees("red <script>", ".screen")
    assert console.page.js("document.querySelectorAll('.screen *').length") < 8
    assert console.page.js("document.title") != "owned"
    # What a guest asks the terminal has no answer, which the shell would take for a command.
    typed(console, "echo one | od -c | head -1\n")
    console.sees("o   n   e", ".screen")
    console.press("Tab", SHIFT)
    assert console.page.js("document.activeElement.className") != "screen"
    console.go(path[14:] + "/cells")
    open_terminal(console, path[14:])       # the same one
    console.sees("a42b", ".screen")
    typed(console, "exit 3\n")
    console.sees("The shell has ended with 3.", ".terminal")
    console.button("New terminal")
    console.page.wait("!document.querySelector('.screen').textContent.includes('a42b')")


def test_a_terminal_with_a_key(browser, tmp_path):  # noqa: F811
    """Which is in no address."""
    key = create(tmp_path, "mine")
    server = Server(tmp_path)
    try:
        made = server.ask("POST", "/v1/sandboxes", headers={"X-API-Key": key}).json["id"]
        console = Console(browser, server)  # noqa: F811
        browser.wait("document.activeElement.id === 'key'")
        browser.type(key)
        console.button("Sign in")
        console.sees("1 sandbox", "body")
        open_terminal(console, made)
        typed(console, "echo a$((40+2))b\n")
        console.sees("a42b", ".screen")
        assert not any("e2b_" in url for url in browser.asked)
    finally:
        browser.call("Page.navigate", url="about:blank")
        server.stop()


# ---- everybody ----

@pytest.mark.skipif(not os.path.exists(AXE), reason="no axe-core: scripts/setup console")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_an_accessibility_checker_finds_nothing(see, models, scheme):  # noqa: F811
    server = models(TURNS)
    run = ask(server, context="a b")
    path = server.create(metadata={"team": "red"})
    server.execute(path, "open('/tmp/a.txt', 'w').close()")
    console = see(server)  # noqa: F811
    with open(AXE) as f:
        checker = f.read()
    console.page.call("Emulation.setEmulatedMedia",
                      features=[{"name": "prefers-color-scheme", "value": scheme}])
    try:
        for place, shows in (("", "#rows a"), ("runs", "#run-rows tr"),
                             ("runs/" + run[9:], ".step"), (path[14:] + "/files", ".files .name"),
                             (path[14:] + "/terminal", ".cursor"),
                             (path[14:] + "/cells", "#code")):
            console.go(place)
            console.page.wait("document.querySelector(%s)" % json.dumps(shows))
            if place.endswith("cells"):
                console.run("print(1)\n1 / 0")
            console.page.call("Runtime.evaluate", expression=checker)
            found = console.page.js("axe.run().then((r) => r.violations.map((v) => "
                                    "[v.id, v.nodes.map((n) => n.html)]))")
            assert found == [], place
    finally:
        console.page.call("Emulation.setEmulatedMedia",
                          features=[{"name": "prefers-color-scheme", "value": "light"}])


def test_runs_and_a_terminal_fit_a_phone_and_a_keyboard(see, models):  # noqa: F811
    server = models(TURNS)
    run = ask(server, "x" * 300)
    path = server.create()
    console = see(server)  # noqa: F811
    console.page.resize(360, 740)
    for place, shows in (("runs", "#run-rows tr"), ("runs/" + run[9:], ".step"),
                         (path[14:] + "/terminal", ".cursor")):
        console.go(place)
        console.page.wait("document.querySelector(%s)" % json.dumps(shows))
        assert console.page.js("document.documentElement.scrollWidth <= 360"), place
    console.go("")
    console.tab_to("Runs")
    console.press("Enter")
    console.page.wait("document.querySelector('#run-rows tr')")
    console.tab_to(console.page.js(
        "document.querySelector('#run-rows a').textContent"))
    console.press("Enter")
    console.page.wait("document.querySelector('.step')")
    console.tab_to(console.page.js("document.querySelector('.step summary').textContent"))
    console.press("Enter")
    console.page.wait("document.querySelector('.step').open")


def test_calls_are_decided_above_the_runs_and_above_a_run(see, models, tool):  # noqa: F811
    """With the arguments as they are, and a reason; once decided, a call is gone."""
    again = repl("try: out = write(n=%r)\nexcept Exception as e: out = repr(e)\nSUBMIT(out)"
                 % HOSTILE)
    server = models([again], *tool.flags)
    first = ask(server)
    console = see(server)  # noqa: F811
    console.go("runs")
    console.sees("write", ".approval")
    console.sees("<img src=x", ".approval pre")
    console.button("Approve")
    assert ended(server, first)["answer"] == 40 and tool.done == 1
    console.page.wait("!document.querySelector('.approval')")
    second = ask(server)
    console.go("runs/" + second.rpartition("/")[2])
    console.sees("write", ".approval")
    console.page.js("document.querySelector('.approval input').focus()")
    console.page.type("not today")
    console.button("Deny")
    assert "not today" in ended(server, second)["answer"] and tool.done == 1
    console.page.wait("!document.querySelector('.approval')")


def test_spending_is_decided_above_the_runs(see, models, tmp_path):  # noqa: F811
    (tmp_path / "prices").write_text("* 1000 0\n")
    server = models([repl("SUBMIT(1)")], "--prices", str(tmp_path / "prices"), "--ask-cost", "0.01")
    run = ask(server)
    console = see(server)  # noqa: F811
    console.go("runs")
    console.sees("ask-cost", ".approval")
    console.sees("0.01", ".approval pre")
    console.button("Approve")
    assert ended(server, run)["answer"] == 1
