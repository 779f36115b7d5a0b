"""Hostile texts on the page of a run, in a real browser, each beside what is allowed; what a
keyboard and a screen reader get; and runs of any size."""
import json
import os
import re

import pytest
from browser import Browser, needs_browser
from droste_cli import droste, fill, recording

pytestmark = needs_browser

OWN = "document.title='owned'"
# Each with a word by which its text is found again.
ATTACKS = [
    "<script>%s</script> alpha" % OWN,
    "<img src=x onerror=\"%s\"> beta" % OWN,
    "<svg onload=\"%s\"><a xlink:href=\"javascript:%s\">gamma</a></svg>" % (OWN, OWN),
    "<iframe srcdoc=\"<script>parent.%s</script>\"></iframe> delta" % OWN,
    "[epsilon](javascript:%s)" % OWN,
    "[zeta](data:text/html,<script>%s</script>)" % OWN,
    "[eta](JaVaScRiPt:%s) [eta](vbscript:x) [eta](file:///etc/passwd) [eta](//evil.test/x) "
    "[eta](/x) [eta](#x)" % OWN,
    "[theta](java\tscript:%s) [theta](&#106;avascript:%s) [theta](https:javascript)" % (OWN, OWN),
    "[iota](https://user:password@evil.test/) [iota](https://[bad) [iota](http://)",
    "![kappa](https://evil.test/x.png) ![kappa](data:image/svg+xml,<svg/onload=%s>)" % OWN,
    "[lambda\" onclick=\"%s](https://evil.test/\"onmouseover=\"%s)" % (OWN, OWN),
    "```html\n<script>%s</script> mu\n```" % OWN,
    "| <b>nu</b> | x |\n|---|---|\n| <img src=x onerror=%s> | y |" % OWN,
    "# <style>body{display:none}</style> xi",
    "- <form action=javascript:%s><button id=search>omicron</button></form>" % OWN,
    "<base href=https://evil.test/> <meta http-equiv=refresh content='0;url=https://evil.test/'> "
    "pi",
    "https://evil.test/<script>%s</script> rho" % OWN,
    "</script></style></pre></title></noscript><script>%s</script> sigma" % OWN]
BIDI = (
    "abc\u202egnp.exe\u202c \u2066hidden\u2069 \u200bzero\u200b \u200f \ufeff \U000e0041 \x1b[31m")
SAFE = "[good](https://good.test/path?q=1) and https://also.test/x, **strong** `code`"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """One run whose question, reply, code, output, error, answer, prompt and reply of a call hold
    the attacks."""
    home = tmp_path_factory.mktemp("safety")
    text = "\n\n".join(ATTACKS) + "\n\n" + BIDI + "\n\n" + SAFE
    deep = "[" * 30000 + "]" * 30000
    code = ("text = context\nprint(text)\nreply = llm_query(text)\nreply2 = llm_query('deep')\n"
            "import sys; print(text, file=sys.stderr)\nx = {text: text}\n")
    model = recording(home, text.replace("```html", "~~~html").replace("```", "~~~")
                      + "\n\n```repl\n" + code + "```",
                      "```repl\nraise ValueError(context)\n```",
                      "```repl\nSUBMIT(answer=context)\n```",
                      {"content": deep, "depth": 1, "contains": "deep"},
                      {"content": text, "depth": 1})
    (home / "c.txt").write_text(text)
    done = droste(home, "run", "--question", text, "--context", "c.txt", "--model", model)
    assert done.returncode == 0, done.stderr
    run = json.loads(droste(home, "runs", "ls", "--json").stdout)[0]["run"]
    assert droste(home, "runs", "export", run, "--format", "html", "--out",
                  home / "page.html").returncode == 0
    return home


@pytest.fixture
def page(home, browser):
    browser.console_errors.clear()
    browser.asked.clear()
    browser.resize(1200, 900)
    browser.open("file://%s" % (home / "page.html")).idle()
    browser.js("document.querySelectorAll('#run details').forEach((d) => { d.open = true; })")
    return browser


def test_no_hostile_text_acts(page):
    """No script runs, no element of theirs exists, nothing is asked for, and each text can be
    read."""
    assert page.js("document.title").startswith("<script>")
    names = set(page.js("[...new Set([...document.querySelectorAll('*')].map((e) => e.tagName))]"))
    assert not names & {"IMG", "SVG", "svg", "IFRAME", "FORM", "BASE", "OBJECT", "EMBED", "VIDEO",
                        "B", "LINK"}
    assert page.js("document.querySelectorAll('script').length") == 2 and page.js(
        "document.querySelectorAll('style').length") == 1
    handlers = page.js(
        "[...document.querySelectorAll('*')].flatMap((e) => e.getAttributeNames()).filter((n) => "
        "n.startsWith('on') || n === 'style' && false)")
    assert handlers == []
    assert page.js(
        "[...document.querySelectorAll('[id]')].map((e) => e.id).sort().filter((id, i, all) => "
        "all.indexOf(id) !== i)") == []
    text = page.js("document.body.innerText")
    for word in ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota",
                 "kappa", "lambda", "mu", "nu", "xi",
                 "omicron", "pi", "rho", "sigma"):
        assert re.search(r"\b%s\b" % word, text), word
    assert [url for url in page.asked
            if not url.startswith(("file://", "about:"))] == [] and page.console_errors == []


def test_the_same_texts_act_where_nothing_holds_them(home, browser):
    """Without the page around them they run and ask for their images: the tests would notice."""
    browser.asked.clear()
    (home / "careless.html").write_text("<!doctype html><html data-drawn=yes><title>fine</title>"
                                        + "\n".join(ATTACKS[:3]))
    browser.open("file://%s" % (home / "careless.html"))
    browser.wait("document.title === 'owned'")
    assert browser.js("document.images.length") == 1 and [url for url in browser.asked
                                                          if url.endswith("/x")]
    browser.console_errors.clear()


def test_only_web_addresses_become_links(page):
    """Of all the addresses only those with http or https, without a password, are links; they lead
    out without saying from where."""
    links = page.js(
        "[...document.querySelectorAll('main a:not(.link)')].map((a) => [a.href, a.rel, a.target])")
    assert {href for href, _, _ in links} == {"https://good.test/path?q=1", "https://also.test/x",
                                              "https://evil.test/",
                                              "https://evil.test/%22onmouseover=%22document.title='owned'",
                                              "https://evil.test/x.png"}, links
    assert all(rel == "noopener noreferrer nofollow" and target == "_blank"
               for _, rel, target in links)
    assert page.js("document.querySelectorAll('.said strong').length") >= 1


def test_invisible_and_direction_characters_are_shown(page):
    """None is in the page as itself."""
    text = page.js(
        "document.getElementById('run').textContent + document.querySelector('header').textContent "
        "+ document.title")
    assert not re.search(
        "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff"
        "\U000e0000-\U000e007f]", text)
    for mark in ("\\u202e", "\\u2066", "\\u200b", "\\ufeff", "\\ue0041", "\\x1b"):
        assert mark in text, mark


def test_the_policy_stops_what_would_get_in(home, browser):
    """A script, a handler, a style, an image, a frame, a fetch and a form in the file itself do
    nothing; the page's own script runs."""
    text = (home / "page.html").read_text()
    bad = (
        "<script>%s</script><img src='data:image/png;base64,AAAA' onerror=\"%s\"><style>main { "
        "display: none }</style>"
        "<p id=p style='position:fixed'>x</p><iframe src='data:text/html,x'></iframe><form id=f "
        "action='http://127.0.0.1:9/'></form>" % (OWN, OWN))
    (home / "bad.html").write_text(text.replace("<main>", bad + "<main>", 1))
    browser.console_errors.clear()
    browser.open("file://%s" % (home / "bad.html"))
    browser.js("document.getElementById('f').submit()")
    assert browser.js(
        "fetch('http://127.0.0.1:9/').then(() => 'fetched', () => 'refused')") == "refused"
    assert browser.js(
        "new Promise((done) => { const s = document.createElement('script'); s.textContent = "
        "\"document.title='owned'\"; document.body.append(s); done(document.title); })") != "owned"
    assert browser.js(
        "document.querySelector('main').offsetHeight > 0 && "
        "getComputedStyle(document.getElementById('p')).position") == "static"
    errors = " ".join(browser.console_errors)
    for directive in ("script-src", "style-src", "form-action", "default-src"):
        assert directive in errors, directive
    browser.console_errors.clear()


def test_markdown_that_is_made_to_be_slow_is_drawn(page):
    """Texts of 60,000 characters that are made to be slow are drawn while a reader waits, and their
    letters are all there."""
    count = page.js("document.querySelectorAll('.md').length")
    assert count > 3
    texts = ["*" * 60000, "_a" * 30000, "[" * 60000, "[a](" * 15000, "`" * 60000, "> " * 30000,
             "**a*" * 15000, "- " * 30000,
             "| " * 30000 + "\n|-|\n", "#" * 60000, " " * 60000 + "#", "http://" * 8000,
             "~~~\n" * 15000, "![" * 30000, "\\" * 60000]
    assert len(texts) == 15
    for i, text in enumerate(texts):
        # the record's own reader is asked again with another reply
        lines = re.sub(r'("reply":)"(?:[^"\\]|\\.)*"',
                       lambda m: m.group(1) + json.dumps(text).replace("<", "\\u003c"),
                       open(page_path(page), encoding="utf-8").read(), count=1)
        path = os.path.join(os.path.dirname(page_path(page)), "slow.html")
        with open(path, "w", encoding="utf-8") as f:
            f.write(lines)
        page.open("file://" + path)
        drawn = page.js("document.querySelector('.said').textContent")
        assert drawn.count("a") >= text.count("a") and page.js(
            "document.querySelectorAll('.turn').length") == 3, i
    assert page.console_errors == []


def page_path(page):
    return page.js("decodeURIComponent(location.pathname)").replace("slow.html", "page.html")


def test_a_deep_value_is_drawn(page):
    """A reply of 30,000 lists in each other is formatted as deep as it can be read, is there as a
    whole, and so is the rest of the page."""
    deep = page.js(
        "[...document.querySelectorAll('.exchange .json')].map((p) => p.textContent).find((t) => "
        "t.startsWith('[\\n  [\\n    ['))")
    assert deep.count("[") == deep.count("]") == 30000 and len(deep) < 100000
    assert page.js("document.querySelectorAll('.turn').length") == 3


# ---- a keyboard, and a screen reader ----

CONTRAST = """(() => {
    const parse = (c) => { const n = c.match(/[\\d.]+/g).map(Number); return { rgb: n.slice(0, 3), a: n.length > 3 ? n[3] : 1 }; };
    const light = (rgb) => { const [r, g, b] = rgb.map((v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
    const behind = (e) => { for (let p = e; p; p = p.parentElement) { const c = parse(getComputedStyle(p).backgroundColor); if (c.a === 1) return c.rgb; } return [255, 255, 255]; };
    const bad = new Set();
    for (const e of document.querySelectorAll("body *")) {
        if (!e.offsetParent || e.disabled || e.closest("[aria-hidden=true]") || ![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim())) continue;
        const a = light(parse(getComputedStyle(e).color).rgb), b = light(behind(e));
        const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        if (ratio < 4.5) bad.add(e.tagName + "." + e.className + " " + ratio.toFixed(2) + " " + e.textContent.slice(0, 20));
    }
    return [...bad]; })()"""


def test_texts_have_contrast(home, page):
    """At least 4.5 to 1 (WCAG 2, AA), in light and in dark."""
    for scheme in ("light", "dark"):
        page.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": scheme}])
        page.frame()
        assert page.js("getComputedStyle(document.body).backgroundColor") == {
            "light": "rgb(251, 250, 247)", "dark": "rgb(22, 24, 27)"}[scheme]
        assert page.js(CONTRAST) == []
    page.call("Emulation.setEmulatedMedia",
              features=[{"name": "prefers-color-scheme", "value": "light"}])


def test_a_screen_reader_gets_names_and_an_outline(page):
    """Every control has a name, headings leave out no level, each region has its landmark, and
    the numbers of lines are not read out."""
    tree = page.call("Accessibility.getFullAXTree")["nodes"]
    nodes = [(n["role"]["value"], (n.get("name") or {}).get("value", "")) for n in tree
             if not n.get("ignored") and "role" in n]
    assert [n for n in nodes if n[0] in ("button", "link", "searchbox", "textbox", "combobox",
                                         "checkbox") and not n[1].strip()] == []
    roles = {role for role, _ in nodes}
    assert {"main", "search", "searchbox", "status", "heading", "button", "link"} <= roles
    levels = page.js(
        "[...document.querySelectorAll('h1, h2, h3')].filter((h) => h.offsetParent).map((h) => "
        "Number(h.tagName[1]))")
    assert levels[0] == 1 and levels.count(1) == 1 and all(b - a <= 1
                                                           for a, b in zip(levels, levels[1:]))
    assert page.js("document.documentElement.lang") == "en"
    assert page.js(
        "[...document.querySelectorAll('.numbers')].every((n) => n.getAttribute('aria-hidden') === "
        "'true')")


def test_all_can_be_reached_with_the_keyboard(home, page):
    """Tab goes through the bar, the turns and what is in them, in the order of the page, visibly;
    Enter opens and closes a turn."""
    page.open("file://%s" % (home / "page.html"))
    seen = []
    for _ in range(60):
        page.press("Tab")
        seen.append(
            page.js("""(() => { const e = document.activeElement, style = getComputedStyle(e);
            return [e.id || e.className || e.tagName, e.matches(".turn > summary"), style.outlineStyle !== "none" || e === document.body, e.getBoundingClientRect().top + scrollY]; })()"""))
    assert [name for name, *_ in seen[:3]] == ["search", "error-previous", "error-next"]
    assert sum(turn for _, turn, *_ in seen) >= 1 and all(visible for _, _, visible, _ in seen)
    page.js("document.querySelector('.turn > summary').focus()")
    before = page.js("document.querySelector('.turn').open")
    page.press("Enter")
    assert page.js("document.querySelector('.turn').open") is not before


# ---- size ----

def test_a_long_run_opens_with_few_elements(tmp_path):
    """1,000 turns and 100 MiB of output: the page is smaller than the record, opens with a small
    part of it drawn, and search finds a word of the last turn."""
    fill(tmp_path, "long", 1000)
    page = tmp_path / "page.html"
    done = droste(tmp_path, "runs", "export", "long", "--format", "html", "--out", page)
    assert done.returncode == 0, done.stderr
    assert page.stat().st_size < 100 << 20
    browser = Browser(tmp_path)
    try:
        browser.open("file://%s" % page)
        assert browser.js("document.querySelectorAll('.turn').length") == 100
        assert browser.js(
            "document.querySelector('header.of-view dd').textContent") == "openai/gpt-5-mini"
        browser.idle()
        assert browser.js("document.getElementsByTagName('*').length") < 70000
        browser.press("/")
        browser.type("turn number 1000")
        browser.wait("document.documentElement.dataset.searched === 'turn number 1000'")
        browser.frame()
        assert browser.js("document.querySelectorAll('.turn').length") == 1000
        assert browser.js(
            "[...document.querySelectorAll('.turn[open]')].pop().dataset.turn") == "long 1000"
        assert browser.console_errors == []
    finally:
        browser.close()


def test_an_output_of_ten_mebibytes_is_cut(tmp_path):
    """The page has its beginning and says how to get the rest."""
    fill(tmp_path, "large", 10)
    page = tmp_path / "page.html"
    assert droste(tmp_path, "runs", "export", "large", "--format", "html", "--out",
                  page).returncode == 0
    assert page.stat().st_size < 1 << 20
    browser = Browser(tmp_path)
    try:
        browser.open("file://%s" % page)
        assert browser.js("document.querySelector('pre.out').textContent.length") == 64 << 10
        assert "10.0 MiB" in browser.js(
            "[...document.querySelectorAll('.note')].map((n) => n.textContent).join()")
    finally:
        browser.close()
