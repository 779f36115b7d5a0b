"""Chromium for the tests of pages, driven through the DevTools protocol.

The protocol goes through two pipes (--remote-debugging-pipe), messages end with a NUL. Every wait
is for a condition in the page, asked again after each frame.
"""
import base64
import json
import os
import select
import shutil
import subprocess
import time

import pytest
from droste_cli import PATIENCE

CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync",
         "--disable-dev-shm-usage", "--disable-extensions",
         "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]

needs_browser = pytest.mark.skipif(not CHROMIUM, reason="chromium is not installed")


class Browser:
    """One page in a browser of its own."""

    def __init__(self, place, width=1200, height=900, dark=False):
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()

        def pipes():
            """In the child: its descriptors 3 and 4 are the pipes, whatever numbers they have."""
            first, second = os.dup(theirs_in), os.dup(theirs_out)
            os.dup2(first, 3)
            os.dup2(second, 4)

        self.errors = open(os.path.join(str(place), "chromium.log"), "wb")
        self.process = subprocess.Popen(
            [CHROMIUM, *FLAGS, "--remote-debugging-pipe",
             "--user-data-dir=%s" % os.path.join(str(place), "driven"), "about:blank"],
            preexec_fn=pipes, close_fds=False, stdin=subprocess.DEVNULL, stdout=self.errors,
            stderr=self.errors, env={**os.environ, "HOME": str(place)})
        os.close(theirs_in)
        os.close(theirs_out)
        self.reader, self.writer, self.rest, self.count = ours_in, ours_out, b"", 0
        self.console_errors, self.asked = [], []
        self.session = None
        try:
            self.attach(width, height, dark)
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise

    def attach(self, width, height, dark):
        """To the page that the browser has at first."""
        targets = self.call("Target.getTargets")["targetInfos"]
        target = next(t["targetId"] for t in targets if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target,
                                 flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(domain + ".enable")
        self.resize(width, height)
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def take(self, message):
        """Notes what the console said and which addresses were asked for."""
        method, params = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.console_errors.append(details.get("exception", {}).get("description")
                                       or details["text"])
        elif method == "Log.entryAdded":
            self.console_errors.append(params["entry"]["text"])
        elif method == "Runtime.consoleAPICalled":
            self.console_errors.append(str([a.get("value") for a in params["args"]]))
        elif method == "Network.requestWillBeSent":
            self.asked.append(params["request"]["url"])

    def call(self, method, **params):
        self.count += 1
        message = {"id": self.count, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.writer, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + PATIENCE
        while True:
            while b"\0" in self.rest:
                line, self.rest = self.rest.split(b"\0", 1)
                answer = json.loads(line)
                if answer.get("id") == self.count:
                    assert "error" not in answer, (method, answer["error"])
                    return answer["result"]
                self.take(answer)
            left = deadline - time.monotonic()
            assert left > 0 and select.select([self.reader], [], [],
                                              left)[0], method + ": no answer"
            data = os.read(self.reader, 1 << 20)
            assert data, "the browser has ended"
            self.rest += data

    def js(self, text):
        """The value of an expression, or of a promise of it."""
        answer = self.call("Runtime.evaluate", expression=text, returnByValue=True,
                           awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, condition):
        """Until the expression is true; asked in the page, once in each frame."""
        done = self.js("""new Promise((done) => {
            const until = performance.now() + %d;
            const look = () => { const v = (%s); if (v) done(true); else if (performance.now() > until) done(false); else requestAnimationFrame(look); };
            look(); })""" % (PATIENCE * 800, condition))
        assert done, "never true: %s" % condition
        return done

    def open(self, address):
        self.call("Page.navigate", url="about:blank")
        self.wait("location.href === 'about:blank' && document.readyState === 'complete'")
        self.call("Page.navigate", url=address)
        self.wait("document.documentElement && document.documentElement.dataset.drawn === 'yes' && "
                  "document.readyState === 'complete'")
        return self

    def idle(self):
        """Until the closed parts are drawn as well."""
        self.wait("document.documentElement.dataset.idle === 'yes'")
        return self

    def go(self, address):
        """To another place of the same page."""
        self.js("location.hash = %s" % json.dumps(address))
        self.wait("decodeURIComponent(location.hash).slice(1) === %s" % json.dumps(address))
        self.frame()

    def frame(self):
        """Until the page was drawn once more."""
        self.js(
            "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => "
            "done(true))))")

    def press(self, key, shift=False):
        codes = {"Enter": 13, "Escape": 27, "Tab": 9, " ": 32}
        text = {"Enter": "\r", "Escape": "", "Tab": ""}.get(key, key)
        common = {"key": key, "modifiers": 8 if shift else 0,
                  "windowsVirtualKeyCode": codes.get(key, ord(key.upper()[0]))}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text,
                  **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)
        self.frame()

    def type(self, text):
        self.call("Input.insertText", text=text)

    def resize(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=width < 600)

    def picture(self, path):
        data = self.call("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as f:
            f.write(base64.b64decode(data))

    def close(self):
        try:
            self.session = None
            self.call("Browser.close")
            self.process.wait(PATIENCE)
        finally:
            self.process.kill()
            self.process.wait()
            os.close(self.reader)
            os.close(self.writer)
            self.errors.close()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """A browser for the tests of one file."""
    browser = Browser(tmp_path_factory.mktemp("browser"))
    yield browser
    browser.close()
