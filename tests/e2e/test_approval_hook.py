"""A webhook is told of each call that waits for an approval, and may decide; it is trusted only for
that, and its failures leave the decision to others."""
import hashlib
import hmac
import http.server
import json
import socket
import threading

import pytest

from harness import at, finish, repl, wait_until
from test_approvals import SUB, TRIED, place, spender  # noqa: F401

SECRET = "a secret of the webhook"
DENIED = "PermissionError: the call of write() was denied by "


class Hook:
    """A server that checks each signature, as a careful one does, and answers from a list; the last
    answer stays. An answer is a status with a body, or an Event to wait for before the next one."""

    def __init__(self, *answers):
        self.answers, self.asked, self.paths, self.faults = list(answers), [], [], []
        hook = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                hook.paths.append(self.path)
                self.check(body)
                reply = hook.answers.pop(0) if len(hook.answers) > 1 else hook.answers[0]
                hook.asked.append(json.loads(body))
                self.answer(reply)

            def check(self, body):
                signed = dict(part.split("=") for part in
                              self.headers["Droste-Signature"].split(","))
                mac = hmac.new(SECRET.encode(), b"%s.%s" % (signed["t"].encode(), body),
                               hashlib.sha256)
                if not hmac.compare_digest(mac.hexdigest(), signed["v1"]):
                    hook.faults.append(body)

            def answer(self, reply):
                if isinstance(reply, threading.Event):
                    reply.wait(60)
                    reply = hook.answers[0]
                status, text, *headers = reply
                try:
                    self.send_response(status)
                    for name, value in headers:
                        self.send_header(name, value)
                    self.send_header("Content-Length", str(len(text)))
                    self.end_headers()
                    self.wfile.write(text.encode())
                except OSError:
                    pass        # the other side does not wait any more

            def log_message(self, *words):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = "http://127.0.0.1:%d/hook?key=1" % self.server.server_port
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def close(self):
        for reply in self.answers:
            if isinstance(reply, threading.Event):
                reply.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


def say(decision, **more):
    return (200, json.dumps({"decision": decision, **more}))


@pytest.fixture
def hook():
    made = []

    def make(*answers):
        made.append(Hook(*answers))
        return made[-1]
    yield make
    for one in made:
        one.close()
        assert one.faults == []


@pytest.fixture
def announced(place):  # noqa: F811
    """A place whose calls are announced to a URL."""
    def make(url, cell=TRIED % 4):
        p = place(repl(cell))
        p.droste.env["DROSTE_ASK_WEBHOOK_SECRET"] = SECRET
        p.flags += ["--ask-webhook", url]
        return p
    return make


def test_the_response_approves_a_call_and_its_cell_goes_on(announced, hook):
    to = hook(say("approve", reason="fine"))
    p = announced(to.url)
    result = finish(p.start())
    assert result.json["answer"] == 40 and p.done == [4], result
    asked, = to.asked
    assert asked["type"] == "approval.waiting" and to.paths == ["/hook?key=1"]
    assert (asked["approval"]["tool"], asked["approval"]["arguments"]) == ("write", {"n": 4})
    assert asked["approval"]["run"] == p.droste.record.run["id"]
    call, = p.droste.record.rows("SELECT decision, decided_by, decision_reason FROM calls "
                                 "WHERE kind = 'tool'")
    assert tuple(call.values()) == ("approved", "the webhook", "fine")


def test_the_response_denies_a_call(announced, hook):
    p = announced(hook(say("deny", reason="not today")).url)
    assert finish(p.start()).json["answer"] == DENIED + "the webhook: not today" and p.done == []


@pytest.mark.parametrize("answer, note", [
    ((202, ""), None), ((200, "ok"), None), ((200, '{"seen": true}'), None), ((200, "[1]"), None),
    ((403, "who are you?"), "refused the request (403): who are you?"),
    ((302, "", ("Location", "/yes")), "redirects, which is not followed"),
    (say("maybe"), 'neither "approve" nor "deny"'),
    (say(True), 'neither "approve" nor "deny"'),
    ((200, '{"decision": "approve"}' + " " * 70000), "an answer of more than")])
def test_any_other_response_leaves_the_decision_to_others(announced, hook, answer, note):
    to = hook(answer)
    p = announced(to.url)
    notes = p.path / "said"
    with open(notes, "wb") as file:
        process = p.keep(p.droste.start("run", "--question", "q", *p.flags, cwd=p.path,
                                        stderr=file))
    found, = p.waiting()
    wait_until(lambda: to.asked and (note or "") in notes.read_text(), what="the announcement")
    assert p.decide("deny", found["id"]).status == 0
    assert DENIED + "the command line" in finish(process).out and p.done == []
    assert ("was not told" in notes.read_text()) is (note is not None)
    assert len(to.asked) == 1


def test_where_the_hook_cannot_be_reached_others_decide(announced):
    with socket.socket() as taken:      # bound, but nothing listens
        taken.bind(("127.0.0.1", 0))
        p = announced("http://127.0.0.1:%d/" % taken.getsockname()[1])
        process = p.start()
        found, = p.waiting()
        assert p.decide("approve", found["id"]).status == 0
        assert finish(process).json["answer"] == 40 and p.done == [4]


def test_the_first_decision_counts_and_a_late_one_of_the_hook_does_nothing(announced, hook):
    until = threading.Event()
    to = hook(until, say("approve"))
    p = announced(to.url)
    process = p.start()
    found, = p.waiting()
    wait_until(lambda: to.asked, what="the announcement")
    assert p.decide("deny", found["id"]).status == 0
    assert finish(process).json["answer"] == DENIED + "the command line"
    until.set()
    assert p.done == []


def test_the_deadline_decides_where_the_hook_is_slow(announced, hook):
    p = announced(hook(say("approve")).url)
    for limit in "0.5", "10":
        to = hook(threading.Event(), say("approve"))
        result = finish(p.start("--ask-webhook", to.url, "--ask-timeout", limit))
        if to.asked:
            break       # else the deadline came before the request
    assert "there was no answer within %s s" % limit in result.json["answer"] and p.done == []
    assert len(to.asked) == 1


def test_a_call_is_announced_again_after_a_restart_and_runs_once(announced, hook):
    to = hook((202, ""), say("approve"))
    p = announced(to.url)
    process = p.start()
    wait_until(lambda: to.asked, what="the announcement")
    process.kill()
    process.wait()
    assert finish(p.resume()).json["answer"] == 40 and p.done == [4]
    first, second = [asked["approval"] for asked in to.asked]
    assert [first[key] for key in ("id", "run", "asked", "until")] == \
        [second[key] for key in ("id", "run", "asked", "until")]


def test_what_was_decided_meanwhile_is_not_announced_again(announced, hook):
    to = hook((202, ""))
    p = announced(to.url)
    process = p.start()
    found, = p.waiting()
    wait_until(lambda: to.asked, what="the announcement")
    process.kill()
    process.wait()
    assert p.decide("approve", found["id"]).status == 0
    assert finish(p.resume()).json["answer"] == 40 and p.done == [4] and len(to.asked) == 1


def test_a_session_without_a_record_asks_the_hook(announced, hook, droste):
    to = hook(say("approve"), say("deny"), (403, "no"))
    p = announced(to.url)
    seen = [droste.cell(TRIED % 4, *p.flags[2:], cwd=p.path)["submit"]["output"] for _ in range(3)]
    assert seen[0] == 40 and seen[1] == DENIED + "the webhook"
    assert seen[2].endswith("refused the request (403): no") and p.done == [4]
    assert to.asked[0]["approval"]["id"] == 0


@pytest.mark.parametrize("url, secret, text", [
    ("http://example.com/hook", SECRET, "must be https://"),
    ("ftp://127.0.0.1/", SECRET, "ask-webhook"),
    ("http://127.0.0.1.example.com/", SECRET, "must be https://"),
    ("https://example.com/hook", "short", "needs a secret"),
    ("https://example.com/hook", None, "needs a secret")])
def test_settings_that_would_not_be_safe_are_refused(announced, url, secret, text):
    p = announced(url)
    if secret is None:
        del p.droste.env["DROSTE_ASK_WEBHOOK_SECRET"]
    else:
        p.droste.env["DROSTE_ASK_WEBHOOK_SECRET"] = secret
    result = finish(p.start())
    assert result.status == 2 and text in result.err and p.done == []


@pytest.mark.parametrize("decision, answer", [("approve", [42, "sub"]), ("deny", 41)])
def test_the_response_decides_about_spending(place, hook, decision, answer):  # noqa: F811
    to = hook(say(decision))
    p = spender(place, repl(SUB), at(1, "sub"), repl("SUBMIT(x)"))
    p.droste.env["DROSTE_ASK_WEBHOOK_SECRET"] = SECRET
    p.flags += ["--ask-webhook", to.url]
    assert finish(p.start()).json["answer"] == answer
    asked, = to.asked
    assert asked["approval"]["tool"] == "ask-cost"
    assert asked["approval"]["arguments"]["limit"] == 4
