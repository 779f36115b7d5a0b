"""`on_network=function`: the program decides about requests that the rules allow."""
import asyncio
import http.server
import sqlite3
import threading

import pytest

import droste

SERVER = "127.0.0.2"
FETCH = """
import os, socket, urllib.request, urllib.error
def fetch(path, **fields):
    try:
        ask = urllib.request.Request("http://%s" + path, headers=fields)
        return urllib.request.urlopen(ask).status
    except urllib.error.HTTPError as e:
        return e.read().decode().strip()
    except OSError as e:
        return type(e).__name__
"""
REFUSED = "droste: the program refuses it"


@pytest.fixture(scope="module")
def where():
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass
    with http.server.ThreadingHTTPServer((SERVER, 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield "%s:%d" % (SERVER, server.server_address[1])
        server.shutdown()
        thread.join()


def opened(where, function, **settings):
    return droste.Interpreter(allow_net=where, on_network=function, setup_code=FETCH % where,
                              **settings)


def out(interp, code):
    result = interp.execute(code)
    assert result.error is None, result.error.traceback
    return result.stdout.strip()


@pytest.mark.parametrize("decision, answer", [
    (None, "200"), (True, "200"), (False, REFUSED), ("not today", "droste: not today"),
    ("", REFUSED), ("a\r\nX-Field: b\0" + "é" * 300, None),
    (1, "droste: on_network failed: TypeError: it must return None, True, False or a reason, "
        "not 1")])
def test_what_a_function_returns_decides(where, decision, answer):
    asked = []

    def function(request):
        asked.append(request)
        return decision
    host, port = where.split(":")
    with opened(where, function) as interp:
        text = out(interp, "print(fetch('/a?b=c'))")
    assert text == answer if answer else text.startswith("droste: a\r\nX-Field: bé") or \
        text.startswith("droste: a\nX-Field: bé")
    assert asked == [droste.NetworkRequest("GET", host, int(port), "/a?b=c", ())]


def test_an_exception_refuses(where):
    with opened(where, lambda request: 1 // 0) as interp:
        assert "on_network failed: ZeroDivisionError" in out(interp, "print(fetch('/'))")


def test_what_rules_refuse_is_not_asked_about(where):
    asked = []
    with opened("GET http://%s/open/*" % where, asked.append) as interp:
        text = out(interp, """
urllib.request.urlopen("http://%s/open/x").read()
try:
    urllib.request.urlopen("http://%s/closed")
except urllib.error.HTTPError as e:
    print(e.code)""" % (where, where))
    assert text == "403" and [request.path for request in asked] == ["/open/x"]


def test_tunnels_are_asked_about(where):
    asked = []
    host, port = where.split(":")
    with opened(where, lambda request: asked.append(request) or request.method != "SOCKS"
                ) as interp:
        assert out(interp, """
def ask(data, *more):
    with socket.create_connection(("127.0.0.1", 3128)) as s:
        s.sendall(data)
        answer = s.recv(100)
        for data in more:
            s.sendall(data)
            answer = s.recv(100)
        return answer[:12]
host, port = "%s", %s
print(ask(b"CONNECT %s HTTP/1.1\\r\\nHost: %s\\r\\n\\r\\n"), ask(
    b"\\x05\\x01\\x00", b"\\x05\\x01\\x00\\x01" + socket.inet_aton(host) + port.to_bytes(2, "big"))[:2])
""" % (host, port, where, where)) == r"b'HTTP/1.1 200' b'\x05\x02'"
    assert [(r.method, r.host, r.port, r.path) for r in asked] == [
        (method, host, int(port), None) for method in ("CONNECT", "SOCKS")]


def test_names_of_secrets_are_there_and_values_are_not(where, monkeypatch):
    monkeypatch.setenv("KEY", "sk-live-0123456789")
    asked = []
    with opened(where, lambda r: asked.append(r) or not r.secrets,
                secret=["KEY for http://" + where, "KEY for http://%s query k" % where]) as interp:
        assert out(interp, """
key = os.environ["KEY"]
print(fetch("/", Authorization="Bearer " + key), fetch("/?k=" + key), fetch("/" + key))
""") == " ".join((REFUSED, REFUSED, "200"))
    assert [r.secrets for r in asked] == [("KEY",), ("KEY",), ()]
    assert "sk-live" not in str(asked)


def test_async_functions_decide(where):
    async def function(request):
        await asyncio.sleep(0.01)
        return request.path == "/yes" or "no"

    async def main():
        async with opened(where, function) as interp:
            return (await interp.execute("print(fetch('/yes'), fetch('/no'))")).stdout
    assert asyncio.run(main()) == "200 droste: no\n"
    with opened(where, function) as interp:
        assert out(interp, "print(fetch('/yes'), fetch('/no'))") == "200 droste: no"


def test_forks_and_sessions_of_a_template_ask_too(where):
    """Also after the session that was first has ended, and other sessions have functions of their
    own."""
    first, second = [], []
    parent = opened(where, first.append).start().owner
    fork = parent.fork()
    with opened(where, lambda r: second.append(r) or False) as other:
        parent.shutdown()
        assert out(fork, "print(fetch('/fork'))") == "200"
        assert out(other, "print(fetch('/other'))") == REFUSED
    fork.shutdown()
    assert [r.path for r in first] == ["/fork"] and [r.path for r in second] == ["/other"]
    with droste.Template(allow_net=where, setup_code=FETCH % where) as template:
        with droste.Interpreter(template=template, on_network=lambda r: False) as interp, \
                droste.Interpreter(template=template) as free:
            assert out(interp, "print(fetch('/'))") == REFUSED
            assert out(free, "print(fetch('/'))") == "200"


def test_a_function_that_is_slow_refuses_and_others_go_on(where):
    """The code gives up, or the deadline passes; the answer that comes later changes nothing."""
    release = threading.Event()

    def function(request):
        if request.path == "/slow":
            release.wait(60)
        return None
    late = "droste: the program did not decide in time"
    for seconds in (0.5, 2, 8):     # in which a slow machine decides about what is fast
        release.clear()
        with opened(where, function, net_timeout=seconds) as interp:
            text = out(interp, """
import threading
texts = []
slow = threading.Thread(target=lambda: texts.append(fetch("/slow")))
slow.start()
print(fetch("/fast"))
gone = socket.create_connection(("127.0.0.1", 3128))
gone.sendall(b"GET http://%s/slow HTTP/1.1\\r\\nHost: %s\\r\\n\\r\\n")
gone.close()
slow.join()
print(*texts)
""" % (where, where))
            release.set()
            if text.startswith("200"):
                assert out(interp, "print(fetch('/fast'))") == "200"
                break
    assert text == "200\n" + late


def test_a_run_and_its_record(where, tmp_path):
    database = str(tmp_path / "runs.db")

    def model(messages):
        return "```repl\n%s\nSUBMIT([fetch('/yes'), fetch('/no')])\n```" % (FETCH % where)
    for _ in range(2):
        rlm = droste.RLM(model, allow_net=where, database=database,
                         on_network=lambda r: r.path == "/yes" or "because")
        completion = rlm.run("q")
        assert completion.answer == [200, "droste: because"]
        yes, no = droste.runs.get(completion.run, database=database).requests
        assert (yes.method, "%s:%d" % (yes.host, yes.port), yes.path, yes.address, yes.refused,
                yes.why, yes.status, yes.turn) == ("GET", where, "/yes", where, False, None, 200, 1)
        assert yes.cell and yes.sent > 0 and yes.received > 0 and yes.seconds >= 0
        assert (no.path, no.address, no.refused, no.why, no.status) == (
            "/no", None, True, "because", 403)
        assert droste.runs.ls(database=database)[0].requests == ()
    with sqlite3.connect(database) as db:
        assert db.execute("SELECT path, refused, why FROM requests ORDER BY id").fetchall() == [
            ("/yes", 0, None), ("/no", 1, "because")] * 2


def test_mistakes_are_named():
    with pytest.raises(droste.ArgumentError, match="on_network"):
        droste.Interpreter(on_network="no")
    with pytest.raises(droste.UnsupportedError, match="on_network"):
        droste.Interpreter(server="http://127.0.0.1:9", on_network=print)
    with pytest.raises(droste.UnsupportedError, match="on_network"):
        droste.RLM("m", server="http://127.0.0.1:9", on_network=print)
