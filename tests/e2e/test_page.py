"""The page of a run (runs export --format html), opened in a real browser.

Chromium draws the page and prints the document that came out of it (--dump-dom), or what its
console said. `#all` in the address opens everything that is folded.
"""
import html.parser
import http.server
import json
import os
import re
import subprocess
import threading

import pytest
from browser import CHROMIUM, FLAGS, needs_browser
from droste_cli import PATIENCE, droste, fill, recording

VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source",
        "track", "wbr"}


# ---- a document ----

class Node:
    def __init__(self, tag, attributes, parent=None):
        self.tag, self.attributes, self.parent, self.inside = tag, attributes, parent, []

    @property
    def classes(self):
        return (self.attributes.get("class") or "").split()

    @property
    def text(self):
        if self.tag in ("script", "style"):
            return ""
        return "".join(part if isinstance(part, str) else part.text for part in self.inside)

    def all(self, tag=None, classes=None, **attributes):
        """Elements below this one, in their order."""
        found = []
        for part in self.inside:
            if isinstance(part, str):
                continue
            if (tag in (None, part.tag) and (classes is None or classes in part.classes) and
                    all(part.attributes.get(name.replace("_", "-")) == value
                        for name, value in attributes.items())):
                found.append(part)
            found += part.all(tag, classes, **attributes)
        return found

    def one(self, *what, **attributes):
        found = self.all(*what, **attributes)
        assert len(found) == 1, "%d elements %s %s" % (len(found), what, attributes)
        return found[0]


class Reader(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.root = self.at = Node("document", {})
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        node = Node(tag, dict(attributes), self.at)
        self.at.inside.append(node)
        if tag not in VOID:
            self.at = node

    def handle_endtag(self, tag):
        if tag in VOID:
            return
        assert self.at.tag == tag, "</%s> ends <%s>" % (tag, self.at.tag)
        self.at = self.at.parent

    def handle_data(self, text):
        self.at.inside.append(text)


def document(text):
    return Reader(text).root


# ---- a browser ----

def browse(place, address, *flags):
    """The document as it stands when the page is drawn, and what the console said."""
    r = subprocess.run([CHROMIUM, *FLAGS, "--enable-logging=stderr", "--v=0",
                        "--user-data-dir=%s" % (place / "browser"), *flags, "--dump-dom", address],
                       capture_output=True, text=True, errors="replace", timeout=2 * PATIENCE,
                       env={**os.environ, "HOME": str(place)})
    assert r.returncode == 0, r.stderr
    return document(r.stdout), re.findall(r":CONSOLE[:(].*", r.stderr)


def write_page(home, run):
    page = home / (run + ".html")
    r = droste(home, "runs", "export", run, "--format", "html", "--out", page)
    assert r.returncode == 0, r.stderr
    return page


def see(home, run, at="#all"):
    """The page of a run, drawn; nothing may have gone wrong in it."""
    page, shown = browse(home, "file://%s%s" % (write_page(home, run), at))
    assert shown == []
    assert page.one("html").attributes.get("data-drawn") == "yes"
    return page


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("page")
    for words in (["tree"], ["many", 10000]):
        fill(home, *words)
    return home


@pytest.fixture(scope="module")
def tree(home):
    return see(home, "root")


# ---- what is there ----

@needs_browser
def test_a_real_run_is_drawn(tmp_path):
    """Question, answer, status and use; replies, code with its line numbers, output, errors,
    calls."""
    model = recording(tmp_path, "I look first.\n```repl\nn = 41\nprint('forty', n + 1)\n"
                      "reply = llm_query('Say this')\n```\nThen more.",
                      "```repl\n1/0\n```\n```repl\nSUBMIT(answer=reply)\n```",
                      {"content": "what was said", "depth": 1})
    droste(tmp_path, "run", "--question", "What is\nit?", "--model", model)
    run = json.loads(droste(tmp_path, "runs", "ls", "--json").stdout)[0]
    page = see(tmp_path, run["run"])
    header = page.one("header")
    assert header.one("h1").text == "What is\nit?" and header.one("div",
                                                                  "text").text == "what was said"
    assert header.one("span", "pill").text == "answered"
    facts = {row.one("dt").text: row.one("dd").text for row in header.one("dl").all("div")}
    assert facts["model"] == "replay:model.jsonl" and facts["turns"] == "2" and facts[
        "model calls"] == "3"
    assert facts["cost"] == "not known" and facts["isolation"] == run["isolation"]
    assert facts["tokens"] == "{input_tokens:,} in, {output_tokens:,} out".format(**run["usage"])
    first, second = page.all("details", "turn")
    assert [p.text for p in first.one("div", "said").all("p")] == ["I look first.", "Then more."]
    assert "```repl" in first.all("div", "exchange")[0].text and "system" in first.all(
        "div", "exchange")[0].text
    code = first.one("div", "code")
    assert code.all("pre")[0].text == "1\n2\n3" and code.all("pre")[1].text.startswith(
        "n = 41\nprint('forty', n + 1)")
    assert code.one("span", "o").text == "llm_query" and [
        s.text for s in code.all("span", "s")] == ["'forty'", "'Say this'"]
    assert first.one("pre", "out").text == "forty 42\n"
    call = first.one("details", "call")
    assert [text.text for text in call.all("div", "md")] == ["Say this", "what was said"]
    names = [row.all("td")[0].text for row in first.one("table").all("tr")[1:]]
    assert {"n", "reply"} <= set(names)
    assert "ZeroDivisionError" in second.one("pre", "failure").text
    assert '{"answer": "what was said"}' == second.one("div", "submit").one("pre").text
    assert page.one("title").text.startswith("What is it?")


SHOWN = """```repl
display({"text/plain": "a figure", "image/png": %r}, raw=True)
display({"text/plain": "a frame", "text/html": %r}, raw=True)
display({"text/html": %r, "image/svg+xml": %r}, raw=True)
display({"text/html": "<p>words</p>", "text/plain": "plain words"}, raw=True)
```"""
PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==")


def show_results(place, html, svg):
    model = recording(place, SHOWN % (PNG, html, html, svg), "```repl\nSUBMIT(answer=1)\n```")
    assert droste(place, "run", "--question", "Show", "--model", model).returncode == 0
    run = json.loads(droste(place, "runs", "ls", "--json").stdout)[0]["run"]
    page, shown = browse(place, "file://%s#all" % write_page(place, run))
    # Styles and handlers of the HTML are refused already in the document that is only read.
    assert all("violates the following Content Security Policy" in line for line in shown)
    assert page.one("html").attributes.get("data-drawn") == "yes"
    return page


@needs_browser
def test_rich_results_are_drawn(tmp_path):
    """An image as an image, with its text for those who do not see it; a table as a table; of other
    HTML its text form. What there is of each is named."""
    page = show_results(tmp_path,
                        "<style>td{color:red}</style><table border=1><thead><tr><th>n<th>s</thead>"
                        "<tr><td colspan=2>1 &lt; <b>2</b></table>",
                        "<svg xmlns='http://www.w3.org/2000/svg'/>")
    png, table, svg, words = page.all("div", "result")
    assert png.one("img").attributes["src"] == "data:image/png;base64," + PNG
    assert png.one("img").attributes["alt"] == "a figure"
    assert png.one("div", "label").text == "result 1 · text/plain · image/png"
    assert [[c.text for c in row.all("th") + row.all("td")]
            for row in table.one("table").all("tr")] == [["n", "s"], ["1 < 2"]]
    assert table.one("td").attributes["colspan"] == "2" and not table.all("b")
    assert svg.one("img").attributes["src"].startswith("data:image/svg+xml;charset=utf-8,%3Csvg")
    assert words.one("pre").text == "plain words"


@needs_browser
def test_children_are_a_tree_and_stand_in_their_cells(tree):
    """The list has all runs, indented by depth; each child is drawn where it was asked for."""
    items = tree.one("ul", "tree").all("li")
    assert [li.one("span", "mono").text for li in items] == ["root", "child-one", "grandchild",
                                                             "child-two"]
    indents = [float(re.search(r"padding-left: ([\d.]+)", li.attributes["style"]).group(1))
               for li in items]
    assert indents[0] < indents[1] == indents[3] < indents[2]
    assert [li.one("span", "pill").text for li in items] == ["answered", "answered", "answered",
                                                             "error"]
    one = tree.one("details", None, data_run="child-one")
    assert one.one("details", None, data_run="grandchild").all("div", "answer")[0].text == "yes"
    assert tree.one("details", None,
                    data_run="child-two").all("p", "why")[0].text == "the model did not answer"
    assert "$0.0312" in tree.one("header").text


@needs_browser
def test_the_timeline_shows_what_went_on_at_once(tree):
    """Two children that ran at the same time stand in two lanes; a failed one is marked."""
    timeline = tree.all("div", "timeline")[0]
    names = [lane.one("span", "name").text for lane in timeline.all("div", "lane")
             if lane.all("span", "name")]
    assert names == ["model", "code", "runs", ""]
    bars = timeline.all("span", "child")
    assert len(bars) == 2 and [("failed" in bar.classes) for bar in bars] == [False, True]
    for bar in timeline.all("span", "bar"):
        left, width = (float(re.search(name + r": ([\d.e-]+)%", bar.attributes["style"]).group(1))
                       for name in ("left", "width"))
        assert 0 <= left <= 100 and left + width <= 100.01 and bar.attributes["title"]


@needs_browser
def test_ten_thousand_calls_open(home):
    """The calls are folded, counted, and drawn in portions; the timeline has few bars."""
    page = see(home, "many", at="")
    assert "10,000 calls of a model" in page.one("details", "calls").text
    assert len(page.all()) < 4000       # portions are drawn while the browser is idle
    page = see(home, "many")
    assert len(page.all("details", "call")) == 100
    assert page.one("button", "more").text == "show 100 more of 9,900"


@needs_browser
def test_an_address_can_point_at_a_run_or_a_step(home):
    """#run-ID opens what is around that run, #step-ID what is around that step, and nothing
    else."""
    page = see(home, "root", at="")
    assert not [d for d in page.all("details", None, data_run="grandchild")
                if "open" in d.attributes]
    page = see(home, "root", at="#run-grandchild")
    assert "open" in page.one("details", None, data_run="grandchild").attributes
    assert "open" not in page.one("details", None, data_run="child-two").attributes
    step = [json.loads(line) for line in droste(home, "runs", "export",
                                                "child-two").stdout.splitlines()][3]
    page = see(home, "root", at="#step-%d" % step["id"])
    assert page.one("div", "card", data_id=str(step["id"])) and step["type"] == "cell"
    assert "open" in page.one("details", None, data_run="child-two").attributes
    assert "open" not in page.one("details", None, data_run="child-one").attributes


@needs_browser
def test_what_is_cut_says_so(tmp_path):
    """Of a large output the page has the beginning, its size, and how to get all of it."""
    fill(tmp_path, "large", 3)
    page = see(tmp_path, "large")
    assert len(page.one("pre", "out").text) == 64 << 10
    (note,) = [p.text for p in page.all("p", "note") if "beginning" in p.text]
    assert "3.0 MiB" in note and "droste runs export large" in note


def test_without_javascript_there_are_the_facts(home):
    """Question, answer and use are in the file itself, and a word on how to see the rest."""
    page = document(write_page(home, "root").read_text())
    assert page.one("h1").text == "Which of the three reports contradict each other?"
    assert page.one("header").one("pre").text == '["one","two"]'
    assert "runs show" in page.one("noscript").text


# ---- hostile records ----

class Listener(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.seen.append(self.path)
        self.send_response(404)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def listener():
    """A server that notes who asks it for something."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Listener)
    server.seen, server.url = [], "http://127.0.0.1:%d/" % server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def hostile(tmp_path, listener):
    """The page of a run whose every text tries to get out of it, and to call the listener."""
    fill(tmp_path, "hostile", listener.url)
    return tmp_path


@needs_browser
def test_no_text_of_a_record_becomes_markup(hostile, listener):
    """Scripts do not run, no element comes from a record, nothing is fetched; all of it is
    readable."""
    page = see(hostile, "hostile")
    assert listener.seen == []
    assert page.all("img") == [] and page.all("b") == [] and page.all("i") == [] and page.all(
        "u") == []
    assert len(page.all("script")) == 2 and len(page.all("style")) == 1 and len(
        page.all("body")) == 1
    assert page.one("title").text.startswith("question </script>")
    text = page.text
    for what in ("question", "answer", "error", "reply", "prompt", "code = '''", "output", "stderr",
                 "subprompt", "subreply",
                 "failed", "status", "submitted, and no JSON"):
        assert re.search(re.escape(
            what) + r" ?</script></pre></title><script>document.title='owned'</script>", text), what
    assert "<b>name" in text and "</table>" in text and "</script><b>E: <i>m" in text
    for node in page.all():
        assert not [name for name in node.attributes if name.startswith("on")]


@needs_browser
def test_rich_results_run_and_fetch_nothing(tmp_path, listener):
    """Scripts, handlers, images and frames in the HTML and the SVG of a guest."""
    owned = "document.title='owned'"
    bad = (
        "<script>%s</script><img src=%sa onerror=%s><iframe src=%sb></iframe><object "
        "data=%sc></object>"
        % (owned, listener.url, owned, listener.url, listener.url))
    page = show_results(
        tmp_path,
        "<table onclick=%s style=background:url(%sd)><tr><td>kept %s<td><a "
        "href=javascript:%s>link</a></table>%s"
        % (owned, listener.url, bad, owned, bad),
        "<svg xmlns='http://www.w3.org/2000/svg' onload=\"%s\"><script>%s</script><image "
        "href='%se'/></svg>"
        % (owned, owned, listener.url))
    assert listener.seen == [] and page.one("title").text.startswith("Show")
    assert len(page.all("script")) == 2
    for shown in page.all("div", "result"):
        assert not [tag for tag in ("a", "iframe", "object", "script", "style") if shown.all(tag)]
    assert [c.text for c in page.all("div", "result")[1].all("td")][1] == "link"
    assert all(img.attributes["src"].startswith("data:") for img in page.all("img"))
    for node in page.all():
        assert not [name for name in node.attributes if name.startswith("on")]


@needs_browser
def test_control_and_direction_characters_are_shown(hostile):
    """None of them is in the document as itself; each stands there as an escape."""
    page = see(hostile, "hostile")
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", page.text)
    marks = {mark.text for mark in page.all("span", "ctl")}
    assert {r"\x1b", r"\u202e", r"\u202c"} <= marks


@needs_browser
def test_the_same_texts_do_act_where_nothing_holds_them(hostile, listener):
    """Put into a page as they are, they run and call: the tests above would notice."""
    texts = json.loads(droste(hostile, "runs", "export", "hostile").stdout.splitlines()[0])
    careless = hostile / "careless.html"
    careless.write_text("<!doctype html><title>fine</title><pre>" + texts["question"])
    page, _ = browse(hostile, "file://%s" % careless)
    assert page.one("title").text == "owned" and page.all("img") and listener.seen


@needs_browser
def test_a_script_that_got_in_would_not_run(home, listener):
    """The page's own policy allows its script, its style and images in itself, and nothing else."""
    page = write_page(home, "root")
    text = page.read_text()
    bad = ("<script>document.title='owned'</script><img src='%sx' "
           "onerror=\"document.title='owned'\">" % listener.url)
    page.write_text(text.replace("<main>", bad + "<main>"))
    drawn, shown = browse(home, "file://%s" % page)
    assert drawn.one("title").text != "owned" and listener.seen == []
    assert len([line for line in shown if "Content Security Policy" in line]) >= 2
    assert drawn.one("html").attributes["data-drawn"] == "yes"


def test_the_page_names_nothing_outside():
    """Neither page, style nor script has an address, an import, or a way to fetch or to write
    markup."""
    web = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))),
                       "web")
    for name in sorted(os.listdir(web)):
        if name == "console":       # has one of its own: tests/serve/test_console.py
            continue
        with open(os.path.join(web, name)) as source:
            text = source.read()
        for word in ("://", "@import", "url(", "fetch(", "XMLHttpRequest", "innerHTML", "outerHTML",
                     "insertAdjacentHTML",
                     "document.write", "eval(", "Function(", "import(", "setTimeout"):
            assert word not in text, (name, word)
