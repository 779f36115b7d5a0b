"""The interface for sandboxes, over loopback, as any client uses it."""
import http.client
import json
import os
import signal
import socket
import subprocess

import jsonschema
import pytest

from server_process import DROSTE, WAIT, Server, until
from harness import descendants, still_alive


@pytest.fixture(scope="module", params=["1", "3"], ids=["one", "three"])
def server(request, tmp_path_factory):
    """With one worker, and with three: a sandbox is seldom that of the worker which is asked."""
    started = Server(tmp_path_factory.mktemp("serve"), workers=request.param)
    yield started
    assert started.stop() == 0


def test_a_sandbox_keeps_its_variables(server, sandbox):
    """Between cells, with output, the value of the last expression, and errors as results."""
    first = server.execute(sandbox, "x = 41\nprint('hi')\nx + 1")
    assert (first["status"], first["stdout"], first["echo"]) == ("ok", "hi\n", "42")
    assert server.execute(sandbox, "SUBMIT(x=x)")["submit"] == {"x": 41}
    failed = server.execute(sandbox, "1 / 0")
    assert failed["status"] == "error" and "ZeroDivisionError" in failed["error"]["traceback"]


def test_sandboxes_are_listed_described_and_ended(server):
    """With what their creator noted; afterwards there is no such sandbox."""
    path = server.create(metadata={"who": "me"}, life_seconds=500)
    seen = server.ask("GET", path).json
    assert seen["metadata"] == {"who": "me"} and seen["life_seconds"] == 500
    listed = server.ask("GET", "/v1/sandboxes").json["sandboxes"]
    assert seen["id"] in [one["id"] for one in listed]
    assert server.ask("DELETE", path).status == 204
    for method, end in [("GET", ""), ("DELETE", ""), ("POST", "/interrupt"), ("POST", "/fork"),
                        ("GET", "/variables/x"), ("GET", "/files?path=/tmp/a"),
                        ("GET", "/directory?path=/tmp")]:
        answer = server.ask(method, path + end)
        assert (answer.status, answer.code) == (404, "not_found")


def events(answer):
    """The server-sent events of a body: [(name, data)]."""
    found = []
    for block in answer.decode().split("\n\n")[:-1]:
        name, data = block.split("\n")
        found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


def test_output_is_streamed(server, sandbox):
    """While the cell runs: it waits for what its reader does after the first line."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=WAIT)
    code = ("import os, sys, time\nprint('first', flush=True)\n"
            "while not os.path.exists('/tmp/go'): time.sleep(0.05)\n"
            "print('é', file=sys.stderr)\nSUBMIT(x=1)")
    connection.request("POST", sandbox + "/execute", json.dumps({"code": code, "stream": True}))
    answer = connection.getresponse()
    assert answer.headers["Content-Type"] == "text/event-stream"
    head = answer.readline() + answer.readline() + answer.readline()
    assert events(head) == [("output", {"stream": "stdout", "text": "first\n"})]
    assert server.ask("PUT", sandbox + "/files?path=/tmp/go", b"").status == 204
    rest = events(answer.read())
    connection.close()
    assert rest[0] == ("output", {"stream": "stderr", "text": "é\n"})
    assert rest[-1][0] == "result" and rest[-1][1]["submit"] == {"x": 1}


def test_a_reader_that_does_not_read_loses_output_and_is_told(server, sandbox):
    """The server and the kernel keep at most 1 MiB for it; others are served; the result comes."""
    code = "for i in range(400): print('x' * 99999)"
    body = json.dumps({"code": code, "stream": True}).encode()
    with socket.socket() as s:
        s.settimeout(WAIT)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32768)   # its own is not the server's
        s.connect(("127.0.0.1", server.port))
        s.sendall(b"POST %s/execute HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                  b"Content-Length: %d\r\n\r\n" % (sandbox.encode(), len(body)) + body)
        s.recv(1, socket.MSG_PEEK)   # it has begun
        until(lambda: server.ask("GET", sandbox).json["state"] == "idle")
        got = b"".join(iter(lambda: s.recv(1 << 20), b""))
    assert b"event: lost\n" in got and got.count(b"event: result\n") == 1
    assert got.index(b"event: lost\n") < 1 << 20


def test_one_cell_at_a_time(server, sandbox):
    """A second one is refused, an interrupt ends the first, and variables stay."""
    server.execute(sandbox, "x = 7")
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=WAIT)
    connection.request("POST", sandbox + "/execute", json.dumps({"code": "while True: pass"}))
    until(lambda: server.ask("GET", sandbox).json["state"] == "executing")
    refused = server.ask("POST", sandbox + "/execute", {"code": "1"})
    assert (refused.status, refused.code) == (409, "busy")
    until(lambda: server.ask("POST", sandbox + "/interrupt").status == 204
          and server.ask("GET", sandbox).json["state"] == "idle")
    assert json.loads(connection.getresponse().read())["status"] == "error"
    connection.close()
    assert server.execute(sandbox, "x")["echo"] == "7"


@pytest.mark.parametrize("stream", [False, True])
def test_the_cell_of_a_client_that_has_gone_ends(server, sandbox, stream):
    """Its sandbox is idle again, with its variables."""
    server.execute(sandbox, "x = 8")
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=WAIT)
    connection.request("POST", sandbox + "/execute",
                       json.dumps({"code": "while True: pass", "stream": stream}))
    until(lambda: server.ask("GET", sandbox).json["state"] == "executing")
    connection.close()
    until(lambda: server.ask("GET", sandbox).json["state"] == "idle")
    assert server.execute(sandbox, "x")["echo"] == "8"


def test_a_timeout_ends_a_cell(server, sandbox):
    """And is a result."""
    assert server.execute(sandbox, "while True: pass", timeout_seconds=0.3)["status"] == "timeout"


def test_closing_a_sandbox_answers_who_waits(server):
    """With 410, not with silence."""
    path = server.create()
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=WAIT)
    connection.request("POST", path + "/execute", json.dumps({"code": "while True: pass"}))
    until(lambda: server.ask("GET", path).json["state"] == "executing")
    assert server.ask("DELETE", path).status == 204
    assert connection.getresponse().status == 410
    connection.close()


def test_variables(server, sandbox):
    """As JSON, text and bytes; and by name only."""
    path = sandbox + "/variables/"
    for kind, data in [("application/json", b'{"a": [1, 2.5, null]}'), ("text/plain", b"text"),
                       ("application/octet-stream", b"\0\xff")]:
        answer = server.ask("PUT", path + "v", data, {"Content-Type": kind})
        assert answer.status == 204, answer.body
        server.execute(sandbox, "kept = globals().get('kept', []) + [v]")
    assert server.execute(sandbox, "kept")["echo"] == \
        "[{'a': [1, 2.5, None]}, 'text', b'\\x00\\xff']"
    server.execute(sandbox, "w = {'é': [True]}")
    assert server.ask("GET", path + "w").json == {"é": [True]}
    assert server.ask("GET", path + "none").status == 404
    assert server.ask("GET", path + "open").status == 422
    assert server.ask("GET", path + "print(1)").status == 400
    assert server.ask("PUT", path + "v", b"{", {"Content-Type": "application/json"}).status == 400
    assert server.ask("PUT", path + "v", b"{}", {"Content-Type": "image/png"}).status == 415


def test_files(server, sandbox):
    """Larger than any buffer, beside a running cell; absent ones; a directory's list."""
    data = os.urandom(5000000)
    files = sandbox + "/files?path="
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=WAIT)
    connection.request("POST", sandbox + "/execute", json.dumps({"code": "while True: pass"}))
    until(lambda: server.ask("GET", sandbox).json["state"] == "executing")
    assert server.ask("PUT", files + "/tmp/big", data).status == 204
    assert server.ask("GET", files + "/tmp/big").body == data
    chunked = iter([b"one ", b"two"])
    assert server.ask("PUT", files + "/tmp/chunks", chunked).status == 204
    assert server.ask("GET", files + "/tmp/chunks").body == b"one two"
    assert server.ask("PUT", files + "/tmp/empty", b"").status == 204
    assert server.ask("GET", files + "/tmp/empty").body == b""
    listed = server.ask("GET", sandbox + "/directory?path=/tmp").json["entries"]
    assert {(e["name"], e["kind"], e["size"]) for e in listed} >= {("big", "file", 5000000)}
    assert server.ask("DELETE", files + "/tmp/big").status == 204
    assert server.ask("GET", files + "/tmp/big").status == 404
    assert server.ask("PUT", files + "/none/a", b"x").status == 404
    assert server.ask("PUT", files + "/proc/version", b"x").status in (400, 403, 404, 409)
    assert server.ask("GET", sandbox + "/files").status == 400
    connection.close()


def test_large_chunks_arrive_as_they_were_sent(server, sandbox):
    """The library gives pieces of a chunk also while the one before is being written."""
    pieces = [bytes([number]) * 1_500_000 for number in range(1, 4)]
    path = sandbox + "/files?path=/tmp/chunks"
    assert server.ask("PUT", path, iter(pieces)).status == 204
    assert server.ask("GET", path).body == b"".join(pieces)
    assert server.ask("PUT", path + "&mode=append", iter(pieces)).status == 204
    assert server.ask("GET", path).body == 2 * b"".join(pieces)
    assert server.ask("PUT", path + "&mode=create", b"").json["error"]["errno"] == "EEXIST"
    assert server.ask("PUT", path + "&mode=other", b"").status == 400


def test_paths_lead_nowhere_outside_of_the_sandbox(server, sandbox, tmp_path):
    """A file of the host is absent, by any path; one of the sandbox is there."""
    secret = tmp_path / "secret"
    secret.write_text("host")
    for path in [str(secret), "/proc/1/root" + str(secret), "../../../../.." + str(secret)]:
        assert server.ask("GET", sandbox + "/files?path=" + path).status in (403, 404)
    server.execute(sandbox, "open('/tmp/own', 'w').write('guest')")
    assert server.ask("GET", sandbox + "/files?path=/tmp/../tmp/own").body == b"guest"
    assert server.ask("GET", sandbox + "/../../health").status == 404


def test_forks(server, sandbox):
    """Have the variables, and go their own ways."""
    server.execute(sandbox, "x = 1")
    answer = server.ask("POST", sandbox + "/fork")
    assert answer.status == 201
    fork = "/v1/sandboxes/" + answer.json["id"]
    assert server.execute(fork, "x += 1; x")["status"] == "ok"
    assert [server.execute(s, "x")["echo"] for s in (sandbox, fork)] == ["1", "2"]
    assert server.ask("DELETE", fork).status == 204


def test_requests_must_fit_their_schema(server, sandbox):
    """Unknown members and wrong types are named."""
    for body in [{}, {"code": 1}, {"code": "1", "isolation": "none"}, {"code": "1", "stream": 1}]:
        answer = server.ask("POST", sandbox + "/execute", body)
        assert (answer.status, answer.code) == (400, "schema")
    assert server.ask("POST", sandbox + "/execute", b"{").code == "json"
    assert server.ask("PATCH", sandbox).status == 405
    assert server.ask("GET", "/v1/nothing").status == 404


def test_answers_fit_the_document(server, sandbox):
    """That of /openapi.json, which is that of --openapi."""
    document = server.ask("GET", "/openapi.json").json
    printed = subprocess.run([DROSTE, "serve", "--openapi"], capture_output=True, check=True)
    assert json.loads(printed.stdout) == document
    checks = [("GET", "/health", {}, "/health"), ("GET", "/ready", {}, "/ready"),
              ("GET", "/v1/sandboxes", {}, "/v1/sandboxes"),
              ("GET", sandbox, {}, "/v1/sandboxes/{id}"),
              ("POST", sandbox + "/execute", {"code": "1"}, "/v1/sandboxes/{id}/execute"),
              ("GET", sandbox + "/directory?path=/tmp", {}, "/v1/sandboxes/{id}/directory")]
    for method, path, body, template in checks:
        answers = document["paths"][template][method.lower()]["responses"]
        schema = answers["200"]["content"]["application/json"]["schema"]
        jsonschema.validate(server.ask(method, path, body or None).json, schema)
    error = document["components"]["responses"]["Error"]["content"]["application/json"]["schema"]
    jsonschema.validate(server.ask("GET", "/v1/sandboxes/none").json, error)


def test_limits_of_time_end_sandboxes(server):
    """One that is not used, and one that lives too long, even while it works; others stay."""
    unused, old, kept = (server.create(idle_seconds=0.5), server.create(life_seconds=0.5),
                         server.create())
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=WAIT)
    connection.request("POST", old + "/execute", json.dumps({"code": "while True: pass"}))
    assert connection.getresponse().status in (404, 410)
    connection.close()
    until(lambda: server.ask("GET", unused).status == 404)
    assert server.ask("GET", kept).status == 200
    server.ask("DELETE", kept)


def test_the_number_of_sandboxes_is_bounded(start):
    """One more is refused until one ends."""
    server = start("--max-sandboxes", "1", "--queue", "0")
    path = server.create()
    for refused in (server.ask("POST", "/v1/sandboxes", {}), server.ask("POST", path + "/fork")):
        assert (refused.status, refused.code) == (429, "capacity")
        assert refused.headers["Retry-After"] == "1"
    server.ask("DELETE", path)
    server.create()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_is_left_of_a_server_that_ends(start, number):
    """However it ends, in the middle of a cell."""
    server = start("--drain", "0.2")
    path = server.create()
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=WAIT)
    connection.request("POST", path + "/execute", json.dumps({"code": "while True: pass"}))
    until(lambda: server.ask("GET", path).json["state"] == "executing")
    below = descendants(server.process.pid)
    assert len(below) >= 2
    server.process.send_signal(number)
    assert server.process.wait(WAIT) == (0 if number == signal.SIGTERM else -number)
    connection.close()
    until(lambda: not still_alive(below))


def test_sigterm_drains(start):
    """A cell that runs may end; nothing new begins."""
    server = start()
    path = server.create()
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=WAIT)
    code = ("import os, time\n"
            "while not os.path.exists('/tmp/go') or open('/tmp/go').read() != 'ok':\n"
            "    time.sleep(0.05)\nprint('whole')")
    connection.request("POST", path + "/execute", json.dumps({"code": code}))
    until(lambda: server.ask("GET", path).json["state"] == "executing")
    with server.connect() as upload:
        upload.sendall(b"PUT %s/files?path=/tmp/go HTTP/1.1\r\nHost: localhost\r\n"
                       b"Content-Length: 2\r\n\r\no" % path.encode())
        until(lambda: server.ask("GET", path + "/files?path=/tmp/go").body == b"o")
        server.process.send_signal(signal.SIGTERM)

        def is_closed():
            try:
                server.connect().close()
            except ConnectionRefusedError:
                return True
            except ConnectionResetError:
                pass   # the socket was closed between the two halves of the handshake
            return False
        until(is_closed)
        upload.sendall(b"k")
        assert upload.recv(1000).startswith(b"HTTP/1.1 204 ")
    answer = connection.getresponse()
    assert answer.status == 200 and json.loads(answer.read())["stdout"] == "whole\n"
    connection.close()
    assert server.process.wait(WAIT) == 0


def test_addresses(tmp_path):
    """Only loopback and unix sockets; an address in use is named."""
    def fails(where):
        return subprocess.run([DROSTE, "serve", "--listen", where], capture_output=True, text=True,
                              timeout=WAIT, env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)})
    for where, word in [("0.0.0.0:0", "loopback"), ("8.8.8.8:1", "loopback"),
                        ("[::]:0", "loopback"), ("localhost", "127.0.0.1:PORT"), ("", "expected"),
                        ("127.0.0.1:99999", "expected"), ("unix:", "path")]:
        done = fails(where)
        assert done.returncode == 2 and word in done.stderr, where
    path = str(tmp_path / "socket")
    process = subprocess.Popen([DROSTE, "serve", "--listen", "unix:" + path], text=True,
                               stdout=subprocess.PIPE,
                               env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)})
    try:
        assert process.stdout.readline() == "unix:%s\n" % path
        assert os.stat(path).st_mode & 0o777 == 0o600
        assert "another server" in fails("unix:" + path).stderr and os.path.exists(path)
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(WAIT)
            s.connect(path)
            s.sendall(b"GET /health HTTP/1.1\r\nHost: droste\r\n\r\n")
            assert s.recv(1000).startswith(b"HTTP/1.1 200 ")
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT) == 0
        process.stdout.close()
    assert not os.path.exists(path)


def test_ranges_of_files(server, sandbox):
    """RFC 9110, 14: one range of bytes; others are ignored, and what is not there is 416."""
    where = sandbox + "/files?path=ranged"
    server.ask("PUT", where, b"0123456789")
    for asked, status, body, content_range in [
            ("bytes=2-4", 206, b"234", "bytes 2-4/10"), ("bytes=7-", 206, b"789", "bytes 7-9/10"),
            ("bytes=-3", 206, b"789", "bytes 7-9/10"), ("bytes=0-99", 206, b"0123456789",
                                                        "bytes 0-9/10"),
            ("bytes=-99", 206, b"0123456789", "bytes 0-9/10"), ("bytes=9-9", 206, b"9",
                                                                "bytes 9-9/10"),
            ("bytes=5-2", 200, b"0123456789", None), ("bytes=1-2,4-5", 200, b"0123456789", None),
            ("lines=1-2", 200, b"0123456789", None), ("bytes=-", 200, b"0123456789", None),
            ("bytes=x-1", 200, b"0123456789", None),
            ("bytes=10-", 416, None, "bytes */10"), ("bytes=-0", 416, None, "bytes */10"),
            ("bytes=99999999999999999999-", 200, b"0123456789", None)]:
        answer = server.ask("GET", where, headers={"Range": asked})
        assert (answer.status, answer.headers["Content-Range"]) == (status, content_range), asked
        assert body is None or answer.body == body, asked
    assert server.ask("GET", where).headers["Accept-Ranges"] == "bytes"


def test_directories_are_created_listed_moved_and_removed(server, sandbox):
    """Entries tell the owner, and where links lead."""
    assert server.ask("PUT", sandbox + "/directory?path=tree/a/b").status == 204
    assert server.ask("PUT", sandbox + "/directory?path=tree/a/b").status == 204
    server.ask("PUT", sandbox + "/files?path=tree/a/b/c", b"1")
    server.execute(sandbox, "import os; os.symlink('a/b/c', 'tree/l'); os.symlink('x', 'tree/x')")
    found = server.ask("GET", sandbox + "/directory?path=tree&depth=3").json["entries"]
    assert [e["name"] for e in found] == ["a", "a/b", "a/b/c", "l", "x"]
    assert (found[3]["kind"], found[3]["target_kind"], found[4]["target_kind"]) == \
        ("link", "file", "none")
    entry = server.ask("GET", sandbox + "/files/entry?path=tree/l").json
    assert entry["target"].endswith("/tree/a/b/c") and entry["user"] == found[0]["user"] != ""
    assert server.ask("POST", sandbox + "/files/move?path=tree/a&to=moved").status == 204
    assert server.ask("GET", sandbox + "/files?path=moved/b/c").body == b"1"
    assert server.ask("POST", sandbox + "/files/move?path=no&to=a").status == 404
    assert server.ask("POST", sandbox + "/files/move?path=moved").status == 400
    assert server.ask("GET", sandbox + "/files/entry?path=no").status == 404
    for path in ("moved", "tree"):
        assert server.ask("DELETE", sandbox + "/directory?path=" + path).status == 204
        assert server.ask("GET", sandbox + "/directory?path=" + path).status == 404
