"""Rules of allow-net that ask: a request waits for its approval as the call of a tool does."""
import http.server
import json
import threading
import time

import pytest

from harness import finish, repl
from test_approvals import LIMIT, place  # noqa: F401: a fixture

FETCH = """
import urllib.request, urllib.error
def fetch(path, method='GET'):
    try:
        return urllib.request.urlopen(urllib.request.Request("http://%s" + path,
                                                             method=method)).status
    except urllib.error.HTTPError as e:
        return e.read().decode().strip()
"""


@pytest.fixture(scope="module")
def served():
    """A server with the requests that have reached it."""
    class Handler(http.server.BaseHTTPRequestHandler):
        seen = []

        def do_GET(self):
            Handler.seen.append(self.command + " " + self.path)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()
        do_POST = do_GET

        def log_message(self, *_):
            pass
    with http.server.ThreadingHTTPServer(("127.0.0.2", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        Handler.where = "127.0.0.2:%d" % server.server_address[1]
        yield Handler
        server.shutdown()
        thread.join()


@pytest.fixture
def asking(place, served):  # noqa: F811
    """asking(cell, rules): a place whose runs may reach the server by these rules."""
    def make(cell, *rules):
        served.seen.clear()
        p = place(repl(FETCH % served.where + cell))
        p.flags = p.flags[:2] + [word for rule in rules for word in
                                 ("--allow-net", rule.replace("HOST", served.where))]
        return p
    return make


def test_an_approved_request_goes_on_and_its_destination_asks_once(asking, served):
    p = asking("SUBMIT([fetch('/a'), fetch('/b')])", "ask HOST")
    process = p.start("--execute-timeout", LIMIT, "--net-timeout", LIMIT)
    found, = p.waiting()
    host, port = served.where.split(":")
    assert (found["tool"], found["arguments"]) == ("allow-net", {"host": host, "port": int(port)})
    assert served.seen == []
    time.sleep(LIMIT + 0.2)     # longer than the cell and the request may take
    assert p.decide("approve", found["id"]).status == 0
    assert finish(process).json["answer"] == [200, 200] and served.seen == ["GET /a", "GET /b"]
    assert p.listed() == []


def test_a_denied_request_is_refused_with_the_reason_and_asks_no_more(asking, served):
    p = asking("SUBMIT([fetch('/a'), fetch('/b')])", "ask HOST")
    process = p.start()
    found, = p.waiting()
    assert p.decide("deny", found["id"], "--reason", "not there").status == 0
    first, second = finish(process).json["answer"]
    assert "the request was denied by the command line: not there" in first
    assert "denied before" in second and served.seen == []
    refused = p.droste.record.rows("SELECT refused, why FROM requests ORDER BY id")
    assert [row["refused"] for row in refused] == [1, 1] and "not there" in refused[0]["why"]


def test_a_rule_with_a_path_asks_for_each_request(asking, served):
    """And a rule that allows the request plainly comes before one that asks."""
    p = asking("SUBMIT([fetch('/read/x'), fetch('/pay?n=1', 'POST')])",
               "ask http://HOST/**", "GET http://HOST/read/*")
    process = p.start()
    found, = p.waiting()
    assert found["arguments"]["method"] == "POST" and found["arguments"]["path"] == "/pay"
    assert served.seen == ["GET /read/x"]
    assert p.decide("approve", found["id"]).status == 0
    assert finish(process).json["answer"] == [200, 200]
    assert served.seen == ["GET /read/x", "POST /pay?n=1"]


def test_requests_at_once_wait_for_the_same_decision(asking, served):
    p = asking("from concurrent.futures import ThreadPoolExecutor\n"
               "SUBMIT(list(ThreadPoolExecutor(3).map(fetch, ['/0', '/1', '/2'])))", "ask HOST")
    process = p.start()
    found, = p.waiting()
    assert p.decide("approve", found["id"]).status == 0
    assert finish(process).json["answer"] == [200] * 3 and len(served.seen) == 3


def test_the_deadline_decides(asking, served):
    p = asking("SUBMIT(fetch('/a'))", "ask HOST")
    result = finish(p.start("--ask-timeout", "0.3"))
    assert "there was no answer within 0.3 s" in result.json["answer"] and served.seen == []


def test_it_survives_the_host(asking, served):
    """Decided while there is no process; the resumed run finds the decision, and asks no more."""
    p = asking("SUBMIT(fetch('/a'))", "ask HOST")
    process = p.start()
    found, = p.waiting()
    process.kill()
    process.wait()
    assert p.decide("approve", found["id"]).status == 0
    assert finish(p.resume()).json["answer"] == 200 and served.seen == ["GET /a"]


def test_a_run_that_is_cancelled_refuses_what_waits(asking, served):
    p = asking("SUBMIT(fetch('/a'))", "ask HOST")
    process = p.start("--execute-timeout", "60")
    found, = p.waiting()
    process.send_signal(2)
    finish(process)
    assert p.listed() == [] and served.seen == []


def test_a_session_that_nothing_can_ask_for_refuses(droste, served):
    flags = ["--allow-net", "ask " + served.where]
    result = droste.cell(FETCH % served.where + "print(fetch('/a'))", *flags)
    assert "ask for an approval" in result["stdout"], result
    plain = droste.cell(FETCH % served.where + "print(fetch('/a'))", "--allow-net", served.where)
    assert plain["stdout"] == "200\n"


@pytest.mark.parametrize("rule", ["ask none", "ask", "ask ask 127.0.0.1:1", "ask  127.0.0.1:1"])
def test_rules_that_make_no_sense_are_refused(droste, rule):
    result = droste("exec", "-c", "1", "--allow-net", rule)
    assert result.status == 2 and "allow-net" in result.err, json.dumps(result.err)
