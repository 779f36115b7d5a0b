"""The console, in a real browser: what is done with it, hostile texts beside harmless ones, keys,
small screens and a keyboard."""
import json

import pytest
from browser import browser, needs_browser  # noqa: F401: a fixture
from server_process import Server, until
from test_keys import create

pytestmark = needs_browser

OWN = "document.title='owned'"
HOSTILE = ("<script>%s</script><img src=x onerror=\"%s\"><svg onload=%s></svg>"
           "<a href=\"javascript:%s\">x</a><base href=//evil.test> \u202e\x1b[31m" % ((OWN,) * 4))
CONTROL, SHIFT = 2, 8


class Console:
    """The page of a server, through what a user sees of it."""

    def __init__(self, page, server):
        self.page, self.server = page, server
        page.console_errors.clear()
        page.asked.clear()
        page.resize(1200, 900)
        page.open(server.address + "/")

    def button(self, words, within="body"):
        """Presses a button that is shown, by its words or its label."""
        find = ("Array.from(document.querySelectorAll(%s + ' button')).find((b) => "
                "b.checkVisibility() && !b.disabled && [b.textContent, b.ariaLabel].includes(%s))"
                % (json.dumps(within), json.dumps(words)))
        self.page.wait("((b) => b && (b.click(), true))(%s)" % find)

    def sees(self, text, within="main"):
        self.page.wait("Array.from(document.querySelectorAll(%s)).some((e) => "
                       "e.innerText.includes(%s))" % (json.dumps(within), json.dumps(text)))

    def create(self):
        """A sandbox of the page's own; returns its id."""
        self.button("New sandbox")
        self.page.wait("document.getElementById('code')")
        return self.shown()

    def shown(self):
        return self.page.js("location.hash.slice(1).split('/')[0]")

    def go(self, address):
        self.page.js("location.hash = %s" % json.dumps(address))
        self.page.frame()

    def begin(self, code):
        self.page.js("document.getElementById('code').focus()")
        self.page.type(code)
        self.button("Run")

    def run(self, code):
        """Runs a cell to its end; returns what is below its code, but for the time it took."""
        count = self.page.js("document.querySelectorAll('.cell').length")
        self.begin(code)
        self.page.wait("document.querySelectorAll('.cell').length === %d && "
                       "!document.getElementById('run-cell').disabled" % (count + 1))
        return self.page.js("Array.from(document.querySelectorAll('.cell:last-child .output, "
                            ".cell:last-child .note')).map((e) => e.innerText).join('\\n')")

    def open_files(self, path):
        self.go(self.shown() + "/files")
        self.page.wait("(document.querySelector('.files tbody') || {dataset: {}}).dataset.path")
        self.page.js("delete document.querySelector('.files tbody').dataset.path; "
                     "document.querySelector('[aria-label=Directory] input').value = %s"
                     % json.dumps(path))
        self.button("Open")
        self.page.wait("document.querySelector('.files tbody').dataset.path === %s"
                       % json.dumps(path))

    def press(self, key, modifiers=0):
        codes = {"Enter": 13, "Tab": 9}
        common = {"key": key, "code": key, "modifiers": modifiers,
                  "windowsVirtualKeyCode": codes[key]}
        text = "\r" if key == "Enter" and modifiers == 0 else ""
        self.page.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown",
                       text=text, **common)
        self.page.call("Input.dispatchKeyEvent", type="keyUp", **common)
        self.page.frame()

    def tab_to(self, words, modifiers=0):
        """Presses Tab until the focus is on what has these words."""
        for _ in range(40):
            self.press("Tab", modifiers)
            if words in self.page.js("[document.activeElement.textContent, "
                                     "document.activeElement.ariaLabel || '']"):
                return
        raise AssertionError("Tab never reaches '%s'" % words)

    def is_quiet(self):
        """Nothing failed, no policy was violated, and nothing but this server was asked."""
        assert not self.page.console_errors
        own = (self.server.address + "/", "data:", "blob:" + self.server.address, "about:blank")
        assert all(url.startswith(own) for url in self.page.asked), self.page.asked


@pytest.fixture
def console(browser, server):  # noqa: F811
    console = Console(browser, server)
    yield console
    console.is_quiet()
    browser.call("Page.navigate", url="about:blank")
    for one in server.ask("GET", "/v1/sandboxes").json["sandboxes"]:
        server.ask("DELETE", "/v1/sandboxes/" + one["id"])


# ---- what it is for ----

def test_a_sandbox_is_created_used_forked_and_ended(console, server):
    """All in the page, and the server has what the page shows. To look at a sandbox is no use of
    it, so the page does not ask for it alone."""
    first = console.create()
    output = console.run("x = 41\nprint('printed')\nx + 1")
    assert "printed" in output and output.count("42") == 1
    assert console.page.js("document.querySelectorAll('.failed').length") == 0
    assert "ZeroDivisionError" in console.run("1 / 0")
    assert console.page.js("document.querySelectorAll('.failed').length") == 1
    console.button("Fork")
    console.page.wait("!location.hash.includes(%s)" % json.dumps(first))
    copy = console.shown()
    assert "41" in console.run("x")
    assert server.execute("/v1/sandboxes/" + copy, "x")["echo"] == "41"
    console.button("End")
    console.button("Cancel")
    assert server.ask("GET", "/v1/sandboxes/" + copy).status == 200
    console.button("End")
    console.button("End it")
    console.sees("1 sandbox")
    assert server.ask("GET", "/v1/sandboxes/" + copy).status == 404
    asked = [url for url in console.page.asked if url.endswith((first, copy))]
    assert len(asked) == 1      # with DELETE


def test_each_question_has_its_own_answer(console):
    """The next one may be asked and answered before the browser tells that a dialog has closed."""
    console.create()
    console.page.js("""
        const [yes, no] = document.querySelectorAll("#question button");
        const first = confirmed("First?", "Yes");
        no.click();
        const second = confirmed("Second?", "Yes");
        yes.click();
        Promise.all([first, second]).then((answers) => window.answers = answers); 0""")
    console.page.wait("window.answers")
    assert console.page.js("window.answers") == [False, True]


def test_output_is_shown_as_it_is_written_and_a_cell_is_interrupted(console):
    console.create()
    console.begin("print('early', flush=True)\nwhile True: pass")
    console.sees("early", ".cell")
    console.sees("executing", "#facts")
    console.button("Interrupt")
    console.sees("KeyboardInterrupt", ".cell")
    assert "43" in console.run("42 + 1")


def test_more_output_than_a_page_should_hold_is_counted(console):
    console.create()
    output = console.run("print('x' * 300000)")
    assert output.count("x") < 263000 and "37,857 more characters of output are not shown" in output


def test_a_search_finds_by_id_and_metadata(console, server):
    names = [server.create(metadata={"team": name}) for name in ("red", "green")]
    console.sees("2 sandboxes")
    find = console.page.js
    find("document.getElementById('search').focus()")
    console.page.type("TEAM=green")
    console.sees("2 sandboxes, 1 found")
    assert find("document.querySelector('#rows a').hash") == "#%s/cells" % names[1][14:]
    server.ask("DELETE", names[1])
    console.sees("1 sandbox, 0 found")


def test_files_are_uploaded_browsed_downloaded_and_removed(console, server, tmp_path):
    sandbox = "/v1/sandboxes/" + console.create()
    console.open_files("/tmp")
    console.sees("The directory is empty.")
    console.page.js("""(() => {
        const given = new DataTransfer();
        given.items.add(new File([new Uint8Array([0, 255, 10])], "b\u00fccher &?.bin"));
        const input = document.querySelector("input[type=file]");
        input.files = given.files;
        input.dispatchEvent(new Event("change")); })()""")
    console.sees("b\u00fccher &?.bin", ".files tbody")
    name = "/files?path=/tmp/b%C3%BCcher%20%26%3F.bin"
    assert server.ask("GET", sandbox + name).body == b"\0\xff\n"
    console.page.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    console.button("b\u00fccher &?.bin")
    until(lambda: [file.read_bytes() for file in tmp_path.glob("*.bin")] == [b"\0\xff\n"])
    console.button("Up")
    console.button("tmp/")
    console.button("Remove b\u00fccher &?.bin")
    console.button("Remove it")
    console.sees("The directory is empty.")
    assert server.ask("GET", sandbox + name).status == 404


def test_a_server_that_has_gone_is_named(browser, start):  # noqa: F811
    server = start()
    console = Console(browser, server)
    console.sees("0 sandboxes")
    server.stop()
    console.sees("The server does not answer.", "#state")


# ---- hostile texts ----

def test_nothing_of_a_guest_is_interpreted(console, server):
    """Texts in metadata, code, output, echo, errors, rich results and names of files are shown as
    texts, with what is invisible in them; a table and an image of a result are shown as such."""
    path = server.create(metadata={"note": HOSTILE})
    console.sees("<script>%s</script>" % OWN, "#rows")
    console.go(path[14:] + "/cells")
    output = console.run("t = %r\nimport sys\nprint(t)\nprint(t, file=sys.stderr)\n"
                         "raise ValueError(t)" % HOSTILE)
    assert output.count("\\u202e\\x1b[31m") >= 3
    assert "<img src=x" in console.run("t")
    console.run("class R:\n  def _repr_html_(self):\n"
                "    return '<table><tr><td>shown' + t + '</table>' + t\nR()")
    assert console.page.js("document.querySelector('.cell td').textContent").startswith("shown")
    console.run("class V:\n  def _repr_svg_(self):\n"
                "    return '<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"9\" "
                "height=\"9\"><script>parent.%s</script></svg>'\nV()"
                % OWN.replace("'", '"'))
    console.page.wait("document.querySelector('.cell img').naturalWidth === 9")
    console.run("name = t.replace('/', '|')[:90]\nopen('/tmp/' + name, 'w').close()\n"
                "import os; os.symlink(t, '/tmp/link')")
    console.open_files("/tmp")
    console.sees("<img src=x", ".files .name")
    assert console.page.js("document.title") != "owned"
    # Of the document of tables, which is never shown: the browser reports what would not run.
    assert all("has been blocked" in text for text in console.page.console_errors), \
        console.page.console_errors
    console.page.console_errors.clear()
    assert console.page.js("document.querySelectorAll("
                           "'main script, iframe, main svg, base, [onload], [onerror], "
                           "a[href^=javascript]').length") == 0


def test_the_policy_allows_only_what_the_page_needs(browser, server):  # noqa: F811
    page = server.ask("GET", "/")
    policy = dict(part.split(" ", 1) for part in
                  page.headers["Content-Security-Policy"].split("; "))
    assert policy == {
        "default-src": "'none'", "script-src": "'self'", "style-src": "'self'",
        "img-src": "data:", "connect-src": "'self'", "base-uri": "'none'",
        "form-action": "'none'", "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'", "trusted-types": "droste-tables"}
    assert page.headers["X-Content-Type-Options"] == "nosniff"
    assert page.headers["Referrer-Policy"] == "no-referrer"
    for name in ("console.css", "console.js"):
        answer = server.ask("GET", "/console/" + name)
        assert answer.status == 200
        assert answer.headers["Content-Security-Policy"] == "default-src 'none'; sandbox"
    assert server.ask("GET", "/console/other").status == 404
    Console(browser, server)
    refused = """(() => { try { %s; return "allowed"; } catch (e) { return e.name; } })()"""
    assert browser.js(refused % "document.body.innerHTML = '<b>x</b>'") == "TypeError"
    assert browser.js(refused % "trustedTypes.createPolicy('mine', {})") == "TypeError"
    assert browser.js(refused % "document.body.textContent = '<b>x</b>'") == "allowed"
    assert browser.js("""new Promise((done) => {
        document.addEventListener("securitypolicyviolation", (e) => done(e.effectiveDirective));
        const image = document.createElement("img");
        image.src = "/health";
        document.body.append(image); })""") == "img-src"


# ---- keys ----

def is_reloaded(browser):  # noqa: F811
    """The page that signs out loads itself again; until it has, there may be none to ask."""
    try:
        return browser.js("!window.before && document.documentElement.dataset.drawn === 'yes'")
    except AssertionError:
        return False


def test_a_wrong_key_is_refused_and_a_right_one_is_kept_in_the_tab(browser, tmp_path):  # noqa: F811
    """Each key sees its own sandboxes. No address has the key."""
    key, other = create(tmp_path, "mine"), create(tmp_path, "other")
    server = Server(tmp_path)
    try:
        server.ask("POST", "/v1/sandboxes", headers={"X-API-Key": other})
        console = Console(browser, server)
        for text, words in (("e2b_wrong", "does not accept this key"), (key, "0 sandboxes")):
            console.page.wait("document.activeElement.id === 'key'")
            console.page.type(text)
            console.button("Sign in")
            console.sees(words, "body")
        console.create()
        assert "2" in console.run("1 + 1")
        assert browser.js("[Object.values(sessionStorage), localStorage.length, document.cookie]") \
            == [[key], 0, ""]
        browser.open(server.address + "/")
        console.sees("1 sandbox")
        browser.js("window.before = true")
        console.button("Sign out")
        until(lambda: is_reloaded(browser))
        browser.wait("document.activeElement.id === 'key'")
        assert browser.js("sessionStorage.length") == 0
        assert not any("e2b_" in url for url in browser.asked)
    finally:
        server.stop()


# ---- screens and keys ----

def test_a_phone_needs_no_sideways_scrolling(console, server):
    path = server.create(metadata={"note": "x" * 300})
    server.execute(path, "open('/tmp/' + 'y' * 200, 'w').close()")
    console.page.resize(360, 740)
    fits = "document.documentElement.scrollWidth <= 360"
    console.sees("note=xxx")
    assert console.page.js(fits)
    console.go(path[14:] + "/cells")
    console.run("print('z' * 500)\nclass R:\n  def _repr_html_(self): "
                "return '<table><tr>' + '<td>wide cell' * 40 + '</table>'\nR()")
    assert console.page.js(fits)
    console.open_files("/tmp")
    console.sees("yyyy")
    assert console.page.js(fits)


def test_dark_mode_has_light_text_on_a_dark_page(console):
    def light():
        return console.page.js("""[getComputedStyle(document.body).color,
            getComputedStyle(document.body).backgroundColor].map((c) => Number(c.match(/\\d+/)[0]))""")
    ink, paper = light()
    assert ink < 80 and paper > 200
    try:
        console.page.call("Emulation.setEmulatedMedia",
                          features=[{"name": "prefers-color-scheme", "value": "dark"}])
        ink, paper = light()
        assert ink > 200 and paper < 80
    finally:
        console.page.call("Emulation.setEmulatedMedia",
                          features=[{"name": "prefers-color-scheme", "value": "light"}])


def test_a_keyboard_does_all(console, server):
    """Creates, runs a cell, looks at the files and ends; the question begins at Cancel."""
    console.tab_to("New sandbox")
    console.press("Enter")
    console.page.wait("document.activeElement.id === 'code'")
    console.page.type("6 * 7")
    console.press("Enter", CONTROL)
    console.sees("42", ".cell")
    console.tab_to("Files", SHIFT)
    console.press("Enter")
    console.sees("The directory is empty.")
    console.tab_to("End", SHIFT)
    console.press("Enter")
    console.page.wait("document.activeElement.textContent === 'Cancel'")
    console.tab_to("End it", SHIFT)
    console.press("Enter")
    console.sees("0 sandboxes")
    assert server.ask("GET", "/v1/sandboxes").json["sandboxes"] == []
